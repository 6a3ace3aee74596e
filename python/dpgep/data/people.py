"""Several rows to a person: ids become the weight of each row, and every sum counts each person once.

A person's weight is 2^WEIGHT_BITS, shared by their rows as evenly as whole numbers allow: of m rows each has
floor(2^WEIGHT_BITS / m), and one has what is left over. Who has more than 64 rows, of whom much may be left over, has
one more for each of some rows before (`core.Shares`). Which rows these are depends on the person's rows alone, not on
their order, and favours none: they are taken by a hash of their contents. It takes no memory of single rows, of which
there may be any number. All weights of a person add up to 2^WEIGHT_BITS exactly, so that what a person adds to a sum,
over 2^WEIGHT_BITS, is a mean of what single rows would add: within their convex hull. There a person moves no answer by
more than one row would (proof: proofs/Hull.v).

With weights of a survey, or rows that count alike (`Weighting`), each row has a part of its own, rounded down, and what
is left over is dealt in the same way: a person's rows add up to at most 2^WEIGHT_BITS.
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
from dpgep.data.dataset import IN_BATCHES, ONE_ROW, Dataset, People
from dpgep.data.ids import Identities, Numbering, Numbers, digests, numbered
from dpgep.data.rows import Batch, Rows, S, Weights, add_weighted, block_height, joined_views
from dpgep.data.weighting import UNIT_BITS, Weighting
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
        counted = None if identities is None else identities.add_counted(digests(weighting.person, rows.n))
        persons = None if weighting.person is None else numbered(weighting.person, rows.n, counted)
        coded, units = rows_taken(coded, weighting.units(weighting.weights, rows.n), counted)
        rows, keys = coded[0], partial(row_keys, *coded)
        weights = partial(row_weights, persons, keys, units, weighting.most_alike or 1)
        self._batch = weighted(coded, weights())
        self._coded, self._persons = coded, persons
        self._finest = None if weighting.most_alike is None else lambda: weighted(coded, weights(bits=UNIT_BITS))
        n_people = rows.n if persons is None else int(np.count_nonzero(np.bincount(persons)))
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
        assert self._persons is not None
        weights = row_weights(self._persons, partial(row_keys, *self._coded))
        return Batch(self._coded[0], weights=weights, persons=self._persons)


class StreamedPeopleDataset(Dataset):
    """The same of rows that a source reads batch by batch: a pass before all others counts the rows of each person.

    It keeps some 18 bytes a person (16 more with weights, and 10 with ids of text), and nothing of a row: whose each is
    and what it counts is looked up in every pass. (Somebody's more than 64 rows take a second pass, several weights of
    a person one more.) Where each row is a person, no pass is needed. Every pass is compared with the first.
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
        self._numbering = Numbering()
        self._shares: core.Shares | None = None
        self._comparison = PassComparison("a scanned function must yield the same rows at every call")
        self.bound, self.n_features, self.people = bound, n_features, People(None, identities=identities)
        self.read_once = not selections[0].scan.repeatable

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        n_rows, total, are_open = 0, make(), _all_open(0)
        if self._weighting.person is not None:
            self._shares = self._shares or self._counted()
            are_open = _all_open(self._numbering.n)
        self.people.passes += 1
        for coded, persons, units in self._pass():
            n_rows += coded[0].n
            if persons is None:
                weights = weights_alone(units, self.weight_bits)
            else:
                assert self._shares is not None
                weights = _shared(self._shares, persons, row_keys(*coded), units, are_open, self.weight_bits)
            add_weighted(total, make, weighted(coded, weights))
        if self._weighting.person is None:
            self.people.n = enough_people(n_rows, self._fewest)
        return total

    def in_finest_weights(self) -> StreamedPeopleDataset:
        if self._weighting.most_alike is None:
            return self
        finer = copy(self)
        finer.weight_bits, finer._shares = UNIT_BITS, None
        return finer

    def _counted(self) -> core.Shares:
        self.people.passes += 1  # how many it takes is a matter of somebody's rows, and not told
        self._numbering = Numbering()
        facts = self._weighting.most_alike or 1, self.weight_bits, self._weighting.weights is not None
        shares = core.Shares(*facts)
        is_open = True
        while is_open or shares.end_pass():
            for coded, persons, units in self._pass(is_open=is_open):
                shares.count(persons, row_keys(*coded), units)
            if is_open:
                self.people.n = enough_people(self._numbering.n, self._fewest)
            is_open = False
        return shares

    def _pass(self, *, is_open: bool = False) -> Iterator[tuple[Coded, Any, Any]]:
        """The rows of each batch, whose they are, and their units; None without ids, or weights.

        Only in a pass that is open may people be new.
        """
        key = None if self.read_once else self._comparison.key(alone=False)
        checksum, n_views = None if key is None else PassChecksum(key), len(self._selections)
        for arrays in self._selections[0].scan.read(*self._selections, *self._weighting.columns, apart=True):
            coded, beside = self._to_coded(*arrays[:n_views]), iter(arrays[n_views:])
            ids = None if self._weighting.person is None else next(beside)
            units, identities = self._weighting.units(next(beside, None), coded[0].n), self.people.identities
            counted = None
            if identities is not None and (is_open or identities.left_out is not None):
                counted = identities.add_counted(digests(ids, coded[0].n))
            persons = None if ids is None else self._numbering.numbers(ids, coded[0].n, counted, is_open=is_open)
            coded, units = rows_taken(coded, units, counted)
            if checksum is not None:
                checksum.add(*coded, persons, units)
            yield coded, persons, units
        if checksum is not None:
            self._comparison.compare(checksum.digest())

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        raise ValueError(IN_BATCHES.format(purpose))


