"""The kernels of the Rayleigh flow: noise in O(d) draws against drawn matrices; share of the memory bandwidth."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import reference
import support
from scipy.linalg.blas import dasum

from dpgep._dispatch import core

TARGET_DRAWN_MATRICES = 20
TARGET_NOISE = 1.15
TARGET_ROWS = 1.7
TARGET_BANDWIDTH = 0.70
TARGET_SYMMETRIC = 1.6

N_THREADS = 2
N_ITERATIONS = 15
STEP_SIZE = 0.1
SCALE = 1e-3
KEY = bytes(range(32))
D_PAIR = 400 if support.QUICK else 4000
D_SYMMETRIC = 600 if support.QUICK else 6000
ROWS_SHAPE = (6000, 100) if support.QUICK else (60_000, 784)
ROUNDS = 3 if support.QUICK else 15
ROUNDS_OF_DRAWN_MATRICES = 3
REST = 0.1
CALLS = 1 if support.QUICK else 10


def symmetric_pair(d: int) -> tuple[support.Matrix, support.Matrix]:
    """A = I/2 plus a spike and B = I, both with a symmetric perturbation of operator norm about 0.3."""
    rng = np.random.default_rng(d)
    spike = rng.standard_normal(d) / np.sqrt(d)
    a, b = (rng.standard_normal((d, d)) for _ in range(2))
    for matrix in (a, b):
        matrix += matrix.T.copy()
        matrix *= 0.1 / np.sqrt(d)
    a += np.outer(spike, spike)
    a[np.diag_indices(d)] += 0.5
    b[np.diag_indices(d)] += 1.0
    return a, b


def rows() -> tuple[support.Matrix, support.Matrix]:
    """Rows and a factor of 1 for each."""
    x = np.random.default_rng(4).standard_normal(ROWS_SHAPE)
    x *= np.linspace(2.0, 1.0, ROWS_SHAPE[1])
    return x, np.ones(len(x))


def start(d: int) -> support.Matrix:
    return np.random.default_rng(5).standard_normal((1, d))


def pair_oracle(matrices: Any, noise: str, key: bytes | None = None) -> Any:
    drawn = core.Noise(noise, [SCALE, SCALE], "iid", N_ITERATIONS, core.NoiseStream(key))
    return core.PairOracle.of_matrices(matrices, drawn)


def rows_oracle(second: Any, noise: str) -> Any:
    """Principal components of the rows, not centered."""
    factors, moment = np.empty((0, second.n_features)), core.PencilPart(np.empty(0), 1.0)
    drawn = core.Noise(noise, [SCALE], n_products=N_ITERATIONS, stream=core.NoiseStream())
    return core.PairOracle.of_rows(second, drawn, factors, moment)


def flow(oracle: Any, v0: support.Matrix) -> support.Matrix:
    return np.asarray(core.rayleigh_flow(oracle, v0, N_ITERATIONS, STEP_SIZE)[0])


def noisy(rng: np.random.Generator, matrix: support.Matrix, scale: float) -> support.Matrix:
    z = np.triu(rng.standard_normal(matrix.shape))
    z += np.triu(z, 1).T
    z *= scale
    z += matrix
    return z


def printed_flow(
    rng: np.random.Generator, a: support.Matrix, b: support.Matrix, v0: support.Matrix, scale: float
) -> support.Matrix:
    """Hu et al., Algorithm 1, as printed: two noise matrices an iteration."""
    v = v0[0] / np.linalg.norm(v0)
    for _ in range(N_ITERATIONS):
        av, bv = noisy(rng, a, scale) @ v, noisy(rng, b, scale) @ v
        rho = (v @ av) / (v @ bv)
        v = v + STEP_SIZE / rho * (av - rho * bv)
        v /= np.linalg.norm(v)
    return v[None, :]


def draw_from(stream: Any) -> Callable[[Any, int], Any]:
    def draw(scale: Any, n: int) -> Any:
        out = np.empty(n, dtype=np.int64)
        core.exact_normal(out, scale, stream)
        return out

    return draw


def plain_flow(a: support.Matrix, b: support.Matrix, v0: support.Matrix) -> support.Matrix:
    """The kernel's flow with the noise of KEY, in NumPy."""
    draw = draw_from(core.NoiseStream(KEY))

    def times(block: support.Matrix) -> tuple[support.Matrix, support.Matrix]:
        av = reference.fresh_product(lambda v: v @ a, block, SCALE, "iid", draw)
        return av, reference.fresh_product(lambda v: v @ b, block, SCALE, "iid", draw)

    return reference.rayleigh_flow(times, v0, N_ITERATIONS, STEP_SIZE).vectors


def test_flow_against_drawn_matrices(benchmark: Any) -> None:
    a, b = symmetric_pair(D_PAIR)
    v0, rng = start(D_PAIR), np.random.default_rng(6)
    matrices = core.SymmetricMatrices(a, b, N_THREADS)
    # correctness: ours on the same deviates as the plain loop, and both algorithms alike without noise
    np.testing.assert_allclose(
        flow(pair_oracle(matrices, "fresh", KEY), v0), plain_flow(a, b, v0), atol=1e-8
    )  # a last bit may cross a line of the grid
    exact = flow(pair_oracle(matrices, "none"), v0)
    np.testing.assert_allclose(exact, printed_flow(rng, a, b, v0, 0.0), atol=1e-12)

    times = support.alternate(
        benchmark,
        lambda: flow(pair_oracle(matrices, "fresh"), v0),
        lambda: printed_flow(rng, a, b, v0, SCALE),
        ROUNDS_OF_DRAWN_MATRICES,
        REST,
    )
    support.say(
        f"DP-Rayleigh Flow, A and B explicit, d = {D_PAIR}, {N_ITERATIONS} iterations, {N_THREADS} threads: "
        f"{times.ours:.3g} s, as printed in NumPy {times.theirs:.3g} s"
    )
    support.judge("times faster than the printed loop", 1 / times.ratio, TARGET_DRAWN_MATRICES, at_least=True)


