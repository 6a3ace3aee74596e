"""What the estimators share: how a fit is paid for, which data it takes, and what of a solution they show."""

from __future__ import annotations

import numbers
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dpgep.data.inputs import fewest_rows
from dpgep.methods.release import ReleaseDiagnostics
from dpgep.models.model import Adjacency, Matrix
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.privacy.budget import Budget
from dpgep.problems.problem import MomentProblem
from dpgep.results.solution import Solution
from dpgep.run import solve
from dpgep.sources.kinds import is_table
from dpgep.sources.source import replaced
from dpgep.sources.tables import table_width

P = TypeVar("P", bound="PrivateEstimator")

_LARGEST = 2.0**500
# Messages about the form of data; of those that go on with a print of the data, the part before it.
_OF_FORM = re.compile(
    r"Expected \dD array, got (?:scalar|\dD) array instead|Complex data not supported|Found array with .*|Input .*"
    r"|Feature names are only supported.*|Sparse data was passed.*|dtype='numeric' is not compatible.*"
    r"|setting an array element with a sequence"
    r"|float\(\) argument must be a string or a real number, not '\w+'",
    re.DOTALL,
)


@contextmanager
def values_withheld(name: str) -> Iterator[None]:
    """Raise errors about the people of a fit without the values that they quote; no warning tells of an overflow."""
    with replaced(lambda error: _without_values(name, error)), np.errstate(all="ignore"):
        yield


def _without_values(name: str, error: Exception) -> Exception:
    if not isinstance(error, (ValueError, TypeError, OverflowError)):
        return error
    kind = TypeError if isinstance(error, TypeError) else ValueError
    form = _OF_FORM.match(str(error))
    if form is None:
        return kind(f"{name} cannot be made numbers; the message is suppressed since it may quote values of the data")
    advice = ". Reshape your data: a person per row" if form[0].startswith("Expected") else ""
    return kind(f"{form[0]}{advice}")


def _cut_off(rows: Any) -> Any:
    """Rows, or a copy whose entries beyond 2^500 are cut off there: their scores would be infinite."""
    values = rows.data if hasattr(rows, "tocsr") else rows
    if values.dtype != np.float64 or not (np.abs(values) > _LARGEST).any():
        return rows
    cut = rows.copy()
    values = cut.data if hasattr(cut, "tocsr") else cut
    np.clip(values, -_LARGEST, _LARGEST, out=values)
    return cut


class _LeftBehind:
    """In the place of a budget in a copied estimator, which must not be fitted on a budget of nobody."""

    def __repr__(self) -> str:
        return "<left behind>"


