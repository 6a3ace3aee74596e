"""Rows of a database by a query: real servers of PostgreSQL and SQLite, and rows that change meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import solve_seeded

import dpgep
from dpgep.sources import batches

adbc = pytest.importorskip("adbc_driver_manager.dbapi")

pytestmark = [pytest.mark.deep, pytest.mark.filterwarnings("ignore::dpgep.errors.AccuracyWarning")]

N = 3000
QUERY = "SELECT patient, age, cost, ward FROM visits ORDER BY visit"
WARDS = {"ward": ["north", "south"]}


def visits(seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    cost = rng.lognormal(5, 0.5, N)
    return pa.table(
        {
            "visit": np.arange(N),
            "patient": rng.integers(0, N // 3, N),
            "age": rng.integers(18, 90, N).astype(np.int32),
            "cost": pa.array(cost, mask=rng.random(N) < 0.05),
            "ward": rng.choice(["north", "south"], N),
        }
    )


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a PostgreSQL server of this machine, which refuses to be root's."""
    found = [Path(each) for each in map(shutil.which, ("initdb", "pg_ctl")) if each is not None]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL on this machine")
    binaries = found[-1].parent
    user = {"user": "nobody", "group": "nogroup"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, *user.values())

        def run(*command: str) -> None:
            subprocess.run(
                [str(binaries / command[0]), *command[1:]], check=True, cwd=folder, stdout=subprocess.DEVNULL, **user
            )

        data = f"{folder}/data"
        run("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-N")
        start = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", start, "start")
        yield f"postgresql://postgres@/postgres?host={folder}"
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    if request.param == "SQLite":
        return "sqlite", str(tmp_path / "visits.db")
    return "postgresql", request.getfixturevalue("server")


def connected(address: tuple[str, str]) -> Any:
    kind, place = address
    return pytest.importorskip(f"adbc_driver_{kind}.dbapi").connect(place)


@pytest.fixture
def connection(address: tuple[str, str]) -> Iterator[Any]:
    with closing(connected(address)) as connection:
        with connection.cursor() as cursor:
            cursor.adbc_ingest("visits", visits(), mode="replace")
        connection.commit()
        yield connection


def test_a_query_is_the_table_it_gives(connection: Any) -> None:
    """Pass after pass: the bound, the ids of people, the sums."""
    asked = {
        "person": "patient",
        "epsilon": 1.0,
        "delta": 1e-6,
        "seed": 3,
        "preprocessing": dpgep.AutoPreprocessing(missing="center"),
    }
    table = visits().drop_columns(["visit"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        there = dpgep.release(dpgep.scan(connection, query=QUERY, categories=WARDS), **asked)
        here = dpgep.release(dpgep.scan(table, categories=WARDS), **asked)
    assert there.model.feature_names == ("age", "cost", "ward=north", "ward=south")
    np.testing.assert_array_equal(there.covariance().values, here.covariance().values)


def test_a_query_of_few_rows_runs_once(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = dpgep.scan(connection, query="SELECT age, visit FROM visits ORDER BY visit")
    cursors = []
    monkeypatch.setattr(scan.source, "_connection", Connection(connection, cursors))
    assert solve_seeded(dpgep.pca(scan, bound="auto"), epsilon=1.0, delta=1e-6).passes > 1
    assert len(cursors) == 1


class Connection:
    """One that counts what is asked of it."""

    def __init__(self, connection: Any, cursors: list[Any]) -> None:
        self._connection, self._cursors = connection, cursors

    def cursor(self) -> Any:
        self._cursors.append(self._connection.cursor())
        return self._cursors[-1]


@pytest.fixture
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were more rows than a run keeps."""
    monkeypatch.setattr(batches, "spare_memory", lambda: 0)


def changing(connection: Any, address: tuple[str, str]) -> Any:
    """A problem of a query, and a row that another session changes after the first pass."""
    scan = dpgep.scan(connection, query="SELECT age, visit FROM visits ORDER BY visit")
    read = scan.read

    def read_and_change(*selections: Any, **options: Any) -> Iterator[Any]:
        yield from read(*selections, **options)
        if scan.passes == 1:
            with closing(connected(address)) as other, other.cursor() as cursor:
                cursor.execute("UPDATE visits SET age = 30 + age WHERE visit = 17")
                other.commit()

    scan.read = read_and_change  # type: ignore[method-assign]
    return dpgep.pca(scan, bound="auto")


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("address", ["PostgreSQL"], indirect=True)
def test_rows_that_change_between_passes_are_noticed(connection: Any, address: tuple[str, str]) -> None:
    with pytest.raises(dpgep.errors.DataChangedError):
        solve_seeded(changing(connection, address), epsilon=1.0, delta=1e-6)


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("address", ["PostgreSQL"], indirect=True)
def test_a_snapshot_does_not_change(connection: Any, address: tuple[str, str]) -> None:
    still = solve_seeded(dpgep.pca(visits().select(["age", "visit"]), bound="auto"), epsilon=1.0, delta=1e-6)
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    solution = solve_seeded(changing(connection, address), epsilon=1.0, delta=1e-6)
    np.testing.assert_array_equal(solution.components, still.components)


def test_an_error_of_the_database_is_not_quoted(connection: Any) -> None:
    wrong = {
        "no such table": "SELECT * FROM payments",
        "a value in the message": "SELECT CAST(ward AS INTEGER) + visit / (visit - visit) AS x FROM visits ORDER BY x",
    }
    for query in wrong.values():
        with pytest.raises((dpgep.errors.DataError, ValueError)) as caught:
            solve_seeded(dpgep.pca(dpgep.scan(connection, query=query), bound="auto"), epsilon=1.0, delta=1e-6)
        assert not [ward for ward in WARDS["ward"] if ward in str(caught.value)]


@pytest.mark.parametrize("address", ["PostgreSQL"], indirect=True)
def test_exact_numbers_are_refused_with_the_way_out(connection: Any) -> None:
    """Arrow has them as text."""
    query = "SELECT cost::numeric(12, 2) AS cost, age FROM visits ORDER BY visit"
    with pytest.raises(TypeError, match=r"'cost' \(numeric\) is not numeric.*CAST\(cost AS double precision\)"):
        dpgep.pca(dpgep.scan(connection, query=query), bound="auto")


def test_a_query_belongs_to_a_connection(connection: Any) -> None:
    for source, query in ((connection, None), (visits(), QUERY)):
        with pytest.raises(TypeError, match="query='SELECT"):
            dpgep.scan(source, query=query)
