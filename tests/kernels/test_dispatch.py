"""The compiled variants: which is loaded, that all give the same bits, and what instructions they hold."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from variants import kernels

from dpgep import _cpu, _dispatch

CPUINFO = Path("/proc/cpuinfo")
VARIANTS = _dispatch.available_variants()
lists_flags = pytest.mark.skipif(
    platform.machine() != "x86_64" or not CPUINFO.exists(), reason="the kernel lists flags of x86-64"
)


def digests(core):
    """One digest per kernel, over both types and over sizes on either side of every vector width."""
    found = {}

    def digest(name, *arrays):
        found[name] = hashlib.sha256(b"".join(np.asarray(a).tobytes() for a in arrays)).hexdigest()

    key = bytes(range(32))
    rng = np.random.Generator(np.random.PCG64(0))
    sizes = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 200]
    types = [np.float32, np.float64]

    digest("bytes", *[np.frombuffer(core.NoiseStream(key, n).bytes(n), np.uint8) for n in (1, 63, 64, 65, 9999)])
    digest("block", np.frombuffer(core.chacha20_block(key, 7, bytes(12)), np.uint8))

    deviates = [np.empty(n) for n in [*sizes, 100_001]]
    for out in deviates:
        core.NoiseStream(key).normal(out)
    digest("normal", *deviates)

    for d in sizes:
        matrix = rng.integers(-4, 5, size=(d, d)) / 4
        matrix = matrix + matrix.T
        answers = []
        for noise, shape in (("lazy", "goe"), ("fresh", "goe"), ("fresh", "iid")):
            drawn = core.Noise(noise, [0.3], shape, n_products=3, stream=core.NoiseStream(key))
            oracle = core.PairOracle.of_matrices(core.SymmetricMatrices(matrix), drawn)
            for _ in range(2):
                answers.append(oracle.times(rng.normal(size=(1 if shape == "iid" else min(3, d), d)))[0])
        digest(f"noisy products {d}", *answers)

    mirrored = [rng.normal(size=(d, d)) for d in sizes]
    for matrix in mirrored:
        core.mirror_upper(matrix)
    digest("mirror", *mirrored)

    clipped = []
    for d in sizes:
        for t in types:
            for magnitude in (1e-30, 1.0, 1e30):
                for bound in (1.0, 0.7, 1e20):
                    out = np.empty((50, d))
                    assert core.clip_rows((magnitude * rng.normal(size=(50, d))).astype(t), bound, out)
                    clipped.append(out)
            if t is np.float64:
                out = np.empty((50, d))
                assert core.clip_rows(1e300 * rng.normal(size=(50, d)), 3.0, out)
                clipped.append(out)
    digest("clip", *clipped)

    truncated = []
    for d in sizes:
        for t in types:
            v, block = rng.normal(size=d).astype(t), rng.normal(size=(d, 5)).astype(t)
            k = (d + 1) // 2
            truncated += [core.truncate_top_k(v, k), core.truncate_rows_top_k(block, k), v, block]
    digest("truncate", *truncated)
    return found


def run(code, variant):
    environment = {**os.environ, "DPGEP_SIMD": variant}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_baseline_is_always_there():
    assert VARIANTS[0] == "baseline"


def flags():
    """What the operating system lets programs use."""
    listed = re.search(r"^flags\s*:(.*)$", CPUINFO.read_text(), flags=re.MULTILINE)
    assert listed is not None
    return set(listed[1].split())


@lists_flags
def test_levels_are_those_that_the_operating_system_knows():
    v3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "pclmulqdq"}
    assert _cpu.levels() == (("baseline", "v3") if v3 <= flags() else ("baseline",))


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_environment_chooses_the_variant(variant):
    result = run("from dpgep._dispatch import core; print(core.build_info()['variant'])", variant)
    assert result.stdout.strip() == variant, result.stderr


def test_without_a_choice_the_best_variant_is_loaded():
    result = run("from dpgep._dispatch import core; print(core.build_info()['variant'])", "")
    assert result.stdout.strip() == VARIANTS[-1], result.stderr


def test_an_unknown_variant_is_refused_and_the_available_ones_are_named():
    result = run("import dpgep._dispatch", "v99")
    assert result.returncode != 0
    message = result.stderr.splitlines()[-1]
    assert message.startswith("ImportError")
    for name in ("DPGEP_SIMD", "'v99'", *VARIANTS):
        assert name in message


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_variants_agree_in_bits(variant):
    baseline = digests(kernels()["baseline"])
    assert len(baseline) == 19
    assert digests(kernels()[variant]) == baseline


@lists_flags
@pytest.mark.skipif("v3" not in VARIANTS, reason="no v3 variant on this machine")
def test_each_variant_knows_its_own_widest_rows():
    """Bindings are compiled once for both: with the older one's bound, rows of 150 columns take half as long again.

    The v3 variant asks for AVX-512 itself: a compiler's built-in test said no in wheels.
    """
    widest = {name: core.narrow_dimension for name, core in kernels().items()}
    assert widest == {"baseline": 100, "v3": 800 if "avx512f" in flags() else 500}


def test_build_info_names_what_computes():
    info = _dispatch.core.build_info()
    assert {"variant", "compiler", "eigen", "cxx_standard", "flags"} <= set(info)
    assert all(isinstance(value, str) and value for value in info.values())
    assert "-ffp-contract=off" in info["flags"]
    for flag in ("-ffast-math", "-Ofast", "-fassociative-math", "-freciprocal-math", "-march=native"):
        assert flag not in info["flags"]


# --- instructions ---

# Mnemonics of AVX and its successors begin with v, but for verr, verw and the virtual-machine ones (vm...);
# vmov..., vmul..., vmin..., vmax... and vmask... are AVX all the same.
AVX = re.compile(r"^\s+[0-9a-f]+:\s+(v(?!err\b|erw\b|mcall\b|mlaunch\b|mresume\b|mrun\b|mxo)[a-z0-9]+)", re.MULTILINE)
AVX_REGISTER = re.compile(r"%?[yz]mm[0-9]")


def disassembly(module):
    if importlib.util.find_spec("dpgep._core_v3") is None:
        pytest.skip("one variant is all that was built: this is not x86-64, or Windows")
    objdump = shutil.which("objdump")
    if objdump is None:
        pytest.skip("needs objdump")
    spec = importlib.util.find_spec(f"dpgep.{module}")
    assert spec is not None
    assert spec.origin is not None
    return subprocess.run(
        [objdump, "-d", "--no-show-raw-insn", spec.origin], capture_output=True, text=True, check=True
    ).stdout


def holds_avx(listing):
    return bool(AVX.search(listing) or AVX_REGISTER.search(listing))


@pytest.mark.parametrize("module", ["_core_baseline", "_cpu"])
def test_what_every_processor_loads_holds_no_avx(module):
    listing = disassembly(module)
    assert "cpuid" in listing if module == "_cpu" else len(listing.splitlines()) > 1000
    assert not holds_avx(listing)


@pytest.mark.skipif("v3" not in VARIANTS, reason="no v3 variant on this machine")
def test_the_search_for_avx_finds_it():
    assert holds_avx(disassembly("_core_v3"))
