"""python -m evolve.bench: speed, relative to environments without networks and MPI; see evolve.cli.bench."""

if __name__ == "__main__":
    from evolve.cli import start

    start("bench")
