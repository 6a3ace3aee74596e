"""Normal deviates: the transform, the distribution, and streams that never repeat one another.

The statistical tests use fixed keys; over the choice of the key each would fail on a correct kernel with
probability at most 1e-6 (FALSE_ALARM; each test says why).
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statistics_helpers import FALSE_ALARM, rejects_normality, seeded_key, two_sided_chi_square

from dpgep._dispatch import core

pytestmark = [pytest.mark.entropy, pytest.mark.kernel]

KEY = seeded_key(1)
# The largest deviate of the transform: u = 2**-64.
LARGEST = np.sqrt(128.0 * np.log(2.0))


def normal(stream, n):
    deviates = np.empty(n)
    stream.normal(deviates)
    return deviates


# --- the transform ---


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1001, 200_000])
def test_normal_agrees_with_the_reference(n):
    expected = reference.normal(reference.chacha20_stream(KEY, 5, 16 * ((n + 1) // 2)), n)
    np.testing.assert_allclose(normal(core.NoiseStream(KEY, 5), n), expected, rtol=1e-14, atol=0.0)


@given(calls=st.lists(st.tuples(st.sampled_from(["normal", "bytes"]), st.integers(0, 700)), max_size=10))
@settings(deadline=None, derandomize=True)
def test_normal_starts_at_any_byte_and_keeps_no_state(calls):
    stream, position = core.NoiseStream(KEY), 0
    whole = reference.chacha20_stream(KEY, 0, 16 * 8000)
    for kind, n in calls:
        if kind == "bytes":
            assert stream.bytes(n) == whole[position : position + n]
            position += n
        else:
            expected = reference.normal(whole[position:], n)
            np.testing.assert_allclose(normal(stream, n), expected, rtol=1e-14, atol=0.0)
            position += 16 * ((n + 1) // 2)


def test_even_pieces_equal_one_piece():
    stream = core.NoiseStream(KEY)
    pieces = np.concatenate([normal(stream, n) for n in (2, 510, 512, 4096, 6, 100_000)])
    np.testing.assert_array_equal(pieces, normal(core.NoiseStream(KEY), pieces.size))


def test_deviates_stay_within_the_transform():
    deviates = normal(core.NoiseStream(KEY), 1_000_000)
    assert np.all(np.isfinite(deviates))
    assert np.max(np.abs(deviates)) <= LARGEST


# --- the distribution ---


@pytest.mark.statistical
def test_deviates_pass_kolmogorov_smirnov():
    # One exact p-value.
    assert not rejects_normality(normal(core.NoiseStream(seeded_key(2)), 400_000))


@pytest.mark.statistical
@pytest.mark.parametrize("wrong", [1.02, pytest.param(0.98, marks=pytest.mark.deep)])
def test_kolmogorov_smirnov_sees_two_percent(wrong):
    # The two laws are 0.0048 apart; at 1e-6 the test rejects from sqrt(log(2e6) / (2 n)) = 0.0027 on.
    assert rejects_normality(wrong * normal(core.NoiseStream(seeded_key(2)), 1_000_000))


@pytest.mark.statistical
def test_angle_and_radius_are_independent_and_have_their_laws():
    # Four exact p-values: radius**2 / 2 is exponential, the angle uniform, among all pairs and among those of
    # small and of large radius.
    pairs = normal(core.NoiseStream(seeded_key(3)), 400_000).reshape(-1, 2)
    exponent = np.sum(pairs**2, axis=1) / 2.0
    turn = np.arctan2(pairs[:, 1], pairs[:, 0]) / (2.0 * np.pi) + 0.5
    p_values = [
        stats.kstest(exponent, "expon").pvalue,
        stats.kstest(turn, "uniform").pvalue,
        stats.kstest(turn[exponent < 0.1], "uniform").pvalue,
        stats.kstest(turn[exponent > 3.0], "uniform").pvalue,
    ]
    assert min(p_values) > FALSE_ALARM / len(p_values)


@pytest.mark.statistical
@pytest.mark.parametrize(("power", "mean", "variance"), [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)])
def test_moments(power, mean, variance):
    # Bernstein: n independent terms, |x**power| <= LARGEST**power = b, miss their mean by r or more with
    # probability at most 2 exp(-n r**2 / (2 (variance + b r / 3))); r solves that for FALSE_ALARM.
    n = 1_000_000
    rate = 2.0 * np.log(2.0 / FALSE_ALARM) / n
    linear = rate * LARGEST**power / 3.0
    radius = (linear + np.sqrt(linear**2 + 4.0 * rate * variance)) / 2.0
    deviates = normal(core.NoiseStream(seeded_key(4)), n)
    assert abs(np.mean(deviates**power) - mean) < radius


@pytest.mark.statistical
@pytest.mark.parametrize("threshold", [3.0, 4.0, 5.0])
def test_tails(threshold):
    # Exact binomial counts beyond +threshold and beyond -threshold: two two-sided p-values.
    n = 4_000_000
    deviates = normal(core.NoiseStream(seeded_key(5)), n)
    probability = stats.norm.sf(threshold)
    for tail in (deviates > threshold, deviates < -threshold):
        assert stats.binomtest(int(np.sum(tail)), n, probability).pvalue > FALSE_ALARM / 2


@pytest.mark.statistical
def test_other_nonces_other_keys_and_neighbours_are_uncorrelated():
    # For n independent pairs of standard normals, sum (x + y)**2 / 2 and sum (x - y)**2 / 2 are chi-square
    # with n degrees of freedom: fifteen pairs of vectors, thirty exact p-values.
    n = 100_000
    streams = [normal(core.NoiseStream(KEY, nonce), n + 1) for nonce in (0, 1, 2, 2**32, 2**63)]
    streams.append(normal(core.NoiseStream(seeded_key(6)), n + 1))
    compared = [(x[:n], y[:n]) for x, y in pairwise(streams)]
    compared += [(x[0:n:2], x[1:n:2]) for x in streams[:5]]
    compared += [(x[1:n:2], x[2 : n + 1 : 2]) for x in streams[:5]]
    p_values = [
        two_sided_chi_square(float(np.sum((x + sign * y) ** 2)) / 2.0, x.size)
        for x, y in compared
        for sign in (1.0, -1.0)
    ]
    assert min(p_values) > FALSE_ALARM / len(p_values)


# --- streams never repeat one another ---


def test_seeded_streams_repeat_and_say_so():
    stream = core.NoiseStream(KEY, 3)
    assert stream.seeded is True
    assert stream.bytes(100) == core.NoiseStream(KEY, 3).bytes(100)
    assert stream.bytes(100) != core.NoiseStream(KEY, 4).bytes(100)


def test_streams_without_a_key_differ_and_say_so():
    streams = [core.NoiseStream() for _ in range(50)]
    assert not any(stream.seeded for stream in streams)
    assert len({stream.bytes(16) for stream in streams}) == len(streams)


def test_seeded_is_read_only():
    with pytest.raises(AttributeError):
        core.NoiseStream().seeded = True


def test_streams_cannot_be_copied_or_pickled():
    # A copy would hand out the same noise twice.
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copied(core.NoiseStream(KEY))


def drawn_after_fork(stream, n=64):
    """The next ``n`` bytes of ``stream`` in a forked child."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork beside other threads (those of BLAS, say); the child draws and exits.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            # A child that waits for ever is ended, and has then drawn too little.
            signal.alarm(20)
            os.write(write_end, stream.bytes(n))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    assert len(drawn) == n
    return drawn


