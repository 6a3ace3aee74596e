"""What `solve` returns: the components, the privacy report and the diagnostics."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, overload

import numpy as np

from dpgep._checks import unchecked
from dpgep._optional import data_frame
from dpgep._show import html_table, interval_picture
from dpgep._threads import lapack_on_one_thread
from dpgep.data.inputs import column_names
from dpgep.errors import warn_inaccurate
from dpgep.methods.auto import may_favour_clipping
from dpgep.methods.base import Diagnostics, MethodResult
from dpgep.methods.eigen import Accuracy, judged_components
from dpgep.methods.release import MOST_FEATURES, ReleaseDiagnostics, columns_are
from dpgep.models.model import Matrix, Model
from dpgep.models.moments import ReleasedMoments, paired, together, total_mean
from dpgep.models.pairwise import require_no_pairs
from dpgep.models.preprocessing import Preprocessing, location_and_scale, takes_missing, unclipped
from dpgep.models.redundant import Redundancy, reduced
from dpgep.models.row_model import MomentsPencil, RowModel, in_units, names_of_views, view_labels
from dpgep.reports.report import PrivacyReport
from dpgep.results.intervals import Intervals, RowLaw, bootstrap_intervals, require_law, warn_of_clipping, whole_system
from dpgep.serialization import NOT_STORED, Format, Target, save
from dpgep.sources import Scan, Selection
from dpgep.sources.kinds import is_dask_frame, is_table
from dpgep.sources.names import Names, check_same, listed
from dpgep.sources.tables import table_matrix

SOLUTION = Format("dpgep-solution")

# Mean squares of rows near the bound, as shares of its square; of a mean far from zero, as shares of these; deviations.
_NEAR_THE_BOUND, _FAR_FROM_ZERO, _SURE = 0.7, 0.5, 3.0
# How many weights of a component its line of the printed form names, if they are not below a share of the largest.
_SHOWN, _LEAST = 3, 0.01


@dataclass(frozen=True, repr=False, eq=False)
class Solution:
    """Leading solutions of A v = lambda B v, computed from noisy releases only.

    Attributes
    ----------
    components : (K, d), rows of unit Euclidean norm whose largest entry is positive; where columns were divided by a
        ``scale``, ``components * scale`` has these properties.
    eigenvalues : (K,), descending.
    privacy : PrivacyReport
    diagnostics : `ReleaseDiagnostics` (noise level, eigengaps, expected error per component) or `FlowDiagnostics`, from
        released values.
    mean : (d,) released mean of the rows, or None where the model has none.
    model : the public description of the problem.
    method : name of the method.
    passes : number of passes over the rows: from a source or on workers, all passes; in memory, those that are not
        products with vectors. 0 for moments summed earlier, and for problems in matrix form.
    preprocessing : the public map of the rows that the answer is about (location, scale, bound); None where they are as
        they were given. Components and the mean are in the units of the rows nevertheless.
    release : the `dpgep.Release` that this is an answer from, to be asked more at no further cost. None where there is
        none: for other methods, where the released moments were not kept (`intervals`), and in a solution from a file,
        which does not hold it: save the release itself.
    """

    components: Matrix
    eigenvalues: Matrix
    privacy: PrivacyReport
    diagnostics: Diagnostics
    mean: Matrix | None
    model: Model
    method: str
    passes: int = 0
    preprocessing: Preprocessing | None = None
    _moments: ReleasedMoments | None = None
    release: Any = field(default=None, metadata=NOT_STORED)  # a Release, which makes solutions

    @property
    def n_components(self) -> int:
        return len(self.components)

    @property
    def scale(self) -> Matrix | None:
        """(d,), the spread of the columns that components are relative to: ``components * scale`` has unit rows.

        None where there is none, and columns count as they are.
        """
        if isinstance(self.diagnostics, ReleaseDiagnostics) and self.diagnostics.scale is not None:
            return self.diagnostics.scale
        return self.preprocessing.scale if self.preprocessing is not None and self.model.traits.scale_free else None

    @property
    def relative_components(self) -> Matrix:
        """(K, d), rows of unit norm: ``components * scale`` where there is a ``scale``, and ``components`` elsewhere.

        The weights of features whose columns have different units.
        """
        if self.scale is None:
            return self.components
        units = self.components * self.scale
        return np.asarray(units / np.linalg.norm(units, axis=1, keepdims=True))

    @property
    def view_weights(self) -> tuple[Matrix, ...]:
        """(K, d_i) weights of each view i, rows of unit norm as in ``components`` (models of several views only)."""
        views = self.model.views
        if len(views) == 1:
            raise AttributeError(f"{self.model.name} has one view: see components")
        units = self.components if self.scale is None else self.components * self.scale
        norms = [np.linalg.norm(units[:, view], axis=1, keepdims=True) for view in views]
        parts = zip(views, norms, strict=True)
        return tuple(np.asarray(self.components[:, view] / np.where(norm > 0, norm, 1.0)) for view, norm in parts)

    @property
    def x_weights(self) -> Matrix:
        """(K, d_x) weights of the first view: `view_weights`."""
        return self.view_weights[0]

    @property
    def y_weights(self) -> Matrix:
        """(K, d_y) weights of the second view: `view_weights`."""
        return self.view_weights[1]

    @property
    def feature_names(self) -> Names:
        """Names of the d features, of both views where there are two; None where the data have none."""
        return self.model.feature_names

    @property
    def support(self) -> tuple[Hashable, ...]:
        """The features that any component uses, by name or else by number: all, unless components are sparse."""
        used = np.flatnonzero(self.components.any(axis=0)).tolist()
        return tuple(used if self.feature_names is None else (self.feature_names[j] for j in used))

    def intervals(self, level: float = 0.9, rows: RowLaw = "gaussian") -> Intervals:
        """Intervals for the population's eigenvalues, and for the angles to its components: at no cost.

        They cover the noise and the sampling of people, by repeating the release in a simulation (docs/uncertainty.md):
        0.1 s for 20 features, a few seconds for 200. The simulation is the same in every call. Each interval holds with
        probability ``level``; not that all do. ``rows`` is what is assumed of the people: "gaussian", fourth moments as
        of Gaussian rows; or "bounded", as large as the bound on rows allows, along the principal axes: conservative.

        Raises ValueError for a solution that does not come from one released matrix of at most 200 features, or of
        sparse components.
        """
        require_law(level, rows)
        if self._moments is not None:
            require_no_pairs(self._moments, "intervals of components")
        noisy, preprocessing = self._small_pencil("intervals", whole=True)
        lost, bound, ridge = self.diagnostics.lost, self.privacy.bound, self.diagnostics.regularization
        assert bound is not None
        sizes = not noisy.model.traits.scale_free
        warn_of_clipping(noisy.released, self.feature_names, sizes=sizes)
        with lapack_on_one_thread(noisy.model.n_features):
            found = bootstrap_intervals(noisy, ridge, lost, bound, level, rows, self.relative_components)
        if preprocessing is None or noisy.model.traits.scale_free:
            return found
        of_rows = preprocessing.eigenvalues
        return replace(found, estimates=of_rows(found.estimates), eigenvalues=of_rows(found.eigenvalues))

    @property
    def has_intervals(self) -> bool:
        """Whether `intervals` are known: for dense components of released moments that were kept."""
        return self._is_kept and self._moments is not None and self._moments.pairs is None

    @property
    def _is_kept(self) -> bool:
        """Whether the moments of dense components were kept."""
        return self._moments is not None and getattr(self.diagnostics, "support", None) is None

    def recommended_components(self) -> int:
        """Number of leading components, of all there are, that noise and chance could hardly produce: at no cost.

        Chance is who was drawn from the population: in a population without signal, noise and the sampling of people
        show a component in one of 200 tables (Gaussian rows; at least as rarely for independent columns of other laws).
        No signal means independent columns where these are standardized, the same variance in all directions where they
        are not; independent views; groups of the same mean. `lost` in the diagnostics is of the noise alone. However
        many components were asked for, all are judged. Where the released moments were not kept (`intervals`), only
        those that were asked for are, and by the noise alone: ValueError if all of them stand out.
        """
        lost = self.diagnostics.lost
        found = lost.index(True) if any(lost) else self.model.max_components
        if not self._is_kept and (any(lost) or self.n_components == found):
            return found
        noisy, _ = self._small_pencil("more than the components asked for, all of which stand out,")
        system = whole_system(noisy, self.diagnostics.regularization)
        return judged_components(noisy, system, min(found, noisy.model.max_components), people=True)[0].count(False)

    def _small_pencil(self, what: str, *, whole: bool = False) -> tuple[MomentsPencil, Preprocessing | None]:
        """The released pencil, and how its rows were mapped; ``whole``: of the rows before they were clipped."""
        if isinstance(self.diagnostics, ReleaseDiagnostics) and self.diagnostics.support is not None:
            raise ValueError(f"{what} of sparse components are not known: solve without sparsity")
        if self._moments is None:
            raise ValueError(
                f'{what} need the released moments, which a solution keeps with method="release" of rows, up to '
                f"{MOST_FEATURES} features, none of them constant, without screen"
            )
        assert isinstance(self.model, RowModel)
        moments, preprocessing = self._moments, self.preprocessing
        if whole:
            moments, preprocessing = unclipped(moments, preprocessing, self.model.indicators)
        scale, preprocessing = in_units(self.model, preprocessing)
        noisy = self.model.noisy(moments, scale)
        smaller = reduced(noisy, Redundancy.of(self.model, self.preprocessing))
        return noisy if smaller is None else smaller.noisy, preprocessing

    @overload
    def transform(self, X: Any) -> Matrix: ...

    @overload
    def transform(self, X: Any, *others: Any) -> tuple[Matrix, ...]: ...

    def transform(self, X: Any, *others: Any) -> Matrix | tuple[Matrix, ...]:
        """Coordinates (X - mean) V^T of new rows, shape (n, K); of several views, a tuple with each view's coordinates.

        X alone is the first view; ``transform(X, Y)`` are both of CCA or PLS.

        The result is no more private than the rows passed: the report of this solution does not cover it. Rows are not
        clipped.

        Columns of a table must be those of the fit, in its order: ValueError names those that are not. An array needs
        as many columns. Where absent values of the fit counted as the location of their column, those of X do, too.
        """
        n_views = len(self.model.views)
        if len(others) not in (0, n_views - 1):
            views = "one view: transform takes only X" if n_views == 1 else f"{n_views} views: pass the first, or all"
            raise TypeError(f"{self.model.name} has {views}")
        parts = self.view_weights if n_views > 1 else (self.components,)
        means = [None if self.mean is None else self.mean[view] for view in self.model.views]
        names = names_of_views(self.model)
        absent = absent_values(self.preprocessing, self.model.n_features)
        absences = [None if absent is None else absent[view] for view in self.model.views]
        given = zip((X, *others), parts, means, absences, names, view_labels(n_views), strict=False)
        found = tuple(project(*each) for each in given)
        return found if others else found[0]

    def to_frame(self) -> Any:
        """The components as a pandas DataFrame: a row for each feature, a column for each component, from 1.

        Rows have the names of the columns of the data, or numbers from 0; with several views, by view and feature.
        """
        names, views = self.feature_names, self.model.views
        labels = [range(view.stop - view.start) if names is None else names[view] for view in views]
        index: Any = labels[0]
        if len(views) > 1:
            sizes = [len(part) for part in labels]
            index = [np.repeat(view_labels(len(views)), sizes), [label for part in labels for label in part]]
        name = "feature" if len(views) == 1 else ["view", "feature"]
        table = data_frame(self.components.T.copy(), index, range(1, self.n_components + 1), name=name)
        return table.rename_axis(columns="component")

    def save(self, target: Target) -> None:
        """Write JSON, to the last bit of every number (docs/formats.md), to a path or an open file, for `dpgep.load`.

        Everything in it is an attribute of the solution, or a released value that it follows from: it may be published
        where the solution may. A file of this name is replaced atomically. Raises TypeError for classes of people that
        are not text, numbers or booleans.
        """
        save(SOLUTION.text(self).encode(), target)

    def _may_gain_from_clipping(self) -> bool:
        """Whether public numbers say that another method may have less error than this release."""
        public, mu = self.privacy.public, self.privacy.mu
        if self.method != "release" or public is None or mu is None or len(self.support) < self.model.n_features:
            return False
        if (self.preprocessing is not None and self.preprocessing.pairwise) or public.weighted:
            return False
        return may_favour_clipping(self.model, self.n_components, public.n_people, mu)

    def __repr__(self) -> str:
        d = self.diagnostics
        regularization = f", regularization {d.regularization:.3g}" if d.regularization else ""
        lines = [
            f"Solution of {self._title()}",
            f"  privacy      {self.privacy}",
            *(f"  {price}" for price in self.privacy.prices()),
            f"  noise level  {d.noise_level:.3g}{regularization}",
        ]
        if self.feature_names is not None and len(self.support) < self.model.n_features:
            lines.append(f"  support      {listed(self.support, math.inf)}")
        if self.preprocessing is not None and self.preprocessing.missing and not self.preprocessing.pairwise:
            counted = "values count as their column's location: correlations lie nearer to 0 (not in errors)"
            lines.append(f"  missing      {counted}")
        if self._may_gain_from_clipping():
            lines.append('  note         method="clipped-power" may have several times less error; "auto" tries it')
        lines += d.table(self.eigenvalues)
        for row in range(self.n_components):
            weights = self._largest_weights(row)
            lines[row - self.n_components] += f"  {weights}" if weights else ""
        if self.n_components > 10:
            lines[10 - self.n_components :] = [f"  ... {self.n_components - 10} more"]
        return "\n".join(lines)

    def _title(self) -> str:
        count = f"{self.n_components} component{'s' * (self.n_components != 1)}"
        d = self.model.n_features
        return f"{self.model.name} by {self.method}: {count} in {d} feature{'s' * (d != 1)}"

    def _largest_weights(self, row: int) -> str:
        """The largest weights of columns over ``scale`` in a component: not of one that is lost."""
        if self.feature_names is None or self.diagnostics.lost[row]:
            return ""
        weights = self.relative_components[row] / np.linalg.norm(self.relative_components[row])
        sizes = np.abs(weights)
        largest = [j for j in np.argsort(-sizes, kind="stable")[:_SHOWN] if sizes[j] >= _LEAST * sizes.max()]
        return ", ".join(f"{weights[j]:+.2g} {self.feature_names[j]}" for j in largest)

    def _repr_html_(self) -> str:
        found = self.diagnostics
        about = [("Solution", self._title()), ("Privacy", str(self.privacy))]
        about += [("Noise level", f"{found.noise_level:.3g}")]
        edges = np.zeros(self.n_components) if found.noise_edge is None else found.noise_edge
        lines = zip(self.eigenvalues, edges, found.expected_error, found.lost, strict=True)
        least, most = min(float(self.eigenvalues.min()), 0.0), max(float(self.eigenvalues.max()), float(edges.max()))
        rows, ends = [], found.error_range
        for k, (value, edge, error, lost) in enumerate(lines):
            picture, why = interval_picture(value, 0.0, value, least, most, edge), "yes" if lost else ""
            between = "" if lost or ends is None or not error else f" ({ends[k, 0]:.1g} to {ends[k, 1]:.2g})"
            rows.append((f"{k + 1}", f"{value:.4g}", picture, f"{error:.2g}{between}", why, self._largest_weights(k)))
        rest = f"<p>... {len(rows) - 10} more</p>" if len(rows) > 10 else ""
        heading = "Component", "Eigenvalue", "Beside the noise", "Expected error (squared sine)"
        return html_table(about) + html_table(rows[:10], (*heading, "Lost in noise", "Largest weights")) + rest


def project(values: Any, weights: Matrix, mean: Any, absent: Matrix | None, names: Names, name: str) -> Matrix:
    scores = np.asarray(new_rows(values, weights.shape[1], absent, names, name) @ weights.T, dtype=np.float64)
    if mean is not None:
        scores -= np.ravel(weights @ np.ravel(mean))
    return scores


def absent_values(preprocessing: Preprocessing | None, d: int) -> Matrix | None:
    """What absent values count as: the location of their column; None where none are expected."""
    return location_and_scale(preprocessing, d)[0] if takes_missing(preprocessing) else None


def new_rows(values: Any, d: int, absent: Matrix | None, names: Names, name: str) -> Any:
    """Rows that an answer is applied to, dense or sparse, with ``absent`` in the places of NaN. ValueError for columns
    of other names, or another number of them.
    """
    if isinstance(values, (Scan, Selection)):
        batches = "apply this to its batches, for (rows,) in scan.read(scan)"
        raise TypeError(f"{name} must be in memory, not a scan: {batches}")
    check_same(column_names(values), names, name)
    array = values.compute() if is_dask_frame(values) else values
    array = table_matrix(array) if is_table(array) else array
    array = array if hasattr(array, "tocsr") else np.asarray(array)
    if array.ndim != 2 or array.shape[1] != d:
        raise ValueError(f"{name} must have shape (n, {d}) as in the fit, got {array.shape}")
    if absent is not None and not hasattr(array, "tocsr"):
        array = np.where(np.isnan(array), absent, array)
    return array


def solution_of(
    result: MethodResult,
    report: PrivacyReport,
    model: Model,
    method: str,
    *,
    passes: int,
    preprocessing: Preprocessing | None,
    release: Any = None,
) -> Solution:
    """The caller's view of a method's result, in the units of the rows."""
    components, eigenvalues, mean, diagnostics = result.components, result.eigenvalues, result.mean, result.diagnostics
    scale, mapped = in_units(model, preprocessing)
    if mapped is not None:
        if scale is not None:
            assert isinstance(diagnostics, ReleaseDiagnostics)
            assert mapped.scale is not None
            unit = float(mapped.scale[0]) ** 2
            sizes = {name: getattr(diagnostics, name) * unit for name in ("noise_level", "spectrum", "eigengaps")}
            diagnostics = unchecked(diagnostics, **sizes)
        if model.traits.scale_free:
            components = mapped.components(components)
        else:
            eigenvalues = mapped.eigenvalues(eigenvalues)
            edge = partial(_edge_in_units, diagnostics.accuracy, mapped)
            diagnostics = unchecked(diagnostics, accuracy=diagnostics.accuracy.with_edge(edge))
        mean = None if mean is None else mapped.mean(mean)
        if isinstance(diagnostics, ReleaseDiagnostics) and diagnostics.scale is not None:
            diagnostics = unchecked(diagnostics, scale=mapped.spread(diagnostics.scale))
    moments = None if result.moments is None else paired(result.moments)
    found = components, eigenvalues, report, diagnostics, mean
    return Solution(*found, model, method, passes, preprocessing, moments, release)


def _edge_in_units(accuracy: Accuracy, mapped: Preprocessing) -> Matrix | None:
    return None if accuracy.edge is None else mapped.eigenvalues(accuracy.edge)


def warn_of_accuracy(result: MethodResult, solution: Solution) -> None:
    """The method's warnings, now that there is a solution to attach."""
    for message in result.accuracy_warnings:
        warn_inaccurate(message, solution)
    warn_of_scales(solution.preprocessing, solution.feature_names, solution)
    if (length := _length_of_far_mean(solution)) is not None:
        warn_inaccurate(
            f"rows longer than the bound {solution.privacy.bound:.3g}, if any, are clipped about zero, far from their "
            f'mean of length {length:.3g}: that turns directions. Give Preprocessing(bound, location), or bound="auto"',
            solution,
        )


