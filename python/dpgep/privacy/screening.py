"""Screening for large coordinates: noisy scores of all features from O(d) released numbers, and which are kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._show import Shown
from dpgep.models.model import Matrix
from dpgep.models.moments import NO_NOISE, MomentLayout, MomentNoise
from dpgep.models.row_model import pencil_of
from dpgep.privacy.curator import Curator, group_blocks, matrix_blocks, normalized_groups, prepare_matrices, row_bound
from dpgep.privacy.ledger import Charge, LedgerEntry, NoiseBlock, split_budget
from dpgep.privacy.noise import (
    MOST_BITS,
    add_grid_noise,
    calibrate_moments,
    calibrate_vector,
    finest_bits,
    moment_mu,
    noisy_groups,
    noisy_squares,
    require_cost,
)
from dpgep.privacy.rounding import Allowance, most_people, released_matrix_allowance, screen_error, vector_allowance
from dpgep.problems.problem import MatrixProblem, MomentProblem, Problem, rows_of

# Share of mu^2 for the number of people if it is not public and two views are screened: a public constant.
_COUNT_SHARE = 0.1
# Rows restricted to the features kept are clipped at this multiple of their released mean square: a public constant.
_RECLIP = 2.0
_QUERY = "diagonal of the second moment"
# True scores are drawn so often, from a public seed.
_DRAWS = 16
_SEED = 0x73637265656E


@dataclass(frozen=True, eq=False)
class Screen:
    """Released scores, all public."""

    scores: Matrix  # (d,), diag(A)/diag(B); for two views the norm of each feature's row of their cross-covariance
    energy: Matrix | None  # (d,), diagonal of the second moment of the rows, where there are rows
    noise: float  # its deviation, in `energy`, or in diag(A)


@dataclass(frozen=True)
class Scores:
    """Noisy scores of all features.

    The diagonal of the second moment with the sums and counts of the model, or with the row norms of two views. All are
    exact integers except the row norms, which are rounded to a grid. Sensitivities: `_views_sensitivity`.
    """

    def answer(self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge) -> Screen:
        if isinstance(problem, MatrixProblem):
            return screen_matrices(problem, mu, stream, charge)
        rows = rows_of(problem, "a screen")
        if math.isinf(mu):
            return _plain_screen(rows, charge)
        return (_screen_of_views if rows.model.view_sizes else _screen_of_moments)(rows, mu, stream, charge)


def screen_matrices(problem: MatrixProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> Screen:
    """Diagonals of A and B: parts of the matrices, so their sensitivities apply."""
    ready = prepare_matrices(problem, mu, partial(released_matrix_allowance, d=problem.model.n_features))
    charge(LedgerEntry("diagonals of A and B", mu, matrix_blocks(problem, ready.noise_a, ready.noise_b, "independent")))
    a = add_grid_noise(np.diagonal(ready.a), ready.noise_a, stream)
    b = np.ones_like(a) if ready.b is None else add_grid_noise(np.diagonal(ready.b), ready.noise_b, stream)
    return Screen(_ratio(a, b, ready.noise_b), None, ready.noise_a)


def _plain_screen(problem: MomentProblem, charge: Charge) -> Screen:
    sums = problem.group_sums(with_squares=True)
    norms = problem.cross_norms() if problem.model.view_sizes else None
    charge(LedgerEntry(_QUERY, math.inf, ()))
    return _scored(problem, sums.n, sums.squares, sums.sums / row_bound(problem.facts), sums.counts, norms, NO_NOISE)


def _screen_of_moments(problem: MomentProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> Screen:
    layout, adjacency = problem.layout, problem.facts.adjacency
    noise = calibrate_moments(mu, layout, adjacency)
    weight_bits = problem.dataset.weight_bits
    bits = finest_bits(noise, weight_bits)
    exact = problem.grid_sums(bits, with_squares=True)
    (square, of_sums, of_counts), noise = _on_grid(noise, bits, weight_bits)
    require_cost(moment_mu(noise, layout, adjacency), mu)
    charge(LedgerEntry(_QUERY, mu, _blocks(problem, noise, layout), bits + weight_bits // 2))
    energy = noisy_squares(exact, square, stream)
    return _scored(problem, exact.n, energy, *noisy_groups(exact, of_sums, of_counts, stream), None, noise)


def _screen_of_views(problem: MomentProblem, mu: float, stream: core.NoiseStream, charge: Charge) -> Screen:
    weight_bits = problem.dataset.weight_bits
    bits = finest_bits(_view_deviations(problem, mu), weight_bits)
    # no sums are released, and counts only if they are not public
    layout = replace(problem.layout, sums=False)
    exact = replace(problem, layout=layout).grid_sums(bits, with_squares=True)
    n = most_people(problem.facts, exact.n)
    (square, _, count), noise = _on_grid(_view_deviations(problem, mu, n, bits), bits, weight_bits)
    require_cost(_views_cost(problem, noise, n, bits), mu)
    norms = problem.cross_norms()
    charge(LedgerEntry(_QUERY, mu, _blocks(problem, noise, layout)))
    energy = noisy_squares(exact, square, stream)
    norms = add_grid_noise(norms, noise.second, stream)
    return _scored(problem, exact.n, energy, *noisy_groups(exact, 0, count, stream), norms, noise)


def _scored(
    problem: MomentProblem,
    n: int,
    energy: Matrix,
    sums: Matrix,
    counts: NDArray[Any],
    norms: Matrix | None,
    noise: MomentNoise,
) -> Screen:
    """Scores from released sums over people in the unit ball."""
    groups = normalized_groups(problem.facts, problem.layout, n, sums, counts, noise)
    scale = row_bound(problem.facts) ** 2 / groups.n
    if norms is not None:
        return Screen(norms * scale, energy * scale, groups.noise.second)
    scores = _ratio(*pencil_of(problem.model, groups).diagonals(energy * scale), groups.noise.second)
    return Screen(scores, energy * scale, groups.noise.second)


def _on_grid(noise: MomentNoise, bits: int, weight_bits: int) -> tuple[list[int], MomentNoise]:
    """Deviations of squares in whole units of 4^-bits, of sums and counts of 2^-bits, times the weight of a person; and
    what these are.
    """
    units = 2 * bits + weight_bits, bits + weight_bits, bits + weight_bits
    deviations = noise.second, noise.sums, noise.counts
    scales = [math.ceil(math.ldexp(each, unit)) for each, unit in zip(deviations, units, strict=True)]
    return scales, MomentNoise(*(math.ldexp(scale, -unit) for scale, unit in zip(scales, units, strict=True)))


def _blocks(problem: MomentProblem, noise: MomentNoise, layout: MomentLayout) -> tuple[NoiseBlock, ...]:
    names = [_QUERY, *["row norms of the cross-covariance"] * bool(problem.model.view_sizes)]
    squares = (NoiseBlock(f"{name} of rows/bound, sum over people", "independent", noise.second) for name in names)
    return *squares, *group_blocks(noise, problem.facts, layout)


def _ratio(a: Matrix, b: Matrix, noise: float) -> Matrix:
    """The ratio of two diagonals; entries of B are at least the deviation of their noise."""
    floor = max(noise, float(np.finfo(float).eps) * float(np.abs(b).max(initial=0.0)))
    return np.asarray(np.divide(a, np.maximum(b, floor), out=np.zeros_like(a), where=np.maximum(b, floor) > 0))


def _view_deviations(problem: MomentProblem, mu: float, n: int = 0, bits: int = MOST_BITS) -> MomentNoise:
    """Of squares and row norms (``second``), and of the count, for at most n people."""
    mu_count, mu_values = split_budget(mu, _COUNT_SHARE) if problem.layout.counts else (math.inf, mu)
    left = _views_allowance(problem, n, bits).within(mu_values)
    return MomentNoise(calibrate_vector(_views_sensitivity(problem), left), 0.0, calibrate_vector(1.0, mu_count))


def _views_sensitivity(problem: MomentProblem) -> float:
    """Of the diagonal and of the row norms together, rounded up. Proof: proofs/Screens.v, which Coq checks."""
    replaces, n_views = problem.facts.adjacency == "replace-one", len(problem.model.views)
    squared = 2.0 if replaces else 1.0
    if problem.layout.sums and n_views == 2:
        squared = 13.5 if replaces else 8.5
    elif problem.layout.sums:
        squared += 16.0 if replaces else 16.0 * (1 - 1 / n_views)
    return math.nextafter(math.sqrt(math.nextafter(squared, math.inf)), math.inf)


def _views_allowance(problem: MomentProblem, n: int, bits: int) -> Allowance:
    d = problem.layout.n_features
    return vector_allowance(d, _views_sensitivity(problem), screen_error(n, d, bits))


def _views_cost(problem: MomentProblem, noise: MomentNoise, n: int, bits: int) -> float:
    values = _views_allowance(problem, n, bits).cost(_views_sensitivity(problem) / noise.second)
    return math.hypot(values, 1 / noise.counts if problem.layout.counts else 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Screened(Shown):
    """Features kept by a screen; all of it follows from released scores.

    Attributes
    ----------
    features : indices of the features kept, ascending; as many from each view.
    bound : the bound that rows are clipped to after the other features are dropped.
    share : fraction of the run's mu^2 that the scores cost.
    missed : share of what the features with the largest true scores hold that noise has kept out: expected, given the
        released scores; 0 without noise.
    """

    features: NDArray[np.intp]
    bound: float
    share: float
    missed: float = 0.0


def keep_features(curator: Curator, n_features: int, share: float, purpose: str) -> tuple[Screened, Matrix]:
    """Buy noisy scores for ``share`` of mu^2 and keep the ``n_features`` largest of each view; the scores as well.

    Rows restricted to these features are shorter, so that they can be clipped to a smaller bound, which follows from
    the released diagonal: the block of the features kept carries far less noise than the whole.
    """
    screen = curator.answer(Scores(), share, purpose)
    features = _largest_per_view(curator, screen.scores, n_features)
    bound = curator.facts.bound or 1.0
    if screen.energy is not None:
        # what its noise has chosen counts as the average feature, plus what it has above the least value chosen
        chosen = screen.energy[features]
        excess = float((chosen - chosen.min()).sum())
        mean_square = len(chosen) * max(float(screen.energy.mean()), 0.0) + excess
        bound = min(bound, math.sqrt(_RECLIP * mean_square)) if mean_square > 0 else bound
    missed = _missed(curator, screen, features, n_features)
    return Screened(features, bound, share, missed), screen.scores


def _missed(curator: Curator, screen: Screen, features: NDArray[np.intp], n_features: int) -> float:
    """Expected share of the largest true scores that lies outside of the features kept, drawn as they may have been:
    normal, with the mean and what noise leaves of the spread of the released ones, given those.
    """
    deviation = _score_deviation(curator, screen)
    if not deviation.any():
        return 0.0
    generator = np.random.default_rng(_SEED)
    kept = np.zeros(len(screen.scores), dtype=bool)
    kept[features] = True
    centre = float(np.median(screen.scores))
    spread = float(np.mean((screen.scores - centre) ** 2))
    reliability = np.maximum(1 - deviation**2 / spread, 0.0) if spread > 0 else np.zeros(len(screen.scores))
    missed = []
    for _ in range(_DRAWS):
        scores = reliability * (screen.scores - centre)
        scores += np.sqrt(reliability) * deviation * generator.standard_normal(len(scores))
        right = _largest_per_view(curator, scores, n_features)
        worth = np.maximum(scores[right], 0.0) + 1e-12 * deviation[right]  # all alike where noise is all there is
        missed.append(float(worth[~kept[right]].sum() / worth.sum()) if spread > 0 else 1.0)
    hopeless = 1 - len(features) / len(kept)
    return float(np.mean(missed)) if reliability.any() else hopeless


def _score_deviation(curator: Curator, screen: Screen) -> Matrix:
    """(d,), deviation of the noise in each score, to first order."""
    model = curator.model
    if model.traits.noise_order == 1 or screen.energy is None:
        return np.full(len(screen.scores), screen.noise)
    # scatter of the means of G groups over variance; sums have the noise of the diagonal over the bound
    groups, noise = model.max_components + 1, screen.noise / (curator.facts.bound or 1.0)
    variance = np.maximum(screen.energy, screen.noise)
    alone = noise**2 * groups * np.sqrt(2 * groups) / variance
    return np.asarray(alone + 2 * noise * np.sqrt(groups * np.maximum(screen.scores, 0.0) / variance))


def _largest_per_view(curator: Curator, scores: Matrix, n: int) -> NDArray[np.intp]:
    chosen = [view.start + np.argsort(-scores[view], kind="stable")[:n] for view in curator.model.views]
    return np.sort(np.concatenate(chosen))
