"""What exact moments of ten billion people cost on a thousand workers: a closed form, and a simulation that checks it.

    python benchmarks/simulate_cluster.py [--quick]

The costs of summing a row and of merging two sums are measured here, as processor time of one thread; those of reading,
of the network, of stragglers and of failures are assumptions, stated below. The simulation runs tasks on workers one by
one: lognormal durations, attempts that fail, workers that are lost with what they had done, merges that wait for all
of their parts. It asserts that the closed form is within `TOLERANCE` of it, phase by phase.
"""

from __future__ import annotations

import argparse
import heapq
import math
import pickle
import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import stats

import dpgep
from dpgep._threads import use_threads
from dpgep.data.integer_moments import ExactMomentAccumulator
from dpgep.data.rows import Batch, Rows
from dpgep.models.model import PublicFacts
from dpgep.models.row_model import layout_of

TOLERANCE = 0.1
FAN_IN = 8  # of dpgep.data.distributed
AT_DRIVER = 1 << 16


@dataclass(frozen=True)
class Cluster:
    """A cluster and a job; times in seconds, sizes in bytes."""

    people: float = 1e10
    features: int = 1000
    workers: int = 1000  # of one task each
    partitions: int = 16_000
    # measured
    sum_row: float = 35e-6
    merge: float = 20e-3  # of one partial sum: unpickled, added
    # assumed
    read_row: float = 30e-6  # Parquet to Arrow batches, of a thousand float64
    network: float = 250e6  # bytes a second, of a worker and of the driver
    launch: float = 2e-3  # the scheduler's time for a task, one after the other
    spread: float = 0.5  # standard deviation of the logarithm of a task's duration
    failing: float = 0.01  # attempts that fail, anywhere on their way
    lost: float = 1 / 86_400 / 3  # workers lost, per worker and second: each once in three days

    def limbs(self, level: int) -> int:
        """Of the sums that a stage makes: more than 2^22 people may leave 64 bits."""
        return 2 if self.people / self.partitions * FAN_IN**level > 1 << 22 else 1

    def sum_bytes(self, level: int) -> float:
        """Of a sum that a stage makes: d^2 integers of 64 bits a limb."""
        return 8.0 * self.features**2 * self.limbs(level)

    def merging(self, level: int) -> float:
        """Seconds to fetch a sum that a stage made, and to merge it."""
        return self.limbs(level) * self.merge + self.sum_bytes(level) / self.network

    @property
    def levels(self) -> int:
        """Of merging by workers, before the driver merges."""
        return math.ceil(math.log(max(1.0, 8.0 * self.features**2 / AT_DRIVER), FAN_IN))

    def tasks_at(self, level: int) -> int:
        return math.ceil(self.partitions / FAN_IN**level)

    def duration(self, level: int) -> float:
        """The mean of a task's duration: of a partition (0), of merging FAN_IN sums (1, 2, ...)."""
        if level == 0:
            return self.people / self.partitions * (self.read_row + self.sum_row)
        return FAN_IN * self.merging(level - 1)

    def at_driver(self) -> float:
        return self.tasks_at(self.levels) * self.merging(self.levels)


def measured(features: int, people: int) -> tuple[float, float]:
    """Seconds of processor time to sum a row, and to merge a partial sum."""
    rows = np.random.default_rng(0).standard_normal((people, features)) / math.sqrt(features)
    layout = layout_of(dpgep.models.PcaModel(features, center=True), PublicFacts("replace-one", 1.0, None))
    with use_threads(1):
        sums = ExactMomentAccumulator(layout, 20)
        sums.add(Batch(Rows((rows[:10],), 1.0)))
        start = time.process_time()
        sums.add(Batch(Rows((rows,), 1.0)))
        sums.limbs()
        row = (time.process_time() - start) / people
        start = time.process_time()
        for _ in range(10):
            pickle.loads(pickle.dumps(sums)).merge(sums)
        return row, (time.process_time() - start) / 10


# --- The closed form -------------------------------------------------------------------------------


