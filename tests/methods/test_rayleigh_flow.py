"""The Rayleigh flow: against the plain loop, every model in every storage, and against SciPy's eigenvectors."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time

import flow_problems
import numpy as np
import pytest
import reference
from flow_problems import FORMS, STORAGES, D, draw_from, kernel_oracle, problem, reference_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh
from statistics_helpers import seeded_key
from variants import kernels

from dpgep import _dispatch
from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KEY = seeded_key(61)
SCALE = 0.05
# Iterations that are compared entry by entry. As the flow converges, what is new of a vector shrinks, and with it the
# digits of its direction; the lazy noise that is drawn for the direction is then another, though of the same law.
N_ITERATIONS = {"none": 25, "fresh": 25, "lazy": 7}
NOISES = list(N_ITERATIONS)
TRUNCATIONS = {
    "whole": {},
    "one support": {"sparsity": 7},
    "separate supports": {"sparsity": 5, "separate_supports": True},
}


def start(n_vectors, d=D, seed=0):
    return np.random.default_rng([7, seed, n_vectors, d]).normal(size=(n_vectors, d))


def symmetric(d, seed=0, dtype=np.float64):
    matrix = np.random.default_rng([8, seed, d]).normal(size=(d, d))
    return (matrix + matrix.T).astype(dtype)


def definite(d, seed=0, dtype=np.float64):
    rows = np.random.default_rng([9, seed, d]).normal(size=(3 * d, d))
    # Of float32 entries, products are symmetric all the same.
    matrix = (rows.T @ rows / (3 * d)).astype(dtype)
    return np.triu(matrix) + np.triu(matrix, 1).T


def of_matrices(a, b=None, **arguments):
    noise = core.Noise(arguments.pop("noise", "none"), arguments.pop("scales", []), **arguments)
    return core.PairOracle.of_matrices(core.SymmetricMatrices(a, b), noise)


def plain_pair(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return lambda block: (block @ a, block @ b)


# The last bit of a sum may lie on the other side of a line of the grid in the plain reference.
ON_GRID = 1e-7


def assert_same_flow(kernel, plain, relative=1e-12):
    vectors, quotients, n_done, converged = kernel
    assert (n_done, converged) == (plain.n_done, plain.converged)
    assert quotients.shape == plain.quotients.shape
    atol = relative * np.max(np.abs(plain.quotients), initial=1e-300)
    np.testing.assert_allclose(quotients, plain.quotients, rtol=relative, atol=atol)
    np.testing.assert_allclose(vectors, plain.vectors, rtol=0.0, atol=relative)
    np.testing.assert_array_equal(vectors == 0.0, plain.vectors == 0.0)


# --- against the plain loop ---


def one_of_each_pair():
    """(form, storage, noise, truncation, number of vectors): all of the first three, the others with each of these."""
    for (i, form), (j, storage), (k, noise) in itertools.product(*map(enumerate, (FORMS, STORAGES, NOISES))):
        yield form, storage, noise, list(TRUNCATIONS)[(i + j + k) % 3], (1, 3)[(i + i // 3 + j + k) % 2]


@pytest.mark.parametrize(("form", "storage", "noise", "truncation", "n_vectors"), list(one_of_each_pair()))
def test_flow_agrees_with_the_plain_loop(form, storage, noise, truncation, n_vectors):
    given, arguments = problem(form, storage), {"shift": 0.2, "ridge": 0.01, **TRUNCATIONS[truncation]}
    n_iterations = N_ITERATIONS[noise]
    kernel = kernel_oracle(given, storage, noise, SCALE, KEY, n_products=n_iterations)
    plain = reference_oracle(given, noise, SCALE, KEY)
    first = start(n_vectors)
    before = first.copy()
    flow = core.rayleigh_flow(kernel, first, n_iterations, 0.1, **arguments)
    expected = reference.rayleigh_flow(plain, first, n_iterations, 0.1, **arguments)
    assert_same_flow(flow, expected, 1e-12 if noise == "none" else ON_GRID)
    np.testing.assert_array_equal(first, before)
    assert kernel.n_answered == n_iterations


@pytest.mark.parametrize("form", ["pca", "fda", "sir"])
def test_flow_with_iid_noise_agrees_with_the_plain_loop(form):
    given = problem(form)
    kernel = kernel_oracle(given, noise="fresh", scale=SCALE, key=KEY, shape="iid", n_products=25)
    plain = reference_oracle(given, "fresh", SCALE, KEY, "iid")
    flow = core.rayleigh_flow(kernel, start(1), 25, 0.1)
    assert_same_flow(flow, reference.rayleigh_flow(plain, start(1), 25, 0.1), ON_GRID)


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_float32_lead_near_those_of_float64(form):
    given = problem(form)
    flows = [core.rayleigh_flow(kernel_oracle(given, s), start(1), 25, 0.1) for s in ("float64", "float32")]
    np.testing.assert_allclose(flows[1][0], flows[0][0], atol=1e-5)
    np.testing.assert_allclose(flows[1][1], flows[0][1], rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("truncation", TRUNCATIONS)
@given(d=st.integers(7, 60), n_vectors=st.integers(1, 4), noise=st.sampled_from(NOISES), sizes=st.integers(0, 99))
@settings(deadline=None, derandomize=True, max_examples=40)
def test_flow_of_matrices_agrees_with_the_plain_loop(truncation, dtype, d, n_vectors, noise, sizes):
    a, b = symmetric(d, sizes, dtype), definite(d, sizes, dtype)
    scales = [0.05, 0.01]
    kernel = of_matrices(a, b, noise=noise, n_products=9, scales=scales, stream=core.NoiseStream(KEY))
    plain = reference_pair(a, b, noise, *scales)
    first = start(n_vectors, d, sizes)
    flow = core.rayleigh_flow(kernel, first, 9, 0.1, **TRUNCATIONS[truncation])
    assert_same_flow(flow, reference.rayleigh_flow(plain, first, 9, 0.1, **TRUNCATIONS[truncation]), ON_GRID)


def reference_pair(a, b, noise, scale_a, scale_b, shape="goe"):
    a, b = a.astype(np.float64), b.astype(np.float64)
    draw = draw_from(core.NoiseStream(KEY))
    pair = [(lambda block: block @ a, scale_a), (lambda block: block @ b, scale_b)]
    lazy = reference.LazyNoise(pair, len(a), draw)

    def times(block):
        if noise == "none":
            return block @ a, block @ b
        if noise == "lazy":
            return tuple(lazy.times(block))
        if shape == "goe":
            return tuple(reference.LazyNoise(pair, len(a), draw).times(block))
        return tuple(
            reference.fresh_product(lambda rows, m=matrix: rows @ m, block, scale, shape, draw)
            for matrix, scale in ((a, scale_a), (b, scale_b))
        )

    return times


@pytest.mark.parametrize("noise", ["none", "fresh"])
def test_a_sparse_flow_in_many_features_agrees_with_the_plain_loop(noise):
    # After the first step the vectors have few enough entries for the products to touch those columns alone.
    d, first = 300, np.zeros((1, 300))
    first[0, ::20] = start(1, 15)
    a, b, scales = symmetric(d), definite(d), [0.05, 0.01]
    kernel = of_matrices(a, b, noise=noise, n_products=20, scales=scales, stream=core.NoiseStream(KEY))
    flow = core.rayleigh_flow(kernel, first, 20, 0.05, sparsity=15)
    plain = reference.rayleigh_flow(reference_pair(a, b, noise, *scales), first, 20, 0.05, sparsity=15)
    assert_same_flow(flow, plain, ON_GRID)
    assert np.count_nonzero(flow[0]) == 15


def test_shared_and_separate_supports():
    shared = core.rayleigh_flow(kernel_oracle(problem("fda")), start(3), 10, 0.1, sparsity=5)[0]
    own = core.rayleigh_flow(kernel_oracle(problem("fda")), start(3), 10, 0.1, sparsity=5, separate_supports=True)[0]
    assert np.count_nonzero(np.any(shared != 0.0, axis=0)) == 5
    np.testing.assert_array_equal(np.count_nonzero(own, axis=1), 5)
    assert np.count_nonzero(np.any(own != 0.0, axis=0)) > 5


def test_one_vector_follows_the_algorithm_of_the_paper():
    # Hu et al., Algorithms 1 and 3, step by step; truncation and both normalizations in their order.
    a, b, step_size, sparsity = definite(20), definite(20, 1), 0.1, 6
    for k in (0, sparsity):
        v = start(1, 20)[0]
        v /= np.linalg.norm(v)
        for _ in range(12):
            rho = (v @ a @ v) / (v @ b @ v)
            v = v + step_size / rho * (a @ v - rho * (b @ v))
            v /= np.linalg.norm(v)
            if k:
                v[np.argsort(-np.abs(v))[k:]] = 0.0
                v /= np.linalg.norm(v)
        flow = core.rayleigh_flow(of_matrices(a, b), start(1, 20), 12, step_size, sparsity=k)
        np.testing.assert_allclose(flow[0][0], v, rtol=0.0, atol=1e-12)
        assert flow[1][-1, 0] == pytest.approx(rho, rel=1e-12)


@pytest.mark.parametrize("n_vectors", [1, 2])
def test_negative_quotients_ascend_too(n_vectors):
    a = -definite(10)
    kernel, first = of_matrices(a, definite(10, 1)), start(n_vectors, 10)
    flow = core.rayleigh_flow(kernel, first, 30, 0.05)
    assert_same_flow(flow, reference.rayleigh_flow(plain_pair(a, definite(10, 1)), first, 30, 0.05), 1e-11)
    assert np.all(np.diff(flow[1].sum(axis=1)) > 0.0)


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_a_b_that_is_not_positive_leaves_vectors_finite(n_vectors):
    a, first = symmetric(10), start(n_vectors, 10)
    for b in (-np.eye(10), np.zeros((10, 10)), symmetric(10, 3)):
        vectors, _, _, _ = core.rayleigh_flow(of_matrices(a, b), first, 5, 0.1)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-12)


def test_a_negative_vbv_takes_its_modulus():
    a, b = definite(10), -definite(10, 1)
    flow = core.rayleigh_flow(of_matrices(a, b), start(1, 10), 10, 0.1)
    assert_same_flow(flow, reference.rayleigh_flow(plain_pair(a, b), start(1, 10), 10, 0.1))
    assert np.all(flow[1] > 0.0)


# --- against the solutions themselves ---


def solutions(a, b, n_vectors):
    values, vectors = eigh(a, b)
    return values[::-1][:n_vectors], (vectors / np.linalg.norm(vectors, axis=0)).T[::-1][:n_vectors]


def assert_solves(vectors, expected, atol):
    assert np.max(1.0 - np.abs(np.einsum("ij,ij->i", vectors, expected))) < atol
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-14)


def shift_for(form, values):
    """Against the eigenvalues -lambda that partial least squares has besides lambda, ``values`` the leading ones."""
    return values[0] if form == "pls" else 0.0


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("n_vectors", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_without_noise_the_flow_finds_the_generalized_eigenvectors(form, n_vectors, storage):
    given = problem(form, storage)
    a, b = given.matrices()
    values, expected = solutions(a, b, n_vectors)
    step_size, shift = 1.0 / np.linalg.eigvalsh(b)[-1], shift_for(form, values)
    flow = core.rayleigh_flow(
        kernel_oracle(given, storage), start(n_vectors), 20_000, step_size, shift=shift, tolerance=1e-12
    )
    assert flow[3] is True
    np.testing.assert_allclose(flow[1][-1], values, rtol=1e-9)
    assert_solves(flow[0], expected, 1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_a_ridge_is_added_to_b(form):
    given = problem(form)
    a, b = given.matrices()
    ridge = 0.3
    values, expected = solutions(a, b + ridge * np.eye(D), 2)
    step_size = 1.0 / (np.linalg.eigvalsh(b)[-1] + ridge)
    flow = core.rayleigh_flow(
        kernel_oracle(given), start(2), 20_000, step_size, shift=shift_for(form, values), ridge=ridge, tolerance=1e-12
    )
    np.testing.assert_allclose(flow[1][-1], values, rtol=1e-9)
    assert_solves(flow[0], expected, 1e-12)


SPECTRA = {"apart": np.linspace(-1.0, 2.0, 50), "multiple": np.arange(50) // 20.0, "graded": 0.5 ** np.arange(50)}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("n_vectors", [2, 40])
def test_quotients_are_the_eigenvalues_of_the_pair_in_the_span(n_vectors, spectrum):
    axes = np.linalg.qr(start(50, 50))[0]
    a, b, first = (axes * SPECTRA[spectrum]) @ axes.T, definite(50), start(n_vectors, 50)
    a = (a + a.T) / 2
    vectors, quotients, _, _ = core.rayleigh_flow(of_matrices(a, b), first, 1, 1e-300, shift=2.0)
    expected = eigh(first @ a @ first.T, first @ b @ first.T, eigvals_only=True)[::-1]
    np.testing.assert_allclose(quotients[0], expected, rtol=0.0, atol=1e-11 * np.abs(expected).max())
    # A step of no size leaves the Ritz vectors but for their lengths: conjugate, the span whole.
    gram = vectors @ b @ vectors.T
    np.testing.assert_allclose(gram, np.diag(np.diag(gram)), rtol=0.0, atol=1e-11 * np.diag(gram).max())


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_with_lazy_noise_the_flow_finds_the_eigenvectors_of_the_noisy_pair(n_vectors):
    kernel = kernel_oracle(problem("fda"), noise="lazy", scale=SCALE, key=KEY)
    a, b = kernel.times(np.eye(D))
    b = b + np.eye(D)
    values, expected = solutions((a + a.T) / 2, (b + b.T) / 2, n_vectors)
    step_size = 1.0 / np.linalg.eigvalsh(b)[-1]
    flow = core.rayleigh_flow(kernel, start(n_vectors), 20_000, step_size, ridge=1.0, tolerance=1e-12)
    np.testing.assert_allclose(flow[1][-1], values, rtol=1e-9)
    assert_solves(flow[0], expected, 1e-12)
    assert kernel.n_directions == D


def test_a_shift_changes_the_way_and_not_the_end():
    given = problem("pca")
    values, expected = solutions(*given.matrices(), 1)
    plain, shifted = (
        core.rayleigh_flow(kernel_oracle(given), start(1), 20_000, 1.0, shift=shift, tolerance=1e-12)
        for shift in (0.0, values[0])
    )
    assert_solves(plain[0], expected, 1e-12)
    assert_solves(shifted[0], expected, 1e-12)
    assert plain[2] < shifted[2]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", FORMS)
def test_blocks_and_deflation_agree(form):
    given = problem(form)
    a, b = given.matrices()
    step_size, shift = 1.0 / np.linalg.eigvalsh(b)[-1], shift_for(form, solutions(a, b, 1)[0])
    block = core.rayleigh_flow(kernel_oracle(given), start(3), 20_000, step_size, shift=shift, tolerance=1e-12)
    one_by_one, quotients = reference.deflated_flow(plain_pair(a, b), start(3), 1500, step_size, shift=shift)
    np.testing.assert_allclose(block[1][-1], quotients, rtol=1e-8)
    assert_solves(block[0], one_by_one, 1e-10)


def test_a_block_stays_a_block():
    # Without the Rayleigh-Ritz step, all three would run to the first eigenvector.
    vectors = core.rayleigh_flow(kernel_oracle(problem("pca")), start(3), 3000, 1.0)[0]
    assert np.linalg.svd(vectors, compute_uv=False)[-1] > 0.9


# --- stopping ---


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_the_tolerance_stops_the_flow_where_the_plain_loop_stops(n_vectors):
    given = problem("fda")
    arguments = {"shift": 0.1, "tolerance": 1e-3}
    flow = core.rayleigh_flow(kernel_oracle(given), start(n_vectors), 2000, 0.1, **arguments)
    assert flow[3] is True
    assert 1 < flow[2] < 2000
    assert_same_flow(flow, reference.rayleigh_flow(reference_oracle(given), start(n_vectors), 2000, 0.1, **arguments))


def test_no_tolerance_no_stop():
    _, quotients, n_done, converged = core.rayleigh_flow(of_matrices(np.eye(4)), start(2, 4), 7, 1.0)
    assert (n_done, converged, quotients.shape) == (7, False, (7, 2))


@pytest.mark.parametrize("n_vectors", [1, 2])
def test_a_vector_of_zeros_stops_the_flow(n_vectors):
    first = start(n_vectors, 5)
    vectors, quotients, n_done, converged = core.rayleigh_flow(of_matrices(np.zeros((5, 5))), first, 7, 1.0)
    assert (n_done, converged, quotients.shape) == (0, False, (0, n_vectors))
    np.testing.assert_allclose(vectors, first / np.linalg.norm(first, axis=1, keepdims=True), rtol=1e-14)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("n_vectors", [1, 2])
def test_products_that_are_not_finite_stop_the_flow(n_vectors, bad):
    a = np.full((5, 5), bad)
    vectors, _, n_done, converged = core.rayleigh_flow(of_matrices(a), start(n_vectors, 5), 7, 1.0)
    assert (n_done, converged) == (0, False)
    assert np.all(np.isfinite(vectors))


def test_more_iterations_than_were_paid_are_refused():
    kernel = of_matrices(symmetric(5), noise="fresh", scales=[1.0], n_products=3, stream=core.NoiseStream(KEY))
    with pytest.raises(RuntimeError, match="3"):
        core.rayleigh_flow(kernel, start(1, 5), 4, 0.1)
    assert kernel.n_answered <= 3


# A shell's background jobs, and what they start, ignore SIGINT unless told otherwise.
INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
from dpgep._dispatch import core
kernel = core.PairOracle.of_matrices(core.SymmetricMatrices(np.eye(50)), core.Noise("none"))
print("running", flush=True)
core.rayleigh_flow(kernel, np.ones((1, 50)), 2**40, 1.0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_interrupts():
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "running"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        try:
            _, error = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("not interrupted in 20 s")
    assert "KeyboardInterrupt" in error


# --- the same on every machine ---


@pytest.mark.one_in(3)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("storage", ["float64", "csr int64 float32"])
@pytest.mark.parametrize("n_vectors", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_threads_change_no_bit(form, n_vectors, storage, noise):
    flows = []
    for n_threads in (1, 2, 3):
        kernel = kernel_oracle(problem(form, storage), storage, noise, SCALE, KEY, n_threads, n_products=12)
        flows.append(core.rayleigh_flow(kernel, start(n_vectors), 12, 0.1, sparsity=8))
    for flow in flows[1:]:
        np.testing.assert_array_equal(flow[0], flows[0][0])
        np.testing.assert_array_equal(flow[1], flows[0][1])


@pytest.mark.parametrize("n_vectors", [1, 3])
def test_threads_change_no_bit_with_matrices(n_vectors):
    a, b = symmetric(700), definite(700)
    flows = [
        core.rayleigh_flow(
            core.PairOracle.of_matrices(core.SymmetricMatrices(a, b, n_threads), core.Noise("none")),
            start(n_vectors, 700),
            4,
            0.1,
        )
        for n_threads in (1, 2, 3)
    ]
    for flow in flows[1:]:
        np.testing.assert_array_equal(flow[0], flows[0][0])
        np.testing.assert_array_equal(flow[1], flows[0][1])


def flows_of(kernels):
    """All values of the flows of every form, storage and noise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flow_problems, "core", kernels)
        flows = []
        for form, storage, noise in itertools.product(FORMS, STORAGES, ("none", "fresh", "lazy")):
            for n_vectors in (1, 3):
                kernel = kernel_oracle(problem(form, storage), storage, noise, 0.05, bytes(32), n_products=6)
                start = np.random.default_rng(1).normal(size=(n_vectors, kernel.n_features))
                vectors, quotients, _, _ = kernels.rayleigh_flow(kernel, start, 6, 0.1, sparsity=8)
                flows += [vectors.ravel(), quotients.ravel()]
    return np.concatenate(flows)


