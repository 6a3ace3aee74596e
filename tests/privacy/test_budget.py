"""Budgets: three forms, exact composition, shares, threads."""

import contextlib
import copy
import math
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import Matrix

import dpgep
from dpgep import Budget
from dpgep._dispatch import core
from dpgep.errors import PrivacyBudgetError
from dpgep.models.model import Adjacency
from dpgep.privacy.accounting import delta_of, mu_of
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger, LedgerEntry, cost_of, mu_rounded_down, mu_rounded_up, split_budget


def spend(budget: Budget, share: float | None = None, adjacency: Adjacency = "replace-one") -> float:
    with budget.reserve(share, adjacency=adjacency) as ledger:
        ledger.record(LedgerEntry("test", ledger.mu, ()))
        return ledger.mu


@pytest.mark.parametrize("digits", [0, 281, 300, 307, 321, 500, 615, 700, 2000])
def test_roots_of_the_smallest_costs_are_rounded_against_us(digits: int) -> None:
    cost = Fraction(3, 2 * 10**digits)
    down, up = mu_rounded_down(cost), mu_rounded_up(cost)
    assert Fraction(down) ** 2 <= cost <= Fraction(up) ** 2
    assert up == math.nextafter(down, math.inf) or (down == 0 and up < 1e-307)


def test_a_charge_beyond_all_numbers_is_refused() -> None:
    import dp_accounting

    event = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(1.0), 10**400)
    budget = Budget(mu=1.0)
    with pytest.raises(PrivacyBudgetError, match="the budget cannot pay for mu = inf"):
        budget.charge(event, what="too much", adjacency="replace-one")
    assert budget.spent_mu == 0


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
        ({"rho": 0.1, "delta": 1e-6}, "delta goes with epsilon"),
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
    with pytest.raises(KeyboardInterrupt), budget.reserve(adjacency="replace-one"):
        raise KeyboardInterrupt
    assert budget.remaining_mu == 1.0


def test_an_exception_after_the_release_keeps_it_on_the_ledger() -> None:
    budget = Budget(mu=1.0)

    def fail_after_release() -> None:
        with budget.reserve(0.25, adjacency="replace-one") as ledger:
            ledger.record(LedgerEntry("test", ledger.mu, ()))
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
            with budget.reserve(0.5, adjacency="replace-one") as ledger:
                ledger.record(LedgerEntry("test", ledger.mu, ()))
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
    ledger.record(LedgerEntry("first", 0.8, ()))
    with pytest.raises(PrivacyBudgetError, match=r"mu = 0.7 exceeds the budget.*has spent mu = 0.8"):
        ledger.check(0.7)
    ledger.check(0.59)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_budget_cannot_be_duplicated(duplicate: object) -> None:
    with pytest.raises(TypeError, match="two copies could each spend it"):
        duplicate(Budget(mu=1.0))  # type: ignore[operator]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_ledger_cannot_be_duplicated(duplicate: Callable[[object], object]) -> None:
    with Budget(mu=1.0).reserve(adjacency="replace-one") as ledger, pytest.raises(TypeError, match="two copies could"):
        duplicate(ledger)


def test_infinite_budget_never_runs_out() -> None:
    budget = Budget(epsilon=math.inf)
    assert spend(budget) == math.inf
    assert spend(budget) == math.inf
    assert budget.epsilon_at(math.inf) == math.inf


def test_rounding_helpers_are_tight() -> None:
    for mu in (0.1, 1 / 3, 0.7071067811865476, 5e-7, 123.456):
        assert mu_rounded_down(cost_of(mu)) == mu == mu_rounded_up(cost_of(mu))
        assert mu_rounded_down(cost_of(mu) * (1 - Fraction(1, 10**30))) == math.nextafter(mu, 0)
        assert mu_rounded_up(cost_of(mu) * (1 + Fraction(1, 10**30))) == math.nextafter(mu, math.inf)


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


