"""Pictures: what is drawn where. How they look was looked at, on light and on dark (docs/plots.md)."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import Matrix, noise_from, solve_seeded

import dpgep
from dpgep import plot
from dpgep.planning import plan

pytest.importorskip("matplotlib")


@pytest.fixture
def ax() -> Any:
    from matplotlib.figure import Figure

    return Figure().subplots()


def people(n: int = 5000) -> Matrix:
    rng = np.random.default_rng(0)
    return np.asarray(rng.standard_normal((n, 6)) * np.sqrt([0.06, 0.03, 0.01, 0.006, 0.005, 0.004]))


@pytest.fixture(scope="module")
def solution() -> dpgep.Solution:
    return solve_seeded(dpgep.pca(people(), bound=1.2), epsilon=4.0, delta=1e-6, n_components=2)


@pytest.fixture(scope="module")
def standardized() -> dpgep.Solution:
    import pandas as pd

    x = people() * [1, 10, 100, 1, 1, 1]
    x[:, 1] += 30 * x[:, 0]
    table = pd.DataFrame(x, columns=["age", "income", "height", "weight", "sleep", "steps"])
    return solve_seeded(dpgep.pca(table, standardize=True), epsilon=8.0, delta=1e-6, n_components=3)


def bars(ax: Any) -> list[Matrix]:
    """The segments of each collection of lines."""
    return [np.array(collection.get_segments()) for collection in ax.collections]


def test_a_scree_plot_has_eigenvalues_intervals_and_the_edge_of_the_noise(ax: Any, solution: dpgep.Solution) -> None:
    assert plot.scree(solution, ax=ax) is ax
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    np.testing.assert_array_equal(lines["components"], np.column_stack([[1, 2], solution.eigenvalues]))
    assert solution.diagnostics.spectrum is not None
    np.testing.assert_array_equal(lines["not asked for"].T, [[3, 4, 5, 6], solution.diagnostics.spectrum[2:]])
    np.testing.assert_array_equal(bars(ax)[0][:, :, 1], solution.intervals().eigenvalues)
    (edge,) = ax.patches
    np.testing.assert_array_equal(edge.get_data().values, solution.diagnostics.noise_edge)
    assert {text.get_text() for text in ax.get_legend().get_texts()} >= {"edge of the noise", "90% intervals"}


def test_the_edge_of_the_noise_separates_what_is_lost(ax: Any) -> None:
    x = np.random.default_rng(0).standard_normal((400, 6)) * [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    solution = solve_seeded(dpgep.pca(x, bound=1.2), epsilon=1.0, delta=1e-6, n_components=3)
    edge = solution.diagnostics.noise_edge
    assert edge is not None
    assert solution.diagnostics.lost == tuple((solution.eigenvalues <= edge).tolist()) == (False, True, True)
    plot.scree(solution, ax=ax)
    drawn = ax.patches[0].get_data()
    assert (drawn.edges[-1], drawn.values[-1]) == (6.5, edge[-1])  # it holds for all that are left


def test_the_edge_is_in_the_units_of_the_eigenvalues(ax: Any) -> None:
    x = people(20_000) * 1000
    known = solve_seeded(dpgep.pca(x, bound=1200.0), epsilon=1.0, delta=1e-6, n_components=1)
    found = solve_seeded(dpgep.pca(x), epsilon=1.0, delta=1e-6, n_components=1)
    assert known.diagnostics.noise_edge is not None
    assert found.diagnostics.noise_edge is not None
    assert 0.5 < found.diagnostics.noise_edge[0] / known.diagnostics.noise_edge[0] < 2
    plot.scree(found, ax=ax)
    others = next(line.get_ydata() for line in ax.lines if line.get_label() == "not asked for")
    assert others[0] == pytest.approx(30_000, rel=0.2)


def test_a_scree_plot_of_what_has_no_spectrum_has_eigenvalues_alone(ax: Any) -> None:
    solution = solve_seeded(dpgep.pca(people(), bound=1.2), epsilon=4.0, delta=1e-6, n_components=2, sparsity=2)
    plot.scree(solution, ax=ax)
    assert [line.get_label() for line in ax.lines] == ["components"]
    assert not ax.patches
    assert not solution.has_intervals


def test_a_scree_plot_without_noise_has_no_edge(ax: Any) -> None:
    plot.scree(solve_seeded(dpgep.pca(people(), bound=1.2), epsilon=math.inf, n_components=2), ax=ax)
    assert {line.get_label() for line in ax.lines} >= {"components", "not asked for"}
    assert not ax.patches


def test_components_have_names_and_intervals(ax: Any, standardized: dpgep.Solution) -> None:
    found = standardized.intervals(0.8)
    plot.components(standardized, 2, n_features=4, intervals=found, ax=ax)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert standardized.feature_names is not None
    features = [standardized.feature_names.index(name) for name in names]
    weights = standardized.relative_components[1, features]
    assert (np.diff(np.abs(weights)) >= 0).all()  # the largest on top
    np.testing.assert_array_equal(ax.lines[-1].get_xdata(), weights)
    assert found.loadings is not None
    np.testing.assert_array_equal(bars(ax)[0][:, :, 0], found.loadings[1, features])
    assert ax.get_xlabel() == "loading, with 80% intervals"
    assert f"{standardized.diagnostics.expected_error[1]:.2g}" in ax.get_title()
    with pytest.raises(ValueError, match="no component 4: the solution has 3"):
        plot.components(standardized, 4, ax=ax)


def test_components_of_other_models_have_no_intervals(ax: Any) -> None:
    x = people()
    solution = solve_seeded(dpgep.cca(x[:, :3], x[:, 3:] + x[:, :3], bound=1.5), epsilon=4.0, delta=1e-6)
    plot.components(solution, ax=ax)
    assert not ax.collections
    assert ax.get_xlabel() == "loading"
    assert {label.get_text() for label in ax.get_yticklabels()} == set("012345")


def test_loadings_are_a_table(ax: Any, standardized: dpgep.Solution) -> None:
    plot.loadings(standardized, n_features=5, ax=ax)
    (image,) = ax.images
    shown = np.asarray(image.get_array())
    assert shown.shape == (5, 3)
    assert [text.get_text() for text in ax.texts] == [f"{value:.2f}" for value in shown.ravel()]
    assert "-0.00" not in {text.get_text() for text in ax.texts}
    assert (image.norm.vmin, image.norm.vmax) == (-1, 1)
    np.testing.assert_allclose(image.cmap(0.5), ax.get_facecolor(), atol=0.01)  # zero is the background


def test_a_biplot_has_arrows_and_no_rows(ax: Any, standardized: dpgep.Solution, solution: dpgep.Solution) -> None:
    plot.biplot(standardized, components=(1, 3), ax=ax)
    heads = {text.get_text(): text.xy for text in ax.texts if text.get_text()}
    assert not ax.collections
    arrows = standardized.relative_components[[0, 2]] * np.sqrt(standardized.eigenvalues[[0, 2]])[:, None]
    assert standardized.feature_names is not None
    assert heads["age"][0] == pytest.approx(arrows[0, standardized.feature_names.index("age")])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("component 1", "component 3")
    circle = ax.patches[0]
    assert circle.radius == 1.0


def test_a_biplot_draws_the_rows_it_is_given(ax: Any, solution: dpgep.Solution) -> None:
    scores = solution.transform(people()[:100])
    plot.biplot(solution, scores, ax=ax)
    np.testing.assert_array_equal(ax.collections[0].get_offsets(), scores)
    with pytest.raises(ValueError, match=r"scores must have shape \(n, 2\), got \(100, 1\)"):
        plot.biplot(solution, scores[:, :1], ax=ax)


def test_prices_add_up(ax: Any, standardized: dpgep.Solution) -> None:
    plot.prices(standardized, ax=ax)
    widths = [bar.get_width() for bar in ax.patches]
    assert sum(widths) == pytest.approx(1.0)
    assert [f"{width:10.1%}" for width in widths] == [line[:10] for line in standardized.privacy.prices()]


def test_prices_of_a_budget_show_what_is_left(ax: Any) -> None:
    budget = dpgep.Budget(mu=1.0)
    solve_seeded(dpgep.pca(people(), bound=1.2), budget=budget, share=0.25)
    plot.prices(budget, ax=ax)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.25, 0.75])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["moment matrix", "left"]
    without = solve_seeded(dpgep.pca(people(), bound=1.2), epsilon=math.inf)
    for nothing in (dpgep.Budget(mu=1.0), without, without.privacy):
        with pytest.raises(ValueError, match=r"no shares of mu\^2"):
            plot.prices(nothing, ax=ax)


def overlapping(texts: Any) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other, of a figure that was drawn, by more than half a pixel."""
    boxes = [(text.get_text(), text.get_window_extent().padded(-0.5)) for text in texts if text.get_text()]
    return [(a, b) for i, (a, box) in enumerate(boxes) for b, other in boxes[:i] if box.overlaps(other)]


