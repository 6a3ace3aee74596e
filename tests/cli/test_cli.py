"""The command ``dpgep``, as a user meets it: what it prints, what it writes, and how it fails."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpgep
from dpgep import cli
from dpgep.cli import demo


@pytest.fixture(scope="module")
def digits() -> demo.Digits:
    return demo.load_digits()


@pytest.fixture(scope="module")
def report(digits: demo.Digits) -> demo.Report:
    return demo.run(digits, (1e-3, 1.0, 10.0), repetitions=3)


def test_demo_prints_the_table_and_writes_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib.image import imread

    picture = tmp_path / "demo.png"
    assert cli.main(["demo", "--quick", "--output", str(picture)]) == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^ +(1|10|inf|random)   (\d\.\d{3}) .* (\d\.\d{2}) ", out, flags=re.MULTILINE)
    assert [name for name, _, _ in rows] == ["1", "10", "inf", "random"]
    accuracy = {name: float(value) for name, value, _ in rows}
    error = {name: float(value) for name, _, value in rows}
    assert accuracy["random"] < accuracy["10"] <= accuracy["inf"] + 0.02
    assert error["inf"] == 0 < error["10"] < error["1"] < error["random"]
    assert "only the projection is private" in out
    assert str(picture) in out
    image = imread(picture)
    assert image.shape[0] > 800
    assert image.shape[1] > 1000
    assert len(np.unique((image[..., :3] * 255).astype(np.uint8).reshape(-1, 3), axis=0)) > 50  # not a blank page


def test_no_plot_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--quick", "--no-plot", "--repetitions", "1"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert "Picture" not in capsys.readouterr().out


def test_figure_without_noise_is_scikit_learns(digits: demo.Digits, report: demo.Report) -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.svm import LinearSVC

    lda = LinearDiscriminantAnalysis().fit(digits.train, digits.train_labels)
    train, test = lda.transform(digits.train), lda.transform(digits.test)
    scale = train.std(axis=0)
    expected = LinearSVC(dual=False).fit(train / scale, digits.train_labels).score(test / scale, digits.test_labels)
    assert math.isinf(report.lines[-1].epsilon)
    assert report.lines[-1].accuracy[0] == pytest.approx(expected, abs=1 / len(digits.test))
    assert expected > 0.95


def test_privacy_costs_what_it_should(report: demo.Report) -> None:
    """Noise is random here, and medians of 3 are compared.

    Means and deviations of single draws, over 100 of them: accuracy 0.883 and 0.017, error 1.08 and 0.22 at epsilon =
    1; 0.948 and 0.0065, 0.0195 and 0.0023 at 10; error 4.59 and 0.10 at 0.001. Every limit lies at least 6 deviations
    of a single draw away; a median of 3 fails with a probability below 1e-9.
    """
    drowned, one, ten, exact = report.lines
    assert np.median(one.accuracy) > 0.78
    assert np.median(ten.accuracy) > 0.9
    assert np.median(one.subspace_error) < 2.6
    assert np.median(ten.subspace_error) < 0.1
    assert exact.subspace_error[0] < 1e-12
    assert np.median(drowned.subspace_error) > 3.5
    assert report.random_subspace_error == pytest.approx(5 * 59 / 64)


def test_drowned_fits_are_marked_and_nothing_else(report: demo.Report) -> None:
    """The estimate for FDA, seen over 40 draws: 8.99 of 9, deviation 0.01, at 0.001; 3.2, deviation 0.15, at 10."""
    drowned, _, ten, exact = report.lines
    assert drowned.fda_lost.all()
    assert not np.concatenate([ten.fda_lost, ten.pca_lost, exact.fda_lost, exact.pca_lost]).any()
    marked = {line.split()[0]: "~" in line for line in demo._table(report).splitlines()[3:]}
    assert marked["0.001"]
    assert not marked["10"]
    assert not marked["inf"]
    assert not marked["random"]


def test_training_and_test_rows_are_unit_and_apart(digits: demo.Digits) -> None:
    assert np.linalg.norm(digits.rows, axis=1) == pytest.approx(1)
    assert len(digits.train) + len(digits.test) == len(digits.rows) == 1797
    together = np.vstack([digits.train, digits.test])
    assert sorted(map(bytes, together)) == sorted(map(bytes, digits.rows))


def test_subspace_error_knows_its_extremes() -> None:
    e = np.eye(5)
    assert demo.subspace_error(e[:2], e[1::-1]) == pytest.approx(0, abs=1e-15)
    assert demo.subspace_error(e[:2], e[2:4]) == pytest.approx(2)
    turned = [[math.cos(0.3), math.sin(0.3), 0, 0, 0]]
    assert demo.subspace_error(np.array(turned), e[:1]) == pytest.approx(math.sin(0.3) ** 2)


@pytest.mark.deep
def test_demo_works_in_a_fresh_process_with_warnings_as_errors(tmp_path: Path) -> None:
    warnings = ["-W", "error"]
    for module in ("_fontconfig_pattern", "_mathtext"):  # old ones call what a new pyparsing deprecates
        warnings += ["-W", f"ignore::DeprecationWarning:matplotlib.{module}"]
    command = [sys.executable, *warnings, "-m", "dpgep", "demo", "--quick", "--repetitions", "1"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "dpgep_demo.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize(("package", "options"), [("sklearn", ["--no-plot"]), ("matplotlib", [])])
def test_missing_extra_is_named(
    package: str,
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Absent(package), *sys.meta_path])
    assert cli.main(["demo", *options]) == 1
    captured = capsys.readouterr()
    assert f"{package} is not installed" in captured.err
    assert "pip install 'dpgep[cli]'" in captured.err
    assert captured.out == ""  # before any work was done


class _Absent:
    """An import hook under which a package is not installed."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {self.package!r}", name=self.package)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("picture.bmp", "must end in one of .pdf, .png, .svg, got picture.bmp"),
        ("no/such/folder/picture.png", "cannot be written"),
    ],
)
def test_bad_output_fails_before_any_work(output: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--output", output]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("count", ["0", "-3", "many"])
def test_repetitions_must_be_positive(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", "--repetitions", count])
    assert "--repetitions" in capsys.readouterr().err


def test_version_info_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"dpgep {dpgep.__version__}\n"
    assert cli.main(["info"]) == 0
    shown = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    assert {key: value.strip() for key, value in shown.items()} == dpgep.build_info()
    assert cli.main([]) == 0
    assert "demo" in capsys.readouterr().out
