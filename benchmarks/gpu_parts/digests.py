"""Part 4: the digests of a BipedalWalker's generations: by every back end, and on several ranks."""

import os
import subprocess
import sys
import tempfile

import h5py

from evolve import environments
from evolve.cluster.mpirun import mpirun_environment, mpirun_words
from evolve.config import EnvOptions
from evolve.errors import InputError, RunError
from gpu_parts.context import ROOT, Context, NotMeasuredError, Outcome

_ENVIRONMENTS = (("BipedalWalker-v3", "gymnasium"), ("BipedalWalker-v3", "envpool"), ("CartPole-v1", "gymnasium"))
_RANKS = (1, 2, 4)
_SPARE = 5.0  # seconds


def compare(context: Context) -> Outcome:
    """Run the same experiment in several ways; print the last digest of each run."""
    context.device()
    env, engine = _environment()
    size = ["-p", "6", "-r", "2", "-g", "2"] if context.emulated else ["-p", "32", "-r", "2", "-g", "4"]
    words = ["-e", env, "--engine", engine, "-d", "16", "16", "-s", "1", *size, "--set", "network.plasticity=0.1"]
    words += ["--set", "env.max_episode_steps=" + ("60" if context.emulated else "500"), "--set", "compute.slots=40"]
    words += ["--set", "held_out_episodes=4", "--set", "normalize_observations=true"]
    ways = [(backend, 0) for backend in ("numpy", "native", "cupy")] + [("cupy", ranks) for ranks in _RANKS]
    found: dict[str, list[str] | None] = {}
    failed = 0
    for backend, ranks in ways:
        name = f"{backend}, {ranks} rank{'s' * (ranks > 1)} of mpirun" if ranks else f"{backend}, one process"
        found[name] = None
        try:
            found[name] = _digests(context, [*words, "--backend", backend], ranks)
            said = found[name][-1]
        except NotMeasuredError as why:
            said = f"not measured: {why}"
        except RunError as why:
            said = f"failed: {why}"
            failed += 1
        print(f"{name:28} {said}", flush=True)
    measured = {name: digests for name, digests in found.items() if digests is not None}
    if not measured and not failed:
        raise NotMeasuredError("no run was possible")
    equal = len({tuple(digests) for digests in measured.values()}) == 1
    verdict = f"{env} ({engine}), {len(measured)} runs: digests {'equal' if equal else 'DIFFER'}"
    missing = len(found) - len(measured) - failed
    verdict += f"; {failed} failed" * (failed > 0) + f"; {missing} not measured" * (missing > 0)
    return Outcome(verdict, equal and not failed, {"environment": f"{env} ({engine})", "digests": found})


def _environment() -> tuple[str, str]:
    """Return the first environment that is installed."""
    why = ""
    for env, engine in _ENVIRONMENTS:
        try:
            environments.make(EnvOptions(id=env, engine=engine), 1)
        except InputError as error:
            why = why or str(error)
            continue
        if why:
            print(f"{env} ({engine}) in place of {_ENVIRONMENTS[0][0]}: {why}")
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
