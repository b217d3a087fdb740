"""evolve bench: how fast the engine is, as ratios to what bounds it, side by side in one call.

`rollouts` plays a generation by the training loop over MPI, and the same episodes in bare environments; `bounds` times
a start, one step of the network on every back end, and one step of the environment in every engine. Rates of one
machine drift: the ratio of each pair counts.
"""

from evolve.cli.bench.command import _parser, main

__all__ = ["_parser", "main"]
