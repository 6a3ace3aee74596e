"""Products with A and B, noise included: drawn anew for every product, or one noisy matrix known by its products.

Only the answers of the oracle are public. Lazy noise is docs/mathematics.md, section 7: all products together are one
release. Neither the noise matrix nor, for rows, the matrix itself is ever formed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.privacy.calibration import calibrate_groups, calibrate_moments, matrix_deviations
from dpgep.privacy.ledger import Charge, NoiseBlock, Release, equal_parts, split
from dpgep.privacy.matrix_release import matrix_blocks
from dpgep.privacy.moment_release import released_people, released_shares, row_bound
from dpgep.problems.gep import MatrixProblem
from dpgep.problems.model import Matrix
from dpgep.problems.moment_problem import MomentProblem
from dpgep.problems.moments import MomentLayout, MomentNoise, NoisyGroups
from dpgep.problems.row_products import RowProducts, StreamedProducts

NoiseKind = Literal["fresh", "lazy"]
NoiseShape = Literal["goe", "iid"]

# Share of mu^2 that sums and counts get under fresh noise, where each product has little left: a public constant.
GROUPS_SHARE = 0.2


@dataclass(frozen=True)
class ProductNoise:
    """How products are to be noised.

    Attributes
    ----------
    kind : "fresh" draws new noise for each product and pays for each; "lazy" pays once for all.
    shape : "goe", or (fresh only) "iid", the papers' shape.
    n_products : number of products to pay for under fresh noise.
    memory_limit : bytes that lazy noise may remember directions and answers in; None: no limit.
    """

    kind: NoiseKind
    shape: NoiseShape
    n_products: int
    memory_limit: int | None = None

    def most_directions(self, d: int, n_matrices: int) -> int | None:
        """Directions of length d that lazy noise may remember, with the answers of so many private matrices."""
        return None if self.memory_limit is None else self.memory_limit // direction_bytes(d, n_matrices)


@dataclass(frozen=True, eq=False)
class NoisyProducts:
    """Answers A V and B V for blocks V, rows being vectors.

    Attributes
    ----------
    oracle : the compiled source of answers, for `core.rayleigh_flow`.
    groups : released sums and counts; None for a problem in matrix form.
    noise_level : expected operator norm of the noise in B, or in A where B is the identity, in one answer.
    identity_b : whether B is the identity.
    lazy : whether answers cost nothing any more.
    n_views : directions that one row asks: its parts in each view.
    most_directions : how many directions lazy noise may remember; None: any number.
    """

    oracle: core.PairOracle
    groups: NoisyGroups | None
    noise_level: float
    identity_b: bool
    lazy: bool
    n_views: int = 1
    most_directions: int | None = None

    @property
    def room(self) -> float:
        """How many more directions may be asked: infinity where nothing is remembered, or in any number."""
        if self.most_directions is None or self.oracle.noise != "lazy":
            return math.inf
        return self.most_directions - self.oracle.n_directions

    def times(self, block: Matrix) -> tuple[Matrix, Matrix]:
        """(A V, B V) plus noise for the rows of ``block`` (K, d). Raises MemoryError where they have no room."""
        return self.oracle.times(np.ascontiguousarray(block, dtype=np.float64))


def direction_bytes(d: int, n_matrices: int) -> int:
    """Memory for a direction asked of lazy noise: itself, each matrix's answer, and one of them copied to grow."""
    return 8 * d * (n_matrices + 2)


def row_products(
    problem: MomentProblem, mu: float, noise: ProductNoise, stream: core.NoiseStream, charge: Charge
) -> NoisyProducts:
    """Products for a model of rows.

    Lazy: one release of the moment matrix, the second moment known by its products; the law is that of `release`.
    Fresh: sums and counts once, then a new noisy second moment for each product.
    """
    plan = _plan(problem, mu, noise)
    rows = problem.row_products()
    for release in plan.releases:
        charge(release)
    groups = _release_groups(problem, rows, plan.deviations, stream)
    d = problem.model.n_features
    form = problem.model.form(groups)
    oracle = core.PairOracle.of_rows(
        rows.second_moment(1 / groups.n),
        "none" if math.isinf(mu) else noise.kind,
        groups.noise.second,
        np.ascontiguousarray(form.factors, dtype=np.float64),
        np.ascontiguousarray(form.weights_a, dtype=np.float64),
        np.ascontiguousarray(form.weights_b, dtype=np.float64),
        float(form.second_a),
        float(form.second_b),
        form.identity_b,
        form.split,
        noise.shape,
        noise.n_products,
        stream,
        noise.most_directions(d, 1),
    )
    return NoisyProducts(
        oracle=oracle,
        groups=groups,
        noise_level=groups.noise.second * math.sqrt(2 * d),
        identity_b=form.identity_b,
        lazy=noise.kind == "lazy" or math.isinf(mu),
        n_views=2 if form.split else 1,
        most_directions=noise.most_directions(d, 1),
    )


