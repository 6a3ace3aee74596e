"""Laws of reports and their sums, and an audit of the guarantee; each with a control that must fail.

False alarms: see statistics_helpers; the audits are at confidence 1 - 1e-7.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Matrix
from statistics_helpers import rejects_covariance, rejects_equal_distributions, rejects_normality, seeded_key

import dpgep
from dpgep import reference
from dpgep._dispatch import core
from dpgep.audit import AuditResult, audit_samples
from dpgep.local import Aggregator, GaussianRandomizer, ReportBatch
from dpgep.privacy.accounting import mu_of

pytestmark = pytest.mark.statistical

KINDS: dict[str, dict[str, Any]] = {"float64": {}, "float32": {"dtype": "float32"}, "int64": {"exact": True}}
EPSILON, DELTA = 2.0, 1e-5
DEVIATION = math.sqrt(2) / mu_of(EPSILON, DELTA)


def randomizer(dim: int, seed: int, **options: Any) -> GaussianRandomizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.PrivacyWarning)
        return GaussianRandomizer(dim, 1.0, EPSILON, DELTA, seed=seed, **options)


def packed(batch: ReportBatch) -> Matrix:
    return np.asarray(batch.values * batch.mechanism.unit, dtype=np.float64)


def goe_covariance(d: int, deviation: float) -> Matrix:
    """Of the upper triangle of GOE(deviation)."""
    variances = reference.pack(np.full((d, d), 0.5) + 0.5 * np.eye(d))
    return np.diag(deviation**2 * variances)


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_the_squared_record_plus_goe(kind: str) -> None:
    d, n = 4, 20_000
    x = np.array([0.1, -0.4, 0.2, 0.7])
    values = packed(randomizer(d, 1, **KINDS[kind]).randomize_rows(np.tile(x, (n, 1))))
    noise = values - reference.pack(np.outer(x, x))
    covariance = goe_covariance(d, DEVIATION)
    assert not rejects_covariance(noise, covariance)
    assert not rejects_normality(noise / np.sqrt(np.diagonal(covariance)))
    # sensitivity 1, independent noise of one variance, and a few per cent less are all seen
    assert rejects_covariance(noise, goe_covariance(d, DEVIATION / math.sqrt(2)))
    assert rejects_covariance(noise, np.diag(np.full(10, DEVIATION**2)))
    assert rejects_covariance(noise, goe_covariance(d, 0.95 * DEVIATION))


@pytest.mark.parametrize("kind", KINDS)
def test_the_mean_of_reports_is_unbiased(kind: str) -> None:
    d, n = 3, 200_000
    x = np.array([0.6, 0.8, 0.0])
    values = packed(randomizer(d, 2, **KINDS[kind]).randomize_rows(np.tile(2 * x, (n, 1)))).mean(axis=0)
    covariance = goe_covariance(d, DEVIATION / math.sqrt(n))
    assert not rejects_covariance((values - reference.pack(np.outer(x, x)))[None, :], covariance)
    # a record that is not clipped, or shrunk by a tenth too much
    for factor in (2.0, 0.9):
        assert rejects_covariance((values - reference.pack(np.outer(factor * x, factor * x)))[None, :], covariance)


def many_aggregates(rows: Matrix, runs: int, client: GaussianRandomizer) -> Matrix:
    """Upper triangles of the means of ``runs`` aggregations."""
    d, means = rows.shape[1], []
    for _ in range(runs):
        server = Aggregator(d, 1.0, EPSILON, DELTA, exact=client.mechanism.bits is not None)
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


@pytest.mark.parametrize("kind", KINDS)
def test_n_reports_are_one_draw(kind: str) -> None:
    n, runs = 9, 4000
    rows = np.random.default_rng(3).standard_normal((n, 3)) / 4
    means = many_aggregates(rows, runs, randomizer(3, 4, **KINDS[kind]))
    # also of combinations, which see correlations
    mix = np.random.default_rng(5).standard_normal((6, 6))
    single = one_draw(rows, runs, DEVIATION / math.sqrt(n), 6)
    assert not rejects_equal_distributions(means @ mix, single @ mix)
    assert rejects_equal_distributions(means @ mix, one_draw(rows, runs, 0.8 * DEVIATION / math.sqrt(n), 6) @ mix)


def audit_of(client: GaussianRandomizer, runs: int = 60_000) -> AuditResult:
    """e1 against e2 by the most powerful statistic, of what arrives as bytes."""

    def samples(record: list[float]) -> Matrix:
        sent = client.randomize_rows(np.tile(record, (runs, 1))).to_bytes()
        values = packed(ReportBatch.from_bytes(sent))
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_guarantee_survives_an_audit_and_hardly_more_noise_than_needed(kind: str) -> None:
    result = audit_of(randomizer(2, 9, **KINDS[kind]))
    assert not result.flagged
    assert result.epsilon is not None
    assert result.epsilon > 0.9 * EPSILON


def test_the_audit_flags_sensitivity_one() -> None:
    """As printed by Wang and Xu but for the calibration, which is exact here. Their own mechanism: audit_cases.py."""
    client = randomizer(2, 10)
    client.mechanism = replace(client.mechanism, deviation=client.mechanism.deviation / math.sqrt(2))
    result = audit_of(client)
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
