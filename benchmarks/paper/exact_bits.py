"""Draw docs/pictures/exact-bits.svg: what the order of rows does to sums, and what last bits of answers give away.

    python benchmarks/paper/exact_bits.py [--quick] [--output PATH]

Left: the same rows in other orders and batches: how far apart second moments in float64 are, in units of 2^-53 of their
largest entry; `dpgep.Moments`, merged, have the same bytes each time. Right: lower bounds on mu by an attack that sees
nothing but low-order bits (`dpgep.auditing.audit(low_bits=True)`), where mu = 0.237 is claimed: a second moment with
noise, both in float64; and the same row of it from the library. Everything is seeded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpgep

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import low_bit_cases  # noqa: E402
from stored import bytes_of  # noqa: E402

PICTURE = ROOT / "docs" / "pictures" / "exact-bits.svg"
MU = 0.237
D = 20
OURS = {"release": "release, pca, uncentred", "lazy products": "lazy products, pca, uncentred"}
FLOATS = "sums and noise in float64"
Matrix = NDArray[np.float64]


def merged(batches: list[Matrix]) -> bytes:
    """The bytes of moments that were summed apart, one for each batch, and merged."""
    total = dpgep.Moments(dpgep.models.PcaModel(D, center=False), bound=1.0)
    for batch in batches:
        part = dpgep.Moments(dpgep.models.PcaModel(D, center=False), bound=1.0)
        part.update(batch)
        total.merge(part)
    return bytes_of(total)


def spread(n: int, orders: int) -> float:
    """Largest difference of float64 second moments over orders and splits; those of `Moments` are found to agree."""
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((n, D)) / D**0.5
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]
    sums, exact = [], set()
    for _ in range(orders):
        batches = np.split(rng.permutation(rows), np.sort(rng.integers(0, n, rng.integers(1, 6))))
        sums.append(sum(batch.T @ batch for batch in batches))
        exact.add(merged(batches))
    assert len(exact) == 1, f"{len(exact)} different moments of the same {n} rows"
    return float(np.ptp(sums, axis=0).max() / (2.0**-53 * np.max(sums)))


def in_floats(rows: Matrix, rng: np.random.Generator) -> Matrix:
    """The first row of the second moment with normal noise for mu = MU, in float64."""
    return np.asarray((rows.T @ rows)[0] + 2**0.5 / MU * rng.standard_normal(rows.shape[1]))


def bounds(runs: int) -> dict[str, float]:
    """Lower bounds on mu."""
    rng = np.random.default_rng(2)
    attacked = low_bit_cases.LowBitCase(lambda rows: in_floats(rows, rng), {"mu": MU, "delta": 1e-6})
    found = {FLOATS: attacked.audit(runs)}
    cases = low_bit_cases.low_bit_cases(MU)
    found |= {label: cases[name]().audit(runs) for label, name in OURS.items()}
    assert found[FLOATS].flagged
    assert not any(found[label].flagged for label in OURS)
    return {label: result.mu for label, result in found.items()}


def draw(path: Path, sizes: list[int], spreads: list[float], bound: dict[str, float]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "exact-bits", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    left.plot(sizes, spreads, "s-", color="#d55e00", label="float64, X.T @ X of batches")
    left.plot(sizes, [0.0] * len(sizes), "o-", color="#0072b2", label="Moments: the same bytes")
    left.set_xscale("log")
    left.set_xlabel("rows")
    left.set_ylabel("largest difference, in $2^{-53}$")
    left.legend(fontsize=8)
    colours: Any = ["#d55e00"] + ["#0072b2"] * len(OURS)
    right.barh(list(bound), list(bound.values()), color=colours)
    right.axvline(MU, color="black", lw=1.5, label="claimed")
    right.invert_yaxis()
    right.set_xlabel("mu at least, from low-order bits alone")
    right.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows and runs; no picture unless --output is given")
    parser.add_argument("--output", type=Path, help="where to write the picture")
    arguments = parser.parse_args()
    sizes, orders, runs = ([100, 1000], 3, 1000) if arguments.quick else ([100, 1000, 10_000, 100_000], 8, 2000)
    spreads = [spread(n, orders) for n in sizes]
    assert min(spreads) > 0
    print("| rows | largest difference of float64 sums, in 2^-53 | different Moments |\n|---|---|---|")
    for n, largest in zip(sizes, spreads, strict=True):
        print(f"| {n} | {largest:.3g} | 1 of {orders} |")
    bound = bounds(runs)
    print(f"\n| attacked, mu = {MU} claimed | mu at least |\n|---|---|")
    for label, mu in bound.items():
        print(f"| {label} | {mu:.3g} |")
    path = arguments.output or (None if arguments.quick else PICTURE)
    if path is not None:
        draw(path, sizes, spreads, bound)
        print(f"\nwrote {path.name}")


if __name__ == "__main__":
    main()
