"""Files that are written as a whole or not at all, and are known to be writable before anything is spent."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dpgep.cli.command import UsageError


class Output:
    """A file to be: its place is tried at once, and taken by `write`."""

    def __init__(self, path: Path, *, force: bool) -> None:
        self.path = path
        if path.is_dir():
            raise UsageError(f"-o: {path} is a folder")
        if path.exists() and not force:
            raise UsageError(f"-o: {path} exists: choose another name, or --force to replace it")
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
        except OSError as error:
            raise UsageError(f"-o: {path} cannot be written ({error.strerror})") from None
        os.close(handle)
        self.part = Path(name)

    def __enter__(self) -> Output:
        return self

    def __exit__(self, *_: object) -> None:
        self.part.unlink(missing_ok=True)

    def write(self, content: bytes) -> None:
        """The whole file, on the disk before it has its name."""
        with self.part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        self.take()

    def take(self) -> None:
        """Give what was written to ``part`` its name, with the rights of a new file."""
        mask = os.umask(0)
        os.umask(mask)
        self.part.chmod(0o666 & ~mask)
        self.part.replace(self.path)
