"""Figures, inspected as matplotlib objects: labels overlap nothing, for any values; and the graphs of networks."""

import re
from dataclasses import replace

import numpy as np
import pytest
from conftest import boxes, make_runs, texts_of
from gymnasium import spaces

import evolve
from evolve import networks, store
from evolve.analysis import comparison, figures
from evolve.analysis.comparison import compare_groups
from evolve.analysis.figures import style
from evolve.analysis.figures.network import connections_of
from evolve.analysis.figures.style import without_overlap
from evolve.analysis.run_groups import read_groups
from evolve.config import Config, parse
from evolve.environments import Spaces
from evolve.numerics.streams import Purpose, Stream
from evolve.training.experiment import prepare_policy


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two seeds of one experiment, and of another with more survivors."""
    folder = tmp_path_factory.mktemp("runs")
    quick = "-p 6 -r 2 -d 2 -g 5 -s 1 2 --set held_out_episodes=2 --set env.max_episode_steps=30"
    for name, more in (("a", ()), ("b", ("--set", "strategy.survivors=3"))):
        make_runs(folder, *quick.split(), *more, "-o", name)
    return folder


def test_labels_cover_neither_data_nor_one_another(runs):
    a, other_a, b, other_b = (runs / name / f"seed-{seed}.h5" for name in "ab" for seed in (1, 2))
    for files in ([a], [a, other_a], [a, b, other_b]):
        groups = read_groups(files)[1]
        labels, panels = boxes(figures.draw_curves(groups))
        assert labels
        assert not any(label.overlaps(panel) for label in labels for panel in panels), files
        shrunk = [label.shrunk(1.0, 0.9) for label in labels]
        assert not any(one.overlaps(other) for n, one in enumerate(shrunk) for other in shrunk[:n]), files


def test_texts_are_moved_apart_no_farther_than_needed():
    np.testing.assert_allclose(without_overlap([0.5, 0.5, 0.1], [0.2, 0.2, 0.1]), [0.4, 0.6, 0.1])
    np.testing.assert_allclose(without_overlap([0.3, 0.9], [0.2, 0.2]), [0.3, 0.9])
    np.testing.assert_allclose(without_overlap([1.0, 1.0], [0.5, 0.5]), [0.33, 0.83])  # they stay beside the panel
    assert len(without_overlap([], [])) == 0


def unpruned(group):
    """A group whose candidates keep all of their connections."""
    kept = [replace(r, connections=np.full_like(r.connections, 7)) for r in group.runs[0].records]
    return replace(group, runs=(replace(group.runs[0], records=tuple(kept)),))


def test_a_constant_quantity_has_no_panel_and_load_has_one_on_request(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    drawn = figures.draw_curves([unpruned(group)])
    assert [panel.get_title(loc="left") for panel in drawn.axes] == ["Fitness"]
    assert re.fullmatch("CartPole-v1: hebbian-dag .*prune, seed 1; 7 connections .*", drawn.get_suptitle())
    both = figures.draw_curves([unpruned(group)], load=True)
    assert [panel.get_title(loc="left") for panel in both.axes] == ["Fitness", "Throughput", "Idle workers"]
    assert [panel.yaxis.get_major_formatter()(3000) for panel in both.axes] == ["3,000", "3k", "3,000"]
    (records,) = (run.records for run in group.runs)
    (throughput,) = both.axes[1].lines
    np.testing.assert_allclose(throughput.get_ydata(), [record.steps / record.seconds for record in records])
    assert both.axes[1].get_ylabel() == "steps/s"


def test_curves_over_steps_compare_runs_at_equal_steps(runs):
    """One seed has few long generations, the other has many short ones; each gains its number of steps."""
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    (run,) = group.runs
    first = run.records[0]

    def seed(number, generations, steps):
        records = tuple(
            replace(first, steps=steps, champion_fitness=float(steps * (g + 1))) for g in range(generations)
        )
        return replace(run, header=replace(run.header, seed=number), records=records)

    both = replace(group, runs=(seed(1, 5, 1000), seed(2, 20, 250)))
    drawn = figures.draw_curves([both], "steps").axes[0]
    lines = [line.get_xydata() for line in drawn.lines if len(line.get_xydata()) > 5]
    (best,) = [points for points in lines if (points[:, 0] == points[:, 1]).all()]
    assert (best[0, 0], best[-1, 0], len(best)) == (1000, 5000, 17)
    assert figures.draw_curves([both]).axes[0].lines[0].get_xdata()[-1] == 4  # over generations


def test_no_search_is_marked_beyond_the_end_of_the_shortest_run(tmp_path):
    strategy = {"name": "snes", "pruning_every": 2}
    for seed in (1, 2):
        evolve.train(env={"id": "CartPole-v1", "engine": "exact"}, network="mlp", strategy=strategy, generations=6,
                     population=4, episodes=1, held_out_episodes=0, seed=seed, output=tmp_path)  # fmt: skip
    (group,) = read_groups(sorted(tmp_path.glob("*.h5")))[1]
    short, long = group.runs
    long = replace(long, records=tuple(replace(record, steps=50 * record.steps) for record in long.records))
    panel = figures.draw_curves([replace(group, runs=(short, long))], "steps").axes[0]
    end = panel.get_xlim()[1]
    assert all(text.get_position()[0] <= end for text in panel.texts if text.get_va() == "bottom")
    named = figures.draw_curves([group], "steps").axes[0].texts
    assert any(text.get_text() == "round 2" for text in named)


def test_a_damaged_file_whose_generations_took_no_time_is_drawn(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    (run,) = group.runs
    timeless = replace(run, records=tuple(replace(record, seconds=0.0) for record in run.records))
    drawn = figures.draw_curves([unpruned(replace(group, runs=(timeless,)))], load=True)
    (throughput,) = drawn.axes[1].lines
    assert np.isnan(throughput.get_ydata()).all()
    assert "rank 0" in figures.to_svg(figures.draw_load([("timeless", timeless)]), "x")
    unknown = replace(run, records=tuple(replace(record, seconds=np.nan) for record in run.records))
    assert figures.draw_curves([replace(group, runs=(unknown,))], "time").axes[-1].get_xlabel() == "minutes"


def test_a_note_explains_bands_and_marks_if_groups_share_a_panel(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    assert figures.draw_curves([group]).get_supxlabel() == ""
    note = figures.draw_curves([group, replace(group, label="b", runs=group.runs * 2)]).get_supxlabel()
    assert note.startswith("lines and bands: median and quartiles of the seeds; marks and bars: held-out mean")


def test_a_note_counts_the_failed_candidates_that_curves_leave_out(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    fitness = np.array([np.nan, np.nan, 1.0, 2.0, 3.0, 4.0])
    first, *others = group.runs[0].records
    run = replace(group.runs[0], records=(replace(first, fitness=fitness), *others))
    failed = replace(group, runs=(run,))
    note = figures.draw_curves([failed]).get_supxlabel()
    assert note.startswith("2 of 30 candidates failed")
    # In a growing population, these two have not played.
    growing = failed.config.model_copy(update={"least_population": 4})
    lengths = np.concatenate([np.zeros_like(first.lengths[:2]), first.lengths[2:]])
    run = replace(run, records=(replace(first, fitness=fitness, lengths=lengths), *others))
    assert figures.draw_curves([replace(failed, config=growing, runs=(run,))]).get_supxlabel() == ""


def test_environments_have_panels_of_their_own(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    env = group.config.env.model_copy(update={"id": "Acrobot-v1"})
    other = replace(group, config=group.config.with_env(env))
    drawn = figures.draw_curves([group, other])
    titles = [panel.get_title(loc="left").split(":")[0] for panel in drawn.axes[::2]]
    assert titles == ["CartPole-v1", "Acrobot-v1"]


def test_the_held_out_mean_is_a_mark_at_the_edge(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    mean = group.runs[0].held_out.returns.mean()
    said = texts_of(figures.draw_curves([group]))
    assert any(text.startswith(f"held-out mean {mean:.2f}") for text in said)
    alone = replace(group, runs=(replace(group.runs[0], held_out=None),))
    assert not any("held-out" in text for text in texts_of(figures.draw_curves([alone])))


def test_returns_are_not_drawn_on_the_axis_of_a_fitness_function(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    own = replace(group, config=group.config.model_copy(update={"fitness": "scores:own"}))
    drawn = figures.draw_curves([own])
    said = texts_of(drawn)
    mean = group.runs[0].held_out.returns.mean()
    assert any(text.endswith(f"\nheld-out mean return {mean:.2f}") for text in said)
    assert not any("bar:" in text for text in said)
    assert "scores:own" in drawn.axes[0].get_ylabel()
    assert "marks" not in figures.draw_curves([own, replace(own, label="b")]).get_supxlabel()


def test_a_return_is_called_so_if_connections_cost_fitness(runs):
    """A mark could lie above the best fitness, so there is none."""
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    costly = replace(group, config=group.config.model_copy(update={"connection_cost": 5.0}))
    plain, changed = figures.draw_curves([group]), figures.draw_curves([costly])
    assert any("held-out mean return " in text for text in texts_of(changed))
    assert not any("held-out mean return " in text for text in texts_of(plain))
    assert len(changed.axes[0].lines) < len(plain.axes[0].lines)


def evolved_by(group, **strategy):
    """A group whose configuration names another strategy."""
    table = group.config.model_dump(mode="json", exclude_none=True) | {"strategy": strategy}
    return replace(group, config=parse(Config, table))


def strong_line(panel):
    """The values of the line in the colour of the first group."""
    return next(line.get_ydata() for line in panel.lines if line.get_color() == style.COLOURS[0])


def test_the_curve_of_an_evolution_strategy_is_the_mean_of_its_candidates(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    records = group.runs[0].records
    best = [record.champion_fitness for record in records]
    mean = [record.fitness.mean() for record in records]
    es = evolved_by(group, name="openai-es")
    for shown, values in ((group, best), (es, mean)):
        np.testing.assert_allclose(strong_line(figures.draw_curves([shown]).axes[0]), values)
    other = replace(evolved_by(group, name="pgpe"), label="other")
    both = figures.draw_curves([es, other])
    np.testing.assert_allclose(strong_line(both.axes[0]), mean)
    assert both.axes[0].get_ylabel() == "mean return\n(population mean)"
    mixed = figures.draw_curves([es, replace(group, label="ga")])
    assert any(text.startswith("ga (best)\n") for text in texts_of(mixed))
    assert mixed.axes[0].get_ylabel() == "mean return\n(best of generation or\npopulation mean)"


def test_starts_are_named_and_other_searches_are_triangles(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5", runs / "a" / "seed-2.h5"])[1]
    started = evolved_by(group, name="pgpe", starts=2, start_generations=2)
    drawn = figures.draw_curves([started])
    assert {"start 2", "best start"} <= set(texts_of(drawn))
    assert {1.5, 3.5} <= {line.get_xdata()[0] for line in drawn.axes[0].lines}
    assert not any("search" in text for text in texts_of(drawn))
    longer = tuple(replace(run, records=run.records * 20) for run in started.runs)
    crowded = figures.draw_curves([replace(started, runs=longer)])  # the names would overlap
    assert [line.get_xdata()[0] for line in crowded.axes[0].lines if line.get_marker() == "^"] == [1.5, 3.5]
    several = figures.draw_curves([started, replace(group, label="other")])
    assert [line.get_xdata()[0] for line in several.axes[0].lines if line.get_marker() == "^"] == [1.5, 3.5]
    (explained,) = (text for text in several.axes[0].texts if "search" in text.get_text())
    assert explained.get_text().startswith("\N{BLACK UP-POINTING TRIANGLE} a search restarts")
    assert explained.arrow_patch is None  # it would look like a longer axis


def test_equal_lines_take_turns():
    lines = [np.full(5, 30.0), np.arange(5.0), np.full(5, 30.0), np.array([30.0, 30.0, 30.0]), np.full(5, np.nan)]
    assert style.alternating_dashes(lines, from_zero=True) == [
        {"ls": (0.0, (6.0, 12.0))}, {}, {"ls": (6.0, (6.0, 12.0))}, {"ls": (12.0, (6.0, 12.0))}, {},
    ]  # fmt: skip
    assert style.alternating_dashes([np.full(3, np.nan)] * 2) == [{}, {}]


def whole(connections, inputs, outputs):
    """An unpruned network of which all is drawn."""
    return figures.DrawnNetwork(connections, connections, len(connections), inputs, outputs)


def test_a_legend_names_the_signs_that_there_are():
    network = networks.make({"name": "mlp", "hidden": []}, 2, 1)
    for weights, entries in (
        ([1, 2, 0.5], ["positive weight"]),
        ([-1, 2, 0], ["positive weight", "negative weight", "weight of 0"]),
    ):
        connections = connections_of(network, np.ones(3, np.bool_), np.array(weights, np.float32))
        drawn = figures.draw_network(whole(connections, ("a", "b", "bias"), ("c",)))
        assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == entries


def test_hidden_biases_are_named():
    network = networks.make({"name": "mlp", "hidden": [2]}, 2, 1)
    every = connections_of(network, np.ones(9, np.bool_), np.ones(9, np.float32))
    drawn = figures.draw_network(whole(every, ("a", "b", "c"), ("d",)))
    assert [text for text in texts_of(drawn) if text in {"bias", "a", "b", "c", "d"}] == ["a", "b", "c", "d", "bias"]


def connected(table, left, strength, observations=2):
    """The connections of a network with O = 2 and A = 1, as (source, tail, target, head, strength)."""
    network = networks.make(table, observations, 1)
    found = connections_of(network, np.array(left, np.bool_), np.array(strength, np.float32))
    ends = (found.source_layer, found.source_neuron, found.target_layer, found.target_neuron, found.strength)
    return found.sizes, list(zip(*(end.tolist() for end in ends), strict=True))


def test_biases_are_a_neuron_more():
    sizes, connections = connected({"name": "mlp", "hidden": [1]}, [1, 0, 1, 1, 1], [0.5, 0, 0.25, 2, -1])
    assert sizes == (3, 2, 1)
    assert connections == [(0, 0, 1, 0, 0.5), (0, 2, 1, 0, 0.25), (1, 0, 2, 0, 2.0), (1, 1, 2, 0, -1.0)]


def test_connections_without_an_effect_are_left_out():
    """A neuromodulator without an effect; hidden neurons that feed only it, or that have no input."""
    # [2, 2, 1 + 1]: [2, 2] into the hidden layer, then [2, 2] and [2, 2] into modulator and action
    table = {"name": "hebbian-dag", "hidden": [2]}
    left = [1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 1]
    strength = np.arange(12)
    sizes, connections = connected(table, left, strength)
    assert sizes == (2, 2, 2)
    assert connections == []  # hidden neuron 0 feeds the modulator only, and nothing feeds neuron 1
    listening = connected(table | {"neuromodulated": True}, left, strength)[1]
    assert listening == [(0, 0, 1, 0, 0.0), (0, 1, 1, 0, 2.0), (0, 0, 2, 0, 4.0), (1, 0, 2, 0, 8.0)]
    acting = connected(table, [1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0], strength)[1]
    assert acting == [(0, 0, 1, 0, 0.0), (0, 0, 2, 1, 5.0), (1, 0, 2, 1, 9.0)]


def test_signs_differ_in_print_without_colours():
    network = networks.make({"name": "mlp", "hidden": []}, 2, 1)
    connections = connections_of(network, np.ones(3, np.bool_), np.array([1, -1, 1], np.float32))
    drawn = figures.draw_network(whole(connections, ("a", "b", "bias"), ("c",)))
    (curves,) = [each for each in drawn.axes[0].collections if each.get_gid() == "connections"]
    linear = np.unique(curves.get_edgecolors()[:, :3], axis=0) ** 2.2
    one, other = np.sort(linear @ (0.2126, 0.7152, 0.0722)) + 0.05
    assert other / one > 2


def test_cells_that_steer_the_network_act():
    """[1, 2, 1]: cells 0 and 1 of an LSTM act without a connection to the action."""
    left = np.zeros(4 * 6 + 2)
    left[0] = 1  # the observation into cell 0, by the first gate
    assert len(connected({"name": "hebbian-lstm", "hidden": [2]}, left, left, 1)[1]) == 1


def test_few_connections_have_their_weights_and_of_many_the_strongest_are_drawn(runs):
    def texts(drawn):
        return [text.get_text() for text in drawn.axes[0].texts]

    network = networks.make({"name": "dag", "hidden": []}, 2, 1)
    few = connections_of(network, np.ones(2, np.bool_), np.array([1.25, -0.5], np.float32))
    drawn = figures.draw_network(whole(few, ("a", "b"), ("c",)))
    assert {"1.25", "−0.50"} <= set(texts(drawn))
    assert {text.get_color() for text in drawn.axes[0].texts} == {style.INK}  # colours of lines are too pale for texts
    assert drawn.axes[0].get_legend().get_title().get_text().startswith("line width grows with |weight|")
    network = networks.make({"name": "dag", "hidden": []}, 300, 2)
    weights = np.linspace(-1, 0.5, 600, dtype=np.float32)
    many = connections_of(network, np.ones(600, np.bool_), weights)
    np.testing.assert_array_equal(many.strongest(60).strength, weights[:60])
    inputs = tuple(map(str, range(300)))
    title = figures.draw_network(whole(many, inputs, ("c", "d"))).axes[0].get_legend().get_title()
    assert title.get_text().startswith("line width and opacity grow with |weight|")


def test_a_network_that_sees_an_image_has_about_two_thousand_curves():
    config = Config(network={"name": "mlp", "hidden": [40]}, strategy="openai-es")
    box = spaces.Box(0, 255, (30, 30), np.uint8)
    experiment = prepare_policy(config, Spaces(box, spaces.Discrete(2)))
    genome = experiment.network.init(Stream(1, Purpose.INIT, 0, 0))
    drawn = figures.network_of(genome, experiment)
    assert len(drawn.acting) > 30_000
    assert 2000 <= len(drawn.shown) <= 2002  # rounded up in each matrix


@pytest.mark.parametrize(("kind", "text"), [("dag", "768 observations"), ("mlp", "768 observations, 1 bias")])
def test_a_bias_is_not_counted_as_an_observation(kind, text):
    network = networks.make({"name": kind, "hidden": []}, 768, 1)
    every = connections_of(network, np.ones(network.num_weights, np.bool_), np.ones(network.num_weights))
    inputs = tuple([f"observation {n}" for n in range(768)] + ["bias"] * (every.sizes[0] - 768))
    drawn = figures.DrawnNetwork(every, every.strongest(20), len(every), inputs, ("action 0",))
    assert text in texts_of(figures.draw_network(drawn))
    parts = ("goal 0", "goal 1", *(f"pixel {n}" for n in range(every.sizes[0] - 2)))
    of_dict = figures.DrawnNetwork(every, every.strongest(20), len(every), parts, ("action 0",))
    assert f"2 goals, {every.sizes[0] - 2} pixels" in texts_of(figures.draw_network(of_dict))
    many = tuple(f"part{n % 5} {n}" for n in range(every.sizes[0]))
    of_many = figures.DrawnNetwork(every, every.strongest(20), len(every), many, ("action 0",))
    assert f"{every.sizes[0]} neurons" in texts_of(figures.draw_network(of_many))


def test_the_strongest_of_each_matrix_are_drawn():
    network = networks.make({"name": "mlp", "hidden": [20]}, 9, 3)
    weights = np.linspace(9, 1, network.num_weights, dtype=np.float32)  # those of the last layer are the smallest
    every = connections_of(network, np.ones(network.num_weights, np.bool_), weights)
    few = every.strongest(len(every) // 10)
    assert [int((few.target_layer == layer).sum()) for layer in (1, 2)] == [20, 7]
    assert few.connected[2]
    assert len(every.strongest(2 * len(every))) == len(every)
    assert len(every.strongest(0)) == 0


def test_recurrent_connections_stay_within_their_layer():
    # W [2, 1]; U and b [2, 1]; V and c [2, 1]
    sizes, connections = connected({"name": "elman", "hidden": [1]}, [0, 1, 1, 1, 1, 0], [0, 1, 2, 3, 4, 0])
    assert sizes == (2, 2, 1)
    assert connections == [(0, 1, 1, 0, 1.0), (1, 0, 1, 0, 2.0), (1, 1, 1, 0, 3.0), (1, 0, 2, 0, 4.0)]


def test_a_rule_is_drawn_as_the_connections_that_have_it():
    # [2] -> [1]: A, B, C, D and η of the only neuron; A is gone, η is not
    assert connected({"name": "plastic-mlp", "hidden": [], "rules": "neuron"}, [0, 0, 0, 0, 1], [0, 0, 0, 0, 7])[1] == [
        (0, 0, 1, 0, 0.0), (0, 1, 1, 0, 0.0),
    ]  # fmt: skip
    synapses = connected({"name": "plastic-mlp", "hidden": []}, [0, 1, *[0] * 8], [0, 3, *[0] * 8])
    assert synapses == ((2, 1), [(0, 1, 1, 0, 3.0)])


def huge(run, sign):
    """A run with returns and fitness near the largest float."""
    records = tuple(
        replace(record, returns=record.returns * 1e306, fitness=np.full(6, sign * 1e308), champion_fitness=sign * 1e308)
        for record in run.records
    )
    held_out = replace(run.held_out, returns=np.array([1.7e308, -1.7e308]) * sign)
    return replace(run, records=records, held_out=held_out)


def test_values_near_the_largest_float_can_be_drawn(runs):
    groups = read_groups(sorted(runs.glob("*/*.h5")))[1]
    groups = [replace(g, runs=tuple(huge(r, s) for r, s in zip(g.runs, (1, -1), strict=True))) for g in groups]
    for shown in (groups, groups[:1], [replace(groups[0], runs=groups[0].runs[:1])]):
        figures.to_svg(figures.draw_curves(shown), "x")
    figures.to_svg(figures.draw_comparison(compare_groups(groups)), "x")
    figures.to_svg(figures.draw_returns([("x", groups[0].runs[0].held_out.returns)]), "x")


@pytest.mark.parametrize("returns", [[1.0, 1.0 + 2**-52], [1e17, 1e17]])
def test_returns_that_are_equal_but_for_rounding_errors_are_one_bar(returns):
    (bars,) = figures.draw_returns([("x", np.array(returns))]).axes[0].containers
    assert sorted({bar.get_height() for bar in bars}) == [0, 2]


def test_a_run_without_any_fitness_can_be_drawn(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    none = {"fitness": np.full(6, np.nan), "champion_fitness": np.nan}
    run = replace(group.runs[0], records=tuple(replace(record, **none) for record in group.runs[0].records))
    failed = replace(group, runs=(replace(run, held_out=replace(run.held_out, returns=np.full(2, np.nan))),))
    drawn = figures.draw_curves([failed])
    assert "no candidate has a fitness" in texts_of(drawn)
    assert drawn.axes[0].get_xlim() == (0, 4)
    found = compare_groups([failed])
    assert (found.score, found.notes) == (comparison.TRAINING, (f"Every held-out episode failed: {run.path}.",))


def test_a_single_generation_is_a_point(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    one = replace(group, runs=(replace(group.runs[0], records=group.runs[0].records[:1]),))
    panel = figures.draw_curves([one]).axes[0]
    assert [line.get_marker() for line in panel.lines[:2]] == ["o", "o"]
    assert panel.get_xlim() == (-0.5, 0.5)
    pointers = {text.get_text(): text.arrow_patch.get_linestyle() for text in panel.texts}
    assert pointers["best of generation"] == ":"  # it crosses half of the panel


def test_a_value_between_generations_without_fitness_is_a_point(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    none = {"fitness": np.full(6, np.nan), "champion_fitness": np.nan}
    records = [replace(record, **none) if n != 1 else record for n, record in enumerate(group.runs[0].records)]
    panel = figures.draw_curves([replace(group, runs=(replace(group.runs[0], records=tuple(records)),))]).axes[0]
    assert [(line.get_marker(), line.get_markevery()) for line in panel.lines[:2]] == [("o", [1])] * 2


def test_many_groups_have_no_bands(runs):
    """The bands of groups that share colours would cover one another."""
    (group,) = read_groups([runs / "a" / "seed-1.h5", runs / "a" / "seed-2.h5"])[1]
    for count, bands, note in ((6, 6, "lines and bands: median and quartiles"), (7, 0, "lines: median of the seeds;")):
        drawn = figures.draw_curves([replace(group, label=f"group {n}") for n in range(count)])
        assert len(drawn.axes[0].collections) == bands
        assert drawn.get_supxlabel().startswith(note)


def test_of_more_groups_than_styles_the_best_have_styles_and_labels(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    (run,) = group.runs
    scored = [replace(run, held_out=replace(run.held_out, returns=np.full(2, float(n % 7)))) for n in range(40)]
    drawn = figures.draw_curves([replace(group, label=f"group {n}", runs=(run,)) for n, run in enumerate(scored)])
    panel = drawn.axes[0]
    labels = [text for text in texts_of(drawn) if text.startswith("group ")]
    assert len(labels) == style.MOST_STYLES
    assert not any(text.endswith(("mean 0.00", "mean 1.00")) for text in labels)
    keys = {(text.arrow_patch.get_edgecolor(), text.arrow_patch.get_linestyle()) for text in panel.texts}
    assert len(keys) == style.MOST_STYLES
    assert sum(line.get_color() == style.PALE for line in panel.lines) == 16
    assert drawn.get_supxlabel().startswith("grey: 16 experiments")
    # 24 marks at five values are in ten columns, and none covers another.
    places = [(line.get_ydata()[0], tuple(line.get_transform().transform((1, 0)))) for line in panel.lines
              if line.get_marker() in "Dso^" and line.get_ydata()[0] in range(7)]  # fmt: skip
    assert len(places) == len(set(places)) == style.MOST_STYLES


def test_ticks_of_large_numbers_keep_their_decimals(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    panel = figures.draw_curves([group]).axes[0]
    texts = [panel.yaxis.get_major_formatter()(value) for value in (999999998.25, -0.1 * 3, 12345678901)]
    assert texts == ["999,999,998.25", "−0.3", "12,345,678,901"]


def test_the_dashed_line_of_a_long_run_has_means(runs):
    """The dashes between thousands of points would cover the figure."""
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    long = replace(group, runs=(replace(group.runs[0], records=group.runs[0].records * 400),))
    drawn = figures.draw_curves([long])
    (dashed,) = (line for line in drawn.axes[0].lines if line.get_linestyle() == "--")
    assert len(dashed.get_xdata()) == 286
    records = group.runs[0].records
    np.testing.assert_allclose(dashed.get_ydata()[0], np.mean([r.fitness for r in (*records, *records[:2])]))
    assert "population mean\n(means of 7 points)" in texts_of(drawn)
    assert drawn.axes[0].xaxis.get_major_formatter()(2000) == "2,000"


def test_titles_of_long_names_are_wrapped(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    name = "robotics:HandManipulateBlockRotateZ_BooleanTouchSensorsDense_AndMore_WWWWWWWWWWWWWWWW-v1"
    long = replace(group, config=group.config.with_env(group.config.env.model_copy(update={"id": name})))
    for drawn in (figures.draw_curves([long]), figures.draw_curves([group, long])):
        drawn.draw_without_rendering()
        (title,) = (text for text in drawn.texts if text.get_text() == drawn.get_suptitle())
        titles = [title, *(panel.title for panel in drawn.axes)]
        assert all(text.get_window_extent().x1 <= drawn.bbox.x1 for text in titles)
    drawn = figures.draw_comparison(compare_groups([group, long]))
    drawn.draw_without_rendering()
    panel = drawn.axes[1]
    (title,) = (
        child
        for child in panel.get_children()
        if getattr(child, "get_text", str)() == panel.get_title(loc="left") != ""
    )
    heads = [text for text in panel.texts if text.get_text() == "mean"]
    assert not any(title.get_window_extent().overlaps(head.get_window_extent()) for head in heads)
    assert title.get_window_extent().x1 <= drawn.bbox.x1


def test_a_panel_is_high_enough_for_the_labels_of_many_groups(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    drawn = figures.draw_curves([replace(group, label=f"group {n}") for n in range(20)])
    labels = [text for text in texts_of(drawn) if text.startswith("group ")]
    assert len(labels) == 20
    fitness, connections = (panel.get_gridspec().get_height_ratios()[n] for n, panel in enumerate(drawn.axes))
    assert fitness > style.height_for_labels(labels) > 3 * connections


def test_the_labels_of_several_lines_have_samples_of_the_lines_and_marks(runs):
    """Lines that end early would have pointers across the panel; of twelve lines, two have each colour."""
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    short = replace(group.runs[0], records=group.runs[0].records[:2])
    groups = [replace(group, label=f"group {n}", runs=(short,) if n else group.runs) for n in range(12)]
    panel = figures.draw_curves(groups).axes[0]
    keys = [text.arrow_patch for text in panel.texts]
    assert len({(key.get_edgecolor(), key.get_linestyle()) for key in keys}) == 12
    assert all(key.get_linestyle() in ("-", "--") for key in keys)
    assert all(text.xy[1] == text.xyann[1] for text in panel.texts)  # a key is level with its text
    marks = [line for line in panel.lines if line.get_marker() in ("D", "s")]
    # Each mark has its shape in the key and beside the panel.
    assert sorted(line.get_marker() for line in marks) == ["D"] * 12 + ["s"] * 12


def test_the_details_of_a_label_stay_in_one_line(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    long = replace(group, label="a name of twenty char", runs=group.runs * 2)
    said = texts_of(figures.draw_curves([long, replace(evolved_by(group, name="pgpe"), label="b")]))
    assert any(text.startswith("a name of twenty char\n(2 seeds,") for text in said)
    swept = replace(group, label="population 8, weight_noise 0.5")
    said = texts_of(figures.draw_curves([swept, replace(group, label="b")]))
    assert any(text.startswith("population 8,\nweight_noise 0.5") for text in said)


def test_seeds_of_equal_scores_can_be_counted(runs):
    """Dots stand above one another, on top of all else."""
    groups = read_groups(sorted(runs.glob("*/*.h5")))[1]
    equal = [replace(run, held_out=replace(run.held_out, returns=np.full(3, 500.0))) for run in groups[0].runs]
    drawn = figures.draw_comparison(compare_groups([replace(groups[0], runs=tuple(equal)), groups[1]]))
    (dots,) = (line for line in drawn.axes[0].lines if line.get_marker() == "o" and line.get_xdata()[0] == 500)
    assert len(set(dots.get_ydata())) == 2
    said = texts_of(drawn)
    assert {"mean", "95 % interval", "against the best", "500.00", "best"} <= set(said)


def test_large_numbers_stand_beside_the_panel(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5", runs / "a" / "seed-2.h5"])[1]
    far = [replace(run, held_out=replace(run.held_out, returns=np.array([-3e12, -5e12]))) for run in group.runs]
    labels, (panel,) = boxes(figures.draw_comparison(compare_groups([replace(group, runs=tuple(far))])))
    assert not any(label.overlaps(panel) for label in labels)
    assert not any(one.overlaps(other) for n, one in enumerate(labels) for other in labels[:n])


def test_idle_workers_are_the_mean_over_the_workers_that_were_present(runs):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    (run,) = group.runs
    busy = ([0.1, 2.0, 1.0], [0.1, np.nan, 0.5], [0.1, np.nan, np.nan])  # rank 0 coordinates
    records = [replace(run.records[0], busy_seconds=np.array(ranks), seconds=2.0) for ranks in busy]
    drawn = figures.draw_curves([replace(group, runs=(replace(run, records=tuple(records)),))], load=True)
    (idle,) = drawn.axes[-1].lines
    np.testing.assert_allclose(idle.get_ydata(), [25.0, 75.0, 0.0])


def test_the_load_of_many_ranks_has_no_names(runs):
    run = store.read(runs / "a" / "seed-1.h5")
    busy = np.linspace(0, 1, 64)
    records = tuple(replace(record, busy_seconds=busy, seconds=2.0) for record in run.records)
    svg = figures.to_svg(figures.draw_load([("many", replace(run, records=records))]), "x")
    assert ">rank<" in svg
    assert "rank 63" not in svg
    few = figures.to_svg(figures.draw_load([("few", run), ("again", run)]), "x")
    for text in (">rank 0<", ">few<", ">again<", " s, "):
        assert text in few


def test_the_load_of_many_runs_is_a_sum(runs):
    run = store.read(runs / "a" / "seed-1.h5")

    def of(*busy):
        return replace(run, records=(replace(run.records[0], busy_seconds=np.array(busy), seconds=2.0),))

    drawn = figures.draw_load([("one", of(1.0))] * 10 + [("two", of(0.5, 2.0))])
    assert [panel.get_title(loc="left") for panel in drawn.axes] == ["sum of 11 runs"]
    assert {"10.50 s, 48 %", "2.00 s, 9 %"} <= set(texts_of(drawn))


def test_the_returns_of_many_champions_are_a_histogram_of_their_means():
    champions = [(str(n), np.array([0.0, 2.0 * n])) for n in range(11)]
    (panel,) = figures.draw_returns(champions).axes
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("mean return of a champion", "champions")
    (bars,) = panel.containers
    assert sum(bar.get_height() for bar in bars) == 11
    assert (bars[0].get_x(), bars[-1].get_x() + bars[-1].get_width()) == pytest.approx((0, 10))


def test_a_file_has_a_title_and_fonts_for_computers_without_the_first(runs):
    groups = read_groups([runs / "a" / "seed-1.h5"])[1]
    drawn = figures.draw_curves(groups)
    svg = figures.to_bytes(drawn, "svg").decode()
    assert svg == figures.to_bytes(figures.draw_curves(groups), "svg").decode()
    assert "<title>CartPole-v1: hebbian-dag" in svg
    assert "'DejaVu Sans', 'Verdana', " in svg
    assert set(re.findall('font-family: [^;]*?([a-z-]+)(?=[;"])', svg)) == {"sans-serif"}
    assert b"CartPole-v1: hebbian-dag" in figures.to_bytes(drawn, "pdf")
    assert b"Title\0CartPole-v1: hebbian-dag" in figures.to_bytes(drawn, "png")


def test_characters_that_the_font_lacks_are_named_once(runs, caplog):
    (group,) = read_groups([runs / "a" / "seed-1.h5"])[1]
    env = group.config.env.model_copy(update={"id": "平衡-v0"})
    drawn = figures.draw_curves([group, replace(group, config=group.config.with_env(env))])
    assert "平衡-v0" in figures.to_bytes(drawn, "svg").decode()
    assert "平衡-v0" in figures.to_svg(drawn, "x")
    assert not caplog.messages
    figures.to_bytes(drawn, "png")
    (message,) = caplog.messages
    assert "平, 衡" in message
    assert ".svg" in message


def test_the_mean_of_a_histogram_differs_from_its_bars():
    drawn = figures.draw_returns([("x", np.arange(30.0))])
    colours = [line.get_color() for line in drawn.axes[0].lines]
    assert colours == [style.PAPER, style.INK]


def test_drawing_leaves_the_user_s_settings_alone(runs):
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.to_svg(figures.draw_curves(read_groups([runs / "a" / "seed-1.h5"])[1]), "x")
    assert dict(matplotlib.rcParams) == before
