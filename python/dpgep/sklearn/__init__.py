"""The analyses as scikit-learn estimators: for pipelines, grid searches and `set_output`. Needs the extra ``sklearn``.

Each ``fit`` is one run of `dpgep.solve` or `dpgep.release` and costs what that costs. ``fit`` is private and nothing
else is: `transform`, `predict` and `score` are functions of the rows they are given (docs/estimators.md).
"""

from dpgep._optional import import_extra

import_extra("sklearn", "sklearn")  # before the modules below, which cannot say what to install

from dpgep.sklearn.estimators import PrivateCCA, PrivateFDA, PrivatePCA, PrivatePLS, PrivateScaler, PrivateSIR  # noqa: E402

__all__ = ["PrivateCCA", "PrivateFDA", "PrivatePCA", "PrivatePLS", "PrivateSIR", "PrivateScaler"]
