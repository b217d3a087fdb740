"""C source of a policy: compiled by the system's compiler, it has the bits of the engine."""

import ctypes
import re
import shutil
import subprocess
import tomllib
from importlib import metadata

import numpy as np
import pytest
from conftest import ROOT

import evolve
from evolve import environments, store
from evolve.analysis.c_source import c_source, without_cuda
from evolve.analysis.policy import Policy
from evolve.config import Config
from evolve.networks import NETWORKS
from evolve.numerics.streams import Purpose, Stream
from evolve.training import prepare

ZOO = {path.stem: path for path in sorted((ROOT / "zoo").glob("*.champion"))}
ALIKE = ["far", "farther", "hardcore", "hardcore-far", "hardcore-gpu-far", "pruned", "quick", "sparse", "sparser"]
"""The walkers whose network, with its sizes, other champions of the zoo have, too."""
MEMORY = r"([\d,]+) bytes of constants, ([\d,]+) bytes of state"
FLAGS = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-shared", "-fPIC"]


def compiled(source, path, more_flags=(), compiler="cc"):
    """Return the library of a policy's source."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    path.with_suffix(".c").write_text(source)
    subprocess.run([compiler, *FLAGS, *more_flags, path.with_suffix(".c"), "-o", path, "-lm"], check=True, timeout=60)
    return ctypes.CDLL(str(path))


@pytest.mark.parametrize(
    ("compiler", "options"),
    [
        ("gcc", ["-march=native", "-ffp-contract=fast"]),  # the default; it changes bits on processors with FMA
        ("clang", ["-march=native", "-ffp-contract=on"]),  # the default
        ("clang", ["-funsafe-math-optimizations"]),
    ],
)
def test_a_policy_keeps_its_bits_under_options_that_change_arithmetic(compiler, options, tmp_path):
    network = {"name": "hebbian-lstm"}
    experiment = prepare(Config.model_validate({"env": {"id": "Acrobot-v1", "engine": "exact"}, "network": network}))
    genome = experiment.network.init(Stream(7, Purpose.INIT, 0, 0))
    library = compiled(c_source(experiment, genome, None, "a test"), tmp_path / "policy.so", options, compiler)
    policy = Policy(experiment, genome)
    theirs = np.zeros(experiment.action_size, np.float32)
    for observation in np.random.default_rng(1).normal(0, 2, (50, 6)).astype(np.float32):
        library.policy_step(*(array.ctypes.data_as(ctypes.c_void_p) for array in (observation, theirs)))
        assert policy.outputs(observation).tobytes() == theirs.tobytes()


@pytest.mark.parametrize("compiler", ["clang", "clang++"])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_exported_c_has_no_undefined_behaviour(name, compiler, tmp_path):
    """A sanitizer ends the program at the first one; gcc's does not see a null pointer that is advanced."""
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    env = {"id": "Acrobot-v1", "engine": "exact"}
    experiment = prepare(Config.model_validate({"env": env, "network": {"name": name}}))
    genome = experiment.network.init(Stream(7, Purpose.INIT, 0, 0))
    steps = "int main(void) { float in[6] = {0}, out[3]; for (int t = 0; t < 30; t++) policy_step(in, out); return 0; }"
    (tmp_path / "policy.c").write_text(c_source(experiment, genome, None, "a test") + steps)
    language = ["-x", "c++"] if compiler == "clang++" else []
    sanitizers = ["-fsanitize=undefined,pointer-overflow", "-fsanitize-trap=all"]
    command = [compiler, *language, "-O1", *sanitizers, tmp_path / "policy.c", "-o", tmp_path / "policy", "-lm"]
    subprocess.run(command, check=True, timeout=60)
    subprocess.run([tmp_path / "policy"], check=True, timeout=60)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_every_network_has_the_bits_of_the_engine(name, tmp_path):
    """With normalized observations; two champions below have none."""
    network = {"name": name} | ({"plasticity": 0.1, "neuromodulated": True} if name == "hebbian-dag" else {})
    experiment = prepare(Config.model_validate({"env": {"id": "Acrobot-v1", "engine": "exact"}, "network": network}))
    genome = experiment.network.init(Stream(7, Purpose.INIT, 0, 0))
    O = experiment.network.observation_size
    normalizer = np.stack([np.full(O, 0.25), np.full(O, 1.5)]).astype(np.float32)
    rng = np.random.default_rng(1)
    # A second, shorter episode shows that nothing of the first one is left; 21 steps pass the history of hebbian-dag.
    episodes = [rng.normal(0, 2, (length, O)).astype(np.float32) for length in (21, 5)]
    library = compiled(c_source(experiment, genome, normalizer, "a test */ of a title"), tmp_path / "policy.so")
    if shutil.which("c++") is not None:
        as_cxx = ["c++", "-x", "c++", "-std=gnu++17", *FLAGS[2:5], "-pedantic", "-fsyntax-only", tmp_path / "policy.c"]
        subprocess.run(as_cxx, check=True, timeout=60)
    policy = Policy(experiment, genome, normalizer)
    theirs = np.zeros(experiment.action_size, np.float32)
    for number, observations in enumerate(episodes):
        if number:  # the first episode needs no reset
            library.policy_reset()
        policy.reset()
        played = []
        for observation in observations:
            library.policy_step(*(array.ctypes.data_as(ctypes.c_void_p) for array in (observation, theirs)))
            played.append(policy.outputs(observation))
            assert played[-1].tobytes() == theirs.tobytes()
        assert np.ptp(played, axis=0).any()  # the outputs depend on the observations


