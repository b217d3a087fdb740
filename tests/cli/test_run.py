"""The command as its users meet it: results, messages, exit codes, on one rank and on several."""

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import h5py
import numpy as np
import psutil
import pytest
import warm
from conftest import ROOT, environment, finished, wait_for, without

from evolve import store
from evolve.analysis.progress import RunsClock
from evolve.cli.parser import steps_after
from evolve.cli.run import load
from evolve.config import Config, parse
from evolve.errors import InputError
from evolve.training import prepare

TINY = ("-p", 6, "-r", 2, "-g", 2, "-d", 3, "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=4")


def test_a_run_imports_no_report_and_only_its_own_kinds():
    """Each rank imports these modules at its start."""
    code = "import sys, evolve.cli.run; evolve.cli.run.load(['--strategy', 'pgpe']); print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True, env=environment()).split())
    assert {"evolve.strategies.search_gradients", "evolve.networks.hebbian"} <= loaded
    others = {"evolve.strategies.cma", "evolve.networks.layered", "evolve.environments.exact.bipedal_walker",
              "evolve.analysis.figures", "evolve.analysis.html", "evolve.analysis.video"}  # fmt: skip
    assert not (others | {"matplotlib", "mpi4py", "rich"}) & loaded


LIGHT = """
import sys
from evolve import cli, cluster
from evolve.cluster import supervision
def stop(*_):
    print(*sys.modules)
    sys.stdout.flush()
    sys.exit(5)
cluster.connect = supervision.supervise = stop
cli.start("run", sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("words", "rank", "needed", "spared"),
    [
        # h5py and the commands are rank 0's. NumPy and pydantic are needed to play, but not to start ranks.
        ((), 1, {"numpy", "evolve.rollouts"}, {"h5py", "evolve.cli.run", "evolve.verification", "evolve.analysis"}),
        (("--workers", "2"), None, {"subprocess"}, {"numpy", "pydantic", "h5py", "mpi4py", "evolve.cli.run"}),
    ],
    ids=["worker", "supervisor"],
)
def test_a_process_imports_only_what_its_part_in_a_run_needs(words, rank, needed, spared):
    """With two workers four processes import modules on the same cores."""
    ranks = {} if rank is None else {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": str(rank)}
    code = [sys.executable, "-c", LIGHT, *map(str, TINY), *words]
    done = subprocess.run(code, capture_output=True, text=True, env=environment(**ranks), check=False)
    assert done.returncode == 5, done.stderr
    loaded = set(done.stdout.split())
    assert needed <= loaded
    assert not spared & loaded


STARTED = """
import sys
from evolve.cli import app, run
def stop(*_):
    print(*sys.modules)
    sys.stdout.flush()
    raise run.Stopped("here")
run.iterate = stop
sys.exit(app.launch("run"))
"""


def test_the_first_generation_of_an_exact_task_begins_without_large_libraries(tmp_path):
    """So README's command begins to learn in less than a second."""
    words = ["-e", "BipedalWalker-v3", "--engine", "exact", *map(str, TINY), "--report", "--workers", "auto"]
    code = [sys.executable, "-c", STARTED, *words, "-o", tmp_path / "out"]
    loaded = set(subprocess.run(code, capture_output=True, text=True, env=environment(), check=False).stdout.split())
    assert "evolve.rollouts" in loaded
    large = {"matplotlib", "jinja2", "av", "PIL", "pygame", "gymnasium", "Box2D", "mpi4py", "rich", "scipy"}
    assert not large & loaded


