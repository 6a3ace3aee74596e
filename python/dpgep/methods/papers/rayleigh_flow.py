"""DP-Rayleigh Flow and DP-Truncated Rayleigh Flow (Hu et al. 2023, Algorithms 1 and 3), with a sound calibration.

    v <- v + (eta/rho) (A v - rho B v),  rho = v^T A v / v^T B v,  (keep the k largest entries,)  v <- v/|v|,

every product with noise from the curator: drawn anew each time ("fresh", the paper's) or from one noisy pair that is
known by its products ("lazy"), which costs one release however long the flow runs.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy  # its sparse solvers are loaded when they are used
import scipy.linalg

from dpgep._checks import Bytes, Count, NonNegative, Positive, Share, require_count
from dpgep._dispatch import core
from dpgep.methods import base
from dpgep.methods.base import MEMORY_LIMIT, Diagnostics, MethodResult, Options
from dpgep.methods.eigen import null_eigenvalue, products_accuracy
from dpgep.methods.exchange import exchange_features
from dpgep.methods.papers.initial_vectors import InitialVectors, given_vectors, initial_vectors
from dpgep.methods.ridge import PART, WHOLE, products_ridge
from dpgep.models.model import Matrix, PublicSide
from dpgep.privacy.curator import Curator
from dpgep.privacy.products import NoisyProducts, ProductNoise, Products
from dpgep.serialization import stored_as

STEP = 0.9  # eta lambda_max(B), below the 1 of the theory (Theorem 4)
# Of one component, eigenvalues coming in pairs, lambda and -lambda: rho v + (A v - rho v)/2 is (A + rho I) v / 2.
_STEP_OF_ONE = 0.5
# A flow has converged where a step moves no component by more than this.
TOLERANCE = 1e-9
_ITERATIONS = {"fresh": 15, "lazy": 300}
_LAZY_STARTS = 5
# A start that uses more features than are kept loses half of them at a time, after this many steps on each half; all of
# this may take a part of the iterations, and of the room, that there are.
_STEPS_EACH = 20
_NARROWING = 0.5
_AGREEMENT = 1e-3  # starts agree whose objectives differ by no more than this part


@dataclass(frozen=True, kw_only=True, eq=False)
class FlowOptions(Options):
    """Options of "rayleigh-flow".

    Parameters
    ----------
    n_iterations : int, optional
        Default 15 under fresh noise, where each costs; at most 300 under lazy noise, fewer if the flow converges.
    step_size : float, optional
        eta. The theory asks for eta lambda_max(B) < 1. Default 0.9 over lambda_max(B) as far as it is public: of the
        noisy B under lazy noise; the squared row bound under fresh noise; 1 where B is the identity.
    init : "random", "screen", "convex", or array of shape (K, d) or (d,)
        An array must be public: it must not be computed from these data outside the budget.
    noise : {"lazy", "fresh"}
        One noisy pair for all products, or new noise for each.
    noise_shape : {"goe", "iid"}
        Of fresh noise; "iid" is the papers' and has twice the variance off the diagonal. One product at a time: a
        single component, not for two views.
    budget_split : float in (0, 1), optional
        Share of mu^2 for a private initial vector; default 0.5 for "convex", 0.3 for "screen".
    regularization : float, optional
        Multiple of the identity added to B, >= 0, not chosen by looking at the data. Default: the known noise level
        of B, which makes the noisy B positive definite; under fresh noise 0.3 of it over sqrt(n_iterations).
    memory_limit : int
        Bytes that lazy noise may remember directions and answers in: 24 d for each direction asked (32 d for a
        private pair of matrices). Flows stop where there is no room for a step. Default 4 GiB, a public constant.
        Rows of files that are kept for later passes take no more, either.
    """

    n_iterations: Count | None = None
    step_size: Positive | None = None
    init: Any = "random"
    noise: Literal["fresh", "lazy"] = "lazy"
    noise_shape: Literal["goe", "iid"] = "goe"
    budget_split: Share | None = None
    regularization: NonNegative | None = None
    memory_limit: Bytes = MEMORY_LIMIT

    sparsity = 0  # not truncated
    separate_supports = refines = truncates_start = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_shape == "iid" and self.noise == "lazy":
            raise ValueError('noise_shape="iid" requires noise="fresh": lazy noise has the shape "goe"')
        private = isinstance(self.init, str) and self.init != "random"
        if self.budget_split is not None and not private:
            raise ValueError('budget_split applies to init="convex" and "screen": other starts cost nothing')

    def check(self, public: PublicSide, k: int) -> None:
        d = public.model.n_features
        if (
            given_vectors(self.init, k, d) is None
            and self.init == "convex"
            and base.matrix_bytes(d) > self.memory_limit
        ):
            raise ValueError(
                f'init="convex" needs more than memory_limit = {self.memory_limit}: raise it or use "screen"'
            )
        if self.noise == "lazy":
            base.require_capacity(public, k, self.memory_limit)
        if self.noise == "fresh" and self.step_size is None and public.largest_b is None:
            raise ValueError(
                'step_size is needed with noise="fresh" and a private B: its eigenvalues have no public bound; pass '
                "0.9 divided by a public bound on the largest"
            )
        if self.noise == "fresh" and public.model.traits.shift is None and k > 1:
            raise ValueError(
                f'noise="fresh" finds one component of {public.model.name}, not {k}: its eigenvalues come in pairs, '
                'lambda and -lambda, and several need a shift that is not public; use noise="lazy"'
            )
        if self.noise_shape == "iid" and (k > 1 or len(public.model.views) > 1):
            raise ValueError('noise_shape="iid" supports a single component, not two views; use "goe"')

    def on_columns(self) -> list[str]:
        screens = isinstance(self.init, str) and self.init == "screen"
        return [*super().on_columns(), 'init="screen"'] if screens else super().on_columns()

    @property
    def most_iterations(self) -> int:
        return self.n_iterations or _ITERATIONS[self.noise]


@dataclass(frozen=True, kw_only=True, eq=False)
class TruncatedFlowOptions(FlowOptions):
    """Options of "truncated-rayleigh-flow": as of the flow, and

    Parameters
    ----------
    sparsity : int
        k, the number of entries kept after each step; needed.
    separate_supports : bool
        Several components keep k entries each; default, all share one support of k rows (by their norm).
    refine : bool, optional
        Whether a start with more than k features loses them by halves, in at most half of the iterations, and features
        are exchanged after the flow while that raises the sum of the eigenvalues (docs/flows.md). Default: under lazy
        noise. ``False``, the only choice under fresh noise, is the published method; with ``epsilon=math.inf`` that of
        Tan et al. (2018), where the first step has all features of the start.
    n_starts : int, optional
        Number of starts: ``init`` and random ones (single coordinates beside "screen"), the best noisy objective kept.
        Default 5 if they are refined: under lazy noise they cost nothing. Otherwise 1, the only choice under fresh
        noise.
    """

    sparsity: int = 0
    separate_supports: bool = False
    refine: bool | None = None
    n_starts: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        base.require_given_sparsity(self.sparsity)
        if self.refine and self.noise == "fresh":
            raise ValueError('refine=True requires noise="lazy": under fresh noise each further product costs')
        if self.n_starts is not None:
            require_count("n_starts", self.n_starts, largest=1 if self.noise == "fresh" else None)

    @property
    def refines(self) -> bool:  # type: ignore[override]
        return self.noise == "lazy" and self.refine is not False

    @property
    def truncates_start(self) -> bool:  # type: ignore[override]
        """Under fresh noise the paper asks for a start that is sparse."""
        return self.noise == "fresh" or self.refines

    def check(self, public: PublicSide, k: int) -> None:
        super().check(public, k)
        base.require_sparsity(self.sparsity, public.model, k, separate=self.separate_supports)


@stored_as("flow")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FlowDiagnostics(Diagnostics):
    """How the flow went; all from noisy answers. Expected errors come from quotients and the law of one answer's noise.

    Attributes
    ----------
    step_size : eta.
    n_iterations : iterations of the flow whose result was kept.
    converged : whether it stopped because nothing moved any more, and no exchange of features helped. Under fresh noise
        no flow converges.
    quotients : (n_iterations, K), Rayleigh quotients rho_t before each step.
    objectives : sum of the K noisy eigenvalues that each start reached.
    n_exchanges : exchanges of features that raised the objective after the flow.
    initial : kind, cost and status of the starting vectors.
    support : indices of the features that any component uses.
    """

    step_size: float
    n_iterations: int
    converged: bool
    quotients: Matrix
    objectives: tuple[float, ...]
    n_exchanges: int
    initial: InitialVectors
    support: tuple[int, ...]

    def summary(self) -> list[str]:
        end = "converged" if self.converged else "not converged"
        return [
            f"  flow         {self.n_iterations} iterations, {end}; step size {self.step_size:.3g}",
            f"  start        {self.initial.kind} ({self.initial.status}), share of the budget {self.initial.share:g}",
        ]


@dataclass(frozen=True, eq=False)
class _Flow:
    """One flow: unit vectors (K, d), their noisy eigenvalues, and how it ran."""

    vectors: Matrix
    eigenvalues: Matrix
    quotients: Matrix  # of each iteration
    converged: bool
    n_exchanges: int = 0

    @property
    def objective(self) -> float:
        return float(self.eigenvalues.sum())


def rayleigh_flow(curator: Curator, n_components: int, options: FlowOptions) -> MethodResult:
    """The K leading solutions by a (truncated) Rayleigh flow on noisy products."""
    k = n_components
    n_starts = getattr(options, "n_starts", None) or (_LAZY_STARTS if options.refines else 1)
    initial = initial_vectors(
        curator, k, options.init, share=options.budget_split, sparsity=options.sparsity or None, n_starts=n_starts
    )
    noise = ProductNoise(options.noise, options.noise_shape, options.most_iterations, options.memory_limit)
    return flow_on(curator, curator.answer(Products(noise)), initial, options)


def flow_on(curator: Curator, products: NoisyProducts, initial: InitialVectors, options: FlowOptions) -> MethodResult:
    """The flows from each start on products that are paid for; the best result."""
    # Under lazy noise, that of its operator norm makes the noisy B positive definite: else the flow would run after
    # directions in which v^T B v is zero. `release` projects instead, which needs all of B.
    multiple, n_answers = (WHOLE, 1) if products.lazy else (PART, options.most_iterations)
    ridge = products_ridge(products, options.regularization, multiple=multiple, n_answers=n_answers)
    shift = curator.model.traits.shift
    if options.step_size:
        step = options.step_size
    elif products.identity_b:
        step = STEP if products.lazy or shift is not None else _STEP_OF_ONE
    else:
        largest_b = curator.public.largest_b
        if products.lazy:
            largest_b = _largest_eigenvalue(products, curator, of_b=True)
        assert largest_b is not None  # checked before anything was released
        step = STEP / max(largest_b + ridge, np.finfo(float).tiny)
    if shift is None:  # about what makes A + shift B positive semidefinite
        # under fresh noise there is one component alone: its own quotient takes the place of the shift
        shift = _largest_eigenvalue(products, curator, of_b=False) if products.lazy else 0.0
    flows: list[_Flow] = []
    for start in initial.starts:
        if flows and _steps_left(products, len(start)) < 1:
            break
        # the dense components of the same noisy matrix know where they lead: no more is asked of many features
        refines = options.refines and initial.kind != "dense"
        share = _NARROWING / (len(initial.starts) - len(flows)) if refines else 0.0
        flows.append(_run(products, start, options, step, ridge, shift, share))
    best = max(flows, key=lambda flow: -math.inf if math.isnan(flow.objective) else flow.objective)
    model, n_iterations = curator.model, len(best.quotients)
    # v^T B v of vectors that were asked before; under fresh noise nobody knows: its noise level
    sizes = np.full(len(best.vectors), 1.0 if products.identity_b else products.noise_level)
    if products.lazy and not products.identity_b:
        sizes = np.maximum(np.einsum("ij,ij->i", best.vectors, products.times(best.vectors)[1]), 0.0)
    # vectors drawn at random, if the flow began there, tell the centre of A
    known = initial.kind == "random" and n_iterations > 0 and products.identity_b
    diagnostics = FlowDiagnostics(
        noise_level=products.noise_level,
        regularization=ridge,
        accuracy=products_accuracy(
            model,
            products,
            best.eigenvalues,
            sizes + ridge,
            ridge=ridge,
            centre=null_eigenvalue(model, best.quotients[0]) if known else 0.0,
            sparsity=options.sparsity or None,
        ),
        step_size=step,
        n_iterations=n_iterations,
        converged=best.converged,
        quotients=best.quotients,
        objectives=tuple(flow.objective for flow in flows),
        n_exchanges=best.n_exchanges,
        initial=initial,
        support=base.support_of(best.vectors),
    )
    said = []
    if n_iterations == 0:
        said.append("the noisy answers allowed no step: the components are the starting vectors")
    elif products.lazy and not best.converged:
        said.append(
            f"the flow had not converged after {n_iterations} iterations: raise n_iterations (under lazy noise "
            'they cost no privacy) or memory_limit, or use method="release"'
        )
    reached = sorted(diagnostics.objectives, reverse=True)
    if len(reached) > 1 and reached[1] < best.objective - _AGREEMENT * abs(best.objective):
        others = ", ".join(f"{value:.4g}" for value in reached[1:])
        said.append(
            f"only one of {len(reached)} starts reached the sum of eigenvalues {best.objective:.4g} (others: "
            f"{others}): components may be lost that more iterations do not find; raise n_starts, try another init, "
            'or use method="release" with sparsity'
        )
    return base.method_result(model, products.groups, best.vectors, best.eigenvalues, diagnostics, said)


class _Enough(Exception):
    """A search has used its part of the room for directions."""


def _largest_eigenvalue(products: NoisyProducts, curator: Curator, *, of_b: bool) -> float:
    """Largest eigenvalue of the noisy A or B, by products that cost nothing; within a twentieth, from above. If a third
    of the room for directions is used up, twice the largest stretch of a vector seen serves.
    """
    d = curator.model.n_features
    start = curator.public_generator().standard_normal(d)
    if d <= 20 and products.capacity >= d:
        matrix = products.times(np.eye(d))[of_b]
        return max(float(scipy.linalg.eigvalsh((matrix + matrix.T) / 2)[-1]), 0.0)
    least, longest = products.capacity * 2 / 3, 0.0

    def times(v: Matrix) -> Matrix:
        nonlocal longest
        if products.capacity - products.n_views < least:
            raise _Enough
        answer = products.times(v.reshape(1, -1))[of_b][0]
        longest = max(longest, float(np.linalg.norm(answer) / np.linalg.norm(v)))
        return np.asarray(answer)

    operator = scipy.sparse.linalg.LinearOperator((d, d), matvec=times, dtype=np.float64)
    try:
        how: dict[str, Any] = {"which": "LA", "tol": 0.02, "maxiter": 50, "return_eigenvectors": False}
        largest = float(scipy.sparse.linalg.eigsh(operator, k=1, v0=start, **how)[0])
    except scipy.sparse.linalg.ArpackNoConvergence as stopped:
        largest = float(max(stopped.eigenvalues, default=longest))
    except _Enough:
        largest = 2 * longest
    return max(1.05 * largest, 0.0)


def _run(
    products: NoisyProducts, start: Matrix, options: FlowOptions, step: float, ridge: float, shift: float, share: float
) -> _Flow:
    """One start's flow. Narrowing may take this ``share`` of the room for directions; 0: neither that nor exchanges."""
    vectors, converged, most = np.array(start, dtype=np.float64, order="C"), False, options.most_iterations
    quotients = np.empty((0, len(vectors)))
    for sparsity, n_steps in [*_narrowing(products, start, options, share), (options.sparsity, most)]:
        vectors = _truncated(vectors, sparsity, options) if options.truncates_start else vectors
        converged = False
        end = min(len(quotients) + n_steps, most)
        while not converged and len(quotients) < end:
            steps = int(min(end - len(quotients), _steps_left(products, len(vectors))))
            if steps < 1:
                break
            vectors, more, n_done, converged = core.rayleigh_flow(
                products.oracle,
                vectors,
                steps,
                step,
                shift=shift,
                ridge=ridge,
                sparsity=sparsity,
                separate_supports=options.separate_supports,
                tolerance=TOLERANCE if products.lazy else 0.0,
            )
            quotients = np.concatenate([quotients, more])
            if n_done < steps:
                break
    if not len(quotients):
        vectors = _truncated(vectors, options.sparsity, options)
    if not products.lazy:
        # not known where the first answer was such that no step could be taken
        last = quotients[-1].copy() if len(quotients) else np.full(len(vectors), math.nan)
        return _Flow(vectors, last, quotients, converged)
    n_exchanges, on_one_support = 0, options.sparsity > 0 and (len(vectors) == 1 or not options.separate_supports)
    if share > 0 and on_one_support and (exchanged := exchange_features(products, vectors, ridge)) is not None:
        vectors, n_exchanges, converged = exchanged
    vectors, eigenvalues = _ritz(products, vectors, ridge, rotate=not options.separate_supports)
    return _Flow(vectors, eigenvalues, quotients, converged, n_exchanges)


