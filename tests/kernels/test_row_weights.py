"""Hashes of rows, and what each has of a person's weight, by the kernels and plainly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from variants import kernels

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KERNELS = kernels()
WORD = st.integers(0, 2**64 - 1)
FACTORS = np.random.default_rng(0).integers(0, 2**64, 140, dtype=np.uint64)


@given(hnp.arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(0, 11)), elements=st.floats(width=64)))
def test_hashes_of_any_numbers(rows: Any) -> None:
    factors = FACTORS[: rows.shape[1] + 1]
    for kernel in KERNELS.values():
        keys = np.zeros(len(rows), np.uint64)
        kernel.hash_rows(rows, factors, None, keys)
        assert keys.tolist() == reference.hash_rows(rows, factors.tolist(), None)


@pytest.mark.parametrize(("n", "d"), [(3, 1), (3000, 7), (40, 130)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_hashes_of_rows_and_groups(n: int, d: int, dtype: str) -> None:
    rng = np.random.default_rng([n, d])
    wide = rng.standard_normal((n, d + 2)).astype(dtype)
    wide[rng.random(wide.shape) < 0.1] = -0.0
    rows, groups, factors = wide[:, 1 : d + 1], rng.integers(-1, 3, n), FACTORS[: d + 1]
    groups[0] = 2**63 - 1  # no group, but no reason to leave the range of integers
    expected = reference.hash_rows(rows, factors.tolist(), groups.tolist())
    for kernel in KERNELS.values():
        for n_threads in (1, 3):
            keys = np.zeros(n, np.uint64)
            kernel.hash_rows(rows, factors, groups, keys, n_threads)
            assert keys.tolist() == expected


def shares_of(kernel: Any, persons: Any, keys: Any, cut: int, units: Any = None, alike: int = 1, bits: int = 12) -> Any:
    """In two batches, cut at this row, as in a stream."""
    parts = slice(cut), slice(cut, None)
    counted, n_passes = kernel.Shares(alike, bits, units is not None), 1
    shares = np.full(len(persons), -1, np.int16 if bits == 12 else np.int64)
    unit = [None if units is None else units[part] for part in parts]
    for part, its in zip(parts, unit, strict=True):
        counted.count(persons[part], keys[part], its)
    while counted.end_pass():
        n_passes += 1
        for part, its in zip(parts, unit, strict=True):
            counted.count(persons[part], keys[part], its)
    most = np.bincount(persons).max(initial=0)
    assert n_passes == 1 + (units is not None and most > 1) + (most > 2 ** (bits - 6))
    are_open = np.full(persons.max(initial=-1) // 8 + 1, 255, np.uint8)
    for part, its in zip(parts, unit, strict=True):
        counted.share(persons[part], keys[part], its, are_open, shares[part])
    return shares.tolist()


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 3).map(lambda key: key << 23) | WORD, st.integers(0, 2**40)),
        max_size=40,
    ),
    st.integers(0, 40),
    st.sampled_from([(1, 12), (3, 12), (4096, 12), (1, 40), (7, 40)]),
    st.booleans(),
)
def test_shares_of_few_rows(rows: list[tuple[int, int, int]], cut: int, facts: Any, weighted: bool) -> None:
    persons, keys, units = np.array(rows, np.uint64).reshape(-1, 3).T.copy()
    unit = units.astype(np.int64) if weighted else None
    expected = reference.shares(persons.tolist(), keys.tolist(), None if unit is None else unit.tolist(), *facts)
    for kernel in KERNELS.values():
        assert shares_of(kernel, persons.astype(np.int64), keys, cut, unit, *facts) == expected


@pytest.mark.one_in(3)
@pytest.mark.parametrize("n_alike", [1, 2, 30])
@pytest.mark.parametrize("m", [64, 65, 67, 100, 1000, 1365, 4095, 4097, 9000])
def test_shares_of_many_rows(m: int, n_alike: int) -> None:
    """Of whom some are alike, so that more may be below a threshold than there is left for."""
    rng = np.random.default_rng([m, n_alike])
    persons = rng.permutation(np.repeat([0, 1, 2], [m, 5, m + 1]))
    keys = rng.integers(0, 2**64, len(persons), dtype=np.uint64)[rng.integers(0, len(persons), len(persons)) // n_alike]
    expected = reference.shares(persons.tolist(), keys.tolist())
    assert [sum(np.array(expected)[persons == p]) for p in range(3)] == [4096] * 3
    for kernel in KERNELS.values():
        assert shares_of(kernel, persons, keys, 500) == expected


@pytest.mark.parametrize("m", [65, 100, 1000, 5000])
def test_shares_of_many_weighted_rows(m: int) -> None:
    """Near what they should be, whatever the order, and a person of no weight has none."""
    rng = np.random.default_rng(m)
    persons = rng.permutation(np.repeat([0, 1, 2], [m, 5, m + 1]))
    keys, units = rng.integers(0, 2**64, len(persons), dtype=np.uint64), rng.integers(0, 2**40, len(persons))
    units[persons == 2] = 0
    for alike in (1, 200):
        expected = reference.shares(persons.tolist(), keys.tolist(), units.tolist(), alike)
        for kernel in KERNELS.values():
            assert shares_of(kernel, persons, keys, 500, units, alike) == expected
        own = np.array(expected)[persons == 0]
        assert 0 < sum(own) <= 4096
        assert max(own) < 300
        assert not np.array(expected)[persons == 2].any()


def test_more_rows_below_the_threshold_than_there_is_left_for() -> None:
    keys = np.zeros(9000, np.uint64)
    assert shares_of(core, np.zeros(9000, np.int64), keys, 4000) == [4096] + [0] * 8999
    assert shares_of(core, np.zeros(1000, np.int64), keys[:1000], 10) == [100] + [4] * 999


ROWS, KEYS, PERSONS = np.zeros((3, 2)), np.zeros(3, np.uint64), np.zeros(3, np.int64)
OPEN, SHARES = np.full(1, 255, np.uint8), np.zeros(3, np.int16)


def count(persons: Any, keys: Any, units: Any = None) -> Any:
    counted = core.Shares(weighted=units is not None)
    counted.count(persons, keys, units)
    counted.end_pass()
    return counted


def share(persons: Any, keys: Any, are_open: Any, shares: Any, counted: Any = PERSONS) -> None:
    count(counted, KEYS).share(persons, keys, None, are_open, shares)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: core.hash_rows(ROWS, FACTORS[:2], None, KEYS), ValueError, "factors must be one more than columns"),
        (lambda: core.hash_rows(ROWS, FACTORS[:3], None, KEYS[:2]), ValueError, "keys must have an entry for each row"),
        (lambda: core.hash_rows(ROWS, FACTORS[:3], np.zeros(2, int), KEYS), ValueError, "groups must have an entry"),
        (lambda: core.hash_rows(ROWS, FACTORS[:3], None, KEYS, 0), ValueError, "n_threads >= 1"),
        (lambda: core.hash_rows(ROWS.astype(int), FACTORS[:3], None, KEYS), TypeError, "rows must have dtype"),
        (lambda: core.hash_rows(ROWS, FACTORS[:3], np.zeros(0, int), KEYS), ValueError, "groups must have an entry"),
        (lambda: core.Shares(0), ValueError, "most_alike must be"),
        (lambda: core.Shares(bits=11), ValueError, "bits must be"),
        (lambda: count(np.array([0, 24, 0]), KEYS), ValueError, "persons must be numbers from 0"),
        (lambda: count(np.array([0, -1, 0]), KEYS), ValueError, "persons must be numbers from 0"),
        (lambda: count(PERSONS, KEYS[:2]), ValueError, "keys must have an entry for each row"),
        (lambda: count(PERSONS, KEYS, PERSONS[:2]), ValueError, "units must have an entry for each row"),
        (lambda: count(PERSONS, KEYS, PERSONS - 1), ValueError, "units must be from 0"),
        (lambda: core.Shares().count(PERSONS, KEYS, PERSONS), ValueError, "units must have an entry for each row"),
        (lambda: core.Shares().share(PERSONS, KEYS, None, OPEN, SHARES), ValueError, "rows were not counted"),
        (lambda: share(PERSONS[:2], KEYS[:2], OPEN, SHARES[:2], np.ones(3, int)), ValueError, "no rows that were"),
        (lambda: share(PERSONS + 1, KEYS, OPEN[:0], SHARES, PERSONS + 1), ValueError, "are_open must have"),
        (lambda: share(PERSONS, KEYS, OPEN, SHARES[:2]), ValueError, "shares must have an entry"),
        (lambda: share(PERSONS, KEYS, KEYS, SHARES), TypeError, "are_open must have dtype uint8"),
        (lambda: share(PERSONS, KEYS, OPEN, KEYS.view(np.int16)[:3]), ValueError, "not overlap"),
        (lambda: share(PERSONS + 1, KEYS, OPEN, SHARES), ValueError, "persons must be numbers from 0"),
        (lambda: core.Shares(bits=40).share(PERSONS, KEYS, None, OPEN, SHARES), ValueError, "rows were not counted"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
