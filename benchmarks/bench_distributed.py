"""Two Dask workers against one, each a process of one thread: exact moments, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.array
import distributed
import numpy as np
import support

import dpgep
import dpgep.distributed

TARGET = 1.6
ROUNDS = 2 if support.QUICK else 5
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


def test_two_workers_against_one(benchmark: Any) -> None:
    n = 6400 if support.QUICK else 240_000
    model = dpgep.PcaModel(N_FEATURES, center=True)
    whole = dpgep.Moments(model)
    for i in range(N_PARTS):
        whole.update(part(i, n // N_PARTS), n_threads=1)
    with rows_on(1, n) as (one, rows_of_one), rows_on(2, n) as (two, rows_of_two):

        def on_one() -> dpgep.Moments:
            return dpgep.distributed.moments(model, rows_of_one, client=one)

        def on_two() -> dpgep.Moments:
            return dpgep.distributed.moments(model, rows_of_two, client=two)

        assert on_one().to_bytes() == on_two().to_bytes() == whole.to_bytes()
        times = support.alternate(benchmark, on_two, on_one, ROUNDS)
    support.say(
        f"exact moments of {n} x {N_FEATURES} in {N_PARTS} parts: two workers {times.ours:.3g} s, one "
        f"{times.theirs:.3g} s (medians of {ROUNDS}, alternating)"
    )
    support.judge("exact moments, speed-up by a second worker", 1 / times.ratio, TARGET, at_least=True)
