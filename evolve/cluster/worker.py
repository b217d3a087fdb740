"""A worker is a rank that plays episodes for rank 0. It also keeps a shared state, and answers questions about it.

`serve` is the loop of a worker: it receives messages, and `Worker` handles them. Before a worker plays, it compares its
packages, source code and environment with rank 0 (`check_versions`, `Setup.trial`).
"""

import ast
import hashlib
import json
import math
import os
import sys
import time
import tomllib
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, Protocol

import numpy as np

from evolve import environments
from evolve.cluster import messages
from evolve.cluster.messages import Message
from evolve.cluster.transport import Buffer, Transport
from evolve.cluster.watchdog import Watchdog, kill
from evolve.config.registry import points_of, registry_of
from evolve.errors import SOURCE, EvolveError, RunError
from evolve.genome import GenomeSource, select
from evolve.numerics import restore_ieee
from evolve.rollouts import AnyRollout, EpisodeBatch, EpisodeResults, Rollout, join, sum_traces

COORDINATOR = 0
# The code that plays episodes: packages, and subpackages of evolve.
_PLAYING_PACKAGES = ("evolve", "numpy", "gymnasium", "envpool", "Box2D", "mujoco")
_PLAYING_PARTS = ("environments", "networks", "numerics", "rollouts", "strategies")
_MOST_KEPT = 2  # rollouts, because training and evaluation take turns
_NO_JOB = -1
PROBE_EVERY = 0.01
"""Seconds between probes of a worker that plays and expects a message. A probe costs as much as several steps."""
PROBE_RARELY = 0.1
"""Seconds between probes of a worker that expects no message. If ranks share a core, MPI gives the core to another rank
when a probe finds nothing. This worker then has to wait until the other rank gives the core back."""
SHORTEST_HELD = 0.005
"""A worker sends results when half of its work is done. Then it would send half of the remaining results, and so on, in
ever smaller messages. So while it has work, it sends results at most once in this number of seconds."""
LONGEST_HELD = 2.0
"""Results wait for later ones until this number of seconds has passed since the last results were sent."""
MOST_FAILURES = 100
"""A worker sends `FailedEpisode` for at most this number of episodes of a job. Its results include all failed episodes.

A job is a batch of episodes, or a list of questions (`jobs.py`)."""

MakeRollout = Callable[[str], AnyRollout]
"""Makes a rollout from an experiment's TOML text."""


_SAME_TRIAL: weakref.WeakSet[Rollout] = weakref.WeakSet()
"""The rollouts of this process that have played the trial episode as rank 0 did, so they need no other comparison."""


class KeptRollouts:
    """Makes rollouts, keeps the last two, and closes older ones. Only the one that was returned last is in use.

    make_rollout: Makes a rollout from an experiment's TOML text.
    """

    def __init__(self, make_rollout: MakeRollout) -> None:
        self._make_rollout = make_rollout
        self._kept: dict[str, AnyRollout] = {}

    def __call__(self, text: str) -> AnyRollout:
        """Return the rollout of an experiment."""
        # The dictionary is in the order of use: the rollout in use is inserted last.
        rollout = self._kept.pop(text, None)
        if rollout is None:
            # Close older rollouts first, so that there are never more than `_MOST_KEPT` at a time. An experiment with
            # one slot may have a library that supports only one world in each process, so close all.
            has_one_slot = tomllib.loads(text)["compute"].get("slots") == 1
            self.close(0 if has_one_slot else _MOST_KEPT - 1)
            rollout = self._make_rollout(text)
        self._kept[text] = rollout
        return rollout

    def close(self, most: int = 0) -> None:
        """Close the oldest rollouts until at most `most` are left; by default, close all."""
        while len(self._kept) > most:
            self._kept.pop(next(iter(self._kept))).close()


