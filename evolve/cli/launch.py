"""evolve launch: run an experiment on several hosts, and start it again until it is complete.

`Launch` is a job: it starts the ranks of `evolve run` by mpirun, and reads the progress from the run files.
`run_until_complete` decides after each attempt whether to start the job again.
"""

import argparse
import math
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from evolve import store
from evolve.cli.app import App, say
from evolve.cli.parser import Parser, command_line
from evolve.cli.run import Request, load
from evolve.cluster import check_start, started_by
from evolve.cluster.cores import check_not_too_many, number_of_cores
from evolve.cluster.hosts import AvailableHosts, Host, Launcher, python_words, read_hostfile
from evolve.cluster.start import silence_seconds
from evolve.cluster.supervision import COMMAND, CONNECT, Outcome, Supervisor, begin_seconds, connect_seconds
from evolve.config import seconds
from evolve.errors import InputError, Stopped, pluralize

# An attempt is futile if it made no progress: it completed no generation, and no run has ended.
_MAX_FUTILE = 3  # attempts in a row
_LEAST_SECONDS = 60.0  # a SLURM job that is stopped earlier may have had no time for progress
_MAX_PAUSE_SECONDS = 10.0  # between two attempts
_REFUSED_OPTIONS = ("--overwrite", "--dry-run", "--workers", "--settings")
# After the end of rank 0, mpirun may run on for `_END_SECONDS` plus `_END_SECONDS_PER_RANK` for each rank.
_END_SECONDS, _END_SECONDS_PER_RANK = 20.0, 0.15
_say = partial(say, "launch")


def run_until_complete(job: "Launch") -> int:
    """Start a job of one or several runs, and resume the job until it ends by itself; return its exit code.

    The job is resumed if a rank has died or a host was lost. The job is also stopped and resumed if a lost host is
    available again. `evolve launch` gives up after three futile attempts in a row. It also gives up if SLURM has
    restarted this job three times or more, and the job has made no progress since the last restart.
    """
    progress, begin = job.progress(), time.monotonic()
    code = _resume_until_complete(job, progress)
    restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    lasted = time.monotonic() - begin
    if code == Stopped.exit_code and restarts >= _MAX_FUTILE and lasted > _LEAST_SECONDS and job.progress() == progress:
        why = f"SLURM has restarted this job {restarts} times, and the job makes no progress any more: given up"
        job.say(f"{why}. Give the job more time, or the run fewer episodes in a generation")
        return 1
    return code


def _resume_until_complete(job: "Launch", before: tuple[int, int]) -> int:
    """Start the job until it has ended, was stopped, or is given up; return its exit code.

    before: The progress of the job before this launch.
    """
    futile_attempts, is_first = 0, True
    while True:
        outcome = job.start(futile_attempts)
        if job.stopping and outcome is not None and outcome.is_from_rank_0:  # rank 0 has said how to resume
            return outcome.code
        if job.stopping:
            return _say_stopped(job)
        if outcome is not None and _is_final(outcome, is_first, job.reclaims_host):
            return outcome.code
        now = job.progress()
        generations, ended = now
        # Rank 0 on another host cannot hand over its exit code. Then the run files must confirm a success.
        if outcome is not None and not outcome.is_from_rank_0 and outcome.code == 0 and ended == job.runs:
            return 0
        # The pair is greater after more generations, or after as many generations and more ended runs.
        if now > before:
            futile_attempts = 0
        elif not job.reclaims_host:  # an attempt that was stopped only to take back a host does not count
            futile_attempts += 1
        cause = "no host answers"
        if outcome is not None:
            cause = "a host or a rank was lost" if outcome.start_again else f"the ranks ended with code {outcome.code}"
        done = f"{pluralize(generations, 'generation')} complete"
        if futile_attempts >= _MAX_FUTILE:
            job.say(f"{cause}; {done}; {_MAX_FUTILE} attempts without any progress: given up")
            # The launcher's 0 does not mean success here, because the run files do not confirm it.
            return 1 if outcome is None or outcome.code == 0 else outcome.code
        if not job.reclaims_host:
            job.say(f"{cause}; {done}; the run is resumed")
            job.pause(min(2.0**futile_attempts, _MAX_PAUSE_SECONDS))
        if job.stopping:
            return _say_stopped(job)
        before, is_first = now, False


