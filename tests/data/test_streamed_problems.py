"""Problems of rows that are read batch by batch: the same answers as from memory, and nothing spent on what fails."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import scipy.sparse
from conftest import Matrix, solve_seeded

import dpgep

N, D = 3000, 5
CLASSES = ["a", "b", "c"]
NAMES = [f"x{i}" for i in range(D)]


@pytest.fixture
def rows(rng: np.random.Generator) -> Matrix:
    return np.asarray(rng.standard_normal((N, D)) * [5, 3, 1, 1, 1] / 8)


@pytest.fixture
def labels(rng: np.random.Generator) -> Any:
    return np.array(CLASSES)[rng.integers(0, 3, N)]


@pytest.fixture
def folder(rows: Matrix, labels: Any, tmp_path: Path) -> Path:
    """Parquet files of several row groups."""
    table = pa.table({**dict(zip(NAMES, rows.T, strict=True)), "label": labels, "y": rows[:, 0]})
    for i, start in enumerate(range(0, N, 1000)):
        pyarrow.parquet.write_table(table.slice(start, 1000), tmp_path / f"part-{i}.parquet", row_group_size=300)
    return tmp_path


def both(name: str, folder: Path, rows: Matrix, labels: Any, **facts: Any) -> tuple[Any, Any]:
    """The problem of the files, and of the arrays."""
    source = dpgep.scan(folder)
    x = source[NAMES]
    facts = {"bound": 1.0, **facts}
    sir = {"slices": 4, "y_range": (-1, 1)}
    return {
        "pca": lambda: (dpgep.pca(x, **facts), dpgep.pca(rows, **facts)),
        "cca": lambda: (
            dpgep.cca(source[NAMES[:2]], source[NAMES[2:]], **facts),
            dpgep.cca(rows[:, :2], rows[:, 2:], **facts),
        ),
        "fda": lambda: (
            dpgep.fda(x, source["label"], classes=CLASSES, **facts),
            dpgep.fda(rows, labels, classes=CLASSES, **facts),
        ),
        "sir": lambda: (dpgep.sir(x, source["y"], **sir, **facts), dpgep.sir(rows, rows[:, 0], **sir, **facts)),
    }[name]()


names = pytest.mark.parametrize("name", ["pca", "cca", "fda", "sir"])


@names
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_files_give_the_bits_of_arrays(name: str, adjacency: str, folder: Path, rows: Matrix, labels: Any) -> None:
    streamed, stored = both(name, folder, rows, labels, adjacency=adjacency)
    ours = solve_seeded(streamed, mu=1.0, n_components=1)
    theirs = solve_seeded(stored, mu=1.0, n_components=1)
    np.testing.assert_array_equal(ours.components, theirs.components)
    np.testing.assert_array_equal(ours.eigenvalues, theirs.eigenvalues)
    assert ours.privacy == theirs.privacy
    assert ours.passes == 1


@names
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("release", {}),
        ("rayleigh-flow", {}),
        ("truncated-rayleigh-flow", {"sparsity": 3, "init": "screen"}),
        ("dpsr", {}),
        ("sr-dp", {}),
    ],
)
def test_any_method_on_files_finds_what_it_finds_in_memory(
    name: str, method: str, options: Any, folder: Path, rows: Matrix, labels: Any
) -> None:
    """With little noise, so that only the order of floating-point sums differs."""
    streamed, stored = both(name, folder, rows, labels)
    ours = solve_seeded(streamed, mu=1e4, n_components=1, method=method, **options)
    theirs = solve_seeded(stored, mu=1e4, n_components=1, method=method, **options)
    assert abs(ours.components[0] @ theirs.components[0]) > 1 - 1e-4
    assert ours.passes == 1 if method in ("release", "sr-dp") else ours.passes > 1


def test_one_pass_serves_iterators_of_unknown_length(rows: Matrix) -> None:
    def batches() -> Iterator[Any]:
        yield rows[:10]
        yield scipy.sparse.csr_array(rows[10:1000])
        yield rows[1000:]

    theirs = solve_seeded(dpgep.pca(rows, bound=1.0), mu=1.0)
    for source in (batches(), dpgep.scan(batches), dpgep.scan(list(batches())), dpgep.scan(batches(), n_rows=N)):
        ours = solve_seeded(dpgep.pca(source, bound=1.0), mu=1.0)
        np.testing.assert_array_equal(ours.components, theirs.components)
        assert ours.privacy == theirs.privacy


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("rayleigh-flow", {"init": "convex"}),
        ("dpsr", {}),
        ("release", {"screen": 2}),
        ("release", {"storage": "operator"}),
    ],
)
def test_a_second_pass_over_an_iterator_is_refused_and_free(method: str, options: Any, rows: Matrix) -> None:
    budget = dpgep.Budget(mu=1.0)
    with pytest.raises(ValueError, match="needs several passes over the rows"):
        dpgep.solve(dpgep.pca(iter([rows]), bound=1.0), budget=budget, n_components=1, method=method, **options)
    with pytest.raises(ValueError, match="need several passes over the rows"):
        dpgep.release(dpgep.pca(iter([rows]), bound=1.0), budget=budget, storage="operator")
    problem = dpgep.pca(iter([rows]), bound=1.0)
    solve_seeded(problem, mu=1.0)
    with pytest.raises(RuntimeError, match="read only once"):
        dpgep.solve(problem, budget=budget)
    assert budget.spent_mu == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_rows_late_in_the_stream_cost_nothing(bad: float, rows: Matrix) -> None:
    spoiled = rows.copy()
    spoiled[-1, -1] = bad
    budget = dpgep.Budget(mu=1.0)
    for method in ("release", "rayleigh-flow"):
        with pytest.raises(ValueError, match="NaN or infinite"):
            dpgep.solve(dpgep.pca(dpgep.scan([rows, spoiled]), bound=1.0), budget=budget, method=method, n_components=1)
    with pytest.raises(ValueError, match="NaN or infinite"):
        dpgep.solve(dpgep.pca(dpgep.scan([rows, scipy.sparse.csr_array(spoiled)]), bound=1.0), budget=budget)
    with pytest.raises(ValueError, match="at least 2 people"):
        dpgep.solve(dpgep.pca(dpgep.scan([rows[:1]]), bound=1.0), budget=budget)
    with pytest.raises(ValueError, match="does not have n_rows = 2999 rows"):
        dpgep.solve(dpgep.pca(dpgep.scan([rows], n_rows=N - 1), bound=1.0), budget=budget)
    assert budget.spent_mu == 0


def test_labels_that_are_read_need_their_classes(folder: Path) -> None:
    source = dpgep.scan(folder)
    for classes in (None, "public"):
        with pytest.raises(ValueError, match="need public classes"):
            dpgep.fda(source[NAMES], source["label"], classes=classes, bound=1.0)  # type: ignore[arg-type]
    assert source.passes == 0


def test_what_belongs_together_comes_from_one_source(folder: Path, labels: Any) -> None:
    one, two = dpgep.scan(folder), dpgep.scan(folder)
    for y in (two["label"], labels):
        with pytest.raises(ValueError, match="must come from one source"):
            dpgep.fda(one[NAMES], y, classes=CLASSES, bound=1.0)
    with pytest.raises(ValueError, match="rows must be a matrix"):
        dpgep.pca(one["y"], bound=1.0)


def test_samples_of_people_need_memory(folder: Path) -> None:
    budget = dpgep.Budget(epsilon=1.0, delta=1e-6)
    with pytest.raises(ValueError, match="needs all rows in memory"):
        dpgep.solve(
            dpgep.pca(dpgep.scan(folder)[NAMES], center=False, bound=1.0),
            budget=budget,
            method="dp-spca",
            n_components=1,
        )
    assert budget.spent_mu == 0


def test_a_large_delta_warns_also_where_rows_were_counted_on_the_way(rows: Matrix) -> None:
    with pytest.warns(dpgep.errors.PrivacyWarning, match="delta = 0.01 is not below 1/n"):
        dpgep.solve(dpgep.pca(iter([rows]), bound=1.0), epsilon=1.0, delta=0.01)


def test_too_few_rows_that_are_known_are_refused_at_once(tmp_path: Path) -> None:
    for n in (0, 1):
        x = np.ones((n, 3))
        pyarrow.parquet.write_table(pa.table(dict(zip("abc", x.T, strict=True))), tmp_path / "x.parquet")
        for source in (x, (x, x[:, 0]), tmp_path / "x.parquet"):
            scan = dpgep.scan(source)
            rows = scan[0] if isinstance(source, tuple) else scan
            with pytest.raises(ValueError, match="X must have at least 2 rows"):
                dpgep.pca(rows, bound=1.0)
            assert scan.passes == 0
            solve_seeded(dpgep.pca(rows, adjacency="add-remove", bound=1.0), epsilon=1.0, delta=1e-6)
        with pytest.raises(ValueError, match="Y must have at least 2 rows"):
            dpgep.cca(np.ones((5, 2)), dpgep.scan(x), bound=1.0)


def test_a_path_is_all_columns(rows: Matrix, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table(dict(zip(NAMES, rows.T, strict=True))), tmp_path / "rows.parquet")
    theirs = dpgep.solve(dpgep.pca(rows, bound=1.0), epsilon=math.inf)
    dataset = pyarrow.dataset.dataset(tmp_path / "rows.parquet")
    for path in (tmp_path / "rows.parquet", str(tmp_path / "rows.parquet"), dataset, dataset.scanner().to_reader()):
        np.testing.assert_allclose(
            dpgep.solve(dpgep.pca(path, bound=1.0), epsilon=math.inf).eigenvalues, theirs.eigenvalues
        )


def test_groups_may_be_selected_as_a_matrix_of_one_column(rows: Matrix) -> None:
    n = len(rows)
    table = pa.table({**dict(zip(NAMES, rows.T, strict=True)), "label": np.arange(n) % 3, "y": np.sin(np.arange(n))})
    scan = dpgep.scan(table)
    x = scan[list(NAMES)]
    classes: dict[str, Any] = {"classes": [0, 1, 2], "bound": 1.0}
    slices: dict[str, Any] = {"slices": 4, "y_range": (-1, 1), "bound": 1.0}
    for one, many in (
        (dpgep.fda(x, scan[["label"]], **classes), dpgep.fda(x, scan["label"], **classes)),
        (dpgep.sir(x, scan[["y"]], **slices), dpgep.sir(x, scan["y"], **slices)),
    ):
        np.testing.assert_array_equal(
            dpgep.solve(one, epsilon=math.inf).components, dpgep.solve(many, epsilon=math.inf).components
        )
    for problem, message in (
        (dpgep.fda(x, scan[["label", "y"]], **classes), "one label per row of X; got 2 dimensions, 2 columns$"),
        (dpgep.sir(x, scan[["label", "y"]], **slices), "one value per row of X; got 2 dimensions, 2 columns$"),
    ):
        with pytest.raises(ValueError, match=message):
            dpgep.solve(problem, epsilon=math.inf)
