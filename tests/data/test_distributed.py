"""People on the workers of a Dask cluster: the same bits as in one process, also when a worker dies."""

from __future__ import annotations

import math
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag
import dask.dataframe as dd
import distributed
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from conftest import Matrix, nothing_spent, solve_seeded
from elsewhere import moments
from numpy.typing import NDArray
from stored import bytes_of

import dpgep
from dpgep.data import distributed as distributed_module
from dpgep.data.dataset import InMemoryDataset
from dpgep.data.distributed import DaskDataset
from dpgep.data.float_sums import FloatSums, GroupSums, ProductSums
from dpgep.data.integer_moments import ExactMomentAccumulator
from dpgep.data.rows import Batch, NotFiniteError, Rows
from dpgep.models import FdaModel, PcaModel
from dpgep.models.model import PublicFacts
from dpgep.models.row_model import layout_of
from dpgep.sources import files
from dpgep.sources.scan import parquet_parts

NAMES = list("abcdef")


@pytest.fixture
def people(rng: np.random.Generator) -> tuple[Matrix, NDArray[np.intp]]:
    """1000 rows inside and beyond the bound, and their labels."""
    x = rng.standard_normal((1000, 6)) * rng.choice([0.1, 1.0], (1000, 1))
    return x, rng.integers(0, 3, 1000)


@pytest.fixture(autouse=True)
def _without_a_cluster() -> Iterator[None]:
    """Dask's threads, unless a test asks for workers."""
    with dask.config.set(scheduler="threads", num_workers=2):
        yield


def in_one_process(model: Any, *data: Any, **facts: Any) -> bytes:
    bound = {} if "preprocessing" in facts else {"bound": 1.0}
    whole = dpgep.Moments(model, **{**bound, **facts})
    whole.update(*data)
    return bytes_of(whole)


def models(x: Matrix, labels: NDArray[np.intp]) -> list[tuple[Any, tuple[Any, ...]]]:
    return [
        (PcaModel(6, center=True), (x,)),
        (dpgep.models.CcaModel((6, 2), center=True), (x, x[:, :2] * 0.5)),
        (FdaModel(6, (0, 1, 2)), (x, labels)),
        (dpgep.models.SirModel(6, (-0.5, 0.0, 0.5)), (x, x[:, 0])),
    ]


