"""Threads: as many as were asked for, never more, and the same bits for any number."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import textwrap
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from conftest import Matrix, solve_seeded
from stored import bytes_of

import dpgep
from dpgep import _threads
from dpgep._dispatch import core
from dpgep._threads import run, thread_count, use_threads
from dpgep.data import dataset, integer_moments, rows
from dpgep.data.dataset import People
from dpgep.data.rows import add_products

COUNTS = (1, 2, 3)


@pytest.fixture(autouse=True)
def _two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPGEP_NUM_THREADS", raising=False)
    monkeypatch.setattr(_threads, "_processors", lambda: 2)


@pytest.fixture
def wide_rows(rng: np.random.Generator) -> Matrix:
    """Enough of them for threads to start."""
    return np.asarray(rng.standard_normal((1200, 300)) / 12)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"sparsity": 20, "n_components": 2}, marks=pytest.mark.deep),
        {"method": "rayleigh-flow", "n_iterations": 5, "n_components": 2},
        {"method": "dpsr", "n_components": 2},
    ],
    ids=str,
)
def test_a_seeded_solution_has_the_same_bits_for_any_number(options: dict[str, Any], wide_rows: Matrix) -> None:
    labels = np.arange(len(wide_rows)) % 4
    problem = dpgep.fda(wide_rows, labels, classes=range(4), bound=1.0)
    solutions = [solve_seeded(problem, mu=1.0, n_threads=count, **options).components for count in COUNTS]
    for other in solutions[1:]:
        np.testing.assert_array_equal(solutions[0], other)


@pytest.mark.filterwarnings("ignore:.*rows exceed the bound")
def test_so_has_a_solution_without_noise(wide_rows: Matrix) -> None:
    first, second, third = (
        dpgep.solve(dpgep.pca(wide_rows, bound=1.0), epsilon=math.inf, n_components=3, n_threads=n) for n in COUNTS
    )
    np.testing.assert_array_equal(first.components, second.components)
    np.testing.assert_array_equal(first.components, third.components)


def test_so_has_one_for_any_number_in_the_environment(wide_rows: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    solutions = []
    for count in COUNTS:
        monkeypatch.setenv("DPGEP_NUM_THREADS", str(count))
        solutions.append(solve_seeded(dpgep.pca(wide_rows, bound=1.0), mu=1.0, n_components=3).components)
    for other in solutions[1:]:
        np.testing.assert_array_equal(solutions[0], other)


def test_moments_have_the_same_bytes_for_any_number(wide_rows: Matrix) -> None:
    stored = set()
    for count in COUNTS:
        sums = dpgep.Moments(dpgep.models.PcaModel(300, center=True), bound=1.0)
        sums.update(wide_rows, n_threads=count)
        stored.add(bytes_of(sums))
    assert len(stored) == 1


@pytest.mark.parametrize("count", [2, 3, 5])
def test_threads_with_sums_of_their_own_add_all_people_or_none(
    count: int, wide_rows: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = np.arange(len(wide_rows)) % 4
    model = dpgep.models.FdaModel(300, (0, 1, 2, 3))
    whole, shared = dpgep.Moments(model, bound=1.0), dpgep.Moments(model, bound=1.0)
    whole.update(wide_rows, labels, n_threads=1)
    monkeypatch.setattr(integer_moments, "_WORK_OF_A_SHARE", 1)
    monkeypatch.setattr(integer_moments, "_SHARES_BYTES", 1 << 40)
    shared.update(wide_rows, labels, n_threads=count)
    assert bytes_of(shared) == bytes_of(whole)
    spoiled = wide_rows.copy()
    spoiled[-1, 0] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        shared.update(spoiled, labels, n_threads=count)
    assert bytes_of(shared) == bytes_of(whole)


# --- Products of tiles -----------------------------------------------------------------------------


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("d", [1, 95, 257, 600])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_tiles_make_up_the_triangle(exact: bool, d: int, count: int, rng: np.random.Generator) -> None:
    block = rng.integers(-9, 9, (400, d + 3)).astype(float)[:, :d]  # rows with a gap behind them
    total = rng.integers(-9, 9, (d, d)).astype(float)
    expected = total + np.triu(block.T @ block)
    with use_threads(count), pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_WORK_FOR_THREADS", 0)
        add_products([(slice(400), block)], total, exact=exact)
    np.testing.assert_array_equal(np.triu(total), np.triu(expected))


def test_tiles_are_shared_by_as_many_threads_as_asked_for() -> None:
    for count in COUNTS:
        barrier, seen = threading.Barrier(count, timeout=10), set()

        def task(barrier: threading.Barrier = barrier, seen: set[int] = seen) -> None:
            barrier.wait()  # nobody passes before so many threads are here
            seen.add(threading.get_ident())

        run([task] * count, count)
        assert len(seen) == count


def test_an_error_of_a_tile_is_raised_after_all_threads_have_ended() -> None:
    def fail() -> None:
        raise OverflowError("a tile")

    before = threading.active_count()
    with pytest.raises(OverflowError, match="a tile"):
        run([fail, lambda: None, fail, lambda: None], 3)
    assert threading.active_count() == before


def test_without_a_way_to_limit_blas_it_keeps_its_own_threads(
    wide_rows: Matrix, monkeypatch: pytest.MonkeyPatch
) -> None:
    # else the kernel of narrow rows takes these where there is AVX-512, and has threads of its own
    monkeypatch.setattr(integer_moments.core, "narrow_dimension", 256)
    expected = dpgep.pca(wide_rows, bound=1.0).integer_moments(20).second
    counts = []

    def spy(tasks: Any, n_threads: int) -> None:
        if n_threads > 1:
            counts.append(n_threads)
        run(tasks, n_threads)

    monkeypatch.setattr(rows, "run", spy)
    monkeypatch.setattr(integer_moments, "_SHARES_BYTES", 0)
    np.testing.assert_array_equal(
        np.triu(dpgep.pca(wide_rows, bound=1.0).integer_moments(20).second), np.triu(expected)
    )
    assert set(counts) == {2}
    counts.clear()
    monkeypatch.setattr(_threads, "threadpoolctl", None)
    np.testing.assert_array_equal(
        np.triu(dpgep.pca(wide_rows, bound=1.0).integer_moments(20).second), np.triu(expected)
    )
    assert not counts


# --- How many --------------------------------------------------------------------------------------


def test_who_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert thread_count() == 2
    monkeypatch.setenv("DPGEP_NUM_THREADS", "6")
    assert thread_count() == 6
    with threadpoolctl.threadpool_limits(4):
        assert thread_count() == 4
        with use_threads(5):
            assert thread_count() == 5
    assert thread_count() == 6


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no processors to choose")
def test_threads_of_kernels_leave_the_processors_of_the_caller_as_they_are() -> None:
    allowed, counts = os.sched_getaffinity(0), np.zeros(121, dtype=np.int64)
    for one in allowed:  # also where there is no other to begin on
        for some in ({one}, allowed):
            os.sched_setaffinity(0, some)
            try:
                assert core.count_norms(np.ones((200_000, 4)), np.array([0.6, 0.7, 0.85]), -100, -20, counts, 3)
                assert os.sched_getaffinity(0) == some
            finally:
                os.sched_setaffinity(0, allowed)
    assert counts.sum() == 2 * len(allowed) * 200_000


def test_limits_of_threadpoolctl_nest_and_end() -> None:
    with threadpoolctl.threadpool_limits(1):
        assert thread_count() == 1
        with threadpoolctl.threadpool_limits(2):
            assert thread_count() == 2
        assert thread_count() == 1
        with threadpoolctl.threadpool_limits({"dpgep": 2}):
            assert thread_count() == 2
    assert thread_count() == 2
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        assert thread_count() == 2
    (ours,) = [each for each in threadpoolctl.threadpool_info() if each["user_api"] == "dpgep"]
    assert (ours["num_threads"], ours["version"]) == (2, dpgep.__version__)


def test_a_limit_that_has_ended_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with threadpoolctl.threadpool_limits(1):
        assert thread_count() == 1
    monkeypatch.setenv("DPGEP_NUM_THREADS", "3")
    assert thread_count() == 3


def in_a_process_of_its_own(steps: str) -> None:
    """Other packages of the tests bring a BLAS of their own, or leave threads behind."""
    prelude = """
        import threadpoolctl
        from dpgep import _threads
        from dpgep._threads import thread_count, use_threads

        _threads._processors = lambda: 2

        def blas_threads():
            return {library.num_threads for library in _threads._blas_libraries()}
    """
    script = textwrap.dedent(prelude) + textwrap.dedent(steps)
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_threads_of_blas_are_set_and_set_back() -> None:
    in_a_process_of_its_own("""
        with threadpoolctl.threadpool_limits(2, user_api="blas"):
            with use_threads(3):
                assert (thread_count(), blas_threads()) == (3, {1})
                with use_threads(2):
                    assert (thread_count(), blas_threads()) == (2, {1})
                assert (thread_count(), blas_threads()) == (3, {1})
                with use_threads(None):
                    assert thread_count() == 3
            assert (thread_count(), blas_threads()) == (2, {2})
    """)


def test_a_task_that_runs_beside_others_has_one_thread() -> None:
    in_a_process_of_its_own("""
        def look():
            seen.append((thread_count(), *blas_threads()))

        for n_threads, expected in (2, (1, 1)), (1, (2, 2)):
            seen = []
            with threadpoolctl.threadpool_limits(2, user_api="blas"):
                _threads.run([look] * 3, n_threads)
                assert (thread_count(), blas_threads()) == (2, {2})
            assert seen == [expected] * 3, seen
    """)


def test_lapack_has_one_thread_for_matrices_that_are_not_large() -> None:
    in_a_process_of_its_own("""
        import numpy as np
        import dpgep
        from dpgep import _threads
        from dpgep.methods import eigen

        found, eigh = [], eigen._eigh

        def spy(matrix, *driver):
            found.append((len(matrix), blas_threads()))
            return eigh(matrix, *driver)

        eigen._eigh = spy
        x = np.random.default_rng(0).standard_normal((300, 200)) / 30
        with threadpoolctl.threadpool_limits(2, user_api="blas"):
            for d, largest in ((30, 1000), (200, 1000), (200, 199)):
                _threads._ONE_THREAD = largest
                dpgep.solve(dpgep.pca(x[:, :d], bound=1.0), epsilon=np.inf, n_components=1)
                assert blas_threads() == {2}
        assert found == [(30, {1}), (200, {1}), (200, {2})], found
    """)


def test_blas_has_one_thread_while_the_map_of_rows_is_bought() -> None:
    in_a_process_of_its_own("""
        import numpy as np
        import dpgep

        found, eigh = [], np.linalg.eigh

        def spy(matrix):
            found.append((len(matrix), blas_threads()))
            return eigh(matrix)

        np.linalg.eigh = spy
        x = np.random.default_rng(0).standard_normal((3000, 60))
        with threadpoolctl.threadpool_limits(2, user_api="blas"):
            auto = dpgep.AutoPreprocessing(precondition="full")
            mixed = dpgep.fda(x, np.arange(3000) % 2, classes=range(2), preprocessing=auto)
            dpgep.solve(mixed, epsilon=np.inf, n_components=1)
            assert blas_threads() == {2}
        assert found and all(threads == {1} for _, threads in found), found
    """)


def test_answers_of_a_release_are_the_same_whatever_the_threads_of_blas() -> None:
    in_a_process_of_its_own("""
        import numpy as np
        import dpgep

        rows = np.random.default_rng(0).standard_normal((3000, 90))
        rows[:, 0] += rows[:, 1:4].sum(axis=1)
        release = dpgep.release(rows, bound=20.0, epsilon=10.0, delta=1e-6)
        found = []
        for n_threads in (1, 2):
            with threadpoolctl.threadpool_limits(n_threads, user_api="blas"):
                answer = release.regression(0)
                found.append((answer.coefficients, answer.standard_errors, release.partial_correlation().low))
                found[-1] += (release.pca(n_components=1).intervals().eigenvalues,)
                assert blas_threads() == {n_threads}
        assert all(np.array_equal(one, two) for one, two in zip(*found, strict=True))
    """)


def test_runs_at_the_same_time_set_blas_back_after_the_last() -> None:
    in_a_process_of_its_own("""
        with threadpoolctl.threadpool_limits(2, user_api="blas"):
            first, second = use_threads(2), _threads.blas_on_one_thread()
            first.__enter__()
            second.__enter__()
            first.__exit__(None, None, None)
            assert blas_threads() == {1}
            second.__exit__(None, None, None)
            assert blas_threads() == {2}
    """)


def test_blas_obeys_whichever_thread_asks() -> None:
    # threadpoolctl obeys the thread that was first to set a number, while it lives, and no other
    in_a_process_of_its_own("""
        import threading

        with threadpoolctl.threadpool_limits(2, user_api="blas"):
            def ask():
                with _threads.blas_on_one_thread():
                    seen.append(blas_threads())

            seen = []
            threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers[0].set_num_threads(2)
            other = threading.Thread(target=ask)
            other.start()
            other.join()
            assert (seen, blas_threads()) == ([{1}], {2})

            # entered by one thread, left last by another
            begun, ended = threading.Event(), threading.Event()

            def stay():
                with _threads.blas_on_one_thread():
                    begun.set()
                    ended.wait()

            other = threading.Thread(target=stay)
            with _threads.blas_on_one_thread():
                other.start()
                begun.wait()
            assert blas_threads() == {1}
            ended.set()
            other.join()
            assert blas_threads() == {2}
    """)


def test_other_threads_keep_their_number() -> None:
    seen = []
    with use_threads(1):
        other = threading.Thread(target=lambda: seen.append(thread_count()))
        other.start()
        other.join()
    assert seen == [2]


@pytest.mark.parametrize("n_threads", [0, -1, 1.5, True, "2"])
def test_a_bad_number_is_named_before_anything_is_read(n_threads: Any, wide_rows: Matrix) -> None:
    with pytest.raises(ValueError, match=f"n_threads must be a whole number of at least 1, got {n_threads!r}"):
        dpgep.solve(dpgep.pca(wide_rows, bound=1.0), mu=1.0, n_threads=n_threads)


@pytest.mark.parametrize("value", ["0", "two", "-1", ""])
def test_a_bad_environment_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPGEP_NUM_THREADS", value)
    with pytest.raises(ValueError, match=f"DPGEP_NUM_THREADS must be a positive whole number, got '{value}'"):
        thread_count()


OVERSUBSCRIPTION = """
    import time, warnings
    import numpy as np, dpgep, threadpoolctl
    import dpgep.data.rows as rows_module

    warnings.simplefilter("ignore")
    x = np.random.default_rng(0).standard_normal((4000, 1000)) / 32
    inside = set()

    def spy(rows, total, gram=rows_module.add_gram):
        inside.update(each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas")
        gram(rows, total)

    rows_module.add_gram = spy
    problem = dpgep.pca(x)
    time.sleep(0.2)  # threads of BLAS that wait for work after the import
    for count in (1, 2):
        wall, cpu = time.perf_counter(), time.process_time()
        dpgep.solve(problem, mu=1.0, n_components=3, n_threads=count, method="release")
        print(count, (time.process_time() - cpu) / (time.perf_counter() - wall), sorted(inside))
"""


def test_kernels_and_blas_together_use_no_more_than_asked_for() -> None:
    """Processor time over wall time: on a busy machine it is smaller, never larger, than the number of threads."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    code = textwrap.dedent(OVERSUBSCRIPTION)
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "OPENBLAS_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = output.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        count, busy, *inside = line.split()
        assert float(busy) < int(count) + 0.15
        assert inside == ["[1]"]


def test_people_have_one_name_where_threads_ask_for_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two, releases of the same people would pass for those of disjoint populations."""
    people, drawing, drawn, names = People(5), threading.Barrier(2), iter(["one", "other"]), []

    def draw(_n_bytes: int) -> str:
        name = next(drawn)
        with contextlib.suppress(threading.BrokenBarrierError):  # where one thread waits for the other
            drawing.wait(timeout=1)
        return name

    monkeypatch.setattr(dataset, "naming", SimpleNamespace(get=lambda: draw))
    threads = [threading.Thread(target=lambda: names.append(people.name)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(names) == 2
    assert len(set(names)) == 1
