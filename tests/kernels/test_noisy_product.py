"""Noisy products, fresh and lazy: entry by entry, against the noise matrices they stand for, and what they must hide.

The statistical tests use fixed keys; over the choice of the key each would fail on a correct kernel with
probability at most 1e-6 (see statistics_helpers), and they have negative controls that must be rejected.
"""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
import pytest
import reference
from flow_problems import draw_from
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_helpers import rejects_covariance, rejects_equal_distributions, rejects_normality, seeded_key

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KEY = seeded_key(31)
SCALE = 1.7
N_SAMPLES = 20_000
# Enough of them to see gross mistakes in the plain reference, which is slow.
FEW_SAMPLES = 2_000
# Rows that are neither unit nor orthogonal.
BLOCK = np.array([[1.5, -0.2, 0.0, 0.4], [0.3, 1.0, -0.6, 0.0], [0.1, 0.1, 0.9, -1.2]])
D = 4


def symmetric(d, seed=0):
    matrix = np.random.default_rng([seed, d]).normal(size=(d, d))
    return matrix + matrix.T


def vectors(n_vectors, d, seed=0):
    return np.random.default_rng([1, seed, n_vectors, d]).normal(size=(n_vectors, d))


def orthonormal(n_vectors, d):
    return np.ascontiguousarray(np.linalg.qr(vectors(n_vectors, d).T)[0].T)


def oracle(a, b=None, *, noise, scale=SCALE, scale_b=0.0, shape="goe", n_products=0, stream=None):
    scales = [scale] if b is None else [scale, scale_b]
    stream = core.NoiseStream(KEY) if stream is None else stream
    return core.PairOracle.of_matrices(
        core.SymmetricMatrices(a, b), core.Noise(noise, scales, shape, n_products, stream)
    )


def reference_lazy(a, b=None, scale=SCALE, scale_b=0.0, lazy=reference.LazyNoise, draw=None):
    matrices = [(lambda block: block @ a, scale)] + ([] if b is None else [(lambda block: block @ b, scale_b)])
    return lazy(matrices, len(a), draw or draw_from(core.NoiseStream(KEY)))


def normals_from(stream):
    """The next n normal deviates in floating point."""

    def draw(n):
        deviates = np.empty(n)
        stream.normal(deviates)
        return deviates

    return draw


# Of answers on a grid: the last bit of a sum may lie on the other side of a line in the plain reference.
ON_GRID = 1e-8


def assert_close(product, expected, relative=1e-12):
    np.testing.assert_allclose(product, expected, rtol=0.0, atol=relative * np.max(np.abs(expected), initial=1e-300))


# --- entry by entry ---


@given(d=st.integers(1, 60), n_vectors=st.integers(1, 6), scale_b=st.sampled_from([0.0, 0.4]))
@settings(deadline=None, derandomize=True, max_examples=100)
def test_fresh_products_agree_with_the_reference(d, n_vectors, scale_b):
    a, b = symmetric(d), symmetric(d, 1)
    kernel = oracle(a, b, noise="fresh", scale_b=scale_b, n_products=3)
    draw = draw_from(core.NoiseStream(KEY))
    for call in range(3):
        block = vectors(n_vectors, d, call)
        before = block.copy()
        av, bv = kernel.times(block)
        plain = reference_lazy(a, b, scale_b=scale_b, draw=draw)
        for product, expected in zip((av, bv), plain.times(block), strict=True):
            assert_close(product, expected, ON_GRID)
        np.testing.assert_array_equal(block, before)


@pytest.mark.parametrize("shape", ["goe", "iid"])
@pytest.mark.parametrize("d", [1, 2, 7, 500])
def test_fresh_products_with_one_vector_agree_with_the_reference(d, shape):
    a = symmetric(d)
    kernel = oracle(a, noise="fresh", shape=shape, n_products=2)
    draw = draw_from(core.NoiseStream(KEY))
    for call in range(2):
        block = vectors(1, d, call)
        expected = reference.fresh_product(lambda v: v @ a, block, SCALE, shape, draw)
        assert_close(kernel.times(block)[0], expected, ON_GRID)


