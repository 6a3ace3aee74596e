"""How far noise turned the components: a bootstrap in the eigenbasis of the released pair, from the known noise.

In the basis of its solutions the released pair is diag(lambda). The truth is taken to be diag(theta), with theta the
eigenvalues before noise pushed them apart; noise of the known law is added to it again, and eigenvectors are compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpgep.methods.result import Matrix

# So many leading solutions take part in the bootstrap; how the others mix with them is of first order.
_CORNER = 96
_STEPS = 24
_MOST_DRAWS, _FEWEST_DRAWS = 32, 8
_DRAWS_TIMES_CUBE = 32 * 48**3
# The draws are public and the same in every run.
_SEED = 0x6572726F72


@dataclass(frozen=True, eq=False)
class Accuracy:
    """``errors`` (K,): expected squared sines; ``span``: their sum for the span, between 0 and K; ``lost`` (K,)."""

    errors: Matrix
    span: float
    lost: tuple[bool, ...]

    def worsened(self, by: Matrix) -> Accuracy:
        """With independent errors, squared sines (K,), besides."""
        return Accuracy(1 - (1 - self.errors) * (1 - by), min(self.span + float(by.sum()), len(by)), self.lost)


def expected_accuracy(values: Matrix, variances: Matrix, lost: tuple[bool, ...], dimensions: int) -> Accuracy:
    """Accuracy of the leading solutions, of which all from the first ``lost`` one on are unknown.

    ``values`` (r,), descending, are the released eigenvalues; ``variances`` (m, r) those of the noise in the entries
    between the m leading solutions and all, m = `rows_needed` (K, r). The components lie in so many ``dimensions``: r,
    or more where features were chosen.
    """
    k, p = len(lost), min(_CORNER, len(variances))
    found = lost.index(True) if True in lost else k
    near, inside = _bootstrap(values[:p], variances[:p, :p], min(found, p))
    far = _first_order(values, variances[: len(near)], p)
    alone = _first_order(values, variances[p : max(found, p)], 0, first=p)
    errors, strays = np.ones(k), np.ones(found)
    errors[:found] = np.append(1 - (1 - near) * (1 - far), alone)
    strays[: len(near)] = 1 - (1 - inside) * (1 - far)
    return Accuracy(errors, min(float(strays.sum()) + k - found, float(min(k, dimensions - k))), lost)


def _first_order(values: Matrix, variances: Matrix, others: int, first: int = 0) -> Matrix:
    """Squared sines by which solutions from ``first`` on mix with all from ``others`` on."""
    rows = np.arange(first, first + len(variances))
    gaps = values[rows, None] - values[others:]
    gaps[rows[:, None] == np.arange(others, len(values))] = np.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        tangents = np.where(variances[:, others:] > 0, variances[:, others:] / gaps**2, 0.0)
    return np.asarray(1 - 1 / (1 + tangents.sum(axis=1)))


def accuracy_given(errors: Matrix, span: float, lost: tuple[bool, ...], r: int) -> Accuracy:
    """Accuracy of the leading of r solutions whose errors, were they not ``lost``, are known, also of the span."""
    k = len(lost)
    found = lost.index(True) if True in lost else k
    singly = np.ones(k)
    singly[: min(found, len(errors))] = errors[:found]
    strayed = span if found == k == len(errors) else float(singly.sum())
    return Accuracy(singly, min(strayed, float(min(k, r - k))), lost)


def rows_needed(k: int, r: int) -> int:
    """Between how many of r leading solutions and all the noise is asked for, to judge k of them."""
    return min(r, max(_CORNER, k))


def before_noise(values: Matrix, variances: Matrix) -> Matrix:
    """Eigenvalues before noise with these variances of its entries was added, from those after, both descending.

    Noise that grows like a Brownian motion pushes eigenvalues apart by d theta_i/dt = sum_j Var_ij/(theta_i - theta_j)
    (Dyson); this is undone from t = 1 to 0. Eigenvalues that meet were one, as far as the noise lets us see.
    """
    from scipy.optimize import isotonic_regression  # slow to import

    theta = values.copy()
    tiny = 1e-12 * max(float(np.abs(values).max(initial=0.0)), np.finfo(float).tiny)
    for step in range(_STEPS):
        gaps = theta[:, None] - theta
        gaps[np.abs(gaps) <= tiny] = np.inf
        time = 1 - step / _STEPS  # a root: steps are equal where eigenvalues spread like it
        theta = theta - 2 * time / _STEPS * (variances / gaps).sum(axis=1)
        theta = isotonic_regression(theta, increasing=False).x
    return np.asarray(theta)


def _bootstrap(values: Matrix, variances: Matrix, found: int) -> tuple[Matrix, Matrix]:
    """Mean squared sines of the ``found`` leading vectors with themselves, and with the span of all of them."""
    p = len(values)
    if not found or not variances.any():
        return np.zeros(found), np.zeros(found)
    variances = np.sqrt(variances * variances.T)
    deviations = np.sqrt(variances)
    theta = before_noise(values, variances)
    generator = np.random.default_rng(_SEED)
    n_draws = int(np.clip(_DRAWS_TIMES_CUBE / p**3, _FEWEST_DRAWS, _MOST_DRAWS))
    noise = np.triu(generator.standard_normal((n_draws, p, p)))
    noise = (noise + np.triu(noise, 1).transpose(0, 2, 1)) * deviations
    noise[:, np.arange(p), np.arange(p)] += theta
    vectors = np.linalg.eigh(noise)[1][:, :, ::-1]
    squares = vectors[:, :found, :found] ** 2
    same = 1 - np.diagonal(squares, axis1=1, axis2=2).mean(axis=0)
    inside = 1 - squares.sum(axis=1).mean(axis=0)
    return same, np.maximum(inside, 0.0)
