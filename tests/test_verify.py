import json
import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest
from conftest import environment, launcher

from evolve import store

ELSEWHERE = ("-e", "toys:Elsewhere-v0", "--set", "env.max_episode_steps=40", "--set", "network.plasticity=0.1")
QUICK = ("-p", 6, "-r", 2, "-g", 3, "-d", 3, "--set", "held_out_episodes=0")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One experiment alone, once more on three ranks, and with another seed."""
    where = tmp_path_factory.mktemp("verify")
    here, there, genomes = {}, {"TOY_GRAVITY": "11.0"}, ("--set", "output.genomes=all")
    for name, seed, ranks, more, env in (
        ("a", 1, None, genomes, here), ("b", 1, 3, (), here), ("c", 2, None, (), here),
        ("d", 1, None, ELSEWHERE, here), ("e", 1, None, ELSEWHERE, there),
        ("f", 1, None, (*ELSEWHERE, *genomes), there),
    ):  # fmt: skip
        words = [*launcher(ranks), sys.executable, "-m", "evolve.run", *map(str, QUICK), "-s", str(seed), "-o", name]
        subprocess.run([*words, *more], env=environment(**env), cwd=where, check=True, timeout=60, capture_output=True)
    return where


@pytest.fixture
def runs(made, tmp_path):
    """Copies of the run files that a test may spoil."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return {name: next((tmp_path / name).glob("*.h5")) for name in "abcdef"}


def verdict(command, *words, **how):
    """What verify says of runs that are different, for machines."""
    done = command("verify", *words, "--json", **how)
    assert done.code == 1, done.err
    return json.loads(done.out)


def edit_config(path, old, new):
    with h5py.File(path, "r+") as file:
        text = file.attrs["config"]
        assert text.count(old) == 1
        file.attrs["config"] = text.replace(old, new)


def tamper(path, place, where, value):
    with h5py.File(path, "r+") as file:
        array = file[place][()]
        array[where] = value
        file[place][...] = array


def test_files(command, runs):
    equal = command("verify", runs["a"], runs["b"])
    assert (equal.code, equal.out.startswith("equal: 3 generations, digest ")) == (0, True)
    apart = command("verify", runs["a"], runs["c"])
    assert apart.code == 1
    assert "different: generation 0: candidate 0, episode 0: return " in apart.out
    assert "seed (1 against 2)" in apart.out


def test_the_first_difference_is_named_with_both_values(command, runs):
    tamper(runs["b"], "generation/returns", (1, 4, 1), 7.25)
    tamper(runs["b"], "generation/digest", 1, b"f" * 64)
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 1: candidate 4, episode 1: return " in done.out
    assert "against 7.25 in" in done.out
    assert "configurations are the same" in done.out


def test_a_difference_in_the_genomes_alone_is_named(command, runs):
    tamper(runs["b"], "generation/digest", 2, b"f" * 64)
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 2: the digests differ, though all that is stored is equal" in done.out


def test_a_longer_run_is_not_equal(command, runs):
    assert command("run", *QUICK, "-g", 4, "-s", 1, "-o", "b", "--resume").code == 0
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "equal for 3 generations, but" in done.out


@pytest.mark.parametrize("ranks", [None, 3])
def test_one_file_is_evaluated_again(command, runs, ranks):
    done = command("verify", runs["a"], ranks=ranks)
    assert (done.code, done.out) == (0, "equal: the champions of 3 generations, 6 episodes evaluated again\n")


def test_a_changed_weight_is_found(command, runs):
    with h5py.File(runs["a"]) as file:
        candidate = int(file["champion/candidate"][1])
        weights = file["champion/weights"][()]
    tamper(runs["a"], "champion/weights", 1, -weights[1])
    done = command("verify", runs["a"])
    assert done.code == 1
    assert f"different: generation 1: candidate {candidate}, episode 0: return " in done.out


def test_a_changed_return_is_found_to_the_last_bit(command, runs):
    with h5py.File(runs["a"]) as file:
        candidate = int(file["champion/candidate"][2])
        value = file["generation/returns"][2, candidate, 1]
    tamper(runs["a"], "generation/returns", (2, candidate, 1), np.nextafter(value, np.inf))
    done = command("verify", runs["a"])
    assert done.code == 1
    assert f"generation 2: candidate {candidate}, episode 1" in done.out


