"""The EnvPool engine: environments in C++, many in one pool.

EnvPool fixes the seeds of environments when it makes their pool. So each `reset` of several slots makes a new pool, and
several pools may be in use at the same time. The engine steps only environments with a running episode. When all
episodes of a pool have ended, the next step drops the pool.

EnvPool's environments play other episodes than Gymnasium's environments of the same names. So an experiment names the
engine in its configuration.
"""

import importlib
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import numpy as np

from evolve.config import EnvOptions, suggest
from evolve.environments.engine import DEFAULT_FPS, Transition, as_frame, do_nothing, encode_metrics
from evolve.environments.spaces import Spaces, action_decoder, kind_of, observation_encoder, without_advice
from evolve.errors import FAILURES, InputError, Setting, import_extra, one_line
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, Slots, UInt8

_DRAWABLE_FAMILIES = ("classic_control", "box2d", "atari")  # folders of EnvPool whose environments can draw frames
_GYMNASIUM = Setting("env.engine", "gymnasium")
_NO_LIMIT = 2**31 - 1  # the step limit that EnvPool declares for an environment without a limit


class EnvPoolEngine:
    """B slots of an EnvPool environment. See `Engine` for the attributes.

    Raises:
        InputError: EnvPool is missing or cannot make the environment (see `make_pool`), or the spaces of the
            environment are not supported.
    """

    def __init__(self, options: EnvOptions, slots: int, threads: int = 1) -> None:
        self._envpool = _import()
        self._options = options
        self._threads = threads
        self.id = options.id
        self.faults: dict[int, str] = {}
        self.on_fault: Callable[[], None] = do_nothing
        self.reuses = False
        self.fps = DEFAULT_FPS
        self.min_free_slots = max(1, slots // 4)  # new pools are expensive, so each should have many environments

        probe = self.make_pool([0])  # plays nothing, but has the spaces
        if probe.spec.config.max_num_players > 1:  # a game, such as Go
            raise InputError("env.id", "an environment with one agent", f"{options.id} of EnvPool, which has several")
        self.spaces = Spaces(probe.observation_space, probe.action_space)
        self.observation_size, self._encode = observation_encoder(probe.observation_space)
        # The encoder of a Box only flattens and converts the numbers, unless their type is uint8.
        self._is_vector = kind_of(probe.observation_space) == "Box" and probe.observation_space.dtype != np.uint8
        self.action_size, self._decode = action_decoder(probe.action_space, options.action_scale)
        self._action_dtype = probe.spec.action_array_spec["action"].dtype
        self.metric_names = options.reported_metrics

        self._infos: list[tuple[Slots, Any]] = []  # of the latest step: (slots, `info`) of each pool
        self._pools: dict[int, Any] = {}  # the pools in use, by their numbers 1, 2, …
        self._num_pools = 0  # the number of pools made so far, and thus the number of the newest pool
        # For each slot: the number of its environment's pool, and the id of the environment in that pool.
        self._pool_of = np.zeros(slots, np.int64)
        self._ids = np.zeros(slots, np.int32)
        # Count steps here, too, because some environments of EnvPool exceed their limit (CliffWalking).
        self._elapsed = np.zeros(slots, np.int64)
        self._limit = np.inf if options.max_episode_steps is None else options.max_episode_steps

    def suggested_slots(self) -> int:
        """Return 2048, a large number, because the overhead of a call does not depend on the number of slots."""
        return 2048

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k], in a new pool; write rows `slots` of observations [B, O]."""
        pool = self.make_pool(seeds.tolist())
        self._num_pools += 1
        self._pools[self._num_pools] = pool
        self._pool_of[slots] = self._num_pools
        self._ids[slots] = np.arange(len(seeds), dtype=np.int32)
        self._elapsed[slots] = 0
        self._write(pool.reset()[0], observations, slots)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] by outputs [k, A]; write rows `slots` of observations [B, O]; return rewards and ends, [k]."""
        groups = self._groups(slots)
        actions = self.decode(outputs)
        rewards = np.empty(len(slots))
        ended = np.empty(len(slots), np.bool_)
        # Give all pools their work before waiting for the first pool.
        for pool, rows, ids in groups:
            # EnvPool also expects the environment of each player, and here each environment has one player.
            pool.send({"action": actions[rows], "env_id": ids, "players": {"env_id": ids}})
        self._infos = []
        row_of_id = np.empty(len(self._ids), np.intp)  # by the id of an environment in the current pool
        for pool, rows, ids in groups:
            received, reward, terminated, truncated, info = pool.recv()
            # A pool returns its environments in any order, with their ids.
            row_of_id[ids] = rows
            received_rows = row_of_id[info["env_id"]]
            self._infos.append((slots[received_rows], info))
            self._write(received, observations, slots[received_rows])
            rewards[received_rows] = reward
            ended[received_rows] = terminated | truncated
        self._elapsed[slots] += 1
        return rewards, ended | (self._elapsed[slots] >= self._limit)

    def metrics(self, slots: Slots) -> Int64:
        """Return the metrics of slots [k] after the end of their episodes, [k, 2, M]; see `Engine.metrics`."""
        encoded = np.zeros((len(slots), 2, len(self.metric_names)), np.int64)
        row_of = {slot: row for row, slot in enumerate(slots.tolist())}
        for stepped_slots, info in self._infos:
            for index, slot in enumerate(stepped_slots.tolist()):
                if slot in row_of:
                    # `info` also has tables of players, which hold no metrics.
                    of_slot = {name: values[index] for name, values in info.items() if isinstance(values, np.ndarray)}
                    try:
                        encoded[row_of[slot]] = encode_metrics(of_slot, self.metric_names)
                    except InputError as error:
                        self.faults.setdefault(slot, str(error))
        return encoded

    def trial(self, seed: int, outputs: Float32, used: bool) -> Generator[Transition, None, None]:
        """Play one episode in a new pool, see `Engine.trial`. `used` has no effect, because pools are not reused."""
        pool = self.make_pool([seed])
        yield {"observation": _item(pool.reset()[0], 0)}
        for action in self.decode(outputs):
            received, reward, terminated, truncated, _ = pool.step(action[None])
            ends = {"terminated": bool(terminated[0]), "truncated": bool(truncated[0])}
            yield {"observation": _item(received, 0), "reward": reward[0], **ends}
            if any(ends.values()):
                break

    def _groups(self, slots: Slots) -> list[tuple[Any, Slots, Int32]]:
        """Group slots [k] by pool: return each pool, the indices of its slots in `slots`, and its environments' ids.

        Drop a pool that has none of these slots, because all its episodes have ended.
        """
        ids, pool_of = self._ids[slots], self._pool_of[slots]
        rows_of = {number: np.flatnonzero(pool_of == number) for number in self._pools}
        self._pools = {number: pool for number, pool in self._pools.items() if len(rows_of[number])}
        return [(pool, rows_of[number], ids[rows_of[number]]) for number, pool in self._pools.items()]

    def decode(self, outputs: Float32) -> Any:
        """Return n actions from network outputs [n, A], in the type that a pool expects."""
        return np.asarray(self._decode(outputs), self._action_dtype)

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, see `Engine.frame`."""
        pool = self._pools[int(self._pool_of[slot])]
        return as_frame(self.id, lambda: pool.render(env_ids=[self._ids[slot]])[0])

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` [k] in the free slots `targets` [k]."""
        self._pool_of[targets] = self._pool_of[sources]
        self._ids[targets] = self._ids[sources]
        self._elapsed[targets] = self._elapsed[sources]

    def close(self) -> None:
        """Drop every pool."""
        self._pools.clear()

    def _write(self, received: Any, observations: Float32, slots: Slots) -> None:
        """Encode the observations `received` from a pool, k of them, into rows `slots` [k] of observations [B, O]."""
        if self._is_vector:  # one assignment does the same as the encoder, for all environments
            observations[slots] = received.reshape(len(slots), -1)
        else:
            for index, slot in enumerate(slots.tolist()):
                self._encode(_item(received, index), observations[slot])

    @without_advice()
    def make_pool(self, seeds: list[int]) -> Any:
        """Return a new pool with one environment per seed.

        Raises:
            InputError: EnvPool does not know the environment, cannot make it with these options, or lacks a library.
        """
        options = self._options
        if options.wrappers:
            message = "EnvPool's environments take no wrappers. Use ", _GYMNASIUM, ", or no env.wrappers."
            raise InputError.plainly("env.wrappers", *message)
        if options.randomize:
            why = "EnvPool makes all environments of a pool with the same arguments. Use "
            raise InputError.plainly("env.randomize", why, _GYMNASIUM, ", or no env.randomize.")
        known = self._envpool.list_all_envs()
        if options.id not in known:
            # `suggest` returns "" if no name is similar.
            cure = f"{suggest(options.id, known)} Or use ".lstrip(), _GYMNASIUM, "."
            raise InputError("env.id", "an environment that EnvPool has", options.id, *cure)
        limit = {} if options.max_episode_steps is None else {"max_episode_steps": options.max_episode_steps}
        # Pass the batch size, so that env.kwargs cannot pass a smaller size, which would end the process in `step`.
        n = len(seeds)
        sizes = {"num_envs": n, "batch_size": n, "num_threads": min(self._threads, n)}
        try:
            pool = self._envpool.make(options.id, env_type="gymnasium", seed=seeds, **sizes, **limit, **options.kwargs)
            # Read the spaces here, where Gymnasium's advice is silenced: EnvPool makes them when they are first read.
            _ = pool.observation_space, pool.action_space
            return pool
        except ImportError as error:  # Procgen needs Qt of the operating system
            expected = "an environment whose libraries are installed"
            raise InputError("env.id", expected, f"{options.id} ({one_line(error)})") from None
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            expected = f"arguments that EnvPool's {options.id} takes"
            raise InputError("env.kwargs", expected, f"{options.kwargs} ({one_line(error)})") from None


def envpool_limit(env_id: str) -> int | None:
    """Return the step limit that EnvPool declares for an environment; None if it has no limit, or does not exist."""
    envpool = _import()
    with suppress(*FAILURES):
        limit = int(envpool.make_spec(env_id).config.max_episode_steps)
        return None if limit == _NO_LIMIT else limit
    return None


def envpool_can_draw(env_id: str) -> bool:
    """Return whether EnvPool can draw an environment. Raises InputError if EnvPool is missing.

    EnvPool has MuJoCo's environments, too, but drawing them would crash the process.
    """
    _import()
    specs = importlib.import_module("envpool.registration").registry.specs
    # A specification begins with the path of the environment's module. The path contains the family.
    return env_id in specs and any(family in str(specs[env_id][0]) for family in _DRAWABLE_FAMILIES)


def _import() -> Any:
    """Return the module envpool. Raises InputError if it is missing."""
    return import_extra("envpool", "envpool", "env.engine", "EnvPool")


def _item(batch: Any, index: int) -> Any:
    """Return the observation of one environment in a batch: an array, or a (nested) dictionary of arrays."""
    return {key: _item(member, index) for key, member in batch.items()} if isinstance(batch, dict) else batch[index]
