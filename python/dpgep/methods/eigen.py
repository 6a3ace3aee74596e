"""Solve A v = lambda B v for a noisy symmetric pair, all eigenvalues, in memory for three d x d matrices.

For B = I in many dimensions, all eigenvalues but only the leading vectors: of a tridiagonal matrix, in memory for two.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack

from dpgep._checks import require_count, require_non_negative
from dpgep._threads import blas_on_one_thread
from dpgep.models.model import Matrix

# Up to this size the checks of SciPy take longer than LAPACK, and a copy costs nothing.
_SMALL = 48
# From here on most vectors are left out, where only the leading are asked for: all of them take most of the time.
_MANY = 1000
# Up to this size LAPACK has one thread: several wait for each other at every step, and for threads of NumPy's BLAS that
# are still awake. On two processors beside other work an FDA of 1000 features takes 1.4 s in place of 12, at 200
# eigenvectors 3 ms in place of 17; alone on them, two threads save a twentieth at 1000.
_ONE_THREAD = 1000
# From here on it counts that an A of low rank has few eigenvectors to look for.
_LOW_RANK = 500


@dataclass(frozen=True, eq=False)
class Eigensystem:
    """values (r,), descending; vectors (d, r) with V^T (B_+ + xi I) V = I; r = rank of B_+ + xi I; xi as used.

    For B = I there may be fewer vectors than values: those of the leading.
    """

    values: Matrix
    vectors: Matrix
    regularization: float


def solve_pair(
    a: Matrix,
    b: Matrix | None,
    *,
    regularization: float,
    rounding: float,
    fallback: float = 0.0,
    n_vectors: int | None = None,
    low_rank: tuple[Matrix, Matrix] | None = None,
) -> Eigensystem:
    """Eigensystem of A v = lambda (B_+ + xi I) v, with B_+ the projection of B on the positive semidefinite cone.

    Directions in which B_+ + xi I is at most ``rounding`` are left out: B says nothing about them. Where that is all of
    them, xi = ``fallback`` is used instead. For B = I and a large A, only ``n_vectors`` leading vectors, if that is not
    None. ``low_rank``: (F, w) with A = F^T diag(w) F, if it is known so. Overwrites a and b.
    """
    with on_one_thread(len(a)):
        if b is None:
            if n_vectors is not None and len(a) >= max(_MANY, 4 * n_vectors):
                return Eigensystem(*_leading(a, n_vectors), 0.0)
            return Eigensystem(*_descending(*_eigh(a, "evd")), 0.0)
        values, vectors = _eigh(b)
        values = np.maximum(values, 0.0)
        xi = regularization if values[-1] + regularization > rounding else fallback
        whitener = _inverse_square_root(values + xi, vectors, rounding)
        if whitener.shape[1] == 0:
            return Eigensystem(np.empty(0), np.empty((len(a), 0)), xi)
        if low_rank is not None and whitener.shape[1] >= max(_LOW_RANK, 4 * len(low_rank[0])):
            return Eigensystem(*_of_low_rank(*low_rank, whitener), xi)
        if whitener.shape == a.shape:
            # the buffers of a and b are reused for the products: no fourth d x d matrix
            half = np.matmul(a, whitener, out=b)
            reduced = np.matmul(whitener.T, half, out=a)
        else:
            reduced = whitener.T @ (a @ whitener)
        values, rotation = _descending(*_eigh(reduced))
        return Eigensystem(values, whitener @ rotation, xi)


def on_one_thread(d: int) -> AbstractContextManager[None]:
    """Keep LAPACK to one thread for a block about matrices of d features, where several are slower."""
    return blas_on_one_thread() if _SMALL < d <= _ONE_THREAD else nullcontext()


def bordered(matrix: Matrix, rows: Matrix) -> Matrix:
    """A symmetric matrix (j, j) with ``rows`` (m, j + m) added below, and on the right."""
    j, total = len(matrix), rows.shape[1]
    grown = np.empty((total, total))
    grown[:j, :j] = matrix
    grown[j:, :j] = rows[:, :j]
    grown[:j, j:] = rows[:, :j].T
    grown[j:, j:] = (rows[:, j:] + rows[:, j:].T) / 2
    return grown


def check_pair(a: Matrix, b: Matrix | None, n_components: int, ridge: float) -> None:
    """Raise ValueError unless A and B are square and of one size, K is between 1 and d, and the ridge a size."""
    if a.ndim != 2 or a.shape[0] != a.shape[1] or (b is not None and b.shape != a.shape):
        shapes = f"{a.shape} and {None if b is None else b.shape}"
        raise ValueError(f"a and b must be square and of the same size, got {shapes}")
    require_count("n_components", n_components, largest=len(a))
    require_non_negative("ridge", ridge)


def leading_first(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Eigenvalues, descending, and vectors (d, d) of a square matrix, of which the symmetric part counts."""
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2)
    return values[::-1].copy(), vectors[:, ::-1]