def test_everything_stored_is_compared_not_digests_alone(command, runs):
    tamper(runs["b"], "generation/returns", (0, 0, 0), -1.0)
    done = command("verify", runs["a"], runs["b"])
    assert done.code == 1
    assert "generation 0: candidate 0, episode 0" in done.out


def test_all_of_it_can_be_run_again(command, runs):
    done = command("verify", runs["a"], "--full", ranks=3)
    assert (done.code, "equal: 3 generations, digest" in done.out) == (0, True)
    tamper(runs["a"], "generation/returns", (2, 5, 1), -1.0)
    done = command("verify", runs["a"], "--full")
    assert done.code == 1
    assert "generation 2: candidate 5, episode 1: return -1.0" in done.out


def test_one_changed_weight_is_told_from_a_changed_network(command, runs):
    with h5py.File(runs["d"]) as file:
        mask, weights = file["champion/mask"][1], file["champion/weights"][1]
    some = int(np.flatnonzero(mask)[0])
    tamper(runs["d"], "champion/weights", (1, some), -weights[some])
    found = verdict(command, runs["d"])
    assert (found["cause"], found["what"], found["generation"]) == ("network", "weights", 1)
    assert "the stored genome is not the one that was evaluated" in found["why"]
    assert found["step"] == 0  # the first observation has no zeros
    assert len(found["sides"][1]["step_observation"]) == 4


def test_a_changed_seed_is_told(command, runs):
    with h5py.File(runs["d"], "r+") as file:
        file.attrs["seed"] = 5
    found = verdict(command, runs["d"], ranks=3)
    assert (found["cause"], found["generation"], found["step"]) == ("random stream", 0, 0)
    assert "seed 5" in found["why"]


def test_a_changed_constant_of_the_environment_is_told_by_its_step(command, runs):
    """The run was made elsewhere, under the same name: its first five steps are ours, and what they lead to."""
    found = verdict(command, runs["e"])
    assert (found["cause"], found["what"], found["step"]) == ("environment", "observations", 6)
    here = found["sides"][1]
    assert len(here["step_observation"]) == 4
    assert len(here["step_action"]) == 2
    assert found["manifests"][0]["packages.numpy"] == np.__version__
    told = command("verify", runs["e"]).out
    assert "environment: the observations part in step 6" in told
    assert "cpu features" in told


def test_a_changed_constant_of_the_network_is_told_by_its_step(command, runs):
    edit_config(runs["d"], "trace_rate = 1.0", "trace_rate = 1.5")
    found = verdict(command, runs["d"])
    assert (found["cause"], found["what"], found["step"]) == ("network", "actions", 1)  # the first step has no traces
    edit_config(runs["a"], "trace_rate = 1.0", "trace_rate = 1.5")
    found = verdict(command, runs["a"])  # without plasticity traces act on nobody
    assert (found["cause"], found["what"], found["step"]) == ("network", "traces", None)


@pytest.mark.parametrize("other", ["e", "f"])
def test_two_files_of_one_configuration_are_told_apart_by_their_trails(command, runs, other):
    """One was made here, so its observation can be shown; the other's cannot."""
    found = verdict(command, runs["d"], runs[other])
    assert (found["cause"], found["what"], found["step"]) == ("environment", "observations", 6)
    assert found["configuration"] == []
    ours, theirs = found["sides"]
    assert len(ours["step_observation"]) == 4
    assert theirs["step_observation"] is None


def test_two_configurations_are_both_played_here(command, runs):
    other = ("--set", "network.trace_rate=1.5", "-s", 1, "-o", "g")
    assert command("run", *ELSEWHERE, *QUICK, *other).code == 0
    found = verdict(command, runs["d"], "g/seed-1.h5")
    assert (found["cause"], found["what"], found["step"]) == ("configuration", "actions", 1)
    assert found["configuration"] == [["network.trace_rate", 1.0, 1.5]]
    ours, theirs = found["sides"]
    assert ours["step_observation"] == theirs["step_observation"]
    assert ours["step_action"] != theirs["step_action"]


def test_kept_genomes_prove_the_digests(command, runs):
    assert command("verify", runs["a"]).code == 0
    tamper(runs["a"], "population/weights", (1, 2, 3), 7.0)
    found = verdict(command, runs["a"])
    assert (found["cause"], found["generation"]) == ("log", 1)


