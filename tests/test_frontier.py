"""The comparators of benchmarks/frontier: what each learns of people costs what it says; each finds what there is."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "frontier"
NAMES = ["gaussian", "separate_covariance", "noisy_power", "eigenvector_sampling", "coinpress"]
NAMES += ["subsample_aggregate", "wishart", "exponential"]
MU = 0.7

Matrix = np.ndarray[Any, np.dtype[np.float64]]

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="benchmarks are part of a clone alone")


def load(name: str) -> Any:
    """A module of the folder, whose files import one another by name."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


def spiked(n: int = 4000, d: int = 6) -> Matrix:
    rows = np.random.default_rng(0).standard_normal((n, d)) * [3.0, 2.0, *[0.3] * (d - 2)]
    return np.asarray(rows / 8)


def neighbours(n: int, d: int) -> list[tuple[Matrix, Matrix]]:
    """Data sets in the unit ball that differ in their last row: random ones, and e_j for e_i."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = []
    for turn in range(40):
        last = rng.standard_normal((2, d)) if turn % 2 else np.eye(d)[[turn % d, (turn + turn // d + 1) % d]]
        last = last / np.linalg.norm(last, axis=1, keepdims=True)
        pairs.append((np.vstack([rows[:-1], last[:1]]), np.vstack([rows[:-1], last[1:]])))
    return pairs


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_a_comparator_pays_for_all_that_it_asks(name: str, k: int) -> None:
    """Every query of a run, repeated on neighbours: none moves by more than was charged; all of them compose to mu."""
    analyst = load("mechanism").Analyst.of(spiked(50, 4), 1.0, np.random.default_rng(2))
    load(name).ask(analyst, k, MU)
    assert analyst.spent == pytest.approx(MU, rel=1e-12)
    largest = {}
    for first, second in neighbours(50, 4):
        for turn, answer in enumerate(analyst.answers):
            moved = np.linalg.norm(answer.query(first) - answer.query(second), answer.norm)
            assert moved <= answer.sensitivity * (1 + 1e-12)
            largest[turn] = max(largest.get(turn, 0.0), float(moved) / answer.sensitivity)
    assert max(largest.values()) > 0.7


@pytest.mark.parametrize("name", NAMES)
def test_a_comparator_finds_components(name: str) -> None:
    found = load(name).components(spiked(), 2, 20.0, np.random.default_rng(3), 1.0)
    np.testing.assert_allclose(found @ found.T, np.eye(2), atol=1e-9)
    if name == "exponential":  # every basis of a subspace is as likely
        np.testing.assert_allclose((found.T @ found)[:2, :2], np.eye(2), atol=0.02)
    else:
        np.testing.assert_allclose(np.abs(found[:, :2]), np.eye(2), atol=0.15)


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_clipped(name: str) -> None:
    """One that is too long by far has the weight of one."""
    rows = np.vstack([spiked(), [[0.0, 0.0, 1e6, 0.0, 0.0, 0.0]]])
    found = load(name).components(rows, 1, 20.0, np.random.default_rng(3), 1.0)
    assert abs(found[0, 0]) > 0.95


def test_noise_has_the_deviation_that_is_charged() -> None:
    """20000 normal deviates: their root mean square is off by 5 % with a probability below 1e-20."""
    analyst = load("mechanism").Analyst.of(spiked(10, 6), 1.0, np.random.default_rng(4))
    zeros = np.zeros((200, 200))
    assert np.std(analyst.ask(lambda rows: zeros, 3.0, 0.5)) == pytest.approx(6.0, rel=0.05)
    noise = analyst.ask_symmetric(lambda rows: zeros, 3.0, 0.5)
    np.testing.assert_array_equal(noise, noise.T)
    assert np.std(noise[np.triu_indices(200, 1)]) == pytest.approx(6.0 / math.sqrt(2), rel=0.05)
    assert np.std(np.diagonal(noise)) == pytest.approx(6.0, rel=0.3)


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_pure_privacy_in_the_currency_of_mu(mu: float) -> None:
    """The curve of N(mu, 1) lies below that of randomized response with this epsilon, and touches it."""
    from scipy.stats import norm

    epsilon = load("mechanism").epsilon_of(mu)
    at = np.linspace(0, 1, 1001)
    pure = np.maximum(np.maximum(0, 1 - math.exp(epsilon) * at), math.exp(-epsilon) * (1 - at))
    gaussian = norm.cdf(norm.ppf(1 - at) - mu)
    assert np.all(gaussian <= pure + 1e-12)
    kink = 1 / (1 + math.exp(epsilon))
    assert norm.cdf(norm.ppf(1 - kink) - mu) == pytest.approx(kink)


def test_directions_are_drawn_from_the_law_that_is_claimed() -> None:
    """In two dimensions density exp(u^T M u) of an angle: 4000 draws against its distribution function.

    Kolmogorov and Smirnov's statistic exceeds 0.04 with a probability below 1e-5.
    """
    bingham, rng = load("eigenvector_sampling").bingham, np.random.default_rng(5)
    matrix = np.array([[2.0, 0.5], [0.5, -1.0]])
    angles = np.sort([math.atan2(*bingham(matrix, rng)[::-1]) % math.pi for _ in range(4000)])
    grid = np.linspace(0, math.pi, 20001)
    directions = np.stack([np.cos(grid), np.sin(grid)])
    density = np.exp(np.einsum("ij,ik,kj->j", directions, matrix, directions))
    distribution = np.cumsum(density) / density.sum()
    assert np.abs(np.interp(angles, grid, distribution) - (np.arange(4000) + 0.5) / 4000).max() < 0.04


def test_pure_noise_and_draws_get_what_is_charged() -> None:
    mechanism = load("mechanism")
    analyst, seen = mechanism.Analyst.of(spiked(10, 3), 1.0, np.random.default_rng(4)), []
    zeros = np.zeros((3, 3))
    analyst.ask_pure(lambda rows: zeros, "nuc", lambda epsilon: seen.append(epsilon) or zeros, 0.5)
    analyst.choose(lambda rows: zeros, lambda scores, factor: seen.append(factor) or scores, 1.5)
    assert seen == [mechanism.epsilon_of(0.5), mechanism.epsilon_of(1.5)]
    assert [(answer.sensitivity, answer.norm) for answer in analyst.answers] == [(2.0, "nuc"), (1.0, 2)]
    assert analyst.spent == pytest.approx(math.hypot(0.5, 1.5))


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
def test_the_exponential_mechanism_in_the_currency_of_mu(mu: float) -> None:
    """Laws on two points with log-ratios t and t - 2 factor: none costs more than mu, and t = factor costs it."""
    from scipy.special import expit, logit
    from scipy.stats import norm

    factor = load("mechanism").epsilon_of(mu)
    p = expit(np.linspace(-20, 20, 4001))
    costs = norm.ppf(p) - norm.ppf(expit(logit(p) - 2 * factor))
    assert costs.max() <= mu * (1 + 1e-9)
    at = expit(factor)
    assert norm.ppf(at) - norm.ppf(1 - at) == pytest.approx(mu)


def test_planes_are_drawn_from_the_law_that_is_claimed() -> None:
    """In three dimensions the normal u of a plane has density exp(-u^T M u): 5000 draws of u_3^2.

    Kolmogorov and Smirnov's statistic exceeds 0.04 with a probability below 3e-7. Uniform planes do.
    """
    matrix_bingham, rng = load("exponential").matrix_bingham, np.random.default_rng(6)
    matrix = np.diag([3.0, 1.0, -1.0])
    height, angle = np.meshgrid(np.linspace(0, 1, 1001), np.linspace(0, math.pi / 2, 201), indexing="ij")
    across = 1 - height**2
    score = across * (3.0 * np.cos(angle) ** 2 + np.sin(angle) ** 2) - height**2
    density = np.exp(-score).sum(axis=1)  # of |u_3|: uniform on the sphere
    distribution = np.cumsum(density) / density.sum()

    def distance(drawn: Matrix) -> float:
        normals = np.sort([abs(np.linalg.svd(matrix_bingham(drawn, 2, rng))[2][2, 2]) for _ in range(5000)])
        middle = (np.arange(5000) + 0.5) / 5000
        return float(np.abs(np.interp(normals, height[:, 0], distribution) - middle).max())

    assert distance(matrix) < 0.04
    assert distance(0 * matrix) > 0.2


def test_more_columns_than_exact_draws_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load("exponential"), "MOST_PROPOSALS", 1000)
    with pytest.raises(NotImplementedError, match="at most 10 columns, got 11"):
        load("exponential").components(spiked(20, 11), 2, 1.0, np.random.default_rng(7), 1.0)
    with pytest.raises(RuntimeError, match="leading eigenvalues differ too much"):
        load("exponential").matrix_bingham(np.diag([1e9, *np.zeros(9)]), 2, np.random.default_rng(7))


def test_printed_wishart_noise_shows_who_is_there() -> None:
    """2000 draws at epsilon = 1 for rows of zero: with probability 1 - e^(-1/3) what is published is not above
    e_1 e_1^T, and no data with the row e_1 can have led to it. Deviation 0.010; off by 0.06 with a probability below
    1e-8.
    """
    wishart, rng = load("wishart").wishart, np.random.default_rng(8)
    neighbour = np.diag([1.0, 0.0, 0.0, 0.0])
    shown = [np.linalg.eigvalsh(wishart(4, 1.5, rng) - neighbour)[0] < 0 for _ in range(2000)]
    assert np.mean(shown) == pytest.approx(1 - math.exp(-1 / 3), abs=0.06)


@pytest.mark.statistical
def test_repaired_wishart_noise_hides_who_is_there() -> None:
    """e_1 replaced by e_2, epsilon = 2, 20000 draws each: P(M_11 > 1.5, M_22 < -0.5) falls by a factor of at most e^2,
    and by more than e^1.2. The logarithm (1.6) has a deviation of 0.05: wrong with a probability below 1e-11. Half of
    the noise, with a logarithm of 3.3 of deviation 0.16, is found out.
    """
    noise, rng = load("wishart").noise, np.random.default_rng(9)

    def loss(epsilon: float) -> float:
        draws = np.array([np.diagonal(noise(2, epsilon, rng)) for _ in range(40000)]).reshape(2, 20000, 2)
        published = draws + np.eye(2)[:, None]  # of e_1 alone, and of e_2 alone
        seen = np.mean((published[..., 0] > 1.5) & (published[..., 1] < -0.5), axis=1)
        return math.log(seen[0] / seen[1])

    assert 1.2 < loss(2.0) < 2.0
    assert loss(4.0) > 2.3
