"""Several rows to a person: ids become the weight of each row, and every sum counts each person once.

A person's weight is 2^WEIGHT_BITS, shared by their rows as evenly as whole numbers allow: of m rows each has
floor(2^WEIGHT_BITS / m), and 2^WEIGHT_BITS mod m of them one more. Who has more than 2^WEIGHT_BITS rows counts by that
many of them. Which rows have one more depends on the person's rows alone, not on their order, and favours none: they
are taken in the order of a hash of their contents. All weights of a person add up to 2^WEIGHT_BITS exactly, so that
what a person adds to a sum, over 2^WEIGHT_BITS, is a mean of what single rows would add: within their convex hull.
There a person moves no answer by more than one row would (docs/mathematics.md, section 12).

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
        self._coded, self._weighting = coded, weighting
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
        # weights anew, too: whoever changes ids, those of a person add up to one
        rows, persons = self._coded[0], self._weighting.persons(self._coded[0].n)
        return Batch(rows, weights=row_weights(persons, lambda: row_keys(*self._coded)), persons=persons)


class StreamedPeopleDataset(Dataset):
    """The same of rows that a source reads batch by batch: a pass before all others counts the rows of each person.

    What is kept of it are two bytes a row, the weights; while it lasts, some 65 bytes a row, the ids of
    all people included, where they have five rows.
    The weights are those of rows in their order, so every pass is compared with the first.
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
        self._comparison = PassComparison("a scanned function must yield the same rows at every call")
        self.bound, self.n_features, self.people = bound, n_features, People(None, identities=identities)

    def _summed(self, make: Callable[[], S], alone: bool) -> S:
        weights = self._counted()
        total, start = make(), 0
        for coded, _, _ in self._pass():
            of_batch = weights[start : start + coded[0].n]
            if len(of_batch) < coded[0].n:
                raise DataChangedError("this pass read more rows than the one before: data must not change")
            add_weighted(total, make, weighted(coded, of_batch))
            start += coded[0].n
        return total

    def in_finest_weights(self) -> StreamedPeopleDataset:
        if self._weighting.most_alike is None:
            return self
        finer = copy(self)
        finer.weight_bits, finer._weights = UNIT_BITS, None
        return finer

    def _counted(self) -> Weights:
        """The weight of each row, in the order of the source."""
        if self._weights is None:
            weighting, numbering, n = self._weighting, Numbering(), 0
            persons, units, keys = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
            for coded, ids, weights in self._pass():
                n_rows = coded[0].n
                persons.append(np.arange(n, n + n_rows) if ids is None else numbering.numbers(ids, n_rows))
                if self.people.identities is not None:
                    self.people.identities.add_rows(digests(ids, n_rows))
                if weighting.most_alike is not None:
                    units.append(weighting.units(weights, n_rows))
                keys.append(row_keys(*coded))
                n += n_rows
            parts = _joined(persons), _joined(units), weighting.most_alike, lambda: _joined(keys)
            self._weights = weights_of(*parts, self.weight_bits)
            self.people.n = enough_people(n if weighting.person is None else numbering.n, self._fewest)
        return self._weights

    def _pass(self) -> Iterator[tuple[Coded, Any, Any]]:
        """The rows of each batch and, before they have weights, its ids and weights; None where there are none."""
        self.people.passes += 1
        key = self._comparison.key(alone=False)
        assert key is not None
        checksum, n_views = PassChecksum(key), len(self._selections)
        beside = (self._weighting.person, self._weighting.weights) if self._weights is None else (None, None)
        selections = *self._selections, *(each for each in beside if each is not None)
        for arrays in self._selections[0].scan.read(*selections, apart=True):
            coded, others = self._to_coded(*arrays[:n_views]), iter(arrays[n_views:])
            ids, weights = (None if each is None else next(others) for each in beside)
            checksum.add(*coded)
            yield coded, ids, weights
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

    ``keys`` are asked for only where somebody's weight is not shared evenly; rows that are alike have the same. Of
    several with the same key the first weigh more: who else there is changes nothing.
    """
    n_rows = np.bincount(persons)
    least, rest = (part.astype(np.int16) for part in np.divmod(_WHOLE, np.maximum(n_rows, 1)))
    weights = least[persons]
    if rest.any():
        core.add_rest(persons, keys(), rest, weights)
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
