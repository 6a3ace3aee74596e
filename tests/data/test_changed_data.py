"""Rows that differ between two passes: refused before the pass is answered, wherever the rows are and in every form."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import dask
import dask.array
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from conftest import Matrix, solve_seeded

import dpgep
from dpgep.data import checksum
from dpgep.data.checksum import PassChecksum
from dpgep.data.rows import Rows
from dpgep.sources.batches import Columns

N, D = 700, 6
NAMES = [f"x{i}" for i in range(D)]
REFUSED = "read different rows from the previous one"


@pytest.fixture
def rows(rng: np.random.Generator) -> Matrix:
    return np.asarray(np.round(rng.standard_normal((N, D)) * [4, 3, 2, 1, 1, 1]))


def changed(values: Any) -> Any:
    """One entry of one row is another."""
    other = values.copy()
    other[17, 2] = 1 - other[17, 2] if other.dtype == bool else other[17, 2] + 1
    return other


FORMS: dict[str, Callable[[Any], Any]] = {
    "float64": lambda x: x,
    "float32": lambda x: x.astype(np.float32),
    "int64": lambda x: x.astype(np.int64),
    "int16": lambda x: x.astype(np.int16),
    "boolean": lambda x: x > 0,
    "column by column": np.asfortranarray,
    "CSR": scipy.sparse.csr_array,
    "Arrow": lambda x: pa.table(dict(zip(NAMES, x.T, strict=True))),
    "pandas": lambda x: pd.DataFrame(x, columns=NAMES),
}
forms = pytest.mark.parametrize("form", FORMS)


class Source:
    """Batches of rows, cut anew in each pass; from pass ``change_at`` on, of the rows ``later``."""

    def __init__(self, first: Any, later: Any, change_at: int, form: str = "float64", pieces: int = 5) -> None:
        self.passes, self._first, self._later, self._change_at = 0, first, later, change_at
        self._form, self._pieces, self._rng = FORMS[form], pieces, np.random.default_rng(3)

    def __call__(self) -> Iterator[Any]:
        self.passes += 1
        rows = self._first if self.passes < self._change_at else self._later
        cuts = np.sort(self._rng.integers(0, N, self._pieces - 1))
        return (self._form(part) for part in np.split(rows, cuts))


# --- Who is asked ----------------------------------------------------------------------------------------------------

KNOWN = partial(dpgep.pca, bound=8.0)

RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "flow": (KNOWN, {"method": "rayleigh-flow", "n_iterations": 10}),
    "fresh noise": (KNOWN, {"method": "rayleigh-flow", "noise": "fresh", "n_iterations": 4}),
    "truncated flow": (
        KNOWN,
        {"method": "truncated-rayleigh-flow", "sparsity": 2, "init": "screen", "n_iterations": 5},
    ),
    "reduction": (KNOWN, {"method": "dpsr"}),
    "screen and release": (KNOWN, {"screen": 3}),
    "release by products": (KNOWN, {"storage": "operator"}),
    "clipped products": (KNOWN, {"method": "clipped-power"}),
    "a table": (partial(dpgep.pca, standardize=True), {}),
    "a table that keeps its units": (partial(dpgep.pca, center=False), {}),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_row_that_changes_is_refused_in_any_pass_after_the_first(name: str, rows: Matrix) -> None:
    make, options = RUNS[name]
    same = Source(rows, rows, 0)
    whole = solve_seeded(make(dpgep.scan(same)), mu=5.0, n_components=1, **options)
    assert whole.components.shape == (1, D)
    passes = same.passes
    assert passes >= 2
    for change_at in sorted({2, 1 + passes // 2, passes}):
        # a scan reads the first batch when it is made, and that pass goes on from there
        source = Source(rows, changed(rows), change_at)
        budget = dpgep.Budget(mu=5.0)
        with pytest.raises(dpgep.errors.DataChangedError, match=REFUSED):
            solve_seeded(make(dpgep.scan(source)), budget=budget, n_components=1, **options)
        assert source.passes == change_at
        assert budget.spent_mu > 0  # what was paid for stays spent


def test_the_attack_on_lazy_noise_is_refused() -> None:
    """A person who is e_1 when e_1 is asked and e_2 when e_2 is: both answers, of mu = 1, showed mu >= 1.87."""
    people = np.zeros((N, D))
    people[0, 0] = 1.0
    other = np.zeros((N, D))
    other[0, 1] = 1.0
    operator = dpgep.release(
        dpgep.pca(dpgep.scan(Source(people, other, 3)), center=False, bound=1.0), mu=1.0, storage="operator"
    )
    operator.a.matvec(np.eye(D)[0])
    for _ in range(3):
        with pytest.raises(dpgep.errors.DataChangedError, match="nothing of this pass was released"):
            operator.a.matvec(np.eye(D)[1])


def test_labels_that_change_are_refused(rows: Matrix) -> None:
    """Also where two people change places, so that no count and no sum over people moves."""
    labels = np.arange(N) % 3
    swapped = labels.copy()
    swapped[[4, 5]] = swapped[[5, 4]]
    calls = itertools.count()

    def batches() -> Iterator[Any]:
        return iter([(rows, labels if next(calls) < 1 else swapped)])

    source = dpgep.scan(batches)
    problem = dpgep.fda(source[0], source[1], classes=[0, 1, 2], bound=8.0)
    with pytest.raises(dpgep.errors.DataChangedError, match=REFUSED):
        solve_seeded(problem, mu=1.0, n_components=1, method="rayleigh-flow")


# --- Where the rows are ----------------------------------------------------------------------------------------------


@pytest.mark.one_in(2)
@forms
@pytest.mark.parametrize("pieces", [1, 5, 60])
def test_any_form_is_compared_however_it_is_cut(form: str, pieces: int, rows: Matrix) -> None:
    start = np.eye(D)[0]
    same = dpgep.release(
        dpgep.pca(dpgep.scan(Source(rows, rows, 0, form, pieces)), bound=8.0), mu=1.0, storage="operator"
    )
    for _ in range(4):
        same.a.matvec(start + np.random.default_rng(1).standard_normal(D))
    positive = rows > 0 if form == "boolean" else rows
    source = Source(positive, changed(positive), 3, form, pieces)
    other = dpgep.release(dpgep.pca(dpgep.scan(source), bound=8.0), mu=1.0, storage="operator")
    other.a.matvec(start)
    with pytest.raises(dpgep.errors.DataChangedError, match=REFUSED):
        other.a.matvec(np.eye(D)[1])


def dask_rows(rows: Matrix, later: Matrix, change_at: int) -> dask.array.Array:
    """An array of 7 chunks, one of which is another from its ``change_at``-th computation on."""
    calls = itertools.count(1)

    def third() -> Matrix:
        return rows[200:300] if next(calls) < change_at else later[200:300]

    chunks = [
        dask.array.from_delayed(dask.delayed(third, pure=False)(), (100, D), float)
        if start == 200
        else dask.array.from_array(rows[start : start + 100], chunks=100)
        for start in range(0, N, 100)
    ]
    return dask.array.concatenate(chunks)


@pytest.mark.parametrize("options", [{"method": "rayleigh-flow"}, {"screen": 3}], ids=["flow", "screen"])
def test_a_chunk_that_is_computed_differently_is_refused(options: Any, rows: Matrix) -> None:
    later = rows.copy()
    later[299, 5] += 1
    with dask.config.set(scheduler="synchronous"):
        solve_seeded(dpgep.pca(dask_rows(rows, rows, 0), bound=8.0), mu=1.0, n_components=1, **options)
        problem = dpgep.pca(dask_rows(rows, later, 2), bound=8.0)
        with pytest.raises(dpgep.errors.DataChangedError, match=r"call persist\(\)"):
            solve_seeded(problem, mu=1.0, n_components=1, **options)


# --- What it costs ---------------------------------------------------------------------------------------------------


def test_a_release_makes_no_checksum(rows: Matrix, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any) -> None:
        raise AssertionError("a checksum of a single pass")

    monkeypatch.setattr(PassChecksum, "add", never)
    problem = dpgep.pca(dpgep.scan([rows]), bound=8.0)
    solve_seeded(problem, mu=1.0)
    solve_seeded(dpgep.pca(dask.array.from_array(rows, chunks=100), bound=8.0), mu=1.0)
    with pytest.raises(AssertionError, match="a single pass"):
        solve_seeded(problem, mu=1.0, n_components=1, method="rayleigh-flow")


# --- The checksum ----------------------------------------------------------------------------------------------------


def digest_of(*batches: Any, key: bytes = b"0123456789abcdef", groups: Any = None) -> bytes:
    total = PassChecksum(key)
    for batch in batches:
        total.add(Rows((batch,), 1.0), groups)
    return total.digest()


def test_the_checksum_depends_on_rows_order_and_key_alone(rng: np.random.Generator) -> None:
    x = rng.standard_normal((40_000, 7)).astype(np.float32)  # 8.5 blocks
    expected = digest_of(x)
    for cut in (1, 4681, 4682, 39_999):
        assert digest_of(x[:cut], x[cut:]) == expected
        assert digest_of(x[:cut], np.asfortranarray(x[cut:])) == expected
    assert digest_of(x[::-1]) != expected
    assert digest_of(x[:-1]) != expected
    assert digest_of(np.concatenate([x, np.zeros_like(x[:1])])) != expected
    assert digest_of(x, groups=np.zeros(len(x), np.intp)) != expected
    assert digest_of(x, key=b"fedcba9876543210") != expected
    single, double = x[:9], x[9:18].astype(float)
    assert digest_of(single, double) != digest_of(double, single)
    assert len({digest_of(x[:5], key=os.urandom(16)) for _ in range(50)}) == 50


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, bool, ">f8"])
def test_the_checksum_of_a_table_looks_at_every_entry_wherever_it_is_cut(dtype: Any, rng: np.random.Generator) -> None:
    n = 40_000  # 2.4 blocks
    values = 3 * rng.standard_normal((3, n))
    x = values > 0 if dtype is bool else values.astype(dtype)
    expected = digest_of(Columns(list(x), n))
    for cut in (1, 16_383, 16_384, 16_385, 39_999):
        table = Columns(list(x), n)
        assert digest_of(table[:cut], table[cut:]) == expected
        assert digest_of(Columns(list(x[:, :cut]), cut), Columns(list(x[:, cut:]), n - cut)) == expected
    for row in (0, 16_384, n - 1):
        other = x.copy()
        other[1, row] = not other[1, row]
        assert digest_of(Columns(list(other), n)) != expected
    assert digest_of(Columns(list(x[[1, 0, 2]]), n)) != expected
    assert digest_of(Columns(list(x[:, :-1]), n - 1)) != expected
    if dtype is np.float64:  # the same bytes of another type
        assert digest_of(Columns([x[0].view(np.int64), x[1], x[2]], n)) != expected


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_no_bit(threads: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    x = rng.standard_normal((100_000, 10))
    monkeypatch.setenv("DPGEP_NUM_THREADS", str(threads))
    first = digest_of(x)
    assert first == digest_of(*np.array_split(x, 500))
    x[99_999, 9] = np.nextafter(x[99_999, 9], 1.0)
    assert digest_of(x) != first


@pytest.mark.one_in(2)
@pytest.mark.parametrize("bit", range(64))
def test_no_flipped_bit_is_missed(bit: int) -> None:
    """A checksum of one of the two sums misses the sign for every second of 300 keys, both miss none."""
    words = np.arange(50, dtype=np.uint64)
    other = words.copy()
    other[7] ^= np.uint64(1 << bit)
    missed = 0
    for number in range(300 if bit == 63 else 30):
        first, second = (checksum._Stream(checksum._keys(number.to_bytes(16, "little"))) for _ in range(2))
        first.update(words.view(np.uint8))
        second.update(other.view(np.uint8))
        assert first.digest() != second.digest()
        keys = checksum._keys(number.to_bytes(16, "little"))[0][:50]
        missed += bool((words * keys).sum() == (other * keys).sum())
    if bit == 63:
        assert 90 < missed < 210  # 150 are expected; outside with probability below 1e-10
    elif bit < 20:
        assert missed == 0  # one is found with probability below 1e-10
