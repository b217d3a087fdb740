"""python -m evolve.verify: compare two runs, or test if this machine repeats a run; see evolve.cli.verify."""

if __name__ == "__main__":
    from evolve.cli import start

    start("verify")
