"""Sparse PCA with a million features: time, peak memory above the data, and how much of the support is found.

n = 1e5 sparse rows with 1e7 entries in 1e6 features, a planted component on 30 of them; epsilon = 1. Each fit runs in a
process of its own, which makes the data, resets its peak memory, fits once and reports. Beside ours: a truncated SVD
of the same rows without privacy.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import bench_memory
import numpy as np
import support
from scipy import sparse

N, D, PER_ROW = (2_000, 20_000, 60) if support.QUICK else (100_000, 1_000_000, 100)
PLANTED = 30
# Squared length of a row's planted part; rows have length 1.
ENERGY = 0.5 if support.QUICK else 0.2
EPSILON, DELTA = (20.0, 1e-6) if support.QUICK else (1.0, 1e-6)

Fit = Callable[[Any], support.Matrix]


def planted_rows(seed: int = 0) -> tuple[Any, Any]:
    """Rows of length about 1: +-1 times one sparse direction, and entries anywhere. And the direction's support.

    Background entries that fall on the same feature are summed.
    """
    rng = np.random.default_rng(seed)
    features = np.sort(rng.choice(D, PLANTED, replace=False)).astype(np.int32)
    direction = rng.uniform(1, 2, PLANTED) * rng.choice([-1.0, 1.0], PLANTED)
    direction *= np.sqrt(ENERGY) / np.linalg.norm(direction)
    background = rng.standard_normal((N, PER_ROW - PLANTED))
    background *= np.sqrt(1 - ENERGY) / np.linalg.norm(background, axis=1, keepdims=True)
    values, indices = np.empty((N, PER_ROW)), np.empty((N, PER_ROW), np.int32)
    values[:, :PLANTED], values[:, PLANTED:] = rng.choice([-1.0, 1.0], (N, 1)) * direction, background
    indices[:, :PLANTED], indices[:, PLANTED:] = features, rng.integers(0, D, background.shape, dtype=np.int32)
    indptr = np.arange(N + 1, dtype=np.int32) * PER_ROW
    rows = sparse.csr_array((values.ravel(), indices.ravel(), indptr), shape=(N, D))
    rows.sum_duplicates()
    return rows, features


def solved(rows: Any, bound: Any = 1.0, **options: Any) -> support.Matrix:
    import dpgep

    problem = dpgep.pca(rows, center=False, bound=bound)
    return dpgep.solve(problem, epsilon=EPSILON, delta=DELTA, n_components=1, method="release", **options).components


def screened(rows: Any, bound: Any = 1.0) -> support.Matrix:
    return solved(rows, bound, screen=10 * PLANTED, sparsity=PLANTED)


def by_products(rows: Any) -> support.Matrix:
    return solved(rows, storage="operator", sparsity=PLANTED)


def truncated_svd(rows: Any) -> support.Matrix:
    from sklearn.decomposition import TruncatedSVD

    return TruncatedSVD(1, algorithm="arpack", random_state=0).fit(rows).components_


FITS: dict[str, Fit] = {fit.__name__: fit for fit in (screened, by_products, truncated_svd)}


def child(name: str) -> None:
    import scipy.linalg  # noqa: F401
    import sklearn.decomposition  # noqa: F401

    import dpgep  # noqa: F401

    rows, features = planted_rows()
    peak = bench_memory.PeakMemory()
    start = time.perf_counter()
    component = FITS[name](rows)[0]
    seconds = time.perf_counter() - start
    used = np.argsort(-np.abs(component))[:PLANTED]
    recall = len(np.intersect1d(used, features)) / PLANTED
    n_used = int(np.count_nonzero(component))
    print(json.dumps({"seconds": seconds, "above": peak.above(), "recall": recall, "used": n_used}))


def measure(fit: Fit) -> dict[str, float]:
    done = subprocess.run([sys.executable, __file__, fit.__name__], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    measured: dict[str, float] = json.loads(done.stdout)
    support.say(
        f"sparse PCA, {N} x {D}, {fit.__name__}: {measured['seconds']:.1f} s, "
        f"{measured['above'] / 1e6:.0f} MB above X, {measured['recall']:.2f} of the support"
    )
    return measured


def judge(name: str, measured: dict[str, float], seconds: float, gigabytes: float) -> None:
    assert measured["used"] <= PLANTED
    support.judge(f"a million features, {name}: part of the support", measured["recall"], 0.9, at_least=True)
    support.judge(f"a million features, {name}: seconds", measured["seconds"], seconds)
    support.judge(f"a million features, {name}: GB above X", measured["above"] / 1e9, gigabytes)


def test_screen_then_release() -> None:
    theirs = measure(truncated_svd)
    ours = measure(screened)
    assert theirs["recall"] == 1.0
    support.say(f"a million features: private by a screen / truncated SVD = {ours['seconds'] / theirs['seconds']:.2f}")
    judge("by a screen", ours, 10.0, 1.5)


def test_products_of_all_features() -> None:
    judge("by products", measure(by_products), 60.0, 4.3)


if __name__ == "__main__":
    child(sys.argv[1])
