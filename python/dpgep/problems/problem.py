"""A problem: data of people, rows or two matrices, and the model to fit to them. What `pca` and the others build."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, TypeVar, cast, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import suggestion
from dpgep.data.dataset import Dataset, InMemoryDataset, PreprocessedDataset
from dpgep.data.distributed import DaskDataset, SparkDataset, dask_parts, read_again, read_chunks
from dpgep.data.float_sums import FloatSums, GroupSums, cross_norms
from dpgep.data.ids import Identities
from dpgep.data.inputs import (
    View,
    as_matrix,
    check_adjacency,
    class_codes,
    clipping_of,
    fewest_rows,
    frame_categories,
    inputs_of,
    n_rows,
    named,
    opened,
    require_row_model,
    require_width,
    slice_codes,
)
from dpgep.data.integer_moments import IntegerMoments, sums_of_nobody
from dpgep.data.integer_sums import GridSums, not_finite_in
from dpgep.data.people import NO_PUBLIC_N, Coded, PeopleDataset, StreamedDataset, Weighting
from dpgep.data.rows import Batch, NotFiniteError, Rows
from dpgep.models import GepModel
from dpgep.models.model import Adjacency, Matrix, Model, PublicFacts, PublicSide
from dpgep.models.moments import MomentLayout
from dpgep.models.pairwise import require_pairs
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.row_model import Classes, RowModel, input_names, layout_of, view_labels
from dpgep.sources import Scan, Selection
from dpgep.sources.kinds import is_dask_collection, is_dask_frame, is_spark_frame
from dpgep.sources.names import as_text
from dpgep.sources.scan import parquet_parts

if TYPE_CHECKING:
    from typing_extensions import Unpack

_B = TypeVar("_B", bound="Callable[..., MomentProblem]")


class Problem(ABC):
    """Data of people and what is asked of them. Stays with the curator: a method sees ``public`` alone."""

    model: Model
    facts: PublicFacts
    public: PublicSide
    weight_bits: int = 0  # 2^weight_bits whole weights make a person in all sums
    kind: str  # what the data are, for messages
    dataset: Dataset | None = None  # the rows, where there are any
    preprocessing: Preprocessing | None = None  # the public map of the rows; None where they are as they were given
    auto: AutoPreprocessing | None = None  # how a run buys one first

    def restricted(self, features: NDArray[np.intp], bound: float) -> Problem:
        """The same of some of the features, rows clipped to ``bound`` (public) after the others are dropped."""
        self.refuse("a release of some features")

    def keeping_sums(self) -> Problem:
        """The same, for several releases: sums of rows are kept from one to the next."""
        return self

    def naming_columns(self, error: NotFiniteError) -> NotFiniteError:
        """What refuses the data, with the names of the columns where there are any."""
        return error

    def refuse(self, purpose: str) -> NoReturn:
        """Raise ValueError: what is asked needs rows."""
        advice = "use method='release' (with storage='matrix'), or a problem on the rows; no budget was spent"
        raise ValueError(f"{self.kind} contain no rows and cannot provide {purpose}: {advice}")


@dataclass(frozen=True, eq=False)
class MomentProblem(Problem):
    """Rows of people and the model to fit to them, built by `pca` and the like.

    ``is_sparse`` says whether zeros of rows must stay zeros, ``can_shift`` whether rows may be shifted,
    ``takes_missing`` whether NaN is an absent value, which counts as the location of its column.
    """

    model: RowModel
    facts: PublicFacts
    layout: MomentLayout
    dataset: Dataset
    preprocessing: Preprocessing | None = None
    auto: AutoPreprocessing | None = None
    is_sparse: bool = False
    kept: dict[int, IntegerMoments] | None = None
    public: PublicSide = field(init=False)
    weight_bits: int = field(init=False)
    takes_missing: bool = field(init=False)
    can_shift: bool = field(init=False)
    kind = "rows"

    def __post_init__(self) -> None:
        """Covariances are at most the squared row bound."""
        data, largest_b = self.dataset, 1.0 if self.model.traits.identity_b else self.dataset.bound**2
        mixes = pairwise = takes_missing = False
        if self.auto is not None:
            mixes, pairwise = self.auto.precondition == "full", self.auto.missing == "pairwise"
            takes_missing = self.auto.missing != "error"
        elif self.preprocessing is not None:
            mixes, pairwise = self.preprocessing.linear is not None, self.preprocessing.pairwise
            takes_missing = self.preprocessing.missing
        facts = data.at_hand, data.mapped, data.read_once, mixes, self.preprocessing, pairwise
        public = PublicSide(self.model, self.facts, largest_b, *facts)
        can_shift = self.model.traits.shift_free and not self.is_sparse
        vars(self).update(public=public, weight_bits=data.weight_bits, takes_missing=takes_missing, can_shift=can_shift)

    grid_bits = None  # any grid serves: rows are put on it when they are read

    def keeping_sums(self) -> MomentProblem:
        return replace(self, kept={})

    def naming_columns(self, error: NotFiniteError) -> NotFiniteError:
        return not_finite_in(self.model, self.dataset, missing=self.takes_missing)

    def in_finest_weights(self) -> MomentProblem:
        """The same people, weights in the finest units that there are: for sums in floating point."""
        return replace(self, dataset=self.dataset.in_finest_weights())

    def plain_sums(self) -> tuple[int, tuple[Matrix, Matrix, Matrix], float]:
        """(number of people, blocks of the sums in floating point, share of clipped people)."""
        finest = self.in_finest_weights()
        sums, weight_bits = finest.float_moments(), finest.weight_bits
        np.ldexp(sums.total, -weight_bits, out=sums.total)
        return sums.n >> weight_bits, self.layout.blocks(sums.total), sums.n_clipped / max(sums.n, 1)

    def float_moments(self) -> FloatSums:
        """The moment matrix in floating point."""
        return self.dataset.accumulate(partial(FloatSums, self.layout), alone=True, weight_bits=self.weight_bits)

    def integer_moments(self, bits: int) -> IntegerMoments:
        """The moment matrix of rows in fixed point, exact."""
        if self.kept is None:
            return self._integer_moments(bits)
        if bits not in self.kept:  # rows are read once, unless grids differ
            self.kept.clear()
            self.kept[bits] = self._integer_moments(bits)
        return deepcopy(self.kept[bits])  # noise may be added to it

    def _integer_moments(self, bits: int) -> IntegerMoments:
        make = partial(sums_of_nobody, self.layout, bits)
        return self.dataset.accumulate(make, alone=True, weight_bits=self.weight_bits).moments(self.weight_bits)

    def grid_sums(self, bits: int, *, with_squares: bool = False) -> GridSums:
        """Counts and sums per group, and on request squares of all features, of rows in fixed point: exact."""
        make = partial(GridSums, self.layout, bits, with_squares=with_squares)
        return self.dataset.accumulate(make, weight_bits=self.weight_bits).of_people(self.weight_bits)

    def group_sums(self, *, with_squares: bool = False) -> GroupSums:
        """Counts and sums per group, and on request squares of all features, in floating point."""
        make = partial(GroupSums, self.layout, with_squares=with_squares)
        return self.dataset.accumulate(make, weight_bits=self.weight_bits).of_people(self.weight_bits)

    def cross_norms(self) -> Matrix:
        """Norms of each feature's row of the covariance with other views (the moment, if not centred), times n."""
        accumulate = partial(self.dataset.accumulate, weight_bits=self.weight_bits)
        return np.ldexp(cross_norms(accumulate, self.model.views, centred=self.layout.sums), -self.weight_bits)

    def prepared(self, preprocessing: Preprocessing) -> MomentProblem:
        """The problem of the rows that ``preprocessing`` maps."""
        return prepared_problem(self.model, self.facts, self.dataset, preprocessing)

    def restricted(self, features: NDArray[np.intp], bound: float) -> MomentProblem:
        return MomentProblem(
            self.model.restricted(features),
            replace(self.facts, bound=bound),
            replace(self.layout, n_features=len(features)),
            self.dataset.restricted(features, bound),
            None if self.preprocessing is None else self.preprocessing.restricted(features, bound),
        )

    def __repr__(self) -> str:
        facts = self.facts
        size = f"n={facts.n}, " if facts.n is not None else ""
        bound = "'auto'" if facts.bound is None else f"{facts.bound:g}"
        return f"{self.model.name}({size}d={self.model.n_features}, bound={bound}, {facts.adjacency})"