def _say_stopped(job: "Launch") -> int:
    """Tell the user how to continue a stopped job; return the exit code."""
    done = pluralize(job.progress()[0], "generation")
    job.say(f"stopped; {done} complete; continue with the same command: {job.command}")
    return Stopped.exit_code


def _is_final(outcome: Outcome, is_first: bool, reclaims_host: bool) -> bool:
    """Return whether rank 0 has ended the run with an exit code that no further attempt would change."""
    if not outcome.is_from_rank_0 or outcome.start_again:
        return False
    # An InputError of the first attempt is final, because the input is wrong. In a later attempt, the cause may be
    # that ranks of an earlier attempt still lock the run file.
    if outcome.code == InputError.exit_code:
        return is_first
    # Not final: this process has stopped the ranks, to start them again with a host that is available again.
    return not (reclaims_host and outcome.code == Stopped.exit_code)


def _parser() -> Parser:
    parser = Parser(
        "evolve.launch",
        "Run an experiment with mpirun: here, on the hosts of a hostfile, or on an allocation. If a rank dies or a "
        f"host is lost, the run is resumed, until it is complete or {_MAX_FUTILE} attempts in a row make no progress. "
        f"All other arguments are passed to evolve run, but {', '.join(_REFUSED_OPTIONS)} are refused.",
        "evolve launch --hostfile hostfiles/two-nodes experiments/walker.toml -s 1 -o runs/walker",
    )
    add = parser.add_argument
    add("--hostfile", type=Path, metavar="FILE", help="the hosts, one on each line: node1 slots=32")
    ranks = (
        "the number of ranks (with --hostfile: its slots; with --launcher or on several nodes: the size of the job; "
    )
    ranks += "otherwise: the tasks of a SLURM job, or a coordinator and a worker for each core)"
    add("-n", "--ranks", type=int, metavar="R", help=ranks)
    how = "the command that starts the ranks, such as srun --mpi=pmix in a SLURM job (mpirun)"
    add("--launcher", metavar="COMMAND", help=how)
    login = "the command that logs in to other hosts without a password (ssh)"
    add("--ssh", metavar="COMMAND", help=login)
    return parser


