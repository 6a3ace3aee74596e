"""Draw docs/pictures/scaling.svg: time of sparse PCA against the number of entries, and of features, factors of 100.

    python benchmarks/scaling_figure.py [--quick] [--output PATH]

Whole `solve`, by a screen and a release, and by products with lazy noise on all features; beside them a truncated SVD
without privacy. Rows have 100 entries each. Prints a table with the slopes in log-log scale; growth must be no worse
than linear: one of ours above 1.1 fails.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

import dpgep  # noqa: E402

PER_ROW, PLANTED, ENERGY = 100, 30, 0.5
MOST_SLOPE = 1.1
NAMES = {"screened": ("screen, then release", "#0072b2", "o-"), "by_products": ("products", "#d55e00", "s-")}
SVD = ("truncated SVD, not private", "#777777", "^--")


def planted_rows(n: int, d: int) -> Any:
    """Rows of length about 1 with a planted direction on 30 features, entries elsewhere anywhere."""
    rng = np.random.default_rng(0)
    columns = rng.integers(0, d, (n, PER_ROW), dtype=np.int32)
    values = rng.standard_normal((n, PER_ROW)) * np.sqrt((1 - ENERGY) / (PER_ROW - PLANTED))
    columns[:, :PLANTED] = rng.choice(d, PLANTED, replace=False)
    values[:, :PLANTED] = rng.choice([-1.0, 1.0], (n, 1)) * np.sqrt(ENERGY / PLANTED)
    rows = sparse.csr_array((values.ravel(), columns.ravel(), np.arange(n + 1, dtype=np.int32) * PER_ROW), shape=(n, d))
    rows.sum_duplicates()
    return rows


def screened(rows: Any) -> Any:
    return solved(rows, screen=300, sparsity=PLANTED)


def by_products(rows: Any) -> Any:
    return solved(rows, storage="operator", sparsity=PLANTED)


def truncated_svd(rows: Any) -> Any:
    from sklearn.decomposition import TruncatedSVD

    return TruncatedSVD(1, algorithm="arpack", random_state=0).fit(rows).components_


def solved(rows: Any, **options: Any) -> Any:
    """A budget that keeps the noise in proportion to the signal at every size: time is measured, not accuracy."""
    mu = 60 * np.sqrt(rows.shape[1]) / rows.shape[0]
    problem = dpgep.pca(rows, center=False, bound=1.0)
    return dpgep.solve(problem, mu=mu, n_components=1, **{"method": "release", **options}).components


def seconds(fit: Any, rows: Any, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        components = fit(rows)
        times.append(time.perf_counter() - start)
        assert np.count_nonzero(np.abs(components[0]) > 0.05) >= PLANTED // 2
    return statistics.median(times)


def slope(sizes: list[int], times: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def measured(sizes: list[tuple[int, int]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for n, d in sizes:
        rows = planted_rows(n, d)
        for fit in (screened, by_products, truncated_svd):
            times.setdefault(fit.__name__, []).append(seconds(fit, rows, rounds))
    return times


def report(what: str, sizes: list[int], times: dict[str, list[float]], *, judged: bool) -> None:
    print(f"\n{what:>12}" + "".join(f"{size:>12,}" for size in sizes) + "       slope")
    for name, found in times.items():
        print(f"{name:>12}" + "".join(f"{value:>11.3f}s" for value in found) + f"{slope(sizes, found):>12.2f}")
    for name in NAMES:
        assert not judged or slope(sizes, times[name]) <= MOST_SLOPE, f"{name}: slope above {MOST_SLOPE}"


def draw(path: Path, panels: list[tuple[str, list[int], dict[str, list[float]]]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "dpgep"
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, (what, sizes, times) in zip(axes, panels, strict=True):
        for name, (label, color, style) in {**NAMES, "truncated_svd": SVD}.items():
            axis.loglog(sizes, times[name], style, color=color, label=label)
        linear = [times["screened"][-1] * size / sizes[-1] for size in sizes]
        axis.loglog(sizes, linear, ":", color="#bbbbbb", label="linear growth")
        axis.set_xlabel(what)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("seconds, whole solve")
    axes[0].legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, slopes printed but not judged")
    parser.add_argument("--output", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
    shrink, rounds = (20, 1) if arguments.quick else (1, 3)
    d_fixed, n_fixed = 100_000 // shrink, 10_000 // shrink
    people = [size // shrink for size in (1_000, 3_000, 10_000, 30_000, 100_000)]
    features = [size // shrink for size in (10_000, 30_000, 100_000, 300_000, 1_000_000)]
    by_entries = measured([(n, d_fixed) for n in people], rounds)
    by_features = measured([(n_fixed, d) for d in features], rounds)
    entries = [PER_ROW * n for n in people]
    report("entries", entries, by_entries, judged=not arguments.quick)
    report("features", features, by_features, judged=not arguments.quick)
    if arguments.output:
        panels = [(f"entries, {d_fixed:,} features", entries, by_entries)]
        panels.append((f"features, {PER_ROW * n_fixed:,} entries", features, by_features))
        draw(arguments.output, panels)


if __name__ == "__main__":
    main()
