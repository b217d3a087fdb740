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


@pytest.fixture
def contest(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from contest_2020_parts import page, rows

    return page, rows


def timed(rows, contestant, ranks, threads, seconds, digest, **more):
    return rows.Row(contestant, ranks, threads, 10, seconds, 400_000, 2, digest, **more)


def test_the_tables_have_speed_ups_and_costs_of_whole_runs(contest):
    page, rows = contest
    ppo = [timed(rows, rows.PPO, ranks, 1, 100.0 / speed, str(ranks)) for ranks, speed in ((1, 1), (2, 1.6), (4, 1.4))]
    ours = [timed(rows, rows.EVOLUTION, 0, threads, 10.0 / threads, "a") for threads in (1, 2)]
    machine = rows.Machine("two cores", (*ppo, *ours), (), {"cpu": "a CPU", "cores": 2, "versions": {"torch": "2"}})
    price = page.read_price("$0.36/h")
    cells = [line.strip("| ").split(" | ") for line in page.table(machine, price).splitlines()]
    by_title = {(line[0], line[1]): line[3:] for line in cells}
    assert by_title["PPO", "2 ranks"][:4] == ["about 6,250 s", "1.60", "80%", "$0.625"]  # 62.5 s × 100
    assert by_title["PPO", "4 ranks"][2:] == ["35%", "$0.714", "4 on 2 cores: oversubscribed"]
    assert by_title["evolution", "one process, 2 threads"][1:3] == ["2.00", "100%"]
    claims = page.claims([machine], price)
    assert "Evolution gains more from the cores in its first rounds | 2.00 times as fast with one process, 2" in claims
    assert "2 threads | 1.60 times" in claims
    assert "1 digest in 2 rows | 3 digests in 3 rows" in claims
    assert "oversubscribed" not in claims
    assert "It costs | $0.294" in claims  # 5 s of 400 k steps, for all steps of the 200 generations
    busy = machine.with_row(timed(rows, rows.PPO, 2, 1, 62.5, "2", loads=(9.0, 12.0)))
    assert "beside other work: load 9 to 12" in page.table(busy, price)
    claims = page.claims([busy], price)
    assert "is not decided" in claims
    assert "gains more" not in claims
    assert "It costs" not in claims
    with pytest.raises(SystemExit, match="other work"):
        rows.check_work([*ours, timed(rows, rows.EVOLUTION, 2, 1, 5.0, "b")])


def test_a_file_keeps_rows_and_curves(contest, tmp_path):
    _, rows = contest
    made = rows.Machine("two cores", about={"cpu": "a CPU", "cores": 2, "versions": {}})
    for seconds in (9.0, 8.0):  # the second replaces the first
        made = made.with_row(timed(rows, rows.PPO, 1, 1, seconds, "a", split={"playing": 1.0}, loads=(0.5, 1.5)))
    made = made.with_curve(rows.Curve(rows.PPO, (rows.Point(40_000, -90.0),), 100, "one epoch"))
    rows.save(made, tmp_path / "mine.json")
    assert rows.load(tmp_path / "mine.json") == made
    assert [row.seconds for row in made.rows] == [8.0]
    (tmp_path / "mine.json").write_text('{"schema": 1}')
    with pytest.raises(SystemExit, match=r"mine\.json: expected a file of "):
        rows.load(tmp_path / "mine.json")


def test_rows_of_two_machines_do_not_meet_in_a_file(contest, bench, tmp_path):
    _, rows = contest
    row = timed(rows, rows.PPO, 1, 1, 8.0, "a", loads=(0.5, 1.5))
    rows.save(rows.Machine("another", (row,), (), {"cpu": "a CPU", "cores": 999}), tmp_path / "mine.json")
    for ranks in (1, 2):
        code, out, err = bench("contest_2020", "-o", tmp_path / "mine.json", "--ranks", ranks, "--workers", "--threads")
        assert (code, out) == (1, "")
        assert "expected rows of this machine (" in err
        assert err.endswith("), got rows of a CPU, 999 cores. Choose -o.\n")
    assert bench("contest_2020", "-o", tmp_path / "mine.json", "--ranks", "--workers", "--threads")[0] == 0


def test_the_page_is_made_of_its_files(contest):
    page, rows = contest
    machines = [rows.load(path) for path in sorted(page.RESULTS.glob("*.json"))]
    assert machines
    assert f"<!-- contest-2020 -->\n\n{page.text(machines)}\n\n<!-- end of contest-2020 -->" in page.PAGE.read_text(), (
        "run python benchmarks/contest_2020.py --publish"
    )
    assert page.FIGURE.stat().st_size > 10_000
