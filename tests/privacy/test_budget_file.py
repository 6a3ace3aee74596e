"""Budgets in files: what outlives a process, a crash, damage; one total for all who open the file."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import pickle
import random
import shutil
import signal
import threading
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpgep
from dpgep import Budget
from dpgep.cli import main
from dpgep.errors import PrivacyBudgetError
from dpgep.privacy import budget_file
from dpgep.privacy.budget import LastingBudget
from dpgep.privacy.budget_file import FileStore
from dpgep.privacy.ledger import Balance, Cost, LedgerEntry, NoiseBlock, cost_of

TERMS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one", "dataset": "visits-2026"}
SEVENTH = 1 / 7


def spend(budget: Budget, share: float | None = None, query: str = "test", **part: Any) -> float:
    with budget.reserve(share, adjacency="replace-one", **part) as ledger:
        ledger.record(LedgerEntry(query, ledger.mu, (NoiseBlock("x", "goe", 1 / 3, 7),), 20))
        return ledger.mu


def committed(budget: LastingBudget) -> Cost:
    """mu^2 of all that is spent and reserved, exactly, from the records alone."""
    history = budget.history
    open_ones = {each["reservation"]: cost_of(each["mu"]) for each in history if each["kind"] == "reserve"}
    for each in history:
        if each["kind"] in ("settle", "give back"):
            del open_ones[each["reservation"]]
    paid = [cost_of(entry["mu"]) for each in history for entry in each.get("releases", ())]
    return sum([*open_ones.values(), *paid], start=Fraction(0))


def in_a_process(work: Callable[[], object]) -> int:
    """The number of a forked process that does the work; it exits with 0, or with 1 for an exception."""
    child = os.fork()
    if child == 0:
        status = 1
        signal.alarm(120)
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def exit_status(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weekly.budget"


@pytest.fixture
def used(path: Path) -> Path:
    """A file with settled releases, an exception before a release, and an open reservation."""
    budget = Budget.open(path, purpose="a test", **TERMS)
    spend(budget, 0.1)
    spend(budget, 0.2)
    with pytest.raises(KeyboardInterrupt), budget.reserve(0.3, adjacency="replace-one"):
        raise KeyboardInterrupt
    killed_in_a_run(path, 0.25)
    return path


def killed_in_a_run(path: Path, share: float) -> None:
    def work() -> None:
        with Budget.open(path).reserve(share, adjacency="replace-one"):
            os.kill(os.getpid(), signal.SIGKILL)

    assert exit_status(in_a_process(work)) == -signal.SIGKILL


# --- Terms -----------------------------------------------------------------------------------------


def test_a_budget_lasts(path: Path) -> None:
    first = Budget.open(path, **TERMS)
    mu = spend(first, 0.25)
    again = Budget.open(path)
    assert isinstance(again, Budget)
    assert (again.epsilon, again.delta, again.accounting, again.adjacency) == (1.0, 1e-6, "gdp", "replace-one")
    assert (again.dataset, again.path) == ("visits-2026", path)
    assert again.mu == Budget(epsilon=1.0, delta=1e-6).mu
    assert again.releases == first.releases == (LedgerEntry("test", mu, (NoiseBlock("x", "goe", 1 / 3, 7),), 20),)
    assert again.remaining_mu == first.remaining_mu
    with pytest.raises(PrivacyBudgetError, match="the budget cannot pay for share"):
        spend(again, 0.8)
    spend(again)
    with pytest.raises(PrivacyBudgetError, match="cannot pay for anything"):
        spend(first)
    assert (path.stat().st_mode & 0o777, first.path.with_name("weekly.budget.head").exists()) == (0o600, True)


@pytest.mark.parametrize(
    "form", [{"mu": 0.5}, {"rho": 0.1}, {"epsilon": 0.3, "delta": 1e-9, "accounting": "zcdp"}], ids=str
)
def test_every_form_lasts(path: Path, form: dict[str, Any]) -> None:
    mu = spend(Budget.open(path, **form, adjacency="replace-one", dataset="d"), 0.5)
    again = Budget.open(path, **form, adjacency="replace-one", dataset="d")
    in_memory = Budget(**form)
    assert spend(in_memory, 0.5) == mu
    assert (again.mu, again.spent_mu, again.remaining_mu) == (in_memory.mu, mu, in_memory.remaining_mu)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"dataset": "visits-2025"}, "has dataset = 'visits-2026', not 'visits-2025'"),
        ({"adjacency": "add-remove"}, "has adjacency = 'replace-one', not 'add-remove'"),
        ({"epsilon": 2.0}, "has epsilon = 1.0, not 2.0"),
        ({"delta": 1e-5}, "has delta = 1e-06, not 1e-05"),
        ({"accounting": "zcdp"}, "has accounting = 'gdp', not 'zcdp'"),
        ({"mu": 1.0}, "is not given in mu"),
    ],
)
def test_other_terms_are_refused(used: Path, other: dict[str, Any], message: str) -> None:
    before = used.read_bytes()
    with pytest.raises(PrivacyBudgetError, match=message):
        Budget.open(used, **other)
    assert used.read_bytes() == before


@pytest.mark.parametrize(
    ("terms", "error", "message"),
    [
        ({}, FileNotFoundError, "no budget in .*needs epsilon and delta .or rho, or mu., adjacency, dataset"),
        ({"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace-one"}, ValueError, "a new one needs dataset"),
        ({"dataset": "d", "adjacency": "replace-one"}, ValueError, "a new one needs epsilon and delta"),
        ({**TERMS, "epsilon": -1.0}, ValueError, "epsilon must be a positive number"),
        ({**TERMS, "mu": 1.0}, ValueError, "exactly one budget"),
        ({**TERMS, "adjacency": "swap"}, ValueError, "adjacency must be"),
        ({**TERMS, "epsilon": float("inf")}, ValueError, "needs no file"),
        ({**TERMS, "dataset": ""}, TypeError, "dataset must be a name, got ''"),
        ({**TERMS, "purpose": 3}, TypeError, "purpose must be a name, got 3"),
    ],
)
def test_terms_that_are_missing_or_wrong_leave_no_file(
    path: Path, terms: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Budget.open(path, **terms)
    assert list(path.parent.iterdir()) == []


def test_a_run_under_another_adjacency_is_refused(used: Path) -> None:
    before = used.read_bytes()
    with pytest.raises(PrivacyBudgetError, match="spent under replace-one adjacency"):
        dpgep.solve(dpgep.pca(np.ones((9, 2)), adjacency="add-remove", public_n=9), budget=Budget.open(used), share=0.1)
    assert used.read_bytes() == before


# --- Several at once -------------------------------------------------------------------------------


def test_of_eight_processes_that_want_a_seventh_seven_succeed(path: Path) -> None:
    def work() -> None:
        spend(Budget.open(path, **TERMS), SEVENTH)  # whoever is first creates it

    children = [in_a_process(work) for _ in range(8)]
    assert sorted(map(exit_status, children)) == [0] * 7 + [1]
    budget = Budget.open(path)
    assert len(budget.releases) == 7
    assert committed(budget) <= cost_of(budget.mu)


def test_threads_with_objects_of_their_own_cannot_spend_twice(path: Path) -> None:
    Budget.open(path, **TERMS)
    barrier, outcomes = threading.Barrier(8), []

    def run() -> None:
        budget = Budget.open(path)
        barrier.wait()
        try:
            spend(budget, 0.5)
            outcomes.append(True)
        except PrivacyBudgetError:
            outcomes.append(False)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(outcomes) == 2


def test_a_reservation_of_another_object_counts(path: Path) -> None:
    one, two = Budget.open(path, **TERMS), Budget.open(path)
    with one.reserve(0.75, adjacency="replace-one"):
        assert len(two.open_reservations) == 1
        with pytest.raises(PrivacyBudgetError, match="cannot pay for share"):
            spend(two, 0.5)
    assert two.remaining_mu == one.mu
    spend(two, 0.5)
    assert one.releases == two.releases


def test_a_forked_copy_is_refused_and_may_open_the_file_again(path: Path) -> None:
    budget = Budget.open(path, **TERMS)

    def work() -> None:
        with pytest.raises(PrivacyBudgetError, match="belongs to another process"):
            spend(budget, 0.5)
        assert budget.releases == ()
        spend(Budget.open(path), 0.5)

    assert exit_status(in_a_process(work)) == 0
    assert len(budget.releases) == 1


def test_a_fork_while_another_thread_writes_does_not_hang(path: Path) -> None:
    budget = Budget.open(path, **TERMS)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with contextlib.suppress(KeyboardInterrupt), budget.reserve(0.01, adjacency="replace-one"):
                raise KeyboardInterrupt

    thread = threading.Thread(target=write)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads: the point
        children = [in_a_process(lambda: spend(Budget.open(path), 0.01)) for _ in range(10)]
    assert [exit_status(child) for child in children] == [0] * 10
    stop.set()
    thread.join()
    assert len(budget.releases) == 10


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_cannot_be_duplicated(path: Path, duplicate: Callable[[object], object]) -> None:
    with pytest.raises(TypeError, match="two copies could each spend it"):
        duplicate(Budget.open(path, **TERMS))


# --- Crashes and damage ----------------------------------------------------------------------------


def test_a_killed_run_stays_spent_until_someone_gives_it_back(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    budget = Budget.open(path, **TERMS)
    killed_in_a_run(path, 0.75)
    with pytest.raises(PrivacyBudgetError, match="cannot pay for share"):
        spend(budget, 0.5)
    (left,) = budget.open_reservations
    assert main(["budget", "recover", str(path)]) == 0
    assert left["reservation"] in capsys.readouterr().out
    assert main(["budget", "recover", str(path), "--reservation", left["reservation"]]) == 1
    assert "say --nothing-was-released" in capsys.readouterr().err
    with pytest.raises(ValueError, match="only on your word"):
        budget.give_back(left["reservation"])
    assert budget.open_reservations == (left,)
    words = ["budget", "recover", str(path), "--nothing-was-released", "--reservation"]
    assert main([*words, "no such"]) == 1
    assert main([*words, left["reservation"]]) == 0
    assert main([*words, left["reservation"]]) == 1  # it is not open any more
    assert (budget.remaining_mu, budget.open_reservations) == (budget.mu, ())


def test_a_run_whose_reservation_was_given_back_is_withheld(path: Path) -> None:
    budget = Budget.open(path, **TERMS)

    def run() -> None:
        with budget.reserve(adjacency="replace-one") as ledger:
            other = Budget.open(path)
            other.give_back(other.open_reservations[0]["reservation"], nothing_was_released=True)
            ledger.record(LedgerEntry("test", ledger.mu, ()))

    with pytest.raises(PrivacyBudgetError, match="result is withheld"):
        run()
    assert (budget.releases, budget.remaining_mu) == ((), budget.mu)


def refusing_to_open(monkeypatch: pytest.MonkeyPatch, path: Path, flags: int) -> None:
    """The file cannot be opened with these flags; 0: not at all."""
    real = os.open

    def refuse(name: Any, asked: int, mode: int = 0o777) -> int:
        if Path(name) == path and asked & flags == flags:
            raise OSError(24, "Too many open files")
        return real(name, asked, mode)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("flags", [os.O_RDWR, 0], ids=["to write", "at all"])
def test_a_run_whose_reservation_was_given_back_is_withheld_although_the_file_cannot_be_opened(
    path: Path, flags: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget.open(path, **TERMS)

    def run() -> None:
        with budget.reserve(adjacency="replace-one") as ledger:
            other = Budget.open(path)
            other.give_back(other.open_reservations[0]["reservation"], nothing_was_released=True)
            spend(other)  # all of it, once more
            ledger.record(LedgerEntry("test", ledger.mu, ()))
            refusing_to_open(monkeypatch, path, flags)

    with pytest.raises(PrivacyBudgetError, match="result is withheld") as caught:
        run()
    assert ("was given back by hand while" in str(caught.value)) == bool(flags)
    assert ("cannot be read (Too many open files)" in str(caught.value)) == (not flags)
    monkeypatch.undo()
    assert committed(budget) == cost_of(budget.mu)


def test_a_file_that_can_be_read_but_not_written_leaves_the_reservation_spent(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = Budget.open(path, **TERMS)

    def run() -> float:
        with budget.reserve(0.5, adjacency="replace-one") as ledger:
            ledger.record(LedgerEntry("test", ledger.mu / 2, ()))
            refusing_to_open(monkeypatch, path, os.O_RDWR)
        return ledger.mu

    with pytest.warns(RuntimeWarning, match=r"Too many open files.*all of its reservation .* counts as spent"):
        mu = run()
    monkeypatch.undo()
    assert len(budget.open_reservations) == 1
    assert committed(budget) == cost_of(mu)


def spent_as_acknowledged(path: Path, acknowledged: Cost) -> bool:
    """Whether a damaged file is refused, also where terms to create one are given; else all of it must be there."""
    try:
        budget = Budget.open(path, **TERMS)
    except PrivacyBudgetError:
        return False
    assert committed(budget) == acknowledged
    return True


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.deep)])
def test_lines_cut_off_anywhere_are_missed(used: Path, step: int) -> None:
    """Every byte of it was acknowledged."""
    whole, acknowledged = used.read_bytes(), committed(Budget.open(used))
    for length in range(0, len(whole), step):
        used.write_bytes(whole[:length])
        assert not spent_as_acknowledged(used, acknowledged), length
    used.write_bytes(whole)
    assert spent_as_acknowledged(used, acknowledged)


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("last", ["reserve", "settle"])
def test_power_cut_while_a_line_is_appended(path: Path, last: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a line that was not acknowledged anything may be on the disk; the next run writes over a part of one."""
    budget = Budget.open(path, **TERMS)
    spend(budget, 0.1)
    head_path = path.with_name(path.name + ".head")
    states: list[tuple[bytes, bytes]] = []
    real = budget_file.BudgetFile._acknowledge

    def remember(file: budget_file.BudgetFile, *acknowledged: Any) -> None:
        states.append((path.read_bytes(), head_path.read_bytes()))
        real(file, *acknowledged)

    with monkeypatch.context() as patch:
        patch.setattr(budget_file.BudgetFile, "_acknowledge", remember)
        spend(budget, 0.25)
    monkeypatch.setattr(budget_file, "_sync", lambda descriptor: None)  # the disk is not what is tested
    text, head = states[("reserve", "settle").index(last)]
    start = json.loads(head)["bytes"]
    tenth, quarter = cost_of(budget.releases[0].mu or 0), cost_of(budget.releases[1].mu or 0)
    for length in range(len(text), start - 1, -step):
        path.write_bytes(text[:length])
        head_path.write_bytes(head)
        budget = Budget.open(path)
        whole = length == len(text)
        assert committed(budget) == (tenth + quarter if whole or last == "settle" else tenth)
        spend(budget, 0.1)
        assert committed(Budget.open(path)) >= (tenth + quarter if last == "settle" else tenth) + tenth
        assert len(Budget.open(path).history) == len(path.read_bytes().splitlines())