def _length_of_far_mean(solution: Solution) -> float | None:
    """That of a mean about which a centred model has turned rows that a public bound may have clipped about zero.

    Rows shortened towards zero lose most along the mean, and centring takes a part of that for other directions. How
    many were clipped stays secret: the released moments show whether most rows come near the bound, far from zero.
    """
    moments, mean, bound = solution._moments, solution.mean, solution.privacy.bound
    located = solution.preprocessing is not None and (
        solution.preprocessing.location is not None or solution.preprocessing.energy_kept < 1
    )
    if moments is None or mean is None or bound is None or located or not solution.model.traits.shift_free:
        return None
    moments = together(moments)
    squares = float(np.trace(moments.second)) - _SURE * moments.noise.second * math.sqrt(len(moments.second))
    if squares <= _NEAR_THE_BOUND * bound**2:
        return None
    length = float(np.linalg.norm(total_mean(moments)))
    of_noise = moments.noise.sums * math.sqrt(moments.sums.size)  # the length that a mean of zero would have
    far = length > 2 * of_noise and (length - 2 * of_noise) ** 2 > _FAR_FROM_ZERO * squares
    return length if far and not (moments.noiseless and moments.clipped == 0) else None


def warn_of_scales(preprocessing: Preprocessing | None, names: Names, answer: Any) -> None:
    """Warn of columns whose scale the budget did not show."""
    if preprocessing is not None and preprocessing.unsure:
        columns = columns_are(np.array(preprocessing.unsure), names)
        message = f"the budget did not show how wide {columns}: errors and intervals do not count that"
        warn_inaccurate(f"{message}; give ranges, or a larger share", answer)
