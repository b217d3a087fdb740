"""evolve replay: play episodes of a run again, in this process alone, and compare them with the log in its file.

The episodes can be filmed, or watched in a window. The film and the window do not change an episode.
"""

import argparse
import math
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from evolve import environments, store
from evolve.analysis import video
from evolve.cli.app import App, StopFlag
from evolve.cli.parser import Parser, changes_of, file_argument
from evolve.environments.rendering import has_display
from evolve.errors import InputError, RunError, pluralize
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeResults
from evolve.store.disk import check_writable
from evolve.training import Experiment, GenomeChoice, config_of, reload
from evolve.verification import Episode, champion_episodes, choose_episode, make_engine, play
from evolve.verification.playing import environment_of, environment_seed


def _parser() -> Parser:
    parser = Parser(
        "evolve.replay",
        "Play episodes of a run again. Exit 0: each return equals the log to the bit, if the log has it.",
        "evolve replay runs/CartPole-v1-hebbian-dag/seed-0.h5",
        "evolve replay seed-0.h5 --generation 3 --candidate 17 --episode 2",
        "evolve replay seed-0.h5 --generations 0,10,50,last --video learning.mp4",
        "evolve replay seed-0.h5 --engine exact --set env.kwargs.length=2.0 --video long.mp4",
    )
    add = parser.add_argument
    add("file", type=file_argument, metavar="FILE", help="a run file, or its directory; or a champion file")
    which = parser.add_mutually_exclusive_group()
    one = "a complete generation, or the next generation (default: the last complete one)"
    which.add_argument("--generation", type=int, metavar="G", help=one)
    several = "the champions of several complete generations, one after another: 0,10,50,last"
    which.add_argument("--generations", metavar="G,G,…", help=several)
    candidate = (
        "the candidate (default: the champion); another one only if all genomes are stored, or in generation 0 or the "
        "next generation"
    )
    add("--candidate", type=int, metavar="P", help=candidate)
    parser.add_front_and_archive()
    add("--episode", type=int, default=0, metavar="E", help="the number of the episode (0)")
    # Add these two options of the group later than the first two: argparse writes neighbours of a group in one line,
    # and a line with all four is too long for a terminal.
    for purpose in (Purpose.HELD_OUT, Purpose.VALIDATION):
        words = f"a {purpose.title} episode of the final champion"
        which.add_argument(f"--{purpose.title}", dest="purpose", action="store_const", const=purpose, help=words)
    seen = parser.add_mutually_exclusive_group()
    seen.add_argument("--video", type=Path, metavar="OUT", help=f"film it: a file {' or '.join(video.FORMATS)}")
    seen.add_argument("--window", action="store_true", help="show it in a window, at its natural speed")
    parser.add_changes()
    add("--seconds", type=float, metavar="S", help="with --video: film only the first S seconds of each episode")
    return parser


def _checked_mode(options: argparse.Namespace) -> environments.Mode | None:
    """Return the mode in which the environment draws, "rgb_array" or "human"; None if nothing is drawn.

    Raises InputError for incompatible options, and for a film or a window that cannot be made here.
    """
    if options.candidate is not None and (options.generations is not None or options.purpose is not None):
        raise InputError("--candidate", "no --generations, --held-out or --validation with it", "one of them")
    by_number = options.generation, options.generations, options.candidate
    for name in ("connections", "member", "cell"):
        if getattr(options, name) is not None and any(number is not None for number in by_number):
            raise InputError(f"--{name}", "no --generation, --generations or --candidate with it", "one of them")
    # The condition `not … > 0` also refuses NaN.
    if options.seconds is not None and (options.video is None or not options.seconds > 0):
        got = options.seconds if options.video is not None else "no --video"
        raise InputError("--seconds", "a time above 0, and --video with it", got)
    if options.window and not has_display():
        cure = "Film it instead: --video OUT.mp4."
        raise InputError("--window", "a display (DISPLAY or WAYLAND_DISPLAY)", "none", cure)
    if options.video is not None:
        video.check_library()
        check_writable(options.video, video.FORMATS)
        environments.draw_without_display()
        return "rgb_array"
    return "human" if options.window else None


def _episodes(options: argparse.Namespace, run: store.Stored, experiment: Experiment) -> list[Episode]:
    """Return the episodes that the options choose. Raises InputError if the file does not have them."""
    if options.generations is not None:
        if isinstance(run, store.StoredChampion):
            raise InputError("--generations", "a run file with it", f"{run.path}, a champion file")
        return champion_episodes(run, experiment, options.generations, options.episode)
    genome = GenomeChoice(None, options.connections, options.member, options.cell)
    purpose = options.purpose or Purpose.EPISODE
    return [choose_episode(run, experiment, options.generation, options.candidate, options.episode, purpose, genome)]