def _narrowing(products: NoisyProducts, start: Matrix, options: FlowOptions, share: float) -> list[tuple[int, int]]:
    """Numbers of features on the way from those of a start to the few that are kept, and steps with each.

    Truncated at once, a component that has none of its own features among those kept gets no gradient, and is lost.
    """
    used = int((start != 0).any(axis=0).sum())
    widths = []
    while share > 0 and 0 < options.sparsity < used:
        widths.append(used)
        used //= 2
    if not widths:
        return []
    directions = len(start) * products.n_views
    n_steps = min(_NARROWING * options.most_iterations, share * products.capacity / directions) / len(widths)
    return [(width, min(_STEPS_EACH, int(n_steps))) for width in widths] if n_steps >= 1 else []


def _steps_left(products: NoisyProducts, k: int) -> float:
    """How many steps of K components have room, however new their directions: one question more comes at the end."""
    return products.capacity // (k * products.n_views) - 1


def _truncated(vectors: Matrix, sparsity: int, options: FlowOptions) -> Matrix:
    """The block with this many features left (0: all of them), and no row without any; may overwrite its argument."""
    if not sparsity:
        return vectors
    if len(vectors) == 1 or options.separate_supports:
        for row in vectors:
            core.truncate_top_k(row, sparsity)
        return vectors
    columns = np.ascontiguousarray(vectors.T)
    core.truncate_rows_top_k(columns, sparsity)
    if columns.any(axis=0).all():
        return np.ascontiguousarray(columns.T)
    own = np.unique(np.abs(vectors).argmax(axis=1))  # each row keeps its largest entry
    sizes = np.linalg.norm(vectors, axis=0)
    sizes[own] = np.inf
    dropped = np.argsort(-sizes, kind="stable")[sparsity:]
    vectors[:, dropped] = 0.0
    return vectors


def _ritz(products: NoisyProducts, vectors: Matrix, ridge: float, *, rotate: bool) -> tuple[Matrix, Matrix]:
    """Eigenvalues of the pair on the span of the vectors, and its eigenvectors there if ``rotate``; unit rows."""
    av, bv = products.times(vectors)
    bv += ridge * vectors
    a, b = vectors @ av.T, vectors @ bv.T
    a, b = (a + a.T) / 2, (b + b.T) / 2
    if rotate and len(vectors) > 1:
        with suppress(np.linalg.LinAlgError):  # the noisy B is not positive definite on the span
            values, rotation = scipy.linalg.eigh(a, b)
            rotated = rotation[:, ::-1].T @ vectors
            return rotated / np.linalg.norm(rotated, axis=1, keepdims=True), values[::-1].copy()
    values = np.diagonal(a) / np.maximum(np.abs(np.diagonal(b)), np.finfo(float).tiny)
    order = np.argsort(-values, kind="stable")
    return vectors[order], values[order]
