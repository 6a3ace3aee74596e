"""No id leaves a run: not by what it returns, also saved or pickled, by errors and all behind them, or by logs."""

from __future__ import annotations

import copy
import io
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow
import pytest
from conftest import chain_of

import dpgep
from dpgep.data.ids import Numbering, digests, numbered
from dpgep.sklearn import PrivateFDA, PrivatePCA, PrivateScaler

SECRET, N = "Jane-Doe", 600
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
IDS = np.array([f"{SECRET} {i // 3:05}" for i in range(N)], dtype=object)
FRAME = pd.DataFrame(np.random.default_rng(0).normal(size=(N, 3)), columns=list("abc")).assign(patient_id=IDS)
TABLE = pyarrow.Table.from_pandas(FRAME)
ROWS = FRAME[list("abc")].to_numpy()


def shown(call: Callable[[], Any]) -> str:
    """All that is seen of a call: what it returns, also saved, copied and pickled; or its error, and what is behind."""
    lines = io.StringIO()
    handler = logging.StreamHandler(lines)
    logger = logging.getLogger("dpgep")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        found = call()
    except Exception as error:
        chain = [*chain_of(error), pickle.loads(pickle.dumps(error))]
        seen = ["".join(traceback.format_exception_only(each)) + repr(vars(each)) for each in chain]
    else:
        seen = [repr(found), str(found), repr(vars(found))]
        for form in (pickle.dumps, copy.deepcopy):
            try:
                seen.append(repr(form(found)))
            except TypeError as refusal:
                seen.append(str(refusal))
        if hasattr(found, "save"):
            file = io.BytesIO()
            found.save(file)
            seen.append(repr(file.getvalue()))
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return "\n".join([*seen, lines.getvalue()])


FORMS: dict[str, Any] = {
    "pandas": FRAME,
    "categorical": FRAME.astype({"patient_id": "category"}),
    "polars": pl.from_pandas(FRAME),
    "Arrow": TABLE,
    "dictionary": TABLE.set_column(3, "patient_id", TABLE["patient_id"].dictionary_encode()),
    "batches": dpgep.scan([FRAME.iloc[:200], FRAME.iloc[200:]]),
}


@pytest.mark.parametrize("form", FORMS)
def test_what_a_run_returns_holds_no_id(form: str) -> None:
    table = FORMS[form]
    for call in (
        lambda: dpgep.pca(table, person="patient_id"),
        lambda: dpgep.solve(dpgep.pca(table, person="patient_id"), **BUDGET),
        lambda: dpgep.release(table, person="patient_id", bound=4.0, **BUDGET),
        lambda: dpgep.pca(table),  # refused, or of categories that are named after people
    ):
        assert SECRET not in shown(call)


@pytest.mark.parametrize(
    "wrong",
    [
        [None, *IDS[1:]], [7, *IDS[1:]], [b"", *IDS[1:]], [[SECRET], *IDS[1:]], [{SECRET: 1}] * N, IDS[1:], [IDS, IDS],
        set(IDS), np.ma.masked_array(IDS, mask=[True] + [False] * (N - 1)), pd.array([pd.NA, *IDS[1:]]), ["", *IDS[1:]],
        np.array([(1, 2)] * N, dtype=[(SECRET, int), ("b", int)]),
    ],
)  # fmt: skip
def test_ids_that_are_refused_are_not_quoted(wrong: Any) -> None:
    text = shown(lambda: dpgep.solve(dpgep.pca(ROWS, person=wrong, bound=4.0), **BUDGET))
    assert "person" in text
    assert SECRET not in text


def test_estimators_hold_no_id_and_say_how_ids_are_passed() -> None:
    for estimator in (PrivatePCA(1, **BUDGET), PrivateScaler(**BUDGET)):
        assert SECRET not in shown(lambda fit=estimator.fit: fit(ROWS, person=IDS))  # type: ignore[misc]
    for estimator in (PrivatePCA(1, **BUDGET), PrivateScaler(**BUDGET), PrivateFDA(classes=[0, 1], **BUDGET)):
        with pytest.raises(TypeError, match=r"not name a column: fit\(X.drop\(columns=\['patient_id'\]\), person=X"):
            estimator.fit(FRAME, np.arange(N) % 2, person="patient_id")


