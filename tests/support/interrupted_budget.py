"""A program that spends from budgets and is interrupted, each time by a real signal at a random time.

Arguments: "memory", or the folder for budgets in files; the number of interrupts. It ends with 1 if anything is
overspent, and waits for ever if an interrupt leaves a lock held: whoever starts it sets a limit.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median

from dpgep import Budget
from dpgep.errors import PrivacyBudgetError
from dpgep.privacy import budget_file
from dpgep.privacy.budget import LastingBudget
from dpgep.privacy.ledger import Cost, LedgerEntry, cost_of

# Interrupts of one budget, which could pay for twice as many parts.
ROUNDS = 20
SHARE = 1 / (2 * ROUNDS)


def spend(budget: Budget, released: list[float], share: float | None = SHARE) -> None:
    with budget.reserve(share, adjacency="replace-one") as ledger:
        ledger.record(LedgerEntry("test", ledger.mu / 2, ()))
        ledger.record(LedgerEntry("test", ledger.mu / 2, ()))
        released.append(ledger.mu / 2)
        released.append(ledger.mu / 2)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def await_alarm() -> None:
    """In short sleeps, since a signal just before one does not end it.

    A function: in CPython 3.13, `try` misses an interrupt at the end of a loop of its own.
    """
    for _ in range(60_000):
        time.sleep(0.001)


def interrupted(budget: Budget, released: list[float], delay: float) -> BaseException:
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        try:
            spend(budget, released)
        except PrivacyBudgetError:
            assert budget.remaining_mu**2 < SHARE * budget.mu**2
        await_alarm()
        raise AssertionError("the alarm did not ring")
    except KeyboardInterrupt as error:
        return error


def cost(mus: list[float]) -> Cost:
    return sum(map(cost_of, mus), start=cost_of(0.0))


def main(where: str, count: int) -> int:
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    budget_file._sync = lambda _: None  # no power is cut here, and most interrupts would hit the wait for the disk
    generator = random.Random(count)

    def new(number: int) -> Budget:
        if where == "memory":
            return Budget(mu=1.0)
        return Budget.open(Path(where) / f"{number}", mu=1.0, adjacency="replace-one", dataset="test")

    trial = new(-1)
    longest = 1.2 * median(seconds(lambda: spend(trial, [])) for _ in range(ROUNDS))
    last_errors: list[BaseException] = []  # with their frames: a shell keeps the last one
    left_reserved, overspent = 0, False
    for number in range(-(-count // ROUNDS)):
        budget, released = new(number), list[float]()
        for _ in range(ROUNDS):
            last_errors[:-5] = []
            last_errors.append(interrupted(budget, released, generator.uniform(1e-6, longest)))
            other = threading.Thread(target=lambda: budget.remaining_mu)  # noqa: B023
            other.start()
            other.join()
        overspent |= cost(released) > 1 - budget._store.balance().free
        if isinstance(budget, LastingBudget):
            again = Budget.open(budget.path)
            overspent |= cost([entry.mu or 0.0 for entry in again.releases]) > 1
            left_reserved += len(again.open_reservations)
        else:
            left_reserved += len(budget._store.balance().reserved)
        with suppress(PrivacyBudgetError):  # where nothing is left
            spend(budget, released, None)
        overspent |= cost(released) > 1
    print(f"{count} interrupts, {left_reserved} parts left reserved, overspent: {overspent}")
    return int(overspent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
