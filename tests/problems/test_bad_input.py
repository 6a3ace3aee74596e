"""What cannot be served is refused with a message that helps, and costs nothing; what looks odd but is fine, works."""

import itertools
import math
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import scipy.sparse
from conftest import Matrix, nothing_spent, solve_seeded

import dpgep
from dpgep._dispatch import core
from dpgep.data.rows import canonical_csr
from dpgep.models import PcaModel

N, D = 60, 4


def rows(rng: np.random.Generator) -> Matrix:
    return np.asarray(rng.standard_normal((N, D)) / 10)


def height(x: Any) -> int:
    return int(x.shape[0]) if hasattr(x, "shape") else len(x)


Builder = Callable[[Any], Any]
BUILDERS: dict[str, Builder] = {
    "pca": lambda x: dpgep.pca(x, bound=1.0),
    "cca-x": lambda x: dpgep.cca(x, np.ones((height(x), 2)) / 10, bound=1.0),
    "cca-y": lambda x: dpgep.cca(np.ones((max(height(x), 2), 2)) / 10, x, bound=1.0),
    "fda": lambda x: dpgep.fda(x, np.arange(height(x)) % 3, classes=range(3), bound=1.0),
    "sir": lambda x: dpgep.sir(x, np.arange(height(x)), y_range=(0, 60), bound=1.0),
}
models = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS.keys())