# Estimators are dataclasses: their fields are the parameters that scikit-learn reads off the signature of __init__.
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What a fit costs, and from whom.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee of one fit, as in `dpgep.solve`. There is no default: it is a decision, and estimators that are
        fitted again spend it again. ``epsilon=math.inf`` fits without noise, and needs no delta.
    budget : `dpgep.Budget` or path, optional
        Instead, what several fits may spend together: clones of the estimator share it, so that a grid search draws all
        of its fits from it. A path is that of a budget in a file (`dpgep.Budget.open`), which each fit opens for
        itself, also in other processes.
    share : float in (0, 1], optional
        With ``budget``: the part of its mu^2 that each fit takes. Or say ``epsilon``: then the amount that each fit
        adds to what is spent. Default: all that is left.
    adjacency, public_n
        As in `dpgep.pca`.
    random_state : int or RandomState, optional
        Makes the noise reproducible, for tests: whoever knows it can remove the noise, so that a warning is issued.
        Default: noise from the operating system, also where NumPy is seeded.
    """

    epsilon: float | None = None
    delta: float | None = None
    budget: Budget | str | os.PathLike[str] | None = None
    share: float | None = None
    adjacency: Adjacency = "replace-one"
    public_n: int | None = None
    random_state: Any = None

    #: what admits missing values
    _centering: ClassVar[str] = (
        'their location, preprocessing=dpgep.AutoPreprocessing(missing="center"), or, without groups, "pairwise"'
    )

    def fit(
        self: P,
        X: Any,
        y: Any = None,
        *,
        person: Any = None,
        rows: int | None = None,
        weights: Any = None,
        largest_weight: float | None = None,
    ) -> P:
        """Spend the budget on the rows X (n, d), one per person, and on what belongs to them in ``y``.

        That is the second view (n, d_y) or (n,) of CCA and PLS, the response (n,) of SIR and the labels (n,) of FDA;
        others ignore it. Where people have several rows, ``person`` holds the id of each row's (n,); ``rows``,
        ``weights`` (n,) and ``largest_weight`` are as in `dpgep.pca`.
        """
        for name, given, holds in (("person", person, "an id"), ("weights", weights, "a weight")):
            if isinstance(given, str):  # its column would be a feature of rows to come
                advice = f"fit(X.drop(columns=[{given!r}]), {name}=X[{given!r}])"
                raise TypeError(f"{name} must hold {holds} for each row, not name a column: {advice}")
        self._fit(X, y, {"person": person, "rows": rows, "weights": weights, "largest_weight": largest_weight})
        return self

    def _fit(self, X: Any, y: Any, people: dict[str, Any]) -> None:
        """`fit`; ``people`` are arguments of builders: whose the rows are, and their weights."""
        raise NotImplementedError

    def _terms(self) -> dict[str, Any]:
        """Arguments of `dpgep.solve` and `dpgep.release` for the price and the noise of this fit."""
        budget: Any = self.budget
        if isinstance(budget, _LeftBehind):
            in_file = 'keep it in a file, and pass its path, budget="visits.budget" (dpgep.Budget.open)'
            copied = "a copied or pickled estimator needs set_params(budget=...)"
            raise ValueError(f"a budget in memory is of one process: for n_jobs=2 {in_file}; {copied}")
        if isinstance(budget, (str, os.PathLike)):
            budget = Budget.open(budget)
        seed = self.random_state
        if seed is not None and not isinstance(seed, numbers.Integral):
            seed = int(check_random_state(seed).randint(2**31))
        return {"epsilon": self.epsilon, "delta": self.delta, "budget": budget, "share": self.share, "seed": seed}

    def _rows(self, X: Any, *, y: Any = "no_validation") -> Any:
        """X for a fit: checked, and noted what its columns are called. A table is left one, for its names."""
        if y is None:  # refused, in scikit-learn's words
            validate_data(self, X, y)
        if is_table(X):
            self._require_no_categories(X)
        try:
            with values_withheld("X"):
                array = validate_data(self, X, **self._form())
        except ValueError as error:
            if "contains NaN" not in str(error):
                raise
            raise ValueError(f"Input X contains NaN: impute them, or count them as {self._centering}") from None
        return X if is_table(X) else array

    @staticmethod
    def _require_no_categories(X: Any) -> None:
        remedy = "encode them first, as by OneHotEncoder(categories=[...])"
        try:
            width = table_width(X)
        except TypeError as error:  # whose remedy, to declare categories, is not for estimators
            raise TypeError(f"{str(error).partition(': select others')[0]}: select others, or {remedy}") from None
        if width != X.shape[1]:
            raise TypeError(f"X has categorical columns: {remedy}")

    def _new_rows(self, X: Any) -> Any:
        """X for anything but a fit: also for the next step of a pipeline, so that no row may make this one fail."""
        check_is_fitted(self)
        with np.errstate(all="ignore"):
            return _cut_off(validate_data(self, X, reset=False, **self._form(new=True)))

    def _form(self, *, new: bool = False) -> dict[str, Any]:
        """Under add-remove any number of rows passes, even none, as in `dpgep.pca`; else one, if they are new."""
        fewest, tags = fewest_rows(self.adjacency), self.__sklearn_tags__().input_tags
        finite: bool | str = "allow-nan" if tags.allow_nan else True
        how = {"dtype": "numeric", "accept_sparse": "csr" if tags.sparse else False, "ensure_all_finite": finite}
        return {**how, "ensure_min_samples": min(fewest, 1) if new else fewest}

    def __getstate__(self) -> dict[str, Any]:
        """Without its budget: a fitted estimator transforms wherever it goes; no copy fits."""
        state: dict[str, Any] = dict(super().__getstate__())
        if isinstance(self.budget, Budget):
            state["budget"] = _LeftBehind()
        return state


@dataclass(kw_only=True, eq=False, repr=False)
class Projection(ClassNamePrefixFeaturesOutMixin, PrivateEstimator):  # type: ignore[misc]
    """An estimator whose fit is a `dpgep.Solution`.

    Parameters
    ----------
    n_components : int, optional
        K. Default: as many as the model has: columns, those of the smaller view, or one less than groups. They cost no
        privacy.
    bound, preprocessing
        As in `dpgep.pca`.
    sparsity : int or "auto", optional
        Number of columns that components use. Default: all.
    epsilon, delta, budget, share, adjacency, public_n, random_state
        What a fit costs, as in `PrivateEstimator`.

    Attributes
    ----------
    solution_ : the `dpgep.Solution`: error estimates, intervals, and all else that it knows.
    privacy_ : the `dpgep.PrivacyReport`: what this fit cost.
    n_components_ : number of components K.
    n_features_in_, feature_names_in_ : of X.
    """

    n_components: int | None = field(default=None, kw_only=False)
    bound: Bound = "auto"
    preprocessing: AutoPreprocessing | Preprocessing | None = None
    sparsity: int | Literal["auto"] | None = None

    #: whether people have a second view, or a group
    _needs_y: ClassVar[bool] = False
    #: makes the problem of what `_data` returns: what else it takes are parameters of the estimator, of the same names
    _build: ClassVar[Callable[..., MomentProblem]]

    def _fit(self, X: Any, y: Any, people: dict[str, Any]) -> None:
        problem = self._problem(*self._data(X, y), **people)
        self._keep(solve(problem, n_components=self.n_components, **self._terms(), **self._options()))

    def _data(self, X: Any, y: Any) -> tuple[Any, ...]:
        return (self._rows(X),)

    def _problem(self, *data: Any, **known: Any) -> MomentProblem:
        own = {each.name for each in fields(self)} & {*signature(self._build).parameters}
        return self._build(*data, **{**{name: getattr(self, name) for name in own}, **known})

    def _options(self) -> dict[str, Any]:
        given = {name: getattr(self, name, None) for name in ("method", "sparsity", "regularization")}
        return {name: value for name, value in given.items() if value is not None}

    def _keep(self, solution: Solution) -> None:
        self.solution_, self.privacy_ = solution, solution.privacy
        self.n_components_ = self._n_features_out = solution.n_components

    def transform(self, X: Any) -> Matrix:
        """Coordinates (n, K) of rows: as private as the rows are, also where these were fitted."""
        return np.asarray(self.solution_.transform(self._new_rows(X)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._needs_y
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = getattr(self.preprocessing, "missing", False) in (True, "center", "pairwise")
        return tags


class Components(Projection):
    """A projection whose components have one eigenvalue each, in the units of the columns of X.

    Attributes
    ----------
    components_ : (K, d); ``components_ * scale_``, where there is a scale, has unit rows.
    explained_variance_ : (K,), the eigenvalues, descending.
    explained_variance_ratio_ : (K,), of their sum over all components that the model has; NaN where noise leaves a sum
        that is not positive. Not there for sparse components, and where the matrix was not held in memory.
    mean_, scale_ : (d,), released mean and spread of the columns; None without one.
    """

    def _keep(self, solution: Solution) -> None:
        super()._keep(solution)
        self.components_, self.explained_variance_ = solution.components, solution.eigenvalues
        self.mean_, self.scale_ = solution.mean, solution.scale
        found = solution.diagnostics
        if isinstance(found, ReleaseDiagnostics) and found.support is None:
            total = float(found.spectrum[: solution.model.max_components].sum())
            shares = found.spectrum[: solution.n_components] / (total if total > 0 else np.nan)
            self.explained_variance_ratio_ = shares
