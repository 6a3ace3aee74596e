"""What all comparators share: one currency, and answers that can be checked.

Every comparator is a function

    components(rows, k, mu, rng, bound) -> (K, d), orthonormal rows, leading first,

sound for mu-GDP under replace-one with public n: all that it learns from ``rows`` are answers of an `Analyst`, which
adds the noise for a sensitivity that the comparator states, and composes mu^2. `tests/project/test_frontier.py` repeats
the queries that a run made on worst and random neighbours, and adds up what they cost. What a paper prints where that
differs is in the docstring of its file. NumPy's noise is for experiments: its low bits are not private.

A single pass asks each batch of people about themselves only. The batches are drawn without a look at rows; so a
replaced row is in the same batches on both sides, all answers of others have one law given those before them, and what
remains is the composition over the answers that saw the row: the mu of a run is the largest of those of its people.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr

Matrix = np.ndarray[Any, np.dtype[np.float64]]
People = np.ndarray[Any, np.dtype[np.intp]]
Query = Callable[[Matrix], Matrix]
Norm = Literal[2, "nuc"] | None


@dataclass(frozen=True)
class Answer:
    """A query that was answered with noise for ``sensitivity``, or chosen by the exponential mechanism; its price.

    ``norm`` is what `numpy.linalg.norm` measures the move of the query by: None (Frobenius), "nuc", or 2.
    """

    query: Query
    sensitivity: float
    mu: float
    people: People  # whose rows the query was given: nobody else's move it
    norm: Norm = None


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
        """The mu of everything so far, of the one who was asked most."""
        squares = np.zeros(len(self.rows))
        for answer in self.answers:
            squares[answer.people] += answer.mu**2
        return math.sqrt(squares.max())

    @property
    def everybody(self) -> People:
        return np.arange(len(self.rows))

    def ask(self, query: Query, sensitivity: float, mu: float, people: People | None = None) -> Matrix:
        """The query plus independent noise in every entry; of the rows of ``people``, distinct and chosen without a
        look at rows, if not of everybody's.
        """
        people = self.everybody if people is None else people
        self.answers.append(Answer(query, sensitivity, mu, people))
        exact = query(self.rows[people])
        return exact + sensitivity / mu * self.rng.standard_normal(exact.shape)

    def ask_symmetric(self, query: Query, sensitivity: float, mu: float) -> Matrix:
        """A symmetric matrix plus noise whose entries off the diagonal have half of the diagonal's variance."""
        self.answers.append(Answer(query, sensitivity, mu, self.everybody))
        exact = query(self.rows)
        noise = self.rng.standard_normal(exact.shape)
        return exact + sensitivity / mu * (noise + noise.T) / 2

    def ask_pure(self, query: Query, norm: Norm, noise: Callable[[float], Matrix], mu: float) -> Matrix:
        """The query plus ``noise(epsilon)``, which hides a move of at most 2 in ``norm`` with epsilon-DP."""
        self.answers.append(Answer(query, 2.0, mu, self.everybody, norm=norm))
        return query(self.rows) + noise(epsilon_of(mu))

    def choose(self, score: Query, sample: Callable[[Matrix, float], Matrix], mu: float) -> Matrix:
        """One draw of density exp(factor score) for a score that moves by at most 1, up or down: the factor is
        `epsilon_of` (mu), twice what (epsilon/2) for epsilon-DP allows.

        ``score`` is a matrix C with score tr(V^T C V); ``sample(C, factor)`` draws V of density
        exp(factor tr(V^T C V)). Such scores move by the operator norm of what a replaced row adds to C, x x^T - y y^T
        with one eigenvalue of either sign.

        Log-likelihood ratios of two neighbours are factor (their scores' difference) + a constant, so they lie in an
        interval of length r = 2 factor around zero (Dong, Durfee and Rogers 2020). Of all pairs of laws with ratios in
        [t - r, t] those on two points, at its ends, are the easiest to tell apart: probabilities p and q with
        logit p - logit q = r, which cost mu = Phi^-1(p) - Phi^-1(q). That is most at p = 1 - q = 1/(1 + e^(-r/2)), the
        pair of `epsilon_of`, if the derivative of Phi^-1 of 1/(1 + e^(-l)) in l falls for l > 0: with z = Phi^-1, if
        Phi(z) Phi(-z)/phi(z) falls for z > 0, that is if w(z) = phi (2 Phi - 1) - z Phi (1 - Phi) > 0. It is: w(0) = 0,
        w(infinity) = 0, and w' = 2 phi^2 - Phi (1 - Phi) is positive first and then negative, as w'(0) > 0,
        w'(infinity) = 0, and w'' = phi (2 Phi - 1 - 4 z phi) is negative first and then positive.
        """
        self.answers.append(Answer(score, 1.0, mu, self.everybody, norm=2))
        return sample(score(self.rows), epsilon_of(mu))


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
