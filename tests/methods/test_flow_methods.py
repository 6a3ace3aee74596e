"""The flows as methods of `solve`: non-private limits, what they cost, what they refuse, what they say of themselves.

The compiled loop itself is tested in test_rayleigh_flow.py, the noise of products in test_noisy_product.py.
"""

import itertools
import math
import os
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from conftest import Matrix, solve_seeded
from every_run import D, N, matrix_problem, problem_named, problems
from scipy import stats
from scipy.optimize import minimize

import dpgep
from dpgep._dispatch import core
from dpgep.methods.base import ReleaseOptions
from dpgep.methods.release import release
from dpgep.privacy.curator import Curator, FeatureRelease, Release
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.products import ProductNoise, Products
from dpgep.privacy.screening import Scores


def assert_same_span(rows: Matrix, reference: Matrix, tolerance: float) -> None:
    assert scipy.linalg.subspace_angles(rows.T, reference.T).max() < tolerance


# fresh noise finds one component alone of eigenvalues of both signs
FLOWS = [
    (name, k, noise)
    for name, k, noise in itertools.product([*problems(), "gep"], [1, 2], ["lazy", "fresh"])
    if (name, k, noise) != ("pls", 2, "fresh")
]


@pytest.mark.parametrize(("name", "k", "noise"), FLOWS)
def test_without_noise_the_flow_reaches_the_eigenvectors(name: str, k: int, noise: str) -> None:
    problem = problem_named(name)
    expected = dpgep.solve(problem, epsilon=math.inf, n_components=k)
    solution = solve_seeded(
        problem,
        1,
        epsilon=math.inf,
        n_components=k,
        method="rayleigh-flow",
        noise=noise,
        n_iterations=6000,
        step_size=0.3 if name == "gep" else None,
    )
    assert_same_span(solution.components, expected.components, 1e-6)
    np.testing.assert_allclose(solution.eigenvalues, expected.eigenvalues, rtol=1e-8)
    assert solution.diagnostics.converged
    if expected.mean is not None:
        np.testing.assert_allclose(solution.mean, expected.mean, atol=1e-12)


@pytest.mark.parametrize("name", list(problems()))
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_sparse_rows_and_other_dtypes_give_the_same_solution(name: str, adjacency: str) -> None:
    options: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "method": "rayleigh-flow", "n_iterations": 20}
    dense = solve_seeded(problems(adjacency)[name], 3, **options)
    sparse = solve_seeded(problems(adjacency, sparse=True)[name], 3, **options)
    # rounding decides over nearly dependent directions of lazy noise, and moves the answer a little
    np.testing.assert_allclose(sparse.components, dense.components, atol=1e-5)
    assert sparse.privacy.releases == dense.privacy.releases


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", ">f8"])
def test_dtypes_and_memory_orders(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 5, (60, 4)).astype(dtype)
    run: dict[str, Any] = {"epsilon": math.inf, "n_components": 1, "method": "rayleigh-flow"}
    expected = solve_seeded(dpgep.pca(x.astype(float), bound=20.0), 1, **run)
    for form in (x, np.asfortranarray(x), x[::-1][::-1]):
        np.testing.assert_allclose(
            solve_seeded(dpgep.pca(form, bound=20.0), 1, **run).components, expected.components, atol=1e-10
        )


# ---- What it costs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fda", "gep"])
@pytest.mark.parametrize("noise", ["lazy", "fresh"])
@pytest.mark.parametrize(("init", "entries", "share"), [("random", 0, 0.0), ("screen", 2, 0.3), ("convex", 1, 0.5)])
def test_an_initial_vector_costs_its_share(name: str, noise: str, init: str, entries: int, share: float) -> None:
    """Of mu^2; that all entries make the budget: test_every_run.py."""
    options: dict[str, Any] = {"step_size": 0.5} if name == "gep" and noise == "fresh" else {}
    report = solve_seeded(
        problem_named(name), 1, epsilon=1.0, delta=1e-5, n_components=1, method="rayleigh-flow", noise=noise, init=init,
        n_iterations=6, **options,
    ).privacy  # fmt: skip
    initial = [release.mu**2 for release in report.releases if release.query.startswith("initial vector")]
    budget = dpgep.Budget(epsilon=1.0, delta=1e-5).mu
    assert len(initial) == entries
    assert math.fsum(initial) == pytest.approx(share * budget**2)
    assert math.fsum(release.mu**2 for release in report.releases) <= budget**2 * (1 + 1e-15)
    assert (report.exact, report.rounding) == (True, "grid")


