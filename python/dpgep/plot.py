"""Pictures of private spectral analysis. Matplotlib is imported when a function is called.

Each function draws on one pair of axes and returns it, so that pictures can be put together at will. Colours are told
apart by colour-blind readers; groups are labelled in the picture as well, never by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpgep._optional import import_extra

BLUE = "#0072B2"
VERMILION = "#D55E00"
GREY = "#666666"
# Paul Tol's "muted" scheme, with a dark grey last: ten groups that a colour-blind reader can tell apart.
GROUPS = (
    "#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#555555",
)  # fmt: skip


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
    ax: Any = None,
) -> Any:
    """A quantity against epsilon on a logarithmic axis, with its spread and the figure without privacy.

    Parameters
    ----------
    epsilons : sequence of float
        Increasing finite privacy parameters.
    median, low, high : array_like
        One value per epsilon; the band between low and high is shaded.
    not_private : float, optional
        The value at epsilon = inf, drawn as a dashed line.
    baseline, baseline_label : float and str, optional
        The value of an answer that uses no data, drawn as a dotted line, and its name.
    ylabel, color : str
        Name and colour of the quantity.
    ax : Axes, optional
        Default: Matplotlib's current ones.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If an epsilon is not positive and finite, or there is not one value per epsilon.
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
    ax.set_xlabel("privacy parameter ε  (left: more private)")
    ax.set_ylabel(ylabel)
    return _plain(ax)


def projection(
    points: ArrayLike,
    labels: Sequence[Hashable] | ArrayLike,
    *,
    title: str = "",
    axis_name: str = "direction",
    ax: Any = None,
) -> Any:
    """Rows projected on two directions, coloured by group, with the name of each group at its median.

    Parameters
    ----------
    points : array_like of shape (n, 2) or wider
        As from `Solution.transform`; the first two columns are drawn.
    labels : sequence of n labels
        The group of each row.
    title : str
        Of the picture.
    axis_name : str
        "direction" calls the axes "direction 1" and "direction 2".
    ax : Axes, optional
        Default: Matplotlib's current ones.

    Returns
    -------
    The axes.

    Raises
    ------
    ValueError
        If points are not (n, >= 2) or there is not one label per row.
    """
    array, groups = np.asarray(points, dtype=float), np.asarray(labels)
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(f"points must have shape (n, 2) or wider, got {array.shape}")
    if groups.shape != array.shape[:1]:
        raise ValueError(f"labels must hold one label per point, shape ({len(array)},), got {groups.shape}")
    effects = import_extra("matplotlib.patheffects", "plot")
    ax = _axes(ax)
    names = np.unique(groups)
    for index, name in enumerate(names):
        of_group = array[groups == name, :2]
        color = GROUPS[index % len(GROUPS)]
        ax.scatter(*of_group.T, s=12, color=color, alpha=0.65, linewidths=0)
    for name in names:
        ax.annotate(
            str(name), np.median(array[groups == name, :2], axis=0), ha="center", va="center", fontsize=13,
            fontweight="bold", path_effects=[effects.withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip
    ax.set_xlabel(f"{axis_name} 1")
    ax.set_ylabel(f"{axis_name} 2")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title(title, fontsize="medium")
    return _plain(ax)


def format_epsilon(epsilon: float) -> str:
    """``ε = 1``, or ``not private`` for infinity."""
    return "not private" if math.isinf(epsilon) else f"ε = {epsilon:g}"


def _axes(ax: Any) -> Any:
    return import_extra("matplotlib.pyplot", "plot").gca() if ax is None else ax


def _plain(ax: Any) -> Any:
    ax.spines[["top", "right"]].set_visible(False)
    return ax
