"""Properties of the code itself: public names, one version, layers, and that no method can reach a row."""

import ast
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpgep

PACKAGE = Path(dpgep.__file__).parent
LAYERS = ["problems", "privacy", "methods"]  # data -> problem -> curator -> method


def imports_of(path: Path) -> set[str]:
    """Dotted names imported anywhere in a file, from-imports with the name appended."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def test_public_names_are_listed_documented_and_sorted() -> None:
    assert dpgep.__all__ == sorted(dpgep.__all__)
    for name in dpgep.__all__:
        assert inspect.getdoc(getattr(dpgep, name)), f"{name} has no docstring"


def test_one_version() -> None:
    assert dpgep.__version__ == importlib.metadata.version("dpgep") == dpgep.build_info()["version"]


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_imports_to_its_right(layer: str) -> None:
    forbidden = [f"dpgep.{right}" for right in [*LAYERS[LAYERS.index(layer) + 1 :], "solve", "solution"]]
    for path in (PACKAGE / layer).rglob("*.py"):
        for name in imports_of(path):
            assert not any(name == f or name.startswith(f + ".") for f in forbidden), f"{path.name} imports {name}"


def test_methods_know_no_problem_and_no_kernel_of_rows() -> None:
    for path in (PACKAGE / "methods").rglob("*.py"):
        for name in imports_of(path):
            assert not name.startswith("dpgep.problems"), f"{path.name} imports {name}"
        text = path.read_text()
        assert not re.search(r"\._problem|\.rows\b|moment_matrix|clip_rows", text), f"{path.name} reaches for data"


def test_only_the_curator_holds_a_problem_and_noise() -> None:
    for path in PACKAGE.rglob("*.py"):
        draws = re.search(r"add_(exact_)?(symmetric_)?noise|noise_times|exact_normal", path.read_text())
        if draws and path.name != "reference.py":
            assert path.name == "curator.py", f"{path.name} draws noise"


def test_import_leaves_heavy_packages_alone() -> None:
    heavy = ["scipy.stats", "scipy.optimize", "dp_accounting", "sklearn", "matplotlib", "pandas"]
    code = f"import dpgep, sys; print([m for m in {heavy!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_a_method_computes_from_the_curators_answer_alone() -> None:
    """Leak test: with every answer of the curator replaced by a constant, the output must not depend on the data."""
    import numpy as np

    from dpgep._dispatch import core
    from dpgep.methods import METHODS
    from dpgep.privacy.curator import Curator
    from dpgep.privacy.ledger import Ledger

    rng = np.random.default_rng(0)
    answers = {}
    for name in METHODS:
        outputs = []
        for scale in (1.0, 3.0):
            problem = dpgep.fda(rng.standard_normal((40, 3)) * scale, rng.integers(0, 2, 40), classes=[0, 1], bound=9.0)
            curator = Curator(problem, Ledger(np.inf), core.NoiseStream())
            constant = answers.setdefault(name, Curator(problem, Ledger(np.inf), core.NoiseStream()).release())
            frozen = type(constant)(
                **{key: value.copy() if hasattr(value, "copy") else value for key, value in vars(constant).items()}
            )
            curator.release = lambda frozen=frozen: frozen  # type: ignore[method-assign]
            outputs.append(METHODS[name](curator, 1))
        np.testing.assert_array_equal(outputs[0].components, outputs[1].components)
        np.testing.assert_array_equal(outputs[0].diagnostics.spectrum, outputs[1].diagnostics.spectrum)
