"""Environments of the tests, named `toys:Switches-v0` and so on; importing this module registers them."""

import ctypes
import os
import random
import signal
import sys
import time
from contextlib import suppress

import gymnasium
import numpy as np
from arithmetic import flush_denormals, round_up
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

from evolve.numerics import restore_ieee


class Switches(gymnasium.Env):
    """Dict observation, MultiDiscrete action: set three switches as the lamps say."""

    def __init__(self, length: int = 12, start: int = 0):
        self.observation_space = spaces.Dict(
            {
                "lamps": spaces.MultiBinary(3),
                "mode": spaces.Discrete(3, start=5),
                "camera": spaces.Box(0, 255, (2, 2), np.uint8),
                "pair": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 3]))),
            }
        )
        self.action_space = spaces.MultiDiscrete([2, 3, 2], start=[0, start, 0])
        self.length = length

    def _observe(self):
        draw = self.np_random
        self.lamps = draw.integers(0, 2, 3).astype(np.int8)
        return {
            "lamps": self.lamps,
            "mode": np.int64(5 + draw.integers(3)),
            "camera": draw.integers(0, 256, (2, 2)).astype(np.uint8),
            "pair": (draw.uniform(-1, 1, 2).astype(np.float32), draw.integers([2, 3])),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(np.sum(action == self.lamps)) + 0.1 * self.np_random.random()
        self.steps += 1
        return self._observe(), reward, bool(self.steps > 4 and self.lamps.all()), self.steps >= self.length, {}


class Chords(Switches):
    """The switches with a Dict of actions, one of them a Tuple."""

    def __init__(self, length: int = 12):
        super().__init__(length)
        self.keys = self.action_space
        pedals = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)))
        self.action_space = spaces.Dict(pedals=pedals, keys=self.keys)

    def step(self, action):
        pedal, force = action["pedals"]
        assert pedal in (0, 1), pedal
        assert force.shape == (1,), force
        whole, self.action_space = self.action_space, self.keys
        observation, reward, *rest = super().step(action["keys"])
        self.action_space = whole
        return observation, reward + 0.1 * pedal * float(force[0]), *rest


class Memory(gymnasium.Env):
    """Remembers, against the rules, its number of episodes, so that each episode needs a new object."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Box(np.array([0, -np.inf], np.float32), np.array([4, np.inf], np.float32))
    episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episodes += 1
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        observation = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return observation, self.episodes + float(action[0]), self.steps > 3 + observation[0] * 3, self.steps >= 9, {}


class Broken(gymnasium.Env):
    """Raises in the middle of an episode."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.MultiBinary(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 5:
            raise RuntimeError("the motor burnt out")
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Slow(gymnasium.Env):
    """Ten steps of `seconds` each.

    mark: a file that the first step makes. brake: if a file is named, steps take time only while it exists: a test can
    interrupt the run at any time, remove the file, and let the run end at once. closing: the seconds that `close`
    takes, which then makes the mark in place of the steps.
    """

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float = 0.01, mark: str = "", brake: str = "", closing: float = 0.0):
        self.seconds, self.mark, self.brake, self.closing = seconds, mark, brake, closing

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def close(self):
        if self.closing:
            open(self.mark, "w").close()
            time.sleep(self.closing)

    def step(self, action):
        if self.mark and not self.closing:
            open(self.mark, "w").close()
        if not self.brake or os.path.exists(self.brake):
            end = time.monotonic() + self.seconds
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(left, 1))  # a signal just before a sleep is handled after it
        self.steps += 1
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), float(action), False, self.steps >= 10, {}


