"""Moments of rows that lie on Dask's workers or Spark's executors, or in files."""

from __future__ import annotations

from typing import Any

import dpgep
from dpgep.sources import Scan
from dpgep.sources.kinds import is_spark_frame


def moments(model: Any, X: Any, y: Any = None, *, columns: Any = None, client: Any = None, **facts: Any) -> Any:
    """The moments of X, and of ``y``: of tables and of paths, the name of a column, or a list of names.

    ``columns`` are those of X; default: all but ``y``.
    """
    sums = dpgep.Moments(model, **facts)
    names = [y] if isinstance(y, str) else list(y) if isinstance(y, list) else []
    scanned = isinstance(X, (list, Scan)) or is_spark_frame(X)
    people = dpgep.scan(X) if scanned else X
    if names or columns or scanned:
        known = people.source.columns if scanned else X.columns
        rows = people[list(columns or [name for name in known if name not in names])]
        sums.update(rows, people[y] if names else y, client=client)
    else:
        sums.update(X, y, client=client)
    return sums
