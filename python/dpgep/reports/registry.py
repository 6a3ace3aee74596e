"""A report in the form of an entry for the public registry of deployments of differential privacy.

The form is that of https://registry.opendp.org (schema of July 2026), in YAML. What follows from the report is filled
in; what only the curator knows is marked, and the entry is a draft.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from dpgep._show import escaped
from dpgep.privacy.ledger import ledger_rows, up
from dpgep.reports.guarantee import Guarantee, assumptions, key_rows, public_facts, statement

# what stands where only the curator can say
TO_FILL_IN = "TO BE FILLED IN"


def registry_entry(report: Guarantee, dataset: str | None, purpose: str | None, about: str, date: str) -> str:
    """The entry, in YAML: maps of maps of texts, each a block, in which nothing can end the block.

    ``about`` names the program and the report. Raises ValueError if the noise was seeded, or there is none.
    """
    if report.seeded or (report.mu is not None and math.isinf(report.mu)):
        raise ValueError(
            "a registry lists guarantees, and this report has none: its noise is seeded, or a release has no noise"
        )
    nights = report.public is not None and report.public.nights is not None
    local = report.adjacency == "local"
    public = [] if report.public is None else public_facts(report.public)
    ledger = [f"{query}: {price} of mu squared" for query, price, *_ in ledger_rows(report.releases, report.mu)]
    entry = {
        "url_slug": re.sub(r"[^a-z0-9]+", "-", (dataset or "").lower()).strip("-") or "to-be-filled-in",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": (dataset or "").strip() or _missing("the name of the data product"),
                "data_curators": [_missing("who publishes it")],
                "intended_use": (purpose or "").strip() or _missing("what it is for"),
                "data_product_type": "Summary statistics",
                "data_product_region": _missing("where the people live, or whose law applies"),
                "description": _described(report),
                "publication_date": date,
            },
            "dp_variant": {
                "variant_name": "Zero-concentrated DP" if report.epsilon is None else "Approximate DP",
                "data_domain": _missing("which data sets are protected: who is in them, from when to when"),
                "unprotected_quantities": [*public, _missing("anything else that is published without noise")],
            },
            "privacy_loss": {
                "privacy_unit": "Person" if local or report.several_rows else "Row",
                "privacy_unit_details": [dict(key_rows(report))["Adjacency"], next(assumptions(report))],
                "privacy_parameters": _parameters(report),
                "privacy_parameters_details": statement(report),
            },
            "deployment_model": {
                "model_name": "Local" if local else "Central",
                "actors": _missing(
                    "who holds the rows, who runs the program, who reads the results, and who is trusted"
                ),
                "release_type": "Many releases" if nights else "One release",
                "release_type_details": _missing("what else is, or will be, published about the same people"),
                "data_source_type": "Dynamic" if nights else "Static",
                "access_type": "Non-interactive",
            },
            "accounting": {
                "post_processing": "Answers are computed from what was released alone: eigenvectors, intervals, tests.",
                "composition": [
                    "Gaussian differential privacy, which composes exactly: squares of mu add up."
                    if report.mu is not None
                    else "Privacy loss distributions, composed by dp_accounting.",
                    *ledger,
                ],
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": [
                    "Bounds, locations and scales of columns that were found from the data are in the ledger above.",
                    _missing("what was looked at before: columns, ranges, filters, earlier runs"),
                ],
                "mechanisms": [f"Gaussian noise, by {about}.", *assumptions(report)],
                "justification": _missing("why this epsilon, these columns, this unit"),
            },
            "administrative": {
                "notes": "The report that this entry was made from can be verified: dpgep report verify FILE.",
                "registry_authors": [_missing("who wrote this entry")],
            },
        },
    }
    return "\n".join(_yaml(entry, "")) + "\n"


def _missing(what: str) -> str:
    return f"({TO_FILL_IN}: {what})"


def _described(report: Guarantee) -> str:
    public = report.public
    of = "" if public is None else f", of {public.n_features} columns, for {public.problem}"
    released = dict.fromkeys(query for query, *_ in ledger_rows(report.releases, report.mu))
    return f"With noise{of}: {'; '.join(released)}. And what is computed from them."


def _parameters(report: Guarantee) -> dict[str, float]:
    """Epsilon and delta where they are stated, and rho = mu^2/2, rounded up."""
    found = {"epsilon": report.epsilon, "delta": report.delta}
    rho = None if report.rho is None else float(up(report.rho, 6))
    return {name: value for name, value in {**found, "rho": rho}.items() if value is not None}


def _yaml(value: Any, indent: str) -> Iterable[str]:
    """Lines of a map: numbers (1e-06 would be text in YAML 1.1), maps, lists of names, and texts as literal blocks."""
    for key, each in value.items():
        if isinstance(each, dict):
            yield f"{indent}{key}:"
            yield from _yaml(each, indent + "  ")
        elif isinstance(each, (int, float)):
            yield f"{indent}{key}: " + re.sub(r"^(\d+)e", r"\1.0e", repr(each))
        elif isinstance(each, list) and key in ("data_curators", "registry_authors"):
            yield f"{indent}{key}:"
            yield from (line for name in each for line in (f"{indent}  - |-", f"{indent}    {_line(name)}"))
        else:
            items = [_line(each)] if isinstance(each, str) else [f"- {_line(item)}" for item in each]
            yield f"{indent}{key}: |-"
            yield from (f"{indent}  {item}" for item in items)


def _line(text: str) -> str:
    """A text on one line, in which nothing is a mark of Markdown and all can be printed."""
    return "".join(char if char.isprintable() else "\ufffd" for char in escaped(text).strip())
