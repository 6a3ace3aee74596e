"""A power method on clipped products: noise of d/(n mu) where a release has d^1.5/(n mu).

    G_t = (1/n) sum_i x_i clip(V_t^T (x_i - m))^T + Z_t,    V_{t+1} = polar(sum over s <= t of w_s (G_s - theta V_s))

clip(p) shrinks p to a norm of C where it is longer. A person moves a sum by at most 2 b C, b the bound on |x|, not by
the b^2 of a product: where variance is spread over many directions, |V^T x| is much shorter than |x|, and C is its
median, bought from the same budget. If rows are elliptical about m, clipping changes no eigenvector: the mean of
x clip(v^T (x - m)) is a multiple of S v for eigenvectors v, and there signal falls more slowly than noise as C falls.
For other rows it is a bias. A is linear: answers are averaged, with the weights w_s = s^2 of their parts of the budget,
so that noise is as little as if all of it had gone to one answer, and early blocks, which are far off, count for
little. theta, the mean of all variances that clipping leaves, but at most half of the components', takes the others
out faster. At the end, the second moment of V^T (x - m), K x K, gives eigenvalues and turns V to their directions.

Of two views (pls) each has its V, and a step multiplies x by the products of y and y by those of x. That is one answer,
which a person moves by no more than a sum over rows of one view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # its special functions are loaded when they are used
import scipy.linalg

from dpgep._checks import require_count, require_each, require_one_of, require_share
from dpgep.methods.clipped_residuals import ResidualAscent, polar, require_affordable
from dpgep.methods.papers.initial_vectors import given_vectors
from dpgep.methods.quotient_accuracy import quotient_accuracy
from dpgep.methods.result import Diagnostics, MethodResult, method_result
from dpgep.models.bins import LARGEST_THRESHOLD, LEAST_THRESHOLD, norm_quantile
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentModel, MomentNoise, ReleasedGroups
from dpgep.privacy.clipped_products import Asked, NoisyMean
from dpgep.privacy.curator import Curator, PublicSide

# Shares of mu^2: of the mean, of looks at the norms of products, of the eigenvalues.
_MEAN_SHARE, _LOOKS_SHARE, _VALUES_SHARE = 0.05, 0.02, 0.05
# Parts of the budget, and weights of answers, grow like this power of the step's number.
_GROWTH = 2
# No answer of a dozen steps takes less than this share of mu^2.
LEAST_SHARE = (1 - _MEAN_SHARE - _LOOKS_SHARE - _VALUES_SHARE) / sum(t**_GROWTH for t in range(1, 13))
# What clipping to the median of the components leaves of other variances, about.
_KEPT_OF_OTHERS = 0.6
# Products of so many thresholds are clipped for the eigenvalues: 4 deviations of normal ones from a median.
_VALUES_THRESHOLDS = 6.0
# What init may be beside an array.
_KINDS = ("random",)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClippedPowerOptions:
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

    n_iterations: int = 12
    threshold: Any = "auto"
    quantile: float = 0.5
    init: Any = "random"

    def __post_init__(self) -> None:
        require_count("n_iterations", self.n_iterations)
        require_each(require_share, self, "quantile")
        if isinstance(self.threshold, str):
            require_one_of("threshold", self.threshold, ("auto",))
        elif not (
            type(self.threshold) in (int, float, np.float64) and LEAST_THRESHOLD <= self.threshold <= LARGEST_THRESHOLD
        ):
            raise ValueError(
                f'threshold must be "auto" or a part of the bound between {LEAST_THRESHOLD:g} and '
                f"{LARGEST_THRESHOLD:g}, got {self.threshold!r}"
            )
        if isinstance(self.init, str):
            require_one_of("init", self.init, _KINDS)

    def check(self, public: PublicSide, k: int) -> None:
        """What depends on the problem. Raises before anything is released."""
        if not public.model.has_clipped_products:
            raise ValueError(
                f"clipped-power is for cca, pls, and pca without standardize: what clipped products change is not "
                f'proved for {public.model.name}; use method="release"'
            )
        if not public.facts.n_is_public:
            raise ValueError(
                "clipped-power divides by a public number of people: give public_n to the problem (it need not be "
                "exact)"
            )
        if not isinstance(self.init, str):
            vectors = given_vectors(self.init, k, public.model.n_features, _KINDS)
            if any(np.linalg.matrix_rank(part) < k for part in public.model.views_of(vectors)):
                raise ValueError("init must have linearly independent rows in each view")


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
            "  errors       of noise alone: where rows are not elliptical, clipping adds a bias",
            *([] if self.unseen is None else [f"  unseen       at most {self.unseen:.2g} times the last eigenvalue"]),
        ]


@dataclass(frozen=True, eq=False)
class Begun:
    """What is known before the first step, and paid for.

    Attributes
    ----------
    vectors : (K, d), orthonormal rows to begin at.
    threshold : C, in bounds.
    mean : of the rows; None where the model does not shift them.
    centre : the mean of all variances.
    share : the part of mu^2 that is left.
    """

    vectors: Matrix
    threshold: float
    mean: NoisyMean | None
    centre: float
    share: float


def clipped_power(
    curator: Curator, n_components: int, options: ClippedPowerOptions, begun: Begun | None = None
) -> MethodResult:
    """The K leading eigenvectors of a model's pair."""
    assert isinstance(curator.model, MomentModel)
    if not curator.model.identity_b:
        return _correlations(curator, n_components, options)
    run = _Run(curator, options, begun)
    return run.result(*run.iterate(n_components))


