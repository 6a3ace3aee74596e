"""The worst person that a search finds, where neighbours differ in all rows of one: what a pair costs over its price.

    python benchmarks/worst_persons.py [RESTARTS] [STEPS] [SEED]

Every model that takes ``person=``, with a bound that is known or bought, with and without values missing, under both
adjacencies (tests/support/worst_persons.py). The search has to reach 0.98 of the price of a whole run (less where its
answers have no worst pair in common: docs/audits.md says which), and never more than all of it. At last two
faults are planted, which it has to find: weights that sum to 1 + 1/64, and rows that all count whole. Exits with status
1 if any of this is missed.
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))  # before this folder, which has a conftest of its own

import worst_persons
from conftest import noise_from

from dpgep.data import people


def main(restarts: int = 12, steps: int = 20, seed: int = 0) -> int:
    missed = 0
    print("| model | bound | adjacency | whole run | least part | pairs | s |")
    print("|---|---|---|---|---|---|---|")
    for name, terms, adjacency in worst_persons.cases():
        start = time.perf_counter()
        with noise_from(f"{name} {terms} {adjacency} {seed}"):
            found = worst_persons.search(name, terms, adjacency, restarts=restarts, steps=steps, seed=seed)
        least = min(found.parts.values())
        reached = worst_persons.MECHANISMS[name].reached.get(terms, 0.98)
        is_missed = bool(found.flagged) or not reached <= found.ratio <= 1
        missed += is_missed
        cells = [name, terms, adjacency, f"{found.ratio:.4f}", f"{least:.3f}", str(found.pairs)]
        print(
            "| " + " | ".join([*cells, f"{time.perf_counter() - start:.1f}"]) + " |" + " MISSED" * is_missed, flush=True
        )
        for result, pair in found.flagged[:1]:
            print(f"{result!r:.2000}\n{pair}")
    for fault, weights in worst_persons.FAULTS.items():
        with mock.patch.object(people, "row_weights", weights), noise_from(f"{fault} {seed}"):
            found = worst_persons.search("pca", "known", "replace-one", restarts=restarts, steps=steps, seed=seed)
        missed += found.ratio <= 1
        print(f"{fault}: {found.ratio:.4f}, pairs that show it: {len(found.flagged)} of {found.pairs}")
    return 1 if missed else 0


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.exit(main(*map(int, sys.argv[1:])))
