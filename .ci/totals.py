"""Sum pytest's summaries in logs and print the closing line: `totals.py BROKEN_STEPS SECONDS STEPS LOG...`."""

import re
import sys
from collections import Counter
from pathlib import Path

SUMMARY = re.compile(r"^=*\s*(\d+ (?:passed|failed|skipped|errors?|xfailed|deselected|warnings?)\b.*) in [\d.]+s")

broken, seconds, steps = (int(argument) for argument in sys.argv[1:4])
counts: Counter[str] = Counter()
without_failed_tests = broken
for log in sys.argv[4:]:
    failed_here = 0
    for line in Path(log).read_text(encoding="utf-8", errors="replace").splitlines():
        match = SUMMARY.match(line)
        if match:
            for number, what in re.findall(r"(\d+) (\w+)", match.group(1)):
                counts[what.rstrip("s")] += int(number)
                failed_here += int(number) if what in ("failed", "error", "errors") else 0
    without_failed_tests -= bool(failed_here)
# a step that failed otherwise (a warning of a linter, say) counts as one failure
failed = counts["failed"] + counts["error"] + max(without_failed_tests, 0)
print(f"{steps - broken} of {steps} steps passed in {seconds} s; tests of all steps together:")
print(f"{counts['passed']} passed, {failed} failed, {counts['skipped']} skipped")
sys.exit(1 if broken or failed or not counts["passed"] else 0)
