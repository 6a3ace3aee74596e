"""`release`: one private release of everything the model needs, all else post-processing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpgep.methods.generalized_eigen import Eigensystem, Matrix, solve_pair
from dpgep.privacy.curator import Curator

# Share of the noise's operator norm that is added to B. Public constant: it worked best for discriminant analysis among
# the values tried in docs/mathematics.md, section 4.
RIDGE = 0.3
# Expected squared sine per component beyond which a warning says that the answer is mostly noise. From noise alone the
# estimate is 0.4 to 0.85, growing with the dimension: eigenvalues of noise repel each other.
LOST = 0.6


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What the released values say about their own accuracy. Nothing here costs privacy.

    Attributes
    ----------
    noise_level : expected operator norm of the noise in B, or in A where B is the identity (deviation x sqrt(2 d)).
    regularization : the multiple xi of the identity added to B (0 where B is the identity).
    rank : number of directions in which B + xi I is positive; the others were left out.
    spectrum : all eigenvalues of the released problem, descending.
    eigengaps : (K,), distance of each eigenvalue to its nearest neighbour in the spectrum.
    expected_error : (K,), expected squared sine of the angle between each component and the one without noise, in the
        norm of B: t/(1 + t) with t = sum_j Var(v_j^T (dA - lambda_i dB) v_i) / (lambda_i - lambda_j)^2, first-order
        perturbation theory. Beyond about 0.5 the component is lost. For PCA t = s^2/2 sum_j 1/(lambda_i - lambda_j)^2
        plus the mean's part.
    expected_subspace_error : the same for the span of all K components: expected squared sines, summed, between 0 and
        K.
    """

    noise_level: float
    regularization: float
    rank: int
    spectrum: Matrix
    eigengaps: Matrix
    expected_error: Matrix
    expected_subspace_error: float


@dataclass(frozen=True, eq=False)
class MethodResult:
    """What a method hands to the solution; ``cautions`` become warnings once the solution exists."""

    components: Matrix
    eigenvalues: Matrix
    mean: Matrix | None
    diagnostics: Diagnostics
    cautions: tuple[str, ...]


def release(curator: Curator, n_components: int, *, regularization: float | None = None) -> MethodResult:
    """One noisy release, then the K leading eigenvectors of A v = lambda (B_+ + xi I) v.

    Parameters
    ----------
    curator : Curator
        Answers for the data; everything after its one answer is post-processing.
    n_components : int
        K.
    regularization : float, optional
        xi >= 0, in the units of B. Must not be chosen by looking at the data. Default: RIDGE times the known noise
        level.
    """
    released = curator.release()
    pair = curator.model.pair(released)
    ridge = 0.0 if pair.b is None else RIDGE * pair.noise_level
    xi = ridge if regularization is None or pair.b is None else regularization
    system = solve_pair(pair.a, pair.b, regularization=xi, rounding=pair.rounding, fallback=ridge)
    k = min(n_components, len(system.values))
    if k == 0:
        raise np.linalg.LinAlgError("B is zero to rounding: no direction to solve for; pass regularization > 0")
    variances = curator.model.error_variances(released, system.vectors, system.values[:k])
    diagnostics = _diagnose(system, variances, pair.noise_level)
    return MethodResult(
        components=_oriented(system.vectors[:, :k].T),
        eigenvalues=system.values[:k].copy(),
        mean=curator.model.mean(released),
        diagnostics=diagnostics,
        cautions=tuple(_cautions(diagnostics, len(pair.a), n_components, xi)),
    )


def _diagnose(system: Eigensystem, variances: Matrix, noise_level: float) -> Diagnostics:
    k, xi = len(variances), system.regularization
    gaps = np.abs(system.values[:k, None] - system.values)
    np.fill_diagonal(gaps, np.inf)  # a component has no gap to itself
    with np.errstate(divide="ignore", invalid="ignore"):
        tangents = np.where(variances > 0, variances / gaps**2, 0.0)
    if xi > 0:
        # v_j has unit norm in B + xi I; the part that xi contributes is variance of nobody
        tangents *= np.clip(1 - xi * np.einsum("ij,ij->j", system.vectors, system.vectors), 0.0, 1.0)
    return Diagnostics(
        noise_level=noise_level,
        regularization=xi,
        rank=len(system.values),
        spectrum=system.values.copy(),
        eigengaps=gaps.min(axis=1, initial=np.inf),
        expected_error=_squared_sine(tangents.sum(axis=1)),
        expected_subspace_error=float(_squared_sine(tangents[:, k:].sum(axis=1)).sum()),
    )


def _squared_sine(squared_tangent: Matrix) -> Matrix:
    return np.asarray(1 - 1 / (1 + squared_tangent))


def _cautions(diagnostics: Diagnostics, d: int, asked: int, regularization: float) -> Iterator[str]:
    """What to warn the caller of. Not warned here: an error filter must not lose an answer that is paid for."""
    k, error = len(diagnostics.expected_error), diagnostics.expected_subspace_error
    if diagnostics.regularization != regularization:
        yield (
            f"the noisy B has no positive eigenvalue: regularization {diagnostics.regularization:.3g} was used "
            f"instead of {regularization:.3g}"
        )
    if diagnostics.rank < d:
        fewer = f", which leaves {diagnostics.rank} of {asked} components" if diagnostics.rank < asked else ""
        yield (
            f"B is singular: rank {diagnostics.rank} of {d}; the problem was solved on its range{fewer} "
            "(pass regularization > 0 to use all directions)"
        )
    if error > LOST * k:
        yield (
            f"the components are mostly noise: expected subspace error {error:.2g} of {k} (first-order estimate); "
            "use more rows, fewer features, or a larger budget"
        )


def _oriented(rows: Matrix) -> Matrix:
    """Unit rows whose largest entry is positive: eigenvectors have no sign of their own."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    largest = np.take_along_axis(unit, np.abs(unit).argmax(axis=1)[:, None], axis=1)
    return np.ascontiguousarray(unit * np.sign(largest))
