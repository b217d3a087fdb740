"""What all commands share: a list of them, help with examples, one plain message for every error, exit codes."""

import gc
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from conftest import LONG, ROOT, environment, wait_for

from evolve import __version__, errors
from evolve.cli import COMMANDS, app, main, start
from evolve.cli.app import launch
from evolve.cluster import supervision
from evolve.config import Config, parse
from evolve.errors import RunError, Setting, Stopped
from evolve.training import prepare


def evolve(*words):
    words = [sys.executable, "-m", *words]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=LONG, check=False)


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_the_commands_are_listed(capfd, monkeypatch, words):
    monkeypatch.setattr(sys, "argv", ["evolve", *words])
    main()
    said = capfd.readouterr()
    assert said.err == ""
    assert re.findall(r"^  evolve (\w+) ", said.out, re.M) == list(COMMANDS)
    modules = {p.stem for p in Path(ROOT / "evolve").glob("*.py") if 'if __name__ == "__main__"' in p.read_text()}
    # The older commands are modules of the package, too; a new command needs none.
    assert modules == {"__main__", "run", "verify", "replay", "evaluate", "plot", "report", "bench"}


def test_a_command_is_run_by_its_name_or_by_its_module():
    for words in (("evolve", "run"), ("evolve.run",)):
        done = evolve(*words, "-g", "many")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "evolve.run: -g/--generations: expected a whole number, got many.\n"


@pytest.mark.parametrize(("word", "hint"), [("walk", "Known: bench, "), ("plt", "Did you mean plot? Known: bench, ")])
def test_an_unknown_command_is_refused(capfd, monkeypatch, word, hint):
    monkeypatch.setattr(sys, "argv", ["evolve", word])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capfd.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert f"expected a command, got '{word}'. {hint}" in said.err


def test_a_directory_that_was_removed_is_no_place_for_a_command(tmp_path, monkeypatch, capfd):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit) as ended:
        start("info", ["seed-0.h5"])
    assert ended.value.code == 2
    assert capfd.readouterr().err == ("evolve.info: the current directory was removed. Change to another directory.\n")


def test_files_of_the_current_folder_replace_no_module_of_python(tmp_path):
    """A folder from a stranger may have such files, and a game may be called `random`."""
    for name in ("queue", "random", "numbers", "copy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('executed')")
    (tmp_path / "game.py").write_text("import neighbour")
    (tmp_path / "neighbour.py").touch()
    program = [sys.executable, "-P", "-c", "from evolve.cli import main; main()"]
    tiny = ("-g", "1", "-p", "4", "-r", "1", "-s", "1", "-o", ".", "--set", "held_out_episodes=1")
    for words in (("run", "-e", "CartPole-v1", *tiny), ("info", "seed-1.h5"), ("export", "seed-1.h5")):
        done = subprocess.run(
            [*program, *words], env=environment(), cwd=tmp_path, capture_output=True, timeout=LONG, check=False
        )
        assert (done.returncode, b"executed" in done.stdout + done.stderr) == (0, False), done.stderr
    # The user's own modules are found, and they find each other.
    found = "import sys; from evolve.errors import import_user_module; import_user_module('game'); print(sys.path[0])"
    find = [sys.executable, "-P", "-c", f"import os, sys; sys.path.append(os.getcwd()); {found}"]
    assert subprocess.check_output(find, env=environment(), cwd=tmp_path, text=True).strip() == str(tmp_path)


def test_an_import_that_does_not_end_is_named(tmp_path, monkeypatch, caplog):
    (tmp_path / "slow_game.py").write_text("import time\ntime.sleep(0.5)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(errors, "IMPORT_WARNING_SECONDS", 0.05)
    errors.import_user_module("slow_game")
    assert "still importing slow_game" in caplog.text


def test_the_version_is_printed(capfd, call, monkeypatch):
    for name in COMMANDS:
        done = call(name, "--version")
        assert (done.code, done.out, done.err) == (0, f"evolve {__version__}\n", "")
    monkeypatch.setattr(sys, "argv", ["evolve", "--version"])
    main()
    assert capfd.readouterr().out == f"evolve {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_writes_commands_as_they_are_typed_and_ends_with_an_example(call, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = call(name, "--help")
    assert (done.code, done.err) == (0, "")
    text, _, examples = done.out.rpartition("\nexample")
    assert text.startswith(f"usage: evolve {name} ")
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(rf"evolve {name}( |$)", examples, re.M)


@pytest.mark.parametrize(
    ("module", "option"), [("evolve.verify", "--help"), ("evolve", "--help"), ("evolve", "--version")]
)
def test_output_that_cannot_be_written_is_reported_plainly(module, option):
    words = [sys.executable, "-m", module, option]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            words, env=environment(PYTHONUNBUFFERED=None), stdout=full, stderr=-1, text=True, check=False, timeout=LONG
        )
    assert done.returncode == 1
    assert done.stderr == f"{module}: the output cannot be written ([Errno 28] No space left on device).\n"


