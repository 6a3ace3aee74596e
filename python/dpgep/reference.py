"""Every compiled kernel again, plainly, in NumPy.

The kernels of the compiled core are tested against these functions, and a reader who wants to know what a
kernel computes reads it here. Random deviates are arguments: the same deviates give the same numbers on both
sides, so a seeded kernel and its reference can be compared entry by entry.

Section numbers refer to ``docs/mathematics``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "chacha20_block",
    "chacha20_stream",
    "clip_rows",
    "exact_normal",
    "fixed_point_rows",
    "noise_times_block",
    "noise_times_vector",
    "normal",
    "pack",
    "symmetric_noise",
    "truncate_rows_top_k",
    "truncate_top_k",
    "unpack",
]

NoiseShape = Literal["goe", "iid"]
Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Words = NDArray[np.uint32]

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
    that |deviate| <= sqrt(128 log 2) < 9.42.

    Source: Box and Muller 1958; section 5.
    """
    n_pairs = (n + 1) // 2
    if len(key_stream) < 16 * n_pairs:
        raise ValueError(f"need len(key_stream) >= 16 * ceil(n / 2) = {16 * n_pairs}; got {len(key_stream)}")
    words = np.frombuffer(key_stream, dtype="<u8", count=2 * n_pairs).reshape(n_pairs, 2)
    uniform = (words[:, 0].astype(np.float64) + 1.0) * 2.0**-64
    radius = np.sqrt(-2.0 * np.log(uniform))
    angle = 2.0 * math.pi * ((words[:, 1] >> np.uint64(11)).astype(np.float64) * 2.0**-53)
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
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


def noise_times_block(block: NDArray[Any], scale: float, deviates: Vector) -> Matrix:
    """Z V for a fresh GOE matrix Z that is never formed; ``block`` V (d, K) has orthonormal columns.

        scale / sqrt(2) (W - V (V' W)) + V G,

    where W (d, K), row by row, is made of the first d K of the ``deviates`` (d K + K (K + 1) / 2,), and
    G = symmetric_noise(K, scale, "goe") of the others.

    Source: section 2.
    """
    block = block.astype(np.float64)
    d, n_columns = block.shape
    w = deviates[: d * n_columns].reshape(d, n_columns)
    g = symmetric_noise(n_columns, scale, "goe", deviates[d * n_columns :])
    return np.asarray(scale / math.sqrt(2.0) * (w - block @ (block.T @ w)) + block @ g)


def _checked(shape: NoiseShape) -> NoiseShape:
    if shape not in ("goe", "iid"):
        raise ValueError(f"unknown noise shape {shape!r}: choose 'goe' or 'iid'")
    return shape


def clip_rows(rows: NDArray[Any], bound: float) -> Matrix:
    """``rows`` (n, d) over ``bound``, each row then shrunk, where needed, to the unit ball.

    A row whose computed norm ||x / bound|| exceeds 1 - gamma, gamma = (d + 16) 2**-53, becomes
    (1 - gamma) x / ||x||; the margin gamma exceeds the rounding errors of the norm and of the scaling, so
    that the exact norm of the result is at most 1. Entries must be finite.

    Source: sections 1 and 5.
    """
    rows = rows.astype(np.float64)
    limit = 1.0 - (rows.shape[1] + 16) * 2.0**-53
    # Over its largest entry a row has neither a squared norm that overflows nor one that underflows.
    largest = np.max(np.abs(rows), axis=1, keepdims=True, initial=0.0)
    scaled = rows / np.where(largest > 0.0, largest, 1.0)
    norm = np.sqrt(np.sum(scaled**2, axis=1, keepdims=True))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
        inside = norm * (largest / bound) <= limit
        return np.where(inside, rows / bound, scaled * (limit / norm))


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
    row is multiplied by 1 - 2**-20. Entries must be finite.

    Source: section 5.
    """
    out = np.zeros(rows.shape)
    for x, q in zip(rows.astype(np.float64), out, strict=True):
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


def exact_normal(words: Sequence[int], scale: int, n: int) -> tuple[list[int], int]:
    """``n`` deviates round(scale N), N ~ N(0, 1), and how many of the 64-bit ``words`` they began.

    The words stand for a stream of fair coins; IndexError when they run out. The deviates are those of Karney's
    algorithm N on uniform numbers of unlimited precision, drawn digit by digit:

    1. k successes of Bernoulli(exp(-1/2)) before a failure;
    2. from step 1 again unless k (k - 1) such trials all succeed;
    3. x uniform in (0, 1);
    4. from step 1 again unless k + 1 trials Bernoulli(exp(-x (2 k + x) / (2 k + 2))) all succeed;
    5. a fair sign, and the nearest integer to scale (k + x).

    Source: Karney, "Sampling exactly from the normal distribution", ACM Trans. Math. Softw. 42 (2016), 3,
    algorithms N, H and B; section 5.
    """
    coins = _Coins(words)
    deviates = []
    for _ in range(n):
        k, x = _exact_modulus(coins)
        magnitude = scale * k + _rounded_multiple(scale, x)
        deviates.append(-magnitude if coins.bit() else magnitude)
    return deviates, coins.words_begun()


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
    """|N| = k + x: steps 1 to 4."""
    while True:
        k = 0
        while _exp_minus_half(coins):
            k += 1
        if not all(_exp_minus_half(coins) for _ in range(k * (k - 1))):
            continue
        word = coins.word()
        x = _Uniform(coins, [word >> shift & 0xFFFF for shift in (48, 32, 16, 0)])
        if all(_exp_minus_product(coins, k, x) for _ in range(k + 1)):
            return k, x


def _exp_minus_half(coins: _Coins) -> bool:
    """Bernoulli(exp(-1/2)): whether the longest run 1/2 > u_1 > u_2 > ... > u_n has an even length."""
    if coins.bit():
        return True
    half = coins.half()
    last, new = _Uniform(coins, [half & 0x7FFF]), _Uniform(coins, [half >> 16])
    even = False
    while new < last:
        even = not even
        last, new = new, _Uniform(coins, [coins.half() & 0xFFFF])
    return even


def _exp_minus_product(coins: _Coins, k: int, x: _Uniform) -> bool:
    """Bernoulli(exp(-x p)), p = (2 k + x) / (2 k + 2).

    Whether the longest run x > u_1 > ... > u_n in which every step also passes r < p, r uniform, is even.
    """
    last, even = x, True
    while True:
        half = coins.half()
        new, r = _Uniform(coins, [half & 0xFFFF]), _Uniform(coins, [half >> 16])
        if not (new < last and _is_below_p(r, k, x)):
            return even
        last, even = new, not even


def _is_below_p(r: _Uniform, k: int, x: _Uniform) -> bool:
    n_digits = 1
    while True:
        r_low, r_high = r.interval(n_digits)
        x_low, x_high = x.interval(n_digits)
        if (2 * k + 2) * r_high <= 2 * k + x_low:
            return True
        if (2 * k + 2) * r_low >= 2 * k + x_high:
            return False
        r.digit(n_digits)
        x.digit(n_digits)
        n_digits += 1


def _rounded_multiple(scale: int, x: _Uniform) -> int:
    """The integer nearest to scale x."""
    while True:
        low, high = x.interval()
        smallest = math.floor(scale * low + Fraction(1, 2))
        largest = math.ceil(scale * high + Fraction(1, 2)) - 1  # the upper end is excluded
        if smallest == largest:
            return smallest
        x.extend()
