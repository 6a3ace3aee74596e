"""Attacks on what issue 16 added: estimators, files as sources, reports. Each succeeded once."""

from __future__ import annotations

import hashlib
import json
import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

import dpgep
from dpgep.cli import main
from dpgep.sklearn import PrivateCCA, PrivatePCA, PrivateScaler, PrivateSIR

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2))
PRICE = {"epsilon": 1.0, "delta": 1e-6}
SECRET = "HIV positive"


def _with_secret(values: Any) -> Any:
    objects = np.array(values, dtype=object)
    objects[(7, *[1] * (objects.ndim - 1))] = SECRET
    return objects


def _error(fit: Any) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        fit()
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "fit",
    [
        lambda: PrivatePCA(**PRICE).fit(_with_secret(X)),
        lambda: PrivateScaler(**PRICE).fit(_with_secret(X)),
        lambda: PrivateCCA(**PRICE).fit(X, _with_secret(X)),
        lambda: PrivateSIR(y_range=(-1, 1), **PRICE).fit(X, _with_secret(X[:, 0])),
    ],
    ids=["pca", "scaler", "cca", "sir"],
)
def test_the_errors_of_a_fit_quote_no_text_of_a_person(fit: Any) -> None:
    said = _error(fit)
    assert SECRET not in said
    assert "suppressed since it may quote values" in said


@pytest.mark.parametrize("rows", [X[:, 0], X + 1j], ids=["vector", "complex"])
def test_the_errors_of_a_fit_print_no_rows(rows: Any) -> None:
    said = _error(lambda: PrivatePCA(**PRICE).fit(rows))
    value = f"{abs(X[0, 0]):.6f}"
    assert re.search(r"Expected 2D|Complex data", said)
    assert value not in said


CSV = "x,visit,income,other\n" + "".join(
    f"{i},2024-03-0{1 + i % 9} 00:00:00,{'' if i % 2 else 5},5\n" for i in range(60)
)
# one more person, whose text makes columns of dates and numbers columns of text
ONE_MORE = "1,unknown,refused,none\n"
CONDITIONS = [
    "income is None",
    "income is not None",
    "not (income is None)",
    "income == other",
    "visit > '2024-03-04'",
    "visit == '2024-03-04'",
    "visit != '2024-03-04'",
    "visit in ['2024-03-04']",
    "income > other",
]


def _kept(source: str, condition: Any) -> int | None:
    """How many people pass; None where the filter is refused."""
    try:
        scanned = dpgep.scan(source, filter=condition)
    except ValueError:
        return None
    return sum(len(rows) for (rows,) in scanned.read(scanned[["x"]]))


@pytest.mark.parametrize("condition", [*CONDITIONS, "pyarrow"])
def test_nobody_decides_who_else_passes_a_filter(tmp_path: Path, condition: Any) -> None:
    compute = pytest.importorskip("pyarrow.compute")
    condition = compute.field("income").is_null() if condition == "pyarrow" else condition
    kept = []
    for name, text in (("without.csv", CSV), ("with.csv", CSV + ONE_MORE)):
        (tmp_path / name).write_text(text)
        kept.append(_kept(str(tmp_path / name), condition))
    without, with_one_more = kept
    assert without is not None
    assert with_one_more is None or abs(with_one_more - without) <= 1


def test_filters_of_text_still_work(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,region\n1,north\n2,south\n3,\n")
    assert _kept(str(path), "region == 'north'") == 1
    assert _kept(str(path), "region not in ['north']") == 2
    assert _kept(str(path), "region < 'p'") is None
    declared = dpgep.scan(str(path), filter="region < 'p'", categories={"region": ["north"]})
    assert sum(len(rows) for (rows,) in declared.read(declared[["x"]])) == 2


LABELLED = "x,z,label\n" + "".join(f"{i % 7},{i % 3},0{i % 2 + 1}\n" for i in range(60))


def _in_classes(path: Path, classes: list[Any]) -> float | None:
    """The share of people in the classes; None where they are refused."""
    try:
        data = dpgep.scan(str(path))
        problem = dpgep.fda(data[["x", "z"]], data["label"], classes=classes, bound=10.0, adjacency="add-remove")
    except TypeError:
        return None
    solution = dpgep.solve(problem, epsilon=float("inf"), regularization=1.0)
    return float(solution._moments.counts.sum())


@pytest.mark.parametrize("classes", [[1, 2], ["01", "02"], [1, "01"]], ids=str)
def test_nobody_decides_who_else_is_in_a_class(tmp_path: Path, classes: list[Any]) -> None:
    path, shares = tmp_path / "a.csv", []
    for text in (LABELLED, LABELLED + "3,2,other\n"):
        path.write_text(text)
        shares.append(_in_classes(path, classes))
    found = [share for share in shares if share is not None]
    assert all(share > 0.9 for share in found)


def test_nobody_decides_who_else_is_in_a_class_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    command = ["fda", str(path), "--labels", "label", "--classes", "1,2", "--bound", "10", "--epsilon", "1"]
    command += ["--delta", "1e-6", "--adjacency", "add-remove", "--dry-run", "--people", "60"]
    path.write_text(LABELLED)
    assert main(command) == 0
    path.write_text(LABELLED + "3,2,other\n")
    assert main(command) == 2
    assert "possibly from one person's value" in capsys.readouterr().err


def test_nobody_decides_who_else_is_in_a_category(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(LABELLED + "3,2,other\n")
    with pytest.raises(TypeError, match="does not hold the values that are declared"):
        dpgep.scan(str(path), categories={"label": [1, 2]})


REPORT = Path(__file__).parent / "data" / "report-1.json"
SAMPLED = Path(__file__).parent / "data" / "solution-1-sampled.json"


def _signed(report: dict[str, Any]) -> str:
    content = {key: value for key, value in report.items() if key != "sha256"}
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps({**content, "sha256": hashlib.sha256(canonical.encode()).hexdigest()})


@pytest.mark.parametrize("form", ["--html", "--markdown"])
def test_no_page_shows_forged_words(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    forged = json.loads(REPORT.read_text())
    # words of another version are not compared
    forged.update(dpgep="9.9", statement="epsilon is 0.0001 for everyone", assumptions=["nothing at all"])
    path = tmp_path / "report.json"
    path.write_text(_signed(forged))
    assert main(["report", form, str(path)]) == 0
    shown = capsys.readouterr().out
    assert "0.0001 for everyone" not in shown
    assert "nothing at all" not in shown
    assert "with epsilon = 5" in shown


@pytest.mark.parametrize(("adjacency", "noise", "epsilon"), [("local", 5.0, 2.0), ("add-remove", 0.05, 1e4)])
def test_a_hostile_ledger_of_samples_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], adjacency: str, noise: float, epsilon: float
) -> None:
    pytest.importorskip("dp_accounting")
    forged = json.loads(REPORT.read_text())
    forged["privacy"] = json.loads(SAMPLED.read_text())["privacy"]
    forged["privacy"].update(adjacency=adjacency, epsilon=epsilon)
    forged["privacy"]["releases"][0]["event"] = {"type": "GaussianDpEvent", "noise_multiplier": noise}
    path = tmp_path / "report.json"
    path.write_text(_signed(forged))
    assert main(["report", "verify", str(path)]) == 1
    assert "Traceback" not in capsys.readouterr().err
