"""What people run, beside what they would run without privacy: no bound is known, columns are in units of their own.

    python benchmarks/defaults.py [--quick] [--only standardized sir ...] [--rows 1000000] [--json FILE]

Same rows, same process, alternating: medians of wall seconds, and of processor seconds of all threads. Each run is
first held against the peer's answer, without noise. Files are made in a temporary folder (`--megabytes`, default 500)
and their peer reads them with pyarrow once for each pass that the private fit took.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import scipy.sparse.linalg
import support
from peers import spiked
from sklearn.cross_decomposition import CCA, PLSSVD
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from statsmodels.regression.dimred import SlicedInverseReg

import dpgep

Run = Callable[[float], Any]
K, SLICES = 2, 10
ROUNDS, QUICK_ROUNDS = 7, 2
REST = 0.15  # seconds before each run: threads of OpenBLAS stay awake for 0.1 s after the other side's work
# Squared sines between planes: a fit without noise is on a grid. Some peers stop early or cut slices elsewhere.
TOLERANCE, OF_ROUGH_PEERS = 1e-2, 1e-1


class Case(NamedTuple):
    """A private run as a function of epsilon, what it is compared with, and how far apart their answers are."""

    name: str
    ours: Run
    peer: Callable[[], Any]
    distance: Callable[[Any, Any], float]
    target: float
    tolerance: float = TOLERANCE


def in_units(n: int, d: int) -> support.Matrix:
    """Rows of three factors of different strengths, each column in a unit and at a place of its own."""
    rng = np.random.default_rng(n + d)
    x = rng.standard_normal((n, d))
    for strength in (1.0, 0.4, 0.15):
        x += strength * np.multiply.outer(rng.standard_normal(n), rng.standard_normal(d))
    x *= np.exp(rng.normal(0.0, 2.0, d))
    x += 3.0 * x.std(axis=0) * rng.standard_normal(d)
    return x


def between_spans(
    rows_of_ours: Callable[[Any], Any], rows_of_peer: Callable[[Any], Any]
) -> Callable[[Any, Any], float]:
    return lambda ours, peer: support.squared_sine_distance(rows_of_ours(ours), rows_of_peer(peer))


def solve(problem: Any, epsilon: float, **options: Any) -> Any:
    return dpgep.solve(problem, epsilon=epsilon, delta=1e-6, n_components=K, **options)


def standardized(quick: bool) -> Iterator[Case]:
    for n, d in [(1000, 10)] if quick else [(1000, 10), (100_000, 50), (1_000_000, 20), (20_000, 200)]:
        x = in_units(n, d)
        yield Case(
            f"PCA, standardized, {n} x {d}",
            lambda epsilon, x=x: solve(dpgep.pca(x, standardize=True), epsilon),  # type: ignore[misc]
            lambda x=x: make_pipeline(StandardScaler(), PCA(K)).fit(x),  # type: ignore[misc]
            between_spans(lambda ours: ours.components * ours.scale, lambda peer: peer[1].components_),
            1.3 if n == 1000 else 1.0,
        )


def units(quick: bool) -> Iterator[Case]:
    n, d = (1000, 10) if quick else (100_000, 50)
    x = in_units(n, d)
    yield Case(
        f"PCA, in units, {n} x {d}",
        lambda epsilon: solve(dpgep.pca(x), epsilon),
        lambda: PCA(K).fit(x),
        between_spans(lambda ours: ours.components, lambda peer: peer.components_),
        1.2,
    )


def of_views(name: str, quick: bool, peer: Any, problem: Any, rows_of_peer: Any) -> Iterator[Case]:
    n, d = (1000, 10) if quick else (100_000, 50)
    x = in_units(n, d)
    left, right = x[:, : d // 2], x[:, d // 2 :]
    unit = left.std(axis=0) if getattr(peer, "scale", False) else 1.0  # of what the peer's weights act on
    yield Case(
        f"{name}, {n} x {d // 2} and {d - d // 2}",
        lambda epsilon: solve(problem(left, right), epsilon),
        lambda: peer.fit(left, right),
        between_spans(lambda ours: ours.x_weights * unit, rows_of_peer),
        1.0,
        OF_ROUGH_PEERS,
    )


def cca(quick: bool) -> Iterator[Case]:
    return of_views("CCA", quick, CCA(K, scale=True, max_iter=1000), dpgep.cca, lambda peer: peer.x_rotations_.T)


def pls(quick: bool) -> Iterator[Case]:
    return of_views("PLS", quick, PLSSVD(K, scale=False), dpgep.pls, lambda peer: peer.x_weights_.T)


def fda(quick: bool) -> Iterator[Case]:
    n, d = (1000, 10) if quick else (100_000, 50)
    x = in_units(n, d)
    labels = np.random.default_rng(1).integers(0, K + 1, n)
    x += x.std(axis=0) * np.random.default_rng(2).standard_normal((K + 1, d))[labels]
    yield Case(
        f"FDA of {K + 1} classes, {n} x {d}",
        lambda epsilon: solve(dpgep.fda(x, labels, classes=range(K + 1)), epsilon),
        lambda: LinearDiscriminantAnalysis(solver="eigen", n_components=K).fit(x, labels),
        between_spans(lambda ours: ours.components, lambda peer: peer.scalings_[:, :K].T),
        1.0,
    )


def sir(quick: bool) -> Iterator[Case]:
    n, d = (2000, 10) if quick else (100_000, 50)
    x = in_units(n, d)
    z = (x[:, :K] - x[:, :K].mean(axis=0)) / x[:, :K].std(axis=0)
    y = np.argsort(np.argsort(z[:, 0] + np.exp(z[:, 1]))) / n  # slices of the peer are quantiles
    yield Case(
        f"SIR, {SLICES} slices, {n} x {d}",
        lambda epsilon: solve(dpgep.sir(x, y, slices=SLICES, y_range=(0.0, 1.0)), epsilon),
        lambda: SlicedInverseReg(y, x).fit(slice_n=n // SLICES),
        between_spans(lambda ours: ours.components, lambda peer: peer.params.T[:K]),
        1.0,
        OF_ROUGH_PEERS,
    )


def table(quick: bool) -> Iterator[Case]:
    n = 10_000 if quick else 1_000_000
    rng = np.random.default_rng(0)
    numbers = in_units(n, 20)
    frame = pd.DataFrame({f"x{j}": numbers[:, j] for j in range(20)})
    levels = [f"level {c}" for c in range(8)]
    for j in range(10):
        frame[f"c{j}"] = pd.Categorical.from_codes(rng.integers(0, 8, n), levels)
    yield Case(
        f"release of a table, {n} x 20 and 10 categories of 8 values",
        lambda epsilon: dpgep.release(frame, epsilon=epsilon, delta=1e-6),
        lambda: pd.get_dummies(frame, dtype=float).cov(),
        lambda ours, peer: float(
            np.abs(np.diag(ours.covariance(list(peer.columns[:20])).values) / np.diag(peer)[:20] - 1).max()
        ),
        0.7,
    )


def clipped(quick: bool) -> Iterator[Case]:
    for n, d in [(2000, 20)] if quick else [(20_000, 200), (60_000, 784)]:
        x = spiked(n, d, np.random.default_rng(0))

        def clipped_power(epsilon: float, x: support.Matrix = x) -> Any:
            # without noise, 12 steps from some random starts, one in 200, do not arrive
            seed = 1 if math.isinf(epsilon) else None
            return solve(dpgep.pca(x, bound=1.0), epsilon, method="clipped-power", seed=seed)

        yield Case(
            f"clipped power / release, {n} x {d}",
            clipped_power,
            lambda x=x: solve(dpgep.pca(x, bound=1.0), 1.0),  # type: ignore[misc]
            between_spans(lambda ours: ours.components, lambda peer: peer.components),
            3.0,
            OF_ROUGH_PEERS,
        )


def wide(quick: bool) -> Iterator[Case]:
    n, d, k = (500, 100, 10) if quick else (20_000, 4000, 10)
    x = spiked(n, d, np.random.default_rng(0))
    yield Case(
        f"PCA, known bound, K = {k}, {n} x {d} / ARPACK",
        lambda epsilon: dpgep.solve(dpgep.pca(x, bound=1.0), epsilon=epsilon, delta=1e-6, n_components=k),
        lambda: PCA(k, svd_solver="arpack", random_state=0).fit(x),
        between_spans(lambda ours: ours.components[:3], lambda peer: peer.components_[:3]),
        1.0,
    )


def sparse(quick: bool) -> Iterator[Case]:
    n, d = (2000, 100) if quick else (200_000, 1000)
    x = scipy.sparse.random(n, d, density=0.01, random_state=0, format="csr")
    x[:, :K] = np.random.default_rng(0).standard_normal((n, K)) * [3.0, 2.0]
    x = scipy.sparse.csr_matrix(x)
    yield Case(
        f"PCA without a bound or centering, sparse, {n} x {d} / svds",
        lambda epsilon: solve(dpgep.pca(x, center=False), epsilon),
        lambda: scipy.sparse.linalg.svds(x, k=K, random_state=0),
        between_spans(lambda ours: ours.components, lambda peer: peer[2]),
        1.0,
    )


def drain(batches: Any) -> int:
    return sum(batch.num_rows for batch in batches)


def files(quick: bool, megabytes: int = 500) -> Iterator[Case]:
    """Files of 25 columns of numbers."""
    n = (1 if quick else megabytes) * 1_000_000 // (25 * 8)
    rows = pa.table({f"x{j}": column for j, column in enumerate(in_units(n, 25).T)})
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("parquet", "csv"):
            path = Path(folder) / f"rows.{suffix}"
            if suffix == "csv":  # digits take more than twice the bytes
                pa.csv.write_csv(rows.slice(0, n * 8 // 18), path)
            else:
                pa.parquet.write_table(rows, path, row_group_size=n // 8)
            passes = [1]

            def fit(epsilon: float, path: Path = path, passes: list[int] = passes) -> Any:
                found = solve(dpgep.pca(dpgep.scan(path, progress=False), standardize=True), epsilon)
                passes[0] = found.passes
                return found

            yield Case(
                f"{suffix}, {path.stat().st_size / 1e6:.0f} MB, 25 columns / reading it once a pass",
                fit,
                lambda path=path, passes=passes: [  # type: ignore[misc]
                    drain(pyarrow.dataset.dataset(path, format=path.suffix[1:]).to_batches()) for _ in range(passes[0])
                ],
                lambda ours, peer: abs(math.log(ours.passes / len(peer))),
                1.15,
            )


CASES = {
    "standardized": standardized, "units": units, "cca": cca, "pls": pls, "fda": fda, "sir": sir, "table": table,
    "clipped": clipped, "wide": wide, "sparse": sparse, "files": files,
}  # fmt: skip


def seconds_of(call: Callable[[], Any]) -> tuple[float, float]:
    time.sleep(REST)
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def measured(case: Case, rounds: int) -> dict[str, Any]:
    """Medians of both, after a round for the answers."""
    exact = case.ours(math.inf)
    distance = case.distance(exact, case.peer())
    assert distance < case.tolerance, (case.name, distance)
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "peer": []}
    private = case.ours(1.0)
    for _ in range(rounds):
        found["ours"].append(seconds_of(lambda: case.ours(1.0)))
        found["peer"].append(seconds_of(case.peer))
    walls, processors = (
        {who: statistics.median(both[i] for both in times) for who, times in found.items()} for i in (0, 1)
    )
    return {
        "case": case.name, **walls, "ratio": walls["ours"] / walls["peer"],
        "processor": processors["ours"] / processors["peer"], "passes": getattr(private, "passes", None),
        "target": case.target,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small rows, two rounds; nothing is judged")
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the files")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # nobody reads these answers, and some peers do not converge
    lines = []
    print(f"| case | ours, ms | peer, ms | ratio | of processor time | passes | wanted | load |\n|{'---|' * 8}")
    for name in chosen.only:
        sized = {"megabytes": chosen.megabytes} if name == "files" else {}
        for case in CASES[name](chosen.quick, **sized):  # type: ignore[operator]
            line = measured(case, QUICK_ROUNDS if chosen.quick else chosen.rounds)
            lines.append(line)
            print(
                f"| {line['case']} | {1e3 * line['ours']:.3g} | {1e3 * line['peer']:.3g} | {line['ratio']:.2f} | "
                f"{line['processor']:.2f} | {line['passes'] or ''} | {line['target']} | {os.getloadavg()[0]:.1f} |",
                flush=True,
            )
    if chosen.json:
        chosen.json.write_text(json.dumps(lines, indent=1) + "\n")
    return int(not chosen.quick and any(line["ratio"] > line["target"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
