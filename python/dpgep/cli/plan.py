"""``dpgep plan``, and ``--dry-run`` of a fit: what an answer will cost, and its error, before a row is read."""

from __future__ import annotations

import argparse
import math
from inspect import signature
from typing import Any

import dpgep
from dpgep.cli.budget import Paying
from dpgep.cli.command import Commands, UsageError, usage
from dpgep.cli.options import add_options, counts, numbers, positive
from dpgep.models import FdaModel, SirModel, StandardizedPcaModel, TableModel
from dpgep.models.row_model import Classes, RowModel
from dpgep.problems.problem import Problem
from dpgep.simulation import PLANNED, is_planned, model_named, usual_eigengap

_LISTED = 12


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "plan",
        help="Expected errors before there are data",
        description="Expected errors of a release, computed from public numbers alone.",
    )
    parser.add_argument("model", choices=PLANNED)
    # stored under the names that `dpgep.planning.plan` has for them
    parser.add_argument("--people", dest="n", type=positive, required=True, metavar="N", help="number of people")
    what = "number of columns, or D,E,... of each view"
    parser.add_argument("--features", dest="d", type=counts, required=True, metavar="D", help=what)
    add_options(parser, "epsilon", "delta", "mu", "bound")
    add_options(parser, "adjacency", default="replace-one")
    what = "instead: gap between one eigenvalue and all others (default: 1; 0.5 for correlations)"
    parser.add_argument("--eigengap", type=float, metavar="GAP", help=what)
    what = "of neighbouring columns, within views and classes; of columns further apart R^2, R^3, ..."
    what += "; standardized-pca: in place of a spectrum"
    parser.add_argument("--correlation", type=float, metavar="R", help=what)
    parser.add_argument("--spectrum", type=numbers, metavar="A,B", help="leading eigenvalues, public or assumed")
    parser.add_argument("--shares", type=numbers, metavar="A,B", help="proportions of people in the classes or slices")
    parser.add_argument("--mean", type=float, default=0.0, metavar="M", help="of columns, in deviations (default: 0)")
    parser.add_argument("--tails", type=float, default=math.inf, metavar="DF", help="Student's law: degrees of freedom")
    parser.add_argument("--releases", type=positive, default=1, metavar="N", help="of the same people: joint cost")
    parser.add_argument("--nights", type=positive, default=1, metavar="N", help="of other people each (dpgep nights)")
    parser.add_argument("--n-components", type=positive, default=1, metavar="K", help="components (default: 1)")
    parser.add_argument("--people-for", type=float, metavar="ERROR", help="also print how many people this error needs")
    parser.add_argument("--epsilon-for", type=float, metavar="ERROR", help="also print which epsilon this error needs")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    takes = signature(dpgep.planning.plan).parameters
    given = {name: value for name, value in vars(options).items() if name in takes}
    with usage():
        given["model"] = model_named(options.model, given.pop("d"), options.spectrum, options.shares)
        known = given["model"].traits.standardized and options.correlation is not None  # all eigenvalues
        if options.spectrum is None and options.eigengap is None and not known:
            given["eigengap"] = usual_eigengap(given["model"])
        plan = dpgep.planning.plan(**given)
    print(plan)
    if options.people_for is not None:
        print(f"{plan.people_for(options.people_for)} people for an error of {options.people_for:g}")
    if options.epsilon_for is not None:
        print(f"epsilon = {plan.epsilon_for(options.epsilon_for):.3g} for an error of {options.epsilon_for:g}")
    return 0


def listed_features(model: Any) -> str:
    names = model.feature_names or ()
    return f"{model.n_features}{': ' * bool(names)}{', '.join(names[:_LISTED])}{', ...' * (len(names) > _LISTED)}"


def show_dry_run(problem: Problem, options: argparse.Namespace, paying: Paying) -> int:
    """Print what is known before there are rows: from names, types, and the number of people where it is public."""
    mu, line = paying.price()
    print("dry run: nothing was read but names and types, nothing was spent")
    print(f"price     {line}, {paying.adjacency}{' of all rows of one person' if problem.facts.several_rows else ''}")
    model: Any = problem.model
    print(f"features  {listed_features(model)}")
    if isinstance(model, TableModel):
        model = _question(model)
    if not is_planned(model):
        print(f"errors    plans do not know {model.name}: try it on made-up rows")
        return 0
    n = problem.facts.n or options.people
    if n is None:
        raise UsageError("for how many people? The files do not say it, or it is not public: give --people N")
    gap = usual_eigengap(model)
    with usage():
        how: Any = {"bound": options.bound, "adjacency": paying.adjacency, "eigengap": gap}
        plan = dpgep.planning.plan(model, n=n, mu=mu, n_components=1, **how)
    print(plan)
    print(f"for one component that stands out by {gap:g}, columns of deviation 1, no --ranges; else: dpgep plan")
    return 0


def _question(table: TableModel) -> RowModel:
    """What a release may be asked: what its groups differ in; without any, components of standardized columns."""
    d, grouping = table.n_features, table.grouping
    if grouping is None:
        return StandardizedPcaModel(d, center=True)
    return FdaModel(d, grouping.labels) if isinstance(grouping, Classes) else SirModel(d, grouping.interior_edges)
