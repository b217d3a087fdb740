"""python -m evolve.plot: curves of runs, and networks of champions; see evolve.cli.plot."""

if __name__ == "__main__":
    from evolve.cli import start

    start("plot")
