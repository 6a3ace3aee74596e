"""DP-SPCA and DP-VRPCA (Shang et al. 2021, Algorithms 1 and 2): stochastic ascent, with a sound calibration.

    DP-SPCA     G = A_S V + Z V,                              V <- orth(V + eta G)
    DP-VRPCA    G = A V_0 + Z_0 V_0 + (A_S + Z)(V - V_0),     V <- orth(V + eta G)

A is the second moment of the rows, A_S that of a Poisson sample, drawn anew in each step, Z the noise of a step.
docs/stochastic.md says where we depart from the paper, and how steps show their own errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpgep._checks import Count, Share, require_positive
from dpgep.methods.base import Diagnostics, MethodResult, Options, method_result
from dpgep.methods.eigen import Accuracy, leading_first, quotient_accuracy, squared_sine
from dpgep.methods.papers.initial_vectors import RANDOM, first_block, given_vectors
from dpgep.models.model import Matrix, PublicSide
from dpgep.privacy.accounting import SampledMechanism, add_remove_mu
from dpgep.privacy.curator import Curator, row_bound
from dpgep.privacy.products import NoisySamples, Samples
from dpgep.serialization import stored_as

# A pass over samples takes this many steps. Larger samples cost less privacy a pass, but steps run out first.
_STEPS_PER_PASS = 100
_STEPS_PER_EPOCH = 50
# First and last step size as multiples of 1/L, L the noise level of a step in units of bound^2, and their largest:
# found on a9a and MNIST, epsilon from 1/2 to 4. Noise takes over where a step moves a block by more than its length.
_STEPS = {"dp-spca": ((1.0, 0.005), (64.0, 0.03)), "dp-vrpca": ((4.0, 0.15), (128.0, 8.0))}
# A block and the steps to take from it; the block after them, and the mean of the noisy quotients.
Ascend = Callable[[Matrix, Matrix], tuple[Matrix, Matrix]]

_NODES = 48  # this number of further eigenvalues stands for all the others
# An ascent has not arrived if it is this many times as far off as noise explains; squared sines not worth a word; the
# squared tangent that one random block in 16 exceeds, of an ascent that is known to have left where it began.
_BEYOND_NOISE, _UNSAID, _FAR_OFF = 2.0, 1e-5, 100.0


@dataclass(frozen=True, kw_only=True, eq=False)
class StochasticOptions(Options):
    """Options of "dp-spca". Nothing here may be chosen by looking at the data.

    Parameters
    ----------
    n_passes : int
        Expected number of times a row is read; default 10.
    batch_size : int, optional
        Expected size of a sample, q n. Default n/100; everybody, without noise.
    step_sizes : pair of floats, optional
        First and last step size in units of 1/bound^2; between them they fall geometrically. Default: 1/L and 0.005/L
        with L the noise level of a step in units of bound^2, at most 64 and 0.03 (there the noise of
        sampling is what is left).
    init : "random", or array of shape (K, d) or (d,)
        An array must be public: it must not be computed from these data outside the budget.
    """

    n_passes: Count = 10
    batch_size: Count | None = None
    step_sizes: Any = None
    init: Any = "random"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.step_sizes is not None:
            if not (isinstance(self.step_sizes, (tuple, list)) and len(self.step_sizes) == 2):
                raise ValueError(f"step_sizes must be a pair, the first and the last, got {self.step_sizes!r}")
            for value in self.step_sizes:
                require_positive("step_sizes", value)

    def check(self, public: PublicSide, k: int) -> None:
        assert public.facts.n is not None  # `KNOWN_N`
        assert public.facts.bound is not None  # `given_bound`
        if self.batch_size is not None and self.batch_size > public.facts.n:
            raise ValueError(f"batch_size must be at most n = {public.facts.n}, got {self.batch_size}")
        given_vectors(self.init, k, public.model.n_features, RANDOM)
        if self.step_sizes is not None and not math.isfinite(max(self.step_sizes) / public.facts.bound**2):
            raise ValueError(f"step_sizes must be finite in units of 1/bound^2, got {self.step_sizes!r}")

    def rate(self, n: int, mu: float) -> float:
        """q, the probability with which a person is in a sample."""
        if self.batch_size is None:
            return 1.0 if math.isinf(mu) else math.ceil(n / _STEPS_PER_PASS) / n
        return self.batch_size / n


@dataclass(frozen=True, kw_only=True, eq=False)
class ReducedOptions(StochasticOptions):
    """Options of "dp-vrpca": as "dp-spca", and ``n_epochs`` and ``budget_split``.

    One of each epoch's passes goes to the full gradient. Default batch_size: n/50; step_sizes: 4/L and 0.15/L, at most
    128 and 8.

    Parameters
    ----------
    n_epochs : int
        Number of full gradients, less than n_passes; default 5.
    budget_split : float in (0, 1)
        Share of the budget for full gradients; default 0.7.
    """

    n_epochs: Count = 5
    budget_split: Share = 0.7

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_passes <= self.n_epochs:
            raise ValueError(f"n_passes must exceed n_epochs, of a pass each: {self.n_passes} <= {self.n_epochs}")

    def rate(self, n: int, mu: float) -> float:
        batch = math.ceil(n / _STEPS_PER_EPOCH) if self.batch_size is None else self.batch_size
        return batch / n


@stored_as("stochastic")
@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StochasticDiagnostics(Diagnostics):
    """How the ascent was set up; all of it follows from n, the budget and the options.

    ``noise_level`` is that of the mean of all answers that the result averages; by it components are lost. Expected
    errors follow from the step sizes, and from how the last steps turned the components (docs/stochastic.md): they
    count noise, samples, and an ascent that has not arrived, which is warned of.

    Attributes
    ----------
    batch_size : expected size of a sample.
    n_steps : number of steps, over all epochs.
    n_epochs : number of full gradients; 0 for DP-SPCA.
    n_passes : expected number of times a row was read.
    step_sizes : the first and the last, in units of 1/bound^2.
    noise_multipliers : of the answers about samples and about everybody.
    """

    batch_size: float
    n_steps: int
    n_epochs: int
    n_passes: float
    step_sizes: tuple[float, float]
    noise_multipliers: tuple[float, float]

    def summary(self) -> list[str]:
        epochs = f" in {self.n_epochs} epochs" if self.n_epochs else ""
        sampled, full = self.noise_multipliers
        multipliers = f"{sampled:.3g}" + (f", full gradients {full:.3g}" if self.n_epochs else "")
        return [
            f"  steps        {self.n_steps}{epochs}, batches of {self.batch_size:.0f}, {self.n_passes:.3g} passes",
            f"  noise        multiplier {multipliers}",
            f"  step sizes   {self.step_sizes[0]:.3g} to {self.step_sizes[1]:.3g}, times 1/bound^2",
        ]


@dataclass(frozen=True, eq=False)
class Trace:
    """What m steps showed, on the directions of the mean of their quotients."""

    vectors: Matrix  # (K, d), the block after the last step, turned to these directions by rotation^T
    rotation: Matrix
    values: Matrix  # (K,), their quotients
    residuals: Matrix  # (K,), squared norms of the mean residuals, without what their own error adds
    scatter: Matrix  # (K,), squared norms of the residuals about their mean; 0 of a single step
    entries: Matrix  # (K, K), variances of the entries of the mean quotient
    following: float | None  # the quotient of the row after these, if there is one

    @classmethod
    def of(cls, ascend: Ascend, block: Matrix, k: int, steps: Matrix, n_scattered: int) -> Trace:
        """Take the steps one by one; the last ``n_scattered`` show the residuals of the first k rows."""
        m, n_rows = len(steps), len(block)
        of_rows, total, squares = np.empty((m, n_rows, n_rows)), np.zeros_like(block[:k]), np.zeros((k, k))
        quotients = of_rows[:, :k, :k]
        for row, step in enumerate(steps):
            vectors = block[:k]
            block, of_rows[row] = ascend(block, steps[row : row + 1])
            if row >= m - n_scattered:
                # moved = T (V + eta G): what is across V is eta (I + eta G V^T)^-1 of the residual
                moved = block[:k]
                across = np.linalg.pinv(moved @ vectors.T) @ moved - vectors
                residual = (np.eye(k) + step * quotients[row]) @ across / step
                total += residual
                squares += residual @ residual.T
        values, rotation = leading_first(quotients.mean(axis=0))
        mean, freedom = rotation.T @ (total / n_scattered), max(n_scattered - 1, 1)
        lengths = np.einsum("ij,ij->i", mean, mean)
        of_all = np.diagonal(rotation.T @ squares @ rotation) / n_scattered
        scatter = np.maximum(of_all - lengths, 0.0) * n_scattered / freedom
        turned = rotation.T @ quotients @ rotation
        entries = turned.var(axis=0, ddof=1) / m if m > 1 else np.zeros((k, k))
        residuals = np.maximum(lengths - scatter / n_scattered, 0.0)
        following = float(of_rows[:, k, k].mean()) if n_rows > k else None
        return cls(rotation.T @ block[:k], rotation, values, residuals, scatter, entries, following)


@dataclass(frozen=True, eq=False)
class Ascent:
    """The steps of an ascent, from the first, and what is known of the noise that stays in its answers."""

    steps: Matrix  # (T,), step sizes
    total: float | None  # sum of all variances; as much again as the components have where it is not known
    variance: float = 0.0  # of an entry, of the noise in what all answers of the last epoch share; 0: they share none

    def accuracy(self, trace: Trace, known: Accuracy, noise: Matrix) -> tuple[Accuracy, Matrix]:
        """The accuracy of components, some lost by ``known``, with noise of this variance in entries of residuals; and
        which may not have arrived.
        """
        values, (k, d) = trace.values, trace.vectors.shape
        found = known.lost.index(True) if True in known.lost else k
        if k == d:  # there is nothing across the span
            left, begun, far = np.zeros((3, k))
        else:
            others, numbers = self._others(values[: max(found, 1)], d - k, trace.following if found == k else None)
            left, begun = self._tangents(values, trace.scatter, noise, others, numbers)
            far = trace.residuals / _gaps(values, numbers @ others / (d - k)) ** 2
        outside = squared_sine(np.maximum(left, far))
        gaps = (values[:, None] - values) ** 2
        np.fill_diagonal(gaps, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            among = squared_sine(np.where(trace.entries > 0, trace.entries / gaps, 0.0).sum(axis=1))
        errors, strays = np.ones(k), np.ones(k)
        errors[:found], strays[:found] = (1 - (1 - outside) * (1 - among))[:found], outside[:found]
        accuracy = Accuracy(errors, min(float(strays.sum()), float(min(k, d - k))), known.lost)
        unsure = np.maximum(far, _FAR_OFF * begun) > np.maximum(_BEYOND_NOISE * left, _UNSAID)
        return accuracy, unsure & ~np.array(known.lost)

    def _others(self, values: Matrix, n: int, following: float | None) -> tuple[Matrix, Matrix]:
        """Other eigenvalues, n in all: some of them, and for how many each stands; the first, if it is known."""
        last, known = max(float(values[-1]), 0.0), float(np.maximum(values, 0.0).sum())
        left = known if self.total is None else max(self.total - known, 0.0)
        first = 0 if following is None else 1
        if following is not None:
            last = min(max(following, 0.0), last)
            left = max(left - last, 0.0)
        ratio = left / (left + last) if left > 0 else 0.0
        places = np.unique(np.round(np.geomspace(1, n, _NODES)))
        return last * ratio ** (places - first), np.diff(places, append=n + 1)

    def _tangents(
        self, values: Matrix, scatter: Matrix, noise: Matrix, others: Matrix, numbers: Matrix
    ) -> tuple[Matrix, Matrix]:
        """(K,), squared tangents that are left by noise and by samples, and of those at which the ascent began, 1.

        What samples add lies between the same in all directions and the proportions of the eigenvalues, a third so.
        """
        steps, n = self.steps[:, None], float(numbers.sum())
        grown = np.log1p(steps * np.maximum(values, 0.0))
        added, begun = np.zeros((2, len(others), len(values)))
        for row, other in enumerate(others):
            kept = np.log1p(steps * other) - grown
            after = np.cumsum(kept[::-1], axis=0)[::-1]
            added[row] = np.sum((steps / (1 + steps * other)) ** 2 * np.exp(2 * after), axis=0)
            begun[row] = np.exp(2 * after[0])
        total = float(numbers @ others)
        parts = (2 / n + (others / total if total > 0 else 1 / n)) / 3
        of_one = np.minimum(noise, scatter / n) + np.outer(parts, np.maximum(scatter - n * noise, 0.0))
        shared = self.variance / _gaps(values, others[:, None]) ** 2
        return np.asarray(numbers @ (added * of_one + shared)), np.asarray(numbers @ begun)


def _gaps(values: Matrix, others: Any) -> Matrix:
    tiny = 1e-9 * max(float(np.abs(values).max()), np.finfo(float).tiny)
    return np.asarray(np.maximum(values - others, tiny))


def dp_spca(curator: Curator, n_components: int, options: StochasticOptions) -> MethodResult:
    """Ascent on samples alone: Algorithm 1."""
    n = _public_n(curator)
    rate = options.rate(n, add_remove_mu(*curator.target, curator.facts.adjacency))
    n_steps = math.ceil(options.n_passes / rate)
    answers = curator.answer(Samples(SampledMechanism(rate, n_sampled=n_steps, n_full=0), curator.target, 0.0))
    ends, steps = _steps("dp-spca", options, answers, curator)
    tail = math.ceil(n_steps / 4)  # of steps so small that their mean tells the eigenvalues
    vectors, total = _start(curator, n_components, options), None
    if n_steps > 1:  # the only step is the last
        vectors, quotients = answers.products.ascend(vectors, steps[:1])
        total = _total(quotients, curator, options)
    if tail < n_steps - 1:
        vectors, _ = answers.products.ascend(vectors, steps[1:-tail])
    trace = Trace.of(answers.products.ascend, vectors, n_components, steps[-tail:], tail)
    level = answers.noise_level / math.sqrt(n_steps)
    lengths = np.ones(n_components)
    return _result(curator, Ascent(steps, total), trace, lengths, answers, ends, level)


def dp_vrpca(curator: Curator, n_components: int, options: ReducedOptions) -> MethodResult:
    """Ascent with variance reduction: Algorithm 2, the anchors averaged."""
    n, m = _public_n(curator), options.n_epochs
    rate = options.rate(n, add_remove_mu(*curator.target, curator.facts.adjacency))
    n_inner = max(1, round((options.n_passes / m - 1) / rate))
    mechanism = SampledMechanism(rate, n_sampled=m * n_inner, n_full=m)
    answers = curator.answer(Samples(mechanism, curator.target, options.budget_split))
    ends, steps = _steps("dp-vrpca", options, answers, curator)
    steps = steps.reshape(m, n_inner)
    vectors = _start(curator, n_components, options)
    anchors, gradients = [vectors], [answers.products.full(vectors)]
    for epoch in steps[:-1]:
        vectors, _ = answers.products.ascend_reduced(vectors, *_anchor(anchors, gradients), epoch)
        anchors.append(vectors)
        gradients.append(answers.products.full(vectors))
    anchor, gradient = _anchor(anchors, gradients)

    def ascend(block: Matrix, step: Matrix) -> tuple[Matrix, Matrix]:
        return answers.products.ascend_reduced(block, anchor, gradient, step)

    trace = Trace.of(ascend, vectors, n_components, steps[-1], math.ceil(n_inner / 2))
    deviation = answers.mechanism.noise_full * row_bound(curator.facts) ** 2 / n / math.sqrt(math.ceil(m / 2))
    # an entry of a GOE matrix beside the diagonal has half of the variance
    ascent = Ascent(steps.ravel(), _total(gradients[0] @ anchors[0].T, curator, options), deviation**2 / 2)
    level = deviation * math.sqrt(2 * curator.model.n_features)
    lengths = np.sum((trace.vectors - trace.rotation.T @ anchor[:n_components]) ** 2, axis=1)
    return _result(curator, ascent, trace, lengths, answers, ends, level)


def _anchor(anchors: list[Matrix], gradients: list[Matrix]) -> tuple[Matrix, Matrix]:
    """The mean of the later half of the blocks at which epochs began, and of their gradients."""
    later = math.ceil(len(anchors) / 2)
    return np.mean(anchors[-later:], axis=0), np.mean(gradients[-later:], axis=0)


def _total(quotients: Matrix, curator: Curator, options: StochasticOptions) -> float | None:
    """The sum of all variances, as the first quotients tell it where directions were drawn at random."""
    if not isinstance(options.init, str):
        return None
    found = float(np.trace(quotients)) / len(quotients) * curator.model.n_features
    return min(max(found, 0.0), row_bound(curator.facts) ** 2)


def _public_n(curator: Curator) -> int:
    assert curator.facts.n is not None  # checked before anything was released
    return curator.facts.n


def _steps(
    method: str, options: StochasticOptions, answers: NoisySamples, curator: Curator
) -> tuple[tuple[float, float], Matrix]:
    """The first and the last step size, in units of 1/bound^2, and all of them."""
    unit = row_bound(curator.facts) ** 2
    level, (wanted, most) = answers.noise_level / unit, _STEPS[method]
    first, last = most if level == 0 else np.minimum(most, np.divide(wanted, level)).tolist()
    first, last = options.step_sizes or (first, last)
    return (float(first), float(last)), np.geomspace(first, last, answers.mechanism.n_sampled) / unit


def _start(curator: Curator, k: int, options: StochasticOptions) -> Matrix:
    """The rows at which an ascent begins: K that are given, or at random one more, where there is room."""
    k = min(k + isinstance(options.init, str), curator.model.n_features)
    return np.ascontiguousarray(np.linalg.qr(first_block(curator, k, options.init).T)[0].T)


def _result(
    curator: Curator,
    ascent: Ascent,
    trace: Trace,
    lengths: Matrix,
    answers: NoisySamples,
    step_sizes: tuple[float, float],
    level: float,
) -> MethodResult:
    """Eigenvectors on the final block's span; ``lengths`` (K,): squared norms of what the last sample was asked."""
    values, mechanism, d = trace.values, answers.mechanism, curator.model.n_features
    by_noise = quotient_accuracy(values, np.ones(len(values)), noise_level=level, n_features=d)
    accuracy, unsure = ascent.accuracy(trace, by_noise, lengths * answers.noise_level**2 / (4 * d))
    diagnostics = StochasticDiagnostics(
        noise_level=level,
        accuracy=accuracy,
        batch_size=mechanism.rate * _public_n(curator),
        n_steps=mechanism.n_sampled,
        n_epochs=mechanism.n_full,
        n_passes=mechanism.n_full + mechanism.n_sampled * mechanism.rate,
        step_sizes=step_sizes,
        noise_multipliers=(mechanism.noise_sampled, mechanism.noise_full),
    )
    accuracy_warnings = []
    if rejected := answers.products.n_rejected_steps:
        below = f"{diagnostics.step_sizes[0]:.3g}"
        accuracy_warnings.append(f"{rejected} steps were too large and were rejected: give step_sizes below {below}")
    if unsure.any():
        which = [row + 1 for row in np.flatnonzero(unsure).tolist()]
        accuracy_warnings.append(
            f"the ascent has not converged: components {which} still turn, or steps were too few to be sure; "
            "expected errors may be too small; use a larger n_passes or step_sizes"
        )
    return method_result(curator.model, None, trace.vectors, values, diagnostics, accuracy_warnings)
