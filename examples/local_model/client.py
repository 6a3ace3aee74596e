"""A client of the local model: keeps records, sends reports.

    python client.py OUTBOX NAME [--people 20000] [--seed 0]

A client is whoever holds the records of some people: a hospital, a phone, a household. The records never leave this
process; only a file of reports does, each with enough noise to reveal next to nothing about its person. The records are
simulated here, so that the example runs anywhere: replace `records`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from protocol import PROTOCOL

from dpgep.local import GaussianRandomizer


def records(people: int, seed: int) -> NDArray[np.float64]:
    """One row per person: five numbers, the first two of which vary together."""
    rng = np.random.default_rng(seed)
    rows = 0.1 * rng.standard_normal((people, 5))
    rows[:, :2] += 0.6 * rng.standard_normal((people, 1))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("outbox", type=Path)
    parser.add_argument("name")
    parser.add_argument("--people", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="of the simulated records; the noise has none")
    arguments = parser.parse_args()

    reports = GaussianRandomizer(**PROTOCOL).randomize_rows(records(arguments.people, arguments.seed))
    # written beside, then renamed: the server never sees half a file
    unfinished = arguments.outbox / f"{arguments.name}.part"
    unfinished.write_bytes(reports.to_bytes())
    unfinished.rename(arguments.outbox / f"{arguments.name}.reports")
    print(f"{arguments.name}: {len(reports)} reports sent")


if __name__ == "__main__":
    main()
