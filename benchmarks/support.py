"""What the benchmarks share: data, alternating timings, and lines that set a measured figure beside its target."""

from __future__ import annotations

import io
import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dpgep

Matrix = NDArray[np.float64]

# Small sizes, few repetitions; timings and memory are printed but not judged. Correctness is asserted all the same.
QUICK = os.environ.get("DPGEP_BENCH_QUICK") == "1"

lines: list[str] = []


def say(line: str) -> None:
    """A line for the report: the end of a pytest run prints them all."""
    lines.append(line)


def bytes_of(kept: Any) -> bytes:
    """What sums of moments write."""
    buffer = io.BytesIO()
    kept.save(buffer)
    return buffer.getvalue()


def judge(what: str, measured: float, target: float, *, at_least: bool = False, always: bool = False) -> None:
    """Print target and measured figure; fail where the target is missed, in quick mode only if ``always``."""
    met = measured >= target if at_least else measured <= target
    judged = always or not QUICK
    verdict = "met" if met else "MISSED"
    sign = ">=" if at_least else "<="
    say(f"{what}: target {sign} {target:g} / measured {measured:.4g}  ({verdict if judged else 'not judged'})")
    assert met or not judged, lines[-1]


def data_set(name: str) -> Any:
    """The arrays of ``$DPGEP_DATA/<name>.npz``; FileNotFoundError says what is missing."""
    folder = os.environ.get("DPGEP_DATA")
    if not folder:
        raise FileNotFoundError(f"DPGEP_DATA is not set: it names the folder with {name}.npz (benchmarks/README.md)")
    path = Path(folder) / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(f"DPGEP_DATA has no {name}.npz (benchmarks/README.md says what it holds)")
    return np.load(path, allow_pickle=False)


def unit_rows(x: NDArray[Any]) -> Matrix:
    """The rows as float64, each divided by its Euclidean norm; rows of zeros stay."""
    rows = x.astype(np.float64)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    rows /= np.where(norms > 0, norms, 1.0)[:, None]
    return rows


def mnist() -> tuple[Matrix, NDArray[Any], Matrix, NDArray[Any]]:
    """Training rows and labels, test rows and labels; rows of unit norm."""
    with data_set("mnist") as arrays:
        return unit_rows(arrays["x_train"]), arrays["y_train"], unit_rows(arrays["x_test"]), arrays["y_test"]


def a9a() -> tuple[Matrix, NDArray[Any], Matrix, NDArray[Any]]:
    """Training rows and labels, test rows and labels; the sparse 0-1 matrices made dense."""
    with data_set("a9a") as arrays:
        parts: list[Any] = []
        for which in ("train", "test"):
            dense = np.zeros(arrays[f"shape_{which}"])
            counts = np.diff(arrays[f"indptr_{which}"])
            dense[np.repeat(np.arange(len(dense)), counts), arrays[f"indices_{which}"]] = 1.0
            parts += [dense, arrays[f"y_{which}"]]
    return parts[0], parts[1], parts[2], parts[3]


def digits() -> tuple[Matrix, NDArray[Any]]:
    """scikit-learn's digits (1797 x 64), rows of unit norm, and their labels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return unit_rows(bunch.data), bunch.target


def squared_sine_distance(rows: Matrix, reference: Matrix) -> float:
    """Sum of the squared sines of the angles between the spans of two sets of K rows: 0 if equal, K if orthogonal."""
    q, r = np.linalg.qr(rows.T)[0], np.linalg.qr(reference.T)[0]
    # the part of each reference direction outside the span: no cancellation for spans that agree
    return float(np.linalg.norm(r - q @ (q.T @ r)) ** 2)


def solve_seeded(problem: Any, seed: int, **arguments: Any) -> dpgep.Solution:
    """`dpgep.solve` with a seed, so that a figure can be reproduced. A seeded run is not private."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        return dpgep.solve(problem, seed=seed, **arguments)


@dataclass(frozen=True)
class Comparison:
    """Medians of alternating timings in seconds."""

    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def alternate(
    benchmark: Any,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int,
    rest: float = 0.0,
    calls: int = 1,
) -> Comparison:
    """Time A, B, A, B, ... in this process, one round of both first for warming up; medians.

    pytest-benchmark's table shows ours; the competitor runs in the set-up of each round. Both begin after ``rest``
    seconds without work: threads of BLAS spin for some 25 ms after a product and would take a core from ours. A core
    that slept takes milliseconds to come back, for either side: a round is the mean of ``calls`` in a row, as in an
    iteration.
    """
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}

    def timed(who: str, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds[who].append((time.perf_counter() - start) / calls)

    ours()
    theirs()

    def set_up() -> None:
        time.sleep(rest)
        timed("theirs", theirs)
        time.sleep(rest)

    benchmark.pedantic(timed, args=("ours", ours), setup=set_up, rounds=rounds)
    comparison = Comparison(*(statistics.median(seconds[who]) for who in ("ours", "theirs")))
    benchmark.extra_info.update(ours=comparison.ours, theirs=comparison.theirs, ratio=comparison.ratio)
    return comparison
