"""python -m evolve.replay: play episodes of a run again; see evolve.cli.replay."""

if __name__ == "__main__":
    from evolve.cli import start

    start("replay")
