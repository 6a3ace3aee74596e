"""``dpgep scores``: where people are along the components of a solution (`dpgep.score_density`), and its picture."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import dpgep
from dpgep._optional import import_extra
from dpgep.cli.budget import Paying, add_budget
from dpgep.cli.command import Commands, Output, UsageError, positive, saved, say, usage, words
from dpgep.cli.data import Data
from dpgep.cli.fit import add_running, bought, inputs_of, labels_of
from dpgep.cli.solution import loaded, views_of
from dpgep.data.inputs import public_classes
from dpgep.models import FdaModel
from dpgep.models.row_model import RowModel
from dpgep.problems.problem import moment_problem
from dpgep.results.score_density import CELLS, ScoreDensity

_PICTURES = (".svg", ".png", ".pdf")
_EXAMPLE = """example:
  dpgep scores components.json people.csv --epsilon 0.5 --delta 1e-6 -o scores.dpgep --picture scores.svg
  dpgep scores scores.dpgep --synthetic 500 --picture points.svg"""


def add(commands: Commands) -> None:
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
    parser.add_argument("--components", type=_components, metavar="K,L", help=what)
    parser.add_argument("--cells", type=positive, choices=CELLS, default=64, help="in each direction (default: 64)")
    parser.add_argument("--labels", metavar="COLUMN", help="count each class by itself, at the same price")
    parser.add_argument("--classes", type=words, metavar="A,B", help="the public classes; others are left out")
    parser.add_argument("--person", metavar="COLUMN", help="ids of people, who count once, shared by their cells")
    parser.add_argument("--picture", type=Path, metavar="FILE", help=f"draw them, too: {', '.join(_PICTURES)}")
    parser.add_argument("--synthetic", type=positive, default=0, metavar="N", help="draw N points that are nobody's")
    add_budget(parser)
    add_running(parser, "OUT.dpgep")
    parser.set_defaults(run=_scores)


def _components(text: str) -> int | tuple[int, ...]:
    found = tuple(map(positive, words(text)))
    return found if len(found) > 1 else found[0]


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
