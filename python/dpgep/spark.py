"""Exact moments of the rows of a Spark DataFrame: `moments`. Needs PySpark when it is called.

Problems take DataFrames as they are (``dpgep.pca(people.select("age", "weight"))``): every method that asks for sums
over people then runs on the executors. This is the explicit form for releases, whose moments can be kept and merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpgep.data.inputs import inputs_of
from dpgep.data.integer_moments import DEFAULT_BITS
from dpgep.data.views import require_number_protected, width
from dpgep.distributed import names_of
from dpgep.models.model import Adjacency
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import RowModel
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.moment_problem import streamed_dataset
from dpgep.sources import Scan, scan
from dpgep.sources.kinds import is_spark_frame

__all__ = ["moments"]


def moments(
    model: RowModel,
    X: Any,
    y: str | Sequence[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    bound: float | None = None,
    preprocessing: Preprocessing | None = None,
    adjacency: Adjacency = "replace-one",
    public_n: int | None = None,
    bits: int = DEFAULT_BITS,
) -> Moments:
    """Moments of the rows of a Spark DataFrame: the same bits as `dpgep.Moments` of all rows in one process.

    Each partition is summed in integers where it is read, the sums are merged in a tree, and nothing but sums of d^2
    integers leaves the executors. Tasks that are repeated change nothing: Spark uses the output of one attempt.

    Parameters
    ----------
    model : `PcaModel`, `StandardizedPcaModel`, `CcaModel`, `PlsModel`, `FdaModel`, `SirModel` or `TableModel`
        What is asked, of how many features.
    X : Spark DataFrame, or a `dpgep.scan` of one
        One row per person. `dpgep.scan` declares categories, dates, and a filter, which needs "add-remove".
    y : str or list of str, optional
        The column of labels (fda) or responses (sir), the columns of Y (cca, pls).
    columns : sequence of str, optional
        Those of X. Default: all but ``y``.
    bound, preprocessing, adjacency, public_n, bits
        As in `dpgep.Moments`.

    Returns
    -------
    Moments
        Private, as the rows are: pass it to `dpgep.solve`, which pays for a release.

    Raises
    ------
    TypeError, ValueError
        As `dpgep.Moments.update` does: returned by tasks as values, so that no text of theirs is in Spark's logs.
    ImportError
        If a package is missing: ``pip install 'dpgep[spark]'``.

    Examples
    --------
    >>> import dpgep.spark
    >>> people = spark.read.parquet("s3://visits/")  # doctest: +SKIP
    >>> model = dpgep.models.PcaModel(4, center=True)
    >>> sums = dpgep.spark.moments(model, people.drop("id"), bound=2.0)  # doctest: +SKIP
    >>> solution = dpgep.solve(sums, epsilon=1.0, delta=1e-6)  # doctest: +SKIP
    """
    facts: dict[str, Any] = {"adjacency": adjacency, "public_n": public_n, "bits": bits}
    result = Moments(model, bound=bound, preprocessing=preprocessing, **facts)
    if not is_spark_frame(X.value if isinstance(X, Scan) else X):
        raise TypeError(f"X must be a Spark DataFrame or a dpgep.scan of one, got {type(X).__name__}")
    people, names = scan(X), names_of(y)
    require_number_protected(people, adjacency)
    if y is not None and not names:
        raise TypeError(f"of a Spark DataFrame, y must be the name of a column, or a list of names; got {y!r}")
    known = [str(name) for name in people.source.columns or ()]
    rows = people[list(columns or [name for name in known if name not in names])]
    data = inputs_of(model, rows, None if y is None else people[y])
    for view in data[: len(model.views)]:
        width(view)  # refuses a vector, here and not where its length is known
    radius = result.bound
    result.update_dataset(streamed_dataset(model, data, radius, 0), *(each.names for each in data[: len(model.views)]))
    return result
