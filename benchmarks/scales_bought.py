"""How often `bound="auto"` buys a wrong scale, and says so: `python benchmarks/scales_bought.py [--quick]`.

Columns are normal, in units from 10^-4 to 10^4, with means up to 3 deviations from zero (half of them) or 100. A scale
is wrong if it is more than three times off the column's deviation; it is said if the preprocessing lists the column
as unsure, of which a warning speaks. The target is 0.1 % of columns wrong and unsaid.
"""

from __future__ import annotations

import argparse
import warnings
from itertools import product

import numpy as np

import dpgep

COLUMNS, WRONG = 5, 3.0


def columns(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and the deviations of their columns."""
    units = 10.0 ** rng.uniform(-4, 4, COLUMNS)
    near, far = rng.uniform(-3, 3, COLUMNS), 10.0 ** rng.uniform(0, 2, COLUMNS) * rng.choice([-1, 1], COLUMNS)
    means = np.where(rng.random(COLUMNS) < 0.5, near, far)
    rows = (rng.standard_normal((n, COLUMNS)) + means) * units
    return rows, rows.std(axis=0)


def counted(n: int, epsilon: float, seeds: range) -> tuple[float, float, float]:
    """Shares of columns whose scale is wrong, is said to be unsure, and is wrong though that is not said."""
    found = []
    for seed in seeds:
        rows, deviations = columns(np.random.default_rng(seed), n)
        auto = dpgep.AutoPreprocessing(precondition="columns")
        released = dpgep.release(rows, preprocessing=auto, epsilon=epsilon, delta=n**-1.1, seed=seed)
        assert released.preprocessing is not None
        assert released.preprocessing.scale is not None
        wrong = np.abs(np.log(released.preprocessing.scale / deviations)) > np.log(WRONG)
        said = np.isin(np.arange(COLUMNS), released.preprocessing.unsure)
        found.append([wrong.mean(), said.mean(), (wrong & ~said).mean()])
    wrong, said, unsaid = np.mean(found, axis=0)
    return float(wrong), float(said), float(unsaid)


def main() -> None:
    """Print a line for each number of people and each budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the draws")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw: its seed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + (100 if options.quick else 1000))
    warnings.simplefilter("ignore")  # seeded runs, and what is counted here
    print("     n  epsilon    wrong     said  wrong and unsaid")
    for n, epsilon in product((300, 1500, 5000, 20000), (0.3, 1.0, 3.0)):
        wrong, said, unsaid = counted(n, epsilon, seeds)
        print(f"{n:6}  {epsilon:7}  {wrong:7.2%}  {said:7.2%}  {unsaid:7.2%}", flush=True)


if __name__ == "__main__":
    main()
