"""Keep the features with the largest noisy scores, and a smaller bound for rows restricted to them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpgep._show import Shown
from dpgep.models.model import Matrix
from dpgep.privacy.curator import Curator
from dpgep.privacy.screening import Scores, Screen

# Rows restricted to the features kept are clipped at this multiple of their released mean square: a public constant.
_RECLIP = 2.0
# True scores are drawn so often, from a public seed.
_DRAWS = 16
_SEED = 0x73637265656E


@dataclass(frozen=True, eq=False, repr=False)
class Screened(Shown):
    """Features kept by a screen; all of it follows from released scores.

    Attributes
    ----------
    features : indices of the features kept, ascending; as many from each view.
    bound : the bound that rows are clipped to after the other features are dropped.
    share : fraction of the run's mu^2 that the scores cost.
    missed : share of what the features with the largest true scores hold that noise has kept out: expected, given the
        released scores; 0 without noise.
    """

    features: NDArray[np.intp]
    bound: float
    share: float
    missed: float = 0.0


def keep_features(curator: Curator, n_features: int, share: float, purpose: str) -> tuple[Screened, Matrix]:
    """Buy noisy scores for ``share`` of mu^2 and keep the ``n_features`` largest of each view; the scores as well.

    Rows restricted to these features are shorter, so that they can be clipped to a smaller bound, which follows from
    the released diagonal: the block of the features kept carries far less noise than the whole.
    """
    screen = curator.answer(Scores(), share, purpose)
    features = _largest_per_view(curator, screen.scores, n_features)
    bound = curator.facts.bound or 1.0
    if screen.energy is not None:
        mean_square = _mean_square(screen.energy, features)
        bound = min(bound, math.sqrt(_RECLIP * mean_square)) if mean_square > 0 else bound
    missed = _missed(curator, screen, features, n_features)
    return Screened(features, bound, share, missed), screen.scores


def _missed(curator: Curator, screen: Screen, features: NDArray[np.intp], n_features: int) -> float:
    """Expected share of the largest true scores that lies outside of the features kept.

    True scores are drawn as they may have been: normal, with the mean and what noise leaves of the spread of the
    released ones, given those.
    """
    deviation = _score_deviation(curator, screen)
    if not deviation.any():
        return 0.0
    generator = np.random.default_rng(_SEED)
    kept = np.zeros(len(screen.scores), dtype=bool)
    kept[features] = True
    centre = float(np.median(screen.scores))
    spread = float(np.mean((screen.scores - centre) ** 2))
    reliability = np.maximum(1 - deviation**2 / spread, 0.0) if spread > 0 else np.zeros(len(screen.scores))
    missed = []
    for _ in range(_DRAWS):
        scores = reliability * (screen.scores - centre)
        scores += np.sqrt(reliability) * deviation * generator.standard_normal(len(scores))
        right = _largest_per_view(curator, scores, n_features)
        worth = np.maximum(scores[right], 0.0) + 1e-12 * deviation[right]  # all alike where noise is all there is
        missed.append(float(worth[~kept[right]].sum() / worth.sum()) if spread > 0 else 1.0)
    hopeless = 1 - len(features) / len(kept)
    return float(np.mean(missed)) if reliability.any() else hopeless


def _score_deviation(curator: Curator, screen: Screen) -> Matrix:
    """(d,), deviation of the noise in each score, to first order."""
    model = curator.model
    if model.traits.noise_order == 1 or screen.energy is None:
        return np.full(len(screen.scores), screen.noise)
    # scatter of the means of G groups over variance; sums have the noise of the diagonal over the bound
    groups, noise = model.max_components + 1, screen.noise / (curator.facts.bound or 1.0)
    variance = np.maximum(screen.energy, screen.noise)
    alone = noise**2 * groups * np.sqrt(2 * groups) / variance
    return np.asarray(alone + 2 * noise * np.sqrt(groups * np.maximum(screen.scores, 0.0) / variance))


def _mean_square(energy: Matrix, features: NDArray[np.intp]) -> float:
    """Mean squared norm of the rows restricted to the features, from noisy values that chose them.

    Most of what was chosen was chosen by its noise: it counts as the average feature, plus what it has above the least
    value chosen.
    """
    chosen = energy[features]
    return len(chosen) * max(float(energy.mean()), 0.0) + float((chosen - chosen.min()).sum())


def _largest_per_view(curator: Curator, scores: Matrix, n: int) -> NDArray[np.intp]:
    chosen = [view.start + np.argsort(-scores[view], kind="stable")[:n] for view in curator.model.views]
    return np.sort(np.concatenate(chosen))
