"""What a newcomer follows: the files and functions that a dense PCA release runs through.

`python benchmarks/path_of_a_release.py` counts files of the package, functions, and moves, which are calls from one
file into another; `--list` shows each pair of files. The second of two equal runs is counted.
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
MOST_FILES, MOST_MOVES = 18, 120


class Trace:
    """A profile function that counts calls of the package's Python functions, on the thread that runs it.

    Attributes
    ----------
    functions : calls of each (file, function).
    moves : calls of each (file, other file); what runs in between in other packages belongs to who called it.
    """

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.moves: Counter[tuple[str, str]] = Counter()
        self._files = [""]

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "return" and len(self._files) > 1:
            self._files.pop()

    def _enter(self, frame: FrameType) -> None:
        caller, path = self._files[-1], Path(frame.f_code.co_filename)
        file = str(path.relative_to(PACKAGE)) if path.is_relative_to(PACKAGE) else caller
        self._files.append(file)
        if path.is_relative_to(PACKAGE):
            self.functions[file, frame.f_code.co_name] += 1
            if caller not in ("", file):
                self.moves[caller, file] += 1


def trace_of_a_release() -> Trace:
    x = np.random.default_rng(0).standard_normal((20000, 200)) / np.r_[2.0:7.0, np.full(195, 30.0)]
    trace = Trace()
    for profile in (None, trace):
        sys.setprofile(profile)
        dpgep.solve(dpgep.pca(x, bound=1.0), epsilon=1.0, delta=1e-6, n_components=5)
        sys.setprofile(None)
    return trace


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="show the moves between each pair of files")
    arguments = parser.parse_args()
    trace = trace_of_a_release()
    files, moves = {file for file, _ in trace.functions}, sum(trace.moves.values())
    print(f"{len(trace.functions)} functions in {len(files)} files (at most {MOST_FILES} wanted)")
    print(f"{moves} moves (at most {MOST_MOVES} wanted)")
    if arguments.list:
        print(*(f"{n:5d}  {caller} -> {file}" for (caller, file), n in trace.moves.most_common()), sep="\n")
    return int(len(files) > MOST_FILES or moves > MOST_MOVES)


if __name__ == "__main__":
    sys.exit(main())
