"""The plot command: the contents of its pictures for all kinds of files, with matplotlib and without."""

import re
import shutil
import signal

import numpy as np
import pytest
from conftest import ROOT, make_runs, wait_for

from evolve import store
from evolve.analysis.figures.network import connections_of
from evolve.analysis.html import reported_champion
from evolve.training import reload

QUICK = ("-p", 6, "-r", 2, "-d", 2, "--set", "held_out_episodes=0", "--set", "env.max_episode_steps=30")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three seeds of one experiment, and of another with more survivors."""
    folder = tmp_path_factory.mktemp("runs")
    for name, more in (("a", ()), ("b", ("--set", "strategy.survivors=6"))):
        make_runs(folder, *QUICK, "-g", 5, *more, "-s", 1, 2, 3, "-o", name)
    return folder


def words(path):
    """All texts of an SVG figure."""
    return re.findall(r"<text [^>]*>([^<]+)</text>", path.read_text())


def test_one_run(call, runs, tmp_path):
    call("plot", runs / "a" / "seed-1.h5", "--load", "-o", "one.svg").ok()
    texts = words(tmp_path / "one.svg")
    for text in ("CartPole-v1: hebbian-dag evolved by prune, seed 1", "Fitness", "mean return", "Connections left",
                 "generation", "best of generation", "population mean", "median candidate",
                 "steps/s", "% of the time"):  # fmt: skip
        assert text in texts, text


def test_seeds_are_summed_up_and_experiments_told_apart(call, runs, tmp_path):
    files = sorted(runs.glob("*/*.h5"))
    call("plot", *files[:3], "-o", "seeds.svg", "-x", "steps").ok()
    texts = words(tmp_path / "seeds.svg")
    assert "CartPole-v1: hebbian-dag evolved by prune, seeds 1, 2, 3" in texts
    assert {"best of generation: median", "and quartiles of 3 seeds"} <= set(texts)
    assert "environment steps" in texts
    assert not {"steps/s", "% of the time"} & set(texts)
    call("plot", files[0], "-o", "both.svg", *files[1:], "-x", "time").ok()
    texts = words(tmp_path / "both.svg")
    assert {"survivors 4", "survivors 6"} <= set(texts)
    assert "CartPole-v1: hebbian-dag evolved by prune, 2 experiments, seeds 1, 2, 3" in texts
    assert "seconds" in texts  # which such short runs have


def test_a_drawing_may_be_a_pdf(call, runs, tmp_path):
    call("plot", runs / "a" / "seed-1.h5", "--final", "-o", "one.pdf").ok()
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    assert [p.name for p in tmp_path.glob("*one*")] == ["one.pdf"]


def test_a_running_and_a_killed_file(start, call, tmp_path):
    slow = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.003", *QUICK[:-2])
    process = start("run", *slow, "-g", 9999, "-o", "out")
    path = store.path_of(tmp_path / "out", 0)
    wait_for(path.exists, process.output)
    live = start("plot", path, "-o", "live.png", "--live")
    wait_for(lambda: live.output()[0].count("live.png") >= 2, live.output)
    process.kill()
    process.popen.wait()
    live.popen.send_signal(signal.SIGINT)
    assert live.wait().code == 0
    assert (tmp_path / "live.png").exists()
    call("plot", path, "-o", "killed.png").ok()


def test_drawings_do_not_overwrite_one_another_and_live_ends_with_the_run(call, runs, tmp_path):
    for more in (("--live",), ("--final",), ("--network",)):
        call("plot", runs / "a" / "seed-1.h5", *more).ok()
    assert {p.name for p in tmp_path.iterdir()} == {"curves.png", "final.png", "network.png"}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in tmp_path.iterdir())


def test_live_names_the_file_that_it_waits_for(start, tmp_path):
    live = start("plot", tmp_path / "typo", "-o", "live.png", "--live")
    wait_for(lambda: f"waiting for a complete generation in {tmp_path / 'typo'}" in "".join(live.output()), live.output)


def test_seeds_of_several_lengths_are_said(call, runs, tmp_path):
    short = [*QUICK, "-g", 2, "-s", 4, "-o", "short"]
    call("run", *short).ok()
    files = (runs / "a" / "seed-1.h5", "short/seed-4.h5")
    said = "evolve.plot: seeds have 2 to 5 generations: curves stop at the shortest run"
    assert call("plot", *files).err.startswith(said)
    mixed = "Means mix champions that were trained for different lengths: hebbian-dag (2 to 5 generations).\n"
    assert mixed in call("plot", *files, "--final").out
    assert {p.name for p in tmp_path.glob("*.*")} == {"curves.png", "final.png"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "x.jpg"), "x.jpg cannot be written: the name has to end with .png or .svg or .pdf."),
        (("-o", "/proc/x.png"), "/proc/x.png cannot be written: '/proc' takes no files."),
        (("-o", "nodir/x.png"), "nodir/x.png cannot be written: no such directory 'nodir'."),
        (("-x", "hours"), "hours"),
        (("--generation", "0"), "--generation: expected --network with it, to draw a network, got no --network."),
        (("--final", "--traces"), "--traces: expected --network with it"),
        (("--final", "--network"), "--network: expected no --final with it, got --final."),
        (("--final", "--live"), "--live: expected no --final with it, got --final."),
        (("--final", "--load"), "--load: expected a picture of curves with it, got --final"),
        (("--network", "-x", "time"), "-x/--over: expected a picture of curves with it, got --network"),
        (("missing.h5",), "no such file"),
        ((f"{300 * 'x'}.h5", "--live"), "expected a run file, got File name too long."),
    ],
)
def test_wrong_input(call, runs, arguments, message):
    done = call("plot", runs / "a" / "seed-1.h5", *arguments)
    done.refused(message)
    assert "partial" not in done.err


def test_an_empty_run_has_nothing_to_draw(call, tmp_path):
    store.create(store.path_of(tmp_path, 0), store.Header("", {}, 0, "x")).close()
    done = call("plot", "seed-0.h5")
    assert (done.code, "nothing to draw" in done.err) == (1, True)


def test_without_matplotlib(call, runs, absent):
    absent("matplotlib")
    call("plot", runs / "a" / "seed-1.h5").refused(f"pip install -e '{ROOT}[plot]'")
    call("run", *QUICK, "-g", 1).ok()


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    """The file of a run that has pruned most of its connections."""
    folder = tmp_path_factory.mktemp("pendulum")
    hard = "--set strategy.trace_pruning=0.2 --set strategy.uniform_pruning=0.1 --set held_out_episodes=0"
    make_runs(folder, *f"-e CartPole-v1 -p 8 -r 1 -g 12 -d 4 {hard} -o out".split())
    return store.path_of(folder / "out", 0)


def acting(path, generation):
    """How many connections of a generation's champion can act."""
    run = store.read(path)
    record = run.records[generation]
    network = reload(run).network
    found = connections_of(network, record.champion_mask, record.champion_weights)
    assert len(found) < np.count_nonzero(record.champion_mask)
    return len(found)


