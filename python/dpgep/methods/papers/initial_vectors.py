"""Where a Rayleigh flow starts: at random, at a public array, or at a private estimate paid from the same budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep._show import Shown
from dpgep.methods.eigen import positive_part, solve_pair
from dpgep.methods.papers.fantope import fantope_relaxation, leading_vectors
from dpgep.methods.ridge import public_ridge
from dpgep.methods.sparse import sparse_solution
from dpgep.models.model import Matrix
from dpgep.privacy.curator import Curator, FeatureRelease, Release
from dpgep.privacy.screening import keep_features

RANDOM = ("random",)
KINDS = (*RANDOM, "convex", "screen")
# Default shares of mu^2 for the initial vector, and within a screen for the scores; public constants.
SHARES = {"convex": 0.5, "screen": 0.3}
_SCORES_SHARE = 0.6
_PURPOSE = "initial vector"


@dataclass(frozen=True, eq=False, repr=False)
class InitialVectors(Shown):
    """Starting blocks (K, d) of a flow.

    Attributes
    ----------
    kind : "random", "given", "convex" or "screen".
    starts : the blocks, the most promising first.
    share : fraction of the run's mu^2 that they cost.
    status : how they were found, in words.
    """

    kind: str
    starts: tuple[Matrix, ...]
    share: float
    status: str


def initial_vectors(
    curator: Curator, k: int, kind: Any, *, share: float | None, sparsity: int | None, n_starts: int
) -> InitialVectors:
    """``n_starts`` blocks at random, one that is given, or a private estimate and random ones."""
    if (given := given_vectors(kind, k, curator.model.n_features)) is not None:
        return InitialVectors("given", (given, *_random(curator, k, n_starts - 1)), 0.0, "public, from the caller")
    if kind == "random":
        return InitialVectors("random", _random(curator, k, n_starts), 0.0, f"{n_starts} drawn at random")
    spent = SHARES[kind] if share is None else share
    estimate = convex if kind == "convex" else screened
    estimates, status = estimate(curator, k, spent, sparsity)
    found = tuple(itertools.islice(estimates, n_starts))
    return InitialVectors(kind, (*found, *_random(curator, k, n_starts - len(found))), spent, status)


def given_vectors(values: Any, k: int, d: int, kinds: Sequence[str] = KINDS) -> Matrix | None:
    """A (K, d) block from the caller's array, (d,) for one component; None for one of the words ``kinds``."""
    if isinstance(values, str) and values in kinds:
        return None
    array = np.atleast_2d(np.asarray(values))
    if array.dtype.kind not in "fiub" or array.shape != (k, d):
        got = repr(values) if isinstance(values, str) else f"{array.dtype} of shape {np.shape(values)}"
        raise ValueError(
            f"init must be {' or '.join(map(repr, kinds))} or public real numbers of shape ({k}, {d}), got {got}"
        )
    block = array.astype(np.float64)
    norms = np.linalg.norm(block, axis=1)
    if not (np.isfinite(norms).all() and (norms > 0).all() and np.linalg.matrix_rank(block) == k):
        raise ValueError("init must have finite, linearly independent rows, none of them zero")
    return np.asarray(block / norms[:, None])


def first_block(curator: Curator, k: int, init: Any) -> Matrix:
    """One block (K, d) to begin at: given, or drawn at random."""
    given = given_vectors(init, k, curator.model.n_features, RANDOM)
    return _random(curator, k, 1)[0] if given is None else given


def convex(curator: Curator, k: int, share: float, sparsity: int | None) -> tuple[Iterator[Matrix], str]:
    """Algorithm 2 of Hu et al.: leading vectors of the l1-penalized convex relaxation on one noisy pair.

    The penalty, of order (noise of an entry) x sqrt(log d), follows from the public deviation; the paper's from data.
    """
    pair = curator.model.noisy(curator.answer(Release(), share, _PURPOSE)).pair()
    d = len(pair.a)
    penalty = pair.noise_level / math.sqrt(4 * d) * math.sqrt(2 * math.log(max(d, 2)))
    b = None if pair.b is None else positive_part(pair.b)
    ridge = max(public_ridge(pair.noise_level), pair.rounding)
    fit = fantope_relaxation(pair.a, b, k, penalty, ridge=ridge, tolerance=1e-4)
    state = "converged" if fit.converged else "stopped"
    status = f"relaxation, penalty {penalty:.2g}, {state} after {fit.n_iterations} steps"
    return iter([leading_vectors(fit.sparse, k)]), status


def screened(curator: Curator, k: int, share: float, sparsity: int | None) -> tuple[Iterator[Matrix], str]:
    """Leading vectors of a private block on the coordinates with the largest noisy scores; then single coordinates."""
    d = curator.model.n_features
    n_kept = min(d, 100 if sparsity is None else max(100, 5 * sparsity))
    each = math.ceil(n_kept / len(curator.model.views))
    kept, scores = keep_features(curator, each, share * _SCORES_SHARE, _PURPOSE)
    features = kept.features
    model, released = curator.answer(FeatureRelease(features, kept.bound), share * (1 - _SCORES_SHARE), _PURPOSE)
    pair = model.noisy(released).pair()
    ridge = 0.0 if pair.b is None else public_ridge(pair.noise_level)
    if sparsity is not None and sparsity < len(features):
        # one support for all: per component, the truncation that follows makes its own
        found = sparse_solution(pair, max(sparsity, k), k, ridge=ridge).vectors
    else:
        found = solve_pair(pair.a, pair.b, regularization=ridge, rounding=pair.rounding).vectors[:, :k].T
    block = np.zeros((k, d))
    block[: len(found), features] = found
    for row in range(len(found), k):  # fewer directions than asked for: coordinates fill up
        block[row, features[row % len(features)]] = 1.0
    best = features[np.argsort(-scores[features], kind="stable")]
    coordinates = (np.eye(1, d, feature) for feature in best if k == 1)
    status = f"{len(features)} of {d} coordinates kept, rows clipped to {kept.bound:.3g}"
    return itertools.chain([block], coordinates), status


def _random(curator: Curator, k: int, n: int) -> tuple[Matrix, ...]:
    """Blocks of independent normal deviates: every direction is as likely."""
    generator = curator.public_generator()
    return tuple(generator.standard_normal((k, curator.model.n_features)) for _ in range(n))
