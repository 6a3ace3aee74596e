"""Draw docs/pictures/three-scales.svg: what one release of second moment, sums and counts costs, and what it saves.

    python benchmarks/paper/three_scales.py [--quick] [--output PATH]

Left: mu s1 against s2/s1 for one group, the formula and the worst pairs of rows that a search finds; and for classes
with s3 = 2 s2^2/s1, two rows of different classes against two of the same. Right: operator norm of the error of three
matrices, from one release and from releases of their own, at the same mu. Everything is seeded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpgep.models.moments import MomentLayout, MomentNoise, goe
from dpgep.privacy.noise import calibrate_moments, moment_mu

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "pictures" / "three-scales.svg"
MEAN = MomentLayout(3, 1, sums=True, counts=False)
Matrix = NDArray[np.float64]


def squared_cost(x: Matrix, y: Matrix, ratio: float, *, same: bool) -> float:
    """mu^2 s1^2 of two rows, by its definition, with s2 = ratio s1 and counts of s3 = 2 ratio^2 s1."""
    second = float(np.sum((np.outer(x, x) - np.outer(y, y)) ** 2))
    if same:
        return second + float(np.sum((x - y) ** 2)) / ratio**2
    return second + float(x @ x + y @ y) / ratio**2 + 2 / (2 * ratio**2) ** 2


def worst_found(ratio: float, *, same: bool, starts: int, rng: np.random.Generator) -> float:
    """The largest mu s1 over pairs of rows in the unit ball of three dimensions."""

    def change(free: Matrix) -> float:
        x, y = (row / max(1.0, float(np.linalg.norm(row))) for row in free.reshape(2, 3))
        return -squared_cost(x, y, ratio, same=same)

    found = (minimize(change, 2 * rng.standard_normal(6), method="Nelder-Mead").fun for _ in range(starts))
    return float(np.sqrt(-min(found)))


def costs(ratios: Matrix, starts: int) -> dict[str, Matrix]:
    """Formula and search; the search finds no more than the formula, and all of it."""
    rng = np.random.default_rng(0)
    found = {
        "formula": np.array([moment_mu(MomentNoise(1.0, ratio, 1.0), MEAN, "replace-one") for ratio in ratios]),
        "same": np.array([worst_found(ratio, same=True, starts=starts, rng=rng) for ratio in ratios]),
        "different": np.array([worst_found(ratio, same=False, starts=starts, rng=rng) for ratio in ratios]),
    }
    assert np.all(found["same"] <= found["formula"])
    assert np.all(found["same"] >= 0.999 * found["formula"])
    free = ratios**2 >= 0.5  # where s1^2 <= 2 s2^2: counts with s3 = 2 s2^2/s1 cost nothing
    assert np.all(found["different"][free] <= found["formula"][free] * (1 + 1e-12))
    assert np.all(found["different"][free] >= 0.999 * found["formula"][free])
    return found


def classes(n: int, d: int, rng: np.random.Generator) -> tuple[Matrix, Matrix, Matrix]:
    """Second moment, sums and counts of rows of norm about 1/2 in three classes with means of norm about 0.3."""
    groups = np.arange(n) % 3
    rows = 0.3 * np.linalg.qr(rng.standard_normal((d, 3)))[0].T[groups] + 0.4 * rng.standard_normal((n, d)) / d**0.5
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    marks = np.eye(3)[groups]
    return rows.T @ rows, rows.T @ marks, marks.sum(axis=0)


def scatters(second: Matrix, sums: Matrix, counts: Matrix) -> dict[str, Matrix]:
    """Sums over people, not divided by their number."""
    means = (sums / counts) @ sums.T
    mean = np.outer(sums.sum(axis=1), sums.sum(axis=1)) / counts.sum()
    return {"covariance": second - mean, "within": second - means, "between": means - mean}


def operator_norm(matrix: Matrix) -> float:
    return float(np.linalg.norm(matrix, 2))


def errors(n: int, d: int, draws: int) -> dict[str, tuple[float, float]]:
    """Mean operator norm of the error at mu = 1, each matrix with noise of its own, and all from one release.

    On their own, within and between share mu^2; the covariance gets all of it, on both sides.
    """
    rng = np.random.default_rng(1)
    second, sums, counts = classes(n, d, rng)
    exact = scatters(second, sums, counts)
    alone = {"covariance": 4.0, "within": 4 * np.sqrt(2) * np.sqrt(2), "between": 8 * np.sqrt(2)}
    of_classes = calibrate_moments(1.0, MomentLayout(d, 3, sums=True, counts=True), "replace-one")
    of_mean = calibrate_moments(1.0, MomentLayout(d, 1, sums=True, counts=False), "replace-one")
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in exact}
    for _ in range(draws):
        noisy_counts = counts + of_classes.counts * rng.standard_normal(3)
        noisy_sums = sums + of_classes.sums * rng.standard_normal(sums.shape)
        released = scatters(second + goe(d, of_classes.second, rng), noisy_sums, noisy_counts)
        total = sums.sum(axis=1) + of_mean.sums * rng.standard_normal(d)
        released["covariance"] = second + goe(d, of_mean.second, rng) - np.outer(total, total) / n
        for name, matrix in exact.items():
            own = operator_norm(goe(d, alone[name], rng))
            found[name].append((own, operator_norm(released[name] - matrix)))
    return {name: tuple(np.mean(values, axis=0)) for name, values in found.items()}  # type: ignore[misc]


def draw(path: Path, ratios: Matrix, cost: dict[str, Matrix], error: dict[str, tuple[float, float]]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "three-scales", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot(ratios, cost["formula"], color="#0072b2", label="formula")
    left.plot(ratios, cost["same"], "o", color="#d55e00", ms=5, mfc="none", label="search, same group")
    left.plot(ratios, cost["different"], "x", color="#009e73", ms=5, label="search, different groups")
    left.axvline(0.5**0.5, color="#bbbbbb", ls=":")
    left.set_xlabel("$s_2/s_1$")
    left.set_ylabel(r"$\mu\, s_1$")
    left.set_xscale("log", base=2)
    left.set_ylim(1, 8)
    left.legend(fontsize=8)
    places = np.arange(len(error))
    values: Any = np.array(list(error.values()))
    right.bar(places - 0.2, values[:, 0], 0.38, color="#999999", label="noise of its own")
    right.bar(places + 0.2, values[:, 1], 0.38, color="#0072b2", label="one release")
    right.set_xticks(places, list(error))
    right.set_ylabel(r"operator norm of the error, in $1/(n\mu)$")
    right.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few points; no picture unless --output is given")
    parser.add_argument("--output", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    points, starts, draws = (5, 4, 5) if arguments.quick else (17, 6, 50)
    ratios = np.geomspace(0.25, 4, points)
    cost = costs(ratios, starts)
    print("| s2/s1 | mu s1 | found, same group | found, different groups |\n|---|---|---|---|")
    for row in zip(ratios, cost["formula"], cost["same"], cost["different"], strict=True):
        print("| " + " | ".join(f"{value:.4g}" for value in row) + " |")
    error = errors(2000, 30, draws)
    print("\n| matrix | noise of its own | one release |\n|---|---|---|")
    for name, (own, one) in error.items():
        print(f"| {name} | {own:.3g} | {one:.3g} |")
        assert one < own / 2
    path = arguments.output or (None if arguments.quick else PICTURE)
    if path is not None:
        draw(path, ratios, cost, error)
        print(f"\nwrote {path.name}")


if __name__ == "__main__":
    main()
