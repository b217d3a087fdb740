"""Single episodes of a run, played again alone, equal the logged ones to the bit."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import run_on

from evolve import environments, store
from evolve.cluster import Coordinator, Transport
from evolve.environments import Recorder
from evolve.errors import EpisodeError
from evolve.numerics.streams import Purpose
from evolve.training import GenomeChoice, make_rollout, reload
from evolve.verification import choose_episode, make_engine, play, repetition
from evolve.verification.logs import logs_of_record
from evolve.verification.playing import environment_seed


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """A BipedalWalker run, made by two ranks, that keeps every genome."""
    folder = tmp_path_factory.mktemp("whole_run")
    words = ("-e", "BipedalWalker-v3", "-p", 6, "-r", 3, "-g", 3, "-d", 8, 8, "--set", "output.genomes=all",
             "--set", "held_out_episodes=0", "--set", "env.max_episode_steps=30", "-o", folder)  # fmt: skip
    run_on(2, *words, where=folder)
    return store.read(store.path_of(folder, 0))


def test_any_episode_of_any_candidate_is_that_of_the_log_to_the_bit(whole_run):
    experiment = reload(whole_run)
    places = np.random.Generator(np.random.Philox(7)).integers(0, [3, 6, 3], (8, 3)).tolist()
    for generation, candidate, episode in places:
        chosen = choose_episode(whole_run, experiment, generation, candidate, episode)
        engine = make_engine(experiment, chosen)
        results = play(whole_run, experiment, chosen, engine)
        engine.close()
        record = whole_run.records[generation]
        assert results.returns[0] == record.returns[candidate, episode] == chosen.logged
        assert results.lengths[0] == record.lengths[candidate, episode]
        assert (results.fingerprints[0] == record.fingerprints[candidate, episode]).all()


def test_an_episode_can_be_played_through_a_recorder(record):
    run = store.read(record("CartPole-v1"))
    experiment = reload(run)
    chosen = choose_episode(run, experiment, 0)
    engine, seen = Recorder(make_engine(experiment, chosen), slots=1, observations=True), []
    results = play(run, experiment, chosen, engine, lambda step, returned: seen.append((step, returned)))
    recorded = engine.finished[0]
    assert sum(recorded.rewards) == chosen.logged == float(results.returns[0])
    assert recorded.seed == environment_seed(run, experiment, chosen)
    assert seen == [(n, float(n)) for n in range(len(recorded.rewards) + 1)]


def test_a_step_that_fails_is_not_shown(record):
    run = store.read(record("toys:Slow-v0"))
    experiment = reload(run)
    broken = experiment.config.env.model_copy(update={"id": "toys:Broken-v0"})
    chosen = choose_episode(run, experiment, 0)
    seen = []
    with pytest.raises(EpisodeError, match="in step 5"):
        play(run, experiment, chosen, environments.make(broken, 1), lambda step, _: seen.append(step))
    assert seen == [0, 1, 2, 3, 4]


def test_a_changed_genome_that_ends_its_episode_earlier_is_explained_by_both(record):
    run = store.read(record("CartPole-v1"))
    candidate = int(run.records[1].champion_candidate)
    stored = logs_of_record(run.records[1], candidate)[0]
    hashes = stored.step_hashes[:-1]
    fingerprint = hashes[-1].astype(np.uint64) << np.uint64(56)
    shorter = replace(stored, length=stored.length - 1, fingerprint=fingerprint, step_hashes=hashes)
    alone = Transport()
    repeated = repetition(run, reload(run), Coordinator(alone, make_rollout), alone)
    found = repeated.diagnose((1, candidate, 0), shorter, "weights")
    assert (found.what, found.step) == ("weights", len(hashes))
    assert f"was changed; only one side has a step {len(hashes)}" in found.why


def test_validation_episodes_are_compared_with_the_log(call, record):
    settings = "early_stop.mean_return=1", "early_stop.episodes=2", "early_stop.every=1"
    words = (word for setting in settings for word in ("--set", setting))
    path = record("CartPole-v1", "--engine", "exact", *words)
    run = store.read(path)
    experiment, purpose = reload(run), Purpose.VALIDATION
    chosen = [choose_episode(run, experiment, episode=episode, purpose=purpose).logged for episode in range(3)]
    assert chosen == [*run.validations[run.num_generations], None]
    assert "equal to the log" in call("replay", path, "--validation", "--episode", 1).ok().out
    other = choose_episode(run, experiment, purpose=purpose, which=GenomeChoice(generation=0))
    assert (other.generation, other.logged) == (run.num_generations, None)  # another genome in the same episodes


def test_a_failure_here_alone_is_not_said_to_be_in_the_log(call, record):
    done = call("verify", record("toys:Elsewhere-v0"), TOY_GRAVITY="nan")
    assert done.code == 1
    assert "only one side has a step" in done.out
    assert "as it does in the log" not in done.err


@pytest.mark.parametrize(("words", "expected"), [
    (("--held-out",), "a run that has a champion"), (("--generations", "0"), "a run that has champions"),
])  # fmt: skip
def test_a_run_without_a_generation_has_no_champion(call, runs, tmp_path, words, expected):
    empty = store.path_of(tmp_path / "empty", 1)
    store.create(empty, store.read(runs["a"]).header).close()
    call("replay", empty, *words).refused(f"expected {expected}, got {empty}, without a complete generation")