@pytest.mark.parametrize(
    ("damage", "step"), [(1, 7), *(pytest.param(bit, 1, marks=pytest.mark.deep) for bit in (1, 4, 0x20, 0x80))]
)
def test_a_byte_changed_anywhere_is_refused(used: Path, damage: int, step: int) -> None:
    whole, acknowledged = bytearray(used.read_bytes()), committed(Budget.open(used))
    live = Budget.open(used)
    for place in range(0, len(whole), step):
        whole[place] ^= damage
        used.write_bytes(whole)
        assert not spent_as_acknowledged(used, acknowledged), place
        if place % 91 == 0:
            with pytest.raises(PrivacyBudgetError, match="were changed, or are gone"):
                spend(live, 0.01)
        whole[place] ^= damage
    used.write_bytes(whole)
    assert spent_as_acknowledged(used, acknowledged)


def test_a_damaged_line_is_named(used: Path) -> None:
    lines = used.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace("test", "tent")
    used.write_text("".join(lines))
    with pytest.raises(PrivacyBudgetError, match=r"line 3 was changed or is damaged\. Restore both of its files"):
        Budget.open(used)
    assert main(["budget", "verify", str(used)]) == 1


@pytest.mark.parametrize("drop", [1, 2, 3])
def test_lines_left_out_or_swapped_are_missed(used: Path, drop: int) -> None:
    lines = used.read_text().splitlines(keepends=True)
    for changed in ([*lines[:drop], *lines[drop + 1 :]], [*lines[:-2], lines[-1], lines[-2]], [*lines, lines[drop]]):
        used.write_text("".join(changed))
        budget = None
        with contextlib.suppress(PrivacyBudgetError):
            budget = Budget.open(used)
        # a copy of a line after those acknowledged is none that was ever written: it is dropped
        assert budget is None or (len(changed) > len(lines) and len(budget.history) == len(lines))


