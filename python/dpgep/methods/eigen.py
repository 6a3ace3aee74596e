"""Eigensystems of noisy pairs, A v = lambda B v; how far noise turned components, and which of them it may have made.

All eigenvalues, in memory for three d x d matrices. For B = I in many dimensions only the leading vectors: of a
tridiagonal matrix, in memory for two. How accurate they are follows from the known law of the noise alone
(docs/mathematics.md, section 5). Of a pair that is known by its products there are quotients alone, and the law of the
noise stands in for the spectrum: for B the identity a semicircle around ``centre``; for other B the same sums are
bounded with the least that the ridge leaves of B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
import scipy.linalg  # other parts of it are loaded when they are used
from numpy.typing import NDArray
from scipy.linalg import lapack

from dpgep._checks import require_count, require_non_negative
from dpgep._show import Shown
from dpgep._threads import blas_on_one_thread, lapack_on_one_thread
from dpgep.models.model import Matrix, Model, NoisyPencil
from dpgep.models.moments import ReleasedGroups
from dpgep.models.null import leading_of_noise
from dpgep.privacy.products import NoisyProducts

_SMALL = 48  # up to this size the checks of SciPy take longer than LAPACK, and a copy costs nothing
# From here on most vectors are left out, where only the leading are asked for: all of them take most of the time.
_MANY = 1000
_LOW_RANK = 500  # from here on it counts that an A of low rank has few eigenvectors to look for
_ROUNDING, _TINY = float(np.finfo(float).eps), float(np.finfo(float).tiny)
FALSE_ALARM = 5e-3  # probability that noise alone passes for a component
RANK = 2.58  # normal deviations at FALSE_ALARM
# This many leading solutions take part in the bootstrap; how the others mix with them is of first order.
_CORNER = 96
_STEPS = 24
# Draws: many where they cost little; few where one is enough, as of an edge that hardly fluctuates.
_MOST_DRAWS = 32
# Of noise whose leading eigenvalue needs no d x d matrices.
_SMALL_DRAWS = 128
_FEWEST_TRUTHS, _TRUTHS_TIMES_CUBE = 8, 32 * 48**3
_FEWEST_EDGES, _EDGES_TIMES_CUBE = 4, 32 * 63**3
# They are public, and the same in every run: nothing about the data depends on them.
_TRUTHS_SEED, _EDGES_SEED = 0x6572726F72, 0x6E6F697365
_OF_EDGES = np.random.SeedSequence(_EDGES_SEED)
# Mean and deviation of |N|, the chi law with one degree of freedom.
_CHI_MEAN, _CHI_DEVIATION = math.sqrt(2 / math.pi), math.sqrt(1 - 2 / math.pi)
_DENSE = 128  # beyond this many dimensions the leading eigenvalue alone is found by products


@dataclass(frozen=True, eq=False)
class Eigensystem:
    """Solutions of A v = lambda (B_+ + xi I) v."""

    values: Matrix  # (r,), descending; r = rank of B_+ + xi I
    vectors: Matrix  # (d, r) with V^T (B_+ + xi I) V = I; for B = I there may be fewer: those of the leading values
    regularization: float  # xi as used


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
    with lapack_on_one_thread(len(a)):
        if b is None:
            if n_vectors is not None and len(a) >= max(_MANY, 4 * n_vectors):
                return Eigensystem(*_leading(a, n_vectors), 0.0)
            return Eigensystem(*_descending(*_eigh(a, "evd")), 0.0)
        values, whitener = _eigh(b)
        values = np.maximum(values, 0.0)
        xi = regularization if values[-1] + regularization > rounding else fallback
        values += xi
        kept = values > rounding
        if not kept.all():
            values, whitener = values[kept], whitener[:, kept]
        whitener /= np.sqrt(values)  # W^T (B_+ + xi I) W = I
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
    values, failed = lapack.dsterf(diagonal, beside)  # SciPy's wrapper takes a matrix more, up to version 1.13
    if failed:
        raise np.linalg.LinAlgError(f"LAPACK's dsterf did not find {failed} eigenvalues")
    leading: Any = None
    failed = True
    if (beside**2 > _ROUNDING**2 * np.abs(diagonal[1:] * diagonal[:-1]) + _TINY).all():
        # T does not fall apart: its eigenvalues are used, which take twice the time of the vectors to be found again
        leading, failed = lapack.dstein(diagonal, beside, values[-k:], np.ones(d, np.int32), np.full(d, d, np.int32))
    if failed:
        leading = scipy.linalg.eigh_tridiagonal(
            diagonal, beside, select="i", select_range=(d - k, d - 1), check_finite=False
        )[1]
    # Q leaves the first coordinate as it is; on the others its reflectors lie as in a QR decomposition, which
    # begins at the second number: a part of the matrix would be copied
    below = reflectors.ravel("K")[1 : 1 + d * (d - 1)].reshape((d, d - 1), order="F")
    rest = np.asfortranarray(leading[1:])
    leading[1:] = lapack.dormqr("L", "N", below, factors, rest, lwork=64 * d, overwrite_c=1)[0]
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


def _eigh(matrix: Matrix, driver: str = "evr") -> tuple[Matrix, Matrix]:
    if len(matrix) <= _SMALL:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    # The transpose is Fortran-ordered: LAPACK overwrites it in place. "evr" needs one matrix beside its input; "evd", a
    # little faster, two.
    values, vectors = scipy.linalg.eigh(matrix.T, overwrite_a=True, check_finite=False, driver=driver)
    return values, vectors


Edge: TypeAlias = "Matrix | Callable[[], Edge] | None"


@dataclass(frozen=True, eq=False, repr=False)
class Accuracy(Shown):
    """How far K components are off, and which noise alone could show."""

    errors: Matrix  # (K,), expected squared sines
    span: float  # their sum for the span, between 0 and K
    lost: tuple[bool, ...]  # (K,)
    # (K,), the part of the errors that is clipping; None where unknown. No attribute of the class: it may be deferred
    bias: Matrix | None = field(default_factory=lambda: None)
    edge: Matrix | None = field(default_factory=lambda: None)  # (K,), what noise alone hardly exceeds, where known

    @classmethod
    def deferred(cls, simulate: Callable[[], Accuracy], lost: tuple[bool, ...], edge: Edge = None) -> Accuracy:
        """The accuracy that ``simulate()`` returns, but for the edge, computed when errors are first read: most callers
        never read them. The edge as well, where it is a function.

        Both must be functions of released values, with draws from a public seed. They run on one thread of BLAS. So
        when, in which process and how often they do changes no bit. Copies and pickles hold what they found.
        """
        later = cls.__new__(cls)
        later.__dict__.update({"_simulate": simulate, "lost": lost, "_edge" if callable(edge) else "edge": edge})
        return later

    def __getattr__(self, name: str) -> Any:
        """Errors, span and bias, or the edge, where they were not asked for yet."""
        held, names = self.__dict__, ("edge",) if name == "edge" else ("errors", "span", "bias")
        source = "_edge" if name == "edge" else "_simulate"
        find = held.get(source)
        if name in held:  # by now: another thread has found it
            return held[name]
        if find is None or name not in names:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with blas_on_one_thread():
            found = find()
        held.update({each: found if name == "edge" else getattr(found, each) for each in names})
        held.pop(source, None)
        return held[name]

    def __reduce__(self) -> Any:
        return type(self), (self.errors, self.span, self.lost, self.bias, self.edge)

    def with_edge(self, edge: Edge) -> Accuracy:
        """The same beside another edge of the noise."""
        return Accuracy.deferred(lambda: self, self.lost, edge)

    def worsened(self, by: Matrix) -> Accuracy:
        """With independent errors, squared sines (K,), besides."""
        span = min(self.span + float(by.sum()), float(len(by)))
        return Accuracy(1 - (1 - self.errors) * (1 - by), span, self.lost, self.bias, self.edge)

    def biased(self, turn: Callable[[], tuple[Matrix, float]]) -> Accuracy:
        """With the squared sines (K,) by which components are turned by something else, and their span, summed."""

        def together() -> Accuracy:
            bias, of_span = turn()
            span = min(self.span + of_span, float(len(bias)))
            return Accuracy(1 - (1 - self.errors) * (1 - bias), span, self.lost, bias)

        return Accuracy.deferred(together, self.lost, lambda: self.edge)

    def without(self, lost: tuple[bool, ...]) -> Accuracy:
        """Where these are lost besides."""
        gone = np.asarray(self.lost) | np.asarray(lost)
        errors = np.where(gone, 1.0, self.errors)
        span = min(self.span + float((errors - self.errors).sum()), float(len(gone)))
        return Accuracy(errors, span, tuple(gone.tolist()), self.bias, self.edge)

    def after_screen(self, missed: float) -> Accuracy:
        """The accuracy if a screen has dropped features that are expected to hold this share of the components."""
        k, errors = len(self.lost), 1 - (1 - self.errors) * (1 - missed)
        return Accuracy(errors, k - (k - self.span) * (1 - missed), self.lost, self.bias, self.edge)


def expected_accuracy(values: Matrix, variances: Matrix, lost: tuple[bool, ...], dimensions: int) -> Accuracy:
    """Accuracy of the leading solutions, of which all from the first ``lost`` one on are unknown.

    ``values`` (r,), descending, are released; ``variances`` (m, r) of the noise between the m = `rows_needed` (K, r)
    leading solutions and all. Components lie in r ``dimensions``, or more where features were chosen.
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


