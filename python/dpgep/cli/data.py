"""Arguments about data, and the data they stand for: files, rows that count, columns and what they hold."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Hashable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dpgep
from dpgep._checks import did_you_mean
from dpgep.cli.command import ONE_VALUE, UsageError, usage
from dpgep.cli.options import add_options, interval, words
from dpgep.sources import Selection
from dpgep.sources.encoding import declared_categories, is_date_type
from dpgep.sources.files import CsvFiles
from dpgep.sources.names import identifies, listed

_DAY = 86400.0


def add_data(parser: argparse.ArgumentParser) -> None:
    """DATA, and which rows and values of it count."""
    files = "files of CSV, Parquet, Arrow, NPY or NPZ, folders, or patterns in quotes ('visits-*.csv')"
    parser.add_argument("data", nargs="+", metavar="DATA", help=f"{files}; one row per person")
    add_options(parser, "categories", "dates", "filter")


class Data:
    """What DATA stands for, opened but not read."""

    def __init__(
        self,
        paths: Sequence[str],
        *,
        categories: dict[str, list[str]] | None = None,
        dates: Sequence[str] = (),
        filter: str | None = None,
        progress: bool | None = None,
    ) -> None:
        declared = categories or {}
        for path in paths if declared else ():
            if "=" in path and not re.search(r"[*?[]|://", path) and not os.path.exists(path):
                raise UsageError(f"there is no file or folder {path!r} ({ONE_VALUE})")
        with usage():
            first = dpgep.scan(list(paths)).source
            #: names of the columns of a table, in order; None for one array
            self.columns = None if first.columns is None else [str(name) for name in first.columns]
            self.types = {str(name): kind for name, kind in first.types.items()}
            for name in (*declared, *dates):
                self.key(name)
            texts = isinstance(first, CsvFiles)  # which reads a column as text if its categories are
            self._categories = {
                name: values if texts else typed(values, self.types.get(name)) for name, values in declared.items()
            }
            #: columns that are text because of values in them, not because anyone says so
            self.found_text = first.found_text.difference(declared) if isinstance(first, CsvFiles) else frozenset()
            self.dates = list(dates)
            how: Any = {"categories": self._categories or None, "dates": self.dates or None}
            self.scan = dpgep.scan(list(paths), filter=filter, progress=progress, **how)

    def key(self, name: str) -> str | int:
        """The name of a column that is there; of an array, its number."""
        if self.columns is not None:
            if name not in self.columns:
                meant = did_you_mean(name, self.columns)
                raise UsageError(f"no column {name!r}{meant}; there are {listed(self.columns)}")
            return name
        if not name.isdigit():
            raise UsageError(f"an array has no column {name!r}: give numbers, from 0")
        return int(name)

    def matrix(self, columns: Sequence[str] | None, without: Sequence[str] = ()) -> Selection:
        """The columns, by default all but some, as the rows of people."""
        if self.columns is None:
            if without:
                raise UsageError("--exclude is for columns with names: give the numbers of those that count")
            with usage():
                return self.scan[list(map(self.key, columns))] if columns else self.scan[:]
        for name in (*without, *(columns or ())):
            self.key(name)
        names = columns or [name for name in self.columns if name not in without]
        if not names:
            raise UsageError("no columns are left")
        self._require_numbers(names)
        with usage():
            key: Any = list(names)
            if len(names) == 1 and names[0] not in (*self._categories, *self.dates):
                single = self.scan[names[0]]
                key = names[0] if single.n_columns is not None else key  # a matrix of its own
            return self.scan[key]

    def vector(self, name: str) -> Selection:
        with usage():
            return self.scan[self.key(name)]

    def _require_numbers(self, names: Sequence[str]) -> None:
        problems = []
        for name in names:
            kind = self.types.get(name)
            if kind is None or name in self._categories or name in self.dates:
                continue
            if identifies(name):
                problems.append(f"column {name!r} seems to say whose each row is (--person {name})")
            elif is_date_type(kind):
                problems.append(f"column {name!r} holds dates (--dates {name} counts days)")
            elif "string" in str(kind) or "dictionary" in str(kind) or declared_categories(kind) == ():
                problems.append(f"column {name!r} holds text (--categories {name}=A,B makes indicators)")
            elif str(kind).startswith(("time", "duration", "binary")):
                problems.append(f"column {name!r} ({kind}) holds no numbers")
        if problems:
            is_text = any(" holds text " in each for each in problems)
            whose = "; --person takes a column that says whose each row is" if is_text else ""
            advice = "or leave them out with --exclude, or name others in --columns"
            raise UsageError(f"{'; '.join(problems)}; {advice}{whose}")


def open_data(options: argparse.Namespace) -> Data:
    how: Any = {"categories": _categories(options.categories), "progress": False if options.quiet else None}
    return Data(options.data, dates=options.dates, filter=options.filter, **how)


def ranges_of(given: Sequence[str], data: Data) -> dict[str | int, tuple[float, float]]:
    """``--ranges``: a=0:120,b=1:5, those of dates as dates, or JSON files, {"a": [0, 120]}."""
    found: dict[str | int, tuple[float, float]] = {}
    for text in given:
        if "=" not in text:
            pairs = _json(text, "--ranges").items()
        else:
            pairs = {name: ends for name, _, ends in (word.rpartition("=") for word in words(text))}.items()
        for name, ends in pairs:
            found[data.key(name)] = _range(name, ends, is_date=name in data.dates)
    return found


def typed(values: Sequence[str], kind: Any) -> list[Hashable]:
    """Words as values of a column of this type: numbers, true and false, or text."""
    name = str(kind).lower()
    if name.startswith("bool"):
        if not {word.lower() for word in values} <= {"true", "false"}:
            raise UsageError(f"a column of booleans holds true and false, not {', '.join(values)}")
        return [word.lower() == "true" for word in values]
    if name.startswith(("int", "uint", "float", "double", "halffloat", "decimal")):
        try:
            return [int(word) if word.lstrip("+-").isdigit() else float(word) for word in values]
        except ValueError:
            raise UsageError(f"a column of numbers ({kind}) holds no such values: {', '.join(values)}") from None
    return list(values)


def is_text_alone(values: Sequence[str]) -> bool:
    """Whether a column of numbers, or of true and false, could not hold these words."""
    for kind in ("double", "bool"):
        try:
            typed(values, kind)
        except UsageError:
            continue
        return False
    return True


def _categories(given: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, Any] = {}
    for text in given:
        name, equals, values = text.partition("=")
        try:
            found.update({name: words(values)} if equals else _json(text, "--categories"))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--categories {text}: {error}") from None
    for name, each in found.items():
        if not isinstance(each, list) or not each:
            raise UsageError(f"--categories: those of {name!r} must be a list, got {each!r}")
        found[name] = [value if isinstance(value, str) else json.dumps(value) for value in each]
    return found


def _json(path: str, option: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(f"{option} takes COLUMN=... or a JSON file; {path!r} is neither") from None
    if not isinstance(found, dict):
        raise UsageError(f'{option}: {path} must hold an object, as {{"age": ...}}')
    return found


def _range(name: str, ends: Any, *, is_date: bool) -> tuple[float, float]:
    try:
        if isinstance(ends, str) and is_date:
            low, colon, high = ends.partition(":")
            ends = [low, high] if colon else ()
        if isinstance(ends, str):
            return interval(ends)
        first, last = ((_days(end) if is_date and isinstance(end, str) else float(end)) for end in ends)
        return first, last
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        shown = "2000-01-01:2030-12-31" if is_date else "0:120"
        raise UsageError(f"--ranges: that of {name!r} must be low:high, as {shown}; got {ends!r}") from None


def _days(text: str) -> float:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=found.tzinfo or timezone.utc).timestamp() / _DAY
