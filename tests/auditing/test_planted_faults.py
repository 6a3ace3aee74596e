"""Faults put into the program on purpose: few replays find each of them.

Each is one that a change might make: an unpaid number in a message, a clip left out, noise of the wrong scale. The runs
are those of test_replay.py, on the same pairs.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from replay_cases import CASES as WORST
from test_replay import CASES, replays

import dpgep
from dpgep._dispatch import core
from dpgep.data.integer_moments import ExactMomentAccumulator
from dpgep.data.integer_sums import MagnitudeCounts
from dpgep.methods.eigen import Accuracy
from dpgep.privacy import clipped_products, curator, noise, products, screening
from dpgep.privacy.budget import Budget
from dpgep.privacy.ledger import Ledger
from dpgep.problems.problem import MomentProblem
from dpgep.results.solution import Solution

Patch = pytest.MonkeyPatch
FAULTS: dict[str, tuple[str, Callable[[Patch], None]]] = {}


def fault(cases: str) -> Callable[[Callable[[Patch], None]], None]:
    """A fault, under its name, that runs with this in their names meet."""

    def keep(plant: Callable[[Patch], None]) -> None:
        FAULTS[plant.__name__.replace("_", " ")] = cases, plant

    return keep


def around(patch: Patch, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    patch.setattr(owner, name, make(getattr(owner, name)))


# ---- noise of the wrong law ----


@fault("release() ")
def too_little_noise_in_a_release(patch: Patch) -> None:
    def less(real: Any) -> Any:
        def integer_noise(*given: Any) -> Any:
            scales, deviations = real(*given)
            return dataclasses.replace(scales, diagonal=int(0.7 * scales.diagonal)), deviations

        return integer_noise

    around(patch, curator, "integer_noise", less)


@fault("release() fda 2.0 add-remove")
def counts_without_noise(patch: Patch) -> None:
    def add_noise(moments: Any, scales: Any, stream: Any) -> None:
        core.add_exact_symmetric_noise(moments.second, scales.diagonal, scales.off_diagonal, stream)
        core.add_exact_noise(moments.sums, scales.sums, stream)

    patch.setattr(curator, "add_noise", add_noise)


@fault(" auto ")
def a_histogram_that_counts_for_half(patch: Patch) -> None:
    around(patch, curator, "_scale", lambda real: lambda *given: real(*given) // 2)


@fault("clipped-power(")
def a_sensitivity_without_the_second_person(patch: Patch) -> None:
    patch.setattr(clipped_products, "product_sensitivity", lambda *given, **options: 1.0)
    around(patch, clipped_products, "least_scale", lambda real: lambda squared, mu: real(squared / 4, mu))


@fault("rayleigh-flow(n_iterations=4, noise=fresh)")
def products_with_half_of_their_noise(patch: Patch) -> None:
    def less(real: Any) -> Any:
        return lambda self, scales, *rest: real(self, [scale / 2 for scale in scales], *rest)

    around(patch, products.ProductNoise, "compiled", less)


@fault("products, samples, add-remove")
def too_little_noise_in_samples(patch: Patch) -> None:
    """Of the worst pair, asked in all directions at once: of a flow's answers it would depend on where it went."""
    around(patch, products, "_covering", lambda real: lambda *given: tuple(0.99 * each for each in real(*given)))


@fault("screen")
def a_screen_whose_squares_have_no_noise(patch: Patch) -> None:
    around(patch, screening, "noisy_squares", lambda real: lambda sums, scale, stream: real(sums, 0, stream))


@fault("release() ")
def noise_drawn_twice_from_one_state(patch: Patch) -> None:
    def make(*given: Any, **options: Any) -> Any:
        key = b"the same for all that is drawn. "
        parts = iter(range(100))

        def add_noise(moments: Any, scales: Any, stream: Any) -> None:
            for array, scale in ((moments.sums, scales.sums), (moments.sums, scales.sums)):
                again = core.NoiseStream(key, transcript=curator.watched_draws())
                core.add_exact_noise(array, scale + 0 * next(parts), again)
            core.add_exact_symmetric_noise(moments.second, scales.diagonal, scales.off_diagonal, stream)

        return add_noise

    patch.setattr(curator, "add_noise", make())


