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


@given(st.data(), st.integers(0, 9), st.integers(0, 40), st.integers(0, 3), st.integers(1, 3))
def test_columns_are_cut_into_blocks_of_as_many_words_as_keys(data, begun, n, d, n_threads):
    keys = np.ascontiguousarray(KEYS[:, :10])
    columns = [np.frombuffer(data.draw(st.binary(min_size=8 * n, max_size=8 * n)), np.uint8) for _ in range(d)]
    words = [[column[i : i + 8] for i in range(0, 8 * n, 8)] for column in columns]
    n_blocks = -(-(begun + n) // 10) if d else -(-begun // 10)
    expected = np.zeros((n_blocks, d, 2), np.uint64)
    for j in range(d):
        for i, word in enumerate(words[j]):
            block, place = divmod(begun + i, 10)
            expected[block, j] += np.array(core.keyed_sums(word, *keys[:, place:]), np.uint64)
    sums = np.full((n_blocks, 2 * d), 7, np.uint64)
    core.keyed_column_sums(columns, begun, *keys, sums, n_threads)
    assert np.array_equal(sums.reshape(expected.shape), expected)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_columns_that_threads_share(n_threads):
    """Of enough words for more threads than one, from the middle of a block to that of another."""
    begun, words = 40, np.random.default_rng(1).integers(0, 2**64, size=(3, 200_000), dtype=np.uint64)
    padded = np.zeros((3, 3126 * 64), np.uint64)
    padded[:, begun : begun + words.shape[1]] = words
    blocks = padded.reshape(3, -1, 64)
    expected = np.stack([(blocks * KEYS[0]).sum(axis=2), (blocks.byteswap() * KEYS[1]).sum(axis=2)], axis=2)
    sums = np.empty((blocks.shape[1], 6), np.uint64)
    core.keyed_column_sums([each.view(np.uint8) for each in words], begun, *KEYS, sums, n_threads)
    assert np.array_equal(sums.reshape(-1, 3, 2), expected.swapaxes(0, 1))


def test_parts_of_words_and_missing_keys_are_refused():
    with pytest.raises(ValueError, match="whole words"):
        core.keyed_sums(np.zeros(9, np.uint8), *KEYS)
    with pytest.raises(ValueError, match="keys"):
        core.keyed_sums(np.zeros(16, np.uint8), KEYS[0], KEYS[1, :1])
    column, sums = np.zeros(24, np.uint8), np.zeros((2, 4), np.uint64)
    for columns, begun, keys, out in (
        ([column, column[:16]], 0, KEYS[:, :2], sums),
        ([column[:23], column[:23]], 0, KEYS[:, :2], sums),
        ([column, column], 2, KEYS[:, :2], sums),
        ([column, column], -1, KEYS[:, :2], sums),
        ([column, column], 0, KEYS[:, :3], sums),
        ([column], 0, KEYS[:, :2], sums),
    ):
        with pytest.raises(ValueError, match=r"must (be|have)"):
            core.keyed_column_sums(columns, begun, *np.ascontiguousarray(keys), out, 1)
