"""A report in Markdown, with tables as GitHub and most others read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dpgep.reports.document import ReportDocument
from dpgep.reports.tables import LEDGER, Row, curve_rows, key_rows, ledger_rows
from dpgep.reports.words import assumptions, risk_sentences, statement


def text(document: ReportDocument) -> str:
    """The Markdown of a document; marks in texts from outside are escaped, and no sentence is taken from outside."""
    report, risk = document.privacy, document.risk
    about = [("Data set", document.dataset), ("Purpose", document.purpose), ("Date", document.date)]
    rows = [(name, value) for name, value in about if value is not None] + key_rows(report)
    risks = risk_sentences(report, risk.advantage, risk.false_positive_rate, risk.true_positive_rate)
    parts = [
        "# Privacy report",
        escaped(statement(report)),
        _table(["", ""], rows),
        "## Risk of an attack",
        _items(risks),
    ]
    if document.curve:
        parts += ["## Epsilon and delta", _table(["epsilon", "delta, at most"], curve_rows(document.curve))]
    parts += ["## What is taken for granted", _items(assumptions(report))]
    parts += ["## Ledger", _table(LEDGER, ledger_rows(report.releases, report.mu))]
    parts += [
        "## Signature",
        f"SHA-256 of the report's JSON form: `{document.sha256}` (`dpgep report verify FILE`). It shows that nothing "
        "was changed, not who wrote the report.",
        f"Written by dpgep {escaped(document.dpgep)}.",
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """A text on one line in which nothing is a mark of Markdown, or HTML."""
    plain = re.sub(r"\s+", " ", text)
    return re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", plain)


def _items(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(each)}" for each in texts)


def _table(heading: Sequence[str], rows: Iterable[Row]) -> str:
    lines = [heading, ["---"] * len(heading), *([escaped(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
