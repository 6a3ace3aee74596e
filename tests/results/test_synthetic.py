"""Synthetic rows: they have the released moments, made possible by the nearest correlation matrix."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Matrix
from scipy import stats
from statistics_helpers import FALSE_ALARM, rejects_covariance

import dpgep
from dpgep.models import TableModel
from dpgep.models.moments import MomentNoise, ReleasedMoments
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import Classes
from dpgep.results.synthetic import nearest_correlation, possible_covariance

NOISE = MomentNoise(0.05, 0.01, 0.01)
COVARIANCE = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, -0.4], [0.0, -0.4, 0.5]])
MEAN = np.array([1.0, -2.0, 0.5])
CLASS_MEANS = np.array([[1.0, 0.0, 2.0], [-2.0, 1.0, 0.0]])
COUNTS = np.array([0.7, 0.3])


REPORT = dpgep.PrivacyReport(1.0, 1e-6, 0.3, "replace-one", 1.0, (), True, False)


def released(
    covariance: Matrix = COVARIANCE, preprocessing: Preprocessing | None = None, names: tuple[str, ...] | None = None
) -> dpgep.Release:
    moments = ReleasedMoments(MEAN[:, None], np.ones(1), 1e4, NOISE, covariance + np.outer(MEAN, MEAN))
    return dpgep.Release(TableModel(3, feature_names=names), REPORT, moments, frozenset(), preprocessing)


def in_classes() -> dpgep.Release:
    sums = CLASS_MEANS.T * COUNTS
    moments = ReleasedMoments(sums, COUNTS, 1e4, MomentNoise(0.0, 0.0, 0.0), COVARIANCE + sums @ CLASS_MEANS)
    return dpgep.Release(TableModel(3, Classes(("well", "ill"))), REPORT, moments, frozenset())


def symmetric(rng: np.random.Generator, d: int) -> Matrix:
    """Noise on a correlation matrix, far beyond what one can be."""
    half = rng.uniform(-1, 1, (d, d))
    matrix = (half + half.T) / 1.5
    np.fill_diagonal(matrix, 1.0)
    return np.asarray(matrix)


def positive_part(matrix: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def alternating_projections(matrix: Matrix, steps: int = 3000) -> Matrix:
    """Higham (2002), algorithm 3.3: the plain way to the nearest correlation matrix."""
    y, correction = matrix.copy(), np.zeros_like(matrix)
    for _ in range(steps):
        x = positive_part(y - correction)
        correction = x - (y - correction)
        y = x.copy()
        np.fill_diagonal(y, 1.0)
    return y


def test_the_example_of_higham() -> None:
    """Higham (2002), section 4: to the digits printed there."""
    found = nearest_correlation(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]))
    np.testing.assert_allclose(found[[0, 0, 1], [1, 2, 2]], [0.7607, 0.1573, 0.7607], atol=5e-5)


@pytest.mark.parametrize("d", [2, 5, 12])
def test_the_nearest_correlation(d: int, rng: np.random.Generator) -> None:
    matrix = symmetric(rng, d) if d > 2 else np.array([[1.0, 1.5], [1.5, 1.0]])
    found = nearest_correlation(matrix)
    np.testing.assert_array_equal(np.diagonal(found), 1.0)
    np.testing.assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found)[0] > -1e-12
    np.testing.assert_allclose(found, alternating_projections(matrix), atol=1e-5)
    np.testing.assert_allclose(nearest_correlation(found), found, atol=1e-5)  # idempotent
    # the projection onto a convex set makes no acute angle with any way into it
    for _ in range(20):
        other = np.corrcoef(rng.standard_normal((d, 2 * d)))
        assert np.sum((matrix - found) * (other - found)) < 1e-5 * np.linalg.norm(other - found)
    simple = positive_part(matrix)
    simple /= np.sqrt(np.outer(np.diagonal(simple), np.diagonal(simple)))
    if d > 2:
        assert np.linalg.norm(matrix - found) < 0.999 * np.linalg.norm(matrix - simple)


def test_a_correlation_matrix_stays(rng: np.random.Generator) -> None:
    matrix = np.corrcoef(rng.standard_normal((8, 40)))
    np.testing.assert_array_equal(nearest_correlation(matrix)[np.triu_indices(8, 1)], matrix[np.triu_indices(8, 1)])
    assert nearest_correlation(np.empty((0, 0))).shape == (0, 0)


def test_deviations_are_kept_and_columns_in_the_noise_have_no_correlations() -> None:
    covariance = np.diag([4.0, 9.0, -0.1, 0.3])
    covariance[0, 1] = covariance[1, 0] = 12.0  # a correlation of 2
    covariance[1, 3] = covariance[3, 1] = 0.5
    found = possible_covariance(covariance, np.full(4, 0.1))
    np.testing.assert_allclose(found, [[4, 6, 0, 0], [6, 9, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0.3]], atol=1e-5)
    known = possible_covariance(covariance[1:, 1:], np.zeros(3))
    np.testing.assert_array_equal(known, [[9, 0, 0.5], [0, 0, 0], [0.5, 0, 0.3]])


@pytest.mark.statistical
@pytest.mark.parametrize("impossible", [False, True])
def test_rows_have_the_released_moments(impossible: bool) -> None:
    """Of 100000 Gaussian rows, by exact chi-square tests, probability of a false alarm 1e-6; the mean by another."""
    covariance = COVARIANCE.copy()
    if impossible:
        covariance[0, 1] = covariance[1, 0] = 3.0
    target = possible_covariance(covariance, np.full(3, NOISE.second))
    rows = released(covariance).sample(100_000, seed=1)
    # along a null space that is only one up to the tolerance of the correlation, so a rounding larger than 1e-12
    wide = target + 1e-9 * np.eye(3)
    centred = rows - MEAN + 1e-4 * math.sqrt(0.1) * np.random.default_rng(2).standard_normal(rows.shape)
    assert not rejects_covariance(centred, wide)
    assert rejects_covariance(centred, wide * 1.05)
    errors = (rows.mean(axis=0) - MEAN) / np.sqrt(np.diagonal(target) / len(rows))
    assert (np.abs(errors) < stats.norm.isf(FALSE_ALARM / 6)).all()


@pytest.mark.statistical
def test_rows_of_classes() -> None:
    """Shares (binomial) and rows around their class's mean (chi-square): probability of a false alarm 1e-6 each."""
    n = 100_000
    rows, labels = in_classes().sample(n, seed=1)
    ill = labels == "ill"
    assert stats.binomtest(int(ill.sum()), n, COUNTS[1]).pvalue > FALSE_ALARM
    centred = rows - np.where(ill[:, None], CLASS_MEANS[1], CLASS_MEANS[0])
    assert not rejects_covariance(centred, COVARIANCE)
    assert rejects_covariance(rows - rows.mean(axis=0), COVARIANCE)  # the classes' means differ
    for which, mean in zip((~ill, ill), CLASS_MEANS, strict=True):
        errors = (rows[which].mean(axis=0) - mean) / np.sqrt(np.diagonal(COVARIANCE) / which.sum())
        assert (np.abs(errors) < stats.norm.isf(FALSE_ALARM / 6)).all()