@pytest.mark.cold
def test_a_run_leaves_a_whole_file_and_says_how_it_went(command, tmp_path):
    done = command("run", *TINY, "-s", 7)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].startswith("seed 7  generation 0 (1 of 2)  best fitness ")
    assert all(word in lines[1] for word in ("mean", "median connections", "steps/s", "ETA"))
    assert "champion, 4 held-out episodes: mean " in lines[-4]
    assert lines[-3:] == steps_after([Path("runs/CartPole-v1-hebbian-dag/seed-7.h5")]).splitlines()
    path = tmp_path / "runs" / "CartPole-v1-hebbian-dag" / "seed-7.h5"
    with h5py.File(path) as file:
        assert file.attrs["complete"]
        assert file["generation/returns"].shape == (2, 6, 2)
        assert file["evaluation/returns"].shape == (4,)
        fitness = file["generation/fitness"][()]
        assert np.allclose(fitness, file["generation/returns"][()].mean(axis=2))
        best = file["champion/fitness"][()]
        assert (best == fitness.max(axis=1)).all()
        ever = f"best of all {best.max():.2f}, in generation {best.argmax()}"
        digest = file["generation/digest"][1].decode()
        assert f"seed-7.h5: best of the last generation (1) {best[1]:.2f}; {ever}; digest {digest}\n" in done.out
        assert file["generation/steps"][0] == file["generation/lengths"][0].sum()
        assert file.attrs["seed"] == 7
    assert path.parent.joinpath("seed-7.h5").stat().st_size > 0
    assert [p.name for p in path.parent.iterdir()] == ["seed-7.h5"]


def test_settings_of_another_strategy_in_the_file_are_named_with_the_cure(call, tmp_path):
    (tmp_path / "a.toml").write_text('[strategy]\nname = "openai-es"\nlearning_rate = 0.1\n')
    refused = call("run", "a.toml", "--strategy", "snes", "--dry-run")
    refused.refused(
        "a.toml sets learning_rate for openai-es. To leave out its settings: --set 'strategy={name=\"snes\"}'."
    )
    call("run", "a.toml", "--set", refused.err.split("'")[1], "--dry-run").ok()
    unknown = call("run", "a.toml", "--set", "strategy.learning_rat=1", "--dry-run")
    assert "a.toml sets" not in unknown.err


def test_settings_are_an_experiment_and_leave_no_file(call, command, tmp_path):
    shown = command("run", *TINY, "-a", "mlp", "--settings", ranks=2)
    assert (shown.code, shown.err) == (0, "")
    (tmp_path / "shown.toml").write_text(shown.out)
    assert load([str(tmp_path / "shown.toml")])[0][0].network.options.init_sparsity == 0
    assert call("run", "shown.toml", "--settings").out == shown.out
    (tmp_path / "sweep.toml").write_text('[sweep]\nnetwork = [{ name = "dag" }, { name = "elman" }]\n')
    refused = call("run", "sweep.toml", "--settings")
    refused.refused("a table as --set 'network={name=\"mlp\"}'.")
    advised = refused.err.split("'")[1]
    assert 'name = "mlp"' in call("run", "sweep.toml", "--set", advised, "--settings").out
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} == {"shown.toml", "sweep.toml"}


def test_several_seeds_run_one_after_another(call, command, tmp_path):
    command("run", *TINY, "-s", 13, 41337, "-o", "out", ranks=2).ok()
    runs = [store.read(store.path_of(tmp_path / "out", seed)) for seed in (13, 41337)]
    assert all(run.complete for run in runs)
    assert runs[0].records[0].digest != runs[1].records[0].digest
    call("run", *TINY, "-s", 41337, "-o", "alone").ok()
    assert store.read(store.path_of(tmp_path / "alone", 41337)).records[-1].digest == runs[1].records[-1].digest


def test_a_run_that_stopped_early_counts_as_no_remaining_work(call, monkeypatch):
    early = (*TINY, "-g", 9, "--set", "early_stop.steps=1", "-o", "out")
    call("run", *early, "-s", 1).ok()
    clocks = []

    def noted(episodes):
        clocks.append(episodes)
        return RunsClock(episodes)

    monkeypatch.setattr("evolve.cli.run.RunsClock", noted)
    call("run", *early, "-s", 1, 2, "--resume").ok()
    call("run", *early, "-s", 1, "--resume", "--set", "early_stop.steps=2").ok()
    call("run", *early, "-s", 1, "--resume", "--set", "early_stop.steps=2", "--set", "held_out_episodes=6").ok()
    assert clocks == [[0, 9 * 12 + 4], [8 * 12 + 4], [8 * 12 + 6]]


