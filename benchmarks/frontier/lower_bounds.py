"""What errors are to be expected, and which ones no method can avoid: summed squared sines, drawn beside measurements.

``values`` are the eigenvalues of the sum of x x^T, leading first. mu is the budget under replace-one.

* First order in the noise, with constants: `release`, `clipped_power`.
* Above which a release does not come, whatever the rows, with constants: `release_at_most`, proved in docs/paper.md.
* Below which no mu-GDP method stays on all data of a kind, with a constant: `worst_case`, proved here.
* Rates of published lower bounds, `spiked_rate`, `captured_variance_rate`, `covariance_rate`: their constants are not
  known, nor the logarithms that some leave out, so that only the shape of such a curve is theirs. They are about
  (epsilon, delta) with a small delta; beside errors in mu, mu may stand for epsilon, which is of its order.
"""

from __future__ import annotations

import math

import numpy as np
from mechanism import Matrix


def gaussian_floor(values: Matrix, k: int, deviation: float) -> float:
    """Of K leading eigenvectors of a matrix plus symmetric noise of this deviation off the diagonal, to first order.

    Eigenvector i turns towards j by Z_ij/(lambda_i - lambda_j), Z_ij an entry of the noise in the eigenbasis, where it
    has the same law. Turns within the K leading ones leave their span: the sum of s^2/(lambda_i - lambda_j)^2 over
    i <= K < j remains.
    """
    gaps = values[:k, None] - values[None, k:]
    return float(np.sum((deviation / gaps) ** 2))


def release(values: Matrix, k: int, mu: float, bound: float) -> float:
    """Of one noisy second moment: sensitivity sqrt(2) bound^2, and half of the variance off the diagonal."""
    return gaussian_floor(values, k, bound**2 / mu)


def release_at_most(values: Matrix, k: int, mu: float, bound: float) -> float:
    """What the expected error of a release is at most, for any rows, d and n (docs/paper.md, section 6): the least,
    over t >= 0, of

        K s^2/2 sum_{j > K} (g_j - t)^-2 + 2 min(K, d - K) exp(-t^2/(4 s^2)),
        g_j = max(lambda_K - lambda_j - s sqrt(2 (d - K)), lambda_K - e) - (K > 1) s sqrt(2 K) > t,
        e = min over nu > lambda_{K+1} of nu + s^2/2 sum_{j > K} 1/(nu - lambda_j),

    s = sqrt(2) bound^2/mu. Never more than min(K, d - K).
    """
    d, s, most, rest = len(values), math.sqrt(2) * bound**2 / mu, min(k, len(values) - k), values[k:]
    nu = rest[0] + s * np.geomspace(1e-3, 10 * math.sqrt(d), 400)
    edge = np.min(nu + s**2 / 2 * np.sum(1 / (nu[:, None] - rest), axis=1))
    gaps = values[k - 1] - np.minimum(rest + s * math.sqrt(2 * (d - k)), edge) - (k > 1) * s * math.sqrt(2 * k)
    if gaps[0] <= 0:
        return float(most)
    t = np.linspace(0, min(gaps[0], 20 * s), 201)[:-1, None]
    errors = k * s**2 / 2 * np.sum((gaps - t) ** -2.0, axis=1) + 2 * most * np.exp(-((t[:, 0] / s) ** 2) / 4)
    return float(min(errors.min(), most))


def clipped_power(values: Matrix, k: int, n: int, mu: float, bound: float) -> float:
    """Of "clipped-power" with its defaults: (9 b^2 (lambda_1 + ... + lambda_K)/mu^2 + 0.2 lambda_i lambda_j)/(n
    (lambda_i - lambda_j)^2), summed over i <= K < j, for normal rows and products clipped at their median, which is
    rounded up (docs/mathematics.md, section 11: the noise of 0.93 of mu^2, and what clipping changes in a sample).

    Where clipping keeps kappa of lambda_i, it keeps kappa lambda_j of a turn towards j (Stein), so steps lead to where
    the turn is that of kappa times the matrix, plus the noise. Constants are those of K = 1: for K = 3
    spiked rows have little more than half of this.
    """
    gaps = values[:k, None] - values[None, k:]
    noise = 9 * bound**2 * np.sum(values[:k]) * np.sum(gaps**-2.0) / mu**2
    return float(noise + 0.2 * np.sum(np.outer(values[:k], values[k:]) / gaps**2)) / n


