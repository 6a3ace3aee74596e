"""Private spectral analysis: A v = lambda B v under differential privacy, from one exact release."""

from dpgep import _starting as _starting  # before what takes long to import

# isort: split
import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING

# First, for speed: after our own modules the same import takes half as long again (measured; the cause is not known).
import scipy.linalg as _scipy_linalg  # noqa: F401

from dpgep import errors, models
from dpgep._dispatch import build_info as build_info
from dpgep._dispatch import core
from dpgep._optional import MissingExtraError as _MissingExtraError
from dpgep.models.preprocessing import AutoPreprocessing, Preprocessing
from dpgep.privacy.budget import Budget
from dpgep.problems.builders import cca, contrastive_pca, fda, gep, multiset_cca, pca, pls, sir
from dpgep.problems.mergeable_moments import Moments
from dpgep.reports.report import PrivacyReport
from dpgep.results.release import Release
from dpgep.results.solution import Solution
from dpgep.run import release, score_density, solve
from dpgep.sources import scan

__version__ = core.__version__

__all__ = [
    "AutoPreprocessing", "Budget", "Moments", "Nights", "Preprocessing", "PrivacyReport", "Release", "Solution",
    "auditing", "cca", "contrastive_pca", "errors", "fda", "gep", "load", "local", "models", "multiset_cca", "pca",
    "planning", "plot", "pls", "release", "scan", "score_density", "sir", "solve",
]  # fmt: skip

# What a first fit does without, by its module: imported when it is first asked for (PEP 562).
_LAZY = {"load": "loading", "Nights": "nights"} | {
    name: name for name in ("auditing", "local", "masked", "planning", "plot", "sklearn")
}

if TYPE_CHECKING:  # the same for type checkers, without __getattr__, so that they know a wrong name
    from dpgep import auditing, local, planning, plot
    from dpgep import masked as masked
    from dpgep import sklearn as sklearn
    from dpgep.loading import load
    from dpgep.nights import Nights
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
