"""evolve launch: runs that outlive deaths and lost hosts, and end with their own exit code."""

import errno
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import LONG, environment, wait_for
from hosts import Hosts, why_not

from evolve import store
from evolve.cli.launch import Launch, run_until_complete
from evolve.cli.run import load
from evolve.cluster import hosts, supervision
from evolve.cluster.cores import number_of_cores
from evolve.cluster.hosts import AvailableHosts, Host, HostCheck, Launcher, read_hostfile, write_hostfile
from evolve.cluster.supervision import Outcome, Supervisor
from evolve.errors import InputError

SLOW = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.006", "--set", "env.kwargs.brake=brake", "-p", 8, "-r", 2,
        "-g", 12, "-d", 2, "--set", "held_out_episodes=0")  # fmt: skip
A, B, C = Host("node1", 2), Host("node2", 2), Host("node3", 4)


def attempts(outcomes, progress, stopping=False, reclaims_host=()):
    """What goes through attempts with these outcomes, after each of which so many generations are complete.

    progress: numbers of generations, or pairs of a number and the number of runs that have ended.
    """
    counted = [(count, 0) if isinstance(count, int) else count for count in (0, *progress)]
    outcomes, progress, reclaims_host = iter(outcomes), iter(counted), iter(reclaims_host)
    said, counts = [], []

    def start(futile):
        counts.append(futile)
        made.reclaims_host = next(reclaims_host, False)
        return next(outcomes)

    made = SimpleNamespace(
        start=start,
        progress=lambda: next(progress),
        stopping=stopping,
        reclaims_host=False,
        pause=lambda _: None,
        say=said.append,
        counts=counts,
        command="evolve launch",
        runs=1,
    )
    return made, said


DIED = Outcome(137)


@pytest.mark.parametrize("code", [0, 1, 2, 75])
def test_the_exit_code_of_rank_0_is_final(code):
    made, said = attempts([Outcome(code, is_from_rank_0=True)], [])
    assert run_until_complete(made) == code
    assert said == []


def test_a_run_is_resumed_until_it_ends():
    lost = Outcome(75, is_from_rank_0=True, start_again=True)
    made, said = attempts([DIED, lost, None, DIED, Outcome(0, is_from_rank_0=True)], [1, 2, 2, 2])
    assert run_until_complete(made) == 0
    assert said == [
        "the ranks ended with code 137; 1 generation complete; the run is resumed",
        "a host or a rank was lost; 2 generations complete; the run is resumed",
        "no host answers; 2 generations complete; the run is resumed",
        "the ranks ended with code 137; 2 generations complete; the run is resumed",
    ]


def test_three_attempts_without_progress_are_enough():
    made, said = attempts([DIED] * 5, [4, 4, 4, 4])
    assert run_until_complete(made) == 137
    assert said[-1].endswith("3 attempts without any progress: given up")
    assert len(said) == 4
    made, _ = attempts([None] * 3, [0] * 3)
    assert run_until_complete(made) == 1


def test_attempts_in_vain_are_counted_until_one_gets_further():
    made, _ = attempts([DIED] * 4 + [Outcome(0, is_from_rank_0=True)], [0, 0, 1, 1])
    assert run_until_complete(made) == 0
    assert made.counts == [0, 1, 2, 0, 1]


def test_the_end_of_a_run_is_progress_but_no_generation():
    made, said = attempts([DIED, DIED, Outcome(0, is_from_rank_0=True)], [(4, 0), (4, 1)])
    assert run_until_complete(made) == 0
    assert made.counts == [0, 0, 0]
    assert all("; 4 generations complete; " in line for line in said)


def test_a_success_that_rank_0_on_another_host_cannot_report_is_read_from_the_run_files():
    made, said = attempts([Outcome(0)], [(12, 1)])
    assert run_until_complete(made) == 0
    assert said == []
    made, said = attempts([Outcome(0)] * 3, [0] * 3)
    assert run_until_complete(made) == 1
    assert said[-1].endswith("given up")


