"""What is attacked by its last bits: the numbers that each method publishes, on rows whose sums end differently.

The last of n people is e1 or (1/2, 1/8, ..., 1/8), all others are zero; each class or slice but that person's has
others. So sums and products are 0 on one side where they are 1/8, or 1/16, on the other, and n is a power of two, by
which numbers are divided without a trace.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from audit_cases import CONFIDENCE, Matrix
from method_cases import curator_of, stream_of
from stage_cases import STAGES, stages_of
from stage_cases import D as STAGE_COLUMNS

import dpgep
from dpgep.auditing.bounds import numbers_in
from dpgep.auditing.statistical import AuditResult, audit, audit_samples
from dpgep.local import GaussianRandomizer
from dpgep.privacy.accounting import SampledMechanism, epsilon_of
from dpgep.privacy.clipped_products import Asked, ClippedMean, ClippedMoment, Mean, ProductNorms
from dpgep.privacy.curator import Curator, Release
from dpgep.privacy.products import ProductNoise, Products, Samples
from dpgep.privacy.screening import Scores

N, D = 64, 49
ALONE = np.eye(D)[0]
SPREAD = np.append(0.5, np.full(D - 1, 0.125))
GROUPS = np.append(np.arange(N - 1) % 2, 2)
DELTA = 1e-6

Mechanism = Callable[[Matrix], Any]


@dataclass(frozen=True)
class LowBitCase:
    """An attack on everything in the output of ``mechanism``, which takes rows."""

    mechanism: Mechanism
    claim: dict[str, float]

    def audit(self, runs: int) -> AuditResult:
        rows = [np.vstack([np.zeros((N - 1, D)), last]) for last in (ALONE, SPREAD)]
        return audit(
            self.mechanism,
            (rows[0], rows[1]),
            None,
            runs=runs,
            confidence=CONFIDENCE,
            low_bits=True,
            **self.claim,  # type: ignore[arg-type]
        )


MODELS: dict[str, Callable[..., Any]] = {
    "pca, uncentred": lambda rows, **options: dpgep.pca(rows, center=False, **{"bound": 1.0, **options}),
    "pca": lambda rows, **options: dpgep.pca(rows, **{"bound": 1.0, **options}),
    "cca, uncentred": lambda rows, **options: dpgep.cca(
        rows[:, :25], rows[:, 25:], center=False, **{"bound": 1.0, **options}
    ),
    "cca": lambda rows, **options: dpgep.cca(rows[:, :25], rows[:, 25:], **{"bound": 1.0, **options}),
    "fda": lambda rows, **options: dpgep.fda(rows, GROUPS, classes=[0, 1, 2], **{"bound": 1.0, **options}),
    "sir": lambda rows, **options: dpgep.sir(rows, GROUPS + 0.5, slices=3, y_range=(0, 3), **{"bound": 1.0, **options}),
    "gep": lambda rows: dpgep.gep(rows.T @ rows / N, n=N, sensitivity_a=math.sqrt(2)),
    "gep, private B": lambda rows: dpgep.gep(
        np.eye(D), rows.T @ rows / N, n=N, sensitivity_a=0.0, sensitivity_b=math.sqrt(2)
    ),
}
ROWS = [name for name in MODELS if not name.startswith("gep")]


def _release(model: str, mu: float) -> Mechanism:
    stream = stream_of(f"bits: release {model}")

    def mechanism(rows: Matrix) -> Any:
        released: Any = curator_of(MODELS[model](rows), stream, mu).answer(Release())
        if model.startswith("gep"):
            return released.a[0], None if released.b is None else released.b[0]
        return released.second[0], released.sums, released.counts

    return mechanism


def _products(model: str, mu: float, kind: Any, shape: Any) -> Mechanism:
    """The answers to e1, and what is released beside them."""
    stream = stream_of(f"bits: {kind} {shape} {model}")

    def mechanism(rows: Matrix) -> Any:
        products = curator_of(MODELS[model](rows), stream, mu).answer(Products(ProductNoise(kind, shape, 1)))
        answers = products.times(np.eye(D)[:1])
        return answers if products.groups is None else (*answers, products.groups.sums, products.groups.counts)

    return mechanism


def _clipped(model: str, mu: float) -> Mechanism:
    """The answer to directions that no grid holds, one of each view, and what else is asked beside it."""
    views = [slice(0, 25), slice(25, D)] if model == "pls" else [slice(0, D)]
    vectors = np.zeros((len(views), D))
    for vector, view in zip(vectors, views, strict=True):
        vector[view] = 1 / math.sqrt(len(vector[view]))
    stream, asked, thresholds = stream_of(f"bits: clipped {model}"), Asked(vectors), (0.1,) * len(views)

    def mechanism(rows: Matrix) -> Any:
        problem = dpgep.pls(rows[:, :25], rows[:, 25:], bound=1.0) if model == "pls" else MODELS[model](rows)
        curator = curator_of(problem, stream, mu)
        answers = (
            curator.answer(ClippedMean(asked, thresholds), 0.3),
            curator.answer(ClippedMoment(asked, thresholds), 0.3),
        )
        return [
            answer.values
            for answer in (*answers, curator.answer(ProductNorms(asked), 0.2), curator.answer(Mean(), 0.2))
        ]

    return mechanism


def _screen(model: str, mu: float) -> Mechanism:
    stream = stream_of(f"bits: screen {model}")
    return lambda rows: curator_of(MODELS[model](rows), stream, mu).answer(Scores())


def _quietly(mechanism: Callable[[Matrix, int], Any]) -> Mechanism:
    seeds = itertools.count()

    def quiet(rows: Matrix) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mechanism(rows, next(seeds))

    return quiet


def _operator(model: str, mu: float) -> Mechanism:
    return _quietly(
        lambda rows, seed: dpgep.release(MODELS[model](rows), mu=mu, seed=seed, storage="operator").a @ ALONE
    )


def _solution(model: str, mu: float, **options: Any) -> Mechanism:
    def solved(rows: Matrix, seed: int) -> Any:
        solution = dpgep.solve(MODELS[model](rows), mu=mu, seed=seed, n_components=1, **options)
        return solution.components, solution.eigenvalues, solution.mean

    return _quietly(solved)


def _stage(name: str, mu: float) -> Mechanism:
    """A stage of preprocessing of the first columns."""
    stream = stream_of(f"bits: {name}")
    return lambda rows: STAGES[name].ask(stages_of(rows[:, :STAGE_COLUMNS], "replace-one", mu, stream), mu).values


def _prepared(model: str, mu: float, auto: dpgep.AutoPreprocessing) -> Mechanism:
    """A solution with a bound that is bought, and what was bought."""

    def solved(rows: Matrix, seed: int) -> Any:
        solution = dpgep.solve(MODELS[model](rows, bound="auto", preprocessing=auto), mu=mu, seed=seed, n_components=1)
        preprocessing: Any = solution.preprocessing
        # whether rows are shifted depends on the noise
        bought = (
            preprocessing.bound,
            *(np.zeros(D) if part is None else part for part in preprocessing.parts().values()),
        )
        return solution.components, solution.eigenvalues, solution.mean, *bought

    return _quietly(solved)


def _samples(epsilon: float) -> Mechanism:
    """Answers about a sample to the first coordinates, and about everybody to e1."""
    stream = stream_of("bits: samples")

    def mechanism(rows: Matrix) -> Any:
        with dpgep.Budget(epsilon=epsilon, delta=DELTA).reserve(adjacency="replace-one") as ledger:
            problem = dpgep.pca(rows, center=False, bound=1.0)
            answers = (
                Curator(problem, ledger, stream)
                .answer(Samples(SampledMechanism(0.5, 1, 1), Curator(problem, ledger, stream).target, 0.5))
                .products
            )
            return answers.ascend(np.eye(D)[:8], np.zeros(1))[1], answers.full(np.eye(D)[:1])

    return mechanism


def _stochastic(epsilon: float, **options: Any) -> Mechanism:
    def solved(rows: Matrix, seed: int) -> Any:
        problem = dpgep.pca(rows, center=False, bound=1.0)
        options_of_all = {"epsilon": epsilon, "delta": DELTA, "seed": seed, "n_components": 1, "init": ALONE}
        solution = dpgep.solve(problem, batch_size=N // 2, **options_of_all, **options)
        return solution.components, solution.eigenvalues

    return _quietly(solved)


FEW_STEPS = {"n_iterations": 3}


def low_bit_cases(mu: float) -> dict[str, Callable[[], LowBitCase]]:
    """All attacks at a budget of ``mu``; those on samples at the epsilon that belongs to it."""
    mechanisms: dict[str, Callable[[], Mechanism]] = {}
    for model in MODELS:
        mechanisms[f"release, {model}"] = lambda model=model: _release(model, mu)
        mechanisms[f"lazy products, {model}"] = lambda model=model: _products(model, mu, "lazy", "goe")
        mechanisms[f"fresh products, {model}"] = lambda model=model: _products(model, mu, "fresh", "goe")
        if not model.startswith("cca"):
            mechanisms[f"fresh products, iid, {model}"] = lambda model=model: _products(model, mu, "fresh", "iid")
        mechanisms[f"screen, {model}"] = lambda model=model: _screen(model, mu)
    for model in ("pca", "pls"):
        mechanisms[f"clipped products, {model}"] = lambda model=model: _clipped(model, mu)
    for model in ("pca, uncentred", "cca, uncentred", "gep"):
        mechanisms[f"release as an operator, {model}"] = lambda model=model: _operator(model, mu)
    for name, model, options in (
        ("rayleigh-flow", "pca", {"method": "rayleigh-flow", **FEW_STEPS}),
        ("rayleigh-flow", "cca", {"method": "rayleigh-flow", **FEW_STEPS}),
        ("rayleigh-flow, fresh", "pca", {"method": "rayleigh-flow", "noise": "fresh", **FEW_STEPS}),
        ("truncated-rayleigh-flow", "cca", {"method": "truncated-rayleigh-flow", "sparsity": 2, **FEW_STEPS}),
        ("release by products", "pca", {"storage": "operator", "memory_limit": 1 << 15}),
        ("clipped-power", "pca", {"method": "clipped-power", **FEW_STEPS}),
        ("clipped-power", "pca, uncentred", {"method": "clipped-power", "threshold": 0.25, **FEW_STEPS}),
        ("clipped-power", "cca", {"method": "clipped-power", "n_iterations": 4}),
        ("dpsr", "pca", {"method": "dpsr", "n_iterations_a": 2}),
        ("dpsrs", "pca", {"method": "dpsrs", "sparsity": 2, "n_iterations_a": 2}),
    ):
        mechanisms[f"solve, {name}, {model}"] = lambda model=model, options=options: _solution(model, mu, **options)
    for name in STAGES:
        mechanisms[f"stage, {name}"] = lambda name=name: _stage(name, mu)
    for model, precondition in (("pca", None), ("fda", None), ("cca", "columns"), ("cca", "full")):
        title = f'bound="auto", {model}' + (f", {precondition}" if precondition else "")
        auto = dpgep.AutoPreprocessing(precondition=precondition)  # type: ignore[arg-type]
        mechanisms[title] = lambda model=model, auto=auto: _prepared(model, mu, auto)
    claim = {"mu": mu, "delta": DELTA}
    cases = {name: lambda made=made: LowBitCase(made(), claim) for name, made in mechanisms.items()}
    epsilon = epsilon_of(mu, DELTA)
    sampled = {"epsilon": epsilon, "delta": DELTA}
    cases["samples"] = lambda: LowBitCase(_samples(epsilon), sampled)
    cases["solve, dp-spca"] = lambda: LowBitCase(_stochastic(epsilon, method="dp-spca", n_passes=1), sampled)
    cases["solve, dp-vrpca"] = lambda: LowBitCase(
        _stochastic(epsilon, method="dp-vrpca", n_passes=2, n_epochs=1), sampled
    )
    return cases


# --- reports of single people ----------------------------------------------------------------------------------------

REPORTS = 200_000


@dataclass(frozen=True)
class ReportAttack:
    """An attack on local reports of one record or another, which are made and judged many at a time."""

    records: tuple[Matrix, Matrix]
    epsilon: float
    n: int

    def audit(self, runs: int = 0) -> AuditResult:
        """``runs`` is not used: reports are cheap, and there are ``n`` of each record."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            randomizer = GaussianRandomizer(len(self.records[0]), 1.0, self.epsilon, 1e-7, seed=3)
        samples = []
        for record in self.records:
            values = numbers_in(randomizer.randomize_rows(np.tile(record, (self.n, 1))).values)
            samples.append(np.hstack([part.reshape(self.n, -1) for part in values]))
        return audit_samples(
            *samples,
            low_bits=True,
            confidence=CONFIDENCE,
            delta=1e-7,
            claimed_epsilon=self.epsilon,
            claimed_mu=randomizer.mechanism.mu,
        )


