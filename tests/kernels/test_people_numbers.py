"""Hashes of strings against SipHash in Python, numbers of people against a dictionary."""

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
WORD = st.integers(0, 2**64 - 1)


def objects(values: list[Any]) -> Any:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def hashed(text: bytes, key: tuple[int, int]) -> bytes:
    first, second = reference.siphash(text, key)
    return first.to_bytes(8, "little") + second.to_bytes(8, "little")


def test_the_reference_is_siphash() -> None:
    """Vectors of its authors (vectors_sip128 of github.com/veorq/SipHash), of 0 and of 1 byte."""
    key = tuple(int.from_bytes(bytes(range(i, i + 8)), "little") for i in (0, 8))
    assert hashed(b"", key).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert hashed(b"\0", key).hex() == "da87c1d86b99af44347659119b22fc45"


@given(st.lists(st.text(st.characters(codec=None), max_size=20), max_size=80), WORD, WORD)
def test_strings_of_any_characters(values: list[str], key: int, other_key: int) -> None:
    expected = [reference.text_words(value, key, other_key) for value in values]
    for kernel in KERNELS.values():
        words = np.zeros((len(values), 2), np.uint64)
        assert kernel.text_words(objects(["".join(list(value)) for value in values]), key, other_key, words)
        assert list(map(tuple, words.tolist())) == expected


@given(st.lists(st.text(st.characters(codec=None), max_size=20), max_size=80), st.integers(0, 9), WORD, WORD)
def test_the_same_strings_in_utf8(values: list[str], skipped: int, key: int, other_key: int) -> None:
    encoded = [value.encode(errors="surrogatepass") for value in values]
    ends = np.cumsum([skipped, *map(len, encoded)])  # as of a slice, whose bytes begin where others end
    text = np.frombuffer(bytes(skipped) + b"".join(encoded), np.uint8)
    for kernel in KERNELS.values():
        words, expected = np.zeros((2, len(values), 2), np.uint64)
        kernel.utf8_words(ends, text, key, other_key, words)
        assert kernel.text_words(objects(values), key, other_key, expected)
        np.testing.assert_array_equal(words, expected)


@pytest.mark.parametrize("other", [None, 5, b"a", np.str_("a")])
def test_what_is_no_string_is_left_to_others(other: Any) -> None:
    assert not core.text_words(objects(["a", other]), 1, 2, np.zeros((2, 2), np.uint64))


@given(st.lists(st.tuples(st.integers(0, 3) | WORD, st.integers(0, 3)), max_size=200), st.integers(0, 200), WORD)
def test_numbers_of_few(people: list[tuple[int, int]], n_known: int, seed: int) -> None:
    words = np.array(people, np.uint64).reshape(-1, 2)
    expected = reference.person_numbers(people[:n_known], people)
    for kernel in KERNELS.values():
        table, numbers = kernel.Numbering(seed), np.zeros(len(people), np.int64)
        table.number(words[:n_known], numbers[:n_known], True)
        assert table.size == len(set(people[:n_known]))
        table.number(words, numbers, False)
        assert numbers.tolist() == expected


def test_numbers_of_many_in_batches() -> None:
    ids = np.random.default_rng(0).integers(0, 30_000, 100_000)
    words = np.stack([ids, ids // 2], 1).astype(np.uint64)
    for kernel in KERNELS.values():
        table, numbers = kernel.Numbering(3), np.zeros(len(ids), np.int64)
        for start in range(0, len(ids), 999):
            table.number(words[start : start + 999], numbers[start : start + 999], True)
        assert numbers.tolist() == reference.person_numbers(ids.tolist(), ids.tolist())


def test_numbers_of_ids_that_become_longer() -> None:
    """They are kept in as few bytes as the longest takes."""
    ids = np.concatenate([np.arange(1 << 13, dtype=np.uint64) << np.uint64(k) for k in range(0, 52, 3)])
    words = np.stack([ids, np.zeros_like(ids)], 1)
    words[-5:, 1] = 7  # and a second word, at last
    people = list(map(tuple, words.tolist()))
    for kernel in KERNELS.values():
        table, numbers = kernel.Numbering(3), np.zeros(len(ids), np.int64)
        for start in range(0, len(ids), 999):
            table.number(words[start : start + 999], numbers[start : start + 999], True)
        assert numbers.tolist() == reference.person_numbers(people, people)


def test_what_does_not_fit_is_refused() -> None:
    two, words, numbers = objects(["a", "b"]), np.zeros((2, 2), np.uint64), np.zeros(2, np.int64)
    packed = np.zeros(2, [("byte", "u1"), ("text", object)])["text"]  # not aligned
    for values, out, error in (
        (two, words[:1], ValueError),
        (objects(["a", "b", "c", "d"])[::2], words, ValueError),
        (two, words.astype(float), TypeError),
        (packed, words, ValueError),
        (np.zeros(2), words, TypeError),
    ):
        with pytest.raises(error):
            core.text_words(values, 1, 2, out)
    text, ends = np.zeros(5, np.uint8), np.array([0, 2, 5])
    for places, each, out, error in (
        (ends[:2], text, words, ValueError),
        (ends[:0], text, words[:0], ValueError),
        (ends, text, words[:, :1], ValueError),
        (np.array([-1, 2, 5]), text, words, ValueError),
        (np.array([0, 6, 5]), text, words, ValueError),
        (np.array([0, 2, 6]), text, words, ValueError),
        (ends.astype(np.int32), text, words, TypeError),
        (ends, text.view(np.int8), words, TypeError),
    ):
        with pytest.raises(error):
            core.utf8_words(places, each, 1, 2, out)
    for source, target, error in (
        (words[:, :1], numbers, ValueError),
        (words, numbers[:1], ValueError),
        (words.astype(int), numbers, TypeError),
        (words, words[:, 0].view(np.int64)[:2], ValueError),
    ):
        with pytest.raises(error):
            core.Numbering(0).number(source, target, True)