def test_a_start_in_vain_gets_twice_the_time_in_the_next_attempt(monkeypatch, tmp_path):
    """The machine may be slow; the ranks are told, and mpirun is killed no sooner."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EVOLVE_CONNECT_SECONDS", "10")
    limits = []

    def run(words, environment, begin_limit, **_):
        assert "EVOLVE_CONNECT_SECONDS" in words or not Launcher.find().is_open_mpi
        limits.append((environment["EVOLVE_CONNECT_SECONDS"], begin_limit))
        return DIED

    monkeypatch.setattr("evolve.cli.launch.Supervisor", lambda say: SimpleNamespace(run=run, stopping=False))
    words = list(map(str, SLOW))
    options = SimpleNamespace(launcher=None, ssh="ssh", ranks=3, hostfile=None)
    run_here = Launch(words, options, words, load(words), tmp_path)
    assert [run_here.start(futile) for futile in range(3)] == [DIED] * 3
    assert limits == [("10", 70.0), ("20", 140.0), ("40", 280.0)]


def test_a_time_limit_is_the_limit_of_all_attempts(monkeypatch, tmp_path, capsys):
    """Each attempt counts anew, so the launcher must count, too."""
    monkeypatch.chdir(tmp_path)
    clock, stops = [0.0], []
    fake = SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    monkeypatch.setattr("evolve.cli.launch.time", fake)

    def run(*_, should_stop, **__):
        clock[0] += 60
        stops.append(should_stop())
        return DIED

    monkeypatch.setattr("evolve.cli.launch.Supervisor", lambda say: SimpleNamespace(run=run, stopping=False))
    words = [*map(str, SLOW), "--time-limit", "90s"]
    options = SimpleNamespace(launcher=None, ssh="ssh", ranks=3, hostfile=None)
    assert Launch(words, options, words, load(words), tmp_path).run() == 75
    assert stops == [False, True]
    assert capsys.readouterr().err.count("the time limit is over") == 1


def test_a_file_that_others_still_write_is_waited_for():
    """The first attempt accepted the input, so the cause of a later refusal will pass."""
    made, _ = attempts([DIED, Outcome(2, is_from_rank_0=True), Outcome(0, is_from_rank_0=True)], [3, 3])
    assert run_until_complete(made) == 0


def test_a_stop_for_a_host_that_comes_back_is_no_end():
    made, said = attempts(
        [Outcome(75, is_from_rank_0=True), Outcome(0, is_from_rank_0=True)], [1], reclaims_host=[True]
    )
    assert run_until_complete(made) == 0
    assert said == []


def test_a_host_that_comes_and_goes_does_not_hide_that_nothing_advances():
    back = Outcome(75, is_from_rank_0=True)
    made, said = attempts([DIED, back, DIED, back, DIED], [0] * 5, reclaims_host=[False, True, False, True, False])
    assert run_until_complete(made) == 137
    assert made.counts == [0, 1, 1, 2, 2]
    assert said[-1].endswith("3 attempts without any progress: given up")


def test_a_launch_that_was_asked_to_stop_does_not_begin_again():
    made, said = attempts([DIED], [3], stopping=True)
    assert run_until_complete(made) == 75
    assert said == ["stopped; 3 generations complete; continue with the same command: evolve launch"]
    assert run_until_complete(attempts([Outcome(0, is_from_rank_0=True)], [], stopping=True)[0]) == 0


@pytest.mark.parametrize(
    ("restarts", "progress", "code"), [("2", 0, 75), ("3", 0, 1), ("3", 1, 75)], ids=["early", "hopeless", "slow"]
)
def test_a_slurm_job_without_progress_is_not_restarted_for_ever(monkeypatch, restarts, progress, code):
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    clock = iter([0.0, 61.0])
    monkeypatch.setattr("evolve.cli.launch.time", SimpleNamespace(monotonic=lambda: next(clock)))
    made, said = attempts([Outcome(75, is_from_rank_0=True)], [progress])
    assert run_until_complete(made) == code
    assert [line.endswith("fewer episodes in a generation") for line in said] == [True] * (code == 1)


def test_on_one_node_the_tasks_of_a_slurm_job_are_its_ranks(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "evolve.cli.launch.Supervisor", lambda _: SimpleNamespace(run=lambda *_, **__: DIED, stopping=False)
    )
    words = ["-e", "CartPole-v1"]
    options = SimpleNamespace(hostfile=None, ranks=None, launcher=None, ssh=None)
    for tasks, ranks in (("4", 4), ("1", number_of_cores() + 1)):
        monkeypatch.setenv("SLURM_NTASKS", tasks)
        Launch(words, options, words, load(words), tmp_path).start(0)
        assert f"{ranks} ranks on localhost" in capsys.readouterr().err


@pytest.fixture
def silent(monkeypatch):
    """The names of hosts that do not answer."""
    names = set()

    class Answers(HostCheck):
        def __init__(self, hosts, _ssh):
            super().__init__([], [])
            self._complaints = {host: "does not answer" if host.name in names else "" for host in hosts}

    monkeypatch.setattr(hosts, "HostCheck", Answers)
    return names


def test_hosts_are_left_out_and_taken_back(silent, monkeypatch):
    said = []
    clock = [0.0]
    monkeypatch.setattr(hosts.time, "monotonic", lambda: clock[0])
    chosen = AvailableHosts([A, B, C], ["ssh"], said.append)
    silent.add("node2")
    assert chosen.choose() == [A, C]

    def looks(seconds):
        for _ in range(seconds):
            clock[0] += 1
            if chosen.can_take_back():
                return True
        return False

    assert not looks(200)
    silent.clear()
    assert looks(100)
    assert not looks(100)
    assert chosen.choose() == [A, B, C]
    assert said == [
        "node2 does not answer: it is left out",
        "node2 answers again: the run is stopped, and resumed with it",
        "node2 answers again: it is taken back",
    ]


def test_hosts_report_their_faults(tmp_path, monkeypatch):
    """In place of ssh a script, which finds the name of the host among its arguments."""
    monkeypatch.setattr(hosts, "PATIENCE", 1.0)
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\ncase "$*" in *node1*) exit 0;; *node2*) echo "no route" >&2; exit 255;; *node3*) exit 1;; esac\n'
        "exec sleep 60\n"
    )
    ssh.chmod(0o755)
    here, mute = Host("localhost", 1), Host("node4", 1)
    complaints = HostCheck([A, B, C, here, mute], [str(ssh)]).complaints()
    assert (complaints[A], complaints[here]) == ("", "")
    assert complaints[B] == "does not answer (no route)"
    assert complaints[C] == f"has no {sys.executable}"
    assert complaints[mute] == "does not answer"


@pytest.mark.parametrize("left", ["sleep 25 &", "sleep 25; true"])
def test_processes_that_ssh_leaves_behind_are_not_awaited(left, tmp_path, monkeypatch):
    """The master of ControlPersist and the ssh of ProxyJump keep the stderr of ssh open. A banner may be Latin-1."""
    monkeypatch.setattr(hosts, "PATIENCE", 1.0)
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\nprintf 'Zugang f\\374r Mitglieder\\n' >&2\n{left}\n")
    ssh.chmod(0o755)
    begin = time.monotonic()
    complaints = HostCheck([A], [str(ssh)]).complaints()
    assert time.monotonic() - begin < 20
    assert complaints[A] == ("" if left.endswith("&") else "does not answer (Zugang f\ufffdr Mitglieder)")


@pytest.mark.parametrize(("address", "is_here"), [("127.0.1.1", True), ("10.1.2.3", False)])
def test_a_name_of_a_loopback_address_is_this_machine(monkeypatch, address, is_here):
    """Debian gives 127.0.1.1 to the full name of a machine."""
    asked = []
    monkeypatch.setattr(hosts.socket, "gethostbyname", lambda name: asked.append(name) or address)
    host = Host("node1.cluster", 1)
    assert host.is_here == host.is_here == is_here
    assert asked == ["node1.cluster"]  # once: the answer may take seconds


def test_hostfiles_are_read_in_both_spellings(tmp_path):
    path = tmp_path / "hosts"
    path.write_text("# ours\nnode1 slots=2\nnode2:2   # Hydra's\n\nnode3 slots=4 max_slots=8\n")
    assert read_hostfile(path) == [A, B, C]
    path.write_text("node1\nnode1\nnode2\nnode2\nnode3 slots=3\nnode3:1\n")  # one line for each slot, as of PBS
    assert read_hostfile(path) == [A, B, C]
    path.write_bytes(b"\xef\xbb\xbfnode1 slots=2\r\n")  # by an editor of Windows
    assert read_hostfile(path) == [A]
    for colon in (False, True):
        write_hostfile(path, [A, C], colon)
        assert read_hostfile(path) == [A, C]
    wrong = {"node1 slots=x": "line 1", "# nothing": "no host in", "node1:0": "node1:0",
             "-oProxyCommand=x": "line 1", f"node1 slots={'9' * 5000}": "line 1"}  # fmt: skip
    for text, said in wrong.items():
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            read_hostfile(path)
    with pytest.raises(InputError, match="No such file"):
        read_hostfile(tmp_path / "nowhere")


def test_each_mpi_is_started_in_its_own_way(tmp_path, monkeypatch):
    monkeypatch.setenv("EVOLVE_SILENCE_SECONDS", "9")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    ssh = ["ssh", "-F", "a file"]
    ours = Launcher("/bin/mpirun", is_open_mpi=True, tolerant=True)
    words = ours.words(6, [A, C], tmp_path)
    assert words[1:] == [w for w in words[1:] if not w.startswith("-genv")]
    for expected in ("--with-ft ulfm", f"--hostfile {tmp_path}/hostfile", "-n 6", "-x PATH", "-x EVOLVE_EXIT_CODE"):
        assert expected in " ".join(words)
    assert "-x EVOLVE_SILENCE_SECONDS" in " ".join(words)
    assert "-x PYTHONHASHSEED" in " ".join(words)  # without it returns of some environments depend on the host
    assert ours.environment(ssh, tmp_path)["PRTE_MCA_plm_ssh_agent"].startswith("ssh -F 'a file' -o ")
    other = Launcher("/bin/mpiexec", is_open_mpi=False, tolerant=False)
    assert other.words(6, [A, C], tmp_path) == ["/bin/mpiexec", "-f", f"{tmp_path}/hostfile", "-n", "6"]
    assert (tmp_path / "hostfile").read_text() == "node1:2\nnode3:4\n"
    assert other.environment(ssh, tmp_path)["HYDRA_LAUNCHER_EXEC"] == f"{tmp_path}/ssh"
    assert "ssh -F 'a file'" in (tmp_path / "ssh").read_text()
    assert other.environment(ssh, tmp_path)["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(("nodes", "names"), [(1, {"HYDRA_LAUNCHER", "HYDRA_LAUNCHER_EXEC"}), (2, set())])
def test_mpich_chooses_how_to_reach_the_hosts_of_an_allocation(monkeypatch, tmp_path, nodes, names):
    """They need not have ssh."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", str(nodes))
    monkeypatch.setattr(Launcher, "find", lambda: Launcher("mpiexec", is_open_mpi=False, tolerant=False))
    found = {}
    supervisor = SimpleNamespace(run=lambda _, environment, **__: found.update(environment), stopping=False)
    monkeypatch.setattr("evolve.cli.launch.Supervisor", lambda say: supervisor)
    words = list(map(str, SLOW))
    options = SimpleNamespace(launcher=None, ssh="ssh", ranks=2, hostfile=None)
    Launch(words, options, words, load(words), tmp_path).start(0)
    assert {name for name in found if name.startswith("HYDRA")} == names


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--overwrite",), "--overwrite"),
        (("-n", 1), "--ranks: expected at least 2"),
        (("--hostfile", "nowhere"), "--hostfile: expected a file with a host on each line"),
        (("-p", "x"), "a whole number"),
        (("-n", 10**6), "on this machine, got 1,000,000"),
        (("--launcher", ""), "--launcher: expected a command that begins with a program of this machine, got ''."),
        (("--launcher", "missing-srun -n"), "got 'missing-srun -n'"),
        (("--launcher", 'env "A'), "No closing quotation"),
        (("--hostfile", "elsewhere", "--launcher", "env"), "--launcher: expected no --hostfile with it"),
        (("--ssh", "ssh -p 2222", "--launcher", "env"), "--launcher: expected no --ssh with it"),
        (("--ssh", "ssh -p 2222"), "--ssh: expected --hostfile with it, which names the hosts, got no --hostfile."),
        (("--hostfile", "elsewhere", "--ssh", "missing-ssh"), "--ssh: expected a command that begins with a program"),
    ],
)
def test_wrong_input_is_refused_before_anything_starts(call, tmp_path, words, said):
    (tmp_path / "elsewhere").write_text("node..1\n")  # no address can be looked up for such a name
    call("launch", *SLOW, *words).refused(said)