@models
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [(0, 0), (N - 1, D - 1), (N // 2, 1)])
def test_nan_and_inf_cost_nothing(build: Builder, bad: float, place: tuple[int, int], rng: np.random.Generator) -> None:
    x = rows(rng)
    x[place] = bad
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match=r"NaN or infinite values.*no budget") as caught:
        dpgep.solve(build(x), budget=budget)
    assert str(caught.value).startswith(f"column {place[1]}")  # and nothing about which row


def test_infinity_that_arises_in_conversion_is_found() -> None:
    x = np.full((4, 2), np.longdouble("1e4000"))
    with pytest.raises(ValueError, match="NaN or infinite"):
        dpgep.solve(dpgep.pca(x, bound=1.0), mu=1.0)


@models
@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.empty((0, 3)), ValueError, r"at least 2 rows, got shape \(0, 3\)"),
        (np.ones((1, 3)), ValueError, r"at least 2 rows, got shape \(1, 3\)"),
        (np.empty((5, 0)), ValueError, "at least 1 column, it has none"),
        (np.ones((5, 3), dtype=complex), TypeError, "complex"),
        (np.full((5, 3), "a"), TypeError, "real numbers, got dtype str_: convert it"),
        (np.full((5, 3), None), TypeError, "real numbers, got dtype object"),
        (np.full((5, 3), "2020-01-01", dtype="datetime64[D]"), TypeError, "real numbers, got dtype datetime64"),
        (np.ma.masked_array(np.ones((5, 3)), mask=True), TypeError, "masked array"),
    ],
    ids=["empty", "one row", "no column", "complex", "text", "object", "dates", "masked"],
)
def test_wrong_matrices_are_named(build: Builder, x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build(x)


@pytest.mark.parametrize("x", [np.ones(5), np.ones((2, 3, 4)), 3.0])
def test_wrong_dimension_shows_the_number_of_dimensions(x: Any) -> None:
    with pytest.raises(ValueError, match=rf"X must be two-dimensional.*it has {np.ndim(x)} dimensions"):
        dpgep.pca(x, bound=1.0)


SPARSE_FORMS = [
    scipy.sparse.csr_array,
    scipy.sparse.csc_array,
    scipy.sparse.coo_array,
    scipy.sparse.csr_matrix,
    lambda x: scipy.sparse.csr_array(x.astype(np.float32)),
    lambda x: scipy.sparse.coo_array(
        (np.tile(x[x != 0] / 2, 2), tuple(np.tile(i, 2) for i in np.nonzero(x))), shape=x.shape
    ),
]


@models
@pytest.mark.parametrize("form", SPARSE_FORMS, ids=["csr", "csc", "coo", "matrix", "float32", "duplicates"])
def test_sparse_rows_give_the_bits_of_dense_ones(build: Builder, form: Any, rng: np.random.Generator) -> None:
    x = np.round(rows(rng) * 64) / 8 * (rng.random((N, D)) < 0.5)
    sparse = form(x)
    before = sparse.copy().toarray()
    dense, other = build(x).integer_moments(20), build(sparse).integer_moments(20)
    for ours, theirs in ((other.second, dense.second), (other.sums, dense.sums), (other.counts, dense.counts)):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(build(sparse).float_moments().total, build(x).float_moments().total)
    np.testing.assert_array_equal(sparse.toarray(), before)


def test_sparse_rows_are_projected_and_checked(rng: np.random.Generator) -> None:
    x = rows(rng) * (rng.random((N, D)) < 0.5)
    solution = solve_seeded(dpgep.pca(x, bound=1.0), mu=1.0)
    np.testing.assert_allclose(solution.transform(scipy.sparse.csr_array(x)), solution.transform(x), atol=1e-15)
    x[3, 2] = math.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        dpgep.solve(dpgep.pca(scipy.sparse.csr_array(x), bound=1.0), mu=1.0)
    with pytest.raises(TypeError, match="X is complex"):
        dpgep.pca(scipy.sparse.csr_array(x * 1j), bound=1.0)


@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("bound", [1.0, "auto"])
def test_sparse_rows_whose_ends_were_changed_are_refused(form: Any, bound: Any, rng: np.random.Generator) -> None:
    """SciPy's own look at them would end the process."""
    x = form(rows(rng))
    x.indptr[1] = 10**9
    budget = dpgep.Budget(mu=1.0)
    with nothing_spent(budget), pytest.raises(ValueError, match="indptr must rise from 0"):
        dpgep.solve(dpgep.pca(x, bound=bound), budget=budget)


def test_sparse_rows_may_have_room_for_more_entries(rng: np.random.Generator) -> None:
    """As SciPy allows; what is there is nobody's."""
    x = rows(rng) * (rng.random((N, D)) < 0.5)
    roomy = scipy.sparse.csr_array(x)
    roomy.data = np.append(roomy.data, [math.nan, 7.0])
    roomy.indices = np.append(roomy.indices, roomy.indices[[-1, -1]])
    for method in ("release", "rayleigh-flow", "clipped-power"):
        found, same = (
            solve_seeded(dpgep.pca(each, bound=1.0), mu=9.0, n_components=1, method=method)
            for each in (roomy, scipy.sparse.csr_array(x))
        )
        np.testing.assert_array_equal(found.components, same.components)


def test_mismatched_views_and_responses_are_named_without_a_number_of_people(rng: np.random.Generator) -> None:
    x = rows(rng)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: dpgep.cca(x, x[:-1], bound=1.0), "X and Y must have the same number of rows"),
        (lambda: dpgep.fda(x, np.arange(59), bound=1.0), "one label per row of X; it has more entries than there are"),
        (lambda: dpgep.sir(x, np.arange(59), y_range=(0, 1), bound=1.0), "one value per row of X; it has more entries"),
        (lambda: dpgep.pca([[1.0, 2.0]] * 59 + [[1.0]], bound=1.0), "rows of this list cannot be stacked"),
        (lambda: dpgep.pca(np.ones(60), bound=1.0), "X must be two-dimensional"),
        (lambda: dpgep.Moments(PcaModel(5, center=True), bound=1.0).update(x), "X must have 5 columns, it has 4"),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message) as raised:
            call()
        assert not any(number in str(raised.value) for number in ("59", "60"))
        assert raised.value.__context__ is None


