"""A and B as functions of the second moment: every combination of the flags that is allowed, against the formula."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from dpgep import reference
from dpgep.problems.model import PairForm

D, SPLIT = 5, 2
FLAGS = [
    dict(zip(("second_a", "second_b", "identity_b"), flags, strict=True))
    for flags in itertools.product([False, True], repeat=3)
    if not (flags[1] and flags[2])
]


def released() -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((9, D))
    parts = {"factors": rng.standard_normal((3, D)), "weights_a": np.array([1.0, 0.0, -2.0]), "weights_b": np.ones(3)}
    return rows.T @ rows, parts


@pytest.mark.parametrize("flags", [*FLAGS, {"split": SPLIT}], ids=str)
def test_matrices_diagonals_and_products_agree(flags: dict[str, Any]) -> None:
    second, parts = released()
    given = {"second_a": 0.0, "second_b": 0.0, **flags}
    expected = reference.pair_products(lambda block: block @ second, np.eye(D), **parts, **given)
    form = PairForm(**parts, **flags)
    diagonals = form.diagonals(np.diagonal(second).copy())
    a, b = form.matrices(second.copy())
    assert (b is None) == flags.get("identity_b", False)
    for found, diagonal, formula in zip((a, np.eye(D) if b is None else b), diagonals, expected, strict=True):
        np.testing.assert_allclose(found, formula, atol=1e-12)
        np.testing.assert_allclose(diagonal, np.diagonal(formula), atol=1e-12)


@pytest.mark.parametrize("flag", ["second_a", "second_b", "identity_b"])
def test_two_views_take_no_other_flag(flag: str) -> None:
    with pytest.raises(ValueError, match=rf"split .* {flag} must be False"):
        PairForm(**released()[1], split=SPLIT, **{flag: True})


def test_an_identity_takes_no_second_moment() -> None:
    with pytest.raises(ValueError, match=r"identity_b .* second_b must be False"):
        PairForm(**released()[1], identity_b=True, second_b=True)


@pytest.mark.parametrize("split", [-1, D, D + 1])
def test_a_split_lies_between_two_features(split: int) -> None:
    with pytest.raises(ValueError, match=rf"split must lie between 0 and d - 1 = {D - 1}, got {split}"):
        PairForm(**released()[1], split=split)