@given(d=st.integers(1, 30), sizes=st.lists(st.integers(1, 5), min_size=1, max_size=8), public_b=st.booleans())
@settings(deadline=None, derandomize=True, max_examples=100)
def test_lazy_products_agree_with_the_reference(d, sizes, public_b):
    scale_b = 0.0 if public_b else 0.4
    # Small d and many rows: dependent rows and exhausted spaces are among the examples.
    a, b = symmetric(d), symmetric(d, 1)
    kernel = oracle(a, b, noise="lazy", scale_b=scale_b)
    plain = reference_lazy(a, b, scale_b=scale_b)
    for call, n_vectors in enumerate(sizes):
        block = vectors(n_vectors, d, call)
        for product, expected in zip(kernel.times(block), plain.times(block), strict=True):
            assert_close(product, expected, ON_GRID)
    assert kernel.n_directions == len(plain.basis) == min(d, sum(sizes))


def test_many_lazy_directions():
    d = 400
    a = symmetric(d)
    kernel, plain = oracle(a, noise="lazy"), reference_lazy(a)
    for call in range(30):
        block = vectors(10, d, call)
        assert_close(kernel.times(block)[0], plain.times(block)[0], ON_GRID)
    assert kernel.n_directions == 300


def test_without_noise_products_are_exact():
    a, b, block = symmetric(30), symmetric(30, 1), vectors(4, 30)
    kernel = core.PairOracle.of_matrices(core.SymmetricMatrices(a, b), core.Noise("none"))
    av, bv = kernel.times(block)
    assert_close(av, block @ a)
    assert_close(bv, block @ b)
    assert (kernel.noise, kernel.n_directions, kernel.n_features, kernel.n_answered) == ("none", 0, 30, 1)


@pytest.mark.parametrize("noise", ["none", "fresh", "lazy"])
def test_without_b_it_is_the_identity(noise):
    block = vectors(3, 9)
    np.testing.assert_array_equal(oracle(symmetric(9), noise=noise, n_products=1).times(block)[1], block)


@pytest.mark.parametrize("noise", ["fresh", "lazy"])
def test_a_matrix_of_scale_zero_is_public_and_draws_nothing(noise):
    a, b, block = symmetric(20), symmetric(20, 1), vectors(1, 20)
    streams = [core.NoiseStream(KEY) for _ in range(2)]
    av, bv = oracle(a, b, noise=noise, scale=0.0, scale_b=0.3, n_products=1, stream=streams[0]).times(block)
    assert_close(av, block @ a)
    expected = oracle(b, noise=noise, scale=0.3, n_products=1, stream=streams[1]).times(block)[0]
    assert_close(bv, expected)
    assert streams[0].bytes(16) == streams[1].bytes(16)


def test_two_parallel_rows_are_one_direction_of_iid_noise():
    v = vectors(1, 6)
    first, second = oracle(symmetric(6), noise="fresh", shape="iid", n_products=1).times(np.vstack([v, -3.0 * v]))[0]
    assert_close(second, -3.0 * first)


# --- one matrix, whatever is asked ---


@pytest.mark.parametrize("noise", ["fresh", "lazy"])
def test_products_of_one_call_belong_to_one_symmetric_matrix(noise):
    block = vectors(5, 40)
    av = oracle(symmetric(40), noise=noise, n_products=1).times(block)[0]
    assert_close(block @ av.T, av @ block.T)


@pytest.mark.parametrize("noise", ["fresh", "lazy"])
def test_dependent_rows_are_answered_by_combination(noise):
    block = vectors(3, 20)
    mixing = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.5, -2.0, 3.0]])
    av = oracle(symmetric(20), noise=noise, n_products=1).times(np.vstack([block, mixing @ block]))[0]
    assert_close(av[3:], mixing @ av[:3])
    np.testing.assert_array_equal(av[4], 0.0)


def test_lazy_answers_are_linear_and_symmetric_across_calls():
    kernel = oracle(symmetric(50), noise="lazy")
    u, v = vectors(2, 50)
    mu, mv = (kernel.times(w[None, :])[0][0] for w in (u, v))
    together = kernel.times((u + v)[None, :])[0][0]
    assert_close(together, mu + mv)
    assert_close(u @ mv, v @ mu)
    assert_close(kernel.times(np.stack([v, u]))[0], np.stack([mv, mu]))
    assert kernel.n_directions == 2
    assert kernel.n_answered == 4


@pytest.mark.parametrize("power", [500, -500])
def test_lazy_answers_scale(power):
    kernel = oracle(symmetric(9), noise="lazy")
    block = vectors(2, 9)
    assert_close(np.ldexp(kernel.times(np.ldexp(block, power))[0], -power), kernel.times(block)[0])
    assert kernel.n_directions == 2