def embedded(rows: Matrix, features: NDArray[np.intp] | slice, d: int) -> Matrix:
    """Rows (m, k') over some features as rows (m, d), zero elsewhere."""
    full = np.zeros((len(rows), d))
    full[:, features] = rows
    return full


def positive_part(matrix: Matrix) -> Matrix:
    """The nearest positive semidefinite matrix. Overwrites its argument."""
    values, vectors = _eigh(matrix)
    vectors *= np.sqrt(np.maximum(values, 0.0))
    return np.asarray(vectors @ vectors.T)


def _leading(matrix: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """All eigenvalues, descending, and k leading vectors, of the tridiagonal matrix T = Q^T A Q. Overwrites A."""
    d = len(matrix)
    work, _ = lapack.dsytrd_lwork(d, lower=1)
    reflectors, diagonal, beside, factors, _ = lapack.dsytrd(matrix.T, lower=1, lwork=int(work), overwrite_a=1)
    values = scipy.linalg.eigvalsh_tridiagonal(diagonal, beside, check_finite=False)
    leading = scipy.linalg.eigh_tridiagonal(
        diagonal, beside, select="i", select_range=(d - k, d - 1), check_finite=False
    )[1]
    # Q leaves the first coordinate as it is; on the others its reflectors lie as those of a QR decomposition do
    rest = np.asfortranarray(leading[1:])
    leading[1:] = lapack.dormqr("L", "N", reflectors[1:, :-1], factors, rest, lwork=64 * d, overwrite_c=1)[0]
    return _descending(values, leading)


def _of_low_rank(factors: Matrix, weights: Matrix, whitener: Matrix) -> tuple[Matrix, Matrix]:
    """All eigenvalues t of W^T F^T diag(w) F W u = t u, descending, and vectors W u. Overwrites W, the ``whitener``.

    They are those of R diag(w) R^T, where W^T F^T = Q R, and zeros, on the columns by which Q is completed.
    """
    (reflectors, scales), triangle = scipy.linalg.qr(
        whitener.T @ factors.T, overwrite_a=True, mode="raw", check_finite=False
    )
    m, (d, r) = len(factors), whitener.shape
    triangle = triangle[:m]
    values = np.zeros(r)
    values[:m], rotation = np.linalg.eigh((triangle * weights) @ triangle.T)
    vectors, *_ = lapack.dormqr("R", "N", reflectors, scales, np.asfortranarray(whitener), lwork=64 * d, overwrite_c=1)
    vectors[:, :m] = vectors[:, :m] @ rotation
    order = np.argsort(-values, kind="stable")  # noise in counts makes negative ones
    return values[order], np.asfortranarray(vectors[:, order])


def _descending(values: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
    # a view with negative strides would keep every later product from BLAS
    return values[::-1].copy(), np.asfortranarray(vectors[:, ::-1])


def _inverse_square_root(values: Matrix, vectors: Matrix, rounding: float) -> Matrix:
    """W (d, r) with W^T V diag(values) V^T W = I, from the values beyond ``rounding``."""
    kept = values > rounding
    if not kept.all():
        values, vectors = values[kept], vectors[:, kept]
    vectors /= np.sqrt(values)
    return vectors


def _eigh(matrix: Matrix, driver: str = "evr") -> tuple[Matrix, Matrix]:
    if len(matrix) <= _SMALL:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    # The transpose is Fortran-ordered: LAPACK overwrites it in place. "evr" needs one matrix beside its input; "evd", a
    # little faster, two.
    values, vectors = scipy.linalg.eigh(matrix.T, overwrite_a=True, check_finite=False, driver=driver)
    return values, vectors
