"""A power method on clipped products: noise of d/(n mu) where a release has d^1.5/(n mu).

    G_t = (1/n) sum_i x_i clip(V_t^T (x_i - m))^T + Z_t,    V_{t+1} = polar(sum over s <= t of w_s (G_s - theta V_s))

A is linear, so answers are averaged, with the weights w_s = s^2 of their parts of the budget. theta, the mean of all
variances that clipping leaves, but at most half of the components', takes the others out faster. At the end, the second
moment of V^T (x - m), K x K, gives eigenvalues and turns V to their directions. Of two views (pls) each has its V.
docs/clipped-power.md says why; the proofs are in docs/mathematics.md, section 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its special functions are loaded when they are used
import scipy.linalg

from dpgep._checks import Count, Share, require_one_of
from dpgep.methods.base import Diagnostics, MethodResult, Options, method_result
from dpgep.methods.clipped_residuals import ResidualAscent, polar, require_affordable
from dpgep.methods.eigen import FALSE_ALARM, RANK, leading_first, quotient_accuracy
from dpgep.methods.papers.initial_vectors import RANDOM, first_block, given_vectors
from dpgep.models.bins import LARGEST_THRESHOLD, LEAST_THRESHOLD, PRODUCT_EDGES, norm_quantile
from dpgep.models.model import Matrix, PublicSide
from dpgep.models.moments import MomentNoise, ReleasedGroups, ReleasedMoments
from dpgep.models.row_model import RowModel
from dpgep.privacy.clipped_products import Asked, ClippedMean, ClippedMoment, Mean, NoisyMean, ProductNorms
from dpgep.privacy.curator import Curator, row_bound
from dpgep.serialization import stored_as

# Shares of mu^2: of the mean, of looks at the norms of products, of the eigenvalues.
_MEAN_SHARE, _LOOKS_SHARE, _VALUES_SHARE = 0.05, 0.02, 0.05
_GROWTH = 2  # parts of the budget, and weights of answers, grow like this power of the step's number
# No answer of a dozen steps takes less than this share of mu^2.
LEAST_SHARE = (1 - _MEAN_SHARE - _LOOKS_SHARE - _VALUES_SHARE) / sum(t**_GROWTH for t in range(1, 13))
# Noise of eigenvalues, as a part of the variance, up to which rows are clipped less after a warm start; what is seen of
# the squares of entries between V and the rest, in deviations; rows shorter than this are in the span of V.
_NOISE_OF_VALUES, _SEEN, _NOTHING = 0.005, 4.5, 1e-6
_KEPT_OF_OTHERS = 0.6  # what clipping to the median of the components leaves of other variances, about
# Products of this many thresholds are clipped for the eigenvalues: 3 deviations of normal ones from a median.
_VALUES_THRESHOLDS = 4.5


@dataclass(frozen=True, kw_only=True, eq=False)
class ClippedPowerOptions(Options):
    """Options of "clipped-power". Nothing here may be chosen by looking at the data.

    Parameters
    ----------
    n_iterations : int
        Number of steps, each a pass over the rows, for cca two; default 12.
    threshold : "auto", or float
        C as a part of the bound, from 1/128 to 1: public. "auto" buys histograms of |V^T (x - m)|, before the first
        step and half way, for 2 % of mu^2, and takes the ``quantile``. For cca: of residuals, for 6 %.
    quantile : float in (0, 1)
        Share of the people whose products are not clipped, with threshold="auto"; default 0.5.
    init : "random", or array of shape (K, d) or (d,)
        An array must be public: it must not be computed from these data outside the budget.
    """

    n_iterations: Count = 12
    threshold: Any = "auto"
    quantile: Share = 0.5
    init: Any = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.threshold, str):
            require_one_of("threshold", self.threshold, ("auto",))
        elif not (
            type(self.threshold) in (int, float, np.float64) and LEAST_THRESHOLD <= self.threshold <= LARGEST_THRESHOLD
        ):
            raise ValueError(
                f'threshold must be "auto" or a part of the bound between {LEAST_THRESHOLD:g} and '
                f"{LARGEST_THRESHOLD:g}, got {self.threshold!r}"
            )

    def check(self, public: PublicSide, k: int) -> None:
        given = given_vectors(self.init, k, public.model.n_features, RANDOM)
        if given is not None and any(np.linalg.matrix_rank(given[:, view]) < k for view in public.model.views):
            raise ValueError("init must have linearly independent rows in each view")


@stored_as("clipped power")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ClippedPowerDiagnostics(Diagnostics):
    """How the power method went; all of it follows from released numbers.

    ``noise_level`` is that of the mean of the answers that the result averages, divided by ``kept``, as if the noise
    were that of a released matrix. Variances are counted from the mean of all, as directions drawn at random tell it;
    from zero, where ``init`` was given. Errors count noise, and for pca what clipping changes in a sample of normal
    rows; the bias that it has where rows are not elliptical is not among them. For cca noise is counted as if the
    columns of a view were uncorrelated, and what the last three steps changed, if that is more.

    Attributes
    ----------
    n_iterations : number of steps.
    thresholds : C of every step, as parts of the bound; of two views, one after the other.
    kept : what clipping left of the components' variance, 0 to 1, about; for cca, the share of the people whose
        residuals were not clipped.
    unseen : the largest variance, of any direction beyond the components, that a probe before the first step cannot
        exclude, over that of the last component. Above 1 there may be a direction of few rows in its place: clipping
        weighs it down. None where there was no probe.
    """

    n_iterations: int
    thresholds: tuple[float, ...]
    kept: float
    unseen: float | None = None

    def summary(self) -> list[str]:
        n_views = len(self.thresholds) // self.n_iterations
        last = " and ".join(f"{each:.3g}" for each in self.thresholds[-n_views:])
        return [
            f"  steps        {self.n_iterations}, products clipped to {last} times the bound",
            f"  kept         {self.kept:.2g} after clipping",
            "  errors       without the bias that clipping has where rows are not elliptical",
            *([] if self.unseen is None else [f"  unseen       at most {self.unseen:.2g} times the last eigenvalue"]),
        ]


@dataclass(frozen=True, eq=False)
class Probe:
    """A release for a small part of the budget."""

    vectors: Matrix  # (K + 1, d), leading eigenvectors
    values: Matrix
    deviation: float  # of its noise, as that of `goe`
    mean: NoisyMean | None  # of the rows; None where the model does not shift them
    centre: float  # the mean of all variances
    moments: ReleasedMoments | None  # the release, where it is a matrix


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Released values that steps may begin with: at the K leading vectors of a probe."""

    probe: Probe
    look: NormHistogram  # along these vectors
    share: float  # of mu^2, that is left
    look_share: float  # that another look costs


