"""How far clipping may have turned the components: the part of stated errors that is not noise. It costs nothing.

What is lost of the second moment is a matrix M of which about the diagonal m is known (`dpgep.models.clipping`), and
little else: it is drawn with all signs, in the mean that of independent tails, and with a share of tails that depend on
each other. The histogram of norms shows besides what cutting entries off took from all columns together: each draw
gives it to one of them. Means of groups have moved as well. The mean of all rows shows that tails have sides: as far as
it lies from the location, each group's mean may have moved, and by the share of it that its column has lost. The bias
is the mean turn of the components when all this is put back. Nothing else is known of long rows but by looking at them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import scipy.linalg

from dpgep.methods.base import MethodResult
from dpgep.methods.eigen import solve_pair
from dpgep.models.clipping import of_tails
from dpgep.models.model import Matrix, MatrixPencil, NoisyPencil
from dpgep.models.moments import ReleasedMoments, in_one_group, paired
from dpgep.models.pencil import MomentsPencil
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.redundant import Redundancy, reduced

# The share of tails that depend on each other: chosen on public tables (docs/mathematics.md, section 5).
_DEPENDENT = 0.16
# Draws, the same in every run.
_SEED, _DRAWS = 0x62696173, 16


def with_clipping_bias(
    result: MethodResult, noisy: NoisyPencil, clipped: ReleasedMoments, preprocessing: Preprocessing | None
) -> MethodResult:
    """A result whose expected errors count clipping as well: of ``clipped`` moments of mapped rows, or of better ones.

    ``noisy``: the pencil that was solved. The result is as it was, where nothing is known of what clipping took, as of
    a public bound, or nothing was taken.
    """
    solved, found = None if result.moments is None else paired(result.moments), result.diagnostics
    if solved is None or preprocessing is None or not isinstance(noisy, MomentsPencil):
        return result
    if preprocessing.energy_kept == 1 and preprocessing.variance_error is None:
        return result
    noisy, support = replace(noisy, released=solved), getattr(found, "support", None)
    turn = partial(
        turn_by_clipping, noisy, paired(clipped), preprocessing, found.regularization, len(found.lost), support
    )
    return replace(result, diagnostics=replace(found, accuracy=found.accuracy.biased(turn)))


def lost_variances(clipped: ReleasedMoments, preprocessing: Preprocessing) -> Matrix:
    """(d,), what clipping took from the mean squares of the columns, in units of the squares of their scales.

    Of a column whose scale is unsure, as much as of all: its variance is not known.
    """
    left, kept = _left(clipped, preprocessing), preprocessing.energy_kept
    if preprocessing.variance is not None:
        before = preprocessing.variance
    elif preprocessing.variance_error is not None:
        before = np.ones(len(left))
    else:
        return np.asarray(left * (1 / kept - 1))
    sure = np.ones(len(left), dtype=np.bool_)
    sure[list(preprocessing.unsure)] = False
    lost, total = np.maximum(before - left, 0.0), max(float(before[sure].sum()), 1e-300)
    lost[~sure] = left[~sure] * (1 / kept - 1)
    return np.asarray(lost + before * max(1 - kept - float(lost[sure].sum()) / total, 0.0))


def _left(clipped: ReleasedMoments, preprocessing: Preprocessing) -> Matrix:
    """(d,), mean squares of the columns, in units of the squares of their scales."""
    half = _unmixed(in_one_group(clipped).second, preprocessing)
    return np.maximum(np.diagonal(_unmixed(half.T, preprocessing)), 0.0)


def _unmixed(rows: Matrix, preprocessing: Preprocessing) -> Matrix:
    """Sums of scaled rows (d, m) from sums of mapped rows."""
    return rows if preprocessing.linear is None else np.asarray(scipy.linalg.solve(preprocessing.linear.T, rows))


def turn_by_clipping(
    noisy: MomentsPencil,
    clipped: ReleasedMoments,
    preprocessing: Preprocessing,
    ridge: float,
    k: int,
    support: tuple[int, ...] | None = None,
) -> tuple[Matrix, float]:
    """How far the k leading solutions of a pencil turn if what the ``clipped`` moments have lost is put back.

    Squared sines (k,) between each and itself, and of the span, summed, in the norm of the released B. Where a
    ``support`` is given, in its features alone.
    """
    whole = np.eye(clipped.second.shape[-1])
    basis = whole if support is None else whole[:, list(support)]
    smaller = reduced(noisy, Redundancy.of(noisy.model, preprocessing)) if support is None else None
    if smaller is not None:
        noisy, basis = smaller.noisy, smaller.basis
    elif support is not None:
        features = np.array(support, dtype=np.intp)
        scale = None if noisy.scale is None else noisy.scale[features]
        noisy = replace(noisy, model=noisy.model.restricted(features), released=noisy.released.restricted(features))
        noisy = replace(noisy, scale=scale)
    lost, generator = lost_variances(clipped, preprocessing), np.random.default_rng(_SEED)
    pair = _pair(noisy, noisy.released)
    norm = np.eye(len(pair.a)) if pair.b is None else pair.b + ridge * np.eye(len(pair.b))
    dual = norm @ _leading(pair, ridge, len(pair.a))  # coordinates of a vector in the basis of the solutions
    columns = generator.permutation(len(lost))
    errors, spans = np.zeros((_DRAWS, k)), np.zeros(_DRAWS)
    for draw in range(_DRAWS):
        cut = preprocessing.energy_cut * (columns == draw % len(lost))
        before = _put_back(clipped, preprocessing, lost + cut, generator)
        before = replace(before, second=basis.T @ before.second @ basis, sums=basis.T @ before.sums, pairs=None)
        turned = dual.T @ _leading(_pair(noisy, before), ridge, k)
        sines = 1 - np.diagonal(turned) ** 2 / np.maximum(np.square(turned).sum(axis=0)[: len(turned)], 1e-300)
        errors[draw, : len(sines)] = sines
        spans[draw] = turned.shape[1] - np.square(np.linalg.qr(turned)[0][: turned.shape[1]]).sum()
    return np.clip(errors.mean(axis=0), 0.0, 1.0), max(float(spans.mean()), 0.0)


def _pair(noisy: MomentsPencil, moments: ReleasedMoments) -> MatrixPencil:
    return replace(noisy, released=replace(moments, second=moments.second.copy())).pair()  # it overwrites them


def _leading(pair: MatrixPencil, ridge: float, k: int) -> Matrix:
    """(d, k), leading solutions, of unit norm in that of B."""
    b = None if pair.b is None else pair.b.copy()
    system = solve_pair(pair.a.copy(), b, regularization=ridge, rounding=pair.rounding, fallback=ridge)
    return np.asarray(system.vectors[:, :k])


def _put_back(
    clipped: ReleasedMoments, preprocessing: Preprocessing, lost: Matrix, generator: np.random.Generator
) -> ReleasedMoments:
    """Moments of rows that may have been before the clipping."""
    tails = of_tails(lost, generator.choice([-1.0, 1.0], len(lost)), _DEPENDENT)
    counts, moved = np.maximum(clipped.counts, 1 / clipped.n), np.zeros_like(clipped.sums)
    if clipped.sums.shape[1] > 1:  # the mean of all is no group's
        means, mean = _unmixed(clipped.sums / counts, preprocessing), _unmixed(clipped.sums, preprocessing).sum(axis=1)
        share = lost / np.maximum(lost + _left(clipped, preprocessing), 1e-300)
        moved = np.hypot(mean[:, None], share[:, None] * means) * generator.standard_normal(means.shape)
    if preprocessing.linear is not None:
        tails = preprocessing.linear.T @ tails @ preprocessing.linear
        moved = preprocessing.linear.T @ moved
    sums = clipped.sums + moved * clipped.counts
    if clipped.by_group:  # each has lost as much
        tails = counts[:, None, None] * tails
        between = _of_means(sums, counts) - _of_means(clipped.sums, counts)
        return replace(clipped, second=clipped.second + tails + between, sums=sums)
    between = (sums / counts) @ sums.T - (clipped.sums / counts) @ clipped.sums.T
    return replace(clipped, second=clipped.second + tails + between, sums=sums)


def _of_means(sums: Matrix, counts: Matrix) -> Matrix:
    """(G, d, d), the second moment of each group's mean."""
    return np.asarray(np.einsum("ig,jg,g->gij", sums, sums, 1 / counts))
