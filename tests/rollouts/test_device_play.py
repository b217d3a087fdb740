"""Whole episodes of exact tasks on a device: the results of array operations, whatever refills slots or interrupts."""

import numpy as np
import pytest
from copies import copied_bytes
from emulation import EmulatedDevice, KernelError
from emulation.sources import with_named_barriers
from some_results import checked

from evolve import environments, networks
from evolve.config import Config, parse
from evolve.genome import concatenate
from evolve.numerics import native
from evolve.numerics.cupy_device import source_files
from evolve.numerics.streams import Purpose, Stream
from evolve.rollouts import (
    EPISODE_QUANTITIES,
    EpisodeBatch,
    RolloutInHalves,
    generation_keys,
    join,
)
from evolve.rollouts.device_play import DevicePlay, DeviceRollout
from evolve.training.rollouts import rollout_of

pytestmark = pytest.mark.usefixtures("any_device")
needs_native = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
WORLDS = [env for env, task in environments.TASKS.items() if task.has_world]
LSTM = {"name": "hebbian-lstm", "hidden": [3], "update_limit": 1.0}
ELMAN = {"name": "elman", "hidden": [3]}
MLP = {"name": "mlp", "hidden": [5]}
NETWORKS = [
    {"name": "hebbian-dag", "hidden": [5, 4]},
    {"name": "hebbian-dag", "hidden": [5], "plasticity": 0.5, "neuromodulated": True},
    LSTM,
    {"name": "dag", "hidden": [9]},
    {"name": "plastic-mlp", "hidden": [5], "update_every": 2, "max_norm": True},
]


def setting(env, network, normalize=False, genomes=12, episodes=20, steps=25, randomize=None, **submitted):
    """A function that makes rollouts, and a batch for them."""
    table = {
        "env": {"id": env, "engine": "exact", "max_episode_steps": steps, "randomize": randomize or {}},
        "network": network,
        "normalize_observations": normalize,
    }

    def rollout(slots, backend):
        return rollout_of(parse(Config, table | {"compute": {"backend": backend, "slots": slots}}))

    task = environments.exact_task(parse(Config, table).env)
    made = networks.make(network, task.observation_size, task.action_size)
    population = concatenate(*(made.init(Stream(1, Purpose.INIT, 0, p)) for p in range(genomes)))
    random = np.random.Generator(np.random.Philox(1))
    shape = (genomes, 2, task.observation_size)
    normalizers = random.uniform(0.5, 2, shape).astype(np.float32) if normalize else None
    keys = generation_keys(3, genomes)
    return rollout, EpisodeBatch.of(9, Purpose.EPISODE, population, keys, range(episodes), normalizers, **submitted)


def play(rollout, batch):
    """The results of all episodes: by (genome, episode), the bytes of each quantity; and traces, by genome."""
    rollout.submit(batch)
    parts = []
    while rollout.pending:
        results = rollout.tick()
        parts += [] if results is None else [results]
    results = checked(join(parts))
    names = [name for name in EPISODE_QUANTITIES if name != "episode_seconds"]
    hashes = np.split(results.step_hashes, np.cumsum(results.lengths)[:-1])
    rows = {}
    for i, key in enumerate(zip(results.genomes.tolist(), results.episodes.tolist(), strict=True)):
        rows[key] = [getattr(results, name)[i].tobytes() for name in names] + [hashes[i].tobytes()]
        rows[key] += [results.traces[i].tobytes()] if len(results.traces) else []
    return rows


def agree(case, slots, **how):
    rollout, batch = setting(*case, **how)
    expected = play(rollout(3, "native"), batch)
    assert len(expected) == len(batch)
    if case[0] not in WORLDS:  # arrays take too long there
        assert play(rollout(64, "numpy"), batch) == expected
    ours = rollout(slots, "cupy")
    parts = ours.halves if isinstance(ours, RolloutInHalves) else [ours]
    assert len(parts) == (1 if slots == 1 or case[0] in WORLDS else 2)
    assert all(isinstance(part, DeviceRollout) for part in parts)
    assert play(ours, batch) == expected


@pytest.mark.parametrize("case", [("CartPole-v1", LSTM, True), ("Cues-v0", ELMAN, False)], ids=str)
def test_a_device_gives_the_results_of_the_host(case):
    agree(case, 40, traces="each")
    agree(case, 1, genomes=3, episodes=3)


def test_each_slot_of_a_device_has_its_own_arguments():
    agree(("CartPole-v1", MLP, False), 40, genomes=4, randomize={"length": {"uniform": [0.2, 2.0]}})


@needs_native
def test_a_device_moves_rigid_bodies_as_the_host():
    agree(("BipedalWalker-v3", MLP, True), 40, episodes=5, steps=70)


@needs_native
@pytest.mark.parametrize("env", ["CartPole-v1", "LunarLander-v3"])
def test_a_launch_may_end_after_any_step(env, monkeypatch):
    begin = DevicePlay.begin
    monkeypatch.setattr(DevicePlay, "begin", lambda play, _: begin(play, 1))
    agree((env, ELMAN, True), 40, episodes=9, steps=12)  # so a half plays several episodes in a lane


@needs_native
def test_tiles_of_a_block_step_their_worlds_together(emulated_device):
    case, slots = ("LunarLander-v3", MLP, True), 150
    rollout, _ = setting(*case)
    assert emulated_device.multiprocessors == 2
    assert rollout(slots, "cupy").play.slots == 192  # two blocks of three tiles
    agree(case, slots, genomes=40, episodes=9, steps=25, traces="each")


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["sm_75", "sm_120"])
@pytest.mark.parametrize("env", ["BipedalWalkerHardcore-v3", "LunarLander-v3"])
def test_other_architectures_move_rigid_bodies_alike(env, architecture):
    with EmulatedDevice(architecture).in_use():
        agree((env, MLP, False), 40, episodes=5, steps=250)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: "-".join(map(str, n.values())))
