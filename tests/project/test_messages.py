"""What an error says: the column, the option that was meant, what is missing; never anything about a person."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import dpgep

NAMES = ["age", "weight", "height", "income"]


def people(bad: float = np.nan, at: tuple[int, int] = (5, 1)) -> Any:
    x = np.random.default_rng(0).standard_normal((60, 4)) / 4
    x[at] = bad
    return x


def frame(x: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(x, columns=NAMES)


def parquet(tmp_path: Any, x: Any) -> Any:
    pytest.importorskip("pyarrow")
    frame(x).to_parquet(tmp_path / "people.parquet")
    return dpgep.scan(tmp_path / "people.parquet", batch_rows=7)


def dask(x: Any) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame(x), npartitions=3)


INPUTS: dict[str, Callable[[Any, Any], Any]] = {
    "array": lambda x, _: x,
    "float32": lambda x, _: x.astype(np.float32),
    "sparse": lambda x, _: scipy.sparse.csr_matrix(x),
    "frame": lambda x, _: frame(x),
    "arrow": lambda x, _: pytest.importorskip("pyarrow").Table.from_pandas(frame(x)),
    "polars": lambda x, _: pytest.importorskip("polars").DataFrame(x, schema=NAMES),
    "parquet": lambda x, tmp_path: parquet(tmp_path, x),
    "dask": lambda x, _: dask(x),
}
NAMED = {"frame", "arrow", "polars", "parquet", "dask"}


def refusal(run: Callable[[], Any]) -> str:
    with pytest.raises(ValueError, match="NaN or infinite values") as caught:
        run()
    return str(caught.value)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("bound", [1.0, "auto"])
def test_the_column_is_named_and_no_row(kind: str, bound: Any, tmp_path: Any) -> None:
    messages = set()
    for place in ((5, 1), (59, 1)):
        budget = dpgep.Budget(mu=3.0)
        problem = dpgep.pca(INPUTS[kind](people(at=place), tmp_path), bound=bound)
        messages.add(refusal(lambda problem=problem, budget=budget: dpgep.solve(problem, budget=budget)))
        assert budget.spent_mu == 0
    (message,) = messages
    assert message.startswith(f"column {'weight'!r}" if kind in NAMED else "column 1 ")


def test_all_columns_are_named_wherever_they_are_first_met() -> None:
    x = people()
    x[0, 3] = np.inf
    problem = dpgep.pca(dpgep.scan([frame(x[:30]), frame(x[30:])]), bound=1.0)
    assert refusal(lambda: dpgep.solve(problem, mu=1.0)).startswith("columns 'weight', 'income' contain ")


def test_views_of_unnamed_columns_are_told_apart() -> None:
    problem = dpgep.cca(people()[:, :2], people(at=(3, 2))[:, 2:], bound=1.0)
    assert refusal(lambda: dpgep.solve(problem, mu=1.0)).startswith("columns 1 of X, 0 of Y contain ")


@pytest.mark.parametrize(
    "clipping",
    [{"bound": 1.0}, {"preprocessing": dpgep.Preprocessing(1.0, scale=np.full(4, 2.0))}],
    ids=["1.0", "bound1"],
)
def test_moments_name_the_column_of_a_batch_and_stay_as_they_were(clipping: Any) -> None:
    sums = dpgep.Moments(dpgep.models.PcaModel(4, True), **clipping)
    sums.update(frame(people(bad=0.0)))
    assert refusal(lambda: sums.update(frame(people()))).startswith("column 'weight' contains")
    assert sums.n == 60


def test_where_absent_values_are_taken_infinities_are_named() -> None:
    x = people()
    x[0, 2] = np.inf
    problem = dpgep.pca(frame(x), preprocessing=dpgep.AutoPreprocessing(missing="center"))
    assert refusal(lambda: dpgep.solve(problem, mu=3.0)).startswith("column 'height' contains")


def test_rows_that_can_be_read_once_name_no_column() -> None:
    batches = dpgep.scan(iter([people()]))
    problem = dpgep.pca(batches, bound=1.0)
    assert refusal(lambda: dpgep.solve(problem, mu=1.0)).startswith("the data contain")


X = people(bad=0.0)
solve = functools.partial(dpgep.solve, dpgep.pca(X, bound=1.0), mu=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dpgep.pca(X, bounds=1.0), "pca has no parameter .bounds.; did you mean .bound.?"),
        (lambda: dpgep.pca(X, epsilon=1.0), "has no parameter .epsilon.; epsilon belongs to the run"),
        (lambda: dpgep.release(dpgep.pca(X), random_state=1), "unexpected keyword argument 'random_state'"),
        (lambda: solve(random_state=1), "seed belongs to the run"),
        (lambda: solve(n_jobs=2), "n_threads belongs to the run"),
        (lambda: solve(bound=2.0), r"bound belongs to the problem, as in dpgep.pca\(X, bound=...\)"),
        (lambda: solve(sparsty=2), "method 'release' has no option 'sparsty'; did you mean 'sparsity'"),
        (lambda: solve(standardise=True), "standardize belongs to the problem"),
        (lambda: solve(eps=1.0), "did you mean 'epsilon'|epsilon belongs to the run"),
    ],
)
def test_an_unknown_option_names_what_was_meant(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown method 'releas'; did you mean 'release'"):
        solve(method="releas")


@pytest.mark.parametrize("form", ["epsilon", "rho", "mu"])
@pytest.mark.parametrize("value", [True, np.True_])
def test_a_budget_is_no_truth_value(form: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{form} must be a number, got "):
        dpgep.Budget(**{form: value})


def test_a_large_epsilon_has_a_word() -> None:
    problem = dpgep.pca(X + 1, center=False, bound=1.0)
    with pytest.warns(
        dpgep.errors.PrivacyWarning, match=re.escape("epsilon = 25 gives almost no protection")
    ) as caught:
        dpgep.solve(problem, epsilon=25.0, delta=1e-3, n_components=1)
    assert caught[0].filename == __file__


def test_few_people_have_a_word() -> None:
    with pytest.warns(dpgep.errors.AccuracyWarning, match="60 people are few for 30 features"):
        dpgep.solve(dpgep.pca(np.random.default_rng(1).standard_normal((60, 30)), bound=6.0), mu=1.0, n_components=1)
    with pytest.warns(dpgep.errors.AccuracyWarning, match="could produce them; use more rows"):
        dpgep.solve(dpgep.pca(np.random.default_rng(1).standard_normal((60, 4)), bound=2.0), mu=0.1, n_components=1)


@pytest.mark.parametrize("method", ["dpsrs", "truncated-rayleigh-flow"])
def test_a_method_that_truncates_says_that_sparsity_is_missing(method: str) -> None:
    with pytest.raises(ValueError, match=r"this method needs sparsity: pass sparsity=s"):
        solve(method=method, n_components=1)