def loaded_versions(experiment: str) -> dict[str, str]:
    """Return the versions of the loaded packages that play the episodes of an experiment (TOML text), by name.

    The result also has fingerprints of source code. One is for evolve. The others are for the module of the
    environment, for the module of a network or strategy of another package, and for the loaded modules in the same
    folders.
    """
    table = tomllib.loads(experiment)
    # An id such as "sleds:Task-v0" names the module of the environment.
    modules = [table["env"]["id"].rpartition(":")[0]]
    for section in ("network", "strategy"):
        name = table[section]["name"]
        if name not in registry_of(section).kinds:  # it comes from an entry point of another package
            modules += [point.module for point in points_of(section, name)]
    packages = [*_PLAYING_PACKAGES]
    for module in modules:
        packages += [module.partition(".")[0], *packages_used_by(module)]
    attributes = {name: _contents(sys.modules[name]).get("__version__") for name in packages if name in sys.modules}
    # A version that is not a text may be printed with its address in memory, which differs between processes.
    versions = {name: version if isinstance(version, str) else "" for name, version in attributes.items()}
    for module in modules:
        versions |= _module_fingerprints(module)
    return versions | _source_fingerprint()


def packages_used_by(module: str) -> set[str]:
    """Return the packages from which the top level of a loaded module has imported modules, classes or functions.

    Python itself, evolve and the package of the module are left out.
    """
    contents = list(_contents(sys.modules.get(module)).values())  # a copy, because code of the module may change it
    return {_package_of(item) for item in contents} - {"", "evolve", module.partition(".")[0], *sys.stdlib_module_names}


def own_modules_used_by(module: str) -> set[str]:
    """Return the loaded modules of the user that the source of a module imports, directly or through other modules.

    The result includes the module itself. It has no modules of installed packages (in a folder such as site-packages).
    """
    own_modules: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        contents = _contents(sys.modules.get(name))
        file, package = contents.get("__file__"), contents.get("__package__")
        path = Path(file if isinstance(file, str) else "")
        is_installed = any(part.endswith("-packages") for part in path.parts)
        is_foreign = is_installed or name.partition(".")[0] in {"evolve", *sys.stdlib_module_names}
        if path.suffix == ".py" and not is_foreign and name not in own_modules:
            own_modules.add(name)
            # The file may have changed since it was imported. `resolve_name` raises ImportError.
            with suppress(OSError, SyntaxError, ValueError, ImportError):
                waiting += _imports(path.read_bytes(), str(package))
    return own_modules


