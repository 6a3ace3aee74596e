"""What a row becomes: one public map to the unit ball, the same in every kernel and in every sum of every mechanism.

A mechanism whose sums see a person in two ways pays for one of them. So rows of any length go through all kernels, and
pairs of neighbours that differ in such a row through all that a ledger entry pays for, in exact arithmetic.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import reference
import scipy.sparse
from conftest import Matrix
from gmpy2 import mpq
from numpy.typing import NDArray
from variants import kernels

import dpgep
from dpgep.data.integer_sums import BITS, ClippedSums, Directions, Factors, GridSums, ProductMoment, ProductNormCounts
from dpgep.data.rows import Batch, Rows
from dpgep.models.model import Adjacency
from dpgep.models.moments import MomentLayout
from dpgep.privacy.clipped_products import product_sensitivity, views_sensitivity
from dpgep.privacy.noise import calibrate_moments

FAR = 2.0**500  # bounds, beyond which a row counts as zero
LARGEST = sys.float_info.max
GRID_BITS = 20

# ---- Kernels -----------------------------------------------------------------------------------------------------

# Each takes (core, rows, bound) to (n, d), the magnitudes of the entries of what rows become in the unit ball.
Kernel = Callable[[Any, NDArray[Any], float], Matrix]


def csr(rows: NDArray[Any]) -> Any:
    n, d = rows.shape
    return rows.ravel(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d)


def clipped(core: Any, rows: NDArray[Any], bound: float) -> Matrix:
    out = np.empty(rows.shape)
    assert core.clip_rows(rows, bound, out)
    return np.abs(out)


def factors_of(core: Any, rows: NDArray[Any], bound: float, *, sparse: bool = False) -> Matrix:
    out = np.empty(len(rows))
    data, _, indptr = csr(rows)
    assert core.clip_factors_csr(data, indptr, bound, out) if sparse else core.clip_factors(rows, bound, out)
    return out


def by_factors(core: Any, rows: NDArray[Any], bound: float, *, sparse: bool) -> Matrix:
    return np.abs(factors_of(core, rows, bound, sparse=sparse)[:, None] * rows.astype(np.float64)) / bound


def on_grid(core: Any, rows: NDArray[Any], bound: float) -> Matrix:
    out = np.empty(rows.shape)
    assert core.fixed_point_rows(rows, bound, GRID_BITS, out)
    return np.abs(np.ldexp(out, -GRID_BITS))


def columns_on_grid(core: Any, rows: NDArray[Any], bound: float) -> Matrix:
    out = np.empty(rows.T.shape)
    assert core.fixed_point_columns([column.copy() for column in rows.T], 0, bound, GRID_BITS, out)
    return np.abs(np.ldexp(out.T, -GRID_BITS))


def entries_on_grid(core: Any, rows: NDArray[Any], bound: float) -> Matrix:
    data, _, indptr = csr(rows)
    out = np.empty(rows.size, np.int32)
    assert core.fixed_point_csr(data, indptr, bound, GRID_BITS, out)
    return np.abs(np.ldexp(out.astype(np.float64), -GRID_BITS)).reshape(rows.shape)


def in_moments(core: Any, rows: NDArray[Any], bound: float, *, by_columns: bool) -> Matrix:
    """Sums per group are the rows, where each person is a group."""
    n, d = rows.shape
    people = [column.copy() for column in rows.T] if by_columns else rows
    total = np.zeros((d + n, d + n), np.int64)
    assert core.add_dense_moments(people, 0, n, np.arange(n), n, bound, GRID_BITS, total)
    return np.abs(np.ldexp(total[:d, d:].T.astype(np.float64), -2 * GRID_BITS))


def in_group_sums(core: Any, rows: NDArray[Any], bound: float) -> Matrix:
    n, d = rows.shape
    sums = np.zeros((d, n))
    core.csr_group_sums(*csr(rows), factors_of(core, rows, bound, sparse=True), np.arange(n), sums)
    return np.abs(sums.T / bound)


def diagonals(moment: Callable[[NDArray[Any]], Matrix], rows: NDArray[Any], bound: float) -> Matrix:
    """Of the second moment of each row alone, rooted."""
    return np.array([np.sqrt(np.diagonal(moment(rows[i : i + 1]))) / bound for i in range(len(rows))])


def in_products(core: Any, rows: NDArray[Any], bound: float, *, sparse: bool) -> Matrix:
    d = rows.shape[1]

    def moment(row: NDArray[Any]) -> Matrix:
        factors = factors_of(core, row, bound, sparse=sparse)
        products = core.CsrRows(*csr(row), d, factors, 1.0, 1) if sparse else core.DenseRows((row,), factors, 1.0, 1)
        return np.asarray(products.times(np.eye(d)))

    return diagonals(moment, rows, bound)


def in_samples(core: Any, rows: NDArray[Any], bound: float, *, sparse: bool) -> Matrix:
    d, stream = rows.shape[1], core.NoiseStream(bytes(32))

    def moment(row: NDArray[Any]) -> Matrix:
        factors = factors_of(core, row, bound, sparse=sparse)
        make = core.SampledProducts.of_csr if sparse else core.SampledProducts.of_dense
        arrays = (*csr(row), d) if sparse else (row,)
        products = make(
            *arrays, factors, n_people=1.0, rate=1.0, deviation_full=0.0, n_full=d, deviation_sampled=0.0, n_sampled=d,
            noisy=False, stream=stream,
        )  # fmt: skip
        return np.asarray([products.full(unit[None, :])[0] for unit in np.eye(d)])

    return diagonals(moment, rows, bound)


def in_squares(core: Any, rows: NDArray[Any], bound: float) -> Matrix:
    def moment(row: NDArray[Any]) -> Matrix:
        out = np.zeros(row.shape[1])
        core.csr_squares(*csr(row), factors_of(core, row, bound, sparse=True), out)
        return np.diag(out)

    return diagonals(moment, rows, bound)


KERNELS: dict[str, Kernel] = {
    "clip_rows": clipped,
    "clip_factors": partial(by_factors, sparse=False),
    "clip_factors_csr": partial(by_factors, sparse=True),
    "fixed_point_rows": on_grid,
    "fixed_point_columns": columns_on_grid,
    "fixed_point_csr": entries_on_grid,
    "add_dense_moments of rows": partial(in_moments, by_columns=False),
    "add_dense_moments of columns": partial(in_moments, by_columns=True),
    "csr_group_sums": in_group_sums,
    "csr_squares": in_squares,
    "DenseRows": partial(in_products, sparse=False),
    "CsrRows": partial(in_products, sparse=True),
    "SampledProducts of dense rows": partial(in_samples, sparse=False),
    "SampledProducts of sparse rows": partial(in_samples, sparse=True),
}
VARIANTS = list(kernels().values())


def in_every_variant(kernel: str, rows: NDArray[Any], bound: float) -> Matrix:
    first, *others = (KERNELS[kernel](core, rows, bound) for core in VARIANTS)
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


def rows_of_lengths(lengths: Any, d: int, bound: float, dtype: Any) -> NDArray[Any]:
    """Rows of so many bounds in random directions, as far as they are finite."""
    directions = np.random.default_rng([3, d]).standard_normal((len(lengths), d))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    with np.errstate(over="ignore"):
        rows = (directions * bound * np.asarray(lengths)[:, None]).astype(dtype)
    return rows[np.isfinite(rows).all(axis=1)]


LENGTHS = [0.0, 5e-324, 2.0**-1022, 2.0**-500, 0.3, 1.0, 7.0, 2.0**100, 2.0**499, 2.0**499.9, 2.0**500.1, 2.0**501]
LENGTHS += [2.0**502, 2.0**511, 2.0**513, 2.0**1000, LARGEST]


@pytest.mark.one_in(2)
@pytest.mark.kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bound", [1.0, 0.7, 2.0**-440, 2.0**100])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_takes_a_row_to_that_of_the_reference(kernel: str, bound: float, dtype: Any) -> None:
    """Rows in tiles, in groups of four and by themselves."""
    for d in (1, 3, 9, 40):
        rows = rows_of_lengths(LENGTHS * 3, d, bound, dtype)
        expected = np.abs(reference.clip_rows(rows, bound))
        np.testing.assert_allclose(in_every_variant(kernel, rows, bound), expected, rtol=0, atol=2.0 ** (1 - GRID_BITS))
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(rows.astype(np.float64) / bound, axis=1)
        np.testing.assert_array_equal(expected.any(axis=1)[lengths > 0.1], lengths[lengths > 0.1] <= FAR)


@pytest.mark.one_in(2)
@pytest.mark.kernel
@pytest.mark.parametrize("bound", [1.0, 0.7, 2.0**-440, 2.0**100])
@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 33])
def test_all_kernels_draw_the_line_at_the_same_rows(d: int, bound: float) -> None:
    """Rows a few units in the last place around 2^500 bounds: rounding decides, but the same in all."""
    rows = rows_of_lengths(FAR * (1 + np.arange(-60, 61) * sys.float_info.epsilon), d, bound, np.float64)
    kept = {kernel: in_every_variant(kernel, rows, bound).any(axis=1).tolist() for kernel in KERNELS}
    first = next(iter(kept.values()))
    assert {True, False} == set(first)
    assert all(each == first for each in kept.values())


# ---- Mechanisms --------------------------------------------------------------------------------------------------

D, HALF = 4, math.sqrt(0.5)
# The other people, such that norms of rows of a cross-covariance are linear; so many that kernels of columns serve.
OTHERS = np.tile([HALF, 0.0, HALF, 0.0], (160, 1))
DIRECTIONS = [[HALF, 0, HALF, 0], [HALF, 0, -HALF, 0], [0, HALF, 0, HALF], [1, 0, 0, 0], [-1, 0, 0, 0], [0, 0, 1, 0]]
SIZES = [1.0, 5e-324, 2.0**-500, 2.0**499, 2.0**501, 2.0**502, LARGEST]
ROWS = [np.zeros(D), *(np.array(direction) * size for direction in DIRECTIONS for size in SIZES)]
ADJACENCIES: list[Adjacency] = ["replace-one", "add-remove"]
FORMS: dict[str, Callable[[Matrix], Any]] = {
    "rows": np.asarray,
    "columns": np.asfortranarray,
    "sparse": scipy.sparse.csr_array,
}
# What rounding to the grid, or in floating point, may add; the mechanisms allow for it.
ROUNDING = 1 + 2.0**-15


class Mechanism:
    """``values`` of (people in rows, adjacency): what gets noise, each part with its weight, a squared change of which
    costs; their weighted sum of squares is at most ``claimed``.
    """

    def __init__(self, values: Callable[..., list[tuple[Any, Any]]], claimed: Callable[[Adjacency], float]) -> None:
        self.values, self.claimed = values, claimed


def exact(values: Any) -> NDArray[Any]:
    """As Python's integers, or fractions: a difference or square of them is not rounded."""
    flat = np.asarray(values).ravel().tolist()
    return np.array([value if isinstance(value, int) else mpq(value) for value in flat], dtype=object)


