"""evolve contest: rows by workers, a file that cannot be edited unnoticed, and a comparison of files."""

import json
import re
from functools import cache
from unittest.mock import Mock

import pytest
from conftest import OPENMPI, environment

from evolve.analysis import contest
from evolve.analysis.contest import session
from evolve.analysis.contest.results import LegDigest
from evolve.analysis.contest.session import PlayedLeg
from evolve.cli import contest as contest_command
from evolve.cli.contest import plan_rows
from evolve.cluster.supervision import Outcome
from evolve.errors import InputError, Stopped


@pytest.fixture
def here(monkeypatch):
    """Let rows be measured in this process, quickly, and by workers that only say how many they are."""
    monkeypatch.setattr(contest_command, "number_of_cores", lambda: 2)
    rows = {}

    def run_job(_supervisor, size, workers, chosen, unverified):
        if not rows:
            rows["one"] = unverified_row(size, chosen) if unverified else measure(size, chosen, True)
        return rows["one"].model_copy(update={"workers": workers})

    monkeypatch.setattr(contest_command, "run_job", run_job)
    monkeypatch.setattr(contest_command, "has_device", lambda: False)
    return rows


def measure(size, chosen, check_known):
    return session.measure(*ranks(), size, chosen, check_known, lambda _: None)


@cache
def unverified_row(size, chosen):
    """A row that several tests share."""
    return measure(size, chosen, False)


def ranks():
    from evolve.cluster import Coordinator, Transport
    from evolve.training import make_rollout

    transport = Transport()
    return Coordinator(transport, make_rollout), transport


@pytest.mark.usefixtures("here")
def test_a_contest_is_held_written_and_compared(call, monkeypatch, tmp_path):
    done = call("contest", "--size", "trial", "--price", "$3.60/h", "--name", "toaster\x1b\udcff|", "-o", "a.json").ok()
    assert "1 worker, 2 workers" in done.err
    *_, line, _, name = done.out.splitlines()
    assert name == "a.json"
    assert line.startswith("evolve contest 2 trial: ")
    assert line.endswith("; validated")
    assert "toaster" in line
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["line"] == line
    assert found["verdict"] == "validated"
    assert len(found["system"]) >= 40
    assert [row["workers"] for row in found["rows"]] == [1, 2]
    for row in found["rows"]:
        assert len(row["repeats"]) == 3
        assert all(0 < repeat["playing"] < 1.1 for repeat in row["repeats"])
        assert row["known"] == contest.known_digests("trial")
    call("contest", "--size", "trial", "-o", "a.json").refused("already exists")
    with monkeypatch.context() as full_disk:
        full_disk.setattr(contest_command.results, "write", Mock(side_effect=InputError.plainly("b.json", "no space")))
        unwritten = call("contest", "--size", "trial", "-o", "b.json")
    assert (unwritten.code, unwritten.out.endswith("; validated\n")) == (2, True), unwritten.err
    both = call("contest", "--compare", "a.json", "a.json", "-o", "both.svg", "--markdown").ok()
    rows = [line for line in both.out.splitlines() if line.startswith(r"| toaster\\x1b\\udcff\| \#")]
    assert len(rows) == 4
    assert (tmp_path / "both.svg").stat().st_size > 10_000
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text.replace('"hour": 3.6', '"hour": 0.36'))
    call("contest", "--compare", "a.json").refused("a.json was edited")


@pytest.mark.usefixtures("here")
def test_a_contest_without_the_known_run_is_called_unverified(call):
    done = call("contest", "--size", "trial", "--unverified", "--repeats", 1)
    assert "(1 repeat) with" in done.out
    assert "do not agree" not in done.out
    assert done.code == 0, done.err
    assert done.out.splitlines()[-3].endswith("; unverified")