def require_fitting(ax: Any) -> None:
    """Labels are within the figure, and cover no others."""
    figure = ax.get_figure()
    figure.draw_without_rendering()
    edges = figure.bbox.padded(1)
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        seen = [
            label for at, label in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True) if low <= at <= high
        ]
        assert not overlapping(seen)
        for box in (label.get_window_extent() for label in seen):
            assert edges.count_contains(box.corners()) == 4


@pytest.mark.parametrize("size", [(4, 3), (6, 6)])
def test_prices_of_many_releases_have_labels_without_collisions(size: tuple[int, int]) -> None:
    from matplotlib.figure import Figure

    costs = np.random.default_rng(0).uniform(0.1, 1, 40)
    words = ("rows", "moments of a long and winding name that goes on " * 4, "sums of the columns and of their squares")
    entries = [SimpleNamespace(mu=cost, query=f"{words[i % 3]} {i}") for i, cost in enumerate(costs)]
    report: Any = SimpleNamespace(mu=float(np.linalg.norm(costs)), releases=entries)
    ax = Figure(figsize=size, layout="constrained").subplots()
    plot.prices(report, ax=ax)
    widths = [bar.get_width() for bar in ax.patches]
    assert sum(widths) == pytest.approx(1.0)
    largest = np.flatnonzero(costs >= np.sort(costs)[-9])  # in the order of the releases
    np.testing.assert_allclose(widths[:-1], costs[largest] ** 2 / (costs**2).sum())
    assert ax.get_yticklabels()[-1].get_text() == "the 31 smallest"
    require_fitting(ax)
    assert not overlapping(ax.texts)


