"""What rounding adds to the cost of an answer, and that it is no more: docs/exactness.md, section 4."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from conftest import nothing_spent
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import dpgep
from dpgep._dispatch import core
from dpgep.data import float_sums
from dpgep.data.float_sums import CompensatedSum
from dpgep.models.model import PublicFacts
from dpgep.models.moments import MomentNoise
from dpgep.privacy.curator import Curator, shrink
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.noise import add_grid_noise
from dpgep.privacy.products import ProductNoise, Products
from dpgep.privacy.rounding import (
    MOST_PEOPLE,
    Allowance,
    covering_multiplier,
    matrix_allowance,
    moments_allowance,
    most_people,
    product_error,
    sampled_product_error,
)

UNIT = 2.0**-53


def exact_product(rows: Any, factors: Any, v: Any) -> list[Fraction]:
    """Sum (f x)(f x . v), in fractions."""
    total = [Fraction(0)] * len(v)
    for row, factor in zip(rows, factors, strict=True):
        x = [Fraction(float(entry)) * Fraction(float(factor)) for entry in row]
        dot = sum((a * Fraction(float(b)) for a, b in zip(x, v, strict=True)), start=Fraction(0))
        total = [t + dot * a for t, a in zip(total, x, strict=True)]
    return total


ADVERSARIES = {
    "all equal": lambda n, rng: np.tile([0.6, 0.8 * (1 - UNIT), 0.0], (n, 1)),
    "signs": lambda n, rng: np.tile([0.6, 0.8, 0.1], (n, 1)) * rng.choice([-1, 1], (n, 3)),
    "huge and tiny": lambda n, rng: 10.0 ** rng.integers(-300, 150, (n, 3)) * rng.choice([-1, 1], (n, 3)),
    "small steps": lambda n, rng: np.sort(rng.uniform(0, 1, (n, 3)), axis=0),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["dense", "two views", "sparse"])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_products_err_by_less_than_the_bound(name: str, form: str) -> None:
    rng = np.random.default_rng(3)
    x = ADVERSARIES[name](3000, rng)
    v = np.array([[0.6, -0.64, 0.48]])
    if form == "two views":
        problem: Any = dpgep.cca(x[:, :2], x[:, 2:], center=False, bound=1.0)
    else:
        problem = dpgep.pca(sparse.csr_array(x) if form == "sparse" else x, center=False, bound=1.0)
    products = problem.dataset.row_products()
    computed = products.second_moment(1.0).times(v)[0]
    exact = exact_product(x, products.factors, v[0])
    error = math.sqrt(sum(float(Fraction(float(c)) - e) ** 2 for c, e in zip(computed, exact, strict=True)))
    assert error <= product_error(len(x), 3, 1)
    # the bound would not hold in single precision: it is no foregone conclusion
    assert product_error(len(x), 3, 1) < 2.0**-24 * len(x)


def test_the_bound_is_one_of_many_additions() -> None:
    """It grows with people and features, and is a small part of a person's share while both are moderate."""
    assert product_error(10**5, 784, 784) < 1e-6
    assert product_error(2 * 10**5, 784, 784) > 2 * product_error(10**5, 784, 784)
    assert product_error(10**5, 10**6, 1) > 10**6 * 10**5 * UNIT
    assert sampled_product_error(10**6, 50) > 10**6 * 10**6 / 32 * UNIT


@given(mu=st.floats(1e-3, 1e3), relative=st.floats(0, 0.5), absolute=st.floats(0, 1e-4))
def test_what_is_left_costs_no_more_than_what_there_is(mu: float, relative: float, absolute: float) -> None:
    allowance = Allowance(relative, absolute)
    left = allowance.within(mu)
    cost = Fraction(left) * (1 + Fraction(relative)) + Fraction(absolute)
    assert cost <= Fraction(mu)
    assert allowance.cost(left) <= mu
    assert cost >= Fraction(mu) * (1 - Fraction(1, 10**9))


def test_a_budget_that_rounding_would_eat_is_refused_and_not_spent() -> None:
    with pytest.raises(ValueError, match="more than half of the budget"):
        Allowance(0.0, 1e-6).within(1e-6)
    with pytest.raises(ValueError, match="too large for the grid"):
        covering_multiplier(1e9, 0.0, 1000)
    budget = dpgep.Budget(mu=1e-9)
    with nothing_spent(budget), pytest.raises(ValueError, match="half of the budget"):
        dpgep.solve(dpgep.pca(np.eye(50), bound=1.0), budget=budget, method="rayleigh-flow", n_components=1)
    assert Allowance(0.1, 0.1).within(math.inf) == math.inf


def test_protected_numbers_of_people_have_a_public_bound() -> None:
    assert most_people(PublicFacts("replace-one", 1.0, None), 10**9) == 10**9
    hidden = PublicFacts("add-remove", 1.0, None)
    assert {most_people(hidden, n) for n in (1, 1000, MOST_PEOPLE)} == {MOST_PEOPLE}
    assert most_people(PublicFacts("add-remove", 1.0, MOST_PEOPLE), 5) == 4 * MOST_PEOPLE
    with pytest.raises(ValueError, match="more than 16777216 people"):
        most_people(hidden, MOST_PEOPLE + 1)


