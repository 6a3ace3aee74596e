"""Checks of options against a problem's public side, before data is read or budget reserved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpgep._checks import require_count
from dpgep.models.model import Model, view_labels
from dpgep.privacy.curator import PublicSide
from dpgep.privacy.products import direction_bytes

# Bytes that a release may take beside the data: a public constant, which the machine does not change.
MEMORY_LIMIT = 4 << 30
# Products that a component needs answers to at least, with each of its views: a start, and some steps.
_FEWEST_STEPS = 8


def require_sparsity(sparsity: Any, model: Model, n_components: int, *, separate: bool = False) -> None:
    """Raise ValueError unless ``sparsity`` features hold K components, or each its own: in every view as many."""
    n_views, k = len(model.views), 1 if separate else n_components
    if isinstance(sparsity, tuple):
        require_in_views(sparsity, [view.stop - view.start for view in model.views], least=k)
        return
    require_count("sparsity", sparsity, largest=model.n_features)
    if sparsity < k * n_views:
        of_views = f" of {'two' if n_views == 2 else n_views} views" if n_views > 1 else ""
        what = f"{k} component{'s' * (k > 1)}{of_views}"
        raise ValueError(f"{what} need{'s' * (k == 1)} a sparsity of at least {k * n_views}, got {sparsity}")


def require_in_views(sparsity: tuple[int, ...], widths: Sequence[int], least: int = 1) -> None:
    """Raise ValueError unless there is a number for each view, at least so large and at most the view's width."""
    if len(sparsity) != len(widths):
        views = f"{len(widths)} view{'s' * (len(widths) > 1)}"
        raise ValueError(f"sparsity = {sparsity} has {len(sparsity)} numbers, and the problem {views}")
    for number, width, view in zip(sparsity, widths, view_labels(len(widths)), strict=True):
        if not least <= number <= width:
            raise ValueError(f"sparsity of {view} must be between {least} and {width}, got {number}")


def require_given_sparsity(sparsity: Any) -> None:
    """Raise ValueError for what is no sparsity, and where it is 0, the default of methods that need one."""
    if sparsity == 0 and not isinstance(sparsity, bool):
        raise ValueError("this method needs sparsity: pass sparsity=s, the number of features that components may use")
    require_count("sparsity", sparsity)


def directions_in(memory_limit: int, public: PublicSide, copies: int) -> int:
    """How many directions can be asked of lazy noise and remembered, with ``copies`` of each in the method."""
    d = public.model.n_features
    n_matrices = 2 if public.largest_b is None else 1  # only pairs of matrices have a B that nothing bounds
    return int(memory_limit) // (direction_bytes(d, n_matrices) + copies * 8 * d)


def require_products(model: Model) -> None:
    """Raise ValueError where products with vectors do not serve: the deviations of columns are on a diagonal."""
    if model.standardized:
        raise ValueError(
            f"{model.name} needs the diagonal of a released matrix, which products with vectors do not show: use "
            'method="release" with storage="matrix", or pca of columns divided by public scales'
        )


def require_capacity(public: PublicSide, k: int, memory_limit: int, *, copies: int = 0) -> None:
    """Raise ValueError where ``memory_limit``, or anything else, does not serve K components by products."""
    require_products(public.model)
    d = public.model.n_features
    needed = min(d, _FEWEST_STEPS * k * len(public.model.views))
    fits = directions_in(memory_limit, public, copies)
    if needed > fits:
        raise ValueError(
            f"{k} components of {d} features need the answers to about {needed} products, but only {fits} fit into "
            f"memory_limit = {memory_limit}: give a smaller n_components (its default is all), or raise memory_limit"
        )
