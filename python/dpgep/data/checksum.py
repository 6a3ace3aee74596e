"""Whether all passes over a source read the same rows: a keyed checksum of what each pass read, compared at its end.

Answers that share their noise are about one data set. If a person's row were x in one pass and x' in another, two
answers with the same noise would tell them apart, so a pass over other rows must not be answered.

Rows are a stream of bytes, and so is each column of a table. Wherever batches begin, it is cut into blocks of 64-bit
words w_j. With secret keys k_j, l_j of 64 random bits, a block has the checksums

    sum_j k_j w_j   and   sum_j l_j b(w_j)   mod 2^64,      b reverses the bytes of a word.

If two blocks agree in the lowest v bits of all words, but not in the next, the first sums are equal with probability
2^-(64 - v): k_j, of a word that shows the difference, is multiplied by 2^v and an odd number. That bit, at place p of
its byte, is at place 56 - v + 2p of b(w_j), so that both sums are equal with probability at most 2^-(72 - 2p), which is
at most 2^-58, whatever changed, as long as it does not depend on the keys. BLAKE2b makes one digest of all blocks.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import even_slices, run, slices, thread_count
from dpgep.data.rows import Rows
from dpgep.errors import DataChangedError
from dpgep.sources.batches import Columns

# Words of a block: keys, words and reversed words stay in the second-level cache (measured: half the size is slower).
_WORDS = 1 << 14
_BLOCK = 8 * _WORDS
# Rows of a table whose entries become words at a time.
_ROWS = 4 * _WORDS
# Columns that do so: words of 400 narrow ones took more memory than their batch, and five times as long to be made.
_COLUMNS = 8
# Bytes of rows that are made contiguous at a time.
_CHUNK = 1 << 19
# Blocks from which on a thread is worth its while.
_BLOCKS_OF_A_THREAD = 16

Bytes = NDArray[np.uint8]


class PassComparison:
    """Compares the passes over the same people. What changes cannot depend on its key, which goes into passes alone."""

    def __init__(self, hint: str) -> None:
        self._key = os.urandom(16)
        self._hint = hint
        self._first: bytes | None = None
        self._lock = threading.Lock()

    def key(self, *, alone: bool) -> bytes | None:
        """For the checksum of a pass; None for one that is the whole of an answer, if no other was looked at."""
        return None if alone and self._first is None else self._key

    def compare(self, digest: bytes) -> None:
        """The end of a pass. Raises DataChangedError if it read other rows than the first."""
        with self._lock:
            if self._first is None:
                self._first = digest
            elif digest != self._first:
                what = f"data must not change ({self._hint}); nothing of this pass was released"
                raise DataChangedError(f"this pass read different rows from the previous one, or their order: {what}")


class PassChecksum:
    """A keyed checksum of rows, groups and persons, in their order; how they are cut into batches is no matter."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._streams: dict[str, _Stream | _Table] = {}
        self._n_rows = 0
        # the form in which each part of a row comes, and at which rows forms change: each has a stream of its own
        self._forms: dict[str, str] = {}
        self._changes: list[str] = []

    def add(self, rows: Rows, groups: NDArray[np.intp] | None, *others: NDArray[np.int64] | None) -> None:
        """Rows that follow those before, the group of each, its person, and how much it counts."""
        for position, view in enumerate(rows.views):
            for name, values in _parts(view):
                self._add(f"{position} {name}", values)
        for place, each in enumerate((groups, *others)):
            if each is not None:
                self._add(f"groups and others {place}", each)
        self._n_rows += rows.n

    def digest(self) -> bytes:
        """Of all people so far."""
        streams = [stream.digest() for _, stream in sorted(self._streams.items())]
        return combined(["\n".join(self._changes).encode(), *streams])

    def _add(self, part: str, values: Any) -> None:
        is_table = isinstance(values, Columns)
        arrays = values.raw_columns()[0] if is_table else [values]
        form = f"{part} {'table' if is_table else 'stream'} {' '.join(each.dtype.str for each in arrays)}"
        if self._forms.get(part) != form:
            self._forms[part] = form
            self._changes.append(f"{self._n_rows} {form}")
        if form not in self._streams:
            keys = _keys(self._key)
            self._streams[form] = _Table(keys, len(arrays)) if is_table else _Stream(keys)
        self._streams[form].update(values)


def combined(digests: list[bytes]) -> bytes:
    """One digest of several, in their order."""
    total = hashlib.blake2b()
    for digest in digests:
        total.update(len(digest).to_bytes(8, "little") + digest)
    return total.digest()


