"""The fuzz bench: damaged and hostile run files and experiments have to be read or refused, and nothing else.

    python benchmarks/fuzz.py --files 100000 --texts 1000000 --flips 20000 --runs 1000

`--files`: structural mutations of a run file (wrong types, shapes and sizes, links, missing and foreign objects) are
read as the commands read them. `--texts`: TOML documents and --set strings. Each has to end as a value or as a plain
error, within 30 seconds, without an import, a compilation, a process or a connection (an audit hook watches), in at
most 500 MB. `--flips`: some bytes changed, or a sector empty, in processes of their own, since the HDF5 library may
crash on them: its crashes are reported only. `--runs`: random experiments, which have to give the same file in one go,
resumed after any generation, after each, and after SIGKILL, prolonged, in three threads, on two or three workers, and
by NumPy (not long episodes of rigid bodies), and have to pass all ways to verify them, also by the other engine where
two engines play the same episodes. Exit code 1 if this package reacted wrongly to a file or a text, took more memory,
or if a run differs.
"""

import argparse
import io
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from rich.cells import cell_len

import evolve
import evolve.display  # a verdict imports it when it is shown, which must not count as code of a file
from evolve import store
from evolve.cli.app import launch
from evolve.cli.run import load
from evolve.config import Config, parse, read_table, set_key
from evolve.environments.exact import TASKS
from evolve.errors import EvolveError, InputError
from evolve.networks import NETWORKS
from evolve.shapes import ceil_div
from evolve.strategies import STRATEGIES
from evolve.training import Experiment, load_config, prepare, restore, validate_new_run
from evolve.training.plan import plan_from_arguments
from evolve.verification import choose_episode, compare

MOST_MEMORY = 500e6
MOST_SECONDS = 30  # the machine may be busy
WATCHED = {"exec", "compile", "import", "subprocess.Popen", "os.system", "os.exec", "os.fork", "pickle.find_class",
           "socket.connect", "ctypes.dlopen", "os.remove", "os.rename"}  # fmt: skip


class LateError(BaseException):
    """Reading takes too long. It is no Exception, so that the code which reads cannot take it for an error of the file.

    A TimeoutError would be an OSError, for which a file is refused.
    """


