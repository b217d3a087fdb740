"""evolve launch: run an experiment on several hosts, and start it again until it is complete."""

import argparse
import math
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from evolve import store
from evolve.cli.app import App, launch, say
from evolve.cli.parser import Parser, command_line
from evolve.cli.run import Request, load
from evolve.cluster import check_mpi4py, started_by
from evolve.cluster.cores import available_cores
from evolve.cluster.hosts import AvailableHosts, Host, read_hostfile
from evolve.cluster.mpirun import COMMAND, CONNECT, GivenLauncher, Launcher, Outcome, Supervisor
from evolve.cluster.start import connect_seconds, silence_seconds
from evolve.errors import InputError, Stopped, pluralize

_MAX_FUTILE = 3  # attempts in a row without any progress
_LONGEST_PAUSE = 10.0
_REFUSED = ("--overwrite", "--dry-run", "--workers", "--settings")
_LINGER, _LINGER_PER_RANK = 20.0, 0.15  # seconds that mpirun may take to end after rank 0
_STARTED_WITHIN = 60.0  # seconds that mpirun may take until the ranks begin to connect
_HERE = "localhost"
_say = partial(say, "launch")


def run_until_complete(launch: "Launch") -> int:
    """Start a run until it ends by itself; return its exit code.

    The run is started again after the death of a rank, after the loss of a host, and to take a host back. After three
    attempts in a row without a new generation, the run is given up.
    """
    before, futile, first = launch.progress(), 0, True
    while True:
        outcome = launch.start(futile)
        if launch.stopping:
            return outcome.code if outcome is not None and outcome.is_own else Stopped.exit_code
        if outcome is not None and _is_final(outcome, first, launch.returning):
            return outcome.code
        now = launch.progress()
        futile = futile + 1 if now <= before and not launch.returning else 0
        cause = "no host answers" if outcome is None else _cause(outcome)
        done = f"{pluralize(now, 'generation')} complete"
        if futile >= _MAX_FUTILE:
            launch.say(f"{cause}; {done}; {_MAX_FUTILE} attempts without any progress: given up")
            return 1 if outcome is None else outcome.code or 1
        if not launch.returning:
            launch.say(f"{cause}; {done}; the run is resumed")
            launch.pause(min(2.0**futile, _LONGEST_PAUSE))
        if launch.stopping:
            return Stopped.exit_code
        before, first = now, False


def _is_final(outcome: Outcome, first: bool, returning: bool) -> bool:
    """Return whether the run has ended for good by its own exit code."""
    if not outcome.is_own or outcome.start_again:
        return False
    # The first attempt has checked the input. If a later attempt refuses it, the reason is another one: ranks that an
    # earlier attempt left behind still hold the run file.
    if outcome.code == InputError.exit_code:
        return first
    return not (returning and outcome.code == Stopped.exit_code)


def _cause(outcome: Outcome) -> str:
    return "a host was lost" if outcome.start_again else f"the ranks ended with code {outcome.code}"


def _parser() -> Parser:
    parser = Parser(
        "evolve.launch",
        "Run an experiment with mpirun: here, on the hosts of a hostfile, or on an allocation. After a death "
        "or the loss of a host it is resumed, until it has ended. All other arguments are passed to evolve run.",
        "evolve launch --hostfile hostfiles/two-nodes experiments/walker.toml -s 1 -o runs/walker",
    )
    add = parser.add_argument
    add("--hostfile", type=Path, metavar="FILE", help="the hosts, one on each line: node1 slots=32")
    ranks = "number of ranks (the slots of all hosts; here: a worker per core)"
    add("-n", "--ranks", type=int, metavar="R", help=ranks)
    how = "start the ranks by this command in place of mpirun, such as srun --mpi=pmix in a SLURM job"
    add("--launcher", metavar="COMMAND", help=how)
    reaches = "the command that reaches the other hosts without a password (ssh)"
    add("--ssh", default="ssh", metavar="COMMAND", help=reaches)
    return parser


