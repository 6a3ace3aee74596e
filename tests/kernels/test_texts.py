"""Numbers of strings, against a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from variants import kernels

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KERNELS = kernels()


def objects(values: list[Any]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def check(values: list[str]) -> None:
    expected, expected_firsts = reference.number_texts(values)
    for kernel in KERNELS.values():
        numbers = np.full(len(values), -1)
        firsts = kernel.number_texts(objects(values), numbers)
        assert numbers.tolist() == expected
        assert firsts.tolist() == expected_firsts


@given(st.lists(st.text(st.characters(codec=None), max_size=3), max_size=200))
def test_few_strings_of_any_characters(values: list[str]) -> None:
    check(["".join(list(value)) for value in values])  # objects of their own


def test_many_strings() -> None:
    numbers = np.random.default_rng(0).integers(0, 7000, 20_000).tolist()
    check([f"patient {number}" for number in numbers] + ["\ud800", "\0", "", "a\0", "a"])


@pytest.mark.parametrize("other", [None, 5, b"a", np.str_("a")])
def test_what_is_no_string_is_left_to_others(other: Any) -> None:
    assert core.number_texts(objects(["a", other]), np.zeros(2, np.int64)) is None


def test_what_does_not_fit_is_refused() -> None:
    for values, numbers, error in (
        (objects(["a", "b"]), np.zeros(1, np.int64), ValueError),
        (objects(["a", "b", "c", "d"])[::2], np.zeros(2, np.int64), ValueError),
        (objects(["a"]), np.zeros(1), TypeError),
        (np.zeros(1, [("byte", "u1"), ("text", object)])["text"], np.zeros(1, np.int64), ValueError),  # not aligned
        (np.zeros(1), np.zeros(1, np.int64), TypeError),
    ):
        with pytest.raises(error):
            core.number_texts(values, numbers)
