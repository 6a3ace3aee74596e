"""Replays: a run on a neighbour with the same answers shows the same, and costs what the ledger says at most."""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import logging
import math
import types
import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from every_run import D, matrix_problem
from replay_matrix import DELTA, EPSILON, cases, models, pairs

import dpgep
from dpgep._dispatch import core
from dpgep._watched import Transcript, naming
from dpgep.methods import METHODS
from dpgep.privacy.curator import noise_stream, watched_draws
from dpgep.privacy.ledger import Ledger, LedgerEntry
from dpgep.privacy.noise import add_grid_noise

CASES = {case[0]: case[1:] for case in cases()}
# runs that take a second
SLOW = ("dp-spca", "dp-vrpca", "init=convex")


def replays(name: str, count: int, sizes: tuple[int, ...] | None = None) -> Any:
    """(what differs, result) of replays of a case on pairs that its name decides on."""
    model, bound, adjacency, method, options = CASES[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    for what, *neighbours in pairs(rng, adjacency, count, *([] if sizes is None else [sizes])):
        given = {"epsilon": EPSILON, "delta": DELTA, "method": method, "n_components": 1}
        yield what, dpgep.auditing.replay(models(bound, adjacency)[model], neighbours, **given, **options)


# ---- every method with every model ----


def test_every_method_is_replayed() -> None:
    assert {case[3] for case in CASES.values()} == set(METHODS)


def in_turn() -> list[str]:
    """Every method with every model once: with the bound and the adjacency that are its turn."""
    kinds: dict[Any, list[str]] = {}
    for name, (model, _, _, method, options) in CASES.items():
        kinds.setdefault((method, repr(options), model), []).append(name)
    return [names[turn % len(names)] for turn, names in enumerate(kinds.values())]


@pytest.mark.entropy
@pytest.mark.parametrize("name", in_turn()[::3])
def test_same_answers_same_view(name: str) -> None:
    for what, result in replays(name, 1, (3, 16, 33) if name.startswith(SLOW) else None):
        assert not result.flagged, f"{what}\n{result}"


@pytest.mark.deep
@pytest.mark.entropy
@pytest.mark.parametrize("name", CASES)
def test_same_answers_same_view_at_every_size(name: str) -> None:
    for what, result in replays(name, 2 if name.startswith(SLOW) else 4):
        assert not result.flagged, f"{what}\n{result}"


@pytest.mark.entropy
@pytest.mark.parametrize(
    "options", [{}, {"method": "rayleigh-flow", "n_iterations": 3, "step_size": 0.5}, {"method": "sr-dp"}]
)
def test_matrices_of_a_stated_sensitivity(options: dict[str, Any]) -> None:
    problem = matrix_problem()
    rng = np.random.default_rng(3)
    for _ in range(5):
        steps = [step + step.T for step in rng.standard_normal((2, D, D))]
        scaled = [bound / 400 * step / np.linalg.norm(step) for bound, step in zip((2.0, 3.0), steps, strict=True)]
        moved = dpgep.gep(problem.a + scaled[0], problem.b + scaled[1], n=400, sensitivity_a=2.0, sensitivity_b=3.0)
        result = dpgep.auditing.replay(
            lambda each: each, (problem, moved), epsilon=EPSILON, delta=DELTA, n_components=1, **options
        )
        assert not result.flagged, result
        assert result.ratio > 0.5


# ---- what a replay finds ----


def shown(first: Any, second: Any) -> tuple[str, ...]:
    """What differs between two values that a mechanism returns."""
    return dpgep.auditing.replay(lambda value: value, (first, second), mu=1.0).differences


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1.0, math.nextafter(1.0, 2.0)),
        (0.0, -0.0),
        (1, 1.0),
        ([1, 2], (1, 2, 3)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, {1, 3}),
        (np.zeros(3), np.zeros(3, dtype=np.float32)),
        (np.zeros((1, 3)), np.zeros((3, 1))),
        (np.float64(1.0), np.float64(2.0)),
        (ValueError("a"), ValueError("b")),
        (lambda first=1: first, lambda first=2: first),
        (dpgep.AutoPreprocessing(ranges={0: (0.0, 1.0)}), dpgep.AutoPreprocessing(ranges={0: (0.0, 2.0)})),
        (logging.getLogger("a"), logging.getLogger("b")),
        (1 + 0j, 1 + 1j),
        (None, "None"),
        (1, "1"),
        ([1], (1,)),
        ({1: 0}, {"1": 0}),
        (FileNotFoundError(2, "none", "a"), FileNotFoundError(2, "none", "b")),
        (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})),
        (np.array(["a", None], dtype=object), np.array(["b", None], dtype=object)),
    ],
)
def test_a_difference_is_seen(first: Any, second: Any) -> None:
    assert shown(first, second)
    assert not shown(first, first)


