"""People whose rows lie in several parts of a data set: parts are dealt out anew, so that all of a person's are in one.

Weights follow from a person's rows alone, in whatever order (`dpgep.data.people`), and sums are exact: so they have the
same bits as sums of all rows in memory. Whoever has made the parts, digests of ids show whether two share a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpgep.data.ids import Digests, Identities, Numbers, digests, numbered_digests
from dpgep.data.people import Coded, row_keys, row_weights, weighted
from dpgep.data.rows import NO_GROUP, Batch, Rows, S, add_weighted, block_height, joined_views
from dpgep.data.weighting import Weighting


class Identified(NamedTuple):
    """Rows, the code of each one's group (None: there are no groups), the digest of its person, (n, 2), and its weight,
    (n, 1); (n, 0) without ids, or without weights.
    """

    rows: Rows
    groups: NDArray[np.intp] | None
    whose: Digests
    units: Numbers

    @classmethod
    def of(cls, to_coded: Callable[..., Coded], weighting: Weighting, *arrays: Any) -> Identified:
        """Rows of arrays, of which ids and weights, as far as there are any, are the last."""
        others = iter(arrays[len(arrays) - len(weighting.columns) :])
        rows, groups = to_coded(*arrays[: len(arrays) - len(weighting.columns)])
        whose, units = np.empty((rows.n, 0), np.uint64), np.empty((rows.n, 0), np.int64)
        if weighting.person is not None:
            whose = digests(next(others), rows.n)
        if (found := weighting.units(next(others, None), rows.n)) is not None:
            units = found[:, None]
        return cls(rows, groups, whose, units)

    def taken(self, which: NDArray[np.intp]) -> Identified:
        """A copy of some of the rows."""
        groups = None if self.groups is None else self.groups[which]
        return Identified(self.rows.taken(which), groups, self.whose[which], self.units[which])

    def weighed(self, persons: Numbers | None, most_alike: int | None, bits: int) -> Batch:
        """The rows with the weights that follow from the numbers of their persons; None: each is one."""
        coded, units = (self.rows, self.groups), self.units[:, 0] if self.units.shape[1] else None
        return weighted(coded, row_weights(persons, partial(row_keys, *coded), units, most_alike or 1, bits))


def dealt(
    read: Callable[..., Iterator[tuple[Any, ...]]], identified: Callable[..., Identified], n_piles: int, *part: Any
) -> list[list[Identified]]:
    """Copies of the rows of a part in piles: which a person's rows are in, follows from the id alone."""
    piles: list[list[Identified]] = [[] for _ in range(n_piles)]
    for arrays in read(*part):
        batch = identified(*arrays)
        places = batch.whose[:, 0] % np.uint64(n_piles)
        for place, pile in enumerate(piles):
            pile.append(batch.taken(np.flatnonzero(places == place)))
    return piles


def joined(piles: Sequence[Identified]) -> Identified | None:
    """The rows of some piles in one; None where there are none."""
    if len(piles) < 2:
        return piles[0] if piles else None
    rows, groups, whose, units = zip(*piles, strict=True)
    views = zip(*(each.views for each in rows), strict=True)
    codes = None if groups[0] is None else np.concatenate(groups)
    return Identified(
        Rows(tuple(map(_stacked, views)), rows[0].bound), codes, np.concatenate(whose), np.concatenate(units)
    )


def _stacked(blocks: Sequence[Any]) -> Any:
    if all(isinstance(block, np.ndarray) for block in blocks):
        return np.concatenate(blocks)
    from scipy import sparse

    return sparse.vstack([sparse.csr_array(block) for block in blocks], format="csr")


class SumsOfPeople(Generic[S]):
    """Sums that ``make`` begins, over all rows of some people but who is left out, and the digest of each person."""

    def __init__(
        self,
        make: Callable[[], S],
        people: Identified | None,
        most_alike: int | None,
        bits: int,
        left_out: Identities | None = None,
    ) -> None:
        self.sums, self.whose = make(), np.empty((0, 2), np.uint64)
        if people is not None:
            people = people if left_out is None else people.taken(left_out.others(people.whose))
            persons, self.whose = numbered_digests(people.whose)
            add_weighted(self.sums, make, people.weighed(persons, most_alike, bits))

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
    """A keyed checksum of rows with their groups, persons and weights, in any order: that of their hashes, sorted.

    A row is some words of 32 bits, and has two sums of them, each word times a random one of 64 bits, modulo 2^64. Two
    rows have the same sums with a probability of at most 2^-66.
    """
    if people is None:
        return b""
    rows, groups, whose, units = people
    factors = np.random.Philox(key=int.from_bytes(key, "little")).random_raw((2 * rows.d + 7, 2))
    codes = np.zeros(rows.n, np.int64) if groups is None else groups - NO_GROUP
    hashes, height = np.empty((rows.n, 2), np.uint64), block_height(max(rows.n, 1), rows.d)
    for start in range(0, rows.n, height):
        part = slice(start, min(start + height, rows.n))
        values = np.ascontiguousarray(joined_views(rows, part)).view(np.uint32)
        beside = whose[part].view(np.uint32), codes[part, None], units[part].view(np.uint32)
        words = np.hstack([values, *beside], dtype=np.uint64, casting="unsafe")
        hashes[part] = words @ factors[: words.shape[1]]
    return hashlib.blake2b(hashes[np.lexsort(hashes.T)].tobytes()).digest()
