"""Part 4: whole generations, from a strategy's `ask` to the record: known digests, and seconds on host and device."""

from typing import Any

from device_parts.steps import cores

from evolve.analysis import contest
from evolve.analysis.contest import session
from evolve.cluster import Coordinator, Transport
from evolve.config import Config, parse
from evolve.numerics import host_backend
from evolve.training import make_rollout, prepare
from gpu_parts.context import Context, NotMeasuredError, Outcome
from gpu_parts.episodes import Table

EXPERIMENTS: dict[str, Table] = {
    "CartPole, mlp 4-32-2, 16,384 candidates": {
        "env": {"id": "CartPole-v1"},
        "network": {"name": "mlp", "hidden": [32]},
        "strategy": {"name": "openai-es"},
        "population": 16384,
        "episodes": 4,
    },
    "BipedalWalker, mlp 24-32-4, 4,096 candidates": {
        "env": {"id": "BipedalWalker-v3", "max_episode_steps": 500},
        "network": {"name": "mlp", "hidden": [32]},
        "strategy": {"name": "openai-es"},
        "normalize_observations": True,
        "population": 4096,
        "episodes": 4,
    },
    "CartPole, hebbian-dag 4-8-8-3, 16,384 candidates": {
        "env": {"id": "CartPole-v1"},
        "network": {"name": "hebbian-dag", "hidden": [8, 8]},
        "strategy": {"name": "ga"},
        "population": 16384,
        "episodes": 4,
    },
}
_TINY = {"population": 8, "episodes": 2}
_GENERATIONS = 6
_SLOTS = 16384
_SPARE = 6.0  # seconds


def measure(context: Context) -> Outcome:
    """Print the verdict on the known runs, and the seconds per generation of each experiment on host and device."""
    context.device()
    coordinator = Coordinator(Transport(), make_rollout)
    known = _known(context, coordinator)
    print(f"known runs of the contest: {', '.join(f'{leg} {said}' for leg, said in known.items())}", flush=True)
    rows: list[dict[str, Any]] = []
    print(f"{'seconds per generation':52}{f'{cores()} cores':>10}{'device':>10}")
    for title, table in EXPERIMENTS.items():
        if context.left < _SPARE or (context.emulated and rows):
            rows.append({"experiment": title, "why": "no time was left"})
            continue
        host, device = (_timed(context, coordinator, table, backend) for backend in (host_backend("auto"), "cupy"))
        equal = host["digest"] == device["digest"]
        rows.append({"experiment": title, "equal": equal, "host": host, "device": device})
        seconds = "".join(f"{side['seconds']:10.3f}" for side in (host, device))
        print(f"{title:52}{seconds}  bits {'equal' if equal else 'DIFFER'}", flush=True)
        context.keep(known=known, rows=rows)
    measured = [row for row in rows if "equal" in row]
    if not measured and not known:
        raise NotMeasuredError("no time was left")
    wrong = [leg for leg, said in known.items() if said == "DIFFERS"] + [row for row in measured if not row["equal"]]
    gains = ", ".join(f"{row['host']['seconds'] / row['device']['seconds']:.1f}" for row in measured)
    verdict = (
        f"{len(known)} known runs and {len(measured)} experiments, {len(wrong)} differ; gains over {cores()} cores: "
    )
    return Outcome(verdict + (gains or "not measured"), not wrong, {"known": known, "rows": rows})


def _known(context: Context, coordinator: Coordinator) -> dict[str, str]:
    """Play the known short runs of the contest on the device; return by leg whether the digest is the known one."""
    size = contest.SIZES["small"]
    found = {}
    for leg, digest in contest.known_digests(size.name).items():
        if context.left > _SPARE and (not context.emulated or leg == next(iter(contest.LEGS))):
            played = session.play(contest.known_experiment(leg, "cupy"), coordinator, size.known_seed)
            found[leg] = "equal" if played.work.digest == digest else "DIFFERS"
    return found


def _timed(context: Context, coordinator: Coordinator, table: Table, backend: str) -> dict[str, Any]:
    """Return the digest of some generations, and the seconds and the steps of one, without the first generation."""
    generations = 2 if context.emulated else _GENERATIONS
    fixed = {"generations": generations, "held_out_episodes": 0, "compute": {"backend": backend, "slots": _SLOTS}}
    if context.emulated:
        fixed |= _TINY | {"compute": {"backend": backend, "slots": 16}}
    env = {**table["env"], "engine": "exact"}
    played = session.play(prepare(parse(Config, {**table, **fixed, "env": env})), coordinator, 1)
    timed = generations - 1
    return {"digest": played.work.digest, "seconds": played.seconds / timed, "steps": played.work.timed_steps / timed}
