"""Audits of everything beside `release`: products, flows, screens, operators, samples, local reports.

Each case draws what an attacker may see and reduces it to a statistic: the log-likelihood ratio of all of it where that
is known, which then is normal and reaches the claim up to the number of runs. docs/audits.md prints the results;
benchmarks/audit_table.py measures them.
"""

from __future__ import annotations

import itertools
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
from audit_cases import CONFIDENCE, E1, E2, RELEASES, Matrix, both, people

import dpgep
from dpgep._dispatch import core
from dpgep.auditing.statistical import AuditResult, audit, release_statistic
from dpgep.local import GaussianRandomizer
from dpgep.models import ReleasedMatrices
from dpgep.models.model import Adjacency
from dpgep.models.moments import ReleasedGroups, ReleasedMoments
from dpgep.models.row_model import pencil_of
from dpgep.privacy import products as noisy_products
from dpgep.privacy import screening
from dpgep.privacy.accounting import SampledMechanism, calibrate_sampled, epsilon_of_event
from dpgep.privacy.clipped_products import Asked, ClippedMean, ClippedMoment
from dpgep.privacy.curator import Curator, FeatureRelease, LocalReports, normalized_groups
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.products import NoisyProducts, ProductNoise, Products, Samples
from dpgep.privacy.screening import Scores
from dpgep.problems.problem import MomentProblem

MU = 3.0  # at which some hundred runs come within a fifth of the claim
DELTA = 1e-3
RUNS = int(os.environ.get("DPGEP_METHOD_RUNS", "700"))

Mechanism = Callable[[Any], Any]
Statistic = Callable[[Any], Any]


@dataclass(frozen=True)
class MethodCase:
    """One audit of a method.

    Attributes
    ----------
    mechanism, neighbours, statistic, claim : as in `dpgep.auditing.audit`.
    least : the part of the claimed mu (epsilon, where no mu is claimed) that the audit must find.
    runs : on each of the two data sets.
    gaussian : whether the statistic is normal.
    seen : of the table, what the statistic reads.
    """

    mechanism: Mechanism
    neighbours: tuple[Any, Any]
    statistic: Statistic
    claim: dict[str, float]
    least: float = 0.6
    runs: int = RUNS
    gaussian: bool = True
    seen: str = "likelihood ratio of all answers"

    def audit(self) -> AuditResult:
        return audit(
            self.mechanism,
            self.neighbours,
            self.statistic,
            runs=self.runs,
            confidence=CONFIDENCE,
            gaussian=self.gaussian,
            **self.claim,  # type: ignore[arg-type]
        )


GAUSSIAN_CLAIM = {"mu": MU, "delta": DELTA}


def stream_of(name: str) -> core.NoiseStream:
    return core.NoiseStream(name.encode()[-32:].rjust(32, b"."))


def curator_of(problem: Any, stream: core.NoiseStream, mu: float = MU) -> Curator:
    return Curator(problem, Ledger(mu), stream)


# --- products --------------------------------------------------------------------------------------------------------


def at_once(products: NoisyProducts, d: int) -> tuple[Matrix, Matrix]:
    """A and B from one block of all coordinates."""
    return products.times(np.eye(d))


def adaptively(products: NoisyProducts, d: int) -> tuple[Matrix, Matrix]:
    """A and B from one question at a time, each the last answer, or all but a repetition of the question before.

    A remainder of 1e-3 to 1e-9 of the question is what noise that is drawn for the question, and not for the direction
    that is new in it, would leave bare.
    """
    questions, answers = [np.full(d, 1 / math.sqrt(d))], []
    for turn in range(d):
        if turn:
            new = questions[0] + 10.0 ** (-3 * turn) * np.eye(d)[turn]
            questions.append(new / np.linalg.norm(new))
        answers.append([answer[0] for answer in products.times(questions[-1][None, :])])
        products.times(answers[-1][0][None, :] if np.any(answers[-1][0]) else questions[-1][None, :])
    a, b = (np.linalg.solve(np.array(questions), np.array(side)) for side in zip(*answers, strict=True))
    return a, b


