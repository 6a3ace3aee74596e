"""Several rows to a person: ids become the weight of each row, and every sum counts each person once.

A person's weight is 2^WEIGHT_BITS, shared by their rows as evenly as whole numbers allow: of m rows each has
floor(2^WEIGHT_BITS / m), and one has what is left over. Who has more than 64 rows, of whom much may be left over, has
one more for each of some rows before (`core.Shares`). Which rows these are depends on the person's rows alone, not on
their order, and favours none: they are taken by a hash of their contents. It takes no memory of single rows, of which
there may be any number. All weights of a person add up to 2^WEIGHT_BITS exactly, so that what a person adds to a sum,
over 2^WEIGHT_BITS, is a mean of what single rows would add: within their convex hull. There a person moves no answer by
more than one row would (docs/mathematics.md, section 12).

With weights of a survey, or rows that count alike, a person's rows add up to at most 2^WEIGHT_BITS (`Weighting`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import run, thread_count
from dpgep.data.checksum import PassChecksum, PassComparison
from dpgep.data.dataset import ONE_ROW, Dataset, People
from dpgep.data.ids import Identities, Numbering, Numbers, digests
from dpgep.data.rows import Batch, Rows, S, Weights, add_weighted, block_height, joined_views
from dpgep.data.weighting import UNIT_BITS, Weighting, shared_weights
from dpgep.errors import DataChangedError
from dpgep.models.model import PublicFacts
from dpgep.sources import Selection

# Public: rows of one person differ in their weights by at most 2^-12 of the person's. The finest grid of most releases
# has 18 bits or more beside it, and sums over 2^20 people fit 64 bits in every stage.
WEIGHT_BITS = 12
_WHOLE = 1 << WEIGHT_BITS

# The rows of people, and the code of each one's group, `NO_GROUP` for none; None where there are no groups.
Coded = tuple[Rows, NDArray[np.intp] | None]


class PeopleDataset(Dataset):
    """Rows in memory, of which a person has any number: all weights are in units of 2^-WEIGHT_BITS of a person."""

    weight_bits = WEIGHT_BITS
    at_hand = True

    def __init__(self, coded: Coded, weighting: Weighting, fewest: int, identities: Identities | None = None) -> None:
        rows = coded[0]
        if identities is not None:
            identities.add_rows(digests(weighting.person, rows.n))
        persons, units = weighting.persons(rows.n), weighting.units(weighting.weights, rows.n)
        weights = partial(weights_of, persons, units, weighting.most_alike, lambda: row_keys(*coded))
        self._batch = weighted(coded, weights(WEIGHT_BITS))
        self._coded, self._persons = coded, persons
        self._finest = None if weighting.most_alike is None else lambda: weighted(coded, weights(UNIT_BITS))
        n_people = int(np.count_nonzero(np.bincount(persons)))
        self.people = People(enough_people(n_people, fewest), identities=identities)
        self.bound, self.n_features = rows.bound, rows.d

    def in_finest_weights(self) -> PeopleDataset:
        if self._finest is None:
            return self
        finer = copy(self)
        finer.weight_bits, finer._batch = UNIT_BITS, self._finest()
        return finer

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        self.people.passes += 1
        total = make()
        add_weighted(total, make, self._batch)
        return total

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        if not by_person or self._finest is not None:
            raise ValueError(ONE_ROW)
        weights = row_weights(self._persons, lambda: row_keys(*self._coded))
        return Batch(self._coded[0], weights=weights, persons=self._persons)


class StreamedPeopleDataset(Dataset):
    """The same of rows that a source reads batch by batch: a pass before all others counts the rows of each person.

    It keeps some 45 bytes a person, and nothing of a row: whose each is and what it counts is looked up in every pass.
    (Somebody's more than 64 rows take a second pass.) Of weights, and rows that count alike, two bytes a row are kept
    and 24 more needed while they are counted. Every pass is compared with the first.
    """

    weight_bits = WEIGHT_BITS

    def __init__(
        self,
        selections: tuple[Selection, ...],
        weighting: Weighting,
        to_coded: Callable[..., Coded],
        n_features: int,
        bound: float,
        fewest: int,
        identities: Identities | None = None,
    ) -> None:
        self._selections, self._weighting, self._to_coded, self._fewest = selections, weighting, to_coded, fewest
        self._weights: Weights | None = None
        self._numbering = Numbering()
        self._shares: core.Shares | None = None
        self._comparison = PassComparison("a scanned function must yield the same rows at every call")
        self.bound, self.n_features, self.people = bound, n_features, People(None, identities=identities)

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        weights_of = self._counted()
        self.people.passes += 1
        total = make()
        for coded, persons, _ in self._pass():
            add_weighted(total, make, weighted(coded, weights_of(coded, persons)))
        return total

    def in_finest_weights(self) -> StreamedPeopleDataset:
        if self._weighting.most_alike is None:
            return self
        finer = copy(self)
        finer.weight_bits, finer._weights = UNIT_BITS, None
        return finer

    def _counted(self) -> Callable[[Coded, Any], Weights]:
        """The weights of the rows of each batch of a pass that follows, in their order."""
        if self._weighting.most_alike is not None:
            return self._in_order()
        shares = self._shares = self._shares or self._counted_shares()
        are_open = np.ones(self._numbering.n, bool)
        return lambda coded, persons: _shared(shares, persons, row_keys(*coded), are_open)

    def _counted_shares(self) -> core.Shares:
        self.people.passes += 1  # whether it takes two is a matter of somebody's rows, and not told
        self._numbering, shares = Numbering(), core.Shares()
        for coded, persons, _ in self._pass(is_open=True):
            shares.count(persons, row_keys(*coded), self._numbering.n)
        self.people.n = enough_people(self._numbering.n, self._fewest)
        if shares.has_many:
            for coded, persons, _ in self._pass():
                shares.count_again(persons, row_keys(*coded))
        return shares

    def _in_order(self) -> Callable[[Coded, Any], Weights]:
        if self._weights is None:
            weighting, n = self._weighting, 0
            parts: list[list[Any]] = [[np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.uint64)]]
            self.people.passes += 1
            self._numbering = Numbering()
            for coded, persons, weights in self._pass(is_open=True):
                units = weighting.units(weights, coded[0].n)
                persons = np.arange(n, n + coded[0].n) if persons is None else persons
                for part, values in zip(parts, (persons, units, row_keys(*coded)), strict=True):
                    part.append(values)
                n += coded[0].n
            numbers, units, keys = map(_joined, parts)
            self._weights = weights_of(numbers, units, weighting.most_alike, lambda: keys, self.weight_bits)
            self.people.n = enough_people(n if weighting.person is None else self._numbering.n, self._fewest)
        weights, start = self._weights, 0

        def of_batch(coded: Coded, _: Any) -> Weights:
            nonlocal start
            start += coded[0].n
            if len(weights) < start:
                raise DataChangedError("this pass read more rows than the one before: data must not change")
            return weights[start - coded[0].n : start]

        return of_batch

    def _pass(self, *, is_open: bool = False) -> Iterator[tuple[Coded, Any, Any]]:
        """The rows of each batch, whose they are, and their weights; None where that is known or not asked for.

        Only in a pass that is open may people be new.
        """
        key = self._comparison.key(alone=False)
        assert key is not None
        checksum, n_views = PassChecksum(key), len(self._selections)
        beside = (self._weighting.person, self._weighting.weights) if self._weights is None else (None, None)
        selections = *self._selections, *(each for each in beside if each is not None)
        for arrays in self._selections[0].scan.read(*selections, apart=True):
            coded, others = self._to_coded(*arrays[:n_views]), iter(arrays[n_views:])
            ids, weights = (None if each is None else next(others) for each in beside)
            persons = None if ids is None else self._numbering.numbers(ids, coded[0].n, is_open=is_open)
            if is_open and self.people.identities is not None:
                self.people.identities.add_rows(digests(ids, coded[0].n))
            checksum.add(*coded, persons if self._weighting.most_alike is None else None)
            yield coded, persons, weights
        self._comparison.compare(checksum.digest())

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        raise ValueError(ONE_ROW)


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    """All parts in one array, the memory of which is given back."""
    joined = np.concatenate(parts)
    parts.clear()
    return joined


def weighted(coded: Coded, weights: Weights) -> Batch:
    """Rows that count as often as their weights say."""
    rows, codes = coded
    return Batch(rows, weights=weights) if codes is None else Batch.of_codes(rows, codes, weights)


def weight_bits_of(facts: PublicFacts) -> int:
    """Of which whole weights 2^weight_bits make a person; 0 where each has one row, and all count alike."""
    return WEIGHT_BITS if facts.several_rows or facts.weighted else 0


def enough_people(n: int, fewest: int) -> int:
    """The number of people. Raises ValueError for too few where it is public."""
    if n < fewest:
        raise ValueError(f"there must be at least {fewest} people, person has {n}")
    return n


def weights_of(
    persons: Numbers, units: Numbers, most_alike: int | None, keys: Callable[[], NDArray[np.uint64]], bits: int
) -> Weights:
    """(n,), the weight of each row in units of 2^-bits of a person; of even shares, 2^-WEIGHT_BITS."""
    if most_alike is None:
        return row_weights(persons, keys)
    weights = shared_weights(persons, units, most_alike, keys, bits)
    return weights.astype(np.int16) if bits == WEIGHT_BITS else weights


def row_weights(persons: Numbers, keys: Callable[[], NDArray[np.uint64]]) -> NDArray[np.int16]:
    """(n,), the weight of each row, those of a person adding up to 2^WEIGHT_BITS.

    ``keys`` are asked for only where somebody's weight is not shared evenly; rows that are alike have the same. Who
    else there is changes nothing.
    """
    n_rows = np.bincount(persons)
    even, rest = np.divmod(_WHOLE, np.maximum(n_rows, 1))
    if not rest.any():
        return even.astype(np.int16)[persons]
    shares, each = core.Shares(), keys()
    shares.count(persons, each, len(n_rows))
    if shares.has_many:
        shares.count_again(persons, each)
    return _shared(shares, persons, each, np.ones(len(n_rows), bool))


def _shared(
    shares: core.Shares, persons: Numbers, keys: NDArray[np.uint64], are_open: NDArray[np.bool_]
) -> NDArray[np.int16]:
    weights = np.empty(len(persons), np.int16)
    shares.share(persons, keys, are_open, weights)
    return weights


def row_keys(rows: Rows, groups: NDArray[np.intp] | None) -> NDArray[np.uint64]:
    """A hash of each row's values and group, the same in whatever form they lie."""
    factors = _mixed(np.arange(1, rows.d + 2, dtype=np.uint64)) | np.uint64(1)  # sums of few of them are far apart
    keys = np.empty(rows.n, dtype=np.uint64)
    if (whole := rows.in_one_piece(rows.n, fixed_point=False)) is not None:
        assert isinstance(whole, np.ndarray)
        core.hash_rows(whole, factors, groups, keys, thread_count())
        return keys

    def fill(people: slice) -> None:
        core.hash_rows(joined_views(rows, people), factors, None if groups is None else groups[people], keys[people])

    height = block_height(max(rows.n, 1), rows.d)
    run([partial(fill, slice(start, start + height)) for start in range(0, rows.n, height)], thread_count())
    return keys


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64: a bijection whose every bit depends on all."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    return words
