"""What is saved, as bytes."""

from __future__ import annotations

import io
from typing import Any


def bytes_of(kept: Any) -> bytes:
    """What a solution, a release or sums of moments write."""
    buffer = io.BytesIO()
    kept.save(buffer)
    return buffer.getvalue()
