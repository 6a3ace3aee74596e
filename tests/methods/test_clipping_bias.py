"""What clipping takes, and how far it may have turned components: stated errors count it."""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import solve_seeded

import dpgep
from dpgep.methods.clipping_bias import _put_back, _root_of_correlation, lost_variances, turn_by_clipping
from dpgep.models import CcaModel
from dpgep.models.bins import Magnitudes
from dpgep.models.moments import MomentNoise, ReleasedMoments
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import MomentsPencil


def released(second: Any) -> ReleasedMoments:
    d = len(second)
    return ReleasedMoments(np.zeros((d, 1)), np.ones(1), 1000.0, MomentNoise(0.0, 0.0, 0.0), np.array(second))


def heavy_rows(n: int) -> Any:
    """Two factors behind six columns, one of which has tails of its own; everybody's in a pair of views, or a class."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((n, 2)) @ rng.standard_normal((2, 6))
    return factors + rng.standard_t(3, (n, 6)) * [1, 1, 1, 1, 1, 2]


def problems() -> dict[str, Any]:
    x = heavy_rows(20_000)
    labels = (x[:, 0] > 0.5).astype(int)
    return {
        "standardized": dpgep.pca(x, standardize=True),
        "cca": dpgep.cca(x[:, :3], x[:, 3:]),
        "fda": dpgep.fda(x[:, 1:], labels, classes=(0, 1)),
        "sir": dpgep.sir(x[:, 1:], x[:, 0], slices=4, y_range=(-3, 3)),
    }


def test_what_columns_have_lost_is_missing_of_their_bought_variances() -> None:
    """Times 2.5, what is seen; of a column of unsure scale, as much as of all by all variances that are sure."""
    bought = Preprocessing(3.0, np.zeros(3), np.ones(3), energy_kept=0.9, variance_error=np.zeros(3))
    left, exact = np.array([0.8, 0.9, 1.2]), np.zeros(3)
    of_all = 2.5 * 1.2 * 0.3 / 1.7  # also where more is left than was bought: tails outside of its interval
    np.testing.assert_allclose(lost_variances(left, exact, bought, 1000.0), [0.5, 0.25, of_all])
    np.testing.assert_allclose(lost_variances(left, exact, replace(bought, unsure=(2,)), 1000.0)[2], of_all)
    weighed = replace(bought, variance=np.array([0.9, 0.9, 1.4]))
    np.testing.assert_allclose(lost_variances(left, exact, weighed, 1000.0)[[0, 2]], [0.25, 0.5], atol=1e-12)
    holed = replace(bought, missing=True, n_present=np.array([900.0, 460.0, 1000.0]))
    np.testing.assert_allclose(lost_variances(left * [0.9, 0.5, 1], exact, holed, 1000.0)[:2], [0.45, 0.025])
    tiny = lost_variances(np.array([1e-6, 0.9, 1.2]), exact, bought, 1000.0)
    np.testing.assert_allclose(tiny[0], 50e-6)  # of a column of which next to nothing is left, noise may say anything


def test_columns_have_lost_what_the_histogram_says_where_variances_are_not_known() -> None:
    """Half a deviation of the noise of a variance, and of what is left, is as far as it counts against the others."""
    left, exact = np.array([4.0, 8.0, 0.0]), np.zeros(3)
    shifted = Preprocessing(3.0, np.zeros(3), energy_kept=0.8)
    np.testing.assert_allclose(lost_variances(left, exact, shifted, 1000.0), 2.5 * np.array([1.0, 2.0, 0.0]))
    left = np.full(3, 0.9)
    for error, noise in ((np.full(3, 0.4), exact), (exact, np.full(3, 0.4))):
        unsure = Preprocessing(3.0, np.zeros(3), np.ones(3), energy_kept=0.8, variance_error=error)
        np.testing.assert_allclose(lost_variances(left, noise, unsure, 1000.0), 2.5 * 0.9 * 0.25)
        nearer = replace(unsure, energy_kept=0.5)
        np.testing.assert_allclose(lost_variances(left, noise, nearer, 1000.0), 2.5 * 0.3)


def test_more_is_hidden_where_something_shows_tails() -> None:
    """1.6 times what is seen, and 2.5 times where entries were cut off; more where few rows lost it, up to a limit."""
    left, short = np.array([4.0, 8.0]), Preprocessing(3.0, np.zeros(2), energy_kept=0.8, rows_clipped=0.5)
    for expected, shown in (
        (1.6, short),
        (2.5, replace(short, energy_cut=0.1)),
        (2.5, replace(short, rows_clipped=0.25)),
        (2.5 * 5**0.25, replace(short, rows_clipped=0.05)),
        (2.5 * 8**0.25, replace(short, rows_clipped=1e-9)),
    ):
        np.testing.assert_allclose(lost_variances(left, np.zeros(2), shown, 1000.0), expected * 0.25 * left)


def test_columns_have_lost_at_least_what_octaves_show_beyond_the_bound() -> None:
    """Of a log-normal column beside normal ones, in the median of 20 draws, from half to 2.5 times what it lost.

    Its bought variance lacks the tail, and says that nothing was lost. A draw is outside with a probability of 0.03,
    by 400 of them: half of all with one of 1e-10. Mixed columns, twice as long, lose as much beyond twice the bound.
    """
    rng, n, bound = np.random.default_rng(0), 20_000, 3.0
    x = rng.standard_normal((n, 3))
    x[:, 0] = np.exp(x[:, 0])
    location, scale = x.mean(axis=0), x.std(axis=0)
    z = (x - location) / scale
    kept = np.minimum(bound / np.linalg.norm(z, axis=1), 1.0)[:, None]
    left, lost = np.square(z * kept).mean(axis=0), (z**2 * (1 - kept**2)).mean(axis=0)
    octaves = np.floor(np.log2(np.abs(x)))
    people = np.array([[((octaves == e) & (sign * x > 0)).sum(axis=0) for e in range(-8, 12)] for sign in (1, -1)])
    bought, found = Preprocessing(bound, location, scale, variance=left, variance_error=np.full(3, 1e-6)), []
    for _ in range(20):
        counts = np.moveaxis(people, 2, 0) + 10.0 * rng.standard_normal((3, 2, 20))
        seen = replace(bought, magnitudes=Magnitudes(-8, counts, 10.0, n))
        mixed = replace(seen, linear=2 * np.eye(3), bound=2 * bound)
        found.append([lost_variances(left, np.zeros(3), each, n)[0] for each in (seen, mixed)])
    medians = np.median(found, axis=0)
    assert (lost[0] / 2 < medians).all()
    assert (medians < 2.5 * lost[0]).all()
    assert lost_variances(left, np.zeros(3), bought, n)[0] < 0.01 * lost[0]


def test_variance_that_was_cut_off_from_unknown_columns_is_said() -> None:
    """Of 1 % of the people a column is 100 times as wide: most of its variance lies beyond the cut."""
    x = heavy_rows(20_000)
    x[:200, 0] *= 100
    budget: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6}
    for ask in (
        lambda: dpgep.solve(dpgep.cca(x[:, :3], x[:, 3:]), n_components=1, **budget),
        lambda: dpgep.release(x, **budget).pca(standardize=True, n_components=1),
    ):
        with pytest.warns(dpgep.errors.AccuracyWarning, match="cut off, hold [0-9]+% as much variance as all else"):
            ask()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpgep.solve(problems()["cca"], n_components=1, **budget)


def test_few_long_rows_are_said_where_units_count(rng: np.random.Generator) -> None:
    """Of 3 % of the people, who are five times as long: they hold 0.4 of the variance. Not of Gaussian rows."""
    x = rng.standard_normal((20_000, 4)) * [4, 3, 2, 1]
    longer = x * np.where(rng.random(20_000) < 0.03, 5.0, 1.0)[:, None]
    budget: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "n_components": 1}
    with pytest.warns(dpgep.errors.AccuracyWarning, match="of the rows took [0-9]+% of all variance"):
        dpgep.solve(dpgep.pca(longer), **budget)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dpgep.solve(dpgep.pca(x), **budget)


@pytest.mark.parametrize("name", ["standardized", "cca", "fda", "sir"])
def test_expected_errors_count_clipping(name: str) -> None:
    found = solve_seeded(problems()[name], epsilon=3.0, delta=1e-6, n_components=1).diagnostics
    clipping = found.clipping_error
    assert clipping is not None
    noise = 1 - (1 - found.expected_error) / (1 - clipping)
    assert (clipping > 0.1 * noise).all()
    low, high = found.error_range[0]
    assert low < noise[0] < 4 * clipping[0] < high
    assert f"({low:.1g} to {high:.2g}; noise" in found.table(np.ones(1))[-1]


def test_a_release_counts_clipping_in_its_answers() -> None:
    x = heavy_rows(20_000)
    table = dpgep.release(x, epsilon=3.0, delta=1e-6)
    for solution in (table.pca(standardize=True), table.pca([0, 1, 5], n_components=1), table.cca([0, 1], [2, 5])):
        clipping = solution.diagnostics.clipping_error
        assert clipping is not None
        assert (clipping > 0).all()
        assert (solution.diagnostics.expected_error >= clipping).all()


def test_holes_are_no_clipping_where_there_is_no_noise() -> None:
    x = heavy_rows(2000)
    x[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
    options = dpgep.AutoPreprocessing(missing="center")
    problem = dpgep.pca(x, standardize=True, preprocessing=options)
    assert dpgep.solve(problem, epsilon=math.inf).diagnostics.clipping_error is None
    table = dpgep.release(x, preprocessing=options, epsilon=math.inf)
    assert not table.pca(standardize=True).diagnostics.expected_error.any()


def test_a_given_bound_is_not_judged() -> None:
    found = solve_seeded(dpgep.pca(heavy_rows(2000), bound=2.0), epsilon=1.0, delta=1e-5).diagnostics
    assert found.clipping_error is None


def test_files_and_sparse_components_keep_it() -> None:
    problem = problems()["standardized"]
    for options in ({}, {"sparsity": 3}):
        solution = solve_seeded(problem, epsilon=3.0, delta=1e-6, n_components=1, **options)
        file = io.BytesIO()
        solution.save(file)
        file.seek(0)
        restored = dpgep.load(file)
        np.testing.assert_array_equal(restored.diagnostics.clipping_error, solution.diagnostics.clipping_error)
        assert restored.diagnostics.clipping_error[0] > 0


def _mix(prepared: Preprocessing) -> Any:
    return np.eye(len(prepared.scale)) if prepared.linear is None else prepared.linear


def test_norms_show_what_cutting_entries_off_took() -> None:
    """Two people of a hundred are 40 deviations away in one column: the histogram of norms knows about their energy.

    Normal rows lose nothing. Norms from 27 to 108 share a bin, so that it may be several times more or less.
    """
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 5))
    far = x.copy()
    far[:400, 2] += 40
    for rows, longest in ((x, False), (far, True)):
        found = solve_seeded(dpgep.cca(rows[:, :2], rows[:, 2:]), epsilon=1.0, delta=1e-6, n_components=1)
        prepared = found.preprocessing
        assert prepared is not None
        mapped = (rows - prepared.location) / prepared.scale
        cut = float(np.square(mapped).sum(axis=1).mean() - np.square(mapped.clip(-6, 6)).sum(axis=1).mean())
        assert (cut > 1) is longest
        assert cut / 4 * longest <= prepared.energy_cut <= 4 * cut * longest
        assert abs(prepared.rows_cut - 0.02 * longest) < 0.005  # people: the noise of a bin is 30 of 20 000
        clipped = float((np.linalg.norm(mapped.clip(-6, 6) @ _mix(prepared), axis=1) > prepared.bound).mean())
        assert abs(prepared.rows_clipped - clipped) < 0.01


def test_what_was_cut_counts_as_a_turn_and_for_some_columns_in_part() -> None:
    second = np.eye(4) + 0.4
    prepared = Preprocessing(9.0, np.zeros(4), np.ones(4), largest=6.0, variance_error=np.zeros(4))
    noisy = MomentsPencil(CcaModel((2, 2), True), released(second))
    turns = [
        turn_by_clipping(noisy, noisy.released, replace(prepared, energy_cut=cut), 0.0, 1)[0][0]
        for cut in (0.0, 1.0, 30.0)
    ]
    assert turns[0] < 1e-12 < turns[1] < turns[2]
    assert replace(prepared, energy_cut=1.0).restricted(np.array([0, 2])).energy_cut == 0.5


def test_what_is_put_back_is_like_the_rows_that_are_left_in_part() -> None:
    """Of 4000 draws: in the mean the lost diagonal, and 0.15 of the correlations (deviations are below 0.002).

    The means of two groups have deviations within a tenth (their own are a ninetieth).
    """
    sums, second = np.array([[0.3, 0.3], [0.2, -0.2], [0.0, 0.0]]), np.eye(3) + 0.5 * (1 - np.eye(3))
    clipped = ReleasedMoments(sums, np.array([0.5, 0.5]), 1000.0, MomentNoise(0.0, 0.0, 0.0), second)
    lost, generator = np.array([0.1, 0.2, 0.5]), np.random.default_rng(0)
    draws = [_put_back(clipped, lost, _root_of_correlation(second), generator) for _ in range(4000)]
    moved = np.array([(draw.sums - sums) / 0.5 for draw in draws])
    share = lost / (1 + lost)
    wanted = 0.75 * np.array([[math.hypot(0.6, share[0] * 0.6)] * 2, [share[1] * 0.4] * 2, [0.0] * 2])
    np.testing.assert_allclose(np.std(moved, axis=0), wanted, rtol=0.1, atol=1e-15)
    still = replace(clipped, sums=sums[:, :1], counts=np.ones(1))
    tails = (
        np.mean([_put_back(still, lost, _root_of_correlation(second), generator).second for _ in range(4000)], axis=0)
        - second
    )
    np.testing.assert_allclose(tails, np.sqrt(np.outer(lost, lost)) * (0.15 * second + 0.85 * np.eye(3)), atol=0.01)


@pytest.mark.parametrize("square", [0.0, -0.3])
def test_a_column_of_which_noise_left_no_variance_has_no_correlations(square: float) -> None:
    """The others have their own: before, their answer was paid for, and its errors could not be found."""
    second = np.array([[square, 0.4, -0.1], [0.4, 2.0, 1.0], [-0.1, 1.0, 2.0]])
    root = _root_of_correlation(second)
    np.testing.assert_allclose(root @ root.T, [[0, 0, 0], [0, 1, 0.5], [0, 0.5, 1]], atol=1e-12)


def test_rows_whose_columns_were_mixed_are_put_back_in_their_own_columns() -> None:
    """An answer that no mixing of columns changes turns as far where they were mixed before they were clipped."""
    mix = np.zeros((4, 4))
    mix[:2, :2], mix[2:, 2:] = [[1.0, 0.5], [0.0, 2.0]], [[1.0, 0.0], [-0.5, 1.0]]
    second = np.eye(4) + 0.4
    plain = Preprocessing(9.0, np.zeros(4), np.ones(4), energy_kept=0.8, energy_cut=1.0, variance_error=np.full(4, 0.1))
    turns = []
    for prepared, moments in ((plain, released(second)), (replace(plain, linear=mix), released(mix.T @ second @ mix))):
        turns.append(turn_by_clipping(MomentsPencil(CcaModel((2, 2), True), moments), moments, prepared, 0.0, 1)[1])
    np.testing.assert_allclose(turns[1], turns[0], rtol=1e-9)
    assert turns[0] > 1e-3
