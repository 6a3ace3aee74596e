"""``dpgep demo``: what privacy costs, on real data: a table and a picture."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import dpgep
from dpgep._optional import import_extra
from dpgep.cli.command import Commands, positive

if TYPE_CHECKING:
    from dpgep.demo import Report, Spread

_PICTURES = (".pdf", ".png", ".svg")


def add(commands: Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="private FDA and PCA of handwritten digits: a table and a picture",
        description="Fits private FDA and PCA to scikit-learn's handwritten digits at several levels of privacy, "
        "prints the cost in accuracy, and plots it. Nothing is downloaded.",
    )
    demo.add_argument(
        "--output", type=Path, default=Path("dpgep_demo.png"), metavar="FILE",
        help="file of the picture: .png, .pdf or .svg (default: %(default)s)",
    )  # fmt: skip
    demo.add_argument("--no-plot", action="store_true", help="print only the table")
    demo.add_argument(
        "--repetitions", type=positive, default=None, metavar="N", help="draws of noise per epsilon (default: 7)"
    )
    demo.add_argument("--quick", action="store_true", help="fewer levels of privacy, and 2 draws of noise each")
    demo.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from dpgep import demo

    if not options.no_plot:
        problem = _unwritable(options.output)
        if problem:
            print(f"dpgep demo: {problem}", file=sys.stderr)
            return 2
        import_extra("matplotlib", "cli")
    digits = demo.load_digits()
    epsilons = (1.0, 10.0) if options.quick else demo.EPSILONS
    repetitions = options.repetitions or (2 if options.quick else 7)
    print(_introduction(digits.rows.shape, len(digits.train), len(digits.test)))
    start = time.perf_counter()
    report = demo.run(digits, epsilons, repetitions)
    print(_table(report))
    print(_explanation(report, time.perf_counter() - start))
    if not options.no_plot:
        demo.draw(report, options.output)
        print(f"\nPicture: {options.output}")
    print(_NEXT)
    return 0


def _unwritable(path: Path) -> str | None:
    if path.suffix.lower() not in _PICTURES:
        return f"--output must end in one of {', '.join(_PICTURES)}, got {path}"
    if path.is_dir() or not path.absolute().parent.is_dir():
        return f"--output cannot be written: {path} is a folder, or its folder does not exist"
    return None


def _introduction(shape: tuple[int, ...], train: int, test: int) -> str:
    return f"""\
dpgep {dpgep.__version__}: what does privacy cost? {shape[0]} handwritten digits, {shape[1]} pixels each, unit rows.

FDA  private discriminant directions from {train} labelled digits; then a linear SVM,
     trained on the projected training rows, classifies {test} other digits.
PCA  private principal components of all {shape[0]} digits.
"""


def _table(report: Report) -> str:
    from dpgep.demo import COMPONENTS

    rows = [
        (f"{line.epsilon:g}", _cell(line.accuracy, 3, line.fda_lost), _cell(line.subspace_error, 2, line.pca_lost))
        for line in report.lines
        if math.isfinite(line.epsilon)
    ]
    exact = report.lines[-1]
    rows.append(("inf", f"{exact.accuracy.median:.3f}    not private", f"{0:.2f}    not private"))
    rows.append(("random", _cell(report.random_accuracy, 3, 0.0), f"{report.random_subspace_error:.2f}    expected"))
    k = report.lines[-1].fda.n_components
    lines = [
        f"{'':>8}   {f'FDA, {k} directions':<24}   PCA, {COMPONENTS} components",
        f"{'epsilon':>8}   {'test accuracy':<24}   subspace error",
        "-" * 66,
        *(f"{name:>8}   {first:<24}   {second}".rstrip() for name, first, second in rows),
    ]
    return "\n".join(lines)


def _cell(spread: Spread, digits: int, lost: float) -> str:
    mark = "~" if lost > 0.5 else " "
    return f"{spread.median:.{digits}f} {mark}  {spread.low:.{digits}f} to {spread.high:.{digits}f}"


def _explanation(report: Report, seconds: float) -> str:
    from dpgep.demo import COMPONENTS, DELTA

    fits = 2 * report.repetitions * (len(report.lines) - 1) + 2
    return f"""
Median, then the range, of {report.repetitions} draws of the noise; {fits} fits and their SVMs in {seconds:.1f} s.
epsilon         smaller is more private; delta = {DELTA:g}. The guarantee is for each fit alone:
                the costs of several published fits of the same people add up.
test accuracy   only the projection is private: the SVM is trained on the projected training
                rows without noise. Private labels would need a private classifier as well.
subspace error  squared sines of the angles to the subspace without noise, summed:
                0 is the same subspace, {COMPONENTS} is orthogonal to it.
random          directions drawn without using the data: the baseline at no cost in privacy.
~               in most draws the fit warned that its components, taken together, are mostly
                noise (the leading ones may still be useful). This is estimated from released
                values, at no cost in privacy."""


_NEXT = """
Next, with your own data (a table with one row per person; units may differ, no bound need be known):

    import dpgep
    problem = dpgep.pca(people, standardize=True)
    solution = dpgep.solve(problem, epsilon=1.0, delta=1e-6, n_components=2)
    print(solution)          # the guarantee, the noise, the expected error of each component

More: README.md and docs/your-table.md in the repository; dpgep demo --help for options."""
