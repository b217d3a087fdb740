"""A Python for ARM64 that qemu-user executes: Debian's, with wheels from PyPI, in a folder that is built once.

Nothing is installed: packages are unpacked side by side, so that no rights are needed. The folder lies in
`EVOLVE_TEST_ROOTS`, by default ~/.cache/evolve-tests; remove it to build it anew.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
REQUIREMENTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_26_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
COMPILER = "aarch64-linux-gnu-gcc"
TOOLS = {"qemu-aarch64": "qemu-user", COMPILER: "gcc-aarch64-linux-gnu", "apt-get": "apt", "dpkg-deb": "dpkg"}


def lacking():
    """Return a sentence that names the missing tools, "" if none is missing."""
    packages = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    return f"needs Debian's {', '.join(packages)}: apt-get install {' '.join(packages)}" if packages else ""


def root():
    """Return the folder, with `system` (Debian's files) and `site` (wheels); builds it if it does not exist.

    Raises subprocess.CalledProcessError, with the output, if a download fails.
    """
    recipe = repr((PACKAGES, REQUIREMENTS, PLATFORMS))
    roots = Path(os.environ.get("EVOLVE_TEST_ROOTS", Path.home() / ".cache" / "evolve-tests"))
    made = roots / f"arm64-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    roots.mkdir(parents=True, exist_ok=True)
    with open(roots / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes that test side by side make it once
        if not made.exists():
            begun = made.with_suffix(".part")
            shutil.rmtree(begun, ignore_errors=True)
            _unpack_system(begun)
            _unpack_wheels(begun)
            begun.rename(made)
    return made


def python(made):
    """Return the words that start the Python of such a folder."""
    return ["qemu-aarch64", "-L", str(made / "system"), str(_interpreter(made))]


def suffix(made):
    """Return the suffix of its extension modules."""
    return f".cpython-{_version(made).replace('.', '')}-aarch64-linux-gnu.so"


def _interpreter(made):
    return (made / "system/usr/bin/python3").resolve()  # python3.11


def _version(made):
    return _interpreter(made).name.removeprefix("python")


def _unpack_system(made):
    """Unpack Debian's packages from this machine's sources, with all their dependencies."""
    apt = made / "apt"
    for folder in ("lists/partial", "cache/archives/partial"):
        (apt / folder).mkdir(parents=True)
    (apt / "status").touch()  # nothing is installed
    options = {"Dir::State::Lists": apt / "lists", "Dir::State::status": apt / "status", "Dir::Cache": apt / "cache",
               "APT::Architecture": "arm64", "APT::Architectures": "arm64", "Debug::NoLocking": 1,
               "APT::Sandbox::User": ""}  # fmt: skip
    words = ["apt-get", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    _call(*words, "update")
    _call(*words, "install", "--yes", "--download-only", "--no-install-recommends", *PACKAGES)
    for package in sorted((apt / "cache/archives").glob("*.deb")):
        _call("dpkg-deb", "-x", package, made / "system")
    shutil.rmtree(apt)


def _unpack_wheels(made):
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    how = ("--only-binary=:all:", "--implementation", "cp", "--python-version", _version(made), *platforms)
    _call(sys.executable, "-m", "pip", "install", "--quiet", "--target", made / "site", *how, *REQUIREMENTS)


def _call(*words):
    subprocess.run(
        [str(word) for word in words], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
