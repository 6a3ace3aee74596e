"""A ledger as a table of texts, numbers rounded against ourselves: for budgets and reports."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from itertools import groupby
from typing import TypeAlias

from dpgep.privacy.ledger import LedgerEntry

Row: TypeAlias = tuple[str, ...]

LEDGER = ("Release", "Share", "mu", "Deviation of the noise", "Rounding")


def up(value: float, digits: int = 4) -> str:
    """A number with this many significant digits, rounded up."""
    if not math.isfinite(value):
        return str(value)
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))):.{digits}g}"


def percent(share: float) -> str:
    """A fraction in percent, rounded up."""
    return f"{up(min(100 * share, 100.0), 3)} %"


def ledger_rows(releases: Iterable[LedgerEntry], mu: float | None) -> Iterator[Row]:
    """A row for each entry, or for several in a row that differ in their number only; shares are of this total."""
    for _, group in groupby(releases, _without_numbers):
        entries = list(group)
        first = entries[0]
        query = first.query if len(entries) == 1 else f"{first.query} (and {len(entries) - 1} more like it)"
        yield query, _share(entries, mu), _mu(first, len(entries)), _noise(first), first.rounding


def _without_numbers(entry: LedgerEntry) -> object:
    return re.sub(r"\d+", "", entry.query), entry.mu, entry.noise, entry.grid_bits


def _share(entries: Sequence[LedgerEntry], mu: float | None) -> str:
    each = entries[0].mu
    if each is None:
        return "all"
    if mu is None or math.isinf(mu):
        return ""
    return percent(len(entries) * (each / mu) ** 2)


def _mu(entry: LedgerEntry, number: int) -> str:
    if entry.mu is None:
        return "none: samples"
    return up(entry.mu) + (" each" if number > 1 else "")


def _noise(entry: LedgerEntry) -> str:
    return ", ".join(f"{block.name}: {block.deviation:.3g}" for block in entry.noise) or "none"
