"""Sparse canonical pairs without noise, 20 seeds: a table (run as a script) and the target (pytest).

Against SciPy's solution on the planted features: the squared sine of the largest angle between the spans. A run counts
as lost beyond 0.05; then it must have been warned of.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import support
from support import judge

import dpgep

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
from sparse_views import Covariance, sparse_views, worst_squared_sine

SEEDS = 1 if support.QUICK else 20
LOST = 0.05
# Covariance of a view, whether each direction has features of its own, people: with 60 there are fewer than features.
SETTINGS: list[tuple[Covariance, bool, int]] = [
    ("toeplitz", True, 2000),
    ("identity", True, 2000),
    ("toeplitz", True, 60),
]


@dataclass
class Row:
    """Worst squared sines of the seeds, and how many runs were warned of."""

    errors: list[float] = field(default_factory=list)
    silent: list[float] = field(default_factory=list)

    def add(self, error: float, warned: bool) -> None:
        self.errors.append(error)
        if not warned:
            self.silent.append(error)

    @property
    def worst_silent(self) -> float:
        return max(self.silent, default=0.0)

    def __str__(self) -> str:
        found = sum(error <= LOST for error in self.errors)
        return (
            f"worst {max(self.errors):8.2g}   found {found} of {len(self.errors)}   "
            f"warned of {len(self.errors) - len(self.silent)}   worst without a warning {self.worst_silent:.2g}"
        )


def one_row(covariance: Covariance, own_features: bool, n: int, k: int, init: str, seeds: int) -> Row:
    row = Row()
    for seed in range(seeds):
        views = sparse_views(seed, k, n=n, covariance=covariance, own_features=own_features)
        _, reference = views.scipy_solution(k)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            solution = dpgep.solve(
                dpgep.cca(views.x, views.y, bound=views.bound),
                epsilon=math.inf,
                n_components=k,
                method="truncated-rayleigh-flow",
                sparsity=len(views.features),
                init=init,
                seed=seed,
            )
        warned = any(issubclass(w.category, dpgep.errors.AccuracyWarning) for w in caught)
        row.add(worst_squared_sine(solution.components, reference), warned)
    return row


def test_every_pair_is_found_or_missed_aloud() -> None:
    for k, init in itertools.product((2, 3), ("random", "convex")):
        row = one_row(*SETTINGS[0], k, init, SEEDS)
        judge(f"sparse CCA, K = {k}, {init} start: worst squared sine", row.worst_silent, LOST, always=True)


if __name__ == "__main__":
    for (covariance, own_features, n), k, init in itertools.product(SETTINGS, (2, 3), ("random", "convex")):
        row = one_row(covariance, own_features, n, k, init, SEEDS)
        print(f"{covariance:8s} n = {n:4d}, K = {k}, {init:6s}   {row}", flush=True)
