"""Directions without variance that are public: what the indicators of one categorical column have in common.

Everybody who has a listed category has one of them, so that the indicators add up to 1: along their sum a covariance is
zero, and what was released there is noise. Components are looked for in the directions that are orthogonal to it. Noise
is the same in all directions: what is left is a release of rows in these coordinates, of the same law. People without a
listed category make such a sum a column like others: it is kept where the release shows its variance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import scipy.linalg

from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, mean_factor
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import Indicators, MomentsPencil, PencilPart, RowModel

# Variance of a sum of indicators below which it is left out: of few people without a listed category, or what cutting
# rare categories makes of it. In deviations of the noise, it is shown from the first on, and not looked for beyond the
# second, so that without noise nothing is left out but what is zero.
_FEW, _SHOWN, _RESOLVED = 0.005, 4.0, 100.0
_LISTED = 3  # names of indicators in a line


@dataclass(frozen=True, eq=False)
class Redundancy:
    """Sums of indicators in the coordinates of mapped rows."""

    directions: Matrix  # (m, d), unit rows
    # (m,), their lengths before that: a variance along a row, times the square, is that of the sum itself
    units: Matrix
    names: tuple[str, ...]  # (m,), the sums in words

    @classmethod
    def of(cls, model: Any, preprocessing: Preprocessing | None) -> Redundancy | None:
        """Sums for which B would be singular, in views that have other directions; None if there are none."""
        if not isinstance(model, RowModel) or model.traits.identity_b or model.traits.standardized:
            return None
        views = model.views if model.indicators and model.traits.shift_free else []
        inside = [[group for group in model.indicators if all(v.start <= j < v.stop for j in group)] for v in views]
        served = [groups for groups, v in zip(inside, views, strict=True) if len(groups) < v.stop - v.start]
        return cls.of_columns(tuple(chain.from_iterable(served)), model.n_features, model.feature_names, preprocessing)

    @classmethod
    def of_columns(
        cls, indicators: Indicators, d: int, names: tuple[str, ...] | None, preprocessing: Preprocessing | None
    ) -> Redundancy | None:
        """Those of d columns, of which some are the indicators of one column each."""
        if not indicators:
            return None
        sums = np.zeros((len(indicators), d))
        for row, group in enumerate(indicators):
            sums[row, list(group)] = 1.0
        if preprocessing is not None and preprocessing.scale is not None:
            sums *= preprocessing.scale
        if preprocessing is not None and preprocessing.linear is not None:
            sums = np.linalg.solve(preprocessing.linear, sums.T).T
        units = np.linalg.norm(sums, axis=1)
        in_words = []
        for group in indicators:
            terms = [str(j) if names is None else names[j] for j in group]
            more = [f"{len(terms) - _LISTED} more"] if len(terms) > _LISTED else []
            in_words.append(" + ".join(terms[:_LISTED] + more))
        return cls(sums / units[:, None], units, tuple(in_words))

    def without_variance(self, b: PencilPart, factors: Matrix, released: ReleasedMoments) -> Redundancy | None:
        """Those along which the released B, a part of a pencil, shows no variance; None where it does along all."""
        noise, along = released.noise, self.directions @ factors.T
        variances = np.einsum("ij,ij->i", self.directions @ released.second, self.directions)
        variances += along**2 @ b.weights
        means = along * b.weights
        deviations = np.hypot(noise.second, 2 * noise.sums * np.linalg.norm(means, axis=1)) + released.rounding
        limits = np.clip(_FEW / self.units**2, _SHOWN * deviations, _RESOLVED * deviations)
        left = np.flatnonzero(variances <= limits)
        if not len(left):
            return None
        return Redundancy(self.directions[left], self.units[left], tuple(self.names[row] for row in left))

    def complement(self, views: Sequence[slice]) -> Matrix:
        """(d, d - m), orthonormal columns across the directions, within each view."""
        parts = (self.directions[:, view] for view in views)
        rows = (part[part.any(axis=1)] for part in parts)
        across = (scipy.linalg.null_space(part) if len(part) else np.eye(part.shape[1]) for part in rows)
        return np.asarray(scipy.linalg.block_diag(*across))


@dataclass(frozen=True, eq=False)
class Reduced:
    """The pencil of a release of rows in the coordinates along the orthonormal columns of ``basis``."""

    noisy: MomentsPencil
    basis: Matrix
    left_out: tuple[str, ...]  # the sums across which they lie, in words


def reduced(noisy: Any, redundant: Redundancy | None) -> Reduced | None:
    """What is left of a pencil across redundant directions; None where B shows variance along all of them."""
    if redundant is None:
        return None
    assert isinstance(noisy, MomentsPencil)
    model, released, pencil = noisy.model, noisy.released, noisy.pencil
    assert pencil.b is not None
    found = redundant.without_variance(pencil.b, pencil.factors, released)
    if found is None:
        return None
    basis = found.complement(model.views)
    widths = [np.count_nonzero(basis[view].any(axis=0)) for view in model.views]
    first = np.concatenate([view.start + np.arange(size) for view, size in zip(model.views, widths, strict=True)])
    smaller = model.restricted(first)
    second, sums = basis.T @ released.second @ basis, basis.T @ released.sums
    # clipping and pairs are known of columns
    moments = replace(released, second=(second + second.T) / 2, sums=sums, clipping=None, pairs=None)
    return Reduced(replace(noisy, model=smaller, released=moments), basis, found.names)


def opposites(
    indicators: Indicators, released: ReleasedMoments, preprocessing: Preprocessing | None
) -> Iterator[list[int]]:
    """Pairs of columns that are all indicators of one column, and of which the release shows that everybody has one."""
    for group in indicators:
        if len(group) == 2:
            both = Redundancy.of_columns((group,), len(released.second), None, preprocessing)
            covariance = PencilPart(np.full(1, -1.0))
            if both is not None and both.without_variance(covariance, mean_factor(released), released) is not None:
                yield list(group)
