"""What travels: reports and aggregates as bytes. What is damaged, foreign or implausible is refused, with a reason."""

from __future__ import annotations

import pickle
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import bytes_of

import dpgep
from dpgep.local import Aggregator, GaussianRandomizer, ReportError, Reports, protocol
from dpgep.serialization import Format, opened

TERMS: dict[str, Any] = {"dim": 3, "bound": 2.0, "epsilon": 1.0, "delta": 1e-6}
DTYPES = ["int64", "float32"]
FIELDS = ("magic", "version", "type", "bits", "seeded", "dim", "records", "count", "bound", "epsilon", "delta", "dev")


def batch_of(dtype: str = "int64", m: int = 4, **changed: Any) -> Reports:
    randomizer = GaussianRandomizer(**{**TERMS, "dtype": dtype, **changed})
    return randomizer.randomize_rows(np.ones((m, randomizer.mechanism.dim)))


def server() -> Aggregator:
    return Aggregator(**TERMS)


def resealed(message: bytes, **changed: Any) -> bytes:
    """The message with fields of its header changed and a right checksum."""
    header = struct.Struct("<6sHBBBxIIQdddd")
    fields = dict(zip(FIELDS, header.unpack(message[:60]), strict=True)) | changed
    payload = fields.pop("payload", message[64:])
    packed = header.pack(*fields.values())
    return packed + struct.pack("<I", zlib.crc32(payload, zlib.crc32(packed))) + payload


@pytest.mark.entropy
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_survive_bytes(dtype: str) -> None:
    batch = batch_of(dtype)
    read = Reports.from_bytes(batch.to_bytes())
    assert read.mechanism == batch.mechanism
    assert read.values.dtype == batch.values.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(read.values, batch.values)
    assert not read.seeded
    assert len(batch.to_bytes()) == 64 + batch.values.nbytes
    assert Reports.from_bytes(bytearray(batch.to_bytes())).to_bytes() == batch.to_bytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_report_is_a_batch_of_one(dtype: str) -> None:
    batch = batch_of(dtype)
    report = Reports.from_bytes(batch[-1].to_bytes())
    np.testing.assert_array_equal(report.values, batch.values[-1:])
    assert [float(each.values[0, 0]) for each in batch] == batch.values[:, 0].tolist()
    expected = report.values[0].astype(float) * (4.0 / 4.0**20)
    np.testing.assert_array_equal(batch.matrices()[-1][np.triu_indices(3)], expected)
    np.testing.assert_array_equal(report.matrices(), np.swapaxes(batch.matrices()[-1:], 1, 2))
    assert batch_of(dtype, 0).matrices().shape == (0, 3, 3)


@pytest.mark.entropy
def test_a_report_tells_of_its_seed() -> None:
    with pytest.warns(UserWarning, match="seeded run is not private"):
        randomizer = GaussianRandomizer(**TERMS, seed=1)
    read = Reports.from_bytes(randomizer.randomize(np.ones(3)).to_bytes())
    assert read.seeded
    aggregator = server()
    aggregator.add(batch_of())
    assert not aggregator.seeded
    aggregator.add(read)
    assert aggregator.seeded
    assert dpgep.load(bytes_of(aggregator)).seeded