def test_a_head_that_is_cut_changed_gone_or_of_another_time_is_refused(used: Path) -> None:
    acknowledged = committed(Budget.open(used))
    head_path = used.with_name(used.name + ".head")
    head, older = head_path.read_bytes(), head_path.read_bytes()
    for length in range(len(head)):
        head_path.write_bytes(head[:length])
        assert not spent_as_acknowledged(used, acknowledged)
    for place in range(len(head)):
        changed = bytearray(head)
        changed[place] ^= 1
        head_path.write_bytes(changed)
        assert not spent_as_acknowledged(used, acknowledged)
    head_path.unlink()
    with pytest.raises(PrivacyBudgetError, match=r"weekly.budget.head, is missing: keep the two files together"):
        Budget.open(used)
    head_path.write_bytes(head)
    spend(Budget.open(used), 0.01)
    head_path.write_bytes(older)
    with pytest.raises(PrivacyBudgetError, match="is older than its lines"):
        Budget.open(used)


@pytest.mark.parametrize("text", ["name,age\n" + "Ann,31\n" * 9, '{"a": 1}', "{}\n{}\n{}\n"])
def test_a_file_that_never_was_a_budget_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "people.csv"
    file.write_text(text)
    with pytest.raises(PrivacyBudgetError, match=r"people\.csv is not the file of a budget"):
        Budget.open(file)
    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_was_removed_is_missed(used: Path) -> None:
    budget = Budget.open(used)
    used.unlink()
    with pytest.raises(PrivacyBudgetError, match="cannot be written"):
        spend(budget, 0.01)
    with pytest.raises(PrivacyBudgetError, match="lines at its end are missing"):
        Budget.open(used, **TERMS)
    assert "cannot be read" in repr(budget)


