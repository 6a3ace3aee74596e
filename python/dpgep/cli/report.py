"""``dpgep report``: the privacy report of a solution, to read, publish or sign; and whether a report holds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import dpgep
from dpgep.cli.command import Commands
from dpgep.formats.codec import parsed
from dpgep.reports import document, html, markdown
from dpgep.reports.document import ReportDocument
from dpgep.reports.words import statement


def add(commands: Commands) -> None:
    report = commands.add_parser(
        "report",
        usage="dpgep report [-h] [--html | --markdown | --json] [-o FILE] [--dataset NAME] [--purpose TEXT] FILE\n"
        "       dpgep report verify FILE",
        help="the privacy report of a solution, to sign; verify one",
        description="Writes the privacy report of a solution (Solution.save), or shows one that was written (--json). "
        "'verify' recomputes its hash, and its guarantee from the ledger: exit status 0 if all agrees, 1 if not.",
    )
    report.add_argument("file", nargs="+", metavar="FILE", help="a solution or a report, in JSON")
    form = report.add_mutually_exclusive_group()
    for name, what in (("html", "a page"), ("markdown", "Markdown"), ("json", "the form that can be verified")):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"write {what}")
    report.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to a file (default: standard output)")
    report.add_argument("--dataset", metavar="NAME", help="name of the data set, for a new report")
    report.add_argument("--purpose", metavar="TEXT", help="what the release is for, for a new report")
    report.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    command, verifies = "dpgep report", options.file[0] == "verify" and len(options.file) == 2
    if len(options.file) > 1 and not verifies:
        print(f"{command}: one FILE, or verify FILE; got {' '.join(options.file)}", file=sys.stderr)
        return 2
    given = [name for name in ("form", "output", "dataset", "purpose") if getattr(options, name) is not None]
    if verifies and given:
        print(f"{command} verify: takes no options", file=sys.stderr)
        return 2
    path = Path(options.file[-1])
    try:
        return _verify(path) if verifies else _write(path, options)
    except OSError as error:
        print(f"{command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"{command}: {path}: {error}", file=sys.stderr)
        return 1


def _verify(path: Path) -> int:
    found = document.verify(path.read_bytes())
    print(f"{path}: the hash agrees with the report, and all numbers with its ledger")
    if found.dpgep != dpgep.__version__:
        print(f"its words are those of dpgep {found.dpgep}, which this version ({dpgep.__version__}) did not compare")
    print(f"sha256 {found.sha256}\n{statement(found.privacy)}")
    return 0


def _write(path: Path, options: argparse.Namespace) -> int:
    made = _document(path.read_bytes(), options.dataset, options.purpose)
    text = {"html": html.page, "json": ReportDocument.to_json}.get(options.form, markdown.text)(made)
    if options.output is None:
        print(text, end="")
    else:
        options.output.write_text(text, encoding="utf-8")
    return 0


def _document(text: bytes, dataset: str | None, purpose: str | None) -> ReportDocument:
    """The document in a file, or that of the solution in it."""
    if parsed(text).get("format") != document.FORMAT:
        privacy = dpgep.Solution.from_json(text).privacy
        privacy.require_sampled()
        return document.document_of(privacy, dataset, purpose)
    if dataset is not None or purpose is not None:
        raise ValueError("this report is written: --dataset and --purpose are for one that is made from a solution")
    return document.verify(text)
