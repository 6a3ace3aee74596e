"""Every compiled kernel again, plainly, in NumPy.

The kernels of the compiled core are tested against these functions, and a reader who wants to know what a
kernel computes reads it here. Random deviates are arguments: the same deviates give the same numbers on both
sides, so a seeded kernel and its reference can be compared entry by entry.

Section numbers refer to ``docs/mathematics``.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Flow",
    "LazyNoise",
    "PencilPart",
    "begin_night",
    "chacha20_block",
    "chacha20_stream",
    "clip_factors",
    "clip_rows",
    "clipped_product",
    "count_magnitudes",
    "count_norms",
    "count_places",
    "counts_as_zero",
    "deflated_flow",
    "exact_normal",
    "fixed_point_rows",
    "fresh_product",
    "gather_rows",
    "group_sums",
    "hash_rows",
    "map_rows",
    "marked_moments",
    "mix_rows",
    "noise_times_vector",
    "normal",
    "pack",
    "packed_places",
    "pair_products",
    "people_run",
    "person_numbers",
    "poisson_sample",
    "rayleigh_flow",
    "reduced_ascent",
    "row_squares",
    "rows_product",
    "sampled_ascent",
    "sampled_product",
    "shares",
    "siphash",
    "sum_places",
    "symmetric_noise",
    "text_words",
    "truncate_rows_top_k",
    "truncate_top_k",
    "unpack",
    "wholes",
]

NoiseShape = Literal["goe", "iid"]
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Words = NDArray[np.uint32]
# A symmetric matrix as what it does to a block of rows: V (K, d) -> V M (K, d).
Product = Callable[[Matrix], Matrix]
PairProduct = Callable[[Matrix], tuple[Matrix, Matrix]]
# draw(scale, n) hands out n deviates round(scale N), scale an integer or one for each; read(n) the next n bytes of a
# key stream.
Draw = Callable[[Any, int], NDArray[np.int64]]
Read = Callable[[int], bytes]

_BLOCK_BYTES = 64
_COLUMN_ROUNDS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONAL_ROUNDS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """One 64-byte block of the ChaCha20 key stream.

    ``key`` has 32 bytes, ``nonce`` 12, and 0 <= counter < 2**32.

    Source: RFC 8439, section 2.3.
    """
    if len(key) != 32 or len(nonce) != 12 or not 0 <= counter < 2**32:
        raise ValueError(
            f"need len(key) = 32, len(nonce) = 12, 0 <= counter < 2**32; got {len(key)}, {len(nonce)}, {counter}"
        )
    return _blocks(_initial_state(key, counter, nonce)).tobytes()


def chacha20_stream(key: bytes, nonce: int, length: int) -> bytes:
    """The first ``length`` bytes of the key stream of ``NoiseStream(key, nonce)``.

    The 96-bit nonce of RFC 8439 is ``nonce`` as 8 little-endian bytes followed by 4 zero bytes; the block
    counter starts at 0.

    Source: RFC 8439, section 2.4; section 5.
    """
    n_blocks = -(-length // _BLOCK_BYTES)
    if n_blocks > 2**32:
        raise ValueError(f"need length <= 2**38, the period of the block counter; got {length}")
    words = np.repeat(_initial_state(key, 0, nonce.to_bytes(8, "little") + bytes(4)), n_blocks, axis=1)
    words[12] = np.arange(n_blocks, dtype=np.uint32)
    return _blocks(words).tobytes()[:length]


def _initial_state(key: bytes, counter: int, nonce: bytes) -> Words:
    """The 16 words of RFC 8439, section 2.3, as a column (16, 1)."""
    state = b"expand 32-byte k" + key + counter.to_bytes(4, "little") + nonce
    return np.frombuffer(state, "<u4").astype(np.uint32)[:, None]


def _blocks(words: Words) -> Words:
    """Blocks (n, 16), little-endian, of the initial states ``words`` (16, n)."""
    state = words.copy()
    for _ in range(10):
        for a, b, c, d in _COLUMN_ROUNDS + _DIAGONAL_ROUNDS:
            _quarter_round(state, a, b, c, d)
    return np.ascontiguousarray((state + words).T).astype("<u4")


def _quarter_round(state: Words, a: int, b: int, c: int, d: int) -> None:
    state[a] += state[b]
    state[d] = _rotate_left(state[d] ^ state[a], 16)
    state[c] += state[d]
    state[b] = _rotate_left(state[b] ^ state[c], 12)
    state[a] += state[b]
    state[d] = _rotate_left(state[d] ^ state[a], 8)
    state[c] += state[d]
    state[b] = _rotate_left(state[b] ^ state[c], 7)


def _rotate_left(words: Words, bits: int) -> Words:
    return np.asarray((words << np.uint32(bits)) | (words >> np.uint32(32 - bits)))


def normal(key_stream: bytes, n: int) -> Vector:
    """``n`` standard normal deviates from the first ``16 * ceil(n / 2)`` bytes of ``key_stream``.

    Box–Muller: with two little-endian 64-bit words w1, w2,

        u = (double(w1) + 1) / 2**64,   r = sqrt(-2 log u),   t = 2 pi floor(w2 / 2**11) / 2**53,

    the deviates are r cos t and r sin t, in this order; an odd ``n`` drops the last sine. u is never 0, so
    that |deviate| <= sqrt(128 log 2) < 9.42. t is counted from the nearest quarter turn, which loses no digit where
    cosine or sine is small.

    Source: Box and Muller 1958; section 5.
    """
    n_pairs = (n + 1) // 2
    if len(key_stream) < 16 * n_pairs:
        raise ValueError(f"need len(key_stream) >= 16 * ceil(n / 2) = {16 * n_pairs}; got {len(key_stream)}")
    words = np.frombuffer(key_stream, dtype="<u8", count=2 * n_pairs).reshape(n_pairs, 2)
    uniform = (words[:, 0].astype(np.float64) + 1.0) * 2.0**-64
    radius = np.sqrt(-2.0 * np.log(uniform))
    turns = (words[:, 1] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    quarter = np.rint(4.0 * turns)
    angle = 2.0 * math.pi * (turns - 0.25 * quarter)
    # e^{it} = i^quarter e^{i angle}
    points = np.array([1, 1j, -1, -1j])[quarter.astype(np.intp) % 4] * (np.cos(angle) + 1j * np.sin(angle))
    pairs = radius[:, None] * np.stack([points.real, points.imag], axis=1)
    return np.asarray(pairs.ravel()[:n])


def pack(matrix: Matrix) -> Vector:
    """The upper triangle of ``matrix`` (d, d) row by row: a vector (d (d + 1) / 2,)."""
    return np.asarray(matrix[np.triu_indices(matrix.shape[0])])


def unpack(packed: Vector) -> Matrix:
    """The symmetric matrix (d, d) whose upper triangle, row by row, is ``packed`` (d (d + 1) / 2,)."""
    d = (math.isqrt(8 * packed.size + 1) - 1) // 2
    if d * (d + 1) // 2 != packed.size:
        raise ValueError(f"need a length d (d + 1) / 2 for some integer d; got {packed.size}")
    matrix = np.zeros((d, d))
    matrix[np.triu_indices(d)] = packed
    return np.asarray(matrix + np.triu(matrix, 1).T)


def symmetric_noise(d: int, scale: float, shape: NoiseShape, deviates: Vector) -> Matrix:
    """The symmetric noise matrix Z (d, d) of ``deviates`` (d (d + 1) / 2,), in the order of :func:`pack`.

    ``"goe"``: Var Z_ii = scale**2 and Var Z_ij = scale**2 / 2 off the diagonal, which is N(0, scale**2) in
    the coordinates of an orthonormal basis of the symmetric matrices. ``"iid"``: Var Z_ij = scale**2.

    Source: section 2.
    """
    noise = unpack(scale * deviates)
    if noise.shape != (d, d):
        raise ValueError(f"need d (d + 1) / 2 = {d * (d + 1) // 2} deviates; got {deviates.size}")
    if _checked(shape) == "goe":
        noise[~np.eye(d, dtype=bool)] /= math.sqrt(2.0)
    return noise


def noise_times_vector(v: NDArray[Any], scale: float, shape: NoiseShape, deviates: Vector) -> Vector:
    """Z v for a fresh noise matrix Z that is never formed; ``v`` (d,) of any norm, ``deviates`` (d + 1,).

    With g the first d deviates and h the last one,

        "goe":  scale / sqrt(2) (||v|| g + h v),
                covariance scale**2 / 2 (||v||**2 I + v v');
        "iid":  scale (sqrt(||v||**2 - v_i**2) g_i + v_i h),
                covariance scale**2 (||v||**2 I + v v' - diag(v_i**2)).

    Source: section 2.
    """
    v = v.astype(np.float64)
    g, h = deviates[:-1], deviates[-1]
    if _checked(shape) == "goe":
        return np.asarray(scale / math.sqrt(2.0) * (np.linalg.norm(v) * g + h * v))
    return np.asarray(scale * (np.sqrt(np.maximum(v @ v - v**2, 0.0)) * g + h * v))


@dataclass(frozen=True)
class Grid:
    """The grid for noise of a scale: multiples of ``unit``, and the scales of the noise in units, rounded up."""

    unit: float
    diagonal: int
    off_diagonal: int

    @classmethod
    def of(cls, scale: float) -> Grid:
        unit = 2.0 ** (math.floor(math.log2(scale)) - 28)
        diagonal = math.ceil(scale / unit)
        return cls(unit, diagonal, math.isqrt((diagonal**2 - 1) // 2) + 1)

    def noisy(self, values: Vector, noise: NDArray[np.int64]) -> Vector:
        """``values`` rounded to the grid, plus noise in units."""
        return np.asarray(self.unit * (np.rint(values / self.unit).astype(np.int64) + noise))


def fresh_product(product: Product, block: Matrix, scale: float, shape: NoiseShape, draw: Draw) -> Matrix:
    """``block`` V (K, d) times M + Z, with a noise matrix Z drawn for this call alone.

    With V = L Q, Q of orthonormal rows, the answer is L (Q M + Q Z): noisy products with the rows of Q, so that no
    product of M reaches the answer without its noise, not even with what is left of nearly dependent rows. The rows of
    Q are answered as by :class:`LazyNoise` for this call; one direction of shape "iid" has noise of covariance
    s^2 (I + q q' - diag(q_i^2)). A scale of 0 stands for a public M, whose product is exact.

    Source: Hu et al., Algorithm 1, step 3, for the price of O(dK) deviates; sections 2 and 7, docs/exactness.md.
    """
    if scale == 0.0:
        return product(block)
    if _checked(shape) == "goe":
        return LazyNoise([(product, scale)], block.shape[1], draw).times(block)[0]
    coefficients, directions = _expand(block, np.empty((0, block.shape[1])))
    if len(directions) > 1:
        raise ValueError(f"shape 'iid' answers one direction a call, not {len(directions)}: use 'goe'")
    answers = [_iid_answer(q, product(q[None, :])[0], Grid.of(scale), draw) for q in directions]
    return np.asarray(coefficients @ np.array(answers).reshape(directions.shape))


def _iid_answer(q: Vector, exact: Vector, grid: Grid, draw: Draw) -> Vector:
    scales = [math.ceil(grid.diagonal * math.sqrt(max((1 - x) * (1 + x), 2.0**-10))) for x in q]
    own = draw(np.array(scales, dtype=np.int64), q.size)
    h = float(draw(1 << 40, 1)[0]) / 2.0**40
    return grid.noisy(exact, own + np.rint(grid.diagonal * (q * h)).astype(np.int64))


class LazyNoise:
    """Products with noisy matrices M + Z, Z one GOE matrix for good, none of them formed.

    Z is made by deferred decisions: only its products with the directions asked so far are drawn. With an orthonormal
    basis Q (r, d) of those directions and the answers Y = Q (M + Z), the product with a new unit vector q, orthogonal
    to Q, is

        Q' (Y q) + q a + P w,   w = P M q + s / sqrt(2) g,   a = q.Mq + s h,   P = I - Q'Q - q q',

    w and a on the grid for s: rounded, with exactly rounded noise. The part on the span of Q has been answered before,
    Z being symmetric, and is not drawn again. A general row is answered as the combination of answers that it is of
    directions. So all answers together, adaptive questions included, are those of one noisy matrix.

    Several ``matrices``, pairs of a product with M and a scale s, are asked together (A and B, say) and share the
    basis; for each new direction, the first draws its d deviates and one more, then the second. A matrix of scale 0 is
    public: its products are exact and it draws nothing.

    Source: section 7, docs/exactness.md.
    """

    def __init__(self, matrices: Sequence[tuple[Product, float]], d: int, draw: Draw) -> None:
        self.basis: Matrix = np.empty((0, d))
        self._matrices = [_LazyMatrix(product, scale, np.empty((0, d))) for product, scale in matrices]
        self._draw = draw

    def times(self, block: Matrix) -> list[Matrix]:
        """``block`` V (K, d) times each of the matrices."""
        coefficients, new = _expand(block, self.basis)
        for q in new:
            for matrix in self._matrices:
                if matrix.scale > 0.0:
                    matrix.answers = np.vstack([matrix.answers, self._answer(matrix, q, Grid.of(matrix.scale))])
            self.basis = np.vstack([self.basis, q])
        return [
            np.asarray(coefficients @ matrix.answers) if matrix.scale > 0.0 else matrix.product(block)
            for matrix in self._matrices
        ]

    def _answer(self, matrix: _LazyMatrix, q: Vector, grid: Grid) -> Vector:
        exact = matrix.product(q[None, :])[0]
        w = grid.noisy(self._across(exact, q), self._draw(grid.off_diagonal, q.size))
        a = grid.noisy(np.array([q @ exact]), self._draw(grid.diagonal, 1))[0]
        return np.asarray(self.basis.T @ (matrix.answers @ q) + q * a + self._across(w, q))

    def _across(self, y: Vector, q: Vector) -> Vector:
        return np.asarray(y - self.basis.T @ (self.basis @ y) - q * (q @ y))


@dataclass
class _LazyMatrix:
    product: Product
    scale: float
    answers: Matrix


def _expand(block: Matrix, basis: Matrix) -> tuple[Matrix, Matrix]:
    """``block`` (K, d) = L [basis; new] with orthonormal ``new`` (m, d): the pair (L (K, r + m), new).

    Gram-Schmidt, each row projected twice. What is left of a row adds no direction, and is dropped from the sum, where
    it is at most 1e-10 of the row.
    """
    directions = basis
    rows = []
    for v in block:
        norm = float(np.linalg.norm(v))
        if norm == 0.0:
            rows.append(np.zeros(0))
            continue
        unit = v / norm
        first = directions @ unit
        rest = unit - directions.T @ first
        second = directions @ rest
        rest = rest - directions.T @ second
        length = float(np.linalg.norm(rest))
        coefficients = first + second
        if length > 1e-10:
            directions = np.vstack([directions, rest / length])
            coefficients = np.append(coefficients, length)
        rows.append(norm * coefficients)
    expansion = np.zeros((len(block), len(directions)))
    for i, row in enumerate(rows):
        expansion[i, : row.size] = row
    return expansion, directions[len(basis) :]


def _checked(shape: NoiseShape) -> NoiseShape:
    if shape not in ("goe", "iid"):
        raise ValueError(f"unknown noise shape {shape!r}: choose 'goe' or 'iid'")
    return shape


def counts_as_zero(row: NDArray[Any], bound: float) -> bool:
    """Whether a row is longer than 2^500 times ``bound``: then it counts as zero everywhere. Source: section 1."""
    longest = float(np.max(np.abs(row), initial=0))
    if longest / 2.0**400 <= bound:  # so that it is no longer than sqrt(d) 2^400 bounds
        return False
    squares = (Fraction(float(x)) ** 2 for x in row)
    return bool(sum(squares) > Fraction(bound) ** 2 * 4**500)


def clip_rows(rows: NDArray[Any], bound: float) -> Matrix:
    """``rows`` (n, d) over ``bound``, each row then shrunk, where needed, to the unit ball.

    A row whose computed norm ||x / bound|| exceeds 1 - gamma, gamma = (d + 16) 2**-53, becomes
    (1 - gamma) x / ||x||; the margin gamma exceeds the rounding errors of the norm and of the scaling, so
    that the exact norm of the result is at most 1. A row that :func:`counts_as_zero` becomes zero. Entries must be
    finite.

    Source: sections 1 and 5.
    """
    rows = rows.astype(np.float64)
    limit = 1.0 - (rows.shape[1] + 16) * 2.0**-53
    # Over its largest entry a row has neither a squared norm that overflows nor one that underflows.
    largest = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    scaled = rows / np.where(largest > 0.0, largest, 1.0)
    norm = np.sqrt(np.sum(scaled**2, axis=1, keepdims=True))
    far = np.array([[counts_as_zero(row, bound)] for row in rows], dtype=bool).reshape(norm.shape)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        inside = norm * (largest / bound) <= limit
        return np.where(far, 0.0, np.where(inside, rows / bound, scaled * (limit / norm)))


def clip_factors(rows: NDArray[Any], bound: float) -> Vector:
    """Factors f (n,), at most 1, such that ||f_i x_i|| <= ``bound`` for ``rows`` (n, d).

    1 where the computed norm is at most bound (1 - gamma), otherwise bound (1 - gamma) / ||x||, rounded down; 0 for
    a row that :func:`counts_as_zero`; gamma as in :func:`clip_rows`. Entries must be finite.

    Source: section 1.
    """
    rows = rows.astype(np.float64)
    limit = 1.0 - (rows.shape[1] + 16) * 2.0**-53
    largest = np.max(np.abs(rows), axis=1, initial=0.0)
    relative = np.linalg.norm(rows / np.where(largest > 0.0, largest, 1.0)[:, None], axis=1)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        inside = relative * (largest / bound) <= limit
        shrunk = np.nextafter(bound / largest * (limit / relative), 0.0)
        far = np.array([counts_as_zero(row, bound) for row in rows], dtype=bool)
        return np.where(far, 0.0, np.where(inside, 1.0, shrunk))


def row_squares(rows: NDArray[Any], factors: Vector) -> Vector:
    """sum_i (f_i x_ij)**2 for ``rows`` (n, d): the diagonal of their second moment, (d,)."""
    return np.asarray(np.sum((factors[:, None] * rows.astype(np.float64)) ** 2, axis=0))


def group_sums(rows: NDArray[Any], factors: Vector, groups: NDArray[Any], n_groups: int) -> Matrix:
    """Sum of f_i x_i over the rows of each group: (d, n_groups)."""
    marks = np.eye(n_groups)[groups.astype(np.intp)]
    return np.asarray((factors[:, None] * rows.astype(np.float64)).T @ marks)


def rows_product(rows: NDArray[Any], factors: Vector, scale: float, block: Matrix) -> Matrix:
    """``block`` V (K, d) times M = scale sum_i (f_i z_i)(f_i z_i)', z_i the ``rows`` (n, d), f the ``factors`` (n,)."""
    kept = factors > 0
    shrunk = factors[kept, None] * rows[kept].astype(np.float64)
    return np.asarray(scale * ((block @ shrunk.T) @ shrunk))


class PencilPart(NamedTuple):
    """The ``blocks`` ("whole", "between" or "within" views) of share M + F' diag(weights) F, F (r, d)."""

    weights: Vector
    share: float = 0.0
    blocks: str = "whole"


def pair_products(
    second: Product,
    block: Matrix,
    factors: Matrix,
    a: PencilPart,
    b: PencilPart | None = None,
    view_sizes: tuple[int, ...] = (),
) -> tuple[Matrix, Matrix]:
    """``block`` V (K, d) times A and B (None: I), which a second moment M and r released ``factors`` F (r, d) make up.

    ``view_sizes``: the number of features of each view; empty: one view. M is asked once, and not at all if neither
    needs it; where blocks are kept, for K rows a view, zero outside of it.

    Source: sections 2 and 4.
    """
    parts = [part for part in (a, b) if part is not None]
    asked, of_views = block, any(part.blocks != "whole" for part in parts)
    if of_views:
        view_of = np.repeat(np.arange(len(view_sizes)), view_sizes)
        asked = np.vstack([np.where(view_of == view, block, 0.0) for view in range(len(view_sizes))])
    moment = second(asked) if any(part.share != 0.0 for part in parts) else np.zeros(asked.shape)

    def times(part: PencilPart) -> Matrix:
        products = part.share * moment + asked @ factors.T * part.weights @ factors
        if not of_views:
            return np.asarray(products)
        by_view = np.split(products, len(view_sizes))
        wanted = {"whole": lambda same: same | True, "within": lambda same: same, "between": lambda same: ~same}
        kept = [np.where(wanted[part.blocks](view_of == view), each, 0.0) for view, each in enumerate(by_view)]
        return np.asarray(sum(kept))

    return times(a), block.copy() if b is None else times(b)


@dataclass(frozen=True)
class Flow:
    """``vectors`` (K, d), ``quotients`` (n_done, K), number of iterations done, whether the tolerance was met."""

    vectors: Matrix
    quotients: Matrix
    n_done: int
    converged: bool


def rayleigh_flow(
    times: PairProduct,
    start: Matrix,
    n_iterations: int,
    step_size: float,
    *,
    shift: float = 0.0,
    ridge: float = 0.0,
    sparsity: int = 0,
    separate_supports: bool = False,
    tolerance: float = 0.0,
) -> Flow:
    """Leading solutions of A v = lambda (B + ridge I) v by ascent of the Rayleigh quotient rho, from products alone.

    An iteration takes the unit rows v of V (K, d), with their products, to

        rho = v.Av / v.Bv,   w = |rho + shift| v + step_size (A v - rho B v),   v <- w / ||w||,

    where all but the ``sparsity`` entries of largest modulus of w are set to 0 first, unless ``sparsity`` is 0. Several
    rows are first made B-orthonormal Ritz vectors, with quotients rho descending; they keep the columns of V of largest
    norm, one support for all, or each its own if ``separate_supports``. Stops when no row moves by more than
    ``tolerance``, up to its sign, or before a row that would be zero or not finite.

    Source: Hu et al., Algorithms 1 and 3. Their C v = v + (step_size / rho) (Av - rho Bv) is w / rho: for negative rho
    the modulus keeps ascent an ascent. Blocks, shift, ridge and tolerance are ours.
    """
    vectors = _unit_rows(start)
    quotients: list[Vector] = []
    while len(quotients) < n_iterations:
        av, bv = times(vectors)
        bv = bv + ridge * vectors
        if len(vectors) == 1:
            v = vectors
            rho = np.array([_quotient(float(v[0] @ av[0]), float(v[0] @ bv[0]))])
        else:
            rho, rotation = _ritz(vectors @ av.T, vectors @ bv.T)
            v, av, bv = rotation @ vectors, rotation @ av, rotation @ bv
        w = np.abs(rho + shift)[:, None] * v + step_size * (av - rho[:, None] * bv)
        if not np.all(np.isfinite(w)):
            return Flow(vectors, np.array(quotients).reshape(-1, len(start)), len(quotients), False)
        if sparsity > 0 and separate_supports:
            w = np.array([truncate_top_k(row, sparsity)[0] for row in w])
        elif sparsity > 0:
            w = truncate_rows_top_k(w.T, sparsity)[0].T
        if np.any(np.max(np.abs(w), axis=1) == 0.0):
            return Flow(vectors, np.array(quotients).reshape(-1, len(start)), len(quotients), False)
        vectors, v = _unit_rows(w), _unit_rows(v)
        quotients.append(rho)
        sign = np.where(np.einsum("ij,ij->i", vectors, v) < 0.0, -1.0, 1.0)
        moved = np.linalg.norm(vectors - sign[:, None] * v, axis=1)
        if tolerance > 0.0 and np.max(moved) <= tolerance:
            return Flow(vectors, np.array(quotients), len(quotients), True)
    return Flow(vectors, np.array(quotients), len(quotients), False)


def deflated_flow(
    times: PairProduct, start: Matrix, n_iterations: int, step_size: float, *, shift: float = 0.0, ridge: float = 0.0
) -> tuple[Matrix, Vector]:
    """The solutions of :func:`rayleigh_flow` one after the other: unit rows (K, d) and their quotients (K,).

    Row j of ``start`` begins a flow of its own for the pair (A - sum_i rho_i (B v_i)(B v_i)', B), the sum over the
    solutions found before, v_i' B v_i = 1: they solve this pair with eigenvalue 0, the others are as they were. (B
    stands for B + ridge I.)

    Source: section 6, the cross-check of blocks.
    """
    found: list[tuple[float, Vector]] = []
    solutions: list[Vector] = []

    def deflated(block: Matrix) -> tuple[Matrix, Matrix]:
        av, bv = times(block)
        for rho, image in found:
            av = av - rho * np.outer(block @ image, image)
        return av, bv

    for v0 in start:
        flow = rayleigh_flow(deflated, v0[None, :], n_iterations, step_size, shift=shift, ridge=ridge)
        v = flow.vectors[0]
        av, bv = (product[0] for product in times(v[None, :]))
        bv = bv + ridge * v
        found.append((float(v @ av / (v @ bv)), bv / math.sqrt(float(v @ bv))))
        solutions.append(v)
    return np.array(solutions), np.array([rho for rho, _ in found])


def _quotient(av: float, bv: float) -> float:
    """v.Av / v.Bv, its divisor kept positive: noise can make a B indefinite."""
    return av / max(abs(bv), 1e-300)


def _ritz(a: Matrix, b: Matrix) -> tuple[Vector, Matrix]:
    """Solutions of R c = rho G c for R, G (K, K): quotients, descending, and the c as rows, C G C' = I.

    Eigenvalues of G below 1e-12 of the largest are raised to it. Of each c, the entry of largest modulus is positive.
    """
    lengths, axes = np.linalg.eigh((b + b.T) / 2.0)
    whitened = axes / np.sqrt(np.maximum(lengths, 1e-12 * lengths[-1]))
    values, vectors = np.linalg.eigh(whitened.T @ ((a + a.T) / 2.0) @ whitened)
    rotation = (whitened @ vectors[:, ::-1]).T
    leading = rotation[np.arange(len(rotation)), np.argmax(np.abs(rotation), axis=1)]
    return values[::-1], rotation * np.sign(leading)[:, None]


def _unit_rows(block: Matrix) -> Matrix:
    return np.asarray(block / np.linalg.norm(block, axis=1, keepdims=True))


def truncate_top_k(v: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """``v`` (d,) with all but its ``k`` entries of largest modulus set to 0, and the kept indices, ascending.

    Of equal moduli the one of lower index is kept. Needs 1 <= k <= d.

    Source: truncation step of the truncated Rayleigh flow, section 6.
    """
    kept = _top_k(np.abs(v), k)
    truncated = np.zeros_like(v)
    truncated[kept] = v[kept]
    return truncated, kept


def truncate_rows_top_k(block: NDArray[Any], k: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """``block`` (d, K) with all but its ``k`` rows of largest Euclidean norm set to 0.

    Ties, range of ``k`` and returned indices: see :func:`truncate_top_k`.
    """
    kept = _top_k(np.linalg.norm(block.astype(np.float64), axis=1), k)
    truncated = np.zeros_like(block)
    truncated[kept] = block[kept]
    return truncated, kept


def _top_k(sizes: NDArray[Any], k: int) -> NDArray[np.int64]:
    if not 1 <= k <= sizes.size:
        raise ValueError(f"need 1 <= k <= d = {sizes.size}; got k = {k}")
    by_size_then_index = np.argsort(-sizes, kind="stable")
    return np.sort(by_size_then_index[:k]).astype(np.int64)


def fixed_point_rows(rows: NDArray[Any], bound: float, bits: int) -> Matrix:
    """``rows`` (n, d) as integers: 2**bits x / bound, each row shrunk where needed to the ball, toward zero.

    q = trunc(2**bits x / max(bound, ||x||)); while the integer sum of q**2 exceeds 4**bits, the scale of the
    row is multiplied by 1 - 2**-20. A row that :func:`counts_as_zero` becomes zero. Entries must be finite.

    Source: section 5.
    """
    out = np.zeros(rows.shape)
    for x, q in zip(rows.astype(np.float64), out, strict=True):
        if counts_as_zero(x, bound):
            continue
        # Over a power of two near the larger of bound and entries, no square overflows or matters and underflows.
        _, exponent = math.frexp(max(bound, float(np.max(np.abs(x), initial=0.0))))
        x = np.ldexp(x, -exponent)
        divisor = max(math.ldexp(bound, -exponent), float(np.linalg.norm(x)))
        scale = 2.0**bits / divisor
        q[:] = np.trunc(x * scale)
        while sum(int(entry) ** 2 for entry in q) > 4**bits:
            scale *= 1.0 - 2.0**-20
            q[:] = np.trunc(x * scale)
    return out


def clipped_product(
    rows: NDArray[Any], vectors: NDArray[Any], offset: NDArray[Any], threshold: float, bits: int, direction_bits: int
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Sum of x clip(V x - o)^T over rows on the grid of 2^-bits (section 11), the clipped products, and |V x - o|^2.

    In whole numbers of any size, but for the factors by which a product is multiplied. ``vectors`` are on the grid of
    2^-direction_bits and ``offset`` on that of both.
    """
    total = [[0] * len(vectors) for _ in range(rows.shape[1])]
    clipped, squares = [], []
    for row in rows.astype(np.int64).tolist():
        products = [
            sum(x * int(v) for x, v in zip(row, direction, strict=True)) - int(o)
            for direction, o in zip(vectors.tolist(), offset.tolist(), strict=True)
        ]
        squares.append(sum(p * p for p in products))
        steps = [round(p * (2.0**-direction_bits / threshold)) for p in products]
        square = sum(p * p for p in steps)
        if square > 4**bits:
            factor = 2.0**bits * (1 - 2.0**-40) / math.sqrt(square)
            steps = [math.trunc(p * factor) for p in steps]
        clipped.append(steps)
        for j, x in enumerate(row):
            for i, p in enumerate(steps):
                total[j][i] += x * p
    return total, clipped, squares


def gather_rows(columns: Sequence[NDArray[Any]], first: int, n_rows: int) -> NDArray[Any]:
    """The matrix whose columns are the vectors ``columns``, its rows first, ..., first + n_rows - 1."""
    return np.stack([column[first : first + n_rows] for column in columns], axis=1)


def count_magnitudes(
    rows: NDArray[Any], columns: Any, first_octave: int, n_octaves: int, weights: NDArray[Any] | int = 1
) -> NDArray[np.int64]:
    """(n_columns, 2, n_octaves + 1): how many entries of the columns are zero, in the first bin, or x = m 2^e with
    1/2 <= |m| < 1, in the bin e - first_octave or the nearest; positive entries, then negative. NaN adds nothing.
    """
    block = rows[:, columns].astype(np.float64)
    mantissas, exponents = np.frexp(block)
    octaves = np.clip(exponents.astype(np.int64) - first_octave, 1, n_octaves)
    octaves[block == 0] = 0
    counts = np.zeros((block.shape[1], 2, n_octaves + 1), dtype=np.int64)
    i, j = np.nonzero(~np.isnan(block))
    np.add.at(counts, (j, (mantissas[i, j] < 0).astype(int), octaves[i, j]), _of_rows(weights, rows)[i])
    return counts


def _of_rows(weights: NDArray[Any] | int, rows: NDArray[Any]) -> NDArray[np.int64]:
    """(n,): how often each row counts."""
    return np.broadcast_to(np.asarray(weights, dtype=np.int64), len(rows))


def _places(block: NDArray[Any], middle: Vector, half: Vector) -> Matrix:
    with np.errstate(all="ignore"):
        return np.clip((block.astype(np.float64) - middle) / half, -1.0, 1.0)


def count_places(
    rows: NDArray[Any], columns: Any, middle: Vector, half: Vector, n_bins: int, weights: NDArray[Any] | int = 1
) -> NDArray[np.int64]:
    """(n_columns, n_bins): entries of the columns in each of n_bins equal parts of middle +- half. NaN adds nothing."""
    places = _places(rows[:, columns], middle, half)
    counts = np.zeros((places.shape[1], n_bins), dtype=np.int64)
    i, j = np.nonzero(~np.isnan(places))
    bins = np.minimum(((places[i, j] + 1) * (n_bins / 2)).astype(int), n_bins - 1)
    np.add.at(counts, (j, bins), _of_rows(weights, rows)[i])
    return counts


def sum_places(
    rows: NDArray[Any], middle: Vector, half: Vector, bits: int, weights: NDArray[Any] | int = 1
) -> NDArray[np.int64]:
    """(3, d): sums of p = round(2^bits u) and of p^2, u being places in middle +- half; how many there are."""
    places = _places(rows, middle, half)
    there = ~np.isnan(places)
    p = np.rint(np.ldexp(np.where(there, places, 0.0), bits)).astype(np.int64)
    return np.stack([_of_rows(weights, rows) @ each for each in (p, p * p, there.astype(np.int64))])


def count_norms(
    rows: NDArray[Any], steps: Vector, zero: int, first: int, n_bins: int, weights: NDArray[Any] | int = 1
) -> NDArray[np.int64]:
    """(n_bins,): rows by K - first, or the nearest: the norm max |x_j| sqrt(sum round(2^36 (x_j / max)^2) / 2^36) is
    m 2^e with 1/2 <= m < 1, and K = n_steps (e - 1) + (steps that are at most m); ``zero`` of rows of zeros.
    """
    block = np.abs(rows.astype(np.float64))
    largest = block.max(axis=1, initial=0.0)
    ratios = block / np.where(largest > 0, largest, 1.0)[:, None]
    squares = np.rint(np.ldexp(ratios * ratios, 36)).astype(np.int64).sum(axis=1)
    parts, exponents = np.frexp(largest)
    m, further = np.frexp(parts * np.sqrt(np.ldexp(squares.astype(np.float64), -36)))
    k = (len(steps) + 1) * (exponents + further - 1) + np.searchsorted(steps, m, side="right")
    k = np.where(largest > 0, k, zero)
    counts = np.zeros(n_bins, dtype=np.int64)
    np.add.at(counts, np.clip(k - first, 0, n_bins - 1), _of_rows(weights, rows))
    return counts


def people_run(
    counts: Vector, deviation: float, least: float, noise: float, most: float
) -> tuple[int, int, float, float]:
    """(first, last, people, rise): the bins, at least one, over which counts - deviation add up to most, the rise.

    At either end as many are left outside as hold at most ``noise`` deviations of their noise, between the shares
    ``least`` and ``most`` of the people.
    """
    heights = np.concatenate([[0.0], np.cumsum(counts - deviation)])
    lows = np.minimum.accumulate(heights[:-1])
    last = int(np.argmax(heights[1:] - lows))
    first = int(np.argmax(heights == lows[last]))
    run = counts[first : last + 1]
    people = float(run.sum())
    deviations = noise * deviation * np.sqrt(np.arange(1, len(run) + 1))
    few = np.minimum(np.maximum(deviations, least * people), most * people)
    before, behind = (int(np.max(np.flatnonzero(np.cumsum(way) <= few) + 1, initial=0)) for way in (run, run[::-1]))
    return first + before, last - behind, people, float(heights[last + 1] - lows[last])


def hash_rows(rows: NDArray[Any], factors: Sequence[int], groups: Sequence[int] | None) -> list[int]:
    """A hash of each row: the finalizer of SplitMix64 of sum_j w_j factor_j + (group + 1) factor_d modulo 2^64.

    w = v ^ v >> 20 and v = b ^ b >> 32 for the bits b of an entry in float64, -0 being 0 and every NaN the same.
    """
    keys = []
    for i, row in enumerate(rows.astype(np.float64)):
        total = 0 if groups is None else (int(groups[i]) + 1) * int(factors[-1])
        for entry, factor in zip(row.tolist(), factors, strict=False):
            (word,) = struct.unpack("<Q", struct.pack("<d", math.nan if math.isnan(entry) else entry + 0.0))
            word ^= word >> 32
            total += (word ^ word >> 20) * int(factor)
        word = total % 2**64
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
        keys.append(word ^ word >> 31)
    return keys


def shares(
    persons: Sequence[int],
    keys: Sequence[int],
    units: Sequence[int] | None = None,
    most_alike: int = 1,
    bits: int = 12,
) -> list[int]:
    """What each row has of its person's 2^bits: what it should, rounded down, one more below a threshold, what is left.

    Source: section 12, "in whole numbers".
    """
    out = [0] * len(persons)
    for person in set(persons):
        own = [i for i, whose in enumerate(persons) if whose == person]
        m = len(own)
        each = {i: Fraction(2**40 if units is None else units[i], max(m, most_alike) * 2 ** (40 - bits)) for i in own}
        total = math.floor(sum(each.values()) + Fraction(1, 2))
        rest = total - sum(map(math.floor, each.values()))
        slack = math.isqrt(16 * rest - 1) + 1 if rest else 0  # the root, rounded up
        below: set[int] = set()
        if m > 2 ** (bits - 6) and rest > slack:
            parts = {i: each[i] % 1 * (rest - slack) / rest for i in own}
            below = {i for i in own if keys[i] < math.floor(2**32 * parts[i]) * 2**32}
        if len(below) > rest:
            below = set()
        for i in own:
            out[i] = math.floor(each[i]) + (i in below)
        heavy = [i for i in own if each[i] > 0]
        if heavy:
            out[min(heavy, key=lambda i: (keys[i] >> 24, i))] += rest - len(below)
    return out


def person_numbers(known: Sequence[Any], people: Sequence[Any]) -> list[int]:
    """The number of each among those who are known, in the order in which they come, or -1."""
    number = {person: k for k, person in enumerate(dict.fromkeys(known))}
    return [number.get(person, -1) for person in people]


def text_words(text: str, key: int, other_key: int) -> tuple[int, int]:
    """SipHash of a string in UTF-8."""
    return siphash(text.encode("utf-8", "surrogatepass"), (key, other_key))


def siphash(text: bytes, key: tuple[int, int]) -> tuple[int, int]:
    """SipHash-2-4 with an output of two words.

    Source: Aumasson and Bernstein, SipHash: a fast short-input PRF (Indocrypt 2012), and their siphash.c.
    """
    v = [a ^ b for a, b in zip(struct.unpack("<4Q", b"uespemosmodnarodarenegylsetybdet"), key * 2, strict=True)]
    v[1] ^= 0xEE

    def rounds(n: int) -> None:
        for _ in range(n):
            for a, b, by, far in ((0, 1, 13, 1), (2, 3, 16, 0), (0, 3, 21, 0), (2, 1, 17, 1)):
                v[a] = (v[a] + v[b]) % 2**64
                v[b] = _turned(v[b], by) ^ v[a]
                v[a] = _turned(v[a], 32) if far else v[a]

    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) % 256])
    for (word,) in struct.iter_unpack("<Q", padded):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    words = []
    for place, mark in ((2, 0xEE), (1, 0xDD)):
        v[place] ^= mark
        rounds(4)
        words.append(v[0] ^ v[1] ^ v[2] ^ v[3])
    return words[0], words[1]


def _turned(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) % 2**64


def map_rows(rows: NDArray[Any], location: Vector | None, scale: Vector | None, largest: float) -> Matrix:
    """(x - location)/scale, no further from zero than ``largest``; 0 for NaN."""
    with np.errstate(all="ignore"):
        out = rows.astype(np.float64)
        out = out if location is None else out - location
        out = np.clip(out if scale is None else out / scale, -largest, largest)
    return np.where(np.isnan(rows), 0.0, out)


def mix_rows(rows: Matrix, linear: Matrix, bits: int) -> Matrix:
    """Rows rounded to the grid of 2^-bits, times ``linear``."""
    return np.asarray(np.ldexp(np.rint(np.ldexp(rows, bits)), -bits) @ linear)


def marked_moments(rows: NDArray[Any], groups: NDArray[Any], n_groups: int, mark: int) -> NDArray[np.int64]:
    """The upper triangle of sum_i z_i z_i', z_i = [row i; mark e(groups_i)], for integer ``rows`` (n, d).

    (d + n_groups, d + n_groups) int64, exact below 2**63.

    Source: section 5.
    """
    marks = mark * np.eye(n_groups, dtype=np.int64)[groups.astype(np.intp)]
    z = np.hstack([rows.astype(np.int64), marks])
    return np.asarray(np.triu(z.T @ z))


def exact_normal(words: Sequence[int], scale: int, n: int) -> tuple[list[int], int]:
    """``n`` deviates round(scale N), N ~ N(0, 1), and how many of the 64-bit ``words`` they began.

    The words stand for a stream of fair coins; IndexError when they run out. On uniform numbers of unlimited
    precision, drawn digit by digit:

    1. a cell i with a probability in proportion to exp(-i^2 / 2048);
    2. x uniform in (0, 1);
    3. from step 1 again unless a trial Bernoulli(exp(-x (2 i + x) / 2048)) succeeds;
    4. the nearest integer to scale (i + x) / 32, and a fair sign.

    Source: after Karney, "Sampling exactly from the normal distribution", ACM Trans. Math. Softw. 42 (2016), 3,
    algorithms N and B; section 5.
    """
    coins = _Coins(words)
    deviates = []
    for _ in range(n):
        i, x = _exact_modulus(coins)
        magnitude = (scale * i + _floor_of_multiple(scale, x) + 16) // 32
        deviates.append(-magnitude if coins.bit() else magnitude)
    return deviates, coins.words_begun()


@cache
def cell_ends() -> list[int]:
    """The first 480 binary digits of sum_(j <= i) exp(-j^2 / 2048) / 41, for 896 cells i."""
    with mpmath.workprec(700):
        sums = accumulate(mpmath.exp(mpmath.mpf(-i * i) / 2048) for i in range(896))
        return [int(mpmath.floor(mpmath.ldexp(total / 41, 480))) for total in sums]


class _Coins:
    """64-bit words, taken as halves of 32 bits, the lower first; single bits from the lowest of a word up."""

    def __init__(self, words: Sequence[int]) -> None:
        self._words = words
        self._n_halves = 0
        self._bits: Iterator[int] = iter(())

    def half(self) -> int:
        word = int(self._words[self._n_halves // 2])
        half = word >> 32 if self._n_halves % 2 else word % 2**32
        self._n_halves += 1
        return half

    def word(self) -> int:
        low = self.half()
        return low + 2**32 * self.half()

    def bit(self) -> int:
        for bit in self._bits:
            return bit
        word = self.word()
        self._bits = iter([word >> i & 1 for i in range(64)])
        return next(self._bits)

    def words_begun(self) -> int:
        return -(-self._n_halves // 2)


class _Uniform:
    """A uniform number of (0, 1): its first digits in base 2**16, more of them when they are asked for."""

    def __init__(self, coins: _Coins, digits: list[int]) -> None:
        self._coins = coins
        self._digits = digits

    def digit(self, i: int) -> int:
        if i == len(self._digits):
            self.extend()
        return self._digits[i]

    def extend(self) -> None:
        word = self._coins.word()
        new = [word >> shift & 0xFFFF for shift in (48, 32, 16, 0)]
        # A number of one digit takes three, so that afterwards words hold whole groups of four.
        self._digits += new[:3] if len(self._digits) == 1 else new

    def interval(self, n_digits: int | None = None) -> tuple[Fraction, Fraction]:
        """The ends of the interval that the first ``n_digits`` digits, or all so far, leave open."""
        digits = self._digits[:n_digits]
        low = sum((Fraction(digit, 2 ** (16 * (i + 1))) for i, digit in enumerate(digits)), Fraction(0))
        return low, low + Fraction(1, 2 ** (16 * len(digits)))

    def __lt__(self, other: _Uniform) -> bool:
        i = 0
        while (mine := self.digit(i)) == (theirs := other.digit(i)):
            i += 1
        return mine < theirs


def _exact_modulus(coins: _Coins) -> tuple[int, _Uniform]:
    """32 |N| = i + x: steps 1 to 3."""
    while True:
        i = _cell(coins)
        if i == len(cell_ends()):
            continue
        word = coins.word()
        x = _Uniform(coins, [word >> shift & 0xFFFF for shift in (48, 32, 16, 0)])
        if _exp_minus_product(coins, i, x):
            return i, x


def _cell(coins: _Coins) -> int:
    """How many ends of cells a uniform number exceeds: half, and words while its digits are those of an end."""
    ends, u, left = cell_ends(), coins.half(), 448
    while (i := bisect_left(ends, u << left)) < len(ends) and ends[i] >> left == u:
        if left == 0:
            raise ArithmeticError("too near the end of a cell")
        u, left = u << 64 | coins.word(), left - 64
    return i


def _exp_minus_product(coins: _Coins, i: int, x: _Uniform) -> bool:
    """Bernoulli(exp(-x p)), p = (2 i + x) / 2048.

    Whether the longest run x > u_1 > ... > u_n in which every step also passes r < p, r uniform, is even.
    """
    last, even = x, True
    while True:
        half = coins.half()
        new, r = _Uniform(coins, [half & 0xFFFF]), _Uniform(coins, [half >> 16])
        if not (new < last and _is_below_p(r, i, x)):
            return even
        last, even = new, not even


def _is_below_p(r: _Uniform, i: int, x: _Uniform) -> bool:
    n_digits = 1
    while True:
        r_low, r_high = r.interval(n_digits)
        x_low, x_high = x.interval(n_digits)
        if 2048 * r_high <= 2 * i + x_low:
            return True
        if 2048 * r_low >= 2 * i + x_high:
            return False
        r.digit(n_digits)
        x.digit(n_digits)
        n_digits += 1


def _floor_of_multiple(scale: int, x: _Uniform) -> int:
    """floor(scale x)."""
    while True:
        low, high = x.interval()
        smallest = math.floor(scale * low)
        largest = math.ceil(scale * high) - 1 if scale else 0  # the upper end is excluded
        if smallest == largest:
            return smallest
        x.extend()


def poisson_sample(n: int, rate: float, read: Read) -> NDArray[np.int64]:
    """A sample of 0, ..., n - 1, ascending: each is a member independently, with probability ``rate``.

    The number of those passed over before the next member is geometric: floor(log u / log(1 - rate)), u =
    (w + 1) 2**-64 from a 64-bit word w that ``read(8)`` hands out, one for each member and one for the end.

    Source: section 6.
    """
    members: list[int] = []
    position = 0
    while True:
        u = (float(int.from_bytes(read(8), "little")) + 1.0) * 2.0**-64
        passed_over = math.floor(math.log(u) / math.log1p(-rate)) if rate < 1.0 else 0
        if passed_over >= n - position:
            return np.array(members, dtype=np.int64)
        position += passed_over
        members.append(position)
        position += 1


def sampled_product(
    rows: NDArray[Any],
    factors: Vector,
    block: Matrix,
    *,
    n_people: float,
    rate: float,
    deviation: float,
    read: Read,
    draw: Draw,
) -> Matrix:
    """``block`` V (K, d) times 1/(q n0) (sum_{i in S} (f_i z_i)(f_i z_i)' + Z), q = ``rate``, n0 = ``n_people``.

    S is a new Poisson sample of the ``rows`` z (n, d), with ``factors`` f (n,); Z is a new GOE matrix of the given
    ``deviation``. The size of S stays secret: n0 is public, and Z is added whether S is empty or not. The sample takes
    its words from ``read`` first, then the noise its deviates from ``draw``.

    A row of norm at most R moves the sum by at most R^2 in Frobenius norm, so this is a Poisson-subsampled Gaussian
    mechanism of noise multiplier deviation / R^2 under add/remove, and its product with a public V is post-processing:
    nothing but the rows is clipped. For V = W - W_0 the noise shrinks with W - W_0.

    Source: Shang et al. 2021, Algorithms 1 and 2 (which sample single rows); sections 2 and 6.
    """
    if not block.any():
        return np.zeros(block.shape)
    scale = 1.0 / (rate * n_people)
    members = poisson_sample(len(rows), rate, read)

    def moment(directions: Matrix) -> Matrix:
        return rows_product(rows[members], factors[members], scale, directions)

    return fresh_product(moment, block, deviation * scale, "goe", draw)


def sampled_ascent(product: Product, block: Matrix, step_sizes: Vector) -> tuple[Matrix, Matrix]:
    """V <- orth(V + eta G) with G = V (M + Z) from ``product``, for each eta of ``step_sizes``, from V = ``block``.

    Returns V (K, d) and the mean of V G' (K, K) over the steps. orth is that of Gram and Schmidt: the Q of a QR
    factorization whose R has a positive diagonal. A step after which fewer than K directions, or infinite numbers,
    would be left is not taken: V stays.

    Source: Shang et al. 2021, Algorithm 1, with batches.
    """
    return _ascent(block, step_sizes, product)


def reduced_ascent(
    product: Product, block: Matrix, anchor: Matrix, gradient: Matrix, step_sizes: Vector
) -> tuple[Matrix, Matrix]:
    """The same with G = ``gradient`` + (V - V_0)(M + Z), V_0 = ``anchor``: an epoch of variance reduction.

    ``gradient`` is the (noisy) product of all rows with the anchor. Where V = V_0 nothing is asked of ``product``.

    Source: Shang et al. 2021, Algorithm 2, steps 3 to 10, with batches.
    """

    def reduced(at: Matrix) -> Matrix:
        moved = at - anchor
        return gradient + product(moved) if moved.any() else gradient

    return _ascent(block, step_sizes, reduced)


def _ascent(block: Matrix, step_sizes: Vector, gradient: Product) -> tuple[Matrix, Matrix]:
    quotients = np.zeros((len(block), len(block)))
    for step_size in step_sizes:
        g = gradient(block)
        quotients += block @ g.T
        with np.errstate(over="ignore"):
            moved = block + step_size * g
        if not np.isfinite(moved).all():
            continue
        q, r = np.linalg.qr(moved.T)
        left = np.diagonal(r)
        if np.all(np.abs(left) > 1e-10 * np.linalg.norm(moved, axis=1)):
            block = np.asarray((q * np.sign(left)).T)
    return block, quotients / len(step_sizes)


def packed_places(n_matrices: int, d: int, n: int) -> list[int]:
    """Where the upper triangles of (d, d) matrices are among n numbers, by rows, and what follows the matrices."""
    upper = [matrix * d * d + i * d + j for matrix in range(n_matrices) for i in range(d) for j in range(i, d)]
    return [*upper, *range(n_matrices * d * d, n)]


def wholes(limbs: NDArray[np.int64]) -> list[int]:
    """Numbers of two limbs, low + 2^40 high, (n,)."""
    low, high = limbs.tolist()
    return [a + (b << 40) for a, b in zip(low, high, strict=True)]


def begin_night(
    values: NDArray[np.int64],
    exact: NDArray[np.int64],
    before: NDArray[np.int64],
    steps: NDArray[np.int64],
    n_matrices: int,
    d: int,
) -> tuple[list[int], list[int]]:
    """(n,) exact + values, packed; and 2^6 times these less the rounded 2^-6 sum_k steps_k before_k."""
    tonight = wholes(values[:, packed_places(n_matrices, d, values.shape[1])])
    sums = [a + b for a, b in zip(wholes(exact), tonight, strict=True)]
    carried = [
        math.floor(Fraction(sum(s * z for s, z in zip(steps.tolist(), column, strict=True)), 64) + Fraction(1, 2))
        for column in (before.T.tolist() if len(before) else [[]] * len(sums))
    ]
    return sums, [64 * a - b for a, b in zip(sums, carried, strict=True)]
