"""How noise in released moments moves a generalized eigenvector, to first order.

With B-orthonormal eigenvectors v_j, the coefficient of v_j in the error of v_i is v_j^T (dA - lambda_i dB) v_i over
lambda_i - lambda_j. Every A and B here is a combination of two Schur complements of the moment matrix M of z = [x;
e(group)],

    total   T = M_xx - m m^T                   (complement of the one column "everybody"),
    within  W = M_xx - sum_g S_g S_g^T / c_g   (complement of all group columns),

and the derivative of a Schur complement is dT = F^T Z F with F v = [v; -(m.v) 1], dW = E^T Z E with E v = [v;
-(S_g.v)/c_g]_g, Z being the noise of the release. So the coefficient is a linear form in Z and its variance a closed
form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedGroups, effective_counts, total_mean


def symmetric_form_variance(left: Any, right: Matrix) -> Matrix:
    """Var of u_j^T Z v_i for Z GOE with unit diagonal deviation: (|u_j|^2 |v_i|^2 + (u_j.v_i)^2) / 2.

    ``left`` (d, r) holds the u_j, ``right`` (d, k) the v_i as columns; the result is (k, r).
    """
    return np.asarray((np.outer(squares(right), squares(left)) + (right.T @ left) ** 2) / 2)


def schur_form_variance(
    moments: ReleasedGroups, left: Any, right: Matrix, *, total: Matrix | float, within: Matrix | float
) -> Matrix:
    """Var of u_j^T (total_i dT + within_i dW) v_i, shape (k, r), for columns u_j of ``left`` and v_i of ``right``."""
    k = right.shape[1]
    t, w = np.broadcast_to(total, k)[:, None], np.broadcast_to(within, k)[:, None]
    noise = moments.noise
    variance = noise.second**2 * (t + w) ** 2 * symmetric_form_variance(left, right)
    if moments.sums.size == 0:
        return np.asarray(variance)
    mean_left, mean_right = _mean_part(moments, left), _mean_part(moments, right)
    group_left, group_right = _group_part(moments, left), _group_part(moments, right)
    # Z_xe multiplies u a_v^T + v a_u^T with a = total * (mean part) + within * (group part)
    a_left = t[:, :, None] * mean_left + w[:, :, None] * group_left
    a_right = t * mean_right.T + w * group_right.T
    variance += noise.sums**2 * rank_two_squares(left, right, a_left, a_right)
    if noise.counts > 0:
        on_counts = (
            t[:, :, None] * mean_right.T[:, :, None] * mean_left
            + w[:, :, None] * group_right.T[:, :, None] * group_left
        )
        variance += noise.counts**2 * np.einsum("kgr,kgr->kr", on_counts, on_counts)
    return np.asarray(variance)


def rank_two_squares(left: Any, right: Matrix, a_left: Matrix, a_right: Matrix) -> Matrix:
    """|u_j b_i^T + v_i c_ij^T|_F^2, shape (k, r), with b_i = a_right[i] (k, g) and c_ij = a_left[i, :, j] (k, g, r)."""
    return np.asarray(
        np.outer(np.einsum("kg,kg->k", a_right, a_right), squares(left))
        + np.einsum("kgr,kgr->kr", a_left, a_left) * squares(right)[:, None]
        + 2 * (right.T @ left) * np.einsum("kg,kgr->kr", a_right, a_left)
    )


def squares(columns: Any) -> Matrix:
    """Squared norm of every column; the columns may be those of a sparse matrix."""
    if hasattr(columns, "multiply"):
        return np.asarray(columns.multiply(columns).sum(axis=0)).ravel()
    return np.asarray(np.einsum("ij,ij->j", columns, columns))


def _mean_part(moments: ReleasedGroups, vectors: Matrix) -> Matrix:
    """-(m.v) for each group (the same) and each column v."""
    groups = moments.sums.shape[1]
    return np.tile(-(total_mean(moments) @ vectors), (groups, 1))


def _group_part(moments: ReleasedGroups, vectors: Matrix) -> Matrix:
    """-(S_g.v)/c_g for each group g and each column v."""
    return np.asarray(-(moments.sums.T @ vectors) / effective_counts(moments)[:, None])
