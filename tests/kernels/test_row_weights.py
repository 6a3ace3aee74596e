"""Hashes of rows, and who has the rest of a person's weight, by the kernels and plainly."""

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


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3) | st.integers(0, 2**64 - 1)), max_size=40), st.data())
def test_the_rest_is_of_rows_with_the_least_keys(rows: list[tuple[int, int]], data: Any) -> None:
    persons, keys = [person for person, _ in rows], [key for _, key in rows]
    rest = [data.draw(st.integers(0, persons.count(person))) for person in range(5)]
    expected = reference.add_rest(persons, keys, rest)
    for kernel in KERNELS.values():
        weights = np.full(len(rows), 9, np.int16)
        kernel.add_rest(np.array(persons, np.int64), np.array(keys, np.uint64), np.array(rest, np.int16), weights)
        assert (weights - 9).tolist() == expected


def test_many_rows_of_one_person() -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 2**64, 9000, dtype=np.uint64)
    for rest in (1, 2, 4000, 8999):
        weights = np.zeros(9000, np.int16)
        core.add_rest(np.zeros(9000, np.int64), keys, np.array([rest], np.int16), weights)
        assert np.array_equal(np.flatnonzero(weights), np.sort(np.argsort(keys)[:rest]))


ROWS, KEYS, ZEROS = np.zeros((3, 2)), np.zeros(3, np.uint64), np.zeros(3, np.int16)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: core.hash_rows(ROWS, FACTORS[:2], None, KEYS), ValueError, "factors must be one more than columns"),
        (lambda: core.hash_rows(ROWS, FACTORS[:3], None, KEYS[:2]), ValueError, "keys must have an entry for each row"),
        (lambda: core.hash_rows(ROWS, FACTORS[:3], np.zeros(2, int), KEYS), ValueError, "groups must have an entry"),
        (lambda: core.hash_rows(ROWS, FACTORS[:3], None, KEYS, 0), ValueError, "n_threads >= 1"),
        (lambda: core.hash_rows(ROWS.astype(int), FACTORS[:3], None, KEYS), TypeError, "rows must have dtype"),
        (lambda: core.add_rest(np.array([0, 3, 0]), KEYS, ZEROS, ZEROS + 0), ValueError, "an entry for each person"),
        (lambda: core.add_rest(np.array([0, -1, 0]), KEYS, ZEROS, ZEROS + 0), ValueError, "an entry for each person"),
        (lambda: core.add_rest(np.zeros(3, int), KEYS[:2], ZEROS, ZEROS + 0), ValueError, "an entry for each row"),
        (lambda: core.add_rest(np.zeros(3, int), KEYS, ZEROS + 4, ZEROS + 0), ValueError, "more rows than a person"),
        (lambda: core.add_rest(np.zeros(3, int), KEYS, ZEROS - 1, ZEROS + 0), ValueError, "rest must be at least 0"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
