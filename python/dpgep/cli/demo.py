"""``dpgep demo``: what privacy costs on real data, private FDA and PCA of handwritten digits: a table and a picture.

1797 images of 8 x 8 pixels come with scikit-learn: nothing is downloaded. Each row is scaled to unit norm separately,
so the mechanism's bound of 1 clips nothing.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

import dpgep
from dpgep import plot
from dpgep._optional import import_extra
from dpgep.cli.command import Commands, UsageError
from dpgep.cli.options import positive
from dpgep.models.model import Matrix

DELTA = 1e-5
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
COMPONENTS = 5
PICTURED = 3.0
_PICTURES = (".pdf", ".png", ".svg")
_SPLIT_SEED = 0

_INTRODUCTION = """\
dpgep {version}: what does privacy cost? {n} handwritten digits, {d} pixels each, unit rows.

FDA  private discriminant directions from {train} labelled digits; then a linear SVM,
     trained on the projected training rows, classifies {test} other digits.
PCA  private principal components of all {n} digits.
"""
_EXPLANATION = """
Median, then the range, of {repetitions} draws of the noise; {fits} fits and their SVMs in {seconds:.1f} s.
epsilon         smaller is more private; delta = {delta:g}. The guarantee is for each fit alone:
                the costs of several published fits of the same people add up.
test accuracy   only the projection is private: the SVM is trained on the projected training
                rows without noise. Private labels would need a private classifier as well.
subspace error  squared sines of the angles to the subspace without noise, summed:
                0 is the same subspace, {components} is orthogonal to it.
random          directions drawn without using the data: the baseline at no cost in privacy.
~               in most draws the fit warned that its components, taken together, are mostly
                noise (the leading ones may still be useful). This is estimated from released
                values, at no cost in privacy."""
_NEXT = """
Next, with your own data (a table; where people have several rows, person="their ids"; in any units):

    import dpgep
    problem = dpgep.pca(people, standardize=True)
    solution = dpgep.solve(problem, epsilon=1.0, delta=1e-6, n_components=2)
    print(solution)          # the guarantee, the noise, the expected error of each component

