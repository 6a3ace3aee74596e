"""Where neighbours differ in all rows of a person, a search finds pairs that cost nearly what is paid, and none more.

`benchmarks/worst_persons.py` searches longer, and for every model.
"""

from __future__ import annotations

from unittest import mock

import pytest
import worst_persons
from conftest import noise_from

from dpgep.data import people

SHORT = {"restarts": 4, "steps": 1, "seed": 0}
LONG = {**SHORT, "restarts": 24}  # its two releases are most apart at different pairs
CASES = [(name, "known", "replace-one") for name in ("pca", "pca, standardized", "cca", "fda", "contrastive-pca")]
CASES += [("sir", "known", "add-remove"), ("pca", "pairwise", "replace-one")]
CASES += [("pca by products", "known", "replace-one"), ("fda by a flow", "known", "add-remove")]
CASES += [("pca of a screen", "known", "replace-one")]
CASES += [("pca, weights", "known", "replace-one"), ("pca, rows alike", "known", "add-remove")]
CASES += [(name, "known", "replace-one") for name in ("pca of batches", "fda of merged Moments")]


@pytest.mark.parametrize(("name", "terms", "adjacency"), CASES)
def test_no_person_costs_more_than_is_paid_and_one_costs_nearly_that(name: str, terms: str, adjacency: str) -> None:
    with noise_from(f"worst persons, {name} {terms} {adjacency}"):
        found = worst_persons.search(name, terms, adjacency, **(LONG if "screen" in name else SHORT))
    assert not found.flagged, found.flagged[0]
    assert (0.98 if terms == "known" else 0.9) <= found.ratio <= 1, found.pair


@pytest.mark.parametrize("fault", worst_persons.FAULTS)
def test_the_search_finds_wrong_weights(fault: str) -> None:
    with mock.patch.object(people, "row_weights", worst_persons.FAULTS[fault]):
        found = worst_persons.search("pca", "known", "replace-one", **{**SHORT, "restarts": 8})
    assert found.flagged
    assert found.ratio > 1.01