def test_flags_override_the_experiment_and_set_overrides_flags(tmp_path):
    file = tmp_path / "x.toml"
    file.write_text('population = 30\nepisodes = 5\n[network]\nhidden = [9]\n[env]\nid = "Pendulum-v1"\n')
    (config,), path, resume, *_ = load([str(file), "-r", "6", "-d", "4", "4", "--set", "population=12", "--resume"])
    assert (config.population, config.episodes, config.env.id) == (12, 6, "Pendulum-v1")
    assert (path, resume) == (None, True)
    assert (config.network.name, config.network.options.hidden) == ("hebbian-dag", (4, 4))


def test_the_letters_of_the_2020_script():
    words = "-e BipedalWalker-v3 -r 8 -a hebbian-dag -p 138 -g 200 -d 8 8 -s 13 41337"
    (config,), _, resume, *_ = load(words.split())
    assert not resume
    assert (config.env.id, config.episodes, config.population, config.generations) == ("BipedalWalker-v3", 8, 138, 200)
    assert (config.network.options.hidden, config.seeds) == ((8, 8), (13, 41337))


WRONG = [
    (
        ("-e", "Bipedal-v3"),
        "env.id (-e/--env): expected a registered environment, got Bipedal-v3. Did you mean BipedalWalker-v3",
    ),
    (
        ("-a", "hebian-dag"),
        "network.name (-a/--network): expected a known network, got hebian-dag. Did you mean hebbian-dag or",
    ),
    (("--strategy", "prun"), "Did you mean prune?"),
    (("-p", 1), "population (-p/--population): expected at least 2, got 1"),
    (("CartPole-v1",), "got CartPole-v1, which does not exist. An environment is named with --env CartPole-v1."),
    (("-r", 0), "episodes (-r/--episodes): expected at least 1, got 0"),
    (("-d", 0), "network.hidden.0 (-d/--hidden): expected at least 1, got 0"),
    (("-s", "1-5"), "evolve.run: -s/--seed: expected whole numbers, such as -s 1 2 3, got 1-5."),
    (("-g", "many"), "evolve.run: -g/--generations: expected a whole number, got many."),
    (("--popluation", 8), "Did you mean --population?"),
    (("--", "-pole.toml", "--overwrite"), "got --overwrite. Options stand before --, after which all words are files."),
    (("--set", "strategy.survivor=2"), "Did you mean survivors?"),
    (("--set", "env.id"), "section.key=value"),
    (("malformed.toml",), "malformed.toml: expected well-formed TOML"),
    (("-e", ""), "env.id (-e/--env): expected a text that is not empty, got ''"),
    (("--set", "episodes='5'"), "episodes (-r/--episodes): expected a whole number, got '5'"),
    (("pole.champion", "--resume"), "expected a TOML file, got pole.champion, which is named like a champion file"),
    (("a b.h5",), "To continue it: python -m evolve.run --resume 'a b.h5'."),
    (
        ("--resume", "missing"),
        "--resume: expected a run file, its directory, or its TOML file, got missing, which",
    ),
    (("",), "FILE: expected the name of a file or a directory, got an empty text."),
    (("x" * 300, "--resume"), "which does not exist"),
    (("--start-from", "x" * 300), "expected a run file, got File name too long"),
    (
        ("--set", "population=4\nepisodes=3"),
        "population (-p/--population): expected a whole number, got '4\\nepisodes=3'",
    ),
    (("missing.toml",), "EXPERIMENT.toml: expected a readable TOML file, got missing.toml"),
    (
        ("-o", "taken"),
        "taken/seed-0.h5: expected a readable run file, got a truncated or foreign file",
    ),
    (("-o", "/proc/nowhere"), "output.directory (-o/--output): expected a directory that can be written"),
    (("-o", "malformed.toml"), "expected a directory that can be written, got malformed.toml (it is a file)."),
    (("-e", "boom:Thing-v0"), "boom:Thing-v0 (RuntimeError: no licence found)"),
    (("-e", "HalfCheetah-v3"), "HalfCheetah-v3 ("),
    (("-e", ":"), "env.id (-e/--env)"),
    (
        ("-e", "FrozenLake-v1", "--set", "env.kwargs.map_name=nope"),
        "env.kwargs: expected arguments that FrozenLake-v1 takes",
    ),
    (("-e", "Pendulum-v1", "--set", "env.kwargs.g=inf"), "env.kwargs: expected text, finite numbers"),
    (
        ("--set", 'env.wrappers=[{name="subprocess:Popen"}]'),
        "env.wrappers: expected a wrapper of gymnasium.wrappers, or",
    ),
    (
        ("-e", "toys:Memory-v0", "--set", 'env.wrappers=[{name="other:Bonus"}]'),
        'name that module for both: --env mine:Memory-v0 and --set env.wrappers=["mine:Bonus"].',
    ),
    (("--set", 'env.wrappers=[{name="gymnasium.wrappers:x"}]'), "env.wrappers: expected a wrapper `module:Class`"),
    (("--set", 'env.wrappers=[{name="gymnasium.wrappers.common:time"}]'), "time is no gymnasium.Wrapper"),
    (("-d", 60000, 60000), "population × network.hidden: expected sizes that fit into"),
    (("/dev/zero",), "/dev/zero: expected TOML of at most 1,000,000 characters"),
    (
        ("--set", 'env.wrappers=[{name="gymnasium.wrappers:TimeLimit"}]'),
        "env.wrappers.0: expected a wrapper that fits CartPole-v1",
    ),
    (("-o", ""), "output.directory (-o/--output): expected a directory, got an empty text"),
    (("-o", b"caf\xe9"), "output.directory (-o/--output): expected text in UTF-8, got caf\\udce9"),
    (("--set", b"env.kwargs.x=[1, '\xe9']"), "experiment: expected text in UTF-8, got "),
    (("-o", "x" * 300), "output.directory (-o/--output)"),
    (("-o", "x" * 300, "--resume"), "output.directory (-o/--output)"),
    (("-o", "foreign", "--resume"), "foreign/seed-0.h5: expected a readable run file, got a truncated or foreign file"),
]


