"""``dpgep ask``: questions to a release in a file, which cost nothing more."""

from __future__ import annotations

import argparse
import inspect
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dpgep
from dpgep._checks import did_you_mean
from dpgep._optional import import_extra
from dpgep._show import date
from dpgep.cli.command import Commands, UsageError, add_output, saved, written
from dpgep.cli.options import positive
from dpgep.cli.solution import loaded
from dpgep.sources.names import listed

_EXAMPLE = """example:
  dpgep release people.csv --epsilon 1 --delta 1e-6 -o people.dpgep
  dpgep ask people.dpgep
  dpgep ask people.dpgep correlation age weight income
  dpgep ask people.dpgep regression "weight ~ age + income" -o coefficients.csv
  dpgep ask people.dpgep instrumental "income ~ schooling + age | distance + age"
  dpgep ask people.dpgep cca "weight + height ~ visits + income | age"
  dpgep ask people.dpgep means_by "income + age ~ region"
  dpgep ask people.dpgep crosstab sex region
  dpgep ask people.dpgep pca --standardize --n-components 2
  dpgep ask patients.dpgep describe --group ill
  dpgep ask patients.dpgep contrastive_pca --target ill --background well
  dpgep ask people.dpgep sample --rows 1000 -o synthetic.csv
  dpgep ask people.dpgep --html -o explore.html"""

# Arguments on the left and on the right of "~", and after "|"; lists of columns are starred.
_FORMULAS = {
    "regression": ("y", "on*"),
    "regression_path": ("y", "on*"),
    "instrumental": ("y", "on*", "instruments*"),
    "cca": ("x*", "y*", "given*"),
    "pls": ("x*", "y*"),
    "redundancy": ("y*", "x*"),
    "means_by": ("columns*", "category"),
}
# What questions need of which not every release has enough.
_OF_CATEGORIES = {
    "crosstab": "a categorical column",
    "means_by": "a categorical column",
    "famd": "a categorical column",
    "mca": "two categorical columns",
}
# Options that questions take, by the names of their arguments.
_OPTIONS: dict[str, dict[str, Any]] = {
    "level": {"type": float, "metavar": "L", "help": "probability with which each interval holds"},
    "ridge": {"type": float, "metavar": "XI", "help": "of a regression: penalty on squared coefficients"},
    "by": {"metavar": "METHOD", "help": "of a regression_path: lasso, subsets, ...; of a central_subspace: save"},
    "penalty": {"type": float, "metavar": "P", "help": "of a graph"},
    "n_factors": {"type": positive, "metavar": "K", "help": "number of factors"},
    "rotation": {"choices": ("varimax", "promax"), "help": "of factors"},
    "standardize": {"action": "store_const", "const": True, "help": "columns in their deviations"},
    "n_components": {"type": positive, "metavar": "K", "help": "number of components"},
    "sparsity": {"type": positive, "metavar": "S", "help": "at most S columns in a component"},
    "rows": {"type": positive, "metavar": "N", "help": "of a sample: number of synthetic people"},
    "target": {"metavar": "G", "help": "of questions that compare two groups: the one asked about"},
    "background": {"metavar": "G", "help": "and the other"},
}
# Those that are groups of a release by group.
_GROUPS = ("target", "background")
# Names in a formula: in backquotes, or without the signs and spaces that part them.
_TERM = re.compile(r"`([^`]+)`|([^\s~+,`]+)|(~)|[\s+,]+")


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "ask",
        help="Ask a release questions, at no further cost",
        description="Answers from the output of dpgep release: each is post-processing, and costs nothing more.\n"
        "Without a question it says which ones there are. Columns are a list, or a formula: y ~ a + b, and\n"
        "y ~ . for all others; a categorical column stands for its indicators; names with spaces or signs\n"
        "stand in `backquotes`.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("release", type=Path, metavar="RELEASE", help="output of dpgep release ... -o")
    parser.add_argument("question", nargs="?", metavar="QUESTION", help="correlation, regression, pca, ...")
    parser.add_argument("terms", nargs="*", metavar="COLUMN", help="columns, or a formula (default: all columns)")
    for name, how in _OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", **how)
    parser.add_argument("--group", metavar="G", help="of a release by group: ask about its people alone")
    parser.add_argument("--html", action="store_true", help="write a page for a browser, which answers all questions")
    add_output(parser, "OUT", "write the answer's table (CSV), too, or the page")
    parser.set_defaults(run=_ask)