def accuracy_given(errors: Matrix, span: float, lost: tuple[bool, ...], r: int, edge: Edge) -> Accuracy:
    """Accuracy of the leading of r solutions whose errors, were they not ``lost``, are known, also of the span."""
    k = len(lost)
    found = lost.index(True) if True in lost else k
    singly = np.ones(k)
    singly[: min(found, len(errors))] = errors[:found]
    strayed = span if found == k == len(errors) else float(singly.sum())
    return Accuracy(singly, min(strayed, float(min(k, r - k))), lost).with_edge(edge)


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
    generator = np.random.default_rng(_TRUTHS_SEED)
    n_draws = int(np.clip(_TRUTHS_TIMES_CUBE / p**3, _FEWEST_TRUTHS, _MOST_DRAWS))
    noise = np.triu(generator.standard_normal((n_draws, p, p)))
    noise = (noise + np.triu(noise, 1).transpose(0, 2, 1)) * deviations
    noise[:, np.arange(p), np.arange(p)] += theta
    vectors = np.linalg.eigh(noise)[1][:, :, ::-1]
    squares = vectors[:, :found, :found] ** 2
    same = 1 - np.diagonal(squares, axis1=1, axis2=2).mean(axis=0)
    inside = 1 - squares.sum(axis=1).mean(axis=0)
    return same, np.maximum(inside, 0.0)


