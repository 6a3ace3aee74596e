"""The server of the local model: sums reports, never sees a record.

    python server.py INBOX [--reports 40000] [--timeout 60]

Waits for files of reports, adds each once, rejects damaged or foreign files, and prints the components as soon as
there are enough reports.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from protocol import PROTOCOL

from dpgep.local import Aggregator, ReportError


def collect(inbox: Path, wanted: int, timeout: float) -> Aggregator:
    """Add files until there are enough reports or the time is over."""
    aggregator, seen = Aggregator(**PROTOCOL), set()
    end = time.monotonic() + timeout
    while aggregator.n_reports < wanted and time.monotonic() < end:
        for file in sorted(set(inbox.glob("*.reports")) - seen):
            seen.add(file)
            try:
                aggregator.add(file.read_bytes())
            except ReportError as error:
                print(f"{file.name}: refused, {error}", flush=True)
            else:
                print(f"{file.name}: added, {aggregator.n_reports} reports", flush=True)
        time.sleep(0.05)
    return aggregator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("inbox", type=Path)
    parser.add_argument("--reports", type=int, default=40_000)
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds")
    arguments = parser.parse_args()

    aggregator = collect(arguments.inbox, arguments.reports, arguments.timeout)
    if aggregator.n_reports < arguments.reports:
        sys.exit(f"only {aggregator.n_reports} of {arguments.reports} reports came in {arguments.timeout:g} s")
    solution = aggregator.solve(n_components=2)
    print(solution)
    print("first component:", np.round(solution.components[0], 2))


if __name__ == "__main__":
    main()