def edges(path):
    """How many connections an SVG drawing has."""
    group = path.read_text().split('<g id="connections">')[1].split("</g>")[0]
    return len(re.findall(r"<path d=", group)) or len(re.findall(r"<use ", group))


@pytest.mark.parametrize(("more", "kind"), [((), "weight"), (("--traces",), "trace")])
def test_a_network_is_drawn_with_its_remaining_connections(call, pendulum, tmp_path, more, kind):
    call("plot", pendulum, "--network", *more, "-o", "network.svg").ok()
    left = acting(pendulum, -1)
    texts = words(tmp_path / "network.svg")
    assert any(f": {left} of 32 acting connections" in text for text in texts)
    assert edges(tmp_path / "network.svg") == left
    for text in ("pole angle", "push left", f"positive {kind}", f"negative {kind}"):
        assert text in texts, text
    assert "neuromodulator" not in texts
    assert any(text.startswith("line width grows with |weight|, max ") for text in texts) == (kind == "weight")
    assert any(text.startswith("In each step a Hebbian trace grows") for text in texts) == (kind == "trace")


def test_any_generation_may_be_drawn(call, pendulum, tmp_path):
    call("plot", pendulum, "--network", "--generation", 0, "-o", "first.svg").ok()
    assert edges(tmp_path / "first.svg") == acting(pendulum, 0)
    call("plot", pendulum, "--network", "--generation", 99, "-o", "none.svg").refused(
        "generation (--generation): expected one of 0 to 11, got 99"
    )


