"""From the first difference between two logs to its cause.

It is the configuration, the random stream, the strategy, the environment, the network, or the log.
"""

from evolve.training.manifest import PORTABLE
from evolve.verification.verdict import Cause

_WHY: dict[str, tuple[Cause, str]] = {
    "observations": ("environment", "the observations differ in step {step}; before it they and the actions are equal"),
    "reset": (
        "environment",
        "the observations of reset differ already: the environment, or the seed that it was given",
    ),
    "actions": ("network", "the actions differ in step {step}, though all observations so far are equal"),
    "end": ("environment", "the episode ends after step {step} on one side only; all before it is equal"),
    "late": ("environment", "they differ after step {step}, up to which step hashes are kept"),
    "return": (
        "environment",
        "observations and actions are equal, but not the return: the rewards differ, or the log does",
    ),
    "traces": ("network", "observations and actions are equal, but not the traces that they left"),
    "somewhere": (
        "environment",
        "observations and actions differ in a step that is not known: no step hashes of this candidate were kept",
    ),
    "last action": ("network", "the observations are equal, but not the actions"),
    "genome": ("random stream", "the genomes that were asked for are not the same"),
    "algebra": (
        "strategy",
        "the strategy's linear algebra is not portable: the genomes that it asks for follow from the machine as well",
    ),
    "init": ("random stream", "these are not the initial genomes of seed {seed}"),
    "weights": ("network", "the stored genome is not the one that was evaluated: a weight or a connection was changed"),
    "shape": ("configuration", "the numbers of candidates or episodes differ"),
    "held-out": ("environment", "held-out episodes have other returns, or what was logged of them was changed"),
    "digest": ("environment", "the run was another one; its run file, if it was kept, tells where they differ first"),
    "log": ("log", "what was evaluated is equal, so what was logged of it was changed afterwards"),
}


def explain(what: str, step: int | None, seed: int = 0) -> tuple[Cause, str]:
    """Return the cause of what differs first, and why that is thought to be so."""
    if what == "observations" and step == 0:
        what = "reset"
    cause, why = _WHY[what]
    return cause, why.format(step=step, seed=seed)


_ALGEBRA = ("packages.numpy", "packages.cmaes", "blas", "cpu", "cpu features")
"""What of a manifest decides the bits of a library's linear algebra."""


def genome_cause(generation: int, manifests: tuple[dict[str, str], ...]) -> str:
    """Return the cause of other genomes in a generation: "algebra" where the strategy's explains them, else "genome".

    It does where it is not portable and the machines of the two manifests are not alike, but for generation 0.
    """
    one, other = manifests
    portable = one.get("strategy", PORTABLE) == other.get("strategy", PORTABLE) == PORTABLE
    alike = all(one.get(key) == other.get(key) for key in _ALGEBRA)
    return "genome" if generation == 0 or portable or alike else "algebra"