@pytest.mark.parametrize("variant", _dispatch.available_variants()[1:])
def test_variants_agree(variant):
    np.testing.assert_array_equal(flows_of(kernels()[variant]), flows_of(kernels()["baseline"]))


# --- contract ---

WRONG_ARGUMENTS = {
    "no iteration": ({"n_iterations": 0}, "n_iterations"),
    "step size zero": ({"step_size": 0.0}, "step_size"),
    "negative step size": ({"step_size": -1.0}, "step_size"),
    "infinite step size": ({"step_size": np.inf}, "step_size"),
    "step size nan": ({"step_size": np.nan}, "step_size"),
    "negative shift": ({"shift": -1.0}, "shift"),
    "shift nan": ({"shift": np.nan}, "shift"),
    "negative ridge": ({"ridge": -1.0}, "ridge"),
    "ridge nan": ({"ridge": np.nan}, "ridge"),
    "negative sparsity": ({"sparsity": -1}, "sparsity"),
    "sparsity above d": ({"sparsity": 6}, "sparsity"),
    "negative tolerance": ({"tolerance": -1.0}, "tolerance"),
    "tolerance nan": ({"tolerance": np.nan}, "tolerance"),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_arguments_out_of_range_are_refused(name):
    arguments, message = WRONG_ARGUMENTS[name]
    named = {"n_iterations": 3, "step_size": 0.1, **arguments}
    kernel = of_matrices(symmetric(5))
    with pytest.raises(ValueError, match=message):
        core.rayleigh_flow(kernel, start(1, 5), named.pop("n_iterations"), named.pop("step_size"), **named)
    assert kernel.n_answered == 0


WRONG_STARTS = {
    "one axis": np.ones(5),
    "no row": np.ones((0, 5)),
    "too narrow": np.ones((1, 4)),
    "more rows than features": np.ones((6, 5)),
    "float32": np.ones((1, 5), dtype=np.float32),
    "column-major": np.asfortranarray(np.ones((3, 5))),
    "a row of zeros": np.array([[1.0, 0.0, 0.0, 0.0, 0.0], [0.0] * 5]),
    "nan": np.array([[1.0, np.nan, 0.0, 0.0, 0.0]]),
    "infinite": np.array([[1.0, np.inf, 0.0, 0.0, 0.0]]),
}


@pytest.mark.parametrize("name", WRONG_STARTS)
def test_other_starts_are_refused(name):
    kernel = of_matrices(symmetric(5))
    with pytest.raises((TypeError, ValueError)):
        core.rayleigh_flow(kernel, WRONG_STARTS[name], 3, 0.1)
    assert kernel.n_answered == 0


def test_other_oracles_are_refused():
    with pytest.raises(TypeError):
        core.rayleigh_flow(core.SymmetricMatrices(symmetric(5)), start(1, 5), 3, 0.1)
