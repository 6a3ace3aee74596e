"""The client: clipping, units, the amount of noise, and that it is the noise of the kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import dpgep
from dpgep import reference
from dpgep._dispatch import core
from dpgep.local import GaussianRandomizer
from dpgep.privacy.accounting import delta_of

KEY = bytes(range(32))
TERMS: dict[str, Any] = {"dim": 4, "bound": 2.0, "epsilon": 1.0, "delta": 1e-6}


def plain(dim: int = 4, bound: float = 2.0, **options: Any) -> GaussianRandomizer:
    return GaussianRandomizer(dim, bound, math.inf, **options)


def with_key(**options: Any) -> GaussianRandomizer:
    randomizer = GaussianRandomizer(**{**TERMS, **options})
    randomizer._stream = core.NoiseStream(KEY)
    return randomizer


def test_without_noise_a_report_is_the_square_of_the_record(rng: np.random.Generator) -> None:
    x = rng.standard_normal(4) / 4
    np.testing.assert_allclose(plain().randomize(x).matrix(), np.outer(x, x), rtol=1e-15)
    np.testing.assert_array_equal(plain().randomize_rows([x, x]).values[1], plain().randomize(x).values[0])


def test_long_records_are_shrunk_to_the_bound(rng: np.random.Generator) -> None:
    x = rng.standard_normal(4)
    x *= 2.0 / np.linalg.norm(x)
    for factor in (1.0, 7.0, 1e200):
        matrix = plain().randomize(factor * x).matrix()
        np.testing.assert_allclose(matrix, np.outer(x, x), rtol=1e-14)
        assert np.linalg.norm(matrix) <= 4.0
    np.testing.assert_allclose(plain().randomize(0.3 * x).matrix(), np.outer(x, x) * 0.09, rtol=1e-14)


def test_exact_records_are_in_the_ball_on_the_grid(rng: np.random.Generator) -> None:
    randomizer, zero = with_key(exact=True), with_key(exact=True)
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


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_noise_is_that_of_the_symmetric_kernel(dtype: str, rng: np.random.Generator) -> None:
    rows = rng.standard_normal((3, 4)) / 4
    randomizer = with_key(dtype=dtype)
    deviates, stream = np.empty((3, 10)), core.NoiseStream(KEY)
    for row in deviates:
        stream.normal(row)
    expected = [
        reference.pack(np.outer(x, x) / 4 + reference.symmetric_noise(4, randomizer.mechanism.deviation, "goe", z))
        for x, z in zip(rows, deviates, strict=True)
    ]
    values = randomizer.randomize_rows(rows).values
    assert values.dtype == np.dtype(dtype)
    np.testing.assert_allclose(values, expected, rtol=1e-12 if dtype == "float64" else 1e-6, atol=1e-12)


def test_many_blocks_are_one_block(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rng.standard_normal((37, 4))
    whole = with_key().randomize_rows(rows).values
    monkeypatch.setattr("dpgep.local.randomizer._BLOCK_BYTES", 8 * 10 * 5)
    np.testing.assert_array_equal(with_key().randomize_rows(rows).values, whole)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("records", [1, 3])
def test_noise_is_no_less_and_hardly_more_than_the_guarantee_needs(epsilon: float, exact: bool, records: int) -> None:
    mechanism = GaussianRandomizer(3, 1.5, epsilon, 1e-7, exact=exact, records_per_person=records).mechanism
    # k reports, each moved by at most sqrt(2) bound^2
    mu = math.sqrt(2 * records) / mechanism.deviation
    assert delta_of(epsilon, mu * (1 - 1e-12)) <= 1e-7
    assert delta_of(epsilon, mu * (1 + 1e-5)) > 1e-7
    assert mechanism.spent_mu() == pytest.approx(mu, rel=1e-10)
    if exact:
        noise = mechanism.noise
        assert math.ldexp(noise.diagonal, -2 * noise.bits) == mechanism.deviation
        assert 2 * noise.off_diagonal**2 >= noise.diagonal**2


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
@pytest.mark.parametrize("exact", [False, True])
def test_rows_may_come_in_any_form(rows: Any, exact: bool) -> None:
    expected = with_key(exact=exact).randomize_rows(np.eye(4)).values
    np.testing.assert_array_equal(with_key(exact=exact).randomize_rows(rows).values, expected)


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
@pytest.mark.parametrize("exact", [False, True])
def test_bad_records_are_refused(x: Any, error: type[Exception], reason: str, exact: bool) -> None:
    with pytest.raises(error, match=reason):
        GaussianRandomizer(**TERMS, exact=exact).randomize(x)
    with pytest.raises(ValueError, match="X must have 4 columns, got 3"):
        GaussianRandomizer(**TERMS, exact=exact).randomize_rows(np.ones((2, 3)))


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
        ({"dtype": "float16"}, ValueError, "dtype must be float64 or float32"),
        ({"dtype": "float64", "exact": True}, ValueError, "exact reports are int64"),
        ({"epsilon": math.inf, "exact": True}, ValueError, "epsilon = inf has none"),
        ({"epsilon": 1e-60, "delta": 1e-60, "dtype": "float32"}, ValueError, "overflow float32"),
        ({"epsilon": 1e-60, "delta": 1e-60, "exact": True}, ValueError, "use a larger budget"),
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
        with pytest.warns(dpgep.PrivacyWarning, match="seeded run is not private"):
            values.append(GaussianRandomizer(**TERMS, seed=3).randomize(np.ones(4)).values)
    np.testing.assert_array_equal(*values)