def squared_change(one: list[tuple[Any, Any]], other: list[tuple[Any, Any]]) -> mpq:
    total = mpq(0)
    for (a, weight), (b, _) in zip(one, other, strict=True):
        total += sum((a - b) ** 2) * mpq(weight)
    return total


def scales(problem: Any, adjacency: Adjacency) -> tuple[Any, Any, Any]:
    """Of second moment, sums and counts, in 1/s^2, of a release for mu = 1."""
    noise = calibrate_moments(1.0, problem.layout, adjacency)
    return tuple(1 / mpq(s) ** 2 if s else mpq(0) for s in (noise.second, noise.sums, noise.counts))


def released(build: Callable[..., Any], rows: Any, adjacency: Adjacency) -> list[tuple[Any, Any]]:
    problem = build(rows, adjacency)
    sums = problem.integer_moments(GRID_BITS)
    assert sums.high is None
    second, *rest = scales(problem, adjacency)
    unit = mpq(1, 16**GRID_BITS)
    return [
        (exact(np.diagonal(sums.second)), second * unit),
        (exact(sums.second[np.triu_indices(D, 1)]), 2 * second * unit),
        *((exact(part), weight * unit) for part, weight in zip((sums.sums, sums.counts), rest, strict=True)),
    ]


def on_grid_besides(problem: Any, weights: Any) -> list[tuple[Any, Any]]:
    sums = problem.grid_sums(GRID_BITS)
    return [(exact(sums.sums), weights[1] / 4**GRID_BITS), (exact(sums.counts), weights[2])]


