"""The byte format of `dpgep.Moments`: a magic line, a JSON header, the upper triangles of the limbs, a checksum.

    magic | header length (8 bytes) | header | low | high, where there is one | SHA-256 of all before

Integers are little-endian; row i of a triangle holds the entries from the diagonal on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep.problems.cca import CcaModel
from dpgep.problems.fda import FdaModel
from dpgep.problems.integer_moments import IntegerSums
from dpgep.problems.model import PublicFacts
from dpgep.problems.moments import MomentModel
from dpgep.problems.pca import PcaModel
from dpgep.problems.sir import SirModel

_MAGIC = b"dpgep moments 1\n"
_DIGEST = hashlib.sha256().digest_size
_MODELS: dict[str, type[MomentModel]] = {model.name: model for model in (PcaModel, CcaModel, FdaModel, SirModel)}


def pack(description: dict[str, Any], sums: IntegerSums) -> bytes:
    """The bytes of sums and of what they are sums of."""
    low, high = sums.limbs()
    limbs = [low] if high is None else [low, high]
    facts = {**description, "model": _model_fields(description["model"]), "n": sums.n, "limbs": len(limbs)}
    header = json.dumps(facts).encode()
    parts = [_MAGIC, len(header).to_bytes(8, "little"), header]
    for limb in limbs:
        parts += [limb[i, i:].astype("<i8").tobytes() for i in range(len(limb))]
    content = b"".join(parts)
    return content + hashlib.sha256(content).digest()


def unpack(data: bytes) -> tuple[dict[str, Any], IntegerSums]:
    """(description, sums) of bytes from `pack`. Raises ValueError for any others."""
    content, digest = data[:-_DIGEST], data[-_DIGEST:]
    if not data.startswith(_MAGIC[:14]):
        raise ValueError("these are not the bytes of dpgep moments")
    if not data.startswith(_MAGIC):
        raise ValueError("these moments were written by another version of the format; this one reads version 1")
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("these moments are incomplete or were altered: the checksum does not fit; use another copy")
    start = len(_MAGIC) + 8
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    header = json.loads(content[start:end])
    model, n, n_limbs = _model(header.pop("model")), header.pop("n"), header.pop("limbs")
    description = {**header, "model": model}
    layout = model.layout(PublicFacts(header["adjacency"], header["bound"], header["public_n"]))
    triangles = _triangles(content[end:], layout.dimension)
    low = next(triangles)
    high = next(triangles) if n_limbs == 2 else None
    return description, IntegerSums.of_limbs(layout, header["bits"], n, low, high)


def _triangles(data: bytes, dimension: int) -> Iterator[NDArray[np.int64]]:
    size = dimension * (dimension + 1) // 2
    for packed in np.frombuffer(data, dtype="<i8").reshape(-1, size):
        matrix, start = np.zeros((dimension, dimension), dtype=np.int64), 0
        for i in range(dimension):
            matrix[i, i:] = packed[start : start + dimension - i]
            start += dimension - i
        yield matrix


def _model_fields(model: MomentModel) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(model)]  # type: ignore[arg-type]
    return {"name": model.name, **{name: _plain(getattr(model, name)) for name in names}}


def _plain(value: Any) -> Any:
    """A value that JSON gives back as it is: tuples of scalars come back as lists, see `_model`."""
    return [_scalar(entry) for entry in value] if isinstance(value, tuple) else _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float, bool)):
        raise TypeError(f"classes must be text, numbers or truth values to be stored, got {value!r}")
    return value


def _model(fields: dict[str, Any]) -> MomentModel:
    model = _MODELS[fields.pop("name")]
    return model(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