@pytest.mark.parametrize("one_by_one", [False, True])
def test_all_directions_together_are_an_explicit_matrix(one_by_one):
    d = 25
    stream = core.NoiseStream(KEY)
    kernel = oracle(symmetric(d), noise="lazy", stream=stream)
    asked = vectors(d, d) + 3.0 * np.eye(d)
    answers = np.vstack([kernel.times(row[None, :])[0] for row in asked]) if one_by_one else kernel.times(asked)[0]
    matrix = np.linalg.solve(asked, answers)
    assert_close(matrix, matrix.T, 1e-11)
    assert kernel.n_directions == d
    drawn = d * 2 * 32  # a key for the deviates across a direction, and one for that along it
    block = vectors(7, d, 5)
    assert_close(kernel.times(block)[0], block @ matrix, 1e-11)
    assert kernel.n_directions == d
    assert stream.bytes(16) == reference.chacha20_stream(KEY, 0, drawn + 16)[drawn:]


def test_a_new_object_is_a_new_matrix():
    stream = core.NoiseStream(KEY)
    first, second = (oracle(symmetric(9), noise="lazy", stream=stream).times(vectors(1, 9))[0] for _ in range(2))
    assert np.all(np.abs(first - second) > 1e-6)


# --- nothing exact gets out ---

LARGE = 1000.0 * symmetric(30)
PAIR = orthonormal(2, 30)


def close_pair(distance):
    v, r = PAIR
    return np.stack([v, v + distance * r])


def revealed(answers, distance):
    """What two answers for nearly equal vectors say about the product with their difference."""
    return (answers[1] - answers[0]) / distance


def reveals(answers, distance):
    exact = PAIR[1] @ LARGE
    return np.linalg.norm(revealed(answers, distance) - exact) < 0.5 * np.linalg.norm(exact)


def test_a_dropped_remainder_is_not_answered_exactly():
    distance = 1e-11
    fresh = oracle(LARGE, noise="fresh", n_products=1).times(close_pair(distance))[0]
    kernel = oracle(LARGE, noise="lazy")
    lazy = [kernel.times(v[None, :])[0][0] for v in close_pair(distance)]
    assert not reveals(fresh, distance)
    assert not reveals(lazy, distance)
    assert kernel.n_directions == 1
    # Rounding is all that is left.
    assert np.linalg.norm(revealed(lazy, distance)) < 1e-2 * np.linalg.norm(LARGE)


def test_dropped_remainders_do_not_add_up():
    kernel = oracle(LARGE, noise="lazy")
    v, r = PAIR
    first = kernel.times(v[None, :])[0]
    for _ in range(20):
        again = kernel.times((v + 1e-11 * r)[None, :])[0]
    assert kernel.n_directions == 1
    assert_close(again, first)


def test_an_exact_product_with_the_remainder_is_seen():
    # Noise on span(Q) alone, as by "A v + noise" with a direction that was dropped.
    distance = 1e-11
    noise = oracle(np.zeros((30, 30)), noise="lazy")
    leaking = [v @ LARGE + noise.times(v[None, :])[0][0] for v in close_pair(distance)]
    assert reveals(leaking, distance)


@pytest.mark.statistical
def test_a_small_remainder_is_answered_with_all_its_noise():
    distance, small = 1e-9, symmetric(D)
    v, r = orthonormal(2, D)
    stream = core.NoiseStream(seeded_key(32))
    samples = []
    for _ in range(N_SAMPLES):
        kernel = oracle(small, noise="lazy", stream=stream)
        answers = [kernel.times(w[None, :])[0][0] for w in (v, v + distance * r)]
        samples.append(revealed(answers, distance) - r @ small)
    assert not rejects_covariance(np.array(samples), goe_covariance(r[None, :]))


# --- distribution ---


def goe_covariance(block, scale=SCALE):
    """Cov(Z v, Z w) = scale**2 / 2 ((v.w) I + w v') for the rows v, w of the block, rows of V Z end to end."""
    n_vectors, d = block.shape
    covariance = np.einsum("ij,ab->iajb", block @ block.T, np.eye(d)) + np.einsum("ja,ib->iajb", block, block)
    return scale**2 / 2 * covariance.reshape(n_vectors * d, n_vectors * d)


def iid_covariance(v, scale=SCALE):
    return scale**2 * (np.diag(v @ v - v**2) + np.outer(v, v))


