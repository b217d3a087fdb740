"""The promise: equal digests on any number of ranks, MPI, chunk policy and batch size."""

import shutil
import subprocess
import sys

import arithmetic
import h5py
import numpy as np
import pytest
from conftest import Process, environment
from emulation import emulation_available
from old_digest import old_digests
from processors import MASKED, NEHALEM, nehalem, x86

import evolve
from evolve import store
from evolve.numerics import native, restore_ieee

# New processes: forked ones share one seed of hashes, so an order of sets that differs between ranks would not show.
with_other_hashes = pytest.mark.cold

# The digests are older than the present defaults of prune.
QUICK = ("-e", "CartPole-v1", "-p", 10, "-r", 2, "-g", 3, "-d", 4, "-s", 13, "--set", "held_out_episodes=3",
         "--set", "strategy.survivors=1", "--set", "strategy.weight_noise=0")  # fmt: skip
ENVIRONMENTS = ["Pendulum-v1", "LunarLander-v3", "BipedalWalker-v3", "InvertedPendulum-v5", "Taxi-v4",
                "toys:Switches-v0", "toys:Memory-v0", "toys:RememberingCart-v0"]  # fmt: skip


def read_digests(path):
    """Return the digests of a run, and the bits of its held-out returns, in hexadecimal."""
    with h5py.File(path) as file:
        assert file.attrs["complete"]
        held_out = file["evaluation/returns"][()].tobytes().hex()
        return [d.decode() for d in file["generation/digest"][()]], held_out


@pytest.fixture
def run_all(command, call, tmp_path):
    """Run an experiment, or a sweep, and return the digests of each run, by the directory of its file.

    In processes of its own where `how` asks for ranks, a module or an environment variable; else in this one.
    """

    def run(*arguments, **how):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        done = (command if how else call)("run", *arguments, "-o", "run", **how)
        assert done.code == 0, done.err + done.out
        return {path.parent.name: read_digests(path) for path in (tmp_path / "run").rglob("*.h5")}

    return run


@pytest.fixture
def digests(run_all):
    """The same, of one run."""

    def run(*arguments, **how):
        (found,) = run_all(*arguments, **how).values()
        return found

    return run


def test_golden_digest_of_a_short_run(digests, golden, tmp_path):
    assert digests(*QUICK, "--set", "output.genomes=all")[0] == golden["cartpole_digests"]
    assert old_digests(tmp_path / "run" / "seed-13.h5") == golden["old_cartpole_digests"]


@pytest.mark.parametrize(
    ("ranks", "mpi", "words"),
    [pytest.param(3, "openmpi", ("--backend", "numpy", "--set", "compute.slots=5"), marks=with_other_hashes),
     (1, "mpich", ()), pytest.param(3, "mpich", (), marks=with_other_hashes)],
)  # fmt: skip
def test_neither_ranks_nor_their_mpi_matter(digests, golden, ranks, mpi, words):
    assert digests(*QUICK, *words, ranks=ranks, mpi=mpi)[0] == golden["cartpole_digests"]


@pytest.mark.parametrize("slots", [1, 7, 40])
def test_slots_do_not_matter_alone(digests, golden, slots):
    assert digests(*QUICK, "--set", f"compute.slots={slots}")[0] == golden["cartpole_digests"]


def test_array_operations_do_not_matter(digests, golden):
    assert digests(*QUICK, "--backend", "numpy")[0] == golden["cartpole_digests"]


def test_a_device_does_not_matter(digests, golden, emulated_device):
    assert digests(*QUICK, "--backend", "cupy")[0] == golden["cartpole_digests"]


@pytest.mark.skipif(not emulation_available(), reason="no gcc or no NVRTC")
def test_a_device_of_several_ranks_does_not_matter(digests, golden):
    found, _ = digests(*QUICK, "-g", 1, "--backend", "cupy", module="emulated_run", ranks=3)
    assert found == golden["cartpole_digests"][:1]  # one generation: each rank compiles the emulation for itself


SHORT = ("-p", 5, "-r", 2, "-g", 2, "-d", 4, "--set", "env.max_episode_steps=60", "--set", "held_out_episodes=2")