def test_the_format_is_fixed() -> None:
    """Version 2, byte for byte: whoever changes this changes the version."""
    mechanism = replace(batch_of().mechanism, deviation=7.5)
    message = Reports(mechanism, np.arange(6)[None, :]).to_bytes()
    assert message[:12] == b"dpgepR\x02\x00\x00\x14\x00\x00"
    assert struct.unpack("<IIQdddd", message[12:60]) == (3, 1, 1, 2.0, 1.0, 1e-6, 7.5)
    assert struct.unpack("<I", message[60:64]) == (zlib.crc32(message[64:], zlib.crc32(message[:60])),)
    assert message[64:] == struct.pack("<6q", *range(6))
    rounded = Reports(mechanism, np.arange(6, dtype=np.float32)[None, :]).to_bytes()
    assert rounded[:12] == b"dpgepR\x02\x00\x01\x14\x00\x00"
    assert rounded[64:] == struct.pack("<6f", *range(6))


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_damaged_bit_is_found(dtype: str) -> None:
    message, aggregator = batch_of(dtype, 2).to_bytes(), server()
    aggregator.add(message)
    before = bytes_of(aggregator)
    for position in range(len(message)):
        for bit in (1, 128):
            damaged = bytearray(message)
            damaged[position] ^= bit
            with pytest.raises(ReportError):
                aggregator.add(damaged)
    for length in range(len(message)):
        with pytest.raises(ReportError):
            aggregator.add(message[:length])
    with pytest.raises(ReportError, match="wrong checksum"):
        aggregator.add(message + b"\0" * 8)
    assert bytes_of(aggregator) == before


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another program": ({"magic": b"GIF89a"}, "not a dpgep report"),
    "an aggregate": ({"magic": b"dpgepA"}, "not a dpgep report"),
    "floating-point noise": ({"version": 1}, "version 1 of the format; this dpgep reads version 2"),
    "a later version": ({"version": 3}, "version 3 of the format; this dpgep reads version 2"),
    "unknown entries": ({"type": 2}, "unknown type 2"),
    "part of an entry": ({"payload": b"123"}, "3 bytes of entries"),
    "no dimension": ({"dim": 0}, "dim = 0"),
    "too few entries": ({"count": 3}, "3 reports of dim = 3 have 18 entries, not 24"),
    "another dimension": ({"dim": 2, "count": 8}, "dim = 2, not 3"),
    "another bound": ({"bound": 1.0}, "bound = 1.0, not 2.0"),
    "another epsilon": ({"epsilon": 1.5}, "whose guarantee needs deviation = 4.1"),
    "another delta": ({"delta": 1e-5}, "whose guarantee needs deviation = "),
    "no delta": ({"delta": np.nan}, "that nobody can make: "),
    "more records of a person": ({"records": 2}, "whose guarantee needs deviation = 8.4"),
    "another scale": ({"dev": 5.97}, "whose guarantee needs deviation = 5.97.*, not 5.97"),
    "another grid": ({"bits": 21}, "whose guarantee needs bits = 20, not 21"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_foreign_reports_are_refused(name: str) -> None:
    changed, reason = REFUSED[name]
    aggregator = server()
    aggregator.add(batch_of())
    before = bytes_of(aggregator)
    with pytest.raises(ReportError, match=reason):
        aggregator.add(resealed(batch_of().to_bytes(), **changed))
    assert bytes_of(aggregator) == before


def test_a_root_found_elsewhere_may_differ_in_its_last_digits() -> None:
    batch, aggregator = batch_of(), server()
    aggregator.add(Reports(replace(batch.mechanism, deviation=batch.mechanism.deviation * (1 + 1e-14)), batch.values))
    assert aggregator.n_reports == 4


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30, -(2.0**63), 0.5])
def test_reports_that_nobody_can_have_drawn_are_refused(poison: float) -> None:
    good, aggregator = batch_of("float32"), server()
    aggregator.add(good)
    before = bytes_of(aggregator)
    values = good.values.copy()
    values[2, 4] = poison
    reason = "report 2 of 4 has a non-integer entry" if poison == 0.5 else "report 2 of 4 has an entry beyond"
    for batch in (Reports(good.mechanism, values), Reports(good.mechanism, values).to_bytes()):
        with pytest.raises(ReportError, match=reason):
            aggregator.add(batch)
    with pytest.raises(ReportError, match="report 0 of 1"):
        aggregator.add(Reports(good.mechanism, values)[2])
    assert bytes_of(aggregator) == before


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_reports_that_are_all_a_little_too_long_are_refused(dtype: str) -> None:
    mechanism, aggregator = batch_of(dtype).mechanism, server()
    # each within what one may be, their sum far beyond what a sum of noise is
    values = np.full((10_000, 6), 20 * 4**mechanism.bits).astype(dtype)
    with pytest.raises(ReportError, match=r"the sum of 10000 reports has norm 4\.9e"):
        aggregator.add(Reports(mechanism, values))
    assert aggregator.n_reports == 0
    # and so is a single one whose entries are all as long as one may be
    values = np.full((1, 6), mechanism.largest_entry() * (1 - 2**-20)).astype(dtype)
    with pytest.raises(ReportError, match="the sum of 1 reports has norm"):
        aggregator.add(Reports(mechanism, values))


@pytest.mark.parametrize("entry", [2**62, -(2**63), 2**63 - 1])
def test_entries_cannot_overflow_the_sum(entry: int) -> None:
    good, aggregator = batch_of(), server()
    values = good.values.copy()
    values[1, 5] = entry
    with pytest.raises(ReportError, match="report 1 of 4 has an entry beyond"):
        aggregator.add(Reports(good.mechanism, values))
    assert aggregator.n_reports == 0


def test_shapes_and_types_are_checked_where_a_batch_is_made() -> None:
    mechanism = batch_of().mechanism
    for values in (np.zeros((2, 5)), np.zeros(6), [[0.0] * 6]):
        with pytest.raises(ReportError, match=r"shape \(m, 6\)"):
            Reports(mechanism, values)  # type: ignore[arg-type]
    for dtype in ("float64", "int32", "uint64"):
        with pytest.raises(ReportError, match=f"entries of type int64 or float32, got {dtype}"):
            Reports(mechanism, np.zeros((2, 6), dtype=dtype))
    with pytest.raises(TypeError, match="add takes Reports or their bytes, got ndarray"):
        server().add(np.zeros((2, 6)))  # type: ignore[arg-type]