def test_a_creation_that_was_cut_off_may_be_repeated(path: Path, tmp_path: Path) -> None:
    Budget.open(path, **TERMS)
    header = path.read_bytes()
    for length in [*range(0, len(header), 9), len(header) - 1, len(header)]:
        path = tmp_path / f"{length}"
        path.write_bytes(header[:length])
        spend(Budget.open(path, **TERMS), 0.5)
        assert len(Budget.open(path).releases) == 1
        path.with_name(path.name + ".head").write_bytes(b"")
        with pytest.raises(PrivacyBudgetError, match="is missing"):
            Budget.open(path, **TERMS)


@pytest.mark.parametrize("content", [b"age,height\n", b"x", b"age\n31\n44\n", bytes(50), b'{"n":1}\n[]\n'])
def test_other_files_are_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(PrivacyBudgetError):
        Budget.open(path, **TERMS)
    assert path.read_bytes() == content
    assert not path.with_name(path.name + ".head").exists()


def test_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(PrivacyBudgetError, match="is not a regular file"):
            Budget.open(tmp_path / name, **TERMS)


def test_a_link_leads_to_the_one_file(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    spend(Budget.open(link, **TERMS), 0.5)
    assert Budget.open(path).path == Budget.open(link).path == path
    assert not (tmp_path / "link.head").exists()
    assert len(Budget.open(path).releases) == 1


def test_a_copy_without_its_head_is_refused(used: Path, tmp_path: Path) -> None:
    shutil.copy(used, tmp_path / "copy")
    os.link(used, tmp_path / "hard")
    for name in ("copy", "hard"):
        with pytest.raises(PrivacyBudgetError, match="is missing"):
            Budget.open(tmp_path / name, **TERMS)


def failing(monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException, times: int = 1) -> None:
    """The disk fails in its n-th call from now, and in as many as are to fail."""
    real, calls = budget_file.force, iter(range(1000))

    def force(descriptor: int) -> None:
        if after <= next(calls) < after + times:
            raise error
        real(descriptor)

    monkeypatch.setattr(budget_file, "force", force)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["disk", "Ctrl-C"])
