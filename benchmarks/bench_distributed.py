"""Two Dask workers against one, each a process of one thread: exact moments, the same bits.

One cluster lives at a time, A and B alternating: scheduler and workers of another would share the processors.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import dask.array
import distributed
import numpy as np
import support

import dpgep

TARGET = 1.6
ROUNDS = 1 if support.QUICK else 5
N_PARTS = 16
N_FEATURES = 784


def part(seed: int, n: int) -> support.Matrix:
    return np.random.default_rng(seed).standard_normal((n, N_FEATURES)) / 28


@contextmanager
def rows_on(n_workers: int, n: int) -> Iterator[tuple[distributed.Client, Any]]:
    """Workers of one thread that hold the rows in memory, as many parts each."""
    with (
        distributed.LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        workers = sorted(client.scheduler_info(n_workers=n_workers)["workers"])
        height = n // N_PARTS
        futures = [
            client.submit(part, i, height, workers=workers[i % n_workers], allow_other_workers=False)
            for i in range(N_PARTS)
        ]
        with client.as_current():
            distributed.wait(futures)
            blocks = [dask.array.from_delayed(future, (height, N_FEATURES), dtype=float) for future in futures]
        yield client, dask.array.concatenate(blocks)


def seconds_on(n_workers: int, n: int, model: dpgep.models.PcaModel, expected: bytes) -> float:
    """Of the second of two runs: the first imports this package on the workers."""
    with rows_on(n_workers, n) as (client, rows):
        for _ in range(2):
            start = time.perf_counter()
            moments = dpgep.Moments(model, bound=1.0)
            moments.update(rows, client=client)
            seconds = time.perf_counter() - start
            assert support.bytes_of(moments) == expected
    return seconds


def test_two_workers_against_one(benchmark: Any) -> None:
    n = 6400 if support.QUICK else 240_000
    model = dpgep.models.PcaModel(N_FEATURES, center=True)
    whole = dpgep.Moments(model, bound=1.0)
    for i in range(N_PARTS):
        whole.update(part(i, n // N_PARTS), n_threads=1)
    run = partial(seconds_on, n=n, model=model, expected=support.bytes_of(whole))
    ones, twos = [run(1)], [benchmark.pedantic(run, (2,), rounds=1)]
    for _ in range(ROUNDS - 1):
        ones.append(run(1))
        twos.append(run(2))
    one, two = statistics.median(ones), statistics.median(twos)
    support.say(
        f"exact moments of {n} x {N_FEATURES} in {N_PARTS} parts: two workers {two:.3g} s, one {one:.3g} s "
        f"(medians of {ROUNDS}, alternating)"
    )
    support.judge("exact moments, speed-up by a second worker", one / two, TARGET, at_least=True)
