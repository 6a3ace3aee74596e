"""Laws of reports and their sums, and an audit of the guarantee; each with a control that must fail.

False alarms: see statistics_helpers, also for the low-order bits; the audits are at confidence 1 - 1e-7.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import reference
from conftest import Matrix
from scipy import stats
from statistics_helpers import (
    FALSE_ALARM,
    rejects_covariance,
    rejects_equal_distributions,
    rejects_normality,
    seeded_key,
)

import dpgep
from dpgep._dispatch import core
from dpgep.auditing.statistical import AuditResult, audit_samples
from dpgep.local import Aggregator, GaussianRandomizer, Reports
from dpgep.privacy.accounting import mu_of

pytestmark = pytest.mark.statistical

DTYPES = ["int64", "float32"]
EPSILON, DELTA = 2.0, 1e-5
DEVIATION = math.sqrt(2) / mu_of(EPSILON, DELTA)


def randomizer(dim: int, seed: int, **options: Any) -> GaussianRandomizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return GaussianRandomizer(dim, 1.0, EPSILON, DELTA, seed=seed, **options)


def packed(batch: Reports) -> Matrix:
    return np.asarray(batch.values.astype(np.float64) * batch.mechanism.unit)


def goe_covariance(d: int, deviation: float) -> Matrix:
    """Of the upper triangle of GOE(deviation)."""
    variances = reference.pack(np.full((d, d), 0.5) + 0.5 * np.eye(d))
    return np.diag(deviation**2 * variances)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_report_is_the_squared_record_plus_goe(dtype: str) -> None:
    d, n = 4, 20_000
    x = np.array([0.1, -0.4, 0.2, 0.7])
    values = packed(randomizer(d, 1, dtype=dtype).randomize_rows(np.tile(x, (n, 1))))
    noise = values - reference.pack(np.outer(x, x))
    covariance = goe_covariance(d, DEVIATION)
    assert not rejects_covariance(noise, covariance)
    assert not rejects_normality(noise / np.sqrt(np.diagonal(covariance)))
    # sensitivity 1, independent noise of one variance, and a few per cent less are all seen
    assert rejects_covariance(noise, goe_covariance(d, DEVIATION / math.sqrt(2)))
    assert rejects_covariance(noise, np.diag(np.full(10, DEVIATION**2)))
    assert rejects_covariance(noise, goe_covariance(d, 0.95 * DEVIATION))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_mean_of_reports_is_unbiased(dtype: str) -> None:
    d, n = 3, 200_000
    x = np.array([0.6, 0.8, 0.0])
    values = packed(randomizer(d, 2, dtype=dtype).randomize_rows(np.tile(2 * x, (n, 1)))).mean(axis=0)
    covariance = goe_covariance(d, DEVIATION / math.sqrt(n))
    assert not rejects_covariance((values - reference.pack(np.outer(x, x)))[None, :], covariance)
    # a record that is not clipped, or shrunk by a tenth too much
    for factor in (2.0, 0.9):
        assert rejects_covariance((values - reference.pack(np.outer(factor * x, factor * x)))[None, :], covariance)


def many_aggregates(rows: Matrix, runs: int, client: GaussianRandomizer) -> Matrix:
    """Upper triangles of the means of ``runs`` aggregations."""
    d, means = rows.shape[1], []
    for _ in range(runs):
        server = Aggregator(d, 1.0, EPSILON, DELTA)
        server.add(client.randomize_rows(rows))
        means.append(reference.pack(server.second_moment()))
    return np.array(means)


def one_draw(rows: Matrix, runs: int, deviation: float, key: int) -> Matrix:
    """The second moment of the rows plus one GOE matrix, ``runs`` times."""
    d, stream, drawn = rows.shape[1], core.NoiseStream(seeded_key(key)), []
    for _ in range(runs):
        deviates = np.empty(d * (d + 1) // 2)
        stream.normal(deviates)
        drawn.append(
            reference.pack(rows.T @ rows / len(rows) + reference.symmetric_noise(d, deviation, "goe", deviates))
        )
    return np.array(drawn)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", DTYPES)
def test_n_reports_are_one_draw(dtype: str) -> None:
    n, runs = 9, 4000
    rows = np.random.default_rng(3).standard_normal((n, 3)) / 4
    means = many_aggregates(rows, runs, randomizer(3, 4, dtype=dtype))
    # also of combinations, which see correlations
    mix = np.random.default_rng(5).standard_normal((6, 6))
    single = one_draw(rows, runs, DEVIATION / math.sqrt(n), 6)
    assert not rejects_equal_distributions(means @ mix, single @ mix)
    assert rejects_equal_distributions(means @ mix, one_draw(rows, runs, 0.8 * DEVIATION / math.sqrt(n), 6) @ mix)


def audit_of(client: GaussianRandomizer, runs: int = 60_000, *, sent: bool = True) -> AuditResult:
    """e1 against e2 by the most powerful statistic, of what arrives as bytes if it is ``sent``."""

    def samples(record: list[float]) -> Matrix:
        reports = client.randomize_rows(np.tile(record, (runs, 1)))
        values = packed(Reports.from_bytes(reports.to_bytes()) if sent else reports)
        return np.asarray(values[:, 2] - values[:, 0])  # (M22 - M11) of the triangle M11, M12, M22

    return audit_samples(
        samples([1.0, 0.0]),
        samples([0.0, 1.0]),
        confidence=1 - 1e-7,
        delta=DELTA,
        claimed_mu=mu_of(EPSILON, DELTA),
        claimed_epsilon=EPSILON,
        gaussian=True,
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_guarantee_survives_an_audit_and_hardly_more_noise_than_needed(dtype: str) -> None:
    result = audit_of(randomizer(2, 9, dtype=dtype))
    assert not result.flagged
    assert result.epsilon is not None
    assert result.epsilon > 0.9 * EPSILON


def test_the_audit_flags_sensitivity_one() -> None:
    """As printed by Wang and Xu but for the calibration, which is exact here. Their own mechanism: audit_cases.py."""
    client = randomizer(2, 10)
    client.mechanism = replace(client.mechanism, deviation=client.mechanism.deviation / math.sqrt(2))
    result = audit_of(client, sent=False)  # who receives such reports refuses them
    assert result.flagged
    assert result.mu > 1.3 * mu_of(EPSILON, DELTA)


def test_the_audit_flags_two_reports_sold_as_one() -> None:
    client = randomizer(2, 11)
    pairs = randomizer(2, 11, records_per_person=2)
    runs = 60_000

    def flagged(each: GaussianRandomizer) -> bool:
        statistic = []
        for record in ([1.0, 0.0], [0.0, 1.0]):
            values = packed(each.randomize_rows(np.tile(record, (2 * runs, 1)))).reshape(runs, 2, 3)
            statistic.append((values[:, :, 2] - values[:, :, 0]).sum(axis=1))
        return audit_samples(
            *statistic, confidence=1 - 1e-7, delta=DELTA, claimed_epsilon=EPSILON, gaussian=True
        ).flagged

    assert flagged(client)
    assert not flagged(pairs)


# --- low-order bits: what a likelihood ratio of real numbers cannot see ---

LOW_RUNS, LOW_EPSILON, LOW_DELTA = 200_000, 4.0, 1e-7
SCALES = range(20, 61)
FINEST = 53  # of a floating-point sum: 1 + Z, where it is below 1/2, is a multiple of 2^-53, and 0 + Z is not


def near_zero(values: Matrix) -> Matrix:
    """(runs, 3) whether an entry lies within 1/2 of 0, in units of bound^2."""
    return np.asarray(np.abs(values) < 0.5)


def finer_than(values: Matrix, scale: int) -> Matrix:
    """(runs, 3) whether an entry near zero is no multiple of 2^-scale."""
    scaled = np.ldexp(values, scale)
    return np.asarray(near_zero(values) & (np.rint(scaled) != scaled))


def low_bit_epsilon(first: Matrix, second: Matrix) -> float:
    """What the events of `finer_than` prove of epsilon, at LOW_DELTA; too much with probability below FALSE_ALARM.

    P(event | x) <= exp(epsilon) P(event | x') + delta. Rates by Clopper and Pearson (1934), for each entry, scale and
    direction: the union bound.
    """
    runs, entries = first.shape
    level = FALSE_ALARM / (2 * 2 * entries * len(SCALES))
    hits = np.array([[finer_than(values, s).sum(axis=0) for s in SCALES] for values in (first, second)])
    at_least = np.where(hits > 0, stats.beta.ppf(level, hits, runs - hits + 1), 0.0)
    at_most = np.where(hits < runs, stats.beta.ppf(1 - level, hits + 1, runs - hits), 1.0)
    excess = np.maximum(at_least - LOW_DELTA, 1e-300)
    return float(max(np.log(excess[0] / at_most[1]).max(), np.log(excess[1] / at_most[0]).max()))


def rejects_equal_low_bits(first: Matrix, second: Matrix) -> bool:
    """Whether, near zero, the two differ in how often an entry is finer than a scale: Fisher's exact test for each."""
    p_values = []
    for scale in SCALES:
        counts = [(finer_than(v, scale).sum(axis=0), near_zero(v).sum(axis=0)) for v in (first, second)]
        for entry in range(first.shape[1]):
            table = [[finer[entry], near[entry] - finer[entry]] for finer, near in counts]
            p_values.append(float(stats.fisher_exact(table).pvalue))
    return min(p_values) < FALSE_ALARM / len(p_values)


def low_bit_reports(dtype: str) -> tuple[Matrix, Matrix]:
    """Reports of e1 and of e2 at (4, 1e-7)."""
    with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded"):
        client = GaussianRandomizer(2, 1.0, LOW_EPSILON, LOW_DELTA, dtype=dtype, seed=12)
    first, second = (client.randomize_rows(np.tile(x, (LOW_RUNS, 1))) for x in np.eye(2))
    return packed(first), packed(second)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_last_bits_of_a_report_do_not_name_its_record(dtype: str) -> None:
    first, second = low_bit_reports(dtype)
    assert near_zero(first).sum() > LOW_RUNS / 2
    assert not finer_than(first, FINEST).any()
    assert not finer_than(second, FINEST).any()
    assert low_bit_epsilon(first, second) <= LOW_EPSILON


def test_low_order_bits_are_equally_distributed() -> None:
    """Of integers. float32 has fewer bits of a larger number, and how large they are may depend on the record."""
    first, second = low_bit_reports("int64")
    assert finer_than(first, 39).any()
    assert not rejects_equal_low_bits(first, second)


def test_floating_point_noise_names_the_record_in_its_last_bits() -> None:
    """The control: floating-point products and noise, as reports had them. One in seven is given away."""
    rng, deviation = np.random.default_rng(13), math.sqrt(2) / mu_of(LOW_EPSILON, LOW_DELTA)
    scales = deviation * np.sqrt([1.0, 0.5, 1.0])
    first, second = (x + scales * rng.standard_normal((LOW_RUNS, 3)) for x in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0]))
    hits = finer_than(second, FINEST)[:, 0].mean()
    assert hits == pytest.approx(0.144, abs=0.005)
    assert not finer_than(first, FINEST)[:, 0].any()
    assert low_bit_epsilon(first, second) > LOW_EPSILON + 2
    assert rejects_equal_low_bits(first, second)