def clipped_power(curator: Curator, n_components: int, options: ClippedPowerOptions) -> MethodResult:
    """The K leading eigenvectors of a model's pair."""
    assert isinstance(curator.model, RowModel)
    if not curator.model.traits.identity_b:
        return _correlations(curator, n_components, options)
    run = _Run(curator, options, None)
    return run.result(*run.iterate(n_components))


def resumed(curator: Curator, warm: WarmStart) -> MethodResult | None:
    """The same from a warm start; None where steps lead to less variance, by half of them, than they began at."""
    run = _Run(curator, ClippedPowerOptions(), warm)
    found = run.iterate(len(warm.probe.vectors) - 1)
    return None if run.leads_away else run.result(*found)


def _correlations(curator: Curator, n_components: int, options: ClippedPowerOptions) -> MethodResult:
    model, d = curator.model, curator.model.n_features
    share = _MEAN_SHARE * model.traits.shift_free
    start = _polar(first_block(curator, n_components, options.init), model.views)
    found = ResidualAscent(curator, start, options, 1 - share)
    mean = curator.answer(Mean(), share) if share else None
    found.run(None if mean is None else mean.values)
    level = found.deviation * math.sqrt(2 * d / max(1, options.n_iterations // 2)) / found.kept
    sizes, few = np.ones(n_components), found.n_coordinates
    accuracy = quotient_accuracy(found.values, sizes, noise_level=level, n_features=d)
    # correlations are those of few coordinates: the noise of these may produce them, too
    among_few = quotient_accuracy(
        found.values, sizes, noise_level=found.coordinate_noise * math.sqrt(2 * few), n_features=few
    )
    diagnostics = ClippedPowerDiagnostics(
        noise_level=level,
        accuracy=accuracy.worsened(np.maximum(found.moved - accuracy.errors, 0.0)).without(among_few.lost),
        n_iterations=options.n_iterations,
        thresholds=tuple(found.thresholds),
        kept=found.kept,
    )
    return method_result(model, None if mean is None else _groups(mean), found.vectors, found.values, diagnostics, ())


class _Run:
    """State of the steps: the mean, shares of the budget, and thresholds."""

    def __init__(self, curator: Curator, options: ClippedPowerOptions, warm: WarmStart | None) -> None:
        self._curator, self._options, self._warm = curator, options, warm
        # Whether a look half way found less variance than there was at the beginning, by what noise cannot explain: of
        # rows of which few have a direction. There the steps end.
        self._views, self.leads_away = curator.model.views, False
        centred, steps = curator.model.traits.shift_free and warm is None, options.n_iterations
        looks = options.threshold == "auto" and not curator.noiseless
        self._look_at = {steps // 2} | ({0} if warm is None else set()) if looks else set()
        share = warm.share if warm else 1.0
        self._each_look = warm.look_share if warm else _LOOKS_SHARE / (min(steps, 2) * len(self._views))
        bought = warm.look_share if warm else _LOOKS_SHARE * looks
        self._values_share = share * _VALUES_SHARE
        self._share = share - self._values_share - _MEAN_SHARE * centred - bought
        self._weights = np.arange(1.0, steps + 1) ** _GROWTH
        self._weights /= self._weights.sum()
        require_affordable(curator, min(self._share * float(self._weights[0]), self._values_share))
        self._mean = warm.probe.mean if warm else curator.answer(Mean(), _MEAN_SHARE) if centred else None
        threshold = LARGEST_THRESHOLD if options.threshold == "auto" else float(options.threshold)
        self._now = (warm.look.threshold if warm else threshold,) * len(self._views)
        self._thresholds: list[float] = []
        self._deviations: list[float] = []
        self._variance = 0.0  # along V, where a look has told
        # the mean of all variances, and how far noise has moved it; 0 where it is not known
        self._centre = self._centre_deviation = 0.0
        if warm is not None:
            self._centre = warm.probe.centre
            self._centre_deviation = warm.probe.deviation / math.sqrt(curator.model.n_features)
        self._n = 1

    def iterate(self, k: int) -> tuple[Matrix, Matrix]:
        """The block (K, d) after all steps, and the mean of the answers that it follows from."""
        if self._warm is None:
            start = _polar(first_block(self._curator, k, self._options.init), self._views)
        else:
            start = self._warm.probe.vectors[:k]
        vectors = start
        answers, blocks, quotients = np.zeros_like(start), np.zeros_like(start), np.zeros((k, k))
        for step, weight in enumerate(self._weights.tolist()):
            answer = self._product(vectors, step)
            if self.leads_away:
                break
            if step == 0 and self._warm is None and len(self._views) == 1 and isinstance(self._options.init, str):
                # the mean of all variances, from directions at random; of two views eigenvalues come with negatives
                left = max(0.0, float(np.vdot(start, answer)) / k)
                self._centre = variance_before_clipping(left, self._now[0] * row_bound(self._curator.facts), k)
                part = left / self._centre if left > 0 else 1.0
                self._centre_deviation = self._deviations[0] / math.sqrt(k) / part
            answers += weight * answer
            blocks += weight * vectors
            quotients += weight * (answer @ vectors.T)
            # theta: with at most half of the least quotient, no small eigenvalue becomes a large one below zero
            least = float(np.linalg.eigvalsh(quotients + quotients.T)[0]) / 2
            least /= float(self._weights[: step + 1].sum())
            shift = max(0.0, min(_KEPT_OF_OTHERS * self._centre, least / 2))
            vectors = _polar(answers - shift * blocks, self._views)
            if step == 0:  # of two views drawn at random, the first alone decides on signs and rotations
                first = slice(0, self._views[-1].start)
                vectors[:, first] = start[:, first]
        return vectors, answers

    def _product(self, vectors: Matrix, step: int) -> Matrix:
        """G_t; zero once the steps lead away."""
        asked = self._asked(vectors)
        if step in self._look_at:
            self._now = tuple(self._look(Asked(v, asked.location)) for v in np.split(asked.vectors, len(self._views)))
            if self.leads_away:
                return np.zeros_like(vectors)
        share = self._share * float(self._weights[step])
        answer = self._curator.answer(ClippedMean(asked, self._now), share, f"step {step + 1}")
        self._thresholds.extend(self._now)
        self._deviations.append(answer.deviation)
        self._n = answer.n
        return answer.values

    def _look(self, asked: Asked) -> float:
        answer = self._curator.answer(ProductNorms(asked), self._each_look)
        look = norm_histogram(answer, self._options.quantile, len(asked.vectors))
        self._variance = look.variance
        if self._warm is not None:
            before = self._warm.look
            self.leads_away = before.variance - look.variance > RANK * math.hypot(before.deviation, look.deviation)
        return look.threshold

    def result(self, vectors: Matrix, answer: Matrix) -> MethodResult:
        """Eigenvectors on the span of V, which the mean ``answer`` led to, or beside it."""
        curator, d, k, n_views = self._curator, self._curator.model.n_features, len(vectors), len(self._views)
        basis = vectors if self._warm is None else np.vstack([vectors, across(self._warm.probe.vectors, vectors)])
        limits = tuple(min(LARGEST_THRESHOLD, _VALUES_THRESHOLDS * threshold) for threshold in self._now)
        if self._warm is not None and self._variance > 0:
            # rows beside may be long: clipped as little as noise of a small part of the variance allows. A second
            # moment clipped to C has noise of sqrt(2) C^2/(n mu)
            most = math.sqrt(_NOISE_OF_VALUES * self._variance * self._n * curator.remaining / math.sqrt(2))
            limits = (min(LARGEST_THRESHOLD, max(limits[0], most)),)
        # V^T S V, for all that is left; V_x^T S V_y, of two views
        quotients = curator.answer(ClippedMoment(self._asked(basis), limits), None, "eigenvalues")
        if n_views == 1:
            axes = leading_axes(quotients, k)
        else:
            left, sizes, right = np.linalg.svd(quotients.values)
            axes = Axes(sizes, (left.T, right), np.zeros(k), np.empty(0), quotients.deviation)
        values = axes.values
        total = n_views * float(np.trace(quotients.values[:k, :k]))
        kept = float(np.clip(np.vdot(vectors, answer) / total, 2.0**-10, 1.0)) if total > 0 else 1.0
        # one entry of G has the variance of the noise; one of a noisy matrix off its diagonal, half of it. Of two views
        # a component has halves of unit length, and twice the squared length
        deviation = math.sqrt(2 / n_views) * float(np.linalg.norm(self._weights * self._deviations))
        level = deviation * math.sqrt(2 * d) / kept
        centre = self._centre
        if self._centre_deviation:  # an upper limit: noise may have lowered the mean of all variances, at most b^2/d
            most = row_bound(curator.facts) ** 2 / d
            centre = min(max(centre, 0.0) + RANK * self._centre_deviation, most)
        accuracy = quotient_accuracy(values, np.ones(k), noise_level=level, n_features=d, centre=centre)
        if level > 0:
            accuracy = accuracy.worsened(np.minimum(sampling_error(values, self._centre, kept) * d / self._n, 1.0))
        if self._warm is not None:
            accuracy = accuracy.worsened(self._error_beside(axes, level, kept))
        diagnostics = ClippedPowerDiagnostics(
            noise_level=level,
            accuracy=accuracy,
            n_iterations=self._options.n_iterations,
            thresholds=tuple(self._thresholds),
            kept=kept,
        )
        released = None if self._mean is None else _groups(self._mean)
        turned = [turn @ basis[:, view] for turn, view in zip(axes.rotations, self._views, strict=True)]
        return method_result(curator.model, released, np.hstack(turned), values, diagnostics, ())

    def _error_beside(self, axes: Axes, level: float, kept: float) -> Matrix:
        """(K,), squared sines: of parts that come from beside V, and of mixing with what is there."""
        assert self._warm is not None
        least = 1e-6 * level  # far within the noise
        theta = np.maximum(axes.values - self._centre, least)
        # eigenvectors of the probe have squared sines of (edge/(2 theta))^2
        edge = self._warm.probe.deviation * math.sqrt(2 * self._curator.model.n_features)
        coarse = axes.beside * np.minimum(edge / (2 * theta), 1.0) ** 2
        gaps = np.maximum(axes.values[:, None] - axes.others, least)
        products = np.maximum(axes.values, 0.0)[:, None] * np.maximum(axes.others, 0.0)
        variances = level**2 / (4 * self._curator.model.n_features) + products * changed_by_clipping(kept) / self._n
        # what exceeds this is seen, and turned
        variances = np.minimum(variances, _SEEN * axes.deviation**2)
        return np.asarray(np.minimum(coarse + (1 - 1 / (1 + (variances / gaps**2).sum(axis=1))), 1.0))

    def _asked(self, vectors: Matrix) -> Asked:
        k = len(vectors)
        apart = np.zeros((k * len(self._views), vectors.shape[1]))
        for number, view in enumerate(self._views):
            apart[number * k : (number + 1) * k, view] = vectors[:, view]
        return Asked(apart, None if self._mean is None else self._mean.values)


@dataclass(frozen=True, eq=False)
class Axes:
    """The leading directions in the span of a basis whose first K rows are V."""

    values: Matrix  # (K,), descending
    rotations: tuple[Matrix, ...]  # one (K, m) for each view
    beside: Matrix  # (K,), squared lengths beyond V
    others: Matrix  # eigenvalues of the rest
    deviation: float  # of the noise in an entry of the second moment


def leading_axes(quotients: NoisyMean, k: int) -> Axes:
    """The axes of V itself, unless noise cannot explain its second moment with the rest of the basis.

    That is: one of the entries between them, all together, or more variance in the rest than in V, at 1/200 each.
    """
    moment = (quotients.values + quotients.values.T) / 2
    m, deviation = len(moment), quotients.deviation
    values, rotation = leading_first(moment[:k, :k])
    if m == k:
        return Axes(values, (rotation.T,), np.zeros(k), np.empty(0), deviation)
    others, _ = leading_first(moment[k:, k:])
    n_between = k * (m - k)
    between = float(np.sum(moment[:k, k:] ** 2)) > scipy.special.chdtri(n_between, FALSE_ALARM) * deviation**2 / 2
    if not between and others[0] - values[-1] <= RANK * math.sqrt(2) * deviation:
        turned = np.zeros((k, m))
        turned[:, :k] = rotation.T
        return Axes(values, (turned,), np.zeros(k), others, deviation)
    whole, rotation = leading_first(moment)
    leading = rotation[:, :k].T
    return Axes(whole[:k], (leading,), (leading[:, k:] ** 2).sum(axis=1), whole[k:], deviation)


def across(rows: Matrix, vectors: Matrix) -> Matrix:
    """Orthonormal rows that span what ``rows`` have across orthonormal ``vectors``."""
    rest = rows - rows @ vectors.T @ vectors
    rest -= rest @ vectors.T @ vectors
    _, sizes, right = np.linalg.svd(rest, full_matrices=False)
    return np.ascontiguousarray(right[sizes > _NOTHING])


def _polar(block: Matrix, views: list[slice]) -> Matrix:
    """The block (K, d) whose rows are, in each view, the orthonormal ones nearest to the rows of ``block``."""
    return np.hstack([polar(block[:, view]) for view in views])


def _groups(mean: NoisyMean) -> ReleasedGroups:
    noise = MomentNoise(0.0, mean.deviation, 0.0)
    return ReleasedGroups(sums=mean.values[:, None], counts=np.ones(1), n=float(mean.n), noise=noise)


@dataclass(frozen=True)
class NormHistogram:
    """Facts about |V^T (x - m)| from a histogram, in bounds, V with K directions; for any law of the rows."""

    threshold: float  # C, a quantile
    variance: float  # E |V^T (x - m)|^2
    deviation: float  # of its noise
    kept: float  # E |V^T (x - m)| min(|V^T (x - m)|, C)
    # What clipping leaves of a variance across V: all within the ball, beyond it all but the direction to its middle, a
    # K-th, times C over the norm.
    across: float


def norm_histogram(answer: NoisyMean, quantile: float, k: int) -> NormHistogram:
    """From the released shares of people between `PRODUCT_EDGES`."""
    threshold, shares = norm_quantile(answer.values, quantile), answer.values
    norms = np.concatenate([[PRODUCT_EDGES[0] / 2], np.sqrt(PRODUCT_EDGES[1:] * PRODUCT_EDGES[:-1]), [1.0]])
    shrunk, squares = np.minimum(1.0, threshold / norms), norms**2
    return NormHistogram(
        threshold,
        variance=float(shares @ squares),
        deviation=answer.deviation * float(np.linalg.norm(squares)),
        kept=float(shares @ (squares * shrunk)),
        across=float(shares @ np.where(shrunk < 1, shrunk * (1 - 1 / k), 1.0)),
    )


def variance_before_clipping(left: float, threshold: float, k: int) -> float:
    """The variance of k normal entries p with E |p| min(|p|, C)/k = ``left``: a fixed point of left/(part kept)."""
    variance = left
    for _ in range(60 if left > 0 else 0):  # each halves the error, or more
        variance = left / kept_of_normal(threshold**2 / variance, k)
    return variance


def kept_of_normal(squared_threshold: float, k: int) -> float:
    """E |z| min(|z|, C)/k for z with k standard normal entries."""
    special, half = scipy.special, squared_threshold / 2
    mean = math.sqrt(2) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
    beyond = math.sqrt(squared_threshold) * mean * special.gammaincc((k + 1) / 2, half) / k
    return float(special.gammainc(k / 2 + 1, half) + beyond)


def changed_by_clipping(kept: float) -> float:
    """Times v w/(n (v - w)^2), how far an eigenvector moves towards another, a squared sine, when products of n normal
    rows are clipped, v and w the eigenvalues: E clip(z)^2/kept^2 - 1 with kept = P(|z| <= a) for a standard normal z
    that is clipped to a (docs/mathematics.md, section 11).
    """
    if kept >= 1:
        return 0.0
    a = float(scipy.special.ndtri((1 + kept) / 2))
    square = kept - a * math.sqrt(2 / math.pi) * math.exp(-a * a / 2) + a * a * (1 - kept)
    return square / kept**2 - 1


def sampling_error(values: Matrix, centre: float, kept: float) -> Matrix:
    """n/d times the squared sines that `changed_by_clipping` tells of eigenvectors, all others of eigenvalue c."""
    gaps = np.maximum(values - centre, 1e-3 * abs(centre))  # components that do not stand out are lost
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = centre * np.maximum(values, 0.0) / gaps**2 * changed_by_clipping(kept)
    return np.asarray(np.where(centre > 0, errors, 0.0))
