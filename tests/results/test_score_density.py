"""Score plots: the histogram that is bought, its density without the noise, and what is refused."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import nothing_spent, solve_seeded
from numpy.typing import NDArray
from scipy import stats
from stored import bytes_of

import dpgep
from dpgep import plot
from dpgep.results.score_density import Frame, ScoreDensity, _denoised, normal_scores

Matrix = NDArray[np.float64]

DELTA = 1e-6
CENTRES = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 5.0]])


def people(n: int = 6000) -> tuple[Matrix, NDArray[Any]]:
    """Three clusters in two of five directions, and the cluster of each."""
    rng = np.random.default_rng(1)
    which = rng.integers(0, 3, n)
    rows = np.zeros((n, 5))
    rows[:, :2] = CENTRES[which] + rng.normal(size=(n, 2)) * [0.7, 0.5]
    rows[:, 2:] = 0.2 * rng.normal(size=(n, 3))
    return rows @ np.linalg.qr(rng.normal(size=(5, 5)))[0], which


def density(solution: dpgep.Solution, problem: Any, **terms: Any) -> ScoreDensity:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return dpgep.score_density(solution, problem, seed=0, **terms)


def counted(solution: dpgep.Solution, rows: Any, found: ScoreDensity, weights: Any = None) -> Matrix:
    """NumPy's histogram of the scores, with whoever is outside of the frame in the outermost cells."""
    first, last = found.edges[:, 0], np.nextafter(found.edges[:, -1], -np.inf)
    scores = np.clip(solution.transform(rows), first, last)
    return np.histogram2d(*scores.T, bins=list(found.edges), weights=weights)[0]


@pytest.mark.parametrize("center", [True, False])
def test_without_noise_it_is_the_histogram_of_the_scores(center: bool) -> None:
    rows, _ = people(3000)
    problem = dpgep.pca(rows, bound=20.0, center=center)
    solution = solve_seeded(problem, epsilon=2.0, delta=DELTA, n_components=2)
    found = density(solution, problem, epsilon=math.inf)
    expected = counted(solution, rows, found) / 3000
    # rows are on a grid of 2^-18 bounds: a score near an edge may be in the next cell
    assert np.abs(found.shares[0] - expected).sum() < 0.01
    np.testing.assert_allclose(found.density, found.shares, atol=1e-12)
    assert (found.deviation, found.n, found.groups) == (0.0, 3000, None)
    exact = np.quantile(solution.transform(rows)[:, 0], [0.25, 0.5, 0.75])
    np.testing.assert_allclose(found.quantiles(0, [0.25, 0.5, 0.75]), exact, atol=np.diff(found.edges[0])[0])


def test_groups_are_counted_apart() -> None:
    rows, which = people(3000)
    labels = np.array(["a", "b", "c"])[which]
    problem = dpgep.fda(rows, labels, classes=["a", "b", "c"], bound=20.0)
    solution = solve_seeded(problem, epsilon=2.0, delta=DELTA)
    found = density(solution, problem, epsilon=math.inf)
    for share, name in zip(found.shares, "abc", strict=True):
        expected = counted(solution, rows[labels == name], found) / 3000
        assert np.abs(share - expected).sum() < 0.01
    noisy = density(solution, problem, epsilon=2.0, delta=DELTA)
    highest = [np.unravel_index(each.argmax(), each.shape) for each in noisy.density]
    middles = (noisy.edges[:, 1:] + noisy.edges[:, :-1]) / 2
    for (i, j), name in zip(highest, "abc", strict=True):
        mean = solution.transform(rows[labels == name]).mean(axis=0)
        assert np.abs(mean - [middles[0][i], middles[1][j]]).max() < 0.6
    points, groups = noisy.sample(2000, seed=1)
    assert groups is not None
    assert points.shape == (2000, 2)
    assert {*groups} == {"a", "b", "c"}


def test_people_of_no_class_are_no_background_of_the_others() -> None:
    """A third of the people has no class: the density is that of the others, and is nowhere lifted."""
    rows, which = people(6000)
    problem = dpgep.fda(rows, which, classes=[0, 1], bound=20.0)
    solution = solve_seeded(problem, epsilon=2.0, delta=DELTA, n_components=1)
    found = density(solution, problem, epsilon=2.0, delta=DELTA)
    scores = solution.transform(rows)[:, 0]
    exact = np.array([np.histogram(scores[which == each], found.edges[0])[0] for each in (0, 1)])
    assert found.density.sum() == pytest.approx(1.0)
    assert np.abs(found.density - exact / exact.sum()).sum() / 2 < 0.1
    assert found.shares.sum() == pytest.approx(exact.sum() / 6000, abs=6 * found.deviation * math.sqrt(128))
    nobody = dpgep.fda(rows, which, classes=[7, 8], bound=20.0)
    assert density(solution, nobody, epsilon=math.inf).density.sum() == pytest.approx(1.0)


