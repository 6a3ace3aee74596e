"""Partial correlations, graphs, factors and paths of a release: without noise those of other libraries."""

import math
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from conftest import Matrix
from sklearn.covariance import graphical_lasso
from sklearn.cross_decomposition import PLSRegression
from sklearn.datasets import load_diabetes, load_iris, load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels.multivariate.factor import Factor
from statsmodels.multivariate.factor_rotation import rotate_factors

import dpgep

pytestmark = pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
P = 6
EXACT: dict[str, Any] = {"bound": 1e5, "epsilon": math.inf}


def _generated() -> Matrix:
    rng = np.random.default_rng(3)
    return np.asarray(rng.standard_normal((400, P)) @ (np.eye(P) + rng.standard_normal((P, P)) / 3) + 2.0)


TABLES = {
    "generated": _generated(),
    "diabetes": load_diabetes().data[:, [2, 3, 4, 6, 8, 9]],
    "iris": np.column_stack([load_iris().data, load_iris().data[:, :2] ** 2]),
}
tables = pytest.mark.parametrize("table", TABLES)


def released(x: Any, seed: int = 0, **terms: Any) -> dpgep.Release:
    """Without noise, or at epsilon = 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        return dpgep.release(x, seed=seed, **({"epsilon": 1.0, "delta": 1e-6, **terms} if terms else EXACT))


def chain(n: int, rng: np.random.Generator, d: int = P) -> Matrix:
    """Columns of which each depends on its neighbours alone; partial correlations -0.4 between these."""
    precision = np.eye(d) + 0.4 * (np.eye(d, k=1) + np.eye(d, k=-1))
    return np.asarray(rng.standard_normal((n, d)) @ np.linalg.cholesky(np.linalg.inv(precision)).T)


@tables
def test_partial_correlations_are_correlations_of_residuals(table: str) -> None:
    x = TABLES[table]
    values = released(x).partial_correlation().values
    for i, j in [(0, 1), (2, 5)]:
        others = np.column_stack([np.ones(len(x)), np.delete(x, [i, j], axis=1)])
        left = x[:, [i, j]] - others @ np.linalg.lstsq(others, x[:, [i, j]], rcond=None)[0]
        assert values[i, j] == values[j, i] == pytest.approx(np.corrcoef(left.T)[0, 1], abs=1e-8)
    np.testing.assert_array_equal(np.diagonal(values), 1.0)


@tables
def test_a_graph_is_that_of_scikit_learn(table: str) -> None:
    x = TABLES[table]
    ours, (_, theirs) = released(x).graph(penalty=0.2), graphical_lasso(np.corrcoef(x.T), 0.2, enet_tol=1e-8)
    np.testing.assert_allclose(ours.precision, theirs, atol=1e-8)
    assert len(ours.to_frame()) == len(ours.edges) == np.count_nonzero(np.triu(theirs, 1))
    sizes = [abs(size) for _, _, size in ours.edges]
    assert sizes == sorted(sizes, reverse=True)


def test_a_graph_is_found_where_inner_descents_that_end_early_would_close_no_gap() -> None:
    """Of correlations that a release had; scikit-learn's gap stays at -1e-3 in 500 passes by its own tolerance."""
    wanted = np.eye(4)
    above = [
        0.00587996246607,
        -0.00109425881486,
        0.47350161371957,
        0.71571111295556,
        0.01934310157364,
        0.00982702112533,
    ]
    wanted[np.triu_indices(4, 1)] = wanted.T[np.triu_indices(4, 1)] = above
    rows = np.random.default_rng(0).standard_normal((400, 4))
    x = np.linalg.qr(rows - rows.mean(axis=0))[0] @ np.linalg.cholesky(wanted).T
    penalty = 0.0243689951196
    found = released(x).graph(penalty=penalty).precision
    inverse = np.linalg.inv(found)
    np.testing.assert_allclose(np.diagonal(inverse), 1.0, atol=1e-3)
    assert np.abs(inverse - wanted)[~np.eye(4, dtype=bool)].max() <= penalty + 1e-3


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_a_graph_leaves_out_one_indicator_of_each_category_and_says_so(epsilon: float) -> None:
    """Nor do scikit-learn's warnings of columns that determine each other come through, of a path either."""
    rng = np.random.default_rng(0)
    people = pd.DataFrame(rng.standard_normal((4000, 2)), columns=["a", "b"])
    people["kind"] = pd.Categorical(np.array(["x", "y", "z"])[rng.integers(0, 3, 4000)])
    people["sex"] = pd.Categorical(np.where(people["a"] > 0, "F", "M"))
    release = released(people, epsilon=epsilon)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        found, path = release.graph(), release.regression_path("a")
    assert found.left_out == ("kind=x", "sex=F")
    assert found.names == ("a", "b", "kind=y", "kind=z", "sex=M")
    assert "left out  kind=x, sex=F: " in repr(found)
    assert found.edges[0][:2] == ("a", "sex=M")
    assert path.r_squared[-1] == pytest.approx(release.regression("a").r_squared, abs=1e-8)