@pytest.mark.parametrize("used", [0, 1, 37, 64, 5000])
def test_forked_children_draw_noise_of_their_own(used):
    stream = core.NoiseStream()
    stream.bytes(used)
    children = [drawn_after_fork(stream) for _ in range(3)]
    assert len({*children, stream.bytes(64)}) == 4


def test_grandchildren_draw_noise_of_their_own():
    stream = core.NoiseStream()
    stream.bytes(5)
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            grandchild = drawn_after_fork(stream)
            os.write(write_end, grandchild + stream.bytes(64))
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        drawn = pipe.read()
    os.waitpid(child, 0)
    assert len(drawn) == 128
    assert len({drawn[:64], drawn[64:], stream.bytes(64)}) == 3


def test_seeded_streams_continue_in_a_forked_child():
    stream = core.NoiseStream(KEY)
    stream.bytes(37)
    assert drawn_after_fork(stream) == stream.bytes(64)


def test_a_fork_while_another_thread_draws_leaves_no_lock_behind():
    # The thread that holds the stream does not exist in the child, and would never give it back there.
    stream = core.NoiseStream()
    out = np.zeros(20_000_000)
    thread = threading.Thread(target=stream.normal, args=(out,))
    thread.start()
    while out[0] == 0.0 and thread.is_alive():
        time.sleep(0.001)
    child = drawn_after_fork(stream)
    assert thread.is_alive()
    thread.join()
    assert child != stream.bytes(64)


