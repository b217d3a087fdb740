"""nsga2: the order of selection, measures of genomes, the front of each generation, and genomes by their size."""

import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import h5py
import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evolve
from evolve import networks, store
from evolve.analysis import figures
from evolve.analysis.champion import Front
from evolve.analysis.figures import comparison
from evolve.cli.info import rows_of_genomes
from evolve.config import Config, parse
from evolve.errors import InputError
from evolve.genome import Genomes
from evolve.strategies import Results, make
from evolve.strategies.acting import Paths
from evolve.strategies.nsga2 import crowded_order, crowding_of, fronts_of, hypervolume

NUMBERS = st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0, 1e308, np.nan])
TABLES = arrays.arrays(np.float64, st.tuples(st.integers(1, 9), st.integers(1, 3)), elements=NUMBERS)
MLP = networks.make({"name": "mlp", "hidden": [3]}, 2, 1)


def dominates(a, b):
    return (a >= b).all() and (a > b).any()


@given(TABLES)
def test_the_first_front_is_what_no_other_genome_dominates(values):
    fronts = fronts_of(values)
    known = ~np.isnan(values).any(axis=1)
    for row, front in enumerate(fronts):
        if not known[row]:
            assert front == len(values)
            continue
        earlier = [o for o in np.flatnonzero(known) if o != row and fronts[o] < front]
        behind = [
            other
            for other in np.flatnonzero(known)
            if dominates(values[other], values[row]) or (other < row and (values[other] == values[row]).all())
        ]
        assert set(behind) <= set(earlier)
        assert (front == 0) == (not behind)
        assert front == 0 or fronts[behind].max() == front - 1


@given(TABLES)
def test_the_order_is_by_front_then_crowding_then_number(values):
    order, fronts = crowded_order(values)
    crowding = crowding_of(values, fronts)
    keys = [(fronts[row], -crowding[row], row) for row in order]
    assert keys == sorted(keys)
    assert sorted(order.tolist()) == list(range(len(values)))


def test_crowding_is_that_of_the_paper():
    values = np.array([[0.0, 10.0], [1.0, 6.0], [4.0, 5.0], [5.0, 0.0]])
    expected = [np.inf, 4 / 5 + 5 / 10, 4 / 5 + 6 / 10, np.inf]
    assert crowding_of(values, np.zeros(4, np.int64)).tolist() == expected


@given(TABLES.filter(lambda values: values.shape[1] == 2))
def test_hypervolume_is_the_area_of_the_union(values):
    points = np.clip(np.nan_to_num(values, nan=0.0), 0, 2) * 2  # on a grid of steps of 1
    grid = np.stack(np.meshgrid(np.arange(4), np.arange(4), indexing="ij"), axis=-1).reshape(-1, 2)
    covered = (points[:, None] >= grid + 1).all(axis=2).any(axis=0)
    assert hypervolume(points, np.zeros(2)) == np.count_nonzero(covered)
    assert hypervolume(points[::-1], np.zeros(2)) == np.count_nonzero(covered)


