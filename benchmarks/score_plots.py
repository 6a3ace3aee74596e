"""Score plots: the density of people's scores against two other private histograms, at the same budget and grid.

`python benchmarks/score_plots.py [--draws 20]`. Of each table the two leading components are known, so that all of the
budget is for the histogram. The others are an additive histogram (exact Gaussian noise of the same price in each cell,
negative ones to zero) and a sparse one (Laplace noise in the cells with people, kept from
1 + 2 log(2/delta)/epsilon on: the stability histogram); both divided by their sum. Shown are medians of total variation
to the exact histogram; and in how many draws the clusters that are there are seen, no more and no fewer: peaks at least
a tenth as high as the highest, with twice the density of the pass to a higher one.

`--dppca` adds the two histograms of the R package dppca, its own code on the same exact scores and frame with all of
epsilon: the package where R has it, or `--dppca FOLDER`, its unpacked source.

Scores of digits are of MNIST's first 20 000 pictures, if DPGEP_DATA names its folder.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import dpgep

Matrix = NDArray[np.float64]

N, DELTA = 20_000, 1e-6
# Arguments: scores in a CSV, four ends of the frame, epsilon, delta, draws, the source's folder or nothing.
_DPPCA = """
words <- commandArgs(TRUE); numbers <- as.numeric(words[2:8]); set.seed(1)
source_file <- file.path(words[9], "R", "score_helpers.R")
if (nzchar(words[9])) source(source_file) else score_histograms <- dppca:::score_histograms
scores <- as.matrix(read.csv(words[1], header = FALSE))
# of a histogram that is empty, 1
apart <- function(p, q) (sum(abs(p - q)) + abs(sum(p) - sum(q))) / 2
errors <- replicate(numbers[7], {
  found <- score_histograms(scores, numbers[1:2], numbers[3:4], c(64, 64), numbers[5], numbers[6], c("add", "sparse"))
  c(apart(found$add$prob, found$nonprivate$prob), apart(found$sparse$prob, found$nonprivate$prob))
})
cat(apply(errors, 1, median))
"""


def tables() -> Iterator[tuple[str, Matrix, int | None]]:
    """Rows, and how many clusters they have, where that is clear."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, N)
    centres = np.array([[0.0, 0.0], [5.0, 1.0], [1.0, 5.0]])
    yield "three clusters", centres[which] + rng.normal(size=(N, 2)) * [0.7, 0.5], 3
    angle, second = rng.random(N) * np.pi, rng.integers(0, 2, N)
    moons = np.c_[
        np.where(second, np.cos(angle), 1 - np.cos(angle)), np.where(second, np.sin(angle), 0.5 - np.sin(angle))
    ]
    yield "two moons", moons + 0.1 * rng.normal(size=(N, 2)), None
    yield "heavy tails", rng.standard_t(2.5, size=(N, 2)), 1
    if folder := os.environ.get("DPGEP_DATA"):
        with np.load(Path(folder) / "mnist.npz") as data:
            pictures = data["x_train"][:N].astype(float)
        yield "digits", pictures @ np.linalg.eigh(np.cov(pictures.T))[1][:, :-3:-1], None


def sparse(counts: Matrix, epsilon: float, rng: np.random.Generator) -> Matrix:
    noisy = np.where(counts > 0, counts + rng.laplace(scale=2 / epsilon, size=counts.shape), 0.0)
    kept = np.where(noisy >= 1 + 2 * math.log(2 / DELTA) / epsilon, noisy, 0.0)
    return kept / kept.sum() if kept.any() else np.full(counts.shape, 1 / counts.size)