@pytest.mark.parametrize("kind", ["U", "S"])
def test_messages_do_not_tell_how_long_the_longest_text_is(kind: str) -> None:
    text = np.array([["a", "b"], ["c", "x" * 737]], dtype=kind)
    calls: list[Callable[[], Any]] = [
        lambda: dpgep.pca(text, bound=1.0),
        lambda: dpgep.pca(text.tolist(), bound=1.0),
        lambda: dpgep.sir(np.eye(2), text[:, 1], y_range=(0, 1), slices=2, bound=1.0),
        lambda: dpgep.scan({"x": text[:, 0], "y": text[:, 1]})[["x", "y"]],
        lambda: dpgep.pca(dpgep.scan(lambda: [text]), bound=1.0),
        lambda: dpgep.fda(np.eye(2), text[:, 1], classes=[1, 2], bound=1.0),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=r"real numbers|are not numeric|labels are of type") as raised:
            call()
        assert not any(number in str(raised.value) for number in ("737", "2948"))


def test_columns_without_numbers_are_named() -> None:
    table = pandas.DataFrame(
        {"age": [30, 40, 50], "sex": ["f", "m", "f"], "day": pandas.to_datetime(["2026-01-01"] * 3)}
    )
    with pytest.raises(TypeError, match=r"columns 'sex' \(\w+\), 'day' \(datetime64\[\w+\]\) are not numeric: sel"):
        dpgep.pca(table, bound=1.0)
    with pytest.raises(TypeError, match=r"columns 0 \(\w+\), .* and \d more are not"):
        dpgep.pca(pandas.DataFrame(np.full((3, 9), "a", dtype=object)), bound=1.0)


@pytest.mark.parametrize("bound", [0, -1, math.nan, math.inf, 1e-31, 1.1e30])
def test_bound_must_be_positive(bound: float) -> None:
    with pytest.raises(ValueError, match=r"bound must be a positive finite number.*got"):
        dpgep.pca(np.eye(3), bound=bound)


