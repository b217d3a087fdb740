"""Rollouts on a device: the same results as on the host, whatever is loaded, moved and refilled, and no copy unseen."""

from functools import partial

import numpy as np
import pytest
from copies import copied_bytes

from evolve import environments, networks
from evolve.config import EnvOptions
from evolve.genome import concatenate
from evolve.numerics.streams import Purpose, Stream
from evolve.rollouts import (
    EPISODE_QUANTITIES,
    EpisodeBatch,
    Moments,
    Rollout,
    RolloutInHalves,
    generation_keys,
    inference,
    join,
)

pytestmark = pytest.mark.usefixtures("any_device")
SECONDS = {"episode_seconds"}  # the quantities that may differ
NETWORKS = [
    {"name": "hebbian-dag", "hidden": [9, 4]},
    {"name": "hebbian-dag", "hidden": [4], "plasticity": 0.5},
    {"name": "hebbian-lstm", "hidden": [3], "update_limit": 1.0},
    {"name": "elman", "hidden": [5]},
    {"name": "plastic-mlp", "hidden": [4], "update_every": 2},
]


def setting(env, network, normalize=False, genomes=5, episodes=3, **limits):
    """A function that makes rollouts of one part or two halves, and a batch for them."""
    options = EnvOptions(id=env, **limits)
    engine = environments.make(options, 1)
    made = networks.make(network, engine.observation_size, engine.action_size)

    def part(slots, backend, queue=None):
        engine = environments.make(options, slots)
        return Rollout(engine, made, slots, backend, normalize=normalize, queue=queue)

    def rollout(slots, backend, halves=False):
        return RolloutInHalves(partial(part, slots, backend)) if halves else part(slots, backend)

    population = concatenate(*(made.init(Stream(1, Purpose.INIT, 0, p)) for p in range(genomes)))
    moments = Moments(7, np.stack([np.arange(made.observation_size) / 3.0, np.full(made.observation_size, 50.0)]))
    normalizer = moments.normalizer() if normalize else None
    keys = generation_keys(0, genomes)
    return rollout, EpisodeBatch.of(1, Purpose.EPISODE, population, keys, range(episodes), normalizer)


def play(rollout, *batches):
    """The results of all episodes: by (genome, episode), the bytes of each quantity."""
    found = []
    for batch in batches:
        rollout.submit(batch)
        found += [results for _ in range(3) if (results := rollout.tick()) is not None]
    while rollout.pending:
        results = rollout.tick()
        if results is not None:
            found.append(results)
    return table(join(found))


def table(results):
    ends = np.cumsum(np.minimum(results.lengths, 4096))
    hashes = np.split(results.step_hashes, ends[:-1])
    rows = {}
    per_episode = [name for name in EPISODE_QUANTITIES if name not in SECONDS]
    for i in range(len(results.genomes)):
        key = int(results.genomes[i]), int(results.episodes[i])
        rows[key] = [getattr(results, n)[i].tobytes() for n in per_episode] + [hashes[i].tobytes()]
        rows[key].append(results.traces[i].tobytes())
    return rows


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: "-".join(map(str, n.values())))
def test_a_device_gives_the_results_of_the_host(network, normalize):
    rollout, batch = setting("toys:Switches-v0", network, normalize, genomes=3)
    expected = play(rollout(1, "numpy"), batch)
    assert len(expected) == len(batch)
    for slots in (1, 5, 40):
        assert play(rollout(slots, "cupy"), batch) == expected
    assert play(rollout(4, "cupy", halves=True), batch) == expected


def test_thousands_of_slots_load_move_and_refill():
    network = {"name": "hebbian-dag", "hidden": [6], "plasticity": 0.1}
    size = {"genomes": 40, "episodes": 60}
    rollout, batch = setting("CartPole-v1", network, normalize=True, **size, engine="exact", max_episode_steps=8)
    expected = play(rollout(512, "native"), batch)
    parts = [batch.take(np.arange(n, min(n + 700, len(batch)))) for n in range(0, len(batch), 700)]
    assert play(rollout(1000, "cupy", halves=True), *parts) == expected
    assert play(rollout(2000, "cupy"), *parts) == expected


def test_halves_take_turns():
    """While a device computes for one half, the environments of the other are at work."""
    rollout, batch = setting("CartPole-v1", NETWORKS[0])
    ours = rollout(4, "cupy", halves=True)
    ours.submit(batch)
    at_work = []
    for number, half in enumerate(ours.halves):
        step = half.engine.step

        def watched(*arguments, number=number, step=step):
            at_work.append((number, [other.begun for other in ours_halves]))
            return step(*arguments)

        half.engine.step = watched
    ours_halves = ours.halves
    for _ in range(4):
        ours.tick()
    assert [number for number, _ in at_work] == [0, 1, 0, 1]
    assert all(begun[1 - number] for number, begun in at_work)


@pytest.mark.parametrize("halves", [False, True])
def test_running_episodes_can_be_cleared(halves):
    rollout, batch = setting("CartPole-v1", NETWORKS[1])
    ours = rollout(4, "cupy", halves)
    ours.submit(batch)
    ours.tick()
    ours.tick()
    ours.clear()
    assert ours.pending == 0
    assert play(ours, batch) == play(rollout(3, "native"), batch)


def test_a_tick_copies_observations_up_and_actions_down():
    rollout, batch = setting("CartPole-v1", NETWORKS[0], normalize=True)
    ours = rollout(20, "cupy")
    ours.submit(batch)
    with copied_bytes(ours.inference.device_step.arrays.queue) as copied:
        ours.begin()
        ours.finish()
    # CartPole has four observations and two outputs.
    assert copied == {"upload": len(batch) * 4 * 4, "download": len(batch) * 2 * 4}


def test_a_network_without_a_step_for_a_device_runs_on_the_host():
    rollout, batch = setting("CartPole-v1", {"name": "leaky"})
    ours = rollout(6, "cupy", halves=True)
    assert all(isinstance(half.inference, inference.HostInference) for half in ours.halves)
    assert play(ours, batch) == play(rollout(1, "numpy"), batch)
