"""Ctrl-C at any time: no lock stays held, nothing is overspent, and a wait for a lock says so and can be given up."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dpgep import Budget
from dpgep.errors import PrivacyBudgetError
from dpgep.privacy import budget_file
from dpgep.privacy.budget_file import undisturbed
from dpgep.privacy.ledger import AtomicReference, LedgerEntry

PROGRAM = Path(__file__).resolve().parents[1] / "support" / "interrupted_budget.py"
MANY = pytest.mark.deep
# Seconds; a machine that is busy takes a tenth of it.
LIMIT = 500


def create(path: Path) -> Budget:
    return Budget.open(path, mu=1.0, adjacency="replace-one", dataset="test")


def spend(budget: Budget, share: float | None = None) -> float:
    with budget.reserve(share, adjacency="replace-one") as ledger:
        ledger.record(LedgerEntry("test", ledger.mu, ()))
        return ledger.mu


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


@pytest.mark.parametrize("count", [150, pytest.param(10_000, marks=MANY)])
@pytest.mark.parametrize("lasting", [False, True], ids=["memory", "file"])
def test_real_interrupts_leave_no_lock_held_and_free_nothing(lasting: bool, count: int, tmp_path: Path) -> None:
    words = [sys.executable, str(PROGRAM), str(tmp_path) if lasting else "memory", str(count)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{count} interrupts")
    assert done.stdout.endswith("overspent: False\n")


# --- Waiting ---------------------------------------------------------------------------------------


@contextmanager
def program(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the code and handles SIGINT, also if whoever started the tests ignores it."""
    beginning = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    words = [sys.executable, "-c", beginning + textwrap.dedent(code), *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        end = threading.Timer(LIMIT, child.kill)
        end.start()
        try:
            yield child
        finally:
            end.cancel()
            child.kill()


def said(stream: object) -> str:
    """The next line of a process."""
    return stream.readline().strip()  # type: ignore[attr-defined, no-any-return]


def test_a_wait_says_what_for_and_ctrl_c_gives_it_up(path: Path) -> None:
    create(path)
    code = """
        import sys, time, dpgep
        from dpgep.privacy import budget_file
        budget_file._PATIENCE = 0.1
        budget = dpgep.Budget.open(sys.argv[1])
        print("open", flush=True)
        for _ in range(2):
            input()
            try:
                with budget.reserve(adjacency="replace-one"):
                    print("reserved", flush=True)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                end = time.monotonic() + 60
                while len(sys._current_frames()) > 1 and time.monotonic() < end:
                    time.sleep(0.001)
                print(len(sys._current_frames()), "thread", flush=True)
    """
    with program(code, path) as child, open(path, "rb") as file:
        assert child.stdin is not None
        assert said(child.stdout) == "open"
        fcntl.flock(file, fcntl.LOCK_SH)
        print(file=child.stdin, flush=True)
        waiting = (
            f"still waiting for the budget in {path}: another process uses it, or its disk is slow; Ctrl-C gives up"
        )
        assert said(child.stderr) == waiting
        child.send_signal(signal.SIGINT)
        assert said(child.stdout) == "interrupted"
        assert said(child.stdout) == "1 thread"  # nobody waits on
        fcntl.flock(file, fcntl.LOCK_UN)
        print(file=child.stdin, flush=True)
        assert said(child.stdout) == "reserved"
        assert child.wait() == 0
    assert Budget.open(path).remaining_mu == 1.0
    assert len(Budget.open(path).history) == 3  # what was given up has not even been written


def test_a_reservation_that_nobody_waits_for_is_withdrawn(path: Path) -> None:
    """Interrupted while the disk is waited for: the line is written nevertheless, and then the one that frees it."""
    create(path)
    code = """
        import sys, threading, dpgep
        from dpgep.privacy import budget_file
        budget = dpgep.Budget.open(sys.argv[1])
        interrupted, sync = threading.Event(), budget_file._sync
        def slow(descriptor):
            if not interrupted.is_set():
                print("writing", flush=True)
                interrupted.wait()
            sync(descriptor)
        budget_file._sync = slow
        try:
            with budget.reserve(adjacency="replace-one"):
                print("reserved")
        except KeyboardInterrupt:
            interrupted.set()
        print([record["kind"] for record in budget.history], budget.remaining_mu, flush=True)
    """
    with program(code, path) as child:
        assert said(child.stdout) == "writing"
        child.send_signal(signal.SIGINT)
        assert said(child.stdout) == "['budget', 'reserve', 'settle'] 1.0"


def test_a_fork_whose_wait_is_interrupted_leaves_the_child_free(path: Path) -> None:
    """The child has the lock, but not the thread that would release it."""
    create(path)
    code = """
        import os, sys, threading, time, dpgep
        from dpgep.privacy import budget_file
        ignored, waits = [], threading.Event()
        sys.unraisablehook = ignored.append
        main, forked = threading.get_ident(), threading.Event()
        def interrupt(*_):
            if waits.is_set():
                waits.clear()
                raise KeyboardInterrupt
        signal.signal(signal.SIGINT, interrupt)
        def hold():
            with budget_file._turn:
                held.set()
                while not forked.wait(0.02):
                    signal.pthread_kill(main, signal.SIGINT)
        held = threading.Event()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        child = None
        while child is None:
            try:
                waits.set()
                child = os.fork()
            except KeyboardInterrupt:
                pass
        waits.clear()
        forked.set()
        budget = dpgep.Budget.open(sys.argv[1])
        with budget.reserve(0.5, adjacency="replace-one"):
            pass
        if child == 0:
            os._exit(0)
        assert ignored
        print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """
    with program(code, path) as child:
        assert said(child.stdout) == "child 0", child.stderr.read() if child.stderr else ""


# --- The two mechanisms ----------------------------------------------------------------------------


def test_threads_that_replace_a_value_lose_no_update() -> None:
    value, each = AtomicReference(0), 2000
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: [value.update(lambda n: n + 1) for _ in range(each)]) for _ in "1234"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert value.get() == 4 * each


def test_an_update_within_an_update_is_not_lost() -> None:
    """A handler of a signal, or the garbage collector, may spend from the budget that is being spent from."""
    value, first = AtomicReference(0), [True]

    def change(n: int) -> int:
        if first:
            first.clear()
            value.update(lambda m: m + 10)
        return n + 1

    assert value.update(change) == 11


def test_what_runs_undisturbed_returns_and_raises_as_if_called() -> None:
    assert undisturbed(lambda is_awaited: is_awaited(), "nothing") is True
    with pytest.raises(ZeroDivisionError):
        undisturbed(lambda _: 1 // 0, "nothing")


def test_what_would_wait_for_itself_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the garbage collector settles a forgotten reservation while another one is written."""
    budget, force = create(path), budget_file.force
    monkeypatch.setattr(budget_file, "force", lambda descriptor: (force(descriptor), budget.remaining_mu))
    with pytest.raises(PrivacyBudgetError, match=r"cannot be written .*deadlock.*no data was read"):
        spend(budget)


def test_without_threads_no_data_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = create(path)

    def exhausted(*_: Callable[[], object]) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(budget_file._thread, "start_new_thread", exhausted)
        with pytest.raises(PrivacyBudgetError, match=r"cannot be written .no thread can be started.; no data was read"):
            spend(budget)
    assert spend(budget) == 1.0
