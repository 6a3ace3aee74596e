"""The exact moment matrix: the same bits whatever the block size, threads, order of rows, memory layout or variant."""

import hashlib
import itertools
import math
import os
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, solve_seeded
from numpy.typing import NDArray

import dpgep
from dpgep._dispatch import core
from dpgep.data import integer_moments as moments_module
from dpgep.data import rows as rows_module
from dpgep.data.integer_moments import IntegerMoments
from dpgep.models.moments import MomentLayout, MomentNoise
from dpgep.privacy.noise import MOST_BITS, calibrate_moments, moment_mu, on_grid

BLOCK_BYTES = [1, 4000, 50_000, 1 << 20, 1 << 24]


def big_rows(rng: np.random.Generator, n: int = 9000) -> Matrix:
    """Rows inside, on and beyond the bound; more of them than one exact block of products holds."""
    return np.asarray(rng.standard_normal((n, 7)) * rng.choice([0.01, 0.3, 1.0, 50.0], (n, 1)))


def digest(moments: IntegerMoments) -> str:
    parts = (np.triu(moments.second), moments.sums, moments.counts)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def build(name: str, x: Matrix, order: NDArray[np.intp]) -> Any:
    labels = np.arange(len(x)) % 4
    return {
        "pca": lambda: dpgep.pca(x[order], bound=1.0),
        "cca": lambda: dpgep.cca(x[order, :3], x[order, 3:], bound=1.0),
        "fda": lambda: dpgep.fda(x[order], labels[order], classes=range(4), bound=1.0),
        "sir": lambda: dpgep.sir(x[order], x[order, 0], slices=5, y_range=(-1, 1), bound=1.0),
    }[name]()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["pca", "cca", "fda", "sir"])
def test_block_size_threads_and_row_order_leave_the_bits_alone(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = big_rows(rng)
    orders = [np.arange(len(x)), np.arange(len(x))[::-1], rng.permutation(len(x))]
    digests = set()
    monkeypatch.setattr(core, "narrow_dimension", 0)
    for bytes_per_block, threads, order in itertools.product(BLOCK_BYTES, ("1", "2"), orders):
        if bytes_per_block == 1 and order is not orders[0]:
            continue  # a block a row is slow in Python: one order is enough
        monkeypatch.setattr(rows_module, "_MOST_BYTES", bytes_per_block)
        monkeypatch.setenv("DPGEP_NUM_THREADS", threads)
        digests.add(digest(build(name, x, order).integer_moments(20)))
    monkeypatch.setattr(core, "narrow_dimension", 1 << 30)
    for threads, order in itertools.product(("1", "2", "3"), orders):
        monkeypatch.setenv("DPGEP_NUM_THREADS", threads)
        digests.add(digest(build(name, x, order).integer_moments(20)))
        digests.add(digest(build(name, np.asfortranarray(x), order).integer_moments(20)))
    assert len(digests) == 1


def test_every_variant_gives_the_same_bits_and_the_same_seeded_solution() -> None:
    script = textwrap.dedent("""
        import warnings, hashlib, numpy as np, dpgep
        warnings.simplefilter("ignore")
        x = np.random.default_rng(5).standard_normal((3000, 20)) / 3
        problem = dpgep.fda(x, np.arange(3000) % 3, classes=range(3), bound=1.0)
        moments = problem.integer_moments(20)
        parts = (np.triu(moments.second), moments.sums, moments.counts)
        solution = dpgep.solve(problem, mu=1.0, seed=1)
        print(dpgep.build_info()["variant"], hashlib.sha256(b"".join(p.tobytes() for p in parts)).hexdigest(),
              hashlib.sha256(solution.components.tobytes()).hexdigest())
    """)
    seen = {}
    for variant in dpgep.build_info()["available_variants"].split(", "):
        run = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "DPGEP_SIMD": variant},
            capture_output=True,
            text=True,
            check=True,
        )
        name, *digests = run.stdout.split()
        seen[name] = tuple(digests)
        assert name == variant
    assert len(set(seen.values())) == 1


@pytest.mark.usefixtures("dense_sums")
def test_it_is_the_integer_sum_over_rows(rng: np.random.Generator) -> None:
    x = big_rows(rng, 60)
    moments = dpgep.fda(x, np.arange(60) % 3, classes=range(3), bound=1.0).integer_moments(20)
    shrunk = x * np.minimum(1, 1 / np.linalg.norm(x, axis=1, keepdims=True))
    rows = [[int(v) for v in row] for row in np.trunc(shrunk * 2**20)]
    second = np.zeros((7, 7), dtype=object)
    sums, counts = np.zeros((7, 3), dtype=object), np.zeros(3, dtype=object)
    for i, row in enumerate(rows):
        assert sum(v * v for v in row) <= 4**20
        second += np.outer(np.array(row, dtype=object), np.array(row, dtype=object))
        sums[:, i % 3] += np.array(row, dtype=object) * 2**20
        counts[i % 3] += 4**20
    # a row on the boundary may be rounded the other way by NumPy's norm: compare within one unit a row
    assert np.abs(np.triu(moments.second - second)).max() <= 60 * 2**21
    np.testing.assert_array_equal(moments.counts, counts)
    assert np.abs(moments.sums - sums).max() <= 60 * 2**20


