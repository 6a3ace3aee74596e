"""Exactly rounded normal deviates: the law, the table of cells, and the decision tree on scripted digits.

The statistical tests use fixed keys; over the choice of the key each would fail on a correct kernel with
probability at most 1e-6 (FALSE_ALARM; each test says why). DPGEP_LONG=1 draws 1e8 deviates for the first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import gmpy2
import mpmath
import numpy as np
import pytest
import reference
from scipy import special, stats
from statistics_helpers import (
    FALSE_ALARM,
    rejects_equal_distributions,
    rejects_normality,
    seeded_key,
    two_sided_chi_square,
)

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

LONG = os.environ.get("DPGEP_LONG") == "1"
KEY = seeded_key(21)
CHUNK = 4096
SCALES = [1, 2, 3, 17, 1000, 2**43]


def exact_normal(scale, n, key=KEY, n_threads=1):
    out = np.empty(n, dtype=np.int64)
    core.exact_normal(out, scale, core.NoiseStream(key), n_threads)
    return out


# --- the law ---


def edges_of_cells(scale, n):
    """Integers e such that the cells (e_i - 1/2, e_{i+1} - 1/2) of N(0, scale**2) each expect 500 of n or more."""
    least = 500.0 / n
    quantiles = stats.norm.ppf(np.linspace(0.0, 1.0, 201)[1:-1])
    tail = np.linspace(2.0, stats.norm.isf(least), 30)
    kept: list[int] = []
    for edge in np.unique(np.round(scale * np.concatenate([quantiles, tail, -tail])).astype(np.int64)).tolist():
        below, *_, above = probabilities(scale, np.array([edge]))
        if min(below, above) >= least and (not kept or probabilities(scale, np.array([kept[-1], edge]))[1] >= least):
            kept.append(edge)
    return np.array(kept)


def probabilities(scale, edges):
    """The exact probability of each cell: differences of Phi((e - 1/2) / scale), where they do not cancel."""
    at = (edges.astype(np.float64) - 0.5) / scale
    below, above = special.ndtr(at), special.ndtr(-at)
    inner = np.where(at[:-1] > 0.0, above[:-1] - above[1:], below[1:] - below[:-1])
    return np.concatenate([[below[0]], inner, [above[-1]]])


def chi_square(deviates, scale, claimed):
    """p-value of the counts of ``deviates`` against N(0, claimed**2); at least 500 expected a cell."""
    edges = edges_of_cells(scale, deviates.size)
    counts = np.bincount(np.searchsorted(edges, deviates, side="right"), minlength=edges.size + 1)
    expected = deviates.size * probabilities(claimed, edges)
    return two_sided_chi_square(float(np.sum((counts - expected) ** 2 / expected)), edges.size)


@pytest.mark.parametrize("scale", [1, 3, 1000])
def test_cell_probabilities_agree_with_mpmath(scale):
    edges = edges_of_cells(scale, 10**6)
    with mpmath.workdps(50):
        exact = [mpmath.ncdf(mpmath.mpf(2 * int(edge) - 1) / (2 * scale)) for edge in edges]
        cells = [b - a for a, b in zip([mpmath.mpf(0), *exact], [*exact, mpmath.mpf(1)], strict=True)]
    np.testing.assert_allclose(probabilities(scale, edges), [float(cell) for cell in cells], rtol=1e-10)
    assert 10**6 * min(map(float, cells)) >= 499.99


@pytest.mark.statistical
@pytest.mark.parametrize("scale", SCALES)
def test_chi_square_against_exact_cell_probabilities(scale):
    # One p-value; with 500 expected in every cell the chi-square law holds to far better than the factor 2 that
    # the two sides leave. The controls on the same deviates: two per cent more or less is rejected.
    deviates = exact_normal(scale, 10**8 if LONG else 2 * 10**6, seeded_key(22))
    assert chi_square(deviates, scale, scale) > FALSE_ALARM
    assert chi_square(deviates, scale, 1.02 * scale) < FALSE_ALARM
    assert chi_square(deviates, scale, scale / 1.02) < FALSE_ALARM


@pytest.mark.statistical
def test_fine_deviates_pass_kolmogorov_smirnov():
    # One exact p-value: on a grid of 2**-43 the law is continuous for this purpose.
    z = exact_normal(2**43, 10**6, seeded_key(23)) / 2.0**43
    assert not rejects_normality(z)
    assert rejects_normality(1.02 * z)


@pytest.mark.statistical
@pytest.mark.parametrize("threshold", [3.0, 4.0, 4.75])
def test_tails(threshold):
    # Exact binomial counts beyond +threshold and beyond -threshold: two two-sided p-values.
    n = 4_000_000
    z = exact_normal(2**43, n, seeded_key(24)) / 2.0**43
    for tail in (z > threshold, z < -threshold):
        assert stats.binomtest(int(np.sum(tail)), n, stats.norm.sf(threshold)).pvalue > FALSE_ALARM / 2


@pytest.mark.statistical
def test_low_digits_are_uniform():
    # With the largest scale 56 bits of x come through; the lowest 8 bits of the deviates are uniform to 2**-40.
    low = exact_normal(2**56, 10**6, seeded_key(25)) & 255
    counts = np.bincount(low, minlength=256)
    expected = low.size / 256
    assert two_sided_chi_square(float(np.sum((counts - expected) ** 2) / expected), 255) > FALSE_ALARM


@pytest.mark.statistical
def test_agreement_with_mpfr():
    # MPFR draws by Karney's algorithm, in code of its own. Two tests with FALSE_ALARM / 2 each at most: the
    # two-sample Kolmogorov-Smirnov bound of the helper, and the ratio of the sums of squares, exactly F(n, n).
    n = 200_000
    state = gmpy2.random_state(26)
    theirs = np.array([float(gmpy2.mpfr_nrandom(state)) for _ in range(n)])
    ours = exact_normal(2**43, n, seeded_key(26)) / 2.0**43

    def differs(x, y):
        ratio = stats.f(n, n).cdf(np.sum(x**2) / np.sum(y**2))
        return rejects_equal_distributions(x[:, None], y[:, None]) or 2.0 * min(ratio, 1.0 - ratio) < FALSE_ALARM / 2

    assert not differs(ours, theirs)
    assert differs(1.02 * ours, theirs)
    assert differs(ours, 1.02 * theirs)


def rejects_independence(pairs):
    """For independent N(0, 1) vectors x, y, sum (x ± y)**2 / 2 are chi-square: two exact p-values a pair."""
    p_values = [
        two_sided_chi_square(float(np.sum((x + sign * y) ** 2)) / 2.0, x.size) for x, y in pairs for sign in (1.0, -1.0)
    ]
    return min(p_values) < FALSE_ALARM / len(p_values)


@pytest.mark.statistical
def test_independence_of_neighbours_chunks_calls_and_streams():
    n = 64 * CHUNK
    stream = core.NoiseStream(KEY)
    calls = [np.empty(n, dtype=np.int64) for _ in range(3)]
    for call in calls:
        core.exact_normal(call, 2**43, stream, 2)
    x, y, z = (call / 2.0**43 for call in calls)
    other = exact_normal(2**43, n, seeded_key(27)) / 2.0**43
    chunks = x.reshape(-1, CHUNK)
    pairs = [
        (x, y),
        (x, z),
        (x, other),
        (x[1:], x[:-1]),
        (x[2:], x[:-2]),
        (np.ravel(chunks[1:]), np.ravel(chunks[:-1])),
        (np.ravel(chunks[::2]), np.ravel(chunks[1::2, ::-1])),
        (np.abs(x[1:]) * np.sign(y[1:]), np.abs(x[:-1]) * np.sign(z[1:])),
    ]
    assert not rejects_independence(pairs)
    assert rejects_independence([(x, 0.98 * x + math.sqrt(1.0 - 0.98**2) * y)])
    assert len(np.unique(np.concatenate(calls))) > 3 * n - 100


# --- the decision tree, on scripted digits ---


def pack(*halves):
    """Halves of 32 bits as 64-bit words, the lower half first."""
    padded = [*halves, *[0] * (len(halves) % 2)]
    return np.array([low | high << 32 for low, high in zip(padded[::2], padded[1::2], strict=True)], dtype=np.uint64)


def word(value):
    return [value & 0xFFFFFFFF, value >> 32]


def digits(*values):
    """A word from its four digits of 16 bits, the highest first."""
    assert len(values) == 4
    return word(sum(value << shift for value, shift in zip(values, (48, 32, 16, 0), strict=True)))


def bits(text):
    """A word of coins, in the order in which they are taken; the others are zero."""
    return word(int(text[::-1], 2))


def step(first, second=0):
    """One half: its lower and its upper digit."""
    return [first | second << 16]


X = 0x9000
CELL_0 = [0]  # the half of a U in the first cell
ENDS = reference.cell_ends()


def in_cell(i):
    """The half of a U that its first digits show to be in the middle of cell i."""
    return [(ENDS[i] + (ENDS[i - 1] if i else 0)) // 2 >> 448]


def both(scale, *parts, n=1):
    """The deviates of the script, which kernel and reference must agree upon, using it up to a half."""
    halves = [half for part in parts for half in part]
    words = pack(*halves)
    deviates, n_words = core.exact_normal_scripted(words, scale, n)
    expected, expected_words = reference.exact_normal(words.tolist(), scale, n)
    assert deviates.tolist() == expected
    assert n_words == expected_words
    assert n_words == len(words)
    return expected if n > 1 else expected[0]


X_TOP = X << 48
ROUNDED = (1000 * X_TOP + 2**68) >> 69  # 1000 x / 32 = 17.6 to the nearest integer
SIGN = bits("0")


@pytest.mark.parametrize("sign", [1, -1])
def test_the_shortest_script(sign):
    # u = x is no smaller than x: an even run, accepted.
    assert both(1000, CELL_0, word(X_TOP), step(X + 1), bits("0" if sign > 0 else "1")) == sign * ROUNDED == sign * 18


@pytest.mark.parametrize("i", [0, 1, 31, 32, 100, 150])
def test_deviates_of_cells(i):
    x = 2 * i + 9
    assert both(2**43, in_cell(i), word(x << 48), step(x + 1), SIGN) == (2**43 * ((i << 16) + x) + 2**20) >> 21


def test_a_number_beyond_all_cells_is_drawn_again():
    beyond = [(ENDS[-1] >> 448) + 1]
    assert both(1000, beyond, [0xFFFFFFFF], CELL_0, word(X_TOP), step(X + 1), SIGN) == ROUNDED


def digits_of_end(i, change):
    """The half and the words of a U whose 480 binary digits are those of the end of cell i, and ``change`` more."""
    u = ENDS[i] + change
    return [u >> 448, *(half for shift in range(384, -1, -64) for half in word(u >> shift & 2**64 - 1))]


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("i", [0, 1, 30, 150, 200, 500, 800])
def test_ends_of_cells_are_known_to_480_digits(i, change):
    assert both(32, digits_of_end(i, change), word(0), step(0xFFFF), SIGN) == i + (change > 0)


@pytest.mark.parametrize("i", range(0, 820, 35))
@pytest.mark.parametrize("power", [0, 100, 250, 400, 440])
def test_numbers_near_ends_of_cells(i, power):
    # Of |N| beyond 9 all ends share their first digits: as many words are drawn as tell U from each.
    for change in (-(2**power), 2**power):
        words = pack(*digits_of_end(i, change), *np.random.default_rng(29).integers(0, 2**32, 60).tolist())
        expected = reference.exact_normal(words.tolist(), 32, 1)
        deviates, n_words = core.exact_normal_scripted(words, 32, 1)
        assert (deviates.tolist(), n_words) == expected


@pytest.mark.parametrize("i", [0, 77, 895])
def test_a_number_with_all_digits_of_an_end_is_an_error(i):
    with pytest.raises(RuntimeError, match="2\\^-480 of the end of a cell"):
        core.exact_normal_scripted(pack(*digits_of_end(i, 0), 0, 0), 1, 1)


def test_just_beyond_the_last_end_is_drawn_again():
    assert both(1000, digits_of_end(895, 1), CELL_0, word(X_TOP), step(X + 1), SIGN) == ROUNDED


def test_rejection_of_x_starts_again_with_a_new_x():
    # u < x and r < x / 2048, then no further: an odd run, rejected.
    rejected = [CELL_0, word(0xFFFF << 48), step(5, 5), step(0xFFFF)]
    assert both(1000, *rejected, CELL_0, word(X_TOP), step(X + 1), SIGN) == ROUNDED


AGAIN = [CELL_0, word(X_TOP), step(0xFFFF)]


@pytest.mark.parametrize("length", range(7))
def test_runs_of_every_length_in_algorithm_b(length):
    run = [step(1000 - 10 * i, 0) for i in range(length)] + [step(0xFFFF)]
    again = AGAIN if length % 2 else []
    assert both(1000, CELL_0, word(X_TOP), *run, *again, SIGN) == ROUNDED


@pytest.mark.parametrize("r_passes", [True, False])
def test_the_second_condition_of_algorithm_b(r_passes):
    # p = x / 2048. The run ends at a large r though u decreases.
    steps = [step(5, X // 2048 - 1), step(6), *AGAIN] if r_passes else [step(5, X // 2048 + 1)]
    assert both(1000, CELL_0, word(X_TOP), *steps, SIGN) == ROUNDED


@pytest.mark.parametrize("is_less", [True, False])
def test_a_tie_with_x_in_algorithm_b(is_less):
    # u has the first digit of x; it takes a word, x has its digits. Smaller: an odd run, a rejection.
    x = digits(X, 3, 4, 5)
    if is_less:
        script = [CELL_0, x, step(X, 0), digits(3, 4, 4, 0), step(0xFFFF), CELL_0, x, step(0xFFFF)]
    else:
        script = [CELL_0, x, step(X, 0), digits(3, 4, 6, 0)]
    assert both(1000, *script, SIGN) == ROUNDED


def test_a_tie_with_all_known_digits_of_x_extends_x_and_rounding_sees_its_new_digits():
    # With the scale 2**56 floor(scale x) is known without further digits, with 2**56 - 1 it is not. u ties with all
    # four digits; u takes two words, x takes one; u is larger: accepted with an x of 8 digits.
    x, scale, extended = 0x8000_0000_0000_0000 + 127, 2**56 - 1, 0xFEDC << 48
    script = [CELL_0, word(x), step(0x8000), digits(0, 0, 127, 0), word(0xFFFF << 48), word(extended), SIGN]
    floor = scale * ((x << 64) + extended) >> 128
    assert both(scale, *script) == (floor + 16) // 32


def test_a_tie_late_in_algorithm_b():
    # u1 < x; u2 ties with u1, both take a word: (100, 7, 0, 0) < (100, 8, 0, 0); u3 larger: a run of two.
    ties = [step(100, 0), step(100, 0), digits(7, 0, 0, 0), digits(8, 0, 0, 0), step(0xFFFF)]
    assert both(1000, CELL_0, word(X_TOP), *ties, SIGN) == ROUNDED
    # The same with u2 > u1: a run of one, rejected.
    ties = [step(100, 0), step(100, 0), digits(9, 0, 0, 0), digits(8, 0, 0, 0)]
    assert both(1000, CELL_0, word(X_TOP), *ties, *AGAIN, SIGN) == ROUNDED


@pytest.mark.parametrize("i", [0, 1, 60])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1])
@pytest.mark.parametrize("second", [0, 0x7FFF, 0xFFFF])
def test_r_near_its_bound(i, offset, second):
    # First digits of r around (2i + x) / 2048: decided at once, or by one word of r against known digits of x.
    x = digits(X, 0x8000, 0, 0)
    r = ((2 * i << 16) + X) // 2048 + offset
    halves = [*in_cell(i), *x, *step(5, r), *digits(second, 9, 9, 9)]
    rest = np.random.default_rng(28).integers(0, 2**32, 200).tolist()
    words = pack(*halves, *rest)
    expected = reference.exact_normal(words.tolist(), 2**56, 1)
    deviates, n_words = core.exact_normal_scripted(words, 2**56, 1)
    assert (deviates.tolist(), n_words) == expected


def test_r_equal_to_its_bound_in_all_known_digits_extends_both():
    # x = (8000, 0, 0, 0 | 1...), r = (16, 0, 0, 0 | 0...): 2048 r < x only by the fifth digit: a run of one.
    doubt = [step(5, 16), digits(0, 0, 0, 0), word(0), digits(1, 0, 0, 0), step(0xFFFF)]
    assert both(1000, CELL_0, word(0x8000 << 48), *doubt, *AGAIN, SIGN) == ROUNDED


# Scale 24, x = (w + y) 2**-64 near 2/3: 24 x >= 16 means 3 y >= 2**65 - 3 w = 2, so the next word is held against 2/3.
NEAR = 2**65 // 3


@pytest.mark.parametrize(
    ("later", "rounded"), [(0, 0), (0xAAAAAAAAAAAAAAA9, 0), (0xAAAAAAAAAAAAAAAB, 1), (2**64 - 1, 1)]
)
def test_the_last_rounding_extends_x_until_both_ends_agree(later, rounded):
    assert both(24, CELL_0, word(NEAR), step(0xFFFF), word(later), SIGN) == rounded


def test_the_last_rounding_may_need_many_words():
    # 24 x = 16 at x = 0.AAAA...: every word 0xAA...A leaves it open, the last one decides.
    many = [word(0xAAAAAAAAAAAAAAAA)] * 20
    start = [CELL_0, word(NEAR), step(0xFFFF)]
    assert both(24, *start, *many, word(0xAAAAAAAAAAAAAAAB), SIGN) == 1
    assert both(24, *start, *many, word(0xAAAAAAAAAAAAAAA9), SIGN) == 0


def test_numbers_open_after_4096_bits_are_an_error():
    # Ties for ever: of u and x, and in the last rounding.
    zeros = np.zeros(1000, dtype=np.uint64)
    with pytest.raises(RuntimeError, match="4096 bits"):
        core.exact_normal_scripted(zeros, 1, 1)
    start = [*CELL_0, *word(NEAR), *step(0xFFFF)]
    forever = pack(*start, *word(0xAAAAAAAAAAAAAAAA) * 100)
    with pytest.raises(RuntimeError, match="4096 bits"):
        core.exact_normal_scripted(forever, 24, 1)


def test_too_few_words_are_an_error():
    script = pack(*CELL_0, *word(X_TOP), *step(X + 1), *SIGN)
    core.exact_normal_scripted(script, 1000, 1)
    for n_words in range(len(script)):
        with pytest.raises(ValueError, match=f"more than {n_words} words"):
            core.exact_normal_scripted(script[:n_words], 1000, 1)


@pytest.mark.parametrize("scale", [0, 1, 2, 3, 17, 1000, 2**43, 2**56 - 1, 2**56])
def test_random_scripts_agree_with_the_reference(scale):
    words = np.random.default_rng(scale % 1009).integers(0, 2**64, 6000, dtype=np.uint64)
    expected = reference.exact_normal(words.tolist(), scale, 500)
    deviates, n_words = core.exact_normal_scripted(words, scale, 500)
    assert (deviates.tolist(), n_words) == expected


def few_digits(seed: int) -> Iterator[np.ndarray]:
    """Scripts over a few digits, so that ties of every kind and depth are common."""
    rng = np.random.default_rng(seed)
    alphabet = np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x5555], dtype=np.uint64)
    for _ in range(300):
        chosen = rng.choice(alphabet[: rng.integers(2, 7)], (400, 4))
        yield np.sum(chosen << np.array([0, 16, 32, 48], dtype=np.uint64), axis=1, dtype=np.uint64)


@pytest.mark.parametrize("scale", [1, 3, 1000, 2**56 - 1])
def test_scripts_full_of_ties_agree_with_the_reference(scale, monkeypatch):
    # The reference counts its own branches: among these scripts every one is met, with extensions.
    met: dict[str, int] = {}

    def counted(name, function):
        def wrapper(*arguments):
            met[name] = met.get(name, 0) + 1
            before = uniforms_extended[0]
            result = function(*arguments)
            if uniforms_extended[0] > before:
                met[f"{name}, extended"] = met.get(f"{name}, extended", 0) + 1
            return result

        return wrapper

    uniforms_extended = [0]
    extend = reference._Uniform.extend

    def counted_extend(self):
        uniforms_extended[0] += 1
        extend(self)

    monkeypatch.setattr(reference._Uniform, "extend", counted_extend)
    for name in ("_exp_minus_product", "_is_below_p", "_floor_of_multiple"):
        monkeypatch.setattr(reference, name, counted(name, getattr(reference, name)))
    for words in few_digits(scale):
        expected = reference.exact_normal(words.tolist(), scale, 4)
        deviates, n_words = core.exact_normal_scripted(words, scale, 4)
        assert (deviates.tolist(), n_words) == expected
    for name in ("_exp_minus_product", "_is_below_p"):
        assert met[f"{name}, extended"] >= 10
    if scale == 2**56 - 1:
        assert met["_floor_of_multiple, extended"] >= 10


# --- streams ---


def call_key(key):
    return core.NoiseStream(key).bytes(32)


@pytest.mark.parametrize("n", [0, 1, 3, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_chunks_have_streams_of_their_own(n):
    # A call takes 32 bytes for a key; deviates 4096 c onwards come from the stream of that key and nonce c.
    key = call_key(KEY)
    expected = []
    for chunk in range(-(-n // CHUNK)):
        # 50 bytes a deviate are enough but for a probability that no seed here meets.
        size = min(CHUNK, n - chunk * CHUNK)
        words = np.frombuffer(reference.chacha20_stream(key, chunk, 8 * (10 * size + 200)), dtype="<u8")
        expected += core.exact_normal_scripted(words.astype(np.uint64), 1000, size)[0].tolist()
    assert exact_normal(1000, n).tolist() == expected


def test_one_chunk_from_key_to_deviate_by_the_reference():
    words = np.frombuffer(reference.chacha20_stream(call_key(KEY), 0, 8000), dtype="<u8")
    assert exact_normal(2**43, 100).tolist() == reference.exact_normal(words.tolist(), 2**43, 100)[0]


@pytest.mark.parametrize("n", [1, CHUNK - 1, CHUNK, 10 * CHUNK + 17])
@pytest.mark.parametrize("n_threads", [2, 3, 16])
def test_the_number_of_threads_does_not_matter(n, n_threads):
    np.testing.assert_array_equal(exact_normal(10**6, n, n_threads=n_threads), exact_normal(10**6, n))


def test_a_shorter_call_gives_the_first_deviates_of_a_longer_one():
    longer = exact_normal(10**6, 3 * CHUNK)
    for n in (1, 100, CHUNK + 1):
        np.testing.assert_array_equal(exact_normal(10**6, n), longer[:n])


def test_the_same_deviates_at_every_scale():
    # |round(s N) - s N| <= 1/2 for the same N.
    fine = exact_normal(2**50, 1000) / 2.0**50
    for scale in (1, 2, 1000, 2**43):
        assert np.all(np.abs(exact_normal(scale, 1000) - scale * fine) <= 0.5 + scale * 2.0**-49)


def test_a_call_takes_thirty_two_bytes_of_the_stream():
    stream, other = core.NoiseStream(KEY), core.NoiseStream(KEY)
    core.exact_normal(np.empty(10 * CHUNK, dtype=np.int64), 5, stream)
    other.bytes(32)
    assert stream.bytes(64) == other.bytes(64)


def test_scale_zero_draws_nothing():
    stream = core.NoiseStream(KEY)
    out = np.full(10, 7)
    core.exact_normal(out, 0, stream)
    assert not out.any()
    assert stream.bytes(64) == core.NoiseStream(KEY).bytes(64)


@pytest.mark.entropy
def test_a_forked_child_draws_noise_of_its_own():
    stream = core.NoiseStream()
    out = np.empty(2 * CHUNK, dtype=np.int64)
    core.exact_normal(out, 2**43, stream, 2)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            core.exact_normal(out, 2**43, stream, 2)
            os.write(write_end, out[:1000].tobytes())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        theirs = np.frombuffer(pipe.read(), dtype=np.int64)
    os.waitpid(child, 0)
    before = out[:1000].copy()
    core.exact_normal(out, 2**43, stream, 2)
    assert theirs.size == 1000
    assert not set(theirs.tolist()) & (set(before.tolist()) | set(out[:1000].tolist()))


# --- contract ---


@pytest.mark.parametrize("scale", [-1, 2**56 + 1, 2**63 - 1, -(2**63)])
def test_other_scales_are_refused(scale):
    with pytest.raises(ValueError, match=r"0 <= scale <= 2\*\*56, not"):
        exact_normal(scale, 3)
    with pytest.raises(ValueError, match=r"0 <= scale <= 2\*\*56, not"):
        core.exact_normal_scripted(np.zeros(3, dtype=np.uint64), scale, 0)


@pytest.mark.parametrize("scale", [1.0, 2**63, None])
def test_scales_that_are_no_integers_are_refused(scale):
    with pytest.raises(TypeError):
        exact_normal(scale, 3)


@pytest.mark.parametrize("n_threads", [0, -1])
def test_fewer_threads_than_one_are_refused(n_threads):
    with pytest.raises(ValueError, match="n_threads >= 1, not"):
        exact_normal(1, 3, n_threads=n_threads)


@pytest.mark.parametrize(
    "out",
    [np.empty(4), np.empty(4, dtype=np.int32), np.empty((2, 2), dtype=np.int64), np.empty(8, dtype=np.int64)[::2]],
    ids=["float64", "int32", "two axes", "strided"],
)
def test_other_outputs_are_refused(out):
    stream = core.NoiseStream(KEY)
    with pytest.raises((TypeError, ValueError), match="out"):
        core.exact_normal(out, 5, stream)
    assert stream.bytes(64) == core.NoiseStream(KEY).bytes(64)
