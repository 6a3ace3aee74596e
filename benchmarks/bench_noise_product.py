"""A product with symmetric noise in O(dK) draws, against drawing the d x d matrix and multiplying."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import support
from scipy.linalg.blas import dspmv

from dpgep import reference
from dpgep._dispatch import core

TARGET_SPEEDUP = 1000
D = 400 if support.QUICK else 4000
ROUNDS = 3 if support.QUICK else 15
# Ours takes microseconds: timed in batches.
BATCH = 100

SCALE = 0.3
KEY = bytes(range(32))


def draw_goe(rng: np.random.Generator, d: int) -> support.Matrix:
    z = rng.standard_normal((d, d))
    z = z + z.T
    z *= SCALE / 2
    return z


def draw_iid(rng: np.random.Generator, d: int) -> support.Matrix:
    z = np.triu(rng.standard_normal((d, d)))
    z += np.triu(z, 1).T
    z *= SCALE
    return z


DRAW: dict[str, Callable[[np.random.Generator, int], support.Matrix]] = {"goe": draw_goe, "iid": draw_iid}


def orthonormal(rng: np.random.Generator, d: int, k: int) -> support.Matrix:
    return np.ascontiguousarray(np.linalg.qr(rng.standard_normal((d, k)))[0])


def deviates(count: int) -> support.Matrix:
    out = np.empty(count)
    core.NoiseStream(KEY).normal(out)
    return out


def covariance_error(draw: Callable[[], support.Matrix], expected: support.Matrix, samples: int) -> float:
    """Largest deviation of the sample covariance from ``expected``, in standard errors of its entries."""
    products = np.array([draw() for _ in range(samples)])
    variances = np.diagonal(expected)
    errors = np.sqrt((np.outer(variances, variances) + expected**2) / samples)
    return float(np.abs((products.T @ products / samples - expected) / errors).max())


def vector_covariance(v: support.Matrix, shape: str) -> support.Matrix:
    if shape == "goe":
        return np.asarray(SCALE**2 / 2 * (np.eye(len(v)) + np.outer(v, v)))
    return np.asarray(SCALE**2 * (np.eye(len(v)) + np.outer(v, v) - np.diag(v**2)))


@pytest.mark.parametrize("shape", ["goe", "iid"])
def test_vector(benchmark: Any, shape: str) -> None:
    rng = np.random.default_rng(1)
    # correctness, at full size: the formula on the same deviates; and in distribution, ours and the drawn matrix alike
    v = orthonormal(rng, D, 1)[:, 0].copy()
    product = core.noise_times_vector(v, SCALE, shape, core.NoiseStream(KEY))
    formula = reference.noise_times_vector(v, SCALE, shape, deviates(D + 1))
    np.testing.assert_allclose(product, formula, rtol=1e-12, atol=1e-14)
    small, stream = orthonormal(rng, 8, 1)[:, 0].copy(), core.NoiseStream(KEY)
    expected = vector_covariance(small, shape)
    assert covariance_error(lambda: core.noise_times_vector(small, SCALE, shape, stream), expected, 20000) < 5
    assert covariance_error(lambda: DRAW[shape](rng, 8) @ small, expected, 20000) < 5

    fresh = core.NoiseStream()

    def ours() -> None:
        for _ in range(BATCH):
            core.noise_times_vector(v, SCALE, shape, fresh)

    def packed() -> None:
        # half the draws and no mirrored copy: better than anyone writes it. Only for the i.i.d. shape.
        dspmv(D, SCALE, rng.standard_normal(D * (D + 1) // 2), v)

    times = support.alternate(benchmark, ours, lambda: DRAW[shape](rng, D) @ v, ROUNDS)
    support.say(
        f"noise x vector, {shape}, d = {D}: {1e6 * times.ours / BATCH:.3g} us, "
        f"drawn matrix in NumPy {1e3 * times.theirs:.3g} ms (medians of {ROUNDS}, alternating)"
    )
    if shape == "iid":
        seconds = min(_seconds(packed) for _ in range(3))
        support.say(
            f"    for information, packed triangle in NumPy and dspmv: {1e3 * seconds:.3g} ms, "
            f"{seconds * BATCH / times.ours:.3g} times as long as ours"
        )
    support.judge(
        f"times faster than the drawn matrix, K = 1, {shape}", BATCH / times.ratio, TARGET_SPEEDUP, at_least=True
    )


def test_block_of_ten(benchmark: Any) -> None:
    k = 10
    rng = np.random.default_rng(2)
    block = orthonormal(rng, D, k)
    product = core.noise_times_block(block, SCALE, core.NoiseStream(KEY))
    formula = reference.noise_times_block(block, SCALE, deviates(D * k + k * (k + 1) // 2))
    np.testing.assert_allclose(product, formula, rtol=1e-11, atol=1e-13)
    small, stream = orthonormal(rng, 6, 2), core.NoiseStream(KEY)
    # Cov(Z v, Z w) = scale^2/2 ((v.w) I + w v^T) for the columns v, w of an orthonormal block
    identity, half = np.eye(6), SCALE**2 / 2
    expected = half * np.block(
        [[np.eye(2)[i, j] * identity + np.outer(small[:, j], small[:, i]) for j in range(2)] for i in range(2)]
    )
    assert covariance_error(lambda: core.noise_times_block(small, SCALE, stream).T.ravel(), expected, 20000) < 5
    assert covariance_error(lambda: (draw_goe(rng, 6) @ small).T.ravel(), expected, 20000) < 5

    fresh = core.NoiseStream()

    def ours() -> None:
        for _ in range(BATCH // 10):
            core.noise_times_block(block, SCALE, fresh)

    times = support.alternate(benchmark, ours, lambda: draw_goe(rng, D) @ block, ROUNDS)
    support.say(
        f"noise x block, goe, d = {D}, K = {k}: {1e6 * times.ours / (BATCH // 10):.4g} us, "
        f"drawn matrix in NumPy {1e3 * times.theirs:.3g} ms: {BATCH // 10 / times.ratio:.3g} times faster (no target)"
    )


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