def second_moment(problem: MomentProblem, groups: ReleasedGroups, a: Matrix, b: Matrix) -> Matrix:
    """The noisy second moment that A and B were made of, by released sums and counts."""
    pencil = pencil_of(problem.model, groups)

    def low_rank(weights: Matrix) -> Matrix:
        return np.asarray((pencil.factors.T * weights) @ pencil.factors)

    if pencil.a.moment:  # and where B has it, too, they are blocks of one matrix
        return np.asarray((a if pencil.b is None else a + b) - low_rank(pencil.a.weights))
    assert pencil.b is not None
    return np.asarray(b - low_rank(pencil.b.weights))


def known(problem: Any, products: NoisyProducts, a: Matrix, b: Matrix) -> ReleasedMoments | ReleasedMatrices:
    """What the answers A and B, and the groups, say of the release behind them."""
    if products.groups is None:
        d = problem.model.n_features
        levels = [problem.sensitivity_a > 0, problem.sensitivity_b > 0]
        noise = products.noise_level / math.sqrt(2 * d)
        ratio = problem.sensitivity_b / problem.sensitivity_a if all(levels) else 1.0
        return ReleasedMatrices(
            a, None if problem.b is None else b, noise / ratio, noise if problem.b is not None else 0.0
        )
    groups = products.groups
    second = second_moment(problem, groups, a, b)
    return ReleasedMoments(groups.sums, groups.counts, groups.n, groups.noise, (second + second.T) / 2)


def lazy_case(name: str, expand: Callable[[NoisyProducts, int], tuple[Matrix, Matrix]]) -> MethodCase:
    """All that lazy noise answers: one release, known by its products."""
    problems = RELEASES[name]()
    stream = stream_of(f"lazy {name}")

    def mechanism(problem: Any) -> ReleasedMoments | ReleasedMatrices:
        products = curator_of(problem, stream).answer(Products(ProductNoise("lazy", "goe", 0)))
        return known(problem, products, *expand(products, problem.model.n_features))

    return MethodCase(mechanism, problems, release_statistic(*problems), GAUSSIAN_CLAIM)


def fresh_case(name: str, n_products: int = 3) -> MethodCase:
    """Products with the whole space, each with noise of its own, and sums and counts released once."""
    problems = RELEASES[name]()
    stream, ratio = stream_of(f"fresh {name}"), release_statistic(*problems)
    d = problems[0].model.n_features

    def mechanism(problem: Any) -> list[ReleasedMoments | ReleasedMatrices]:
        products = curator_of(problem, stream).answer(Products(ProductNoise("fresh", "goe", n_products)))
        return [known(problem, products, *at_once(products, d)) for _ in range(n_products)]

    def statistic(answers: list[Any]) -> float:
        """Sums and counts are the same in all answers, and count once."""
        if isinstance(answers[0], ReleasedMatrices):
            return sum(map(ratio, answers))
        silent = [replace(each, sums=0 * each.sums, counts=0 * each.counts) for each in answers[1:]]
        return ratio(answers[0]) + sum(map(ratio, silent))

    # sums and counts have a worst pair of their own, and the products another
    with_groups = isinstance(problems[0], MomentProblem) and problems[0].layout.has_groups
    least = 0.5 if with_groups else 0.6
    return MethodCase(mechanism, problems, statistic, GAUSSIAN_CLAIM, least)


def iid_case(name: str, direction: tuple[float, ...], across: tuple[float, ...], n_products: int = 3) -> MethodCase:
    """The papers' noise: one direction a product, that in which noise shared by two entries hides least."""
    problems, stream = RELEASES[name](), stream_of(f"iid {name}")
    question, weights = (np.array(v) / np.linalg.norm(v) for v in (direction, across))

    def mechanism(problem: Any) -> list[Matrix]:
        products = curator_of(problem, stream).answer(Products(ProductNoise("fresh", "iid", n_products)))
        assert products.groups is not None
        return [products.groups.n * products.times(question[None, :])[0][0] for _ in range(n_products)]

    return MethodCase(
        mechanism,
        problems,
        lambda answers: float(sum(weights @ answer for answer in answers)),
        GAUSSIAN_CLAIM,
        seen=f"all answers to {direction}, along {across}",
    )


