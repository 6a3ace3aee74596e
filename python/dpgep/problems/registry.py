"""The models of rows by name. A new one is a file, a line here, and its builder among the names of `dpgep`."""

from __future__ import annotations

from dpgep.problems.cca import CcaModel
from dpgep.problems.fda import FdaModel
from dpgep.problems.moment_problem import RowModel
from dpgep.problems.pca import PcaModel, StandardizedPcaModel
from dpgep.problems.pls import PlsModel
from dpgep.problems.sir import SirModel
from dpgep.problems.table import TableModel

MODELS: dict[str, type[RowModel]] = {
    model.name: model for model in (PcaModel, StandardizedPcaModel, CcaModel, PlsModel, FdaModel, SirModel, TableModel)
}
