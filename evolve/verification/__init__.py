"""Verification: are two runs equal, does this machine repeat one, and where and why do they differ first.

A run's log is compared with another's (`compare`), or with what this machine makes of it: its champions evaluated again
(`reevaluate`), or all of it (`rerun`). At the first difference the episode is played again here; its step hashes give
the step, and whether the observations or the actions differ first: an environment, or a network. A champion file, which
has no log, is compared by its held-out episodes, and by the digest of its run. Both kinds of files can be compared with
the published digests (`compare_with_published`).
"""

from dataclasses import replace

from evolve.store import Stored
from evolve.training import Experiment, load_config
from evolve.verification.file_comparison import compare
from evolve.verification.playing import EachStep, Episode, choose, choose_champions, environment_seed, make_engine, play
from evolve.verification.published import compare_with_published, read_published
from evolve.verification.reevaluation import reevaluate, spot_check
from evolve.verification.rerun import reevaluate_champion, rerun, rerun_champion
from evolve.verification.verdict import ENGINE, Verdict

__all__ = [
    "EachStep",
    "Episode",
    "Verdict",
    "choose",
    "choose_champions",
    "compare",
    "compare_with_published",
    "environment_seed",
    "make_engine",
    "name_engines",
    "play",
    "read_published",
    "reevaluate",
    "reevaluate_champion",
    "rerun",
    "rerun_champion",
    "spot_check",
    "tolerant",
]


def tolerant(experiment: Experiment) -> Experiment:
    """Return an experiment whose episodes may fail: one that fails on this machine only is a difference."""
    env = experiment.config.env.model_copy(update={"on_failure": "worst"})
    return replace(experiment, config=experiment.config.model_copy(update={"env": env}))


def name_engines(verdict: Verdict, run: Stored, experiment: Experiment) -> Verdict:
    """Return a verdict that names the engine of a file and the one that has played here, if these are two."""
    kept, here = load_config(run.header.config, str(run.path)).env.engine, experiment.config.env.engine
    return verdict if kept == here else replace(verdict, configuration=((ENGINE, kept, here),))
