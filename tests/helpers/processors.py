"""Other processors, and other compilers of the native kernels."""

import platform
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MASKED = {  # NumPy, OpenBLAS and libm choose as on an older CPU
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_ICL AVX512_SPR AVX2 FMA3 X86_V3 X86_V4",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX,-FMA4",
}

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="masks x86 features")
nehalem = pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-user: apt-get install qemu-user")
NEHALEM = ("qemu-x86_64", "-cpu", "Nehalem")
"""The words that execute a program as on a processor of 2008, without AVX and FMA."""
HASWELL = ("qemu-x86_64", "-cpu", "Haswell")
"""The same for a processor of 2013, with AVX2 and FMA, without AVX-512. It needs qemu 7.2."""


_SETUP = runpy.run_path(str(ROOT / "setup.py"))
FLAGS = ("-shared", "-fPIC", *_SETUP["FLAGS"])
"""The flags that decide the machine code of the native kernels."""
INCLUDES = [f"-I{ROOT / folder}" for folder in _SETUP["KERNELS"]["include_dirs"]]
_MACROS = [f"-D{name}={value}" for name, value in _SETUP["KERNELS"]["define_macros"]]
KERNELS = (*INCLUDES, *_MACROS, *_SETUP["KERNELS"]["extra_compile_args"], *_SETUP["KERNELS"]["sources"])
"""The arguments by which a compiler in the folder `ROOT` reads the native kernels."""


def build_kernels(library, compiler, more=()):
    """Build the native kernels with a compiler. more: flags after those of the package."""
    subprocess.run([compiler, *FLAGS, *KERNELS, *more, "-o", library], cwd=ROOT, check=True)


def build_package(folder, compiler, suffix, more=()):
    """Copy the package into a folder, with native kernels of another compiler, for a Python with such extensions.

    Returns the path of the library. more: flags after those of the package.
    """
    shutil.copytree(ROOT / "evolve", folder / "evolve", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    library = folder / "evolve" / "numerics" / f"_kernels{suffix}"
    build_kernels(library, compiler, more)
    return library