def expected_stage(cluster: Cluster, level: int) -> float:
    """Seconds of a stage of N independent tasks on W workers, each worker taking the next.

    Attempts fail with chance p somewhere on their way, after T U, and are repeated: there are N/(1 - p), which take
    T N (1 + p/2/(1 - p)), and what a lost worker has done is done again. When the last task is taken, all workers are
    busy with residuals R of a renewal process, P(R > x) = E[(T - x)^+]/E[T], of which p/2 will fail. So the stage lasts
    work/W - E[R] + E[max of W residuals], or, where the scheduler's L seconds for a task are what there is to wait for,
    L N/(1 - p) + E[max over k of T_k - k L].
    """
    tasks, mean, sigma, p = cluster.tasks_at(level), cluster.duration(level), cluster.spread, cluster.failing
    law = stats.lognorm(sigma, scale=mean * math.exp(-(sigma**2) / 2))
    longer = stats.lognorm(sigma, scale=mean * math.exp(sigma**2 / 2))
    part = (np.arange(16) + 0.5) / 16
    quantiles = (np.arange(200) + 0.5) / 200
    ends = np.append(0.0, np.geomspace(mean / 1000, 3 * float(law.ppf(1 - 1e-9)), 1500))

    def repeated(cut_off: NDArray[np.float64]) -> NDArray[np.float64]:
        """Chances that an attempt which is cut off after such times, and its repetition, take longer than the ends."""
        return np.array([law.sf(end - cut_off).mean() for end in ends])

    attempts = tasks / (1 - p)
    plain = tasks * mean * (1 + p / 2 / (1 - p)) / cluster.workers
    if tasks <= cluster.workers or attempts * cluster.launch > plain:
        longest = (1 - 1e-12 - p) * law.sf(ends) + p * repeated(np.outer(law.ppf(quantiles), part).ravel())
        behind = np.arange(min(tasks, int(ends[-1] / cluster.launch) + 1)) * cluster.launch
        last = [np.log1p(-np.interp(end + behind, ends, longest, right=0.0)).sum() for end in ends]
        return attempts * cluster.launch + float(np.trapezoid(-np.expm1(last), ends))
    residuals = np.outer(longer.ppf(quantiles), part).ravel()
    survival = longer.sf(ends) - ends / mean * law.sf(ends)
    survival = (1 - p / 2) * survival + p / 2 * repeated(np.outer(residuals[::8], part).ravel())
    work = plain * (1 + cluster.lost * plain / 2)
    drained = work - mean * math.exp(sigma**2) / 2
    return drained + float(np.trapezoid(1 - (1 - survival) ** cluster.workers, ends))


# --- The simulation --------------------------------------------------------------------------------


def simulated_stage(cluster: Cluster, level: int, rng: np.random.Generator) -> float:
    """Seconds of one run of the stage, event by event."""
    waiting, mean, sigma = cluster.tasks_at(level), cluster.duration(level), cluster.spread
    workers = cluster.workers
    running: list[tuple[float, int, bool]] = []  # end, worker, whether the attempt fails
    done = np.zeros(workers, dtype=int)
    lives = rng.exponential(1 / cluster.lost, workers)
    next_launch = now = 0.0

    def launch(worker: int) -> None:
        nonlocal waiting, next_launch
        if not waiting:
            return
        waiting -= 1
        start = max(now, next_launch)
        next_launch = start + cluster.launch
        duration = mean * math.exp(sigma * rng.standard_normal() - sigma**2 / 2)
        fails = rng.random() < cluster.failing
        end = start + duration * (rng.random() if fails else 1.0)
        heapq.heappush(running, (end, worker, fails))

    for worker in range(min(waiting, workers)):
        launch(worker)
    idle: set[int] = set(range(workers)) - {worker for _, worker, _ in running}
    while running:
        now, worker, fails = heapq.heappop(running)
        if lives[worker] < now:  # lost meanwhile, replaced at once: its attempt and what it had done are repeated
            waiting += 1 + done[worker]
            done[worker], lives[worker] = 0, now + rng.exponential(1 / cluster.lost)
        elif fails:
            waiting += 1
        else:
            done[worker] += 1
        idle.add(worker)
        while waiting and idle:
            launch(idle.pop())
    return now


