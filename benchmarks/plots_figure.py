"""Draw docs/pictures/plots.svg and plots-dark.svg: what the code of docs/plots.md draws, on light and on dark.

    python benchmarks/plots_figure.py [--output FOLDER]

The noise is fresh in every run, so that pictures differ from run to run.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STYLES = {"plots": "default", "plots-dark": "dark_background"}


def draw(path: Path, style: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    page = (ROOT / "docs" / "plots.md").read_text(encoding="utf-8")
    drawn: dict[str, Any] = {}
    small = {"svg.fonttype": "none", "svg.hashsalt": "dpgep", "font.sans-serif": ["DejaVu Sans"]}
    with plt.style.context(style), plt.rc_context(small):
        for block in re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL):
            exec(block, drawn)
        drawn["figure"].savefig(path, metadata={"Date": None})
    # hundredths of a point are enough; lines of their own are not needed
    short = re.sub(r"(\d\.\d\d)\d+", r"\1", path.read_text(encoding="utf-8"))
    path.write_text(re.sub(r"\n\s*", "\n", short), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "pictures", help="folder of the pictures")
    folder = parser.parse_args().output
    for name, style in STYLES.items():
        draw(folder / f"{name}.svg", style)


if __name__ == "__main__":
    main()
