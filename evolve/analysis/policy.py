"""The policy of a genome: it maps observations of an environment to actions, singly or in batches.

`Policy` belongs to the Python interface: `Run.champion` returns one. `exports` writes it for use without this package.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evolve.analysis.exports import export_policy
from evolve.cluster.cores import usable_memory
from evolve.environments import Codec, Spaces
from evolve.environments.spaces import Space, check_observation, kind_of, member_of, members_of
from evolve.errors import InputError, check_path, check_whole, one_line, pluralize, sanitize
from evolve.genome import Block, Genomes, one_genome, pruned
from evolve.networks import Batch, Network
from evolve.numerics import host_backend, restore_ieee
from evolve.rollouts.inference import ObservationNormalizer
from evolve.shapes import Float32
from evolve.strategies.acting import Paths
from evolve.training import Experiment, load_config
from evolve.training.experiment import prepare_policy

_MOST_SLOTS = 256  # of a network without memory: a batch with more rows is computed in parts of this size


class Policy:
    """Maps observations of an environment to actions as in training, including the normalization of observations.

    A policy needs neither the environment nor Gymnasium. If its network remembers or learns within an episode, the
    policy has a state: call `reset` at the start of each episode. A policy can be pickled and copied. Threads may share
    a policy that has no state.

    Args:
        experiment: The experiment of the genome.
        genome: A genome, or the weights [W] of a genome without absent connections.
        normalizer: [2, O]: the mean that is subtracted from observations, and the factor by which the difference is
            multiplied. None without normalization.
        origin: The origin of the genome in words, for the heads of exported files.

    Raises:
        InputError: The genome or the normalizer does not fit the experiment.
    """

    def __init__(
        self, experiment: Experiment, genome: Genomes | Float32, normalizer: Float32 | None = None, origin: str = ""
    ) -> None:
        if not isinstance(experiment, Experiment):
            raise InputError("experiment", "the experiment of a run, run.experiment", f"a {type(experiment).__name__}")
        self.experiment = experiment
        # `take` copies the arrays, which may belong to a stored run and must not change.
        self.genome = one_genome(genome, "genome").take(np.zeros(1, np.int64))
        """The weights [1, W] and the mask [1, W]. A change takes effect at the next `reset` without `rows`."""
        self.acting_genome = self.genome
        """The genome at the last `reset` without `rows`. Absent connections have the weight 0."""
        if self.genome.num_weights != experiment.network.num_weights:
            expected = f"{experiment.network.num_weights:,} weights for {experiment.config.network.name}"
            raise InputError("genome", expected, f"{self.genome.num_weights:,}")
        shape = (2, experiment.network.observation_size)
        is_missing = normalizer is None and experiment.config.normalize_observations
        if is_missing or (normalizer is not None and np.shape(normalizer) != shape):
            got = None if normalizer is None else f"an array of shape {list(np.shape(normalizer))}"
            cure = "A policy of the run has it: run.champion().normalizer."
            raise InputError("normalizer", f"an array of shape {list(shape)}", got, cure)
        self.normalizer = None if normalizer is None else np.array(normalizer, np.float32)
        self.origin = origin
        self._codec = Codec(experiment.config.env, experiment.spaces)
        network = experiment.network
        # The outputs of a static feedforward network depend only on the observation of the same step. In a block,
        # source n + 1 is the output of layer n, so a block with source > layer is recurrent.
        is_static = getattr(network, "is_static", False)
        is_feedforward = all(block.source <= block.layer for block in network.blocks)
        self._remembers = bool(network.num_traces) or not is_static or not is_feedforward
        # With memory, each row of a batch of observations has a network in a slot of its own. Networks without memory
        # are all equal, so more rows than `_MOST_SLOTS` share the slots.
        self._slots = 0
        self._networks: Batch
        # All calls use the same arrays, so only one thread at a time may use them.
        self._lock = threading.Lock()
        self.reset()

    def reset(
        self,
        seed: int | Sequence[int] = 0,
        batch: int | None = None,
        rows: Sequence[int] | Sequence[bool] | NDArray[Any] | None = None,
    ) -> None:
        """Forget the last episode; begin one episode, or one for each row of a batch.

        Args:
            seed: The seed with which the environment is reset. Networks that draw weights for each episode
                (plastic-mlp) draw them by this seed. In a batch, row i has the seed `seed` + i, as in Gymnasium's
                vector environments. A list of N seeds has one for each row.
            batch: N, the number of rows. By default it is the number of seeds in a list. Without a list, the first
                observation or batch decides.
            rows: The rows of the present batch that begin an episode, as numbers or as an array [N] of booleans. The
                other rows go on. By default all rows begin an episode. A list of seeds then has a seed for each of
                these rows.

        Raises:
            InputError: A seed is no whole number from 0 on, there are not N seeds, the networks do not fit into memory,
                or `rows` are not rows of a batch.
        """
        is_list = not isinstance(seed, str) and np.ndim(seed) == 1
        values: Any = seed if is_list else [seed]
        seeds = [check_whole("seed", value, 0) for value in values]
        if not seeds:
            raise InputError("seed", "a seed for each row, or one number", "no seeds")
        if rows is not None:
            if batch is not None:
                raise InputError("rows", "rows without batch=, because the batch stays", f"batch={batch!r}")
            self._restart(rows, seeds, is_list)
            return
        if batch is not None:
            batch = check_whole("batch", batch, 1)
        if is_list and batch not in (None, len(seeds)):
            raise InputError("seed", f"a seed for each of {batch} rows, or one number", f"{len(seeds)} seeds")
        fixed_rows = len(seeds) if is_list else batch
        with self._lock:
            # `_begin` may raise an error, and then no attribute must have changed. So set the attributes after it.
            self._begin(fixed_rows, seeds)
            self._seeds, self._fixed_rows = seeds, fixed_rows  # `fixed_rows`: None if the first observation decides

    def _restart(self, rows: Any, seeds: Sequence[int], is_list: bool) -> None:
        """Begin episodes in some rows of the present batch.

        rows: As for `reset`.
        seeds: A seed for each of these rows, or only the seed of the batch's first row.
        is_list: Whether there is a seed for each of these rows.
        """
        with self._lock:
            num_rows = self._last_rows
            if num_rows is None:
                cure = "Call reset(batch=N) first, or pass a batch of observations."
                raise InputError("rows", "rows of a batch that has begun", _in_words(None), cure)
            expected = f"numbers from 0 to {num_rows - 1}, or {num_rows} booleans"
            try:
                chosen = np.asarray(rows)
            except ValueError:  # lists of different lengths
                raise InputError("rows", expected, sanitize(repr(rows))) from None
            if chosen.dtype == np.bool_ and chosen.shape == (num_rows,):
                chosen = np.flatnonzero(chosen)
            elif not chosen.size and chosen.ndim == 1:  # NumPy makes a float64 array of an empty list
                chosen = chosen.astype(np.int64)
            is_valid = chosen.ndim == 1 and chosen.dtype.kind in "iu" and len(set(chosen.tolist())) == len(chosen)
            if not is_valid or not ((chosen >= 0) & (chosen < num_rows)).all():
                raise InputError("rows", expected, sanitize(repr(rows)))
            if is_list and len(seeds) != len(chosen):
                raise InputError("seed", f"a seed for each of {len(chosen)} rows, or one number", f"{len(seeds)} seeds")
            # A network without memory has nothing to forget.
            if not self._remembers or not len(chosen):
                return
            # A network with memory has a slot for each row.
            genomes = self.acting_genome.take(np.zeros(len(chosen), np.int64))
            row_seeds = seeds if is_list else [check_whole("seed", seeds[0] + row, 0) for row in chosen.tolist()]
            self._networks.load(chosen.astype(np.intp), genomes.weights, genomes.mask, np.array(row_seeds, np.int64))

    def _begin(self, rows: int | None, seeds: Sequence[int]) -> None:
        """Begin an episode in each row.

        rows: The number of rows; None for a single observation.
        seeds: A seed for each row, or the seed of the first row.
        """
        n = _num_rows(rows)
        if len(seeds) < n and seeds[0] + n > 2**63:
            expected = f"at most 2**63 - {n:,} for {n:,} rows, because row i has the seed plus i"
            raise InputError("seed", expected, seeds[0])
        slots = n if self._remembers else min(n, _MOST_SLOTS)
        # Only another number of slots needs another batch of networks. `load` below clears the slots of a batch.
        if slots != self._slots:
            # A float32 has four bytes.
            needed = 4 * slots * self.experiment.network.slot_size
            if needed > usable_memory():
                expected = f"rows whose networks fit into {usable_memory() / 1e9:,.1f} GB of memory"
                raise InputError("batch", expected, f"{n:,}: at least {needed / 1e9:,.1f} GB")
            backend = host_backend(self.experiment.config.compute.backend)
            self._networks = self.experiment.network.batch(slots, backend)
            self._observations = np.zeros((slots, self._codec.observation_size), np.float32)
            self._normalization: ObservationNormalizer | None = None
            if self.normalizer is not None:
                self._normalization = ObservationNormalizer(self._observations, backend)
                self._normalization.begin(np.arange(slots), np.repeat(self.normalizer[None], slots, axis=0))
            self._slots = slots  # last, so that a call after a MemoryError makes the networks again
        # Set the weights of absent connections to 0, as in every genome of a run: most networks read no mask.
        self.acting_genome = pruned(self.genome.weights, self.genome.mask)
        genomes = self.acting_genome.take(np.zeros(slots, np.int64))
        # Without a seed for each slot, the only seed is the seed of the first row, and row i has this seed plus i.
        seeds = seeds if len(seeds) == slots else [seeds[0] + row for row in range(slots)]
        self._networks.load(np.arange(slots), genomes.weights, genomes.mask, np.array(seeds, np.int64))
        self._at_start = True  # whether the episode has had no observation yet
        self._last_rows = rows  # the number of rows of the last observation; None for a single observation

    def outputs(self, observation: Any) -> Float32:
        """Advance the network by one step; return its outputs [A] in [-1, 1], from which `decode` makes the action.

        observation: An observation of the environment, or a batch of N observations. In a batch, each array has N rows,
        as in Gymnasium's vector environments. Each row then has a network of its own, and the outputs are [N, A]. If
        `reset` did not set N, the first batch does. Only networks without memory accept another N later.

        Raises:
            InputError: The observation has another shape, or a number that is not finite.
        """
        with self._lock:
            return self._advance(observation)

    def _advance(self, observation: Any) -> Float32:
        """Return the result of `outputs`. The caller holds the lock."""
        # Another library may have changed the arithmetic of this thread since the last call.
        restore_ieee()
        is_pair = isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict)
        if is_pair and kind_of(self.experiment.spaces.observation) != "Tuple":
            cure = "Pass the first of both: observation, info = env.reset()."
            raise InputError("observation", "an observation", "a pair of an observation and info", cure)
        try:
            rows = _batch_size(self.experiment.spaces.observation, observation, is_batch=self._fixed_rows is not None)
            # Encode and check the whole observation before any network advances, so that an error changes nothing.
            encoded = np.zeros((_num_rows(rows), self._codec.observation_size), np.float32)
            if rows is None:
                self._codec.encode(observation, encoded[0])
            else:
                self._encode_batch(observation, encoded)
            _check_finite(encoded)
            if self._at_start or rows != self._last_rows:
                self._prepare(rows)
        except (ValueError, TypeError) as error:
            kind = "an observation" if self._fixed_rows is None else f"a batch of {self._fixed_rows} observations"
            expected = f"{kind} of {self.experiment.config.env.id}, {self._codec.observation_size} numbers"
            raise InputError("observation", expected, f"an invalid one ({error})") from None
        outputs = self._step(encoded)
        return outputs[0] if rows is None else outputs

    def _encode_batch(self, observations: Any, encoded: Float32) -> None:
        """Write the numbers of a batch of observations to the rows of `encoded` [N, O]."""
        space = self.experiment.spaces.observation
        arrays = _map_members(lambda _, array: np.asarray(array), space, observations)
        for index, row in enumerate(encoded):
            # The default value binds the index of this round of the loop.
            observation = _map_members(lambda _, array, index=index: array[index], space, arrays)
            self._codec.encode(observation, row)

    def _prepare(self, rows: int | None) -> None:
        """Prepare a network for each row of a batch. Raises ValueError if the number of rows must not change."""
        if self._fixed_rows is not None and rows != self._fixed_rows:
            raise ValueError(f"a batch of {rows}; call reset(batch={rows}) first to have {rows} rows")
        if self._remembers and not self._at_start and rows != self._last_rows:
            first = _in_words(self._last_rows)
            raise ValueError(f"{_in_words(rows)} in an episode that began with {first}: call reset first")
        # If `reset` did not set the number of rows, this observation sets it, and may need another number of networks.
        if _num_rows(rows) != _num_rows(self._last_rows):
            self._begin(rows, self._seeds)
        self._at_start = False
        self._last_rows = rows

    def _step(self, encoded: Float32) -> Float32:
        """Return the outputs [N, A] of the networks of all rows for observations [N, O]."""
        outputs = []
        # There may be more rows than slots, see `_MOST_SLOTS`. The slots then compute one part after another.
        for first in range(0, len(encoded), self._slots):
            part = encoded[first : first + self._slots]
            n = len(part)
            self._observations[:n] = part
            normalized = self._observations[:n] if self._normalization is None else self._normalization.normalize(n)
            outputs.append(self._networks.step(normalized).copy())
        return np.concatenate(outputs)

    def decode(self, outputs: Float32) -> Any:
        """Return the environment's action for network outputs [A] in [-1, 1], or an array of N actions for [N, A].

        Raises InputError if the outputs have another shape.
        """
        size = self._codec.action_size
        expected = f"{size} numbers, or N rows of them"
        try:
            array = np.asarray(outputs, np.float32)
        except (TypeError, ValueError) as error:
            raise InputError("outputs", expected, f"invalid outputs ({one_line(error)})") from None
        if array.ndim not in (1, 2) or array.shape[-1] != size:
            raise InputError("outputs", expected, f"an array of shape {list(array.shape)}")
        return self._codec.decode(array) if array.ndim == 2 else self._codec.decode_one(array)

    def __call__(self, observation: Any) -> Any:
        """Advance the network by one step; return the action for the environment's `step`, or an array of N actions."""
        return self.decode(self.outputs(observation))

    @property
    def traces(self) -> dict[str, Float32]:
        """The traces after the last step, by name as in `weights`; empty if the network has no traces.

        Each array has the shape of the matrix of the same name in `weights`. The trace of a pruned connection is 0.
        """
        network = self.experiment.network
        if not network.num_traces:
            return {}
        traces = np.where(self.acting_genome.mask, self._networks.traces(np.arange(self._slots)), np.float32(0))
        return self._matrices(traces, network.blocks)

    @property
    def weights(self) -> dict[str, Float32]:
        """The weights that the next step uses, by name, including the effect of traces.

        Each array is [rows, columns], in a batch [N, rows, columns]. It has a row for each node that the layer reads,
        and a column for each neuron of the layer. If a matrix has biases, they are its last row.

        Raises InputError for a network of another package that neither is static nor reports its weights.
        """
        network = self.experiment.network
        if not hasattr(self._networks, "weights"):
            if getattr(network, "is_static", False):  # its genome is its matrices, end to end
                return self._matrices(self.acting_genome.weights, network.blocks)
            expected = "a network with batches that report their weights (`Batch.weights`)"
            raise InputError("network.name", expected, self.experiment.config.network.name)
        return self._matrices(self._networks.weights(np.arange(self._slots)), list(_weight_blocks(network)))

    def _matrices(self, values: Float32, blocks: Sequence[Block]) -> dict[str, Float32]:
        """Return the matrix of each block by name, from the values [slots, …] of all blocks, end to end."""
        rows = _num_rows(self._last_rows)
        # Networks without memory are all equal. So if there are fewer slots than rows, the first slot stands for all.
        values = values if rows == len(values) else np.broadcast_to(values[:1], (rows, values.shape[1]))
        matrices = {}
        for block in blocks:
            matrix = values[:, block.start : block.stop].reshape(-1, block.rows, block.columns)
            matrices[block.title] = matrix[0].copy() if self._last_rows is None else matrix.copy()
        return matrices

    def export(self, path: str | Path) -> Path:
        """Write the policy for use without this package; return the path.

        The ending of the name selects the format. `.c` is one C file, and `.json` has all numbers. `.onnx` and `.pt2`
        (a program of `torch.export`) take networks with weights that do not change within an episode.

        Raises InputError if the network does not fit the format, a library is missing, or the file cannot be written.
        """
        return export_policy(self, check_path("path", path))

    def __reduce__(self) -> tuple[Any, ...]:
        """Return a function and its arguments, by which `copy` and `pickle` make a copy of this policy.

        The copy has the same seeds and the same number of rows. It is at the start of an episode.
        """
        spaces = json.dumps(self.experiment.spaces.to_json())
        text = self.experiment.config.to_toml()
        # Either each row has a seed of its own, or the only seed is the seed of the first row.
        seed = self._seeds if self._fixed_rows == len(self._seeds) else self._seeds[0]
        return _restored, (text, spaces, self.genome, self.normalizer, self.origin, seed, self._fixed_rows)

    def __repr__(self) -> str:
        config = self.experiment.config
        connections = int(self.genome.connections()[0])
        return f"<Policy: {config.network.name} with {pluralize(connections, 'connection')} for {config.env.id}>"


