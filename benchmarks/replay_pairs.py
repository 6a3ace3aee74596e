"""Pairs of neighbours replayed in every way in and by every method: none may show a difference.

    python benchmarks/replay_pairs.py [N] [SEED]

N pairs (default: 20 000), half of them of ways in (tests/support/replay_ways.py), half of methods
(tests/support/replay_matrix.py), in turn. Prints for each the number of pairs, of runs that ended with an error on
both sides, of divergences, and the largest cost found over what was claimed; exits with status 1 if there was a
divergence.
"""

from __future__ import annotations

import collections
import itertools
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # before this folder, which has a conftest of its own

import replay_matrix
from replay_people import EDGES
from replay_ways import ways

import dpgep

# sizes of most groups: a replay of many people takes longer and finds no more, but at the edges of blocks
_SMALL = range(0, 13)


def pairs_of_ways(seed: int) -> Iterator[tuple[str, str, dpgep.auditing.ReplayResult]]:
    """(group of ways, what was replayed, its result), without end: each way with each of its terms in turn."""
    with tempfile.TemporaryDirectory() as folder:
        for turn in itertools.count():
            for place, way in enumerate(ways()):
                for terms in way.terms(Path(folder)):
                    random = Random(f"{seed} {turn} {place} {terms.adjacency} {terms.bound}")
                    sizes = EDGES if turn % 4 == 3 else _SMALL
                    pair = way.pair(random, terms, sizes)
                    yield way.group, f"{way}: {terms.bound} bound, {pair!r:.2000}", way.replay(pair, terms)


def pairs_of_methods(seed: int) -> Iterator[tuple[str, str, dpgep.auditing.ReplayResult]]:
    """The same of methods, one pair of each case in turn."""
    cases = list(replay_matrix.cases())
    for turn in itertools.count():
        for place, (name, model, bound, adjacency, method, options) in enumerate(cases):
            rng = np.random.default_rng([seed, turn, place])
            given = {"epsilon": replay_matrix.EPSILON, "delta": replay_matrix.DELTA, "method": method}
            for what, *neighbours in replay_matrix.pairs(rng, adjacency, 1):
                mechanism = replay_matrix.models(bound, adjacency)[model]
                result = dpgep.auditing.replay(mechanism, neighbours, n_components=1, **given, **options)
                yield f"method {method}", f"{name}: {what}", result


def pairs(seed: int) -> Iterator[tuple[str, str, dpgep.auditing.ReplayResult]]:
    """Both, one after the other."""
    for both in zip(pairs_of_ways(seed), pairs_of_methods(seed), strict=False):
        yield from both


def main(n: int = 20_000, seed: int = 0) -> int:
    start, found = time.perf_counter(), 0
    counts: dict[str, Any] = collections.defaultdict(lambda: [0, 0, 0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for group, what, result in itertools.islice(pairs(seed), n):
            row = counts[group]
            row[0] += 1
            row[1] += result.error is not None
            row[2] += result.flagged
            row[3] = max(row[3], result.ratio)
            done = sum(each[0] for each in counts.values())
            if done % 1000 == 0:
                print(f"{done} pairs, {found} divergences, {time.perf_counter() - start:.0f} s", file=sys.stderr)
            if result.flagged:
                found += 1
                print(f"DIVERGENCE {what}\n{result!r:.3000}", flush=True)
    print(f"{'':34} {'pairs':>7} {'refused':>8} {'divergences':>12} {'largest ratio':>14}")
    for group, (total, refused, flagged, ratio) in sorted(counts.items()):
        print(f"{group:34} {total:7} {refused:8} {flagged:12} {ratio:14.4f}")
    print(f"{n} pairs in {time.perf_counter() - start:.0f} s, {found} divergences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