def _imports(source: bytes, package: str) -> Iterator[str]:
    """Yield each imported name and its packages: a, a.b and a.b.c for `from a.b import c`. Not all are modules."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{base}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _contents(item: object) -> dict[str, Any]:
    """Return the contents of a module, by name; an empty dictionary for other objects."""
    # No code of the object runs: `isinstance` would ask a proxy for its class, and the `__getattribute__` of a module
    # might import or fail.
    return object.__getattribute__(item, "__dict__") if issubclass(type(item), ModuleType) else {}


def _package_of(item: object) -> str:
    """Return the package of a module, a class or a function; "" if unknown, or for other objects."""
    name: object = _contents(item).get("__name__")
    if issubclass(type(item), type | FunctionType | BuiltinFunctionType):
        with suppress(Exception):  # a metaclass may define the attribute
            name = item.__module__
    return name.partition(".")[0] if isinstance(name, str) else ""


def _fingerprint(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def source_files(part: str = "") -> list[Path]:
    """Return the source files of evolve, or of one of its packages. The order is the same everywhere."""
    paths: list[Path] = []
    for folder, _, names in os.walk(SOURCE / "evolve" / part):  # three times as fast as `Path.rglob`
        paths += [Path(folder, name) for name in names if name.endswith((".py", ".h", ".c", ".cu"))]
    return sorted(paths)


@cache
def _source_fingerprint() -> dict[str, str]:
    """Return a fingerprint of the source that plays episodes: two clones of one version may have different source.

    The result has one entry. It is empty if evolve has no files here, because it was imported from an archive.
    """
    files: list[Path] = []
    for part in _PLAYING_PARTS:
        files += source_files(part)
    if not files:
        return {}
    return {"the source of evolve": _fingerprint(b"".join(path.read_bytes() for path in files))}


@cache  # a file may change later, but not the code that this process has loaded
def _module_fingerprints(module: str) -> dict[str, str]:
    """Return fingerprints of a loaded module and of the loaded modules in the same folder, if they are Python files."""
    files: dict[str, Path] = {}
    for name, loaded in list(sys.modules.items()):  # a copy, because another thread may import a module
        # Other objects, such as lazy modules, might run code if they were asked for their file.
        file = vars(loaded).get("__file__") if type(loaded) is ModuleType else None
        if isinstance(file, str) and file.endswith(".py"):
            files[name] = Path(file)
    if module not in files:
        return {}
    folder = files[module].parent
    if folder.name.endswith("-packages"):  # the other modules of the folder have nothing to do with this one
        names = [module]
    else:
        names = [name for name, file in files.items() if file.parent == folder]
    with suppress(OSError):
        return {f"the module {name}": _fingerprint(files[name].read_bytes()) for name in names}
    return {}


def check_versions(versions: dict[str, str], experiment: str) -> None:
    """Raise RunError if this rank and rank 0 have loaded different code, because returns may then differ.

    Args:
        versions: The `loaded_versions` of rank 0.
        experiment: The experiment (TOML text).
    """
    # Compare only what both ranks have loaded. Rank 0 loads other modules, too, for example for a fitness function.
    for name, version in loaded_versions(experiment).items():
        if versions.get(name, version) != version:
            raise RunError(f"{name} is {version} here and {versions[name]} on rank 0: install one version on all hosts")


def error_report(transport: Transport) -> str:
    """Return the rank, the host, and the message or the traceback of the exception that is being handled."""
    error = sys.exception()
    # The message of an `EvolveError` is for users. Any other exception needs its traceback.
    cause = f" {error}" if isinstance(error, EvolveError) else f"\n{traceback.format_exc().rstrip()}"
    return f"an evaluation failed on rank {transport.rank} ({transport.host}):{cause}"


class SharedState(Protocol):
    """A state, such as a strategy's, of which the coordinator and every worker have a copy. It can generate genomes.

    The coordinator sends updates and questions as bytes, which only the copies of the state interpret.
    """

    def update(self, content: Buffer) -> None:
        """Change the state by an update of the coordinator."""

    def answer(self, content: Buffer) -> Buffer:
        """Return the answer to a question."""

    def genomes(self) -> GenomeSource:
        """Return the source of the genomes that chunks refer to by number."""

    def reset(self) -> None:
        """Drop the state, because this worker failed and may have missed updates."""


class Worker:
    """Does the work that messages of rank 0 ask for, and sends the results.

    The arguments are the arguments of `serve`.
    """

    def __init__(self, transport: Transport, make_rollout: MakeRollout, shared: SharedState) -> None:
        self._transport = transport
        self._make_rollout = make_rollout
        self._shared = shared
        self._rollout: AnyRollout | None = None
        self._watchdog = Watchdog(math.inf, fatal=False)  # watches nothing; `set_up` makes another one
        self._serial = _NO_JOB  # the number of the job to which the chunks in the rollout belong
        self._num_failures = 0  # failed episodes of the job
        self._busy_seconds = 0.0  # since the last results were sent
        self._unsent: list[EpisodeResults] = []
        self._num_unsent = 0  # episodes in these results
        self._sent_at = 0.0  # the time of the last message
        self._results_sent_at = 0.0  # the time of the last results, or of the setup
        self._longest_silence = math.inf  # seconds after which a heartbeat is due
        self.expects_message = True
        """Whether a message of rank 0 is due: at first any message, and after results the next chunk."""

    @property
    def idle(self) -> bool:
        """Whether this worker has no episodes to play."""
        return self._rollout is None or self._rollout.pending == 0

    def handle(self, message: Message) -> None:
        """Do the work that a message asks for. The first message is a setup."""
        restore_ieee()  # an environment may have loaded a library that changed how this thread computes
        self.expects_message = False
        match message:
            case messages.Setup(experiment, versions, trial):
                self.set_up(experiment)  # which loads the packages whose versions are compared
                check_versions(json.loads(versions), experiment)
                self._compare_trial(json.loads(trial))
            case messages.Chunk(serial, batch):
                self.evaluate(serial, batch)
            case messages.Update(content):
                with self._timed():
                    self._shared.update(content)
            case messages.Question(serial, number, content):
                with self._timed():
                    answer = self._shared.answer(content)
                self._send(messages.Answer(serial, number, answer))
            case messages.Kill(pid):
                kill(pid)  # a rank on this host that hangs; rank 0 is on another host

    def set_up(self, experiment: str) -> None:
        """Make the rollout of an experiment (TOML text), and drop all that is left of earlier work."""
        self.disarm()  # making environments may take longer than the limit of an episode
        rollout = self._rollout = self._make_rollout(experiment)
        self._switch_job(_NO_JOB)
        self._busy_seconds = 0.0
        self._results_sent_at = time.perf_counter()
        self._watchdog = Watchdog(rollout.max_episode_seconds, fatal=False)  # another experiment has another limit
        self._longest_silence = rollout.max_episode_seconds / 4  # far below the patience of rank 0
        # Within one tick, several hanging episodes may be interrupted one after another. Send a heartbeat after each.
        rollout.call_on_fault(self._send_heartbeat)
        rollout.queue.generating = self._generating
        self._send_heartbeat()

    def _compare_trial(self, fingerprints: list[str]) -> None:
        """Raise RunError if the environment of a new rollout plays another episode here than on rank 0."""
        # Other rollouts play exact tasks, which are the same everywhere. `KeptRollouts` may return an old rollout.
        if isinstance(self._rollout, Rollout) and self._rollout not in _SAME_TRIAL:
            environments.check_same_as_rank_0(self._rollout.engine, fingerprints)
            _SAME_TRIAL.add(self._rollout)

    def evaluate(self, serial: int, batch: EpisodeBatch) -> None:
        """Begin to play the episodes of a chunk; `tick` plays them."""
        assert self._rollout is not None
        if serial != self._serial:  # the last job is finished or was stopped, so no rank waits for its results
            self._switch_job(serial)
        with self._timed():
            if not len(batch.genomes):  # the chunk names genomes by number
                genomes = select(self._shared.genomes(), batch.genome_ids.astype(np.int64))
                batch = replace(batch, genomes=genomes)
            self._rollout.submit(batch)

    def tick(self) -> None:
        """Let the rollout play for a tick. Send results if they are many, or have waited for long."""
        assert self._rollout is not None
        begin = time.perf_counter()
        results = self._rollout.tick()
        now = time.perf_counter()
        self._busy_seconds += now - begin
        for failure in self._rollout.take_failures():
            self._num_failures += 1
            if self._num_failures <= MOST_FAILURES:
                self._send(messages.FailedEpisode(self._serial, failure))
        if results is not None:
            self._unsent.append(results)
            self._num_unsent += len(results)
        if self._unsent:
            # Send results when half of the work is done: rank 0 answers by the next chunk, which then arrives before
            # the other half is done. More and smaller messages would only cost rank 0 time.
            pending, held_seconds = self._rollout.pending, now - self._results_sent_at
            half_is_done = self._num_unsent >= pending
            if not pending or (half_is_done and held_seconds > SHORTEST_HELD) or held_seconds > LONGEST_HELD:
                self._send_results()

    def keep_alive(self) -> None:
        """Reset the watchdog, and send a heartbeat if one is due. Without work, disarm the watchdog instead."""
        if self.idle:
            self.disarm()
        else:
            self._show_progress()

    def _show_progress(self) -> None:
        """Reset the watchdog, and send a heartbeat if one is due."""
        self._watchdog.pat()
        if time.perf_counter() - self._sent_at > self._longest_silence:
            self._send_heartbeat()

    def disarm(self) -> None:
        """Disarm the watchdog, because this process plays no episodes now."""
        self._watchdog.disarm()

    def _switch_job(self, serial: int) -> None:
        """Drop the episodes and the results of the last job, but keep its busy seconds. serial: The next job."""
        assert self._rollout is not None
        self._serial = serial
        self._unsent, self._num_unsent = [], 0
        self._num_failures = 0
        self._rollout.clear()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the time of the block to the busy seconds."""
        begin = time.perf_counter()
        yield
        self._busy_seconds += time.perf_counter() - begin

    @contextmanager
    def _generating(self) -> Iterator[None]:
        """Pause the watchdog while the block generates genomes; then watch the resets of the episodes that begin."""
        with self._watchdog.paused():
            yield
        # Do not call `keep_alive`: these episodes are no longer in the queue and not yet in slots, so `idle` may be
        # True, and `keep_alive` would disarm the watchdog.
        self._show_progress()

    def _send(self, message: Message) -> None:
        self._sent_at = time.perf_counter()
        _send(self._transport, message)

    def _send_heartbeat(self) -> None:
        self._send(messages.Heartbeat())

    def _send_results(self) -> None:
        assert self._rollout is not None
        results = sum_traces(join(self._unsent))
        self._send(messages.ChunkResults(self._serial, self._busy_seconds, self._rollout.environment_seconds, results))
        self._results_sent_at = self._sent_at
        self._unsent, self._num_unsent = [], 0
        self._busy_seconds = 0.0
        self._rollout.environment_seconds = 0.0
        self.expects_message = True


