"""Everything that a caller sees of a run, in a form that can be compared bit by bit."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

# Left out: how long it took; names drawn at random, which are numbered as they first appear.
_SECONDS = re.compile(r"\d+\.\d{3} s\b")
_RANDOM_NAME = re.compile(r"\b[0-9a-f]{32}(?:[0-9a-f]{32})?\b")


@dataclass(frozen=True)
class View:
    """What was seen, and, in words, the exception at the end; None where there was none."""

    seen: tuple[tuple[str, Any], ...]
    error: str | None


def observe(call: Callable[[], Any]) -> View:
    """Run ``call``; its result, or exception with all that hangs on it, its warnings, log lines, and what it printed.

    Of an object all is seen that it holds or that a pickle has; of one that cannot be pickled, which may guard data,
    its public attributes. Tracebacks are left out, and times.
    """
    view, lines, result, error, words = _Objects(), _Lines(), None, None, None
    printed, complaints = io.StringIO(), io.StringIO()
    logger = logging.getLogger("dpgep")
    level = logger.level
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complaints),
    ):
        warnings.simplefilter("always")
        logger.addHandler(lines)
        logger.setLevel(logging.DEBUG)
        try:
            result = view.of(call())
        except (Exception, SystemExit) as raised:
            error, words = view.of(raised), f"{type(raised).__name__}: {raised}"
        finally:
            logger.removeHandler(lines)
            logger.setLevel(level)
    seen = (
        ("result", result),
        ("exception", error),
        ("warnings", view.of([each.message for each in caught])),
        ("log", view.of(lines.lines)),
        ("stdout", view.of(printed.getvalue())),
        ("stderr", view.of(complaints.getvalue())),
    )
    return View(seen, words)


def differences(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Where two observations differ, outermost first."""
    if first == second:
        return
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            is_named = isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str)
            yield from differences(a, b, f"{path}.{a[0]}" if is_named else path if len(first) == 2 else f"{path}[{i}]")
    else:
        yield f"{path.lstrip('.') or 'result'}: {first!r:.120} and {second!r:.120}"


class _Lines(logging.Handler):
    """Keeps the lines of a log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


class _Objects:
    """Objects as nested tuples of bytes and texts."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}  # by identity, with the object, which so stays alive
        self._names: dict[str, str] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, (bool, int, bytes, range, slice, type(...))):
            return repr(value)
        if isinstance(value, (float, complex)):
            return value.hex() if isinstance(value, float) else (value.real.hex(), value.imag.hex())
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc, np.dtype)):
            return f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', value)}"
        if id(value) in self._seen:
            return f"the object number {self._seen[id(value)][0]}"
        self._seen[id(value)] = (len(self._seen), value)
        return self._parts(value)

    def _parts(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            entries = tuple(map(self.of, value.ravel())) if value.dtype == object else value.tobytes()
            return (str(value.dtype), value.shape, entries)
        if isinstance(value, np.generic):
            return (str(value.dtype), value.tobytes())
        if isinstance(value, (list, tuple)):
            return tuple(map(self.of, value))
        if isinstance(value, (set, frozenset)):
            return tuple(map(self.of, sorted(value, key=repr)))
        if isinstance(value, dict):
            return tuple((str(key), self.of(each)) for key, each in value.items())
        if isinstance(value, BaseException):
            fields = {"args": value.args, "cause": value.__cause__, "context": value.__context__, **vars(value)}
            return (self.of(type(value)), self.of(fields))
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            return (value.__qualname__, self.of(cells), self.of(value.__defaults__))
        if isinstance(value, types.MethodType):
            return (value.__func__.__qualname__, self.of(value.__self__))
        if isinstance(value, functools.partial):
            return (self.of(value.func), self.of(value.args), self.of(value.keywords))
        return (self.of(type(value)), self._state(value))

    def _state(self, value: Any) -> Any:
        """What the object and a pickle of it hold, or, where there can be none, its public attributes."""
        held = dict(getattr(value, "__dict__", {}))  # before a pickle settles what was deferred
        try:
            reduced = value.__reduce_ex__(4)
        except TypeError:
            names = [name for name in dir(value) if not name.startswith("_")]
            attributes = {name: getattr(value, name, None) for name in names}
            return self.of({name: each for name, each in attributes.items() if not callable(each)})
        if isinstance(reduced, str):
            return reduced
        return self.of([held, *reduced[:3], *(list(items or ()) for items in reduced[3:5])])

    def _text(self, text: str) -> str:
        def numbered(match: re.Match[str]) -> str:
            return self._names.setdefault(match[0], f"name {len(self._names)}")

        return _RANDOM_NAME.sub(numbered, _SECONDS.sub("... s", text))