@fault("release() ")
def noise_from_another_generator(patch: Patch) -> None:
    def add_noise(moments: Any, scales: Any, stream: Any) -> None:
        random = np.random.default_rng()
        moments.second[:] += random.normal(0, scales.diagonal, moments.second.shape).astype(np.int64)
        moments.sums[:] += random.normal(0, scales.sums, moments.sums.shape).astype(np.int64)

    patch.setattr(curator, "add_noise", add_noise)


# ---- more of a person than the proof has ----


@fault("release() pca uncentred 2.0")
def rows_that_are_not_clipped(patch: Patch) -> None:
    def unclipped(real: Any) -> Any:
        def add(self: Any, batch: Any) -> None:
            real(self, dataclasses.replace(batch, rows=dataclasses.replace(batch.rows, bound=4 * batch.rows.bound)))
            self._total *= 16

        return add

    around(patch, ExactMomentAccumulator, "add", unclipped)


@fault("release() ")
def a_label_that_nobody_lists_counted_in_two_groups(patch: Patch) -> None:
    def doubled(real: Any) -> Any:
        def moments(*given: Any) -> Any:
            found = real(*given)
            found.sums[:, 0] += found.sums[:, 1:].sum(axis=1)
            return found

        return moments

    around(patch, ExactMomentAccumulator, "moments", doubled)


@fault(" auto ")
def a_person_counted_in_two_bins(patch: Patch) -> None:
    def wider(real: Any) -> Any:
        def add(self: Any, batch: Any) -> None:
            real(self, batch)
            real(self, batch)

        return add

    around(patch, MagnitudeCounts, "add", wider)


# ---- exact values that nothing pays for ----


def kept_sums(patch: Patch, use: Callable[[Any], None]) -> None:
    """``use`` the exact sums of each release, before their noise."""

    def watched(real: Any) -> Any:
        def integer_moments(self: Any, bits: int) -> Any:
            sums = real(self, bits)
            use(sums)
            return sums

        return integer_moments

    around(patch, MomentProblem, "integer_moments", watched)


@fault("release() ")
def a_warning_from_exact_sums(patch: Patch) -> None:
    def warn(sums: Any) -> None:
        if sums.second[0, 0] % 2:
            warnings.warn("the first column varies", dpgep.errors.AccuracyWarning, stacklevel=2)

    kept_sums(patch, warn)


@fault("release() ")
def an_exact_number_in_a_log_line(patch: Patch) -> None:
    log = logging.getLogger("dpgep.data")
    kept_sums(patch, lambda sums: log.debug("trace %d", np.trace(sums.second)))


@fault("release() pca 2.0 add-remove")
def the_number_of_people_in_a_message(patch: Patch) -> None:
    def warn(sums: Any) -> None:
        warnings.warn(f"read {sums.n} rows", dpgep.errors.AccuracyWarning, stacklevel=2)

    kept_sums(patch, warn)


@fault("release() ")
def an_exception_with_a_sum_behind_it(patch: Patch) -> None:
    def fail(sums: Any) -> None:
        try:
            raise KeyError(int(sums.second[0, 0]))
        except KeyError:
            raise ValueError("no such thing") from None

    kept_sums(patch, fail)


@fault("release() ")
def a_solution_that_carries_exact_sums(patch: Patch) -> None:
    found: list[Any] = []
    kept_sums(patch, lambda sums: found.append(sums.second.copy()))

    def carrying(real: Any) -> Any:
        def init(self: Any, *given: Any, **fields: Any) -> None:
            real(self, *given, **fields)
            object.__setattr__(self, "_exact", found[-1])

        return init

    around(patch, Solution, "__init__", carrying)


@fault("release() ")
def a_deferred_answer_that_holds_exact_sums(patch: Patch) -> None:
    found: list[Any] = []
    kept_sums(patch, lambda sums: found.append(sums.second.copy()))

    def holding(real: Any) -> Any:
        def deferred(*given: Any, **options: Any) -> Any:
            accuracy, exact = real(*given, **options), found[-1]
            object.__setattr__(accuracy, "_simulate", lambda simulate=accuracy._simulate: (exact, simulate())[1])
            return accuracy

        return deferred

    around(patch, Accuracy, "deferred", lambda real: staticmethod(holding(real)))


