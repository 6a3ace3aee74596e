"""Dask DataFrames as matrices of numbers, names and categories known before anything is computed."""

from __future__ import annotations

from typing import Any

from dpgep._optional import import_extra
from dpgep.sources import declared_values
from dpgep.sources.categories import Categories, encoded
from dpgep.sources.frames import Frame
from dpgep.sources.kinds import declared_categories
from dpgep.sources.names import Names
from dpgep.sources.source import Source
from dpgep.sources.tables import whole


def dask_names(frame: Any) -> Names:
    """Names of the columns of `numeric_frame`."""
    return _encoded(frame._meta, _categories(frame)).names(None)


def numeric_frame(frame: Any) -> Any:
    """The frame with indicators in the place of categorical columns. Raises TypeError for columns without numbers."""
    categories = _categories(frame)
    _encoded(frame._meta, categories).width(None)
    if not categories:
        return frame
    return frame.map_partitions(_as_numbers, categories, meta=_as_numbers(frame._meta, categories))


def _categories(frame: Any) -> Categories:
    """Categorical columns, and the categories that are known of each before anything is computed: () for none."""
    types = frame.dtypes.items()
    return {name: declared_values(frame[name]) or () for name, kind in types if declared_categories(kind) is not None}


def _as_numbers(partition: Any, categories: Categories) -> Any:
    source = _encoded(partition, categories)
    columns = source.names(None)
    return import_extra("pandas", "dask").DataFrame(whole(source), columns=columns, index=partition.index)


def _encoded(frame: Any, categories: Categories) -> Source:
    return encoded(Frame(frame), categories)
