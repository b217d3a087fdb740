"""Errors name settings as TOML and Python do; on a terminal they name options."""

import re

import pytest

from evolve.cli.parser import FLAGS, for_terminal


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("population: expected 2 or more, got 1.", "population (-p/--population): expected 2 or more, got 1."),
        ("seeds.0: expected a number, got x.", "seeds.0 (-s/--seed): expected a number, got x."),
        ("seed, resuming a.h5: expected 1, got 2.", "seed (-s/--seed), resuming a.h5: expected 1, got 2."),
        ("strategy.survivors: expected 1, got 0.", "strategy.survivors: expected 1, got 0."),
        ('Use env.engine="gymnasium".', "Use --engine gymnasium."),
        ('Its name: env.id="module:Xor-v0".', "Its name: --env module:Xor-v0."),
        ('To keep them: output.genomes="all" (or not).', "To keep them: --set output.genomes=all (or not)."),
        ("To run it all the same: compute.check=false.", "To run it all the same: --set compute.check=false."),
        ("a.h5 exists. Continue it with resume=True, or choose another output.directory.",
         "a.h5 exists. Continue it with --resume, or choose another directory with -o."),
        ("key --set env.reuse=true: stays", "key --set env.reuse=true: stays"),
        ("env.id: wrong\n    env.reuse=3\nuse env.reuse=true",
         "env.id (-e/--env): wrong\n    env.reuse=3\nuse --set env.reuse=true"),
    ],
)  # fmt: skip
def test_settings_become_options(message, shown):
    assert for_terminal(message) == shown


@pytest.mark.parametrize(
    ("command", "message", "shown"),
    [
        ("replay", "candidate: expected 1, got 0.", "candidate (--candidate): expected 1, got 0."),
        ("replay", "env.id: it has none.", "env.id: it has none."),
        ("evaluate", "env.id: it has none.", "env.id (-e/--env): it has none."),
        ("evaluate", "seed: expected 1, got 0.", "seed: expected 1, got 0."),
        ("verify", "env.id: it has none.", "env.id: it has none."),
    ],
)
def test_only_options_that_a_command_has_are_named(command, message, shown):
    assert for_terminal(message, command) == shown


@pytest.mark.parametrize("command", FLAGS)
def test_every_flag_is_one_of_its_command(call, command):
    words = call(command, "--help").out
    for flag in FLAGS[command].values():
        assert all(re.search(rf"(^|\s){option}[ ,\n]", words) for option in flag.split("/")), flag
