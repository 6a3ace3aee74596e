"""`release` of a matrix too large to hold: one noisy matrix known by its products, the same law as in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep.methods.accuracy import Accuracy
from dpgep.methods.initial_vectors import InitialVectors
from dpgep.methods.quotient_accuracy import quotient_accuracy
from dpgep.methods.rayleigh_flow import STEP, FlowDiagnostics, TruncatedFlowOptions, flow_on
from dpgep.methods.result import Matrix, MethodResult, oriented
from dpgep.methods.ridge import WHOLE, public_ridge
from dpgep.methods.search_space import Leading, leading_solutions
from dpgep.methods.significance import beyond_warning, error_table, lost_caution
from dpgep.methods.storage import directions_in
from dpgep.privacy.curator import Curator
from dpgep.privacy.products import NoisyProducts, ProductNoise

# Where sparse components are asked for, share of the room that may go to the dense ones they start from.
_DENSE_SHARE = 0.5


@dataclass(frozen=True, eq=False)
class OperatorDiagnostics:
    """What products of the released matrix say about the components. Nothing here costs privacy.

    There are no eigengaps: they need the whole matrix.

    Attributes
    ----------
    noise_level : expected operator norm of the noise in B, or in A where B is the identity (deviation x sqrt(2 d)).
    regularization : the multiple of the identity added to B (0 where B is the identity).
    n_directions : directions that the noisy matrix was asked for.
    movement : sine of the largest angle by which the last step turned the span of the dense components.
    converged : whether the components came to rest; sparse ones: the flow, wherever it began.
    expected_error : (K,), expected squared sine of the angle between each component and the one without noise, from its
        quotients and the law of the noise; 1 where it is lost (docs/mathematics.md, section 5).
    expected_subspace_error : the same for the span, between 0 and K.
    lost : (K,), whether noise alone could show each component.
    flow : of sparse components, which come from a truncated flow that begins at the dense ones.
    support : the features that a sparse solution uses, ascending; None for a dense one.
    storage : "operator".
    """

    noise_level: float
    regularization: float
    n_directions: int
    movement: float
    converged: bool
    expected_error: Matrix
    expected_subspace_error: float
    lost: tuple[bool, ...]
    flow: FlowDiagnostics | None = None
    support: tuple[int, ...] | None = None
    storage: str = "operator"

    def table(self, eigenvalues: Matrix) -> list[str]:
        end = "at rest" if self.converged else "not at rest"
        lines = [f"  storage      operator: {self.n_directions} directions asked, {end}"]
        if self.support is not None:
            lines.append(f"  features     {len(self.support)} in use")
        return lines + error_table(eigenvalues, self.expected_error, self.lost)


def operator_release(curator: Curator, k: int, options: Any) -> MethodResult:
    """The K leading solutions of a release that is known by its products, dense or sparse."""
    products = curator.products(ProductNoise("lazy", "goe", 0, options.memory_limit))
    ridge = 0.0 if products.identity_b else public_ridge(products.noise_level, multiple=WHOLE)
    xi = ridge if options.regularization is None or products.identity_b else options.regularization
    capacity = min(directions_in(options.memory_limit, curator.public, copies=1), products.capacity)
    leading = leading_solutions(
        products,
        curator.model,
        _start(curator, products, k),
        k,
        regularization=xi,
        fallback=ridge,
        most_directions=capacity if options.sparsity is None else _DENSE_SHARE * capacity,
    )
    if not len(leading.vectors):
        raise np.linalg.LinAlgError("B is zero to rounding: no direction to solve for; pass regularization > 0")
    solve = _dense if options.sparsity is None else _sparse
    return solve(curator, products, leading, k, options)


def _dense(curator: Curator, products: NoisyProducts, leading: Leading, k: int, options: Any) -> MethodResult:
    eigenvalues = leading.system.values[: len(leading.vectors)].copy()
    # Ritz values of noise lie evenly around its centre
    centre = curator.model.centre(leading.system.values[len(eigenvalues) :]) if products.identity_b else 0.0
    norms = np.linalg.norm(leading.vectors, axis=1)
    accuracy = quotient_accuracy(
        eigenvalues,
        1 / norms**2,  # solutions have norm 1 in B + xi I
        noise_level=products.noise_level,
        n_features=curator.model.n_features,
        identity_b=products.identity_b,
        ridge=leading.system.regularization,
        centre=centre,
        groups=products.groups,
        noise_order=curator.model.noise_order,
    )
    diagnostics = OperatorDiagnostics(
        noise_level=products.noise_level,
        regularization=leading.system.regularization,
        n_directions=leading.n_directions,
        movement=leading.movement,
        converged=leading.converged,
        expected_error=accuracy.errors,
        expected_subspace_error=accuracy.span,
        lost=accuracy.lost,
    )
    mean = None if products.groups is None else curator.model.mean(products.groups)
    accuracy_warnings = (
        *_accuracy_warnings(leading, k, accuracy, curator.model.n_features),
        *beyond_warning(curator.model, eigenvalues),
    )
    return MethodResult(oriented(leading.vectors), eigenvalues, mean, diagnostics, accuracy_warnings)


def _sparse(curator: Curator, products: NoisyProducts, leading: Leading, k: int, options: Any) -> MethodResult:
    """A truncated flow from the dense components, which asks one direction of each a step."""
    start = np.zeros((k, curator.model.n_features))
    start[: len(leading.vectors)] = leading.vectors
    for row in range(len(leading.vectors), k):  # fewer directions than asked for: coordinates fill up
        start[row, row] = 1.0
    flow_options = TruncatedFlowOptions(
        sparsity=options.sparsity,
        separate_supports=options.separate_supports,
        regularization=options.regularization,
        step_size=_step_size(products, leading, options),
        memory_limit=options.memory_limit,
    )
    status = f"dense components of the same noisy matrix, {leading.n_directions} directions"
    initial = InitialVectors("dense", (start,), 0.0, status)
    found = flow_on(curator, products, initial, flow_options)
    flow = found.diagnostics
    assert isinstance(flow, FlowDiagnostics)
    diagnostics = OperatorDiagnostics(
        noise_level=flow.noise_level,
        regularization=flow.regularization,
        n_directions=products.oracle.n_directions or leading.n_directions,
        movement=leading.movement,
        converged=flow.converged,
        expected_error=flow.expected_error,
        expected_subspace_error=flow.expected_subspace_error,
        lost=flow.lost,
        flow=flow,
        support=flow.support,
    )
    return MethodResult(found.components, found.eigenvalues, found.mean, diagnostics, found.accuracy_warnings)


def _start(curator: Curator, products: NoisyProducts, k: int) -> Matrix:
    """Where to begin: the range of A where released vectors span it (class and slice means), else at random."""
    random = curator.public_generator().standard_normal((k, curator.model.n_features))
    model: Any = curator.model  # one of rows, where there are groups
    pencil = None if products.groups is None else model.pencil(products.groups)
    if pencil is None or pencil.a.moment:
        return random
    means = pencil.factors[(pencil.a.weights != 0) & pencil.factors.any(axis=1)]
    return np.concatenate([means, random[: max(k - len(means), 0)]])


def _step_size(products: NoisyProducts, leading: Leading, options: Any) -> float | None:
    if products.identity_b:
        return None
    given = options.regularization
    ridge = public_ridge(products.noise_level, multiple=WHOLE) if given is None else given
    return STEP / max(1.05 * leading.largest_b + ridge, float(np.finfo(float).tiny))


def _accuracy_warnings(leading: Leading, k: int, accuracy: Accuracy, d: int) -> Iterator[str]:
    if len(accuracy.lost) < k:
        yield f"B is singular: {len(accuracy.lost)} of {k} components (pass regularization > 0 to use all directions)"
    if not leading.converged:
        yield (
            f"the components were still moving after {leading.n_directions} directions (last step: a sine of "
            f"{leading.movement:.2g}): raise memory_limit, ask for fewer components, or screen features"
        )
    yield from lost_caution(accuracy.lost, d)
