"""How records print: a line, however much they hold, and tables for notebooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

# this many entries of an array or tuple are printed; of more, their number
_FEW = 6
_LONGEST = 60


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


def with_intervals(values: Any, low: Any, high: Any, form: str) -> list[str]:
    """Numbers, each with its interval in brackets, in a format."""
    ends = zip(*(np.asarray(each).tolist() for each in (values, low, high)), strict=True)
    return [f"{value:{form}} [{first:{form}}, {last:{form}}]" for value, first, last in ends]


def html_table(rows: Iterable[Sequence[str]], heading: Sequence[str] = ()) -> str:
    """A small table of escaped texts, in the notebook's style; without a heading the first column names the others."""
    from html import escape  # slow to import

    head = "".join(f"<th>{escape(text)}</th>" for text in heading)
    first = "td" if heading else "th"
    body = "".join(
        f"<tr><{first}>{escape(row[0])}</{first}>" + "".join(f"<td>{escape(text)}</td>" for text in row[1:]) + "</tr>"
        for row in rows
    )
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if heading else ''}<tbody>{body}</tbody></table>"