def log_supports(d: int, k: int) -> float:
    """Logarithm of the number of supports of k among d features."""
    return math.lgamma(d + 1) - math.lgamma(k + 1) - math.lgamma(d - k + 1)


def null_eigenvalue(model: Model, values: Matrix) -> float:
    """The eigenvalue that all directions with these ``values`` would have without signal."""
    return float(values.sum() / len(values)) if model.traits.equal_eigenvalues else 0.0


def judged_components(
    noisy: NoisyPencil,
    system: Eigensystem,
    k: int,
    log_searched: float = 0.0,
    *,
    people: bool = False,
    may_defer: bool = False,
) -> tuple[tuple[bool, ...], Edge]:
    """Whether noise alone could show each of the k leading solutions of ``system``; once one is lost, all after it.

    With it, (k,) the edge of the noise: eigenvalues that noise alone hardly exceeds. ``log_searched``: logarithm of the
    number of supports that were searched. With ``people``, the noise and the sampling of people together. If it
    ``may_defer``, a function finds the edge where that is not needed yet.

    An eigenvalue counts from `null_eigenvalue`: where the model's A is no signal, all its eigenvalues are about equal,
    not zero. The edge falls with the number of components above; it is None where there is no noise.
    """
    values, r, model = system.values, len(system.values), noisy.model
    if noisy.released.noiseless and not people:
        return (False,) * k, None
    if may_defer and surely_found(noisy, system, k):
        return (False,) * k, lambda: judged_components(noisy, system, k)[1]
    edges, isotropic = np.full(k, -np.inf), noisy.isotropic and not people
    mean, deviation = _edge(noisy, system, log_searched, people=people)
    k, found, drawn, order = min(k, r), 0, 0, model.traits.noise_order
    while found < k:
        # fewer dimensions are left to noise by what stands above it
        left = (r - found) / r if isotropic else 1.0
        edge = (mean * math.sqrt(left) + deviation) ** order
        centre = null_eigenvalue(model, values[found:])
        edges[found:] = centre + edge
        one_left = found == r - 1 and log_searched == 0.0 and (found > 0 or len(system.vectors) == 1)
        if one_left or values[found] - centre > edge:
            found += 1
        elif isotropic or drawn == found:
            break
        else:  # the edge in the directions that are left is lower
            rest = replace(system, values=values[found:], vectors=system.vectors[:, found:])
            (mean, deviation), drawn = _edge(noisy, rest, log_searched, people=people), found
    return (False,) * found + (True,) * (k - found), edges[:k]


