"""What clipping products of rows with directions to a norm of C leaves of variances, and does to eigenvectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its special functions are loaded when they are used

from dpgep.models.bins import PRODUCT_EDGES, norm_quantile
from dpgep.models.model import Matrix
from dpgep.privacy.clipped_products import NoisyMean


@dataclass(frozen=True)
class Look:
    """What a histogram of |V^T (x - m)| tells, in bounds, V with K directions; whatever the law of the rows.

    Attributes
    ----------
    threshold : C, a quantile.
    variance : E |V^T (x - m)|^2, with noise of this ``deviation``.
    kept : E |V^T (x - m)| min(|V^T (x - m)|, C).
    across : what clipping leaves of a variance across V: all within the ball, beyond it all but the direction to its
        middle, a K-th, times C over the norm.
    """

    threshold: float
    variance: float
    deviation: float
    kept: float
    across: float


def look_of(answer: NoisyMean, quantile: float, k: int) -> Look:
    """From the shares of people between `PRODUCT_EDGES`."""
    threshold, shares = norm_quantile(answer.values, quantile), answer.values
    norms = np.concatenate([[PRODUCT_EDGES[0] / 2], np.sqrt(PRODUCT_EDGES[1:] * PRODUCT_EDGES[:-1]), [1.0]])
    shrunk, squares = np.minimum(1.0, threshold / norms), norms**2
    return Look(
        threshold,
        variance=float(shares @ squares),
        deviation=answer.deviation * float(np.linalg.norm(squares)),
        kept=float(shares @ (squares * shrunk)),
        across=float(shares @ np.where(shrunk < 1, shrunk * (1 - 1 / k), 1.0)),
    )


def variance_before_clipping(left: float, threshold: float, k: int) -> float:
    """That of k normal entries p with E |p| min(|p|, C)/k = ``left``: a fixed point of left/(part that is kept)."""
    variance = left
    for _ in range(60 if left > 0 else 0):  # each halves the error, or more
        variance = left / kept_of_normal(threshold**2 / variance, k)
    return variance


def kept_of_normal(squared_threshold: float, k: int) -> float:
    """E |z| min(|z|, C)/k for z with k standard normal entries."""
    special, half = scipy.special, squared_threshold / 2
    mean = math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
    beyond = math.sqrt(squared_threshold) * mean * special.gammaincc((k + 1) / 2, half) / k
    return float(special.gammainc(k / 2 + 1, half) + beyond)


def changed_by_clipping(kept: float) -> float:
    """Times v w/(n (v - w)^2), how far an eigenvector moves towards another, a squared sine, when products are clipped.

    In a sample of n normal rows, v and w the eigenvalues. It is E clip(z)^2/kept^2 - 1 with kept = P(|z| <= a) for
    a standard normal z that is clipped to a (docs/mathematics.md, section 11).
    """
    if kept >= 1:
        return 0.0
    a = float(scipy.special.ndtri((1 + kept) / 2))
    square = kept - a * math.sqrt(2 / math.pi) * math.exp(-a * a / 2) + a * a * (1 - kept)
    return square / kept**2 - 1


def sampling_error(values: Matrix, centre: float, kept: float) -> Matrix:
    """n/d times the squared sines that `changed_by_clipping` tells of eigenvectors, all others of eigenvalue c."""
    gaps = np.maximum(values - centre, 1e-3 * abs(centre))  # components that do not stand out are lost
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = centre * np.maximum(values, 0.0) / gaps**2 * changed_by_clipping(kept)
    return np.asarray(np.where(centre > 0, errors, 0.0))
