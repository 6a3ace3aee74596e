"""``method="auto"`` against a release: whose errors are less, and whether what they state is true.

    python benchmarks/auto_or_release.py            # all settings: some minutes
    python benchmarks/auto_or_release.py --every 8  # some of them

Pictures are MNIST's in 14 x 14 pixels (DPGEP_DATA); other rows are elliptical or mixtures, of known spectra. Errors are
squared sines of the span of K components to that of all rows, as they are cut to the bound; medians of five seeds, the
same for both methods.
"""

from __future__ import annotations

import argparse
import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpgep

Matrix = NDArray[np.float64]
SEEDS, DELTA, WORSE, BETTER = range(5), 1e-6, 1.3, 1 / 1.3
D = 200


def pictures(n: int) -> Matrix:
    """Pictures of unit length."""
    with np.load(Path(os.environ["DPGEP_DATA"]) / "mnist.npz") as arrays:
        x = arrays["x_train"][:n].astype(float)
    x = x.reshape(n, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(n, 196)
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True))


def normal(n: int, values: Matrix) -> Matrix:
    """Normal rows with these variances."""
    return np.random.default_rng(n).standard_normal((n, len(values))) * np.sqrt(values)


def mixture(n: int, values: Matrix) -> Matrix:
    """Rows of which a tenth has the first direction alone."""
    rows, few = normal(n, values), np.random.default_rng(1).random(n) < 0.1
    rows[:, 0] *= np.where(few, np.sqrt(10.0), 0.0)
    return rows


SPECTRA = {
    "one of 20": np.append(20.0, np.ones(D - 1)),
    "three of 10": np.append(np.full(3, 10.0) * [1.3, 1.0, 0.8], np.ones(D - 3)),
    "power": 1 / np.arange(1.0, D + 1),
    "flat": np.ones(D),
}


def settings() -> Iterator[tuple[str, Matrix, int, float]]:
    """Name, rows, number of components and epsilon."""
    if "DPGEP_DATA" in os.environ:
        for n, k, epsilon in itertools.product((2000, 10_000, 60_000), (1, 2, 5), (0.1, 0.3, 1.0, 3.0)):
            yield f"pictures {n}", pictures(n), k, epsilon
        yield "pictures 20000", pictures(20_000), 1, 0.1
    for (name, values), n, k, epsilon in itertools.product(
        SPECTRA.items(), (1000, 5000, 30_000), (1, 3), (0.3, 1.0, 3.0)
    ):
        if name != "flat" or k == 1:
            yield f"{name} {n}", normal(n, values), k, epsilon
    for n, epsilon in itertools.product((5000, 30_000), (0.3, 1.0, 3.0)):
        yield f"mixture {n}", mixture(n, SPECTRA["one of 20"]), 1, epsilon


def judged(rows: Matrix, k: int, epsilon: float, method: str) -> tuple[float, float, int, int]:
    """Median error, median ratio of the stated error, how often it was warned, and how often clipped products ran."""
    bound = float(np.median(np.linalg.norm(rows, axis=1)))
    cut = rows * np.minimum(1.0, bound / np.linalg.norm(rows, axis=1))[:, None]
    exact = np.linalg.svd(cut - cut.mean(axis=0), full_matrices=False)[2][:k]
    errors, ratios, warned, clipped = [], [], 0, 0
    for seed in SEEDS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found: Any = dpgep.solve(
                dpgep.pca(rows, bound=bound), epsilon=epsilon, delta=DELTA, n_components=k, method=method, seed=seed
            )
        basis = np.linalg.qr(found.components.T)[0]
        errors.append(k - float(np.sum((exact @ basis) ** 2)))
        ratios.append(found.diagnostics.expected_subspace_error / max(errors[-1], 1e-12))
        warned += any(issubclass(each.category, dpgep.errors.AccuracyWarning) for each in caught)
        clipped += found.method == "clipped-power"
    return median(errors), median(ratios), warned, clipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take one in this many settings")
    every = parser.parse_args().every
    worse, better, clipping, understated, n = [], 0, 0, 0, 0
    for name, rows, k, epsilon in itertools.islice(settings(), 0, None, every):
        release, _, _, _ = judged(rows, k, epsilon, "release")
        auto, stated, warned, clipped = judged(rows, k, epsilon, "auto")
        ratio, n = auto / release, n + 1
        better, clipping = better + (ratio < BETTER), clipping + (clipped > 0)
        understated += clipped > 0 and stated < 0.5 and not warned
        if ratio > WORSE:
            worse.append(warned)
        if clipped or ratio > WORSE:
            print(
                f"{name:18} K = {k}, epsilon {epsilon:<4g} release {release:8.3g}  auto {auto:8.3g}  ratio {ratio:6.3g}"
                f"  stated/true {stated:6.3g}, {warned} of {len(SEEDS)} warned, {clipped} by clipped products",
                flush=True,
            )
    unsaid = sum(not each for each in worse)
    print(
        f"{n} settings, clipped products in {clipping}: {WORSE} times worse in {len(worse)} (not warned in {unsaid}), "
        f"better in {better}; below half of the true error, not warned: {understated}"
    )


if __name__ == "__main__":
    main()
