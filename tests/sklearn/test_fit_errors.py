"""What the errors of a fit say of people: nothing, also where scikit-learn would quote a value."""

from __future__ import annotations

import re
import traceback
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from dpgep.sklearn import PrivateCCA, PrivatePCA, PrivateScaler, PrivateSIR

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 2))
PRICE = {"epsilon": 1.0, "delta": 1e-6}
SECRET = "HIV positive"


def _with_secret(values: Any) -> Any:
    objects = np.array(values, dtype=object)
    objects[(7, *[1] * (objects.ndim - 1))] = SECRET
    return objects


def _error(fit: Any) -> str:
    with pytest.raises((ValueError, TypeError)) as caught:
        fit()
    return "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "fit",
    [
        lambda: PrivatePCA(**PRICE).fit(_with_secret(X)),
        lambda: PrivateScaler(**PRICE).fit(_with_secret(X)),
        lambda: PrivateCCA(**PRICE).fit(X, _with_secret(X)),
        lambda: PrivateSIR(y_range=(-1, 1), **PRICE).fit(X, _with_secret(X[:, 0])),
    ],
    ids=["pca", "scaler", "cca", "sir"],
)
def test_the_errors_of_a_fit_quote_no_text_of_a_person(fit: Any) -> None:
    said = _error(fit)
    assert SECRET not in said
    assert "suppressed since it may quote values" in said


@pytest.mark.parametrize("rows", [X[:, 0], X + 1j], ids=["vector", "complex"])
def test_the_errors_of_a_fit_print_no_rows(rows: Any) -> None:
    said = _error(lambda: PrivatePCA(**PRICE).fit(rows))
    value = f"{abs(X[0, 0]):.6f}"
    assert re.search(r"Expected 2D|Complex data", said)
    assert value not in said