def by_products(build: Callable[..., Any], rows: Any, adjacency: Adjacency) -> list[tuple[Any, Any]]:
    problem = build(rows, adjacency)
    second, *_ = weights = scales(problem, adjacency)
    products = problem.dataset.row_products().second_moment(1.0).times(np.eye(D))
    return [(exact(products), second), *on_grid_besides(problem, weights)]


def screened(build: Callable[..., Any], rows: Any, adjacency: Adjacency) -> list[tuple[Any, Any]]:
    problem = build(rows, adjacency)
    second, *_ = weights = scales(problem, adjacency)
    return [(squares_of(problem), second / 16**GRID_BITS), *on_grid_besides(problem, weights)]


def squares_of(problem: Any) -> NDArray[Any]:
    high, low = problem.grid_sums(GRID_BITS, with_squares=True).squares()
    return exact((high << 20) + low)


def screened_views(build: Callable[..., Any], rows: Any, adjacency: Adjacency) -> list[tuple[Any, Any]]:
    problem = build(rows, adjacency)
    return [(squares_of(problem), mpq(1, 16**GRID_BITS)), (exact(problem.cross_norms()), 1)]


def summed(make: Callable[[], Any], rows: Any, adjacency: Adjacency) -> list[tuple[Any, Any]]:
    del adjacency
    sums = make()
    sums.add(Batch(Rows((rows,), 1.0)))
    found = next(getattr(sums, name) for name in ("total", "counts", "sums") if hasattr(sums, name))
    return [(exact(sums.sums if isinstance(sums, GridSums) else found), 1)]


