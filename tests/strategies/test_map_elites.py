"""map-elites: cells, elites that only improve, means of observations as descriptors, and elites that play again."""

import json
from dataclasses import replace

import h5py
import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evolve
from evolve import networks, store
from evolve.analysis import figures
from evolve.analysis.figures import comparison
from evolve.config import Config, parse
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.strategies import AskedGenomes, Results, from_table, make
from evolve.strategies.map_elites import best_of_cells, cells_of
from evolve.training import prepare
from evolve.training.plan import file_bytes
from evolve.verification import choose_episode, playing

NUMBERS = st.sampled_from([-np.inf, -1.0, 0.0, 0.25, 0.5, 1.0, 7.0, np.inf, np.nan])


@given(arrays.arrays(np.float64, st.tuples(st.integers(0, 9), st.just(2)), elements=NUMBERS))
def test_a_number_is_in_one_cell_and_outside_ones_at_the_ends(measures):
    cells = cells_of(measures, np.array([[0.0, 1.0], [-1.0, 1.0]]), np.array([4, 3]))
    for (x, y), cell in zip(measures, cells, strict=True):
        if np.isnan(x) or np.isnan(y):
            assert cell == -1
            continue
        column, row = divmod(int(cell), 3)
        assert column == min(max(np.floor(np.clip(x, -9, 9) * 4), 0), 3)
        assert row == min(max(np.floor((np.clip(y, -9, 9) + 1) / 2 * 3), 0), 2)


@given(st.lists(st.tuples(st.integers(-1, 3), NUMBERS), max_size=12))
def test_the_best_of_each_cell_is_the_first_of_the_largest(rows):
    cells, fitness = np.array([r[0] for r in rows], np.int64), np.array([r[1] for r in rows], np.float64)
    expected = []
    for cell in range(4):
        among = [n for n, (c, f) in enumerate(rows) if c == cell and not np.isnan(f)]
        expected += [max(among, key=lambda n: (fitness[n], -n))] if among else []
    assert best_of_cells(cells, fitness).tolist() == expected


def describe(weights):
    return weights[:, :2].astype(np.float64)


def strategy(**options):
    shape = {"descriptors": ["a", "b"], "cells": [5, 4], "bounds": [[-2.0, 2.0], [-2.0, 2.0]]}
    return make("map-elites", 6, population=16, seed=4, **shape | options)


def test_measures_of_another_number_than_the_descriptors_are_refused():
    made = strategy()
    genomes = made.ask(made.start(), 0)
    with pytest.raises(InputError, match=r"measures: expected an array \[P, 2\], .* each of a, b, got .*16, 1"):
        made.tell(made.start(), genomes, Results(np.zeros(16), measures=np.zeros((16, 1))))
    with pytest.raises(InputError, match=r"got a\. .* Results\(fitness, measures=…\), an array \[16, 2\]"):
        made.tell(made.start(), genomes, Results(np.zeros(16)))


def step(made, state, generation, fitness=lambda w: -(w.astype(np.float64) ** 2).sum(axis=1)):
    genomes = made.ask(state, generation)
    return made.tell(state, genomes, Results(fitness(genomes.weights), measures=describe(genomes.weights)))


def test_the_archive_is_monotone_and_its_elites_are_in_their_cells():
    made = strategy()
    state, before = made.start(), np.full(20, np.nan)
    for generation in range(30):
        state = step(made, state, generation)
        archive = made.outcome(state)["archive"]
        assert not (np.isnan(archive) & ~np.isnan(before)).any()
        assert not (archive < before).any()
        assert cells_of(describe(state.genomes.weights), made.bounds, made.grid).tolist() == state.cells.tolist()
        assert state.fitness.tolist() == archive[state.cells].tolist()
        before = archive
    assert len(state) > 15
    for place in (0, 7, 14):
        cell = made.indices(int(state.cells[place]))
        assert made.select(state, cell=cell).weights.tobytes() == state.genomes.weights[[place]].tobytes()
        generation, candidate = made.origin(state, cell)
        assert 0 <= generation < 30
        assert 0 <= candidate < 16
    assert made.champion(state).weights.tobytes() == state.genomes.weights[[int(np.argmax(state.fitness))]].tobytes()