def test_one_score_is_counted_by_group() -> None:
    """Two classes have no plane."""
    rows, which = people(3000)
    problem = dpgep.fda(rows, which > 0, classes=[False, True], bound=20.0)
    solution = solve_seeded(problem, epsilon=2.0, delta=DELTA)
    scores = solution.transform(rows)[:, 0]
    found, noisy = density(solution, problem, epsilon=math.inf), density(solution, problem, epsilon=2.0, delta=DELTA)
    assert (found.axes, found.groups, found.shares.shape) == (("score 1",), (False, True), (2, 64))
    (edges,) = found.edges
    inside = np.clip(scores, edges[0], np.nextafter(edges[-1], -np.inf))
    for group, share in zip((False, True), found.shares, strict=True):
        expected = np.histogram(inside[(which > 0) == group], edges)[0] / 3000
        assert np.abs(share - expected).sum() < 0.01
        exact = np.quantile(scores[(which > 0) == group], [0.1, 0.5, 0.9])
        np.testing.assert_allclose(found.quantiles(0, [0.1, 0.5, 0.9], group), exact, atol=np.diff(edges)[0])
        np.testing.assert_allclose(noisy.quantiles(0, 0.5, group), exact[1], atol=4 * np.diff(edges)[0])
    np.testing.assert_array_equal(noisy.marginal(0), noisy.density)
    clipped = np.maximum(noisy.shares, 0)
    additive = np.abs(clipped / clipped.sum() - found.shares).sum()
    assert np.abs(noisy.density - found.shares).sum() < additive
    points, groups = noisy.sample(500, seed=2)
    assert points.shape == (500, 1)
    assert groups is not None
    assert {*groups} == {False, True}
    again = dpgep.load(bytes_of(noisy))
    np.testing.assert_array_equal(again.density, noisy.density)
    assert "64 cells" in repr(again)
    assert noisy.to_frame().index.names == ["group", "score 1"]
    with pytest.raises(ValueError, match="no group 'a'"):
        noisy.quantiles(0, 0.5, "a")
    nobody = replace(noisy, shares=noisy.shares * [[4.0], [0.0]])
    assert math.isnan(float(nobody.quantiles(0, 0.5, True)))


@pytest.mark.parametrize("size", [1e15, 1e140, 1e302])
def test_shares_of_any_size_are_a_distribution_or_refused(size: float) -> None:
    """A deviation so large is one of a tiny mu, or of a forged file."""
    rows, _ = people(500)
    problem = dpgep.pca(rows, bound=20.0)
    solution = solve_seeded(problem, epsilon=1.0, delta=DELTA, n_components=2)
    found = density(solution, problem, epsilon=1.0, delta=DELTA)
    large = replace(found, shares=found.shares * size)
    if size > 1e300:
        with pytest.raises(ValueError, match="below 2"):
            dpgep.load(bytes_of(large))
    else:
        assert dpgep.load(bytes_of(large)).density.sum() == pytest.approx(1)


@pytest.mark.parametrize("by_group", [False, True])
def test_normal_scores_have_the_released_means_and_covariances(by_group: bool) -> None:
    rows, which = people(6000)
    table = dpgep.release(rows, which, classes=[0, 1, 2], by_group=by_group, bound=20.0, epsilon=math.inf)
    solution = table.fda()
    found, scores = normal_scores(solution, (1, 2)), solution.transform(rows)
    middles = np.stack(np.meshgrid(*(found.edges[:, 1:] + found.edges[:, :-1]) / 2, indexing="ij"), axis=-1)
    within = sum(np.cov(scores[which == group].T) * np.mean(which == group) for group in range(3))
    for group, shares in enumerate(found.density):
        of_group, people_of = shares / shares.sum(), scores[which == group]
        mean = np.einsum("ij,ijk->k", of_group, middles)
        away = middles - mean
        covariance = np.einsum("ij,ijk,ijl->kl", of_group, away, away)
        np.testing.assert_allclose(mean, people_of.mean(axis=0), atol=0.02)
        expected = np.cov(people_of.T) if by_group else within
        np.testing.assert_allclose(covariance, expected, atol=0.03 * np.trace(np.asarray(expected)))
        assert shares.sum() == pytest.approx(np.mean(which == group), abs=1e-3)
    alone = solve_seeded(dpgep.pca(rows, bound=20.0, center=False), epsilon=math.inf, n_components=2)
    assert normal_scores(alone, None).groups is None


