"""What a user writes: a program over the public API, run by the tests and clean under mypy --strict and pyright strict.

A clinic publishes what its patients' measurements have in common: planned before there are data, bought from one
budget, looked at, kept, and checked by an audit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from stored import bytes_of

import dpgep
from dpgep import planning, plot
from dpgep.local import Aggregator, GaussianRandomizer
from dpgep.planning import Plan
from dpgep.problems.problem import Problem
from dpgep.results.classifiers import LinearClassifier
from dpgep.results.estimates import MatrixEstimate
from dpgep.results.intervals import Intervals
from dpgep.results.least_squares import Regression
from dpgep.results.matrix_free import MatrixFreeRelease

Matrix = NDArray[np.float64]

DELTA = 1e-6
WARDS = ("north", "south", "west")


@dataclass(frozen=True)
class Patients:
    """Rows of one ward: measurements, a second view, the ward, and an outcome."""

    measured: Matrix
    followed: Matrix
    wards: list[str]
    outcome: Matrix

    def __len__(self) -> int:
        return len(self.measured)


def patients(n: int, seed: int) -> Patients:
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 2))
    measured = 0.3 * rng.standard_normal((n, 5))
    measured += common[:, [0, 1, 0, 0, 1]]
    followed = 0.4 * rng.standard_normal((n, 3))
    followed[:, 0] += common[:, 0]
    number = rng.integers(0, len(WARDS), n)
    measured[:, 2] += number
    outcome = np.clip(common[:, 0] + 0.1 * rng.standard_normal(n), -3.0, 3.0)
    return Patients(measured, followed, [WARDS[k] for k in number], outcome)


def batches(rows: Matrix, size: int) -> Iterator[Matrix]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def people_needed(error: float) -> int:
    """How many people are needed, before there are any."""
    plan: Plan = planning.plan("pca", n=5000, d=5, epsilon=1.0, delta=DELTA, bound=4.0, spectrum=[1.0, 0.5])
    print(plan)
    low: float = plan.sample.span_low
    assert low <= plan.sample.span <= plan.sample.span_high
    enough = plan.people_for(error, against="population")
    return min(enough, math.ceil(1e6))


def unknown(solution: dpgep.Solution) -> list[int]:
    """Numbers of components of which more than a tenth is expected to be noise."""
    diagnostics = solution.diagnostics
    errors = diagnostics.expected_error
    worst: float = float(errors.max())
    assert worst <= 1.0
    assert diagnostics.noise_level >= 0.0
    assert diagnostics.expected_subspace_error <= solution.n_components
    if diagnostics.spectrum is not None:
        assert len(diagnostics.spectrum) <= solution.model.n_features
    if diagnostics.eigengaps is not None:
        assert diagnostics.eigengaps.shape == errors.shape
    return [number for number, error in enumerate(errors.tolist(), 1) if error > 0.1]


def summary(solution: dpgep.Solution) -> dict[str, float]:
    """The guarantee, the price of each stage, and the largest eigenvalue."""
    report: dpgep.PrivacyReport = solution.privacy
    found = {f"paid for {entry.query}": entry.mu or 0.0 for entry in report.releases}
    found["epsilon at 1e-9"] = report.epsilon_at(1e-9)
    if report.epsilon is not None and report.mu is not None:
        found |= {"epsilon": report.epsilon, "mu": report.mu}
    if solution.has_intervals:
        intervals: Intervals = solution.intervals(0.95)
        found["low"], found["high"] = intervals.eigenvalues[0].tolist()
        found["degrees"] = float(intervals.angles[0])
        if intervals.loadings is not None:
            found["widest loading"] = float(np.ptp(intervals.loadings, axis=2).max())
    return found


def analyses(people: Patients) -> dict[str, Problem]:
    """The questions of the year."""
    x, y = people.measured, people.followed
    return {
        "common": dpgep.pca(x, standardize=True),
        "views": dpgep.cca(x, y, bound=6.0),
        "covarying": dpgep.pls(x, y, bound=6.0),
        "wards": dpgep.fda(x, people.wards, classes=WARDS, bound=6.0),
        "outcome": dpgep.sir(x, people.outcome, slices=5, y_range=(-3.0, 3.0), bound=6.0),
    }


def within_one_budget(people: Patients, epsilon: float) -> dict[str, dpgep.Solution]:
    """All of them from one budget, each for an equal share."""
    problems = analyses(people)
    budget = dpgep.Budget(epsilon=epsilon, delta=DELTA)
    solutions = {
        name: dpgep.solve(problem, budget=budget, share=1 / len(problems), n_components=leading)
        for (name, problem), leading in zip(problems.items(), (2, 1, 1, 1, 1), strict=True)
    }
    assert budget.remaining_mu < 1e-3
    try:
        dpgep.solve(problems["common"], budget=budget)
    except dpgep.errors.PrivacyBudgetError as error:
        print("refused:", error)
    return solutions


def scores(solution: dpgep.Solution, people: Patients) -> tuple[Matrix, Matrix]:
    """Coordinates of patients in both views: no more private than the patients."""
    x, y = solution.transform(people.measured, people.followed)
    only_x = solution.transform(people.measured)
    assert np.array_equal(x, only_x)
    return x, y


def questions(people: Patients) -> float:
    """One release of a table, and what it is asked."""
    release: dpgep.Release = dpgep.release(people.measured, bound=6.0, epsilon=2.0, delta=DELTA)
    kept = dpgep.load(bytes_of(release))
    correlations: MatrixEstimate = kept.correlation([0, 1, 2], level=0.9)
    assert (correlations.low <= correlations.high).all()
    fitted: Regression = kept.regression(0, [1, 2])
    predicted = fitted.predict(people.measured[:, 1:3])
    leading = kept.pca([0, 1, 2], n_components=1)
    assert leading.privacy.release == kept.fingerprint
    return float(np.corrcoef(predicted, people.measured[:, 0])[0, 1]) ** 2


def classified(people: Patients, others: Patients) -> float:
    """The share of other patients whose ward a released rule finds."""
    release: dpgep.Release = dpgep.release(
        people.measured, labels=people.wards, classes=WARDS, bound=6.0, epsilon=2.0, delta=DELTA
    )
    rule: LinearClassifier = release.classifier()
    chances: Matrix = rule.predict_proba(others.measured)
    assert chances.shape == (len(others), len(WARDS))
    found: list[str] = rule.predict(others.measured).tolist()
    return sum(guess == ward for guess, ward in zip(found, others.wards, strict=True)) / len(found)


def by_the_day(days: list[Matrix]) -> dpgep.Solution:
    """Sums over days, merged, and solved once."""
    model = dpgep.models.PcaModel(5, True)
    sums = [dpgep.Moments(model, bound=4.0) for _ in days]
    for day, of_day in zip(days, sums, strict=True):
        for batch in batches(day, 500):
            of_day.update(batch)
    total = dpgep.load(bytes_of(sums[0]))
    for of_day in sums[1:]:
        total.merge(of_day)
    assert total.n == sum(map(len, days))
    return dpgep.solve(total, epsilon=1.0, delta=DELTA, n_components=1)


def without_a_curator(people: Patients) -> dpgep.Solution:
    """Reports that each patient's own device makes private."""
    client = GaussianRandomizer(5, bound=4.0, epsilon=8.0, delta=DELTA)
    server = Aggregator(5, bound=4.0, epsilon=8.0, delta=DELTA)
    server.add(client.randomize_rows(people.measured))
    server.add(client.randomize(people.measured[0]).to_bytes())
    assert server.n_reports == len(people) + 1
    return server.solve(n_components=1)


