"""Starts a command on its ranks, handles signals and broken output, prints an error once, and sets the exit code.

`launch` is the entry. On rank 0 it calls `_body` of the command's module with an `App`; the other ranks are workers.
With `--workers`, this process only starts the ranks, which call `launch` again.
"""

import ctypes
import errno
import faulthandler
import gc
import io
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

from evolve import cluster, training
from evolve.cli import import_and_freeze
from evolve.cli.parser import Answered, Parser, setting_text
from evolve.cluster import hosts, supervision
from evolve.cluster.cores import Work, count_workers, count_workers_to_start
from evolve.cluster.watchdog import interrupt_soon
from evolve.errors import EvolveError, InputError, Interrupted, RunError, Stopped, describe_error, sanitize

if TYPE_CHECKING:
    from evolve.rollouts import AnyRollout

_LOG = logging.getLogger("evolve")
_OPTIONS_WITHOUT_WORK = {"-h", "--help", "--version", "--settings", "--dry-run"}
"""Options with which a command plays no episode, and thus needs no workers."""
WITH_WORKERS = ("run", "verify", "evaluate", "report")
"""The commands for which `--workers` starts ranks. Their modules have the function `_work`, which returns the amount of
work for their arguments. `contest` has another option `--workers`: the numbers of workers to measure."""
_CLOSE_SECONDS = 5.0  # an environment that takes longer to close ends this process
_REQUEST_SECONDS = 2.0  # a rank with a supervisor counts all signals within this time as one request to stop
_EXIT_SECONDS = 30.0  # an exiting process waits at most this long for the threads of environments
_DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class BestEffortStream:
    """Drops texts that cannot be written. The work goes on if the reader of the stream has gone, or the disk is full.

    It replaces stderr, and also stdout if the results are in a file.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        try:
            self._stream.write(text)
        except OSError:
            discard(self._stream)
        return len(text)

    def flush(self) -> None:
        """Write the buffered text, or drop it."""
        try:
            self._stream.flush()
        except OSError:
            discard(self._stream)


def write_to_stderr_of_mpirun(text: str) -> None:
    """Write a text to the stderr of Open MPI's mpirun, because after Ctrl-C mpirun drops the output of its ranks.

    Nothing is written unless Open MPI started this process.
    """
    if "OMPI_COMM_WORLD_SIZE" not in os.environ:
        return
    with suppress(OSError):
        # Without O_NOCTTY, a terminal that is opened could become the controlling terminal of this process.
        descriptor = os.open(f"/proc/{os.getppid()}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
        try:
            show_cursor = "\x1b[?25h\n" if os.isatty(descriptor) else ""  # the display has hidden the cursor
            os.write(descriptor, (show_cursor + text).encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)


def discard(stream: TextIO) -> None:
    """Redirect an unwritable stream to /dev/null so that shutdown stays silent."""
    with open(os.devnull, "wb") as null:
        os.dup2(null.fileno(), stream.fileno())


class StopFlag:
    """Remembers the first signal. The second signal has its usual effect: it ends this process, even if it hangs.

    A cluster sends SIGTERM to all processes of a job. The supervisor passes it on to its ranks as SIGUSR1, and mpirun
    passes it on to them as SIGTERM. So these ranks get several signals for one request, in any order. They ignore all
    signals within `_REQUEST_SECONDS` seconds after the first one.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._first_at = 0.0
        self._caught: tuple[int, ...] = ()
        self._replaced: set[int] = set()  # the signals with a handler that the environment has replaced
        self._deadline = float("inf")
        self.stop_message: Callable[[], str] | None = None
        """Returns the message to print at once on a signal other than SIGUSR1. The launcher drops later output."""
        self.plays_episodes = False
        """Whether this process plays episodes, so that an environment may replace the handlers of signals."""
        self.interrupts_environment = False
        """Whether the first signal interrupts an environment that hangs in this process."""
        self.command_without_episodes = ""
        """The name of the command if it plays no episode. The first signal then ends the process at once."""

    def install(self) -> None:
        """Catch the signals that ask this process to stop."""
        # nohup makes a process ignore SIGHUP, so that the process outlives its terminal.
        ignored = {signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set()
        self._caught = tuple(number for number in supervision.STOPPING if number not in ignored)
        for number in self._caught:
            signal.signal(number, self._remember)
        # Python writes the number of each signal into this pipe, even if the environment has replaced the handler.
        signal.set_wakeup_fd(_pipe()[1], warn_on_full_buffer=False)
        with suppress(OSError):  # drop the signals of an earlier command of this process
            os.read(_pipe()[0], 2**16)

    def read_signal(self) -> int | None:
        """Return the first signal; None before it.

        After the first signal, a call also restores the usual effect of all signals, so that the next signal ends the
        process. In a rank with a supervisor, it restores nothing before the request of the first signal is over.
        """
        if self._first is not None and not self._is_in_first_request():
            self._stop_catching()
        return self._first

    def limit(self, seconds: float) -> None:
        """Ask to stop after this number of seconds."""
        self._deadline = time.monotonic() + seconds

    def reason(self) -> str | None:
        """Return the reason to stop, or None."""
        if self._first is None and self.plays_episodes:
            self._keep_catching()
        received = self.read_signal()
        if received is None:
            return "the time limit" if time.monotonic() > self._deadline else None
        if supervision.is_supervised() and received == signal.SIGUSR1:
            return "a signal"  # the supervisor has printed the name of the signal
        return signal.Signals(received).name

    def check(self, where: str = "") -> None:
        """Raise Stopped if there is a reason to stop. where: A text after the reason, such as " in step 7"."""
        reason = self.reason()
        if reason is not None:
            raise Stopped(f"stopped by {reason}{where}")

    def _keep_catching(self) -> None:
        """Put back the handlers of signals that the environment has replaced. A client of ROS replaces handlers."""
        if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
            return
        for number in self._caught:
            if signal.getsignal(number) != self._remember:
                signal.signal(number, self._remember)
                if number not in self._replaced:  # warn once, because each episode may replace the handler
                    name = signal.Signals(number).name
                    _LOG.warning(
                        "the environment has replaced the handler of %s, which stops this command: it is put back", name
                    )
                self._replaced.add(number)
        # The handler of the environment may have received a signal. The pipe has the number of each signal.
        if self._replaced:
            with suppress(OSError):  # the pipe is empty
                arrived = [number for number in os.read(_pipe()[0], 4096) if number in self._caught]
                if arrived and self._first is None:
                    self._remember(arrived[0], None)

    def _remember(self, number: int, _frame: FrameType | None) -> None:
        """Remember the first signal, and restore its usual effect unless this process has a supervisor."""
        if self._first is not None:
            if self._is_in_first_request():
                return
            # The second request: the usual effect of its signal ends this process.
            self._stop_catching()
            signal.raise_signal(number)
        self._first, self._first_at = number, time.monotonic()
        # The handlers of the other signals stay until `read_signal`, because Python reports an error if a signal is
        # pending while its handler is removed.
        if not supervision.is_supervised():
            _restore_usual_effect(number)
        else:  # the supervisor sends SIGUSR1 only once, so a later SIGUSR1 belongs to this request
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)
            self._caught = tuple(each for each in self._caught if each != signal.SIGUSR1)
        if self.command_without_episodes:
            # Exit here, because an exception would be lost in a destructor, for example of h5py.
            with suppress(OSError):
                stopped = f"evolve.{self.command_without_episodes}: stopped by {signal.Signals(number).name}\n"
                os.write(2, stopped.encode())
            os._exit(Stopped.exit_code)
        if self.interrupts_environment:
            interrupt_soon()
        if self.stop_message is not None and number != signal.SIGUSR1:
            write_to_stderr_of_mpirun(f"{self.stop_message()}\n")

    def _is_in_first_request(self) -> bool:
        """Return whether a signal that arrives now belongs to the request of the first signal."""
        return supervision.is_supervised() and time.monotonic() - self._first_at < _REQUEST_SECONDS

    def _stop_catching(self) -> None:
        for number in self._caught:
            _restore_usual_effect(number)
        self._caught = ()


