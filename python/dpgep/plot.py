"""Pictures of private spectral analysis. Matplotlib is imported when a function is called.

Each function draws on the axes ``ax`` (default: Matplotlib's current ones) and returns them, so that pictures can be
combined. All of them are post-processing: showing a solution, a report or a plan costs nothing. Text and lines have the
colours of the style in use, on light or dark backgrounds; the other colours suit colour-blind readers, and
groups are labelled in the picture as well.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from dpgep._checks import require_count
from dpgep._optional import import_extra
from dpgep.models.model import Matrix
from dpgep.privacy.budget import Budget
from dpgep.reports.report import PrivacyReport
from dpgep.results.estimates import MatrixEstimate
from dpgep.results.group_means import GroupMeans
from dpgep.results.intervals import Intervals
from dpgep.results.least_squares import Regression
from dpgep.results.score_density import ScoreDensity, normal_scores
from dpgep.results.solution import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from dpgep.planning import Plan

__all__ = [
    "biplot", "coefficients", "components", "correlations", "loadings", "means", "plan", "prices", "privacy_curve",
    "projection", "scores", "scree",
]  # fmt: skip

BLUE = "#0072B2"
VERMILION = "#D55E00"
GREY = "#767676"
# After Paul Tol's "muted" scheme, the darkest a little lighter, to be seen on black: ten groups that a colour-blind
# reader can tell apart.
GROUPS = (
    "#5544BB", "#CC6677", "#117733", "#DDCC77", "#88CCEE", "#992255", "#44AA99", "#999933", "#AA4499", "#767676",
)  # fmt: skip
# Eigenvalues of a scree plot; columns of a picture of loadings; characters of a line that names a release or a column,
# of such lines; and bars of prices.
_EIGENVALUES, _COLUMNS, _LINE, _LINES, _BARS = 40, 20, 34, 2, 10
# Columns whose correlations are written into their cells, at most.
_WRITTEN = 10
# Shares of the people within the regions of a score plot, and of a group within its own.
_WITHIN, _WITHIN_GROUP = (0.95, 0.75, 0.5, 0.25), (0.9, 0.5)
# Of the longest arrow of a biplot: the shortest one, and the height of a line of text.
_SHORTEST, _LINE_HEIGHT = 0.1, 0.09


def scree(solution: Solution, *, intervals: Intervals | None = None, ax: Axes | None = None) -> Axes:
    """Eigenvalues in descending order, their intervals, and the edge of the noise.

    The components of the solution are dots; other eigenvalues of the release are rings (up to 40 in all). The line is
    what noise alone hardly exceeds (with a probability of 1/200): an eigenvalue that is not above it may be noise.

    The edge and the rings are known for dense components by ``method="release"``; without noise there is no edge.
    Intervals, by default at 0.9 where the solution has them, are about the population: the noise pushes eigenvalues
    apart, so that a dot may lie above its interval.
    """
    _require_solution(solution)
    ax, found = _axes(ax), solution.diagnostics
    values, k = solution.eigenvalues, solution.n_components
    number, others = np.arange(1, k + 1), _other_eigenvalues(solution)
    if len(others):
        ax.plot(k + 1 + np.arange(len(others)), others, "o", color=GREY, mfc="none", label="not asked for")
    if found.noise_edge is not None:
        edge, x = found.noise_edge, np.arange(k + 1) + 0.5
        if found.lost[-1]:  # its edge is that of all after it
            edge, x = np.append(edge, edge[-1]), np.append(x, k + len(others) + 0.5)
        ax.stairs(edge, x, baseline=None, color=VERMILION, linestyle="--", linewidth=1.5, label="edge of the noise")
    intervals = _intervals_of(solution, intervals)
    if intervals is not None:
        low, high = intervals.eigenvalues.T
        ax.vlines(number, low, high, color=BLUE, label=f"{intervals.level:.0%} intervals")
        ax.plot(np.tile(number, 2), np.append(low, high), "_", color=BLUE, markersize=9)
    ax.plot(number, values, "o", color=BLUE, markersize=4, label="components")
    ax.xaxis.set_major_locator(import_extra("matplotlib.ticker", "plot").MaxNLocator(integer=True))
    ax.legend(frameon=False)
    return _finished(ax, "number of the component", "eigenvalue")


def components(
    solution: Solution,
    component: int = 1,
    *,
    n_features: int = _COLUMNS,
    intervals: Intervals | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The largest loadings of one component, with their intervals.

    Columns of different units are compared in ``solution.relative_components``. For PCA by ``method="release"``
    loadings have intervals (docs/uncertainty.md), by default at 0.9. For others the title alone says how far the
    component, whose number counts from 1, may have turned: its expected squared sine. Raises ValueError if there is no
    such component.
    """
    _require_solution(solution)
    row, ax = _row_of(solution, component), _axes(ax)
    weights = solution.relative_components[row]
    features = _largest(np.abs(weights), n_features)[::-1]
    y = np.arange(len(features))
    ax.axvline(0.0, color=GREY, linewidth=1, zorder=1)
    intervals, label = _intervals_of(solution, intervals), "loading"
    if intervals is not None and intervals.loadings is not None:
        low, high = intervals.loadings[row, features].T
        ax.hlines(y, low, high, color=BLUE)
        ax.plot(np.append(low, high), np.tile(y, 2), "|", color=BLUE, markersize=7)
        label = f"loading, with {intervals.level:.0%} intervals"
    ax.plot(weights[features], y, "o", color=BLUE, markersize=4)
    ax.set_yticks(y, _names(solution, features))
    error = f"expected squared sine {solution.diagnostics.expected_error[row]:.2g}"
    return _finished(ax, label, title=f"{_title(solution, row)}: {error}")


