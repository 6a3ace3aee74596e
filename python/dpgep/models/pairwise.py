"""Covariances of pairs of columns over the people who have both, from one release of values and of what is absent.

A row z of d values, 0 where one is absent, is followed by d marks: m_j = 1 where there is a value, -1 where there is
none. Released are the moments of the joint row (z, a m), of norm at most R' where z is cut to R; names below are those
of docs/mathematics.md, section 3. Marks take the fifth SHARE of the squared joint bound, d a^2 = R'^2/5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.models.model import Matrix, Model

SHARE = 0.2  # the part of the squared joint bound that all marks take
# Binary digits of a mark in units of the joint bound: a whole number of steps of the grid of a release.
_DIGITS = 4
_ROUND_DOWN = 1 - 2.0**-40  # a joint row stays within its bound whatever the rounding of its values
# Deviations of its noise that the share of a pair counts as at least; from which on it is shown; the least, in people.
_FLOOR, _SHOWN, _LEAST = 2.0, 4.0, 1 / 3


def mark_of(n_columns: int) -> float:
    """The mark of a value in units of the joint bound."""
    digits, exponent = math.frexp(math.sqrt(SHARE / n_columns))
    return math.ldexp(math.floor(math.ldexp(digits, _DIGITS)), exponent - _DIGITS)


def part_of_values(n_columns: int) -> float:
    """The bound on the values in units of the joint bound."""
    return math.sqrt(1 - n_columns * mark_of(n_columns) ** 2) * _ROUND_DOWN


def require_pairs(model: Model) -> None:
    """Raise ValueError for a model that pairs of columns do not serve."""
    grouped = getattr(model, "grouping", None) is not None
    if grouped or not model.traits.shift_free:
        raise ValueError(
            f'missing="pairwise" serves models of centred rows without groups, not {model.name} '
            f'{"with groups" if grouped else "without center"}: use missing="center"'
        )
    if not type(model).noisy.__module__.startswith("dpgep."):
        raise ValueError(f'missing="pairwise" does not serve {model.name}, which has a pencil of its own')


def require_no_pairs(moments: Any, what: str) -> None:
    """Raise ValueError for moments that were found pair by pair, of which something is not known."""
    if moments.pairs is not None:
        raise ValueError(f'{what} are not known of covariances with missing="pairwise": use missing="center"')


@dataclass(frozen=True, eq=False)
class Pairs:
    """What is known of each pair of columns."""

    profile: Matrix  # (d, d), variances of the noise in entries of the covariance, in units of what GOE noise has there
    shares: Matrix  # (d, d), of the people, those who have both columns: at least two deviations of the noise in them
    errors: Matrix  # (d, d), deviations of the noise in the shares, that of a third of a person at least
    of_means: Matrix  # (d,), variances of the noise in the means

    def restricted(self, features: NDArray[np.intp]) -> Pairs:
        corner = np.ix_(features, features)
        return Pairs(self.profile[corner], self.shares[corner], self.errors[corner], self.of_means[features])

    @property
    def shown(self) -> NDArray[np.bool_]:
        """(d, d), whether the noise leaves no doubt that several people have both."""
        return self.shares >= _SHOWN * self.errors

    @property
    def people(self) -> Matrix:
        """(d,), shares of people with a value in each column."""
        return np.diagonal(self.shares)

    @property
    def sampled(self) -> float:
        """The share of the people whose whole rows would leave sampling errors with the same edge, or a larger one."""
        return 1 / float((1 / self.shares).mean(axis=1).max())

    def correlation_variances(self, rho: Matrix) -> Matrix:
        """N Var r_ij of Gaussian rows with correlations rho, of which some are absent at random (section 3)."""
        inverse, square = 1 / self.people, rho**2
        sums, products = np.add.outer(inverse, inverse), np.multiply.outer(inverse, inverse)
        variances = (1 + square) / self.shares - 1.5 * square * sums + square**2 * self.shares * products
        return np.asarray(np.maximum(variances, (1 - square) ** 2 / self.shares))


def pair_moments(moments: Any) -> tuple[Matrix, Matrix, float, Pairs]:
    """Mean and covariance of values from moments of them and of their marks, not projected; its noise, and the pairs.

    The deviation is that of GOE noise whose largest eigenvalue is about as large, or larger.
    """
    a, noise, n, c = moments.mark, moments.noise, moments.n, float(moments.counts[0])
    d = len(moments.second) // 2
    diagonal = np.eye(d, dtype=bool)
    t, s = moments.sums[:d, 0], moments.sums[d:, 0] / a
    marks = np.where(diagonal, c, moments.second[d:, d:] / a**2)
    of_both = np.where(diagonal, t, (t[:, None] + moments.second[:d, d:] / a) / 2)
    counted = (c + s[:, None] + s + marks) / 4
    z, e, w = noise.second**2, noise.sums**2, noise.counts**2
    of_counted = np.where(diagonal, (w + e / a**2) / 4, (w + 2 * e / a**2 + z / (2 * a**4)) / 16)
    errors = np.maximum(np.sqrt(of_counted), _LEAST / n)
    shares = np.maximum(counted, _FLOOR * errors)
    means = of_both / shares
    covariance = moments.second[:d, :d] / shares - means * means.T
    of_sums = np.where(diagonal, 2 * e, (e + z / (2 * a**2)) / 4)
    squares, slope = means**2 + means.T**2, covariance - means * means.T
    variances = (np.where(diagonal, z, z / 2) + squares * of_sums + slope**2 * of_counted) / shares**2
    mean, people = np.diagonal(means).copy(), np.diagonal(shares)
    of_means = (e + mean**2 * np.diagonal(of_counted)) / people**2
    profile = np.where(diagonal, 1, 2) * variances
    largest = float(profile.mean(axis=1).max())
    profile = profile / largest if largest else np.ones((d, d))
    return mean, covariance, math.sqrt(largest), Pairs(profile, shares / c, errors / c, of_means)
