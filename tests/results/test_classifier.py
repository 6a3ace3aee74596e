"""The classifier of a release: scikit-learn's without noise, private as a whole with it."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Matrix
from scipy import stats
from scipy.sparse import csr_array
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from statistics_helpers import FALSE_ALARM

import dpgep
from dpgep.models import TableModel
from dpgep.models.moments import MomentNoise, ReleasedMoments
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import Classes
from dpgep.results.classifiers import LinearClassifier

CLASSES = ["a", "b", "c"]
NAMES = tuple("pqrst")


def table(rng: np.random.Generator, n: int = 3000) -> tuple[Matrix, Any]:
    """Unbalanced classes of correlated columns of different units."""
    labels = rng.choice(CLASSES, p=[0.6, 0.3, 0.1], size=n)
    means = np.array([[0, 0, 0, 0, 0], [1, -1, 0, 0, 1], [0, 2, 1, 0, -1]])
    mixing = np.eye(5) + np.triu(np.full((5, 5), 0.5), 1)
    rows = means[np.searchsorted(CLASSES, labels)] + rng.standard_normal((n, 5)) @ mixing
    return rows * [1, 2, 5, 0.5, 1] + [0, 3, 0, -1, 10], labels


def rule(
    x: Matrix,
    labels: Any,
    *,
    bound: Any = 100.0,
    preprocessing: Preprocessing | None = None,
    epsilon: float = math.inf,
    classes: Any = tuple(CLASSES),
    **options: Any,
) -> LinearClassifier:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        clipping: dict[str, Any] = {"preprocessing": preprocessing} if preprocessing else {"bound": bound}
        release = dpgep.release(dpgep.fda(x, labels, classes=classes, **clipping), epsilon=epsilon, delta=1e-6, seed=3)
    return release.classifier(**options)


def differences(rows: Any) -> Any:
    """Of each class from the first: what a rule depends on."""
    return rows[1:] - rows[0]


def test_without_noise_it_is_linear_discriminant_analysis(rng: np.random.Generator) -> None:
    x, labels = table(rng)
    ours, theirs = rule(x, labels), LinearDiscriminantAnalysis(solver="lsqr").fit(x, labels)
    assert ours.regularization == 0
    assert ours.shown.all()
    np.testing.assert_allclose(differences(ours.weights), differences(theirs.coef_), rtol=1e-8)
    np.testing.assert_allclose(differences(ours.intercepts), differences(theirs.intercept_), rtol=1e-8)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-9)
    with_ridge = rule(x, labels, ridge=0.1)
    assert np.abs(with_ridge.predict_proba(x) - theirs.predict_proba(x)).max() > 1e-3


def test_two_classes_and_other_priors(rng: np.random.Generator) -> None:
    x, labels = table(rng)
    x, labels = x[labels != "c"], labels[labels != "c"] == "a"
    ours, theirs = rule(x, labels, classes=(False, True)), LinearDiscriminantAnalysis(solver="lsqr").fit(x, labels)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-9)
    assert ours.predict(x).dtype == bool
    given = rule(x, labels, classes=(False, True), priors=[3, 1])
    np.testing.assert_array_equal(given.priors, [0.75, 0.25])
    np.testing.assert_array_equal(given.weights, ours.weights)
    odds = np.exp(differences(given.intercepts) - differences(ours.intercepts))
    np.testing.assert_allclose(odds, np.mean(~labels) / np.mean(labels) / 3, rtol=1e-9)


def test_people_of_no_class_do_not_count(rng: np.random.Generator) -> None:
    x, labels = table(rng)
    inside = labels != "c"
    ours, theirs = rule(x, labels, classes=("a", "b")), rule(x[inside], labels[inside], classes=("a", "b"))
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-9)


def test_directions_without_scatter_are_left_out(rng: np.random.Generator) -> None:
    """A copied and a constant column change nothing, as with scikit-learn's "svd"."""
    x, labels = table(rng)
    wide = np.column_stack([x, x[:, 1], np.ones(len(x))])
    np.testing.assert_allclose(rule(wide, labels).predict_proba(wide), rule(x, labels).predict_proba(x), atol=1e-7)


def test_weights_are_in_the_units_of_the_columns(rng: np.random.Generator) -> None:
    x, labels = table(rng)
    prepared = rule(x, labels, preprocessing=Preprocessing(100.0, x.mean(axis=0), x.std(axis=0), None, 64.0))
    plain = rule(x, labels)
    np.testing.assert_allclose(differences(prepared.weights), differences(plain.weights), rtol=1e-8)
    np.testing.assert_allclose(differences(prepared.intercepts), differences(plain.intercepts), rtol=1e-8)


def test_absent_values_count_as_the_location(rng: np.random.Generator) -> None:
    x, labels = table(rng)
    location = x.mean(axis=0)
    found = rule(x, labels, preprocessing=Preprocessing(100.0, location, missing=True))
    rows = x[:2].copy()
    rows[0, 2] = np.nan
    np.testing.assert_array_equal(found.absent, location)
    filled = np.where(np.isnan(rows), location, rows)
    np.testing.assert_array_equal(found.decision_function(rows), found.decision_function(filled))
    assert np.isnan(rule(x, labels).decision_function(rows)[0]).all()


