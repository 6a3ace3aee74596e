"""Time of a private PCA of wide rows, d = 4000, against scikit-learn's fastest solver, which is not private."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import Any

import numpy as np
import support
from sklearn.decomposition import PCA

import dpgep

TARGET_RATIO = 2.0
N, D = (6000, 2000) if support.QUICK else (20000, 4000)
N_COMPONENTS, EPSILON, DELTA = 10, 10.0 if support.QUICK else 1.0, 1e-6
SOLVERS = ("arpack",) if support.QUICK else ("full", "covariance_eigh", "arpack", "randomized")
ROUNDS = 1 if support.QUICK else 7


def wide_rows() -> support.Matrix:
    """Ten directions, the last with a quarter of the first's variance, and as much spread over all features."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.standard_normal((D, N_COMPONENTS)))[0].T
    x = (rng.standard_normal((N, N_COMPONENTS)) * np.linspace(0.3, 0.15, N_COMPONENTS)) @ directions
    x += rng.standard_normal((N, D)) * (0.3 / math.sqrt(D))
    x /= np.maximum(np.linalg.norm(x, axis=1), 1.0)[:, None]
    return x


def not_private(x: support.Matrix, solver: str) -> support.Matrix:
    return PCA(N_COMPONENTS, svd_solver=solver, random_state=0).fit(x).components_


def seconds(fit: Any) -> float:
    start = time.perf_counter()
    fit()
    return time.perf_counter() - start


def test_private_pca_of_wide_rows_against_scikit_learn(benchmark: Any) -> None:
    x = wide_rows()
    problem = dpgep.pca(x, bound=1.0)

    def private(epsilon: float = EPSILON, **options: Any) -> dpgep.Solution:
        return dpgep.solve(
            problem, epsilon=epsilon, delta=DELTA, n_components=N_COMPONENTS, method="release", **options
        )

    reference = not_private(x, "arpack")
    assert support.squared_sine_distance(private(math.inf, storage="operator").components, reference) <= 1e-9
    solution = private()
    assert solution.diagnostics.storage == "operator"
    assert solution.diagnostics.converged
    found = N_COMPONENTS - sum(solution.diagnostics.lost)
    assert found >= N_COMPONENTS - 2  # the last of them are near the edge of the noise
    distance = support.squared_sine_distance(solution.components, reference)
    assert distance <= 1.5 * solution.diagnostics.expected_subspace_error

    each = {solver: seconds(partial(not_private, x, solver)) for solver in SOLVERS}
    fastest = min(each, key=lambda solver: each[solver])
    times = support.alternate(benchmark, private, partial(not_private, x, fastest), ROUNDS)
    support.say(
        f"PCA of {N} x {D}, k = {N_COMPONENTS}, epsilon = {EPSILON:g}: private {times.ours:.3g} s "
        f"({solution.diagnostics.n_directions} directions), scikit-learn {fastest} {times.theirs:.3g} s (medians of "
        f"{ROUNDS}, alternating; once, "
        + ", ".join(f"{solver} {each[solver]:.3g} s" for solver in SOLVERS)
        + f"); squared sine distance to the non-private subspace {distance:.3g} of {N_COMPONENTS}, "
        f"{solution.diagnostics.expected_subspace_error:.3g} expected"
    )
    support.judge("time ratio, private PCA / scikit-learn's fastest, wide rows", times.ratio, TARGET_RATIO)
