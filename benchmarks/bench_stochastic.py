"""Stochastic ascent: an epoch on MNIST against NumPy, and DP-VRPCA against DP-SPCA at the same privacy and passes.

The competitor of the first is the plain reference, `tests/support/reference.py`, on the same rows and the same
deviates; a second one, tuned, shares nothing but the arithmetic: NumPy's own generator and sampling, BLAS for the
products.
"""

from __future__ import annotations

import itertools
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import reference
import support
from numpy.typing import NDArray
from scipy import sparse

import dpgep
from dpgep._dispatch import core
from dpgep._threads import thread_count

KEY = bytes(range(32))
RATE = 0.02
DEVIATION = 2.0
REPEATS = 1 if support.QUICK else 20
MNIST_ROWS = 6000 if support.QUICK else None
# For both: add/remove, where the methods' accounting is native.
EPSILONS = (2.0,) if support.QUICK else (0.5, 2.0, 4.0)
DELTA = 1e-6
N_COMPONENTS = 5
STATED, STATED_EPSILONS, STATED_SEEDS = (0.5, 3.0), (1.0, 30.0, 1000.0, np.inf), range(1 if support.QUICK else 4)
JUDGED = 2.0  # of EPSILONS: below, privacy noise dominates the sampling noise that variance reduction removes


def mnist_rows() -> NDArray[np.float32]:
    with support.data_set("mnist") as arrays:
        return support.unit_rows(arrays["x_train"][:MNIST_ROWS]).astype(np.float32)


def a9a_rows() -> Any:
    """Rows of ones: 14 attributes, each one of several values, so that no norm exceeds sqrt(14)."""
    with support.data_set("a9a") as arrays:
        indices, indptr = arrays["indices_train"].astype(np.int32), arrays["indptr_train"]
        return sparse.csr_matrix((np.ones(len(indices)), indices, indptr), shape=tuple(arrays["shape_train"]))


def tuned_epoch(
    rows: NDArray[np.float32], block: support.Matrix, gradient: support.Matrix, steps: support.Matrix
) -> support.Matrix:
    """As one would write it with NumPy at hand: the sample by a mask, BLAS, noise scaled to the operator norm."""
    rng = np.random.default_rng(0)
    anchor, q_n = block, RATE * len(rows)
    for step in steps:
        moved = block - anchor
        sample = rows[rng.random(len(rows), dtype=np.float32) < RATE]
        difference = (moved.astype(np.float32) @ sample.T) @ sample
        noise = DEVIATION * np.linalg.norm(moved, 2) * rng.standard_normal(moved.shape)
        q, r = np.linalg.qr((block + step * (gradient + (difference + noise) / q_n)).T)
        block = np.asarray((q * np.sign(np.diagonal(r))).T)
    return block


@pytest.mark.parametrize("n_vectors", [1, 5])
def test_an_epoch_on_mnist(benchmark: Any, n_vectors: int) -> None:
    rows = mnist_rows()
    n, d = rows.shape
    factors, steps = np.ones(n), np.geomspace(20.0, 2.0, round(1 / RATE))
    block = np.ascontiguousarray(np.linalg.qr(np.random.default_rng(1).standard_normal((d, n_vectors)))[0].T)
    gradient = reference.rows_product(rows, factors, 1 / n, block)

    def ours() -> support.Matrix:
        design = (float(n), RATE, 0.0, 0, DEVIATION, len(steps), True)
        products = core.SampledProducts.of_dense(rows, factors, *design, core.NoiseStream(KEY), thread_count())
        return products.ascend_reduced(block, block, gradient, steps)[0]

    def plain() -> support.Matrix:
        stream = core.NoiseStream(KEY)

        def draw(scale: int, size: int) -> Any:
            deviates = np.empty(size, dtype=np.int64)
            core.exact_normal(deviates, scale, stream)
            return deviates

        def product(moved: support.Matrix) -> support.Matrix:
            return reference.sampled_product(
                rows, factors, moved, n_people=n, rate=RATE, deviation=DEVIATION, read=stream.bytes, draw=draw
            )

        return reference.reduced_ascent(product, block, block, gradient, steps)[0]

    np.testing.assert_allclose(ours(), plain(), atol=1e-8)  # a last bit may cross a line of the grid
    compared = support.alternate(benchmark, ours, plain, rounds=3)
    tuned = _median_seconds(lambda: tuned_epoch(rows, block, gradient, steps))
    what = f"SVRG epoch, MNIST {n} x {d}, K = {n_vectors}, {compared.ours * 1e3:.0f} ms"
    support.say(f"{what}: tuned NumPy takes {tuned / compared.ours:.1f} times as long")
    support.judge(f"{what}, plain reference over ours", 1 / compared.ratio, 10, at_least=True)


