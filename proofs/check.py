#!/usr/bin/env python3
"""Check every proof in this folder with Coq, and that each of its constants cannot be 1 % smaller.

    python3 proofs/check.py

needs `coqc` (Debian: apt-get install coq), and writes nothing into this folder. Three things must hold.

1. All files compile, and no theorem assumes more than Coq's own axioms of the real numbers.
2. With 99/100 times a constant, its file no longer compiles: one run for each constant.
3. With 100/100 times all constants, it does: what is refused in 2 is the number.

Constants are the definitions between "(* constants" and "(* end *)". `Constants` reads them, and computes them exactly:
tests/project/test_proofs.py compares them with what the program charges.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
FIRST = ("Vectors", "Views", "Products")
_DEFINITION = re.compile(r"^Definition (\w+)((?: \([\w ]+ : R\))*) : R :=\s*(.*?)\.$", re.MULTILINE | re.DOTALL)
# Of real numbers in Coq's library; ClassicalDedekindReals is how it constructs them.
_AXIOMS = {"sig_forall_dec", "sig_not_dec", "functional_extensionality_dep"}


class Constants:
    """The constants of all files by name, as functions of fractions."""

    def __getitem__(self, name: str) -> Callable[..., Fraction]:
        arguments, body = self._definitions[name]

        def value(*given: Any) -> Fraction:
            assert len(given) == len(arguments), name
            known = dict(zip(arguments, map(Fraction, given), strict=True))
            return _Expression(body, known, self, {each: len(a) for each, (a, _) in self._definitions.items()}).value()

        return value

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """File: its constants."""
        found = {path.stem: [name for name, *_ in _DEFINITION.findall(_block(path.read_text()))] for path in _files()}
        return {file: names for file, names in found.items() if names}

    @cached_property
    def _definitions(self) -> dict[str, tuple[list[str], str]]:
        return {
            name: ([each for group in re.findall(r"\(([\w ]+) : R\)", arguments) for each in group.split()], body)
            for path in _files()
            for name, arguments, body in _DEFINITION.findall(path.read_text())
        }


class _Expression:
    """Sums, products, quotients, powers, Rmin, and definitions with their arguments."""

    def __init__(self, text: str, known: dict[str, Fraction], constants: Constants, arity: dict[str, int]) -> None:
        self._tokens = re.findall(r"\w+|[-+*/^()]", text)
        self._known, self._constants, self._arity = known, constants, {**arity, "Rmin": 2}

    def value(self) -> Fraction:
        total = self._product()
        while self._next() in ("+", "-"):
            total = total + self._product() if self._take() == "+" else total - self._product()
        return total

    def _product(self) -> Fraction:
        total = self._power()
        while self._next() in ("*", "/"):
            total = total * self._power() if self._take() == "*" else total / self._power()
        return total

    def _power(self) -> Fraction:
        base = self._applied()
        if self._next() == "^":
            self._take()
            return base ** int(self._take())
        return base

    def _applied(self) -> Fraction:
        name = self._next()
        if name in self._known or name not in self._arity:
            return self._atom()
        arguments = [self._atom() for _ in range(self._arity[self._take()])]
        return min(arguments) if name == "Rmin" else self._constants[name](*arguments)

    def _atom(self) -> Fraction:
        token = self._take()
        if token == "(":
            found = self.value()
            assert self._take() == ")"
            return found
        return self._known[token] if token in self._known else Fraction(int(token))

    def _next(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def _take(self) -> str:
        return self._tokens.pop(0)


def _files() -> list[Path]:
    return sorted(
        FOLDER.glob("*.v"), key=lambda path: (FIRST.index(path.stem) if path.stem in FIRST else len(FIRST), path.stem)
    )


def _block(text: str) -> str:
    return "".join(re.findall(r"^\(\* constants.*?^\(\* end \*\)$", text, flags=re.MULTILINE | re.DOTALL))


def scaled(text: str, factor: str, only: str | None = None) -> str:
    """A file with ``factor`` times one of its constants, or all of them."""
    block = _block(text)

    def planted(found: re.Match[str]) -> str:
        name, arguments, body = found.groups()
        return f"Definition {name}{arguments} : R := {factor} * ({body})." if only in (None, name) else found[0]

    changed = _DEFINITION.sub(planted, block)
    assert changed != block
    return text.replace(block, changed)


def _compiles(folder: Path, path: Path) -> tuple[bool, str]:
    ran = subprocess.run(
        ["coqc", "-q", "-Q", str(folder), "Proofs", str(path)], capture_output=True, text=True, cwd=path.parent
    )
    return ran.returncode == 0, ran.stdout + ran.stderr


def _assumed(folder: Path) -> set[str]:
    """What all theorems assume."""
    lines = []
    for path in _files():
        lines.append(f"From Proofs Require {path.stem}.")
        lines += [
            f"Print Assumptions {path.stem}.{name}."
            for name in re.findall(r"^Theorem (\w+)", path.read_text(), re.MULTILINE)
        ]
    asked = folder / "Assumptions.v"
    asked.write_text("\n".join(lines))
    compiled, printed = _compiles(folder, asked)
    assert compiled, printed
    return {name.rpartition(".")[2] for name in re.findall(r"^([\w.]+)\s*:", printed, re.MULTILINE)} - {"Axioms"}


def failures() -> Iterator[str]:
    """What does not hold. Prints what does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in _files():
            shutil.copy(path, folder)
            compiled, printed = _compiles(folder, folder / path.name)
            print(f"{path.name}: {len(re.findall('^(?:Theorem|Lemma) ', path.read_text(), re.MULTILINE))} statements")
            if not compiled:
                yield f"{path.name}: {printed}"
                return
        if more := _assumed(folder) - _AXIOMS:
            yield f"theorems assume {sorted(more)}"
        apart = folder / "planted"
        apart.mkdir()
        for file, constants in Constants().names.items():
            text, planted = (FOLDER / f"{file}.v").read_text(), apart / f"{file}.v"
            planted.write_text(scaled(text, "100 / 100"))
            if not (result := _compiles(folder, planted))[0]:
                yield f"{file}.v with 100/100 of its constants: {result[1]}"
            for constant in constants:
                planted.write_text(scaled(text, "99 / 100", constant))
                compiled, printed = _compiles(folder, planted)
                if compiled or "Syntax error" in printed:
                    yield f"{file}.v compiles with 99/100 of {constant}, or is no longer Coq: {printed}"
                else:
                    print(f"{file}.v, 99/100 of {constant}: refused, {' '.join(printed.split())[-60:]}")


if __name__ == "__main__":
    found = list(failures())
    print("\n".join(found) or "all hold")
    sys.exit(bool(found))