def test_bound_must_be_a_number() -> None:
    with pytest.raises(TypeError, match=r"bound must be a number or .auto., got 'max'"):
        dpgep.pca(np.eye(3), bound="max")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 0, "delta": 1e-6}, "epsilon must be a positive number"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon must be a positive number"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must lie strictly between 0 and 1"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta must lie strictly between 0 and 1"),
        ({"epsilon": 1.0, "delta": 1e-6, "mu": 1.0}, "exactly one budget"),
        ({}, "exactly one budget"),
        ({"mu": 1.0, "n_components": 0}, "n_components must be a whole number of at least 1, got 0"),
        ({"mu": 1.0, "n_components": 1.5}, "n_components must be a whole number"),
        ({"mu": 1.0, "n_components": math.nan}, "n_components must be a whole number"),
        ({"mu": 1.0, "n_components": "two"}, "n_components must be a whole number"),
        ({"mu": 1.0, "regularization": "some"}, "regularization must be a non-negative finite number"),
        ({"mu": 1.0, "n_components": D + 1}, "n_components = 5 is too many: pca of 4 features has 4"),
        ({"mu": 1.0, "method": "magic"}, "unknown method 'magic'; known: auto, clipped-power, dp-spca, dp-vrpca"),
        ({"mu": 1.0, "regularization": -1.0}, "regularization must be a non-negative finite number"),
        ({"mu": 1.0, "share": 0.5}, "share is a fraction of a budget"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_parameters_are_named(arguments: dict[str, Any], message: str, rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=message):
        dpgep.solve(dpgep.pca(rows(rng), bound=1.0), **arguments)


def test_bad_types_are_named(rng: np.random.Generator) -> None:
    problem = dpgep.pca(rows(rng), bound=1.0)
    with pytest.raises(TypeError, match=r"problem must come from dpgep.pca.*got ndarray"):
        dpgep.solve(rows(rng), mu=1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="method 'release' has no option 'step_size'"):
        dpgep.solve(problem, mu=1.0, step_size=3)
    with pytest.raises(TypeError, match=r"budget must be a dpgep.Budget, got float"):
        dpgep.solve(problem, budget=1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="seed must be a whole number"):
        dpgep.solve(problem, mu=1.0, seed=True)
    with pytest.raises(ValueError, match="accounting belongs to the budget"):
        dpgep.solve(problem, budget=dpgep.Budget(mu=1.0), accounting="zcdp")
    with pytest.raises(ValueError, match="two budgets given: budget and mu"):
        dpgep.solve(problem, budget=dpgep.Budget(mu=1.0), mu=1.0)


class Untouchable(np.ndarray):
    """An array whose rows cannot be read."""

    def __getitem__(self, key: Any) -> Any:
        raise AssertionError("data was touched")


@pytest.mark.parametrize("narrow_dimension", [0, 9])
def test_an_exhausted_budget_raises_before_data_is_touched(
    narrow_dimension: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touch(*_: Any) -> bool:
        raise AssertionError("data was touched")

    budget = dpgep.Budget(mu=0.5)
    solve_seeded(dpgep.pca(rows(rng), bound=1.0), budget=budget)
    monkeypatch.setattr(core, "narrow_dimension", narrow_dimension)  # above it, rows are selected in Python
    monkeypatch.setattr(core, "add_dense_moments", touch)
    problem = dpgep.pca(rows(rng), bound=1.0)
    object.__setattr__(problem.dataset.in_memory("a test").rows, "views", (rows(rng).view(Untouchable),))
    with pytest.raises(AssertionError, match="data was touched"):
        dpgep.solve(problem, mu=1.0)
    with pytest.raises(dpgep.errors.PrivacyBudgetError, match="no data was read and nothing was spent"):
        dpgep.solve(problem, budget=budget)


def test_large_delta_warns(rng: np.random.Generator) -> None:
    problem = dpgep.pca(rows(rng) + 1, center=False, bound=1.0)  # a strong first component: no other warning
    with pytest.warns(dpgep.errors.PrivacyWarning, match=r"delta = 0.02 is not below 1/n = 0.0167"):
        dpgep.solve(problem, epsilon=20.0, delta=0.02, n_components=1)


def test_too_many_components_name_the_reason(rng: np.random.Generator) -> None:
    x = rows(rng)
    budget = dpgep.Budget(mu=1.0)
    cases = [
        (
            dpgep.fda(x, np.arange(N) % 3, classes=range(3), bound=1.0),
            3,
            "fda of 3 groups in 4 features has 2 components",
        ),
        (
            dpgep.sir(x, np.arange(N), slices=3, y_range=(0, 60), bound=1.0),
            3,
            "sir of 3 groups in 4 features has 2 components",
        ),
        (dpgep.cca(x, x[:, :2], bound=1.0), 3, "cca of views of 4 and 2 features has 2 components"),
    ]
    for problem, k, message in cases:
        with nothing_spent(budget), pytest.raises(ValueError, match=message):
            dpgep.solve(problem, budget=budget, n_components=k)


def test_one_class_is_refused(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"at least 2 classes, got 1: \['a'\]"):
        dpgep.fda(rows(rng), ["a"] * N, classes=["a"], bound=1.0)
    with pytest.raises(ValueError, match=r"at least 2 classes, got 1$"):  # a person's label, and no public fact
        dpgep.fda(rows(rng), ["a"] * N, classes="public", bound=1.0)


def test_classes_that_cannot_be_are_named(rng: np.random.Generator) -> None:
    x, numbers = rows(rng), np.arange(N) % 2
    with pytest.raises(ValueError, match="a label twice"):
        dpgep.fda(x, ["a", "b", "b"] * 20, classes=["a", "b", "b"], bound=1.0)
    with pytest.raises(ValueError, match="a label twice"):  # as dictionaries compare them
        dpgep.fda(x, numbers, classes=[0, 1, True], bound=1.0)
    with pytest.raises(ValueError, match="classes contain NaN"):
        dpgep.fda(x, numbers, classes=[0.0, math.nan], bound=1.0)
    with pytest.raises(ValueError, match="must be a sequence of labels, or \"public\", got 'ab'"):
        dpgep.fda(x, ["a", "b"] * 30, classes="ab", bound=1.0)
    wrong = [(numbers, ["0", "1"]), (numbers == 1, ["no", "yes"]), (numbers * 0.5, [b"0", "1"])]
    wrong += [(numbers.astype(str), [0, 1]), (numbers.astype(bytes), ["0", "1"]), (numbers.astype(str), [b"0", b"1"])]
    for labels, classes in wrong:
        with pytest.raises(
            TypeError, match=rf"labels are of type {labels.dtype.type.__name__}, so none is among the classes \["
        ):
            dpgep.fda(x, labels, classes=classes, bound=1.0)
    assert dpgep.fda(x, numbers.astype(str), classes=["0", 1], bound=1.0).dataset.people.n == N  # some may be


def test_labels_that_cannot_be_are_named(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match="labels contain NaN"):
        dpgep.fda(rows(rng), [1.0, math.nan] * 30, bound=1.0)
    missing = np.array(["a", "b", float("nan"), float("nan")] * 15, dtype=object)
    for labels in (missing, np.array(["2020-01-01", "NaT"] * 30, dtype="datetime64[D]")):
        with pytest.raises(ValueError, match="labels contain NaN"):
            dpgep.fda(rows(rng), labels, classes="public", bound=1.0)
    with pytest.raises(TypeError, match="labels is a masked array"):
        dpgep.fda(rows(rng), np.ma.masked_array([0, 1, 2] * 20, mask=[False, False, True] * 20), bound=1.0)
    with pytest.raises(TypeError, match="labels must be hashable"):
        dpgep.fda(rows(rng), [["list"], ["of"]] * 30, bound=1.0)
    for n in (N - 1, N + 1):
        with pytest.raises(ValueError, match="one label per row of X"):
            dpgep.fda(rows(rng), np.arange(n) % 2, classes=[0, 1], bound=1.0)


@pytest.mark.parametrize(
    "labels",
    [
        ["x", "y", "z"] * 20,
        [("a", 1), ("a", 2), ("b", 1)] * 20,
        [None, "text", 3] * 20,
        np.array(["x", "y", "z"] * 20, dtype=object),
        np.array([True, False] * 30),
        np.array([0.5, 1.5, 2.5] * 20),
        np.array([["x"], ["y"]] * 30),
        [frozenset({1}), frozenset({2})] * 30,
    ],
    ids=lambda labels: str(labels[0]),
)
def test_labels_of_any_hashable_type(labels: Any, rng: np.random.Generator) -> None:
    problem = dpgep.fda(rows(rng), labels, classes="public", bound=1.0)
    codes = {}
    for label, code in zip(
        np.ravel(labels) if isinstance(labels, np.ndarray) else labels,
        problem.dataset.in_memory("a test").groups,
        strict=True,
    ):
        assert codes.setdefault(label, code) == code
        assert problem.model.classes[code] == label
    assert len(codes) == len(problem.model.classes)


def test_slices_need_public_facts(rng: np.random.Generator) -> None:
    x, y = rows(rng), np.arange(N)
    for arguments, message in [
        ({}, "give y_range=.*quantiles computed from the data would not be private"),
        ({"slices": 1, "y_range": (0, 1)}, "slices must be a whole number of at least 2, got 1"),
        ({"slices": 2.5, "y_range": (0, 1)}, "slices must be a whole number"),
        ({"y_range": (1, 0)}, r"y_range must be two finite numbers low < high, got \(1, 0\)"),
        ({"y_range": (0, math.inf)}, "y_range must be two finite numbers"),
        ({"edges": [0, 1]}, "edges must be at least 3 increasing numbers"),
        ({"edges": [0, 2, 1]}, "edges must be at least 3 increasing numbers"),
        ({"edges": [0, 1, 2], "y_range": (0, 1)}, "either edges or y_range"),
    ]:
        with pytest.raises(ValueError, match=message):
            dpgep.sir(x, y, **arguments)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="y is a masked array"):
        dpgep.sir(x, np.ma.masked_array(y, mask=True), y_range=(0, 1), bound=1.0)
    with pytest.raises(TypeError, match="y is complex"):
        dpgep.sir(x, y.astype(complex), y_range=(0, 1), bound=1.0)


def test_bad_gep_matrices_are_named() -> None:
    eye = np.eye(3)
    cases: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
        ((np.ones((2, 3)),), {}, ValueError, r"A must be a square matrix, got shape \(2, 3\)"),
        ((np.triu(np.ones((3, 3))),), {}, ValueError, "A must be symmetric"),
        ((eye, np.eye(4)), {}, ValueError, r"same shape, got \(3, 3\) and \(4, 4\)"),
        ((eye * math.nan,), {}, ValueError, "A contains NaN"),
        ((eye * 1j,), {}, TypeError, "A must hold real numbers"),
        ((eye,), {"n": 0}, ValueError, "n must be a positive whole number"),
        ((eye,), {"sensitivity_a": -1.0}, ValueError, "sensitivity_a must be a non-negative finite number"),
        ((eye,), {"sensitivity_a": 0.0}, ValueError, "both 0"),
        ((eye * 1e200,), {}, ValueError, "A contains numbers beyond 1e60: divide the matrix and its sensitivity by"),
        (
            (eye,),
            {"sensitivity_a": 1e200},
            ValueError,
            r"sensitivity_a must be 0, or between 1e-60 and 1e60, got 1e\+200",
        ),
        ((eye, eye), {"sensitivity_b": 1e-200}, ValueError, "sensitivity_b must be 0, or between 1e-60 and 1e60"),
        ((eye,), {"sensitivity_b": 1.0}, ValueError, "sensitivity_b needs a B"),
        ((eye, eye), {}, ValueError, "B needs sensitivity_b"),
        ((eye,), {"adjacency": "edge"}, ValueError, 'adjacency must be "replace-one" or "add-remove"'),
    ]
    for matrices, changed, error, message in cases:
        with pytest.raises(error, match=message):
            dpgep.gep(*matrices, **({"n": 10, "sensitivity_a": 1.0} | changed))


