"""A and B as functions of the second moment: every composition of a pencil, against the formula."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import reference

from dpgep.models import CcaModel, PcaModel
from dpgep.models.model import BETWEEN, WITHIN, Traits
from dpgep.models.row_model import Pencil, PencilPart

D = 5
WEIGHTS = (np.array([1.0, 0.0, -2.0]), np.ones(3))
PARTS = list(itertools.product([True, False], ["whole", "between", "within"]))


def released() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((9, D))
    return rows.T @ rows, rng.standard_normal((3, D))


def pencil(factors: Any, a: Any, b: Any, view_sizes: tuple[int, ...] = (2, 3)) -> Pencil:
    parts = [None if part is None else PencilPart(w, *part) for w, part in zip(WEIGHTS, (a, b), strict=True)]
    assert parts[0] is not None
    return Pencil(factors, parts[0], parts[1], view_sizes)


@pytest.mark.parametrize("sizes", [(2, 3), (1, 2, 2), (1,) * D])
@pytest.mark.parametrize(("a", "b"), list(itertools.product(PARTS, [*PARTS, None])), ids=str)
def test_matrices_diagonals_and_products_agree(a: Any, b: Any, sizes: tuple[int, ...]) -> None:
    second, factors = released()
    plain = [
        None if part is None else reference.PencilPart(weights, float(part[0]), part[1])
        for weights, part in zip(WEIGHTS, (a, b), strict=True)
    ]
    assert plain[0] is not None
    expected = reference.pair_products(lambda block: block @ second, np.eye(D), factors, plain[0], plain[1], sizes)
    form = pencil(factors, a, b, sizes)
    diagonals = form.diagonals(np.diagonal(second).copy())
    found_a, found_b = form.matrices(second.copy())
    assert (found_b is None) == (b is None)
    matrices = (found_a, np.eye(D) if found_b is None else found_b)
    for found, diagonal, formula in zip(matrices, diagonals, expected, strict=True):
        np.testing.assert_allclose(found, formula, atol=1e-12)
        np.testing.assert_allclose(diagonal, np.diagonal(formula), atol=1e-12)


def test_blocks_need_views() -> None:
    class WithoutViews(PcaModel):
        traits = Traits(BETWEEN, WITHIN)

    with pytest.raises(ValueError, match="a is of blocks between views"):
        WithoutViews(D, True)


@pytest.mark.parametrize("sizes", [(D, 0), (-1, D + 1)])
def test_every_view_has_features(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"view_sizes must be positive, got \({sizes[0]},"):
        CcaModel(sizes, True)
