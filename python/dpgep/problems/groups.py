"""The problems of groups of people, classes or slices of a response: discriminants, inverse regression, all moments."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

from dpgep.data.groups import public_classes, slice_edges
from dpgep.data.inputs import named
from dpgep.data.views import n_rows, opened, width
from dpgep.models.fda import FdaModel
from dpgep.models.model import Adjacency
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.models.sir import SirModel
from dpgep.models.table import TableModel
from dpgep.problems.problem import MomentProblem, moment_problem


def fda(
    X: Any,
    labels: Any,
    *,
    classes: Sequence[Hashable] | Literal["public"] | None = None,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """Fisher discriminant analysis: directions that separate classes.

    Problem: A v = lambda B v with, over classes c of n_c people with mean m_c,
    A = sum_c (n_c/n) m_c m_c^T - m m^T (between) and B = (1/n) sum x x^T - sum_c (n_c/n) m_c m_c^T (within).
    Unlike scikit-learn's LDA, A and B are divided by n, not n - C.

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person.
    labels : array_like of n hashable labels
        One per person. A replaced person may also change class: labels are protected like rows.
    classes : sequence of labels, or "public", optional
        The public set of classes; a class may be empty. A person with another label, or none (NaN), counts as a
        person and contributes nothing else: no row, no class. Without it, booleans have two classes and categorical
        data (pandas, a polars Enum) the categories that they declare; otherwise, also of an Arrow dictionary, the set
        of distinct labels is taken as public knowledge, with a `PrivacyWarning`: it appears in
        ``solution.model.classes``. "public" confirms that it is. Labels read in batches need ``classes`` unless they
        are of such a type.
    bound : "auto" or float
        As in `dpgep.pca`. "auto" gives every column a location and a scale, for 17 to 55 % of mu^2; makes columns
        nearly uncorrelated, for 27 to 35 % more, where n and the budget are large enough (`AutoPreprocessing`,
        "full"); or, where the budget is too small for scales, only shifts rows. ``components * solution.scale`` has
        unit rows.
    preprocessing, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and for fewer than two classes, a wrong number of labels, or labels whose type shows that
        none is in ``classes``. Without ``classes`` also for NaN, and for labels that are not a classification: more
        than 100 distinct ones, or fractional ones.
    """
    x, names = opened(X, "X", adjacency)
    model = named(FdaModel(width(x), public_classes(labels, n_rows(x), classes)), names)
    return moment_problem(
        model, (x, labels), bound=bound, preprocessing=preprocessing, adjacency=adjacency, public_n=public_n
    )


def sir(
    X: Any,
    y: Any,
    *,
    slices: int = 10,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """Sliced inverse regression: directions of X that a response y depends on.

    Problem: A v = lambda B v with A = sum_h (n_h/n) m_h m_h^T - m m^T over slices h of y, and B the covariance of the
    rows.

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person.
    y : array_like of shape (n,)
        The response. A replaced person may also change slice: responses are protected like rows. Infinity belongs to an
        outer slice; a person with NaN counts as a person and contributes nothing else.
    slices : int
        Number of slices of equal width over ``y_range``.
    y_range : (low, high)
        Public range of y; values outside it belong to the outer slices. Required unless ``edges`` is given.
    edges : sequence of increasing numbers
        Public slice edges, H + 1 numbers for H slices; the outer two may be infinite and exclude nobody. Never
        compute edges from the data: one replaced person would move every quantile (see docs/errata.md).
    bound : "auto" or float
        As in `dpgep.pca`. "auto" gives every column a location and a scale, for 17 to 55 % of mu^2; makes columns
        nearly uncorrelated, for 27 to 35 % more, where n and the budget are large enough (`AutoPreprocessing`,
        "full"); or, where the budget is too small for scales, only shifts rows. ``components * solution.scale`` has
        unit rows.
    preprocessing, adjacency, public_n
        As in `dpgep.pca`.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`. Empty slices are allowed.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and if y is not a vector of n real numbers or the slices are not publicly specified.
    """
    interior = slice_edges(slices, y_range, edges)
    x, names = opened(X, "X", adjacency)
    model = named(SirModel(width(x), tuple(interior.tolist())), names)
    return moment_problem(
        model, (x, y), bound=bound, preprocessing=preprocessing, adjacency=adjacency, public_n=public_n
    )


def table_problem(
    X: Any,
    groups: Any = None,
    *,
    classes: Sequence[Hashable] | Literal["public"] | None = None,
    slices: int | None = None,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
    """The problem of all moments of rows, of everybody or of groups: labels of classes, or a response with its slices.

    For `dpgep.release`, which says what the parameters are.
    """
    x, names = opened(X, "X", adjacency)
    if groups is None:
        given = {"classes": classes, "slices": slices, "y_range": y_range, "edges": edges}
        described = [name for name, value in given.items() if value is not None]
        if described:
            raise ValueError(f"{' and '.join(described)} describe groups: give groups as well")
        model = TableModel(width(x))
    elif slices is None and edges is None:
        if y_range is not None:
            raise ValueError("y_range belongs to slices: give their number")
        model = TableModel(width(x), public_classes(groups, n_rows(x), classes))
    else:
        if classes is not None:
            raise ValueError("the groups of a table are classes or slices of a response: give one of them")
        if slices is not None and edges is not None:
            raise ValueError("give either edges, which say how many slices there are, or slices with y_range")
        interior = slice_edges(slices, y_range, edges)
        model = TableModel(width(x), interior_edges=tuple(interior.tolist()))
    data = (x,) if groups is None else (x, groups)
    return moment_problem(
        named(model, names), data, bound=bound, preprocessing=preprocessing, adjacency=adjacency, public_n=public_n
    )
