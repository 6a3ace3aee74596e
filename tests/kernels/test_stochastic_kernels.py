"""Poisson samples and stochastic ascent: against plain NumPy with the same deviates, and in distribution.

The statistical tests use fixed keys; over the choice of the key each would fail on a correct kernel with probability at
most 1e-6 (see statistics_helpers), and each has a negative control.
"""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np
import pytest
import reference
from flow_problems import draw_from
from scipy import sparse, stats
from statistics_helpers import FALSE_ALARM, rejects_covariance, seeded_key

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KEY = seeded_key(41)
DTYPES = [np.float32, np.float64]
INDEX_TYPES = [np.int32, np.int64]
STEPS = np.geomspace(2.0, 0.1, 12)
# n_people (not the number of rows), rate, deviation and number of full answers, of sampled ones
DESIGN = (400.0, 0.07, 3.0, 4, 1.5, 60, True)


def case(n, d, n_vectors, dtype=np.float64):
    rng = np.random.default_rng([n, d, n_vectors])
    rows = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.4)).astype(dtype)
    return rows, rng.uniform(0.1, 1.0, n), orthonormal(rng.normal(size=(n_vectors, d)))


def orthonormal(block):
    return np.ascontiguousarray(np.linalg.qr(block.T)[0].T)


def products(rows, factors, design=DESIGN, key=KEY, n_threads=1):
    return core.SampledProducts.of_dense(rows, factors, *design, core.NoiseStream(key), n_threads)


def csr_products(rows, factors, index_type, design=DESIGN):
    compressed = sparse.csr_matrix(rows)
    indices, indptr = compressed.indices.astype(index_type), compressed.indptr.astype(index_type)
    return core.SampledProducts.of_csr(
        compressed.data, indices, indptr, rows.shape[1], factors, *design, core.NoiseStream(KEY)
    )


class Reference:
    """The same answers from the plain functions, with the same key stream."""

    def __init__(self, rows, factors, design=DESIGN):
        self.n_people, self.rate, self.deviation_full, _, self.deviation_sampled, _, _ = design
        self.rows, self.factors = rows, factors
        stream = core.NoiseStream(KEY)
        self.read, self.draw = stream.bytes, draw_from(stream)

    def full(self, block):
        scale = 1 / self.n_people

        def moment(v):
            return reference.rows_product(self.rows, self.factors, scale, v)

        return reference.fresh_product(moment, block, self.deviation_full * scale, "goe", self.draw)

    def sampled(self, block):
        return reference.sampled_product(
            self.rows,
            self.factors,
            block,
            n_people=self.n_people,
            rate=self.rate,
            deviation=self.deviation_sampled,
            read=self.read,
            draw=self.draw,
        )


def run(source, block, *, plain):
    """A full gradient, an ascent and an epoch with less variance from an anchor elsewhere."""
    ascend = (lambda v, s: reference.sampled_ascent(source.sampled, v, s)) if plain else source.ascend
    reduce = (lambda *a: reference.reduced_ascent(source.sampled, *a)) if plain else source.ascend_reduced
    gradient = source.full(block)
    vectors, first = ascend(block, STEPS)
    moved, second = reduce(vectors, block, gradient, STEPS)
    same, third = reduce(moved, moved, source.full(moved), STEPS)
    return gradient, vectors, first, moved, second, same, third


def assert_agree(answers, expected):
    for answer, value in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer, value, rtol=0, atol=1e-7 * max(1.0, np.abs(value).max()))


# --- the same deviates ---


@pytest.mark.parametrize("rate", [1e-9, 0.003, 0.5, 1.0])
@pytest.mark.parametrize("n", [0, 1, 5, 3000])
def test_samples_agree_with_the_reference(n, rate):
    stream, other = core.NoiseStream(KEY), core.NoiseStream(KEY)
    for _ in range(5):
        sample = core.poisson_sample(n, rate, stream)
        np.testing.assert_array_equal(sample, reference.poisson_sample(n, rate, other.bytes))
        assert sample.dtype == np.int64
    assert stream.bytes(8) == other.bytes(8)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_vectors", [1, 2, 5])
@pytest.mark.parametrize("d", [5, 37])
def test_ascent_on_dense_rows_agrees_with_the_reference(d, n_vectors, dtype):
    rows, factors, block = case(300, d, n_vectors, dtype)
    answers = run(products(rows, factors), block, plain=False)
    assert_agree(answers, run(Reference(rows, factors), block, plain=True))