def composed_case() -> MethodCase:
    """A screen, a block of the features kept, and products: what a flow with init="screen" asks, from one budget."""
    problems = both(lambda rows: dpgep.pca(rows, center=False, bound=1.0), (E1, E2))
    stream = stream_of("composed")
    features = np.arange(3)
    ratio = release_statistic(*problems)
    shift = problems[1].group_sums(with_squares=True).squares - problems[0].group_sums(with_squares=True).squares

    def mechanism(problem: Any) -> tuple[Matrix, float, Any, Any]:
        curator = curator_of(problem, stream)
        screen = curator.answer(Scores(), 0.2)
        block = curator.answer(FeatureRelease(features, 1.0), 0.3)[1]
        products = curator.answer(Products(ProductNoise("lazy", "goe", 0)))
        assert screen.energy is not None
        return screen.energy, screen.noise, block, known(problem, products, *at_once(products, 3))

    def statistic(answers: tuple[Matrix, float, Any, Any]) -> float:
        energy, noise, block, products = answers
        n = block.n
        return float(shift @ energy) / (n * noise**2) + ratio(block) + ratio(products)

    return MethodCase(mechanism, problems, statistic, GAUSSIAN_CLAIM)


# --- clipped products ------------------------------------------------------------------------------------------------


def clipped_case(adjacency: Adjacency, located: bool, least: float = 0.6) -> MethodCase:
    """Everything that a clipped power method asks: products, twice, the second of a direction that the first led to.

    Of the pair that moves products most, or of (b, 0, 0) who is there or not. All noise is independent and known.
    """
    c = 0.25
    across = math.sqrt(1 - c * c)
    stream, shares = stream_of(f"clipped {adjacency} {located}"), (0.48, 0.48)
    rest = {"center": False, "bound": 1.0, "adjacency": adjacency}
    others = np.tile([0.0, 0.5, 0.0], (7, 1))
    if adjacency == "replace-one":
        pair = [np.vstack([others, [c, 0.0, side]]) for side in (across, -across)]
        problems = dpgep.pca(pair[0], **rest), dpgep.pca(pair[1], **rest)
    else:
        rows = np.vstack([others, E1])
        problems = dpgep.pca(rows[:-1], public_n=8, **rest), dpgep.pca(rows, public_n=8, **rest)
    location = np.array([0.01, 0.0, 0.0]) if located else None

    def answers(problem: Any, mu: float, stream: core.NoiseStream, second: Matrix | None = None) -> list[Any]:
        curator = curator_of(problem, stream, mu)
        first = curator.answer(ClippedMean(Asked(E1[None, :], location), (c,)), shares[0])
        if second is None:  # adaptive, and all but the first question again: that pair is the worst
            second = E1 + 1e-3 * first.values[0] / np.linalg.norm(first.values[0])
            second /= np.linalg.norm(second)
        asked = Asked(second[None, :], location)
        given = [first, curator.answer(ClippedMean(asked, (c,)), shares[1]), curator.answer(ClippedMoment(asked, (c,)))]
        return [*given, second]

    statistic = clipped_statistic(answers, problems)
    return MethodCase(lambda problem: answers(problem, MU, stream), problems, statistic, GAUSSIAN_CLAIM, least)


def clipped_views_case(
    adjacency: Adjacency, problem_of: Callable[..., Any] = dpgep.pls, least: float = 0.6
) -> MethodCase:
    """The same of two views: a row and one whose first view is negated, or a row that is there or not.

    For cca products are residuals y . w - x . u/2 and x . u - y . w/2, and the moment is that of all coordinates.
    """
    is_cca, shares, thresholds = problem_of is dpgep.cca, (0.48, 0.48), (0.25, 0.25)
    stream = stream_of(f"clipped views {adjacency} {is_cca}")
    residuals = np.array([[1.0, -0.5], [-0.5, 1.0]]) / 1.5 if is_cca else np.eye(2)
    rest = {"center": False, "bound": 1.0, "adjacency": adjacency}
    others = np.tile([0.0, 0.5, 0.0], (7, 1))
    row = np.array([1.0, 1.0, 0.0]) / math.sqrt(2)
    if adjacency == "replace-one":
        pair = [np.vstack([others, row * [sign, 1.0, 1.0]]) for sign in (1.0, -1.0)]
    else:
        pair, rest = [others, np.vstack([others, row])], {**rest, "public_n": 8}
    problems = problem_of(pair[0][:, :1], pair[0][:, 1:], **rest), problem_of(pair[1][:, :1], pair[1][:, 1:], **rest)

    def answers(problem: Any, mu: float, stream: core.NoiseStream, second: Matrix | None = None) -> list[Any]:
        curator = curator_of(problem, stream, mu)
        first = curator.answer(ClippedMean(Asked(residuals @ np.eye(3)[:2]), thresholds), shares[0])
        if second is None:
            second = np.eye(3)[:2]
            second[1, 1:] += 1e-3 * first.values[0, 1:] / np.linalg.norm(first.values[0, 1:])
            second[1] /= np.linalg.norm(second[1])
        products = curator.answer(ClippedMean(Asked(residuals @ second), thresholds), shares[1])
        moment = curator.answer(ClippedMoment(Asked(second), thresholds[:1] if is_cca else thresholds))
        return [first, products, moment, second]

    statistic = clipped_statistic(answers, problems)
    return MethodCase(lambda problem: answers(problem, MU, stream), problems, statistic, GAUSSIAN_CLAIM, least)


