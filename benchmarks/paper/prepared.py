"""Draw docs/pictures/prepared.svg: a bound bought from the budget against known ones, and eigenvalues un-clipped.

    python benchmarks/paper/prepared.py [--quick] [--output PATH]

20000 rows of 20 columns in a unit that nobody states; lengths are log-normal and independent of directions. PCA, three
components, epsilon = 1, delta = 1e-6. Left: error of the span of the components against the bound that clips rows; the
line is bound="auto", which has to pay for its bound. Right: sum of the three eigenvalues over that of the data, with
the bound of "auto", for lengths of several spreads: as clipped, and divided by what the released norms say was kept.
Everything is seeded; medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import support  # noqa: E402

import dpgep  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "prepared.svg"
N, D, K, UNIT = 20_000, 20, 3, 1234.5
SPREAD = 0.5
Matrix = NDArray[np.float64]


def table(spread: float) -> Matrix:
    """Directions from a decaying spectrum; logarithms of lengths are normal with the deviation ``spread``."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((N, D)) * 0.8 ** np.arange(D)
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    return np.asarray(UNIT * np.exp(spread * rng.standard_normal((N, 1))) * directions)


def run(x: Matrix, bound: Any, draws: int) -> tuple[float, float, float]:
    """Medians: squared sine to the components of the data; the eigenvalues' sum over theirs; the same as clipped."""
    values, vectors = np.linalg.eigh(x.T @ x / N)
    errors, sums, clipped = [], [], []
    for seed in range(draws):
        problem = dpgep.pca(x, center=False, bound=bound)
        solution = support.solve_seeded(problem, seed, epsilon=1.0, delta=1e-6, n_components=K)
        errors.append(support.squared_sine_distance(solution.components, vectors[:, : -K - 1 : -1].T))
        sums.append(float(np.sum(solution.eigenvalues) / values[-K:].sum()))
        clipped.append(sums[-1] * (1.0 if solution.preprocessing is None else solution.preprocessing.energy_kept))
    return statistics.median(errors), statistics.median(sums), statistics.median(clipped)


def draw(path: Path, multiples: Matrix, fixed: Matrix, auto: float, spreads: list[float], sums: Matrix) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "prepared", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    left.loglog(multiples, fixed[:, 0], "s-", color="#d55e00", label="bound known for nothing")
    left.axhline(auto, color="#0072b2", label='bound="auto"')
    left.set_xlabel("bound over the median norm")
    left.set_ylabel(f"squared sine, {K} components (median)")
    right.plot(spreads, sums[:, 1], "^:", color="#777777", label="as clipped")
    right.plot(spreads, sums[:, 0], "o-", color="#0072b2", label="divided by what was kept")
    right.axhline(1, color="black", lw=0.8)
    right.set_xlabel("spread of the logarithms of lengths")
    right.set_ylabel("eigenvalues over those of the data")
    right.set_ylim(0, 1.25)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="few bounds and draws; no picture unless --output is given"
    )
    parser.add_argument("--output", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    points, draws = (4, 45) if arguments.quick else (10, 45)  # medians of fewer vary by a fifth
    x = table(SPREAD)
    norms = np.linalg.norm(x, axis=1)
    multiples = np.geomspace(0.25, 16, points)
    bounds = multiples * np.median(norms)
    kept = np.array([np.mean(np.minimum(norms, bound) ** 2) / np.mean(norms**2) for bound in bounds])
    fixed = np.array([run(x, float(bound), draws) for bound in bounds])
    auto = run(x, "auto", draws)[0]
    print("| bound over median norm | squared sine | eigenvalues over true | E(R)/E |\n|---|---|---|---|")
    for multiple, (error, total, _), share in zip(multiples, fixed, kept, strict=True):
        print(f"| {multiple:.3g} | {error:.3g} | {total:.3f} | {share:.3f} |")
    print(f'| "auto" | {auto:.3g} | | |')
    near = multiples < 4  # where noise does not count: lengths are independent of directions, so the identity holds
    assert np.abs(fixed[near, 1] / kept[near] - 1).max() <= 0.02
    assert auto <= 1.7 * fixed[:, 0].min()
    spreads = [0.0, 0.25, 0.5] if arguments.quick else [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    sums = np.array([run(table(spread), "auto", draws)[1:] for spread in spreads])
    print("\n| spread of lengths | eigenvalues over true, as clipped | un-clipped |\n|---|---|---|")
    for spread, (unclipped, clipped) in zip(spreads, sums, strict=True):
        print(f"| {spread:g} | {clipped:.3f} | {unclipped:.3f} |")
    spread_out = np.array(spreads) > 0
    assert np.all(np.abs(sums[spread_out, 0] - 1) <= np.abs(sums[spread_out, 1] - 1) + 0.01)
    assert np.abs(sums[spread_out & (np.array(spreads) <= 0.5), 0] - 1).max() <= 0.06
    assert abs(sums[0, 0] - 1) <= 2**0.25 - 1  # all in one bin of the histogram, a quarter of an octave wide
    path = arguments.output or (None if arguments.quick else PICTURE)
    if path is not None:
        draw(path, multiples, fixed, auto, spreads, sums)
        print(f"\nwrote {path.name}")


if __name__ == "__main__":
    main()