def reported(rows: Any, adjacency: Adjacency) -> list[tuple[Any, Any]]:
    """The last person's: reports are of one."""
    del adjacency
    values = dpgep.local.GaussianRandomizer(dim=D, bound=1.0, epsilon=math.inf).randomize_rows(rows[-1:]).values[0]
    first, second = np.triu_indices(D)
    unit = mpq(1, 16**GRID_BITS)
    return [(exact(values[first == second]), unit), (exact(values[first != second]), 2 * unit)]


def pca(rows: Any, adjacency: Adjacency, *, center: bool) -> Any:
    return dpgep.pca(rows, bound=1.0, center=center, adjacency=adjacency)


def pls(rows: Any, adjacency: Adjacency, *, center: bool) -> Any:
    return dpgep.pls(rows[:, :2], rows[:, 2:], bound=1.0, center=center, adjacency=adjacency)


def fda(rows: Any, adjacency: Adjacency) -> Any:
    return dpgep.fda(rows, np.arange(rows.shape[0]) % 2, classes=[0, 1], bound=1.0, adjacency=adjacency)


def mechanisms() -> Iterator[tuple[str, Mechanism]]:
    def paid(adjacency: Adjacency) -> float:
        del adjacency
        return 1.0

    def one_or(replaced: float) -> Callable[[Adjacency], float]:
        return lambda adjacency: replaced if adjacency == "replace-one" else 1.0

    models = {
        "pca": partial(pca, center=True),
        "pca uncentred": partial(pca, center=False),
        "pls": partial(pls, center=True),
        "fda": fda,
    }
    for name, build in models.items():
        yield f"release of {name}", Mechanism(partial(released, build), paid)
        yield f"products of {name}", Mechanism(partial(by_products, build), paid)
        if name != "pls":
            yield f"screen of {name}", Mechanism(partial(screened, build), paid)
    for centred, replaced, added in ((False, 2.0, 1.0), (True, 18.0, 17.0)):
        most = {"replace-one": replaced, "add-remove": added}
        views = partial(screened_views, partial(pls, center=centred))
        yield f"screen of views{', centred' * centred}", Mechanism(views, most.__getitem__)
    layout = MomentLayout(D, 1, sums=True, counts=False)
    squared = 4.0**BITS
    yield "sum of rows", Mechanism(partial(summed, partial(GridSums, layout, BITS)), lambda a: one_or(4)(a) * squared)
    vectors, threshold = np.array([[HALF, 0, HALF, 0], [0, HALF, 0, HALF]]), 0.5
    whole = Directions.on_grid(vectors, None)
    of_row = (Factors(slice(0, D), slice(0, 2), threshold),)
    of_views = (Factors(slice(0, 2), slice(1, 2), threshold), Factors(slice(2, 4), slice(0, 1), threshold))
    yield (
        "clipped products",
        Mechanism(
            partial(summed, partial(ClippedSums, whole, of_row)),
            lambda a: product_sensitivity(threshold, 2, D, a) ** 2 * squared**2,
        ),
    )
    yield (
        "clipped products of views",
        Mechanism(
            partial(summed, partial(ClippedSums, whole, of_views)), lambda a: views_sensitivity(a) ** 2 * squared**2
        ),
    )
    yield (
        "second moment of clipped products",
        Mechanism(partial(summed, partial(ProductMoment, whole, of_row)), lambda a: one_or(2)(a) * squared**2),
    )
    yield "norms of products", Mechanism(partial(summed, partial(ProductNormCounts, whole)), one_or(2))
    yield "local report", Mechanism(reported, lambda a: 2.0)


MECHANISMS = dict(mechanisms())


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_neighbours_of_any_length_cost_what_is_paid(mechanism: str, adjacency: Adjacency, form: str) -> None:
    """All pairs of rows; lengths of which products and squares leave the range of a double among them."""
    values, make = MECHANISMS[mechanism].values, FORMS[form]
    sums = [values(make(np.vstack([OTHERS, row])), adjacency) for row in ROWS]
    if adjacency == "replace-one":
        pairs = itertools.combinations(sums, 2)
    else:
        pairs = itertools.product(sums, [values(make(OTHERS), adjacency)])
    largest = max(squared_change(*pair) for pair in pairs)
    claimed = mpq(MECHANISMS[mechanism].claimed(adjacency))
    assert largest <= claimed * mpq(ROUNDING)
    assert largest > claimed / 6  # some of these neighbours come near it
