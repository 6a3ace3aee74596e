"""Private spectral analysis: A v = lambda B v under differential privacy, from one exact release."""

# First, for speed: after our own modules the same import takes half as long again (measured; the cause is not known).
import scipy.linalg  # noqa: F401

from dpgep import local
from dpgep._dispatch import build_info, core
from dpgep.audit import AuditResult, audit
from dpgep.comparison import Comparison, compare
from dpgep.errors import AccuracyWarning, DataChangedError, PrivacyBudgetError, PrivacyWarning
from dpgep.methods.intervals import Intervals
from dpgep.models.preparation import Auto, Preparation
from dpgep.planning import Plan, plan
from dpgep.privacy.budget import Budget
from dpgep.private_moments import PrivateMoments, release
from dpgep.private_operator import PrivateOperator, private_operator
from dpgep.problems.cca import CcaModel, cca
from dpgep.problems.fda import FdaModel, fda
from dpgep.problems.gep import gep
from dpgep.problems.mergeable_moments import Moments
from dpgep.problems.pca import PcaModel, StandardizedPcaModel, pca
from dpgep.problems.pls import PlsModel, pls
from dpgep.problems.sir import SirModel, sir
from dpgep.problems.table import TableModel, table
from dpgep.reports.report import PrivacyReport
from dpgep.solution import Solution
from dpgep.solve import solve
from dpgep.sources import Scan, Selection, scan

__version__ = core.__version__

__all__ = [
    "AccuracyWarning",
    "AuditResult",
    "Auto",
    "Budget",
    "CcaModel",
    "Comparison",
    "DataChangedError",
    "FdaModel",
    "Intervals",
    "Moments",
    "PcaModel",
    "Plan",
    "PlsModel",
    "Preparation",
    "PrivacyBudgetError",
    "PrivacyReport",
    "PrivacyWarning",
    "PrivateMoments",
    "PrivateOperator",
    "Scan",
    "Selection",
    "SirModel",
    "Solution",
    "StandardizedPcaModel",
    "TableModel",
    "audit",
    "build_info",
    "cca",
    "compare",
    "fda",
    "gep",
    "local",
    "pca",
    "plan",
    "pls",
    "private_operator",
    "release",
    "scan",
    "sir",
    "solve",
    "table",
]
