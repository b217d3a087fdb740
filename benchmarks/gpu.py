"""Whether a GPU computes the right bits, and how fast: python benchmarks/gpu.py

Seven parts, each in a process of its own with a time limit, so that one that fails or hangs does not end the others:

    1  versions, bandwidth of memory and of the bus, latency of an empty tick
    2  exp, tanh and sigmoid on all 2^32 inputs
    3  every network, a million random steps, with denormals, infinities and NaN
    4  digests of a walker: numpy, native, cupy; 1, 2, 4 ranks
    5  python benchmarks/devices.py, and the speeds that were aimed at
    6  several processes that share the device
    7  a memory checker, if there is one

Prints a table at the end, and writes JSON. Exit code 1 if bits differed or a part failed. A part that cannot run here
is "not measured", with the reason. `--emulated` tries all parts, tiny, on the emulated device of the tests.
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


@dataclass(frozen=True)
class Part:
    """A part: its title, the function that does it, and its time limit in seconds."""

    title: str
    function: str
    limit: float


PARTS = {
    1: Part("the machine", "machine.measure", 60),
    2: Part("exp, tanh, sigmoid on all inputs", "functions.compare", 150),
    3: Part("every network, device = host", "steps.compare", 120),
    4: Part("digests of a walker", "digests.compare", 150),
    5: Part("the bench, and its aims", "speed.measure", 170),
    6: Part("processes that share the device", "sharing.measure", 100),
    7: Part("a memory checker", "checker.check", 120),
}
SCRIPT = Path(__file__)
MOST = 475.0
"""Seconds of all parts."""
LEAST = 5.0
"""Seconds that a part needs."""


def run_part(number: int, context: Context) -> dict[str, Any]:
    """Run a part in this process; return its findings."""
    module, function = PARTS[number].function.split(".")
    try:
        outcome = getattr(importlib.import_module(f"gpu_parts.{module}"), function)(context)
    except NotMeasuredError as why:
        return {"verdict": f"not measured: {why}", "good": True, "measured": False}
    return {"verdict": outcome.verdict, "good": outcome.good, "measured": True} | outcome.figures


def start_part(number: int, asked: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """Run a part in a process of its own; return its findings, or how it failed."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        words = [sys.executable, str(SCRIPT), "--part", str(number), "--seconds", str(seconds), "--result", str(result)]
        words += ["--json", str(asked.json)] + ["--emulated"] * asked.emulated
        with subprocess.Popen(words, start_new_session=True) as process:
            try:
                code = process.wait(seconds + LEAST)
            except subprocess.TimeoutExpired:
                return {"verdict": f"failed: not done after {seconds:.0f} s", "good": False, "measured": False}
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # and its children
        if code or not result.exists():
            return {"verdict": f"failed with exit code {code}", "good": False, "measured": False}
        return json.loads(result.read_text())


def main() -> int:
    """Run the parts, print the table and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", type=int, nargs="+", default=list(PARTS), metavar="N", help="only these parts")
    parser.add_argument(
        "--json", type=Path, default=Path("gpu.json"), metavar="FILE", help="where JSON goes (gpu.json)"
    )
    parser.add_argument("--emulated", action="store_true", help="try it all, tiny, on the device of the tests")
    parser.add_argument("--part", type=int, choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=MOST, help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part is not None:
        found = run_part(asked.part, Context(asked.emulated, asked.seconds, asked.json))
        asked.result.write_text(json.dumps(found, default=float))
        return 0
    begin = time.monotonic()
    results: dict[int, dict[str, Any]] = {}
    for number in asked.parts:
        left = MOST - (time.monotonic() - begin)
        print(f"\n{number}. {PARTS[number].title}", flush=True)
        since = time.monotonic()
        if left < LEAST:
            results[number] = {"verdict": "not measured: no time was left", "good": True, "measured": False}
        else:
            results[number] = start_part(number, asked, min(PARTS[number].limit, left))
        results[number]["seconds"] = round(time.monotonic() - since, 1)
        if not results[number]["measured"]:
            print(results[number]["verdict"], flush=True)
        everything = {"emulated": asked.emulated, "parts": {PARTS[n].title: found for n, found in results.items()}}
        asked.json.write_text(json.dumps(everything, indent=1))
    print(f"\n{'part':36}{'s':>6}  result")  # reasons for missing measurements are printed above
    for number, found in results.items():
        verdict = found["verdict"].split(": ")[0] if found["verdict"].startswith("not measured") else found["verdict"]
        print(f"{number}. {PARTS[number].title:33}{found['seconds']:6.0f}  {verdict}")
    print(f"{time.monotonic() - begin:.0f} s in all; {asked.json}")
    return 0 if all(found["good"] for found in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