def clipped_statistic(answers: Callable[..., list[Any]], problems: tuple[Any, Any]) -> Callable[[list[Any]], float]:
    """The likelihood ratio of answers with independent noise of known deviations; the last of them is a question."""
    unused = core.NoiseStream(bytes(32))  # answers without noise draw none

    def statistic(output: list[Any]) -> float:
        plain = [answers(problem, math.inf, unused, output[-1])[:-1] for problem in problems]
        return float(
            sum(
                np.vdot(b.values - a.values, answer.values) / answer.deviation**2
                - (np.vdot(b.values, b.values) - np.vdot(a.values, a.values)) / (2 * answer.deviation**2)
                for a, b, answer in zip(*plain, output[:-1], strict=True)
            )
        )

    return statistic


# --- screens ---------------------------------------------------------------------------------------------------------


def screen_case(name: str, least: float = 0.6) -> MethodCase:
    """The noisy diagonal with the sums and counts that scores are computed from."""
    problems, stream = RELEASES[name](), stream_of(f"screen {name}")

    def mechanism(problem: Any) -> ReleasedMoments:
        released: list[ReleasedGroups] = []

        def record(*arguments: Any) -> ReleasedGroups:
            released.append(normalized_groups(*arguments))
            return released[0]

        with mock.patch.object(screening, "normalized_groups", record):
            screen = curator_of(problem, stream).answer(Scores())
        assert screen.energy is not None
        groups = released[0]
        return ReleasedMoments(groups.sums, groups.counts, groups.n, groups.noise, np.diag(screen.energy))

    seen = "likelihood ratio of the diagonal, sums and counts"
    return MethodCase(mechanism, problems, release_statistic(*problems), GAUSSIAN_CLAIM, least, seen=seen)


def screen_of_matrix_case() -> MethodCase:
    """The diagonal of A, which one person moves by all of its sensitivity."""
    n, stream = 50, stream_of("screen gep")
    a, moved = np.diag([3.0, 2.0, 1.0]), np.diag([3.0 + 2 / n, 2.0, 1.0])
    return MethodCase(
        lambda problem: curator_of(problem, stream).answer(Scores()),
        (dpgep.gep(a, n=n, sensitivity_a=2.0), dpgep.gep(moved, n=n, sensitivity_a=2.0)),
        lambda screen: float(screen.scores[0]),
        GAUSSIAN_CLAIM,
        seen="likelihood ratio of the scores",
    )


def cross_screen_case(center: bool) -> MethodCase:
    """Two views, the norms of rows of whose cross-covariance move while the diagonal stays.

    Uncentred, (u, w) against (u, -w) where all others are (u, w): two norms move by 1, all that the sensitivity sqrt 2
    allows. Centred, (u, w) against (-u, -w) where all others are (-u, -w): two norms move by 2, sqrt 8 of sqrt 18.
    """
    row = np.array([1.0, 1.0, 0.0]) / math.sqrt(2)
    last = -row if center else row * [1, -1, 1]

    def build(person: Matrix) -> Any:
        rows = np.vstack([np.tile(-row if center else row, (23, 1)), person])
        return dpgep.cca(rows[:, :1], rows[:, 1:], center=center, bound=1.0)

    stream = stream_of(f"cross screen {center}")
    return MethodCase(
        lambda problem: curator_of(problem, stream).answer(Scores()),
        (build(row), build(last)),
        lambda screen: float(screen.scores[0] + screen.scores[1]),
        GAUSSIAN_CLAIM,
        0.35 if center else 0.6,
        seen="two scores",
    )


