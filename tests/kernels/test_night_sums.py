"""What a night adds to sums, against whole numbers of any size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from variants import kernels

pytestmark = pytest.mark.kernel

KERNELS = kernels()
variants = pytest.mark.parametrize("variant", KERNELS)


def night(
    rng: np.random.Generator, n_matrices: int, d: int, others: int, steps: int, bits: int, high_bits: int = 30
) -> dict[str, Any]:
    """Limbs of one or two numbers, and noise below 2^bits, at its ends, too."""

    def limbs(n: int) -> Any:
        low = rng.integers(-(2**62), 2**62, n) if rng.random() < 0.5 else rng.integers(0, 2**40, n)
        high = rng.integers(-(2**high_bits), 2**high_bits, n) * (rng.random() < 0.7)
        return np.stack([low, high])

    n = n_matrices * d * (d + 1) // 2 + others
    before = rng.integers(-(2**bits), 2**bits, (steps, n + 1))[:, :-1]
    before[:, ::3] = rng.choice([-(2**bits), 2**bits - 1], before[:, ::3].shape)
    weights = -rng.integers(0, 64, steps)
    return {
        "values": limbs(n_matrices * d * d + others),
        "exact": limbs(n),
        "before": before,
        "steps": weights // max(1, -weights.sum() // 64 + 1),
        "n_matrices": n_matrices,
        "d": d,
    }


@variants
@given(
    seed=st.integers(0, 2**32),
    n_matrices=st.integers(1, 3),
    d=st.integers(1, 40),
    others=st.integers(0, 300),
    steps=st.integers(0, 12),
    bits=st.integers(1, 61),
)
def test_they_are_sums_of_whole_numbers(
    variant: str, seed: int, n_matrices: int, d: int, others: int, steps: int, bits: int
) -> None:
    core, rng = KERNELS[variant], np.random.default_rng(seed)
    given = night(rng, n_matrices, d, others, steps, bits)
    upper = reference.packed_places(n_matrices, d, given["values"].shape[1])
    exact, values = reference.begin_night(**given)
    core.begin_night(**given)
    assert reference.wholes(given["exact"]) == exact
    assert (given["exact"][0] >> 40 == 0).all()
    assert reference.wholes(given["values"][:, upper]) == values
    drawn = rng.integers(-(2**55), 2**55, given["values"].shape[1])
    given["values"][0] += drawn
    noise, published = np.empty(len(upper) + 1, np.int64)[1:], np.empty(len(upper))
    unit = 2.0**-46
    core.end_night(given["values"], given["exact"], unit, noise, published, n_matrices, d)
    assert noise.tolist() == [
        value + int(z) - 64 * sum_ for value, z, sum_ in zip(values, drawn[upper], exact, strict=True)
    ]
    expected = [float(value + int(z)) * unit for value, z in zip(values, drawn[upper], strict=True)]
    np.testing.assert_allclose(published, expected, rtol=2.3e-16)


def test_variants_agree_in_bits() -> None:
    found = []
    for core in KERNELS.values():
        given = night(np.random.default_rng(0), 2, 70, 31, 11, 50)
        core.begin_night(**given)
        noise, published = np.empty(given["exact"].shape[1], np.int64), np.empty(given["exact"].shape[1])
        core.end_night(given["values"], given["exact"], 0.1, noise, published, 2, 70)
        found.append(b"".join(each.tobytes() for each in (given["values"], given["exact"], noise, published)))
    assert len(set(found)) == 1


LEAST, MOST = -(2**63), 2**63 - 1


@variants
@pytest.mark.parametrize(
    ("name", "place", "value", "fits"),
    [
        ("values", (0, 0), 2**62, True),
        ("values", (0, 0), 2**62 + 1, False),
        ("values", (0, 0), LEAST, False),
        ("values", (0, 1), MOST, False),  # that of the triangle, not what is below it
        ("values", (0, 2), MOST, True),
        ("values", (1, 3), 2**54 - 1, True),
        ("values", (1, 3), 2**54, False),
        ("values", (1, 4), LEAST, False),
        ("exact", (0, 0), 2**62 - 1, True),
        ("exact", (0, 3), 2**62, False),
        ("exact", (0, 3), LEAST, False),
        ("exact", (1, 3), -(2**54), True),
        ("exact", (1, 3), -(2**54) - 1, False),
        ("exact", (1, 3), MOST, False),
        ("before", (0, 3), LEAST, False),
        ("before", (1, 3), MOST, False),
        ("before", (1, 3), 2**62 - 1, True),
        ("steps", (0,), 2**16, True),
        ("steps", (0,), 2**16 + 1, False),
        ("steps", (0,), LEAST, False),
    ],
)
def test_numbers_that_no_register_holds_are_refused(
    variant: str, name: str, place: tuple[int, ...], value: int, fits: bool
) -> None:
    core = KERNELS[variant]
    given: dict[str, Any] = {
        "values": np.zeros((2, 5), np.int64),
        "exact": np.zeros((2, 4), np.int64),
        "before": np.zeros((2, 4), np.int64),
        "steps": np.array([64, -64]),
        "n_matrices": 1,
        "d": 2,
    }
    given[name][place] = value
    if fits:
        core.begin_night(**given)
    else:
        with pytest.raises(ValueError, match="larger than a register holds" if name != "steps" else "at most"):
            core.begin_night(**given)


@variants
@pytest.mark.parametrize(
    ("low", "high", "exact_low", "exact_high", "fits"),
    [
        (2**62 - 1, 0, 0, 0, True),
        (2**62, 0, 0, 0, False),
        (-(2**62), 0, 0, 0, True),
        (-(2**62) - 1, 0, 0, 0, False),
        (LEAST, 0, 0, 0, False),
        (0, 2**61, 2**40 - 1, 2**55 - 1, True),
        (0, 2**61, 0, 2**55 - 2**17, False),
        (MOST, 2**62 - 1, 0, 0, False),
        (0, 2**62, 0, 0, False),
        (0, LEAST, 0, -(2**55), False),
        (0, 0, -1, 0, False),
        (0, 0, 2**40, 0, False),
        (0, 0, 0, LEAST, False),
    ],
)
def test_noise_that_no_register_holds_is_refused(
    variant: str, low: int, high: int, exact_low: int, exact_high: int, fits: bool
) -> None:
    core, noise, published = KERNELS[variant], np.empty(1, np.int64), np.empty(1)
    values, exact = np.array([[low], [high]]), np.array([[exact_low], [exact_high]])
    if fits:
        core.end_night(values, exact, 1.0, noise, published, 1, 1)
        assert int(noise[0]) == low + 2**40 * high - 64 * (exact_low + 2**40 * exact_high)
    else:
        with pytest.raises(ValueError, match="more than the file can hold"):
            core.end_night(values, exact, 1.0, noise, published, 1, 1)


@variants
def test_other_shapes_types_and_overlaps_are_refused(variant: str) -> None:
    core = KERNELS[variant]
    room = np.zeros(64, np.int64)

    def begin(**other: Any) -> None:
        given: dict[str, Any] = {
            "values": np.zeros((2, 11), np.int64),
            "exact": np.zeros((2, 8), np.int64),
            "before": np.zeros((1, 8), np.int64),
            "steps": np.ones(1, np.int64),
        }
        core.begin_night(**{**given, "n_matrices": 1, "d": 3, **other})

    begin()
    begin(before=np.zeros((0, 0), np.int64), steps=np.ones(0, np.int64))
    huge = {"n_matrices": 2**62, "d": 2**62}
    for sizes in ({"d": 4}, {"d": 0}, {"d": -3}, {"d": 2**62}, {"n_matrices": 0}, {"n_matrices": -1}, huge):
        with pytest.raises(ValueError, match="whole and packed"):
            begin(**sizes)
    for name, shape in (
        ("values", (3, 11)),
        ("exact", (1, 8)),
        ("before", (2, 8)),
        ("before", (1, 9)),
        ("steps", (2,)),
    ):
        with pytest.raises(ValueError, match="must"):
            begin(**{name: np.zeros(shape, np.int64)})
    with pytest.raises(ValueError, match="at most 2"):
        begin(before=np.zeros((4097, 8), np.int64), steps=np.ones(4097, np.int64))
    for name in ("values", "exact", "before", "steps"):
        with pytest.raises(TypeError):
            begin(**{name: np.zeros((2, 11), np.float64)})
    with pytest.raises(ValueError, match="must not overlap"):
        begin(exact=room[:16].reshape(2, 8), before=room[15:23].reshape(1, 8))
    with pytest.raises(ValueError, match="writeable"):
        begin(exact=np.broadcast_to(np.zeros((2, 8), np.int64), (2, 8)))
    values, exact = np.zeros((2, 11), np.int64), np.zeros((2, 8), np.int64)
    for noise, published in ((np.zeros(7, np.int64), np.zeros(8)), (np.zeros(8, np.int64), np.zeros(9))):
        with pytest.raises(ValueError, match="n entries"):
            core.end_night(values, exact, 1.0, noise, published, 1, 3)
    with pytest.raises(ValueError, match="must not overlap"):
        core.end_night(values, exact, 1.0, room[:8], room[7:15].view(np.float64), 1, 3)


@variants
def test_threads_do_not_meet(variant: str) -> None:
    core = KERNELS[variant]

    def work(seed: int) -> bytes:
        given = night(np.random.default_rng(seed % 3), 1, 60, 9, 11, 50)
        core.begin_night(**given)
        return bytes(given["values"].tobytes() + given["exact"].tobytes())

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(work, range(60)))) == 3
