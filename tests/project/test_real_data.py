"""Real data sets, where DPGEP_DATA names their folder: dense images, sparse binary rows, two views."""

import math

import numpy as np
import pytest
import scipy.sparse
from conftest import data_set, solve_seeded, unit_rows

import dpgep


def subspace_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Squared sines of the angles between two spans of orthonormal rows, summed."""
    return float(len(ours) - np.linalg.norm(ours @ theirs.T) ** 2)


def test_sparse_rows_of_a9a() -> None:
    data = data_set("a9a")
    indices, indptr = data["indices_train"].astype(np.int32), data["indptr_train"]
    x = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), shape=tuple(data["shape_train"]))
    problem = dpgep.pca(x, bound=4.0)  # at most 14 attributes of each person: a norm of at most sqrt(14)
    exact = dpgep.solve(problem, epsilon=math.inf, n_components=5)
    dense = x.toarray()
    oracle = np.linalg.eigvalsh(np.cov(dense, rowvar=False, bias=True))
    np.testing.assert_allclose(exact.eigenvalues, oracle[::-1][:5], rtol=1e-10)
    private = solve_seeded(problem, epsilon=1.0, delta=1e-5, n_components=5)
    error = subspace_error(private.components, exact.components)
    assert error < 0.05
    assert private.diagnostics.expected_subspace_error == pytest.approx(error, rel=0.6)


@pytest.mark.deep
def test_images_of_mnist_as_bytes() -> None:
    data = data_set("mnist")
    x, labels = data["x_train"].reshape(-1, 784), data["y_train"]
    bound = 255 * 28.0  # the largest norm an image can have
    as_bytes = solve_seeded(dpgep.fda(x[:5000], labels[:5000], classes="public", bound=bound), mu=50.0, n_components=2)
    as_floats = solve_seeded(
        dpgep.fda(x[:5000].astype(float), labels[:5000], classes="public", bound=bound), mu=50.0, n_components=2
    )
    np.testing.assert_array_equal(as_bytes.components, as_floats.components)


@pytest.mark.deep
def test_discriminants_of_mnist_separate_digits() -> None:
    data = data_set("mnist")
    x, x_test = (unit_rows(data[name].reshape(-1, 784).astype(float)) for name in ("x_train", "x_test"))
    solution = solve_seeded(dpgep.fda(x, data["y_train"], classes="public", bound=1.0), epsilon=1.0, delta=1e-6)
    train, test = solution.transform(x), solution.transform(x_test)
    spread = train.std(axis=0)
    centres = np.array([train[data["y_train"] == digit].mean(axis=0) for digit in range(10)]) / spread
    nearest = ((test[:, None, :] / spread - centres) ** 2).sum(axis=2).argmin(axis=1)
    assert (nearest == data["y_test"]).mean() > 0.8  # chance: 0.1


def test_two_views_of_linnerud() -> None:
    data = data_set("linnerud")
    x, y = (data[name] - data[name].mean(axis=0) for name in ("X", "Y"))
    bound = 1.001 * float(np.linalg.norm(np.hstack([x, y]), axis=1).max())  # a test without privacy may look
    exact = dpgep.solve(dpgep.cca(x, y, bound=bound), epsilon=math.inf)
    correlations = np.linalg.svd(np.linalg.qr(x)[0].T @ np.linalg.qr(y)[0])[1]
    np.testing.assert_allclose(exact.eigenvalues, correlations, atol=1e-10)
