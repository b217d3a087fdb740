"""python -m evolve.run: evolve an experiment; see evolve.cli.run."""

if __name__ == "__main__":
    from evolve.cli import start

    start("run")
