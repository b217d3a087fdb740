"""Change how this thread computes, as libraries do that were linked with -ffast-math."""

import ctypes
import platform

SUPPORTED = platform.system() == "Linux" and platform.machine() in ("x86_64", "aarch64")
_LIBRARY = ctypes.CDLL(None)


def flush_denormals() -> None:
    """Flush denormal numbers to zero, in results and in arguments."""
    state = (ctypes.c_uint32 * 8)()
    _LIBRARY.fegetenv(state)
    if platform.machine() == "x86_64":
        state[7] |= 0x8040  # MXCSR follows the state of the x87 unit
    else:
        state[0] |= 1 << 24  # FPCR
    _LIBRARY.fesetenv(state)


def round_up() -> None:
    """Round to the next larger number instead of the nearest one."""
    _LIBRARY.fesetround(0x800 if platform.machine() == "x86_64" else 0x400000)
