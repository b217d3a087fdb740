"""Every strategy of the registry in the real commands: run, resume, verify."""

import pytest

from evolve import store
from evolve.strategies import STRATEGIES

SMALL = ("-e", "CartPole-v1", "-p", 7, "-r", 2, "-d", 3, "-s", 4, "--set", "held_out_episodes=3")


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_a_resumed_run_ends_as_an_uninterrupted_one_and_verifies(call, command, tmp_path, name):
    words = (*SMALL, "--strategy", name)
    for done in (
        command("run", *words, "-g", 3, "-o", "whole", ranks=2),
        call("run", *words, "-g", 2, "-o", "parts"),
        call("run", *words, "-g", 3, "-o", "parts", "--resume"),
    ):
        assert done.code == 0, done.err
    whole, parts = (store.read(store.path_of(tmp_path / place, 4)) for place in ("whole", "parts"))
    assert [r.digest for r in whole.records] == [r.digest for r in parts.records]
    assert whole.held_out.returns.tolist() == parts.held_out.returns.tolist()
    done = call("verify", parts.path, "--full")
    assert done.code == 0, done.out + done.err