class _Stream:
    def __init__(self, keys: NDArray[np.uint64]) -> None:
        self._keys = keys
        self._length = 0
        self._hash = hashlib.blake2b()
        self._begun = np.zeros(_BLOCK, np.uint8)
        self._filled = 0

    def update(self, values: NDArray[Any]) -> None:
        for data in _contiguous(values):
            self._length += len(data)
            rest = self._fill(data) if self._filled else data
            whole = len(rest) // _BLOCK
            if whole:
                self._hash.update(self._sums(rest[: whole * _BLOCK].reshape(whole, _BLOCK)))
            self._fill(rest[whole * _BLOCK :])

    def digest(self) -> bytes:
        final = self._hash.copy()
        rest = self._begun.copy()
        rest[self._filled :] = 0
        final.update(self._sums(rest[None, :]))
        final.update(self._length.to_bytes(8, "little"))
        return final.digest()

    def _fill(self, data: Bytes) -> Bytes:
        """Take what the block that was begun has room for; the rest."""
        taken = min(len(data), _BLOCK - self._filled)
        self._begun[self._filled : self._filled + taken] = data[:taken]
        self._filled += taken
        if self._filled == _BLOCK:
            self._hash.update(self._sums(self._begun[None, :]))
            self._filled = 0
        return data[taken:]

    def _sums(self, blocks: Bytes) -> bytes:
        sums = np.empty((len(blocks), 2), np.uint64)

        def fill(part: slice) -> None:
            for block, found in zip(blocks[part], sums[part], strict=True):
                found[:] = core.keyed_sums(block, *self._keys)

        n_threads = max(1, min(thread_count(), len(blocks) // _BLOCKS_OF_A_THREAD))
        run([partial(fill, part) for part in even_slices(len(blocks), n_threads)], n_threads)
        return sums.tobytes()


class _Table:
    """The checksum of columns: a word for each entry, whose blocks are as many rows as there are keys."""

    def __init__(self, keys: NDArray[np.uint64], n_columns: int) -> None:
        self._keys = keys
        self._n_rows = 0
        self._hash = hashlib.blake2b()
        self._sums = np.zeros((n_columns, 2), np.uint64)  # of the block that was begun

    def update(self, values: Columns) -> None:
        columns, start = values.raw_columns()
        # entries of 64 bits are read where they lie, all in one call
        are_words = all(each.dtype.itemsize == 8 and each.flags.c_contiguous for each in columns)
        height, width = (max(1, values.shape[0]), len(columns)) if are_words else (_ROWS, _COLUMNS)
        for rows in slices(values.shape[0], height):
            begun = self._n_rows % _WORDS
            self._n_rows += rows.stop - rows.start
            n_whole, rest = divmod(begun + rows.stop - rows.start, _WORDS)
            sums = np.zeros((n_whole + 1, *self._sums.shape), np.uint64)
            blocks = sums[: n_whole + bool(rest)].reshape(-1, self._sums.size)
            for some in slices(len(columns), width):
                words = [_words(each[start + rows.start : start + rows.stop]).view(np.uint8) for each in columns[some]]
                of_some = blocks[:, 2 * some.start : 2 * some.stop]
                core.keyed_column_sums(words, begun, self._keys[0], self._keys[1], of_some, thread_count())
            sums[0] += self._sums
            self._hash.update(sums[:n_whole].tobytes())
            self._sums = sums[n_whole]

    def digest(self) -> bytes:
        final = self._hash.copy()
        final.update(self._sums.tobytes())
        final.update(self._n_rows.to_bytes(8, "little"))
        return final.digest()


def _words(column: NDArray[Any]) -> NDArray[np.uint64]:
    """The entries of a column, each in a word of its own."""
    if column.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            column = column.astype(np.float64)
    bits = np.ascontiguousarray(column).view(f"u{column.dtype.itemsize}")
    return bits if bits.dtype == np.uint64 else bits.astype(np.uint64)


@lru_cache(maxsize=8)
def _keys(key: bytes) -> NDArray[np.uint64]:
    stream = np.random.Philox(key=int.from_bytes(key, "little"))
    return stream.random_raw(2 * _WORDS).reshape(2, _WORDS)


def _parts(view: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(view, (np.ndarray, Columns)):
        yield "rows", view
        return
    entries = slice(view.indptr[0], view.indptr[-1])
    yield "lengths", np.diff(view.indptr).astype(np.int64)
    yield "indices", view.indices[entries].astype(np.int64)
    yield "data", view.data[entries]


def _contiguous(values: NDArray[Any]) -> Iterator[Bytes]:
    """The bytes of the entries, row after row. Long doubles, whose bytes are not all defined, as float64."""
    long = values.dtype.kind == "f" and values.dtype.itemsize > 8
    if values.flags.c_contiguous and not long:
        yield values.reshape(-1).view(np.uint8)
        return
    row = values.dtype.itemsize * int(np.prod(values.shape[1:]))
    for rows in slices(values.shape[0], max(1, _CHUNK // max(1, row))):
        with np.errstate(over="ignore"):
            block = np.ascontiguousarray(values[rows], np.float64 if long else None)
        yield block.reshape(-1).view(np.uint8)
