"""A device on the host, for tests: it executes the code that NVRTC compiles for a GPU, instruction by instruction."""

from emulation.compiled import emulation_available
from emulation.device import EmulatedDevice, KernelError
from emulation.ptx import NotExactError

__all__ = ["EmulatedDevice", "KernelError", "NotExactError", "emulation_available"]
