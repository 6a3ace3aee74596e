"""The compiled variants of the kernels, each a module: one process compares them."""

from __future__ import annotations

import importlib
from typing import Any

from dpgep._dispatch import available_variants


def kernels() -> dict[str, Any]:
    """By their names, the slowest first."""
    return {name: importlib.import_module(f"dpgep._core_{name}") for name in available_variants()}
