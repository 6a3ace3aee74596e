"""Dataclasses as JSON and back, by the types of their fields: nothing else is made of a file, and no code is run.

A float is a number that is read back to the last bit, or one of "nan", "inf", "-inf"; an array is nested lists of them;
a tuple is a list; a dataclass is an object with a key for each field. One that stands for several classes (a model,
diagnostics) has the key "kind". Fields that have a default may be absent, as those are that later versions add.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from collections.abc import Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpgep.privacy.events import event_from_json, event_to_json, is_event

# Python takes quadratic time for the digits of an integer, where nothing else limits them.
MOST_DIGITS = 100

_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

# the classes that a field of this type may hold, by the name that a file gives them
Kinds = Mapping[Any, Mapping[str, type[Any]]]


def parsed(text: str | bytes, constant: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """The object in a JSON text. Raises ValueError for anything that is none, or holds a key twice.

    ``constant`` reads NaN and Infinity, which are no JSON; without it they are refused.
    """
    try:
        document = json.loads(
            text, object_pairs_hook=_once, parse_constant=constant or _no_constant, parse_int=_integer
        )
    except RecursionError:
        raise _nested() from None
    except UnicodeDecodeError as error:
        raise ValueError(f"this is no file of dpgep: {error}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON, or not all of it: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"a file of dpgep holds a JSON object, not {_shown(document)}")
    return document


def require_format(document: dict[str, Any], name: str, version: int) -> str:
    """Take the heading off a document; the version of dpgep that wrote it. Raises ValueError for another heading."""
    found, number, writer = (document.pop(key, None) for key in ("format", "version", "dpgep"))
    if found != name:
        raise ValueError(f'this is not a file of format "{name}": its format is {_shown(found)}')
    by = f"dpgep {writer}" if isinstance(writer, str) else "an unknown version of dpgep"
    if type(number) is not int or number != version:
        raise ValueError(
            f"this file was written by {by} in version {_shown(number)} of its format; this dpgep reads {version}"
        )
    return by


def encoded(value: Any, kinds: Kinds) -> Any:
    """A value as JSON holds it. Raises TypeError for one that it cannot hold."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):
        return encoded(value.item(), kinds)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return [encoded(part, kinds) for part in value]
        return value.tolist()
    if isinstance(value, tuple):
        return [encoded(part, kinds) for part in value]
    if dataclasses.is_dataclass(value):
        fields = {field.name: encoded(getattr(value, field.name), kinds) for field in dataclasses.fields(value)}
        names = [name for kind in kinds.values() for name, each in kind.items() if each is type(value)]
        return {"kind": names[0], **fields} if names else fields
    if is_event(value):
        return event_to_json(value)
    raise TypeError(f"a file holds text, numbers and booleans, not {value!r}")


def decoded(document: Any, kind: Any, where: str, *, kinds: Kinds | None = None, by: str = "dpgep") -> Any:
    """A value of type ``kind``, from JSON in hands that nobody trusts. Raises ValueError, which says where and what."""
    try:
        with np.errstate(all="ignore"):  # of numbers that are then refused
            return Decoder(kinds or {}, by).value(document, kind, where)
    except RecursionError:
        raise _nested() from None


