"""The checksum of files of nights, against zlib's."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from variants import kernels

pytestmark = pytest.mark.kernel

KERNELS = kernels()


@pytest.mark.parametrize("variant", KERNELS)
@given(data=st.binary(max_size=400), offset=st.integers(0, 17), value=st.integers(0, 2**32 - 1))
def test_it_is_that_of_zlib(variant: str, data: bytes, offset: int, value: int) -> None:
    there = memoryview(b"x" * offset + data)[offset:]
    assert KERNELS[variant].crc32(there, value) == zlib.crc32(there, value)


@pytest.mark.parametrize("variant", KERNELS)
def test_of_any_length_and_in_parts(variant: str) -> None:
    core, data = KERNELS[variant], np.random.default_rng(0).integers(0, 256, 100_000, dtype=np.uint8)
    for n in [*range(300), 4095, 4096, 65_537, len(data)]:
        assert core.crc32(data[:n]) == zlib.crc32(data[:n])
        assert core.crc32(data[n:], core.crc32(data[:n].tobytes())) == zlib.crc32(data)
    words = data[:800].view(np.float64).reshape(10, 10)
    assert core.crc32(words) == core.crc32(bytearray(data[:800])) == zlib.crc32(data[:800])
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(core.crc32, [data] * 50)) == {zlib.crc32(data)}


@pytest.mark.parametrize("variant", KERNELS)
def test_what_is_no_piece_of_memory_is_refused(variant: str) -> None:
    core = KERNELS[variant]
    wrong: list[tuple[Any, type[Exception]]] = [
        (np.zeros((4, 4))[:, 1], BufferError),
        (np.zeros((4, 4)).T[1:], BufferError),
        ("text", TypeError),
        (7, TypeError),
    ]
    for data, error in wrong:
        with pytest.raises((error, ValueError)):
            core.crc32(data)
    for value in (-1, 2**32):
        with pytest.raises(TypeError):
            core.crc32(b"", value)
