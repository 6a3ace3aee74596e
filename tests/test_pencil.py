"""A and B as functions of the second moment: every composition of a pencil, against the formula."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import reference

from dpgep.models.moments import Pencil, PencilPart

D, SPLIT = 5, 2
WEIGHTS = (np.array([1.0, 0.0, -2.0]), np.ones(3))
PARTS = list(itertools.product([True, False], ["whole", "between", "within"]))


def released() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((9, D))
    return rows.T @ rows, rng.standard_normal((3, D))


def pencil(factors: Any, a: Any, b: Any, first_view_size: int = SPLIT) -> Pencil:
    parts = [None if part is None else PencilPart(w, *part) for w, part in zip(WEIGHTS, (a, b), strict=True)]
    assert parts[0] is not None
    return Pencil(factors, parts[0], parts[1], first_view_size)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(PARTS, [*PARTS, None])), ids=str)
def test_matrices_diagonals_and_products_agree(a: Any, b: Any) -> None:
    second, factors = released()
    plain = [
        None if part is None else reference.PencilPart(weights, float(part[0]), part[1])
        for weights, part in zip(WEIGHTS, (a, b), strict=True)
    ]
    assert plain[0] is not None
    expected = reference.pair_products(lambda block: block @ second, np.eye(D), factors, plain[0], plain[1], SPLIT)
    form = pencil(factors, a, b)
    diagonals = form.diagonals(np.diagonal(second).copy())
    found_a, found_b = form.matrices(second.copy())
    assert (found_b is None) == (b is None)
    matrices = (found_a, np.eye(D) if found_b is None else found_b)
    for found, diagonal, formula in zip(matrices, diagonals, expected, strict=True):
        np.testing.assert_allclose(found, formula, atol=1e-12)
        np.testing.assert_allclose(diagonal, np.diagonal(formula), atol=1e-12)


@pytest.mark.parametrize("blocks", ["between", "within"])
@pytest.mark.parametrize("part", ["a", "b"])
def test_blocks_need_two_views(part: str, blocks: str) -> None:
    parts = {"a": (True, "whole"), "b": (True, "whole"), part: (True, blocks)}
    with pytest.raises(ValueError, match="need two views"):
        pencil(released()[1], **parts, first_view_size=0)


@pytest.mark.parametrize("first_view_size", [-1, D, D + 1])
def test_the_first_view_leaves_features_to_the_second(first_view_size: int) -> None:
    with pytest.raises(ValueError, match=rf"must lie between 0 and d - 1 = {D - 1}, got {first_view_size}"):
        pencil(released()[1], (True, "whole"), None, first_view_size)
