"""Whether a change made a kernel slower: two builds side by side.

    python benchmarks/check.py BASE HEAD [--rounds 7] [--only NAME] [--json FILE]

BASE and HEAD are revisions. Each is built and installed in an environment of its own; then `kernels.py`, as it stands
here, measures them in processes that alternate. A ratio of medians HEAD/BASE has a 99 % interval from a bootstrap of
the rounds. Exit status 1 if a kernel is slower by a tenth with that confidence: the whole interval lies above 1.1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections import defaultdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
MOST, CONFIDENCE, RESAMPLED = 1.1, 0.99, 20_000
Times = dict[str, list[float]]


def build(revision: str, folder: Path) -> Path:
    """The Python of an environment with the package as of ``revision``."""
    tree, environment = folder / "tree", folder / "environment"
    tree.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", ROOT, "archive", revision], stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=archive, check=True)
    venv.create(environment, with_pip=True)
    python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", tree, "threadpoolctl"], check=True)
    return python


def measure(python: Path, folder: Path, only: str, quick: bool) -> Times:
    """Seconds of every kernel, by name, variant, threads and size."""
    file = folder / "figures.json"
    command = [python, ROOT / "benchmarks" / "kernels.py", "--json", file, "--only", only, *["--quick"] * quick]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if not file.exists():  # the status says whether shares are met, which is not asked here
        sys.exit(f"{command} failed:\n{done.stderr}")
    found = json.loads(file.read_text())
    file.unlink()
    keys = ("name", "variant", "threads", "megabytes")
    return {", ".join(f"{line[key]:g}" if key == "megabytes" else str(line[key]) for key in keys): [line["seconds"]]
            for line in found}  # fmt: skip


def interval(base: list[float], head: list[float], rng: np.random.Generator) -> NDArray[np.float64]:
    """Ratio of medians head/base, and the ends of its interval."""
    samples = []
    for times in (head, base):
        drawn = rng.integers(0, len(times), (RESAMPLED, len(times)))
        samples.append(np.median(np.array(times)[drawn], axis=1))
    tail = (1 - CONFIDENCE) / 2
    return np.array([np.median(head) / np.median(base), *np.quantile(samples[0] / samples[1], [tail, 1 - tail])])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("head")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="", metavar="NAME", help="kernels whose name holds this")
    parser.add_argument("--quick", action="store_true", help="small arrays")
    parser.add_argument("--json", type=Path, metavar="FILE")
    chosen = parser.parse_args()
    times: dict[str, Times] = {"base": defaultdict(list), "head": defaultdict(list)}
    with tempfile.TemporaryDirectory() as folder:
        pythons = {side: build(getattr(chosen, side), Path(folder) / side) for side in times}
        for _ in range(chosen.rounds):
            for side, python in pythons.items():
                for kernel, seconds in measure(python, Path(folder), chosen.only, chosen.quick).items():
                    times[side][kernel] += seconds
    rng, slower = np.random.default_rng(0), []
    print(f"| kernel, variant, threads, MB | {chosen.base}, ms | {chosen.head}, ms | ratio |\n|{'---|' * 4}")
    for kernel in filter(times["head"].__contains__, times["base"]):
        base, head = (times[side][kernel] for side in ("base", "head"))
        ratio, low, high = interval(base, head, rng)
        slower += [kernel] if low > MOST else []
        figures = f"{1e3 * np.median(base):.3g} | {1e3 * np.median(head):.3g} | {ratio:.2f} ({low:.2f} to {high:.2f})"
        print(f"| {kernel} | {figures} |")
    if chosen.json:
        chosen.json.write_text(json.dumps(times, indent=1) + "\n")
    if slower:
        print(f"slower by more than {MOST - 1:.0%}: {'; '.join(slower)}")
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
