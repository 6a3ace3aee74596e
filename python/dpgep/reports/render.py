"""A report as an HTML page or as Markdown: the same rows and sentences in both.

The page stands alone: no script, nothing loaded, light and dark, for screens of any width and for paper.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from dpgep.privacy.ledger import LEDGER, Row, up

_CURVE = ("epsilon", "delta, at most")


@dataclass(frozen=True)
class Sheet:
    """What a report shows, as texts: rows of names and texts, sentences, points of the curve, rows of `LEDGER`."""

    dataset: str | None
    about: Sequence[tuple[str, str]]
    parameters: Sequence[tuple[str, str]]
    statement: str
    is_weak: bool
    risks: Sequence[str]
    curve: Sequence[tuple[float, float]]
    stated: tuple[float, float] | None
    assumptions: Sequence[str]
    ledger: Sequence[Row]
    sha256: str
    dpgep: str

    @property
    def curve_rows(self) -> list[Row]:
        """Every second point of the curve, rounded up."""
        return [(up(epsilon), up(delta, 3)) for epsilon, delta in self.curve[::2]]


def to_html(sheet: Sheet) -> str:
    """The page; every text from outside is escaped."""
    template = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape("Privacy report" + (f": {sheet.dataset}" if sheet.dataset else "")),
        about=_pairs(sheet.about),
        strength="warn" if sheet.is_weak else "",
        statement=_text(sheet.statement),
        parameters=_pairs(sheet.parameters),
        risks=_items(sheet.risks),
        curve=_curve(sheet),
        assumptions=_items(sheet.assumptions),
        ledger=_table(LEDGER, sheet.ledger, numbers=(1, 2)),
        version=escape(sheet.dpgep),
        sha256=sheet.sha256,
    )


def to_markdown(sheet: Sheet) -> str:
    """Markdown with tables as GitHub reads them; marks in texts from outside are escaped."""
    parts = ["# Privacy report", escaped(sheet.statement), _columns(["", ""], [*sheet.about, *sheet.parameters])]
    parts += ["## Risk of an attack", _list(sheet.risks)]
    if sheet.curve:
        parts += ["## Epsilon and delta", _columns(_CURVE, sheet.curve_rows)]
    parts += ["## What is taken for granted", _list(sheet.assumptions)]
    parts += ["## Ledger", _columns(LEDGER, sheet.ledger)]
    parts += [
        "## Signature",
        f"SHA-256 of the report's JSON form: `{sheet.sha256}` (`dpgep report verify FILE`). It shows that nothing "
        "was changed, not who wrote the report.",
        f"Written by dpgep {escaped(sheet.dpgep)}.",
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """A text on one line in which nothing is a mark of Markdown, or HTML."""
    plain = re.sub(r"\s+", " ", text)
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", plain)


def _list(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(each)}" for each in texts)


def _columns(heading: Sequence[str], rows: Iterable[Row]) -> str:
    lines = [heading, ["---"] * len(heading), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table(heading: Sequence[str], rows: Iterable[Row], numbers: Sequence[int] = ()) -> str:
    """A table of escaped texts; columns of ``numbers`` are aligned to the right. Cells know their heading."""
    kinds = ['class="number"' if i in numbers else "" for i in range(len(heading))]
    names = [f'data-name="{escape(text)}"' for text in heading]
    head = "".join(f"<th {kind}>{escape(text)}</th>" for text, kind in zip(heading, kinds, strict=True))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td {kind} {of}>{_text(text)}</td>" for text, kind, of in zip(row, kinds, names, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"


def _pairs(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and escaped texts, without a heading."""
    body = "\n".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table><tbody>\n{body}\n</tbody></table>"


def _text(text: str) -> str:
    """A sentence, escaped, in which no number is broken across lines."""
    return re.sub(r"[\d.]+e-\d+", r'<span class="whole">\g<0></span>', escape(text)).replace(" %", "&nbsp;%")


def _items(texts: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{_text(text)}</li>" for text in texts) + "\n</ul>"


def _curve(sheet: Sheet) -> str:
    if not sheet.curve:
        return ""
    rows = _table(_CURVE, sheet.curve_rows, numbers=(0, 1))
    return f'<h2>Epsilon and delta</h2>\n<div class="curve">{_picture(sheet)}{rows}</div>\n'


# the picture: a frame within a box, delta from 1 down to where it hardly matters
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 260, 52, 12, 26, 40
_LEAST = 1e-16


def _picture(sheet: Sheet) -> str:
    """The curve as an inline picture: delta, on a scale of logarithms, against epsilon."""
    most = sheet.curve[-1][0]
    decades = min(16, max(1, math.ceil(-math.log10(max(sheet.curve[-1][1], _LEAST)))))

    def x(epsilon: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * epsilon / most

    def y(delta: float) -> float:
        depth = min(-math.log10(max(delta, _LEAST)), decades)
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * depth / decades

    lines, step = [], max(1, math.ceil(decades / 6))
    for decade in range(0, decades + 1, step):
        height, label = y(10.0**-decade), "1" if decade == 0 else f"1e-{decade}"
        lines.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height:.1f}" y2="{height:.1f}" stroke="var(--line)"/>'
        )
        lines.append(f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{label}</text>')
    for quarter in range(5):
        epsilon = most * quarter / 4
        lines.append(f'<text x="{x(epsilon):.1f}" y="{_HEIGHT - 22}" text-anchor="middle">{epsilon:.3g}</text>')
    points = " ".join(f"{x(epsilon):.1f},{y(delta):.1f}" for epsilon, delta in sheet.curve if delta >= _LEAST)
    mark = ""
    if sheet.stated is not None:
        epsilon, delta = sheet.stated
        mark = f'<circle cx="{x(epsilon):.1f}" cy="{y(delta):.1f}" r="4" fill="var(--mark)"/>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="delta against epsilon">{"".join(lines)}'
        f'<polyline points="{points}" fill="none" stroke="var(--mark)" stroke-width="2"/>{mark}'
        f'<text x="{(_WIDTH + _LEFT) / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">epsilon</text>'
        f'<text x="{_LEFT - 6}" y="12" text-anchor="end">delta</text></svg>'
    )