def in_a_fork(attempt: Callable[[], object]) -> int:
    """What the child's attempt ends in: 0 for a PrivacyBudgetError, 1 for nothing, 2 for anything else."""
    child = os.fork()
    if child == 0:
        status = 2
        signal.alarm(30)  # ends a child that waits for a lock
        try:
            attempt()
            status = 1
        except PrivacyBudgetError:
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_copy_cannot_spend() -> None:
    budget = Budget(mu=1.0)
    assert in_a_fork(lambda: spend(budget)) == 0
    spend(budget)


def test_a_fork_is_told_although_its_number_is_that_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of processes come again: a grandchild may have the number of its dead grandparent."""
    number = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: number)
    budget = Budget(mu=1.0)
    with budget.reserve(0.5, adjacency="replace-one") as ledger:
        assert in_a_fork(lambda: spend(budget)) == 0
        assert in_a_fork(lambda: ledger.record(LedgerEntry("test", 0.1, ()))) == 0
        assert in_a_fork(lambda: in_a_fork(lambda: ledger.check(0.1)) and spend(Budget(mu=1.0))) == 1


def test_a_fork_that_python_does_not_see_is_told_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(mu=1.0)
    with budget.reserve(adjacency="replace-one") as ledger:
        number = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: number + 1)
        for forked in (lambda: spend(budget), lambda: ledger.check(0.1), lambda: budget.require("replace-one")):
            with pytest.raises(PrivacyBudgetError, match="belongs to another process"):
                forked()
        monkeypatch.undo()
        ledger.check(0.1)


def test_a_ledger_that_is_open_across_a_fork_refuses_in_the_child_alone() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    with budget.reserve(adjacency="replace-one") as ledger:
        assert in_a_fork(lambda: ledger.record(LedgerEntry("child", 0.1, ()))) == 0
        assert in_a_fork(ledger.whole_target) == 0
        ledger.record(LedgerEntry("parent", 0.1, ()))
    assert [release.query for release in budget.releases] == ["parent"]


def test_a_child_ends_although_another_thread_was_spending() -> None:
    """It may leave the block of a reservation, and look at its budget: nothing waits for a thread that is not there."""
    budget, stop = Budget(mu=1.0), threading.Event()

    def leave_and_look() -> None:
        reservation.__exit__(None, None, None)
        assert budget.remaining_mu <= 1.0
        assert "replace-one" in repr(budget)
        assert len(budget.releases) >= 0
        ledger.record(LedgerEntry("child", 0.1, ()))

    def spend_on() -> None:
        while not stop.is_set():
            spend(budget, 1e-9)

    reservation = budget.reserve(0.5, adjacency="replace-one")
    ledger = reservation.__enter__()
    thread = threading.Thread(target=spend_on)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads: the point
        ends = [in_a_fork(leave_and_look) for _ in range(10)]
    stop.set()
    thread.join()
    reservation.__exit__(None, None, None)
    assert ends == [0] * 10
    assert budget.remaining_mu**2 > 0.99


def test_a_settled_ledger_is_closed() -> None:
    budget = Budget(mu=1.0)
    with budget.reserve(0.5, adjacency="replace-one") as ledger:
        ledger.check(0.1)
    with pytest.raises(PrivacyBudgetError, match="this ledger is closed"):
        ledger.record(LedgerEntry("late", 0.1, ()))


def test_what_a_thread_enters_while_a_ledger_closes_is_paid_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget(mu=1.0)
    checked, closed, outcomes = threading.Event(), threading.Event(), []
    spent_after = Ledger._spent_after

    def slow_check(ledger: Ledger, account: Any, mu: float) -> Any:
        spent = spent_after(ledger, account, mu)
        checked.set()
        closed.wait(10)  # for the other thread to close the ledger
        return spent

    def record() -> None:
        try:
            ledger.record(LedgerEntry("late", 0.5, ()))
            outcomes.append("paid")
        except PrivacyBudgetError:
            outcomes.append("refused")

    monkeypatch.setattr(Ledger, "_spent_after", slow_check)
    with budget.reserve(adjacency="replace-one") as ledger:
        thread = threading.Thread(target=record)
        thread.start()
        checked.wait()
    closed.set()
    thread.join()
    assert budget.releases == ledger.releases
    assert len(ledger.releases) == outcomes.count("paid")
    assert len(outcomes) == 1


# --- Adjacency -------------------------------------------------------------------------------------


OTHER: dict[Adjacency, Adjacency] = {"replace-one": "add-remove", "add-remove": "replace-one"}


@pytest.mark.parametrize("first", ["replace-one", "add-remove"])
def test_a_budget_has_the_adjacency_of_its_first_release(first: Adjacency) -> None:
    budget = Budget(mu=1.0)
    assert budget.adjacency is None
    assert "-" not in repr(budget)
    spend(budget, 0.25, first)
    assert budget.adjacency == first
    assert first in repr(budget)
    before = budget.remaining_mu
    with pytest.raises(
        PrivacyBudgetError, match=f"spent under {first} adjacency.*a run under {OTHER[first]}.*No data was read"
    ):
        spend(budget, 0.25, OTHER[first])
    assert (budget.remaining_mu, len(budget.releases)) == (before, 1)
    spend(budget, None, first)


@pytest.mark.parametrize("first", ["replace-one", "add-remove"])
def test_an_adjacency_may_be_fixed_beforehand(first: Adjacency) -> None:
    budget = Budget(epsilon=1.0, delta=1e-6, adjacency=first)
    assert budget.adjacency == first
    assert first in repr(budget)
    for attempt in (lambda: spend(budget, 0.5, OTHER[first]), lambda: fail_in(budget, first)):
        with pytest.raises((PrivacyBudgetError, KeyboardInterrupt)):
            attempt()
        assert budget.adjacency == first
    spend(budget, 0.5, first)


@pytest.mark.parametrize("wrong", ["local", "replace_one", "", 1, True, b"add-remove"])
def test_another_adjacency_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match='adjacency must be "replace-one" or "add-remove", got'):
        Budget(mu=1.0, adjacency=wrong)  # type: ignore[arg-type]
    budget = Budget(mu=1.0)
    with pytest.raises(ValueError, match='adjacency must be "replace-one" or "add-remove", got'):
        spend(budget, None, wrong)  # type: ignore[arg-type]
    assert (budget.adjacency, budget.remaining_mu) == (None, 1.0)


def fail_in(budget: Budget, adjacency: Adjacency) -> None:
    with budget.reserve(0.5, adjacency=adjacency):
        raise KeyboardInterrupt


def test_a_run_that_released_nothing_binds_nobody() -> None:
    budget = Budget(mu=1.0)
    with pytest.raises(KeyboardInterrupt):
        fail_in(budget, "add-remove")
    assert (budget.adjacency, budget.remaining_mu) == (None, 1.0)
    spend(budget, 0.5, "replace-one")
    with pytest.raises(KeyboardInterrupt):
        fail_in(budget, "replace-one")
    assert budget.adjacency == "replace-one"


def test_a_refused_share_binds_nobody() -> None:
    budget = Budget(mu=1.0)
    for share in (2.0, 0.0):
        with pytest.raises(ValueError, match="share must lie"):
            spend(budget, share, "add-remove")
    assert budget.adjacency is None


def test_an_open_reservation_binds_until_it_ends() -> None:
    budget = Budget(mu=1.0)
    with (
        budget.reserve(0.25, adjacency="add-remove"),
        budget.reserve(0.25, adjacency="add-remove"),
        pytest.raises(PrivacyBudgetError, match="spent under add-remove"),
    ):
        spend(budget, 0.25, "replace-one")
    spend(budget, 0.25, "replace-one")


def test_threads_of_two_adjacencies_cannot_both_spend() -> None:
    """Released is under one adjacency alone, whichever thread was first."""
    for _ in range(50):
        budget, barrier = Budget(mu=1.0), threading.Barrier(4)
        spent: list[Adjacency] = []

        def run(
            adjacency: Adjacency,
            budget: Budget = budget,
            barrier: threading.Barrier = barrier,
            spent: list[Adjacency] = spent,
        ) -> None:
            barrier.wait()
            with contextlib.suppress(PrivacyBudgetError):
                spend(budget, 0.25, adjacency)
                spent.append(adjacency)

        threads = [threading.Thread(target=run, args=(each,)) for each in (*OTHER, *OTHER)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(spent)) == 1
        assert set(spent) == {budget.adjacency}
        assert len(budget.releases) == len(spent)


def test_a_budget_without_noise_has_an_adjacency_too() -> None:
    budget = Budget(epsilon=math.inf)
    spend(budget, None, "add-remove")
    with pytest.raises(PrivacyBudgetError, match="spent under add-remove"):
        spend(budget, None, "replace-one")


E1, E2 = (np.vstack([row, np.zeros((19, 2))]) for row in np.eye(2))


def problem(rows: Matrix, adjacency: Adjacency) -> Any:
    return dpgep.pca(
        rows, center=False, adjacency=adjacency, public_n=20 if adjacency == "add-remove" else None, bound=1.0
    )


def test_runs_of_two_adjacencies_would_cost_more_than_their_sum() -> None:
    """Half of mu = 3 on each costs 3.67 under replace-one; the runs are composed by hand, as a budget once did.

    The likelihood ratio of both releases, rows e1 against e2: half under add-remove has noise of deviation 1/2.12, a
    replaced row moves the second moment by sqrt 2, so that run alone costs 3 = 2.12 sqrt 2 and both sqrt(9 + 4.5). The
    statistic is normal: of 1500 runs a side, mu is estimated with a deviation of sqrt(2/1500 + 3.67^2/6000) = 0.06, and
    the bound, 2.6 of them below the estimate, falls below 3.17 (another 5.8) with a probability below 1e-6.
    """
    half = split_budget(3.0, 0.5)[0]
    runs: tuple[Adjacency, ...] = ("add-remove", "replace-one")
    stream = core.NoiseStream()

    def both(rows: Matrix) -> list[Any]:
        return [Curator(problem(rows, each), Ledger(half), stream).answer(Release()) for each in runs]

    def log_likelihood_ratio(released: list[Any]) -> float:
        return float(sum((each.second[1, 1] - each.second[0, 0]) / (20 * each.noise.second**2) for each in released))

    deviations = [20 * each.noise.second for each in both(E1)]
    assert math.sqrt(sum(2 / deviation**2 for deviation in deviations)) == pytest.approx(3.674, abs=1e-3)
    found = dpgep.auditing.audit(both, (E1, E2), log_likelihood_ratio, runs=1500, gaussian=True, mu=3.0)
    assert found.mu > 3.17
    assert found.flagged


@pytest.mark.parametrize("first", ["replace-one", "add-remove"])
@pytest.mark.parametrize("run", ["solve", "release as an operator", "release", "moments", "dp-spca", "local-gaussian"])
def test_runs_of_two_adjacencies_are_refused(
    run: str, first: Adjacency, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Before rows are read or their number is told, which the other adjacency protects."""
    budget = Budget(epsilon=3.0, delta=0.05)  # so large a delta warns, and says 1/n
    spend(budget, 0.25, first)
    before = repr(budget), budget.releases
    other = problem(np.ones((19, 2)), OTHER[first])
    monkeypatch.setattr(Curator, "__init__", None)  # nothing asks for anything
    moments = dpgep.Moments(other.model, adjacency=OTHER[first], bound=1.0)
    moments.update(np.ones((19, 2)))
    calls: dict[str, Callable[[], object]] = {
        "solve": lambda: dpgep.solve(other, budget=budget, share=0.5),
        "release as an operator": lambda: dpgep.release(other, budget=budget, share=0.5, storage="operator"),
        "release": lambda: dpgep.release(other, budget=budget, share=0.5),
        "moments": lambda: dpgep.release(moments, budget=budget),
        "dp-spca": lambda: dpgep.solve(other, budget=budget, method="dp-spca", n_components=1),
        "local-gaussian": lambda: dpgep.solve(other, budget=budget, method="local-gaussian"),
    }
    refused: tuple[type[Exception], str] = (PrivacyBudgetError, f"spent under {first} adjacency")
    if run == "local-gaussian" and first == "replace-one":  # no budget would do
        refused = ValueError, 'local-gaussian needs adjacency="replace-one"'
    with pytest.raises(refused[0], match=refused[1]):
        calls[run]()
    assert (repr(budget), budget.releases) == before
    assert not recwarn.list
    assert other.dataset.people.passes == 0


