"""`epsilon=inf` against solvers nobody here wrote: SciPy, scikit-learn, a CCA by SVD. All to 1e-10."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray
from sklearn.cross_decomposition import PLSSVD
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

import dpgep

Matrix = NDArray[np.float64]
TOLERANCE = 1e-10


def exact(problem: Any, **arguments: Any) -> dpgep.Solution:
    return dpgep.solve(problem, epsilon=math.inf, **arguments)


def assert_same_directions(ours: Matrix, theirs: Matrix) -> None:
    """Every row spans the same line."""
    theirs = theirs / np.linalg.norm(theirs, axis=1, keepdims=True)
    sign = np.sign(np.einsum("ij,ij->i", ours, theirs))[:, None]
    np.testing.assert_allclose(ours, sign * theirs, atol=TOLERANCE)


def test_pca_is_scikit_learns(correlated_rows: Matrix) -> None:
    n = len(correlated_rows)
    theirs = PCA(svd_solver="full").fit(correlated_rows)
    ours = exact(dpgep.pca(correlated_rows, bound=1.0))
    np.testing.assert_allclose(ours.eigenvalues, theirs.explained_variance_ * (n - 1) / n, rtol=TOLERANCE)
    assert_same_directions(ours.components, theirs.components_)
    np.testing.assert_allclose(ours.mean, theirs.mean_, atol=1e-14)
    signs = np.sign(np.einsum("ij,ij->i", ours.components, theirs.components_))
    np.testing.assert_allclose(ours.transform(correlated_rows), theirs.transform(correlated_rows) * signs, atol=1e-12)


def test_uncentred_pca_is_the_svd(correlated_rows: Matrix) -> None:
    _, singular, right = scipy.linalg.svd(correlated_rows, full_matrices=False)
    ours = exact(dpgep.pca(correlated_rows, center=False, bound=1.0), n_components=3)
    np.testing.assert_allclose(ours.eigenvalues, singular[:3] ** 2 / len(correlated_rows), rtol=TOLERANCE)
    assert_same_directions(ours.components, right[:3])
    assert ours.mean is None


def scatter(x: Matrix, groups: NDArray[Any]) -> tuple[Matrix, Matrix]:
    """(between, within) by their definitions, group by group."""
    mean = x.mean(axis=0)
    between, within = np.zeros((x.shape[1],) * 2), np.zeros((x.shape[1],) * 2)
    for group in np.unique(groups):
        members = x[groups == group]
        shift = members.mean(axis=0) - mean
        between += len(members) / len(x) * np.outer(shift, shift)
        within += (members - members.mean(axis=0)).T @ (members - members.mean(axis=0)) / len(x)
    return between, within


def leading(a: Matrix, b: Matrix, k: int) -> tuple[Matrix, Matrix]:
    values, vectors = scipy.linalg.eigh(a, b)
    return values[::-1][:k], vectors[:, ::-1][:, :k].T


def test_fda_is_the_generalized_eigenproblem(labelled_rows: tuple[Matrix, NDArray[np.intp]]) -> None:
    x, labels = labelled_rows
    ours = exact(dpgep.fda(x, labels, classes=range(4), bound=1.0))
    values, vectors = leading(*scatter(x, labels), 3)
    np.testing.assert_allclose(ours.eigenvalues, values, rtol=TOLERANCE)
    assert_same_directions(ours.components, vectors)


@pytest.mark.parametrize("solver", ["svd", "eigen"])
def test_fda_is_scikit_learns_lda(solver: str, labelled_rows: tuple[Matrix, NDArray[np.intp]]) -> None:
    x, labels = labelled_rows
    theirs = LinearDiscriminantAnalysis(solver=solver).fit(x, labels)
    ours = exact(dpgep.fda(x, labels, classes=range(4), bound=1.0), n_components=3)
    assert_same_directions(ours.components, theirs.scalings_[:, :3].T)
    share = ours.eigenvalues / ours.eigenvalues.sum()
    np.testing.assert_allclose(share, theirs.explained_variance_ratio_[:3], rtol=1e-9)


def test_cca_is_the_svd_of_whitened_views(correlated_rows: Matrix, rng: np.random.Generator) -> None:
    x = correlated_rows[:, :4] / 2
    y = (x @ rng.standard_normal((4, 3)) + 0.1 * rng.standard_normal((len(x), 3))) / 20
    x_white, y_white = (np.linalg.qr(view - view.mean(axis=0)) for view in (x, y))
    left, correlations, right = np.linalg.svd(x_white[0].T @ y_white[0])
    ours = exact(dpgep.cca(x, y, bound=1.0))
    np.testing.assert_allclose(ours.eigenvalues, correlations, atol=TOLERANCE)
    assert_same_directions(ours.x_weights, np.linalg.solve(x_white[1], left[:, :3]).T)
    assert_same_directions(ours.y_weights, np.linalg.solve(y_white[1], right.T).T)
    scores = ours.transform(x, y)
    for k in range(3):
        correlation = np.corrcoef(scores[0][:, k], scores[1][:, k])[0, 1]
        assert correlation == pytest.approx(correlations[k], abs=1e-9)


@pytest.mark.parametrize("center", [True, False])
def test_pls_is_the_svd_of_the_cross_covariance(center: bool, correlated_rows: Matrix) -> None:
    x, y = correlated_rows[:, :4], correlated_rows[:, 4:] + correlated_rows[:, :1]
    bound = 2 * float(np.linalg.norm(np.hstack([x, y]), axis=1).max())
    ours = exact(dpgep.pls(x, y, bound=bound, center=center))
    mean_x, mean_y = (center * view.mean(axis=0) for view in (x, y))
    left, covariances, right = np.linalg.svd((x - mean_x).T @ (y - mean_y) / len(x))
    k = min(x.shape[1], y.shape[1])
    np.testing.assert_allclose(ours.eigenvalues, covariances, rtol=TOLERANCE)
    assert_same_directions(ours.x_weights, left[:, :k].T)
    assert_same_directions(ours.y_weights, right.T[:, :k].T)
    np.testing.assert_allclose(np.linalg.norm(ours.components[:, :4], axis=1), math.sqrt(0.5), rtol=1e-9)
    scores = ours.transform(x, y)
    np.testing.assert_allclose(np.mean(scores[0] * scores[1], axis=0), covariances, rtol=1e-9)


def test_pls_is_scikit_learns(correlated_rows: Matrix) -> None:
    x, y = correlated_rows[:, :4], correlated_rows[:, 4:] + correlated_rows[:, :1]
    bound = 2 * float(np.linalg.norm(np.hstack([x, y]), axis=1).max())
    ours = exact(dpgep.pls(x, y, bound=bound))
    theirs = PLSSVD(n_components=2, scale=False).fit(x, y)
    assert_same_directions(ours.x_weights[:2], theirs.x_weights_.T)
    assert_same_directions(ours.y_weights[:2], theirs.y_weights_.T)


def test_uncentred_cca_is_the_pencil(correlated_rows: Matrix) -> None:
    x, y = correlated_rows[:, :4], correlated_rows[:, 4:]
    joint = correlated_rows.T @ correlated_rows / len(x)
    a, b = joint.copy(), joint.copy()
    a[:4, :4], a[4:, 4:], b[:4, 4:], b[4:, :4] = 0, 0, 0, 0
    values, vectors = leading(a, b, 2)
    ours = exact(dpgep.cca(x, y, center=False, bound=1.0))
    np.testing.assert_allclose(ours.eigenvalues, values, rtol=TOLERANCE)
    assert_same_directions(ours.components, vectors)


def test_sir_is_the_generalized_eigenproblem(correlated_rows: Matrix, rng: np.random.Generator) -> None:
    y = np.sin(5 * correlated_rows[:, 0]) + correlated_rows[:, 1] + 0.1 * rng.standard_normal(len(correlated_rows))
    edges = np.linspace(-1.0, 1.0, 7)
    groups = np.clip(np.digitize(y, edges), 1, 6)
    between, within = scatter(correlated_rows, groups)
    values, vectors = leading(between, between + within, 5)
    for problem in (
        dpgep.sir(correlated_rows, y, slices=6, y_range=(-1.0, 1.0), bound=1.0),
        dpgep.sir(correlated_rows, y, edges=edges.tolist(), bound=1.0),
        dpgep.sir(correlated_rows, y, edges=[-np.inf, *edges[1:-1], np.inf], bound=1.0),
    ):
        ours = exact(problem)
        np.testing.assert_allclose(ours.eigenvalues, values, rtol=TOLERANCE)
        assert_same_directions(ours.components, vectors)


def test_gep_is_scipys_eigh(rng: np.random.Generator) -> None:
    a = rng.standard_normal((7, 7))
    a = a + a.T
    b = rng.standard_normal((7, 9))
    b = b @ b.T
    for second in (b, None):
        values, vectors = leading(a, b if second is not None else np.eye(7), 7)
        ours = exact(dpgep.gep(a, second, n=100, sensitivity_a=1.0, sensitivity_b=1.0 if second is not None else None))
        np.testing.assert_allclose(ours.eigenvalues, values, rtol=1e-9)
        assert_same_directions(ours.components, vectors)


@pytest.mark.filterwarnings("ignore:.*rows exceed the bound")
def test_clipping_is_part_of_the_problem(correlated_rows: Matrix) -> None:
    stretched = correlated_rows * np.linspace(0.5, 30, len(correlated_rows))[:, None]
    norms = np.linalg.norm(stretched, axis=1, keepdims=True)
    for bound in (0.7, 5.0):
        clipped = stretched * np.minimum(1, bound / norms)
        theirs = PCA(svd_solver="full").fit(clipped)
        ours = exact(dpgep.pca(stretched, bound=bound))
        np.testing.assert_allclose(ours.eigenvalues * 300 / 299, theirs.explained_variance_, rtol=TOLERANCE)
        assert_same_directions(ours.components, theirs.components_)


def test_regularization_adds_a_multiple_of_the_identity(labelled_rows: tuple[Matrix, NDArray[np.intp]]) -> None:
    x, labels = labelled_rows
    between, within = scatter(x, labels)
    values, vectors = leading(between, within + 0.05 * np.eye(5), 3)
    ours = exact(dpgep.fda(x, labels, classes=range(4), bound=1.0), regularization=0.05)
    np.testing.assert_allclose(ours.eigenvalues, values, rtol=TOLERANCE)
    assert_same_directions(ours.components, vectors)


def test_rank_deficient_within_scatter_is_solved_on_its_range(labelled_rows: tuple[Matrix, NDArray[np.intp]]) -> None:
    x, labels = labelled_rows
    padded = np.column_stack([x, x[:, 0] + x[:, 1], np.zeros(len(x))]) / 2
    reference = exact(dpgep.fda(x / 2, labels, classes=range(4), bound=1.0))
    with pytest.warns(dpgep.errors.AccuracyWarning, match="rank 5 of 7"):
        ours = exact(dpgep.fda(padded, labels, classes=range(4), bound=1.0))
    np.testing.assert_allclose(ours.eigenvalues, reference.eigenvalues, rtol=1e-9)
    theirs = LinearDiscriminantAnalysis(solver="svd").fit(padded, labels).transform(padded)
    for k in range(3):
        assert abs(np.corrcoef(ours.transform(padded)[:, k], theirs[:, k])[0, 1]) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("public_n", [None, 300])
def test_add_remove_without_noise_is_the_same_problem(correlated_rows: Matrix, public_n: int | None) -> None:
    for center in (True, False):
        here = exact(dpgep.pca(correlated_rows, center=center, adjacency="add-remove", public_n=public_n, bound=1.0))
        there = exact(dpgep.pca(correlated_rows, center=center, bound=1.0))
        np.testing.assert_allclose(here.eigenvalues, there.eigenvalues, rtol=TOLERANCE)


def test_an_empty_class_and_an_empty_slice_change_nothing(
    labelled_rows: tuple[Matrix, NDArray[np.intp]], correlated_rows: Matrix
) -> None:
    x, labels = labelled_rows
    with_empty = exact(dpgep.fda(x, labels, classes=[0, 1, 2, 3, 4], bound=1.0), n_components=3)
    np.testing.assert_allclose(
        with_empty.eigenvalues, exact(dpgep.fda(x, labels, classes=range(4), bound=1.0)).eigenvalues, rtol=TOLERANCE
    )
    y = correlated_rows[:, 0]
    narrow = exact(dpgep.sir(correlated_rows, y, edges=[-1.0, 0.0, 0.1, 1.0], bound=1.0), n_components=2)
    wide = exact(dpgep.sir(correlated_rows, y, edges=[-9.0, -8.0, -7.0, 0.0, 0.1, 1.0], bound=1.0), n_components=2)
    np.testing.assert_allclose(wide.eigenvalues, narrow.eigenvalues, rtol=TOLERANCE)
