"""``dpgep nights``: a register that grows every night, under one budget (`dpgep.Nights`)."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import dpgep
from dpgep.cli.budget import add_budget, opened
from dpgep.cli.command import Commands, UsageError, add_action, add_output, saved, usage, written
from dpgep.cli.data import add_data, open_data, ranges_of
from dpgep.cli.fit import labels_of, rows_of
from dpgep.cli.options import add_options, positive


def add(commands: Commands) -> None:
    nights = commands.add_parser(
        "nights",
        help="A register that grows every night, under one budget",
        description="A register that grows every night, and a release each morning, under one budget: docs/nights.md.",
    )
    actions = nights.add_subparsers(dest="action", metavar="action", required=True)
    action = partial(add_action, actions, file="the file of all nights: confidential like the rows")
    what = "add the people of a night; the first night begins the file, and pays"
    add = action("nights add", what, _add)
    add_data(add)
    add_options(add, "columns", "exclude", "labels", "classes", "bound", "threads")
    add.add_argument("--night", metavar="LABEL", help="of this night (default: the name of the first file of DATA)")
    add.add_argument("--person", metavar="COLUMN", help="ids of people, who are then counted")
    terms = add.add_argument_group("terms", "of the first night; later nights may repeat them")
    add_options(terms, "ranges")
    add_options(terms, "missing", choices=("error", "center"), help="as of dpgep release")
    terms.add_argument("--keep", type=positive, metavar="N", help="nights whose noise is combined (default: 365)")
    terms.add_argument("--nights", type=positive, metavar="K", help="nights that a person may come on (default: 1)")
    add_budget(add)
    release = action("nights release", "write the release of all nights so far, or of some", _release)
    release.add_argument("--first", metavar="LABEL", help="the first night (default: that of the file)")
    release.add_argument("--last", metavar="LABEL", help="the last night (default: that of the file)")
    for each in (add, release):
        add_output(each, "OUT.dpgep", "file of the release, for dpgep ask")
        each.add_argument("--quiet", action="store_true", help="no progress bar")


def _add(options: argparse.Namespace) -> int:
    data, adjacency = open_data(options), options.adjacency
    with usage():
        nights = dpgep.Nights(options.file, **_terms(options, data), adjacency=adjacency, person=options.person)
        beside = [each for each in (options.labels, options.person) if each]
        rows = rows_of(data, options, beside)
    return _written(options, [*options.data, options.file], lambda: _added(options, nights, data, rows))


def _added(options: argparse.Namespace, nights: dpgep.Nights, data: Any, rows: Any) -> dpgep.Release:
    label = options.night or Path(options.data[0]).stem
    groups = () if options.labels is None else (data.vector(options.labels),)
    whose = None if options.person is None else data.vector(options.person)
    return nights.add(rows, *groups, night=label, person=whose, n_threads=options.threads)


def _release(options: argparse.Namespace) -> int:
    with usage():
        nights = dpgep.Nights(options.file)
    return _written(options, [options.file], lambda: nights.release(options.first, options.last))


def _terms(options: argparse.Namespace, data: Any) -> dict[str, Any]:
    """Those that were given: of a register that has begun they must be the same."""
    if options.public_n is not None:
        raise UsageError("--public-n is of no use here: the number of people of each night is released")
    if options.bound != "auto" and (options.ranges or options.missing != "error"):
        raise UsageError("--ranges and --missing are for an automatic bound: leave out --bound")
    found: dict[str, Any] = {name: getattr(options, name) for name in ("keep", "nights", "epsilon", "delta", "mu")}
    if options.labels is not None:
        _, found["classes"] = labels_of(data, options)
    if options.bound != "auto":
        found["bound"] = options.bound
    elif options.ranges or options.missing != "error":
        ranges = ranges_of(options.ranges, data)
        found["preprocessing"] = dpgep.AutoPreprocessing(ranges=ranges, missing=options.missing)
    if options.budget is not None:
        found["budget"], found["share"] = opened(options)
    return found


def _written(options: argparse.Namespace, inputs: list[Any], make: Any) -> int:
    """Print the release that ``make()`` returns, and write it where it is wanted: it can be made again."""
    found = written(options, make, lambda release: saved(release.save), inputs)
    size = f"{found.n_people:.0f} people, " if found.report.public.n_people else ""
    print(f"{size}nights: {len(dpgep.Nights(options.file).labels)}; {found.report}")
    return 0
