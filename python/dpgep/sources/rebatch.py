"""Batches of even size from whatever pieces a source yields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from dpgep.sources.parts import Part, nbytes

# pyarrow decodes smaller batches more slowly (measured), and larger ones hardly faster.
BATCH_BYTES = 1 << 24

Pieces = tuple[Part, ...]  # one part of each selection, all with the same rows


def rebatch(pieces: Iterable[Pieces], batch_rows: int | None) -> Iterator[list[Pieces]]:
    """Lists of pieces that make up a batch each: long pieces are cut evenly, short ones collected; order stays.

    A batch has at most ``batch_rows`` rows, or about BATCH_BYTES bytes. Batches are not filled to the brim: that would
    copy every row of a source whose pieces are a little larger or smaller. There are at most three times as many as
    need be.

    A piece that is kept while the next is asked for is copied: iterables may fill the same memory again, and people
    would then count more than once. One that fills more than half of a batch is a batch, and not copied.
    """
    pending: list[Pieces] = []
    filled = 0.0
    for piece in pieces:
        rows = piece[0].shape[0]
        if rows == 0:
            continue
        size = rows / batch_rows if batch_rows else sum(map(nbytes, piece)) / BATCH_BYTES
        if pending and filled + size > 1.0:
            yield pending
            pending, filled = [], 0.0
        if size <= 0.5 or (pending and size <= 1.0):
            pending.append(tuple(part.copy() for part in piece))
            filled += size
            continue
        count = min(rows, math.ceil(size))
        for k in range(count):
            part_rows = slice(k * rows // count, (k + 1) * rows // count)
            yield [tuple(part[part_rows] for part in piece)]
    if pending:
        yield pending


def rows_at_a_time(row_bytes: int, batch_rows: int | None) -> int:
    """How many rows to read at a time from a source whose rows take ``row_bytes``."""
    return batch_rows or max(1, BATCH_BYTES // max(1, row_bytes))
