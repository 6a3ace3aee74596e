"""Spark DataFrames as a source: names and types of their columns; their rows stay on the executors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dpgep.sources.arrow import ArrowSource
from dpgep.sources.names import as_text
from dpgep.sources.source import packages_messages_withheld


class SparkFrame(ArrowSource):
    """What Arrow makes of a Spark DataFrame, as far as it is known without its rows."""

    n_rows = None

    def __init__(self, frame: Any) -> None:
        as_text(frame.columns)  # refuses names that occur twice
        with packages_messages_withheld("the Spark DataFrame"):
            self.schema = frame.limit(0).toArrow().schema  # computes nothing, but where Spark folds rows of its own

    def record_batches(self, names: list[str], rows: int) -> Iterable[Any]:
        raise ValueError(
            "rows of a Spark DataFrame are summed on its executors and not read here: bring them here with "
            ".toPandas() or .toArrow() first"
        )
