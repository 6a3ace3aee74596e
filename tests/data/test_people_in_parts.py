"""People whose rows lie in several updates, partitions, files or sites: the bits of all rows in memory, or refused."""

from __future__ import annotations

import math
import pickle
import uuid
import warnings
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import Matrix, solve_seeded
from fake_spark import DataFrame, in_place_of_pyspark
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from stored import bytes_of

import dpgep
from dpgep import masked
from dpgep.data import distributed
from dpgep.data.ids import Identities, digests, numbered, numbered_digests
from dpgep.data.inputs import opened_views
from dpgep.data.integer_sums import NormCounts
from dpgep.data.people import WEIGHT_BITS, Identified, Weighting, joined, unordered_checksum
from dpgep.data.rows import Rows
from dpgep.problems.problem import dataset_of

NAMES = list("abcd")
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
FDA = dpgep.models.FdaModel(4, ("no", "yes"))


@pytest.fixture(autouse=True)
def _in_this_thread() -> Any:
    with dask.config.set(scheduler="synchronous"):
        yield


def visits(n_people: int = 60, seed: int = 0) -> pd.DataFrame:
    """Rows of people in any order, each with a label."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(n_people) * 3 - 40, rng.integers(1, 12, n_people)))
    table = pd.DataFrame(rng.standard_normal((len(ids), 4)) @ np.triu(np.ones((4, 4))), columns=NAMES)
    return table.assign(key=ids, label=np.array(["no", "yes", "perhaps"])[rng.integers(0, 3, len(ids))])


def summed(table: pd.DataFrame, **facts: Any) -> dpgep.Moments:
    moments = dpgep.Moments(FDA, **{"bound": 3.0, "person": "key", **facts})
    moments.update(table[[*NAMES, "key"]], table["label"])
    return moments


# ---- moments ----


@settings(max_examples=8, deadline=None)
@given(n_parts=st.integers(1, 5), seed=st.integers(0, 99))
def test_whole_people_in_any_updates_give_the_same_bytes(n_parts: int, seed: int) -> None:
    table, rng = visits(seed=seed), np.random.default_rng(seed)
    whole = summed(table)
    parts = [each for _, each in table.sample(frac=1, random_state=seed).groupby(table["key"] % n_parts)]
    one, two = summed(parts[0]), dpgep.Moments(FDA, bound=3.0, person="key")
    for part in parts[1:]:
        (one if rng.integers(2) else two).update(part[NAMES], part["label"], person=part["key"])
    one.merge(pickle.loads(pickle.dumps(two)))
    assert one.n == whole.n == table["key"].nunique()
    assert bytes_of(one) == bytes_of(whole)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_release_is_that_of_the_rows(adjacency: Any) -> None:
    table = visits()
    given: dict[str, Any] = {"bound": 3.0, "adjacency": adjacency}
    problem = dpgep.fda(table[NAMES], table["label"], classes=FDA.classes, person=table["key"], **given)
    for budget in ({"mu": 1.0}, {"epsilon": math.inf}):
        ours, theirs = (solve_seeded(each, **budget) for each in (summed(table, bits=20, **given), problem))
        assert ours.privacy.several_rows
        np.testing.assert_allclose(ours.components, theirs.components, rtol=0, atol=0 if "mu" in budget else 1e-4)
    assert ours.privacy.public == theirs.privacy.public


def test_the_default_grid_serves_small_budgets() -> None:
    moments = summed(visits())
    for mu in (0.03, 1.0, 30.0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
            assert dpgep.release(moments, mu=mu).report.mu == mu


def test_who_comes_twice_is_refused_and_changes_nothing() -> None:
    table = visits()
    cut = table["key"].median()
    first, second = summed(table[table["key"] <= cut]), summed(table[table["key"] >= cut])
    before = bytes_of(first)
    for add in (
        lambda: first.merge(second),
        lambda: second.merge(first.copy()),
        lambda: first.update(table[[*NAMES, "key"]], table["label"]),
        lambda: first.update(table[NAMES], table["label"], person=[str(cut)] * len(table)),
        lambda: first.update(table[NAMES], table["label"], person=[uuid.UUID(int=i) for i in table["key"] + 99]),
    ):
        with pytest.raises((ValueError, TypeError), match=r"rows in both parts|several types|whole numbers, text"):
            add()
        assert bytes_of(first) == before
    second = summed(table[table["key"] > cut])
    first.merge(second)
    assert bytes_of(first) == bytes_of(summed(table))


def test_files_hold_nobody_so_that_nothing_can_be_added() -> None:
    table = visits()
    moments, new = summed(table), summed(visits(5).assign(key=lambda its: its["key"] + 10_000))
    stored = bytes_of(moments)
    loaded = dpgep.load(stored)
    assert bytes_of(loaded) == stored
    assert (loaded.n, loaded.person) == (60, "key")
    assert len(stored) < 4000  # no 16 bytes for each of them
    np.testing.assert_array_equal(*(solve_seeded(each, mu=1.0).components for each in (loaded, moments)))
    for add in (
        lambda: loaded.merge(new),
        lambda: new.merge(loaded),
        lambda: loaded.copy().merge(new),
        lambda: pickle.loads(pickle.dumps(loaded)).update(table[[*NAMES, "key"]], table["label"]),
    ):
        with pytest.raises(ValueError, match="neither updated nor merged"):
            add()


def test_people_and_rows_are_not_added_up() -> None:
    table = visits()
    rows = dpgep.Moments(FDA, bound=3.0, bits=17)
    with pytest.raises(ValueError, match="here each row is a person"):
        rows.update(table[NAMES], table["label"], person=table["key"])
    with pytest.raises(ValueError, match=r"differ in person \(None and 'key'\)"):
        rows.merge(summed(table))
    with pytest.raises(ValueError, match="rows have no names"):
        summed(table).update(table[NAMES].to_numpy(), table["label"])
    with pytest.raises(TypeError, match="must be a name here"):
        dpgep.Moments(FDA, bound=3.0, person=table["key"])  # type: ignore[arg-type]


@pytest.mark.parametrize("is_text", [False, True])
def test_digests_tell_people_apart_as_ids_do(is_text: bool) -> None:
    ids = np.random.default_rng(0).integers(-50, 50, 500)
    forms: list[Any] = [ids.astype(str), list(map(str, ids))] if is_text else [ids, ids * 1.0, ids.astype(object)]
    forms += [] if is_text else [np.array([Decimal(int(each)) for each in ids], object)]
    found = [digests(each, 500) for each in forms]
    assert len(np.unique(found[0], axis=0)) == numbered(ids, 500).max() + 1
    assert all(np.array_equal(found[0], each) for each in found)
    assert not (set(map(tuple, found[0])) & set(map(tuple, digests(ids if is_text else ids.astype(str), 500))))


# ---- Dask and Spark ----


def on_dask(table: pd.DataFrame, form: str, n_parts: int) -> dict[str, Any]:
    chunks = max(1, len(table) // n_parts)
    x, y, ids = table[NAMES].to_numpy(), table["label"].to_numpy(), table["key"].to_numpy()
    if form == "frame":
        frame = dd.from_pandas(table, npartitions=n_parts, sort=False)
        return {"X": frame[[*NAMES, "key"]], "labels": frame["label"], "person": "key"}
    if form == "text":
        frame = dd.from_pandas(table.assign(key="p" + table["key"].astype(str)), npartitions=n_parts, sort=False)
        return {"X": frame[NAMES], "labels": frame["label"], "person": frame["key"]}
    if form == "sparse":
        blocks = da.from_array(x, chunks=(chunks, -1)).map_blocks(sparse.csr_array)
        return {"X": blocks, "labels": da.from_array(y, chunks=chunks), "person": da.from_array(ids, chunks=chunks)}
    if form == "labels":
        return {"X": x, "labels": da.from_array(y, chunks=chunks), "person": ids}
    return {"X": da.from_array(x, chunks=(chunks, 2)), "labels": y, "person": ids}


@pytest.mark.parametrize(
    ("form", "n_parts", "bound"),
    [("frame", 5, 3.0), ("text", 1, "auto"), ("sparse", 4, 3.0), ("labels", 3, "auto"), ("array", 9, "auto")],
)
def test_dask_gives_the_bits_of_rows_in_memory(form: str, n_parts: int, bound: Any) -> None:
    """People have rows in several partitions."""
    table, facts = visits(), {"classes": ("no", "yes"), "bound": bound, "adjacency": "add-remove"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        ours = solve_seeded(dpgep.fda(**on_dask(table, form, n_parts), **facts), **BUDGET)
        theirs = solve_seeded(dpgep.fda(table[NAMES], table["label"], person=table["key"], **facts), **BUDGET)
    assert ours.components.tobytes() == theirs.components.tobytes()
    assert ours.privacy.several_rows


@pytest.mark.parametrize("n_parts", [1, 4])
@pytest.mark.parametrize("bound", [3.0, "auto"])
def test_spark_gives_the_bits_of_rows_in_memory(n_parts: int, bound: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_AT_DRIVER", 10_000)
    table = visits()
    rows = pa.Table.from_pandas(table[[*NAMES, "key"]], preserve_index=False)
    cuts = [rows.num_rows * i // n_parts for i in range(n_parts + 1)]
    with in_place_of_pyspark(), warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        frame = DataFrame([rows.slice(start, end - start) for start, end in pairwise(cuts)])
        given: dict[str, Any] = {
            "person": "key",
            "bound": bound,
            "adjacency": "add-remove" if bound == "auto" else "replace-one",
        }
        problem = dpgep.pca(frame, **given)
        ours = solve_seeded(problem, **BUDGET)
        assert problem.dataset.people.n == 60
        moments = dpgep.Moments(dpgep.models.PcaModel(4, center=True), bound=3.0, person="key")
        moments.update(frame)
        with pytest.raises(ValueError, match="rows in both parts"):
            moments.update(frame)
    theirs = solve_seeded(dpgep.pca(table[[*NAMES, "key"]], **given), **BUDGET)
    assert ours.components.tobytes() == theirs.components.tobytes()
    assert ours.privacy == theirs.privacy
    expected = dpgep.Moments(moments.model, bound=3.0, person="key")
    expected.update(table[[*NAMES, "key"]])
    assert bytes_of(moments) == bytes_of(expected)


def test_moments_of_dask_of_files_and_in_memory_know_each_others_people(tmp_path: Path) -> None:
    table = visits()
    later = table.assign(key=table["key"] + 1000)
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), tmp_path / "rows.parquet", row_group_size=50)
    source = dpgep.scan(tmp_path / "rows.parquet")
    whole = summed(table)
    lazy = on_dask(table, "frame", 4)
    ways: list[Callable[[dpgep.Moments], None]] = [
        lambda its: its.update(lazy["X"], lazy["labels"]),
        lambda its: its.update(source[NAMES], source["label"], person=source["key"]),
        lambda its: its.update(table[NAMES], table["label"], person=table["key"].astype(float)),
    ]
    for first in ways:
        moments = dpgep.Moments(FDA, bound=3.0, person="key")
        first(moments)
        assert bytes_of(moments) == bytes_of(whole)
        for second in ways:
            with pytest.raises(ValueError, match="rows in both parts"):
                second(moments)
        moments.merge(summed(later))
        assert bytes_of(moments) == bytes_of(summed(pd.concat([table, later])))


@pytest.mark.parametrize("changed", ["rows", "persons", "order"])
def test_rows_that_change_between_passes_are_noticed_in_whatever_order(changed: str) -> None:
    """Whoever deals rows out may give them in another order each time; other rows, or rows of others, are refused."""
    table = visits()
    orders = [np.arange(len(table)), np.random.default_rng(0).permutation(len(table))]
    calls: list[int] = []

    def partition(of_part: int) -> pd.DataFrame:
        calls.append(of_part)
        given = table.iloc[orders[len(calls) > 3]].copy()
        if len(calls) > 3 and changed == "rows":
            given.iloc[5, 0] += 1e-12
        elif len(calls) > 3 and changed == "persons":
            given.iloc[5, 4] = given["key"].iloc[6]
        half = given["key"] % 2 == of_part
        return given[half]

    meta = table.iloc[:0]
    frame = dd.from_map(partition, [0, 1], meta=meta)
    problem = dpgep.pca(frame[[*NAMES, "key"]], person="key", bound=3.0)
    make = partial(NormCounts, -40, 80)
    calls.clear()
    first = problem.dataset.accumulate(make, weight_bits=WEIGHT_BITS).counts
    calls.extend([0] * 4)
    if changed == "order":
        assert np.array_equal(problem.dataset.accumulate(make, weight_bits=WEIGHT_BITS).counts, first)
        return
    with pytest.raises(dpgep.errors.DataChangedError):
        problem.dataset.accumulate(make, weight_bits=WEIGHT_BITS)


@pytest.mark.parametrize("most", [0, 1 << 31])
def test_rows_are_dealt_once_more_after_the_first_pass_and_kept(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "_MOST_KEPT", most)
    table, reads = visits()[[*NAMES, "key"]], []

    def partition(place: int) -> pd.DataFrame:
        reads.append(place)
        return table.iloc[place::2]

    problem = dpgep.pca(dd.from_map(partition, [0, 1], meta=table.iloc[:0]), person="key", bound=3.0)
    reads.clear()
    make = partial(NormCounts, -40, 80)
    counts = [problem.dataset.accumulate(make, weight_bits=WEIGHT_BITS).counts for _ in range(4)]
    assert all(np.array_equal(each, counts[0]) for each in counts)
    assert len(reads) == (4 if most else 8)


def test_checksums_depend_on_rows_groups_and_persons_but_not_on_their_order() -> None:
    rng = np.random.default_rng(0)
    rows, groups, whose = rng.standard_normal((50, 3)), rng.integers(-1, 3, 50), digests(np.arange(50) // 3, 50)
    units = rng.integers(0, 1 << 40, (50, 1))

    def found(x: Matrix, codes: Any, ids: Any, order: Any, *cuts: int) -> bytes:
        piles = [
            Identified(Rows((x[part],), 1.0), codes[part], ids[part], units[part])
            for part in np.split(np.asarray(order), cuts)
        ]
        return unordered_checksum(joined(piles), b"0123456789abcdef")

    plain = found(rows, groups, whose, np.arange(50))
    assert found(rows, groups, whose, rng.permutation(50), 7, 7, 30) == plain
    other = rows.copy()
    other[9, 1] = np.nextafter(other[9, 1], 9)
    moved, swapped = groups.copy(), whose.copy()
    moved[9] = (moved[9] + 2) % 4 - 1
    swapped[[9, 30]] = swapped[[30, 9]]
    changes = [found(other, groups, whose, np.arange(50)), found(rows, moved, whose, np.arange(50))]
    changes += [found(rows, groups, swapped, np.arange(50)), found(rows, groups, whose, np.append(np.arange(50), 3))]
    units[9] += 1
    changes.append(found(rows, groups, whose, np.arange(50)))
    assert len({plain, *changes}) == 6


@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        (["a", None, *["b"] * 8], ValueError, "missing ids"),
        ([5, *["5"] * 9], TypeError, "several types"),
        ([*[5] * 9, "5"], TypeError, "several types"),
        ([0] * 10, ValueError, "at least 2 people"),
        ([uuid.UUID(int=7)] * 10, TypeError, "whole numbers, text or bytes"),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_paid(ids: Any, error: Any, message: str) -> None:
    x = pd.DataFrame(np.random.default_rng(0).standard_normal((10, 2)), columns=["a", "b"])
    budget = dpgep.Budget(**BUDGET)
    with dask.config.set({"dataframe.convert-string": False}):
        frame = dd.from_pandas(x.assign(key=pd.Series(ids, dtype=object)), npartitions=2, sort=False)
        problem = dpgep.pca(frame, person="key", bound=3.0)
    with pytest.raises(error, match=message) as caught:
        dpgep.solve(problem, budget=budget)
    assert "7" not in str(caught.value)
    assert budget.spent_mu == 0


def test_a_person_who_came_to_two_workers_is_found() -> None:
    """Whatever has brought rows together: here Spark's grouping forgets."""
    table = visits()
    rows = pa.Table.from_pandas(table[[*NAMES, "key"]], preserve_index=False)
    with in_place_of_pyspark(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataFrame, "repartition", lambda frame, name: frame)
        frame = DataFrame([rows.slice(0, 50), rows.slice(50)])
        with pytest.raises(ValueError, match="came to several workers"):
            dpgep.solve(dpgep.pca(frame, person="key", bound=3.0), **BUDGET)


