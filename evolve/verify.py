"""python -m evolve.verify: are two runs equal, and does this machine repeat one; see evolve.cli.verify."""

if __name__ == "__main__":
    from evolve.cli import start

    start("verify")
