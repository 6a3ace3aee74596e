"""`dpgep.auditing.audit`: a lower bound, with its confidence, on what a mechanism leaks between two data sets.

A mechanism is mu-GDP if no test between neighbouring data sets beats that between N(0, 1) and N(mu, 1): with false
positive rate a and false negative rate b, Phi^-1(1 - a) - Phi^-1(b) <= mu. It is (epsilon, delta)-private if 1 - b <=
exp(epsilon) a + delta and 1 - a <= exp(epsilon) b + delta. A good test, run often enough, refutes a false claim.
No audit can confirm one. `dpgep.auditing.replay` needs no statistic.
"""

from __future__ import annotations

import hashlib
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import whole_number
from dpgep._dispatch import core
from dpgep.auditing.bounds import gaussian_bounds, learn_pattern, numbers_in, threshold_bounds
from dpgep.errors import AccuracyWarning, PrivacyWarning
from dpgep.models import ReleasedMatrices
from dpgep.models.moments import ReleasedMoments
from dpgep.privacy.accounting import epsilon_of
from dpgep.privacy.budget import Budget
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.ledger import Ledger
from dpgep.problems.mergeable_moments import Moments, problem_from
from dpgep.problems.problem import Problem
from dpgep.results.solution import Solution
from dpgep.run import solve

Values = NDArray[np.float64]
Statistic = Callable[[Any], Any]
# one run: on the data, which are number `side` (0 or 1), run number `run`
Draw = Callable[[Any, int, int], Any]

FEWEST_RUNS = 20


@dataclass(frozen=True, repr=False)
class AuditResult:
    """What the runs prove, with probability ``confidence``, about the mechanism on these two data sets.

    Attributes
    ----------
    mu : lower bound on the Gaussian-DP parameter.
    epsilon : lower bound on epsilon at ``delta``; None if no delta was given.
    delta : the delta of ``epsilon``.
    confidence : probability, over the runs, that both bounds hold.
    claimed_mu, claimed_epsilon : what the mechanism claims; None if it makes no such claim.
    runs : number of runs on each of the two data sets.
    gaussian : whether the bounds rest on the assumption that the statistic is Gaussian.
    pattern : for an audit of low bits, the pattern found and tested; otherwise None.
    """

    mu: float
    epsilon: float | None
    delta: float | None
    confidence: float
    claimed_mu: float | None
    claimed_epsilon: float | None
    runs: int
    gaussian: bool
    pattern: str | None = None

    @property
    def flagged(self) -> bool:
        """Whether a lower bound exceeds its claim, which is then false (with the confidence of the audit)."""
        bounds = (self.mu, self.claimed_mu), (self.epsilon, self.claimed_epsilon)
        return any(bound is not None and claim is not None and bound > claim for bound, claim in bounds)

    def __repr__(self) -> str:
        method = f"low bits ({self.pattern})" if self.pattern else "thresholds"
        method = "Gaussian statistic" if self.gaussian else method
        claims = self.claimed_mu, self.claimed_epsilon
        of_mu, of_epsilon = ("" if claim is None else f"(claimed {claim:.4g})" for claim in claims)
        lines = [
            f"AuditResult: {self.runs} runs on each data set, {method}, confidence {self.confidence:.10g}",
            f"  mu      >= {self.mu:<10.4g} {of_mu}",
        ]
        if self.epsilon is not None:
            lines.append(f"  epsilon >= {self.epsilon:<10.4g} {of_epsilon} at delta = {self.delta:.3g}")
        if self.claimed_mu is None and self.claimed_epsilon is None:
            lines.append("  no claim to compare with")
        else:
            lines.append("  FLAGGED: the claim is false" if self.flagged else "  not flagged: this does not prove it")
        return "\n".join(lines)