def test_held_out_episodes_are_played_again(command, runs):
    assert command("evaluate", runs["a"], "--episodes", 5).code == 0
    done = command("verify", runs["a"])
    assert (done.code, "and 5 held-out ones" in done.out) == (0, True)
    tamper(runs["a"], "evaluation/returns", 3, -7.0)
    assert verdict(command, runs["a"])["what"] == "held-out"


def test_an_equal_pair_is_equal_for_machines_too(command, runs):
    done = command("verify", runs["a"], runs["b"], "--json")
    assert (done.code, json.loads(done.out)["equal"]) == (0, True)
    done = command("verify", runs["a"], "--full", "--json")
    assert (done.code, json.loads(done.out)["equal"]) == (0, True)


def spoil(path, how):  # noqa: PLR0912 - one for each thing
    """Change one thing of a run file that keeps all genomes and has held-out episodes; return its name."""
    with h5py.File(path, "r+") as file:
        best = int(file["champion/candidate"][1])
        other = (best + 1) % 6
        match how:
            case "seed":
                file.attrs["seed"] = 7
            case "configuration":
                file.attrs["config"] = file.attrs["config"].replace("plasticity = 0.0", "plasticity = 0.2")
            case "champion's fitness":
                file["champion/fitness"][1] += 1
            case "trail":
                file["champion/trail"][3, 1] ^= 4
            case "trail's end":
                file["champion/trail"][-1, 0] ^= 4
            case "steps":
                file["generation/steps"][2] += 1
            case "connections":
                file["generation/connections"][1, best] -= 1
            case "genome fingerprint":
                file["fingerprint/genomes"][1, other] ^= np.uint64(1)
            case "newborn's fingerprint":
                file["fingerprint/genomes"][0, (int(file["champion/candidate"][0]) + 1) % 6] ^= np.uint64(1)
            case "action fingerprint":
                file["fingerprint/episodes"][1, best, 0, 1] ^= np.uint64(1 << 60)
            case "genome":
                file["population/mask"][2, other, 0] ^= True
            case "held-out return":
                file["evaluation/returns"][1] += 1
            case "held-out evaluation":
                del file["evaluation"]


SPOILED = ("seed", "configuration", "champion's fitness", "trail", "trail's end", "steps", "connections",
           "genome fingerprint", "newborn's fingerprint", "action fingerprint", "genome", "held-out return",
           "held-out evaluation")  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    from evolve.run import main

    folder = tmp_path_factory.mktemp("whole")
    words = [*map(str, QUICK), "--set", "held_out_episodes=4", "--set", "output.genomes=all", "-o", str(folder)]
    assert main([*words, "-s", "1"]) == 0
    return folder / "seed-1.h5"


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("way", ["one", "two", "full"])
def test_whatever_is_changed_is_found(whole, tmp_path, capfd, how, way):
    from evolve.verify import main

    path = tmp_path / "changed.h5"
    shutil.copy(whole, path)
    spoil(path, how)
    capfd.readouterr()
    code = main([str(path), "--json", *{"one": [], "two": [str(whole)], "full": ["--full"]}[way]])
    said = capfd.readouterr()
    assert said.err == ""
    if (how, way) == ("held-out evaluation", "two"):  # one may know more than the other
        assert code == 0
        return
    assert code == 1, said.out
    expected = {"seed": "configuration" if way == "two" else "random stream", "held-out return": "environment",
                "configuration": "configuration" if way == "two" else "network"}  # fmt: skip
    if how == "genome fingerprint" and way == "full":
        expected[how] = "random stream"  # the genomes that are asked for are not those of the log
    if how in ("genome fingerprint", "newborn's fingerprint") and way in ("two", "full"):
        expected[how] = "random stream"
    if (how, way) == ("held-out return", "two"):
        expected[how] = "log"
    assert json.loads(said.out)["cause"] == expected.get(how, "log"), said.out


def test_what_fails_here_only_is_told(command, runs):
    """Elsewhere the third observation was a number."""
    done = command("verify", runs["d"], "--json", TOY_GRAVITY="nan")
    found = json.loads(done.out)
    assert (done.code, found["cause"], found["what"]) == (1, "environment", "end")
    assert 5 <= found["step"] <= 7