@pytest.mark.parametrize("storage", ["matrices", "rows"])
def test_noise_on_against_noise_off(benchmark: Any, storage: str) -> None:
    if storage == "matrices":
        exact: Any = core.SymmetricMatrices(*symmetric_pair(D_PAIR), N_THREADS)
        make = pair_oracle
    else:
        x, factors = rows()
        exact = core.DenseRows([x], factors, 1.0 / len(x), N_THREADS)
        make = rows_oracle
    v0 = start(exact.n_features)
    # correctness: the noise is there, and small enough for the same direction
    with_noise, without = flow(make(exact, "fresh"), v0), flow(make(exact, "none"), v0)
    assert not np.array_equal(with_noise, without)
    assert support.squared_sine_distance(with_noise, without) < 0.1

    times = support.alternate(
        benchmark, lambda: flow(make(exact, "fresh"), v0), lambda: flow(make(exact, "none"), v0), ROUNDS
    )
    shape = f"d = {D_PAIR}" if storage == "matrices" else f"{ROWS_SHAPE[0]} x {ROWS_SHAPE[1]}"
    support.say(
        f"{N_ITERATIONS} iterations on {storage}, {shape}, {N_THREADS} threads: "
        f"fresh noise {1e3 * times.ours:.4g} ms, without {1e3 * times.theirs:.4g} ms"
    )
    support.judge(f"noise on over noise off, {storage}", times.ratio, TARGET_NOISE)


def test_second_moment_of_rows(benchmark: Any) -> None:
    x, factors = rows()
    kernel = core.DenseRows([x], factors, 1.0, N_THREADS)
    block = start(x.shape[1])
    v = block[0]
    expected = x.T @ (x @ v)
    np.testing.assert_allclose(kernel.times(block)[0], expected, atol=1e-12 * np.abs(expected).max())

    times = support.alternate(benchmark, lambda: kernel.times(block), lambda: x.T @ (x @ v), ROUNDS, REST, CALLS)
    support.say(
        f"X^T(X v), {x.shape[0]} x {x.shape[1]}, {N_THREADS} threads: "
        f"{1e3 * times.ours:.4g} ms, NumPy {1e3 * times.theirs:.4g} ms"
    )
    support.judge("times faster than X.T @ (X @ v)", 1 / times.ratio, TARGET_ROWS, at_least=True)


def sweeps(x: support.Matrix, pool: ThreadPoolExecutor) -> dict[str, Callable[[], float]]:
    """Ways to read every entry of ``x`` once."""
    flat = x.ravel()
    halves = np.array_split(flat, N_THREADS)
    return {
        "sum": lambda: float(flat.sum()),
        "sum in threads": lambda: sum(pool.map(np.add.reduce, halves)),
        "largest in threads": lambda: max(pool.map(np.maximum.reduce, halves)),
        "dasum": lambda: float(dasum(flat)),
        "dasum in threads": lambda: sum(pool.map(dasum, halves)),
        "dot": lambda: float(flat @ flat),
        "dot in threads": lambda: sum(pool.map(lambda half: half @ half, halves)),
    }


def test_bandwidth_of_the_second_moment(benchmark: Any) -> None:
    x, factors = rows()
    kernel = core.DenseRows([x], factors, 1.0, N_THREADS)
    block = start(x.shape[1])
    product = kernel.times(block)[0]
    with ThreadPoolExecutor(N_THREADS) as pool:
        candidates = sweeps(x, pool)
        # correctness: ours is the quadratic form, and each of the sweeps reads all of x
        assert block[0] @ product == pytest.approx(np.sum((x @ block[0]) ** 2), rel=1e-11)
        for pair in (("sum", "sum in threads"), ("dasum", "dasum in threads"), ("dot", "dot in threads")):
            assert candidates[pair[0]]() == pytest.approx(candidates[pair[1]](), rel=1e-9)
        assert candidates["largest in threads"]() == x.max()

        strongest = min(candidates, key=lambda name: median_seconds(candidates[name], 5))
        times = support.alternate(benchmark, lambda: kernel.times(block), candidates[strongest], ROUNDS, REST, CALLS)
    gigabytes = x.nbytes / 1e9
    support.say(
        f"X^T(X v) reads {gigabytes / times.ours:.3g} GB/s, the strongest sweep ({strongest}) "
        f"{gigabytes / times.theirs:.3g} GB/s"
    )
    support.judge("share of the bytes per second of a sweep", 1 / times.ratio, TARGET_BANDWIDTH, at_least=True)


def test_symmetric_product(benchmark: Any) -> None:
    a, _ = symmetric_pair(D_SYMMETRIC)
    kernel = core.SymmetricMatrices(a, None, N_THREADS)
    block = start(D_SYMMETRIC)
    v = block[0]
    expected = a @ v
    np.testing.assert_allclose(kernel.times(block)[0][0], expected, atol=1e-12 * np.abs(expected).max())

    times = support.alternate(benchmark, lambda: kernel.times(block), lambda: a @ v, ROUNDS, REST, CALLS)
    support.say(
        f"A v, A symmetric, d = {D_SYMMETRIC}, {N_THREADS} threads: "
        f"{1e3 * times.ours:.4g} ms, NumPy {1e3 * times.theirs:.4g} ms"
    )
    support.judge("times faster than A @ v", 1 / times.ratio, TARGET_SYMMETRIC, at_least=True)


def median_seconds(call: Callable[[], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