@pytest.fixture
def traps(tmp_path):
    """Write a malformed experiment, a file of another kind in the place of a run file, and a truncated HDF5 file."""
    (tmp_path / "malformed.toml").write_text("population = = 3")
    for name in ("taken", "foreign"):
        (tmp_path / name).mkdir()
    (tmp_path / "taken" / "seed-0.h5").write_bytes(b"something else")
    (tmp_path / "foreign" / "seed-0.h5").write_bytes(b"\x89HDF\r\n\x1a\n and no more")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "message"), WRONG, ids=lambda v: " ".join(map(str, v)) if isinstance(v, tuple) else ""
)
def test_wrong_input_ends_at_once_with_one_plain_line(call, traps, arguments, message):
    before = {p: p.read_bytes() for p in traps.rglob("*.h5")}
    call("run", *TINY, *arguments).refused(message)
    assert {p: p.read_bytes() for p in traps.rglob("*.h5")} == before


def test_a_process_that_was_given_wrong_input_ends_with_the_same_line(command, traps):
    for words, message in (WRONG[0], (("-s", 7, b"caf\xe9"), "such as -s 1 2 3, got caf\\udce9")):
        command("run", *TINY, *words).refused(message)


def test_a_seed_that_the_strategy_refuses_leaves_no_file(call, tmp_path):
    """Of three connections each initial genome has half, more or less; CMA-ES wants two."""
    few = ("-e", "Pendulum-v1", "-a", "dag", "--set", "network.hidden=[]", "--set", "network.init_sparsity=0.5")
    call("run", *few, "--strategy", "sep-cma-es", "-s", *range(12), "-o", "out").refused(
        "expected genomes of at least 2 connections with sep-cma-es, got "
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("ranks", "mpi", "arguments"),
    [(3, "openmpi", ("-a", "nobody")), (2, "mpich", ("-e", "Bipedal-v3"))],
)
def test_wrong_input_is_reported_once_on_any_number_of_ranks(command, ranks, mpi, arguments):
    done = command("run", *TINY, *arguments, ranks=ranks, mpi=mpi)
    assert done.code == 2
    assert (done.err + done.out).count("evolve.run:") == 1
    assert "Traceback" not in done.err + done.out