def test_the_origin_is_the_candidate_that_took_the_cell():
    made = strategy()
    states = [made.start()]
    for generation in range(6):
        states.append(step(made, states[-1], generation))
    for place in range(len(states[-1])):
        cell = made.indices(int(states[-1].cells[place]))
        generation, candidate = made.origin(states[-1], cell)
        again = made.ask(states[generation], generation, np.array([candidate]))
        assert again.weights.tobytes() == made.select(states[-1], cell=cell).weights.tobytes()


def test_a_search_of_one_cell_is_sep_cma_es_from_its_elite():
    """With one cell candidates gain in the order of their fitness, so both have the same candidates to the bit."""
    made = strategy(cells=[1, 1], emitters=1, sigma=0.3, weight_noise=0.0)  # the other candidates are copies: no gain

    def slope(weights):
        return weights.astype(np.float64).sum(axis=1)

    state = step(made, made.start(), 0, slope)
    alone = make("sep-cma-es", x0=made.champion(state).weights[0], population=8, seed=4, sigma=0.3)
    cma = alone.start()
    for generation in range(1, 9):
        genomes, expected = made.ask(state, generation), alone.ask(cma, generation)
        assert genomes.weights[:8].tobytes() == expected.weights.tobytes()
        before, state = state, step(made, state, generation, slope)
        assert state.fitness[0] > before.fitness[0]
        cma = alone.tell(cma, expected, Results(slope(expected.weights)))
    state = step(made, state, 9, lambda weights: np.full(len(weights), -9.0))
    assert state.emitters[0].state.progress.generations == 0  # without a gain it begins anew


@given(arrays.arrays(np.float64, 16, elements=NUMBERS), arrays.arrays(np.float64, (16, 2), elements=NUMBERS))
def test_emitters_prefer_empty_cells_and_begin_anew_without_a_gain(fitness, measures):
    made = strategy(emitters=2)
    state = step(made, made.start(), 0)
    genomes, there = made.ask(state, 1), made.outcome(state)["archive"]
    cells = cells_of(measures, made.bounds, made.grid)
    after = made.tell(state, genomes, Results(fitness, measures=measures))

    def key(candidate):
        """The order of the paper, spelled out: what it finds, its gain, its number."""
        cell, value = cells[candidate], fitness[candidate]
        if cell < 0 or np.isnan(value):
            return 1, np.inf, candidate
        if np.isnan(there[cell]):
            return 0, -value, candidate
        return 1, there[cell] - value, candidate

    for number, emitter in enumerate(after.emitters):
        own = range(4 * number, 4 * number + 4)
        if not any(key(candidate)[0] == 0 or key(candidate)[1] < 0 for candidate in own):
            assert emitter.state.progress.generations == 0
            assert emitter.state.progress.sigma == 0.5
            assert (emitter.state.mean.astype(np.float32) == after.genomes.weights).all(axis=1).any()
            continue
        # Two parents of four: the mean moves to their weighted mean.
        first, second = sorted(own, key=key)[:2]
        share = np.log(3.0) / (2 * np.log(3.0) - np.log(2.0))
        expected = share * genomes.weights[first].astype(float) + (1 - share) * genomes.weights[second].astype(float)
        assert emitter.state.progress.generations == 1
        np.testing.assert_allclose(emitter.state.mean, expected, rtol=1e-6, atol=1e-6)


def test_emitters_keep_the_connections_of_their_elites():
    network = networks.make({"name": "hebbian-dag", "hidden": [5], "init_sparsity": 0.5}, 3, 2)
    made = from_table({"name": "map-elites", "descriptors": ["connections"], "emitters": 2}, network, 16, 1)
    state = made.start()
    for generation in range(6):
        genomes = made.ask(state, generation)
        if generation:
            known = {mask.tobytes() for mask in state.genomes.mask}
            assert {mask.tobytes() for mask in genomes.mask} <= known
            for number, emitter in enumerate(state.emitters):  # half of the candidates are of two emitters
                assert (genomes.mask[4 * number : 4 * number + 4] == emitter.mask).all()
        assert not genomes.weights[~genomes.mask].any()
        state = made.tell(state, genomes, Results(genomes.weights.astype(np.float64).sum(axis=1)))
    assert len({emitter.mask.tobytes() for emitter in state.emitters}) == 2


