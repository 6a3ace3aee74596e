"""Sections of a report as an HTML page or as Markdown: the same sentences and rows in both.

The page stands alone: no script, nothing loaded, light and dark, for screens of any width and for paper.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from dpgep.privacy.ledger import Row


@dataclass(frozen=True)
class Section:
    """A part of a report: a text, items of a list, and rows of a table.

    Attributes
    ----------
    heading : of the table; without one, its first column names the second.
    numbers : columns of the table that are numbers.
    is_main, is_warning : whether the text is what readers came for, and whether it is bad news.
    curve, mark : points (epsilon, delta) to be drawn on a page, and one of them to be marked.
    """

    title: str
    text: str = ""
    items: Sequence[str] = ()
    heading: Sequence[str] = ()
    rows: Sequence[Row] = ()
    numbers: Sequence[int] = ()
    is_main: bool = False
    is_warning: bool = False
    curve: Sequence[tuple[float, float]] = ()
    mark: tuple[float, float] | None = None


def to_html(title: str, sections: Sequence[Section]) -> str:
    """The page; every text is escaped."""
    template = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), sections="\n".join(map(_section, sections)))


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Markdown with tables as GitHub reads them; marks in texts are escaped."""
    parts = [f"# {escaped(title)}"]
    for section in sections:
        lines = [section.heading or ["", ""], ["---"] * len(section.rows[0])] if section.rows else []
        lines += [[escaped(cell) for cell in row] for row in section.rows]
        parts += [f"## {section.title}"] if section.title else []
        parts += [escaped(section.text), "\n".join(f"- {escaped(item)}" for item in section.items)]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(filter(None, parts)) + "\n"


def escaped(text: str) -> str:
    """A text on one line in which nothing is a mark of Markdown, or HTML."""
    plain = re.sub(r"\s+", " ", text)
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", plain)


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>"] if section.title else []
    if section.text:
        kind = "warn" if section.is_warning else "" if section.is_main else "soft"
        text = f'<p class="{kind}">{_text(section.text)}</p>'
        parts.append(f'<div class="card">{text}</div>' if section.is_main else text)
    if section.items:
        parts.append("<ul>\n" + "\n".join(f"<li>{_text(item)}</li>" for item in section.items) + "\n</ul>")
    if section.rows:
        table = _table(section)
        parts.append(f'<div class="curve">{_picture(section)}{table}</div>' if section.curve else table)
    return "\n".join(parts)


def _table(section: Section) -> str:
    """The table of a section; cells know their heading, for narrow screens."""
    if not section.heading:
        body = "\n".join(f"<tr><th>{escape(name)}</th><td>{_text(text)}</td></tr>" for name, text in section.rows)
        return f"<table><tbody>\n{body}\n</tbody></table>"
    kinds = ['class="number"' if i in section.numbers else "" for i in range(len(section.heading))]
    cells = [f'{kind} data-name="{escape(name)}"' for kind, name in zip(kinds, section.heading, strict=True)]
    head = "".join(f"<th {kind}>{escape(name)}</th>" for kind, name in zip(kinds, section.heading, strict=True))
    rows = ([f"<td {of}>{_text(text)}</td>" for of, text in zip(cells, row, strict=True)] for row in section.rows)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    wide = ' class="wide"' if len(section.heading) > 2 else ""
    return f"<table{wide}><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>"


def _text(text: str) -> str:
    """A sentence, escaped, in which no number is broken across lines."""
    return re.sub(r"[\d.]+e-\d+", r'<span class="whole">\g<0></span>', escape(text)).replace(" %", "&nbsp;%")


# the picture: a frame within a box, delta from 1 down to where it hardly matters
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 260, 52, 12, 26, 40
_LEAST = 1e-16


def _picture(section: Section) -> str:
    """The curve as an inline picture: delta, on a scale of logarithms, against epsilon."""
    most = section.curve[-1][0]
    decades = min(16, max(1, math.ceil(-math.log10(max(section.curve[-1][1], _LEAST)))))

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
    points = " ".join(f"{x(epsilon):.1f},{y(delta):.1f}" for epsilon, delta in section.curve if delta >= _LEAST)
    mark = ""
    if section.mark is not None:
        epsilon, delta = section.mark
        mark = f'<circle cx="{x(epsilon):.1f}" cy="{y(delta):.1f}" r="4" fill="var(--mark)"/>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="delta against epsilon">{"".join(lines)}'
        f'<polyline points="{points}" fill="none" stroke="var(--mark)" stroke-width="2"/>{mark}'
        f'<text x="{(_WIDTH + _LEFT) / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">epsilon</text>'
        f'<text x="{_LEFT - 6}" y="12" text-anchor="end">delta</text></svg>'
    )
