"""Audits of ``bound="auto"``: each stage of preprocessing on its worst-case neighbours, and whole runs.

In a run, later questions depend on earlier answers. Both tables are asked each of them without noise, too, so that the
log-likelihood ratio of the whole transcript is known: given the past, that of each answer is normal with mean +-m/2
and variance m, its squared change over the noise's variance, and no path may add up to more than mu^2.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
from audit_cases import E1, E2, Matrix, people
from method_cases import GAUSSIAN_CLAIM, MU, MethodCase, stream_of

import dpgep
from dpgep._dispatch import core
from dpgep.data.dataset import InMemoryDataset
from dpgep.data.rows import Batch, Rows
from dpgep.models.bins import Interval
from dpgep.models.model import Adjacency, PublicFacts
from dpgep.models.moments import ReleasedMoments
from dpgep.privacy.curator import Curator, NoisyCounts, Release, Stages
from dpgep.privacy.ledger import Ledger
from dpgep.problems.builders import table_problem

ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "add-remove")
D = 3
ONES = np.ones(D)


def stages_of(table: Matrix, adjacency: Adjacency, mu: float, stream: core.NoiseStream) -> Stages:
    n = len(table) if adjacency == "replace-one" else None
    dataset = InMemoryDataset(Batch(Rows((table,), 1.0)))
    return Stages(dataset, PublicFacts(adjacency, None, n), table.shape[1], Ledger(mu), stream)


def neighbours(adjacency: Adjacency, first: Matrix, second: Matrix, others: Matrix) -> tuple[Matrix, Matrix]:
    """Tables whose last person is ``first`` or ``second``; nobody instead of ``second`` under add-remove."""
    return np.vstack([others, first]), others if adjacency == "add-remove" else np.vstack([others, second])


# --- single stages ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A question to `Stages` at a price of mu, and the two rows that move its answer the most."""

    ask: Callable[[Stages, float], NoisyCounts]
    first: Matrix
    second: Matrix


EVERY = np.arange(D)
UNIT = Interval(np.zeros(D), ONES)
NORMS = np.append(np.arange(-40, 5), [9, 17])
# an octave of each column; a part of each interval; another norm; u = 1 or -1; opposite ends of the ball, far outside
STAGES = {
    "histograms of magnitudes": Stage(lambda stages, mu: stages.magnitudes(EVERY, mu), ONES, -5 * ONES),
    "histograms within intervals": Stage(lambda stages, mu: stages.places(EVERY, UNIT, 32, mu), ONES, -ONES),
    "histogram of norms": Stage(lambda stages, mu: stages.norms(dpgep.Preprocessing(1.0), NORMS, mu), E1, 4 * E1),
    "sums of columns and squares": Stage(lambda stages, mu: stages.column_sums(UNIT, mu), ONES, -ONES),
    "sum of mapped rows": Stage(
        lambda stages, mu: stages.row_sum(dpgep.Preprocessing(2.0, ONES, ONES / 8), mu), 1e6 * E1, -1e6 * E1
    ),
}


def tables_of(name: str, adjacency: Adjacency) -> tuple[Matrix, Matrix]:
    return neighbours(adjacency, STAGES[name].first, STAGES[name].second, people(E1)[:-1])


def exact_answers(name: str, adjacency: Adjacency) -> list[Matrix]:
    """What a stage would answer without noise, on both tables."""
    asked = [stages_of(table, adjacency, math.inf, core.NoiseStream()) for table in tables_of(name, adjacency)]
    return [STAGES[name].ask(stages, math.inf).values for stages in asked]


def stage_case(name: str, adjacency: Adjacency, spent: float = MU) -> MethodCase:
    """One stage that claims mu = 3; ``spent`` is what its noise is made for."""
    stream = stream_of(f"{name}, {adjacency}")
    first, second = exact_answers(name, adjacency)
    return MethodCase(
        lambda table: STAGES[name].ask(stages_of(table, adjacency, spent, stream), spent).values,
        tables_of(name, adjacency),
        lambda values: float(np.vdot(second - first, values)),
        GAUSSIAN_CLAIM,
        seen="likelihood ratio of the answer",
    )


# --- whole runs ------------------------------------------------------------------------------------------------------


