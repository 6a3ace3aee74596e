"""`dpgep.Moments`: exact moments, summed batch by batch, merged, stored, and released at the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from threading import RLock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._threads import use_threads
from dpgep._watched import naming
from dpgep.data.dataset import PreprocessedDataset
from dpgep.data.ids import Identities
from dpgep.data.inputs import check_adjacency, clipping_of, inputs_of, named, opened_views, require_row_model
from dpgep.data.integer_moments import BITS, DEFAULT_BITS, ExactSums, IntegerMoments, sums_of_nobody
from dpgep.data.integer_sums import not_finite_in
from dpgep.data.people import NO_PUBLIC_N, Weighting, weight_bits_of
from dpgep.data.rows import OF_SUMS, NotFiniteError
from dpgep.models.model import Adjacency, Matrix, PublicFacts, PublicSide
from dpgep.models.moments import MomentLayout
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing, takes_missing
from dpgep.models.row_model import RowModel, layout_of, names_of_views
from dpgep.problems.problem import Problem, dataset_of, split_off
from dpgep.serialization import Format, Target, save, triangle_rows

MOMENTS = Format("dpgep-moments")


@dataclass(frozen=True, eq=False)
class StoredMoments:
    """What a file of `Moments` holds: public facts, and the limbs of the sums, upper triangles row by row."""

    model: RowModel
    bound: float | None
    preprocessing: Preprocessing | None
    adjacency: Adjacency
    public_n: int | None
    bits: int
    person: str | None
    rows: int | None
    largest_weight: float | None
    n: int
    weight: int
    low: NDArray[np.int64]
    high: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class SummedProblem(Problem):
    """Exact sums over people, as they are when a run begins, and the model to fit to them: see `problem_from`."""

    model: RowModel
    facts: PublicFacts
    layout: MomentLayout
    sums: ExactSums
    population_id: str
    preprocessing: Preprocessing | None
    public: PublicSide = field(init=False)
    weight_bits: int = field(init=False)
    grid_bits: int = field(init=False)  # of the grid that rows were put on
    kind = "summed moments"

    def __post_init__(self) -> None:
        """Covariances are at most the squared row bound."""
        assert self.facts.bound is not None
        largest_b, mapped = 1.0 if self.model.traits.identity_b else self.facts.bound**2, self.preprocessing
        kinds = {} if mapped is None else {"mixes_columns": mapped.mixes_columns, "pairwise": mapped.pairwise}
        public = PublicSide(self.model, self.facts, largest_b, preprocessing=mapped, **kinds)
        vars(self).update(public=public, weight_bits=weight_bits_of(self.facts), grid_bits=int(self.sums.bits))

    def integer_moments(self, bits: int) -> IntegerMoments:
        """A copy of the sums in the blocks of a release."""
        assert bits == self.grid_bits
        return self.sums.copy().moments(self.weight_bits)

    def plain_sums(self) -> tuple[int, tuple[Matrix, Matrix, Matrix], float]:
        """(number of people, blocks of the sums, share of clipped people, which is not known)."""
        moments = self.integer_moments(self.grid_bits)
        return moments.n, moments.to_float(), 0.0


def default_bits(weight_bits: int) -> int:
    """The grid of sums that are made before a budget is known: as fine as noise can be for a mu of 0.02 or more."""
    return DEFAULT_BITS - weight_bits // 4


class Moments:
    """Exact sums over people from which `dpgep.solve` makes its release: privacy is paid for there, once.

    S = sum over people of z z^T, z = [q(x/bound); e(group)], with q(u) = trunc(2^bits u)/2^bits of the row x clipped to
    the bound. Sums are integers, so any split of the people into batches, any order and any merging gives the same
    bits, here and in releases. (A row beyond the bound may be scaled differently in its last bit as a sparse row
    than as a dense one: its norm is summed over the stored entries.)

    Everything in this object is confidential, its bytes included: they contain exact sums over people. Protect them
    like the rows. ``n`` is confidential under add-remove. Threads may share the object: updates are serialized.

    Parameters
    ----------
    model : one of `dpgep.models`
        What is to be computed, and from how many features: public.
    bound : float
        A public bound on the row norm. There is no "auto": sums are made before a budget is there to buy a bound from.
    preprocessing : `Preprocessing`
        Instead of a bound: that of an earlier solution, by which rows are mapped when they are added. Sites and days
        that share one can be merged.
    adjacency, public_n
        As in `dpgep.pca`.
    bits : int in [4, 20]
        Rows in the unit ball are rounded toward zero to the grid 2^-bits. By default 20, or 17 with ``person`` or
        ``largest_weight``: weights take bits of their own.
    person : str
        What says whose a row is, as in `dpgep.pca`, where people have several: the name of a column of ids, or any name
        for ids that are passed to each `update`. A person's rows must all be in one update, whether of this object or
        of one that is merged: 16 bytes are kept for each person, and who comes twice is refused. Pickles have them,
        files do not: of `dpgep.load`, such moments can be released, but neither updated nor merged.
    rows, largest_weight
        As in `dpgep.pca`: how many rows of a person count alike, and the largest of the weights that each `update` is
        given. Their total is then released in place of the number of people.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> rng = np.random.default_rng(0)
    >>> batches = [rng.standard_normal((1000, 5)) * [4, 2, 1, 1, 1] / 8 for _ in range(20)]
    >>> one, two = (dpgep.Moments(dpgep.models.PcaModel(5, center=True), bound=1.0) for _ in range(2))
    >>> for batch in batches[:10]:
    ...     one.update(batch)
    >>> for batch in batches[10:]:
    ...     two.update(batch)
    >>> one.merge(two)
    >>> solution = dpgep.solve(one, epsilon=1.0, delta=1e-6, n_components=1)
    """

    def __init__(
        self,
        model: RowModel,
        *,
        bound: float | None = None,
        preprocessing: Preprocessing | None = None,
        adjacency: Adjacency = "replace-one",
        public_n: int | None = None,
        bits: int | None = None,
        person: str | None = None,
        rows: int | None = None,
        largest_weight: float | None = None,
    ) -> None:
        require_row_model(model)
        if person is not None and not isinstance(person, str):
            raise TypeError("person must be a name here: pass the ids to each update")
        Weighting(person, rows, largest_weight, largest_weight)  # which checks them
        self.model: RowModel = model
        found = clipping_of("auto" if bound is None else bound, preprocessing)
        if isinstance(found, AutoPreprocessing):
            raise ValueError("sums come before a budget: give a number as bound, or preprocessing of another solution")
        if isinstance(found, Preprocessing):
            found.require_fits(model)
        self.preprocessing = preprocessing
        self.bound = found.released_bound(model.n_features) if isinstance(found, Preprocessing) else found
        n = check_adjacency(adjacency, None, public_n)
        facts = self._facts = PublicFacts(adjacency, self.bound, n, person, rows, largest_weight)
        if facts.weighted and public_n is not None:
            raise ValueError(NO_PUBLIC_N)
        layout, self._weight_bits = layout_of(model, facts, preprocessing), weight_bits_of(facts)
        bits = default_bits(self._weight_bits) if bits is None else bits
        if isinstance(bits, bool) or bits not in BITS:
            raise ValueError(f"bits must be a whole number from {BITS[0]} to {BITS[-1]}, got {bits!r}")
        self.person = person
        self._identities: Identities | None = None if person is None else Identities()
        self._sums: ExactSums = sums_of_nobody(layout, int(bits))
        self._n = 0  # of people who were weighed
        self._lock = RLock()
        self._population_id = naming.get()(16)

    @property
    def bits(self) -> int:
        """Of the grid of rows."""
        return self._sums.bits

    @property
    def n(self) -> int:
        """Number of people so far."""
        return self._n if self._facts.weighted else self._sums.n >> self._weight_bits

    def update(
        self,
        X: Any,
        y: Any = None,
        *others: Any,
        person: Any = None,
        weights: Any = None,
        client: Any = None,
        n_threads: int | None = None,
    ) -> None:
        """Add people, all of them or none.

        Dask and Spark sum rows where they lie, with the same bits as here: sums are merged in a tree, and nothing but
        d^2 integers moves. A worker that is lost costs its work, not the result.

        The columns of the first table give the model its ``feature_names``, unless it has them. A later table must have
        the same in the same order; an array has none, and is taken as it is.

        Parameters
        ----------
        X, y, *others
            Rows (m, d), as `dpgep.pca` takes them, and of the same people Y (cca, pls), labels (fda), y (sir) or
            further views (multiset-cca).
        person, weights : optional
            The id of each row's person, where these moments are of people with several rows (default: the column of
            that name); the weight of each row, or their column, where these moments have a ``largest_weight``.
        client : distributed.Client, optional
            A Dask cluster that computes collections (default: what ``dask.compute`` uses), or reads the Parquet files
            of a scan, whose paths must mean the same files on all machines.
        n_threads : int, optional
            As in `dpgep.solve`.

        Raises
        ------
        TypeError, ValueError
            As `dpgep.pca` and the others do, also for NaN or infinity, and for people who are in an earlier update: the
            sums are unchanged.
        RuntimeError
            After an update in memory that was interrupted otherwise, e.g. by Ctrl-C: such sums include an unknown part
            of a batch. If workers keep dying over one part.
        """
        with use_threads(n_threads):
            if weights is None and self._facts.largest_weight is not None:
                raise ValueError("these moments are of weighted people: pass weights to each update")
            largest, ids = self._facts.largest_weight, self._column_or_ids(person)
            data, weighting = split_off(inputs_of(self.model, X, y, *others), ids, self._facts.rows, weights, largest)
            views = opened_views(self.model, data, self._facts.adjacency, fewest=0)
            names = [view.names for view in views]
            model = named(self.model, *names)  # before a pass
            identities = self._identities and Identities(left_out=self._identities.left_out)
            how = self.bound, "add-remove", client, weighting, identities
            dataset = dataset_of(self.model, views, data[len(views) :], *how)
            try:
                if dataset.at_hand and weighting is None and self.preprocessing is None:
                    with self._lock:
                        model = named(self.model, *names)
                        self._sums.add(dataset.in_memory("this"))
                        self.model = model
                    return
                mapped = dataset
                if self.preprocessing is not None:
                    mapped = PreprocessedDataset(dataset, self.preprocessing, self._sums.layout.n_features)
                make = partial(type(self._sums), self._sums.layout, self._sums.bits)
                sums = mapped.accumulate(make, alone=True, logged=False, weight_bits=self._weight_bits)
            except NotFiniteError:
                found = not_finite_in(model, dataset, missing=takes_missing(self.preprocessing))
                raise NotFiniteError(found.columns, OF_SUMS) from None
            with self._lock:
                model = named(self.model, *names)
                self._add_sums(sums, identities, dataset.people.n or 0)
                self.model = model

    def _column_or_ids(self, person: Any) -> Any:
        """What says whose each row of an update is; None where each is a person."""
        if self.person is None and person is not None:
            raise ValueError('here each row is a person: for several rows to each, make Moments(..., person="a name")')
        if self.person is not None:
            self._known_people()
        return self.person if person is None else person

    def _known_people(self) -> Identities:
        """Who was added. Raises ValueError where nobody knows."""
        if self._identities is None:
            what = "they can be released, but neither updated nor merged; pickles can"
            raise ValueError(f"moments from a file do not say who their people are, who might count twice: {what}")
        return self._identities

    def _add_sums(self, sums: ExactSums, identities: Identities | None, n: int) -> None:
        """Add sums over n people, with who they are; all, or none where some were there before."""
        if identities is not None:
            known = self._known_people()
            known.require_apart(identities)
            known.add(identities)  # first: an interruption may leave people who count not, but nobody who counts twice
        self._sums.merge(sums)
        self._n += n

    def merge(self, other: Moments) -> None:
        """Add the sums over other people; ``other`` is unchanged.

        Raises ValueError unless both have the same model, bound, adjacency, public_n, bits and person, and names of
        columns, if both have any; where some people are among both, or it is not known who is.
        """
        self.require_same_kind(other)
        if other is self:
            raise ValueError("moments cannot be merged with themselves: their people would count twice")
        one, two = sorted((self, other), key=id)  # in one order, so that two threads never wait for each other
        with one._lock, two._lock:
            model = named(self.model, *names_of_views(other.model))
            self._add_sums(other._sums, None if self.person is None else other._known_people(), other._n)
            self.model = model

    def require_same_kind(self, other: Moments) -> None:
        """Raise TypeError or ValueError unless the sums can be added."""
        if not isinstance(other, Moments):
            raise TypeError(f"only Moments can be merged, got {type(other).__name__}")
        ours, theirs = self._description(), other._description()
        if ours != theirs:
            differing = (f"{key} ({ours[key]!r} and {theirs[key]!r})" for key in ours if ours[key] != theirs[key])
            raise ValueError(f"moments differ in {', '.join(differing)}: their sums cannot be added")
        named(self.model, *names_of_views(other.model))

    def copy(self) -> Moments:
        """Moments of the same people that can be updated independently."""
        copy = object.__new__(Moments)
        copy.__setstate__(self.__getstate__())
        return copy

    def save(self, target: Target) -> None:
        """Write the sums with a checksum, to a path or an open binary file, for `dpgep.load` (docs/formats.md).

        Confidential, like the rows: a new file can be read by its owner alone. A file of this name is replaced
        atomically. Raises TypeError unless classes are text, numbers or booleans.
        """
        with self._lock:
            low, high = self._sums.limbs()
            packed = None if high is None else np.concatenate([*triangle_rows(high)])
            lower = np.concatenate([*triangle_rows(low)])
            stored = StoredMoments(**self._description(), n=self.n, weight=self._sums.n, low=lower, high=packed)
        save(MOMENTS.packed(stored), target, mode=0o600)

    def _description(self) -> dict[str, Any]:
        """What must agree for sums to be added."""
        return {
            "model": self.model,
            "bound": None if self.preprocessing else self.bound,
            "preprocessing": self.preprocessing,
            "adjacency": self._facts.adjacency,
            "public_n": self._facts.n,
            "bits": self.bits,
            "person": self.person,
            "rows": self._facts.rows,
            "largest_weight": self._facts.largest_weight,
        }

    @classmethod
    def _of_sums(cls, sums: ExactSums, description: dict[str, Any], n: int) -> Moments:
        """Moments of n people that do not know whose rows they are of."""
        moments = cls(**description)
        moments._sums, moments._identities, moments._n = sums, None, n
        return moments

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            sums, identities, n = self._sums.copy(), self._identities and self._identities.copy(), self._n
        parts = {"description": self._description(), "weight": sums.n, "limbs": sums.limbs()}
        return {**parts, "n": n, "identity": self._population_id, "identities": identities}

    def __setstate__(self, state: dict[str, Any]) -> None:
        description = dict(state["description"])
        self.__init__(description.pop("model"), **description)  # type: ignore[misc]
        self._sums = type(self._sums).of_limbs(self._sums.layout, self._sums.bits, state["weight"], *state["limbs"])
        self._n = state["n"]
        self._population_id, self._identities = state["identity"], state["identities"]

    def __repr__(self) -> str:
        adjacency = self._facts.adjacency
        size = f"n={self.n}, " if adjacency == "replace-one" else ""
        return f"Moments({self.model.name}, {size}d={self.model.n_features}, bound={self.bound:g}, {adjacency})"


def problem_from(given: object) -> SummedProblem:
    """The problem of `Moments` as they are now. Raises TypeError for anything else."""
    if not isinstance(given, Moments):
        kind = type(given).__name__
        raise TypeError(f"problem must come from dpgep.pca or the like, or be dpgep.Moments; got {kind}")
    with given._lock:
        sums, facts = given._sums.copy(), given._facts
        if given.n < 2 and facts.adjacency == "replace-one":
            raise ValueError(f"these moments include {given.n} people: a release needs at least 2")
        if facts.adjacency == "replace-one" and not facts.weighted:
            facts = replace(facts, n=given.n)
        return SummedProblem(given.model, facts, sums.layout, sums, given._population_id, given.preprocessing)
