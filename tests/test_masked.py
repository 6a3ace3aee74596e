"""`dpgep.masked`: sums of sites that trust nobody; one answer per session, refusals, and what the coordinator sees."""

from __future__ import annotations

import copy
import hashlib
import math
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Matrix
from hypothesis import given, settings
from hypothesis import strategies as st
from model_rows import MODELS, arguments, dataset
from scipy import stats
from statistics_helpers import FALSE_ALARM, rejects_equal_distributions
from stored import bytes_of

import dpgep
from dpgep import masked
from dpgep.auditing.bounds import numbers_in
from dpgep.data import integer_moments
from dpgep.masked import Site, Terms, new_identity, release
from dpgep.privacy.noise import IntegerNoise
from dpgep.serialization import Format, opened

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "masked_sites.py"
NAMES = ("north", "south", "west", *(f"site {i}" for i in range(4, 11)))
MODEL = dpgep.models.PcaModel(3, center=True)
D = MODEL.n_features
# X25519 public keys of order at most 8 (RFC 7748, section 6.1): the shared secret would be zero
LOW_ORDER = (
    "00" * 32,
    "01" + "00" * 31,
    "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
    "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
    *(low + "ff" * 30 + "7f" for low in ("ec", "ed", "ee")),
)


def terms_of(k: int = 3, model: Any = MODEL, **changes: Any) -> Terms:
    given = {"bound": 1.0, "colluding": 0, "session": "test"}
    if not {"epsilon", "mu", "rho"} & set(changes):
        given |= {"epsilon": 1.0, "delta": 1e-6}
    return Terms(model, **{"sites": NAMES[:k], **given, **changes})


def sums_of(terms: Terms, *data: Any) -> dpgep.Moments:
    moments = dpgep.Moments(
        terms.model, bound=terms.bound, adjacency=terms.adjacency, public_n=terms.public_n, bits=terms.bits
    )
    moments.update(*data)
    return moments


def random_sums(terms: Terms, seed: int = 0, n: int = 300) -> dpgep.Moments:
    return sums_of(terms, np.random.default_rng(seed).standard_normal((n, terms.model.n_features)) / 4)


def started(terms: Terms, **options: Any) -> tuple[dict[str, Site], dict[str, bytes]]:
    sites = {name: Site(terms, name, **options) for name in terms.sites}
    return sites, {name: site.key for name, site in sites.items()}


def run(terms: Terms, parts: list[dpgep.Moments]) -> tuple[dpgep.Release, dict[str, bytes]]:
    sites, keys = started(terms)
    messages = {name: sites[name].mask(part, keys) for name, part in zip(terms.sites, parts, strict=True)}
    return release(terms, keys, messages), messages


def altered(sent: bytes, *, payload: bytes | None = None, **fields: Any) -> bytes:
    """What a site sent with other fields (None: without it) and a checksum that fits."""
    document = opened(sent)
    header, content = document.fields, document.payload
    changed = {name: value for name, value in {**header, **fields}.items() if value is not None}
    return Format(document.name).pack(changed, [content if payload is None else payload])


def words_of(message: bytes) -> Any:
    return np.frombuffer(opened(message).payload, dtype="<u8").reshape(2, -1)