# ---- sites ----


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_masked_sums_of_sites_are_those_of_all_people(adjacency: Any) -> None:
    table = visits(300)
    given: dict[str, Any] = {"bound": 3.0, "adjacency": adjacency}
    ours = of_sites(table, given, epsilon=math.inf)
    theirs = dpgep.release(summed(table, **given), epsilon=math.inf)
    for block in ("second", "sums", "counts"):
        np.testing.assert_array_equal(getattr(ours._noisy, block), getattr(theirs._noisy, block))
    noisy = of_sites(table, given)
    assert noisy.privacy.several_rows
    assert noisy.n_people == theirs.n_people or adjacency == "add-remove"
    assert np.abs(noisy._noisy.second - theirs._noisy.second).max() < 8 * noisy._noisy.noise.second


def test_sites_of_people_and_of_rows_are_not_added_up() -> None:
    terms = masked.Terms(FDA, sites=("a", "b"), colluding=0, session="visits", person="key", bound=3.0, **BUDGET)
    rows = replace(terms, person=None, bits=terms.bits)
    assert terms.bits == 17
    sites = {"a": masked.Site(terms, "a"), "b": masked.Site(rows, "b")}
    with pytest.raises(ValueError, match=r"terms of b differ in person \(None and 'key'\)"):
        sites["a"].mask(summed(visits()), {name: site.key for name, site in sites.items()})
    keys = {name: masked.Site(terms, name).key for name in "ab"}
    site = masked.Site(terms, "a")
    moments = dpgep.Moments(FDA, bound=3.0, bits=17)
    with pytest.raises(ValueError, match=r"differ in person"):
        site.mask(moments, {**keys, "a": site.key})