def test_rows_are_in_the_units_of_the_columns() -> None:
    """The same draws, mapped: x has mean and covariance of scale * z + location."""
    scale, location = np.array([2.0, 0.5, 10.0]), np.array([1.0, 2.0, 3.0])
    rows = released(preprocessing=Preprocessing(10.0, location, scale)).sample(50_000, seed=1)
    assert not rejects_covariance(rows - (MEAN * scale + location), COVARIANCE * np.outer(scale, scale))


def test_ranges_clip_and_names_make_a_table() -> None:
    release = released(names=("age", "dose", "c"))
    frame = release.sample(500, seed=1, ranges={"age": (0, 2), 1: (-2, -1)})
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["age", "dose", "c"]
    assert (frame["age"].min(), frame["age"].max()) == (0, 2)
    assert (frame["dose"].min(), frame["dose"].max()) == (-2, -1)
    plain = released().sample(500, seed=1)
    np.testing.assert_array_equal(plain[:, 2], frame["c"])
    np.testing.assert_array_equal(np.clip(plain[:, 0], 0, 2), frame["age"])


def test_a_seed_repeats_the_rows() -> None:
    np.testing.assert_array_equal(released().sample(5, seed=1), released().sample(5, seed=1))
    assert (released().sample(5, seed=1) != released().sample(5, seed=2)).all()
    assert (released().sample(5) != released().sample(5)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n must be a whole number of at least 1, got 0"),
        ({"ranges": {3: (0, 1)}}, "ranges are of columns 0 to 2, not of 3"),
        ({"ranges": {0: (0, 1e200)}}, "must be (low, high), ascending, of numbers up to 3e150, got (0, 1e+200)"),
        ({"ranges": {0: (1, 0)}}, "must be (low, high), ascending, of numbers up to 3e150"),
    ],
)
def test_what_is_wrong_is_said(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        released().sample(**{"n": 5, "seed": 1, **arguments})


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_columns_whose_squares_overflow(unit: float) -> None:
    x = np.random.default_rng(0).standard_normal((2000, 2))
    release = dpgep.release(pd.DataFrame({"far": x[:, 0] * unit, "near": x @ [1.0, 1.0]}), epsilon=math.inf)
    with np.errstate(all="raise"):
        rows = release.sample(4000, seed=0)
    assert abs(np.corrcoef(rows["far"] / unit, rows["near"])[0, 1] - math.sqrt(0.5)) < 0.1
