"""Simultaneous reduction (Chen et al., Algorithms 1 to 3: SR+DP, DPSR, DPSRS), with a sound calibration.

    V (B + xi I) V^T = D = diag(Lambda + xi),   W = D^(-1/2) V,   U (W A W^T) U^T = diag(lambda),   components U W,

rows being vectors, V (d, d) and U (K, d) with orthonormal rows. "sr-dp" releases the pair once and does this exactly.
"dpsr" finds V, then U, by gradient steps with orthonormalization on products that the curator makes noisy,

    V <- orth(V + 2 eta_B V B),   U <- orth(U + 2 eta_A (U W) A W^T),

and "dpsrs" keeps the largest features of U W between two orthonormalizations. docs/reduction.md says where we depart
from the paper, and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import Count, NonNegative, Positive
from dpgep._dispatch import core
from dpgep.methods import base
from dpgep.methods.base import Diagnostics, MethodResult, Options
from dpgep.methods.eigen import leading_first, null_eigenvalue, products_accuracy
from dpgep.methods.release import release, singular_warning
from dpgep.methods.ridge import PART, products_ridge
from dpgep.models.model import Matrix, PublicSide
from dpgep.privacy.curator import Curator
from dpgep.privacy.products import NoisyProducts, ProductNoise, Products
from dpgep.serialization import stored_as

# A phase has converged where no whitened direction is correlated with the others, or the span moves, by more than this.
TOLERANCE = 1e-10
_STILL = 1e-4  # movement of the span (sum of squared sines, rooted) in the last step that is warned of
# A step of 1 over this part of the largest eigenvalue of B is long: eigenvalues below it separate slowly.
_SHORTEST = 1e-3
# Under lazy noise, how many steps on B until the next look at whether they are enough: it costs half as much as a step.
_LOOK = 10
# On B and on A. 15 are the paper's; an iteration on B costs a QR of d x d, one on A of d x K.
_ITERATIONS = {"fresh": (15, 15), "lazy": (30, 300)}

Times = Callable[[Matrix], Matrix]


@dataclass(frozen=True, kw_only=True)
class SimultaneousReductionOptions(Options):
    """Options of "sr-dp".

    Parameters
    ----------
    regularization : float, optional
        xi >= 0, as in "release".
    """

    regularization: NonNegative | None = None

    def in_one_pass(self, n_features: int) -> bool:
        return True


def sr_dp(curator: Curator, n_components: int, options: SimultaneousReductionOptions) -> MethodResult:
    """SR+DP: one joint release of A and B, then Algorithm 1, which is how "release" solves a pair.

    The paper adds noise to A and to B, each at the whole budget.
    """
    return release(curator, n_components, base.ReleaseOptions(regularization=options.regularization, storage="matrix"))


@dataclass(frozen=True, kw_only=True)
class DpsrOptions(Options):
    """Options of "dpsr".

    Parameters
    ----------
    n_iterations_b, n_iterations_a : int, optional
        Times with B and with A (m of the paper for both). Default 15 each under fresh noise, where each costs; under
        lazy noise at most 30 and 300, fewer if a phase converges. Where B is the identity, all are for A.
    step_size_b : float, optional
        eta_B. Only ratios of 1 + 2 eta lambda count: the longer, the faster. Default under lazy noise: half of 1 over
        the noise level, beyond which negative eigenvalues of noise would stand in the way (at most 1000 over the
        largest eigenvalue); under fresh noise, where a short step averages over more answers, 1 over the largest
        eigenvalue in the first.
    step_size_a : float, optional
        eta_A. Default: 1 over the largest norm of U W A W^T so far, which tends to the leading eigenvalue.
    noise : {"lazy", "fresh"}
        One noisy pair for all products, or new noise for each.
    regularization : float, optional
        xi >= 0, public. Default: 0.3 of the known noise level of B (over sqrt(n_iterations_b) under fresh noise).
    """

    n_iterations_b: Count | None = None
    n_iterations_a: Count | None = None
    step_size_b: Positive | None = None
    step_size_a: Positive | None = None
    noise: Literal["fresh", "lazy"] = "lazy"
    regularization: NonNegative | None = None

    sparsity = 0  # not truncated

    @property
    def most_iterations(self) -> tuple[int, int]:
        """With B, and with A."""
        of_b, of_a = _ITERATIONS[self.noise]
        return self.n_iterations_b or of_b, self.n_iterations_a or of_a


@dataclass(frozen=True, kw_only=True)
class DpsrsOptions(DpsrOptions):
    """Options of "dpsrs": as of "dpsr", and

    Parameters
    ----------
    sparsity : int
        s, the number of features that the components use together; needed. Truncation begins halfway (under lazy noise,
        once the dense iteration has converged, if earlier): at first it would keep the features of a random start.
    """

    sparsity: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        base.require_given_sparsity(self.sparsity)

    def check(self, public: PublicSide, k: int) -> None:
        base.require_sparsity(self.sparsity, public.model, k)


@stored_as("reduction")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ReductionDiagnostics(Diagnostics):
    """How the two phases went; all from noisy answers. Expected errors come from quotients and the law of one answer's
    noise.

    Attributes
    ----------
    eigenvalues_b : Lambda, descending; empty where B is the identity.
    rank : number of directions with Lambda + xi > 0; the others were left out.
    whitening_error : largest norm of a row of W B~ W^T off its diagonal: 0 once V diagonalizes the noisy B.
    step_sizes : eta_B (0 where B is the identity) and the last eta_A.
    n_iterations : products in the first and in the second phase.
    converged : whether the second phase did. Under fresh noise it never does.
    support : indices of the features that any component uses.
    """

    eigenvalues_b: Matrix
    rank: int
    whitening_error: float
    step_sizes: tuple[float, float]
    n_iterations: tuple[int, int]
    converged: bool
    support: tuple[int, ...]

    def summary(self) -> list[str]:
        lines = []
        if len(self.eigenvalues_b):
            lines.append(f"  reducing B   {self.n_iterations[0]} products, whitening error {self.whitening_error:.2g}")
        end = "converged" if self.converged else "not converged"
        return [*lines, f"  reducing A   {self.n_iterations[1]} products, {end}"]


@dataclass(frozen=True, eq=False)
class _Reduction:
    """B + xi I as V^T diag(scales) V, V (r, d) with orthonormal rows; the identity where V is None."""

    vectors: Matrix | None  # V, without the directions in which D is zero to rounding
    scales: Matrix  # D = Lambda + xi
    eigenvalues: Matrix  # this and what follows are for the diagnostics
    whitening_error: float
    step_size: float
    n_products: int

    def expand(self, u: Matrix) -> Matrix:
        """U W: features from whitened coordinates."""
        return u if self.vectors is None else np.asarray((u / np.sqrt(self.scales)) @ self.vectors)

    def project(self, y: Matrix) -> Matrix:
        """Y W^T: products with A in whitened coordinates."""
        return y if self.vectors is None else np.asarray((y @ self.vectors.T) / np.sqrt(self.scales))

    def coordinates(self, x: Matrix) -> Matrix:
        """The U of X = U W."""
        return x if self.vectors is None else np.asarray((x @ self.vectors.T) * np.sqrt(self.scales))

    def solve_restricted(self, y: Matrix, support: NDArray[np.int64]) -> Matrix:
        """Y B_S^-1, B_S = B + xi I restricted to some features."""
        if self.vectors is None:
            return y
        half = self.vectors[:, support] * np.sqrt(self.scales)[:, None]
        factor = scipy.linalg.cho_factor(half.T @ half, check_finite=False)
        return np.asarray(scipy.linalg.cho_solve(factor, y.T, check_finite=False).T)


@dataclass(frozen=True, eq=False)
class _Leading:
    """Leading eigenvectors (K, d) in features, their eigenvalues, and how it went."""

    vectors: Matrix
    eigenvalues: Matrix
    step_size: float
    n_products: int
    converged: bool
    first: float  # the mean eigenvalue of the vectors drawn at random
    movement: float  # the last step's


def dpsr(curator: Curator, n_components: int, options: DpsrOptions) -> MethodResult:
    """The K leading solutions by two rounds of noisy gradient steps; sparse ones under `DpsrsOptions`."""
    most_b, n_products = options.most_iterations[0], sum(options.most_iterations)
    products = curator.answer(Products(ProductNoise(options.noise, "goe", n_products)))
    generator, d = curator.public_generator(), curator.model.n_features
    n_answers = 1 if products.lazy else most_b
    xi = products_ridge(products, options.regularization, multiple=PART, n_answers=n_answers)
    of_a, of_b = (lambda block: products.times(block)[0]), (lambda block: products.times(block)[1])
    if products.identity_b:
        reduction = _Reduction(None, np.ones(d), np.empty(0), 0.0, 0.0, 0)
    else:
        if products.lazy:  # the noisy pair, asked for once, says what products that cost nothing would say
            a, b = ((answer + answer.T) / 2 for answer in products.times(np.eye(d)))
            of_a, of_b = (lambda block: block @ a), (lambda block: block @ b)
        start = _orthonormal(generator.standard_normal((d, d)))[0]
        reduction = _reduce_b(of_b, start, xi, most_b, options.step_size_b, products)
    rank = len(reduction.scales)
    if options.sparsity and rank < d:
        raise np.linalg.LinAlgError(f"B is singular, rank {rank} of {d}: a sparse solution needs regularization > 0")
    start = _orthonormal(generator.standard_normal((min(n_components, rank), rank)))[0]
    leading = _reduce_a(of_a, reduction, start, n_products - reduction.n_products, options, products.lazy)
    diagnostics = ReductionDiagnostics(
        noise_level=products.noise_level,
        regularization=xi,
        accuracy=products_accuracy(
            curator.model,
            products,
            leading.eigenvalues,
            1 / np.einsum("ij,ij->i", leading.vectors, leading.vectors),  # solutions have norm 1 in B + xi I
            ridge=xi,
            centre=null_eigenvalue(curator.model, np.array([leading.first])) if products.identity_b else 0.0,
            sparsity=options.sparsity or None,
        ),
        eigenvalues_b=np.sort(reduction.eigenvalues)[::-1],
        rank=rank,
        whitening_error=reduction.whitening_error,
        step_sizes=(reduction.step_size, leading.step_size),
        n_iterations=(reduction.n_products, leading.n_products),
        converged=leading.converged,
        support=base.support_of(leading.vectors),
    )
    said, more = [*singular_warning(rank, d, n_components)], "(under lazy noise they cost no privacy), or use method="
    if products.lazy and leading.movement > _STILL:
        said.append(
            f"the second phase had not converged after {leading.n_products} products: raise n_iterations_a "
            f'{more}"release"'
        )
    if products.lazy and reduction.whitening_error > 1:
        said.append(f'the first phase has not separated the eigenvectors of B: raise n_iterations_b {more}"sr-dp"')
    return base.method_result(curator.model, products.groups, leading.vectors, leading.eigenvalues, diagnostics, said)


def _reduce_b(times: Times, v: Matrix, xi: float, most: int, step: float | None, products: NoisyProducts) -> _Reduction:
    """First phase. Raises LinAlgError where B + xi I is zero to rounding."""
    n_products = 0
    while True:
        vb = times(v)
        n_products += 1
        if step is None:  # long if the noise is always the same, so that its level bounds negative eigenvalues
            image = v @ vb.T
            largest = float(scipy.linalg.eigvalsh((image + image.T) / 2)[-1])
            step = _reciprocal(max(2 * products.noise_level, _SHORTEST * largest) if products.lazy else largest)
        if n_products == most or (products.lazy and n_products % _LOOK == 0):
            reduction = _measured(v, v @ vb.T, xi, step, n_products)
            if n_products == most or reduction.whitening_error <= TOLERANCE:
                return reduction
        stay, move = _weights(step)
        v, _ = _orthonormal(stay * v + move * vb)


def _weights(step: float) -> tuple[float, float]:
    """1 and 2 eta up to a factor, which orth does not see: neither overflows, so that no step loses what was paid."""
    return (1.0, 2 * step) if step <= 1 else (0.5 / step, 1.0)


def _measured(v: Matrix, image: Matrix, xi: float, step: float, n_products: int) -> _Reduction:
    """The reduction by V as it is, ``image`` being V B~ V^T."""
    eigenvalues = np.maximum(np.diagonal(image), 0.0)
    scales = eigenvalues + xi
    kept = scales > len(scales) * np.finfo(float).eps * scales.max()
    if not kept.any():
        raise np.linalg.LinAlgError("B is numerically zero: no direction to solve for; pass regularization > 0")
    scales = scales[kept]
    whitened = image[np.ix_(kept, kept)] / np.sqrt(np.outer(scales, scales))
    np.fill_diagonal(whitened, 0.0)
    error = float(np.linalg.norm((whitened + whitened.T) / 2, axis=1).max())
    return _Reduction(v[kept], scales, eigenvalues, error, step, n_products)


def _reduce_a(
    times: Times, reduction: _Reduction, start: Matrix, most: int, options: DpsrOptions, lazy: bool
) -> _Leading:
    """Second phase: the leading eigenvectors of W A W^T by products of A with the few rows of U W."""
    u, x = start, reduction.expand(start)
    sparse, truncating, converged = options.sparsity > 0, False, False
    if sparse and most == 1:  # no step to truncate in
        u, x = _restricted(reduction, x, _largest_features(x, options.sparsity))
    step, n_products, first, movement = options.step_size_a or math.inf, 0, math.nan, math.inf
    while True:
        xa = times(x)
        n_products += 1
        if n_products == 1:
            first = float(np.einsum("ij,ij->", x, xa)) / len(x)
        if n_products == most or converged:
            break
        gradient = reduction.project(xa)
        if options.step_size_a is None:
            # the largest so far: a negative eigenvalue that outgrows the others shows in it, and is then held at bay
            step = min(step, _reciprocal(float(np.linalg.norm(gradient, 2))))
        stay, move = _weights(step)
        moved, _ = _orthonormal(stay * u + move * gradient)
        truncating = truncating or (sparse and 2 * n_products >= most)
        if truncating:
            support = _largest_features(reduction.expand(moved), options.sparsity)
            moved, x = _restricted(reduction, stay * x, support, move * xa)
        else:
            x = reduction.expand(moved)
        movement = float(np.linalg.norm(moved - (moved @ u.T) @ u))
        at_rest = lazy and movement <= TOLERANCE
        u, converged = moved, at_rest and (truncating or not sparse)
        truncating = truncating or (sparse and at_rest)
    values, rotation = leading_first(x @ xa.T)
    taken = 0.0 if math.isinf(step) else step
    return _Leading(rotation.T @ x, values, taken, n_products, converged, first, movement)


def _largest_features(x: Matrix, sparsity: int) -> NDArray[np.int64]:
    return core.truncate_rows_top_k(np.ascontiguousarray(x.T), sparsity)


def _restricted(
    reduction: _Reduction, x: Matrix, support: NDArray[np.int64], move: Matrix | None = None
) -> tuple[Matrix, Matrix]:
    """(U, U W) with rows of U orthonormal: the features ``support`` of ``x``, moved by a gradient of features."""
    # B restricted to the support turns the gradient into a step, so that the iteration rests where the restricted
    # problem is solved; truncating a step of the whole problem, it would rest beside it
    kept = np.zeros_like(x)
    kept[:, support] = x[:, support]
    if move is not None:
        kept[:, support] += reduction.solve_restricted(move[:, support], support)
    u, mixing = _orthonormal(reduction.coordinates(kept))
    # rows of ``kept`` are mixed, rather than U mapped forward: zeros stay zeros
    return u, scipy.linalg.solve_triangular(mixing, kept, trans="T", check_finite=False)


def _orthonormal(block: Matrix) -> tuple[Matrix, Matrix]:
    """(Q, R) with block = R^T Q, Q of orthonormal rows, R upper triangular: Householder, by LAPACK."""
    q, r = scipy.linalg.qr(block.T, mode="economic", check_finite=False)
    return np.ascontiguousarray(q.T), r


def _reciprocal(value: float) -> float:
    """1 / value for what should be a positive size; 1 where noise, or a matrix of zeros, left nothing of it."""
    return 1 / value if value > np.finfo(float).tiny else 1.0