def _why_not_logged(run: store.Stored, episode: Episode) -> str:
    """Return the reason why the log has no return of an episode."""
    if episode.purpose is not Purpose.EPISODE:
        return f"the log has no such {episode.purpose.title} episode of this genome"
    if episode.generation < run.num_generations:
        return "nothing in the log: the candidate had left the race before this episode"
    genome = f"candidate {episode.candidate} has the genome that the strategy will ask for"
    return f"nothing in the log: generation {episode.generation} is not complete yet, and {genome}"


def _compare(
    run: store.Stored, experiment: Experiment, episode: Episode, results: EpisodeResults, why_not: str = ""
) -> str | None:
    """Print the return of an episode, and compare it with the log.

    Return the difference in words; None if there is no difference, or if nothing was compared.

    why_not: The reason why the episode cannot be compared; empty if it can.
    """
    returned = float(results.returns[0])
    seed = environment_seed(run, experiment, episode)
    engine_text = logged_engine_text = ""
    if experiment.config.env.engine != config_of(run).env.engine:
        engine_text = f", engine {experiment.config.env.engine}"
        logged_engine_text = f", engine {config_of(run).env.engine}"
    env = environment_of(experiment, episode)
    # The seed of the environment determines the values of randomized arguments.
    kwargs = environments.with_drawn_arguments(env, seed).kwargs
    randomized = "".join(f", {name}={kwargs[name]!r}" for name in env.randomize)
    steps = pluralize(int(results.lengths[0]), "step")
    print(f"return {returned!r} in {steps} (environment seed {seed}{randomized}{engine_text})")
    if why_not:
        print(f"not compared with the log: {why_not}")
        return None
    if episode.logged is None:
        print(_why_not_logged(run, episode))
        return None
    # The return of a failed episode is NaN, and NaN is not equal to itself.
    if not np.array_equal(returned, episode.logged, equal_nan=True):
        return f"{run.path} has a return of {episode.logged!r} for this episode ({episode.title}{logged_engine_text})"
    print("equal to the log, to the bit")
    return None


def _play_all(
    run: store.Stored, experiment: Experiment, episodes: list[Episode], mode: environments.Mode | None, stop: StopFlag
) -> Iterator[EpisodeResults]:
    """Play episodes one after another, and yield their results. Raises Stopped when the user has asked to stop.

    mode: The mode in which the environment draws; None to draw nothing.
    """

    def check(step: int, _return: float) -> None:
        stop.check(f" in step {step}")

    # An episode in a window takes long, so a stop ends it. Without a window, the episode is played to its end.
    each_step = None if mode is None else check
    with closing(make_engine(experiment, episodes[0], mode)) as engine:
        for episode in episodes:
            stop.check(f" before {episode.title}")
            yield play(run, experiment, episode, engine, each_step)


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    mode = _checked_mode(options)
    app.stop.plays_episodes = True  # so it restores handlers of signals that an environment replaces
    run = store.read_any(store.one_run_file(options.file))
    changes = changes_of(options).without(config_of(run).env)
    experiment = reload(run, changes.env, changes.network)
    episodes = _episodes(options, run, experiment)
    # If EnvPool cannot draw an environment, Gymnasium plays another episode, which is not compared with the log.
    played_experiment, why_not = (experiment, "") if mode is None else video.drawable(experiment, mode)
    # Play the episodes. The results of a film are known when it is complete, and all others after each episode.
    all_results: Iterable[EpisodeResults]
    if options.video is None:
        all_results = _play_all(run, played_experiment, episodes, mode, app.stop)
    else:
        engine = f"{options.engine} engine" if options.engine else ""
        if why_not:
            engine = "in Gymnasium"
        about = "".join(f", {words}" for words in (episodes[0].which.title, engine, changes.settings) if words)
        subjects = [video.Subject(run, played_experiment, episode, episode.title, about) for episode in episodes]
        cut_after = options.seconds or math.inf
        all_results = video.film_episodes(subjects, options.video, cut_after=cut_after, check=app.stop.check)
    # The log has no episodes of a changed environment or network. If only the engine is changed, returns are compared.
    if not why_not and (changes.settings or "id" in changes.env):
        why_not = f"an episode{changes.describe(config_of(run).env)}"
    differences = []
    for episode, results in zip(episodes, all_results, strict=True):
        if len(episodes) > 1:
            print(f"{episode.title}: ", end="")
        if (difference := _compare(run, played_experiment, episode, results, why_not)) is not None:
            differences.append(difference)
    if options.video is not None:
        print(options.video)
    if differences:
        more = f" (and {pluralize(len(differences) - 1, 'more episode')})" if len(differences) > 1 else ""
        raise RunError(f"{differences[0]}{more}")
    return 0