# ---- the sum ----


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("k", "limb_bits", "facts"),  # 46 bits: 64 rows a limb, so that there are two
    [
        (2, 62, {"adjacency": "add-remove"}),
        (3, 46, {"adjacency": "add-remove", "public_n": 480}),
        (3, 46, {}),
        (10, 62, {}),
    ],
)
def test_without_noise_it_is_the_release_of_merged_moments(
    name: str, facts: Any, k: int, limb_bits: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integer_moments, "_LIMB_BITS", limb_bits)
    terms, rows = terms_of(k, MODELS[name], epsilon=math.inf, **facts), dataset(rng)
    parts = [sums_of(terms, *arguments(name, rows, part)) for part in np.array_split(rng.permutation(500), k)]
    ours, _ = run(terms, parts)
    for part in parts[1:]:
        parts[0].merge(part)
    theirs = dpgep.release(parts[0], epsilon=math.inf)
    for block in ("second", "sums", "counts"):
        np.testing.assert_array_equal(getattr(ours._noisy, block), getattr(theirs._noisy, block))
    assert (ours.n_people, ours.model, ours.privacy.public) == (theirs.n_people, theirs.model, theirs.privacy.public)
    assert not ours.privacy.exact


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_values_and_what_is_absent_are_summed_together(adjacency: Any, rng: np.random.Generator) -> None:
    preprocessing = dpgep.Preprocessing(4.0, missing=True, pairwise=True)
    facts = {"bound": None, "preprocessing": preprocessing, "adjacency": adjacency}
    terms = terms_of(3, dpgep.models.TableModel(D), epsilon=math.inf, **facts)
    rows = rng.standard_normal((300, D))
    rows[rng.random(rows.shape) < 0.3] = math.nan
    parts = []
    for part in np.array_split(rows, 3):
        parts.append(dpgep.Moments(terms.model, preprocessing=preprocessing, adjacency=adjacency, bits=terms.bits))
        parts[-1].update(part)
    ours, _ = run(terms, parts)
    theirs = dpgep.release(rows, preprocessing=preprocessing, adjacency=adjacency, epsilon=math.inf)
    np.testing.assert_allclose(ours.correlation().values, theirs.correlation().values, atol=1e-4)  # of the grid
    np.testing.assert_array_equal(ours._noisy.counts, theirs._noisy.counts)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_report_states_the_guarantee_and_whom_it_presumes(adjacency: Any) -> None:
    terms = terms_of(3, dpgep.models.TableModel(D, feature_names=("a", "b", "c")), colluding=1, adjacency=adjacency)
    moments, _ = run(terms, [random_sums(terms, seed) for seed in range(3)])
    report = moments.privacy
    report.require_consistent()
    assert (report.epsilon, report.delta, report.adjacency, report.exact, report.seeded) == (
        1.0,
        1e-6,
        adjacency,
        True,
        False,
    )
    assert report.public is not None
    assert report.public.n_people == (900 if adjacency == "replace-one" else None)
    said = "3 sites that follow the protocol, against whoever knows the noise of at most 1 of them"
    assert said in report.to_markdown()
    restored = dpgep.load(bytes_of(moments))
    with pytest.warns(dpgep.errors.AccuracyWarning):
        assert restored.pca(["a", "b"]).privacy.mu == report.mu
    whole = dpgep.release(random_sums(terms, n=900), epsilon=1.0, delta=1e-6)
    # noise of k sites, k - 1 of them honest
    n_ratio = whole.n_people / moments.n_people
    assert moments._noisy.noise.second == pytest.approx(math.sqrt(3 / 2) * n_ratio * whole._noisy.noise.second)


@pytest.mark.statistical
@pytest.mark.parametrize("k", [3, 10])
def test_the_noise_has_the_law_of_one_curators(k: int) -> None:
    """Two samples of 9150 entries each; FALSE_ALARM for each of two tests. Noise that is 1.3 times larger is seen."""
    model, draws = dpgep.models.PcaModel(60, center=False), 5
    terms = terms_of(k, model)
    parts = [random_sums(terms, seed, 100) for seed in range(k)]
    whole = parts[0].copy()
    for part in parts[1:]:
        whole.merge(part)
    exact = dpgep.release(whole, epsilon=math.inf).second_moment
    upper = np.triu_indices(60)

    def noise(released: dpgep.Release) -> Matrix:
        return np.asarray((released.second_moment - exact)[upper] * np.where(upper[0] == upper[1], 1, math.sqrt(2)))

    ours = np.concatenate([noise(run(terms, parts)[0]) for _ in range(draws)])[:, None]
    theirs = np.concatenate([noise(dpgep.release(whole, epsilon=1.0, delta=1e-6)) for _ in range(draws)])[:, None]
    assert not rejects_equal_distributions(ours, theirs)
    assert rejects_equal_distributions(1.3 * ours, theirs)
    # the variance of all entries together
    squares = float((ours**2).sum()) / run(terms, parts)[0]._noisy.noise.second ** 2
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(ours))
    assert low < squares < high