@pytest.mark.parametrize("form", ["epsilon", "rho", "mu"])
@pytest.mark.parametrize("value", [1e-162, 1e-101, 1e101, 1e300])
def test_absurd_magnitudes_are_refused_at_once(form: str, value: float) -> None:
    delta = 1e-6 if form == "epsilon" else None
    with pytest.raises(ValueError, match=f"{form} must lie between 1e-100 and 1e100"):
        Budget(**{form: value}, delta=delta)  # type: ignore[arg-type]


def test_numpy_numbers_are_numbers() -> None:
    assert spend(Budget(mu=np.float32(1.0)), np.float32(0.25)) == 0.5
    assert spend(Budget(mu=np.int64(2)), np.int64(1)) == 2.0  # type: ignore[arg-type]


# --- Amounts in epsilon ----------------------------------------------------------------------------


@pytest.mark.parametrize("accounting", ["gdp", "zcdp"])
@pytest.mark.parametrize(("epsilon", "delta", "n"), [(1.0, 1e-6, 5), (3.0, 1e-9, 7), (0.1, 1e-3, 10)])
def test_amounts_in_epsilon_add_up_to_the_budget(accounting: Any, epsilon: float, delta: float, n: int) -> None:
    """Each takes the total from its epsilon to that much more: five amounts of 0.2 make an epsilon of 1."""
    budget = Budget(epsilon=epsilon, delta=delta, accounting=accounting)
    totals = []
    for _ in range(n):
        with budget.reserve(epsilon=epsilon / n, adjacency="replace-one") as ledger:
            ledger.record(LedgerEntry("test", ledger.mu, ()))
        totals.append(budget.epsilon_at(budget.spent_mu))
    assert totals == pytest.approx([epsilon * (i + 1) / n for i in range(n)], rel=1e-9)
    assert delta_of(totals[0] or 0, budget.releases[0].mu or 0) <= delta
    if accounting == "gdp":
        assert budget.releases[0].mu == pytest.approx(mu_of(epsilon / n, delta), rel=1e-12)
    assert sum(Fraction(release.mu or 0) ** 2 for release in budget.releases) <= Fraction(budget.mu) ** 2
    with pytest.raises(PrivacyBudgetError, match=r"cannot pay for epsilon = .* more"):
        spend_epsilon(budget, epsilon / n)


