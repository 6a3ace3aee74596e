"""Products of a block of rows with itself, added up in the upper triangle of a matrix, on several threads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dpgep._blas import add_gram, add_product
from dpgep._threads import blas_on_one_thread, can_limit_blas, run, thread_count

Matrix = NDArray[np.float64]

# Additions below which starting threads costs more than they save.
_WORK_FOR_THREADS = 2e7
# Columns of a tile: fewer keep BLAS from its full rate. A fixed grid has tiles of about the larger width.
_LEAST_TILE, _FIXED_TILE = 96, 256


def add_products(block: Matrix, total: Matrix, sign: float = 1.0, *, exact: bool = False) -> None:
    """Add sign block^T block to the upper triangle of total, in place.

    The triangle is cut into tiles, so that threads need no memory of their own. If no sum is rounded (``exact``), any
    tiles will do, and fewer are faster; else the tiles depend on the shape alone. Thus the bits are the same for any
    number of threads. Where nothing can keep BLAS to one thread, the threads are BLAS's own.
    """
    d = block.shape[1]
    ours = can_limit_blas() and block.size * d >= _WORK_FOR_THREADS
    n_threads = thread_count() if ours else 1
    tasks = _tiles(block, total, sign, _edges(d, _exact_grid(d, n_threads) if exact else -(-d // _FIXED_TILE)))
    with blas_on_one_thread() if ours else nullcontext():
        run(tasks, n_threads)


def _exact_grid(d: int, n_threads: int) -> int:
    """Tiles along a side: one on one thread; two on two, where one tile is as much as both others; enough on more."""
    return max(1, min(n_threads if n_threads <= 2 else 2 * n_threads, d // _LEAST_TILE))


def _edges(d: int, n_tiles: int) -> list[int]:
    return [d * i // n_tiles for i in range(n_tiles + 1)]


def _tiles(block: Matrix, total: Matrix, sign: float, edges: list[int]) -> list[Callable[[], None]]:
    """One task for each tile of the upper triangle, the larger ones first."""
    columns = [slice(*pair) for pair in pairwise(edges)]
    pairs = [(a, b) for i, a in enumerate(columns) for b in columns[i + 1 :]]
    return [
        *(partial(add_product, block[:, a], block[:, b], total[a, b], sign) for a, b in pairs),
        *(partial(add_gram, block[:, a], total[a, a], sign) for a in columns),
    ]