class Transcript:
    """The stages of a run, with what all answers so far tell of which of two tables it is about.

    Attributes
    ----------
    ratio : their log-likelihood ratio.
    told : sum of the squared changes over the variances of the noise: mu^2, if all neighbours are worst-case ones.
    """

    def __init__(self, asked: Stages, exact: list[Stages]) -> None:
        self._asked, self._exact = asked, exact
        self.ratio = self.told = 0.0

    def __getattr__(self, name: str) -> Any:
        known = getattr(self._asked, name)
        if not callable(known):
            return known

        def answered(*question: Any, **options: Any) -> NoisyCounts | ReleasedMoments:
            answer: NoisyCounts | ReleasedMoments = known(*question, **options)
            exact = [getattr(stages, name)(*question[:-1], math.inf, **options) for stages in self._exact]
            if isinstance(answer, ReleasedMoments):
                self.add_moments(answer, exact)
            else:
                self.add(answer.values, [one.values for one in exact], answer.deviation)
            return answer

        return answered

    def add(self, answer: Any, exact: Any, deviation: float) -> None:
        change = (exact[1] - exact[0]) / deviation
        self.told += float(np.vdot(change, change))
        self.ratio += float(np.vdot(change, (answer - (exact[0] + exact[1]) / 2) / deviation))

    def add_moments(self, answer: ReleasedMoments, exact: list[ReleasedMoments]) -> None:
        for block in ("second", "sums", "counts"):
            deviation = getattr(answer.noise, block) * answer.n
            if deviation:
                values = [getattr(released, block) * released.n for released in exact]
                self.add(getattr(answer, block) * answer.n, values, deviation)


def transcript(build: Callable[..., Any], table: Matrix, tables: Any, mu: float, seed: int) -> Transcript:
    """All answers of a run with a budget of mu: the stages, and the release of the mapped rows."""
    kept: list[Transcript] = []

    def stages(dataset: Any, facts: Any, n_columns: int, *rest: Any, **options: Any) -> Transcript:
        datasets = [build(rows).dataset for rows in tables]
        ledgers = [Ledger(math.inf) for _ in tables]
        exact = [
            Stages(each, facts, n_columns, ledger, core.NoiseStream(), **options)
            for each, ledger in zip(datasets, ledgers, strict=True)
        ]
        kept.append(Transcript(Stages(dataset, facts, n_columns, *rest, **options), exact))
        return kept[0]

    with mock.patch("dpgep.run.Stages", stages), warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.PrivacyWarning)
        released = dpgep.release(build(table), mu=mu, seed=seed)
    exact = [
        Curator(build(rows, released.preprocessing), Ledger(math.inf), core.NoiseStream()).answer(Release())
        for rows in tables
    ]
    kept[0].add_moments(released._noisy, exact)
    return kept[0]


@dataclass(frozen=True)
class Run:
    """A run of ``bound="auto"``: a builder for rows, and the two rows that tell much in each of its answers."""

    build: Callable[..., Any]
    first: Matrix
    second: Matrix
    least: float
    preprocessing: Any = None


# Others lie in the cube [-1, 1]. The two rows are clipped wherever they can be, have different norms, and lie at
# opposite ends of the columns: these move sums the most, and second moments, for which rows must be orthogonal, not.
N_OTHERS = 400
_cca = Run(lambda x, **rest: dpgep.cca(x[:, :1], x[:, 1:], **rest), 2.01 * ONES, -1e6 * ONES, 0.4)
RUNS = {
    "pca, uncentred": Run(lambda x, **rest: dpgep.pca(x, center=False, **rest), 9 * E1, 99 * E2, 0.6),
    "pca": Run(dpgep.pca, 99 * E1, -999 * E1, 0.4),
    "cca": _cca,
    "table": replace(_cca, build=table_problem),
    "table of groups": replace(
        _cca, build=lambda x, **rest: table_problem(x, x[:, 0], edges=[-np.inf, 0, np.inf], **rest)
    ),
    "cca, full preconditioning": replace(_cca, preprocessing=dpgep.AutoPreprocessing(precondition="full")),
}


def run_case(name: str, adjacency: Adjacency, spent: float = MU) -> MethodCase:
    """A run that claims mu = 3; ``spent`` is what it spends. No path may tell more than that, not only on average."""
    run, seeds = RUNS[name], itertools.count()
    others = np.random.default_rng(7).uniform(-1, 1, (N_OTHERS, D))
    tables = neighbours(adjacency, run.first, run.second, others)

    def build(rows: Matrix, preprocessing: Any = run.preprocessing) -> Any:
        return run.build(rows, preprocessing=preprocessing, adjacency=adjacency)

    def mechanism(table: Matrix) -> float:
        answers = transcript(build, table, tables, spent, next(seeds))
        assert answers.told <= spent**2 * (1 + 1e-9), "a path tells more than the budget"
        return answers.ratio

    return MethodCase(mechanism, tables, float, GAUSSIAN_CLAIM, run.least)


def _cases() -> dict[str, Callable[[], MethodCase]]:
    cases: dict[str, Callable[[], MethodCase]] = {}
    for adjacency in ADJACENCIES:
        less = "" if adjacency == "replace-one" else ", one less"
        for name in STAGES:
            cases[f"stage, {name}{less}"] = lambda name=name, adjacency=adjacency: stage_case(name, adjacency)
        for name in RUNS:
            cases[f'bound="auto", {name}{less}'] = lambda name=name, adjacency=adjacency: run_case(name, adjacency)
    return cases


PREPROCESSING = _cases()