@pytest.mark.usefixtures("dense_sums")
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int16, np.float16])
def test_dtypes_that_hold_the_same_values_give_the_same_bits(dtype: Any, rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, (500, 6)).astype(dtype)
    plain = digest(dpgep.pca(x.astype(np.float64), bound=150.0).integer_moments(20))
    assert digest(dpgep.pca(x, bound=150.0).integer_moments(20)) == plain
    assert digest(dpgep.pca(np.asfortranarray(x), bound=150.0).integer_moments(20)) == plain


@pytest.mark.usefixtures("dense_sums")
def test_two_limbs_add_up(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few rows a limb, the high limb is used; the sum and its float value are those of one limb."""
    x = big_rows(rng, 3000)
    one = dpgep.fda(x, np.arange(3000) % 3, classes=range(3), bound=1.0).integer_moments(20)
    monkeypatch.setattr(moments_module, "_LIMB_BITS", 50)  # 1024 rows a limb
    two = dpgep.fda(x, np.arange(3000) % 3, classes=range(3), bound=1.0).integer_moments(20)
    assert one.high is None
    assert two.high is not None
    assert max(int(part.max()) for part in two.high) > 0
    for a, b in zip(one.to_float(), two.to_float(), strict=True):
        np.testing.assert_array_equal(np.triu(a) if a.shape == (7, 7) else a, np.triu(b) if b.shape == (7, 7) else b)


def test_release_is_exact_and_the_ledger_holds_integers(correlated_rows: Matrix) -> None:
    for problem in (
        dpgep.pca(correlated_rows, bound=1.0),
        dpgep.cca(correlated_rows[:, :3], correlated_rows[:, 3:], bound=1.0),
    ):
        report = solve_seeded(problem, epsilon=1.0, delta=1e-5).privacy
        assert (report.exact, report.rounding) == (True, "integer")
        (release,) = report.releases
        assert release.grid_bits == 20
        for block in release.noise:
            assert isinstance(block.scale, int)
            assert block.deviation == math.ldexp(block.scale, -40)
    gep = dpgep.gep(np.eye(3), n=10, sensitivity_a=1.0)
    assert solve_seeded(gep, mu=1.0).privacy.rounding == "grid"
    assert not dpgep.solve(dpgep.pca(correlated_rows, bound=1.0), epsilon=math.inf).privacy.exact


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.26, 1.0, 40.0, 1e6])
def test_integer_scales_are_rounded_up_and_still_within_mu(mu: float) -> None:
    for groups, sums, counts in ((0, False, False), (1, True, False), (5, True, True)):
        layout = MomentLayout(9, groups, sums=sums, counts=counts)
        noise = calibrate_moments(mu, layout, "replace-one")
        grid = on_grid(noise)
        deviations = grid.deviations()
        assert deviations.second >= noise.second
        assert moment_mu(deviations, layout, "replace-one") <= mu
        assert 2 * grid.off_diagonal**2 >= grid.diagonal**2 > 2 * (grid.off_diagonal - 1) ** 2
        assert max(grid.diagonal, grid.sums, grid.counts) <= 2**56
        assert grid.bits == MOST_BITS or mu < 1e-4


def test_a_budget_beyond_the_grid_is_refused_before_data_is_read() -> None:
    with pytest.raises(ValueError, match="use a larger budget"):
        on_grid(MomentNoise(1e20, 1.0, 1.0))


def test_a_tiny_budget_uses_a_coarser_grid(correlated_rows: Matrix) -> None:
    solution = solve_seeded(dpgep.pca(correlated_rows, bound=1.0), mu=1e-7)
    assert solution.privacy.releases[0].grid_bits < MOST_BITS
    assert np.isfinite(solution.components).all()


def test_threads_are_counted_from_the_environment(monkeypatch: pytest.MonkeyPatch, correlated_rows: Matrix) -> None:
    seen = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("DPGEP_NUM_THREADS", threads)
        seen.append(solve_seeded(dpgep.pca(correlated_rows, bound=1.0), mu=1.0).components)
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])
    monkeypatch.setenv("DPGEP_NUM_THREADS", "many")
    with pytest.raises(ValueError, match="DPGEP_NUM_THREADS must be a positive whole number, got 'many'"):
        solve_seeded(dpgep.pca(correlated_rows, bound=1.0), mu=1.0)
