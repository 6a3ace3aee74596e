"""The byte format of `dpgep.Moments`: public facts in the header, then the upper triangles of the limbs.

Row i of a triangle holds the int64 entries from the diagonal on; there is a high limb only where one is not enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep import _container
from dpgep.data.integer_moments import ExactMomentAccumulator
from dpgep.models.model import PublicFacts
from dpgep.models.preparation import Preparation
from dpgep.problems.moment_problem import RowModel
from dpgep.problems.registry import MODELS

_KIND, _VERSION = "moments", 1


def pack(description: dict[str, Any], sums: ExactMomentAccumulator) -> bytes:
    """The bytes of sums and of what they are sums of."""
    low, high = sums.limbs()
    limbs = [low] if high is None else [low, high]
    public = {"model": model_fields(description["model"]), "bound": bound_fields(description["bound"])}
    header = {**description, **public, "n": sums.n, "limbs": len(limbs)}
    return _container.pack(_KIND, _VERSION, header, (row for limb in limbs for row in packed_triangle(limb, "<i8")))


def unpack(data: bytes) -> tuple[dict[str, Any], ExactMomentAccumulator]:
    """(description, sums) of bytes from `pack`. Raises ValueError for any others."""
    header, payload = _container.unpack(_KIND, _VERSION, data)
    model, n, n_limbs = model_of(header.pop("model")), header.pop("n"), header.pop("limbs")
    description = {**header, "model": model, "bound": bound_of(header["bound"])}
    layout = model.layout(PublicFacts(header["adjacency"], None, header["public_n"]))
    entries = np.frombuffer(payload, dtype="<i8").reshape(n_limbs, -1)
    low, *high = (unpacked_triangle(packed, layout.dimension) for packed in entries)
    return description, ExactMomentAccumulator.of_limbs(layout, header["bits"], n, low, high[0] if high else None)


def packed_triangle(matrix: NDArray[Any], dtype: str) -> Iterator[bytes]:
    """The rows of an upper triangle, from the diagonal on."""
    for i, row in enumerate(matrix):
        yield row[i:].astype(dtype).tobytes()


def unpacked_triangle(packed: NDArray[Any], dimension: int) -> NDArray[Any]:
    """The upper triangle, zeros below it."""
    matrix, start = np.zeros((dimension, dimension), dtype=packed.dtype.newbyteorder("=")), 0
    for i in range(dimension):
        matrix[i, i:] = packed[start : start + dimension - i]
        start += dimension - i
    return matrix


def model_fields(model: RowModel) -> dict[str, Any]:
    """A model as JSON can hold it. Raises TypeError for classes that it cannot hold."""
    values = {field.name: getattr(model, field.name) for field in dataclasses.fields(model)}
    return {"name": model.name, **{name: _plain(value) for name, value in values.items() if value is not None}}


def _plain(value: Any) -> Any:
    """A value that JSON gives back as it is: tuples of scalars come back as lists, see `model_of`."""
    return [_scalar(entry) for entry in value] if isinstance(value, tuple) else _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int, float, bool)):
        raise TypeError(f"classes must be text, numbers or booleans to be stored, got {value!r}")
    return value


def bound_fields(bound: float | Preparation | None) -> Any:
    """A bound, or a preparation, as JSON can hold it."""
    if not isinstance(bound, Preparation):
        return bound
    parts = {name: None if part is None else part.tolist() for name, part in bound.parts().items()}
    numbers = {"bound": bound.bound, "largest": bound.largest, "missing": bound.missing, "kept": bound.kept}
    return {**numbers, **parts}


def bound_of(fields: Any) -> Any:
    """What `bound_fields` was given."""
    if not isinstance(fields, dict):
        return fields
    parts: dict[str, Any] = {name: np.array(part) if isinstance(part, list) else part for name, part in fields.items()}
    return Preparation(**parts)


def model_of(fields: dict[str, Any]) -> RowModel:
    """The model of `model_fields`."""
    model = MODELS[fields.pop("name")]
    return model(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
