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

from dpgep._watched import names_drawn

# How long a run took, at the end of a line of our log: left out.
_SECONDS = re.compile(r"\d+\.\d{3} s$")


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
    lines, value, error = _Lines(), None, None
    printed, complaints = io.StringIO(), io.StringIO()
    root, own = logging.getLogger(), logging.getLogger("dpgep")
    level = own.level
    with (
        names_drawn() as names,
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complaints),
    ):
        warnings.simplefilter("always")
        root.addHandler(lines)
        own.setLevel(logging.DEBUG)
        try:
            value = call()
        except (Exception, SystemExit) as raised:
            error = raised
        finally:
            root.removeHandler(lines)
            own.setLevel(level)
        # objects may draw, warn or log where they are looked at: not as a part of the run
        view = _Objects(names)
        seen = (
            ("result", view.of(value)),
            ("exception", view.of(error)),
            ("warnings", view.of([each.message for each in caught])),
            ("log", view.of(lines.lines)),
            ("stdout", view.of(printed.getvalue())),
            ("stderr", view.of(complaints.getvalue())),
        )
    return View(seen, None if error is None else f"{type(error).__name__}: {error}")


def differences(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Where two observations differ, outermost first."""
    if first == second:
        return
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        for i, (a, b) in enumerate(zip(first, second, strict=True)):
            is_named = isinstance(a, tuple) and len(a) == 2 and isinstance(a[0], str)
            within = f"{path}.{a[0].rpartition('.')[2]}" if is_named else path if len(first) == 2 else f"{path}[{i}]"
            yield from differences(a, b, within)
    else:
        a, b = (each if isinstance(each, str) else repr(each) for each in (first, second))
        yield f"{path.lstrip('.') or 'result'}: {a:.120} and {b:.120}"


class _Lines(logging.Handler):
    """Keeps the lines of a log."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        own = record.name.split(".")[0] == "dpgep"
        self.lines.append(f"{record.name} {record.levelname} {_SECONDS.sub('... s', text) if own else text}")


class _Objects:
    """Objects as nested tuples of bytes and texts; of ``names`` drawn at random the number is seen."""

    def __init__(self, names: list[str]) -> None:
        self._seen: dict[int, tuple[int, Any]] = {}  # by identity, with the object, which so stays alive
        self._names = names

    def of(self, value: Any) -> Any:
        if isinstance(value, str):
            return repr(self._text(value))
        if value is None or isinstance(value, (bool, int, bytes, range, slice, type(...))):
            return repr(value)
        if isinstance(value, (float, complex)):
            return value.hex() if isinstance(value, float) else (value.real.hex(), value.imag.hex())
        if isinstance(value, (type, types.ModuleType, types.BuiltinFunctionType, np.ufunc, np.dtype)):
            return f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', value)}"
        if id(value) in self._seen:
            return f"the object number {self._seen[id(value)][0]}"
        self._seen[id(value)] = (len(self._seen), value)
        return (self.of(type(value)), self._parts(value))

    def _parts(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            entries = tuple(map(self.of, value.ravel())) if value.dtype == object else value.tobytes()
            return (str(value.dtype), value.shape, entries, self._attributes(value))
        if isinstance(value, np.generic):
            return (str(value.dtype), value.tobytes())
        if isinstance(value, (list, tuple)):
            return (*map(self.of, value), self._attributes(value))
        if isinstance(value, (set, frozenset)):
            # in an order that random names, which differ by their numbers, do not decide
            return (*sorted(map(self.of, sorted(value, key=repr)), key=repr), self._attributes(value))
        if isinstance(value, (dict, types.MappingProxyType)):
            return (*((repr(key), self.of(each)) for key, each in value.items()), self._attributes(value))
        if isinstance(value, BaseException):
            chain = {"cause": value.__cause__, "context": value.__context__}
            return (self._text(str(value)), self.of({**chain, **vars(value)}), self._state(value))
        if isinstance(value, types.FunctionType):
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            defaults = (value.__defaults__, value.__kwdefaults__)
            return (value.__qualname__, self.of(cells), self.of(defaults), self._attributes(value))
        if isinstance(value, types.MethodType):
            return (value.__func__.__qualname__, self.of(value.__self__))
        if isinstance(value, functools.partial):
            return (self.of(value.func), self.of(value.args), self.of(value.keywords))
        return self._state(value)

    def _attributes(self, value: Any) -> Any:
        """What a subclass, or whoever held the object, has added to it."""
        added = getattr(value, "__dict__", None)
        return self.of(dict(added)) if added else ()

    def _state(self, value: Any) -> Any:
        """What the object and a pickle of it hold, or, where there can be none, its public attributes."""
        held = dict(getattr(value, "__dict__", {}))  # before a pickle settles what was deferred
        try:
            reduced = value.__reduce_ex__(4)
        except Exception:  # whatever an object raises that guards what it holds
            names = [name for name in dir(value) if not name.startswith("_")]
            attributes = {name: getattr(value, name, None) for name in names}
            return self.of({name: each for name, each in attributes.items() if not callable(each)})
        if isinstance(reduced, str):
            return reduced
        return self.of([held, *reduced[:3], *(list(items or ()) for items in reduced[3:5])])

    def _text(self, text: str) -> str:
        for i, name in enumerate(self._names):
            if name in text:
                text = text.replace(name, f"name {i}")
        return text
