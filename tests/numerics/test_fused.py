"""No build of the kernels has a fused multiply-add, which rounds once instead of twice and thus changes bits.

Compilers make them in spite of -ffp-contract=off, so that the machine instructions are searched.
"""

import platform
import re
import shutil
import subprocess

import disassembly
import pytest
from conftest import ROOT
from processors import FLAGS, KERNELS, build_kernels

from evolve.numerics import native

FLAGGED = {
    "x86_64": ["-march=x86-64-v3", "-march=x86-64-v4"],
    "aarch64": ["-march=armv8.3-a", "-march=armv8.2-a+sve"],
}.get(platform.machine(), [])
"""Flags in CFLAGS with which the compiler may use fused instructions in every function."""

pytestmark = [
    pytest.mark.skipif(shutil.which("objdump") is None, reason="needs objdump: apt-get install binutils"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc"),
    pytest.mark.skipif(not FLAGGED, reason="no flags are known for this processor"),
]

# Rotations of many points: the pattern that gcc's vectorizer fuses.
TURN = """
{kind} void turn(float *restrict to, const float *restrict a, const float *restrict q, int n)
{{
    for (int i = 0; i < n; i++) {{
        to[2 * i] = q[2 * i] * a[2 * i] - q[2 * i + 1] * a[2 * i + 1];
        to[2 * i + 1] = q[2 * i] * a[2 * i + 1] + q[2 * i + 1] * a[2 * i];
    }}
}}
void turn_all(float *to, const float *a, const float *q) {{ turn(to, a, q, 1000); }}
"""


@pytest.fixture
def fused_turns(tmp_path):
    """A function that compiles TURN, and returns its fused instructions."""

    def compile_turn(kind, *flags):
        library = tmp_path / "turn.so"
        words = ["gcc", "-x", "c", "-", *FLAGS, "-w", *flags, "-o", library]
        subprocess.run(words, input=TURN.format(kind=kind), text=True, check=True)
        return disassembly.fused(library)

    return compile_turn


def test_the_native_kernels_have_no_fused_instruction():
    if not native.available():
        pytest.skip("the native kernels were not built")
    assert disassembly.fused(native.library_path()) == []


def test_a_fused_instruction_is_found(fused_turns):
    found = fused_turns("", FLAGGED[-1], "-ffp-contract=fast")
    assert found
    assert all(line.startswith("turn") for line in found)


def test_gcc_fuses_in_spite_of_the_flag(fused_turns):
    """The control of the next test: without its attribute, a function of one world would be fused."""
    if not fused_turns("", FLAGGED[-1]):
        pytest.skip("this compiler fuses nothing")


@pytest.mark.parametrize("flag", FLAGGED)
def test_functions_of_one_world_are_not_fused(fused_turns, flag):
    macros = subprocess.check_output(["gcc", "-E", "-dM", *KERNELS], cwd=ROOT, text=True)
    (one_world,) = re.findall(r"#define ONE_WORLD (.*)", macros)
    assert fused_turns(one_world, flag) == []


@pytest.mark.slow
@pytest.mark.parametrize("flag", FLAGGED)
def test_builds_for_one_processor_have_no_fused_instruction(tmp_path, flag):
    library = tmp_path / "kernels.so"
    build_kernels(library, "gcc", [flag])
    assert disassembly.fused(library) == []