@cache
def _pipe() -> tuple[int, int]:
    """Return the file descriptors of a pipe, the end to read and the end to write. Neither operation ever waits."""
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


def _restore_usual_effect(number: int) -> None:
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@dataclass(frozen=True)
class App:
    """The transport to the workers and the stop flag of a command on rank 0."""

    transport: "cluster.Transport"
    stop: StopFlag

    def coordinator(self) -> "cluster.Coordinator":
        """Return a coordinator of the workers. From now on, this process may play episodes."""
        self.stop.plays_episodes = True
        return cluster.Coordinator(self.transport, kept_rollouts(), self.stop.reason)


Body = Callable[[App, list[str]], int]
"""The function of a command. It takes the app of rank 0 and the arguments, and returns the exit code."""


def launch(name: str, argv: list[str] | None = None, body: Body | None = None) -> int:
    """Run a command on every rank, and return its exit code. Rank 0 runs the body, and the other ranks serve rank 0.

    Rank 0 prints an error as one plain message, and always dismisses the workers. Any other failure of a rank ends the
    job, so that no rank waits forever.

    Args:
        name: The name of the command.
        argv: The arguments of the command, by default the arguments of this process.
        body: The function that carries out the command on rank 0, by default `_body` of the command's module.
    """
    argv = sys.argv[1:] if argv is None else argv
    _prepare_streams()
    code = _run_in_ranks(name, argv) if name in WITH_WORKERS else None
    if code is not None:
        return code
    # The module of a command imports most of the package, which takes most of the time of a start. A worker rank does
    # not need the module, and neither does the process that starts the ranks of `--workers N`.
    if cluster.launched().rank != 0:
        body = None
        import_and_freeze("evolve.cluster.worker", "evolve.training.rollouts", "evolve.training.shared_strategy")
    elif body is None:
        body = _module_of(name)._body
    return _run_on_this_rank(name, argv, body)