@pytest.mark.parametrize("index_type", INDEX_TYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_vectors", [1, 4])
def test_ascent_on_sparse_rows_agrees_with_the_reference(n_vectors, dtype, index_type):
    rows, factors, block = case(300, 37, n_vectors, dtype)
    answers = run(csr_products(rows, factors, index_type), block, plain=False)
    assert_agree(answers, run(Reference(rows, factors), block, plain=True))


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_person_is_in_a_sample_with_all_rows(is_sparse):
    rows, factors, block = case(900, 7, 2)
    persons = np.random.default_rng(1).integers(0, 60, 900)
    persons[persons == 7] = 8  # who has no rows
    order, starts = np.argsort(persons, kind="stable"), np.searchsorted(np.sort(persons), np.arange(61))
    design = (60.0, 0.3, 0.0, 0, 0.0, 20, False)
    stream, own = core.NoiseStream(KEY), core.NoiseStream(KEY)
    if is_sparse:
        csr = sparse.csr_matrix(rows)
        arrays = csr.data, csr.indices, csr.indptr, 7
        source = core.SampledProducts.of_csr(*arrays, factors, *design, stream, starts=starts, order=order)
    else:
        source = core.SampledProducts.of_dense(rows, factors, *design, stream, starts=starts, order=order)
    for _ in range(20):
        members = np.isin(persons, core.poisson_sample(60, 0.3, own))
        expected = reference.rows_product(rows[members], factors[members], 1 / 18, block) @ block.T
        np.testing.assert_allclose(source.ascend(block, np.zeros(1))[1], expected.T, atol=1e-12)
    assert 0 < members.mean() < 1


def test_one_row_each_in_another_order_has_the_bits_of_these_rows():
    rows, factors, block = case(300, 9, 2)
    order = np.random.default_rng(0).permutation(300)
    owners = {"starts": np.arange(301), "order": order}
    source = core.SampledProducts.of_dense(rows, factors, *DESIGN, core.NoiseStream(KEY), **owners)
    expected = products(rows[order], factors[order]).ascend(block, STEPS)
    for answer, other in zip(source.ascend(block, STEPS), expected, strict=True):
        np.testing.assert_array_equal(answer, other)


@pytest.mark.parametrize(
    ("starts", "order"),
    [
        ([0, 3], [0, 1]),
        ([1, 2], [0, 1]),
        ([0, 2, 1, 3], [0, 1, 2]),
        ([0, 1], [5]),
        ([0, 1], [-1]),
        ([], [0]),
        ([0, 1], None),
        (None, [0]),
    ],
)
def test_owners_of_rows_that_there_are_not_are_refused(starts, order):
    owners = {
        name: None if of is None else np.array(of, np.int64) for name, of in (("starts", starts), ("order", order))
    }
    with pytest.raises(ValueError, match="starts and order must tell"):
        core.SampledProducts.of_dense(np.ones((5, 3)), np.ones(5), *DESIGN, core.NoiseStream(KEY), **owners)


def test_everybody_in_every_sample_is_the_full_gradient():
    rows, factors, block = case(300, 9, 2)
    source = products(rows, factors, (300.0, 1.0, 0.0, 1, 0.0, 1, False))
    exact = reference.rows_product(rows, factors, 1 / 300, block)
    np.testing.assert_allclose(source.full(block), exact, atol=1e-14)
    _, quotients = source.ascend(block, np.array([1.0]))
    np.testing.assert_allclose(quotients, block @ exact.T, atol=1e-14)


def test_threads_change_no_bit():
    # samples large enough for threads: 60000 x 100 x 4
    rows, factors, block = case(60_000, 100, 4)
    one, two = (products(rows, factors, (6e4, 1.0, 1.0, 1, 1.0, 12, True), n_threads=n) for n in (1, 3))
    for answer, other in zip(one.ascend(block, STEPS), two.ascend(block, STEPS), strict=True):
        np.testing.assert_array_equal(answer, other)


def test_a_slice_of_a_wider_buffer_is_read_in_place():
    rows, factors, block = case(300, 20, 2)
    buffer = np.zeros((300, 33))
    buffer[:, 3:23] = rows
    sliced = products(buffer[:, 3:23], factors).ascend(block, STEPS)
    assert_agree(sliced, products(rows, factors).ascend(block, STEPS))


# --- what may not show ---


def test_an_answer_without_people_is_noise_of_the_usual_size():
    # neither skipped nor scaled: a data set of nobody cannot be told by the missing noise
    block = orthonormal(np.eye(2, 6))
    empty = products(np.empty((0, 6)), np.empty(0))
    rows = products(np.zeros((50, 6)), np.ones(50))
    deviations = [np.abs(source.ascend(block, np.array([1.0]))[1]).max() for source in (empty, rows)]
    assert min(deviations) > 0.1 * DESIGN[4] / (DESIGN[0] * DESIGN[1])


def test_the_size_of_a_sample_divides_nothing():
    # the same row 1000 times: quotients over the fixed q n0 follow the size of the sample
    rows = np.zeros((1000, 3))
    rows[:, 0] = 1.0
    source = products(rows, np.ones(1000), (1000.0, 0.05, 0.0, 0, 0.0, 50, True))
    sizes = [source.ascend(np.eye(1, 3), np.array([0.1]))[1][0, 0] * 50.0 for _ in range(50)]
    np.testing.assert_allclose(sizes, np.round(sizes), atol=1e-9)
    assert len(set(np.round(sizes))) > 5


def test_where_there_is_no_difference_nothing_is_asked():
    rows, factors, block = case(300, 9, 2)
    stream = core.NoiseStream(KEY)
    source = core.SampledProducts.of_dense(rows, factors, *DESIGN, stream)
    source.ascend_reduced(block, block, np.zeros((2, 9)), np.array([0.0]))
    assert stream.bytes(8) == core.NoiseStream(KEY).bytes(8)


def test_the_noise_shrinks_with_the_difference():
    block = orthonormal(np.random.default_rng(0).normal(size=(3, 30)))
    spread = []
    for size in (1e-3, 1e-6):
        source = products(np.zeros((10, 30)), np.ones(10))
        anchor = block + size * np.random.default_rng(1).normal(size=block.shape)
        # one step of size 1 from zero gradient moves the block by the noise alone
        moved, _ = source.ascend_reduced(block, anchor, np.zeros_like(block), np.array([1.0]))
        spread.append(np.linalg.norm(moved - (moved @ block.T) @ block))
    assert spread[0] / spread[1] == pytest.approx(1e3, rel=1e-2)


def test_only_answers_that_were_paid_are_given():
    rows, factors, block = case(300, 9, 2)
    source = products(rows, factors, (300.0, 0.1, 1.0, 1, 1.0, 3, True))
    source.full(block)
    with pytest.raises(RuntimeError, match="paid"):
        source.full(block)
    vectors, _ = source.ascend(block, np.ones(2))
    with pytest.raises(RuntimeError, match="paid"):
        source.ascend_reduced(vectors, block, np.zeros_like(block), np.ones(2))


# --- in distribution ---

N_SAMPLES = 20_000
N_PEOPLE = 40
RATE = 0.13


def samples(draw, n_samples=N_SAMPLES):
    """Indicator matrix (n_samples, N_PEOPLE)."""
    members = np.zeros((n_samples, N_PEOPLE))
    for row in members:
        row[draw()] = 1.0
    return members


def rejects_poisson_sampling(members, rate=RATE):
    """Whether indicators cannot be independent with the given rate: exact binomial tests.

    The number of samples with each member, with each pair of neighbours or of equals in order, and the total.
    """
    n, people = members.shape
    pairs = members[:, 1:] * members[:, :-1]
    successive = members[1:] * members[:-1]
    counts = [(total, n, rate) for total in members.sum(axis=0)]
    counts += [(total, n, rate**2) for total in pairs.sum(axis=0)]
    counts += [(total, n // 2, rate**2) for total in successive[::2].sum(axis=0)]
    counts += [(members.sum(), n * people, rate)]
    p_values = [stats.binomtest(int(total), trials, p).pvalue for total, trials, p in counts]
    return min(p_values) < FALSE_ALARM / len(p_values)


@pytest.mark.statistical
def test_everybody_is_sampled_independently_at_the_rate():
    stream = core.NoiseStream(seeded_key(42))
    assert not rejects_poisson_sampling(samples(lambda: core.poisson_sample(N_PEOPLE, RATE, stream)))


@pytest.mark.deep
@pytest.mark.statistical
def test_other_samples_are_seen():
    stream, rng = core.NoiseStream(seeded_key(43)), np.random.default_rng(4)
    size = round(RATE * N_PEOPLE)
    wrong = {
        "rate": lambda: core.poisson_sample(N_PEOPLE, 1.06 * RATE, stream),
        "fixed size": lambda: rng.choice(N_PEOPLE, size, replace=False),
        "neighbours": lambda: np.unique(np.minimum(core.poisson_sample(N_PEOPLE, RATE, stream) // 2 * 2, N_PEOPLE - 1)),
        "one word twice": lambda: np.array([i for i in range(N_PEOPLE) if i % 2 == rng.integers(2)][: size * 2]),
    }
    for name, draw in wrong.items():
        assert rejects_poisson_sampling(samples(draw)), name


def noises(deviation, n=20_000):
    """The noise matrices (5, 5) of sampled gradients of nobody, upper triangles, over q n0."""
    design = (1.0, 0.5, 0.0, 0, deviation, n, True)
    source = products(np.empty((0, 5)), np.empty(0), design, seeded_key(44))
    quotients = [source.ascend(np.eye(5), np.zeros(1))[1] for _ in range(n)]
    return 0.5 * np.array([matrix[np.triu_indices(5)] for matrix in quotients])


def goe_covariance(d):
    rows, columns = np.triu_indices(d)
    return np.diag(np.where(rows == columns, 1.0, 0.5))


@pytest.mark.statistical
def test_a_step_carries_the_noise_that_was_paid_for():
    assert not rejects_covariance(noises(1.7) / 1.7, goe_covariance(5))


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.98, pytest.param(1.02, marks=pytest.mark.deep)])
def test_two_percent_of_noise_are_seen(factor):
    assert rejects_covariance(noises(1.7 * factor) / 1.7, goe_covariance(5))


# --- contract ---


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.1, np.nan])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(ValueError, match="rate"):
        core.poisson_sample(5, rate, core.NoiseStream(KEY))
    with pytest.raises(ValueError, match="rate"):
        products(np.eye(3), np.ones(3), (3.0, rate, 1.0, 1, 1.0, 1, True))


@pytest.mark.parametrize(
    ("block", "steps", "message"),
    [
        (np.eye(2, 4), np.ones(1), "columns"),
        (np.empty((0, 5)), np.ones(1), "rows"),
        (np.eye(5), np.empty(0), "empty"),
        (np.eye(5), np.array([1.0, -1.0]), "negative"),
        (np.eye(5), np.array([np.inf]), "finite"),
        (np.full((1, 5), np.nan), np.ones(1), "finite"),
    ],
)
def test_other_blocks_and_steps_are_refused(block, steps, message):
    with pytest.raises(ValueError, match=message):
        products(np.eye(5), np.ones(5)).ascend(block, steps)


def test_other_rows_are_refused():
    with pytest.raises(ValueError, match="factors"):
        products(np.eye(5), np.ones(4))
    with pytest.raises(TypeError, match="dtype"):
        products(np.eye(5, dtype=np.int64), np.ones(5))
    with pytest.raises(ValueError, match="scale"):
        products(np.eye(5), np.ones(5), (5.0, 0.5, -1.0, 1, 1.0, 1, True))
    with pytest.raises(ValueError, match="shape of V"):
        products(np.eye(5), np.ones(5)).ascend_reduced(np.eye(2, 5), np.eye(3, 5), np.eye(2, 5), np.ones(1))


# --- steps that cannot be taken ---


@pytest.mark.parametrize("step", [1e14, 1e300, np.finfo(float).max])
def test_a_step_too_large_is_not_taken_and_loses_no_answer(step):
    """Rows of one direction: a step that long leaves one of two directions, or no finite number."""
    rows, factors = np.zeros((50, 4)), np.ones(50)
    rows[:, 0] = 1e8  # not clipped here
    block = orthonormal(np.random.default_rng(0).normal(size=(2, 4)))
    design = (50.0, 1.0, 0.0, 0, 0.0, 3, False)
    source, plain = products(rows, factors, design), Reference(rows, factors, design)
    steps = np.array([0.0, step, 0.0])
    vectors, quotients = source.ascend(block, steps)
    assert source.n_rejected_steps == 1
    assert_agree((vectors, quotients), (block, block @ (block @ rows.T @ rows / 50).T))
    assert_agree((vectors, quotients), reference.sampled_ascent(plain.sampled, block, steps))
    # control: the same with a step that can be taken
    source = products(rows, factors, design)
    moved, _ = source.ascend(block, np.array([0.0, 1e-17, 0.0]))
    assert source.n_rejected_steps == 0
    assert np.abs(moved - block).max() > 1e-3


# --- contract of the arguments ---

REFUSED = """
import numpy as np
from dpgep._dispatch import core
rows, factors, design = np.ones((5, 3)), np.ones(5), (5.0, 0.5, 1.0, 1, 1.0, 1, True)
csr = np.ones(5), np.arange(5, dtype=np.int32) % 3, np.arange(6, dtype=np.int32), 3, factors
for stream in ("text", None, object()):
    for call in (
        lambda: core.SampledProducts.of_dense(rows, factors, *design, stream),
        lambda: core.SampledProducts.of_csr(*csr, *design, stream),
        lambda: core.SampledProducts.of_dense(rows, stream, *design, core.NoiseStream(bytes(32))),
        lambda: core.SampledProducts.of_dense(stream),
        lambda: core.SampledProducts.of_csr(stream),
    ):
        try:
            call()
        except TypeError:
            continue
        raise SystemExit(f"not refused: {stream}")
print("refused")
"""


def test_arguments_of_another_type_are_refused():
    """In a process of its own: what keeps the stream alive must not run on a refused call, which has no result."""
    run = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "refused"), run.stderr


def test_the_stream_lives_as_long_as_the_products():
    rows, factors, block = case(30, 4, 2)
    expected = products(rows, factors).full(block)
    kept = products(rows, factors)
    gc.collect()
    others = [core.NoiseStream(bytes([i]) * 32) for i in range(100)]
    np.testing.assert_array_equal(kept.full(block), expected)
    assert len(others) == 100
