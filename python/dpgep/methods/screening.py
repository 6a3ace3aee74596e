"""Keep the features with the largest noisy scores, and a smaller bound for what is left of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgep.methods.result import Matrix
from dpgep.privacy.curator import Curator

# Rows restricted to the features kept are clipped at this multiple of their released mean square: a public constant.
_RECLIP = 2.0


@dataclass(frozen=True, eq=False)
class Screened:
    """What a screen kept; all from released scores.

    Attributes
    ----------
    features : indices of the features kept, ascending; as many from each view.
    bound : the bound that rows are clipped to after the other features are dropped.
    share : fraction of the run's mu^2 that the scores cost.
    """

    features: NDArray[np.intp]
    bound: float
    share: float

    def embedded(self, rows: Matrix, d: int) -> Matrix:
        """Rows (m, k') over the features kept as rows (m, d), zero elsewhere."""
        full = np.zeros((len(rows), d))
        full[:, self.features] = rows
        return full


def keep_features(curator: Curator, n_features: int, share: float, purpose: str) -> tuple[Screened, Matrix]:
    """Buy noisy scores for ``share`` of mu^2 and keep the ``n_features`` largest of each view; the scores as well.

    Rows restricted to these features are shorter, so that they can be clipped to a smaller bound, which follows from
    the released diagonal: the block of the features kept carries far less noise than the whole.
    """
    screen = curator.screen(share, purpose)
    features = _largest_per_view(curator, screen.scores, n_features)
    bound = curator.facts.bound or 1.0
    if screen.energy is not None:
        mean_square = _mean_square(screen.energy, features)
        bound = min(bound, math.sqrt(_RECLIP * mean_square)) if mean_square > 0 else bound
    return Screened(features, bound, share), screen.scores


def _mean_square(energy: Matrix, features: NDArray[np.intp]) -> float:
    """Mean squared norm of the rows restricted to the features, from noisy values that chose them.

    Most of what was chosen was chosen by its noise: it counts as the average feature, plus what it has above the least
    value chosen.
    """
    chosen = energy[features]
    return len(chosen) * max(float(energy.mean()), 0.0) + float((chosen - chosen.min()).sum())


def _largest_per_view(curator: Curator, scores: Matrix, n: int) -> NDArray[np.intp]:
    """Indices of the n largest scores of each view, ascending."""
    parts = curator.model.split(np.arange(len(scores), dtype=np.float64)[None, :])
    chosen = []
    for part in parts:
        indices = part[0].astype(np.intp)
        chosen.append(indices[np.argsort(-scores[indices], kind="stable")[:n]])
    return np.sort(np.concatenate(chosen))
