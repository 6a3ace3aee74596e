"""Bytes that can be checked: a magic line with a version, a JSON header, arrays, and a checksum over all of it.

    "dpgep <kind> <version>", newline | header length (8 bytes) | header | payload | SHA-256 of all before

Integers are little-endian.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from dpgep.formats.codec import parsed

_DIGEST = hashlib.sha256().digest_size


def pack(kind: str, version: int, header: dict[str, Any], payload: Iterable[bytes]) -> bytes:
    """The bytes of a header that JSON can hold and of a payload."""
    encoded = json.dumps(header).encode()
    content = b"".join([_magic(kind, version), len(encoded).to_bytes(8, "little"), encoded, *payload])
    return content + hashlib.sha256(content).digest()


def unpack(kind: str, version: int, data: bytes) -> tuple[dict[str, Any], memoryview]:
    """(header, payload). Raises ValueError for bytes that are cut, altered, of another kind or version."""
    magic = _magic(kind, version)
    if not data.startswith(magic[: magic.rindex(b" ") + 1]):
        raise ValueError(f"these are not the bytes of dpgep {kind}")
    if not data.startswith(magic):
        raise ValueError(
            f"these bytes ({kind}) were written in another version of the format; this one reads {version}"
        )
    content = memoryview(data)[:-_DIGEST]
    if hashlib.sha256(content).digest() != data[-_DIGEST:]:
        raise ValueError(
            f"these bytes ({kind}) are incomplete or were altered: the checksum does not fit; use another copy"
        )
    start = len(magic) + 8
    end = start + int.from_bytes(content[len(magic) : start], "little")
    return parsed(bytes(content[start:end]), float), content[end:]


def _magic(kind: str, version: int) -> bytes:
    return f"dpgep {kind} {version}\n".encode()
