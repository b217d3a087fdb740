"""python -m evolve.evaluate: a champion on held-out episodes; see evolve.cli.evaluate."""

if __name__ == "__main__":
    from evolve.cli import start

    start("evaluate")
