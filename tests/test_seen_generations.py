"""The generations that a script has seen are in its run file when the script ends, and the exit adds no message.

After a sudden end, as by a kill, the run file has the first of them, and the run can be resumed.
"""

import signal
import sys
from contextlib import suppress
from pathlib import Path

import h5py
import psutil
import pytest
from conftest import finished, launcher, wait_for

import evolve

SETTINGS = {
    "env": {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 20},
    "network": "mlp",
    "population": 4,
    "episodes": 1,
    "generations": 30,
    "held_out_episodes": 0,
    "seed": 1,
}
NAME = Path("out") / "seed-1.h5"

BEGIN = f"""
import atexit, builtins, ctypes, gc, os, signal, sys, threading, warnings
import evolve

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

def see(generation):
    with open("seen", "a") as file:
        print(generation.digest, file=file)

def iterate(output="out", **more):
    return evolve.iterate(**{SETTINGS}, output=output, **more)

def take(generations, last=2):
    for generation in generations:
        see(generation)
        if generation.number == last:
            break

def train(end, **more):
    def callback(generation):
        see(generation)
        if generation.number == 2:
            return end()
    evolve.train(**{SETTINGS}, output="out", callbacks=[callback], **more)

def kill(number=signal.SIGKILL):
    os.kill(os.getpid(), number)

def fail():
    raise ValueError("enough")

generations = iterate()
"""

AT_WORK = """
def work():
    take(generations)
    event.set()
    take(generations, last=29)

event = threading.Event()
threading.Thread(target=work, daemon=True).start()
event.wait()
"""

ERROR = "ValueError: enough"
# The script after BEGIN, and its end: a silent one with an exit code, or a traceback with a last line.
SCRIPTS: dict[str, tuple[str, int | str]] = {
    "end of the script": ("take(generations)", 0),
    "sys.exit": ("take(generations); sys.exit(0)", 0),
    "os._exit": ("take(generations); os._exit(0)", 0),
    "SIGKILL": ("take(generations); kill()", -signal.SIGKILL),
    "SIGTERM": ("take(generations); kill(signal.SIGTERM)", -signal.SIGTERM),
    "segmentation fault": ("take(generations); ctypes.string_at(0)", -signal.SIGSEGV),
    "another program": ("take(generations); os.execv(sys.executable, [sys.executable, '-c', ''])", 0),
    "exception": ("take(generations); fail()", ERROR),
    "exception in a function": ("def work():\n    take(iterate())\n    fail()\nwork()", ERROR),
    "exception thrown in": ("take(generations); generations.throw(ValueError('enough'))", ERROR),
    "KeyboardInterrupt": ("take(generations); kill(signal.SIGINT)", "KeyboardInterrupt"),
    "closed": ("take(generations); generations.close(); kill()", -signal.SIGKILL),
    "collected": ("take(generations); del generations; gc.collect(); kill()", -signal.SIGKILL),
    "in a cycle": ("take(generations); cycle = [generations]; cycle.append(cycle); del cycle, generations", 0),
    "in the builtins": ("take(generations); builtins.kept = generations", 0),
    "one generation": ("see(next(generations)); kill()", -signal.SIGKILL),
    "in an atexit handler": ("see(next(generations)); atexit.register(take, generations)", 0),
    "in a thread": ("thread = threading.Thread(target=take, args=[generations]); thread.start(); thread.join()", 0),
    # Python 3.12 and later warn of a fork beside a thread.
    "forked": ("warnings.simplefilter('ignore'); take(generations)\nif os.fork() == 0:\n    sys.exit()\nos.wait()", 0),
    "resumed": ("take(generations, 1); generations.close(); take(iterate(resume=True)); kill()", -signal.SIGKILL),
    "replaced": (
        "take(generations, 1); generations.close(); os.remove('seen'); take(iterate(overwrite=True)); kill()",
        -signal.SIGKILL,
    ),
    "all genomes": ("take(iterate({'directory': 'out', 'genomes': 'all'})); kill()", -signal.SIGKILL),
    "callback, exception": ("train(fail)", ERROR),
    "callback, sys.exit": ("train(sys.exit)", 0),
    "callback, SIGKILL": ("train(kill)", -signal.SIGKILL),
    "callback, KeyboardInterrupt": ("train(lambda: kill(signal.SIGINT))", "KeyboardInterrupt"),
    "callback, False": ("train(lambda: False)", 0),
    "callback, NumPy's False": ("import numpy; train(lambda: numpy.bool_(False))", 0),
    "callback in a thread": ("threading.Thread(target=train, args=[sys.exit]).start()", 0),
}

SUDDEN = {
    "os._exit", "SIGKILL", "SIGTERM", "segmentation fault", "another program", "all genomes", "callback, SIGKILL",
    "resumed", "replaced",
}  # fmt: skip
"""The scripts that Python does not end itself."""

