"""Files that a command writes: as a whole or not at all, and known to be writable before anything is spent."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from dpgep._files import Part, is_special
from dpgep.cli.command import UsageError

# A disk without room for this is full; most answers are smaller.
_ROOM = 1 << 20


class Output(Part):
    """The file of ``-o``. Raises UsageError where it cannot be written, or is one of the ``inputs``."""

    def __init__(self, path: Path, *, force: bool, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
        if is_special(path):
            raise UsageError(f"-o: {path} is a folder, a pipe or a device, not a file: choose another name")
        if os.path.exists(path) and not force:
            raise UsageError(f"-o: {path} exists: choose another name, or --force to replace it")
        if os.path.exists(path) and any(
            _holds(each, path) for word in inputs for each in (word, *glob.glob(str(word)))
        ):
            raise UsageError(f"-o: {path} is read by this command: choose another name")
        super().__init__(path)
        self._shown, self._force = path, force

    def try_place(self) -> None:
        """Make it, with some room. Raises UsageError where that is impossible."""
        try:
            self.write(bytes(_ROOM))
        except OSError as error:
            raise UsageError(f"-o: {self._shown} cannot be written ({error.strerror})") from None

    def take(self) -> Path:
        """Give what was written its name; another one where that was taken meanwhile. Returns the path."""
        if self._force:
            self.replace()
            return self._shown
        kept = self.keep()
        return self._shown if kept == self.target else kept


def _holds(place: str | os.PathLike[str], path: Path) -> bool:
    """Whether a place is this file, or a folder that holds it."""
    if os.path.isdir(place):
        return Path(os.path.realpath(place)) in path.resolve().parents
    return os.path.exists(place) and os.path.samefile(place, path)