def loadings(solution: Solution, *, n_features: int = _COLUMNS, ax: Axes | None = None) -> Axes:
    """The loadings of all components, ``solution.relative_components``, as a table of colours.

    Blue is positive, vermilion negative, the colour of the background zero. Features keep their order; of more than
    ``n_features``, the ones with the largest loading in any component are shown.
    """
    _require_solution(solution)
    ax, weights = _axes(ax), solution.relative_components
    features = sorted(_largest(np.abs(weights).max(axis=0), n_features))
    _cells(ax, np.round(weights[:, features].T, 2) + 0.0, aspect="auto")  # no -0.00
    ax.set_yticks(np.arange(len(features)), _names(solution, features))
    rows = range(solution.n_components)
    ax.set_xticks(rows, [f"{row + 1}\n(lost)" if solution.diagnostics.lost[row] else f"{row + 1}" for row in rows])
    ax.set_xlabel("component")
    return ax


def correlations(found: MatrixEstimate, *, ax: Axes | None = None) -> Axes:
    """Correlations as a table of colours, with a cross where the interval of one holds 0: it may be none.

    Of `Release.correlation` or `Release.partial_correlation`. Blue is positive, vermilion negative, the colour of the
    background zero. Of up to ten columns values are written. Raises ValueError for a covariance: its entries have
    different units.
    """
    if found.name == "covariance":
        raise ValueError("a covariance has different units in its entries: ask correlation(), and draw that")
    ax, d = _axes(ax), len(found.values)
    image = _cells(ax, np.round(found.values, 2) + 0.0 if d <= _WRITTEN else found.values, aspect="equal")
    unsure = (found.low <= 0) & (found.high >= 0)
    corner, size = (0.31, 4.0) if d <= _WRITTEN else (0.0, 60 / d)
    ax.plot(*np.argwhere(unsure)[:, ::-1].T + corner, "x", color=GREY, markersize=size)
    labels = [_shortened(name) for name in found.names or map(str, range(d))]
    longest = max(map(len, labels))
    size = _size(ax, 1.2 * d + longest / 2, square=True)
    ax.set_xticks(range(d), labels, fontsize=size, rotation=90 if longest > 3 else 0)
    ax.set_yticks(range(d), labels, fontsize=size)
    if d > _WRITTEN:
        ax.figure.colorbar(image, ax=ax, shrink=0.7)
    ax.set_title(f"{found.name}; x: its {found.level:.0%} interval holds 0", fontsize="medium")
    return ax


