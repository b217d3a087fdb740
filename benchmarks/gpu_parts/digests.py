"""Part 7: the digests of runs of a walker: by every back end, on several ranks, with whole episodes and by ticks."""

import os
import subprocess
import sys
import tempfile

import h5py

from evolve import environments
from evolve.cluster.hosts import mpirun_environment, mpirun_words
from evolve.config import EnvOptions
from evolve.errors import InputError, RunError
from gpu_parts.context import ROOT, Context, NotMeasuredError, Outcome

_EXACT = "BipedalWalker-v3", "exact"
_TINY = "CartPole-v1", "exact"
_STEPPED = (("BipedalWalker-v3", "gymnasium"), ("BipedalWalker-v3", "envpool"), ("CartPole-v1", "gymnasium"))
_ONE = ("native", 0), ("cupy", 0)
_SPARE = 5.0  # seconds


def compare(context: Context) -> Outcome:
    """Run the same experiments in several ways; print the last digest of each run."""
    context.device()
    plans: dict[tuple[str, str], tuple[tuple[str, int], ...]] = {_TINY: _ONE}
    if not context.emulated:
        # Array operations take too long for rigid bodies.
        plans = {_EXACT: (*_ONE, ("cupy", 2), ("cupy", 4)), _environment(): (("numpy", 0), *_ONE, ("cupy", 2))}
    found: dict[str, dict[str, list[str]]] = {}
    failed = missing = 0
    for (env, engine), ways in plans.items():
        runs = found.setdefault(f"{env} ({engine})", {})
        for backend, ranks in ways:
            name = f"{backend}, {ranks} ranks of mpirun" if ranks else f"{backend}, one process"
            try:
                runs[name] = _digests(context, [*_words(context, env, engine), "--backend", backend], ranks)
                said = runs[name][-1]
            except NotMeasuredError as why:
                said = f"not measured: {why}"
                missing += 1
            except RunError as why:
                said = f"failed: {why}"
                failed += 1
            print(f"{env} ({engine}), {name:24} {said}", flush=True)
            context.keep(digests=found)
    if not any(found.values()) and not failed:
        raise NotMeasuredError("no run was possible")
    equal = all(len({tuple(digests) for digests in runs.values()}) <= 1 for runs in found.values())
    verdict = f"{sum(map(len, found.values()))} runs: digests {'equal' if equal else 'DIFFER'}"
    verdict += f"; {failed} failed" * (failed > 0) + f"; {missing} not measured" * (missing > 0)
    return Outcome(verdict, equal and not failed, {"digests": found})


def _words(context: Context, env: str, engine: str) -> list[str]:
    """Return the options of the run of an experiment."""
    size = "-p 6 -g 1 -d 4" if context.emulated else "-p 32 -g 4 -d 16 16"
    settings = ["network.plasticity=0.1", "held_out_episodes=4", "normalize_observations=true", "compute.slots=40"]
    settings.append(f"env.max_episode_steps={20 if context.emulated else 500}")
    words = ["-e", env, "--engine", engine, "-s", "1", "-r", "2", *size.split()]
    return [*words, *(word for setting in settings for word in ("--set", setting))]


def _environment() -> tuple[str, str]:
    """Return the first environment that is installed."""
    why = ""
    for env, engine in _STEPPED:
        try:
            environments.make(EnvOptions(id=env, engine=engine), 1)
        except InputError as error:
            why = why or str(error)
            continue
        if why:
            print(f"{env} ({engine}) in place of {_STEPPED[0][0]}: {why}")
        return env, engine
    raise NotMeasuredError(why)


def _digests(context: Context, arguments: list[str], ranks: int) -> list[str]:
    """Return the digests of all generations of a run. Raises NotMeasuredError, and RunError when it fails."""
    run = [str(ROOT / "tests" / "helpers" / "emulated_run.py")] if context.emulated else ["-m", "evolve.run"]
    try:
        launcher = mpirun_words(ranks) if ranks else []
    except InputError as error:
        raise NotMeasuredError(str(error)) from None
    env = mpirun_environment() | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryDirectory() as folder:
        words = [*launcher, sys.executable, *run, *arguments, "-o", folder]
        try:
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False,
                                  timeout=max(1.0, context.left - _SPARE))  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotMeasuredError("no time was left") from None
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            why = f"exit code {done.returncode}: {lines[-1] if lines else ''}"
            raise NotMeasuredError(why) if "mpi4py" in done.stderr else RunError(why)
        with h5py.File(f"{folder}/seed-1.h5") as file:
            return [digest.decode() for digest in file["generation/digest"][()]]
