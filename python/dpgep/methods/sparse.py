"""Sparse leading eigenvectors of a released pair: a search over supports, and a support size from the known noise.

Everything here is post-processing of released matrices, so the search may take as many starts as it likes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy  # its special functions and sparse solvers are loaded when they are used
import scipy.linalg

from dpgep._checks import require_share, whole_number
from dpgep.methods.base import Sparsity, oriented, require_in_views
from dpgep.methods.eigen import check_pair, embedded, log_supports, positive_part
from dpgep.methods.exchange import Candidate, Size, Support, exchanged, largest_of, row_norms
from dpgep.methods.papers.fantope import fantope_relaxation, leading_vectors
from dpgep.methods.ridge import public_ridge
from dpgep.models.model import Matrix, MatrixPencil

# (vectors (m, d), values (m,)) -> (m, d), see sparse_eigenvectors
ResidualDeviation: TypeAlias = Callable[[Matrix, Matrix], Matrix]

COLUMN_STARTS = 24
PAIR_STARTS = 12
FLOW_STEPS = 20
# Flow results that the local search goes on with (fewer where only a first guess is needed); coordinates that it tries
# to add one at a time (more where k is small).
POLISHED = 12
POLISHED_GUESSES = 2
TRIED = 4
SMALL = 100
GAIN = 1e-12  # an exchange helps where the objective gains this part of itself; less may be rounding
# The Fantope relaxation sees this many screened coordinates, and this gap is enough for a start.
SCREENED = 100
FANTOPE_TOLERANCE = 1e-2
FANTOPE_ITERATIONS = 60
# sparsity="auto": probability that pure noise passes for signal; the largest support searched for, unless the evidence
# falls to this share of its maximum before; the largest support kept.
FALSE_ALARM = 1e-3
LARGEST_SEARCHED = 64
FALLING = 0.9
LARGEST_SUPPORT = 256
FIXED_POINT_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class SparseFit:
    """Sparse vectors and how they were found."""

    vectors: Matrix  # (K, d) unit rows, zero off their supports, largest entry positive
    eigenvalues: Matrix  # (K,), v^T A v / v^T B v of each, B with the ridge
    supports: tuple[Support, ...]  # K sorted index arrays, the same one K times unless they are separate
    objective: float  # sum of the eigenvalues
    significant: tuple[bool, ...] | None  # whether each stands out of the noise; None where the sparsity was given


def sparse_eigenvectors(
    a: Matrix,
    b: Matrix | None,
    sparsity: Sparsity,
    n_components: int = 1,
    *,
    ridge: float = 0.0,
    separate_supports: bool = False,
    residual_deviation: ResidualDeviation | None = None,
    level: float = 0.001,
    views: Sequence[slice] = (),
) -> SparseFit:
    """Maximize the sum of the K leading generalized eigenvalues of (A_SS, B_SS) over supports S of k coordinates.

    The problem is NP-hard; this is a search: the truncated Rayleigh flow (Hu et al., Algorithm 3; Tan et al. 2018) from
    many starts, then exact eigenvectors on the support, and exchanges of coordinates until none helps. The best was the
    best of all supports in every case enumerated (d = 12, k = 3; tests), but nothing guarantees that.

    ``sparsity="auto"`` chooses the support from the known noise. Coordinate j is tested by its residual
    r_j = e_j^T (A - rho B) v_{-j}, v_{-j} being v without its j-th entry: where the noiseless pair does not connect j
    with the others, r_j is noise of known deviation. Coordinates are kept by the procedure of Benjamini and Hochberg
    at ``level``, the vector is fitted again on them, and so on to a fixed point. With K > 1 a coordinate counts if any
    component's test rejects (p-values times the number of components tested).

    Guaranteed: on pure noise (B = I, A diagonal plus GOE noise) a component is ``significant`` with probability at
    most FALSE_ALARM, whatever the search does (`_strengths`). Heuristic: the false discovery rate among coordinates, as
    v was fitted to the same noise; the rate is close to the level once a component is significant (tests measure it).
    For B other than the identity the guarantee, too, is approximate: rho and the fit depend on the noise in B.

    Where no component is significant, the answer is the K coordinates with the largest a_jj / b_jj. A vector with one
    coordinate never is: its evidence is on the diagonal, which is not tested.

    With ``separate_supports`` each component has a support of its own, found after projecting the earlier ones out of
    A: P^T A P with P = I - v v^T B, v^T B v = 1 (Mackey 2008). Such components are not exactly B-orthogonal, and with
    "auto" the tests take the noise of the deflated A for that of A.

    A and B (None: the identity) are symmetric (not checked); ``ridge``, public, times the identity is added to B,
    which need be positive definite on the supports met alone. ``sparsity``: k, between K (1 with separate supports) and
    d, or this many of each of the ``views``, parts of the coordinates side by side. ``residual_deviation``, for "auto",
    maps (vectors (m, d), values (m,)) to the (m, d) deviations of e_j^T (dA - rho_i dB) v_i, dA and dB being the noise.

    Raises
    ------
    ValueError : arguments outside these ranges.
    numpy.linalg.LinAlgError : B + ridge I is not positive definite on some support: pass a larger ridge.
    """
    check_pair(a, b, n_components, ridge)
    least, d = 1 if separate_supports else n_components, len(a)
    if isinstance(sparsity, tuple):
        require_in_views(sparsity, [view.stop - view.start for view in views], least)
    elif sparsity != "auto" and not least <= (whole_number(sparsity) or 0) <= d:
        raise ValueError(f'sparsity must be "auto" or a whole number between {least} and d = {d}, got {sparsity!r}')
    require_share("level", level)
    if sparsity == "auto" and residual_deviation is None:
        raise ValueError('sparsity="auto" needs residual_deviation: the noise determines which coordinates stand out')

    def fit(pair: _Pair, k: int) -> _Found:
        if sparsity != "auto":
            return _search(pair, Size.of(sparsity, views), k), None
        assert residual_deviation is not None
        return _select(pair, k, residual_deviation, level)

    pair = _Pair(a, b, ridge)
    if not separate_supports:
        return _result(pair, [fit(pair, n_components)])
    deflated = _Pair(a.copy() if n_components > 1 else a, b, ridge)
    found = []
    for component in range(n_components):
        found.append(fit(deflated, 1))
        if component + 1 < n_components:
            deflated.deflate(found[-1][0])
    return _result(pair, found)


def sparse_solution(
    pair: MatrixPencil, sparsity: Sparsity, n_components: int, *, ridge: float, **options: Any
) -> SparseFit:
    """`sparse_eigenvectors` of a released pair, whose noisy B need not be positive definite on every support."""
    try:
        return sparse_eigenvectors(pair.a, pair.b, sparsity, n_components, ridge=ridge, **options)
    except np.linalg.LinAlgError:  # its positive part, with at least the public ridge: the answer is paid for
        if pair.b is None:
            raise
        least, b = max(ridge, public_ridge(pair.noise_level), pair.rounding), positive_part(pair.b.copy())
        return sparse_eigenvectors(pair.a, b, sparsity, n_components, ridge=least, **options)


# the best support, and whether each component on it stands out of the noise; None where that was not asked
_Found: TypeAlias = tuple[Candidate, tuple[bool, ...] | None]


class _Pair:
    """A and B + ridge I, seen through rows and principal submatrices: k d work for a product with a k-sparse vector."""

    def __init__(self, a: Matrix, b: Matrix | None, ridge: float) -> None:
        self.a, self.b, self.ridge = a, b, ridge
        self.diagonal_a = np.diagonal(a).copy()
        self.diagonal_b = np.ones(len(a)) if b is None else np.diagonal(b) + ridge
        if not (self.diagonal_b > 0).all():
            raise np.linalg.LinAlgError(
                f"B + ridge I is not positive definite (diagonal {self.diagonal_b.min():.3g}): pass a larger ridge"
            )
        self.roots_b = np.sqrt(self.diagonal_b)
        self._solved: dict[tuple[bytes, int], Candidate] = {}  # searches from many starts meet in few supports

    def __len__(self) -> int:
        return len(self.a)

    def scales(self, support: Support) -> Matrix:
        return np.asarray(self.roots_b[support])

    def promising(self, found: Candidate) -> Support:
        """Coordinates off the support, by what adding one would gain.

        With residual g and shortfall s = rho - a_jj / b_jj, the 2 x 2 problem on (v, e_j) has the leading eigenvalue
        rho + (sqrt(s^2 + 4 g^2 / b_jj) - s) / 2 where B does not couple them.
        """
        residuals = self.residuals(found)
        shortfall = found.values[:, None] - self.diagonal_a / self.diagonal_b
        gains = (np.sqrt(shortfall**2 + 4 * residuals**2 / self.diagonal_b) - shortfall).sum(axis=0)
        gains[found.support] = -np.inf
        k, d = len(found.support), len(self)
        count = min(max(k, self.n_singles(k)), d - k)
        best = largest_of(gains, count)
        return best[np.argsort(-gains[best], kind="stable")]

    def n_singles(self, k: int) -> int:
        """All of them where d and k are small."""
        return max(TRIED, SMALL // k)

    def eigenpairs(self, support: Support, n_components: int) -> Candidate:
        asked = support.tobytes(), n_components
        if asked not in self._solved:
            block, leading = (support[:, None], support), slice(None, -n_components - 1, -1)
            if self.b is None:
                values, vectors = np.linalg.eigh(self.a[block])
            else:
                b = self.b[block]
                b.flat[:: len(b) + 1] += self.ridge
                try:
                    values, vectors = scipy.linalg.eigh(
                        self.a[block], b, overwrite_a=True, overwrite_b=True, driver="gvd"
                    )
                except np.linalg.LinAlgError:
                    raise np.linalg.LinAlgError(
                        "B + ridge I is not positive definite on a support: pass a larger ridge"
                    ) from None
            self._solved[asked] = Candidate(support, values[leading], vectors[:, leading].copy())
        return self._solved[asked]

    def times(self, support: Support, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """A V and (B + ridge I) V, (K, d) each, for vectors (k, K) on the support."""
        of_a = np.asarray(vectors.T @ self.a[support])
        if self.b is None:
            return of_a, embedded(vectors.T, support, len(self))
        of_b = np.asarray(vectors.T @ self.b[support])
        of_b[:, support] += self.ridge * vectors.T
        return of_a, of_b

    def residuals(self, candidate: Candidate) -> Matrix:
        """(A - rho_i B) v_i, (K, d)."""
        av, bv = self.times(candidate.support, candidate.vectors)
        return av - candidate.values[:, None] * bv

    def deflate(self, candidate: Candidate) -> None:
        (av,), (bv,) = self.times(candidate.support, candidate.vectors)
        half = av - candidate.values[0] / 2 * bv
        self.a -= np.outer(half, bv)
        self.a -= np.outer(bv, half)
        self.diagonal_a = np.diagonal(self.a).copy()
        self._solved.clear()


def _search(
    pair: _Pair, size: Size, n_components: int, extra: Iterable[Support] = (), polished: int = POLISHED
) -> Candidate:
    starts = {start.tobytes(): start for start in map(np.sort, [*_starts(pair, size, n_components), *extra])}
    reached = _distinct(_flow(pair, pair.eigenpairs(start, n_components), size) for start in starts.values())
    improved = _distinct(exchanged(pair, candidate, size, gain=GAIN)[0] for candidate in reached[:polished])
    return max([*improved, *reached[polished:]], key=lambda candidate: candidate.objective)


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """One candidate for each support, best first."""
    unique = {candidate.support.tobytes(): candidate for candidate in candidates}
    return sorted(unique.values(), key=lambda candidate: -candidate.objective)


def _starts(pair: _Pair, size: Size, n_components: int) -> Iterator[Support]:
    yield size.largest(pair.diagonal_a / pair.diagonal_b)
    if size.k == len(pair):
        return
    roots = pair.roots_b
    sizes = np.abs(pair.a)
    if pair.b is not None:
        sizes /= roots
        sizes /= roots[:, None]
    np.fill_diagonal(sizes, 0.0)
    others = max(size.k - 1, 1)
    tops = np.partition(sizes, len(pair) - others, axis=1)[:, len(pair) - others :]
    scores = np.einsum("ij,ij->i", tops, tops)
    ranking = np.argsort(-scores, kind="stable")
    for j in ranking[:COLUMN_STARTS]:
        yield size.largest_with(sizes[j], j)
    for i in np.argsort(-tops.max(axis=1), kind="stable")[:PAIR_STARTS]:
        j = int(sizes[i].argmax())
        together = np.abs(pair.a[i] + math.copysign(1.0, pair.a[i, j]) * pair.a[j]) / roots
        together[[i, j]] = np.inf
        yield size.largest(together)
    yield size.largest(row_norms(_leading(pair, n_components, ranking[0])))
    # the support of the Fantope relaxation on screened coordinates, penalized down to about k^2 entries
    screened = np.sort(ranking[: max(SCREENED, 2 * size.k)])
    block, roots = np.ix_(screened, screened), roots[screened]
    entries = np.sort(sizes[block], axis=None)
    penalty = float(entries[-min(size.k**2, len(entries))])
    scaled, most = pair.a[block] / roots / roots[:, None], FANTOPE_ITERATIONS
    fit = fantope_relaxation(scaled, None, n_components, penalty, tolerance=FANTOPE_TOLERANCE, max_iterations=most)
    yield size.largest_among(screened, row_norms(leading_vectors(fit.feasible, n_components).T))


def _leading(pair: _Pair, n_components: int, column: np.intp) -> Matrix:
    """Roughly the leading eigenvectors (d, K) of A scaled to a unit diagonal of B."""
    d, roots = len(pair), pair.roots_b
    if d <= SCREENED:
        scaled = pair.a / roots / roots[:, None]
        return np.asarray(scipy.linalg.eigh(scaled, driver="evd")[1][:, -n_components:])
    operator = scipy.sparse.linalg.LinearOperator(
        (d, d), matvec=lambda v: pair.a @ (v.ravel() / roots) / roots, dtype=np.float64
    )
    # a column of A: the start must turn with the coordinates' order and signs, or the answer would not
    start = pair.a[column] / roots
    try:
        return np.asarray(scipy.sparse.linalg.eigsh(operator, n_components, which="LA", v0=start, tol=1e-2)[1])
    except scipy.sparse.linalg.ArpackNoConvergence:
        return np.asarray(start[:, None])


def _flow(pair: _Pair, candidate: Candidate, size: Size) -> Candidate:
    """The truncated Rayleigh flow until its support stays, then exact eigenvectors on it."""
    support, vectors = candidate.support, candidate.vectors
    for _ in range(FLOW_STEPS):
        previous = support
        support, vectors = _flow_step(pair, support, vectors, size)
        if np.array_equal(support, previous):
            break
    flowed = pair.eigenpairs(support, candidate.vectors.shape[1])
    return candidate if len(candidate.support) == size.k and candidate.objective >= flowed.objective else flowed


def _flow_step(pair: _Pair, support: Support, vectors: Matrix, size: Size) -> tuple[Support, Matrix]:
    """V + eta (A V / |rho| - sign(rho) B V), truncated to this many rows and orthonormalized.

    In coordinates in which B has a unit diagonal, eta = 1/2 over a bound of the norm of B on the support. |rho|, not
    rho: a negative quotient must not turn ascent into descent.
    """
    av, bv = pair.times(support, vectors)
    roots = pair.roots_b
    norms = np.einsum("ik,ki->i", bv[:, support], vectors)
    rho = np.einsum("ik,ki->i", av[:, support], vectors) / norms
    step = 0.5
    if pair.b is not None:
        correlations = np.abs(pair.b[np.ix_(support, support)]) / roots[support] / roots[support][:, None]
        step /= max(1.0, float(correlations.sum(axis=1).max()))
    # a support inside one of two views has rho = 0: then A v leads, not a division by it
    reach = row_norms(av) / row_norms(bv)
    quotient = np.maximum(np.abs(rho), np.maximum(1e-3 * reach, np.finfo(float).tiny))[:, None]
    moved = step * (av - rho[:, None] * bv) / quotient / roots
    moved[:, support] += vectors.T * roots[support]
    support = np.sort(size.largest(row_norms(moved.T)))
    truncated = moved[:, support].T
    if truncated.shape[1] > 1:
        truncated = np.linalg.qr(truncated)[0]
    return support, truncated / np.linalg.norm(truncated, axis=0) / roots[support][:, None]


def _select(pair: _Pair, n_components: int, deviation: ResidualDeviation, level: float) -> _Found:
    d = len(pair)
    found, strength = None, 0.0
    best: tuple[Support, ...] = ()
    largest = min(d, max(LARGEST_SEARCHED, n_components))
    doubled = (max(2, n_components) << i for i in itertools.count())
    for k in [*itertools.takewhile(lambda k: k < largest, doubled), largest]:
        rung = _search(pair, Size(k), n_components, best, POLISHED_GUESSES)
        best = (rung.support,)  # the flow of the next rung lets it grow
        rung_strength = float(_strengths(pair, rung, deviation).max())
        if rung_strength > strength:
            found, strength = rung, rung_strength
        elif strength > 1 and rung_strength < FALLING * strength:
            break
    if found is not None and strength > 1:
        candidate = _fixed_point(pair, found, deviation, level)
        significant = _strengths(pair, candidate, deviation) > 1
        if significant.any():
            return candidate, tuple(map(bool, significant))
    nothing = np.sort(largest_of(pair.diagonal_a / pair.diagonal_b, n_components))
    return pair.eigenpairs(nothing, n_components), (False,) * n_components


def _fixed_point(pair: _Pair, candidate: Candidate, deviation: ResidualDeviation, level: float) -> Candidate:
    n_components, seen = candidate.vectors.shape[1], set()
    for _ in range(FIXED_POINT_ROUNDS):
        seen.add(candidate.support.tobytes())
        voters = _strengths(pair, candidate, deviation) > 1
        residuals, deviations = _left_out(pair, candidate, deviation)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.where(residuals == 0, 0.0, np.abs(residuals) / deviations)[voters]
        # the smallest over the significant components, times their number
        tails = scipy.special.erfc(scores.max(axis=0, initial=0.0) / math.sqrt(2))
        p_values = np.minimum(len(scores) * tails, 1.0) if len(scores) else np.ones(len(pair))
        # Benjamini and Hochberg: the r smallest p-values, r the largest with p_(r) <= level r / d
        order = np.argsort(p_values, kind="stable")
        below = np.flatnonzero(p_values[order] <= level * np.arange(1, len(order) + 1) / len(order))
        count = min(below[-1] + 1 if len(below) else 0, LARGEST_SUPPORT)
        kept = np.sort(order[: max(count, n_components)])
        if len(kept) < n_components:
            break
        candidate = pair.eigenpairs(kept, n_components)
        if candidate.support.tobytes() in seen:
            break
    return candidate


def _left_out(pair: _Pair, candidate: Candidate, deviation: ResidualDeviation) -> tuple[Matrix, Matrix]:
    """r_j = e_j^T (A - rho_i B) v_{i,-j} and its deviation, both (K, d). Zero where it is rounding."""
    support, values = candidate.support, candidate.values
    residuals = pair.residuals(candidate)
    entries = candidate.vectors.T
    own = (pair.diagonal_a[support] - values[:, None] * pair.diagonal_b[support]) * entries
    residuals[:, support] = -own  # on the support (A - rho B) v is zero up to rounding
    rounding = 1e-13 * (np.abs(values) * np.sqrt((entries**2).sum(axis=1)))[:, None] * pair.diagonal_b
    residuals[np.abs(residuals) <= rounding] = 0.0
    dense = candidate.full_rows(len(pair))
    deviations = deviation(dense, values)
    for i, value in enumerate(values):
        without = np.repeat(dense[i : i + 1], len(support), axis=0)
        rows = np.arange(len(support))
        without[rows, support] = 0.0
        deviations[i, support] = deviation(without, np.full(len(support), value))[rows, support]
    return residuals, deviations


def _strengths(pair: _Pair, candidate: Candidate, deviation: ResidualDeviation) -> Matrix:
    """(K,), each component's evidence over what pure noise could reach; more than 1 is significant.

    The evidence is sum_j v_j r_j, the quadratic form of v without its diagonal terms. For GOE noise of diagonal
    deviation s on k coordinates its supremum over unit v has a mean of at most s sqrt(2 k) and is Lipschitz with
    constant s, so all supports of all sizes together exceed s (sqrt(2 k) + sqrt(2 log(C(d, k) k (k + 1) / alpha)))
    with probability at most alpha.
    """
    k, d = len(candidate.support), len(pair)
    residuals, deviations = _left_out(pair, candidate, deviation)
    entries = candidate.vectors.T
    evidence = (entries * residuals[:, candidate.support]).sum(axis=1)
    lengths = np.sqrt((entries**2).sum(axis=1))
    rest = np.sqrt(np.maximum(lengths[:, None] ** 2 - entries**2, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(rest > 0, deviations[:, candidate.support] / rest, 0.0)
    noise = math.sqrt(2) * ratios.max(axis=1) * lengths**2
    reach = math.sqrt(2 * k) + math.sqrt(2 * (log_supports(d, k) + math.log(k * (k + 1) / FALSE_ALARM)))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(evidence > 0, evidence / (noise * reach), 0.0)


def _result(pair: _Pair, found: list[_Found]) -> SparseFit:
    rows, values, supports = [], [], []
    for candidate, _ in found:
        # quotients of the pair itself: a deflated A has others
        columns = candidate.vectors
        av, bv = (product[:, candidate.support] for product in pair.times(candidate.support, columns))
        values.append(np.einsum("ik,ki->i", av, columns) / np.einsum("ik,ki->i", bv, columns))
        rows.append(embedded(oriented(columns.T), candidate.support, len(pair)))
        supports += [candidate.support] * columns.shape[1]
    eigenvalues, significant = np.concatenate(values), [each for _, each in found]
    flags = None if None in significant else tuple(s for group in significant if group for s in group)
    return SparseFit(np.concatenate(rows), eigenvalues, tuple(supports), float(eigenvalues.sum()), flags)