def audit(
    mechanism: Callable[[Any], Any],
    neighbours: tuple[Any, Any],
    statistic: Statistic | None,
    *,
    runs: int = 2000,
    confidence: float = 0.99,
    epsilon: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    gaussian: bool = False,
    low_bits: bool = False,
    released: bool = False,
    seed: int | None = None,
    progress: bool = False,
    **options: Any,
) -> AuditResult:
    """Run a mechanism often on two neighbouring data sets; bound from below how well they can be distinguished.

    With probability at least ``confidence`` the true mu and epsilon are at least those returned. So a
    mechanism that satisfies its claim is flagged with probability at most 1 - ``confidence``: choose ``confidence``
    according to the number of audits. A mechanism that violates its claim may still pass if the data sets are not the
    worst pair, the statistic is weak, or the runs are few.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(data)`` returns a problem (from `dpgep.pca`, `cca`, ...), which is then solved with the budget and
        options given here, or any other output: a Solution, a vector, a transcript. It is called once per run,
        and once before; all runs must be independent.
    neighbours : (data, data_prime)
        Two neighbouring data sets, in any form ``mechanism`` takes. Audit the worst pair you can think of.
    statistic : callable, or None
        ``statistic(output)``: one finite number; large values (or small: both are tried) should indicate
        ``data_prime``. Best is the log-likelihood ratio of everything an attacker sees: the whole transcript or
        release, not what was computed from it. None, with ``released``: exactly that. With ``low_bits``, an array of
        numbers, of the same length in every run; None: all numbers in the output (`numbers_in`).
    runs : int
        Number of runs on each of the two data sets.
    confidence : float in (0, 1)
        Probability, over the runs, that both bounds hold.
    epsilon, delta, rho, mu : float
        The claim. If ``mechanism`` returns problems, the budget to solve them with, in one of the forms of
        `dpgep.Budget`; otherwise either ``epsilon`` with ``delta`` (which may be 0) or ``mu``. Default: that of the
        Solution's report. The bound on epsilon is at ``delta``, which may also accompany ``mu`` or ``rho``.
    gaussian : bool
        **Assume** that the statistic is normal with the same variance on both data sets, as is every linear function of
        values released with Gaussian noise. Then |difference of means|/deviation is bounded from below, by quantiles of
        the normal and chi-square laws: much sharper. Samples that are clearly not normal are rejected.
    low_bits : bool
        Attack the representation of the published numbers instead of their values (docs/audits.md): a quarter of the
        runs selects entries, powers of two far below the noise, and weights of the residues; the others test them. If
        nothing is found, the bounds are 0.
    released : bool
        For a problem under the method "release", pass the statistic the released moments (or matrices) instead of the
        Solution computed from them: the most that anybody sees. Needs a bound other than "auto".
    seed : int, optional
        Makes an audit of problems reproducible. Other mechanisms must be seeded by their authors.
    progress : bool
        Whether to report progress to stderr.
    **options
        For `dpgep.solve`, if ``mechanism`` returns problems.

    Returns
    -------
    AuditResult
        docs/audits.md has examples.

    Raises
    ------
    ValueError, TypeError
        If a parameter is out of range, or the statistic is not a finite number.

    Notes
    -----
    Without ``gaussian``, no distributional assumption is made. The first half of the runs selects thresholds, one for
    mu and one for epsilon; the second half counts errors, whose rates are bounded by Clopper and Pearson (1934), each
    at (1 - confidence)/4 (/2 without a delta). With ``gaussian``, the normal and the chi-square bound each get half of
    1 - confidence.
    """
    _check_arguments(mechanism, neighbours, statistic, runs, confidence, delta)
    first, second = neighbours
    claim: dict[str, Any] = {"epsilon": epsilon, "delta": None if epsilon is None else delta, "rho": rho, "mu": mu}
    output = _as_problem(mechanism(first))
    claimed_mu: float | None
    if isinstance(output, Problem):
        for shared in ("budget", "share"):
            if shared in options:
                raise TypeError(f"every run of an audit has its own budget: give epsilon, rho or mu, not {shared}")
        budget = Budget(**claim, accounting=options.get("accounting", "gdp"), adjacency=None)
        if statistic is None and released and not low_bits:
            statistic = release_statistic(output, _as_problem(mechanism(second)))
        draw = (
            _released_runs(mechanism, budget.mu, seed, options)
            if released
            else lambda data, side, run: solve(
                mechanism(data), **claim, seed=None if seed is None else 2 * (run + (seed << 40)) + side, **options
            )
        )
        claimed_mu, claimed_epsilon = budget.mu, None if delta is None else math.inf
        if delta:
            claimed_epsilon = epsilon_of(budget.mu, delta) if budget.epsilon is None else budget.epsilon
    else:
        if given := [*["released"] * released, *["seed"] * (seed is not None), *options]:
            raise TypeError(
                f"mechanism returned {type(output).__name__}, not a problem: {', '.join(given)} would have no effect; "
                "set it in the mechanism"
            )
        delta, claimed_mu, claimed_epsilon = _claim_of_output(output, epsilon, delta, rho, mu)
        draw = lambda data, side, run: mechanism(data)  # noqa: E731
    parts: list[int] = []
    if low_bits:
        read: Callable[[Any, str], Any] = partial(_published_numbers, statistic, parts)
    elif statistic is None:
        raise TypeError("statistic=None requires released=True and a mechanism that returns problems: give a statistic")
    else:
        read = partial(_one_number, statistic)
    samples = _samples(draw, (first, second), read, runs, progress)
    return audit_samples(
        *samples,
        confidence=confidence,
        delta=delta,
        claimed_mu=claimed_mu,
        claimed_epsilon=claimed_epsilon,
        gaussian=gaussian,
        low_bits=low_bits,
        parts=parts or None,
    )


