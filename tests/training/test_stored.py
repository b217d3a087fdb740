"""A run that begins with the genome of another run: what it begins with, and that it needs its source no more."""

import os
import re
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import finished, launcher
from hypothesis import given, settings
from hypothesis import strategies as st
from tampering import tamper

import evolve
from evolve import store
from evolve.analysis.html.tables import experiments_table
from evolve.analysis.run_groups import read_groups
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.strategies import STRATEGIES, VectorLayout
from evolve.training.plan import sweep_from_arguments

TASK = {"env": {"id": "CartPole-v1", "engine": "exact"}, "network": {"name": "mlp", "hidden": [3]}}
SMALL = TASK | {"population": 8, "episodes": 1, "held_out_episodes": 2, "generations": 2}
SHORT = SMALL | {"held_out_episodes": 0, "generations": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("source")


@pytest.fixture(scope="module")
def source(folder):
    """A run whose champion has lost connections."""
    strategy = {"name": "prune", "weight_noise": 0.1, "uniform_pruning": 0.1}
    return evolve.train(SMALL, strategy=strategy, seed=1, output=folder / "plain", generations=4)


@pytest.fixture(scope="module")
def normalized(folder):
    return evolve.train(SMALL, strategy="pgpe", seed=1, output=folder / "normalized", normalize_observations=True)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def same(genome, other):
    return np.array_equal(genome.weights, other.weights) and np.array_equal(genome.mask, other.mask)


def first_genomes(run):
    strategy = run.experiment.strategy(run.seed)
    return strategy.ask(strategy.start(), 0)


@pytest.mark.parametrize("name", [*STRATEGIES])
def test_every_strategy_begins_with_the_final_champion(source, name):
    champion = source.champion().genome
    assert not champion.mask.all()
    run = evolve.train(SHORT, strategy=name, seed=2, start_from=source, output="next", generations=2)
    assert same(run.start.genome, champion)
    assert run.config.start_from.digest == run.start.digest
    strategy = run.experiment.strategy(2)
    assert same(strategy.champion(strategy.start()), champion)
    verdict = run.verify()
    assert verdict.equal, verdict
    # Candidates of generation 0 are in the log as they are asked for.
    best = run.generations[0].record
    assert np.array_equal(first_genomes(run).weights[best.champion_candidate], best.champion_weights)


def test_all_ways_to_name_a_champion_give_one_run(source):
    source.export("plain.champion")
    policy, champion = source.champion(), Path("plain.champion")
    starts = [source, source.path, str(source.path), {"file": source.path}, evolve.load(champion), champion, policy]
    runs = [
        evolve.train(SHORT, strategy="ga", seed=2, start_from=start, output=f"next-{number}")
        for number, start in enumerate([*starts, policy.genome])
    ]
    assert len({run.digest for run in runs}) == 1
    assert len({run.config.start_from.digest for run in runs}) == 1
    assert runs[0].digest != evolve.train(SHORT, strategy="ga", seed=2, output="plain").digest
    again = evolve.train(runs[-1].config, start_from=runs[-1].start, output="again")
    assert again.digest == runs[0].digest


def test_a_generation_of_a_run(source):
    for start in ({"file": source.path, "generation": 1}, source.champion(generation=1)):
        run = evolve.train(SHORT, strategy="ga", seed=2, start_from=start, output="next", overwrite=True)
        best = source.generations[1].record
        assert same(run.start.genome, Genomes(best.champion_weights[None], best.champion_mask[None]))


ARCHIVE = {"name": "map-elites", "descriptors": ["mean_observation_2"], "cells": [9], "bounds": [[-0.2, 0.2]]}
FRONT = {"name": "nsga2", "parents": 4}


@pytest.mark.parametrize("strategy", [ARCHIVE, FRONT])
def test_a_genome_of_a_front_or_an_archive_brings_its_normalizer(strategy):
    env = SMALL["env"] | {"metrics": ["mean_observation_2"]}
    settings = SMALL | {"normalize_observations": True, "env": env, "generations": 4}
    run = evolve.train(settings, strategy=strategy, output="source")
    if strategy is ARCHIVE:
        # An elite is not evaluated again, so it has the normalizer of its generation.
        kept = next(elite for elite in run.archive() if 0 < elite.generation < 3)
        which, generations = {"cell": kept.cell}, run.generations[: kept.generation]
    else:
        kept = run.front()[0]
        which, generations = {"connections": int(kept.measures["acting_connections"])}, run.generations
    start = {"file": run.path, **which}
    made = evolve.train(SMALL, normalize_observations=True, strategy="ga", start_from=start, output="next")
    assert same(made.start.genome, kept.genome)
    assert made.start.normalizer.tobytes() == run.champion(**which).normalizer.tobytes()
    assert made.start.num_observations == sum(generation.record.steps for generation in generations)
    assert made.verify(full=True).equal
    words = r"elite of cell \d" if strategy is ARCHIVE else r"best with at most \d+ acting connections?"
    assert re.fullmatch(rf"the {words} of source/seed-0\.h5 \(\w{{12}}\)", made.config.start_from.describe())
    with pytest.raises(InputError, match=r'a vector of numbers, got <.*>\. Give the run itself, or .* or "cell"'):
        evolve.train(SMALL, normalize_observations=True, start_from=kept, output="other")
    with pytest.raises(InputError, match=r"start_from\.generation and start_from\.\w+: expected one of these"):
        evolve.train(SMALL, normalize_observations=True, start_from={"generation": 1, **start}, output="other")
    missing = {"cell": [9]} if strategy is ARCHIVE else {"connections": 0}
    with pytest.raises(InputError, match=rf"^start_from\.{next(iter(missing))}: expected"):
        evolve.train(SMALL, normalize_observations=True, start_from={"file": run.path, **missing}, output="other")


def test_a_vector_has_all_connections(source):
    W = source.experiment.network.num_weights
    run = evolve.train(SMALL, strategy="openai-es", seed=2, start_from=np.linspace(-1, 1, W), output="next")
    assert run.start.mask.all()
    assert run.config.start_from.file is None
    assert run.verify().equal
    normalized = SMALL | {"strategy": "openai-es", "normalize_observations": True}
    run = evolve.train(normalized, start_from=np.linspace(-1, 1, W), output="normalized")
    assert evolve.train(run.config, start_from=run.start, output="again").digest == run.digest


def test_each_seed_takes_its_own_file_of_a_directory(source, call):
    for seed in (1, 2):
        evolve.train(SHORT, strategy="ga", seed=seed, output="first")
    task = "-e", "CartPole-v1", "--engine", "exact", "-a", "mlp", "-d", 3, "--strategy", "ga"
    small = "-p", 8, "-r", 1, "-g", 1, "--set", "held_out_episodes=0"
    call("run", *task, *small, "-s", 1, 2, "--start-from", "first", "-o", "second").ok()
    for seed in (1, 2):
        first, second = (evolve.load(f"{folder}/seed-{seed}.h5") for folder in ("first", "second"))
        assert same(second.start.genome, first.champion().genome)


def test_a_control_may_begin_without_the_start_of_its_experiment(source):
    warm = evolve.train(SHORT, seed=2, start_from=source, output="warm")
    cold = evolve.train(warm.config, seed=2, start_from=None, output="cold")
    assert warm.start is not None
    assert cold.start is None
    assert cold.config.start_from is None


def test_a_chain_of_starts(source):
    second = evolve.train(SMALL, strategy="sep-cma-es", seed=2, start_from=source, output="second")
    second.export("second.champion")
    third = evolve.train(SMALL, strategy="cma-es", seed=3, start_from="second.champion", output="third")
    assert same(third.start.genome, second.champion().genome)
    assert third.verify().equal
    assert evolve.load("second.champion").start.digest == second.start.digest
    assert re.fullmatch(r"<Start: [\d,]+ connections, digest [0-9a-f]{16}…>", repr(third.start))


@pytest.mark.parametrize("name", ["openai-es", "sep-cma-es", "ga"])
def test_a_resumed_run_ends_as_an_undisturbed_one_without_its_source(source, name):
    Path("source.h5").write_bytes(source.path.read_bytes())
    settings = {"strategy": name, "seed": 2, "start_from": "source.h5"}
    whole = evolve.train(SMALL, **settings, generations=4, output="whole")
    for generations in (1, 2):
        evolve.train(SMALL, **settings, generations=generations, output="part", resume=True)
        Path("source.h5").unlink(missing_ok=True)
    part = evolve.train("part/seed-2.h5", generations=4, resume=True)
    assert part.digest == whole.digest
    assert part.held_out.returns.tolist() == whole.held_out.returns.tolist()
    assert part.verify().equal


def test_a_run_is_repeated_without_its_source(source, call):
    Path("source.h5").write_bytes(source.path.read_bytes())
    run = evolve.train(SMALL, strategy="sep-cma-es", seed=2, start_from="source.h5", output="next")
    run.export("next.champion")
    Path("source.h5").unlink()
    for file in (run.path, "next.champion"):
        call("verify", "--full", file).ok()
    assert run.evaluate(3, network=run.config.network.table()).returns.shape == (3,)


def test_a_changed_source_does_not_matter_to_a_resumed_run(source):
    Path("source.h5").write_bytes(source.path.read_bytes())
    settings = {"strategy": "ga", "seed": 2, "start_from": "source.h5", "output": "next"}
    before = evolve.train(SHORT, **settings)
    other = evolve.train(SHORT, strategy="ga", seed=9, output="other")
    Path("source.h5").write_bytes(other.path.read_bytes())
    after = evolve.train(SMALL, **settings, resume=True)
    assert after.start.digest == before.start.digest
    # Another file, or other weights, are another experiment.
    with pytest.raises(
        InputError, match=r"start_from, resuming .*: expected 'the final champion of source\.h5 \(\w{12}"
    ):
        evolve.train(SMALL, **(settings | {"start_from": other.path}), resume=True, generations=3)
    with pytest.raises(InputError, match=r"start_from, resuming .* got None"):
        evolve.train(SMALL, **(settings | {"start_from": None}), resume=True, generations=3)
    assert evolve.train(SMALL, **(settings | {"start_from": source.path}), resume=True, generations=4).complete
    # A run that begins anew takes the present file, unless its digest is named.
    anew = evolve.train(SHORT, **settings, overwrite=True)
    assert same(anew.start.genome, other.champion().genome)
    with pytest.raises(InputError, match=r"start_from\.digest: expected \w{64}, the digest of the source, got \w{64}"):
        evolve.train(before.config, output="anew")


def test_the_normalizer_is_carried_over(normalized):
    settings = {"strategy": "ga", "seed": 2, "normalize_observations": True}
    run = evolve.train(SMALL, **settings, start_from=normalized, output="next")
    final = evolve.load(normalized.path).champion().normalizer
    assert np.array_equal(run.generations[0].record.normalizer, final)
    assert int(run.start.num_observations[0]) == sum(g.record.steps for g in normalized.generations)
    assert run.verify().equal
    # Later generations go on from there, as if the observations were of one run.
    stored = store.read(run.path).checkpoint
    count = int(stored["observations_count"][0])
    assert count == int(run.start.num_observations[0]) + sum(g.record.steps for g in run.generations)
    before = store.read(normalized.path).checkpoint["observations_moments"]
    added = stored["observations_moments"] - before
    assert np.abs(added[1] / (count - int(run.start.num_observations[0]))).max() < 100
    # A champion file, a generation and a chain know their normalizers, too.
    normalized.export("normalized.champion")
    assert evolve.train(SMALL, **settings, start_from="normalized.champion", output="by-file").digest == run.digest
    early = evolve.train(SMALL, **settings, start_from={"file": normalized.path, "generation": 1}, output="early")
    assert np.array_equal(early.generations[0].record.normalizer, normalized.generations[1].record.normalizer)
    assert int(early.start.num_observations[0]) == normalized.generations[0].record.steps
    chained = evolve.train(SMALL, **settings, start_from=run, output="chained")
    assert int(chained.start.num_observations[0]) == count
    part = evolve.train(SMALL, **settings, generations=1, start_from=normalized, output="part")
    assert part.digest == run.generations[0].digest
    assert evolve.train(part.path, resume=True, generations=2).digest == run.digest


@pytest.fixture(scope="module")
def learning(normalized, folder):
    """The settings of a run whose normalizer learns from all generations, and that run."""
    common = {"strategy": "ga", "seed": 2, "normalize_observations": True, "start_from": normalized, "generations": 4}
    return common, evolve.train(SMALL, **common, output=folder / "learning")


@settings(max_examples=3)
@given(first=st.integers(0, 3), cut=st.integers(1, 3), threads=st.integers(1, 2))
def test_a_frozen_normalizer_never_changes(normalized, learning, tmp_path_factory, first, cut, threads):
    """It learns from the first generations alone, also in a run that is cut and resumed on other threads."""
    common, usual = learning
    common = common | {"normalizer_generations": first, "output": tmp_path_factory.mktemp("frozen")}
    part = evolve.train(SMALL, **common | {"generations": cut})
    run = evolve.train(SMALL, **common, resume=True, compute={"threads": threads})
    assert run.generations[cut - 1].digest == part.digest
    kept = [g.record.normalizer.tobytes() for g in run.generations] + [run.champion().normalizer.tobytes()]
    assert kept[0] == normalized.champion().normalizer.tobytes()
    assert set(kept[first:]) == {kept[first]}
    assert len(set(kept[: first + 1])) == first + 1  # before that, each generation changes it
    equal = [a.digest == b.digest for a, b in zip(run.generations, usual.generations, strict=True)]
    assert equal == [generation <= first for generation in range(4)]


def test_a_frozen_normalizer_is_verified_and_carried_over_with_its_own_observations(normalized, call, golden):
    settings = {"strategy": "ga", "seed": 2, "normalize_observations": True, "normalizer_generations": 1}
    run = evolve.train(SMALL, **settings, generations=3, start_from=normalized, output="frozen")
    assert run.digest == golden["frozen_normalizer_digest"]
    for words in ([], ["--full"]):
        call("verify", run.path, *words).ok()
    before, steps = int(run.start.num_observations[0]), [g.record.steps for g in run.generations]

    def count(source):
        made = evolve.train(SMALL, **settings, generations=1, start_from=source, output="next", overwrite=True)
        return int(made.start.num_observations[0]) - before

    assert count(run) == count({"file": run.path, "generation": 2}) == steps[0]
    assert count({"file": run.path, "generation": 0}) == 0
    run.export("frozen.champion")
    assert count("frozen.champion") == steps[0]
    with h5py.File("frozen.champion", "r+") as file:  # as in an earlier version, which knew the mean length alone
        del file.attrs["num_observations"]
    assert count("frozen.champion") == sum(steps) // 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"network": {"name": "mlp", "hidden": [5]}},
            r"start_from: expected a genome of 37 weights for mlp \(4 observations and 2 outputs\), got 23 weights of "
            r".*seed-1\.h5, mlp for CartPole-v1",
        ),
        ({"network": {"name": "elman", "hidden": [3]}}, r"start_from: expected a genome of \d+ weights for elman"),
        ({"normalize_observations": True}, r"normalize_observations: expected false as in .*seed-1\.h5"),
        (
            {"normalizer_generations": 2},
            r"normalizer_generations: expected none if observations are not normalized, got 2. Or set normalize_obs",
        ),
        ({"start_from": "missing.h5"}, r"start_from: expected a run file, .*, got missing\.h5: no such file"),
        (
            {"start_from": "."},
            r"start_from: expected a directory with a run of the same seed, seed-0\.h5, got .*To begin",
        ),
        ({"start_from": {"generation": 1}}, r"start_from\.file: expected a run file or a champion file, got none"),
        ({"start_from": {"digest": "0" * 64}}, r"start_from\.file: expected a run file .* got a digest alone"),
        ({"start_from": {"file": "x.h5", "generations": 1}}, r"start_from\.generations.*Did you mean .*generation"),
        ({"start_from": [1.0, 2.0]}, r"start_from: expected a genome of 23 weights .*, got 2 weights of the given"),
        ({"start_from": VectorLayout(3)}, r"start_from: expected a run, .* a vector of numbers, got VectorLayout"),
    ],
)
def test_what_does_not_fit_is_named(source, change, message):
    with pytest.raises(InputError, match=message):
        evolve.train(SMALL | {"strategy": "ga", "start_from": source} | change, output="next")
    assert not Path("next").exists()


