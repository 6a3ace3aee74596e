"""How many threads the compiled kernels and BLAS use. Results never depend on it.

The first that says anything counts: ``n_threads`` of the run in progress (`use_threads`); the environment variable
DPGEP_NUM_THREADS; the share of a task of a Dask worker, which is one; the processors that this process may run on. The
last three are cut down to the limit that threadpoolctl has set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from itertools import chain
from threading import Lock, Thread
from typing import Any

from dpgep._checks import require_count
from dpgep._dispatch import core

try:
    import threadpoolctl
except ModuleNotFoundError:  # optional: without it nothing sets limits, and BLAS keeps its own number of threads
    threadpoolctl = None

_VARIABLE = "DPGEP_NUM_THREADS"
_TURNS = 10
# Up to this size OpenBLAS wakes no threads for eigenvectors; beyond, they stay awake for 0.1 s and slow what follows.
_UNTHREADED = 24
# Up to this size LAPACK has one thread: several wait for each other at every step, and for threads of NumPy's BLAS that
# are still awake. On two processors beside other work an FDA of 1000 features takes 1.4 s in place of 12, at 200
# eigenvectors 3 ms in place of 17; alone on them, two threads save a twentieth at 1000.
_ONE_THREAD = 1000
_chosen: ContextVar[int | None] = ContextVar("n_threads", default=None)


def thread_count() -> int:
    """Number of threads for the kernels, here and now. Raises ValueError where DPGEP_NUM_THREADS is no such number."""
    return _chosen.get() or _KernelLimit.apply(_unlimited())


@contextmanager
def use_threads(n_threads: Any) -> Iterator[None]:
    """Run the block with ``n_threads``, BLAS on one of them; None: as before, the number looked up once.

    Raises ValueError for no such number. More threads are given to BLAS by cutting its exact or large products into
    tiles (`data.rows`). What it splits itself, in small factorizations, would round otherwise for any other number.
    """
    token = _chosen.set(thread_count() if n_threads is None else require_count("n_threads", n_threads))
    try:
        with nullcontext() if n_threads is None else _blas.on_one_thread():
            yield
    finally:
        _chosen.reset(token)


def run(tasks: Sequence[Callable[[], None]], n_threads: int) -> None:
    """Do all tasks, each once, by the caller and at most n_threads - 1 others, which end with the call: a fork between
    calls finds none. If there are others, each task has one thread, of kernels and of BLAS. After an error of a task,
    or Ctrl-C, no more are begun, and it is raised.
    """
    if n_threads == 1:  # BLAS as it is
        for task in tasks:
            task()
        return
    waiting = iter(tasks)
    errors: list[BaseException] = []

    def work() -> None:
        own = _chosen.set(1)
        try:
            for task in waiting:  # one iterator for all: each task is taken once
                if errors:
                    return
                task()
        except BaseException as error:
            errors.append(error)
        finally:
            _chosen.reset(own)

    helpers = [Thread(target=work) for _ in range(min(n_threads, len(tasks)) - 1)]
    with _blas.on_one_thread():
        for helper in helpers:
            helper.start()
        work()
        for helper in helpers:
            helper.join()
    if errors:
        raise errors[0]


def slices(n: int, height: int) -> Iterator[slice]:
    """Cut n rows into slices of this height, the last of what is left."""
    return map(slice, range(0, n, height), chain(range(height, n, height), (n,)))


def even_slices(n: int, count: int) -> list[slice]:
    """Cut n rows into ``count`` slices of about the same height."""
    return [slice(n * i // count, n * (i + 1) // count) for i in range(count)]


def own_thread_count() -> int:
    """Number of our own threads to call BLAS from: one where nothing can keep BLAS to one thread."""
    return 1 if threadpoolctl is None else thread_count()


@contextmanager
def own_threads() -> Iterator[int]:
    """`own_thread_count` for the block, with BLAS on one thread: others would stay awake after the least product."""
    with _blas.on_one_thread():
        yield own_thread_count()


def lapack_on_one_thread(d: int) -> AbstractContextManager[None]:
    """Keep LAPACK to one thread for a block about matrices of d features, where several are slower."""
    return _blas.on_one_thread() if _UNTHREADED < d <= _ONE_THREAD else nullcontext()


@contextmanager
def one_thread_per_task() -> Iterator[None]:
    """Run one of many tasks that share this process: on one thread, unless DPGEP_NUM_THREADS says otherwise."""
    with use_threads(_from_environment() or 1):
        yield


def _unlimited() -> int:
    return _from_environment() or (1 if _in_dask_task() else _processors())


def _from_environment() -> int | None:
    value = os.environ.get(_VARIABLE)
    if value is None:
        return None
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"{_VARIABLE} must be a positive whole number, got {value!r}")
    return int(value)


def _in_dask_task() -> bool:
    """Whether this thread runs a task of a Dask worker, which has as many threads as it may use processors."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _KernelLimit:
    """The limit that threadpoolctl has set on the kernels, for all threads of this process; None where it has not."""

    value: int | None = None

    @classmethod
    def apply(cls, count: int) -> int:
        return count if cls.value is None else min(count, cls.value)

    @classmethod
    def set(cls, count: int) -> None:
        # the end of a limit sets what was found at its beginning: that is no limit
        cls.value = count if count < _unlimited() else None


class _BlasLimit:
    """Keeps BLAS to one thread while any of our threads ask for it, since it has one number for the whole process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0
        self._found: list[tuple[Any, int]] = []

    @contextmanager
    def on_one_thread(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                self._found = [(library, library.num_threads) for library in _blas_libraries()]
                for library, _ in self._found:
                    _set_blas_threads(library, 1)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    for library, found in self._found:
                        _set_blas_threads(library, found)


def _set_blas_threads(library: Any, n_threads: int) -> None:
    """Set the number of a BLAS that all threads of the process share; our callers take turns.

    From version 3.7 on, threadpoolctl obeys the thread that set OpenBLAS's number first and no other, and does not say
    so: it is made to forget which it was. Others that use it at this moment may come in between, hence several turns.
    """
    forget = getattr(library, "clear_controlling_thread", lambda force: None)
    for _ in range(_TURNS):
        forget(force=True)
        library.set_num_threads(n_threads)
        forget(force=True)
        if library.num_threads == n_threads:
            return


_blas = _BlasLimit()
# keeps BLAS to one thread for a block in which our own threads call it
blas_on_one_thread = _blas.on_one_thread


@cache
def _blas_libraries() -> tuple[Any, ...]:
    """Those of NumPy and SciPy, which are loaded with this package: looking them up takes milliseconds."""
    if threadpoolctl is None:
        return ()
    return tuple(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)


def _register_kernels() -> None:
    name = core.__name__.rpartition(".")[2]

    class Kernels(threadpoolctl.LibController):  # type: ignore[misc]
        user_api = internal_api = "dpgep"
        filename_prefixes = (name,)
        check_symbols = (f"PyInit_{name}",)

        def get_num_threads(self) -> int:
            return _KernelLimit.apply(_unlimited())

        set_num_threads = staticmethod(_KernelLimit.set)

        def get_version(self) -> str:
            return str(core.__version__)

    threadpoolctl.register(Kernels)


if threadpoolctl is not None:
    _register_kernels()
