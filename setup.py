"""The native kernels, as setuptools builds them; `pyproject.toml` describes the rest of the package.

The kernels are one compilation unit, `evolve/rollouts/kernels.c`. The compiler includes the header of every network and
of every exact task before that file (`-include`), so a new header is built without being named in any list.
"""

import hashlib
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent
FOLDERS = [f"evolve/{package}/kernels" for package in ("numerics", "networks", "environments", "rollouts")]
"""Headers include each other by name, from any of these folders."""
FLAGS = [
    "-O3",
    "-fno-fast-math",  # takes back -ffast-math, -Ofast and the like in the user's CFLAGS, which come before these flags
    "-ffp-contract=off",  # a fused multiply-add rounds once instead of twice, which changes bits
    "-fno-math-errno",  # sqrt becomes one instruction, with the same bits
    "-fno-trapping-math",  # vectors may compute a number that only one lane needs; no code reads the processor's flags
]
if not any(flag.startswith("-g") for flag in os.environ.get("CFLAGS", "").split()):
    FLAGS.append("-g0")  # Python's own -g makes the library three times as large, and the build slower


def headers(*folders: str) -> list[str]:
    """Return the headers in folders, as paths relative to this file."""
    return sorted(path.relative_to(ROOT).as_posix() for folder in folders for path in (ROOT / folder).glob("*.h"))


def fingerprint() -> str:
    """Return a fingerprint of all headers; `evolve.numerics.native` compares it with the headers that it finds."""
    contents = b"".join((ROOT / header).read_bytes() for header in headers(*sorted(FOLDERS)))
    return hashlib.sha256(contents).hexdigest()[:16]


KERNELS = {
    "sources": ["evolve/rollouts/kernels.c"],
    "depends": headers(*FOLDERS),  # source distributions contain them, and a change of one builds the library again
    "include_dirs": FOLDERS,
    "define_macros": [("SOURCES", f'"{fingerprint()}"')],
    "extra_compile_args": [*FLAGS, *(word for header in headers(*FOLDERS[1:3]) for word in ("-include", header))],
    # With -ffast-math in CFLAGS, some versions of gcc would link code that flushes denormal numbers to zero.
    "extra_link_args": ["-O3", "-fno-fast-math", "-fno-unsafe-math-optimizations"],
    # Without a compiler, array operations do the work, with the same bits. Packagers may want an error instead.
    "optional": os.environ.get("EVOLVE_KERNELS", "") == "",
}

if __name__ == "__main__":
    if os.environ.get("EVOLVE_KERNELS", "") not in ("", "require"):
        got = os.environ["EVOLVE_KERNELS"]
        raise SystemExit(f"EVOLVE_KERNELS: expected require, got {got}. Unset it if kernels are not required.")
    from setuptools import Extension, setup
    from setuptools.command.build_ext import build_ext

    class BuildKernels(build_ext):
        """Builds the kernels, or says in one sentence what their absence means. `pip install -v` shows the sentence."""

        def warn(self, _message: str) -> None:
            """Explain the failure of the compiler, after the compiler's own messages; the build goes on."""
            consequence = "array operations will do the work, with the same bits, but more slowly"
            print(f"evolve: the C compiler failed, so there are no native kernels: {consequence}.", file=sys.stderr)

    # In `build/`, its default, setuptools would find and install modules and kernels of an earlier build.
    with TemporaryDirectory() as folder:
        setup(
            ext_modules=[Extension("evolve.numerics._kernels", **KERNELS)],
            cmdclass={"build_ext": BuildKernels},
            options={"build": {"build_base": folder}},
        )