def test_fresh_noise_pays_for_every_product_and_lazy_noise_once() -> None:
    run: dict[str, Any] = {"mu": 1.0, "n_components": 1, "method": "rayleigh-flow", "n_iterations": 7}
    counts = {
        (name, noise): len(solve_seeded(problem, 1, noise=noise, **run, **options).privacy.releases)
        for name, problem, options in [
            ("gep", matrix_problem(), {"step_size": 0.5}),
            ("gep, B public", matrix_problem(sensitivity_b=0.0), {}),
            ("pca uncentred", problems()["pca uncentred"], {}),
            ("fda", problems()["fda"], {}),
        ]
        for noise in ("fresh", "lazy")
    }
    assert counts == {
        ("gep", "fresh"): 14, ("gep", "lazy"): 1,
        ("gep, B public", "fresh"): 7, ("gep, B public", "lazy"): 1,
        ("pca uncentred", "fresh"): 7, ("pca uncentred", "lazy"): 1,
        ("fda", "fresh"): 8, ("fda", "lazy"): 1,  # sums and counts, then the products
    }  # fmt: skip


def test_the_paid_products_are_all_there_are() -> None:
    curator = Curator(problems()["pca"], Ledger(1.0), core.NoiseStream())
    products = curator.answer(Products(ProductNoise("fresh", "goe", 2)))
    block = np.eye(1, D)
    products.times(block)
    products.times(block)
    with pytest.raises(RuntimeError, match="paid"):
        products.times(block)


def test_a_noisy_product_has_the_noise_that_the_ledger_says() -> None:
    """Chi-square of the noise in products with e_1, at 1e-7 on either side; negative control: a tenth more noise."""
    problem = problems()["pca uncentred"]
    exact = problem.float_moments().total
    exact = (np.triu(exact) + np.triu(exact, 1).T) * problem.dataset.bound**2 / N
    for kind in ("fresh", "lazy"):
        ledger = Ledger(1.0)
        noise = []
        for seed in range(1500):
            ledger = Ledger(1.0)
            curator = Curator(problem, ledger, core.NoiseStream(seed.to_bytes(32, "little")))
            answer, _ = curator.answer(Products(ProductNoise(kind, "goe", 3))).times(np.eye(1, D))
            noise.append(answer[0] - exact[0])
        deviation = ledger.releases[0].noise[0].deviation * problem.dataset.bound**2 / N
        parts = math.sqrt(3.0) if kind == "fresh" else 1.0
        assert deviation == pytest.approx(math.sqrt(2) * parts * problem.dataset.bound**2 / N, rel=1e-6)
        scaled = np.array(noise) / (deviation * np.where(np.arange(D) == 0, 1.0, math.sqrt(0.5)))
        low, high = stats.chi2.ppf([5e-8, 1 - 5e-8], scaled.size)
        assert low < (scaled**2).sum() < high
        assert not low < (scaled**2).sum() * 1.21 < high


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["pca", "fda", "cca"])
def test_lazy_products_have_the_law_of_a_release(name: str) -> None:
    """Noisy quadratic forms of both, two-sample Kolmogorov-Smirnov at 1e-7."""
    problem = problems()[name]
    v = np.random.default_rng(2).standard_normal((1, D))
    forms: dict[str, list[list[float]]] = {"lazy": [], "release": []}
    for seed in range(800):
        lazy = Curator(problem, Ledger(0.5), core.NoiseStream(seed.to_bytes(32, "little")))
        av, bv = lazy.answer(Products(ProductNoise("lazy", "goe", 1))).times(v)
        forms["lazy"].append([float(v[0] @ av[0]), float(v[0] @ bv[0])])
        other = Curator(problem, Ledger(0.5), core.NoiseStream((seed + 10**6).to_bytes(32, "little")))
        pair = problem.model.noisy(other.answer(Release())).pair()
        b = np.eye(D) if pair.b is None else pair.b
        forms["release"].append([float(v[0] @ pair.a @ v[0]), float(v[0] @ b @ v[0])])
    for column in (0, 1):
        sample, reference = (np.array(forms[kind])[:, column] for kind in ("lazy", "release"))
        if np.ptp(reference) > 1e-9:
            assert stats.ks_2samp(sample, reference).pvalue > 1e-7
            assert stats.ks_2samp(sample, reference + 0.5 * reference.std()).pvalue < 1e-7