@pytest.fixture(scope="module")
def release() -> dpgep.Release:
    import pandas as pd

    x = people() * [100, 10, 1, 1, 1, 1]
    x[:, 1] += 0.1 * x[:, 0]
    table = pd.DataFrame(x, columns=["age", "income", "a name that is longer than what fits in a line", "d", "e", "f"])
    table["town"] = pd.Categorical(["north", "south", "west"] * 1666 + ["nowhere", "west"])
    with noise_from("pictures"):
        return dpgep.release(table, epsilon=4.0, delta=1e-6)


def test_correlations_are_cells_with_a_cross_where_they_may_be_0(ax: Any, release: dpgep.Release) -> None:
    for found in (release.correlation(), release.partial_correlation(["age", "income", "d"])):
        ax.clear()
        assert plot.correlations(found, ax=ax) is ax
        np.testing.assert_allclose(ax.images[0].get_array(), found.values, atol=0.005)
        assert [text.get_text() for text in ax.texts][1] == f"{found.values[0, 1] + 0.0:.2f}"
        crosses = np.round(ax.lines[0].get_xydata() - 0.31).astype(int)
        expected = np.zeros_like(found.values, dtype=bool)
        expected[crosses[:, 1], crosses[:, 0]] = True
        np.testing.assert_array_equal(expected, (found.low <= 0) & (found.high >= 0))
        assert found.names is not None
        names = [label.get_text() for label in ax.get_xticklabels()]
        assert names == [label.get_text() for label in ax.get_yticklabels()]
        assert [name[:31] for name in names] == [name[:31] for name in found.names]
        assert max(map(len, names)) <= 34
    assert ax.get_title() == "partial correlation; x: its 90% interval holds 0"
    with pytest.raises(ValueError, match="different units"):
        plot.correlations(release.covariance(), ax=ax)


@pytest.mark.parametrize("d", [3, 12, 40])
def test_names_of_correlations_fit(d: int) -> None:
    from matplotlib.figure import Figure

    values, names = np.eye(d), tuple(f"column {j} of very many of a table" for j in range(d))
    found: Any = SimpleNamespace(name="correlation", values=values, low=values, high=values, level=0.9, names=names)
    ax = Figure(figsize=(5, 4), layout="constrained").subplots()
    plot.correlations(found, ax=ax)
    assert len(ax.get_figure().axes) == (1 if d <= 10 else 2)  # values, or a scale
    require_fitting(ax)


def dots(ax: Any) -> dict[int, tuple[float, bool]]:
    """By place from the top: the value of a dot, and whether it is a ring."""
    last = len(ax.get_yticklabels()) - 1
    drawn = [line for line in ax.lines if line.get_marker() == "o"]
    rings = [line.get_markerfacecolor() != plot.BLUE for line in drawn]
    return {last - y: (x, ring) for line, ring in zip(drawn, rings, strict=True) for x, y in line.get_xydata()}


def test_coefficients_have_names_and_intervals(ax: Any, release: dpgep.Release) -> None:
    found = release.regression("income", on=["age", "d", "e"])
    deviations = release.describe(found.names).deviation
    for units in (np.ones(3), deviations):
        ax.clear()
        plot.coefficients(found, per=units, ax=ax)
        ends = found.intervals() * units[:, None]
        np.testing.assert_array_equal(bars(ax)[0][:, :, 0], ends)
        holds = (ends[:, 0] <= 0) & (ends[:, 1] >= 0)
        assert dots(ax) == dict(enumerate(zip(found.coefficients * units, holds, strict=True)))
        assert [label.get_text() for label in ax.get_yticklabels()] == ["age", "d", "e"]
    assert (ax.get_title(), ax.get_xlabel()) == ("income", "coefficient, with 90% intervals")
    assert not dots(ax)[0][1]  # income grows with age
    for wrong in ([1.0, 2.0], -1.0, [1.0, math.nan, 1.0]):
        with pytest.raises(ValueError, match="one positive number for each of the 3 columns"):
            plot.coefficients(found, per=wrong, ax=ax)


