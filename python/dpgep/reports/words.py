"""The guarantee of a report in words, and what it takes for granted. Numbers are rounded against ourselves."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpgep.privacy.ledger import percent, up
from dpgep.reports.guarantee import Guarantee, PublicInputs

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
        by = "" if report.mu is None else f" (mu = {up(report.mu)})"
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
    number = (
        "the number of people is public"
        if report.adjacency == "replace-one"
        else "the number of people is protected, unless it is listed as public"
    )
    weighted = report.public is not None and report.public.weighted
    if weighted:
        number += "; their weights are protected, and their total weight is released"
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
        rows.append(("mu", up(report.mu)))
    rows.append(("Adjacency", _ADJACENCIES[_neighbours(report)]))
    if report.bound is not None:
        rows.append(("Bound", f"{report.bound:g}, enforced on the norm of every row"))
    rows.append(("Rounding", report.rounding if report.exact else f"{report.rounding}: not exact"))
    rows.append(("Seeded", "yes: not private to anyone who knows the seed" if report.seeded else "no"))
    if report.release is not None:
        rows.append(("Release", report.release))
    return rows