# --- what solve returns, and a release as an operator


def matrix_of(solution: dpgep.Solution) -> Matrix:
    """The noisy second moment, of all its eigenvectors and eigenvalues."""
    return np.asarray((solution.components.T * solution.eigenvalues) @ solution.components)


def solution_case(least: float = 0.6, **options: Any) -> MethodCase:
    """Uncentred PCA, all components: what is published is the noisy matrix again."""
    seeds = itertools.count()

    def mechanism(rows: Matrix) -> dpgep.Solution:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = dpgep.pca(rows, center=False, bound=1.0)
            return dpgep.solve(problem, mu=MU, seed=next(seeds), **options)

    def statistic(solution: dpgep.Solution) -> float:
        matrix = matrix_of(solution)
        return float(matrix[0, 0] - matrix[1, 1])

    return MethodCase(
        mechanism, (people(E1), people(E2)), statistic, GAUSSIAN_CLAIM, least, seen="eigenvalues and components"
    )


def one_step_case(shape: str) -> MethodCase:
    """A flow of one step with fresh noise: its quotient and its component give the whole answer again.

    From v the flow goes to a multiple of (1 - eta) rho v + eta A v, where rho = v^T A v is published: the answer A v is
    rho v plus what the component has across v, in units of what it has along v.
    """
    along, across = np.array([1.0, 1.0, 0.0]) / math.sqrt(2), np.array([1.0, -1.0, 0.0]) / math.sqrt(2)
    others, seeds = np.tile(along, (63, 1)), itertools.count()

    def mechanism(rows: Matrix) -> dpgep.Solution:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return dpgep.solve(
                dpgep.pca(rows, center=False, bound=1.0),
                mu=MU,
                seed=next(seeds),
                method="rayleigh-flow",
                noise="fresh",
                noise_shape=shape,
                init=along,
                n_iterations=1,
                n_components=1,
            )

    def statistic(solution: dpgep.Solution) -> float:
        v, diagnostics = solution.components[0], solution.diagnostics
        return float((v @ across) / (v @ along) * diagnostics.quotients[0, 0] / diagnostics.step_size)  # type: ignore[union-attr]

    return MethodCase(
        mechanism,
        (np.vstack([others, E1]), np.vstack([others, E2])),
        statistic,
        GAUSSIAN_CLAIM,
        seen="component and quotient",
    )


def operator_case() -> MethodCase:
    """A release as an operator: `a`, by questions that all but repeat each other."""
    seeds = itertools.count()

    def mechanism(rows: Matrix) -> Matrix:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            operator = dpgep.release(
                dpgep.pca(rows, center=False, bound=1.0), mu=MU, seed=next(seeds), storage="operator"
            )
        questions = np.array([[1.0, 1.0, 1.0], [1.0, 1.001, 1.0], [1.0, 1.0, 1.000001]]) / math.sqrt(3)
        return np.linalg.solve(questions, np.array([operator.a @ question for question in questions]))

    return MethodCase(
        mechanism, (people(E1), people(E2)), lambda matrix: float(matrix[0, 0] - matrix[1, 1]), GAUSSIAN_CLAIM
    )


def operator_pair_case() -> MethodCase:
    """The same of a pair with sums and counts: `times`, sums and counts being those of its products."""
    problems = RELEASES["fda, class changes"]()
    seeds = itertools.count()

    def mechanism(problem: Any) -> ReleasedMoments | ReleasedMatrices:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            operator = dpgep.release(problem, mu=MU, seed=next(seeds), regularization=0.0, storage="operator")
        a, b = operator.times(np.eye(3))
        return known(problem, operator._products, a, b)

    return MethodCase(mechanism, problems, release_statistic(*problems), GAUSSIAN_CLAIM)


# --- samples ---------------------------------------------------------------------------------------------------------

SAMPLED_EPSILON, SAMPLED_DELTA = 12.0, 1e-6
# Where the bound is taken: at a delta so large, thousands of runs resolve epsilon; the claim there is the accountant's.
RESOLVED_DELTA = 0.2


