"""The command ``dpgep``. Each of its commands is a module that adds its arguments and the function that runs it."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from numpy.linalg import LinAlgError

import dpgep
from dpgep._optional import MissingExtraError
from dpgep.cli import ask, audit, budget, demo, fit, nights, plan, solution
from dpgep.cli.command import EXIT_CODES, Parser, UsageError, say
from dpgep.cli.interrupts import Interrupts
from dpgep.data.rows import OF_A_RUN

_EXAMPLE = """example:
  dpgep pca people.csv --standardize --epsilon 1 --delta 1e-6 --n-components 2 -o solution.json
  dpgep report solution.json --html -o report.html"""
# What to do about values that are absent, in options.
_OF_MISSING = "impute or drop them, or take --missing center, or pairwise without groups; no budget was spent"
_COMMANDS = (fit, nights, ask, plan, solution, budget, audit, demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status: see ``EXIT_CODES``."""
    interrupts = Interrupts()
    try:
        status = _uninterrupted(arguments, interrupts)
        if status is None:  # its traceback is gone, and with it all that was open: a reservation is given back
            say(f"\ndpgep: interrupted; {interrupts.spent()}")
            status = 128 + (interrupts.number or signal.SIGINT)
        return status
    finally:
        interrupts.restore()


def _uninterrupted(arguments: Sequence[str] | None, interrupts: Interrupts) -> int | None:
    """The status of the command; None if it was interrupted."""
    try:
        interrupts.install()
        parser = _parser()
        options = parser.parse_args(arguments, argparse.Namespace(interrupts=interrupts))
        if options.command is None:
            parser.print_help()
            return 0
        status = _status(options)
        interrupts.ignore()
        return status
    except (KeyboardInterrupt, Exception) as error:
        interrupts.hold()
        # a compiled module that was interrupted while it was imported makes another error of that
        if not interrupts.number and not isinstance(error, KeyboardInterrupt):
            raise
        return None


def _status(options: argparse.Namespace) -> int:
    try:
        with _warnings_in_a_line(options.command):
            status = int(options.run(options))
            if sys.stdout is not None:
                sys.stdout.flush()
            return status
    except BrokenPipeError:  # whoever read our output has seen enough; nothing more is flushed at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MissingExtraError, ValueError, TypeError, OSError, MemoryError, ArithmeticError, LinAlgError) as error:
        say(f"dpgep {options.command}: {_in_options(str(error), options)}")
        if isinstance(error, UsageError):
            return 2
        return int(options.refused) if isinstance(error, dpgep.errors.PrivacyBudgetError) else 1


def _in_options(message: str, options: argparse.Namespace) -> str:
    """A message of the library that names arguments, with the options that stand for them."""
    message = message.replace(OF_A_RUN, _OF_MISSING)
    named = re.sub(
        r"\b([a-z_]{2,})=(?=\S)",
        lambda found: f"--{found[1].replace('_', '-')} " if hasattr(options, found[1]) else found[0],
        message,
    )
    return named.replace("(low, high)", "LOW:HIGH").replace(" )", ")").replace(" ,", ",")


@contextmanager
def _warnings_in_a_line(command: str) -> Iterator[None]:
    """The package's own warnings as a line on stderr, whatever filters say: one that is raised would lose an answer."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(f"dpgep {command}: warning: {message}")

    with warnings.catch_warnings():
        for category in (dpgep.errors.PrivacyWarning, dpgep.errors.AccuracyWarning):
            warnings.simplefilter("always", category)
        warnings.filterwarnings("always", message="the budget in |night ", category=RuntimeWarning)
        warnings.showwarning = show
        yield


@cache
def _parser() -> Parser:
    parser = Parser(
        prog="dpgep",
        description="PCA, CCA, PLS, FDA and SIR under differential privacy. Start with: dpgep demo",
        epilog=f"{_EXAMPLE}\n\n{EXIT_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"dpgep {dpgep.__version__}")
    parser.set_defaults(refused=3)
    commands = parser.add_subparsers(dest="command", metavar="command")
    for command in _COMMANDS:
        command.add(commands)
    info = commands.add_parser("info", help="Versions and build", description="Prints what a bug report should quote.")
    info.set_defaults(run=_print_info)
    return parser


def _print_info(options: argparse.Namespace) -> int:
    info = dpgep.build_info()
    width = max(map(len, info))
    for key, value in info.items():
        print(f"{key:<{width}}  {value}")
    return 0
