"""Builders: a model joined to data of people. What they take is what estimators and the command line offer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpgep import models
from dpgep._checks import require_flag, require_non_negative, require_people
from dpgep.data.inputs import View, check_adjacency, n_rows, public_classes, slice_edges
from dpgep.models import GepModel
from dpgep.models.model import Adjacency, Matrix, PublicFacts
from dpgep.models.row_model import Classes, Slices
from dpgep.problems.problem import MatrixProblem, MomentProblem, Terms, moment_problem, with_terms

if TYPE_CHECKING:
    from typing_extensions import Unpack


@with_terms
def pca(X: Any, *, center: bool = True, standardize: bool = False, **terms: Unpack[Terms]) -> MomentProblem:
    """Principal component analysis of the rows of X.

    Problem: A v = lambda v with A = (1/n) sum x x^T - m m^T, or (1/n) sum x x^T if not ``center``; no factor n/(n-1).

    Parameters
    ----------
    X : array_like of shape (n, d)
        One row per person, real numbers, any dtype and memory order, or a SciPy sparse matrix; never modified, never
        copied as a whole. Or a table, whose columns keep their names and whose categorical columns become indicators
        (docs/your-table.md), or data read in batches: columns of a `dpgep.scan`, a path, an iterator of batches;
        or a Dask or Spark collection.
    bound : "auto" or float
        The bound on the row norm. It is enforced: longer rows are clipped to it, and how many stays secret. A number
        is a public bound: it must follow from what is known about the columns, never from the data (not checked).

        "auto" buys a bound from the budget of the run, and needs no prior range. Rows are first shifted by a mean, if
        that is long, ``center`` is set and rows are not sparse; with ``standardize``, every column gets a location and
        a scale. That takes 2 to 25 % of mu^2, with ``standardize`` 17 to 55 %: the less, the larger n and the budget
        are. Each stage is a release in the report, and a pass over the data, which must be readable several times:
        ``solution.passes`` counts. Components, eigenvalues and the mean are in the units of the columns; with
        ``standardize``, ``components * solution.scale`` has unit rows (docs/your-table.md).
    preprocessing : `AutoPreprocessing` or `Preprocessing`, optional
        Instead of a number as the bound. `AutoPreprocessing` sets shares and public ranges of what ``bound="auto"``
        buys, and admits missing values. A `Preprocessing` is what was bought, the ``preprocessing`` of an earlier
        solution: it maps rows of the same columns, and bounds them, at no cost.
    center : bool
        Whether to subtract the mean. If False, nothing is spent on the mean.
    standardize : bool
        Whether to divide the columns by their standard deviations (roots of their mean squares, if not ``center``): the
        components of the correlation matrix. The deviations are read off the same release, at no cost. Problem:
        A v = lambda diag(A) v, with v^T diag(A) v = 1: components are in the units of the columns, `Solution.transform`
        gives the scores of standardized rows, and components times ``diagnostics.scale`` are the unit eigenvectors of
        the correlation matrix. Solved by the methods "release" and "sr-dp", with the matrix in memory.

        A constant column has no correlations, and without noise no weight. With noise a column is divided by at least
        the root of two deviations of the noise in its variance: one that varies less than that gets a small weight,
        with an `AccuracyWarning` that lists such columns.
    adjacency : {"replace-one", "add-remove"}
        Which data sets are neighbours. Under "replace-one" n is public; under "add-remove" it is not, and matrices are
        normalized by ``public_n``, or by a noisy count that the budget pays for.
    public_n : int, optional
        A public number of people, for "add-remove" only; it need not be exact.
    person : str or array_like of n ids, optional
        Where people have several rows: whose each row is, as whole numbers or text. A name is that of a column of X,
        which is then no feature. Each person counts once, by the mean over their rows, and all of a person's rows are
        protected together, however many they are, for the same noise (docs/several-rows-per-person.md). For rows in
        memory, on Dask, in Spark or in sources that can be read twice, and methods that release a matrix.
    rows : int, optional
        With ``person``: rows count alike, up to this many of a person; of m > ``rows``, each counts ``rows``/m.
    weights : str or array_like of shape (n,), optional
        Weights of a survey, or the column of X that holds them: moments are weighted ones, and the total weight is
        protected and released in place of the number of people. For what ``person`` is for.
    largest_weight : float, optional
        The largest weight, which is public; must be given with ``weights``. It is enforced: larger weights are cut off
        at it, negative ones at 0. The smaller it is, the less noise there is.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`. Nothing is computed yet.

    Raises
    ------
    TypeError, ValueError
        If X is not a real matrix with at least two rows (any number under add-remove), or a parameter is out of range.
        NaN and infinities are detected by `solve`, before anything is released.
    """
    require_flag("standardize", standardize)
    kind = models.StandardizedPcaModel if standardize else models.PcaModel
    return moment_problem(lambda x: kind(x.width, center), (X,), (), **terms)


@with_terms
def cca(X: Any, Y: Any, *, center: bool = True, **terms: Unpack[Terms]) -> MomentProblem:
    """Canonical correlation analysis of two views of the same people.

    Problem: A v = lambda B v with v = (x, y), A = [[0, Sxy], [Syx, 0]], B = blockdiag(Sx, Sy), S the covariance of the
    joint row (x, y) (its second moment if not ``center``). Eigenvalues are correlations, in [0, 1] up to noise; the
    solution's ``x_weights`` and ``y_weights`` are the weights of both views.

    Parameters
    ----------
    X, Y : array_like of shapes (n, d_x) and (n, d_y)
        Row i of each belongs to person i.
    bound : "auto" or float
        As in `dpgep.pca`, of the *joint* row (x, y): both parts are clipped together. "auto" gives every column a
        location (if ``center``) and a scale, for 17 to 55 % of mu^2; makes the columns of each view nearly
        uncorrelated, for 27 to 35 % more, where n and the budget are large enough (`AutoPreprocessing`, "full");
        or, where the budget is too small for scales, only shifts rows. ``components * solution.scale`` has unit rows.
        With a number, rescale views of different scales by public factors first.
    preprocessing, center, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.pca`. Raises as it does, and ValueError for views of different numbers of people.
    """
    return moment_problem(lambda x, y: models.CcaModel((x.width, y.width), center), (X, Y), (), **terms)


@with_terms
def pls(X: Any, Y: Any, *, center: bool = True, **terms: Unpack[Terms]) -> MomentProblem:
    """Partial least squares of two views of the same people: the directions whose scores have the largest covariance.

    Problem: A v = lambda v with v = (x, y) and A = [[0, Sxy], [Syx, 0]], Sxy the cross-covariance of the views (their
    cross moment if not ``center``); no factor n/(n-1). Eigenvalues are the leading singular values of Sxy, the
    solution's ``x_weights`` and ``y_weights`` its singular vectors. All pairs follow from one Sxy without deflation, as
    in scikit-learn's `PLSSVD`, unlike `PLSCanonical`. Beyond the rank of Sxy, weights are arbitrary.

    Parameters
    ----------
    X, Y : array_like of shapes (n, d_x) and (n, d_y)
        Row i of each belongs to person i.
    bound : "auto" or float
        As in `dpgep.pca`, of the *joint* row (x, y): both parts are clipped together. "auto" shifts rows but does not
        scale columns, since covariances depend on the units: where the views differ in scale, rescale them by public
        factors first.
    preprocessing, center, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.pca`.
    """
    return moment_problem(lambda x, y: models.PlsModel((x.width, y.width), center), (X, Y), (), **terms)


@with_terms
def multiset_cca(views: Sequence[Any], *, center: bool = True, **terms: Unpack[Terms]) -> MomentProblem:
    """Multiset canonical correlation analysis: what two or more views of the same people have in common.

    Problem: A v = lambda B v with v = (x_1, ..., x_m), S the covariance of the joint row of all m views (its second
    moment if not ``center``), A its blocks S_ij between views (i != j, zero within them) and B its blocks S_ii within.
    Eigenvalues lie in [0, m - 1] up to noise. For two views they are the canonical correlations of `dpgep.cca`; for m
    views with equal parts in v, each is m - 1 times the mean correlation of two views. (Kettenring, 1971, the sum of
    correlations; other packages add 1 to eigenvalues, or divide them by m.) `Solution.view_weights` are the weights of
    each view.

    Parameters
    ----------
    views : sequence of array_like of shapes (n, d_1), ..., (n, d_m)
        Row i of each belongs to person i.
    bound : "auto" or float
        As in `dpgep.cca`, of the joint row: all parts are clipped together.
    preprocessing, center, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.pca`. Raises as `dpgep.cca` does, and for views that are no list of two or more.

    Examples
    --------
    >>> import numpy as np, dpgep
    >>> rng = np.random.default_rng(0)
    >>> common = rng.standard_normal((20000, 1))
    >>> views = [common * [1.0, 0.0, 0.0] + rng.standard_normal((20000, 3)) for _ in range(3)]
    >>> solution = dpgep.solve(dpgep.multiset_cca(views), epsilon=1.0, delta=1e-6, n_components=1)
    >>> [weights.shape for weights in solution.view_weights]
    [(1, 3), (1, 3), (1, 3)]
    """
    if not isinstance(views, (list, tuple)):
        raise TypeError(f"views must be a list of matrices, one for each view, got {type(views).__name__}")
    return moment_problem(
        lambda *x: models.MultisetCcaModel(tuple(view.width for view in x), center), views, (), **terms
    )


@with_terms
def fda(
    X: Any, labels: Any, *, classes: Sequence[Hashable] | Literal["public"] | None = None, **terms: Unpack[Terms]
) -> MomentProblem:
    """Fisher discriminant analysis: directions that separate classes.

    Problem: A v = lambda B v with, over classes c of n_c people with mean m_c,
    A = sum_c (n_c/n) m_c m_c^T - m m^T (between) and B = (1/n) sum x x^T - sum_c (n_c/n) m_c m_c^T (within).
    Unlike scikit-learn's LDA, A and B are divided by n, not n - C.

    Parameters
    ----------
    X, labels : array_like of shape (n, d), and of n hashable labels
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
    preprocessing, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.pca`.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.pca`, and for fewer than two classes, a wrong number of labels, or labels whose type shows that
        none is in ``classes``. Without ``classes`` also for NaN, and for labels that are not a classification: more
        than 100 distinct ones, or fractional ones.
    """

    def model(x: View) -> models.FdaModel:
        return models.FdaModel(x.width, public_classes(labels, n_rows(x.rows), classes))

    return moment_problem(model, (X,), (labels,), **terms)


@with_terms
def sir(
    X: Any,
    y: Any,
    *,
    slices: int = 10,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    **terms: Unpack[Terms],
) -> MomentProblem:
    """Sliced inverse regression: directions of X that a response y depends on.

    Problem: A v = lambda B v with A = sum_h (n_h/n) m_h m_h^T - m m^T over slices h of y, and B the covariance of the
    rows.

    Parameters
    ----------
    X, y : array_like of shapes (n, d) and (n,)
        Rows of people and their responses. A replaced person may also change slice: responses are protected like rows.
        Infinity belongs to an outer slice; a person with NaN counts as a person and contributes nothing else.
    slices : int
        Number of slices of equal width over ``y_range``; they may be empty.
    y_range : (low, high)
        Public range of y; values outside it belong to the outer slices. Required unless ``edges`` is given.
    edges : sequence of increasing numbers
        Public slice edges, H + 1 numbers for H slices; the outer two may be infinite and exclude nobody. Never
        compute edges from the data: one replaced person would move every quantile (see docs/errata.md).
    bound, preprocessing, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.fda`. Raises as it does, and ValueError without a public range, or edges that increase.
    """
    interior = tuple(slice_edges(slices, y_range, edges).tolist())
    return moment_problem(lambda x: models.SirModel(x.width, interior), (X,), (y,), **terms)


@with_terms
def contrastive_pca(
    X: Any, labels: Any, *, target: Hashable, background: Hashable, alpha: float = 1.0, **terms: Unpack[Terms]
) -> MomentProblem:
    """Contrastive principal component analysis: directions that vary more in a target than in a background.

    Problem: A v = lambda v with A = C_target - alpha C_background, C_g = (1/n_g) sum x x^T - m_g m_g^T over the people
    of a group; no factor n_g/(n_g - 1). Eigenvalues may be negative; the largest lead. (Abid et al. 2018.)

    Parameters
    ----------
    X, labels : array_like of shape (n, d), and of n hashable labels
        One per person. A replaced person may also change groups: labels are protected like rows.
    target, background : hashable
        The public labels of the two groups. A person with another label, or none (NaN), counts as a person and
        contributes nothing else.
    alpha : float
        Public, at least 0: 0 is `dpgep.pca` of the target; the larger, the more a direction is avoided in which the
        background varies.
    bound, preprocessing, adjacency, public_n, person, rows, weights, largest_weight
        As in `dpgep.pca`, of the rows of both groups. "auto" shifts rows but does not scale columns, since covariances
        depend on the units: rescale columns by public factors first.

    Raises
    ------
    TypeError, ValueError
        As in `dpgep.fda`, and if target and background are the same.
    """
    require_non_negative("alpha", alpha)

    def model(x: View) -> models.ContrastivePcaModel:
        classes = public_classes(labels, n_rows(x.rows), (target, background))
        return models.ContrastivePcaModel(x.width, Classes(classes), float(alpha))

    return moment_problem(model, (X,), (labels,), **terms)


@with_terms
def table_problem(
    X: Any,
    groups: Any = None,
    *,
    classes: Sequence[Hashable] | Literal["public"] | None = None,
    slices: int | None = None,
    y_range: tuple[float, float] | None = None,
    edges: Sequence[float] | None = None,
    by_group: bool = False,
    **terms: Unpack[Terms],
) -> MomentProblem:
    """One release of all second moments of rows, for any later question.

    `dpgep.release` says what it takes.
    """
    require_flag("by_group", by_group)
    cuts = {"slices": slices, "y_range": y_range, "edges": edges}

    def model(x: View) -> models.TableModel:
        if groups is None:
            given = {"classes": classes, **cuts}
            described = [name for name, value in given.items() if value is not None]
            if described:
                raise ValueError(f"{' and '.join(described)} describe groups: give groups as well")
            return models.TableModel(x.width, None, by_group)
        if slices is None and edges is None:
            if y_range is not None:
                raise ValueError("y_range belongs to slices: give their number")
            return models.TableModel(x.width, Classes(public_classes(groups, n_rows(x.rows), classes)), by_group)
        if classes is not None:
            raise ValueError("the groups of a table are classes or slices of a response: give one of them")
        if slices is not None and edges is not None:
            raise ValueError("give either edges, which say how many slices there are, or slices with y_range")
        return models.TableModel(x.width, Slices(tuple(slice_edges(**cuts).tolist())), by_group)

    return moment_problem(model, (X,), () if groups is None else (groups,), **terms)


# Fourth powers of matrices and of their noise are computed.
_LEAST, _LARGEST = 1e-60, 1e60
_RESCALE = "divide the matrix and its sensitivity by a power of ten, as fourth powers overflow or vanish"


def gep(
    A: Any,
    B: Any = None,
    *,
    n: int,
    sensitivity_a: float,
    sensitivity_b: float | None = None,
    adjacency: Adjacency = "replace-one",
) -> MatrixProblem:
    """The generalized eigenvalue problem A v = lambda B v in matrix form, as in the papers.

    Parameters
    ----------
    A, B : array_like of shape (d, d)
        Symmetric matrices computed from the data of n people; B positive semidefinite, None for the identity.
        Copied, never modified.
    n : int
        Public number of people.
    sensitivity_a, sensitivity_b : float
        Constants C such that one person changes the matrix by at most C/n in Frobenius norm. **Not checked**: the
        guarantee is as good as these numbers. docs/mathematics.md lists some; the row models (`pca`, `cca`, ...)
        enforce theirs and spend less: prefer them where they apply. Required for B if B is given; 0 declares a
        matrix public. They must hold for the matrices as computed, rounding included.
    adjacency : {"replace-one", "add-remove"}
        The relation for which the constants hold.

    Raises
    ------
    TypeError, ValueError
        If A or B is not a finite real symmetric matrix, shapes differ, or a parameter is out of range: no entry is
        beyond 1e60, and no constant but 0 below 1e-60.
    """
    a, b = _symmetric(A, "A"), None if B is None else _symmetric(B, "B")
    if b is not None and b.shape != a.shape:
        raise ValueError(f"A and B must have the same shape, got {a.shape} and {b.shape}")
    if b is None and sensitivity_b:
        raise ValueError("sensitivity_b needs a B: the identity does not depend on the data")
    if b is not None and sensitivity_b is None:
        raise ValueError("B needs sensitivity_b: how far one person can change it (0 declares B public)")
    sensitivity_b = sensitivity_b or 0.0
    n = require_people("n", n)
    check_adjacency(adjacency, n, None)
    for name, value in (("sensitivity_a", sensitivity_a), ("sensitivity_b", sensitivity_b)):
        require_non_negative(name, value)
        if value and not _LEAST <= value <= _LARGEST:
            raise ValueError(f"{name} must be 0, or between 1e-60 and 1e60, got {value!r}: {_RESCALE}")
    if not sensitivity_a and not sensitivity_b:
        raise ValueError("sensitivity_a and sensitivity_b are both 0: public matrices need no noise")
    facts = PublicFacts(adjacency, None, n)
    return MatrixProblem(GepModel(len(a)), facts, a, b, float(sensitivity_a), float(sensitivity_b))


def _symmetric(values: Any, name: str) -> Matrix:
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] != array.shape[1] or array.shape[0] < 1:
        raise ValueError(f"{name} must be a square matrix, got shape {array.shape}")
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    matrix = np.array(array, dtype=np.float64, order="C")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} contains NaN or infinite values")
    if np.abs(matrix).max() > _LARGEST:
        raise ValueError(f"{name} contains numbers beyond 1e60: {_RESCALE}")
    if np.abs(matrix - matrix.T).max() > 1e-8 * np.abs(matrix).max():
        raise ValueError(f"{name} must be symmetric; pass ({name} + {name}.T) / 2 if the difference is rounding")
    # a projection: unlike copying one triangle, it moves no two matrices further apart than they were
    return np.asarray(matrix / 2 + matrix.T / 2)


#: the models by the names of their commands
BUILDERS: dict[str, Callable[..., MomentProblem]] = {
    "pca": pca,
    "cca": cca,
    "pls": pls,
    "multiset-cca": multiset_cca,
    "fda": fda,
    "sir": sir,
    "contrastive-pca": contrastive_pca,
    "release": table_problem,
}