def _ask(options: argparse.Namespace) -> int:
    release: dpgep.Release = loaded(options.release, dpgep.Release, "release")
    if options.group is not None:
        release = release.of_group(_group(release, options.group))
    questions = release._questions()
    if options.html:
        return _write_page(release, options)
    if options.question is None:
        names = release.model.feature_names
        print(f"{release}\ncolumns: {listed(names or range(release.model.n_features), 100)}")
        if release._noisy.by_group:
            print(f"groups, for --group: {listed(release._group_labels, 100)}")
        return 0
    question = options.question
    if question not in questions and release._noisy.mark is not None and hasattr(release, question):
        raise UsageError(f"{question} is not known of a release with --missing pairwise: use --missing center")
    if question in _OF_CATEGORIES and question not in questions:
        found = f"{_OF_CATEGORIES[question]}, and this release has {listed(list(release._categories)) or 'none'}"
        raise UsageError(f"{question} needs {found}: declare them with dpgep release --categories COLUMN=A,B")
    if question not in questions:
        raise UsageError(f"no question {question!r}{did_you_mean(question, questions)}; there are {listed(questions)}")
    method = {"mean": _mean, "sample": _sample}.get(question) or getattr(type(release), question)
    arguments = _arguments(question, _sides(options.terms, release.model.feature_names))
    arguments |= _settings(release, question, method, options)

    def answered() -> Any:
        answer = method(release, **arguments)
        print(answer)
        return answer

    written(options, answered, partial(_table, question), [options.release])
    return 0


def _table(question: str, answer: Any) -> bytes:
    if not hasattr(answer, "to_frame") and not hasattr(answer, "to_csv"):
        raise UsageError(f"-o: the answer to {question} is no table; it is printed alone")
    table = answer.to_frame() if hasattr(answer, "to_frame") else answer
    return bytes(table.to_csv(lineterminator="\n").encode())


def _mean(release: dpgep.Release, columns: Any = None) -> Any:
    """The means of columns, by name."""
    numbers = release._numbers(columns)
    means = [date(x) if j in release.model._dates else x for j, x in zip(numbers, release.mean(numbers), strict=True)]
    return import_extra("pandas", "pandas").DataFrame({"mean": means}, release._names_of(numbers) or numbers.tolist())


def _sample(release: dpgep.Release, columns: Any = None, *, rows: int | None = None) -> Any:
    """Synthetic people; of classes, with the class of each as a last column."""
    if rows is None:
        raise UsageError("sample needs --rows N")
    found = release.sample(rows, columns=columns)
    people, labels = found if isinstance(found, tuple) else (found, None)
    table = import_extra("pandas", "pandas").DataFrame(people)
    return table if labels is None else table.assign(**{"class": labels})


def _write_page(release: dpgep.Release, options: argparse.Namespace) -> int:
    if options.output is None or options.question is not None:
        raise UsageError("--html needs -o FILE, and no question: the page answers all of them")
    level = {} if options.level is None else {"level": options.level}
    written(options, lambda: saved(partial(release.to_html, **level)), bytes, [options.release])
    return 0


def _group(release: dpgep.Release, text: str) -> Any:
    """The class, or number of a slice, that prints as this text."""
    return next((label for label in release._group_labels if str(label) == text), text)


def _sides(words: Sequence[str], names: Sequence[str] | None) -> list[list[str | int]]:
    """The columns on each side of "~" and of "|"; a word that is a name stands for it, whatever signs it has."""
    sides: list[list[str | int]] = [[]]
    for word in words:
        if names and word in names:
            sides[-1].append(word)
            continue
        # a shell replaces a "~" that stands alone
        for quoted, plain, tilde in _TERM.findall("~" if word == os.path.expanduser("~") else word):
            if tilde or plain == "|":
                sides.append([])
            elif quoted or plain:
                sides[-1].append(quoted or (int(plain) if names is None and plain.isdecimal() else plain))
    return sides


def _arguments(question: str, sides: list[list[str | int]]) -> dict[str, Any]:
    """The columns as arguments of the question."""
    if question not in _FORMULAS:
        if len(sides) > 1:
            raise UsageError(f"{question} is about a list of columns, without ~")
        if question != "crosstab":
            return {"columns": sides[0]} if sides[0] else {}
        if len(sides[0]) not in (1, 2):
            raise UsageError(f"{question} is of one or two categorical columns, got {listed(sides[0]) or 'none'}")
        return dict(zip("ab", sides[0], strict=False))
    form = _FORMULAS[question]
    if len(sides) not in (len(form), len(form) - (question == "cca")) or not all(sides):  # of which "|" is a choice
        example = "a ~ b + c" if len(form) == 2 else "a ~ b + c | d + c"
        raise UsageError(f'{question} needs a formula with columns on all sides, as "{example}"')
    found: dict[str, Any] = {}
    for name, side, where in zip(form, sides, ("left", "right", "right"), strict=False):
        if name.endswith("*"):
            found[name[:-1]] = None if side == ["."] else side
        elif len(side) > 1:
            raise UsageError(f"{question} takes one column on the {where} of ~, got {listed(side)}")
        else:
            found[name] = side[0]
    return found


def _settings(release: dpgep.Release, question: str, method: Any, options: argparse.Namespace) -> dict[str, Any]:
    """The options that were given. UsageError for those that the question does not take."""
    known = inspect.signature(method).parameters
    found = {}
    for name in _OPTIONS:
        value = getattr(options, name)
        if value is None:
            continue
        if name not in known and "options" not in known:
            raise UsageError(f"{question} takes no --{name.replace('_', '-')}")
        found[name] = _group(release, value) if name in _GROUPS else value
    missing = [f"--{name}" for name in _GROUPS if name in known and name not in found]
    if missing:
        raise UsageError(f"{question} needs {' and '.join(missing)}")
    return found