# --- The report ------------------------------------------------------------------------------------


def report(cluster: Cluster, events: int) -> None:
    """A table of phases; raises AssertionError where simulation and closed form differ."""
    rng = np.random.default_rng(1)
    print(
        f"n = {cluster.people:.0e}, d = {cluster.features}, {cluster.workers} workers, {cluster.partitions} partitions"
    )
    print(f"{'phase':<34}{'tasks':>8}{'task, s':>10}{'closed, s':>11}{'simulated, s':>14}{'TB moved':>10}")
    total = cluster.at_driver()
    for level in range(cluster.levels + 1):
        expected = expected_stage(cluster, level)
        repeats = max(1, events // cluster.tasks_at(level))  # the longest of few tasks varies a lot
        found = float(np.mean([simulated_stage(cluster, level, rng) for _ in range(repeats)]))
        name = "read and sum partitions" if level == 0 else f"merge, level {level}"
        size = (
            cluster.people * cluster.features * 8
            if level == 0
            else cluster.tasks_at(level - 1) * cluster.sum_bytes(level - 1)
        )
        print(
            f"{name:<34}{cluster.tasks_at(level):>8}{cluster.duration(level):>10.3g}{expected:>11.4g}{found:>14.4g}"
            f"{size / 1e12:>10.3g}"
        )
        assert abs(found / expected - 1) < TOLERANCE, (level, expected, found)
        total += expected
    received = cluster.tasks_at(cluster.levels)
    size = received * cluster.sum_bytes(cluster.levels)
    print(f"{'the driver':<34}{received:>8}{'':>10}{cluster.at_driver():>11.4g}{'':>14}{size / 1e12:>10.3g}")
    print(f"in all {total:.0f} s, {cluster.people / total / cluster.workers:.3g} rows a second and worker")
    print(f"the driver receives {size / 1e9:.3g} GB (1 GB by default)\n")


def check_widths(doublings: int) -> int:
    """Sums over more than 10^10 people, by merging copies: equal to Python's integers, which have no width."""
    rows = np.zeros((1000, 3))
    rows[:, 0] = 1.0
    rows[::2, :2] = [0.6, -0.8]
    layout = layout_of(dpgep.models.PcaModel(3, center=True), PublicFacts("replace-one", 1.0, None))
    sums = ExactMomentAccumulator(layout, 20)
    sums.add(Batch(Rows((rows,), 1.0)))
    expected = [int(value) for value in sums.copy().limbs()[0].ravel()]
    for _ in range(doublings):
        sums.merge(sums.copy())
    low, high = sums.limbs()
    assert high is not None
    for value, small, large in zip(expected, low.ravel(), high.ravel(), strict=True):
        assert value << doublings == (int(large) << 40) + int(small)
    assert max(expected) << doublings > 1 << 63
    return sums.n


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rows and runs")
    quick = parser.parse_args().quick
    n = check_widths(24)
    print(f"sums over {n:.3g} people are exact: an entry has up to {math.log2(n) + 40:.1f} bits, of 103 in two limbs")
    row, merge = measured(1000, 1000 if quick else 8000)
    print(f"measured: {row * 1e6:.3g} us a row, {merge * 1e3:.3g} ms a merge, d = 1000, one thread\n")
    base = Cluster(sum_row=row, merge=merge)
    events = 50_000 if quick else 130_000
    report(base, events)
    for change in (
        {"partitions": 625_000},
        {"spread": 1.0},
        {"features": 100, "sum_row": 0.6e-6, "read_row": 3e-6, "merge": 1e-4},
    ):
        if not quick or "partitions" not in change:
            print(change)
            report(replace(base, **change), events)


if __name__ == "__main__":
    main()
