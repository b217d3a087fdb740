"""An episode that did not go on this machine as a run file says."""

from evolve.divergence.causes import explain
from evolve.divergence.episode import enact
from evolve.divergence.logs import Log, episode_apart, of_record
from evolve.divergence.verdict import Side, Verdict
from evolve.evolution import Experiment
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
    kept = of_record(run.records[generation], candidate)
    told = f"generation {generation}: {episode_apart(candidate, episode, kept, made)} on {HERE}"
    genome = genome_of(run, experiment, generation, candidate) if genome is None else genome
    step, first, sides = None, "somewhere", [Side(str(run.path)), Side(HERE)]
    if (kept.fingerprints[episode] == made.fingerprints[episode]).all():
        first = "return"
    elif genome is not None:
        played = enact(run, experiment, key, genome)
        step, first = played.parts(kept, episode) or (None, "somewhere")
        sides[1] = played.side(HERE, step)
    sides[0] = Side(str(run.path), float(kept.returns[episode]), int(kept.lengths[episode]))
    cause, why = explain(first, step, run.header.seed)
    if what is not None:
        shows = f"; {first} part in step {step}" if step is not None else ""
        cause, why = explain(what, step, run.header.seed)
        why += shows
    return Verdict(False, told, cause, why, *key, step, what or first, tuple(sides), (), manifests)