def test_full_disks_are_refused_without_a_traceback(monkeypatch):
    def full():
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(hosts.tempfile, "gettempdir", full)
    with pytest.raises(InputError, match=r"a directory for temporary files, got No usable .*TMPDIR"):
        hosts.check_start("--workers")


def test_the_command_that_it_repeats_is_not_named_again(call):
    said = "command line: expected only the arguments of evolve run, got the word run before them."
    cure = "Leave it out: evolve launch pole.toml -g 3"
    call("launch", "run", "pole.toml", "-g", 3).refused(f"{said} {cure}")


@pytest.mark.cold
def test_a_run_outlives_its_ranks_and_ends_with_its_own_code(start, call, tmp_path, brake):
    process = start("launch", "launch", *SLOW, "-o", "run", "-n", 3, module="evolve")
    path = store.path_of(tmp_path / "run", 0)
    for generations, victim in ((1, 0), (2, 1)):
        wait_for(lambda n=generations: path.exists() and store.read_progress(path)[0] >= n, process.output)
        wait_for(lambda: len(process.ranks()) == 3, process.output)
        process.ranks()[victim].kill()
    brake.unlink()
    done = process.wait()
    assert done.code == 0, done.err
    assert done.err.count("the run is resumed") == 1
    assert "rank 1 on " in done.err  # and the others went on
    call("run", *SLOW, "-o", "alone").ok()
    digests = [[record.digest for record in store.read(store.path_of(tmp_path / name, 0)).records]
               for name in ("run", "alone")]  # fmt: skip
    assert digests[0] == digests[1]