@pytest.mark.statistical
def test_masks_are_uniform_and_cancel_in_the_whole_sum_alone() -> None:
    """Chi-square of the bytes of a message, of a sum of two of three, of all: one alarm each below FALSE_ALARM."""
    terms = terms_of(3, dpgep.models.PcaModel(60, center=True))
    _, messages = run(terms, [random_sums(terms, seed) for seed in range(3)])
    one, two, three = (words_of(message) for message in messages.values())
    some = one.copy()
    masked._add(some, *two)
    everything = some.copy()
    masked._add(everything, *three)

    def is_uniform(words: Any) -> bool:
        counts = np.bincount(np.frombuffer(words.tobytes(), np.uint8), minlength=256)
        return bool(stats.chisquare(counts).pvalue > FALSE_ALARM)

    assert all(map(is_uniform, (one, two, three, some)))
    assert not is_uniform(everything)


@pytest.mark.parametrize("d", [3, 60])
def test_a_message_has_16_bytes_for_each_integer(d: int) -> None:
    terms = terms_of(3, dpgep.models.PcaModel(d, center=True))
    _, messages = run(terms, [random_sums(terms, seed) for seed in range(3)])
    entries = d * (d + 1) // 2 + d + 1  # the second moment's triangle, the sums, n
    assert 0 < len(messages["north"]) - 16 * entries < 300


# ---- arithmetic modulo 2^128 ----


@settings(max_examples=50)
@given(x=st.integers(0, 2**128 - 1), y=st.integers(0, 2**128 - 1))
def test_two_words_are_an_integer_modulo_2_128(x: int, y: int) -> None:
    def words(value: int) -> Any:
        return np.array([[value % 2**64], [value >> 64]], dtype=np.uint64)

    total, difference = words(x), words(x)
    masked._add(total, *words(y))
    masked._subtract(difference, *words(y))
    for found, expected in ((total, x + y), (difference, x - y)):
        assert int(found[0, 0]) + (int(found[1, 0]) << 64) == expected % 2**128


@settings(max_examples=20)
@given(values=st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(-(2**61), 2**61)), min_size=9, max_size=9))
def test_limbs_survive_the_words(values: list[tuple[int, int]]) -> None:
    terms = terms_of()
    low, high = (np.array(each, dtype=np.int64) for each in zip(*values, strict=True))
    blocks, above = (masked._blocks(np.split(each, [6, 9]), terms) for each in (low, high))
    sums = integer_moments.IntegerMoments(*blocks, high=above, bits=20, n=2**45 + 7)
    found = masked._integers(masked._words(sums, terms), terms)
    assert found.n == sums.n
    assert found.high is not None
    for one, other in (
        ((found.second, found.high[0]), (blocks[0], above[0])),
        ((found.sums, found.high[1]), (blocks[1], above[1])),
    ):
        wholes = [low.astype(object) + high.astype(object) * 2**40 for low, high in (one, other)]
        np.testing.assert_array_equal(*wholes)


def test_a_sum_whose_masks_do_not_cancel_is_refused() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    forged = altered(messages["south"], payload=words_of(messages["south"]).tobytes()[::-1])
    with pytest.raises(ValueError, match="masks do not cancel"):
        release(terms, keys, {**messages, "south": forged})


def test_seeds_agree_between_two_sites_and_depend_on_everything_public() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    north, south = sites["north"], sites["south"]
    roster = masked._roster(terms, keys, None)

    def seeds(site: Site, roster: dict[str, bytes]) -> list[tuple[int, bytes]]:
        return list(site._seeds(site._secret, roster))

    (to_south, to_west), (to_north, _) = seeds(north, roster), seeds(south, roster)
    assert to_south[1] == to_north[1] != to_west[1]
    assert to_south[0] == -to_north[0]
    # another list of keys, even if those of the two are the same; or other terms
    assert seeds(north, {**roster, "west": roster["south"]})[0][1] != to_south[1]
    north.terms = replace(terms, session="another")
    assert seeds(north, roster)[0][1] != to_south[1]


