"""Print the oldest versions that the metadata of a wheel admit, for `pip -c`: `oldest_dependencies.py WHEEL`."""

import sys
import zipfile
from email.parser import HeaderParser

from packaging.requirements import Requirement

with zipfile.ZipFile(sys.argv[1]) as wheel:
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(wheel.read(name).decode())
extras = metadata.get_all("Provides-Extra", [])
oldest = set()
for line in metadata.get_all("Requires-Dist", []):
    requirement = Requirement(line)
    if requirement.name == metadata["Name"]:
        continue  # extras of the package itself
    if not any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in extras):
        continue  # for another Python
    lowest = [specifier.version for specifier in requirement.specifier if specifier.operator == ">="]
    if len(lowest) != 1:
        sys.exit(f"{line!r} must name one lowest version")
    oldest.add(f"{requirement.name}=={lowest[0]}")
print("\n".join(sorted(oldest)))