@dataclass(frozen=True, eq=False)
class MatrixProblem(Problem):
    """A and B with Frobenius sensitivities sensitivity_a/n and sensitivity_b/n. Built by `gep`."""

    model: GepModel
    facts: PublicFacts
    a: Matrix
    b: Matrix | None
    sensitivity_a: float
    sensitivity_b: float
    public: PublicSide = field(init=False)
    kind = "matrices"

    def __post_init__(self) -> None:
        """With the largest eigenvalue of B where B is public."""
        largest_b = 1.0 if self.b is None else None if self.sensitivity_b else float(np.linalg.norm(self.b, 2))
        vars(self).update(public=PublicSide(self.model, self.facts, largest_b))

    @property
    def n(self) -> int:
        assert self.facts.n is not None  # `gep` demands it
        return self.facts.n

    def restricted(self, features: NDArray[np.intp], bound: float) -> MatrixProblem:
        """The same problem restricted to some features; the caller's sensitivities apply, no bound does."""
        corner = np.ix_(features, features)
        b = None if self.b is None else self.b[corner]
        return replace(self, model=self.model.restricted(features), a=self.a[corner], b=b)

    def __repr__(self) -> str:
        return f"gep(n={self.n}, d={self.model.n_features}, {self.facts.adjacency})"


