"""Part 10: NVIDIA's compute-sanitizer, if installed, over steps of every network, and over whole episodes."""

import os
import re
import shutil
import subprocess
import sys

from evolve import networks
from gpu_parts import episodes
from gpu_parts.context import ROOT, Context, NotMeasuredError, Outcome
from gpu_parts.steps import VARIANTS, A, O, differing

_TOOLS = ("memcheck", "synccheck")
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer")
_PROGRAM = "import sys; sys.path[:0] = {paths!r}; from gpu_parts.checker import exercise; exercise()"
_SLOTS, _TICKS = 70, 4
_EPISODES = 7, 10, 25, 40  # genomes, episodes of each, their steps, and slots
_PLAYED = (
    ("CartPole-v1", {"name": "hebbian-lstm", "hidden": [3]}),
    ("BipedalWalker-v3", {"name": "mlp", "hidden": [5]}),
)


def check(context: Context) -> Outcome:
    """Run each tool; print how many errors it reports."""
    device = context.device()
    if context.emulated:
        exercise()
        raise NotMeasuredError(f"the steps ran on {device.name}, which checks them itself")
    tool = shutil.which("compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *_PLACES]))
    if tool is None:
        raise NotMeasuredError("no compute-sanitizer is here")
    found = {name: _run(context, tool, name) for name in _TOOLS}
    errors = {name: said for name, said in found.items() if isinstance(said, int)}
    verdict = ", ".join(f"{name}: {said} errors" for name, said in errors.items())
    if not errors:
        raise NotMeasuredError(f"compute-sanitizer: {found[_TOOLS[0]]}")
    return Outcome(verdict, not any(errors.values()), {"tools": found})


def _run(context: Context, tool: str, name: str) -> int | str:
    """Return the number of errors that a tool reports, or the reason why it reports nothing."""
    program = _PROGRAM.format(paths=[str(ROOT), str(ROOT / "benchmarks")])
    words = [tool, "--tool", name, sys.executable, "-c", program]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=max(1.0, context.left - 2))
    except subprocess.TimeoutExpired:
        said: int | str = "not done in time"
    else:
        output = done.stdout + done.stderr
        count = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", output)
        lines = output.strip().splitlines() or [""]
        said = int(count[1] or count[2]) if count else f"exit code {done.returncode}: {lines[-1]}"
        if count and said:
            print("\n".join(lines[:30]))
    print(f"{name}: {said}{' errors' * isinstance(said, int)}", flush=True)
    return said


def exercise() -> None:
    """Play episodes, and load, step and move slots of networks on the device. Raises RuntimeError when bits differ."""
    wrong = sum(episodes.differing(*pair, *_EPISODES)["differing"] for pair in _PLAYED)
    wrong += sum(differing(networks.make(table, O, A), _SLOTS, _TICKS)[0] for table in VARIANTS)
    if wrong:
        raise RuntimeError(f"{wrong} numbers differ")
