"""Directions by which groups of people differ, or which serve all of them: of the second moments of groups alone.

With shares p_g, means m_g and covariances C_g of groups, m and T of everybody, a question is a pair A v = lambda B v:

    common spatial patterns   A = C_1,  B = C_1 + C_2
    SAVE                      A = sum_g p_g (I - C_g)^2,  B = I
    directional regression    A = 2 sum_g p_g R_g^2 + 2 K^2 + 2 tr(K) K - 2 I,  B = I,
                              R_g = C_g + d_g d_g^T,  K = sum_g p_g d_g d_g^T,  d_g = m_g - m
    fair principal components A = sum_g w_g C_g,  B = I

the second and third of columns that were made uncorrelated, T = I. Eigenvalues of covariances that noise hides are what
they may have been before it (`spectrum_before_noise`), which is positive. Intervals repeat the release: people come
from Gaussian groups with these moments, the known noise is added, and the question is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dpgep._checks import require_count, require_flag, require_one_of
from dpgep._optional import data_frame
from dpgep._show import aligned
from dpgep._threads import lapack_on_one_thread
from dpgep.errors import warn_inaccurate
from dpgep.models.model import Matrix
from dpgep.models.moments import MomentNoise, ReleasedMoments, effective_counts, goe, in_one_group, of_groups
from dpgep.models.null import edge, spectrum_before_noise
from dpgep.models.plausible import bartlett, root_of
from dpgep.models.preprocessing import location_and_scale
from dpgep.results.columns import Answer, Columns, ReleasedColumns, on_one_thread_of_blas
from dpgep.results.intervals import Intervals, degrees, require_law
from dpgep.sources.names import listed

# Repeated releases of intervals, and without differences: what is not larger than in all of the latter is lost.
_DRAWS, _NULL_DRAWS, _SEED = 99, 19, 0x67726F7570
# Deviations within which a bias that they show is left alone: correcting it would add more than it takes away.
_SURE = 2.0
# The part of what was put back for clipping that intervals hold once more; whole, they hold that nothing was clipped.
_UNSURE = 0.5
# Directions, and weights of each, that are printed.
_SHOWN, _WEIGHTS = 6, 3


@dataclass(frozen=True, eq=False)
class Groups:
    """Numbers of people (G,), means (G, d) and covariances (G, d, d) of groups, divided by these numbers.

    ``drowned``: the numbers of groups in whose covariance the noise hides a direction.
    """

    people: Matrix
    means: Matrix
    covariances: Matrix
    drowned: tuple[int, ...] = ()

    @classmethod
    def of(cls, noisy: ReleasedMoments) -> Groups:
        """Of moments by group, as they may have been before the noise."""
        shares = effective_counts(noisy)
        means = (noisy.sums / shares).T
        covariances = noisy.second / shares[:, None, None] - means[:, :, None] * means[:, None]
        drowned = []
        if noisy.noise.second:
            for group, deviation in enumerate(noisy.noise.second / shares):
                values, axes = np.linalg.eigh(covariances[group])
                cleaned = spectrum_before_noise(values[::-1], deviation)[::-1]
                hidden = values <= edge(len(values), deviation)
                covariances[group] = (axes * np.where(hidden, cleaned, values)) @ axes.T
                drowned += [group] * bool(hidden.any())
        return cls(noisy.n * shares, means, covariances, tuple(drowned))

    @property
    def shares(self) -> Matrix:
        return np.asarray(self.people / self.people.sum())

    @property
    def contrasts(self) -> Matrix:
        """(G, d), means less that of all."""
        return np.asarray(self.means - self.shares @ self.means)

    @property
    def total(self) -> Matrix:
        """(d, d), the covariance of all."""
        return np.asarray(self.mixed(self.shares) + (self.contrasts.T * self.shares) @ self.contrasts)

    def mixed(self, weights: Matrix) -> Matrix:
        """(d, d), the covariances of groups by these weights."""
        return np.asarray(np.einsum("g,gij->ij", weights, self.covariances))

    def along(self, basis: Matrix) -> Groups:
        """Of the coordinates along the columns (d, r) of a basis."""
        return Groups(self.people, self.means @ basis, basis.T @ self.covariances @ basis)

    def alike(self, covariance: Matrix) -> Groups:
        """Groups without differences."""
        n_groups = len(self.people)
        means = np.tile(self.shares @ self.means, (n_groups, 1))
        return Groups(self.people, means, np.tile(covariance, (n_groups, 1, 1)))

    def drawn(self, noise: MomentNoise, n: float, generator: np.random.Generator) -> Groups:
        """Of people from such Gaussian groups, as a release of n people finds them with this noise."""
        left = max(n - float(self.people.sum()), 0.0)
        chances = np.append(self.people, left)
        people = generator.multinomial(max(round(n), 1), chances / chances.sum())[:-1]
        d = self.means.shape[1]
        second, sums = np.empty_like(self.covariances), np.empty((d, len(people)))
        for g, number in enumerate(np.maximum(people, 2).tolist()):
            root = root_of(self.covariances[g])
            mean = self.means[g] + root @ generator.standard_normal(d) / math.sqrt(number)
            factor = root @ bartlett(d, number - 1, generator)
            second[g] = (factor @ factor.T + number * np.outer(mean, mean)) / n + goe(d, noise.second, generator)
            sums[:, g] = number * mean / n + noise.sums * generator.standard_normal(d)
        counts = people / n + noise.counts * generator.standard_normal(len(people))
        return Groups.of(ReleasedMoments(sums, counts, n, noise, second))


@dataclass(frozen=True, eq=False)
class Question:
    """A and B of groups: ``norm`` is B (None: I), ``matrix`` A of groups in coordinates in which B = I.

    ``null``: the part of B that covariances are where groups do not differ; ``largest``: the largest eigenvalue.
    """

    norm: Callable[[Groups], Matrix] | None
    matrix: Callable[[Groups], Matrix]
    null: float
    largest: float = math.inf

    def solved(self, groups: Groups) -> tuple[Matrix, Matrix]:
        """Eigenvalues, descending, and vectors with v^T B v = 1, without directions that do not vary."""
        basis = np.eye(groups.means.shape[1])
        if self.norm is not None:
            sizes, axes = scipy.linalg.eigh(self.norm(groups), check_finite=False)
            kept = sizes > len(sizes) * np.finfo(float).eps * max(float(sizes[-1]), 0.0)
            basis = axes[:, kept] / np.sqrt(sizes[kept])
            groups = groups.along(basis)
        values, vectors = scipy.linalg.eigh(self.matrix(groups), check_finite=False)
        return values[::-1], basis @ vectors[:, ::-1]


def _save(groups: Groups) -> Matrix:
    unbiased = groups.people / np.maximum(groups.people - 1, 1.0)
    apart = np.eye(groups.means.shape[1]) - unbiased[:, None, None] * groups.covariances
    return np.asarray(np.einsum("g,gij->ij", groups.shares, apart @ apart))


def _directional(groups: Groups) -> Matrix:
    apart, unit = groups.contrasts, np.eye(groups.means.shape[1])
    moments = groups.covariances + apart[:, :, None] * apart[:, None]
    between = (apart.T * groups.shares) @ apart
    squares = np.einsum("g,gij->ij", groups.shares, moments @ moments)
    return np.asarray(2 * (squares + between @ between + np.trace(between) * between - unit))


def _both(groups: Groups) -> Matrix:
    return np.asarray(groups.covariances.sum(axis=0))


def _first(groups: Groups) -> Matrix:
    return np.asarray(groups.covariances[0])


_PATTERNS = Question(_both, _first, 0.5, 1.0)
_SUBSPACES = {
    "save": Question(attrgetter("total"), _save, 1.0),
    "directional regression": Question(attrgetter("total"), _directional, 1.0),
}


def units_of(scale: Matrix | None, groups: Groups) -> Matrix:
    """(d,), what columns are multiplied by: ``scale``, or one over their deviations; 0 for a constant one."""
    if scale is not None:
        return scale
    deviations = np.sqrt(np.maximum(np.diagonal(groups.total), 0.0))
    return np.divide(1.0, deviations, out=np.zeros_like(deviations), where=deviations > 0)


def _weighted(scale: Matrix | None, weights: Matrix, groups: Groups) -> Matrix:
    return groups.along(np.diag(units_of(scale, groups))).mixed(weights)


@dataclass(frozen=True, eq=False, repr=False)
class GroupDirections(Answer):
    """K directions of columns from the second moments of groups of people.

    Attributes
    ----------
    title : what they are.
    groups : (G,), as text; none where everybody is asked about.
    names : (d,), of the columns.
    components : (K, d), in the units of the columns: scores have variance 1 in B, or, where B = I, components norm 1.
    relative_components : (K, d), the same of columns in the scales of the release, or in their deviations.
    eigenvalues : (K,), descending.
    """

    title: str
    groups: tuple[str, ...]
    names: tuple[str, ...]
    components: Matrix
    relative_components: Matrix
    eigenvalues: Matrix
    _question: Question
    _groups: Groups
    _clipped: Groups
    _released: ReleasedMoments

    def intervals(self, level: float = 0.9) -> Intervals:
        """Intervals of eigenvalues, and angles to the population's directions: of the noise and the sampling.

        They hold what was put back for rows that the bound has clipped.

        Rows of each group count as Gaussian. A direction is lost where releases without differences between groups show
        as large a one. 0.1 s for 10 columns, some seconds for 100; the same in every call.
        """
        require_law(level, "gaussian")
        with lapack_on_one_thread(len(self.names)):
            return self._repeated(level)

    def _repeated(self, level: float) -> Intervals:
        question, groups, k = self._question, self._groups, len(self.eigenvalues)
        generator, terms = np.random.default_rng(_SEED), (self._released.noise, self._released.n)
        b = None if question.norm is None else question.norm(groups)
        values, right = question.solved(groups)
        errors, angles = np.zeros((_DRAWS, k)), np.zeros((_DRAWS, k))
        for draw in range(_DRAWS):
            found, vectors = question.solved(groups.drawn(*terms, generator))
            errors[draw], angles[draw] = found[:k] - values[:k], degrees(vectors[:, :k], right[:, :k], b)
        lost = np.zeros(k, dtype=bool)
        if b is not None:
            alike = groups.alike(question.null * b)
            null = [question.solved(alike.drawn(*terms, generator))[0][:k] for _ in range(_NULL_DRAWS)]
            lost = np.cumsum(values[:k] <= np.max(null, axis=0)) > 0
        tail = max(int((_DRAWS + 1) * (1 - level) / 2), 1)
        bias, deviation, angles = errors.mean(axis=0), errors.std(axis=0), np.sort(angles, axis=0)
        sure = 1 - np.square(_SURE * deviation / np.maximum(np.abs(bias), 1e-300))
        estimates, errors = values[:k] - np.maximum(sure, 0.0) * bias, np.sort(errors - bias, axis=0)
        moved = question.solved(self._clipped)[0][:k] - values[:k]  # or nothing was clipped
        below, above = (np.maximum(sign * moved, -_UNSURE * sign * moved) for sign in (-1, 1))
        low = np.minimum(estimates, values[:k] - bias) - np.hypot(errors[-tail], below)
        high = np.maximum(estimates, values[:k] - bias) + np.hypot(errors[tail - 1], above)
        turned = angles[min(math.ceil((_DRAWS + 1) * level), _DRAWS) - 1]
        turned[lost] = 90.0
        estimates, ends = (np.clip(each, 0.0, question.largest) for each in (estimates, np.column_stack([low, high])))
        return Intervals(level, "gaussian", estimates, ends, turned, tuple(lost.tolist()))

    def to_frame(self) -> Any:
        """The components as a pandas DataFrame, a row for each column of the table."""
        return data_frame(self.components.T.copy(), list(self.names), range(1, len(self.components) + 1))

    def _remarks(self) -> list[str]:
        return []

    def __repr__(self) -> str:
        rows = [["", "eigenvalue", "largest weights, relative to scales"]]
        for k, (value, weights) in enumerate(zip(self.eigenvalues, self.relative_components, strict=True), 1):
            order = np.argsort(-np.abs(weights), kind="stable")[:_WEIGHTS]
            rows.append([str(k), f"{value:.4g}", ", ".join(f"{weights[j]:+.2g} {self.names[j]}" for j in order)])
        of_groups = f" in groups {listed(self.groups)}" if self.groups else ""
        title = f"{self.title} of {len(self.names)} columns, {self.n_people:.0f} people{of_groups}"
        shown = self._printed(title, *self._remarks(), table=rows[: _SHOWN + 1])
        return shown + f"\n  ... {len(rows) - 1 - _SHOWN} more" * (len(rows) > _SHOWN + 1)


@dataclass(frozen=True, eq=False, repr=False)
class FairComponents(GroupDirections):
    """Principal components that serve all groups.

    Attributes
    ----------
    weights : (G,), w: the components are those of sum_g w_g C_g.
    losses : (G,), the variance that they leave out of each group, beyond what as many of its own would.
    losses_of_pca : (G,), the same of the components of sum_g p_g C_g, p the shares of people.
    """

    weights: Matrix
    losses: Matrix
    losses_of_pca: Matrix

    def _remarks(self) -> list[str]:
        rows = zip(self.groups, self.weights, self.losses, self.losses_of_pca, strict=True)
        numbers = [[name, *(f"{value:.4g}" for value in row)] for name, *row in rows]
        return aligned([["group", "weight", "variance lost", "lost by shares of people"], *numbers])


@on_one_thread_of_blas
def common_spatial_patterns(
    release: ReleasedColumns,
    columns: Columns = None,
    *,
    target: Hashable,
    background: Hashable,
    n_components: int | None = None,
) -> GroupDirections:
    """Directions whose variance two released groups share most unequally, C_1 v = lambda (C_1 + C_2) v.

    An eigenvalue is the part of the target: near 1 only it varies, near 0 only the background. Default: all directions.
    """
    title, features = "Common spatial patterns", release._numbers(columns)
    return answer(release, title, features, (target, background), _PATTERNS, n_components)


@on_one_thread_of_blas
def central_subspace(
    release: ReleasedColumns,
    columns: Columns = None,
    *,
    by: Literal["save", "directional regression"] = "directional regression",
    n_components: int | None = None,
) -> GroupDirections:
    """Directions that a response depends on, by its released slices, or in which classes differ.

    SAVE and directional regression see differences of variances, too, where `sir` sees differences of means alone.
    Raises ValueError for a release that is not by group, unknown columns and another ``by``.
    """
    require_one_of("by", by, tuple(_SUBSPACES))
    title, features = f"Central subspace by {by}", release._numbers(columns)
    return answer(release, title, features, release._group_labels, _SUBSPACES[by], n_components)


@on_one_thread_of_blas
def fair_pca(
    release: ReleasedColumns,
    columns: Columns = None,
    *,
    by: Literal["largest", "sum"] = "largest",
    n_components: int = 2,
    standardize: bool = False,
) -> FairComponents:
    """Principal components that lose no more variance of one released group than of another, if possible.

    What K components lose of a group is the variance that K of its own have beyond theirs. "largest" minimizes the
    largest loss: w >= 0 of sum 1 make the K leading eigenvalues of sum_g w_g C_g least, less w times the groups' own
    (Samadi et al. 2018). "sum" minimizes the sum of losses, w_g = 1/G. Where two eigenvalues meet at w, no K components
    make losses equal. Intervals are of the components for the weights that were found. Raises ValueError for a release
    that is not by group, unknown columns and more components.
    """
    require_one_of("by", by, ("largest", "sum"))
    require_flag("standardize", standardize)
    features, labels = release._numbers(columns), release._group_labels
    k = require_count("n_components", n_components, largest=len(features))
    noisy, mapped = release._groups_alone(labels, features)
    of_release = location_and_scale(mapped, len(features))[1]
    of_all, scale = Groups.of(noisy), None if standardize else of_release
    units = units_of(scale, of_all)
    inside = of_all.along(np.diag(units))
    equal = np.full(len(labels), 1 / len(labels))
    weights = equal if by == "sum" else _fair_weights(inside.covariances, k)
    question = Question(None, partial(_weighted, scale, weights), 0.0)
    found = answer(release, "Fair principal components", features, labels, question, k, units / of_release)
    of_shares = scipy.linalg.eigh(inside.mixed(inside.shares))[1][:, ::-1]
    return FairComponents(
        **vars(found),
        weights=weights,
        losses=_losses(inside.covariances, found.relative_components.T),
        losses_of_pca=_losses(inside.covariances, of_shares[:, :k]),
    )


def answer(
    release: ReleasedColumns,
    title: str,
    features: NDArray[np.intp],
    labels: Sequence[Hashable],
    question: Question,
    n_components: int | None,
    to_columns: Matrix | None = None,
    *,
    everybody: bool = False,
) -> GroupDirections:
    """The leading solutions; ``to_columns`` (d,) takes them to the units of the columns, by default from the scales.

    Of groups, or of ``everybody`` as a single one. Columns of which clipping may have taken much are warned of.
    """
    noisy, mapped = release._judged(features, held=False)
    if everybody:
        clipped = in_one_group(release._noisy).restricted(features)
        noisy, clipped = (of_groups([each], each) for each in (noisy, clipped))
    else:
        noisy, mapped = release._groups_alone(labels, features)
        clipped = release._groups_alone(labels, features, restored=False)[0]
    groups = Groups.of(noisy)
    if question.norm is not None and groups.drowned:
        warn_inaccurate(
            f"noise hides directions in the covariances of groups {listed([labels[g] for g in groups.drowned])}: "
            "eigenvalues may be biased, intervals too short. Ask about fewer columns, or release with a larger epsilon"
        )
    values, vectors = question.solved(groups)
    k = require_count("n_components", len(features) if n_components is None else n_components, largest=len(features))
    relative = vectors[:, :k].T
    relative *= np.sign(relative[np.arange(len(relative)), np.abs(relative).argmax(axis=1)])[:, None]
    if to_columns is None:
        to_columns = 1 / location_and_scale(mapped, len(features))[1]
    found = tuple(map(str, labels)), release._labels_of(features), relative * to_columns, relative, values[:k]
    known = release._known(float(groups.people.sum()))
    return GroupDirections(title, *found, question, groups, Groups.of(clipped), noisy, **known)


def _losses(covariances: Matrix, components: Matrix) -> Matrix:
    """(G,), variances that components (d, k) leave out of groups, beyond what k of their own would."""
    own = np.linalg.eigvalsh(covariances)[:, -components.shape[1] :].sum(axis=1)
    return np.asarray(own - np.einsum("ik,gij,jk->g", components, covariances, components, optimize=True))


def _fair_weights(covariances: Matrix, k: int) -> Matrix:
    """(G,), w that minimize the k leading eigenvalues of sum_g w_g C_g less w times those of each group: convex."""
    from scipy.optimize import brentq, minimize

    d, n_groups = covariances.shape[1], len(covariances)

    def losses(weights: Matrix) -> Matrix:
        mixed = np.einsum("g,gij->ij", weights, covariances)
        return _losses(covariances, scipy.linalg.eigh(mixed, subset_by_index=(d - k, d - 1))[1])

    if n_groups == 2:
        first = brentq(lambda t: float(np.subtract(*losses(np.array([t, 1 - t])))), 0.0, 1.0, xtol=1e-15)
        return np.array([first, 1 - first])
    unit = float(np.trace(covariances.sum(axis=0))) or 1.0
    found = minimize(
        lambda w: (-float(w @ losses(w)) / unit, -losses(w) / unit),
        np.full(n_groups, 1 / n_groups),
        jac=True,
        bounds=[(0.0, 1.0)] * n_groups,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-15, "maxiter": 200},
        method="SLSQP",
    )
    return np.asarray(np.maximum(found.x, 0.0) / np.maximum(found.x, 0.0).sum())
