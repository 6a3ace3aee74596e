"""Attacks on budgets: interrupts at every call, kills in a row, files that someone else wrote or moved."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from dpgep import Budget
from dpgep.errors import PrivacyBudgetError
from dpgep.privacy import budget_file
from dpgep.privacy.budget import LastingBudget
from dpgep.privacy.budget_file import BudgetFile, _hash_of, _head, _line
from dpgep.privacy.ledger import LedgerEntry, cost_of

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")


def create(path: Path) -> LastingBudget:
    return Budget.open(path, mu=1.0, adjacency="replace-one", dataset="attacked")


def spend(budget: Budget, share: float | None = None) -> float:
    with budget.reserve(share, adjacency="replace-one") as ledger:
        ledger.record(LedgerEntry("test", ledger.mu, ()))
        return ledger.mu


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


# --- Interrupts ------------------------------------------------------------------------------------


FILES = ("budget.py", "budget_file.py", "ledger.py", "contextlib.py")


class _InterruptAt:
    """KeyboardInterrupt before the ``point``-th instruction of budget code, or of the `with` statements around it."""

    def __init__(self, point: int) -> None:
        self.left = point

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if os.path.basename(frame.f_code.co_filename) not in FILES:
            return None
        frame.f_trace, frame.f_trace_opcodes, frame.f_trace_lines = self, True, False
        if event == "opcode":
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def interrupted_run(budget: Budget, interrupt: _InterruptAt, released: list[float], kept: contextlib.ExitStack) -> None:
    sys._getframe().f_trace_opcodes = True  # CPython 3.12 and later look for it when tracing begins
    sys.settrace(interrupt)
    try:
        with budget.reserve(0.5, adjacency="replace-one") as ledger:
            ledger.record(LedgerEntry("interrupted", ledger.mu, ()))
            released.append(ledger.mu)
    except KeyboardInterrupt as error:
        kept.callback(str, error)  # with its frames, as a shell keeps them, while others spend
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("lasting", [False, True])
def test_an_interrupt_anywhere_frees_nothing(
    lasting: bool, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_file, "force", lambda _: None)  # no power is cut here
    monkeypatch.setattr(budget_file, "sync_folder", lambda _: None)
    point = 0
    while True:
        point += step
        file = tmp_path / f"{point}"
        budget: Budget = create(file) if lasting else Budget(mu=1.0)
        released = [spend(Budget.open(file), 0.25)] if lasting else []
        interrupt = _InterruptAt(point)
        gc.disable()
        with contextlib.ExitStack() as kept:
            # on a thread of its own: where CPython leaves an `except` block, a trace function that raises leaves the
            # block's exception behind, as the one that the thread is handling from then on
            run = threading.Thread(target=interrupted_run, args=(budget, interrupt, released, kept))
            run.start()
            run.join()
            for _ in range(5):
                with contextlib.suppress(PrivacyBudgetError):
                    released.append(spend(budget, 0.25))
        gc.enable()
        assert sum(map(cost_of, released)) <= 1
        if lasting:
            assert sum(cost_of(entry.mu or 0.0) for entry in Budget.open(file).releases) <= 1
        if interrupt.left > 0:
            break
    assert point > 500


# --- Kills, and errors of the system ---------------------------------------------------------------


@forks
def test_two_kills_in_a_row_before_the_head_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leaves a whole line that is not acknowledged."""
    create(path)
    for _ in range(3):
        child = os.fork()
        if child == 0:
            with monkeypatch.context() as patch:
                patch.setattr(os, "write", _killing_write(os.write))
                try:
                    spend(Budget.open(path), 0.1)
                finally:
                    os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    budget = Budget.open(path)
    assert len(budget.open_reservations) == 3
    assert budget.remaining_mu**2 == pytest.approx(0.7)
    spend(budget, 0.7)
    with pytest.raises(PrivacyBudgetError, match="cannot pay"):
        spend(Budget.open(path))