def test_networks_of_any_size_can_be_drawn(call, tmp_path):
    """None left, and five thousand."""
    for hidden, pruning in (((2,), 1.0), ((60, 40), 0.0)):
        set_all = {"trace_pruning": pruning, "uniform_pruning": pruning, "uniform_pruning_chance": 1}
        settings = [word for key, value in set_all.items() for word in ("--set", f"strategy.{key}={value}")]
        run = ("-p", 4, "-r", 1, "-g", 2, "-d", *hidden, *settings, "--set", "held_out_episodes=0", "-o", hidden[0])
        call("run", *run).ok()
        call("plot", f"{hidden[0]}/seed-0.h5", "--network", "-o", f"{hidden[0]}.png").ok()


def test_experiments_are_compared(call, absent, runs, tmp_path):
    absent("scipy")  # which only groups of four seeds need
    files = [*sorted((runs / "a").glob("*.h5")), *sorted((runs / "b").glob("*.h5"))]
    done = call("plot", *files, "--final", "-o", "final.svg").ok()
    drawn = (tmp_path / "final.svg").read_text()
    assert "best fitness of the last generation, in training" in drawn
    assert "CartPole-v1: each dot is a seed, the diamond their mean, the band its 95 % interval" in drawn
    assert "p = " not in drawn + done.out  # nothing that three seeds could tell
    header, *rows = done.out.splitlines()[2:5]
    assert header.split() == ["experiment", "seeds", "mean", "95", "%", "interval", "against", "the", "best"]
    assert [row.split()[:3] for row in sorted(rows)] == [["survivors", "4", "3"], ["survivors", "6", "3"]]
    for name in ("seeds", "95 % interval"):  # numbers end where their names do
        end = header.index(name) + len(name)
        assert all(row[end - 1].isdigit() and row[end : end + 1] in " " for row in rows), done.out
    assert done.out.count("4 seeds in each group are enough") == 1
    assert "No run was evaluated on held-out episodes, so training fitness is compared" in done.out
    assert "(Student's t), not beyond " in done.out
    shutil.copy(files[0], tmp_path / "copy.h5")
    again = call("plot", *files, "copy.h5", files[1], "--final", "-o", "again.svg")
    assert again.out.replace("again.svg", "final.svg") == done.out
    left_out = f"left out: copy.h5 (equal to {files[0]}); {files[1]} (equal to {files[1]})"
    assert again.err == f"evolve.plot: a seed counts once, so these are {left_out}\n"
    against = call("plot", *files, "--final", "--control", "survivors 6").ok()
    assert against.out.splitlines()[2].endswith("against the control")
    assert sum(line.endswith("  control") for line in against.out.splitlines()) == 1
    call("plot", *files, "--final", "--control", "survivors 5").refused(
        "control (--control): expected the name of one experiment of CartPole-v1 (survivors 4; survivors 6)"
    )
    call("plot", *files, "--control", "survivors 6").refused("--control: expected --final with it")


def test_networks_without_traces_have_none_to_draw(call, tmp_path):
    call("run", *QUICK, "-g", 1, "-a", "mlp", "-o", "out").ok()
    call("plot", "out/seed-0.h5", "--network", "--traces", "-o", "none.svg").refused(
        "traces (--traces): expected a network that leaves Hebbian traces, got mlp"
    )


def test_remaining_coefficients_of_learning_rules_are_counted(call, tmp_path):
    call("run", *QUICK, "-g", 1, "-a", "plastic-mlp", "-o", "out").ok()
    call("plot", "out/seed-0.h5", "-o", "curves.svg").ok()
    assert any(text.endswith("; 60 coefficients throughout") for text in words(tmp_path / "curves.svg"))
    call("plot", "out/seed-0.h5", "--network", "-o", "network.svg").ok()
    left = int(store.read(tmp_path / "out/seed-0.h5").records[0].champion_mask.sum())
    assert any(
        f"12 of 12 acting connections, {left} of 60 coefficients" in text for text in words(tmp_path / "network.svg")
    )
    run = store.read(tmp_path / "out/seed-0.h5")
    assert reported_champion(run).connections == f"{left} of 60 coefficients"