class Launch:
    """A job of one or several runs, which is started again until all runs have ended.

    Args:
        argv: All arguments of the command line.
        options: The options of `evolve launch` in `argv`.
        run_arguments: The other arguments, which are for `evolve run`.
        request: The experiments and options in `run_arguments`.
        folder: A directory for temporary files.
    """

    def __init__(
        self, argv: list[str], options: argparse.Namespace, run_arguments: Sequence[str], request: Request, folder: Path
    ) -> None:
        # --resume goes in front, because no option may follow "--".
        self._run_arguments = [*([] if request.resume else ["--resume"]), *run_arguments]
        self._paths = _run_files(request)
        self.runs = len(self._paths)
        """The number of runs."""
        limit = request.configs[0].compute.time_limit  # the same in all experiments of a sweep
        self._deadline = math.inf if limit is None else time.monotonic() + seconds(limit)
        if options.launcher is None:
            self._launcher = Launcher.find()
        else:
            path, *arguments = command_words("--launcher", options.launcher)
            self._launcher = Launcher(path, is_open_mpi=False, tolerant=False, arguments=arguments)
        self._folder = folder
        self.command = command_line("launch", *argv)
        """The command line, which also continues the run."""
        self._requested_ranks = options.ranks
        # An allocation, or the launcher that the user gave, decides on which hosts the ranks run.
        self._is_allocated = options.hostfile is None and (
            options.launcher is not None or int(os.environ.get("SLURM_JOB_NUM_NODES") or 1) > 1
        )
        # Without a hostfile, this machine runs the tasks of a SLURM job, or a coordinator and a worker for each core.
        tasks = int(os.environ.get("SLURM_NTASKS") or 1)
        here = Host("localhost", tasks if tasks > 1 else number_of_cores() + 1)
        self._all_hosts = read_hostfile(options.hostfile) if options.hostfile else [here]
        is_local = all(host.is_here for host in self._all_hosts)
        # An empty list lets the launcher reach hosts in its own way, see `Launcher.environment`.
        if self._is_allocated:
            self._ssh = []
        elif is_local:  # ssh is not called, so it need not be installed
            self._ssh = ["ssh"]
        else:
            self._ssh = command_words("--ssh", "ssh" if options.ssh is None else options.ssh)
        # The number of processes is limited only if all of them run on this machine.
        if is_local and not self._is_allocated:
            slots = sum(host.slots for host in self._all_hosts)
            check_not_too_many("--ranks" if options.ranks else "--hostfile", options.ranks or slots)
        # If `_is_allocated`, `start` does not call `choose`. So no host is left out, and none can be taken back.
        self._available_hosts = AvailableHosts(self._all_hosts, self._ssh, _say)
        self._supervisor = Supervisor(_say)
        self.reclaims_host = False
        """Whether the last attempt was stopped because a lost host is available again."""
        self.say = _say

    def run(self) -> int:
        """Start the job, and resume it until it has ended; return its exit code."""
        self._wait_for_old_ranks()
        return run_until_complete(self)

    @property
    def stopping(self) -> bool:
        """Whether the user has asked to stop, or the time limit of the run is over."""
        return self._supervisor.stopping or self._is_late()

    def _is_late(self) -> bool:
        # The ranks of each attempt count their own time. This process limits the time of all attempts together.
        return time.monotonic() > self._deadline

    def _wait_for_old_ranks(self) -> None:
        """Wait until no process has locked a run file, but not for ever.

        Ranks of an earlier launch end when rank 0 has been silent for `silence_seconds`. A slow rank may take longer,
        so this process waits three times as long.
        """
        deadline, has_said = time.monotonic() + 3 * silence_seconds(), False
        while time.monotonic() < deadline and not self.stopping:
            try:
                for path in self._paths:
                    store.check_unlocked(path)
            except InputError as error:
                if not has_said:
                    _say(f"waiting until this run file is free: {error.got}")
                has_said = True
                self.pause(2.0)
            else:
                return

    def start(self, futile_attempts: int) -> Outcome | None:
        """Start the ranks, and wait for their end. Return None without a start: no host is available, or `stopping`.

        futile_attempts: The number of attempts without progress so far, in a row.
        """
        self.reclaims_host = False
        hosts = [] if self._is_allocated else self._available_hosts.choose()
        if self.stopping or not (hosts or self._is_allocated):
            return None
        ranks = self._ranks(hosts)
        where = "the allocation" if self._is_allocated else ", ".join(host.name for host in hosts)
        _say(f"{pluralize(ranks, 'rank') if ranks else 'ranks'} on {where}")
        # If all hosts are this machine, or an allocation decides, the launcher needs no list of hosts.
        listed_hosts = [] if all(host.is_here for host in hosts) else hosts
        launcher = self._launcher.words(ranks, listed_hosts, self._folder)
        command = [*launcher, *python_words(), "-m", "evolve.run", *self._run_arguments]
        env = self._launcher.environment(self._ssh, self._folder)
        env[COMMAND] = self.command
        # The machine may be slow: each futile attempt doubles the times to begin and to connect.
        patience = 2**futile_attempts
        if ranks:
            env[CONNECT] = f"{patience * connect_seconds(ranks):g}"
        end_limit = _END_SECONDS + _END_SECONDS_PER_RANK * ranks
        # Rank 0 runs on the first host. On another host, rank 0 cannot tell this process that it has begun.
        begin_limit = patience * begin_seconds(ranks) if hosts and hosts[0].is_here else math.inf
        return self._supervisor.run(
            command, env, should_stop=self._should_stop, end_limit=end_limit, begin_limit=begin_limit
        )

    def _ranks(self, hosts: Sequence[Host]) -> int:
        """Return the number of ranks for these hosts, by their share of all slots; 0 if only the launcher knows it."""
        if self._is_allocated:
            return self._requested_ranks or int(os.environ.get("SLURM_NTASKS") or 0)
        slots = sum(host.slots for host in hosts)
        all_slots = sum(host.slots for host in self._all_hosts)
        # A job needs a coordinator and a worker, even if few hosts are left.
        return max(2, round((self._requested_ranks or all_slots) * slots / all_slots))

    def _should_stop(self) -> bool:
        """Return whether to stop the ranks, because the time limit is over or a lost host is available again.

        If a host is the reason, `reclaims_host` becomes True.
        """
        if self._is_late():
            _say("the time limit is over: the ranks are asked to stop")
            return True
        self.reclaims_host = self._available_hosts.can_take_back()
        return self.reclaims_host

    def progress(self) -> tuple[int, int]:
        """Return the number of complete generations of all runs, and the number of runs that have ended."""
        runs = [_progress_of_file(path) for path in self._paths]
        return sum(generations for generations, _ in runs), sum(has_ended for _, has_ended in runs)

    def pause(self, seconds: float) -> None:
        """Wait for a number of seconds, or until `stopping`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stopping:
            time.sleep(0.1)


def command_words(argument: str, command: str) -> list[str]:
    """Split a command of the user into words. argument: the option with the command, for errors.

    Raises InputError if the first word is not a program of this machine, or if a quotation has no end.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:  # a quotation without an end
        raise InputError(argument, "a command with its arguments", f"{command!r} ({error})") from None
    if not words or shutil.which(words[0]) is None:
        raise InputError(argument, "a command that begins with a program of this machine", repr(command))
    return words


