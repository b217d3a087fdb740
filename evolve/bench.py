"""python -m evolve.bench: speed, as a ratio to bare environments; see evolve.cli.bench."""

if __name__ == "__main__":
    from evolve.cli import start

    start("bench")