def test_what_a_function_holds_is_seen() -> None:
    def holder(value: float) -> Any:
        return lambda: value

    assert shown(holder(1.0), holder(2.0))
    assert not shown(holder(1.0), holder(1.0))


@pytest.mark.parametrize("channel", ["warning", "log", "stdout", "exception", "context", "cause"])
def test_every_channel_is_seen(channel: str) -> None:
    def mechanism(value: int) -> None:
        if channel == "warning":
            warnings.warn(f"{value} rows", RuntimeWarning, stacklevel=1)
        elif channel == "log":
            logging.getLogger("dpgep.something").debug("%d rows", value)
        elif channel == "stdout":
            print(value)
        elif channel == "exception":
            raise ValueError(value)
        else:
            try:
                raise KeyError(value)
            except KeyError as error:
                raise ValueError from (error if channel == "cause" else None)

    place = {"warning": "warnings", "log": "log", "stdout": "stdout"}.get(channel, "exception")
    found = dpgep.auditing.replay(mechanism, (1, 2), mu=1.0).differences
    assert {each.split(":")[0].split(".")[0].split("[")[0] for each in found} == {place}
    assert not dpgep.auditing.replay(mechanism, (1, 1), mu=1.0).differences


def test_names_drawn_at_random_and_seconds_of_the_log_are_no_difference() -> None:
    def mechanism(_: int) -> str:
        logging.getLogger("dpgep.something").info("answered: %.3f s", np.random.default_rng().random())
        return f"the name is {naming.get()(16)}"

    assert not dpgep.auditing.replay(mechanism, (1, 2), mu=1.0).differences


def test_random_names_in_a_set_are_no_difference() -> None:
    for _ in range(20):
        names = dpgep.auditing.replay(lambda _: {naming.get()(16), naming.get()(16), "a"}, (1, 2), mu=1.0)
        assert not names.differences


def test_hashes_of_data_and_figures_that_look_like_seconds_are_seen() -> None:
    assert shown(hashlib.sha256(b"a").hexdigest(), hashlib.sha256(b"b").hexdigest())
    assert shown("1.250 s", "1.750 s")


def test_an_object_that_cannot_be_looked_at_hides_nothing_else() -> None:
    class Guarded:
        def __reduce_ex__(self, _: object) -> Any:
            raise RuntimeError("no copies")

    assert shown([Guarded(), 1.0], [Guarded(), 2.0])
    assert not shown([Guarded(), 1.0], [Guarded(), 1.0])


def test_a_stream_of_an_audit_that_is_over_draws_nothing() -> None:
    streams: list[core.NoiseStream] = []
    dpgep.auditing.replay(lambda _: streams.append(noise_stream()), (1, 2), mu=1.0)
    assert len(streams) == 2
    for stream in streams:
        with pytest.raises(RuntimeError, match="audit that is over"):
            add_grid_noise(np.zeros(2), 1.0, stream)


def test_a_context_that_outlives_the_audit_is_not_watched() -> None:
    contexts = []
    dpgep.auditing.replay(lambda _: contexts.append(contextvars.copy_context()), (1, 2), mu=1.0)
    assert [each.run(watched_draws) for each in contexts] == [None, None]


def test_unpaid_noise_beside_a_ledger_is_flagged() -> None:
    def mechanism(x: float) -> Any:
        unpaid = add_grid_noise(np.array([x]), 10.0, noise_stream())
        return unpaid, dpgep.solve(dpgep.pca(np.eye(3), bound=1.0, center=False), mu=2.0, n_components=1)

    assert dpgep.auditing.replay(mechanism, (0.0, 1.0)).flagged


def test_a_sampling_rate_that_was_not_paid_for_is_seen() -> None:
    import dp_accounting

    gaussian = dp_accounting.GaussianDpEvent(10.0)
    for rate, is_paid in ((0.5, True), (0.9, False)):

        def mechanism(x: float, rate: float = rate) -> Any:
            ledger = Ledger(1.0, (1.0, 1e-6))
            ledger.record(LedgerEntry("samples", None, (), event=dp_accounting.PoissonSampledDpEvent(0.5, gaussian)))
            stream = noise_stream()
            core.poisson_sample(10, rate, stream)
            return add_grid_noise(np.array([x]), 10.0, stream)

        assert dpgep.auditing.replay(mechanism, (0.0, 1.0)).flagged is not is_paid


def test_a_draw_that_failed_is_one_draw_in_both_runs() -> None:
    def mechanism(x: int) -> Any:
        stream = noise_stream()
        with contextlib.suppress(ValueError):
            core.add_exact_noise(np.full((1, 64), np.iinfo(np.int64).max), 1 << 40, stream)
        return add_grid_noise(np.array([float(x)]), 10.0, stream)

    assert not dpgep.auditing.replay(mechanism, (0, 1), mu=1.0).differences


