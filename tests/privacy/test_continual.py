"""Sums of all nights: the factor against its closed form, and its price against a search over people who come again."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgep.privacy.continual import FACTOR_BITS, Factor


def matrix_of(factor: Factor, n_nights: int) -> np.ndarray:
    """(n_nights, n_nights), 2^6 C, entry by entry."""
    c = factor.coefficients
    return np.array([[c[t - s] if 0 <= t - s < factor.keep else 0 for s in range(n_nights)] for t in range(n_nights)])


@pytest.mark.parametrize("keep", [1, 2, 40, 700])
def test_coefficients_are_means_of_the_square_roots_on_a_grid(keep: int) -> None:
    """The coefficients of 1/sqrt(1 - x), over runs that double, exactly; they fall, as the price presumes."""
    c = Factor(keep).coefficients
    exact = [Fraction(math.comb(2 * k, k), 4**k) for k in range(keep)]
    for k, found in enumerate(c):
        run = exact[(first := 1 << k.bit_length() - 1 if k else 0) : 2 * first or 1]
        assert abs(Fraction(int(found), 1 << FACTOR_BITS) - sum(run) / len(run)) <= Fraction(1, 2 << FACTOR_BITS)
    assert c[0] == 1 << FACTOR_BITS
    assert (np.diff(c) <= 0).all()


@settings(max_examples=30)
@given(st.integers(1, 12), st.data())
def test_who_comes_on_any_nights_pays_at_most_for_neighbouring_ones(keep: int, data: st.DataObject) -> None:
    """|sum_s C_s d_s| for nights s with any gaps and |d_s| <= 1, in any directions."""
    k, n_nights = data.draw(st.integers(1, 5)), 30
    nights = data.draw(st.lists(st.integers(0, 16), min_size=k, max_size=k, unique=True))
    moves = np.random.default_rng(data.draw(st.integers(0, 2**32))).standard_normal((k, 3))
    moves /= np.maximum(1.0, np.linalg.norm(moves, axis=1))[:, None]
    shift = matrix_of(Factor(keep), n_nights)[:, nights] @ moves / (1 << FACTOR_BITS)
    assert np.linalg.norm(shift) * Factor(keep).mu_of_a_night(1.0, k) <= 1 + 1e-12


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_price_is_attained_and_by_no_other_nights(k: int) -> None:
    """Of all sets of k nights, neighbouring ones cost the most: all of the budget, to the last bits and never more."""
    factor, n_nights, mu = Factor(6), 20, 0.7
    columns = matrix_of(factor, n_nights)
    costs = {nights: int((columns[:, nights].sum(axis=1) ** 2).sum()) for nights in combinations(range(9), k)}
    worst = max(costs.values())
    assert costs[tuple(range(k))] == worst
    one = factor.mu_of_a_night(mu, k)
    assert Fraction(one) ** 2 * worst <= Fraction(mu) ** 2 * 4**FACTOR_BITS
    assert Fraction(math.nextafter(one, 1)) ** 2 * worst > Fraction(mu) ** 2 * 4**FACTOR_BITS


@pytest.mark.parametrize("keep", [1, 5, 30])
def test_a_night_publishes_the_same_by_sums_so_far(keep: int) -> None:
    factor, n_nights = Factor(keep), 40
    x = np.random.default_rng(keep).integers(-9, 9, n_nights)
    so_far = np.concatenate([np.zeros(n_nights, np.int64), np.cumsum(x)])
    found = sum(step * so_far[n_nights - k : 2 * n_nights - k] for k, step in factor.steps.items())
    np.testing.assert_array_equal(found, matrix_of(factor, n_nights) @ x)


def test_coefficients_that_do_not_fall_would_cost_more() -> None:
    """What the proof needs: for c = (1, 0, 1) the first two columns are not the worst, nights 1 and 3 are."""
    c = np.array([1, 0, 1, 0, 0, 0, 0])
    columns = np.array([np.roll(c, s) for s in range(4)])
    assert ((columns[0] + columns[1]) ** 2).sum() < ((columns[0] + columns[2]) ** 2).sum()


@pytest.mark.parametrize(("keep", "n_nights"), [(1, 9), (3, 40), (64, 64), (64, 100)])
def test_a_combination_of_what_was_published_is_the_sum_of_some_nights(keep: int, n_nights: int) -> None:
    factor = Factor(keep)
    c = np.ldexp(matrix_of(factor, n_nights).astype(float), -FACTOR_BITS)
    for first, last in ((1, n_nights), (1, 1), (n_nights, n_nights), (2, n_nights - 1), (n_nights // 2, n_nights)):
        weights = factor.combination(first, last)
        expected = np.zeros(n_nights)
        expected[first - 1 : last] = 1
        np.testing.assert_allclose(weights @ c[:last], expected, atol=1e-11)


@pytest.mark.parametrize(
    ("keep", "n_nights", "rms", "worst"),
    [
        (365, 365, 3.0, 3.2),
        (64, 365, 3.1, 4.0),
        (365, 730, 3.02, 3.4),
        pytest.param(365, 3650, 4.3, 5.5, marks=pytest.mark.deep),
    ],
)
def test_noise_of_sums_so_far_in_units_of_one_release(keep: int, n_nights: int, rms: float, worst: float) -> None:
    """Of a year in 365 nights kept: 2.82 and 2.97; of ten years with bands of one, 4.23 and 5.38."""
    factor = Factor(keep)
    so_far = [np.linalg.norm(factor.combination(1, t)) / factor.mu_of_a_night(1.0, 1) for t in range(1, n_nights + 1)]
    assert np.sqrt(np.mean(np.square(so_far))) <= rms
    assert max(so_far) <= worst


def test_noise_follows_the_closed_form_of_the_square_root() -> None:
    """Without rounding both factors are C: row t of it has the norm of t coefficients (Fichtenberger et al. 2023)."""
    exact = np.cumprod([1.0, *((2 * k - 1) / (2 * k) for k in range(1, 365))])
    norms = [np.linalg.norm(Factor(365).combination(1, t)) for t in (1, 30, 365)]
    np.testing.assert_allclose(norms, [np.linalg.norm(exact[:t]) for t in (1, 30, 365)], rtol=6e-3)
