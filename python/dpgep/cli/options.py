"""Options of the commands: kinds of values, and options that several commands have, or whose help is long."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable
from typing import Any


def positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1; got {text!r}")
    return value


def counts(text: str) -> int | tuple[int, ...]:
    """A number, or several with commas between them."""
    first, *others = map(positive, words(text))
    return (first, *others) if others else first


def words(text: str) -> list[str]:
    """Words with commas between them; a word that holds a comma stands in double quotes."""
    found = [word.strip() for word in next(csv.reader([text], skipinitialspace=True))] if text else []
    if not all(found) or not found:
        raise argparse.ArgumentTypeError(f"must be words with commas between them, as a,b,c; got {text!r}")
    return found


def numbers(text: str) -> list[float]:
    try:
        return [float(word) for word in words(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be numbers with commas between them, as 1,2.5; got {text!r}") from None


def interval(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    if not (colon and ends[0] < ends[1]):
        raise argparse.ArgumentTypeError(f"must be low:high, as 0:120; got {text!r}")
    return ends


def or_auto(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """The kind of an argument that is "auto" or of this kind."""
    return lambda text: text if text == "auto" else kind(text)


def _takes(kind: Callable[[str], Any], metavar: str, help: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "metavar": metavar, "help": help, **more}


# Options by their names, as argparse takes them.
_OPTIONS: dict[str, dict[str, Any]] = {
    "adjacency": {
        "choices": ("replace-one", "add-remove"),
        "help": "which data sets the guarantee compares: replace-one, where the number of people is public (default, "
        "unless the budget says otherwise), or add-remove, where it is protected",
    },
    "alpha": _takes(float, "X", "how much the background counts, from 0 on (default: 1)", default=1.0),
    "background": _takes(str, "B", "that of the group to compare it with", required=True),
    "bound": _takes(
        or_auto(float), "NUMBER", "clip longer rows to this norm (default: auto, estimated privately)", default="auto"
    ),
    "by-group": {"action": "store_true", "help": "release the second moment of each group by itself"},
    "categories": {
        "action": "append", "default": [], "metavar": "COLUMN=A,B",
        "help": "public categories of a column of text, which becomes indicators, or a JSON file of them; repeatable",
    },
    "classes": _takes(words, "A,B", "the public classes; others are left out"),
    "columns": _takes(words, "A,B", "columns to use (default: all)"),
    "dates": _takes(words, "A,B", "columns of dates: days since 1970", default=[]),
    "delta": {"type": float, "help": "well below one over the number of people, as 1e-6"},
    "edges": _takes(numbers, "A,B,C", "instead: public edges of the slices"),
    "epsilon": {"type": float, "help": "with --delta: (epsilon, delta)-differential privacy"},
    "exclude": _takes(words, "A,B", "columns to leave out", default=[]),
    "filter": _takes(
        str, "EXPR", "use only rows where this holds, as \"age >= 18 and region == 'north'\"; needs --adjacency "
        "add-remove, since their number depends on people",
    ),
    "labels": _takes(str, "COLUMN", "each person's class, or group"),
    "largest-weight": _takes(float, "W", "public: larger weights count as this"),
    "missing": {
        "choices": ("error", "center", "pairwise"), "default": "error",
        "help": "center: missing values count as the location of their column; pairwise: covariances are over the "
        "people who have both columns (default: refuse them)",
    },
    "mu": {"type": float, "help": "Gaussian differential privacy, in place of epsilon and delta"},
    "no-center": {"dest": "center", "action": "store_false", "help": "moments about zero"},
    "person": _takes(str, "COLUMN", "ids of people, where they have several rows"),
    "quartiles": _takes(float, "S", "share of mu^2 for histograms from which dpgep ask ... describe has quartiles"),
    "quiet": {"action": "store_true", "help": "no list of features, no progress bar"},
    "ranges": {
        "action": "append", "default": [], "metavar": "A=LOW:HIGH,...",
        "help": "public ranges of columns, or a JSON file of them; they make an automatic bound cheaper",
    },
    "response": _takes(str, "COLUMN", "column to explain"),
    "rows": _takes(positive, "N", "with --person: rows that count alike (default: 1)"),
    "slices": _takes(positive, "N", "slices of the range (default: 10)"),
    "standardize": {"action": "store_true", "help": "divide columns by their deviations: usual"},
    "target": _takes(str, "A", "the public label of the group of interest", required=True),
    "threads": _takes(positive, "N", "most threads (default: all processors)"),
    "view": _takes(
        words, "A,B", "columns of a view; given once for each view, two times or more", dest="views", action="append",
        required=True,
    ),
    "weights": _takes(str, "COLUMN", "weights of a survey"),
    "x-columns": _takes(words, "A,B", "columns of the first view", required=True),
    "y-columns": _takes(words, "C,D", "columns of the second view", required=True),
    "y-range": _takes(interval, "LOW:HIGH", "the public range of the response; below 0, --y-range=-5:5"),
}  # fmt: skip


def add_options(parser: Any, *names: str, **changed: Any) -> None:
    """Options of these names, of which something may be different here."""
    for name in names:
        parser.add_argument(f"--{name}", **{**_OPTIONS[name], **changed})
