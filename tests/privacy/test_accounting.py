"""Conversions against mpmath-free closed forms, dp_accounting, and each other."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.dp_event import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest, norm

from dpgep.privacy.accounting import delta_of, epsilon_of, epsilon_of_rho, mu_from_rho, mu_of, rho_from_mu, rho_of


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0])
def test_delta_is_the_closed_form(epsilon: float, mu: float) -> None:
    a, b = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    expected = norm.cdf(a) - math.exp(epsilon) * norm.cdf(b)
    assert delta_of(epsilon, mu) == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assert delta_of(epsilon, mu) >= expected - 1e-15


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10, 1e-50])
def test_mu_and_epsilon_are_inverse_and_rounded_against_the_spender(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert delta_of(epsilon, mu) <= delta
    assert delta_of(epsilon, mu * (1 + 1e-9)) > delta  # tight as well as safe
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-8)
    assert delta_of(epsilon_of(mu, delta), mu) <= delta


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_mu_agrees_with_google_pld_accountant(epsilon: float, delta: float) -> None:
    accountant = PLDAccountant().compose(GaussianDpEvent(1 / mu_of(epsilon, delta)))
    # the accountant discretizes pessimistically: its answer is at or above the exact one
    assert accountant.get_epsilon(delta) == pytest.approx(epsilon, rel=2e-3)
    assert accountant.get_epsilon(delta) >= epsilon * (1 - 1e-6)


@given(epsilon=st.floats(1e-3, 30), delta=st.floats(1e-30, 0.5))
def test_exact_conversion_never_allows_less_than_the_papers(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon, delta)
    assert mu_of(epsilon, delta) ** 2 / 2 >= rho
    assert epsilon_of_rho(rho, delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "ratio"), [(0.125, 2.4), (0.5, 1.9), (1.0, 1.7), (4.0, 1.4)])
def test_figures_of_the_mathematics_page(epsilon: float, ratio: float) -> None:
    delta = 30000**-1.1
    assert mu_of(epsilon, delta) ** 2 / 2 / rho_of(epsilon, delta) == pytest.approx(ratio, abs=0.05)


@given(mu=st.floats(1e-3, 30), factor=st.floats(1.0001, 10), epsilon=st.floats(0, 50))
def test_delta_grows_with_mu_and_falls_with_epsilon(mu: float, factor: float, epsilon: float) -> None:
    assert delta_of(epsilon, mu) <= delta_of(epsilon, mu * factor) * (1 + 1e-11)
    assert delta_of(epsilon * factor, mu) <= delta_of(epsilon, mu) * (1 + 1e-11)


def adaptive_losses(rng: np.random.Generator, mu: float, n: int, *, padded: bool) -> np.ndarray:
    """Log-likelihood ratios of n runs under D_0: six answers at most, theta_t and the end chosen by those so far."""
    left, ratio, last = np.full(n, mu * mu), np.zeros(n), np.zeros(n)
    for _ in range(6):
        share = np.where(last > 0, 0.1, 0.6) + np.where(ratio > 0.3, 0.3, 0.0)
        theta = np.sqrt(np.where(ratio < -0.5, 0.0, share * left))
        last = rng.standard_normal(n)
        ratio += theta * last - theta**2 / 2
        left -= theta**2
    if padded:
        ratio += np.sqrt(left) * rng.standard_normal(n) - left / 2
    return ratio


def test_answers_with_adaptive_shares_of_a_fixed_total_are_gaussian() -> None:
    """Section 8 of the mathematics page: with what is left used up, L is N(-mu^2/2, mu^2) exactly (alarm: 1e-7)."""
    mu, n = 1.3, 100_000
    law = norm(-mu * mu / 2, mu)
    rng = np.random.default_rng(8)
    assert kstest(adaptive_losses(rng, mu, n, padded=True), law.cdf).pvalue > 1e-7
    unpadded = adaptive_losses(rng, mu, n, padded=False)
    assert kstest(unpadded, law.cdf).pvalue < 1e-7
    # a sum of n independent terms in [0, 1]: Hoeffding's bound on its mean, with probability 1e-7 of being exceeded
    slack = math.sqrt(math.log(1e7) / (2 * n))
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        # delta(epsilon) of D_0 against D_1, as E_0 of (1 - exp(epsilon + L))_+
        assert np.mean(np.maximum(0.0, -np.expm1(epsilon + unpadded))) <= delta_of(epsilon, mu) + slack


def test_a_total_that_holds_in_the_mean_only_is_no_guarantee() -> None:
    first, second, above, epsilon = 0.1, 10.0, 3.1, 3.0
    mean = first**2 + second**2 * norm.sf(above - first)
    told = norm.sf(above - first) - math.exp(epsilon) * norm.sf(above) * norm.sf(second / 2)
    assert mean < 0.15
    assert delta_of(epsilon, math.sqrt(0.15)) < 1e-14
    assert told == pytest.approx(0.0013, abs=1e-4)


def test_rho_and_mu_round_in_opposite_directions() -> None:
    for rho in (1e-8, 0.02, 1.0, 37.5):
        assert mu_from_rho(rho) ** 2 / 2 <= rho <= rho_from_mu(math.sqrt(2 * rho))


def test_limits() -> None:
    assert mu_of(math.inf, 1e-6) == math.inf
    assert delta_of(1.0, math.inf) == 1.0
    assert delta_of(math.inf, 1.0) == 0.0
    assert epsilon_of(0.0, 1e-6) == 0.0
    assert epsilon_of(math.inf, 1e-6) == math.inf
    assert epsilon_of(1e-9, 1e-3) == 0.0  # total variation alone is below delta


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-3, math.nan])
def test_delta_out_of_range_is_named(delta: float) -> None:
    with pytest.raises(ValueError, match="delta must lie strictly between 0 and 1"):
        mu_of(1.0, delta)


@pytest.mark.parametrize("epsilon", [-1.0, math.nan])
def test_epsilon_out_of_range_is_named(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon must be a non-negative"):
        mu_of(epsilon, 1e-6)


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """The closed form with 80 digits beyond what its cancellation eats."""
    with mpmath.workdps(120):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        a, b = m / 2 - e / m, -m / 2 - e / m
        return mpmath.erfc(-a / mpmath.sqrt(2)) / 2 - mpmath.exp(e) * mpmath.erfc(-b / mpmath.sqrt(2)) / 2


@given(
    log_mu=st.floats(math.log(1e-4), math.log(1e4)),
    deviations=st.floats(-20, 6),  # a, in deviations: from deep in the tail to delta near 1
)
@settings(max_examples=300, deadline=None)
def test_delta_is_never_rounded_down(log_mu: float, deviations: float) -> None:
    mu = math.exp(log_mu)
    epsilon = max(0.0, mu * (mu / 2 - deviations))
    with mpmath.workdps(120):
        truth, ours = exact_delta(epsilon, mu), delta_of(epsilon, mu)
        assert ours >= min(truth, 1)
        assert ours <= truth * (1 + 1e-4) + 5e-324


@given(epsilon=st.floats(1e-6, 1e6), log_delta=st.floats(-300, -1e-3))
@settings(max_examples=200, deadline=None)
def test_conversions_hold_in_exact_arithmetic(epsilon: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    mu = mu_of(epsilon, delta)
    with mpmath.workdps(120):
        assert exact_delta(epsilon, mu) <= delta
        assert exact_delta(epsilon_of(mu, delta), mu) <= delta


@pytest.mark.parametrize(("mu", "delta"), [(6.0566, 0.99754), (4.7338, 0.98206), (1e-8, 0.5), (50.0, 1 - 1e-12)])
def test_epsilon_near_certain_failure(mu: float, delta: float) -> None:
    epsilon = epsilon_of(mu, delta)
    with mpmath.workdps(60):
        assert exact_delta(epsilon, mu) <= delta


def test_a_delta_that_underflows_is_not_zero() -> None:
    assert delta_of(5.05, 0.0166) > 0
