"""`dpgep.Moments`: any split, order and merging of batches gives the same bits; storage that notices damage."""

import contextlib
import hashlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from conftest import Matrix, solve_seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from model_rows import MODELS, D, arguments, dataset
from stored import bytes_of

import dpgep
from dpgep._dispatch import core
from dpgep.data import integer_moments
from dpgep.data.integer_sums import sparse_on_grid
from dpgep.data.rows import Rows
from dpgep.problems.mergeable_moments import problem_from

names = pytest.mark.parametrize("name", MODELS)


def summed(name: str, rows: Any, parts: Any) -> dpgep.Moments:
    moments = dpgep.Moments(MODELS[name], bound=1.0)
    for part in parts:
        moments.update(*arguments(name, rows, part))
    return moments


def problem(name: str, rows: Any) -> Any:
    keywords: dict[str, Any] = {
        "fda": {"classes": ["a", "b", "c"]},
        "sir": {"edges": [-np.inf, -0.5, 0.0, 0.5, np.inf]},
        "contrastive-pca": {"target": "b", "background": "c", "alpha": 0.5},
    }.get(name, {})
    if name == "multiset-cca":
        return dpgep.multiset_cca(arguments(name, rows), bound=1.0)
    builder = (
        partial(dpgep.pca, standardize=True) if name == "standardized-pca" else getattr(dpgep, name.replace("-", "_"))
    )
    return builder(*arguments(name, rows), bound=1.0, **keywords)