class Decoder:
    """Values of given types from JSON; ``by`` is who wrote it, for messages."""

    def __init__(self, kinds: Kinds, by: str) -> None:
        self._kinds, self._by = kinds, by

    def value(self, document: Any, kind: Any, where: str) -> Any:
        """A value of type ``kind``. Raises ValueError, which says ``where``, for anything else."""
        if get_origin(kind) in (Union, types.UnionType):
            return self._one_of(document, get_args(kind), where)
        if get_origin(kind) is Literal:
            if document not in get_args(kind) or isinstance(document, bool):
                self._refuse(document, f"one of {', '.join(map(repr, get_args(kind)))}", where)
            return document
        if get_origin(kind) is tuple:
            return self._tuple(document, get_args(kind), where)
        entries = _entry_type(kind)
        if entries is not None:
            return self._array(document, entries, where)
        if kind in self._kinds:
            return self._of_kinds(document, self._kinds[kind], where)
        if dataclasses.is_dataclass(kind):
            return self.record(document, kind, where)
        return self._scalar(document, kind, where)

    def record(self, document: Any, kind: Any, where: str) -> Any:
        """A dataclass from an object with its fields."""
        return kind(**self.fields(document, kind, where))

    def fields(self, document: Any, kind: Any, where: str) -> dict[str, Any]:
        """Values of the fields of a dataclass that an object holds: all that have no default, and no other key."""
        if not isinstance(document, dict):
            self._refuse(document, "an object", where)
        fields = {field.name: field for field in dataclasses.fields(kind)}
        unknown = [key for key in document if key not in fields]
        if unknown:
            raise ValueError(f"{where} has a field {unknown[0]!r} that this dpgep does not know; written by {self._by}")
        absent = [name for name, field in fields.items() if name not in document and not _has_default(field)]
        if absent:
            raise ValueError(f"{where} has no field {absent[0]!r}")
        hints = _hints(kind)
        return {name: self.value(each, hints[name], f"{where}.{name}") for name, each in document.items()}

    def _of_kinds(self, document: Any, classes: Mapping[str, type[Any]], where: str) -> Any:
        fields = dict(document) if isinstance(document, dict) else self._refuse(document, "an object", where)
        name = fields.pop("kind", None)
        if not isinstance(name, str) or name not in classes:
            raise ValueError(
                f"{where} is of kind {_shown(name)}; this dpgep knows {', '.join(classes)}; written by {self._by}"
            )
        return self.record(fields, classes[name], where)

    def _one_of(self, document: Any, options: tuple[Any, ...], where: str) -> Any:
        if document is None and type(None) in options:
            return None
        others = [kind for kind in options if kind is not type(None)]
        if len(others) == 1:
            return self.value(document, others[0], where)
        for kind in others:
            try:
                return self.value(document, kind, where)
            except ValueError:
                continue
        return self._refuse(document, "of another type", where)

    def _tuple(self, document: Any, kinds: tuple[Any, ...], where: str) -> tuple[Any, ...]:
        if not isinstance(document, list):
            self._refuse(document, "a list", where)
        if kinds[-1] is Ellipsis:
            kinds = (kinds[0],) * len(document)
        if len(document) != len(kinds):
            raise ValueError(f"{where} must have {len(kinds)} entries, not {len(document)}")
        pairs = enumerate(zip(document, kinds, strict=True))
        return tuple(self.value(each, kind, f"{where}[{i}]") for i, (each, kind) in pairs)

    def _array(self, document: Any, entries: Any, where: str, axes: int = 2) -> NDArray[Any]:
        """A list of numbers, or a list of such lists, as an array: ragged ones are refused, and so is anything else."""
        kind = np.dtype(entries)
        if not isinstance(document, list):
            self._refuse(document, "a list", where)
        if axes > 1 and document and isinstance(document[0], list):
            parts = [self._array(part, entries, f"{where}[{i}]", axes - 1) for i, part in enumerate(document)]
            if any(part.shape != parts[0].shape for part in parts):
                raise ValueError(f"{where} must have rows of one length")
            return np.stack(parts)
        element: type = float if kind.kind == "f" else int
        if set(map(type, document)) != {element}:
            document = [self._scalar(each, element, f"{where}[{i}]") for i, each in enumerate(document)]
        try:
            return np.array(document, dtype=kind)
        except OverflowError:
            raise ValueError(f"{where} has an integer beyond 64 bits") from None

    def _scalar(self, document: Any, kind: Any, where: str) -> Any:
        if kind is float:
            return self._float(document, where)
        if kind in (int, bool, str):
            if type(document) is not kind:
                self._refuse(document, _NAMES[kind], where)
            return document
        if kind is Any:  # an event of dp_accounting, the one field without a type
            return None if document is None else event_from_json(document, where)
        assert kind is Hashable
        if type(document) not in (str, int, float, bool):
            self._refuse(document, "text, a number or a boolean", where)
        return document

    def _float(self, document: Any, where: str) -> float:
        if isinstance(document, str) and document in _SPECIAL:
            return _SPECIAL[document]
        if type(document) is int and abs(document) < 1 << 53:
            return float(document)
        if type(document) is not float:
            self._refuse(document, "a number", where)
        return float(document)

    def _refuse(self, document: Any, expected: str, where: str) -> NoReturn:
        raise ValueError(f"{where} must be {expected}, got {_shown(document)}")


_NAMES = {int: "an integer", bool: "true or false", str: "text"}


def _entry_type(kind: Any) -> Any:
    """The type of the entries of an array; None for what is no array. From NumPy 2.5 on its alias stays an alias."""
    if get_origin(kind) is np.ndarray:
        return get_args(get_args(kind)[1])[0]
    return get_args(kind)[0] if get_origin(kind) is NDArray else None


@lru_cache(maxsize=128)
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("this is no file of dpgep: an object in it has the same key twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(
            f"this is no file of dpgep: an integer in it has {len(digits)} digits, more than {MOST_DIGITS}"
        )
    return int(digits)


def _nested() -> ValueError:
    return ValueError("this is no file of dpgep: it is nested too deeply")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f'this is no file of dpgep: it holds {name}, which is no JSON; dpgep writes "nan", "inf", "-inf"')


def _shown(value: Any) -> str:
    text = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
