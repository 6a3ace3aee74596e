"""Ctrl-C and its like in ``dpgep pca ... -o FILE``: what is paid for is kept, and what is said about it is true."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import dpgep
from dpgep import cli
from dpgep.cli.interrupts import Interrupts

# Runs that are interrupted at random times: five hundred of them take minutes.
MANY = int(os.environ.get("DPGEP_INTERRUPTED_RUNS", "80"))
WORDS = ["pca", "people.csv", "--budget", "budget", "--share", "0.25", "-o", "o.json"]

# A process that has imported the command, and forks for each run. Signals come from within, a number of calls after the
# first of a function: where CPython looks for them, in calls of functions of Python and returns from those of C (and in
# loops). The second comes two seconds after the first, by the clock that the command sees.
SERVER = """
import gc, io, json, os, signal, sys, time
import numpy as np, dpgep, dpgep.cli, dpgep._starting, pyarrow.csv, pyarrow.dataset

dpgep.solve(dpgep.pca(np.random.default_rng(0).normal(size=(500, 3))), epsilon=8, delta=1e-5).save(io.BytesIO())
gc.freeze()  # collections of its children leave its memory shared
clock, late, answers = time.monotonic, 0.0, os.dup(1)
time.monotonic = lambda: clock() + late

def profile(frame, event, argument):
    global count, late
    if event in ("call", "c_return"):
        count += 1
        code = frame.f_code
        if event == "call" and (place := (code.co_filename, code.co_name)) not in seen:
            seen.add(place)
            name = f"{os.path.basename(code.co_filename)[:-3]}.{code.co_name}"
            if name not in first:
                first[name] = count
                due.update(count + offset for function, offset in task["at"] if function == name)
        if count in due:
            os.kill(os.getpid(), task["number"])
            late += 2.0

def run():
    sys.setprofile(profile if task["at"] else None)
    status = dpgep.cli.main(task["words"])
    sys.setprofile(None)
    return status

for line in sys.stdin:
    task, count, first, seen, due = json.loads(line), 0, {}, set(), set()
    child = os.fork()
    if not child:
        os.chdir(task["folder"])
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        signal.signal(signal.SIGINT, dpgep._starting.stop)  # as in a process that was started for the command
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whatever the tests were started by, nohup included
        os.write(answers, f"{os.getpid()}\\n".encode())
        try:
            status = run()
        finally:
            sys.setprofile(None)
        with open("calls", "w") as file:
            json.dump({**first, "all": count}, file)
        if task["at"]:  # no signal comes later, and the end of a process takes longer than the run
            sys.stdout.flush(), sys.stderr.flush(), os._exit(status)
        sys.exit(status)
    sys.stdin.readline()  # it may be signalled until here
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
"""


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with people and a budget."""
    place = tmp_path_factory.mktemp("people")
    rows = np.random.default_rng(0).normal(50, 10, (500, 3)).round(1)
    lines = "".join(f"{a},{b},{c}\n" for a, b, c in rows.tolist())
    (place / "people.csv").write_text(f"age,height,weight\n{lines}")
    dpgep.Budget.open(place / "budget", epsilon=8, delta=1e-5, adjacency="replace-one", dataset="people")
    return place