@given(
    st.tuples(
        st.sampled_from([b"dpgepR", b"dpgepA", b"other!"]),
        st.sampled_from([2, 0, 1, 3]),
        st.integers(0, 4),
        st.integers(0, 255),
        st.integers(0, 255),
        st.sampled_from([3, 0, 1, 2**16, 2**17, 2**32 - 1]),
        st.sampled_from([1, 0, 2**32 - 1]),
        st.sampled_from([0, 1, 4, 2**64 - 1]),
        *([st.sampled_from([2.0, 1.0, 1e-6]) | st.floats()] * 4),
    ),
    st.binary(max_size=96),
)
def test_any_sealed_message_is_added_or_refused(fields: tuple[Any, ...], payload: bytes) -> None:
    message = resealed(bytes(64), **dict(zip(FIELDS, fields, strict=True)), payload=payload)
    aggregator = server()
    before = bytes_of(aggregator)
    try:
        aggregator.add(message)
    except ReportError:
        assert bytes_of(aggregator) == before


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_aggregate_survives_bytes_and_pickle(dtype: str) -> None:
    aggregator = server()
    aggregator.add(batch_of(dtype, 5))
    for copy in (dpgep.load(bytes_of(aggregator)), pickle.loads(pickle.dumps(aggregator))):
        assert copy.mechanism == aggregator.mechanism
        assert copy.n_reports == 5
        np.testing.assert_array_equal(copy.second_moment(), aggregator.second_moment())
        copy.add(batch_of(dtype))
        assert (copy.n_reports, aggregator.n_reports) == (9, 5)


def restated(message: bytes, payload: bytes | None = None, **changed: Any) -> bytes:
    """The file of an aggregate with other fields, of its mechanism too, and a checksum that fits."""
    document = opened(message)
    mechanism = {**document.fields["mechanism"], **{name: changed.pop(name) for name in TERMS if name in changed}}
    mechanism |= {name: changed.pop(name) for name in ("bits", "deviation") if name in changed}
    fields = {**document.fields, "mechanism": mechanism, **changed}
    return Format(document.name).pack(fields, [document.payload if payload is None else payload])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"deviation": 1.0}, "a mechanism whose guarantee needs deviation"),
        ({"deviation": "nan"}, "a mechanism whose guarantee needs deviation"),
        ({"bits": 21}, "needs bits = 20, not 21"),
        ({"bits": 2**70}, "needs bits = 20, not 1180591620717411303424"),
        ({"dim": 2}, "limbs of shape .2, 6. are not a sum|needs deviation"),
        ({"dim": 2**40}, "dim = 1099511627776, outside 1 to"),
        ({"epsilon": -1.0}, "that nobody can make: epsilon"),
        ({"bound": "inf"}, "that nobody can make: bound"),
        ({"limbs": {"shape": [12]}}, "limbs of shape .12,. are not a sum of 4"),
        ({"limbs": {"shape": [1, 6]}}, "leave 48 bytes of the file"),
        ({"n_reports": -1}, "a sum of -1 such reports"),
        ({"n_reports": 2**63}, "a sum of 9223372036854775808 such reports"),
        ({"n_reports": 4.0}, "n_reports must be an integer, got 4.0"),
        ({"seeded": 1}, "seeded must be true or false"),
        ({"more": 1}, "a field 'more' that this dpgep does not know"),
    ],
    ids=str,
)
def test_aggregates_that_no_server_wrote_are_refused(changed: dict[str, Any], said: str) -> None:
    aggregator = server()
    aggregator.add(batch_of())
    message = bytes_of(aggregator)
    assert restated(message) == message
    with pytest.raises(ValueError, match=said):
        dpgep.load(restated(message, **changed))


def test_damaged_aggregates_are_refused() -> None:
    aggregator = server()
    aggregator.add(batch_of())
    message = bytes_of(aggregator)
    with pytest.raises(ValueError, match=r"no file of dpgep|no JSON"):
        dpgep.load(batch_of().to_bytes())
    with pytest.raises(ValueError, match="incomplete or was altered"):
        dpgep.load(message[:-1] + bytes([message[-1] ^ 1]))
    with pytest.raises(ReportError, match="the sum of 4 reports has norm"):
        dpgep.load(restated(message, struct.pack("<12q", *[2**50] * 12)))
    with pytest.raises(ReportError, match="not a dpgep report"):
        aggregator.add(message)


def test_a_header_holds_nothing_but_public_numbers() -> None:
    """Two people, the same header: it may be sent in the clear."""
    randomizer = GaussianRandomizer(**TERMS)
    first, second = (randomizer.randomize(x).to_bytes() for x in ([2.0, 0, 0], [0, 0.1, 0]))
    assert first[:60] == second[:60]
    assert protocol.VERSION == 2
