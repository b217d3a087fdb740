"""The README's commands are real: its options parse, and the files it names exist."""

import re
import shlex
from pathlib import Path

import pytest

from evolve import verify
from evolve.bench import __main__ as bench
from evolve.experiment import prepare
from evolve.run import load

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = sorted(
    set(re.findall(r"python -m (evolve\.\w+ [^\n`|]*)", "\n".join(re.findall(r"```sh\n(.*?)```", README, re.S))))
)


def test_there_are_commands():
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("words", COMMANDS)
def test_commands_parse(words, monkeypatch):
    monkeypatch.chdir(ROOT)
    name, *arguments = shlex.split(words)
    parsers = {
        "evolve.run": load,
        "evolve.verify": verify._parser().parse_args,
        "evolve.bench": bench.parser().parse_args,
    }
    parsers[name](arguments)


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:experiments|hostfiles)/[\w.-]+\w", README))))
def test_named_files_exist(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.name)
def test_experiments_are_valid_and_ask_a_question(path):
    assert re.match(r"# [A-Z].*\?$", path.read_text().splitlines()[0])
    [prepare(config) for config in load([str(path)])[0]]


def test_the_ancestors_preset_is_the_ancestors_command():
    words = "-e BipedalWalker-v3 -r 8 -a hebbian-dag -p 138 -g 200 -d 8 8 -s 13 41337"
    command, preset = (
        prepare(load(arguments)[0][0]).config
        for arguments in (words.split(), [str(ROOT / "experiments/ancestor.toml")])
    )
    assert command == preset
