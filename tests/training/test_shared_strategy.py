"""Every rank has the strategy's state: genomes are made where they are played, and few numbers travel."""

import threading
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from conftest import LONG
from wire import Wire

from evolve.cluster import Coordinator, Transport, dismiss, serve
from evolve.config import Config, RacingOptions, parse
from evolve.errors import RunError
from evolve.genome import Genomes, describe
from evolve.numerics import ordered_sum
from evolve.strategies import AskedGenomes
from evolve.training import StrategyReplica, make_rollout, prepare, shared_strategy
from evolve.training.fitness import evaluate_population
from evolve.training.loop import generation_record
from evolve.training.shared_strategy import SharedStrategy

P = 12
STRATEGIES = {
    "openai-es": {"name": "openai-es"},
    "traces": {"name": "openai-es", "pruning": 0.5, "pruning_generations": 2, "pruning_by": "trace"},
    "pgpe": {"name": "pgpe"},
    "ga": {"name": "ga", "parents": 3},
    "umda": {"name": "umda"},
    "random": {"name": "random"},
    "prune": {"name": "prune"},
    "snes": {"name": "snes"},
    "sep-cma-es": {"name": "sep-cma-es"},
    "cma-es": {"name": "cma-es"},
    "restarts": {"name": "pgpe", "restart_after": 1},
    "restarts anew": {"name": "sep-cma-es", "restart_after": 1, "restart_from": "anew"},
    "starts": {"name": "pgpe", "starts": 3, "start_generations": 1, "finalists": 2},
}
MADE_ANYWHERE = STRATEGIES.keys() - {"prune", "cma-es"}  # and prune, where networks leave no traces


@pytest.fixture
def transport():
    """That of rank 0, with two workers."""
    boxes = [deque() for _ in range(3)]
    work = [
        threading.Thread(target=serve, args=(Wire(r, boxes), make_rollout, lambda: None, StrategyReplica()))
        for r in (1, 2)
    ]
    for thread in work:
        thread.start()
    zero = Wire(0, boxes)
    yield zero
    assert dismiss(zero)
    for thread in work:
        thread.join(LONG)
        assert not thread.is_alive()


@pytest.fixture
def much(monkeypatch):
    """As if every genome were large."""
    monkeypatch.setattr(shared_strategy, "MAX_LOGGED_TRACES", 0)
    monkeypatch.setattr(shared_strategy, "MIN_SHARED_NUMBERS", 0)
    monkeypatch.setattr(shared_strategy, "CACHED_COLUMNS", 8)
    monkeypatch.setattr(shared_strategy, "MIN_PART_NUMBERS", 8)