def coefficients(found: Regression, *, per: ArrayLike = 1.0, ax: Axes | None = None) -> Axes:
    """Coefficients of a regression with their intervals, in the order of the columns; a ring where one holds 0.

    Of `Release.regression` or `Release.instrumental`, at its level, without the intercept. ``per`` (p,) are differences
    in the columns whose effect is drawn: columns of different units can be compared per deviation,
    ``release.describe(found.names).deviation``. Raises ValueError if it is not one positive number per column.
    """
    p, units = len(found.names), np.asarray(per, dtype=float)
    if units.shape not in ((), (p,)) or not (np.isfinite(units).all() and (units > 0).all()):
        raise ValueError(f"per must be one positive number for each of the {p} columns, got shape {units.shape}")
    ax = _axes(ax)
    low, high = (found.intervals() * np.broadcast_to(units, p)[:, None]).T
    _estimates(ax, found.names, found.coefficients * units, low, high, 0.0)
    return _finished(ax, f"coefficient, with {found.level:.0%} intervals", title=found.target)


def means(found: GroupMeans, column: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Means of a column by group, with their intervals, and a line at the mean of all; a ring where one holds it.

    Of `Release.means_by`, at its level; by default of the first column. Of a group that the noise drowns there is
    nothing but its name. Raises ValueError if there is no such column.
    """
    name = found.names[0] if column is None else column
    if name not in found.names:
        raise ValueError(f"there is no column {name!r}: there are {', '.join(map(repr, found.names))[:100]}")
    ax, j = _axes(ax), found.names.index(name)
    values, low, high = found.means[:, j], found.low[:, j], found.high[:, j]
    _estimates(ax, found.groups, values, low, high, float(found.counts @ values / found.counts.sum()))
    if j in found.dates:
        ax.xaxis_date()
    return _finished(ax, f"mean of {name}, with {found.level:.0%} intervals", found.category)


def biplot(
    solution: Solution,
    scores: ArrayLike | ScoreDensity | None = None,
    *,
    components: tuple[int, int] = (1, 2),
    n_features: int = _COLUMNS,
    ax: Axes | None = None,
) -> Axes:
    """Features as arrows along two components.

    An arrow is the feature's loadings; for PCA times the roots of the eigenvalues, so that its length is the standard
    deviation that the two components explain; of standardized columns, correlations with them, within a circle.

    Drawn are at most ``n_features`` arrows, the longest, of at least a tenth of the longest. Components are numbered
    from 1.

    ``scores`` of a `dpgep.score_density` of these components are regions of people, as `dpgep.plot.scores` draws them.
    Scores (n, K) of rows, as from `Solution.transform`, are dots: **dots are not private**, no guarantee covers them,
    and a picture with them shows rows. Arrows are drawn to their scale. Raises ValueError if there is no such
    component, or scores are not (n, K).
    """
    _require_solution(solution)
    rows = [_row_of(solution, component) for component in components]
    arrows = solution.relative_components[rows].T
    is_pca = solution.model.name in ("pca", "standardized-pca")
    if is_pca:
        arrows = arrows * np.sqrt(np.maximum(solution.eigenvalues[rows], 0.0))
    patches, ax = import_extra("matplotlib.patches", "plot"), _axes(ax)
    longest = float(np.linalg.norm(arrows, axis=1).max())
    ax.axhline(0.0, color=GREY, linewidth=0.8, zorder=1)
    ax.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
    if isinstance(scores, ScoreDensity):
        _people(ax, scores)
        furthest = 0.7 * float(np.abs(scores.edges).max())
        arrows, longest = arrows * furthest / longest, furthest
    elif scores is not None:
        points = np.asarray(scores, dtype=float)
        if points.ndim != 2 or points.shape[1] != solution.n_components:
            raise ValueError(f"scores must have shape (n, {solution.n_components}), got {points.shape}")
        x, y = points[:, rows].T
        ax.scatter(x, y, s=8, color=GREY, alpha=0.4, linewidths=0)
        furthest = float(np.abs(points[:, rows]).max())
        arrows, longest = arrows * furthest / longest, furthest
    elif solution.model.traits.standardized:
        ax.add_patch(patches.Circle((0, 0), 1.0, fill=False, color=GREY, linewidth=0.8))
        longest = 1.0
    lengths = np.linalg.norm(arrows, axis=1)
    features = [j for j in _largest(lengths, n_features) if lengths[j] >= _SHORTEST * lengths.max()]
    written: list[tuple[float, float]] = []
    for (x, y), name in zip(arrows[features].tolist(), _names(solution, features), strict=True):
        ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": BLUE})
        height, above = y, math.copysign(_LINE_HEIGHT * longest, y)
        while any(abs(x - a) < 4 * abs(above) and abs(height - b) < abs(above) for a, b in written):
            height += above
        written.append((x, height))
        ax.annotate(
            name, (x, height), xytext=(math.copysign(5, x), 0), textcoords="offset points",
            ha="left" if x >= 0 else "right", va="center", fontsize="small",
        )  # fmt: skip
    ends = np.array([-longest, longest])
    ax.set(xlim=1.3 * ends, ylim=1.15 * ends, aspect="equal")
    return _finished(ax, _title(solution, rows[0]), _title(solution, rows[1]))


def prices(paid: PrivacyReport | Solution | Budget, *, ax: Axes | None = None) -> Axes:
    """What each release cost, as a share of mu^2: bars, in the order of the releases; of many, the smallest are one.

    Shares are of what a report's releases cost together; of all that a budget allows, with what is left of it. Raises
    ValueError if there are none: nothing was released, without noise, or of answers about samples, which have no mu.
    """
    import textwrap  # slow to import

    report = paid.privacy if isinstance(paid, Solution) else paid
    total = report.mu
    costs = [math.nan if entry.mu is None else entry.mu for entry in report.releases]
    if total is None or not math.isfinite(total) or not costs or not np.isfinite(costs).all():
        raise ValueError("there are no shares of mu^2: nothing was released, or it has no finite mu")
    shares = [mu**2 / total**2 for mu in costs]
    names, colors = [entry.query for entry in report.releases], [BLUE] * len(costs)
    if len(names) > _BARS:
        order = np.argsort(shares, kind="stable")
        small, kept = order[: -_BARS + 1], np.sort(order[-_BARS + 1 :])
        names = [*(names[i] for i in kept), f"the {len(small)} smallest"]
        shares, colors = [*(shares[i] for i in kept), sum(shares[i] for i in small)], [BLUE] * len(names)
    if isinstance(report, Budget):
        names, shares, colors = [*names, "left"], [*shares, report.remaining_mu**2 / total**2], [*colors, GREY]
    lines = [textwrap.wrap(name, _LINE, max_lines=_LINES, placeholder=" ...") for name in names]
    heights = [len(each) + 0.5 for each in lines]
    ax, y = _axes(ax), -np.cumsum(heights) + np.array(heights) / 2
    size = _size(ax, 1.2 * sum(heights))
    bars = ax.barh(y, shares, height=0.8 * min(heights), color=colors)
    ax.bar_label(bars, [f"{share:.1%}" for share in shares], padding=4, fontsize=size)
    ax.set_yticks(y, ["\n".join(each) for each in lines], fontsize=size)
    ax.set_ylim(-sum(heights), 0)
    ax.margins(x=0.15)
    ax.xaxis.set_major_formatter(import_extra("matplotlib.ticker", "plot").PercentFormatter(1.0))
    return _finished(ax, "share of mu²")


def plan(planned: Plan, *, ax: Axes | None = None) -> Axes:
    """Expected errors of a plan, by component: of the noise alone, and with the sampling of the people.

    Lines are what nine draws in ten lie between.
    """
    ax, k = _axes(ax), len(planned.sample.mean)
    series = (
        (planned.sample, "noise", BLUE, "o", -0.12),
        (planned.population, "noise and sampling", VERMILION, "s", 0.12),
    )
    for errors, name, color, marker, offset in series:
        low, mean, high = errors.low, errors.mean, errors.high
        if k > 1:
            spans = (errors.span_low, errors.span, errors.span_high)
            low, mean, high = map(np.append, (low, mean, high), spans)
        x = np.arange(1, len(mean) + 1) + offset
        ax.vlines(x, low, high, color=color)
        ax.plot(x, mean, marker, color=color, label=name)
    names = [str(number) for number in range(1, k + 1)] + (["all"] if k > 1 else [])
    ax.set_xticks(range(1, len(names) + 1), names)
    ax.set(xlim=(0.5, len(names) + 0.5), yscale="log")
    ax.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    return _finished(ax, "component", "error: squared sine")


def privacy_curve(
    epsilons: Sequence[float],
    median: ArrayLike,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    not_private: float | None = None,
    baseline: float | None = None,
    baseline_label: str = "no data used",
    ylabel: str = "",
    color: str = BLUE,
    ax: Axes | None = None,
) -> Axes:
    """A quantity against epsilon on a logarithmic axis, with its spread and the figure without privacy.

    ``median``, ``low`` and ``high`` have one value per epsilon; the band between low and high is shaded. A dashed line
    is the value at epsilon = inf, ``not_private``, a dotted one that of an answer that uses no data, ``baseline``.
    Raises ValueError if an epsilon is not positive and finite, or there is not one value per epsilon.
    """
    x, y = np.asarray(epsilons, dtype=float), np.asarray(median, dtype=float)
    if x.ndim != 1 or y.shape != x.shape:
        raise ValueError(f"median must hold one value per epsilon, got shapes {y.shape} and {x.shape}")
    if not (np.isfinite(x).all() and (x > 0).all()):
        raise ValueError(f"epsilons must be positive and finite (the limit is not_private), got {list(epsilons)!r}")
    ax = _axes(ax)
    ax.set_xscale("log")
    if low is not None and high is not None:
        ax.fill_between(x, np.asarray(low), np.asarray(high), color=color, alpha=0.2, linewidth=0)
    ax.plot(x, y, color=color, marker="o", markersize=5, linewidth=1.8)
    # the curve leaves the baseline on the left and reaches the other line on the right: the names stand where it is not
    lines = ((not_private, "--", "not private", 0.02, "left"), (baseline, ":", baseline_label, 0.98, "right"))
    for value, style, text, position, alignment in lines:
        if value is not None:
            ax.axhline(value, color=GREY, linestyle=style, linewidth=1.2, zorder=1)
            ax.annotate(
                text, (position, value), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
                ha=alignment, va="bottom", color=GREY, fontsize="small",
            )  # fmt: skip
    ax.margins(y=0.1)
    ax.set_xticks(x, [f"{value:g}" for value in x])
    ax.minorticks_off()
    return _finished(ax, "privacy parameter ε  (left: more private)", ylabel)


def projection(
    points: ArrayLike,
    labels: Sequence[Hashable] | ArrayLike,
    *,
    title: str = "",
    axis_name: str = "direction",
    ax: Axes | None = None,
) -> Axes:
    """Rows projected on two directions, coloured by group, with the name of each group at its median.

    Of ``points`` (n, 2) or wider, as from `Solution.transform`, the first two columns are drawn, ``labels`` (n,) are
    their groups; ``axis_name`` and a number are what an axis is called. Raises ValueError for other shapes.
    """
    array, groups = np.asarray(points, dtype=float), np.asarray(labels)
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"points must have shape (n, 2) or wider, got {array.shape}")
    if groups.shape != array.shape[:1]:
        raise ValueError(f"labels must hold one label per point, shape ({len(array)},), got {groups.shape}")
    ax = _axes(ax)
    for index, name in enumerate(np.unique(groups)):
        x, y = array[groups == name, :2].T
        ax.scatter(x, y, s=12, color=GROUPS[index % len(GROUPS)], alpha=0.65, linewidths=0)
        _name(ax, str(name), float(np.median(x)), float(np.median(y)))
    ax.set(xticks=[], yticks=[])
    return _finished(ax, f"{axis_name} 1", f"{axis_name} 2", title)


def scores(
    found: ScoreDensity | Solution,
    *,
    components: int | tuple[int, int] | None = None,
    axis: int | None = None,
    synthetic: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Where people are by their scores: regions that hold 95, 75, 50 and 25 % of them; of one score, its density.

    Of several groups, the regions that hold 90 and 50 % of each, and its name where it has most people. A region is of
    the highest density of `ScoreDensity.density`; nobody's score is drawn.

    Of a solution and its ``components``, as in `dpgep.score_density`, at no further cost: normal laws of the released
    means and covariances of scores, by group: ellipses, whatever the shape of the people is. ``axis``, 0 or 1, is the
    score whose density alone is drawn; ``synthetic`` a number of points from `ScoreDensity.sample` in the place of
    regions, which the title then says.
    """
    ax = _axes(ax)
    density = found if isinstance(found, ScoreDensity) else normal_scores(found, components)
    if axis is not None or len(density.axes) == 1:
        return _marginal(ax, density, axis or 0)
    _people(ax, density, synthetic)
    x, y = density.axes
    return _finished(ax, x, y, f"{synthetic} synthetic points, which are nobody's" if synthetic else "")


def _people(ax: Axes, found: ScoreDensity, synthetic: int = 0) -> None:
    """Regions of highest density, or synthetic points, of each group; and its name where it has most people."""
    to_rgb, middles = import_extra("matplotlib.colors", "plot").to_rgb, (found.edges[:, 1:] + found.edges[:, :-1]) / 2
    points, groups = found.sample(synthetic, seed=0) if synthetic else (None, None)
    for name, color, density in zip(found.groups or (None,), _colors(found), found.density, strict=True):
        levels = _levels(density, _WITHIN if name is None else _WITHIN_GROUP)
        if not levels:  # the noise leaves nobody
            continue
        if points is not None:
            chosen = points if groups is None else points[groups == name]
            ax.scatter(chosen[:, 0], chosen[:, 1], s=6, color=color, alpha=0.6, linewidths=0)
        else:
            shades = [(*to_rgb(color), alpha) for alpha in np.linspace(0.2, 0.8, len(levels)).tolist()]
            ax.contourf(*middles, density.T, levels=[*levels, np.inf], colors=shades, extend="neither")
        if name is not None:
            _name(ax, str(name), *middles[[0, 1], np.unravel_index(int(density.argmax()), density.shape)])
    ax.set(xlim=found.edges[0, [0, -1]], ylim=found.edges[1, [0, -1]])


def _marginal(ax: Axes, found: ScoreDensity, axis: int) -> Axes:
    """The density of one score, of each group as high as it has people."""
    edges = found.edges[axis]
    heights = found.marginal(axis) / np.diff(edges)
    for name, color, height in zip(found.groups or (None,), _colors(found), heights, strict=True):
        ax.stairs(height, edges, fill=True, color=color, alpha=0.5)
        ax.stairs(height, edges, color=color)
        if name is not None and height.any():
            highest = int(height.argmax())
            _name(ax, str(name), edges[highest : highest + 2].mean(), height[highest])
    ax.set(xlim=edges[[0, -1]])
    ax.margins(y=0.1)
    return _finished(ax, found.axes[axis], "density of people")


def _colors(found: ScoreDensity) -> Sequence[str]:
    """One for each group."""
    return [BLUE] if found.groups is None else [GROUPS[index % len(GROUPS)] for index in range(len(found.groups))]


def _name(ax: Axes, text: str, x: float, y: float) -> None:
    """A bold name that can be read on any colour."""
    effects = import_extra("matplotlib.patheffects", "plot")
    outline = [effects.withStroke(linewidth=3, foreground=ax.get_facecolor())]
    ax.annotate(text, (x, y), ha="center", va="center", fontweight="bold", path_effects=outline)


def _levels(density: Matrix, held: Sequence[float]) -> list[float]:
    """Densities above which cells hold these shares of a group, ascending."""
    ordered = np.sort(density, axis=None)[::-1]
    cumulated = np.cumsum(ordered)
    if not cumulated[-1] > 0:
        return []
    at = np.searchsorted(cumulated, np.asarray(held) * cumulated[-1])
    return sorted({float(ordered[i]) for i in at} - {0.0})


def _cells(ax: Axes, values: Matrix, aspect: Literal["equal", "auto"]) -> AxesImage:
    """Numbers from -1 to 1 as colours; of few columns, written as well."""
    colors = import_extra("matplotlib.colors", "plot")
    scheme = colors.LinearSegmentedColormap.from_list("cells", [VERMILION, ax.get_facecolor(), BLUE])
    image = ax.imshow(values, cmap=scheme, vmin=-1, vmax=1, aspect=aspect)
    if values.shape[1] <= _WRITTEN:
        for row, column in np.ndindex(*values.shape):
            ax.text(column, row, f"{values[row, column]:.2f}", ha="center", va="center", fontsize="small")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return image


def _estimates(ax: Axes, names: Sequence[str], values: Matrix, low: Matrix, high: Matrix, mark: float) -> None:
    """Values as dots from top to bottom, their finite intervals as lines, and a line that marks what they may be."""
    y = np.arange(len(names))[::-1]
    ax.axvline(mark, color=GREY, linewidth=1, zorder=1)
    known, holds = np.isfinite(low) & np.isfinite(high), (low <= mark) & (mark <= high)
    ax.hlines(y[known], low[known], high[known], color=BLUE)
    for shown, face in ((known & ~holds, BLUE), (known & holds, ax.get_facecolor())):
        ax.plot(values[shown], y[shown], "o", color=BLUE, markersize=5, markerfacecolor=face)
    ax.set_yticks(y, [_shortened(name) for name in names], fontsize=_size(ax, 1.3 * len(names)))
    ax.set_ylim(-0.6, len(names) - 0.4)


def _shortened(name: str) -> str:
    return name if len(name) <= _LINE else f"{name[: _LINE - 3]}..."


def _size(ax: Axes, lines: float, *, square: bool = False) -> float:
    """The size of text, in points, of which that many lines fit the height of the axes, or its shorter side."""
    box, figure = ax.get_position(), ax.figure.figure
    assert figure is not None
    width, height = 72 * figure.get_size_inches() * (box.width, box.height)
    return float(min(ax.yaxis.label.get_fontsize(), (min(width, height) if square else height) / lines))


def _axes(ax: Axes | None) -> Axes:
    return import_extra("matplotlib.pyplot", "plot").gca() if ax is None else ax


def _finished(ax: Axes, xlabel: str, ylabel: str = "", title: str = "") -> Axes:
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if title:
        ax.set_title(title, fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _require_solution(solution: object) -> None:
    """Rows, or an estimator, would fail later with a message about one of their attributes."""
    if not isinstance(solution, Solution):
        hint = ": pass its solution_" if hasattr(solution, "solution_") else ""
        raise TypeError(f"solution must be a dpgep.Solution, got {type(solution).__name__}{hint}")


def _row_of(solution: Solution, component: int) -> int:
    number = require_count("component", component)
    if number > solution.n_components:
        raise ValueError(f"there is no component {number}: the solution has {solution.n_components}")
    return number - 1


def _title(solution: Solution, row: int) -> str:
    return f"component {row + 1}" + (" (lost)" if solution.diagnostics.lost[row] else "")


def _largest(sizes: Matrix, most: int) -> list[int]:
    """Numbers of the largest, in descending order; no more than ``most``."""
    return np.argsort(-sizes, kind="stable")[: require_count("n_features", most)].tolist()  # type: ignore[no-any-return]


def _names(solution: Solution, features: list[int]) -> list[str]:
    names = solution.feature_names
    return [str(j) if names is None else names[j] for j in features]


def _intervals_of(solution: Solution, given: Intervals | None) -> Intervals | None:
    return solution.intervals() if given is None and solution.has_intervals else given


def _other_eigenvalues(solution: Solution) -> Matrix:
    """Those of the release that were not asked for, in the units of the solution's."""
    spectrum, k = solution.diagnostics.spectrum, solution.n_components
    if spectrum is None or spectrum[0] == 0 or getattr(solution.diagnostics, "support", None) is not None:
        return np.empty(0)
    most = min(_EIGENVALUES, solution.model.max_components)
    return np.asarray(spectrum[k:most] * (solution.eigenvalues[0] / spectrum[0]))