def test_the_step_size_of_an_emitter_does_not_depend_on_absent_connections():
    """An emitter with 12 connections of 300 adapts σ as sep-cma-es does in a genome of these 12 alone."""
    rng = np.random.default_rng(1)
    present = np.zeros(300, np.bool_)
    present[rng.choice(300, 12, replace=False)] = True
    made = make("map-elites", 300, population=32, seed=4, cells=[1], emitters=1)
    alone = make("sep-cma-es", 12, population=16, seed=4)
    start = Genomes(np.where(present, np.float32(1), np.float32(0))[None], present[None])
    results = Results(np.zeros(32), measures=np.zeros((32, 1)))
    archive = replace(made.start(), genomes=start, cells=np.zeros(1, np.int64), fitness=np.full(1, -1e9),
                      measures=np.zeros((1, 1)), origins=np.zeros((1, 2), np.int64))  # fmt: skip
    archive = made.tell(archive, made.ask(archive, 0), replace(results, fitness=np.full(32, -2e9)))
    cma = alone.from_arrays(alone.to_arrays(alone.start()) | {"mean": archive.emitters[0].state.mean[present]})
    for generation in range(1, 30):
        genomes = made.ask(archive, generation)
        fitness = generation + rng.random(32)
        archive = made.tell(archive, genomes, replace(results, fitness=fitness))
        weights = genomes.weights[:16, present]
        cma = alone.tell(cma, Genomes(weights, np.ones(weights.shape, np.bool_)), Results(fitness[:16]))
    assert archive.emitters[0].state.progress.generations == 29
    assert archive.emitters[0].state.progress.sigma == pytest.approx(cma.progress.sigma, rel=1e-5)


def test_an_elite_stays_before_an_equal_candidate():
    made = strategy(weight_noise=0.5)
    one = step(made, made.start(), 0, lambda w: np.zeros(len(w)))
    two = step(made, one, 1, lambda w: np.zeros(len(w)))
    kept = np.isin(two.cells, one.cells)
    assert two.genomes.weights[kept].tobytes() == one.genomes.weights.tobytes()


@pytest.mark.parametrize("wrong", [(-1, 0), (1, 0), (0, -1), (0, 16)])
def test_a_stored_elite_comes_from_a_candidate_of_a_generation(wrong):
    made = strategy()
    state = step(made, made.start(), 0, lambda w: np.zeros(len(w)))
    arrays = made.to_arrays(state)
    assert np.array_equal(made.from_arrays(arrays).origins, state.origins)
    arrays["elites_origins"] = np.vstack([state.origins[:-1], wrong])
    with pytest.raises(ValueError, match="elites_origins: expected numbers of generations and candidates"):
        made.from_arrays(arrays)


def test_candidates_without_a_descriptor_have_no_cell():
    made = strategy()
    genomes = made.ask(made.start(), 0)
    measures = np.full((16, 2), np.nan)
    state = made.tell(made.start(), genomes, Results(np.ones(16), measures=measures))
    assert len(state) == 0
    assert made.ask(state, 1).weights.tobytes() != genomes.weights.tobytes()  # drawn anew
    assert np.isnan(made.outcome(state)["archive"]).all()
    assert len(made.champion(state)) == 1


