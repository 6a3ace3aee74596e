"""Files for `dpgep.scan`: CSV, Arrow, NPY and NPZ beside Parquet, patterns and folders; dates; row filters."""

from __future__ import annotations

import datetime
import gzip
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from conftest import chain_of, nothing_spent
from hypothesis import given, settings
from hypothesis import strategies as st

import dpgep
from dpgep.errors import DataError

pytestmark = pytest.mark.usefixtures("data_errors_lead_nowhere")

PEOPLE = """\
id,age,name,region,joined,zip,member
1,30,"Ann, B.",north,2020-01-02,01,true
2,,Čeněk,south,,02,false
3,31.5,"two
lines",,2020-01-03,01,
"""
NAN = float("nan")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, text: str) -> str:
    Path(name).parent.mkdir(exist_ok=True)
    opened = gzip.open if name.endswith(".gz") else open
    with opened(name, "wt", encoding="utf-8") as file:
        file.write(text)
    return name


def rows(source: Any, key: Any = None, **options: Any) -> list[list[float]]:
    """All rows, of all columns unless a key selects some."""
    scanned = dpgep.scan(source, **options)
    selection = scanned if key is None else scanned[key]
    return [row for (batch,) in scanned.read(selection) for row in np.asarray(batch).tolist()]


def test_a_csv_with_names_categories_holes_and_dates_is_a_matrix() -> None:
    scanned = dpgep.scan(
        write("people.csv", PEOPLE),
        categories={"region": ["north", "south"], "zip": ["01", "02"]},
        dates=["joined"],
        batch_rows=2,
    )
    selection = scanned[["age", "region", "zip", "joined", "member"]]
    assert selection.names == ("age", "region=north", "region=south", "zip=01", "zip=02", "joined", "member")
    found = np.vstack([batch for (batch,) in scanned.read(selection)])
    expected = [[30, 1, 0, 1, 0, 18263, 1], [NAN, 0, 1, 0, 1, NAN, 0], [31.5, 0, 0, 1, 0, 18264, NAN]]
    np.testing.assert_array_equal(found, expected)
    assert scanned.n_rows is None
    assert rows("people.csv", "name") == ["Ann, B.", "Čeněk", "two\nlines"]
    assert scanned["member"].declared == (False, True)


def test_dates_of_frames_are_days_too() -> None:
    moments = [datetime.datetime(1970, 1, 2, 12), None]
    for frame in (pd.DataFrame({"t": pd.to_datetime(moments), "a": [1, 2]}), pl.DataFrame({"t": moments, "a": [1, 2]})):
        np.testing.assert_array_equal(rows(frame, ["t", "a"], dates=["t"]), [[1.5, 1], [NAN, 2]])
    zoned = pd.DataFrame({"t": pd.to_datetime(["2020-01-01"], utc=True)})
    with pytest.raises(TypeError, match="column 't' holds no dates without a time zone"):
        rows(zoned, ["t"], dates=["t"])


@pytest.mark.parametrize(
    ("name", "separator"), [("s.csv", ","), ("s.csv", ";"), ("s.csv", "|"), ("s.tsv", "\t"), ("s.csv.gz", ",")]
)
def test_separators_and_compression_are_found(name: str, separator: str) -> None:
    write(name, "a,b\n1,2\n3,4\n".replace(",", separator))
    assert rows(name) == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("separator", "text"),
    [
        (";", "a;b;c\n1,5;2;x\n-3,25;1e3;y\n"),
        ("\t", "a\tb\tc\n1,5\t2\tx,y\n-3,25\t1000\ty\n"),
        (";", "a;b;c\n1.5;2;x,y,z\n-3.25;1000;y\n"),
    ],
)
def test_numbers_with_decimal_commas_are_numbers(separator: str, text: str) -> None:
    """Where commas do not separate, however many of them a row has: the separator is found in the names."""
    write("s.csv", text)
    assert rows("s.csv", ["a", "b"]) == [[1.5, 2], [-3.25, 1000]]


