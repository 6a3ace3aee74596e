"""`dpgep.sklearn`: scikit-learn's own checks, its estimators as oracles without noise, and what fits cost."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from conftest import Matrix, nothing_spent
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.cross_decomposition import CCA, PLSSVD
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpgep
from dpgep.sklearn import PrivateCCA, PrivateFDA, PrivatePCA, PrivatePLS, PrivateScaler, PrivateSIR

EXACT: dict[str, Any] = {"epsilon": math.inf}
PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def all_estimators(**terms: Any) -> list[Any]:
    return [
        PrivatePCA(**terms),
        PrivatePCA(standardize=True, **terms),
        PrivateCCA(**terms),
        PrivatePLS(**terms),
        PrivateFDA(**terms),
        PrivateSIR(y_range=(-3.0, 3.0), **terms),
        PrivateScaler(**terms),
        PrivateScaler(with_mean=False, **terms),
    ]


# Warnings of seeds, of labels that become public, of a delta of 1/n or more, and of what few rows show are the
# library's own; no check is expected to fail. scikit-learn itself skips one, of array types that estimators without
# `array_api_support` do not claim, unless SCIPY_ARRAY_API is set: the last test of this file sets it.
checks_may_warn = pytest.mark.filterwarnings(
    "ignore::dpgep.PrivacyWarning", "ignore::dpgep.AccuracyWarning", "ignore:SCIPY_ARRAY_API"
)


@checks_may_warn
@parametrize_with_checks(all_estimators(**EXACT))
def test_checks_of_scikit_learn_without_noise(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.deep
@checks_may_warn
@parametrize_with_checks(all_estimators(**PRIVATE))
def test_checks_of_scikit_learn(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