def test_connections_act_on_a_path_from_an_input_to_an_output():
    # hidden neuron 0 has no input; neuron 1 is not read; neuron 2 is on a path.
    blocks = {(block.layer, block.source): block for block in MLP.blocks}
    mask = np.zeros((1, MLP.num_weights), np.bool_)
    first, last = blocks[0, 0], blocks[1, 1]
    mask[0, first.start + 0 * first.columns + 1] = mask[0, first.start + 1 * first.columns + 2] = True
    mask[0, last.start + 0 * last.columns] = mask[0, last.start + 2 * last.columns] = True
    assert Paths(MLP).count(mask).tolist() == [2]
    assert Paths(MLP).count(np.ones_like(mask)).tolist() == [MLP.num_weights]
    assert Paths(MLP).count(np.zeros_like(mask)).tolist() == [0]


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
def test_pruning_never_lets_a_connection_act_and_masks_do_not_depend_on_one_another(name):
    network = networks.make({"name": name, "hidden": [4]}, 3, 2)
    mask = np.random.Generator(np.random.Philox(3)).uniform(size=(12, network.num_weights)) < 0.5
    together = Paths(network).acting(mask)
    alone = [Paths(network).acting(row[None]) for row in mask]
    for matrix, found in enumerate(together):
        assert np.array_equal(found, np.concatenate([each[matrix] for each in alone]))
    whole = Paths(network).acting(np.ones_like(mask))
    assert all((found <= every).all() for found, every in zip(together, whole, strict=True))


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("density", [0.1, 0.3, 0.6])
def test_connections_that_can_act_are_those_with_a_flow(name, density):
    network = networks.make({"name": name, "hidden": [4]}, 3, 2)
    draw = np.random.Generator(np.random.Philox(4))
    for _ in range(10):
        mask = draw.uniform(size=network.num_weights) < density
        flows = Paths(network).flow(np.where(mask, draw.normal(size=network.num_weights), 0.0))
        paths = Paths(network)
        for blocks, acting in zip(paths.matrices, paths.acting(mask[None]), strict=True):
            flowing = np.zeros(acting[0].shape, np.bool_)
            for block in blocks:
                flowing |= flows[block.start : block.stop].reshape(block.rows, block.columns) > 0
                assert not flows[block.start : block.stop][~mask[block.start : block.stop]].any()
            if blocks[0].span is None:
                assert np.array_equal(flowing, acting[0])
            else:  # a rule is left as long as one of the connections that it changes can act
                assert not (acting[0] & ~flowing).any()


def test_the_flow_is_the_sum_over_all_paths():
    network = networks.make({"name": "dag", "hidden": [2]}, 1, 1)
    weights = np.random.Generator(np.random.Philox(4)).normal(size=network.num_weights)
    shaped, flows, paths = {}, {}, []
    for block in network.blocks:
        place = slice(block.start, block.stop)
        shaped[block.layer, block.source] = abs(weights[place].reshape(block.rows, block.columns))
        flows[block.layer, block.source] = Paths(network).flow(weights)[place].reshape(block.rows, block.columns)
    first, last, direct = shaped[0, 0], shaped[1, 1], shaped[1, 0]
    for neuron in range(2):
        paths = [first[source, neuron] * last[neuron, 0] for source in range(len(first))]
        assert flows[0, 0][:, neuron] == pytest.approx(paths)
        assert flows[1, 1][neuron, 0] == pytest.approx(sum(paths))
    assert flows[1, 0] == pytest.approx(direct)
    assert flows[1, 1][2:] == pytest.approx(last[2:])


def recurrent(mask_of):
    network = networks.make({"name": "elman", "hidden": [2]}, 1, 1)
    mask = np.zeros((1, network.num_weights), np.bool_)
    for block in network.blocks:
        shaped = mask[0, block.start : block.stop].reshape(block.rows, block.columns)
        mask_of(block, shaped)
    return Paths(network).count(mask)[0]


def test_a_recurrent_connection_may_lead_from_an_input_to_an_output():
    def only_through_time(block, shaped):
        if block.source == 0:
            shaped[0, 0] = True  # the observation reaches neuron 0,
        elif block.layer == block.source - 1:
            shaped[0, 1] = True  # which neuron 1 reads a step later,
        else:
            shaped[1, -1] = True  # and the action reads neuron 1 alone

    assert recurrent(only_through_time) == 3


def two_objectives(genomes):
    """Return a fitness that each connection improves a little less than the one before it."""
    return genomes.mask.astype(np.float64) @ (1.0 / np.arange(1, genomes.num_weights + 1))


def search(strategy, generations, fitness=two_objectives):
    state = strategy.start()
    for generation in range(generations):
        genomes = strategy.ask(state, generation)
        state = strategy.tell(state, genomes, Results(fitness(genomes)))
    return state


