"""Quantiles by noisy histograms: in their cell whatever people there are; how often intervals hold; who has them."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpgep
from dpgep.models.bins import Histograms, Magnitudes

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
QUARTILES = [0.25, 0.5, 0.75]
LAWS = {
    "normal": lambda rng, n: rng.normal(45, 15, n),
    "log-normal": lambda rng, n: np.exp(1.5 * rng.standard_normal(n)),
    "counts": lambda rng, n: rng.poisson(2.2, n).astype(float),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.6, 0.0, rng.normal(0, 9, n)),
}


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=40),
    st.lists(st.integers(-30, 30), min_size=2, max_size=9, unique=True),
    st.sampled_from(QUARTILES),
)
def test_without_noise_a_quantile_is_in_its_interval(values: list[int], ends: list[int], share: float) -> None:
    edges = np.array([-math.inf, *sorted(ends), math.inf])
    counts = np.histogram(values, np.clip(edges, -99, 99))[0]
    value, low, high = Histograms(edges[None], counts[None], np.zeros(1)).quantiles(share, 0.9)[0]
    assert low <= np.quantile(values, share, method="inverted_cdf") <= high
    assert low <= value <= high
    assert np.isfinite(value)


def test_intervals_hold_as_often_as_they_say() -> None:
    """400 draws of a sample and of noise: more than 320 and fewer than 396 with a probability of 1 - 1e-6 for 0.9."""
    rng, edges, n, deviation = np.random.default_rng(1), np.linspace(-2, 2, 129), 4000, 9.0
    truth = -0.6744897501960817
    rows = rng.standard_normal((400, n))
    counts = np.array([np.histogram(np.clip(row, -1.999, 1.999), edges)[0] for row in rows])
    noisy = counts + deviation * rng.standard_normal(counts.shape)
    found = Histograms(np.tile(edges, (400, 1)), noisy, np.full(400, deviation)).quantiles(0.25, 0.9)
    held = (found[:, 1] <= truth) & (truth <= found[:, 2])
    assert 320 < held.sum() < 396
    drowned = Histograms(edges[None], noisy[:1], np.full(1, 100.0)).quantiles(0.25, 0.9)
    np.testing.assert_equal(drowned[0], [np.nan, -np.inf, np.inf])


@pytest.mark.parametrize("places", [(0.0, 1.0, 2.0), (0.3, 1.3, 2.3)])
def test_intervals_hold_quartiles_of_columns_with_few_values(places: tuple[float, ...]) -> None:
    """A quarter of the people have more than the first, if only just: below 320 with a probability of 1e-6 for 0.9."""
    rng, edges, deviation = np.random.default_rng(1), np.linspace(-0.5, 3, 65), 20.0
    counts = np.histogram(places, edges, weights=[7440, 1740, 820])[0]
    noisy = counts + deviation * rng.standard_normal((400, 64))
    found = Histograms(np.tile(edges, (400, 1)), noisy, np.full(400, deviation)).quantiles(0.75, 0.9)
    assert ((found[:, 1] <= places[1]) & (places[1] <= found[:, 2])).sum() > 320


def test_octaves_are_cells_of_both_signs_about_zero() -> None:
    counts = np.array([[[1.0, 2.0], [3.0, 4.0]]])
    cells = Magnitudes(1, counts, 0.5, 15, np.array([5.0])).histograms
    np.testing.assert_array_equal(cells.edges, [[-8, -4, -2, 0, 0, 2, 4, 8]])
    np.testing.assert_array_equal(cells.counts, [[4, 3, 0, 5, 0, 1, 2]])
    for wrong in ({"zeros": np.zeros(2)}, {"zeros": np.full(1, np.nan)}):
        with pytest.raises(ValueError, match="zeros of magnitudes"):
            Magnitudes(1, counts, 0.5, 15, **wrong)
    with pytest.raises(ValueError, match="ascending edges"):
        Histograms(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(ValueError, match="finite counts"):  # their sum is not
        Histograms(np.arange(3.0)[None], np.full((1, 2), 1e308), np.zeros(1))
    for none in (np.zeros((1, 2, 0)), np.full((1, 2, 2), 1e308)):
        with pytest.raises(ValueError, match="counts of magnitudes"):
            Magnitudes(1, none, 0.5, 15)


def people(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: law(rng, n) for name, law in LAWS.items()})
    table["sex"] = pd.Categorical(rng.choice(["F", "M"], n), categories=["F", "M"])
    return table


def quartiles(found: Any) -> np.ndarray:
    frame = found.to_frame()
    return np.array([frame[[f"{q:.0%}{end}" for end in ("", " low", " high")]].to_numpy() for q in QUARTILES])


@pytest.mark.parametrize("epsilon", [math.inf, 2.0])
def test_quartiles_of_a_release_hold_those_of_pandas(epsilon: float) -> None:
    """By octaves, and more finely where they were bought, at a share of mu^2 in the ledger; categories have none."""
    table, form = people(20_000), {"epsilon": epsilon, "delta": 1e-6}
    wanted = table[list(LAWS)].quantile(QUARTILES).to_numpy()
    auto = dpgep.AutoPreprocessing(quartiles=0.1)
    rough, fine = dpgep.release(table, **form), dpgep.release(table, preprocessing=auto, **form)
    widths = []
    for release in (rough, fine):
        found = quartiles(release.describe())[:, : len(LAWS)]
        held = (found[:, :, 1] <= wanted) & (wanted <= found[:, :, 2])
        assert held.sum() >= (12 if math.isinf(epsilon) else 10)
        widths.append((found[:, :, 2] - found[:, :, 1]) / table[list(LAWS)].std().to_numpy())
        assert np.isnan(quartiles(release.describe(["sex"]))[:, :, 0]).all()
        kept = io.BytesIO()
        release.save(kept)
        again = dpgep.load(kept.getvalue()).describe()
        np.testing.assert_array_equal(quartiles(again), quartiles(release.describe()))
    assert np.median(widths[1]) < np.median(widths[0]) / 2
    if epsilon == 2.0:
        spent = [
            entry.mu**2 for entry in fine.report.releases if entry.query == "histograms of columns within intervals"
        ]
        assert spent[-1] == pytest.approx(0.1 * fine.report.mu**2)
        assert fine.report.mu == rough.report.mu


def test_who_has_no_quartiles_says_so() -> None:
    table, form = people(3000), {"epsilon": 3.0, "delta": 1e-6}
    bought = dpgep.release(table, **form)
    other = people(2000)
    groups = dpgep.release(table[["normal"]], table["sex"], classes=["F", "M"], by_group=True, **form)
    map_of_others = dpgep.release(other, preprocessing=bought.preprocessing, **form)
    unknown = [dpgep.release(table.drop(columns="sex"), bound=200.0, **form), groups.of_group("F"), map_of_others]
    for release in unknown:
        assert "quartiles unknown" in str(release.describe())
        assert "%" not in str(release.describe()).splitlines()[-2].replace("90%", "")
        assert np.isnan(quartiles(release.describe())[:, :, 0]).all()
    assert "25%" in str(bought.describe())
    assert "25%" in bought.describe()._repr_html_()
    with pytest.raises(ValueError, match="quartiles"):
        dpgep.AutoPreprocessing(quartiles=0.1, precondition=None)
    with pytest.raises(ValueError, match="leaves too little"):
        dpgep.release(table, preprocessing=dpgep.AutoPreprocessing(quartiles=0.8), **form)