def spend_epsilon(budget: Budget, epsilon: float) -> None:
    with budget.reserve(epsilon=epsilon, adjacency="replace-one") as ledger:
        ledger.record(LedgerEntry("test", ledger.mu, ()))


def test_an_amount_counts_what_is_reserved() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    with budget.reserve(epsilon=0.75, adjacency="replace-one"), pytest.raises(PrivacyBudgetError, match=r"0\.5 more"):
        spend_epsilon(budget, 0.5)
    spend_epsilon(budget, 0.5)


def test_the_whole_as_an_amount_is_a_whole_budget() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    with budget.reserve(epsilon=1.0, adjacency="replace-one") as ledger:
        assert ledger.mu == budget.mu
        assert ledger.whole_target() == (1.0, 1e-6)


@pytest.mark.parametrize(
    ("budget", "part", "message"),
    [
        ({"mu": 1.0}, {"epsilon": 0.1}, "an amount in epsilon needs a budget in epsilon and delta: give share="),
        ({"rho": 1.0}, {"epsilon": 0.1}, "an amount in epsilon needs a budget in epsilon and delta: give share="),
        ({"epsilon": math.inf, "delta": 0.1}, {"epsilon": 0.1}, "without noise there are no amounts"),
        ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": math.inf}, "without noise there are no amounts"),
        ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 0.0}, "epsilon must be a positive number, got 0.0"),
        ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": math.nan}, "epsilon must be a positive number"),
        ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 1.1}, "cannot pay for epsilon = 1.1 more"),
        ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 0.1, "share": 0.1}, "two parts of a budget given"),
        ({"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 0.1, "delta": 1e-6}, "two budgets given: budget and epsilon, de"),
    ],
)
def test_amounts_that_cannot_be_are_refused(budget: Any, part: Any, message: str) -> None:
    budget = Budget(**budget)
    before = budget.remaining_mu
    for call in (dpgep.solve, dpgep.release, partial(dpgep.release, storage="operator")):
        with pytest.raises(ValueError, match=message):
            call(problem(E1, "replace-one"), budget=budget, **part)
    assert (budget.remaining_mu, budget.adjacency, budget.releases) == (before, None, ())