class Guard:
    """Watches a process while it reads untrusted data: the time, and any attempt to run code."""

    def __init__(self) -> None:
        self.armed, self.seen = False, ""
        cell_len("語")  # rich imports its table of wide characters with the first of them
        sys.addaudithook(self._hear)
        signal.signal(signal.SIGALRM, self.late)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.armed and event in WATCHED:
            self.seen = f"{event} {arguments!r}"[:300]

    def late(self, _number: int, _frame: Any) -> None:
        """Raise LateError; the handler of SIGALRM."""
        raise LateError(f"still reading after {MOST_SECONDS} s")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch a block; an attempt to run code in it raises PermissionError."""
        self.seen, self.armed = "", True
        signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.armed = False
        if self.seen:
            raise PermissionError(f"would run code: {self.seen}")


# Makers of objects that may take the place of any other: (group, name, draw) -> None.
def _numbers(group: h5py.Group, name: str, draw: random.Random) -> None:
    shape = tuple(draw.choice([0, 1, 2, 3, 7, 50]) for _ in range(draw.randint(0, 4)))
    dtype = draw.choice(["f8", "f4", "i4", "i8", "u1", "?", "S64", "S1", ">f8", "f2", "i2", "u8"])
    group.create_dataset(name, data=np.zeros(shape, dtype))


def _claimed(group: h5py.Group, name: str, draw: random.Random) -> None:
    shape = (draw.choice([10**6, 10**9, 10**12]), draw.choice([1, 1000]), 1)[: draw.randint(1, 3)]
    group.create_dataset(name, shape, draw.choice(["f8", "i4", "S64"]))  # nothing is stored


def _bomb(group: h5py.Group, name: str, draw: random.Random) -> None:
    group.create_dataset(name, (2000, 500), "f8", chunks=(1000, 500), compression="gzip", fillvalue=draw.random())
    group[name][:1000] = 0


def _texts(group: h5py.Group, name: str, draw: random.Random) -> None:
    group.create_dataset(name, data=["x" * draw.choice([0, 9, 5000])] * 3, dtype=h5py.string_dtype())


def _opaque(group: h5py.Group, name: str, draw: random.Random) -> None:
    dtype = draw.choice([np.dtype([("a", "f4"), ("b", "S9")]), h5py.ref_dtype, h5py.vlen_dtype(np.int32),
                         h5py.enum_dtype({"no": 0, "yes": 1}), h5py.opaque_dtype(np.dtype("M8[s]"))])  # fmt: skip
    group.create_dataset(name, (3,), dtype)


def _elsewhere(group: h5py.Group, name: str, draw: random.Random) -> None:
    soft = [h5py.SoftLink("/generation"), h5py.SoftLink(f"/{name}"), h5py.SoftLink("/nowhere")]
    group[name] = draw.choice([h5py.ExternalLink("/etc/passwd", "/"), h5py.ExternalLink("other.h5", "/x"), *soft])


def _stored_elsewhere(group: h5py.Group, name: str, draw: random.Random) -> None:
    if draw.random() < 0.5:
        group.create_dataset(name, (8,), "u1", external=[("/etc/passwd", 0, 8)])
        return
    layout = h5py.VirtualLayout((4, 3), "f8")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4, 3))
    group.create_virtual_dataset(name, layout)


def _group(group: h5py.Group, name: str, draw: random.Random) -> None:
    made = group.create_group(name)
    if draw.random() < 0.5:
        made["again"] = group  # a loop
    elif draw.random() < 0.3:
        for number in range(1500):
            made[f"x{number}"] = np.zeros(1)


def _type(group: h5py.Group, name: str, _draw: random.Random) -> None:
    group[name] = np.dtype("f8")


def _empty(group: h5py.Group, name: str, _draw: random.Random) -> None:
    group[name] = h5py.Empty("f4")


FOREIGN = [_numbers, _numbers, _claimed, _bomb, _texts, _opaque, _elsewhere, _stored_elsewhere, _group, _type, _empty]


def _names(file: h5py.File) -> list[str]:
    found: list[str] = []
    file.visit(found.append)
    return found


def _forget(file: h5py.File, draw: random.Random) -> None:
    del file[draw.choice(_names(file))]


def _swap(file: h5py.File, draw: random.Random) -> None:
    """Put a foreign object in the place of an object of the file, or beside it."""
    name = draw.choice([*_names(file), "surprise", "checkpoint/surprise", "generation/surprise"])
    if name in file:
        del file[name]
    parent, _, last = name.rpartition("/")
    draw.choice(FOREIGN)(file[parent or "/"], last, draw)


def _reshape(file: h5py.File, draw: random.Random) -> None:
    """Give a dataset other bounds, another type or other numbers."""
    name = draw.choice([n for n in _names(file) if isinstance(file.get(n), h5py.Dataset) and file[n].nbytes < 10**6])
    array = np.atleast_1d(file[name][()])
    match draw.randrange(5):
        case 0:
            array = array[: draw.randint(0, len(array))]
        case 1:
            array = np.repeat(array, 2, axis=draw.randrange(array.ndim))
        case 2:
            array = array[None]
        case 3 if array.dtype.kind in "fiu":
            array = array.astype(draw.choice(["f8", "f4", "i8", "i4", "u1"]))
        case 4 if array.dtype.kind == "f" and array.size:
            array.flat[draw.randrange(array.size)] = draw.choice([np.nan, np.inf, -1e300, 0])
        case _:
            array = np.full_like(
                array, draw.choice([b"zz", b"\xff"]) if array.dtype.kind == "S" else draw.choice([0, 1])
            )
    del file[name]
    file[name] = array


NASTY = [
    0, -1, 1, 2, 2**31, 2**63 - 1, -(2**63), 1.5, float("nan"), True, "", "x", "population = 3", "[", "\x00a",
    "é" * 9, b"\xff\xfe", np.zeros(3), np.zeros((0,)), np.array([b"a"]), "a" * 60_000, "[" * 5000, "{}", "[]",
    '{"a": 1e999}', '{"a":' * 2000, "a." * 30_000 + "b = 1", "x = 0x" + "f" * 9000, "network = 3", "seeds = [1,1]",
]  # fmt: skip


def _attribute(file: h5py.File, draw: random.Random) -> None:
    where = draw.choice([file, file, file, file.get("checkpoint", file)])
    name = draw.choice(["schema", "config", "manifest", "seed", "env", "complete", "num_generations"])
    if name in where.attrs:
        del where.attrs[name]
    if draw.random() < 0.8:
        value = draw.choice([*NASTY, h5py.Empty("f4")])
        where.attrs.create(name, np.bytes_(value) if isinstance(value, bytes) else value)


MUTATIONS: list[Callable[[h5py.File, random.Random], None]] = [
    _forget,
    _swap,
    _swap,
    _reshape,
    _reshape,
    _attribute,
    _attribute,
]


def mutate(image: bytes, draw: random.Random) -> bytes:
    """Return a run file with one to three structural changes."""
    buffer = io.BytesIO(image)
    with h5py.File(buffer, "r+") as file:
        for _ in range(draw.choice([1, 1, 2, 3])):
            try:
                draw.choice(MUTATIONS)(file, draw)
            except Exception:  # an earlier change may be in the way of a later one
                continue
    return buffer.getvalue()


def open_run(path: Path, base: store.StoredRun, experiment: Experiment) -> str:
    """Read a run file as the commands do before they evaluate it; return the outcome."""
    try:
        run = store.read(path)
        compare(base, run, play=False).to_text()
        load_config(run.header.config, str(path))
        restore(experiment, run)
        choose_episode(run, experiment)
        return "read"
    except EvolveError:
        return "refused"


WORDS = [
    "population", "episodes", "seeds", "env", "id", "kwargs", "network", "name", "hidden", "strategy", "compute", "x",
    "generations", "output", "directory", "wrappers", "time_limit", "survivors", "max_episode_seconds",
]  # fmt: skip
VALUES = [
    "1", "-1", "0", "99999999999999999999", "1e400", "nan", "inf", "true", '"x"', '""', "[]", "{}", "[1, 2]", "[[1]]",
    '"CartPole-v1"', '"os:system"', '"hebbian-dag"', '"prune"', "0x" + "f" * 5000, "1" * 5000, "[" * 3000,
    "{a=" * 3000, '"\\u0000"', '"\\ud800"', "'" * 3, '"""', "1979-05-27", "2.5",
    "[{name='gymnasium.wrappers:TimeLimit'}]", "{a.b.c=1}", ".".join("a" * 40) + "=1", "  ", "#", "\x00", "\u202e",
    "é", "=", "\n", "[a]", "[[a]]", ",",
]  # fmt: skip


