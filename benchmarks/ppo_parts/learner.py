"""The side of PPO and TQC: the only part that imports Stable-Baselines3, sb3-contrib and PyTorch."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from sb3_contrib import TQC, RecurrentPPO
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from evolve.config import Config, EnvOptions
from ppo_parts.episodes import Actions, Episodes, held_out_seeds, play
from ppo_parts.records import Outcome, Point
from ppo_parts.tasks import Gradient, Task


class EngineEnv(VecEnv):
    """Environments of an engine of evolve, for Stable-Baselines3."""

    def __init__(self, episodes: Episodes, slots: int, actions: Actions) -> None:
        self._episodes = episodes
        self._convert = actions.outputs
        seen = gymnasium.spaces.Box(-np.inf, np.inf, (episodes.engine.observation_size,), np.float32)
        box = gymnasium.spaces.Box(-1.0, 1.0, (actions.size,), np.float32)
        super().__init__(slots, seen, box if actions.choices is None else gymnasium.spaces.Discrete(actions.choices))

    def reset(self) -> np.ndarray:
        return self._episodes.reset()

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> Any:
        stepped = self._episodes.step(self._convert(self._actions))
        infos: list[dict[str, Any]] = [{} for _ in stepped.ended]
        for slot in np.flatnonzero(stepped.ended):
            infos[slot] = {
                "terminal_observation": stepped.last[slot],
                "TimeLimit.truncated": bool(stepped.cut[slot]),
            }
        return stepped.observations, stepped.rewards.astype(np.float32), stepped.ended, infos

    def close(self) -> None:
        self._episodes.engine.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * len(list(self._get_indices(indices)))


class Judge(BaseCallback):
    """Evaluates the policy after given numbers of steps; the time for that does not count.

    Args:
        points: These numbers of environment steps.
        options: The environment of held-out episodes.
        seeds: The seeds of held-out episodes.
        actions: The actions of the policy.
    """

    def __init__(self, points: Sequence[int], options: EnvOptions, seeds: np.ndarray, actions: Actions) -> None:
        super().__init__()
        self.curve: list[Point] = []
        self.returns = np.zeros(0)
        self._points = sorted(points)
        self._judged = options, seeds, actions
        self._clocks = np.zeros(2)

    def start(self) -> None:
        """Start counting the time."""
        self._clocks = _clocks()

    def _on_rollout_start(self) -> None:  # the policy was updated with all steps so far
        if self._points and self.num_timesteps >= self._points[0]:
            self._points = [point for point in self._points if point > self.num_timesteps]
            self.judge()

    def _on_step(self) -> bool:
        return True

    def judge(self) -> None:
        """Evaluate the present policy."""
        begin = _clocks()
        seconds, cpu = begin - self._clocks
        options, seeds, actions = self._judged
        self.returns = play(options, seeds, Deterministic(self.model, actions))
        mean = float(self.returns.mean())
        self.curve.append(Point(self.model.num_timesteps, float(seconds), float(cpu), mean))
        self._clocks += _clocks() - begin


class Deterministic:
    """The policy without exploration, for episodes that all begin now."""

    def __init__(self, model: Any, actions: Actions) -> None:
        self._model = model
        self._convert = actions.outputs
        self._state: Any = None
        self._begins = True

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return the outputs [N, A] for observations [N, O]."""
        normalizer = self._model.get_vec_normalize_env()
        seen = observations if normalizer is None else normalizer.normalize_obs(observations)
        begins = np.full(len(observations), self._begins)
        actions, self._state = self._model.predict(seen, self._state, episode_start=begins, deterministic=True)
        self._begins = False
        return self._convert(actions)


def learn(
    task: Task,
    method: str,
    config: Config,
    seed: int,
    cores: int,
    points: Sequence[int],
    most: int | None,
    episodes: int,
) -> Outcome:
    """Let PPO or TQC learn a task; see `evolve_task` for the arguments.

    method: `ppo` or `tqc`, which the task has. config: the experiment of evolution's side.
    """
    torch.set_num_threads(cores)
    options = config.in_evaluation().env
    asked = getattr(task, method)
    asked = asked if most is None else replace(asked, steps=min(most, asked.steps))
    training = Episodes(options, asked.envs, seed, task.ends_by_itself)
    actions = Actions(task.choices, training.engine.action_size)
    env = EngineEnv(training, asked.envs, actions)
    model = _model(asked, VecNormalize(env, gamma=asked.settings["gamma"]) if asked.normalize else env, seed)
    judge = Judge(points, options, held_out_seeds(seed, episodes), actions)
    judge.start()
    model.learn(asked.steps, callback=judge)
    judge.judge()
    env.close()
    settings = {"algorithm": asked.algorithm, "source": asked.source, "normalize": asked.normalize, "envs": asked.envs}
    settings |= {"steps": asked.steps, "network": asked.network} | asked.settings
    return Outcome(judge.curve, judge.returns.tolist(), options.model_dump(mode="json"), settings)


def _model(asked: Gradient, env: VecEnv, seed: int) -> Any:
    settings = {name: _schedule(value) for name, value in asked.settings.items()}
    network = dict(asked.network)
    if "activation" in network:
        network["activation_fn"] = getattr(torch.nn, network.pop("activation"))
    kind = {"PPO": PPO, "RecurrentPPO": RecurrentPPO, "TQC": TQC}[asked.algorithm]
    policy = "MlpLstmPolicy" if asked.algorithm == "RecurrentPPO" else "MlpPolicy"
    return kind(policy, env, seed=seed, device="cpu", policy_kwargs=network, **settings)


def _schedule(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("linear_"):
        return value
    first = float(value.removeprefix("linear_"))
    return lambda left: left * first


def _clocks() -> np.ndarray:
    """Return two times in seconds: wall time, and CPU time of this process."""
    return np.array([time.perf_counter(), time.process_time()])
