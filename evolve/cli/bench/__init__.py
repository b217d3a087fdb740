"""evolve bench: how fast the engine is, as ratios to what bounds it, side by side in one call.

`rollouts` plays the same episodes by the engine over MPI and by bare environments; `inference` times one network step
on every back end. Rates of one machine drift: the ratio of each pair counts.
"""

from evolve.cli.bench.command import main

__all__ = ["main"]
