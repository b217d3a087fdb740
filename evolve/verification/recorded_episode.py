"""Playing one episode again, written down step by step."""

from dataclasses import dataclass

import numpy as np

from evolve.environments import Recorder, Recording
from evolve.genome import Genomes
from evolve.numerics.streams import Purpose
from evolve.rollouts import EpisodeResults
from evolve.store import StoredRun
from evolve.training import Experiment
from evolve.verification.logs import EpisodeLog
from evolve.verification.playing import make_engine, play
from evolve.verification.selection import Episode
from evolve.verification.verdict import Side


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode as it was played here: every step of it, and its results (N = 1)."""

    recording: Recording
    results: EpisodeResults

    @property
    def log(self) -> EpisodeLog:
        """What is to be compared of it."""
        results = self.results
        return EpisodeLog(float(results.returns[0]), self.length, results.fingerprints[0], results.step_hashes)

    def agrees(self, log: EpisodeLog) -> bool:
        """Return whether it was played as a log says."""
        return bool((self.results.fingerprints[0] == log.fingerprint).all())

    @property
    def length(self) -> int:
        """Environment steps."""
        return int(self.results.lengths[0])

    def side(self, name: str, step: int | None) -> Side:
        """Return the observation and the action of a step, as one side of a verdict."""
        observations = self.recording.observations
        actions = self.recording.outputs
        at = len(observations) if step is None else step
        observation = tuple(observations[at].tolist()) if at < len(observations) else None
        action = tuple(actions[at].tolist()) if at < len(actions) else None
        return Side(name, float(self.results.returns[0]), self.length, observation, action)


def play_recorded(run: StoredRun, experiment: Experiment, key: tuple[int, int, int], genome: Genomes) -> PlayedEpisode:
    """Play the episode (generation, candidate, episode) of a run with a genome (P = 1), alone in this process."""
    chosen = Episode(genome, Purpose.EPISODE, *key, logged=np.nan)  # it may fail: that is compared, too
    recorder = Recorder(make_engine(experiment, chosen), 1, observations=True)
    try:
        results = play(run, experiment, chosen, recorder)
    finally:
        recorder.close()
    return PlayedEpisode(recorder.running[0], results)
