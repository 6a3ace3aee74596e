"""What a stated guarantee must satisfy to follow from its ledger."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dpgep.models.model import Adjacency
from dpgep.privacy.calibration import MOMENT_BLOCKS, RECORD, SECOND, mu_of_blocks
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock

# The most entries of a ledger that can be verified, bits of a grid, and steps of noise on it; releases stay below.
MOST_ENTRIES = 1 << 16
_MOST_GRID_BITS, _MOST_SCALE = 64, 1 << 62
# Deviations in units of the bound: budgets lie between 1e-100 and 1e100, and squares and ratios of these are in range.
_LEAST_DEVIATION, _MOST_DEVIATION = 1e-150, 1e150
# by how much a delta may differ that another version of SciPy or dp_accounting has computed
_VERSIONS = 1e-9


def require_entry(where: str, entry: LedgerEntry, adjacency: Adjacency) -> None:
    """Raise ValueError for what no release is, and for less noise than it pays for, where that is known."""
    if entry.mu is not None and not entry.mu > 0:
        raise ValueError(f"{where}.mu must be positive, or none, got {entry.mu!r}")
    if (entry.mu is None) != (entry.event is not None):
        raise ValueError(f"{where} must have either a mu or an event")
    if entry.grid_bits is not None and not 0 <= entry.grid_bits <= _MOST_GRID_BITS:
        raise ValueError(f"{where}.grid_bits must be from 0 to {_MOST_GRID_BITS}, or none, got {entry.grid_bits}")
    is_private = entry.mu is None or math.isfinite(entry.mu)
    if is_private and all(_is_public(block) for block in entry.noise):
        raise ValueError(f"{where}.noise must have a block where mu is finite, not only public matrices")
    if len({block.name for block in entry.noise}) < len(entry.noise):
        raise ValueError(f"{where}.noise lists a block twice")
    for block in entry.noise:
        may_be_zero = not is_private or _is_public(block)
        if not (0 <= block.deviation < math.inf and (may_be_zero or block.deviation > 0)):
            raise ValueError(f"{where}.noise must have positive finite deviations, got {block.deviation!r}")
        if block.scale is not None and not _is_on_grid(block, entry.grid_bits):
            raise ValueError(f"{where}.noise has a scale of {block.scale}, which is not its deviation on the grid")
    if entry.mu is not None and is_private:
        _require_paid(where, entry.noise, entry.mu, adjacency)


def _is_public(block: NoiseBlock) -> bool:
    """Whether a block is of a matrix that was declared public, and has no noise; moments never are."""
    return block.shape.startswith("none") and block.name not in MOMENT_BLOCKS


def _require_paid(where: str, noise: tuple[NoiseBlock, ...], mu: float, adjacency: Adjacency) -> None:
    """Raise ValueError for noise in the blocks of a moment matrix that costs more than mu."""
    names = {block.name for block in noise}
    # a second moment comes with its own sums and counts only; a screen has these two beside its diagonal
    if (SECOND in names and not names <= MOMENT_BLOCKS - {RECORD}) or (RECORD in names and len(names) > 1):
        raise ValueError(f"{where}.noise has a block of a moment matrix beside others, in {sorted(names)}")
    for block in noise:
        if block.name in MOMENT_BLOCKS and not _LEAST_DEVIATION <= block.deviation <= _MOST_DEVIATION:
            raise ValueError(
                f"{where}.noise must have deviations between {_LEAST_DEVIATION:g} and {_MOST_DEVIATION:g} in "
                f"{block.name!r}, got {block.deviation!r}"
            )
    cost = mu_of_blocks(noise, adjacency)
    if cost > mu * (1 + _VERSIONS):
        raise ValueError(f"{where}.noise costs mu = {cost!r}, more than the stated {mu!r}")


def _is_on_grid(block: NoiseBlock, bits: int | None) -> bool:
    """Whether a scale is the deviation in steps: of 4^-bits, those of a second moment, or of 2^-bits."""
    if bits is None or block.scale is None or not 0 < block.scale <= _MOST_SCALE:
        return False
    return block.deviation in (math.ldexp(block.scale, -2 * bits), math.ldexp(block.scale, -bits))


def require_delta(delta_at: Callable[[float], float], epsilon: float, stated: float) -> None:
    """Raise ValueError unless delta at epsilon is at most the stated one."""
    try:
        with np.errstate(over="raise"):  # as newer versions of dp_accounting do by themselves
            delta = delta_at(epsilon)
    except (ArithmeticError, MemoryError, ValueError) as error:
        raise ValueError(f"the ledger cannot be accounted for: {error}") from None
    if not delta <= stated * (1 + _VERSIONS):
        raise ValueError(
            f"the entries of the ledger have delta = {delta:.6g} at epsilon = {epsilon:g}, more than the stated "
            f"{stated:.6g}"
        )
