"""Group means from released sums and counts: what noise drowns is shrunk, counts are held above their noise."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import Matrix

from dpgep.models.moments import MomentNoise, ReleasedGroups, effective_counts, group_factors


def released(sums: Matrix, counts: list[float], noise_of_sums: float, noise_of_counts: float) -> ReleasedGroups:
    return ReleasedGroups(sums, np.array(counts), 100.0, MomentNoise(1.0, noise_of_sums, noise_of_counts))


@pytest.mark.parametrize(("noise", "expected"), [(0.05, [0.5, 0.06, 0.05, 0.05]), (0.0, [0.5, 0.06, 0.02, 0.01])])
def test_a_count_is_at_least_one_person_and_one_deviation_of_its_noise(noise: float, expected: list[float]) -> None:
    counts = effective_counts(released(np.ones((3, 4)), [0.5, 0.06, 0.02, -0.2], 0.0, noise))
    np.testing.assert_allclose(counts, expected)
    np.testing.assert_allclose(
        group_factors(released(np.ones((3, 4)), [0.5, 0.06, 0.02, -0.2], 0.0, noise))[1], 1 / counts
    )


def test_sums_are_shrunk_by_the_factor_of_james_and_stein() -> None:
    """1 - (d - 2) s^2/|S|^2, at least 0: for d = 5, s = 1 and |S|^2 = 25, 1 and 3."""
    sums = np.zeros((5, 3))
    sums[:2, 0], sums[0, 1], sums[:3, 2] = (3.0, 4.0), 1.0, 1.0
    rows, _ = group_factors(released(sums, [0.3, 0.3, 0.4], 1.0, 0.0))
    np.testing.assert_allclose(rows, sums.T * [[0.88], [0.0], [0.0]], atol=1e-15)
    for d in (1, 2):  # where the factor would be 1 or more, nothing is shrunk, and nothing made longer
        few = sums[:d]
        np.testing.assert_array_equal(group_factors(released(few, [0.3, 0.3, 0.4], 1.0, 0.0))[0], few.T)
    np.testing.assert_array_equal(group_factors(released(sums, [0.3, 0.3, 0.4], 0.0, 0.0))[0], sums.T)
