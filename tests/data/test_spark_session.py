"""Rows of a Spark DataFrame, on a local session: the same bits as in one process, also when a task dies."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import Matrix, nothing_spent, solve_seeded
from elsewhere import moments
from numpy.typing import NDArray
from stored import bytes_of

import dpgep
from dpgep.data import distributed
from dpgep.data.dataset import InMemoryDataset
from dpgep.data.distributed import SparkDataset
from dpgep.data.float_sums import GroupSums, ProductSums
from dpgep.data.inputs import named
from dpgep.data.rows import Batch, NotFiniteError, Rows

sql = pytest.importorskip("pyspark.sql")

# Java and Spark start, and every pass is a job of theirs
pytestmark = [
    pytest.mark.deep,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of py4j
]

NAMES = list("abcdef")
LABELS = ("no", "yes", "perhaps")


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """Two tasks at a time, each tried up to three times."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF"}
        options |= {"spark.sql.shuffle.partitions": "4"}
        builder = sql.SparkSession.builder.master("local[2, 3]").config(map=options)
        session = builder.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def people(rng: np.random.Generator) -> tuple[Matrix, NDArray[np.intp]]:
    """1000 rows inside and beyond the bound, and their labels."""
    x = rng.standard_normal((1000, 6)) * rng.choice([0.1, 1.0], (1000, 1))
    return x, rng.integers(0, 3, 1000)


@pytest.fixture
def frame(people: Any) -> pd.DataFrame:
    x, labels = people
    return pd.DataFrame(x, columns=NAMES).assign(label=np.array(LABELS)[labels])


def spread(spark: Any, table: Any, parts: int = 5) -> Any:
    """A DataFrame in partitions that hold the rows in order."""
    table = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
    lines = spark.range(parts, numPartitions=parts)
    edges = [table.num_rows * i // parts for i in range(parts + 1)]
    stored = [table[start:end].to_batches() for start, end in pairwise(edges)]

    def of_part(batches: Any) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from stored[number]

    return lines.mapInArrow(of_part, spark.createDataFrame(table[:0]).schema)


def in_one_process(model: Any, *data: Any, **facts: Any) -> bytes:
    bound = {} if "preprocessing" in facts else {"bound": 1.0}
    whole = dpgep.Moments(model, **{**bound, **facts})
    whole.update(*data)
    return bytes_of(whole)


def test_moments_are_those_of_one_process(spark: Any, frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"bound": 1.5, "adjacency": "add-remove", "public_n": 900, "bits": 18}
    fda = dpgep.models.FdaModel(6, LABELS)
    expected = in_one_process(fda, frame[NAMES], frame["label"].to_numpy(), **facts)
    for parts in (1, 9):
        assert bytes_of(moments(fda, spread(spark, frame, parts), "label", **facts)) == expected
    # merged by the executors as well as by the driver
    monkeypatch.setattr(distributed, "_AT_DRIVER", 100)
    assert bytes_of(moments(fda, spread(spark, frame, 9), "label", columns=NAMES, **facts)) == expected
    cca = dpgep.models.CcaModel((4, 2), center=False)
    assert bytes_of(moments(cca, spread(spark, frame).drop("label"), ["a", "f"], bound=1.0)) == in_one_process(
        cca, frame[list("bcde")], frame[["a", "f"]]
    )


def test_prepared_rows_and_few_people(spark: Any, frame: pd.DataFrame) -> None:
    preprocessing = dpgep.Preprocessing(2.0, np.arange(6.0) / 10, np.full(6, 0.5), largest=6.0)
    model, rows = dpgep.models.PcaModel(6, center=True), spread(spark, frame[NAMES])
    assert bytes_of(moments(model, rows, preprocessing=preprocessing)) == in_one_process(
        model, frame[NAMES], preprocessing=preprocessing
    )
    few = rows.filter("a > 2.5")
    assert bytes_of(moments(model, few, bound=1.0)) == in_one_process(model, frame[NAMES][frame["a"] > 2.5])
    none = rows.filter("a > 1e9")
    assert moments(model, none, bound=1.0).n == 0
    assert moments(model, spark.createDataFrame([], rows.schema), bound=1.0).n == 0
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match="at least 2 people, the data have 0"):
        dpgep.solve(dpgep.pca(none, bound=1.0), budget=budget)


def test_problems_take_data_frames(spark: Any, frame: pd.DataFrame) -> None:
    lazy = spread(spark, frame)
    source = dpgep.scan(lazy)
    ours = dpgep.fda(source[NAMES], source["label"], classes=LABELS, bound=1.0)
    theirs = dpgep.fda(frame[NAMES], frame["label"], classes=LABELS, bound=1.0)
    solutions = [solve_seeded(problem, mu=1.0) for problem in (ours, theirs)]
    np.testing.assert_array_equal(solutions[0].components, solutions[1].components)
    assert solutions[0].model.feature_names == tuple(NAMES)
    # stages of integers: the bound is bought from the same counts
    bought = [solve_seeded(dpgep.pca(rows), mu=1.0) for rows in (lazy.select(*NAMES), frame[NAMES])]
    np.testing.assert_array_equal(bought[0].components, bought[1].components)