def test_an_amount_too_small_for_the_curve_is_refused() -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    spend_epsilon(budget, 0.5)
    with pytest.raises(ValueError, match="epsilon = 1e-100 more is too little for any release"):
        spend_epsilon(budget, 1e-100)


# --- Releases of other libraries -------------------------------------------------------------------


def test_gaussian_events_of_others_are_charged_exactly() -> None:
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant

    events = [
        dpa.GaussianDpEvent(3.0),
        dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(7.0), 5),
        dpa.ComposedDpEvent([dpa.GaussianDpEvent(10.0), dpa.SelfComposedDpEvent(dpa.GaussianDpEvent(1e3), 2)]),
        dpa.NoOpDpEvent(),
    ]
    budget = Budget(epsilon=5.0, delta=1e-6)
    for event in events:
        entry = budget.charge(event, what="theirs", adjacency="add-remove")
        assert entry.query == "theirs"
    exact = [Fraction(1, 9), Fraction(5, 49), Fraction(1, 100) + Fraction(2, 10**6), Fraction(0)]
    for entry, cost in zip(budget.releases, exact, strict=True):
        assert entry.mu is not None
        assert Fraction(math.nextafter(entry.mu, 0)) ** 2 <= cost <= Fraction(entry.mu) ** 2
    assert budget.adjacency == "add-remove"
    accountant = PLDAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dpa.ComposedDpEvent(events))
    # their grid of 1e-4 rounds the losses of the nine events up
    assert budget.epsilon_at(budget.spent_mu) == pytest.approx(accountant.get_epsilon(1e-6), abs=9e-4)


