"""Fused multiply-adds in the machine code of a library, found by objdump of the GNU binutils."""

import platform
import re
import shutil
import subprocess

PROCESSORS = {62: "x86_64", 183: "aarch64"}
"""Processors by their numbers in ELF files."""

# x86-64: vfmadd231ps, vfnmsub132sd, vfmaddsub213pd, vfcmaddcph. ARM64: fmadd, fnmsub, fmla, fmls, fcmla, and of its
# scalable vectors fmad, fmsb, fnmla, fmmla. RISC-V and PowerPC have the scalar names of ARM64.
FUSED = re.compile(r"vfc?n?m(add|sub)|fn?m(add|sub|ad|sb|la|ls)|fcmla|fmmla")


def objdump(library):
    """Return the path of the objdump that disassembles a library, None if it is not installed."""
    processor = PROCESSORS.get(int.from_bytes(library.read_bytes()[18:20], "little"), platform.machine())
    return shutil.which("objdump" if processor == platform.machine() else f"{processor}-linux-gnu-objdump")


def fused(library):
    """Return "function: instruction" for each fused multiply-add of a library, in all clones of its functions."""
    words = [objdump(library), "--disassemble", "--no-show-raw-insn", library]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    function, instructions, found = "", 0, []
    for line in lines:
        begun = re.fullmatch(r"[0-9a-f]+ <(.*)>:", line)
        function = begun[1] if begun else function
        instruction = line.split("\t")[1].strip() if "\t" in line else ""
        instructions += instruction != ""
        if FUSED.match(instruction):
            found.append(f"{function}: {instruction}")
    assert instructions, f"objdump found no instruction in {library}"
    return found
