"""Make docs/benchmarks.md: every section is what one command prints, with machine, versions, commit and date.

    python benchmarks/report.py                 # all sections
    python benchmarks/report.py kernels peers   # these; the others stay as they were, with their own date

The tables' figures are kept beside the page, as docs/benchmarks/SECTION.json, where a command writes them. A section
whose command fails (a target that is missed, too) is written all the same, and says so; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import dpgep

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURES = ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "benchmarks"
HEAD = """# Benchmarks

Each section is what its command prints, made by `python benchmarks/report.py SECTION`. Ratios and shares are the
figures to read: both sides ran in one process, alternating. `benchmarks/README.md` says what is measured, and how.
"""


@dataclass(frozen=True)
class Section:
    """A part of the page. ``text`` says what the table shows; ``figures``: the command writes them with --json."""

    title: str
    text: str
    command: tuple[str, ...]
    figures: bool = False


SECTIONS = {
    "kernels": Section(
        "Kernels over their floor",
        "Share: the time of a sweep over the same bytes, or of `dsyrk`, over the kernel's; 1 is all that can be had.",
        ("kernels.py",),
        figures=True,
    ),
    "peers": Section(
        "Private fits beside scikit-learn's",
        "scikit-learn's are not private. Error: squared sines of the span at epsilon = 1 to the one without noise.",
        ("peers.py",),
        figures=True,
    ),
    "papers": Section(
        "The papers' experiments",
        "Hu et al. 2023 at small sizes: printed, sound, ours. All of them, and the others': [errata](errata.md).",
        ("papers/hu2023.py", "--quick"),
    ),
    "regimes": Section(
        "Published methods at one budget",
        "Sums of squared sines to the span without noise, medians; each calibrated soundly, in mu under replace-one. "
        "[Which method when](frontier.md) says what follows.",
        ("frontier/regimes.py", "--picture", "docs/pictures/regimes.svg"),
        figures=True,
    ),
    "utility": Section(
        "Error against epsilon",
        "Squared sines of `auto`, medians, beside floors; drawn in [which method when](frontier.md).",
        ("frontier/utility.py", "--picture", "docs/pictures/utility.svg"),
    ),
}


def machine() -> str:
    """Processor, memory and versions, in a line."""
    names = [line.partition(":")[2].strip() for line in _lines_of("/proc/cpuinfo") if line.startswith("model name")]
    memory = [int(line.split()[1]) / 2**20 for line in _lines_of("/proc/meminfo") if line.startswith("MemTotal")]
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "scikit-learn"))
    built = dpgep.build_info()
    return (
        f"{(names or [platform.processor()])[0]}, {os.cpu_count()} processors"
        + (f", {memory[0]:.0f} GiB" if memory else "")
        + f"; CPython {platform.python_version()}, {packages}; {built['blas']}; {built['compiler']}, {built['variant']}"
    )


def _lines_of(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines() if os.path.exists(path) else []


def commit() -> str:
    described = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
    )
    return described.stdout.strip()


def written(name: str, section: Section, quick: bool) -> tuple[str, bool]:
    """The section as Markdown, and whether its command succeeded."""
    command = [*section.command, *["--quick"] * quick]
    if section.figures and not quick:
        FIGURES.mkdir(exist_ok=True)
        command += ["--json", str((FIGURES / f"{name}.json").relative_to(ROOT))]
    load, start = os.getloadavg()[0], time.perf_counter()
    script, *options = command
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, *options], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    seconds = time.perf_counter() - start
    verdict = "" if done.returncode == 0 else " Its command exits with 1: a target is missed, or an answer wrong."
    when = f"{datetime.date.today().isoformat()}, commit {commit()}, load {load:.1f} at the start"
    text = f"""## {section.title}

{section.text}{verdict}

`python benchmarks/{" ".join(command)}`: {seconds:.0f} s on {when}.
{machine()}.

{done.stdout.strip()}
"""
    return text, done.returncode == 0


def page(old: str, new: dict[str, str]) -> str:
    """The page with new sections in their places, and the old ones of all others."""
    kept = {part.partition("\n")[0]: f"## {part}".rstrip() + "\n" for part in old.split("\n## ")[1:]}
    parts = [new.get(name) or kept.get(section.title) for name, section in SECTIONS.items()]
    return "\n".join([HEAD, *filter(None, parts)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="where a command has it; the page is printed, not written")
    chosen = parser.parse_args()
    unknown = set(chosen.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no such section: {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    new, failed = {}, False
    for name in chosen.sections or SECTIONS:
        print(name, flush=True, file=sys.stderr)
        new[name], succeeded = written(name, SECTIONS[name], chosen.quick)
        failed |= not succeeded
    text = page(PAGE.read_text(encoding="utf-8") if PAGE.exists() else "", new)
    if chosen.quick:
        print(text)
    else:
        PAGE.write_text(text, encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
