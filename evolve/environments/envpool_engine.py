"""The EnvPool engine: environments in C++, many in one pool.

EnvPool fixes the seeds when a pool is made, so each batch of episodes gets a new pool. The engine steps only the
environments with a running episode. After a pool's last episode has ended, the next step drops the pool.

EnvPool's environments play other episodes than Gymnasium's environments of the same names. So an experiment names the
engine in its configuration.
"""

import importlib
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from evolve.config import EnvOptions, suggest
from evolve.environments.engine import FPS, Transition, as_frame, do_nothing, encode_metrics
from evolve.environments.spaces import Spaces, action_decoder, kind_of, observation_encoder, without_advice
from evolve.errors import FAILURES, InputError, Setting, import_extra, one_line
from evolve.shapes import Bool, Float32, Float64, Int32, Int64, Slots, UInt8

_DRAWABLE_FAMILIES = ("classic_control", "box2d", "atari")  # of EnvPool's environments
_GYMNASIUM = Setting("env.engine", "gymnasium")
_NO_LIMIT = 2**31 - 1  # the number of steps that EnvPool declares if there is no limit


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
        self.fps = FPS
        self.refill = max(1, slots // 4)  # new pools are expensive, so each should have many environments
        first = self.make_pool([0])  # only to ask for its spaces
        if first.spec.config.max_num_players > 1:  # a game, such as Go
            raise InputError("env.id", "an environment with one agent", f"{options.id} of EnvPool, which has several")
        self.spaces = Spaces(first.observation_space, first.action_space)
        self.observation_size, self._encode = observation_encoder(first.observation_space)
        # The encoder of a Box only flattens and converts the numbers, unless their type is uint8.
        self._is_vector = kind_of(first.observation_space) == "Box" and first.observation_space.dtype != np.uint8
        self.action_size, self._decode = action_decoder(first.action_space, options.action_scale)
        self._action_dtype = first.spec.action_array_spec["action"].dtype
        self.metric_names = options.reported_metrics
        self._infos: list[tuple[Slots, Any]] = []  # of the latest step: the slots of each pool, and the pool's info
        self._pools: dict[int, Any] = {}
        self._num_pools = 0  # pools made so far; the number of the newest pool
        # The environment in each slot: the number of its pool, and its id in that pool.
        self._pool_of = np.zeros(slots, np.int64)
        self._ids = np.zeros(slots, np.int32)
        # Count steps here, too, because some environments of EnvPool exceed their limit (CliffWalking).
        self._elapsed = np.zeros(slots, np.int64)
        self._limit = np.inf if options.max_episode_steps is None else options.max_episode_steps

    def suggested_slots(self) -> int:
        """Return 2048: the overhead of a call does not depend on the number of slots, so many slots are faster."""
        return 2048

    def reset(self, slots: Slots, seeds: Int64, observations: Float32) -> None:
        """Begin the episodes of seeds [k] in slots [k], in a new pool; write their rows of observations [B, O]."""
        pool = self.make_pool(seeds.tolist())
        self._num_pools += 1
        self._pools[self._num_pools] = pool
        self._pool_of[slots] = self._num_pools
        self._ids[slots] = np.arange(len(seeds), dtype=np.int32)
        self._elapsed[slots] = 0
        self._write(pool.reset()[0], observations, slots)

    def step(self, slots: Slots, outputs: Float32, observations: Float32) -> tuple[Float64, Bool]:
        """Step slots [k] by outputs [k, A]; write their observations [B, O]; return rewards [k] and ends [k]."""
        groups = self._groups(slots)
        actions = self.decode(outputs)
        rewards = np.empty(len(slots))
        ended = np.empty(len(slots), np.bool_)
        # All pools begin to work before the engine waits for the first one.
        for pool, rows, ids in groups:
            # EnvPool also expects the environment of each player, and here each environment has one player.
            pool.send({"action": actions[rows], "env_id": ids, "players": {"env_id": ids}})
        row_of = np.empty(len(self._ids), np.intp)
        self._infos = []
        for pool, rows, ids in groups:
            received, reward, terminated, truncated, info = pool.recv()
            # A pool returns its environments in any order, with their ids.
            row_of[ids] = rows
            received_rows = row_of[info["env_id"]]
            self._infos.append((slots[received_rows], info))
            self._write(received, observations, slots[received_rows])
            rewards[received_rows] = reward
            ended[received_rows] = terminated | truncated
        self._elapsed[slots] += 1
        return rewards, ended | (self._elapsed[slots] >= self._limit)

    def metrics(self, slots: Slots) -> Int64:
        """Return the metrics of slots [k] after the end of their episodes, [k, 2, M]; see `Engine.metrics`."""
        encoded = np.zeros((len(slots), 2, len(self.metric_names)), np.int64)
        place = {slot: row for row, slot in enumerate(slots.tolist())}
        for stepped, info in self._infos:
            for index, slot in enumerate(stepped.tolist()):
                if slot in place:
                    # `info` also has tables of players, which hold no metrics.
                    arrays = {name: values[index] for name, values in info.items() if isinstance(values, np.ndarray)}
                    try:
                        encoded[place[slot]] = encode_metrics(arrays, self.metric_names)
                    except InputError as error:
                        self.faults.setdefault(slot, str(error))
        return encoded

    def trial(self, seed: int, outputs: Float32, used: bool) -> Generator[Transition, None, None]:
        """Play one episode in a new pool. `used` has no effect: no environment of EnvPool runs a second episode."""
        pool = self.make_pool([seed])
        yield {"observation": _item(pool.reset()[0], 0)}
        for action in self.decode(outputs):
            received, reward, terminated, truncated, _ = pool.step(action[None])
            ends = {"terminated": bool(terminated[0]), "truncated": bool(truncated[0])}
            yield {"observation": _item(received, 0), "reward": reward[0], **ends}
            if any(ends.values()):
                break

    def _groups(self, slots: Slots) -> list[tuple[Any, Slots, Int32]]:
        """Return each pool with the rows of its slots in `slots` [k], and with the ids of their environments.

        A pool without slots is dropped, because all its episodes have ended.
        """
        ids, pool_of = self._ids[slots], self._pool_of[slots]
        rows_of = {number: np.flatnonzero(pool_of == number) for number in self._pools}
        self._pools = {number: pool for number, pool in self._pools.items() if len(rows_of[number])}
        return [(pool, rows_of[number], ids[rows_of[number]]) for number, pool in self._pools.items()]

    def decode(self, outputs: Float32) -> Any:
        """Return the actions of network outputs [n, A], in the type that the pool expects."""
        return np.asarray(self._decode(outputs), self._action_dtype)

    def frame(self, slot: int) -> UInt8:
        """Return a picture of a slot's environment, [H, W, 3], even when its episode has just ended."""
        pool = self._pools[int(self._pool_of[slot])]
        return as_frame(self.id, lambda: pool.render(env_ids=[self._ids[slot]])[0])

    def move(self, sources: Slots, targets: Slots) -> None:
        """Continue the episodes of slots `sources` in slots `targets`."""
        self._pool_of[targets] = self._pool_of[sources]
        self._ids[targets] = self._ids[sources]
        self._elapsed[targets] = self._elapsed[sources]

    def close(self) -> None:
        """Drop every pool."""
        self._pools.clear()

    def _write(self, received: Any, observations: Float32, slots: Slots) -> None:
        """Encode the observations of a pool into the rows `slots` [k] of observations [B, O]."""
        # The encoder of vectors would only flatten and convert, which one assignment does for the whole pool.
        if self._is_vector:
            observations[slots] = received.reshape(len(slots), -1)
        else:
            for index, slot in enumerate(slots.tolist()):
                self._encode(_item(received, index), observations[slot])

    @without_advice()
    def make_pool(self, seeds: list[int]) -> Any:
        """Return a new pool with one environment per seed.

        Raises:
            InputError: EnvPool does not know the environment, or cannot make it with these options. Or a library is
                missing.
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
            suggestion = suggest(options.id, known)  # empty if no name is similar
            cure = f"{suggestion} Or use ".lstrip(), _GYMNASIUM, "."
            raise InputError("env.id", "an environment that EnvPool has", options.id, *cure)
        limit = {} if options.max_episode_steps is None else {"max_episode_steps": options.max_episode_steps}
        # Pass the batch size, so that env.kwargs cannot pass a smaller size, which would end the process in `step`.
        n = len(seeds)
        count = {"num_envs": n, "batch_size": n, "num_threads": min(self._threads, n), "seed": seeds}
        try:
            pool = self._envpool.make(options.id, env_type="gymnasium", **count, **limit, **options.kwargs)
            _ = pool.observation_space, pool.action_space  # EnvPool makes and keeps the spaces when they are first read
            return pool
        except ImportError as error:  # Procgen needs Qt of the operating system
            expected = "an environment whose libraries are installed"
            raise InputError("env.id", expected, f"{options.id} ({one_line(error)})") from None
        except (TypeError, ValueError, AssertionError, RuntimeError) as error:
            expected = f"arguments that EnvPool's {options.id} takes"
            raise InputError("env.kwargs", expected, f"{options.kwargs} ({one_line(error)})") from None


def envpool_limit(env_id: str) -> int | None:
    """Return the step limit that EnvPool declares for an environment; None without a limit or such an environment."""
    envpool = _import()
    try:
        limit = int(envpool.make_spec(env_id).config.max_episode_steps)
    except FAILURES:
        return None
    return None if limit == _NO_LIMIT else limit


def can_draw(env_id: str) -> bool:
    """Return whether EnvPool can draw an environment. Drawing one of MuJoCo's would crash the process."""
    # Reports a missing EnvPool as an InputError.
    _import()
    specs = importlib.import_module("envpool.registration").registry.specs
    # A specification begins with the path of the module, and the path contains the family.
    return env_id in specs and any(family in str(specs[env_id][0]) for family in _DRAWABLE_FAMILIES)


def _import() -> Any:
    return import_extra("envpool", "envpool", "env.engine", "EnvPool")


def _item(batch: Any, index: int) -> Any:
    """Return the observation of one environment in a batch: an array, or a (nested) dictionary of arrays."""
    return {key: _item(part, index) for key, part in batch.items()} if isinstance(batch, dict) else batch[index]