More: README.md and docs/your-table.md in the repository; dpgep demo --help for options."""


class Digits(NamedTuple):
    """Unit rows and labels, all and split for testing."""

    rows: Matrix
    train: Matrix
    test: Matrix
    train_labels: NDArray[np.intp]
    test_labels: NDArray[np.intp]


class Line(NamedTuple):
    """The figures at one epsilon, one for each draw of the noise; whether a component was lost in it."""

    epsilon: float
    accuracy: Matrix
    subspace_error: Matrix
    fda_lost: Matrix
    pca_lost: Matrix
    fda: dpgep.Solution


class Report(NamedTuple):
    """All lines, epsilon = inf last, and the figures for random directions, which use no data."""

    lines: list[Line]
    random_accuracy: Matrix
    random_subspace_error: float


def add(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="Private FDA and PCA of handwritten digits: a table and a picture",
        description="Fits private FDA and PCA to scikit-learn's handwritten digits at several levels of privacy,\n"
        "prints the cost in accuracy, and plots it. Nothing is downloaded.",
    )
    what = "picture file: .png, .pdf or .svg (default: %(default)s)"
    demo.add_argument("--output", type=Path, default=Path("dpgep_demo.png"), metavar="FILE", help=what)
    demo.add_argument("--no-plot", action="store_true", help="print only the table")
    demo.add_argument("--repetitions", type=positive, metavar="N", help="draws of noise per epsilon (default: 7)")
    demo.add_argument("--quick", action="store_true", help="fewer levels of privacy, and 2 draws of noise each")
    demo.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not options.no_plot:
        path = options.output
        if path.suffix.lower() not in _PICTURES:
            raise UsageError(f"--output must end in one of {', '.join(_PICTURES)}, got {path}")
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise UsageError(f"--output cannot be written: {path} is a folder, or its folder does not exist")
        import_extra("matplotlib", "cli")
    digits = load_digits()
    (n, d), train, test = digits.rows.shape, len(digits.train), len(digits.test)
    repetitions = options.repetitions or (2 if options.quick else 7)
    print(_INTRODUCTION.format(version=dpgep.__version__, n=n, d=d, train=train, test=test))
    start = time.perf_counter()
    report = run(digits, (1.0, 10.0) if options.quick else EPSILONS, repetitions)
    fits, seconds = 2 * repetitions * (len(report.lines) - 1) + 2, time.perf_counter() - start
    facts = {"repetitions": repetitions, "fits": fits, "seconds": seconds, "delta": DELTA, "components": COMPONENTS}
    print(f"{_table(report)}\n{_EXPLANATION.format(**facts)}")
    if not options.no_plot:
        draw(report, digits, options.output)
        print(f"\nPicture: {options.output}")
    print(_NEXT)
    return 0


def _table(report: Report) -> str:
    *private, exact = report.lines
    rows = [
        (f"{line.epsilon:g}", _cell(line.accuracy, 3, line.fda_lost), _cell(line.subspace_error, 2, line.pca_lost))
        for line in private
    ]
    rows.append(("inf", f"{exact.accuracy[0]:.3f}    not private", f"{0:.2f}    not private"))
    rows.append(("random", _cell(report.random_accuracy, 3, 0.0), f"{report.random_subspace_error:.2f}    expected"))
    head = ("", f"FDA, {exact.fda.n_components} directions", f"PCA, {COMPONENTS} components")
    lines = [head, ("epsilon", "test accuracy", "subspace error"), ("-" * 66, "", ""), *rows]
    return "\n".join(f"{name:>8}   {first:<24}   {second}".rstrip() for name, first, second in lines)


def _cell(draws: Matrix, digits: int, lost: Any) -> str:
    mark = "~" if np.mean(lost) > 0.5 else " "
    return f"{np.median(draws):.{digits}f} {mark}  {draws.min():.{digits}f} to {draws.max():.{digits}f}"


def load_digits() -> Digits:
    """The digits with rows of unit norm, and a fixed stratified split: three quarters for training."""
    x, y = import_extra("sklearn.datasets", "cli").load_digits(return_X_y=True)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    split = import_extra("sklearn.model_selection", "cli").train_test_split
    return Digits(x, *split(x, y, test_size=0.25, random_state=_SPLIT_SEED, stratify=y))


def run(digits: Digits, epsilons: Sequence[float] = EPSILONS, repetitions: int = 7) -> Report:
    """Fit FDA and PCA `repetitions` times at each epsilon, and once without noise."""
    exact = _fit_pca(digits, math.inf)[0].components
    lines = [_line(digits, exact, epsilon, repetitions) for epsilon in epsilons]
    lines.append(_line(digits, exact, math.inf, 1))
    d, k, rng = digits.rows.shape[1], lines[-1].fda.n_components, np.random.default_rng(_SPLIT_SEED)
    directions = [np.linalg.qr(rng.standard_normal((d, k)))[0] for _ in range(repetitions)]
    random_accuracy = [_accuracy(digits, digits.train @ q, digits.test @ q) for q in directions]
    # E |P Q|_F^2 = k k/d for a uniformly random subspace
    return Report(lines, np.array(random_accuracy), COMPONENTS * (1 - COMPONENTS / d))


def subspace_error(components: Matrix, reference: Matrix) -> float:
    """Sum of the squared sines of the principal angles between the spans of two sets of K rows: 0 to K."""
    return float(np.sum(np.sin(scipy.linalg.subspace_angles(components.T, reference.T)) ** 2))


def draw(report: Report, digits: Digits, path: Path) -> None:
    """Write the picture: both figures against epsilon, and the test digits on two FDA directions, private and not."""
    figure = import_extra("matplotlib.figure", "cli").Figure(figsize=(10, 8.2), layout="constrained")
    axes = figure.subplots(2, 2, gridspec_kw={"height_ratios": [0.8, 1.0]})
    *private, exact = report.lines
    repetitions, epsilons = len(report.random_accuracy), [line.epsilon for line in private]
    accuracy = "accuracy", np.median(report.random_accuracy), "FDA: test accuracy", plot.BLUE
    error = "subspace_error", report.random_subspace_error, f"PCA: subspace error, 0 to {COMPONENTS}", plot.VERMILION
    for ax, (name, baseline, ylabel, color) in zip(axes[0], (accuracy, error), strict=True):
        draws = np.array([getattr(line, name) for line in private])
        plot.privacy_curve(
            epsilons, np.median(draws, axis=1), low=draws.min(axis=1), high=draws.max(axis=1),
            not_private=getattr(exact, name)[0], baseline=float(baseline), baseline_label="random directions",
            ylabel=ylabel, color=color, ax=ax,
        )  # fmt: skip
    pictured = min(private, key=lambda line: abs(math.log(line.epsilon / PICTURED)))
    scores = [line.fda.transform(digits.test)[:, :2] for line in (pictured, exact)]
    points, reference = ((each - each.mean(axis=0)) / each.std(axis=0) for each in scores)
    turned = points @ scipy.linalg.orthogonal_procrustes(points, reference)[0]
    levels = {f"ε = {pictured.epsilon:g}, turned to match": turned, "not private": reference}
    for ax, (level, shown) in zip(axes[1], levels.items(), strict=True):
        title = f"test digits on the first two FDA directions, {level}"
        plot.projection(shown, digits.test_labels, title=title, axis_name="discriminant", ax=ax)
    figure.get_layout_engine().set(h_pad=0.12, w_pad=0.1)
    title = f"What privacy costs: handwritten digits, δ = {DELTA:g}, median and range over {repetitions} draws"
    figure.suptitle(title, fontsize="large")
    figure.savefig(path, dpi=150)


def _line(digits: Digits, exact: Matrix, epsilon: float, repetitions: int) -> Line:
    draws = []
    for _ in range(repetitions):
        fda, fda_lost = _fit(dpgep.fda(digits.train, digits.train_labels, classes=range(10), bound=1.0), epsilon, None)
        pca, pca_lost = _fit_pca(digits, epsilon)
        accuracy = _accuracy(digits, fda.transform(digits.train), fda.transform(digits.test))
        draws.append((accuracy, subspace_error(pca.components, exact), fda_lost, pca_lost))
    accuracies, errors, of_fda, of_pca = np.array(draws, dtype=float).T
    return Line(epsilon, accuracies, errors, of_fda, of_pca, fda)


def _fit_pca(digits: Digits, epsilon: float) -> tuple[dpgep.Solution, bool]:
    return _fit(dpgep.pca(digits.rows, center=False, bound=1.0), epsilon, COMPONENTS)


def _fit(problem: Any, epsilon: float, n_components: int | None) -> tuple[dpgep.Solution, bool]:
    """The solution, and whether a component is lost in noise (shown in the table instead of a warning)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpgep.errors.AccuracyWarning)
        solution = dpgep.solve(problem, epsilon=epsilon, delta=DELTA, n_components=n_components)
        return solution, any(solution.diagnostics.lost)


def _accuracy(digits: Digits, train: Matrix, test: Matrix) -> float:
    svm = import_extra("sklearn.svm", "cli").LinearSVC(dual=False)
    scale = train.std(axis=0)
    return float(svm.fit(train / scale, digits.train_labels).score(test / scale, digits.test_labels))
