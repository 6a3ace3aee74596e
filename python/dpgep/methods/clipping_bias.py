"""How far clipping may have turned the components: the part of stated errors that is not noise. It costs nothing.

What is lost of the second moment is a matrix M, of which about the diagonal m is known. It is drawn as that of a few
normal rows with the correlations of what is left in part, and as that of independent tails; what cutting entries off
took from all columns together, each draw gives to one of them; and means of groups have moved. The bias is the mean
turn of the components when all this is put back (docs/mathematics.md, section 5).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpgep.methods.eigen import solve_pair
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, in_one_group
from dpgep.models.preprocessing import VARIANCE_UNTOLD, Preprocessing, octave_losses
from dpgep.models.redundant import Redundancy, reduced
from dpgep.models.row_model import MomentsPencil

# Chosen on half of the public tables of benchmarks/real_tables.py (docs/mathematics.md, section 5): how many times as
# much as is seen was lost, where nothing shows tails and elsewhere, and at most, in units of what is left; the share of
# tails that are independent, and normal rows that stand for the others; the part of what their mean and columns show by
# which groups move.
_GROWN, _MOST, _INDEPENDENT, _ROWS, _MOVED = (1.6, 2.5), 50.0, 0.85, 8, 0.75
# Clipped rows that lost more than the mean square each show tails: by what power of that, and at most, more was lost.
_LONGER, _LONGEST = 0.25, 8.0
_NEAR = 0.5  # deviations by which what a column has lost may differ from what is missing of its bought variance
_SEED, _DRAWS = 0x62696173, 16  # draws, the same in every run


def lost_variances(left: Matrix, noise: Matrix, preprocessing: Preprocessing, n: float) -> Matrix:
    """(d,), what clipping took from the mean squares of the columns, in units of the squares of their scales.

    ``left``: what is left of these, with this ``noise``. Seen is the same share of each, by the norms or by all bought
    variances together, but near what is missing of its own variance, and at least what octaves show beyond the bound.
    """
    share, low, high = 1 / preprocessing.energy_kept - 1, np.zeros(len(left)), np.full(len(left), np.inf)
    if preprocessing.variance_error is not None:
        bought = np.ones(len(left)) if preprocessing.variance is None else preprocessing.variance
        before = bought * preprocessing.present(n)
        near = _NEAR * np.hypot(before * preprocessing.variance_error, noise)
        near[list(preprocessing.unsure)] = np.inf
        sees = before - left + near > 0  # else the variance lacks what lay outside of its interval
        low, high = np.maximum(before - left - near, 0.0), np.where(sees, before - left + near, np.inf)
        sure = sees & np.isfinite(near) & (preprocessing.variance_error < VARIANCE_UNTOLD)
        together = float((before - left)[sure].sum()) - float(np.linalg.norm(near[sure]))
        share = max(share, together / max(float(left[sure].sum()), 1e-300))
    least, likely, *_ = octave_losses(preprocessing, np.zeros(len(left)))
    lost, rows = 1 / preprocessing.energy_kept - 1, preprocessing.rows_clipped
    tails = lost >= rows or preprocessing.energy_cut > 0 or bool(least.any())
    grown = _GROWN[tails] * (np.clip(lost / rows, 1.0, _LONGEST) ** _LONGER if rows else 1.0)
    return np.asarray(np.minimum(np.maximum(grown * np.clip(share * left, low, high), likely), _MOST * left))


def turn_by_clipping(
    noisy: MomentsPencil,
    clipped: ReleasedMoments,
    preprocessing: Preprocessing,
    ridge: float,
    k: int,
    support: tuple[int, ...] | None = None,
) -> tuple[Matrix, float]:
    """Squared sines (k,) by which the k leading solutions turn if what ``clipped`` moments lost is put back; that of
    their span, summed. In the norm of the released B, in the features of a ``support`` alone where there is one.
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
    mix = whole if preprocessing.linear is None else preprocessing.linear
    # moments of scaled rows from moments of mapped rows, and deviations of the noise in their mean squares
    back, profile = np.linalg.inv(mix), np.broadcast_to(clipped.profile, mix.shape).diagonal()
    noise = clipped.noise.second * np.sqrt(profile) * np.square(back).sum(axis=0)
    clipped, basis = replace(clipped, second=back.T @ clipped.second @ back, sums=back.T @ clipped.sums), mix @ basis
    second, generator = in_one_group(clipped).second, np.random.default_rng(_SEED)
    lost = lost_variances(np.diagonal(second).clip(0), noise, preprocessing, clipped.n)
    root = _root_of_correlation(second)
    whole = np.eye(noisy.model.n_features)
    vectors, b = _leading(noisy, noisy.released, ridge, len(whole))
    dual = (whole if b is None else b + ridge * whole) @ vectors  # to coordinates in their basis
    columns = generator.permutation(len(lost))
    errors, spans = np.zeros((_DRAWS, k)), np.zeros(_DRAWS)
    for draw in range(_DRAWS):
        cut = preprocessing.energy_cut * (columns == draw % len(lost))
        before = _put_back(clipped, lost + cut, root, generator)
        before = replace(before, second=basis.T @ before.second @ basis, sums=basis.T @ before.sums, pairs=None)
        turned = dual.T @ _leading(noisy, before, ridge, k)[0]
        sines = 1 - np.diagonal(turned) ** 2 / np.maximum(np.square(turned).sum(axis=0)[: len(turned)], 1e-300)
        errors[draw, : len(sines)] = sines
        spans[draw] = turned.shape[1] - np.square(np.linalg.qr(turned)[0][: turned.shape[1]]).sum()
    return np.clip(errors.mean(axis=0), 0.0, 1.0), max(float(spans.mean()), 0.0)