def block_diagonal(*matrices):
    size = sum(len(matrix) for matrix in matrices)
    out, i = np.zeros((size, size)), 0
    for matrix in matrices:
        out[i : i + len(matrix), i : i + len(matrix)] = matrix
        i += len(matrix)
    return out


ZERO = np.zeros((D, D))


@cache
def fresh_samples(n_vectors, shape="goe", n_calls=1):
    """Products of noise alone, the calls of one sample end to end."""
    kernel = oracle(
        ZERO, noise="fresh", shape=shape, n_products=N_SAMPLES * n_calls, stream=core.NoiseStream(seeded_key(33))
    )
    block = BLOCK[:n_vectors]
    products = [kernel.times(block)[0] for _ in range(N_SAMPLES * n_calls)]
    return np.array(products).reshape(N_SAMPLES, -1)


@cache
def explicit_matrices(shape):
    draw = normals_from(core.NoiseStream(seeded_key(34)))
    n_deviates = D * (D + 1) // 2
    return np.array([reference.symmetric_noise(D, SCALE, shape, draw(n_deviates)) for _ in range(N_SAMPLES)])


def explicit_samples(block, shape="goe"):
    """The same of noise matrices that are formed."""
    return (block @ explicit_matrices(shape)).reshape(N_SAMPLES, -1)


def lazy_samples(ask, make, n_samples=N_SAMPLES):
    return np.array([np.concatenate([np.ravel(answer) for answer in ask(make())]) for _ in range(n_samples)])


def kernels(seed):
    """Makers of lazy matrices of noise alone: functions block -> product, each a new matrix."""
    stream = core.NoiseStream(seeded_key(seed))

    def make():
        kernel = oracle(ZERO, noise="lazy", stream=stream)
        return lambda block: kernel.times(block)[0]

    return make


def references(seed, lazy=reference.LazyNoise, change=lambda deviates: deviates):
    draw = draw_from(core.NoiseStream(seeded_key(seed)))

    def make():
        plain = reference_lazy(ZERO, lazy=lazy, draw=lambda scale, n: change(draw(scale, n)))
        return lambda block: plain.times(block)[0]

    return make


def one_by_one(times):
    return [times(v[None, :]) for v in BLOCK]


def adaptively(times):
    """The whole matrix, asked along a Krylov sequence first: every question depends on the answers before."""
    v = BLOCK[:1]
    for _ in range(3):
        v = times(v / np.linalg.norm(v))
    return [times(np.eye(D))]


def project(samples):
    """Each sample on a few fixed directions: what two-sample tests look at."""
    return samples @ np.random.default_rng(6).normal(size=(samples.shape[1], 6))


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize("n_vectors", [1, 2, 3])
def test_fresh_products_have_the_covariance_of_goe(n_vectors):
    samples = fresh_samples(n_vectors)
    covariance = goe_covariance(BLOCK[:n_vectors])
    assert not rejects_covariance(samples, covariance)
    assert not rejects_equal_distributions(project(samples), project(explicit_samples(BLOCK[:n_vectors])))


@pytest.mark.statistical
def test_explicit_matrices_have_the_covariance_of_the_closed_form():
    assert not rejects_covariance(explicit_samples(BLOCK), goe_covariance(BLOCK))
    assert not rejects_covariance(explicit_samples(BLOCK[:1], "iid"), iid_covariance(BLOCK[0]))


@pytest.mark.statistical
def test_fresh_iid_products_have_their_covariance():
    assert not rejects_covariance(fresh_samples(1, "iid"), iid_covariance(BLOCK[0]))


@pytest.mark.statistical
def test_fresh_calls_are_independent():
    covariance = goe_covariance(BLOCK[:2])
    assert not rejects_covariance(fresh_samples(2, n_calls=2), block_diagonal(covariance, covariance))


@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["fresh", "lazy"])
def test_the_noises_of_two_matrices_are_independent(noise):
    stream = core.NoiseStream(seeded_key(35))
    samples = []
    for _ in range(N_SAMPLES):
        kernel = oracle(ZERO, ZERO, noise=noise, scale_b=0.6, n_products=1, stream=stream)
        samples.append(np.concatenate([product.ravel() for product in kernel.times(BLOCK[:2])]))
    covariance = block_diagonal(goe_covariance(BLOCK[:2]), goe_covariance(BLOCK[:2], 0.6))
    assert not rejects_covariance(np.array(samples), covariance)