@names
@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(0, 500), max_size=6), seed=st.integers(0, 9))
def test_any_split_order_and_merging_gives_the_same_bytes(name: str, cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = dataset(rng)
    whole = bytes_of(summed(name, rows, [slice(None)]))
    parts = np.split(rng.permutation(500), sorted(cuts))
    assert bytes_of(summed(name, rows, parts)) == whole
    merged = dpgep.Moments(MODELS[name], bound=1.0)
    for part in parts:
        merged.merge(summed(name, rows, [part]))
    assert bytes_of(merged) == whole


@names
def test_the_solution_is_that_of_the_rows_themselves(name: str, rng: np.random.Generator) -> None:
    rows = dataset(rng)
    ours = solve_seeded(summed(name, rows, np.split(np.arange(500), [100, 300])), mu=1.0, n_components=2)
    theirs = solve_seeded(problem(name, rows), mu=1.0, n_components=2)
    np.testing.assert_array_equal(ours.components, theirs.components)
    np.testing.assert_array_equal(ours.eigenvalues, theirs.eigenvalues)
    assert ours.privacy == theirs.privacy


@pytest.mark.filterwarnings("ignore:.*rows exceed the bound")
@names
def test_without_noise_it_is_the_solution_to_the_grid(name: str, rng: np.random.Generator) -> None:
    rows = dataset(rng)
    ours = dpgep.solve(summed(name, rows, [slice(None)]), epsilon=np.inf)
    theirs = dpgep.solve(problem(name, rows), epsilon=np.inf)
    np.testing.assert_allclose(ours.eigenvalues, theirs.eigenvalues, atol=1e-4)
    assert ours.privacy.mu == np.inf


@names
@pytest.mark.parametrize("limb_bits", [62, 46])
def test_bytes_pickles_and_files_keep_everything(
    name: str, limb_bits: int, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integer_moments, "_LIMB_BITS", limb_bits)  # 46: 64 rows a limb, so that there are two
    rows = dataset(rng)
    moments = summed(name, rows, [slice(None, 300)])
    moments.save(tmp_path / "moments")
    assert [path.name for path in tmp_path.iterdir()] == ["moments"]
    for other in (
        dpgep.load(bytes_of(moments)),
        pickle.loads(pickle.dumps(moments)),
        dpgep.load(tmp_path / "moments"),
        moments.copy(),
    ):
        assert (other.n, other._description()) == (300, {**moments._description(), "bits": 20})
        other.update(*arguments(name, rows, slice(300, None)))
        assert bytes_of(other) == bytes_of(summed(name, rows, [slice(None)]))
    assert moments.n == 300


def test_two_limbs_hold_what_one_cannot(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = dataset(rng)
    plain = solve_seeded(summed("fda", rows, [slice(None)]), mu=1.0)
    monkeypatch.setattr(integer_moments, "_LIMB_BITS", 46)
    for cuts in itertools.combinations([50, 63, 64, 65, 200, 450], 3):
        parts = np.split(np.arange(500), cuts)
        moments = summed("fda", rows, parts[:2])
        moments.merge(summed("fda", rows, parts[2:]))
        assert moments._sums.limbs()[1] is not None
        np.testing.assert_array_equal(solve_seeded(moments, mu=1.0).components, plain.components)


def resealed(data: bytes) -> bytes:
    """The bytes with a checksum that fits."""
    return data[:-32] + hashlib.sha256(data[:-32]).digest()


@pytest.mark.parametrize("damage", ["cut", "altered", "empty", "version", "other"])
def test_damaged_bytes_are_refused(damage: str, rng: np.random.Generator) -> None:
    data = bytes_of(summed("pca", dataset(rng), [slice(None)]))
    damaged, message = {
        "cut": (data[:-10], "incomplete or was altered"),
        "altered": (data[:200] + bytes([data[200] ^ 1]) + data[201:], "incomplete or was altered"),
        "empty": (b"", "this is no JSON"),
        "version": (
            resealed(data.replace(b'"version": 1', b'"version": 2')),
            "in version 2 of its format; this dpgep reads 1",
        ),
        "other": (b"PK" + data, "no file of dpgep|no JSON"),
    }[damage]
    with pytest.raises(ValueError, match=message):
        dpgep.load(damaged)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_every_altered_byte_is_noticed(data: Any) -> None:
    packed = bytearray(bytes_of(summed("sir", dataset(np.random.default_rng(1), 20), [slice(None)])))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError, match=r"no file of dpgep|altered|no JSON"):
        dpgep.load(bytes(packed))


@names
@pytest.mark.usefixtures("dense_sums")
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_a_bad_batch_leaves_the_sums_as_they_were(name: str, form: Any, rng: np.random.Generator) -> None:
    rows = dataset(rng, 20_000)
    moments = summed(name, rows, [slice(None, 9000)])
    before = bytes_of(moments)
    rows[0][19_990, 1] = np.nan
    bad = [form(part) if isinstance(part, np.ndarray) and part.ndim == 2 else part for part in arguments(name, rows)]
    with pytest.raises(ValueError, match="NaN or infinite"):
        moments.update(*bad)
    assert bytes_of(moments) == before
    wrong = [part[:, :1] if part.ndim == 2 else part for part in arguments(name, rows)]
    with pytest.raises(ValueError, match="columns"):
        moments.update(*wrong)
    assert bytes_of(moments) == before
    rows[0][19_990, 1] = 0.0
    moments.update(*arguments(name, rows, slice(9000, None)))
    assert bytes_of(moments) == bytes_of(summed(name, rows, [slice(None)]))


@pytest.mark.parametrize("n", [400, 560, 1500, 9000])
def test_so_does_one_of_wide_rows(n: int, rng: np.random.Generator) -> None:
    """One block, blocks that are looked at first, that fill partial sums of their own, that fill sums of their own."""
    x = rng.standard_normal((n, 300)) / 20
    moments, before = (dpgep.Moments(dpgep.models.PcaModel(300, center=True), bound=1.0) for _ in range(2))
    for each in (moments, before):
        each.update(x[:300], n_threads=1)
    spoiled = x.copy()
    spoiled[-1, 7] = np.inf
    with pytest.raises(ValueError, match="NaN or infinite"):
        moments.update(spoiled, n_threads=1)
    moments.update(x, n_threads=1)
    for part in np.array_split(x, 30):
        before.update(part)
    assert bytes_of(moments) == bytes_of(before)


def test_interrupted_sums_are_of_no_use(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = summed("pca", dataset(rng), [slice(None)])

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(core, "narrow_dimension", 0)
    monkeypatch.setattr(integer_moments, "add_products", interrupted)
    with pytest.raises(KeyboardInterrupt):
        moments.update(np.zeros((3, D)))
    for use in (
        lambda: bytes_of(moments),
        lambda: moments.update(np.zeros((3, D))),
        lambda: dpgep.solve(moments, mu=1.0),
    ):
        with pytest.raises(RuntimeError, match="return to the last checkpoint"):
            use()


@pytest.mark.parametrize("narrow", [0, 160])
def test_wherever_they_are_interrupted_sums_hold_a_whole_batch_or_say_so(
    narrow: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of people without a class, who have no row."""
    monkeypatch.setattr(core, "narrow_dimension", min(narrow, core.narrow_dimension))
    x, labels = np.eye(20, D), np.arange(20) % 3
    added = {20: False, 40: False}
    for step in itertools.count():
        moments = dpgep.Moments(dpgep.models.FdaModel(D, (0, 1)), adjacency="replace-one", bound=1.0)
        moments.update(x, labels)
        left = itertools.count(-step)

        def trace(frame: Any, event: str, _: Any, left: Iterator[int] = left) -> Any:
            if frame.f_code.co_filename != integer_moments.__file__:
                return None
            if event == "line" and next(left) == 0:
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            moments.update(x, labels)
            done = True
        except KeyboardInterrupt:
            done = False
        finally:
            sys.settrace(None)
        with contextlib.suppress(RuntimeError):
            added[dpgep.load(bytes_of(moments)).n] = True
        if done:
            break
    assert added == {20: True, 40: True}


def test_interrupted_sums_of_narrow_rows_are_as_before(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = dataset(rng)[0]
    moments, whole = summed("pca", (x, None, None), [slice(200)]), summed("pca", (x, None, None), [slice(None)])
    before = bytes_of(moments)
    monkeypatch.setattr(core, "narrow_dimension", D + 1)
    monkeypatch.setattr(integer_moments, "_WORK_OF_A_PART", 50 * integer_moments._WORK_OF_A_ROW)  # 51 people a part
    kernel, calls = core.add_dense_moments, itertools.count()

    def interrupted(*arguments: Any) -> bool:
        if next(calls) == 3:
            raise KeyboardInterrupt
        return kernel(*arguments)

    monkeypatch.setattr(core, "add_dense_moments", interrupted)
    with pytest.raises(KeyboardInterrupt):
        moments.update(x[200:])
    assert bytes_of(moments) == before
    moments.update(x[200:])
    assert bytes_of(moments) == bytes_of(whole)
    assert next(calls) == 10  # 4 until the interruption, and 6 for all of the 300 people


def test_threads_take_turns(rng: np.random.Generator) -> None:
    x = dataset(rng, 4000)[0]
    one, two = dpgep.Moments(MODELS["pca"], bound=1.0), dpgep.Moments(MODELS["pca"], bound=1.0)

    def add(part: Matrix) -> None:
        for batch in np.array_split(part, 50):
            one.update(batch)
            two.update(batch)

    def merge() -> None:
        dpgep.Moments(MODELS["pca"], bound=1.0).merge(one)
        one.merge(dpgep.Moments(MODELS["pca"], bound=1.0))
        bytes_of(two)

    with ThreadPoolExecutor(6) as pool:
        tasks = [pool.submit(add, part) for part in np.split(x, 4)] + [pool.submit(merge) for _ in range(40)]
        for task in tasks:
            task.result()
    whole = bytes_of(summed("pca", (x, None, None), [slice(None)]))
    assert bytes_of(one) == bytes_of(two) == whole
    with pytest.raises(ValueError, match="with themselves"):
        one.merge(one)


def test_only_alike_moments_are_merged(rng: np.random.Generator) -> None:
    moments = dpgep.Moments(MODELS["pca"], bound=1.0)
    for other, message in [
        (dpgep.Moments(dpgep.models.PcaModel(D, center=False), bound=1.0), "differ in model"),
        (dpgep.Moments(MODELS["pca"], bound=2.0), r"differ in bound \(1.0 and 2.0\)"),
        (dpgep.Moments(MODELS["pca"], bits=12, bound=1.0), r"differ in bits \(20 and 12\)"),
        (dpgep.Moments(MODELS["pca"], adjacency="add-remove", bound=1.0), "differ in adjacency"),
    ]:
        with pytest.raises(ValueError, match=message):
            moments.merge(other)
    with pytest.raises(TypeError, match="only Moments"):
        moments.merge(b"")  # type: ignore[arg-type]


def test_wrong_uses_say_what_to_do(rng: np.random.Generator) -> None:
    with pytest.raises(TypeError, match="model must be"):
        dpgep.Moments("pca", bound=1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="bits must be a whole number from 4 to 20"):
        dpgep.Moments(MODELS["pca"], bits=21, bound=1.0)
    with pytest.raises(TypeError, match="fda needs X and labels"):
        dpgep.Moments(MODELS["fda"], bound=1.0).update(np.zeros((3, D)))
    with pytest.raises(TypeError, match="pca needs X"):
        dpgep.Moments(MODELS["pca"], bound=1.0).update(np.zeros((3, D)), np.zeros(3))
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match="a release needs at least 2"):
        dpgep.solve(dpgep.Moments(MODELS["pca"], bound=1.0), budget=budget)
    moments = summed("pca", dataset(rng), [slice(None)])
    for method in ("rayleigh-flow", "dpsr"):
        with pytest.raises(ValueError, match="contain no rows"):
            dpgep.solve(moments, budget=budget, method=method, n_components=1)
    with pytest.raises(TypeError, match="stored"):
        bytes_of(dpgep.Moments(dpgep.models.FdaModel(D, (("a", 1), ("b", 2))), bound=1.0))
    assert budget.spent_mu == 0.0


@pytest.mark.filterwarnings("ignore:components .* are lost")
def test_a_coarse_grid_serves_small_budgets(rng: np.random.Generator) -> None:
    fine, coarse = (dpgep.Moments(MODELS["pca"], bits=bits, bound=1.0) for bits in (20, 8))
    for moments in (fine, coarse):
        moments.update(dataset(rng)[0])
    with pytest.raises(ValueError, match="summed with bits="):
        dpgep.solve(fine, mu=1e-6)
    assert dpgep.solve(coarse, mu=1e-6).privacy.exact


def test_add_remove_releases_the_number_of_people(rng: np.random.Generator) -> None:
    rows = dataset(rng)
    moments = dpgep.Moments(MODELS["pca"], adjacency="add-remove", bound=1.0)
    moments.update(rows[0])
    ours = solve_seeded(moments, mu=1.0)
    theirs = solve_seeded(dpgep.pca(rows[0], adjacency="add-remove", bound=1.0), mu=1.0)
    np.testing.assert_array_equal(ours.components, theirs.components)
    assert "n=" not in repr(moments)
    assert problem_from(moments).facts.n is None


def test_a_refusal_advises_what_moments_can_take() -> None:
    moments = dpgep.Moments(MODELS["pca"], bound=1.0)
    for rows in (np.full((3, 5), np.nan), dpgep.scan(lambda: iter([np.full((3, 5), np.nan)]))):
        with pytest.raises(
            ValueError, match=r"by the preprocessing of an earlier .*; the sums are unchanged"
        ) as caught:
            moments.update(rows)
        assert "AutoPreprocessing" not in str(caught.value)
    assert moments.n == 0


def test_moments_show_what_a_user_does_with_them() -> None:
    public = {name for name in dir(dpgep.Moments(MODELS["pca"], bound=1.0)) if not name.startswith("_")}
    facts = {"model", "bound", "preprocessing", "bits", "person", "n"}
    assert public == {*facts, "update", "merge", "require_same_kind", "copy", "save"}


def test_a_run_is_about_the_people_of_its_beginning(rng: np.random.Generator) -> None:
    """Those who come later are in the next one."""
    rows = dataset(rng)
    moments = summed("pca", rows, [slice(None, 300)])
    problem: Any = problem_from(moments)
    moments.update(*arguments("pca", rows, slice(300, None)))
    assert (problem.facts.n, problem.integer_moments(20).n, moments.n) == (300, 300, 500)


def test_a_killed_run_is_resumed_from_its_checkpoint(tmp_path: Path) -> None:
    """A process that is killed anywhere leaves a whole checkpoint; resumed, it gives the same bits."""
    script = textwrap.dedent("""
        import sys, pathlib, numpy as np, dpgep
        path = pathlib.Path(sys.argv[1])
        model = dpgep.models.PcaModel(40, center=True)
        moments = dpgep.load(path) if path.exists() else dpgep.Moments(model, bound=1.0)
        while moments.n < 60 * 500:
            batch = np.random.default_rng(moments.n // 500).standard_normal((500, 40)) / 8
            moments.update(batch)
            moments.save(path)
            print(moments.n, flush=True)
    """)
    command = [sys.executable, "-c", script]
    with subprocess.Popen([*command, str(tmp_path / "one")], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        for _ in range(5):
            run.stdout.readline()
        os.kill(run.pid, signal.SIGKILL)
    assert 0 < dpgep.load(tmp_path / "one").n < 60 * 500
    subprocess.run([*command, str(tmp_path / "one")], check=True, stdout=subprocess.DEVNULL)
    whole = dpgep.Moments(dpgep.models.PcaModel(40, center=True), bound=1.0)
    for seed in range(60):
        whole.update(np.random.default_rng(seed).standard_normal((500, 40)) / 8)
    assert (tmp_path / "one").read_bytes() == bytes_of(whole)


@pytest.mark.parametrize("bits", [20, 16])
@pytest.mark.parametrize("name", ["pca", "fda"])
def test_rows_almost_without_entries_fill_no_limb(
    name: str, bits: int, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Marks of groups add 4^bits a row, however few entries there are: with 64 rows a limb, more come in one batch."""
    monkeypatch.setattr(integer_moments, "_LIMB_BITS", 2 * bits + 6)
    n = 5000
    x = scipy.sparse.csr_array(([0.5], ([7], [1])), shape=(n, D))
    model = {"pca": dpgep.models.PcaModel(D, center=True), "fda": MODELS["fda"]}[name]
    data = (x,) if name == "pca" else (x, np.array(["a"] * (n - 1) + ["b"]))
    sparse = dpgep.Moments(model, adjacency="add-remove", bits=bits, bound=1.0)
    sparse.update(*data)
    low, high = sparse._sums.limbs()
    assert high is not None
    counts = np.diagonal(low)[D:].astype(object) + np.diagonal(high)[D:].astype(object) * 2**40
    assert (counts == np.array([n] if name == "pca" else [n - 1, 1, 0], dtype=object) * 4**bits).all()
    dense = dpgep.Moments(model, adjacency="add-remove", bits=bits, bound=1.0)
    dense.update(x.toarray(), *data[1:])
    assert bytes_of(sparse) == bytes_of(dense)
    for _, part in sparse_on_grid(Rows((x,), 1.0), bits, 64):
        assert part.shape[0] <= 64


def test_columns_of_sums_that_were_divided_by_scales_are_solved_in_their_own_units(rng: np.random.Generator) -> None:
    """As those of the rows are: a principal component of scaled columns is none of the columns."""
    x = rng.standard_normal((500, 3)) @ (np.eye(3) + 0.5) * [1.0, 10.0, 100.0]
    scaling = dpgep.Preprocessing(4.0, scale=np.array([1.0, 10.0, 100.0]))
    moments = dpgep.Moments(dpgep.models.PcaModel(3, center=True), preprocessing=scaling)
    moments.update(x)
    of_sums = dpgep.solve(moments, epsilon=np.inf)
    of_rows = dpgep.solve(dpgep.pca(x, preprocessing=scaling), epsilon=np.inf)
    np.testing.assert_allclose(of_sums.components, of_rows.components, atol=1e-5)
    np.testing.assert_allclose(of_sums.eigenvalues, of_rows.eigenvalues, rtol=1e-4)
