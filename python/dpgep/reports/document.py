"""A privacy report as a document to sign: format "dpgep-report" (docs/reports.md), with a hash over all of it."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep._dispatch import core
from dpgep.formats.codec import decoded, encoded, parsed, require_format
from dpgep.reports.report import PrivacyReport
from dpgep.reports.words import assumptions, statement

FORMAT, VERSION = "dpgep-report", 1
# A report that can be read: with short names of a million columns it has some 12 MB.
MOST_BYTES = 1 << 24

# the share of false alarms at which an attacker is judged
FALSE_POSITIVES = 0.01
_SLACK = 1e-12
# by how much a derived number may differ that another version of SciPy or dp_accounting has computed
_VERSIONS = 1e-6


@dataclass(frozen=True)
class AttackRisk:
    """What anybody can find out about one person from everything released, at most: whatever else they know.

    Attributes
    ----------
    advantage : true positives less false positives of a test whether a person's row is in the data.
    false_positive_rate, true_positive_rate : so many true positives, at so many false ones.
    """

    advantage: float
    false_positive_rate: float
    true_positive_rate: float


@dataclass(frozen=True, kw_only=True, repr=False)
class ReportDocument:
    """A report, what it is about, and what follows from it.

    Attributes
    ----------
    date : of the document, UTC, as in 2026-11-23.
    dataset, purpose : as whoever writes it names them; None where nobody did.
    privacy : PrivacyReport
    curve : (epsilon, delta) pairs that all hold.
    risk : AttackRisk.
    statement, assumptions : the guarantee and what it takes for granted, in words.
    dpgep : version of dpgep that wrote the document.
    """

    date: str
    dataset: str | None
    purpose: str | None
    privacy: PrivacyReport
    curve: tuple[tuple[float, float], ...]
    risk: AttackRisk
    statement: str
    assumptions: tuple[str, ...]
    dpgep: str = core.__version__

    @property
    def sha256(self) -> str:
        """SHA-256 of the document, as `to_json` states it."""
        return _digest(self._content())

    def to_json(self) -> str:
        """The document and its hash as JSON, indented."""
        return json.dumps({**self._content(), "sha256": self.sha256}, indent=1, allow_nan=False) + "\n"

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = encoded(self, {})
        return {"format": FORMAT, "version": VERSION, "dpgep": content.pop("dpgep"), **content}

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


def read(text: str | bytes) -> ReportDocument:
    """The document in a JSON text, which says of itself what it is. Raises ValueError for anything else."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"a report has at most {MOST_BYTES} bytes, this file has more")
    content = parsed(text)
    stated, whole = content.pop("sha256", None), dict(content)
    by = require_format(content, FORMAT, VERSION)
    document: ReportDocument = decoded({**content, "dpgep": whole.get("dpgep")}, ReportDocument, "the report", by=by)
    digest = _digest(whole)
    if not isinstance(stated, str):
        raise ValueError("the report has no sha256")
    if stated != digest:
        raise ValueError(f"the report was altered: its hash is {digest}, not the stated {stated}")
    try:
        datetime.date.fromisoformat(document.date)
    except ValueError:
        raise ValueError(f"{document.date!r} is no date") from None
    return document


def verify(text: str | bytes) -> ReportDocument:
    """The document in a JSON text, all of whose numbers follow from its ledger.

    Recomputed are the hash; mu, in exact arithmetic; delta at the stated epsilon; the curve; the risk of an attack; and
    the words, where this version of dpgep wrote them. Raises ValueError, which says what does not agree.
    """
    document = read(text)
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
    if not _close([vars(document.risk).values()], [vars(again.risk).values()]):
        raise ValueError("the risk of an attack does not follow from the ledger")
    if document.dpgep == again.dpgep and (document.statement, document.assumptions) != (
        again.statement,
        again.assumptions,
    ):
        raise ValueError("the statement or the assumptions are not those of this guarantee")
    return document


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


def _digest(content: dict[str, Any]) -> str:
    """SHA-256 of the canonical form: keys sorted, no spaces, ASCII, floats as Python writes them."""
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _close(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and all(
        math.isclose(x, y, rel_tol=_VERSIONS)
        for a, b in zip(found, expected, strict=True)
        for x, y in zip(a, b, strict=True)
    )
