"""What a budget protects: rows, or all rows of a person, by ids of one name. The two do not add up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pandas as pd
import pyarrow
import pytest

import dpgep
from dpgep.cli import main
from dpgep.data.ids import name_of

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
GAUSSIAN = dp_accounting.GaussianDpEvent(100.0)


def visits(n_people: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    ids = rng.permutation(np.repeat(np.arange(n_people), 3))
    return rng.standard_normal((len(ids), 4)), ids


def ways_to_name() -> Iterator[tuple[Any, Any, str]]:
    """(rows, person, the name that a budget has for the ids)."""
    rows, ids = visits(50)
    frame = pd.DataFrame(rows, columns=list("abcd")).assign(patient_id=ids)
    table, source = pyarrow.Table.from_pandas(frame), dpgep.scan([frame])
    yield rows, ids, "person"
    yield rows, ids.tolist(), "person"
    yield rows, frame["patient_id"], "patient_id"
    yield rows, pd.Series(ids, name=7), "person"
    yield frame, "patient_id", "patient_id"
    yield table, "patient_id", "patient_id"
    yield source, "patient_id", "patient_id"
    yield source[list("abcd")], source["patient_id"], "patient_id"


def test_a_budget_knows_whose_rows_it_protects() -> None:
    for rows, person, name in ways_to_name():
        budget = dpgep.Budget(**BUDGET)
        assert budget.unit is None
        dpgep.release(rows, person=person, bound=4.0, budget=budget, share=0.25)
        assert budget.unit == f"people by {name!r}"
        assert f"replace-one, people by {name!r}" in repr(budget)
        dpgep.Budget(**BUDGET, person=name).require("replace-one", name)


@pytest.mark.parametrize("lasts", [False, True])
def test_rows_and_people_are_not_paid_from_one_budget(lasts: bool, tmp_path: Path) -> None:
    rows, ids = visits(50)
    people: list[dict[str, Any]] = [
        {}, {"person": pd.Series(ids, name="patient_id")}, {"person": pd.Series(ids, name="household")}
    ]  # fmt: skip
    for i, first in enumerate(people):
        name = getattr(first.get("person"), "name", None)
        file = tmp_path / str(i)
        opened = {"adjacency": "replace-one", "dataset": "visits", "person": name}
        budget = dpgep.Budget.open(file, **BUDGET, **opened) if lasts else dpgep.Budget(**BUDGET)  # type: ignore[arg-type]
        dpgep.release(rows, **first, bound=4.0, budget=budget, share=0.25)
        spent = budget.spent_mu
        for other in people:
            if other is first:
                continue
            with pytest.raises(dpgep.errors.PrivacyBudgetError, match=r"this budget protects .*, this run .*person="):
                dpgep.release(rows, **other, bound=4.0, budget=budget, share=0.25)
            with pytest.raises(dpgep.errors.PrivacyBudgetError, match="this budget protects"):
                budget.charge(GAUSSIAN, what="a sum", adjacency="replace-one", person=name_of(other.get("person")))
        budget.charge(GAUSSIAN, what="a sum", adjacency="replace-one", person=name)
        assert budget.spent_mu == pytest.approx(math.hypot(spent, 0.01), rel=1e-12)


def test_people_with_one_row_each_are_paid_where_they_have_several() -> None:
    rows, ids = visits(50)
    budget = dpgep.Budget(**BUDGET, person="patient_id")
    first = np.unique(ids, return_index=True)[1]
    for some in (slice(None), first):
        person = pd.Series(ids[some], name="patient_id")
        dpgep.release(rows[some], person=person, bound=4.0, budget=budget, share=0.25)
    with pytest.raises(
        dpgep.errors.PrivacyBudgetError, match="this budget protects people by 'patient_id', this run rows"
    ):
        dpgep.release(rows[first], bound=4.0, budget=budget, share=0.25)


def test_the_file_of_a_budget_says_whose_rows_it_protects(tmp_path: Path) -> None:
    terms: dict[str, Any] = {**BUDGET, "adjacency": "replace-one", "dataset": "visits"}
    for person, unit in ((None, "rows"), ("patient_id", "people by 'patient_id'"), ("rows", "people by 'rows'")):
        file = tmp_path / unit
        dpgep.Budget.open(file, **terms, person=person)
        again = dpgep.Budget.open(file, **terms)
        assert (again.unit, again.history[0]["unit"]) == (unit, unit)
        with pytest.raises(dpgep.errors.PrivacyBudgetError, match=f"has unit = .{unit}"):
            dpgep.Budget.open(file, person="household")
    with pytest.raises(TypeError, match="person must be a name, got 7"):
        dpgep.Budget.open(tmp_path / "new", **terms, person=7)  # type: ignore[arg-type]


def test_the_command_keeps_rows_and_people_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows, ids = visits(50)
    pd.DataFrame(rows, columns=list("abcd")).assign(patient_id=ids).to_csv("visits.csv", index=False)
    init = ["--epsilon", "1", "--delta", "1e-6", "--adjacency", "replace-one", "--dataset", "visits"]
    assert main(["budget", "init", "visits.budget", *init, "--person", "patient_id"]) == 0
    fit = ["pca", "visits.csv", "--bound", "4", "--budget", "visits.budget", "--epsilon", "0.5", "--quiet"]
    for more in (["-o", "out"], ["--dry-run"]):
        assert main([*fit, *more, "--columns", "a,b,c,d"]) != 0
        assert "protects people by 'patient_id', this run rows" in capsys.readouterr().err
    assert not Path("out").exists()
    assert main([*fit, "-o", "out", "--person", "patient_id"]) == 0
    assert main(["budget", "show", "visits.budget"]) == 0
    assert "replace-one, people by 'patient_id'; spent" in capsys.readouterr().out
