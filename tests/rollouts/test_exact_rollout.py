"""Whole episodes by the native call have the bits of episodes that are stepped by array operations."""

from types import SimpleNamespace

import numpy as np
import pytest
from episode_tables import E, P, batch_of, finish, table_of
from hypothesis import given
from hypothesis import strategies as st
from some_results import checked

from evolve import environments, networks, strategies
from evolve.config import Config, EnvOptions, parse
from evolve.genome import FactoredGenomes, Genomes
from evolve.numerics import native, ordered_sum
from evolve.numerics.streams import Purpose
from evolve.rollouts import (
    EpisodeBatch,
    ExactRollout,
    PopulationResults,
    Rollout,
    exact_rollout,
    generation_keys,
    native_play,
)
from evolve.training.rollouts import rollout_of

pytestmark = pytest.mark.skipif(not native.available(), reason="the native kernels were not built")
NETWORKS = [
    {"name": "hebbian-dag", "hidden": [5]},
    {"name": "hebbian-dag", "hidden": [5], "plasticity": 1.0, "neuromodulated": True},
    {"name": "hebbian-lstm", "hidden": [4]},
    {"name": "plastic-mlp", "hidden": [4], "update_every": 2},
    {"name": "elman", "hidden": [4]},
    {"name": "binary-mask-mlp", "hidden": [4]},
]


def rollouts(env, network, normalize, slots=7):
    """Return both kinds of rollout, and the network."""
    made = []
    for backend in ("native", "numpy"):
        table = {
            "env": {"id": env, "engine": "exact", "max_episode_steps": 40},
            "network": network,
            "normalize_observations": normalize,
            "compute": {"backend": backend, "slots": slots, "threads": 1},
        }
        made.append(rollout_of(parse(Config, table)))
    engine = environments.make(EnvOptions(id=env, engine="exact"), 1)
    return *made, networks.make(network, engine.observation_size, engine.action_size)


@pytest.mark.parametrize(
    ("env", "network", "normalize", "traces"),
    [
        *(("CartPole-v1", network, True, "each") for network in NETWORKS),
        *(("CartPole-v1", network, False, "mean") for network in NETWORKS),
        ("Acrobot-v1", NETWORKS[0], True, "mean"),
        ("Cues-v0", NETWORKS[1], False, "each"),
        ("Bandit-v0", NETWORKS[4], False, "each"),
    ],
    ids=str,
)
def test_both_rollouts_have_the_same_bits(env, network, normalize, traces):
    ours, theirs, description = rollouts(env, network, normalize)
    assert isinstance(ours, ExactRollout)
    assert isinstance(theirs, Rollout)
    found = []
    for rollout in (ours, theirs):
        rollout.submit(batch_of(description, normalize, traces=traces))
        found.append(table_of(finish(rollout)))
    assert found[0] == found[1]


def test_episodes_that_come_later_join_those_that_run():
    ours, theirs, network = rollouts("CartPole-v1", NETWORKS[1], False, slots=100)
    batch = batch_of(network, False)
    theirs.submit(batch)
    expected = table_of(finish(theirs))
    ours.steps = 3
    parts = []
    for n in range(0, len(batch), 9):
        ours.submit(batch.take(np.arange(n, min(n + 9, len(batch)))))
        results = ours.tick()
        ours.steps = 3
        parts += [] if results is None else [results]
    assert ours.pending > 0
    found = table_of(finish(ours, parts))
    assert {name: found[name] for name in ("returns", "fingerprints", "step_hashes", "traces")} == {
        name: expected[name] for name in ("returns", "fingerprints", "step_hashes", "traces")
    }


