"""Frozen dataclasses as JSON, or as JSON and the bytes of their arrays, and back by the types of their fields.

Nothing else is made of a file, and no code is run. A float is a number that is read back to the last bit, or one of
"nan", "inf", "-inf"; an array is nested lists of them; a tuple or a set is a list, a mapping a list of pairs; a
dataclass is an object with a key for each field, without leading underscores. A class that is one of several for a
field (a model, diagnostics) registers a name by `stored_as`, which the key "kind" holds. Fields that have a default
may be absent, as are fields that later versions add.

    text     {"format": name, "version": 1, "dpgep": version of the writer, field: value, ...}
    binary   "dpgep", newline | length of the text (8 bytes) | text | entries of arrays | SHA-256 of all before

In a binary file, an array is {"shape": [...]} or, if it is symmetric, {"triangle": d}, whose entries from the diagonal
on follow row by row, in the order of the text. Integers are little-endian.

Files are there as a whole or not at all: written beside their place, forced to the disk, and then named.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import sys
import types
import uuid
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core

C = TypeVar("C", bound=type[Any])

# Python takes quadratic time for the digits of an integer, where nothing else limits them.
MOST_DIGITS = 100

_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SCALARS: dict[Any, str] = {
    float: "a number",
    int: "an integer",
    bool: "true or false",
    str: "text",
    Hashable: "text, a number or a boolean",
}
_BINARY = b"dpgep\n"
_DIGEST = hashlib.sha256().digest_size
_LONGEST_AXIS = 1 << 31
_MOST_AXES = 3
_hints = lru_cache(maxsize=128)(get_type_hints)
# classes by the names that a file gives them, and the names
_NAMES: dict[type[Any], str] = {}
_P = TypeVar("_P", bound="Part")

# where to write: a path, or a binary file
Target: TypeAlias = "str | os.PathLike[str] | BinaryIO"


def stored_as(name: str) -> Callable[[C], C]:
    """Register a dataclass by the name that files give it, where a field may hold several classes."""

    def register(kind: C) -> C:
        for other in (each for each, taken in _NAMES.items() if taken == name):
            if (other.__module__, other.__qualname__) != (kind.__module__, kind.__qualname__):  # not defined anew
                raise ValueError(f"files call {other.__qualname__} {name!r}: give {kind.__qualname__} another name")
        _NAMES[kind] = name
        _variants.cache_clear()
        return kind

    return register


# Metadata of a field that no file holds: it has a default. A field that is written and read by functions, where it is
# not None, has them as its metadata: {"write": write(value), "read": read(document, where)}.
NOT_STORED = {"stored": False}


def _stored_fields(kind: Any) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(kind) if field.metadata.get("stored", True)]


@dataclass(frozen=True)
class Format:
    """The name and the version of what a file holds."""

    name: str
    version: int = 1

    def heading(self) -> dict[str, Any]:
        return {"format": self.name, "version": self.version, "dpgep": core.__version__}

    def text(self, record: Any) -> str:
        """A record as JSON. Raises TypeError for values that JSON cannot hold."""
        return json.dumps({**self.heading(), **encoded(record)}, allow_nan=False)

    def packed(self, record: Any) -> bytes:
        """A record as a binary file. Raises TypeError for values that it cannot hold."""
        parts: list[bytes] = []
        fields = _Encoder(parts).value(record, type(record))
        return self.pack(fields, parts)

    def pack(self, fields: dict[str, Any], payload: Iterable[bytes] = ()) -> bytes:
        """The binary file of fields, as JSON holds them, and of bytes."""
        text = json.dumps({**self.heading(), **fields}, allow_nan=False).encode()
        parts = [_BINARY, len(text).to_bytes(8, "little"), text, *payload]
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        return b"".join([*parts, digest.digest()])


@dataclass(frozen=True)
class Document:
    """A file that was read, but not yet understood: its heading is taken off the fields."""

    name: Any
    version: Any
    dpgep: Any
    fields: dict[str, Any]
    payload: memoryview

    @property
    def writer(self) -> str:
        """The version of dpgep that wrote it, in words."""
        return f"dpgep {self.dpgep}" if isinstance(self.dpgep, str) else "an unknown version of dpgep"

    def require(self, kind: Format) -> Document:
        """The same document. Raises ValueError where it is of another format."""
        if self.name != kind.name:
            raise ValueError(f'this is not a file of format "{kind.name}": its format is {_shown(self.name)}')
        if type(self.version) is not int or self.version != kind.version:
            what = f"version {_shown(self.version)} of its format; this dpgep reads {kind.version}: use that one"
            raise ValueError(f"this file was written by {self.writer} in {what}")
        return self

    def record(self, kind: type[Any], where: str) -> Any:
        """All of the document as a value of type ``kind``. Raises ValueError, which says where and what, otherwise."""
        return decoded(self.fields, kind, where, by=self.writer, payload=self.payload)


def opened(data: bytes) -> Document:
    """The document in a text or binary file. Raises ValueError for what is cut, altered, or no file of dpgep."""
    payload = memoryview(b"")
    if data[: len(_BINARY)] == _BINARY:
        content = memoryview(data)[:-_DIGEST]
        if hashlib.sha256(content).digest() != data[-_DIGEST:]:
            raise ValueError("this file is incomplete or was altered: the checksum does not fit; use another copy")
        start = len(_BINARY) + 8
        end = start + int.from_bytes(content[len(_BINARY) : start], "little")
        data, payload = bytes(content[start:end]), content[end:]
    fields = parsed(data)
    name, version, writer = (fields.pop(key, None) for key in ("format", "version", "dpgep"))
    return Document(name, version, writer, fields, payload)


def parsed(text: str | bytes) -> dict[str, Any]:
    """The object in a JSON text. Raises ValueError for anything that is none, or holds a key twice."""
    try:
        document = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant, parse_int=_integer)
    except RecursionError:
        raise _nested() from None
    except UnicodeDecodeError as error:
        raise ValueError(f"this is no file of dpgep: {error}") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON, or not all of it: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"a file of dpgep holds a JSON object, not {_shown(document)}")
    return document


def encoded(value: Any) -> Any:
    """A value as JSON holds it. Raises TypeError for one that it cannot hold."""
    return _Encoder(None).value(value, type(value))


class _Encoder:
    """Values as JSON, with arrays as lists, or as bytes that are added to ``parts``."""

    def __init__(self, parts: list[bytes] | None) -> None:
        self._parts = parts

    def value(self, value: Any, kind: Any) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if value is None:
            return None
        is_plain = isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
        if kind is Hashable and not is_plain:
            raise TypeError(f"classes must be text, numbers or booleans to be stored, and finite, got {value!r}")
        if isinstance(value, (bool, str, int)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else repr(value)
        kind = _without_none(kind)
        if isinstance(value, np.ndarray):
            if self._parts is not None:
                return self._stored(value, _entry_type(kind))
            is_special = value.dtype.kind == "f" and not np.isfinite(value).all()
            return [self.value(part, None) for part in value] if is_special else value.tolist()
        if dataclasses.is_dataclass(value):
            if type(value) not in _NAMES and isinstance(kind, type) and _variants(kind):
                raise TypeError(f"files have no name for {type(value).__qualname__}: put @stored_as(...) above it")
            return self._record(value)
        if isinstance(value, Mapping):
            return [[self.value(part, None) for part in pair] for pair in value.items()]
        if isinstance(value, (tuple, frozenset)):
            args = get_args(kind) or (None,)
            return [self.value(part, args[0]) for part in (value if isinstance(value, tuple) else sorted(value))]
        raise TypeError(f"a file holds text, numbers and booleans, not {value!r}")

    def _record(self, record: Any) -> dict[str, Any]:
        kind: Any = type(record)
        hints, found = _hints(kind), {"kind": _NAMES[kind]} if kind in _NAMES else {}
        for field in _stored_fields(kind):
            value = getattr(record, field.name)
            if value is not None and "write" in field.metadata:
                found[_key(field)] = field.metadata["write"](value)
            else:
                found[_key(field)] = self.value(value, hints[field.name])
        return found

    def _stored(self, array: NDArray[Any], entries: Any) -> dict[str, Any]:
        assert self._parts is not None
        array = array.astype(np.dtype(entries).newbyteorder("<"), copy=False)
        if array.ndim == 2 and _is_symmetric(array):
            self._parts.extend(row.tobytes() for row in triangle_rows(array))
            return {"triangle": len(array)}
        self._parts.append(array.tobytes())
        return {"shape": list(array.shape)}


def decoded(document: Any, kind: Any, where: str, *, by: str = "dpgep", payload: memoryview | bytes = b"") -> Any:
    """A value of type ``kind``, from JSON that nobody trusts, written ``by`` a version, and entries of its arrays."""
    decoder = _Decoder(by, memoryview(payload))
    try:
        with np.errstate(all="ignore"):  # of numbers that are then refused
            found = decoder.value(document, kind, where)
    except RecursionError:
        raise _nested() from None
    if decoder.rest:
        raise ValueError(f"the arrays of {where} leave {len(decoder.rest)} bytes of the file")
    return found


class _Decoder:
    """Values of given types from JSON; ``by`` is who wrote it, for messages; ``rest`` holds the entries of arrays."""

    def __init__(self, by: str, rest: memoryview) -> None:
        self._by, self.rest = by, rest

    def value(self, document: Any, kind: Any, where: str) -> Any:
        """A value of type ``kind``. Raises ValueError, which says ``where``, for anything else."""
        if kind in _SCALARS:
            return self._scalar(document, kind, where)
        kind = tuple[Hashable, ...] if kind is tuple else kind
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            return self._one_of(document, get_args(kind), where)
        if origin is Literal:
            if document not in get_args(kind) or isinstance(document, bool):
                self._refuse(document, f"one of {', '.join(map(repr, get_args(kind)))}", where)
            return document
        if origin is tuple:
            return self._tuple(document, get_args(kind), where)
        if origin is frozenset:
            return frozenset(self._tuple(document, (*get_args(kind), Ellipsis), where))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return dict(self._tuple(document, (tuple[get_args(kind)], Ellipsis), where))  # type: ignore[misc]
        entries = _entry_type(kind)
        if entries is not None:
            if isinstance(document, dict):
                return self._stored(document, np.dtype(entries), where)
            return self._array(document, np.dtype(entries), where)
        return self._record(document, kind, where)

    def _record(self, document: Any, kind: Any, where: str) -> Any:
        """A dataclass from an object with its fields: all that have no default, and no other key."""
        given = dict(document) if isinstance(document, dict) else self._refuse(document, "an object", where)
        if variants := _variants(kind):
            name = given.pop("kind", None)
            if not isinstance(name, str) or name not in variants:
                what = f"this dpgep knows {', '.join(variants)}; of a class of your own, import the module first"
                raise ValueError(f"{where} is of kind {_shown(name)}; {what}; written by {self._by}")
            kind = variants[name]
        fields, hints = {_key(field): field for field in _stored_fields(kind)}, _hints(kind)
        if unknown := [key for key in given if key not in fields]:
            raise ValueError(f"{where} has a field {unknown[0]!r} that this dpgep does not know; written by {self._by}")
        for name, field in fields.items():
            if name not in given and field.default is field.default_factory is dataclasses.MISSING:
                raise ValueError(f"{where} has no field {name!r}")
        found = {}
        for key, part in given.items():
            field, at = fields[key], f"{where}.{key}"
            if "read" in field.metadata:
                found[field.name] = None if part is None else field.metadata["read"](part, at)
            else:
                found[field.name] = self.value(part, hints[field.name], at)
        return kind(**found)

    def _one_of(self, document: Any, options: tuple[Any, ...], where: str) -> Any:
        if document is None and type(None) in options:
            return None
        others = [kind for kind in options if kind is not type(None)]
        if len(others) > 1:
            is_record = isinstance(document, dict)
            others = [kind for kind in others if dataclasses.is_dataclass(kind) == is_record] or others
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

    def _array(self, document: Any, entries: np.dtype[Any], where: str, axes: int = _MOST_AXES) -> NDArray[Any]:
        """Lists of numbers, or lists of such lists, as an array: ragged ones are refused, and so is anything else."""
        if not isinstance(document, list):
            self._refuse(document, "a list", where)
        if axes > 1 and document and isinstance(document[0], list):
            parts = [self._array(part, entries, f"{where}[{i}]", axes - 1) for i, part in enumerate(document)]
            if any(part.shape != parts[0].shape for part in parts):
                raise ValueError(f"{where} must have rows of one length")
            return np.stack(parts)
        element: type = float if entries.kind == "f" else int
        if set(map(type, document)) != {element}:
            document = [self._scalar(each, element, f"{where}[{i}]") for i, each in enumerate(document)]
        try:
            return np.array(document, dtype=entries)
        except OverflowError:
            raise ValueError(f"{where} has an integer beyond 64 bits") from None

    def _stored(self, document: dict[str, Any], entries: np.dtype[Any], where: str) -> NDArray[Any]:
        """An array whose entries are in the payload: nothing is made that is larger than these, but for symmetry."""
        is_triangle = "triangle" in document
        shape = [document.get("triangle")] * 2 if is_triangle else document.get("shape")
        if len(document) != 1 or not isinstance(shape, list) or not 1 <= len(shape) <= _MOST_AXES:
            self._refuse(document, "an array", where)
        if any(type(axis) is not int or not 0 <= axis < _LONGEST_AXIS for axis in shape):
            raise ValueError(f"{where} must have a shape of one to three axes, up to 2^31, got {_shown(str(shape))}")
        size = shape[0] * (shape[0] + 1) // 2 if is_triangle else math.prod(shape)
        n_bytes = size * entries.itemsize
        if n_bytes > len(self.rest):
            raise ValueError(f"{where} has {n_bytes} bytes of entries, more than the {len(self.rest)} that are there")
        values = np.frombuffer(self.rest[:n_bytes], dtype=entries.newbyteorder("<")).astype(entries)
        self.rest = self.rest[n_bytes:]
        if not is_triangle:
            return values.reshape(shape)
        return symmetric_of(values, shape[0])

    def _scalar(self, document: Any, kind: Any, where: str) -> Any:
        if kind is float:
            if isinstance(document, str) and document in _SPECIAL:
                return _SPECIAL[document]
            document = float(document) if type(document) is int and abs(document) < 1 << 53 else document
        if type(document) not in ((str, int, float, bool) if kind is Hashable else (kind,)):
            self._refuse(document, _SCALARS[kind], where)
        return document

    def _refuse(self, document: Any, expected: str, where: str) -> NoReturn:
        raise ValueError(f"{where} must be {expected}, got {_shown(document)}")


def triangle_rows(matrix: NDArray[Any]) -> Iterable[NDArray[Any]]:
    """The rows of an upper triangle, from the diagonal on; of a stack of matrices, one after the other."""
    stack = matrix if matrix.ndim == 3 else matrix[None]
    return (row[i:] for each in stack for i, row in enumerate(each))


def upper_triangle_of(packed: NDArray[Any], *shape: int) -> NDArray[Any]:
    """(d, d) upper triangle of these entries, row by row, zeros below it; or (G, d, d), a stack of them."""
    matrix, start = np.zeros(shape, dtype=packed.dtype), 0
    for row in triangle_rows(matrix):
        row[:] = packed[start : start + len(row)]
        start += len(row)
    return matrix


def symmetric_of(packed: NDArray[Any], d: int) -> NDArray[Any]:
    """The symmetric matrix with this upper triangle."""
    upper = upper_triangle_of(packed, d, d)
    return np.asarray(upper + np.triu(upper, 1).T)


def _is_symmetric(matrix: NDArray[Any]) -> bool:
    """Whether it is, by tiles that stay in the cache."""
    n, tile = len(matrix), 64
    starts = [(i, j) for i in range(0, n, tile) for j in range(i, n, tile)]
    return matrix.shape == (n, n) and all(
        np.array_equal(matrix[i : i + tile, j : j + tile], matrix[j : j + tile, i : i + tile].T) for i, j in starts
    )


def _without_none(kind: Any) -> Any:
    others = [each for each in get_args(kind) if each is not type(None)]
    return others[0] if get_origin(kind) in (Union, types.UnionType) and len(others) == 1 else kind


def _entry_type(kind: Any) -> Any:
    """The type of the entries of an array; None for what is no array. From NumPy 2.5 on its alias stays an alias."""
    if get_origin(kind) is np.ndarray:
        return get_args(get_args(kind)[1])[0]
    return get_args(kind)[0] if get_origin(kind) is NDArray else None


@lru_cache(maxsize=128)
def _variants(kind: type[Any]) -> dict[str, type[Any]]:
    """The classes that a field of this type may hold, by the names that files give them."""
    return {name: each for each, name in _NAMES.items() if issubclass(each, kind)}


def _key(field: dataclasses.Field[Any]) -> str:
    return field.name.lstrip("_")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("this is no file of dpgep: an object in it has the same key twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"this is no file of dpgep: an integer has {len(digits)} digits, more than {MOST_DIGITS}")
    return int(digits)


def _nested() -> ValueError:
    return ValueError("this is no file of dpgep: it is nested too deeply")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f'this is no file of dpgep: it holds {name}, which is no JSON; dpgep writes "nan", "inf", "-inf"')


def _shown(value: Any) -> str:
    text = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class Part:
    """A file that is being made in the folder of ``path``, until `replace` or `keep` gives it its name.

    A link is followed. A file that is there hands on its rights; otherwise they are ``mode``, less the process's mask.
    """

    def __init__(self, path: str | os.PathLike[str], mode: int = 0o666) -> None:
        self.target = Path(os.path.realpath(path))
        self.path = self.target.with_name(f".{self.target.name}.{uuid.uuid4().hex[:8]}")
        self._mode = mode

    def __enter__(self: _P) -> _P:
        return self

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)

    def write(self, content: bytes) -> None:
        """Make this all that it holds, on the disk."""
        with open(self.path, "r+b", opener=self._opened) as file:  # over what is there: what had room keeps it
            file.write(content)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())

    def _opened(self, path: str, flags: int) -> int:
        descriptor = os.open(path, flags | os.O_CREAT, self._mode)
        with suppress(FileNotFoundError):
            self.path.chmod(self.target.stat().st_mode & 0o777)
        return descriptor

    def replace(self) -> None:
        """Give it its name, in the place of a file that has it."""
        os.replace(self.path, self.target)
        with suppress(OSError):  # not every folder can be synced
            sync_folder(self.target.parent)

    def keep(self) -> Path:
        """Give it its name, or where another file has taken that, the next that is free, as name-2.json: the path."""
        path, count = self.target, 1
        while not self._take(path):
            count += 1
            path = self.target.with_stem(f"{self.target.stem}-{count}")
        with suppress(OSError):
            sync_folder(path.parent)
        return path

    def _take(self, path: Path) -> bool:
        """Give it a name; False where a file has it."""
        try:
            try:
                os.link(self.path, path)  # unlike a rename, it replaces nothing
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                os.replace(self.path, path)
        except FileExistsError:
            return False
        self.path.unlink(missing_ok=True)
        return True


def save(content: bytes, target: Target, *, mode: int = 0o666) -> None:
    """Write a file in place of one that is there, as `Part` does; into it, if it is open, a pipe or a device."""
    if not isinstance(target, (str, os.PathLike)):
        target.write(content)
    elif is_special(target):
        Path(target).write_bytes(content)
    else:
        with Part(target, mode) as part:
            part.write(content)
            part.replace()


def is_special(path: str | os.PathLike[str]) -> bool:
    """Whether something is there that is no file with a name: a folder, a pipe, a device."""
    return os.path.exists(path) and not os.path.isfile(os.path.realpath(path))


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk. Windows opens no folders: the journal of its file system keeps names."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
