"""The difference of the covariances of two groups, A = C_1 - alpha C_2, from second moments by group.

With the people of a group as a release of nobody else (`of_group`), C = M - m m^T, divided by a released number of
people, whose noise z moves M/c and S/c as well. With e the noise of the mean and Z that of M, all divided by c,

    u^T dC v = u^T Z v - (m.u)(e.v) - (m.v)(e.u) + z ((m.u)(m.v) - u^T C v),

to first order, and the noise of the groups is independent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used

from dpgep.models.model import Matrix, MatrixPencil
from dpgep.models.moments import (
    NO_NOISE,
    ReleasedMoments,
    goe,
    of_group,
    of_groups,
    schur_form_variance,
)
from dpgep.models.null import spectrum_before_noise
from dpgep.models.plausible import PlausibleMoments, bartlett, root_of
from dpgep.models.row_model import MomentsPencil


@dataclass(frozen=True, eq=False)
class ContrastPencil(MomentsPencil):
    """A = sum over groups of weights times covariances, B = I; of columns in units of their own, as the base."""

    weights: tuple[float, ...] = ()

    @cached_property
    def isotropic(self) -> bool:
        return False  # the noise of a count is in proportion to a covariance

    def pair(self) -> MatrixPencil:
        a = np.asarray(sum(weight * group.covariance for weight, group in self._groups))
        level = float(np.hypot.reduce([weight * group.moments.second_noise_level for weight, group in self._groups]))
        rounding = sum(abs(weight) * group.moments.rounding for weight, group in self._groups)
        if self.scale is not None:
            return self._pair_in_units(a, self.scale, level, rounding)
        return MatrixPencil(a, None, level, rounding)

    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        if self.scale is not None:
            scaled = scipy.sparse.diags_array(self.scale)
            left, right = scaled @ left, np.asarray(scaled @ right)
        return np.asarray(sum(weight**2 * group.error_variances(left, right) for weight, group in self._groups))

    def noise_alone(
        self, values: Matrix, generator: np.random.Generator, n_draws: int, *, people: bool = False
    ) -> Iterator[Matrix]:
        for _ in range(n_draws):
            drawn = sum(weight * group.strayed(generator, people=people) for weight, group in self._groups)
            yield np.asarray(drawn) if self.scale is None else self._in_units(np.asarray(drawn))

    def leading_noise(self, values: Matrix, basis: Matrix | None, seed: int, n_draws: int) -> Matrix | None:
        return None

    def plausible_truth(self, most_features: int) -> PlausibleMoments:
        d = self.model.n_features
        moments = of_groups([group.before_noise for _, group in self._groups], self.released)
        return PlausibleMoments.of(self, replace(moments, noise=NO_NOISE), np.ones(d), np.eye(d), self.model)

    def changed(self, change: Matrix) -> ReleasedMoments:
        """``change`` is added to the covariance of the first group."""
        second = self.released.second.copy()
        second[0] += self.released.counts[0] / self.weights[0] * change
        return replace(self.released, second=second)

    @cached_property
    def _groups(self) -> list[tuple[float, _Group]]:
        return [(weight, _Group(of_group(self.released, group))) for group, weight in enumerate(self.weights)]


@dataclass(frozen=True, eq=False)
class _Group:
    """A group as a release of nobody else."""

    moments: ReleasedMoments

    @cached_property
    def mean(self) -> Matrix:
        return np.asarray(self.moments.sums[:, 0])

    @cached_property
    def covariance(self) -> Matrix:
        return np.asarray(self.moments.second - np.outer(self.mean, self.mean))

    @cached_property
    def before_noise(self) -> ReleasedMoments:
        """With a covariance that may have been there before the noise."""
        values, vectors = np.linalg.eigh(self.covariance)
        values = spectrum_before_noise(values[::-1], self.moments.noise.second)[::-1]
        return replace(self.moments, second=(vectors * values) @ vectors.T + np.outer(self.mean, self.mean))

    @cached_property
    def root(self) -> Matrix:
        """That of this covariance."""
        return root_of(_Group(self.before_noise).covariance)

    def error_variances(self, left: Any, right: Matrix) -> Matrix:
        """Var of u_j^T dC v_i, shape (k, r)."""
        moments, noise = self.moments, self.moments.noise
        of_rows = replace(moments, noise=replace(noise, counts=0.0))
        of_count = np.outer(self.mean @ right, self.mean @ left) - (self.covariance @ right).T @ left
        return np.asarray(
            schur_form_variance(of_rows, left, right, total=1.0, within=0.0) + noise.counts**2 * of_count**2
        )

    def strayed(self, generator: np.random.Generator, *, people: bool) -> Matrix:
        """(d, d), how far noise, and with ``people`` their sampling, move C."""
        noise, mean, d = self.moments.noise, self.mean, len(self.mean)
        moved = mean + noise.sums * generator.standard_normal(d)
        found = goe(d, noise.second, generator) + np.outer(mean, mean) - np.outer(moved, moved)
        found += noise.counts * generator.standard_normal() * (np.outer(mean, mean) - self.covariance)
        if people:
            freedom = max(round(self.moments.n) - 1, 1)
            factor = self.root @ bartlett(d, freedom, generator)
            found += factor @ factor.T / freedom - self.root @ self.root.T
        return np.asarray(found)
