"""Exact moments: integer sums over people in fixed point, the same bits for any batches, order, threads and machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._dispatch import core
from dpgep._threads import can_limit_blas, run, thread_count, use_threads
from dpgep.data.block_products import add_products
from dpgep.data.dataset import Batch
from dpgep.data.float_moments import mark_groups
from dpgep.data.rows import NotFiniteError
from dpgep.data.sparse_rows import GridRows, SparseRows
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentLayout
from dpgep.sources.columns import Columns

# Exact sums are kept below 2^62: room in int64 for noise, whose scale is at most 2^56.
_LIMB_BITS = 62
# Bits of the low limb where there are two, as in core.carry_triangle.
_LOW_BITS = 40

# Additions that are worth a thread with sums of its own; those between two looks at whether to stop (some 0.2 s), for
# which a row counts as no fewer than the next; and the memory for such sums on all threads: where they are larger,
# threads share tiles of one.
_WORK_OF_A_SHARE = 1e8
_WORK_OF_A_PART = 4e9
_WORK_OF_A_ROW = 1000
_SHARES_BYTES = 1 << 25
# From here on a triangle is folded faster by several threads than by one.
_LARGE_DIMENSION = 500


@dataclass(frozen=True, eq=False)
class IntegerMoments:
    """Exact sums over people in units of 4^-bits: second moment (upper triangle), sums and counts per group.

    ``high`` holds multiples of 2^40 to be added to the three, where int64 alone might overflow. ``n`` is the number of
    people.
    """

    second: NDArray[np.int64]
    sums: NDArray[np.int64]
    counts: NDArray[np.int64]
    high: tuple[NDArray[np.int64], ...] | None
    bits: int
    n: int

    def to_float(self) -> tuple[Matrix, Matrix, Matrix]:
        """(second, sums, counts) in units of rows in the unit ball. Rounds, so for released values only."""
        low = (self.second, self.sums, self.counts)
        high = self.high or (None, None, None)
        second, sums, counts = (_limbs_to_float(h, part, -2 * self.bits) for h, part in zip(high, low, strict=True))
        return second, sums, counts


class ExactMomentAccumulator:
    """The moment matrix of people, summed batch by batch with rows in fixed point.

    All entries are integers in units of 4^-bits: rows of norm at most 2^bits, groups marked by 2^bits. The products of
    blocks are summed in float64, by BLAS or for narrow rows by a kernel, exactly while there are fewer than
    2^(53 - 2 bits) rows: every partial sum is an integer below 2^53, whatever the order. Then they are added in int64,
    with a second limb beyond 2^62.
    """

    def __init__(self, layout: MomentLayout, bits: int) -> None:
        self.layout = layout
        self.bits = bits
        self.n = 0
        self._limb_rows = 1 << (_LIMB_BITS - 2 * bits)
        self._exact_rows = min((1 << (53 - 2 * bits)) - 1, self._limb_rows)
        self._partial: Matrix | None = None
        self._total = self._zeros(np.int64)
        self._high: NDArray[np.int64] | None = None
        self._in_partial = self._in_total = 0
        self._is_whole = True

    def add(self, batch: Batch) -> None:
        """Add the people of a batch: all of them, or none if their rows hold a NaN or an infinity (ValueError).

        An interruption in between leaves sums that nothing can be done with: every later use raises RuntimeError.
        """
        self._require_whole()
        self._add_rows(batch)
        self.n += batch.others

    def _add_rows(self, batch: Batch) -> None:
        n = batch.rows.n
        if batch.rows.is_sparse:
            self._add_sparse(SparseRows(batch.rows), batch.groups)
            return
        # the kernel looks at all sums anew in each call
        if self.layout.dimension <= min(core.narrow_dimension, n):
            people = batch.rows.in_one_piece(n, fixed_point=True)
            if people is not None:
                self._add_narrow(people, batch)
                return
        n_shares = self._n_shares(n)
        if n_shares > 1:
            self._add_shares(batch, n_shares)
            return
        self._is_whole = False
        added = 0
        for block in self._blocks(batch):
            if block is None:
                self._take_back(batch, added)
                self._is_whole = True
                raise NotFiniteError
            self._add_block(block, 1.0)
            added += len(block)
        self.n += n
        self._is_whole = True

    def merge(self, other: ExactMomentAccumulator) -> None:
        """Add the sums over other people, of the same layout and grid."""
        if (self.layout, self.bits) != (other.layout, other.bits):
            raise ValueError("sums of different layouts or grids cannot be added")
        theirs, their_high = other.limbs()
        self._require_whole()
        self._is_whole = False
        self._fold()
        if their_high is not None or self._in_total + other.n > self._limb_rows:
            self._carry()
            theirs, their_high = theirs.copy(), self._zeros(np.int64) if their_high is None else their_high.copy()
            core.carry_triangle(theirs, their_high)
            assert self._high is not None
            self._high += their_high
            self._in_total = 0  # two carried sums are below 2^41: int64 has room for that beside a full limb
        else:
            self._in_total += other.n
        self._total += theirs
        self.n += other.n
        self._is_whole = True

    def limbs(self) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Upper triangles (low, high) of the sums, high None while int64 is enough: a function of the sums alone."""
        self._require_whole()
        self._fold()
        if self.n > self._limb_rows:
            self._carry()
        elif self._high is not None:
            self._is_whole = False
            self._total += self._high << _LOW_BITS
            self._high = None
            self._in_total = self.n
            self._is_whole = True
        return self._total, self._high

    @classmethod
    def of_limbs(
        cls, layout: MomentLayout, bits: int, n: int, low: NDArray[np.int64], high: NDArray[np.int64] | None
    ) -> ExactMomentAccumulator:
        """Sums over n people from what `limbs` returned."""
        sums = cls(layout, bits)
        sums.n, sums._total, sums._high = n, low, high
        sums._in_total = n if high is None else 0
        return sums

    def moments(self) -> IntegerMoments:
        """The sums in the blocks that a release contains; the second moment is a view of these sums."""
        low, high = self.limbs()
        return IntegerMoments(
            *self.layout.blocks(low),
            high=None if high is None else self.layout.blocks(high),
            bits=self.bits,
            n=self.n,
        )

    def copy(self) -> ExactMomentAccumulator:
        low, high = self.limbs()
        return self.of_limbs(self.layout, self.bits, self.n, low.copy(), None if high is None else high.copy())

    def _n_shares(self, n: int) -> int:
        """Number of threads that are to sum some of n people each: one where there is too little work or memory."""
        pairs, n_threads = self.layout.dimension**2, thread_count() if can_limit_blas() else 1
        worthwhile = n * pairs >= n_threads * _WORK_OF_A_SHARE and n_threads * pairs * 16 <= _SHARES_BYTES
        return n_threads if worthwhile else 1

    def _add_narrow(self, people: NDArray[Any] | Columns, batch: Batch) -> None:
        """Sum parts of the people by the kernel that needs no BLAS, and add these up; all of the batch, or none."""
        sums = ExactMomentAccumulator(self.layout, self.bits)
        height = min(int(_WORK_OF_A_PART // max(_WORK_OF_A_ROW, self.layout.dimension**2)) + 1, self._limb_rows)
        n = batch.rows.n
        for start in range(0, n, height):
            sums._add_part(people, batch, slice(start, min(start + height, n)))
        self.merge(sums)

    def _add_part(self, people: NDArray[Any] | Columns, batch: Batch, part: slice) -> None:
        n = part.stop - part.start
        if self._in_total + n > self._limb_rows:
            self._carry()
        matrix, first = people[part].raw_columns() if isinstance(people, Columns) else (people, part.start)
        groups = None if batch.groups is None else batch.groups[part]
        if not core.add_dense_moments(
            matrix, first, n, groups, self.layout.n_groups, batch.rows.bound, self.bits, self._total,
            thread_count(),
        ):  # fmt: skip
            raise NotFiniteError
        self._in_total += n
        self.n += n

    def _add_shares(self, batch: Batch, n_threads: int) -> None:
        """Sum parts of the people, each thread in sums of its own, and add these up; all of the batch, or none."""
        shares: dict[int, ExactMomentAccumulator] = {}
        n = batch.rows.n
        height = min(int(_WORK_OF_A_PART // self.layout.dimension**2) + 1, -(-n // n_threads))
        parts = [slice(start, min(start + height, n)) for start in range(0, n, height)]

        def add(part: slice) -> None:
            sums = shares.get(get_ident()) or shares.setdefault(
                get_ident(), ExactMomentAccumulator(self.layout, self.bits)
            )
            with use_threads(1):
                sums.add(batch.part(part))

        run([partial(add, part) for part in parts], n_threads)
        first, *others = shares.values()
        for share in others:
            first.merge(share)
        self.merge(first)

    def _add_sparse(self, rows: SparseRows, groups: NDArray[np.intp] | None) -> None:
        rows.require_finite()
        self._is_whole = False
        for part in rows.on_grid(self.bits, self._limb_rows):
            its_groups = None if groups is None else groups[part.rows]
            if part.is_dense:
                for within, block in part.blocks(self.layout.n_groups, self._exact_rows):
                    mark_groups(block[:, self.layout.n_features :], its_groups, within, float(1 << self.bits))
                    self._add_block(block, 1.0)
            else:
                self._add_products_of_entries(part, its_groups)
        self.n += rows.n
        self._is_whole = True

    def _add_products_of_entries(self, part: GridRows, groups: NDArray[np.intp] | None) -> None:
        assert part.n <= self._limb_rows  # the kernel does not look at overflows
        self._fold()
        if self._in_total + part.n > self._limb_rows:
            self._carry()
        core.add_csr_moments(
            part.values, part.indices, part.indptr, part.d, groups, 1 << self.bits, self._total, thread_count()
        )
        self._in_total += part.n

    def __reduce__(self) -> tuple[Any, ...]:
        """How to pickle them: by what `limbs` returns, without buffers."""
        return self.of_limbs, (self.layout, self.bits, self.n, *self.limbs())

    def _blocks(self, batch: Batch) -> Iterator[Matrix | None]:
        """Blocks of rows in fixed point with their groups marked; None, the last, for rows that are not finite."""
        mark = float(1 << self.bits)
        try:
            for rows, block in batch.rows.clipped_blocks(self.layout.n_groups, self.bits, self._exact_rows):
                mark_groups(block[:, self.layout.n_features :], batch.groups, rows, mark)
                yield block
        except NotFiniteError:
            yield None

    def _take_back(self, batch: Batch, n: int) -> None:
        """Subtract the first n rows of a batch: exactly what was added."""
        for block in self._blocks(batch):
            if n == 0:
                return
            assert block is not None
            self._add_block(block, -1.0)
            n -= len(block)

    def _add_block(self, block: Matrix, sign: float) -> None:
        if self._in_partial + len(block) > self._exact_rows:
            self._fold()
        if self._in_total + self._exact_rows > self._limb_rows:
            self._carry()
        if self._partial is None:
            self._partial = self._zeros(np.float64)
        add_products(block, self._partial, sign, exact=True)
        self._in_partial += len(block)

    def _fold(self) -> None:
        if self._in_partial:
            assert self._partial is not None
            n_threads = thread_count() if self.layout.dimension >= _LARGE_DIMENSION else 1
            core.fold_triangle(self._partial, self._total, n_threads)
            self._in_total, self._in_partial = self._in_total + self._in_partial, 0

    def _carry(self) -> None:
        self._high = self._zeros(np.int64) if self._high is None else self._high
        core.carry_triangle(self._total, self._high)
        self._in_total = 0  # what is left is below 2^40

    def _zeros(self, dtype: type) -> NDArray[Any]:
        return np.zeros((self.layout.dimension,) * 2, dtype=dtype)

    def _require_whole(self) -> None:
        if not self._is_whole:
            raise RuntimeError(
                "an update of these moments was interrupted, so that they hold an unknown part of a batch: go back to "
                "the last checkpoint, or begin anew"
            )


def _limbs_to_float(high: NDArray[np.int64] | None, low: NDArray[np.int64], exponent: int) -> Matrix:
    """(high 2^40 + low) 2^exponent, rounded; a function of that sum alone, however it is split into the limbs."""
    if high is None:
        value = low.astype(np.float64)
    else:
        # 0 <= low < 2^40 makes the split unique: noise was added to the low limb only
        high += low >> _LOW_BITS
        low &= (1 << _LOW_BITS) - 1
        value = high.astype(np.float64)
        np.ldexp(value, _LOW_BITS, out=value)
        value += low
    return np.asarray(np.ldexp(value, exponent, out=value))
