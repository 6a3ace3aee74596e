"""The models of rows by name. A new one is a file, a line here, and its builder among the names of `dpgep`."""

from __future__ import annotations

from dpgep.models.cca import CcaModel
from dpgep.models.fda import FdaModel
from dpgep.models.multiset_cca import MultisetCcaModel
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.pls import PlsModel
from dpgep.models.row_model import RowModel
from dpgep.models.sir import SirModel
from dpgep.models.table import TableModel

MODELS: dict[str, type[RowModel]] = {
    model.name: model
    for model in (
        PcaModel,
        StandardizedPcaModel,
        CcaModel,
        PlsModel,
        MultisetCcaModel,
        FdaModel,
        SirModel,
        TableModel,
    )
}
