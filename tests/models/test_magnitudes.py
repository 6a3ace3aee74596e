"""What octaves of a column's values show of its tails: against the rows themselves, and what releases say of them."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest

import dpgep
from dpgep.models.bins import Magnitudes

LAWS = {
    "log-normal": lambda rng, n: np.exp(5 + rng.standard_normal(n)),
    "below zero": lambda rng, n: -np.exp(5 + rng.standard_normal(n)),
    "exponential": lambda rng, n: rng.exponential(100.0, n),
    "pareto": lambda rng, n: 100 * rng.pareto(4, n),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.85, 0.0, np.exp(5 + rng.standard_normal(n))),
    "98 for unknown": lambda rng, n: np.where(rng.random(n) < 0.01, 98.0, rng.integers(1, 17, n)),
}


def counted(x: np.ndarray, deviation: float = 0.0) -> Magnitudes:
    """One column's people by octave from 2^-6 on."""
    octaves = np.floor(np.log2(np.abs(x), out=np.full(len(x), -99.0), where=x != 0)).astype(int)
    counts = np.stack([[((octaves == e) & (sign * x > 0)).sum() for e in range(-6, 20)] for sign in (1, -1)])
    return Magnitudes(-6, counts[None].astype(float), deviation, len(x))


@pytest.mark.parametrize("law", LAWS)
def test_octaves_show_what_a_bound_takes_from_a_tail(law: str) -> None:
    """With noise that hides the last octaves, within a factor of two of what rows beyond it lose."""
    rng, n, bound = np.random.default_rng(3), 200_000, 4.0
    x = LAWS[law](rng, n)
    location, scale = np.array([x.mean()]), np.array([x.std()])
    z = (x - location) / scale
    kept = np.minimum(bound / np.abs(z), 1.0)
    lost, moved = (z**2 * (1 - kept**2)).mean(), (z * (1 - kept)).mean()
    exact = counted(x)
    squares, shifts = (found[0, 0] for found in exact.beyond(location, scale, bound))
    assert lost / 1.3 < squares < 1.5 * lost
    assert 1 / 1.3 < shifts / moved < 1.5, (shifts, moved)
    noisy = Magnitudes(-6, exact.counts + 40 * rng.standard_normal(exact.counts.shape), 40.0, n)
    squares, shifts = (np.median(found[:, 0]) for found in noisy.beyond(location, scale, bound))
    assert lost / 2 < squares < 2.5 * lost
    assert np.sign(shifts) == np.sign(moved)


@pytest.mark.parametrize("mean", [0.0, 3.0, 10.0, 100.0])
def test_normal_columns_have_no_tails(mean: float) -> None:
    """With their noise or without; about zero rather too much is seen than that a bound there takes nothing."""
    rng, n = np.random.default_rng(4), 20_000
    exact = counted(mean + rng.standard_normal(n))
    for deviation in (0.0, 50.0):
        noise = deviation * rng.standard_normal(exact.counts.shape)
        found = Magnitudes(-6, exact.counts + noise, deviation, n)
        squares, shifts = found.beyond(np.array([mean]), np.ones(1), 4.0)
        assert np.sort(squares[:, 0])[2] < 0.03
        assert abs(np.median(shifts)) < 0.01


def people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    z = rng.standard_normal((n, 4))
    x = {"age": 50 + 15 * z[:, 0], "weight": 75 + 14 * z[:, 1], "height": 170 + 10 * z[:, 2]}
    return pd.DataFrame({**x, "cost": np.exp(5 + 0.6 * z[:, 0] + 0.8 * z[:, 3])})


def test_intervals_of_a_long_tailed_column_hold_or_are_warned_of_by_its_name() -> None:
    """In 9 of 12 tables or more, with seeded noise."""
    held = {"mean": 0, "deviation": 0}
    for seed in range(12):
        table = people(20_000, np.random.default_rng([seed, 5]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            release = dpgep.release(table, epsilon=1.0, delta=1e-6, seed=seed)
            found = release.describe()
        said = any("'cost'" in str(warning.message) for warning in caught)
        held["mean"] += said or found.mean_low[3] <= table["cost"].mean() <= found.mean_high[3]
        held["deviation"] += said or found.deviation_low[3] <= table["cost"].std() <= found.deviation_high[3]
        assert (found.deviation_high[:3] < 1.2 * table.std().to_numpy()[:3]).all()
    assert min(held.values()) >= 9


@pytest.mark.filterwarnings("ignore")
def test_answers_say_what_the_noise_may_hide_beyond_a_cut() -> None:
    table = people(3000, np.random.default_rng(0))
    bought = dpgep.release(table, epsilon=1.0, delta=1e-6, seed=1)
    known, exact = dpgep.release(table, bound=1e4, epsilon=1.0, delta=1e-6), dpgep.release(table, epsilon=math.inf)
    (norms,) = (entry for entry in bought.report.releases if entry.query == "histogram of row norms")
    assert bought.preprocessing is not None
    cut, hidden = bought.preprocessing.largest, 3 * norms.noise[0].deviation
    assert bought.describe().unseen == (cut, pytest.approx(hidden))
    said = f"cut at {cut:.3g} scales; up to {hidden:.0f} people beyond would not show: means and deviations may"
    assert said in str(bought.describe())
    asked = ("describe", "covariance", "correlation", "partial_correlation")
    for question in asked:
        assert getattr(bought, question)().unseen == bought.describe().unseen
    for shown in (bought, bought.covariance(), bought.correlation(), bought.partial_correlation()):
        assert said.partition(":")[0] in str(shown)
    assert said.partition(":")[0] in bought._repr_html_()
    for other in (known, exact):
        assert all(getattr(other, question)().unseen is None for question in asked)
        assert not any("would not show" in str(shown) for shown in (other, other.describe(), other.covariance()))


def test_magnitudes_are_of_columns() -> None:
    counts = np.ones((2, 2, 3))
    scale = {"location": np.zeros(2), "scale": np.ones(2)}
    kept = dpgep.Preprocessing(1.0, **scale, magnitudes=Magnitudes(0, counts, 1.0, 9))
    assert kept == dpgep.Preprocessing(1.0, **scale, magnitudes=Magnitudes(0, counts, 1.0, 9))
    assert kept != dpgep.Preprocessing(1.0, **scale, magnitudes=Magnitudes(0, 2 * counts, 1.0, 9))
    assert kept.restricted(np.array([1])).magnitudes.counts.shape == (1, 2, 3)
    with pytest.raises(ValueError, match="magnitudes must be of the columns"):
        dpgep.Preprocessing(1.0, **scale, magnitudes=Magnitudes(0, counts[:1], 1.0, 9))
    for wrong in ((0, np.full((1, 2, 3), np.nan), 1.0, 9), (0, np.ones((2, 3)), 1.0, 9), (-501, counts, 1.0, 9)):
        with pytest.raises(ValueError, match="magnitudes must"):
            Magnitudes(*wrong)
