"""A year of mornings: noise of sums so far, error of components after 365 nights, and the time of a night.

    python benchmarks/nights.py --only noise|published|components|time [--draws 4]

noise: deviation of the sum of all nights so far, in units of one release of everything for the whole budget; beside it
that of a binary tree of exact sums, and of one whose nodes are combined with those below (Honaker 2015). jax_privacy
2.0.0, in an environment of its own, has 2.7815 (2.9441) for the coefficients before they are rounded: the root mean
square (and largest) of per_query_error(strategy_coef=c, n=365), times minsep_sensitivity_squared(c, 1, k, n=365), of
c = optimal_max_error_strategy_coefs(365) and k = 1, all of jax_privacy.matrix_factorization.toeplitz.
published: joint moments (Kalinin, Upadhyay, Lampert 2025, arXiv 2502.06597), from their idea: the same square root, for
rows in the unit ball and a replaced row, with noise 2 on sums and 2 sqrt(2) on second moments, which then cost nothing
more: max of |x - y|^2/4 + |xx' - yy'|^2/8 is 1. Their measure is the root mean square of noise over all entries, over
nights; each column of ours is relative to that, so that less than one is better.
components: squared sines of three components after 365 nights of 300 people, epsilon = 1: of `dpgep.Nights`; of one
release each morning of everything so far, each with 1/365 of mu^2; of one release of each night's people, added up.
time: adding a night of 2000 people of 100 columns after so many nights, over a release of their rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np

import dpgep
from dpgep.models.moments import MomentLayout
from dpgep.privacy.continual import Factor
from dpgep.privacy.noise import calibrate_moments

NIGHTS, PEOPLE, D, K = 365, 300, 20, 3
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def noise() -> None:
    print("keep  nights  people on    rms   worst")
    for keep, n_nights in ((365, 30), (365, 365), (64, 365), (365, 730), (365, 3650), (3650, 3650)):
        factor = Factor(keep)
        spreads = np.array([np.linalg.norm(factor.combination(1, t)) for t in range(1, n_nights + 1)])
        for k in (1, 2, 12):
            units = spreads / factor.mu_of_a_night(1.0, k)
            print(f"{keep:4d}  {n_nights:6d}  {k:9d}  {np.sqrt(np.mean(units**2)):5.2f}  {units.max():5.2f}")
    for n_nights in (30, 365, 730, 3650):
        for name, of_node in (("tree", np.ones(64)), ("combined", 1 / (2 - 0.5 ** np.arange(64)))):
            units = _of_tree(n_nights, of_node)
            print(f"{name:8s}  {n_nights:6d} {np.sqrt(np.mean(units**2)):5.2f}  {units.max():5.2f}")


def _of_tree(n_nights: int, of_node: np.ndarray) -> np.ndarray:
    """Deviations of sums so far, as sums of nodes that have these variances by level; a person is in one of each."""
    levels = np.arange(n_nights.bit_length())
    nodes = np.arange(1, n_nights + 1)[:, None] >> levels & 1
    return np.asarray(np.sqrt(len(levels) * (nodes @ of_node[levels])))


def published() -> None:
    for d in (5, 20, 100):
        ours = calibrate_moments(1.0, MomentLayout(d, 1, True, False), "replace-one")
        both = [
            np.sqrt(d * sums**2 + second**2 * d * (d + 1) / 2)
            for sums, second in ((ours.sums, ours.second), (2, 8**0.5))
        ]
        sums, second = ours.sums / 2, ours.second / 8**0.5
        print(f"{d:4d} columns: sums {sums:.2f}, second moments {second:.2f}, all {both[0] / both[1]:.2f}")


def components(draws: int) -> None:
    scales = np.r_[0.5, 0.4, 0.3, np.full(D - K, 0.05)]
    errors: dict[str, list[float]] = {"nights": [], "released again": [], "added": [], "one release at the end": []}
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        rows = [rng.standard_normal((PEOPLE, D)) * scales for _ in range(NIGHTS)]
        whole = np.vstack(rows)
        exact = dpgep.solve(dpgep.pca(whole, bound=1.0), epsilon=np.inf, n_components=K).components

        def error(release: dpgep.Release, exact: np.ndarray = exact) -> float:
            cosines = np.sum(release.pca(n_components=K).components * exact, axis=1)
            return float(np.mean(1 - cosines**2))

        with tempfile.TemporaryDirectory() as folder:
            nights = dpgep.Nights(Path(folder) / "register.nights", keep=NIGHTS, bound=1.0, **BUDGET)
            for night, each in enumerate(rows):
                so_far = nights.add(each, night=str(night))
            errors["nights"].append(error(so_far))
        budget = dpgep.Budget(**BUDGET)
        errors["released again"].append(error(dpgep.release(whole, bound=1.0, budget=budget, share=1 / NIGHTS)))
        errors["added"].append(error(reduce(add, [dpgep.release(each, bound=1.0, **BUDGET) for each in rows])))
        errors["one release at the end"].append(error(dpgep.release(whole, bound=1.0, **BUDGET)))
    ours = statistics.mean(errors["nights"])
    for name, found in errors.items():
        print(f"{name:24s} {statistics.mean(found):.3g}  ({statistics.mean(found) / ours:.3g} times that of nights)")


def seconds(draws: int) -> None:
    rng = np.random.default_rng(0)
    for before in (0, 30, 364):
        with tempfile.TemporaryDirectory() as folder:
            nights = dpgep.Nights(Path(folder) / "register.nights", bound=10.0, **BUDGET)
            for night in range(before + 1):
                nights.add(rng.standard_normal((2, 100)), night=f"before {night}")
            for n in (2000, 20000, 100000):
                found = []
                for draw in range(draws):
                    rows, marks = rng.standard_normal((n, 100)), [_clocks()]
                    nights.add(rows, night=f"{n} {draw}")
                    marks.append(_clocks())
                    dpgep.release(rows, bound=10.0, **BUDGET)
                    marks.append(_clocks())
                    found.append(np.diff(marks, axis=0).ravel())
                wall, processor, of_one, of_ones = np.median(found, axis=0) * 1e3
                print(
                    f"{before:4d} nights before, {n:6d} people: {wall:6.1f} ms, a release {of_one:6.1f} ms; of the "
                    f"processor {processor:6.1f} and {of_ones:6.1f} ms, {processor / of_ones:.2f} times"
                )


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("noise", "published", "components", "time"))
    parser.add_argument("--draws", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.only in (None, "noise"):
        noise()
    if options.only in (None, "published"):
        published()
    if options.only in (None, "components"):
        components(options.draws)
    if options.only in (None, "time"):
        seconds(5 * options.draws)
