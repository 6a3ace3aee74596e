"""`release`: one private release of everything the model needs, all else post-processing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import eye_array

from dpgep.methods.generalized_eigen import RIDGE, Eigensystem, positive_part, solve_pair
from dpgep.methods.options import require_count, require_flag, require_non_negative
from dpgep.methods.result import Matrix, MethodResult, oriented
from dpgep.methods.sparse import SparseFit, sparse_eigenvectors
from dpgep.privacy.curator import Curator, PublicSide

# Expected squared sine per component beyond which a warning says that the answer is mostly noise. From noise alone the
# estimate is 0.4 to 0.85, growing with the dimension: eigenvalues of noise repel each other.
LOST = 0.6


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """Options of "release".

    Parameters
    ----------
    regularization : float, optional
        xi >= 0, the multiple of the identity added to B, in the units of B. Must not be chosen by looking at the data.
        Default: 0.3 times the known noise level.
    sparsity : int or "auto", optional
        k: components with at most k nonzero entries, searched for on the released pair, which costs nothing. "auto"
        keeps the coordinates that stand out of the known noise. Default: dense.
    separate_supports : bool
        Several sparse components have k entries each; default, all share one support of k features.
    """

    regularization: float | None = None
    sparsity: int | str | None = None
    separate_supports: bool = False

    def __post_init__(self) -> None:
        if self.regularization is not None:
            require_non_negative("regularization", self.regularization)
        if isinstance(self.sparsity, str):
            if self.sparsity != "auto":
                raise ValueError(f'sparsity must be a whole number or "auto", got {self.sparsity!r}')
        elif self.sparsity is not None:
            require_count("sparsity", self.sparsity)
        require_flag("separate_supports", self.separate_supports)
        if self.separate_supports and self.sparsity is None:
            raise ValueError("separate_supports is for sparse components: give sparsity as well")

    def check(self, public: PublicSide, k: int) -> None:
        """What depends on the problem. Raises before anything is released."""
        self.check_model(public.model, k)

    def check_model(self, model: Any, k: int) -> None:
        """What depends on the model of a problem."""
        if self.sparsity is None or isinstance(self.sparsity, str):
            return
        require_count("sparsity", self.sparsity, largest=model.n_features)
        if k > self.sparsity and not self.separate_supports:
            raise ValueError(f"{k} components need a sparsity of at least {k}, got {self.sparsity}")


@dataclass(frozen=True, eq=False)
class ReleaseDiagnostics:
    """What the released values say about their own accuracy. Nothing here costs privacy.

    Attributes
    ----------
    noise_level : expected operator norm of the noise in B, or in A where B is the identity (deviation x sqrt(2 d)).
    regularization : the multiple xi of the identity added to B (0 where B is the identity).
    rank : number of directions in which B + xi I is positive; the others were left out.
    spectrum : all eigenvalues of the released problem, descending; for a sparse solution, of its restriction to the
        features in use.
    eigengaps : (K,), distance of each eigenvalue to its nearest neighbour in the spectrum.
    expected_error : (K,), expected squared sine of the angle between each component and the one without noise, in the
        norm of B: t/(1 + t) with t = sum_j Var(v_j^T (dA - lambda_i dB) v_i) / (lambda_i - lambda_j)^2, first-order
        perturbation theory. Beyond about 0.5 the component is lost. For PCA t = s^2/2 sum_j 1/(lambda_i - lambda_j)^2
        plus the mean's part. For a sparse solution: given its features, whose choice may be wrong besides.
    expected_subspace_error : the same for the span of all K components: expected squared sines, summed, between 0 and
        K.
    support : the features that a sparse solution uses, ascending; None for a dense one.
    significant : (K,), under sparsity="auto" whether each component stands out of what noise alone could show.
    """

    noise_level: float
    regularization: float
    rank: int
    spectrum: Matrix
    eigengaps: Matrix
    expected_error: Matrix
    expected_subspace_error: float
    support: tuple[int, ...] | None = None
    significant: tuple[bool, ...] | None = None

    def table(self, eigenvalues: Matrix) -> list[str]:
        lines = [] if self.support is None else [f"  features     {len(self.support)} in use"]
        lines.append("    k  eigenvalue     eigengap  expected error (squared sine)")
        for row, (value, gap, error) in enumerate(zip(eigenvalues, self.eigengaps, self.expected_error, strict=True)):
            shown = f"{error:.2g}" + (" (lost in noise)" if error > 0.5 else "")
            lines.append(f"  {row + 1:3d}  {value:10.4g}   {gap:10.3g}  {shown}")
        return lines


def release(curator: Curator, n_components: int, options: ReleaseOptions) -> MethodResult:
    """One noisy release, then the K leading eigenvectors of A v = lambda (B_+ + xi I) v, dense or sparse."""
    return solve_released(curator.model, curator.release(), n_components, options)


def solve_released(model: Any, released: Any, n_components: int, options: ReleaseOptions) -> MethodResult:
    """All that follows from the one answer: post-processing."""
    pair = model.pair(released)
    ridge = 0.0 if pair.b is None else RIDGE * pair.noise_level
    xi = ridge if options.regularization is None or pair.b is None else options.regularization
    if options.sparsity is None:
        system = solve_pair(pair.a, pair.b, regularization=xi, rounding=pair.rounding, fallback=ridge)
        k = min(n_components, len(system.values))
        if k == 0:
            raise np.linalg.LinAlgError("B is zero to rounding: no direction to solve for; pass regularization > 0")
        components, eigenvalues, support = system.vectors[:, :k].T, system.values[:k].copy(), None
        significant = None
    else:
        fit = _sparse(model, released, pair, n_components, xi, options)
        system = _on_support(pair, fit, xi, ridge)
        components, eigenvalues = fit.vectors, fit.eigenvalues
        k, support, significant = len(eigenvalues), _features(fit), fit.significant
    leading = system.vectors[:, :k] if support is None or not options.separate_supports else components.T
    variances = model.error_variances(released, system.vectors, leading, eigenvalues)
    diagnostics = _diagnose(system, variances, pair.noise_level, support, significant)
    return MethodResult(
        components=oriented(components),
        eigenvalues=eigenvalues,
        mean=model.mean(released),
        diagnostics=diagnostics,
        cautions=tuple(_cautions(diagnostics, model.n_features, n_components, xi)),
    )


def _sparse(model: Any, released: Any, pair: Any, n_components: int, ridge: float, options: Any) -> SparseFit:
    coordinates = eye_array(len(pair.a), format="csr")

    def residual_deviation(vectors: Matrix, values: Matrix) -> Matrix:
        """Deviation of the noise in each entry of (A - value B) v, one row for each vector."""
        return np.asarray(np.sqrt(model.error_variances(released, coordinates, vectors.T, values)))

    return sparse_solution(
        pair,
        options.sparsity,
        n_components,
        ridge=ridge,
        separate_supports=options.separate_supports,
        residual_deviation=residual_deviation,
    )


def sparse_solution(pair: Any, sparsity: Any, n_components: int, *, ridge: float, **settings: Any) -> SparseFit:
    """Sparse eigenvectors of a released pair, whose noisy B need not be positive definite on every support.

    Where it is not, its positive part takes its place, with at least the default ridge: the answer is paid for.
    """
    try:
        return sparse_eigenvectors(pair.a, pair.b, sparsity, n_components, ridge=ridge, **settings)
    except np.linalg.LinAlgError:
        least = max(ridge, RIDGE * pair.noise_level, pair.rounding)
        b = positive_part(pair.b.copy())
        return sparse_eigenvectors(pair.a, b, sparsity, n_components, ridge=least, **settings)


def _features(fit: SparseFit) -> tuple[int, ...]:
    return tuple(np.flatnonzero(np.abs(fit.vectors).max(axis=0)).tolist())


def _on_support(pair: Any, fit: SparseFit, ridge: float, fallback: float) -> Eigensystem:
    """All solutions of the pair restricted to the features in use, as vectors of full length."""
    features = np.array(_features(fit))
    corner = np.ix_(features, features)
    b = None if pair.b is None else pair.b[corner]
    small = solve_pair(pair.a[corner], b, regularization=ridge, rounding=pair.rounding, fallback=fallback)
    vectors = np.zeros((len(pair.a), small.vectors.shape[1]))
    vectors[features] = small.vectors
    return Eigensystem(small.values, vectors, small.regularization)


def _diagnose(
    system: Eigensystem,
    variances: Matrix,
    noise_level: float,
    support: tuple[int, ...] | None,
    significant: tuple[bool, ...] | None,
) -> ReleaseDiagnostics:
    k, xi = len(variances), system.regularization
    gaps = np.abs(system.values[:k, None] - system.values)
    np.fill_diagonal(gaps, np.inf)  # a component has no gap to itself
    with np.errstate(divide="ignore", invalid="ignore"):
        tangents = np.where(variances > 0, variances / gaps**2, 0.0)
    if xi > 0:
        # v_j has unit norm in B + xi I; the part that xi contributes is variance of nobody
        tangents *= np.clip(1 - xi * np.einsum("ij,ij->j", system.vectors, system.vectors), 0.0, 1.0)
    return ReleaseDiagnostics(
        noise_level=noise_level,
        regularization=xi,
        rank=len(system.values),
        spectrum=system.values.copy(),
        eigengaps=gaps.min(axis=1, initial=np.inf),
        expected_error=_squared_sine(tangents.sum(axis=1)),
        expected_subspace_error=float(_squared_sine(tangents[:, k:].sum(axis=1)).sum()),
        support=support,
        significant=significant,
    )


def _squared_sine(squared_tangent: Matrix) -> Matrix:
    return np.asarray(1 - 1 / (1 + squared_tangent))


def _cautions(diagnostics: ReleaseDiagnostics, d: int, asked: int, regularization: float) -> Iterator[str]:
    """What to warn the caller of. Not warned here: an error filter must not lose an answer that is paid for."""
    k, error = len(diagnostics.expected_error), diagnostics.expected_subspace_error
    full = d if diagnostics.support is None else len(diagnostics.support)
    if diagnostics.regularization != regularization:
        yield (
            f"the noisy B has no positive eigenvalue: regularization {diagnostics.regularization:.3g} was used "
            f"instead of {regularization:.3g}"
        )
    if diagnostics.rank < full:
        fewer = f", which leaves {diagnostics.rank} of {asked} components" if diagnostics.rank < asked else ""
        yield (
            f"B is singular: rank {diagnostics.rank} of {full}; the problem was solved on its range{fewer} "
            "(pass regularization > 0 to use all directions)"
        )
    if diagnostics.significant is not None and not all(diagnostics.significant):
        lost = [row + 1 for row, significant in enumerate(diagnostics.significant) if not significant]
        yield (
            f"components {lost} do not stand out of the noise: no finding; use more rows, a larger budget, or give "
            "sparsity as a number"
        )
    if error > LOST * k:
        yield (
            f"the components are mostly noise: expected subspace error {error:.2g} of {k} (first-order estimate); "
            "use more rows, fewer features, or a larger budget"
        )
