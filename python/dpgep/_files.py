"""Files that are there as a whole or not at all: written beside their place, forced to the disk, and then named."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias, TypeVar

_P = TypeVar("_P", bound="Part")

# where to write: a path, or a binary file
Target: TypeAlias = "str | os.PathLike[str] | BinaryIO"


class Part:
    """A file that is being made in the folder of ``path``, until `replace` or `keep` gives it its name.

    A process that is killed leaves at ``path`` what was there before, or all of the new file. A link is followed. A
    file that is there hands on its rights; otherwise they are ``mode``, less the process's mask.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        self.target = Path(os.path.realpath(path))
        self.path = self.target.with_name(f".{self.target.name}.{uuid.uuid4().hex[:8]}")
        self._mode = mode

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)

    def write(self, content: bytes) -> None:
        """Make this all that it holds, on the disk."""
        with open(self.path, "r+b", opener=self._opened) as file:  # over what is there: what had room keeps it
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())

    def _opened(self, path: str, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CREAT, self._mode)
        with suppress(FileNotFoundError):
            self.path.chmod(self.target.stat().st_mode & 0o777)
        return descriptor

    def replace(self) -> None:
        """Give it its name, in the place of a file that has it."""
        os.replace(self.path, self.target)
        _sync_folder(self.target.parent)

    def keep(self) -> Path:
        """Give it its name, or where another file has taken that, the next that is free, as name-2.json: the path."""
        path, count = self.target, 1
        while not self._take(path):
            count += 1
            path = self.target.with_stem(f"{self.target.stem}-{count}")
        _sync_folder(path.parent)
        return path

    def _take(self, path: Path) -> bool:
        """Give it a name; False where a file has it."""
        try:
            try:
                os.link(self.path, path)  # unlike a rename, it replaces nothing
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                os.replace(self.path, path)
        except FileExistsError:
            return False
        self.path.unlink(missing_ok=True)
        return True


def save(content: bytes, target: Target, *, mode: int = 0o666) -> None:
    """Write a file in place of one that is there, as `Part` does; into what is there if that is a pipe or a device, or
    a binary file that is open.
    """
    if not isinstance(target, (str, os.PathLike)):
        target.write(content)
    elif is_special(target):
        Path(target).write_bytes(content)
    else:
        with Part(target, mode) as part:
            part.write(content)
            part.replace()


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether something is there that is no file with a name: a folder, a pipe, a device."""
    return os.path.exists(path) and not os.path.isfile(os.path.realpath(path))


def _sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk, where folders can be opened and synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
