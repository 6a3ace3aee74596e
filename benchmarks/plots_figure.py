"""Draw the pictures of docs/plots.md, on light and on dark, and of other pages of docs/: what their code saves.

    python benchmarks/plots_figure.py [--output FOLDER] [PAGE ...]

Noise comes from keys made of the page's name, so that a picture changes only if the code does.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from dpgep._dispatch import core

DOCS = Path(__file__).resolve().parents[1] / "docs"
STYLES = {"": "default", "-dark": "dark_background"}


@contextlib.contextmanager
def seeded(name: str) -> Iterator[None]:
    """Streams of noise without a key get one made of a name, as in the tests."""
    real, numbers = core.NoiseStream, itertools.count()

    def stream(*key_and_nonce: Any, **transcript: Any) -> core.NoiseStream:
        given = key_and_nonce or (hashlib.sha256(f"{name} {next(numbers)}".encode()).digest(),)
        return real(*given, **transcript)

    with mock.patch.object(core, "NoiseStream", stream):
        yield


def draw(page: Path, pictures: Path, suffix: str = "") -> None:
    """Run a page in a folder of its own, in a style; keep what its blocks save, and the ``figure`` of plots.md."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    small = {"svg.fonttype": "none", "svg.hashsalt": "dpgep", "font.sans-serif": ["DejaVu Sans"]}
    drawn: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, seeded(page.name):
        os.chdir(folder)
        with plt.style.context(STYLES[suffix]), plt.rc_context(small):
            for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL):
                exec(block, drawn)
            if page.stem == "plots":
                drawn["figure"].savefig("plots.svg")
            plt.close("all")
        for path in Path().glob("*.svg"):
            (pictures / f"{path.stem}{suffix}.svg").write_text(smaller(path.read_text("utf-8")), "utf-8")
        os.chdir(DOCS)


def smaller(text: str) -> str:
    """Hundredths of a point are enough in tags; the date, and lines of their own, are not needed."""
    text = re.sub(r"<dc:date>.*?</dc:date>", "", text)
    text = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), text)
    return re.sub(r"\n\s*", "\n", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="names, as hospital; all by default")
    parser.add_argument("--output", type=Path, default=DOCS / "pictures", help="folder of the pictures")
    options = parser.parse_args()
    output, wanted = options.output.resolve(), options.pages
    if not wanted or "plots" in wanted:
        for suffix in STYLES:
            draw(DOCS / "plots.md", output, suffix)
    for page in sorted(DOCS.rglob("*.md")):
        saves = page.stem != "plots" and "savefig(" in page.read_text("utf-8")
        if saves and (not wanted or page.stem in wanted):
            draw(page, output)


if __name__ == "__main__":
    main()