@x86
def test_an_older_processor_agrees(run_all, call, tmp_path):
    """Natively if possible; `test_processors.py` has the same for arrays."""
    environments = ["CartPole-v1", "LunarLander-v3", "BipedalWalker-v3"]
    how = (*SHORT, "--set", f"sweep.env.id={environments}")
    expected = run_all(*how)
    assert len(expected) == len(environments)
    assert run_all(*how, **MASKED) == expected
    for path in (tmp_path / "run").rglob("*.h5"):
        done = call("verify", path)  # made by the older processor, checked by this one
        assert (done.code, done.err) == (0, "")


@x86
def test_the_mask_changes_the_bits_of_blas_and_libm():
    """The control: BLAS and libm do change under the same masks, so the test above would notice them."""
    code = """
import hashlib, numpy as np
x = np.random.Generator(np.random.Philox(1)).normal(size=(96, 96)).astype(np.float32)
print(*(hashlib.sha256(y.tobytes()).hexdigest() for y in (x @ x, np.tanh(x), np.exp(x))))
"""
    plain, masked = (
        subprocess.check_output([sys.executable, "-c", code], env=environment(**more), text=True)
        for more in ({}, MASKED)
    )
    if plain == masked:
        pytest.skip("on this processor the masks change nothing")


@pytest.mark.slow
@nehalem
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("env", ["CartPole-v1", "LunarLander-v3", "BipedalWalker-v3"])
def test_an_emulated_old_processor_agrees(digests, tmp_path, env):
    short = ("-e", env, *SHORT[:-4], "--set", "env.max_episode_steps=40", "--set", "held_out_episodes=2")
    expected = digests(*short)
    words = [*NEHALEM, sys.executable, "-m", "evolve.run", *map(str, short), "-o", "emulated"]
    # OpenBLAS, which nothing of ours uses, takes an emulated processor for another and dies.
    emulated = Process(words, environment(OPENBLAS_CORETYPE="Nehalem"), tmp_path)
    try:
        done = emulated.wait(800)
    finally:
        emulated.close()
    assert done.code == 0, done.err
    run = store.read(store.path_of(tmp_path / "emulated", 0))
    assert [record.digest.decode() for record in run.records] == expected[0]
    assert run.held_out.returns.tobytes().hex() == expected[1]


def test_chunks_do_not_matter(digests):
    """Nor do slots: episodes end at any time, and ranks get few or many episodes at once."""
    farmed = digests(*QUICK, "--set", "compute.slots=2", ranks=3, module="toy_run", TOY_CHUNK_SIZES="1 7 2")
    assert farmed == digests(*QUICK)


TINY = ("-p", 5, "-g", 2, "--set", "env.max_episode_steps=20", "--set", "network.init_scale=1e-38")


def sweep(environments):
    """Return the words of a short experiment with each of some environments."""
    short = ("-p", 4, "-r", 2, "-g", 2, "-d", 3, "--set", "held_out_episodes=2", "--set", "env.max_episode_steps=30")
    return (*short, "--set", f"sweep.env.id={environments}")


@pytest.mark.skipif(not arithmetic.SUPPORTED, reason="the helper does not know the registers of this processor")
@pytest.mark.parametrize(
    ("backend", "how"), [("native", {}), ("numpy", {}), ("numpy", {"ranks": 3})], ids=["native", "numpy", "three ranks"]
)
def test_a_library_that_flushes_denormals_changes_no_bit(digests, backend, how):
    if backend == "native" and not native.available():
        pytest.skip("the native kernels were not built")
    tiny = (*QUICK[2:], *TINY, "--backend", backend)
    plain = digests("-e", "CartPole-v1", *tiny)
    try:
        assert digests("-e", "toys:FastMath-v0", *tiny, **how) == plain
    finally:
        restore_ieee()


@pytest.mark.skipif(not arithmetic.SUPPORTED, reason="the helper does not know the registers of this processor")
def test_a_thread_of_a_script_that_flushes_denormals_changes_no_bit(digests):
    tiny = (*QUICK, *TINY, "--engine", "exact", "--threads", 2)
    plain = digests(*tiny)
    arithmetic.flush_denormals()
    try:
        assert digests(*tiny) == plain
    finally:
        restore_ieee()


