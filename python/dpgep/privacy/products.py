"""Noisy products with A and B: with fresh noise for every product, or of one noisy matrix known through its products.

Only the answers of the oracle are public. Lazy noise is docs/mathematics.md, section 7: all products together cost
what one release does (proofs/LazyNoise.v). Neither the noise matrix nor, for rows, the matrix itself is ever formed.

Noisy gradients are of all people or of Poisson samples of them. A person is in a sample with all rows, which are
weighted by their factors: w f^2 x x^T = (f sqrt(w) x)(f sqrt(w) x)^T.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np

from dpgep._checks import require_one_of
from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.float_sums import RowProducts, StreamedProducts
from dpgep.data.ids import Numbers
from dpgep.data.integer_sums import GridSums
from dpgep.data.people import WEIGHT_BITS
from dpgep.data.rows import Batch, group_counts
from dpgep.models.model import Matrix
from dpgep.models.moments import NO_NOISE, MomentLayout, MomentNoise, ReleasedGroups
from dpgep.models.row_model import PencilPart, pencil_of
from dpgep.privacy import rounding
from dpgep.privacy.accounting import SampledMechanism, calibrate_sampled
from dpgep.privacy.curator import group_blocks, matrix_blocks, normalized_groups, prepare_matrices, row_bound
from dpgep.privacy.ledger import Charge, LedgerEntry, NoiseBlock, equal_parts, split_budget
from dpgep.privacy.noise import (
    MOST_BITS,
    SECOND,
    calibrate_groups,
    calibrate_moments,
    finest_bits,
    moment_mu,
    noisy_groups,
    require_cost,
)
from dpgep.privacy.rounding import Allowance
from dpgep.problems.problem import MatrixProblem, MomentProblem, Problem, rows_of

NoiseKind = Literal["fresh", "lazy"]
NoiseShape = Literal["goe", "iid"]

# Share of mu^2 for sums and counts under fresh noise, where each product gets little: a public constant.
GROUPS_SHARE = 0.2


@dataclass(frozen=True)
class ProductNoise:
    """The noise of products."""

    kind: NoiseKind  # "fresh" draws new noise for each product and pays for each; "lazy" pays once for all
    shape: NoiseShape  # "goe", or (fresh only) "iid", the papers' shape
    n_products: int  # to pay for under fresh noise
    memory_limit: int | None = None  # bytes in which lazy noise may store directions and answers; None: no limit

    def __post_init__(self) -> None:
        require_one_of("kind", self.kind, ("fresh", "lazy"))  # the kernel has a third one: none at all
        require_one_of("shape", self.shape, ("goe", "iid"))

    def most_directions(self, d: int, n_matrices: int) -> int | None:
        """Directions of length d that lazy noise may store, with the answers of this many private matrices."""
        return None if self.memory_limit is None else int(self.memory_limit) // direction_bytes(d, n_matrices)

    def compiled(self, scales: list[float], mu: float, d: int, stream: core.NoiseStream) -> core.Noise:
        """For the kernel: a scale for each (d, d) matrix; none at all where mu is infinite."""
        mode = "none" if math.isinf(mu) else self.kind
        directions = self.most_directions(d, len(scales))
        return core.Noise(mode, scales, self.shape, self.n_products, stream, directions, thread_count())


@dataclass(frozen=True)
class Products:
    """Products A V and B V with this noise, for blocks V that the method chooses as it goes."""

    noise: ProductNoise

    def answer(self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge) -> NoisyProducts:
        if isinstance(problem, MatrixProblem):
            return matrix_products(problem, mu, self.noise, stream, charge)
        return row_products(rows_of(problem, "products with vectors"), mu, self.noise, stream, charge)


@dataclass(frozen=True, eq=False)
class NoisyProducts:
    """Answers A V and B V for blocks V whose rows are vectors."""

    oracle: core.PairOracle  # the compiled source of answers, for `core.rayleigh_flow`
    groups: ReleasedGroups | None  # released sums and counts; None for a problem in matrix form
    noise_level: float  # expected operator norm of the noise in B, or in A where B is the identity, in one answer
    identity_b: bool
    lazy: bool  # whether further answers are free
    n_views: int = 1  # directions that one row queries: its parts in each view
    most_directions: int | None = None  # that lazy noise may store; None: any number

    @property
    def capacity(self) -> float:
        """How many more directions may be queried: infinity where nothing is stored, or there is no limit."""
        if self.most_directions is None or self.oracle.noise != "lazy":
            return math.inf
        return self.most_directions - self.oracle.n_directions

    def times(self, block: Matrix) -> tuple[Matrix, Matrix]:
        """(A V, B V) plus noise for the rows of ``block`` (K, d). Raises MemoryError beyond the capacity."""
        return self.oracle.times(np.ascontiguousarray(block, dtype=np.float64))


def direction_bytes(d: int, n_matrices: int) -> int:
    """Memory per direction under lazy noise: itself, each matrix's answer, and one copy for growing an array."""
    return 8 * d * (n_matrices + 2)