def test_screening_noise_and_calibration() -> None:
    for adjacency, centred in [("replace-one", 13.5), ("add-remove", 8.5)]:
        problem = problems(adjacency)["cca"]
        ledger = Ledger(1.0)
        Curator(problem, ledger, core.NoiseStream()).answer(Scores())
        (release,) = ledger.releases
        share = 0.9 if adjacency == "add-remove" else 1.0
        assert release.noise[0].deviation == pytest.approx(math.sqrt(centred / share), rel=1e-3)


@pytest.mark.parametrize("sizes", [(3, 2), (2, 1, 2)])
@pytest.mark.parametrize("center", [True, False])
def test_cross_norms_are_of_rows_outside_their_own_view(sizes: tuple[int, ...], center: bool) -> None:
    rows = np.random.default_rng(0).standard_normal((50, 5)) / 10
    views = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
    centred = rows - rows.mean(axis=0) if center else rows
    view_of = np.repeat(np.arange(len(sizes)), sizes)
    between = np.where(view_of[:, None] == view_of, 0.0, centred.T @ centred)
    problem = dpgep.multiset_cca(views, center=center, bound=1.0)
    np.testing.assert_allclose(problem.cross_norms(), np.linalg.norm(between, axis=1), rtol=1e-12)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("n_views", [3, 5])  # two: test_calibration.py
@pytest.mark.parametrize("replaces", [True, False])
def test_no_search_finds_a_covariance_between_views_that_changes_by_more(n_views: int, replaces: bool) -> None:
    """Rows x and x' (or none), and the mean of the others, in the unit ball: what one of them changes, many people."""
    d, rng = 2 * n_views, np.random.default_rng(n_views)
    between = 1 - np.kron(np.eye(n_views), np.ones((2, 2)))

    def change(flat: Matrix) -> float:
        x, other, mean = (v / max(1.0, float(np.linalg.norm(v))) for v in flat.reshape(3, d))
        p, q = x - mean, (other - mean) * replaces
        diagonal = x**2 - replaces * other**2
        return -float(((np.outer(p, p) - np.outer(q, q)) ** 2 * between).sum() + (diagonal**2).sum())

    found = max(-minimize(change, rng.standard_normal(3 * d)).fun for _ in range(20))
    share = 1 - 1 / n_views
    bound = 2 + min(16, 27 * share) if replaces else 1 + 16 * share
    assert 0.7 * bound < found <= bound * (1 + 1e-9)


