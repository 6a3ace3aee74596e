"""Properties of the code itself: public names, one version, layers, and that no method can reach a row."""

import ast
import graphlib
import importlib
import importlib.metadata
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from every_run import PCA_ALONE, SECOND_MOMENT_ALONE, runs

import dpgep

PACKAGE = Path(dpgep.__file__).parent
LAYERS = ["models", "sources", "data", "problems", "privacy", "methods"]  # data -> problem -> curator -> method


@cache
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


def test_completion_shows_public_names_alone() -> None:
    assert set(dir(dpgep)) == {*dpgep.__all__, "masked", "sklearn", "__version__"}  # the former need extras
    assert len(dir(dpgep)) <= 30
    with pytest.raises(AttributeError, match="has no attribute 'pcaa'"):
        dpgep.pcaa  # type: ignore[attr-defined]  # noqa: B018


def test_names_that_are_imported_when_asked_for_are_those_that_type_checkers_see() -> None:
    """A name, or a module (which stands for itself), and where it comes from."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {}
    for node in guarded.body:
        assert isinstance(node, ast.ImportFrom)
        assert node.module is not None
        for alias in node.names:
            seen[alias.name] = alias.name if node.module == "dpgep" else node.module.removeprefix("dpgep.")
    assert seen == dpgep._LAZY
    for name, module in seen.items():
        found = importlib.import_module(f"dpgep.{module}")
        assert getattr(dpgep, name) is (found if name == module else getattr(found, name)), name


def test_a_first_fit_does_without_the_rest() -> None:
    code = (
        "import sys, numpy as np, dpgep; before = set(sys.modules);"
        "problem = dpgep.pca(np.random.default_rng(0).standard_normal((500, 4)), bound=3.0);"
        "dpgep.solve(problem, epsilon=1.0, delta=1e-6, n_components=1);"
        "print(sys.modules.keys() & {f'dpgep.{name}' for name in dpgep._LAZY.values()});"
        "print({name for name in sys.modules.keys() - before if name.startswith('dpgep')});"
        "from dpgep import load, local; import dpgep.masked; print(dpgep.load is load is dpgep.loading.load)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["set()", "set()", "True"]


def test_no_function_has_the_name_of_a_module() -> None:
    """Importing a module binds it to its name in the package."""
    modules = {path.stem for path in PACKAGE.iterdir()}
    assert {name for name in modules & set(dir(dpgep)) if not inspect.ismodule(getattr(dpgep, name))} == set()


def test_help_works_without_the_extras() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None; import dpgep, pydoc; print(pydoc.render_doc(dpgep)); dpgep.sklearn"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "dpgep - Private spectral analysis" in shown.stdout
    assert "AttributeError: dpgep.sklearn: sklearn is not installed: run pip install 'dpgep[sklearn]'" in shown.stderr


def test_the_extra_of_the_command_line_holds_all_that_it_imports() -> None:
    project = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    held = re.search(r'^cli = \["dpgep\[(.*)\]"\]$', project, flags=re.MULTILINE)
    code = "".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "cli").iterdir() if path.suffix == ".py")
    imported = set(re.findall(r'import_extra\([^)]*, "(\w+)"\)', code))
    assert held is not None
    assert {"pandas", "plot"} <= imported <= {"cli", *held[1].split(",")}


def test_one_version() -> None:
    assert dpgep.__version__ == importlib.metadata.version("dpgep") == dpgep.build_info()["version"]
    root = Path(__file__).resolve().parents[2]
    stated = {"CITATION.cff": r"^version: (\S+)$", "CHANGELOG.md": r"^(?:To become |## \[)(\d[^\],\s]*)"}
    for name, form in stated.items():
        newest = re.search(form, (root / name).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert newest is not None, name
        assert newest[1] == dpgep.__version__, name


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_imports_to_its_right(layer: str) -> None:
    forbidden = [f"dpgep.{right}" for right in [*LAYERS[LAYERS.index(layer) + 1 :], "run", "results"]]
    for path in (PACKAGE / layer).rglob("*.py"):
        for name in imports_of(path):
            assert not any(name == f or name.startswith(f + ".") for f in forbidden), f"{path.name} imports {name}"


def test_no_import_leads_back() -> None:
    """Not even one in a function, or for type checkers alone."""
    modules = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    del modules["dpgep"]  # the names of all
    needed = {
        name: {found if found in modules else found.rpartition(".")[0] for found in imports_of(path)} & set(modules)
        for name, path in modules.items()
    }
    graphlib.TopologicalSorter(needed).prepare()  # raises CycleError, which names the modules


def test_models_are_mathematics() -> None:
    """They import nothing that knows rows, lazily neither, and no argument of theirs is data of people."""
    known = ("dpgep._checks.", "dpgep._show.", "dpgep.models.", "dpgep.serialization.")
    people = {"X", "Y", "data", "batch", "dataset", "labels", "problem"}
    for path in (PACKAGE / "models").rglob("*.py"):
        for name in imports_of(path):
            assert not name.startswith("dpgep") or name.startswith(known), f"{path.name} imports {name}"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.arguments):
                taken = {each.arg for each in (*node.posonlyargs, *node.args, *node.kwonlyargs)}
                assert not taken & people, f"{path.name} takes {taken & people}"


def test_methods_know_no_problem_and_no_kernel_of_rows() -> None:
    data = re.compile(r"\._problem|\.rows\b|_moments\(\)|accumulate|clip_rows")
    for path in (PACKAGE / "methods").rglob("*.py"):
        for name in imports_of(path):
            assert not name.startswith(("dpgep.data", "dpgep.problems", "dpgep.sources")), f"{path.name} imports {name}"
        assert not data.search(path.read_text()), f"{path.name} reaches for data"


def test_results_know_released_numbers_alone() -> None:
    """They take models from problems, and reach neither for rows nor, but for products, for who answers about them."""
    names = {"dpgep.data.inputs.named", "dpgep.data.inputs.column_names"}  # of columns, not what is in them
    forbidden = ("dpgep.data", "dpgep.privacy.curator", "dpgep.privacy.curator", "dpgep.run")
    for path in (PACKAGE / "results").rglob("*.py"):
        for name in imports_of(path) - names:
            assert path.name == "matrix_free.py" or not name.startswith(forbidden), f"{path.name} imports {name}"
        assert not re.search(r"\._problem|\.dataset|accumulate|MomentProblem", path.read_text()), path.name


def test_noise_is_drawn_behind_the_curator_alone() -> None:
    """Also products: who could make an oracle without noise could see data."""
    draws = re.compile(
        r"add_exact_(symmetric_)?noise|exact_normal|(PairOracle|SampledProducts)\.of|SymmetricMatrices\("
    )
    mechanisms = {"curator.py", "screening.py", "products.py"}
    mechanisms |= {"noise.py", "clipped_products.py"}
    clients = {"protocol.py"}  # the local model: each client adds the noise to its own report
    for path in PACKAGE.rglob("*.py"):
        if draws.search(path.read_text()):
            allowed = {"privacy": mechanisms, "local": clients}.get(path.parent.name, set())
            assert path.name in allowed, f"{path.name} draws noise"


def test_import_leaves_heavy_packages_alone() -> None:
    heavy = ["scipy.stats", "scipy.special", "scipy.optimize", "dp_accounting", "sklearn", "matplotlib"]
    heavy += ["pandas", "pyarrow", "dask", "polars", "h5py", "zarr", "tqdm", "cryptography", "pyspark"]
    code = f"import sys, dpgep.masked; print(sys.modules.keys() & {set(heavy)!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "options"), runs(5))
def test_a_method_computes_from_the_curators_answers_alone(name: str, options: dict[str, Any]) -> None:
    """Leak test: with every answer of the curator taken from fixed data, the output must not depend on the data."""
    import numpy as np

    from dpgep._dispatch import core
    from dpgep.methods import METHODS
    from dpgep.privacy.curator import Curator
    from dpgep.privacy.ledger import Ledger

    rng = np.random.default_rng(0)
    fixed, outputs = None, []
    for scale in (1.0, 3.0):
        x = rng.standard_normal((40, 5)) * scale
        labels = rng.integers(0, 2, 40)
        problem = (
            dpgep.pca(x, center=False, bound=9.0)
            if name in (*SECOND_MOMENT_ALONE, *PCA_ALONE)
            else dpgep.fda(x, labels, classes=[0, 1], bound=9.0)
        )
        fixed = fixed or problem
        ledgers = [Ledger(2.0, target=(8.0, 1e-3)) for _ in range(2)]
        curator = Curator(problem, ledgers[0], core.NoiseStream(bytes(32)))
        source = Curator(fixed, ledgers[1], core.NoiseStream(bytes(32)))
        curator.answer = source.answer  # type: ignore[method-assign]
        method = METHODS[name]
        outputs.append(method.run(curator, 1, method.options(**options)))
    np.testing.assert_array_equal(outputs[0].components, outputs[1].components)
    np.testing.assert_array_equal(outputs[0].eigenvalues, outputs[1].eigenvalues)
    assert outputs[0].accuracy_warnings == outputs[1].accuracy_warnings
    assert outputs[0].diagnostics.table(outputs[0].eigenvalues) == outputs[1].diagnostics.table(outputs[1].eigenvalues)


def test_a_curator_answers_in_one_place() -> None:
    """So that the leak test covers every query."""
    from dpgep.privacy.curator import Curator

    public = {name for name, value in vars(Curator).items() if callable(value) and not name.startswith("_")}
    assert public == {"answer", "public_generator", "keep_sums"}


def _longest_text(node: ast.AST) -> str:
    """The text that an expression holds as written, without what it formats; of alternatives the longer."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_longest_text(part) for part in node.values if isinstance(part, ast.Constant))
    if isinstance(node, ast.BinOp):
        return _longest_text(node.left) + _longest_text(node.right)
    if isinstance(node, ast.IfExp):
        return max(_longest_text(node.body), _longest_text(node.orelse), key=len)
    return ""


