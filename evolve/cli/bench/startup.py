"""How long a run takes to its first environment step, and how much of that is imports."""

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from evolve.errors import RunError

IMPORT_BUDGET, FIRST_STEP_BUDGET = 1.0, 2.0
"""Seconds that `import evolve.cli.run`, and a run up to its first environment step, may take."""

_RUN = """
import sys, time
from evolve.rollouts.exact_rollout import ExactRollout
from evolve.rollouts.rollout import Rollout
def announce(kind):
    step = kind.tick
    def first(self):
        print("first", time.time(), file=sys.stderr, flush=True)
        kind.tick = step
        return step(self)
    kind.tick = first
announce(Rollout)
announce(ExactRollout)
from evolve.cli.run import main
sys.exit(main())
"""


def _seconds(words: Sequence[str]) -> tuple[float, float, str]:
    begin, before = time.perf_counter(), time.time()
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"the start-up measurement failed: {done.stderr or done.stdout}")
    return time.perf_counter() - begin, before, done.stderr


def figures(words: Sequence[str], directory: str, rounds: int = 3) -> dict[str, Any]:
    """Return the seconds of a bare interpreter, of `import evolve.cli.run` in one, and of a run to its first step.

    words: the run's arguments; directory: where its run file goes. Each is the least of some rounds.
    """
    small = [*words, "-g", "1", "-p", "2", "-r", "1", "--set", "held_out_episodes=0"]
    bare, imported, first = [], [], []
    for number in range(rounds):
        bare.append(_seconds(["-c", "pass"])[0])
        imported.append(_seconds(["-c", "import evolve.cli.run"])[0])
        _, before, output = _seconds(["-c", _RUN, *small, "-o", f"{directory}/{number}"])
        first.append(next(float(line.split()[1]) for line in output.splitlines() if line.startswith("first ")) - before)
    return {"python": min(bare), "import": min(imported), "first_step": min(first),
            "import_budget": IMPORT_BUDGET, "first_step_budget": FIRST_STEP_BUDGET}  # fmt: skip
