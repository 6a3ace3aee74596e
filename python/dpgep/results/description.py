"""What a release says of each column by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep._optional import import_extra
from dpgep.models.model import Matrix
from dpgep.reports.report import PrivacyReport
from dpgep.results.columns import Columns, ReleasedColumns
from dpgep.results.estimates import covariances, mean, means
from dpgep.results.intervals import RowLaw, require_law


@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """Means and deviations of columns, from a release; of an indicator, its mean is the share of people.

    Attributes
    ----------
    names : (d,), of the columns; numbers as text where they have none.
    n_people : number of people, public or released.
    mean, mean_low, mean_high : (d,), and intervals for the population's, at ``level``, for the noise and the sampling.
    deviation, deviation_low, deviation_high : (d,), the same of standard deviations, with n - 1 in the denominator; 0
        where the noise leaves no variance.
    level : the probability that an interval covers its value, one by one.
    privacy : the report of the release, which pays for this and for every other answer from it.
    """

    names: tuple[str, ...]
    n_people: float
    mean: Matrix
    mean_low: Matrix
    mean_high: Matrix
    deviation: Matrix
    deviation_low: Matrix
    deviation_high: Matrix
    level: float
    privacy: PrivacyReport

    def to_frame(self) -> Any:
        """A pandas DataFrame, a row for each column."""
        pandas = import_extra("pandas", "pandas")
        fields = "mean", "mean_low", "mean_high", "deviation", "deviation_low", "deviation_high"
        return pandas.DataFrame({name.replace("_", " "): getattr(self, name) for name in fields}, list(self.names))

    def __repr__(self) -> str:
        width = max(map(len, self.names))
        lines = [
            f"{len(self.names)} columns, {self.n_people:.0f} people; intervals at {self.level:.0%}, noise and sampling",
            f"  privacy  {self.privacy}",
            f"  {'':{width}}  {'mean':>32}  {'deviation':>32}",
        ]
        ends = self.mean, self.mean_low, self.mean_high, self.deviation, self.deviation_low, self.deviation_high
        for name, *values in zip(self.names, *ends, strict=True):
            first, second = (f"{x:.4g} [{low:.4g}, {high:.4g}]" for x, low, high in (values[:3], values[3:]))
            lines.append(f"  {name:{width}}  {first:>32}  {second:>32}")
        return "\n".join(lines)


def describe(
    release: ReleasedColumns, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian"
) -> Description:
    """Number of people, and means and standard deviations of columns, in their units, with intervals.

    Quartiles are no second moments, and are not in a release.
    """
    require_law(level, rows)
    features = release._numbers(columns)
    noisy, preprocessing = release._judged(features)
    low, high = means(noisy, preprocessing, release._row_bound, level, rows).T
    each = (np.diagonal(part) for part in covariances(noisy, preprocessing, release._row_bound, level, rows))
    unbiased = noisy.n / max(noisy.n - 1, 1.0)
    deviation, deviation_low, deviation_high = (np.sqrt(unbiased * np.maximum(part, 0.0)) for part in each)
    return Description(
        names=release._names_of(features) or tuple(map(str, features.tolist())),
        n_people=noisy.n,
        mean=mean(release, features),
        mean_low=low,
        mean_high=high,
        deviation=deviation,
        deviation_low=deviation_low,
        deviation_high=deviation_high,
        level=level,
        privacy=release.report,
    )