@pytest.mark.statistical
def test_lazy_answers_have_the_covariance_of_one_goe_matrix():
    samples = lazy_samples(one_by_one, kernels(36))
    assert not rejects_covariance(samples, goe_covariance(BLOCK))
    assert not rejects_equal_distributions(project(samples), project(explicit_samples(BLOCK)))


@pytest.mark.statistical
@pytest.mark.parametrize("ask", [lambda times: [times(BLOCK)], lambda times: [times(BLOCK[:1]), times(BLOCK[1:])]])
def test_lazy_blocks_have_the_covariance_of_one_goe_matrix(ask):
    assert not rejects_covariance(lazy_samples(ask, kernels(37)), goe_covariance(BLOCK))


@pytest.mark.statistical
def test_the_matrix_that_adaptive_questions_bring_out_is_goe():
    samples = lazy_samples(adaptively, kernels(38))
    assert not rejects_covariance(samples, goe_covariance(np.eye(D)))
    matrices = samples.reshape(-1, D, D)
    np.testing.assert_allclose(matrices, matrices.transpose(0, 2, 1), atol=1e-10)
    deviations = reference.symmetric_noise(D, SCALE, "goe", np.ones(D * (D + 1) // 2))
    assert not rejects_normality(np.array([reference.pack(matrix / deviations) for matrix in matrices]))


# --- negative controls: what the tests above must reject ---


class RedrawnNoise(reference.LazyNoise):
    """Draws the component on the span of earlier directions again."""

    def _answer(self, matrix, q, grid):
        g, h = self._draw(grid.off_diagonal, q.size), self._draw(grid.off_diagonal, 1)
        return matrix.product(q[None, :])[0] + grid.unit * (g + h * q)


class HalfNoise(reference.LazyNoise):
    """Gives the component along q the variance of the others."""

    def _answer(self, matrix, q, grid):
        answer = super()._answer(matrix, q, grid)
        along = q @ matrix.product(q[None, :])[0]
        return answer + q * (1.0 / np.sqrt(2.0) - 1.0) * (q @ answer - along)


def without_h(deviates):
    return deviates if len(deviates) > 1 else 0 * deviates


@pytest.mark.statistical
def test_the_reference_passes_what_the_controls_fail():
    assert not rejects_covariance(lazy_samples(one_by_one, references(39), FEW_SAMPLES), goe_covariance(BLOCK))


@pytest.mark.one_in(2)
@pytest.mark.statistical
@pytest.mark.parametrize(
    "make",
    [references(40, change=without_h), references(41, lazy=RedrawnNoise), references(42, lazy=HalfNoise)],
    ids=["no h", "redrawn", "half"],
)
def test_other_lazy_noise_is_seen(make):
    assert rejects_covariance(lazy_samples(one_by_one, make, FEW_SAMPLES), goe_covariance(BLOCK))


@pytest.mark.statistical
def test_noise_that_is_drawn_again_is_seen_in_adaptive_questions():
    samples = lazy_samples(adaptively, references(43, lazy=RedrawnNoise), FEW_SAMPLES)
    assert rejects_covariance(samples, goe_covariance(np.eye(D)))


@pytest.mark.statistical
def test_noise_that_is_never_drawn_again_is_seen():
    samples = lazy_samples(lambda times: [times(BLOCK[:2]), times(BLOCK[:2])], kernels(44))
    covariance = goe_covariance(BLOCK[:2])
    assert rejects_covariance(samples, block_diagonal(covariance, covariance))


@pytest.mark.statistical
def test_fresh_noise_for_one_matrix_is_seen():
    calls = fresh_samples(1, n_calls=2)
    assert rejects_covariance(calls, goe_covariance(BLOCK[[0, 0]]))


@pytest.mark.statistical
def test_rows_treated_one_by_one_are_seen():
    kernel = oracle(ZERO, noise="fresh", n_products=3 * N_SAMPLES, stream=core.NoiseStream(seeded_key(45)))
    samples = [np.concatenate([kernel.times(v[None, :])[0][0] for v in BLOCK]) for _ in range(N_SAMPLES)]
    assert rejects_covariance(np.array(samples), goe_covariance(BLOCK))


@pytest.mark.statistical
def test_one_shape_taken_for_the_other_is_seen():
    assert rejects_covariance(fresh_samples(1), iid_covariance(BLOCK[0]))
    assert rejects_covariance(fresh_samples(1, "iid"), goe_covariance(BLOCK[:1]))


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [pytest.param(0.97, marks=pytest.mark.deep), 1.03])
def test_three_percent_are_seen(factor):
    assert rejects_covariance(fresh_samples(3), goe_covariance(BLOCK, factor * SCALE))
    assert rejects_covariance(lazy_samples(one_by_one, kernels(46)), goe_covariance(BLOCK, factor * SCALE))


# --- contract ---


def test_more_products_than_were_paid_are_refused():
    kernel = oracle(symmetric(5), noise="fresh", n_products=2)
    for _ in range(2):
        kernel.times(vectors(1, 5))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="2"):
            kernel.times(vectors(1, 5))
    assert kernel.n_answered == 2


