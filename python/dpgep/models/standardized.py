"""Standardized columns: A = D^(-1/2) C D^(-1/2), the correlation matrix of the released covariance C, D = diag(C).

In coordinates u = D^(1/2) v, the pair (C, D) is (A, I). Its diagonal carries no noise, as that of D is that of C. The
coefficient of v_j in the error of v_i is v_j^T (dC - lambda_i diag(dC)) v_i over lambda_i - lambda_j: a linear form in
the noise again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy  # its sparse matrices are loaded when they are used

from dpgep.models.model import Matrix, Standardization
from dpgep.models.moments import ReleasedMoments, mean_factor, schur_form_variance

# A released variance counts as at least this many deviations of its noise: a public constant.
_FLOOR = 2.0
# Rounding of a second moment: of exact sums, and, for each person, of sums in floating point.
_EXACT, _SUMMED = 4 * float(np.finfo(float).eps), float(np.finfo(float).eps)


def standardization_of(released: ReleasedMoments) -> Standardization:
    """Deviations of the columns, at least the root of ``_FLOOR`` deviations of the noise in their squares."""
    second = np.diagonal(released.second)
    mean_square = np.square(mean_factor(released)).sum(axis=0)  # 0 where no mean is subtracted
    noise, variances = released.noise, second - mean_square
    of_second = noise.second**2 * _diagonal_of(released.profile)
    # first order: Z_jj - 2 m_j e_j + m_j^2 times the noise of n
    deviations = np.sqrt(of_second + 4 * mean_square * noise.sums**2 + (mean_square * noise.counts) ** 2)
    rounding = np.abs(second) * (_SUMMED * released.n if released.noiseless else _EXACT)
    floored = np.maximum(variances, _FLOOR * deviations)
    scale = np.sqrt(np.where(floored > rounding, floored, 0.0))
    return Standardization(variances, scale, variances < _FLOOR * deviations)


def correlations(covariance: Matrix, standard: Standardization) -> Matrix:
    """R of covariances, which are overwritten; its diagonal is 1, or less where the variance is below the floor."""
    covariance /= standard.scale[:, None]
    covariance /= standard.scale
    np.einsum("...ii->...i", covariance)[...] = standard.variances / standard.scale**2
    return covariance


def correlation_form_variance(released: ReleasedMoments, left: Any, right: Matrix) -> Matrix:
    """Var of u_j^T dR v_i, shape (k, r), for columns u_j of ``left`` and v_i of ``right``.

    With p = u / scale, q = v / scale, x = R u / scale and y = R v / scale, it is that of p^T dC q - sum_a g_a dC_aa,
    g = (p o y + x o q) / 2, to which a column divided by the floor contributes nothing. Here dC_aa = Z_aa - 2 m_a e_a +
    m_a^2 c, with independent noises Z, e and c of second moment, sums and count: what g changes is added for each.
    """
    standard, m = standardization_of(released), mean_factor(released)
    unit = scipy.sparse.diags_array(1 / standard.scale)
    p, q = unit @ left, np.asarray(unit @ right)
    varying = scipy.sparse.diags_array(np.where(standard.drowned, 0.0, 1 / standard.scale**2))
    x, y = (np.asarray(varying @ (released.second @ side - m.T @ (m @ side))) for side in (p, q))
    variance = schur_form_variance(released, p, q, total=1.0, within=0.0)
    noise, pp, px, xx = released.noise, p * p, p * x, x * x

    def on_diagonal(weights: Matrix) -> tuple[Matrix, Matrix]:
        """sum_a weights_a g_a p_a q_a and sum_a weights_a g_a^2."""
        qq, qy, yy = weights * q * q, weights * q * y, weights * y * y
        return (qy.T @ pp + qq.T @ px) / 2, (yy.T @ pp + 2 * qy.T @ px + qq.T @ xx) / 4

    shared, squared = on_diagonal(np.broadcast_to(_diagonal_of(released.profile), len(q))[:, None])
    variance += noise.second**2 * (squared - 2 * shared)
    if released.sums.size:
        m = m.T
        p_mean, q_mean = np.ravel(m.T @ p), np.ravel(m.T @ q)[:, None]
        with_q = ((m * q * y).T @ p + (m * q * q).T @ x) / 2
        with_p = ((m * y).T @ pp + (m * q).T @ px) / 2
        _, squared = on_diagonal(m * m)
        variance += 4 * noise.sums**2 * (squared - p_mean * with_q - q_mean * with_p)
        of_count = ((m * m * y).T @ p + (m * m * q).T @ x) / 2
        variance += noise.counts**2 * of_count * (of_count - 2 * p_mean * q_mean)
    return np.asarray(np.maximum(variance, 0.0))


def correlation_noise(released: ReleasedMoments, standard: Standardization) -> float:
    """Expected operator norm of the noise in R, at most: the edge of entries of variance s^2/(2 D_a D_b)."""
    inverse = 1 / standard.scale**2
    deviation = released.noise.second * float(np.sqrt(np.max(released.profile)))
    return deviation * float(np.sqrt(2 * inverse.sum() * inverse.max()))


def _diagonal_of(profile: Matrix | float) -> Matrix | float:
    return np.diagonal(profile) if isinstance(profile, np.ndarray) else profile
