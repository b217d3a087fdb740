"""python -m evolve: which commands there are."""

import sys

_COMMANDS = {
    "run": "evolve an experiment, one run file per seed; --resume continues it",
    "verify": "are two runs equal; does this machine repeat one; where do they part, and why",
    "replay": "play episodes of a run again, equal to the log; as a film, or in a window",
    "evaluate": "a run's champion on held-out episodes, with a 95 % interval",
    "plot": "curves of runs, or the network of a champion, as PNG, SVG or PDF",
    "report": "everything about runs on one HTML page",
    "bench": "speed, as a ratio to bare environments",
}


def main() -> int:
    """Print the commands; return 0, or 2 when something else was asked for."""
    asked = sys.argv[1:]
    known = " ".join(_COMMANDS)
    if asked and asked[0] not in ("-h", "--help"):
        cure = f"python -m evolve.{asked[0]} --help" if asked[0] in _COMMANDS else f"Known: {known}."
        print(f"evolve: expected no arguments, got {asked[0]!r}. {cure}", file=sys.stderr)
        return 2
    print("evolve: neuroevolution over MPI, the same bits on any number of ranks\n")
    for name, what in _COMMANDS.items():
        print(f"  python -m evolve.{name:9} {what}")
    print("\nEach says more with --help. In front of run, verify, evaluate and report: mpirun -n RANKS.")
    print("\nexample:\n  mpirun -n 8 python -m evolve.run -e BipedalWalker-v3 -p 64 -g 50")
    return 0


if __name__ == "__main__":
    sys.exit(main())