def test_gep_noise_that_vanishes_is_refused_and_asymmetry_is_projected() -> None:
    with pytest.raises(ValueError, match="the noise underflows"):
        dpgep.solve(replace(dpgep.gep(np.eye(3), n=1000, sensitivity_a=1.0), sensitivity_a=1e-322), mu=1.0)
    tilted = np.diag([1e8, 1.0, 1.0])
    tilted[0, 1] = 0.5
    np.testing.assert_array_equal(dpgep.gep(tilted, n=10, sensitivity_a=1.0).a, (tilted + tilted.T) / 2)
    public = solve_seeded(dpgep.gep(np.eye(3), np.eye(3), n=10, sensitivity_a=1.0, sensitivity_b=0.0), mu=1.0)
    assert [block.shape for block in public.privacy.releases[0].noise] == ["goe", "none: declared public"]


@pytest.mark.parametrize("n", [0, 1, 2])
def test_add_remove_does_not_tell_how_few_people_there_are(n: int) -> None:
    x, labels = np.full((n, 2), 0.5), ["a", "b"][:n]
    for problem in (
        dpgep.pca(x, adjacency="add-remove", bound=1.0),
        dpgep.pca(x, adjacency="add-remove", center=False, public_n=3, bound=1.0),
        dpgep.cca(x, x, adjacency="add-remove", bound=1.0),
        dpgep.fda(x, labels, classes=["a", "b"], adjacency="add-remove", bound=1.0),
        dpgep.sir(x, np.zeros(n), y_range=(0, 1), adjacency="add-remove", bound=1.0),
    ):
        assert np.isfinite(solve_seeded(problem, mu=1.0, n_components=1).components).all()