def test_it_finds_the_whole_front_of_a_known_problem():
    strategy = make("nsga2", 8, population=60, minimize=["connections"], parents=24, pruning=0.8, regrowth=0.1)
    state = search(strategy, 40)
    first = state.fronts == 0
    found = dict(zip(state.measures[first, 0].tolist(), state.parents.score[first].tolist(), strict=True))
    best = {float(n): float(np.sum(1.0 / np.arange(1, n + 1))) for n in range(9)}
    assert found == pytest.approx(best)


def test_the_front_of_a_generation_is_a_column_by_candidate():
    strategy = make("nsga2", 8, population=20, parents=6)
    state = search(strategy, 3)
    front = strategy.outcome(state)["front"]
    first = state.fronts == 0
    assert np.count_nonzero(~np.isnan(front)) == np.count_nonzero(first)
    assert front[state.candidates[first]].tolist() == state.parents.score[first].tolist()


def test_parents_are_evaluated_again_and_count_by_their_mean():
    strategy = make("nsga2", 4, population=8, parents=4, minimize=["connections"], pruning=0.0, regrowth=0.0)
    state = strategy.start()
    for generation, best in enumerate((4.0, 2.0)):
        genomes = strategy.ask(state, generation)
        fitness = np.full(8, -1.0)
        fitness[0] = best
        state = strategy.tell(state, genomes, Results(fitness))
    assert (state.parents.score[0], state.parents.count[0]) == (3.0, 2)


def test_a_prior_shrinks_a_first_fitness_but_no_measure():
    strategy = make("nsga2", 4, population=4, parents=2, minimize=["connections"], prior_evaluations=3)
    genomes = strategy.ask(strategy.start(), 0)
    state = strategy.tell(strategy.start(), genomes, Results([8.0, 0.0, 0.0, 0.0]))
    assert (state.parents.score[0], state.parents.count[0], state.measures[0, 0]) == (3 * 2 / 4 + 8 / 4, 4, 4)


def test_a_stored_front_names_candidates_of_its_population():
    strategy = make("nsga2", 8, population=20, parents=6)
    state = search(strategy, 2)
    arrays = strategy.to_arrays(state)
    assert strategy.from_arrays(arrays).candidates.tolist() == state.candidates.tolist()
    arrays["parents_candidates"] = arrays["parents_candidates"] + 1_000
    with pytest.raises(ValueError, match="parents_candidates: expected numbers of candidates"):
        strategy.from_arrays(arrays)


def test_small_weights_are_lost_more_often():
    weights = np.repeat([[0.01, 0.1, 1.0, 10.0]], 500, axis=1).reshape(-1)
    strategy = make("nsga2", x0=weights, population=400, pruning=0.1, weight_noise=0.0, regrowth=0.0)
    state = strategy.tell(strategy.start(), strategy.ask(strategy.start(), 0), Results(-np.arange(400.0)))
    children = strategy.ask(state, 1, np.arange(200, 400))
    lost = [np.count_nonzero(~children.mask[:, weights == size]) for size in (0.01, 0.1, 1.0, 10.0)]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] > 1.3 * lost[2] > 6 * lost[3] > 0


def test_metrics_are_objectives_too():
    strategy = make("nsga2", 4, population=6, parents=3, minimize=["torque"], maximize=["speed"])
    state = strategy.start()
    genomes = strategy.ask(state, 0)
    torque, speed = np.arange(6.0), np.array([0.0, 9, 0, 0, 0, 0])
    measures = strategy.measures(genomes, {"torque": torque, "speed": speed})
    assert measures.tolist() == np.column_stack([torque, speed]).tolist()
    state = strategy.tell(state, genomes, Results(np.zeros(6), measures=measures))
    assert state.candidates[state.fronts == 0].tolist() == [0, 1]
    with pytest.raises(InputError, match=r"measures: expected an array \[P, 2\]"):  # all of them would count as goals
        strategy.tell(state, genomes, Results(np.zeros(6), measures=np.zeros((6, 3))))
    with pytest.raises(InputError, match=r"strategy\.minimize: .* a metric of the episodes, got torque"):
        strategy.measures(genomes, {})
    with pytest.raises(InputError, match=r"strategy\.maximize: .* a metric of the episodes, got speed"):
        strategy.measures(genomes, {"torque": torque})


