"""Analyze Gauss (Dwork, Talwar, Thakurta, Zhang 2014): one noisy second moment, and its eigenvectors.

Printed: independent noise on the upper triangle for a sensitivity of 1, which is that of a row added or removed. Under
replace-one it is sqrt(2) (e_1 becomes e_2); and noise off the diagonal may have half of the variance, as each such
entry is there twice.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Analyst, Matrix, leading, second_moment


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    return leading(analyst.ask_symmetric(second_moment, math.sqrt(2), mu), k)
