"""What is done with an answer: ``dpgep report``, its guarantee to read, publish or sign, and whether a report holds;
``dpgep transform``, scores of new rows, as private as the rows are; ``dpgep scores``, where people are along the
components (`dpgep.score_density`), and its picture.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import dpgep
from dpgep._optional import import_extra
from dpgep.cli.budget import Paying, add_budget
from dpgep.cli.command import Commands, Output, UsageError, add_output, saved, say, usage, written
from dpgep.cli.data import Data
from dpgep.cli.fit import add_running, bought, inputs_of, labels_of
from dpgep.cli.options import add_options, counts, positive, words
from dpgep.data.inputs import public_classes
from dpgep.models import FdaModel
from dpgep.models.row_model import RowModel, view_labels
from dpgep.problems.problem import moment_problem
from dpgep.reports.guarantee import statement
from dpgep.reports.report import MOST_BYTES, REPORT, ReportDocument, document_of, verify
from dpgep.results.score_density import CELLS, ScoreDensity
from dpgep.serialization import opened
from dpgep.sources import Selection
from dpgep.sources.encoding import is_date_type

_SUFFIXES = (".csv", ".parquet", ".npy")
_PICTURES = (".svg", ".png", ".pdf")
_EXAMPLE = """example:
  dpgep scores components.json people.csv --epsilon 0.5 --delta 1e-6 -o scores.dpgep --picture scores.svg
  dpgep scores scores.dpgep --synthetic 500 --picture points.svg"""


def add(commands: Commands) -> None:
    _add_report(commands)
    _add_transform(commands)
    _add_scores(commands)


def _add_report(commands: Commands) -> None:
    report = commands.add_parser(
        "report",
        usage="dpgep report [-h] [--html | --markdown | --json | --registry] [-o OUT] [--force] [--dataset NAME]\n"
        "                    [--purpose TEXT] FILE\n"
        "       dpgep report verify FILE",
        help="Write the privacy report of a solution, or verify one",
        description="Writes the privacy report of a solution or a release, or shows a report that was written with\n"
        "--json. 'verify' recomputes its hash, and its guarantee from the ledger: exit status 1 if they disagree.",
    )
    report.add_argument("file", nargs="+", metavar="FILE", help="a solution, a report, or a release of dpgep release")
    form = report.add_mutually_exclusive_group()
    forms = {
        "html": "an HTML page",
        "markdown": "Markdown (default)",
        "json": "JSON, which can be verified",
        "registry": "the draft of an entry for the public registry of deployments, in YAML",
    }
    for name, what in forms.items():
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, help=f"write {what}")
    add_output(report, "OUT", "write to a file (default: standard output)")
    report.add_argument("--dataset", metavar="NAME", help="name of the data set, for a new report")
    report.add_argument("--purpose", metavar="TEXT", help="what the release is for, for a new report")
    report.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    *verb, file = options.file
    if verb not in ([], ["verify"]):
        raise UsageError(f"one FILE, or verify FILE; got {' '.join(options.file)}")
    if verb and any(getattr(options, name) is not None for name in ("form", "output", "dataset", "purpose")):
        raise UsageError("verify takes no options")
    try:
        with open(file, "rb") as opened:
            text = opened.read(MOST_BYTES + 1 if verb else -1)
        found = verify(text) if verb else _document(text, options.dataset, options.purpose)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except UsageError:
        raise
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    if verb:
        print(f"{file}: the hash agrees with the report, and all numbers with its ledger")
        if found.dpgep != dpgep.__version__:
            theirs = f"those of dpgep {found.dpgep}, which this version ({dpgep.__version__}) did not compare"
            print(f"its words are {theirs}")
        print(f"sha256 {found.sha256}\n{statement(found.privacy)}")
    else:
        document = getattr(found, f"to_{options.form or 'markdown'}")()
        written(options, lambda: document, str.encode, [file])
        if options.output is None:
            print(document, end="")
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


def _add_transform(commands: Commands) -> None:
    parser = commands.add_parser(
        "transform",
        help="Scores of rows, only as private as the rows themselves",
        description="Writes the coordinates of rows along the components of a solution. Each is computed from its\n"
        "row alone and is no more private than the row: the solution's guarantee does not cover it.",
    )
    parser.add_argument("solution", type=Path, metavar="SOLUTION", help="output of dpgep pca ... -o")
    parser.add_argument("data", nargs="+", metavar="DATA", help="files with the columns of the solution")
    parser.add_argument("--keep", type=words, default=[], metavar="A,B", help="columns to copy, as an identifier")
    add_output(parser, "OUT", f"file: {', '.join(_SUFFIXES)}", required=True)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    parser.set_defaults(run=_transform)


def _transform(options: argparse.Namespace) -> int:
    suffix = options.output.suffix.lower()
    if suffix not in _SUFFIXES:
        raise UsageError(f"-o must end in one of {', '.join(_SUFFIXES)}, got {options.output}")
    if options.keep and suffix == ".npy":
        raise UsageError("--keep needs a table: -o OUT.csv or OUT.parquet")
    solution = loaded(options.solution)
    data, views = views_of(solution, options)
    kept = [data.vector(name) for name in options.keep]
    inputs = [options.solution, *options.data]
    with Output(options.output, force=options.force, inputs=inputs) as output:
        output.try_place()
        n = len(views)
        batches = (
            (np.hstack(solution.transform(*batch[:n])) if n > 1 else solution.transform(batch[0]), batch[n:])
            for batch in data.scan.read(*views, *kept)
        )
        if suffix == ".npy":
            with output.path.open("wb") as file:
                np.save(file, np.concatenate([scores for scores, _ in batches]))
        else:
            _write_table(output.path, suffix, batches, [*options.keep, *_names(solution)])
        place = output.take()
    say(f"{place}: no more private than the rows themselves")
    return 0


def loaded(path: Path, kinds: Any = dpgep.Solution, what: str = "solution") -> Any:
    """What a file holds, of these kinds."""
    try:
        found = dpgep.load(path)
        if not isinstance(found, kinds):
            raise ValueError(f"it is a {type(found).__name__}")
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} holds no {what}: {error}") from None
    return found


def views_of(solution: dpgep.Solution, options: argparse.Namespace) -> tuple[Data, list[Selection]]:
    """The data with the columns of the fit, indicators and days made as they were there."""
    names = solution.feature_names
    progress = False if options.quiet else None
    data = Data(options.data, progress=progress)
    if names is None or data.columns is None:
        if len(solution.model.views) > 1:
            raise UsageError("a solution of two views needs data with names")
        return data, [data.matrix(None)]
    categories: dict[str, list[str]] = {}
    columns: list[list[str]] = []
    for view in solution.model.views:
        chosen: dict[str, None] = {}
        for name in names[view]:
            column, equals, value = name.partition("=")
            if equals and name not in data.columns and column in data.columns:
                categories.setdefault(column, []).append(value)
            else:
                data.key(column := name)
            chosen[column] = None
        columns.append(list(chosen))
    dates = [name for chosen in columns for name in chosen if is_date_type(data.types.get(name, ""))]
    data = Data(options.data, categories=categories, dates=dates, progress=progress)
    return data, [data.matrix(chosen) for chosen in columns]


def _names(solution: dpgep.Solution) -> list[str]:
    names = view_labels(len(solution.model.views))
    views = ["component"] if len(names) == 1 else [f"{name.lower()}_component" for name in names]
    return [f"{view}_{k + 1}" for view in views for k in range(solution.n_components)]


def _write_table(path: Path, suffix: str, batches: Iterator[tuple[Any, Any]], names: list[str]) -> None:
    pa = import_extra("pyarrow", "arrow")
    writer: Any = None
    for scores, kept in batches:
        columns = [pa.array(values, from_pandas=True) for values in (*kept, *scores.T)]
        table = pa.table(columns, names=names)
        if writer is None:
            kind = import_extra("pyarrow.csv" if suffix == ".csv" else "pyarrow.parquet", "arrow")
            writer = (kind.CSVWriter if suffix == ".csv" else kind.ParquetWriter)(str(path), table.schema)
        writer.write_table(table.cast(writer.schema) if suffix == ".parquet" else table)
    if writer is None:
        raise UsageError("there are no rows")
    writer.close()


def _add_scores(commands: Commands) -> None:
    parser = commands.add_parser(
        "scores",
        help="A private score plot: where people are along the components of a solution",
        description="Counts people in cells of two scores, on a frame of released numbers, with noise that the budget\n"
        "pays for in addition to the solution. Without DATA it draws at no cost: scores that were counted, or,\n"
        "of a solution, normal laws of its means and covariances.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("solution", type=Path, metavar="SOLUTION", help="of dpgep pca ... -o; or of dpgep scores -o")
    parser.add_argument("data", nargs="*", metavar="DATA", help="files with the columns of the solution")
    what = "numbers of two components, or of one (default: 1,2)"
    parser.add_argument("--components", type=counts, metavar="K,L", help=what)
    parser.add_argument("--cells", type=positive, choices=CELLS, default=64, help="in each direction (default: 64)")
    add_options(parser, "labels", help="count each class by itself, at the same price")
    add_options(parser, "classes")
    parser.add_argument("--person", metavar="COLUMN", help="ids of people, who count once, shared by their cells")
    parser.add_argument("--picture", type=Path, metavar="FILE", help=f"draw them, too: {', '.join(_PICTURES)}")
    parser.add_argument("--synthetic", type=positive, default=0, metavar="N", help="draw N points that are nobody's")
    add_budget(parser)
    add_running(parser, "OUT.dpgep")
    parser.set_defaults(run=_scores)


def _scores(options: argparse.Namespace) -> int:
    found = loaded(options.solution, (dpgep.Solution, ScoreDensity))
    if options.data and isinstance(found, ScoreDensity):
        raise UsageError(f"{options.solution} holds scores that were counted: give the solution, or leave out DATA")
    if not options.data and options.picture is None:
        raise UsageError("give DATA, whose people are counted, or --picture FILE, to draw what there is")
    with nullcontext() if options.picture is None else _place(options) as place:
        if place is not None:
            place.try_place()
        if options.data:
            found = _bought(found, options)
        if found is not None and place is not None:
            place.write(_drawn(found, options))
            say(f"drawn in {place.take()}")
    return 1 if found is None else 0


def _bought(solution: dpgep.Solution, options: argparse.Namespace) -> Any:
    data, views = views_of(solution, options)
    paying = Paying(options)
    problem = _problem(solution, data, views, options, paying.adjacency)
    how: Any = {"components": options.components, "cells": options.cells, "n_threads": options.threads, **paying.part}
    buy = partial(dpgep.score_density, solution, problem, budget=paying.budget, seed=options.seed, **how)
    return bought(buy, problem, data, options, paying)


def _problem(
    solution: dpgep.Solution, data: Data, views: list[Any], options: argparse.Namespace, adjacency: str
) -> Any:
    """The rows of the solution's columns, mapped as they were there, of its groups or of classes that are asked for."""
    model: Any = solution.model
    groups: tuple[Any, ...] = ()
    if not isinstance(model, RowModel) or len(views) > (1 if options.labels else 2):
        raise UsageError("scores are counted of people's rows, in one or two views, and of groups in one")
    if options.labels is None and model.grouping is not None:
        raise UsageError("this solution is of groups: give --labels, the column of its classes or of its response")
    with usage():
        if options.labels is not None and model.grouping is not None:
            groups = (data.vector(options.labels),)
        elif options.labels is not None:
            labels, classes = labels_of(data, options)
            groups, model = (labels,), FdaModel(model.n_features, public_classes(labels, None, classes))
        bound: Any = solution.privacy.bound if solution.preprocessing is None else "auto"
        person = None if options.person is None else data.vector(options.person)
        how: Any = {"preprocessing": solution.preprocessing, "adjacency": adjacency, "public_n": options.public_n}
        return moment_problem(lambda *_: model, views, groups, bound=bound, person=person, **how)


def _place(options: argparse.Namespace) -> Output:
    if options.picture.suffix.lower() not in _PICTURES:
        raise UsageError(f"--picture must end in one of {', '.join(_PICTURES)}, got {options.picture}")
    import_extra("matplotlib", "plot")
    return Output(options.picture, force=options.force, inputs=inputs_of(options))


def _drawn(found: dpgep.Solution | ScoreDensity, options: argparse.Namespace) -> bytes:
    plot = import_extra("dpgep.plot", "plot")
    figure = import_extra("matplotlib.figure", "plot").Figure(layout="constrained")
    plot.scores(found, components=options.components, synthetic=options.synthetic, ax=figure.subplots())
    return saved(partial(figure.savefig, format=options.picture.suffix[1:].lower()))