def _leading(noisy: MomentsPencil, moments: ReleasedMoments, ridge: float, k: int) -> tuple[Matrix, Matrix | None]:
    """(d, k), leading solutions for these moments, of unit norm in that of B, and B."""
    pair = replace(noisy, released=replace(moments, second=moments.second.copy())).pair()  # it overwrites them
    b = None if pair.b is None else pair.b.copy()
    system = solve_pair(pair.a, b, regularization=ridge, rounding=pair.rounding, fallback=ridge)
    return np.asarray(system.vectors[:, :k]), pair.b


def _root_of_correlation(second: Matrix) -> Matrix:
    """R (d, d) with R R^T the correlations of what is left, as far as noise left these positive."""
    squares = np.diagonal(second)
    inverse = 1 / np.sqrt(np.where(squares > 0, squares, np.inf))  # of a column that noise has emptied, none are known
    values, vectors = np.linalg.eigh(second * np.outer(inverse, inverse))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(root / np.maximum(np.linalg.norm(root, axis=1), 1e-300)[:, None])


def _put_back(clipped: ReleasedMoments, lost: Matrix, root: Matrix, generator: np.random.Generator) -> ReleasedMoments:
    """Moments of scaled rows that may have been before the clipping, which took ``lost`` from their mean squares."""
    rows = np.sqrt(lost / _ROWS)[:, None] * (root @ generator.standard_normal((len(lost), _ROWS)))
    tails = (1 - _INDEPENDENT) * (rows @ rows.T) + np.diag(_INDEPENDENT * lost)
    counts, moved = np.maximum(clipped.counts, 1 / clipped.n), np.zeros_like(clipped.sums)
    if clipped.sums.shape[1] > 1:  # the mean of all is no group's
        left = np.diagonal(in_one_group(clipped).second).clip(0)
        share = (lost / np.maximum(lost + left, 1e-300))[:, None] * clipped.sums / counts
        moved = _MOVED * np.hypot(clipped.sums.sum(axis=1)[:, None], share) * generator.standard_normal(share.shape)
    sums = clipped.sums + moved * clipped.counts
    between = _of_means(sums, counts) - _of_means(clipped.sums, counts)
    put_back = counts[:, None, None] * tails + between if clipped.by_group else tails + between.sum(axis=0)
    return replace(clipped, second=clipped.second + put_back, sums=sums)


def _of_means(sums: Matrix, counts: Matrix) -> Matrix:
    """(G, d, d), the second moment of each group's mean."""
    return np.asarray(np.einsum("ig,jg,g->gij", sums, sums, 1 / counts))
