"""The stub of the compiled core against the core: what type checkers read is what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import dpgep
from dpgep import _cpu
from dpgep._dispatch import core

PACKAGE = Path(dpgep.__file__).parent
PLAIN_TYPES = {"None", "bool", "bytes", "float", "int"}


def stub(name: str) -> list[ast.stmt]:
    return ast.parse((PACKAGE / f"{name}.pyi").read_text(encoding="utf-8")).body


CLASSES = {node.name: node for node in stub("_core") if isinstance(node, ast.ClassDef)}


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def methods_of(body: list[ast.stmt]) -> dict[str, list[ast.FunctionDef]]:
    """Functions by name, overloads together."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and not is_property(node):
            found.setdefault(node.name, []).append(node)
    return found


def signatures(function: Any) -> list[ast.FunctionDef]:
    """pybind11 writes them into the first line of a docstring or, of overloads, into numbered lines."""
    lines = function.__doc__.splitlines()
    if "Overloaded function." in lines:
        lines = [line.partition(". ")[2] for line in lines if re.match(r"\d+\. \w+\(", line)]
    else:
        lines = lines[:1]
    parsed = [ast.parse(f"def {line}: ...").body[0] for line in lines]
    return [node for node in parsed if isinstance(node, ast.FunctionDef)]


def arguments(node: ast.FunctionDef) -> str:
    """Names, order, what is keyword-only, and defaults; not the types."""
    for argument in [*node.args.args, *node.args.kwonlyargs]:
        argument.annotation = None
    return ast.unparse(node.args)


def assert_same_functions(body: list[ast.stmt], namespace: Any) -> None:
    for name, declared in methods_of(body).items():
        built = signatures(getattr(namespace, name))
        assert [arguments(node) for node in declared] == [arguments(node) for node in built], name
        for ours, theirs in zip(declared, built, strict=True):
            results = [ast.unparse(node.returns) for node in (ours, theirs) if node.returns is not None]
            assert len(results) == 2, name
            if set(results) & PLAIN_TYPES:
                assert results[0] == results[1], name


def public(namespace: Any) -> set[str]:
    return {name for name in vars(namespace) if not name.startswith("_")}


def test_the_stub_names_what_the_module_has() -> None:
    annotated = {ast.unparse(node.target) for node in stub("_core") if isinstance(node, ast.AnnAssign)}
    assert public(core) == ({*methods_of(stub("_core")), *CLASSES} | annotated) - {"__version__"}


def test_functions_have_the_arguments_of_the_stub() -> None:
    assert_same_functions(stub("_core"), core)


@pytest.mark.entropy  # elsewhere a function stands for the class of streams
@pytest.mark.parametrize("name", CLASSES)
def test_classes_have_the_members_of_the_stub(name: str) -> None:
    body, built = CLASSES[name].body, getattr(core, name)
    assert_same_functions(body, built)
    properties = {node.name for node in body if isinstance(node, ast.FunctionDef) and is_property(node)}
    assert properties == {member for member in public(built) if isinstance(vars(built)[member], property)}
    assert public(built) == properties | set(methods_of(body)) - {"__init__"}


def test_the_stub_of_the_processor_names_what_its_module_has() -> None:
    assert public(_cpu) == set(methods_of(stub("_cpu")))