def row_products(
    problem: MomentProblem, mu: float, noise: ProductNoise, stream: core.NoiseStream, charge: Charge
) -> NoisyProducts:
    """Products for a model of rows.

    Lazy: one release of the moment matrix, the second moment known through its products; the law is that of `release`.
    Fresh: sums and counts once, then a new noisy second moment for each product.
    Sums and counts are exact integers; products are rounded to a grid, which the noise covers.
    """
    if math.isinf(mu):
        problem = problem.in_finest_weights()
        rows, groups = problem.dataset.row_products(), _plain_groups(problem, charge)
    else:
        rows = problem.dataset.row_products()
        groups = _noisy_groups(problem, rows, mu, noise, stream, charge)
    d = problem.model.n_features
    pencil = pencil_of(problem.model, groups)
    oracle = core.PairOracle.of_rows(
        rows.second_moment(1 / groups.n),
        noise.compiled([groups.noise.second], mu, d, stream),
        np.ascontiguousarray(pencil.factors, dtype=np.float64),
        _compiled(pencil.a),
        None if pencil.b is None else _compiled(pencil.b),
        pencil.view_sizes if pencil.keeps_blocks else (),
    )
    return NoisyProducts(
        oracle=oracle,
        groups=groups,
        noise_level=groups.noise.second * math.sqrt(2 * d),
        identity_b=pencil.b is None,
        lazy=noise.kind == "lazy" or math.isinf(mu),
        n_views=len(pencil.view_sizes) if pencil.keeps_blocks else 1,
        most_directions=noise.most_directions(d, 1),
    )


def _compiled(part: PencilPart) -> core.PencilPart:
    return core.PencilPart(np.ascontiguousarray(part.weights, dtype=np.float64), float(part.moment), part.blocks)


def matrix_products(
    problem: MatrixProblem, mu: float, noise: ProductNoise, stream: core.NoiseStream, charge: Charge
) -> NoisyProducts:
    """Products for a problem in matrix form. Fresh: one release for A and one for B in each of the products."""
    fresh = noise.kind == "fresh" and math.isfinite(mu)
    mu_each = equal_parts(mu, noise.n_products) if fresh else mu
    d = problem.model.n_features
    ready = prepare_matrices(problem, mu_each, partial(_matrix_allowance, noise=noise, d=d))
    blocks = matrix_blocks(problem, ready.noise_a, ready.noise_b, noise.shape)
    if fresh:
        private = [block for block in blocks if block.deviation > 0]
        mu_block = equal_parts(mu_each, len(private))
        for step, block in product(range(1, noise.n_products + 1), private):
            charge(LedgerEntry(f"product with {block.name}, {step} of {noise.n_products}", mu_block, (block,)))
    else:
        charge(LedgerEntry("A and B, known by their products", mu, blocks))
    identity = problem.b is None
    scales = [ready.noise_a] if identity else [ready.noise_a, ready.noise_b]
    oracle = core.PairOracle.of_matrices(
        core.SymmetricMatrices(ready.a, ready.b, thread_count()), noise.compiled(scales, mu, d, stream)
    )
    return NoisyProducts(
        oracle=oracle,
        groups=None,
        noise_level=(ready.noise_a if identity else ready.noise_b) * math.sqrt(2 * d),
        identity_b=identity,
        lazy=not fresh,
        most_directions=noise.most_directions(d, len(scales)),
    )


def _matrix_allowance(mu: float, *, noise: ProductNoise, d: int) -> tuple[Allowance, float]:
    if noise.shape == "iid":
        return rounding.iid_matrix_allowance(mu, d)
    return rounding.matrix_allowance(mu, d, _directions(noise, d))


def _directions(noise: ProductNoise, d: int) -> int:
    """Most directions in one noisy matrix: lazy noise stores no more, and at most d are orthonormal."""
    most = noise.most_directions(d, 1) if noise.kind == "lazy" else None
    return d if most is None else min(d, most)


def _plain_groups(problem: MomentProblem, charge: Charge) -> ReleasedGroups:
    sums = problem.group_sums()
    charge(LedgerEntry("moment matrix, known by its products", math.inf, ()))
    in_bounds = sums.sums / row_bound(problem.facts)
    return normalized_groups(problem.facts, problem.layout, sums.n, in_bounds, sums.counts, NO_NOISE)