def test_the_best_genome_of_a_size():
    strategy = make("nsga2", 8, population=60, minimize=["connections"], parents=24, pruning=0.8, regrowth=0.1)
    state = search(strategy, 40)
    for size in (0, 3, 8, 100):
        assert strategy.select(state, connections=size).connections()[0] == min(size, 8)
    with pytest.raises(InputError, match=r"connections: expected a whole number, at least 0, got -1"):
        strategy.select(state, connections=-1)
    with pytest.raises(InputError, match=r"cell: expected none, except with map-elites"):
        strategy.select(state, cell=(0, 0))
    with pytest.raises(InputError, match=r"at least \d, the smallest number of acting connections of a parent, got 0"):
        strategy.select(search(strategy, 1), connections=0)
    other = make("ga", 8)
    with pytest.raises(InputError, match=r"expected none, except with nsga2, which keeps a front, got 5\.$"):
        other.select(other.start(), connections=5)
    for searching, which in ((strategy, {}), (other, {}), (other, {"member": 0, "cell": (0, 0)})):
        with pytest.raises(InputError, match="select: expected one of connections, member and cell"):
            searching.select(searching.start(), **which)


def test_a_champion_is_trusted():
    strategy = make("nsga2", 4, population=8, parents=4, trusted=3, pruning=0.0, regrowth=0.0)
    state = search(strategy, 5, lambda genomes: np.where(np.arange(8) == 0, 1.0, 0.0))
    lucky = strategy.tell(state, strategy.ask(state, 5), Results(np.where(np.arange(8) == 7, 1.2, 0.5)))
    assert lucky.parents.score[0] == 1.2
    assert strategy.champion(lucky).weights.tobytes() == strategy.champion(state).weights.tobytes()


def test_a_champion_is_not_the_only_parent_of_enough_evaluations():
    strategy = make("nsga2", 4, population=8, parents=4, trusted=5, pruning=0.0, regrowth=0.0)
    state = search(strategy, 3, lambda genomes: np.where(np.arange(8) == 0, 5.0, 3.0))
    counts = np.where(np.arange(4) == 3, 5, 4)
    poor = np.array([250.0, 254.0, 240.0, -111.0])  # the oldest parent is a trivial network
    state = replace(state, parents=replace(state.parents, count=counts, total=poor * counts))
    assert strategy.champion(state).weights.tobytes() == state.parents.genomes.weights[1].tobytes()


@pytest.mark.parametrize("names", [{"minimize": []}, {"minimize": ["a", "a"]}, {"minimize": ["a"], "maximize": ["a"]}])
def test_objectives_that_are_none_or_named_twice_are_refused(names):
    with pytest.raises(InputError, match=r"strategy\.minimize: expected one name or more"):
        make("nsga2", 3, **names)


def test_objectives_may_have_one_value():
    strategy = make("nsga2", 3, population=4)
    state = strategy.tell(strategy.start(), strategy.ask(strategy.start(), 0), Results(np.full(4, np.nan)))
    assert isinstance(strategy.champion(state), Genomes)
    assert np.isnan(strategy.outcome(state)["front"]).all()


# Runs: the front in the file, on every rank, resumed and verified.

