"""Exact release: integer normal deviates against other samplers, and fixed-point accumulation against a plain dsyrk."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import gmpy2
import numpy as np
import pytest
import reference
import support
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg.blas import dsyrk
from threadpoolctl import threadpool_limits

import dpgep
from dpgep._dispatch import core

TARGET_MILLIONS_PER_SECOND = 8
TARGET_AGAINST_NUMPY = 10
TARGET_AGAINST_MPFR = 5
TARGET_AGAINST_OPENDP = 50
TARGET_ACCUMULATION = 1.25

ROUNDS = 3 if support.QUICK else 15
SCALE = 2**43
KEY = bytes(range(32))

BITS = 20


def is_normal(deviates: NDArray[Any], scale: float) -> bool:
    return bool(stats.kstest(deviates / scale, "norm").pvalue > 1e-6)


# --- deviates ---


def deviates_against(
    benchmark: Any, n: int, n_theirs: int, theirs: Callable[[], NDArray[Any]], their_scale: float
) -> float:
    """Seconds a deviate of theirs over seconds a deviate of ours; both on one core, both checked for their law."""
    out = np.empty(n, dtype=np.int64)
    stream = core.NoiseStream()
    core.exact_normal(out, SCALE, core.NoiseStream(KEY))
    assert is_normal(out, SCALE)
    words = np.frombuffer(reference.chacha20_stream(core.NoiseStream(KEY).bytes(32), 0, 1600), dtype="<u8")
    assert out[:20].tolist() == reference.exact_normal(words.tolist(), SCALE, 20)[0]
    their_sample = theirs()
    assert is_normal(their_sample, their_scale)
    assert len(their_sample) == n_theirs
    times = support.alternate(benchmark, lambda: core.exact_normal(out, SCALE, stream), theirs, ROUNDS)
    millions = n / times.ours / 1e6
    support.say(f"exact deviates, one core: {millions:.4g} million/s, theirs {n_theirs / times.theirs / 1e6:.4g}")
    support.judge("exact deviates, million/s, one core", millions, TARGET_MILLIONS_PER_SECOND, at_least=True)
    return (times.theirs / n_theirs) / (times.ours / n)


def test_deviates_against_numpy(benchmark: Any) -> None:
    n = 100_000 if support.QUICK else 2_000_000
    rng = np.random.default_rng(1)
    faster = deviates_against(benchmark, n, n, lambda: rng.standard_normal(n), 1.0)
    support.judge("exact deviates, seconds over NumPy's inexact normal", 1.0 / faster, TARGET_AGAINST_NUMPY)


def test_deviates_against_mpfr(benchmark: Any) -> None:
    n, n_theirs = 500_000, 20_000
    state = gmpy2.random_state(1)

    def theirs() -> NDArray[Any]:
        draw = gmpy2.mpfr_nrandom
        return np.array([draw(state) for _ in range(n_theirs)], dtype=np.float64)

    faster = deviates_against(benchmark, n, n_theirs, theirs, 1.0)
    support.judge("times faster than gmpy2.mpfr_nrandom", faster, TARGET_AGAINST_MPFR, at_least=True)


def test_deviates_against_opendp(benchmark: Any) -> None:
    dp = pytest.importorskip("opendp.prelude", reason="OpenDP is not installed (benchmarks/requirements-peers.txt)")
    dp.enable_features("contrib")
    scale = 1e6  # so that its law passes for continuous, as ours does
    n, n_theirs = 500_000, 2_000
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    discrete_gaussian = dp.m.make_gaussian(*space, scale=scale)
    zeros = [0] * n_theirs
    faster = deviates_against(benchmark, n, n_theirs, lambda: np.array(discrete_gaussian(zeros)), scale)
    support.judge("times faster than OpenDP's integer Gaussian", faster, TARGET_AGAINST_OPENDP, at_least=True)


# --- accumulation ---


def plain(rows: support.Matrix) -> support.Matrix:
    """The lower triangle of X' X, in the memory order of Fortran: the upper one in that of C."""
    return np.asarray(dsyrk(1.0, rows.T, lower=1)).T


def fixed_point(rows: support.Matrix) -> NDArray[np.int64]:
    """The integer second moment as `release` computes it, upper triangle."""
    return np.triu(dpgep.pca(rows, center=False, bound=1.0).integer_moments(BITS).second)


@pytest.mark.parametrize("cores", ["one", "all"])
@pytest.mark.parametrize("norms", ["inside", "around"])
def test_accumulation_against_dsyrk(benchmark: Any, monkeypatch: pytest.MonkeyPatch, norms: str, cores: str) -> None:
    n, d = (6000, 784) if support.QUICK else (60000, 784)
    rng = np.random.default_rng(2)
    rows = support.unit_rows(rng.standard_normal((n, d)))
    rows *= rng.uniform(0.5, 0.99 if norms == "inside" else 1.5, (n, 1))
    n_threads = 1 if cores == "one" else len(os.sched_getaffinity(0))
    monkeypatch.setenv("DPGEP_NUM_THREADS", str(n_threads))
    problem = dpgep.pca(rows, center=False, bound=1.0)
    total = fixed_point(rows)
    # correctness: exact integers on some columns, the bits for another order of rows, close to clipped floating point
    q = np.empty(rows.shape)
    assert core.fixed_point_rows(rows, 1.0, BITS, q, n_threads)
    integers = q[:, :3].astype(np.int64)
    np.testing.assert_array_equal(total[:3, :3], np.triu(integers.T @ integers))
    np.testing.assert_array_equal(total, fixed_point(rows[::-1]))
    clipped = plain(reference.clip_rows(rows, 1.0))
    np.testing.assert_allclose(np.triu(total / 4.0**BITS), np.triu(clipped), atol=n * 2.0**-BITS / np.sqrt(d))

    with threadpool_limits(n_threads, "blas"):
        times = support.alternate(benchmark, lambda: problem.integer_moments(BITS), lambda: plain(rows), ROUNDS)
    support.say(
        f"fixed-point accumulation, {n} x {d}, norms {norms} the bound, {n_threads} threads: "
        f"{1e3 * times.ours:.4g} ms, dsyrk {1e3 * times.theirs:.4g} ms (medians of {ROUNDS}, alternating)"
    )
    # On all cores the figure means something only while nothing else runs on them.
    what = f"fixed-point accumulation over dsyrk, {cores} core(s), norms {norms} the bound"
    support.judge(what, times.ratio, TARGET_ACCUMULATION)


def test_noise_on_a_moment_matrix(benchmark: Any) -> None:
    d = 784
    matrix = np.zeros((d, d), dtype=np.int64)
    stream = core.NoiseStream()
    start = time.perf_counter()
    benchmark.pedantic(lambda: core.add_exact_symmetric_noise(matrix, SCALE, SCALE, stream), rounds=ROUNDS)
    seconds = (time.perf_counter() - start) / ROUNDS
    upper = matrix[np.triu_indices(d)]
    assert is_normal(upper, SCALE * np.sqrt(ROUNDS))
    assert not np.tril(matrix, -1).any()
    support.say(f"exact noise on a {d} x {d} moment matrix, one core: {1e3 * seconds:.3g} ms (no target)")