@pytest.fixture
def handlers():
    """The signal handlers that a supervisor would install."""
    return {}


@pytest.fixture
def supervisor(monkeypatch, handlers):
    """A supervisor that leaves the signals and the other children of this process alone."""
    monkeypatch.setattr(supervision, "CHECK_EVERY", 0.1)
    monkeypatch.setattr(supervision.signal, "signal", handlers.__setitem__)
    for name in ("_prctl", "_end_orphans"):
        monkeypatch.setattr(supervision, name, lambda *_: None)
    return Supervisor(print)


CLEANED = "touch $EVOLVE_EXIT_CODE; sleep 1; rm $EVOLVE_EXIT_CODE; sleep 1; exit"  # as by a cleaner of old files


@pytest.mark.parametrize(("child", "code"), [("exec sleep 600", 137), (f"{CLEANED} 3", 3), (f"{CLEANED} 0", 0)])
def test_a_launcher_that_never_starts_its_ranks_is_killed(supervisor, child, code, capsys):
    assert supervisor.run(["sh", "-c", child], dict(os.environ), begin_limit=0.5) == Outcome(code)
    cure = "Set EVOLVE_CONNECT_SECONDS if they need more time."
    said = f"the ranks did not begin within 0.5 s: their launcher is killed. {cure}\n" if code == 137 else ""
    assert capsys.readouterr().out == said