def test_other_refusals(source, normalized, tmp_path):
    def begin(start, **more):
        evolve.train(SMALL, strategy="ga", start_from=start, output="next", **more)

    with pytest.raises(InputError, match=r"start_from\.generation: expected one of 0 to 3, got 4"):
        begin({"file": source.path, "generation": 4})
    source.export("plain.champion")
    with pytest.raises(InputError, match=r"start_from\.generation: expected none with plain\.champion"):
        begin({"file": "plain.champion", "generation": 0})
    with pytest.raises(InputError, match=r"start_from: expected a source .* got a policy with a normalizer"):
        begin(normalized.champion(), normalize_observations=True)
    for start in (None, source.champion().genome):
        with pytest.raises(InputError, match=r"normalizer_generations: expected at least 1, or start_from .*, got 0"):
            begin(start, normalize_observations=True, normalizer_generations=0)
    other = evolve.train(
        SMALL, strategy="ga", normalize_observations=True, start_from=normalized, output="other", generations=1
    )
    with pytest.raises(InputError, match=r"normalize_observations: expected true as in the given start"):
        begin(other.start)
    empty = store.create(tmp_path / "seed-7.h5", store.Header(source.config.to_toml(), {}, 7, "CartPole-v1"))
    empty.close()
    with pytest.raises(InputError, match=r"start_from: expected a run with a complete generation, got .*seed-7\.h5"):
        begin(tmp_path / "seed-7.h5")
    strategy = {"name": "pgpe", "pruning_every": 2, "pruning_control": True}
    with pytest.raises(InputError, match=r"strategy\.pruning_control: expected false if the search begins"):
        evolve.train(SMALL, strategy=strategy, start_from=source, output="next")