def _key(draw: random.Random) -> str:
    return ".".join(draw.choices(WORDS, k=draw.randint(1, 3)))


def _line(draw: random.Random) -> str:
    return f"{draw.choice(['', '[', '[['])}{_key(draw)}{draw.choice([' = ', ']', ']]', '='])}{draw.choice(VALUES)}"


def experiment_text(base: str, draw: random.Random) -> str:
    """Return a TOML document, or a text that resembles one."""
    if draw.random() < 0.5:
        return "\n".join(_line(draw) for _ in range(draw.randint(1, 6)))
    parts = base.splitlines()
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(parts))
        match draw.randrange(4):
            case 0:
                parts[at] = f"{parts[at].partition('=')[0]}= {draw.choice(VALUES)}"
            case 1:
                parts.insert(at, draw.choice(parts))
            case 2:
                parts[at] = parts[at][: draw.randint(0, len(parts[at]))] + draw.choice(VALUES)
            case 3:
                del parts[at]
                parts = parts or [""]
    return "\n".join(parts)


def open_text(text: str) -> str:
    """Validate an experiment; return the outcome."""
    try:
        config = parse(Config, read_table(text, "it"))
        read_table(config.to_toml(), "it")
        return "read"
    except InputError as error:
        if "\n" in str(error) or len(str(error)) > 10_000:
            raise AssertionError(f"not one plain line: {error}") from None
        return "refused"


def open_override(text: str) -> str:
    """Parse a command line with a --set; return the outcome."""
    try:
        load(["--set", text])
        return "read"
    except EvolveError:
        return "refused"