@pytest.mark.parametrize("sizes", [(3, 2), (2, 1, 2)])
@pytest.mark.parametrize("seed", range(30))
def test_the_sensitivity_of_the_screen_of_views_is_a_bound(seed: int, sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((6, 5))
    if seed % 2:
        rows[:-1] = rows[0]  # concentrated rows: the extreme case
    for center, squared in [(True, 13.5 if len(sizes) == 2 else 18.0), (False, 2.0)]:
        values = []
        for last in (1.0, -1.0):
            neighbour = rows.copy()
            neighbour[-1, :3] *= last
            views = np.split(neighbour, np.cumsum(sizes)[:-1], axis=1)
            problem = dpgep.multiset_cca(views, center=center, bound=1.0)
            values.append(np.concatenate([problem.group_sums(with_squares=True).squares, problem.cross_norms()]))
        assert ((values[0] - values[1]) ** 2).sum() <= squared


# ---- Sparse ------------------------------------------------------------------------------------------------------


def spiked(seed: int, n: int = 4000, d: int = 60, s: int = 5) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    u = np.zeros(d)
    u[rng.choice(d, s, replace=False)] = rng.choice([-1, 1], s) / math.sqrt(s)
    x = rng.standard_normal((n, d))
    x += (math.sqrt(21) - 1) * np.outer(x @ u, u)
    return x / np.linalg.norm(x, axis=1, keepdims=True), u


@pytest.mark.parametrize("init", ["random", "screen", "convex"])
def test_the_truncated_flow_finds_a_sparse_spike(init: str) -> None:
    x, u = spiked(1)
    solution = solve_seeded(
        dpgep.pca(x, center=False, bound=1.0), 2, epsilon=4.0, delta=1e-5, n_components=1,
        method="truncated-rayleigh-flow", sparsity=8, init=init,
    )  # fmt: skip
    assert abs(solution.components[0] @ u) > 0.97
    assert (solution.components != 0).sum() <= 8
    assert set(np.flatnonzero(u)) <= set(solution.diagnostics.support)
    assert solution.diagnostics.initial.kind == init


def test_sparse_blocks_share_a_support_or_have_their_own() -> None:
    x, _ = spiked(1)
    run: dict[str, Any] = {"epsilon": math.inf, "n_components": 2, "method": "truncated-rayleigh-flow", "sparsity": 6}
    shared = solve_seeded(dpgep.pca(x, center=False, bound=1.0), 2, **run)
    assert len(shared.diagnostics.support) <= 6
    own = solve_seeded(dpgep.pca(x, center=False, bound=1.0), 2, separate_supports=True, **run)
    assert ((own.components != 0).sum(axis=1) <= 6).all()


def rifle(a: Matrix, b: Matrix, v: Matrix, sparsity: int, step_size: float, most: int) -> Matrix:
    """Truncated Rayleigh flow (Tan, Wang, Liu and Zhang 2018, Algorithm 1), until v moves by no more than 1e-9."""
    v = v / np.linalg.norm(v)
    for _ in range(most):
        before, quotient = v, (v @ a @ v) / (v @ b @ v)
        v = before + step_size / quotient * (a @ before - quotient * (b @ before))
        v = v / np.linalg.norm(v)
        v[np.argsort(-np.abs(v))[sparsity:]] = 0.0
        v = v / np.linalg.norm(v)
        if np.linalg.norm(v - before) <= 1e-9:
            break
    return v


def sparse_matrices(seed: int, d: int) -> Any:
    """A of four directions above a floor, B of three times d rows."""
    rng = np.random.default_rng(seed)
    factors, rows = rng.standard_normal((d, 4)), rng.standard_normal((3 * d, d))
    a, b = factors @ factors.T + 0.1 * np.eye(d), rows.T @ rows / (3 * d)
    return dpgep.gep(a, b, n=1000, sensitivity_a=1.0, sensitivity_b=1.0)


OF_TAN_ET_AL = [
    *itertools.product(["pca", "pca uncentred", "cca", "fda", "sir"], [D], [2, 3]),
    *(("gep", d, sparsity) for d, sparsity in [(5, 2), (20, 3), (60, 8), (200, 20)]),
]


@pytest.mark.parametrize("start", ["dense", "sparse", "sparse, fresh"])
@pytest.mark.parametrize(("name", "d", "sparsity"), OF_TAN_ET_AL)
def test_without_noise_and_refinement_it_is_the_flow_of_tan_et_al(name: str, d: int, sparsity: int, start: str) -> None:
    """Of two views on A + B, which has the same solutions. Under "fresh" noise, too, of which there is none."""
    problem = sparse_matrices(d, d) if name == "gep" else problem_named(name)
    pair = problem.model.noisy(Curator(problem, Ledger(math.inf), core.NoiseStream()).answer(Release())).pair()
    b = np.eye(d) if pair.b is None else pair.b
    v, step_size = np.random.default_rng(d).standard_normal(d), 0.8 / float(scipy.linalg.eigvalsh(b)[-1])
    if start != "dense":
        v[np.argsort(-np.abs(v))[sparsity:]] = 0.0
    options: dict[str, Any] = {"noise": "fresh"} if start == "sparse, fresh" else {"refine": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        solution = dpgep.solve(
            problem, epsilon=math.inf, n_components=1, method="truncated-rayleigh-flow", sparsity=sparsity, init=v,
            step_size=step_size, n_iterations=100, **options,
        )  # fmt: skip
    expected = rifle(pair.a + problem.model.traits.shift * b, b, v, sparsity, step_size, 100)
    found = solution.components[0] * np.sign(solution.components[0] @ expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert solution.diagnostics.n_exchanges == 0
    assert len(solution.diagnostics.objectives) == 1


def test_refinement_leaves_features_that_the_published_flow_rests_on() -> None:
    problem = sparse_matrices(60, 60)
    run: dict[str, Any] = {"epsilon": math.inf, "n_components": 1, "method": "truncated-rayleigh-flow", "sparsity": 8}
    published, refined = (
        solve_seeded(problem, 1, init=np.eye(1, 60), refine=refine, **run) for refine in (False, None)
    )
    assert refined.diagnostics.n_exchanges > 0
    assert refined.eigenvalues[0] > published.eigenvalues[0] * 1.01


@pytest.mark.parametrize("k", [1, 2])
def test_a_published_flow_of_lazy_noise_costs_one_release_and_is_sparse(k: int) -> None:
    """Also where the first answers allow no step."""
    for mu in (1e-3, 5.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
            solution = solve_seeded(
                problems()["fda"], 1, mu=mu, n_components=k, method="truncated-rayleigh-flow", sparsity=3, refine=False
            )
        assert len(solution.privacy.releases) == 1
        assert len(solution.diagnostics.objectives) == 1
        assert len(solution.diagnostics.support) <= 3


@pytest.mark.parametrize(("k", "options"), [(1, {"sparsity": 8}), (1, {"sparsity": "auto"}), (2, {"sparsity": 8})])
def test_a_sparse_release_costs_what_a_dense_one_costs(k: int, options: dict[str, Any]) -> None:
    x, u = spiked(3)
    problem = dpgep.pca(x, center=False, bound=1.0)
    dense = solve_seeded(problem, 2, epsilon=2.0, delta=1e-5, n_components=k, method="release")
    sparse = solve_seeded(problem, 2, epsilon=2.0, delta=1e-5, n_components=k, **options)
    assert sparse.privacy == dense.privacy
    assert abs(sparse.components[0] @ u) > 0.98
    assert set(np.flatnonzero(u)) <= set(sparse.diagnostics.support)
    if options["sparsity"] == "auto":
        assert len(sparse.diagnostics.support) <= 7
    assert len(sparse.diagnostics.expected_error) == k
    assert "features" in repr(sparse)


# ---- What it refuses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"noise": "none"}, "noise must be one of"),
        ({"noise_shape": "gauss"}, "noise_shape must be one of"),
        ({"noise_shape": "iid"}, 'requires noise="fresh"'),
        ({"init": "best"}, "init must be 'random' or 'convex' or 'screen' or public real numbers"),
        ({"init": np.ones(3)}, "shape"),
        ({"init": np.zeros(D)}, "none of them zero"),
        ({"init": np.full(D, math.nan)}, "finite"),
        ({"init": np.array(["a"] * D)}, "real numbers"),
        ({"n_iterations": 0}, "n_iterations"),
        ({"n_iterations": 2.5}, "n_iterations"),
        ({"step_size": 0.0}, "step_size"),
        ({"step_size": math.inf}, "step_size"),
        ({"regularization": -1.0}, "regularization"),
        ({"budget_split": 0.5}, "budget_split applies to"),
        ({"budget_split": 1.0, "init": "screen"}, "budget_split must lie"),
        ({"sparsity": 3}, "no option"),
    ],
)
def test_refuses_before_anything_is_spent(options: dict[str, Any], message: str) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises((ValueError, TypeError), match=message):
        dpgep.solve(problems()["pca"], budget=budget, n_components=1, method="rayleigh-flow", **options)
    assert budget.spent_mu == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "sparsity"),
        ({"sparsity": 0}, "sparsity"),
        ({"sparsity": D + 1}, "sparsity"),
        ({"sparsity": 1}, "2 components need"),
        ({"sparsity": 3, "separate_supports": 1}, "separate_supports"),
        ({"sparsity": 3, "n_starts": 2, "noise": "fresh"}, "n_starts"),
        ({"sparsity": 3, "refine": 1}, "refine must be True or False"),
        ({"sparsity": 3, "refine": True, "noise": "fresh"}, 'refine=True requires noise="lazy"'),
    ],
)
def test_truncation_refuses_before_anything_is_spent(options: dict[str, Any], message: str) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises((ValueError, TypeError), match=message):
        dpgep.solve(problems()["pca"], budget=budget, n_components=2, method="truncated-rayleigh-flow", **options)
    assert budget.spent_mu == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sparsity": "few"}, "auto"),
        ({"sparsity": D + 1}, "sparsity"),
        ({"sparsity": 1}, "2 components need"),
        ({"separate_supports": True}, "separate_supports requires sparsity"),
    ],
)
def test_a_sparse_release_refuses_before_anything_is_spent(options: dict[str, Any], message: str) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises((ValueError, TypeError), match=message):
        dpgep.solve(problems()["pca"], budget=budget, n_components=2, **options)
    assert budget.spent_mu == 0


