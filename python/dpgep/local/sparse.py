"""Sparse principal components of a released second moment: Fantope projection and selection."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep.methods.accuracy import quotient_accuracy
from dpgep.methods.base import Diagnostics, MethodResult, method_result, support_of
from dpgep.methods.papers.fantope import FantopeFit, fantope_relaxation
from dpgep.models.model import Matrix, Model
from dpgep.serialization import stored_as


@stored_as("fantope")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FantopeDiagnostics(Diagnostics):
    """How the relaxation went; all from released values. Expected errors are of the noise on the features in use.

    Attributes
    ----------
    penalty : phi.
    support : indices of the features that any component uses.
    fit : the relaxation itself; ``start=`` of the next penalty.
    """

    penalty: float
    support: tuple[int, ...]
    fit: FantopeFit

    @property
    def n_iterations(self) -> int:
        """Steps of ADMM."""
        return self.fit.n_iterations

    @property
    def converged(self) -> bool:
        """Whether the duality gap met the tolerance."""
        return self.fit.converged

    @property
    def objective(self) -> float:
        """-tr(S H) + phi ||H||_{1,1} at the H found."""
        return self.fit.objective

    @property
    def gap(self) -> float:
        """No H of the Fantope is better by more."""
        return self.fit.gap

    def summary(self) -> list[str]:
        end = "converged" if self.converged else "NOT converged"
        return [
            f"  Fantope      {self.n_iterations} iterations, {end}: gap {self.gap:.2g} of {abs(self.objective):.3g}",
            f"  sparsity     penalty {self.penalty:.3g}, {len(self.support)} features used",
        ]


def default_penalty(deviation: float, d: int) -> float:
    """What the largest entry of GOE(deviation) exceeds with probability below 1/2 only: s sqrt(2 log(d (d + 1))).

    Wang and Xu (2020, Theorem 4) ask for a penalty above the largest error of an entry; in the local model that is
    mostly the noise, whose deviation is public.
    """
    return deviation * math.sqrt(2 * math.log(d * (d + 1)))


def sparse_components(
    model: Model,
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
        noise_level=noise_level, accuracy=accuracy, penalty=penalty, support=support_of(components), fit=fit
    )
    accuracy_warnings = [] if fit.converged else [_not_converged(fit)]
    return method_result(model, None, components, values[::-1].copy(), diagnostics, accuracy_warnings)


def _support(sparse: Matrix, k: int) -> NDArray[np.intp]:
    """Features with an entry; all of them where fewer than K have one, as may happen before convergence."""
    used = np.flatnonzero(sparse.any(axis=0))
    return used if len(used) >= k else np.arange(len(sparse))


def _not_converged(fit: FantopeFit) -> str:
    return (
        f"the sparse relaxation had not converged after {fit.n_iterations} iterations: its objective "
        f"{fit.objective:.6g} may be {fit.gap:.2g} above the optimum; raise max_iterations or tolerance"
    )