# ---- moments and sites of people who count by weights ----


def weighed(table: pd.DataFrame, **facts: Any) -> dpgep.Moments:
    moments = dpgep.Moments(FDA, **{"bound": 3.0, "largest_weight": 2.0, **facts})
    ids = table["key"] if moments.person else None
    moments.update(table[[*NAMES, "w"]], table["label"], person=ids, weights="w")
    return moments


def weighed_visits(n_people: int = 60) -> pd.DataFrame:
    table = visits(n_people)
    return table.assign(w=np.random.default_rng(1).gamma(1, 1, len(table)))


@pytest.mark.parametrize("facts", [{}, {"person": "key"}, {"person": "key", "rows": 3}], ids=str)
def test_moments_of_weighted_people_give_the_release_of_their_rows(facts: dict[str, Any]) -> None:
    table = weighed_visits()
    even = table["key"] % 2 == 0
    one, two = weighed(table[even], **facts), weighed(table[~even], **facts)
    one.merge(dpgep.load(bytes_of(two)) if not facts else pickle.loads(pickle.dumps(two)))
    whole = weighed(table, **facts)
    assert one.n == whole.n == (60 if facts else len(table))
    assert bytes_of(one) == bytes_of(whole) == bytes_of(dpgep.load(bytes_of(whole)))
    beside = {**facts, "person": table["key"]} if facts else {}
    given: dict[str, Any] = {"bound": 3.0, "weights": table["w"], "largest_weight": 2.0}
    problem = dpgep.fda(table[NAMES], table["label"], classes=FDA.classes, **given, **beside)
    theirs = solve_seeded(problem, mu=1.0)
    for moments in (weighed(table, bits=20, **facts), dpgep.load(bytes_of(weighed(table, bits=20, **facts)))):
        ours = solve_seeded(moments, mu=1.0)
        assert ours.components.tobytes() == theirs.components.tobytes()
        public = replace(
            ours.privacy.public, person=theirs.privacy.public.person, n_people=theirs.privacy.public.n_people
        )
        assert public == theirs.privacy.public
    assert ours.privacy.public.n_people is None


