"""Playing one episode again, written down step by step."""

from dataclasses import dataclass

import numpy as np

from evolve.divergence.logs import Track
from evolve.divergence.verdict import Side
from evolve.environments import Recorder, Recording
from evolve.evaluation import Outcomes
from evolve.experiment import Experiment
from evolve.genome import Genomes
from evolve.playback import Episode, make_engine, play
from evolve.rng import Purpose
from evolve.store import Run


@dataclass(frozen=True)
class Enacted:
    """An episode as it goes here; `outcomes` are those of N = 1."""

    recording: Recording
    outcomes: Outcomes

    @property
    def track(self) -> Track:
        """What is to be compared of it."""
        returned, done = float(self.outcomes.returns[0]), self.outcomes
        return Track(returned, self.length, done.fingerprints[0], done.trails)

    def agrees(self, track: Track) -> bool:
        """Return whether it went as a log says."""
        return bool((self.outcomes.fingerprints[0] == track.fingerprint).all())

    @property
    def length(self) -> int:
        """Environment steps."""
        return int(self.outcomes.lengths[0])

    def side(self, name: str, step: int | None) -> Side:
        """Return what it has in a step."""
        seen, done = self.recording.observations, self.recording.outputs
        at = len(seen) if step is None else step
        observation = tuple(seen[at].tolist()) if at < len(seen) else None
        action = tuple(done[at].tolist()) if at < len(done) else None
        return Side(name, float(self.outcomes.returns[0]), self.length, observation, action)


def enact(run: Run, experiment: Experiment, place: tuple[int, int, int], genome: Genomes) -> Enacted:
    """Play the episode at a place (generation, candidate, episode) of a run with a genome (P = 1), here and alone."""
    chosen = Episode(genome, Purpose.EPISODE, *place, logged=np.nan)  # it may fail: that is compared, too
    recorder = Recorder(make_engine(experiment, chosen), 1, observations=True)
    try:
        outcomes = play(run, experiment, chosen, recorder)
    finally:
        recorder.close()
    return Enacted(recorder.running[0], outcomes)
