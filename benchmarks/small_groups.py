"""Whom noise and clipping hurt: means by group of one release, by size: `python benchmarks/small_groups.py`.

20 000 people in seven groups of 40 to 10 000, epsilon = 1 and delta = 1e-6, nothing known of the columns: `score` is
normal; `cost` is log-normal with sigma = 1, and three times as high in the smallest group, so that clipping hits it
most. For each group, over draws of people and noise: the median distance of the released mean to the table's, beside
the standard error without privacy; its signed mean, the bias; the median half-width of the 90 % interval, whether the
group is shown at all, and how often the interval holds the table's mean. All in deviations of the column.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import pandas as pd

import dpgep

SIZES = {"a": 10_000, "b": 6000, "c": 2500, "d": 1000, "e": 360, "f": 100, "g": 40}
CLOSE = 0.8  # of the intervals at 90 % must hold the table's own value, in every group that is shown


def people(rng: np.random.Generator) -> pd.DataFrame:
    """The table of one draw."""
    group = np.repeat(list(SIZES), list(SIZES.values()))
    cost = 300 * rng.lognormal(0, 1, len(group)) * np.where(group == "g", 3.0, 1.0)
    region = pd.Categorical(group, categories=list(SIZES))
    return pd.DataFrame({"region": region, "score": rng.normal(50, 10, len(group)), "cost": cost})


def measured(draws: int, epsilon: float) -> pd.DataFrame:
    """A row for each draw, group and column."""
    rows = []
    for seed in range(draws):
        table = people(np.random.default_rng(seed))
        release = dpgep.release(table, epsilon=epsilon, delta=1e-6, seed=seed)
        found = release.means_by("region", ["score", "cost"])
        exact = table.groupby("region", observed=False)[["score", "cost"]].mean()
        for j, name in enumerate(found.names):
            deviation = table[name].std()
            for i, group in enumerate(found.groups):
                if group not in SIZES:
                    continue
                error = (found.means[i, j] - exact.loc[group, name]) / deviation
                half = (found.high[i, j] - found.low[i, j]) / 2 / deviation
                holds = found.low[i, j] <= exact.loc[group, name] <= found.high[i, j]
                rows.append((name, SIZES[group], error, half, np.isfinite(half), holds))
    return pd.DataFrame(rows, columns=["column", "people", "error", "half", "shown", "holds"])


def main() -> None:
    """Print a line for each column and group."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # seeded runs, small groups, long tails
    found = measured(options.draws, options.epsilon)
    print("| column | people | without privacy | error | bias | half-width | shown | holds |")
    print("|---|---|---|---|---|---|---|---|")
    for (name, size), part in found.groupby(["column", "people"], sort=False):
        shown = part[part.shown]
        width = f"{shown.half.median():.3f}" if len(shown) else "none"
        print(
            f"| {name} | {size} | {size**-0.5:.3f} | {part.error.abs().median():.3f} | {part.error.mean():+.3f} "
            f"| {width} | {part.shown.mean():.2f} | {part.holds.mean():.2f} |",
            flush=True,
        )
        assert not len(shown) or shown.holds.mean() >= CLOSE, f"{name}, {size} people: {shown.holds.mean():.2f}"


if __name__ == "__main__":
    main()
