"""Exact moments: integer sums over people in fixed point, the same bits for any batches, order, threads and machine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import even_slices, own_thread_count, run, thread_count
from dpgep.data.integer_sums import are_dense, filled_in, require_finite, sparse_on_grid
from dpgep.data.rows import (
    DIGIT_BITS,
    MOST_WEIGHTS,
    Batch,
    NotFiniteError,
    Rows,
    Sums,
    Weights,
    add_products,
    add_weighted,
    block_height,
    clipped_blocks,
    mark_groups,
    moment_blocks,
)
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout
from dpgep.models.preprocessing import ColumnMap, Preprocessing
from dpgep.sources.batches import Columns

# The finest grid of a release: all cost the same, and coarser ones are for budgets of mu below 1e-4.
DEFAULT_BITS = 20
BITS = range(4, DEFAULT_BITS + 1)
# Exact sums are kept below 2^62: room in int64 for noise, whose scale is at most 2^56.
_LIMB_BITS = 62
# Bits of the low limb where there are two, as in core.carry_triangle.
LOW_BITS = 40

# Additions that are worth a thread with sums of its own; those between two looks at whether to stop (some 0.2 s), for
# which a row counts as no fewer than the next; and the memory for such sums, of one thread and of all: where they are
# larger, threads share tiles of one.
_WORK_OF_A_SHARE = 1e8
_WORK_OF_A_PART = 4e9
_WORK_OF_A_ROW = 1000
_SHARE_BYTES, _SHARES_BYTES = 1 << 24, 1 << 28
# Rows for each column below which looking at all of them takes less time than folding (measured).
_FEW_ROWS = 2
# From here on a triangle is folded faster by several threads than by one.
_LARGE_DIMENSION = 500


@dataclass(frozen=True, eq=False)
class IntegerMoments:
    """Exact sums over people in units of 4^-bits: second moment (upper triangle), sums and counts per group."""

    second: NDArray[np.int64]  # (d, d), or by group (G, d, d)
    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    high: tuple[NDArray[np.int64], ...] | None  # multiples of 2^40 to be added, where int64 alone might overflow
    bits: int
    n: int  # people, each of whom has the weight 2^weight_bits
    weight_bits: int = 0

    def to_float(self) -> tuple[Matrix, Matrix, Matrix]:
        """(second, sums, counts) in units of rows in the unit ball. Rounds, so for released values only."""
        low = (self.second, self.sums, self.counts)
        high = self.high or (None, None, None)
        unit = -2 * self.bits - self.weight_bits
        second, sums, counts = (limbs_to_float(h, part, unit) for h, part in zip(high, low, strict=True))
        return second, sums, counts


class ExactSums(Sums):
    """Exact moments of ``n`` people, batch by batch, in the blocks of a layout and on the grid 2^-bits."""

    layout: MomentLayout
    bits: int
    n: int

    def _require_alike(self, other: ExactSums) -> None:
        if (self.layout, self.bits) != (other.layout, other.bits):
            raise ValueError("sums of different layouts or grids cannot be added")

    @abstractmethod
    def __init__(self, layout: MomentLayout, bits: int) -> None: ...

    @abstractmethod
    def limbs(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Upper triangles (low, high), a function of the sums alone; of one matrix, high is None if int64 is enough."""

    @classmethod
    @abstractmethod
    def of_limbs(
        cls, layout: MomentLayout, bits: int, n: int, low: NDArray[np.int64], high: NDArray[np.int64] | None
    ) -> ExactSums:
        """Sums over n people from what `limbs` returned."""

    @abstractmethod
    def require_possible(self) -> None:
        """Raise ValueError unless these may be sums over ``n`` people, as `limbs` returns them."""

    def copy(self) -> ExactSums:
        """The same sums, to be changed independently."""
        low, high = self.limbs()
        return self.of_limbs(self.layout, self.bits, self.n, low.copy(), None if high is None else high.copy())

    def moments(self, weight_bits: int = 0) -> IntegerMoments:
        """The sums, of people of the weight 2^``weight_bits``, in the blocks of a release; the second moment a view."""
        low, high = self.limbs()
        blocks, of_high = self.layout.blocks(low), None if high is None else self.layout.blocks(high)
        return IntegerMoments(*blocks, high=of_high, bits=self.bits, n=self.n >> weight_bits, weight_bits=weight_bits)

    def __reduce__(self) -> tuple[Any, ...]:
        """How to pickle them: by what `limbs` returns, without buffers."""
        return self.of_limbs, (self.layout, self.bits, self.n, *self.limbs())