RUN = ("-e", "CartPole-v1", "--engine", "exact", "-a", "mlp", "-d", 4, "-p", 12, "-r", 2, "-s", 3,
       "--strategy", "nsga2", "--set", "strategy.parents=5", "--set", "held_out_episodes=3")  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The run of the settings in RUN, trained from Python."""
    return evolve.train(
        env={"id": "CartPole-v1", "engine": "exact"}, network={"name": "mlp", "hidden": [4]}, population=12, episodes=2,
        generations=5, seed=3, strategy={"name": "nsga2", "parents": 5}, held_out_episodes=3,
        output=tmp_path_factory.mktemp("made"),
    )  # fmt: skip


def test_ranks_and_threads_do_not_matter(made, call, command, tmp_path):
    call("run", *RUN, "-g", 5, "--set", "compute.threads=2", "-o", "threads").ok()
    command("run", *RUN, "-g", 5, "-o", "ranks", ranks=3).ok()
    for name in ("threads", "ranks"):
        found = evolve.load(tmp_path / name / "seed-3.h5")
        assert found.digest == made.digest
        assert columns(found) == columns(made)


def columns(run):
    return [(g.record.measures.tobytes(), g.record.front.tobytes()) for g in run.generations]


def test_resumed_runs_and_array_operations_give_the_same_front(made, call, tmp_path):
    call("run", *RUN, "-g", 2, "--backend", "numpy", "-o", "out").ok()
    call("run", *RUN, "-g", 5, "-o", "out", "--resume").ok()
    found = evolve.load(tmp_path / "out" / "seed-3.h5")
    assert found.digest == made.digest
    assert columns(found) == columns(made)
    for words in ([], ["--full"], [made.path]):
        call("verify", found.path, *words).ok()


@pytest.mark.parametrize("column", ["measures", "front"])
@pytest.mark.parametrize("way", ["one", "two", "full"])
def test_a_changed_front_is_found(made, call, tmp_path, column, way):
    path = tmp_path / "changed.h5"
    path.write_bytes(made.path.read_bytes())
    with h5py.File(path, "r+") as file:
        values = file[f"selection/{column}"][()]
        changed = np.nanargmax(values[2]) if column == "front" else file["champion/candidate"][2]
        values[2][changed] += 1
        file[f"selection/{column}"][...] = values
    done = call("verify", path, *{"one": [], "two": [made.path], "full": ["--full"]}[way])
    assert (done.code, "generation 2" in done.out) == (1, True), done.out


def test_fronts_are_objects_and_their_genomes_play(made, call):
    front = made.front()
    assert [m.measures["acting_connections"] for m in front] == sorted(m.measures["acting_connections"] for m in front)
    assert front[-1].fitness == max(m.fitness for m in front)
    counts = Paths(made.experiment.network).count(np.concatenate([m.genome.mask for m in front]))
    assert counts.tolist() == [m.measures["acting_connections"] for m in front]
    assert made.front(1)[0].genome is None
    assert len(made.front(1)) == np.count_nonzero(~np.isnan(made.generations[1].record.front))
    small = int(front[0].measures["acting_connections"])
    policy = made.champion(connections=small)
    assert policy.genome.weights.tobytes() == front[0].genome.weights.tobytes()
    evaluation = made.evaluate(episodes=4, connections=small)
    assert len(evaluation.returns) == 4
    done = call("evaluate", made.path, "--connections", small, "--episodes", 4)
    assert re.search(rf"best with at most {small} acting connections? \({small} in this genome\)", done.out)
    assert "not stored" in done.out
    found = json.loads(call("evaluate", made.path, "--connections", small, "--episodes", 4, "--json").out)
    assert (found["connections"], found["returns"]) == (small, evaluation.returns.tolist())
    done = call("replay", made.path, "--connections", small, "--episode", 1)
    assert f"return {float(evaluation.returns[1])!r}" in done.out
    for wrong, message in (
        (
            ("evaluate", made.path, "--connections", small, "--generation", 1),
            "generation and connections: expected one",
        ),
        (("evaluate", made.path, "--cell", "1,2"), "cell (--cell): expected none, except with map-elites"),
        (("replay", made.path, "--connections", small, "--generation", 1), "--connections: expected no --generation"),
        (("replay", made.path, "--cell", "1;2"), "--cell: expected whole numbers and commas, such as 3,5, got 1;2"),
    ):
        call(*wrong).refused(message)


def test_no_member_of_a_front_dominates_another_by_a_metric(tmp_path):
    """Goals are means over all evaluations of a parent, as for the selection, and not those of the last one."""
    run = evolve.train(
        env={"id": "Pendulum-v1", "engine": "exact", "metrics": ["mean_observation_2"]},
        normalize_observations=True, network={"name": "mlp", "hidden": [3]}, generations=6, population=24, episodes=1,
        strategy={"name": "nsga2", "minimize": ["mean_observation_2"]}, output=tmp_path, held_out_episodes=1,
    )  # fmt: skip
    for generation in range(6):
        members = run.front(generation)
        values = np.array([[member.fitness, -member.measures["mean_observation_2"]] for member in members])
        assert not fronts_of(values).any()
        stored = run.generations[generation].record.front
        assert [member.fitness for member in members] == [stored[member.candidate] for member in members]
        assert len(members) == np.count_nonzero(~np.isnan(stored))


def test_each_member_of_a_front_of_several_goals_can_be_chosen(call, tmp_path):
    run = evolve.train(
        env={"id": "Pendulum-v1", "engine": "exact", "metrics": ["mean_observation_2"]},
        normalize_observations=True, network={"name": "mlp", "hidden": [3]}, generations=6, population=24, episodes=1,
        strategy={"name": "nsga2", "minimize": ["acting_connections", "mean_observation_2"]}, output=tmp_path,
        held_out_episodes=1,
    )  # fmt: skip
    _, *rows = rows_of_genomes(store.read(run.path))
    members = run.front()
    # With several goals another member may be better with as few connections, so this count cannot choose all of them.
    assert len({member.measures["acting_connections"] for member in members}) < len(members)
    assert [row[0] for row in rows] == [f"--member {n}" for n in range(len(members))]
    for n, member in enumerate(members):
        assert run.champion(member=n).genome == member.genome
    last = len(members) - 1
    evaluation = run.evaluate(episodes=2, member=last)
    done = call("evaluate", run.path, "--member", last, "--episodes", 2)
    assert f"member {last} of the front, 2 held-out episodes" in done.ok().out
    found = json.loads(call("evaluate", run.path, "--member", last, "--episodes", 2, "--json").out)
    assert (found["member"], found["returns"]) == (last, evaluation.returns.tolist())
    assert f"return {float(evaluation.returns[0])!r}" in call("replay", run.path, "--member", last).ok().out
    call("plot", run.path, "--network", "--member", last, "-o", "network.svg").ok()
    call("export", run.path, "--member", last, "-o", "one.json").ok()
    call("evaluate", run.path, "--member", last + 1).refused(f"member (--member): expected one of 0 to {last}, got")
    call("replay", run.path, "--member", 0, "--cell", "1").refused("member and cell")
    settings = run.config.model_copy(update={"strategy": evolve.Config(env="Pendulum-v1", strategy="ga").strategy})
    started = evolve.train(settings, start_from={"file": str(run.path), "member": 1}, output=tmp_path / "next")
    assert started.start.weights.tobytes() == members[1].genome.weights.tobytes()


def test_volumes_of_several_runs_have_one_reference(made):
    stored = store.read(made.path)
    first = replace(stored, records=stored.records[:1])
    whole, point = (line.get_ydata() for line in figures.draw_front([stored, first]).axes[1].lines)
    assert whole[0] == point[0]
    assert whole[0] < whole[-1]


def test_equal_fronts_of_several_runs_are_all_visible(made):
    stored = store.read(made.path)
    panel = figures.draw_front([stored, stored]).axes[0]
    steps = [line for line in panel.lines if line.get_marker() != "D"]
    assert [line.get_linestyle() for line in steps] == ["--", "--"]  # one has its dashes in the gaps of the other
    assert len({line.get_marker() for line in steps}) == 2
    large, small = (line.get_markersize() for line in panel.lines if line.get_marker() == "D")
    assert large > small
    assert steps[0].get_xdata().tolist() == steps[1].get_xdata().tolist()


def test_a_race_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"racing\.rounds: expected no rounds with nsga2, .* more than their fitness"):
        evolve.train(env="CartPole-v1", strategy="nsga2", episodes=4, racing={"rounds": [1]}, output=tmp_path)


def test_the_fronts_of_a_run_take_no_memory_for_all_genomes(tmp_path):
    run = evolve.train(
        env={"id": "CartPole-v1", "engine": "exact", "max_episode_steps": 1, "metrics": ["mean_observation_2"]},
        normalize_observations=True, network={"name": "mlp", "hidden": [128, 128]}, generations=1, population=64,
        episodes=1, strategy={"name": "nsga2", "minimize": ["mean_observation_2"], "parents": 2}, output=tmp_path,
        held_out_episodes=0,
    )  # fmt: skip
    tracemalloc.start()
    try:
        run.front()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    weights = run.experiment.network.num_weights
    assert peak < 64 * weights  # a float and a mask for each would be five times as much


def test_a_front_and_its_genomes_are_shown_from_python(made, tmp_path):
    picture = made.plot_front()
    assert "acting connections (fewer is better)" in picture.figure.axes[0].get_xlabel()
    assert picture.save(tmp_path / "a.png").is_file()
    stored = store.read(made.path)
    first = replace(stored, records=stored.records[:1])
    drawn = figures.draw_front([first, first])  # a single generation is a point
    assert [line.get_marker() for line in drawn.axes[1].lines] == ["o", "o"]
    assert drawn.axes[1].get_xlim() == (-0.5, 0.5)
    for runs in ([stored, first], [first, stored]):  # the point of one generation hides no line of several
        assert figures.draw_front(runs).axes[1].get_xlim()[1] >= len(stored.records) - 1
    assert drawn.get_suptitle().endswith("nsga2, seed 3")
    lines = figures.draw_front([first] * 12).axes[0].get_legend().get_lines()
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}) == 12
    small = int(made.front()[0].measures["acting_connections"])
    title = f"best with at most {small} acting connection"
    assert title in made.plot_network(connections=small).title
    evaluation = made.evaluate(episodes=2, connections=small)
    film = made.film(connections=small, episode=1, seconds=0.1)
    assert film.title.startswith(title)
    assert film.title.endswith(f"held-out episode 1: return {evaluation.returns[1]:.2f}")
    with pytest.raises(InputError, match="traces: expected the final champion"):
        made.plot_network(connections=small, traces=True)
    with pytest.raises(InputError, match="a run with an archive"):
        made.plot_archive()


def test_a_front_is_drawn(made, call, tmp_path):
    store.create(tmp_path / "seed-9.h5", store.Header("", {}, 9, "x")).close()
    done = call("plot", "seed-9.h5", made.path, "--front", "-o", "front.svg").ok()
    assert "no generation is complete yet, so these are left out: seed-9.h5\n" in done.err
    drawn = (tmp_path / "front.svg").read_text()
    assert all(words in drawn for words in ("acting connections", "Hypervolume", "generation 4", "seed 3"))
    assert call("plot", made.path, "--front", "--load").code == 2
    small = int(made.front()[0].measures["acting_connections"])
    words = ("plot", made.path, "--network", "--connections", small, "-o", "network.svg")
    call(*words).ok()
    assert f"best with at most {small} acting connection" in (tmp_path / "network.svg").read_text()
    assert call(*words, "--traces").code == 2
    assert call("plot", made.path, "--connections", small).code == 2


def test_fronts_of_other_goals_are_not_drawn_together(call, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    fixed = {
        "env": {"id": "Pendulum-v1", "engine": "exact", "metrics": ["mean_observation_2"]}, "episodes": 1,
        "network": {"name": "mlp", "hidden": [3]}, "generations": 1, "population": 4, "normalize_observations": True,
        "held_out_episodes": 0,
    }  # fmt: skip
    for goal, other, seeds in (("minimize", "maximize", (1, 2)), ("maximize", "minimize", (1,))):
        strategy = {"name": "nsga2", "parents": 2, goal: ["mean_observation_2"], other: []}
        for seed in seeds:
            evolve.train(**fixed, strategy=strategy, seed=seed, output=goal)
    names = [f"Pendulum-v1: {goal} mean_observation_2" for goal in ("maximize", "minimize")]
    said = f"FILE: expected runs of one environment with the same objectives, got {' and '.join(names)}."
    call("plot", "minimize", "maximize", "--front").refused(said)
    call("plot", "minimize", "--front", "-o", "seeds.svg").ok()
    assert "seed 2<" in Path("seeds.svg").read_text()
    evolve.train(**fixed | {"population": 6}, strategy=strategy, seed=1, output="larger")
    call("plot", "maximize", "larger", "--front", "-o", "files.svg").ok()
    assert "maximize/seed-1.h5<" in Path("files.svg").read_text()
    assert "larger/seed-1.h5<" in Path("files.svg").read_text()


def test_a_metric_has_to_be_reported(call):
    call("run", *RUN, "--set", "strategy.minimize=['torque']", "-g", 1).refused(
        "env.metrics: expected torque among the metrics"
    )


def test_a_run_without_a_front_is_named(call, tmp_path):
    call("run", *RUN[:-4], "--strategy", "ga", "-g", 1, "-o", "plain").ok()
    run = evolve.load(tmp_path / "plain")
    with pytest.raises(InputError, match=r"expected a run with a front \(strategy nsga2\), got a run of ga\.$"):
        run.front()
    assert call("plot", "plain", "--front").code == 2


def test_a_run_file_whose_name_begins_with_an_underscore_is_in_the_legend(made, tmp_path):
    stored = store.read(made.path)
    runs = [replace(stored, path=tmp_path / name / "seed-3.h5") for name in ("_a", "b")]
    assert len(figures.draw_front(runs).axes[0].get_legend_handles_labels()[1]) == 2


def test_a_run_whose_candidates_all_failed_has_no_front_to_draw(made):
    stored = store.read(made.path)
    failed = [replace(record, fitness=np.full_like(record.fitness, np.nan)) for record in stored.records]
    with pytest.raises(InputError, match=r"a front after the last generation, got none, as every candidate failed"):
        figures.draw_front([replace(stored, records=tuple(failed))])


def test_the_front_of_another_package_s_strategy_is_not_drawn(made):
    stored = store.read(made.path)
    config = made.config.model_copy(update={"strategy": parse(Config, {"strategy": "ga"}).strategy})
    found = r"got a run of ga\. The fitness of its own front is run\.generations\[-1\]\.record\.front"
    with pytest.raises(InputError, match=rf"expected a run with a front \(strategy nsga2\), {found}"):
        figures.draw_front([replace(stored, header=replace(stored.header, config=config.to_toml()))])


def test_the_axis_of_a_front_suits_the_fronts_that_are_drawn(made, monkeypatch):
    """A logarithmic axis of few connections needs more ticks than 1 and 10."""
    stored = store.read(made.path)
    early, late = (Front(np.arange(2), np.array([1.0, 2.0]), np.array([[2.0], [most]])) for most in (100.0, 8.0))
    monkeypatch.setattr(comparison, "front_history", lambda _run: [early, late])
    several = figures.draw_front([stored, stored]).axes[0]  # only the last fronts are drawn
    assert several.get_xscale() == "linear"
    alone = figures.draw_front([stored]).axes[0]
    assert alone.get_xscale() == "symlog"
    assert {2, 5, 10, 20, 50} <= set(alone.get_xticks())
