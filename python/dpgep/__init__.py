"""Private spectral analysis: A v = lambda B v under differential privacy, from one exact release."""

from dpgep import _starting as _starting  # before what takes long to import

# isort: split
import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING

# First, for speed: after our own modules the same import takes half as long again (measured; the cause is not known).
import scipy.linalg as _scipy_linalg  # noqa: F401

from dpgep._dispatch import build_info, core
from dpgep._optional import MissingExtraError as _MissingExtraError
from dpgep._replay import ReplayResult, replay
from dpgep.audit import AuditResult, audit
from dpgep.errors import AccuracyWarning, DataChangedError, DataError, PrivacyBudgetError, PrivacyWarning
from dpgep.methods.base import Diagnostics
from dpgep.methods.intervals import Intervals
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing
from dpgep.privacy.budget import Budget
from dpgep.privacy.ledger import LedgerEntry
from dpgep.private_operator import PrivateOperator, private_operator
from dpgep.problems.gep import gep
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.pca import pca
from dpgep.problems.problem import Problem
from dpgep.reports.report import PrivacyReport
from dpgep.solution import Solution
from dpgep.solve import solve
from dpgep.sources import Scan, Selection, scan

__version__ = core.__version__

__all__ = [
    "AccuracyWarning",
    "AuditResult",
    "AutoPreprocessing",
    "Budget",
    "CcaModel",
    "DataChangedError",
    "DataError",
    "Diagnostics",
    "FdaModel",
    "Intervals",
    "LedgerEntry",
    "LinearClassifier",
    "MatrixEstimate",
    "Moments",
    "MultisetCcaModel",
    "PcaModel",
    "Plan",
    "PlsModel",
    "Preprocessing",
    "PrivacyBudgetError",
    "PrivacyReport",
    "PrivacyWarning",
    "PrivateMoments",
    "PrivateOperator",
    "Problem",
    "Regression",
    "ReplayResult",
    "Scan",
    "Selection",
    "SirModel",
    "Solution",
    "StandardizedPcaModel",
    "TableModel",
    "audit",
    "build_info",
    "cca",
    "fda",
    "gep",
    "load",
    "local",
    "multiset_cca",
    "pca",
    "plan",
    "plot",
    "pls",
    "private_operator",
    "release",
    "replay",
    "scan",
    "sir",
    "solve",
    "table",
]

# What a first fit does without, by its module: imported when it is first asked for (PEP 562). Not `audit` and
# `private_operator`: whoever imported their modules first would find those in the place of the functions.
_LAZY = {
    "CcaModel": "models.cca",
    "FdaModel": "models.fda",
    "LinearClassifier": "questions.classifier",
    "MatrixEstimate": "questions.estimates",
    "MultisetCcaModel": "models.multiset_cca",
    "Plan": "planning",
    "PlsModel": "models.pls",
    "PrivateMoments": "private_moments",
    "Regression": "questions.regression",
    "SirModel": "models.sir",
    "TableModel": "models.table",
    "cca": "problems.cca",
    "distributed": "distributed",
    "fda": "problems.fda",
    "load": "loading",
    "local": "local",
    "masked": "masked",
    "multiset_cca": "problems.multiset_cca",
    "plan": "planning",
    "plot": "plot",
    "pls": "problems.pls",
    "release": "private_moments",
    "sir": "problems.sir",
    "sklearn": "sklearn",
    "spark": "spark",
    "table": "problems.table",
}

if TYPE_CHECKING:  # the same for type checkers, without __getattr__, so that they know a wrong name
    from dpgep import distributed as distributed
    from dpgep import local, plot
    from dpgep import masked as masked
    from dpgep import sklearn as sklearn
    from dpgep import spark as spark
    from dpgep.loading import load
    from dpgep.models.cca import CcaModel
    from dpgep.models.fda import FdaModel
    from dpgep.models.multiset_cca import MultisetCcaModel
    from dpgep.models.pls import PlsModel
    from dpgep.models.sir import SirModel
    from dpgep.models.table import TableModel
    from dpgep.planning import Plan, plan
    from dpgep.private_moments import PrivateMoments, release
    from dpgep.problems.cca import cca
    from dpgep.problems.fda import fda
    from dpgep.problems.multiset_cca import multiset_cca
    from dpgep.problems.pls import pls
    from dpgep.problems.sir import sir
    from dpgep.problems.table import table
    from dpgep.questions.classifier import LinearClassifier
    from dpgep.questions.estimates import MatrixEstimate
    from dpgep.questions.regression import Regression
else:

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module 'dpgep' has no attribute {name!r}", name=name, obj=_sys.modules[__name__])
        try:
            module = _importlib.import_module(f"dpgep.{_LAZY[name]}")
        except _MissingExtraError as error:  # `help` passes over names that are not there, and over no other error
            raise AttributeError(f"dpgep.{name}: {error}") from error
        found = module if name == _LAZY[name] else getattr(module, name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    """The public names: what completion shows."""
    return sorted({*__all__, *_LAZY, "__version__"})