def test_adjacency_and_public_n() -> None:
    with pytest.raises(ValueError, match="adjacency must be"):
        dpgep.pca(np.eye(3), adjacency="swap", bound=1.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='public_n requires adjacency="add-remove"'):
        dpgep.pca(np.eye(3), public_n=3, bound=1.0)
    with pytest.raises(ValueError, match="public_n must be a positive whole number, got 0"):
        dpgep.pca(np.eye(3), adjacency="add-remove", public_n=0, bound=1.0)


def odd_but_fine(x: Matrix, folder: Path) -> dict[str, Any]:
    mapped = np.memmap(folder / "rows.bin", dtype=np.float64, mode="w+", shape=x.shape)
    mapped[:] = x
    read_only = x.copy()
    read_only.flags.writeable = False
    packed = np.zeros(len(x), dtype=[("tag", "i1"), ("row", "f8", (x.shape[1],))])
    packed["row"] = x
    return {
        "fortran": np.asfortranarray(x),
        "strided": np.repeat(np.repeat(x, 2, axis=0), 3, axis=1)[::2, ::3],
        "reversed": x[::-1, ::-1][::-1, ::-1],
        "big-endian": x.astype(">f8"),
        "read-only": read_only,
        "matrix subclass": x.view(type("Rows", (np.ndarray,), {})),
        "memmap": mapped,
        "unaligned": packed["row"],
        "list": x.tolist(),
        "longdouble": x.astype(np.longdouble),
    }


