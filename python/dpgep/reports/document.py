"""Signed reports, format "dpgep-report" (docs/reports.md): read again, and verified from their ledgers."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np

from dpgep.reports.report import REPORT, ReportDocument, digest, document_of
from dpgep.serialization import Document, decoded, opened

# A report that can be read: with short names of a million columns it has some 12 MB.
MOST_BYTES = 1 << 24

# by how much a derived number may differ that another version of SciPy or dp_accounting has computed
_VERSIONS = 1e-6


def verify(text: str | bytes) -> ReportDocument:
    """The document in a JSON text, all of whose numbers follow from its ledger.

    Recomputed are the hash; mu, in exact arithmetic; delta at the stated epsilon; the curve; the risk of an attack; and
    the words, where this version of dpgep wrote them. Raises ValueError, which says what does not agree.
    """
    data = text.encode() if isinstance(text, str) else text
    if len(data) > MOST_BYTES:
        raise ValueError(f"a report has at most {MOST_BYTES} bytes, this file has more")
    return verified(opened(data))


def verified(found: Document) -> ReportDocument:
    """The document in a file that was opened: see `verify`."""
    document = _read(found)
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


def _read(found: Document) -> ReportDocument:
    """The document with its hash and a date. Raises ValueError for anything else."""
    found.require(REPORT)
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
    return len(found) == len(expected) and all(
        math.isclose(x, y, rel_tol=_VERSIONS)
        for a, b in zip(found, expected, strict=True)
        for x, y in zip(a, b, strict=True)
    )
