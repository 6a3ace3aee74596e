"""Products with A and B made of the second moment of rows, noise included: every model in every storage."""

from __future__ import annotations

import numpy as np
import pytest
from flow_problems import FORMS, OF_VIEWS, STORAGES, D, kernel_oracle, kernel_rows, problem, reference_oracle
from statistics_helpers import seeded_key

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KEY = seeded_key(51)
SCALE = 0.05
NOISES = ["none", "fresh", "lazy"]


def vectors(n_vectors, seed=0):
    return np.random.default_rng([3, seed, n_vectors]).normal(size=(n_vectors, D))


# The last bit of a sum may lie on the other side of a line of the grid in the plain reference.
ON_GRID = 1e-8


def assert_close(product, expected, relative=1e-12):
    np.testing.assert_allclose(product, expected, rtol=0.0, atol=relative * np.max(np.abs(expected), initial=1e-300))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("form", FORMS)
def test_pairs_agree_with_the_reference(form, noise, storage):
    given = problem(form, storage)
    for n_vectors in (1, 3):
        kernel = kernel_oracle(given, storage, noise, SCALE, KEY, n_products=3)
        plain = reference_oracle(given, noise, SCALE, KEY)
        assert (kernel.n_features, kernel.noise) == (D, noise)
        for call in range(3):
            block = vectors(n_vectors, call)
            before = block.copy()
            for product, expected in zip(kernel.times(block), plain(block), strict=True):
                assert_close(product, expected, 1e-12 if noise == "none" else ON_GRID)
            np.testing.assert_array_equal(block, before)
        assert kernel.n_answered == 3


@pytest.mark.parametrize("form", [form for form in FORMS if form not in OF_VIEWS])
def test_iid_noise_agrees_with_the_reference(form):
    given = problem(form)
    kernel = kernel_oracle(given, noise="fresh", scale=SCALE, key=KEY, shape="iid", n_products=2)
    plain = reference_oracle(given, "fresh", SCALE, KEY, "iid")
    for call in range(2):
        for product, expected in zip(kernel.times(vectors(1, call)), plain(vectors(1, call)), strict=True):
            assert_close(product, expected, ON_GRID)


def test_iid_noise_cannot_serve_two_views():
    with pytest.raises(ValueError, match="goe"):
        kernel_oracle(problem("cca"), noise="fresh", scale=SCALE, key=KEY, shape="iid", n_products=1).times(vectors(1))


@pytest.mark.parametrize("noise", ["none", "lazy"])
@pytest.mark.parametrize("form", FORMS)
def test_both_matrices_are_symmetric(form, noise):
    kernel = kernel_oracle(problem(form), noise=noise, scale=SCALE, key=KEY)
    for matrix in kernel.times(np.eye(D)):
        assert_close(matrix, matrix.T)


@pytest.mark.parametrize("form", ["cca", "three views"])
def test_views_share_one_noisy_moment(form):
    # A and B are the blocks of one matrix C, so that A + B is C itself.
    given = problem(form)
    a, b = kernel_oracle(given, noise="lazy", scale=SCALE, key=KEY).times(np.eye(D))
    view_of = np.repeat(np.arange(len(given.view_sizes)), given.view_sizes)
    same = view_of[:, None] == view_of
    np.testing.assert_array_equal(a[same], 0.0)
    np.testing.assert_array_equal(b[~same], 0.0)
    one_view = kernel_oracle(problem("pca"), noise="lazy", scale=SCALE, key=KEY).times(np.eye(D))[0]
    assert_close(a + b, one_view)


@pytest.mark.parametrize("form", FORMS)
def test_one_call_is_one_paid_product(form):
    kernel = kernel_oracle(problem(form), noise="fresh", scale=SCALE, key=KEY, n_products=2)
    kernel.times(vectors(3))
    kernel.times(vectors(1))
    assert kernel.n_answered == 2
    with pytest.raises(RuntimeError, match="2"):
        kernel.times(vectors(1))


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("storage", ["float64", "csr int32"])
@pytest.mark.parametrize("form", FORMS)
def test_threads_change_no_bit(form, storage, noise):
    answers = []
    for n_threads in (1, 2, 3):
        kernel = kernel_oracle(problem(form), storage, noise, SCALE, KEY, n_threads, n_products=2)
        answers.append([kernel.times(vectors(3, call)) for call in range(2)])
    np.testing.assert_array_equal(answers[1], answers[0])
    np.testing.assert_array_equal(answers[2], answers[0])


