"""Canonical correlations of several views: against SciPy and cca-zoo, against `cca`, and wherever the rows are."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from conftest import Matrix, solve_seeded

import dpgep
from dpgep.models.moments import NO_NOISE, ReleasedMoments
from dpgep.models.row_model import with_eigenvalues
from dpgep.results.intervals import solved

SIZES = (3, 2, 4)


def people(n: int = 3000, sizes: tuple[int, ...] = SIZES, seed: int = 0) -> list[Matrix]:
    """Views with two directions in common, of different strengths."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 2)) * [1.0, 0.5]
    return [(common @ rng.standard_normal((2, d)) + rng.standard_normal((n, d))) / 10 + 0.2 for d in sizes]


def blocks(views: list[Matrix], *, center: bool = True) -> tuple[Matrix, Matrix]:
    """A and B from their definition."""
    rows = np.hstack(views)
    rows = rows - rows.mean(axis=0) if center else rows
    whole = rows.T @ rows / len(rows)
    edges = np.cumsum([0, *(view.shape[1] for view in views)])
    within = scipy.linalg.block_diag(*(whole[a:b, a:b] for a, b in pairwise(edges)))
    return whole - within, within


def exact(views: list[Any], **arguments: Any) -> dpgep.Solution:
    return dpgep.solve(dpgep.multiset_cca(views, bound=100.0, **arguments), epsilon=math.inf)


@pytest.mark.parametrize("sizes", [(3, 2), (3, 2, 4), (1, 1, 1, 1)])
@pytest.mark.parametrize("center", [True, False])
def test_without_noise_it_solves_the_definition(sizes: tuple[int, ...], center: bool) -> None:
    views = people(sizes=sizes)
    solution = exact(views, center=center)
    a, b = blocks(views, center=center)
    values, vectors = scipy.linalg.eigh(a, b)
    k = sum(sizes) - max(sizes)
    assert solution.n_components == k
    np.testing.assert_allclose(solution.eigenvalues, values[::-1][:k], atol=1e-9)
    for found, expected in zip(solution.components, vectors.T[::-1][:2], strict=False):
        cosine = found @ b @ expected / math.sqrt((found @ b @ found) * (expected @ b @ expected))
        assert abs(cosine) > 1 - 1e-9
    assert len(sizes) - 1 >= solution.eigenvalues[0] > 0


def test_two_views_are_canonical_correlations_bit_for_bit() -> None:
    x, y = people(sizes=(3, 4))
    for arguments in ({"bound": 2.0}, {}):
        of_two = solve_seeded(dpgep.cca(x, y, **arguments), 5, epsilon=4.0, delta=1e-6, n_components=2)
        of_many = solve_seeded(dpgep.multiset_cca([x, y], **arguments), 5, epsilon=4.0, delta=1e-6, n_components=2)
        np.testing.assert_array_equal(of_many.components, of_two.components)
        np.testing.assert_array_equal(of_many.eigenvalues, of_two.eigenvalues)
        np.testing.assert_array_equal(of_many.diagnostics.expected_error, of_two.diagnostics.expected_error)
        np.testing.assert_array_equal(of_many.view_weights[1], of_two.y_weights)


@pytest.mark.deep
@pytest.mark.parametrize("n_views", [2, 3])
def test_weights_are_those_of_cca_zoo(n_views: int) -> None:
    linear = pytest.importorskip("cca_zoo.linear")
    views = people(sizes=SIZES[:n_views])
    theirs, ours = linear.MCCA(n_components=2).fit([view - view.mean(axis=0) for view in views]), exact(views)
    for weights, expected in zip(ours.view_weights, theirs.weights_, strict=True):
        for found, other in zip(weights, expected.T, strict=False):
            assert abs(found @ other) / np.linalg.norm(other) > 1 - 1e-8


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("release", {"storage": "operator"}),
        ("rayleigh-flow", {"n_iterations": 3000}),
        ("truncated-rayleigh-flow", {"sparsity": 9, "n_iterations": 3000}),
        ("release", {"sparsity": 9}),
    ],
)
def test_every_method_agrees_without_noise(method: str, options: dict[str, Any]) -> None:
    views = people()
    problem = dpgep.multiset_cca(views, bound=100.0)
    found = dpgep.solve(problem, epsilon=math.inf, n_components=1, method=method, **options)
    np.testing.assert_allclose(found.eigenvalues[0], exact(views).eigenvalues[0], rtol=1e-4)


def test_a_screen_keeps_the_features_that_views_share() -> None:
    rng = np.random.default_rng(1)
    views = [rng.standard_normal((20_000, 12)) / 10 for _ in range(3)]
    common = rng.standard_normal(20_000) / 10
    for place, view in enumerate(views):
        view[:, place] += common
    problem = dpgep.multiset_cca(views, bound=1.5, center=False)
    found = solve_seeded(problem, 3, epsilon=4.0, delta=1e-6, n_components=1, screen=6)
    assert {0, 12 + 1, 24 + 2} <= set(found.support)