def _killing_write(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    def killed_after_a_line(descriptor: int, data: bytes) -> int:
        count = write(descriptor, data)
        if bytes(data).startswith(b'{"n"'):
            os._exit(9)
        return count

    return killed_after_a_line


def test_a_head_that_could_not_be_written_leaves_the_file_usable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = create(path)
    with monkeypatch.context() as patch:
        patch.setattr(BudgetFile, "_acknowledge", _denied)
        for _ in range(3):
            with pytest.raises(PrivacyBudgetError, match="cannot be written"):
                spend(budget, 0.1)
    assert Budget.open(path).remaining_mu ** 2 == pytest.approx(0.9)  # one reservation could not be withdrawn
    spend(budget, 0.9)


def _denied(*_: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_names_are_on_the_disk_before_anything_is_spent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the process that created the file was killed before it wrote the head."""
    create(path)
    Path(f"{path}.head").unlink()
    synced: list[Path] = []
    monkeypatch.setattr(budget_file, "sync_folder", synced.append)
    spend(Budget.open(path), 0.1)
    assert synced == [path.parent]


# --- Files that someone else wrote or moved --------------------------------------------------------


def forge(path: Path, *records: dict[str, Any]) -> None:
    """Append records with right hashes."""
    lines = path.read_bytes().splitlines(keepends=True)
    for record in records:
        lines.append(_line(_hash_of(lines[-1]), {"n": len(lines) + 1, "time": "", "process": "", **record}))
    path.write_bytes(b"".join(lines))
    Path(f"{path}.head").write_bytes(_head(sum(map(len, lines)), _hash_of(lines[-1])))


RESERVE: dict[str, Any] = {"kind": "reserve", "reservation": "a", "mu": 0.9}
SAMPLED: dict[str, Any] = {"type": "Callable"}


@pytest.mark.parametrize(
    "records",
    [
        [{"kind": "settle", "reservation": "never made", "releases": []}],
        [{"kind": "give back", "reservation": "never made"}],
        [RESERVE, {**RESERVE, "mu": 0.1}],
        [RESERVE, *2 * [{"kind": "settle", "reservation": "a", "releases": []}]],
        [{**RESERVE, "mu": -0.1}],
        [{**RESERVE, "mu": "0.1"}],
        [{**RESERVE, "mu": 10**400}],
        [{**RESERVE, "reservation": ["a"]}],
        [{"kind": "reserve", "mu": 0.1}],
        [{"kind": "reserve", "reservation": "a"}],
        [RESERVE, {"kind": "settle", "reservation": "a", "releases": [{"query": "", "noise": [], "event": SAMPLED}]}],
        [{"time": "no kind"}],
    ],
)
def test_lines_that_make_no_sense_are_refused_each_time(path: Path, records: list[dict[str, Any]]) -> None:
    budget = create(path)
    forge(path, *records, {"kind": "reserve", "reservation": "last", "mu": 1.0})
    for attempt in (lambda: spend(budget), lambda: spend(budget), lambda: Budget.open(path)):
        with pytest.raises(PrivacyBudgetError, match=r"line \d+ makes no sense"):
            attempt()


def test_a_file_replaced_while_a_process_waits_for_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it would write to the file that is gone, nobody would read."""
    budget, lock, copy = create(path), budget_file.try_lock, path.with_name("copy")

    def replaced_meanwhile(descriptor: int, exclusive: bool) -> bool:
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
        return lock(descriptor, exclusive)

    if sys.platform == "win32":
        pytest.skip("an open file cannot be replaced here")
    with monkeypatch.context() as patch:
        patch.setattr(budget_file, "try_lock", replaced_meanwhile)
        with pytest.raises(PrivacyBudgetError, match="was replaced"):
            spend(budget)
    assert spend(Budget.open(path)) == 1.0


@forks
def test_who_looks_at_the_file_meanwhile_drops_no_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup by the same process, say: what closes a file drops all POSIX locks of its process on it."""
    budget, force, is_locked = create(path), budget_file.force, []

    def look(descriptor: int) -> None:
        shutil.copytree(path.parent, path.parent / f"copy {len(is_locked)}", ignore=shutil.ignore_patterns("copy*"))
        code = "import fcntl, sys; fcntl.flock(open(sys.argv[1], 'rb'), fcntl.LOCK_SH | fcntl.LOCK_NB)"
        tried = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True)
        is_locked.append("BlockingIOError" in tried.stderr)
        force(descriptor)

    monkeypatch.setattr(budget_file, "force", look)
    spend(budget)
    assert is_locked == [True] * 4


def test_lines_that_lost_their_ends_are_no_beginning_of_a_file(path: Path) -> None:
    """Without a head, what has no end of line is taken for a creation that was cut off: the spent budget came again."""
    spend(create(path))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))
    Path(f"{path}.head").unlink()
    with pytest.raises(PrivacyBudgetError, match=r"its head, .* is missing"):
        create(path)