class Launch:
    """A run that is started again until it has ended.

    Args:
        argv: All arguments.
        options: The options of `evolve launch`.
        words: The arguments of `evolve run`.
        request: The request of these words.
        folder: A directory for temporary files.
    """

    def __init__(
        self, argv: list[str], options: argparse.Namespace, words: Sequence[str], request: Request, folder: Path
    ) -> None:
        self._words = [*words, *([] if request.resume else ["--resume"])]
        self._paths = _run_files(request)
        self._launcher = Launcher.find() if options.launcher is None else GivenLauncher(options.launcher)
        self._ssh = shlex.split(options.ssh)
        self._folder = folder
        self._command = command_line("launch", *argv)
        self._asked = options.ranks
        self._allocated = options.hostfile is None and (
            options.launcher is not None or int(os.environ.get("SLURM_JOB_NUM_NODES", "1")) > 1
        )
        self._all = read_hostfile(options.hostfile) if options.hostfile else [Host(_HERE, available_cores() + 1)]
        self._available_hosts = AvailableHosts(self._all, self._ssh, _say)
        self._supervisor = Supervisor(_say)
        self.returning = False
        """Whether the last attempt was stopped to take a host back."""
        self.say = _say

    def run(self) -> int:
        """Start the run until it has ended; return its exit code."""
        self._wait_for_writers()
        return run_until_complete(self)

    @property
    def stopping(self) -> bool:
        """Whether the user has asked to stop."""
        return self._supervisor.stopping

    def _wait_for_writers(self) -> None:
        """Wait until ranks that an earlier attempt left behind have noticed that they are cut off, and have ended."""
        deadline, said = time.monotonic() + 3 * silence_seconds(), False
        while time.monotonic() < deadline and not self.stopping:
            try:
                for path in self._paths:
                    store.check_unlocked(path)
            except InputError as error:
                if not said:
                    _say(f"{error} Waiting for it")
                said = True
                self.pause(2.0)
            else:
                return

    def start(self, futile: int) -> Outcome | None:
        """Start the ranks, and wait for their end. futile: the number of preceding attempts without progress."""
        self.returning = False
        hosts = [] if self._allocated else self._available_hosts.choose()
        if not hosts and not self._allocated:
            return None
        ranks = self._ranks(hosts)
        where = "the allocation" if self._allocated else ", ".join(host.name for host in hosts)
        _say(f"{pluralize(ranks, 'rank') if ranks else 'ranks'} on {where}")
        elsewhere = [] if all(host.is_here for host in hosts) else hosts
        words = self._launcher.words(ranks, elsewhere, self._folder)
        command = [*words, sys.executable, "-m", "evolve.run", *self._words]
        environment = self._launcher.environment(self._ssh, self._folder)
        environment[COMMAND] = self._command
        # The machine may be slow: each attempt in vain doubles the time that the ranks may take to connect.
        limit = 2**futile * connect_seconds(ranks)
        if ranks:
            environment[CONNECT] = f"{limit:g}"
        here = bool(hosts) and hosts[0].is_here
        return self._supervisor.run(
            command,
            environment,
            should_stop=self._can_return,
            linger=_LINGER + _LINGER_PER_RANK * ranks,
            begin=limit + 2**futile * _STARTED_WITHIN if here else math.inf,
            here=here,
        )

    def _ranks(self, hosts: Sequence[Host]) -> int:
        """Return the number of ranks to start, reduced in proportion if hosts are left out."""
        if self._allocated:
            return self._asked or int(os.environ.get("SLURM_NTASKS", "0"))
        slots, all_slots = (sum(host.slots for host in some) for some in (hosts, self._all))
        return max(2, round((self._asked or all_slots) * slots / all_slots))

    def _can_return(self) -> bool:
        """Return whether to stop the ranks, because a host can be taken back."""
        self.returning = self._available_hosts.can_grow()
        return self.returning

    def progress(self) -> int:
        """Return the number of complete generations."""
        return sum(_generations(path) for path in self._paths)

    def pause(self, seconds: float) -> None:
        """Wait for a number of seconds, or until the user asks to stop."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stopping:
            time.sleep(0.1)


def _run_files(request: Request) -> list[Path]:
    if request.file is not None:
        return [request.file]
    return [store.path_of(config.directory(), seed) for config in request.configs for seed in config.seeds]


def _generations(path: Path) -> int:
    """Return the number of complete generations in a run file, plus one if the run has ended; 0 if unreadable."""
    try:
        generations, complete = store.read_progress(path)
    except InputError:
        return 0
    return generations + complete


def _body(_: App, argv: list[str]) -> int:
    options, words = _parser().parse_known_args(argv)
    if refused := next((word for word in words if word.split("=")[0] in _REFUSED), None):
        raise InputError("evolve launch", "the arguments of a run that is to be kept going", refused)
    if words[:1] == ["run"]:
        cure = f"Leave it out: evolve launch {shlex.join(words[1:])}"
        raise InputError("evolve launch", "only the arguments of evolve run", "the word run before them", cure)
    launcher = started_by()
    if launcher is not None:
        cure = "Leave out mpirun: evolve launch starts the ranks."
        raise InputError("evolve launch", "one process without a launcher", f"one of {launcher}", cure)
    if options.ranks is not None and options.ranks < 2:
        raise InputError("--ranks", "at least 2: a coordinator and a worker", options.ranks)
    check_mpi4py("evolve launch")
    request = load(words)
    with tempfile.TemporaryDirectory(prefix="evolve-") as folder:
        return Launch(argv, options, words, request, Path(folder)).run()


def main(argv: list[str] | None = None) -> int:
    """Run the command; return the exit code of the run."""
    return launch("launch", _body, argv)