def _restored(
    text: str, spaces: str, genome: Genomes, normalizer: Float32 | None, origin: str, seed: Any, rows: int | None
) -> Policy:
    """Return a policy at the start of an episode.

    text: The experiment as TOML. spaces: The spaces as JSON. seed, rows: As `seed` and `batch` of `reset`.
    """
    experiment = prepare_policy(load_config(text), Spaces.from_json(json.loads(spaces)))
    policy = Policy(experiment, genome, normalizer, origin)
    policy.reset(seed, rows)
    return policy


def _num_rows(rows: int | None) -> int:
    """Return the number of rows of a batch; 1 for a single observation."""
    return 1 if rows is None else rows


def _in_words(rows: int | None) -> str:
    return "a single observation" if rows is None else f"a batch of {rows} observations"


def _batch_size(space: Space, observations: Any, is_batch: bool) -> int | None:
    """Return the number N of observations in a batch; None for a single observation. Raises ValueError for neither.

    In a batch each array has one more axis, the first one, as in Gymnasium's vector environments. A batch of Dict (or
    Tuple) observations is one dictionary (or tuple) of batches.

    is_batch: Whether `observations` must be a batch. If not, an array [1] of a Discrete space is a single observation.
    """
    shapes = _map_members(lambda member: tuple(member.shape), space)
    refusal = ValueError(f"not a batch of arrays {shapes}, each with one more axis in front")
    if not is_batch:
        try:
            check_observation(space, observations)
            return None
        except (ValueError, TypeError) as error:
            refusal = ValueError(error)  # raised below if the observations are not a batch, either
    sizes = set()  # the lengths of the first axes; None for an array of another shape

    def add_size(member: Space, array: Any) -> None:
        shape = np.shape(array)
        fits = len(shape) == len(member.shape) + 1 and shape[1:] == tuple(member.shape) and shape[0] > 0
        sizes.add(shape[0] if fits else None)

    # In a batch, all arrays have the same number of rows.
    _map_members(add_size, space, observations)
    if len(sizes) != 1 or None in sizes:
        raise refusal
    return sizes.pop()


