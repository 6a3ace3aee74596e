"""``dpgep budget``: budgets in files (`dpgep.Budget.open`): create, look at, check, and settle what a crash left."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import dpgep
from dpgep.cli.command import Commands
from dpgep.privacy.budget import LastingBudget
from dpgep.privacy.ledger import Cost, cost_of, mu_rounded_up, total_cost

_TERMS = ("epsilon", "delta", "rho", "mu", "accounting", "adjacency", "dataset")


def add(commands: Commands) -> None:
    budget = commands.add_parser(
        "budget",
        help="A budget in a file, from which several runs spend",
        description="A budget in a file, from which all runs that open it spend: see docs/budgets.md.",
    )
    actions = budget.add_subparsers(dest="action", metavar="action", required=True)
    init = _action(actions, "init", "create a budget", _init)
    form = init.add_mutually_exclusive_group(required=True)
    form.add_argument("--epsilon", type=float, help="with --delta: (epsilon, delta)-differential privacy")
    form.add_argument("--rho", type=float, help="zero-concentrated differential privacy")
    form.add_argument("--mu", type=float, help="Gaussian differential privacy")
    init.add_argument("--delta", type=float, help="well below one over the number of people")
    init.add_argument("--accounting", choices=["gdp", "zcdp"], help="conversion of (epsilon, delta) (default: gdp)")
    init.add_argument(
        "--adjacency", required=True, choices=["replace-one", "add-remove"],
        help="replace-one: the number of people is public; add-remove: it is protected",
    )  # fmt: skip
    init.add_argument("--dataset", required=True, metavar="NAME", help="name of the data that the budget protects")
    _action(actions, "show", "print what is spent, and on what", _show)
    _action(actions, "verify", "check every line; exit status 1 if one is damaged or missing", _verify)
    recover = _action(actions, "recover", "list open reservations, or give one back", _recover)
    recover.add_argument("--reservation", metavar="ID", help="the reservation to give back, as listed")
    recover.add_argument(
        "--nothing-was-released", action="store_true",
        help="your word that its process is dead, and that nobody saw anything that it computed",
    )  # fmt: skip


def _action(actions: Commands, name: str, summary: str, run: Any) -> argparse.ArgumentParser:
    action = actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    action.add_argument("file", metavar="FILE", help="file of the budget; FILE.head belongs to it")
    action.set_defaults(run=lambda options: _checked(run, options))
    return action


def _checked(run: Any, options: argparse.Namespace) -> int:
    """Run an action; what the file, or its terms, are refused for is a message."""
    try:
        return int(run(options))
    except (OSError, ValueError) as error:
        print(f"dpgep budget {options.action}: {error}", file=sys.stderr)
        return 1


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
    print(f"{'time':<25}  {'mu':>9}  {_total_name(budget):>13}  released, for what, by which process")
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
        raise ValueError(
            "only if nobody saw anything that the run computed may its reservation be given back; if so, say "
            "--nothing-was-released. Otherwise there is nothing to do: it counts as spent"
        )
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


def _total_name(budget: LastingBudget) -> str:
    return "total mu" if budget.epsilon is None else "total epsilon"


def _total(budget: LastingBudget, total: Cost) -> str:
    mu = mu_rounded_up(total)
    epsilon = budget.epsilon_at(mu)
    return f"{mu if epsilon is None or math.isinf(epsilon) else epsilon:.4g}"
