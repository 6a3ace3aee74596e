"""Labels and responses: which of them become public, and that nobody sees who has one that belongs nowhere."""

from __future__ import annotations

import datetime
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.sparse
from conftest import Matrix, solve_seeded
from elsewhere import moments
from numpy.typing import NDArray
from stored import bytes_of

import dpgep
from dpgep._dispatch import core
from dpgep.data.inputs import class_codes
from dpgep.data.rows import Batch, Rows
from dpgep.models.model import Adjacency
from dpgep.models.moments import MomentNoise, ReleasedGroups, total_mean, total_share
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.products import ProductNoise, Products
from dpgep.privacy.screening import Scores
from dpgep.problems.mergeable_moments import problem_from

N, NAMES = 600, list("abcd")
ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "add-remove")


@pytest.fixture
def x(rng: np.random.Generator) -> Matrix:
    """Rows inside and beyond the bound, their mean away from zero."""
    return np.asarray((rng.standard_normal((N, 4)) + 1) * rng.choice([0.1, 1.0], (N, 1)))


@pytest.fixture
def labels() -> NDArray[np.str_]:
    """Two classes, and every fifth person in neither."""
    return np.where(np.arange(N) % 5 == 0, "secret", np.array(["no", "yes"])[np.arange(N) % 2])


# --- Which labels become public --------------------------------------------------------------------


def test_labels_that_nobody_lists_become_public_with_a_warning(x: Matrix, labels: Any) -> None:
    with pytest.warns(
        dpgep.errors.PrivacyWarning, match=r"every label that occurs.*solution\.model\.classes"
    ) as caught:
        problem = dpgep.fda(x, labels, bound=1.0)
    assert problem.model.classes == ("no", "secret", "yes")
    assert caught[0].filename == __file__
    assert "secret" not in str(caught[0].message)


@pytest.mark.parametrize("classes", ["public", ["no", "yes", "secret"], ("yes", "no"), {"no": 1, "yes": 2}])
def test_no_warning_where_the_caller_says_what_is_public(classes: Any, x: Matrix, labels: Any) -> None:
    known = dpgep.fda(x, labels, classes=classes, bound=1.0).model.classes
    assert known == (("no", "secret", "yes") if classes == "public" else tuple(classes))


WORDS = ["no", "yes", "perhaps"]

DECLARED: dict[str, tuple[Callable[[list[str]], Any], Any]] = {
    "pandas Series": (lambda v: pd.Series(v, dtype=pd.CategoricalDtype(WORDS)), WORDS),
    "pandas Categorical": (lambda v: pd.Categorical(v, categories=WORDS), WORDS),
    "pandas column": (lambda v: pd.DataFrame({"label": pd.Categorical(v, categories=WORDS)}), WORDS),
    "polars Enum": (lambda v: pl.Series(v, dtype=pl.Enum(WORDS)), WORDS),
    "NumPy booleans": (lambda v: np.array([w == "yes" for w in v]), [False, True]),
    "a list of booleans": (lambda v: [w == "yes" for w in v], [False, True]),
    "pandas booleans": (lambda v: pd.Series([w == "yes" for w in v], dtype="boolean"), [False, True]),
    "pandas plain booleans": (lambda v: pd.Series([w == "yes" for w in v]), [False, True]),
    "pandas Arrow booleans": (lambda v: pd.Series([w == "yes" for w in v], dtype="bool[pyarrow]"), [False, True]),
    "polars booleans": (lambda v: pl.Series([w == "yes" for w in v]), [False, True]),
    "Arrow booleans": (lambda v: pa.array([w == "yes" for w in v]), [False, True]),
}


