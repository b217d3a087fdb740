"""From the place where two logs part to the cause.

It is the configuration, the random stream, the strategy, the environment, the network, or the log.
"""

from evolve.divergence.verdict import Cause
from evolve.manifest import PORTABLE

_WHY: dict[str, tuple[Cause, str]] = {
    "observations": ("environment", "the observations part in step {step}; before it they and the actions are equal"),
    "reset": ("environment", "the observations of reset part already: the environment, or the seed that it was given"),
    "actions": ("network", "the actions part in step {step}, though what the network saw so far is equal"),
    "end": ("environment", "the episode ends after step {step} on one side only; all before it is equal"),
    "late": ("environment", "they part after step {step}, up to which trails are kept"),
    "return": ("environment", "observations and actions are equal, but not what they came to: the rewards, or the log"),
    "traces": ("network", "observations and actions are equal, but not the traces that they left"),
    "somewhere": (
        "environment",
        "observations and actions part in a step that cannot be told: no trail of this candidate was kept",
    ),
    "last action": ("network", "the observations are equal, but not the actions"),
    "genome": ("random stream", "the genomes that were asked for are not the same"),
    "algebra": (
        "strategy",
        "the strategy's linear algebra is not portable: the genomes that it asks for follow from the machine as well",
    ),
    "birth": ("random stream", "these are not the genomes that seed {seed} gives birth to"),
    "weights": ("network", "the stored genome is not the one that was evaluated: a weight or a connection was changed"),
    "shape": ("configuration", "the numbers of candidates or episodes differ"),
    "held-out": ("environment", "held-out episodes come to something else, or what was logged of them was changed"),
    "log": ("log", "what was evaluated is equal, so what was logged of it was changed afterwards"),
}


def explain(what: str, step: int | None, seed: int = 0) -> tuple[Cause, str]:
    """Return the cause of what parts first, and why that is thought to be so."""
    if what == "observations" and step == 0:
        what = "reset"
    cause, why = _WHY[what]
    return cause, why.format(step=step, seed=seed)


_ALGEBRA = ("packages.numpy", "packages.cmaes", "blas", "cpu", "cpu features")
"""What of a manifest decides what a library's linear algebra comes to."""


def genome_apart(generation: int, manifests: tuple[dict[str, str], ...]) -> str:
    """Return what other genomes in a generation mean: "genome", or "algebra" where the strategy's explains them.

    That is so where it is not portable and the machines of the two manifests are not alike, but for generation 0.
    """
    one, other = manifests
    portable = one.get("strategy", PORTABLE) == other.get("strategy", PORTABLE) == PORTABLE
    alike = all(one.get(key) == other.get(key) for key in _ALGEBRA)
    return "genome" if generation == 0 or portable or alike else "algebra"
