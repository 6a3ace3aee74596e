"""Multiple correspondence analysis of categorical columns of a release: which of their categories go together.

Indicators of Q columns have shares p and Burt's matrix B of pairs, released. With D = diag(p), the eigenvectors v of

    S = D^-1/2 (B - p p^T) D^-1/2/Q,   S v = lambda v,   g = (Q lambda)^1/2 D^-1/2 v,

have the principal coordinates g of categories. Within a column S is known: 1/Q across D^1/2 1. Of two columns noise has
the variance v/2 a_i b_j in axes (i, j) of its own (`dpgep.results.contingency`), and people add 1/n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from dpgep._optional import import_extra
from dpgep._show import aligned
from dpgep.models.model import Matrix
from dpgep.models.moments import total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.reports.report import PrivacyReport
from dpgep.results.columns import ReleasedColumns, on_one_thread_of_blas
from dpgep.results.contingency import Variables, indicators_of

# Releases of columns that do not depend on each other, all of whose eigenvalues a dimension must exceed.
_NULL_DRAWS = 19
# Categories that are printed.
_SHOWN = 20


@dataclass(frozen=True, eq=False, repr=False)
class CorrespondenceAnalysis:
    """Multiple correspondence analysis of Q categorical columns with J categories, in k dimensions.

    Attributes
    ----------
    columns : (Q,), names.
    categories : (J,), as "column=category".
    shares : (J,), of people; noise may have made them negative.
    eigenvalues : (k,), principal inertias of the table of indicators; 1/Q without dependence. Noise may have made the
        last negative.
    coordinates : (J, k), principal coordinates of categories: of each column their mean over people is 0.
    recommended : number of leading dimensions that stand out: larger than in any of 19 releases with as many people and
        as much noise, of columns that do not depend on each other.
    n_people : number of people, public or released.
    privacy : the report of the release, which pays for this and for every other answer from it.
    """

    columns: tuple[str, ...]
    categories: tuple[str, ...]
    shares: Matrix
    eigenvalues: Matrix
    coordinates: Matrix
    recommended: int
    n_people: float
    privacy: PrivacyReport

    @property
    def inertia_shares(self) -> Matrix:
        """(k,), eigenvalues over their sum, which is (J - Q)/Q."""
        q = len(self.columns)
        return np.asarray(self.eigenvalues * q / (len(self.categories) - q))

    @property
    def corrected(self) -> Matrix:
        """(k,), (Q/(Q - 1) (lambda - 1/Q))^2, or 0 below 1/Q (Benzecri); of two columns, of their table."""
        q = len(self.columns)
        return np.asarray((q / (q - 1) * np.maximum(self.eigenvalues - 1 / q, 0.0)) ** 2)

    def to_frame(self) -> Any:
        """The coordinates as a pandas DataFrame, a row for each category."""
        pandas = import_extra("pandas", "pandas")
        names = [f"dimension {j}" for j in range(1, len(self.eigenvalues) + 1)]
        return pandas.DataFrame(self.coordinates.copy(), list(self.categories), names)

    def __repr__(self) -> str:
        k = len(self.eigenvalues)
        rows = [("", "share", *(f"dimension {j}" for j in range(1, k + 1)))]
        for name, each in (("eigenvalue", self.eigenvalues), ("corrected", self.corrected)):
            rows.append((name, "", *(f"{value:.4f}" for value in each)))
        for name, share, row in zip(self.categories[:_SHOWN], self.shares, self.coordinates, strict=False):
            rows.append((name, f"{share:.3f}", *(f"{value:.3f}" for value in row)))
        lines = [
            f"Correspondence of {len(self.columns)} columns, {len(self.categories)} categories, "
            f"{self.n_people:.0f} people",
            f"  privacy  {self.privacy}",
            f"  {self.recommended} of {k} dimensions stand out of the noise",
            *aligned(rows),
        ]
        left = len(self.categories) - _SHOWN
        return "\n".join(lines + [f"  ... {left} more categories"] * (left > 0))


@on_one_thread_of_blas
def mca(
    release: ReleasedColumns, columns: Sequence[str] | None = None, *, n_components: int = 2
) -> CorrespondenceAnalysis:
    """Multiple correspondence analysis of categorical columns (default: all); of two, correspondence analysis.

    Raises ValueError for fewer than two categorical columns, unknown ones, one twice, more dimensions than J - Q, and
    for ``missing="pairwise"``.
    """
    names = tuple(release._categories if columns is None else columns)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"mca needs at least two different categorical columns, got {', '.join(names) or 'none'}")
    numbers = [indicators_of(release, name) for name in names]
    require_no_pairs(release._of_everybody[0], "correspondence analysis")
    noisy, mapped = release._judged(np.concatenate(numbers), sizes=False)
    ends = np.cumsum([0, *map(len, numbers)])
    found = [
        Variables.of_category(name, release._names_of(each) or (), np.arange(first, first + len(each)), noisy, mapped)
        for name, each, first in zip(names, numbers, ends, strict=False)
    ]
    axes, scales = zip(*(each.whitened(noisy) for each in found), strict=True)
    q, ends = len(names), np.cumsum([0, *map(len, scales)])
    if not 1 <= n_components <= ends[-1]:
        raise ValueError(f"n_components must be 1 to {ends[-1]} for these categories, got {n_components}")
    same = scipy.linalg.block_diag(*(np.ones((len(each), len(each))) for each in scales)) > 0
    to_axes = scipy.linalg.block_diag(
        *(
            axis.T @ (each.forms * each.restored / np.sqrt(each.divisors)[:, None])
            for axis, each in zip(axes, found, strict=True)
        )
    )
    mean, scale = total_mean(noisy), np.concatenate(scales)
    matrix = np.where(same, np.eye(len(scale)), to_axes @ (noisy.second - np.outer(mean, mean)) @ to_axes.T)
    deviations = np.where(same, 0.0, np.sqrt(noisy.noise.second**2 / 2 * np.outer(scale, scale) + 1 / noisy.n))
    values, vectors = np.linalg.eigh(matrix / q)
    values, vectors = values[::-1][:n_components], vectors[:, ::-1][:, :n_components]
    draws = np.random.default_rng(0).standard_normal((_NULL_DRAWS, *matrix.shape))
    null = np.linalg.eigvalsh((np.eye(len(matrix)) + draws * deviations) / q)[:, ::-1][:, :n_components]
    divisors = np.concatenate([each.divisors for each in found])
    standard = scipy.linalg.block_diag(*axes) @ vectors / np.sqrt(divisors)[:, None]
    standard *= np.sign(standard[np.abs(standard).argmax(axis=0), np.arange(n_components)])
    return CorrespondenceAnalysis(
        columns=names,
        categories=tuple(f"{each}={label}" for each, of in zip(names, found, strict=True) for label in of.labels),
        shares=np.concatenate([each.shares for each in found]),
        eigenvalues=values,
        coordinates=standard * np.sqrt(q * np.maximum(values, 0.0)),
        recommended=int(np.cumprod(values > null.max(axis=0)).sum()),
        n_people=noisy.n,
        privacy=release.report,
    )