@pytest.mark.parametrize("name", list(networks.NETWORKS))
def test_a_first_generation_that_fails_as_a_whole_is_followed_by_another(name):
    layout = networks.make(name, 4, 2)
    made = from_table({"name": "map-elites"}, layout, 4, 0)
    asked = AskedGenomes(made, made.start(), 0, 4, layout.num_weights)  # in a run, candidates are computed lazily
    state = made.tell(made.start(), asked, Results(np.full(4, np.nan)))
    assert len(state) == 0
    assert len(made.ask(state, 1)) == 4


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ((5, 0), r"cell: expected a cell from 0,0 to 4,3, got 5,0"),
        ((1,), r"cell: expected a cell from 0,0 to 4,3, got 1"),
        ((1.5, 0), r"cell: expected a cell from 0,0 to 4,3, got 1.5,0"),
        (1, r"cell: expected a list of indices, got 1\. Give the indices as numbers, such as \(0, 0\)\."),
        (np.array(1), r"cell: expected a list of indices, got 1\. Give the indices as numbers, such as \(0, 0\)\."),
        (np.array([[1, 1], [0, 0]]), r"cell: expected a cell from 0,0 to 4,3, got \[1, 1\],\[0, 0\]"),
        ("1,1", r"cell: expected a list of indices, got '1,1'\. Give the indices as numbers, such as \(0, 0\)\."),
        ((4, 3), r"cell: expected one of the 1 filled cells, such as 2,2, got 4,3"),
    ],
)
def test_a_cell_without_an_elite_is_named(cell, message):
    made = strategy()
    genomes = made.ask(made.start(), 0)
    state = made.tell(made.start(), genomes, Results(np.ones(16), measures=np.full((16, 2), 0.1)))
    with pytest.raises(InputError, match=message):
        made.select(state, cell=cell)
    with pytest.raises(InputError, match=message):
        made.origin(state, cell)
    with pytest.raises(InputError, match=r"connections: expected none, except with nsga2"):
        made.select(state, connections=4)
    with pytest.raises(InputError, match=r"cell: expected a filled cell, got 0,0"):
        made.select(made.start(), cell=(0, 0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"descriptors": ["a", "a"]}, r"strategy\.descriptors: expected different names"),
        ({"cells": [3]}, r"strategy\.cells: expected one value for each of 2 descriptors"),
        ({"bounds": [[0.0, 1.0]]}, r"strategy\.bounds: expected one value for each of 2 descriptors"),
        (
            {"bounds": [[0.0, 1.0], [1.0, 1.0]]},
            r"strategy\.bounds: expected two finite numbers each, the smaller first",
        ),
        ({"cells": [2**10, 2**10]}, r"strategy\.cells: expected at most 131,072 cells in all"),
        ({"sigma": 0.1}, r"strategy\.emitters: expected 1 or more, if there is a sigma, got 0"),
        (
            {"emitters": 3},
            r"strategy\.emitters: expected at most 2 with a population of 16, got 3\. Each needs at least 4",
        ),
    ],
)
def test_a_grid_that_does_not_fit_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        strategy(**options)


# Runs: mean observations as metrics, the archive on every rank, resumed, verified, drawn and played again.

