"""Sparse principal components of a released second moment: Fantope projection and selection."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.local.report import Matrix
from dpgep.methods.fantope import FantopeFit, fantope_relaxation
from dpgep.methods.quotient_accuracy import quotient_accuracy
from dpgep.methods.result import MethodResult, oriented
from dpgep.methods.significance import error_table, lost_caution


@dataclass(frozen=True, eq=False)
class FantopeDiagnostics:
    """How the relaxation went; all from released values.

    Attributes
    ----------
    noise_level : expected operator norm of the noise in the second moment.
    regularization : 0: B is the identity.
    penalty : phi.
    n_iterations : steps of ADMM.
    converged : whether the duality gap met the tolerance.
    objective, gap : -tr(S H) + phi ||H||_{1,1} at the H found; no H of the Fantope is better by more than the gap.
    support : indices of the features that any component uses.
    expected_error : (K,), expected squared sine of the angle between each component and the one without noise, from its
        variance and the law of the noise on the features in use; 1 where it is lost.
    expected_subspace_error : the same for the span, between 0 and K.
    lost : (K,), whether noise alone could show each component.
    fit : the relaxation itself; ``start=`` of the next penalty.
    """

    noise_level: float
    regularization: float
    penalty: float
    n_iterations: int
    converged: bool
    objective: float
    gap: float
    support: tuple[int, ...]
    expected_error: Matrix
    expected_subspace_error: float
    lost: tuple[bool, ...]
    fit: FantopeFit

    def table(self, eigenvalues: Matrix) -> list[str]:
        end = "converged" if self.converged else "NOT converged"
        lines = [
            f"  Fantope      {self.n_iterations} iterations, {end}: gap {self.gap:.2g} of {abs(self.objective):.3g}",
            f"  sparsity     penalty {self.penalty:.3g}, {len(self.support)} features used",
        ]
        return lines + error_table(eigenvalues, self.expected_error, self.lost)


def default_penalty(deviation: float, d: int) -> float:
    """What the largest entry of GOE(deviation) exceeds with probability below 1/2 only: s sqrt(2 log(d (d + 1))).

    Wang and Xu (2020, Theorem 4) ask for a penalty above the largest error of an entry; in the local model that is
    mostly the noise, whose deviation is public.
    """
    return deviation * math.sqrt(2 * math.log(d * (d + 1)))


def sparse_components(
    second: Matrix,
    noise_level: float,
    n_components: int,
    penalty: float,
    *,
    tolerance: float,
    max_iterations: int,
    start: FantopeFit | None,
) -> MethodResult:
    """K directions in the span of the leading eigenvectors of the relaxation's solution; ``second`` is kept.

    Within that span they are the ones of largest variance v^T S v, so that each is determined, not the span alone.
    """
    fit = fantope_relaxation(
        second, None, n_components, penalty, tolerance=tolerance, max_iterations=max_iterations, start=start
    )
    support = _support(fit.sparse, n_components)
    block = np.ix_(support, support)
    span = scipy.linalg.eigh(fit.sparse[block])[1][:, -n_components:]
    values, rotation = scipy.linalg.eigh(span.T @ second[block] @ span)
    components = np.zeros((n_components, len(second)))
    components[:, support] = (span @ rotation[:, ::-1]).T
    accuracy = quotient_accuracy(
        values[::-1],
        np.ones(n_components),
        noise_level=noise_level,
        n_features=len(second),
        sparsity=len(support),
        centre=float(np.diagonal(second).mean()),
    )
    diagnostics = FantopeDiagnostics(
        noise_level=noise_level,
        regularization=0.0,
        penalty=penalty,
        n_iterations=fit.n_iterations,
        converged=fit.converged,
        objective=fit.objective,
        gap=fit.gap,
        support=tuple(int(j) for j in np.flatnonzero(components.any(axis=0))),
        expected_error=accuracy.errors,
        expected_subspace_error=accuracy.span,
        lost=accuracy.lost,
        fit=fit,
    )
    return MethodResult(
        components=oriented(components),
        eigenvalues=values[::-1].copy(),
        mean=None,
        diagnostics=diagnostics,
        accuracy_warnings=(
            *(() if fit.converged else (_not_converged(fit),)),
            *lost_caution(accuracy.lost, len(second)),
        ),
    )


def _support(sparse: Matrix, k: int) -> NDArray[np.intp]:
    """Features with an entry; all of them where fewer than K have one, as may happen before convergence."""
    used = np.flatnonzero(sparse.any(axis=0))
    return used if len(used) >= k else np.arange(len(sparse))


def _not_converged(fit: FantopeFit) -> str:
    return (
        f"the sparse relaxation has not converged in {fit.n_iterations} iterations: its objective "
        f"{fit.objective:.6g} may be {fit.gap:.2g} above the least; raise max_iterations or tolerance"
    )
