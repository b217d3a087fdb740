"""Other processors than this one."""

import platform

import pytest

MASKED = {  # what an older CPU would make NumPy, OpenBLAS and libm choose
    "OPENBLAS_CORETYPE": "Nehalem",
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_ICL AVX512_SPR AVX2 FMA3 X86_V3 X86_V4",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-AVX,-FMA4",
}

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="masks x86 features")
