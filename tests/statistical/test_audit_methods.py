"""Every method audited: below its claim, close to it where the statistic is exact, and silent in its last bits.

A sound method exceeds its claim in one audit with probability at most 1e-7 over the choice of seeds, which are fixed.
A normal statistic at the claim mu = 3 gives a bound of 0.80 mu on average at 700 runs, with a deviation of 0.026 mu;
the part of the claim that a case must reach lies five deviations or more below what its statistic can see.
DPGEP_METHOD_RUNS sets the number of runs; benchmarks/audit_table.py measures the table of docs/audits.md.
"""

import os

import numpy as np
import pytest
from audit_cases import CONFIDENCE
from low_bit_cases import FLOAT_CONTROLS, REPORT_ATTACKS, REPORTS, float_reports, low_bit_cases, rounded_to_a_grid
from method_cases import METHODS, MU

from dpgep.auditing.bounds import classes_below
from dpgep.auditing.statistical import audit_samples
from dpgep.privacy.accounting import mu_of

pytestmark = [pytest.mark.statistical, pytest.mark.deep]

LOW_BIT_RUNS = int(os.environ.get("DPGEP_LOW_BIT_RUNS", "300"))
LOW_BITS = low_bit_cases(MU)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_keeps_its_claim_and_the_audit_comes_close(name: str) -> None:
    case = METHODS[name]()
    result = case.audit()
    assert not result.flagged
    if result.claimed_mu is not None:
        assert result.mu >= case.least * result.claimed_mu
    else:
        assert result.epsilon is not None
        assert result.claimed_epsilon is not None
        assert result.epsilon >= case.least * result.claimed_epsilon


@pytest.mark.parametrize("name", LOW_BITS)
def test_last_bits_tell_nothing(name: str) -> None:
    """Real noise leaves nothing below a sixteenth of it: whatever is found, hits on both sides are equal by chance."""
    result = LOW_BITS[name]().audit(LOW_BIT_RUNS)
    assert (result.mu, result.epsilon) == (0.0, 0.0), result


@pytest.mark.parametrize("name", REPORT_ATTACKS)
def test_last_bits_of_reports_tell_nothing(name: str) -> None:
    result = REPORT_ATTACKS[name]().audit()
    assert (result.mu, result.epsilon) == (0.0, 0.0), result


@pytest.mark.parametrize("name", FLOAT_CONTROLS)
def test_floating_point_noise_is_flagged(name: str) -> None:
    mu = mu_of(1.0, 1e-6)
    samples = FLOAT_CONTROLS[name](np.random.default_rng(1), mu, 2000)
    result = audit_samples(
        *samples, low_bits=True, confidence=CONFIDENCE, claimed_mu=mu, delta=1e-6, claimed_epsilon=1.0
    )
    assert result.mu > 2 * mu
    assert result.flagged
    public = rounded_to_a_grid(samples, 2.0**-30)
    assert audit_samples(*public, low_bits=True, confidence=CONFIDENCE).mu == 0.0


def test_one_report_in_seven_names_its_record() -> None:
    """What x x^T plus doubles does at epsilon = 4: with x_i = 1 all sums are multiples of 2^-53, with 0 few are."""
    mu, rng = mu_of(4.0, 1e-7), np.random.default_rng(2)
    first, second = float_reports(rng, np.eye(2)[0], np.eye(2)[1], mu, REPORTS)
    other, own = (classes_below(first[:, entry], -53) != 8 for entry in (2, 0))
    assert 0.140 < other.mean() < 0.146  # 0.143, six deviations of 0.0008 at most away
    assert not own.any()
    result = audit_samples(
        first, second, low_bits=True, confidence=CONFIDENCE, claimed_mu=mu, delta=1e-7, claimed_epsilon=4.0
    )
    assert result.flagged
    assert result.mu > 2.4 > 3 * mu
    assert result.epsilon is not None
    assert result.epsilon > 6.0
