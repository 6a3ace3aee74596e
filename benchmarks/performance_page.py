"""Figures of docs/performance.md: processor seconds of exact sums, of their private solution, and of sparse rows.

`python benchmarks/performance_page.py` prints them, medians of three on one thread. It asserts that sums have the bits
of the same rows in another form (float64, filled in); `--quick` takes a tenth of the rows.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import support
from scipy import sparse

import dpgep


def processor_seconds(call: Callable[[], Any]) -> float:
    found = []
    for _ in range(3):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return median(found)


def summed(rows: Any, bound: float, *, center: bool) -> tuple[float, dpgep.Moments]:
    """Seconds of one update, and the sums after one."""

    def new() -> dpgep.Moments:
        moments = dpgep.Moments(dpgep.models.PcaModel(rows.shape[1], center=center), bound=bound)
        moments.update(rows, n_threads=1)
        return moments

    return processor_seconds(new), new()


def of_columns(n: int, d: int, rng: np.random.Generator) -> tuple[float, float]:
    """Seconds of the sums and of their solution."""
    rows = rng.standard_normal((n, d)).astype(np.float32) / 40
    seconds, moments = summed(rows, 2.0, center=True)
    assert support.bytes_of(moments) == support.bytes_of(summed(rows.astype(float), 2.0, center=True)[1])

    def solve() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", dpgep.errors.AccuracyWarning
            )  # rows without directions: nobody reads the answer
            dpgep.solve(moments, epsilon=1.0, delta=1e-6, n_components=3, n_threads=1)

    return seconds, processor_seconds(solve)


def of_sparse_rows(n: int) -> tuple[float, float]:
    """Seconds of sums of CSR rows, and of the same rows filled in."""
    # no row is beyond the bound: the norm of one that is clipped may round differently in the two forms
    rows = sparse.random(n, 1000, density=0.01, random_state=0, format="csr", dtype=np.float32)
    (fast, one), (slow, two) = (summed(form, 8.0, center=False) for form in (rows, rows.toarray()))
    assert support.bytes_of(one) == support.bytes_of(two)
    return fast, slow


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    tenth = 10 if parser.parse_args().quick else 1
    rng = np.random.default_rng(0)
    print("columns  Moments.update  solve")
    for d in (50, 100, 200, 400, 800):
        update, solve = of_columns(50_000 // tenth, d, rng)
        print(f"{d:7}  {update:14.2g}  {solve:5.2g}", flush=True)
    fast, slow = of_sparse_rows(100_000 // tenth)
    print(f"1000 columns, 1 % nonzeros: CSR {fast:.2g}, filled in {slow:.2g}")


if __name__ == "__main__":
    main()
