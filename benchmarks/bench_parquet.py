"""FDA and CCA on Parquet files ten times larger than the address space that the process may have.

The same bits as from an array in memory, and a speed beside that of pyarrow, which reads the same columns of the same
files in the same process, A and B alternating. The time of the rank-k update alone (dsyrk on blocks in memory, in its
fastest way on as many threads) shows whether arithmetic is the limit: reading and update share the processors.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support
from numpy.typing import NDArray

D = 100
GROUP_ROWS = 1 << 17
N_GROUPS = 2 if support.QUICK else 192
READ_BUFFER = 1 << 18
ROUNDS = 1  # of a minute: ten gigabytes average over enough
# The whole address space of the process, as by `ulimit -v`: the imports take 0.47e9 of it, all of it is 0.85e9 at most.
LIMIT = 1.0e9
UPDATED_ROWS = 50_000 if support.QUICK else 2_000_000
# Threads and allocators reserve address space ahead: a stack for each thread, an arena for each, 1 GB for a pool.
ENVIRONMENT = {
    **dict.fromkeys(("DPGEP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "2"),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
}
NAMES = [f"x{i}" for i in range(D)]
CLASSES = [0, 1, 2, 3]
MODELS = ("fda", "cca")


def group(number: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Rows of a row group, about half of them beyond the bound, and their classes."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, len(CLASSES), GROUP_ROWS, dtype=np.int8)
    x = rng.standard_normal((GROUP_ROWS, D), dtype=np.float32)
    x[:, 50:] += x[:, :50]
    x[:, : len(CLASSES)] += np.eye(len(CLASSES), dtype=np.float32)[labels]
    return x, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    import pyarrow as pa
    import pyarrow.parquet

    made = tmp_path_factory.mktemp("parquet")
    files = 1 if support.QUICK else 8
    for file in range(files):
        path = made / f"part-{file}.parquet"
        schema = pa.schema([*((name, pa.float32()) for name in NAMES), ("label", pa.int8())])
        with pyarrow.parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for number in range(file * N_GROUPS // files, (file + 1) * N_GROUPS // files):
                x, labels = group(number)
                columns = [*(np.ascontiguousarray(column) for column in x.T), labels]
                writer.write_table(pa.table(columns, schema=schema), row_group_size=GROUP_ROWS)
    yield made
    for path in made.iterdir():
        path.unlink()


def problem(model: str, x: Any, labels: Any) -> Any:
    import dpgep

    if model == "cca":
        return dpgep.cca(x[0], x[1], bound=12.0)
    return dpgep.fda(x[0], labels, classes=CLASSES, bound=12.0)


def solution_digest(given: Any) -> str:
    """Of the whole release, which is exact; LAPACK's last bits depend on how many threads it can start."""
    import dpgep

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        released = dpgep.release(given, seed=1, epsilon=1.0, delta=1e-9)
        assert released.solve(n_components=3).components.shape[0] == 3
    values = (released.second_moment, released._noisy.sums, released._noisy.counts)
    return hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in values)).hexdigest()


def streamed(model: str, folder: Path) -> Any:
    import dpgep

    source = dpgep.scan(folder, progress=False)
    views = (source[NAMES[:50]], source[NAMES[50:]]) if model == "cca" else (source[NAMES],)
    return problem(model, views, source["label"])


def read_by_pyarrow(model: str, folder: Path) -> int:
    """The same columns, batch by batch, and nothing done with them.

    Through buffers, which is as fast: by default pyarrow holds whole row groups, for which the limit has no room.
    """
    import pyarrow.dataset

    columns = NAMES if model == "cca" else [*NAMES, "label"]
    buffered = pyarrow.dataset.ParquetFragmentScanOptions(
        pre_buffer=False, use_buffered_stream=True, buffer_size=READ_BUFFER
    )
    batches = pyarrow.dataset.dataset(folder).to_batches(
        columns=columns,
        batch_size=GROUP_ROWS // 4,
        batch_readahead=1,
        fragment_readahead=1,
        fragment_scan_options=buffered,
    )
    return sum(batch.num_rows for batch in batches)


