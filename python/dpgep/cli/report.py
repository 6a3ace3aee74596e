"""``dpgep report``: the privacy report of a solution, to read, publish or sign; and whether a report holds."""

from __future__ import annotations

import argparse
from pathlib import Path

import dpgep
from dpgep.cli.command import Commands, Output, UsageError, say
from dpgep.reports.report import MOST_BYTES, REPORT, ReportDocument, document_of, verify
from dpgep.reports.words import statement
from dpgep.serialization import opened


def add(commands: Commands) -> None:
    report = commands.add_parser(
        "report",
        usage="dpgep report [-h] [--html | --markdown | --json] [-o OUT] [--force] [--dataset NAME] [--purpose TEXT] "
        "FILE\n"
        "       dpgep report verify FILE",
        help="Write the privacy report of a solution, or verify one",
        description="Writes the privacy report of a solution or a release, or shows a report that was written with\n"
        "--json. 'verify' recomputes its hash, and its guarantee from the ledger: exit status 1 if they disagree.",
    )
    report.add_argument("file", nargs="+", metavar="FILE", help="a solution, a report, or a release of dpgep release")
    form = report.add_mutually_exclusive_group()
    forms = {"html": "an HTML page", "markdown": "Markdown (default)", "json": "JSON, which can be verified"}
    for name, what in forms.items():
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"write {what}")
    report.add_argument("-o", "--output", type=Path, metavar="OUT", help="write to a file (default: standard output)")
    report.add_argument("--force", action="store_true", help="replace the output if it exists")
    report.add_argument("--dataset", metavar="NAME", help="name of the data set, for a new report")
    report.add_argument("--purpose", metavar="TEXT", help="what the release is for, for a new report")
    report.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    *verb, file = options.file
    if verb not in ([], ["verify"]):
        raise UsageError(f"one FILE, or verify FILE; got {' '.join(options.file)}")
    if verb and any(getattr(options, name) is not None for name in ("form", "output", "dataset", "purpose")):
        raise UsageError("verify takes no options")
    try:
        with open(file, "rb") as opened:
            text = opened.read(MOST_BYTES + 1 if verb else -1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    try:
        found = verify(text) if verb else _document(text, options.dataset, options.purpose)
    except UsageError:
        raise
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if verb:
        print(f"{file}: the hash agrees with the report, and all numbers with its ledger")
        if found.dpgep != dpgep.__version__:
            print(
                f"its words are those of dpgep {found.dpgep}, which this version ({dpgep.__version__}) did not compare"
            )
        print(f"sha256 {found.sha256}\n{statement(found.privacy)}")
    else:
        written = getattr(found, f"to_{options.form or 'markdown'}")()
        if options.output is None:
            print(written, end="")
        else:
            with Output(options.output, force=options.force, inputs=[file]) as output:
                output.try_place()
                output.write(written.encode())
                kept = output.take()
            say(f"kept in {kept}")
    return 0


def _document(text: bytes, dataset: str | None, purpose: str | None) -> ReportDocument:
    """The document in a file, or that of the solution or the release in it."""
    if opened(text).name != REPORT.name:
        found = dpgep.load(text)
        if not isinstance(found, (dpgep.Solution, dpgep.Release)):
            raise ValueError("this is no report, and neither a solution nor a release, which have one")
        privacy = found.privacy if isinstance(found, dpgep.Solution) else found.report
        privacy.require_sampled()
        return document_of(privacy, dataset, purpose)
    if dataset is not None or purpose is not None:
        raise UsageError("this report is written: --dataset and --purpose are for one that is made from a solution")
    return verify(text)