def dppca(scores: Matrix, edges: Matrix, epsilon: float, draws: int, source: str) -> list[float]:
    """Median total variation of its additive and its sparse histogram. RuntimeError where R has no such package."""
    program = shutil.which("Rscript")
    if program is None:
        raise RuntimeError("dppca is left out: Rscript is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "scores.csv")
        np.savetxt(table, scores, delimiter=",")
        numbers = [*edges[:, [0, -1]].ravel().tolist(), epsilon, DELTA, draws]
        script = Path(folder, "dppca.R")
        script.write_text(_DPPCA, encoding="utf-8")
        command = [program, str(script), str(table), *map(str, numbers), source]
        found = subprocess.run(command, capture_output=True, text=True)
    if found.returncode:
        said = [line for line in found.stderr.splitlines() if "there is no package" in line] or [found.stderr[-300:]]
        raise RuntimeError(f"dppca is left out: R says {said[0].strip()}")
    return [float(word) for word in found.stdout.split()]


def apart(first: Matrix, second: Matrix) -> float:
    return float(np.abs(first - second).sum()) / 2


def peaks(density: Matrix) -> int:
    """Peaks that stand out: see above. Cells join the peaks that they touch, from the highest on."""
    size = len(density)
    parent: dict[int, int] = {}
    heights, found = density.ravel(), 0

    def root(cell: int) -> int:
        while parent[cell] != cell:
            cell = parent[cell]
        return cell

    for cell in np.argsort(-heights).tolist():
        if heights[cell] <= 0:
            break
        i, j = divmod(cell, size)
        near = [
            root(size * a + b)
            for a in range(max(i - 1, 0), min(i + 2, size))
            for b in range(max(j - 1, 0), min(j + 2, size))
            if size * a + b in parent
        ]
        parent[cell] = cell
        if near:
            highest = max(near, key=lambda peak: heights[peak])
            for peak in {*near} - {highest}:
                found += bool(heights[peak] >= 0.1 * heights.max() and heights[peak] >= 2 * heights[cell])
                parent[peak] = highest
            parent[cell] = highest
    tops = {root(cell) for cell in parent}
    return found + sum(bool(heights[top] >= 0.1 * heights.max()) for top in tops)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--dppca", nargs="?", const="", metavar="FOLDER", help="compare with the R package, too")
    draws, source = (chosen := parser.parse_args()).draws, chosen.dppca
    warnings.simplefilter("ignore")
    rng = np.random.default_rng(1)
    worst = 0.0
    print(f"{'table':16s} epsilon  additive  sparse  density  of the better   clusters seen")
    for name, rows, clusters in tables():
        problem = dpgep.pca(rows, bound=float(np.linalg.norm(rows, axis=1).max()))
        solution = dpgep.solve(problem, epsilon=math.inf, n_components=2)
        exact = dpgep.score_density(solution, problem, epsilon=math.inf)
        truth = exact.shares[0]
        assert abs(truth.sum() - 1) < 1e-9
        for epsilon in (0.3, 1.0):
            errors, seen = [], 0
            for _ in range(draws):
                found = dpgep.score_density(solution, problem, epsilon=epsilon, delta=DELTA)
                additive = np.maximum(found.shares[0], 0)
                compared = (additive / additive.sum(), sparse(truth * N, epsilon, rng), found.density[0])
                errors.append([apart(each, truth) for each in compared])
                seen += clusters is not None and peaks(found.density[0]) == clusters
            first, second, ours = np.median(errors, axis=0)
            ratio = ours / min(first, second)
            worst = max(worst, ratio)
            shown = "" if clusters is None else f"{seen} of {draws}"
            print(f"{name:16s} {epsilon:7.1f}  {first:8.3f}  {second:6.3f}  {ours:7.3f}  {ratio:13.2f}   {shown}")
            if source is not None:
                try:
                    theirs = dppca(solution.transform(rows), exact.edges, epsilon, draws, source)
                    print(f"  dppca: additive {theirs[0]:.3f}, sparse {theirs[1]:.3f}: {min(theirs) / ours:.1f} times")
                except RuntimeError as error:
                    print(error)
                    source = None
    assert worst <= 0.5, f"more than half of the better histogram's error: {worst:.2f}"


if __name__ == "__main__":
    main()
