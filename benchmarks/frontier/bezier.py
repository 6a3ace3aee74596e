"""Variance of one column in [0, 1] under add-remove, the number of people unknown (Takakura, Liew, Hasegawa 2025).

The Bezier mechanism (arXiv:2509.04919) releases sums of Bernstein polynomials of x, here (1 - x)^2, 2 x (1 - x) and
x^2. They are not negative and add up to 1, so a person moves them by at most 1 in Euclidean norm (as in sum of absolute
values): noise of deviation 1/mu in each is mu-GDP. The number of people is their sum, moments are linear in them.

Printed: of the text only the abstract and a summary could be read; they have the basis, and that it is minimax for high
privacy. Noise is normal here, for one currency with `three_scales`: what dpgep releases of z = x - 1/2, count, sum and
sum of squares in proportions 2 : 2 : 1 in units of the bound 1/2 (docs/mathematics.md, section 3).

    python benchmarks/frontier/bezier.py       # deviations of both, to first order, times n mu
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Matrix

# of count, sum and sum of squares, in units of powers of the bound 1/2, and of 1/mu
SCALES = math.sqrt(1 / 4 + 1 / 4 + 1) * np.array([2.0, 2.0, 1.0])
# from sums of Bernstein polynomials to count, sum and sum of squares
MOMENTS = np.array([[1.0, 1.0, 1.0], [0.0, 0.5, 1.0], [0.0, 0.0, 1.0]])
COLUMNS = {
    "uniform": (1 / 2, 1 / 12),
    "in the middle": (1 / 2, 1 / 100),
    "zeros and ones, evenly": (1 / 2, 1 / 4),
    "one in ten": (1 / 10, 9 / 100),
    "near an end": (1 / 20, 1 / 400),
}


def sums(x: Matrix) -> Matrix:
    """What a person adds: (n, 3)."""
    return np.stack([(1 - x) ** 2, 2 * x * (1 - x), x**2], axis=1)


def variance(noisy: Matrix) -> float:
    """From noisy sums of the polynomials."""
    n, total, squares = MOMENTS @ noisy
    return float(squares / n - (total / n) ** 2)


def deviation(mean: float, variance: float) -> float:
    """Of the released variance, to first order in the noise, times n mu."""
    return float(np.linalg.norm(_slope(mean, variance) @ MOMENTS))


def three_scales(mean: float, variance: float) -> float:
    """The same of dpgep's release with a known bound."""
    return float(np.linalg.norm(_slope(mean - 0.5, variance) * SCALES * [1.0, 0.5, 0.25]))


def _slope(mean: float, variance: float) -> Matrix:
    """Of n times a variance, in count, sum and sum of squares."""
    return np.array([mean**2 - variance, -2 * mean, 1.0])


if __name__ == "__main__":
    print("| column | Bezier | three scales | ratio |\n|---|---|---|---|")
    for name, moments in COLUMNS.items():
        ours, theirs = three_scales(*moments), deviation(*moments)
        print(f"| {name} | {theirs:.2g} | {ours:.2g} | {ours / theirs:.2f} |")
