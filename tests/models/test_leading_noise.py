"""The leading eigenvalue of noise alone, from few numbers: against the matrices that it stands for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from conftest import Matrix

from dpgep.methods.eigen import null_eigenvalue
from dpgep.models import FdaModel, GepModel, PcaModel, ReleasedMatrices, SirModel
from dpgep.models.moments import MomentNoise, ReleasedGroups, ReleasedMoments
from dpgep.models.null import leading_of_noise

N_DRAWS = 2000
# Two samples of N_DRAWS from one law differ by as much with a probability of at most 2 exp(-2.75^2 2) = 6e-7
# (Kolmogorov and Smirnov), for each comparison below.
FURTHEST = 2.75 * math.sqrt(2 / N_DRAWS)


def with_mean(d: int, size: float, noise: float, rng: np.random.Generator) -> ReleasedGroups:
    """A mean of this norm, with the noise that a release has: twice as large in sums as in the second moment."""
    mean = rng.standard_normal((d, 1))
    mean *= size / np.linalg.norm(mean)
    return ReleasedGroups(mean, np.ones(1), 1000.0, MomentNoise(noise, 2 * noise, 0.0))


def from_matrices(model: Any, released: Any, seed: int, n_draws: int, basis: Matrix | None = None) -> Matrix:
    d = model.n_features
    basis = np.eye(d) if basis is None else basis
    draws = model.noisy(released).noise_alone(np.zeros(d), np.random.default_rng(seed), n_draws)
    spectra = np.array([np.linalg.eigvalsh(basis.T @ noise @ basis) for noise in draws])
    return np.array([values[-1] - null_eigenvalue(model, values) for values in spectra])


def distance(one: Matrix, other: Matrix) -> float:
    return float(scipy.stats.ks_2samp(one, other, method="asymp").statistic)


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "size"), [(2, 0.0), (2, 0.5), (5, 0.0), (5, 0.25), (5, 1.0), (20, 0.5), (20, 1.0)])
def test_a_tridiagonal_matrix_has_the_law_of_the_noise(d: int, size: float, rng: np.random.Generator) -> None:
    """Noise is small, so that -e e^T, which is left out, is nothing; sizes are steps of those that are rounded up."""
    noise = 1e-6
    released = with_mean(d, size, noise, rng)
    found = PcaModel(d, True).noisy(released).leading_noise(np.zeros(d), None, 1, N_DRAWS)
    wanted = from_matrices(PcaModel(d, True), released, 2, N_DRAWS)
    assert distance(found, wanted) < FURTHEST
    if size >= 0.5:  # a law without the noise of the mean is told from it
        assert distance(noise * leading_of_noise(d, 0, 1, N_DRAWS), wanted) > 2 * FURTHEST


@pytest.mark.statistical
def test_a_corner_is_enough_of_a_large_matrix() -> None:
    """200 dimensions, of which 87 are drawn."""
    released = ReleasedMatrices(np.eye(200), None, 1.0, 0.0)
    found = leading_of_noise(200, 0, 1, 500)
    wanted = from_matrices(GepModel(200), released, 2, 500)
    assert distance(found, wanted) < 2.75 * math.sqrt(2 / 500)
    assert distance(leading_of_noise(195, 0, 1, 500), wanted) > 2.75 * math.sqrt(2 / 500)


@pytest.mark.statistical
@pytest.mark.parametrize("size", [0.1, 0.33, 0.9])
def test_what_is_left_out_makes_the_edge_larger(size: float, rng: np.random.Generator) -> None:
    """Noise of 3 % of the bound. A mean of N_DRAWS that is smaller by 5 deviations has a probability of 3e-7."""
    released = with_mean(12, size, 0.03, rng)
    found = PcaModel(12, True).noisy(released).leading_noise(np.zeros(12), None, 1, N_DRAWS)
    wanted = from_matrices(PcaModel(12, True), released, 2, N_DRAWS)
    deviation = math.sqrt((found.var() + wanted.var()) / N_DRAWS)
    assert found.mean() > wanted.mean() - 5 * deviation
    assert found.mean() < 1.15 * wanted.mean()


@pytest.mark.statistical
def test_a_sparse_basis_sees_its_part_of_the_mean(rng: np.random.Generator) -> None:
    released = with_mean(9, 1.0, 1e-6, rng)
    basis = np.linalg.qr(rng.standard_normal((9, 3)))[0]
    part = float(np.linalg.norm(released.sums[:, 0] @ basis))
    released = ReleasedGroups(released.sums * 0.5 / part, released.counts, released.n, released.noise)
    found = PcaModel(9, True).noisy(released).leading_noise(np.zeros(3), basis, 1, N_DRAWS)
    assert distance(found, from_matrices(PcaModel(9, True), released, 2, N_DRAWS, basis)) < FURTHEST


@pytest.mark.statistical
def test_a_pair_with_the_identity(rng: np.random.Generator) -> None:
    released = ReleasedMatrices(np.eye(6), None, 0.01, 0.0)
    found = GepModel(6).noisy(released).leading_noise(np.ones(6), None, 1, N_DRAWS)
    assert found is not None
    assert distance(found, from_matrices(GepModel(6), released, 2, N_DRAWS)) < FURTHEST
    assert distance(1.2 * found, from_matrices(GepModel(6), released, 2, N_DRAWS)) > FURTHEST
    noisy_b = ReleasedMatrices(np.eye(6), np.eye(6), 0.01, 0.01)
    assert GepModel(6).noisy(noisy_b).leading_noise(np.ones(6), None, 1, N_DRAWS) is None


def test_one_dimension_has_no_noise_about_its_mean() -> None:
    assert not leading_of_noise(1, 8, 1, 4).any()


def test_draws_are_the_same_in_every_call_and_nobody_changes_them() -> None:
    first = leading_of_noise(7, 5, 5, 8)
    with pytest.raises(ValueError, match="read-only"):
        first *= 0
    leading_of_noise.cache_clear()
    np.testing.assert_array_equal(leading_of_noise(7, 5, 5, 8), first)
    assert (leading_of_noise(7, 5, 6, 8) != first).all()


@pytest.mark.parametrize("d", [2, 3, 10])
@pytest.mark.parametrize("model", ["fda", "sir"])
def test_a_scatter_of_means_is_found_by_its_rank(model: str, d: int, rng: np.random.Generator) -> None:
    """The same draws as of matrices, in any basis: groups of which one is nearly empty, with a noisy count."""
    asked: Any = FdaModel(d, (0, 1, 2, 3)) if model == "fda" else SirModel(d, (-1.0, 0.0, 1.0))
    counts = np.array([0.5, 0.3, 0.2, 0.001])
    sums, noise = rng.standard_normal((d, 4)) / 9, MomentNoise(0.01, 0.01, 0.02)
    released = ReleasedMoments(sums, counts, 500.0, noise, second=np.zeros((d, d)))
    for basis in (None, rng.standard_normal((d, d)), rng.standard_normal((d, 2))):
        found = asked.noisy(released).leading_noise(np.zeros(d), basis, 3, 6)
        wanted = np.maximum(from_matrices(asked, released, 3, 6, basis), 0.0)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
        assert wanted.any()