def test_numbers_that_start_out_whole_or_empty_may_be_fractions_later() -> None:
    many = 200_000
    write("long.csv", "a,b\n" + "1,\n" * many + "2.5,3.5\n")
    scanned = dpgep.scan("long.csv")
    found = np.vstack([batch for (batch,) in scanned.read(scanned)])
    assert found.shape == (many + 1, 2)
    assert found[-1].tolist() == [2.5, 3.5]
    assert np.isnan(found[:-1, 1]).all()


def test_patterns_folders_and_lists_are_read_in_order() -> None:
    for name in ("day/b-2.csv", "day/a-1.csv", "day/.hidden.csv"):
        write(name, f"a\n{name[5] if name[4] != '.' else 9}\n".replace("-", "0"))
    write("day/b-2.csv", "a\n2\n")
    write("day/a-1.csv", "a\n1\n")
    assert rows("day/*-*.csv") == rows("day") == rows(["day/a-1.csv", "day/b-2.csv"]) == [[1], [2]]
    assert rows("**/*.csv") == [[1], [2]]
    write("day/[x].csv", "a\n3\n")
    assert rows("day/[x].csv") == [[3]]  # a file of that name comes before the pattern


def test_arrow_parquet_and_arrays_are_told_by_their_suffixes() -> None:
    table = pa.table({"a": [1.0, 2.0], "s": ["x", "y"], "t": [datetime.datetime(2020, 1, 1, 12), None]})
    pa.feather.write_feather(table, "t.feather")
    pa.parquet.write_table(table, "t.parquet")
    np.save("m.npy", np.arange(6.0).reshape(3, 2))
    np.savez("z.npz", x=np.eye(2), y=np.array(["a", "b"]))
    for name in ("t.feather", "t.parquet"):
        np.testing.assert_array_equal(rows(name, ["a", "t"], dates=["t"]), [[1, 18262.5], [2, NAN]])
        assert rows(name, ["a"], filter="s == 'y'") == [[2]]
    assert rows("m.npy") == [[0, 1], [2, 3], [4, 5]]
    assert rows(["m.npy", "m.npy"], [1]) == [[1], [3], [5]] * 2
    assert rows("z.npz", "x") == [[1, 0], [0, 1]]
    assert rows("z.npz", "y") == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", DataError, "is empty: there must be at least a line of names"),
        ("1,30,ann\n2,3,bob\n", ValueError, "must name the columns, but a number stands in it: add a line of names"),
        ("a,b\n1,2\n1\n", DataError, "a row of 'bad.csv' has more or fewer values than there are names"),
        (
            "a,b\n" + "1,2\n" * 300_000 + "1,secret\n",
            DataError,
            "column 'b' holds a value that is no number",
        ),
        (
            "a,b\n" + "1,2020-01-01\n" * 90_000 + "1,secret\n",
            DataError,
            "column 'b' holds a value that is no date",
        ),
        (
            "a,b\n" + "1,2\n" * 300_000 + "secret\n",
            DataError,
            "a row of 'bad.csv' has more or fewer values",
        ),
        ("a,a\n1,2\n", ValueError, "several columns are named 'a'"),
        ("a,b\n1,secret\n", TypeError, "column 'b' .string. is not numeric"),
    ],
)
def test_a_bad_csv_is_refused_without_a_word_of_its_values(text: str, error: type[Exception], message: str) -> None:
    write("bad.csv", text)
    with pytest.raises(error, match=message) as caught:
        rows("bad.csv", dates=["b"] if "2020" in text else None)
    shown = "".join(map(repr, chain_of(caught.value)))
    assert not any(value in shown for value in ("secret", "ann", "bob"))


