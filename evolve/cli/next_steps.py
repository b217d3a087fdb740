"""What to do next: command lines to copy, said when a run has ended or failed."""

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from evolve.cli.supervision import COMMAND, supervised_workers
from evolve.errors import EpisodeError, install_command, sanitize
from evolve.numerics.streams import Purpose
from evolve.training.plan import PlannedRun


def command_line(command: str, *words: str | Path) -> str:
    """Return a line that runs a command: by `evolve`, where the shell finds that of this installation."""
    ours = Path(sys.executable).with_name("evolve")
    found = shutil.which("evolve")
    by_name = found is not None and Path(found) == ours
    is_module = importlib.util.find_spec(f"evolve.{command}") is not None
    module = [f"evolve.{command}"] if is_module else ["evolve", command]
    begin = ["evolve", command] if by_name else ["python", "-m", *module]
    return sanitize(shlex.join([*begin, *map(str, words)]), 4000)


def how_to_resume(runs: Sequence[PlannedRun], ranks: int) -> str:
    """Return the command line that goes on with runs that were stopped, by as many processes."""
    if COMMAND in os.environ:
        return sanitize(os.environ[COMMAND], 4000)
    if len(runs) > 1:
        return "the same command line, and --resume"
    workers = supervised_workers()
    if workers is not None:
        return command_line("run", "--resume", runs[0].path, "--workers", str(workers))
    mpirun = f"mpirun -n {ranks} " if ranks > 1 else ""
    return mpirun + command_line("run", "--resume", runs[0].path)


def replay_line(path: Path, error: EpisodeError) -> str:
    """Return the command line that plays a failed episode alone."""
    purpose, generation, candidate, episode = error.key
    if purpose == Purpose.EPISODE:
        which = f"--generation {generation} --candidate {candidate}"
    else:
        which = f"--{Purpose(purpose).title}"
    return f"python -m evolve.replay {path} {which} --episode {episode}"


def steps_after(paths: Sequence[Path], report: str = "") -> str:
    """Return at most three lines: where the run files are, how to film a champion, how to verify a run.

    Args:
        paths: The run files, at least one.
        report: Said in place of how to film.
    """
    first = paths[0]
    if len(paths) == 1:
        where = f"Run file: {first}"
    else:
        where = f"Run files: {len(paths)} in {os.path.commonpath([path.parent for path in paths]) or '.'}"
    film = command_line("replay", first, "--held-out", "--video", "champion.mp4")
    if importlib.util.find_spec("imageio") is None:
        film += f"   # needs: {install_command('video')}"
    verify = command_line("verify", first)
    return "\n".join([sanitize(where, 4000), report or f"Film its champion: {film}", f"Verify it: {verify}"])
