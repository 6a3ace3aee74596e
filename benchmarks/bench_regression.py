"""Coverage of the intervals of regression coefficients: draws of people and of noise, Gaussian and heavy-tailed rows.

y = x^T beta + error, the columns x with correlations 0.5^|i - j|, normal or (made of) Student's t with 5 degrees of
freedom, as the errors are; x^T beta has the variance of the error. Rows have a public bound that next to nobody
exceeds, or units of their own and a bound that is bought. Every interval shall
hold the coefficient of the population with a probability of 90 %; so shall they on average, over coefficients and
draws, within 87 to 95 %. Without the part of the noise they do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import support

import dpgep
from dpgep.problems.builders import table_problem
from dpgep.results.least_squares import Regression

Matrix = support.Matrix

DRAWS = 20 if support.QUICK else 500
LEVEL, LOW, HIGH = 0.9, 0.87, 0.95
# A public bound on rows of unit variances, in units of sqrt(d): fewer than one normal row in 10^4 is longer.
PUBLIC = 2.5
# Where the columns lie that have units of their own, and the largest of their scales; the least is 1.
CENTRE, LARGEST_SCALE = 50.0, 7.0


@dataclass(frozen=True)
class Setting:
    """A population, its size, a budget, and how the bound is known."""

    n: int
    d: int
    epsilon: float
    law: Literal["normal", "t5"]
    bound: Literal["public", "auto"]

    def __str__(self) -> str:
        return f"n={self.n} d={self.d} epsilon={self.epsilon:g} {self.law}, {self.bound} bound"


SETTINGS = [
    Setting(n, d, epsilon, law, bound)
    for n, d, epsilon in ((2000, 5, 1.0), (5000, 10, 1.0), (50_000, 10, 1.0), (10_000, 30, 4.0))
    for law in ("normal", "t5")
    for bound in ("public", "auto")
]


def population(d: int) -> tuple[Matrix, Matrix]:
    """Beta (p,), and the root L of the covariance L L^T of the columns x."""
    order = np.arange(d - 1)
    covariance = 0.5 ** np.abs(np.subtract.outer(order, order))
    beta = np.random.default_rng(0).standard_normal(d - 1)
    return beta / math.sqrt(beta @ covariance @ beta), np.linalg.cholesky(covariance)


def people(setting: Setting, rng: np.random.Generator) -> Matrix:
    """(n, d), columns x and then y."""
    shape = (setting.n, setting.d)
    draws = rng.standard_normal(shape) if setting.law == "normal" else rng.standard_t(5, shape) / math.sqrt(5 / 3)
    beta, root = population(setting.d)
    x = draws[:, :-1] @ root.T
    return np.column_stack([x, x @ beta + draws[:, -1]])


def units(setting: Setting) -> tuple[Matrix, float]:
    """Scales (d,) of the columns, and where they lie."""
    own = setting.bound == "auto"
    return (np.linspace(1, LARGEST_SCALE, setting.d), CENTRE) if own else (np.ones(setting.d), 0.0)


def fitted(setting: Setting, draw: int) -> Regression:
    scale, centre = units(setting)
    rows = people(setting, np.random.default_rng([draw, setting.n, setting.d])) * scale + centre
    bound: Any = PUBLIC * math.sqrt(setting.d) if setting.bound == "public" else "auto"
    released = dpgep.release(table_problem(rows, bound=bound), epsilon=setting.epsilon, delta=1e-6, seed=draw)
    return released.regression(setting.d - 1)


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_intervals_hold_the_coefficients_of_the_population(setting: Setting) -> None:
    scale, centre = units(setting)
    beta = population(setting.d)[0] * scale[-1] / scale[:-1]
    truth = np.append(centre * (1 - beta.sum()), beta)
    held, of_people_alone, noise_shares = [], [], []
    for draw in range(DRAWS):
        fit = fitted(setting, draw)
        low, high = np.vstack([fit.intercept_interval(LEVEL), fit.intervals(LEVEL)]).T
        held.append((low <= truth) & (truth <= high))
        half = (high - low) / 2 * fit.people_errors / np.hypot(fit.people_errors, fit.noise_errors)
        of_people_alone.append(np.abs(np.append(fit.intercept, fit.coefficients) - truth) <= half)
        noise_shares.append(fit.noise_share)
    each = np.mean(held, axis=0)
    covered, alone = float(each[1:].mean()), float(np.mean(of_people_alone))
    support.say(
        f"{setting}: {covered:.3f} of the intervals hold the coefficient, of each {each[1:].min():.3f} to "
        f"{each[1:].max():.3f}, the intercept {each[0]:.3f}; without the part of the noise {alone:.3f}; "
        f"noise share {np.mean(noise_shares):.3f}"
    )
    support.judge(f"{setting}: coverage", covered, LOW, at_least=True)
    support.judge(f"{setting}: coverage", covered, HIGH)
    assert covered > 0.4  # of 20 correct draws, each a share with mean 0.9, probably: all but 3e-7 (Chernoff)
    assert alone < LOW
