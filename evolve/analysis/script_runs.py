"""Runs and other calls of a Python script, on the script's own ranks or on ranks that it starts.

`evolve_here` evolves a run on the script's ranks. `evolve_elsewhere` and `call_elsewhere` start ranks, send them a
request over a socket, and receive messages. The started ranks call `serve_script`.
"""

import json
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from evolve import errors, training
from evolve.analysis.generations import Generation, pack, pack_generation, unpack, unpack_generation
from evolve.analysis.progress import MIN_REFRESH, ProgressReporter
from evolve.cluster import Coordinator, launched
from evolve.cluster.cores import Work, WorkerCount, count_workers_to_start
from evolve.cluster.script import Collective, Link, StartedRanks
from evolve.config import seconds
from evolve.errors import EpisodeError, InputError, Stopped
from evolve.numerics import restore_ieee
from evolve.numerics.streams import Purpose
from evolve.store import RunFile, Start
from evolve.training import iterate, load_config, prepare
from evolve.training.experiment import PlannedRun
from evolve.training.manifest import module_digests
from evolve.training.plan import preview, work_of
from evolve.training.resume import (
    check_and_create_runs,
    cures_of_failure,
    generations_on_disk,
    is_finished,
    open_run,
    replace_run,
)
from evolve.training.rollouts import choose_backend
from evolve.verification import spot_check

_LOG = logging.getLogger("evolve")
_LINE_INTERVAL = 5.0  # seconds between lines of progress if they do not go to a terminal
MakeReporter = Callable[[PlannedRun, int, int], ProgressReporter]
"""Returns the progress display of a run, given the run, its number of complete generations, and their steps."""
ScriptWork = Callable[[Collective, Link, Mapping[str, Any], Coordinator], bytes]
"""Returns rank 0's answer to a script, given the ranks, the link to the script, its request, and the coordinator."""


def script_ranks() -> Collective:
    """Return the ranks of this script. Each call makes new rollouts, so several threads may use the ranks at once."""
    restore_ieee()  # a library of the script may have changed the arithmetic of this thread
    return Collective(training.make_rollout, shared=training.StrategyReplica())


@dataclass(frozen=True)
class RunOptions:
    """The options of a script's call that do not belong to the `PlannedRun`.

    Attributes:
        resume: Whether to continue an existing run file.
        overwrite: Whether to replace an existing run file.
        progress: Whether to show progress on standard error.
        receives_generations: Whether the script receives each generation.

    Raises InputError if `resume`, `overwrite` or `progress` is neither True nor False.
    """

    resume: bool
    overwrite: bool
    progress: bool
    receives_generations: bool

    def __post_init__(self) -> None:
        for argument in ("resume", "overwrite", "progress"):
            errors.check_flag(argument, getattr(self, argument))

    def make_reporter(self, plan: PlannedRun, completed: int, steps: int) -> ProgressReporter:
        """Return the progress display of a run after a number of generations (`completed`) and their steps."""
        config = plan.experiment.config
        limit = config.early_stop.steps
        steps_left = math.inf if limit is None else limit - steps
        return ProgressReporter(
            plan.seed, completed, config.generations, quiet=not self.progress, steps_left=steps_left,
            line_interval=_LINE_INTERVAL, stream=sys.stderr, plays_whole_episodes=plan.experiment.plays_whole_episodes,
        )  # fmt: skip


def number_of_workers(asked: Any, plan: PlannedRun, options: RunOptions) -> int:
    """Return the number of workers to start for a run; 1 to play the episodes here. Raises InputError.

    asked: The argument `workers` of the script, a number or "auto".
    """
    count = _count_workers(asked, lambda: work_of([plan.experiment.config]))
    _check_options(plan, options)
    if preview(plan, options.resume, options.overwrite).action == "keep":
        return 1  # the run is complete: there is nothing to play
    _LOG.info("%s", count.describe())
    return count.workers