# ---- refusals ----


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bound": 2.0}, r"bound \(2.0 and 1.0\)"),
        # equal, but not the same JSON, on which the seeds depend
        ({"model": dpgep.models.PcaModel(D, center=1)}, r"model \(.*'center': 1.* and .*'center': True"),  # type: ignore[arg-type]
        ({"model": dpgep.models.PcaModel(D, center=False)}, r"model \(.*'center': False.* and .*'center': True"),
        ({"session": "another"}, r"session \('another' and 'test'\)"),
        ({"colluding": 1}, r"colluding \(1 and 0\)"),
        ({"epsilon": 2.0}, r"epsilon \(2.0 and 1.0\)"),
        ({"delta": 1e-7}, r"delta \(1e-07 and 1e-06\)"),
        ({"bits": 16}, r"bits \(16 and 20\)"),
        ({"adjacency": "add-remove"}, r"adjacency \('add-remove' and 'replace-one'\)"),
        ({"sites": ("south", "north", "west")}, r"sites \(\['south', 'north', 'west'\] and"),
    ],
)
def test_other_public_facts_are_refused_by_name(change: Any, said: str) -> None:
    terms = terms_of()
    _, keys = started(terms)
    keys["south"] = Site(replace(terms, **change), "south").key
    site = Site(terms, "north")
    keys["north"] = site.key
    with pytest.raises(ValueError, match=f"the terms of south differ in {said}"):
        site.mask(random_sums(terms), keys)
    with pytest.raises(ValueError, match=f"the terms of south differ in {said}"):
        release(terms, keys, {})


def test_who_is_missing_or_unknown_is_named() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    fewer = {name: key for name, key in keys.items() if name != "west"}
    with pytest.raises(ValueError, match="no key from west: masks cancel in the sum over all sites alone"):
        sites["north"].mask(random_sums(terms), fewer)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    with pytest.raises(ValueError, match="no message from south: masks cancel"):
        release(terms, keys, {name: message for name, message in messages.items() if name != "south"})
    with pytest.raises(ValueError, match="a message from east, none of the sites"):
        release(terms, keys, {**messages, "east": b""})
    with pytest.raises(ValueError, match="'east' is none of the sites: north, south, west"):
        Site(terms, "east")


def test_a_damaged_message_is_said_to_be_so() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    said = r"from south: this file is incomplete or was altered"
    with pytest.raises(ValueError, match=said):
        release(terms, keys, {**messages, "south": messages["south"][:-1]})


def test_messages_of_another_session_or_site_are_refused() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    again, new_keys = started(terms)
    new = {name: site.mask(random_sums(terms), new_keys) for name, site in again.items()}
    with pytest.raises(ValueError, match="the message of south was masked for other keys"):
        release(terms, new_keys, {**new, "south": messages["south"]})
    with pytest.raises(ValueError, match="what was given as from south was made by north"):
        release(terms, keys, {**messages, "south": messages["north"]})
    with pytest.raises(ValueError, match=r"from south: this is not a file of format .dpgep-masked-sum."):
        release(terms, keys, {**messages, "south": keys["south"]})
    site = Site(terms, "north")
    with pytest.raises(ValueError, match="the key that came back for north is not the one that this site made"):
        site.mask(random_sums(terms), keys)
    release(terms, keys, messages)


@pytest.mark.parametrize(
    "fields",
    [
        *({field: value} for field in ("site", "terms", "public_key") for value in (None, 3, [])),
        {"terms": {}},
        {"terms": {**terms_of()._fields, "more": None}},
        {"public_key": "not hexadecimal"},
    ],
)
def test_keys_that_make_no_sense_are_refused_by_name(fields: Any) -> None:
    terms = terms_of()
    sites, keys = started(terms)
    keys["south"] = altered(keys["south"], **fields)
    for use in (lambda: sites["north"].mask(random_sums(terms), keys), lambda: release(terms, keys, {})):
        with pytest.raises(ValueError, match="south"):
            use()


@pytest.mark.parametrize(
    "change", [{"roster": None}, {"roster": 3}, {"site": None}, {"payload": b""}, {"payload": bytes(159)}]
)
def test_messages_that_make_no_sense_are_refused_by_name(change: Any) -> None:
    terms = terms_of()
    sites, keys = started(terms)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    with pytest.raises(ValueError, match="south"):
        release(terms, keys, {**messages, "south": altered(messages["south"], **change)})