SAVE_IT = "save it in UTF-8; it may be in Latin-1 or Windows-1252"


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ("größe,b\n1,2\n", None, "the names in the first line of 'l.csv' are not in UTF-8: "),
        ("a,b\nMüller,2\n", "a", "column 'a' of 'l.csv' holds text that is not in UTF-8: "),
        ("a,b\n1,2\n3,Müller\n", ["b"], None),
        ("a,b\n" + "x,1\n" * 300_000 + "Müller,2\n", "a", "column 'a' of 'l.csv' holds text that is not in UTF-8: "),
    ],
    ids=["names", "text", "text among numbers", "text beyond the first megabyte"],
)
def test_a_csv_in_another_encoding_is_refused_with_its_name(text: str, key: Any, message: str | None) -> None:
    Path("l.csv").write_bytes(text.encode("latin-1"))
    refused = (DataError, message + SAVE_IT) if message else (TypeError, r"column 'b' .string. is not numeric")
    with pytest.raises(refused[0], match=refused[1]) as raised:
        rows("l.csv", key)
    assert not any(word in f"{error!r}" for error in chain_of(raised.value) for word in ("ller", "xf6", "Row"))


def test_columns_of_another_encoding_that_nobody_asks_for_do_not_matter() -> None:
    Path("l.csv").write_bytes("a,b\n1,Müller\n2,Maier\n".encode("latin-1"))
    assert rows("l.csv", ["a"]) == [[1], [2]]


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        ("none-*.csv", {}, FileNotFoundError, "no files match 'none-*.csv'"),
        ("none.csv", {}, FileNotFoundError, "there is no file or folder 'none.csv'"),
        (
            "a.xlsx",
            {},
            ValueError,
            "a.xlsx is of a kind that is not read here: save it as CSV or Parquet, or pass pandas.read_excel(path)",
        ),
        (["a.csv", "a.parquet"], {}, ValueError, "files of several kinds, CSV and parquet"),
        (["a.csv", "b.csv"], {}, ValueError, "b.csv has other columns than a.csv, or in another order"),
        ("a.csv", {"dates": ["y"]}, TypeError, "column 'y' (string) holds no dates"),
        ("a.csv", {"dates": ["x"]}, TypeError, "column 'x' (double) holds no dates"),
        ("a.csv", {"dates": "x"}, TypeError, "dates must be a list of columns, got 'x'"),
        ("a.csv", {"dates": ["xx"]}, ValueError, "no column 'xx', did you mean 'x'?"),
        ("a.csv", {"dates": ["y"], "categories": {"y": ["q"]}}, ValueError, "choose one"),
        ("a.csv", {"filter": 3}, TypeError, "filter must be text or a pyarrow.compute.Expression, got int"),
        ("a.csv", {"filter": "x > 0", "n_rows": 1}, ValueError, "give n_rows or filter"),
        (np.eye(2), {"filter": "x > 0"}, TypeError, "a filter is for files of Parquet, CSV or Arrow"),
        ("a.csv", {"filter": pc.field("q") > 0}, ValueError, "the filter does not fit the columns: No match"),
        ("a.csv", {"filter": pc.field("y") > 0}, ValueError, "the filter does not fit the columns"),
    ],
)
def test_bad_sources_and_options(source: Any, options: Any, error: type[Exception], message: str) -> None:
    write("a.csv", "x,y\n1,q\n")
    write("b.csv", "y,x\nq,1\n")
    write("a.xlsx", "")
    pa.parquet.write_table(pa.table({"x": [1]}), "a.parquet")
    with pytest.raises(error, match=re.escape(message)):
        dpgep.scan(source, **options)


TABLE = pa.table(
    {
        "a": pa.array([1, 2, None, 4, -5]),
        "f": pa.array([1.5, None, NAN, 3.0, 0.0]),
        "blood pressure": pa.array([1, 2, 3, 4, None], pa.uint8()),
        "s": ["x", "y", None, "z", "it's"],
        "b": [True, None, False, True, False],
        "d": [datetime.date(2020, 1, 1), None, datetime.date(2021, 6, 1), datetime.date(2022, 1, 1), None],
        "w": pa.array(["u", "v", None, "u", "w"]).dictionary_encode(),
        "row": pa.array(range(5)),
    }
)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("a >= 2 and s in ['y', 'z']", [1, 3]),
        ("1 <= a < 4", [0, 1]),
        ("not a == 1", [1, 3, 4]),
        ("a != 1 or b", [0, 1, 3, 4]),
        ("f is None", [1, 2]),
        ("f is not None and not f > 2", [0, 4]),
        ("not f > 2", [0, 4]),
        ("b", [0, 3]),
        ("not b", [2, 4]),
        ("b == False", [2, 4]),
        ("d > '2020-06-01'", [2, 3]),
        ("w == 'u'", [0, 3]),
        ("w not in ('u', 'v')", [4]),
        ("column('blood pressure') >= 3", [2, 3]),
        ("a == column('blood pressure')", [0, 1, 3]),
        ("-6 < a and a < -4.5", [4]),
        ('s == "it\'s"', [4]),
    ],
)
def test_filters_keep_the_rows_that_meet_them(condition: str, kept: list[int]) -> None:
    scanned = dpgep.scan(TABLE, filter=condition)
    assert [int(row) for (batch,) in scanned.read(scanned["row"]) for row in batch] == kept
    assert scanned.n_rows is None


