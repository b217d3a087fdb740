"""Where two runs part, and why: what `evolve.verify` says.

A run's log is compared with another's, or with what this machine makes of it. At the first difference the episode is
played again here; its trail tells the step at which the two part, and whether what was seen or what was done parts
first: an environment, or a network.
"""

from dataclasses import replace

from evolve.divergence.again import again
from evolve.divergence.files import compare
from evolve.divergence.full import from_the_beginning
from evolve.divergence.retold import retold
from evolve.divergence.verdict import Verdict
from evolve.experiment import Experiment

__all__ = ["Verdict", "again", "compare", "from_the_beginning", "retold", "tolerant"]
"""`compare` two files; evaluate the champions of one `again`; or run all of it again, `from_the_beginning`."""


def tolerant(experiment: Experiment) -> Experiment:
    """Return an experiment whose episodes may fail: one that fails on this machine only is a difference to be told."""
    env = experiment.config.env.model_copy(update={"on_failure": "worst"})
    return replace(experiment, config=experiment.config.model_copy(update={"env": env}))