def audit_samples(
    first: Any,
    second: Any,
    *,
    confidence: float = 0.99,
    delta: float | None = None,
    claimed_mu: float | None = None,
    claimed_epsilon: float | None = None,
    gaussian: bool = False,
    low_bits: bool = False,
    parts: Sequence[int] | None = None,
) -> AuditResult:
    """The bounds of `audit` from precomputed statistics: ``first`` on data, ``second`` on data_prime.

    ``first`` and ``second``, (runs,), or (runs, m) with ``low_bits``, are the statistic in independent runs, or the
    published numbers, in an order that does not depend on their values. ``parts``, with ``low_bits``, are lengths of
    the successive arrays that the m numbers come from, by default of one: a pattern may be shared by all entries of an
    array. The claims are compared with the bounds; ``claimed_epsilon`` is at ``delta``. All else is as in `audit`.
    """
    if low_bits and gaussian:
        raise ValueError("gaussian=True assumes a statistic linear in the values, which one of their low bits is not")
    x, y = (np.asarray(values, dtype=np.float64) for values in (first, second))
    if x.ndim != 1 + low_bits or x.shape != y.shape:
        kind = "matrices of the same shape (runs, m)" if low_bits else "vectors of the same length"
        raise ValueError(f"both samples must be {kind}, got shapes {x.shape} and {y.shape}")
    _check_numbers(len(x), confidence, delta)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("the samples contain NaN or infinite values")
    if low_bits and parts is not None and sum(parts) != x.shape[1]:
        raise ValueError(f"parts must add up to m = {x.shape[1]}, got {list(parts)}")
    if claimed_epsilon is not None and delta is None:
        raise ValueError("claimed_epsilon needs its delta")
    if gaussian and delta == 0:
        raise ValueError("gaussian=True needs delta > 0: at delta = 0 no Gaussian noise has a finite epsilon")
    level, shown = 1.0 - confidence, None
    if low_bits:
        n_choose = len(x) // 4  # leaks show in what never happens on one side: the more tests, the better
        pattern = learn_pattern(x[:n_choose], y[:n_choose], parts)
        mu, epsilon = threshold_bounds(pattern.scores(x), pattern.scores(y), n_choose, delta, level)
        shown = str(pattern)
    elif gaussian:
        mu, epsilon = gaussian_bounds(x, y, delta, level)
    else:
        mu, epsilon = threshold_bounds(x, y, len(x) // 2, delta, level)
    return AuditResult(mu, epsilon, delta, confidence, claimed_mu, claimed_epsilon, len(x), gaussian, shown)


def release_statistic(problem: Problem, problem_prime: Problem) -> Statistic:
    """The most powerful statistic on a release of either problem: its log-likelihood ratio, up to an affine map.

    With D_b the difference of block b between the problems and s_b the deviation that the release declares, it is
    sum_b <D_b, X_b>/s_b^2 of the released blocks X_b, normal with mean difference and variance sum_b |D_b|^2/s_b^2 =
    mu^2. (For GOE noise, off-diagonal entries have half the variance and appear twice: the same formula.)
    """
    exact = []
    for each in (problem, problem_prime):
        n, blocks = _blocks(_curator(each, math.inf, core.NoiseStream()).answer(Release()))
        exact.append([block * n for block, _ in blocks])
    shapes = [[block.shape for block in blocks] for blocks in exact]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the two problems release blocks of different shapes: {shapes[0]} and {shapes[1]}")
    differences = [after - before for before, after in zip(*exact, strict=True)]

    def statistic(released: Any) -> float:
        total = 0.0
        n, blocks = _blocks(released)
        for difference, (block, deviation) in zip(differences, blocks, strict=True):
            if deviation > 0:
                total += float(np.vdot(difference, block)) / (n * deviation * deviation)
            elif difference.any():
                raise ValueError("a block that differs between the data sets was released without noise")
        return total

    return statistic


def _curator(problem: Problem, mu: float, stream: core.NoiseStream) -> Curator:
    if problem.auto is not None:
        raise ValueError(
            "released=True audits one release, of a known bound: give a bound or a Preprocessing instead of "
            'bound="auto", or audit solutions'
        )
    return Curator(problem, Ledger(mu), stream)


def _blocks(released: ReleasedMoments | ReleasedMatrices) -> tuple[float, list[tuple[Values, float]]]:
    """(n, blocks with the deviations of their noise); noise was added to n times each block. n itself may be noisy."""
    if isinstance(released, ReleasedMatrices):
        blocks = [(released.a, released.noise_a)]
        return 1.0, blocks if released.b is None else [*blocks, (released.b, released.noise_b)]
    return released.n, [
        (getattr(released, name), getattr(released.noise, name)) for name in ("second", "sums", "counts")
    ]


def _check_arguments(mechanism: Any, neighbours: Any, statistic: Any, runs: Any, confidence: Any, delta: Any) -> None:
    if not callable(mechanism):
        raise TypeError(f"mechanism must be a function of the data, got {type(mechanism).__name__}")
    if statistic is not None and not callable(statistic):
        raise TypeError(f"statistic must be a function of the output, got {type(statistic).__name__}")
    if not isinstance(neighbours, (tuple, list)) or len(neighbours) != 2:
        raise TypeError("neighbours must be a pair (data, data_prime) of neighbouring data sets")
    if whole_number(runs) is None:
        raise TypeError(f"runs must be a whole number, got {runs!r}")
    _check_numbers(int(runs), confidence, delta)


def _check_numbers(runs: int, confidence: Any, delta: Any) -> None:
    if runs < FEWEST_RUNS:
        raise ValueError(f"an audit needs at least {FEWEST_RUNS} runs on each data set, got {runs}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence!r}")
    if delta is not None and not 0 <= delta < 1:
        raise ValueError(f"delta must lie in [0, 1), got {delta!r}")


def _released_runs(mechanism: Callable[[Any], Problem], mu: float, seed: int | None, options: dict[str, Any]) -> Draw:
    unknown = sorted(set(options) - {"accounting"})
    if options.get("method", "release") != "release" or set(unknown) - {"method"}:
        raise TypeError(f"released=True audits the release of the method 'release': it takes no {', '.join(unknown)}")
    streams = [
        core.NoiseStream(None if seed is None else hashlib.sha256(f"dpgep audit {int(seed)} {side}".encode()).digest())
        for side in (0, 1)
    ]
    return lambda data, side, run: _curator(_as_problem(mechanism(data)), mu, streams[side]).answer(Release())


def _as_problem(output: Any) -> Any:
    return problem_from(output) if isinstance(output, Moments) else output


def _claim_of_output(
    output: Any, epsilon: float | None, delta: float | None, rho: float | None, mu: float | None
) -> tuple[float | None, float | None, float | None]:
    """(delta, claimed mu, claimed epsilon) of a mechanism that is not a problem."""
    if rho is not None:
        raise ValueError("rho is not a claim about a single test: give mu, or epsilon and delta")
    if epsilon is not None and mu is not None:
        raise ValueError("two claims given: epsilon and mu; give only one")
    for name, value in (("epsilon", epsilon), ("mu", mu)):
        if value is not None and not value >= 0:
            raise ValueError(f"{name} must be a non-negative number, got {value!r}")
    if epsilon is not None:
        if delta is None:
            raise ValueError("epsilon needs a delta: give delta as well (0 for pure differential privacy)")
        return delta, None, epsilon
    if mu is None and isinstance(output, Solution):
        report = output.privacy
        if delta is None or delta == report.delta:
            return report.delta, report.mu, None if report.delta is None else report.epsilon
        return delta, report.mu, report.epsilon_at(delta) if delta else None
    return delta, mu, epsilon_of(mu, delta) if mu is not None and delta else None


def _samples(
    draw: Draw, neighbours: tuple[Any, Any], read: Callable[[Any, str], Any], runs: int, progress: bool
) -> list[Values]:
    """What ``read`` makes of the output of each run, given with its name: (runs, ...) for each data set."""
    samples = []
    with warnings.catch_warnings():
        # the runs are meant to be noisy, and seeded on request
        warnings.simplefilter("ignore", AccuracyWarning)
        warnings.simplefilter("ignore", PrivacyWarning)
        for side, (name, data) in enumerate(zip(("data", "data_prime"), neighbours, strict=True)):
            values = []
            for run in range(runs):
                values.append(read(draw(data, side, run), f"run {run} on {name}"))
                if progress and (run + 1) % max(1, runs // 10) == 0:
                    print(f"audit: {run + 1} of {runs} runs on {name}", file=sys.stderr)
            samples.append(np.array(values, dtype=np.float64))
    return samples


def _one_number(statistic: Statistic, output: Any, which: str) -> float:
    value = statistic(output)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"statistic must return one number, got {type(value).__name__}") from None
    if not math.isfinite(number):
        raise ValueError(f"statistic returned {number} in {which}: it must be finite")
    return number


def _published_numbers(statistic: Statistic | None, parts: list[int], output: Any, which: str) -> Values:
    """The numbers published in a run, in one vector; ``parts`` gets the lengths of the arrays they come from."""
    arrays = numbers_in(output if statistic is None else statistic(output))
    lengths = [len(array) for array in arrays]
    parts.extend([] if parts else lengths)
    if not lengths or lengths != parts:
        raise ValueError(f"low_bits needs arrays of one length in all runs: {which} gave {lengths}, the first {parts}")
    return np.concatenate(arrays)
