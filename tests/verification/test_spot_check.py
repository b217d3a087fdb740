"""One logged episode, played again before a run is resumed: equal, or a message with both values."""

import shutil
from dataclasses import replace

import pytest
from tampering import tamper

from evolve import store
from evolve.errors import Stopped
from evolve.training import reload
from evolve.verification import spot_check
from evolve.verification.logs import logs_of_record


def no_stop():
    """Return None: no stop was requested."""


def test_a_difference_is_said_with_both_values(record, monkeypatch):
    run = store.read(record("toys:Elsewhere-v0"))
    experiment = reload(run)
    assert spot_check(run, experiment, no_stop) is None
    monkeypatch.setenv("TOY_GRAVITY", "40")
    words = spot_check(run, experiment, no_stop)
    champion = run.records[-1].champion_candidate
    length = run.records[-1].lengths[champion, 0]
    assert words.startswith(f"generation 1, candidate {champion}, episode 0, ")
    assert f"{float(length)} in {length} steps" in words


def test_an_equal_return_by_other_actions_is_said(record, tmp_path):
    path = shutil.copy(record("CartPole-v1"), tmp_path / "changed.h5")
    last = store.read(path).records[-1]
    champion, length = last.champion_candidate, last.lengths[last.champion_candidate, 0]
    tamper(path, "fingerprint/episodes", (1, champion, 0, 1), 1)
    run = store.read(path)
    assert spot_check(run, reload(run), no_stop) == (
        f"generation 1, candidate {champion}, episode 0: return {float(length)} in {length} steps both times, "
        "but other observations or actions"
    )


def test_the_log_of_an_episode_has_its_step_hashes_alone(record):
    last = store.read(record("CartPole-v1", "-r", 2)).records[-1]
    logs = logs_of_record(last, last.champion_candidate)
    assert [len(log.step_hashes) for log in logs] == [log.length for log in logs]


def test_a_stop_may_be_requested_in_the_middle_of_it(record):
    run = store.read(record("CartPole-v1"))
    answers = iter([None, None, "the time limit"])
    with pytest.raises(Stopped, match="the time limit"):
        spot_check(run, reload(run), lambda: next(answers))


@pytest.mark.parametrize(("was", "words"), [("raise", None), ("nothing", "RuntimeError: the motor burnt out")])
def test_an_episode_that_failed_may_fail_again(call, tmp_path, was, words):
    task = ("-e", "toys:Faulty-v0", "--set", "env.kwargs.share=1.0", "--set", "env.on_failure=worst", "-p", 4, "-r", 1)
    small = ("-d", 2, "-g", 1, "--set", "held_out_episodes=0", "-o", "out")
    call("run", *task, *small, "--set", f"env.kwargs.how={was}").ok()
    run = store.read(store.path_of(tmp_path / "out", 0))
    now = replace(run, header=replace(run.header, config=run.header.config.replace('"nothing"', '"raise"')))
    difference = spot_check(now, reload(now), no_stop)
    assert (difference is None) if words is None else (words in difference)


def test_a_run_in_which_every_reset_failed_goes_on(call, tmp_path):
    fails = "env.kwargs={share = 1.0, where = 'reset'}"
    task = ("-e", "toys:Faulty-v0", "--set", fails, "--set", "env.on_failure=worst")
    small = ("-p", 4, "-r", 2, "-d", 2, "--set", "held_out_episodes=0", "-o", "out")
    call("run", *task, *small, "-g", 1).ok()
    done = call("run", *task, *small, "-g", 2, "--resume")
    assert done.code == 0, done.err
    assert store.read(store.path_of(tmp_path / "out", 0)).num_generations == 2
    call("replay", "out/seed-0.h5").ok()