def _noisy_groups(
    problem: MomentProblem,
    rows: RowProducts | StreamedProducts,
    mu: float,
    noise: ProductNoise,
    stream: core.NoiseStream,
    charge: Charge,
) -> ReleasedGroups:
    """Released sums and counts, and in their ``noise`` the deviation of an answer on the second moment."""
    layout = problem.layout
    least = _deviations(problem, mu, noise, _allowance(problem, noise, 0, MOST_BITS))
    weight_bits = problem.dataset.weight_bits
    bits = finest_bits(replace(least, second=0.0), weight_bits)  # products have a grid of their own
    if layout.has_groups or not isinstance(rows, RowProducts):
        exact = problem.grid_sums(bits)
    else:
        exact = GridSums(layout, bits)
        exact.n, exact.counts = rows.n, group_counts(rows.n, None, layout.n_groups)
    # of people, where they have weights, too, which are secret
    n = rounding.most_people(problem.facts, problem.dataset.people.n or 0)
    allowance = _allowance(problem, noise, n, bits)
    deviations = _deviations(problem, mu, noise, allowance)
    unit = bits + weight_bits
    of_sums = math.ceil(math.ldexp(deviations.sums, unit)) if layout.sums else 0
    of_counts = math.ceil(math.ldexp(deviations.counts, unit)) if layout.counts else 0
    deviations = replace(deviations, sums=math.ldexp(of_sums, -unit), counts=math.ldexp(of_counts, -unit))
    for release in _releases(problem, mu, noise, deviations, allowance, bits + weight_bits // 2):
        charge(release)
    released = noisy_groups(exact, of_sums, of_counts, stream)
    return normalized_groups(problem.facts, layout, exact.n, *released, deviations)


def _allowance(problem: MomentProblem, noise: ProductNoise, n: int, bits: int) -> Allowance:
    """What rounding adds to the cost of an answer, or of all answers under lazy noise, on at most n people."""
    layout, adjacency, d = problem.layout, problem.facts.adjacency, problem.layout.n_features
    if noise.kind == "lazy":
        return rounding.moments_allowance(calibrate_moments(1.0, layout, adjacency), n, d, _directions(noise, d), bits)
    base = calibrate_moments(1.0, _second_alone(layout), adjacency)
    return rounding.iid_allowance(base, n, d) if noise.shape == "iid" else rounding.moments_allowance(base, n, d, d)


def _deviations(problem: MomentProblem, mu: float, noise: ProductNoise, allowance: Allowance) -> MomentNoise:
    """Deviations that cost ``mu`` including rounding, in sums over people of rows in the unit ball."""
    layout, adjacency = problem.layout, problem.facts.adjacency
    if noise.kind == "lazy":
        return calibrate_moments(allowance.within(mu), layout, adjacency)
    mu_groups, mu_each = _fresh_parts(layout, mu, noise)
    groups = calibrate_groups(mu_groups, layout, adjacency) if layout.has_groups else NO_NOISE
    each = calibrate_moments(allowance.within(mu_each), _second_alone(layout), adjacency)
    return replace(groups, second=each.second)


def _fresh_parts(layout: MomentLayout, mu: float, noise: ProductNoise) -> tuple[float, float]:
    """Gaussian-DP parameters of sums and counts, and of each product."""
    mu_groups, mu_products = split_budget(mu, GROUPS_SHARE) if layout.has_groups else (0.0, mu)
    return mu_groups, equal_parts(mu_products, noise.n_products)


def _second_alone(layout: MomentLayout) -> MomentLayout:
    return MomentLayout(layout.n_features, 0, sums=False, counts=False)


def _releases(
    problem: MomentProblem, mu: float, noise: ProductNoise, deviations: MomentNoise, allowance: Allowance, bits: int
) -> Iterator[LedgerEntry]:
    """The ledger entries. Raises ArithmeticError if the noise, as drawn, exceeds ``mu``."""
    layout, adjacency = problem.layout, problem.facts.adjacency
    second = NoiseBlock(SECOND, noise.shape, deviations.second)
    if noise.kind == "lazy":
        require_cost(allowance.cost(moment_mu(deviations, layout, adjacency)), mu)
        blocks = second, *group_blocks(deviations, problem.facts, layout)
        yield LedgerEntry("moment matrix, known by its products", mu, blocks)
        return
    mu_groups, mu_each = _fresh_parts(layout, mu, noise)
    require_cost(allowance.cost(moment_mu(deviations, _second_alone(layout), adjacency)), mu_each)
    if layout.has_groups:
        require_cost(moment_mu(replace(deviations, second=math.inf), layout, adjacency), mu_groups)
        scales = (int(math.ldexp(each, 2 * bits)) for each in (deviations.sums, deviations.counts))
        yield LedgerEntry("sums and counts", mu_groups, group_blocks(deviations, problem.facts, layout, *scales), bits)
    for step in range(noise.n_products):
        yield LedgerEntry(f"product with the second moment, {step + 1} of {noise.n_products}", mu_each, (second,))


@dataclass(frozen=True, eq=False)
class NoisySamples:
    """Answers about samples."""

    products: core.SampledProducts  # the compiled source of answers: `full`, `ascend`, `ascend_reduced`
    mechanism: SampledMechanism  # the answers paid for, and their noise multipliers
    noise_level: float  # expected operator norm of the noise in A in one answer about a sample


@dataclass(frozen=True, eq=False)
class Samples:
    """Gradients over Poisson samples and all people, for blocks that the method chooses; costs the whole ``target``.

    Only for models whose A is the second moment of the rows, with n or ``public_n`` known.
    """

    mechanism: SampledMechanism
    target: tuple[float, float]
    share_full: float

    def answer(self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge) -> NoisySamples:
        problem = rows_of(problem, "samples of people")
        assert problem.facts.n is not None
        (epsilon, delta), mechanism = self.target, self.mechanism
        calibrated = calibrate_sampled(mechanism, epsilon, delta, problem.facts.adjacency, self.share_full)
        # sums are divided by n and q n, never by the actual number of people or the sample size
        n, q, squared_bound = problem.facts.n, mechanism.rate, row_bound(problem.facts) ** 2
        batch = problem.dataset.in_memory("asking about samples of people", by_person=True)
        rows = RowProducts(batch.rows)
        factors, starts, order = _by_person(rows.factors, batch)
        noise_full, noise_sampled = _covering(calibrated, problem, rows.n if starts is None else len(starts) - 1)
        charge(_release(calibrated, private=math.isfinite(epsilon)))
        arrays = rows.arrays()
        of_rows: Any = core.SampledProducts.of_dense if len(arrays) == 1 else core.SampledProducts.of_csr
        products = of_rows(
            *arrays,
            factors,
            n_people=float(n),
            rate=q,
            deviation_full=noise_full * squared_bound,
            n_full=mechanism.n_full,
            deviation_sampled=noise_sampled * squared_bound,
            n_sampled=mechanism.n_sampled,
            noisy=math.isfinite(epsilon),
            stream=stream,
            n_threads=thread_count(),
            starts=starts,
            order=order,
        )
        level = calibrated.noise_sampled * squared_bound / (q * n) * math.sqrt(2 * problem.model.n_features)
        return NoisySamples(products, calibrated, level)


def _by_person(factors: Matrix, batch: Batch) -> tuple[Matrix, Numbers | None, Numbers | None]:
    """Factors that weigh rows, too, so that a person adds at most 1 to a sum; and the rows of each person."""
    if batch.persons is None:
        return factors, None, None
    assert batch.weights is not None
    if len(factors) > rounding.MOST_ROWS:
        raise ValueError(
            f"there are more than {rounding.MOST_ROWS} rows, the limit for samples of people who have any number of "
            'them, and all that becomes known about it: use method="release"; nothing was released'
        )
    shares = np.nextafter(np.sqrt(np.ldexp(batch.weights.astype(np.float64), -WEIGHT_BITS)), 0.0)
    _, firsts, persons = np.unique(batch.persons, return_index=True, return_inverse=True)
    # by their first rows, whatever their ids: one more moves no others
    persons = np.argsort(np.argsort(firsts))[persons]
    starts = np.append(0, np.cumsum(np.bincount(persons)))
    return np.nextafter(factors * shares, 0.0), starts, np.argsort(persons, kind="stable")


def _covering(mechanism: SampledMechanism, problem: MomentProblem, n: int) -> tuple[float, float]:
    """Noise of full and sampled answers: the multipliers, enlarged for the rounding of the sums."""
    most, d = rounding.most_people(problem.facts, n), problem.model.n_features
    full, sampled = mechanism.noise_full, mechanism.noise_sampled
    errors = rounding.product_error(most, d, d), rounding.sampled_product_error(most, d)
    if problem.facts.several_rows:
        errors = (rounding.error_by_person(most, d),) * 2
    return (
        rounding.covering_multiplier(full, errors[0], d) if full else 0.0,
        rounding.covering_multiplier(sampled, errors[1], d) if sampled else 0.0,
    )


def _release(mechanism: SampledMechanism, *, private: bool) -> LedgerEntry:
    query = f"{mechanism.n_sampled} products with second moments of samples, rate {mechanism.rate:.4g}"
    blocks = [NoiseBlock("second moment of rows/bound, sum over a sample", "goe", mechanism.noise_sampled)]
    if mechanism.n_full:
        query += f", and {mechanism.n_full} with that of all rows"
        blocks.append(NoiseBlock("second moment of rows/bound, sum over people", "goe", mechanism.noise_full))
    if not private:
        return LedgerEntry(query, math.inf, ())
    return LedgerEntry(query, None, tuple(blocks), event=mechanism.event())
