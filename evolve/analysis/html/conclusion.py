"""What a report comes to, in a sentence for each environment, and one on whether it can be repeated."""

from collections.abc import Sequence

from evolve.analysis.comparison import Comparison, compare_groups, held_out_score
from evolve.analysis.formatting import between, number
from evolve.analysis.groups import RunGroup, described
from evolve.analysis.run_summary import RunSummary
from evolve.errors import pluralize, sanitize

_LONGEST = 1000  # characters of a line


def conclude(groups: Sequence[RunGroup], summaries: Sequence[RunSummary], left: Sequence[str]) -> list[str]:
    """Return the verdict on groups: a line for each environment.

    Args:
        groups: Of runs that have completed a generation.
        summaries: One for each of their runs.
        left: For each group, what its best champion has left: "31 of 32 acting connections".
    """
    by_env: dict[str, list[tuple[RunGroup, str]]] = {}
    for group, connections in zip(groups, left, strict=True):
        by_env.setdefault(group.config.env.id, []).append((group, connections))
    parts = [
        sanitize(_of_one(*own[0]) if len(own) == 1 else _of_several([group for group, _ in own]), _LONGEST)
        for own in by_env.values()
    ]
    return [" ".join([parts[0], *_repeated(summaries)])] if len(parts) == 1 else [*parts, *_repeated(summaries)]


def _of_one(group: RunGroup, left: str) -> str:
    found = held_out_score(group)
    who, _, seeds = described([group]).rpartition(", seed")
    if found is None:
        done = f"{group.num_generations:,} of {group.config.generations:,} generations"
        best = number(max(run.records[-1].champion_fitness for run in group.runs))
        return f"{who} has a best training fitness of {best} after {done}; held-out episodes were not played yet."
    mean, interval = found
    spread = f", 95 % interval {between(interval)}" if interval is not None and interval[0] < interval[1] else ""
    over = f"over {pluralize(len(group.runs), 'seed')}" if len(group.runs) > 1 else f"seed{seeds}"
    return f"{who} reaches a mean return of {number(mean)} on held-out episodes ({over}{spread}), with {left}."


def _of_several(groups: Sequence[RunGroup]) -> str:
    found = compare_groups(groups)
    best, second, *_ = found.rows
    if not len(best.scores):
        return f"{best.env}: none of {len(groups)} experiments has a score."
    what = "on held-out episodes" if "held-out" in found.score else "in training, since none was evaluated"
    if best.tied:
        who = " and ".join(row.name for row in found.rows if row.tied)
        same = f"are equally good, with a mean of {number(best.mean)} {what}"
        return f"{best.env}: of {len(groups)} experiments {who} {same}."
    text = f"{best.env}: of {len(groups)} experiments {best.name} is best, with {_scored(best)}"
    if len(second.scores):
        text += f" against {number(second.mean)} of {second.name}"
    unsure = second.p is None or second.p > 0.05
    return f"{text} {what}" + ("; so few seeds do not prove the difference." if unsure and second.p is None else
                               f"; {second.against_best}, so chance may be the reason." if unsure else
                               f" ({second.against_best}).")  # fmt: skip


def _scored(row: Comparison) -> str:
    return f"a mean of {number(row.mean)} over {pluralize(len(row.scores), 'seed')}"


def _repeated(summaries: Sequence[RunSummary]) -> list[str]:
    """Return whether the runs could be repeated here, if that is known of any."""
    known = [s.verification.equal for s in summaries if s.verification is not None and s.verification.equal is not None]
    if not known:
        return []
    if all(known):
        who = "The run repeats" if len(known) == 1 else f"All {len(known)} runs repeat"
        return [f"{who} on this machine, to the bit."]
    return [f"{known.count(False)} of {pluralize(len(known), 'run')} could not be repeated on this machine."]