def rows_of(problem: Problem, purpose: str) -> MomentProblem:
    """The problem itself, where there are rows; ValueError, which names the purpose, where there are none."""
    return problem if isinstance(problem, MomentProblem) else problem.refuse(purpose)


def batch_of(model: RowModel, bound: float, *data: Any) -> Batch:
    """The people of one batch of data, checked: their rows and, where the model has a grouping, the group of each."""
    return Batch.of_codes(*coded_of(model, bound, *data))


def coded_of(model: RowModel, bound: float, *data: Any) -> Coded:
    """The rows of one batch of data, checked, and the code of each one's group."""
    views = []
    for values, name, columns in zip(data, input_names(model), model.views, strict=False):
        views.append(as_matrix(values, name))
        require_width(views[-1].shape[1], name, columns.stop - columns.start)
    return _coded(model, bound, views, data[len(views) :])


def _coded(model: RowModel, bound: float, views: Sequence[Any], groups: Sequence[Any]) -> Coded:
    """Rows of views, which are matrices, and the code of each one's label or response."""
    if any(view.shape[0] != views[0].shape[0] for view in views):
        raise ValueError("X and Y must have the same number of rows: a row of each describes the same person")
    rows, grouping = Rows(tuple(views), bound), model.grouping if groups else None
    if grouping is None:
        return rows, None
    if isinstance(grouping, Classes):
        return rows, class_codes(groups[0], rows.n, grouping.labels)
    return rows, slice_codes(groups[0], rows.n, np.array(grouping.interior_edges))