@pytest.mark.parametrize("header", [b"[]", b"3", b"", b"[" * 200_000, b'"\xff"'])
def test_headers_that_are_no_headers_are_refused_by_name(header: bytes) -> None:
    terms = terms_of()
    _, keys = started(terms)
    content = b"dpgep\n" + len(header).to_bytes(8, "little") + header
    with pytest.raises(ValueError, match="from south: "):
        release(terms, {**keys, "south": content + hashlib.sha256(content).digest()}, {})


def test_what_is_not_bytes_is_refused_by_name() -> None:
    terms = terms_of()
    _, keys = started(terms)
    with pytest.raises(TypeError, match="from south: bytes are needed, got str"):
        release(terms, {**keys, "south": "dpgep masked key"}, {})  # type: ignore[dict-item]


def test_a_total_of_nobody_is_refused() -> None:
    """Masks cancel, but a site has sent a number of people that no site has."""
    terms = terms_of()
    sites, keys = started(terms)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    words = words_of(messages["south"]).copy()
    masked._subtract(words[:, -1:], np.array([900], np.uint64), np.array([0], np.uint64))
    with pytest.raises(ValueError, match="a message was altered"):
        release(terms, keys, {**messages, "south": altered(messages["south"], payload=words.tobytes())})


def test_any_flipped_bit_is_found() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    rng = np.random.default_rng(0)
    for sent, other in ((messages, False), (keys, True)):
        original = sent["south"]
        for position in rng.integers(0, 8 * len(original), 200):
            damaged = bytearray(original)
            damaged[position // 8] ^= 1 << (position % 8)
            changed = {**sent, "south": bytes(damaged)}
            with pytest.raises(ValueError, match="from south: this"):
                release(terms, changed if other else keys, messages if other else changed)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": dpgep.models.PcaModel(4, center=True)}, "moments differ in model"),
        ({"bound": 2.0}, "moments differ in bound"),
        ({"bits": 16}, "moments differ in bits"),
        ({"adjacency": "add-remove"}, "moments differ in adjacency"),
    ],
)
def test_other_moments_are_refused_and_cost_nothing(change: Any, said: str) -> None:
    terms, budget = terms_of(), dpgep.Budget(epsilon=1.0, delta=1e-6)
    sites, keys = started(terms)
    with pytest.raises(ValueError, match=said):
        sites["north"].mask(random_sums(replace(terms, **change)), keys, budget=budget)
    with pytest.raises(TypeError, match=r"only Moments can be merged|moments"):
        sites["north"].mask(np.eye(3), keys, budget=budget)  # type: ignore[arg-type]
    assert budget.releases == ()
    sites["north"].mask(random_sums(terms), keys, budget=budget)
    assert [entry.mu for entry in budget.releases] == [terms.guarantee.mu]


def test_columns_of_other_names_are_refused() -> None:
    terms = terms_of(model=replace(MODEL, feature_names=("a", "b", "c")))
    site = Site(terms, "north")
    keys = {**started(terms)[1], "north": site.key}
    moments = random_sums(terms_of(model=replace(MODEL, feature_names=("a", "c", "b"))))
    with pytest.raises(ValueError, match="'c'"):
        site.mask(moments, keys)
    unnamed, unnamed_keys = started(terms_of())
    with pytest.raises(ValueError, match="the moments name columns, the terms do not"):
        unnamed["north"].mask(moments, unnamed_keys)