def _module_of(name: str) -> Any:
    """Return the module of a command."""
    return import_and_freeze(f"evolve.cli.{name}")[0]


def _prepare_streams() -> None:
    """Open missing standard streams, escape characters that cannot be encoded, and let writes to stderr never fail."""
    # `open` takes the lowest free descriptor, so in this order the streams get 0, 1 and 2. Libraries write to 2.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:  # closed before this process began
            # The stream has no context manager, because it stays open until the process ends.
            opened = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            os.set_inheritable(opened.fileno(), True)  # mpirun ends the ranks at once without these descriptors
            setattr(sys, name, opened)
        # A name that cannot be encoded must not end a command. In the locale C, Python has the handler
        # "surrogateescape", which encodes no letter beyond ASCII.
        elif isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding == "ascii"):
            stream.reconfigure(errors="backslashreplace")
    # Ctrl-C in `evolve run … 2>&1 | tee log` also ends tee, and must still stop the ranks.
    sys.stderr = BestEffortStream(sys.stderr)


def _run_in_ranks(command: str, argv: list[str]) -> int | None:
    """Run a command in new ranks if `--workers` asks for them. Return the exit code; None if this process must run it.

    The function prints errors, such as a wrong number of workers or a missing mpirun.
    """
    # Only --workers is read here. Rank 0 of the new ranks reads the other arguments.
    parser = Parser("evolve", "", add_help=False)
    parser.add_workers()
    try:
        options, unparsed = parser.parse_known_args(argv)
        if options.workers is None or _OPTIONS_WITHOUT_WORK & set(argv):
            return None

        def amount() -> Work:
            # 2 or more workers start whatever the work is. Only rank 0 compares it with their number: `_say_if_idle`.
            return _module_of(command)._work(unparsed) if options.workers in ("auto", 1) else Work()

        count = count_workers_to_start(options.workers, amount, "--workers", "a command")
        say(command, count.describe())
        if count.workers == 1:
            return None
        cluster.check_start("--workers")
        words = [*hosts.mpirun_words(count.workers + 1), *hosts.python_words(), "-m", f"evolve.{command}", *unparsed]
        return supervision.supervise(words, hosts.mpirun_environment(), count.workers, partial(say, command))
    except EvolveError as error:
        return _refuse(command, error)


