"""What a newcomer follows: the files and functions that a dense PCA runs through, with a bound and without one.

`python benchmarks/path_of_a_release.py` counts files of the package, functions, and moves, which are calls from one
file into another; `--list` shows each pair of files, and `--calls` each pair of functions. The second of two equal runs
is counted, on the thread that begins it: threads take parts of the rows as they get to them, a dozen moves for each.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import dpgep

PACKAGE = Path(dpgep.__file__).parent
# most files and moves on two threads, with a given bound and with one that is bought: to be lowered
MOST: dict[Any, tuple[int, int]] = {1.0: (18, 90), "auto": (22, 136)}

Function = tuple[str, str]  # file, name


class Trace:
    """A profile function that counts calls of the package's Python functions, on the thread that runs it.

    Attributes
    ----------
    functions : calls of each function.
    calls : calls of each (function, function of another file); what runs in between in other packages belongs to who
        called it.
    """

    def __init__(self) -> None:
        self.functions: Counter[Function] = Counter()
        self.calls: Counter[tuple[Function, Function]] = Counter()
        self._running: list[Function] = [("", "")]

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "return" and len(self._running) > 1:
            self._running.pop()

    def _enter(self, frame: FrameType) -> None:
        caller, path = self._running[-1], Path(frame.f_code.co_filename)
        inside = path.is_relative_to(PACKAGE)
        function = (path.relative_to(PACKAGE).as_posix(), frame.f_code.co_name) if inside else caller
        self._running.append(function)
        if inside:
            self.functions[function] += 1
            if caller[0] not in ("", function[0]):
                self.calls[caller, function] += 1

    def moves(self) -> Counter[tuple[str, str]]:
        """Calls of each (file, other file)."""
        moves: Counter[tuple[str, str]] = Counter()
        for ((caller, _), (file, _)), n in self.calls.items():
            moves[caller, file] += n
        return moves


def trace_of(bound: Any) -> Trace:
    x = np.random.default_rng(0).standard_normal((20000, 200)) / np.r_[2.0:7.0, np.full(195, 30.0)]
    trace = Trace()
    for profile in (None, trace):
        sys.setprofile(profile)
        dpgep.solve(dpgep.pca(x, bound=bound), epsilon=1.0, delta=1e-6, n_components=5)
        sys.setprofile(None)
    return trace


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="show the moves between each pair of files")
    parser.add_argument("--calls", action="store_true", help="show the moves between each pair of functions")
    arguments = parser.parse_args()
    is_long = False
    for bound, (most_files, most_moves) in MOST.items():
        trace = trace_of(bound)
        files, moves = {file for file, _ in trace.functions}, trace.calls.total()
        is_long = is_long or len(files) > most_files or moves > most_moves
        print(
            f"bound={bound!r}: {len(trace.functions)} functions in {len(files)} files (at most {most_files}), "
            f"{moves} moves (at most {most_moves}), {len(trace.calls)} of them different"
        )
        if arguments.list:
            print(*(f"{n:5d}  {caller} -> {file}" for (caller, file), n in trace.moves().most_common()), sep="\n")
        if arguments.calls:
            pairs = ((n, ":".join(caller), ":".join(called)) for (caller, called), n in trace.calls.most_common())
            print(*(f"{n:5d}  {caller} -> {called}" for n, caller, called in pairs), sep="\n")
    return int(is_long)


if __name__ == "__main__":
    sys.exit(main())