def test_batches_files_and_memory_give_the_same_bits(tmp_path: Any) -> None:
    views, edges = people(), np.cumsum((0, *SIZES))
    rows = np.hstack(views)
    np.save(tmp_path / "rows.npy", rows)
    source = dpgep.scan([rows[:1000], rows[1000:]])
    parts = [source[list(range(a, b))] for a, b in pairwise(edges)]
    of_file = dpgep.scan(tmp_path / "rows.npy")
    from_file = [of_file[list(range(a, b))] for a, b in pairwise(edges)]
    solutions = [
        solve_seeded(dpgep.multiset_cca(given, bound=1.5), 7, epsilon=2.0, delta=1e-6, n_components=1)
        for given in (views, parts, from_file)
    ]
    for other in solutions[1:]:
        np.testing.assert_array_equal(other.components, solutions[0].components)


def test_expected_errors_are_those_of_many_releases() -> None:
    views = people(20_000)
    truth = exact(views).components[0]
    _, b = blocks(views)
    problem = dpgep.multiset_cca(views, bound=1.5)
    stated, errors = [], []
    for seed in range(60):
        found = solve_seeded(problem, seed, epsilon=4.0, delta=1e-6, n_components=1)
        u = found.components[0]
        errors.append(1 - (u @ b @ truth) ** 2 / ((u @ b @ u) * (truth @ b @ truth)))
        stated.append(found.diagnostics.expected_error[0])
    # the norm of B and that of the answer differ, and noise is not small: a factor of two is what is promised
    assert 0.5 < np.mean(stated) / np.mean(errors) < 2


def test_messages_name_the_view() -> None:
    views = people()
    with pytest.raises(ValueError, match="sparsity of X3 must be between 1 and 4, got 5"):
        dpgep.solve(dpgep.multiset_cca(views, bound=1.0), epsilon=1.0, delta=1e-6, n_components=1, sparsity=(1, 1, 5))
    views[2][7, 1] = np.nan
    with pytest.raises(ValueError, match="1 of X3"):
        exact(views)


def test_solutions_know_their_views(tmp_path: Any) -> None:
    pandas = pytest.importorskip("pandas")
    names = (("a", "b", "c"), ("d", "e"), ("f", "g", "h", "i"))
    frames = [pandas.DataFrame(view, columns=list(part)) for view, part in zip(people(), names, strict=True)]
    solution = exact(frames)
    assert solution.to_frame().index.tolist()[2:4] == [("X1", "c"), ("X2", "d")]
    scores = solution.transform(*frames)
    assert [each.shape for each in scores] == [(3000, 5)] * 3
    np.testing.assert_array_equal(solution.transform(frames[0]), scores[0])
    with pytest.raises(TypeError, match="3 views: pass the first, or all"):
        solution.transform(frames[0], frames[1])
    with pytest.raises(AttributeError, match="one view"):
        _ = dpgep.solve(dpgep.pca(frames[0], bound=9.0), epsilon=math.inf).view_weights
    solution.save(tmp_path / "kept.json")
    kept = dpgep.load(tmp_path / "kept.json")
    np.testing.assert_array_equal(kept.components, solution.components)
    assert kept.model == solution.model == dpgep.models.MultisetCcaModel(SIZES, center=True)


@pytest.mark.parametrize("sizes", [(3, 4), SIZES, (2, 2, 2, 2)])
def test_a_truth_takes_the_eigenvalues_that_it_is_given(sizes: tuple[int, ...]) -> None:
    """What intervals are simulated from: to first order, and exactly for two views."""
    model, views = dpgep.models.MultisetCcaModel(sizes, center=False), people(sizes=sizes)
    rows = np.hstack(views)
    d = rows.shape[1]
    moments = ReleasedMoments(np.empty((d, 0)), np.empty(0), len(rows), NO_NOISE, rows.T @ rows / len(rows))
    system = solved(model.noisy(replace(moments, second=moments.second.copy())).pair(), 0.0)
    old, step = system.values[:2], np.array([-1e-3, 2e-3])
    changed = with_eigenvalues(model.noisy(moments), system.vectors[:, :2], old, old + step)
    np.testing.assert_allclose(solved(model.noisy(changed).pair(), 0.0).values[:2] - old, step, rtol=0.02)


@pytest.mark.parametrize(
    ("views", "error", "message"),
    [
        (np.ones((5, 3)), TypeError, "views must be a list of matrices"),
        ([np.ones((5, 3))], ValueError, "two views or more, got 1"),
        ([], ValueError, "two views or more, got 0"),
        ([np.ones((5, 3)), np.ones((5, 1)), np.ones((4, 2))], ValueError, "same number of rows"),
        ([np.ones((5, 3)), np.ones(5)], ValueError, "Y must be two-dimensional"),
    ],
)
def test_what_is_not_several_views_of_the_same_people_is_refused(views: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        dpgep.multiset_cca(views, bound=1.0)
