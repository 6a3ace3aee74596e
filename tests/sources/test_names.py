"""Columns of ids are recognized by their names, and refused as features before anything is read or spent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpgep
from dpgep.sources.names import identifies

IDS = [
    "id",
    "ID",
    "Id",
    "ids",
    "patient_id",
    "PatientID",
    "patientId",
    "userid",
    "id2",
    "id_patient",
    "SUBJID",
    "uuid",
    "hhid",
    "pid",
    "nr",
    "rek_nr",
    "persnum",
    "intnum",
    "case_no",
    "CustomerNumber",
    "subject",
    "Patient",
    "identifier",
    "Pupil No",
    "empno",
    "NHS number",
    "serial_no",
    "uid",
    "e-mail",
    "username",
]
FEATURES = [
    "age",
    "fluid",
    "covid",
    "idle",
    "idea",
    "acid",
    "valid_days",
    "nr_children",
    "no",
    "number",
    "visit_no",
    "subject_age",
    "DMNR",
    "order",
    "int",
    "width",
    "pupil",
    "email_opens",
    "card_payments",
    "tax",
    "staff_numbers",
    "grid",
    "hybrid",
    "state=ID",
    "1",
    "",
    "é",
]


@pytest.mark.parametrize("name", IDS)
def test_names_of_ids(name: str) -> None:
    assert identifies(name)
    assert identifies(f"{name}=17")  # the indicator of a category


@pytest.mark.parametrize("name", FEATURES)
def test_names_of_features(name: str) -> None:
    assert not identifies(name)


def _table() -> pd.DataFrame:
    x = np.random.default_rng(0).standard_normal((50, 3))
    return pd.DataFrame({"patient_id": np.arange(50) // 2, "age": x[:, 0], "bmi": x[:, 1], "sbp": x[:, 2]})


def _parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pandas(_table()), folder / "visits.parquet")
    return folder / "visits.parquet"


WAYS: dict[str, Any] = {
    "pca": lambda folder: dpgep.pca(_table()),
    "cca": lambda folder: dpgep.cca(_table()[["age", "bmi"]], _table()[["sbp", "patient_id"]]),
    "fda": lambda folder: dpgep.fda(_table(), np.arange(50) % 2, classes=[0, 1]),
    "release": lambda folder: dpgep.release(_table(), mu=1.0),
    "a scan": lambda folder: dpgep.pca(dpgep.scan(_parquet(folder))),
    "a path": lambda folder: dpgep.pca(_parquet(folder)),
    "columns of a scan": lambda folder: dpgep.pca(dpgep.scan(_parquet(folder))[["age", "patient_id"]]),
    "Moments": lambda folder: dpgep.Moments(dpgep.models.PcaModel(4, True), bound=9.0).update(_table()),
    "an estimator": lambda folder: dpgep.sklearn.PrivatePCA(1, epsilon=1.0, delta=1e-6).fit(_table()),
    "a scaler": lambda folder: dpgep.sklearn.PrivateScaler(epsilon=1.0, delta=1e-6).fit(_table()),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_column_of_ids_is_refused_and_the_message_says_what_to_do(way: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"column .patient_id. seems to identify people or rows.*leave it out, or rename"
    ):
        WAYS[way](tmp_path)


def test_ids_text_and_dates_are_named_in_one_message() -> None:
    table = pd.DataFrame(
        {
            "a": np.ones(5),
            "patient_id": range(5),
            "city": ["x"] * 5,
            "when": pd.Timestamp("2020-01-01"),
            "uuid": ["y"] * 5,
        }
    )
    for given in (table, dpgep.scan(pa.Table.from_pandas(table))):
        with pytest.raises(TypeError, match=r"'city' .*, 'when' .* are not numeric, 'patient_id', 'uuid' seem"):
            dpgep.pca(given)
    with pytest.raises(
        ValueError, match="columns 'patient_id', 'uuid' seem to identify people or rows: leave them out"
    ):
        dpgep.pca(table[["a", "patient_id", "uuid"]])


LONG = {name: name * 150 for name in "abc"}
MISTAKES: dict[str, Any] = {
    "other columns": lambda table, found: found.transform(table.rename(columns=LONG)),
    "no such column": lambda table, found: dpgep.pca(dpgep.scan(table.rename(columns=LONG))[["a" * 149]]),
    "twice": lambda table, found: dpgep.pca(dpgep.scan(table.rename(columns=LONG))[["a" * 150] * 2]),
    "text": lambda table, found: dpgep.pca(table.rename(columns=LONG).astype(str)),
    "dates": lambda table, found: dpgep.pca(table.rename(columns=LONG).astype("datetime64[ns]")),
    "ids": lambda table, found: dpgep.pca(table.rename(columns={name: name * 150 + "_id" for name in "abc"})),
    "ids and text": lambda table, found: dpgep.pca(table.rename(columns=LONG | {"a": "a" * 150 + "_id"}).astype(str)),
    "ranges": lambda table, found: dpgep.pca(table, preprocessing=dpgep.AutoPreprocessing(ranges={"a" * 150: (0, 1)})),
    "a question": lambda table, found: found.release.pca(["a" * 150]),
    "categories": lambda table, found: dpgep.scan(table.rename(columns=LONG), categories={"a" * 150: []}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_messages_are_short_whatever_the_names_are(mistake: str) -> None:
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((500, 3)), columns=list("abc"))
    found = dpgep.solve(dpgep.pca(table, bound=3.0), epsilon=10.0, delta=1e-6, n_components=1)
    with pytest.raises((TypeError, ValueError)) as caught:
        MISTAKES[mistake](table, found)
    assert len(str(caught.value)) <= 200
    assert "aaa" in str(caught.value)


def test_without_the_column_it_runs() -> None:
    assert dpgep.solve(
        dpgep.pca(_table().drop(columns="patient_id"), bound=5.0), mu=10.0, n_components=1
    ).components.shape == (1, 3)