def matrix_products(
    problem: MatrixProblem, mu: float, noise: ProductNoise, stream: core.NoiseStream, charge: Charge
) -> NoisyProducts:
    """Products for a problem in matrix form. Fresh: one release for A and one for B in each of the products."""
    fresh = noise.kind == "fresh" and math.isfinite(mu)
    mu_each = equal_parts(mu, noise.n_products) if fresh else mu
    noise_a, noise_b = matrix_deviations(problem, mu_each)
    blocks = matrix_blocks(problem, noise_a, noise_b, noise.shape)
    if fresh:
        for release in _each_product(blocks, mu_each, noise.n_products):
            charge(release)
    else:
        charge(Release("A and B, known by their products", mu, blocks))
    identity = problem.b is None
    most_directions = noise.most_directions(problem.model.n_features, 1 if identity else 2)
    oracle = core.PairOracle.of_matrices(
        core.SymmetricMatrices(problem.a, problem.b, thread_count()),
        "none" if math.isinf(mu) else noise.kind,
        noise_a,
        noise_b,
        noise.shape,
        noise.n_products,
        stream,
        most_directions,
    )
    return NoisyProducts(
        oracle=oracle,
        groups=None,
        noise_level=(noise_a if identity else noise_b) * math.sqrt(2 * problem.model.n_features),
        identity_b=identity,
        lazy=not fresh,
        most_directions=most_directions,
    )


def _each_product(blocks: tuple[NoiseBlock, ...], mu_each: float, n_products: int) -> Iterator[Release]:
    private = [block for block in blocks if block.deviation > 0]
    mu_block = equal_parts(mu_each, len(private))
    for step in range(n_products):
        for block in private:
            yield Release(f"product with {block.name}, {step + 1} of {n_products}", mu_block, (block,))


@dataclass(frozen=True)
class _Plan:
    """Deviations in units of rows in the unit ball, sums over people, and what the ledger says of them."""

    deviations: MomentNoise
    releases: tuple[Release, ...]


def _plan(problem: MomentProblem, mu: float, noise: ProductNoise) -> _Plan:
    layout, adjacency = problem.layout, problem.facts.adjacency
    second = "second moment of rows/bound, sum over people"
    if noise.kind == "lazy" or math.isinf(mu):
        deviations = calibrate_moments(mu, layout, adjacency)
        block = NoiseBlock(second, "goe", deviations.second)
        blocks = (block, *_group_blocks(deviations, layout)) if math.isfinite(mu) else ()
        return _Plan(deviations, (Release("moment matrix, known by its products", mu, blocks),))
    mu_groups, mu_products = split(mu, GROUPS_SHARE) if layout.has_groups else (0.0, mu)
    mu_each = equal_parts(mu_products, noise.n_products)
    groups = calibrate_groups(mu_groups, layout, adjacency) if layout.has_groups else MomentNoise(0.0, 0.0, 0.0)
    each = calibrate_moments(mu_each, MomentLayout(layout.n_features, 0, sums=False, counts=False), adjacency).second
    block = NoiseBlock(second, noise.shape, each)
    releases = [
        Release(f"product with the second moment, {step + 1} of {noise.n_products}", mu_each, (block,))
        for step in range(noise.n_products)
    ]
    if layout.has_groups:
        releases.insert(0, Release("sums and counts", mu_groups, _group_blocks(groups, layout)))
    return _Plan(MomentNoise(each, groups.sums, groups.counts), tuple(releases))


def _group_blocks(noise: MomentNoise, layout: MomentLayout) -> tuple[NoiseBlock, ...]:
    blocks = []
    if layout.sums:
        blocks.append(NoiseBlock("sums of rows/bound per group", "independent", noise.sums))
    if layout.counts:
        blocks.append(NoiseBlock("counts per group", "independent", noise.counts))
    return tuple(blocks)


def _release_groups(
    problem: MomentProblem, rows: RowProducts | StreamedProducts, noise: MomentNoise, stream: core.NoiseStream
) -> NoisyGroups:
    bound, layout = row_bound(problem.facts), problem.layout
    sums, counts = rows.sums / bound, rows.counts.astype(np.float64)
    if layout.sums:
        core.add_noise(sums, noise.sums, stream)
    if layout.counts:
        core.add_noise(counts[None, :], noise.counts, stream)
    people = released_people(problem.facts, rows.n, counts)
    return NoisyGroups(
        sums=sums * (bound / people),
        counts=released_shares(layout, counts, people),
        n=people,
        noise=noise.scaled(bound * bound / people, bound / people, 1 / people),
    )