def test_weighted_and_other_people_are_not_added_up() -> None:
    table = weighed_visits()
    weights = weighed(table)
    for others, message in (
        (dpgep.Moments(FDA, bound=3.0, bits=17), r"differ in largest_weight \(2.0 and None\)"),
        (weighed(table, largest_weight=3.0), r"differ in largest_weight \(2.0 and 3.0\)"),
        (weighed(table, person="key"), r"differ in person \(None and 'key'\)"),
    ):
        with pytest.raises(ValueError, match=message):
            weights.merge(others)
    with pytest.raises(ValueError, match="pass weights to each update"):
        weights.update(table[NAMES], table["label"])
    with pytest.raises(ValueError, match="weights need largest_weight"):
        summed(table).update(table[NAMES], table["label"], person=table["key"], weights=table["w"])
    with pytest.raises(ValueError, match="public_n is a number of people"):
        weighed(table, adjacency="add-remove", public_n=60)
    with pytest.raises(ValueError, match="give person"):
        dpgep.Moments(FDA, bound=3.0, rows=3)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_masked_sums_of_weighted_people_are_those_of_all(adjacency: Any) -> None:
    table = weighed_visits(300)
    given: dict[str, Any] = {"bound": 3.0, "adjacency": adjacency, "person": "key", "rows": 3}
    named = replace(FDA, feature_names=tuple(NAMES))
    terms = masked.Terms(
        named, sites=("a", "b"), colluding=0, session="w", epsilon=math.inf, largest_weight=2.0, **given
    )
    sites = {name: masked.Site(terms, name) for name in terms.sites}
    keys = {name: site.key for name, site in sites.items()}
    parts = {"a": table[table["key"] % 2 == 0], "b": table[table["key"] % 2 != 0]}
    found = masked.release(terms, keys, {name: sites[name].mask(weighed(parts[name], **given), keys) for name in parts})
    expected = dpgep.release(weighed(table, **given), epsilon=math.inf)
    for block in ("second", "sums", "counts"):
        np.testing.assert_array_equal(getattr(found._noisy, block), getattr(expected._noisy, block))
    assert found.n_people == expected.n_people
    assert found.report.public.n_people is None
    assert found.report.public.largest_weight == 2.0