@contextmanager
def stdout_for_json(is_json: bool) -> Iterator[None]:
    """Keep stdout free for JSON, if `is_json`: within this block, environments print to stderr."""
    if not is_json:
        yield
        return
    sys.stdout.flush()
    # Simulators print by C, past `sys.stdout`.
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        # The buffers of C may have text of an environment. Flush them before descriptor 1 is stdout again.
        ctypes.CDLL(None).fflush(None)
        os.dup2(stdout, 1)
        os.close(stdout)


def say(command: str, text: str) -> None:
    """Tell the user about the progress of a command, on stderr."""
    print(f"evolve.{command}: {text}", file=sys.stderr, flush=True)


def _run_on_this_rank(name: str, argv: list[str], body: Body | None) -> int:
    """Run the body of a command on rank 0, or serve rank 0 without a body; return the exit code."""
    stop = StopFlag()
    stop.install()  # before MPI starts: an interrupt during its start would leave the other ranks waiting
    try:
        transport = cluster.connect()
    except InputError as error:
        return _refuse(name, error)
    except RunError as error:  # rank 0 was lost, and MPI_Finalize might wait for it forever
        print_error(name, error)
        os._exit(error.exit_code)
    faulthandler.enable()  # after MPI: its own handler prints no Python stack
    try:
        if body is None:
            # With --json, the environments of a worker must print to stderr, too: all ranks share stdout.
            replica = training.StrategyReplica()
            with stdout_for_json("--json" in argv):
                cluster.serve(transport, kept_rollouts(), stop.read_signal, replica, _close_environments)
            transport.leave(0)
            return 0
        return _coordinate(name, argv, body, App(transport, stop))
    except BaseException as error:
        # Rank 0 prints its own EvolveErrors. If a worker has one, rank 0 has died, and the lowest rank left prints it.
        lowest_left = min(set(range(transport.size)) - transport.gone)
        if not isinstance(error, EvolveError):
            traceback.print_exc()
        elif transport.rank == lowest_left:
            print_error(name, error)
        else:
            # A launcher may hang, or lose the exit code, if two ranks ask it to abort. So end this process here, unless
            # this MPI does not survive that: then `leave` does nothing.
            transport.leave(1)
        transport.abort(1)
        return 1


def _refuse(name: str, error: EvolveError) -> int:
    """Print an error that comes before MPI starts, only on rank 0; return the exit code."""
    if cluster.launched().rank != 0:
        return 0  # a failure would make the launcher end the job, perhaps before rank 0 has printed the error
    print_error(name, error)
    return supervision.hand_over(error.exit_code)


def _coordinate(name: str, argv: list[str], body: Body, app: App) -> int:
    """Run a command on rank 0, and dismiss the workers; return the exit code."""
    transport = app.transport
    supervision.say_begun()
    app.stop.interrupts_environment = True
    code = _run_body(name, argv, body, app)
    # A supervisor asks its ranks to stop by SIGUSR1. A launcher sends SIGTERM if it ends the job after a rank's death.
    lost_rank = bool(transport.silent) or app.stop.read_signal() == signal.SIGTERM
    # Hand the code over before the ranks end: from then on, the supervisor kills a launcher that does not end in time.
    code = supervision.hand_over(code, start_again=lost_rank and code == Stopped.exit_code)
    all_have_left = cluster.dismiss(transport)
    with stdout_for_json("--json" in argv):  # an environment may print when it is closed
        _close_environments()
    if not all_have_left or transport.abandoned:
        sys.stdout.flush()
        transport.abort(code)  # the command is done, so the remaining ranks may be killed
    transport.leave(code)
    return code


