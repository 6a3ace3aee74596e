"""Options of a release, and of solving a released pair; their checks against a problem, before data are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dpgep._checks import Count, NonNegative, Share, require_count
from dpgep.methods.base import PRODUCTS, Options
from dpgep.methods.sparse import Sparsity
from dpgep.models.model import Model, PublicSide, view_labels
from dpgep.models.moments import MomentModel
from dpgep.privacy.curator import Curator
from dpgep.privacy.products import direction_bytes

# Bytes that a release may take beside the data: a public constant, which the machine does not change.
MEMORY_LIMIT = 4 << 30
# From this many features on, and this many for each component, products with rows in memory find the leading components
# sooner than the matrix is made. What rounding of products may add to the noise, 0.2 % here, grows with the rows.
WIDE, WIDE_FOR_EACH, MOST_ROWS = 2000, 100, 10**6
# Products that a component needs answers to at least, with each of its views: a start, and some steps.
_FEWEST_STEPS = 8


def matrix_bytes(d: int) -> int:
    """Memory of a release that holds its matrix and solves it: about four of d x d doubles."""
    return 4 * 8 * d * d


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


def require_capacity(public: PublicSide, k: int, memory_limit: int, *, copies: int = 0) -> None:
    """Raise ValueError where ``memory_limit``, or anything else, does not serve K components by products."""
    PRODUCTS.require("release", public)
    d = public.model.n_features
    needed = min(d, _FEWEST_STEPS * k * len(public.model.views))
    fits = directions_in(memory_limit, public, copies)
    if needed > fits:
        raise ValueError(
            f"{k} components of {d} features need the answers to about {needed} products, but only {fits} fit into "
            f"memory_limit = {memory_limit}: give a smaller n_components (its default is all), or raise memory_limit"
        )


@dataclass(frozen=True, kw_only=True)
class PairOptions(Options):
    """How a released pair is solved.

    Parameters
    ----------
    regularization : float, optional
        xi >= 0, the multiple of the identity added to B, in the units of B. Must not be chosen by looking at the data.
        Default: chosen from the released values and their known noise, at no cost (docs/mathematics.md, section 4); for
        sparse components 0.3 times the noise level, by products (storage="operator") the noise level.
    sparsity : int, pair of int, or "auto", optional
        k: components with at most k nonzero entries, searched for on the released pair, which costs nothing. Of two
        views (k_x, k_y): this many in each. "auto" keeps the coordinates that stand out of the known noise. Default:
        dense.
    separate_supports : bool
        Several sparse components have k entries each; default, all share one support of k features.
    """

    regularization: NonNegative | None = None
    sparsity: Sparsity | None = None
    separate_supports: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.sparsity, str):
            if self.sparsity != "auto":
                raise ValueError(f'sparsity must be a whole number or "auto", got {self.sparsity!r}')
        elif isinstance(self.sparsity, (tuple, list)):
            object.__setattr__(self, "sparsity", tuple(require_count("sparsity", each) for each in self.sparsity))
        elif self.sparsity is not None:
            object.__setattr__(self, "sparsity", require_count("sparsity", self.sparsity))
        if self.separate_supports and self.sparsity is None:
            raise ValueError("separate_supports requires sparsity")

    def check(self, public: PublicSide, k: int) -> None:
        """Raise ValueError where the options do not fit the problem; nothing was released."""
        self.check_model(public.model, k)

    def in_one_pass(self, n_features: int) -> bool:
        return True

    def check_model(self, model: Model, k: int) -> None:
        """Raise ValueError where the options do not fit the model of a problem."""
        if self.sparsity is not None and self.sparsity != "auto":
            require_sparsity(self.sparsity, model, k, separate=self.separate_supports)


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(PairOptions):
    """Options of "release": those of a released pair (``regularization``, ``sparsity``, ``separate_supports``), and

    Parameters
    ----------
    screen : int, optional
        k': buy noisy scores of all features, keep the k' with the largest (of each view), and release their block
        alone, rows clipped to a smaller bound that follows from the scores. Default: no screen.
    screen_share : float in (0, 1), optional
        Share of mu^2 that the scores cost; default 0.3.
    storage : {"auto", "matrix", "operator"}
        "matrix": the released d x d matrix is held in memory, 32 d^2 bytes or less where B is the identity, up to 70
        d^2 elsewhere. "operator": it is known by its products, whose noise is drawn as they are asked for; the same
        law, on a public grid, in O(d) memory for each direction asked. "auto": the matrix where it fits into
        memory_limit, unless products are faster: `pca` of 2000 features or more, for few components (1 % of the
        features at most), of up to a million rows in memory under replace-one adjacency; but not of standardized
        columns, for sparse components, or without noise. With a screen: of the block, a matrix.
    memory_limit : int
        Bytes that a release may take beside the data, for "operator", and for "auto", which counts 32 d^2 for a
        matrix. Default 4 GiB, a public constant: the storage must not depend on data, and does not on the machine.
    """

    screen: Count | None = None
    screen_share: Share | None = None
    storage: Literal["auto", "matrix", "operator"] = "auto"
    memory_limit: Count = MEMORY_LIMIT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.screen is not None and self.storage == "operator":
            raise ValueError('screen releases the block of selected features as a matrix, not as an "operator"')
        if self.screen_share is not None and self.screen is None:
            raise ValueError("screen_share requires screen: it is the share of the budget for scores")

    def check(self, public: PublicSide, k: int) -> None:
        """Raise ValueError where the options do not fit the problem; nothing was released."""
        super().check(public, k)
        if self.screen is not None:
            if public.model.traits.standardized:
                raise ValueError(
                    "screen keeps the columns with the largest variances, and those of standardized columns are all 1: "
                    "choose columns by public facts, or screen for pca without standardize"
                )
            self._check_screen(public, k)
        elif self.storage_for(public.model.n_features) == "operator":
            if self.sparsity == "auto":
                raise ValueError(
                    f'sparsity="auto" needs the released matrix, which is too large for {public.model.n_features} '
                    "features and this memory_limit: give a number, or keep fewer features by screen="
                )
            if isinstance(self.sparsity, tuple):
                raise ValueError(
                    "a sparsity of each view needs the released matrix: give one number, or keep fewer features by "
                    "screen="
                )
            require_capacity(public, k, self.memory_limit, copies=1)

    def in_one_pass(self, n_features: int) -> bool:
        return self.screen is None and self.storage_for(n_features) == "matrix"

    def storage_for(self, d: int) -> str:
        """Where memory lets a release of d features be kept: a function of public numbers."""
        if self.storage != "auto":
            return self.storage
        return "matrix" if matrix_bytes(d) <= self.memory_limit else "operator"

    def by_products(self, curator: Curator, k: int) -> bool:
        """Whether the released matrix is to be known by its products.

        It is where it does not fit into memory, and where products give the same accuracy sooner, which follows from
        public numbers and the kind of data.
        """
        public, model, facts = curator.public, curator.model, curator.facts
        if self.storage != "auto" or self.storage_for(model.n_features) == "operator":
            return self.storage_for(model.n_features) == "operator"
        return (
            model.n_features >= max(WIDE, WIDE_FOR_EACH * k)
            and public.at_hand
            and not public.mapped
            and facts.adjacency == "replace-one"  # else rounding is that of many more rows than there are
            and facts.n is not None
            and facts.n <= MOST_ROWS
            and not curator.noiseless
            and self.sparsity is None
            and isinstance(model, MomentModel)
            and model.traits.identity_b
            and not model.traits.standardized
            and len(model.views) == 1
        )

    def _check_screen(self, public: PublicSide, k: int) -> None:
        assert self.screen is not None
        kept = [min(self.screen, view.stop - view.start) for view in public.model.views]
        if k > min(kept):
            raise ValueError(
                f"screen = {self.screen} keeps fewer features than {k} components need: give n_components (its default "
                "is all), or a larger screen"
            )
        if isinstance(self.sparsity, tuple):
            require_in_views(self.sparsity, kept)
        elif self.sparsity not in (None, "auto") and self.sparsity > sum(kept):
            raise ValueError(f"sparsity = {self.sparsity} is more than the {sum(kept)} features that screen keeps")
        if self.storage_for(sum(kept)) == "operator":
            raise ValueError(
                f"the block of {sum(kept)} features takes {matrix_bytes(sum(kept))} bytes, more than memory_limit = "
                f"{self.memory_limit}: give a smaller screen"
            )
