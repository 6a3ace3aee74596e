"""Print the command that follows `<!-- command: NAME -->` in a README: `readme_command.py NAME README.md`."""

import re
import sys
from pathlib import Path

name, readme = sys.argv[1:]
pattern = rf"^<!-- command: {re.escape(name)} -->\n+```\w*\n(.*?)^```$"
found = re.findall(pattern, Path(readme).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
if len(found) != 1:
    sys.exit(f"{readme} must hold one block after <!-- command: {name} -->, found {len(found)}")
print(found[0].strip())