# The same with ranks that the script starts itself.
WORKERS: dict[str, tuple[str, int | str]] = {
    "end of the script": ("left = iterate(workers=2); take(left)", 0),
    "SIGKILL": ("left = iterate(workers=2); take(left); kill()", -signal.SIGKILL),
    "KeyboardInterrupt": ("left = iterate(workers=2); take(left); kill(signal.SIGINT)", "KeyboardInterrupt"),
    "callback, exception": ("train(fail, workers=2)", ERROR),
}


def in_file(path):
    """Return the digests that a run file holds, as plain h5py reads them."""
    with h5py.File(path) as file:
        return file["generation/digest"].asstr()[()].tolist()


def run(script, folder):
    """Run a script in a process of its own; return its exit code and its stderr."""
    done = finished([sys.executable, "-c", BEGIN + script], folder)
    return done.code, done.err


def seen(folder):
    """Return the digests that a script has seen."""
    return (folder / "seen").read_text().split()


def run_ranks(script, folder, ranks=None):
    """Run a script on ranks, or in one new process; return the digests that it has seen."""
    finished([*launcher(ranks), sys.executable, "-c", BEGIN + script], folder)
    return seen(folder)


def check_end(code, error, end):
    """Check the exit code and stderr of a script: silence, or one traceback."""
    if isinstance(end, int):
        assert (code, error) == (end, "")
    else:
        assert code != 0
        assert (error.startswith("Traceback"), error.count("Traceback")) == (True, 1), error
        assert error.splitlines()[-1] == end


@pytest.mark.parametrize("way", SCRIPTS)
def test_a_generation_that_was_seen_is_kept(way, tmp_path):
    script, end = SCRIPTS[way]
    code, error = run(script, tmp_path)
    kept, all_seen = in_file(tmp_path / NAME), seen(tmp_path)
    assert len(all_seen) == (1 if way == "one generation" else 3)
    if way in SUDDEN:
        assert kept in (all_seen[:1], all_seen[:2], all_seen)
        genomes = {"directory": tmp_path / "out", "genomes": "all" if way == "all genomes" else "champions"}
        again = evolve.iterate(**SETTINGS | {"generations": 3}, output=genomes, resume=True)
        assert kept + [generation.digest for generation in again] == all_seen
    else:
        assert kept == all_seen
    check_end(code, error, end)


def processes_in(folder):
    """Return the processes that work in a folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cwd() == str(folder):
                found.append(process)
    return found


@pytest.mark.parametrize(
    "way", ["end of the script", *(pytest.param(way, marks=pytest.mark.slow) for way in [*WORKERS][1:])]
)
def test_a_generation_of_workers_that_was_seen_is_kept_and_no_rank_stays(way, tmp_path):
    script, end = WORKERS[way]
    code, error = run(script, tmp_path)
    wait_for(lambda: not processes_in(tmp_path))  # a killed script cannot wait for its ranks
    assert in_file(tmp_path / NAME) == seen(tmp_path)
    assert len(seen(tmp_path)) == 3
    check_end(code, error, end)


def test_a_thread_at_work_does_not_keep_the_interpreter_from_its_exit(tmp_path):
    digests = run_ranks(AT_WORK, tmp_path)  # Python itself may abort such a process, so its exit code says nothing
    assert in_file(tmp_path / NAME)[: len(digests)] == digests
    assert len(digests) >= 3


def test_a_generation_that_a_worker_has_seen_is_kept(tmp_path):
    # On a busy machine a flush may take longer than the usual limit, and would then wait.
    always = "from evolve.store import writing\nwriting.CHEAP_FLUSH = 60.0\n"
    worker = "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n    take(generations, 2)\n    kill()\n"
    digests = run_ranks(f"{always}{worker}for generation in generations: pass", tmp_path, ranks=2)
    assert in_file(tmp_path / NAME)[:3] == digests


def test_a_reader_finds_a_generation_when_it_is_seen(tmp_path):
    small = SETTINGS | {"generations": 3, "output": tmp_path / "out"}
    lengths = []
    for _ in evolve.iterate(**small):
        lengths.append(len(evolve.load(tmp_path / NAME).generations))
    evolve.train(
        **small, overwrite=True, callbacks=[lambda _: lengths.append(len(evolve.load(tmp_path / NAME).generations))]
    )
    assert lengths == [1, 2, 3] * 2


def test_generations_and_evaluations_can_be_compared(tmp_path):
    settings = {"env": {"id": "CartPole-v1", "engine": "exact"}, "network": "mlp", "population": 4, "episodes": 1}
    run = evolve.train(settings, generations=2, held_out_episodes=2, seed=1, output=tmp_path)
    again = evolve.load(run.path)
    assert run.generations == again.generations
    assert run.generations[0] != run.generations[1]
    assert len({*run.generations, *again.generations}) == 2
    assert run.held_out == again.held_out
    assert run.held_out != run.evaluate(episodes=3)
