"""The job of hostfiles/slurm.sh in a real SLURM: time limits, lost nodes and arrays cost time, but change no bit."""

import os
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment, make_runs, wait_for
from slurm import Slurm, why_no_slurm

from evolve import store

pytestmark = pytest.mark.slow
RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.02", "-p", "12", "-r", "2", "-g", "12", "-d", "2",
       "--set", "held_out_episodes=0")  # fmt: skip


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    if why_no_slurm():
        pytest.skip(why_no_slurm())
    with Slurm(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return a function from a seed to the digests of a run without SLURM."""
    folder = tmp_path_factory.mktemp("alone")
    quick = [word.replace("seconds=0.02", "seconds=0") for word in RUN]
    make_runs(folder, *quick, "-s", 0, 1, 2, "-o", "out")
    return lambda seed: digests(folder / "out", seed)


def digests(folder: Path, seed: int) -> list[bytes]:
    run = store.read(store.path_of(folder, seed))
    return [record.digest for record in run.records]


class Job:
    """A job, and its log."""

    def __init__(self, slurm, folder, *options, launcher=None):
        self.slurm, self.folder = slurm, folder
        env = environment() | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        env |= {"EVOLVE_LAUNCHER": launcher} if launcher else {}
        given = {name: value for name, value in env.items() if name in ("PATH", "PYTHONPATH", "EVOLVE_LAUNCHER")
                 or name.startswith("OMPI_")}  # fmt: skip
        words = ("--parsable", f"--output={folder}/%a.log", f"--chdir={folder}", "--time=20", *options)
        script = (ROOT / "hostfiles" / "slurm.sh", *RUN, "-o", folder / "out")
        self.number = slurm.command("sbatch", *words, *script, **given)

    def log(self):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def evolving(self, times=1):
        """Wait until generations are complete after the job has started for the `times`-th time."""
        wait_for(lambda: self.log().rpartition("on the allocation")[2].count("best fitness") > 1
                 and self.log().count("on the allocation") >= times, self.log)  # fmt: skip

    def complete(self, *seeds):
        paths = [store.path_of(self.folder / "out", seed) for seed in seeds]
        wait_for(lambda: all(path.exists() and store.read_progress(path)[1] for path in paths), self.log)
        wait_for(lambda: not self.slurm.command("squeue", "-h", "-j", self.number), self.log)


@pytest.mark.parametrize("launcher", [None, "mpirun"])
def test_a_job_that_is_short_of_time_is_requeued_and_resumed(slurm, expected, tmp_path, launcher):
    job = Job(slurm, tmp_path, "--nodes=2", "--ntasks-per-node=2", launcher=launcher)
    job.evolving()
    slurm.command("scancel", "--batch", "--signal=USR1", job.number)
    job.complete(0)
    assert "stopped by a signal" in job.log()
    assert digests(tmp_path / "out", 0) == expected(0)


def test_a_lost_node_costs_no_bit(slurm, expected, tmp_path):
    job = Job(slurm, tmp_path, "--nodes=2", "--ntasks-per-node=2", "--nodelist=node1,node2")
    job.evolving()
    slurm.hosts.lose(2)
    wait_for(lambda: slurm.command("sinfo", "-h", "-n", "node2", "-o", "%t").startswith("down"), job.log)
    slurm.boot(2)
    job.complete(0)
    assert job.log().count("on the allocation") > 1
    assert digests(tmp_path / "out", 0) == expected(0)


def test_a_task_of_an_array_is_requeued_alone(slurm, expected, tmp_path):
    job = Job(slurm, tmp_path, "--nodes=1", "--ntasks-per-node=2", "--array=1-2")
    logs = [tmp_path / "1.log", tmp_path / "2.log"]
    wait_for(lambda: all(log.exists() and "best fitness" in log.read_text() for log in logs), job.log)
    slurm.command("scancel", "--batch", "--signal=USR1", f"{job.number}_2")
    job.complete(1, 2)
    assert [log.read_text().count("on the allocation") for log in logs] == [1, 2]
    for seed in (1, 2):
        assert digests(tmp_path / "out", seed) == expected(seed)