def test_what_is_not_gaussian_is_not_charged() -> None:
    import dp_accounting as dpa

    gaussian = dpa.GaussianDpEvent(10.0)
    refused: list[tuple[Any, type[Exception], str]] = [
        (dpa.LaplaceDpEvent(10.0), ValueError, "a LaplaceDpEvent cannot be charged"),
        (dpa.PoissonSampledDpEvent(0.1, gaussian), ValueError, "a PoissonSampledDpEvent cannot"),
        (dpa.ComposedDpEvent([gaussian, dpa.LaplaceDpEvent(1.0)]), ValueError, "a LaplaceDpEvent cannot"),
        (dpa.NonPrivateDpEvent(), ValueError, "a NonPrivateDpEvent cannot"),
        (dpa.GaussianDpEvent(0.0), ValueError, "noise multiplier must lie between 1e-100 and 1e100, got 0.0"),
        (dpa.GaussianDpEvent(math.nan), ValueError, "noise multiplier must lie"),
        (dpa.SelfComposedDpEvent(gaussian, -1), ValueError, "needs a count of 0 or more, got -1"),
        (dpa.SelfComposedDpEvent(gaussian, 0.5), ValueError, "needs a count of 0 or more, got 0.5"),
        (0.1, TypeError, "event must be a dp_accounting.DpEvent, got float"),
        (dpa.GaussianDpEvent(0.5), PrivacyBudgetError, "cannot pay for mu = 2"),
    ]
    if hasattr(dpa, "ZCDpEvent"):  # a mechanism may be zCDP without being mu-GDP for any mu
        refused.append((dpa.ZCDpEvent(0.01), ValueError, "a ZCDpEvent cannot be charged"))
    budget = Budget(epsilon=1.0, delta=1e-6)
    for event, error, message in refused:
        with pytest.raises(error, match=message):
            budget.charge(event, what="theirs", adjacency="add-remove")
    with pytest.raises(ValueError, match="what must say"):
        budget.charge(gaussian, what="", adjacency="add-remove")
    assert (budget.releases, budget.adjacency, budget.remaining_mu) == ((), None, budget.mu)
    budget.charge(gaussian, what="theirs", adjacency="add-remove")
    with pytest.raises(PrivacyBudgetError, match="spent under add-remove"):
        budget.charge(gaussian, what="theirs", adjacency="replace-one")