def test_values_beyond_those_of_the_release_are_cut_off(rng: np.random.Generator) -> None:
    x, labels = table(rng)
    location, scale = x.mean(axis=0), x.std(axis=0)
    found = rule(x, labels, preprocessing=Preprocessing(100.0, location, scale, largest=5.0))
    wild = x[:3].copy()
    wild[0, 1], wild[1, 4] = 1e6, -1e6
    cut = wild.copy()
    cut[0, 1], cut[1, 4] = location[1] + 5 * scale[1], location[4] - 5 * scale[4]
    np.testing.assert_allclose(found.decision_function(wild), found.decision_function(cut), rtol=1e-12)
    np.testing.assert_array_equal(found.decision_function(csr_array(wild)), found.decision_function(wild))
    assert np.abs(rule(x, labels).decision_function(wild)).max() > 1e4


@pytest.mark.parametrize(("bound", "loss"), [(30.0, 0.08), ("auto", 0.02)])
def test_with_noise_it_classifies_nearly_as_well(bound: Any, loss: float, rng: np.random.Generator) -> None:
    x, labels = table(rng, 20000)
    fresh, truth = table(rng, 20000)
    theirs = LinearDiscriminantAnalysis().fit(x, labels).score(fresh, truth)
    found = rule(x, labels, bound=bound, epsilon=1.0)
    assert found.regularization > 0
    assert np.mean(found.predict(fresh) == truth) > theirs - loss
    assert np.mean(found.predict(fresh) == rng.permutation(truth)) < theirs - 0.2  # labels that tell nothing


def test_a_class_in_the_noise_is_not_predicted(rng: np.random.Generator) -> None:
    """An empty class: its mean is noise over nearly nothing, and would attract half of the rows."""
    x, labels = table(rng, 20000)
    classes = (*CLASSES, "nobody")
    found = rule(x, labels, epsilon=0.5, bound=30.0, classes=classes)
    assert found.shown.tolist() == [True, True, True, False]
    assert "nobody" not in found.predict(x)
    assert "in the noise 'nobody'" in repr(found)
    assert "in the noise" not in repr(rule(x, labels))


@pytest.mark.statistical
def test_what_noise_adds_to_squares_is_taken_off() -> None:
    """E of the debiased square is the one before noise: with a ridge above all else, |d_c|^2/ridge.

    The square of a noisy contrast has variance 4 s_c^2 |d_c|^2 + 2 d s_c^4; the mean of 4000 draws is normal to many
    digits. Two classes, so each has half of the probability of a false alarm.
    """
    d, draws, ridge, noise = 6, 4000, 1e6, MomentNoise(0.0, 0.2, 0.0)
    counts = np.array([0.75, 0.25])
    means = np.column_stack([np.full(d, 2.0), np.full(d, -4.0)])
    rng = np.random.default_rng(5)
    second = np.eye(d) + (means * counts) @ means.T
    contrasts = means - (means @ counts)[:, None]
    deviations = noise.sums * np.sqrt((1 / counts - 1) ** 2 + 1)
    squares = np.empty((draws, 2))
    for row in squares:
        sums = means * counts + noise.sums * rng.standard_normal((d, 2))
        released = ReleasedMoments(sums, counts, 1e6, noise, second)
        found = dpgep.Release(TableModel(d, Classes((0, 1))), _REPORT, released, frozenset()).classifier(ridge=ridge)
        assert found.shown.all()
        row[:] = ridge * 2 * (np.log(counts) - found.weights @ sums.sum(axis=1) - found.intercepts)
    truth = np.sum(contrasts**2, axis=0)
    error = np.sqrt((4 * deviations**2 * truth + 2 * d * deviations**4) / draws)
    limit = stats.norm.isf(FALSE_ALARM / 4)
    assert (np.abs(squares.mean(axis=0) - truth) < limit * error + 1e-4 * truth).all()
    assert (np.abs(squares.mean(axis=0) + d * deviations**2 - truth) > limit * error).any()  # were it left in


_REPORT = dpgep.PrivacyReport(1.0, 1e-6, 0.3, "replace-one", 1.0, (), True, False)


def test_names_of_columns_are_checked(rng: np.random.Generator) -> None:
    x, labels = table(rng)
    found = rule(pd.DataFrame(x, columns=list(NAMES)), labels)
    frame = pd.DataFrame(x, columns=list(NAMES))
    np.testing.assert_array_equal(found.predict(frame), found.predict(x))
    with pytest.raises(ValueError, match="another order"):
        found.predict(frame[list(NAMES[::-1])])
    with pytest.raises(ValueError, match="X lacks 't'"):
        found.predict(frame[list(NAMES[:4])])
    with pytest.raises(ValueError, match=r"shape \(n, 5\)"):
        found.predict(x[:, :4])


@pytest.mark.parametrize(
    ("classes", "kind"), [((1, 2), "i"), (("x", "y"), "U"), (((0, 1), (0, 2)), "O"), ((1, "y"), "O"), ((None, 1), "O")]
)
def test_labels_are_those_of_the_classes(classes: Any, kind: str, rng: np.random.Generator) -> None:
    x, labels = table(rng)
    found = replace(rule(x[labels != "c"], labels[labels != "c"], classes=("a", "b")), classes=classes)
    predicted = found.predict(x[:50])
    assert predicted.dtype.kind == kind
    assert predicted.shape == (50,)
    assert set(predicted.tolist()) == set(classes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ridge": -1.0}, "ridge must be a non-negative finite number, got -1.0"),
        ({"ridge": math.nan}, "ridge must be a non-negative finite number, got nan"),
        ({"priors": "equal"}, "priors must be \"released\" or a positive number for each class, got 'equal'"),
        ({"priors": [0.5, 0.5]}, "one number for each of the 3 classes, got 2"),
        ({"priors": [0.5, 0.5, 0.0]}, "each of priors must be a positive finite number, got 0.0"),
    ],
)
def test_what_is_wrong_is_said(options: Any, message: str, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        rule(*table(rng), **options)
