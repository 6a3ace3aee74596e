"""How much memory is left, where the system says so: what is kept for speed must not have a process killed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Below it lie proc/ and sys/.
_ROOT = Path("/")
# Bytes where the system does not say, as on macOS.
_UNTOLD = 1 << 31
# By the controller's name, which the second version of control groups leaves out: the files of what a group may take
# and of what it takes, and how the statistics begin that count the groups below it.
_FILES = {"": ("max", "current", ""), "memory": ("limit_in_bytes", "usage_in_bytes", "total_")}


def spare_memory() -> int:
    """Bytes that are left to the machine, the containers around this process, and its address space: the fewest.

    The system's cache of files counts as free: it gives that up when asked.
    """
    return max(0, min(_left(), default=_UNTOLD))


def _left() -> Iterator[int]:
    for available in _numbers("proc/meminfo", "MemAvailable:"):
        yield 1024 * available
    for limit in _numbers("proc/self/limits", "Max address space"):
        yield limit - 1024 * sum(_numbers("proc/self/status", "VmSize:"))
    for controller, path in re.findall(r"^\d+:(|memory):/(.*)$", _text("proc/self/cgroup"), re.MULTILINE):
        limit_file, use_file, of_all = _FILES[controller]
        group = Path("sys/fs/cgroup", controller, path)
        for place in (group, *group.parents):  # a container may see its own group at the top
            for limit in _numbers(place / f"memory.{limit_file}"):
                files = _numbers(place / "memory.stat", f"{of_all}(?:in)?active_file")
                yield limit - sum(_numbers(place / f"memory.{use_file}")) + sum(files)


def _numbers(file: str | Path, name: str = "") -> list[int]:
    """The numbers after a name in the lines of a file."""
    return [int(number) for number in re.findall(rf"^{name}\s*(\d+)\b", _text(file), re.MULTILINE)]


def _text(file: str | Path) -> str:
    with suppress(OSError):
        return os.fsdecode((_ROOT / file).read_bytes())  # names in it may be any bytes
    return ""
