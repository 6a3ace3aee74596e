"""docs/defects-of-others.md: each test that it names passes, and fails when what it is about is taken away."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dpgep
from dpgep._dispatch import core
from dpgep.privacy.ledger import mu_rounded_up

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/defects-of-others.md"
REPLAY = "auditing/test_replay.py::test_same_answers_same_view"
Patch = pytest.MonkeyPatch


class Defect(NamedTuple):
    """A test under tests/, what it is called with, and how to take the protection away."""

    test: str
    arguments: tuple[Any, ...]
    remove: Callable[[Patch], None]

    @property
    def function(self) -> Callable[..., None]:
        file, name = self.test.split("::")
        return getattr(module(file), name)


def module(file: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str((ROOT / "tests" / file).parent))
        return importlib.import_module(Path(file).stem)


def planted(fault: str, case: str) -> Defect:
    """One that the planted faults have, in a run of the replays."""
    return Defect(REPLAY, (case,), lambda patch: module("auditing/test_planted_faults.py").FAULTS[fault][1](patch))


def patched(target: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(target, value)


def norms_times_the_root(patch: Patch) -> None:
    """Of a night's column, as if columns of several nights were orthogonal."""
    from dpgep.privacy.continual import Factor

    one = Factor.mu_of_a_night
    patch.setattr(Factor, "mu_of_a_night", lambda self, mu, nights: one(self, mu, 1) / nights**0.5)


def streams_that_fork_with_their_key(patch: Patch) -> None:
    real = core.NoiseStream
    patch.setattr(core, "NoiseStream", lambda: real(bytes(32)))


def no_noise_on_counts_of_magnitudes(patch: Patch) -> None:
    from dpgep.privacy import curator

    patch.setattr(curator, "_scale", lambda *_: 1)


def whole_weights(patch: Patch) -> None:
    from dpgep.data import people

    whole = int(people.row_weights(np.zeros(1, np.int64), None)[0])
    patch.setattr(people, "row_weights", lambda persons, *_: np.full(len(persons), whole, np.int16))


def printed_in_place_of_corrected(patch: Patch) -> None:
    cases = module("statistical/test_audit_controls.py")
    patch.setattr(cases, "CORRECTED", cases.CONTROLS)


DEFECTS: dict[str, Defect] = {
    "Trees in the Euclidean norm": Defect(
        "privacy/test_continual.py::test_the_price_is_attained_and_by_no_other_nights", (2,), norms_times_the_root
    ),
    "Covariances of rows that were not clipped": planted(
        "rows that are not clipped", "release() pca uncentred 2.0 add-remove"
    ),
    "A sensitivity of zero": planted("counts without noise", "release() fda 2.0 add-remove"),
    "Replacing is adding and removing": planted(
        "a sensitivity without the second person", "clipped-power(n_iterations=3) cca 2.0 replace-one"
    ),
    "Low-order bits": planted("last bits of the exact values", "release() standardized-pca 2.0 add-remove"),
    "The same noise twice": Defect(
        "kernels/test_noise_stream.py::test_forked_children_draw_noise_of_their_own",
        (37,),
        streams_that_fork_with_their_key,
    ),
    "Noise that can be predicted": planted("noise from another generator", "release() pca 2.0 replace-one"),
    "NaN passes the clip": Defect(
        "data/test_histograms.py::test_not_finite",
        ("magnitudes", np.nan, np.asarray),
        patched(
            "dpgep.data.integer_sums._TableSums._add_block",
            lambda self, block, *of_rows: self._kernel(block, *self._facts, self.counts, 1, *of_rows),
        ),
    ),
    "Bounds taken from the data": Defect(
        REPLAY, ("release() standardized-pca auto add-remove",), no_noise_on_counts_of_magnitudes
    ),
    "Noise of a size that the data decide": planted(
        "noise of a scale that the rows decide", "release() standardized-pca 2.0 add-remove"
    ),
    "A choice by exact scores": planted(
        "a screen whose squares have no noise",
        "release(screen=4, sparsity=3, screen_share=0.5) pca uncentred 2.0 add-remove",
    ),
    "One person with many records": Defect(
        "data/test_people.py::test_a_person_costs_what_the_ledger_says", ("pca", 1.0, "replace-one"), whole_weights
    ),
    "Categories taken from the data": Defect(
        "data/test_labels.py::test_labels_that_nobody_lists_become_public_with_a_warning",
        (np.zeros((60, 4)), np.array(["no", "secret", "yes"] * 20)),
        patched("dpgep.data.inputs.warn", lambda *_: None),
    ),
    "A budget that is spent twice": planted("an entry that says less than it costs", "release() pca auto replace-one"),
    "Rounding in one's own favour": Defect(
        "privacy/test_continual.py::test_the_price_is_attained_and_by_no_other_nights",
        (2,),
        patched("dpgep.privacy.continual.mu_rounded_down", mu_rounded_up),
    ),
    "A proof of another algorithm": Defect(
        "statistical/test_audit_controls.py::test_correction_is_not_flagged",
        ("local mechanism without sqrt 2",),
        printed_in_place_of_corrected,
    ),
    "Data in a stored model": planted(
        "a solution that carries exact sums", "release() standardized-pca 2.0 add-remove"
    ),
}


def sections() -> dict[str, str]:
    """The text under each heading of the page."""
    _, *parts = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(part.split("\n", 1) for part in parts)


def test_each_class_on_the_page_has_its_test_and_a_source() -> None:
    assert len(DEFECTS) >= 12
    page = sections()
    assert list(page) == list(DEFECTS)
    for name, text in page.items():
        assert re.findall(r"^\*Test:\* `tests/([^`]*)`", text, flags=re.MULTILINE) == [DEFECTS[name].test]
        file, function = DEFECTS[name].test.split("::")
        assert f"\ndef {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(r"\]\(https://", text)
        assert "\n*Here:* " in text
    for file in re.findall(r"`(\w+/\w+\.py)`", PAGE.read_text(encoding="utf-8")):
        assert (Path(dpgep.__file__).parent / file).is_file(), file


LONG = ("A proof of another algorithm",)


@pytest.mark.entropy
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.deep] if name in LONG else []) for name in DEFECTS]
)
def test_the_named_test_fails_without_the_protection(name: str, monkeypatch: Patch) -> None:
    defect = DEFECTS[name]
    defect.function(*defect.arguments)
    defect.remove(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        defect.function(*defect.arguments)