class NotANumber(gymnasium.Env):
    """About every fourth episode returns NaN."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bad = self.np_random.random() < 0.25
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.ones(2, np.float32), float("nan") if self.bad else float(action), True, False, {}


class Endless(Broken):
    """Has no last step."""

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


class Exits(Broken):
    """Calls sys.exit in the middle of an episode."""

    def step(self, action):
        if self.steps == 4:
            raise SystemExit("the environment wants to leave")
        return super().step(action)


class Surrogate(Broken):
    """Raises an error whose message cannot be encoded."""

    def step(self, action):
        raise OSError("no such file: \udcff")


def remembering_cart():
    """A cart whose registration hides a wrapper that remembers earlier episodes."""
    from gymnasium.envs.classic_control import CartPoleEnv

    return gymnasium.wrappers.NormalizeObservation(CartPoleEnv())


gymnasium.register(id="RememberingCart-v0", entry_point=remembering_cart, max_episode_steps=100)


class Elsewhere(gymnasium.Wrapper):
    """A CartPole that another machine may play differently: from the sixth step on TOY_GRAVITY is the gravity."""

    def __init__(self):
        from gymnasium.envs.classic_control import CartPoleEnv

        super().__init__(CartPoleEnv())
        self._steps = 0

    def reset(self, *, seed=None, options=None):
        self._steps, self.unwrapped.gravity = 0, 9.8
        return super().reset(seed=seed)

    def step(self, action):
        if self._steps == 5:
            self.unwrapped.gravity = float(os.environ.get("TOY_GRAVITY", "9.8"))
        self._steps += 1
        return super().step(action)


def _hang_in_c():
    """Lock a mutex twice while holding the interpreter's lock: no signal ends that."""
    import ctypes

    mutex, libc = ctypes.create_string_buffer(64), ctypes.PyDLL(None)
    libc.pthread_mutex_lock(mutex)
    libc.pthread_mutex_lock(mutex)


def _crash():
    import ctypes

    ctypes.string_at(0)


class PanicError(BaseException):
    """As code in Rust raises it, and asyncio if it is cancelled: no Exception."""


class Faulty(gymnasium.Env):
    """A keyed share of the episodes fails in step 3, or in reset, in one of many ways."""

    observation_space = spaces.Box(-1, 1, (3,))
    action_space = spaces.Discrete(2)

    def __init__(self, how: str = "raise", share: float = 0.1, where: str = "step"):
        self.how, self.share, self.where = how, share, where

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.bad = 0, bool(self.np_random.random() < self.share)
        observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        if self.bad and self.where == "reset":
            self._fail(observation)
        return observation, {}

    def _fail(self, observation):
        ways = self.how.split(" or ")
        match ways[int(observation[0] > 0) % len(ways)]:
            case "raise" | "panic" as way:
                raise (RuntimeError if way == "raise" else PanicError)("the motor burnt out")
            case "exit":
                raise SystemExit("the environment wants to leave")
            case "observation":
                observation[1] = np.inf
            case "alarm":  # as if it hung, and both alarms of a watchdog rang
                for _ in range(2):
                    signal.raise_signal(signal.SIGALRM)
            case "hang" | "swallow" as way:
                caught = Exception if way == "swallow" else ()
                while True:
                    with suppress(caught):
                        time.sleep(0.01)
            case "hang in C" | "crash" as way:
                (_hang_in_c if way == "hang in C" else _crash)()
            case "shape":
                return np.zeros(7, np.float32)
            case "endless":
                self.endless = True
        return observation

    endless = False

    def step(self, action):
        self.steps += 1
        observation, reward = self.np_random.uniform(-1, 1, 3).astype(np.float32), float(action)
        if self.bad and self.steps == 3 and self.where == "step":
            reward = {"reward nan": float("nan"), "reward inf": float("-inf")}.get(self.how, reward)
            observation = self._fail(observation)
        if self.endless:
            time.sleep(0.01)
        return observation, reward, self.steps >= 6 and not self.endless, False, {}


class Leaves(Faulty):
    """Calls sys.exit when it is made."""

    def __init__(self):
        raise SystemExit("no licence")


