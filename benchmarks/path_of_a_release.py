"""The path of a dense PCA release through the package: its files, functions and moves between files.

`python benchmarks/path_of_a_release.py` counts them; `--list` names every move. What a newcomer has to follow.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import dpgep

PACKAGE = Path(dpgep.__file__).parent
MOST_FILES, MOST_MOVES = 18, 120


class Path_:
    """Files in which Python functions of the package run, in their order."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.visited: list[str] = []
        self._stack: list[str | None] = [None]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            name = frame.f_code.co_filename
            ours = str(Path(name).relative_to(PACKAGE)) if name.startswith(str(PACKAGE)) else self._stack[-1]
            self._stack.append(ours)
            if name.startswith(str(PACKAGE)):
                self.functions[str(ours), frame.f_code.co_qualname] += 1
            self._enter(ours)
        elif event == "return" and len(self._stack) > 1:
            self._stack.pop()
            self._enter(self._stack[-1])

    def _enter(self, file: str | None) -> None:
        if file is not None and (not self.visited or self.visited[-1] != file):
            self.visited.append(file)
