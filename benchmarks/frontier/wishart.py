"""Wishart noise (Jiang, Xie, Zhang 2016; Imtiaz and Sarwate 2016), repaired: a difference of two Wishart matrices.

Printed: C/n + W, W ~ W_d(d + 1, 3/(2 n epsilon) I), C the second moment of rows in the unit ball, for epsilon-DP, as
the density of W, a multiple of exp(-n epsilon tr(W)/3), changes by a bounded factor where C does (that constant as in
public code which cites the paper; the other paper has the same law with another one). *It has no such guarantee*: W
is positive semidefinite, so what is published is always above C, and may not be above the C of a neighbour. With a
zero row replaced by a unit row x it shows the difference if x^T W^-1 x > 1/n, and 1/(x^T W^-1 x) is 3/(2 n epsilon)
times a chi^2 deviate of 2 degrees of freedom: with probability 1 - exp(-epsilon/3), 0.28 for epsilon = 1. No epsilon
and no mu allow that, whatever the scale. Imtiaz and Sarwate's paper is said to have been retracted for it in 2017. As
(epsilon, delta) with more degrees of freedom (Sheffet 2015) it is sound, but no mu stands for a delta that remains at
all epsilon.

Sound: W - W', both of W_d(d + 1, s I). *Its densities h(M) and h(M + D) differ by a factor of at most exp(|D|_*/(2
s)), |D|_* the sum of absolute eigenvalues.* Proof: h(M) is, up to a constant, the integral of exp(-(tr V + tr(M +
V))/(2 s)) over V >= 0 with M + V >= 0, since the density of W has the power zero of its determinant. For P >= 0 and V
= U + P, h(M - P) = exp(-tr P/(2 s)) times the integral of exp(-(tr U + tr(M + U))/(2 s)) over U >= -P with M + U >=
0, which is at least that over U >= 0: h(M - P) >= exp(-tr P/(2 s)) h(M). As h(-M) = h(M), also h(M + P) >= exp(-tr
P/(2 s)) h(M). D = P - N with P, N >= 0 and tr P + tr N = |D|_*. A replaced row has |x x^T - y y^T|_* <= |x|^2 + |y|^2
<= 2, so s = 1/epsilon, and entries off the diagonal have a deviation of sqrt(2 (d + 1))/epsilon, where Gaussian noise
has 1/mu. The matrix that is published may have negative eigenvalues.
"""

from __future__ import annotations

import numpy as np
from mechanism import Analyst, Matrix, leading, second_moment


def components(rows: Matrix, k: int, mu: float, rng: np.random.Generator, bound: float) -> Matrix:
    return ask(Analyst.of(rows, bound, rng), k, mu)


def ask(analyst: Analyst, k: int, mu: float) -> Matrix:
    d, rng = analyst.shape[1], analyst.rng
    return leading(analyst.ask_pure(second_moment, "nuc", lambda epsilon: noise(d, epsilon, rng), mu), k)


def noise(d: int, epsilon: float, rng: np.random.Generator) -> Matrix:
    """W - W', which hides a replaced row."""
    return wishart(d, 1 / epsilon, rng) - wishart(d, 1 / epsilon, rng)


def wishart(d: int, scale: float, rng: np.random.Generator) -> Matrix:
    """W_d(d + 1, scale I)."""
    normal = rng.standard_normal((d + 1, d))
    return np.asarray(scale * normal.T @ normal)
