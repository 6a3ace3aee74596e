"""Private PCA by the methods that the papers compare with, each with its own calibration, checked: NumPy only.

Second moment M = (1/n) sum x x^T of n rows in the unit ball, n public. A replaced row moves it by at most sqrt(2)/n in
Frobenius norm and by 1/n in operator norm. Components are the rows of the (K, d) results, orthonormal. ``epsilon=inf``
runs without noise.

    python benchmarks/comparators.py        # checks the three
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

import dpgep

Matrix = NDArray[np.float64]
Generator = np.random.Generator


def analyze_gauss(second: Matrix, n: int, k: int, *, epsilon: float, delta: float, rng: Generator) -> Matrix:
    """Dwork, Talwar, Thakurta, Zhang 2014: independent noise on the upper triangle, then the leading eigenvectors.

    The upper triangle, diagonal included, moves by at most sqrt(2)/n (e_1 becomes e_2). Calibrated exactly, where the
    paper takes the classical bound.
    """
    deviation = math.sqrt(2) / n / _mu(epsilon, delta)
    return leading(second + symmetric_noise(len(second), deviation, rng), k)


def noisy_power_method(
    second: Matrix, n: int, k: int, *, epsilon: float, delta: float, rng: Generator, n_iterations: int = 15
) -> Matrix:
    """Hardt and Price 2014 (PPI): V <- QR(M V + G), G independent and new in each of the iterations, from random V.

    For orthonormal V a product moves by at most 1/n (K = 1: operator norm) or sqrt(2)/n (Frobenius norm), whatever V;
    all products together cost the budget.
    """
    sensitivity = (1.0 if k == 1 else math.sqrt(2)) / n
    deviation = sensitivity * math.sqrt(n_iterations) / _mu(epsilon, delta)
    v = np.linalg.qr(rng.standard_normal((len(second), k)))[0]
    for _ in range(n_iterations):
        v = np.linalg.qr(second @ v + deviation * rng.standard_normal(v.shape))[0]
    return np.ascontiguousarray(v.T)


def mod_sulq(second: Matrix, n: int, k: int, *, epsilon: float, delta: float, rng: Generator) -> Matrix:
    """Chaudhuri, Sarwate, Sinha 2013: independent noise on the upper triangle, then eigenvectors.

    The deviation is the paper's own, about d times what `analyze_gauss` needs. Where it would not give (epsilon, delta)
    by the exact conversion, ArithmeticError.
    """
    if math.isinf(epsilon):
        return leading(second, k)
    deviation = mod_sulq_deviation(len(second), n, epsilon, delta)
    if math.sqrt(2) / n / deviation > _mu(epsilon, delta):
        raise ArithmeticError(f"the printed deviation {deviation:.3g} does not give ({epsilon:g}, {delta:g})")
    return leading(second + symmetric_noise(len(second), deviation, rng), k)


def mod_sulq_deviation(d: int, n: int, epsilon: float, delta: float) -> float:
    """The beta of the paper."""
    tail = math.sqrt(2 * math.log((d * d + d) / (delta * 2 * math.sqrt(2 * math.pi))))
    return (d + 1) / (n * epsilon) * tail + 1 / (math.sqrt(epsilon) * n)


def leading(matrix: Matrix, k: int) -> Matrix:
    return np.ascontiguousarray(np.linalg.eigh(matrix)[1][:, : -k - 1 : -1].T)


def symmetric_noise(d: int, deviation: float, rng: Generator) -> Matrix:
    upper = np.triu(deviation * rng.standard_normal((d, d)))
    return np.asarray(upper + np.triu(upper, 1).T)


def _mu(epsilon: float, delta: float) -> float:
    return math.inf if math.isinf(epsilon) else dpgep.Budget(epsilon=epsilon, delta=delta).mu


# --- Checks ---------------------------------------------------------------------------------------


def check() -> None:
    """Sensitivities by search, deviations by the noise that comes out, limits without noise."""
    rng = np.random.default_rng(1)
    _check_sensitivities(rng)
    x = rng.standard_normal((500, 6)) * [3.0, 2.0, 1.5, 1.0, 0.5, 0.2] / 20
    second = x.T @ x / 500
    exact = leading(second, 2)
    for method in (analyze_gauss, noisy_power_method, mod_sulq):
        more = {"n_iterations": 500} if method is noisy_power_method else {}
        found = method(second, 500, 2, epsilon=math.inf, delta=1e-5, rng=rng, **more)
        assert np.linalg.norm(found - (found @ exact.T) @ exact) < 1e-9, method.__name__
    for d in (1, 2, 10, 1000):
        for epsilon in (1 / 1024, 0.1, 1.0, 4.0):
            sound = math.sqrt(2) / mod_sulq_deviation(d, 1, epsilon, 1e-5) <= _mu(epsilon, 1e-5)
            assert sound, (d, epsilon)
    draws = np.array([symmetric_noise(3, 2.0, rng)[np.triu_indices(3)] for _ in range(20000)])
    assert np.abs(draws.T @ draws / 20000 - 4 * np.eye(6)).max() < 6 * 4 * math.sqrt(2 / 20000)


def _check_sensitivities(rng: Generator) -> None:
    """No pair of rows and no orthonormal block moves an answer by more than is claimed, and some come close."""
    triangle, product = 0.0, {1: 0.0, 2: 0.0}
    axes = np.eye(4)
    pairs = [
        (axes[0], axes[1]),
        *((u / np.linalg.norm(u), w / np.linalg.norm(w)) for u, w in rng.normal(size=(500, 2, 4))),
    ]
    for x, y in pairs:
        moved = np.outer(x, x) - np.outer(y, y)
        triangle = max(triangle, float(np.linalg.norm(np.triu(moved))))
        for k in product:
            blocks = [np.linalg.qr(rng.standard_normal((4, k)))[0], axes[:, :k]]
            product[k] = max(product[k], *(float(np.linalg.norm(moved @ block)) for block in blocks))
    slack = 1 + 1e-12
    assert 0.99 * math.sqrt(2) < triangle <= math.sqrt(2) * slack
    assert 0.99 < product[1] <= slack
    assert 0.99 * math.sqrt(2) < product[2] <= math.sqrt(2) * slack


if __name__ == "__main__":
    check()
    print("comparators: sensitivities, deviations and limits hold")
