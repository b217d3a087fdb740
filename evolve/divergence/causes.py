"""From the place where two logs part to the cause: configuration, random stream, environment, network, or the log."""

from evolve.divergence.verdict import Cause

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