def test_an_environment_of_other_sizes_is_not_called_a_damaged_file(tmp_path):
    def task(random):
        action = yield [0.0, 1.0]
        return float(action.sum())

    evolve.register_task("Grown-v0", task, observation_size=2, action_size=1)
    settings = SMALL | {"env": "Grown-v0", "generations": 1, "compute": {"check": False}}
    run = evolve.train(settings, seed=1, output=tmp_path)
    evolve.register_task("Grown-v0", task, observation_size=2, action_size=3)
    expected = "expected an environment of 2 observations and 1 action, as in .* got Grown-v0, of 2 observations and 3"
    with pytest.raises(InputError, match=rf"^env.id, resuming .*: {expected}"):
        evolve.train(settings, seed=1, output=tmp_path, generations=2, resume=True)
    for used in (run, evolve.load(run.export(tmp_path / "it.champion"))):
        with pytest.raises(InputError, match=rf"^env.id: {expected}.* The environment has changed"):
            used.verify()


def test_a_run_file_with_another_start_than_it_records_is_refused(source):
    run = evolve.train(SMALL, strategy="ga", seed=2, start_from=source, output="next")
    tamper(run.path, "start/weights", 0, 9.0)
    with pytest.raises(InputError, match="expected the start that its configuration records, got another one, or none"):
        evolve.load(run.path).verify()


