"""What no committed file may hold: `check_hygiene.py FOLDER`, a copy of the committed files."""

import re
import sys
from pathlib import Path

LARGEST = 1_000_000
# Spelled so that this file passes its own check.
FORBIDDEN = {
    "an absolute path of somebody's machine": re.compile(r"(?<![\w.:/])/(?:home|work|root|Users|tmp/[a-z])[/\w]"),
    "a mark of a merge": re.compile("^(?:<{7}|>{7}) "),
    "an unfinished mark": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME)\b"),
}

# Negative control: what each pattern must find.
EXAMPLES = ["see /" + "home/somebody/file", "<" * 7 + " HEAD", "# TO" + "DO: later"]


def main() -> None:
    for (what, pattern), example in zip(FORBIDDEN.items(), EXAMPLES, strict=True):
        if not pattern.search(example):
            sys.exit(f"the search for {what} does not find {example!r}")
    folder = Path(sys.argv[1])
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    problems = []
    for path in files:
        name = path.relative_to(folder)
        content = path.read_bytes()
        if len(content) > LARGEST:
            problems.append(f"{name}: {len(content)} bytes, more than {LARGEST}")
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            continue  # a picture, say
        for number, line in enumerate(text.splitlines(), start=1):
            for what, pattern in FORBIDDEN.items():
                if pattern.search(line):
                    problems.append(f"{name}:{number}: {what}: {line.strip()[:100]}")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"{len(files)} files, {len(problems)} problems")
    if problems or not files:
        sys.exit(1)


main()
