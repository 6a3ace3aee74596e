"""How often 90 % intervals of every question of a release hold the population's value, in draws of people and noise.

Three kinds of tables: normal columns; log-normal ones, whose long rows a bought bound clips; uniform ones and counts.
All have four numbers that share a factor, two categories that depend on it, and groups of people that spread
differently. The population is a million people, and its values are the answers of a release without noise. A line has
the share of entries that hold on average, that of the worst entry, and the share that holds or has a warning. The last
line counts cells, of a question and a kind of table, that hold as wanted, more often, and less often without a warning.

    python benchmarks/coverage_of_questions.py --draws 200 --epsilon 1 --n 20000
    python benchmarks/coverage_of_questions.py --table log-normal --known   # a bound that clips nothing
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpgep

Matrix = NDArray[np.float64]
Ends = tuple[Any, Any]

POPULATION, NUMBERS = 1_000_000, ["a", "b", "c", "d"]
WANTED = 0.85, 0.97
LOADINGS, OWN = np.array([0.9, 0.7, 0.5, 0.2]), np.array([0.5, 0.7, 0.8, 1.0])
TABLES: dict[str, Callable[[Matrix], Matrix]] = {
    "normal": lambda z: z,
    "log-normal": lambda z: np.exp(0.8 * z),
    "uniform and counts": lambda z: np.column_stack([np.arctan(z[:, :2]), np.floor(np.exp(0.7 * z[:, 2:] + 0.5))]),
}


def drawn(kind: str, n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, Matrix]:
    """People, and the group of each."""
    factor = rng.standard_normal(n)
    group = (rng.random(n) < 1 / (1 + np.exp(-factor))).astype(int)
    own = OWN * np.where(group[:, None] > 0, [1.0, 1.6, 0.6, 1.0], 1.0)
    numbers = TABLES[kind](np.outer(factor, LOADINGS) + own * rng.standard_normal((n, 4)))
    table = pd.DataFrame(numbers, columns=NUMBERS)
    place = np.digitize(factor + 1.5 * rng.standard_normal(n), [-1.0, 1.0])
    table["region"] = pd.Categorical.from_codes(place, ["n", "m", "s"])
    table["sex"] = pd.Categorical.from_codes(group, ["f", "m"])
    return table, group


def ends_of(matrix: Any) -> Ends:
    return matrix.low, matrix.high


def of_last(intervals: Matrix) -> Ends:
    return intervals[..., 0], intervals[..., 1]


def values_of(answer: Any) -> tuple[Matrix, Ends]:
    found = answer.intervals(0.9)
    return found.estimates, of_last(found.eigenvalues)


def signed(values: Matrix, truth: Matrix, low: Matrix, high: Matrix) -> tuple[Matrix, Matrix, Ends]:
    """Columns with the signs of the truth's."""
    signs = np.sign((values * truth).sum(axis=0))
    ends = signs * low, signs * high
    return signs * values, truth, (np.minimum(*ends), np.maximum(*ends))


def asked(release: dpgep.Release, groups: dpgep.Release, n: int) -> Iterator[tuple[str, Callable[[], tuple[Any, Any]]]]:
    """Names of questions, and their answers: values, and ends of intervals."""

    def described() -> Any:
        return release.describe(NUMBERS)

    def within() -> Any:
        return groups.of_group(1).describe()

    yield "means", lambda: (described().mean, (described().mean_low, described().mean_high))
    yield "deviations", lambda: (described().deviation, (described().deviation_low, described().deviation_high))
    yield "quartiles", lambda: (described().quartiles, (described().quartile_low, described().quartile_high))
    for name in ("covariance", "correlation"):
        found = getattr(release, name)
        yield name, lambda found=found: ((m := found(NUMBERS)).values, ends_of(m))
    yield "partial correlation", lambda: ((m := release.partial_correlation(NUMBERS)).values, ends_of(m))
    yield "counts of one", lambda: ((m := release.crosstab("region")).counts / n, (m.low / n, m.high / n))
    yield "counts of two", lambda: ((m := release.crosstab("region", "sex")).counts / n, (m.low / n, m.high / n))
    yield "means by", lambda: ((m := release.means_by("region", NUMBERS)).means, ends_of(m))
    yield (
        "differences",
        lambda: ((m := release.means_by("region", NUMBERS)).differences, (m.difference_low, m.difference_high)),
    )
    fits = {
        "regression": lambda: release.regression("a", ["b", "c", "d", "sex=m"]),
        "zeros and ones": lambda: release.regression("sex=m", ["a", "b"]),
        "instrumental": lambda: release.instrumental("a", ["b"], ["region"]),
    }
    for name, fit in fits.items():
        yield name, lambda fit=fit: ((m := fit()).coefficients, of_last(m.intervals()))
    spectra = {
        "pca": lambda: release.pca(NUMBERS, n_components=2),
        "standardized pca": lambda: release.pca(NUMBERS, standardize=True, n_components=2),
        "cca": lambda: release.cca(["a", "c"], ["b", "d"], n_components=1),
        "partial cca": lambda: release.cca(["a"], ["b"], given=["c"], n_components=1),
        "pls": lambda: release.pls(["a", "c"], ["b", "d"], n_components=1),
        "redundancy": lambda: release.redundancy(["a", "b"], ["c", "region"], n_components=1),
        "fda": lambda: groups.fda(n_components=1),
        "contrastive pca": lambda: groups.contrastive_pca(target=1, background=0, n_components=1),
        "patterns": lambda: groups.common_spatial_patterns(target=1, background=0),
        "save": lambda: groups.central_subspace(by="save", n_components=2),
        "directional": lambda: groups.central_subspace(by="directional regression", n_components=2),
        "fair pca": lambda: groups.fair_pca(by="sum", n_components=1),
    }
    explained = spectra["redundancy"]
    yield (
        "explained",
        lambda: ((m := explained()).explained, (m.explained_low, m.explained_high)),
    )
    for name, spectrum in spectra.items():
        yield name, lambda spectrum=spectrum: values_of(spectrum())
    for name, analysis in (("mca", lambda: release.mca()), ("famd", lambda: release.famd(["region", "sex", *NUMBERS]))):
        yield name, lambda analysis=analysis: ((m := analysis()).coordinates[:, :1], (m.low[:, :1], m.high[:, :1]))
    yield "factors", lambda: ((m := release.factors(NUMBERS, n_factors=1)).loadings, of_last(m.intervals()))
    yield "means in a group", lambda: (within().mean, (within().mean_low, within().mean_high))
    yield "deviations in a group", lambda: (within().deviation, (within().deviation_low, within().deviation_high))


