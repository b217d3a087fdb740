"""The coordinator and its workers, over a transport within this process: batches go out and their results come back."""

import itertools
import logging
import threading
import time
from collections import deque

import numpy as np
import pytest
from conftest import LONG
from wire import Wire

from evolve.cluster import Coordinator, dismiss, jobs, serve
from evolve.cluster.coordinator import idle_sleep
from evolve.cluster.transport import Transport
from evolve.config import Config, parse
from evolve.errors import EpisodeError, Interrupted, RunError, Stopped
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeBatch, generation_keys
from evolve.training import StrategyReplica, make_rollout, prepare
from evolve.training.fitness import evaluate_population

P, E = 6, 3


@pytest.fixture
def ranks():
    """Start workers that are threads; the test gets the coordinator's transport and the workers' final answers."""
    started = []

    def start(workers, make=make_rollout):
        boxes = [deque() for _ in range(workers + 1)]
        answers = []
        for rank in range(1, workers + 1):
            work = threading.Thread(
                target=lambda r=rank: answers.append(serve(Wire(r, boxes), make, lambda: None, StrategyReplica()))
            )
            work.start()
            started.append(work)
        return Wire(0, boxes), answers

    yield start
    for work in started:
        work.join(LONG)
        assert not work.is_alive()


def experiment(**more):
    table = {"population": P, "episodes": E, "network": {"name": "hebbian-dag", "hidden": [2]}}
    table |= {"env": {"id": "CartPole-v1", "max_episode_steps": 50}, "compute": {"slots": 2}}
    return prepare(parse(Config, table | more))


def batch_of(made, generation=0):
    strategy = made.strategy(1)
    genomes = strategy.ask(strategy.start(), 0)
    return EpisodeBatch.of(1, Purpose.EPISODE, genomes, generation_keys(generation, P), range(E))


def evaluate(coordinator, made):
    return coordinator.evaluate(made.rollout_spec, batch_of(made))