def _messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What is raised, warned of, yielded as a warning, or kept under a name for one of these."""
    for node in ast.walk(tree):
        held: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and re.search(r"(Error|Warning|[wW]arn|error)$", ast.unparse(node.func)):
            held = [*node.args]
        elif isinstance(node, (ast.Assign, ast.Yield)):
            held = [node.value]
        for expression in held:
            if expression is not None:
                yield expression.lineno, _longest_text(expression)


def test_a_message_is_short() -> None:
    """What is wrong with which value, and what to do: within 200 characters."""
    found = {
        (str(path.relative_to(PACKAGE)), line): text
        for path in PACKAGE.rglob("*.py")
        for line, text in _messages(ast.parse(path.read_text(encoding="utf-8")))
        if "\n" not in text
    }
    assert sum(len(text) > 40 for text in found.values()) > 500
    documents = {"reports/guarantee.py"}
    assert {where: text for where, text in found.items() if len(text) > 200 and where[0] not in documents} == {}


# What only hands on what it was given, and what depends on the kind of a problem: no more than there are today.
_FORWARDERS, _KINDS_ASKED = 17, 4


def _only_forwards(function: ast.FunctionDef) -> bool:
    """Whether a function returns an attribute of a part of its object, or calls one function with its own arguments."""
    body = [each for each in function.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    parameters = [each.arg for each in (*function.args.args, *function.args.kwonlyargs)]
    if len(body) != 1 or not isinstance(body[0], (ast.Return, ast.Expr)):
        return False
    value = body[0].value
    if isinstance(value, ast.Attribute):
        return parameters == ["self"] and ast.unparse(value.value).startswith("self.")
    if not isinstance(value, ast.Call) or ast.unparse(value.func).partition(".")[0] in ("np", "math", "core"):
        return False
    given = [ast.unparse(each) for each in (*value.args, *(keyword.value for keyword in value.keywords))]
    return bool(given) and {*given} <= {*parameters} and {*parameters} - {"self", "cls"} <= {*given}


def test_few_functions_only_forward() -> None:
    functions = (
        node
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("__")
    )
    found = [function.name for function in functions if _only_forwards(function)]
    assert len(found) <= _FORWARDERS, sorted(found)


def test_few_places_ask_what_kind_of_problem_there_is() -> None:
    kinds = re.compile(r"isinstance\([^)]*\b(MomentProblem|MatrixProblem)\b")
    places = [place for path in PACKAGE.rglob("*.py") for place in kinds.findall(path.read_text(encoding="utf-8"))]
    assert len(places) <= _KINDS_ASKED


def test_a_release_takes_a_short_way() -> None:
    """No more files, and moves between them, than a dense PCA runs through on one thread."""
    script = [sys.executable, "-W", "ignore", "benchmarks/path_of_a_release.py"]
    root, one_thread = Path(__file__).parents[2], os.environ | {"DPGEP_NUM_THREADS": "1"}
    shown = subprocess.run(script, cwd=root, env=one_thread, capture_output=True, text=True).stdout
    found = re.findall(r"^bound=(.+?): .* in (\d+) files .*?, (\d+) moves", shown, re.MULTILINE)
    most = {"1.0": (18, 90), "'auto'": (22, 145)}
    assert [bound for bound, *_ in found] == list(most)
    for bound, files, moves in found:
        assert (int(files) <= most[bound][0], int(moves) <= most[bound][1]) == (True, True), shown


def test_one_place_spends() -> None:
    """A run, also that of a site of a masked sum; an entry is recorded by a query alone."""
    places = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    outside = {name: text for name, text in places.items() if not name.startswith("privacy/")}
    assert {name for name, text in outside.items() if re.search(r"\.reserve\(", text)} == {"run.py"}
    assert {name for name, text in outside.items() if re.search(r"\.record\((?!\w+, \")", text)} == set()
