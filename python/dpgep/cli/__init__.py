"""The command ``dpgep``. Each of its commands is a module that adds its arguments and the function that runs it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import dpgep
from dpgep._optional import MissingExtraError
from dpgep.cli import budget, demo, info

_COMMANDS = (budget, demo, info)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        return int(options.run(options))
    except MissingExtraError as error:
        print(f"dpgep {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dpgep", description="PCA, CCA, PLS, FDA and SIR under differential privacy. Start with: dpgep demo"
    )
    parser.add_argument("--version", action="version", version=f"dpgep {dpgep.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for command in _COMMANDS:
        command.add(commands)
    return parser