def worst_case(n: int, d: int, gap: float, mu: float) -> float:
    """Every mu-GDP method under replace-one, K = 1, has an expected squared sine of at least this on some n rows in the
    unit ball whose two leading eigenvalues are ``gap`` apart (`hard_rows`). About 0.48 (d - 1)/(mu gap)^2, while the
    first-order error of a release is (d - 1)/(mu gap)^2 there: on data that may be any, nothing is much better.

    Proof. For signs t_1 .. t_D, D >= 2, let q rows be (e_0 + t_j e_j)/sqrt(2) for each j, and m more be e_0 (of the
    last one a part), the others zero. With h^2 = q^2 D/4 the leading eigenvector is v = (cos a, sin a t/sqrt(D)), the
    second eigenvalue q/2, their distance g, tan a = h/g, if m + q (D - 1)/2 = g - h^2/g (an arrow matrix).

    1. Let a <= pi/6. An answer w, w_0 >= 0 by its sign, whose angle to e_0 is b > a is never worse if it is turned to
       e_0 until that is a: v . w = cos a cos b + sin a sin b c falls in b, so it grows; if it was negative, it was at
       least -sin a, and it becomes at least cos 2a >= sin a.
    2. So let b <= a, and u = w cos a/cos b. v - u is orthogonal to e_0, so its angle with w has a cosine of at most
       sin b, and v is at least |v - u| cos b from the line of w: the squared sine is at least cos^2 a |v - u|^2.
    3. Let t be drawn uniformly. For each j, given the other signs, the two data sets differ in q rows, so the laws of
       the answer are q mu-GDP (Dong, Roth and Su 2022): it tells no more of t_j (Blackwell) than a normal deviate of
       variance 1 about s t_j, s = q mu/2. With r(s) = 1 - E tanh(s^2 + s N), the squared error of the best guess at
       t_j from that, |v - u|^2 is at least sin^2 a r(s). An average over t is at most the worst.

    The best q is taken, and the most of D <= d - 1 coordinates that there are rows for.
    """
    best = 0.0
    for q in range(1, min(n // 2, math.ceil(6 / mu)) + 1):
        coordinates = min(d - 1, _most_coordinates(n, gap, q))
        if coordinates >= 2:
            square = (q / gap) ** 2 * coordinates / 4  # tan^2 a
            best = max(best, square / (1 + square) ** 2 * _guess_error(q * mu / 2))
    return best


def hard_rows(n: int, signs: Matrix, q: int, gap: float) -> Matrix:
    """The rows of `worst_case`."""
    d = len(signs) + 1
    apart = _apart(gap, q, len(signs))
    whole, part = int(apart), math.sqrt(apart - int(apart))
    rows = np.zeros((n, d))
    rows[: whole + 1, 0] = [*np.ones(whole), part]
    for turn, sign in enumerate(signs):
        mine = slice(whole + 1 + turn * q, whole + 1 + (turn + 1) * q)
        rows[mine, 0], rows[mine, turn + 1] = math.sqrt(0.5), sign * math.sqrt(0.5)
    return rows


def _apart(gap: float, q: int, coordinates: int) -> float:
    """How many rows are e_0: m."""
    return gap - q**2 * coordinates / (4 * gap) - q * (coordinates - 1) / 2


def _most_coordinates(n: int, gap: float, q: int) -> int:
    """How many D have m >= 0, a <= pi/6 and m + 1 + q D <= n: the last grows with D, as tan^2 a <= 1/3."""
    most = min((gap + q / 2) / (q**2 / (4 * gap) + q / 2), 4 * gap**2 / (3 * q**2))
    rows = (n - 1 - gap - q / 2) / (q / 2 - q**2 / (4 * gap)) if 2 * gap > q else 0.0
    return max(0, math.floor(min(most, rows)))


def _guess_error(s: float) -> float:
    """1 - E tanh(s^2 + s N): the sum over a grid, whose error is far below that of rounding."""
    at = np.linspace(-12, 12, 4801)
    weights = np.exp(-(at**2) / 2)
    return 1 - float(weights @ np.tanh(s**2 + s * at) / weights.sum())


def spiked_rate(n: int, d: int, k: int, spike: float, epsilon: float) -> float:
    """Normal rows of variance 1 + spike along K directions and 1 across: (1 + spike)/spike^2 (d K/n + (d K/(n
    epsilon))^2).

    For K = 1 Liu et al. 2022 (DP-PCA): (lambda_1/(lambda_1 - lambda_2))^2 lambda_2/lambda_1 (d/n + (d/(n epsilon))^2),
    which is this; for K > 1 Cai, Xia and Zha 2024. Both from memory of the papers: that they are minimax up to
    logarithms is in the abstracts; the formulas are not verified.
    """
    return (1 + spike) / spike**2 * (d * k / n + math.pow(d * k / (n * epsilon), 2))


def captured_variance_rate(d: int, k: int, epsilon: float) -> float:
    """Captured variance that is lost in sums of rows in the unit ball, whatever the gap: K sqrt(d)/epsilon (Dwork,
    Talwar, Thakurta, Zhang 2014, from memory: their abstract says that Gaussian noise is nearly optimal).

    Divided by lambda_1 - lambda_d it bounds a summed squared sine.
    """
    return k * math.sqrt(d) / epsilon


def covariance_rate(n: int, d: int, epsilon: float) -> float:
    """Of covariances of normal rows with eigenvalues about 1, in operator norm: d^1.5/(n epsilon) + sqrt(d/n), from
    fingerprinting (Kamath, Mouzakis, Singhal 2022; Narayanan 2024, whose abstract has it). About matrices: eigenvectors
    may be easier.
    """
    return d**1.5 / (n * epsilon) + math.sqrt(d / n)
