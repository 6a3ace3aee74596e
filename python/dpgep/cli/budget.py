"""Budgets: arguments about that of a run, and ``dpgep budget``, about budgets in files (`dpgep.Budget.open`).

The latter creates one, shows it, checks it, and settles what a crash left.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dpgep
from dpgep.cli.command import Commands, UsageError, add_action, say, usage
from dpgep.cli.options import add_options
from dpgep.data.rows import NotFiniteError
from dpgep.privacy.budget import LastingBudget
from dpgep.privacy.ledger import Cost, Ledger, cost_of, mu_rounded_up, total_cost

_REST = "rest"
_TERMS = ("epsilon", "delta", "rho", "mu", "accounting", "adjacency", "person", "dataset")


def add_budget(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("budget", "--epsilon with --delta, or a part of --budget FILE")
    add_options(group, "epsilon", help="with --budget: what this run may add to its epsilon")
    add_options(group, "delta", "mu", "adjacency")
    group.add_argument("--budget", metavar="FILE", help="a budget that lasts (dpgep budget init)")
    group.add_argument("--share", type=_share, help="the part of its mu^2 to spend, or 'rest' for all that is left")
    group.add_argument("--dataset", metavar="NAME", help="refuse a budget of other data")
    group.add_argument("--purpose", metavar="TEXT", help="what the run is for; recorded in the budget's file")
    group.add_argument("--public-n", type=int, metavar="N", help="add-remove: a public figure for the number of people")


def _share(text: str) -> float | str:
    if text == _REST:
        return text
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"must lie in (0, 1], or be 'rest'; got {text}")
    return share


def opened(options: argparse.Namespace) -> tuple[LastingBudget, float | None]:
    """The budget of --budget, and the share of it that is asked for; None for all that is left, or an amount."""
    given = {name: getattr(options, name) for name in ("dataset", "purpose", "adjacency")}
    return dpgep.Budget.open(options.budget, **given), None if options.share == _REST else options.share


class Paying:
    """The budget that pays, and the part of it that a run may spend."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.part: dict[str, float | None] = {}
        self.budget: dpgep.Budget
        if options.budget is None:
            self._check_alone(options)
            form = {"epsilon": options.epsilon, "delta": options.delta, "mu": options.mu}
            with usage():
                self.budget = dpgep.Budget(adjacency=options.adjacency or "replace-one", **form)
        else:
            self._check_part(options)
            with usage():
                self.budget, share = opened(options)
            self.part = {"epsilon": options.epsilon, "share": share}
        self._file = options.budget
        self._interrupts = options.interrupts
        #: of the run; None before it has reserved its part
        self._ledger: Ledger | None = None
        self._open_before = self._open_reservations()
        self._reserve = self.budget.reserve
        self.budget.reserve = self._reserved  # type: ignore[method-assign]
        #: which data sets the guarantee compares
        self.adjacency: Any = self.budget.adjacency or "replace-one"
        self.budget.require(self.adjacency, options.person)
        self._interrupts.spent = self.spent

    @contextmanager
    def said_on_failure(self) -> Iterator[None]:
        """Whatever goes wrong inside, a line on stderr says what was spent, unless the error does."""
        try:
            yield
        except (dpgep.errors.PrivacyBudgetError, NotFiniteError):
            raise
        except Exception:
            say(self.spent())
            raise

    @contextmanager
    def _reserved(self, *arguments: Any, **options: Any) -> Iterator[Ledger]:
        """The budget's own `reserve`, which a signal ends while nothing is paid for, and never halfway."""
        self._interrupts.hold()
        with self._reserve(*arguments, **options) as ledger:
            self._ledger = ledger
            try:
                self._interrupts.hold_when(lambda: ledger.releases)
                yield ledger
            finally:
                self._interrupts.hold()

    def price(self) -> tuple[float, str]:
        """The mu of the run, and a line about what it costs; PrivacyBudgetError if the budget does not suffice."""
        mu, total, left = self.budget.price(**self.part), self.budget.mu, self.budget.remaining_mu
        if self._file is None:
            return mu, f"{self._in_epsilon(mu)}, a budget of this run alone"
        return mu, (
            f"{self._in_epsilon(mu)}: {mu**2 / total**2:.1%} of mu^2 of the budget in {self._file}, of which "
            f"{left**2 / total**2:.1%} is left"
        )

    def _in_epsilon(self, mu: float) -> str:
        epsilon, delta = self.budget.epsilon_at(mu), self.budget.delta
        if epsilon is None or delta is None:
            return f"mu = {mu:.4g}"
        return f"epsilon = {epsilon:.4g}, delta = {delta:.3g} (mu = {mu:.4g})"

    def spent(self) -> str:
        """What this run has spent, in words, whatever other runs spend from the same budget."""
        try:
            left = self._open_reservations() - self._open_before
        except (OSError, ValueError):
            return f"what was spent cannot be read from {self._file}"
        if left:
            return f"its reservation {left.pop()} is open and counts as spent: see dpgep budget recover {self._file}"
        if self._ledger is None or not self._ledger.releases:
            return "nothing was released, nothing was spent"
        return f"spent: mu = {self._ledger.spent_mu:.4g}"

    def _open_reservations(self) -> set[str]:
        if not isinstance(self.budget, LastingBudget):
            return set()
        process = f"{os.getpid()}@{platform.node()}"
        return {each["reservation"] for each in self.budget.open_reservations if each["process"] == process}

    @staticmethod
    def _check_alone(options: argparse.Namespace) -> None:
        for name in ("share", "dataset", "purpose"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} belongs to a budget in a file: give --budget FILE")
        if options.epsilon is None and options.mu is None:
            raise UsageError("what may it cost? Give --epsilon with --delta (as --epsilon 1 --delta 1e-6), or --budget")
        if options.epsilon is not None and options.delta is None and math.isfinite(options.epsilon):
            raise UsageError("--epsilon needs --delta, well below one over the number of people: as --delta 1e-6")

    @staticmethod
    def _check_part(options: argparse.Namespace) -> None:
        for name in ("delta", "mu"):
            if getattr(options, name) is not None:
                raise UsageError(f"--{name} is the budget's own: give --epsilon, an amount of it, or --share")
        if (options.epsilon is None) == (options.share is None):
            raise UsageError("how much of the budget? Give --epsilon, --share or --share rest: one of them")


