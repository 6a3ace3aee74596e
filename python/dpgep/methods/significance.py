"""Could noise alone show this component? One test for every released pair, from the known law of its noise.

The leading eigenvalue of noise alone is simulated through the same B: for B the identity its law is that of the edge of
the semicircle, sigma sqrt(2 d) and the fluctuations of Tracy and Widom. A component whose eigenvalue does not pass it
is lost: its direction may be any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy  # its special functions are loaded when they are used
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from dpgep.methods.generalized_eigen import Eigensystem
from dpgep.methods.result import Matrix

# Probability that noise alone passes for a component.
FALSE_ALARM = 5e-3
# The draws of noise are public, and the same in every run: nothing about the data depends on them.
_SEED = 0x6E6F697365
# Leading eigenvalues have longer tails than a normal law of their deviation: skewed ones of a semicircle's edge (2.9
# deviations at FALSE_ALARM), chi with one degree of freedom at worst (3.33), where the normal law has 2.58.
_TAIL = 3.33 / 2.58
# Draws of noise: many where they cost little, few where one is enough to find an edge that hardly fluctuates.
_MOST_DRAWS, _FEWEST_DRAWS = 32, 4
_DRAWS_TIMES_CUBE = 32 * 63**3
# Beyond so many dimensions the leading eigenvalue alone is found by products.
_DENSE = 128


def log_supports(d: int, k: int) -> float:
    """Logarithm of the number of supports of k among d features."""
    return math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)


def lost_components(
    model: Any, released: Any, system: Eigensystem, k: int, log_searched: float = 0.0
) -> tuple[bool, ...]:
    """Whether noise alone could show each of the k leading solutions of ``system``; once one is lost, all after it.

    An eigenvalue counts from `centre`: where the model's A is no signal, all its eigenvalues are about equal, not zero.
    ``log_searched``: logarithm of the number of supports that were searched.
    """
    values, r = system.values, len(system.values)
    if released.noiseless:
        return (False,) * k
    mean, deviation = _edge(model, released, system, log_searched)
    lost: list[bool] = []
    for i in range(min(k, r)):
        if i == r - 1 and log_searched == 0.0 and (i > 0 or len(system.vectors) == 1):
            found = not any(lost)  # the one direction that is left
        else:
            # fewer dimensions are left to noise by what stands above it
            edge = (mean * math.sqrt((r - i) / r) + deviation) ** model.noise_order
            found = values[i] - model.centre(values[i:]) > edge
        lost.append(not found or (bool(lost) and lost[-1]))
    return tuple(lost)


def lost_caution(lost: tuple[bool, ...], dimensions: int) -> Iterator[str]:
    """What to warn of where components are lost: not of the last ones, where all that there are were asked for."""
    if any(lost) and (lost[0] or len(lost) < dimensions):
        which = [row + 1 for row, gone in enumerate(lost) if gone]
        yield (
            f"components {which} are lost: noise alone could show them; use more rows, fewer features, or a larger "
            "budget"
        )


def beyond_warning(model: Any, eigenvalues: Matrix) -> Iterator[str]:
    """What to warn of where noise has made more of an eigenvalue than it can be."""
    beyond = [f"{value:.3g}" for value in eigenvalues if value > model.largest_eigenvalue * (1 + 1e-9)]
    if beyond:
        yield (
            f"eigenvalues {', '.join(beyond)} are beyond {model.largest_eigenvalue:g}, the largest that there can be: "
            "noise in the covariances made them; use more rows, fewer features, a larger budget or regularization"
        )


def shown_error(error: float, lost: bool) -> str:
    """An expected error, for a table."""
    return f"{error:.2g}" + (" (lost: noise alone could show it)" if lost else "")


def error_table(eigenvalues: Matrix, errors: Matrix, lost: tuple[bool, ...]) -> list[str]:
    """Lines of a table: eigenvalues and expected errors."""
    lines = ["    k  eigenvalue  expected error (squared sine)"]
    for row, (value, error, gone) in enumerate(zip(eigenvalues, errors, lost, strict=True)):
        lines.append(f"  {row + 1:3d}  {value:10.4g}  {shown_error(error, gone)}")
    return lines


def _edge(model: Any, released: Any, system: Eigensystem, log_searched: float) -> tuple[float, float]:
    """Mean of the leading eigenvalue of noise alone, rooted by its order, and how far it strays at FALSE_ALARM."""
    generator = np.random.default_rng(_SEED)
    r = len(system.values)
    n_draws = int(np.clip(_DRAWS_TIMES_CUBE / r**3, _FEWEST_DRAWS, _MOST_DRAWS))
    noises = model.noise_alone(released, system.values, generator, n_draws)
    rooted = np.maximum(_leading_values(noises, system.vectors, model), 0.0) ** (1 / model.noise_order)
    # prediction of one more draw from few: Student's law in place of the normal one
    rank = -float(scipy.special.ndtri_exp(math.log(FALSE_ALARM) - log_searched))
    if log_searched == 0.0:
        rank = float(scipy.special.stdtrit(n_draws - 1, 1 - FALSE_ALARM))
    spread = float(rooted.std(ddof=1)) * math.sqrt(1 + 1 / n_draws)
    return float(rooted.mean()), _TAIL * rank * spread


def _leading_values(noises: Iterator[Matrix], vectors: Matrix, model: Any) -> Matrix:
    """Largest eigenvalue of V^T N V for each N, counted from its centre."""
    if vectors.shape[1] > _DENSE:
        return np.array([_leading_by_products(noise, vectors, model) for noise in noises])
    spectra = np.linalg.eigvalsh(np.stack([vectors.T @ noise @ vectors for noise in noises]))
    return np.array([values[-1] - model.centre(values) for values in spectra])


def _leading_by_products(noise: Matrix, vectors: Matrix, model: Any) -> float:
    r = vectors.shape[1]
    operator = LinearOperator((r, r), matvec=lambda x: vectors.T @ (noise @ (vectors @ x)), dtype=np.float64)
    try:
        top = eigsh(operator, k=1, which="LA", tol=1e-3, v0=np.ones(r), return_eigenvectors=False)[0]
    except ArpackNoConvergence as stopped:
        top = max(stopped.eigenvalues, default=0.0)
    trace = np.einsum("ij,ij->j", vectors, noise @ vectors)
    return float(top - model.centre(trace))
