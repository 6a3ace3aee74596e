"""Sources: data in many forms as batches of rows."""

from dpgep.sources.scan import Scan, Selection, as_selection, is_source, scan

__all__ = ["Scan", "Selection", "as_selection", "is_source", "scan"]