def test_a_graph_without_a_solution_is_an_error_in_words() -> None:
    x = np.random.default_rng(0).standard_normal((500, 3))
    for columns in (np.column_stack([x, x.sum(axis=1)]), np.column_stack([x, x[:, :1]])):
        with pytest.raises(ValueError, match="no solution at penalty 0: give a larger one"):
            released(columns).graph(penalty=0.0)
    with pytest.raises(ValueError, match=r"number of columns, .* at least 2, got 1"):
        released(x).graph([0])


def test_intervals_hold_and_a_graph_of_independent_columns_is_empty() -> None:
    """P(fewer than 0.85 of 900 intervals at 0.9 hold) < 1e-6 were they independent; seeds are fixed in any case."""
    truth = np.where(np.abs(np.subtract.outer(range(P), range(P))) == 1, -0.4, 0.0)
    above, held, edges = np.triu_indices(P, 1), [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        found = released(chain(4000, rng), seed, bound=6.0).partial_correlation()
        held.append(((found.low <= truth) & (truth <= found.high))[above])
        nothing = released(rng.standard_normal((4000, P)), seed, bound=6.0)
        edges.append(len(nothing.graph().edges))
    assert 0.85 < np.mean(held) < 0.97
    assert np.count_nonzero(edges) <= 15  # of 60, each with probability 0.05 at most: 2e-7


def test_without_bound_or_law_intervals_are_longer_but_end_at_one() -> None:
    release = released(chain(2000, np.random.default_rng(0)), bound=6.0)
    gaussian, bounded = release.partial_correlation(), release.partial_correlation(rows="bounded")
    assert np.all(bounded.low <= gaussian.low)
    assert np.all(bounded.high >= gaussian.high)
    assert np.all(np.abs([bounded.low, bounded.high]) <= 1)
    assert "partial correlation of 6 columns" in repr(bounded)


def standardized(x: Matrix) -> tuple[Matrix, Matrix, float, Matrix]:
    """The first five columns standardized, the last as y; its deviation, and theirs."""
    z = StandardScaler().fit(x[:, :-1])
    return z.transform(x[:, :-1]), x[:, -1], float(x[:, -1].std()), z.scale_


@tables
def test_paths_are_those_of_scikit_learn(table: str) -> None:
    x = TABLES[table]
    release, (z, y, size, scale) = released(x), standardized(x)

    def assert_same(ours: Any, coefficients: Matrix, tolerance: float = 1e-8) -> None:
        intercept = y.mean() - x[:, :-1].mean(axis=0) @ (coefficients / scale)
        np.testing.assert_allclose(ours.coefficients[0] * scale / size, coefficients / size, atol=tolerance)
        assert ours.intercepts[0] == pytest.approx(intercept, abs=1e4 * tolerance)
        residual = y - intercept - x[:, :-1] @ (coefficients / scale)
        assert ours.r_squared[0] == pytest.approx(1 - residual.var() / y.var(), abs=10 * tolerance)

    def ask(by: Any, step: float, **options: Any) -> Any:
        return release.regression_path(P - 1, by=by, steps=[step], **options)

    exact: dict[str, Any] = {"tol": 1e-14, "max_iter": 1_000_000}
    for step in (0.3, 0.02):
        assert_same(ask("lasso", step), Lasso(step * size, **exact).fit(z, y).coef_)
        # of an elastic net the duality gap is 1e-10 of the variance: 1e-5 of coefficients, at most
        net = ElasticNet(step, l1_ratio=0.4, **exact).fit(z, y / size).coef_ * size
        assert_same(ask("elastic net", step, l1_ratio=0.4), net, 1e-5)
        assert_same(ask("ridge", step), Ridge(step * len(x)).fit(z, y).coef_)
    for k in (1, 3, 5):
        pcr = make_pipeline(PCA(k), LinearRegression()).fit(z, y)
        assert_same(ask("principal components", k), pcr[0].components_.T @ pcr[1].coef_)
        assert_same(ask("pls", k), np.ravel(PLSRegression(k, scale=False).fit(z, y).coef_))
    whole = LinearRegression().fit(z, y).coef_
    assert_same(ask("subsets", 5), whole)
    best = max(LinearRegression().fit(z[:, [i, j]], y).score(z[:, [i, j]], y) for i in range(5) for j in range(i))
    assert ask("subsets", 2).r_squared[0] == pytest.approx(best, abs=1e-8)
    assert np.count_nonzero(ask("subsets", 2).coefficients) == 2


@pytest.mark.parametrize("by", ["lasso", "subsets", "principal components", "pls"])
def test_a_path_ends_at_the_regression_of_the_release(by: Any) -> None:
    table = pd.DataFrame(chain(3000, np.random.default_rng(1)) + 1.0, columns=list("abcdey"))
    table["kind"] = np.where(table["a"] > 1, "high", "low")
    release = released(dpgep.scan(table, categories={"kind": ["high", "low"]}), adjacency="replace-one")
    path, fit = release.regression_path("y", by=by), release.regression("y")
    # of indicators that add up to 1, all coefficients may be larger by a number that the intercept lacks
    rows = np.eye(7)
    rows[:, 5] = np.arange(7) % 2
    rows[:, 6] = 1 - rows[:, 5]
    predicted, expected = path.intercepts[-1] + rows @ path.coefficients[-1], fit.intercept + rows @ fit.coefficients
    np.testing.assert_allclose(np.diff(predicted), np.diff(expected), atol=1e-7)
    assert predicted[0] == pytest.approx(expected[0], rel=1e-2)  # released means of indicators do not add up to 1
    assert path.left_out == fit.left_out
    assert np.all(np.diff(path.r_squared) >= -1e-9)
    assert list(path.to_frame().columns[:3]) == ["R squared", "intercept", "a"]
    assert "no intervals" in repr(path)
    partial, graph = release.partial_correlation(), release.graph()
    assert (partial.names, partial.left_out) == (graph.names, graph.left_out)
    assert f"left out  {partial.left_out[0]}" in repr(partial)


LOADINGS = np.array([[0.8, 0], [0.7, 0.1], [0.6, 0], [0.1, 0.7], [0, 0.6], [0, 0.5], [0.4, 0.4]])


def of_factors(n: int, rng: np.random.Generator) -> Matrix:
    """Seven columns of two factors."""
    own = np.sqrt(1 - np.sum(LOADINGS**2, axis=1))
    return np.asarray(rng.standard_normal((n, 2)) @ LOADINGS.T + rng.standard_normal((n, 7)) * own)


@pytest.mark.parametrize("table", ["generated", "wine", "halves of wine"])
def test_factors_are_those_of_statsmodels(table: str) -> None:
    """Principal axes, iterated until nothing moves, are least squares."""
    wine = load_wine().data
    x = {"wine": wine, "halves of wine": wine[::2]}.get(table, of_factors(500, np.random.default_rng(2)))
    release = released(x)
    theirs = Factor(corr=np.corrcoef(x.T), n_factor=2, nobs=len(x), method="pa").fit(maxiter=3000, tol=1e-11)
    ours = release.factors(n_factors=2, rotation=None)
    np.testing.assert_allclose(ours.uniqueness, theirs.uniqueness, atol=1e-7)
    np.testing.assert_allclose(np.abs(ours.loadings), np.abs(theirs.loadings), atol=1e-7)
    lengths = np.linalg.norm(theirs.loadings, axis=1, keepdims=True)
    turned = rotate_factors(theirs.loadings / lengths, "varimax", tol=1e-7, max_tries=1000)[0] * lengths
    turned = turned[:, np.argsort(-np.sum(turned**2, axis=0))]
    varimax, promax = release.factors(n_factors=2), release.factors(n_factors=2, rotation="promax")
    np.testing.assert_allclose(np.abs(varimax.loadings), np.abs(turned), atol=1e-5)
    common = promax.loadings @ promax.factor_correlation @ promax.loadings.T
    np.testing.assert_allclose(common, ours.loadings @ ours.loadings.T, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(promax.factor_correlation), 1.0)
    assert list(varimax.to_frame().columns) == ["factor 1", "factor 2", "uniqueness"]
    assert "correlations of the factors" in repr(promax)


def test_uncorrelated_columns_have_no_common_part() -> None:
    """All eigenvalues of a full factorial design are equal."""
    design = np.stack(np.meshgrid(*[[-1.0, 1.0]] * 6), axis=-1).reshape(-1, 6)
    found = released(design).factors(n_factors=2, rotation=None)
    np.testing.assert_allclose(found.loadings @ found.loadings.T + np.diag(found.uniqueness), np.eye(6), atol=1e-6)


def test_loadings_lie_in_their_intervals_and_noise_is_no_factor() -> None:
    """Of 14 loadings and three releases; and of 40 without factors 5 % find one: P(> 12) = 4e-8."""
    truth = released(of_factors(100_000, np.random.default_rng(0))).factors(n_factors=2).loadings
    held, found = [], []
    for seed in range(3):
        answer = released(of_factors(4000, np.random.default_rng(seed)), seed, bound=6.0).factors()
        assert (answer.recommended, answer.loadings.shape) == (2, (7, 2))
        low, high = np.moveaxis(answer.intervals(), -1, 0)
        held.append((low <= truth) & (truth <= high))
    for seed in range(40):
        nothing = np.random.default_rng(seed).standard_normal((500, P))
        found.append(released(nothing, seed, bound=6.0).factors().recommended)
    assert np.mean(held) > 0.7
    assert np.count_nonzero(found) <= 12


def test_steps_come_back_in_the_order_in_which_they_were_asked_for() -> None:
    release = released(TABLES["generated"])
    for by in ("lasso", "elastic net", "ridge"):
        both = release.regression_path(0, by=by, steps=[0.01, 0.3])
        for row, step in zip(both.coefficients, both.steps, strict=True):
            alone = release.regression_path(0, by=by, steps=[step]).coefficients[0]
            np.testing.assert_allclose(row, alone, atol=1e-4)
    table = np.column_stack([np.full(300, 7.0), np.random.default_rng(0).standard_normal((300, 2))])
    constant = released(table, bound="auto", epsilon=math.inf, delta=None)
    assert not constant.regression_path(0).coefficients.any()


def test_what_cannot_be_answered_is_refused() -> None:
    release = released(np.random.default_rng(0).standard_normal((50, 14)))
    for options, message in [
        ({"by": "stepwise"}, "by must be one of"),
        ({"by": "subsets"}, "the number of columns of subsets must be"),
        ({"by": "pls", "steps": [1.5]}, "a step must be"),
        ({"by": "ridge", "steps": [0.0]}, "a step must be"),
        ({"steps": []}, "steps must be a list of numbers"),
        ({"on": [0, 1]}, "cannot be regressed on itself"),
    ]:
        with pytest.raises(ValueError, match=message):
            release.regression_path(0, **options)  # type: ignore[arg-type]
    single = released(np.random.default_rng(0).standard_normal((50, 1)))
    for alone in (single.regression, single.regression_path):
        with pytest.raises(ValueError, match="is the only one of this release"):
            alone(0)
    with pytest.raises(ValueError, match="penalty"):
        release.graph(penalty=-1.0)
    holes = np.random.default_rng(0).standard_normal((2000, 3))
    holes[::7, 1] = np.nan
    pairs = released(holes, preprocessing=dpgep.AutoPreprocessing(missing="pairwise"))
    assert pairs.graph().values.shape == (3, 3)
    for options, message in [
        ({"n_factors": 12}, "n_factors must be"),
        ({"columns": [0, 1]}, "number of columns must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            release.factors(**options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rotation must be one of"):
        release.factors(rotation="oblimin")  # type: ignore[arg-type]
    for ask in (pairs.partial_correlation, pairs.factors, lambda: pairs.regression_path(0)):
        with pytest.raises(ValueError, match='are not known of covariances with missing="pairwise"'):
            ask()


@pytest.mark.parametrize("table", ["generated", "wine", "halves of wine"])
def test_partial_and_regularized_canonical_correlations(table: str) -> None:
    """Of residuals of least squares; and of covariances with a ridge, as the definition has it."""
    wine = load_wine().data
    x = {"wine": wine, "halves of wine": wine[::2]}.get(table, of_factors(500, np.random.default_rng(2)))[:, :7]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    design = np.column_stack([np.ones(len(x)), x[:, 5:]])
    left = x[:, :5] - design @ np.linalg.lstsq(design, x[:, :5], rcond=None)[0]

    def correlations(rows: Matrix, ridge: float) -> Matrix:
        s = rows.T @ rows / len(rows)
        xx, yy = s[:2, :2] + ridge * np.eye(2), s[2:, 2:] + ridge * np.eye(3)
        squares = np.linalg.eigvals(np.linalg.solve(xx, s[:2, 2:]) @ np.linalg.solve(yy, s[2:, :2]))
        return np.sort(np.sqrt(squares.real))[::-1]

    release = dpgep.release(x, bound=1e3, preprocessing=None, epsilon=math.inf)
    for given, rows in (([5, 6], left), (None, x[:, :5])):
        for ridge in (0.0, 0.3):
            found = release.cca([0, 1], [2, 3, 4], given=given, regularization=ridge, n_components=2)
            np.testing.assert_allclose(found.eigenvalues, correlations(rows, ridge), rtol=1e-8, atol=1e-10)
    with pytest.raises(ValueError, match="are in a view and given"):
        release.cca([0, 1], [2, 3], given=[3, 4])


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning", "ignore::dpgep.errors.PrivacyWarning")
def test_what_others_explain_is_no_partial_canonical_correlation() -> None:
    # x and y depend on z alone: the noise and 20 000 people leave correlations of at most 0.1 or so
    rng = np.random.default_rng(4)
    z = rng.normal(size=(20_000, 1))
    rows = np.hstack([z + rng.normal(size=(20_000, 4)), z])
    release = dpgep.release(pd.DataFrame(rows, columns=list("abcdz")), epsilon=2.0, delta=1e-6, seed=1)
    whole = release.cca(["a", "b"], ["c", "d"], n_components=1)
    partial = release.cca(["a", "b"], ["c", "d"], given=["z"], n_components=1)
    assert whole.eigenvalues[0] > 0.5
    assert partial.eigenvalues[0] < 0.15


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_slopes_of_a_column_of_zeros_and_ones_are_near_those_of_a_logistic_regression(seed: int) -> None:
    """Average marginal effects of statsmodels' Logit; exactly OLS. Shares between 0.2 and 0.8: within a tenth."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(5000, 2))
    chances = 1 / (1 + np.exp(-(x @ [0.5, -0.3] + 0.2 * seed)))
    y = (rng.random(5000) < chances).astype(float)
    found = dpgep.release(np.column_stack([x, y]), epsilon=math.inf).regression(2)
    ols = sm.OLS(y, sm.add_constant(x)).fit()
    np.testing.assert_allclose(found.coefficients, ols.params[1:], rtol=1e-8)
    logit = sm.Logit(y, sm.add_constant(x)).fit(disp=0)
    np.testing.assert_allclose(found.coefficients, logit.get_margeff().margeff, rtol=0.1)
    share = y.mean()
    np.testing.assert_allclose(found.coefficients / (share * (1 - share)), logit.params[1:], rtol=0.2)


@tables
@pytest.mark.parametrize("standardize", [False, True])
def test_redundancy_analysis_is_that_of_fitted_values(table: str, standardize: bool) -> None:
    """As vegan's and scikit-bio's `rda` define it: components of least-squares predictions."""
    data = TABLES[table]
    y, x = data[:, :3], data[:, 3:]
    found = released(data).redundancy([0, 1, 2], [3, 4, 5], standardize=standardize)
    fitted = LinearRegression().fit(x, y / y.std(axis=0) if standardize else y).predict(x)
    wanted = PCA().fit(fitted)
    size = (len(y) - 1) / len(y)
    np.testing.assert_allclose(found.eigenvalues, size * wanted.explained_variance_, rtol=1e-8, atol=1e-10)
    whole = (y / y.std(axis=0) if standardize else y).var(axis=0).sum()
    assert found.explained == pytest.approx(found.eigenvalues.sum() / whole, rel=1e-8)
    scores = (x - x.mean(axis=0)) @ found.predictor_weights.T
    np.testing.assert_allclose(np.abs(scores[:, 0]), np.abs(wanted.transform(fitted)[:, 0]), atol=1e-6 * scores.std())


@tables
@pytest.mark.parametrize("standardize", [False, True])
def test_redundancy_analysis_is_that_of_scikit_bio(table: str, standardize: bool) -> None:
    """Its `eigvals` are singular values of fitted values."""
    rda = pytest.importorskip("skbio.stats.ordination").rda
    data = TABLES[table]
    found = released(data).redundancy([0, 1, 2], [3, 4, 5], standardize=standardize)
    wanted = rda(pd.DataFrame(data[:, :3]), pd.DataFrame(data[:, 3:]), scale_Y=standardize)
    values = wanted.eigvals.to_numpy()[: len(found.eigenvalues)] ** 2 / len(data)
    np.testing.assert_allclose(found.eigenvalues, values, rtol=1e-8, atol=1e-10 * values[0])


@pytest.mark.parametrize("standardize", [False, True])
def test_explained_shares_lie_in_their_intervals(standardize: bool) -> None:
    """Of 80 draws of people and noise at 90 %: fewer than 55 with a probability of 1e-6, if they hold as promised."""
    slopes, held, found = np.array([[0.6, 0.0], [0.3, -0.4], [0.0, 0.2]]), 0, []
    wanted = np.sum(slopes**2, axis=0) / (1 + np.sum(slopes**2, axis=0)) if standardize else np.sum(slopes**2)
    truth = float(np.mean(wanted) if standardize else wanted / (2 + wanted))
    for seed in range(80):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((5000, 3))
        rows = np.hstack([x @ slopes + rng.standard_normal((5000, 2)), x])
        release = released(rows, seed=seed, bound=8.0, epsilon=1.0)
        answer = release.redundancy([0, 1], [2, 3, 4], standardize=standardize)
        held += answer.explained_low <= truth <= answer.explained_high
        found.append(answer.explained - truth)
    assert held >= 55
    assert abs(np.mean(found)) < 5 * np.std(found) / math.sqrt(80)  # the noise does not lift them


@pytest.mark.parametrize("seed", [0, 5, 7])
def test_partial_correlations_where_no_covariance_before_the_clipping_is_possible(seed: int) -> None:
    """Without a warning of an overflow."""
    rng = np.random.default_rng(seed)
    rows = np.exp(rng.standard_normal((300, 8)) @ rng.standard_normal((8, 8)))
    found = released(rows, seed=seed, bound="auto", epsilon=0.05).partial_correlation()
    assert ((found.low <= found.values) & (found.values <= found.high)).all()


def test_of_what_noise_hides_any_share_may_be_explained() -> None:
    rng = np.random.default_rng(0)
    release = released(rng.standard_normal((200, 4)), bound=8.0, epsilon=0.1)
    found = release.redundancy([0, 1], [2, 3])
    assert (found.explained_low, found.explained_high) == (0.0, 1.0)
    nothing = released(
        np.column_stack([np.full(300, 7.0), rng.standard_normal((300, 3))]), seed=1, bound=8.0, epsilon=0.3
    )
    for standardize in (False, True):  # no warning of an overflow, where noise leaves no variance
        found = nothing.redundancy([0], [2, 3], standardize=standardize)
        assert (found.explained_low, found.explained_high) == (0.0, 1.0)
    table = np.column_stack([np.full(40, 7.0), np.random.default_rng(380).standard_normal((40, 3))[:, 1:]])
    center = dpgep.AutoPreprocessing(missing="center", precondition="columns")
    few = released(table, seed=181, bound="auto", preprocessing=center, epsilon=0.001)
    assert 0 <= few.redundancy([0], [1, 2]).explained <= 1
    with pytest.raises(ValueError, match="level"):
        release.redundancy([0, 1], [2, 3], level=1.0)


def test_redundancy_with_noise_and_categories() -> None:
    rng = np.random.default_rng(5)
    cause = rng.standard_normal(20_000)
    people = pd.DataFrame({"a": cause + rng.standard_normal(20_000), "b": rng.standard_normal(20_000)})
    people["place"] = pd.Categorical.from_codes(np.digitize(cause, [-1, 1]), list("xyz"))
    exact, noisy = (released(people, seed=1, **terms) for terms in ({"epsilon": math.inf}, {"epsilon": 1.0}))
    truth, found = (each.redundancy(["a", "b"], ["place"]) for each in (exact, noisy))
    assert truth.predictors == ("place=y", "place=z")
    means = people.groupby("place", observed=True)[["a", "b"]].transform("mean").var(ddof=0)
    assert truth.eigenvalues.sum() == pytest.approx(means.sum(), rel=1e-8)
    low, high = pickle.loads(pickle.dumps(found)).intervals().eigenvalues[0]
    assert low < truth.eigenvalues[0] < high < 2 * truth.eigenvalues[0]
    assert "explained" in repr(found)
    assert "in groups" not in repr(found)
    assert found.to_frame().shape == (2, 2)
    with pytest.raises(ValueError, match="in y and x"):
        exact.redundancy(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="n_components"):
        exact.redundancy(["a", "b"], ["place=x"], n_components=2)
