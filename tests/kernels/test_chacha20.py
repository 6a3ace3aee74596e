"""The ChaCha20 key stream: vectors of RFC 8439, and the plain reference far beyond their length."""

from __future__ import annotations

import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgep._dispatch import core

pytestmark = pytest.mark.kernel

ZEROS = bytes(32)
COUNTING = bytes(range(32))

# (source in RFC 8439, key, block counter, nonce, key stream)
BLOCKS = [
    (
        "2.3.2",
        COUNTING,
        1,
        "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    (
        "A.1 #1",
        ZEROS,
        0,
        "000000000000000000000000",
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    (
        "A.1 #2",
        ZEROS,
        1,
        "000000000000000000000000",
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    (
        "A.1 #3",
        bytes(31) + b"\x01",
        1,
        "000000000000000000000000",
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    (
        "A.1 #4",
        b"\x00\xff" + bytes(30),
        2,
        "000000000000000000000000",
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    (
        "A.1 #5",
        ZEROS,
        0,
        "000000000000000000000002",
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
]

# RFC 8439, 2.4.2: bytes 64 to 178 of the stream whose nonce is 000000000000004a00000000.
STREAM_NONCE = int.from_bytes(bytes.fromhex("000000000000004a"), "little")
STREAM_AFTER_ONE_BLOCK = bytes.fromhex(
    "224f51f3401bd9e12fde276fb8631ded8c131f823d2c06e27e4fcaec9ef3cf78"
    "8a3b0aa372600a92b57974cded2b9334794cba40c63e34cdea212c4cf07d41b7"
    "69a6749f3f630f4122cafe28ec4dc47e26d4346d70b98c73f3e9c53ac40c5945"
    "398b6eda1a832c89c167eacd901d7e2bf363"
)

# RFC 8439, A.2: (key, first block counter, plain text, cipher text), nonce 000000000000000000000002.
ENCRYPTIONS = [
    (
        bytes(31) + b"\x01",
        1,
        b"Any submission to the IETF intended by the Contributor for publication as all or part of an IETF "
        b"Internet-Draft or RFC and any statement made within the context of an IETF activity is considered "
        b'an "IETF Contribution". Such statements include oral statements in IETF sessions, as well as '
        b"written and electronic communications made at any time or place, which are addressed to",
        "a3fbf07df3fa2fde4f376ca23e82737041605d9f4f4f57bd8cff2c1d4b7955ec"
        "2a97948bd3722915c8f3d337f7d370050e9e96d647b7c39f56e031ca5eb6250d"
        "4042e02785ececfa4b4bb5e8ead0440e20b6e8db09d881a7c6132f420e527950"
        "42bdfa7773d8a9051447b3291ce1411c680465552aa6c405b7764d5e87bea85a"
        "d00f8449ed8f72d0d662ab052691ca66424bc86d2df80ea41f43abf937d3259d"
        "c4b2d0dfb48a6c9139ddd7f76966e928e635553ba76c5c879d7b35d49eb2e62b"
        "0871cdac638939e25e8a1e0ef9d5280fa8ca328b351c3c765989cbcf3daa8b6c"
        "cc3aaf9f3979c92b3720fc88dc95ed84a1be059c6499b9fda236e7e818b04b0b"
        "c39c1e876b193bfe5569753f88128cc08aaa9b63d1a16f80ef2554d7189c411f"
        "5869ca52c5b83fa36ff216b9c1d30062bebcfd2dc5bce0911934fda79a86f6e6"
        "98ced759c3ff9b6477338f3da4f9cd8514ea9982ccafb341b2384dd902f3d1ab"
        "7ac61dd29c6f21ba5b862f3730e37cfdc4fd806c22f221",
    ),
    (
        bytes.fromhex("1c9240a5eb55d38af333888604f6b5f0473917c1402b80099dca5cbc207075c0"),
        42,
        b"'Twas brillig, and the slithy toves\nDid gyre and gimble in the wabe:\n"
        b"All mimsy were the borogoves,\nAnd the mome raths outgrabe.",
        "62e6347f95ed87a45ffae7426f27a1df5fb69110044c0d73118effa95b01e5cf"
        "166d3df2d721caf9b21e5fb14c616871fd84c54f9d65b283196c7fe4f60553eb"
        "f39c6402c42234e32a356b3e764312a61a5532055716ead6962568f87d3f3f77"
        "04c6a8d1bcd1bf4d50d6154b6da731b187b58dfd728afa36757a797ac188d1",
    ),
]

BLOCK_FUNCTIONS = [core.chacha20_block, reference.chacha20_block]
BLOCK_FUNCTION_NAMES = ["kernel", "reference"]


@pytest.mark.parametrize("block", BLOCK_FUNCTIONS, ids=BLOCK_FUNCTION_NAMES)
@pytest.mark.parametrize(("source", "key", "counter", "nonce", "expected"), BLOCKS, ids=[b[0] for b in BLOCKS])
def test_block_function_agrees_with_the_rfc(block, source, key, counter, nonce, expected):
    assert block(key, counter, bytes.fromhex(nonce)).hex() == expected


@pytest.mark.parametrize("block", BLOCK_FUNCTIONS, ids=BLOCK_FUNCTION_NAMES)
@pytest.mark.parametrize(("key", "counter", "plain", "cipher"), ENCRYPTIONS, ids=["A.2 #2", "A.2 #3"])
def test_key_stream_encrypts_as_the_rfc_does(block, key, counter, plain, cipher):
    nonce = bytes(11) + b"\x02"
    stream = b"".join(block(key, counter + i, nonce) for i in range(-(-len(plain) // 64)))
    assert bytes(p ^ s for p, s in zip(plain, stream, strict=False)).hex() == cipher


def test_stream_agrees_with_the_rfc():
    stream = core.NoiseStream(COUNTING, STREAM_NONCE)
    assert stream.bytes(64) == reference.chacha20_block(COUNTING, 0, bytes.fromhex("000000000000004a00000000"))
    assert stream.bytes(len(STREAM_AFTER_ONE_BLOCK)) == STREAM_AFTER_ONE_BLOCK


@given(
    key=st.binary(min_size=32, max_size=32),
    counter=st.integers(0, 2**32 - 1),
    nonce=st.binary(min_size=12, max_size=12),
)
@settings(deadline=None, derandomize=True)
def test_block_function_agrees_with_the_reference(key, counter, nonce):
    assert core.chacha20_block(key, counter, nonce) == reference.chacha20_block(key, counter, nonce)


@pytest.mark.parametrize("nonce", [0, 1, 2**32, 2**64 - 1])
def test_long_stream_agrees_with_the_reference(nonce):
    length = 3_000_001
    assert core.NoiseStream(COUNTING, nonce).bytes(length) == reference.chacha20_stream(COUNTING, nonce, length)


@given(pieces=st.lists(st.integers(0, 9000), max_size=12), nonce=st.integers(0, 2**64 - 1))
@settings(deadline=None, derandomize=True)
def test_odd_pieces_equal_one_piece(pieces, nonce):
    stream = core.NoiseStream(COUNTING, nonce)
    in_pieces = b"".join(stream.bytes(n) for n in pieces)
    assert in_pieces == core.NoiseStream(COUNTING, nonce).bytes(sum(pieces))


def test_every_single_byte_piece_across_many_blocks():
    stream = core.NoiseStream(COUNTING)
    assert b"".join(stream.bytes(1) for _ in range(20_000)) == reference.chacha20_stream(COUNTING, 0, 20_000)


@pytest.mark.parametrize("wrong", [b"", bytes(31), bytes(33)])
def test_a_key_of_another_length_is_refused(wrong):
    with pytest.raises(ValueError, match="key"):
        core.NoiseStream(wrong)
    with pytest.raises(ValueError, match="key"):
        core.chacha20_block(wrong, 0, bytes(12))


@pytest.mark.parametrize("wrong", [b"", bytes(8), bytes(13)])
def test_a_block_nonce_of_another_length_is_refused(wrong):
    with pytest.raises(ValueError, match="nonce"):
        core.chacha20_block(ZEROS, 0, wrong)


@pytest.mark.parametrize("wrong", [-1, 2**32])
def test_a_block_counter_out_of_range_is_refused(wrong):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        core.chacha20_block(ZEROS, wrong, bytes(12))


@pytest.mark.parametrize("wrong", [-1, 2**64])
def test_a_stream_nonce_out_of_range_is_refused(wrong):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        core.NoiseStream(ZEROS, wrong)


def test_a_negative_number_of_bytes_is_refused():
    with pytest.raises((TypeError, ValueError, OverflowError)):
        core.NoiseStream(ZEROS).bytes(-1)
