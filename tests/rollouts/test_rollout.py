"""A rollout's results do not depend on how many slots there are, or on when episodes come."""

import time
from contextlib import contextmanager

import numpy as np
import pytest

from evolve import environments, networks
from evolve.config import EnvOptions
from evolve.errors import InputError
from evolve.genome import SelectedGenomes, concatenate
from evolve.numerics import backend
from evolve.numerics.streams import Purpose, Stream
from evolve.rollouts import EpisodeBatch, Rollout, RolloutInHalves, generation_keys, queue
from evolve.rollouts.inference import HostInference

P, E = 5, 3


def setting(env, **settings):
    """A function that makes rollouts, and a batch of 15 episodes for them."""
    options = EnvOptions(id=env)
    table = {"name": "hebbian-dag", "hidden": [4]} | settings

    def rollout(slots, **more):
        engine = environments.make(options, slots)
        network = networks.make(table, engine.observation_size, engine.action_size)
        return Rollout(engine, network, slots, backend("auto"), **more)

    engine = environments.make(options, 1)
    network = networks.make(table, engine.observation_size, engine.action_size)
    genomes = concatenate(*(network.init(Stream(1, Purpose.INIT, 0, p)) for p in range(P)))
    return rollout, EpisodeBatch.of(1, Purpose.EPISODE, genomes, generation_keys(0, P), range(E))


def tick(rollout):
    """The results of one step as rows: genome, episode, return, length, fingerprints, traces."""
    results = rollout.tick()
    if results is None:
        return []
    columns = (results.genomes, results.episodes, results.returns, results.lengths)
    assert results.traced.tolist() == results.genomes.tolist()
    return list(zip(*(c.tolist() for c in columns), map(bytes, results.fingerprints), map(bytes, results.traces),
                    strict=True))  # fmt: skip


def finish(rollout):
    rows = []
    while rollout.pending:
        rows += tick(rollout)
    return rows


def table(rows):
    return {row[:2]: row[2:] for row in rows}


def cut(batch, begin, end):
    return batch.take(np.arange(begin, end))


REMEMBERING = [  # networks that have a state besides their weights
    {"name": "hebbian-dag", "plasticity": 0.5},
    {"name": "elman", "init_scale": 3.0},
    {"name": "hebbian-lstm", "update_limit": 1.0},
    {"name": "plastic-mlp", "init_scale": 1.0, "update_every": 2},
]


@pytest.mark.parametrize("env", ["CartPole-v1", "toys:Memory-v0", "toys:Switches-v0"])
@pytest.mark.parametrize("slots", [1, 2, 7, 15, 64])
def test_slots_do_not_matter(env, slots):
    rollout, batch = setting(env)
    expected = rollout(1)
    expected.submit(batch)
    ours = rollout(slots)
    ours.submit(batch)
    assert table(finish(ours)) == table(finish(expected))


@pytest.mark.parametrize("network", REMEMBERING, ids=lambda n: n["name"])
@pytest.mark.parametrize("slots", [2, 7, 15])
def test_slots_do_not_matter_to_networks_that_remember(network, slots):
    rollout, batch = setting("toys:Switches-v0", **network)
    expected = rollout(1)
    expected.submit(batch)
    ours = rollout(slots)
    ours.submit(batch)
    assert table(finish(ours)) == table(finish(expected))


@pytest.mark.parametrize("slots", [1, 4])
def test_no_episode_takes_more_steps_than_it_may(slots):
    rollout, batch = setting("CartPole-v1")
    limited = rollout(slots, max_steps=7)
    limited.submit(batch)
    assert {row[2:4] for row in finish(limited)} == {(7.0, 7)}


def test_arrival_does_not_matter():
    rollout, batch = setting("CartPole-v1")
    expected = rollout(4)
    expected.submit(batch)
    late, rows = rollout(4), []
    for n in reversed(range(15)):
        late.submit(cut(batch, n, n + 1))
        rows += tick(late)
    assert table(rows + finish(late)) == table(finish(expected))


@pytest.mark.parametrize("network", REMEMBERING, ids=lambda n: n["name"])
def test_nothing_leaks_from_one_candidate_to_the_next(network):
    # In the 2020 script traces did: with plasticity, the second episode of a slot would differ.
    rollout, batch = setting("toys:Switches-v0", **network)
    together = rollout(1)
    together.submit(batch)
    by_one = []
    for n in range(15):
        alone = rollout(1)
        alone.submit(cut(batch, n, n + 1))
        by_one += finish(alone)
    assert table(finish(together)) == table(by_one)


def test_every_episode_comes_back_once():
    rollout, batch = setting("CartPole-v1")
    ours = rollout(4)
    ours.submit(batch)
    assert ours.pending == len(batch)
    assert sorted(row[:2] for row in finish(ours)) == [(p, e) for p in range(P) for e in range(E)]
    assert ours.pending == 0


def test_clear_forgets():
    rollout, batch = setting("CartPole-v1")
    ours = rollout(4)
    ours.submit(batch)
    ours.tick()
    ours.clear()
    assert ours.pending == 0
    ours.submit(cut(batch, 0, 2))
    assert len(finish(ours)) == 2


def test_return_is_the_sum_of_rewards():
    rollout, batch = setting("CartPole-v1")
    ours = rollout(3)
    ours.submit(batch)
    rows = finish(ours)
    assert len(rows) == 15
    assert all(row[2] == row[3] for row in rows)  # CartPole pays 1 a step


def test_the_time_of_environments_is_shared_by_their_episodes():
    rollout, batch = setting("toys:Slow-v0")
    ours = rollout(4)
    ours.submit(batch)
    seconds = 0.0
    while ours.pending:
        results = ours.tick()
        if results is not None:
            assert (results.episode_seconds > 0.1).all()  # ten steps of 10 ms, at least
            seconds += float(results.episode_seconds.sum(dtype=np.float64))
    assert seconds == pytest.approx(ours.environment_seconds, rel=0.05)


