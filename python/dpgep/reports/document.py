"""Signed reports, format "dpgep-report" (docs/reports.md): read again, and verified from their ledgers."""

from __future__ import annotations

import datetime
import math
from typing import Any

import numpy as np

from dpgep.formats.codec import decoded, parsed, require_format
from dpgep.reports.report import FORMAT, VERSION, ReportDocument, digest, document_of

# A report that can be read: with short names of a million columns it has some 12 MB.
MOST_BYTES = 1 << 24

# by how much a derived number may differ that another version of SciPy or dp_accounting has computed
_VERSIONS = 1e-6


def read(text: str | bytes) -> ReportDocument:
    """The document in a JSON text, which says of itself what it is. Raises ValueError for anything else."""
    if len(text) > MOST_BYTES:
        raise ValueError(f"a report has at most {MOST_BYTES} bytes, this file has more")
    content = parsed(text)
    stated, whole = content.pop("sha256", None), dict(content)
    by = require_format(content, FORMAT, VERSION)
    document: ReportDocument = decoded({**content, "dpgep": whole.get("dpgep")}, ReportDocument, "the report", by=by)
    found = digest(whole)
    if not isinstance(stated, str):
        raise ValueError("the report has no sha256")
    if stated != found:
        raise ValueError(f"the report was altered: its hash is {found}, not the stated {stated}")
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


def _close(found: Any, expected: Any) -> bool:
    return len(found) == len(expected) and all(
        math.isclose(x, y, rel_tol=_VERSIONS)
        for a, b in zip(found, expected, strict=True)
        for x, y in zip(a, b, strict=True)
    )
