"""The local model: speed of client and server (pytest), and the synthetic experiment of Wang and Xu (2020).

`python benchmarks/bench_local.py` prints the experiment alone.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import support
from scipy.stats import wishart
from support import Matrix, judge, say

import dpgep
from dpgep._dispatch import core
from dpgep._threads import thread_count
from dpgep.local import Aggregator, GaussianRandomizer, Reports

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
import printed_mechanisms as printed

TARGET_BANDWIDTH = 0.2  # integers are looked at three times: largest, smallest, sum
TARGET_MILLISECONDS = 0.8
TARGET_OVERHEAD = 1.15  # of a batch over its noise alone
TARGET_SLOPE = 0.05  # distance from -1/2

P = 128
TERMS: dict[str, Any] = {"dim": P, "bound": 1.0, "epsilon": 1.0, "delta": 1e-6}
REPORTS = 512 if support.QUICK else 8192
ROUNDS = 3 if support.QUICK else 15


# --- speed ---


def batch_of(m: int, **options: Any) -> Reports:
    return GaussianRandomizer(**TERMS, **options).randomize_rows(np.random.default_rng(0).standard_normal((m, P)))


def test_adding_a_batch(benchmark: Any) -> None:
    """Bytes a second of `add`, against a read-only sweep: the fastest that we know, BLAS's dot product with itself."""
    batch = batch_of(REPORTS)
    server, flat = Aggregator(**TERMS), batch.values.astype(np.float64).ravel()
    server.add(batch)
    mean = batch.values.mean(axis=0) * batch.mechanism.unit
    np.testing.assert_allclose(server.second_moment()[np.triu_indices(P)], mean, rtol=1e-9, atol=1e-12)
    times = support.alternate(benchmark, lambda: server.add(batch), lambda: flat @ flat, ROUNDS)
    gigabytes = batch.values.nbytes / 1e9
    say(
        f"adding {REPORTS} packed reports, p = {P}: {gigabytes / times.ours:.3g} GB/s, "
        f"sweep {gigabytes / times.theirs:.3g} GB/s"
    )
    judge("adding a batch of reports, share of memory bandwidth", 1 / times.ratio, TARGET_BANDWIDTH, at_least=True)


def test_adding_otherwise() -> None:
    """For information: other entries, one report at a time, and bytes with their checksum."""
    batch, server = batch_of(REPORTS, dtype="float32"), Aggregator(**TERMS)
    seconds = median_seconds(lambda: server.add(batch), ROUNDS)
    say(f"adding {REPORTS} reports, float32: {batch.values.nbytes / seconds / 1e9:.3g} GB/s")
    assert server.n_reports == (ROUNDS + 1) * REPORTS
    batch, server = batch_of(512), Aggregator(**TERMS)
    reports = [batch[i] for i in range(512)]
    messages = [report.to_bytes() for report in reports]
    for name, arriving in (("as objects", reports), ("as bytes", messages)):
        seconds = median_seconds(lambda arriving=arriving: [server.add(each) for each in arriving], ROUNDS)
        say(f"adding reports one by one {name}: {1e6 * seconds / 512:.3g} us each")
    assert server.n_reports == 2 * (ROUNDS + 1) * 512


def test_randomizing_a_row(benchmark: Any) -> None:
    """From a row to bytes, beside a client in NumPy whose floating-point noise has the last bits wrong."""
    client, rng = GaussianRandomizer(**TERMS), np.random.default_rng(1)
    x = rng.standard_normal(P)
    x /= 2 * np.linalg.norm(x)
    upper, deviation = np.triu_indices(P), client.mechanism.deviation

    def ours() -> bytes:
        return client.randomize(x).to_bytes()

    def theirs() -> bytes:
        noise = rng.standard_normal((P, P))
        return (np.outer(x, x) + (noise + noise.T) * (deviation / 2))[upper].tobytes()

    for packed in (np.frombuffer(ours()[64:], np.int64) * client.mechanism.unit, np.frombuffer(theirs())):
        noise = packed - np.outer(x, x)[upper]
        noise[upper[0] != upper[1]] *= math.sqrt(2)
        assert abs(np.linalg.norm(noise) / deviation - math.sqrt(len(noise))) < 6
    times = support.alternate(benchmark, ours, theirs, 10 * ROUNDS, calls=10)
    say(f"randomizing a row and its report, p = {P}, in NumPy: {1e3 * times.theirs:.3g} ms")
    judge("randomizing a row and its report, p = 128, ms", 1e3 * times.ours, TARGET_MILLISECONDS)
    rounded = GaussianRandomizer(**TERMS, dtype="float32")
    say(f"    float32: {1e3 * median_seconds(lambda: rounded.randomize(x).to_bytes(), 50):.3g} ms (no target)")


def test_randomizing_a_batch(benchmark: Any) -> None:
    """All of it beside its noise alone: what the exact sampler needs for as many deviates."""
    client, rows = GaussianRandomizer(**TERMS), np.random.default_rng(2).standard_normal((64, P))
    deviates, scale = np.empty(64 * client.mechanism.size, dtype=np.int64), client.mechanism.noise.off_diagonal
    stream = core.NoiseStream()

    def sampler() -> None:
        core.exact_normal(deviates, scale, stream, thread_count())

    sampler()
    assert abs(deviates.std() / scale - 1) < 0.01  # 10 standard deviations
    times = support.alternate(benchmark, lambda: client.randomize_rows(rows), sampler, ROUNDS)
    say(f"randomizing 64 rows, p = {P}: {deviates.size / times.ours / 1e6:.3g} million entries a second")
    judge("randomizing a batch, time of its noise alone", times.ratio, TARGET_OVERHEAD)