def surely_found(noisy: NoisyPencil, system: Eigensystem, k: int) -> bool:
    """Whether the k leading eigenvalues exceed every edge that draws up to `NoisyPencil.most_noise` can make: none is
    lost, and the edge need not be known yet.
    """
    values, r, model = system.values, len(system.values), noisy.model
    most = noisy.most_noise(r, _EDGES_SEED, _SMALL_DRAWS)
    if not most:
        return False
    n_draws = _n_edges(r)
    spread = math.sqrt((n_draws + 1) / (n_draws - 1)) / 2  # of draws from 0 to 1, at most
    edge = most * (1 + _reach(n_draws, 0.0, r) * spread)
    return all(values[i] - null_eigenvalue(model, values[i:]) > edge for i in range(min(k, r)))


def _edge(noisy: NoisyPencil, system: Eigensystem, log_searched: float, *, people: bool) -> tuple[float, float]:
    """Mean of the leading eigenvalue of noise alone, rooted by its order, and how far it strays at FALSE_ALARM."""
    r = len(system.values)
    # all of an orthonormal basis changes no eigenvalue, and is not known where only leading vectors are
    basis = system.vectors if system.vectors.shape[1] == r else None
    leading = None if people else noisy.leading_noise(system.values, basis, _EDGES_SEED, _SMALL_DRAWS)
    if leading is None:
        generator = np.random.default_rng(_OF_EDGES)
        noises = noisy.noise_alone(system.values, generator, _n_edges(r), people=people)
        leading = _leading_values(noises, basis, noisy.model)
    rooted, n_draws = np.maximum(leading, 0.0) ** (1 / noisy.model.traits.noise_order), len(leading)
    mean = float(rooted.sum()) / n_draws
    spread = math.sqrt(float(np.square(rooted - mean).sum()) / (n_draws - 1)) * math.sqrt(1 + 1 / n_draws)
    return mean, _reach(n_draws, log_searched, r) * spread


