"""python -m evolve.report: all about runs on one page; see evolve.cli.report."""

if __name__ == "__main__":
    from evolve.cli import start

    start("report")