@pytest.mark.parametrize("bound", ["auto", 20.0])
def test_people_with_several_rows_count_once(bound: Any) -> None:
    rows, _ = people(900)
    ids = np.repeat(np.arange(300), 3)
    problem = dpgep.pca(rows, bound=bound, person=ids)
    solution = solve_seeded(problem, epsilon=math.inf, n_components=2)
    found = density(solution, problem, epsilon=math.inf)
    expected = counted(solution, rows, found, np.full(900, 1 / 3)) / 300
    assert found.n == 300
    assert np.abs(found.shares[0] - expected).sum() < 0.02


def test_of_two_views_it_is_a_score_of_each() -> None:
    rows, _ = people(2000)
    rows[:, 3] = rows[:, 0] + 0.1 * rows[:, 3]
    problem = dpgep.cca(rows[:, :2], rows[:, 2:], bound=20.0)
    solution = solve_seeded(problem, epsilon=math.inf, n_components=2)
    found = density(solution, problem, components=2, epsilon=math.inf)
    x, y = solution.transform(rows[:, :2], rows[:, 2:])
    pairs = np.clip(np.stack([x[:, 1], y[:, 1]], axis=1), found.edges[:, 0], np.nextafter(found.edges[:, -1], 0))
    expected = np.histogram2d(*pairs.T, bins=list(found.edges))[0] / 2000
    assert found.axes == ("x score 2", "y score 2")
    assert np.abs(found.shares[0] - expected).sum() < 0.01


def test_the_noise_is_what_the_ledger_has_paid_for() -> None:
    """Normal, of the stated deviation: each test fails by chance with a probability of 1e-7."""
    rows, _ = people()
    budget, problem = dpgep.Budget(epsilon=2.0, delta=DELTA), dpgep.pca(rows, bound=20.0)
    solution = solve_seeded(problem, budget=budget, share=0.5, n_components=2)
    found, exact = density(solution, problem, budget=budget), density(solution, problem, epsilon=math.inf)
    (entry,) = found.privacy.releases
    assert entry.query == "histogram of scores"
    assert budget.remaining_mu < 1e-6
    assert found.deviation * found.n == pytest.approx(math.sqrt(2) / entry.mu, rel=1e-3)
    noise = (found.shares - exact.shares).ravel() / found.deviation
    low, high = stats.chi2.ppf([5e-8, 1 - 5e-8], noise.size) / noise.size
    assert low < np.mean(noise**2) < high
    assert abs(noise.mean()) * math.sqrt(noise.size) < 5.4
    assert stats.kstest(noise, "norm").pvalue > 1e-7


def test_one_who_comes_moves_a_cell_by_one() -> None:
    rows, _ = people(500)
    solution = solve_seeded(dpgep.pca(rows, bound=20.0), epsilon=1.0, delta=DELTA, n_components=2)
    terms: dict[str, Any] = {"bound": 20.0, "adjacency": "add-remove", "public_n": 500}
    found = density(solution, dpgep.pca(rows, **terms), epsilon=1.0, delta=DELTA)
    assert found.deviation * 500 == pytest.approx(1 / found.privacy.mu, rel=1e-3)
    more, fewer = (density(solution, dpgep.pca(rows[i:], **terms), epsilon=math.inf).shares * 500 for i in (0, 1))
    assert sorted(set(np.rint(more - fewer).ravel())) == [0, 1]
    assert np.abs(more - fewer).sum() == pytest.approx(1)


@pytest.mark.parametrize("size", [16, 64])
def test_wavelets_without_a_threshold_give_back_what_they_got(size: int) -> None:
    values = np.random.default_rng(0).normal(size=(size, size))
    np.testing.assert_allclose(_denoised(values, 0.0), values, atol=1e-12)
    assert np.abs(_denoised(values, 1.0)).max() < np.abs(values).max() / 2  # noise alone
    line = values[0]
    np.testing.assert_allclose(_denoised(line, 0.0), line, atol=1e-12)
    flat = np.full((size, size), 3.0)
    np.testing.assert_allclose(_denoised(flat, 1.0), flat, atol=1e-12)