@pytest.mark.parametrize(
    ("module", "option"), [("evolve.verify", "--help"), ("evolve", "--help"), ("evolve", "--version")]
)
def test_a_reader_that_has_gone_is_no_error(module, option):
    reads, writes = os.pipe()
    os.close(reads)
    words = [sys.executable, "-m", module, option]
    env = environment(PYTHONUNBUFFERED=None)
    done = subprocess.run(words, env=env, stdout=writes, stderr=-1, text=True, check=False, timeout=LONG)
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("way", ["evolve.run", "evolve"])
def test_an_interrupt_during_the_imports_leaves_no_traceback(tmp_path, way):
    (tmp_path / "h5py.py").write_text("import sys, time\nprint('here', flush=True)\ntime.sleep(300)\n")
    env = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    words = [sys.executable, "-m", way, *(["run"] if way == "evolve" else []), "-g", "3"]
    process = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (-signal.SIGINT, "")


def test_a_process_ends_although_a_thread_of_an_environment_does_not():
    begin = "import threading, time; threading.Thread(target=time.sleep, args=(600,), name='simulator').start()"
    end = "from evolve.cli import app, start; app._EXIT_SECONDS = 0.3; start('info', ['nowhere.h5'])"
    words = [sys.executable, "-c", f"{begin}; {end}"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == 2
    assert "an environment has not ended simulator: this process does not wait any longer" in done.stderr


def test_such_a_process_ends_although_nothing_reads_its_output(monkeypatch):
    ended = Mock()
    monkeypatch.setattr(app, "time", Mock())
    monkeypatch.setattr(app.cluster, "finalize", lambda: None)
    monkeypatch.setattr(os, "_exit", ended)
    monkeypatch.setattr(sys, "stdout", Mock(flush=Mock(side_effect=BrokenPipeError)))
    app.ensure_exit(3)
    wait_for(lambda: ended.called, limit=60)
    ended.assert_called_once_with(3)


@pytest.mark.parametrize("words", [("-c", "import theirs"), ("-m", "theirs.command", "-m", "evolve.run")])
def test_as_a_library_we_leave_signals_alone(tmp_path, words):
    (tmp_path / "theirs").mkdir()
    said = "import signal\nassert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    (tmp_path / "theirs" / "__init__.py").write_text(f"import sys\nimport evolve\n{said}")
    (tmp_path / "theirs" / "command.py").write_text(said)
    env = environment(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    subprocess.run([sys.executable, *words], env=env, check=True, timeout=LONG)


@pytest.fixture
def launched(capfd):
    """Launch a command whose body is a function; return its exit code, stdout and stderr."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}

    def run(body):
        code = launch("walk", [], lambda app, argv: body())
        return code, *capfd.readouterr()

    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def test_errors_become_one_message_and_an_exit_code(launched):
    def wrong():
        settings = Setting("compute.check", False), ", or ", Setting("env.engine", "envpool")
        raise RunError("it fell: ", *settings, ".\n  env.id=1  # indented: source")

    code, out, err = launched(wrong)
    assert (code, out) == (1, "")
    assert err == (
        "evolve.walk: it fell: --set compute.check=false, or --engine envpool.\n  env.id=1  # indented: source\n"
    )


def test_a_message_that_cannot_be_encoded_is_shown_all_the_same(launched):
    def wrong():
        raise RunError("no such file: \udcff")

    assert launched(wrong) == (1, "", "evolve.walk: no such file: \\udcff\n")


def test_an_output_that_cannot_be_encoded_is_shown_all_the_same(launched, monkeypatch):
    """For example the path of a run file, after hours of work."""
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert launched(lambda: print("runs/é/seed-0.h5") or 0)[0] == 0
    assert out.buffer.getvalue() == b"runs/\\xe9/seed-0.h5\n"


def test_no_file_gets_the_descriptor_of_a_closed_stream(tmp_path):
    begin = "from evolve.cli.app import _prepare_streams; _prepare_streams(); "
    program = f"{begin}file = open('file', 'w'); file.write(str(file.fileno()))"
    closed = f"exec {shlex.join([sys.executable, '-c', program])} <&- >&- 2>&-"
    subprocess.run(["sh", "-c", closed], env=environment(), cwd=tmp_path, check=True, timeout=LONG)
    assert int((tmp_path / "file").read_text()) > 2


def test_a_child_process_gets_the_streams_that_were_closed(tmp_path):
    """mpirun ends the ranks at once without them."""
    begin = "from evolve.cli.app import _prepare_streams; _prepare_streams(); import subprocess; "
    program = f"{begin}subprocess.run(['sh', '-c', 'echo x && echo x >&2 && touch file'])"
    closed = f"exec {shlex.join([sys.executable, '-c', program])} <&- >&- 2>&-"
    subprocess.run(["sh", "-c", closed], env=environment(), cwd=tmp_path, check=True, timeout=LONG)
    assert (tmp_path / "file").exists()


def test_messages_that_nothing_reads_leave_the_exit_code(launched, monkeypatch):
    """As after Ctrl-C in `evolve run … 2>&1 | tee log`, which also ends tee."""
    reader, writer = os.pipe()
    os.close(reader)

    def stop():
        print("a warning", file=sys.stderr, flush=True)
        raise Stopped("stopped by SIGINT")

    with os.fdopen(writer, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert launched(stop)[0] == 75


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGUSR1, ["75"]), pytest.param(signal.SIGTERM, ["75", "again"], id="a rank has died")]
)
def test_a_supervisor_is_told_if_its_launcher_has_ended_the_run(launched, monkeypatch, tmp_path, number, said):
    monkeypatch.setenv(supervision.EXIT_CODE, str(tmp_path / "code"))

    def stopped():
        signal.raise_signal(number)
        raise Stopped("stopped")

    assert launched(stopped)[0] == 0
    assert (tmp_path / "code").read_text().split() == said


def test_a_mistake_of_ours_is_shown_with_its_traceback(launched):
    def wrong():
        raise ZeroDivisionError("a mistake")

    code, _, err = launched(wrong)
    assert code == 1
    assert "Traceback" in err
    assert "ZeroDivisionError: a mistake" in err


def test_a_worker_whose_rank_0_is_lost_at_the_start_ends_at_once(launched, monkeypatch, capfd):
    """It does not finalize MPI, which might wait for rank 0 forever."""
    monkeypatch.setattr(app.cluster, "connect", Mock(side_effect=RunError("rank 0 was lost")))
    monkeypatch.setattr(os, "_exit", Mock(side_effect=SystemExit))
    with pytest.raises(SystemExit):
        launched(lambda: 0)
    os._exit.assert_called_once_with(1)
    assert capfd.readouterr().err == "evolve.walk: rank 0 was lost\n"


def test_a_command_in_the_process_of_the_tests_leaves_the_handlers_of_signals(call):
    before = [signal.getsignal(number) for number in supervision.STOPPING]
    call("run", "--help").ok()
    assert [signal.getsignal(number) for number in supervision.STOPPING] == before


def test_an_interrupt_without_a_signal_is_an_error_of_the_called_code(launched):
    def wrong():
        raise KeyboardInterrupt("mine")

    code, _, err = launched(wrong)
    assert code == 1
    assert err.startswith("evolve.walk: code that evolve called raised KeyboardInterrupt:\nTraceback")
    assert err.endswith("KeyboardInterrupt: mine\n")


def test_the_collector_is_spared_once_for_environments_come_and_go(monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(True))
    app.freeze_objects.cache_clear()
    for steps in (10, 20, 30):
        env = {"id": "CartPole-v1", "max_episode_steps": steps}
        app.make_frozen_rollout(prepare(parse(Config, {"env": env})).rollout_spec.experiment).close()
    assert frozen == [True]