def test_a_reservation_that_fails_reads_nothing_and_is_withdrawn(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException
) -> None:
    budget = Budget.open(path, **TERMS)
    problem = dpgep.pca(np.ones((9, 2)), bound=2.0)
    failing(monkeypatch, after, error)
    with pytest.raises((PrivacyBudgetError, KeyboardInterrupt)) as caught:
        dpgep.solve(problem, budget=budget)
    if isinstance(error, OSError):
        assert "cannot be written (No space left on device); no data was read" in str(caught.value)
    assert problem.dataset.people.passes == 0
    assert budget.remaining_mu == budget.mu == Budget.open(path).remaining_mu
    spend(budget)


@pytest.mark.parametrize("after", [2, 3])
def test_a_settlement_that_fails_leaves_the_reservation_spent(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    budget = Budget.open(path, **TERMS)
    failing(monkeypatch, after, OSError(5, "Input/output error"))
    with pytest.warns(RuntimeWarning, match="all of its reservation .* counts as spent"):
        mu = spend(budget, 0.5)
    assert committed(Budget.open(path)) == cost_of(mu)
    assert spend(budget) == pytest.approx(mu)


@pytest.mark.parametrize("after", range(4))
def test_a_disk_that_fails_for_a_while_leaves_nothing_that_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Two lines are never beyond the head: a line that could not be acknowledged is so before the next."""
    budget = Budget.open(path, **TERMS)
    with monkeypatch.context() as patch:
        failing(patch, after, OSError(5, "Input/output error"), times=20)
        for _ in range(5):
            with pytest.warns(RuntimeWarning) if after > 1 else pytest.raises(PrivacyBudgetError):
                spend(budget, 0.1)
            after = 0
    again = Budget.open(path)
    assert committed(again) <= cost_of(again.mu) / 2
    assert again.remaining_mu == budget.remaining_mu
    spend(budget, 0.1)
    assert len(Budget.open(path).history) == len(path.read_bytes().splitlines())


def test_a_disk_that_is_full_leaves_a_part_of_a_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = Budget.open(path, **TERMS)
    before = path.read_bytes()

    def part(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:40])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(budget_file, "write_all", part)
        with pytest.raises(PrivacyBudgetError, match="No space left on device"):
            spend(budget, 0.5)
    assert len(path.read_bytes()) == len(before) + 40
    spend(budget, 0.5)
    assert path.read_bytes().startswith(before)
    assert len(Budget.open(path).releases) == 1


def test_what_may_only_be_read_can_be_shown(used: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where permissions hold: not for root."""
    used.chmod(0o400)
    assert main(["budget", "show", str(used)]) == 0
    assert "a test" in capsys.readouterr().out
    if os.access(used, os.W_OK):
        pytest.skip("this user may write to everything")
    with pytest.raises(PrivacyBudgetError, match=r"cannot be written .Permission denied.; no data was read"):
        spend(Budget.open(used), 0.1)


def test_a_head_that_cannot_be_written_leaves_no_reservation(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    budget, real = Budget.open(path, **TERMS), os.open

    def refusing(name: Any, flags: int, mode: int = 0o777) -> int:
        if str(name).endswith(".head") and flags & os.O_WRONLY:
            raise PermissionError(13, "Permission denied")
        return real(name, flags, mode)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        with pytest.raises(PrivacyBudgetError, match="cannot be written"):
            spend(budget, 0.5)
    assert (budget.open_reservations, len(budget.history)) == ((), 1)


@pytest.mark.deep
def test_killed_at_random_points_two_hundred_times(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes spend, one is killed again and again; a witness tells how often data may have been read.

    A kill loses nothing that was written, so the disk is not waited for: most kills would hit the wait.
    """
    monkeypatch.setattr(budget_file, "_sync", lambda descriptor: None)
    share, most = 1 / 1100, 1100
    Budget.open(path, **TERMS)
    witness = os.open(tmp_path / "witness", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    generator = random.Random(5)

    def work(times: int) -> None:
        budget = Budget.open(path)
        for _ in range(times):
            with budget.reserve(share, adjacency="replace-one") as ledger:
                os.write(witness, b"x")  # here data are read
                ledger.record(LedgerEntry("test", ledger.mu, ()))

    steady = in_a_process(lambda: work(500))
    for _ in range(200):
        child = in_a_process(lambda: work(500))
        time.sleep(generator.uniform(0.0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert exit_status(child) in (-signal.SIGKILL, 1)
        budget = Budget.open(path)
        assert committed(budget) <= cost_of(budget.mu)
    assert exit_status(steady) in (0, 1)
    exit_status(in_a_process(lambda: work(most)))  # until nothing is left
    os.close(witness)
    budget, read = Budget.open(path), (tmp_path / "witness").stat().st_size
    each = cost_of(next(record["mu"] for record in budget.history if record["kind"] == "reserve"))
    assert committed(budget) <= cost_of(budget.mu)
    assert read * each <= committed(budget)
    assert 500 < read <= most
    with pytest.raises(PrivacyBudgetError):
        spend(budget, share)


def test_what_an_interrupt_leaves_half_read_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C anywhere: also between a record and what it means."""
    budget, other = Budget.open(path, **TERMS), Budget.open(path)
    after, interrupts = FileStore._after, [1]

    def interrupt(self: FileStore, balance: Balance, record: dict[str, Any]) -> Balance:
        if interrupts and self is budget._store and record["kind"] == "reserve":
            interrupts.pop()
            raise KeyboardInterrupt
        return after(self, balance, record)

    monkeypatch.setattr(FileStore, "_after", interrupt)
    with pytest.raises(KeyboardInterrupt):
        spend(budget, 0.5)
    assert other.remaining_mu == other.mu
    spend(other, 0.5)
    interrupts.append(1)
    with pytest.raises(KeyboardInterrupt):
        spend(budget, 0.5)
    assert not interrupts
    with pytest.raises(PrivacyBudgetError, match="cannot pay"):
        spend(budget, 0.75)
    assert budget.remaining_mu == other.remaining_mu == Budget.open(path).remaining_mu
    assert budget.releases == other.releases


# --- The same as in memory -------------------------------------------------------------------------

part = st.one_of(
    st.none(),
    st.fixed_dictionaries({"share": st.floats(1e-6, 1.0)}),
    st.fixed_dictionaries({"epsilon": st.floats(1e-3, 1.0)}),
)
steps = st.lists(st.tuples(part, st.sampled_from(["all", "some", "nothing", "raise", "charge"])), max_size=8)


@given(steps=steps, reopened=st.booleans())
@settings(max_examples=25)
def test_a_file_and_memory_agree(steps: list[Any], reopened: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    import dp_accounting

    path = tmp_path_factory.mktemp("budget") / "b"
    in_memory: Budget = Budget(epsilon=1.0, delta=1e-6, adjacency="replace-one")
    budgets = [in_memory, Budget.open(path, **TERMS)]

    def outcome(budget: Budget, part: dict[str, float] | None, end: str) -> Any:
        try:
            if end == "charge":
                event = dp_accounting.GaussianDpEvent(10.0)
                return budget.charge(event, what="foreign", adjacency="replace-one")
            with budget.reserve(**(part or {}), adjacency="replace-one") as ledger:
                if end == "raise":
                    raise RuntimeError
                if end != "nothing":
                    ledger.record(LedgerEntry("test", ledger.mu / (1 if end == "all" else 3), ()))
                return ledger.mu
        except (PrivacyBudgetError, RuntimeError) as error:
            return str(error)

    for each, end in steps:
        assert outcome(budgets[0], each, end) == outcome(budgets[1], each, end)
        if reopened:
            budgets[1] = Budget.open(path)
        ours, theirs = ((b.releases, b.spent_mu, b.remaining_mu, b.adjacency) for b in budgets)
        assert ours == theirs


def test_runs_spend_from_a_file_as_from_memory(path: Path, rng: np.random.Generator) -> None:
    problem = dpgep.pca(rng.standard_normal((400, 3)) / 6, bound=1.0)
    in_memory, lasting = Budget(epsilon=2.0, delta=1e-6), Budget.open(path, **{**TERMS, "epsilon": 2.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for budget in (in_memory, lasting):
            dpgep.solve(problem, budget=budget, share=0.25, seed=1)
            dpgep.release(problem, budget=budget, epsilon=0.5, seed=2)
            dpgep.release(problem, budget=budget, epsilon=0.25, seed=3, storage="operator")
    again = Budget.open(path)
    assert again.releases == lasting.releases == in_memory.releases
    assert again.remaining_mu == in_memory.remaining_mu


def test_answers_about_samples_take_all_of_a_file(path: Path, rng: np.random.Generator) -> None:
    problem = dpgep.pca(rng.standard_normal((400, 3)) / 6, bound=1.0, center=False)
    budget = Budget.open(path, **TERMS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solution = dpgep.solve(problem, budget=budget, method="dp-spca", n_components=1, seed=1)
    again = Budget.open(path)
    assert again.releases == solution.privacy.releases
    assert again.releases[0].event is not None
    assert (again.spent_mu, again.remaining_mu) == (again.mu, 0.0)
    with pytest.raises(PrivacyBudgetError, match="cannot pay"):
        spend(again, 0.1)


# --- What the file says ----------------------------------------------------------------------------


def test_the_lines_can_be_checked_and_recomposed_without_us(used: Path) -> None:
    """As docs/budgets.md describes them: hashes, then events that dp_accounting composes."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    previous, records = "0" * 64, []
    for line in used.read_text().splitlines():
        body, found = line[: -len(',"hash":""}') - 64] + "}", line[-66:-2]
        previous = hashlib.sha256((previous + body).encode()).hexdigest()
        assert previous == found
        records.append(json.loads(body))
    assert [record["n"] for record in records] == [*range(1, len(records) + 1)]
    settled = {record["reservation"] for record in records if record["kind"] in ("settle", "give back")}
    mus = [entry["mu"] for record in records for entry in record.get("releases", ())]
    mus += [each["mu"] for each in records if each["kind"] == "reserve" and each["reservation"] not in settled]
    assert len(mus) == 3
    budget = Budget.open(used)
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1 / mu) for mu in mus]))
    total = budget.epsilon_at(float(sum(mu * mu for mu in mus)) ** 0.5)
    assert total is not None
    # its privacy losses are rounded up on a grid, of which an epsilon of three events takes less than ten steps
    assert total <= accountant.get_epsilon(1e-6) <= total + 1e-3


@pytest.mark.parametrize("changed", [{"dataset": None}, {"mu": -1.0}, {"adjacency": "local"}, {"delta": "much"}])
def test_terms_that_make_no_sense_are_refused(path: Path, changed: dict[str, Any]) -> None:
    """Also where whoever wrote them has computed the hash."""
    Budget.open(path, **TERMS)
    (line,) = path.read_text().splitlines()
    header = {**json.loads(line[: -len(',"hash":""}') - 64] + "}"), **changed}
    header = {name: value for name, value in header.items() if value is not None}
    body = json.dumps(header, separators=(",", ":"))
    digest = hashlib.sha256(("0" * 64 + body).encode()).hexdigest()
    path.write_text(f'{body[:-1]},"hash":"{digest}"}}\n')
    Path(f"{path}.head").unlink()
    with pytest.raises(PrivacyBudgetError):
        Budget.open(path)


def test_history_says_when_who_and_what_for(used: Path) -> None:
    budget = Budget.open(used)
    kinds = [record["kind"] for record in budget.history]
    assert kinds == ["budget", "reserve", "settle", "reserve", "settle", "reserve", "settle", "reserve"]
    assert budget.history[1]["purpose"] == "a test"
    assert budget.history[1]["process"].startswith(f"{os.getpid()}@")
    assert budget.history[-1] == budget.open_reservations[0]
    assert budget.history[-1]["process"] != budget.history[1]["process"]
    budget.history[0].clear()
    assert budget.history[0]["dataset"] == "visits-2026"


def test_a_later_version_is_told(path: Path) -> None:
    budget, later = Budget.open(path, **TERMS), Budget.open(path)
    later._store._locked(lambda _: later._store._file.append({"kind": "transfer"}), write=True)
    for open_it in (lambda: spend(budget, 0.1), lambda: spend(budget, 0.1), lambda: Budget.open(path)):
        with pytest.raises(PrivacyBudgetError, match="records of a later version of dpgep: 'transfer'"):
            open_it()


# --- The command -----------------------------------------------------------------------------------


def test_the_command_creates_shows_and_verifies(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--epsilon", "1", "--delta", "1e-6", "--adjacency", "replace-one", "--dataset", "visits-2026"]
    assert main(["budget", "init", str(path), *words]) == 0
    assert main(["budget", "init", str(path), *words]) == 1
    assert "there is one already" in capsys.readouterr().err
    spend(Budget.open(path, purpose="first"), epsilon=0.25)
    spend(Budget.open(path, **TERMS), epsilon=0.5, query="second")
    assert main(["budget", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "0.25  test; first; " in out
    assert "0.75  second; " in out
    assert main(["budget", "verify", str(path)]) == 0
    assert "5 lines, all as they were written" in capsys.readouterr().out
    assert main(["budget", "recover", str(path)]) == 0
    assert "no reservation is open" in capsys.readouterr().out


def test_the_command_says_what_is_wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "verify", "recover"):
        assert main(["budget", action, str(path)]) == 1
        assert f"dpgep budget {action}: there is no budget in {path}" in capsys.readouterr().err
    for words in (["budget"], ["budget", "init", str(path), "--mu", "1"], ["budget", "shwo", str(path)]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2
    assert not path.exists()
