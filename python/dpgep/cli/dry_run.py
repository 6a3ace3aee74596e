"""``--dry-run``: what a run will cost, and how much noise is in its answer; no row is read, nothing is spent."""

from __future__ import annotations

import argparse
from typing import Any

import dpgep
from dpgep.cli.command import UsageError, usage
from dpgep.cli.paying import Paying
from dpgep.problems.problem import Problem

_LISTED = 12
# The signal that expected errors are about: an eigenvalue that is larger than all others by this much.
_EIGENGAPS = {"pca": 1.0, "standardized-pca": 0.5, "cca": 0.5, "pls": 0.5, "fda": 1.0, "sir": 0.5}


def listed_features(model: Any) -> str:
    """How many features there are, and the first of their names."""
    names = model.feature_names or ()
    return f"{model.n_features}{': ' * bool(names)}{', '.join(names[:_LISTED])}{', ...' * (len(names) > _LISTED)}"


def show_dry_run(problem: Problem, options: argparse.Namespace, paying: Paying) -> int:
    """Print what is known before there are rows: from names, types, and the number of people where it is public."""
    mu, line = paying.price()
    print("dry run: nothing was read but names and types, nothing was spent")
    print(f"price     {line}, {paying.adjacency}")
    model: Any = problem.model
    print(f"features  {listed_features(model)}")
    if options.model == "table":
        if model.n_groups > 1:
            print("noise     not planned for tables with groups: see dpgep fda or dpgep sir --dry-run")
            return 0
        model = dpgep.StandardizedPcaModel(model.n_features, center=True)
    if model.name not in _EIGENGAPS:
        print(f"noise     not planned for {model.name}: see dpgep cca --dry-run, for two of its views")
        return 0
    n = problem.facts.n or options.people
    if n is None:
        raise UsageError("for how many people? The files do not say it, or it is not public: give --people N")
    gap = _EIGENGAPS[model.name]
    with usage():
        plan = dpgep.plan(
            model,
            n=n,
            mu=mu,
            bound=options.bound,
            eigengap=gap,
            n_components=1,
            adjacency=paying.adjacency,
        )
    print(plan)
    print(
        f"for one component that stands out by {gap:g}, columns of deviation 1 and no --ranges; other spectra: "
        "dpgep plan"
    )
    return 0
