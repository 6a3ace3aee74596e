"""Reports as drafts of entries for the registry of deployments: YAML of its form, whatever names hold."""

from __future__ import annotations

import dataclasses
import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import dpgep
from dpgep.cli import main
from dpgep.reports.report import document_of

DATA = Path(__file__).resolve().parents[1] / "support"

# the registry's form in July 2026: its keys, by level, and the words it admits
KEYS = {
    "": {"url_slug", "status", "tier", "deployment"},
    "basic": {"name", "data_curators", "intended_use", "data_product_type", "data_product_region", "description"}
    | {"publication_date", "data_product_sector"},
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {"privacy_unit", "privacy_unit_details", "privacy_parameters", "privacy_parameters_details"},
    "deployment_model": {"model_name", "model_name_details", "actors", "release_type", "release_type_details"}
    | {"data_source_type", "data_source_type_details", "access_type", "access_type_details"},
    "accounting": {"post_processing", "composition"},
    "implementation": {"preprocessing_and_hyperparameter_tuning", "mechanisms", "justification"},
    "administrative": {"sources", "notes", "registry_authors"},
}
REQUIRED = KEYS["basic"] - {"data_product_sector"}
WORDS = {
    "variant_name": {"Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"},
    "model_name": {"Local", "Central", "Shuffle", "Federated"},
    "release_type": {"One release", "Many releases"},
    "data_source_type": {"Static", "Dynamic"},
    "access_type": {"Interactive", "Non-interactive"},
    "data_product_type": {"Summary statistics"},
}


def report(file: str = "solution-1.json", **changes: Any) -> dpgep.PrivacyReport:
    return dataclasses.replace(dpgep.load(DATA / file).privacy, **{"seeded": False, **changes})


def entry_of(text: str) -> Any:
    """The entry, which has no key that the registry does not know, and every one that it requires."""
    entry = yaml.safe_load(text)
    assert set(entry) == KEYS[""]
    assert (entry["status"], entry["tier"]) == ("Draft", 3)
    parts = entry["deployment"]
    assert set(parts) == set(KEYS) - {""}
    for name, part in parts.items():
        assert set(part) <= KEYS[name]
        for key, value in part.items():
            assert value in WORDS.get(key, {value} if isinstance(value, str) else [value])
    assert set(parts["basic"]) >= REQUIRED
    datetime.date.fromisoformat(parts["basic"]["publication_date"])
    return parts


def test_an_entry_states_what_the_report_does() -> None:
    about: dict[str, Any] = {"dataset": "Visits 2026", "purpose": "a test", "date": datetime.date(2026, 11, 7)}
    parts = entry_of(report().to_registry(**about))
    assert parts["privacy_loss"]["privacy_parameters"]["epsilon"] == report().epsilon
    assert parts["privacy_loss"]["privacy_parameters"]["delta"] == report().delta
    assert parts["privacy_loss"]["privacy_parameters"]["rho"] == pytest.approx(report().mu ** 2 / 2, rel=1e-5)
    assert parts["privacy_loss"]["privacy_parameters"]["rho"] >= report().mu ** 2 / 2
    assert parts["basic"]["name"] == "Visits 2026"
    assert "moment matrix" in parts["basic"]["description"]
    assert parts["basic"]["data_curators"] == ["(TO BE FILLED IN: who publishes it)"]
    digest = document_of(report(), **about).sha256
    assert digest in parts["implementation"]["mechanisms"]


@pytest.mark.parametrize(
    ("found", "name", "parameters", "unit"),
    [
        (report(epsilon=None, delta=None), "Zero-concentrated DP", {"rho"}, "Row"),
        (report(adjacency="local"), "Approximate DP", {"epsilon", "delta", "rho"}, "Person"),
        (report("solution-1-sampled.json"), "Approximate DP", {"epsilon", "delta"}, "Row"),
    ],
)
def test_what_a_report_lacks_is_not_there(
    found: dpgep.PrivacyReport, name: str, parameters: set[str], unit: str
) -> None:
    parts = entry_of(found.to_registry())
    assert parts["dp_variant"]["variant_name"] == name
    assert set(parts["privacy_loss"]["privacy_parameters"]) == parameters
    assert parts["privacy_loss"]["privacy_unit"] == unit
    assert parts["deployment_model"]["model_name"] == ("Local" if found.adjacency == "local" else "Central")


def test_a_description_names_what_was_released() -> None:
    rows = np.random.default_rng(0).standard_normal((500, 3))
    problem = dpgep.pca(rows, bound=1.0)
    scores = dpgep.score_density(dpgep.solve(problem, mu=4.0, n_components=1), problem, mu=1.0, cells=16)
    described = entry_of(scores.privacy.to_registry())["basic"]["description"]
    assert "histogram of scores" in described
    assert "moment" not in described


@pytest.mark.parametrize("blank", [None, "", "  ", "\n\u2028"])
def test_a_blank_name_is_still_to_be_filled_in(blank: str | None) -> None:
    basic = entry_of(report().to_registry(dataset=blank, purpose=blank))["basic"]
    assert [basic[key][:17] for key in ("name", "intended_use")] == ["(TO BE FILLED IN:"] * 2


def test_persons_and_nights() -> None:
    public = dataclasses.replace(report().public, person="id", nights=3)
    parts = entry_of(report(public=public).to_registry())
    assert parts["privacy_loss"]["privacy_unit"] == "Person"
    assert parts["deployment_model"]["release_type"] == "Many releases"


@given(name=st.text(max_size=40), purpose=st.text(max_size=40))
def test_no_name_leaves_its_text(name: str, purpose: str) -> None:
    public = dataclasses.replace(report().public, feature_names=(name, "b", "c"))
    parts = entry_of(report(public=public).to_registry(dataset=name, purpose=purpose))
    plain = entry_of(report().to_registry())
    assert {key: set(part) for key, part in parts.items()} == {key: set(part) for key, part in plain.items()}
    assert "\n" not in parts["basic"]["intended_use"]


@pytest.mark.parametrize("found", [report(seeded=True), report(mu=math.inf)])
def test_no_guarantee_is_not_registered(found: dpgep.PrivacyReport) -> None:
    with pytest.raises(ValueError, match="a registry lists guarantees"):
        found.to_registry()


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = np.random.default_rng(0).standard_normal((4000, 3)) * [0.5, 0.1, 0.1]
    dpgep.solve(dpgep.pca(rows, bound=1.0), epsilon=9.0, delta=1e-6, n_components=1).save(tmp_path / "solution.json")
    assert main(["report", str(tmp_path / "solution.json"), "--registry", "--dataset", "visits"]) == 0
    assert entry_of(capsys.readouterr().out)["basic"]["name"] == "visits"