@pytest.mark.usefixtures("here")
def test_the_legs_of_a_result_are_medians_as_the_score_is(call, monkeypatch):
    run_job = contest_command.run_job

    def varied(*arguments):
        row = run_job(*arguments)
        changes = ({"seconds": 6 * each, "legs": dict.fromkeys(row.legs, each)} for each in (1.0, 2.0, 10.0))
        return row.model_copy(update={"repeats": tuple(row.repeats[0].model_copy(update=each) for each in changes)})

    monkeypatch.setattr(contest_command, "run_job", varied)
    said = call("contest", "--size", "trial", "--unverified", "--repeats", 1, "--workers", 1).ok().out
    assert re.search(r"1 worker, by leg: pole 2\.00 s, .*walker 2\.00 s; .* steps in all, 12\.0 s$", said, re.M)


def test_two_contests_with_one_output_keep_both_results(call, here, monkeypatch, tmp_path):
    run_job = contest_command.run_job

    def run_beside_another(*arguments):
        for name in ("a.json", "a-2.json"):
            (tmp_path / name).write_text("of another contest")
        return run_job(*arguments)

    monkeypatch.setattr(contest_command, "run_job", run_beside_another)
    words = ("contest", "--size", "trial", "--unverified", "--repeats", 1, "--workers", 1)
    assert call(*words, "-o", "a.json").ok().out.splitlines()[-1] == "a-3.json"
    assert json.loads((tmp_path / "a-3.json").read_text())["verdict"] == "unverified"
    assert (tmp_path / "a.json").read_text() == (tmp_path / "a-2.json").read_text() == "of another contest"


def test_a_job_that_fails_loses_no_row_before_it(call, here, monkeypatch, tmp_path):
    run_job = contest_command.run_job
    monkeypatch.setattr(contest_command, "run_job", lambda *a: 75 if here else run_job(*a))
    done = call("contest", "--size", "trial", "--unverified", "--repeats", 1, "-o", "a.json")
    assert (done.code, done.err.splitlines()[-1]) == (
        75,
        "evolve.contest: the file has 1 row: the job of the next row ended with exit code 75.",
    )
    assert [row["workers"] for row in json.loads((tmp_path / "a.json").read_text())["rows"]] == [1]
    assert call("contest", "--size", "trial", "-o", "b.json").code == 75
    assert not (tmp_path / "b.json").exists()


@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
def test_workers_play_the_same_in_a_job_of_their_own(call, tmp_path):
    call("contest", "--size", "trial", "--workers", 2, "--repeats", 1, "-o", "two.json", **environment()).ok()
    (row,) = json.loads((tmp_path / "two.json").read_text())["rows"]
    assert (row["workers"], row["hosts"]) == (2, [3])
    assert "Open MPI" in row["mpi"]
    assert row["known"] == contest.known_digests("trial")


@pytest.mark.slow
@pytest.mark.skipif(not OPENMPI.exists(), reason="no Open MPI")
def test_ranks_that_are_there_are_used(command, tmp_path):
    command("", "contest", "--size", "trial", "-o", "ranks.json", module="evolve", ranks=3).ok()
    assert json.loads((tmp_path / "ranks.json").read_text())["rows"][0]["workers"] == 2


@pytest.mark.usefixtures("here")
def test_different_work_is_told_and_nothing_written(call, monkeypatch, tmp_path):
    expected = json.loads(json.dumps(contest.golden()))
    leg = expected["sizes"]["trial"]["swing"]
    leg["digest"] = "0" * 64
    leg["tags"][2] = "0000" + leg["tags"][2][4:]
    monkeypatch.setattr(contest, "golden", lambda: expected)
    for words in (["--validate"], []):
        done = call("contest", "--size", "trial", *words)
        assert done.code == 1
        assert "different work: swing, generation 2, candidate 0: another genome" in done.err
    assert not list(tmp_path.glob("*.json"))


def test_a_contest_can_be_stopped(call, monkeypatch, tmp_path):
    def stop(*_):
        raise Stopped("a signal")

    monkeypatch.setattr(session, "measure", stop)
    done = call("contest", "--size", "trial", "--job", tmp_path / "row.json")
    assert done.code == 75
    assert done.err == "evolve.contest: stopped, and this row was not written: a contest is not resumed.\n"
    assert not list(tmp_path.glob("*.json"))


def digest(name, timed_steps, steps):
    return LegDigest(digest=name, marks=(name,), every=1, steps=steps, timed_steps=timed_steps, episodes=1)


