"""Models: A and B of each problem as functions of released values. Pure mathematics, without data and noise.

Each matrix is a combination of two scatters (`Scatter`). A new model of rows is a class here and an entry of `_KINDS`;
CONTRIBUTING.md says what makes it one of ours.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.models import moments
from dpgep.models.model import (
    BETWEEN,
    MEANS,
    TOTAL,
    WITHIN,
    WITHIN_GROUPS,
    Matrix,
    MatrixPencil,
    Model,
    NoisyPencil,
    Traits,
)
from dpgep.models.moments import ReleasedMoments
from dpgep.models.null import leading_of_noise, mixed_directions, signal_of, spectrum_before_noise, upright
from dpgep.models.plausible import PlausibleMoments, bartlett, root_of
from dpgep.models.row_model import Classes, Grouping, MomentsPencil, RowModel, Slices
from dpgep.serialization import stored_as

__all__ = [
    "CcaModel",
    "ContrastivePcaModel",
    "FdaModel",
    "MultisetCcaModel",
    "PcaModel",
    "PlsModel",
    "SirModel",
    "StandardizedPcaModel",
    "TableModel",
]


@stored_as("pca")
@dataclass(frozen=True)
class PcaModel(RowModel):
    """max v^T A v over unit v, A the covariance of the rows (``center``) or their second moment."""

    n_features: int
    center: bool
    name = "pca"
    traits = Traits(TOTAL, has_clipped_products=True)


@stored_as("standardized-pca")
@dataclass(frozen=True)
class StandardizedPcaModel(PcaModel):
    """max v^T C v over v^T diag(C) v = 1, C the covariance of the rows (``center``) or their second moment.

    What is known of the noise is in coordinates u = v * scale, in which the pair is (R, I), R the correlations.
    """

    name = "standardized-pca"
    traits = Traits(TOTAL, standardized=True)


@dataclass(frozen=True)
class ViewsModel(RowModel):
    """Views of ``view_sizes`` features of the same people, centred or not: A and B are blocks of their covariance."""

    view_sizes: tuple[int, ...] = field()  # always known: no default, as the base has
    center: bool
    _most_views: ClassVar[float] = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "view_sizes", tuple(self.view_sizes))
        if not 2 <= len(self.view_sizes) <= self._most_views:
            or_more = "" if self._most_views == 2 else " or more"
            raise ValueError(f"{self.name} compares two views{or_more}, got {len(self.view_sizes)}")
        if min(self.view_sizes) < 1:
            raise ValueError(f"view_sizes must be positive, got {self.view_sizes}")
        super().__post_init__()

    @property
    def n_features(self) -> int:  # type: ignore[override]
        return sum(self.view_sizes)


@stored_as("cca")
@dataclass(frozen=True)
class CcaModel(ViewsModel):
    """max x^T Sxy y over x^T Sx x = y^T Sy y = 1, as A v = lambda B v with v = (x, y); lambda is the correlation.

    A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy).
    """

    name = "cca"
    traits = Traits(BETWEEN, WITHIN, has_clipped_products=True, largest_eigenvalue=1.0)


@stored_as("pls")
@dataclass(frozen=True)
class PlsModel(ViewsModel):
    """max x^T Sxy y over unit x and y, as A v = lambda v with v = (x, y); lambda is the covariance of the scores.

    A = [[0, Sxy], [Syx, 0]], B = I.
    """

    name = "pls"
    traits = Traits(BETWEEN, has_clipped_products=True)


@stored_as("multiset-cca")
@dataclass(frozen=True)
class MultisetCcaModel(ViewsModel):
    """max sum_{i != j} x_i^T S_ij x_j over sum_i x_i^T S_ii x_i = 1, with v = (x_1, ..., x_m) for m views."""

    name = "multiset-cca"
    traits = Traits(BETWEEN, WITHIN)
    _most_views = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "traits", replace(self.traits, largest_eigenvalue=len(self.view_sizes) - 1.0))


@stored_as("fda")
@dataclass(frozen=True)
class FdaModel(RowModel):
    """max v^T A v / v^T B v, A the scatter of class means around the mean, B the scatter of rows around class means."""

    n_features: int
    classes: tuple[Hashable, ...]
    name = "fda"
    traits = Traits(MEANS, WITHIN_GROUPS)

    @property
    def grouping(self) -> Classes:
        return Classes(self.classes)


@stored_as("sir")
@dataclass(frozen=True)
class SirModel(RowModel):
    """max v^T A v / v^T B v, A the covariance of slice means, Cov(E[x | slice of y]), B the covariance of the rows."""

    n_features: int
    interior_edges: tuple[float, ...]
    name = "sir"
    traits = Traits(MEANS, TOTAL, largest_eigenvalue=1.0)  # a part of the variance

    @property
    def grouping(self) -> Slices:
        return Slices(self.interior_edges)


@dataclass(frozen=True, eq=False)
class ContrastPencil(MomentsPencil):
    """A = sum over groups of weights times covariances, B = I; of columns in units of their own, as the base."""

    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self).update(isotropic=False)  # the noise of a count is in proportion to a covariance

    def pair(self) -> MatrixPencil:
        a = np.asarray(sum(weight * group.covariance for weight, group in self._groups))
        level = float(np.hypot.reduce([weight * group.moments.second_noise_level for weight, group in self._groups]))
        return self._pair_in_units(a, level)

    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        left, right = self._in_their_units(left, right)
        return np.asarray(sum(weight**2 * group.error_variances(left, right) for weight, group in self._groups))

    def noise_alone(
        self, values: Matrix, generator: np.random.Generator, n_draws: int, *, people: bool = False
    ) -> Iterator[Matrix]:
        for _ in range(n_draws):
            drawn = sum(weight * group.strayed(generator, people=people) for weight, group in self._groups)
            yield self._in_units(np.asarray(drawn))

    def plausible_truth(self, most_features: int) -> PlausibleMoments:
        d = self.model.n_features
        before = moments.of_groups([group.before_noise for _, group in self._groups], self.released)
        return PlausibleMoments.of(self, replace(before, noise=moments.NO_NOISE), np.ones(d), np.eye(d), self.model)

    def changed(self, change: Matrix) -> ReleasedMoments:
        """``change`` is added to the covariance of the first group."""
        second = self.released.second.copy()
        second[0] += self.released.counts[0] / self.weights[0] * change
        return replace(self.released, second=second)

    @cached_property
    def _groups(self) -> list[tuple[float, _Group]]:
        return [(weight, _Group(moments.of_group(self.released, group))) for group, weight in enumerate(self.weights)]


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
        """Var of u_j^T dC v_i, shape (k, r), dC = Z - m e^T - e m^T + z (m m^T - C), z the noise of the count."""
        own, noise = self.moments, self.moments.noise
        of_rows = replace(own, noise=replace(noise, counts=0.0))
        of_count = np.outer(self.mean @ right, self.mean @ left) - (self.covariance @ right).T @ left
        return np.asarray(
            moments.schur_form_variance(of_rows, left, right, total=1.0, within=0.0) + noise.counts**2 * of_count**2
        )

    def strayed(self, generator: np.random.Generator, *, people: bool) -> Matrix:
        """(d, d), how far noise, and with ``people`` their sampling, move C."""
        noise, mean, d = self.moments.noise, self.mean, len(self.mean)
        moved = mean + noise.sums * generator.standard_normal(d)
        found = moments.goe(d, noise.second, generator) + np.outer(mean, mean) - np.outer(moved, moved)
        found += noise.counts * generator.standard_normal() * (np.outer(mean, mean) - self.covariance)
        if people:
            freedom = max(round(self.moments.n) - 1, 1)
            factor = self.root @ bartlett(d, freedom, generator)
            found += factor @ factor.T / freedom - self.root @ self.root.T
        return np.asarray(found)


_TWO_GROUPS = Classes(("target", "background"))


@stored_as("contrastive-pca")
@dataclass(frozen=True)
class ContrastivePcaModel(RowModel):
    """max v^T (C_target - alpha C_background) v over unit v, C the covariances within two classes, in this order."""

    n_features: int
    grouping: Classes = _TWO_GROUPS
    alpha: float = 1.0
    name = "contrastive-pca"
    traits = Traits(WITHIN_GROUPS, by_group=True, least_eigenvalue=-math.inf)  # of its kind: A itself is the pencil's

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grouping.n_groups != 2:
            raise ValueError(f"contrastive PCA is of a target and a background, got {self.grouping.n_groups} classes")
        if not 0 <= self.alpha < math.inf:
            raise ValueError(f"alpha must be a finite number from 0 on, got {self.alpha!r}")

    def noisy(self, released: ReleasedMoments, scale: Matrix | None = None) -> ContrastPencil:
        return ContrastPencil(self, released, scale, (1.0, -self.alpha))


@stored_as("table")
@dataclass(frozen=True)
class TableModel(RowModel):
    """Moments of a table, and of groups of its people: of classes, or of slices of a response between edges.

    ``by_group``: each group has a second moment of its own.
    """

    n_features: int
    grouping: Grouping | None = None
    by_group: bool = False
    name = "table"
    traits = Traits(asks_sizes=True)  # questions are about columns

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.grouping is not None and self.grouping.n_groups < 2:
            raise ValueError(f"a table with groups needs at least 2, got {self.grouping.n_groups}")
        if self.by_group and self.grouping is None:
            raise ValueError("by_group=True needs groups: give labels, or y with its slices")
        object.__setattr__(self, "traits", replace(self.traits, by_group=self.by_group))


@dataclass(frozen=True, eq=False)
class ReleasedMatrices:
    """Released A and B (None: the identity) and the deviations of their noise (GOE, of the diagonal)."""

    a: Matrix
    b: Matrix | None
    noise_a: float
    noise_b: float

    mean, clipped = None, 0.0  # there are no rows

    @property
    def noiseless(self) -> bool:
        """Whether epsilon was infinite, or both matrices public."""
        return self.noise_a == 0 and self.noise_b == 0


@dataclass(frozen=True, eq=False)
class MatricesPencil(NoisyPencil):
    """Released A and B, and the law of their noise."""

    model: GepModel
    released: ReleasedMatrices

    def __post_init__(self) -> None:
        released, edge = self.released, float(np.sqrt(2 * self.model.n_features))
        vars(self).update(noise_of_b=None if released.b is None else released.noise_b * edge)

    def pair(self) -> MatrixPencil:
        released, d = self.released, self.model.n_features
        b = released.b
        noise = released.noise_a if b is None else released.noise_b
        scale = 0.0 if b is None else float(np.abs(np.diagonal(b, axis1=-2, axis2=-1)).max())
        return MatrixPencil(released.a, b, noise * float(np.sqrt(2 * d)), d * float(np.finfo(float).eps) * scale)

    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        variance = self.released.noise_a**2 + (eigenvalues * self.released.noise_b) ** 2
        return variance[:, None] * moments.symmetric_form_variance(left, right)

    def noise_alone(
        self, values: Matrix, generator: np.random.Generator, n_draws: int, *, people: bool = False
    ) -> Iterator[Matrix]:
        # A - c B is noise alone where A = c B
        deviation = math.hypot(self.released.noise_a, float(values.mean()) * self.released.noise_b)
        for _ in range(n_draws):
            yield moments.goe(self.model.n_features, deviation, generator)

    def leading_noise(self, values: Matrix, basis: Matrix | None, seed: int, n_draws: int) -> Matrix | None:
        released = self.released
        return None if released.b is not None else released.noise_a * leading_of_noise(len(values), 0, seed, n_draws)

    def plausible_truth(self, most_features: int) -> PlausibleMatrices:
        released, d = self.released, self.model.n_features
        a = signal_of(released.a, released.noise_a)
        # the basis in which a large problem is thinned out: that of B, or of A where B is the identity
        values, vectors = scipy.linalg.eigh(a if released.b is None else released.b, check_finite=False)
        vectors = upright(vectors)
        values = values if released.b is None else spectrum_before_noise(values, released.noise_b)
        thinning = max(d / most_features, 1.0)
        directions, root = vectors, math.sqrt(thinning)
        if thinning > 1:
            directions = mixed_directions(vectors, most_features, np.random.default_rng(0))
        in_basis = directions.T @ vectors
        a = thinning * (directions.T @ a @ directions)
        b = None if released.b is None else (in_basis * values) @ in_basis.T
        return PlausibleMatrices(a, b, root * released.noise_a, root * released.noise_b)


@dataclass(frozen=True, eq=False)
class PlausibleMatrices(ReleasedMatrices):
    """Plausible A and B before the noise of a release, and that noise."""

    def pair(self) -> MatrixPencil:
        b = None if self.b is None else self.b.copy()
        return GepModel(len(self.a)).noisy(ReleasedMatrices(self.a.copy(), b, 0.0, 0.0)).pair()

    def noisy_pair(self, generator: np.random.Generator, n_draws: int | None = None) -> MatrixPencil:
        d = len(self.a)
        of_a, *of_b = moments.normals(generator, n_draws, *[(d, d)] * (1 if self.b is None else 2))
        a = self.a + moments.goe_of(of_a, self.noise_a)
        b = None if self.b is None else self.b + moments.goe_of(of_b[0], self.noise_b)
        return GepModel(d).noisy(ReleasedMatrices(a, b, self.noise_a, self.noise_b)).pair()


@stored_as("gep")
@dataclass(frozen=True)
class GepModel(Model):
    """max v^T A v / v^T B v for given symmetric A and B."""

    n_features: int
    name = "gep"

    def noisy(self, released: ReleasedMatrices) -> MatricesPencil:
        return MatricesPencil(self, released)

    def restricted(self, features: NDArray[np.intp]) -> GepModel:
        return GepModel(len(features))


_KINDS = (
    PcaModel, StandardizedPcaModel, CcaModel, PlsModel, MultisetCcaModel, FdaModel, SirModel, ContrastivePcaModel,
    TableModel,
)  # fmt: skip
#: the models of rows by name
MODELS: dict[str, type[RowModel]] = {model.name: model for model in _KINDS}