def test_workers_that_never_begin_are_killed(supervisor, monkeypatch, capsys):
    monkeypatch.setattr(supervision, "Supervisor", lambda _: supervisor)
    monkeypatch.setattr(supervision, "begin_seconds", {3: 0.5}.__getitem__)
    assert supervision.supervise(["sleep", "600"], dict(os.environ), 2, print) == 1
    said = "the ranks ended with code 137: a rank or mpirun was killed or has failed"
    (line,) = capsys.readouterr().out.splitlines()[1:]
    assert line.startswith(f"{said}. The messages above may name the cause.")


def test_a_launcher_that_outlives_rank_0_is_killed(supervisor):
    child = "printf '75 again' > $EVOLVE_EXIT_CODE; exec sleep 60"
    ended = supervisor.run(["sh", "-c", child], dict(os.environ), end_limit=0.2)
    assert ended == Outcome(75, is_from_rank_0=True, start_again=True)


def test_only_rank_0_on_another_host_may_succeed_without_a_report(supervisor):
    assert supervisor.run(["true"], dict(os.environ), begin_limit=60.0) == Outcome(1)
    assert supervisor.run(["true"], dict(os.environ)) == Outcome(0)
    assert supervisor.run(["sh", "-c", "touch $EVOLVE_EXIT_CODE"], dict(os.environ)) == Outcome(1)


