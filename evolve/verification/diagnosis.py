"""An episode that is not played on this machine as a run file says."""

from evolve.genome import Genomes
from evolve.store import StoredRun
from evolve.training import Experiment
from evolve.verification.causes import explain
from evolve.verification.logs import CandidateLog, describe_difference, first_different_step, log_of_record
from evolve.verification.recorded_episode import play_recorded
from evolve.verification.selection import genome_of
from evolve.verification.verdict import Side, Verdict

HERE = "this machine"


def diagnose(
    run: StoredRun,
    experiment: Experiment,
    key: tuple[int, int, int],
    made: CandidateLog,
    what: str | None,
    manifests: tuple[dict[str, str], ...],
    genome: Genomes | None = None,
) -> Verdict:
    """Return the verdict on an episode that was not played here as its log says.

    Args:
        run: The run file.
        experiment: That of the run.
        key: (generation, candidate, episode).
        made: The log of the candidate that was made here.
        what: What is known to be wrong already, None for nothing.
        manifests: Of the file, and of this process.
        genome: Of the candidate (P = 1), where the file may not hold it.
    """
    generation, candidate, episode = key
    kept = log_of_record(run.records[generation], candidate).episode_log(episode)
    now = made.episode_log(episode)
    summary = f"generation {generation}: {describe_difference(candidate, episode, kept, now)} on {HERE}"
    genome = genome_of(run, experiment, generation, candidate) if genome is None else genome
    step, first = first_different_step(kept, now)
    cause, why = explain(first, step, run.header.seed)
    if what is not None:
        shows = f"; {first} differ in step {step}" if step is not None else ""
        cause, why = explain(what, step, run.header.seed)
        why += shows
    played = Side(HERE, now.return_, now.length)
    if step is not None and genome is not None:
        played = play_recorded(run, experiment, key, genome).side(HERE, step)
    sides = Side(str(run.path), kept.return_, kept.length), played
    return Verdict(False, summary, cause, why, *key, step, what or first, sides, (), manifests)