# ---- replays: neighbours differ in all rows of a person, which lie in several parts ----

Ways = dict[str, Callable[[pd.DataFrame, dict[str, Any]], Any]]


def of_dask(table: pd.DataFrame, given: dict[str, Any]) -> Any:
    frame = dd.from_pandas(table, npartitions=3, sort=False)
    return dpgep.fda(frame[[*NAMES, "key"]], frame["label"], classes=FDA.classes, person="key", **given)


def of_spark(table: pd.DataFrame, given: dict[str, Any]) -> Any:
    rows = pa.Table.from_pandas(table, preserve_index=False)
    with in_place_of_pyspark():
        source = dpgep.scan(DataFrame([rows.slice(0, 40), rows.slice(40)]))
        problem = dpgep.fda(source[NAMES], source["label"], classes=FDA.classes, person="key", **given)
        return dpgep.release(problem, **BUDGET)


def of_moments(table: pd.DataFrame, given: dict[str, Any]) -> Any:
    one, two = (dpgep.Moments(FDA, person="key", **given) for _ in range(2))
    one.update(*(table[table["key"] % 2 == 0][part] for part in ([*NAMES, "key"], "label")))
    two.update(*(table[table["key"] % 2 == 1][part] for part in ([*NAMES, "key"], "label")))
    one.merge(two)
    return one