def test_sums_have_no_more_terms_than_the_bound_on_their_rounding_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(float_sums, "_MOST_TERMS", 8)
    total, other = CompensatedSum((1,)), CompensatedSum((1,))
    for _ in range(3):
        total.add(np.ones(1))
        other.add(np.ones(1))
    total += 5 * other
    total.add(np.ones(1))
    with pytest.raises(OverflowError, match="too many terms, 2\\^32 or more"):
        total.add(np.ones(1))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60))
def test_compensated_sums_are_nearly_exact(terms: list[float]) -> None:
    total, halves = CompensatedSum((1,)), [CompensatedSum((1,)) for _ in range(2)]
    for i, term in enumerate(terms):
        total.add(np.array([term]))
        halves[i % 2].add(np.array([term]))
    halves[0] += halves[1]
    for found in (total, halves[0]):
        assert abs(found.total[0] - math.fsum(terms)) <= 4 * UNIT * abs(math.fsum(terms)) + 1e4 * UNIT**2 * 1e9
    many, exact = (7 * total).total[0], 7 * sum(map(Fraction, terms))  # so many people alike
    assert abs(Fraction(many) - exact) <= 6 * UNIT * abs(exact) + Fraction(1e5 * UNIT**2 * 1e9)


# ---- The grid ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "directions"), [(50, 3), (2000, 40)])
def test_the_grid_of_the_answers_is_paid_for(d: int, directions: int) -> None:
    """Answers for two neighbours, each entry rounded by half a step away from the other's; weights are 2/s^2 across."""
    apart = 2 * math.sqrt(2 * directions * d) * 2.0**-28 / 2
    moments = moments_allowance(MomentNoise(math.sqrt(2), 0.0, 0.0), 1000, d, directions)
    matrix, _ = matrix_allowance(1.0, d, directions)
    assert apart <= moments.absolute < 2 * apart
    assert matrix.absolute >= apart


def unit_of(deviation: float) -> float:
    return 2.0 ** (math.floor(math.log2(deviation)) - 28)


@pytest.mark.parametrize("deviation", [1.0, 0.7, 1e-12, 3e30])
def test_noisy_values_lie_on_the_grid(deviation: float) -> None:
    values = deviation * np.random.default_rng(1).normal(size=(40, 40))
    symmetric = values + values.T
    noisy = add_grid_noise(values, deviation, core.NoiseStream(bytes(32)))
    matrix = add_grid_noise(symmetric, deviation, core.NoiseStream(bytes(32)), symmetric=True)
    for found, before in ((noisy, values), (matrix, symmetric)):
        steps = found / unit_of(deviation)
        np.testing.assert_array_equal(steps, np.rint(steps))
        assert 0.8 < (found - before).std() / (deviation * (1.0 if found is noisy else math.sqrt(0.5))) < 1.2
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(add_grid_noise(values, 0.0, core.NoiseStream()), values)


def test_values_out_of_range_are_the_end_of_it() -> None:
    found = add_grid_noise(np.array([1e300, -1e300]), 1.0, core.NoiseStream(bytes(32)))
    np.testing.assert_allclose(found, [2.0**33, -(2.0**33)], rtol=1e-6)


@pytest.mark.parametrize("kind", ["lazy", "fresh"])
def test_answers_for_a_coordinate_lie_on_the_grid(kind: Any) -> None:
    """e_1 has no combination to be rounded in: what is published is what was drawn."""
    problem = dpgep.pca(np.random.default_rng(2).normal(size=(64, 5)) / 3, center=False, bound=1.0)
    products = Curator(problem, Ledger(1.0), core.NoiseStream(bytes(32))).answer(Products(ProductNoise(kind, "goe", 2)))
    answer, _ = products.times(np.eye(1, 5))
    assert products.groups is not None
    steps = answer[0] / unit_of(products.groups.noise.second)
    np.testing.assert_array_equal(steps, np.rint(steps))


@given(st.integers(0, 2**32 - 1))
def test_shrinking_moves_no_two_matrices_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=(4, 4)) * 10.0 ** rng.uniform(-2, 2) for _ in range(2))
    before = np.linalg.norm(a - b)
    for matrix in (a, b):
        shrink(matrix, 5.0)
        assert np.linalg.norm(matrix) <= 5.0 * (1 + 1e-12)
    assert np.linalg.norm(a - b) <= before * (1 + 1e-12)


def test_the_radius_serves_matrices_of_many_people() -> None:
    """Of n C/(n mu) deviations: a matrix as large as its sensitivity times n."""
    for d, directions in ((100, 100), (4000, 4000)):
        allowance, radius = matrix_allowance(1.0, d, directions)
        assert allowance.absolute < 0.01
        assert radius > 1e7