def pictures(solution: dpgep.Solution) -> Figure:
    figure = Figure(figsize=(12, 8))
    axes: list[Axes] = [figure.add_subplot(2, 3, number) for number in range(1, 6)]
    draw: list[Callable[[dpgep.Solution], Axes]] = [
        lambda found: plot.scree(found, ax=axes[0]),
        lambda found: plot.components(found, 1, ax=axes[1]),
        lambda found: plot.loadings(found, ax=axes[2]),
        lambda found: plot.biplot(found, ax=axes[3]),
        lambda found: plot.prices(found.privacy, ax=axes[4]),
    ]
    for one in draw:
        assert one(solution) in axes
    return figure


def audited(rows: Matrix) -> dpgep.auditing.AuditResult:
    changed = rows.copy()
    changed[0] = np.roll(rows[0], 1)
    return dpgep.auditing.audit(
        lambda data: dpgep.pca(data, center=False, bound=4.0),
        (rows, changed),
        None,
        released=True,
        gaussian=True,
        mu=1.0,
        runs=40,
        seed=1,
    )


def main(n: int = 4000) -> dict[str, float]:
    print("people needed:", people_needed(0.05))
    people, others = patients(n, 0), patients(500, 1)
    solutions = within_one_budget(people, epsilon=8.0)
    for name, solution in solutions.items():
        print(name, summary(solution), unknown(solution), solution.support)
    x, y = scores(solutions["views"], others)
    figure = pictures(solutions["common"])
    operator: MatrixFreeRelease = dpgep.release(
        dpgep.pca(people.measured, bound=4.0), epsilon=4.0, delta=DELTA, storage="operator"
    )
    product, _ = operator.times(np.eye(5)[:, :1])
    audit = audited(others.measured[:50])
    assert not audit.flagged
    return {
        "correlation of scores": float(np.corrcoef(x[:, 0], y[:, 0])[0, 1]),
        "explained": questions(people),
        "wards found": classified(people, others),
        "variance by days": float(by_the_day([people.measured, others.measured]).eigenvalues[0]),
        "variance of reports": float(without_a_curator(people).eigenvalues[0]),
        "first variance": float(product[0, 0]),
        "pictures": float(len(figure.axes)),
    }


if __name__ == "__main__":
    for quantity, value in main().items():
        print(f"{quantity}: {value:.3g}")