def test_fresh_noise_on_a_private_b_needs_a_step_size() -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match="step_size is needed"):
        dpgep.solve(matrix_problem(), budget=budget, n_components=1, method="rayleigh-flow", noise="fresh")
    assert budget.spent_mu == 0


def test_iid_noise_serves_one_product_at_a_time() -> None:
    run: dict[str, Any] = {"mu": 1.0, "method": "rayleigh-flow", "noise": "fresh", "noise_shape": "iid"}
    for problem, k in [(problems()["cca"], 1), (problems()["pca"], 2)]:
        with pytest.raises(ValueError, match="supports a single component"):
            dpgep.solve(problem, n_components=k, **run)
    solution = solve_seeded(problems()["fda"], 1, n_components=1, **run)
    assert solution.privacy.releases[1].noise[0].shape == "iid"


# ---- What it says ------------------------------------------------------------------------------------------------


def test_noise_alone_is_warned_of() -> None:
    x = np.random.default_rng(0).standard_normal((200, 30))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dpgep.solve(dpgep.pca(x, bound=1.0), epsilon=0.1, delta=1e-5, n_components=1, method="rayleigh-flow")
    assert any(w.category is dpgep.errors.AccuracyWarning and "noise alone" in str(w.message) for w in caught)


def test_an_unfinished_flow_is_warned_of() -> None:
    with pytest.warns(dpgep.errors.AccuracyWarning, match="raise n_iterations"):
        dpgep.solve(problems()["pca"], mu=50.0, n_components=1, method="rayleigh-flow", n_iterations=2)