def test_files_whose_ids_cannot_be_read_are_not_quoted(tmp_path: Path) -> None:
    good = [f"{i % 7},{i % 5},{i % 3},{SECRET} {i // 3}" for i in range(N)]
    for name, content in {
        "a row too short": "\n".join([*good, f"1,{SECRET}"]).encode(),
        "not in UTF-8": "\n".join([*good, f"1,2,3,{SECRET}\xff"]).encode("latin-1"),
    }.items():
        path = tmp_path / f"{name}.csv"
        path.write_bytes(b"a,b,c,patient_id\n" + content + b"\n")
        text = shown(lambda path=path: dpgep.release(path, person="patient_id", bound=4.0, **BUDGET))  # type: ignore[misc]
        assert "Error" in text
        assert SECRET not in text


def test_categories_of_a_column_of_ids_are_not_quoted() -> None:
    with pytest.raises(ValueError, match=r"column 'patient_id' seems to identify people or rows, and is no feature"):
        dpgep.pca(FORMS["categorical"])


def people_of(person: Any, source: Any = ROWS) -> int | None:
    public = dpgep.release(source, person=person, bound=4.0, **BUDGET).report.public
    return public and public.n_people


NUMBERS = np.arange(N) // 3
SAME: dict[str, Any] = {
    **{str(kind): NUMBERS.astype(kind) for kind in ("i2", "u8", "f4", "f8", "O", "U", "S")},
    "negative": NUMBERS - 100,
    "beyond 63 bits": NUMBERS.astype("u8") + np.uint64(2**64 - N),
    "beyond 64 bits": [10**30 + int(each) for each in NUMBERS],
    "integers and floats": np.array([(int(each), float(each))[i % 2] for i, each in enumerate(NUMBERS)], dtype=object),
    "categorical": pd.Categorical(NUMBERS),
}


@pytest.mark.parametrize("form", SAME)
def test_equal_ids_are_one_person(form: str) -> None:
    assert people_of(SAME[form]) == N // 3


WORDS = ["c", "a", "b", "a", "NA ", "é", "e\u0301", "日本", "\U0001f642 and a long name", "é", "b", "c"]
IN_ARROW: dict[str, Callable[[list[str]], Any]] = {
    "string": lambda words: pyarrow.array(words, pyarrow.string()),
    "large_string": lambda words: pyarrow.array(words, pyarrow.large_string()),
    "dictionary": lambda words: pyarrow.array(words, pyarrow.string()).dictionary_encode(),
    "a slice": lambda words: pyarrow.array(["x", *words, "y"])[1:-1],
    "a slice of a dictionary": lambda words: pyarrow.array(["x", *words, "y"]).dictionary_encode()[1:-1],
    "chunks": lambda words: pyarrow.chunked_array([words[:3], [], words[3:]], pyarrow.string()),
    "dictionaries": lambda words: pyarrow.chunked_array(
        [pyarrow.array(part, pyarrow.string()).dictionary_encode() for part in (words[:3], words[3:])]
    ),
    "pandas": lambda words: pd.Series(words, dtype=str),
    "pandas, large or not": lambda words: pd.Series(words, dtype=pd.ArrowDtype(pyarrow.string())),
    "polars": lambda words: pl.Series(words, dtype=pl.String),
    "polars, categorical": lambda words: pl.Series(words, dtype=pl.Categorical),
}


@pytest.mark.parametrize("form", IN_ARROW)
def test_text_in_arrow_is_the_same_people_as_in_python(form: str) -> None:
    whole = Numbering()
    expected = whole.numbers(WORDS, len(WORDS))
    ids = IN_ARROW[form](WORDS)
    np.testing.assert_array_equal(whole.numbers(ids, len(WORDS), is_open=False), expected)
    some = np.array([7, 2, 2])
    np.testing.assert_array_equal(whole.numbers(ids, len(WORDS), some, is_open=False), expected[some])
    np.testing.assert_array_equal(numbered(ids, len(WORDS)), expected)
    np.testing.assert_array_equal(digests(ids, len(WORDS)), digests(WORDS, len(WORDS)))
    assert len(numbered(IN_ARROW[form]([]), 0)) == 0
    for missing in (None, "NA"):
        with pytest.raises(ValueError, match="missing ids"):
            numbered(IN_ARROW[form]([*WORDS, missing]), len(WORDS) + 1)


