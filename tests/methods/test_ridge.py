"""The ridge of B: its choice from a release, against known limits, and what noise does to a spectrum."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from conftest import Matrix, solve_seeded, unit_rows

import dpgep
from dpgep.methods.eigen import solve_pair
from dpgep.methods.ridge import MOST_FEATURES, MULTIPLES, Repeats, public_ridge, released_ridge
from dpgep.models import CcaModel, FdaModel, GepModel, ReleasedMatrices
from dpgep.models.moments import MomentNoise, ReleasedMoments, goe
from dpgep.models.null import (
    LEAST_DEVIATIONS,
    edge,
    low_rank_before_noise,
    merged_directions,
    mixed_directions,
    signal_of,
    spectrum_before_noise,
)

D = 12


def released(b: Matrix, a: Matrix, noise: float, seed: int = 0) -> ReleasedMatrices:
    """A and B with GOE noise of one deviation."""
    generator = np.random.default_rng(seed)
    return ReleasedMatrices(a + goe(len(a), noise, generator), b + goe(len(b), noise, generator), noise, noise)


def pair_with_spectrum(values: Matrix, rng: np.random.Generator, d: int = D) -> tuple[Matrix, Matrix]:
    """B with these eigenvalues, and an A whose leading solution is spread over all of them."""
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    b = (basis * values) @ basis.T
    v = basis @ (np.sqrt(values) * rng.choice([-1.0, 1.0], d)) / math.sqrt(d)
    return b, np.outer(v, v)


def choose(given: ReleasedMatrices, k: int = 1) -> float:
    model = GepModel(len(given.a))
    level = model.noisy(given).noise_of_b
    assert level is not None
    return Repeats.of(model.noisy(given), k).chosen(level).regularization / level


# --- the choice ---


def test_no_noise_no_ridge(rng: np.random.Generator) -> None:
    labels = np.arange(300) % 3
    x = unit_rows(rng.standard_normal((300, 4)) + labels[:, None])
    exact = dpgep.solve(dpgep.fda(x, labels, classes="public", bound=1.0), epsilon=math.inf)
    assert exact.diagnostics.regularization == 0
    private = solve_seeded(dpgep.fda(x, labels, classes="public", bound=1.0), epsilon=1.0, delta=1e-5)
    multiple = private.diagnostics.regularization / private.diagnostics.noise_level
    assert min(abs(multiple - known) for known in MULTIPLES) < 1e-12


def test_the_identity_has_no_ridge(rng: np.random.Generator) -> None:
    solution = solve_seeded(dpgep.pca(unit_rows(rng.standard_normal((300, 4))), bound=1.0), epsilon=1.0, delta=1e-5)
    assert solution.diagnostics.regularization == 0


def test_a_spectrum_far_above_the_noise_wants_little(rng: np.random.Generator) -> None:
    """Eigenvalues from 1 to 100 and noise of 1e-3: whatever xi does to the small ones is bias."""
    b, a = pair_with_spectrum(np.geomspace(1, 100, D), rng)
    assert choose(released(b, a, 1e-3)) <= 0.1


def test_small_eigenvalues_below_the_noise_want_about_its_level(rng: np.random.Generator) -> None:
    values = np.r_[np.full(3, 10.0), np.full(D - 3, 0.02)]
    b, a = pair_with_spectrum(values, rng)
    chosen = [choose(released(b, a, 0.05, seed)) for seed in range(5)]
    assert min(chosen) >= 0.3


@pytest.mark.parametrize("noise", [1e-3, 0.3, 1e3])
def test_the_choice_is_deterministic_and_leaves_the_release_alone(noise: float, rng: np.random.Generator) -> None:
    given = released(*pair_with_spectrum(np.geomspace(0.1, 10, D), rng), noise)
    assert given.b is not None
    a, b = given.a.copy(), given.b.copy()
    first, second = choose(given, 2), choose(given, 2)
    assert first == second
    np.testing.assert_array_equal(given.a, a)
    np.testing.assert_array_equal(given.b, b)


def test_the_choice_knows_no_units(rng: np.random.Generator) -> None:
    """A, B and their noise in other units: xi in the same. A power of two, so that rounding is the same too."""
    given = released(*pair_with_spectrum(np.geomspace(0.1, 10, D), rng), 0.1)
    assert given.b is not None
    unit = 2.0**-9
    scaled = ReleasedMatrices(given.a * unit, given.b * unit, given.noise_a * unit, given.noise_b * unit)
    assert choose(scaled) == choose(given)


def test_a_given_ridge_stays(rng: np.random.Generator) -> None:
    labels = np.arange(300) % 3
    x = unit_rows(rng.standard_normal((300, 4)) + labels[:, None])
    solution = solve_seeded(
        dpgep.fda(x, labels, classes="public", bound=1.0), epsilon=1.0, delta=1e-5, regularization=0.123
    )
    assert solution.diagnostics.regularization == 0.123


def test_a_public_ridge_falls_with_the_answers() -> None:
    assert public_ridge(2.0, n_answers=4, multiple=0.5) == 0.5


def test_many_features_are_thinned_out(rng: np.random.Generator) -> None:
    """The choice of a problem of 300 features is that of one of the same shape, and takes only small matrices."""
    d = 300
    low = pair_with_spectrum(np.geomspace(1, 100, d), rng, d)
    assert d > 2 * MOST_FEATURES
    assert choose(released(*low, 1e-4)) <= 0.1
    high = pair_with_spectrum(np.r_[np.full(30, 10.0), np.full(d - 30, 0.002)], rng, d)
    assert choose(released(*high, 0.02)) >= 0.3


@pytest.mark.parametrize("name", ["cca", "fda", "sir"])
def test_views_and_groups_are_thinned_out(name: str, rng: np.random.Generator) -> None:
    n, d = 3000, 150
    x = rng.standard_normal((n, d))
    x[:, 100:103] += 2 * x[:, :3]
    x = unit_rows(x)
    given: Any = {
        "cca": lambda: dpgep.cca(x[:, :100], x[:, 100:], bound=1.0),
        "fda": lambda: dpgep.fda(x, (x[:, 0] > 0) + 0, classes=[0, 1], bound=1.0),
        "sir": lambda: dpgep.sir(x, x[:, 0], y_range=(-0.5, 0.5), bound=1.0),
    }[name]()
    solution = solve_seeded(given, epsilon=3.0, delta=1e-5, n_components=1)
    assert solution.diagnostics.regularization / solution.diagnostics.noise_level == pytest.approx(
        min(MULTIPLES, key=lambda m: abs(m - solution.diagnostics.regularization / solution.diagnostics.noise_level))
    )
    assert 0 <= solution.diagnostics.expected_subspace_error <= 1


# --- the errors ---


def test_without_noise_the_error_is_the_bias(rng: np.random.Generator) -> None:
    """Against a direct computation: the solution with the ridge and the one without, in the norm of B."""
    b, a = pair_with_spectrum(np.geomspace(0.1, 10, D), rng)
    tiny = released(b, a, 1e-9)
    for xi, found in zip([0.1, 1.0], Repeats.of(GepModel(D).noisy(tiny), 1).errors(np.array([0.1, 1.0])), strict=True):
        right, biased = (
            solve_pair(a.copy(), b.copy(), regularization=ridge, rounding=0.0).vectors[:, 0] for ridge in (0.0, xi)
        )
        cosine = (right @ b @ biased) ** 2 / ((right @ b @ right) * (biased @ b @ biased))
        assert found.error[0] == pytest.approx(1 - cosine, rel=1e-3)
        assert found.subspace_error == pytest.approx(1 - cosine, rel=1e-3)


def test_the_estimate_is_near_the_truth(rng: np.random.Generator) -> None:
    """Noise well below the spectrum: error, ridge and all, against 400 draws. Both are means of positive errors.

    The seed is fixed. The simulation draws 33 releases, whose mean error has a relative deviation of about
    0.3/sqrt(33); the band is more than 10 of them on each side.
    """
    b, a = pair_with_spectrum(np.geomspace(1, 10, D), rng)
    noise, xi = 0.03, 0.3
    right = solve_pair(a.copy(), b.copy(), regularization=0.0, rounding=0.0).vectors[:, 0]
    errors = []
    for seed in range(400):
        draw = released(b, a, noise, seed)
        assert draw.b is not None
        v = solve_pair(draw.a, draw.b, regularization=xi, rounding=0.0).vectors[:, 0]
        errors.append(1 - (right @ b @ v) ** 2 / ((right @ b @ right) * (v @ b @ v)))
    (estimate,) = Repeats.of(GepModel(D).noisy(released(b, a, noise, 1000)), 1).errors(np.array([xi]))
    assert 0.5 < estimate.subspace_error / np.mean(errors) < 2


def test_the_order_of_solutions_that_noise_hides_is_not_taken_for_known() -> None:
    """A ridge prefers one of two solutions whose eigenvalues are alike: noise leaves open whether the right one.

    Were the supposed truth sure, errors would be 0.02 and less in some releases. Everything has fixed seeds: no error
    probability. Without shakes and repulsion the last line fails.
    """
    values = np.r_[0.1, np.full(D - 2, 1.0), 2.0]
    duals = np.sqrt(values) * np.eye(D)
    a = (duals[:, [0, -1]] * [0.99, 0.98]) @ duals[:, [0, -1]].T
    known, judged = [], []
    for seed in range(8):
        noisy = GepModel(D).noisy(released(np.diag(values), a, 0.01, seed))
        known.append(Repeats.of(noisy, 1).errors(np.ones(1))[0].error[0])
        found = released_ridge(noisy, 1, 0.05, 1.0, sparse=False)[1]
        assert found is not None
        judged.append(found.error[0])
    assert min(known) < 0.02
    assert min(judged) > 0.2


def test_a_b_of_low_rank_is_no_reason_to_fail(rng: np.random.Generator) -> None:
    given = replace(released(np.eye(3), np.eye(3), 0.5), b=-np.eye(3))
    for found in Repeats.of(GepModel(3).noisy(given), 3).errors(np.array([0.0, 1.0])):
        assert np.isfinite(found.error).all()
        assert (found.error <= 1 + 1e-9).all()


# --- what noise does to a spectrum ---


def test_eigenvalues_well_above_the_noise_are_recovered(rng: np.random.Generator) -> None:
    """Spikes of 3 and 5 edges in 200 dimensions: noise moves them by 1/12 and 1/20, which is taken back.

    A spike's deviation is that of one entry, edge/sqrt(2 d) = edge/20 at most; the band is 10 of them.
    """
    d, deviation = 200, 1.0
    limit = edge(d, deviation)
    truth = np.zeros(d)
    truth[:2] = 3 * limit, 5 * limit
    values = np.linalg.eigvalsh(np.diag(truth) + goe(d, deviation, rng))
    found = spectrum_before_noise(values, deviation)
    np.testing.assert_allclose(found[-2:], [3 * limit, 5 * limit], atol=limit / 2)
    np.testing.assert_allclose(found[:-2], LEAST_DEVIATIONS * deviation)


def test_what_is_swamped_keeps_its_trace(rng: np.random.Generator) -> None:
    """All eigenvalues at 0.7 edges: within the noise, their mean is known to deviation/sqrt(d)."""
    d, deviation = 100, 1.0
    limit = edge(d, deviation)
    values = np.linalg.eigvalsh(0.7 * limit * np.eye(d) + goe(d, deviation, rng))
    found = spectrum_before_noise(values, deviation)
    assert found.mean() == pytest.approx(0.7 * limit, abs=10 * deviation / math.sqrt(d))


def test_a_spectrum_before_noise_is_positive() -> None:
    assert (spectrum_before_noise(np.array([-5.0, -1.0, -0.5]), 1.0) > 0).all()
    np.testing.assert_array_equal(spectrum_before_noise(np.array([-1e-18, 2.0]), 0.0), [0.0, 2.0])


def test_noise_alone_is_no_signal(rng: np.random.Generator) -> None:
    """In 60 dimensions the largest eigenvalue of the noise is within a few hundredths of its edge."""
    noise = goe(60, 1.0, rng)
    assert np.linalg.norm(signal_of(noise * 0.8, 1.0)) == 0
    spike = np.zeros((60, 60))
    spike[0, 0] = -100.0
    assert signal_of(spike + noise, 1.0)[0, 0] == pytest.approx(-100.0, rel=0.1)


def test_a_low_rank_matrix_before_noise(rng: np.random.Generator) -> None:
    """A singular value of 30 in 400 x 9, where noise makes up to 23 and adds 6: size and overlap of it are right.

    One entry along it has deviation 1: the size is allowed 6. The squared cosine has a deviation of about 0.02: 0.15.
    """
    m, n = 400, 9
    u, v = np.linalg.qr(rng.standard_normal((m, 1)))[0], np.linalg.qr(rng.standard_normal((n, 1)))[0]
    found = low_rank_before_noise(30 * u @ v.T + rng.standard_normal((m, n)), 1.0)
    assert found.sizes[0] == pytest.approx(30, abs=6)
    assert found.overlaps[0] == pytest.approx((found.left[:, 0] @ u[:, 0]) ** 2, abs=0.15)
    assert (found.overlaps[1:] < 0.3).all()  # what passes the edge by chance
    assert 0.5 < found.overlaps[0] < 0.8
    assert low_rank_before_noise(np.empty((0, 3)), 1.0).left.shape == (0, 0)
    exact = low_rank_before_noise(np.diag([2.0, 1.0]), 0.0)
    np.testing.assert_allclose(exact.sizes, [2, 1])
    np.testing.assert_allclose(exact.overlaps, 1)


@pytest.mark.parametrize(("m", "n"), [(3, 3), (4, 50), (50, 4)])
def test_singular_values_are_taken_back_to_what_noise_moves_there(m: int, n: int) -> None:
    true, deviation = np.array([90.0, 40.0, 21.0]), 1.3
    left, right = m * deviation**2, n * deviation**2
    moved = np.sqrt((true**2 + left) * (true**2 + right)) / true
    noisy = np.zeros((m, n))
    noisy[range(3), range(3)] = moved
    found = low_rank_before_noise(noisy, deviation)
    np.testing.assert_allclose(found.sizes, true, rtol=1e-12)
    np.testing.assert_allclose(found.overlaps, (true**4 - left * right) / (true**4 + left * true**2), rtol=1e-12)


def test_directions_that_are_merged_keep_trace_and_sums(rng: np.random.Generator) -> None:
    values, rows = np.geomspace(1, 100, 30), rng.standard_normal((30, 2))
    merged, sums, numbers = merged_directions(values, rows, 7)
    assert len(merged) == len(sums) == 7
    assert numbers.sum() == 30
    assert numbers @ merged == pytest.approx(values.sum())
    first = int(numbers[0])
    assert np.abs(sums[0, 0]) <= np.abs(rows[:first, 0]).sum()
    alone = merged_directions(values, rows, 30)
    np.testing.assert_array_equal(alone[0], values)
    np.testing.assert_allclose(np.abs(alone[1]), np.abs(rows))
    assert len(merged_directions(values[:0], rows[:0], 5)[0]) == 0


@pytest.mark.parametrize("d", [40, 400])
def test_the_truth_of_groups_is_that_of_the_rows(d: int, rng: np.random.Generator) -> None:
    """Two classes whose means differ along one direction below the noise of W, W there five times its mean elsewhere.

    The quotient of the classes is |difference|^2/4 over W along it, 4 here, whatever the noise in the other directions;
    with W replaced by its mean in all directions below the noise it is five times that.
    """
    values = np.r_[np.full(3, 1.0), 0.05, np.full(d - 4, 0.01)] / d
    deviation = 0.005 / d
    assert edge(d, deviation) > 0.04 / d
    sums = np.zeros((d, 2))
    sums[3] = math.sqrt(4 * values[3]) / 2 * np.array([1.0, -1.0])
    counts = np.full(2, 0.5)
    noise = MomentNoise(deviation, deviation, 0.0)
    second = np.diag(values) + (sums / counts) @ sums.T + goe(d, deviation, rng)
    given = ReleasedMoments(sums + deviation * rng.standard_normal(sums.shape), counts, 1000.0, noise, second)
    truth = FdaModel(d, (0, 1)).noisy(given).plausible_truth(MOST_FEATURES)
    pair = truth.pair()
    assert pair.b is not None
    assert len(pair.a) <= 2 * MOST_FEATURES + 1
    largest = scipy.linalg.eigh(pair.a, pair.b, eigvals_only=True)[-1]
    assert 2 < largest < 8


@pytest.mark.parametrize("d", [20, 200])
def test_the_truth_of_views_is_that_of_the_rows(d: int, rng: np.random.Generator) -> None:
    """A correlation of 0.8 along a direction of each view that noise reaches half of; elsewhere it reaches beyond.

    The seed is fixed. Noise in the three entries that make the correlation has a deviation of at most 0.08 of them.
    """
    values = np.r_[np.full(3, 1.0), 0.03, np.full(d - 4, 0.01)] / d
    deviation = 0.5 * values[3] / math.sqrt(2 * d)
    second = np.diag(np.tile(values, 2))
    second[3, d + 3] = second[d + 3, 3] = 0.8 * values[3]
    noise = MomentNoise(deviation, 0.0, 0.0)
    second = second + goe(2 * d, deviation, rng)
    given = ReleasedMoments(np.zeros((2 * d, 1)), np.empty(0), 1000.0, noise, second)
    truth = CcaModel((d, d), True).noisy(given).plausible_truth(MOST_FEATURES)
    pair = truth.pair()
    assert pair.b is not None
    assert len(pair.a) <= max(2 * d, 2 * MOST_FEATURES)
    assert np.linalg.eigvalsh(truth.before.released.second)[0] > 0
    correlations = scipy.linalg.eigh(pair.a, pair.b, eigvals_only=True)
    assert 0.5 < correlations[-1] < 1
    assert correlations[-2] < 0.3


def test_mixed_directions_are_orthonormal_and_keep_the_spectrum(rng: np.random.Generator) -> None:
    basis, values = np.linalg.qr(rng.standard_normal((30, 30)))[0], np.geomspace(1, 100, 30)
    mixed = mixed_directions(basis, 7, rng)
    np.testing.assert_allclose(mixed.T @ mixed, np.eye(7), atol=1e-12)
    thinned = np.linalg.eigvalsh(mixed.T @ (basis * values) @ basis.T @ mixed)
    assert 1 <= thinned[0] < thinned[-1] <= 100
    assert thinned.mean() == pytest.approx(values.mean(), rel=0.2)


# --- repeated releases in one array ---


@pytest.mark.parametrize("model", ["fda", "sir", "cca", "cca uncentred", "gep"])
def test_repeated_releases_are_those_of_calls_in_a_row(model: str, rng: np.random.Generator) -> None:
    x = unit_rows(rng.standard_normal((400, 6)) + 1)
    labels = np.arange(400) % 3
    if model == "gep":
        given = released(*pair_with_spectrum(np.geomspace(0.1, 10, D), rng), 0.1)
        truth: Any = GepModel(D).noisy(given).plausible_truth(96)
    else:
        asked: Any = {
            "fda": lambda: dpgep.fda(x, labels, classes=range(3), bound=1.0),
            "sir": lambda: dpgep.sir(x, labels + 0.0, slices=3, y_range=(0, 2), bound=1.0),
            "cca": lambda: dpgep.cca(x[:, :3], x[:, 3:], bound=1.0),
            "cca uncentred": lambda: dpgep.cca(x[:, :3], x[:, 3:], center=False, bound=1.0),
        }[model]()
        moments = solve_seeded(asked, epsilon=5.0, delta=1e-6, n_components=1, method="release")._moments
        truth = asked.model.noisy(moments).plausible_truth(96)
    together = truth.noisy_pair(np.random.default_rng(4), 5)
    generator = np.random.default_rng(4)
    for draw in range(5):
        single = truth.noisy_pair(generator)
        np.testing.assert_allclose(together.a[draw], single.a, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(together.b[draw], single.b, rtol=1e-12, atol=1e-15)
        if single.low_rank is not None:
            for part, whole in zip(single.low_rank, together.low_rank, strict=True):
                np.testing.assert_allclose(whole[draw], part, rtol=1e-12)
    assert not np.allclose(together.a[0], together.a[1])
