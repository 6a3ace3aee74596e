"""Modules that every processor loads must hold no AVX instruction: `check_instructions.py PACKAGE_FOLDER`.

The negative control: the same search must find AVX in the module built for x86-64-v3.
"""

import platform
import re
import subprocess
import sys
from pathlib import Path

# VEX and EVEX mnemonics begin with v; so do a few old instructions about segments and virtual machines.
VECTOR = re.compile(r"^\s*[0-9a-f]+:\s+(?:\{\w+\}\s+)?(v[a-z0-9]+)\b")
NOT_AVX = {"verr", "verw", "vmcall", "vmlaunch", "vmresume", "vmxoff", "vmxon", "vmread", "vmwrite", "vmrun", "vmload"}
NOT_AVX |= {"vmsave", "vmmcall", "vmfunc", "vmptrld", "vmptrst", "vmclear"}
# A function ends in one of these: the jump where its last act is a call.
END = re.compile(r":\s+(?:retq?\s*$|jmp\b)")
WIDE = re.compile(r"%[yz]mm\d+|%k[0-7]\b")


def avx_instructions(module: Path) -> list[str]:
    command = ["objdump", "-d", "--no-show-raw-insn", str(module)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    if not any(END.search(line) for line in listing):
        sys.exit(f"{module.name}: objdump shows no code")
    found = []
    for line in listing:
        match = VECTOR.match(line)
        if (match and match.group(1) not in NOT_AVX) or WIDE.search(line):
            found.append(line.strip())
    return found


def only(folder: Path, name: str) -> Path:
    modules = sorted(folder.glob(f"{name}.*so"))
    if len(modules) != 1:
        sys.exit(f"expected one {name} in {folder}, found {len(modules)}")
    return modules[0]


def main() -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        print(f"nothing to check on {platform.machine()}")
        return
    folder = Path(sys.argv[1])
    failed = False
    for name in ("_core_baseline", "_cpu"):
        found = avx_instructions(only(folder, name))
        print(f"{name}: {len(found)} AVX instructions")
        for line in found[:5]:
            print("   ", line)
        failed |= bool(found)
    control = avx_instructions(only(folder, "_core_v3"))
    print(f"_core_v3: {len(control)} AVX instructions (the search works)")
    if failed or not control:
        sys.exit(1)


main()
