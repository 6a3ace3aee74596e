"""The guarantee of everything that was released, the releases it follows from, and both as a document to sign.

A document (docs/reports.md) can be read again, and is then verified from its ledger. As an HTML page and as Markdown it
has the same sentences and rows. The page stands alone: no script, nothing loaded, light and dark, for screens of any
width and for paper.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from dpgep._dispatch import core
from dpgep._show import escaped, html_table
from dpgep.privacy.ledger import LEDGER, Row, ledger_rows, up
from dpgep.reports.guarantee import SIGNATURE, Guarantee, assumptions, key_rows, risk_sentences, statement
from dpgep.reports.registry import registry_entry
from dpgep.serialization import Format, Target, decoded, encoded, opened, save


@dataclass(frozen=True)
class Section:
    """A part of a report: a text, items of a list, and rows of a table."""

    title: str
    text: str = ""
    items: Sequence[str] = ()
    heading: Sequence[str] = ()  # of the table; without one, its first column names the second
    rows: Sequence[Row] = ()
    numbers: Sequence[int] = ()  # columns of the table that are numbers
    # is_main, is_warning: whether the text is what readers came for, and whether it is bad news
    is_main: bool = False
    is_warning: bool = False
    # curve, mark: points (epsilon, delta) to be drawn on a page, and one of them to be marked
    curve: Sequence[tuple[float, float]] = ()
    mark: tuple[float, float] | None = None


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

    lines, wide = [], f'x1="{_LEFT}" x2="{_WIDTH - _RIGHT}"'
    for decade in range(0, decades + 1, max(1, math.ceil(decades / 6))):
        height, label = y(10.0**-decade), f"1e-{decade}" if decade else "1"
        lines.append(f'<line {wide} y1="{height:.1f}" y2="{height:.1f}" stroke="var(--line)"/>')
        lines.append(f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{label}</text>')
    for epsilon in np.linspace(0.0, most, 5).tolist():
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


REPORT = Format("dpgep-report")

_CURVE = ("epsilon", "delta, at most")
# the share of false alarms at which an attacker is judged
FALSE_POSITIVES = 0.01
_SLACK = 1e-12
# A report that can be read: with short names of a million columns it has some 12 MB.
MOST_BYTES = 1 << 24
# by how much a derived number may differ that another version of SciPy or dp_accounting has computed
_VERSIONS = 1e-6


@dataclass(frozen=True, repr=False)
class PrivacyReport(Guarantee):
    """The guarantee of one solution: everything in it that was computed from data is covered.

    Attributes
    ----------
    epsilon, delta : (epsilon, delta)-differential privacy of all releases together; None where the budget was given as
        rho or mu (see `epsilon_at`, `delta_at`).
    mu : Gaussian differential privacy of all releases together; None for answers about samples, which have no mu:
        `epsilon_at` and `delta_at` then compose privacy loss distributions by `dp_accounting`, under replace-one by
        group privacy for two people.
    adjacency : "replace-one" or "add-remove": which data sets the guarantee compares. "local": any two records of one
        person, without a trusted curator (`dpgep.local`).
    bound : enforced bound on row norms; None where the caller vouched for sensitivities, or columns were cut off one by
        one.
    releases : the ledger.
    exact : whether the guarantee has no approximation term: every release is of integer sums, or of values rounded to a
        public grid whose rounding the noise covers, plus exactly rounded normal deviates. ``rounding`` says which.
    seeded : whether the noise came from a seed. Anyone who knows the seed can subtract it: there is no privacy.
    release : the fingerprint of a `Release`, in the reports of its answers: those that name the same release were paid
        for once, together.
    public : what was public about the data (`PublicInputs`); None where nobody said.
    """

    def to_json(
        self, *, dataset: str | None = None, purpose: str | None = None, date: datetime.date | None = None
    ) -> str:
        """The report as a document to sign, in JSON, with a hash over all of it (docs/reports.md).

        ``dpgep report verify`` recomputes the hash, and the guarantee from the ledger. ``dataset`` and ``purpose`` say
        what the report is about, and what for. ``date`` is by default today, UTC: the forms of one day, in JSON, HTML
        and Markdown, state the same hash.
        """
        return document_of(self, dataset, purpose, date).to_json()

    def save(self, target: Target, **about: Any) -> None:
        """Write `to_json` to a path or a binary file, for `dpgep.load`, which verifies it."""
        save(self.to_json(**about).encode(), target)

    def to_html(self, **about: Any) -> str:
        """The document as a page that stands alone: no script, light and dark, for any width, and for paper.

        Parameters as for `to_json`.
        """
        return document_of(self, **about).to_html()

    def to_markdown(self, **about: Any) -> str:
        """The document in Markdown. Parameters as for `to_json`."""
        return document_of(self, **about).to_markdown()

    def to_registry(self, **about: Any) -> str:
        """The draft of an entry for the public registry of deployments of differential privacy (docs/reports.md).

        YAML. What the report does not say, as who publishes what for whom, is marked "TO BE FILLED IN". Parameters as
        for `to_json`. Raises ValueError for a seeded report, or one without noise: there is no guarantee to register.
        """
        return document_of(self, **about).to_registry()

    def _repr_html_(self) -> str:
        return html_table(key_rows(self)) + html_table(ledger_rows(self.releases, self.mu), LEDGER)


@dataclass(frozen=True)
class AttackRisk:
    """What anybody can find out about one person from everything released, at most: whatever else they know."""

    advantage: float  # true positives less false positives of a test whether a person's row is in the data
    # false_positive_rate, true_positive_rate: of the test with this advantage
    false_positive_rate: float
    true_positive_rate: float


@dataclass(frozen=True, kw_only=True, repr=False)
class ReportDocument:
    """A report, what it is about, and what follows from it."""

    date: str  # of the document, UTC, as in 2026-11-23
    # dataset, purpose: as whoever writes it names them; None where nobody did
    dataset: str | None
    purpose: str | None
    privacy: PrivacyReport
    curve: tuple[tuple[float, float], ...]  # (epsilon, delta) pairs that all hold
    risk: AttackRisk
    # statement, assumptions: the guarantee and what it takes for granted, in words
    statement: str
    assumptions: tuple[str, ...]
    dpgep: str = core.__version__  # version of dpgep that wrote the document

    @property
    def sha256(self) -> str:
        """SHA-256 of the document, as `to_json` states it."""
        return digest(self._content())

    def to_json(self) -> str:
        """The document and its hash as JSON, indented."""
        return json.dumps({**self._content(), "sha256": self.sha256}, indent=1, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """The document as a page that stands alone."""
        template = Template(Path(__file__).with_name("report.html").read_text(encoding="utf-8"))
        title = "Privacy report" + (f": {self.dataset}" if self.dataset else "")
        return template.substitute(title=escape(title), sections="\n".join(map(_section, self._sections())))

    def to_markdown(self) -> str:
        """The document in Markdown, with tables as GitHub reads them; marks in texts are escaped."""
        parts = ["# Privacy report"]
        for section in self._sections():
            lines = [section.heading or ["", ""], ["---"] * len(section.rows[0])] if section.rows else []
            lines += [[escaped(cell) for cell in row] for row in section.rows]
            parts += [f"## {section.title}"] if section.title else []
            parts += [escaped(section.text), "\n".join(f"- {escaped(item)}" for item in section.items)]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        return "\n\n".join(filter(None, parts)) + "\n"

    def to_registry(self) -> str:
        """The draft of an entry for the registry of deployments, in YAML."""
        by = f"dpgep {self.dpgep}; SHA-256 of the report: {self.sha256}"
        return registry_entry(self.privacy, self.dataset, self.purpose, by, self.date)

    def _sections(self) -> list[Section]:
        """No sentence is taken from the document, which may come from outside: all follow from its guarantee."""
        report = self.privacy
        is_weak = report.seeded or (report.mu is not None and math.isinf(report.mu))
        about = [("Data set", self.dataset), ("Purpose", self.purpose), ("Date", self.date)]
        curve = [(up(epsilon), up(delta, 3)) for epsilon, delta in self.curve[::2]]
        stated = None if report.epsilon is None or report.delta is None else (report.epsilon, report.delta)
        drawn: dict[str, Any] = {"rows": curve, "curve": self.curve, "mark": stated}
        ledger = "Everything that was released, in order, and what it cost, as a share of mu² and as mu."
        return [
            Section("", rows=[(name, text) for name, text in about if text is not None]),
            Section("Guarantee", statement(report), rows=key_rows(report), is_main=True, is_warning=is_weak),
            Section("Risk of an attack", items=risk_sentences(report, *astuple(self.risk))),
            *([Section("Epsilon and delta", heading=_CURVE, numbers=(0, 1), **drawn)] if curve else []),
            Section("What is taken for granted", items=list(assumptions(report))),
            Section("Ledger", ledger, heading=LEDGER, rows=[*ledger_rows(report.releases, report.mu)], numbers=(1, 2)),
            Section("Signature", SIGNATURE, rows=[("SHA-256", self.sha256), ("Written by", f"dpgep {self.dpgep}")]),
        ]

    def _content(self) -> dict[str, Any]:
        return {**REPORT.heading(), **encoded(self)}

    def __repr__(self) -> str:
        return f"ReportDocument({self.dataset!r}, {self.date}; {self.privacy})"


def document_of(
    report: PrivacyReport, dataset: str | None = None, purpose: str | None = None, date: datetime.date | None = None
) -> ReportDocument:
    """The document of a report, dated today unless another date is given."""
    for name, text in (("dataset", dataset), ("purpose", purpose)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} must be text, got {text!r}")
    today = datetime.datetime.now(datetime.timezone.utc).date()
    curve = report.curve()
    return ReportDocument(
        date=(today if date is None else date).isoformat(),
        dataset=dataset,
        purpose=purpose,
        privacy=report,
        curve=tuple(curve),
        risk=attack_risk(report, curve),
        statement=statement(report),
        assumptions=tuple(assumptions(report)),
    )


def attack_risk(report: PrivacyReport, curve: list[tuple[float, float]]) -> AttackRisk:
    """What follows from mu, exactly, or from a curve; rounded up.

    Of mu-GDP, T(alpha) = Phi(Phi^-1(alpha) + mu) (Dong, Roth and Su 2022). Of any (epsilon, delta): at most e^epsilon
    alpha + delta, and at most 1 - e^-epsilon (1 - delta - alpha).
    """
    alpha = FALSE_POSITIVES
    if report.mu is None:
        bounds = [math.exp(e) * alpha + d for e, d in curve] + [1 - math.exp(-e) * (1 - d - alpha) for e, d in curve]
        return AttackRisk(curve[0][1], alpha, _up(min(bounds)))
    if math.isinf(report.mu):
        return AttackRisk(1.0, alpha, 1.0)
    from scipy.special import ndtr, ndtri

    return AttackRisk(report.delta_at(0.0), alpha, _up(float(ndtr(float(ndtri(alpha)) + report.mu + _SLACK))))


def _up(share: float) -> float:
    return min(1.0, share * (1 + _SLACK))


def digest(content: dict[str, Any]) -> str:
    """SHA-256 of the canonical form: keys sorted, no spaces, ASCII, floats as Python writes them."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def verify(text: str | bytes) -> ReportDocument:
    """The document in a JSON text, all of whose numbers follow from its ledger.

    Recomputed are the hash; mu, in exact arithmetic; delta at the stated epsilon; the curve; the risk of an attack; and
    the words, where this version of dpgep wrote them. Raises ValueError, which says what does not agree.
    """
    document = _read(text.encode() if isinstance(text, str) else text)
    report = document.privacy
    report.require_consistent()
    report.require_sampled()
    try:
        with np.errstate(all="ignore"):
            again = document_of(report, document.dataset, document.purpose)
    except ArithmeticError as error:
        raise ValueError(f"the ledger cannot be accounted for: {error}") from None
    if not _close(document.curve, again.curve):
        raise ValueError("the curve does not follow from the ledger")
    if not _close(astuple(document.risk), astuple(again.risk)):
        raise ValueError("the risk of an attack does not follow from the ledger")
    if document.dpgep == again.dpgep and (document.statement, document.assumptions) != (
        again.statement,
        again.assumptions,
    ):
        raise ValueError("the statement or the assumptions are not those of this guarantee")
    return document


def _read(data: bytes) -> ReportDocument:
    """The document with its hash and a date. Raises ValueError for anything else."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"a report has at most {MOST_BYTES} bytes, this file has more")
    found = opened(data).require(REPORT)
    content = dict(found.fields)
    stated = content.pop("sha256", None)
    fields = {**content, "dpgep": found.dpgep}
    document: ReportDocument = decoded(fields, ReportDocument, "the report", by=found.writer)
    if not isinstance(stated, str):
        raise ValueError("the report has no sha256")
    expected = digest({"format": found.name, "version": found.version, **fields})
    if stated != expected:
        raise ValueError(f"the report was altered: its hash is {expected}, not the stated {stated}")
    try:
        datetime.date.fromisoformat(document.date)
    except ValueError:
        raise ValueError(f"{document.date!r} is no date") from None
    return document


def _close(found: Any, expected: Any) -> bool:
    return np.shape(found) == np.shape(expected) and np.allclose(found, expected, rtol=_VERSIONS, atol=0.0)