def weighted(coded: Coded, weights: Weights) -> Batch:
    """Rows that count as often as their weights say."""
    rows, codes = coded
    return Batch(rows, weights=weights) if codes is None else Batch.of_codes(rows, codes, weights)


def rows_taken(coded: Coded, units: Numbers | None, which: NDArray[np.intp] | None) -> tuple[Coded, Numbers | None]:
    """Some of the rows, and their units; None for all."""
    if which is None:
        return coded, units
    codes, units = (None if each is None else each[which] for each in (coded[1], units))
    return (coded[0].taken(which), codes), units


def weight_bits_of(facts: PublicFacts) -> int:
    """Of which whole weights 2^weight_bits make a person; 0 where each has one row, and all count alike."""
    return WEIGHT_BITS if facts.several_rows or facts.weighted else 0


def enough_people(n: int, fewest: int) -> int:
    """The number of people. Raises ValueError for too few where it is public."""
    if n < fewest:
        raise ValueError(f"there must be at least {fewest} people, person has {n}")
    return n


def row_weights(
    persons: Numbers | None,
    keys: Callable[[], NDArray[np.uint64]],
    units: Numbers | None = None,
    most_alike: int = 1,
    bits: int = WEIGHT_BITS,
) -> Weights:
    """(n,), the weight of each row in units of 2^-bits of a person; those of a person add up to at most one.

    ``persons`` are None where each row is one. ``keys`` are asked for only where somebody's weight is not shared
    evenly; rows that are alike have the same. Who else there is changes nothing.
    """
    if persons is None:
        assert units is not None
        return weights_alone(units, bits)
    if units is None and bits == WEIGHT_BITS:
        n_rows = np.maximum(np.bincount(persons), most_alike)
        if not (_WHOLE % n_rows).any():
            return (_WHOLE // n_rows).astype(np.int16)[persons]
    shares, each = core.Shares(most_alike, bits, units is not None), keys()
    shares.count(persons, each, units)
    while shares.end_pass():
        shares.count(persons, each, units)
    return _shared(shares, persons, each, units, _all_open(int(persons.max(initial=-1)) + 1), bits)


def weights_alone(units: Numbers, bits: int) -> Weights:
    """The weights of rows each of which is a person's only one: their units, rounded."""
    shift = UNIT_BITS - bits
    whole = (units + (1 << shift >> 1)) >> shift
    return whole.astype(np.int16) if bits == WEIGHT_BITS else whole


def _all_open(n_people: int) -> NDArray[np.uint8]:
    """A bit for each person."""
    return np.full(-(-n_people // 8), 255, np.uint8)


def _shared(
    shares: core.Shares,
    persons: Numbers,
    keys: NDArray[np.uint64],
    units: Numbers | None,
    are_open: NDArray[np.uint8],
    bits: int,
) -> Weights:
    n = len(persons)
    weights: Weights = np.empty(n, np.int16) if bits == WEIGHT_BITS else np.empty(n, np.int64)
    shares.share(persons, keys, units, are_open, weights)
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
