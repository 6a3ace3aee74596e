"""Nights: what is released of them against one release of all rows, and what is in the file whatever happens."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import stat
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from conftest import Matrix

import dpgep
from dpgep import night_file
from dpgep.nights import NIGHTS, Register
from dpgep.privacy.continual import Factor

TERMS: dict[str, Any] = {"bound": 1.0, "epsilon": 1.0, "delta": 1e-6}
PLAIN: dict[str, Any] = {"bound": 1.0, "epsilon": np.inf}


def rows_of(night: int, n: int = 40) -> Matrix:
    return np.random.default_rng(night).standard_normal((n + night, 3)) * [0.5, 0.3, 0.2] + 0.1


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """But where processes are killed: most of the time of a small night is this."""
    if "kills" not in request.fixturenames:
        monkeypatch.setattr(night_file, "force", lambda descriptor: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "register.nights"


def close(found: dpgep.Release, expected: dpgep.Release) -> None:
    for name in ("second", "sums", "counts"):
        np.testing.assert_allclose(getattr(found._noisy, name), getattr(expected._noisy, name), rtol=0, atol=5e-5)
    assert found.n_people == pytest.approx(expected.n_people)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("keep", [1, 3, 20])
def test_without_noise_nights_are_one_release_of_all_their_rows(path: Path, adjacency: Any, keep: int) -> None:
    """Of everything so far, and of the rows of some nights alone; also nights that hardly anybody came to."""
    nights, rows = dpgep.Nights(path, keep=keep, adjacency=adjacency, **PLAIN), []
    for night in range(7):
        rows.append(rows_of(night)[: None if night != 4 else 0 if adjacency == "add-remove" else 1])
        so_far = nights.add(rows[-1], night=str(night))
        close(so_far, dpgep.release(np.vstack(rows), adjacency=adjacency, **PLAIN))
    close(nights.release("2", "5"), dpgep.release(np.vstack(rows[2:6]), adjacency=adjacency, **PLAIN))
    close(dpgep.Nights(path).release("3"), dpgep.release(np.vstack(rows[3:]), adjacency=adjacency, **PLAIN))


@pytest.mark.parametrize("by_group", [False, True])
def test_nights_of_classes_answer_what_a_release_of_classes_answers(path: Path, by_group: bool) -> None:
    how = {**PLAIN, "classes": ("no", "yes"), "by_group": by_group}
    nights, rows, labels = dpgep.Nights(path, **how), [], []
    for night in range(3):
        rows.append(rows_of(night))
        labels += [("no", "yes")[int(x > 0.1)] for x in rows[-1][:, 0]]
        so_far = nights.add(rows[-1], labels[-len(rows[-1]) :], night=str(night))
    expected = dpgep.release(np.vstack(rows), labels, **how)
    close(so_far, expected)
    np.testing.assert_allclose(
        so_far.fda(n_components=1).components, expected.fda(n_components=1).components, atol=1e-4
    )


def test_a_model_has_nights_of_its_own(path: Path) -> None:
    nights = dpgep.Nights(path, model=dpgep.models.CcaModel((2, 1), True), **PLAIN)
    rows = [rows_of(night) for night in range(3)]
    for night, each in enumerate(rows):
        found = nights.add(each[:, :2], each[:, 2:], night=str(night))
    whole = np.vstack(rows)
    expected = dpgep.solve(dpgep.cca(whole[:, :2], whole[:, 2:], bound=1.0), epsilon=np.inf)
    np.testing.assert_allclose(found.solve().eigenvalues, expected.eigenvalues, atol=1e-5)


def test_rows_of_people_count_as_in_one_release_of_each_night(path: Path) -> None:
    people = pd.DataFrame(rows_of(0), columns=["a", "b", "c"]).assign(id=np.arange(40) // 2)
    found = dpgep.Nights(path, person="id", **PLAIN).add(people, night="first")
    close(found, dpgep.release(people, person="id", **PLAIN))


@pytest.mark.parametrize(("adjacency", "nights"), [("replace-one", 1), ("add-remove", 3)])
def test_noise_is_what_a_release_says(path: Path, adjacency: Any, nights: int) -> None:
    """Squares of entries in units of their deviations, as chi-square: each bound fails with probability 1e-7."""
    d, last = 40, 6
    empty = np.zeros((2, d))
    register = dpgep.Nights(path, keep=4, nights=nights, adjacency=adjacency, **TERMS)
    for night in range(last):
        so_far = register.add(empty, night=str(night))
    for found, span in ((so_far, (1, last)), (register.release("2", "4"), (3, 5))):
        noisy = found._noisy
        upper = noisy.second[np.triu_indices(d, 1)] / (noisy.noise.second / np.sqrt(2))
        entries = np.concatenate([upper, np.diagonal(noisy.second) / noisy.noise.second])
        n = len(entries)
        assert abs(float(entries @ entries) / n - 1) < 5.4 * np.sqrt(2 / n) + 8 / n
        one = dpgep.release(empty, adjacency=adjacency, **TERMS)._noisy
        spread = np.linalg.norm(Factor(4).combination(*span)) / Factor(4).mu_of_a_night(1.0, nights)
        ratio = (noisy.noise.second * noisy.n) / (one.noise.second * one.n)
        assert ratio == pytest.approx(spread, rel=1e-3)


def test_a_release_of_nights_is_stored_and_says_what_was_promised(path: Path, tmp_path: Path) -> None:
    nights = dpgep.Nights(path, nights=2, **TERMS)
    nights.add(rows_of(0), night="first")
    found = nights.add(rows_of(1), night="second")
    found.save(tmp_path / "second.dpgep")
    again = dpgep.load(tmp_path / "second.dpgep")
    assert again.report == found.report
    assert again.report.epsilon == 1.0
    (entry,) = again.report.releases
    assert "a person on at most 2" in entry.query
    said = again.report.to_markdown()
    assert "A person may come on at most 2 of all nights" in said
    assert "nothing has counted these nights" in said
    first = nights.release("first", "first")
    assert first.n_people == 40
    with pytest.raises(ValueError, match="the same people"):
        _ = first + found


def test_one_budget_pays_once_and_refuses_before_anything_is_there(tmp_path: Path) -> None:
    budget = dpgep.Budget.open(tmp_path / "b.budget", epsilon=1.0, delta=1e-6, adjacency="replace-one", dataset="r")
    nights = dpgep.Nights(tmp_path / "a.nights", bound=1.0, budget=budget)
    for night in range(3):
        nights.add(rows_of(night), night=str(night))
    assert len(budget.releases) == 1
    assert budget.remaining_mu == pytest.approx(0, abs=1e-9)
    other = dpgep.Nights(tmp_path / "b.nights", bound=1.0, budget=budget)
    with pytest.raises(dpgep.errors.PrivacyBudgetError):
        other.add(rows_of(0), night="0")
    with pytest.raises(ValueError, match="holds no nights yet"):
        dpgep.Nights(tmp_path / "b.nights")


def test_a_night_is_added_once_and_its_release_stays(path: Path) -> None:
    nights = dpgep.Nights(path, **TERMS)
    first = nights.add(rows_of(0), night="first")
    with pytest.warns(RuntimeWarning, match="'first' is there already"):
        again = dpgep.Nights(path, **TERMS).add(rows_of(5), night="first")
    assert again.fingerprint == first.fingerprint
    nights.add(rows_of(1), night="second")
    assert nights.release(last="first").fingerprint == first.fingerprint
    assert nights.labels == ("first", "second")


def test_terms_are_those_of_the_first_night(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no nights yet"):
        dpgep.Nights(path)
    nights = dpgep.Nights(path, keep=9, **TERMS)
    with pytest.raises(ValueError, match="holds no nights yet"):
        nights.release()
    nights.add(rows_of(0), night="first")
    dpgep.Nights(path, keep=9, epsilon=1, delta=1e-6)
    for given, named in (({"keep": 8}, "keep = 9.0, not 8.0"), ({"mu": 1.0}, "no mu, not 1.0")):
        with pytest.raises(ValueError, match=named):
            dpgep.Nights(path, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="began without a seed"):
        dpgep.Nights(path, seed=1)
    for wrong in ("", 3, None):
        with pytest.raises(ValueError, match="night must be a label"):
            nights.add(rows_of(1), night=wrong)  # type: ignore[arg-type]
    for span, message in (
        (("second", None), "no nights from 'second' to None"),
        (("first", "zero"), "'zero': there are 1"),
    ):
        with pytest.raises(ValueError, match=message):
            nights.release(*span)
    for content in (b"rows, and no nights\n" * 99, b"SQLite format 3\0" * 99, b"dpgep-nights 4\n\0" * 99):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(ValueError, match="holds no nights, or nights of another version"):
            dpgep.Nights(tmp_path / "other", **TERMS).add(rows_of(0), night="0")
        assert (tmp_path / "other").read_bytes() == content


def test_who_comes_too_often_is_refused_and_the_night_with_them(path: Path) -> None:
    nights = dpgep.Nights(path, nights=2, person="id", **TERMS)
    people = _people()[:40].drop(columns="weight")
    nights.add(people, night="1")
    nights.add(people[:20], night="2")
    with pytest.raises(ValueError, match="were on 2 nights before"):
        nights.add(people[10:], night="3")
    nights.add(people[20:], night="3")
    assert nights.labels == ("1", "2", "3")
    with pytest.raises(ValueError, match="were on 2 nights before"):
        dpgep.Nights(path).add(people[39:], night="4")
    with pytest.raises(TypeError, match="ids of several types"):
        nights.add(people.assign(id=[f"p{i}" for i in range(40)]), night="4")
    assert "the program counts these nights by ids" in nights.release().report.to_markdown()


def _people() -> pd.DataFrame:
    """Of forty people; the first ten have two rows each."""
    found = pd.DataFrame(rows_of(10), columns=["a", "b", "c"])
    return found.assign(id=[*range(40), *range(10)], weight=np.linspace(0, 2, 50))


def _as_given(people: pd.DataFrame, form: str) -> dict[str, Any]:
    """What a night is given: rows, weights where there are any, and whose they are."""
    columns, weight = ["a", "b", "c", "id"], {"weights": "weight"} if form.startswith("weighted") else {}
    kept = people[[*columns, *weight.values()]]
    if form.endswith("dask"):
        dataframe = pytest.importorskip("dask.dataframe")
        return {"X": dataframe.from_pandas(kept, npartitions=3, sort=False), **weight}
    if form.endswith("batches"):
        source = dpgep.scan(lambda: (kept[start : start + 9] for start in range(0, 50, 9)))
        return {"X": source[columns], **{name: source[key] for name, key in weight.items()}}
    return {"X": kept, **weight}


FORMS = ["memory", "weighted memory", "batches", "weighted batches", "weighted dask"]


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_who_came_as_often_as_they_may_are_left_out(path: Path, form: str) -> None:
    """What is released has the bits of nights that they did not come to, wherever the rows lie."""
    terms: dict[str, Any] = {**PLAIN, "adjacency": "add-remove", "nights": 2, "person": "id"}
    if form.startswith("weighted"):
        terms["largest_weight"] = 1.5
    people = _people()
    nights, others = dpgep.Nights(path, **terms), dpgep.Nights(path.with_name("others"), **terms)
    came = [people, people[people.id < 20], people[people.id % 2 == 0], people]
    counted = [came[0], came[1], came[2][came[2].id >= 20], came[3][(came[3].id >= 20) & (came[3].id % 2 == 1)]]
    newcomer = people[-1:].assign(id=77)  # after whom hardly anybody is left
    came, counted = [*came, people, pd.concat([people[:-1], newcomer])], [*counted, people[:0], newcomer]
    for night, (given, expected) in enumerate(zip(came, counted, strict=True)):
        found = nights.add(**_as_given(given, form), night=str(night))
        known = others.add(
            **_as_given(expected, form.replace("batches", "memory").replace("dask", "memory")), night=str(night)
        )
        for name in ("second", "sums", "counts"):
            np.testing.assert_array_equal(getattr(found._noisy, name), getattr(known._noisy, name))
    assert "leaves out the rows of further nights" in found.report.to_markdown()


def test_exact_sums_and_noise_are_kept_as_long_as_they_are_needed_for_their_owner_alone(path: Path) -> None:
    nights, sums, noise = dpgep.Nights(path, keep=3, **TERMS), [], []
    for night in range(6):
        nights.add(rows_of(night), night=str(night))
        with opened(path) as log:
            sums.append(log._exact)
            noise.append(log.noise([night + 1])[0].tobytes())
    content = path.read_bytes()
    assert [blob in content for blob in sums] == [False] * 4 + [True] * 2
    assert [blob in content for blob in noise] == [False] * 2 + [True] * 4
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_published_is_exact_sums_and_the_noise_that_is_kept(path: Path) -> None:
    """And that noise follows from what is drawn each night, by whole numbers, as the proof says."""
    terms = {**TERMS, "adjacency": "add-remove"}
    nights, factor, noise, drawn = dpgep.Nights(path, keep=4, **terms), Factor(4), [], []
    real = dpgep.nights.add_noise  # type: ignore[attr-defined]

    def entries(moments: Any) -> Any:
        limbs = (moments.second, moments.sums, moments.counts), moments.high
        low, high = (
            np.concatenate([second[np.triu_indices(3)], sums.ravel(), counts]) for second, sums, counts in limbs
        )
        return [int(a) + (int(b) << 40) for a, b in zip(low, high, strict=True)]

    def spied(moments: Any, *given: Any) -> None:
        before = entries(moments)
        real(moments, *given)
        drawn.append([after - each for after, each in zip(entries(moments), before, strict=True)])

    with mock.patch.object(dpgep.nights, "add_noise", spied):
        for night in range(9):
            nights.add(rows_of(night), night=str(night))
            with opened(path) as log:
                kept, (low, high), (_, published) = log.noise([night + 1])[0], log.exact(), log.so_far(night + 1)
            noise.append(kept.tolist())
            carried = [
                sum(step * noise[night - k][j] for k, step in factor.steps.items() if 0 < k <= night)
                for j in range(len(kept))
            ]
            assert noise[-1] == [z - (each + 32) // 64 for z, each in zip(drawn[-1], carried, strict=True)]
            whole = [64 * (int(a) + (int(b) << 40)) + e for a, b, e in zip(low, high, noise[-1], strict=True)]
            register = _described(path)
            unit = 2.0 ** (2 * register.noise.bits + register.noise.weight_bits)
            np.testing.assert_allclose(published, np.array([float(x) for x in whole]) / unit, rtol=1e-15)


@pytest.mark.parametrize("bits", [56, 57, 62])
def test_the_largest_noise_that_a_file_may_hold_is_carried_on_exactly(path: Path, bits: int) -> None:
    """In one limb below 2^56, or in two: with keep=7, noise of 2^51 a night is more than 2^56 after three years."""
    nights, rng = dpgep.Nights(path, keep=5, bound=1.0, mu=1.0), np.random.default_rng(0)
    for night in range(4):
        nights.add(rows_of(night), night=str(night))
    before = rng.integers(-(1 << bits) + 1, 1 << bits, (5, 9))
    before[:, :2] = [[(1 << bits) - 1, 1 - (1 << bits)]]
    before[:, 2] *= (-1) ** np.arange(5)  # weights are negative but for the first
    drawn = 1 << bits - 7
    with (
        mock.patch.object(
            dpgep.nights, "add_noise", lambda moments, *given: np.add(moments.second, drawn, moments.second)
        ),
        mock.patch.object(night_file.NightLog, "noise", lambda log, numbers: before[numbers]),
    ):
        nights.add(rows_of(4), night="4")
    with opened(path) as log:
        (noise,) = log.noise([5])
    steps = {k: step for k, step in Factor(5).steps.items() if 0 < k < 5}
    carried = [sum(step * int(before[5 - k][j]) for k, step in steps.items()) for j in range(6)]
    expected = [drawn - (each + 32) // 64 for each in carried]
    assert noise[:6].tolist() == expected


@pytest.mark.parametrize(("person", "bits"), [(None, 20), ("id", 16)])
def test_rows_are_rounded_as_finely_as_noise_leaves_room(path: Path, person: str | None, bits: int) -> None:
    """Towards zero, which no error bar has: with three bits less, by 8 deviations of noise for a million with ids."""
    people = _people().drop(columns="weight")
    dpgep.Nights(path, person=person, **TERMS).add(people if person else people.drop(columns="id"), night="0")
    assert _described(path).noise.bits == bits


def opened(path: Path, *, write: bool = False) -> AbstractContextManager[night_file.NightLog]:
    return night_file.NightFile(path).transaction(write=write)


def _described(path: Path) -> Any:
    with opened(path) as log:
        return Register.stored(log)


@pytest.mark.entropy
def test_a_copy_publishes_the_same_numbers_for_the_same_rows_and_no_noise_twice_for_others(path: Path) -> None:
    nights = dpgep.Nights(path, adjacency="add-remove", **TERMS)
    nights.add(rows_of(0), night="0")
    copies = [path.with_name(name) for name in "abc"]
    for copy in copies:
        shutil.copy(path, copy)
    rows = rows_of(1)
    seen = [dpgep.Nights(copy).add(each, night="1") for copy, each in zip(copies, (rows, rows, rows[1:]), strict=True)]
    assert nights.add(rows, night="1").fingerprint == seen[0].fingerprint == seen[1].fingerprint
    moved = seen[0]._noisy.counts * seen[0].n_people - seen[2]._noisy.counts * seen[2].n_people
    assert np.abs(moved - 1).min() > 1e-6  # a person who was left out does not show as a difference of exactly one
    other = dpgep.Nights(path.with_name("other"), adjacency="add-remove", **TERMS)
    other.add(rows_of(0), night="0")
    assert other.release().fingerprint != nights.release(last="0").fingerprint


LATE = np.array([[0.3, -0.7, 0.05]])


@pytest.mark.entropy
@pytest.mark.parametrize(
    ("one", "another"),
    [
        ([np.vstack([rows_of(1), LATE]), rows_of(2)], [rows_of(1), np.vstack([rows_of(2), LATE])]),
        ([rows_of(1), rows_of(2)], [rows_of(2), rows_of(1)]),
        ([rows_of(1)[:0], rows_of(1)], [rows_of(1), rows_of(1)[:0]]),
    ],
    ids=["a row that comes a night later", "nights in another order", "an empty night before"],
)
def test_copies_whose_sums_meet_again_have_noise_of_their_own(
    path: Path, one: list[Matrix], another: list[Matrix]
) -> None:
    """Were the last noise of both copies the same, their releases would be solved for rows, to all digits.

    Noise is within 1 in ten entries with a probability below 1e-12.
    """
    dpgep.Nights(path, adjacency="add-remove", **TERMS).add(rows_of(0), night="0")
    shutil.copy(path, other := path.with_name("copy"))
    seen = []
    for copy, nights in ((path, one), (other, another)):
        for night, rows in enumerate(nights):
            dpgep.Nights(copy).add(rows, night=f"next {night}")
        with opened(copy) as log:
            seen.append([log.so_far(number)[1] for number in (2, 3)])
    first, second = (mine - of_other for mine, of_other in zip(*seen, strict=True))
    exact, of_other = (
        np.concatenate([(rows.T @ rows)[np.triu_indices(3)], rows.sum(axis=0), [len(rows)]])
        for rows in (one[0], another[0])
    )
    assert np.abs(first - 2 * second - (exact - of_other)).max() > 1


@pytest.mark.parametrize("keep", [1, 2, 365])
def test_a_night_that_the_power_cut_tore_was_not_there_and_is_added_again(path: Path, keep: int) -> None:
    """Whichever parts of what is written reach the disk: the night is there as a whole, or those before it are."""
    nights = dpgep.Nights(path, keep=keep, **TERMS)
    for night in range(4):
        nights.add(rows_of(night), night=str(night))
    before, expected = path.read_bytes(), []
    expected = [nights.release(), nights.add(rows_of(4), night="4")]
    after, chance = path.read_bytes(), random.Random(keep)
    before = before.ljust(len(after), b"\0")
    places = [place for place in range(len(after)) if before[place] != after[place]]
    cuts = sorted({place // 16 for place in places})
    found = []
    for _ in range(60):
        written, torn = chance.choice([0.0, 0.05, 0.5, 0.95, 1.0]), bytearray(before)
        for cut in cuts[2:] if cuts[1] == 1 else cuts[1:]:  # the acknowledgement comes after all of it
            if chance.random() < written:
                torn[16 * cut : 16 * cut + 16] = after[16 * cut : 16 * cut + 16]
        path.write_bytes(torn)
        there = dpgep.Nights(path)
        found.append(there.release().fingerprint)
        assert found[-1] == expected[len(there.labels) - 4].fingerprint
        if len(there.labels) == 4:
            assert there.add(rows_of(4), night="4").fingerprint == expected[1].fingerprint
    assert {each.fingerprint for each in expected} == set(found)


def test_damage_of_a_night_that_was_seen_is_refused(path: Path) -> None:
    """Its bits could otherwise be lost, and other noise be drawn for the same people."""
    nights = dpgep.Nights(path, **TERMS)
    for night in range(3):
        nights.add(rows_of(night), night=str(night))
    content = path.read_bytes()
    with opened(path) as log:
        (secret, exact), (noise, start) = (log.secret, log._exact), (log.noise([3]).tobytes(), log.nights[-1].start)
    of_night = content.index(noise) - 5  # before a checksum
    reads: dict[int, Callable[[], Any]] = {
        content.index(noise): lambda: dpgep.Nights(path).add(rows_of(3), night="3"),
        of_night: lambda: dpgep.Nights(path).release(),
        **dict.fromkeys((100, content.index(secret), content.index(exact), start), lambda: dpgep.Nights(path)),
    }
    for place, read in reads.items():
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match="is damaged: go on from its backup"):
            read()
    for other in (content[:-1], content[:16] + bytes(8) + content[24:], bytes(48) + content[48:]):
        path.write_bytes(other)
        with pytest.raises(ValueError, match="is damaged"):
            dpgep.Nights(path, **TERMS)  # it does not begin again


def test_what_was_not_begun_to_the_end_is_begun_again(path: Path) -> None:
    """Its head is forced to the disk first, so that what is larger and has none is damaged."""
    dpgep.Nights(path, **TERMS).add(rows_of(0), night="0")
    with opened(path) as log:
        begun = path.read_bytes()[:16] + bytes(8) + path.read_bytes()[24 : log._states[1]]
    torn = [bytes(48), *(begun[:size] for size in (0, 10, 30, 48, 300)), begun[:48] + bytes(len(begun) - 48), begun]
    for content in torn:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="holds no nights yet"):
            dpgep.Nights(path)
        dpgep.Nights(path, **TERMS).add(rows_of(0), night="0")
        assert dpgep.Nights(path).labels == ("0",)


def test_whatever_was_damaged_a_register_gives_its_own_bits_or_is_refused(path: Path) -> None:
    """Bits, lengths, and pieces of later files, as of a copy that was made while nights were added."""
    nights, chance = dpgep.Nights(path, keep=2, **TERMS), random.Random(0)
    states, expected, given, refused = [], [], 0, 0
    for night in range(6):
        expected.append(nights.add(rows_of(night), night=str(night)).fingerprint)
        states.append(path.read_bytes())
    for trial in range(90):
        content = bytearray(states[3])
        if trial % 3 == 0:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        elif trial % 3 == 1:
            del content[chance.randrange(len(content)) :]
        else:
            size, content = chance.choice([16, 64, 512]), bytearray(states[5])
            for start in range(0, len(content), size):
                piece = chance.choice(states[3:])[start : start + size]
                content[start : start + len(piece)] = piece
        path.write_bytes(content)
        try:
            there = dpgep.Nights(path)
            seen = len(there.labels)
            assert there.release().fingerprint == expected[seen - 1]
            for night in range(seen, 6):
                assert there.add(rows_of(night), night=str(night)).fingerprint == expected[night]
        except ValueError as error:
            refused += bool(re.search(r"is damaged|holds no nights", str(error)))
        else:
            given += 1
    assert given + refused == 90
    assert 0 < given < refused


@pytest.mark.parametrize("keep", [2, 3])
def test_a_copy_that_nights_overtook_is_refused(path: Path, keep: int) -> None:
    """Its next night would subtract noise of a later one: of what both publish, exact sums were left."""
    nights, copy = dpgep.Nights(path, keep=keep, **TERMS), path.with_name("copy")
    for night in range(5):
        nights.add(rows_of(night), night=str(night))
    with opened(path) as log:
        first = path.read_bytes()[: log.nights[0].start]
    for night in (5, 6):
        nights.add(rows_of(night), night=str(night))
    copy.write_bytes(first + path.read_bytes()[len(first) :])
    overtaken = dpgep.Nights(copy)
    assert len(overtaken.labels) == 5
    with pytest.raises(ValueError, match="is damaged: go on from its backup"):
        overtaken.add(rows_of(5), night="5")


def test_damage_of_former_nights_is_refused_where_they_are_read(path: Path) -> None:
    nights = dpgep.Nights(path, person="id", nights=9, **TERMS)
    for night in range(4):
        nights.add(rows_of(night), night=str(night), person=np.arange(40 + night))
    content = path.read_bytes()
    with opened(path) as log:
        found = log.nights[1]
    reads: dict[int, Callable[[], Any]] = {
        found.ids: lambda: nights.add(rows_of(4), night="4", person=np.arange(44)),
        found.published: lambda: nights.release("1", "1"),
        found.start + night_file._NIGHT.size: lambda: dpgep.Nights(path),  # its label could be given again
    }
    for place, read in reads.items():
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ValueError, match="is damaged"):
            read()


def test_a_file_that_is_replaced_is_read_anew(path: Path) -> None:
    """What a process has seen of another file does not count, be it longer, as long or shorter."""
    nights, others = (dpgep.Nights(each, **TERMS) for each in (path, path.with_name("others")))
    for night in range(3):
        nights.add(rows_of(night), night=str(night))
        others.add(rows_of(night + 5), night=f"other {night}")
        shutil.copy(path, path.with_name(f"until {night}"))
    expected = nights.release(last="1").fingerprint
    shutil.copy(path.with_name("until 1"), path)
    assert nights.labels == ("0", "1")
    assert nights.release().fingerprint == expected
    os.replace(path.with_name("others"), path)
    assert nights.labels == ("other 0", "other 1", "other 2")
    assert nights.release().fingerprint == dpgep.Nights(path).release().fingerprint
    wide = dpgep.Nights(path.with_name("wide"), **TERMS)  # where a known night lay there is something else
    for night in range(9):
        wide.add(np.pad(rows_of(night), ((0, 0), (0, 5))), night=f"wide {night}")
    os.replace(path.with_name("wide"), path)
    assert nights.labels == tuple(f"wide {night}" for night in range(9))


def test_who_waits_too_long_for_others_adds_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights = dpgep.Nights(path, **TERMS)
    nights.add(rows_of(0), night="0")
    monkeypatch.setattr(night_file, "_PATIENCE", 0.0)
    with opened(path), pytest.raises(OSError, match="another process uses them; nothing was added"):
        nights.add(rows_of(1), night="1")
    assert nights.labels == ("0",)
    monkeypatch.setattr(night_file, "write_all", mock.Mock(side_effect=OSError(28, "no space")))
    with pytest.raises(OSError, match="no space"):
        nights.add(rows_of(1), night="1")
    monkeypatch.undo()
    assert dpgep.Nights(path).labels == ("0",)


def test_a_night_that_is_there_was_added_though_it_cannot_be_acknowledged(path: Path) -> None:
    """Who was told that nothing was added would add the same people again, under another label."""
    nights = dpgep.Nights(path, **TERMS)
    nights.add(rows_of(0), night="0")
    with mock.patch.object(night_file.NightLog, "_acknowledge", side_effect=OSError(28, "no space")):
        found = nights.add(rows_of(1), night="1")
    assert dpgep.Nights(path).release().fingerprint == found.fingerprint
    nights.add(rows_of(2), night="2" * 70_000)  # also where the label is longer than two bytes count
    assert dpgep.Nights(path).labels == ("0", "1", "2" * 70_000)


def test_noise_is_drawn_anew_for_any_change(path: Path) -> None:
    """Of night, sums in either limb, copy or version: no two of these streams begin with the same bytes."""
    dpgep.Nights(path, **TERMS).add(rows_of(0), night="0")
    exact, began = np.zeros((2, 10), np.int64), []
    with opened(path) as log:
        secret = log.secret
        assert len(secret) == 32
        others = [exact.copy() for _ in range(20)]
        for j, other in enumerate(others):
            other.flat[j] = 1
        for each in (exact, *others):
            log.secret = secret
            began += [log.stream(each).bytes(32), log.stream(each).bytes(32)]
        log.secret = secret
        with mock.patch.object(night_file.core, "__version__", "another"):
            began.append(log.stream(exact).bytes(32))
        began.append(log.secret)
        log.secret = secret
        assert log.stream(exact).bytes(32) == began[0]
    assert len(set(began)) == len(began)


def test_an_empty_file_that_all_may_read_is_closed_to_them(path: Path) -> None:
    path.touch()
    path.chmod(0o666)
    dpgep.Nights(path, **TERMS).add(rows_of(0), night="0")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("label", ["", " 1", "1 ", "a\0b", "\ud800", 7])
def test_a_label_that_no_file_holds_begins_nothing(path: Path, label: Any) -> None:
    with pytest.raises(ValueError, match="night must be a label"):
        dpgep.Nights(path, **TERMS).add(rows_of(0), night=label)
    assert not path.exists()


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(
    "forged",
    [
        {"diagonal": 0},
        {"diagonal": 0, "off_diagonal": 0, "sums": 0, "counts": 0},
        {"diagonal": 1, "off_diagonal": 1, "sums": 1, "counts": 1},
        {"off_diagonal": 1},
        {"sums": -1},
        {"weight_bits": 0},
        {"nights": 2},
        {"keep": 400},
        {"keep": 0},
    ],
)
def test_a_register_of_less_noise_than_its_report_says_is_refused(path: Path, adjacency: Any, forged: Any) -> None:
    dpgep.Nights(path, keep=5, adjacency=adjacency, **TERMS).add(rows_of(0), night="0")
    register = _described(path)
    noise = {name: value for name, value in forged.items() if name not in ("nights", "keep")}
    others = {name: value for name, value in forged.items() if name not in noise}
    other = replace(register, noise=replace(register.noise, **noise), **others)
    copy = night_file.NightFile(path.with_name("forged"))
    with copy.transaction(write=True, create=True) as log:
        log.begin(NIGHTS.packed(other), bytes(32), register.size, register.keep)
    with pytest.raises(ValueError, match=r"forged|not of the nights|keep must be"):
        dpgep.Nights(copy.path)


def test_a_preparation_is_bought_of_the_first_night_and_stays(path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((4000, 2)) * [10, 100] + 50, columns=["a", "b"])
    nights = dpgep.Nights(path, epsilon=1.0, delta=1e-6)
    first = nights.add(table, night="1")
    second = nights.add(table + 1, night="2")
    assert first.preprocessing is not None
    assert second.preprocessing is not None
    np.testing.assert_array_equal(first.preprocessing.scale, second.preprocessing.scale)
    assert second.report.mu == first.report.mu
    assert len(second.report.releases) > 1
    np.testing.assert_allclose(second.mean(), [50.5, 50.5], atol=6)
    with pytest.raises(ValueError, match="columns"):
        nights.add(table.rename(columns={"a": "c"}), night="3")


def test_a_first_night_that_is_too_small_to_be_prepared_of_is_named(path: Path) -> None:
    table = pd.DataFrame(rows_of(0, 4000), columns=["a", "b", "c"])
    with pytest.warns(dpgep.errors.AccuracyWarning, match=r"took 5\d% of the budget of all nights"):
        dpgep.Nights(path, epsilon=1.0, delta=1e-6).add(table[:300], night="1")
    with warnings.catch_warnings():
        warnings.simplefilter("error", dpgep.errors.AccuracyWarning)
        dpgep.Nights(path).add(table[300:600], night="2")
        dpgep.Nights(path.with_name("larger"), epsilon=1.0, delta=1e-6).add(table, night="1")
        dpgep.Nights(path.with_name("public"), **TERMS).add(table[:300], night="1")


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("n", [2, 300])
def test_changes_without_drift_have_the_deviations_that_are_stated(
    path: Path, adjacency: Any, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 80 columns, of almost nobody and of many: mean squares of normal numbers are within 6 of their deviations."""
    rng, d = np.random.default_rng(0), 80
    nights = dpgep.Nights(path, keep=9, adjacency=adjacency, **TERMS)
    for night in range(60):
        with warnings.catch_warnings():
            warnings.simplefilter("error", dpgep.errors.AccuracyWarning)
            nights.add(rng.standard_normal((n, d)) / 18, night=str(night))
    monkeypatch.setattr(dpgep.nights, "_SLIGHT", 0.0)  # type: ignore[attr-defined]
    with nights._file.transaction() as tables:
        register = nights._register(tables)
        squares = np.array([register.drift(tables, last) ** 2 for last in (56, 60)]).mean(axis=0)
    of_squares, of_means = squares[:d], squares[d:]
    assert of_means.mean() > 0.5 or (n, adjacency) == (2, "add-remove")  # whose number is noise, and counts as such
    assert max(of_means.mean(), of_squares.mean()) < 1.7