def test_the_number_of_draws_and_their_scales_are_compared() -> None:
    def mechanism(sizes: list[int]) -> None:
        for size in sizes:
            add_grid_noise(np.zeros(size), 1.0, noise_stream())

    for other in ([1], [1, 2, 3], [1, 3], [2, 1]):
        assert "the draws" in dpgep.auditing.replay(mechanism, ([1, 2], other), mu=1.0).differences[0]
    assert not dpgep.auditing.replay(mechanism, ([1, 2], [1, 2]), mu=1.0).flagged


def test_noise_from_one_state_is_seen() -> None:
    def mechanism(_: int) -> None:
        for _ in range(2):
            core.add_exact_noise(
                np.zeros(3, dtype=np.int64), 100, core.NoiseStream(bytes(32), transcript=watched_draws())
            )

    assert "one state" in dpgep.auditing.replay(mechanism, (1, 2), mu=1.0).differences[0]


def test_noise_that_is_not_watched_is_seen() -> None:
    def mechanism(_: int) -> Any:
        values = np.zeros(3, dtype=np.int64)
        core.add_exact_noise(values, 1 << 40, core.NoiseStream())
        return values

    assert dpgep.auditing.replay(mechanism, (1, 2), mu=1.0).differences


def test_noise_that_nothing_pays_for_is_flagged() -> None:
    result = dpgep.auditing.replay(lambda x: add_grid_noise(np.array([x]), 1.0, noise_stream()), (0.0, 1.0))
    assert result.flagged
    assert result.claimed_mu == 0
    assert "nothing paid" in repr(result)


def test_a_claim_below_the_cost_is_flagged() -> None:
    def mechanism(x: float) -> Any:
        return add_grid_noise(np.array([x]), 2.0, noise_stream())

    assert not dpgep.auditing.replay(mechanism, (0.0, 1.0), mu=0.5 + 1e-6).flagged
    assert dpgep.auditing.replay(mechanism, (0.0, 1.0), mu=0.5 - 1e-6).flagged
    assert dpgep.auditing.replay(mechanism, (0.0, 1.0), mu=0.5 - 1e-6).mu == pytest.approx(0.5, rel=1e-7)


def test_an_ended_run_is_said() -> None:
    result = dpgep.auditing.replay(lambda rows: dpgep.pca(rows, bound=1.0), (np.full((3, 2), np.nan),) * 2, mu=1.0)
    assert "NaN" in str(result.error)
    assert str(result.error) in repr(result)


# ---- the hook ----


def stream_of(transcript: Transcript) -> core.NoiseStream:
    return core.NoiseStream(transcript=transcript.draws)


def test_only_runs_that_are_watched_have_a_transcript() -> None:
    assert watched_draws() is None
    with Transcript().watching():
        assert watched_draws() is not None
    assert watched_draws() is None


@pytest.mark.kernel
@pytest.mark.parametrize("law", ["independent", "symmetric"])
@pytest.mark.parametrize("is_wide", [False, True])
def test_a_watched_stream_draws_the_same_noise(law: str, is_wide: bool) -> None:
    key, transcript = bytes(range(32)), Transcript()
    rng = np.random.default_rng(1)
    low, high = (rng.integers(-(1 << 50), 1 << 50, (5, 5)) for _ in range(2))
    scales = (1 << 45,) if law == "independent" else (1 << 45, 1 << 44)
    add = core.add_exact_noise if law == "independent" else core.add_exact_symmetric_noise
    results = []
    for stream in (core.NoiseStream(key), core.NoiseStream(key, transcript=transcript.draws)):
        limbs = (low.copy(), high.copy())
        add(limbs[0], *scales, stream, 1, limbs[1] if is_wide else None, 40 if is_wide else 0)
        results.append(limbs)
    for plain, watched in zip(*results, strict=True):
        np.testing.assert_array_equal(plain, watched)
    name, shape, kept, _, bits, exact, exact_high, answer, answer_high, keys = transcript.draws.query(0)
    assert (name, shape, tuple(kept), bits) == (law, (5, 5), scales, 40 if is_wide else 0)
    np.testing.assert_array_equal(exact, low.ravel())
    np.testing.assert_array_equal(answer, results[0][0].ravel())
    assert len(exact_high) == len(answer_high) == (25 if is_wide else 0)
    assert len(keys) == 1


