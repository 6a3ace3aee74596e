"""``dpgep info``: versions and build, for bug reports."""

from __future__ import annotations

import argparse

import dpgep
from dpgep.cli.command import Commands


def add(commands: Commands) -> None:
    info = commands.add_parser(
        "info", help="Versions and build", description="Prints version and build information for bug reports."
    )
    info.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    info = dpgep.build_info()
    width = max(map(len, info))
    for key, value in info.items():
        print(f"{key:<{width}}  {value}")
    return 0
