"""How the command line spells settings: errors name them as TOML and Python do, here they become options."""

import re
from collections.abc import Mapping

FLAGS = {
    "run": {
        "env.id": "-e/--env", "network.name": "-a/--agent", "strategy.name": "--strategy",
        "population": "-p/--population", "generations": "-g/--generations", "episodes": "-r/--episodes",
        "network.hidden": "-d/--hidden", "seeds": "-s/--seed", "seed": "-s/--seed", "env.engine": "--engine",
        "compute.backend": "--backend", "output.directory": "-o/--output", "compute.time_limit": "--time-limit",
    },
    "evaluate": {"env.id": "-e/--env", "env.engine": "--engine"},
    "verify": {"env.engine": "--engine"},
    "replay": {
        "generation": "--generation", "candidate": "--candidate", "episode": "--episode", "env.engine": "--engine",
    },
    "plot": {"generation": "--generation"},
    "bench": {
        "env.id": "-e/--env", "env.engine": "--engine", "population": "-p/--population", "episodes": "-r/--episodes",
        "network.hidden": "-d/--hidden",
    },
}  # fmt: skip
"""The options of each command for settings, and for what is asked of a run; other settings are reached by --set."""

_SECTIONS = "env|network|strategy|compute|output|racing|early_stop"
_ASSIGNMENT = re.compile(rf"(?<!--set )(?<![\w.\-])((?:{_SECTIONS})\.[a-z_.]+)=(\"[^\"]*\"|[\w.]+)")
_PHRASES = {
    "resume=True": "--resume",
    "overwrite=True": "--overwrite",
    "another output.directory": "another directory with -o",
    'mode="rgb_array"': "--video OUT",
}


def for_terminal(message: str, command: str = "run") -> str:
    """Return an error's message with options in place of settings.

    "env.id: expected …" becomes "env.id (-e/--env): expected …" where the command has that option, and
    `env.engine="envpool"` becomes `--engine envpool`. Indented lines stay as they are: they are the source lines of a
    traceback.
    """
    first, *more = message.split("\n")
    lines = [_with_flag(first, FLAGS.get(command, {})), *more]
    return "\n".join(line if line.startswith(" ") else _with_options(line) for line in lines)


def _with_flag(line: str, flags: Mapping[str, str]) -> str:
    """Return a line "key: …" or "key, where: …" with the option of that key behind it."""
    name, colon, rest = line.partition(": ")
    key, comma, where = name.partition(", ")
    flag = flags.get(re.sub(r"\.\d+$", "", key))  # seeds.0 is one of the seeds
    return f"{key} ({flag}){comma}{where}: {rest}" if colon and flag else line


def _with_options(line: str) -> str:
    for phrase, words in _PHRASES.items():
        line = line.replace(phrase, words)
    return _ASSIGNMENT.sub(lambda found: _option(found[1], found[2].strip('"')), line)


def _option(key: str, value: str) -> str:
    """Return the words that give a setting a value, in a run."""
    flag = FLAGS["run"].get(key)
    return f"{flag.rpartition('/')[2]} {value}" if flag else f"--set {key}={value}"
