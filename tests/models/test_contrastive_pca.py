"""Contrastive PCA and second moments by group: against NumPy, the law of their noise, and wherever the rows are."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import Matrix, solve_seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from stored import bytes_of

import dpgep
from dpgep.data.integer_moments import ExactMomentsByGroup
from dpgep.data.rows import Batch, Rows
from dpgep.models import ContrastPencil
from dpgep.models.moments import MomentLayout, MomentNoise, ReleasedMoments
from dpgep.privacy.noise import calibrate_moments, moment_mu

TWO: dict[str, Hashable] = {"target": "ill", "background": "well"}
GROUPS = ("ill", "well", "unknown")


def people(n: int = 6000, d: int = 6, seed: int = 0) -> tuple[Matrix, NDArray[Any]]:
    """All share a strong direction; the ill alone have another one."""
    rng = np.random.default_rng(seed)
    labels = np.array(GROUPS)[rng.choice(3, n, p=[0.3, 0.5, 0.2])]
    rows = rng.standard_normal((n, d)) * 0.5 + rng.standard_normal((n, 1)) * 2 * np.eye(d)[0]
    rows += (labels == "ill")[:, None] * (rng.standard_normal((n, 1)) * np.eye(d)[1] * 1.5 + 1.0)
    return rows / 10, labels


def contrast(rows: Matrix, labels: Any, alpha: float, weights: Any = None) -> Matrix:
    one, two = (labels == TWO["target"]), (labels == TWO["background"])
    w = np.ones(len(rows)) if weights is None else weights
    return np.asarray(
        np.cov(rows[one].T, ddof=0, aweights=w[one]) - alpha * np.cov(rows[two].T, ddof=0, aweights=w[two])
    )


# ---- without noise ----


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 40.0])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_without_noise_it_is_the_difference_of_covariances(alpha: float, form: Any) -> None:
    rows, labels = people()
    solution = dpgep.solve(dpgep.contrastive_pca(form(rows), labels, alpha=alpha, bound=9.0, **TWO), epsilon=math.inf)
    values, vectors = np.linalg.eigh(contrast(rows, labels, alpha))
    np.testing.assert_allclose(solution.eigenvalues, values[::-1], atol=1e-10)
    np.testing.assert_allclose(np.abs(solution.components @ vectors[:, ::-1]), np.eye(6), atol=1e-8)
    assert alpha < 1 or solution.eigenvalues[-1] < 0  # the largest lead, not the longest


def test_it_finds_what_the_target_alone_has() -> None:
    rows, labels = people()
    found = dpgep.solve(dpgep.contrastive_pca(rows, labels, **TWO), epsilon=2.0, delta=1e-6, n_components=1)
    assert np.abs(found.components[0]).argmax() == 1
    assert np.abs(dpgep.solve(dpgep.pca(rows), epsilon=2.0, delta=1e-6).components[0]).argmax() == 0


def test_people_of_several_rows_count_by_their_means() -> None:
    rows, labels = people(3000)
    ids = np.random.default_rng(1).integers(0, 700, len(rows))
    weights = 1 / np.bincount(ids)[ids]
    problem = dpgep.contrastive_pca(rows, labels, bound=9.0, person=ids, **TWO)
    values = np.linalg.eigvalsh(contrast(rows, labels, 1.0, weights))[::-1]
    found = dpgep.solve(problem, epsilon=math.inf)
    np.testing.assert_allclose(found.eigenvalues, values, atol=1e-5)  # weights are multiples of 2^-12


def test_people_of_several_weights_count_by_them() -> None:
    rows, labels = people()
    weights = np.random.default_rng(1).uniform(0, 3, len(rows))
    problem = dpgep.contrastive_pca(rows, labels, bound=9.0, weights=weights, largest_weight=3.0, **TWO)
    values = np.linalg.eigvalsh(contrast(rows, labels, 1.0, weights))[::-1]
    np.testing.assert_allclose(dpgep.solve(problem, epsilon=math.inf).eigenvalues, values, atol=1e-10)


@pytest.mark.parametrize("alpha", [-0.1, math.inf, math.nan, "1"])
def test_what_alpha_may_be(alpha: Any) -> None:
    rows, labels = people(50)
    with pytest.raises(ValueError, match="alpha must be a non-negative finite number"):
        dpgep.contrastive_pca(rows, labels, alpha=alpha, **TWO)


def test_one_group_is_refused() -> None:
    rows, labels = people(50)
    with pytest.raises(ValueError, match="twice"):
        dpgep.contrastive_pca(rows, labels, target="ill", background="ill")
    with pytest.raises(ValueError, match="is of a target and a background"):
        dpgep.models.ContrastivePcaModel(3, replace(dpgep.models.ContrastivePcaModel(3).grouping, labels=("a",)))


@pytest.mark.parametrize("options", [{"storage": "operator"}, {"screen": 2}, {"method": "rayleigh-flow"}])
def test_what_has_no_matrix_is_refused_before_anything_is_spent(options: Any) -> None:
    rows, labels = people(500)
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match='use method="release" with storage="matrix"'):
        dpgep.solve(dpgep.contrastive_pca(rows, labels, bound=1.0, **TWO), budget=budget, n_components=1, **options)
    assert budget.spent_mu == 0


# ---- sums ----


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(4, 20), st.integers(1, 4095))
def test_sums_are_those_of_the_rows_of_each_group(seed: int, n: int, bits: int, times: int) -> None:
    rng = np.random.default_rng(seed)
    layout = MomentLayout(3, 2, sums=True, counts=True, by_group=True)
    batches = []
    for _ in range(3):
        rows = rng.standard_normal((n, 3)) * 10.0 ** rng.integers(-3, 3)
        batches.append(Batch.of_codes(Rows((rows,), 1.0), rng.integers(-1, 2, n)))
    sums = ExactMomentsByGroup(layout, bits)
    for batch in batches:
        part = ExactMomentsByGroup(layout, bits)
        part.add(batch)
        sums.merge(part, times)
    found = sums.copy().moments()
    second, of_rows, counts = found.to_float()
    for group in range(2):
        own = [batch.rows.views[0][batch.groups == group] for batch in batches]
        longest = [np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1.0) for each in own]
        grid = np.concatenate(
            [np.trunc(each / long * 2.0**bits) / 2.0**bits for each, long in zip(own, longest, strict=True)]
        )
        upper = np.triu_indices(3)
        np.testing.assert_allclose(
            second[group][upper], times * (grid.T @ grid)[upper], atol=1e-9 + times * n * 2.0**-bits
        )
        np.testing.assert_allclose(of_rows[:, group], times * grid.sum(axis=0), atol=1e-9 + times * n * 2.0**-bits)
        assert counts[group] == times * len(grid)
    assert found.n == 3 * n * times


def test_a_batch_with_a_nan_leaves_the_sums_as_they_were() -> None:
    rows, labels = people(300)
    moments = dpgep.Moments(
        dpgep.models.ContrastivePcaModel(6, dpgep.models.FdaModel(1, GROUPS[:2]).grouping), bound=1.0
    )
    moments.update(rows, labels)
    before = bytes_of(moments)
    rows[np.flatnonzero(labels == "well")[-1], 2] = math.nan  # of the group that is added last
    with pytest.raises(ValueError, match="the sums are unchanged"):
        moments.update(rows, labels)
    assert bytes_of(moments) == before


def test_a_damaged_file_is_refused() -> None:
    moments = dpgep.Moments(dpgep.models.ContrastivePcaModel(2), bound=1.0)
    moments.update(np.ones((4, 2)), np.array(["target", "background"] * 2))
    low, high = moments._sums.limbs()
    for part, place in [(low, (0, 2, 2)), (high, (1, 2, 2)), (low, (1, 0, 0)), (high, (0, 0, 1))]:
        changed = part.copy()
        changed[place] += 1 << 41
        limbs = (changed, high) if part is low else (low, changed)
        with pytest.raises(ValueError, match=r"the sums are not|the groups hold"):
            ExactMomentsByGroup.of_limbs(moments._sums.layout, 20, 4, *limbs).require_possible()


# ---- noise ----


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("n_groups", [2, 7])
def test_groups_are_free(adjacency: Any, n_groups: int) -> None:
    """The price is that of one row, however many groups there are, and the counts cost a fiftieth at most."""
    layout = MomentLayout(5, n_groups, sums=True, counts=True, by_group=True)
    noise = calibrate_moments(1.0, layout, adjacency)
    assert noise == calibrate_moments(1.0, replace(layout, n_groups=2), adjacency)
    assert moment_mu(noise, layout, adjacency) == pytest.approx(1.0)
    one = calibrate_moments(1.0, MomentLayout(5, 1, sums=True, counts=False), adjacency)
    assert noise.second < 1.03 * one.second


def noisy_moments(seed: int = 0) -> tuple[ReleasedMoments, ReleasedMoments]:
    """Moments by group without noise, and the noise that they may get."""
    rows, labels = people(seed=seed)
    rows = rows + 0.1
    released = dpgep.release(rows, labels, classes=GROUPS[:2], by_group=True, bound=9.0, epsilon=math.inf)
    return released._noisy, replace(released._noisy, noise=MomentNoise(1e-4, 2e-4, 4e-4))


def strayed(seeds: int, alpha: float) -> tuple[ContrastPencil, Matrix]:
    """The pencil of moments with noise, and how far repeated noise moves A."""
    exact, noise = noisy_moments()
    model = dpgep.models.ContrastivePcaModel(6, dpgep.models.FdaModel(1, GROUPS[:2]).grouping, alpha)
    rng, moved = np.random.default_rng(0), []
    base = model.noisy(exact).pair().a
    for _ in range(seeds):
        z = rng.standard_normal(exact.second.shape)
        drawn = replace(
            noise,
            second=exact.second + noise.noise.second * (z + z.swapaxes(1, 2)) / 2,
            sums=exact.sums + noise.noise.sums * rng.standard_normal(exact.sums.shape),
            counts=exact.counts + noise.noise.counts * rng.standard_normal(exact.counts.shape),
        )
        moved.append(model.noisy(drawn).pair().a - base)
    return model.noisy(noise), np.array(moved)


def test_variances_are_those_of_repeated_noise() -> None:
    """Variances over 2000 draws have relative deviations of 0.0316: six of them, for 36 entries (p < 1e-7 together)."""
    pencil, moved = strayed(2000, 0.7)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    found = np.einsum("ja,njk,kb->nab", basis, moved, basis).var(axis=0)
    expected = pencil.error_variances(basis, basis, np.zeros(6))
    assert np.abs(found / expected - 1).max() < 0.19


def test_noise_alone_has_the_law_of_repeated_noise() -> None:
    pencil, moved = strayed(1500, 0.7)
    alone = np.array(list(pencil.noise_alone(np.zeros(6), np.random.default_rng(2), 1500)))
    ratio = alone.var(axis=0) / moved.var(axis=0)
    assert np.abs(ratio - 1).max() < 6 * math.sqrt(4 / 1500)
    assert np.abs(alone.mean(axis=0)).max() < 6 * alone.std(axis=0).max() / math.sqrt(1500)


@pytest.mark.parametrize(("adjacency", "bound"), [("replace-one", 1.0), ("add-remove", 1.0), ("replace-one", "auto")])
def test_expected_errors_are_those_of_repeated_runs(adjacency: Any, bound: Any) -> None:
    rows, labels = people()
    right = np.linalg.eigh(contrast(rows, labels, 1.0))[1][:, -1]
    errors, expected = [], []
    for seed in range(20):
        problem = dpgep.contrastive_pca(rows, labels, bound=bound, adjacency=adjacency, **TWO)
        found = solve_seeded(problem, seed, epsilon=2.0, delta=1e-6, n_components=1)
        errors.append(1 - (found.components[0] @ right) ** 2)
        expected.append(found.diagnostics.expected_error[0])
    # means of 20, each about exponential, of ratios of 0.7 (with a bound) and 1.5
    assert 0.35 < np.mean(errors) / np.mean(expected) < 3.0


@pytest.mark.deep
def test_intervals_hold_the_population() -> None:
    """Of 40 intervals of 90 %, fewer than 25 hold with a probability below 1e-7."""
    covered = 0
    for seed in range(40):
        rows, labels = people(3000, seed=seed)
        problem = dpgep.contrastive_pca(rows, labels, bound=1.0, **TWO)
        low, high = solve_seeded(problem, seed, epsilon=4.0, delta=1e-6, n_components=1).intervals().eigenvalues[0]
        covered += low < 1.5**2 / 100 < high
    assert covered >= 25


def test_people_alike_in_both_groups_show_no_component() -> None:
    rng = np.random.default_rng(3)
    labels = np.array(GROUPS[:2])[rng.integers(0, 2, 4000)]
    rows = rng.standard_normal((4000, 6)) * [3, 1, 1, 1, 0.3, 0.3] / 10
    solution = solve_seeded(dpgep.contrastive_pca(rows, labels, bound=1.0, **TWO), 1, epsilon=1.0, delta=1e-6)
    assert all(solution.diagnostics.lost)
    exact = dpgep.solve(dpgep.contrastive_pca(rows, labels, bound=1.0, **TWO), epsilon=math.inf)
    assert exact.recommended_components() == 0


# ---- a release by group ----


def test_a_release_by_group_answers_within_and_between_groups() -> None:
    rows, labels = people()
    asked = dpgep.release(rows, labels, classes=list(GROUPS), by_group=True, bound=9.0, epsilon=math.inf)
    again = dpgep.load(bytes_of(asked))
    directly = dpgep.contrastive_pca(rows[:, :4], labels, alpha=2.0, bound=9.0, **TWO)
    two = again.contrastive_pca([0, 1, 2, 3], alpha=2.0, **TWO)
    np.testing.assert_allclose(two.eigenvalues, dpgep.solve(directly, epsilon=math.inf).eigenvalues, atol=1e-10)
    ill = again.of_group("ill").pca()
    np.testing.assert_allclose(ill.eigenvalues, np.linalg.eigvalsh(np.cov(rows[labels == "ill"].T, ddof=0))[::-1])
    correlations = np.linalg.eigvalsh(np.corrcoef(rows[labels == "well"].T))[::-1]
    np.testing.assert_allclose(again.of_group("well").pca(standardize=True).eigenvalues, correlations)
    np.testing.assert_allclose(again.pca().eigenvalues, np.linalg.eigvalsh(np.cov(rows.T, ddof=0))[::-1])
    plain = dpgep.release(rows, labels, classes=list(GROUPS), bound=9.0, epsilon=math.inf)
    for question in (lambda r: r.fda().eigenvalues, lambda r: r.second_moment):
        np.testing.assert_allclose(question(again), question(plain), rtol=1e-8, atol=1e-12)


def test_noise_of_everybody_is_that_of_all_groups() -> None:
    rows, labels = people()
    asked = dpgep.release(rows, labels, classes=list(GROUPS), by_group=True, bound=1.0, epsilon=1.0, delta=1e-6)
    everybody, ill = asked.pca().diagnostics.noise_level, asked.of_group("ill").pca().diagnostics.noise_level
    assert everybody * 6000 == pytest.approx(math.sqrt(3) * ill * float(asked._noisy.counts[0]) * 6000)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.of_group("ill"), "by_group=True"),
        (lambda r: r.contrastive_pca(**TWO), "by_group=True"),
    ],
)
def test_a_release_of_everybody_has_no_groups(ask: Any, message: str) -> None:
    rows, labels = people(100)
    asked = dpgep.release(rows, labels, classes=list(GROUPS), bound=1.0, epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match=message):
        ask(asked)
    with pytest.raises(ValueError, match="needs groups"):
        dpgep.release(rows, by_group=True, bound=1.0, epsilon=1.0, delta=1e-6)


def test_unknown_groups_are_named() -> None:
    rows, labels = people(100)
    asked = dpgep.release(rows, labels, classes=list(GROUPS), by_group=True, bound=1.0, epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="there is no group 'healthy': the released ones are 'ill', 'well', 'unknown'"):
        asked.of_group("healthy")


def test_slices_have_numbers() -> None:
    rows, _ = people()
    y = np.linspace(-1, 1, len(rows))
    asked = dpgep.release(rows, y=y, slices=2, y_range=(-1, 1), by_group=True, bound=9.0, epsilon=math.inf)
    expected = np.linalg.eigvalsh(np.cov(rows[y >= 0].T, ddof=0))[::-1]
    np.testing.assert_allclose(asked.of_group(1).pca().eigenvalues, expected, rtol=1e-9)


def test_sites_add_up() -> None:
    rows, labels = people()
    halves = [slice(0, 3000), slice(3000, None)]
    one, two = (
        dpgep.release(dpgep.contrastive_pca(rows[h], labels[h], bound=9.0, **TWO), epsilon=math.inf) for h in halves
    )
    values = np.linalg.eigvalsh(contrast(rows, labels, 1.0))[::-1]
    np.testing.assert_allclose((one + two).solve().eigenvalues, values, atol=1e-10)