def flip(image: bytes, draw: random.Random) -> bytes:
    """Return a run file with one to eight bytes changed, or with one sector or page empty, as after a crash."""
    changed = bytearray(image)
    if draw.random() < 0.3:
        size = draw.choice([512, 4096])
        begin = draw.randrange(ceil_div(len(changed), size)) * size
        changed[begin : begin + size] = bytes(len(changed[begin : begin + size]))
        return bytes(changed)
    for _ in range(draw.choice([1, 1, 2, 8])):
        changed[draw.randrange(len(changed))] = draw.choice([0, 255, draw.randrange(256)])
    return bytes(changed)


def _flips(image: bytes, seed: int, n: int, path: Path, pipe: Any) -> None:
    """Read n damaged files in a process of its own, and report each outcome at once."""
    draw = random.Random(seed)
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):  # they have to work inside HDF5, too
        signal.signal(number, signal.SIG_DFL)
    for _ in range(n):
        path.write_bytes(flip(image, draw))
        signal.alarm(MOST_SECONDS)  # it is not caught: the process ends
        try:
            store.read(path)
            pipe.send("read")
        except EvolveError:
            pipe.send("refused")
        except BaseException as error:  # this package should have caught it: counted as its crash
            pipe.send(f"ours: {type(error).__name__}: {error}")
        signal.alarm(0)
    pipe.send(peak_kilobytes())


def peak_kilobytes() -> int:
    """Return the peak memory of this process; ru_maxrss would include the peak of its parent."""
    return int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0])


