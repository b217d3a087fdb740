"""Rollouts let networks play episodes in environments, and return the results. No MPI, no files.

An `EpisodeBatch` lists the episodes and the genomes that play them. A `Rollout` plays them in B slots side by side, and
returns `EpisodeResults` in any order. `PopulationResults` hold the results as tables of candidates × episodes. The
modules `episodes` and `rollout` are the first to read. If kernels play whole episodes of an exact task, `exact_rollout`
takes the place of `rollout`.
"""

from evolve.rollouts.device_play import AnyRollout, RolloutInHalves
from evolve.rollouts.episodes import (
    EPISODE_QUANTITIES,
    EpisodeBatch,
    EpisodeFailure,
    EpisodeResults,
    RolloutSpec,
    Traces,
    generation_keys,
    join,
)
from evolve.rollouts.exact_rollout import ExactRollout
from evolve.rollouts.inference import Moments
from evolve.rollouts.queue import EpisodeQueue
from evolve.rollouts.results import PopulationResults, metrics_of, sum_traces
from evolve.rollouts.rollout import Rollout