def test_help_ends_every_rank(command):
    done = command("run", "--help", ranks=2).ok()
    assert done.out.count("usage:") == 1
    assert "example:" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-p", "3.5"), "-p/--population: expected a whole number, got 3.5."),
        (("-p", "it's"), "-p/--population: expected a whole number, got it's."),
        (("--threads", "it's"), "--threads: expected a number, at least 1, or auto, got it's."),
        (("--resume=yes",), "--resume: expected no value, got yes."),
        (("-d",), "-d/--hidden: expected a value, after = if it begins with a dash, got none."),
        (
            ("--colour", "red"),
            "command line: expected arguments of this command, got --colour. "
            "A setting without an option is written --set section.key=value; --settings prints all settings.",
        ),
    ],
)
def test_an_invalid_option_is_named_with_its_value_and_the_expected_one(words, message):
    with pytest.raises(InputError) as wrong:
        load([*words])
    assert str(wrong.value) == message


def test_the_value_of_an_unknown_option_does_not_hide_the_similar_option():
    with pytest.raises(InputError, match=r"got --egine=gymnasium\. Did you mean --engine"):
        load(["--egine=gymnasium"])


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("Xor-v0", "If your own module registers it, name the module, too: env.id=\"module:Xor-v0\"."),
        ("xor.py", "If your own module registers it, name the module, too: env.id=\"xor:Name-v0\"."),
        ("needy", "needy is a module. Name one of its environments, too: env.id=\"needy:Name-v0\"."),
        ("nowhere:Walk-v0", "expected a module that can be imported, got nowhere:Walk-v0 (No module named 'nowhere'). "
         "Modules are looked for in the working directory and on PYTHONPATH."),
        ("needy:Walk-v0", "got needy:Walk-v0 (No module named 'nowhere'). needy imports it: install it."),
        ("Lazy-v0", "got Lazy-v0 (No module named 'nowhere'). Lazy-v0 imports it: install it."),
        ("needy.py:Walk-v0", "without folders or .py: env.id=\"module:Name-v0\"."),
        ("./needy:Walk-v0", "without folders or .py: env.id=\"module:Name-v0\"."),
    ],
)  # fmt: skip
def test_environments_of_ones_own_are_hinted_at(env, message, tmp_path, monkeypatch):
    (tmp_path / "needy.py").write_text("import nowhere\n")
    spec = gymnasium.envs.registration.EnvSpec("Lazy-v0", entry_point="nowhere:Env")
    monkeypatch.setitem(gymnasium.registry, "Lazy-v0", spec)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError) as wrong:
        prepare(parse(Config, {"env": {"id": env}}))
    assert str(wrong.value).endswith(message)


def test_a_world_of_one_needs_no_mpi(call, absent):
    absent("mpi4py")
    call("run", *TINY).ok()


def test_mpirun_without_mpi4py_is_refused_once(command):
    done = command("run", *TINY, ranks=2, **without("mpi4py"))
    assert done.code == 2
    assert (done.out + done.err).count("evolve.run: mpirun -n 2: expected a working mpi4py") == 1
    assert f"'{ROOT}[mpi]'" in done.out + done.err


@pytest.mark.parametrize(
    ("env", "module", "extra"),
    [
        ("BipedalWalker-v3", "Box2D", "box2d"),
        ("BipedalWalker-v3", "pygame", "box2d"),
        ("InvertedPendulum-v5", "mujoco", "mujoco"),
    ],
)
def test_a_missing_extra_names_its_install_line(call, absent, monkeypatch, env, module, extra):
    for name in [name for name in sys.modules if name.startswith(("gymnasium.envs.box2d", "gymnasium.envs.mujoco"))]:
        monkeypatch.delitem(sys.modules, name)  # imported again, without the module
    absent(module)
    call("run", "-e", env, *TINY).refused(f"pip install -e '{ROOT}[{extra}]'")


def test_a_missing_envpool_names_its_install_line(call, absent):
    absent("envpool")
    call("run", "--engine", "envpool", *TINY).refused("env.engine (--engine)", f"pip install -e '{ROOT}[envpool]'")