def add(commands: Commands) -> None:
    budget = commands.add_parser(
        "budget",
        help="A budget in a file, from which several runs spend",
        description="A budget in a file, from which all runs that open it spend: see docs/budgets.md.",
    )
    actions = budget.add_subparsers(dest="action", metavar="action", required=True)
    # refused: for a damaged file, since nothing is paid for here
    action = partial(add_action, actions, file="file of the budget; FILE.head belongs to it", refused=1)
    init = action("budget init", "create a budget", _init)
    form = init.add_mutually_exclusive_group(required=True)
    add_options(form, "epsilon", "mu")
    form.add_argument("--rho", type=float, help="zero-concentrated differential privacy")
    add_options(init, "delta")
    kinds = "which data sets the guarantee compares: replace-one, where the number of people is public, or add-remove"
    add_options(init, "adjacency", required=True, help=f"{kinds}, where it is protected")
    init.add_argument("--accounting", choices=["gdp", "zcdp"], help="conversion of (epsilon, delta) (default: gdp)")
    init.add_argument("--person", metavar="COLUMN", help="protect all rows of a person, by these ids (default: rows)")
    init.add_argument("--dataset", required=True, metavar="NAME", help="name of the data that the budget protects")
    action("budget show", "print what is spent, and on what", _show)
    action("budget verify", "check every line; exit status 1 if one is damaged or missing", _verify)
    recover = action("budget recover", "list open reservations, or give one back", _recover)
    recover.add_argument("--reservation", metavar="ID", help="the reservation to give back, as listed")
    recover.add_argument(
        "--nothing-was-released", action="store_true",
        help="your word that its process is dead, and that nobody saw anything that it computed",
    )  # fmt: skip


def _init(options: argparse.Namespace) -> int:
    try:
        exists = dpgep.Budget.open(options.file)
    except FileNotFoundError:
        print(dpgep.Budget.open(options.file, **{name: getattr(options, name) for name in _TERMS}))
        return 0
    raise ValueError(f"there is one already: {exists}")


def _show(options: argparse.Namespace) -> int:
    budget = dpgep.Budget.open(options.file)
    records, entries = budget.history, iter(budget.releases)
    purposes = {each["reservation"]: each.get("purpose", "") for each in records if each["kind"] == "reserve"}
    print(f"{budget}\n")
    name = "total mu" if budget.epsilon is None else "total epsilon"
    print(f"{'time':<25}  {'mu':>9}  {name:>13}  released, for what, by which process")
    total: Cost = cost_of(0.0)
    for record in records:
        for _ in record.get("releases", ()):
            entry = next(entries)
            total += total_cost([entry], budget.mu)
            about = [entry.query, purposes[record["reservation"]], record["process"]]
            mu = "all" if entry.mu is None else f"{entry.mu:.4g}"
            print(f"{record['time']:<25}  {mu:>9}  {_total(budget, total):>13}  {'; '.join(filter(None, about))}")
    _print_open(budget)
    return 0


def _verify(options: argparse.Namespace) -> int:
    budget = dpgep.Budget.open(options.file)
    reserved = sum((cost_of(each["mu"]) for each in budget.open_reservations), start=cost_of(0.0))
    if total_cost(budget.releases, budget.mu) + reserved > cost_of(budget.mu):
        raise ValueError(f"more is spent than there is: {budget}")
    print(f"{len(budget.history)} lines, all as they were written\n{budget}")
    _print_open(budget)
    return 0


def _recover(options: argparse.Namespace) -> int:
    budget = dpgep.Budget.open(options.file)
    if options.reservation is None:
        if not budget.open_reservations:
            print("no reservation is open")
        _print_open(budget)
        return 0
    if not options.nothing_was_released:
        raise ValueError("only if nobody saw a result may it be given back: then say --nothing-was-released")
    budget.give_back(options.reservation, nothing_was_released=True)
    print(f"given back: {options.reservation}\n{budget}")
    return 0


def _print_open(budget: LastingBudget) -> None:
    for each in budget.open_reservations:
        purpose = f", for {each['purpose']}" if "purpose" in each else ""
        print(
            f"open: reservation {each['reservation']}, mu = {each['mu']:.4g}{purpose}, since {each['time']} by process "
            f"{each['process']}: it counts as spent until its run ends; if that process died, until you recover it"
        )


def _total(budget: LastingBudget, total: Cost) -> str:
    mu = mu_rounded_up(total)
    epsilon = budget.epsilon_at(mu)
    return f"{mu if epsilon is None or math.isinf(epsilon) else epsilon:.4g}"
