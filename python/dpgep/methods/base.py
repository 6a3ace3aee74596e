"""What a method is: what it declares to need and to do, the options it takes, and the result that it hands over.

Checks, before data are read, messages and the table of docs/reference/methods.md follow from the declaration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, TypeAlias

import numpy as np
import scipy  # its special functions are loaded when they are used

from dpgep._checks import Bytes, Count, NonNegative, Share, check_fields, require_count, suggestion, unchecked
from dpgep._show import Shown
from dpgep.methods.eigen import Accuracy
from dpgep.models import ReleasedMatrices
from dpgep.models.model import Matrix, Model, PublicSide
from dpgep.models.moments import ReleasedGroups, ReleasedMoments
from dpgep.models.row_model import RowModel, has_own_pencil, view_labels
from dpgep.privacy.curator import Curator
from dpgep.privacy.products import direction_bytes

_PEOPLE_PER_FEATURE = 10  # fewer are said to be few
# Bytes that a release may take beside the data: a public constant, which the machine does not change.
MEMORY_LIMIT = 4 << 30
# From this many features on, and this many for each component, products with rows in memory find the leading components
# sooner than the matrix is made. What rounding of products may add to the noise, 0.2 % here, grows with the rows.
WIDE, WIDE_FOR_EACH, MOST_ROWS = 2000, 100, 10**6
# Products that a component needs answers to at least, with each of its views: a start, and some steps.
_FEWEST_STEPS = 8
# Levels of the ends of a stated range, and how many times the stated bias of clipping its upper end holds: chosen on
# the odd tables of benchmarks/real_tables.py, as the stated bias was.
_ENDS, _MORE_CLIPPED = (0.05, 0.95), 4.0

# What holds the data of a problem: rows in memory, rows read pass by pass, matrices A and B, sums of rows.
Data: TypeAlias = Literal["rows", "streams", "matrices", "sums"]

# How many features a support has: this many, this many of each view, or those that stand out of the noise.
Sparsity: TypeAlias = int | tuple[int, ...] | Literal["auto"]


@dataclass(frozen=True)
class Need:
    """What a method needs of a problem."""

    summary: str  # in the words of the table of methods
    met: Callable[[PublicSide], bool]
    refusal: str  # the message where it is not met, of {method} and {model}

    def require(self, method: str, public: PublicSide) -> None:
        """Raise ValueError where the need is not met."""
        if not self.met(public):
            raise ValueError(self.refusal.format(method=method, model=public.model.name))


OF_TRAITS = Need(
    "no [pencil](../your-own-model.md#other-matrices) of the model's own",
    lambda public: not has_own_pencil(public.model),
    "{method} by products with vectors takes A and B from the traits of a model, and {model} makes them of a released "
    'matrix, by a pencil of its own: use method="release" with storage="matrix", and no screen',
)
SECOND_MOMENT = Need(
    "`pca(center=False)`",
    lambda public: public.model.traits.is_second_moment,
    '{method} is for pca(X, center=False), the second moment of the rows, not for this {model}: use method="release"',
)
CLIPPED_PRODUCTS = Need(
    "`pca` without `standardize`, `pls`, `cca`",
    lambda public: public.model.traits.has_clipped_products and not public.pairwise,
    "{method} is for cca, pls, and pca without standardize: what clipped products change is not proved for {model}; "
    'use method="release"',
)
PRODUCTS = Need(
    "all but standardized `pca`",
    lambda public: not public.model.traits.standardized and not public.pairwise,
    "{model} needs a released matrix, such as its diagonal, which products with vectors do not show: use "
    'method="release" with storage="matrix", or pca of columns divided by public scales',
)
PUBLIC_N = Need(
    "a public number of people",
    lambda public: public.facts.n_is_public,
    "{method} divides by a public number of people: give public_n to the problem (it need not be exact)",
)
KNOWN_N = Need(
    "a number of people that is public before rows are read",
    lambda public: public.facts.n is not None,
    "{method} needs the number of people before rows are read: give rows in memory, or public_n where people may be "
    'added or removed (adjacency="add-remove")',
)
REPLACE_ONE = Need(
    "replace-one adjacency",
    lambda public: public.facts.adjacency == "replace-one",
    '{method} needs adjacency="replace-one": the server sees how many people report',
)
ONE_ROW_EACH = Need(
    "one row to each person",
    lambda public: not public.facts.several_rows,
    "{method} is not for several rows to a person (person=): use a method that asks about all people, or bring the "
    "rows of each person into one",
)
EQUAL_WEIGHTS = Need(
    "people who count alike",
    lambda public: not public.facts.weighted,
    "{method} is not for weights, nor rows that count alike (weights=, rows=): use a release without a screen",
)


def given_bound(reason: str) -> Need:
    """A bound that is public before anything is bought, for this reason."""
    refusal = f'{reason}: give a public bound instead of bound="auto"'
    return Need("a number as the bound", lambda public: public.facts.bound is not None, refusal)


class Options:
    """Options of a method: a frozen dataclass that checks its fields, by their types, when it is made."""

    def __post_init__(self) -> None:
        check_fields(self)

    def check(self, public: PublicSide, k: int) -> None:
        """Raise ValueError where the options do not fit the problem; nothing was released."""

    def in_one_pass(self, n_features: int) -> bool:
        """Whether one pass over the rows is enough."""
        return False

    def in_units(self, n_features: int) -> bool:
        """Whether a model that depends on scales is solved in the units of columns that have scales of their own."""
        return False

    def on_columns(self) -> list[str]:
        """The options given that choose among the columns of a table."""
        return [name for name in ("sparsity", "screen") if getattr(self, name, None)]

    def require_separate_columns(self, *, mixed: bool) -> None:
        """Raise ValueError where options choose among columns and preprocessing has ``mixed`` them."""
        if mixed and (chosen := self.on_columns()):
            raise ValueError(
                f'{" and ".join(chosen)} needs individual columns, but precondition="full" mixes them: use '
                'precondition="columns"'
            )


def checked_options(what: str, kind: Any, options: dict[str, Any]) -> Any:
    """The options that ``what`` takes. Raises TypeError for others."""
    if not options:
        return _unchanged(kind)
    known = [field.name for field in fields(kind)]
    for option in options:
        if option not in known:
            hint = suggestion(option, known) or f"; its options: {', '.join(known)}"
            raise TypeError(f"{what} has no option {option!r}{hint}")
    return kind(**options)


@cache
def _unchanged(kind: Any) -> Any:
    """Its options where none is given: one frozen record for all runs."""
    return kind()


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


def require_products(public: PublicSide) -> None:
    """Raise ValueError where a release cannot be known by products."""
    for need in (PRODUCTS, OF_TRAITS):
        need.require("release", public)


def require_capacity(public: PublicSide, k: int, memory_limit: int, *, copies: int = 0) -> None:
    """Raise ValueError where ``memory_limit``, or anything else, does not serve K components by products."""
    require_products(public)
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
        Rows of files that are kept for later passes take no more, either.
    """

    screen: Count | None = None
    screen_share: Share | None = None
    storage: Literal["auto", "matrix", "operator"] = "auto"
    memory_limit: Bytes = MEMORY_LIMIT

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.screen is not None and self.storage == "operator":
            raise ValueError('screen releases the block of selected features as a matrix, not as an "operator"')
        if self.screen_share is not None and self.screen is None:
            raise ValueError("screen_share requires screen: it is the share of the budget for scores")

    def check(self, public: PublicSide, k: int) -> None:
        super().check(public, k)
        if self.screen is None:
            if self.storage_for(public.model.n_features) == "matrix":
                return
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
            return
        if public.model.traits.standardized:
            raise ValueError(
                "screen keeps the columns with the largest variances, and those of standardized columns are all 1: "
                "choose columns by public facts, or screen for pca without standardize"
            )
        require_products(public)  # scores come from the traits
        EQUAL_WEIGHTS.require("a screen", public)
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

    def in_one_pass(self, n_features: int) -> bool:
        return self.screen is None and self.storage_for(n_features) == "matrix"

    def in_units(self, n_features: int) -> bool:
        return self.screen is None and n_features < WIDE and self.in_one_pass(n_features)

    def storage_for(self, d: int) -> str:
        """Where memory lets a release of d features be kept: a function of public numbers."""
        if self.storage != "auto":
            return self.storage
        return "matrix" if matrix_bytes(d) <= self.memory_limit else "operator"

    def by_products(self, curator: Curator, k: int) -> bool:
        """Whether the released matrix is known by its products: it is too large, or they are sooner (public facts)."""
        public, model, facts = curator.public, curator.model, curator.facts
        if self.storage != "auto" or self.storage_for(model.n_features) == "operator":
            return self.storage_for(model.n_features) == "operator"
        return (
            model.n_features >= max(WIDE, WIDE_FOR_EACH * k)
            and public.at_hand
            and not public.mapped
            and not facts.several_rows
            and facts.adjacency == "replace-one"  # else rounding is that of many more rows than there are
            and facts.n is not None
            and facts.n <= MOST_ROWS
            and not curator.noiseless
            and self.sparsity is None
            and isinstance(model, RowModel)
            and model.traits.identity_b
            and OF_TRAITS.met(public)
            and PRODUCTS.met(public)
            and len(model.views) == 1
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Diagnostics(Shown):
    """What the released values say about their own accuracy. Nothing in it costs privacy.

    Attributes
    ----------
    noise_level : expected operator norm of the noise in B, or in A where B is the identity (deviation x sqrt(2 d)); of
        the noise in one answer, where products are asked for.
    regularization : the multiple of the identity added to B (0 where B is the identity).
    accuracy : the expected errors and the edge of the noise: the properties below.
    eigengaps : (K,), distance of each eigenvalue to its nearest neighbour in the spectrum; None where the method does
        not find all of the spectrum.
    spectrum : all eigenvalues of the released problem, descending, in the units of the rows as they were mapped; for a
        sparse solution, of its restriction to the features in use. None where the method does not find all of it.
    """

    noise_level: float
    regularization: float = 0.0
    accuracy: Accuracy
    eigengaps: Matrix | None = None
    spectrum: Matrix | None = None

    @property
    def expected_error(self) -> Matrix:
        """(K,), expected squared sine of the angle between each component and that of the table as given.

        In the norm of B: from the known law of the noise, and, where a bound was bought, from what it has clipped; 1
        where the component is lost (docs/mathematics.md, section 5). A given bound is not judged: rows count as clipped
        to it.
        """
        return self.accuracy.errors

    @property
    def clipping_error(self) -> Matrix | None:
        """(K,), the part of `expected_error` that clipping may have caused; None where nothing is known of that."""
        return self.accuracy.bias

    @property
    def error_range(self) -> Matrix | None:
        """(K, 2), what each error probably lies between; None where the spectrum is. It is [0, 1] where one is lost.

        From the 5 % quantile of noise alone to its 95 % quantile and four times the `clipping_error`: it hides what it
        took, so that more can only be said of tables in general (docs/mathematics.md, section 5).
        """
        if self.spectrum is None:
            return None
        bias = np.zeros(len(self.lost)) if self.clipping_error is None else self.clipping_error
        noise = (self.expected_error - bias) / np.maximum(1 - bias, 1e-300)
        ends = noise[:, None] * _quantiles_of_noise(self.spectrum, len(noise))
        ends[:, 1] += _MORE_CLIPPED * bias
        ends[list(self.lost)] = 0.0, 1.0
        return np.clip(ends, 0.0, 1.0)

    @property
    def expected_subspace_error(self) -> float:
        """The same between the spans of all K components, summed, between 0 and K."""
        return self.accuracy.span

    @property
    def lost(self) -> tuple[bool, ...]:
        """(K,), whether noise alone could produce each component, with a probability above 1/200."""
        return self.accuracy.lost

    @property
    def noise_edge(self) -> Matrix | None:
        """(K,), the eigenvalue that noise alone hardly exceeds, in the place of each component.

        In the units of the solution's eigenvalues: one that does not exceed it is `lost`. None of sparse components,
        without noise, and where the spectrum is None.
        """
        return None if self.spectrum is None else self.accuracy.edge

    def summary(self) -> list[str]:
        """Lines on how the method went, above the table of the components."""
        return []

    def table(self, eigenvalues: Matrix) -> list[str]:
        """Lines for the solution's printed form: the summary, a heading, and a line for each component."""
        gaps, errors, clipping, ends = self.eigengaps, self.expected_error, self.clipping_error, self.error_range
        heading = "    k  eigenvalue" + ("" if gaps is None else "     eigengap") + "  expected error (squared sine)"
        lines = [*self.summary(), heading]
        for row, (value, error, lost) in enumerate(zip(eigenvalues, errors, self.lost, strict=True)):
            gap = "" if gaps is None else f"   {gaps[row]:10.3g}"
            why = [] if ends is None or lost or not error else [f"{ends[row, 0]:.1g} to {ends[row, 1]:.2g}"]
            if clipping is not None and not lost:
                noise = (error - clipping[row]) / max(1 - clipping[row], 1e-300)
                why += [f"noise {noise:.2g}, clipping {clipping[row]:.2g}"]
            why += ["lost: noise alone could produce it"] if lost else []
            lines.append(f"  {row + 1:3d}  {value:10.4g}{gap}  {error:.2g}" + (f" ({'; '.join(why)})" if why else ""))
        return lines


def _quantiles_of_noise(spectrum: Matrix, k: int) -> Matrix:
    """(k, 2), quantiles over the mean of how far noise turns the leading of these eigenvectors.

    To first order a squared sine is a sum of squared normal entries of the noise over squared gaps: about a chi-square
    with as many degrees of freedom as there are near eigenvalues (Satterthwaite).
    """
    gaps = np.maximum(np.abs(spectrum[:k, None] - spectrum), 1e-300)
    gaps[np.arange(k), np.arange(k)] = np.inf
    weights = np.square(np.minimum(gaps.min(axis=1, keepdims=True), 1e300) / gaps)
    freedom = np.maximum(weights.sum(axis=1) ** 2 / np.maximum(np.square(weights).sum(axis=1), 1.0), 1.0)[:, None]
    return np.asarray(2 * scipy.special.gammaincinv(freedom / 2, _ENDS) / freedom)


@dataclass(frozen=True, eq=False)
class MethodResult:
    """Components (K, d), eigenvalues (K,), and how they were found."""

    components: Matrix
    eigenvalues: Matrix
    mean: Matrix | None
    diagnostics: Diagnostics
    accuracy_warnings: tuple[str, ...]  # said once the solution exists: an error filter must not lose what is paid for
    moments: ReleasedMoments | None = None  # what was released, where it is small enough to be kept
    method: str | None = None  # which one it was, where that was left open

    def described(self, diagnostics: Mapping[str, Any], **parts: Any) -> MethodResult:
        """The same result with other parts of its diagnostics, and others of its own."""
        return unchecked(self, diagnostics=unchecked(self.diagnostics, **diagnostics), **parts)


@dataclass(frozen=True)
class Method:
    """What `solve` runs, and what it declares."""

    name: str
    run: Callable[[Curator, int, Any], MethodResult]  # of the curator, n_components, options
    options: type[Options]
    diagnostics: tuple[type[Diagnostics], ...]  # what it may say about a result
    data: tuple[Data, ...]  # that it can query; for others the curator refuses, and nothing is spent
    needs: tuple[Need, ...] = ()
    keeps_moments: bool = False  # its solution holds the released moments, for intervals and further questions
    in_units: bool = False  # models that depend on scales may be solved in units of columns divided by scales
    whole_budget: bool = False  # it spends an (epsilon, delta) of its own, as samples of people have no mu
    by_products: Mapping[str, str] | None = None  # options with which it asks for products of one noisy pencil alone

    def scales_columns(self, options: Options, public: PublicSide) -> bool:
        """Whether the columns of a model that depends on scales may be divided by scales of their own."""
        return self.in_units and options.in_units(public.model.n_features)

    def admits(self, options: Options, public: PublicSide) -> dict[str, bool]:
        """Whether preprocessing that is bought for it may have ``mixed`` the columns, and ``scaled`` them."""
        return {"mixed": not options.on_columns(), "scaled": self.scales_columns(options, public)}

    def checked(self, options: dict[str, Any], public: PublicSide, n_components: Any) -> tuple[Any, int]:
        """Its options, and K. Raises ValueError where a problem does not serve, and TypeError for options that it does
        not take. Nothing was released.
        """
        settings = checked_options(f"method {self.name!r}", self.options, options)
        k = component_count(public.model, n_components)
        settings.require_separate_columns(mixed=public.mixes_columns)
        if not self.scales_columns(settings, public):
            require_no_scales(public)
        for need in self.needs:
            need.require(self.name, public)
        settings.check(public, k)
        return settings, k


def require_no_scales(public: PublicSide) -> None:
    """Raise ValueError where columns of a model that depends on scales have scales of their own."""
    scale = None if public.preprocessing is None else public.preprocessing.scale
    if scale is not None and not public.model.traits.scale_free and np.ptp(scale) > 0:
        raise ValueError(
            f"the scale of this preprocessing would change the answer of {public.model.name}, except for "
            'method="release" with a matrix: use that, or preprocessing that was bought for this'
        )


def method_result(
    model: Model,
    released: ReleasedGroups | ReleasedMatrices | None,
    vectors: Matrix,
    eigenvalues: Matrix,
    diagnostics: Diagnostics,
    accuracy_warnings: Iterable[str],
    n_searched: int | None = None,
) -> MethodResult:
    """Unit components and the mean in ``released``; warnings of the method, and of all (``n_searched`` features)."""
    said, searched = [*accuracy_warnings], model.n_features if n_searched is None else n_searched
    lost = [row + 1 for row, gone in enumerate(diagnostics.lost) if gone]
    if lost and (lost[0] == 1 or len(diagnostics.lost) < searched):  # of all that there are the last may well be
        n = released.n if isinstance(released, ReleasedGroups) else math.inf
        few = f", and {n:.0f} people are few for {searched} features" if n < _PEOPLE_PER_FEATURE * searched else ""
        said.append(
            f"components {lost} are lost: noise alone could produce them{few}; use more rows, fewer features, or a "
            "larger budget"
        )
    largest = model.traits.largest_eigenvalue
    if beyond := [f"{value:.3g}" for value in eigenvalues if value > largest * (1 + 1e-9)]:
        said.append(
            f"eigenvalues {', '.join(beyond)} exceed {largest:g}, their upper limit: noise in the covariances caused "
            "this; use more rows, fewer features, a larger budget or regularization"
        )
    mean = None if released is None else released.mean
    return MethodResult(oriented(vectors), eigenvalues, mean, diagnostics, tuple(said))


def oriented(rows: Matrix) -> Matrix:
    """Unit rows whose largest entry is positive: eigenvectors have no sign of their own."""
    unit = rows / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    largest = unit[np.arange(len(unit)), np.abs(unit).argmax(axis=1)]
    return np.ascontiguousarray(unit * np.sign(largest)[:, None])


def support_of(vectors: Matrix) -> tuple[int, ...]:
    """The features that any of the rows uses, ascending."""
    return tuple(np.flatnonzero(vectors.any(axis=0)).tolist())


def component_count(model: Model, n_components: Any) -> int:
    """K: by default all components of the model."""
    largest = model.max_components
    if n_components is None:
        return largest
    k = require_count("n_components", n_components)
    if k > largest:
        raise ValueError(f"n_components = {n_components} is too many: {components_of(model)}")
    return k


def components_of(model: Model) -> str:
    """How many components a model has, and why: for messages."""
    d, m, groups = model.n_features, model.max_components, getattr(model, "grouping", None)
    if model.view_sizes:
        sizes = " and ".join(map(str, model.view_sizes))
        return f"{model.name} of views of {sizes} features has {m} components: the features outside the largest view"
    if groups is not None and m < d:
        return f"{model.name} of {groups.n_groups} groups in {d} features has {m} components: one less than groups"
    return f"{model.name} of {d} features has {m} components"
