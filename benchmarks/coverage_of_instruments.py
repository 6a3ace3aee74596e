"""How often 90 % intervals of two-stage least squares hold the coefficients of the population, in repeated draws.

Three kinds of tables of 10 000 people, with a bound that is known and with one that is bought. A line has the shares of
draws that hold, the ratio of the noise's errors to those of people, the median first-stage F, and the mean and
deviation of (estimate - truth)/error, which should be 0 and 1.

    python benchmarks/coverage_of_instruments.py --draws 200 --epsilon 1 4
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import dpgep

PEOPLE = 10_000
TRUTH = np.array([1.5, -1.0])


class Case(NamedTuple):
    table: pd.DataFrame
    on: list[str]
    instruments: list[str]


def explained(x: Any, w: Any, u: Any, rng: np.random.Generator) -> Any:
    """Values of y, of x, w and what is unseen."""
    return x * TRUTH[0] + w * TRUTH[1] + 2 * u + rng.standard_normal(len(x))


def gaussian(rng: np.random.Generator, n: int) -> Case:
    z, u, w = rng.standard_normal((3, n))
    x = 0.6 * z + 0.3 * w + u + 0.5 * rng.standard_normal(n)
    return Case(pd.DataFrame({"y": explained(x, w, u, rng), "x": x, "w": w, "z": z}), ["x", "w"], ["z", "w"])


def skewed(rng: np.random.Generator, n: int) -> Case:
    """Five exponential instruments, and errors of Student's law."""
    z, u, w = rng.exponential(size=(n, 5)) - 1, rng.standard_t(6, n), rng.standard_normal(n)
    x = z @ [0.5, 0.4, 0.3, 0.1, 0.0] + 0.3 * w + u + 0.5 * rng.standard_normal(n)
    given = {f"z{j}": z[:, j] for j in range(5)}
    return Case(pd.DataFrame({"y": explained(x, w, u, rng), "x": x, "w": w, **given}), ["x", "w"], ["w", *given])


def categories(rng: np.random.Generator, n: int) -> Case:
    """A category of four levels as the instrument, one of two as exogenous."""
    region, sex, u = rng.integers(0, 4, n), rng.integers(0, 2, n), rng.standard_normal(n)
    x = np.array([0.0, 0.6, 1.2, 2.0])[region] + 0.5 * sex + u + 0.5 * rng.standard_normal(n)
    table = pd.DataFrame({"y": explained(x, sex, u, rng), "x": x})
    table["region"] = pd.Categorical.from_codes(region, list("abcd"))
    table["sex"] = pd.Categorical.from_codes(sex, ["f", "m"])
    return Case(table, ["x", "sex=m"], ["region", "sex=m"])


CASES: list[tuple[Callable[[np.random.Generator, int], Case], dict[str, Any]]] = [
    (gaussian, {"bound": 16.0}),
    (gaussian, {}),
    (skewed, {"bound": 20.0}),
    (skewed, {}),
    (categories, {}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for make, given in CASES:
        for epsilon in options.epsilon:
            found = []
            for draw in range(options.draws):
                case = make(np.random.default_rng([3, draw]), PEOPLE)
                release = dpgep.release(case.table, epsilon=epsilon, delta=1e-6, seed=draw, **given)
                found.append(release.instrumental("y", case.on, case.instruments))
            low, high = np.moveaxis(np.array([each.intervals() for each in found]), -1, 0)
            errors = np.array([(each.coefficients - TRUTH) / each.standard_errors for each in found])
            ratios = np.array([each.noise_errors[1:] / each.people_errors[1:] for each in found])
            print(
                f"{make.__name__:10} bound {given.get('bound', 'auto')!s:5} epsilon {epsilon:g}: "
                f"held {((low <= TRUTH) & (high >= TRUTH)).mean(axis=0)}, "
                f"noise/people {np.median(ratios, axis=0).round(1)}, "
                f"F {np.median([each.first_stage_f for each in found]):.0f}, "
                f"error {errors.mean(axis=0).round(2)} +- {errors.std(axis=0).round(2)}",
                flush=True,
            )


if __name__ == "__main__":
    main()
