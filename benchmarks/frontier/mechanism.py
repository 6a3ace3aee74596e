"""What all comparators share: one currency, and answers that can be checked.

Every comparator is a function

    components(rows, k, mu, rng, bound) -> (K, d), orthonormal rows, leading first,

sound for mu-GDP under replace-one with public n: all that it learns from ``rows`` are answers of an `Analyst`, which
adds the noise for a sensitivity that the comparator states, and composes mu^2. tests/test_frontier.py repeats the
queries that a run made on worst and random neighbours, and adds up what they cost. What a paper prints where that
differs is in the docstring of its file. NumPy's noise is for experiments: its low bits are not private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import log_ndtr

Matrix = np.ndarray[Any, np.dtype[np.float64]]
Query = Callable[[Matrix], Matrix]


@dataclass(frozen=True)
class Answer:
    """A query that was answered with noise for ``sensitivity``, or chosen by the exponential mechanism; its price."""

    query: Query
    sensitivity: float
    mu: float


@dataclass
class Analyst:
    """Answers about ``rows`` (n, d), clipped to the unit ball: whoever asks sees nothing else of them."""

    rows: Matrix
    rng: np.random.Generator
    answers: list[Answer] = field(default_factory=list)

    @classmethod
    def of(cls, rows: Matrix, bound: float, rng: np.random.Generator) -> Analyst:
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return cls(rows / np.maximum(norms, bound), rng)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of people and of columns: public."""
        return self.rows.shape  # type: ignore[return-value]

    @property
    def spent(self) -> float:
        """The mu of everything so far."""
        return math.sqrt(sum(answer.mu**2 for answer in self.answers))

    def ask(self, query: Query, sensitivity: float, mu: float) -> Matrix:
        """The query plus independent noise in every entry."""
        self.answers.append(Answer(query, sensitivity, mu))
        exact = query(self.rows)
        return exact + sensitivity / mu * self.rng.standard_normal(exact.shape)

    def ask_symmetric(self, query: Query, sensitivity: float, mu: float) -> Matrix:
        """A symmetric matrix plus noise whose entries off the diagonal have half of the diagonal's variance."""
        self.answers.append(Answer(query, sensitivity, mu))
        exact = query(self.rows)
        noise = self.rng.standard_normal(exact.shape)
        return exact + sensitivity / mu * (noise + noise.T) / 2

    def choose(self, score: Query, sample: Callable[[Matrix, float], Matrix], mu: float) -> Matrix:
        """One draw of density exp(epsilon/2 score) for a score that moves by at most 1: `epsilon_of` (mu)-DP.

        ``score`` is a matrix C with score u^T C u; ``sample(C, factor)`` draws u of density exp(factor u^T C u).
        """
        self.answers.append(Answer(score, 1.0, mu))
        return sample(score(self.rows), epsilon_of(mu) / 2)


def epsilon_of(mu: float) -> float:
    """The largest epsilon for which every epsilon-DP mechanism is mu-GDP.

    Its trade-off curve is at least that of two segments that meet at a = b = 1/(1 + e^epsilon); a convex curve between
    the same ends lies below them if it passes there: mu = 2 Phi^-1(e^epsilon/(1 + e^epsilon)).
    """
    return float(log_ndtr(mu / 2) - log_ndtr(-mu / 2))


def leading(matrix: Matrix, k: int) -> Matrix:
    """(K, d), the leading eigenvectors of a symmetric matrix."""
    return np.ascontiguousarray(np.linalg.eigh(matrix)[1][:, : -k - 1 : -1].T)


def second_moment(rows: Matrix) -> Matrix:
    """Sum of x x^T: one replaced row moves it by at most sqrt(2) in Frobenius norm."""
    return rows.T @ rows