def serve(
    transport: Transport,
    make_rollout: MakeRollout,
    signalled: Callable[[], int | None],
    shared: SharedState,
    before_leaving: Callable[[], None] = lambda: None,
) -> bytes:
    """Work until the coordinator dismisses this worker; return the answer in its `Dismiss` message.

    Raises RunError if rank 0 was lost, or has ended its script. The worker sends a report of any other failure to the
    coordinator (`error_report`). Then it waits for another setup or for its dismissal.

    Args:
        transport: Connects this worker with the coordinator.
        make_rollout: Makes a rollout from the experiment's TOML text.
        signalled: Returns the signal that asked this process to stop, or None. The worker sends the first signal to the
            coordinator.
        shared: The state that the coordinator updates.
        before_leaving: Closes the environments. Called before this worker confirms that it leaves, because `close` may
            hang, and the coordinator waits only for a short time.
    """
    worker = Worker(transport, make_rollout, shared)
    try:
        answer = _serve(worker, transport, signalled, shared)
    finally:
        worker.disarm()
    before_leaving()
    _send(transport, messages.Dismiss(np.zeros(0, np.uint8)))  # confirms that this worker leaves
    transport.flush(patience=5.0)
    return answer.tobytes()


def _serve(worker: Worker, transport: Transport, signalled: Callable[[], int | None], shared: SharedState) -> Buffer:
    """Handle the coordinator's messages until a `Dismiss` arrives; return its answer."""
    failed = False
    signal_was_sent = False
    kept_alive_at = -math.inf  # the time of the last `keep_alive`
    probed_at = -math.inf  # the time of the last probe that found no message
    while True:
        message = None
        # A probe costs as much as several steps. So while a worker plays, it probes only every `PROBE_EVERY` seconds,
        # or every `PROBE_RARELY` seconds if it expects no message. Without anything to play it probes each time.
        now = time.perf_counter()
        if failed or worker.idle or now - kept_alive_at > PROBE_EVERY:
            worker.keep_alive()
            kept_alive_at = now
            if failed or worker.idle or worker.expects_message or now - probed_at > PROBE_RARELY:
                message = _receive(transport)
                # A job begins with two chunks, so another message may follow a message: do not wait `PROBE_RARELY`.
                probed_at = now if message is None else -math.inf
        if isinstance(message, messages.Dismiss):
            return message.answer
        signal = signalled()
        if signal is not None and not signal_was_sent:
            signal_was_sent = True
            _send(transport, messages.StopRequest(signal))
        if isinstance(message, messages.Setup):  # a worker that has failed can work again after a setup
            failed = False
        try:
            # A worker that has failed ignores all other messages, but still kills a rank of its host.
            if message is not None and (not failed or isinstance(message, messages.Kill)):
                worker.handle(message)
                worker.keep_alive()
            if not failed and not worker.idle:
                worker.tick()
            elif message is None:
                transport.backoff()
        # The coordinator prints a report of everything that an environment raises, even SystemExit.
        except BaseException:
            failed = True
            shared.reset()
            _send(transport, messages.WorkerError(error_report(transport)))


def _send(transport: Transport, message: Message) -> None:
    transport.send(COORDINATOR, messages.encode(message))


def _receive(transport: Transport) -> Message | None:
    """Return the next message of rank 0; None if there is none. Raises RunError if rank 0 will send no more."""
    received = transport.probe()
    transport.find_lost()
    message = None if received is None else messages.decode(received[1])
    # Rank 0 sends `Ended` only once. Remember it, because a script may catch the error below and call evolve again.
    if isinstance(message, messages.Ended):
        transport.ended.add(COORDINATOR)
    if COORDINATOR in transport.ended:
        raise RunError("rank 0 has ended its script, and this rank waits for it: call evolve on all ranks")
    if COORDINATOR in transport.gone:
        raise RunError("rank 0 was lost: there is no coordinator to work for")
    return message