def spread(array: Any, rows: int) -> Any:
    """A Dask array whose columns are cut, too, where there are several."""
    return da.from_array(array, chunks=(rows, *(max(1, width // 2) for width in array.shape[1:])))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("rows", [1, 90, 1000])
def test_moments_of_arrays_are_those_of_one_process(index: int, rows: int, people: Any) -> None:
    model, data = models(*people)[index]
    data = tuple(each[:120] for each in data) if rows == 1 else data
    chunks = [spread(each, rows + 30 * i) for i, each in enumerate(data)]
    facts = {"bound": 1.5, "adjacency": "add-remove", "public_n": 900, "bits": 18}
    assert bytes_of(moments(model, *chunks, **facts)) == in_one_process(model, *data, **facts)


def test_moments_of_prepared_rows_are_those_of_one_process(people: Any) -> None:
    x, _ = people
    preprocessing = dpgep.Preprocessing(2.0, np.arange(6.0) / 10, np.full(6, 0.5), largest=6.0)
    model = PcaModel(6, center=True)
    ours = moments(model, spread(x, 90), preprocessing=preprocessing)
    assert bytes_of(ours) == in_one_process(model, x, preprocessing=preprocessing)
    assert ours.preprocessing == preprocessing


def test_what_is_in_memory_is_cut_as_the_array_beside_it(people: Any) -> None:
    x, labels = people
    model = FdaModel(6, (0, 1, 2))
    assert bytes_of(moments(model, spread(x, 90), labels, bound=1.0)) == in_one_process(model, x, labels)


def test_chunks_of_unknown_sizes(people: Any) -> None:
    x, labels = people
    frame = dd.from_pandas(pd.DataFrame(x), npartitions=7)
    model = FdaModel(6, (0, 1, 2))
    rows, marks = frame.to_dask_array(), dd.from_pandas(pd.Series(labels), npartitions=7).to_dask_array()
    assert math.isnan(rows.shape[0])
    assert bytes_of(moments(model, rows, marks, bound=1.0)) == in_one_process(model, x, labels)
    with pytest.raises(ValueError, match=r"an array in memory cannot be aligned"):
        moments(model, rows, labels, bound=1.0)
    with pytest.raises(ValueError, match=r"same partitions, got \[7, 2\]"):
        moments(model, rows, spread(labels, 500), bound=1.0)


def table(people: Any) -> pd.DataFrame:
    x, labels = people
    frame = pd.DataFrame(x, columns=NAMES)
    return frame.assign(label=np.array(["no", "yes", "perhaps"])[labels])


def test_data_frames_by_name_and_by_selection(people: Any) -> None:
    frame = table(people)
    model = FdaModel(6, ("no", "yes", "perhaps"))
    expected = in_one_process(model, frame[NAMES], frame["label"].to_numpy())
    lazy = dd.from_pandas(frame, npartitions=5)
    assert bytes_of(moments(model, lazy, "label", bound=1.0)) == expected
    assert bytes_of(moments(model, lazy, "label", columns=NAMES, bound=1.0)) == expected
    assert bytes_of(moments(model, lazy[NAMES], lazy["label"], bound=1.0)) == expected
    cca = dpgep.models.CcaModel((4, 2), center=False)
    assert bytes_of(moments(cca, lazy[NAMES], ["a", "f"], bound=1.0)) == in_one_process(
        cca, frame[list("bcde")], frame[["a", "f"]]
    )


@pytest.fixture
def on_disk(people: Any, tmp_path: Path) -> Path:
    return written(table(people), tmp_path / "people")


def written(frame: pd.DataFrame, folder: Path) -> Path:
    """A folder of five files."""
    folder.mkdir()
    for i in range(5):
        frame.iloc[200 * i : 200 * (i + 1)].to_parquet(folder / f"{i}.parquet", index=False)
    return folder


# Dask's, with pandas 3.1
reads_parquet = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")


@reads_parquet
@pytest.mark.parametrize("chosen", ["all", "some"])
def test_columns_of_one_parquet_frame_stay_together(chosen: str, people: Any, on_disk: Path) -> None:
    """Dask merges partitions where few columns are read: how many become of one depends on the selection."""
    lazy = dd.read_parquet(on_disk)
    lazy = lazy[lazy["a"] > 0] if chosen == "some" else lazy
    assert len(lazy[NAMES].to_delayed()) != len(lazy["label"].to_delayed())
    frame = table(people)
    frame = frame[frame["a"] > 0] if chosen == "some" else frame
    fda, cca = FdaModel(6, ("no", "yes", "perhaps")), dpgep.models.CcaModel((5, 1), center=True)
    rows, labels = frame[NAMES], frame["label"].to_numpy()
    assert bytes_of(moments(fda, lazy[NAMES], lazy["label"], bound=1.0)) == in_one_process(fda, rows, labels)
    assert bytes_of(moments(fda, lazy, "label", bound=1.0)) == in_one_process(fda, rows, labels)
    assert bytes_of(moments(cca, lazy[NAMES[:5]], lazy[["f"]], bound=1.0)) == in_one_process(
        cca, rows[NAMES[:5]], rows[["f"]]
    )
    problem = dpgep.fda(lazy[NAMES], lazy["label"], classes=["no", "yes", "perhaps"], bound=1.0)
    whole = dpgep.fda(rows, labels, classes=["no", "yes", "perhaps"], bound=1.0)
    np.testing.assert_array_equal(solve_seeded(problem, mu=1.0).components, solve_seeded(whole, mu=1.0).components)


@reads_parquet
def test_frames_of_different_files_are_put_together_by_partition(people: Any, tmp_path: Path, on_disk: Path) -> None:
    frame = table(people)
    folder = written(frame[["label", "f", "e", "d"]], tmp_path / "labels")
    fda = FdaModel(6, ("no", "yes", "perhaps"))
    rows, labels = dd.read_parquet(on_disk)[NAMES], dd.read_parquet(folder)["label"]
    assert bytes_of(moments(fda, rows, labels, bound=1.0)) == in_one_process(
        fda, frame[NAMES], frame["label"].to_numpy()
    )
    fewer = dd.from_pandas(frame["label"], npartitions=2)
    with pytest.raises(ValueError, match=r"same partitions, got \[5, 2\]"):
        moments(fda, dd.from_pandas(frame[NAMES], npartitions=5), fewer, bound=1.0)


def test_a_partition_with_its_columns_in_another_order_is_refused(people: Any) -> None:
    """Dask checks the names of its partitions only where it is asked to."""
    frame = pd.DataFrame(people[0], columns=NAMES)
    parts = [dask.delayed(lambda part: part)(part) for part in (frame[:500], frame[500:][NAMES[::-1]])]
    lazy = dd.from_delayed(parts, meta=frame[:0], verify_meta=False)
    with pytest.raises(ValueError, match="the columns of a partition are in another order: they must be 'a', 'b'"):
        moments(PcaModel(6, center=True), lazy, bound=1.0)


def test_a_partition_may_be_empty(people: Any) -> None:
    lazy = dd.from_pandas(table(people), npartitions=5)
    few = lazy[lazy["a"] > 1.0]
    expected = few.compute()
    assert 0 < len(expected) < 200
    model = FdaModel(6, ("no", "yes", "perhaps"))
    none = lazy[(lazy["a"] > 1.0) & (lazy["b"] > 100)]
    assert bytes_of(moments(model, few, "label", bound=1.0)) == in_one_process(
        model, expected[NAMES], expected["label"].to_numpy()
    )
    assert moments(model, none, "label", bound=1.0).n == 0


def test_parquet_by_file_and_by_row_group(people: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table(people)
    paths = [tmp_path / f"{i}.parquet" for i in range(4)]
    for i, path in enumerate(paths):  # the last file has no rows
        frame.iloc[400 * i : 400 * (i + 1)].to_parquet(path, row_group_size=50)
    model = FdaModel(6, ("no", "yes", "perhaps"))
    expected = in_one_process(model, frame[NAMES], frame["label"].to_numpy())
    by_workers = partial(moments, model, client="threads", bound=1.0)
    assert bytes_of(moments(model, paths, "label", bound=1.0)) == expected
    assert len(parquet_parts(paths)) == 4
    assert bytes_of(by_workers(paths, "label")) == expected
    monkeypatch.setattr(files, "_PART_BYTES", 6000)
    assert len(parquet_parts(paths)) > 8
    assert bytes_of(by_workers([str(path) for path in paths], "label", columns=NAMES)) == expected
    monkeypatch.setattr(files, "_MANY_FILES", 3)
    assert len(parquet_parts(paths)) == 4
    assert bytes_of(by_workers(paths, "label")) == expected


def test_workers_read_what_a_scan_of_parquet_declares(people: Any, tmp_path: Path) -> None:
    """Categories, a filter, partitions in the names of folders, and the number of rows."""
    frame = table(people)
    for i, day in enumerate(("mon", "tue")):
        (tmp_path / f"day={day}").mkdir()
        frame.iloc[600 * i : 600 * (i + 1)].to_parquet(tmp_path / f"day={day}" / "0.parquet", row_group_size=50)
    options = {"categories": {"day": ["mon", "tue"]}, "filter": "a > 0"}
    sums = [dpgep.Moments(PcaModel(8, center=True), bound=1.0, adjacency="add-remove") for _ in range(2)]
    for each, client in zip(sums, (None, "threads"), strict=True):
        each.update(dpgep.scan(tmp_path, **options)[[*NAMES, "day"]], client=client)
    assert sums[0].n == (frame["a"] > 0).sum()
    assert bytes_of(sums[0]) == bytes_of(sums[1])
    wrong = dpgep.Moments(PcaModel(6, center=True), bound=1.0)
    with pytest.raises(ValueError, match="n_rows = 7"):
        wrong.update(dpgep.scan(tmp_path, n_rows=7)[NAMES], client="threads")


def build(name: str, x: Any, labels: Any) -> Any:
    return {
        "pca": lambda: dpgep.pca(x, bound=1.0),
        "cca": lambda: dpgep.cca(x[:, :3], x[:, 3:], bound=1.0),
        "pls": lambda: dpgep.pls(x[:, :3], x[:, 3:], bound=1.0),
        "fda": lambda: dpgep.fda(x, labels, classes=[0, 1, 2], bound=1.0),
        "sir": lambda: dpgep.sir(x, x[:, 0], slices=4, y_range=(-1, 1), bound=1.0),
        "add-remove": lambda: dpgep.pca(x, adjacency="add-remove", bound=1.0),
    }[name]()


@pytest.mark.parametrize("name", ["pca", "cca", "pls", "fda", "sir", "add-remove"])
def test_a_release_from_arrays_is_that_of_one_process(name: str, people: Any) -> None:
    x, labels = people
    ours = solve_seeded(build(name, spread(x, 70), spread(labels, 70)), mu=1.0)
    whole = solve_seeded(build(name, x, labels), mu=1.0)
    np.testing.assert_array_equal(ours.components, whole.components)
    assert ours.privacy.releases == whole.privacy.releases


@pytest.mark.parametrize(
    ("name", "method", "options"),
    [
        ("pca", "rayleigh-flow", {"noise": "fresh", "n_iterations": 5}),
        ("fda", "rayleigh-flow", {"n_iterations": 20}),
        ("cca", "truncated-rayleigh-flow", {"init": "screen", "sparsity": 4, "n_iterations": 20}),
        ("sir", "dpsr", {}),
        ("add-remove", "sr-dp", {}),
    ],
)
def test_every_method_of_sums_runs_on_parts(name: str, method: str, options: Any, rng: np.random.Generator) -> None:
    """The noise is the same and products are to rounding, so that components agree; the same parts, the same bits."""
    x = rng.standard_normal((1500, 6)) * [3.0, 2.0, 1.0, 3.0, 2.0, 1.0] / 8
    x[:, 3] += x[:, 0]
    labels = np.argmax(x[:, :3], axis=1)
    chunks = spread(x, 200), spread(labels, 200)
    whole, *spread_out = (
        solve_seeded(build(name, *data), mu=1e4, n_components=1, method=method, **options)
        for data in ((x, labels), chunks, chunks)
    )
    assert abs(whole.components[0] @ spread_out[0].components[0]) > 1 - 1e-4
    np.testing.assert_array_equal(spread_out[0].components, spread_out[1].components)
    assert spread_out[0].passes >= (1 if method == "sr-dp" else 2)  # sums per group, and products


def test_chunks_may_be_sparse(people: Any) -> None:
    x = np.where(np.abs(people[0]) < 0.3, 0.0, people[0])
    chunks = da.from_array(x, chunks=(150, 6)).map_blocks(scipy.sparse.csr_matrix, dtype=float)
    model = PcaModel(6, center=True)
    assert bytes_of(moments(model, chunks, bound=1.0)) == in_one_process(model, x)


def accumulators(block: Matrix) -> dict[str, Callable[[], Any]]:
    layout = layout_of(PcaModel(6, center=True), PublicFacts("add-remove", 1.0, None))
    return {
        "float": lambda: FloatSums(layout),
        "integer": lambda: ExactMomentAccumulator(layout, 20),
        "products": lambda: ProductSums(block),
        "groups": lambda: GroupSums(layout, with_squares=True),
    }


def numbers(sums: Any) -> list[Any]:
    """What a method reads of the sums."""
    if isinstance(sums, ExactMomentAccumulator):
        return [np.triu(sums.limbs()[0])]
    if isinstance(sums, GroupSums):
        return [sums.squares, sums.counts, sums.sums]
    return [np.triu(sums.total)] if isinstance(sums, FloatSums) else [sums.sum.total]


@pytest.mark.parametrize("name", ["float", "integer", "products", "groups"])
def test_every_sum_over_people_is_that_of_one_process(name: str, people: Any, rng: np.random.Generator) -> None:
    """To rounding for floating point, whose bits the tree alone decides: twice the same."""
    x, _ = people
    make = accumulators(rng.standard_normal((2, 6)))[name]
    on_dask, whole = build("pca", spread(x, 30), None).dataset, InMemoryDataset(Batch(Rows((x,), 1.0)))
    assert isinstance(on_dask, DaskDataset)
    first, second, expected = (numbers(p.accumulate(make)) for p in (on_dask, on_dask, whole))
    for a, b, c in zip(first, second, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_allclose(a, c, rtol=1e-12, atol=1e-12)
    assert on_dask.people.passes == 2


def test_restricted_people_are_clipped_anew(people: Any) -> None:
    x, _ = people
    features = np.array([1, 4])
    few = build("pca", spread(x, 90), None).restricted(features, 0.5).integer_moments(20)
    whole = build("pca", x, None).restricted(features, 0.5).integer_moments(20)
    np.testing.assert_array_equal(np.triu(few.second), np.triu(whole.second))


def test_sums_are_pickled_by_their_value(people: Any) -> None:
    sums = ExactMomentAccumulator(layout_of(PcaModel(6, center=False), PublicFacts("replace-one", 1.0, 5)), 20)
    sums.add(Batch(Rows((people[0],), 1.0)))
    again = pickle.loads(pickle.dumps(sums))
    again.merge(sums)
    np.testing.assert_array_equal(again.limbs()[0], 2 * sums.limbs()[0])
    assert again.n == 2000


def test_a_result_is_used_again_unchanged(people: Any) -> None:
    """Merging must leave what it merges as it was: a worker may still need it."""
    x, _ = people
    make = accumulators(np.ones((1, 6)))["integer"]
    task = (lambda *arrays: iter([arrays]), lambda rows: Batch(Rows((rows,), 1.0)), make, b"k" * 16, None)
    parts = [distributed_module.summed(task, x[i : i + 100]) for i in range(0, 300, 100)]
    assert distributed_module.merged(*parts) == distributed_module.merged(*parts)


# --- What is refused -------------------------------------------------------------------------------


def test_nothing_is_spent_on_rows_that_are_not_finite(people: Any) -> None:
    x, _ = people
    x[777, 2] = np.nan
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(NotFiniteError, match="impute or drop"):
        dpgep.solve(dpgep.pca(spread(x, 100), bound=1.0), budget=budget)


def test_errors_of_rows_are_carried_by_results_and_not_by_logs() -> None:
    """What a task raises, Dask writes to its logs together with the rows."""
    rows = np.full((3, 6), np.inf)
    make = accumulators(rows[:1])["integer"]
    task = (lambda *arrays: iter([arrays]), lambda x: Batch(Rows((x,), 1.0)), make, None, None)
    error = distributed_module.summed(task, rows)
    assert isinstance(pickle.loads(pickle.dumps(error)), NotFiniteError)
    assert distributed_module.merged((3, b"never read", b""), error) is error


class UnpicklableError(Exception):
    """Holds what no process can send to another."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.open = lambda: message


class UnloadableError(Exception):
    """Can be pickled, but not made again."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


@pytest.mark.parametrize(
    ("error", "carried"),
    [
        (KeyError("secret7"), KeyError),
        (OverflowError("secret7"), OverflowError),
        (MemoryError("secret7"), MemoryError),
        (pa.ArrowInvalid("secret7"), pa.ArrowInvalid),
        (UnpicklableError("secret7"), RuntimeError),
        (UnloadableError("secret", "7"), RuntimeError),
    ],
)
@pytest.mark.parametrize("where", ["read", "to_batch", "make"])
def test_no_error_of_a_task_reaches_dask(error: Exception, carried: type[Exception], where: str) -> None:
    def fail(*arrays: Any) -> Any:
        raise error

    task = {
        "read": lambda *arrays: iter([arrays]),
        "to_batch": lambda x: Batch(Rows((x,), 1.0)),
        "make": accumulators(np.ones((1, 6)))["integer"],
        "key": None,
        "weights": None,
    }
    found = distributed_module.summed(tuple({**task, where: fail}.values()), np.ones((3, 6)))
    assert type(found) is carried
    assert type(pickle.loads(pickle.dumps(found))) is carried
    if carried is RuntimeError:
        assert type(error).__name__ in str(found)
        assert "secret" not in str(found)


def test_no_error_of_merging_reaches_dask() -> None:
    found = distributed_module.merged((3, pickle.dumps(1), b""), (3, pickle.dumps(2), b""))
    assert isinstance(found, AttributeError)
    assert isinstance(distributed_module.merged((3, b"no pickle", b""), (3, b"", b"")), pickle.UnpicklingError)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_task_can_be_stopped(error: type[BaseException]) -> None:
    def stop(*arrays: Any) -> Any:
        raise error

    with pytest.raises(error):
        distributed_module.summed((stop, stop, list, None, None), np.ones((3, 6)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda x, y: dpgep.pca(x.astype(complex), bound=1.0), TypeError, "X is complex"),
        (lambda x, y: dpgep.pca(x[:, 0], bound=1.0), ValueError, "two-dimensional"),
        (lambda x, y: dpgep.pca(x[:1], bound=1.0), ValueError, "at least 2 rows"),
        (lambda x, y: dpgep.cca(x, y[:500, None], bound=1.0), ValueError, "must have the same number of rows$"),
        (lambda x, y: dpgep.fda(x, y, bound=1.0), ValueError, "pass classes="),
        (
            lambda x, y: dpgep.pca(dask.bag.from_sequence([1, 2]), bound=1.0),
            TypeError,
            "Dask array or DataFrame, got Bag",
        ),
        (
            lambda x, y: moments(PcaModel(6, center=True), x.compute(), client="threads", bound=1.0),
            TypeError,
            "need no cluster",
        ),
        (lambda x, y: moments(PcaModel(6, center=True), x, y, bound=1.0), TypeError, "pca needs X for every person"),
        (lambda x, y: moments(PcaModel(5, center=True), x, bound=1.0), ValueError, "X must have 5 columns"),
        (
            lambda x, y: dpgep.Moments(PcaModel(6, center=True), bound=1.0).update(
                lambda: [np.eye(6)], client="threads"
            ),
            TypeError,
            "Dask collections and Parquet files",
        ),
    ],
)
def test_bad_input_is_named(make: Any, error: type[Exception], message: str, people: Any) -> None:
    x, labels = people
    with pytest.raises(error, match=message):
        make(spread(x, 200), spread(labels, 200))


def test_too_few_people_are_found_when_they_are_counted(people: Any) -> None:
    frame = dd.from_pandas(table(people), npartitions=2)
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match="at least 2 people, the data have 0"):
        dpgep.solve(dpgep.pca(frame[frame["a"] > 1e9][NAMES], bound=1.0), budget=budget)


def test_a_method_that_needs_rows_says_so(people: Any) -> None:
    problem = dpgep.pca(spread(people[0], 100), center=False, bound=1.0)
    with pytest.raises(ValueError, match=r"are on the workers of a Dask cluster.*\.compute\(\)"):
        solve_seeded(problem, method="dp-spca", epsilon=1.0, delta=1e-5, n_components=1)


# --- Real workers ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
    """Two worker processes of one thread each."""
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as connected,
    ):
        yield connected


def test_worker_processes_give_the_bits_of_one_process(client: distributed.Client, people: Any) -> None:
    x, labels = people
    for model, data in models(x, labels):
        chunks = [spread(each, 90) for each in data]
        assert bytes_of(moments(model, *chunks, client=client, bound=1.0)) == in_one_process(model, *data)
    with client.as_current():
        ours = solve_seeded(build("fda", spread(x, 70), spread(labels, 70)), mu=1.0)
    np.testing.assert_array_equal(ours.components, solve_seeded(build("fda", x, labels), mu=1.0).components)


def test_a_task_of_a_worker_uses_one_thread(client: distributed.Client) -> None:
    def threads() -> list[int]:
        import threadpoolctl

        from dpgep._threads import thread_count

        return [thread_count(), *(each["num_threads"] for each in threadpoolctl.threadpool_info())]

    assert set(client.submit(threads, pure=False).result()) == {1}


def test_vectors_that_arrive_unaligned_are_multiplied(people: Any, rng: np.random.Generator) -> None:
    batch = Batch(Rows((people[0],), 1.0))
    block = rng.standard_normal((2, 6))
    unaligned = np.frombuffer(b"x" + block.tobytes(), np.uint8)[1:].view(np.float64).reshape(2, 6)
    assert not unaligned.flags.aligned
    products = []
    for vectors in (block, unaligned, np.asfortranarray(block)):
        sums = ProductSums(vectors)
        sums.add(batch)
        products.append(sums.sum.total)
    np.testing.assert_array_equal(products[0], products[1])
    np.testing.assert_array_equal(products[0], products[2])


def shared_keys(people: Any, make: Any) -> int:
    """Keys of the graph that hold what tasks share."""
    assert isinstance(people, DaskDataset)
    graph = people._tree((people._read, people._to_batch, make, None, None)).__dask_graph__()
    return sum(key.startswith("tuple-") for key in graph if isinstance(key, str))


def test_vectors_are_a_key_that_workers_share_and_what_is_small_is_none(
    client: distributed.Client, people: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask would move parts to the worker where a shared key lies: it does with 94 MB of 16 parts, at the benchmark."""
    make = partial(ProductSums, rng.standard_normal((2, 6)))
    with client.as_current():
        rows = build("pca", spread(people[0], 90), None).dataset
        assert shared_keys(rows, make) == 0
        carried = rows.accumulate(make).sum.total
        monkeypatch.setattr(distributed_module, "_SENT_WITH_EACH", 2 * 6 * 8 - 1)
        assert shared_keys(rows, make) == 1
        np.testing.assert_array_equal(rows.accumulate(make).sum.total, carried)


def killed_once(block: Any, marker: str = "", block_info: Any = None) -> Any:
    """The block; the first worker that is asked for the tenth kills itself instead."""
    if block_info[0]["chunk-location"][0] == 10 and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def test_a_worker_that_is_killed_changes_no_bit(client: distributed.Client, people: Any, tmp_path: Path) -> None:
    x, _ = people
    marker = tmp_path / "killed"
    rows = da.from_array(x, chunks=(50, 6)).map_blocks(killed_once, marker=str(marker), dtype=x.dtype)
    model = PcaModel(6, center=True)
    before = set(client.scheduler_info()["workers"])
    ours = moments(model, rows, client=client, bound=1.0)
    assert marker.exists()
    assert set(client.scheduler_info()["workers"]) != before
    assert bytes_of(ours) == in_one_process(model, x)


def always_killed(block: Any, block_info: Any = None) -> Any:
    if block_info[0] is not None and block_info[0]["chunk-location"][0] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def allow_failures(n: int, dask_scheduler: distributed.Scheduler) -> int:
    before, dask_scheduler.allowed_failures = dask_scheduler.allowed_failures, n
    return before


def test_workers_that_keep_dying_are_an_error_that_says_what_to_do(client: distributed.Client, people: Any) -> None:
    x, _ = people
    rows = da.from_array(x, chunks=(500, 6)).map_blocks(always_killed, dtype=x.dtype)
    before = client.run_on_scheduler(allow_failures, 0)
    with pytest.raises(RuntimeError, match="use smaller partitions or give workers more memory"):
        moments(PcaModel(6, center=True), rows, client=client, bound=1.0)
    client.run_on_scheduler(allow_failures, before)


def test_an_error_of_the_collection_itself_quotes_no_value() -> None:
    words = pd.DataFrame({"a": ["1.0"] * 19 + ["a person's word"], "b": 1.0})
    frame = dd.from_pandas(words, npartitions=2)
    given = frame.assign(a=frame.a.astype(float))
    budget = dpgep.Budget(mu=1.0)
    sums = dpgep.Moments(PcaModel(2, True), bound=1.0)
    for run in (lambda: dpgep.solve(dpgep.pca(given, bound=1.0), budget=budget), lambda: sums.update(given)):
        with nothing_spent(budget), pytest.raises(dpgep.errors.DataError, match="message is suppressed") as caught:
            run()
        error: BaseException | None = caught.value
        while error is not None:
            assert "word" not in str(error)
            error = error.__cause__ or error.__context__