def test_fresh_products_are_not_free_by_default():
    with pytest.raises(RuntimeError):
        oracle(symmetric(5), noise="fresh").times(vectors(1, 5))


def test_several_directions_of_iid_noise_are_refused():
    with pytest.raises(ValueError, match="goe"):
        oracle(symmetric(5), noise="fresh", shape="iid", n_products=1).times(vectors(2, 5))


def test_rows_of_zeros_are_answered_by_zeros_and_draw_nothing():
    stream = core.NoiseStream(KEY)
    for noise in ("fresh", "lazy"):
        kernel = oracle(symmetric(5), noise=noise, n_products=1, stream=stream)
        np.testing.assert_array_equal(kernel.times(np.zeros((2, 5)))[0], 0.0)
        assert kernel.n_answered == 1
        assert kernel.n_directions == 0
    assert stream.bytes(16) == core.NoiseStream(KEY).bytes(16)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("noise", ["none", "fresh", "lazy"])
def test_a_block_that_is_not_finite_is_refused_and_forgotten(noise, bad):
    kernel = oracle(symmetric(5), noise=noise, n_products=1)
    block = vectors(2, 5)
    block[1, 3] = bad
    with pytest.raises(ValueError, match="finite"):
        kernel.times(block)
    assert kernel.n_answered == 0
    expected = oracle(symmetric(5), noise=noise, n_products=1).times(vectors(2, 5))[0]
    np.testing.assert_array_equal(kernel.times(vectors(2, 5))[0], expected)


WRONG = {
    "unknown noise": ({"noise": "stale"}, "none.*fresh.*lazy"),
    "unknown shape": ({"noise": "fresh", "shape": "wigner"}, r"goe.*iid"),
    "lazy iid": ({"noise": "lazy", "shape": "iid"}, "goe"),
    "negative scale": ({"noise": "fresh", "scale": -1.0}, "scale"),
    "scale nan": ({"noise": "lazy", "scale": np.nan}, "scale"),
    "infinite scale of B": ({"noise": "lazy", "scale_b": np.inf}, "scale"),
    "negative number of products": ({"noise": "fresh", "n_products": -1}, "n_products"),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_noise_is_refused(name):
    arguments, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        oracle(symmetric(5), symmetric(5, 1), **arguments)


@pytest.mark.parametrize("noise", ["fresh", "lazy"])
def test_noise_needs_a_stream(noise):
    with pytest.raises((TypeError, ValueError), match="stream"):
        core.PairOracle.of_matrices(core.SymmetricMatrices(symmetric(5)), core.Noise(noise, [1.0], n_products=1))


@pytest.mark.parametrize("scales", [[], [1.0, 0.0]])
def test_every_matrix_has_its_scale(scales):
    noise = core.Noise("lazy", scales, stream=core.NoiseStream(KEY))
    with pytest.raises(ValueError, match="scale"):
        core.PairOracle.of_matrices(core.SymmetricMatrices(symmetric(5)), noise)


@pytest.mark.parametrize("block", [np.ones(5), np.ones((2, 4)), np.ones((2, 5), dtype=np.float32)])
def test_other_blocks_are_refused(block):
    with pytest.raises((TypeError, ValueError)):
        oracle(symmetric(5), noise="lazy").times(block)


def test_threads_may_share_an_oracle():
    d, n_threads, n_calls = 60, 4, 25
    kernel = oracle(symmetric(d), noise="lazy")
    answers = [[] for _ in range(n_threads)]

    def ask(i):
        for call in range(n_calls):
            block = vectors(2, d, 100 * i + call)
            answers[i].append((block, kernel.times(block)[0]))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kernel.n_answered == n_threads * n_calls
    assert kernel.n_directions == d
    matrix = kernel.times(np.eye(d))[0]
    for block, product in (pair for one in answers for pair in one):
        assert_close(product, block @ matrix, 1e-9)