LARGE = 2**53 + 1
EXTREMES = pa.table(
    {
        "i": pa.array([LARGE, 2, 2**62, -(2**63), 0]),
        "u": pa.array([2**64 - 1, 2, 5, 2**63, 0], pa.uint64()),
        "r": pa.array([1.0, 2.0, 3.0, 4.0, 5.0], pa.float32()),
        "d": pa.array([1.5, 2.5, 1e6, None, 0.0]).cast(pa.decimal128(12, 2)),
        "c": pa.array([1, 2, 3, 4, 5], pa.int8()),
        "row": pa.array(range(5)),
    }
)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("i > 1.5", [0, 1, 2]),
        ("i == 9007199254740993", [0]),
        ("i in [9007199254740993, 2.0]", [0, 1]),
        ("i > r", [0, 2]),
        ("u > 1", [0, 1, 2, 3]),
        ("u > -1", [0, 1, 2, 3, 4]),
        ("u > i", [0, 3]),
        ("d > 2", [1, 2]),
        ("d <= 1.5", [0, 4]),
        ("c < 1000", [0, 1, 2, 3, 4]),
        ("c < i", [0, 2]),
        ("r == 2", [1]),
    ],
)
def test_no_number_fails_to_be_compared(condition: str, kept: list[int]) -> None:
    """Casts of pyarrow refuse values that the other type does not hold: one person decided whether a run failed."""
    scanned = dpgep.scan(EXTREMES, filter=condition)
    assert [int(row) for (batch,) in scanned.read(scanned["row"]) for row in batch] == kept


