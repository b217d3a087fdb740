"""Tasks that are plain functions: the README's example is run, and what functions may do wrong is told."""

import re

import numpy as np
import pytest
from conftest import ROOT

from evolve.environments.function import FunctionEnv


def test_the_readmes_task_is_learned_and_verified(command, tmp_path):
    readme = (ROOT / "README.md").read_text()
    code = re.search(r"Say this is `xor.py`:\n\n```python\n(.*?)```", readme, re.S)[1]
    (tmp_path / "xor.py").write_text(code)
    words = re.search(r"`python -m evolve.run (-e xor:Xor-v0 [^`]*)`", readme)[1].split()
    env = {"PYTHONPATH": f"{ROOT}:{tmp_path}"}
    done = command("run", *words, "-o", "runs", **env)
    assert done.code == 0, done.err
    best = float(re.search(r"best (\S+) in generation 49", done.out)[1])
    assert -1.0 < best <= 0  # saying always the same comes to -4
    assert command("verify", "runs/seed-0.h5", ranks=3, **env).code == 0


def echo(random):
    target = random.uniform(-1, 1)
    action = yield [target]
    action = yield action[:1]
    return 1 - abs(float(action[0]) - target)


def test_an_episode_is_a_call():
    env = FunctionEnv(echo, 1, 2)
    target = env.reset(seed=3)[0]
    assert target.shape == (1,)
    seen, reward, terminated, _, _ = env.step(np.array([0.25, 0.0], np.float32))
    assert (seen.tolist(), reward, terminated) == ([0.25], 0.0, False)
    _, reward, terminated, _, _ = env.step(np.array([0.5, 0.0], np.float32))
    assert (reward, terminated) == (pytest.approx(1 - abs(0.5 - target[0])), True)
    assert env.reset(seed=3)[0].tobytes() == target.tobytes()  # the same chance again
    assert env.reset(seed=4)[0].tobytes() != target.tobytes()


def nothing(random):
    yield [0.0]


def test_what_goes_wrong_is_raised():
    env = FunctionEnv(nothing, 1, 1)
    env.reset(seed=0)
    with pytest.raises(TypeError, match="NoneType"):
        env.step(np.zeros(1, np.float32))
    env = FunctionEnv(lambda random: iter([[1.0, 2.0]]), 1, 1)
    with pytest.raises(ValueError, match="reshape"):
        env.reset(seed=0)
