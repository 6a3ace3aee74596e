"""Tables as people have them: names from the columns to the solution, text refused, categories as indicators."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from conftest import solve_seeded
from elsewhere import moments
from numpy.typing import NDArray
from stored import bytes_of

import dpgep
from dpgep._optional import MissingExtraError
from dpgep.problems.problem import problem_of
from dpgep.sources.encoding import indicators, positions

N = 600
NAMES = ["income", "age", "visits"]
COLOURS = ["green", "red"]
DECLARED = {"colour": COLOURS}
ENCODED = ("income", "age", "visits", "colour=green", "colour=red", "member")

Matrix = NDArray[np.float64]


def solved(problem: Any, **options: Any) -> dpgep.Solution:
    return solve_seeded(problem, delta=1e-6, **options)


def frame(rows: int = N) -> pd.DataFrame:
    """Numbers, text with a colour that nobody declares and none at all, and booleans."""
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.standard_normal((rows, 3)) * [3, 1, 1] / 8, columns=NAMES)
    words = np.array([*COLOURS, "blue", None], dtype=object)[rng.integers(0, 4, rows)]
    return table.assign(colour=words, member=rng.integers(0, 2, rows).astype(bool))


def matrix(table: pd.DataFrame) -> Matrix:
    """The same by hand."""
    marks = [(table["colour"] == colour).to_numpy(dtype=float) for colour in COLOURS]
    return np.column_stack([table[NAMES], *marks, table["member"]]).astype(float)


def categorical(table: pd.DataFrame) -> pd.DataFrame:
    known = table["colour"].where(table["colour"].isin(COLOURS), None)
    return table.assign(colour=pd.Categorical(known, categories=COLOURS))


def enum(table: pd.DataFrame) -> pl.DataFrame:
    words = [word if word in COLOURS else None for word in table["colour"]]
    columns = {name: table[name].to_numpy() for name in table.columns if name != "colour"}
    made = pl.DataFrame(columns).with_columns(colour=pl.Series(words, dtype=pl.Enum(COLOURS)))
    return made.select(list(table.columns))


def arrow(table: pd.DataFrame) -> pa.Table:
    return pa.table({name: pa.array(table[name], from_pandas=True) for name in table.columns})


def written(table: pd.DataFrame, folder: Path) -> Path:
    pq.write_table(arrow(table), folder / "people.parquet", row_group_size=100)
    return folder / "people.parquet"


TABLES: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "pandas": lambda t, folder: categorical(t),
    "pandas in Arrow": lambda t, folder: categorical(t).astype({"age": "double[pyarrow]", "member": "bool[pyarrow]"}),
    "polars": lambda t, folder: enum(t),
    "Dask": lambda t, folder: dd.from_pandas(categorical(t), npartitions=4),
    "scan of pandas": lambda t, folder: dpgep.scan(categorical(t), batch_rows=97),
    "scan of polars": lambda t, folder: dpgep.scan(enum(t), batch_rows=97),
    "scan of text": lambda t, folder: dpgep.scan(t, categories=DECLARED),
    "scan of Arrow": lambda t, folder: dpgep.scan(arrow(t), categories=DECLARED),
    "scan of an Arrow dictionary": lambda t, folder: dpgep.scan(
        arrow(t).set_column(3, "colour", pa.array(t["colour"]).dictionary_encode()), categories=DECLARED
    ),
    "scan of Parquet": lambda t, folder: dpgep.scan(written(t, folder), categories=DECLARED),
    "scan of a data set": lambda t, folder: dpgep.scan(pa.dataset.dataset(written(t, folder)), categories=DECLARED),
    "batches of pandas": lambda t, folder: (categorical(t)[i : i + 70] for i in range(0, N, 70)),
    "batches of polars": lambda t, folder: (enum(t)[i : i + 70] for i in range(0, N, 70)),
    "batches of Arrow": lambda t, folder: dpgep.scan(arrow(t).to_batches(70), categories=DECLARED),
    "mapping": lambda t, folder: dpgep.scan(
        {name: t[name].to_numpy() for name in t.columns}, categories=DECLARED
    )[list(t.columns)],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["boolean", "bool[pyarrow]"])
def test_missing_booleans_of_pandas_are_nan(kind: str) -> None:
    column = pd.Series([True, None, False], dtype=kind)
    scan = dpgep.scan(pd.DataFrame({"x": [1.0, 2.0, 3.0], "member": column}))
    ((rows, vector),) = scan.read(scan[["x", "member"]], scan["member"])
    for found in (rows[:, 1], vector):
        np.testing.assert_array_equal(found, [1.0, np.nan, 0.0])


# --- categories ---


@pytest.mark.parametrize("kind", TABLES)
def test_categories_become_indicators_wherever_the_rows_are(kind: str, tmp_path: Path) -> None:
    problem = dpgep.pca(TABLES[kind](frame(), tmp_path), bound=2.0)
    solution = solved(problem, epsilon=1.0, n_components=3)
    by_hand = solved(dpgep.pca(matrix(frame()), bound=2.0), epsilon=1.0, n_components=3)
    np.testing.assert_array_equal(solution.components, by_hand.components)
    np.testing.assert_array_equal(solution.eigenvalues, by_hand.eigenvalues)
    assert solution.feature_names == ENCODED
    assert by_hand.feature_names is None


@pytest.mark.parametrize("make", [dpgep.cca, dpgep.pls])
@pytest.mark.parametrize("kind", ["pandas", "Dask", "scan of Parquet"])
def test_both_views_may_have_categories(make: Any, kind: str, tmp_path: Path) -> None:
    table, by_hand = TABLES[kind](frame(), tmp_path), matrix(frame())
    problem = make(table[["income", "colour"]], table[["member", "age"]], bound=2.0)
    solution = solved(problem, epsilon=1.0, n_components=2)
    model = replace(problem.model, feature_names=None)  # columns that are indicators are said to be
    views = by_hand[:, [0, 3, 4]], by_hand[:, [5, 1]]
    expected = solved(problem_of(model, *views, bound=2.0), epsilon=1.0, n_components=2)
    assert model.indicators == ((1, 2),)
    np.testing.assert_array_equal(solution.components, expected.components)
    assert solution.feature_names == ("income", "colour=green", "colour=red", "member", "age")


def test_a_part_of_a_tuple_may_have_categories() -> None:
    scan = dpgep.scan((np.ones((3, 2)), np.array(["a", "b", "c"]), np.arange(3.0)), categories={1: ["b", "a"]})
    assert repr(scan).startswith("Scan(3 parts: 0, 1, 2, ")
    ((rows, text),) = scan.read(scan[[2, 1]], scan[1])
    np.testing.assert_array_equal(rows, [[0, 0, 1], [1, 1, 0], [2, 0, 0]])
    assert text.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint64"])
@pytest.mark.parametrize(
    "declared", [(0,), (3, 1, 2), (-128, 127), (0, 2**40), (2**63 - 2, 2**63 - 1), (2**64 - 1, 2**64 - 3)]
)
def test_whole_numbers_are_found_at_both_ends_of_their_type(dtype: str, declared: tuple[int, ...]) -> None:
    ends = np.iinfo(dtype)
    near = [value + step for value in (0, *declared, int(ends.min), int(ends.max)) for step in (-1, 0, 1)]
    values = [value for value in near if ends.min <= value <= ends.max]
    expected = [declared.index(value) if value in declared else -1 for value in values]
    np.testing.assert_array_equal(positions(np.array(values, dtype=dtype), declared), expected)


def test_a_categorical_column_has_at_most_one_in_a_row() -> None:
    """What its part of the squared norm is: 1 or 0, whatever the number of categories."""
    marks = indicators(positions(np.array(["b", "x", "a"]), tuple("abcdefgh")), 8).T
    np.testing.assert_array_equal((marks**2).sum(axis=1), [1, 0, 1])
    np.testing.assert_array_equal(marks[:, :2], [[0, 1], [0, 0], [1, 0]])


def test_indicators_are_a_function_of_the_row_alone() -> None:
    table = categorical(frame())
    shuffled = table.sample(frac=1.0, random_state=1)
    for part in (table, shuffled, shuffled[: N // 3]):
        problem = dpgep.pca(part, bound=2.0)
        rows = np.asarray(problem.dataset.in_memory("a test").rows.views[0])
        np.testing.assert_array_equal(rows, matrix(frame().loc[part.index]))


@pytest.mark.parametrize("declared", [[1, 3], [1.0, 3.0], np.array([1, 3])])
def test_numbers_can_be_categories(declared: Any) -> None:
    scan = dpgep.scan(pd.DataFrame({"region": [1, 2, 3], "x": [0.5, 0.25, 0.125]}), categories={"region": declared})
    ((rows,),) = scan.read(scan)
    np.testing.assert_array_equal(rows, [[1, 0, 0.5], [0, 0, 0.25], [0, 1, 0.125]])


def test_a_categorical_column_as_a_vector_is_what_it_was(tmp_path: Path) -> None:
    scan = dpgep.scan(written(frame(), tmp_path), categories=DECLARED)
    problem = dpgep.fda(scan[["age", "colour"]], scan["colour"], classes=COLOURS, bound=2.0)
    assert problem.model.feature_names == ("age", "colour=green", "colour=red")
    solved(problem, epsilon=10.0)


UNDECLARED: dict[str, Callable[[], Any]] = {
    "polars Categorical": lambda: pl.DataFrame({"colour": pl.Series(["a", "b"], dtype=pl.Categorical)}),
    "Arrow dictionary": lambda: pa.table({"colour": pa.array(["a", "b"]).dictionary_encode()}),
    "Arrow dictionary in pandas": lambda: pd.DataFrame(
        {"colour": pd.Series(pd.arrays.ArrowExtensionArray(pa.array(["a", "b"]).dictionary_encode()))}
    ),
    "Dask, unknown": lambda: dd.from_pandas(categorical(frame()), npartitions=2).assign(
        colour=lambda t: t["colour"].cat.as_unknown()
    )[["colour"]],
}


@pytest.mark.parametrize("kind", UNDECLARED)
def test_categories_collected_from_the_data_are_refused(kind: str) -> None:
    with pytest.raises(TypeError, match=r"column 'colour' is categorical, but .* declare them, as pandas\.Cat.*scan\("):
        dpgep.pca(UNDECLARED[kind](), bound=1.0)


def test_batches_with_other_categories_end_the_pass() -> None:
    """As `astype("category")` of each batch makes them: of a category that comes later nobody would know."""
    batches = [pd.DataFrame({"colour": words}).astype("category") for words in (["a", "b"], ["a", "c"])]
    scan = dpgep.scan(batches)
    with pytest.raises(ValueError, match="a batch lacks 'colour=b' and has 'colour=c' besides"):
        list(scan.read(scan))
    declared = dpgep.scan(batches, categories={"colour": ["c", "a"]})
    ((rows,),) = declared.read(declared)
    np.testing.assert_array_equal(rows, [[0, 1], [0, 0], [0, 1], [1, 0]])


def test_a_partition_that_lists_its_categories_otherwise_is_read_by_those_of_the_collection() -> None:
    def part(words: list[str]) -> pd.DataFrame:
        return pd.DataFrame({"colour": pd.Categorical(["red", "green"], categories=words), "x": [0.5, 0.25]})

    lazy = dd.from_map(part, [COLOURS, COLOURS[::-1]], meta=part(COLOURS)[:0])
    sums = moments(dpgep.models.PcaModel(3, center=True), lazy, bound=2.0)
    here = dpgep.Moments(sums.model, bound=2.0)
    here.update(np.array([[0, 1, 0.5], [1, 0, 0.25]] * 2))
    assert bytes_of(sums) == bytes_of(here)


@pytest.mark.parametrize(
    ("categories", "error", "message"),
    [
        (["a"], TypeError, "categories must be a mapping"),
        ({"colour": "red"}, TypeError, "categories of 'colour' must be a list, got 'red'"),
        ({"colour": {"red"}}, TypeError, "categories of 'colour' must be a list"),
        ({"colour": []}, ValueError, "categories of 'colour' are empty"),
        # with one missing value the column is in floating point, where 2^53 + 1 of anybody else would be among them
        ({"colour": [1, 2**53]}, ValueError, r"categories of 'colour' that are numbers must lie within 2\*\*53"),
        ({"color": ["red"]}, ValueError, "no column 'color', did you mean 'colour'[?]; available: 'income'"),
    ],
)
def test_bad_declarations_are_refused_at_once(categories: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dpgep.scan(frame(), categories=categories)


def test_columns_of_the_same_name_and_too_many_categories_are_refused() -> None:
    table = categorical(frame(4)).assign(**{"colour=red": 1.0})
    with pytest.raises(ValueError, match="several columns are named 'colour=red'"):
        dpgep.pca(table, bound=1.0)
    with pytest.raises(ValueError, match="several columns are named 'c=red'"):
        dpgep.scan({"c": ["red", "red"], "red": [1.0, 2.0]}, categories={"c": ["red", "red"]})[["red", "c"]]
    with pytest.raises(ValueError, match="column 'zip' has 1001 categories, of at most 1000"):
        dpgep.scan(pd.DataFrame({"zip": [1]}), categories={"zip": range(1001)})[["zip"]]


# --- text ---


@pytest.mark.parametrize(
    "make",
    [
        lambda t, folder: t,
        lambda t, folder: t.assign(colour=pd.Timestamp("2026-01-01")),
        lambda t, folder: pl.DataFrame({"income": [0.5, 1.0], "colour": ["a", "b"]}),
        lambda t, folder: pl.DataFrame({"income": [0.5, 1.0], "colour": [pd.Timestamp("2026-01-01")] * 2}),
        lambda t, folder: arrow(t),
        lambda t, folder: arrow(t).to_batches()[0],
        lambda t, folder: dd.from_pandas(t, npartitions=2),
        lambda t, folder: dpgep.scan(t),
        lambda t, folder: written(t, folder),
        lambda t, folder: iter([t]),
        lambda t, folder: arrow(t).to_reader(),
    ],
)
def test_text_and_dates_are_refused_by_name_before_anything_is_read(make: Any, tmp_path: Path) -> None:
    with pytest.raises(
        TypeError,
        match=r"column 'colour' \(.+\) is not numeric: select others, "
        r"or (declare the categories of text|read these by dpgep.scan\(..., dates=)",
    ):
        dpgep.pca(make(frame(), tmp_path), bound=1.0)


# --- names ---


def named(columns: list[str] = NAMES) -> pd.DataFrame:
    return frame()[columns]


@pytest.mark.parametrize(
    "make",
    [
        named,
        lambda: pl.DataFrame(dict(named())),
        lambda: arrow(named()),
        lambda: arrow(named()).to_batches()[0],
        lambda: dd.from_pandas(named(), npartitions=3),
        lambda: dpgep.scan(frame())[NAMES],
        lambda: dpgep.scan((named(), np.zeros(N)))[0],
        lambda: dpgep.scan({name: named()[name].to_numpy() for name in NAMES})[NAMES],
        lambda: dpgep.scan([named()[:100], named()[100:]]),
    ],
)
@pytest.mark.parametrize("options", [{}, {"method": "rayleigh-flow"}])
def test_names_go_to_the_solution_and_change_no_bit(make: Callable[[], Any], options: dict[str, Any]) -> None:
    values = make()
    solution = solved(dpgep.pca(values, bound=1.0), epsilon=1.0, n_components=2, **options)
    assert solution.feature_names == tuple(NAMES)
    plain = solved(dpgep.pca(named().to_numpy(), bound=1.0), epsilon=1.0, n_components=2, **options)
    if not options or isinstance(values, (pd.DataFrame, pl.DataFrame, pa.Table, pa.RecordBatch)):
        np.testing.assert_array_equal(solution.components, plain.components)
    np.testing.assert_allclose(solution.components, plain.components, rtol=1e-9)


def test_names_of_every_kind_of_label() -> None:
    table = pd.DataFrame(np.eye(3), columns=[7, ("a", 1), "x"])
    assert dpgep.pca(table, bound=1.0).model.feature_names == ("7", "('a', 1)", "x")
    with pytest.raises(ValueError, match="several columns are named '1'"):
        dpgep.pca(pd.DataFrame(np.eye(3), columns=["1", 1, 2]), bound=1.0)


def test_names_of_two_views_and_of_one_of_them() -> None:
    x, y = named(["income", "age"]), named(["visits"])
    assert dpgep.cca(x, y, bound=1.0).model.feature_names == ("income", "age", "visits")
    assert dpgep.cca(x, y.to_numpy(), bound=1.0).model.feature_names == ("income", "age", "0")
    assert dpgep.cca(x.to_numpy(), y.to_numpy(), bound=1.0).model.feature_names is None


def test_models_are_equal_whatever_the_names_are_which_must_fit() -> None:
    model = dpgep.models.PcaModel(2, center=True, feature_names=["a", "b"])  # type: ignore[arg-type]
    assert model.feature_names == ("a", "b")
    assert model == dpgep.models.PcaModel(2, center=True)
    for wrong in (["a"], ["a", 1]):
        with pytest.raises(ValueError, match="feature_names must be 2 names, one for each feature, got 'a'"):
            dpgep.models.PcaModel(2, center=True, feature_names=wrong)  # type: ignore[arg-type]


def test_components_by_name() -> None:
    solution = solved(dpgep.pca(named(), bound=1.0), epsilon=10.0, n_components=2)
    table = solution.to_frame()
    assert list(table.index) == NAMES
    assert list(table.columns) == [1, 2]
    np.testing.assert_array_equal(table.to_numpy(), solution.components.T)
    assert "  +1 income" in repr(solution)
    unnamed = solved(dpgep.pca(named().to_numpy(), bound=1.0), epsilon=10.0, n_components=2)
    assert list(unnamed.to_frame().index) == [0, 1, 2]
    assert "income" not in repr(unnamed)


def test_components_of_two_views_by_view_and_name() -> None:
    table = named().assign(copy=named()["income"] + 0.1)
    solution = solved(
        dpgep.pls(table[["income", "age"]], table[["copy", "age"]], bound=1.0), epsilon=10.0, n_components=1
    )
    assert list(solution.to_frame().index) == [("X", "income"), ("X", "age"), ("Y", "copy"), ("Y", "age")]
    unnamed = dpgep.pls(table[["income", "age"]].to_numpy(), table[["copy"]].to_numpy(), bound=1.0)
    index = solved(unnamed, epsilon=10.0, n_components=1).to_frame().index
    assert list(index) == [("X", 0), ("X", 1), ("Y", 0)]


def test_a_bought_bound_keeps_names_and_categories() -> None:
    for table in (categorical(frame()), dd.from_pandas(categorical(frame()), npartitions=3)):
        solution = solved(dpgep.pca(table, bound="auto"), epsilon=10.0, n_components=2)
        assert list(solution.to_frame().index) == list(ENCODED)


def test_supports_by_name() -> None:
    solution = solved(dpgep.pca(named(), bound=1.0), epsilon=10.0, n_components=1, sparsity=1)
    assert solution.support == ("income",)
    assert "  support      'income'\n" in repr(solution)
    plain = solved(dpgep.pca(named().to_numpy(), bound=1.0), epsilon=10.0, n_components=1, sparsity=1)
    assert plain.support == (0,)


def test_a_screen_keeps_the_names() -> None:
    solution = solved(dpgep.pca(named(), bound=1.0), epsilon=100.0, n_components=1, screen=2)
    assert solution.feature_names == tuple(NAMES)
    assert "income" in solution.support
    assert len(solution.support) == 2


def test_a_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    solution = solved(dpgep.pca(named(), bound=1.0), epsilon=10.0, n_components=1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pandas is not installed: run pip install 'dpgep\[pandas\]'"):
        solution.to_frame()


# --- new tables ---


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["age", "income", "visits"], "the columns of X are in another order: they must be 'income', 'age', 'visits'"),
        (["income", "age"], "X lacks 'visits': its columns must be 'income', 'age', 'visits'"),
        (["income", "age", "visits", "member"], "X has 'member' besides: its columns must be"),
        (["income", "age", "member"], "X lacks 'visits' and has 'member' besides"),
    ],
)
@pytest.mark.parametrize(
    "kind", [lambda t: t, lambda t: pl.DataFrame(dict(t)), arrow, lambda t: dd.from_pandas(t, npartitions=2)]
)
def test_transform_refuses_other_columns(columns: list[str], message: str, kind: Callable[[Any], Any]) -> None:
    solution = solved(dpgep.pca(named(), bound=1.0), epsilon=10.0, n_components=1)
    with pytest.raises(ValueError, match=message):
        solution.transform(kind(frame()[columns]))
    expected = solution.transform(named().to_numpy())
    np.testing.assert_allclose(solution.transform(kind(named())), expected, rtol=1e-12)


def test_transform_encodes_categories() -> None:
    solution = solved(dpgep.pca(categorical(frame()), bound=2.0), epsilon=10.0, n_components=2)
    expected = solution.transform(matrix(frame()))
    np.testing.assert_allclose(solution.transform(categorical(frame())), expected, rtol=1e-12)
    np.testing.assert_allclose(solution.transform(enum(frame())), expected, rtol=1e-12)
    reversed_list = categorical(frame()).assign(colour=lambda t: t["colour"].cat.reorder_categories(COLOURS[::-1]))
    with pytest.raises(ValueError, match=r"another order: they must be .*'colour=green', 'colour=red'"):
        solution.transform(reversed_list)


def test_transform_checks_each_view() -> None:
    table = frame()
    solution = solved(dpgep.cca(table[["income", "age"]], table[["visits"]], bound=1.0), epsilon=10.0, n_components=1)
    with pytest.raises(ValueError, match="Y lacks 'visits' and has 'member' besides"):
        solution.transform(table[["income", "age"]], table[["member"]])


# --- moments ---


def test_moments_take_the_names_of_their_first_table() -> None:
    moments = dpgep.Moments(dpgep.models.PcaModel(3, center=True), bound=1.0)
    moments.update(named().to_numpy()[:100])
    assert moments.model.feature_names is None
    moments.update(named()[100:200])
    moments.update(named().to_numpy()[200:])
    for same in (moments, moments.copy(), pickle.loads(pickle.dumps(moments))):
        assert same.model.feature_names == tuple(NAMES)
    stored = dpgep.load(bytes_of(moments))
    assert dpgep.solve(stored, epsilon=1.0, delta=1e-6, n_components=1).feature_names == tuple(NAMES)
    before = bytes_of(moments)
    with pytest.raises(ValueError, match="the columns of X are in another order"):
        moments.update(named(NAMES[::-1]))
    assert bytes_of(moments) == before


def test_moments_of_other_names_are_not_merged() -> None:
    def summed(table: Any) -> dpgep.Moments:
        moments = dpgep.Moments(dpgep.models.PcaModel(3, center=True), bound=1.0)
        moments.update(table)
        return moments

    ours, other, unnamed = (
        summed(named()),
        summed(named().rename(columns={"age": "height"})),
        summed(named().to_numpy()),
    )
    before = bytes_of(ours)
    with pytest.raises(ValueError, match="X lacks 'age' and has 'height' besides"):
        ours.merge(other)
    assert bytes_of(ours) == before
    unnamed.merge(ours)
    assert unnamed.model.feature_names == tuple(NAMES)
    assert unnamed.n == 2 * N


def test_private_moments_keep_names_and_add_those_of_the_same() -> None:
    one, two = (
        dpgep.release(dpgep.pca(rows, bound=1.0), epsilon=1.0, delta=1e-6) for rows in (named()[:300], named()[300:])
    )
    other = dpgep.release(dpgep.pca(named(NAMES[::-1])[:300], bound=1.0), epsilon=1.0, delta=1e-6)
    stored = dpgep.load(bytes_of(one))
    assert (stored + two).solve(n_components=1).feature_names == tuple(NAMES)
    with pytest.raises(ValueError, match="the columns of X are in another order"):
        stored + other


@pytest.mark.parametrize("kind", ["Dask", "Parquet"])
def test_distributed_moments_are_named(kind: str, tmp_path: Path) -> None:
    model = dpgep.models.PcaModel(3, center=True)
    if kind == "Dask":
        sums = moments(model, dd.from_pandas(frame(), npartitions=3), columns=NAMES, bound=1.0)
    else:
        sums = moments(model, [str(written(frame(), tmp_path))], columns=NAMES, bound=1.0)
    here = dpgep.Moments(model, bound=1.0)
    here.update(named())
    assert bytes_of(sums) == bytes_of(here)
    assert sums.model.feature_names == tuple(NAMES)
    if kind == "Dask":
        encoded = moments(
            dpgep.models.PcaModel(6, center=True), dd.from_pandas(categorical(frame()), npartitions=3), bound=1.0
        )
        assert encoded.model.feature_names == ENCODED


TEXT = ["a", "b", None, "c", "a", "", "b ", "b"]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(TEXT, dtype=object),
        pd.Series(TEXT, dtype="str"),
        pd.Series(TEXT, dtype="string"),
        pd.Series(pd.Categorical(TEXT)),
        pa.array(TEXT),
        pa.array(TEXT, pa.large_string()),
        pa.array(TEXT, pa.string_view()),
        pa.array(TEXT).dictionary_encode(),
        pl.Series(TEXT),
    ],
    ids=lambda column: f"{type(column).__module__.split('.')[0]} {getattr(column, 'dtype', None) or column.type}",
)
def test_indicators_of_text_are_those_of_each_value(column: Any) -> None:
    """Text is looked up by its distinct values: what each row has must not depend on the way."""
    frame = pa.table({"t": column}) if isinstance(column, pa.Array) else type(column.to_frame())({"t": column})
    scan = dpgep.scan(frame, categories={"t": ["b", "a", "z"]})
    ((rows,),) = scan.read(scan[["t"]])
    np.testing.assert_array_equal(rows, [[value == each for each in "baz"] for value in TEXT])


@pytest.mark.parametrize("hashable", [True, False])
def test_values_that_cannot_be_hashed_have_no_category(hashable: bool) -> None:
    places = {0: 1, 1: 1, 2: 1, 3: 2, 7: 1, 9: 3}  # of 1, of its equals, of text and of a tuple
    values: list[Any] = [1, True, 1.0, "x", None, float("nan"), pd.NA, np.int64(1), "1", (1,)]
    values += [] if hashable else [[1], {}]
    scan = dpgep.scan(pd.DataFrame({"t": pd.Series(values, dtype=object)}), categories={"t": [1, "x", (1,)]})
    ((rows,),) = scan.read(scan[["t"]])
    expected = [[places.get(i) == place for place in (1, 2, 3)] for i in range(len(values))]
    np.testing.assert_array_equal(rows, expected)
