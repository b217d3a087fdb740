"""An episode that did not go on this machine as a run file says."""

from evolve.divergence.causes import explain
from evolve.divergence.episode import enact
from evolve.divergence.logs import Log, episode_apart, of_record, parting
from evolve.divergence.verdict import Side, Verdict
from evolve.experiment import Experiment
from evolve.genome import Genomes
from evolve.playback import genome_of
from evolve.store import Run

HERE = "this machine"


def judge(
    run: Run,
    experiment: Experiment,
    key: tuple[int, int, int],
    made: Log,
    what: str | None,
    manifests: tuple[dict[str, str], ...],
    genome: Genomes | None = None,
) -> Verdict:
    """Return the verdict on an episode (generation, candidate, episode) that did not go here as its log says.

    what: is known to be wrong already. genome: of the candidate (P = 1), if the file may not hold it.
    """
    generation, candidate, episode = key
    kept = of_record(run.records[generation], candidate).track(episode)
    now = made.track(episode)
    told = f"generation {generation}: {episode_apart(candidate, episode, kept, now)} on {HERE}"
    genome = genome_of(run, experiment, generation, candidate) if genome is None else genome
    step, first = parting(kept, now)
    cause, why = explain(first, step, run.header.seed)
    if what is not None:
        shows = f"; {first} part in step {step}" if step is not None else ""
        cause, why = explain(what, step, run.header.seed)
        why += shows
    played = Side(HERE, now.returned, now.length)
    if step is not None and genome is not None:
        played = enact(run, experiment, key, genome).side(HERE, step)
    sides = Side(str(run.path), kept.returned, kept.length), played
    return Verdict(False, told, cause, why, *key, step, what or first, sides, (), manifests)