def _correlations(curator: Curator, n_components: int, options: ClippedPowerOptions) -> MethodResult:
    """Canonical pairs."""
    model, d = curator.model, curator.model.n_features
    share = _MEAN_SHARE * model.shift_free
    ascent = ResidualAscent(
        curator,
        _start(curator, n_components, options.init),
        n_iterations=options.n_iterations,
        threshold=None if isinstance(options.threshold, str) else float(options.threshold),
        quantile=options.quantile,
        share=1 - share,
    )
    mean = curator.mean(share) if share else None
    found = ascent.run(None if mean is None else mean.values)
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
        thresholds=found.thresholds,
        kept=found.kept,
    )
    return method_result(model, None if mean is None else _groups(mean), found.vectors, found.values, diagnostics, ())


class _Run:
    """What the steps share: the mean, shares of the budget, and thresholds.

    ``_centre``: the mean of all variances; 0 where it is not known.
    """

    def __init__(self, curator: Curator, options: ClippedPowerOptions, begun: Begun | None) -> None:
        self._curator, self._options, self._begun = curator, options, begun
        self._views, self._centre = curator.model.views, 0.0
        centred, steps = curator.model.shift_free and begun is None, options.n_iterations
        looks = options.threshold == "auto" and not curator.noiseless
        self._look_at = {steps // 2} | ({0} if begun is None else set()) if looks else set()
        share = 1.0 if begun is None else begun.share
        self._each_look = share * _LOOKS_SHARE / (min(steps, 2) * len(self._views))
        self._share = share * (1 - _VALUES_SHARE - _MEAN_SHARE * centred - _LOOKS_SHARE * looks)
        self._weights = np.arange(1.0, steps + 1) ** _GROWTH
        self._weights /= self._weights.sum()
        require_affordable(curator, min(self._share * float(self._weights[0]), share * _VALUES_SHARE))
        self._mean = begun.mean if begun else curator.mean(share * _MEAN_SHARE) if centred else None
        threshold = LARGEST_THRESHOLD if options.threshold == "auto" else float(options.threshold)
        self._now = (begun.threshold if begun else threshold,) * len(self._views)
        self._thresholds: list[float] = []
        self._deviations: list[float] = []
        self._n = 1

    def iterate(self, k: int) -> tuple[Matrix, Matrix]:
        """The block (K, d) after all steps, and the mean of the answers that it follows from."""
        begun = self._begun
        start = vectors = _start(self._curator, k, self._options.init) if begun is None else begun.vectors
        answers, blocks, quotients = np.zeros_like(start), np.zeros_like(start), np.zeros((k, k))
        for step, weight in enumerate(self._weights.tolist()):
            answer = self._product(vectors, step)
            if step == 0:
                self._centre = self._centre_of(start, answer)
            answers += weight * answer
            blocks += weight * vectors
            quotients += weight * (answer @ vectors.T)
            shift = self._shift(quotients, float(self._weights[: step + 1].sum()))
            vectors = _polar(answers - shift * blocks, self._views)
            if step == 0:  # of two views drawn at random, the first alone decides on signs and rotations
                first = slice(0, self._views[-1].start)
                vectors[:, first] = start[:, first]
        return vectors, answers

    def _centre_of(self, start: Matrix, answer: Matrix) -> float:
        """The mean of all variances: known before, or from the first answer, where directions were drawn at random."""
        if len(self._views) > 1:
            return 0.0  # eigenvalues come with their negatives
        if self._begun is not None:
            return self._begun.centre
        if not isinstance(self._options.init, str):
            return 0.0
        assert self._curator.facts.bound is not None
        k, threshold = len(start), self._now[0] * self._curator.facts.bound
        return variance_before_clipping(max(0.0, float(np.vdot(start, answer)) / k), threshold, k)

    def _shift(self, quotients: Matrix, weight: float) -> float:
        """theta: with at most half of the least quotient, no small eigenvalue becomes a large one below zero."""
        least = float(np.linalg.eigvalsh(quotients + quotients.T)[0]) / 2
        return max(0.0, min(_KEPT_OF_OTHERS * self._centre, least / weight / 2))

    def _product(self, vectors: Matrix, step: int) -> Matrix:
        """G_t."""
        asked = self._asked(vectors)
        if step in self._look_at:
            self._now = tuple(self._look(Asked(v, asked.location)) for v in np.split(asked.vectors, len(self._views)))
        share = self._share * float(self._weights[step])
        answer = self._curator.clipped_products(asked, self._now, share, f"step {step + 1}")
        self._thresholds.extend(self._now)
        self._deviations.append(answer.deviation)
        self._n = answer.n
        return answer.values

    def _look(self, asked: Asked) -> float:
        """The threshold that a histogram of norms shows."""
        return norm_quantile(self._curator.product_norms(asked, self._each_look).values, self._options.quantile)

    def _quotients(self, vectors: Matrix) -> Matrix:
        """V^T S V, for all that is left; V_x^T S V_y, of two views."""
        limits = tuple(min(LARGEST_THRESHOLD, _VALUES_THRESHOLDS * threshold) for threshold in self._now)
        return self._curator.product_moment(self._asked(vectors), limits, None, "eigenvalues").values

    def result(self, vectors: Matrix, answer: Matrix) -> MethodResult:
        """Eigenvectors on the span of V, which the mean ``answer`` led to."""
        curator, d, n_views = self._curator, self._curator.model.n_features, len(self._views)
        quotients = self._quotients(vectors)
        values, turned = self._axes(quotients, vectors)
        total = n_views * float(np.trace(quotients))
        kept = float(np.clip(np.vdot(vectors, answer) / total, 2.0**-10, 1.0)) if total > 0 else 1.0
        # one entry of G has the variance of the noise; one of a noisy matrix off its diagonal, half of it. Of two views
        # a component has halves of unit length, and twice the squared length
        deviation = math.sqrt(2 / n_views) * float(np.linalg.norm(self._weights * self._deviations))
        level = deviation * math.sqrt(2 * d) / kept
        ones = np.ones(len(values))
        accuracy = quotient_accuracy(values, ones, noise_level=level, n_features=d, centre=self._centre)
        if level > 0:
            accuracy = accuracy.worsened(sampling_error(values, self._centre, kept) * d / self._n)
        diagnostics = ClippedPowerDiagnostics(
            noise_level=level,
            accuracy=accuracy,
            n_iterations=self._options.n_iterations,
            thresholds=tuple(self._thresholds),
            kept=kept,
        )
        released = None if self._mean is None else _groups(self._mean)
        return method_result(curator.model, released, turned, values, diagnostics, ())

    def _axes(self, quotients: Matrix, vectors: Matrix) -> tuple[Matrix, Matrix]:
        """Eigenvalues (K,), descending, and ``vectors`` turned to their directions; singular ones of two views."""
        if len(self._views) == 1:
            values, rotation = scipy.linalg.eigh((quotients + quotients.T) / 2)
            return values[::-1].copy(), rotation[:, ::-1].T @ vectors
        left, values, right = np.linalg.svd(quotients)
        x, y = self._views
        return values, np.hstack([left.T @ vectors[:, x], right @ vectors[:, y]])

    def _asked(self, vectors: Matrix) -> Asked:
        k = len(vectors)
        apart = np.zeros((k * len(self._views), vectors.shape[1]))
        for number, view in enumerate(self._views):
            apart[number * k : (number + 1) * k, view] = vectors[:, view]
        return Asked(apart, None if self._mean is None else self._mean.values)


def _start(curator: Curator, k: int, init: Any) -> Matrix:
    """(K, d) to begin at, orthonormal in each view."""
    d = curator.model.n_features
    if isinstance(init, str):
        return _polar(curator.public_generator().standard_normal((k, d)), curator.model.views)
    return _polar(given_vectors(init, k, d, _KINDS), curator.model.views)


def _polar(block: Matrix, views: list[slice]) -> Matrix:
    """The block (K, d) whose rows are, in each view, the orthonormal ones nearest to those of ``block``."""
    return np.hstack([polar(block[:, view]) for view in views])


def variance_before_clipping(left: float, threshold: float, k: int) -> float:
    """That of k normal entries p with E |p| min(|p|, C)/k = ``left``: a fixed point of left/(part that is kept)."""
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


def sampling_error(values: Matrix, centre: float, kept: float) -> Matrix:
    """n/d times the squared sines between eigenvectors of clipped products and of products, of the same normal rows.

    c l/(l - c)^2 (E clip(z)^2/kept^2 - 1) for eigenvalue l among others of c; kept = P(|z| <= a) for a normal z that is
    clipped to a (docs/mathematics.md, section 11).
    """
    if centre <= 0 or kept >= 1:
        return np.zeros(len(values))
    a = float(scipy.special.ndtri((1 + kept) / 2))
    square = kept - a * math.sqrt(2 / math.pi) * math.exp(-a * a / 2) + a * a * (1 - kept)
    gaps = np.maximum(values - centre, 1e-3 * centre)  # components that do not stand out are lost
    return np.asarray(centre * np.maximum(values, 0.0) / gaps**2 * (square / kept**2 - 1))


def _groups(mean: NoisyMean) -> ReleasedGroups:
    noise = MomentNoise(0.0, mean.deviation, 0.0)
    return ReleasedGroups(sums=mean.values[:, None], counts=np.ones(1), n=float(mean.n), noise=noise)
