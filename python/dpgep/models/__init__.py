"""Models: A and B of each problem as functions of released values. Pure mathematics, without data and noise.

A new model of rows is a file here and a line in `_KINDS`; CONTRIBUTING.md says what makes it one of ours.
"""

from dpgep.models.groups import FdaModel, SirModel
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.row_model import RowModel
from dpgep.models.table import TableModel
from dpgep.models.views import CcaModel, MultisetCcaModel, PlsModel

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