def of_sites(table: pd.DataFrame, given: dict[str, Any], **budget: Any) -> Any:
    model = dpgep.models.FdaModel(4, FDA.classes, feature_names=tuple(NAMES))
    terms = masked.Terms(
        model, sites=("even", "odd"), colluding=1, session="visits", person="key", **(budget or BUDGET), **given
    )
    sites = {name: masked.Site(terms, name) for name in terms.sites}
    keys, messages = {name: site.key for name, site in sites.items()}, {}
    for rest, (name, site) in enumerate(sites.items()):
        moments, here = dpgep.Moments(FDA, person="key", **given), table[table["key"] % 2 == rest]
        moments.update(here[[*NAMES, "key"]], here["label"])
        messages[name] = site.mask(moments, keys)
    return masked.release(terms, keys, messages)


@pytest.mark.entropy
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("way", [of_dask, of_spark, of_moments, of_sites])
def test_a_person_in_parts_costs_what_the_ledger_says(way: Any, adjacency: str) -> None:
    """Rows all alike, in one class or another: the price is attained, and a person of many rows pays no more."""
    crowd = visits(20)

    def with_person(place: int | None, m: int) -> pd.DataFrame:
        if place is None:
            return crowd
        rows = pd.DataFrame(np.tile(np.eye(4)[place], (m, 1)), columns=NAMES)
        return pd.concat([crowd, rows.assign(key=9999, label=FDA.classes[place])]).sample(frac=1, random_state=place)

    pair = with_person(0 if adjacency == "replace-one" else None, 300), with_person(1, 7)
    given = {"bound": 1.0, "adjacency": adjacency}
    result = dpgep.auditing.replay(lambda table: way(table, given), pair, **BUDGET)
    assert not result.flagged, result
    assert result.error is None
    assert result.ratio >= 0.98


