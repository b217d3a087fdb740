"""Rollouts let networks play episodes in environments, and return the results. No MPI, no files.

An `EpisodeBatch` lists which genomes play which episodes. A `Rollout` plays them in B slots side by side, and returns
`EpisodeResults` in any order. `PopulationResults` hold them as a table of candidates × episodes.
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