def test_the_printed_form_names_the_flow() -> None:
    solution = solve_seeded(problems()["pca"], 1, mu=5.0, n_components=2, method="rayleigh-flow", init="screen")
    text = repr(solution)
    assert "iterations" in text
    assert "screen" in text
    assert "share of the budget 0.3" in text


def test_default_step_sizes_meet_the_condition_of_the_theory() -> None:
    """Eta lambda_max(B) < 1, for lambda_max of the noisy B where that is what the flow runs on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for noise in ("fresh", "lazy"):
            for problem in (problems()["fda"], problems()["sir"], problems()["cca"]):
                found = dpgep.solve(
                    problem, epsilon=math.inf, n_components=1, method="rayleigh-flow", noise=noise, n_iterations=1
                )
                curator = Curator(problem, Ledger(math.inf), core.NoiseStream())
                b = problem.model.noisy(curator.answer(Release())).pair().b
                assert 0 < found.diagnostics.step_size * scipy.linalg.eigvalsh(b)[-1] < 1


def test_the_flow_agrees_with_the_release_of_the_same_noise() -> None:
    """Given much budget, both methods find the same component."""
    problem = problems()["fda"]
    flow = solve_seeded(problem, 1, mu=200.0, n_components=2, method="rayleigh-flow", n_iterations=3000)
    exact = release(Curator(problem, Ledger(math.inf), core.NoiseStream()), 2, ReleaseOptions())
    assert_same_span(flow.components, exact.components, 0.2)


# ---- Rows at the edge of what a double holds; few people; forks ----------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "sparse", "two views"])
@pytest.mark.parametrize("value", [1.7e308, 1e300, 1e-310])
def test_one_absurd_row_changes_no_answer_by_more_than_the_bound(form: str, value: float) -> None:
    """Also where products with the row would leave the range of a double: neither NaN nor a larger contribution."""
    x = np.random.default_rng(0).standard_normal((20, 6)) / 4
    block = np.eye(2, 6) + 0.5
    for bound in (1.0, 2.1e-8, 1e6):
        answers = []
        for last in (0.0, value):
            rows = x.copy()
            rows[-1] = last
            if form == "two views":
                problem = dpgep.cca(rows[:, :2], rows[:, 2:], bound=bound, center=False)
            else:
                built = scipy.sparse.csr_array(rows) if form == "sparse" else rows
                problem = dpgep.pca(built, bound=bound, center=False)
            operator = problem.dataset.row_products().second_moment(1.0)
            answers.append(operator.times(block))
        assert np.isfinite(answers[1]).all()
        change = np.linalg.norm(answers[1] - answers[0], ord=2) / np.linalg.norm(block, ord=2)
        assert change <= bound**2 * (1 + 1e-12)


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("public_n", [None, 10])
@pytest.mark.parametrize("name", ["pca", "cca", "pls", "fda", "sir"])
def test_nobody_and_one_person_are_served_alike_under_add_remove(n: int, public_n: int | None, name: str) -> None:
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((n, 4)), rng.integers(0, 2, n)
    rest: dict[str, Any] = {"bound": 1.0, "adjacency": "add-remove", "public_n": public_n}
    problem = {
        "pca": lambda: dpgep.pca(x, **rest),
        "cca": lambda: dpgep.cca(x[:, :2], x[:, 2:], **rest),
        "pls": lambda: dpgep.pls(x[:, :2], x[:, 2:], **rest),
        "fda": lambda: dpgep.fda(x, labels, classes=[0, 1], **rest),
        "sir": lambda: dpgep.sir(x, labels.astype(float), slices=2, y_range=(0, 1), **rest),
    }[name]()
    for noise in ("fresh", "lazy"):
        Curator(problem, Ledger(1.0), core.NoiseStream()).answer(Products(ProductNoise(noise, "goe", 1))).times(
            np.eye(1, 4)
        )
    Curator(problem, Ledger(1.0), core.NoiseStream()).answer(Scores())
    Curator(problem, Ledger(1.0), core.NoiseStream()).answer(Release())
    Curator(problem, Ledger(1.0), core.NoiseStream()).answer(FeatureRelease(np.array([0, 2]), 0.5))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are POSIX")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("noise", ["fresh", "lazy"])
def test_a_forked_copy_of_paid_products_does_not_answer(noise: str) -> None:
    products = Curator(problems()["pca"], Ledger(1.0), core.NoiseStream()).answer(
        Products(ProductNoise(noise, "goe", 2))
    )
    child = os.fork()
    if child == 0:
        try:
            products.times(np.eye(1, D))
        except RuntimeError as error:
            os._exit(0 if "forked copy" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    products.times(np.eye(1, D))


def test_noise_that_drowns_b_loses_no_paid_answer() -> None:
    """With few people the noisy B is negative definite on some blocks: there is an answer all the same."""
    rng = np.random.default_rng(1)
    x, labels = rng.standard_normal((300, 8)), rng.integers(0, 3, 300)
    problem = dpgep.fda(x, labels, classes=[0, 1, 2], bound=3.0)
    for seed in range(60):
        solution = solve_seeded(
            problem, seed, epsilon=1.0, delta=1e-5, n_components=2, method="rayleigh-flow", noise="fresh",
            regularization=0.0,
        )  # fmt: skip
        assert np.isfinite(solution.components).all()


def test_screened_starts_for_more_components_than_entries_each() -> None:
    x = np.random.default_rng(0).standard_normal((500, 200))
    solution = solve_seeded(
        dpgep.pca(x, bound=15.0), 0, mu=10.0, n_components=3, method="truncated-rayleigh-flow", sparsity=2,
        separate_supports=True, init="screen", n_iterations=10,
    )  # fmt: skip
    assert ((solution.components != 0).sum(axis=1) <= 2).all()


def test_random_starts_beside_a_given_one() -> None:
    x, _ = spiked(1)
    solution = solve_seeded(
        dpgep.pca(x, center=False, bound=1.0), 2, mu=5.0, n_components=1, method="truncated-rayleigh-flow", sparsity=6,
        init=np.ones(60), n_starts=4,
    )  # fmt: skip
    assert len(solution.diagnostics.objectives) == 4


@pytest.mark.parametrize("sparsity", [2, 4, "auto"])
def test_sparse_cca_raises_no_warning_of_its_own(sparsity: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 8))
    y = rng.standard_normal((400, 4)) + x[:, :4] * [2.0, 0, 0, 0]
    for seed in range(5):  # RuntimeWarning would be an error
        solution = solve_seeded(dpgep.cca(x, y, bound=5.0), seed, mu=2.0, n_components=1, sparsity=sparsity)
        assert np.isfinite(solution.components).all()


def test_lazy_noise_leaves_b_positive_definite() -> None:
    """With less than the noise's norm added, a flow would run after directions in which the noisy B is zero."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 4000)
    x = rng.standard_normal((4000, 60)) / 8
    x[:, 0] += labels / 4
    problem = dpgep.fda(x, labels, classes=[0, 1], bound=1.5)
    for seed in range(3):
        solution = solve_seeded(problem, seed, mu=1.0, method="rayleigh-flow")
        assert solution.diagnostics.regularization == solution.diagnostics.noise_level
        assert abs(solution.components[0, 0]) > 0.6
        oracle = Curator(problem, Ledger(1.0), core.NoiseStream()).answer(Products(ProductNoise("lazy", "goe", 1)))
        b = oracle.times(np.eye(60))[1] + oracle.noise_level * np.eye(60)
        assert scipy.linalg.eigvalsh((b + b.T) / 2)[0] > 0