def test_repeats_that_differ_are_told(monkeypatch):
    names = iter(range(100))
    monkeypatch.setattr(session, "play", lambda *_, **__: PlayedLeg(digest(f"{next(names)}", 1, 1), (), 1.0, 1.0))
    with pytest.raises(session.DifferentWorkError, match="pole, generation 0 is not the same in each repeat"):
        session.measure(*ranks(), contest.SIZES["trial"], "native", False, lambda _: None)


def test_a_repeat_lasts_long_enough(monkeypatch):
    monkeypatch.setattr(session, "play", lambda *_, **__: PlayedLeg(digest("same", 4, 5), (), 0.7, 0.35))
    row = session.measure(*ranks(), contest.SIZES["small"], "native", False, lambda _: None)
    assert [repeat.passes for repeat in row.repeats] == [3, 3, 3]  # of 4.2 s
    assert row.seconds == pytest.approx(4.2)
    assert row.repeats[0].playing == pytest.approx(0.5)
    assert row.agrees


def test_which_workers_play(monkeypatch):
    monkeypatch.setattr(contest_command, "mpirun_words", lambda _: [])
    monkeypatch.setattr(contest_command, "check_start", lambda _: None)
    monkeypatch.setattr(contest_command, "has_device", lambda: True)
    assert plan_rows(None, "numpy", 20) == [(n, "numpy") for n in (1, 2, 4, 8, 16, 20)]
    assert plan_rows([8, 2, 8], "numpy", 20) == [(2, "numpy"), (8, "numpy")]
    assert [n for n, _ in plan_rows(None, None, 2)] == [1, 2, 1]
    assert plan_rows(None, None, 1)[-1] == (1, "cupy")


def test_workers_that_share_a_gpu_are_counted(call, monkeypatch):
    monkeypatch.setattr(contest_command.numerics, "backend", lambda _: "cupy")
    for name, found in (("mpirun_words", []), ("check_start", None), ("run_job", 75)):
        monkeypatch.setattr(contest_command, name, lambda *_, found=found: found)
    done = call("contest", "--size", "trial", "--backend", "cupy", "--workers", 1, 2)
    assert done.err.startswith("evolve.contest: contest 2, size trial: a GPU, a GPU with 2 workers\n")


def test_without_mpi_one_worker_can_play(monkeypatch):
    def none(*_):
        raise InputError("mpirun", "an MPI launcher", "none")

    monkeypatch.setattr(contest_command, "mpirun_words", none)
    monkeypatch.setattr(contest_command, "check_start", none)
    assert plan_rows([1], "numpy", 8) == [(1, "numpy")]
    with pytest.raises(InputError, match="mpirun"):
        plan_rows(None, "numpy", 8)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workers", 0], "at least one worker"),
        (["--workers", 10**6], "on this machine, got 1,000,000"),
        (["--repeats", 0], "at least one repeat"),
        (["--price", "cheap"], "a price of an hour"),
        (["--markdown"], "--compare, because"),
        (["--validate", "--unverified"], "not both --validate and --unverified"),
        (["--compare", "a.json", "--size", "small"], "not both --compare and --size"),
        (["--compare", "a.json", "--repeats", 0], "not both --compare and --repeats"),
        (["--compare", "a.json"], "a file that can be read"),
        (["-o", "a.txt"], "has to end with .json"),
    ],
)
def test_bad_options_are_refused(call, words, said):
    call("contest", *words).refused(said)


def test_the_work_is_small_enough_to_be_tried():
    for leg in contest.LEGS:
        config = contest.known_experiment(leg, "auto").config
        assert config.population * config.episodes * config.generations <= 150


def test_an_mpirun_that_starts_no_ranks_does_not_hang_the_contest(monkeypatch):
    monkeypatch.setenv("EVOLVE_CONNECT_SECONDS", "10")
    supervisor = Mock()
    supervisor.run.return_value = Outcome(137)
    assert contest_command.run_job(supervisor, contest.SIZES["trial"], 2, "native", False) == 137
    assert supervisor.run.call_args.kwargs == {"begin_limit": 70.0}