# A process that has drawn nothing forks 30 others. Each begins its first draw in a thread, and forks meanwhile.
FIRST_DRAWS = """
import os, signal, threading, time
import numpy as np
from dpgep._dispatch import core

def in_child(call):
    child = os.fork()
    if child == 0:
        call()
        os._exit(0)
    return os.waitpid(child, 0)[1]

def draw():
    core.exact_normal(np.empty(1, np.int64), 1, core.NoiseStream(), 1)

def draw_in_time():
    signal.alarm(20)
    draw()

def fork_during_the_first_draw():
    thread = threading.Thread(target=draw)
    thread.start()
    time.sleep(turn * 1e-5)
    if in_child(draw_in_time):
        os._exit(1)
    thread.join()

for turn in range(30):
    assert in_child(fork_during_the_first_draw) == 0
"""


def test_a_fork_during_the_first_draw_leaves_no_half_made_table_behind():
    run = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FIRST_DRAWS]
    subprocess.run(run, check=True, timeout=120, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})


def test_a_fork_does_not_disturb_the_parent():
    stream = core.NoiseStream(KEY)
    first = stream.bytes(37)
    drawn_after_fork(stream)
    assert first + stream.bytes(64) == core.NoiseStream(KEY).bytes(101)


shared_stream = core.NoiseStream()


def draw_shared(_):
    return shared_stream.bytes(32)


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.deep)])
def test_worker_processes_draw_noise_of_their_own(method):
    draw_shared(None)
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for _ in range(2):
            with multiprocessing.get_context(method).Pool(1) as pool:
                drawn += pool.map(draw_shared, range(3))
    drawn += [draw_shared(None)]
    assert len(set(drawn)) == 7


def test_threads_share_a_stream_without_repeats():
    # Each call is atomic, so however the threads interleave, together they hold what one caller would.
    # Long calls, so that they do overlap.
    n_calls, n = 64, 20_000
    stream = core.NoiseStream(KEY)
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: normal(stream, n), range(n_calls)))
    in_turn = normal(core.NoiseStream(KEY), n_calls * n).reshape(n_calls, n)
    assert {row.tobytes() for row in drawn} == {row.tobytes() for row in in_turn}


# --- contract ---


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty(4, dtype=np.float32), "out must have dtype float64"),
        (np.empty(4, dtype=np.int64), "out must have dtype float64"),
        (np.empty((2, 2)), "out must have ndim == 1"),
        (np.empty(8)[::2], "out must have a contiguous last axis"),
        (np.empty(4, dtype=">f8"), "out must have dtype float64"),
    ],
    ids=["float32", "int64", "two axes", "strided", "big-endian"],
)
def test_other_outputs_are_refused(out, message):
    with pytest.raises((TypeError, ValueError), match=message):
        core.NoiseStream(KEY).normal(out)


def test_a_read_only_output_is_refused():
    out = np.zeros(4)
    out.flags.writeable = False
    with pytest.raises((TypeError, ValueError), match="out must be writeable"):
        core.NoiseStream(KEY).normal(out)
    assert not out.any()


def test_a_list_is_refused():
    with pytest.raises((TypeError, ValueError)):
        core.NoiseStream(KEY).normal([0.0, 0.0])


def test_a_refused_call_draws_nothing():
    stream = core.NoiseStream(KEY)
    with pytest.raises((TypeError, ValueError)):
        stream.normal(np.empty(8)[::2])
    assert stream.bytes(64) == core.NoiseStream(KEY).bytes(64)
