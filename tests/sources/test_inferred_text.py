"""One person's text, which changes what kind a column is, decides nothing about other people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpgep
from dpgep.cli import main

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
