"""The stream that noise comes from: the operating system's entropy, or a seed for tests."""

from __future__ import annotations

import hashlib
import operator
import warnings
from typing import Any

from dpgep._dispatch import core
from dpgep.errors import PrivacyWarning


def noise_stream(seed: Any, *, stacklevel: int) -> core.NoiseStream:
    """A new stream; with a seed (a whole number) it is reproducible, and a `PrivacyWarning` says so."""
    if seed is None:
        return core.NoiseStream()
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be a whole number, got {seed!r}")
    warnings.warn(
        "a seeded run is not private: whoever knows the seed can subtract the noise",
        PrivacyWarning,
        stacklevel=stacklevel + 1,
    )
    return core.NoiseStream(hashlib.sha256(f"dpgep seed {operator.index(seed)}".encode()).digest())