def _count_workers(asked: Any, work: Callable[[], Work]) -> WorkerCount:
    """Return the number of workers for an amount of work; `asked` as for `number_of_workers`."""
    # `asked` may be a NumPy array. A comparison of an array with "auto" gives an array, so check the type first.
    if not (isinstance(asked, str) and asked == "auto"):
        try:
            asked = errors.check_whole("workers", asked, 1)
        except InputError as error:
            raise InputError("workers", 'a number of workers, at least 1, or "auto"', error.got) from None
    return count_workers_to_start(asked, work, "workers", "a script")


def _check_options(plan: PlannedRun, options: RunOptions) -> None:
    """Raise InputError if options exclude each other, or if the strategy refuses its settings."""
    plan.experiment.strategy(plan.seed)  # raises the InputError of the strategy
    if options.resume and options.overwrite:
        expected = "not together with resume=True: overwrite begins a new run, resume continues one"
        raise InputError("overwrite", expected, "both")


def evolve_here(
    ranks: Collective, coordinator: Coordinator, plan: PlannedRun, options: RunOptions, make_reporter: MakeReporter
) -> Generator[Generation]:
    """Evolve a run on rank 0 until it ends or is stopped; yield each generation."""
    experiment, backend_trial = choose_backend(plan.experiment)
    plan = replace(plan, experiment=experiment)
    if backend_trial is not None:
        _LOG.info("%s", backend_trial)
    _check_options(plan, options)
    ranks.stop_reason = _with_time_limit(ranks.stop_reason, experiment.config.compute.time_limit)
    # The old file stays in place until the first new generation is complete.
    replaces = options.overwrite and preview(plan, resume=False, overwrite=True).action == "replace"
    file: RunFile | None = None
    try:
        # If a run is resumed, `spot_check` plays one of its episodes again. A reason to stop also ends this episode.
        check = partial(spot_check, stop_reason=ranks.stop_reason)
        check_and_create_runs([plan], options.resume, ranks.transport, check, options.overwrite)
        if not replaces and is_finished(plan):
            return
        with closing(replace_run(plan, ranks.transport) if replaces else open_run(plan, ranks.transport)) as file:
            # A script may end, or read the file, after each generation that it receives. So the file must then hold
            # this generation. With workers, the reader may be another process.
            if options.receives_generations:
                file.flush_for_script(seen_elsewhere=bool(coordinator.workers))
            with make_reporter(plan, file.num_generations, file.steps) as reporter:
                reporter.validations = file.validations  # the loop adds each new validation
                coordinator.progress = reporter.update
                for record in iterate(experiment, coordinator, file):
                    reporter(record)
                    yield Generation(file.num_generations - 1, record)
    except errors.HostLost:  # a subclass of Stopped, but always an error for the caller
        raise
    except Stopped as reason:
        # Usually a stopped run ends here without an error, and the caller finds its generations in the run file. But if
        # the file of the old run is still in place, the new run has no file.
        if file is not None and file.replaces:
            raise Stopped(f"{reason}: {generations_on_disk(file)}.") from None
    except EpisodeError as error:
        if file is None:
            raise
        cures = "".join(map(str, cures_of_failure(file, error)))
        raise EpisodeError(error.which, f"{error.message}{cures}", error.key) from error


def _with_time_limit(stop_reason: Callable[[], str | None], limit: str | None) -> Callable[[], str | None]:
    """Return a function that also returns a reason to stop if a time limit has passed. The time begins now."""
    if limit is None:
        return stop_reason
    deadline = time.monotonic() + seconds(limit)
    return lambda: stop_reason() or ("the time limit" if time.monotonic() > deadline else None)


# The kinds of messages from the started rank 0 to the script: the first byte of each message.
_BEGIN, _UPDATE, _GENERATION, _LOGGED, _ERROR, _DONE = b"B", b"U", b"G", b"L", b"E", b"D"
# The script sends its request. For a run, the script then sends the genome to start from (empty without one), and this
# message after each generation that it has received.
_GO_ON = b"+"
_SCRIPT_ENDED = "the script has left its run, or has ended"