def test_means_have_names_and_intervals_of_groups_that_are_known(ax: Any, release: dpgep.Release) -> None:
    found = release.means_by("town", ["income", "age"])
    plot.means(found, "age", ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(found.groups)
    known = np.isfinite(found.low[:, 1])
    assert known.tolist() == [group != "nowhere" for group in found.groups]  # one person
    ends = np.column_stack([found.low[:, 1], found.high[:, 1]])
    np.testing.assert_array_equal(bars(ax)[0][:, :, 0], ends[known])
    assert {place: value for place, (value, _) in dots(ax).items()} == {
        int(place): found.means[place, 1] for place in np.flatnonzero(known)
    }
    assert ax.get_xlabel() == "mean of age, with 90% intervals"
    assert np.isfinite(ax.get_xlim()).all()
    ax.clear()
    plot.means(found, ax=ax)
    assert ax.get_xlabel() == "mean of income, with 90% intervals"
    with pytest.raises(ValueError, match=r"no column 'height': there are 'income', 'age'"):
        plot.means(found, "height", ax=ax)


def test_a_plan_shows_both_kinds_of_errors(ax: Any) -> None:
    planned = plan("pca", n=5000, d=5, epsilon=1.0, delta=1e-6, bound=3.0, spectrum=[4.0, 2.0], n_components=2)
    plot.plan(planned, ax=ax)
    noise, sampling = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(noise, [*planned.sample.mean, planned.sample.span])
    np.testing.assert_array_equal(sampling, [*planned.population.mean, planned.population.span])
    np.testing.assert_array_equal(bars(ax)[0][:2, 0, 1], planned.sample.low)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["1", "2", "all"]


@pytest.mark.parametrize("background", ["white", "black", "#1e1e1e"])
def test_colours_are_seen_on_light_and_dark(background: str) -> None:
    """Contrast of at least 3 as WCAG defines it for graphics; groups, which have names beside them, 1.5."""
    from matplotlib.colors import to_rgb

    def luminance(color: str) -> float:
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(color)]
        return float(np.dot(parts, [0.2126, 0.7152, 0.0722]))

    def contrast(color: str) -> float:
        low, high = sorted([luminance(color), luminance(background)])
        return (high + 0.05) / (low + 0.05)

    assert min(map(contrast, (plot.BLUE, plot.VERMILION, plot.GREY))) > 3
    assert min(map(contrast, plot.GROUPS)) > 1.5


def test_privacy_curve_draws_what_it_is_given(ax: Any) -> None:
    assert plot.privacy_curve([0.1, 1], [3, 2], not_private=1.5, baseline=4, ylabel="error", ax=ax) is ax
    assert ax.lines[0].get_xydata().tolist() == [[0.1, 3], [1, 2]]
    assert [line.get_ydata()[0] for line in ax.lines[1:]] == [1.5, 4]
    assert (ax.get_xscale(), ax.get_ylabel()) == ("log", "error")
    with pytest.raises(ValueError, match="one value per epsilon"):
        plot.privacy_curve([0.1, 1], [3], ax=ax)
    with pytest.raises(ValueError, match="positive and finite"):
        plot.privacy_curve([0.1, math.inf], [3, 2], ax=ax)


def test_projection_names_every_group(ax: Any) -> None:
    points = np.array([[0, 0], [0, 2], [5, 5]])
    plot.projection(points, ["a", "a", "b"], ax=ax)
    assert [(text.get_text(), *text.xy) for text in ax.texts] == [("a", 0, 1), ("b", 5, 5)]
    with pytest.raises(ValueError, match="wider"):
        plot.projection(points[:, :1], ["a", "a", "b"], ax=ax)
    with pytest.raises(ValueError, match="one label per point"):
        plot.projection(points, ["a"], ax=ax)


@pytest.mark.parametrize("draw", [plot.scree, plot.components, plot.loadings, plot.biplot])
def test_only_solutions_are_drawn(draw: Any, ax: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a dpgep\.Solution, got list"):
        draw([1.0], ax=ax)
    with pytest.raises(TypeError, match="got SimpleNamespace: pass its solution_"):
        draw(SimpleNamespace(solution_=None), ax=ax)
