"""Dask DataFrames: names, types and categories of their columns, known before anything is computed."""

from __future__ import annotations

from typing import Any

from dpgep.sources import declared_values
from dpgep.sources.encoding import Categories, Encoding, declared_categories, encoded
from dpgep.sources.frames import Frame
from dpgep.sources.names import Names, as_text
from dpgep.sources.source import Source


def frame_categories(frame: Any) -> Categories:
    """Categorical columns, and the categories that are known of each: () for none."""
    types = frame.dtypes.items()
    return {name: declared_values(frame[name]) or () for name, kind in types if declared_categories(kind) is not None}


def frame_columns(frame: Any) -> tuple[Names, Categories]:
    """Names of the columns, and their categories."""
    return as_text(frame.columns), frame_categories(frame)


def without_rows(frame: Any) -> Source:
    """What is known of the columns: their names, their number as a matrix, or that they are not numeric."""
    return encoded(Frame(frame._meta), Encoding(frame_categories(frame)))
