"""Principal components: A = covariance (or second moment), B = I; or its diagonal, for standardized columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_flag
from dpgep.data.rows import Batch, Rows
from dpgep.data.views import as_view, opened, width
from dpgep.models.denoise import merged_directions, spectrum_before_noise
from dpgep.models.model import Adjacency, Matrix, MatrixPencil, PublicFacts, Standardization
from dpgep.models.moments import (
    NO_NOISE,
    MomentLayout,
    Pencil,
    PencilPart,
    PlausibleMoments,
    ReleasedGroups,
    ReleasedMoments,
    mean_factor,
    moment_layout,
    schur_form_variance,
    total_mean,
    total_share,
)
from dpgep.models.preparation import Bound
from dpgep.models.standardized import (
    correlation_form_variance,
    correlation_noise,
    correlations,
    standardization_of,
)
from dpgep.models.tridiagonal_noise import leading_of_noise
from dpgep.problems.moment_problem import RowModel, RowProblem, moment_problem


@dataclass(frozen=True)
class PcaModel(RowModel):
    """max v^T A v over unit v, A the covariance of the rows (``center``) or their second moment."""

    n_features: int
    center: bool
    name = "pca"
    identity_b = True
    scale_free = False
    linear_free = False

    @property
    def max_components(self) -> int:
        return self.n_features

    @property
    def max_components_reason(self) -> str:
        return f"PCA of {self.n_features} features has {self.n_features} components"

    @property
    def shift_free(self) -> bool:  # type: ignore[override]
        return self.center

    @property
    def is_second_moment(self) -> bool:
        return not self.center

    @property
    def is_covariance(self) -> bool:
        return True

    def batch(self, bound: float, *data: Any) -> Batch:
        (x,) = data
        return Batch(Rows((as_view(x, "X", self.n_features),), bound))

    def layout(self, facts: PublicFacts) -> MomentLayout:
        return moment_layout(self.n_features, 0, sums=self.center, facts=facts)

    def pencil(self, released: ReleasedGroups) -> Pencil:
        mean = mean_factor(released)
        return Pencil(mean, PencilPart(-np.ones(mean.shape[:-1])), None)

    def error_variances(self, released: ReleasedGroups, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return schur_form_variance(released, left, right, total=1.0, within=0.0)

    def leading_noise(
        self, released: ReleasedGroups, values: Matrix, basis: Matrix | None, seed: int, n_draws: int
    ) -> Matrix | None:
        mean, noise = mean_factor(released), released.noise
        # that of the mean's noise e; -e e^T lowers the mean of all eigenvalues by |e|^2/d
        deviation = noise.sums * math.sqrt(released.sums.shape[1]) / total_share(released)
        size = float(np.linalg.norm(mean if basis is None else mean @ basis))
        return leading_of_noise(len(values), noise.second, size * deviation, seed, n_draws) + deviation**2

    def centre(self, values: Matrix) -> float:
        return float(values.mean())

    def plausible_population(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        mean = mean_factor(released)
        values, vectors = np.linalg.eigh(released.second - mean.T @ mean)
        values, rows = spectrum_before_noise(values[::-1], released.noise.second), (mean @ vectors[:, ::-1]).T
        if len(values) > most_features:  # half of them as they are
            half = most_features // 2
            rest = merged_directions(values[half:], rows[half:], most_features - half)
            parts = (values[:half], rows[:half], np.ones(half)), rest
            values, rows, numbers = (np.concatenate(part) for part in zip(*parts, strict=True))
        else:
            numbers = np.ones(len(values))
        moments = replace(released, sums=rows, noise=NO_NOISE, second=np.diag(values) + rows @ rows.T)
        model = self.restricted(np.arange(len(values)))
        return PlausibleMoments(model, moments, released.noise, numbers, basis=vectors[:, ::-1])

    def restricted(self, features: NDArray[np.intp]) -> PcaModel:
        return type(self)(len(features), self.center)

    def mean(self, released: ReleasedGroups) -> Matrix | None:
        return total_mean(released) if self.center else None


@dataclass(frozen=True)
class StandardizedPcaModel(PcaModel):
    """max v^T C v over v^T diag(C) v = 1, C the covariance of the rows (``center``) or their second moment.

    `pair`, `error_variances` and `noise_alone` are in coordinates u = v * scale, in which the pair is (R, I).
    """

    name = "standardized-pca"
    standardized = True
    scale_free = True

    @property
    def is_second_moment(self) -> bool:
        return False

    @property
    def is_covariance(self) -> bool:
        return False

    def standardization(self, released: ReleasedMoments) -> Standardization:
        return standardization_of(released)

    def pair(self, released: ReleasedMoments) -> MatrixPencil:
        standard = standardization_of(released)
        covariance, _ = self.pencil(released).matrices(released.second.copy())  # its diagonal is asked for again
        return MatrixPencil(
            correlations(covariance, standard), None, correlation_noise(released, standard), released.rounding
        )

    def plausible_population(self, released: ReleasedMoments, most_features: int) -> PlausibleMoments:
        """In the coordinates of the columns, which their deviations belong to; nothing is thinned out."""
        mean, deviation = mean_factor(released), released.noise.second
        values, vectors = np.linalg.eigh(released.second - mean.T @ mean)
        covariance = (vectors * spectrum_before_noise(values[::-1], deviation)[::-1]) @ vectors.T
        moments = replace(released, second=covariance + mean.T @ mean, noise=NO_NOISE)
        return PlausibleMoments(self, moments, released.noise, np.ones(len(values)), basis=np.eye(len(values)))

    def error_variances(self, released: Any, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        return correlation_form_variance(released, left, right)

    def leading_noise(
        self, released: ReleasedGroups, values: Matrix, basis: Matrix | None, seed: int, n_draws: int
    ) -> None:
        return None  # divided by deviations, it is not the same in all directions

    def noise_alone(
        self, released: Any, values: Matrix, generator: np.random.Generator, n_draws: int
    ) -> Iterator[Matrix]:
        standard = standardization_of(released)
        for noise in super().noise_alone(released, values, generator, n_draws):
            alone = correlations(noise, standard)  # with the diagonal released: 1, whatever the noise
            alone.flat[:: len(alone) + 1] -= np.diagonal(alone).mean()
            yield alone


def pca(
    X: Any,
    *,
    bound: Bound = "auto",
    center: bool = True,
    standardize: bool = False,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> RowProblem:
    """Principal component analysis of the rows of X.

    Problem: A v = lambda v with A = (1/n) sum x x^T - m m^T, or (1/n) sum x x^T if not ``center``; no factor n/(n-1).

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person, real numbers, any dtype and memory order, or a SciPy sparse matrix; never modified, never
        copied as a whole. Or a table, whose columns keep their names and whose categorical columns become indicators
        (docs/your-table.md), or data read in batches: columns of a `dpgep.scan`, a path, an iterator of batches.
    bound : "auto", float, `Auto` or `Preparation`
        The bound on the row norm. It is enforced: longer rows are clipped to it, and nobody is told how many. A number
        is a public bound: it must follow from what is known about the columns, never from the data (not checked).

        "auto" buys a bound from the budget of the run, and needs no prior range. Rows are first shifted by a mean, if
        that is long, ``center`` is set and rows are not sparse; with ``standardize``, every column gets a location and
        a scale. That takes 2 to 25 % of mu^2, with ``standardize`` 17 to 55 %: the less, the larger n and the budget
        are. Each stage is a release in the report, and a pass over the data, which must be readable several times:
        ``solution.passes`` counts. `Auto` sets shares and public ranges, and admits missing values.

        ``solution.preparation`` is what was bought. As the ``bound`` of another problem, it prepares rows of the same
        columns at no cost. Components, eigenvalues and the mean are in the units of the columns; with ``standardize``,
        ``components * solution.scale`` has unit rows (docs/your-table.md).
    center : bool
        Whether to subtract the mean. If False, nothing is spent on the mean.
    standardize : bool
        Whether to divide the columns by their standard deviations (roots of their mean squares, if not ``center``): the
        components of the correlation matrix. The deviations are read off the same release, at no cost. Problem:
        A v = lambda diag(A) v, with v^T diag(A) v = 1: components are in the units of the columns, `Solution.transform`
        gives the scores of standardized rows, and components times ``diagnostics.scale`` are the unit eigenvectors of
        the correlation matrix. Solved by the methods "release" and "sr-dp", with the matrix in memory.

        A constant column has no correlations. Without noise it gets no weight, and the solution is that of the others.
        With noise a column is divided by at least the root of two deviations of the noise in its variance: one that is
        constant, or varies less than that, gets a small weight, with an `AccuracyWarning` that lists such columns.
        Eigenvalues sum to the number of the other columns, up to what these keep.
    adjacency : {"replace-one", "add-remove"}
        Which data sets are neighbours. Under "replace-one" n is public; under "add-remove" it is not, and matrices are
        normalized by ``public_n``, or by a noisy count that the budget pays for.
    public_n : int, optional
        A public number of people, for "add-remove" only; it need not be exact.

    Returns
    -------
    MomentProblem or TableProblem
        For `dpgep.solve`. Nothing is computed yet.

    Raises
    ------
    TypeError, ValueError
        If X is not a real matrix with at least two rows (any number under add-remove), or a parameter is out of range.
        Columns of text are named.
        NaN and infinities are detected by `solve`, before anything is released.
    """
    require_flag("standardize", standardize)
    x, names = opened(X, "X", adjacency)
    model = (StandardizedPcaModel if standardize else PcaModel)(width(x), center).named(names)
    return moment_problem(model, (x,), bound=bound, adjacency=adjacency, public_n=public_n)