def test_the_launcher_of_another_mpi_is_refused_once(command):
    """mpi4py loads Open MPI under MPICH's mpirun: each rank would think it is alone and run everything."""
    done = command("run", *TINY, ranks=2, mpi="mpich", MPI4PY_LIBMPI=None)
    assert done.code == 2
    assert (done.out + done.err).count("evolve.run: mpirun -n 2: expected the mpirun of Open MPI") == 1


def test_an_exception_in_an_environment_ends_the_run_with_one_report(call, tmp_path):
    done = call("run", "-e", "toys:Broken-v0", *TINY, "-o", "out")
    assert done.code == 1
    assert (done.out + done.err).count("RuntimeError: the motor burnt out") == 1
    assert "failed in step 5, environment seed" in done.out + done.err
    assert store.read(store.path_of(tmp_path / "out", 0)).records == ()


@pytest.mark.parametrize("env", ["toys:Exits-v0", "toys:Surrogate-v0"])
@pytest.mark.parametrize("ranks", [{}, {"ranks": 2}])
def test_no_way_of_failing_hangs_a_rank(call, command, env, ranks):
    done = (command if ranks else call)("run", "-e", env, *TINY, **ranks)
    assert done.code == 1
    assert (done.out + done.err).count("evolve.run: generation 0, candidate ") == 1


@pytest.mark.cold
def test_an_interrupt_while_mpi_starts_hangs_no_rank(start):
    process = start("run", *TINY, "-g", 500, ranks=2, OMPI_MCA_btl=None, OMPI_MCA_mtl=None)

    def interrupt():
        for p in process.family():
            try:
                started = "evolve.run" in p.cmdline() and p.environ().get("OMPI_COMM_WORLD_RANK") == "0"
                if started and b"libmpi" in Path(f"/proc/{p.pid}/maps").read_bytes():
                    p.send_signal(signal.SIGINT)
                    return True
            except (psutil.Error, OSError):  # gone meanwhile
                continue
        return False

    wait_for(interrupt, process.output)
    assert process.wait().code in (1, 75)


@pytest.mark.parametrize(
    ("stdout", "unbuffered"),
    [("| head -1", "1"), ("| head -1", ""), ("> /dev/full", "1"), ("> /dev/full", ""), (">&-", "")],
)
def test_a_run_continues_if_its_output_is_closed(tmp_path, stdout, unbuffered):
    env = {"PYTHONUNBUFFERED": unbuffered}
    (python,) = warm.words([sys.executable], environment(**env))
    words = f"set -o pipefail; {python} -m evolve.run {' '.join(map(str, TINY))} -g 6 -o out {stdout}"
    done = finished(["bash", "-c", words], tmp_path, **env)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("seed 0  generation 0 (1 of 6)" if "head" in stdout else "")
    assert store.read(tmp_path / "out" / "seed-0.h5").complete


def test_held_out_returns_that_are_no_numbers_do_not_stop_the_next_seed(call, tmp_path):
    done = call("run", "-e", "toys:NotANumber-v0", *TINY, "-s", 1, 2, "-o", "out", "--set", "held_out_episodes=40",
                   "--set", "env.on_failure=worst")  # fmt: skip
    assert done.code == 0, done.err
    assert all(store.read(store.path_of(tmp_path / "out", seed)).complete for seed in (1, 2))


def test_a_failed_run_does_not_end_a_study(call, tmp_path):
    (tmp_path / "study.toml").write_text("""
        env.id = "toys:Faulty-v0"
        population = 2
        episodes = 1
        generations = 1
        held_out_episodes = 0
        compute.check = false
        network.hidden = [2]
        [sweep]
        env.kwargs.share = [0.0, 1.0, 1e-9]
    """)
    done = call("run", "study.toml", "-o", "out", "--report")
    last = done.err.strip().splitlines()[-1]
    assert done.code == 1
    assert "the motor burnt out" in done.err
    assert "report of 2 runs" in (tmp_path / "out" / "report.html").read_text()
    assert last == "evolve.run: 1 of 3 runs failed, see above: out/share=1.0/seed-0.h5"
    assert [store.read(path).complete for path in sorted(tmp_path.glob("out/*/*.h5"))] == [True, False, True]


