"""Problems for the flow in every form and storage that the kernels know, and the plain reference of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import reference
from scipy import sparse

from dpgep._dispatch import core

FORMS = ["pca", "uncentered pca", "cca", "three views", "pls", "fda", "sir"]
OF_VIEWS = ["cca", "three views", "pls"]
STORAGES = ["float64", "float32", "two views", "csr int32", "csr int64 float32"]
D = 12
N_VIEW = 5  # features of the first of two views
N = 240


@dataclass(frozen=True)
class Problem:
    """Rows, their factors, and how A and B are made of their second moment and released ``factors``."""

    rows: np.ndarray
    row_factors: np.ndarray
    factors: np.ndarray
    a: reference.PencilPart
    b: reference.PencilPart | None = None
    view_sizes: tuple[int, ...] = ()

    @property
    def pair(self):
        return {"a": self.a, "b": self.b, "view_sizes": self.view_sizes}

    def second_moment(self, block):
        return reference.rows_product(self.rows, self.row_factors, 1.0 / len(self.rows), block)

    def matrices(self):
        """A and B, exactly."""
        return reference.pair_products(self.second_moment, np.eye(self.rows.shape[1]), self.factors, **self.pair)


def problem(form, storage="float64", seed=0):
    """Classes with their own means, of rows that differ in scale; a third of the entries are 0."""
    rng = np.random.default_rng([4, seed])
    labels = rng.integers(0, 4, N)
    centers = rng.normal(size=(4, D)) * np.linspace(1.6, 0.8, D)
    rows = (centers[labels] + rng.normal(size=(N, D)) @ (np.eye(D) + 0.3 * rng.normal(size=(D, D)))) * (
        rng.uniform(size=(N, D)) > 1 / 3
    )
    if "float32" in storage:
        rows = rows.astype(np.float32).astype(np.float64)
    row_factors = reference.clip_factors(rows, 6.0)
    shrunk = row_factors[:, None] * rows / N
    mean = shrunk.sum(axis=0, keepdims=True)
    shares = np.bincount(labels) / N
    sums = np.array([shrunk[labels == label].sum(axis=0) for label in range(4)])
    one, none = np.ones(1), np.zeros(1)
    groups = np.vstack([sums, mean])
    between = np.concatenate([1 / shares, -one])
    part = reference.PencilPart
    means, of_mean = np.concatenate([np.zeros(4), -one]), part(-one, 1.0)
    pencils = {
        "pca": (mean, of_mean),
        "uncentered pca": (np.empty((0, D)), part(np.empty(0), 1.0)),
        "cca": (mean, part(-one, 1.0, "between"), part(-one, 1.0, "within"), (N_VIEW, D - N_VIEW)),
        "three views": (mean, part(-one, 1.0, "between"), part(-one, 1.0, "within"), (3, 5, 4)),
        "pls": (mean, part(-one, 1.0, "between"), None, (N_VIEW, D - N_VIEW)),
        "fda": (groups, part(between), part(np.concatenate([-1 / shares, none]), 1.0)),
        "sir": (groups, part(between), part(means, 1.0)),
    }
    return Problem(rows, row_factors, *pencils[form])


def kernel_rows(given, storage="float64", n_threads=1):
    """The rows as the kernels take them."""
    rows, scale = given.rows, 1.0 / len(given.rows)
    if storage.startswith("csr"):
        csr = sparse.csr_matrix(rows)
        index_type = np.int32 if "int32" in storage else np.int64
        return core.CsrRows(
            csr.data.astype(np.float32 if "float32" in storage else np.float64),
            csr.indices.astype(index_type),
            csr.indptr.astype(index_type),
            rows.shape[1],
            given.row_factors,
            scale,
            n_threads,
        )
    views = [rows.astype(np.float32)] if storage == "float32" else [rows]
    if storage == "two views":
        views = [np.ascontiguousarray(rows[:, :N_VIEW]), rows[:, N_VIEW:]]
    return core.DenseRows(views, given.row_factors, scale, n_threads)


def kernel_oracle(given, storage="float64", noise="none", scale=0.0, key=None, n_threads=1, **arguments):
    stream = None if key is None else core.NoiseStream(key)
    return core.PairOracle.of_rows(
        kernel_rows(given, storage, n_threads),
        core.Noise(noise, [scale], stream=stream, **arguments),
        given.factors,
        core.PencilPart(*given.a),
        None if given.b is None else core.PencilPart(*given.b),
        given.view_sizes,
    )


def draw_from(stream):
    """``draw(scale, n)`` of the references: n normal deviates of a stream, rounded exactly to integers."""

    def draw(scale, n):
        deviates = np.empty(n, dtype=np.int64)
        core.exact_normal(deviates, scale, stream)
        return deviates

    return draw


def reference_oracle(given, noise="none", scale=0.0, key=None, shape="goe"):
    second = given.second_moment
    if noise != "none":
        draw = draw_from(core.NoiseStream(key))
        lazy = reference.LazyNoise([(given.second_moment, scale)], given.rows.shape[1], draw)

        def second(block):
            if noise == "lazy":
                return lazy.times(block)[0]
            return reference.fresh_product(given.second_moment, block, scale, shape, draw)

    return lambda block: reference.pair_products(second, block, given.factors, **given.pair)
