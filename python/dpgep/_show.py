"""How records print: a line, however much they hold, and tables for notebooks."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

# this many entries of an array or tuple are printed; of more, their number
_FEW = 6
_LONGEST = 60
# Days from 1970 within which a number is a date.
_MOST_DAYS = 700_000
# Colours of pictures in notebooks, light and dark: positive, negative, and where zero is.
_PLUS, _MINUS, _MARK = "#0072B2", "#D55E00", "#767676"


class Shown:
    """A dataclass (``repr=False``) that prints on one line: large arrays by their shapes."""

    def __repr__(self) -> str:
        fields = [field for field in dataclasses.fields(self) if field.repr]  # type: ignore[arg-type]
        parts = [(field.name, getattr(self, field.name)) for field in fields]
        shown = [f"{name}={short(value)}" for name, value in parts if value is not None]
        return f"{type(self).__name__}({', '.join(shown)})"


def short(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return short(tuple(value.tolist())) if value.ndim == 1 and value.size <= _FEW else f"array {value.shape}"
    if isinstance(value, tuple):
        entries = [short(entry) for entry in value[:_FEW]] + [f"... {len(value)} entries"] * (len(value) > _FEW)
        return f"({', '.join(entries)}{',' if len(value) == 1 else ''})"
    if isinstance(value, (float, np.floating)):
        return f"{value:.4g}"
    text = repr(value)
    return text if dataclasses.is_dataclass(value) or len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table of texts, columns aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(f"{text:>{width}}" for text, width in zip(row, widths, strict=True)) for row in rows]


def with_intervals(values: Any, low: Any, high: Any, form: str, dates: Container[int] = ()) -> list[str]:
    """Numbers, each with its interval in brackets, in a format; as dates at the places of ``dates``."""
    rows = enumerate(zip(*(np.asarray(each).tolist() for each in (values, low, high)), strict=True))
    return ["{} [{}, {}]".format(*(date(x) if place in dates else f"{x:{form}}" for x in each)) for place, each in rows]


def date(days: float) -> str:
    """The date of days since 1970; the number where that is no date of our millennia."""
    return str(np.datetime64(math.floor(days), "D")) if abs(days) < _MOST_DAYS else f"{days:.4g}"


def escaped(text: str) -> str:
    """A text on one line in which nothing is a mark of Markdown, or HTML."""
    plain = re.sub(r"\s+", " ", text)
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", plain)


class Picture(str):
    """A piece of HTML that is no text: `html_table` leaves it as it is."""


def html_table(rows: Iterable[Sequence[str]], heading: Sequence[str] = ()) -> str:
    """A small table of escaped texts, in the notebook's style; without a heading the first column names the others."""
    from html import escape  # slow to import

    head = "".join(f"<th>{escape(text)}</th>" for text in heading)
    first = "td" if heading else "th"
    body = "".join(
        f"<tr><{first}>{escape(row[0])}</{first}>"
        + "".join(f"<td>{text if isinstance(text, Picture) else escape(text)}</td>" for text in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if heading else ''}<tbody>{body}</tbody></table>"


def interval_picture(value: float, low: float, high: float, least: float, most: float, mark: float = 0.0) -> Picture:
    """A value as a dot, its interval as a line, and a mark, between ``least`` and ``most``; nothing of no numbers."""
    if not (np.isfinite([value, low, high, least, most]).all() and most > least):
        return Picture("")
    dot, first, last, at = (
        3 + 114 * (min(max(x, least), most) - least) / (most - least) for x in (value, low, high, mark)
    )
    return Picture(
        f'<svg width="120" height="14" role="img" aria-label="{value:.4g}, interval {low:.4g} to {high:.4g}">'
        f'<path d="M{at:.1f} 0V14" stroke="{_MARK}"/>'
        f'<path d="M{first:.1f} 7H{last:.1f}" stroke="{_PLUS}" stroke-width="3"/>'
        f'<circle cx="{dot:.1f}" cy="7" r="3" fill="{_PLUS}"/></svg>'
    )


def heat_map(values: Any, labels: Sequence[str]) -> Picture:
    """A symmetric matrix of numbers from -1 to 1 as cells, blue where positive, with names that show on pointing."""
    from html import escape

    d, unit = len(labels), max(min(360 // len(labels), 24), 3)
    cells = [
        f'<rect x="{unit * j}" y="{unit * i}" width="{unit}" height="{unit}" '
        f'fill="{_PLUS if value > 0 else _MINUS}" fill-opacity="{min(abs(value), 1.0):.2f}">'
        f"<title>{escape(labels[i])}, {escape(labels[j])}: {value:.3g}</title></rect>"
        for i, row in enumerate(np.asarray(values).tolist())
        for j, value in enumerate(row)
    ]
    size = unit * d
    return Picture(f'<svg width="{size}" height="{size}" role="img" aria-label="heat map">{"".join(cells)}</svg>')
