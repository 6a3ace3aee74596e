"""Models of rows of people: what a person consists of, and A and B from released moments, with the law of their noise.

In the units of rows that were divided by public scales S, A = S A' S with A' that of the divided rows, whose noise is
isotropic. With u = S v, v^T dA v = u^T dA' u: all that is known about the noise in A' holds for A, at vectors
multiplied by S.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ClassVar, TypeAlias, TypeVar, cast

import numpy as np
import scipy  # its sparse matrices are loaded when they are used
from numpy.typing import NDArray

from dpgep._checks import unchecked
from dpgep.models import moments, plausible
from dpgep.models.model import Blocks, Matrix, MatrixPencil, Model, NoisyPencil, PublicFacts, Scatter, Traits, slices_of
from dpgep.models.moments import MomentLayout, ReleasedGroups, ReleasedMoments
from dpgep.models.null import leading_of_noise
from dpgep.models.pairwise import require_pairs
from dpgep.models.preprocessing import Preprocessing

M = TypeVar("M", bound="RowModel")

_SHOWN = 5  # most names in a message
_AT_ONCE = 1 << 20  # numbers of simulated releases that are held at once


@dataclass(frozen=True)
class Classes:
    """One group for each label."""

    labels: tuple[Hashable, ...]
    input: ClassVar[str] = "labels"  # what they are called among the inputs of a model

    @property
    def n_groups(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Slices:
    """One group for each interval between neighbouring edges; the outer intervals are unbounded."""

    interior_edges: tuple[float, ...]
    input: ClassVar[str] = "y"

    @property
    def n_groups(self) -> int:
        return len(self.interior_edges) + 1


Grouping: TypeAlias = Classes | Slices
# The columns that are the indicators of one categorical column, for each such column.
Indicators: TypeAlias = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class RowModel(Model):
    """A model that can be fitted to rows of people: ``traits`` say what A and B are.

    A person consists of a row of each view and, with a ``grouping``, a label or a response. ``feature_names`` are those
    of all features, in all views. They say nothing about A and B: models of other names are equal. ``indicators`` are
    the features that are those of one categorical column, for each such column: of every person at most one of them is
    1, the others 0. ``_dates``, days since 1970, are set by the data. A model with a field ``center`` that is false
    takes second moments in place of covariances.
    """

    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True, compare=False, repr=False)
    indicators: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True, compare=False, repr=False)
    _dates: tuple[int, ...] = field(default=(), kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(getattr(self, "name", None), str):
            raise TypeError(f'{type(self).__name__} has no name: its class needs one, as in name = "within-pca"')
        if not getattr(self, "center", True):
            object.__setattr__(self, "traits", _uncentred(self.traits))
        a, b = self.traits.a, self.traits.b
        if a is not None and (a.blocks == "whole" or self.grouping is not None) == (len(self.view_sizes) > 0):
            raise ValueError(f"{self.name}: a model of several views has no groups, and a is of blocks between views")
        if self.grouping is None and any(part is not None and part.within for part in (a, b)):
            raise ValueError(f"{self.name}: the scatter within groups needs a grouping, such as Classes or Slices")
        features = [*(j for group in self.indicators for j in group), *self._dates]
        if len(set(features)) < len(features) or not all(0 <= j < self.n_features for j in features):
            raise ValueError(f"indicators and dates must be features from 0 to {self.n_features - 1}, each once")
        if self.feature_names is None:
            return
        names: tuple[object, ...] = tuple(self.feature_names)
        if len(names) != self.n_features or not all(isinstance(name, str) for name in names):
            more = ", ..." if len(names) > _SHOWN else ""
            raise ValueError(
                f"feature_names must be {self.n_features} names, one for each feature, "
                f"got {', '.join(map(repr, names[:_SHOWN]))}{more}"
            )
        object.__setattr__(self, "feature_names", names)

    @property
    def grouping(self) -> Grouping | None:
        """How people are divided into groups; None where they are not."""
        return None

    @property
    def max_components(self) -> int:
        """All features; between views as many as there are outside the largest; of means of groups, one less."""
        if self.traits.a is None:
            raise TypeError(
                "dpgep.solve needs a question, and a table asks none: call dpgep.release(X, epsilon=...) first, "
                "then .pca(), .cca(...), .regression(...) on the release, at no further cost"
            )
        if self.traits.of_means and self.grouping is not None:
            return min(self.n_features, self.grouping.n_groups - 1)
        return self.n_features - max(self.view_sizes, default=0)

    def noisy(self, released: ReleasedMoments, scale: Matrix | None = None) -> MomentsPencil:
        """A and B from released moments; of columns divided by ``scale``, in units of their own."""
        released = moments.together(released)
        if released.pairs is not None:
            require_pairs(self)
        return MomentsPencil(self, released, scale)

    def restricted(self: M, features: NDArray[np.intp]) -> M:
        sizes = tuple(int(((view.start <= features) & (features < view.stop)).sum()) for view in self.views)
        changed: dict[str, Any] = {"view_sizes": sizes} if self.view_sizes else {"n_features": len(features)}
        return replace(self, feature_names=None, indicators=(), _dates=(), **changed)


@cache
def _uncentred(traits: Traits) -> Traits:
    """One record for all models that are alike."""
    return replace(traits, shift_free=False)


def layout_of(model: RowModel, facts: PublicFacts, preprocessing: Preprocessing | None = None) -> MomentLayout:
    """Blocks to release: sums of what is centred; counts of groups always, the total alone only where n is not public,
    or marks of what is absent add up to it. Sensitivities follow from it alone: a model cannot state others.
    """
    if preprocessing is not None and preprocessing.pairwise:
        counts = facts.adjacency == "add-remove" or facts.weighted
        return MomentLayout(2 * model.n_features, 1, sums=True, counts=counts, marked=True)
    d, sums, groups = model.n_features, model.traits.shift_free, model.grouping
    if groups is not None and groups.n_groups > 1:
        return MomentLayout(d, groups.n_groups, sums=True, counts=True, by_group=model.traits.by_group)
    if facts.n is None and not facts.n_is_public:
        return MomentLayout(d, 1, sums=sums, counts=True)
    return MomentLayout(d, int(sums), sums=sums, counts=False)


def view_labels(n_views: int) -> tuple[str, ...]:
    """What views are called: X, X and Y, or X1, X2 and so on."""
    return ("X", "Y")[:n_views] if n_views <= 2 else tuple(f"X{i}" for i in range(1, n_views + 1))


def input_names(model: RowModel) -> tuple[str, ...]:
    """What a person consists of: a row of each view, and a label or a response."""
    views = view_labels(len(model.views))
    return views if model.grouping is None else (*views, model.grouping.input)


def names_of_views(model: Model) -> list[tuple[str, ...] | None]:
    """Names of the features of each view; None where they have none."""
    names = model.feature_names
    return [None if names is None else names[view] for view in model.views]


@dataclass(frozen=True, eq=False)
class PencilPart:
    """One matrix of a pencil: some blocks of M + F^T diag(weights) F, or of F^T diag(weights) F without ``moment``."""

    weights: Matrix  # (r,), one for each of the pencil's factors
    moment: bool = True  # whether the second moment M is a part of it
    # all of it, or for several views the blocks "between" views or those "within" a view; the others are zero
    blocks: Blocks = "whole"

    def matrix(self, second: Matrix, factors: Matrix, view_sizes: Sequence[int]) -> Matrix:
        """The matrix for M = ``second``, which is overwritten."""
        if not self.moment:
            second[...] = 0.0
        used = self.weights.any(axis=tuple(range(self.weights.ndim - 1)))
        rows, weights = factors.compress(used, axis=-2), self.weights.compress(used, axis=-1)
        if weights.size:
            second += (rows.swapaxes(-1, -2) * weights[..., None, :]) @ rows
        if self.blocks != "whole":
            views = slices_of(view_sizes)
            for i, rows_of in enumerate(views):
                for j, columns_of in enumerate(views):
                    if (i == j) == (self.blocks == "between"):
                        second[..., rows_of, columns_of] = 0.0
        return second

    def diagonal(self, second: Matrix, factors: Matrix) -> Matrix:
        """Its diagonal, from that of M."""
        if self.blocks == "between":
            return np.zeros_like(second)
        return np.asarray(self.weights @ factors**2 + second * self.moment)


@dataclass(frozen=True, eq=False)
class Pencil:
    """A and B of a model of rows, made of the second moment M of the rows and of released vectors."""

    factors: Matrix  # (r, d), the released vectors F
    # a, b: the two matrices; ``b`` is None for the identity
    a: PencilPart
    b: PencilPart | None
    view_sizes: tuple[int, ...] = ()  # number of features of each view, in their order; empty where there is one view

    @property
    def keeps_blocks(self) -> bool:
        """Whether a product asks M about each view by itself."""
        return any(part is not None and part.blocks != "whole" for part in (self.a, self.b))

    def matrices(self, second: Matrix) -> tuple[Matrix, Matrix | None]:
        """A and B (None: the identity) for M = ``second``, which is overwritten."""
        if self.b is None:
            return self.a.matrix(second, self.factors, self.view_sizes), None
        other = second.copy() if self.a.moment and self.b.moment else np.empty_like(second)
        for_a, for_b = (other, second) if self.b.moment else (second, other)
        a = self.a.matrix(for_a, self.factors, self.view_sizes)
        return a, self.b.matrix(for_b, self.factors, self.view_sizes)

    def diagonals(self, second: Matrix) -> tuple[Matrix, Matrix]:
        """Diagonals of A and B from that of M."""
        of_b = np.ones_like(second) if self.b is None else self.b.diagonal(second, self.factors)
        return self.a.diagonal(second, self.factors), of_b


def pencil_of(model: Model, released: ReleasedGroups) -> Pencil:
    """A and B from released sums and counts: T = M - s m m^T, s the share of groups, W = M - sum_g w_g S_g S_g^T."""
    a, b, mean = model.traits.a, model.traits.b, moments.mean_factor(released)
    assert a is not None
    if a.within or (b is not None and b.within):
        groups, weights = moments.group_factors(released)
        factors, share = np.concatenate([groups, mean], axis=-2), moments.total_shares(released)[..., None]
    else:
        factors, weights, share = mean, None, np.ones(mean.shape[:-1])

    def part(scatter: Scatter) -> PencilPart:
        of_mean = -scatter.total * share
        if weights is None:
            return PencilPart(of_mean, scatter.moment, scatter.blocks)
        both = np.concatenate([-scatter.within * weights, of_mean], axis=-1)
        return PencilPart(both, scatter.moment, scatter.blocks)

    return Pencil(factors, part(a), None if b is None else part(b), model.view_sizes)


# What errors and intervals need to know about a pair.
_OF_A_PAIR = ("error_variances", "noise_alone", "plausible_truth")


@dataclass(frozen=True, eq=False)
class MomentsPencil(NoisyPencil):
    """A and B of a model of rows; of rows divided by ``scale`` (d,), for a model without B, as if they had not been."""

    model: Model
    released: ReleasedMoments
    scale: Matrix | None = None

    def __init_subclass__(cls) -> None:
        """Raise TypeError for a pair of its own whose errors and intervals would belong to another."""
        super().__init_subclass__()
        others = [name for name in _OF_A_PAIR if name not in vars(cls)]
        if "pair" in vars(cls) and others:
            what = f"{cls.__name__} has its own pair, but {' and '.join(others)} of another: its errors would be wrong"
            advice = f"Define them as well, or say that they hold, as in {others[0]} = MomentsPencil.{others[0]}"
            raise TypeError(f"{what}. {advice} (docs/your-own-model.md)")

    def __post_init__(self) -> None:
        released, traits = self.released, self.model.traits
        of_b = None if traits.identity_b else released.second_noise_level
        standard = moments.standardization_of(released) if traits.standardized else None
        isotropic = self.scale is None and released.pairs is None
        vars(self).update(noise_of_b=of_b, isotropic=isotropic, standardization=standard)

    @cached_property
    def pencil(self) -> Pencil:
        """A and B as functions of the second moment: what stands for M is not asked for."""
        return pencil_of(self.model, self.released)

    @property
    def mean(self) -> Matrix | None:
        mean = self.released.mean
        return mean if mean is None or self.scale is None else mean * self.scale

    @cached_property
    def share(self) -> float:
        """`total_share` of what was released."""
        return moments.total_share(self.released)

    def pair(self) -> MatrixPencil:
        released, pencil, standard = self.released, self.pencil, self.standardization
        level, rounding = released.second_noise_level, 0.0 if pencil.b is None else released.rounding
        if standard is not None:
            covariance, _ = pencil.matrices(released.second.copy())  # its diagonal is asked for again
            level = moments.correlation_noise(released, standard)
            return MatrixPencil(moments.correlations(covariance, standard), None, level, rounding)
        a, b = pencil.matrices(released.second)
        if self.scale is not None:
            return self._pair_in_units(a, level)
        return MatrixPencil(a, b, level, rounding, None if pencil.a.moment else (pencil.factors, pencil.a.weights))

    def error_variances(self, left: Any, right: Matrix, eigenvalues: Matrix) -> Matrix:
        released, traits = self.released, self.model.traits
        left, right = self._in_their_units(left, right)
        if traits.standardized:
            return moments.correlation_form_variance(released, left, right)
        a, b = traits.a, traits.b
        assert a is not None
        if a.blocks == "between":
            of_b = 0.0 if b is None else -eigenvalues * b.total
            return moments.block_form_variance(released, self.model.views, left, right, within=of_b)
        if b is None:
            return moments.schur_form_variance(released, left, right, total=a.total, within=a.within)
        total, within = a.total - eigenvalues * b.total, a.within - eigenvalues * b.within
        return moments.schur_form_variance(released, left, right, total=total, within=within)

    def noise_alone(
        self, values: Matrix, generator: np.random.Generator, n_draws: int, *, people: bool = False
    ) -> Iterator[Matrix]:
        released, d, standard, a = self.released, self.model.n_features, self.standardization, self.model.traits.a
        mean, moment = moments.mean_factor(released), a is not None and a.moment
        shapes = (released.sums.shape, released.counts.shape, (d, d) if moment else (0, 0))
        drawn = plausible.SampledPeople.of(self.model, released, float(values.mean())) if people else None
        for n in _in_parts(n_draws, d * d):
            of_sums, of_counts, of_second = moments.normals(generator, n, *shapes)
            groups = moments.groups_alone(released, of_sums, of_counts)
            pencil = pencil_of(self.model, groups if drawn is None else drawn.moved(groups, generator))
            second = moments.goe_of(of_second, released.noise.second) if moment else np.zeros((n, d, d))
            if released.pairs is not None:
                second *= np.sqrt(released.profile)
            if moment:
                second += mean.T @ mean
            alone = pencil.matrices(second)[0]
            if standard is not None:  # with the diagonal released: 1, whatever the noise
                diagonals = np.einsum("...ii->...i", moments.correlations(alone, standard))
                diagonals -= diagonals.mean(axis=-1, keepdims=True)
            alone = self._in_units(alone)
            yield from alone if drawn is None else (each + drawn.scatter(generator) for each in alone)

    @property
    def _has_own_noise(self) -> bool:
        """Whether a subclass draws it: nothing is known of it without draws."""
        return type(self).noise_alone is not MomentsPencil.noise_alone

    def leading_noise(self, values: Matrix, basis: Matrix | None, seed: int, n_draws: int) -> Matrix | None:
        released, traits = self.released, self.model.traits
        if self._has_own_noise:
            return None
        if traits.of_means:
            generator, shapes = np.random.default_rng(seed), (released.sums.shape, released.counts.shape)
            drawn = (moments.normals(generator, n, *shapes) for n in _in_parts(n_draws, released.sums.size))
            pencils = (pencil_of(self.model, moments.groups_alone(released, *each)) for each in drawn)
            return np.concatenate([_leading_of_rank(pencil, basis) for pencil in pencils])
        if not self.isotropic or not traits.is_covariance:  # it is not the same in all directions
            return None
        mean, noise = self.pencil.factors, released.noise  # of a covariance the one factor
        # that of the mean's noise e; -e e^T lowers the mean of all eigenvalues by |e|^2/d
        deviation = noise.sums * math.sqrt(released.sums.shape[1]) / self.share
        size = float(np.linalg.norm(mean if basis is None else mean @ basis))
        sixteenths = math.ceil(16 * (size * deviation / noise.second))
        return noise.second * leading_of_noise(len(values), sixteenths, seed, n_draws) + deviation**2

    def most_noise(self, r: int, seed: int, n_draws: int) -> float | None:
        released, standard, noise, traits = self.released, self.standardization, self.released.noise, self.model.traits
        known = traits.b is None and traits.a is not None and not traits.a.within and released.pairs is None
        if not known or self._has_own_noise:
            return None
        # Between views is half the difference of N and J N J, J = diag(I, -I): no longer than N. Of the mean's noise e:
        # -m e^T - e m^T - e e^T; that e is longer by 6 deviations has a probability of exp(-18).
        size = noise.sums * (math.sqrt(r * released.sums.shape[1]) + 6.0) / self.share
        most = noise.second * float(leading_of_noise(r, 0, seed, n_draws).max())
        most += size * (2 * float(np.linalg.norm(self.pencil.factors)) + size / 2)
        longest = 1.0 if self.scale is None else float(self.scale.max())
        return most * (longest if standard is None else longest / float(standard.scale.min())) ** 2

    def plausible_truth(self, most_features: int) -> plausible.PlausibleMoments:
        traits = self.model.traits
        if self.scale is not None or traits.standardized:
            return plausible.truth_of_columns(self)
        if self.model.view_sizes:
            return plausible.truth_of_views(self, most_features)
        if traits.b is None and not traits.of_means:
            covariance, _ = self.pencil.matrices(self.released.second.copy())
            return plausible.truth_of_rows(self, covariance, most_features)
        return plausible.truth_of_groups(self, most_features)

    def duals(self, vectors: Matrix) -> Matrix:
        """The w of solutions v for which A + sum_i c_i w_i w_i^T has eigenvalues that are larger by c_i: B v."""
        if self.scale is not None:
            return np.asarray(vectors / self.scale[:, None])
        copied = replace(self.released, second=self.released.second.copy())
        b = None if self.model.traits.identity_b else replace(self, released=copied).pair().b
        return vectors if b is None else np.asarray(b @ vectors)

    def changed(self, change: Matrix) -> ReleasedMoments:
        """Moments in which ``change`` (d, d) is added to A, where the second moment is a part of it."""
        return replace(self.released, second=self.released.second + change)

    def _in_their_units(self, left: Any, right: Matrix) -> tuple[Any, Matrix]:
        """Columns in the coordinates of what was released."""
        if self.scale is None:
            return left, right
        by = scipy.sparse.diags_array(self.scale)
        return by @ left, np.asarray(by @ right)

    def _pair_in_units(self, a: Matrix, level: float) -> MatrixPencil:
        scale = self.scale
        if scale is None:
            return MatrixPencil(a, None, level, 0.0)
        largest = float(scale.max()) ** 2
        # the edge of noise with entries of variance (s D_a D_b)^2 / 2
        spread = largest * math.sqrt(float(np.mean(scale**2 / largest)))
        return MatrixPencil(self._in_units(a), None, level * spread, 0.0)

    def _in_units(self, matrix: Matrix) -> Matrix:
        if self.scale is not None:
            matrix *= self.scale[:, None]
            matrix *= self.scale
        return matrix


def has_own_pencil(model: Model) -> bool:
    """Whether the model itself makes A and B of a released matrix, not its traits."""
    return isinstance(model, RowModel) and type(model).noisy is not RowModel.noisy


def in_units(model: Model, preprocessing: Preprocessing | None) -> tuple[Matrix | None, Preprocessing | None]:
    """The scale of a pencil in the units of the columns, where these differ; preprocessing of one scale.

    Of models that depend on scales. The one is the power of two near the largest: no square of a variance overflows.
    """
    scale = None if preprocessing is None or model.traits.scale_free else preprocessing.scale
    if preprocessing is None or scale is None or np.ptp(scale) == 0:
        return None, preprocessing
    unit = 2.0 ** (math.frexp(float(scale.max()))[1] - 1)
    return scale / unit, unchecked(preprocessing, scale=np.full(len(scale), unit), variance_error=None)


def pencil_in_units(model: Model, released: Any, preprocessing: Preprocessing | None) -> NoisyPencil:
    """The pencil of released moments of mapped rows, in the units of the columns where the model depends on them."""
    noisy, (scale, _) = model.noisy(released), in_units(model, preprocessing)
    return noisy if scale is None else replace(cast(MomentsPencil, noisy), scale=scale)


def with_eigenvalues(before: MomentsPencil, vectors: Matrix, old: Matrix, new: Matrix) -> ReleasedMoments:
    """Moments without noise whose pair has ``new`` eigenvalues in place of ``old`` ones, B and ``vectors`` (d, K) kept.

    A changes by sum_i (new_i - old_i) (B v_i)(B v_i)^T; between two views, where -lambda comes with lambda, by twice
    that; between more, by what changes each eigenvalue so to first order. A scatter of group means changes with them:
    along B v_i they are multiplied by the root of new_i/old_i.
    """
    pencil, released, duals = before.pencil, before.released, before.duals(vectors)
    if pencil.a.moment:
        steps, between = new - old, pencil.a.blocks == "between"
        if between and len(before.model.views) == 2:
            steps = 2 * steps
        elif between:
            # by sum_i c_i ((v_k^T B v_i)^2 - sum over views w of (v_kw^T B_w v_iw)^2), where v_k^T B v_i = [i = k]
            within = np.sum([(vectors[view].T @ duals[view]) ** 2 for view in before.model.views], axis=0)
            steps = np.linalg.lstsq(np.eye(len(steps)) - within, steps, rcond=None)[0]
        change = (duals * steps) @ duals.T
        if between:
            for view in before.model.views:
                change[view, view] = 0.0
        return before.changed(change)
    factors = np.sqrt(np.divide(new, old, out=np.ones_like(old), where=old > 0)) - 1
    shares = released.counts / released.counts.sum()
    contrasts = released.sums - np.outer(released.sums.sum(axis=1), shares)
    sums = released.sums + (duals * factors) @ (vectors.T @ contrasts)
    second, b = released.second, before.model.traits.b
    if b is not None and b.within:  # the second moment takes up what W loses
        second = second + b.within * (sums / released.counts) @ sums.T
        second = second - b.within * (released.sums / released.counts) @ released.sums.T
    return replace(released, sums=sums, second=second)


def _in_parts(n_draws: int, size: int) -> list[int]:
    """How many simulated releases of ``size`` numbers are held at once, until all are drawn."""
    at_once = max(1, _AT_ONCE // size)
    return [min(at_once, n_draws - first) for first in range(0, n_draws, at_once)]


def _leading_of_rank(pencil: Pencil, basis: Matrix | None) -> Matrix:
    """Largest eigenvalues of V^T F^T diag(w) F V, the A of each of several releases, V the ``basis``; at least 0."""
    columns = (pencil.factors if basis is None else pencil.factors @ basis).swapaxes(-1, -2)
    if columns.shape[-2] > columns.shape[-1]:  # that of R diag(w) R^T, where the columns of V^T F^T are Q R
        columns = np.asarray(np.linalg.qr(columns, mode="r"))
    small = (columns * pencil.a.weights[:, None, :]) @ columns.swapaxes(-1, -2)
    return np.maximum(np.linalg.eigvalsh(small)[:, -1], 0.0)