def sampled_case(adjacency: Adjacency, n_sampled: int, n_full: int, rate: float, least: float) -> MethodCase:
    """All answers about samples, of one person who is there or not, or is replaced: their log-likelihood ratio.

    Where the person's row is e1 and all others are zero, an answer is its deviate plus 1 with probability q. Under
    replace-one, e1 becomes e2, and two entries tell. One source serves all runs, its answers being independent.
    """
    runs = 10 * RUNS
    asked = SampledMechanism(rate, n_sampled, n_full)
    calibrated = calibrate_sampled(asked, SAMPLED_EPSILON, SAMPLED_DELTA, adjacency, 0.5)
    enough = replace(calibrated, n_sampled=n_sampled * (runs + 1), n_full=n_full * (runs + 1))
    questions = np.eye(2)[: 1 if adjacency == "add-remove" else 2]

    def source(problem: Any, number: int) -> tuple[Any, int]:
        stream = stream_of(f"samples {adjacency} {n_sampled} {n_full} {number}")
        with (
            mock.patch.object(noisy_products, "calibrate_sampled", return_value=enough),
            dpgep.Budget(epsilon=SAMPLED_EPSILON, delta=SAMPLED_DELTA).reserve(adjacency=adjacency) as ledger,
        ):
            return Curator(problem, ledger, stream).answer(
                Samples(enough, Curator(problem, ledger, stream).target, 0.5)
            ).products, problem.facts.n

    def draw(source: tuple[Any, int]) -> tuple[Matrix, Matrix]:
        products, n = source
        sampled = [np.diagonal(products.ascend(questions, np.zeros(1))[1]) * (rate * n) for _ in range(n_sampled)]
        full = [np.diagonal(questions @ products.full(questions).T) * n for _ in range(n_full)]
        return np.reshape(sampled, (n_sampled, len(questions))), np.reshape(full, (n_full, len(questions)))

    def log_ratio(answer: Matrix, deviation: float, q: float) -> Matrix:
        absent = math.log1p(-q) if q < 1 else -math.inf
        return np.asarray(np.logaddexp(absent, math.log(q) + (answer - 0.5) / deviation**2))

    def statistic(answers: tuple[Matrix, Matrix]) -> float:
        sampled, full = answers
        total = np.zeros(len(questions))
        if n_sampled:
            total += log_ratio(sampled, calibrated.noise_sampled, rate).sum(axis=0)
        if n_full:
            total += log_ratio(full, calibrated.noise_full, 1.0).sum(axis=0)
        return float(total[0] if len(total) == 1 else total[1] - total[0])

    claim = {"epsilon": epsilon_of_event(calibrated.event(), RESOLVED_DELTA, adjacency), "delta": RESOLVED_DELTA}
    sources = tuple(source(problem, number) for number, problem in enumerate(_lone(adjacency)))
    return MethodCase(draw, (sources[0], sources[1]), statistic, claim, least, runs, gaussian=False)


def _lone(adjacency: Adjacency) -> tuple[Any, Any]:
    if adjacency == "replace-one":
        first, second = (np.vstack([np.zeros((3, 2)), row]) for row in np.eye(2))
        return dpgep.pca(first, center=False, bound=1.0), dpgep.pca(second, center=False, bound=1.0)
    rows = np.zeros((4, 2))
    rows[-1, 0] = 1.0
    first, second = (
        dpgep.pca(x, center=False, adjacency="add-remove", public_n=4, bound=1.0) for x in (rows[:-1], rows)
    )
    return first, second


# --- reports of single people ----------------------------------------------------------------------------------------


def local_case() -> MethodCase:
    """One report, of e1 or of e2."""
    d = 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        randomizer = GaussianRandomizer(d, 1.0, 12.0, 1e-6, seed=5)
    mu = randomizer.mechanism.mu

    def draw(row: Matrix) -> Matrix:
        return randomizer.randomize(row).matrices()[0]

    return MethodCase(
        draw,
        (np.eye(d)[0], np.eye(d)[1]),
        lambda report: float(report[1, 1] - report[0, 0]),
        {"mu": mu, "delta": DELTA},
        seen="likelihood ratio of the report",
    )


def local_mean_case() -> MethodCase:
    """The mean of local reports in one draw, of two people: it tells 1/sqrt(2) of what the report of one does."""
    problems = tuple(dpgep.pca(np.vstack([row, E1]), center=False, bound=1.0) for row in (E1, E2))
    stream = stream_of("mean of local reports")
    return MethodCase(
        lambda problem: curator_of(problem, stream).answer(LocalReports()),
        (problems[0], problems[1]),
        lambda released: float(released.second[1, 1] - released.second[0, 0]),
        GAUSSIAN_CLAIM,
        0.4,
    )


