"""`release` of a matrix too large to hold: one noisy matrix known by its products, the same law as in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from dpgep.methods.options import directions_in
from dpgep.methods.papers.initial_vectors import InitialVectors
from dpgep.methods.papers.rayleigh_flow import STEP, FlowDiagnostics, TruncatedFlowOptions, flow_on
from dpgep.methods.quotient_accuracy import products_accuracy
from dpgep.methods.release_options import ReleaseOptions
from dpgep.methods.result import Diagnostics, MethodResult, method_result
from dpgep.methods.ridge import products_ridge
from dpgep.methods.search_space import FEW_ROWS, Leading, leading_solutions
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentModel
from dpgep.privacy.curator import Curator
from dpgep.privacy.products import NoisyProducts, ProductNoise

# Where sparse components are asked for, share of the room that may go to the dense ones they start from.
_DENSE_SHARE = 0.5


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OperatorDiagnostics(Diagnostics):
    """What products of the released matrix say about the components. Nothing here costs privacy.

    The expected errors come from the components' quotients and the law of the noise. There are no eigengaps: they need
    the whole matrix.

    Attributes
    ----------
    n_directions : directions that the noisy matrix was asked for.
    movement : sine of the largest angle by which the last step turned the span of the dense components; where B is the
        identity and there is noise, any of those that are not lost.
    converged : whether the components came to rest: lost ones, where B is the identity, never do, and need not. Their
        eigenvalues are lower bounds. Sparse components: whether the flow did, wherever it began.
    flow : of sparse components, which come from a truncated flow that begins at the dense ones.
    support : the features that a sparse solution uses, ascending; None for a dense one.
    storage : "operator".
    """

    n_directions: int
    movement: float
    converged: bool
    flow: FlowDiagnostics | None = None
    support: tuple[int, ...] | None = None
    storage: str = "operator"

    def summary(self) -> list[str]:
        end = "converged" if self.converged else "not converged"
        lines = [f"  storage      operator: {self.n_directions} directions queried, {end}"]
        if self.support is not None:
            lines.append(f"  features     {len(self.support)} in use")
        return lines


def operator_release(curator: Curator, k: int, options: ReleaseOptions) -> MethodResult:
    """The K leading solutions of a release that is known by its products, dense or sparse."""
    products, leading = leading_by_products(curator, k, options)
    if not len(leading.vectors):
        raise np.linalg.LinAlgError("B is numerically zero: no direction to solve for; pass regularization > 0")
    if options.sparsity is None:
        return _dense(curator, products, leading, k)
    assert isinstance(options.sparsity, int)  # the others need the matrix
    return _sparse(curator, products, leading, k, options.sparsity, options)


def leading_by_products(
    curator: Curator, k: int, options: ReleaseOptions, share: float | None = None, purpose: str = ""
) -> tuple[NoisyProducts, Leading]:
    """A release that is known by its products, for ``share`` of mu^2 or all that is left; its dense solutions."""
    products = curator.products(ProductNoise("lazy", "goe", 0, options.memory_limit), share, purpose)
    capacity = min(directions_in(options.memory_limit, curator.public, copies=1), products.capacity)
    leading = leading_solutions(
        products,
        curator.model,
        _start(curator, products, k),
        k,
        regularization=products_ridge(products, options.regularization),
        fallback=products_ridge(products, None),
        most_directions=capacity if options.sparsity is None else _DENSE_SHARE * capacity,
    )
    return products, leading


def _dense(curator: Curator, products: NoisyProducts, leading: Leading, k: int) -> MethodResult:
    model, ridge = curator.model, leading.system.regularization
    eigenvalues = leading.system.values[: len(leading.vectors)].copy()
    diagnostics = OperatorDiagnostics(
        noise_level=products.noise_level,
        regularization=ridge,
        accuracy=products_accuracy(
            model,
            products,
            eigenvalues,
            1 / np.linalg.norm(leading.vectors, axis=1) ** 2,  # solutions have norm 1 in B + xi I
            ridge=ridge,
            centre=leading.centre,
        ),
        n_directions=leading.n_directions,
        movement=leading.movement,
        converged=leading.converged,
    )
    return method_result(
        model, products.groups, leading.vectors, eigenvalues, diagnostics, _accuracy_warnings(leading, k)
    )


def _sparse(
    curator: Curator, products: NoisyProducts, leading: Leading, k: int, sparsity: int, options: ReleaseOptions
) -> MethodResult:
    """A truncated flow from the dense components, which asks one direction of each a step."""
    start = np.zeros((k, curator.model.n_features))
    start[: len(leading.vectors)] = leading.vectors
    for row in range(len(leading.vectors), k):  # fewer directions than asked for: coordinates fill up
        start[row, row] = 1.0
    flow_options = TruncatedFlowOptions(
        sparsity=sparsity,
        separate_supports=options.separate_supports,
        regularization=options.regularization,
        step_size=_step_size(products, leading, options.regularization),
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
        accuracy=flow.accuracy,
        n_directions=products.oracle.n_directions or leading.n_directions,
        movement=leading.movement,
        converged=flow.converged,
        flow=flow,
        support=flow.support,
    )
    return replace(found, diagnostics=diagnostics)


def _start(curator: Curator, products: NoisyProducts, k: int) -> Matrix:
    """Where to begin: the range of A where released vectors span it (class and slice means), else at random."""
    n_rows = min(FEW_ROWS, curator.model.n_features) if products.identity_b and products.noise_level > 0 else k
    random = curator.public_generator().standard_normal((n_rows, curator.model.n_features))
    if products.groups is None:
        return random
    assert isinstance(curator.model, MomentModel)  # of rows, as there are groups
    pencil = curator.model.pencil(products.groups)
    if pencil.a.moment:
        return random
    means = pencil.factors[(pencil.a.weights != 0) & pencil.factors.any(axis=1)]
    return np.concatenate([means, random[: max(k - len(means), 0)]])


def _step_size(products: NoisyProducts, leading: Leading, regularization: float | None) -> float | None:
    if products.identity_b:
        return None
    ridge = products_ridge(products, regularization)
    return STEP / max(1.05 * leading.largest_b + ridge, float(np.finfo(float).tiny))


def _accuracy_warnings(leading: Leading, k: int) -> Iterator[str]:
    found = len(leading.vectors)
    if found < k:
        yield f"B is singular: {found} of {k} components (pass regularization > 0 to use all directions)"
    if not leading.converged:
        yield (
            f"the components had not converged after {leading.n_directions} directions (last step: a sine of "
            f"{leading.movement:.2g}): raise memory_limit, ask for fewer components, or screen features"
        )