def flips(image: bytes, n: int, folder: Path, seed: int) -> Counter[str]:
    """Read n damaged files; count the outcomes, and what ended the process. The first process draws from `seed`."""
    counts: Counter[str] = Counter()
    done = 0
    while done < n:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(
            target=_flips, args=(image, seed, min(500, n - done), folder / "flip.h5", theirs)
        )
        child.start()
        theirs.close()
        try:
            while True:
                if not ours.poll(MOST_SECONDS):
                    child.kill()  # the library itself may search a damaged file forever
                answer = ours.recv()
                if isinstance(answer, int):
                    counts["peak MB"] = max(counts["peak MB"], answer // 1000)
                else:
                    counts[answer] += 1
                    done += 1
        except EOFError:
            child.join()
        if code := child.exitcode:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            counts[f"ended by {how}"] += 1
            done += 1
        seed += 1
    return counts


def base_run(folder: Path) -> Path:
    """Make an undamaged run file."""
    words = "-p 4 -r 2 -g 3 -d 2 --set held_out_episodes=3 -s 0 --set env.max_episode_steps=9 -o"
    assert launch("run", [*words.split(), str(folder)]) == 0
    return folder / "seed-0.h5"


def trials(n: int, what: str, one: Callable[[int], str], guard: Guard, failures: list[str]) -> Counter[str]:
    """Call a function n times; count the outcomes, and remember those that are wrong."""
    counts: Counter[str] = Counter()
    worst = 0.0
    for number in range(n):
        begin = time.perf_counter()
        try:
            with guard.watching():
                counts[one(number)] += 1
        except KeyboardInterrupt:
            raise
        except BaseException:
            counts["wrong"] += 1
            if len(failures) < 20:
                failures.append(f"{what} {number}: {traceback.format_exc()[-1500:]}")
        worst = max(worst, time.perf_counter() - begin)
    counts["slowest ms"] = round(1000 * worst)
    return counts


WORLDS = [name for name, task in TASKS.items() if task.has_world]

# Each random experiment has a value of all of these settings,
ALWAYS: dict[str, Any] = {
    "env.engine": ["exact", "exact", "gymnasium"], "env.id": [*TASKS, "Taxi-v4", "FrozenLake-v1"],
    "env.max_episode_steps": [5, 12, 30, 120], "network.name": list(NETWORKS),
    "network.hidden": [[1], [2], [3], [2, 2]],
    "strategy.name": list(STRATEGIES), "population": [2, 3, 4, 5, 8, 9, 16], "episodes": [1, 2, 3, 5],
    "generations": [3, 5, 8], "held_out_episodes": [0, 3], "compute.check": [False],
}  # fmt: skip
# and of some of these groups, as far as its network and its strategy have them.
SOMETIMES: list[dict[str, Any]] = [
    {"common_random_numbers": [True, "pairs"]}, {"fitness": ["min", "median", "quantile:0.25"]},
    {"normalize_observations": [True], "env.metrics": [[], ["mean_observation_0"]]}, {"compute.slots": [1, 7]},
    {"normalize_observations": [True], "normalizer_generations": [1, 2]}, {"connection_cost": [0.5, 100.0]},
    {"racing.rounds": [[1], [1, 2], [3]], "racing.keep": [0.1, 0.9]}, {"episode_cap": [1.1, 2.0]},
    {"early_max_episode_steps": [2, 4], "early_generations": [1, 2, 4]}, {"evaluation_max_episode_steps": [3, 20]},
    {"least_population": [2, 4], "num_interactions": [1, 30, 200]}, {"output.genomes": ["all"]},
    {"early_stop.mean_return": [-4.0, 10.0, 1e9], "early_stop.every": [1, 2], "early_stop.episodes": [2]},
    {"early_stop.steps": [300]}, {"network.plasticity": [0.2]}, {"network.neuromodulated": [True]},
    {"network.init_sparsity": [0.0, 0.9]}, {"strategy.survivors": [1, 9]}, {"strategy.prior_evaluations": [1, 5]},
    {"strategy.parents": [1, 2, 5]}, {"strategy.regrowth": [0.1, 1.0]}, {"strategy.trusted": [2]},
    {"strategy.uniform_pruning": ["adaptive", 1.0]}, {"strategy.emitters": [1, 2]}, {"strategy.cells": [[3]]},
    {"strategy.fitness_shaping": ["scaled"]}, {"strategy.optimizer": ["clipup"]}, {"strategy.perturbation_rank": [1]},
    {"strategy.pruning": [0.3, 1.0], "strategy.pruning_generations": [1, 4],
     "strategy.pruning_by": ["random", "flow", "trace", "magnitude"]},
    {"strategy.sigma_decay": [0.5, 0.99], "strategy.learning_rate_decay": [0.9, 1.0], "strategy.averaging": [0.0, 0.9],
     "strategy.constant_generations": [0, 1, 3], "strategy.constant_weight_decay": [True, False]},
    {"strategy.max_speed": [0.1, 5.0]}, {"strategy.sigma_learning_rate": [0.0, 10.0]}, {"strategy.sigma": [1e-6, 1e6]},
    {"strategy.weight_noise": [0.0, 1e6]}, {"strategy.line_noise": [0.0, 1e3]}, {"strategy.mask_noise": [0.0, 10.0]},
    {"strategy.min_probability": [0.0, 0.5]}, {"strategy.trace_pruning": [0.0, 1.0]}, {"strategy.regrowth": [0.5]},
    {"strategy.descriptors": [["connections"], ["mean_observation_0", "acting_connections"]],
     "normalize_observations": [True], "env.metrics": [["mean_observation_0"]]},
    {"strategy.minimize": [[], ["connections"], ["mean_observation_0", "acting_connections"]],
     "strategy.maximize": [[], ["mean_observation_1"]], "normalize_observations": [True],
     "env.metrics": [["mean_observation_0", "mean_observation_1"]]},
    {"network.rules": ["neuron", "layer"], "network.max_norm": [True], "network.update_every": [3]},
    {"network.trace_rate": [-1.0, 30.0], "network.trace_limit": [0.1]}, {"network.init_scale": [1e-3, 1e3]},
    {"env.randomize.length": [{"uniform": [0.1, 2.0]}, {"choice": [0.5, 1.0]}], "evaluation_randomize": [{}]},
    {"env.randomize.g": [{"log_uniform": [1.0, 20.0]}], "evaluation_randomize.m": [{"uniform": [0.5, 2.0]}]},
    {"env.action_scale": [0.1]}, {"seeds": [[2**31], [2**63 - 1]]}, {"normalizer_generations": [0, 2]},
    {"strategy.starts": [2, 3], "strategy.start_generations": [1, 2]},
    {"strategy.starts": [3], "strategy.start_generations": [1, 2], "strategy.finalists": [2]},
    {"strategy.initial_radius": [1e-3, 1e6], "strategy.smallest_sigma": [1e-6], "strategy.max_sigma_change": [0.9]},
    {"strategy.weight_decay": [0.0, 0.5], "strategy.learning_rate": [1e-6, 1e3]}, {"strategy.momentum": [0.0, 0.999]},
    {"strategy.restart_after": [1, 2, 3], "strategy.restart_from": ["best", "anew"]},
    {"strategy.pruning_every": [1, 2, 4, 7], "strategy.pruning_control": [True, False],
     "strategy.pruning_by": ["signal-to-noise", "magnitude", "random"], "strategy.pruning_keep": [0.01, 0.5]},
]  # fmt: skip


def options_of(network: str, strategy: str) -> set[str]:
    """Return the settings of the options of a network and a strategy, also of options that have no value by default."""
    options = {
        "network": NETWORKS.options_class({"name": network}),
        "strategy": STRATEGIES.options_class({"name": strategy}),
    }
    return {f"{section}.{key}" for section, model in options.items() for key in model.model_fields}


def random_experiment(draw: random.Random) -> dict[str, Any]:
    """Return the table of a valid experiment."""
    while True:
        settings = {key: draw.choice(values) for key, values in ALWAYS.items()}
        known = options_of(settings["network.name"], settings["strategy.name"])
        for group in SOMETIMES:
            has_group = all(key in known or not key.startswith(("network.", "strategy.")) for key in group)
            if has_group and draw.random() < 0.25:
                settings |= {key: draw.choice(values) for key, values in group.items()}
        table: dict[str, Any] = {}
        for key, value in settings.items():
            set_key(table, key, value)
        try:
            plan = plan_from_arguments(table, None, None, {})
            validate_new_run(plan.experiment)
            plan.experiment.strategy(plan.seed)
            return table
        except InputError:
            continue


def contents(path: Path) -> dict[str, Any]:
    """Return the arrays of a run file, without times."""
    with h5py.File(path) as file:
        arrays = {name: file[name] for name in _names(file) if isinstance(file[name], h5py.Dataset)}
        return {
            name: (each.shape, str(each.dtype), each[()].tobytes())
            for name, each in arrays.items()
            if not name.endswith("seconds")
        }


def _killed(table: dict[str, Any], after: int, folder: Path) -> None:
    """Run an experiment in a process of its own, which SIGKILL ends after a number of generations."""

    def kill(generation: Any) -> None:
        if generation.number + 1 == after:
            os.kill(os.getpid(), signal.SIGKILL)

    arguments = {"output": folder, "callbacks": [kill], "compute": {"threads": 1}}
    child = multiprocessing.get_context("fork").Process(target=evolve.train, args=(table,), kwargs=arguments)
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL), child.exitcode