REPORT_ATTACKS: dict[str, Callable[[], ReportAttack]] = {
    "local reports of e1 or e2": lambda: ReportAttack((np.eye(2)[0], np.eye(2)[1]), 4.0, REPORTS),
    "local reports of e1 or (1, ..., 1)/sqrt(8)": lambda: ReportAttack(
        (np.eye(8)[0], np.full(8, math.sqrt(0.125))), 1.0, REPORTS // 10
    ),
    "local reports of two ordinary records": lambda: ReportAttack(
        (np.array([0.5, 0.1, 0.3, 0.2, 0.7, 0.1, 0.2, 0.1]), np.array([0.1, 0.4, -0.2, 0.6, 0.1, 0.5, 0.3, -0.1])),
        1.0,
        REPORTS // 10,
    ),
}


# --- negative controls: floating-point noise on floating-point data --------------------------------------------------

Drawn = tuple[Matrix, Matrix]


def float_reports(rng: np.random.Generator, first: Matrix, second: Matrix, mu: float, runs: int) -> Drawn:
    """Of two rows, (runs, d (d + 1)/2) upper triangles of x x^T plus doubles: mu-GDP on paper."""
    upper = np.triu_indices(len(first))
    deviations = np.where(upper[0] == upper[1], 1.0, math.sqrt(0.5)) * math.sqrt(2) / mu
    first_products, second_products = (np.outer(x, x)[upper] for x in (first, second))
    shape = (runs, len(deviations))
    return (
        first_products + deviations * rng.standard_normal(shape),
        second_products + deviations * rng.standard_normal(shape),
    )


