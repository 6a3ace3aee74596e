"""`dpgep.sklearn`: scikit-learn's own checks, its estimators as oracles without noise, and what fits cost."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import scipy.stats
import sklearn
from conftest import Matrix, nothing_spent
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.cross_decomposition import CCA, PLSSVD
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpgep
from dpgep.sklearn import PrivateCCA, PrivateFDA, PrivatePCA, PrivatePLS, PrivateScaler, PrivateSIR

EXACT: dict[str, Any] = {"epsilon": math.inf}
PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def all_estimators(**terms: Any) -> list[Any]:
    return [
        PrivatePCA(**terms),
        PrivateCCA(**terms),
        PrivatePLS(**terms),
        PrivateFDA(**terms),
        PrivateSIR(y_range=(-3.0, 3.0), **terms),
        PrivateScaler(**terms),
    ]


# Warnings of seeds, of labels that become public, of a delta of 1/n or more, and of what few rows show are the
# library's own; no check is expected to fail. scikit-learn itself skips one, of array types that estimators
# without `array_api_support` do not claim, unless SCIPY_ARRAY_API is set before SciPy is imported.
checks_may_warn = pytest.mark.filterwarnings(
    "ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning"
)


def checks_of(*estimators: Any) -> pytest.MarkDecorator:
    """scikit-learn's own parameters, in a list: its older versions pass a generator, which pytest will not take."""
    mark = parametrize_with_checks(list(estimators)).mark
    names, checks = mark.args
    return pytest.mark.parametrize(names, list(checks), **mark.kwargs)