def of_weighted(table: pd.DataFrame, given: dict[str, Any], model: Any, merged: bool = True) -> Any:
    """Moments of a model, or masked sites, of weighted people; of half of the people each."""
    table = table.assign(w=np.where(table["key"] == 9999, 2.0, 1.0))
    facts = {"person": "key", "rows": 3, "largest_weight": 2.0, **given}
    parts = [table[table["key"] % 2 == rest] for rest in (0, 1)]
    sums = [dpgep.Moments(model, **facts) for _ in parts]
    for each, part in zip(sums, parts, strict=True):
        each.update(part[[*NAMES, "key", "w"]], *([part["label"]] if model is FDA else []), weights="w")
    if merged:
        sums[0].merge(sums[1])
        return sums[0]
    named = replace(model, feature_names=tuple(NAMES))
    terms = masked.Terms(named, sites=("a", "b"), colluding=1, session="weighted", **BUDGET, **facts)
    sites = {name: masked.Site(terms, name) for name in terms.sites}
    keys = {name: site.key for name, site in sites.items()}
    return masked.release(
        terms, keys, {name: site.mask(each, keys) for (name, site), each in zip(sites.items(), sums, strict=True)}
    )


@pytest.mark.entropy
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize(
    "model", [FDA, dpgep.models.PcaModel(4, center=True), dpgep.models.PcaModel(4, center=False)], ids=str
)
def test_a_weighted_person_in_moments_and_sites_costs_what_the_ledger_says(
    model: Any, merged: bool, adjacency: str
) -> None:
    """Rows all alike; of a covariance the worst are tilted, or a person whose weight becomes 0."""
    crowd, seven = visits(20), np.eye(4)
    seven[0, :2] = -1 / 8, math.sqrt(63) / 8

    def with_person(row: Any, label: str, m: int) -> pd.DataFrame:
        rows = pd.DataFrame(np.tile(row, (m, 1)), columns=NAMES)
        return pd.concat([crowd, rows.assign(key=9999, label=label)]).sample(frac=1, random_state=m)

    centred = not isinstance(model, dpgep.models.PcaModel) or model.center
    other = seven[0] if centred and model is not FDA else np.eye(4)[1]
    first = with_person(np.eye(4)[0], "no", 300) if adjacency == "replace-one" else crowd
    pair = first, with_person(other, "yes", 7)
    given = {"bound": 1.0, "adjacency": adjacency}
    result = dpgep.auditing.replay(lambda table: of_weighted(table, given, model, merged), pair, **BUDGET)
    assert not result.flagged, result
    assert result.error is None
    assert result.ratio >= 0.98


@pytest.mark.one_in(2)
@pytest.mark.entropy
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("way", [of_dask, of_spark])
def test_stages_of_people_in_parts_cost_what_the_ledger_says(way: Any, adjacency: str) -> None:
    """Rows far apart, in several classes, against others."""
    crowd, rng = visits(20), np.random.default_rng(1)

    def with_person(m: int, scale: float) -> pd.DataFrame:
        rows = pd.DataFrame(scale * rng.standard_normal((m, 4)), columns=NAMES)
        labels = np.array(["no", "yes", "perhaps"])[rng.integers(0, 3, m)]
        return pd.concat([crowd, rows.assign(key=9999, label=labels)]) if m else crowd

    pair = with_person(0 if adjacency == "add-remove" else 300, 0.1), with_person(50, 1e3)
    result = dpgep.auditing.replay(lambda table: way(table, {"bound": "auto", "adjacency": adjacency}), pair, **BUDGET)
    assert not result.flagged, result
    assert result.error is None


