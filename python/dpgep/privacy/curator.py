"""The curator: the only part that holds data. It answers a query if the ledger can pay, and records the release.

A query is a record in the module of its mechanism, which says how each kind of problem answers it with noise. What it
returns is public.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from dpgep._dispatch import core
from dpgep.errors import PrivacyBudgetError
from dpgep.models.model import PublicSide
from dpgep.privacy.ledger import Charge, Ledger, LedgerEntry
from dpgep.problems.problem import Problem

Answer = TypeVar("Answer", covariant=True)


class Query(Protocol[Answer]):
    """What a method asks: `answer` is its mechanism, for ``mu``; ``charge`` records the cost before noise is drawn."""

    def answer(self, problem: Any, mu: float, stream: core.NoiseStream, charge: Charge) -> Answer: ...


class Curator:
    """Holds a problem's data; answers with noise from ``stream``; pays from ``ledger``.

    A method may read ``public``, with its ``model`` and ``facts``.
    """

    def __init__(self, problem: Problem, ledger: Ledger, stream: core.NoiseStream) -> None:
        self.public: PublicSide = problem.public
        self.model, self.facts = self.public.model, self.public.facts
        self._problem, self._ledger, self._stream = problem, ledger, stream

    @property
    def noiseless(self) -> bool:
        """Whether epsilon is infinite."""
        return math.isinf(self.remaining)

    @property
    def remaining(self) -> float:
        """The mu that is left."""
        return self._ledger.remaining

    @property
    def target(self) -> tuple[float, float]:
        """The (epsilon, delta) of a run; PrivacyBudgetError unless it is for this run alone."""
        return self._ledger.whole_target()

    def public_generator(self) -> np.random.Generator:
        """Randomness that need not stay secret, for starting points; reproducible where the noise is seeded."""
        return np.random.default_rng(int.from_bytes(self._stream.bytes(16), "little"))

    def answer(self, query: Query[Answer], share: float | None = None, purpose: str = "") -> Answer:
        """The answer to a query, for a ``share`` of the ledger's mu^2 (default: all that is left).

        Whether the ledger can pay is checked before data are read; ``purpose`` is shown in the ledger. Raises
        PrivacyBudgetError if it cannot, or if the ``target`` of a query about samples is not that of the ledger.
        """
        if (target := getattr(query, "target", None)) is not None and target != self._ledger.whole_target():
            raise PrivacyBudgetError(
                "answers about samples are for all of a run's (epsilon, delta), curator.target: this query is for "
                "another; no data was read and nothing was spent"
            )

        def charge(entry: LedgerEntry) -> None:
            self._ledger.record(replace(entry, query=f"{purpose}: {entry.query}"))

        mu = self._ledger.affordable(share)
        return query.answer(self._problem, mu, self._stream, charge if purpose else self._ledger.record)

    def keep_sums(self) -> None:
        """Announces several releases: their exact sums are kept, if they are sums of rows."""
        self._problem = self._problem.keeping_sums()
