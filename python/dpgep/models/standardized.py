"""Columns divided by their released standard deviations: the correlation matrix, A = C and B = diag(C).

In coordinates u = D^(1/2) v, D = diag(C), the pair (C, D) is (R, I) with R = D^(-1/2) C D^(-1/2), the correlation
matrix of the released covariance. Its diagonal carries no noise, as that of D is that of C. The coefficient of v_j in
the error of v_i is v_j^T (dC - lambda_i diag(dC)) v_i over lambda_i - lambda_j: a linear form in the noise again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import diags_array

from dpgep.models.model import Matrix, Standardization
from dpgep.models.moments import ReleasedGroups, ReleasedMoments, mean_factor, schur_form_variance

# A released variance counts as at least so many deviations of its noise: a public constant.
_FLOOR = 2.0
# Rounding of a second moment: of exact sums, and, for each person, of sums in floating point.
_EXACT, _SUMMED = 4 * float(np.finfo(float).eps), float(np.finfo(float).eps)


def standardization_of(released: ReleasedMoments) -> Standardization:
    """Deviations of the columns, at least the root of ``_FLOOR`` deviations of the noise in their squares."""
    second = np.diagonal(released.second)
    mean_square = np.square(mean_factor(released)).sum(axis=0)  # 0 where no mean is subtracted
    noise, variances = released.noise, second - mean_square
    # first order: Z_jj - 2 m_j e_j + m_j^2 times the noise of n
    deviations = np.sqrt(noise.second**2 + 4 * mean_square * noise.sums**2 + (mean_square * noise.counts) ** 2)
    rounding = np.abs(second) * (_SUMMED * released.n if released.noiseless else _EXACT)
    floored = np.maximum(variances, _FLOOR * deviations)
    scale = np.sqrt(np.where(floored > rounding, floored, 0.0))
    return Standardization(variances, scale, variances < _FLOOR * deviations)


def correlations(covariance: Matrix, standard: Standardization) -> Matrix:
    """R of a covariance, which is overwritten; its diagonal is 1, or less where the variance is below the floor."""
    covariance /= standard.scale[:, None]
    covariance /= standard.scale
    np.fill_diagonal(covariance, standard.variances / standard.scale**2)
    return covariance


def correlation_form_variance(
    released: ReleasedGroups, standard: Standardization, left: Any, right: Matrix, eigenvalues: Matrix
) -> Matrix:
    """Var of p_j^T (dC - lambda_i diag(dC)) q_i, shape (k, r), p_j and q_i the columns of ``left`` and ``right`` / scale.

    With h = p_j o q_i, zero at columns whose scale is the floor, the form of dC is corrected by -lambda_i times that of
    diag(dC), sum_a h_a (Z_aa - 2 m_a e_a + m_a^2 dn); the variances and covariances of its three independent noises are
    added (docs/mathematics.md, section 5).
    """
    unit = diags_array(1 / standard.scale)
    p, q = unit @ left, np.asarray(unit @ right)
    variance = schur_form_variance(released, p, q, total=1.0, within=0.0)
    noise, value = released.noise, eigenvalues[:, None]
    varying = ~standard.drowned[:, None]
    pp, qq = p * p, q * q * varying
    variance += noise.second**2 * (value**2 - 2 * value) * (qq.T @ pp)
    if released.sums.size:
        m = mean_factor(released).T
        p_mean, q_mean = np.ravel(m.T @ p), np.ravel(m.T @ q)[:, None]
        with_mean = q_mean * ((q * m * varying).T @ pp) + p_mean * ((qq * m).T @ p)
        own = (qq * m**2).T @ pp
        variance += 4 * noise.sums**2 * (value**2 * own - value * with_mean)
        squared_mean = (q * m**2 * varying).T @ p
        variance += noise.counts**2 * (value**2 * squared_mean**2 - 2 * value * q_mean * p_mean * squared_mean)
    return np.asarray(np.maximum(variance, 0.0))


def correlation_noise(released: ReleasedMoments, standard: Standardization) -> float:
    """Expected operator norm of the noise in R, at most: the edge of independent entries s^2/(2 D_a D_b)."""
    inverse = 1 / standard.scale**2
    return released.noise.second * float(np.sqrt(2 * inverse.sum() * inverse.max()))