def test_columns_without_names_are_not_added_to_columns_with_names() -> None:
    """In another order they would be: variances of 4, 1 and 0.01 came out as 2.0, 2.5 and 0.5."""
    terms, budget = terms_of(2, replace(MODEL, feature_names=("a", "b", "c"))), dpgep.Budget(epsilon=1.0, delta=1e-6)
    sites, keys = started(terms)
    with pytest.raises(ValueError, match="the terms name columns, the moments do not"):
        sites["south"].mask(random_sums(terms_of()), keys, budget=budget)
    assert budget.releases == ()
    assert sites["south"].mask(random_sums(terms), keys, budget=budget)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sites": ("north",)}, "two different names or more"),
        ({"sites": ("north", "north")}, "two different names or more"),
        ({"colluding": 3}, "colluding must be a whole number below that of the sites, got 3"),
        ({"colluding": True}, "colluding must be a whole number"),
        ({"sites": "ab"}, "two different names or more"),
        ({"sites": (1, 2)}, "two different names or more"),
        ({"colluding": 1.0}, "colluding must be a whole number"),
        ({"session": ""}, "session must be a name"),
        ({"session": b"bytes"}, "session must be a name"),
        ({"mu": 40.0}, r"between 2\^-20 and 32, this budget has mu = 40"),
        ({"mu": 1e-7}, r"between 2\^-20 and 32, this budget has mu = 1e-07"),
        ({"bits": 4, "mu": 16.0}, "less than 256 steps of the grid of 4 bits"),
        ({"bound": "auto"}, "give a number as bound"),
    ],
)
def test_terms_out_of_range_are_refused(change: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        terms_of(**change)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda terms: pickle.loads(pickle.dumps(terms))])
def test_terms_are_public_and_can_be_copied(duplicate: Any) -> None:
    terms = terms_of()
    sites, keys = started(terms)
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    same = duplicate(terms)
    assert same == terms
    assert release(same, keys, messages).n_people == 900


# ---- once ----


def test_a_site_answers_once() -> None:
    terms, budget = terms_of(), dpgep.Budget(epsilon=3.0, delta=1e-6)
    sites, keys = started(terms)
    sites["north"].mask(random_sums(terms), keys, budget=budget)
    with pytest.raises(RuntimeError, match="north has answered in this session"):
        sites["north"].mask(random_sums(terms), keys, budget=budget)
    assert len(budget.releases) == 1
    assert repr(sites["north"]) == "Site('north' of 3, session 'test'; has answered)"


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        ("key", "the public key of south is not a valid one"),
        ("people", "include 1 people: a release needs at least 2"),
        ("interrupted", "an update of these moments was interrupted"),
    ],
)
def test_what_is_refused_costs_nothing_and_leaves_the_site_its_answer(refused: str, said: str) -> None:
    terms, budget = terms_of(), dpgep.Budget(epsilon=1.0, delta=1e-6)
    sites, keys = started(terms)
    moments, given = random_sums(terms, n=1 if refused == "people" else 300), dict(keys)
    if refused == "key":
        given["south"] = altered(keys["south"], public_key=bytes(32).hex())
    if refused == "interrupted":
        moments._sums._is_whole = False
    with pytest.raises((ValueError, RuntimeError), match=said):
        sites["north"].mask(moments, given, budget=budget)
    assert budget.releases == ()
    assert "has not answered yet" in repr(sites["north"])
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    assert release(terms, keys, messages).n_people == 900


def test_an_interrupted_answer_is_paid_and_cannot_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    terms, budget = terms_of(), dpgep.Budget(epsilon=2.0, delta=1e-6)
    sites, keys = started(terms)
    monkeypatch.setattr(masked, "_add_mask", interrupt)
    with pytest.raises(KeyboardInterrupt):
        sites["north"].mask(random_sums(terms), keys, budget=budget)
    assert [entry.mu for entry in budget.releases] == [terms.guarantee.mu]
    with pytest.raises(RuntimeError, match="north has answered in this session"):
        sites["north"].mask(random_sums(terms), keys, budget=budget)