def _median_seconds(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


@pytest.mark.parametrize(("name", "bound"), [("a9a", 14**0.5), ("mnist", 1.0)])
def test_variance_reduction_is_worth_its_price(name: str, bound: float) -> None:
    rows = a9a_rows() if name == "a9a" else sparse.csr_matrix(mnist_rows())
    n = rows.shape[0]
    _, vectors = np.linalg.eigh((rows.T @ rows).toarray().astype(np.float64) / n)
    exact = vectors[:, : -N_COMPONENTS - 1 : -1].T
    problem = dpgep.pca(rows, bound=bound, center=False, adjacency="add-remove", public_n=n)
    for epsilon in EPSILONS:
        errors = {}
        for method in ("dp-spca", "dp-vrpca", "release"):
            budget = {"epsilon": epsilon, "delta": DELTA, "n_components": N_COMPONENTS, "method": method}
            found = [support.solve_seeded(problem, seed, **budget) for seed in range(REPEATS)]
            errors[method] = statistics.median(
                support.squared_sine_distance(solution.components, exact) for solution in found
            )
        medians = ", ".join(f"{method} {error:.3g}" for method, error in errors.items())
        support.say(f"{name}, epsilon {epsilon:g}, K = {N_COMPONENTS}, 10 passes, medians of {REPEATS}: {medians}")
        if epsilon >= JUDGED:
            ratio = errors["dp-vrpca"] / errors["dp-spca"]
            support.judge(f"{name}, epsilon {epsilon:g}: error of dp-vrpca over dp-spca", ratio, 1.0)


def dota2_rows() -> NDArray[np.float32]:
    with support.data_set("dota2") as arrays:
        return support.unit_rows(arrays["X_train"][:, 4:]).astype(np.float32)


def test_stated_errors_are_true() -> None:
    """Between half and three times the true one, or the ascent says that it has not converged. Of single runs."""
    sets = {"dota2": dota2_rows(), "a9a": support.unit_rows(a9a_rows().toarray()), "mnist": mnist_rows()}
    held, astray = 0, []
    for (name, rows), n_components in itertools.product(sets.items(), (1, 3)):
        n = len(rows)
        _, vectors = np.linalg.eigh((rows.T @ rows).astype(np.float64) / n)
        exact = vectors[:, : -n_components - 1 : -1].T
        problem = dpgep.pca(rows, bound=1.0, center=False, adjacency="add-remove", public_n=n)
        for method, epsilon, seed in itertools.product(("dp-spca", "dp-vrpca"), STATED_EPSILONS, STATED_SEEDS):
            asked = {"n_components": n_components, "method": method, "seed": seed}
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                found = dpgep.solve(problem, epsilon=epsilon, delta=DELTA, **asked)
            warned = any("has not converged" in str(warning.message) for warning in caught)
            ratio = found.diagnostics.expected_subspace_error / support.squared_sine_distance(found.components, exact)
            if warned or STATED[0] <= ratio <= STATED[1]:
                held += 1
            else:
                astray.append(f"{name}, {method}, K = {n_components}, epsilon {epsilon:g}, seed {seed}: {ratio:.2g}")
    runs = held + len(astray)
    support.say(f"stated over true errors of {runs} runs that are neither near nor warned of: {'; '.join(astray)}")
    support.judge("stated errors near the true ones, or not converged: share of runs", held / runs, 0.95, at_least=True)
