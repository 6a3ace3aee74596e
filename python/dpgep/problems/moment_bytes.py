"""The byte format of `dpgep.Moments`: public facts in the header, then the upper triangles of the limbs.

Row i of a triangle holds the int64 entries from the diagonal on; there is a high limb only where one is not enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep import _container
from dpgep.data.integer_moments import BITS, ExactMomentAccumulator
from dpgep.formats.checks import MOST_PEOPLE, require_model
from dpgep.formats.codec import decoded
from dpgep.models.model import Adjacency, PublicFacts
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.registry import MODELS
from dpgep.models.row_model import RowModel

_KIND, _VERSION = "moments", 1


def pack(description: dict[str, Any], sums: ExactMomentAccumulator) -> bytes:
    """The bytes of sums and of what they are sums of."""
    low, high = sums.limbs()
    limbs = [low] if high is None else [low, high]
    bound = bound_fields(description["preprocessing"] or description["bound"])
    public = {"model": model_fields(description["model"]), "bound": bound}
    description = {name: value for name, value in description.items() if name != "preprocessing"}
    header = {**description, **public, "n": sums.n, "limbs": len(limbs)}
    return _container.pack(_KIND, _VERSION, header, (row for limb in limbs for row in packed_triangle(limb, "<i8")))


@dataclass(frozen=True)
class _Header:
    """What `pack` writes, but for the model and the bound."""

    adjacency: Adjacency
    public_n: int | None
    bits: int
    n: int
    limbs: int


def unpack(data: bytes) -> tuple[dict[str, Any], ExactMomentAccumulator]:
    """(description, sums) of bytes from `pack`. Raises ValueError, which names the field, for any others."""
    fields, payload = _container.unpack(_KIND, _VERSION, data)
    model, bound = model_of(fields.pop("model", None)), bound_of(fields.pop("bound", None))
    header: _Header = decoded(fields, _Header, "moments")
    if header.bits not in BITS:
        raise ValueError(f"bits must be from {BITS[0]} to {BITS[-1]}, got {header.bits}")
    if not 0 <= header.n <= MOST_PEOPLE:
        raise ValueError(f"n must be a number of people, from 0 to 2^62, got {header.n}")
    if header.limbs not in (1, 2):
        raise ValueError(f"limbs must be 1 or 2, got {header.limbs}")
    layout = model.layout(PublicFacts(header.adjacency, None, header.public_n))
    require_entries(payload, header.limbs * entries_of(layout.dimension))
    entries = np.frombuffer(payload, dtype="<i8").reshape(header.limbs, -1)
    low, *high = (unpacked_triangle(packed, layout.dimension) for packed in entries)
    sums = ExactMomentAccumulator.of_limbs(layout, header.bits, header.n, low, high[0] if high else None)
    sums.require_possible()
    facts = {name: getattr(header, name) for name in ("adjacency", "public_n", "bits")}
    clipping = {"preprocessing" if isinstance(bound, Preprocessing) else "bound": bound}
    return {"model": model, **clipping, **facts}, sums


def entries_of(dimension: int) -> int:
    """Number of entries of a triangle."""
    return dimension * (dimension + 1) // 2


def require_entries(payload: memoryview, n_entries: int) -> None:
    """Raise ValueError for any other number: before anything is made that is larger than the payload."""
    if len(payload) != 8 * n_entries:
        raise ValueError(f"{len(payload)} bytes of sums are not the {8 * n_entries} that the header describes")


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


def bound_fields(bound: float | Preprocessing | None) -> Any:
    """A bound, or preprocessing, as JSON can hold it."""
    if not isinstance(bound, Preprocessing):
        return bound
    parts = {name: None if part is None else part.tolist() for name, part in bound.parts().items()}
    numbers = {
        "bound": bound.bound,
        "largest": bound.largest,
        "missing": bound.missing,
        "energy_kept": bound.energy_kept,
    }
    return {**numbers, **parts}


def bound_of(fields: Any) -> float | Preprocessing:
    """What `bound_fields` was given. Raises ValueError for anything else."""
    found: float | Preprocessing = decoded(fields, Preprocessing if isinstance(fields, dict) else float, "bound")
    return found


def model_of(fields: Any) -> RowModel:
    """The model of `model_fields`. Raises ValueError for anything else."""
    if isinstance(fields, dict):  # as the codec names a class
        fields = {"kind": fields.get("name"), **{key: value for key, value in fields.items() if key != "name"}}
    model: RowModel = decoded(fields, RowModel, "model", kinds={RowModel: MODELS})
    require_model(model)
    return model
