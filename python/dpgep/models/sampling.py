"""The law of people who are drawn from a population: of their scatter, and of A where the population has no signal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from dpgep.models.model import Matrix, Model
from dpgep.models.moments import ReleasedGroups, ReleasedMoments, effective_counts, group_factors, mean_factor


@dataclass(frozen=True, eq=False)
class SampledPeople:
    """A of as many people as were released, Gaussian rows of a population in which A shows nothing.

    That is, where A is a moment itself, A = ``level`` I; views that are independent; groups of the same mean. Long
    tails of independent columns change neither correlations nor means of this many people, to first order.
    """

    model: Model
    freedom: int
    level: float
    root: Matrix

    @classmethod
    def of(cls, model: Model, released: ReleasedMoments, level: float) -> SampledPeople:
        """``level``: the mean of the eigenvalues that were released."""
        mean, means = mean_factor(released), model.traits.of_means
        within = released.second - mean.T @ mean
        if means:
            factors, weights = group_factors(released)
            within = released.second - (factors.T * weights) @ factors
        elif model.view_sizes:
            within = scipy.linalg.block_diag(*(within[view, view] for view in model.views))
        else:
            within = np.eye(0)  # known: a multiple of the identity
        n = released.n if released.pairs is None else released.n * released.pairs.sampled
        return cls(model, max(round(n) - 1, 1), max(level, 0.0), root_of(within))

    def moved(self, groups: ReleasedGroups, generator: np.random.Generator) -> ReleasedGroups:
        """Sums of groups of people whose means are the same in the population."""
        if not self.model.traits.of_means:
            return groups
        deviations = np.sqrt(effective_counts(groups) / groups.n)[..., None, :]
        return replace(
            groups, sums=groups.sums + deviations * (self.root @ generator.standard_normal(groups.sums.shape))
        )

    def scatter(self, generator: np.random.Generator) -> Matrix:
        """What the sampling of people adds to A, where A is no scatter of means."""
        d, traits = self.model.n_features, self.model.traits
        if traits.of_means:
            return np.zeros((d, d))
        factor = bartlett(d, self.freedom, generator) / np.sqrt(self.freedom)
        if not self.model.view_sizes:
            if traits.standardized:
                factor /= np.linalg.norm(factor, axis=1, keepdims=True)
            return np.asarray(self.level * (factor @ factor.T - np.eye(d)))
        if traits.b is not None:  # relative to the scatter within views of the same people
            for view in self.model.views:
                orthonormal = np.linalg.qr(factor[view].T)[0].T
                factor[view] = 0.0
                factor[view][: len(orthonormal)] = orthonormal
        between = factor @ factor.T
        for view in self.model.views:
            between[view, view] = 0.0
        return np.asarray(self.root @ between @ self.root.T)


def bartlett(d: int, freedom: int, generator: np.random.Generator) -> Matrix:
    """T with T T^T of Wishart's law with the identity; the factors of ``freedom`` rows where those are fewer."""
    if freedom <= d:
        return generator.standard_normal((d, freedom))
    factor = np.tril(generator.standard_normal((d, d)), -1)
    factor[np.diag_indices(d)] = np.sqrt(generator.chisquare(freedom - np.arange(d)))
    return factor


def root_of(covariance: Matrix) -> Matrix:
    """R with R R^T = the positive part of a covariance."""
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:  # singular
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