def _run_files(request: Request) -> list[Path]:
    """Return the paths of the run files, which need not exist yet."""
    if request.file is not None:
        return [request.file]
    return [store.path_of(config.directory(), seed) for config in request.configs for seed in config.seeds]


def _progress_of_file(path: Path) -> tuple[int, bool]:
    """Return the number of generations in a run file, and whether the run has ended; 0 and False if unreadable."""
    with suppress(InputError):
        return store.read_progress(path)
    return 0, False


def _body(app: App, argv: list[str]) -> int:
    # Arguments that this parser does not know belong to `evolve run`; `load` checks them below.
    options, run_arguments = _parser().parse_known_args(argv)
    # Refuse arguments with which a run cannot be resumed, and the word "run".
    if refused := next((word for word in run_arguments if word.split("=")[0] in _REFUSED_OPTIONS), None):
        expected = f"the arguments of a run that can be resumed, without {', '.join(_REFUSED_OPTIONS)}"
        raise InputError("command line", expected, refused)
    if run_arguments[:1] == ["run"]:
        cure = f"Leave it out: evolve launch {shlex.join(run_arguments[1:])}"
        raise InputError("command line", "only the arguments of evolve run", "the word run before them", cure)
    # Refuse a start by another launcher, and invalid combinations of options.
    launcher = started_by()
    if launcher is not None:
        program = launcher.split()[0]
        cure = f"Leave out {program}: evolve launch starts the ranks."
        raise InputError(program, "one process without a launcher", f"a rank of {launcher}", cure)
    if options.ranks is not None and options.ranks < 2:
        raise InputError("--ranks", "at least 2: a coordinator and a worker", options.ranks)
    for name in ("hostfile", "ssh"):
        if options.launcher is not None and getattr(options, name) is not None:
            expected = f"no --{name} with it: the command itself chooses and reaches the hosts of the ranks"
            cure = "Name the hosts in the command of --launcher, or leave --launcher out."
            raise InputError("--launcher", expected, "both", cure)
    if options.ssh is not None and options.hostfile is None:
        cure = "Leave it out: without --hostfile the launcher reaches the hosts in its own way."
        raise InputError("--ssh", "--hostfile with it, which names the hosts", "no --hostfile", cure)
    check_start("evolve launch")
    request = load(run_arguments)
    with tempfile.TemporaryDirectory(prefix="evolve-") as folder:
        job = Launch(argv, options, run_arguments, request, Path(folder))
        app.stop.check()  # a signal that came before the supervisor caught signals
        return job.run()
