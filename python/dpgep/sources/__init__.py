"""Sources: data in many forms as batches of rows."""

from dpgep.sources.encoding import BOOLEANS, declared_values
from dpgep.sources.scan import Scan, Selection, as_selection, is_source, scan
from dpgep.sources.tables import Text, as_vector_of_values

__all__ = [
    "BOOLEANS",
    "Scan",
    "Selection",
    "Text",
    "as_selection",
    "as_vector_of_values",
    "declared_values",
    "is_source",
    "scan",
]
