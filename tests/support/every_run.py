"""Every method, with the options that change what it asks of the curator, and a problem of every model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

import dpgep
from dpgep.methods import METHODS
from dpgep.methods.base import CLIPPED_PRODUCTS, SECOND_MOMENT

D, N = 8, 400
PCA_ALONE = tuple(name for name, method in METHODS.items() if CLIPPED_PRODUCTS in method.needs)
MATRIX_ALONE = ({}, {"sparsity": 3}, {"sparsity": "auto"})  # options of "release" that need no product, and no screen
OF_A_MATRIX = ("standardized-pca", "contrastive-pca")
SECOND_MOMENT_ALONE = tuple(name for name, method in METHODS.items() if SECOND_MOMENT in method.needs)


def runs(d: int) -> list[tuple[str, dict[str, Any]]]:
    """(method, options) for d features."""
    flow = {"n_iterations": 4}
    options: dict[str, list[dict[str, Any]]] = {
        "release": [
            {},
            {"sparsity": 3},
            {"sparsity": "auto"},
            {"storage": "operator"},
            {"storage": "operator", "sparsity": 3},
            {"screen": 3},
            {"screen": 4, "sparsity": 3, "screen_share": 0.5},
        ],
        "local-gaussian": [{}],
        "rayleigh-flow": [flow, {**flow, "noise": "fresh"}, {**flow, "init": "screen"}, {**flow, "init": "convex"}],
        "truncated-rayleigh-flow": [{**flow, "sparsity": 3}, {**flow, "sparsity": 3, "init": "screen"}],
        "auto": [{}],
        "clipped-power": [{"n_iterations": 3}, {"n_iterations": 1, "threshold": 0.25, "init": np.ones((1, d))}],
        "sr-dp": [{}],
        "dpsr": [{}, {"noise": "fresh", "n_iterations_a": 3, "n_iterations_b": 3}],
        "dpsrs": [{"sparsity": 3}, {"sparsity": 3, "noise": "fresh", "n_iterations_a": 3, "n_iterations_b": 3}],
        "dp-spca": [{}, {"init": np.eye(1, d)}],
        "dp-vrpca": [{}, {"n_epochs": 2, "n_passes": 5}],
    }
    assert set(options) == set(METHODS), "a method that no test runs"
    return [(name, each) for name in options for each in options[name]]


def builders(**rest: Any) -> dict[str, Callable[[Any, Any, Any, Any], Any]]:
    """A builder for every model, of rows (n, D), others for several views, labels and a response."""
    return {
        "pca": lambda x, views, labels, y: dpgep.pca(x, **rest),
        "pca uncentred": lambda x, views, labels, y: dpgep.pca(x, center=False, **rest),
        "standardized-pca": lambda x, views, labels, y: dpgep.pca(x, standardize=True, **rest),
        "cca": lambda x, views, labels, y: dpgep.cca(views[:, :5], views[:, 5:], **rest),
        "pls": lambda x, views, labels, y: dpgep.pls(views[:, :5], views[:, 5:], **rest),
        "multiset-cca": lambda x, views, labels, y: dpgep.multiset_cca(
            [views[:, :2], views[:, 2:4], views[:, 4:]], **rest
        ),
        "fda": lambda x, views, labels, y: dpgep.fda(x, labels, classes=[0, 1, 2], **rest),
        "sir": lambda x, views, labels, y: dpgep.sir(x, y, slices=4, y_range=(-1, 1), **rest),
        "contrastive-pca": lambda x, views, labels, y: dpgep.contrastive_pca(x, labels, target=0, background=2, **rest),
    }


def problems(adjacency: str = "replace-one", sparse: bool = False) -> dict[str, Any]:
    """A problem of rows for every model that products with vectors serve."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((N, D)) * np.linspace(2.0, 0.5, D) / 4
    y = x[:, 0] + 0.1 * rng.standard_normal(N)
    labels = rng.integers(0, 3, N)
    x += labels[:, None] * rng.standard_normal(D) / 3
    form = scipy.sparse.csr_array if sparse else np.asarray
    both = np.hstack([x[:, :5], x[:, 5:] + x[:, :3] * [1.0, 0.3, 0.1]])
    each = builders(bound=2.0, adjacency=adjacency)
    return {name: build(form(x), form(both), labels, y) for name, build in each.items() if name not in OF_A_MATRIX}


def of_a_matrix_alone(adjacency: str = "replace-one", sparse: bool = False) -> dict[str, Any]:
    """Problems of rows that need the whole released matrix: products with vectors do not serve them."""
    rows = np.random.default_rng(7).standard_normal((N, D)) @ np.diag(np.linspace(2.0, 0.5, D) / 4)
    rows[:, 1] += rows[:, 0]
    form = scipy.sparse.csr_array if sparse else np.asarray
    labels = np.arange(N) % 3
    return {
        name: builders(bound=2.0, adjacency=adjacency)[name](form(rows), None, labels, None) for name in OF_A_MATRIX
    }


def matrix_problem(**sensitivities: float) -> Any:
    rng = np.random.default_rng(6)
    a, b = (rng.standard_normal((3 * D, D)) for _ in range(2))
    given = {"sensitivity_a": 2.0, "sensitivity_b": 3.0, **sensitivities}
    return dpgep.gep(a.T @ a / D, b.T @ b / (3 * D) + np.eye(D), n=N, **given)


def problem_named(name: str, adjacency: str = "replace-one") -> Any:
    return matrix_problem() if name == "gep" else (problems(adjacency) | of_a_matrix_alone(adjacency))[name]
