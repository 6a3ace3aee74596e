"""Batches are fetched in a thread while the ones before are in use; an interrupt anywhere ends both."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from dpgep.sources.batches import read_ahead

# Interrupts at every call, and every return from one, on the side that reads. Each fetch takes its time, so that there
# is something to wait for. A lock that an interrupt leaves locked would stop the process.
INTERRUPTED = """
import sys, time
from dpgep.sources.batches import read_ahead

def slow():
    for k in range(3):
        time.sleep(0.002)
        yield k

def consume():
    return list(read_ahead(slow()))

consume()
interrupted, at = 0, 0
while True:
    at, events = at + 1, 0
    def profile(frame, event, argument):
        global events
        events += frame.f_code.co_name != "<module>"
        if events == at:
            raise KeyboardInterrupt
    try:
        sys.setprofile(profile)
        found = consume()
    except KeyboardInterrupt:
        interrupted += 1
        continue
    finally:
        sys.setprofile(None)
    if events < at:
        break
assert found == [0, 1, 2]
print(interrupted)
"""


def test_an_interrupt_anywhere_leaves_nobody_waiting() -> None:
    command = [sys.executable, "-c", INTERRUPTED]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert int(shown.stdout) > 10


def test_the_next_two_items_are_fetched_while_one_is_in_use() -> None:
    times: list[float] = []

    def items() -> Iterator[int]:
        for k in range(5):
            times.append(time.monotonic())
            yield k

    for k in read_ahead(items()):
        while len(times) < min(k + 3, 5):  # never ends if nobody reads ahead
            time.sleep(0.001)
        assert len(times) <= k + 3


def test_an_error_of_the_source_is_raised_where_its_item_is_asked_for() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    reading = read_ahead(items())
    assert next(reading) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(reading)


@pytest.mark.parametrize("error", [StopIteration, OSError])
def test_a_source_is_asked_no_more_after_its_end_or_an_error(error: type[Exception]) -> None:
    asked = []

    class Items:
        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            asked.append(len(asked))
            if len(asked) > 1:
                raise error
            return 1

    reading = read_ahead(Items())
    assert next(reading) == 1
    with pytest.raises(error):
        next(reading)
    assert asked == [0, 1]


def test_who_stops_early_waits_for_the_item_on_its_way_alone() -> None:
    begun = []

    def items() -> Iterator[int]:
        for k in range(3):
            begun.append(k)
            time.sleep(0.1)
            yield k

    source = items()
    reading = read_ahead(source)
    assert next(reading) == 0
    reading.close()
    source.close()  # an error, if the thread were still in it
    assert len(begun) <= 2


ENDED = """
import os
from dpgep.sources.batches import read_ahead

reading = read_ahead(iter(range(9)))
next(reading)
if os.fork() == 0:
    reading.close()  # the thread is not in this process
    os._exit(0)
assert os.wait()[1] == 0
for item in reading:
    raise ValueError("in the middle")  # its traceback keeps the iterator until the interpreter has ended
"""


def test_a_process_that_ends_in_the_middle_waits_for_nobody() -> None:
    command = [sys.executable, "-c", ENDED]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert shown.returncode == 1
    assert shown.stderr.splitlines()[-1] == "ValueError: in the middle"
