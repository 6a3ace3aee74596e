"""stub"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Selection:
    scan: Scan
    n_columns: int | None


class Scan:
    all_columns: Selection
    n_rows: int | None

    def read(self, *selections: Selection) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError


def scan(source: Any) -> Scan:
    raise NotImplementedError