def test_from_toml_and_in_the_words_of_the_commands(source, call, tmp_path):
    champion = tmp_path / "plain.champion"
    source.export(champion)
    (tmp_path / "next.toml").write_text(
        f"""generations = 2
population = 8
episodes = 1
held_out_episodes = 2
start_from = {{ file = "{source.path}", generation = 3 }}
env = {{ id = "CartPole-v1", engine = "exact" }}
network = {{ name = "mlp", hidden = [3] }}
strategy = {{ name = "ga" }}
"""
    )
    done = call("run", "next.toml", "--dry-run")
    assert f"begins with the best candidate of generation 3 of {source.path} (" in done.out, done.out + done.err
    for words, described in (
        ([], f"the best candidate of generation 3 of {source.path}"),
        (["--start-from", "plain.champion"], "the final champion of plain.champion"),
        (["--start-from", source.path, "--set", "start_from.generation=1"], "the best candidate of generation 1 of"),
    ):
        call("run", "next.toml", *words, "-o", "next", "--overwrite").ok()
        done = call("info", "next/seed-0.h5")
        assert "  started from " in done.out
        assert described in done.out
    # The settings of a run are a whole experiment again.
    (tmp_path / "again.toml").write_text(call("info", "next/seed-0.h5", "--settings").out)
    call("run", "again.toml", "-o", "again").ok()
    assert evolve.load("again/seed-0.h5").digest == evolve.load("next/seed-0.h5").digest
    call("run", "next.toml", "--start-from", "missing.champion", "-o", "missing").refused(
        "start_from (--start-from): expected a run file"
    )