@pytest.mark.parametrize("only", [False, True], ids=["two labels", "one label"])
@pytest.mark.parametrize("kind", DECLARED)
def test_types_declare_their_values_whoever_has_them(kind: str, only: bool, x: Matrix) -> None:
    make, classes = DECLARED[kind]
    values = ["yes"] * N if only else ["no", "yes"] * (N // 2)
    problem = dpgep.fda(x, make(values), bound=1.0)
    assert problem.model.classes == tuple(classes)
    expected = [classes.index(value if value in classes else value == "yes") for value in values]
    np.testing.assert_array_equal(problem.dataset.in_memory("a test").groups, expected)


SOURCES: dict[str, Callable[[Matrix, list[str]], Any]] = {
    "pandas": lambda x, v: pd.DataFrame(x, columns=NAMES).assign(label=pd.Categorical(v, categories=WORDS)),
    "polars": lambda x, v: pl.DataFrame(dict(zip(NAMES, x.T, strict=True))).with_columns(
        label=pl.Series(v, dtype=pl.Enum(WORDS))
    ),
    "arrays": lambda x, v: {
        **dict(zip(NAMES, x.T, strict=True)),
        "label": pd.Series(v, dtype=pd.CategoricalDtype(WORDS)),
    },
}


@pytest.mark.parametrize("kind", SOURCES)
def test_sources_in_memory_declare_their_values_too(kind: str, x: Matrix) -> None:
    values = ["no", "yes"] * (N // 2)
    source = dpgep.scan(SOURCES[kind](x, values))
    ours = dpgep.fda(source[NAMES], source["label"], bound=1.0)
    assert ours.model.classes == tuple(WORDS)
    assert source.passes == 0
    equal_sums(ours.integer_moments(20), dpgep.fda(x, np.array(values), classes=WORDS, bound=1.0).integer_moments(20))


def test_booleans_of_files_and_batches_are_two_classes(x: Matrix, tmp_path: Any) -> None:
    table = pa.table({**dict(zip(NAMES, x.T, strict=True)), "label": np.arange(N) % 2 == 0})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    batches = [(x[:300], np.arange(300) % 2 == 0), (x[300:], np.arange(300) % 2 == 0)]
    for source, rows, label in (
        (dpgep.scan(tmp_path / "x.parquet"), NAMES, "label"),
        (dpgep.scan(pa.RecordBatchReader.from_stream(table)), NAMES, "label"),
        (dpgep.scan(batches), 0, 1),
        (dpgep.scan(iter(batches)), 0, 1),
    ):
        problem = dpgep.fda(source[rows], source[label], bound=1.0)
        assert problem.model.classes == (False, True)
        np.testing.assert_array_equal(problem.integer_moments(4).counts >> 8, [300, 300])


@pytest.mark.parametrize("classes", [None, "public"])
def test_what_the_first_batch_declares_is_not_of_all(classes: Any, x: Matrix) -> None:
    frames = [SOURCES["pandas"](x, ["no", "yes"] * (N // 2)), pd.DataFrame(x, columns=NAMES).assign(label=0)]
    source = dpgep.scan(frames)
    with pytest.raises(ValueError, match="need public classes"):
        dpgep.fda(source[NAMES], source["label"], classes=classes, bound=1.0)


def test_dask_declares_categories_that_it_knows(x: Matrix) -> None:
    values = ["no", "yes"] * (N // 2)
    lazy = dd.from_pandas(SOURCES["pandas"](x, values), npartitions=3)
    assert dpgep.fda(lazy[NAMES], lazy["label"], bound=1.0).model.classes == tuple(WORDS)
    assert dpgep.fda(lazy[NAMES], lazy["label"] == "yes", bound=1.0).model.classes == (False, True)
    rows = da.from_array(x, chunks=(100, 4))
    assert dpgep.fda(rows, da.from_array(np.arange(N) % 2 == 0, chunks=100), bound=1.0).model.classes == (False, True)
    for unknown in (lazy["label"].astype(object).astype("category"), lazy["label"].astype(object)):
        with pytest.raises(ValueError, match="need public classes"):
            dpgep.fda(lazy[NAMES], unknown, bound=1.0)


def test_categories_of_polars_that_are_collected_declare_nothing(x: Matrix) -> None:
    with pytest.warns(dpgep.errors.PrivacyWarning, match="every label that occurs"):
        problem = dpgep.fda(x, pl.Series(["no", "yes"] * (N // 2), dtype=pl.Categorical), bound=1.0)
    assert problem.model.classes == ("no", "yes")


def test_whole_numbers_are_not_booleans(x: Matrix) -> None:
    for labels in (np.arange(N) % 2, (np.arange(N) % 2).tolist(), (np.arange(N) % 2).astype(float)):
        with pytest.warns(dpgep.errors.PrivacyWarning, match="every label that occurs"):
            dpgep.fda(x, labels, bound=1.0)


@pytest.mark.parametrize(
    "labels",
    [
        np.random.default_rng(0).lognormal(10, 1, N),
        np.linspace(0, 1, 3).repeat(N // 3),
        np.arange(N),
        np.arange(N) % 101,
        [f"person {i}" for i in range(N)],
        np.arange(N).astype("datetime64[D]"),
        [2.5, "text", 1] * (N // 3),
    ],
    ids=["salaries", "fractions", "numbers", "101", "names", "birthdays", "mixed"],
)
def test_what_is_no_classification_is_refused(labels: Any, x: Matrix) -> None:
    with pytest.raises(ValueError, match=r"would be published.*dpgep\.sir.*public set as classes=") as caught:
        dpgep.fda(x, labels, bound=1.0)
    assert "person" not in str(caught.value)
    with pytest.warns(dpgep.errors.PrivacyWarning):
        dpgep.fda(x, np.arange(N) % 100, bound=1.0)
    dpgep.fda(x, labels, classes="public", bound=1.0)  # the caller's word
    assert len(dpgep.fda(x, labels, classes=range(150), bound=1.0).model.classes) == 150


# --- Labels that are not among the classes ---------------------------------------------------------


def listed_alone(x: Matrix, labels: Any, known: Any) -> Any:
    return dpgep.fda(x[known], labels[known], classes=["no", "yes"], bound=1.5).integer_moments(20)


def equal_sums(ours: Any, theirs: Any) -> None:
    np.testing.assert_array_equal(np.triu(ours.second), np.triu(theirs.second))
    np.testing.assert_array_equal(ours.sums, theirs.sums)
    np.testing.assert_array_equal(ours.counts, theirs.counts)


def of_batches(x: Matrix, labels: Any) -> tuple[Any, Any]:
    scan = dpgep.scan(lambda: ((x[i : i + 70], labels[i : i + 70]) for i in range(0, N, 70)))
    return scan[0], scan[1]


def table(x: Matrix, labels: Any) -> pd.DataFrame:
    return pd.DataFrame(x, columns=NAMES).assign(label=labels)


def of_table(x: Matrix, labels: Any) -> tuple[Any, Any]:
    scan = dpgep.scan(table(x, labels), batch_rows=130)
    return scan[NAMES], scan["label"]


def of_dask(x: Matrix, labels: Any) -> tuple[Any, Any]:
    frame = dd.from_pandas(table(x, labels), npartitions=4)
    return frame[NAMES], frame["label"]


FORMS: dict[str, Callable[[Matrix, Any], tuple[Any, Any]]] = {
    "array": lambda x, v: (x, v),
    "columns": lambda x, v: (np.asfortranarray(x), v.tolist()),
    "float32": lambda x, v: (x.astype(np.float32), v.astype(object)),
    "sparse": lambda x, v: (scipy.sparse.csr_array(x), pd.Series(v)),
    "sparse matrix": lambda x, v: (scipy.sparse.csr_matrix(x), pa.array(v.tolist())),
    "read-only": lambda x, v: (np.broadcast_to(x, x.shape), pl.Series(v.tolist())),
    "batches": of_batches,
    "table": of_table,
    "Dask arrays": lambda x, v: (da.from_array(x, chunks=(90, 2)), da.from_array(v, chunks=110)),
    "Dask frame": of_dask,
}


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("form", FORMS)
def test_who_is_in_no_class_counts_and_contributes_nothing(
    form: str, adjacency: Adjacency, x: Matrix, labels: Any, dense_sums: None
) -> None:
    rows, marks = FORMS[form](x, labels)
    x = x.astype(np.float32).astype(float) if form == "float32" else x
    problem = dpgep.fda(rows, marks, classes=["no", "yes"], bound=1.5, adjacency=adjacency)
    ours = problem.integer_moments(20)
    equal_sums(ours, listed_alone(x, labels, labels != "secret"))
    assert ours.n == problem.dataset.people.n == N
    assert problem.float_moments().n == N


def test_moments_take_the_same_people(x: Matrix, labels: Any) -> None:
    model = dpgep.models.FdaModel(4, ("no", "yes"))
    one, other = dpgep.Moments(model, bound=1.5), dpgep.Moments(model, bound=1.5)
    for start in range(0, N, 50):
        (one if start % 100 else other).update(x[start : start + 50], labels[start : start + 50])
    one.merge(dpgep.load(bytes_of(other)))
    problem: Any = problem_from(one)
    equal_sums(problem.integer_moments(20), listed_alone(x, labels, labels != "secret"))
    assert one.n == problem.facts.n == N
    spread = moments(model, da.from_array(x, chunks=(90, 4)), da.from_array(labels, chunks=90), bound=1.5)
    assert bytes_of(spread) == bytes_of(one)
    assert pickle.loads(pickle.dumps(one)).n == N


def test_rows_of_nobody_in_a_class_are_not_looked_at(x: Matrix, labels: Any) -> None:
    """A batch may hold nobody else, and rows that are not finite."""
    model = dpgep.models.FdaModel(4, ("no", "yes"))
    sums = dpgep.Moments(model, bound=1.0)
    sums.update(np.full((30, 4), np.nan), ["secret"] * 30)
    sums.update(np.empty((0, 4)), [])
    assert sums.n == 30
    sums.update(x, labels)
    everybody = dpgep.fda(x, labels, classes=["no", "yes"], bound=1.0).integer_moments(20)
    problem: Any = problem_from(sums)
    equal_sums(problem.integer_moments(20), everybody)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_nobody_in_any_class_is_no_error(adjacency: Adjacency, x: Matrix) -> None:
    problem = dpgep.fda(x, ["secret"] * N, classes=["no", "yes"], adjacency=adjacency, bound=1.0)
    assert np.isfinite(solve_seeded(problem, mu=1.0).components).all()


DAYS = np.array(["2020-01-01", "2020-01-02", "NaT"])

DTYPES: dict[str, tuple[Any, list[Any]]] = {
    "text": (np.array(["a", "b", "c"]), ["a", "b"]),
    "longer text": (np.array(["a", "b", "abc"]), ["a", "b"]),
    "objects": (np.array(["a", "b", None], dtype=object), ["a", "b"]),
    "missing objects": (np.array(["a", "b", math.nan], dtype=object), ["a", "b"]),
    "missing values of pandas": (np.array(["a", "b", pd.NA], dtype=object), ["a", "b"]),
    "bytes": (np.array([b"a", b"b", b"c"]), [b"a", b"b"]),
    "whole numbers": (np.array([1, 2, 3]), [1, 2]),
    "whole numbers as floats": (np.array([1, 2, 3]), [1.0, 2.0]),
    "small numbers": (np.array([1, 2, 3], dtype=np.uint8), [1, 2]),
    "floats": (np.array([0.5, 1.5, math.nan]), [0.5, 1.5]),
    "infinity": (np.array([0.5, 1.5, math.inf]), [0.5, 1.5]),
    "floats of whole numbers": (np.array([1.0, 2.0, math.nan]), [1, 2]),
    "days": (DAYS.astype("datetime64[D]"), [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]),
    "nanoseconds": (DAYS.astype("datetime64[ns]"), [pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-02")]),
    "durations": (np.array([1, 2, 3], dtype="timedelta64[s]"), [np.timedelta64(1, "s"), np.timedelta64(2, "s")]),
    "mixed": (np.array(["a", 1, 2.5], dtype=object), ["a", 1]),
    "lists": ([("a", 1), ("a", 2), ["a", 2]], [("a", 1), ("a", 2)]),
    "categories": (pd.Series(["a", "b", "c"], dtype="category"), ["a", "b"]),
    "missing categories": (pd.Series(["a", "b", None], dtype=pd.CategoricalDtype(["a", "b", "c"])), ["a", "b"]),
    "categories of numbers": (pd.Series([1, 2, None], dtype=pd.CategoricalDtype([1, 2, 3])), [1, 2]),
    "missing booleans": (pd.Series([False, True, None], dtype="boolean"), [False, True]),
    "missing numbers": (pd.Series([1, 2, None], dtype="Int64"), [1, 2]),
    "an Enum": (pl.Series(["a", "b", None], dtype=pl.Enum(["a", "b", "c"])), ["a", "b"]),
    "Arrow nulls": (pa.array(["a", "b", None]), ["a", "b"]),
    "an Arrow dictionary": (pa.array(["a", "b", None]).dictionary_encode(), ["a", "b"]),
    "Arrow text": (pa.array(["x", "a", "b", "c"])[1:], ["a", "b"]),
    "Arrow text and another class": (pa.array(["a", "b", "2"]), ["a", "b", 2]),
    "a full Arrow dictionary": (pa.array(["x", "a", "b", "c"]).dictionary_encode()[1:], ["a", "b"]),
    "chunks of Arrow text": (pa.chunked_array([["a"], [], ["b", "c"]]), ["a", "b"]),
    "text of pandas": (pd.Series(["a", "b", "c"], dtype=str), ["a", "b"]),
    "text of polars": (pl.Series(["a", "b", "c"]), ["a", "b"]),
}


@pytest.mark.parametrize("kind", DTYPES)
def test_any_type_of_label_may_be_among_no_class(kind: str) -> None:
    values, classes = DTYPES[kind]
    problem = dpgep.fda(np.eye(3), values, classes=classes, bound=1.0)
    np.testing.assert_array_equal(problem.dataset.in_memory("a test").groups, [0, 1])
    np.testing.assert_array_equal(problem.dataset.in_memory("a test").rows.views[0], np.eye(3)[:2])
    assert problem.dataset.people.n == 3


@pytest.mark.parametrize("kind", ["missing categories", "missing booleans", "an Enum"])
def test_who_has_no_category_is_in_no_class(kind: str) -> None:
    problem = dpgep.fda(np.eye(3), DTYPES[kind][0], bound=1.0)
    assert (problem.dataset.people.n, len(problem.dataset.in_memory("a test").groups)) == (3, 2)


# --- Privacy of who is in no class -----------------------------------------------------------------


@pytest.mark.parametrize(("adjacency", "known"), [("replace-one", None), ("add-remove", None), ("add-remove", 40)])
def test_leaving_a_class_costs_no_more_than_changing_it(adjacency: Adjacency, known: int | None) -> None:
    """The Gaussian-DP parameter of a release, from exact sums and the noise of its ledger: at most what is paid.

    A person of norm 1 leaves all classes (replace-one), or comes without one (add-remove: nothing changes at all).
    """
    rows, labels = np.zeros((40, 3)), np.array(["no", "yes"] * 20, dtype=object)
    rows[0, 0] = 1.0
    facts: dict[str, Any] = {"classes": ["no", "yes"], "bound": 1.0, "adjacency": adjacency, "public_n": known}
    left = labels.copy()
    left[0] = "secret"
    others = (
        [(rows, left)]
        if adjacency == "replace-one"
        else [(rows[1:], labels[1:]), (np.vstack([rows, rows[:1]]), np.append(labels, "secret"))]
    )
    costs = [cost(dpgep.fda(rows, labels, **facts), dpgep.fda(*data, **facts), mu=1.0) for data in others]
    assert max(costs) <= 1.0
    assert max(costs) > 0.5  # the pair is not far from the worst
    assert adjacency == "replace-one" or costs[1] == 0.0


def cost(problem: Any, neighbour: Any, mu: float) -> float:
    ledger = Ledger(mu)
    Curator(problem, ledger, core.NoiseStream()).answer(Release())
    ours, theirs = problem.integer_moments(20).to_float(), neighbour.integer_moments(20).to_float()
    if problem.facts.n is not None:
        assert problem.facts.n == neighbour.facts.n  # what is divided by is public
    blocks = ledger.releases[0].noise
    changes = [np.linalg.norm(np.triu(ours[0] - theirs[0])), *(np.linalg.norm(ours[i] - theirs[i]) for i in (1, 2))]
    return math.hypot(*(change / block.deviation for change, block in zip(changes, blocks, strict=True)))


@pytest.mark.parametrize("source", ["batches", "Dask frame"])
def test_every_answer_is_divided_by_the_number_of_all_people(source: str, x: Matrix, labels: Any) -> None:
    """Where n is public but counted on the way: the number of those with a class is nobody's to know."""
    problem = dpgep.fda(*FORMS[source](x, labels), classes=["no", "yes"], bound=1.0)
    assert problem.facts.n is None
    for mu in (1.0, math.inf):
        assert curator(problem, mu).answer(Release()).n == N
        products = curator(problem, mu).answer(Products(ProductNoise("lazy", "goe", 0)))
        assert products.groups is not None
        assert products.groups.n == N
    assert problem.group_sums(with_squares=True).n == N
    screen, everybody = (
        curator(each, 1e6).answer(Scores())
        for each in (problem, dpgep.fda(x, labels, classes=["no", "yes"], bound=1.0))
    )
    np.testing.assert_allclose(screen.energy, everybody.energy, rtol=1e-4)


def curator(problem: Any, mu: float) -> Curator:
    return Curator(problem, Ledger(mu), core.NoiseStream())


@pytest.mark.parametrize("classes", [["no", "yes"], None])
def test_a_pickled_solution_holds_the_classes_and_no_other_label(classes: Any, x: Matrix, labels: Any) -> None:
    kind = pd.CategoricalDtype(["no", "yes"])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        values = labels if classes else pd.Series(np.where(labels == "secret", None, labels), dtype=kind)
        solution = dpgep.solve(dpgep.fda(x, values, classes=classes, bound=1.0), mu=1.0)
        released = dpgep.release(dpgep.fda(x, values, classes=classes, bound=1.0), mu=1.0)
    for stored in (pickle.dumps(solution), pickle.dumps(released), bytes_of(released), *map(repr, caught)):
        text = stored if isinstance(stored, str) else stored.decode("latin1")
        assert "secret" not in text
        assert x[7].tobytes().decode("latin1") not in text
    assert pickle.loads(pickle.dumps(solution)).model.classes == ("no", "yes")


# --- A label is compared by itself ----------------------------------------------------------------

COLUMNS: dict[str, tuple[list[Any], tuple[Any, ...], list[Any]]] = {
    "text beside numbers": (["0", "1", "other"], (0, 1, "other"), [0, None, 2.5, True]),
    "numbers beside text": ([0, 1, 1], (0, 1, "other"), ["other", "0", None, 2**70, math.nan]),
    "whole numbers": ([3, 5, 5], (3, 5), [None, 2.5, "3", 2**63, -(2**70), math.nan]),
    "fractions": ([0.5, 1.5, 1.5], (0.5, 1.5), [None, 1, "0.5", 2**70, math.inf]),
    "text": (["a", "b", "a"], ("a", "b"), [None, "a much longer label", b"a", 1, ("a",), ["a"]]),
    "text that ends with nothing": (["a\0", "b"], ("a", "b"), [None, "a much longer label", 1]),
    "booleans beside text": ([True, "yes"], (True, "yes"), [None, "True", 1, 0]),
    "bytes beside text": (["a", b"b"], ("a", b"b"), [None, "b", b"a"]),
    "dates": (
        [np.datetime64("2020-01-01"), np.datetime64("2021-01-01")],
        (np.datetime64("2020-01-01"), np.datetime64("2021-01-01T06:00")),
        [None, np.datetime64("2021-01-01T06:00"), np.datetime64("NaT", "D"), "2020-01-01"],
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_the_label_of_one_person_moves_nobody_else(name: str) -> None:
    """Also where the whole column would be of another type with it."""
    listed, classes, others = COLUMNS[name]
    first = class_codes([*listed, listed[0]], len(listed) + 1, classes)
    assert first[0] == first[-1]
    for other in others:
        assert class_codes([*listed, other], len(listed) + 1, classes)[:-1].tolist() == first[:-1].tolist(), other


@pytest.mark.parametrize("make", [pd.Series, lambda labels: pl.Series(labels, strict=False), pa.array])
def test_a_missing_label_moves_nobody_else(make: Any) -> None:
    for listed in ([3, 5, 5], [0.5, 1.5, 1.5], ["a", "b", "b"]):
        codes = [class_codes(make([*listed, last]), 4, tuple(listed[:2]))[:-1].tolist() for last in (listed[0], None)]
        assert codes == [[0, 1, 1], [0, 1, 1]]


@pytest.mark.parametrize("classes", [(2**53, 5), (2**53 + 1, 5), (-(2**60), 5), (np.int64(2**53 + 1), 5)])
def test_classes_that_floating_point_does_not_tell_apart_are_refused(classes: Any, x: Matrix) -> None:
    with pytest.raises(ValueError, match=r"within 2\*\*53"):
        dpgep.fda(x, np.full(N, 5), classes=classes, bound=1.0)


COLLECTED: dict[str, Callable[[list[str]], Any]] = {
    "an Arrow dictionary": lambda v: pa.array(v).dictionary_encode(),
    "an ordered Arrow dictionary": lambda v: pa.DictionaryArray.from_arrays(
        [0, 1, 2, 3] * N, sorted(set(v)), ordered=True
    )[: len(v)],
    "chunks of Arrow dictionaries": lambda v: pa.chunked_array([pa.array(v).dictionary_encode()]),
    "an Arrow dictionary in pandas": lambda v: pd.Series(
        pd.arrays.ArrowExtensionArray(pa.array(v).dictionary_encode())
    ),
    "a Categorical of polars": lambda v: pl.Series(v, dtype=pl.Categorical),
}


@pytest.mark.parametrize("kind", COLLECTED)
def test_categories_that_a_type_collects_are_published_with_a_warning_alone(kind: str, x: Matrix) -> None:
    """As features they are refused (test_tables): one person's category would be in the names."""
    values = (["z", "b", "a", "rare"] * N)[:N]
    labels = COLLECTED[kind](values)
    with pytest.warns(dpgep.errors.PrivacyWarning, match="every label that occurs, even one person's"):
        found = dpgep.fda(x, labels, bound=1.0)
    assert found.model.classes == ("a", "b", "rare", "z")  # not in order of appearance
    table = pa.table({"x": x[:, 0], "y": x[:, 1], "label": pa.array(values).dictionary_encode()})
    scanned = dpgep.scan(table)
    with pytest.raises(ValueError, match="need public classes"):
        dpgep.fda(scanned[["x", "y"]], scanned["label"], bound=1.0)
    declared = dpgep.fda(x, labels, classes=["a", "b"], bound=1.0)
    assert declared.model.classes == ("a", "b")


def test_a_row_too_long_for_products_is_zero_in_their_sums_as_well() -> None:
    """1e200 bounds: nothing in the second moment. A row in one of them alone would cost more than is paid."""
    rows = np.array([[1e200, 0.0], [0.5, 0.0]])
    for form in (np.asarray, np.asfortranarray, scipy.sparse.csr_array):
        problem = dpgep.fda(form(rows), np.array([0, 1]), classes=[0, 1], bound=1.0)
        sums = problem.grid_sums(20)
        np.testing.assert_array_equal(sums.counts, [1, 1])
        np.testing.assert_array_equal(sums.sums, [[0, 2**19], [0, 0]])
        np.testing.assert_allclose(
            problem.dataset.row_products().second_moment(1.0).times(np.eye(2)), [[0.25, 0], [0, 0]]
        )


# --- What is computed without them -----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*rows exceed the bound")
@pytest.mark.parametrize("method", ["release", "rayleigh-flow"])
def test_who_is_in_no_class_does_not_bend_the_directions(method: str, x: Matrix, labels: Any) -> None:
    """They are no class at the origin: means are those of the people with a class."""
    known = labels != "secret"
    few, all_of_them = (
        dpgep.solve(
            dpgep.fda(rows, marks, classes=["no", "yes"], bound=1.0), epsilon=math.inf, method=method, n_components=1
        )
        for rows, marks in ((x[known], labels[known]), (x, labels))
    )
    np.testing.assert_allclose(few.eigenvalues, all_of_them.eigenvalues, rtol=1e-6)
    np.testing.assert_allclose(few.components, all_of_them.components, atol=1e-4)
    assert few.mean is not None
    assert all_of_them.mean is not None
    np.testing.assert_allclose(few.mean, all_of_them.mean, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*rows exceed the bound")
def test_who_has_no_response_does_not_bend_the_directions(x: Matrix, rng: np.random.Generator) -> None:
    y = x @ [1.0, -1.0, 0.0, 0.0] + 0.1 * rng.standard_normal(N)
    missing = np.where(np.arange(N) % 3 == 0, np.nan, y)
    known = ~np.isnan(missing)
    few, all_of_them = (
        dpgep.solve(dpgep.sir(*data, slices=5, y_range=(-1, 1), bound=1.0), epsilon=math.inf, n_components=2)
        for data in ((x[known], y[known]), (x, missing))
    )
    np.testing.assert_allclose(few.eigenvalues, all_of_them.eigenvalues, rtol=1e-9)
    np.testing.assert_allclose(few.components, all_of_them.components, atol=1e-9)


def groups(counts: list[float], noise: float) -> ReleasedGroups:
    return ReleasedGroups(np.ones((2, len(counts))), np.array(counts), 100.0, MomentNoise(0.0, 0.0, noise))


def test_the_share_of_people_in_a_class_is_read_off_the_release_where_it_shows() -> None:
    assert total_share(groups([0.5, 0.5 + 1e-12], 0.0)) == 1.0
    assert total_share(groups([0.3, 0.3], 0.0)) == pytest.approx(0.6)
    assert total_share(groups([0.4, 0.5], 0.02)) == 1.0  # within four deviations, 0.11
    assert total_share(groups([0.4, 0.45], 0.02)) == pytest.approx(0.85)
    assert total_share(groups([0.7, 0.7], 0.02)) == pytest.approx(1.4)  # a public n that is too small
    assert total_share(groups([-0.3, 0.1], 0.02)) == pytest.approx(0.02 * math.sqrt(2))
    assert total_share(groups([0.4], 0.0)) == 1.0
    np.testing.assert_allclose(total_mean(groups([0.3, 0.2], 0.0)), [4.0, 4.0])


# --- Responses -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["array", "batches", "table", "Dask arrays", "Dask frame"])
def test_infinite_responses_belong_to_the_outer_slices_and_missing_ones_to_none(form: str, x: Matrix) -> None:
    y = np.linspace(-1, 1, N)
    y[[0, 1, 2, 3]] = [math.inf, -math.inf, math.nan, np.finfo(float).max]
    rows, response = FORMS[form](x, y)
    ours = dpgep.sir(rows, response, slices=4, y_range=(-1, 1), bound=1.0).integer_moments(20)
    assert ours.n == N
    finite = np.clip(np.delete(y, 2), -1, 1)
    equal_sums(
        ours, dpgep.sir(np.delete(x, 2, axis=0), finite, slices=4, y_range=(-1, 1), bound=1.0).integer_moments(20)
    )


def test_responses_of_any_number_type(x: Matrix) -> None:
    edges = {"edges": [-math.inf, 0.0, math.inf]}
    for y in (
        np.array([np.longdouble("1e4000"), -1, 1]),
        [math.inf, -1.0, 1.0],
        np.array([math.inf, -1, 1], dtype=np.float16),
        np.array([True, False, True]) * 1,
        pd.Series([1, None, 2], dtype="Int64"),
        pl.Series([1, None, 2]),
        pa.array([1.5, None, 2]),
    ):
        assert dpgep.sir(np.eye(3), y, bound=1.0, **edges).dataset.people.n == 3  # type: ignore[arg-type]


# --- Batches ---------------------------------------------------------------------------------------


def test_a_batch_without_others_is_not_copied(x: Matrix) -> None:
    whole = Batch.of_codes(Rows((x,), 1.0), np.zeros(N, dtype=np.intp))
    assert whole.rows.views[0] is x
    assert (whole.n, whole.others) == (N, 0)


def test_others_stay_with_a_batch_of_fewer_features(x: Matrix) -> None:
    batch = Batch.of_codes(Rows((x,), 1.0), np.where(np.arange(N) < 10, -1, 0))
    assert (batch.n, batch.rows.n, batch.others) == (N, N - 10, 10)
    few = batch.restricted(np.array([0, 2]), 0.5)
    assert (few.n, few.rows.n, few.rows.d) == (N, N - 10, 2)
