"""The client: clipping to the grid, units, the amount of noise, and that it is the noise of the exact sampler."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import reference
import scipy.sparse

import dpgep
from dpgep._dispatch import core
from dpgep.local import GaussianRandomizer
from dpgep.privacy.accounting import delta_of

KEY = bytes(range(32))
TERMS: dict[str, Any] = {"dim": 4, "bound": 2.0, "epsilon": 1.0, "delta": 1e-6}


# Rounding a record of norm at most R = 2 to the grid moves no entry of x x^T by more than 2 R^2 / 2^20.
GRID = 2 * 4.0 / 2**20


def plain() -> GaussianRandomizer:
    return GaussianRandomizer(4, 2.0, math.inf)


def with_key(**options: Any) -> GaussianRandomizer:
    randomizer = GaussianRandomizer(**{**TERMS, **options})
    randomizer._stream = core.NoiseStream(KEY)
    return randomizer


def test_without_noise_a_report_is_the_square_of_the_record_on_its_grid(rng: np.random.Generator) -> None:
    x = rng.standard_normal(4) / 4
    report = plain().randomize(x)
    (q,) = reference.fixed_point_rows(x[None, :], 2.0, 20)
    np.testing.assert_array_equal(report.values[0], reference.pack(np.outer(q, q)))
    np.testing.assert_allclose(report.matrices()[0], np.outer(x, x), rtol=0, atol=GRID)
    np.testing.assert_array_equal(plain().randomize_rows([x, x]).values[1], report.values[0])
    # what lies on the grid is kept to the last bit
    on_grid = np.array([0.5, -0.25, 2.0**-18, 0.0])
    np.testing.assert_array_equal(plain().randomize(on_grid).matrices()[0], np.outer(on_grid, on_grid))


def test_long_records_are_shrunk_to_the_bound(rng: np.random.Generator) -> None:
    x = rng.standard_normal(4)
    x *= 2.0 / np.linalg.norm(x)
    for factor in (1.0, 7.0, 1e150):
        report = plain().randomize(factor * x)
        np.testing.assert_allclose(report.matrices()[0], np.outer(x, x), rtol=0, atol=GRID)
        diagonal = report.values[0][[0, 4, 7, 9]]
        assert diagonal.sum() <= 4**20  # the squared norm, without rounding
    np.testing.assert_allclose(plain().randomize(0.3 * x).matrices()[0], np.outer(x, x) * 0.09, rtol=0, atol=GRID)


def test_records_are_in_the_ball_on_the_grid(rng: np.random.Generator) -> None:
    randomizer, zero = with_key(), with_key()
    rows = rng.standard_normal((50, 4)) * 3
    noise = zero.randomize_rows(np.zeros((50, 4))).values
    products = randomizer.randomize_rows(rows).values - noise
    bits = randomizer.mechanism.bits
    assert bits == 20
    q = reference.fixed_point_rows(rows, 2.0, bits)
    first, second = np.triu_indices(4)
    np.testing.assert_array_equal(products, q[:, first] * q[:, second])
    assert products.dtype == np.int64
    trace = products[:, first == second].sum(axis=1)
    assert trace.max() <= 4**20


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_noise_is_that_of_the_exact_sampler(dtype: str, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((3, 4)) / 4
    randomizer, stream = with_key(dtype=dtype), core.NoiseStream(KEY)
    noise = randomizer.mechanism.noise
    diagonal, triangles = np.empty(12, dtype=np.int64), np.empty(30, dtype=np.int64)
    core.exact_normal(diagonal, noise.diagonal, stream)
    core.exact_normal(triangles, noise.off_diagonal, stream)
    expected = triangles.reshape(3, 10)
    expected[:, [0, 4, 7, 9]] = diagonal.reshape(3, 4)
    q = reference.fixed_point_rows(rows, 2.0, noise.bits).astype(np.int64)
    expected += [reference.pack(np.outer(each, each)) for each in q]
    values = randomizer.randomize_rows(rows).values
    assert values.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(values, expected.astype(dtype))


def test_float32_is_the_released_integer_rounded(rng: np.random.Generator) -> None:
    """Post-processing, and an integer again: servers add both without rounding."""
    rows = rng.standard_normal((200, 4))
    integers, rounded = (with_key(dtype=dtype).randomize_rows(rows) for dtype in ("int64", "float32"))
    np.testing.assert_array_equal(rounded.values, integers.values.astype(np.float32))
    # the nearest of 24 bits, judged in integers
    errors = np.abs(rounded.values.astype(np.int64) - integers.values)
    assert (errors.astype(object) * 2**24 <= np.abs(integers.values)).all()
    assert errors.any()
    assert len(rounded[0].to_bytes()) - 64 == (len(integers[0].to_bytes()) - 64) / 2


def test_many_blocks_are_one_block(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rng.standard_normal((37, 4))
    whole = with_key().randomize_rows(rows).values
    monkeypatch.setattr("dpgep.local.protocol._BLOCK_BYTES", 8 * 10 * 5)
    np.testing.assert_array_equal(with_key().randomize_rows(rows).values, whole)


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("records", [1, 3])
def test_noise_is_no_less_and_hardly_more_than_the_guarantee_needs(epsilon: float, records: int) -> None:
    mechanism = GaussianRandomizer(3, 1.5, epsilon, 1e-7, records_per_person=records).mechanism
    # k reports, each moved by at most sqrt(2) bound^2
    mu = math.sqrt(2 * records) / mechanism.deviation
    assert delta_of(epsilon, mu * (1 - 1e-12)) <= 1e-7
    assert delta_of(epsilon, mu * (1 + 1e-5)) > 1e-7
    assert mechanism.spent_mu() == pytest.approx(mu, rel=1e-10)
    # what is drawn, in integers: two orthogonal records of norm 2^b, whose squares are sqrt(2) 4^b apart
    noise = mechanism.noise
    assert noise.bits == mechanism.bits
    assert math.ldexp(noise.diagonal, -2 * noise.bits) == mechanism.deviation
    assert 2 * noise.off_diagonal**2 >= noise.diagonal**2
    assert 2 * (noise.off_diagonal - 1) ** 2 < noise.diagonal**2


def test_ledger_of_one_person_composes_to_the_budget() -> None:
    import dp_accounting

    mechanism = GaussianRandomizer(3, 1.0, 1.0, 1e-6, records_per_person=4).mechanism
    assert len(mechanism.releases()) == 4
    accountant = dp_accounting.pld.PLDAccountant()
    for release in mechanism.releases():
        accountant.compose(dp_accounting.GaussianDpEvent(1 / release.mu))
        assert release.noise[0].deviation == mechanism.deviation
    assert accountant.get_epsilon(1e-6) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize(
    "rows",
    [
        np.asfortranarray(np.eye(4)),
        np.eye(4, dtype=np.uint8),
        np.eye(4, dtype=np.float32)[:, ::-1][:, ::-1],
        scipy.sparse.csr_array(np.eye(4)),
        np.eye(4).tolist(),
        np.eye(4).astype(">f8"),
    ],
    ids=["Fortran", "uint8", "strided", "csr", "list", "big-endian"],
)
def test_rows_may_come_in_any_form(rows: Any) -> None:
    np.testing.assert_array_equal(with_key().randomize_rows(rows).values, with_key().randomize_rows(np.eye(4)).values)


def test_rows_are_not_changed(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((5, 4)) * 9
    before = rows.copy()
    GaussianRandomizer(**TERMS).randomize_rows(rows)
    np.testing.assert_array_equal(rows, before)


def test_no_rows_make_no_reports() -> None:
    assert len(GaussianRandomizer(**TERMS).randomize_rows(np.empty((0, 4)))) == 0


@pytest.mark.parametrize(
    ("x", "error", "reason"),
    [
        (np.ones(3), ValueError, r"x must have shape \(4,\), got \(3,\)"),
        (np.ones((1, 4)), ValueError, r"x must have shape \(4,\), got \(1, 4\)"),
        ([1.0, np.nan, 0, 0], ValueError, "NaN or infinite"),
        ([1.0, np.inf, 0, 0], ValueError, "NaN or infinite"),
        (["a", "b", "c", "d"], TypeError, "x must hold real numbers"),
        (np.ones(4) * 1j, TypeError, "x is complex"),
    ],
)
def test_bad_records_are_refused(x: Any, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        GaussianRandomizer(**TERMS).randomize(x)
    with pytest.raises(ValueError, match="X must have 4 columns, got 3"):
        GaussianRandomizer(**TERMS).randomize_rows(np.ones((2, 3)))


@pytest.mark.parametrize(
    ("changed", "error", "reason"),
    [
        ({"dim": 0}, ValueError, "dim must be a whole number"),
        ({"dim": 2.0}, ValueError, "dim must be a whole number"),
        ({"dim": 2**17}, ValueError, "dim must be a whole number between 1 and 65536"),
        ({"bound": 0.0}, ValueError, "bound must be a positive"),
        ({"bound": "1 m"}, TypeError, "bound must be a number"),
        ({"epsilon": 0.0}, ValueError, "epsilon must be a positive"),
        ({"delta": None}, ValueError, "epsilon needs a delta"),
        ({"delta": 1.0}, ValueError, "delta must lie strictly between"),
        ({"records_per_person": 0}, ValueError, "records_per_person must be a whole number"),
        ({"dtype": "float64"}, ValueError, "dtype must be int64 or float32, got 'float64'"),
        ({"dtype": None}, ValueError, "dtype must be int64 or float32, got None"),
        ({"exact": False}, TypeError, "unexpected keyword argument 'exact'"),
        ({"epsilon": 1e-60, "delta": 1e-60}, ValueError, "use a larger budget"),
        ({"seed": 1.5}, TypeError, "seed must be a whole number"),
    ],
)
def test_bad_parameters_are_refused(changed: dict[str, Any], error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        GaussianRandomizer(**{**TERMS, **changed})


@pytest.mark.entropy
def test_noise_is_fresh_for_every_report_client_and_row() -> None:
    randomizers = [GaussianRandomizer(**TERMS) for _ in range(2)]
    values = np.vstack([r.randomize_rows(np.zeros((2, 4))).values for r in randomizers for _ in range(2)])
    assert len(np.unique(values)) == values.size


def test_a_seed_reproduces_and_warns() -> None:
    values = []
    for _ in range(2):
        with pytest.warns(dpgep.errors.PrivacyWarning, match="seeded run is not private"):
            values.append(GaussianRandomizer(**TERMS, seed=3).randomize(np.ones(4)).values)
    np.testing.assert_array_equal(*values)
