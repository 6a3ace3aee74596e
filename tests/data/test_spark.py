"""What Spark is asked to run, on record batches and without Spark: sums of partitions, and rows that merge them."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import Matrix, solve_seeded
from fake_spark import DataFrame, in_place_of_pyspark

import dpgep
from dpgep.data import distributed
from dpgep.data.distributed import Partial, Task, summed
from dpgep.data.integer_moments import ExactMomentAccumulator
from dpgep.data.rows import NotFiniteError
from dpgep.models.model import PublicFacts
from dpgep.models.row_model import RowModel, layout_of
from dpgep.problems.problem import batch_of

NAMES = list("abcd")


@pytest.fixture
def table(rng: np.random.Generator) -> pa.Table:
    columns: dict[str, Any] = dict(zip(NAMES, rng.standard_normal((4, 600)) / 3, strict=True))
    return pa.table({**columns, "label": np.array(["no", "yes", "unknown"])[rng.integers(0, 3, 600)]})


def task_of(model: RowModel, table: pa.Table, *keys: Any, **options: Any) -> Task:
    """What executors get: how to read, to make batches and sums of them."""
    people = dpgep.scan(table, **options)
    read = partial(distributed._people, people.again(), list(keys), table.schema)
    layout = layout_of(model, PublicFacts("replace-one", 1.0, None))
    return read, partial(batch_of, model, 1.0), partial(ExactMomentAccumulator, layout, 20), None, None


def batches(table: pa.Table) -> Any:
    """As Spark hands them over: columns have other names."""
    return iter(table.rename_columns([str(i) for i in range(table.num_columns)]).to_batches(max_chunksize=70))


def merged_by_rows(parts: dict[int, Partial]) -> Partial:
    """All levels of the tree as executors run them, rows of a group in any order."""
    rows = {part: distributed._row(part, sums) for part, sums in parts.items()}
    while len(rows) > 1:
        groups = groupby(sorted(rows), key=distributed._number_of_merged)
        tables = [pa.Table.from_batches([rows[part] for part in reversed(list(group))]) for _, group in groups]
        merged = [distributed._merged_rows(table) for table in tables]
        rows = {table.column("part")[0].as_py(): table.to_batches()[0] for table in merged}
    (row,) = rows.values()
    return pickle.loads(row.column("sums")[0].as_py())  # type: ignore[no-any-return]


@pytest.mark.parametrize("n_parts", [1, 7, 90])
def test_partitions_sum_to_the_moments_of_all(n_parts: int, table: pa.Table) -> None:
    model = dpgep.models.FdaModel(4, ("no", "yes"))
    task = pickle.loads(pickle.dumps(task_of(model, table, tuple(NAMES), "label")))
    edges = [600 * i // n_parts for i in range(n_parts + 1)]
    edges.insert(1, 0)  # a partition without people
    slices = (batches(table[start:end]) for start, end in pairwise(edges))
    result = merged_by_rows({part: summed(task, rows) for part, rows in enumerate(slices)})
    assert not isinstance(result, Exception)
    n, sums, _ = result
    whole = dpgep.Moments(model, bound=1.0)
    whole.update(table.select(NAMES), table["label"])
    assert n == 600
    np.testing.assert_array_equal(np.triu(pickle.loads(sums).limbs()[0]), np.triu(whole._sums.limbs()[0]))


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("n_parts", [1, 5])
def test_rows_are_the_same_however_often_sums_are_merged(
    n_parts: int, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large sums of a stage are merged by executors, the small ones of the next stage are not."""
    monkeypatch.setattr(distributed, "_AT_DRIVER", 10_000)
    with in_place_of_pyspark():
        frame = DataFrame([table.select(NAMES).slice(600 * i // n_parts, 600 // n_parts) for i in range(n_parts)])
        ours = solve_seeded(dpgep.pca(frame, standardize=True), mu=1.0)
    theirs = solve_seeded(dpgep.pca(table.select(NAMES), standardize=True), mu=1.0)
    np.testing.assert_array_equal(ours.components, theirs.components)


def test_categories_and_filters_travel_with_the_task(table: pa.Table) -> None:
    model = dpgep.models.PcaModel(3, center=True)
    options = {"categories": {"label": ["no", "yes"]}, "filter": "b > 0"}
    found = summed(task_of(model, table, ("a", "label"), **options), batches(table))
    assert not isinstance(found, Exception)
    kept = np.asarray(table["b"]) > 0
    labels = np.asarray(table["label"])[kept]
    rows: Matrix = np.column_stack([np.asarray(table["a"])[kept], labels == "no", labels == "yes"])
    expected = ExactMomentAccumulator(layout_of(model, PublicFacts("replace-one", 1.0, None)), 20)
    expected.add(batch_of(model, 1.0, rows))
    assert found[0] == kept.sum()
    np.testing.assert_array_equal(np.triu(pickle.loads(found[1]).limbs()[0]), np.triu(expected.limbs()[0]))


def test_a_null_is_a_value_that_merging_hands_on(table: pa.Table) -> None:
    """Raised in a task, Spark would log its text and try again."""
    holed = table.set_column(0, "a", pa.array([None, *table["a"].to_pylist()[1:]]))
    task = task_of(dpgep.models.PcaModel(4, center=True), table, tuple(NAMES))
    parts = {0: summed(task, batches(table)), 9: summed(task, batches(holed))}
    assert isinstance(parts[9], NotFiniteError)
    assert isinstance(merged_by_rows(parts), NotFiniteError)


def test_another_python_on_the_workers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As what may be the reason, whatever it is: the text of Spark's error may quote values."""
    error = type("PythonException", (Exception,), {"__module__": "pyspark.errors"})

    def collect(self: Any) -> None:
        raise error("[PYTHON_VERSION_MISMATCH] secret7")

    monkeypatch.setattr(DataFrame, "collect", collect)
    table = pa.table({"a": [0.1, 0.2, 0.3], "b": [0.3, 0.2, 0.1]})
    with in_place_of_pyspark():
        problem = dpgep.pca(DataFrame([table]), bound=1.0)
        with pytest.raises(dpgep.errors.DataError, match=r"workers need Python 3\.\d+: PYSPARK_PYTHON") as raised:
            dpgep.solve(problem, epsilon=1.0, delta=1e-6)
    assert "secret7" not in str(raised.value)
    assert len(str(raised.value)) <= 200