@pytest.mark.parametrize(
    ("env", "network"),
    [*(("LunarLander-v3", network) for network in NETWORKS), ("BipedalWalker-v3", NETWORKS[1])],
    ids=str,
)
def test_running_episodes_go_on_in_another_rollout(env, network):
    (one, _, described), (other, *_), (alone, *_) = (rollouts(env, network, True, slots=64) for _ in range(3))
    # The slots of the other rollout were in use.
    other.submit(batch_of(described, True, traces="each"))
    finish(other)
    batch = batch_of(described, True, traces="each")
    for rollout in (one, alone):
        rollout.submit(batch)
    one.fill()
    one.steps = 5
    one.play_on()
    assert one.can_give
    assert other.can_give
    running = one.play.running
    one.give(other)
    assert (one.play.running, other.play.running) == (running - running // 2, running // 2)
    assert table_of(finish(other, finish(one))) == table_of(finish(alone))


@pytest.mark.parametrize("env", ["CartPole-v1", "LunarLander-v3"])
def test_the_seconds_of_the_episodes_are_the_time_of_play(env, monkeypatch):
    """Also if results are taken in several portions, while other episodes go on, here or in another rollout."""
    for name, value in {"CALL_SECONDS": 1e-6, "LEAST_STEPS": 1}.items():
        monkeypatch.setattr(exact_rollout, name, value)
    (one, _, network), (other, *_) = (rollouts(env, NETWORKS[0], False, slots=64) for _ in range(2))
    for rollout in (one, other):
        rollout.environment_seconds = 0.0
    one.submit(batch_of(network, False))
    one.steps = 5
    one.tick()
    if one.can_give:
        one.give(other)
    portions = finish(other, finish(one))
    assert len(portions) > 1
    seconds = sum(float(results.episode_seconds.sum(dtype=np.float64)) for results in portions)
    assert seconds == pytest.approx(one.environment_seconds + other.environment_seconds, rel=1e-5)


def test_cleared_episodes_leave_no_results():
    ours, theirs, network = rollouts("Acrobot-v1", NETWORKS[0], True)
    ours.submit(batch_of(network, True))
    ours.steps = 5
    ours.tick()
    assert ours.pending == P * E
    ours.clear()
    assert (ours.pending, ours.tick()) == (0, None)
    for rollout in (ours, theirs):
        rollout.submit(batch_of(network, True, rows=np.array([4, 2])))
    assert table_of(finish(ours)) == table_of(finish(theirs))


@pytest.mark.parametrize(("env", "hidden"), [("CartPole-v1", [7, 5]), ("Pendulum-v1", [9])])
@pytest.mark.parametrize("name", ["mlp", "dag", "elman"])
def test_networks_of_low_rank_have_the_bits_of_their_weights(env, name, hidden):
    """Genomes with factors of two centres, and genomes with weights between them, share a queue."""
    table = {"name": name, "hidden": hidden[:1] if name == "elman" else hidden, "init_sparsity": 0.0}
    ours, theirs, network = rollouts(env, table, False, slots=40)
    es = strategies.from_table({"name": "openai-es", "sigma": 0.1, "perturbation_rank": 1}, network, P, 3)
    state, kinds, batches = es.start(), [], []
    for generation in range(3):
        genomes = es.ask(state, generation)
        state = es.tell(state, genomes, strategies.Results(np.arange(float(P))))
        genomes = genomes if generation != 1 else Genomes(genomes.weights, genomes.mask)
        kinds.append(type(genomes))
        episodes = range(2 * generation, 2 * generation + 2)
        batches.append(EpisodeBatch.of(9, Purpose.EPISODE, genomes, generation_keys(generation, P), episodes))
    assert kinds == [FactoredGenomes, Genomes, FactoredGenomes]
    for rollout in (ours, theirs):
        for batch in batches:
            rollout.submit(batch)
    ours.steps = 5
    ours.tick()
    ours.clear()
    for batch in batches:
        ours.submit(batch)
    assert table_of(finish(ours)) == table_of(finish(theirs))


def test_kernels_read_factors_of_rank_one():
    _, _, network = rollouts("CartPole-v1", {"name": "mlp", "hidden": [9, 9]}, False)
    for rank in (1, 2):
        es = strategies.from_table({"name": "openai-es", "perturbation_rank": rank}, network, P, 3)
        genomes, seeds = es.ask(es.start(), 0), np.arange(P)
        assert isinstance(genomes, FactoredGenomes)
        plain = Genomes(genomes.weights, genomes.mask)
        batch = network.batch(P, "native")
        assert batch.fits(plain)
        # With more ranks it would take longer than reading weights.
        assert batch.columns_of(genomes, seeds)[0] is (genomes.factors.values if rank == 1 else genomes.weights)
        assert (batch.fits(genomes), batch.fits(plain)) == (True, rank == 2)
        # Columns of factors have fewer rows, so other batches cannot continue their episodes.
        assert batch.can_give == (rank == 2)
        assert network.batch(P, "numpy").columns_of(genomes, seeds)[0] is genomes.weights


def test_factors_that_exceed_the_room_of_weights_are_not_used():
    """A matrix of rank 0 has one factor more than it has weights, the step: here 12 for 11 weights."""
    network = networks.make({"name": "mlp", "hidden": [2]}, 3, 1)
    es = strategies.from_table({"name": "openai-es", "perturbation_rank": 1}, network, P, 3)
    genomes = es.ask(es.start(), 0)
    assert genomes.factors.values.shape[1] == network.num_weights + 1
    batch = network.batch(P, "native")
    assert batch.columns_of(genomes, np.arange(P))[0] is genomes.weights
    assert batch.can_give


class Outside:
    """A network, or a batch, from another package, with only the members that the protocol requires."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def batch(self, slots, backend):
        return Outside(self._inner.batch(slots, backend))


def test_a_network_without_a_kernel_is_stepped_like_anywhere(monkeypatch):
    ours, _, network = rollouts("CartPole-v1", NETWORKS[0], False)
    batch = batch_of(network, False)
    ours.submit(batch)
    make = networks.make
    monkeypatch.setattr(networks, "make", lambda *arguments: Outside(make(*arguments)))
    stepped, *_ = rollouts("CartPole-v1", NETWORKS[0], False)
    assert isinstance(stepped, Rollout)
    stepped.submit(batch)
    assert table_of(finish(stepped)) == table_of(finish(ours))


def test_short_episodes_do_not_make_later_calls_long(monkeypatch):
    """A simulated device of 4,096 slots, on which a step of all slots takes 20 µs: the clock is simulated, too."""
    ours, _, description = rollouts("CartPole-v1", NETWORKS[0], False)
    batch = batch_of(description, False)
    clock = [0.0]
    monkeypatch.setattr(exact_rollout, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    slots, episodes = 4096, 4 * 4096

    class Simulated:
        ready, running, finished = True, 0, 0

        def __init__(self):
            self.slots, self.waiting, self.length, self.left = slots, episodes, 22, 0

        def run(self, steps, more):
            self.left = self.left or episodes // slots * self.length
            rounds = min(steps, self.left)
            self.left -= rounds
            clock[0] += 20e-6 * rounds
            return rounds * slots

    ours.play = device = Simulated()
    ours.submit(batch)
    for _ in range(40):
        ours.play_on()
    short = ours.steps
    device.length, device.left, ours.longest_call = 2000, 0, 0.0  # episodes have become long
    for _ in range(100):
        ours.play_on()
    assert ours.longest_call == pytest.approx(0.004)
    assert short <= 200  # 4 ms of these steps
    assert ours.steps == pytest.approx(200, abs=1)


@given(st.data())
def test_the_best_genome_is_never_left_out(data):
    """However the episodes are divided into results, and with equal means, of which the first genome counts as best."""
    episodes = data.draw(st.integers(1, 4))
    numbers = st.sampled_from([-1.0, 0.1, 0.2, 0.3, 1e9, np.nan if data.draw(st.booleans()) else -np.inf])
    rows = data.draw(st.lists(st.lists(numbers, min_size=episodes, max_size=episodes), min_size=1, max_size=9))
    returns = np.array(rows)
    order = np.array(data.draw(st.permutations(range(returns.size))))
    cuts = sorted(data.draw(st.sets(st.integers(1, returns.size))))
    keys = (np.arange(len(returns))[:, None] << 32) + np.arange(episodes)
    needed = np.zeros(returns.size, np.bool_)
    for part in np.split(order, cuts):
        needed[part] = native_play.needs_step_hashes(keys.reshape(-1)[part], returns.reshape(-1)[part], episodes)
        assert native_play.needs_step_hashes(keys.reshape(-1)[part], returns.reshape(-1)[part], 0).all()
    best = strategies.ranking(ordered_sum(returns) / episodes)[0]
    assert needed.reshape(returns.shape)[best].all()


def test_the_step_hashes_of_most_genomes_are_left_out_if_only_the_best_are_wanted():
    ours, _, description = rollouts("CartPole-v1", NETWORKS[0], False)
    tables = []
    for wanted in (False, True):
        batch = batch_of(description, False, best_of=E * wanted)
        assert batch.take(np.arange(5)).best_of == E * wanted
        ours.submit(batch)
        found = PopulationResults(P, E, description.num_traces)
        for part in finish(ours):
            found.add(checked(part))
        tables.append(found)
    whole, few = tables
    best = int(strategies.ranking(ordered_sum(whole.returns) / E)[0])
    for ours, theirs in zip(few.step_hashes(best), whole.step_hashes(best), strict=True):
        assert len(ours)
        assert np.array_equal(ours, theirs)
    left_out = 0
    for candidate in range(P):
        try:
            few.step_hashes(candidate)
        except ValueError:
            left_out += 1
    assert left_out > P / 2
    assert np.array_equal(few.fingerprints, whole.fingerprints)
