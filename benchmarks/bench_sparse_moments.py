"""Sparse rows that are never filled in: moments against SciPy and BLAS, and how time grows with their size."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import support
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg.blas import dsyrk
from threadpoolctl import threadpool_limits

from dpgep._dispatch import core

TARGET_AGAINST_SCIPY = 0.5
TARGET_AGAINST_DSYRK = 0.5
TARGET_TWO_THREADS = 1.7
TARGET_SLOPE = 1.1

ROUNDS = 2 if support.QUICK else 5
DIMENSIONS = (1000, 2000) if support.QUICK else (2000, 5000)
CORES = len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class SparseRows:
    """Rows with ``per_row`` entries each, in canonical CSR, and factors for them."""

    data: NDArray[np.float64]
    indices: NDArray[np.int32]
    indptr: NDArray[np.int32]
    factors: NDArray[np.float64]
    d: int

    @classmethod
    def random(cls, n: int, d: int, per_row: int) -> SparseRows:
        rng = np.random.default_rng([n, d, per_row])
        gaps = np.sort(rng.integers(0, d - per_row + 1, (n, per_row), dtype=np.int32), axis=1)
        indices = gaps + np.arange(per_row, dtype=np.int32)
        indptr = np.arange(0, n * per_row + 1, per_row, dtype=np.int32)
        data = rng.standard_normal(n * per_row)
        return cls(data, indices.ravel(), indptr, rng.uniform(0.5, 1.0, n), d)

    @property
    def n(self) -> int:
        return len(self.factors)

    @property
    def nnz(self) -> int:
        return len(self.data)

    def csr(self, values: NDArray[Any]) -> Any:
        return sparse.csr_array((values, self.indices, self.indptr), shape=(self.n, self.d))

    def on_grid(self) -> NDArray[np.int32]:
        values = np.empty(self.nnz, dtype=np.int32)
        assert core.fixed_point_csr(self.data, self.indptr, 1.0, 20, values, CORES)
        return values


def moments(rows: SparseRows, values: NDArray[np.int32], total: NDArray[np.int64], n_threads: int) -> None:
    core.add_csr_moments(values, rows.indices, rows.indptr, rows.d, None, 0, total, n_threads)


def filled_in(rows: SparseRows, values: NDArray[np.int32]) -> NDArray[np.float64]:
    """The moment matrix by dsyrk on blocks of rows that are filled in, as `integer_moments` does it for dense rows."""
    d, height = rows.d, max(1, (1 << 23) // (8 * rows.d))
    table, total = rows.csr(values), np.zeros((d, d), order="F")
    for first in range(0, rows.n, height):
        block = table[first : first + height].toarray().astype(np.float64)
        total = dsyrk(1.0, block.T, beta=1.0, c=total, lower=1, overwrite_c=1)
    return np.asarray(total).T


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("cores", [1, CORES])
def test_moments_against_scipy_and_dsyrk(benchmark: Any, d: int, cores: int) -> None:
    rows = SparseRows.random(2000 if support.QUICK else 20_000, d, d // 100)
    values = rows.on_grid()
    total = np.zeros((d, d), dtype=np.int64)
    moments(rows, values, total, cores)
    table = rows.csr(values.astype(np.int64))
    np.testing.assert_array_equal(total, np.triu((table.T @ table).toarray()))
    np.testing.assert_array_equal(total, np.triu(filled_in(rows, values)))

    with threadpool_limits(cores, "blas"):
        start = time.perf_counter()
        filled_in(rows, values)
        dense = time.perf_counter() - start
        times = support.alternate(
            benchmark, lambda: moments(rows, values, total, cores), lambda: table.T @ table, ROUNDS
        )
    support.say(
        f"sparse moments, n = {rows.n}, d = {d}, 1 % filled, {cores} core(s): {1e3 * times.ours:.4g} ms, "
        f"SciPy {1e3 * times.theirs:.4g} ms, filled in and dsyrk {1e3 * dense:.4g} ms"
    )
    support.judge(f"sparse moments over SciPy's X.T @ X, d = {d}", times.ratio, TARGET_AGAINST_SCIPY)
    support.judge(f"sparse moments over dsyrk of filled rows, d = {d}", times.ours / dense, TARGET_AGAINST_DSYRK)


@pytest.mark.skipif(CORES < 2, reason="one core")
def test_moments_on_two_threads(benchmark: Any) -> None:
    d = DIMENSIONS[-1]
    rows = SparseRows.random(2000 if support.QUICK else 20_000, d, d // 25)
    values = rows.on_grid()
    one, two = np.zeros((2, d, d), dtype=np.int64)
    times = support.alternate(
        benchmark, lambda: moments(rows, values, two, 2), lambda: moments(rows, values, one, 1), ROUNDS
    )
    np.testing.assert_array_equal(one, two)
    support.judge("sparse moments, times faster on two threads", 1 / times.ratio, TARGET_TWO_THREADS, at_least=True)


# --- how time grows ---


def diagonal(rows: SparseRows) -> Callable[[], object]:
    out = np.empty(rows.d)

    def compute() -> None:
        core.csr_squares(rows.data, rows.indices, rows.indptr, rows.factors, out, CORES)

    compute()
    weighted = sparse.diags_array(rows.factors) @ rows.csr(rows.data)
    np.testing.assert_allclose(out, weighted.power(2).sum(axis=0), rtol=1e-10)
    return compute


def product(rows: SparseRows) -> Callable[[], object]:
    kernel = core.CsrRows(rows.data, rows.indices, rows.indptr, rows.d, rows.factors, 1.0, CORES)
    v = np.random.default_rng(1).standard_normal((1, rows.d))
    weighted = sparse.diags_array(rows.factors) @ rows.csr(rows.data)
    np.testing.assert_allclose(kernel.times(v)[0], weighted.T @ (weighted @ v[0]), rtol=1e-9, atol=1e-9)
    return lambda: kernel.times(v)


def seconds(call: Callable[[], object]) -> float:
    """The shortest of several calls, half a second of them at most."""
    call()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < 0.5 and len(times) < 50):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def slope(sizes: list[int], times: list[float]) -> float:
    """Of a line through log time over log size."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