def float_sums(rng: np.random.Generator, mu: float, runs: int) -> Drawn:
    """Means of rows, a floating-point sum plus doubles: the deviation is that of rows that differ by at most 2."""
    deviation = 2 / mu
    return tuple((x + deviation * rng.standard_normal((runs, D))) / N for x in (ALONE, SPREAD))  # type: ignore[return-value]


def float_products(rng: np.random.Generator, mu: float, runs: int) -> Drawn:
    """Products of the second moment with e1 plus what GOE noise times e1 is."""
    deviations = np.append(1.0, np.full(D - 1, math.sqrt(0.5))) * math.sqrt(2) / mu
    return tuple((x * x[0] + deviations * rng.standard_normal((runs, D))) / N for x in (ALONE, SPREAD))  # type: ignore[return-value]


FLOAT_CONTROLS: dict[str, Callable[[np.random.Generator, float, int], Drawn]] = {
    "reports": lambda rng, mu, runs: float_reports(rng, ALONE[:9], np.full(9, 1 / 3), mu, runs),
    "sums": float_sums,
    "products": float_products,
}


def rounded_to_a_grid(samples: Drawn, grid: float) -> Drawn:
    """The same, published as multiples of a public grid: what the sums end in is gone."""
    first, second = (np.rint(numbers / grid) * grid for numbers in samples)
    return first, second
