"""Models: A and B of each problem as functions of released values. Pure mathematics, without data and noise.

A new model of rows is a file here and a line in `_KINDS`; CONTRIBUTING.md says what makes it one of ours.
"""

from dpgep.models.cca import CcaModel
from dpgep.models.fda import FdaModel
from dpgep.models.multiset_cca import MultisetCcaModel
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.pls import PlsModel
from dpgep.models.row_model import RowModel
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

_KINDS = (PcaModel, StandardizedPcaModel, CcaModel, PlsModel, MultisetCcaModel, FdaModel, SirModel, TableModel)
#: the models of rows by name
MODELS: dict[str, type[RowModel]] = {model.name: model for model in _KINDS}
