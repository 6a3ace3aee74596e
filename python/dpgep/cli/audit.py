"""``dpgep audit``: does what is installed keep its promise? Its releases of two neighbouring tables, told apart."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import dpgep
from dpgep.cli.command import Commands, usage
from dpgep.cli.options import positive
from dpgep.problems.problem import MomentProblem


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "audit",
        help="Attack this installation with two neighbouring synthetic tables",
        description="Releases two synthetic tables that differ in one person, many times, and distinguishes them by\n"
        "the best test. Prints a lower bound on the leak, and the claim. Reads no data; exit status 1 if the claim is\n"
        "refuted.",
    )
    parser.add_argument("model", nargs="?", choices=tuple(_PROBLEMS), default="pca")
    parser.add_argument("--epsilon", type=float, help="the claim to test, with --delta (default: mu = 3)")
    parser.add_argument("--delta", type=float, help="delta of the claim")
    parser.add_argument("--runs", type=positive, default=500, metavar="N", help="releases of each table (default: 500)")
    parser.add_argument("--people", type=positive, default=50, metavar="N", help="rows of each table (default: 50)")
    what = "probability that the bound holds (default: 1 - 1e-6)"
    parser.add_argument("--confidence", type=float, default=1 - 1e-6, metavar="C", help=what)
    parser.add_argument("--low-bits", action="store_true", help="attack the last bits of numbers, not their values")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    how: dict[str, Any] = {"mu": 3.0} if options.epsilon is None else {"epsilon": options.epsilon}
    how |= {"low_bits": True} if options.low_bits else {"gaussian": True, "released": True}
    how |= {name: getattr(options, name) for name in ("delta", "runs", "confidence")}
    tables = np.zeros((2, options.people, 4))  # of zeros, but for one person: the longest row along either axis
    tables[0, 0, 0] = tables[1, 0, 1] = 1.0
    with usage():
        build = _PROBLEMS[options.model]
        result = dpgep.auditing.audit(build, (tables[0], tables[1]), None, progress=not options.quiet, **how)
    print(result)
    return int(result.flagged)


_PROBLEMS: dict[str, Callable[[np.ndarray], MomentProblem]] = {
    "pca": lambda rows: dpgep.pca(rows, center=False, bound=1.0),
    "cca": lambda rows: dpgep.cca(rows[:, ::2], rows[:, 1::2], center=False, bound=1.0),
    "fda": lambda rows: dpgep.fda(rows, rows[:, 0] > 0, classes=[False, True], bound=1.0),
}