def test_what_is_no_question_is_refused(command, runs):
    for words in (("--full", runs["b"]), (runs["b"], runs["c"])):
        done = command("verify", runs["a"], *words)
        assert (done.code, done.err.count("\n")) == (2, 1)
    assert command("verify", runs["a"], "--json", runs["b"]).code == 0


def test_a_manifest_cannot_forge_a_line(command, runs):
    with h5py.File(runs["c"], "r+") as file:
        file.attrs["manifest"] = json.dumps({"host": "\u001b[31mred\nequal: 9 generations", "x" * 500: "\ud800"})
    done = command("verify", runs["a"], runs["c"])
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "\nequal" not in done.out
    assert max(map(len, done.out.splitlines()[4:])) < 250


def test_a_run_without_generations_is_not_called_equal(command, tmp_path):
    for name in "ab":
        store.create(store.path_of(tmp_path / name, 0), store.Header("", {}, 0, "x"))
    done = command("verify", "a/seed-0.h5", "b/seed-0.h5")
    assert done.code == 1
    assert "nothing to compare" in done.err


@pytest.mark.parametrize("candidate", [77, -3])
def test_a_champion_outside_the_population_is_refused(command, runs, candidate):
    tamper(runs["a"], "champion/candidate", 0, candidate)
    assert command("verify", runs["a"]).code == 2


def test_wrong_files_are_refused(command, tmp_path):
    (tmp_path / "text.h5").write_text("no run file")
    for argument in ("text.h5", "missing.h5"):
        done = command("verify", argument)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert argument in done.err


def edit_manifest(path, **more):
    with h5py.File(path, "r+") as file:
        file.attrs["manifest"] = json.dumps(json.loads(file.attrs["manifest"]) | more)


@pytest.mark.parametrize(
    ("strategy", "generation", "cpu", "cause"),
    [
        ("sep-cma-es", 2, "another", "strategy"),
        ("sep-cma-es", 2, None, "random stream"),  # on one machine the strategy repeats itself
        ("sep-cma-es", 0, "another", "random stream"),  # nothing has been told yet
        ("openai-es", 2, "another", "random stream"),  # its arithmetic is ours
    ],
)
def test_other_genomes_on_another_machine_may_be_the_strategy(command, tmp_path, strategy, generation, cpu, cause):
    for name in "ab":
        assert command("run", *QUICK, "--strategy", strategy, "-o", name).code == 0
    ours, theirs = (store.path_of(tmp_path / name, 0) for name in "ab")
    tamper(theirs, "fingerprint/genomes", (generation, 3), 1)
    if cpu:
        edit_manifest(theirs, cpu=cpu)
    for words in ((ours, theirs), (theirs, "--full")):
        found = verdict(command, *words)
        assert (found["cause"], found["generation"], found["candidate"]) == (cause, generation, 3)
    assert ("linear algebra is not portable" in found["why"]) == (cause == "strategy")
    assert found["manifests"][0]["strategy"].startswith("portable" if strategy == "openai-es" else "not portable")


def test_a_narrow_terminal_shows_what_differs_and_whole_words():
    from evolve.divergence import Verdict
    from evolve.divergence.verdict import Side

    manifests = (
        {"cpu": "AMD EPYC 7B13, 64 cores", "numpy": "2.1.0"},
        {"cpu": "Apple M3, 16 cores", "numpy": "2.1.0"},
    )
    sides = Side("runs/here/seed-1.h5"), Side("runs/there/seed-1.h5")
    found = Verdict(False, "they part in step 3", "network", "the actions part " * 5, sides=sides, manifests=manifests)
    wide, narrow = (found.to_text(width).splitlines() for width in (None, 50))
    assert len(wide) == 6
    assert wide[4] == "  cpu    AMD EPYC 7B13, 64 cores  ≠ Apple M3, 16 cores"
    assert found.to_text(79).splitlines()[-3:] == wide[-3:]
    assert narrow[-3:] == [
        "  cpu", "    runs/here/seed-1.h5: AMD EPYC 7B13, 64 cores", "    runs/there/seed-1.h5: Apple M3, 16 cores",
    ]  # fmt: skip
    assert max(map(len, narrow)) <= 50
    assert " ".join(" ".join(narrow).split()).startswith(f"different: they part in step 3 network: {found.why}")