def median_seconds(call: Callable[[], object], rounds: int) -> float:
    """Of ``rounds`` calls, after one to warm up."""
    call()
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


# --- the experiment of the paper, section 6.1 ---

DIM, K, N = 40, 5, 20_000 if support.QUICK else 100_000
BUDGET: dict[str, float] = {"epsilon": 0.5, "delta": 1e-4}
SIZES = (10**10, 10**11, 10**12, 10**13)
DRAWS = 5 if support.QUICK else 20


@dataclass(frozen=True)
class Synthetic:
    """N(0, (VV^T + I)/(10 p)), V (p, k) with orthonormal columns: rows longer than 1 do not occur (9 times the mean
    squared norm).
    """

    basis: Matrix

    @classmethod
    def random(cls, rng: np.random.Generator) -> Synthetic:
        return cls(np.linalg.qr(rng.standard_normal((DIM, K)))[0])

    @property
    def covariance(self) -> Matrix:
        return np.asarray((self.basis @ self.basis.T + np.eye(DIM)) / (10 * DIM))

    def rows(self, rng: np.random.Generator) -> Matrix:
        """(N, p) people."""
        return rng.standard_normal((N, DIM)) @ np.linalg.cholesky(self.covariance).T

    def second_moment(self, n: int, rng: np.random.Generator) -> Matrix:
        """Of n people, from its law: for numbers of people that no computer holds."""
        return np.asarray(wishart(n, self.covariance / n).rvs(random_state=rng))

    def distance(self, matrix: Matrix) -> float:
        """The paper's error: Frobenius distance of the projections on the leading K eigenvectors and on V."""
        vectors = np.linalg.eigh(matrix)[1][:, -K:]
        return float(np.linalg.norm(vectors @ vectors.T - self.basis @ self.basis.T))


LOST = math.sqrt(2 * K * (1 - K / DIM))  # of a random subspace, in the mean square


def mechanisms(n: int, rng: np.random.Generator) -> dict[str, Callable[[], Matrix]]:
    """Noise in the mean of n reports: the printed one, and ours."""
    sound = GaussianRandomizer(DIM, 1.0, **BUDGET).mechanism.deviation
    classical = printed.classical_deviation(1.0, **BUDGET)
    return {
        "as printed": lambda: printed.symmetric_iid(rng, (DIM, DIM), classical / math.sqrt(n)),
        "sound": lambda: printed.symmetric_goe(rng, DIM, sound / math.sqrt(n)),
        "no noise": lambda: np.zeros((DIM, DIM)),
    }


def errors_by_size() -> dict[str, list[float]]:
    """Mean error of ``DRAWS`` populations and noises at each size."""
    rng = np.random.default_rng(2)
    found: dict[str, list[float]] = {}
    for n in (N, *SIZES):
        draws: dict[str, list[float]] = {}
        for _ in range(DRAWS):
            population = Synthetic.random(rng)
            moment = population.second_moment(n, rng)
            for name, noise in mechanisms(n, rng).items():
                draws.setdefault(name, []).append(population.distance(moment + noise()))
        for name, values in draws.items():
            found.setdefault(name, []).append(statistics.mean(values))
    return found


def slope(errors: list[float]) -> float:
    return float(np.polyfit(np.log(SIZES), np.log(errors), 1)[0])


def deployed(n_draws: int) -> float:
    """Mean error of ``N`` clients' reports through randomizer and aggregator."""
    rng, errors = np.random.default_rng(3), []
    for _ in range(n_draws):
        population = Synthetic.random(rng)
        server, client = Aggregator(DIM, 1.0, **BUDGET), GaussianRandomizer(DIM, 1.0, **BUDGET)
        for part in np.split(population.rows(rng), 20):
            server.add(client.randomize_rows(part).to_bytes())
        errors.append(population.distance(server.second_moment()))
    return statistics.mean(errors)


def central(n_draws: int) -> float:
    """The same people under `release`, who trust one curator, at the same (epsilon, delta)."""
    rng, errors = np.random.default_rng(4), []
    for seed in range(n_draws):
        population = Synthetic.random(rng)
        problem = dpgep.pca(population.rows(rng), center=False, bound=1.0)
        components = support.solve_seeded(problem, seed, **BUDGET, n_components=K).components
        errors.append(population.distance(components.T @ components))
    return statistics.mean(errors)


def experiment() -> None:
    """Say all of it, judge the slope."""
    errors = errors_by_size()
    sizes = ", ".join(f"{n:.0e}" for n in (N, *SIZES))
    say(f"local PCA, p = {DIM}, k = {K}, epsilon = 0.5, delta = 1e-4, mean of {DRAWS}; a random subspace: {LOST:.3g}")
    for name, values in errors.items():
        say(f"    error at n = {sizes}, {name}: " + ", ".join(f"{value:.3g}" for value in values))
    few = 1 if support.QUICK else 3
    say(f"    error at n = {N:.0e}, reports of clients, mean of {few}: {deployed(few):.3g}")
    say(f"    error at n = {N:.0e}, release (central), mean of {few}: {central(few):.3g}")
    for name in ("as printed", "sound"):
        value = slope(errors[name][1:])
        say(f"    slope of log error against log n, {name}: {value:.4f}")
        judge(f"distance of the slope to -1/2, {name}", abs(value + 0.5), TARGET_SLOPE, always=True)


def test_the_experiment_of_the_paper() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)  # its delta is 10/n
        experiment()


if __name__ == "__main__":
    experiment()
    print("\n".join(support.lines))