@pytest.mark.kernel
def test_limbs_are_carried_whatever_the_law() -> None:
    """The two limbs are a function of the sum."""
    for add, scales in ((core.add_exact_noise, (1 << 43,)), (core.add_exact_symmetric_noise, (1 << 43, 1 << 42))):
        totals = []
        for shift in (0, 5):
            low, high = np.full((3, 3), 1000 - (shift << 20)), np.full((3, 3), 7 + shift)
            add(low, *scales, core.NoiseStream(bytes(32)), 1, high, 20)
            upper = np.triu_indices(3)
            assert (low[upper] >= 0).all()
            assert (low[upper] < 1 << 20).all()
            totals.append((low[upper].tolist(), high[upper].tolist()))
        assert totals[0] == totals[1]


@pytest.mark.kernel
@pytest.mark.parametrize("law", ["independent", "symmetric"])
def test_a_script_gives_its_answers(law: str) -> None:
    first = Transcript()
    second = Transcript(first)
    add, scales = (
        (core.add_exact_noise, (1000,)) if law == "independent" else (core.add_exact_symmetric_noise, (1000, 800))
    )
    before = np.arange(9).reshape(3, 3)
    after = before + np.diag([3, 0, 4])
    answers = []
    for transcript, values in ((first, before.copy()), (second, after.copy())):
        add(values, *scales, stream_of(transcript))
        answers.append(values)
    np.testing.assert_array_equal(*answers)
    np.testing.assert_array_equal(second.draws.query(0)[5], after.ravel())
    assert not second.draws.divergence


@pytest.mark.kernel
@pytest.mark.parametrize(
    "ask",
    [
        lambda stream: core.add_exact_noise(np.zeros(4, dtype=np.int64), 100, stream),
        lambda stream: core.add_exact_noise(np.zeros(3, dtype=np.int64), 101, stream),
        lambda stream: core.add_exact_symmetric_noise(np.zeros((3, 3), dtype=np.int64), 100, 100, stream),
        lambda stream: core.poisson_sample(10, 0.5, stream),
        lambda stream: stream.bytes(3),
    ],
)
def test_another_question_has_no_answer(ask: Any) -> None:
    first = Transcript()
    core.add_exact_noise(np.zeros(3, dtype=np.int64), 100, stream_of(first))
    second = Transcript(first)
    with pytest.raises(RuntimeError, match="query 1 was independent"):
        ask(stream_of(second))
    assert "query 1" in second.draws.divergence
    with pytest.raises(RuntimeError, match="query 1 is one more"):
        ask(stream_of(Transcript(Transcript())))


@pytest.mark.kernel
def test_a_draw_that_nobody_could_replay_is_refused() -> None:
    for draw in (
        lambda stream: stream.normal(np.zeros(3)),
        lambda stream: core.exact_normal(np.zeros(3, dtype=np.int64), 10, stream),
    ):
        with pytest.raises(RuntimeError, match="no audit can replay"):
            draw(stream_of(Transcript()))


@pytest.mark.kernel
def test_samples_and_bytes_follow_the_script() -> None:
    first = Transcript()
    stream = stream_of(first)
    members, drawn = core.poisson_sample(100, 0.3, stream), stream.bytes(16)
    for n in (100, 99, 101):
        again = stream_of(Transcript(first))
        expected = [*members[members < n], *range(100, n)]
        assert core.poisson_sample(n, 0.3, again).tolist() == expected
        assert again.bytes(16) == drawn


@pytest.mark.kernel
def test_a_failure_is_given_again() -> None:
    first = Transcript()
    top = np.full(64, np.iinfo(np.int64).max)
    with pytest.raises(ValueError, match="within int64") as error:
        core.add_exact_noise(top, 1 << 40, stream_of(first))
    with pytest.raises(ValueError, match="within int64") as again:
        core.add_exact_noise(np.zeros(64, dtype=np.int64), 1 << 40, stream_of(Transcript(first)))
    assert str(error.value) == str(again.value)


@pytest.mark.entropy
def test_noise_with_a_shared_deviate_costs_what_its_covariance_says() -> None:
    """Of shape iid: (M + Z) q with Var (Z q) = s^2 (I + q q^T - diag(q^2)), against the inverse of that."""
    rng = np.random.default_rng(2)
    q = rng.standard_normal(5)
    q /= np.linalg.norm(q)
    matrices = [a + a.T for a in rng.standard_normal((2, 5, 5))]

    def product(matrix: Any) -> Any:
        noise = core.Noise("fresh", [3.0], "iid", 1, noise_stream(), None, 1)
        return core.PairOracle.of_matrices(core.SymmetricMatrices(matrix), noise).times(q[None, :])[0]

    change = (matrices[1] - matrices[0]) @ q
    covariance = 9 * (np.eye(5) + np.outer(q, q) - np.diag(q**2))
    result = dpgep.auditing.replay(product, (matrices[0], matrices[1]), mu=1e9)
    assert result.mu == pytest.approx(math.sqrt(change @ np.linalg.solve(covariance, change)), rel=1e-6)
    assert not result.differences
