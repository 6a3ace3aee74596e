"""Audits of ``bound="auto"``: each stage of a preparation on its worst-case neighbours, and whole runs.

In a run, later questions depend on earlier answers. Both tables are asked each of them without noise, too, so that the
log-likelihood ratio of the whole transcript is known: given the past, that of each answer is normal with mean +-m/2
and variance m, its squared change over the noise's variance, and no path may add up to more than mu^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from audit_cases import E1, E2, Matrix, people
from method_cases import GAUSSIAN_CLAIM, MU, MethodCase, stream_of

import dpgep
from dpgep._dispatch import core
from dpgep.data.dataset import InMemoryDataset
from dpgep.data.rows import Batch, Rows
from dpgep.methods.preparing import prepare
from dpgep.models.bins import Interval
from dpgep.models.model import Adjacency, PublicFacts
from dpgep.privacy.curator import Curator
from dpgep.privacy.ledger import Ledger
from dpgep.privacy.stages import NoisyCounts, Stages

ADJACENCIES: tuple[Adjacency, ...] = ("replace-one", "add-remove")
D = 3
ONES = np.ones(D)


def stages_of(table: Matrix, adjacency: Adjacency, mu: float, stream: core.NoiseStream) -> Stages:
    n = len(table) if adjacency == "replace-one" else None
    dataset = InMemoryDataset(Batch(Rows((table,), 1.0)))
    return Stages(dataset, PublicFacts(adjacency, None, n), table.shape[1], Ledger(mu), stream)


def neighbours(adjacency: Adjacency, first: Matrix, second: Matrix, others: Matrix | None = None) -> Any:
    """Tables whose last person is ``first`` or ``second``; nobody instead of ``second`` under add-remove."""
    table = people(first) if others is None else np.vstack([others, first])
    return table, table[:-1] if adjacency == "add-remove" else np.vstack([table[:-1], second])


# --- single stages ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A question to `Stages` at a price of mu, and the two rows that move its answer the most."""

    ask: Callable[[Stages, float], NoisyCounts]
    first: Matrix
    second: Matrix


EVERY = np.arange(D)
UNIT = Interval(np.zeros(D), ONES)
# an octave of each column; a part of each interval; another norm; u = 1 or -1; opposite ends of the ball, far outside
STAGES = {
    "histograms of magnitudes": Stage(lambda stages, mu: stages.magnitudes(EVERY, mu), ONES, -5 * ONES),
    "histograms within intervals": Stage(lambda stages, mu: stages.places(EVERY, UNIT, 32, mu), ONES, -ONES),
    "histogram of norms": Stage(lambda stages, mu: stages.norms(dpgep.Preparation(1.0), -40, 80, mu), E1, 4 * E1),
    "sums of columns and squares": Stage(lambda stages, mu: stages.column_sums(UNIT, mu), ONES, -ONES),
    "sum of mapped rows": Stage(
        lambda stages, mu: stages.row_sum(dpgep.Preparation(2.0, ONES, ONES / 8), mu), 1e6 * E1, -1e6 * E1
    ),
}


def stage_case(name: str, adjacency: Adjacency, spent: float = MU) -> MethodCase:
    """One stage that claims mu = 3; ``spent`` is what its noise is made for."""
    stage, stream = STAGES[name], stream_of(f"{name}, {adjacency}")
    tables = neighbours(adjacency, stage.first, stage.second)
    first, second = (stage.ask(stages_of(table, adjacency, math.inf, stream), math.inf).values for table in tables)
    return MethodCase(
        lambda table: stage.ask(stages_of(table, adjacency, spent, stream), spent).values,
        tables,
        lambda values: float(np.vdot(second - first, values)),
        GAUSSIAN_CLAIM,
        seen="likelihood ratio of the answer",
    )


# --- whole runs ------------------------------------------------------------------------------------------------------


class Transcript:
    """The stages of a run on ``table``, with what all answers so far tell of which of two tables it is.

    Attributes
    ----------
    ratio : their log-likelihood ratio.
    told : sum of the squared changes over the variances of the noise: mu^2, if all neighbours are worst-case ones.
    """

    def __init__(
        self, table: Matrix, tables: tuple[Matrix, Matrix], adjacency: Adjacency, mu: float, stream: core.NoiseStream
    ) -> None:
        self.asked = stages_of(table, adjacency, mu, stream)
        self.ledger = self.asked._ledger
        self._exact = [stages_of(each, adjacency, math.inf, stream) for each in tables]
        self.ratio = self.told = 0.0

    def __getattr__(self, name: str) -> Any:
        known = getattr(self.asked, name)
        if not callable(known):
            return known

        def answered(*question: Any) -> NoisyCounts:
            answer: NoisyCounts = known(*question)
            exact = [getattr(stages, name)(*question[:-1], math.inf).values for stages in self._exact]
            self.add(answer.values, exact, answer.deviation)
            return answer

        return answered

    def add(self, answer: Any, exact: Any, deviation: float) -> None:
        change = (exact[1] - exact[0]) / deviation
        self.told += float(np.vdot(change, change))
        self.ratio += float(np.vdot(change, (answer - (exact[0] + exact[1]) / 2) / deviation))


@dataclass(frozen=True)
class Run:
    """A run of ``bound="auto"``: its model, and what of a preparation the model allows."""

    build: Callable[..., Any]
    scaled: bool
    shifted: bool
    first: Matrix
    second: Matrix
    least: float = 0.6


# Others lie in the cube [-1, 1]. The two rows are clipped everywhere, to opposite ends of columns, with other norms, and
# are orthogonal where that moves the moments the most.
RUNS = {
    "pca, uncentred": Run(lambda x, **rest: dpgep.pca(x, center=False, **rest), False, False, 9 * E1, 99 * E2),
    "pca": Run(dpgep.pca, False, True, 99 * E1, -999 * E1, 0.45),
    "cca": Run(lambda x, **rest: dpgep.cca(x[:, :1], x[:, 1:], **rest), True, True, 2.01 * ONES, -1e6 * ONES, 0.45),
}
N_OTHERS = 400
# A model with groups of one row moves second moments and sums, which have worst neighbours of their own


def transcript(run: Run, table: Matrix, tables: Any, adjacency: Adjacency, mu: float, stream: Any) -> Transcript:
    """All answers of a run with a budget of mu: the stages, and the release of the prepared rows."""
    answers = Transcript(table, tables, adjacency, mu, stream)
    preparation = prepare(answers, dpgep.Auto(), scaled=run.scaled, shifted=run.shifted)  # type: ignore[arg-type]

    def released(rows: Matrix, ledger: Ledger) -> Any:
        return Curator(run.build(rows, bound=preparation, adjacency=adjacency), ledger, stream).release()

    noisy = released(table, answers.ledger)
    exact = [released(rows, Ledger(math.inf)) for rows in tables]
    for block in ("second", "sums", "counts"):
        deviation = getattr(noisy.noise, block) * noisy.n
        if deviation:
            values = [getattr(each, block) * each.n for each in exact]
            answers.add(getattr(noisy, block) * noisy.n, values, deviation)
    return answers


def run_case(name: str, adjacency: Adjacency, spent: float = MU) -> MethodCase:
    run, stream = RUNS[name], stream_of(f"run, {name}, {adjacency}")
    others = np.random.default_rng(7).uniform(-1, 1, (N_OTHERS, D))
    tables = neighbours(adjacency, run.first, run.second, others)

    def mechanism(table: Matrix) -> float:
        answers = transcript(run, table, tables, adjacency, spent, stream)
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


PREPARATIONS = _cases()