def test_the_density_is_a_distribution_nearer_to_the_people_than_what_was_released() -> None:
    rows, _ = people()
    problem = dpgep.pca(rows, bound="auto")
    solution = solve_seeded(problem, epsilon=1.0, delta=DELTA, n_components=2)
    found, exact = (density(solution, problem, epsilon=epsilon, delta=DELTA) for epsilon in (1.0, 1e6))
    assert found.density.min() >= 0
    assert found.density.sum() == pytest.approx(1)
    clipped = np.maximum(found.shares, 0)
    additive = np.abs(clipped / clipped.sum() - exact.shares).sum() / 2
    assert np.abs(found.density - exact.shares).sum() / 2 < 0.5 * additive
    np.testing.assert_allclose(found.marginal(0).sum(), 1)
    np.testing.assert_allclose(found.marginal(1)[0], found.density[0].sum(axis=0))


def _with_less_noise(found: ScoreDensity) -> ScoreDensity:
    """Forged: of an eighth of the noise, which the ledger states."""
    (entry,) = found.privacy.releases
    (block,) = entry.noise
    assert block.scale is not None
    less = replace(block, deviation=block.scale // 8 * (block.deviation / block.scale), scale=block.scale // 8)
    privacy = replace(found.privacy, releases=(replace(entry, noise=(less,)),))
    return replace(found, deviation=less.deviation / found.n, privacy=privacy)


def test_what_is_kept_says_the_same() -> None:
    rows, which = people(2000)
    problem = dpgep.fda(rows, which, classes=[0, 1, 2], bound=20.0)
    solution = solve_seeded(problem, epsilon=1.0, delta=DELTA)
    found = density(solution, problem, epsilon=1.0, delta=DELTA)
    again = dpgep.load(bytes_of(found))
    np.testing.assert_array_equal(again.density, found.density)
    assert (again.groups, again.axes, repr(again)) == (found.groups, found.axes, repr(found))
    frame = found.to_frame()
    assert frame["share"].sum() == pytest.approx(1)
    assert frame.index.names == ["group", "score 1", "score 2"]
    for wrong in (
        replace(found, deviation=found.deviation / 2),
        replace(found, edges=found.edges[:, ::-1]),
        replace(found, shares=found.shares[:2]),
        replace(found, n=0),
        _with_less_noise(found),
    ):
        with pytest.raises(ValueError, match=r"deviation|ascend|shape|people|costs more than mu"):
            dpgep.load(bytes_of(wrong))


def test_what_cannot_be_served_is_refused_before_anything_is_spent() -> None:
    rows, _ = people(1000)
    problem, budget = dpgep.pca(rows, bound=20.0), dpgep.Budget(epsilon=1.0, delta=DELTA)
    solution = solve_seeded(problem, epsilon=1.0, delta=DELTA, n_components=2)
    mapped = solve_seeded(dpgep.pca(rows, bound="auto"), epsilon=1.0, delta=DELTA, n_components=2)
    flow = solve_seeded(problem, epsilon=1.0, delta=DELTA, n_components=2, method="rayleigh-flow", n_iterations=2)
    views = solve_seeded(dpgep.cca(rows[:, :2], rows[:, 2:], bound=20.0), epsilon=1.0, delta=DELTA)
    secret = dpgep.pca(rows, bound=20.0, adjacency="add-remove")
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (solution, problem, {"components": (1, 3)}, "components are numbered from 1 to 2"),
        (solution, problem, {"components": (1, 1)}, r"two components, as \(1, 2\), or one"),
        (solution, problem, {"components": (1, 2, 1)}, "two components"),
        (solution, problem, {"cells": 50}, "cells must be one of 16, 32, 64, 128, got 50"),
        (flow, problem, {}, 'method="release"'),
        (solution, dpgep.pca(rows[:, :3], bound=20.0), {}, "rows of the solution"),
        (solution, dpgep.pca(rows, bound="auto"), {}, "a bound of its own"),
        (solution, dpgep.pca(rows, preprocessing=mapped.preprocessing), {}, "map rows as that of the solution"),
        (mapped, problem, {}, "map rows as that of the solution"),
        (views, dpgep.cca(rows[:, :2], rows[:, 2:], bound=20.0), {"components": (1, 2)}, "components=1, of two views"),
        (solution, dpgep.gep(rows.T @ rows / 1e6, n=1000, sensitivity_a=1.0), {}, "scores of people"),
    ]
    with nothing_spent(budget):
        for found, asked, options, message in cases:
            with pytest.raises(ValueError, match=message):
                dpgep.score_density(found, asked, budget=budget, **options)
        with pytest.raises(ValueError, match="public_n"):
            dpgep.score_density(solution, secret, epsilon=1.0, delta=DELTA)


