"""The guarantee of everything that was released, in numbers and in words; what a stated one must satisfy.

It must follow from its ledger. Numbers are rounded against ourselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from dpgep.models.model import Adjacency
from dpgep.privacy import accounting
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock, mu_rounded_up, percent, total_cost, up
from dpgep.privacy.noise import MOMENT_BLOCKS, RECORD, SECOND, mu_of_blocks

# The most entries of a ledger that can be verified, bits of a grid, and steps of noise on it; releases stay below.
MOST_ENTRIES = 1 << 16
_MOST_GRID_BITS, _MOST_SCALE = 64, 1 << 62
# Deviations in units of the bound: budgets lie between 1e-100 and 1e100, and squares and ratios of these are in range.
_LEAST_DEVIATION, _MOST_DEVIATION = 1e-150, 1e150
# by how much a delta may differ that another version of SciPy or dp_accounting has computed
_VERSIONS = 1e-9
# the delta at which a budget in mu or rho is shown as an epsilon
_DELTA = 1e-6
# points of the curve up to the stated epsilon, and as many beyond
_STEPS = 8
SIGNATURE = (
    "The hash names the report's JSON form. 'dpgep report verify FILE' recomputes it, and every number above from the "
    "ledger. It shows that nothing was changed since; not who wrote the report, nor that the releases took place as "
    "listed: that is what a signature is for."
)

# how many names are listed before the rest is counted
_LISTED = 20

_COMPARED = {
    "replace-one": "if the row of any one person is replaced by any other",
    "add-remove": "if the row of any one person is taken out, or one is added",
    "local": "if what any one person holds is replaced by anything else",
    "replace-one, several rows": "if all rows of any one person are replaced by any others, however many",
    "add-remove, several rows": "if all rows of any one person are taken out, or those of one are added",
}

_WORLDS = {
    "replace-one": "the data with a person's row and with another in its place",
    "add-remove": "the data with a person's row and without it",
    "local": "two records that a person may hold",
    "replace-one, several rows": "the data with all rows of a person and with others in their place",
    "add-remove, several rows": "the data with all rows of a person and without them",
}

_ADJACENCIES = {
    "replace-one": "replace-one: data sets that differ in one person's row",
    "add-remove": "add-remove: data sets with and without one person's row",
    "local": "local: any two records of one person",
    "replace-one, several rows": "replace-one: data sets that differ in all rows of one person",
    "add-remove, several rows": "add-remove: data sets with and without all rows of one person",
}

_GUESSED = {
    "replace-one": "whether the data hold a person's row or another in its place",
    "add-remove": "whether the data hold a person's row",
    "local": "which of two records a person holds",
    "replace-one, several rows": "whether the data hold the rows of a person or others in their place",
    "add-remove, several rows": "whether the data hold the rows of a person",
}


@dataclass(frozen=True, repr=False)
class PublicInputs:
    """What the caller declared, or the form of the data shows: public, and paid for by nobody."""

    problem: str  # name of the model
    n_features: int  # d
    n_people: int | None = None  # number of people; None where it is protected
    feature_names: tuple[str, ...] | None = None  # names of the features; None where they have none
    classes: tuple[str, ...] | None = None  # public classes, as text; None where there are none
    edges: tuple[float, ...] | None = None  # interior edges of slices of a response; None where there are none
    # (column, low, high) of each column whose range the caller gave
    ranges: tuple[tuple[str | int, float, float], ...] = ()
    # name of the ids that say whose each row is, where neighbours differ in all rows of one person; None where
    # they differ in one row
    person: str | None = None
    # rows, largest_weight: up to how many rows of a person count alike, and the largest weight; None where each
    # person counts once. The total weight is released then.
    rows: int | None = None
    largest_weight: float | None = None
    # of a register that grows every night (`dpgep.Nights`), on how many nights a person may come
    nights: int | None = None

    @property
    def weighted(self) -> bool:
        """Whether people may count less than once."""
        return self.rows is not None or self.largest_weight is not None

    def __repr__(self) -> str:
        return f"PublicInputs({self.problem}, d={self.n_features}, n={self.n_people})"


@dataclass(frozen=True, repr=False)
class Guarantee:
    """Epsilon, delta and mu of a ledger, and their curve: what `PrivacyReport` states."""

    epsilon: float | None
    delta: float | None
    mu: float | None
    adjacency: Adjacency | Literal["local"]
    bound: float | None
    releases: tuple[LedgerEntry, ...]
    exact: bool
    seeded: bool
    release: str | None = field(default=None, compare=False)
    public: PublicInputs | None = field(default=None, compare=False)

    @property
    def several_rows(self) -> bool:
        """Whether neighbours differ in all rows of one person, of whatever number; if not, in one row."""
        return self.public is not None and (self.public.person is not None or (self.public.nights or 1) > 1)

    @property
    def rho(self) -> float | None:
        """Rho of zero-concentrated differential privacy, mu^2/2; None where mu is."""
        return None if self.mu is None else accounting.rho_from_mu(self.mu)

    def prices(self) -> list[str]:
        """What each of several releases cost, in percent of mu^2: a line each; none for a single one, or without mu."""
        mu = self.mu
        if mu is None or math.isinf(mu) or len(self.releases) < 2:
            return []
        return [f"{0.0 if each.mu is None else each.mu**2 / mu**2:10.1%}  {each.query}" for each in self.releases]

    @property
    def rounding(self) -> str:
        """The weakest of the releases' `rounding`: "integer", "grid", or "none" where one has no noise."""
        kinds = {release.rounding for release in self.releases}
        return next((kind for kind in ("none", "grid") if kind in kinds), "integer")

    def epsilon_at(self, delta: float) -> float:
        """The exact epsilon of all releases together at another delta, rounded up."""
        if self.mu is None:
            return accounting.epsilon_of_event(self.to_dp_event(), delta, self._central_adjacency())
        return accounting.epsilon_of(self.mu, delta)

    def delta_at(self, epsilon: float) -> float:
        """The exact delta of all releases together at another epsilon, rounded up."""
        if self.mu is None:
            return accounting.delta_of_event(self.to_dp_event(), epsilon, self._central_adjacency())
        return accounting.delta_of(epsilon, self.mu)

    def to_dp_event(self) -> Any:
        """The releases as a `dp_accounting.DpEvent`, to be composed with others by Google's accountants.

        Noise multipliers are relative to the sensitivity under ``adjacency``: 1/mu of each release. Where ``mu`` is
        None they are for add/remove, whatever the adjacency.
        """
        import dp_accounting

        if self.mu is not None and math.isinf(self.mu):
            return dp_accounting.NonPrivateDpEvent()
        events = [
            release.event if release.mu is None else dp_accounting.GaussianDpEvent(math.nextafter(1 / release.mu, 0.0))
            for release in self.releases
        ]
        return events[0] if len(events) == 1 else dp_accounting.ComposedDpEvent(events)

    def _central_adjacency(self) -> Adjacency:
        assert self.adjacency != "local"  # no sample is drawn there
        return self.adjacency

    def require_consistent(self) -> None:
        """Raise ValueError unless what the report states follows from its ledger: mu exactly, epsilon at delta.

        Of answers about samples, which have no mu, epsilon takes seconds to check: `require_sampled`.
        """
        if (self.epsilon is None) != (self.delta is None) and self.epsilon != math.inf:
            raise ValueError("a report states epsilon and delta, or neither")
        if (self.delta is not None and not 0 < self.delta < 1) or (self.epsilon is not None and not self.epsilon > 0):
            raise ValueError(f"epsilon = {self.epsilon}, delta = {self.delta} is no guarantee")
        if self.bound is not None and not 0 < self.bound < math.inf:
            raise ValueError(f"bound must be a positive finite number, or none, got {self.bound!r}")
        if not 1 <= len(self.releases) <= MOST_ENTRIES:
            raise ValueError(f"a ledger has entries, 1 to {MOST_ENTRIES}, not {len(self.releases)}")
        adjacency: Adjacency = "replace-one" if self.adjacency == "local" else self.adjacency
        for number, release in enumerate(self.releases):
            _require_entry(f"releases[{number}]", release, adjacency)
        if self.exact != all(release.rounding != "none" for release in self.releases):
            raise ValueError("whether a report is exact must follow from its entries' noise")
        mus = [release.mu for release in self.releases]
        if (self.mu is None) != (None in mus):
            raise ValueError("a report has a mu where all its entries have one")
        if self.mu is None:
            return
        spent = mu_rounded_up(total_cost(self.releases, math.inf))
        if self.mu != spent:
            raise ValueError(f"the entries of the ledger add up to mu = {spent!r}, not to the stated {self.mu!r}")
        if self.epsilon is not None and self.delta is not None:
            _require_delta(lambda epsilon: accounting.delta_of(epsilon, spent), self.epsilon, self.delta)
        if self.epsilon is not None and math.isinf(spent) != math.isinf(self.epsilon):
            raise ValueError("epsilon is infinite where a release has no noise, and only there")

    def require_sampled(self) -> None:
        """Raise ValueError unless answers about samples, where there are any, have the stated epsilon and delta."""
        if self.mu is None:
            if self.epsilon is None or self.delta is None or math.isinf(self.epsilon):
                raise ValueError("answers about samples have a finite epsilon and a delta")
            if self.adjacency == "local":
                raise ValueError("no sample is drawn where people add the noise themselves")
            accounting.require_accountable(self.to_dp_event(), self.epsilon, self.adjacency)
            _require_delta(self.delta_at, self.epsilon, self.delta)

    def curve(self) -> list[tuple[float, float]]:
        """(epsilon, delta) of all releases together, delta rounded up, from 0 to twice the stated epsilon.

        Of a budget in mu or rho: to twice the epsilon at delta = 1e-6. Nothing, where there is no noise.
        """
        if self.mu is not None and math.isinf(self.mu):
            return []
        stated = self.epsilon_at(_DELTA) if self.epsilon is None else self.epsilon
        epsilons = [stated * step / _STEPS for step in range(2 * _STEPS + 1)]
        if self.mu is None:
            deltas = accounting.deltas_of_event(self.to_dp_event(), epsilons, stated, self._central_adjacency())
        else:
            deltas = [accounting.delta_of(epsilon, self.mu) for epsilon in epsilons]
        # what holds at an epsilon holds at a larger one, whatever an accountant resolves there
        return list(zip(epsilons, accumulate(deltas, min), strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        if self.mu is not None and math.isinf(self.mu):
            guarantee = "none (epsilon = inf: no noise)"
        elif self.mu is None:
            by = ", by group privacy of two from add-remove" if self.adjacency == "replace-one" else ""
            guarantee = f"epsilon = {self.epsilon:g}, delta = {self.delta:.3g} (privacy loss distributions{by})"
        elif self.epsilon is None or self.delta is None:
            guarantee = f"mu = {self.mu:.4g} (rho = {self.rho:.4g})"
        else:
            guarantee = f"epsilon = {self.epsilon:g}, delta = {self.delta:.3g} (mu = {self.mu:.4g})"
        bound = "" if self.bound is None else f", row norms <= {self.bound:g} enforced"
        seeded = "; SEEDED: not private to anyone who knows the seed" if self.seeded else ""
        once = "" if self.release is None else f"; paid once, for all answers from release {self.release}"
        unit = " of all rows of one person" if self.several_rows else ""
        return f"{guarantee}, {self.adjacency}{unit}{bound}{seeded}{once}"


def _require_entry(where: str, entry: LedgerEntry, adjacency: Adjacency) -> None:
    """Raise ValueError for what no release is, and for less noise than it pays for, where that is known."""
    if entry.mu is not None and not entry.mu > 0:
        raise ValueError(f"{where}.mu must be positive, or none, got {entry.mu!r}")
    if (entry.mu is None) != (entry.event is not None):
        raise ValueError(f"{where} must have either a mu or an event")
    if entry.grid_bits is not None and not 0 <= entry.grid_bits <= _MOST_GRID_BITS:
        raise ValueError(f"{where}.grid_bits must be from 0 to {_MOST_GRID_BITS}, or none, got {entry.grid_bits}")
    is_private = entry.mu is None or math.isfinite(entry.mu)
    if is_private and all(_is_public(block) for block in entry.noise):
        raise ValueError(f"{where}.noise must have a block where mu is finite, not only public matrices")
    if len({block.name for block in entry.noise}) < len(entry.noise):
        raise ValueError(f"{where}.noise lists a block twice")
    for block in entry.noise:
        may_be_zero = not is_private or _is_public(block)
        if not (0 <= block.deviation < math.inf and (may_be_zero or block.deviation > 0)):
            raise ValueError(f"{where}.noise must have positive finite deviations, got {block.deviation!r}")
        if block.scale is not None and not _is_on_grid(block, entry.grid_bits):
            raise ValueError(f"{where}.noise has a scale of {block.scale}, which is not its deviation on the grid")
    if entry.mu is not None and is_private:
        _require_paid(where, entry.noise, entry.mu, adjacency)


def _is_public(block: NoiseBlock) -> bool:
    """Whether a block is of a matrix that was declared public, and has no noise; moments never are."""
    return block.shape.startswith("none") and block.name not in MOMENT_BLOCKS


def _require_paid(where: str, noise: tuple[NoiseBlock, ...], mu: float, adjacency: Adjacency) -> None:
    """Raise ValueError for noise in the blocks of a moment matrix that costs more than mu."""
    names = {block.name for block in noise}
    # a second moment comes with its own sums and counts only; a screen has these two beside its diagonal
    if (SECOND in names and not names <= MOMENT_BLOCKS - {RECORD}) or (RECORD in names and len(names) > 1):
        raise ValueError(f"{where}.noise has a block of a moment matrix beside others, in {sorted(names)}")
    for block in noise:
        if block.name in MOMENT_BLOCKS and not _LEAST_DEVIATION <= block.deviation <= _MOST_DEVIATION:
            raise ValueError(
                f"{where}.noise must have deviations between {_LEAST_DEVIATION:g} and {_MOST_DEVIATION:g} in "
                f"{block.name!r}, got {block.deviation!r}"
            )
    cost = mu_of_blocks(noise, adjacency)
    if cost > mu * (1 + _VERSIONS):
        raise ValueError(f"{where}.noise costs mu = {cost!r}, more than the stated {mu!r}")


def _is_on_grid(block: NoiseBlock, bits: int | None) -> bool:
    """Whether a scale is the deviation in steps: of 4^-bits, those of a second moment, or of 2^-bits."""
    if bits is None or block.scale is None or not 0 < block.scale <= _MOST_SCALE:
        return False
    return block.deviation in (math.ldexp(block.scale, -2 * bits), math.ldexp(block.scale, -bits))


def _require_delta(delta_at: Callable[[float], float], epsilon: float, stated: float) -> None:
    """Raise ValueError unless delta at epsilon is at most the stated one."""
    try:
        with np.errstate(over="raise"):  # as newer versions of dp_accounting do by themselves
            delta = delta_at(epsilon)
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise ValueError(f"the ledger cannot be accounted for: {error}") from None
    if not delta <= stated * (1 + _VERSIONS):
        raise ValueError(
            f"the entries of the ledger have delta = {delta:.6g} at epsilon = {epsilon:g}, more than the stated "
            f"{stated:.6g}"
        )


def _neighbours(report: Guarantee) -> str:
    """Which data sets the guarantee compares: a key of the words above."""
    return report.adjacency + (", several rows" if report.several_rows else "")


def statement(report: Guarantee) -> str:
    """The guarantee, as a sentence or two."""
    if report.mu is not None and math.isinf(report.mu):
        return "There is no guarantee: the releases carry no noise (epsilon = inf)."
    if report.epsilon is None or report.delta is None:
        assert report.mu is not None
        text = (
            f"Everything released is {up(report.mu)}-Gaussian differentially private: whatever is computed from it "
            f"tells {_WORLDS[_neighbours(report)]} apart no better than one draw from a normal distribution of "
            f"deviation 1 tells whether its mean is 0 or {up(report.mu)}."
        )
    else:
        by = "" if report.mu is None else f" (mu = {up(report.mu, 6)})"
        factor = up(math.exp(report.epsilon) * (1 + 1e-15)) if report.epsilon < 50 else f"exp({up(report.epsilon)})"
        text = (
            f"Everything released is differentially private with epsilon = {up(report.epsilon)} and delta = "
            f"{up(report.delta)}{by}: the probability of any outcome that is computed from it, whatever else is known, "
            f"grows by a factor of at most {factor}, plus at most {up(report.delta)}, "
            f"{_COMPARED[_neighbours(report)]}."
        )
    if report.seeded:
        text += " But the noise came from a seed: against anyone who knows it, there is no protection at all."
    return text


def risk_sentences(report: Guarantee, advantage: float, false_positives: float, true_positives: float) -> list[str]:
    """What the guarantee leaves to an attacker."""
    return [
        f"An attacker who knows everything but {'the rows of one person' if report.several_rows else 'one row'}, and "
        f"has to tell {_GUESSED[_neighbours(report)]}, both equally "
        f"likely, is right in at most {percent((1 + advantage) / 2)} of the cases; guessing is right in 50 %. The "
        f"advantage, true less false positives, is at most {up(advantage)}.",
        f"With {percent(false_positives)} of false alarms, at most {percent(true_positives)} of the people are found; "
        f"guessing finds {percent(false_positives)}.",
    ]


def assumptions(report: Guarantee) -> Iterator[str]:
    """What the guarantee takes for granted: it is as good as this."""
    yield _person(report)
    if report.bound is None and report.rounding == "integer":
        yield "No range of values is presumed: each counts by its place in an interval, at whose ends it is cut off."
    elif report.bound is None:
        yield "The sensitivities of the matrices are those that the caller stated: nothing has checked them."
    else:
        yield (
            f"No row counts with a norm above {report.bound:g}: longer rows are shortened to it by the program. Where "
            "rows were shifted or scaled first, this is of the rows after that."
        )
    if report.public is not None:
        yield "Taken as public, and not paid for: " + "; ".join(public_facts(report.public)) + "."
    else:
        yield "The model, and the names, classes and ranges that were given, are public."
    yield "That no value is missing or infinite where that is refused, and the types of the columns, are public."
    if report.seeded:
        yield "The seed of the noise is secret and was used once."
    else:
        yield "The noise came from the operating system's random numbers, which nobody else knows."
    yield (
        "All values were integers, or rounded to a public grid, before noise was added, and the noise is exactly "
        "rounded: the guarantee has no approximation term."
        if report.exact
        else "Some release has no noise, or none that is exact."
    )
    if report.mu is None:
        yield (
            "Samples were drawn at random, each person independently, and their members are secret; privacy loss "
            "distributions compose the answers."
        )
    if report.release is not None:
        yield f"Paid once, for all answers from release {report.release}: each states the same guarantee, not another."
    yield (
        "Covered is what was released, and all that is computed from it alone; not other releases about the same "
        "people, whose costs add up, and not rows that are projected."
    )


def _person(report: Guarantee) -> str:
    if report.adjacency == "local":
        return (
            "Each person adds the noise themselves, to what they send, and sends once what the ledger lists: no "
            "curator is trusted. How many people took part is public."
        )
    protected = "protected, unless it is listed as public"
    number = f"the number of people is {'public' if report.adjacency == 'replace-one' else protected}"
    weighted = report.public is not None and report.public.weighted
    if weighted:
        number += "; their weights are protected, and their total weight is released"
    if report.public is not None and report.public.nights is not None:
        if report.public.person is None:
            counted = "nothing has counted these nights, and each row of a night is presumed to be a person"
        else:
            counted = "the program counts these nights by ids, which are taken as right"
            if report.adjacency == "add-remove":
                counted += ", and leaves out the rows of further nights"
        return (
            f"A person may come on at most {report.public.nights} of all nights, and is protected with all rows of "
            f"these: {counted}; of each night, {number}."
        )
    if report.several_rows:
        return (
            f"A person may have any number of rows, which count as {'at most ' * weighted}one row together, and are "
            f"protected together: the ids that say whose each row is are taken as right; {number}."
        )
    return f"Each person has one row: of a person with several, each row alone is protected; {number}."


def public_facts(public: PublicInputs) -> list[str]:
    """What was public about the data, in words."""
    facts = [f"the problem, {public.problem} of {public.n_features} features"]
    if public.n_people is not None:
        facts.append(f"the number of people, {public.n_people}")
    if public.person is not None:
        facts.append(f"the name of the ids that say whose each row is, {public.person}")
    if public.feature_names is not None:
        facts.append(f"the names {_listed(public.feature_names)}")
    if public.classes is not None:
        facts.append(f"the classes {_listed(public.classes)}")
    if public.edges is not None:
        facts.append(f"the edges of slices {_listed(f'{edge:g}' for edge in public.edges)}")
    if public.rows is not None:
        facts.append(f"that up to {public.rows} rows of a person count alike")
    if public.largest_weight is not None:
        facts.append(f"the largest weight, {public.largest_weight:g}")
    if public.ranges:
        facts.append(f"the ranges {_listed(f'{name}: {low:g} to {high:g}' for name, low, high in public.ranges)}")
    return facts


def _listed(names: object) -> str:
    texts = [str(name) for name in names]  # type: ignore[attr-defined]
    rest = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def key_rows(report: Guarantee) -> list[tuple[str, str]]:
    """The parameters of the guarantee, by name."""
    rows = [("Epsilon", "see the curve" if report.epsilon is None else up(report.epsilon))]
    if report.delta is not None:
        rows.append(("Delta", up(report.delta)))
    if report.mu is not None:
        rows.append(("mu", up(report.mu, 6)))
    rows.append(("Adjacency", _ADJACENCIES[_neighbours(report)]))
    if report.bound is not None:
        rows.append(("Bound", f"{report.bound:g}, enforced on the norm of every row"))
    rows.append(("Rounding", report.rounding if report.exact else f"{report.rounding}: not exact"))
    rows.append(("Seeded", "yes: not private to anyone who knows the seed" if report.seeded else "no"))
    if report.release is not None:
        rows.append(("Release", report.release))
    return rows
