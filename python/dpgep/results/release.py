"""A release of moments: noisy, public, to be asked any number of questions, and added to releases of other people."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpgep import models
from dpgep._checks import require_flag, require_non_negative
from dpgep._show import html_table
from dpgep.data.inputs import named
from dpgep.methods.auto import PROBE
from dpgep.methods.base import PairOptions, checked_options, component_count
from dpgep.methods.release import solve_released, with_clipping_bias
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, in_one_group, pooled, together
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.redundant import Redundancy
from dpgep.models.row_model import Classes, RowModel, Slices, names_of_views, pencil_in_units
from dpgep.privacy.accounting import epsilon_of
from dpgep.privacy.ledger import LedgerEntry, NoiseBlock
from dpgep.reports.guarantee import PublicInputs
from dpgep.reports.report import PrivacyReport
from dpgep.results import (
    classifiers,
    contingency,
    correspondence,
    estimates,
    factor_analysis,
    group_directions,
    group_means,
    least_squares,
    multivariate,
    page,
    partial,
    paths,
    redundancy_analysis,
    synthetic,
    two_stage,
)
from dpgep.results.columns import Columns, Mapped, ReleasedColumns, of_unseen
from dpgep.results.solution import Solution, solution_of, warn_of_accuracy
from dpgep.serialization import Format, Target, save
from dpgep.sources.names import listed

RELEASE = Format("dpgep-release")


@dataclass(frozen=True, eq=False, repr=False)
class Release(ReleasedColumns):
    """One noisy release of the moments of people: everything in it is public.

    ``a + b`` are the moments of both populations together, which must be disjoint: nobody's rows are in both. Each
    person is then protected by the release of their own population (parallel composition): the sum has the larger of
    the two privacy parameters, not their sum. Which population a person belongs to is considered public, and under
    replace-one so are the sizes. Two releases of the same problem are refused; overlap of different problems is not
    detected. With the populations' sizes n_a, n_b (or released counts)

        M = (n_a M_a + n_b M_b)/(n_a + n_b),   noise deviations sqrt((n_a s_a)^2 + (n_b s_b)^2)/(n_a + n_b):

    k sites of equal size have noise sqrt(k) times that of a single curator over all rows.

    Questions are about any of its columns, named or numbered (those of both views, one after the other), and about the
    mean: a release without sums (``pca(center=False)``, say) answers `solve` alone. ``**options`` are those of
    `dpgep.methods.base.PairOptions`: ``regularization``, ``sparsity``, ``separate_supports``.

    Attributes
    ----------
    model : what was computed.
    privacy : PrivacyReport
    preprocessing : the public map of the rows that the moments are about; None where they are as they were given.
    """

    @property
    def second_moment(self) -> Matrix:
        """(d, d), noisy (1/n) sum x x^T of clipped rows; where columns are ``"pairwise"``, of people who have both."""
        return np.array(together(self._noisy).second)

    def of_group(self, group: Hashable) -> Release:
        """The people of one group, a class or the number of a slice, to be asked as a release of nobody else is.

        Of a release by group. Their number is the released one. Answers name the whole release: all together have its
        price, and it is what can be saved.
        """
        alone, mapped = self._of_group(self._number_of_group(group))
        names = {name: getattr(self.model, name) for name in ("feature_names", "indicators", "_dates")}
        model = models.TableModel(self.model.n_features, **names)
        return Release(model, self.report, alone, self._sources, mapped)

    def solve(self, n_components: int | None = None, **options: Any) -> Solution:
        """Leading solutions of A v = lambda B v, as `dpgep.solve` with ``method="release"`` computes them.

        Free, any number of times. Options: `dpgep.methods.base.PairOptions` (``regularization``,
        ``sparsity``, ``separate_supports``).
        """
        noisy = replace(self._noisy, second=self._noisy.second.copy())  # solving overwrites it
        return self._answer(self.model, (noisy, self.preprocessing), n_components, options, self._noisy)

    def pca(
        self, columns: Columns = None, *, n_components: int | None = None, standardize: bool = False, **options: Any
    ) -> Solution:
        """Principal components of columns, in their units or standardized, as of `dpgep.pca`."""
        require_flag("standardize", standardize)
        features = self._numbers(columns)
        kind = models.StandardizedPcaModel if standardize else models.PcaModel
        return self._solved(kind(len(features), True), features, n_components, options)

    def contrastive_pca(
        self,
        columns: Columns = None,
        *,
        target: Hashable,
        background: Hashable,
        alpha: float = 1.0,
        n_components: int | None = None,
        **options: Any,
    ) -> Solution:
        """Directions of columns that vary more in one released class than in another: `dpgep.contrastive_pca`."""
        features, classes = self._numbers(columns), (target, background)
        require_non_negative("alpha", alpha)
        two, _ = self._groups_alone(classes, features, restored=False)
        model = models.ContrastivePcaModel(len(features), Classes(classes), float(alpha))
        return self._solved(model, features, n_components, options, some=two)

    def cca(
        self, x: Columns, y: Columns, *, given: Columns = None, n_components: int | None = None, **options: Any
    ) -> Solution:
        """Canonical correlations of the columns ``x`` with the columns ``y``, as of `dpgep.cca`.

        With ``given`` columns partial ones: of what x and y have beyond their least-squares predictions from these,
        S_ab - S_az S_zz^-1 S_zb for the views a and b. ``regularization`` is a ridge: S_xx + xi I, and S_yy + xi I.
        """
        model, features = self._two_views(models.CcaModel, x, y)
        held = None if given is None else self._independent(self._numbers(given, "given"))[0]
        return self._solved(model, features, n_components, options, given=held)

    def pls(self, x: Columns, y: Columns, *, n_components: int | None = None, **options: Any) -> Solution:
        """Directions of the columns ``x`` and ``y`` whose scores covary most, in their units, as of `dpgep.pls`."""
        return self._solved(*self._two_views(models.PlsModel, x, y), n_components, options)

    def fda(self, columns: Columns = None, *, n_components: int | None = None, **options: Any) -> Solution:
        """Directions of columns that separate the released classes, as of `dpgep.fda`."""
        features = self._numbers(columns)
        return self._solved(models.FdaModel(len(features), self._classes()), features, n_components, options)

    def sir(self, columns: Columns = None, *, n_components: int | None = None, **options: Any) -> Solution:
        """Directions of columns that the released slices of a response depend on, as of `dpgep.sir`."""
        features, slices = self._numbers(columns), self.model.grouping
        if not isinstance(slices, Slices):
            raise ValueError("this release has no slices of a response: use dpgep.release(X, y=..., y_range=...)")
        return self._solved(models.SirModel(len(features), slices.interior_edges), features, n_components, options)

    mean = estimates.mean
    mean_intervals = estimates.mean_intervals
    covariance = estimates.covariance
    correlation = estimates.correlation
    partial_correlation = partial.partial_correlation
    graph = partial.graph
    factors = factor_analysis.factors
    instrumental = two_stage.instrumental
    regression = least_squares.regression
    regression_path = paths.regression_path
    describe = estimates.describe
    crosstab = contingency.crosstab
    mca = correspondence.mca
    famd = correspondence.famd
    means_by = group_means.means_by
    manova = multivariate.manova
    common_spatial_patterns = group_directions.common_spatial_patterns
    central_subspace = group_directions.central_subspace
    fair_pca = group_directions.fair_pca
    redundancy = redundancy_analysis.redundancy
    classifier = classifiers.classifier
    quadratic_classifier = classifiers.quadratic_classifier
    sample = synthetic.sample
    to_html = page.to_html

    def _two_views(
        self, model: type[models.CcaModel] | type[models.PlsModel], x: Columns, y: Columns
    ) -> tuple[RowModel, NDArray[np.intp]]:
        first, second = self._numbers(x, "x"), self._numbers(y, "y")
        both = sorted({*first.tolist()} & {*second.tolist()})
        if both:
            raise ValueError(f"columns {listed(self._names_of(np.array(both)) or both)} are in both views")
        return model((len(first), len(second)), True), np.concatenate([first, second])

    def _solved(
        self,
        model: RowModel,
        features: NDArray[np.intp],
        n_components: int | None,
        options: dict[str, Any],
        *,
        some: ReleasedMoments | None = None,
        given: NDArray[np.intp] | None = None,
    ) -> Solution:
        """The answer of a model of columns; about ``some`` groups with moments of their own, or everybody.

        Of everybody also of what columns have beyond the ``given`` ones.
        """
        model = replace(model, feature_names=self._names_of(features), indicators=self._indicators_of(features))
        grouped = some is not None or model.grouping is not None
        noisy, preprocessing = self._moments_of(features, grouped=grouped)
        if grouped or given is not None:  # others have the clipping in their intervals
            self._judged(features, held=False)
        clipped = (together(self._noisy) if grouped else in_one_group(self._noisy)).restricted(features)
        if given is not None:
            twice = np.intersect1d(features, given)
            if len(twice):
                raise ValueError(f"columns {listed(self._names_of(twice) or twice.tolist())} are in a view and given")
            every, names = np.concatenate([features, given]), self.model.feature_names
            require_no_pairs(noisy, "canonical correlations given others")
            of_both = self._moments_of(every)[0], in_one_group(self._noisy).restricted(every)
            noisy, clipped = (partial.residual_moments(each, len(given), given, names) for each in of_both)
        if some is not None:
            noisy, clipped = replace(some, second=some.second.copy()), some
        if preprocessing is not None and not (some is None and given is None):  # variances were bought of everybody
            preprocessing = preprocessing.of_others()
        return self._answer(model, (noisy, preprocessing), n_components, options, clipped)

    def _answer(
        self, model: RowModel, rows: Mapped, n_components: int | None, options: dict[str, Any], clipped: ReleasedMoments
    ) -> Solution:
        """The solution of ``model`` for moments of mapped rows, which are overwritten; as they were ``clipped``."""
        k, (noisy, preprocessing) = component_count(model, n_components), rows
        settings = checked_options("an answer from a release", PairOptions, options)
        settings.check_model(model, k)
        settings.require_separate_columns(mixed=preprocessing is not None and preprocessing.mixes_columns)
        pencil = pencil_in_units(model, noisy, preprocessing)
        result = solve_released(pencil, k, settings, Redundancy.of(model, preprocessing))
        if self.preprocessing is not None:
            kept = self.preprocessing.energy_kept
            of_clipped = None if preprocessing is None else replace(preprocessing, energy_kept=kept)
            result = with_clipping_bias(result, pencil, clipped, of_clipped)
        solution = solution_of(
            result, self.report, model, "release", passes=0, preprocessing=preprocessing, release=self
        )
        warn_of_accuracy(result, solution)
        return solution

    def __add__(self, other: Release) -> Release:
        if not isinstance(other, Release):
            return NotImplemented
        ours, theirs = self._kind(), other._kind()
        if ours != theirs:
            differing = [f"{key} ({ours[key]!r} and {theirs[key]!r})" for key in ours if ours[key] != theirs[key]]
            raise ValueError(f"the releases differ in {', '.join(differing)}: they cannot be added")
        if self._sources & other._sources:
            raise ValueError("both sums include releases of the same people, who would count twice: add disjoint ones")
        model = named(self.model, *names_of_views(other.model))
        n = self._noisy.n + other._noisy.n
        noisy = pooled(self._noisy, other._noisy, (self._noisy.n / n, other._noisy.n / n), n)
        privacy, sources = _parallel(self.privacy, other.privacy), self._sources | other._sources
        return Release(model, privacy, noisy, sources, self.preprocessing)

    def save(self, target: Target) -> None:
        """Write the release with a checksum, to a path or an open binary file, for `dpgep.load`.

        A file of this name is replaced atomically. Raises TypeError for classes that are not text, numbers or booleans,
        and ValueError for the people of one group.
        """
        if self.privacy.release is not None:
            raise ValueError("this is one group of a release, which holds it: save the whole release")
        save(RELEASE.packed(self), target)

    def _kind(self) -> dict[str, Any]:
        """What must agree for releases to be added."""
        return {
            "model": self.model,
            "adjacency": self.privacy.adjacency,
            "bound": self.privacy.bound,
            "preprocessing": self.preprocessing,
            **{name: getattr(self.privacy.public, name, None) for name in ("rows", "largest_weight")},
        }

    def __repr__(self) -> str:
        sites = f" of {len(self._sources)} populations" if len(self._sources) > 1 else ""
        asked = ", ".join(self._questions())
        tails = "".join(of_unseen(self._unseen, "; tails ", ""))
        return (
            f"Release({self.model.name}, d={self.model.n_features}{sites}; {self.privacy}{tails}; "
            f"{f'to be asked, at no further cost: {asked}' if asked else 'solve() is what it answers'})"
        )

    def _repr_html_(self) -> str:
        names = self.model.feature_names or range(self.model.n_features)
        asked = ", ".join(self._questions())
        return html_table(
            [
                ("Release", f"{self.model.name}, {self.n_people:.0f} people"),
                ("Privacy", str(self.privacy)),
                ("Columns", listed(names, 40)),
                *(("Tails", line) for line in of_unseen(self._unseen, "", "")),
                ("To be asked, at no further cost", asked or "solve()"),
                *([("A page that answers", 'to_html("explore.html")')] if asked else []),
            ]
        )

    def _questions(self) -> list[str]:
        """The questions that it answers, by name."""
        if not self._noisy.sums.size:
            return []
        found = ["pca", "cca", "pls", "mean", "covariance", "correlation", "describe", "graph"]
        if self._noisy.mark is None:
            found += ["partial_correlation", "factors", "redundancy", "regression", "regression_path", "instrumental"]
            found += ["crosstab", "means_by", "famd"] * bool(self._categories) + ["mca"] * (len(self._categories) > 1)
        grouped: dict[Any, list[str]] = {Classes: ["fda", "classifier", "manova"], Slices: ["sir", "manova"]}
        found += ["sample", *grouped.get(type(self.model.grouping), [])]
        if self._noisy.by_group:
            found += ["contrastive_pca", "common_spatial_patterns", "central_subspace", "fair_pca"]
            found += ["quadratic_classifier"] * isinstance(self.model.grouping, Classes)
        return found


def paid_noise(report: PrivacyReport) -> tuple[NoiseBlock, ...]:
    """The noise of released moments by the ledger: of the last release, pooled with that of a probe before it."""
    *before, last = report.releases
    found, names = last.noise, [block.name for block in last.noise]
    for entry in before:
        if entry.query == f"{PROBE}: {last.query}" and [block.name for block in entry.noise] == names:
            pairs = ((block, block.deviation, other.deviation) for block, other in zip(found, entry.noise, strict=True))
            # weighted by precision
            found = tuple(NoiseBlock(block.name, block.shape, s * (t / math.hypot(s, t))) for block, s, t in pairs)
    return found


def _parallel(a: PrivacyReport, b: PrivacyReport) -> PrivacyReport:
    """The report of releases of disjoint populations: each person is in only one, so the larger cost covers all."""
    assert a.mu is not None
    assert b.mu is not None
    mu = max(a.mu, b.mu)
    delta = None if a.delta is None or b.delta is None else max(a.delta, b.delta)
    # at a delta that is at least that of both: the larger epsilon, if both state one, or the exact one if that is less
    stated = max(math.inf if report.epsilon is None else report.epsilon for report in (a, b))
    # the moments are the last release, after what prepared them; without noise they have no blocks
    blocks = zip(paid_noise(a), paid_noise(b), strict=False)
    noise = tuple(NoiseBlock(x.name, x.shape, math.hypot(x.deviation, y.deviation)) for x, y in blocks)
    bits = [report.releases[-1].grid_bits for report in (a, b)]
    merged = LedgerEntry("moment matrices of disjoint populations", mu, noise, bits[0] if bits[0] == bits[1] else None)
    return replace(
        a,
        epsilon=None if delta is None else min(stated, epsilon_of(mu, delta)),
        delta=delta,
        mu=mu,
        releases=(merged,),
        exact=a.exact and b.exact,
        seeded=a.seeded or b.seeded,
        release=None,
        public=_together(a.public, b.public),
    )


def _together(a: PublicInputs | None, b: PublicInputs | None) -> PublicInputs | None:
    if a is None or b is None:
        return None
    n = None if a.n_people is None or b.n_people is None else a.n_people + b.n_people
    ranges = tuple(dict.fromkeys([*a.ranges, *b.ranges]))
    names, person = a.feature_names or b.feature_names, a.person if a.person == b.person else None
    return replace(a, n_people=n, feature_names=names, ranges=ranges, person=person)