@pytest.mark.parametrize("name", ALIKE)
def test_champions_like_others_reach_their_first_return_again(name):
    champion = evolve.load(ZOO[f"walker-{name}"])
    assert champion.evaluate(1).returns[0] == champion.held_out.returns[0]


@pytest.mark.parametrize("name", [name for name in ZOO if name.removeprefix("walker-") not in ALIKE])
def test_a_compiled_champion_takes_the_logged_actions_of_a_whole_episode(name, tmp_path):
    """The compiled policy plays the first held-out episode: its return is the logged one, in every bit.

    Compiled without optimization, which takes a third of the time; the test above compiles every network with it.
    """
    champion = evolve.load(ZOO[name])
    policy = champion.champion()
    output = policy.export(tmp_path / "policy.c")
    library = compiled(output.read_text(), tmp_path / "policy.so", ["-O0"])
    experiment = champion.experiment.in_evaluation()
    env = experiment.config.env
    if env.engine == "envpool":
        pytest.importorskip("envpool")
    engine = environments.make(env, slots=1)
    slot = np.zeros(1, np.intp)
    O, A = experiment.network.observation_size, experiment.action_size
    observations, outputs = np.zeros((1, O), np.float32), np.zeros((1, A), np.float32)
    seed = champion.held_out.seeds[:1]
    library.policy_reset()
    policy.reset(int(seed[0]))
    engine.reset(slot, seed, observations)
    returned, steps, ended = 0.0, 0, False
    while not ended:
        library.policy_step(*(array.ctypes.data_as(ctypes.c_void_p) for array in (observations, outputs)))
        ours = policy.outputs(observations[0])[None]
        assert outputs.tobytes() == ours.tobytes()
        assert np.array_equal(policy.decode(outputs), policy.decode(ours))
        reward, ends = engine.step(slot, outputs, observations)
        returned, steps, ended = returned + float(reward[0]), steps + 1, bool(ends[0])
    engine.close()
    packages = store.read_any(ZOO[name]).header.manifest["packages"]
    # Another version of EnvPool may play other episodes.
    if env.engine == "exact" or packages["envpool"] == metadata.version("envpool"):
        assert returned == champion.held_out.returns[0]
    assert steps > 30


def test_one_program_has_two_policies(tmp_path):
    files = []
    for name in ("cartpole", "pendulum"):
        files.append(evolve.load(ZOO[name]).export(tmp_path / f"{name}.c"))
        renamed = f"#define policy_reset {name}_reset\n#define policy_step {name}_step\n"
        files[-1].write_text(renamed + files[-1].read_text())
    library = compiled("", tmp_path / "both.so", files)
    library.cartpole_reset()
    library.pendulum_reset()


def test_the_head_tells_how_much_memory_it_takes(tmp_path):
    policy = evolve.load(ZOO["cartpole"]).champion()
    source = policy.export(tmp_path / "a.c").read_text()
    constants, state = (int(n.replace(",", "")) for n in re.search(MEMORY, source).groups())
    assert "malloc" not in source
    (tmp_path / "a.c").write_text(source)
    if shutil.which("cc") is None or shutil.which("size") is None:
        pytest.skip("no C compiler")
    subprocess.run(["cc", FLAGS[0], *FLAGS[5:6], "-c", "a.c", "-o", "a.o"], check=True, cwd=tmp_path, timeout=60)
    sizes = subprocess.run(["size", "a.o"], check=True, cwd=tmp_path, timeout=60, capture_output=True, text=True)
    text, data, bss = map(int, sizes.stdout.splitlines()[1].split()[:3])
    assert constants <= text
    assert state <= data + bss <= state + 256  # the linker aligns arrays
    # Constant weights and unread traces take no state. There are 11 nodes, 10 sums and a counter.
    assert policy.experiment.network.num_weights * 4 <= constants
    assert state == 4 * (11 + 10) + 8


def test_a_name_in_a_file_does_not_end_the_comment_at_the_head():
    """A compiler joins lines that a backslash continues before it looks for the end of a comment."""
    experiment = prepare(Config.model_validate({"env": {"id": "Acrobot-v1", "engine": "exact"}}))
    genome = experiment.network.init(Stream(7, Purpose.INIT, 0, 0))
    source = c_source(experiment, genome, None, "mlp for *\\\n/ int code; /*").replace("\\\n", "")
    assert "MIT licence" in source.partition("*/")[0]


def test_the_parts_for_cuda_are_left_out():
    text = """
#ifdef __CUDACC__
device
#if DEVICE
more
#endif
#else
host
#endif
#ifndef __CUDACC__
#if LARGE
large
#else
small
#endif
#else
device
#endif"""
    assert without_cuda(text).split() == ["host", "#if", "LARGE", "large", "#else", "small", "#endif"]


def test_the_template_is_installed_with_the_package():
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "policy.c" in table["tool"]["setuptools"]["package-data"]["evolve.analysis"]