@lru_cache(maxsize=64)
def _reach(n_draws: int, log_searched: float, r: int) -> float:
    """How many deviations above the mean the largest of e^log_searched leading eigenvalues of r is at most, but for a
    probability of FALSE_ALARM; the deviation is that of ``n_draws``. Tails are at most those of chi with one degree of
    freedom; where many are searched, those of a semicircle may be longer (docs/mathematics.md, section 5).
    """
    log_probability = math.log(FALSE_ALARM) - log_searched
    reach = (_rank(log_probability - math.log(2)) - _CHI_MEAN) / _CHI_DEVIATION
    if log_searched > 0 and r > 1:
        # of GOE(1), r x r, without its mean eigenvalue: by the rate of large deviations, or by concentration, as the
        # leading eigenvalue is convex, and moves by at most sqrt(1 - 1/r) of what the matrix does
        drawn = leading_of_noise(r, 0, _EDGES_SEED, _SMALL_DRAWS)
        concentrated = math.sqrt(1 - 1 / r) * _rank(log_probability)
        above = min(semicircle_edge(r, log_searched) - float(drawn.mean()), concentrated)
        reach = max(reach, above / float(drawn.std(ddof=1)))
    # a deviation from few draws: Student's law in place of the normal one
    few = scipy.special.stdtrit(n_draws - 1, 1 - FALSE_ALARM) / _rank(math.log(FALSE_ALARM))
    return float(few * reach)


def _rank(log_probability: float) -> float:
    """The value that a normal deviate exceeds with this probability."""
    return -float(scipy.special.ndtri_exp(log_probability))


def semicircle_edge(d: int, log_searched: float = 0.0) -> float:
    """What the largest eigenvalue of GOE(1), d x d, exceeds with a probability of FALSE_ALARM at most, searched often.

    P(largest >= y sqrt(2 d)) <= exp(-d (y sqrt(y^2 - 1) - arcosh y)), the rate of large deviations; over e^log_searched
    matrices by the union bound.
    """
    from scipy.optimize import brentq  # slow to import

    wanted = (log_searched - math.log(FALSE_ALARM)) / d
    root = brentq(lambda y: y * math.sqrt(y * y - 1) - math.acosh(y) - wanted, 1.0, 2 + math.sqrt(2 * wanted))
    return math.sqrt(2 * d) * float(root)


def _n_edges(r: int) -> int:
    return int(min(max(_EDGES_TIMES_CUBE / r**3, _FEWEST_EDGES), _MOST_DRAWS))


def _leading_values(noises: Iterator[Matrix], vectors: Matrix | None, model: Model) -> Matrix:
    """Largest eigenvalue of V^T N V for each N, counted from its centre; of N itself where V is None."""
    changes_nothing = vectors is not None and model.traits.identity_b and vectors.shape[0] == vectors.shape[1]
    if vectors is None or vectors.shape[1] > _DENSE:  # no draw is kept while the next is made
        by_products = partial(_leading_by_products, None if changes_nothing else vectors, model)
        return np.array(list(map(by_products, noises)))
    drawn = np.array(list(noises))
    if not changes_nothing:
        drawn = vectors.T @ drawn @ vectors
    spectra = np.linalg.eigvalsh(drawn)
    centres = spectra.sum(axis=1) / spectra.shape[1] if model.traits.equal_eigenvalues else 0.0
    return np.asarray(spectra[:, -1] - centres)


def _leading_by_products(vectors: Matrix | None, model: Model, noise: Matrix) -> float:
    """That of one N, up to a thousandth, or as near as iterations came."""
    operator, diagonal = scipy.sparse.linalg.aslinearoperator(noise), np.diagonal(noise)
    if vectors is not None:
        r = vectors.shape[1]
        operator = scipy.sparse.linalg.LinearOperator(
            (r, r), matvec=lambda x: vectors.T @ (noise @ (vectors @ x)), dtype=np.float64
        )
        diagonal = np.einsum("ij,ij->j", vectors, noise @ vectors)
    how = {"k": 1, "which": "LA", "tol": 1e-3, "return_eigenvectors": False}
    try:
        top = scipy.sparse.linalg.eigsh(operator, v0=np.ones(len(diagonal)), **how)[0]
    except scipy.sparse.linalg.ArpackNoConvergence as stopped:
        top = max(stopped.eigenvalues, default=0.0)
    return float(top) - null_eigenvalue(model, diagonal)


def products_accuracy(
    model: Model, products: NoisyProducts, eigenvalues: Matrix, sizes: Matrix, **how: Any
) -> Accuracy:
    """`quotient_accuracy` of components found by noisy products; ``centre`` is 0 where B is not the identity."""
    how |= {"noise_level": products.noise_level, "identity_b": products.identity_b, "groups": products.groups}
    n_features, order = model.n_features, model.traits.noise_order
    return quotient_accuracy(eigenvalues, sizes, n_features=n_features, noise_order=order, **how)