def test_the_frame_is_of_released_numbers_alone() -> None:
    rows, _ = people(1000)
    solution = solve_seeded(dpgep.pca(rows, bound="auto"), epsilon=1.0, delta=DELTA, n_components=2)
    loaded = dpgep.load(bytes_of(solution))
    mine, theirs = (vars(Frame.of(each, (1, 2), 64)) for each in (solution, loaded))
    for name, value in mine.items():
        np.testing.assert_array_equal(value, theirs[name])


@pytest.mark.parametrize("grouped", [False, True])
def test_it_is_drawn(grouped: bool) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    rows, which = people(3000)
    problem = dpgep.fda(rows, which, classes=[0, 1, 2], bound=20.0) if grouped else dpgep.pca(rows, bound=20.0)
    solution = solve_seeded(problem, epsilon=4.0, delta=DELTA, n_components=2)
    figure, ax = plt.subplots()
    found = density(solution, problem, epsilon=4.0, delta=DELTA)
    assert plot.scores(found, ax=ax) is ax
    assert len(ax.collections) >= len(found.density)  # several for each before Matplotlib 3.8
    assert [text.get_text() for text in ax.texts] == (["0", "1", "2"] if grouped else [])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("score 1", "score 2")
    nobody = replace(found, shares=np.full_like(found.shares, 0.0), deviation=1.0)
    plot.scores(nobody, ax=ax)
    for axis in (0, 1):
        ax.clear()
        plot.scores(found, axis=axis, ax=ax)
        assert (ax.get_xlabel(), ax.get_ylabel()) == (found.axes[axis], "density of people")
        assert [text.get_text() for text in ax.texts] == (["0", "1", "2"] if grouped else [])
    ax.clear()
    plot.scores(found, synthetic=200, ax=ax)
    assert ax.get_title() == "200 synthetic points, which are nobody's"
    assert sum(len(each.get_offsets()) for each in ax.collections) == 200
    for drawn in (lambda: plot.scores(solution, ax=ax), lambda: plot.biplot(solution, found, ax=ax)):
        ax.clear()
        drawn()
        assert len(ax.collections) >= len(found.density)
    plt.close(figure)


@pytest.mark.parametrize("components", [1, (1, 2)])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_one_person_moves_the_counts_by_what_is_paid_for(adjacency: Any, several: bool, components: Any) -> None:
    """At most sqrt(2), or 1, whichever groups and cells a person's rows are in."""
    rng, n = np.random.default_rng(3), 12
    public = {"public_n": n} if adjacency == "add-remove" else {}

    def problem(rows: Any, labels: Any, who: Any) -> Any:
        whose = {"person": who} if several else {}
        return dpgep.fda(rows, labels, classes=[0, 1, 2], bound=1.0, adjacency=adjacency, **public, **whose)

    rows, labels = rng.standard_normal((60, 3)) / 3, np.arange(60) % 3
    solution = dpgep.solve(dpgep.fda(rows, labels, classes=[0, 1, 2], bound=1.0), epsilon=math.inf, n_components=2)
    moved = []
    for _ in range(25):
        rows, labels = rng.standard_normal((n, 3)) / 3, rng.integers(0, 4, n)  # 3: in no class
        who = rng.integers(0, 4, n) if several else np.arange(n)
        his = who == who[0]
        others = rows[~his], labels[~his], who[~his]
        if adjacency == "replace-one":
            size = rng.integers(1, 4) if several else 1
            own = rng.standard_normal((size, 3)) / 3, rng.integers(0, 4, size), np.full(size, who[0])
            others = tuple(np.concatenate(pair) for pair in zip(others, own, strict=True))
        form = {"components": components, "cells": 16, "epsilon": math.inf}
        found = [dpgep.score_density(solution, problem(*each), **form) for each in ((rows, labels, who), others)]
        moved.append(float(np.linalg.norm(found[0].shares * found[0].n - found[1].shares * found[1].n)))
    most = math.sqrt(2) if adjacency == "replace-one" else 1.0
    assert max(moved) <= most * (1 + 1e-9)
    assert max(moved) > (0.4 if several else 0.9) * most  # of several rows in one cell it is most
