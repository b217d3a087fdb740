"""Shared by the tests of whole episodes: a batch of P genomes with E episodes each, and results as a table of bytes."""

from dataclasses import replace

import numpy as np
from some_results import checked

from evolve.genome import concatenate
from evolve.numerics.streams import Purpose, Stream
from evolve.rollouts import EpisodeBatch, generation_keys, join, sum_traces
from evolve.rollouts.episodes import QUANTITIES

P, E = 9, 3


def batch_of(network, normalize, best_of=0, **settings):
    genomes = concatenate(*(network.init(Stream(1, Purpose.INIT, 0, p)) for p in range(P)))
    random = np.random.Generator(np.random.Philox(1))
    shape = (P, 2, network.observation_size)
    normalizers = random.uniform(0.5, 2, shape).astype(np.float32) if normalize else None
    keys = generation_keys(3, P)
    batch = EpisodeBatch.of(9, Purpose.EPISODE, genomes, keys, range(E), normalizers, **settings)
    return replace(batch, describe=True, best_of=best_of)


def finish(rollout, parts=()):
    found = [*parts]
    while rollout.pending:
        results = rollout.tick()
        if results is not None:
            found.append(results)
    return found


def table_of(parts):
    """Return the results in the order of their keys, as bytes, without the quantities that depend on the clock."""
    results = checked(sum_traces(join(parts)))
    order = np.lexsort((results.episodes, results.genomes))
    ends = np.cumsum(results.lengths)
    hashes = [results.step_hashes[ends[n] - results.lengths[n] : ends[n]].tobytes() for n in order]
    described = np.argsort(results.described)
    table = {"step_hashes": hashes}
    for name, (symbols, _) in QUANTITIES.items():
        values = getattr(results, name)
        rows = {"N": order, "D": described}.get(symbols[0], slice(None))
        if name not in ("step_hashes", "episode_seconds"):
            table[name] = values[rows].tobytes()
    return table
