"""Scripts that complete command lines at Tab."""

import subprocess

import pytest
from conftest import LONG, ROOT

from evolve.cli import COMMANDS
from evolve.cli.completion import SHELLS
from evolve.networks import NETWORKS
from evolve.strategies import STRATEGIES

TAB = """
source evolve.bash
while read -r -a words; do
    COMP_WORDS=("${words[@]/#_/}") COMP_CWORD=$((${#words[@]} - 1)) COMPREPLY=()
    _shtab_evolve || true
    echo "${COMPREPLY[*]}"
done
"""
"""Reads command lines, and prints the completions at the end of each. A word `_` stands for an empty word."""


def test_a_shell_completes_commands_options_and_names(call, tmp_path):
    pytest.importorskip("shtab")
    (tmp_path / "evolve.bash").write_text(call("completion", "bash").out)
    (tmp_path / "runs").mkdir()
    lines = {
        "evolve _": set(COMMANDS),
        "evolve ver": {"verify"},
        "evolve run --over": {"--overwrite"},
        "evolve run -s 1 2 --dry": {"--dry-run"},
        "evolve run -a _": set(NETWORKS),
        "evolve run --strategy _": set(STRATEGIES),
        "evolve run -e BipedalWalker-v": {"BipedalWalker-v3"},
        "evolve run --workers au": {"auto"},
        "evolve contest --workers _": {"2", "4", "8"},
        "evolve run -o ru": {"runs"},
        "evolve run --start-from ru": {"runs"},
        "evolve run --tensorboard ru": {"runs"},
        "evolve launch --hostfile evolve.b": {"evolve.bash"},
        "evolve report ru": {"runs"},
        "evolve plot -x st": {"steps"},
        "evolve bench --mea": set(),  # hidden
        "evolve contest --comp": {"--compare"},
        "evolve contest --size me": {"medium"},
    }
    typed = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(
        ["bash", "-c", TAB], cwd=tmp_path, input=typed, capture_output=True, text=True, check=True, timeout=LONG
    )
    offered = [set(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(lines, offered, strict=True)) == lines


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_a_script(call, shell):
    pytest.importorskip("shtab")
    done = call("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert "evolve" in done.out
    assert all(word in done.out for word in ("overwrite", "hebbian-lstm", "replay"))


def test_without_its_library_it_says_how_to_install_it(call, absent):
    absent("shtab")
    call("completion", "bash").refused(f"pip install -e '{ROOT}[completion]'")


def test_other_shells_are_refused(call):
    call("completion", "command.com").refused("SHELL: expected one of bash, zsh, fish, tcsh, got command.com.")
