"""How many inputs Hypothesis draws for kernels whose examples are slow to draw: DPGEP_EXAMPLES is the part of them."""

import os

from hypothesis import settings

PART = float(os.environ.get("DPGEP_EXAMPLES", "0.4"))


def drawn(examples: int) -> settings:
    """The same examples in every run: all of them in CI, a part elsewhere."""
    return settings(deadline=None, derandomize=True, max_examples=max(10, round(PART * examples)))