def test_an_exit_code_takes_no_more_room_than_was_kept_for_it(monkeypatch, tmp_path):
    """A disk that becomes full in a run must not turn its success into a failure."""
    file = tmp_path / "exit-code"
    monkeypatch.setenv(supervision.EXIT_CODE, str(file))
    supervision.say_begun()
    kept = file.stat()
    assert not file.read_text().strip()
    assert supervision.hand_over(75, start_again=True) == 0
    after = file.stat()
    assert (after.st_ino, after.st_size) == (kept.st_ino, kept.st_size)
    assert file.read_text().split() == ["75", "again"]


def test_each_launcher_has_a_folder_of_its_own(supervisor, tmp_path):
    """One that is killed leaves a folder behind, named by its process; another of that number would end at once."""
    child = f"echo $PRTE_MCA_prte_local_tmpdir_base >> {tmp_path}/folders; test -d $PRTE_MCA_prte_local_tmpdir_base"
    ended = [supervisor.run(["sh", "-c", f"{child} && exit 7"], dict(os.environ)) for _ in range(2)]
    assert ended == [Outcome(7)] * 2
    first, second = map(Path, (tmp_path / "folders").read_text().split())
    assert first != second
    assert first.parent == second.parent == Path(tempfile.gettempdir())
    assert not first.exists()


def test_a_folder_for_launchers_that_the_user_has_named_is_kept(supervisor, tmp_path):
    child = f"test $PRTE_MCA_prte_local_tmpdir_base = {tmp_path} && exit 7"
    environment = os.environ | {"PRTE_MCA_prte_local_tmpdir_base": str(tmp_path)}
    assert supervisor.run(["sh", "-c", child], environment) == Outcome(7)


def test_a_run_under_nohup_outlives_its_terminal(monkeypatch):
    caught = []
    monkeypatch.setattr(supervision.signal, "getsignal", lambda _: signal.SIG_IGN)
    monkeypatch.setattr(supervision.signal, "signal", lambda number, _: caught.append(number))
    Supervisor(print)
    assert caught == [signal.SIGINT]


def test_a_signal_between_two_launchers_stops_the_next_one(supervisor, handlers, capsys):
    """Also one that comes while the launcher is being started."""
    handlers[signal.SIGINT](signal.SIGINT, None)
    child = "trap 'exit 75' USR1; touch $EVOLVE_EXIT_CODE; while :; do sleep 0.1; done"
    assert supervisor.run(["sh", "-c", child], dict(os.environ), begin_limit=60.0) == Outcome(75)
    assert capsys.readouterr().out == "SIGINT: stopping\n"


STOPS_SLOWLY = "trap 'echo asked; sleep 1; exit 75' USR1; touch $EVOLVE_EXIT_CODE; while :; do sleep 0.1; done"


@pytest.mark.parametrize("first", ["signal", "limit"])
def test_ranks_that_are_stopping_are_not_asked_again(supervisor, handlers, first, capfd):
    """A second SIGUSR1 kills a rank. The time limit may pass after Ctrl-C, and Ctrl-C may come after the time limit."""
    calls = []

    def should_stop():
        calls.append(len(calls))
        if len(calls) == (1 if first == "signal" else 3):
            handlers[signal.SIGINT](signal.SIGINT, None)
        return len(calls) >= 2

    assert supervisor.run(["sh", "-c", STOPS_SLOWLY], dict(os.environ), should_stop, begin_limit=60.0) == Outcome(75)
    assert capfd.readouterr().out.count("asked\n") == 1


def test_a_signal_that_comes_twice_at_once_is_one_signal(supervisor, handlers, monkeypatch):
    """`timeout` signals its child, and then the whole group of the child."""
    times, sent = iter([1.0, 1.001, 2.0]), []

    def wait(_seconds):
        monkeypatch.setattr(supervision.time, "monotonic", lambda: next(times))
        for _ in range(3):
            handlers[signal.SIGTERM](signal.SIGTERM, None)
        return 1

    process = SimpleNamespace(returncode=None, send_signal=sent.append, wait=wait)
    monkeypatch.setattr(supervision.subprocess, "Popen", lambda *_, **__: process)
    supervisor.run([], {})
    assert sent == [signal.SIGUSR1, signal.SIGTERM]


def test_the_arguments_of_a_run_may_end_with_a_file_after_two_dashes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-pole.toml").write_text("")
    found = []
    supervisor = SimpleNamespace(run=lambda words, *_, **__: found.extend(words), stopping=False)
    monkeypatch.setattr("evolve.cli.launch.Supervisor", lambda say: supervisor)
    words = ["--", "-pole.toml"]
    options = SimpleNamespace(launcher=None, ssh="ssh", ranks=2, hostfile=None)
    Launch(words, options, words, load(words), tmp_path).start(0)
    assert found[-3:] == ["--resume", *words]