def copied(folder: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    return Path(shutil.copytree(folder, copy))


def judged(folder: Path, outcome: Outcome) -> str:
    """What became of a run, "kept", "nothing spent" or "given up": AssertionError if it is not what the run says."""
    status, out, err = outcome
    budget = dpgep.Budget.open(folder / "budget")
    spent, about = budget.spent_mu, f"status {status}\n{out}\n{err}"
    is_kept = (folder / "o.json").exists()
    assert "Traceback" not in err or "Exception ignored in" in err, about  # in a callback, where Python says so
    assert budget.open_reservations == (), about
    assert set(os.listdir(folder)) <= {"people.csv", "budget", "budget.head", "o.json", "out", "err", "calls"}, about
    if is_kept:
        assert dpgep.load(folder / "o.json").privacy.mu == pytest.approx(spent, rel=1e-9)
        assert "kept in o.json" in err, about
    if status == 0:  # it had come to its end
        assert is_kept
        assert "Solution of pca" in out
        return "kept"
    said = re.search(r"\ndpgep: interrupted; (.*)\n$", f"\n{err}")
    assert said, about
    if spent == 0:
        assert not is_kept
        assert said[1] in ("nothing was spent", "nothing was released, nothing was spent"), about
        return "nothing spent"
    assert said[1] == f"spent: mu = {spent:.4g}", about
    return "kept" if is_kept else "given up"


class Runs:
    """Runs of the command in copies of a folder, with signals in given calls."""

    def __init__(self, folder: Path, copy: Path) -> None:
        self._folder, self._copy = folder, copy
        command = [sys.executable, "-c", SERVER]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        place, outcome = self.run(("no function", 0))
        assert outcome.status == 0, outcome
        #: numbers of the first calls of functions, by their names, and of "all"
        self.calls: dict[str, int] = json.loads((place / "calls").read_text())

    def close(self) -> None:
        self._server.communicate()

    def run(
        self, *at: tuple[str, int], number: int = signal.SIGINT, seconds: float | None = None
    ) -> tuple[Path, Outcome]:
        """A run that gets signals at these calls, or from outside, after so many seconds."""
        place = copied(self._folder, self._copy)
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        task = {"folder": str(place), "words": [*WORDS, "--seed", "1"], "at": at, "number": number}
        self._server.stdin.write(json.dumps(task) + "\n")
        self._server.stdin.flush()
        process = int(self._server.stdout.readline())
        if seconds is not None:
            time.sleep(seconds)
            os.kill(process, number)
        self._server.stdin.write("\n")
        self._server.stdin.flush()
        status = json.loads(self._server.stdout.readline())
        return place, Outcome(status, (place / "out").read_text(), (place / "err").read_text())

    def judged(self, *at: tuple[str, int], number: int = signal.SIGINT) -> str:
        place, outcome = self.run(*at, number=number)
        assert outcome.status == 128 + number, outcome
        return judged(place, outcome)


@pytest.fixture(scope="module")
def runs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    found = Runs(folder, tmp_path_factory.mktemp("run") / "copy")
    yield found
    found.close()


@pytest.mark.parametrize("count", [6, pytest.param(24, marks=pytest.mark.deep)])
def test_an_interrupt_in_any_call_loses_nothing_that_is_paid_for(runs: Runs, count: int) -> None:
    """In calls that are spread evenly from where the arguments are known to the end."""
    length = runs.calls["interrupts.restore"] - runs.calls["fit._run"] - 100
    found = Counter(runs.judged(("fit._run", length * i // (count - 1))) for i in range(count))
    assert found.keys() == {"kept", "nothing spent"}


def test_an_interrupt_where_the_state_changes_loses_nothing_that_is_paid_for(runs: Runs) -> None:
    for name in ("command.try_place", "budget._reserved", "budget._take", "ledger.record"):
        assert runs.judged((name, 0)) == "nothing spent", name
    for offset in range(4):  # on its way out of the functions that have reserved
        assert runs.judged(("interrupts.hold_when", offset)) == "nothing spent", offset
    assert runs.judged(("ledger.record", 100)) == "kept"
    for name in ("budget._settle", "interrupts.ignore", "command.take", "interrupts.kept", "fit._show"):
        assert runs.judged((name, 0)) == "kept", name


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_that_end_a_process_do_so_like_ctrl_c(runs: Runs, number: int) -> None:
    assert runs.judged(("ledger.record", 0), number=number) == "nothing spent"
    assert runs.judged(("budget._settle", 0), number=number) == "kept"


def test_a_second_interrupt_gives_up_what_is_paid_for_unless_the_answer_is_there(runs: Runs) -> None:
    paid = ("ledger.record", 100)
    place, outcome = runs.run(paid)
    assert "a part of the budget is spent: the run goes on until its answer is kept" in outcome.err
    assert judged(place, outcome) == "kept"
    assert runs.judged(paid, ("ledger.record", 400)) == "given up"
    assert runs.judged(paid, ("solution.solution_of", 0)) == "given up"
    assert runs.judged(paid, ("fit._keep", 0)) == "kept"
    assert runs.judged(paid, ("command.take", 0)) == "kept"


def test_an_interrupt_while_a_part_of_the_budget_is_reserved_ends_the_run_afterwards(runs: Runs) -> None:
    place, outcome = runs.run(("budget._take", 10))
    assert "the run ends when its budget is as before" in outcome.err
    assert judged(place, outcome) == "nothing spent"
    assert [each["kind"] for each in dpgep.Budget.open(place / "budget").history] == ["budget", "reserve", "settle"]


def test_a_process_that_is_killed_leaves_a_whole_file_or_none(runs: Runs) -> None:
    names = ("fit._keep", "serialization.write", "command.take", "serialization._take")
    for function in (*names, "serialization.sync_folder", "fit._show"):
        place, outcome = runs.run((function, 0), number=signal.SIGKILL)
        assert outcome.status == -signal.SIGKILL
        is_kept = (place / "o.json").exists()
        assert is_kept is (function in ("serialization.sync_folder", "fit._show"))
        if is_kept:
            spent = dpgep.Budget.open(place / "budget").spent_mu
            assert dpgep.load(place / "o.json").privacy.mu == pytest.approx(spent, rel=1e-9)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """As from a terminal: a shell starts what runs in its background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interruptible")
def test_two_interrupts_within_a_second_are_one() -> None:
    interrupts = Interrupts()
    interrupts.hold_when(lambda: True)
    interrupts.install()
    try:
        for _ in range(3):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.kept()
    finally:
        interrupts.restore()


def test_handlers_are_those_of_before_and_what_is_ignored_stays_so() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert cli.main(["info"]) == 0
    assert signal.getsignal(signal.SIGINT) is before
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # nohup
    try:
        Interrupts().install()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.deep
@pytest.mark.parametrize("count", [MANY])
def test_interrupts_at_random_times_of_a_run(folder: Path, tmp_path: Path, count: int) -> None:
    """``count`` runs with signals from outside, at times that are spread evenly, each moved by chance."""
    shutil.copytree(folder, tmp_path / "people")
    lines = (folder / "people.csv").read_text().splitlines(keepends=True)
    (tmp_path / "people" / "people.csv").write_text("".join([lines[0], *lines[1:] * 100]))
    servers = [Runs(tmp_path / "people", tmp_path / f"run {i}") for i in range(os.cpu_count() or 1)]
    start = time.perf_counter()
    assert servers[0].run()[1].status == 0
    seconds, chance = 1.1 * (time.perf_counter() - start), random.Random(0)
    delays = [seconds * (i + chance.random()) / count for i in range(count)]

    def interrupted(server: int) -> Counter[str]:
        found: Counter[str] = Counter()
        for delay in delays[server :: len(servers)]:
            place, outcome = servers[server].run(seconds=delay)
            assert outcome.status in (0, 130), outcome
            found[judged(place, outcome) + (" to the end" if outcome.status == 0 else "")] += 1
        return found

    with ThreadPoolExecutor(len(servers)) as pool:
        found = sum(pool.map(interrupted, range(len(servers))), Counter())
    for server in servers:
        server.close()
    print(f"{count} interrupts within {seconds:.2f} s: {dict(found)}")
    assert found.keys() <= {"kept", "kept to the end", "nothing spent"}


@pytest.mark.deep
@pytest.mark.parametrize("count", [MANY // 4])
def test_interrupts_at_random_times_of_a_process(folder: Path, tmp_path: Path, count: int) -> None:
    """In ``count`` processes, from their start on, at times that are spread evenly, each moved by chance.

    Only before the first import of dpgep is done may it end as every program of Python does.
    """
    command = [sys.executable, "-m", "dpgep", *WORDS]
    start = time.perf_counter()
    subprocess.run(command, cwd=copied(folder, tmp_path / "first"), check=True, capture_output=True)
    seconds = 1.05 * (time.perf_counter() - start)
    chance = random.Random(0)
    delays = [seconds * (i + chance.random()) / count for i in range(count)]

    def interrupted(task: tuple[int, float]) -> str:
        place = copied(folder, tmp_path / str(task[0]))
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=place, **streams) as run:  # type: ignore[call-overload]
            time.sleep(task[1])
            run.send_signal(signal.SIGINT)
            outcome = Outcome(run.wait(), *run.communicate())
        if outcome.status in (1, -signal.SIGINT) and "scipy" not in outcome.err:
            assert len(dpgep.Budget.open(place / "budget").history) == 1
            return "not begun"
        assert outcome.status in (0, 130), outcome
        found = judged(place, outcome)
        shutil.rmtree(place)
        return found

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = Counter(pool.map(interrupted, enumerate(delays)))
    print(f"{count} interrupts within {seconds:.2f} s: {dict(found)}")
    assert found.keys() <= {"kept", "nothing spent", "not begun"}