def _message(kind: bytes, *values: int | str) -> bytes:
    """Return a message of a kind with values. They are read by `json.loads`."""
    return kind + json.dumps(values).encode()


def evolve_elsewhere(plan: PlannedRun, options: RunOptions, workers: int) -> Generator[Generation]:
    """Evolve a run on ranks that this process starts; yield each generation if `options.receives_generations`.

    If the caller leaves the generator, the ranks stop, and the run file keeps the complete generations.
    """
    # The ranks import the modules of the script from their files. `module_digests` warns if such a file has changed
    # since this process imported it.
    module_digests(plan.experiment.config)
    planned = {"config": plan.experiment.config.to_toml(), "seed": plan.seed, "path": str(plan.path)}
    reporter: ProgressReporter | None = None
    with closing(StartedRanks(workers, f"{__name__}:evolve_for_script")) as ranks, ExitStack() as stack:
        _send_request(ranks, planned | {"options": asdict(options)})
        start = plan.experiment.start
        ranks.link.send(pack() if start is None else pack(**vars(start)))
        cure = "Complete generations are in the run file: continue with ", errors.Setting("resume", True), "."
        for kind, content in _messages(ranks, *cure):
            if kind == _DONE:
                return
            # The first message is `_BEGIN`, which `_ProgressRelay` sends when the run begins.
            if reporter is None:
                reporter = stack.enter_context(options.make_reporter(plan, *json.loads(content)))
            elif kind == _UPDATE:
                purpose, *counts = json.loads(content)
                reporter.update(Purpose(purpose), *counts)
            else:
                generation = unpack_generation(content)
                reporter(generation.record)
                if options.receives_generations:
                    yield generation
                    # Rank 0 waits for this message before it begins the next generation.
                    ranks.link.send(_GO_ON)


def call_elsewhere(asked: Any, work: Work, function: str, request: Mapping[str, Any]) -> bytes | None:
    """Send a request to ranks that this process starts, and return the answer; None if no ranks are needed.

    Args:
        asked: As for `number_of_workers`.
        work: The amount of work.
        function: The main function of the ranks, as `module:name`. It calls `serve_script`.
        request: A table for JSON.
    """
    count = _count_workers(asked, lambda: work)
    if count.workers == 1:
        return None
    _LOG.info("%s", count.describe())
    with closing(StartedRanks(count.workers, function)) as ranks:
        _send_request(ranks, request)
        _, answer = next(_messages(ranks))  # the only message is `_DONE`, with the answer
        return answer


def _send_request(ranks: StartedRanks, request: Mapping[str, Any]) -> None:
    """Send a request, and with it the command line and the log level of this process."""
    ranks.link.send(json.dumps({**request, "command": sys.orig_argv, "level": _LOG.getEffectiveLevel()}).encode())