@pytest.mark.parametrize(("ranks", "number"), [(None, []), (4, ["-n", "4"])])
def test_a_launcher_of_the_user_starts_the_ranks(monkeypatch, tmp_path, ranks, number):
    found = []
    supervisor = SimpleNamespace(run=lambda words, *_, **__: found.extend(words), stopping=False)
    monkeypatch.setattr("evolve.cli.launch.Supervisor", lambda say: supervisor)
    monkeypatch.delenv("SLURM_NTASKS", raising=False)
    words = list(map(str, SLOW))
    options = SimpleNamespace(launcher="env A='b c' srun --mpi=pmix", ssh=None, ranks=ranks, hostfile=None)
    Launch(words, options, words, load(words), tmp_path).start(0)
    given = ["env", "A=b c", "srun", "--mpi=pmix", *number]
    assert found[: len(given) + 1] == [*given, sys.executable]


def test_a_signal_before_the_ranks_start_starts_none(monkeypatch, tmp_path):
    """Hosts that do not answer take half a minute, in which the user may lose patience."""
    monkeypatch.chdir(tmp_path)
    supervisor = SimpleNamespace(stopping=False)
    monkeypatch.setattr("evolve.cli.launch.Supervisor", lambda say: supervisor)
    monkeypatch.setattr(AvailableHosts, "choose", lambda _: setattr(supervisor, "stopping", True) or [A])
    words = list(map(str, SLOW))
    options = SimpleNamespace(launcher=None, ssh="ssh", ranks=3, hostfile=None)
    assert Launch(words, options, words, load(words), tmp_path).run() == 75


@pytest.mark.usefixtures("brake")
def test_it_can_be_asked_to_stop(start, tmp_path):
    process = start("launch", "launch", *SLOW, "-o", "run", "-n", 3, module="evolve")
    path = store.path_of(tmp_path / "run", 0)
    wait_for(lambda: path.exists() and store.read_progress(path)[0] >= 1, process.output)
    process.popen.send_signal(signal.SIGTERM)
    done = process.wait()
    assert done.code == 75
    assert re.search(r"continue with --resume: (python -m |\S*/)?evolve launch ", done.err)


@pytest.fixture
def nodes(tmp_path):
    """Three hosts, and a function that starts evolve launch on the first of them."""
    if why_not():
        pytest.skip(why_not())
    started = []
    with Hosts(tmp_path / "hosts", 3) as made:
        (tmp_path / "hostfile").write_text("".join(f"{name} slots=2\n" for name in made.names))

        def begin(mpi, *words):
            command = (sys.executable, "-m", "evolve", "launch", "--hostfile", tmp_path / "hostfile", "--ssh", made.ssh)
            # UCX, which MPICH uses, takes hosts of one kernel for one host.
            env = environment(mpi, EVOLVE_SILENCE_SECONDS="4", UCX_TLS="tcp,self")
            with open(tmp_path / "log", "w") as log:
                started.append(subprocess.Popen(made.on(1, *command, *words), env=env, stdout=log, stderr=log))
            return started[-1]

        yield made, begin
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
@pytest.mark.parametrize("loss", ["lose", "cut"])
def test_a_lost_host_is_done_without(nodes, call, tmp_path, monkeypatch, mpi, loss):
    made, begin = nodes
    monkeypatch.chdir(tmp_path)
    brake = tmp_path / "brake"
    brake.touch()
    words = [str(word).replace("=brake", f"={brake}") for word in SLOW]
    process = begin(mpi, *words, "-o", tmp_path / "run")
    log = tmp_path / "log"
    wait_for(lambda: "generation 1" in log.read_text(), log.read_text)
    getattr(made, loss)(3)
    before = log.read_text().count("best fitness")
    wait_for(lambda: log.read_text().count("best fitness") > before + 1, log.read_text)
    brake.unlink()
    assert process.wait(LONG) == 0, log.read_text()
    call("run", *words, "-o", "alone").ok()
    digests = [[record.digest for record in store.read(store.path_of(tmp_path / name, 0)).records]
               for name in ("run", "alone")]  # fmt: skip
    assert digests[0] == digests[1]
