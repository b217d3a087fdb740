"""Errors name settings as TOML and Python do; on a terminal they name options."""

from pathlib import Path

import pytest

from evolve.cli.parser import command_line, parser_of, setting_text
from evolve.errors import InputError, RunError, Setting


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (Setting("population"), "population (-p/--population)"),
        (Setting("seeds.0"), "seeds.0 (-s/--seed)"),
        (Setting("strategy.survivors"), "strategy.survivors"),
        (Setting("env.engine", "gymnasium"), "--engine gymnasium"),
        (Setting("env.id", "module:Xor-v0"), "--env module:Xor-v0"),
        (Setting("output.genomes", "all"), "--set output.genomes=all"),
        (Setting("compute.check", False), "--set compute.check=false"),
        (Setting("resume", True), "--resume"),
        (Setting("mode", "rgb_array"), "--video OUT"),
    ],
)
def test_settings_become_options(setting, shown):
    assert setting_text(setting) == shown


def test_an_error_is_worded_by_the_command_line():
    engine, directory = Setting("env.engine", "exact"), Setting("output.directory")
    wrong = InputError("seed", "1", 2, "Use ", engine, ", or another ", directory, ".", where="resuming env.id=3")
    assert str(wrong) == (
        'seed, resuming env.id=3: expected 1, got 2. Use env.engine="exact", or another output.directory.'
    )
    assert wrong.spelled_message(setting_text) == (
        "seed (-s/--seed), resuming env.id=3: expected 1, got 2. Use --engine exact, or another "
        "output.directory (-o/--output)."
    )
    outer = RunError(wrong, "\nenv.id=3")
    assert outer.spelled_message(setting_text) == f"{wrong.spelled_message(setting_text)}\nenv.id=3"


@pytest.mark.parametrize(
    ("command", "key", "shown"),
    [
        ("replay", "candidate", "candidate (--candidate)"),
        ("replay", "env.id", "env.id"),
        ("evaluate", "env.id", "env.id (-e/--env)"),
        ("evaluate", "seed", "seed"),
        ("verify", "env.id", "env.id"),
        ("verify", "compute.threads", "compute.threads (--threads)"),
        ("plot", "cell", "cell (--cell)"),
        ("bench", "network.hidden.0", "network.hidden.0 (-d/--hidden)"),
        ("devices", "population", "population"),
    ],
)
def test_only_options_that_a_command_has_are_named(command, key, shown):
    assert setting_text(Setting(key), command) == shown


@pytest.mark.parametrize("command", ["info", "plot", "report", "verify"])
def test_files_may_begin_with_a_dash(command):
    words = ["--", "-d/seed-1.h5", "x.h5"] if command != "info" else ["--", "-d/seed-1.h5"]
    found = parser_of(command).parse_with_files(words)
    assert [str(path) for path in found.files] == words[1:]
    assert command_line(command, Path("-d/x.h5"), "-o", Path("y")).endswith(" ./-d/x.h5 -o y")
