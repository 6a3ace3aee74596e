"""All comparators, `release` and `clipped-power` at one budget on generated rows: medians of errors, as a table.

    python benchmarks/frontier/compare.py [parts of names]

Errors are sums of squared sines to the span without noise; DPGEP_SEEDS sets the number of seeds. nan: a method that
refuses this many columns. The last columns are what `lower_bounds` expects, to first order in the noise.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings

import lower_bounds
import numpy as np
from clipped_power_map import decaying, heavy, spiked

import dpgep

SEEDS = int(os.environ.get("DPGEP_SEEDS", "5"))
COMPARATORS = (
    "gaussian",
    "separate_covariance",
    "noisy_power",
    "eigenvector_sampling",
    "coinpress",
    "dp_pca",
    "k_dp_pca",
    "coherence",
    "subsample_aggregate",
    "wishart",
    "exponential",
)
OURS = ("release", "clipped-power")
EXPECTED = ("release, first order", "clipped-power, first order")
# (rows, n, d, their parameters, K, mu)
SETTINGS = {
    "spiked": (spiked, 4000, 100, [5.0], 1, 0.5),
    "spiked, K = 3": (spiked, 4000, 100, [8.0, 6.0, 4.0], 3, 0.5),
    "strong spike": (spiked, 4000, 100, [100.0], 1, 0.5),
    "decaying": (decaying, 4000, 100, [1.0], 1, 0.5),
    "Student's law": (heavy, 4000, 100, [5.0], 1, 0.5),
    "few columns": (spiked, 2000, 10, [2.0], 1, 0.5),
}


def main(only: list[str]) -> None:
    columns = (*COMPARATORS, *OURS, *EXPECTED)
    print("| rows | n | d | K | " + " | ".join(columns) + " |")
    print("|---" * (4 + len(columns)) + "|")
    for name, (make, n, d, parameters, k, mu) in SETTINGS.items():
        if only and not any(part in name for part in only):
            continue
        errors: dict[str, list[float]] = {column: [] for column in columns}
        for seed in range(SEEDS):
            rows = make(n, d, parameters, np.random.default_rng(seed))
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            bound = float(np.quantile(norms, 0.9))  # stands for a public number
            clipped = rows * np.minimum(1.0, bound / norms)
            values, vectors = np.linalg.eigh(clipped.T @ clipped)
            truth = vectors[:, -k:]
            errors[EXPECTED[0]].append(lower_bounds.release(values[::-1], k, mu, bound))
            errors[EXPECTED[1]].append(lower_bounds.clipped_power(values[::-1], k, n, mu, bound))
            for method in COMPARATORS:
                rng = np.random.default_rng([seed, 1])
                try:
                    found = importlib.import_module(method).components(rows, k, mu, rng, bound)
                except NotImplementedError:
                    errors[method].append(np.nan)
                else:
                    errors[method].append(k - float(np.sum((found @ truth) ** 2)))
            for method in OURS:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    problem = dpgep.pca(rows, center=False, bound=bound)
                    found = dpgep.solve(problem, mu=mu, n_components=k, method=method, seed=seed).components
                errors[method].append(k - float(np.sum((found @ truth) ** 2)))
        medians = [f"{np.median(values):.2g}" for values in errors.values()]
        print(f"| {name} | {n} | {d} | {k} | " + " | ".join(medians) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
