"""The kernels over their floor: how much of what memory or BLAS can do, measured in the same rounds, they reach.

    python benchmarks/kernels.py [--quick] [--threads 1 2] [--variants baseline v3] [--only NAME] [--json FILE]

A kernel that moves bytes has as its floor a sweep over as many: a dot product of what it reads, or a copy where it
writes as much as it reads, to where it writes. One that multiplies has BLAS's product of the same shape. A line shows
medians over alternating rounds, of processor seconds where there is one thread, and the share floor/kernel: 1 is all
that can be had. `benchmarks/check.py` compares two builds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import threadpoolctl
from numpy.typing import NDArray

from dpgep._dispatch import available_variants
from dpgep.data.integer_sums import PLACE_BITS
from dpgep.data.rows import block_height
from dpgep.models.bins import FIRST_OCTAVE, N_OCTAVES, NORM_STEPS

BITS = 20
# Bytes of the largest array of a kernel: in the second cache, about the last one, beyond all.
SIZES, QUICK_SIZES = (1 << 20, 1 << 25, 1 << 30), (1 << 20,)
ROUNDS, QUICK_ROUNDS, SECONDS = 9, 3, 0.02
_TOO_SMALL_FOR_THREADS = 1 << 23
# Wanted beyond the last cache; of sparse rows, whose entries are read from anywhere; of stages, which divide and count.
TARGET, SPARSE_TARGET, STAGE_TARGET = 0.7, 0.5, 0.6


Stage = Callable[[Any, NDArray[np.float64], Any, int], NDArray[Any]]


class Work(NamedTuple):
    """A call of a kernel, what does the least of the same work, and whether the answer of the kernel is right."""

    kernel: Callable[[], Any]
    floor: Callable[[], Any]
    is_right: Callable[[], bool]


@dataclass(frozen=True)
class Line:
    """What was measured of one kernel: medians in seconds."""

    name: str
    variant: str
    threads: int
    megabytes: float
    seconds: float
    floor: float

    @property
    def share(self) -> float:
        return self.floor / self.seconds


class Bench:
    """One variant on so many threads."""

    def __init__(self, variant: str, n_threads: int) -> None:
        self.core = importlib.import_module(f"dpgep._core_{variant}")
        self.n_threads = n_threads
        self.rng = np.random.default_rng(0)
        self._pool = ThreadPoolExecutor(n_threads)

    def in_threads(self, call: Callable[..., Any], *arrays: NDArray[Any]) -> Callable[[], Any]:
        """``call`` on a part of the arrays for each thread; of small ones, where that takes longer, on all at once."""
        if self.n_threads == 1 or arrays[0].nbytes < _TOO_SMALL_FOR_THREADS:
            return partial(call, *arrays)
        parts = list(zip(*(np.array_split(each, self.n_threads) for each in arrays), strict=True))
        return lambda: list(self._pool.map(lambda part: call(*part), parts))

    def in_blocks(self, call: Callable[..., Any], x: NDArray[np.float64]) -> Callable[[], Any]:
        """``call`` on block after block of rows and the same memory for each, as the library has one in each thread."""
        height, d = block_height(*x.shape), x.shape[1]

        def sweep(rows: NDArray[np.float64], buffer: NDArray[np.float64]) -> None:
            for first in range(0, len(rows), height):
                block = rows[first : first + height]
                call(block, buffer[: len(block)])

        n_parts = self.n_threads if x.nbytes >= _TOO_SMALL_FOR_THREADS else 1
        parts = [(rows, np.zeros((height, d))) for rows in np.array_split(x, n_parts)]
        return partial(sweep, *parts[0]) if n_parts == 1 else lambda: list(self._pool.map(lambda p: sweep(*p), parts))

    def reading(self, array: NDArray[Any]) -> Callable[[], Any]:
        """A sweep over the bytes of an array."""
        flat = array.reshape(-1).view(np.float64)
        return self.in_threads(np.dot, flat, flat)

    def copying(self, array: NDArray[Any]) -> Callable[[], Any]:
        flat = array.reshape(-1)
        return self.in_threads(np.copyto, np.zeros_like(flat), flat)

    # --- the kernels, each on arrays of so many bytes ---

    def rows(self, size: int, d: int = 200) -> NDArray[np.float64]:
        rows = self.rng.standard_normal((max(size // (8 * d), 1), d))
        rows /= 1.25 * np.sqrt(d)
        return rows

    def product_with_a_vector(self, size: int) -> Work:
        """X^T (X v): the rows once."""
        x = self.rows(size)
        v = self.rng.standard_normal((1, x.shape[1]))
        products = self.core.DenseRows([x], np.ones(len(x)), 1.0, self.n_threads)
        return Work(
            lambda: products.times(v), self.reading(x), lambda: np.allclose(products.times(v)[0], x.T @ (x @ v[0]))
        )

    def product_of_sparse_rows(self, size: int) -> Work:
        """X^T (X v), X with one entry in fifty: entries and their places once."""
        n, d = max(size // (12 * 10), 1), 500
        x = scipy.sparse.random(n, d, density=10 / d, format="csr", random_state=self.rng)
        v = self.rng.standard_normal((1, d))
        places = x.indices.astype(np.int32), x.indptr.astype(np.int32)
        products = self.core.CsrRows(x.data, *places, d, np.ones(n), 1.0, self.n_threads)
        read = np.empty((x.data.nbytes + places[0].nbytes) // 8)
        read.fill(1.0)
        return Work(
            lambda: products.times(v), self.reading(read), lambda: np.allclose(products.times(v)[0], x.T @ (x @ v[0]))
        )

    def product_of_a_symmetric_matrix(self, size: int) -> Work:
        """A v: one triangle."""
        d = int((size / 8) ** 0.5)
        a = self.rng.standard_normal((d, d))
        a += a.T
        v = self.rng.standard_normal((1, d))
        matrices = self.core.SymmetricMatrices(a, None, self.n_threads)
        return Work(
            lambda: matrices.times(v),
            self.reading(a.reshape(-1)[: d * (d + 1) // 2]),
            lambda: np.allclose(matrices.times(v)[0][0], a @ v[0]),
        )

    def rows_in_fixed_point(self, size: int) -> Work:
        """Rows clipped, scaled and rounded: read from memory once, written to a block that stays in the cache."""
        x = self.rows(size)
        unit, errors = 2.0**BITS, list[float]()

        def kernel(rows: NDArray[np.float64], out: NDArray[np.float64]) -> None:
            self.core.fixed_point_rows(rows, 1.0, BITS, out, 1)

        def compare(rows: NDArray[np.float64], out: NDArray[np.float64]) -> None:
            kernel(rows, out)
            norms = np.linalg.norm(rows, axis=1, keepdims=True)
            errors.append(np.abs(out - unit * rows / np.maximum(norms, 1.0)).max())

        def is_right() -> bool:
            self.in_blocks(compare, x)()
            return max(errors) <= 1.001

        return Work(self.in_blocks(kernel, x), self.in_blocks(lambda rows, out: np.copyto(out, rows), x), is_right)

    def stage(self, size: int, call: Stage) -> Work:
        """A stage of preprocessing on 25 columns in units of their own: the rows once. Right as without registers."""
        d = 25
        x = self.rows(size, d) * np.exp(self.rng.normal(0.0, 2.0, d)) + self.rng.normal(0.0, 2.0, d)
        ends = x.mean(axis=0), 3 * x.std(axis=0)
        plain = importlib.import_module("dpgep._core_baseline")
        return Work(
            lambda: call(self.core, x, ends, self.n_threads),
            self.reading(x),
            lambda: np.array_equal(call(self.core, x, ends, self.n_threads), call(plain, x, ends, 1)),
        )

    def narrow_moments(self, size: int) -> Work:
        """The exact moment matrix of rows of 20 features: by one kernel, beside BLAS's of rows in float64.

        BLAS by NumPy, which makes ``dsyrk`` of such a product and lets other threads run, as SciPy's wrapper does not.
        """
        return self._moments(size, 20)

    def _moments(self, size: int, d: int) -> Work:
        x = self.rows(size, d)
        total = np.zeros((d + 1, d + 1), dtype=np.int64)

        def kernel() -> None:
            total[:] = 0
            self.core.add_dense_moments(x, 0, len(x), None, 1, 1.0, BITS, total, self.n_threads)

        def is_right() -> bool:
            kernel()
            clipped = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
            second = np.triu(total[:d, :d]) / 4.0**BITS
            return np.allclose(second, np.triu(clipped.T @ clipped), atol=1e-4 * len(x) ** 0.5, rtol=1e-4)

        return Work(kernel, self.in_threads(lambda part: part.T @ part, x), is_right)

    def fold_of_sums(self, size: int) -> Work:
        """Sums in float64 added to those in int64, and set to zero: a triangle of each read and written."""
        d = int((size / 8) ** 0.5)
        block, total = np.zeros((d, d)), np.zeros((d, d), dtype=np.int64)

        def is_right() -> bool:
            block[:], total[:] = 3.0, 4
            self.core.fold_triangle(block, total, self.n_threads)
            right = bool((np.triu(total) == 7 * np.triu(np.ones_like(total))).all() and not np.triu(block).any())
            return right

        return Work(
            lambda: self.core.fold_triangle(block, total, self.n_threads), self.copying(np.ones(d * (d + 1))), is_right
        )

    def checksum(self, size: int) -> Work:
        """Of the bytes of a part, by which passes are compared: they and two keys are read."""
        data = self.rng.integers(0, 256, size, dtype=np.uint8)
        keys = [self.rng.integers(0, 1 << 61, size // 8, dtype=np.uint64) for _ in range(2)]
        first = self.core.keyed_sums(data, *keys)
        return Work(
            lambda: self.core.keyed_sums(data, *keys),
            self.reading(np.ones(3 * size // 8)),
            lambda: first == self.core.keyed_sums(data.copy(), *keys),
        )


def magnitudes(core: Any, x: NDArray[np.float64], ends: Any, n_threads: int) -> NDArray[Any]:
    counts = np.zeros((x.shape[1], 2, N_OCTAVES + 1), dtype=np.int64)
    core.count_magnitudes(x, np.arange(x.shape[1]), False, FIRST_OCTAVE, N_OCTAVES, counts, n_threads)
    return counts


def places(core: Any, x: NDArray[np.float64], ends: Any, n_threads: int) -> NDArray[Any]:
    counts = np.zeros((x.shape[1], 32), dtype=np.int64)
    core.count_places(x, np.arange(x.shape[1]), False, *ends, counts, n_threads)
    return counts


def sums_of_places(core: Any, x: NDArray[np.float64], ends: Any, n_threads: int) -> NDArray[Any]:
    counts = np.zeros((3, x.shape[1]), dtype=np.int64)
    core.sum_places(x, False, *ends, PLACE_BITS, counts, n_threads)
    return counts


def norms(core: Any, x: NDArray[np.float64], ends: Any, n_threads: int) -> NDArray[Any]:
    counts = np.zeros(400, dtype=np.int64)
    core.count_norms(x, 2.0 ** (np.arange(1, NORM_STEPS) / NORM_STEPS - 1), -2000, -200, counts, n_threads)
    return counts


def map_of_rows(core: Any, x: NDArray[np.float64], ends: Any, n_threads: int) -> NDArray[Any]:
    """By blocks, into memory that stays in the cache: the last of them."""
    height = block_height(*x.shape)
    out = np.empty((min(height, len(x)), x.shape[1]))
    for first in range(0, len(x), height):
        block = x[first : first + height]
        core.map_rows(block, *ends, 6.0, False, out[: len(block)], n_threads)
    return out


KERNELS = {
    "X^T(X v)": Bench.product_with_a_vector,
    "X^T(X v), sparse": Bench.product_of_sparse_rows,
    "A v, symmetric": Bench.product_of_a_symmetric_matrix,
    "rows in fixed point": Bench.rows_in_fixed_point,
    "exact moments, d = 20": Bench.narrow_moments,
    "sums folded": Bench.fold_of_sums,
    "stage: magnitudes": partial(Bench.stage, call=magnitudes),
    "stage: places": partial(Bench.stage, call=places),
    "stage: sums of places": partial(Bench.stage, call=sums_of_places),
    "stage: norms": partial(Bench.stage, call=norms),
    "stage: map of rows": partial(Bench.stage, call=map_of_rows),
    "checksum": Bench.checksum,
}
# Those that take no number of threads.
ON_ONE_THREAD = {"checksum"}


def measured(
    kernel: Callable[[], Any], floor: Callable[[], Any], rounds: int, clock: Callable[[], float]
) -> tuple[float, float]:
    """Medians of both in seconds, each round as many calls as take ``SECONDS``."""
    times: list[list[float]] = []
    for call in (kernel, floor):
        start = time.perf_counter()
        call()
        times.append([max(1, int(SECONDS / (time.perf_counter() - start)))])
    counts = [each.pop() for each in times]
    for _ in range(rounds):
        for call, count, found in zip((kernel, floor), counts, times, strict=True):
            start = clock()
            for _ in range(count):
                call()
            found.append((clock() - start) / count)
    return statistics.median(times[0]), statistics.median(times[1])


def lines(
    variants: list[str], threads: list[int], sizes: tuple[int, ...], rounds: int, only: str = ""
) -> Iterator[Line]:
    """Measure every kernel whose name holds ``only``; AssertionError if an answer is wrong."""
    with threadpoolctl.threadpool_limits(1, user_api="blas"):
        for name, make in KERNELS.items():
            for size in sizes if only in name else ():
                for variant in variants:
                    for n_threads in [1] if name in ON_ONE_THREAD else threads:
                        work = make(Bench(variant, n_threads), size)
                        assert work.is_right(), name
                        clock = time.process_time if n_threads == 1 else time.perf_counter
                        seconds = measured(work.kernel, work.floor, rounds, clock)
                        yield Line(name, variant, n_threads, size / 1e6, *seconds)


def last_cache() -> int:
    """Bytes of the processor's last cache; where nothing says it, 64 MB."""
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) << 10 for size in sizes if size.endswith("K")), default=64 << 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small arrays, three rounds; nothing is judged")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--variants", nargs="+", default=list(available_variants()))
    parser.add_argument("--only", default="", metavar="NAME", help="kernels whose name holds this")
    parser.add_argument("--megabytes", type=int, nargs="+", help="sizes of the largest array")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    chosen = parser.parse_args()
    sizes, rounds = (QUICK_SIZES, QUICK_ROUNDS) if chosen.quick else (SIZES, ROUNDS)
    sizes = tuple(size << 20 for size in chosen.megabytes) if chosen.megabytes else sizes
    found, missed = [], 0
    print(f"| kernel | variant | threads | MB | ms | floor, ms | share |\n|{'---|' * 7}")
    for line in lines(chosen.variants, chosen.threads, sizes, rounds, chosen.only):
        found.append(asdict(line))
        is_beyond = line.megabytes * 1e6 > 2 * last_cache()
        target = SPARSE_TARGET if "sparse" in line.name else STAGE_TARGET if "stage" in line.name else TARGET
        is_missed = is_beyond and line.share < target
        missed += is_missed and not chosen.quick
        print(
            f"| {line.name} | {line.variant} | {line.threads} | {line.megabytes:.0f} | {1e3 * line.seconds:.3g} | "
            f"{1e3 * line.floor:.3g} | {line.share:.2f}{' (missed)' if is_missed else ''} |",
            flush=True,
        )
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