def test_a_run_in_which_every_episode_fails_ends_with_a_warning(call):
    settings = ("env.on_failure=worst", "env.kwargs.share=1.0", "compute.check=false", "held_out_episodes=0")
    done = call("run", "-e", "toys:Faulty-v0", "-p", 2, "-r", 1, "-g", 1, "-d", 2, "-o", "out",
                *(word for setting in settings for word in ("--set", setting)))  # fmt: skip
    assert (done.code, "out/seed-0.h5: no candidate has a fitness; digest " in done.out) == (0, True)
    warning, see = done.err.splitlines()[-1].rsplit(": ", 1)
    assert warning.startswith("evolve.run: no candidate has a fitness, because each had a failed episode")
    assert see.endswith(" out/seed-0.h5 --generation 0 --episode 0")


def test_nan_returns_rank_last(call, tmp_path):
    worst = ("--set", "env.on_failure=worst")
    call("run", "-e", "toys:NotANumber-v0", *TINY, *worst, "-p", 12, "-o", "out").ok()
    for record in store.read(store.path_of(tmp_path / "out", 0)).records:
        assert np.isnan(record.fitness).any()
        assert not np.isnan(record.champion_fitness)


def test_an_idle_coordinator_costs_almost_no_processor(start):
    slow = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.02", "--set", "held_out_episodes=0")
    process, samples, rank_0 = start("run", *slow, "-p", 7, "-r", 1, "-g", 4, ranks=2), [], None
    while process.popen.poll() is None:
        rank_0 = rank_0 or process.ranks().get(0)
        with contextlib.suppress(psutil.Error):  # gone meanwhile
            if rank_0 is not None and "generation 0" in process.output()[0]:  # after the imports
                samples.append((time.monotonic(), sum(rank_0.cpu_times()[:2])))
        time.sleep(0.05)
    done = process.wait()
    assert done.code == 0, done.err
    seconds, cpu = (last - first for first, last in zip(samples[0], samples[-1], strict=True))
    assert seconds > 2
    assert cpu < 0.1 + 0.1 * seconds, f"{cpu} s of {seconds} s"


@pytest.mark.skipif(shutil.which("script") is None, reason="needs util-linux's script, for a pseudo-terminal")
def test_on_a_terminal_there_is_a_display(tmp_path):
    env = {"TERM": "xterm", "COLUMNS": "150"}
    (python,) = warm.words([sys.executable], environment(**env))
    words = f"{python} -m evolve.run -p 6 -r 2 -g 2 -d 3 --set held_out_episodes=2"
    shown = finished(["script", "-qec", words, "/dev/null"], tmp_path, "", **env).ok().out
    assert "\x1b[" in shown
    assert "generation 1: best fitness" in shown
    assert "steps/s" in shown


@pytest.mark.parametrize(
    ("engine", "population", "slack"),
    [("gymnasium", 8, 12e6), ("envpool", 16, 30e6)],
)
@pytest.mark.slow
def test_a_workers_memory_stays_flat(start, engine, population, slack):
    """Every episode has environments of its own; none of them may be left behind."""
    if engine == "envpool":
        pytest.importorskip("envpool")
    short = ("-e", "BipedalWalker-v3", "--engine", engine, "--set", "env.max_episode_steps=10", "-d", 4)
    more = ("--set", "held_out_episodes=0", "--set", "compute.check=false")
    process = start("run", *short, *more, "-p", population, "-r", 2, "-g", 26, "-o", "run", ranks=2)
    samples, worker = [], None
    while process.popen.poll() is None:
        worker = worker or process.ranks().get(1)
        if worker:
            with contextlib.suppress(psutil.NoSuchProcess):
                samples.append((process.output()[0].count("generation "), worker.memory_info().rss))
        time.sleep(0.05)
    assert process.wait().code == 0
    early, late = (max(rss for complete, rss in samples if a <= complete < b) for a, b in ((6, 13), (19, 27)))
    # 13 generations begin 208 or 416 worlds of some 100 kB. The slack is for the allocator: each pool has a thread.
    assert late - early < slack, f"{(late - early) / 1e6:.1f} MB in 13 generations"