def test_cleared_episodes_leave_no_faults():
    rollout, batch = setting("toys:Faulty-v0")
    ours = rollout(2)
    ours.engine.faults[0] = "from before"
    ours.clear()
    ours.submit(cut(batch, 0, 2))
    assert not np.isnan([row[2] for row in finish(ours)]).any()
    assert ours.take_failures() == []


@pytest.mark.parametrize("where", ["step", "reset"])
def test_the_callback_is_called_between_two_faults_of_one_tick(where):
    """Several episodes may hang one after another: a worker has to send heartbeats between them."""
    options = EnvOptions(id="toys:Faulty-v0", kwargs={"share": 1.0, "where": where})
    engine = environments.make(options, 4)
    network = networks.make({"name": "hebbian-dag", "hidden": [2]}, engine.observation_size, engine.action_size)
    genomes = concatenate(*(network.init(Stream(1, Purpose.INIT, 0, p)) for p in range(4)))
    rollout = Rollout(engine, network, 4, backend("auto"))
    known = []
    rollout.call_on_fault(lambda: known.append(len(engine.faults)))
    rollout.submit(EpisodeBatch.of(1, Purpose.EPISODE, genomes, generation_keys(0, 4), range(1)))
    assert len(finish(rollout)) == 4
    assert known[:4] == [1, 2, 3, 4]
    failures = rollout.take_failures()
    assert [(f.genome, f.episode, f.step) for f in failures] == [(p, 0, 3 if where == "step" else 0) for p in range(4)]
    assert all("the motor burnt out" in failure.message for failure in failures)


@pytest.mark.parametrize("slots", [1, 4])
def test_a_network_is_blamed_for_its_invalid_outputs(slots):
    rollout, episodes = setting("Pendulum-v1")
    rollout = rollout(slots)
    episodes.genomes.weights[1] = np.nan
    rollout.submit(episodes)
    finish(rollout)
    failures = rollout.take_failures()
    assert sorted((f.genome, f.episode, f.step) for f in failures) == [(1, episode, 1) for episode in range(E)]
    expected = "outputs of the network: expected finite numbers, got nan at position 0 of 1; then "
    assert all(failure.message.startswith(expected) for failure in failures)


def test_a_fault_in_either_half_calls_the_callback():
    options = EnvOptions(id="toys:Faulty-v0", kwargs={"share": 1.0, "where": "step"})
    engines = [environments.make(options, 2) for _ in range(2)]
    network = networks.make({"name": "mlp"}, engines[0].observation_size, engines[0].action_size)
    genomes = concatenate(*(network.init(Stream(1, Purpose.INIT, 0, p)) for p in range(4)))
    halves = iter(engines)
    rollout = RolloutInHalves(lambda queue: Rollout(next(halves), network, 2, backend("auto"), queue=queue))
    faults = []
    rollout.call_on_fault(lambda: faults.append([len(engine.faults) for engine in engines]))
    rollout.submit(EpisodeBatch.of(1, Purpose.EPISODE, genomes, generation_keys(0, 4), range(1)))
    assert len(finish(rollout)) == 4
    assert sorted(faults) == [[0, 1], [0, 2], [1, 0], [2, 0]]
    rollout.close()


class SlowlyMade:
    """A source of genomes, each of which takes 100 seconds of a clock that stands still otherwise."""

    def __init__(self, genomes, monkeypatch):
        self._genomes = genomes
        self.seconds = 0.0
        self.unwatched = True
        self.num_weights = genomes.num_weights
        monkeypatch.setattr(time, "perf_counter", lambda: self.seconds)
        monkeypatch.setattr(queue, "WINDOW_BYTES", 0)  # one at a time

    def __len__(self):
        return len(self._genomes)

    def take(self, candidates):
        assert not self.unwatched
        self.seconds += 100 * len(candidates)
        return self._genomes.take(candidates)

    @contextmanager
    def making(self):
        assert self.unwatched
        self.unwatched = False
        yield
        self.unwatched = True


def test_the_making_of_genomes_is_no_episodes_time(monkeypatch):
    rollout, batch = setting("CartPole-v1")
    source = SlowlyMade(batch.genomes, monkeypatch)
    ours = rollout(2)
    ours.queue.generating = source.making
    everyone = SelectedGenomes(source, np.arange(P))
    ours.submit(EpisodeBatch.of(1, Purpose.EPISODE, everyone, generation_keys(0, P), range(E)))
    assert len(finish(ours)) == P * E
    assert source.seconds == 100 * P
    assert ours.detector.clock == 0


class Careless:
    """A batch that changes its arguments, and keeps them."""

    def __init__(self):
        self.kept = []

    def load(self, slots, weights, mask, seeds):
        weights *= 2

    def step(self, observations):
        self.kept.append(observations)
        observations *= 2
        return observations[:, :1]


def test_a_network_changes_nothing_outside_itself():
    """Its observations are its own, and later episodes load the same genomes."""
    careless, seen = Careless(), np.ones((2, 3), np.float32)
    inference = HostInference(careless, seen, 1, "numpy", normalize=False, network="careless")
    for _ in range(2):
        inference.begin(2)
    assert (seen == 1).all()
    assert not np.shares_memory(*careless.kept)
    genomes = np.ones((2, 5), np.float32), np.ones((2, 5), np.bool_)
    with pytest.raises(InputError, match=r"got careless, whose load fails \(ValueError: .*read-only"):
        inference.load(np.arange(2), *genomes, np.zeros(2, np.int64), np.zeros((2, 2, 0), np.float32))
    assert (genomes[0] == 1).all()
