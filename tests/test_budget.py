"""Budgets: three forms, exact composition, shares, threads."""

import copy
import math
import os
import pickle
import threading
from fractions import Fraction

import pytest

from dpgep import Budget, PrivacyBudgetError
from dpgep.privacy.accounting import delta_of, mu_of
from dpgep.privacy.ledger import Ledger, Release, cost_of, mu_covering, mu_within


def spend(budget: Budget, share: float | None = None) -> float:
    with budget.reserve(share) as ledger:
        ledger.record(Release("test", ledger.mu, ()))
        return ledger.mu


def test_three_forms_agree() -> None:
    by_epsilon = Budget(epsilon=1.0, delta=1e-6)
    assert by_epsilon.mu == mu_of(1.0, 1e-6)
    assert Budget(mu=by_epsilon.mu).rho == by_epsilon.rho
    assert Budget(rho=by_epsilon.rho).mu == pytest.approx(by_epsilon.mu, rel=1e-14)
    assert Budget(epsilon=1.0, delta=1e-6, accounting="zcdp").mu < by_epsilon.mu


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one budget.*none"),
        ({"epsilon": 1.0, "delta": 1e-6, "rho": 0.1}, "exactly one budget.*epsilon, rho"),
        ({"rho": 0.1, "mu": 0.1}, "exactly one budget.*rho, mu"),
        ({"epsilon": 1.0}, "epsilon needs a delta"),
        ({"rho": 0.1, "delta": 1e-6}, "delta belongs to epsilon"),
        ({"epsilon": 0.0, "delta": 1e-6}, "epsilon must be a positive number, got 0.0"),
        ({"epsilon": -1, "delta": 1e-6}, "epsilon must be a positive number, got -1"),
        ({"epsilon": math.nan, "delta": 1e-6}, "epsilon must be a positive number"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must lie strictly between 0 and 1, got 0.0"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must lie strictly between 0 and 1, got 1.0"),
        ({"rho": -0.1}, "rho must be a positive number"),
        ({"mu": 0}, "mu must be a positive number"),
        ({"mu": 1.0, "accounting": "rdp"}, 'accounting must be "gdp" or "zcdp"'),
    ],
)
def test_bad_budgets_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Budget(**arguments)  # type: ignore[arg-type]


def test_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="epsilon must be a number, got 'one'"):
        Budget(epsilon="one", delta=1e-6)  # type: ignore[arg-type]


def test_asking_for_epsilon_one_reports_exactly_one() -> None:
    for delta in (1e-3, 1e-5, 1e-9, 0.3):
        budget = Budget(epsilon=1.0, delta=delta)
        assert budget.epsilon_at(spend(budget)) == 1.0


def test_shares_compose_exactly_and_never_overspend() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    for _ in range(7):
        spend(budget, 1 / 7)
    with pytest.raises(PrivacyBudgetError, match="nothing was spent"):
        spend(budget, 1 / 7)
    total = sum(Fraction(release.mu) ** 2 for release in budget.releases)
    assert total <= Fraction(budget.mu) ** 2
    assert math.sqrt(total) == pytest.approx(budget.mu, rel=1e-12)
    assert delta_of(1.0, budget.spent_mu) <= 1e-6


def test_a_part_reports_a_smaller_epsilon_that_holds() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    mu = spend(budget, 0.25)
    epsilon = budget.epsilon_at(mu)
    assert epsilon is not None
    assert 0.4 < epsilon < 0.6
    assert delta_of(epsilon, mu) <= 1e-6


def test_default_share_takes_what_is_left() -> None:
    budget = Budget(mu=1.0)
    spend(budget, 0.36)
    assert spend(budget) == pytest.approx(0.8, rel=1e-12)
    with pytest.raises(PrivacyBudgetError, match="cannot pay for anything"):
        spend(budget)


def test_an_exception_before_the_release_gives_everything_back() -> None:
    budget = Budget(mu=1.0)
    with pytest.raises(KeyboardInterrupt), budget.reserve():
        raise KeyboardInterrupt
    assert budget.remaining_mu == 1.0