@pytest.mark.parametrize(("moved", "named"), [(0.05, "mean of b"), (0.0, None)])
def test_a_column_that_drifts_is_named(path: Path, moved: float, named: str | None) -> None:
    rng, nights, said = np.random.default_rng(0), dpgep.Nights(path, **TERMS), []
    for night in range(60):
        rows = pd.DataFrame(
            rng.standard_normal((1000, 3)) * 0.1 + [0, moved * (night > 30), 0], columns=["a", "b", "c"]
        )
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            nights.add(rows, night=str(night))
        said += [str(each.message) for each in seen if "nights differ" in str(each.message)]
    assert bool(said) == bool(named)
    assert all(f"{named}." in each for each in said)


def test_constants_without_noise_are_compared_too(path: Path) -> None:
    """Zero over zero is no change, and no warning of numpy's; a constant that changes has no deviation at all."""
    nights, rows = dpgep.Nights(path, **PLAIN), np.full((4, 2), 0.5) * [1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for night in range(56):
            nights.add(rows, night=str(night))
    with pytest.warns(dpgep.errors.AccuracyWarning, match=r"before: mean of column 0\. Compare"):
        nights.add(rows[::-1] * [-39, 0], night="56")
    assert nights.labels[-1] == "56"


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_nights_without_drift_are_named_once_in_a_thousand_mornings(path: Path, adjacency: Any) -> None:
    """Of 1500 registers of ten people a night: over 15 alarms, where 1.5 are expected, have a chance of 1e-11."""
    nights, rng, last, d = dpgep.Nights(path, adjacency=adjacency, **TERMS), np.random.default_rng(0), 60, 3
    nights.add(np.zeros((2, d)), night="0")
    with nights._file.transaction() as tables:
        register = nights._register(tables)
    noise, layout = register.noise.deviations(), register.layout
    scales = np.r_[[noise.second] * 6, [noise.sums] * d * layout.sums, [noise.counts] * layout.counts]
    exact = np.r_[[1 / d * (j in (0, 3, 5)) for j in range(6)], np.zeros(d * layout.sums), [1.0] * layout.counts]
    weights, alarms = {night: register.factor.combination(1, night) for night in (32, 60)}, 0
    for _ in range(1500):
        drawn = rng.standard_normal((last, len(scales))) * scales
        so_far = {k: (10 * k, 10 * k * exact + w @ drawn[:k]) for k, w in weights.items()} | {0: (0, np.zeros(1))}
        alarms += bool(register.drifted(mock.Mock(nights=range(last), so_far=so_far.__getitem__)))
    assert alarms <= 15


def _in_a_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child


def _add_and_note(path: Path, notes: Path, names: list[str]) -> None:
    """Add nights, and note the fingerprint of each release that was seen."""
    nights = dpgep.Nights(path)
    for name in names:
        if name not in nights.labels:
            found = nights.add(rows_of(int(name), 300), night=name)
            if len(nights.labels) and found.n_people:
                with open(notes, "a") as file:
                    file.write(f"{found.n_people} {found.fingerprint}\n")


def _require_seen(path: Path, notes: Path) -> None:
    """What anybody saw is what the file holds, of each number of nights once."""
    nights, seen = dpgep.Nights(path), dict(line.split() for line in notes.read_text().splitlines())
    assert len(set(nights.labels)) == len(nights.labels)
    there = [nights.release(last=label) for label in nights.labels]
    held = {str(each.n_people): each.fingerprint for each in there}
    assert seen.items() <= held.items()


@pytest.mark.entropy
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked children")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=pytest.mark.deep)])
def test_processes_that_are_killed_add_a_night_once_or_not(path: Path, tmp_path: Path, kills: int) -> None:
    """Two at a time add the same nights, and are killed at random; what they saw is never drawn again."""
    notes, chance = tmp_path / "notes", random.Random(0)
    notes.touch()
    dpgep.Nights(path, keep=20, **TERMS).add(rows_of(0), night="0")
    names = [str(each) for each in range(1, 10 * kills)]
    for _ in range(kills):
        children = [_in_a_child(lambda: _add_and_note(path, notes, names)) for _ in range(2)]
        for child in children:
            time.sleep(chance.uniform(0, 0.2))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    _require_seen(path, notes)
    before = dpgep.Nights(path).labels
    dpgep.Nights(path).add(rows_of(1), night="last")
    assert dpgep.Nights(path).labels == (*before, "last")
    assert len(before) > 1


# ---- what it costs, by replays ----


def _worst(
    adjacency: Any, nights: int, of_night: list[int], *, ids: bool = False
) -> tuple[Callable[[Any], Any], tuple[Matrix, Matrix]]:
    """A run, and the rows of the person who differs, on some nights of twelve: the worst that a release knows."""
    cosine = -1 / 8  # for noise of deviations (1, 2): section 3
    one, other = np.array([1.0, 0, 0]), np.array([cosine, np.sqrt(1 - cosine**2), 0])
    crowd = np.array([[0.0, 0, 0.5]] * 3)

    def run(row: Matrix) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            return seen(row, folder)

    def seen(row: Matrix, folder: str) -> Any:
        terms: dict[str, Any] = {"adjacency": adjacency, "mu": 1.0, "bound": 1.0, "person": "id" if ids else None}
        register = dpgep.Nights(Path(folder) / "a", keep=5, nights=nights, **terms)
        rows = [np.vstack([crowd, row]) if night in of_night else crowd for night in range(12)]
        whose = [[*range(10 * night, 10 * night + 3), 999][: len(each)] for night, each in enumerate(rows)]
        return [
            register.add(each, night=str(night), person=whose[night] if ids else None)
            for night, each in enumerate(rows)
        ]

    return run, (np.empty((0, 3)) if adjacency == "add-remove" else other[None], one[None])


@pytest.mark.entropy
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize(("nights", "came", "least"), [(1, [3], 0.99), (3, [2, 3, 4], 0.99), (3, [0, 4, 6], 0.5)])
def test_a_person_costs_what_is_paid_and_no_less_on_neighbouring_nights(
    adjacency: Any, nights: int, came: list[int], least: float
) -> None:
    run, people = _worst(adjacency, nights, came)
    result = dpgep.auditing.replay(run, people)
    assert not result.flagged, result
    assert least < result.mu <= 1


@pytest.mark.entropy
def test_a_person_who_comes_once_more_than_was_promised_costs_more_unless_somebody_counts() -> None:
    run, people = _worst("add-remove", 2, [2, 3, 4])
    assert dpgep.auditing.replay(run, people).flagged
    run, people = _worst("add-remove", 2, [2, 3, 4], ids=True)
    result = dpgep.auditing.replay(run, people)
    assert not result.flagged, result
    assert 0.98 < result.mu <= 1


@pytest.mark.entropy
def test_a_person_whose_further_nights_are_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night_file.NightLog, "came", lambda *given: [])
    run, people = _worst("add-remove", 2, [2, 3, 4], ids=True)
    assert dpgep.auditing.replay(run, people).flagged


@pytest.mark.entropy
@pytest.mark.parametrize("fault", ["a price of one night", "noise drawn for every second night", "a larger step"])
def test_faults_are_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "a price of one night":
        real = Factor.mu_of_a_night
        monkeypatch.setattr(Factor, "mu_of_a_night", lambda self, mu, nights: real(self, mu, 1))
    elif fault == "a larger step":
        monkeypatch.setattr(Factor, "steps", {0: 64, 1: -25, 5: -20})
    else:
        noisy, calls = dpgep.nights.add_noise, iter(range(99))  # type: ignore[attr-defined]
        monkeypatch.setattr(dpgep.nights, "add_noise", lambda *given: next(calls) % 2 and noisy(*given))  # type: ignore[attr-defined]
    run, people = _worst("add-remove", 3, [2, 3, 4])
    assert dpgep.auditing.replay(run, people).flagged
