"""evolve verify: compare two run files, or test whether this machine repeats the results of one file.

Two run files are compared in all their results. For one run file, the champion of each generation plays again the
episodes by which it was selected. The final champion also plays its validation and held-out episodes again. The
champion of a champion file plays its held-out episodes again. The ranks share the episodes of one file.

With --full the whole run is repeated. With --engine another environment engine plays the episodes. With --published no
episode is played: each file is compared with the published digest of its experiment and seed. The verdict names the
first difference and its cause, see `evolve.verification`.
"""

import argparse
import json
from collections.abc import Callable, Sequence

from evolve import store, training, verification
from evolve.analysis.progress import ProgressReporter, width
from evolve.cli.app import App, say, stdout_for_json
from evolve.cli.parser import Parser, file_argument, setting_text
from evolve.cluster.cores import Work
from evolve.errors import InputError, sanitize
from evolve.training.plan import threads_for


def _parser() -> Parser:
    parser = Parser(
        "evolve.verify",
        "Compare two run files; or evaluate one run's champions again on this machine. Exit 0: equal; 1: different, "
        "with the step and the cause of the first difference: configuration, random stream, strategy, environment, "
        "network or log; 2: no difference, but a file could not be verified.",
        "evolve verify runs/here/seed-13.h5 runs/there/seed-13.h5",
        "mpirun -n 8 evolve verify their.h5",
        "mpirun -n 8 evolve verify their.h5 --full --json",
        "evolve verify their.h5 --engine exact   # does another engine play equal episodes?",
        "evolve verify runs/cartpole/seed-1.h5 --published   # does it have the published digest?",
    )
    add = parser.add_argument
    files = (
        "to evaluate again: one run file, or any number of champion files; to compare: two run files. A directory "
        "stands for the only run file in it or below it, with --published for all of them"
    )
    add("files", type=file_argument, nargs="+", metavar="FILE", help=files)
    full = "with one run file, or champion files: run the whole experiment again, and compare everything"
    add("--full", action="store_true", help=full)
    engine = "with one run file, or champion files: use another environment engine"
    add("--engine", metavar="NAME", help=engine)
    published = "compare each file with the published digest of its experiment and seed, without playing"
    add("--published", action="store_true", help=published)
    add("--json", action="store_true", help="print the verdict as JSON, for machines")
    parser.add_threads()
    parser.add_workers()
    return parser


def _repeat(app: App, run: store.Stored, arguments: argparse.Namespace) -> verification.Verdict:
    """Evaluate a run or a champion again, or repeat the whole run with --full; return the verdict.

    Raises InputError as `training.reload` does.
    """
    threads = arguments.threads or "auto"
    experiment = training.reload(run, engine=arguments.engine, threads=threads, trains=arguments.full)
    coordinator = app.coordinator()
    repetition = verification.repetition(run, experiment, coordinator, app.transport)
    if arguments.full:
        whole = experiment.plays_whole_episodes
        progress = ProgressReporter(run.header.seed, 0, run.num_generations, arguments.json, plays_whole_episodes=whole)
        with progress as reporter:
            coordinator.progress = reporter.update
            return repetition.rerun(reporter)
    return repetition.reevaluate()


def _verify_each(
    files: Sequence[store.Stored], verdict_on: Callable[[store.Stored], verification.Verdict], as_json: bool
) -> int:
    """Print the verdict on each file. Return 0 if all are equal, 1 if one differs, and 2 if one cannot be verified.

    If one of several files raises InputError, for example because EnvPool is missing, the others are still verified.
    The InputError of a single file is raised again.
    """
    verdicts: dict[str, verification.Verdict] = {}
    errors: dict[str, object] = {}
    for file in files:
        name = sanitize(str(file.path), 4000)  # do not cut a long path
        try:
            with stdout_for_json(as_json):
                verdict = verdicts[str(file.path)] = verdict_on(file)
        except InputError as error:
            if len(files) == 1:
                raise
            why = error.spelled_message(lambda setting: setting_text(setting, "verify"))
            say("verify", f"{name}: not verified: {why}")
            errors[str(file.path)] = {"equal": None, "error": str(error)}
            continue
        if not as_json:
            print(f"{name}: {verdict.to_text(width())}", flush=True)
    if as_json:
        print(json.dumps({path: each.to_json() for path, each in verdicts.items()} | errors, indent=2))
    # If one file differs and another one cannot be verified, the code is 1.
    if not all(each.equal for each in verdicts.values()):
        return 1
    return 2 if errors else 0


def _options_for_playing(arguments: argparse.Namespace) -> list[str]:
    """Return the options on the command line that have an effect only if episodes are played."""
    absent = (None, False)  # the values of options that are not on the command line
    return [f"--{name}" for name in ("full", "engine", "threads") if getattr(arguments, name) not in absent]


def _compare_with_published(files: Sequence[store.Stored], arguments: argparse.Namespace) -> int:
    if playing := _options_for_playing(arguments):
        raise InputError("--published", "no option for playing episodes with it", playing[0])
    if len(files) == 1:
        store.check_begun("there is nothing to compare", *files)
    published = verification.read_published()

    def compare(file: store.Stored) -> verification.Verdict:
        if not file.num_generations:
            raise InputError(str(file.path), "a run with a complete generation", "none yet")
        return verification.compare_with_published(file, published)

    return _verify_each(files, compare, arguments.json)


def _body(app: App, argv: list[str]) -> int:
    # Files may stand on both sides of an option, which `parse_args` refuses.
    arguments = _parser().parse_with_files(argv)
    if arguments.published:
        return _compare_with_published([store.read_any(path) for path in store.run_files(arguments.files)], arguments)
    # Champion files are verified one by one. Of run files, one is repeated, or two are compared.
    files = [store.read_any(store.one_run_file(path)) for path in arguments.files]
    champions = [file for file in files if isinstance(file, store.StoredChampion)]
    if len(champions) == len(files):
        return _verify_each(champions, lambda champion: _repeat(app, champion, arguments), arguments.json)
    if champions:
        raise InputError("FILE", "run files, or champion files", "some of both")
    playing = _options_for_playing(arguments)
    if len(files) > (1 if playing else 2):
        expected = f"one run file with {playing[0]}" if playing else "one run file, or two"
        raise InputError("FILE", expected, f"{len(files)} run files")
    # All files are run files here. The filter only tells mypy so.
    run, *others = (file for file in files if isinstance(file, store.StoredRun))
    other = others[0] if others else None
    store.check_begun(f"there is nothing to {'verify' if other is None else 'compare'}", run, *others)
    # Environments may print. A comparison of two files, too, plays the first episode that differs.
    with stdout_for_json(arguments.json):
        verdict = verification.compare(run, other) if other is not None else _repeat(app, run, arguments)
    print(json.dumps(verdict.to_json(), indent=2) if arguments.json else verdict.to_text(width()))
    return 0 if verdict.equal else 1


def _work(argv: list[str]) -> Work:
    """Return the amount of work, by which `--workers auto` chooses. Raises InputError if there is no work to share."""
    arguments = _parser().parse_with_files(argv)
    if arguments.published:
        raise InputError("--published", "no option for playing episodes with it", "--workers")
    if len(arguments.files) > 1:
        files = [store.read_any(store.one_run_file(path)) for path in arguments.files]
        if any(isinstance(file, store.StoredRun) for file in files):
            raise InputError("FILE", "one run file, or champion files, with --workers", f"{len(files)} files")
    changes = {} if arguments.engine is None else {"engine": arguments.engine}
    return Work(threads=threads_for(arguments.files, changes, arguments.threads))