@pytest.mark.parametrize("env", environments.TASKS)
def test_every_network_plays_every_task(env, network):
    if env in WORLDS and not native.available():
        pytest.skip("the native kernels were not built")
    steps = 250 if network is LSTM or env in WORLDS else 25  # a lander takes 70 steps to the ground
    agree((env, network, env != "TMaze-v0"), 30, genomes=7, episodes=10, steps=steps, traces="each")


@pytest.mark.parametrize(
    "env", ["CartPole-v1", pytest.param("BipedalWalkerHardcore-v3", marks=[pytest.mark.slow, needs_native])]
)
def test_no_thread_of_a_device_gets_in_the_way_of_another(emulated_device, env):
    emulated_device.check_races = True
    agree((env, LSTM, True), 40, episodes=5, traces="each")


@pytest.mark.slow
def test_every_barrier_is_needed():
    files, places = with_named_barriers(source_files("hebbian_lstm, cart_pole"))
    device = EmulatedDevice(files=files, check_races=True)
    needed = set()
    with device.in_use():
        rollout, batch = setting("CartPole-v1", LSTM | {"hidden": [9]}, True, genomes=40, episodes=3, traces="each")
        for device.lost_barriers in ({name} for name in places):
            try:
                play(rollout(64, "cupy"), batch)
            except KernelError:
                needed |= {places[name] for name in device.lost_barriers}
    assert needed >= {f"PLAY {number}" for number in range(1, 5)} | {"turn_over 1"}
    assert not {"PLAY 5", "turn_over 2"} & {*places.values()}


def limit_steps(ours, steps):
    for half in ours.halves:
        half.steps = steps


def test_running_episodes_go_on_or_are_dropped():
    rollout, batch = setting("CartPole-v1", LSTM, traces="each")
    ours = rollout(40, "cupy")
    ours.submit(batch)
    limit_steps(ours, 3)
    assert ours.tick() is None
    one, other = (half.play for half in ours.halves[::-1])
    assert (ours.pending, one.running, one.waiting) == (len(batch), 32, 4 * 20 - 32)
    assert (other.running, other.waiting) == (0, 4 * 20)  # its call has begun only
    ours.clear()
    assert (ours.pending, ours.tick()) == (0, None)
    other, rest = setting("CartPole-v1", LSTM, genomes=5, traces="each")
    ours.submit(rest)
    for _ in range(3):
        limit_steps(ours, 2)
        ours.tick()
    assert 0 < ours.pending == len(rest)
    assert play(ours, batch) == play(rollout(7, "native"), batch) | play(other(7, "native"), rest)


def test_the_seconds_of_the_episodes_are_the_time_of_play():
    rollout, batch = setting("CartPole-v1", LSTM)
    ours = rollout(40, "cupy")
    ours.submit(batch)
    seconds = 0.0
    while ours.pending:
        limit_steps(ours, 5)
        results = ours.tick()
        seconds += 0.0 if results is None else float(results.episode_seconds.sum(dtype=np.float64))
    assert seconds == pytest.approx(ours.environment_seconds, rel=1e-5)


def test_between_a_feed_and_its_results_nothing_is_copied_but_counts():
    rollout, batch = setting("CartPole-v1", LSTM, genomes=1)
    ours = rollout(40, "cupy")
    ours.submit(batch)
    limit_steps(ours, 1)
    ours.tick()
    limit_steps(ours, 1)
    with copied_bytes(ours.halves[0].play.arrays.queue) as copied:
        assert ours.tick() is None
    assert copied == {"upload": 0, "download": 3 * 8}


def test_the_host_prepares_episodes_while_the_device_plays():
    rollout, batch = setting("CartPole-v1", MLP, genomes=40)
    ours = rollout(40, "cupy")
    at_work = []
    for half in ours.halves:
        other = next(other for other in ours.halves if other is not half)

        def feed(episodes, feed=half.play.feed, other=other):
            at_work.append(other.begun)
            feed(episodes)

        half.play.feed = feed
    play(ours, batch)
    # Nothing plays yet at the first two feeds, and at the last ones the other half may have no episodes left.
    assert not any(at_work[:2])
    assert len(at_work) > 6
    assert all(at_work[2:-2])


@needs_native
def test_blocks_of_a_small_feed_have_fewer_tiles(emulated_device):
    """So that they occupy as many multiprocessors."""
    rollout, batch = setting("LunarLander-v3", MLP, genomes=16, episodes=12)
    ours = rollout(384, "cupy")
    launched, launch = [], ours.play.arrays.queue.launch

    def noted(kernel, blocks, *more, **tiles):
        launched.extend([(blocks, *tiles.values())] if tiles else [])
        launch(kernel, blocks, *more, **tiles)

    ours.play.arrays.queue.launch = noted
    few = batch.of(9, Purpose.EPISODE, batch.genomes, generation_keys(3, 16), range(3))
    assert play(ours, few) == play(rollout(7, "native"), few)
    assert {*launched} == {(2, 1)}  # 48 episodes, on two multiprocessors
    launched.clear()
    assert play(ours, batch) == play(rollout(7, "native"), batch)
    assert {*launched} == {(2, 3)}  # 192 episodes


def test_a_network_without_a_step_for_a_device_runs_on_the_host():
    rollout, batch = setting("CartPole-v1", {"name": "leaky"}, genomes=3, episodes=3)
    ours = rollout(6, "cupy")
    assert isinstance(ours, RolloutInHalves)
    assert play(ours, batch) == play(rollout(1, "numpy"), batch)
