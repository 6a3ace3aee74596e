"""Sources: data in many forms as batches of rows."""

from dpgep.sources.scan import Scan, Selection, as_selection, is_source, scan
from dpgep.sources.withheld import UnreadableError

__all__ = ["Scan", "Selection", "UnreadableError", "as_selection", "is_source", "scan"]