@pytest.mark.skipif(not arithmetic.SUPPORTED, reason="the helper does not know the registers of this processor")
@pytest.mark.parametrize("strategy", ["snes", "openai-es", "prune"])
@pytest.mark.parametrize("how", [{}, {"ranks": 3}], ids=["one process", "three ranks"])
def test_an_environment_that_rounds_up_changes_no_bit(digests, strategy, how):
    words = ("--strategy", strategy, "-a", "mlp", "-p", 6, "-r", 2, "-g", 3, "-s", 13, "--set", "compute.slots=1")
    words += ("--set", "held_out_episodes=3")
    plain = digests("-e", "CartPole-v1", *words)
    try:
        assert digests("-e", "toys:RoundsUp-v0", *words, **how) == plain
    finally:
        restore_ieee()


@pytest.mark.skipif(not arithmetic.SUPPORTED, reason="the helper does not know the registers of this processor")
def test_a_script_that_rounds_up_changes_no_bit(tmp_path):
    settings = {"env": {"id": "Acrobot-v1", "engine": "exact"}, "network": "mlp", "population": 16, "generations": 3}
    settings |= {"strategy": "snes", "seed": 1, "held_out_episodes": 2, "normalize_observations": True}
    plain = evolve.train(**settings, output=tmp_path / "a")
    try:
        arithmetic.round_up()
        again = evolve.train(**settings, output=tmp_path / "b", callbacks=[lambda _: arithmetic.round_up()])
        arithmetic.round_up()
        assert plain.verify(full=True).equal
        arithmetic.round_up()
        assert np.array_equal(plain.evaluate(5).returns, again.evaluate(5).returns)
    finally:
        restore_ieee()
    assert (plain.digest, plain.held_out) == (again.digest, again.held_out)


@with_other_hashes
def test_other_environments(run_all):
    how = sweep(ENVIRONMENTS)
    alone = run_all(*how)
    assert len(alone) == len(ENVIRONMENTS)
    assert run_all(*how, "--set", "compute.slots=5", ranks=2) == alone


def test_envpool(run_all):
    pytest.importorskip("envpool", exc_type=ImportError)  # the system may lack libEGL
    environments = ["CartPole-v1", "BipedalWalker-v3", "FrozenLake-v1"]
    how = (*sweep(environments), "--engine", "envpool")
    alone = run_all(*how)
    assert len(alone) == len(environments)
    assert run_all(*how, "--set", "compute.slots=3", ranks=2) == alone


@with_other_hashes
def test_plastic_networks_and_all_of_the_strategy(digests, golden):
    words = ("network.plasticity=0.1", "network.neuromodulated=true", "strategy.survivors=2", "strategy.regrowth=0.05",
             "strategy.weight_noise=0.1", "common_random_numbers=true")  # fmt: skip
    how = (*QUICK, *(word for setting in words for word in ("--set", setting)))
    plain, farmed = digests(*how), digests(*how, "--set", "compute.slots=5", ranks=2)
    assert plain == farmed
    assert plain[0] != golden["cartpole_digests"]


def test_the_seed_has_an_effect(digests, golden):
    # In the 2020 script it had none.
    assert digests(*QUICK, "-s", 14)[0][0] != golden["cartpole_digests"][0]


def test_common_random_numbers_give_all_candidates_the_same_episodes(call, tmp_path):
    """With pruning off and a network that sees nothing, equal episodes mean equal returns."""
    blind = ("-e", "CartPole-v1", "-p", 4, "-r", 3, "-g", 1, "--set", "network.init_sparsity=0.999999")
    for common in ("true", "false"):
        call("run", *blind, "--set", f"common_random_numbers={common}", "-o", common).ok()
    same, other = (store.read(store.path_of(tmp_path / c, 0)).records[0].returns for c in ("true", "false"))
    assert (same == same[0]).all()
    assert not (other == other[0]).all()
