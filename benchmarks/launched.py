"""Shared by the benches that torture evolve launch: a run with its log, and verdicts in a file."""

import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from evolve import store

DONE = "best fitness"
"""A text that the log has for each complete generation."""
PATIENCE = 600.0
"""Seconds without output after which a run is stuck: a third attempt gives its ranks 250 s, and mpirun as many."""
_PLAIN = re.compile(r"^evolve(\.\w+)?: (?!.* ranks on )\w", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of a run after a fault.

    Attributes:
        wrong: The violated promise, "" for none.
        load: The load average of the machine at the time of the verdict.
    """

    wrong: str = ""
    load: float = field(default_factory=lambda: round(os.getloadavg()[0], 1))


V = TypeVar("V", bound=Verdict)


class Launched:
    """An `evolve launch` whose log and run file are in a folder; a later one in that folder continues both.

    Args:
        folder: The folder.
        words: The whole command, without the directory of its run file.
        env: Its environment variables.
        out: The directory of its run file, if not `run` in the folder.
    """

    def __init__(self, folder: Path, words: Sequence[str], env: dict[str, str], out: Path | None = None) -> None:
        self.folder, self.out, self.log = folder, out or folder / "run", folder / "log"
        folder.mkdir(exist_ok=True)
        self.log.touch()
        self._begun = len(self.text())
        with open(self.log, "a") as log:
            self.popen = subprocess.Popen([*words, "-o", str(self.out)], env=env, stdout=log, stderr=log, cwd=folder)

    def text(self) -> str:
        """Return the text of the log."""
        return self.log.read_text(errors="replace")

    def count(self, words: str) -> int:
        """Return how often a text is in the log."""
        return self.text().count(words)

    def over(self) -> bool:
        """Return whether it has ended."""
        return self.popen.poll() is not None

    def stuck(self, since: float) -> bool:
        """Return whether it has printed nothing for too long, after an instant of time.monotonic()."""
        quiet = time.time() - self.log.stat().st_mtime
        return min(time.monotonic() - since, quiet) > PATIENCE

    def wait(self) -> bool:
        """Wait for its end; return False if it gets stuck."""
        begin = time.monotonic()
        while not self.over():
            if self.stuck(begin):
                return False
            time.sleep(0.05)
        return True

    def end(self) -> None:
        """Kill its remaining processes."""
        with suppress(psutil.Error):
            for process in psutil.Process(self.popen.pid).children(recursive=True):
                with suppress(psutil.Error):  # it has ended; the others have not
                    process.kill()
        self.popen.kill()
        self.popen.wait()

    def misspoken(self) -> str:
        """Return the fault in the log of an ended run: a traceback, or an early end without an explanation."""
        text = self.text()
        if "Traceback" in text:
            return "a traceback"
        explained = complete(self.out) or _PLAIN.search(text[self._begun :])
        return "" if explained else "ended early without a plain sentence"


def stored(folder: Path) -> list[bytes]:
    """Return the digests of a run."""
    path = store.path_of(folder, 0)
    return [record.digest for record in store.read(path).records] if path.exists() else []


def complete(folder: Path) -> bool:
    """Return whether a run is complete."""
    path = store.path_of(folder, 0)
    return path.exists() and store.read(path).complete


def undisturbed(out: Path, words: Sequence[str], env: dict[str, str]) -> list[bytes]:
    """Return the digests of an undisturbed run."""
    command = [sys.executable, "-m", "evolve.run", *words, "-o", str(out)]
    subprocess.run(command, env=env, check=True, capture_output=True)
    return stored(out)


def read_verdicts(path: Path | None, kind: type[V]) -> list[V]:
    """Return the verdicts in a file; no verdicts if the file does not exist."""
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return [kind(**{"load": math.nan, **json.loads(line)}) for line in lines]


def append_verdict(path: Path | None, verdict: Verdict) -> None:
    """Append a verdict to a file, unless the path is None."""
    if path is not None:
        with open(path, "a") as file:
            print(json.dumps(asdict(verdict)), file=file)


def spread(seconds: Sequence[float | None]) -> str:
    """Return the median and the maximum of times as a cell of a table; None entries do not count."""
    known = [each for each in seconds if each is not None]
    return f"{statistics.median(known):.1f} s, {max(known):.1f} s" if known else "–"


def load(verdicts: Sequence[Verdict]) -> str:
    """Return the load of the machine in words."""
    known = [verdict.load for verdict in verdicts if not math.isnan(verdict.load)]
    if not known:
        return "load of the machine: unknown"
    middle, worst = statistics.median(known), max(known)
    return f"load of the machine ({os.cpu_count()} cores): median {middle:.0f}, worst {worst:.0f}"