def child(model: str, folder: Path) -> None:
    import pyarrow.dataset
    import pyarrow.parquet  # noqa: F401

    import dpgep  # noqa: F401

    ours, theirs, digests = [], [], set()
    for _ in range(ROUNDS):
        start = time.perf_counter()
        resource.setrlimit(resource.RLIMIT_AS, (int(LIMIT), resource.RLIM_INFINITY))
        digests.add(solution_digest(streamed(model, folder)))
        middle = time.perf_counter()
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert read_by_pyarrow(model, folder) == N_GROUPS * GROUP_ROWS
        ours.append(middle - start)
        theirs.append(time.perf_counter() - middle)
    (digest,) = digests
    times = {"ours": statistics.median(ours), "theirs": statistics.median(theirs), "update": update_seconds()}
    print(json.dumps({"digest": digest, **times}))


def update_seconds() -> float:
    """Seconds of dsyrk alone for all rows, by threads of BLAS or by ours, each with blocks that stay in its cache."""
    import threadpoolctl

    update()
    start = time.perf_counter()
    update()
    of_blas = time.perf_counter() - start
    n_threads = int(ENVIRONMENT["OPENBLAS_NUM_THREADS"])
    with threadpoolctl.threadpool_limits(1):
        helpers = [threading.Thread(target=update) for _ in range(n_threads)]
        start = time.perf_counter()
        for helper in helpers:
            helper.start()
        for helper in helpers:
            helper.join()
        of_ours = (time.perf_counter() - start) / n_threads
    return min(of_blas, of_ours) / UPDATED_ROWS * N_GROUPS * GROUP_ROWS


def update() -> None:
    """Rank-k updates of UPDATED_ROWS rows, as kernels of SciPy without the GIL."""
    from dpgep.data.rows import add_gram

    block = np.random.default_rng(0).standard_normal((1250, D))
    total = np.zeros((D, D))
    for _ in range(UPDATED_ROWS // len(block)):
        add_gram(block, total)


def in_memory_digest(model: str) -> str:
    x = np.empty((N_GROUPS * GROUP_ROWS, D), dtype=np.float32)
    labels = np.empty(len(x), dtype=np.int8)
    for number in range(N_GROUPS):
        rows = slice(number * GROUP_ROWS, (number + 1) * GROUP_ROWS)
        x[rows], labels[rows] = group(number)
    views = (x[:, :50], x[:, 50:]) if model == "cca" else (x,)
    return solution_digest(problem(model, views, labels))


def in_child(*arguments: str) -> Any:
    """What a process of this file prints: with a folder, its files under the limit; without, the rows in memory."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **ENVIRONMENT})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("model", MODELS)
def test_files_beyond_memory(benchmark: Any, model: str, folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.iterdir())
    figures = benchmark.pedantic(in_child, (model, str(folder)), rounds=1, iterations=1)
    # in a process with as many threads: the last bits of LAPACK depend on them
    assert figures["digest"] == in_child(model)["digest"]
    support.say(
        f"{model}: {size / 1e9:.2f} GB of Parquet in {LIMIT / 1e9:.2f} GB of address space; "
        f"{figures['ours']:.1f} s, pyarrow alone {figures['theirs']:.1f} s, dsyrk alone {figures['update']:.1f} s"
    )
    support.judge(f"{model}: file / limit", size / LIMIT, 10.0, at_least=True)
    support.say(f"{model}: speed, of pyarrow's reading alone: {figures['theirs'] / figures['ours']:.2f}")
    bound = figures["theirs"] + figures["update"]  # each of them has all processors
    support.judge(
        f"{model}: speed, of reading and dsyrk one after the other", bound / figures["ours"], 0.6, at_least=True
    )


if __name__ == "__main__":
    if len(sys.argv) > 2:
        child(sys.argv[1], Path(sys.argv[2]))
    else:
        print(json.dumps({"digest": in_memory_digest(sys.argv[1])}))