def _messages(ranks: StartedRanks, *cure: str | errors.Setting) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the content of each message of started ranks, until `_DONE`.

    Log messages are shown instead, and errors are raised.

    cure: A sentence for the error if the ranks end early.
    """
    while (message := ranks.link.receive()) is not None:
        kind, content = message[:1], message[1:]
        if kind == _ERROR:
            raise errors.error_from_json(content)
        if kind == _LOGGED:
            level, text = json.loads(content)
            _LOG.log(level, "%s", text)
            continue
        yield kind, content
        if kind == _DONE:
            return
    raise ranks.unexpected_end(*cure)


def serve_script(work: ScriptWork) -> None:
    """Do the work of a rank that a script has started: on rank 0, `work`; on other ranks, play episodes for rank 0."""
    # Only rank 0 communicates with the script.
    link = Link.to_script() if launched().rank == 0 else None
    try:
        ranks = script_ranks()
        if link is None:
            with closing(ranks):
                ranks.follow()
        else:
            link.send(_DONE + ranks.call(partial(_answer, work, ranks, link)))
    except errors.EvolveError as error:  # all ranks raise it, and rank 0 reports it to the script
        if link is not None:
            link.send(_ERROR + errors.error_to_json(error))
    except BaseException as error:
        # The script gets only the type and the message of the error. Python prints the traceback when this rank ends.
        if link is not None:
            failure = errors.RunError(errors.one_line(error))
            link.send(_ERROR + errors.error_to_json(failure))
        raise


def _answer(work: ScriptWork, ranks: Collective, link: Link, coordinator: Coordinator) -> bytes:
    """Receive the request of a script on rank 0, send the script all log messages, and return the answer of `work`."""
    request = json.loads(link.receive() or b"{}")
    if not request:
        raise Stopped(_SCRIPT_ENDED)
    sys.orig_argv[:] = request["command"]  # for the manifest of a run file
    # The script shows the log messages, in place of this process. The level is the level of the script's logger.
    _LOG.addHandler(_LogRelay(link))
    _LOG.propagate = False
    _LOG.setLevel(request["level"])
    ranks.stop_reason = lambda: _SCRIPT_ENDED if link.is_closed else None
    return work(ranks, link, request, coordinator)


def _evolve_for_script(ranks: Collective, link: Link, request: Mapping[str, Any], coordinator: Coordinator) -> bytes:
    """Evolve the run that a script asks for, and send the script its generations. Only rank 0 calls this function."""
    start = link.receive()
    if start is None:
        raise Stopped(_SCRIPT_ENDED)
    try:
        experiment = prepare(load_config(request["config"]))
    except InputError as error:
        raise error_outside_script(error) from None
    # Without arrays, the run begins with random genomes.
    if arrays := unpack(start):
        experiment = replace(experiment, start=Start(**arrays))
    plan = PlannedRun(experiment, request["seed"], Path(request["path"]))
    options = RunOptions(**request["options"])
    make_reporter = partial(_ProgressRelay, link, options)
    with closing(evolve_here(ranks, coordinator, plan, options, make_reporter)) as generations:
        for generation in generations:
            if options.receives_generations or options.progress:
                link.send(_GENERATION + pack_generation(generation))
            # The script answers each generation that it receives. If it has left its loop, the link is closed.
            if options.receives_generations and link.receive() is None:
                break
    if link.is_closed:
        raise Stopped(_SCRIPT_ENDED)
    return b""


evolve_for_script = partial(serve_script, _evolve_for_script)
"""The main function of the ranks that a script starts to evolve a run."""


def error_outside_script(error: InputError) -> InputError:
    """Return the error for an experiment that the script could prepare, but new processes cannot."""
    # If the environment is not registered, `got` is its id and nothing else.
    if error.argument == "env.id" and re.fullmatch(r"[\w./-]+", error.got):
        why = f"workers: new processes do not know {error.got}, because only the script registers it: "
        cure = errors.Setting("env.id", f"module:{error.got}")
        return InputError.plainly("workers", why, "register it in a module, and write ", cure, ".")
    return InputError.plainly("workers", f"workers: new processes cannot prepare the experiment of the script. {error}")


class _LogRelay(logging.Handler):
    """Sends log records to the script, whose own logger shows them."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log record."""
        self._link.send(_message(_LOGGED, record.levelno, record.getMessage()))


class _ProgressRelay(ProgressReporter):
    """Sends the progress of the current generation to the script that has started this rank. It shows nothing here."""

    def __init__(self, link: Link, options: RunOptions, plan: PlannedRun, completed: int, steps: int) -> None:
        super().__init__(plan.seed, completed, plan.experiment.config.generations, quiet=True)
        self._link = link
        self._shows_progress = options.progress
        self._sent_at = 0.0
        # The script makes its own reporter from these numbers.
        link.send(_message(_BEGIN, completed, steps))

    def update(self, purpose: Purpose, done: int, episodes: int, idle: int) -> None:
        """Send the progress of the current evaluation, at most every `MIN_REFRESH` seconds."""
        if self._shows_progress and time.monotonic() - self._sent_at > MIN_REFRESH:
            self._sent_at = time.monotonic()
            self._link.send(_message(_UPDATE, int(purpose), done, episodes, idle))
