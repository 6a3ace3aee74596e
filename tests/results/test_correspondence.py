"""Multiple correspondence analysis of a release: without noise that of the table of indicators."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Matrix

import dpgep

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")

TERMS: dict[str, Any] = {"bound": 1.8, "preprocessing": None, "epsilon": 1.0, "delta": 1e-6}


def people(n: int, seed: int, *, categories: tuple[int, ...] = (3, 4, 2), dependent: float = 0.5) -> pd.DataFrame:
    """Categories of which each is that of a hidden class, or any."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 3, n)
    found = {}
    for j, k in enumerate(categories):
        codes = np.where(rng.random(n) < dependent, hidden % k, rng.integers(0, k, n))
        found[f"q{j}"] = pd.Categorical.from_codes(codes, list("abcd")[:k])
    return pd.DataFrame(found).assign(age=rng.normal(40.0, 10.0, n))


TABLES = {
    "three columns": people(400, 0),
    "two columns": people(300, 1, categories=(4, 3)),
    "five columns": people(500, 2, categories=(2, 2, 3, 4, 3)),
}


def of_indicators(table: pd.DataFrame) -> tuple[Matrix, Matrix]:
    """Principal inertias and coordinates of categories, by the singular values of the table of indicators."""
    z = pd.get_dummies(table.drop(columns="age")).to_numpy(float)
    share = z / z.sum()
    row, column = share.sum(axis=1), share.sum(axis=0)
    _, values, vectors = np.linalg.svd(
        (share - np.outer(row, column)) / np.sqrt(np.outer(row, column)), full_matrices=False
    )
    return values**2, vectors[: len(values)].T * values / np.sqrt(column)[:, None]


@pytest.mark.parametrize("table", TABLES)
def test_without_noise_it_is_that_of_the_table_of_indicators(table: str) -> None:
    inertias, coordinates = of_indicators(TABLES[table])
    found = dpgep.release(TABLES[table], epsilon=math.inf).mca(n_components=3)
    np.testing.assert_allclose(found.eigenvalues, inertias[:3], rtol=1e-8)
    signs = np.sign((found.coordinates * coordinates[:, :3]).sum(axis=0))
    np.testing.assert_allclose(found.coordinates, coordinates[:, :3] * signs, rtol=1e-8, atol=1e-8)
    assert found.categories == tuple(pd.get_dummies(TABLES[table].drop(columns="age"), prefix_sep="=").columns)
    total = len(found.categories) / len(found.columns) - 1
    np.testing.assert_allclose(found.inertia_shares, inertias[:3] / total, rtol=1e-8)
    assert list(found.to_frame().columns) == ["dimension 1", "dimension 2", "dimension 3"]


def test_of_two_columns_corrected_inertias_are_those_of_their_table() -> None:
    table = TABLES["two columns"]
    share = pd.crosstab(table["q0"], table["q1"], normalize=True).to_numpy()
    expected = np.outer(share.sum(axis=1), share.sum(axis=0))
    values = np.linalg.svd((share - expected) / np.sqrt(expected), compute_uv=False)
    found = dpgep.release(table, epsilon=math.inf).mca(["q0", "q1"], n_components=2)
    np.testing.assert_allclose(found.corrected, values[:2] ** 2, rtol=1e-8)


