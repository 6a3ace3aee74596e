"""``bound="auto"`` audited: stages and whole runs stay below the claim and come close; mistakes would be flagged.

As in test_audit_methods.py, a sound method exceeds its claim in one audit with probability at most 1e-7 over the choice
of seeds, which are fixed, and at the claim mu = 3 a normal statistic gives 0.80 mu on average at 700 runs, with a
deviation of 0.026 mu.
"""

from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from method_cases import MU
from stage_cases import ADJACENCIES, PREPROCESSING, RUNS, STAGES, exact_answers, run_case, stage_case

from dpgep.models.model import Adjacency
from dpgep.privacy.curator import Stages

pytestmark = [pytest.mark.statistical, pytest.mark.deep]


@pytest.mark.parametrize("name", PREPROCESSING)
def test_below_the_claim_and_close_to_it(name: str) -> None:
    case = PREPROCESSING[name]()
    result = case.audit()
    assert result.claimed_mu == MU
    assert not result.flagged
    assert result.mu >= case.least * MU


@pytest.mark.parametrize("name", STAGES)
def test_the_neighbours_of_a_stage_are_the_worst(name: str) -> None:
    """They attain what docs/mathematics.md states, so that no smaller sensitivity would do."""
    d = 3
    stated = {
        "histograms of magnitudes": (2 * d, d),
        "histograms within intervals": (2 * d, d),
        "histogram of norms": (2, 1),
        "sums of columns and squares": (4 * d, 3 * d),
        "sum of mapped rows": (4, 1),
    }
    for adjacency, squared in zip(ADJACENCIES, stated[name], strict=True):
        first, second = exact_answers(name, adjacency)
        assert np.sum((second - first) ** 2) == pytest.approx(squared, rel=1e-5)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", STAGES)
def test_a_quarter_of_the_noise_is_flagged(name: str, adjacency: Adjacency) -> None:
    assert stage_case(name, adjacency, spent=4 * MU).audit().flagged


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_with_a_quarter_of_the_noise_is_flagged(name: str, adjacency: Adjacency) -> None:
    assert replace(run_case(name, adjacency, spent=4 * MU), runs=200).audit().flagged


@pytest.mark.parametrize("name", STAGES)
def test_the_sensitivity_of_a_removed_person_is_flagged_where_one_is_replaced(name: str) -> None:
    """It is too small by a factor of sqrt 2, or 2."""
    with mock.patch.object(Stages, "_replaces", False):
        result = replace(stage_case(name, "replace-one"), runs=2000).audit()
    assert result.flagged