def test_all_runs_of_a_sweep_begin_with_it(source):
    found = evolve.sweep({"strategy": ["ga", "pgpe"]}, SHORT, seeds=[1], start_from=source, output="sweep")
    assert [run.start.digest for run in found.runs] == 2 * [evolve.train(
        SHORT, strategy="ga", seed=1, start_from=source, output="alone").start.digest]  # fmt: skip


def test_a_grid_may_list_runs_to_start_from(source, tmp_path):
    starts = [source, {"file": source.path, "generation": 1}, None]
    planned = sweep_from_arguments({"start_from": starts}, SMALL, [1], tmp_path, {})
    path = str(source.path)
    assert [point["start_from"] for point, _ in planned] == [path, {"file": path, "generation": 1}, None]
    assert [config.start_from and config.start_from.generation for _, config in planned] == [None, 1, None]
    with pytest.raises(InputError, match=r"^start_from: expected a file in a sweep, .* got a genome in memory"):
        sweep_from_arguments({"start_from": [source.champion()]}, SMALL, [1], tmp_path, {})


def test_seeds_that_began_with_their_own_runs_are_one_experiment(tmp_path):
    for seed in (1, 2):
        first = evolve.train(SMALL, strategy="ga", seed=seed, output="first")
        evolve.train(SHORT, strategy="ga", seed=seed, start_from=first, output="by-file")
        evolve.train(SHORT, strategy="ga", seed=seed, start_from="first", output="by-folder")
    files = [tmp_path / name / f"seed-{seed}.h5" for name in ("by-file", "by-folder", "first") for seed in (1, 2)]
    _, groups = read_groups(files)
    assert [len(group.runs) for group in groups] == [4, 2]
    assert [group.label for group in groups] == ["start_from first", "start_from random genomes"]
    rows = experiments_table(groups)
    assert ("start", "") in rows.columns
    assert rows.rows[0][4].startswith("the final champion of first")
    assert rows.rows[1][4] == "random genomes"
    start = {"file": first.path, "generation": 1}
    early = evolve.train(SHORT, strategy="ga", seed=2, start_from=start, output="early")
    _, groups = read_groups([files[1], early.path])
    assert [group.label for group in groups] == ["start_from first", "start_from first generation 1"]


RANKS = """
import sys
import evolve
common = {settings}
workers = int(sys.argv[1])
source = evolve.train(common, strategy={{"name": "prune", "weight_noise": 0.1}}, seed=1, output="source")
settings = dict(strategy="sep-cma-es", seed=2, start_from=source, output="next")
evolve.train(common, **settings, generations=1, workers=workers or None)
print(evolve.train(common, **settings, resume=True).digest)
"""


def test_all_numbers_of_ranks_give_one_digest(tmp_path):
    common = SMALL | {"generations": 3}
    (tmp_path / "script.py").write_text(RANKS.format(settings=common))
    source = evolve.train(common, strategy={"name": "prune", "weight_noise": 0.1}, seed=1, output="source")
    alone = evolve.train(common, strategy="sep-cma-es", seed=2, start_from=source, output="next")
    for ranks, workers in ((3, 0), (None, 2)):
        folder = tmp_path / f"{ranks}-{workers}"
        folder.mkdir()
        words = sys.executable, os.fspath(tmp_path / "script.py"), str(workers)
        done = finished([*launcher(ranks), *words], folder)
        assert done.code == 0, done.err
        assert set(done.out.splitlines()) == {alone.digest}