def _say_if_idle(name: str, argv: list[str]) -> None:
    """Tell the user if the work is too little for the workers that `--workers` has started."""
    workers = supervision.supervised_workers()
    if workers is not None and name in WITH_WORKERS:
        remark = count_workers(workers, _module_of(name)._work(argv)).remark
        # The process that started the ranks has printed the remark that does not depend on the work.
        if remark != count_workers(workers, Work()).remark:
            say(name, remark)


def _run_body(name: str, argv: list[str], body: Body, app: App) -> int:
    """Run the body of a command, and print its error as one message; return the exit code."""
    try:
        cluster.check_arguments(app.transport)
        code = 0
        with suppress(Answered):  # the parser has printed the help
            _say_if_idle(name, argv)
            code = body(app, argv)
        # The output is flushed here, so that the handlers below see its errors.
        sys.stdout.flush()
        return code
    except EvolveError as error:
        print_error(name, error)
        return error.exit_code
    except Interrupted:
        print_error(name, Stopped(f"stopped by {app.stop.reason()}, as an environment did not answer"))
        return Stopped.exit_code
    except BrokenPipeError:  # the reader of stdout has gone: stay silent, even at exit
        discard(sys.stdout)
        return 1
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in _DISK_FULL_ERRORS:
            discard(sys.stdout)
            print(f"evolve.{name}: the output cannot be written ({error}).", file=sys.stderr)
        elif isinstance(error, KeyboardInterrupt) and app.stop.read_signal() is None:
            message = f"code that evolve called raised KeyboardInterrupt:\n{describe_error(error).rstrip()}"
            print_error(name, RunError(message))
        else:
            traceback.print_exc()
        return 1


def print_error(name: str, error: EvolveError) -> None:
    """Print an error on stderr, with the options of the command beside the settings. name: The command."""
    message = f"evolve.{name}: {error.spelled_message(lambda setting: setting_text(setting, name))}"
    print(message.encode("utf-8", "backslashreplace").decode(), file=sys.stderr, flush=True)


def make_frozen_rollout(experiment: str) -> "AnyRollout":
    """Make the rollout of an experiment (TOML text), and exempt all present objects from garbage collection."""
    rollout = training.make_rollout(experiment)
    freeze_objects()
    return rollout


@cache  # only the first call: a later call would keep the objects of the last episodes forever
def freeze_objects() -> None:
    """Exempt all present objects from garbage collection.

    Environments make and drop many objects, so the collector runs often. Scanning all imported modules each time would
    cost a tenth of a run.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)  # run the collector after 10,000 new objects; the default is some hundreds


@cache  # so that `_close_environments` closes the rollouts that the coordinator or the worker has used
def kept_rollouts() -> "cluster.KeptRollouts":
    """Return the rollouts of this process."""
    return cluster.KeptRollouts(make_frozen_rollout)


def path_for_stdout(path: Path) -> str:
    """Return a path as text: without control characters on a terminal, otherwise exact, for a script that reads it."""
    return sanitize(str(path), 4000) if sys.stdout is not None and sys.stdout.isatty() else str(path)


def ensure_exit(code: int) -> None:
    """End this process after `_EXIT_SECONDS`, even if a thread of an environment does not end.

    Python waits for such a thread forever, and all other ranks and the launcher would wait for this process.
    """

    def end() -> None:
        time.sleep(_EXIT_SECONDS)
        # The other ranks wait for this process in MPI_Finalize.
        cluster.finalize()
        others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
        names = ", ".join(thread.name for thread in others if not thread.daemon) or "a process"
        print(f"evolve: an environment has not ended {names}: this process does not wait any longer", file=sys.stderr)
        with suppress(OSError):  # the thread may have printed, and the reader may have gone
            sys.stdout.flush()
        os._exit(code)

    threading.Thread(target=end, daemon=True).start()


def _close_environments() -> None:
    """Close the environments of this process, because their threads and processes would outlive the command."""
    with cluster.Watchdog(_CLOSE_SECONDS, fatal=True):
        kept_rollouts().close()