@pytest.mark.parametrize("n", [1, 2, 3, 1000])
@pytest.mark.parametrize(
    ("expression", "bad"),
    [
        (pc.scalar(6) / pc.field("y") > 1, 0),
        (pc.field("y") * pc.field("y") > 1, 2**40),
        (pc.field("y").cast(pa.int8()) > 1, 300),
        (pc.field("y") < 2.5, LARGE),
    ],
    ids=["division", "product", "cast", "comparison"],
)
def test_who_cannot_be_filtered_is_not_kept_and_nobody_else_notices(expression: Any, bad: int, n: int) -> None:
    """What a row does is the same wherever it stands, and whoever is beside it."""
    values = [2 if row % 3 else 7 for row in range(n)]
    for place in {0, n // 2, n}:
        with_one = [*values[:place], bad, *values[place:]]
        found, expected = (
            np.concatenate([batch[:0] for batch in ([np.zeros(0)])] + [batch for (batch,) in scan.read(scan["y"])])
            for scan in (dpgep.scan(pa.table({"y": each}), filter=expression) for each in (with_one, values))
        )
        np.testing.assert_array_equal(found, expected)


def test_a_filter_is_of_the_types_of_each_file() -> None:
    pa.parquet.write_table(pa.table({"y": pa.array([1, 2])}), "a.parquet")
    pa.parquet.write_table(pa.table({"y": pa.array([LARGE * 2.0, NAN, 0.5])}), "b.parquet")
    pa.parquet.write_table(pa.table({"y": pa.array([2**64 - 1, 1], pa.uint64())}), "c.parquet")
    assert rows("*.parquet", ["y"], filter="not y < 2") == [[2], [LARGE * 2.0], [2.0**64]]
    pa.parquet.write_table(pa.table({"y": pa.array([1]).cast(pa.decimal128(38, 0))}), "d.parquet")
    with pytest.raises(ValueError, match="the filter does not fit the columns"):
        rows("*.parquet", ["y"], filter=pc.bit_wise_and(pc.field("y"), 1) == 1)


def test_an_expression_of_pyarrow_is_a_filter() -> None:
    scanned = dpgep.scan(TABLE, filter=(pc.field("a") + 1 > 2) & pc.field("b"))
    assert [row for (batch,) in scanned.read(scanned["row"]) for row in batch] == [3]


# Columns t and u of everybody else, and two versions of one person more, who never passes: t or u changes its type.
BEGUN = ["9999-12-31 00:00:00,2024-01-01", "2024-03-31 12:00:00,2024-03-31", "2024-03-31 12:00:01,2024-04-01"]
DAYS = ["9999-12-31,2024-03-31", "2024-03-31,2024-03-30", "2024-03-30,2024-04-01"]
ZONED = ["2024-03-31 12:00:00Z,2024-03-31 12:00:00+01:00", "2024-03-31 12:00:01Z,2024-03-31 14:00:01+01:00"]
DISTANT = "9999-12-31 00:00:00Z,2024-01-01 00:00:00Z"
FINE = ["2024-03-31 12:00:00.0000001,2024-03-31 12:00:00", "2024-03-31 12:00:00.000001,2024-03-31 12:00:00"]
NEVER = "2000-01-01 00:00:00"
NOON = "2024-03-31 12:00:00.500"
ONE_PERSONS_TIMES = {
    "seconds beside seconds": (
        "t > u",
        BEGUN,
        [0, 1],
        [f"{NEVER},2024-01-01 00:00:01", f"{NEVER},2024-01-01 00:00:01.5"],
    ),
    "days beside days": ("t > u", DAYS, [0, 1], ["2000-01-01,2024-01-01", "2000-01-01,2024-01-01 00:00:00.5"]),
    "zoned beside zoned": (
        "t > u",
        [*ZONED, DISTANT],
        [0, 2],
        [f"{NEVER}Z,2024-01-01 00:00:01Z", f"{NEVER}Z,2024-01-01 00:00:00.5Z"],
    ),
    "nanoseconds": ("t > u", FINE, [1], [f"{NEVER},2024-01-01 00:00:01", f"{NEVER},2024-01-01 00:00:00.5"]),
    "later than": (f"t >= '{NOON}'", BEGUN[1:], [1], [f"{NEVER},2024-01-01", f"{NEVER}.5,2024-01-01"]),
    "equal": (f"t == '{NOON}'", BEGUN[1:], [], [f"{NEVER},2024-01-01", f"{NEVER}.5,2024-01-01"]),
    "days beside a time": ("u > '2024-03-31 12:00'", BEGUN, [2], [f"{NEVER},2000-01-01", f"{NEVER},{NEVER}.5"]),
    "zoned beside a time": (f"t >= '{NOON}'", ZONED, [1], [f"{NEVER}Z,{NEVER}Z", f"{NEVER}.5Z,{NEVER}Z"]),
}


@pytest.mark.parametrize("case", ONE_PERSONS_TIMES)
def test_one_persons_time_does_not_decide_who_else_passes_a_filter(case: str) -> None:
    """A fraction of a second makes a CSV column one of nanoseconds, which do not hold all years."""
    condition, begun, kept, last = ONE_PERSONS_TIMES[case]
    sources = []
    for i, one in enumerate(last):
        lines = [f"{row},{line}" for row, line in enumerate([*begun, one])]
        sources.append(write(f"{i}.csv", "\n".join(["row,t,u", *lines])))
    assert pa.csv.read_csv(sources[0]).schema != pa.csv.read_csv(sources[1]).schema
    for source in sources:
        assert rows(source, ["row"], filter=condition) == [[row] for row in kept]

    def problem(source: str) -> dpgep.problems.problem.Problem:
        scanned = dpgep.scan(source, filter=condition)
        return dpgep.pca(scanned[["row"]], bound=9.0, center=False, adjacency="add-remove", public_n=40)

    replayed = dpgep.auditing.replay(problem, (sources[0], sources[1]), mu=1.0)
    assert (replayed.mu, replayed.differences) == (0.0, ())


def test_times_are_compared_to_the_microsecond() -> None:
    """A constant is not cut to the resolution of its column, nor a column to whole days."""
    table = pa.table({"t": pa.array([0, 1, -1, None], pa.timestamp("s")), "row": pa.array(range(4))})
    for condition, kept in {
        "t >= '1970-01-01 00:00:00.500'": [1],
        "t == '1970-01-01 00:00:00.500'": [],
        "t < '1970-01-01T00:00:00.000001'": [0, 2],
        "t in ['1970-01-01', '1969-12-31 23:59:59']": [0, 2],
    }.items():
        assert rows(table, ["row"], filter=condition) == [[row] for row in kept]
    with pytest.raises(ValueError, match="or a time of whole microseconds"):
        dpgep.scan(table, filter="t == '1970-01-01 00:00:00.0000001'")


@pytest.mark.parametrize(
    ("expression", "begun", "last"),
    [
        (pc.field("t").cast("string") == "1", ["1", "0", "1"], ["1", "true"]),
        (pc.field("t").cast("string") == "2024-03-31", ["2024-03-31"] * 3, ["2024-03-31", "2024-04-01 00:00:00"]),
        (pc.field("t").cast("string") == "2024-03-31", ["2024-03-31"] * 3, ["2024-03-31", "soon"]),
        (pc.field("t").cast("int64") > 0, ["2024-03-31 00:00:00"] * 3, ["2024-03-31", "2024-04-01 00:00:00.5"]),
    ],
    ids=["true among 0 and 1", "a time among days", "text among days", "a fraction of a second"],
)
def test_an_expression_takes_no_type_that_one_person_may_decide(expression: Any, begun: Any, last: Any) -> None:
    """Numbers alone are taken: where one person makes them another type, the filter is refused."""
    kept, sources = [], []
    for i, one in enumerate(last):
        lines = [f"{row},{value}" for row, value in enumerate([*begun, one])]
        sources.append(write(f"{i}.csv", "\n".join(["row,t", *lines])))
        if pa.types.is_integer(pa.csv.read_csv(sources[i]).schema.field("t").type):
            kept.append(rows(sources[i], ["row"], filter=expression))
            continue
        with pytest.raises(ValueError, match="column 't' was inferred not to be numeric from the first megabyte"):
            dpgep.scan(sources[i], filter=expression)
    assert kept == ([[[0], [2], [3]]] if begun[0] == "1" else [])
    if not kept:  # both are refused, in the same words
        assert (
            dpgep.auditing.replay(
                lambda file: dpgep.scan(file, filter=expression), (sources[0], sources[1])
            ).differences
            == ()
        )


def test_an_expression_names_its_columns() -> None:
    """A number moves as columns are left out: it hid which columns an expression needs."""
    with pytest.raises(ValueError, match="must name its columns"):
        dpgep.scan(TABLE, filter=pc.field(0) > 1)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("a > 'x'", "compares column 'a', which holds numbers, with 'x'"),
        ("s > 3", "compares column 's', which holds text, with 3"),
        ("a >= True", "compares column 'a', which holds numbers, with True"),
        ("a > 99999999999999999999", "which holds numbers, with 99999999999999999999"),
        ("a == s", "compares column 'a', which holds numbers, with column 's', which holds text"),
        ("aa > 1", "no column 'aa', did you mean 'a'?"),
        ("a + 1 > 2", "needs a column: a + 1 and 2"),
        ("a", "takes column 'a', which holds numbers, for true or false"),
        ("a >", "is no condition; allowed are"),
        ("", "is no condition; allowed are"),
        ("(" * 2000, "is no condition; allowed are"),
        ("x" * 10_001, "longer than 10000 characters"),
        ("d > 'soon'", "compares dates of column 'd' with 'soon': write 2024-03-31"),
        ("a is 3", "'is' asks for a missing value"),
        ("a in s", "'in' asks for a list of values"),
        ("a in []", "'in' asks for a list of values"),
        ("a == None", "None' cannot stand in a filter"),
        ("__import__('os').system('true')", "cannot stand in a filter"),
        ("(lambda: b)()", "cannot stand in a filter"),
        ("b.x", "cannot stand in a filter"),
        ("b if b else b", "cannot stand in a filter"),
        ("column('a', 'b') > 1", "cannot stand in a filter"),
        ("f'{a}' == s", "cannot stand in a filter"),
        ("s == -'x'", "cannot stand in a filter"),
    ],
)
def test_no_other_text_is_a_filter(condition: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        dpgep.scan(TABLE, filter=condition)


NUMBERS, WORDS = st.integers(-3, 3), st.sampled_from(["x", "y", "it's", 'q"'])
COMPARISON = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
LEAVES = st.one_of(
    st.builds("n {} {}".format, COMPARISON, NUMBERS),
    st.builds("{} {} n".format, NUMBERS, COMPARISON),
    st.builds("{} < n <= {}".format, NUMBERS, NUMBERS),
    st.builds("s {} {!r}".format, COMPARISON, WORDS),
    st.builds("n in {!r}".format, st.lists(NUMBERS, min_size=1, max_size=3)),
    st.builds("s not in {!r}".format, st.lists(WORDS, min_size=1, max_size=3)),
    st.just("b"),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(condition=CONDITIONS, people=st.lists(st.tuples(NUMBERS, WORDS, st.booleans()), max_size=6))
def test_filters_are_conditions_of_python(condition: str, people: list[tuple[int, str, bool]]) -> None:
    kept = [row for row, (n, s, b) in enumerate(people) if eval(condition, {"n": n, "s": s, "b": b})]
    n, s, b = zip(*people, strict=True) if people else ((), (), ())
    columns = [pa.array(n, pa.int64()), pa.array(s, pa.string()), pa.array(b, pa.bool_())]
    table = pa.table([*columns, pa.array(range(len(people)), pa.int64())], names=["n", "s", "b", "row"])
    scanned = dpgep.scan(table, filter=condition)
    assert [row for (batch,) in scanned.read(scanned["row"]) for row in batch] == kept


def test_filtered_rows_need_add_remove() -> None:
    """Replacing a person may move the number of rows that pass by one, which replace-one would publish."""
    rng = np.random.default_rng(0)
    table = pa.table({"x": rng.standard_normal(300), "y": rng.standard_normal(300), "age": rng.integers(0, 90, 300)})
    pa.parquet.write_table(table, "t.parquet")
    for source in (table, "t.parquet"):
        scanned = dpgep.scan(source, filter="age >= 18")
        with pytest.raises(ValueError, match='publishes that number: use adjacency="add-remove"'):
            dpgep.pca(scanned[["x", "y"]], bound=3.0)
        with pytest.raises(ValueError, match="how many rows pass a filter"):
            dpgep.fda(scanned[["x", "y"]], scanned["age"], classes=[20, 30], bound=3.0)
        problem = dpgep.pca(scanned[["x", "y"]], bound=9.0, adjacency="add-remove", center=False)
        assert problem.facts.n is None
        solution = dpgep.solve(problem, epsilon=float("inf"))
        kept = table.filter(pc.field("age") >= 18)
        x = np.column_stack([kept["x"].to_numpy(), kept["y"].to_numpy()])
        np.testing.assert_allclose(solution.eigenvalues, np.linalg.eigvalsh(x.T @ x / len(x))[::-1])


def test_a_late_bad_value_spends_nothing() -> None:
    write("bad.csv", "a,b\n" + "1,2\n2,1\n" * 150_000 + "1,secret\n")
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    with nothing_spent(budget), pytest.raises(DataError, match="column 'b'"):
        dpgep.solve(dpgep.pca("bad.csv", bound=3.0), budget=budget)