def same(one, other):
    assert np.array_equal(one.returns, other.returns, equal_nan=True)
    for name in ("lengths", "fingerprints"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert one.traces.tobytes() == other.traces.tobytes()


@pytest.mark.parametrize("sizes", [None, [1], [5], [2, 7, 1]])
def test_neither_workers_nor_chunk_sizes_matter(ranks, monkeypatch, sizes):
    made = experiment()
    alone = evaluate(Coordinator(Transport(), make_rollout), made)
    transport, _ = ranks(2)
    if sizes is not None:
        monkeypatch.setattr("evolve.cluster.coordinator.suitable_sizes", lambda *_, **__: itertools.cycle(sizes))
    coordinator = Coordinator(transport, make_rollout)
    for _ in range(2):
        same(evaluate(coordinator, made), alone)
    busy, environments = coordinator.take_seconds()
    assert busy.shape == (3,)
    assert (busy[0], environments[0]) == (0, 0)
    assert (busy >= environments).all()
    assert busy.sum() > 0
    assert not np.any(coordinator.take_seconds())
    assert dismiss(transport)


def test_workers_are_set_up_again_only_for_another_spec(ranks):
    texts = []

    def make(text):
        texts.append(text)
        return make_rollout(text)

    short, long = experiment(), experiment(env={"id": "CartPole-v1", "max_episode_steps": 60})
    transport, _ = ranks(1, make)
    coordinator = Coordinator(transport, make)
    for made in (short, short, long, long, short):
        evaluate(coordinator, made)
    assert texts == [made.config.to_toml() for made in (short, long, short)]
    coordinator.forget_setup()
    evaluate(coordinator, short)
    assert len(texts) == 4
    assert dismiss(transport)


def test_a_worker_may_take_long_to_make_its_second_environments_too(ranks, monkeypatch):
    """Longer than an episode may take, after which a worker that has made them is abandoned."""
    made = []

    def make(text):
        time.sleep(2.0 * len(made))
        made.append(text)
        return make_rollout(text)

    monkeypatch.setattr(jobs, "patience", lambda _seconds: -0.2)
    transport, _ = ranks(1, make)
    coordinator = Coordinator(transport, make_rollout)
    first, second = experiment(), experiment(env={"id": "CartPole-v1", "max_episode_steps": 20})
    evaluate(coordinator, first)
    same(evaluate(coordinator, second), evaluate(Coordinator(Transport(), make_rollout), second))
    assert coordinator.workers == (1,)
    assert dismiss(transport)


def test_workers_leave_with_the_answer(ranks):
    transport, answers = ranks(2)
    assert dismiss(transport, b"42 \0")
    assert answers == [b"42 \0"] * 2


def test_a_worker_that_cannot_go_on_ends_the_evaluation_with_its_traceback(ranks):
    def make(text):
        raise ZeroDivisionError("no environment today")

    transport, _ = ranks(1, make)
    with pytest.raises(RunError, match=r"(?s)failed on rank 1 .*Traceback.*no environment today"):
        evaluate(Coordinator(transport, make), experiment())
    assert dismiss(transport)


@pytest.mark.parametrize("interrupted", [False, True])
def test_rank_0_that_cannot_go_on_alone_ends_the_evaluation(interrupted):
    """An interrupt ends it with the reason to stop, and any other exception with its traceback."""
    made = experiment()
    reasons = []

    def broken(text):
        rollout = make_rollout(text)

        def tick():
            reasons.extend(["SIGTERM"] * interrupted)
            raise Interrupted if interrupted else ZeroDivisionError("the wheel came off")

        rollout.tick = tick
        return rollout

    coordinator = Coordinator(Transport(), broken, lambda: reasons[0] if reasons else None)
    with pytest.raises(Stopped if interrupted else RunError, match="SIGTERM" if interrupted else "the wheel came off"):
        evaluate(coordinator, made)


def test_a_stop_is_noticed_with_workers_and_without(ranks):
    transport, _ = ranks(1)
    for where in (transport, Transport()):
        with pytest.raises(Stopped, match="the time limit"):
            evaluate(Coordinator(where, make_rollout, lambda: "the time limit"), experiment())
    assert dismiss(transport)


def test_an_abandoned_evaluation_does_not_affect_the_next(ranks):
    """Its episodes are dropped, and results of it that arrive later are ignored."""
    made = experiment()
    alone = evaluate(Coordinator(Transport(), make_rollout), made)
    transport, _ = ranks(2)
    looks = itertools.count()
    with pytest.raises(Stopped):
        evaluate(Coordinator(transport, make_rollout, lambda: "enough" if next(looks) > 5 else None), made)
    same(evaluate(Coordinator(transport, make_rollout), made), alone)
    assert dismiss(transport)


FAULTY = {"id": "toys:Faulty-v0", "kwargs": {"how": "raise", "share": 1.0}, "on_failure": "worst"}


def test_all_failed_episodes_are_counted_though_few_are_described(ranks, caplog, monkeypatch):
    monkeypatch.setattr("evolve.cluster.worker.MOST_FAILURES", 2)
    caplog.set_level(logging.WARNING, "evolve")
    made = experiment(env=FAULTY, compute={"slots": 2, "check": False})
    transport, _ = ranks(2)
    results = evaluate(Coordinator(transport, make_rollout), made)
    assert dismiss(transport)
    assert np.isnan(results.returns).all()
    assert (results.lengths == 3).all()
    said = [record.getMessage() for record in caplog.records]
    assert sum("failed and counts as the worst" in line for line in said) == 3
    assert said[-1] == f"… and {P * E - 3} more"


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failed_episode_is_named_by_its_key(ranks, workers):
    made = experiment(env=FAULTY | {"on_failure": "stop"}, compute={"slots": 1, "check": False})
    transport = ranks(workers)[0] if workers else Transport()
    with pytest.raises(EpisodeError) as wrong:
        evaluate(Coordinator(transport, make_rollout), made)
    assert wrong.value.key == (Purpose.EPISODE, 0, 0, 0)
    assert wrong.value.which == "generation 0, candidate 0, episode 0"
    seed = batch_of(made).environment_seeds()[0]
    assert f"failed in step 3, environment seed {seed}, on rank {workers} (" in str(wrong.value)
    assert not workers or dismiss(transport)


class Dying(Wire):
    """Rank 0 of three, whose workers say nothing and die one after the other."""

    def __init__(self):
        super().__init__(0, [deque() for _ in range(3)])
        self._alive = [1, 2]

    def find_lost(self):
        self.mark_dead([self._alive.pop()] if self._alive else [])


def test_without_workers_no_answer_is_waited_for(caplog):
    coordinator = Coordinator(Dying(), make_rollout)
    with caplog.at_level(logging.WARNING, "evolve"):
        assert coordinator.ask([np.zeros(1, np.uint8)] * 3) == [None] * 3
    said = [record.getMessage() for record in caplog.records]
    assert [line.partition(": ")[2] for line in said] == [
        "rank 2 on here was lost; other ranks take over its 1 question",
        "rank 1 on here was lost; other ranks take over its 2 questions",
        "rank 0 answers the rest by itself",
    ]
    assert coordinator.ask([np.zeros(1, np.uint8)]) == [None]


def test_rank_0_plays_alone_if_all_workers_die():
    made = experiment()
    same(evaluate(Coordinator(Dying(), make_rollout), made), evaluate(Coordinator(Transport(), make_rollout), made))


def test_rank_0_sleeps_for_less_than_its_workers_have_to_do():
    assert [idle_sleep(seconds) for seconds in (0.0, 0.1, 100.0)] == pytest.approx([0.0, 0.005, 0.05])


def test_racing_asks_for_one_batch_after_another(ranks):
    made = experiment(racing={"rounds": [1], "keep": 0.5})
    genomes = batch_of(made).genomes
    alone = evaluate_population(made, Coordinator(Transport(), make_rollout), 1, 0, genomes)
    transport, _ = ranks(2)
    same(evaluate_population(made, Coordinator(transport, make_rollout), 1, 0, genomes), alone)
    assert dismiss(transport)
    assert alone.played.sum(axis=1).tolist().count(1) == P // 2