def _map_members(function: Callable[..., Any], space: Space, *values: Any) -> Any:
    """Return function(space, *values). For a Dict or Tuple space, return a dictionary with a result for each member.

    Raises ValueError if a value lacks a member.
    """
    if kind_of(space) not in ("Dict", "Tuple"):
        return function(space, *values)
    return {
        key: _map_members(function, member, *(member_of(space, value, key) for value in values))
        for key, member in members_of(space)
    }


def _check_finite(encoded: Float32) -> None:
    """Raise ValueError unless encoded observations [N, O] are finite, as in training."""
    finite = np.isfinite(encoded)
    if not finite.all():
        row, position = np.argwhere(~finite)[0]
        where = f" in row {row}" if len(encoded) > 1 else ""
        raise ValueError(f"{encoded[row, position]} at position {position}{where}, not a finite number")


def _weight_blocks(network: Network) -> Iterator[Block]:
    """Yield the blocks of the weights that batches report.

    A block of weights in the genome is yielded as it is. If weights learn, a genome has several blocks of coefficients
    for each matrix of weights. Then one block of the shape `Block.span` is yielded for the matrix.
    """
    start = 0
    for block, *_ in Paths(network).matrices:
        if block.span is None:
            yield block
        else:
            yield Block(block.layer, block.source, start, *block.span, name=f"W_{block.layer}")
            start += math.prod(block.span)