def experiment(strategy, network="hebbian-dag", hidden=(4,)):
    table = {"population": P, "episodes": 2, "network": {"name": network, "hidden": list(hidden)}, "strategy": strategy}
    table |= {"env": {"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 20}, "compute": {"threads": 1}}
    return prepare(parse(Config, table))


def evolved(made, coordinator, generations=6, forgetful=False):
    """Return the digests of what every generation was, and the last state's arrays."""
    strategy = made.strategy(5)
    shared = SharedStrategy(made, coordinator, strategy, strategy.start(), 5)
    digests = []
    for generation in range(generations):
        if forgetful and generation % 2:
            coordinator.forget_setup()
        genomes = shared.ask(generation)
        results = evaluate_population(made, coordinator, 5, generation, genomes, None, shared.traces)
        described = results.descriptions(genomes)
        digests += [described.digests.tobytes(), results.returns.tobytes()]
        shared.tell(genomes, results.returns.mean(axis=1), results)
    return digests, {name: array.tobytes() for name, array in strategy.to_arrays(shared.state).items()}


@pytest.fixture(scope="module", params=STRATEGIES)
def alone(request):
    """An experiment with each strategy, and what it evolves on one rank, with one thread."""
    made = experiment(STRATEGIES[request.param])
    return made, evolved(made, Coordinator(Transport(), make_rollout))


@pytest.mark.usefixtures("much")
def test_ranks_do_not_matter(alone, transport):
    """Before every second generation, workers are set up again, and keep their state."""
    made, expected = alone
    assert evolved(made, Coordinator(transport, make_rollout), forgetful=True) == expected


def test_threads_that_sum_do_not_matter(alone, monkeypatch):
    made, expected = alone
    monkeypatch.setattr(shared_strategy, "MIN_SHARED_NUMBERS", 0)
    monkeypatch.setattr(shared_strategy, "num_threads", lambda _config: 5)
    assert evolved(made, Coordinator(Transport(), make_rollout)) == expected


@pytest.mark.usefixtures("much")
def test_how_much_there_is_does_not_matter(alone):
    made, expected = alone
    assert evolved(made, Coordinator(Transport(), make_rollout)) == expected


@pytest.mark.usefixtures("much")
def test_in_a_race_the_traces_of_each_come_home():
    made = experiment(STRATEGIES["traces"])
    racing = replace(made, config=made.config.model_copy(update={"racing": RacingOptions(rounds=(1,))}))
    strategy = made.strategy(0)
    alone = Coordinator(Transport(), make_rollout)
    wanted = [SharedStrategy(one, alone, strategy, strategy.start(), 0).traces for one in (made, racing)]
    assert wanted == ["mean", "each"]
    results = evaluate_population(racing, alone, 0, 0, strategy.ask(strategy.start(), 0), None, wanted[1])
    assert np.array_equal(results.mean_traces, ordered_sum(results.traces.T.astype(np.float64)) / P)


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("network", ["hebbian-dag", "dag"])
def test_candidates_are_made_where_they_are_played_if_they_can_be(name, network):
    made = experiment(STRATEGIES[name] if (name, network) != ("traces", "dag") else {"name": "openai-es"}, network)
    strategy = made.strategy(0)
    genomes = SharedStrategy(made, Coordinator(Transport(), make_rollout), strategy, strategy.start(), 0).ask(0)
    anywhere = name in MADE_ANYWHERE or (name, network) == ("prune", "dag")
    assert isinstance(genomes, AskedGenomes if anywhere else Genomes)


def test_the_candidates_of_a_strategy_that_is_not_portable_are_sent(transport):
    made = experiment({"name": "openai-es"}, "mlp")
    strategy = made.strategy(5)
    strategy.portable = False
    shared = SharedStrategy(made, Coordinator(transport, make_rollout), strategy, strategy.start(), 5)
    genomes = shared.ask(0)
    assert isinstance(genomes, Genomes)
    results = evaluate_population(made, Coordinator(transport, make_rollout), 5, 0, genomes, None, shared.traces)
    shared.tell(genomes, results.returns.mean(axis=1), results)
    some = np.array([4, 1])
    assert np.array_equal(strategy.ask(shared.state, 1, some).weights, shared.ask(1).weights[some])


@pytest.mark.parametrize("forgetful", [False, True])
@pytest.mark.usefixtures("much")
def test_no_genome_travels(transport, forgetful, monkeypatch):
    """Workers begin with nothing, and are sent the sums that they have not added up, and P numbers."""
    monkeypatch.setattr(shared_strategy, "CACHED_COLUMNS", 2**14)
    made = experiment({"name": "openai-es"}, "mlp", hidden=[2000])
    W = made.network.num_weights
    strategy = made.strategy(0)
    coordinator = Coordinator(transport, make_rollout)
    shared = SharedStrategy(made, coordinator, strategy, strategy.start(), 0)
    moved = []
    for generation in range(3):
        before = transport.bytes_moved
        if forgetful:
            coordinator.forget_setup()
        genomes = shared.ask(generation)
        results = evaluate_population(made, coordinator, 0, generation, genomes, None, shared.traces)
        shared.tell(genomes, results.returns.mean(axis=1), results)
        moved.append(transport.bytes_moved - before)
    sums = 2 * 8 * W  # to rank 0, and from there to the other worker
    assert all(sums < generation < sums + 40_000 < 4 * P * W for generation in moved)
    coordinator.shared_version = None  # as if others had been at work meanwhile
    before = transport.bytes_moved
    shared.ask(3)
    assert transport.bytes_moved - before > 2 * 4 * 8 * W  # centre, average, m, v


@pytest.mark.usefixtures("much")
def test_two_runs_may_take_turns(transport):
    coordinator = Coordinator(transport, make_rollout)
    runs = []
    for name in ("openai-es", "ga"):
        made = experiment(STRATEGIES[name])
        strategy = made.strategy(5)
        runs.append((made, SharedStrategy(made, coordinator, strategy, strategy.start(), 5)))
    found = {0: [], 1: []}
    for generation in range(3):
        for number, (made, shared) in enumerate(runs):
            genomes = shared.ask(generation)
            results = evaluate_population(made, coordinator, 5, generation, genomes, None, shared.traces)
            found[number] += [results.descriptions(genomes).digests.tobytes(), results.returns.tobytes()]
            shared.tell(genomes, results.returns.mean(axis=1), results)
    for number, (made, _) in enumerate(runs):
        assert found[number] == evolved(made, Coordinator(Transport(), make_rollout), 3)[0]


def test_a_rank_that_makes_another_genome_is_noticed():
    made = experiment({"name": "openai-es"})
    alone = Coordinator(Transport(), make_rollout)
    strategy = made.strategy(0)
    genomes = SharedStrategy(made, alone, strategy, strategy.start(), 0).ask(0)
    results = evaluate_population(made, alone, 0, 0, genomes)
    fitness = results.returns.mean(axis=1)
    described = results.descriptions(genomes)
    seconds = 1.0, np.zeros(1), np.zeros(1)
    record = generation_record(bytes(32), genomes, described, results, fitness, {}, None, seconds, {})
    assert record.connections.tolist() == described.connections.tolist()
    others = genomes.take(np.arange(P))
    others.weights[record.champion_candidate, 3] += 1
    with pytest.raises(RunError, match=rf"candidate {record.champion_candidate}\b"):
        generation_record(bytes(32), genomes, describe(others), results, fitness, {}, None, seconds, {})


@pytest.mark.usefixtures("much")
def test_a_worker_that_missed_an_update_makes_no_candidates(transport):
    made = experiment({"name": "openai-es"})
    coordinator = Coordinator(transport, make_rollout)
    coordinator.set_up(made.rollout_spec)
    strategy = made.strategy(0)
    shared = SharedStrategy(made, coordinator, strategy, strategy.start(), 0)
    shared.ask(0)
    coordinator.update([(np.zeros(24, np.uint8), 1)], coordinator.shared_version)  # nonsense, for rank 2
    with pytest.raises(RunError, match="failed on rank 2"):
        evaluate_population(made, coordinator, 0, 0, shared.ask(0))
    coordinator.forget_setup()  # its workers begin anew
    with pytest.raises(RunError, match="state"):
        evaluate_population(made, coordinator, 0, 0, shared.ask(0))


def test_arrays_without_axes_and_of_any_type_reach_workers_as_they_are(monkeypatch):
    made = experiment({"name": "openai-es"})
    strategy = made.strategy(0)
    more = {"level": np.array(0.5, np.float32), "turns": np.array([[3, 4]], np.int16)[:, ::-1]}
    kind, seen = type(strategy), []
    monkeypatch.setattr(kind, "to_arrays", lambda *_: more)
    monkeypatch.setattr(kind, "from_arrays", lambda _, arrays: seen.append(arrays))

    class Workers:
        workers, shared_version = (1,), None

        def update(self, updates, _version):
            for frame, _ in updates:
                replica.update(frame)

    replica = StrategyReplica()
    SharedStrategy(made, Workers(), strategy, strategy.start(), 0).ask(1)
    (found,) = seen
    assert found.keys() == more.keys()
    assert all(found[name].dtype == more[name].dtype and np.array_equal(found[name], more[name]) for name in more)


def test_sums_of_another_type_become_float64_as_in_messages(monkeypatch):
    made, seen = experiment({"name": "openai-es"}), []
    kind = type(made.strategy(0))
    sums = kind.sums
    monkeypatch.setattr(kind, "sums", lambda *given: sums(*given).astype(np.float32))
    monkeypatch.setattr(kind, "tell", lambda _, state, genomes, results: seen.append(results.sums.dtype) or state)
    evolved(made, Coordinator(Transport(), make_rollout), 1)
    assert seen == [np.float64]