@checks_may_warn
@checks_of(*all_estimators(**EXACT))
def test_checks_of_scikit_learn_without_noise(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.deep
@checks_may_warn
@checks_of(
    *all_estimators(**PRIVATE), PrivatePCA(standardize=True, **PRIVATE), PrivateScaler(with_mean=False, **PRIVATE)
)
def test_checks_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.fixture
def rows(rng: np.random.Generator) -> Matrix:
    """2000 rows of 5 columns, of variances that differ, away from zero."""
    return np.asarray(rng.standard_normal((2000, 5)) @ np.diag([5.0, 3.0, 2.0, 1.0, 0.5]) + [3.0, 0.0, -2.0, 1.0, 0.0])


@pytest.fixture
def views(rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Two views of 2000 people, with two pairs of directions that are correlated."""
    shared, noise = rng.standard_normal((2000, 2)), rng.standard_normal((2000, 7))
    x = np.hstack([shared * [3, 1], np.zeros((2000, 2))]) + noise[:, :4] * 0.7
    y = np.hstack([shared @ [[2, 1], [-1, 1]], np.zeros((2000, 1))]) + noise[:, 4:] * 0.5
    return x + 1.0, y - 2.0


@pytest.fixture
def labelled(rng: np.random.Generator) -> tuple[Matrix, Any]:
    """2000 rows of 4 columns, in three classes."""
    labels = rng.integers(0, 3, 2000)
    return np.array([[2.0, 0, 0, 0], [0, 2, 0, 0], [-2, -1, 0, 0]])[labels] + rng.standard_normal((2000, 4)), labels


def everything(x: Matrix, y: Matrix | None = None) -> float:
    """A bound that clips no row: without noise there is nothing else to choose."""
    return float(np.linalg.norm(x if y is None else np.hstack([x, y]), axis=1).max() * 1.01)


def cosines(ours: Matrix, theirs: Matrix) -> Matrix:
    """|cos| between the rows of two matrices."""
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    return np.asarray(np.abs((ours * theirs).sum(axis=1)) / norms)


class TestWithoutNoiseAsScikitLearn:
    """What noise would change is what scikit-learn computes, up to factors n/(n-1)."""

    def test_pca(self, rows: Matrix) -> None:
        ours = PrivatePCA(n_components=3, bound=everything(rows), **EXACT).fit(rows)
        theirs = PCA(n_components=3).fit(rows)
        n = len(rows)
        np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-9)
        np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_ * (n - 1) / n)
        np.testing.assert_allclose(ours.explained_variance_ratio_, theirs.explained_variance_ratio_)
        np.testing.assert_allclose(ours.mean_, theirs.mean_, atol=1e-9)
        np.testing.assert_allclose(ours.transform(rows), theirs.transform(rows), atol=1e-8)
        scores = theirs.transform(rows)
        np.testing.assert_allclose(ours.inverse_transform(scores), theirs.inverse_transform(scores), atol=1e-8)

    @pytest.mark.parametrize("whiten", [False, True])
    @pytest.mark.parametrize("n_components", [2, 5, 0.9])
    def test_probabilistic_pca(self, rows: Matrix, n_components: float, whiten: bool) -> None:
        centred = rows - rows.mean(axis=0)
        ours = PrivatePCA(n_components, whiten=whiten, bound=everything(rows), **EXACT).fit(centred)
        theirs = PCA(n_components, whiten=whiten, svd_solver="full").fit(centred)
        n, k = len(rows), theirs.n_components_
        assert (ours.n_components_, ours.n_samples_) == (k, n)
        # sums of squares over n - 1 in scikit-learn, over n here
        np.testing.assert_allclose(ours.singular_values_, theirs.singular_values_, rtol=1e-8)
        np.testing.assert_allclose(ours.noise_variance_ * n / (n - 1), theirs.noise_variance_, rtol=1e-8, atol=1e-12)
        plain = PCA(n_components, svd_solver="full").fit(centred)  # whitening changes no law, but that of scikit-learn
        np.testing.assert_allclose(ours.get_covariance() * n / (n - 1), plain.get_covariance(), atol=1e-8)
        np.testing.assert_allclose(ours.get_precision() * (n - 1) / n, plain.get_precision(), atol=1e-8)
        few = rows[:50]
        expected = scipy.stats.multivariate_normal(ours.mean_, ours.get_covariance()).logpdf(few)
        np.testing.assert_allclose(ours.score_samples(few), expected, rtol=1e-9)
        assert ours.score(few) == pytest.approx(expected.mean())
        np.testing.assert_allclose(ours.score(few), plain.score(few), rtol=1e-2)
        scores = ours.transform(few)
        unit = np.sqrt(n / (n - 1)) if whiten else 1.0
        np.testing.assert_allclose(np.abs(scores), np.abs(theirs.transform(few)) * unit, atol=1e-7)
        np.testing.assert_allclose(
            ours.inverse_transform(scores), theirs.inverse_transform(theirs.transform(few)), atol=1e-7
        )

    def test_covariance_of_standardized_columns(self, rows: Matrix) -> None:
        ours = PrivatePCA(standardize=True, bound=everything(rows), **EXACT).fit(rows)
        np.testing.assert_allclose(ours.get_covariance(), np.cov(rows.T, bias=True), atol=1e-9)

    def test_standardized_pca(self, rows: Matrix) -> None:
        ours = PrivatePCA(n_components=2, standardize=True, bound=everything(rows), **EXACT).fit(rows)
        theirs = make_pipeline(StandardScaler(), PCA(n_components=2)).fit(rows)
        scores = theirs.transform(rows)
        np.testing.assert_allclose(cosines(ours.transform(rows).T, scores.T), 1.0, atol=1e-9)
        np.testing.assert_allclose(ours.explained_variance_ratio_, theirs[-1].explained_variance_ratio_)
        np.testing.assert_allclose(ours.scale_, rows.std(axis=0))
        np.testing.assert_allclose(
            ours.inverse_transform(ours.transform(rows)), theirs.inverse_transform(scores), atol=1e-8
        )

    def test_cca(self, views: tuple[Matrix, Matrix]) -> None:
        x, y = views
        ours = PrivateCCA(n_components=2, bound=everything(x, y), **EXACT).fit(x, y)
        theirs = CCA(n_components=2, max_iter=5000, tol=1e-12).fit(x, y)
        for mine, other in zip(ours.transform(x, y), theirs.transform(x, y), strict=True):
            np.testing.assert_allclose(cosines((mine - mine.mean(axis=0)).T, other.T), 1.0, atol=1e-6)
        np.testing.assert_allclose(
            ours.correlations_,
            [np.corrcoef(*pair)[0, 1] for pair in zip(*(s.T for s in ours.transform(x, y)))],  # noqa: B905
        )
        assert ours.x_weights_.shape == theirs.x_weights_.shape
        assert ours.y_weights_.shape == theirs.y_weights_.shape
        np.testing.assert_allclose(ours.x_mean_, x.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(ours.y_mean_, y.mean(axis=0), atol=1e-9)

    def test_pls(self, views: tuple[Matrix, Matrix]) -> None:
        x, y = views
        ours = PrivatePLS(n_components=2, bound=everything(x, y), **EXACT).fit(x, y)
        theirs = PLSSVD(n_components=2, scale=False).fit(x, y)
        np.testing.assert_allclose(cosines(ours.x_weights_.T, theirs.x_weights_.T), 1.0, atol=1e-9)
        np.testing.assert_allclose(cosines(ours.y_weights_.T, theirs.y_weights_.T), 1.0, atol=1e-9)
        singular = np.linalg.svd((x - x.mean(axis=0)).T @ (y - y.mean(axis=0)) / len(x), compute_uv=False)
        np.testing.assert_allclose(ours.covariances_, singular[:2])

    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_fda(self, labelled: tuple[Matrix, Any], n_classes: int) -> None:
        x, y = (part[labelled[1] < n_classes] for part in labelled)
        names = np.array(["blue", "green", "red"])[y]
        ours = PrivateFDA(classes=np.unique(names)[::-1], bound=everything(x), **EXACT).fit(x, names)
        theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(x, names)
        np.testing.assert_array_equal(ours.classes_, theirs.classes_)
        assert ours.coef_.shape == theirs.coef_.shape
        assert ours.intercept_.shape == theirs.intercept_.shape
        np.testing.assert_allclose(ours.priors_, theirs.priors_)
        np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
        np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-6)
        assert ours.decision_function(x).shape == theirs.decision_function(x).shape
        np.testing.assert_array_equal(
            ours.decision_function(x).argmax(axis=-1), theirs.decision_function(x).argmax(axis=-1)
        )
        directions = LinearDiscriminantAnalysis(solver="eigen").fit(x, names)
        np.testing.assert_allclose(cosines(ours.components_, directions.scalings_.T[: n_classes - 1]), 1.0, atol=1e-6)
        np.testing.assert_allclose(ours.explained_variance_ratio_, directions.explained_variance_ratio_, atol=1e-6)

    def test_sir(self, rows: Matrix) -> None:
        """Directions as those of discriminant analysis of the slices, eigenvalues over B = T, not W."""
        response = rows[:, 0] / 5
        ours = PrivateSIR(2, edges=[-9, 0, 1, 9], bound=everything(rows), **EXACT).fit(rows, response)
        slices = np.digitize(response, [0, 1])
        theirs = LinearDiscriminantAnalysis(solver="eigen").fit(rows, slices)
        np.testing.assert_allclose(cosines(ours.components_, theirs.scalings_.T[:2]), 1.0, atol=1e-6)

    def test_scaler(self, rows: Matrix) -> None:
        """Up to its grid, of 2^-10 of half an interval, in ranges that leave nobody out."""
        ranges = {j: (-40.0, 40.0) for j in range(5)}
        ours, theirs = PrivateScaler(ranges=ranges, **EXACT).fit(rows), StandardScaler().fit(rows)
        np.testing.assert_allclose(ours.mean_, theirs.mean_, atol=40 * 2**-10)
        np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=2e-3)
        np.testing.assert_allclose(ours.var_, ours.scale_**2)
        np.testing.assert_allclose(ours.transform(rows), theirs.transform(rows), atol=0.1)
        np.testing.assert_allclose(ours.inverse_transform(ours.transform(rows)), rows, atol=1e-9)


class TestPrivate:
    """With noise, estimators are `solve` and `release`, to the last bit."""

    def test_float32_stays(self, rows: Matrix) -> None:
        narrow = rows.astype(np.float32)
        for whiten in (False, True):
            fitted = PrivatePCA(2, whiten=whiten, bound=everything(rows), **EXACT).fit(narrow)
            scores = fitted.transform(narrow)
            assert scores.dtype == fitted.inverse_transform(scores).dtype == np.float32
            np.testing.assert_allclose(scores, fitted.transform(narrow.astype(float)), rtol=1e-5, atol=1e-5)

    @pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
    def test_a_share_of_the_variance_costs_one_release(self, rows: Matrix) -> None:
        fitted = PrivatePCA(0.8, epsilon=4.0, delta=1e-6).fit(rows)
        assert fitted.privacy_.epsilon == 4.0
        whole = fitted.solution_.diagnostics.spectrum
        below = whole[: fitted.n_components_ - 1].sum()
        assert below <= 0.8 * whole.sum() < below + whole[fitted.n_components_ - 1]
        with pytest.raises(ValueError, match="share of the variance"):
            PrivatePCA(0.8, method="auto", **PRIVATE).fit(rows)
        with pytest.raises(ValueError, match="n_components"):
            PrivatePCA(1.5, **PRIVATE).fit(rows)

    @pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
    def test_variances_that_noise_drowns_count_as_its_deviation(self, rng: np.random.Generator) -> None:
        few = rng.standard_normal((200, 5)) / 10
        fitted = PrivatePCA(bound=1.0, epsilon=0.1, delta=1e-6).fit(few)
        deviation = fitted.privacy_.releases[-1].noise[0].deviation / fitted.n_samples_
        assert fitted.explained_variance_[-1] < 0 < deviation
        expected = np.maximum(fitted.explained_variance_, deviation)
        np.testing.assert_allclose(np.linalg.eigvalsh(fitted.get_covariance())[::-1], expected, rtol=1e-6)
        assert np.isfinite(fitted.score(few))
        constant = np.column_stack([few, few[:, 0]])
        with pytest.raises(ValueError, match="singular"):
            PrivatePCA(bound=1.0, **EXACT).fit(constant).score(constant)

    @pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning")
    @pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
    def test_pca_is_solve(self, rows: Matrix) -> None:
        with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded run is not private"):
            ours = PrivatePCA(n_components=2, random_state=5, **PRIVATE).fit(rows)
        theirs = dpgep.solve(dpgep.pca(rows), n_components=2, seed=5, **PRIVATE)
        np.testing.assert_array_equal(ours.components_, theirs.components)
        np.testing.assert_array_equal(ours.explained_variance_, theirs.eigenvalues)
        assert ours.privacy_ == theirs.privacy
        assert ours.privacy_.seeded
        again = PrivatePCA(n_components=2, random_state=np.random.RandomState(5), **PRIVATE).fit(rows)
        assert again.privacy_.seeded

    def test_fda_and_its_rule_are_one_release(self, labelled: tuple[Matrix, Any]) -> None:
        x, y = labelled
        budget = dpgep.Budget(epsilon=4.0, delta=1e-6)
        fitted = PrivateFDA(budget=budget, classes=[0, 1, 2]).fit(x, y)
        assert fitted.privacy_.epsilon == 4.0
        assert [entry.query for entry in budget.releases].count("moment matrix") == 1
        assert fitted.classifier_.privacy.release == fitted.privacy_.release
        assert fitted.score(x, y) > 0.85

    @pytest.mark.entropy
    def test_noise_is_not_numpys(self, rows: Matrix) -> None:
        means = []
        for _ in range(2):
            np.random.seed(0)  # noqa: NPY002
            means.append(PrivateScaler(**PRIVATE).fit(rows).mean_)
        assert (means[0] != means[1]).all()

    @pytest.mark.parametrize("n", [2000, 200])
    def test_scaler_spends_all_on_location_and_scale(self, rows: Matrix, n: int) -> None:
        fitted = PrivateScaler(**PRIVATE).fit(rows[:n])
        report, total = fitted.privacy_, dpgep.Budget(**PRIVATE).mu
        assert report.epsilon == 1.0
        assert math.isclose(math.fsum(entry.mu**2 for entry in report.releases), total**2, rel_tol=1e-9)
        assert all("row norms" not in entry.query and "matrix" not in entry.query for entry in report.releases)
        assert report.exact
        assert "No range of values is presumed" in report.to_markdown()
        assert "caller" not in report.to_markdown()
        if n == 2000:
            np.testing.assert_allclose(fitted.mean_, rows.mean(axis=0), atol=1.0)
            np.testing.assert_allclose(fitted.scale_[:3], rows.std(axis=0)[:3], rtol=0.3)

    def test_scaler_of_holes_and_of_sparse_rows(self, rows: Matrix) -> None:
        holes = rows.copy()
        holes[::7, 1] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            PrivateScaler(**EXACT).fit(holes)
        filled = PrivateScaler(missing="center", **EXACT).fit(holes)
        assert (filled.transform(holes)[::7, 1] == 0).all()
        sparse = scipy.sparse.csr_array(np.where(rows > 2.0, rows, 0.0))
        with pytest.raises(TypeError, match="Sparse data was passed"):
            PrivateScaler(**EXACT).fit(sparse)
        scaled = PrivateScaler(with_mean=False, **EXACT).fit(sparse)
        np.testing.assert_allclose(scaled.transform(sparse).toarray(), sparse.toarray() / scaled.scale_, rtol=1e-12)
        np.testing.assert_allclose(scaled.inverse_transform(scaled.transform(sparse)).toarray(), sparse.toarray())

    def test_add_remove_and_absent_values(self, rows: Matrix) -> None:
        holes = rows.copy()
        holes[::5, 0] = np.nan
        auto = dpgep.AutoPreprocessing(missing="center")
        fitted = PrivatePCA(2, preprocessing=auto, adjacency="add-remove", epsilon=4.0, delta=1e-6).fit(holes)
        assert fitted.privacy_.adjacency == "add-remove"
        assert np.isfinite(fitted.transform(holes)).all()

    def test_labels_of_nobody_and_of_no_class_raise_no_error(self, labelled: tuple[Matrix, Any]) -> None:
        x, y = labelled
        odd = y.astype(object)
        odd[:3] = [None, "other", math.nan]
        fitted = PrivateFDA(classes=[2, 0, 1], **EXACT).fit(x, odd)
        np.testing.assert_array_equal(fitted.classes_, [0, 1, 2])
        with pytest.raises((TypeError, ValueError)):
            PrivateFDA(**EXACT).fit(x, odd)


class TestNames:
    def test_of_tables(self, rows: Matrix) -> None:
        table = pd.DataFrame(rows, columns=["age", "income", "height", "weight", "visits"])
        ranges = {"age": (-50.0, 50.0)}
        fitted = PrivatePCA(2, preprocessing=dpgep.AutoPreprocessing(ranges=ranges), **PRIVATE).fit(table)
        assert fitted.solution_.feature_names == tuple(table.columns)
        np.testing.assert_array_equal(fitted.feature_names_in_, table.columns)
        np.testing.assert_array_equal(fitted.get_feature_names_out(), ["privatepca0", "privatepca1"])
        scores = fitted.set_output(transform="pandas").transform(table)
        np.testing.assert_array_equal(scores.columns, ["privatepca0", "privatepca1"])
        with pytest.raises(ValueError, match="order"):
            fitted.transform(table[table.columns[::-1]])
        scaler = PrivateScaler(ranges=ranges, **PRIVATE).fit(table)
        np.testing.assert_array_equal(scaler.get_feature_names_out(), table.columns)

    def test_text_and_categories_are_refused_by_name_before_anything_is_spent(self, rows: Matrix) -> None:
        table = pd.DataFrame(rows[:, :2], columns=["age", "income"])
        budget = dpgep.Budget(**PRIVATE)
        text = table.assign(name=["somebody"] * len(table))
        with nothing_spent(budget), pytest.raises(TypeError, match="column 'name'") as refused:
            PrivatePCA(budget=budget).fit(text)
        assert "somebody" not in str(refused.value)
        assert str(refused.value).endswith("select others, or encode them first, as by OneHotEncoder(categories=[...])")
        group = pd.Categorical(["a", "b"] * (len(table) // 2), categories=["a", "b"])
        with nothing_spent(budget), pytest.raises(TypeError, match="OneHotEncoder"):
            PrivatePCA(budget=budget).fit(table.assign(group=group))

    def test_in_a_column_transformer(self, rows: Matrix) -> None:
        table = pd.DataFrame(rows, columns=["age", "income", "height", "weight", "visits"])
        budget = dpgep.Budget(epsilon=8.0, delta=1e-6)
        halves = ColumnTransformer(
            [
                ("body", PrivatePCA(1, budget=budget, share=0.5), ["height", "weight"]),
                ("rest", PrivateScaler(budget=budget, share=0.5), ["age", "income"]),
            ],
            verbose_feature_names_out=False,
        )
        assert halves.fit_transform(table).shape == (2000, 3)
        np.testing.assert_array_equal(halves.get_feature_names_out(), ["privatepca0", "age", "income"])
        assert budget.remaining_mu < 1e-6 * budget.mu


class TestTerms:
    """What is asked for is checked before it is paid for."""

    @pytest.mark.parametrize(
        ("terms", "message"),
        [
            ({}, "give exactly one budget"),
            ({"epsilon": 1.0}, "epsilon needs a delta"),
            ({"epsilon": 1.0, "delta": 1e-6, "share": 0.5}, "share"),
            ({"epsilon": -1.0, "delta": 1e-6}, "epsilon must be a positive number"),
        ],
    )
    @pytest.mark.parametrize("estimator", [PrivatePCA(), PrivateScaler()], ids=["pca", "scaler"])
    def test_no_guarantee_is_presumed(self, estimator: Any, terms: dict[str, Any], message: str, rows: Matrix) -> None:
        with pytest.raises(ValueError, match=message):
            clone(estimator).set_params(**terms).fit(rows)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"n_components": 3},
            {"priors": [1.0, 2.0]},
            {"priors": [1.0, 2.0, -1.0]},
            {"ridge": -1.0},
            {"regularization": -1.0},
            {"sparsity": 1},
            {"preprocessing": dpgep.AutoPreprocessing(precondition="full")},
        ],
        ids=str,
    )
    def test_what_is_wrong_with_a_rule_costs_nothing(self, labelled: tuple[Matrix, Any], wrong: dict[str, Any]) -> None:
        x, y = labelled
        budget = dpgep.Budget(**PRIVATE)
        with nothing_spent(budget), pytest.raises(ValueError, match=r"components|priors|ridge|regularization|mix"):
            PrivateFDA(budget=budget, classes=[0, 1, 2]).set_params(**wrong).fit(x, y)

    def test_too_many_columns_for_a_scaler(self) -> None:
        budget = dpgep.Budget(**PRIVATE)
        with nothing_spent(budget), pytest.raises(ValueError, match="at most 4096 columns, got 4097"):
            PrivateScaler(budget=budget).fit(np.zeros((3, 4097)))


class TestBudgets:
    @pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
    def test_clones_share_it_and_copies_do_not(self, rows: Matrix) -> None:
        budget = dpgep.Budget(**PRIVATE)
        model = Pipeline([("pca", PrivatePCA(budget=budget, share=0.25))])
        assert clone(model)["pca"].budget is budget
        clone(model).fit(rows)
        clone(model).fit(rows)
        assert math.isclose(budget.spent_mu, budget.mu * math.sqrt(0.5), rel_tol=1e-9)
        for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # joblib's processes pickle
            with pytest.raises(ValueError, match="of one process"):
                copied.fit(rows)

    def test_a_pickled_fit_serves_and_is_not_fitted_again(self, rows: Matrix) -> None:
        fitted = PrivatePCA(2, budget=dpgep.Budget(**PRIVATE)).fit(rows)
        stored = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(stored.transform(rows), fitted.transform(rows))
        assert stored.privacy_ == fitted.privacy_
        assert isinstance(fitted.budget, dpgep.Budget)
        for unpaid in (stored, clone(stored)):
            with pytest.raises(ValueError, match="needs set_params"):
                unpaid.fit(rows)
        stored.set_params(budget=dpgep.Budget(**PRIVATE)).fit(rows)

    @pytest.mark.filterwarnings(
        "ignore:components .* lost:dpgep.errors.AccuracyWarning"
    )  # a fourteenth of the budget each
    def test_a_grid_search_spends_folds_times_candidates_and_the_refit(self, labelled: tuple[Matrix, Any]) -> None:
        x, y = (part[:500] for part in labelled)
        budget = dpgep.Budget(epsilon=8.0, delta=1e-6)
        model = Pipeline([("pca", PrivatePCA(budget=budget, share=1 / 14)), ("rule", LogisticRegression())])
        search = GridSearchCV(model, {"pca__n_components": [1, 2]}, cv=3, error_score="raise")
        for fits in (7, 14):  # 3 folds of 2 candidates, and a refit
            search.fit(x, y)
            assert math.isclose(budget.spent_mu**2, budget.mu**2 * fits / 14, rel_tol=1e-9)
        assert [entry.query for entry in budget.releases].count("moment matrix") == 14
        before = budget.releases
        with pytest.raises(dpgep.errors.PrivacyBudgetError):
            search.fit(x, y)
        assert budget.releases == before

    @pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
    def test_scikit_learn_makes_nan_of_a_refusal_unless_told_not_to(self, labelled: tuple[Matrix, Any]) -> None:
        x, y = (part[:500] for part in labelled)
        budget = dpgep.Budget(epsilon=8.0, delta=1e-6)
        model = Pipeline([("pca", PrivatePCA(budget=budget, share=0.25)), ("rule", LogisticRegression())])
        search = GridSearchCV(model, {"pca__n_components": [1, 2]}, cv=3, refit=False)
        with pytest.warns(FitFailedWarning, match="PrivacyBudgetError"):
            search.fit(x, y)
        scores = np.ravel([search.cv_results_[f"split{k}_test_score"] for k in range(3)])
        assert np.isnan(scores).sum() == 2
        assert budget.remaining_mu < 1e-6 * budget.mu

    @pytest.mark.deep
    @pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
    def test_a_budget_in_a_file_serves_several_processes(self, labelled: tuple[Matrix, Any], tmp_path: Path) -> None:
        x, y = (part[:500] for part in labelled)
        path = tmp_path / "budget"
        with pytest.raises(FileNotFoundError):
            PrivatePCA(budget=path).fit(x)
        terms = {"adjacency": "replace-one", "dataset": "somebody's", "epsilon": 8.0, "delta": 1e-6}
        budget = dpgep.Budget.open(path, **terms)
        rule = PrivateFDA(budget=str(path), share=1 / 7, classes=[0, 1, 2])
        search = GridSearchCV(rule, {"ridge": [None, 0.1]}, cv=3, error_score="raise", n_jobs=2).fit(x, y)
        assert [entry.query for entry in budget.releases].count("moment matrix") == 7
        assert budget.remaining_mu < 1e-6 * budget.mu
        stored = pickle.loads(pickle.dumps(search))  # with the path, where the budget still is
        with pytest.raises(dpgep.errors.PrivacyBudgetError):
            stored.best_estimator_.fit(x, y)

    def test_a_fit_may_take_an_amount_of_epsilon(self, rows: Matrix) -> None:
        budget = dpgep.Budget(**PRIVATE)
        for spent in (0.25, 0.5):
            PrivateScaler(budget=budget, epsilon=0.25).fit(rows)
            assert budget.epsilon_at(budget.spent_mu) == pytest.approx(spent, rel=1e-9)

    def test_other_processes_are_refused(self, rows: Matrix, labelled: tuple[Matrix, Any]) -> None:
        x, y = labelled
        budget = dpgep.Budget(epsilon=8.0, delta=1e-6)
        model = PrivateFDA(budget=budget, share=0.1, classes=[0, 1, 2])
        for error_score in ("raise", np.nan):
            search = GridSearchCV(model, {"ridge": [None]}, cv=2, n_jobs=2, error_score=error_score)
            with nothing_spent(budget), pytest.raises(ValueError, match="keep it in a file, and pass its path"):
                search.fit(x, y)


def test_without_scikit_learn_the_import_says_what_to_install() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import dpgep; import dpgep.sklearn"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "sklearn is not installed: run pip install 'dpgep[sklearn]'" in result.stderr


@pytest.mark.parametrize(
    ("estimator", "option"),
    [(PrivatePCA(epsilon=1.0, delta=1e-6), r'preprocessing=dpgep\.Auto.*\(missing="center"\), .*"pairwise"$'),
     (PrivateScaler(epsilon=1.0, delta=1e-6), r'column, missing="center"$')],
)  # fmt: skip
def test_a_fit_says_what_admits_missing_values(estimator: Any, option: str) -> None:
    rows = np.ones((20, 2))
    rows[3, 1] = math.nan
    with pytest.raises(ValueError, match="contains NaN.*" + option):
        estimator.fit(rows)
    with pytest.raises(ValueError, match="contains infinity"):
        estimator.fit(np.where(np.isnan(rows), math.inf, rows))


# ---- what one person's values may not decide ----


def of_one_person(row: list[float], n: int = 40) -> Matrix:
    """Small rows, and one more."""
    return np.vstack([1e-3 * np.random.default_rng(5).standard_normal((n, len(row))), row])


@pytest.mark.entropy
@pytest.mark.parametrize("estimator", all_estimators(**PRIVATE)[:3] + all_estimators(**PRIVATE)[-1:])
def test_large_values_of_both_signs_are_no_warning(estimator: Any) -> None:
    """scikit-learn adds all entries up before it looks at each: infinity minus infinity was a warning of NumPy's."""
    odd = of_one_person([1.7e308, -1.7e308, 0.0, 0.0] * 8)
    plain = of_one_person([0.0] * 32)

    def fitted(rows: Matrix) -> Any:
        y = rows[:, :16] if isinstance(estimator, (PrivateCCA, PrivatePLS)) else None
        return vars(clone(estimator).fit(rows, y))

    result = dpgep.auditing.replay(fitted, (plain, odd))
    assert not result.flagged, result
    assert result.error is None


@pytest.mark.entropy
@pytest.mark.parametrize("row", [[1.7e308, -1.7e308, 0.0], [1e-3, 0.0, 0.0]])
def test_a_pipeline_of_private_steps_takes_any_row(row: list[float]) -> None:
    """Divided by a small scale, a large entry became infinite, which the next step refuses."""

    def fitted(rows: Matrix) -> Any:
        steps = PrivateScaler(epsilon=4.0, delta=1e-6), PrivatePCA(1, bound=3.0, **PRIVATE)
        pipeline = make_pipeline(*steps).fit(rows)
        return [vars(step) for step in pipeline.named_steps.values()]

    result = dpgep.auditing.replay(fitted, (of_one_person([0.0] * 3, 400), of_one_person(row, 400)))
    assert not result.flagged, result
    assert result.error is None


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_a_pipeline_of_private_steps_takes_nobody_under_add_remove() -> None:
    terms: dict[str, Any] = {"adjacency": "add-remove", **PRIVATE}
    pipeline = make_pipeline(PrivateScaler(**terms), PrivatePCA(1, bound=3.0, **terms))
    assert pipeline.fit(np.empty((0, 3)))[-1].components_.shape == (1, 3)


@pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")
def test_both_views_of_one_new_person_are_transformed() -> None:
    x, y = of_one_person([0.0] * 3), of_one_person([0.0] * 2)
    x_scores, y_scores = PrivateCCA(1, **PRIVATE).fit(x, y).transform(x[:1], y[:1])
    assert x_scores.shape == y_scores.shape == (1, 1)


# ---- several rows to a person ----


def visits_of_people() -> tuple[Matrix, Any, Any]:
    """Rows, labels and ids: 300 people, of one to ten rows, in any order."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(np.arange(300), rng.integers(1, 11, 300)))
    labels = (ids + rng.integers(0, 2, len(ids))) % 2
    return rng.standard_normal((len(ids), 3)) * [3, 2, 1] + labels[:, None], labels, ids


def test_estimators_take_ids() -> None:
    rows, labels, ids = visits_of_people()
    for estimator, data in [
        (PrivatePCA(bound=50.0, **EXACT), (rows,)),
        (PrivateCCA(bound=50.0, **EXACT), (rows[:, :2], rows[:, 2:])),
        (PrivateFDA(classes=[0, 1], bound=50.0, **EXACT), (rows, labels)),
        (PrivateSIR(y_range=(-3.0, 3.0), slices=4, bound=50.0, **EXACT), (rows[:, :2], rows[:, 2])),
    ]:
        fitted = estimator.fit(*data, person=ids)
        assert fitted.privacy_.several_rows
        assert fitted.privacy_.public.n_people == 300
    scaler = PrivateScaler(**EXACT).fit(rows, person=ids)
    assert scaler.privacy_.public.n_people == 300
    n_rows = np.bincount(ids)[ids]
    expected = np.average(rows, axis=0, weights=1 / n_rows)
    assert np.allclose(scaler.mean_, expected, atol=0.05)
    with pytest.raises(TypeError, match="an id for each row"):
        PrivatePCA(**PRIVATE).fit(rows, person="patient_id")


def test_ids_reach_a_step_of_a_pipeline() -> None:
    rows, labels, ids = visits_of_people()
    pipeline = make_pipeline(PrivatePCA(1, bound=50.0, **EXACT), LogisticRegression())
    pipeline.fit(rows, labels, privatepca__person=ids)
    alone = PrivatePCA(1, bound=50.0, **EXACT).fit(rows, person=ids)
    assert np.array_equal(pipeline[0].components_, alone.components_)


def test_sample_weights_are_routed_to_weights(rng: np.random.Generator) -> None:
    """scikit-learn's name for them, whose rules about weights of zero would tell what they are."""
    rows, given = rng.normal(size=(500, 3)) * [3, 1, 1], rng.uniform(0.5, 2.0, 500)
    with sklearn.config_context(enable_metadata_routing=True):
        step = PrivatePCA(1, bound=50.0, **EXACT).set_fit_request(weights="sample_weight", largest_weight=True)
        fitted = make_pipeline(step).fit(rows, sample_weight=given, largest_weight=2.0)
    alone = PrivatePCA(1, bound=50.0, **EXACT).fit(rows, weights=given, largest_weight=2.0)
    np.testing.assert_array_equal(fitted[0].components_, alone.components_)
    np.testing.assert_allclose(fitted[0].mean_, np.average(rows, axis=0, weights=given), atol=1e-3)


def test_ids_are_routed_through_cross_validation() -> None:
    """Each fit gets the ids of its rows."""
    rows, labels, ids = visits_of_people()
    with sklearn.config_context(enable_metadata_routing=True):
        step = PrivatePCA(1, bound=50.0, **EXACT).set_fit_request(person=True)
        pipeline = make_pipeline(step, LogisticRegression())
        folds = GroupKFold(3)
        found = cross_validate(
            pipeline,
            rows,
            labels,
            cv=folds.split(rows, labels, ids),
            params={"person": ids},
            return_estimator=True,
            error_score="raise",
        )
    people = [estimator[0].privacy_.public.n_people for estimator in found["estimator"]]
    assert people == [200, 200, 200]