LAYOUTS = ["fortran", "strided", "reversed", "big-endian", "read-only", "matrix subclass", "memmap", "unaligned"]


@pytest.mark.parametrize("name", [*LAYOUTS, "list", "longdouble"])
@models
def test_any_memory_layout_gives_the_same_answer(
    build: Builder, name: str, rng: np.random.Generator, tmp_path: Path
) -> None:
    x = rows(rng) * 5
    x[0] = x[0] * 100  # a clipped row too
    odd = odd_but_fine(x, tmp_path)[name]
    before = np.array(odd)
    plain, other = (build(form).float_moments().total for form in (x, odd))
    np.testing.assert_array_equal(np.triu(plain), np.triu(other))
    np.testing.assert_array_equal(np.array(odd), before)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.bool_, np.float16, np.float32, np.int8])
def test_other_dtypes_are_converted_by_value(dtype: Any, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2, (N, D)).astype(dtype)
    np.testing.assert_array_equal(
        np.triu(dpgep.pca(x, bound=2.0).float_moments().total),
        np.triu(dpgep.pca(x.astype(np.float64), bound=2.0).float_moments().total),
    )


@models
def test_the_callers_rows_are_never_changed(build: Builder, rng: np.random.Generator) -> None:
    x = rows(rng) * 100
    before = x.copy()
    solve_seeded(build(x), mu=1.0)
    np.testing.assert_array_equal(x, before)


def test_one_feature_works(rng: np.random.Generator) -> None:
    x = rows(rng)[:, :1]
    for problem in (
        dpgep.pca(x, bound=1.0),
        dpgep.fda(x, np.arange(N) % 2, classes=[0, 1], bound=1.0),
        dpgep.sir(x, np.arange(N), y_range=(0, 60), bound=1.0),
        dpgep.gep([[2.0]], n=10, sensitivity_a=1.0),
    ):
        np.testing.assert_array_equal(solve_seeded(problem, mu=1.0).components, [[1.0]])


def test_rows_of_zeros_and_rows_beyond_the_bound(rng: np.random.Generator) -> None:
    zeros = solve_seeded(dpgep.pca(np.zeros((N, D)), bound=1.0), mu=1.0)
    assert np.isfinite(zeros.components).all()
    for problem in (
        dpgep.fda(np.zeros((N, D)), np.arange(N) % 3, classes=range(3), bound=1.0),
        dpgep.cca(np.zeros((N, 2)), np.zeros((N, 2)), bound=1.0),
    ):
        assert np.isfinite(solve_seeded(problem, mu=1.0).components).all()
        with pytest.raises(np.linalg.LinAlgError, match="B is numerically zero"):
            dpgep.solve(problem, epsilon=math.inf)
    huge = rows(rng) * 1e140
    solution = solve_seeded(dpgep.pca(huge, center=False, bound=1.0), epsilon=math.inf)
    assert solution.eigenvalues.sum() == pytest.approx(1.0, rel=1e-9)  # every row was shrunk to norm 1
    assert "clip" not in repr(solution)  # how many is not reported


