"""What all commands share: a list of them, and help with examples."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment

COMMANDS = ("run", "verify", "replay", "evaluate", "plot", "report", "bench")


def evolve(*words):
    words = [sys.executable, "-m", *words]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=30, check=False)


def test_the_commands_are_listed():
    done = evolve("evolve")
    assert (done.returncode, done.stderr) == (0, "")
    assert tuple(re.findall(r"^  python -m evolve\.(\w+) ", done.stdout, re.M)) == COMMANDS
    runnable = {p.stem for p in Path(ROOT / "evolve").glob("*.py") if 'if __name__ == "__main__"' in p.read_text()}
    assert runnable - {"__main__"} | {"bench"} == set(COMMANDS)


@pytest.mark.parametrize(
    ("word", "cure"), [("verify", "python -m evolve.verify --help"), ("walk", "Known: run verify")]
)
def test_a_command_is_not_an_argument(word, cure):
    done = evolve("evolve", word)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert cure in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_an_example(name):
    done = evolve(f"evolve.{name}", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    examples = done.stdout.rpartition("\nexample")[2]
    assert f"python -m evolve.{name} " in examples


def test_output_that_cannot_be_written_is_told_plainly():
    words = [sys.executable, "-m", "evolve.verify", "--help"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            words, env=environment(PYTHONUNBUFFERED=None), stdout=full, stderr=-1, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "evolve.verify: the output cannot be written ([Errno 28] No space left on device).\n"


def test_an_interrupt_during_the_imports_leaves_no_traceback(tmp_path):
    (tmp_path / "h5py.py").write_text("import sys, time\nprint('here', flush=True)\ntime.sleep(30)\n")
    env = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    words = [sys.executable, "-m", "evolve.run", "-g", "3"]
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert (process.returncode, err) == (-signal.SIGINT, "")


@pytest.mark.parametrize("words", [("-c", "import theirs"), ("-m", "theirs.command", "-m", "evolve.run")])
def test_as_a_library_we_leave_signals_alone(tmp_path, words):
    (tmp_path / "theirs").mkdir()
    said = "import signal\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    (tmp_path / "theirs" / "__init__.py").write_text(f"import sys\nimport evolve\n{said}")
    (tmp_path / "theirs" / "command.py").write_text(said)
    env = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    subprocess.run([sys.executable, *words], env=env, check=True, timeout=30)
