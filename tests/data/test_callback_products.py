"""Products that a Python callable answers: streamed and distributed rows."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest
from statistics_helpers import seeded_key

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

D, N = 7, 50
ROWS = np.random.default_rng(0).standard_normal((N, D))


def second_moment(v: Any) -> Any:
    return (v @ ROWS.T) @ ROWS / N


def oracle(products: Any, noise: str = "lazy", **arguments: Any) -> Any:
    none = np.empty(0)
    drawn = core.Noise(noise, [0.1], stream=core.NoiseStream(seeded_key(7)), **arguments)
    return core.PairOracle.of_rows(products, drawn, np.empty((0, D)), core.PencilPart(none, 1.0))


@pytest.mark.parametrize("noise", ["none", "lazy", "fresh"])
def test_a_callback_is_rows_in_memory(noise: str) -> None:
    dense = core.DenseRows([ROWS], np.ones(N), 1.0 / N)
    callback = core.CallbackProducts(second_moment, D)
    assert callback.n_features == D
    arguments = {"n_products": 2} if noise == "fresh" else {}
    ours, theirs = (oracle(products, noise, **arguments) for products in (callback, dense))
    for seed in range(2):
        v = np.random.default_rng(seed).standard_normal((3, D))
        np.testing.assert_allclose(callback.times(v), dense.times(v), rtol=1e-12)
        np.testing.assert_allclose(ours.times(v)[0], theirs.times(v)[0], rtol=1e-10)


def test_a_flow_runs_on_a_callback() -> None:
    start = np.ones((1, D))
    flow = core.rayleigh_flow(oracle(core.CallbackProducts(second_moment, D), "none"), start, 500, 0.9)
    leading = np.linalg.eigh(ROWS.T @ ROWS / N)[1][:, -1]
    assert abs(flow[0][0] @ leading) == pytest.approx(1.0, abs=1e-6)


def test_passes_are_counted() -> None:
    lazy = oracle(core.CallbackProducts(second_moment, D))
    assert lazy.n_passes == 0
    lazy.times(np.eye(D)[:3])
    assert lazy.n_passes == 1
    lazy.times(np.ones((1, 3)) @ np.eye(D)[:3])  # nothing new: nobody is asked
    assert (lazy.n_passes, lazy.n_answered) == (1, 2)


ANSWERS = {
    "not an array": (lambda v: v.tolist(), TypeError, "must be an array, not"),
    "nothing": (lambda v: None, TypeError, "must be an array, not"),
    "float32": (lambda v: v.astype(np.float32), TypeError, "float64"),
    "too few rows": (lambda v: v[:-1], ValueError, "shape of its question"),
    "too many columns": (lambda v: np.ones((len(v), D + 1)), ValueError, "shape of its question"),
    "a vector": (lambda v: v[0], ValueError, "ndim"),
    "column-major": (lambda v: np.asfortranarray(v), ValueError, "contiguous"),
    "NaN": (lambda v: np.full_like(v, np.nan), ValueError, "finite"),
    "infinite": (lambda v: np.full_like(v, np.inf), ValueError, "finite"),
    "an error of its own": (lambda v: {}["missing"], KeyError, "missing"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_wrong_answers_are_errors_and_change_nothing(name: str) -> None:
    answer, error, message = ANSWERS[name]
    broken = [True]
    lazy = oracle(core.CallbackProducts(lambda v: answer(v) if broken[0] else second_moment(v), D))
    v = np.random.default_rng(0).standard_normal((2, D))
    for _ in range(2):
        with pytest.raises(error, match=message):
            lazy.times(v)
    assert (lazy.n_directions, lazy.n_answered) == (0, 0)
    broken[0] = False
    whole = oracle(core.CallbackProducts(second_moment, D)).times(v)[0]
    np.testing.assert_array_equal(lazy.times(v)[0], whole)  # no noise was drawn in vain


def test_an_answer_may_be_the_question_itself_or_keep_it() -> None:
    kept = []

    def identity(v: Any) -> Any:
        kept.append(v)
        return v

    callback = core.CallbackProducts(identity, D)
    first = callback.times(np.eye(D))
    callback.times(np.zeros((2, D)))
    np.testing.assert_array_equal(first, np.eye(D))
    np.testing.assert_array_equal(kept[0], np.eye(D))


def test_the_callable_is_kept_alive_and_let_go() -> None:
    class Answer:
        def __call__(self, v: Any) -> Any:
            return second_moment(v)

    answer = Answer()
    seen = weakref.ref(answer)
    lazy = oracle(core.CallbackProducts(answer, D))
    del answer
    gc.collect()
    assert lazy.times(np.eye(D))[0].shape == (D, D)
    del lazy
    gc.collect()
    assert seen() is None


def test_an_answer_that_asks_its_own_oracle_is_refused() -> None:
    lazy: Any = None

    def ask_back(v: Any) -> Any:
        return lazy.times(v)[0]

    lazy = oracle(core.CallbackProducts(ask_back, D))
    with pytest.raises(RuntimeError, match="must not ask the oracle"):
        lazy.times(np.eye(D))


def test_threads_take_turns() -> None:
    lazy, answers = oracle(core.CallbackProducts(second_moment, D)), {}
    threads = [
        threading.Thread(target=lambda j=j: answers.update({j: lazy.times(np.eye(1, D, j))[0][0]})) for j in range(D)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    full = np.array([answers[j] for j in range(D)])
    np.testing.assert_allclose(full, full.T, atol=1e-14)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_reaches_a_callback() -> None:
    code = f"""
import os, signal, time
import numpy as np
from dpgep._dispatch import core
signal.signal(signal.SIGINT, signal.default_int_handler)
def slow(v):
    print("asked", flush=True)
    time.sleep(60)
    return v
moment = core.PencilPart(np.empty(0), 1.0)
lazy = core.PairOracle.of_rows(core.CallbackProducts(slow, {D}), core.Noise("none"), np.empty((0, {D})), moment)
try:
    lazy.times(np.eye({D}))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "asked"
    os.kill(child.pid, signal.SIGINT)
    assert child.communicate(timeout=30)[0].strip() == "interrupted"


def test_other_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        core.CallbackProducts(3, D)
    with pytest.raises(ValueError, match="n_features"):
        core.CallbackProducts(second_moment, 0)
    with pytest.raises(ValueError, match="n_features = 7"):
        core.CallbackProducts(second_moment, D).times(np.ones((1, D + 1)))


def test_room_for_directions() -> None:
    lazy = oracle(core.CallbackProducts(second_moment, D), max_directions=3)
    known = lazy.times(np.eye(D)[:2])[0]
    with pytest.raises(MemoryError, match="max_directions = 3"):
        lazy.times(np.eye(D)[1:4])
    assert (lazy.n_directions, lazy.n_passes) == (2, 1)
    np.testing.assert_allclose(lazy.times(np.eye(D)[:2])[0], known)
    assert lazy.times(np.eye(D)[2:3])[0].shape == (1, D)
    with pytest.raises(ValueError, match="max_directions"):
        oracle(core.CallbackProducts(second_moment, D), max_directions=-1)
