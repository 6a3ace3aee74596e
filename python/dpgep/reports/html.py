"""A report as one HTML page: no script, nothing loaded, light and dark, for screens of any width and for paper."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from html import escape

from dpgep.reports.document import ReportDocument
from dpgep.reports.tables import LEDGER, Row, curve_rows, key_rows, ledger_rows
from dpgep.reports.words import assumptions, risk_sentences, statement

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --page: #ffffff; --card: #f6f8fa;
  --mark: #0b5cad; --warn: #9a3412; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa4af; --line: #373e47; --page: #0f1318;
  --card: #181e25; --mark: #6cb6ff; --warn: #ffa657; } }
* { box-sizing: border-box; }
body { margin: 0; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 54rem; margin: 0 auto; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line); }
p, ul { margin: .5rem 0; } ul { padding-left: 1.25rem; } li { margin: .25rem 0; }
.whole { white-space: nowrap; } .soft { color: var(--soft); } .warn { color: var(--warn); font-weight: 600; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tbody th { font-weight: 600; width: 11rem; }
code { font: .85em/1.4 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
.curve { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 1.5rem; align-items: start; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 12px; }
.sign { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1.5rem; margin-top: 3rem; }
.sign div { border-top: 1px solid var(--ink); padding-top: .25rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 40rem) { .curve, .sign { grid-template-columns: minmax(0, 1fr); } .sign { gap: 3rem; }
  tbody th { width: 7.5rem; } .ledger thead { display: none; } .ledger tr { display: block; padding: .4rem 0; }
  .ledger tr { border-bottom: 1px solid var(--line); }
  .ledger td { display: block; padding: 0; border: 0; text-align: left; white-space: normal; }
  .ledger td:first-child { font-weight: 600; }
  .ledger td:not(:first-child)::before { content: attr(data-name) ": "; color: var(--soft); } }
@media print { body { padding: 0; font-size: 10pt; } h2 { break-after: avoid; }
  .card, svg, tr, .sign { break-inside: avoid; } }
"""


def page(document: ReportDocument) -> str:
    """The page of a document; every text from outside is escaped, and no sentence is taken from outside."""
    report, risk = document.privacy, document.risk
    about = [("Data set", document.dataset), ("Purpose", document.purpose), ("Date", document.date)]
    title = "Privacy report" + (f": {document.dataset}" if document.dataset else "")
    rows = [(name, text) for name, text in about if text is not None]
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>Privacy report</h1>
{pairs_table(rows)}
<h2>Guarantee</h2>
<div class="card"><p{' class="warn"' if _is_weak(document) else ""}>{_text(statement(report))}</p></div>
{pairs_table(key_rows(report))}
<h2>Risk of an attack</h2>
{_items(risk_sentences(report, risk.advantage, risk.false_positive_rate, risk.true_positive_rate))}
{_curve(document)}<h2>What is taken for granted</h2>
{_items(assumptions(report))}
<h2>Ledger</h2>
<p class="soft">Everything that was released, in order, and what it cost, as a share of mu&sup2; and as mu.</p>
<div class="ledger">{table(LEDGER, ledger_rows(report.releases, report.mu), numbers=(1, 2))}</div>
<h2>Signature</h2>
<p>SHA-256 of the report, written by dpgep {escape(document.dpgep)}: <code>{document.sha256}</code></p>
<p class="soft">The hash names the report's JSON form. <code>dpgep report verify FILE</code> recomputes it, and every
number above from the ledger. It shows that nothing was changed since; not who wrote the report, nor that the releases
took place as listed: that is what a signature is for.</p>
<div class="sign"><div>Name</div><div>Place and date</div><div>Signature</div></div>
</main>
</body>
</html>
"""


def table(heading: Sequence[str], rows: Iterable[Row], numbers: Sequence[int] = ()) -> str:
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


def pairs_table(rows: Iterable[tuple[str, str]]) -> str:
    """A table of names and escaped texts, without a heading."""
    body = "\n".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f"<table><tbody>\n{body}\n</tbody></table>"


def _text(text: str) -> str:
    """A sentence, escaped, in which no number is broken across lines."""
    return re.sub(r"[\d.]+e-\d+", r'<span class="whole">\g<0></span>', escape(text)).replace(" %", "&nbsp;%")


def _items(texts: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{_text(text)}</li>" for text in texts) + "\n</ul>"


def _is_weak(document: ReportDocument) -> bool:
    report = document.privacy
    return report.seeded or (report.mu is not None and math.isinf(report.mu))


def _curve(document: ReportDocument) -> str:
    if not document.curve:
        return ""
    rows = table(["epsilon", "delta, at most"], curve_rows(document.curve), numbers=(0, 1))
    return f'<h2>Epsilon and delta</h2>\n<div class="curve">{_picture(document)}{rows}</div>\n'


# the picture: a frame within a box, delta from 1 down to where it hardly matters
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 420, 260, 52, 12, 26, 40
_LEAST = 1e-16


def _picture(document: ReportDocument) -> str:
    """The curve as an inline picture: delta, on a scale of logarithms, against epsilon."""
    most = document.curve[-1][0]
    decades = min(16, max(1, math.ceil(-math.log10(max(document.curve[-1][1], _LEAST)))))

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
    points = " ".join(f"{x(epsilon):.1f},{y(delta):.1f}" for epsilon, delta in document.curve if delta >= _LEAST)
    report, mark = document.privacy, ""
    if report.epsilon is not None and report.delta is not None:
        mark = f'<circle cx="{x(report.epsilon):.1f}" cy="{y(report.delta):.1f}" r="4" fill="var(--mark)"/>'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="delta against epsilon">{"".join(lines)}'
        f'<polyline points="{points}" fill="none" stroke="var(--mark)" stroke-width="2"/>{mark}'
        f'<text x="{(_WIDTH + _LEFT) / 2:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">epsilon</text>'
        f'<text x="{_LEFT - 6}" y="12" text-anchor="end">delta</text></svg>'
    )