@pytest.mark.statistical
def test_noise_is_no_dimension_and_dependence_is() -> None:
    # Without dependence the first of 20 alike is the largest with a probability of 1/20, and of 25 such tables more
    # than 10 are with one below 1e-7. The hidden class has two dimensions.
    counts = [
        dpgep.release(people(2000, seed, dependent=0.0).drop(columns="age"), **{**TERMS, "epsilon": 0.2}, seed=seed)
        .mca()
        .recommended
        for seed in range(25)
    ]
    assert np.count_nonzero(counts) <= 10
    table = people(20_000, 3, categories=(3, 3, 3))
    found = dpgep.release(table.drop(columns="age"), **TERMS, seed=3).mca(n_components=4)
    assert found.recommended == 2
    assert np.isfinite(found.high - found.low).all(axis=0).tolist() == [True, True, False, False]
    assert "2 of 4 dimensions stand out" in repr(found)
    exact, coordinates = of_indicators(table)
    np.testing.assert_allclose(found.eigenvalues[:2], exact[:2], rtol=0.1)
    plane = np.linalg.qr(coordinates[:, :2])[0]
    assert np.linalg.norm(found.coordinates[:, :2] - plane @ plane.T @ found.coordinates[:, :2]) < 0.4


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["q0"], {}, "at least two different categorical columns, got q0"),
        (["q0", "q0"], {}, "at least two different"),
        (["q0", "age"], {}, "'age' is released as a number"),
        (["q0", "q9"], {}, "no categorical column 'q9'"),
        (["q0", "q1"], {"n_components": 6}, "must be 1 to 5"),
    ],
)
def test_what_cannot_be_answered_is_refused(columns: list[str], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dpgep.release(TABLES["three columns"], epsilon=math.inf).mca(columns, **options)


def mixed(table: pd.DataFrame) -> tuple[Matrix, Matrix]:
    """Eigenvalues and coordinates of categories and numbers, by singular values of standardized columns."""
    numbers = table.select_dtypes("number").to_numpy()
    z = pd.get_dummies(table.select_dtypes("category")).to_numpy(float)
    scale = np.concatenate([np.sqrt(z.mean(axis=0)), numbers.std(axis=0)])
    rows = np.hstack([z, numbers]) / scale
    _, values, vectors = np.linalg.svd((rows - rows.mean(axis=0)) / math.sqrt(len(rows)), full_matrices=False)
    scale[z.shape[1] :] = 1.0
    return values**2, vectors.T * values / scale[:, None]


@pytest.mark.parametrize("table", TABLES)
def test_famd_without_noise_is_that_of_standardized_columns(table: str) -> None:
    rows = TABLES[table].assign(height=lambda each: each["age"] / 50 + each["q0"].cat.codes)
    values, coordinates = mixed(rows)
    found = dpgep.release(rows, epsilon=math.inf).famd(n_components=3)
    np.testing.assert_allclose(found.eigenvalues, values[:3], rtol=1e-8)
    signs = np.sign((found.coordinates * coordinates[:, :3]).sum(axis=0))
    np.testing.assert_allclose(found.coordinates, coordinates[:, :3] * signs, rtol=1e-8, atol=1e-8)
    assert found.numbers == ("age", "height")
    assert np.isclose(found.inertia_shares[0], values[0] / values.sum())
    assert list(found.to_frame().index) == [*found.categories, "age", "height"]
    with pytest.raises(ValueError, match="categories alone"):
        _ = found.corrected


@pytest.mark.statistical
def test_intervals_of_coordinates() -> None:
    # At 0.999 an interval misses once in 1000: 22 coordinates of 10 releases, correlated, miss more than 20 of 220
    # with a probability far below 1e-6, were they right. At 0.5 some must miss.
    rows = people(200_000, 9).assign(height=lambda each: each["age"] / 10 + each["q0"].cat.codes)
    exact = dpgep.release(rows, epsilon=math.inf).famd()
    missed = {0.5: 0, 0.999: 0}
    for seed in range(10):
        few = rows.sample(20_000, random_state=seed).reset_index(drop=True)
        release = dpgep.release(few, epsilon=1.0, delta=1e-6, seed=seed)
        for level in missed:
            found = release.famd(level=level)
            same = found.to_frame().index.get_indexer(exact.to_frame().index)  # without people who have no category
            truth = exact.coordinates * np.sign((found.coordinates[same] * exact.coordinates).sum(axis=0))
            missed[level] += int(np.sum((truth < found.low[same]) | (truth > found.high[same])))
    assert missed[0.999] <= 20
    assert missed[0.5] >= 22


def test_one_category_is_offered_no_mca() -> None:
    release = dpgep.release(TABLES["two columns"][["q0", "age"]], epsilon=math.inf)
    assert "mca" not in release._questions()
    assert "famd" in release._questions()
    with pytest.raises(ValueError, match="famd needs numbers and a categorical column"):
        release.famd(["age"])
