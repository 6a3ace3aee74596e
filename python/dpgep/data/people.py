"""How much rows count: whose each is (``person=``), up to how many of a person count alike (``rows=``), ``weights=``.

A row of weight w, one of m rows of its person, counts w/W/max(m, M) of a person, W the largest weight and M the rows
that count alike: all rows of a person add up to at most one, in whole units of 2^-WEIGHT_BITS, so that no answer moves
by more than with one row (docs/mathematics.md, section 12; proofs/Hull.v). Weights follow from a person's rows alone,
in whatever order, and sums are exact: the same bits in memory, in a stream, and in parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_count, require_positive
from dpgep._dispatch import core
from dpgep._threads import run, slices, thread_count
from dpgep.data.checksum import PassChecksum, PassComparison
from dpgep.data.dataset import ONE_ROW, Dataset, People, kept_rows
from dpgep.data.ids import (
    IDS,
    WEIGHTS,
    Digests,
    Identities,
    Numbering,
    Numbers,
    digests,
    name_of,
    numbered,
    numbered_digests,
    split_off,
)
from dpgep.data.inputs import as_vector
from dpgep.data.rows import NO_GROUP, Batch, Rows, S, Weights, add_weighted, block_height, joined_views
from dpgep.models.model import PublicFacts
from dpgep.sources import Scan, Selection

# Public: rows of one person differ in their weights by at most 2^-12 of the person's. The finest grid of most releases
# has 18 bits or more beside it, and sums over 2^20 people fit 64 bits in every stage.
WEIGHT_BITS = 12
_WHOLE = 1 << WEIGHT_BITS

# The rows of people, and the code of each one's group, `NO_GROUP` for none; None where there are no groups.
Coded = tuple[Rows, NDArray[np.intp] | None]


# Weights are whole numbers of these units of the largest one: what sums in floating point can tell apart.
UNIT_BITS = 40
# More rows that count alike than this would have a weight of less than one whole unit of a release.
_MOST_ROWS = 1 << 12


NO_PUBLIC_N = "public_n is a number of people: sums over weighted people are divided by their total weight"


@dataclass(frozen=True, eq=False)
class Weighting:
    """What users pass as ``person``, ``rows``, ``weights`` and ``largest_weight``; checked, but for what rows hold."""

    person: Any = None
    rows: int | None = None
    weights: Any = None
    largest_weight: float | None = None
    name: str | None = None  # what reports call the ids, once columns were split off

    def __post_init__(self) -> None:
        if self.rows is not None:
            if self.person is None:
                raise ValueError("rows says how many rows of a person count alike: give person, whose each row is")
            require_count("rows", self.rows, largest=_MOST_ROWS)
        if self.weights is None and self.largest_weight is not None:
            raise ValueError("largest_weight bounds weights: give these as well")
        if self.weights is not None:
            if self.largest_weight is None:
                what = "which is public and must not follow from the data: larger ones are cut off at it"
                raise ValueError(f"weights need largest_weight, {what}")
            require_positive("largest_weight", self.largest_weight)

    @property
    def most_alike(self) -> int | None:
        """Up to how many rows of a person count alike; None where the rows of each person add up to one exactly."""
        return None if self.weights is None and self.rows is None else self.rows or 1

    @property
    def finest_bits(self) -> int:
        """Of the finest units of weights: equal shares have none that are finer."""
        return WEIGHT_BITS if self.most_alike is None else UNIT_BITS

    def split_off(self, views: Sequence[Any]) -> tuple[tuple[Any, ...], Weighting]:
        """The data without columns of ids and of weights, and these columns in place of their names."""
        kept, person = split_off(views, self.person, IDS)
        kept, weights = split_off(kept, self.weights, WEIGHTS)
        return kept, replace(self, person=person, weights=weights, name=name_of(self.person))

    @property
    def columns(self) -> tuple[Any, ...]:
        """The ids and the weights, as far as there are any."""
        return tuple(each for each in (self.person, self.weights) if each is not None)

    def bare(self) -> Weighting:
        """The same without these columns, of which it knows whether they are there: for where rows are read."""
        person, weights = (None if each is None else True for each in (self.person, self.weights))
        return replace(self, person=person, weights=weights)

    def require_of(self, source: Scan) -> None:
        """Raise ValueError for columns of another source."""
        for column, given in ((IDS, self.person), (WEIGHTS, self.weights)):
            if given is not None and getattr(given, "scan", None) is not source:
                raise ValueError(f"{column.name} must come from the source of the rows, to be read together with them")

    def units(self, weights: Any, n_rows: int) -> Numbers | None:
        """(n,), weights in units of 2^-UNIT_BITS of the largest, to which they are cut, from 0 on; None without."""
        if self.largest_weight is None:
            return None
        values = as_vector(weights, "weights", n_rows)
        if np.isnan(values).any():
            raise ValueError("weights has missing values: drop these rows, or give them the weight 0")
        with np.errstate(over="ignore"):
            parts = np.clip(values / self.largest_weight, 0.0, 1.0)
        return np.asarray(np.rint(np.ldexp(parts, UNIT_BITS)).astype(np.int64))


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
        self._coded, self._persons, self.finest_bits = coded, persons, weighting.finest_bits
        self._weights = partial(row_weights, persons, keys, units, weighting.most_alike or 1)
        self._weigh(WEIGHT_BITS)
        n_people = rows.n if persons is None else int(np.count_nonzero(np.bincount(persons)))
        self.people = People(enough_people(n_people, fewest), identities=identities)
        self.bound, self.n_features = rows.bound, rows.d

    def _weigh(self, bits: int) -> None:
        self.weight_bits, self._batch = bits, Batch.of_codes(*self._coded, self._weights(bits))

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        self.people.passes += 1
        total = make()
        add_weighted(total, make, self._batch)
        return total

    def in_memory(self, purpose: str, *, by_person: bool = False) -> Batch:
        if not by_person or self.finest_bits != WEIGHT_BITS:
            raise ValueError(ONE_ROW)
        assert self._persons is not None
        return Batch(self._coded[0], weights=self._weights(), persons=self._persons)


class StreamedDataset(Dataset):
    """Rows that a `dpgep.sources.Scan` reads, one batch after the other, as often as they are needed.

    ``to_coded`` makes rows, and the code of each one's group, of the arrays of the selections: ``n_features`` columns
    in all, clipped to ``bound``. Without ``weighting`` each row is a person.

    Of people with several rows, a pass before all others counts the rows of each. It keeps some 18 bytes a person (16
    more with weights, and 10 with ids of text), and nothing of a row: whose each is and what it counts is looked up in
    every pass. (Somebody's more than 64 rows take a second pass, several weights of a person one more.)
    """

    def __init__(
        self,
        selections: tuple[Selection, ...],
        to_coded: Callable[..., Coded],
        n_features: int,
        bound: float,
        fewest: int,
        weighting: Weighting | None = None,
        identities: Identities | None = None,
    ) -> None:
        self._selections, self._to_coded, self._fewest = selections, to_coded, fewest
        self._weighting = weighting or Weighting()
        self._numbering = Numbering()
        self._shares: core.Shares | None = None
        self._comparison = PassComparison("a scanned function must yield the same rows at every call")
        n = selections[0].scan.n_rows if weighting is None else None
        if weighting is not None:
            self.weight_bits, self.finest_bits = WEIGHT_BITS, weighting.finest_bits
        self.bound, self.n_features, self.people = bound, n_features, People(n, identities=identities)
        self.read_once = not selections[0].scan.repeatable

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        n_rows, total, are_open = 0, make(), _all_open(0)
        if self._weighting.person is not None:
            self._shares = self._shares or self._counted()
            are_open = _all_open(self._numbering.n)
        self.people.passes += 1
        for coded, persons, units in self._pass(alone=alone and not self.weight_bits):
            n_rows += coded[0].n
            weights: Weights | None = None
            if persons is not None:
                assert self._shares is not None
                weights = _shared(self._shares, persons, row_keys(*coded), units, are_open, self.weight_bits)
            elif units is not None:
                weights = weights_alone(units, self.weight_bits)
            add_weighted(total, make, Batch.of_codes(*coded, weights))
        if self._weighting.person is None:
            self.people.n = enough_people(n_rows, self._fewest)
        return total

    def _weigh(self, bits: int) -> None:
        self.weight_bits, self._shares = bits, None

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

    def _pass(self, *, alone: bool = False, is_open: bool = False) -> Iterator[tuple[Coded, Any, Any]]:
        """The rows of each batch, whose they are, and their units. Only in a pass that is open may people be new."""
        key = None if self.read_once else self._comparison.key(alone=alone)
        checksum, n_views = None if key is None else PassChecksum(key), len(self._selections)
        read, store = self._selections[0].scan.read, None if key is None else kept_rows.get()
        for arrays in read(*self._selections, *self._weighting.columns, apart=True, store=store):
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
        what = 'they are read from a source in batches: load them into an array first, or use method="release"'
        raise ValueError(f"{purpose} needs all rows in memory, but {what}")


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
        raise ValueError(f"there must be at least {fewest} people, the data have {n}")
    return n


def row_weights(
    persons: Numbers | None,
    keys: Callable[[], NDArray[np.uint64]],
    units: Numbers | None = None,
    most_alike: int = 1,
    bits: int = WEIGHT_BITS,
) -> Weights:
    """(n,), the weight of each row in units of 2^-bits of a person; those of a person add up to at most one.

    ``persons`` are None where each row is one. ``keys`` (rows that are alike have the same) are asked for only where
    somebody's weight is not shared evenly.
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

    blocks = slices(rows.n, block_height(max(rows.n, 1), rows.d))
    run([partial(fill, people) for people in blocks], thread_count())
    return keys


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64: a bijection whose every bit depends on all."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    return words


class Identified(NamedTuple):
    """Rows with the code of each one's group, the digest of its person, and its weight."""

    rows: Rows
    groups: NDArray[np.intp] | None  # None: there are no groups
    whose: Digests  # (n, 2); (n, 0) without ids
    units: Numbers  # (n, 1); (n, 0) without weights

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
        return Batch.of_codes(*coded, row_weights(persons, partial(row_keys, *coded), units, most_alike or 1, bits))


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


def unordered_checksum(people: Identified | None, key: bytes) -> bytes:
    """A keyed checksum of rows with their groups, persons and weights, in any order: that of their hashes, sorted.

    A row is some words of 32 bits, and has two sums of them, each word times a random one of 64 bits, modulo 2^64. Two
    rows have the same sums with a probability of at most 2^-66.
    """
    if people is None:
        return b""
    rows, groups, whose, units = people
    factors = np.random.Philox(key=int.from_bytes(key, "little")).random_raw((2 * rows.d + 7, 2))
    codes = np.zeros(rows.n, np.int64) if groups is None else groups - NO_GROUP
    hashes = np.empty((rows.n, 2), np.uint64)
    for part in slices(rows.n, block_height(max(rows.n, 1), rows.d)):
        values = np.ascontiguousarray(joined_views(rows, part)).view(np.uint32)
        beside = whose[part].view(np.uint32), codes[part, None], units[part].view(np.uint32)
        words = np.hstack([values, *beside], dtype=np.uint64, casting="unsafe")
        hashes[part] = words @ factors[: words.shape[1]]
    return hashlib.blake2b(hashes[np.lexsort(hashes.T)].tobytes()).digest()