def _begun(table: dict[str, Any], draw: random.Random, folder: Path) -> dict[str, Any]:
    """Return the experiment; or, one time in four, the experiment with the champion of a short run as its start."""
    if draw.random() < 0.75:
        return table
    source = evolve.train(table, output=folder / "source", seed=7, generations=2, early_stop={})
    generation = draw.choice([{}, {"generation": 0}])
    begun = {**table, "start_from": {"file": str(source.path), **generation}}
    if "normalizer_generations" in table:
        begun["normalizer_generations"] = draw.choice([0, table["normalizer_generations"]])
    try:
        validate_new_run(plan_from_arguments(begun, None, None, {}).experiment)
    except InputError:
        return table
    return begun


def compare_runs(table: dict[str, Any], draw: random.Random, folder: Path) -> None:
    """Run an experiment in several ways, and verify it. Raises AssertionError if any of them differs."""
    table = _begun(table, draw, folder)
    whole = evolve.train(table, output=folder / "whole", compute={"threads": 1})
    expected, G = contents(whole.path), len(whole.generations)
    stop = draw.randint(1, G)
    for number in range(G):  # one generation in each
        evolve.train(table, output=folder / "single", resume=number > 0, callbacks=[lambda _: False])
    workers = [draw.choice([None, None, None, 2, 3]) for _ in range(2)]  # before a stop, and after it
    before = [lambda generation: generation.number + 1 < stop]
    evolve.train(table, output=folder / "parts", callbacks=before, workers=workers[0])
    evolve.train(table, output=folder / "longer", generations=stop)
    _killed(table, stop, folder / "killed")
    others: dict[str, dict[str, Any]] = {name: {"resume": True} for name in ("single", "longer", "killed")}
    others |= {"parts": {"resume": True, "workers": workers[1]}, "threads": {"compute": {"threads": 3}}}
    env = table["env"]
    if env["engine"] == "gymnasium" or env["id"] not in WORLDS or env["max_episode_steps"] == 5:
        others["numpy"] = {"compute": {"backend": "numpy"}}  # 25 ms for each step of a world
    for name, arguments in others.items():
        other = evolve.train(table, output=folder / name, **arguments)
        found = contents(other.path)
        different = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
        assert not different, f"{name}, stopped after {stop}, workers {workers}: {sorted(different)}"
    ways = [[], ["--full"], [str(folder / "parts")], [str(folder / "longer")]]
    if env["id"] in WORLDS:  # both engines play the same episodes
        ways.append(["--engine", "exact" if env["engine"] == "gymnasium" else "gymnasium"])
    for words in ways:
        with redirect_stdout(io.StringIO()) as said:
            assert launch("verify", [str(whole.path), *words]) == 0, f"verify {words}: {said.getvalue()}"


