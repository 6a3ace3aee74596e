"""What the system says about memory that is left: of the machine, containers, and the address space."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgep import _memory

GB = 1 << 30


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_memory, "_ROOT", tmp_path)
    return tmp_path


def write(root: Path, **files: str) -> None:
    """Files by their paths, with two underscores for each slash."""
    for name, text in files.items():
        place = root / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def group(root: Path, place: str, limit: str, used: int, *, files: int = 0, first: bool = False) -> None:
    """A control group, of the first version or the second; half of ``files`` were used lately."""
    names = ("limit_in_bytes", "usage_in_bytes", "total_") if first else ("max", "current", "")
    folder = root / "sys/fs/cgroup" / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"memory.{names[0]}").write_text(f"{limit}\n")
    (folder / f"memory.{names[1]}").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(
        f"anon 5\n{names[2]}active_file {files // 2}\n{names[2]}inactive_file {files // 2}\n"
    )


def test_where_nothing_is_known_two_gigabytes_are_assumed(root: Path) -> None:
    assert _memory.spare_memory() == 2 * GB


def test_the_machine_says_what_is_available(root: Path) -> None:
    write(root, proc__meminfo="MemTotal: 300 kB\nMemAvailable: 100 kB\nHugePages_Total: 0\n")
    assert _memory.spare_memory() == 100 << 10


def test_a_container_on_a_large_machine_counts(root: Path) -> None:
    write(root, proc__meminfo=f"MemAvailable: {256 << 20} kB\n", proc__self__cgroup="0::/\n")
    group(root, "", str(2 * GB), GB, files=GB // 2)
    assert _memory.spare_memory() == 2 * GB - GB // 2


@pytest.mark.parametrize("first", [False, True], ids=["second version", "first"])
def test_the_tightest_of_all_groups_counts(root: Path, first: bool) -> None:
    write(root, proc__self__cgroup="3:cpu,cpuacct:/else\n" + ("4:memory:/a/b\n" if first else "0::/a/b\n"))
    top = "memory/" if first else ""
    group(root, f"{top}a/b", str(9 * GB) if first else "max", GB, first=first)
    group(root, f"{top}a", str(4 * GB), 3 * GB, first=first)
    assert _memory.spare_memory() == GB


def test_a_container_that_sees_its_own_group_at_the_top(root: Path) -> None:
    write(root, proc__self__cgroup="4:memory:/docker/0123\n0::/\n")
    group(root, "memory", str(2 * GB), GB, first=True)
    assert _memory.spare_memory() == GB


def test_no_less_than_nothing_is_left(root: Path) -> None:
    write(root, proc__self__cgroup="0::/\n")
    group(root, "", str(GB), 2 * GB)
    assert _memory.spare_memory() == 0


def test_names_may_be_any_bytes(root: Path) -> None:
    """That of a process is cut after 15 bytes, amid a letter."""
    write(root, proc__self__limits="Max address space 1073741824 unlimited bytes\n")
    (root / "proc/self/status").write_bytes(b"Name:\t\xc3\xa9\xc3\nVmSize:\t 1024 kB\n")
    (root / "proc/self/cgroup").write_bytes(b"0::/\xff\n")
    assert _memory.spare_memory() == GB - (1 << 20)