NAMES = ["mean_observation_0", "mean_observation_2"]
RUN = ("-e", "CartPole-v1", "--engine", "exact", "-a", "mlp", "-d", 4, "-p", 12, "-r", 2, "-s", 3,
       "--strategy", "map-elites", "--set", "held_out_episodes=3", "--set", "normalize_observations=true",
       "--set", f"env.metrics={NAMES}", "--set", f"strategy.descriptors={NAMES}",
       "--set", "strategy.emitters=1", "--set", "strategy.cells=[6, 5]", "--set",
       "strategy.bounds=[[-0.3, 0.3], [-0.1, 0.1]]")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The run of the settings in RUN, trained from Python."""
    return evolve.train(
        env={"id": "CartPole-v1", "engine": "exact", "metrics": NAMES}, network={"name": "mlp", "hidden": [4]},
        population=12, episodes=2, generations=5, seed=3, held_out_episodes=3, normalize_observations=True,
        strategy={"name": "map-elites", "descriptors": NAMES, "cells": [6, 5], "bounds": [[-0.3, 0.3], [-0.1, 0.1]],
                  "emitters": 1},
        output=tmp_path_factory.mktemp("made"),
    )  # fmt: skip


def columns(run):
    return [(g.record.measures.tobytes(), g.record.archive.tobytes()) for g in run.generations]


def test_ranks_and_threads_do_not_matter(made, call, command, tmp_path):
    call("run", *RUN, "-g", 5, "--set", "compute.threads=2", "-o", "threads").ok()
    command("run", *RUN, "-g", 5, "-o", "ranks", ranks=3).ok()
    for name in ("threads", "ranks"):
        found = evolve.load(tmp_path / name / "seed-3.h5")
        assert found.digest == made.digest
        assert columns(found) == columns(made)


def test_resumed_runs_and_array_operations_give_the_same_archive(made, call, tmp_path):
    call("run", *RUN, "-g", 2, "--backend", "numpy", "-o", "out").ok()
    call("run", *RUN, "-g", 5, "-o", "out", "--resume").ok()
    found = evolve.load(tmp_path / "out" / "seed-3.h5")
    assert found.digest == made.digest
    assert columns(found) == columns(made)
    for words in ([], ["--full"], [made.path]):
        call("verify", found.path, *words).ok()


@pytest.mark.parametrize("way", ["one", "two", "full"])
def test_a_changed_archive_is_found(made, call, tmp_path, way):
    path = tmp_path / "changed.h5"
    path.write_bytes(made.path.read_bytes())
    with h5py.File(path, "r+") as file:
        archive = file["selection/archive"][()]
        archive[2, np.nanargmax(archive[2])] += 1
        file["selection/archive"][...] = archive
    done = call("verify", path, *{"one": [], "two": [made.path], "full": ["--full"]}[way])
    assert (done.code, "generation 2" in done.out) == (1, True), done.out


def test_a_changed_measure_is_found_although_the_archive_stays(made, tmp_path):
    path = tmp_path / "changed.h5"
    path.write_bytes(made.path.read_bytes())
    other = int(made.generations[2].record.champion_candidate == 0)
    with h5py.File(path, "r+") as file:
        measures = file["selection/measures"][()]
        measures[2, other, 0] = np.nextafter(measures[2, other, 0], np.inf)
        file["selection/measures"][...] = measures
    verdict = evolve.load(path).verify()
    assert (verdict.equal, verdict.generation) == (False, 2)


def test_a_changed_measure_of_a_champion_is_found_although_it_stays_in_its_cell(tmp_path):
    made = evolve.train(
        env={"id": "CartPole-v1", "engine": "exact"}, network="hebbian-dag", population=8, generations=2, episodes=1,
        strategy={"name": "map-elites", "cells": [2]}, held_out_episodes=1, seed=1, output=tmp_path,
    )  # fmt: skip
    with h5py.File(made.path, "r+") as file:
        measures = file["selection/measures"][()]
        measures[1, file["champion/candidate"][1]] += 0.25
        file["selection/measures"][...] = measures
    verdict = evolve.load(made.path).verify()
    assert (verdict.equal, verdict.generation) == (False, 1)


def test_a_mean_observation_is_what_a_replay_sees(made):
    stored, record = store.read(made.path), made.generations[3].record
    best = int(record.champion_candidate)
    chosen = choose_episode(stored, made.experiment, 3, episode=1)
    played = playing.play_recorded(stored, made.experiment, (3, best, 1), chosen.genome)
    seen = np.array(played.recording.observations[: played.log.length], np.float64)
    assert record.metrics["mean_observation_0"][best, 1] == pytest.approx(seen[:, 0].mean(), rel=1e-12)
    assert played.log.metrics["mean_observation_2"] == record.metrics["mean_observation_2"][best, 1]


def test_elites_are_objects_and_play_the_episodes_that_filled_their_cells(made, call):
    elites = made.archive()
    columns = made.table()
    assert columns["archive_coverage"][-1] == len(elites) / len(made.generations[-1].record.archive)
    assert columns["archive_qd_score"][-1] == pytest.approx(sum(elite.fitness for elite in elites), abs=1e-9)
    last = made.generations[-1].record.archive
    assert len(elites) == np.count_nonzero(~np.isnan(last))
    for elite in elites:
        assert elite.fitness == last[elite.cell[0] * 5 + elite.cell[1]]
        record = made.generations[elite.generation].record
        assert elite.fitness == record.fitness[elite.candidate]
        assert elite.genome.fingerprints()[0] == record.genome_fingerprints[elite.candidate]
    cell = ",".join(map(str, elites[0].cell))
    done = call("replay", made.path, "--cell", cell, "--episode", 1)
    assert (done.code, "equal to the log, to the bit" in done.out) == (0, True), done.err
    assert made.champion(cell=elites[0].cell).genome.weights.tobytes() == elites[0].genome.weights.tobytes()
    held_out = made.evaluate(episodes=4, cell=np.array(elites[0].cell))  # such as of np.argwhere
    done = call("evaluate", made.path, "--cell", cell, "--episodes", 4)
    assert f"elite of cell {cell}" in done.out
    found = json.loads(call("evaluate", made.path, "--cell", cell, "--episodes", 4, "--json").out)
    assert (found["cell"], found["returns"]) == ([*elites[0].cell], held_out.returns.tolist())
    done = call("replay", made.path, "--cell", cell, "--held-out", "--episode", 2)
    assert f"return {float(held_out.returns[2])!r}" in done.out
    assert "the log has no such held-out episode of this genome" in done.out
    assert call("replay", made.path, "--cell", "0,9").code == 2


def test_elites_play_held_out_episodes_with_the_normalizers_of_their_generations(made):
    used = set()
    for elite in made.archive():
        own = made.generations[elite.generation].record.normalizer
        assert made.champion(cell=elite.cell).normalizer.tobytes() == own.tobytes()
        used.add(own.tobytes())
    assert len(used) > 1
    best = max(made.archive(), key=lambda elite: elite.fitness)
    assert made.champion().normalizer.tobytes() == made.champion(cell=best.cell).normalizer.tobytes()
    assert np.array_equal(made.held_out.returns, made.evaluate(episodes=3, cell=best.cell).returns)


def test_a_run_that_starts_from_the_champion_counts_the_observations_of_its_normalizer(made, tmp_path):
    (generation,) = {e.generation for e in made.archive() if e.fitness == max(each.fitness for each in made.archive())}
    expected = sum(int(g.record.steps) for g in made.generations[:generation])
    champion = made.export(tmp_path / "a.champion")
    for source in (made.path, champion):
        settings = made.config.model_copy(update={"start_from": None})
        run = evolve.train(settings, strategy="ga", start_from=str(source), generations=1, output=tmp_path / "b",
                           overwrite=True)  # fmt: skip
        with h5py.File(run.path) as file:
            assert file["start/num_observations"][()].tolist() == [expected]


@pytest.mark.parametrize("way", ["earlier version", "damaged"])
def test_the_normalizer_of_the_champion_is_in_the_checkpoint(made, tmp_path, way):
    path = tmp_path / "changed.h5"
    path.write_bytes(made.path.read_bytes())
    with h5py.File(path, "r+") as file:
        del file["checkpoint/champion_normalizer"]
        if way == "damaged":
            file["checkpoint/champion_normalizer"] = np.zeros((2, 3), np.float32)
    changed = evolve.load(path)
    if way == "damaged":
        with pytest.raises(
            InputError, match=r"expected an undamaged checkpoint, got a damaged one \(champion_normalizer"
        ):
            changed.champion()
        return
    newest = changed.champion().normalizer
    assert all(newest.tobytes() != g.record.normalizer.tobytes() for g in made.generations)
    settings = made.config.model_copy(update={"start_from": None})
    started = evolve.train(settings, strategy="ga", start_from=changed, generations=1, output=tmp_path / "started")
    assert started.start.num_observations == sum(g.record.steps for g in made.generations)
    played = changed.evaluate(episodes=3)  # by the newest normalizer, as by an earlier version
    with h5py.File(path, "r+") as file:
        file["evaluation/returns"][...] = played.returns
        for name, values in played.metrics.items():
            file[f"evaluation/metrics/{name}"][...] = values
    changed = evolve.load(path)
    assert changed.verify(full=True).equal
    for verdict in (made.verify_against(changed), changed.verify_against(made)):
        assert verdict.equal, verdict
        assert "not compared, because an earlier version" in verdict.summary


def test_an_archive_and_its_elites_are_shown_from_python(made):
    figure = made.plot_archive().figure
    assert "of 30 cells filled" in figure.axes[1].get_title(loc="left") + figure.axes[1].get_title()
    stored = store.read(made.path)
    first = figures.draw_archive(replace(stored, records=stored.records[:1]))  # a single generation is a point
    assert [line.get_marker() for line in first.axes[1].lines] == ["o"]
    elite = made.archive()[0]
    title = f"elite of cell {','.join(map(str, elite.cell))}"
    assert title in made.plot_network(cell=elite.cell).title
    film = made.film(cell=elite.cell, episode=1, seconds=0.1)
    returned = made.generations[elite.generation].record.returns[elite.candidate, 1]
    assert film.title == f"{title}, episode 1: return {returned:.2f}"
    with pytest.raises(InputError, match="cell: expected a cell from 0,0 to 5,4"):
        made.film(cell=(0, 9))
    with pytest.raises(InputError, match="a run with a front"):
        made.plot_front()


def test_the_archive_of_another_package_s_strategy_is_not_drawn(made):
    stored = store.read(made.path)
    config = made.config.model_copy(update={"strategy": parse(Config, {"strategy": "ga"}).strategy})
    found = r"got a run of ga\. The fitness of its own archive is run\.generations\[-1\]\.record\.archive"
    with pytest.raises(InputError, match=rf"expected a run with an archive \(strategy map-elites\), {found}"):
        figures.draw_archive(replace(stored, header=replace(stored.header, config=config.to_toml())))


def test_a_strategy_that_keeps_an_archive_but_finds_no_elites_is_named(monkeypatch):
    strategy = make("hill-climber", genome_size=3, population=4)  # examples/outside
    with pytest.raises(InputError, match=r"cell: expected none, except with map-elites, .*, got \(3, 3\)\.$"):
        strategy.select(strategy.start(), cell=(3, 3))
    monkeypatch.setattr(type(strategy), "outcome", lambda *_: {"archive": np.zeros(16)})
    with pytest.raises(InputError, match="This strategy has no method `select`"):
        strategy.select(strategy.start(), cell=(3, 3))


def test_an_archive_is_drawn(made, call, tmp_path):
    call("plot", made.path, "--archive", "-o", "archive.svg").ok()
    drawn = (tmp_path / "archive.svg").read_text()
    assert all(words in drawn for words in ("mean pole angle", "of 30 cells filled", "seed 3"))
    assert call("plot", made.path, "--front").code == 2
    with pytest.raises(InputError, match=r"expected a run with a front"):
        made.front()


def test_a_fine_archive_is_a_picture_in_a_file_of_vectors(made, monkeypatch, tmp_path):
    """A path for each of 100,000 cells would take 28 MB, and edges would hide the cells."""
    drawn = [made.plot_archive().save(tmp_path / "few.svg").read_text()]
    monkeypatch.setattr(comparison, "MOST_EDGED", 2)
    drawn.append(made.plot_archive().save(tmp_path / "many.svg").read_text())
    # The colour bar is a picture in both.
    assert [text.count("<image") for text in drawn] == [1, 2]


def test_the_size_of_a_run_file_includes_the_archive(made):
    table = {"name": "map-elites", "descriptors": NAMES, "cells": [100, 100], "bounds": [[-1.0, 1.0]] * 2}
    config = made.config.model_copy(update={"strategy": parse(Config, {"strategy": table}).strategy})
    more = file_bytes(prepare(config)) - file_bytes(prepare(made.config))
    assert more == 8 * (100 * 100 - 30) * made.config.generations


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("normalize_observations=false",), "env.metrics: expected normalized observations with mean_observation_0"),
        (("env.metrics=['mean_observation_4']",), "env.metrics: expected mean_observation_0 to mean_observation_3"),
        (("env.metrics=['x']",), "env.metrics: expected only metrics mean_observation_N with exact tasks"),
        (("env.metrics=[]",), "env.metrics: expected mean_observation_0 among the metrics"),
    ],
)
def test_metrics_that_cannot_be_had_are_refused(call, changes, message):
    call("run", *RUN, *(word for change in changes for word in ("--set", change)), "-g", 1).refused(message)


def test_other_engines_have_mean_observations_too(call, tmp_path):
    words = [word if word != "exact" else "gymnasium" for word in RUN]
    call("run", *words, "-g", 2, "-o", "out").ok()
    found = evolve.load(tmp_path / "out" / "seed-3.h5")
    assert all((np.abs(found.generations[1].metrics[name]) < 2.4).all() for name in NAMES)
    call("verify", found.path, "--full").ok()
