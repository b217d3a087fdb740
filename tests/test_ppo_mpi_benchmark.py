"""PPO over MPI, without MPI: its options, sums over ranks, estimates; and with PyTorch, that ranks share the work."""

import json
import threading
from importlib.util import find_spec

import numpy as np
import pytest
from conftest import ROOT


class Threads:
    """Communicators of threads that stand for ranks."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=30)
        self.values = [None] * size

    def of(self, rank):
        return _Communicator(self, rank)


class _Communicator:
    def __init__(self, threads, rank):
        self.threads, self.rank = threads, rank
        self.Barrier = threads.barrier.wait

    def Get_rank(self):  # noqa: N802 - mpi4py's name
        return self.rank

    def Get_size(self):  # noqa: N802 - mpi4py's name
        return self.threads.size

    def allgather(self, value):
        self.threads.values[self.rank] = value
        self.Barrier()
        found = list(self.threads.values)
        self.Barrier()
        return found

    def Allreduce(self, sent, received):  # noqa: N802 - mpi4py's name
        received[:] = sum(self.allgather(sent))


@pytest.fixture
def parts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from ppo_mpi_parts import algorithm, ranks

    return algorithm, ranks


def on_ranks(ranks, size, work):
    """Return the results of `work` on ranks that are threads."""
    job, found = Threads(size), [None] * size

    def run(rank):
        try:
            found[rank] = work(ranks.Ranks(job.of(rank)))
        except Exception as error:  # an answer, too
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_ranks_share_and_add(parts):
    _, ranks = parts
    numbers = np.arange(10.0)

    def work(mine):
        first, count = mine.share(10)
        return count, ranks.moments(mine, numbers[first : first + count], "playing"), mine.seconds

    for size in (1, 3):
        counts, moments, seconds = zip(*on_ranks(ranks, size, work), strict=True)
        assert sum(counts) == 10
        assert max(counts) - min(counts) <= 1
        assert len(set(moments)) == 1
        assert moments[0] == pytest.approx((4.5, numbers.std()))
        assert all(set(one) == set(ranks.PARTS) and one["playing"] > 0 for one in seconds)


def test_different_parameters_are_an_error_on_all_ranks(parts):
    _, ranks = parts
    found = on_ranks(ranks, 3, lambda mine: mine.check_equal("b" if mine.rank == 2 else "a", 7))
    assert all(isinstance(error, ranks.DifferentRanksError) for error in found)
    assert len({str(error) for error in found}) == 1
    assert "Epoch 7" in str(found[0])
    assert "rank 2" in str(found[0])
    assert on_ranks(ranks, 3, lambda mine: mine.check_equal("a", 7)) == [None] * 3


def test_advantages_are_discounted_errors_until_the_end_of_an_episode(parts):
    algorithm, _ = parts
    settings = algorithm.Settings(gamma=0.9, smoothing=0.8)
    rng = np.random.default_rng(1)
    T, S = 7, 3
    rewards, values, after_ends = rng.normal(size=(T, S)), rng.normal(size=(T + 1, S)), rng.normal(size=(T, S))
    ends = rng.random((T, S)) < 0.3
    assert 0 < ends.sum() < T * S
    advantages, sums = algorithm.estimate(rewards, values, ends, after_ends, settings)
    for s in range(S):
        for t in range(T):
            advantage = total = 0.0
            for k in range(t, T):
                following = after_ends[k, s] if ends[k, s] else values[k + 1, s]
                advantage += (0.9 * 0.8) ** (k - t) * (rewards[k, s] + 0.9 * following - values[k, s])
                total += 0.9 ** (k - t) * rewards[k, s]
                if ends[k, s] or k == T - 1:
                    total += 0.9 ** (k - t + 1) * following
                    break
            assert advantages[t, s] == pytest.approx(advantage)
            assert sums[t, s] == pytest.approx(total)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--environments", 0), "--environments: expected at least 1"),
        (("--steps", 100, "--environments", 16), "--steps: expected a multiple of 16"),
        (("--hidden", 8, 0), "--hidden: "),
        (("--gamma", 2), "--gamma: "),
    ],
)
def test_wrong_options_are_refused(bench, words, named):
    code, _, err = bench("ppo_mpi", *words)
    assert code == 2
    assert named in err


def test_without_pytorch_the_cure_is_said(bench, absent):
    absent("torch")
    code, out, err = bench("ppo_mpi", "--epochs", 1)
    assert (code, out) == (2, "")
    assert "torch" in err
    assert "benchmarks/requirements-ppo-mpi.txt" in err


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_two_ranks_have_the_gradient_of_one(parts):
    import torch
    from ppo_mpi_parts.learner import Learner

    algorithm, ranks = parts
    settings = algorithm.Settings(environments=4, steps=32, hidden=(4,), iterations=3, divergence=np.inf)

    def work(mine):
        learner = Learner(settings, mine)
        epochs = [learner.epoch(), learner.epoch()]
        learner.close()
        return epochs, torch.nn.utils.parameters_to_vector(learner.policy.parameters()).detach().numpy()

    ((one, parameters),) = on_ranks(ranks, 1, work)
    two = on_ranks(ranks, 2, work)
    for epochs, shared in two:
        assert [epoch.digest for epoch in epochs] == [epoch.digest for epoch in two[0][0]]
        assert np.allclose(shared, parameters, rtol=1e-4, atol=1e-6)
    assert one[0].digest != one[1].digest


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_a_run_writes_its_record(bench, tmp_path):
    words = ("--steps", 32, "--environments", 4, "--epochs", 2, "--evaluate", 2, "--episodes", 2)
    code, out, err = bench("ppo_mpi", *words, "-o", tmp_path / "one.json")
    assert code == 0, out + err
    record = json.loads((tmp_path / "one.json").read_text())
    assert record["digest"] == record["epochs"][1]["digest"]
    assert [point["epoch"] for point in record["held out"]] == [2]
    (parts,) = record["parts"]
    assert sum(parts.values()) == pytest.approx(record["seconds"], rel=0.1)