def dataset_of(
    model: RowModel,
    views: Sequence[View],
    groups: Sequence[Any],
    bound: float,
    adjacency: Any,
    client: Any = None,
    weighting: Weighting | None = None,
    identities: Identities | None = None,
) -> Dataset:
    """The people of views, and of labels or responses: arrays, Dask's too, or selections of one source.

    ``identities`` become the hashes of all people whose rows are read. Dask computes collections on ``client`` (None:
    what ``dask.compute`` uses), and if there is one, Parquet files.
    """
    data = (*(view.rows for view in views), *groups)
    selections = [part for part in data if isinstance(part, Selection)]
    spread = [part for part in data if not isinstance(part, np.ndarray) and is_dask_collection(part)]
    if not selections and not spread:
        if client is not None:
            raise TypeError("client= is for Dask collections and Parquet files: rows in memory need no cluster")
        coded = _coded(model, bound, [view.rows for view in views], groups)
        if weighting is None:
            return InMemoryDataset(Batch.of_codes(*coded))
        return PeopleDataset(coded, weighting, fewest_rows(adjacency), identities)
    beside = () if weighting is None else weighting.columns
    to_rows: Any = partial(batch_of if weighting is None else coded_of, model, bound)
    facts = to_rows, model.n_features, bound, fewest_rows(adjacency)
    of_people: Any = {} if weighting is None else {"weighting": weighting.bare(), "identities": identities}
    if not selections:
        are_people = weighting is None or weighting.person is None
        n = next((n for n in map(n_rows, data) if n is not None), None) if are_people else None
        columns = [(as_text(x.columns), frame_categories(x)) if is_dask_frame(x) else (None, {}) for x in data]
        read = partial(read_chunks, [*columns, *(None for _ in beside)])
        return DaskDataset(dask_parts((*data, *beside)), read, *facts, n=n, client=client, **of_people)
    people: Scan = selections[0].scan
    if len(selections) < len(data) or any(part.scan is not people for part in selections):
        advice = 'take both from the same dpgep.scan, as in source[["age", "weight"]] and source["label"]'
        raise ValueError(f"rows and labels or responses must come from one source, to be read together: {advice}")
    if weighting is not None:
        weighting.require_of(people)
    if client is None and not is_spark_frame(people.value):
        return StreamedDataset(data, partial(coded_of, model, bound), *facts[1:], weighting, identities)
    together = (*data, *beside)
    if is_spark_frame(people.value):
        return SparkDataset(together, *facts, **of_people)
    read = partial(read_again, people.again(), [each.key for each in together])
    parts = [(part,) for part in parquet_parts(people.value)]
    return DaskDataset(parts, read, *facts, client=client, people=people, **of_people)


def split_off(
    views: Sequence[Any], person: Any, rows: int | None = None, weights: Any = None, largest_weight: float | None = None
) -> tuple[tuple[Any, ...], Weighting | None]:
    """The data without columns of ids and of weights, and how much rows count: None where each is a person."""
    if person is None and rows is None and weights is None and largest_weight is None:
        return tuple(views), None
    return Weighting(person, rows, weights, largest_weight).split_off(views)


class Terms(TypedDict, total=False):
    """What every problem of rows takes: see `dpgep.pca`."""

    bound: Bound
    preprocessing: AutoPreprocessing | Preprocessing | None
    adjacency: Adjacency
    public_n: int | None
    person: Any
    rows: int | None
    weights: Any
    largest_weight: float | None