def test_nothing_beyond_the_budget_has_its_epsilon() -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    assert budget.epsilon_at(budget.mu) == 1.0
    assert budget.epsilon_at(math.nextafter(budget.mu, 0.0)) == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"mu = 10 is more than all of the budget, which is 0\.2367"):
        budget.epsilon_at(10.0)


@pytest.mark.parametrize("total", [1.0, math.inf])
@pytest.mark.parametrize("mu", [0.0, -1.0, math.nan, "1", True])
def test_what_is_no_mu_cannot_be_reserved(total: float, mu: Any) -> None:
    budget = Budget(mu=total)
    with pytest.raises((ValueError, TypeError), match="mu must be"), budget.reserve(mu=mu, adjacency="replace-one"):
        pytest.fail("it was reserved")
    assert budget.adjacency is None


def test_a_mu_is_reserved_in_full_or_not_at_all() -> None:
    budget = Budget(mu=1.0)
    with budget.reserve(mu=0.75, adjacency="replace-one") as ledger:
        assert ledger.mu == 0.75
        for more in (0.75, math.nextafter(math.sqrt(1 - 0.75**2), 1.0), math.inf):
            with (
                pytest.raises(PrivacyBudgetError, match="cannot pay"),
                budget.reserve(mu=more, adjacency="replace-one"),
            ):
                pytest.fail("it was reserved")
    for parts in ({"share": 0.5, "mu": 0.5}, {"epsilon": 0.5, "mu": 0.5}):
        with pytest.raises(ValueError, match="two parts"), budget.reserve(**parts, adjacency="replace-one"):
            pytest.fail("it was reserved")
    assert budget.remaining_mu == 1.0


def test_a_query_needs_something_that_is_left(rng: np.random.Generator) -> None:
    problem = dpgep.pca(rng.standard_normal((50, 3)) / 3, bound=1.0)
    ledger = Ledger(1.0)
    curator = Curator(problem, ledger, core.NoiseStream(bytes(32)))
    curator.answer(Release())
    with pytest.raises(PrivacyBudgetError, match="nothing is left"):
        curator.answer(Release())
    assert len(ledger.releases) == 1


@pytest.mark.parametrize("part", [{}, {"share": 0.3}, {"epsilon": 0.25}, {"mu": 0.1}], ids=str)
def test_a_price_is_what_a_run_would_reserve(part: dict[str, float]) -> None:
    budget = Budget(epsilon=1.0, delta=1e-6)
    spend(budget, 0.5)
    left, price = budget.remaining_mu, budget.price(**part)
    assert budget.remaining_mu == left
    with budget.reserve(**part, adjacency="replace-one") as ledger:
        assert ledger.mu == price
    with pytest.raises(PrivacyBudgetError, match="cannot pay for share"):
        budget.price(0.6)
    assert math.isinf(Budget(epsilon=math.inf).price())
