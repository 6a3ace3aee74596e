"""Picks the compiled variant of the kernels for this processor: ``from dpgep._dispatch import core``.

The kernels are built once per instruction-set level, as modules of their own. The best level that this
processor runs is loaded; the environment variable ``DPGEP_SIMD`` names another. All variants give the same bits.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
from typing import TYPE_CHECKING, Any

from dpgep import _cpu

if TYPE_CHECKING:
    from dpgep import _core as core

__all__ = ["available_variants", "build_info", "core"]

_ENVIRONMENT_VARIABLE = "DPGEP_SIMD"


def available_variants() -> tuple[str, ...]:
    """The variants that were built and that this processor runs, slowest first."""
    return tuple(level for level in _cpu.levels() if importlib.util.find_spec(f"dpgep._core_{level}") is not None)


def _load() -> Any:
    available = available_variants()
    variant = os.environ.get(_ENVIRONMENT_VARIABLE) or available[-1]
    if variant not in available:
        raise ImportError(f"{_ENVIRONMENT_VARIABLE}={variant!r} does not run here; what does: {', '.join(available)}")
    return importlib.import_module(f"dpgep._core_{variant}")


if not TYPE_CHECKING:
    core = _load()


def build_info() -> dict[str, str]:
    """Versions and build of everything that computes: what a bug report should quote."""
    import numpy as np
    import scipy  # slow to import, and needed here alone

    blas = scipy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "version": core.__version__,
        **core.build_info(),
        "available_variants": ", ".join(available_variants()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
    }