GROWTH = {"diagonal": diagonal, "product": product}
SHRINK = 20 if support.QUICK else 1


@pytest.mark.parametrize("what", GROWTH)
def test_time_grows_no_faster_than_entries(benchmark: Any, what: str) -> None:
    d = 100_000 // SHRINK
    sizes = [SparseRows.random(n // SHRINK, d, 100) for n in (1000, 3162, 10_000, 31_623, 100_000)]
    report_growth(benchmark, what, f"entries, d = {d}", [rows.nnz for rows in sizes], sizes)


@pytest.mark.parametrize("what", GROWTH)
def test_time_grows_no_faster_than_features(benchmark: Any, what: str) -> None:
    n = 20_000 // SHRINK
    sizes = [SparseRows.random(n, d // SHRINK, 100) for d in (10_000, 31_623, 100_000, 316_228, 1_000_000)]
    report_growth(benchmark, what, f"features, {sizes[0].nnz} entries", [rows.d for rows in sizes], sizes)


def report_growth(benchmark: Any, what: str, over: str, sizes: list[int], problems: list[SparseRows]) -> None:
    times = [seconds(GROWTH[what](rows)) for rows in problems]
    benchmark.pedantic(GROWTH[what](problems[-1]), rounds=1)
    steepest = slope(sizes, times)
    support.say(f"{what}, {CORES} core(s), time over {over}:")
    for size, t in zip(sizes, times, strict=True):
        support.say(f"  {size:>10} {1e3 * t:10.3f} ms")
    assert math.isfinite(steepest)
    support.judge(f"{what}, slope of log time over log {over}", steepest, TARGET_SLOPE)
