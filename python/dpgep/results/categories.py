"""A categorical column of a release: its indicators as functions of mapped rows, and the noise in what they make.

The indicator of category g is 1_g = o_g + f_g.z, z the mapped indicator columns, f_g = s_g e_g and o_g their scales and
locations. Where everybody has a listed category, the indicators add up to 1, and so do what is released of them after
a projection along the least noise; elsewhere whoever has none is one more category.

With M the released moments of (z, 1) and Z their noise, the share of people in a and b is u_a^T M u_b, u = (f, o), and

    Var u_a^T Z u_b = v/2 |f_a|^2 |f_b|^2 + w (o_b^2 |f_a|^2 + o_a^2 |f_b|^2) + c o_a^2 o_b^2,

v, w and c the variances of the noise in the second moment, in the sums and in the counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import did_you_mean, quoted
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, mean_factor, total_mean
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.redundant import Redundancy
from dpgep.models.row_model import PencilPart
from dpgep.results.columns import ReleasedColumns
from dpgep.sources.names import listed

# What people are called who have none of the listed categories.
OTHER = "(not listed)"
# Of variances of indicators, the least and the most over those released that are taken to have been there.
_RESTORED = 0.5, 2.0


def indicators_of(release: ReleasedColumns, column: str) -> NDArray[np.intp]:
    """Numbers of the indicators of a categorical column. Raises ValueError for another column, or an unknown one."""
    names = release.model.feature_names or ()
    found = [g for g in release.model.indicators if all(names[j].startswith(f"{column}=") for j in g)]
    if len(found) == 1:
        return np.array(found[0], dtype=np.intp)
    if column in names:
        raise ValueError(f"column {quoted(column)} is released as a number: declare its categories before the release")
    known = sorted({names[group[0]].partition("=")[0] for group in release.model.indicators})
    raise ValueError(
        f"there is no categorical column {quoted(column)}{did_you_mean(column, known)}: the released ones are "
        f"{listed(known) if known else 'none'}"
    )


@dataclass(frozen=True, eq=False)
class Category:
    """Indicators of a categorical column, k of them, from those of q released columns.

    Attributes
    ----------
    places : (q,), of the columns among the moments.
    forms, offsets : (k, q) and (k,), f and o.
    mean : (q,), released, of the mapped columns.
    restored : (q,), what covariances with each are multiplied by where they were put back as they were before clipping:
        an indicator of a share p has the variance p (1 - p).
    least : the least share that counts as one: of a person, or as much as the noise of the sums.
    """

    labels: tuple[str, ...]
    places: NDArray[np.intp]
    forms: Matrix
    offsets: Matrix
    mean: Matrix
    restored: Matrix
    least: float

    @classmethod
    def of(
        cls,
        column: str,
        names: tuple[str, ...],
        places: NDArray[np.intp],
        noisy: ReleasedMoments,
        preprocessing: Preprocessing | None,
    ) -> Category:
        """The category ``column`` whose indicators have these names and places among the moments."""
        part, mapped = noisy.restricted(places), None if preprocessing is None else preprocessing.restricted(places)
        scale, location = scale_and_location(mapped, len(places))
        labels = tuple(name[len(column) + 1 :] for name in names)
        redundant = Redundancy.of_columns((tuple(range(len(places))),), len(places), names, mapped)
        assert redundant is not None
        forms, missing = np.diag(scale), 1 - float(location.sum())
        if redundant.without_variance(PencilPart(np.full(1, -1.0)), mean_factor(part), part) is None:
            forms, offsets = np.vstack([forms, -scale]), np.append(location, missing)
            labels = (*labels, OTHER)
        else:
            total = float(scale @ scale)
            forms = forms - np.outer(scale**2, scale) / total
            offsets = location + scale**2 * missing / total
        least = max(1 / noisy.n, noisy.noise.sums * float(scale.max()))
        mean, restored = total_mean(part), np.ones(len(places))
        if part.clipping is not None:
            known = location * (1 - location) if location.any() else scale * mean * (1 - scale * mean)
            variances = (np.diagonal(part.second) - mean**2) * scale**2
            restored = np.sqrt(np.clip(known / np.maximum(variances, 1e-300), *_RESTORED))
        return cls(labels, places, forms, offsets, mean, restored, least)

    @property
    def shares(self) -> Matrix:
        """(k,), of people; noise may have made them negative."""
        return np.asarray(self.offsets + self.forms @ self.mean)

    @property
    def divisors(self) -> Matrix:
        """(k,), shares by which others are divided."""
        return np.asarray(np.maximum(self.shares, self.least))

    @property
    def squares(self) -> Matrix:
        """(k,), |f|^2."""
        return np.asarray(np.einsum("ij,ij->i", self.forms, self.forms))

    def whitened(self, noisy: ReleasedMoments) -> tuple[Matrix, Matrix]:
        """(k, k - 1) and (k - 1,): axes of D^-1/2 1_g across D^1/2 1, and how much noise of mapped columns has along.

        D = diag(shares). Sums of people stray along all axes alike. Noise N - m e^T - e m^T of a covariance, e that of
        the mean, counts as N times (I + 2w/v m m^T) on either side, which is a little more.
        """
        scaled = self.forms / np.sqrt(self.divisors)[:, None]
        along, noise = scaled @ self.mean, noisy.noise
        of_mean = 2 * (noise.sums / noise.second) ** 2 if noise.second else 0.0
        values, axes = np.linalg.eigh(scaled @ scaled.T + of_mean * np.outer(along, along))
        return axes[:, 1:], np.maximum(values[1:], 0.0)


def scale_and_location(preprocessing: Preprocessing | None, d: int) -> tuple[Matrix, Matrix]:
    """(d,), (d,): x = location + scale z of mapped columns z."""
    scale = None if preprocessing is None else preprocessing.scale
    location = None if preprocessing is None else preprocessing.location
    return np.ones(d) if scale is None else scale, np.zeros(d) if location is None else location
