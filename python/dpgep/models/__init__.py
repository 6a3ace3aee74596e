"""Models: A and B of each problem as functions of released values. Pure mathematics, without data and noise."""

from dpgep.models.cca import CcaModel
from dpgep.models.fda import FdaModel
from dpgep.models.multiset_cca import MultisetCcaModel
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.pls import PlsModel
from dpgep.models.sir import SirModel
from dpgep.models.table import TableModel

__all__ = [
    "CcaModel",
    "FdaModel",
    "MultisetCcaModel",
    "PcaModel",
    "PlsModel",
    "SirModel",
    "StandardizedPcaModel",
    "TableModel",
]