def test_an_exception_after_the_release_keeps_it_on_the_ledger() -> None:
    budget = Budget(mu=1.0)

    def fail_after_release() -> None:
        with budget.reserve(0.25) as ledger:
            ledger.record(Release("test", ledger.mu, ()))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_release()
    assert len(budget.releases) == 1
    assert budget.remaining_mu == pytest.approx(math.sqrt(0.75), rel=1e-12)


def test_threads_cannot_spend_the_same_budget_twice() -> None:
    budget = Budget(mu=1.0)
    barrier = threading.Barrier(8)
    outcomes: list[bool] = []

    def run() -> None:
        barrier.wait()
        try:
            with budget.reserve(0.5) as ledger:
                ledger.record(Release("test", ledger.mu, ()))
            outcomes.append(True)
        except PrivacyBudgetError:
            outcomes.append(False)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcomes) == 2


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, math.nan])
def test_share_out_of_range(share: float) -> None:
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\]"):
        spend(Budget(mu=1.0), share)


def test_ledger_refuses_what_does_not_fit() -> None:
    ledger = Ledger(1.0)
    ledger.record(Release("first", 0.8, ()))
    with pytest.raises(PrivacyBudgetError, match=r"mu = 0.7 does not fit.*has spent mu = 0.8"):
        ledger.check(0.7)
    ledger.check(0.59)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_budget_cannot_be_duplicated(duplicate: object) -> None:
    with pytest.raises(TypeError, match="two copies could each spend it"):
        duplicate(Budget(mu=1.0))  # type: ignore[operator]


def test_infinite_budget_never_runs_out() -> None:
    budget = Budget(epsilon=math.inf)
    assert spend(budget) == math.inf
    assert spend(budget) == math.inf
    assert budget.epsilon_at(math.inf) == math.inf


def test_rounding_helpers_are_tight() -> None:
    for mu in (0.1, 1 / 3, 0.7071067811865476, 5e-7, 123.456):
        assert mu_within(cost_of(mu)) == mu == mu_covering(cost_of(mu))
        assert mu_within(cost_of(mu) * (1 - Fraction(1, 10**30))) == math.nextafter(mu, 0)
        assert mu_covering(cost_of(mu) * (1 + Fraction(1, 10**30))) == math.nextafter(mu, math.inf)


def test_repr_shows_what_is_left() -> None:
    assert "remaining mu=1" in repr(Budget(mu=1.0))
    assert "epsilon=1, delta=1e-06" in repr(Budget(epsilon=1.0, delta=1e-6))


def test_ten_tenths_are_a_budget() -> None:
    for total in (Budget(mu=1.0), Budget(epsilon=1.0, delta=1e-5)):
        for _ in range(10):
            spend(total, 0.1)
        with pytest.raises(PrivacyBudgetError):
            spend(total, 0.1)
        assert sum(Fraction(release.mu) ** 2 for release in total.releases) <= Fraction(total.mu) ** 2


def test_a_forked_copy_cannot_spend() -> None:
    budget = Budget(mu=1.0)
    child = os.fork()
    if child == 0:
        try:
            spend(budget)
            os._exit(1)
        except PrivacyBudgetError:
            os._exit(0)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    spend(budget)


def test_a_settled_ledger_is_closed() -> None:
    budget = Budget(mu=1.0)
    with budget.reserve(0.5) as ledger:
        ledger.check(0.1)
    with pytest.raises(PrivacyBudgetError, match="this ledger is closed"):
        ledger.record(Release("late", 0.1, ()))


@pytest.mark.parametrize("form", ["epsilon", "rho", "mu"])
@pytest.mark.parametrize("value", [1e-162, 1e-101, 1e101, 1e300])
def test_absurd_magnitudes_are_refused_at_once(form: str, value: float) -> None:
    delta = 1e-6 if form == "epsilon" else None
    with pytest.raises(ValueError, match=f"{form} must lie between 1e-100 and 1e100"):
        Budget(**{form: value}, delta=delta)  # type: ignore[arg-type]


def test_numpy_numbers_are_numbers() -> None:
    import numpy as np

    assert spend(Budget(mu=np.float32(1.0)), np.float32(0.25)) == 0.5
    assert spend(Budget(mu=np.int64(2)), np.int64(1)) == 2.0  # type: ignore[arg-type]