def test_batches_of_text_are_of_the_same_people_in_whatever_form() -> None:
    """Small ones are copied, and joined: the next may come in the same memory."""
    memory, ends = bytearray(16), pyarrow.array(range(0, 20, 4), pyarrow.int32()).buffers()[1]
    words = [f"{each:4}" for each in NUMBERS]

    def batches() -> Iterator[Any]:
        for first in range(0, N, 4):
            part = slice(first, first + 4)
            memory[:] = "".join(words[part]).encode()
            buffers = [None, ends, pyarrow.py_buffer(memory)]
            column = pyarrow.Array.from_buffers(pyarrow.string(), 4, buffers)
            coded = pyarrow.array(words[part]).dictionary_encode()
            ids = (column, coded, words[part], column)[first // 4 % 4]
            yield FRAME[part].assign(patient_id=ids) if isinstance(ids, list) else in_arrow(part, ids)

    def in_arrow(part: slice, ids: Any) -> Any:
        return pyarrow.table({**dict(zip("abc", ROWS[part].T, strict=True)), "patient_id": ids})

    for batch_rows in (None, 3, 10):
        assert people_of("patient_id", dpgep.scan(batches, batch_rows=batch_rows)) == N // 3


def test_times_of_several_units_are_one_person() -> None:
    moments = dpgep.Moments(dpgep.models.PcaModel(3, center=True), bound=4.0, person="when")
    moments.update(ROWS[:300], person=(NUMBERS[:300] + 1).astype("M8[s]"))
    with pytest.raises(ValueError, match="some people have rows in both parts"):
        moments.update(ROWS[:3], person=np.array([7, 8, 9], "M8[s]").astype("M8[ns]"))


CLOSE: dict[str, Any] = {
    "nanoseconds": np.arange(10**18, 10**18 + N).astype("M8[ns]"),
    "durations": np.arange(10**18, 10**18 + N).astype("m8[ns]"),
    "seconds beyond 64 bits": (np.arange(N) * 2**52).astype("M8[s]"),
    "long floats": np.longdouble(2) ** 53 + np.arange(N),
    "parts of long floats": 0.5 + np.arange(N) * np.spacing(np.longdouble(0.5)) + 2**53 * (np.longdouble == np.double),
}


@pytest.mark.parametrize("form", CLOSE)
def test_ids_that_a_conversion_would_merge_are_refused(form: str) -> None:
    """Or else two people would be one: who is more would change what rows of another count."""
    with pytest.raises(ValueError, match=r"person holds (times that are|ids that are too long)"):
        people_of(CLOSE[form])


def test_decimals_that_are_close_are_several_people() -> None:
    ids = [Decimal(1) / 10 + Decimal(i).scaleb(-25) for i in range(4)]
    moments = dpgep.Moments(dpgep.models.PcaModel(3, center=True), bound=4.0, person="number")
    moments.update(ROWS[:4], person=ids)
    assert moments.n == 4
    moments.update(ROWS[4:5], person=[Decimal(1) / 10 + Decimal(9).scaleb(-25)])
    with pytest.raises(ValueError, match="some people have rows in both parts"):
        moments.update(ROWS[:1], person=ids[3:])


@pytest.mark.parametrize(
    ("some", "others"), [(str, int), (lambda x: str(x).encode(), int), (lambda x: str(x).encode(), str)]
)
def test_ids_of_two_types_are_refused(some: Callable[[Any], Any], others: Callable[[Any], Any]) -> None:
    """Or else a person would be two: b"7" and 7."""
    first, second = ([kind(each) for each in part] for kind, part in ((some, NUMBERS[:300]), (others, NUMBERS[300:])))
    frames = [FRAME[:300].assign(patient_id=first), FRAME[300:].assign(patient_id=second)]
    with pytest.raises(TypeError, match="several types"):
        people_of([*first, *second])
    with pytest.raises(TypeError, match="several types"):
        people_of("patient_id", dpgep.scan(frames))
    moments = dpgep.Moments(dpgep.models.PcaModel(3, center=True), bound=4.0, person="patient_id")
    moments.update(frames[0])
    with pytest.raises(TypeError, match="several types"):
        moments.update(frames[1])


@pytest.mark.parametrize(("kind", "digits"), [("f2", 11), ("f4", 24), ("f8", 53)])
def test_ids_that_lose_digits_are_refused(kind: str, digits: int) -> None:
    with pytest.raises(ValueError, match="too long for floating point"):
        people_of((NUMBERS % 100 + 2**digits).astype(kind))


def test_ids_in_an_index_are_asked_for_as_a_column() -> None:
    indexed = FRAME.set_index("patient_id")
    with pytest.raises(ValueError, match=r"'patient_id' is in the index, and no column: pass X.reset_index"):
        dpgep.pca(indexed, person="patient_id")
    assert people_of("patient_id", indexed.reset_index("patient_id")) == N // 3