def runs(n: int, draw: random.Random, folder: Path, failures: list[str]) -> Counter[str]:
    """Compare the runs of n random experiments; count the outcomes."""
    counts: Counter[str] = Counter()
    for number in range(n):
        table = random_experiment(draw)
        with tempfile.TemporaryDirectory(dir=folder) as own:
            try:
                compare_runs(table, draw, Path(own))
                counts["equal"] += 1
            except Exception:
                counts["wrong"] += 1
                failures.append(f"run {number}: {json.dumps(table)}: {traceback.format_exc()[-1500:]}")
    return counts


def main() -> int:
    """Fuzz as much as asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("files", 2000), ("texts", 20_000), ("flips", 500), ("runs", 20)):
        parser.add_argument(f"--{name}", type=int, default=count, help=f"how many ({count})")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")
    resource.setrlimit(resource.RLIMIT_AS, (8 * 10**9, 8 * 10**9))  # so that a mistake ends only this process
    failures: list[str] = []
    figures: dict[str, Any] = {}
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        folder = Path(name)
        image = base_run(folder).read_bytes()
        base, path = store.read(folder / "seed-0.h5"), folder / "mutated.h5"
        experiment = prepare(load_config(base.header.config))
        figures["flips"] = flips(image, arguments.flips, folder, 10**6 * arguments.seed)  # before this process grows
        guard, draws = Guard(), [random.Random(f"{arguments.seed} {kind}") for kind in range(3)]
        open_run(folder / "seed-0.h5", base, experiment), open_text("x = 1"), open_override("x=1"), open_text("")
        with guard.watching():
            pass

        def file(_number: int) -> str:
            guard.armed = False
            path.write_bytes(mutate(image, draws[0]))
            guard.armed = True
            return open_run(path, base, experiment)

        figures["files"] = trials(arguments.files, "file", file, guard, failures)
        half = arguments.texts // 2
        figures["TOML"] = trials(
            half, "TOML", lambda _: open_text(experiment_text(base.header.config, draws[1])), guard, failures
        )
        overrides = (f"{_key(draws[2])}={draws[2].choice(VALUES)}" for _ in range(half))
        figures["--set"] = trials(half, "--set", lambda _: open_override(next(overrides)), guard, failures)
        figures["runs"] = runs(arguments.runs, random.Random(f"{arguments.seed} runs"), folder, failures)
    figures["peak MB"] = peak_kilobytes() // 1000
    print(json.dumps(figures))
    ours = sum(count for what, count in figures["flips"].items() if what.startswith("ours"))
    for text in failures:
        print(text, file=sys.stderr)
    return 1 if failures or ours or figures["peak MB"] * 1e6 > MOST_MEMORY else 0


if __name__ == "__main__":
    sys.exit(main())