def test_fresh_noise_serves_one_pair_of_eigenvalues_of_both_signs() -> None:
    """Hardly any noise, the default number of steps: whatever the start, not the negative one of lambda and -lambda."""
    problem = problems()["pls"]
    expected = dpgep.solve(problem, epsilon=math.inf, n_components=1).components[0]
    run: dict[str, Any] = {"mu": 1e8, "method": "rayleigh-flow", "noise": "fresh"}
    for seed in range(10):
        found = solve_seeded(problem, seed, n_components=1, **run)
        assert found.eigenvalues[0] > 0
        assert 1 - (found.components[0] @ expected) ** 2 < 1e-3
    budget = dpgep.Budget(mu=1e8)
    with pytest.raises(ValueError, match=r'noise="fresh" finds one component of pls, not 2'):
        dpgep.solve(problem, budget=budget, n_components=2, method="rayleigh-flow", noise="fresh")
    assert budget.remaining_mu == budget.mu


@pytest.mark.parametrize("name", ["cca", "pls"])
@pytest.mark.parametrize(
    ("options", "k", "message"),
    [
        ({"sparsity": 1}, 1, "1 component of two views needs a sparsity of at least 2, got 1"),
        ({"sparsity": 3}, 2, "2 components of two views need a sparsity of at least 4, got 3"),
        (
            {"sparsity": 1, "separate_supports": True},
            2,
            "1 component of two views needs a sparsity of at least 2, got 1",
        ),
        ({"sparsity": 3, "method": "truncated-rayleigh-flow"}, 2, "at least 4, got 3"),
        ({"sparsity": 1, "method": "dpsrs"}, 1, "at least 2, got 1"),
    ],
)
def test_each_view_needs_features_of_its_own(name: str, options: dict[str, Any], k: int, message: str) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match=message):
        dpgep.solve(problems()[name], budget=budget, n_components=k, **options)
    assert budget.remaining_mu == budget.mu


def test_products_without_noise_are_not_to_be_had():
    with pytest.raises(ValueError, match="kind"):
        ProductNoise("none", "goe", 1)
    with pytest.raises(ValueError, match="shape"):
        ProductNoise("fresh", "none", 1)
