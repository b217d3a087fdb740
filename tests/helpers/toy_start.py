"""`python -m toy_start HOW RANK`: a small run in which one rank does not start correctly."""

import os
import signal
import sys
import time

from evolve.cluster import start

how, rank = sys.argv[1], int(sys.argv[2])
if rank == int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))):
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "late":
        time.sleep(20)
    if how == "introduced":
        start.introduce = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

from evolve.cli.app import launch  # noqa: E402

RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0", "-p", "4", "-r", "1", "-g", "1", "-d", "2", "-o", "out",
       "--set", "held_out_episodes=0")  # fmt: skip
if __name__ == "__main__":
    sys.exit(launch("run", list(RUN)))
