"""The checksums of a block of words, against whole numbers of any size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

KEYS = np.random.default_rng(0).integers(0, 2**64, size=(2, 64), dtype=np.uint64)


@given(data=st.binary(max_size=8 * 64), offset=st.integers(0, 7))
def test_sums_are_those_of_whole_numbers(data, offset):
    words = [data[i : i + 8] for i in range(0, len(data) - 7, 8)]
    buffer = np.frombuffer(b"x" * offset + b"".join(words), dtype=np.uint8)[offset:]
    expected = (
        sum(int(k) * int.from_bytes(word, "little") for k, word in zip(KEYS[0], words, strict=False)) % 2**64,
        sum(int(k) * int.from_bytes(word, "big") for k, word in zip(KEYS[1], words, strict=False)) % 2**64,
    )
    assert core.keyed_sums(buffer, *KEYS) == expected


def test_parts_of_words_and_missing_keys_are_refused():
    with pytest.raises(ValueError, match="whole words"):
        core.keyed_sums(np.zeros(9, np.uint8), *KEYS)
    with pytest.raises(ValueError, match="keys"):
        core.keyed_sums(np.zeros(16, np.uint8), KEYS[0], KEYS[1, :1])
