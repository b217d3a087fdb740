"""python -m evolve COMMAND: see evolve.cli."""

if __name__ == "__main__":
    from evolve.cli import main

    main()