@fault("release() ")
def last_bits_of_the_exact_values(patch: Patch) -> None:
    """Far below the noise: what rounding to the grid is for."""
    found: list[Any] = []
    kept_sums(patch, lambda sums: found.append(sums.second.astype(np.float64)))

    def leaking(real: Any) -> Any:
        def normalized(*given: Any) -> Any:
            released = real(*given)
            return dataclasses.replace(released, second=released.second * (1 + 2.0**-50 * (found[-1] % 7)))

        return normalized

    around(patch, curator, "normalized_moments", leaking)


# ---- decisions that depend on people ----


@fault("release() ")
def noise_of_a_scale_that_the_rows_decide(patch: Patch) -> None:
    def sensitive(real: Any) -> Any:
        def exact(problem: Any, mu: float, stream: Any, charge: Any) -> Any:
            longest = float(np.sqrt(problem.integer_moments(20).second.diagonal().max()) / 2**20)
            return real(problem, mu / (1 + longest), stream, charge)

        return exact

    around(patch, curator, "_exact", sensitive)


@fault("release() ")
def a_query_more_for_some_people(patch: Patch) -> None:
    def branching(real: Any) -> Any:
        def exact(problem: Any, mu: float, stream: Any, charge: Any) -> Any:
            if problem.integer_moments(20).second[0, 0] % 2:
                noise.add_grid_noise(np.zeros(1), 1.0, stream)
            return real(problem, mu, stream, charge)

        return exact

    around(patch, curator, "_exact", branching)


@fault("release() ")
def a_number_of_components_that_the_rows_decide(patch: Patch) -> None:
    kept: list[int] = []
    kept_sums(patch, lambda sums: kept.append(int(sums.second[0, 0])))

    def fewer(real: Any) -> Any:
        def solved(noisy: Any, k: int, *rest: Any) -> Any:
            return real(noisy, 1 + kept[-1] % 2, *rest)

        return solved

    around(patch, sys.modules["dpgep.methods.release"], "solve_released", fewer)


# ---- the books ----


@fault(" auto ")
def an_entry_that_says_less_than_it_costs(patch: Patch) -> None:
    def understated(real: Any) -> Any:
        def record(self: Any, entry: Any) -> None:
            real(self, dataclasses.replace(entry, mu=entry.mu / 8) if entry.mu else entry)

        return record

    around(patch, Ledger, "record", understated)


@fault("release() ")
def a_budget_that_converts_too_much(patch: Patch) -> None:
    around(patch, Budget, "_to_mu", lambda real: lambda self, form, value: 1.1 * real(self, form, value))
    around(patch, curator, "integer_noise", lambda real: lambda mu, *rest: real(mu * 1.1, *rest))


@fault("release() ")
def an_entry_after_the_noise_of_nothing(patch: Patch) -> None:
    def unpaid(real: Any) -> Any:
        def exact(problem: Any, mu: float, stream: Any, charge: Any) -> Any:
            moments = problem.integer_moments(20)
            noise.add_grid_noise(np.diagonal(moments.second).astype(np.float64), 2.0**40, stream)
            return real(problem, mu, stream, charge)

        return exact

    around(patch, curator, "_exact", unpaid)


# ---- the tests ----


def found(cases: str) -> str | None:
    """The first thing that the quick suite's replays of some cases flag, or that of the worst pair of this name."""
    if cases in WORST:
        return cases if WORST[cases].replay().flagged else None
    names = [name for name in CASES if cases in name]
    assert names, cases
    for name in names:
        for what, result in replays(name, 1):
            if result.flagged:
                return f"{name}: {what}"
    return None


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: Patch) -> None:
    cases, plant = FAULTS[name]
    plant(monkeypatch)
    assert found(cases) is not None


def test_there_are_twenty() -> None:
    assert len(FAULTS) >= 20