@pytest.mark.parametrize("options", [{"method": "rayleigh-flow", "n_iterations": 3}, {"screen": 3}])
def test_flows_and_screens_of_several_passes(options: Any, spark: Any, frame: pd.DataFrame) -> None:
    solutions = [
        solve_seeded(dpgep.pca(rows, bound=1.0), epsilon=1e6, delta=1e-6, n_components=1, **options)
        for rows in (spread(spark, frame[NAMES]), frame[NAMES])
    ]
    np.testing.assert_allclose(solutions[0].components, solutions[1].components, rtol=1e-6)


def test_products_are_those_of_numpy_and_their_bits_those_of_the_parts(
    spark: Any, people: Any, frame: pd.DataFrame, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, _ = people
    block = rng.standard_normal((2, 6))
    ours = dpgep.pca(spread(spark, frame[NAMES], 10), bound=1.0).dataset
    assert isinstance(ours, SparkDataset)
    first = ours.accumulate(partial(ProductSums, block)).sum.total
    monkeypatch.setattr(distributed, "_AT_DRIVER", 100)
    np.testing.assert_array_equal(ours.accumulate(partial(ProductSums, block)).sum.total, first)
    clipped = x / np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    np.testing.assert_allclose(first, block @ clipped.T @ clipped, rtol=1e-10)
    layout = dpgep.pca(x, bound=1.0).layout
    screens = [
        p.accumulate(partial(GroupSums, layout, with_squares=True)).squares
        for p in (ours, InMemoryDataset(Batch(Rows((x,), 1.0))))
    ]
    np.testing.assert_allclose(*screens, rtol=1e-12)
    assert ours.people.passes == 3


# --- Types of columns ------------------------------------------------------------------------------


def table() -> pa.Table:
    """Columns of every kind, with what is null; a name with a dot, and one with a backtick."""
    return pa.table(
        {
            "a.b": pa.array([0.5, None, -0.25, 0.125], pa.float64()),
            "count`": pa.array([1, 2, None, 4], pa.int32()),
            "share": pa.array([Decimal("0.10"), None, Decimal("0.30"), Decimal("0.40")], pa.decimal128(10, 2)),
            "smokes": pa.array([True, False, None, True]),
            "region": pa.array(["north", None, "south", "elsewhere"]),
            "born": pa.array([date(1970, 1, 3), None, date(1969, 12, 31), date(2000, 1, 1)]),
            "seen": pa.array(
                [datetime(1970, 1, 2, 12), None, datetime(1970, 1, 3), datetime(1970, 1, 1)], pa.timestamp("us")
            ),
        }
    )


def test_columns_are_what_arrow_makes_of_them(spark: Any) -> None:
    """Nulls are NaN, which preprocessing counts as its location."""
    options = {"categories": {"region": ["north", "south"]}, "dates": ["born", "seen"]}
    frames = spread(spark, table(), 3)
    here, there = dpgep.scan(table(), **options), dpgep.scan(frames, **options)
    selected = ["region", "a.b", "count`", "share", "smokes", "born", "seen"]
    assert there[selected].names == here[selected].names
    d = there[selected].n_columns
    assert d == 8
    preprocessing = dpgep.Preprocessing(3.0, np.zeros(d), np.full(d, 0.1), largest=float(d), missing=True)
    model = dpgep.models.PcaModel(d, center=True)
    ((rows,),) = here.read(here[selected])
    expected = dpgep.Moments(named(model, here[selected].names), preprocessing=preprocessing)
    expected.update(rows)
    assert bytes_of(moments(model, there, columns=selected, preprocessing=preprocessing)) == bytes_of(expected)


def test_names_that_mean_something_else_in_sql_are_those_of_columns(spark: Any, people: Any) -> None:
    """${spark.other} would be a variable, a+b a regular expression, `a` and `A` the same."""
    names = ["${spark.other}", "a", "A", "a+b", "aab", "* AS c"]
    selected = ["A", "${spark.other}", "* AS c", "a", "a+b"]
    table = pd.DataFrame(people[0], columns=names)
    frames = spread(spark, table)
    expected = dpgep.pca(table[selected], bound=1.0).integer_moments(20)
    settings = {"spark.other": "aab", "spark.sql.parser.quotedRegexColumnNames": "true"}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        found = dpgep.pca(dpgep.scan(frames)[selected], bound=1.0).integer_moments(20)
    finally:
        for name in settings:
            spark.conf.unset(name)
    np.testing.assert_array_equal(found.second, expected.second)


def test_a_filter_is_applied_by_the_executors(spark: Any, frame: pd.DataFrame) -> None:
    people = dpgep.scan(spread(spark, frame), filter="label == 'yes' and a > 0")
    with pytest.raises(ValueError, match="add-remove"):
        dpgep.pca(people[["b", "c"]], bound=1.0)
    problem = dpgep.pca(people[["b", "c"]], bound=1.0, adjacency="add-remove", public_n=500)
    kept = frame[(frame["label"] == "yes") & (frame["a"] > 0)][["b", "c"]]
    expected = dpgep.pca(kept, bound=1.0, adjacency="add-remove", public_n=500)
    np.testing.assert_array_equal(problem.integer_moments(20).second, expected.integer_moments(20).second)


# --- What is refused -------------------------------------------------------------------------------


def test_rows_that_are_not_finite_are_refused_and_no_task_fails(spark: Any, frame: pd.DataFrame) -> None:
    """Spark writes the text of a task's exception to its logs, and tries again."""
    frame.loc[777, "c"] = np.nan
    budget = dpgep.Budget(mu=1.0)
    spark.sparkContext.setJobGroup("refused", "rows that are not finite")
    with nothing_spent(budget), pytest.raises(NotFiniteError, match="column 'c' contains NaN"):
        dpgep.solve(dpgep.pca(spread(spark, frame[NAMES]), bound=1.0), budget=budget)
    tracker = spark.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup("refused")
    assert len(jobs) >= 2
    assert {tracker.getJobInfo(job).status for job in jobs} == {"SUCCEEDED"}


def test_rows_that_change_between_passes_are_noticed(spark: Any, frame: pd.DataFrame) -> None:
    def changed(batches: Any) -> Iterator[Any]:
        for batch in batches:
            first = pa.array(np.frombuffer(os.urandom(batch.num_rows), np.uint8).astype(float))
            yield pa.RecordBatch.from_arrays([first, *batch.columns[1:]], batch.schema.names)

    lazy = spread(spark, frame[NAMES])
    random = lazy.mapInArrow(changed, lazy.schema)
    with pytest.raises(dpgep.errors.DataChangedError, match=r"persist\(\)"):
        solve_seeded(dpgep.pca(random, bound=1.0), method="rayleigh-flow", mu=1.0, n_components=1)


def bad_input(spark: Any, frame: pd.DataFrame) -> dict[str, Any]:
    lazy, model = spread(spark, frame), dpgep.models.PcaModel(6, center=True)
    source = dpgep.scan(lazy)
    return {
        r"'label' \(string\) is not numeric": lambda: dpgep.pca(lazy, bound=1.0),
        "no column 'agge'": lambda: dpgep.scan(lazy)[["agge"]],
        "must come from one source": lambda: dpgep.fda(
            lazy.drop("label"), lazy.select("label"), classes=LABELS, bound=1.0
        ),
        "several columns are named 'a'": lambda: dpgep.pca(lazy.select("a", "a"), bound=1.0),
        "summed on its executors": lambda: next(source.read(source["a"])),
        "how many rows pass a filter": lambda: moments(
            model, dpgep.scan(lazy, filter="a > 0"), columns=NAMES, bound=1.0
        ),
        "rows must be a matrix": lambda: moments(
            dpgep.models.CcaModel((5, 1), center=True), spread(spark, frame[NAMES]), "f", bound=1.0
        ),
        "pca needs X": lambda: moments(model, lazy, "label", bound=1.0),
        "X must have 5 columns, it has 6": lambda: moments(
            dpgep.models.PcaModel(5, center=True), lazy, columns=NAMES, bound=1.0
        ),
        "pass classes=": lambda: dpgep.fda(source[NAMES], source["label"], bound=1.0),
    }


def test_bad_input_is_named(spark: Any, frame: pd.DataFrame) -> None:
    for message, call in bad_input(spark, frame).items():
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_an_error_of_the_plan_quotes_no_value(spark: Any, frame: pd.DataFrame) -> None:
    cast = spread(spark, frame.assign(note="of Alice")).selectExpr("a", "cast(note as double) as b")
    folded = spark.createDataFrame([(1.0, "of Alice")], ["a", "note"]).selectExpr("a", "cast(note as double) as b")
    budget = dpgep.Budget(mu=1.0)
    for rows in (cast, folded):  # by the executors; or by the driver, already for the types of the columns
        with nothing_spent(budget), pytest.raises(ValueError, match="message is suppressed") as caught:
            dpgep.solve(dpgep.pca(rows, bound=1.0), budget=budget)
        assert "Alice" not in str(caught.value)
        assert caught.value.__suppress_context__


def test_a_job_that_fails_later_leaves_paid_what_was_released(spark: Any, frame: pd.DataFrame, tmp_path: Path) -> None:
    marker = str(tmp_path / "read")

    def reads_once(batches: Any) -> Iterator[Any]:
        if Path(marker).exists():
            raise RuntimeError("the disk is gone")
        yield from batches
        Path(marker).touch()

    rows = spread(spark, frame[NAMES], 1)
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match="message is suppressed"):
        dpgep.solve(dpgep.pca(rows.mapInArrow(reads_once, rows.schema)), budget=budget)
    assert [release.query for release in budget.releases] == ["histogram of row norms"]
    assert 0.9 < budget.remaining_mu < 1