@pytest.mark.parametrize("form", ["pca", "fda"])
def test_the_rows_are_kept_alive(form):
    given = problem(form)
    kernel = kernel_oracle(given)
    garbage = [np.full(given.rows.shape, np.nan) for _ in range(50)]
    assert_close(kernel.times(vectors(2))[0], reference_oracle(given)(vectors(2))[0])
    del garbage


# --- contract ---

FACTORS = np.ones((2, D))
WEIGHTS = np.ones(2)


def part(weights=WEIGHTS, share=1.0, blocks="whole"):
    return core.PencilPart(weights, share, blocks)


def of_rows(noise="none", scale=0.0, factors=FACTORS, a=None, b=None, **arguments):
    rows = kernel_rows(problem("pca"))
    noise = core.Noise(noise, [scale], stream=arguments.pop("stream", None))
    return core.PairOracle.of_rows(rows, noise, factors, a or part(), b or part(), **arguments)


WRONG = {
    "factors too narrow": ({"factors": np.ones((2, D - 1))}, "factors"),
    "factors of one axis": ({"factors": np.ones(D)}, "factors"),
    "factors of float32": ({"factors": np.ones((2, D), dtype=np.float32)}, "factors"),
    "too few weights of A": ({"a": part(np.ones(1))}, r"a\.weights"),
    "too many weights of B": ({"b": part(np.ones(3))}, r"b\.weights"),
    "an infinite weight": ({"a": part(np.array([1.0, np.inf]))}, r"a\.weights must be finite"),
    "a share that is no number": ({"b": part(share=np.nan)}, r"b\.share must be finite"),
    "blocks of one view": ({"a": part(blocks="between")}, "view_sizes is empty"),
    "one view's size": ({"view_sizes": [D]}, "two views or more"),
    "views past the end": ({"view_sizes": [D, 1]}, "view_sizes must be positive and add up to"),
    "views that leave features out": ({"view_sizes": [1, 2]}, "leave out"),
    "an empty view": ({"view_sizes": [D, 0]}, "view_sizes must be positive"),
    "a negative size": ({"view_sizes": [-1, D + 1]}, "view_sizes must be positive"),
    "sizes that overflow": ({"view_sizes": [2**62, 2**62, 2**62]}, "view_sizes"),
    "unknown noise": ({"noise": "stale"}, "none.*fresh.*lazy"),
    "negative scale": ({"noise": "lazy", "scale": -1.0, "stream": core.NoiseStream(KEY)}, "scale"),
    "no stream": ({"noise": "lazy", "scale": 1.0}, "stream"),
}


@pytest.mark.parametrize("name", WRONG)
def test_other_pairs_are_refused(name):
    arguments, message = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=message):
        of_rows(**arguments)


def test_the_pair_that_the_others_vary_is_accepted():
    a, b = of_rows().times(vectors(1))
    np.testing.assert_array_equal(a, b)


def test_other_types_are_refused():
    # pybind11 3.1 runs keep_alive on calls whose arguments it refused, and crashed.
    with pytest.raises(TypeError):
        core.PairOracle.of_rows(np.ones((3, D)), core.Noise("none"), FACTORS, part())
    with pytest.raises(TypeError):
        part([1, 2])
    with pytest.raises(ValueError, match=r'blocks must be "whole", "between" or "within", not "diagonal"'):
        part(blocks="diagonal")
    with pytest.raises(TypeError):
        of_rows(scale="wide")
    with pytest.raises(TypeError):
        core.PairOracle.of_matrices(np.eye(D), core.Noise("none"))
    with pytest.raises(TypeError):
        core.PairOracle.of_matrices(core.SymmetricMatrices(np.eye(D)), "none")
    with pytest.raises(TypeError):
        core.Noise("fresh", [1.0], stream=np.random.default_rng(0))