class ExactMomentAccumulator(ExactSums):
    """The moment matrix of people, summed batch by batch with rows in fixed point.

    All entries are integers in units of 4^-bits: rows of norm at most 2^bits, groups marked by 2^bits. The products of
    blocks are summed in float64 by BLAS, exactly while there are fewer than 2^(53 - 2 bits) rows: every partial sum is
    an integer below 2^53, whatever the order. Then they are added in int64, with a second limb beyond 2^62. Kernels add
    to the int64 without detour where they are faster: of narrow rows, and products of few entries.
    """

    def __init__(self, layout: MomentLayout, bits: int) -> None:
        self.layout, self._dimension = layout, layout.dimension
        self.bits = bits
        self.n = 0
        self._limb_rows = 1 << (_LIMB_BITS - 2 * bits)
        self._exact_rows = min((1 << (53 - 2 * bits)) - 1, self._limb_rows)
        self._partial: Matrix | None = None
        self._total = self._zeros(np.int64)
        self._high: NDArray[np.int64] | None = None
        self._in_partial = self._in_low = 0  # people in the partial sums; in these and the low limb
        self._is_whole = True

    def add(self, batch: Batch) -> None:
        """Add the people of a batch, or none if their rows hold a NaN or an infinity (ValueError).

        After an interruption in between, every later use raises RuntimeError.
        """
        self._require_whole()
        n, is_narrow = batch.rows.n, not batch.rows.is_sparse and self._narrow(batch.rows) is not None
        if batch.weights is not None and not is_narrow:
            add_weighted(self, partial(type(self), self.layout, self.bits), batch)
        elif (weights := batch.weights) is not None and _are_many(weights):
            high = type(self)(self.layout, self.bits)
            high.add(replace(batch, others=0, weights=weights >> DIGIT_BITS))
            self.add(replace(batch, weights=weights & (1 << DIGIT_BITS) - 1))
            self.merge(high, 1 << DIGIT_BITS)
        elif batch.rows.is_sparse:
            self._add_sparse(batch)
        elif is_narrow or n > self._exact_rows or self._n_shares(n) > 1:
            self._add_sums_of(batch, is_narrow)
        else:
            self._add_at_once(batch, n)

    def add_mapped(self, batch: Batch, preprocessing: Preprocessing) -> bool:
        whole = self._mapped(batch.rows)
        if whole is None or self._dimension > min(core.narrow_dimension, batch.rows.n) or _are_many(batch.weights):
            return False
        self._require_whole()
        self._add_sums_of(batch, True, preprocessing.of_columns)
        return True

    def weighs(self, rows: Rows) -> bool:
        """Rows that the kernel of narrow ones reads as they lie are multiplied there."""
        return not rows.is_sparse and self._narrow(rows) is not None

    def merge(self, other: ExactMomentAccumulator, times: int = 1) -> None:
        self._require_alike(other)
        assert times < 1 << (_LIMB_BITS - LOW_BITS)
        low, high = other.limbs() if times == 1 else other.carried()
        self._require_whole()
        with self._changing():
            self._fold()
            if high is None:
                self._make_room(other.n)
            else:
                # a carried limb is below 2^40: int64 has room for 2^22 of them, or for one beside a full one
                self._carry()
                assert self._high is not None
                self._high += high if times == 1 else times * high
            self._total += low if times == 1 else times * low
            self._in_low += other._in_low
            if times > 1:
                self._carry()
            self.n += times * other.n

    def limbs(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        self._require_whole()
        self._fold()
        if self.n > self._limb_rows:
            self._carry()
        elif self._high is not None:
            with self._changing():
                self._total += self._high << LOW_BITS
                self._high, self._in_low = None, self.n
        return self._total, self._high

    def carried(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Both limbs, however few people there are, of which the lower is below 2^40 and not negative."""
        self._require_whole()
        with self._changing():
            self._carry()
        assert self._high is not None
        return self._total, self._high

    @classmethod
    def of_limbs(
        cls, layout: MomentLayout, bits: int, n: int, low: NDArray[np.int64], high: NDArray[np.int64] | None
    ) -> ExactMomentAccumulator:
        sums = cls(layout, bits)
        sums.n, sums._total, sums._high = n, low, high
        sums._in_low = n if high is None else 0
        return sums

    def require_possible(self) -> None:
        low, high, most = self._total, self._high, self.n << 2 * self.bits
        if (high is None) != (self.n <= self._limb_rows):
            raise ValueError(f"n = {self.n} people do not have the limbs of these sums")
        diagonal = np.diagonal(low).astype(object)
        limits = [(low, -most, most)]
        if high is not None:
            diagonal += np.diagonal(high).astype(object) * (1 << LOW_BITS)
            largest = (most >> LOW_BITS) + 1
            limits = [(low, 0, (1 << LOW_BITS) - 1), (high, -largest, largest)]
        is_within = all(least <= int(limb.min()) and int(limb.max()) <= largest for limb, least, largest in limits)
        squares, people = diagonal[: self.layout.n_features], diagonal[self.layout.n_features :]
        is_everybody = len(people) != 1 or people.sum() == most
        if not is_within or diagonal.min() < 0 or max(squares.sum(), people.sum()) > most or not is_everybody:
            raise ValueError(f"the sums are not those of n = {self.n} people")

    def _narrow(self, rows: Rows) -> NDArray[Any] | Columns | None:
        """Rows as the kernel of narrow rows reads them, None where BLAS is faster."""
        # the kernel looks at all sums anew in each call
        is_narrow = self._dimension <= min(core.narrow_dimension, rows.n)
        return rows.in_one_piece(rows.n, fixed_point=True) if is_narrow else None

    @staticmethod
    def _mapped(rows: Rows) -> NDArray[Any] | Columns | None:
        """Rows as the same kernel reads those that it maps."""
        found = rows.in_one_piece(rows.n, fixed_point=True)
        return None if isinstance(found, np.ndarray) and found.dtype == np.uint8 else found

    def _n_shares(self, n: int) -> int:
        """Number of threads that are to sum some of n people each: one where there is too little work or memory."""
        pairs = self._dimension**2
        n_worthwhile = int(n * pairs // _WORK_OF_A_SHARE)
        if n_worthwhile < 2:
            return 1
        n_threads = min(own_thread_count(), max(_SHARES_BYTES // (16 * pairs), 1))
        return n_threads if n_threads <= n_worthwhile and 16 * pairs <= _SHARE_BYTES else 1

    def _add_at_once(self, batch: Batch, n: int) -> None:
        """Add n people who fit the partial sums: all of them, or none.

        One block is converted before it is added. Of more, partial sums that hold nobody else can be dropped; where
        folding would take longer than that, rows are looked at first.
        """
        d = self._dimension
        is_block = n <= block_height(n, d)
        if not is_block and n < _FEW_ROWS * d:
            for _ in clipped_blocks(batch.rows, bits=self.bits):  # raises NotFiniteError
                pass
        elif not is_block:
            self._fold()
        try:
            with self._changing():
                self._add_part(batch, n)
                self.n += batch.others
        except NotFiniteError:
            if not self._in_partial:
                self._partial = None
            self._is_whole = is_block or not self._in_partial
            raise

    def _add_sums_of(self, batch: Batch, is_narrow: bool, mapped: ColumnMap | None = None) -> None:
        if self.n:
            self._fold()
            self._partial = None  # its memory serves the partial sums of the batch
            self.merge(self._sums_of(batch, is_narrow, mapped))
        else:
            vars(self).update(vars(self._sums_of(batch, is_narrow, mapped)))

    def _sums_of(self, batch: Batch, is_narrow: bool, mapped: ColumnMap | None) -> ExactMomentAccumulator:
        """The sums over these people alone: of parts of them, each thread's in sums of its own."""
        n, pairs = batch.rows.n, self._dimension**2
        n_shares = 1 if is_narrow else self._n_shares(n)  # that kernel has threads of its own
        most = self._limb_rows if is_narrow else self._exact_rows
        most = min(most, int(_WORK_OF_A_PART // max(_WORK_OF_A_ROW, pairs)) + 1)
        n_parts = n_shares * -(-n // (n_shares * most))
        shares: dict[int, ExactMomentAccumulator] = {}

        def add(people: slice) -> None:
            own = shares.get(get_ident()) or ExactMomentAccumulator(self.layout, self.bits)
            shares[get_ident()] = own
            part = batch.part(people)
            own._add_part(part, part.rows.n, 1 if n_shares > 1 else None, mapped)

        run([partial(add, people) for people in even_slices(n, n_parts)], n_shares)
        run([share._fold for share in shares.values()], n_shares)
        sums, *others = shares.values()
        for share in others:
            sums.merge(share)
        sums.n += batch.others
        return sums

    def _add_part(self, batch: Batch, n: int, n_threads: int | None = None, mapped: ColumnMap | None = None) -> None:
        """Add n people, who fit a limb, or the partial sums: some of them on an error. ``mapped``: by the kernel."""
        rows = self._narrow(batch.rows) if mapped is None else self._mapped(batch.rows)
        if rows is not None:
            self._add_narrow(rows, batch, mapped)
            return
        assert mapped is None
        self._add_blocks(moment_blocks(batch, self.layout.n_groups, self.bits, n_threads), n, n_threads)
        self.n += n

    def _add_narrow(self, rows: NDArray[Any] | Columns, batch: Batch, mapped: ColumnMap | None = None) -> None:
        """Add a batch of such rows, which fit a limb or, weighted, are carried by the kernel."""
        matrix, first = rows.raw_columns() if isinstance(rows, Columns) else (rows, 0)
        n, high = batch.rows.n, None
        if batch.weights is None:
            self._make_room(n)
        else:
            self._carry()
            n, high = batch.n - batch.others, self._high
        if not core.add_dense_moments(
            matrix, first, batch.rows.n, batch.groups, self.layout.n_groups, batch.rows.bound, self.bits, self._total,
            thread_count(), batch.weights, high, mapped,
        ):  # fmt: skip
            raise NotFiniteError
        self._in_low += n
        if high is not None:
            self._carry()
        self.n += n

    def _add_sparse(self, batch: Batch) -> None:
        """Add the batch's sparse rows where they are: a second matrix of sums may be too large."""
        require_finite(batch.rows)
        with self._changing():
            for people, part in sparse_on_grid(batch.rows, self.bits, self._limb_rows):
                (n, d), groups = part.shape, None if batch.groups is None else batch.groups[people]
                if are_dense(part):
                    for within, block in filled_in(part, self.layout.n_groups, self._exact_rows):
                        mark_groups(block[:, d:], groups, within, float(1 << self.bits))
                        self._add_blocks([(within, block)], len(block))
                    continue
                self._make_room(n)  # the kernel does not look at overflows
                entries = part.data, part.indices, part.indptr, d
                core.add_csr_moments(*entries, groups, 1 << self.bits, self._total, thread_count())
                self._in_low += n
            self.n += batch.n

    def _add_blocks(self, blocks: Iterable[tuple[slice, Matrix]], n: int, n_threads: int | None = None) -> None:
        """Add the products of blocks of n rows to the partial sums."""
        assert n <= self._exact_rows
        if self._in_partial + n > self._exact_rows:
            self._fold()
        self._make_room(n)
        if self._partial is None:
            self._partial = self._zeros(np.float64)
        add_products(blocks, self._partial, exact=True, n_threads=n_threads)
        self._in_partial += n
        self._in_low += n

    def _make_room(self, n: int) -> None:
        """See to it that the sums over n more people fit the low limb."""
        if self._in_low + n > self._limb_rows:
            self._carry()

    def _fold(self) -> None:
        """Add the partial sums to the low limb."""
        if self._in_partial:
            assert self._partial is not None
            n_threads = thread_count() if self._dimension >= _LARGE_DIMENSION else 1
            core.fold_triangle(self._partial, self._total, n_threads)
            self._in_partial = 0

    def _carry(self) -> None:
        self._fold()
        self._high = self._zeros(np.int64) if self._high is None else self._high
        core.carry_triangle(self._total, self._high)
        self._in_low = 0  # what is left is below 2^40

    def _zeros(self, dtype: type) -> NDArray[Any]:
        return np.zeros((self._dimension,) * 2, dtype=dtype)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Sums are of no use if the block does not come to its end."""
        self._is_whole = False
        yield
        self._is_whole = True

    def _require_whole(self) -> None:
        if not self._is_whole:
            what = "an update of these moments was interrupted, so they include an unknown part of a batch"
            raise RuntimeError(f"{what}: return to the last checkpoint, or start again")


class ExactMomentsByGroup(ExactSums):
    """As `ExactMomentAccumulator`, a moment matrix of [x; 1] for each group. ``n`` counts who is in none as well."""

    def __init__(self, layout: MomentLayout, bits: int) -> None:
        self.layout, self.bits, self.n = layout, bits, 0
        self._groups = [ExactMomentAccumulator(layout.of_one_group, bits) for _ in range(layout.n_groups)]

    def add(self, batch: Batch) -> None:
        new = type(self)(self.layout, self.bits)
        for sums, people in zip(new._groups, batch.of_groups(self.layout.n_groups), strict=True):
            sums.add(people)
        new.n = batch.n
        if self.n:
            self.merge(new)
        else:
            vars(self).update(vars(new))

    def merge(self, other: ExactMomentsByGroup, times: int = 1) -> None:
        self._require_alike(other)
        groups = [sums.copy() for sums in self._groups]  # an interrupt leaves those that there were
        for sums, more in zip(groups, other._groups, strict=True):
            sums.merge(more, times)
        vars(self).update(_groups=groups, n=self.n + times * other.n)

    def limbs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        low, high = zip(*(sums.carried() for sums in self._groups), strict=True)
        return np.stack(low), np.stack(high)

    @classmethod
    def of_limbs(
        cls, layout: MomentLayout, bits: int, n: int, low: NDArray[np.int64], high: NDArray[np.int64] | None
    ) -> ExactMomentsByGroup:
        if high is None:
            raise ValueError("sums by group have two limbs")
        sums = cls(layout, bits)
        sums._groups = []
        for part, above in zip(low, high, strict=True):
            people = (int(above[-1, -1]) << LOW_BITS) + int(part[-1, -1]) >> 2 * bits
            sums._groups.append(ExactMomentAccumulator.of_limbs(layout.of_one_group, bits, people, part, above))
        sums.n = n
        return sums

    def require_possible(self) -> None:
        for sums in self._groups:
            sums.limbs()  # with as many limbs as the sums of n people have
            sums.require_possible()
        if (listed := sum(sums.n for sums in self._groups)) > self.n:
            raise ValueError(f"the groups hold {listed} of n = {self.n} people")


def sums_of_nobody(layout: MomentLayout, bits: int) -> ExactSums:
    """The exact sums of a layout, before any batch is added."""
    return ExactMomentsByGroup(layout, bits) if layout.by_group else ExactMomentAccumulator(layout, bits)


def _are_many(weights: Weights | None) -> bool:
    """Whether the kernel, which adds its sums up for each weight, had better have their digits, which are fewer."""
    return weights is not None and bool(np.count_nonzero(np.bincount(weights)) > MOST_WEIGHTS)


def carry(high: NDArray[np.int64], low: NDArray[np.int64]) -> None:
    """Bring limbs of high 2^40 + low to their one form, in which 0 <= low < 2^40."""
    high += low >> LOW_BITS
    low &= (1 << LOW_BITS) - 1


def limbs_to_float(high: NDArray[np.int64] | None, low: NDArray[np.int64], exponent: int) -> Matrix:
    """(high 2^40 + low) 2^exponent, rounded; a function of that sum alone, however it is split into the limbs."""
    if high is None:
        value = low.astype(np.float64)
    else:
        carry(high, low)
        value = high.astype(np.float64)
        np.ldexp(value, LOW_BITS, out=value)
        value += low
    return np.asarray(np.ldexp(value, exponent, out=value))