def test_clipped_products_of_people_in_parts_are_those_in_memory() -> None:
    table = visits()
    frame = dd.from_pandas(table[[*NAMES, "key"]], npartitions=4, sort=False)
    options: dict[str, Any] = {"method": "clipped-power", "n_components": 1}
    ours, theirs = (
        solve_seeded(dpgep.pca(rows, person="key", bound=3.0, center=False), **BUDGET, **options)
        for rows in (frame, table[[*NAMES, "key"]])
    )
    assert ours.components.tobytes() == theirs.components.tobytes()


WEIGHED: dict[str, dict[str, Any]] = {
    "weights": {"weights": "w", "largest_weight": 2.0},
    "alike": {"person": "key", "rows": 3},
    "both": {"person": "key", "weights": "w", "largest_weight": 2.0},
}


@pytest.mark.filterwarnings("ignore::dpgep.errors.PrivacyWarning", "ignore::dpgep.errors.AccuracyWarning")
@pytest.mark.parametrize(
    ("way", "name", "bound"),
    [
        ("frame", "both", "auto"),
        ("frame", "alike", 3.0),
        ("array", "weights", 3.0),
        ("array", "both", 3.0),
        ("files", "weights", 3.0),
        ("files", "both", 3.0),
        ("spark", "weights", "auto"),
        ("spark", "alike", 3.0),
        ("spark", "both", 3.0),
    ],
)
def test_weights_in_parts_have_the_bits_of_weights_in_memory(way: str, name: str, bound: Any, tmp_path: Path) -> None:
    table, given = visits(30), WEIGHED[name]
    table = table.assign(w=np.random.default_rng(1).gamma(1, 1, len(table)))
    beside = {key: given[key] for key in ("person", "weights") if key in given}
    table = table[[*NAMES, *beside.values()]]
    facts: dict[str, Any] = {"bound": bound, "adjacency": "add-remove"}
    theirs = dpgep.pca(table, **given, **facts)
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    with in_place_of_pyspark():
        if way == "frame":
            ours = dpgep.pca(dd.from_pandas(table, npartitions=3, sort=False), **given, **facts)
        elif way == "array":
            arrays = {key: table[column].to_numpy() for key, column in beside.items()}
            ours = dpgep.pca(da.from_array(table[NAMES].to_numpy(), chunks=(70, 4)), **{**given, **arrays}, **facts)
        elif way == "files":
            pq.write_table(arrow, tmp_path / "rows.parquet", row_group_size=50)
            source = dpgep.scan(tmp_path / "rows.parquet")
            weighting = Weighting(**{**given, **{key: source[column] for key, column in beside.items()}})
            views = opened_views(theirs.model, (source[NAMES],), "add-remove")
            ours = replace(
                theirs,
                dataset=dataset_of(theirs.model, views, (), 3.0, "add-remove", "synchronous", weighting),
            )
        else:
            ours = dpgep.pca(DataFrame([arrow.slice(0, 50), arrow.slice(50)]), **given, **facts)
        for budget in (BUDGET, {"epsilon": math.inf}):
            found, expected = (dpgep.release(each, seed=1, **budget) for each in (ours, theirs))
            exact = {"rtol": 0 if budget is BUDGET else 1e-10}
            np.testing.assert_allclose(found.covariance().values, expected.covariance().values, **exact)
            np.testing.assert_allclose(found.n_people, expected.n_people, **exact)
    assert ours.dataset.people.n == theirs.dataset.people.n


@pytest.mark.parametrize("n", [0, 5])
def test_digests_from_another_process_need_not_be_aligned(n: int) -> None:
    whose = np.arange(2 * n, dtype=np.uint64).reshape(n, 2) << 8
    unaligned = np.frombuffer(b"abc" + whose.tobytes(), np.uint64, 2 * n, 3).reshape(n, 2)
    numbers, found = numbered_digests(unaligned)
    np.testing.assert_array_equal(numbers, np.arange(n))
    np.testing.assert_array_equal(found, whose)
    Identities().add_rows(unaligned)
