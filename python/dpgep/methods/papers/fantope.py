"""Convex relaxation of sparse generalized eigenvectors: an l1-penalized trace over the Fantope, by ADMM."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from dpgep._checks import require_count, require_non_negative, require_positive
from dpgep._show import Shown
from dpgep._threads import blas_on_one_thread
from dpgep.methods.eigen import check_pair
from dpgep.models.model import Matrix

OVERRELAXATION = 1.6
CHECK_EVERY = 10  # the duality gap is evaluated, and the penalty parameter balanced, every this many iterations
# After this many checks the penalty parameter stays as it is: ADMM with a fixed one converges.
BALANCED_CHECKS = 50
FEW = 0.2  # a few leading eigenpairs are cheaper than all of them only while they are few
# From here on several threads of LAPACK are faster than one: at 400, two take three times as long.
THREADED_DIMENSION = 800


@dataclass(frozen=True, eq=False, repr=False)
class FantopeFit(Shown):
    """An approximate solution of `fantope_relaxation`, and what proves how approximate."""

    sparse: Matrix  # (d, d), the lasso iterate P, entries exactly zero: its leading eigenvectors answer Algorithm 2
    spectral: Matrix  # (d, d), H in the Fantope
    feasible: Matrix  # (d, d), P = B^{-1/2} H B^{-1/2}, which meets the constraint
    multiplier: Matrix  # (d, d), Y with |Y_ij| <= phi, which proves the bound; with `feasible` a warm start
    objective: float  # -tr(A P) + phi ||P||_{1,1} at `feasible`
    gap: float  # objective minus a lower bound of the optimum: no point of the set is better by more
    n_iterations: int  # ADMM steps, one eigendecomposition each
    converged: bool  # whether the gap met the tolerance


def fantope_relaxation(
    a: Matrix,
    b: Matrix | None,
    n_components: int,
    penalty: float,
    *,
    ridge: float = 0.0,
    tolerance: float = 1e-6,
    max_iterations: int = 5000,
    start: FantopeFit | None = None,
) -> FantopeFit:
    """Minimize -tr(A P) + phi ||P||_{1,1} subject to 0 <= H <= I and tr H = K, H = B^{1/2} P B^{1/2}.

    That is the Fantope (Vu et al. 2013; Wang and Xu, eq. 5). ADMM as in Algorithm 2 of Hu et al.: lasso step in P,
    projection of the spectrum, dual step. Departures:

    * Hu et al. (eq. 15 and 16) take singular values of H at most 1 and of sum at most K. That ball is symmetric about
      zero: where eigenvalues come in pairs, lambda and -lambda, one pair with both its signs leaves the next out.
    * Where B is not the identity, the lasso step of Algorithm 2 has no closed form, and linearized it does not converge
      in 2000 steps at condition 50. We split twice, P = Q and H = B^{1/2} Q B^{1/2}: P and H separate into a soft
      threshold and a projection, and the least-squares step in Q is exact and entrywise in the eigenbasis of B.
    * Over-relaxation; the penalty parameter nu balances the residuals at first, then stays fixed.
    * The rule ||P_{t+1} - P_t||_F <= beta bounds no distance to the optimum. We stop when the duality gap says so: for
      |Y_ij| <= phi, the optimum is at least -s(B^{-1/2} (A - Y) B^{-1/2}), s(M) the sum of the K largest eigenvalues
      of M. ADMM's dual variable gives Y.

    A and B (None: the identity) are symmetric (not checked); ``ridge``, public, times the identity is added to B.
    Stops at a gap of ``tolerance`` times |objective|, or after ``max_iterations``: ``converged`` tells. ``start`` is a
    fit of a similar problem of the same size.

    Raises
    ------
    ValueError : arguments outside these ranges.
    numpy.linalg.LinAlgError : B + ridge I is not positive definite.
    """
    check_pair(a, b, n_components, ridge)
    require_non_negative("penalty", penalty)
    require_positive("tolerance", tolerance)
    require_count("max_iterations", max_iterations)
    k = n_components
    splitting = _Admm(a, penalty, k) if b is None else _Congruence(a, b, ridge, penalty, k)
    if start is not None:
        splitting.resume(start)
    objective = gap = math.inf
    iteration, converged = 0, False
    with blas_on_one_thread() if len(a) < THREADED_DIMENSION else nullcontext():
        while iteration < max_iterations and not converged:
            primal, dual = splitting.step()
            iteration += 1
            if iteration % CHECK_EVERY == 0 or iteration == max_iterations:
                objective, gap = splitting.certify()
                # An optimum of zero has no relative gap.
                converged = gap <= tolerance * max(abs(objective), 1e-6 * splitting.scale)
                if iteration <= BALANCED_CHECKS * CHECK_EVERY and not converged:
                    splitting.balance(primal, dual)
    return FantopeFit(
        sparse=_symmetrized(splitting.sparse),
        spectral=_symmetrized(splitting.spectral()),
        feasible=_symmetrized(splitting.feasible()),
        multiplier=_symmetrized(splitting.multiplier()),
        objective=objective,
        gap=gap,
        n_iterations=iteration,
        converged=converged,
    )


def leading_vectors(matrix: Matrix, n_components: int) -> Matrix:
    """The K leading eigenvectors of a symmetric P, (K, d) unit rows, descending, largest entry of each positive.

    Where B is not the identity, P is about V V^T with B-orthonormal columns, and the rows span the solutions.
    """
    require_count("n_components", n_components, largest=len(matrix))
    _, vectors = scipy.linalg.eigh(matrix, driver="evd")
    rows = vectors[:, : -n_components - 1 : -1].T
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(np.where(largest < 0, -rows, rows))


class _Projection:
    """Frobenius projection on the Fantope: the eigenvectors stay, the eigenvalues are shifted and clipped."""

    def __init__(self, k: int) -> None:
        self.k = k
        self._rank: int | None = None

    def __call__(self, matrix: Matrix, radius: float = 1.0) -> Matrix:
        """Projection of a symmetric matrix on ``radius`` times the Fantope. Overwrites the matrix."""
        values, vectors = self._decompose(matrix, radius)
        projected = self.spectrum(values / radius)
        kept = projected != 0
        if not kept.all():
            projected, vectors = projected[kept], vectors[:, kept]
        self._rank = len(projected)
        return np.asarray((vectors * (radius * projected)) @ vectors.T)

    def spectrum(self, values: Matrix) -> Matrix:
        """The projected eigenvalues: min(1, max(w - gamma, 0)), which sum to K."""
        return np.clip(values - _shift(values, self.k), 0.0, 1.0)

    def support_function(self, matrix: Matrix) -> float:
        """Largest tr(M H) over the Fantope. Overwrites the matrix."""
        values = scipy.linalg.eigh(matrix.T, eigvals_only=True, overwrite_a=True, check_finite=False)
        return float(values[-self.k :].sum())

    def _decompose(self, matrix: Matrix, radius: float) -> tuple[Matrix, Matrix]:
        """All eigenpairs, or the leading ones where the others are known to be projected to zero."""
        d = len(matrix)
        if self._rank is not None and (r := max(self._rank, self.k) + 3) <= FEW * d:
            values, vectors = scipy.linalg.eigh(
                matrix.T, subset_by_index=[d - r, d - 1], driver="evr", check_finite=False
            )
            # LAPACK's dsyevr returns nothing at all where the boundary cuts a cluster of eigenvalues
            if len(values) == r and values[0] / radius <= _shift(values / radius, self.k):
                return values, vectors
        return scipy.linalg.eigh(matrix.T, driver="evd", overwrite_a=True, check_finite=False)  # type: ignore[no-any-return]


def _shift(values: Matrix, total: float) -> float:
    """A root gamma of sum_j min(1, max(w_j - gamma, 0)) = total, for 0 < total <= len(values)."""
    ascending = np.sort(values)
    tails = np.append(np.cumsum(ascending[::-1])[::-1], 0.0)

    def excess(points: Matrix) -> Matrix:
        """sum_j max(w_j - p, 0) for every point p."""
        first_above = np.searchsorted(ascending, points)
        return np.asarray(tails[first_above] - points * (len(ascending) - first_above))

    points = np.sort(np.concatenate([ascending - 1.0, ascending]))  # the sum is linear between these, and falls
    sums = excess(points) - excess(points + 1.0)
    return float(np.interp(total, sums[::-1], points[::-1]))


class _Admm:
    """State of ADMM, with scaled dual variables, that of the lasso first. For B = I: constraint P = H."""

    sparse: Matrix
    _radius = 1.0

    def __init__(self, a: Matrix, penalty: float, k: int) -> None:
        self._a, self._penalty, self._project = a, penalty, _Projection(k)
        #: largest tr(A P) over the Fantope
        self.scale = self._project.support_function(self._whitened(a.copy()))
        self._nu = abs(self.scale) / k / self._radius**2 or 1.0
        self._h, self._duals = np.zeros_like(a), [np.zeros_like(a)]

    def resume(self, fit: FantopeFit) -> None:
        self._h = fit.spectral.copy()
        self._duals = [(self._a - fit.multiplier) / self._nu]

    def step(self) -> tuple[float, float]:
        """One iteration; the relative primal and dual residuals."""
        previous, (dual,) = self._h, self._duals
        p = self.sparse = self._lasso(previous - dual)
        dual += OVERRELAXATION * p
        dual += (1 - OVERRELAXATION) * previous
        h = self._h = self._project(dual.copy())
        dual -= h
        return _residuals((p, h), (h, previous), (dual,))

    def spectral(self) -> Matrix:
        """H."""
        return self._h

    def feasible(self) -> Matrix:
        """B^{-1/2} H B^{-1/2}."""
        return self._h

    def multiplier(self) -> Matrix:
        return np.clip(self._a - self._nu * self._duals[0], -self._penalty, self._penalty)

    def certify(self) -> tuple[float, float]:
        point = self.feasible()
        objective = -float(np.vdot(self._a, point)) + self._penalty * float(np.abs(point).sum())
        bound = -self._project.support_function(self._whitened(self._a - self.multiplier()))
        return objective, objective - bound

    def balance(self, primal: float, dual: float) -> None:
        """Move nu towards equal residuals (He, Yang and Wang 2000), leaving the unscaled duals as they are."""
        factor = min(max(math.sqrt(primal / dual), 0.2), 5.0) if primal > 0 and dual > 0 else 1.0
        if not 2 / 3 <= factor <= 1.5:
            self._nu *= factor
            for scaled in self._duals:
                scaled *= 1 / factor

    def _whitened(self, matrix: Matrix) -> Matrix:
        """B^{-1/2} M B^{-1/2} up to a rotation; may overwrite its argument."""
        return matrix

    def _lasso(self, target: Matrix) -> Matrix:
        """Minimizer of nu/2 |P - target|_F^2 - tr(A P) + phi |P|_{1,1}: a soft threshold. Overwrites the target."""
        target += self._a / self._nu
        threshold = self._penalty / self._nu
        target -= np.clip(target, -threshold, threshold)
        return target


class _Congruence(_Admm):
    """B = U diag(c b) U^T with det(b) = 1: constraints P = U Q U^T and H = c S Q, S_ij = sqrt(b_i b_j) entrywise.

    H, kept as H / c, Q and the second dual variable live in the eigenbasis of B: the Fantope does not see the rotation.
    """

    def __init__(self, a: Matrix, b: Matrix, ridge: float, penalty: float, k: int) -> None:
        values, self._basis = scipy.linalg.eigh(b, driver="evd")
        values = values + ridge
        if not values[0] > len(b) * np.finfo(float).eps * values[-1]:
            raise np.linalg.LinAlgError(f"B + ridge I is not positive definite ({values[0]:.3g}): pass a larger ridge")
        self._radius = 1.0 / math.exp(float(np.log(values).mean()))  # 1 / c
        roots = np.sqrt(values * self._radius)
        self._s = np.outer(roots, roots)
        self._weights = 1.0 / (1.0 + self._s**2)
        super().__init__(a, penalty, k)
        self._p, self._q = np.zeros_like(a), np.zeros_like(a)
        self._duals.append(np.zeros_like(a))

    def resume(self, fit: FantopeFit) -> None:
        super().resume(fit)
        self._p = fit.feasible.copy()
        self._q = self._rotated(self._p)
        self._duals.append(-self._rotated(self._duals[0]) / self._s)

    def step(self) -> tuple[float, float]:
        image, (lasso_part, spectral_part) = self._s * self._q, self._duals
        p = self.sparse = self._lasso(self._p - lasso_part)
        h = self._h = self._project(image - spectral_part, self._radius)
        lasso_part += OVERRELAXATION * p
        lasso_part += (1 - OVERRELAXATION) * self._p
        spectral_part += OVERRELAXATION * h
        spectral_part += (1 - OVERRELAXATION) * image
        self._q = self._rotated(lasso_part)
        self._q += self._s * spectral_part
        self._q *= self._weights
        previous, self._p = self._p, self._basis @ self._q @ self._basis.T
        new_image = self._s * self._q
        lasso_part -= self._p
        spectral_part -= new_image
        return _residuals(
            (p, self._p, h, new_image), (self._p, previous, new_image, image), (lasso_part, spectral_part)
        )

    def spectral(self) -> Matrix:
        return np.asarray(self._basis @ (self._h / self._radius) @ self._basis.T)

    def feasible(self) -> Matrix:
        return np.asarray(self._basis @ (self._h / self._s) @ self._basis.T)

    def _rotated(self, matrix: Matrix) -> Matrix:
        return np.asarray(self._basis.T @ matrix @ self._basis)

    def _whitened(self, matrix: Matrix) -> Matrix:
        rotated = self._rotated(matrix)
        rotated *= self._radius
        rotated /= self._s
        return rotated


def _residuals(primal: tuple[Matrix, ...], change: tuple[Matrix, ...], dual: tuple[Matrix, ...]) -> tuple[float, float]:
    """|x - z| over max(|x|, |z|) for (x, z, x', z', ...), and the change of z over the size of the dual variable."""
    sizes = max(_norm(*primal[::2]), _norm(*primal[1::2]))
    moved = _norm(*(new - old for new, old in zip(change[::2], change[1::2], strict=True)))
    missed = _norm(*(x - z for x, z in zip(primal[::2], primal[1::2], strict=True)))
    return missed / sizes if sizes > 0 else 0.0, moved / size if (size := _norm(*dual)) > 0 else 0.0


def _norm(*blocks: Matrix) -> float:
    return math.hypot(*(float(np.linalg.norm(block)) for block in blocks))


def _symmetrized(matrix: Matrix) -> Matrix:
    return np.asarray((matrix + matrix.T) / 2)
