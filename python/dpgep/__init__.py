"""Private spectral analysis: A v = lambda B v under differential privacy, from one exact release."""

# First, for speed: after our own modules the same import takes half as long again (measured; the cause is not known).
import scipy.linalg  # noqa: F401

from dpgep import local
from dpgep._dispatch import build_info, core
from dpgep.audit import AuditResult, audit
from dpgep.errors import AccuracyWarning, PrivacyBudgetError, PrivacyWarning
from dpgep.privacy.budget import Budget
from dpgep.private_operator import PrivateOperator, private_operator
from dpgep.problems.cca import cca
from dpgep.problems.fda import fda
from dpgep.problems.gep import gep
from dpgep.problems.pca import pca
from dpgep.problems.sir import sir
from dpgep.solution import PrivacyReport, Solution
from dpgep.solve import solve

__version__ = core.__version__

__all__ = [
    "AccuracyWarning",
    "AuditResult",
    "Budget",
    "PrivacyBudgetError",
    "PrivacyReport",
    "PrivacyWarning",
    "PrivateOperator",
    "Solution",
    "audit",
    "build_info",
    "cca",
    "fda",
    "gep",
    "local",
    "pca",
    "private_operator",
    "sir",
    "solve",
]
