"""People whose rows lie in several parts of a data set: parts are dealt out anew, so that all of a person's are in one.

Weights follow from a person's rows alone, in whatever order (`dpgep.data.people`), and sums are exact: so they have the
same bits as sums of all rows in memory. Whoever has made the parts, digests of ids show whether two share a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpgep.data.ids import Digests, digests, numbered_digests
from dpgep.data.people import Coded, row_keys, row_weights, weighted
from dpgep.data.rows import NO_GROUP, Rows, S, add_weighted, block_height, joined_views


class Identified(NamedTuple):
    """Rows, the code of each one's group (None: there are no groups) and the digest of its person."""

    rows: Rows
    groups: NDArray[np.intp] | None
    whose: Digests

    def taken(self, which: NDArray[np.intp]) -> Identified:
        """A copy of some of the rows."""
        groups = None if self.groups is None else self.groups[which]
        return Identified(self.rows.taken(which), groups, self.whose[which])


def dealt(
    read: Callable[..., Iterator[tuple[Any, ...]]], to_coded: Callable[..., Coded], n_piles: int, *part: Any
) -> list[list[Identified]]:
    """Copies of the rows of a part in piles: which a person's rows are in, follows from the id alone.

    ``read(*part)`` gives arrays, the ids last, of which ``to_coded`` takes all others.
    """
    piles: list[list[Identified]] = [[] for _ in range(n_piles)]
    for *arrays, ids in read(*part):
        rows, groups = to_coded(*arrays)
        batch = Identified(rows, groups, digests(ids, rows.n))
        places = batch.whose[:, 0] % np.uint64(n_piles)
        for place, pile in enumerate(piles):
            pile.append(batch.taken(np.flatnonzero(places == place)))
    return piles


def joined(piles: Sequence[Identified]) -> Identified | None:
    """The rows of some piles in one; None where there are none."""
    if len(piles) < 2:
        return piles[0] if piles else None
    rows, groups, whose = zip(*piles, strict=True)
    views = zip(*(each.views for each in rows), strict=True)
    codes = None if groups[0] is None else np.concatenate(groups)
    return Identified(Rows(tuple(map(_stacked, views)), rows[0].bound), codes, np.concatenate(whose))


def _stacked(blocks: Sequence[Any]) -> Any:
    if all(isinstance(block, np.ndarray) for block in blocks):
        return np.concatenate(blocks)
    from scipy import sparse

    return sparse.vstack([sparse.csr_array(block) for block in blocks], format="csr")


class SumsOfPeople(Generic[S]):
    """Sums that ``make`` begins, over all rows of some people, and the digest of each person."""

    def __init__(self, make: Callable[[], S], people: Identified | None) -> None:
        self.sums, self.whose = make(), np.empty((0, 2), np.uint64)
        if people is not None:
            rows, groups, whose = people
            persons, self.whose = numbered_digests(whose)
            weights = row_weights(persons, lambda: row_keys(rows, groups))
            add_weighted(self.sums, make, weighted((rows, groups), weights))

    def merge(self, other: SumsOfPeople[S]) -> None:
        """Add the sums over other people."""
        self.sums.merge(other.sums)
        self.whose = np.concatenate([self.whose, other.whose])

    def n_people(self) -> int:
        """Their number. Raises ValueError where a person was in two of the parts that were merged."""
        if len(numbered_digests(self.whose)[1]) < len(self.whose):
            raise ValueError("rows of a person came to several workers: ids must be of one type in all partitions")
        return len(self.whose)


def checksum(people: Identified | None, key: bytes) -> bytes:
    """A keyed checksum of rows with their groups and persons, in any order: that of their hashes, sorted.

    A row is some words of 32 bits, and has two sums of them, each word times a random one of 64 bits, modulo 2^64. Two
    rows have the same sums with a probability of at most 2^-66.
    """
    if people is None:
        return b""
    rows, groups, whose = people
    factors = np.random.Philox(key=int.from_bytes(key, "little")).random_raw((2 * rows.d + 5, 2))
    codes = np.zeros(rows.n, np.int64) if groups is None else groups - NO_GROUP
    hashes, height = np.empty((rows.n, 2), np.uint64), block_height(max(rows.n, 1), rows.d)
    for start in range(0, rows.n, height):
        part = slice(start, min(start + height, rows.n))
        values = np.ascontiguousarray(joined_views(rows, part)).view(np.uint32)
        words = np.hstack([values, whose[part].view(np.uint32), codes[part, None]], dtype=np.uint64, casting="unsafe")
        hashes[part] = words @ factors
    return hashlib.blake2b(hashes[np.lexsort(hashes.T)].tobytes()).digest()