def test_of_many_threads_one_gets_an_answer() -> None:
    terms = terms_of()
    sites, keys = started(terms)

    def mask(_: int) -> bool:
        try:
            sites["north"].mask(random_sums(terms), keys)
        except RuntimeError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(mask, range(16))) == 1


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_site_has_no_copies(duplicate: Any) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        duplicate(Site(terms_of(), "north"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_cannot_answer() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sites["north"].mask(random_sums(terms), keys)
        except dpgep.errors.PrivacyBudgetError as error:
            code = 0 if "belongs to another process" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    sites["north"].mask(random_sums(terms), keys)


def test_a_budget_beyond_the_proof_is_refused() -> None:
    """The corollary of docs/masked.md is about budgets of at most 32; infinite ones promise nothing."""
    terms = terms_of()
    sites, keys = started(terms)
    budget = dpgep.Budget(mu=33.0)
    with pytest.raises(ValueError, match=r"proved for budgets of mu <= 32, got mu = 33"):
        sites["north"].mask(random_sums(terms), keys, budget=budget)
    assert budget.releases == ()
    sites["north"].mask(random_sums(terms), keys, budget=dpgep.Budget(mu=math.inf))


def test_a_site_whose_budget_does_not_suffice_sends_nothing() -> None:
    terms, budget = terms_of(), dpgep.Budget(epsilon=0.5, delta=1e-6)
    sites, keys = started(terms)
    with pytest.raises(dpgep.errors.PrivacyBudgetError, match="the budget cannot pay for mu"):
        sites["north"].mask(random_sums(terms), keys, budget=budget)
    other = dpgep.Budget(epsilon=2.0, delta=1e-6, adjacency="add-remove")
    with pytest.raises(dpgep.errors.PrivacyBudgetError, match="spent under add-remove"):
        sites["north"].mask(random_sums(terms), keys, budget=other)
    assert budget.releases == other.releases == ()
    sites["north"].mask(random_sums(terms), keys)  # the secret was not used


# ---- who made a key ----


def test_keys_of_strangers_are_refused() -> None:
    terms = terms_of()
    pairs = {name: new_identity() for name in terms.sites}
    trusted = {name: public for name, (_, public) in pairs.items()}
    sites = {
        name: Site(terms, name, identity=secret, trusted_keys={k: v for k, v in trusted.items() if k != name})
        for name, (secret, _) in pairs.items()
    }
    keys = {name: site.key for name, site in sites.items()}
    said = "the key of south is not signed by the identity in trusted_keys"
    other_session = Site(replace(terms, session="old"), "south", identity=pairs["south"][0]).key
    replayed = altered(other_session, terms=terms._fields)
    for stranger in (
        Site(terms, "south").key,
        Site(terms, "south", identity=new_identity()[0]).key,
        replayed,
        *(altered(keys["south"], signature=signature) for signature in ("not hexadecimal", 3, "", "00" * 64)),
        altered(keys["south"], public_key=Site(terms, "south")._public.hex()),
    ):
        with pytest.raises(ValueError, match=said):
            sites["north"].mask(random_sums(terms), {**keys, "south": stranger})
    with pytest.raises(ValueError, match="trusted_keys of south: "):
        Site(terms, "north", trusted_keys={**trusted, "south": b"short"})
    with pytest.raises(ValueError, match="trusted_keys lack south, west"):
        Site(terms, "north", trusted_keys={})
    messages = {name: site.mask(random_sums(terms), keys) for name, site in sites.items()}
    release(terms, keys, messages)


@pytest.mark.parametrize("split", [False, True])
def test_sites_with_different_lists_of_keys_show_nothing(split: bool) -> None:
    """A corrupt west signs a key for each of the others: less its masks, what they send does not add up to a sum."""
    terms = terms_of()
    pairs = {name: new_identity() for name in terms.sites}
    trusted = {name: public for name, (_, public) in pairs.items()}

    def site(name: str) -> Site:
        return Site(terms, name, identity=pairs[name][0], trusted_keys=trusted)

    north, south, *wests = honest_and_corrupt = [site(name) for name in ("north", "south", "west", "west")]
    keys = {each.name: each.key for each in honest_and_corrupt[:3]}
    total = masked._zeros(terms)
    for honest, west in ((north, wests[0]), (south, wests[split])):
        its_keys = {**keys, "west": west.key}
        masked._add(total, *words_of(honest.mask(random_sums(terms), its_keys)))
        seeds = list(west._seeds(west._secret, masked._roster(terms, its_keys, None)))
        sign, seed = seeds[terms.sites.index(honest.name)]
        masked._add_mask(total, seed, sign)
    if split:
        with pytest.raises(ValueError, match="masks do not cancel"):
            masked._integers(total, terms)
    else:
        assert masked._integers(total, terms).n == 600


def test_without_trusted_keys_a_coordinator_can_pose_as_all_the_others() -> None:
    """What docs/masked.md warns of: it sees one site's sums, with that site's share of the noise alone."""
    terms = terms_of(mu=16.0)
    victim, *_ = (sites := [Site(terms, name) for name in terms.sites])
    keys = {site.name: site.key for site in sites}
    nobody = sums_of(terms, np.zeros((2, D)))
    posed = {site.name: site.mask(nobody, keys) for site in sites[1:]}
    alone = sums_of(terms, np.full((5000, D), 0.5))
    seen = release(terms, keys, {**posed, "north": victim.mask(alone, keys)})
    assert seen.n_people == 5004
    np.testing.assert_allclose(seen.second_moment, 0.25, atol=0.01)


def test_a_key_without_order_is_refused_by_name() -> None:
    terms = terms_of()
    sites, keys = started(terms)
    for point in LOW_ORDER:
        with pytest.raises(ValueError, match="the public key of south is not a valid one"):
            sites["north"].mask(random_sums(terms), {**keys, "south": altered(keys["south"], public_key=point)})


# ---- what the coordinator sees ----


def lone_row(column: int) -> Matrix:
    rows = np.zeros((10, 2))
    rows[0, column] = 1.0
    return rows


@pytest.mark.deep
@pytest.mark.statistical
@pytest.mark.parametrize("colluding", [0, 1])
def test_audits_find_no_more_than_is_paid(colluding: int) -> None:
    """At a confidence of 1 - 1e-7: of the sum without the noise that colluders know, and of the low bits of messages.

    The control is the message of a site whose masks are known: its share of the noise alone is too little.
    """
    terms = terms_of(3, dpgep.models.PcaModel(2, center=False), mu=1.0, colluding=colluding)
    known = replace(terms)
    known.__dict__["share"] = IntegerNoise(terms.bits, 0, 0, 0, 0)  # whoever knows the noise can subtract it
    others = [random_sums(terms, seed, 10) for seed in range(2)]
    budget: Any = {"mu": 1.0, "runs": 300, "confidence": 1 - 1e-7}

    def view(rows: Matrix) -> tuple[Matrix, Matrix]:
        sites = {name: Site(terms if name != "west" or not colluding else known, name) for name in terms.sites}
        keys = {name: site.key for name, site in sites.items()}
        parts = zip(sites, [sums_of(terms, rows), *others], strict=True)
        messages = {name: sites[name].mask(part, keys) for name, part in parts}
        words = [words_of(message) % np.uint64(2**32) for message in messages.values()]
        return release(terms, keys, messages).second_moment * 30, np.array(words, dtype=float)

    neighbours = (lone_row(0), lone_row(1))

    def likelihood(output: tuple[Matrix, Matrix]) -> float:
        return float(output[0][1, 1] - output[0][0, 0])

    values = dpgep.auditing.audit(view, neighbours, likelihood, gaussian=True, **{**budget, "runs": 800})
    assert not values.flagged
    assert values.mu > 0.25  # the bound has a mean of about 0.6 and a deviation of 0.06; of 300 runs 0.4 and 0.09
    bits = dpgep.auditing.audit(view, neighbours, lambda output: numbers_in(list(output))[0], low_bits=True, **budget)
    assert not bits.flagged

    def one_share(rows: Matrix) -> float:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(masked, "_add_mask", lambda *_: None)
            sites, keys = started(terms)
            words = words_of(sites["north"].mask(sums_of(terms, rows), keys))
        second = masked._integers(words.copy(), terms).to_float()[0]
        return float(second[1, 1] - second[0, 0])

    assert dpgep.auditing.audit(one_share, neighbours, float, gaussian=True, **{**budget, "runs": 800}).flagged


# ---- processes ----


@pytest.mark.deep
@pytest.mark.parametrize("fails", [None, "south"])
def test_three_processes_over_pipes(fails: str | None) -> None:
    command = [sys.executable, str(EXAMPLE), *(["--fails", fails] if fails else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if fails:
        assert done.returncode == 1
        assert "nothing was opened: no message from south: masks cancel" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    assert "epsilon = 1, delta = 1e-06" in done.stdout
    first = [abs(float(word)) for word in done.stdout.split("first component: [")[1].rstrip("]\n").split(", ")]
    assert first[:2] == pytest.approx([0.71, 0.71], abs=0.05)
