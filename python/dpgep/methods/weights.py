"""By what columns are divided before a release whose answer depends on their units: weights of noise, no estimates.

Rows x are released as z = x/w, clipped to a bound R, and the covariance of x is that of z times w w^T. An entry (i, j)
of it has noise in proportion to R^2 w_i w_j, and R^2 to the mean square of z, sum_j s_j/w_j^2 for variances s. Noise in
an entry matters by its size over the difference of eigenvalues, here the larger of the two variances, or the last one
that is asked for, s_K:

    error(w) = (sum_j s_j/w_j^2)^2 sum_i sum_j w_i^2 w_j^2/max(s_i, s_j, s_K)^2.

It is convex in the logarithms of w, as products of powers of them are. With G_ij = 1/max(s_i, s_j, s_K)^2, its slope is
zero where q = w^2 has q^2 (G q) = c s: a fixed point, for c = 1, of the map from q to sqrt(s/(G q)), which halves the
distance of logarithms. Equal w are a release of the rows as they are, w = sqrt(s) that of standardized ones. Where a
variance is not known, rows may be as long as it may be,
and what is sure of it is compared.
"""

from __future__ import annotations

import numpy as np

from dpgep.models.model import Matrix

# Deviations of its noise by which a variance may be larger.
_MAY_BE = 2.0
# Variances below this part of the largest count as that: factors of weights stay far from overflow.
_LEAST = 1e-12
# Each halves the distance from the fixed point.
_ROUNDS = 60


def noise_weights(variances: Matrix, noise: Matrix, n_components: int) -> Matrix:
    """(d,), the w of least error for the leading components, with a mean square of z of at most d.

    variances, noise : (d,), as they were bought, and the deviations of the noise in them.
    """
    most = np.maximum(variances, 0.0) + _MAY_BE * noise
    unit = float(most.max())
    most = np.maximum(most / unit, _LEAST)
    known = np.maximum(variances - _MAY_BE * noise, _LEAST * unit) / unit
    last = np.sort(known)[-min(n_components, len(known))]
    gaps = np.maximum(np.maximum.outer(known, known), last) ** -2.0
    squares = most
    for _ in range(_ROUNDS):
        squares = np.sqrt(most / (gaps @ squares))
    return np.asarray(np.sqrt(squares * unit * (most / squares).mean()))
