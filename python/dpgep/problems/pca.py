"""The problem of principal components, from rows."""

from __future__ import annotations

from typing import Any

from dpgep._checks import require_flag
from dpgep.data.inputs import named
from dpgep.data.views import opened, width
from dpgep.models.model import Adjacency
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.preprocessing import AutoPreprocessing, Bound, Preprocessing
from dpgep.problems.problem import MomentProblem, moment_problem


def pca(
    X: Any,
    *,
    bound: Bound = "auto",
    preprocessing: AutoPreprocessing | Preprocessing | None = None,
    center: bool = True,
    standardize: bool = False,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
) -> MomentProblem:
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

        A constant column has no correlations. Without noise it gets no weight, and the solution is that of the others.
        With noise a column is divided by at least the root of two deviations of the noise in its variance: one that is
        constant, or varies less than that, gets a small weight, with an `AccuracyWarning` that lists such columns.
        Eigenvalues sum to the number of the other columns, up to what these keep.
    adjacency : {"replace-one", "add-remove"}
        Which data sets are neighbours. Under "replace-one" n is public; under "add-remove" it is not, and matrices are
        normalized by ``public_n``, or by a noisy count that the budget pays for.
    public_n : int, optional
        A public number of people, for "add-remove" only; it need not be exact.

    Returns
    -------
    MomentProblem
        For `dpgep.solve`. Nothing is computed yet.

    Raises
    ------
    TypeError, ValueError
        If X is not a real matrix with at least two rows (any number under add-remove), or a parameter is out of range.
        Columns of text are named.
        NaN and infinities are detected by `solve`, before anything is released.
    """
    require_flag("standardize", standardize)
    x, names = opened(X, "X", adjacency)
    model = named((StandardizedPcaModel if standardize else PcaModel)(width(x), center), names)
    return moment_problem(model, (x,), bound=bound, preprocessing=preprocessing, adjacency=adjacency, public_n=public_n)