# --- all -------------------------------------------------------------------------------------------------------------


def _cases() -> dict[str, Callable[[], MethodCase]]:
    cases: dict[str, Callable[[], MethodCase]] = {}
    for name in RELEASES:
        if name.startswith("table"):  # a table is released as a whole
            continue
        cases[f"lazy products, {name}"] = lambda name=name: lazy_case(name, at_once)
        cases[f"fresh products, {name}"] = lambda name=name: fresh_case(name)
    for name in ("pca, uncentred", "cca, uncentred", "fda, class changes", "sir, same slice", "pca, centred, one less"):
        cases[f"lazy products asked adaptively, {name}"] = lambda name=name: lazy_case(name, adaptively)
    for name in ("pca, uncentred", "pca, uncentred, bound 3"):
        cases[f"fresh products, iid, {name}"] = lambda name=name: iid_case(name, (1, 1, 0), (1, -1, 0))
    name = "pca, uncentred, one less"
    cases[f"fresh products, iid, {name}"] = lambda: iid_case("pca, uncentred, one less", (1, 0, 0), (1, 0, 0))
    for name in (
        *("pca, uncentred", "pca, centred", "cca, uncentred", "fda, class changes", "fda, same class"),
        *("sir, slice changes", "pca, uncentred, one less", "pca, centred, one less", "fda, one less", "sir, one less"),
    ):
        cases[f"screen, {name}"] = lambda name=name: screen_case(name)
    cases["screen, gep"] = screen_of_matrix_case
    cases["screen, cca, uncentred, cross norms"] = lambda: cross_screen_case(center=False)
    cases["screen, cca, centred, cross norms"] = lambda: cross_screen_case(center=True)
    cases["screen, block and products, pca, uncentred"] = composed_case
    cases["release as an operator, pca, uncentred"] = operator_case
    cases["release as an operator, fda, class changes"] = operator_pair_case
    cases["solve, rayleigh-flow, one step, goe"] = lambda: one_step_case("goe")
    cases["solve, rayleigh-flow, one step, iid"] = lambda: one_step_case("iid")
    for method, options in (
        ("rayleigh-flow", {}),
        ("truncated-rayleigh-flow", {"sparsity": 3}),
        ("release", {"storage": "operator"}),
        ("sr-dp", {}),
        ("dpsr", {}),
        ("dpsrs", {"sparsity": 3}),
        ("local-gaussian", {}),
    ):
        # of n local reports, the mean tells 1/sqrt(n) of what one tells
        least = 0.05 if method == "local-gaussian" else 0.6
        cases[f"solve, {_title(method, options)}"] = lambda method=method, options=options, least=least: solution_case(
            least, method=method, **options
        )
    # the last of two products is published whole, the first not at all
    for method, options in (("dpsr", {}), ("dpsrs", {"sparsity": 3})):
        options = {**options, "noise": "fresh", "n_iterations_b": 1, "n_iterations_a": 1}
        cases[f"solve, {method}, fresh"] = lambda method=method, options=options: solution_case(
            0.4, method=method, **options
        )
    for adjacency, located in (("replace-one", False), ("replace-one", True), ("add-remove", False)):
        name = f"clipped products, {adjacency}{', located' if located else ''}"
        cases[name] = lambda adjacency=adjacency, located=located: clipped_case(adjacency, located)
    for adjacency in ("replace-one", "add-remove"):
        name = f"clipped products of two views, {adjacency}"
        cases[name] = lambda adjacency=adjacency: clipped_views_case(adjacency)
        cases[f"clipped residuals, {adjacency}"] = lambda adjacency=adjacency: clipped_views_case(adjacency, dpgep.cca)
    cases["samples, add-remove"] = lambda: sampled_case("add-remove", 4, 0, 0.5, 0.35)
    cases["samples and everybody, add-remove"] = lambda: sampled_case("add-remove", 2, 1, 0.5, 0.35)
    cases["samples, replace-one"] = lambda: sampled_case("replace-one", 4, 0, 0.5, 0.0)
    cases["local report"] = local_case
    cases["mean of local reports, two people"] = local_mean_case
    return cases


def _title(method: str, options: dict[str, Any]) -> str:
    return f"{method} by products" if options.get("storage") == "operator" else method


METHODS = _cases()
