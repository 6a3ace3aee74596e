"""Printed calibrations that do not hold, and two mistakes: the same audit flags each of them, and not its correction.

A correct mechanism is flagged with probability at most 1e-7 over the choice of seeds; seeds are fixed. What a control
gets wrong is also asserted in closed form, so that it cannot be flagged for another reason.
"""

import math

import numpy as np
import printed_mechanisms as printed
import pytest
from audit_cases import (
    BETWEEN,
    CONTROLS,
    CORRECTED,
    WITHIN,
    XI,
    chen_pair,
    hu_pair,
    local_below_the_threshold,
    quantile_data,
)

import dpgep
from dpgep.privacy.accounting import delta_of

pytestmark = [pytest.mark.statistical, pytest.mark.deep]


@pytest.mark.parametrize("name", CONTROLS)
def test_control_is_flagged(name: str) -> None:
    result = CONTROLS[name]().audit()
    assert result.claimed_epsilon is not None or result.claimed_mu is not None
    assert result.flagged


@pytest.mark.parametrize("name", CORRECTED)
def test_correction_is_not_flagged(name: str) -> None:
    result = CORRECTED[name]().audit()
    assert result.claimed_epsilon is not None or result.claimed_mu is not None
    assert not result.flagged


def test_every_control_has_a_correction() -> None:
    assert list(CONTROLS) == list(CORRECTED)


def test_local_mechanism_passes_at_small_epsilon() -> None:
    # there its classical calibration is loose by more than sqrt 2: no audit can refute what happens to be true
    assert not local_below_the_threshold().audit().flagged
    deviation = printed.classical_deviation(1.0, 2.0, 1e-5)
    assert delta_of(2.0, math.sqrt(2) / deviation) == pytest.approx(1.2e-4, rel=0.02)
    assert delta_of(0.25, math.sqrt(2) / printed.classical_deviation(1.0, 0.25, 1e-5)) < 1e-5
    assert delta_of(0.5, math.sqrt(2) / printed.classical_deviation(1.0, 0.5, 1e-5)) > 1.4e-5


def test_rho_of_the_printed_fda_constants() -> None:
    first, second = (printed.hu_fda(*data) for data in hu_pair())
    moved_a, moved_b = (400 * (after - before) for before, after in ((first.a, second.a), (first.b, second.b)))
    assert np.linalg.norm(moved_a) <= WITHIN
    assert np.linalg.norm(moved_b) <= 3 * math.sqrt(2)

    def spent(c1: float, c2: float) -> float:
        """Of rho, in one release of both: upper triangles, each calibrated to rho."""
        return float((np.triu(moved_a) ** 2).sum() / c1**2 + (np.triu(moved_b) ** 2).sum() / c2**2)

    assert spent(WITHIN, 3 * math.sqrt(2)) == pytest.approx(1.98, abs=0.01)
    assert spent(4, 7) == pytest.approx(2.34, abs=0.01)
    assert spent(7, 4) / 2 == pytest.approx(0.88, abs=0.01)


def test_dpsr_returns_exact_eigenvalues() -> None:
    pair = chen_pair()[0]
    output = printed.printed_dpsr(
        pair, c1=2 * WITHIN, c2=2 * BETWEEN, epsilon=1.0, delta=1e-5, xi=XI, iterations=3, rng=np.random.default_rng(0)
    )
    directions, singular, _ = np.linalg.svd(output)
    exact = np.einsum("ij,ij->j", directions, pair.b @ directions)
    np.testing.assert_allclose(singular**-2.0 - XI, exact, atol=1e-12)


def test_dpsr_gradient_moves_more_than_its_sensitivity() -> None:
    x, labels = np.repeat([1.0, -1.0], 500)[:, None], np.repeat([0, 1], 500)
    flipped = x.copy()
    flipped[0] = -1.0
    before, after = (printed.chen_fda(rows, labels) for rows in (x, flipped))
    shift = 2 * abs(after.a / (after.b + XI) - before.a / (before.b + XI))[0, 0]
    assert shift == pytest.approx(57.6, abs=0.1)
    assert 2 * BETWEEN / (1000 * XI) == 1.6


def test_quantile_slices_move_the_scatter_by_18() -> None:
    (x, y), (x_prime, y_prime) = quantile_data()
    assert (np.abs(x - x_prime).max(axis=1) + np.abs(y - y_prime) > 0).sum() == 1
    scatter = [
        printed.printed_quantile_within_scatter(rows, response, slices=6, deviation=0.0, rng=None)
        for rows, response in ((x, y), (x_prime, y_prime))
    ]
    assert 24 * np.linalg.norm(scatter[1] - scatter[0]) == pytest.approx(18.0)
    edges = np.linspace(0, 1, 7)[1:-1]
    fixed = [
        printed.within_scatter(rows, np.searchsorted(edges, response, side="right").astype(np.intp))
        for rows, response in ((x, y), (x_prime, y_prime))
    ]
    assert 24 * np.linalg.norm(fixed[1] - fixed[0]) <= WITHIN


def test_package_refuses_edges_from_data() -> None:
    (x, y), _ = quantile_data()
    with pytest.raises(ValueError, match="slices need a public range"):
        dpgep.sir(x, y, slices=6, bound=1.0)