def moment_problem(
    make: Callable[..., RowModel],
    data: Sequence[Any],
    groups: Sequence[Any],
    *,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
    person: Any = None,
    rows: int | None = None,
    weights: Any = None,
    largest_weight: float | None = None,
) -> MomentProblem:
    """The problem of the model that ``make`` makes of views, for these and for labels or responses of their people."""
    data, weighting = split_off(data, person, rows, weights, largest_weight)
    labelled = zip(data, view_labels(len(data)), strict=True)
    views = [opened(values, label, adjacency) for values, label in labelled]
    model = named(make(*views), *(view.names for view in views))
    found = clipping_of(bound, preprocessing)
    given = found if isinstance(found, float) else None
    is_weighted = weighting is not None and weighting.most_alike is not None
    if is_weighted and public_n is not None:
        raise ValueError(NO_PUBLIC_N)
    dataset = dataset_of(model, views, groups, 1.0 if given is None else given, adjacency, weighting=weighting)
    n = check_adjacency(adjacency, dataset.people.n, public_n)
    assert (weighting is None) == (dataset.weight_bits == 0)  # people have a weight, or a row
    counted = () if weighting is None else (weighting.name, weighting.rows, weighting.largest_weight)
    facts = PublicFacts(adjacency, given, None if is_weighted else n, *counted)
    if isinstance(found, Preprocessing):
        if found.pairwise:
            require_pairs(model)
        found.require_fits(model)
        return prepared_problem(model, facts, dataset, found)
    auto = found if isinstance(found, AutoPreprocessing) else None
    if auto is not None:
        if auto.missing == "pairwise":
            require_pairs(model)
        if auto.precondition == "full" and not model.traits.linear_free:
            raise ValueError(f'precondition="full" would change the answer of {model.name}: use "auto"')
        if auto.ranges:
            auto = auto.for_columns(model.n_features, model.feature_names)
    is_sparse = any(hasattr(view.rows, "tocsr") for view in views)
    return MomentProblem(model, facts, layout_of(model, facts), dataset, auto=auto, is_sparse=is_sparse)


def with_terms(build: _B) -> _B:
    """A function whose ``**terms`` are parameters by their names, for `help`, estimators and options of commands."""
    own, of_all = (signature(each).parameters.values() for each in (build, moment_problem))
    parameters = [each for each in own if each.kind is not each.VAR_KEYWORD]
    parameters += [each for each in of_all if each.kind is each.KEYWORD_ONLY]
    names = [each.name for each in parameters]

    @wraps(build)
    def checked(*arguments: Any, **named: Any) -> MomentProblem:
        if unknown := [name for name in named if name not in names]:
            raise TypeError(f"{build.__name__} has no parameter {unknown[0]!r}{suggestion(unknown[0], names)}")
        return build(*arguments, **named)

    vars(checked)["__signature__"] = signature(build).replace(parameters=parameters)
    checked.__annotations__ = {**build.__annotations__, **get_type_hints(Terms)}
    checked.__annotations__.pop("terms", None)  # which names what type checkers alone know
    return cast(_B, checked)


@with_terms
def problem_of(model: RowModel, *data: Any, **terms: Unpack[Terms]) -> MomentProblem:
    """The problem of any model of rows, also of one that is defined elsewhere (docs/your-own-model.md).

    Parameters
    ----------
    model : RowModel
        A and B. The columns of a table give it its ``feature_names``, unless it has them.
    *data
        What a person consists of, one argument each: rows of each view as `dpgep.pca` takes them, and labels or a
        response where the model has a grouping.
    bound, preprocessing, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.pca`; the bound is that of the joint row of all views. Raises as it does, and for other data.
    """
    require_row_model(model)
    people, n_views = inputs_of(model, *data), len(model.views)

    def of_its_width(*views: View) -> RowModel:
        for view, name, columns in zip(views, input_names(model), model.views, strict=False):
            require_width(view.width, name, columns.stop - columns.start)
        return model

    return moment_problem(of_its_width, people[:n_views], people[n_views:], **terms)


def prepared_problem(
    model: RowModel, facts: PublicFacts, dataset: Dataset, preprocessing: Preprocessing, *, grouped: bool = True
) -> MomentProblem:
    """The problem of rows that preprocessing maps; of a model without groups, if not ``grouped``."""
    facts = replace(facts, bound=preprocessing.released_bound(model.n_features))
    layout = layout_of(model, facts, preprocessing)
    mapped = PreprocessedDataset(dataset, preprocessing, layout.n_features, grouped=grouped)
    return MomentProblem(model, facts, layout, mapped, preprocessing)
