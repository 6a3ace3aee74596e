"""The tables of a report, as texts: for HTML and Markdown alike."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from dpgep.privacy.ledger import LedgerEntry
from dpgep.reports.report import PrivacyReport
from dpgep.reports.words import percent, up

Row: TypeAlias = tuple[str, ...]

LEDGER = ("Release", "Share", "mu", "Deviation of the noise", "Rounding")

_ADJACENCIES = {
    "replace-one": "replace-one: data sets that differ in one person's row",
    "add-remove": "add-remove: data sets with and without one person's row",
    "local": "local: any two records of one person",
}


def key_rows(report: PrivacyReport) -> list[tuple[str, str]]:
    """The parameters of the guarantee, by name."""
    rows = [("Epsilon", "see the curve" if report.epsilon is None else up(report.epsilon))]
    if report.delta is not None:
        rows.append(("Delta", up(report.delta)))
    if report.mu is not None:
        rows.append(("mu", up(report.mu)))
    rows.append(("Adjacency", _ADJACENCIES[report.adjacency]))
    if report.bound is not None:
        rows.append(("Bound", f"{report.bound:g}, enforced on the norm of every row"))
    rows.append(("Rounding", report.rounding if report.exact else f"{report.rounding}: not exact"))
    rows.append(("Seeded", "yes: not private to anyone who knows the seed" if report.seeded else "no"))
    if report.release is not None:
        rows.append(("Release", report.release))
    return rows


def curve_rows(curve: Sequence[tuple[float, float]]) -> list[Row]:
    """Every second point of a curve, rounded up."""
    return [(up(epsilon), up(delta, 3)) for epsilon, delta in curve[::2]]


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
