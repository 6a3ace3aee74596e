"""What clipping took: covariances that may have been there, and intervals that hold what it did."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import dpgep
from dpgep.models.clipping import Clipping, clipping_reach, longer_by
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentNoise, ReleasedMoments
from dpgep.models.preprocessing import unclipped
from dpgep.results.intervals import correlation_intervals


def categories(n: int, rng: np.random.Generator) -> Matrix:
    """Indicators of two of three levels, and numbers from 1 to 5 that depend on the level: rows of bounded length."""
    level = rng.choice(3, n, p=[0.55, 0.3, 0.15])
    scores = 1 + rng.binomial(4, np.array([[0.3, 0.4, 0.5], [0.5, 0.5, 0.5], [0.8, 0.7, 0.5]])[level])
    return np.column_stack([level == 0, level == 1, scores]).astype(float)


def test_what_was_there_lies_between_the_hypotheses(rng: np.random.Generator) -> None:
    """M of rows of any law, clipped about zero: its entries obey Cauchy and Schwarz."""
    rows = np.exp(rng.standard_normal((5000, 2)) @ rng.standard_normal((2, 4))) - 1.0
    clipped = rows * np.minimum(3.0 / np.linalg.norm(rows, axis=1), 1.0)[:, None]
    before, after = (each.T @ each / len(rows) for each in (rows, clipped))
    lost = 1 - np.diagonal(after) / np.diagonal(before)
    clipping = Clipping(after, lost, 1.0, np.zeros(4), 1.0)
    tails = np.sqrt(clipping.tails)
    np.testing.assert_allclose(np.square(tails), np.diagonal(before - after))
    assert (np.abs(before - after) <= np.outer(tails, tails) * (1 + 1e-12)).all()
    low, high = clipping.entries()
    for covariance in clipping.hypotheses(rng.standard_normal((4, 3))):
        np.testing.assert_allclose(np.diagonal(covariance), np.diagonal(before))
        assert ((low <= covariance + 1e-12) & (covariance <= high + 1e-12)).all()
    some = np.array([2, 0])
    np.testing.assert_array_equal(
        clipping.restricted(some).entries(), [each[np.ix_(some, some)] for each in (low, high)]
    )


def test_answers_reach_as_far_as_twice_as_much_was_clipped() -> None:
    """By hand: what is left is the identity, what was put back a fifth of it; nothing or two fifths may be right."""
    after, restored = np.eye(3), 1.2 * np.eye(3)
    clipping = Clipping(after, np.full(3, 1 - 1 / 1.2), 0.5, np.zeros(3), 1.0)
    below, above = clipping_reach(clipping, np.array(1.2), restored, lambda other: other[0, 0])
    assert (float(below), float(above)) == pytest.approx((0.5 * 0.2, 0.5 * 0.2))
    # dependent tails have the signs of the leading direction, and those turned
    below, above = clipping_reach(clipping, np.array(0.0), restored, lambda other: other[0, 2], np.array([1.0, 1, -1]))
    assert below == above == pytest.approx(0.5 * 0.6 * 0.2)
    assert not np.any(clipping_reach(None, np.ones(2), restored, np.diagonal))


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.statistical
def test_correlations_of_categories_are_held(rng: np.random.Generator) -> None:
    """Of 60 tables: by Hoeffding, a mean below 0.61 has a probability of 1e-6 where it is expected to be 0.95.

    Without what clipping may have done, Gaussian rows are put back: these are shorter, and intervals hold less.
    """
    held, unsaid = [], []
    upper = np.triu_indices(5, 1)
    for _ in range(60):
        rows = categories(20_000, rng)
        release = dpgep.release(rows, epsilon=1.0, delta=1e-5)
        moments, _ = unclipped(release._noisy, release.preprocessing)
        truth = np.corrcoef(rows.T)
        assert moments.clipping is not None
        for given, found in ((moments, held), (replace(moments, clipping=None), unsaid)):
            low, high = correlation_intervals(given)
            found.append(float(((low <= truth) & (truth <= high))[upper].mean()))
    least = 0.95 - math.sqrt(math.log(1e6) / 2 / 60)
    assert np.mean(held) >= least
    assert np.mean(unsaid) < np.mean(held)


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize("standardize", [True, False])
def test_eigenvalues_and_angles_hold_what_clipping_may_have_done(standardize: bool, rng: np.random.Generator) -> None:
    rows = np.exp(0.8 * rng.standard_normal((20_000, 4)) + 0.6 * rng.standard_normal((20_000, 1)))
    release = dpgep.release(rows, epsilon=1.0, delta=1e-5)
    solution = release.pca(standardize=standardize, n_components=1)
    moments = solution._moments
    assert moments is not None
    unsaid = replace(solution, _moments=replace(moments, clipping=None)).intervals()
    found, bounded = solution.intervals(), solution.intervals(rows="bounded")
    for narrow, wide in ((unsaid, found), (found, bounded)):
        assert (np.ptp(wide.eigenvalues, axis=1) > np.ptp(narrow.eigenvalues, axis=1)).all()
        assert (wide.angles >= narrow.angles).all()


def test_what_clipping_has_taken_is_warned_of(rng: np.random.Generator) -> None:
    """By every answer with intervals, which names the columns with the longest tails; not for rows that were kept."""
    common, own = rng.standard_normal((20_000, 1)), rng.standard_normal((20_000, 4))
    release = dpgep.release(2 * common + own, epsilon=1.0, delta=1e-5)
    moments, prepared = release._of_everybody
    assert moments.clipping is not None
    clipping = replace(moments.clipping, lost=np.array([0.0, 0.1, 0.0, 0.4]))
    release.__dict__["_of_everybody"] = replace(moments, clipping=clipping), prepared
    answers: list[Callable[[], Any]] = [
        release.correlation,
        release.covariance,
        release.mean_intervals,
        lambda: release.regression(0),
        release.pca(standardize=True, n_components=1).intervals,
    ]
    for answer in answers:
        with pytest.warns(dpgep.errors.AccuracyWarning, match="columns such as '?3") as caught:
            answer()
        assert all(len(str(each.message)) <= 200 for each in caught)
    exact = dpgep.release(own, epsilon=math.inf)
    exact.correlation()
    exact.mean_intervals()


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_means_and_coefficients_hold_what_clipping_may_have_done(rng: np.random.Generator) -> None:
    """Means of skewed columns, of which clipping takes the ends; bounded rows have longer intervals."""
    rows = np.exp(0.5 * rng.standard_normal((20_000, 3)) + 0.5 * rng.standard_normal((20_000, 1)))
    release = dpgep.release(rows, epsilon=1.0, delta=1e-5)
    low, high = release.mean_intervals().T
    assert (low < high).all()
    assert ((low <= release.mean()) & (release.mean() <= high)).all()
    surely = release.mean_intervals(level=1 - 1e-6).T
    assert ((surely[0] <= rows.mean(axis=0)) & (rows.mean(axis=0) <= surely[1])).all()
    for wide in (release.mean_intervals(rows="bounded"), release.mean_intervals(level=0.99)):
        assert ((wide[:, 0] < low) & (wide[:, 1] > high)).all()
    fit = release.regression(0)
    assert (fit.clipping_reach >= 0).all()
    assert fit.clipping_reach.any()
    ends = fit.intervals()
    assert (np.ptp(ends, axis=1) >= fit.clipping_reach[1:].sum(axis=1)).all()


def test_a_column_with_tails_of_its_own_may_vary_more() -> None:
    """By 2.5 times what is missing of its bought variance; the others by no more than all rows show."""
    second = np.diag([1.0, 1.0, 0.85])
    moments = ReleasedMoments(np.zeros((3, 1)), np.ones(1), 2e5, MomentNoise(0.0, 1e-3, 0.0), second)
    bought = dpgep.Preprocessing(5.0, np.zeros(3), np.ones(3), energy_kept=0.99, variance_error=np.full(3, 0.01))
    restored, _ = unclipped(moments, bought)
    found, before = restored.clipping, restored.second[2, 2]
    assert found is not None
    sure = 1 - (0.01 / (1 - before)) ** 2
    np.testing.assert_allclose(found.most[2], before + sure * (1.01 + 1.5 * 0.15 - before))
    assert (found.most[:2] < 1.1).all()


def test_zeros_and_ones_have_the_variances_that_their_means_show() -> None:
    """Scales larger than deviations hide no loss, and what rows lost is what numbers did; of a scale that is a tenth
    too small clipping has taken a fifth.
    """
    shares, scale = np.array([0.9, 0.1, 0.0, 0.0]), np.array([0.5, 0.5, 1.0, 1.0])
    second = np.diag([0.36, 0.36, 0.99, 0.99])
    moments = ReleasedMoments(np.zeros((4, 1)), np.ones(1), 2e5, MomentNoise(1e-4, 1e-4, 0.0), second)
    error = np.array([2.0, 2.0, 0.01, 0.01])
    bought = dpgep.Preprocessing(2.5, shares, scale, energy_kept=0.99, variance_error=error)
    restored, _ = unclipped(moments, bought, [(0, 1)])
    np.testing.assert_allclose(np.diagonal(restored.second), [0.36, 0.36, 1.0, 1.0], rtol=0.006)
    assert (np.diagonal(unclipped(moments, bought)[0].second)[2:] > 1.05).all()
    assert restored.clipping is not None
    assert (restored.clipping.most[:2] < 0.363).all()
    clipping = unclipped(moments, replace(bought, scale=scale * [0.9, 0.9, 1.0, 1.0]), [(0, 1)])[0].clipping
    assert clipping is not None
    assert (clipping.lost[:2] > 0.18).all()


def test_noise_of_a_bought_variance_is_no_tail() -> None:
    """2 % more than is left are held where they were bought to 0.3 %, and not where noise explains them."""
    moments = ReleasedMoments(np.zeros((2, 1)), np.ones(1), 2e5, MomentNoise(1e-4, 0.0, 0.0), 0.98 * np.eye(2))
    most = []
    for error in (0.003, 0.05):
        bought = dpgep.Preprocessing(5.0, np.zeros(2), np.ones(2), energy_kept=0.995, variance_error=np.full(2, error))
        clipping = unclipped(moments, bought)[0].clipping
        assert clipping is not None
        most.append(clipping.most)
    assert (most[0] > 1.0).all()
    assert (most[1] < 1.0).all()


@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_intervals_are_as_much_longer_as_a_bias_within_reach_asks(level: float) -> None:
    """The worst bias leaves the level as it is, to 1e-9, by the normal law; half and reach added would hold more."""
    half, reach = np.array([1.0, 1.0, 1.0, 0.2, 1e-3, 1.0]), np.array([0.1, 1.0, 3.0, 2.0, 5.0, 30.0])
    held, deviation = half + longer_by(half, reach, level), half / ndtri((1 + level) / 2)
    inside = ndtr((held - reach) / deviation) - ndtr((-held - reach) / deviation)
    np.testing.assert_allclose(inside, level, atol=1e-9)
    assert (held < half + reach).all()
    assert (held > half).all()
    np.testing.assert_array_equal(longer_by(half, np.zeros(6), level), 0.0)
    for end in (0.0, np.inf):
        np.testing.assert_array_equal(longer_by(np.full(6, end), reach, level), reach)


@pytest.mark.deep
@pytest.mark.statistical
def test_intervals_hold_biased_estimates_as_often_as_they_say() -> None:
    """A million errors with the largest bias: 90 % are held within five deviations of the binomial law (6e-7)."""
    draws, (half, reach) = 1_000_000, (np.array(1.0), np.array(0.7))
    errors = reach + half / ndtri(0.95) * np.random.default_rng(3).standard_normal(draws)
    held = np.abs(errors) <= half + longer_by(half, reach, 0.9)
    assert abs(held.mean() - 0.9) < 5 * np.sqrt(0.9 * 0.1 / draws)


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_a_group_s_mean_does_not_reach_to_that_of_everybody(rng: np.random.Generator) -> None:
    group = rng.random(20_000) < 0.5
    rows = rng.standard_normal((20_000, 2)) + 2.0 * group[:, None]
    release = dpgep.release(rows, group, classes=[False, True], by_group=True, epsilon=1.0, delta=1e-5)
    low, high = release.of_group(True).mean_intervals([0]).T
    assert low > 1.5
    assert low < rows[group, 0].mean() < high


@pytest.mark.parametrize("columns", [[0, 0, 1], [1, 1, 1]], ids=["of one", "of one or another"])
def test_angles_hold_the_turn_by_tails_of_one_column(columns: list[int], rng: np.random.Generator) -> None:
    rows = rng.standard_normal((20_000, 3)) + rng.standard_normal((20_000, 1))
    solution = dpgep.release(rows, epsilon=3.0, delta=1e-5).pca(n_components=1)
    moments = solution._moments
    assert moments is not None
    assert moments.clipping is not None
    most = np.diagonal(moments.second) * np.where(columns, 1.5, 1.0)
    larger = replace(moments, clipping=replace(moments.clipping, most=most))
    before, after = (
        np.linalg.eigh(m)[1][:, -1] for m in (moments.second, moments.second + np.diag(most) / 3 * [0, 0, 1])
    )
    turn = np.degrees(np.arccos(abs(before @ after)))
    assert replace(solution, _moments=larger).intervals().angles[0] > turn > 2