def released(table: pd.DataFrame, group: Matrix, known: bool, **terms: Any) -> tuple[dpgep.Release, dpgep.Release]:
    """The whole table, and its numbers by group."""
    auto = dpgep.AutoPreprocessing(quartiles=0.1)
    bound: dict[str, Any] = {"bound": float(np.linalg.norm(table[NUMBERS], axis=1).max() + 2)} if known else {}
    whole = dpgep.release(table, **(bound or {"preprocessing": auto}), **terms)
    by_group = dpgep.release(table[NUMBERS], group, classes=[0, 1], by_group=True, **bound, **terms)
    return whole, by_group


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw: its seed")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--table", default="", help="how the name of a kind of tables begins")
    parser.add_argument("--only", default="", help="parts of the names of questions, with commas between them")
    parser.add_argument("--known", action="store_true", help="a known bound, the longest row of the table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = list[tuple[float, float]]()
    for kind in (name for name in TABLES if name.startswith(options.table)):
        population = drawn(kind, POPULATION, np.random.default_rng(9))
        exact = released(*population, False, epsilon=math.inf)
        parts = options.only.split(",")
        truths = {name: ask()[0] for name, ask in asked(*exact, POPULATION) if any(part in name for part in parts)}
        if "quartiles" in truths:  # a release knows cells
            truths["quartiles"] = population[0][NUMBERS].quantile([0.25, 0.5, 0.75]).to_numpy().T
        held, said = defaultdict[str, list[Matrix]](list), defaultdict[str, list[bool]](list)
        for draw in range(options.first, options.first + options.draws):
            people = drawn(kind, options.n, np.random.default_rng([draw, 1]))
            pair = released(*people, options.known, epsilon=options.epsilon, delta=1e-6, seed=draw)
            for name, ask in asked(*pair, options.n):
                if name not in truths:
                    continue
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    values, (low, high) = ask()
                truth = truths[name]
                if not np.isfinite(values).any() or np.shape(values) != np.shape(truth):
                    continue  # unknown, or noise shows people who are not listed
                if name in ("mca", "famd", "factors"):
                    values, truth, (low, high) = signed(values, truth, low, high)
                held[name].append(np.ravel((low <= truth) & (truth <= high)))
                said[name].append(any(w.category is dpgep.errors.AccuracyWarning for w in caught))
        for name, each in held.items():
            kept = np.array(each)
            entries, told = kept.mean(axis=0), (kept | np.array(said[name])[:, None]).mean()
            cells.append((float(kept.mean()), float(told)))
            print(
                f"{kind:18} {name:22} {kept.mean():.3f}  worst {entries.min():.3f}  or said {told:.3f}  "
                f"{len(each)} draws",
                flush=True,
            )
    (least, most), (held_in, told_in) = WANTED, np.array(cells).T
    within, above, below = (held_in >= least) & (held_in <= most), held_in > most, told_in < least
    wanted = f"{least:.0%} to {most:.0%}"
    print(f"{len(cells)} cells: {within.sum()} hold {wanted}, {above.sum()} more, {below.sum()} less without a warning")


if __name__ == "__main__":
    main()
