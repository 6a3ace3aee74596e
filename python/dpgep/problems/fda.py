"""The problem of discriminant directions, from rows and labels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

from dpgep.data.groups import public_classes
from dpgep.data.inputs import named
from dpgep.data.views import n_rows, opened, width
from dpgep.models.fda import FdaModel
from dpgep.models.model import Adjacency
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.problems.moment_problem import MomentProblem, moment_problem


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
