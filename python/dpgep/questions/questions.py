"""What a release can be asked, by columns: every answer is post-processing of the release, and costs nothing more."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpgep._checks import require_flag
from dpgep.methods.base import MethodResult, checked_options
from dpgep.methods.intervals import RowLaw, correlation_intervals, require_law
from dpgep.methods.options import PairOptions
from dpgep.methods.release import ReleaseDiagnostics, solve_released
from dpgep.models.cca import CcaModel
from dpgep.models.fda import FdaModel
from dpgep.models.groups import GroupModel
from dpgep.models.in_units import in_units
from dpgep.models.model import Matrix
from dpgep.models.moments import ReleasedMoments, in_one_group, total_mean
from dpgep.models.pca import PcaModel, StandardizedPcaModel
from dpgep.models.pls import PlsModel
from dpgep.models.preprocessing import Preprocessing
from dpgep.models.row_model import RowModel
from dpgep.models.sir import SirModel
from dpgep.models.unclipped import unclipped
from dpgep.questions.classifier import LinearClassifier, classifier
from dpgep.questions.columns import Columns, names_of, number_of, numbers_of
from dpgep.questions.estimates import MatrixEstimate, correlation_of, covariance_estimate
from dpgep.questions.regression import Regression, regression
from dpgep.questions.synthetic import sample
from dpgep.reports.report import PrivacyReport
from dpgep.solution import Solution
from dpgep.solve import component_count, solution_of, warn_of_accuracy


class Questions:
    """Answers of a release about any of its columns, named or numbered (those of both views, one after the other).

    All are about the mean: a release without sums (``pca(center=False)``, say) has none of them. ``**options`` are
    those of `dpgep.methods.options.PairOptions`: ``regularization``, ``sparsity``, ``separate_supports``.
    """

    model: RowModel
    privacy: PrivacyReport
    preprocessing: Preprocessing | None
    _noisy: ReleasedMoments

    @property
    def fingerprint(self) -> str:
        """A name of this release: of the SHA-256 of what was released. Reports of its answers hold it."""
        noisy = self._noisy
        digest = hashlib.sha256()
        for block in (noisy.second, noisy.sums, noisy.counts):
            digest.update(np.ascontiguousarray(block).data)
        return digest.hexdigest()[:12]

    @property
    def report(self) -> PrivacyReport:
        """What all answers from this release cost together, however many: the price of the release, which it names."""
        return replace(self.privacy, release=self.fingerprint)

    def pca(
        self, columns: Columns = None, *, n_components: int | None = None, standardize: bool = False, **options: Any
    ) -> Solution:
        """Principal components of columns, in their units or standardized, as of `dpgep.pca`."""
        require_flag("standardize", standardize)
        features = self._numbers(columns)
        model = StandardizedPcaModel if standardize else PcaModel
        return self._solved(model(len(features), True), features, n_components, options)

    def cca(self, x: Columns, y: Columns, *, n_components: int | None = None, **options: Any) -> Solution:
        """Canonical correlations of the columns ``x`` with the columns ``y``, as of `dpgep.cca`."""
        return self._solved(*self._two_views(CcaModel, x, y), n_components, options)

    def pls(self, x: Columns, y: Columns, *, n_components: int | None = None, **options: Any) -> Solution:
        """Directions of the columns ``x`` and ``y`` whose scores covary most, in their units, as of `dpgep.pls`."""
        return self._solved(*self._two_views(PlsModel, x, y), n_components, options)

    def fda(self, columns: Columns = None, *, n_components: int | None = None, **options: Any) -> Solution:
        """Directions of columns that separate the released classes, as of `dpgep.fda`."""
        features = self._numbers(columns)
        return self._solved(FdaModel(len(features), self._classes()), features, n_components, options)

    def sir(self, columns: Columns = None, *, n_components: int | None = None, **options: Any) -> Solution:
        """Directions of columns that the released slices of a response depend on, as of `dpgep.sir`."""
        features, edges = self._numbers(columns), getattr(self.model, "interior_edges", None)
        if edges is None:
            raise ValueError(
                "this release has no slices of a response: release dpgep.table(X, y, slices=, y_range=), or dpgep.sir"
            )
        return self._solved(SirModel(len(features), edges), features, n_components, options)

    def mean(self, columns: Columns = None) -> Matrix:
        """(d,), the released means of columns, in their units."""
        features = self._numbers(columns)
        noisy, preprocessing = self._moments_of(features)
        mean = total_mean(noisy)
        return mean if preprocessing is None else preprocessing.mean(mean)

    def covariance(self, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian") -> MatrixEstimate:
        """Covariances of columns, in their units, each with an interval; divided by n."""
        require_law(level, rows)
        features = self._numbers(columns)
        noisy, preprocessing = self._moments_of(features)
        values, low, high = covariance_estimate(noisy, preprocessing, self._row_bound, level, rows)
        return MatrixEstimate("covariance", values, low, high, level, self._names_of(features), self.report)

    def correlation(self, columns: Columns = None, *, level: float = 0.9, rows: RowLaw = "gaussian") -> MatrixEstimate:
        """Correlations of columns, each with an interval (`dpgep.methods.intervals.correlation_intervals`).

        Entries of a column that is constant are 0, and nothing is known of them.
        """
        features = self._numbers(columns)
        noisy, _ = self._moments_of(features)
        low, high = correlation_intervals(noisy, level, rows, self._row_bound)
        values = correlation_of(noisy)
        return MatrixEstimate("correlation", values, low, high, level, self._names_of(features), self.report)

    def regression(
        self,
        y: str | int,
        on: Columns = None,
        *,
        ridge: float | None = None,
        level: float = 0.9,
        rows: RowLaw = "gaussian",
    ) -> Regression:
        """Least squares of the column ``y`` on others (default: all others), with an intercept, in their units.

        With errors that cover the noise and which people were sampled; see `dpgep.questions.regression.regression`.
        """
        target = number_of(y, self.model.feature_names, self.model.n_features)
        numbers = self._numbers(on, "on")
        columns = [j for j in numbers.tolist() if on is not None or j != target]
        noisy, preprocessing = self._of_everybody
        return regression(
            noisy,
            preprocessing,
            target,
            columns,
            privacy=self.report,
            names=self.model.feature_names,
            ridge=ridge,
            rows=rows,
            level=level,
        )

    def classifier(
        self,
        columns: Columns = None,
        *,
        ridge: float | None = None,
        priors: Literal["released"] | Sequence[float] = "released",
    ) -> LinearClassifier:
        """The linear rule of the released class means and scatter of columns: private as a whole.

        See `dpgep.questions.classifier.classifier`.
        """
        classes, features = self._classes(), self._numbers(columns)
        noisy, preprocessing = self._moments_of(features, grouped=True)
        names = self._names_of(features)
        return classifier(noisy, preprocessing, classes, self.report, ridge=ridge, priors=priors, feature_names=names)

    def sample(
        self,
        n: int,
        seed: int | np.random.Generator | None = None,
        *,
        columns: Columns = None,
        ranges: Mapping[str | int, tuple[float, float]] | None = None,
    ) -> Any:
        """Synthetic people: n Gaussian rows with the released moments; of classes, rows and labels.

        They hold no more than second moments and the noise: for trying pipelines without data, not for inference. See
        `dpgep.questions.synthetic.sample`.
        """
        features = self._numbers(columns)
        classes = getattr(self.model, "classes", None)
        noisy, preprocessing = self._moments_of(features, grouped=classes is not None)
        names = self._names_of(features)
        return sample(noisy, preprocessing, n, seed, classes=classes, ranges=ranges, feature_names=names)

    def _numbers(self, columns: Columns, what: str = "columns") -> NDArray[np.intp]:
        if not self._noisy.sums.size:
            raise ValueError(
                f"this release of {self.model.name} has no mean: release dpgep.table(X) to ask for columns"
            )
        if self.preprocessing is not None and self.preprocessing.mixes_columns:
            raise ValueError(
                'precondition="full" has mixed the columns of this release, which only answers solve(): release with '
                'precondition="columns" to ask for columns'
            )
        return numbers_of(columns, self.model.feature_names, self.model.n_features, what)

    def _names_of(self, features: NDArray[np.intp]) -> tuple[str, ...] | None:
        return names_of(features, self.model.feature_names)

    @property
    def _row_bound(self) -> float:
        assert self.privacy.bound is not None
        return self.privacy.bound

    def _classes(self) -> tuple[Any, ...]:
        classes: tuple[Any, ...] | None = getattr(self.model, "classes", None)
        if classes is None:
            raise ValueError("this release has no classes: release dpgep.table(X, labels, classes=[...]), or dpgep.fda")
        return classes

    def _moments_of(
        self, features: NDArray[np.intp], *, grouped: bool = False
    ) -> tuple[ReleasedMoments, Preprocessing | None]:
        """Moments of some columns, to be overwritten, and how they were mapped; of all groups together by default."""
        noisy, preprocessing = (self._noisy, self.preprocessing) if grouped else self._of_everybody
        return noisy.restricted(features), None if preprocessing is None else preprocessing.restricted(features)

    @cached_property
    def _of_everybody(self) -> tuple[ReleasedMoments, Preprocessing | None]:
        return unclipped(in_one_group(self._noisy), self.preprocessing)

    def _two_views(
        self, model: type[CcaModel] | type[PlsModel], x: Columns, y: Columns
    ) -> tuple[RowModel, NDArray[np.intp]]:
        first, second = self._numbers(x, "x"), self._numbers(y, "y")
        both = sorted({*first.tolist()} & {*second.tolist()})
        if both:
            raise ValueError(f"columns {both} are in both views")
        return model(len(first), len(second), True), np.concatenate([first, second])

    def _solved(
        self, model: RowModel, features: NDArray[np.intp], n_components: int | None, options: dict[str, Any]
    ) -> Solution:
        model = replace(model, feature_names=self._names_of(features))
        noisy, preprocessing = self._moments_of(features, grouped=isinstance(model, GroupModel))
        return answer(model, noisy, preprocessing, self.report, n_components, options)


def answer(
    model: RowModel,
    noisy: ReleasedMoments,
    preprocessing: Preprocessing | None,
    report: PrivacyReport,
    n_components: int | None,
    options: dict[str, Any],
) -> Solution:
    """The solution of ``model`` for released moments of mapped rows, which are overwritten."""
    k = component_count(model, n_components)
    settings = checked_options("an answer from a release", PairOptions, options)
    settings.check_model(model, k)
    settings.require_separate_columns(mixed=preprocessing is not None and preprocessing.mixes_columns)
    asked, mapped = in_units(model, preprocessing)
    result = solve_released(asked, noisy, k, settings)
    if asked is not model:
        assert mapped is not None
        result = _diagnosed_in_units(result, mapped)
    solution = solution_of(result, report, model, "release", passes=0, preprocessing=mapped)
    solution = replace(solution, preprocessing=preprocessing)
    warn_of_accuracy(result, solution)
    return solution


def _diagnosed_in_units(result: MethodResult, preprocessing: Preprocessing) -> MethodResult:
    """What was found for `InUnits`, its sizes in the units of the columns too."""
    assert preprocessing.scale is not None
    found, unit = result.diagnostics, float(preprocessing.scale[0]) ** 2
    assert isinstance(found, ReleaseDiagnostics)
    assert found.eigengaps is not None
    level, spectrum, gaps = found.noise_level * unit, found.spectrum * unit, found.eigengaps * unit
    return replace(result, diagnostics=replace(found, noise_level=level, spectrum=spectrum, eigengaps=gaps))
