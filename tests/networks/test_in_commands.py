"""Every network of the registry goes through the real commands: run, verify, resume, plot."""

import re

import pytest
from old_digest import old_digests

from evolve import networks, store
from evolve.cli.app import launch

TINY = [
    "-e", "CartPole-v1", "-p", "5", "-r", "2", "-g", "2", "-d", "3", "-o", "out",
    "--set", "held_out_episodes=2", "--set", "env.max_episode_steps=40",
    "--set", "strategy.uniform_pruning=0.1",
]  # fmt: skip


@pytest.mark.parametrize("name", list(networks.NETWORKS))
def test_a_run_can_be_verified_resumed_and_drawn(call, tmp_path, golden, name):
    # The digests are older than the present defaults of prune.
    words = [*TINY, "-a", name, "--set", "strategy.survivors=1", "--set", "strategy.weight_noise=0"]
    if name.startswith("hebbian"):  # others leave no traces to prune by
        words += ["--set", "strategy.trace_pruning=0.2"]
    done = call("run", *words)
    assert (done.code, done.err) == (0, "")
    path = store.path_of(tmp_path / "out", 0)
    assert launch("verify", [str(path)]) == 0
    assert launch("run", [*words, "-g", "4", "--resume"]) == 0
    kept = ("--set", 'output.genomes="all"')
    assert launch("run", [*words, "-g", "4", "-o", "whole", "--backend", "numpy", *kept]) == 0
    other = store.path_of(tmp_path / "whole", 0)
    resumed, whole = store.read(path).records, store.read(other).records
    assert [record.digest for record in resumed] == [record.digest for record in whole]
    assert old_digests(other)[-1] == golden["network_digests"][name]
    assert launch("plot", [str(path), "--network", "-o", "network.svg"]) == 0
    drawn = (tmp_path / "network.svg").read_text()
    left, _ = re.search(r"held-out champion: (\d+) of (\d+) acting connections", drawn).groups()
    curves = drawn.split('<g id="connections">')[1].split("</g>")[0]
    assert int(left) == len(re.findall(r"<path d=", curves)) or int(left) == len(re.findall(r"<use ", curves))