class Unrepeatable(gymnasium.Env):
    """Depends on a hidden stream in one place, `where`."""

    observation_space = spaces.Dict({"eye": spaces.Box(-1, 1, (2, 2)), "ear": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Discrete(2)
    objects = 0

    def __init__(self, where: str = "ear"):
        self.where = where
        Unrepeatable.objects += 1
        self.mark = Unrepeatable.objects * 1e-3

    def _observe(self):
        seen = {"eye": self.np_random.uniform(-1, 1, (2, 2)), "ear": self.np_random.uniform(-1, 1, 2)}
        seen = {name: part.astype(np.float32) for name, part in seen.items()}
        if self.where == "ear" or (self.where == "step" and self.steps == 4):
            seen["ear"][1] = self.mark
        return seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action):
        self.steps += 1
        return self._observe(), self.mark if self.where == "reward" else 1.0, self.steps >= 9, False, {}


class Unregistered(Slow):
    """Has no name in Gymnasium's registry."""


def coin(random):
    """A task that no module registers."""
    yield [random.uniform()]
    return 1.0


class OldInterface(Broken):
    """Has the interface of Gym before 0.26 from some step on: step returns four values; from -1 on, reset one."""

    def __init__(self, since: int = 1):
        self.since = since

    def reset(self, *, seed=None, options=None):
        begun = super().reset(seed=seed)
        return begun[0] if self.since < 0 else begun

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps >= self.since:
            return observation, reward, terminated or truncated, info
        return observation, reward, terminated, truncated, info


class Seedless(Memory):
    """Its reset takes no seed."""

    def reset(self):
        return super().reset(seed=0)


class Misspelt(Memory):
    """Its reset passes on a keyword that the other reset does not take."""

    def reset(self, *, seed=None, options=None):
        return super().reset(sed=seed)


class Wordy(Memory):
    """Its step returns a text at one place: 1 is the reward, 2 and 3 are the ends."""

    def __init__(self, place):
        self.place = place

    def step(self, action):
        said = list(super().step(action))
        said[self.place] = str(said[self.place])
        return tuple(said)


class Spaceless(gymnasium.Env):
    """It has no spaces."""


class Abstract(gymnasium.Env):
    """Its subclasses should define the spaces."""

    @property
    def observation_space(self):
        raise NotImplementedError


class Rated(Memory):
    """Its rate of frames is no number."""

    metadata = Memory.metadata | {"render_fps": "as you like"}


def unrated():
    """Return an environment that declares nothing."""
    env = Rated()
    env.metadata = None
    return env


class Texts(Memory):
    """It shows words."""

    observation_space = gymnasium.spaces.Text(5)
    closed = 0

    def close(self):
        Texts.closed += 1


class Sized(Memory):
    """Its constructor needs an argument."""

    def __init__(self, size):
        self.size = size


class Parallel:
    """An environment of several agents, as PettingZoo has them."""

    possible_agents = ("a", "b")


class Values(gymnasium.Env):
    """One step, which is rewarded with the argument."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)

    made = closed = 0

    def __init__(self, x: float = 0.5):
        Values.made += 1
        self.x = x

    def close(self):
        Values.closed += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), self.x, True, False, {}


class Jams(Values):
    """Hangs in `close` if it has played no episode."""

    begun = False

    def reset(self, *, seed=None, options=None):
        self.begun = True
        return super().reset(seed=seed, options=options)

    def close(self):
        while not self.begun:
            time.sleep(0.01)


class Prints(Values):
    """Prints in each reset, without an end of the line and also by C, and its constructor needs an argument."""

    def __init__(self, x: float):
        super().__init__(x)

    def reset(self, *, seed=None, options=None):
        print("reset", end="")
        ctypes.CDLL(None).puts(b"reset by C")
        return super().reset(seed=seed, options=options)


class Warns(Values):
    """Calls the handler of MuJoCo's warnings, as the compiler of models does, when it is made."""

    def __init__(self, x: float):
        super().__init__(x)
        sys.modules["mujoco"].handler(f"attribute {x}")


class Shared(Values):
    """Seeds NumPy's global generator, or Python's, in `reset`; draws from it there, and in some of the steps, too.

    Two episodes of one seed are equal, unless other episodes are played in the same process meanwhile.
    """

    def __init__(self, python: bool = False, steps: bool = True):
        super().__init__(0.0)
        self.shared, self.steps = random if python else np.random, steps

    def reset(self, *, seed=None, options=None):
        self.shared.seed(seed)
        self.rare = self.shared.random() < 0.3
        return super().reset(seed=seed, options=options)

    def step(self, action):
        reward = self.shared.random() if self.steps and self.rare else 0.0
        return np.zeros(1, np.float32), reward, True, False, {}


class SeededOnce(Values):
    """Takes its seed as an argument, and ignores the seed of `reset`."""

    def __init__(self, seed: int | None = None):
        super().__init__(float(np.random.default_rng(seed).random()))


class Wanders(Switches):
    """The switches; each object changes the current directory to its parent."""

    def __init__(self, length: int = 3):
        super().__init__(length)
        os.chdir(os.pardir)


class FastMath(CartPoleEnv):
    """CartPole, with a constructor that flushes denormal numbers as if it loaded a library linked with -ffast-math."""

    def __init__(self):
        super().__init__()
        flush_denormals()


gymnasium.register(id="FastMath-v0", entry_point=FastMath, max_episode_steps=500)


class RoundsUp(CartPoleEnv):
    """CartPole, which lets the processor round up as if it called a library for intervals."""

    def __init__(self):
        super().__init__()
        round_up()

    def reset(self, **how):
        restore_ieee()
        found = super().reset(**how)
        round_up()
        return found

    def step(self, action):
        restore_ieee()
        found = super().step(action)
        round_up()
        return found


gymnasium.register(id="RoundsUp-v0", entry_point=RoundsUp, max_episode_steps=500)

_FAILING = (Elsewhere, Faulty, Leaves, Unrepeatable, Exits, Surrogate, Broken, NotANumber, OldInterface)
for _class in (*_FAILING, Switches, Wanders, Chords, Memory, Slow, Values, Prints):
    gymnasium.register(id=f"{_class.__name__}-v0", entry_point=_class)


class Consumes(PendulumEnv):
    """Takes its arguments out of tables and lists."""

    def __init__(self, config, more):
        super().__init__(g=config.pop("g"))
        self.m = more["m"].pop()


class Notes(gymnasium.Wrapper):
    """Writes into a list, its argument, which must be empty."""

    def __init__(self, env, seen):
        assert not seen, seen
        seen.append(env)
        super().__init__(env)


class Shares(gymnasium.Env):
    """All objects share, against the rules, their position, and return it as the observation."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,))
    action_space = spaces.Box(-1, 1, (1,))
    position = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position[:] = 0
        return self.position, {}

    def step(self, action):
        self.position[:] += 1
        return self.position, 0.0, False, False, {}


class SharedGoal(Values):
    """Keeps its goal, against the rules, in the class: the last reset of any object sets the goal of all."""

    goal = 0.0

    def __init__(self):
        super().__init__(0.0)

    def reset(self, *, seed=None, options=None):
        result = super().reset(seed=seed, options=options)
        SharedGoal.goal = float(self.np_random.uniform())
        return result

    def step(self, action):
        return np.zeros(1, np.float32), SharedGoal.goal, True, False, {}


class Hoards(Values):
    """Keeps, against the rules, a coin from each of its episodes. The tenth and last step of an episode adds it."""

    coins = 0

    def __init__(self):
        super().__init__(0.0)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.steps += 1
        reward, ends = self.coins, self.steps == 10
        self.coins += ends
        return np.zeros(1, np.float32), reward, ends, False, {}


class Measured(gymnasium.Env):
    """Reports numbers in the info of its steps: of all types, some of them only at the end, and on request wrongly.

    `wrong`: None, or the value that `distance` has at the end of an episode of at least `late` steps; "missing" leaves
    it out.
    """

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, wrong=None, late=0):
        self.wrong, self.late = wrong, late

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps, self.clock = float(self.np_random.uniform(-0.5, 0.5)), 0, time.perf_counter()
        return np.array([self.place, 1], np.float32), {}

    def step(self, action):
        self.steps += 1
        self.place += 0.1 * float(action[0])
        ended = self.steps >= 4 + int(4 * abs(self.place))
        info = {"steps": self.steps, "seconds": time.perf_counter() - self.clock}
        if ended:
            info |= {"reached": np.bool_(self.place > 0), "distance": np.float32(abs(self.place))}
            info["sometimes"] = 0 if self.place > 0 else -0.5
            if self.wrong is not None and self.steps >= self.late:
                info["distance"] = self.wrong
            if self.wrong == "missing" and self.steps >= self.late:
                del info["distance"]
        return np.array([self.place, 1], np.float32), -abs(self.place), ended, False, info


gymnasium.register(id="Measured-v0", entry_point=Measured)