def test_rank_deficient_b_is_solved_with_noise_and_ridge(rng: np.random.Generator) -> None:
    x = np.column_stack([rows(rng), np.zeros((N, 3))])
    solution = solve_seeded(dpgep.fda(x, np.arange(N) % 3, classes=range(3), bound=1.0), mu=1.0)
    assert solution.diagnostics.rank == D + 3
    assert np.isfinite(solution.components).all()


def test_more_people_than_32_bits_can_count() -> None:
    # in doublings: to read so many rows takes minutes, and test_dense_moments reads those beyond 2^31
    moments = dpgep.Moments(dpgep.models.PcaModel(1, center=False), bound=2.0)
    moments.update(np.broadcast_to(np.array([[1]], dtype=np.int8), (2**21, 1)))
    for _ in range(10):
        moments.merge(moments.copy())
    moments.update(np.ones((10, 1)))
    assert moments.n == 2**31 + 10
    solution = dpgep.solve(moments, epsilon=1.0, delta=1e-12)
    assert solution.eigenvalues[0] == pytest.approx(1.0, abs=1e-6)
    assert solution.diagnostics.noise_level < 1e-7


@pytest.mark.skipif(sys.platform == "win32", reason="sends a POSIX signal")
def test_a_long_fit_answers_ctrl_c() -> None:
    # what a shell runs in the background ignores SIGINT unless told otherwise
    script = textwrap.dedent("""
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)
        import numpy as np, dpgep
        x = np.broadcast_to(np.float32(0.01), (50_000_000, 300))
        budget = dpgep.Budget(mu=1.0)
        print("started", flush=True)
        try:
            dpgep.solve(dpgep.pca(x, bound=1.0), budget=budget)
        except KeyboardInterrupt:
            print("interrupted", budget.remaining_mu, flush=True)
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "started\n"
        time.sleep(1.0)
        sent = time.monotonic()
        child.send_signal(signal.SIGINT)
        output = child.stdout.read()
    assert output == "interrupted 1.0\n"
    assert time.monotonic() - sent < 10


@pytest.mark.parametrize("method", ["release", "rayleigh-flow"])
def test_sparse_rows_changed_behind_scipys_back_are_clipped_all_the_same(method: str) -> None:
    """SciPy remembers that columns were sorted and distinct: here they no longer are."""
    x = scipy.sparse.csr_array((np.full(6, 0.9), np.array([0, 1, 0, 1, 0, 1], np.int32), np.arange(4) * 2))
    assert x.has_canonical_format
    x.indices[:] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)  # "release" says that rows were clipped
        solution = dpgep.solve(dpgep.pca(x, center=False, bound=1.0), epsilon=np.inf, n_components=1, method=method)
    assert solution.eigenvalues[0] == pytest.approx(1.0)


def test_rows_whose_columns_fall_or_come_twice_are_found(rng: np.random.Generator) -> None:
    """As a look at row after row finds them, also between empty rows and at both ends."""
    found = []
    for _ in range(300):
        ends = np.append(0, np.cumsum(rng.integers(0, 3, rng.integers(0, 6)))).astype(np.int32)
        columns = rng.integers(0, 4, ends[-1]).astype(np.int32)
        rises = all((np.diff(columns[a:b]) > 0).all() for a, b in itertools.pairwise(ends))
        x = scipy.sparse.csr_array((np.ones(len(columns)), columns, ends), shape=(len(ends) - 1, 4))
        kept = canonical_csr(x)
        assert (kept is x) == rises
        assert kept.has_canonical_format
        np.testing.assert_array_equal(kept.toarray(), x.toarray())
        found.append(rises)
    assert set(found) == {True, False}
