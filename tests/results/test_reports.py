"""Privacy reports as documents: everything in them follows from the ledger, is recomputed, and harms no reader."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import solve_seeded
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from stored import bytes_of

import dpgep
from dpgep.cli import main
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock, percent, up
from dpgep.problems.builders import table_problem
from dpgep.reports.report import document_of, verify

DATA = Path(__file__).resolve().parents[1] / "support"
SEVENTH = datetime.date(2026, 11, 7)


def report(**changes: Any) -> dpgep.PrivacyReport:
    found = dpgep.load(DATA / "solution-1.json").privacy
    return dataclasses.replace(found, seeded=False, **changes)


def sampled() -> dpgep.PrivacyReport:
    return dpgep.load(DATA / "solution-1-sampled.json").privacy


def gaussian(mu: float, **changes: Any) -> dpgep.PrivacyReport:
    entry = LedgerEntry("moment matrix", mu, (NoiseBlock("all", "goe", 1.0),))
    parts = {"epsilon": None, "delta": None, "releases": (entry,), "mu": mu, **changes}
    return report(**parts)


@pytest.mark.parametrize("make", [report, sampled, lambda: gaussian(0.3), lambda: gaussian(0.3, adjacency="local")])
def test_a_report_verifies(make: Callable[[], dpgep.PrivacyReport]) -> None:
    text = make().to_json(dataset="visits", purpose="a test", date=SEVENTH)
    found = verify(text)
    assert (found.dataset, found.purpose, found.date) == ("visits", "a test", "2026-11-07")
    assert found.privacy == make()
    assert found.privacy.public == make().public
    assert found.to_json() == text


def test_the_hash_is_that_of_the_canonical_json() -> None:
    document = json.loads(report().to_json())
    stated = document.pop("sha256")
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(canonical.encode()).hexdigest() == stated
    assert document["date"] == datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def test_all_forms_of_a_day_state_the_same_hash() -> None:
    about: dict[str, Any] = {"dataset": "visits", "date": SEVENTH}
    digest = json.loads(report().to_json(**about))["sha256"]
    assert digest in report().to_html(**about)
    assert digest in report().to_markdown(**about)
    assert digest not in report().to_html(dataset="others", date=SEVENTH)


def test_a_report_of_version_1_verifies_for_ever() -> None:
    found = verify((DATA / "report-1.json").read_bytes())
    assert found.dpgep == "0.0.0"
    assert found.privacy.epsilon == 5.0
    assert len(found.privacy.releases) == 5


def forged(**parts: Any) -> str:
    """A report with other values at dotted paths, and the hash that belongs to them."""
    document = json.loads(report().to_json(date=SEVENTH))
    del document["sha256"]
    for path, value in parts.items():
        *outer, last = path.split("__")
        inner = document
        for key in outer:
            inner = inner[int(key) if isinstance(inner, list) else key]
        inner[int(last) if isinstance(inner, list) else last] = value
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return json.dumps({**document, "sha256": hashlib.sha256(canonical.encode()).hexdigest()})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"privacy__mu": 1.02}, "add up to mu = 1.0203571450861038, not to the stated 1.02"),
        ({"privacy__mu": math.nextafter(1.0203571450861038, 0)}, "add up to mu"),
        ({"privacy__releases__4__mu": 0.9}, r"releases\[4\].noise costs mu = 0.9.*, more than the stated 0.9"),
        ({"privacy__releases__4__mu": 0.99}, "add up to mu"),
        ({"privacy__epsilon": 4.999}, "have delta = 1.00.*e-06 at epsilon = 4.999, more than the stated 1e-06"),
        ({"privacy__delta": 1e-7}, "more than the stated 1e-07"),
        ({"privacy__adjacency": "local"}, "statement or the assumptions"),
        ({"privacy__seeded": True}, "statement or the assumptions"),
        ({"privacy__public__n_people": 6000}, "statement or the assumptions"),
        ({"privacy__bound": 1.0}, "statement or the assumptions"),
        ({"privacy__exact": False}, "must follow from its entries' noise"),
        ({"privacy__releases__0__noise": []}, r"releases\[0\].noise must have a block where mu is finite"),
        ({"curve__3__1": 1e-9}, "the curve does not follow from the ledger"),
        ({"curve": []}, "the curve does not follow from the ledger"),
        ({"risk__advantage": 0.01}, "the risk of an attack does not follow"),
        ({"risk__true_positive_rate": 0.011}, "the risk of an attack does not follow"),
        ({"statement": "All is well."}, "statement or the assumptions"),
        ({"assumptions": []}, "statement or the assumptions"),
        ({"date": "yesterday"}, "'yesterday' is no date"),
        ({"purpose": 3}, "purpose must be text, got 3"),
        ({"more": 3}, "a field 'more' that this dpgep does not know"),
        ({"version": 2, "dpgep": "9.1"}, "written by dpgep 9.1 in version 2 of its format; this dpgep reads 1"),
    ],
    ids=str,
)
def test_a_forged_report_with_a_right_hash_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verify(forged(**changes))


def test_a_forged_report_of_samples_is_refused() -> None:
    document = json.loads(sampled().to_json())
    document["privacy"]["epsilon"] = 1.9
    del document["sha256"]
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    document["sha256"] = hashlib.sha256(canonical.encode()).hexdigest()
    with pytest.raises(ValueError, match=r"at epsilon = 1\.9, more than the stated 1e-05"):
        verify(json.dumps(document))


@settings(max_examples=60)
@given(place=st.integers(0, 4000), byte=st.integers(32, 126))
def test_no_changed_byte_verifies(place: int, byte: int) -> None:
    text = (DATA / "report-1.json").read_bytes()
    changed = text[:place] + bytes([byte]) + text[place + 1 :]
    if json.loads(text) != _parsed(changed):
        with pytest.raises(ValueError, match=r"."):
            verify(changed)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


@pytest.mark.parametrize("mu", [1e-3, 0.2367, 1.0, 5.0])
def test_the_risk_of_gaussian_noise_is_exact_and_rounded_up(mu: float) -> None:
    risk = document_of(gaussian(mu)).risk
    exact = norm.cdf(norm.ppf(0.01) + mu)
    assert exact <= risk.true_positive_rate <= exact * (1 + 1e-9)
    advantage = 2 * norm.cdf(mu / 2) - 1
    assert advantage * (1 - 1e-12) <= risk.advantage <= advantage * (1 + 1e-9)


def test_the_risk_of_samples_follows_from_their_curve() -> None:
    """No test does better than its point on the curve of any (epsilon, delta) allows."""
    found, privacy = document_of(sampled()), sampled()
    bounds = [math.exp(epsilon) * 0.01 + privacy.delta_at(epsilon) for epsilon in (1.5, 2.0)]
    assert found.risk.true_positive_rate <= min(bounds) * (1 + 1e-3)
    assert found.risk.true_positive_rate >= 0.01
    assert found.risk.advantage == found.curve[0][1]


@pytest.mark.parametrize("make", [report, sampled])
def test_the_curve_holds_and_falls(make: Callable[[], dpgep.PrivacyReport]) -> None:
    curve = document_of(make()).curve
    assert curve[8][0] == make().epsilon
    assert [delta for _, delta in curve] == sorted((delta for _, delta in curve), reverse=True)
    stated = make().delta
    assert stated is not None
    assert stated * 0.9 < curve[8][1] <= stated * (1 + 1e-9)


def test_no_noise_is_no_guarantee() -> None:
    rows = np.random.default_rng(0).standard_normal((40, 2)) / 9
    found = dpgep.solve(dpgep.pca(rows, bound=1.0), epsilon=math.inf, n_components=1).privacy
    document = verify(found.to_json())
    assert document.statement.startswith("There is no guarantee")
    assert (document.risk.advantage, document.curve) == (1.0, ())
    assert "There is no guarantee" in found.to_html()


def test_a_seed_is_said_beside_the_guarantee() -> None:
    seeded = dataclasses.replace(report(), seeded=True)
    for text in (document_of(seeded).statement, seeded.to_html(), seeded.to_markdown()):
        assert "against anyone who knows it, there is no protection" in text
    assert "seed:" not in document_of(report()).statement


@pytest.mark.parametrize("value", [0.1, 1e-6, 1.0203571450861038, 123456.7, 2 / 3, 5e-324])
def test_shown_numbers_are_rounded_up(value: float) -> None:
    assert value <= float(up(value)) <= value * 1.002 or value == 5e-324
    assert up(0.1) == "0.1"
    assert percent(0.018400001) == "1.85 %"


class _Page(HTMLParser):
    """Tags, attributes and texts of a page; balanced, or it raises."""

    VOID = frozenset({"meta", "line", "circle", "polyline"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: dict[str, str | None] = {}
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attributes)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(attributes)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


EVIL = '<script>alert("x")</script><img src=x onerror=y> & "\' |`*_[a](javascript:b)\nnext'


def evil() -> dpgep.PrivacyReport:
    names, found = (EVIL, "height", "weight"), report()
    assert found.public is not None
    entry = dataclasses.replace(found.releases[0], query=EVIL)
    public = dataclasses.replace(found.public, feature_names=names, classes=(EVIL, "b"), ranges=((EVIL, 0.0, 1.0),))
    return dataclasses.replace(found, public=public, releases=(entry, *found.releases[1:]))


def test_the_page_stands_alone_and_runs_nothing() -> None:
    found = _Page(evil().to_html(dataset=EVIL, purpose=EVIL))
    assert "script" not in found.tags
    assert "img" not in found.tags
    assert not [name for name in found.attributes if name.startswith("on") or name in ("href", "src")]
    assert found.text.count("alert") >= 5
    page = report().to_html()
    assert not re.search(r"https?://|@import|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    assert 'name="viewport"' in page


def test_markdown_keeps_texts_in_their_cells() -> None:
    text = evil().to_markdown(dataset=EVIL, purpose=EVIL)
    assert "<script" not in text.replace(r"\<script", "")
    for line in text.splitlines():
        if line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)\|", line)) - 1
            assert cells in (2, 5)
    assert not re.search(r"(?<!\\)\]\(", text)


def test_many_products_are_one_line_of_the_ledger() -> None:
    rows = np.random.default_rng(0).standard_normal((400, 3)) / 9
    options = {"method": "rayleigh-flow", "noise": "fresh", "n_iterations": 40}
    found = solve_seeded(dpgep.pca(rows, bound=1.0), mu=1.0, n_components=1, **options).privacy
    assert len(found.releases) == 41
    assert "(and 39 more like it)" in found.to_markdown()
    assert found.to_html().count("product with the second moment") == 1


def test_a_sum_of_releases_is_of_all_people() -> None:
    rows = np.random.default_rng(0).standard_normal((400, 3)) / 9
    one, two = (dpgep.release(dpgep.pca(part, bound=1.0), epsilon=1.0, delta=1e-6) for part in (rows[:150], rows[150:]))
    found = dpgep.load(bytes_of(one + two)).report
    assert found.public is not None
    assert found.public.n_people == 400
    assert found.release is not None
    assert verify(found.to_json()).privacy.release == found.release


def test_what_is_protected_is_not_listed() -> None:
    rows = np.random.default_rng(0).standard_normal((397, 3)) / 9
    problem = dpgep.pca(rows, bound=1.0, adjacency="add-remove")
    found = dpgep.release(problem, epsilon=1.0, delta=1e-6).report
    assert found.public is not None
    assert found.public.n_people is None
    content = json.loads(found.to_json())
    del content["sha256"], content["privacy"]["release"]  # hashes, whose digits may be any
    assert "397" not in json.dumps(content)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_writes_and_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, page = tmp_path / "report.json", tmp_path / "report.html"
    solution = DATA / "solution-1.json"
    assert run(capsys, solution, "--json", "-o", written, "--dataset", "visits", "--purpose", "a test")[0] == 0
    status, out, _ = run(capsys, "verify", written)
    assert status == 0
    assert "all numbers" in out
    assert "epsilon = 5" in out
    digest = json.loads(written.read_text())["sha256"]
    assert digest in out
    assert run(capsys, written, "--html", "-o", page)[0] == 0
    assert digest in page.read_text()
    status, _, err = run(capsys, written, "--html", "-o", page)
    assert status == 2
    assert f"{page} exists: choose another name, or --force to replace it" in err
    assert run(capsys, written, "--html", "-o", page, "--force")[2] == f"kept in {page}\n"
    assert run(capsys, solution)[1].startswith("# Privacy report")
    status, out, _ = run(capsys, "verify", DATA / "report-1.json")
    assert status == 0
    assert "words are those of dpgep 0.0.0" in out


def test_the_command_takes_a_kept_release(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).standard_normal((400, 3)) / 9
    release = dpgep.release(table_problem(rows, bound=1.0), epsilon=1.0, delta=1e-6)
    kept = tmp_path / "people.dpgep"
    kept.write_bytes(bytes_of(release))
    status, out, _ = run(capsys, kept, "--json")
    assert (status, verify(out).privacy) == (0, release.report)
    kept.write_bytes(bytes_of(release)[:-1])
    status, _, err = run(capsys, kept)
    assert (status, "people.dpgep: this file is incomplete" in err) == (1, True)


def test_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(forged(privacy__mu=0.1))
    assert run(capsys, "verify", bad)[0] == 1
    assert run(capsys, bad, "--html")[0] == 1
    bad.write_text("{")
    assert run(capsys, bad)[0] == 1
    status, _, err = run(capsys, "verify", tmp_path / "none.json")
    assert (status, "No such file" in err) == (2, True)
    assert run(capsys, "verify", DATA / "report-1.json", "--html")[0] == 2
    assert run(capsys, "a.json", "b.json")[0] == 2
    status, _, err = run(capsys, DATA / "report-1.json", "--dataset", "other")
    assert (status, "this report is written" in err) == (2, True)
    bad.write_bytes((DATA / "solution-1-sampled.json").read_bytes().replace(b'"epsilon": 2.0', b'"epsilon": 1.9'))
    status, _, err = run(capsys, bad)
    assert (status, "more than the stated" in err) == (1, True)
    with pytest.raises(SystemExit) as stopped:
        run(capsys, bad, "--html", "--json")
    assert stopped.value.code == 2


def test_names_are_text() -> None:
    with pytest.raises(TypeError, match="dataset must be text, got 3"):
        report().to_html(dataset=3)  # type: ignore[arg-type]
    assert verify(report().to_json()).dataset is None