def test_the_declared_number_of_rows_is_checked(spark: Any, frame: pd.DataFrame) -> None:
    lazy = spread(spark, frame[NAMES])
    assert dpgep.pca(dpgep.scan(lazy, n_rows=1000), bound=1.0).facts.n == 1000
    with pytest.raises(ValueError, match="does not have n_rows = 999 rows"):
        solve_seeded(dpgep.pca(dpgep.scan(lazy, n_rows=999), bound=1.0), mu=1.0)


def test_a_method_that_needs_rows_says_so(spark: Any, frame: pd.DataFrame) -> None:
    rows = dpgep.scan(spread(spark, frame[NAMES]), n_rows=1000)
    problem = dpgep.pca(rows, center=False, bound=1.0)
    with pytest.raises(ValueError, match=r"are on the executors of Spark.*\.toPandas\(\)"):
        solve_seeded(problem, method="dp-spca", epsilon=1.0, delta=1e-5, n_components=1)


# --- Failures --------------------------------------------------------------------------------------


def test_a_task_that_dies_after_some_rows_is_repeated_and_counts_once(
    spark: Any, frame: pd.DataFrame, tmp_path: Path
) -> None:
    marker = str(tmp_path / "killed")

    def dies_once(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        for batch in batches:
            yield batch
            if TaskContext.get().partitionId() == 2 and not Path(marker).exists():  # type: ignore[union-attr]
                Path(marker).touch()
                os.kill(os.getpid(), signal.SIGKILL)

    rows = spread(spark, frame[NAMES])
    model = dpgep.models.PcaModel(6, center=True)
    ours = moments(model, rows.mapInArrow(dies_once, rows.schema), bound=1.0)
    assert Path(marker).exists()
    assert bytes_of(ours) == in_one_process(model, frame[NAMES])


@pytest.mark.entropy
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_neighbour_with_the_same_answers_looks_the_same(adjacency: Any, spark: Any, frame: pd.DataFrame) -> None:
    """As test_replay_ways.py has it of a stand-in for Spark."""
    others, person = frame.iloc[:40], frame.iloc[40:41]
    anybody = person.assign(a=1e300, b=2.0**-500, label="nobody lists it")

    def mechanism(people: Any) -> Any:
        source = dpgep.scan(spread(spark, people))
        return dpgep.fda(source[NAMES], source["label"], classes=LABELS, adjacency=adjacency)

    first = others if adjacency == "add-remove" else pd.concat([others, person])
    result = dpgep.auditing.replay(mechanism, (first, pd.concat([others, anybody])), mu=1.0, n_components=1)
    assert not result.flagged, result
    assert result.error is None
    assert len(result.parts) > 1  # stages that buy the bound, and the answer


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_people_with_rows_in_several_partitions(is_text: bool, spark: Any, frame: pd.DataFrame) -> None:
    """Spark brings the rows of each person together, in any order: the bits of rows in memory, for all passes."""
    ids = pd.Series(np.random.default_rng(0).integers(0, 200, len(frame)), name="key")
    table = frame.assign(key="p" + ids.astype(str) if is_text else ids)
    lazy = spread(spark, table, 7)
    given: dict[str, Any] = {"classes": LABELS, "adjacency": "add-remove"}
    source = dpgep.scan(lazy)
    ours = solve_seeded(dpgep.fda(source[NAMES], source["label"], person="key", **given), mu=1.0)
    theirs = solve_seeded(dpgep.fda(frame[NAMES], frame["label"], person=table["key"], **given), mu=1.0)
    assert ours.components.tobytes() == theirs.components.tobytes()
    model = dpgep.models.PcaModel(6, center=True)
    found, expected = (dpgep.Moments(model, bound=1.0, person="key") for _ in range(2))
    found.update(lazy.drop("label"))
    expected.update(table[[*NAMES, "key"]])
    assert bytes_of(found) == bytes_of(expected)
    with pytest.raises(ValueError, match="rows in both parts"):
        expected.merge(found)
