"""Noisy gradients over Poisson samples of people, and over all people.

A person is in a sample with all rows, which are weighted by their factors: w f^2 x x^T = (f sqrt(w) x)(f sqrt(w) x)^T.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.data.float_sums import RowProducts
from dpgep.data.ids import Numbers
from dpgep.data.people import WEIGHT_BITS
from dpgep.data.rows import Batch
from dpgep.models.model import Matrix
from dpgep.privacy.curator import row_bound
from dpgep.privacy.ledger import Charge, LedgerEntry, NoiseBlock
from dpgep.privacy.rounding import (
    MOST_ROWS,
    covering_multiplier,
    error_by_person,
    most_people,
    product_error,
    sampled_product_error,
)
from dpgep.privacy.sampled import SampledMechanism, calibrate_sampled
from dpgep.problems.problem import MomentProblem, Problem, rows_of


@dataclass(frozen=True, eq=False)
class NoisySamples:
    """Answers about samples.

    Attributes
    ----------
    products : the compiled source of answers: `full`, `ascend`, `ascend_reduced`.
    mechanism : the answers paid for, and their noise multipliers.
    noise_level : expected operator norm of the noise in A in one answer about a sample.
    """

    products: core.SampledProducts
    mechanism: SampledMechanism
    noise_level: float


@dataclass(frozen=True, eq=False)
class Samples:
    """Gradients over Poisson samples and all people, for blocks that the method chooses; costs the whole ``target``.

    Only for models whose A is the second moment of the rows, with n or ``public_n`` known.
    """

    mechanism: SampledMechanism
    target: tuple[float, float]
    share_full: float

    def answer(self, problem: Problem, mu: float, stream: core.NoiseStream, charge: Charge) -> NoisySamples:
        rows = rows_of(problem, "samples of people")
        return sampled_products(rows, self.mechanism, *self.target, self.share_full, stream, charge)


def sampled_products(
    problem: MomentProblem,
    mechanism: SampledMechanism,
    epsilon: float,
    delta: float,
    share_full: float,
    stream: core.NoiseStream,
    charge: Charge,
) -> NoisySamples:
    """The answers of ``mechanism`` with the noise that (epsilon, delta) requires.

    Sums are divided by n0 and q n0, n0 = ``facts.n``, never by the actual number of people or the sample size.
    """
    assert problem.facts.n is not None
    calibrated = calibrate_sampled(mechanism, epsilon, delta, problem.facts.adjacency, share_full)
    n, q, squared_bound = problem.facts.n, mechanism.rate, row_bound(problem.facts) ** 2
    batch = problem.rows_in_memory("asking about samples of people")
    rows = RowProducts(batch.rows)
    factors, starts, order = _by_person(rows.factors, batch)
    noise_full, noise_sampled = _covering(calibrated, problem, rows.n if starts is None else len(starts) - 1)
    charge(_release(calibrated, private=math.isfinite(epsilon)))
    arrays = rows.arrays()
    products = _source(arrays)(
        *arrays,
        factors,
        n_people=float(n),
        rate=q,
        deviation_full=noise_full * squared_bound,
        n_full=mechanism.n_full,
        deviation_sampled=noise_sampled * squared_bound,
        n_sampled=mechanism.n_sampled,
        noisy=math.isfinite(epsilon),
        stream=stream,
        n_threads=thread_count(),
        starts=starts,
        order=order,
    )
    level = calibrated.noise_sampled * squared_bound / (q * n) * math.sqrt(2 * problem.model.n_features)
    return NoisySamples(products, calibrated, level)


def _by_person(factors: Matrix, batch: Batch) -> tuple[Matrix, Numbers | None, Numbers | None]:
    """Factors that weigh rows, too, so that a person adds at most 1 to a sum; and the rows of each person."""
    if batch.persons is None:
        return factors, None, None
    assert batch.weights is not None
    if len(factors) > MOST_ROWS:
        raise ValueError(
            f"there are more than {MOST_ROWS} rows, the limit for samples of people who have any number of them, and "
            'all that becomes known about it: use method="release"; nothing was released'
        )
    shares = np.nextafter(np.sqrt(np.ldexp(batch.weights.astype(np.float64), -WEIGHT_BITS)), 0.0)
    _, firsts, persons = np.unique(batch.persons, return_index=True, return_inverse=True)
    persons = np.argsort(np.argsort(firsts))[
        persons
    ]  # by their first rows, whatever their ids: one more moves no others
    starts = np.append(0, np.cumsum(np.bincount(persons)))
    return np.nextafter(factors * shares, 0.0), starts, np.argsort(persons, kind="stable")


def _covering(mechanism: SampledMechanism, problem: MomentProblem, n: int) -> tuple[float, float]:
    """Noise of full and sampled answers: the multipliers, enlarged for the rounding of the sums."""
    most, d = most_people(problem.facts, n), problem.model.n_features
    full, sampled = mechanism.noise_full, mechanism.noise_sampled
    errors = product_error(most, d, d), sampled_product_error(most, d)
    if problem.facts.several_rows:
        errors = (error_by_person(most, d),) * 2
    return (
        covering_multiplier(full, errors[0], d) if full else 0.0,
        covering_multiplier(sampled, errors[1], d) if sampled else 0.0,
    )


def _source(arrays: tuple[Any, ...]) -> Callable[..., core.SampledProducts]:
    return core.SampledProducts.of_dense if len(arrays) == 1 else core.SampledProducts.of_csr


def _release(mechanism: SampledMechanism, *, private: bool) -> LedgerEntry:
    query = f"{mechanism.n_sampled} products with second moments of samples, rate {mechanism.rate:.4g}"
    blocks = [NoiseBlock("second moment of rows/bound, sum over a sample", "goe", mechanism.noise_sampled)]
    if mechanism.n_full:
        query += f", and {mechanism.n_full} with that of all rows"
        blocks.append(NoiseBlock("second moment of rows/bound, sum over people", "goe", mechanism.noise_full))
    if not private:
        return LedgerEntry(query, math.inf, ())
    return LedgerEntry(query, None, tuple(blocks), event=mechanism.event())