def quotient_accuracy(
    eigenvalues: Matrix,
    sizes: Matrix,
    *,
    noise_level: float,
    n_features: int,
    sparsity: int | None = None,
    identity_b: bool = True,
    ridge: float = 0.0,
    centre: float = 0.0,
    groups: ReleasedGroups | None = None,
    noise_order: int = 1,
) -> Accuracy:
    """Accuracy of K components from their ``eigenvalues`` and ``sizes`` u^T (B + ridge I) u, u of unit norm.

    ``noise_level`` is that of an answer, of B or of A where B is the identity; ``sparsity`` the number of features in
    use, searched for among ``n_features``; ``groups`` released sums and counts, where there are some.
    """
    k = len(eigenvalues)
    if noise_level == 0:
        return Accuracy(np.zeros(k), 0.0, (False,) * k)
    used = sparsity or n_features
    deviation = noise_level / math.sqrt(2 * n_features)
    alone = _alone(deviation, n_features, used, groups, noise_order)
    heights = (eigenvalues - centre) * sizes
    lost = tuple(bool(gone) for gone in np.cumsum(~(heights > alone)) > 0)
    found = lost.index(True) if True in lost else k
    values, size = eigenvalues[:found], sizes[:found]
    edge = deviation * math.sqrt(2 * used)
    if identity_b:
        heights = np.maximum(heights[:found], edge)
        theta = (heights + np.sqrt(heights**2 - edge**2)) / 2
        bulk, scale = (edge / (2 * theta)) ** 2, np.full(found, deviation**2 / 2)
    else:
        scale = deviation**2 / 2 * (1 + values**2)
        bulk = squared_sine(scale * used / (max(ridge, deviation) * size * values**2))
        bulk = 1 - (1 - bulk) * (1 - np.minimum(ridge / size, 1.0))  # the ridge's part of a component is bias
    gaps = (values[:, None] - values) ** 2 * (size[:, None] * size)
    np.fill_diagonal(gaps, np.inf)
    with np.errstate(divide="ignore"):
        among = squared_sine((scale[:, None] / gaps).sum(axis=1))
    errors = np.ones(k)
    errors[:found] = 1 - (1 - bulk) * (1 - among)
    most = float(min(k, used - k))
    return Accuracy(errors, min(float(bulk.sum()) + k - found, most) if most >= 0 else 0.0, lost)


def _alone(deviation: float, d: int, used: int, groups: ReleasedGroups | None, noise_order: int) -> float:
    """Largest quotient v^T A v of unit vectors that noise alone hardly exceeds, v with ``used`` of d entries."""
    if noise_order == 2:
        assert groups is not None  # their means are what grows with the square of the noise
        reach = math.sqrt(2 * (log_supports(d, used) - math.log(FALSE_ALARM)))  # normal deviations, for each support
        noise = groups.noise.sums * (math.sqrt(used) + math.sqrt(max(groups.sums.shape[1] - 1, 1)) + reach)
        return float(noise**2 / max(groups.counts.min(), groups.noise.counts, 1 / groups.n))
    edge = deviation * semicircle_edge(used, log_supports(d, used))
    if groups is None or groups.sums.size == 0:
        return edge
    # centring: -(m e^T + e m^T) with e the noise of the mean m, an outlier of the semicircle where it is strong
    mean = float(np.linalg.norm(groups.sums.sum(axis=1)))
    tilt = mean * groups.noise.sums * math.sqrt(groups.sums.shape[1]) * (math.sqrt(used) + RANK)
    bulk = deviation * math.sqrt(2 * used)
    return max(edge, tilt + bulk**2 / (4 * tilt) + RANK * deviation) if tilt > bulk / 2 else edge


def squared_sine(squared_tangent: Matrix) -> Matrix:
    return np.asarray(1 - 1 / (1 + squared_tangent))
