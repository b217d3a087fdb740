"""Whether a GPU computes the right bits, and how fast: python benchmarks/gpu.py

Ten parts, the most valuable first, each in a process of its own with a time limit, so that one that fails or hangs does
not end the others. All limits together are less than nine minutes:

{parts}

Prints a table at the end, and writes JSON after each part. Exit code 1 if bits differed or a part failed. A part that
cannot run here is "not measured", with the reason. `--plan` prints the commands for a machine with a GPU and without a
network. `--emulated` tries all parts, tiny and without their limits, on the emulated device of the tests.
"""

import argparse
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from gpu_parts.context import Context, NotMeasuredError
from gpu_parts.plan import plan


@dataclass(frozen=True)
class Part:
    """A part: its title, the function that does it, and the seconds after which its process is ended."""

    title: str
    function: str
    limit: float


PARTS = {
    1: Part("the machine: versions, memory, bus, an empty tick", "machine.measure", 25),
    2: Part("whole episodes: bits of every task and network", "episodes.compare", 95),
    3: Part("whole episodes: nanoseconds per step", "rates.measure", 105),
    4: Part("whole generations, from ask to record", "generations.measure", 50),
    5: Part("steps of every network: bits", "steps.compare", 35),
    6: Part("steps of networks: break-even with the CPU, and aims", "speed.measure", 75),
    7: Part("digests of runs, also on several ranks", "digests.compare", 50),
    8: Part("exp, tanh, sigmoid on all inputs", "functions.compare", 40),
    9: Part("processes that share the device", "sharing.measure", 30),
    10: Part("a memory checker", "checker.check", 20),
}
SCRIPT = Path(__file__)
MOST = sum(part.limit for part in PARTS.values())
"""Seconds of all parts."""
WIDTH = max(len(part.title) for part in PARTS.values())
"""Characters of a title in tables."""
LEAST = 5.0
"""Seconds that a part needs, and that it has to end by itself before its process is ended."""


def run_part(number: int, context: Context) -> dict[str, Any]:
    """Run a part in this process; return its findings."""
    module, function = PARTS[number].function.split(".")
    try:
        outcome = getattr(importlib.import_module(f"gpu_parts.{module}"), function)(context)
    except NotMeasuredError as why:
        return {"verdict": f"not measured: {why}", "good": True, "measured": False}
    return {"verdict": outcome.verdict, "good": outcome.good, "measured": True} | outcome.figures


def start_part(number: int, asked: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Run a part in a process of its own, for at most `seconds`; return its findings, or how it failed.

    A part that failed has the figures that it has kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = [sys.executable, str(SCRIPT), "--part", str(number), "--result", str(result)]
        words += ["--seconds", str(max(1.0, seconds - LEAST))]
        words += ["--json", str(asked.json)] + ["--emulated"] * asked.emulated
        with subprocess.Popen(words, start_new_session=True) as process:
            try:
                code: int | None = process.wait(seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and its children
        found = {}
        with contextlib.suppress(OSError, ValueError):  # it may have been ended while it wrote its figures
            found = json.loads(result.read_text())
        if code == 0 and "verdict" in found:
            return found
        why = f"not done after {seconds:.0f} s" if code is None else f"exit code {code}"
        return found | {"verdict": f"failed: {why}", "good": False, "measured": False}


def description() -> str:
    """Return the text of this module with the list of parts."""
    lines = (f"    {n:2}  {part.title:{WIDTH}}  {part.limit:4.0f} s" for n, part in PARTS.items())
    return str(__doc__).format(parts="\n".join(lines))


def read_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=description(), formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--parts", type=int, nargs="+", choices=list(PARTS), default=list(PARTS), metavar="N", help="only these parts")
    add("--budget", type=float, default=MOST, metavar="SECONDS", help=f"of all parts together ({MOST:.0f})")
    add("--json", type=Path, default=Path("gpu.json"), metavar="FILE", help="where JSON goes (gpu.json)")
    versions = "print the commands for a machine with this version of Python (3.12), and run nothing"
    add("--plan", nargs="?", const="3.12", metavar="PYTHON", help=versions)
    add("--emulated", action="store_true", help="try it all, tiny, on the device of the tests")
    add("--part", type=int, choices=list(PARTS), help=argparse.SUPPRESS)
    add("--seconds", type=float, default=MOST, help=argparse.SUPPRESS)
    add("--result", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if not asked.json.parent.is_dir():
        parser.error(f"argument --json: expected a file in an existing directory, got {str(asked.json)!r}")
    return asked


def main() -> int:
    """Run the parts, print the table and write the JSON file."""
    asked = read_options()
    if asked.plan is not None:
        print(plan(asked.plan, MOST))
        return 0
    if asked.part is not None:
        found = run_part(asked.part, Context(asked.emulated, asked.seconds, asked.json, asked.result))
        asked.result.write_text(json.dumps(found, default=float))
        return 0
    begin = time.monotonic()
    results: dict[int, dict[str, Any]] = {}
    for number in asked.parts:
        left = asked.budget - (time.monotonic() - begin)
        print(f"\n{number}. {PARTS[number].title}", flush=True)
        since = time.monotonic()
        if left < LEAST:
            results[number] = {"verdict": "not measured: no time was left", "good": True, "measured": False}
        else:
            results[number] = start_part(number, asked, left if asked.emulated else min(PARTS[number].limit, left))
        results[number]["seconds"] = round(time.monotonic() - since, 1)
        if not results[number]["measured"]:
            print(results[number]["verdict"], flush=True)
        everything = {"emulated": asked.emulated, "parts": {PARTS[n].title: found for n, found in results.items()}}
        asked.json.write_text(json.dumps(everything, indent=1))
    print(f"\n{'part':{WIDTH + 4}}{'s':>6}  result")  # reasons for missing measurements are printed above
    for number, found in results.items():
        verdict = found["verdict"].split(": ")[0] if found["verdict"].startswith("not measured") else found["verdict"]
        print(f"{number:2}. {PARTS[number].title:{WIDTH}}{found['seconds']:6.0f}  {verdict}")
    print(f"{time.monotonic() - begin:.0f} s in all; {asked.json}")
    return 0 if all(found["good"] for found in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
