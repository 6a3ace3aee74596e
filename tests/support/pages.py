"""Pages of documentation: their code, run in order, and what a page shows beside what its code prints.

A block marked ``text`` shows what the block before it prints. ``PYTHONPATH=tests python
tests/support/pages.py`` mends the pages that do not.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import noise_from

from dpgep import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES += sorted(DOCS.rglob("*.md"))
# Their code prints the same whatever the noise: it draws none.
WITHOUT_NOISE = ("planning.md", "your-own-method.md")


class Block(NamedTuple):
    line: int  # of the page, where its text starts
    language: str
    text: str


class Output(NamedTuple):
    line: int
    shown: str
    printed: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page in its order, and those in comments, which run without being shown."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^(?:```|<!-- )(\w*)\n(.*?)^(?:```|-->)$", text, flags=re.MULTILINE | re.DOTALL)
    return [Block(text.count("\n", 0, match.start(2)) + 1, *match.groups()) for match in found]


def run(page: Path, folder: Path, noise: str = "") -> list[Output]:
    """Run a page's blocks of Python in a folder; on the page of the command line its commands, too.

    The noise follows from the page's name (and ``noise``, for another run), as in the pictures of the pages: unlike a
    reader's, it is the same in every run.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    outputs, printed = [], None
    with pytest.MonkeyPatch.context() as patch, noise_from(page.name + noise) as streams:
        patch.chdir(folder)
        patch.setattr(tempfile, "tempdir", str(folder))  # a page leaves nothing behind
        patch.setattr("sys.argv", ["page.py"])
        for line, language, text in blocks(page):
            if language == "text":
                assert printed is not None, f"{page.name}:{line} shows the output of no block"
                outputs.append(Output(line, text, printed))
            is_command = language == "bash" and page.name == "command-line.md"
            printed = None
            if language != "python" and not is_command:
                continue
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                if is_command:
                    _run_commands(text)
                else:  # leading newlines make the line numbers of a failure those of the page
                    exec(compile("\n" * (line - 1) + text, str(page), "exec", dont_inherit=True), namespace)
            # the local model tells that its noise has a seed, which a reader's has not
            printed = stream.getvalue().replace("; SEEDED: not private to anyone who knows the seed", "")
        assert page.name not in WITHOUT_NOISE or next(streams) == 0, f"{page.name} draws noise"
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")  # Matplotlib warns of more than twenty open ones
    return outputs


def _run_commands(text: str) -> None:
    for command in text.replace("\\\n", "").splitlines():
        program, *words = shlex.split(command, comments=True)
        if program == "dpgep":
            assert cli.main(words) == 0, command


NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.?\d*(?:e[-+]?\d+)?(?![\w])")


def agree(shown: str, printed: str) -> bool:
    """Whether words are the same, and numbers but for their last digits: kernels of BLAS differ there.

    ``...`` stands for any text that is left out: the rest of a long output, or what the machine decides.
    """
    parts = [_tokens(part) for part in shown.split("...")]
    tokens, at = _tokens(printed), 0
    for i, part in enumerate(parts):
        ends = [len(tokens) - len(part)] if i == len(parts) - 1 else range(at, len(tokens) - len(part) + 1)
        starts = [start for start in ends if start >= at and _same(part, tokens[start : start + len(part)])]
        if not starts or (i == 0 and starts[0] != 0):
            return False
        at = starts[0] + len(part)
    return True


def _tokens(text: str) -> list[str]:
    """Numbers, and what is between them, without spaces."""
    return re.findall(rf"{NUMBER.pattern}|[^\W\d]\w*|\S", text)


def _same(some: list[str], others: list[str]) -> bool:
    return len(some) == len(others) and all(a == b or _close(a, b) for a, b in zip(some, others, strict=True))


def _close(a: str, b: str) -> bool:
    if not (NUMBER.fullmatch(a) and NUMBER.fullmatch(b)) or (a.isdigit() and b.isdigit()):
        return False
    return abs(float(a) - float(b)) <= 1.001 * min(_tolerance(a), _tolerance(b))


def _tolerance(number: str) -> float:
    """A unit of the last digit, between 1e-6 and 1e-3 of the number: all 17 digits are no claim, two of them are."""
    mantissa, _, exponent = number.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return min(max(unit, 1e-6 * abs(float(number))), 1e-3 * abs(float(number)))


def mend(page: Path) -> None:
    """Replace what a page shows by what its code prints, where they differ."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [output for output in run(page, Path(folder)) if not agree(output.shown, output.printed)]
    text = page.read_text(encoding="utf-8")
    for line, shown, printed in outputs:
        if "..." in shown:
            print(f"{page.relative_to(ROOT)}:{line} shows a part of\n{printed}")
            continue
        lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
        text = text.replace(f"```text\n{shown}```\n", "```text\n" + "\n".join(lines) + "\n```\n")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import matplotlib

    matplotlib.use("Agg")
    for page in PAGES:
        if any(block.language == "text" for block in blocks(page)):
            mend(page)
