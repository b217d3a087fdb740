"""Networks: with a genome (weights and a mask), a network turns an observation into an action.

`NETWORKS` is the registry. Every entry implements the protocol `Network` (`evolve.networks.network`), and passes the
same conformance suite. `make` returns the network of an experiment. The C headers in `kernels/` have the compiled steps
of the networks.
"""

import operator

import numpy as np

from evolve.config import ImportedOnDemand, Kind, Registry, Section, plain
from evolve.errors import check_whole
from evolve.genome import Block, Genomes, check_genomes
from evolve.networks.network import Activity, Batch, Network
from evolve.numerics.streams import Purpose, Stream, Streams
from evolve.shapes import Float32, check_shape

__all__ = ["NETWORKS", "Activity", "Batch", "Block", "Network", "check", "make"]

_PROPOSALS = {
    "mlppolicy": "mlp", "linear": "mlp", "feedforward": "mlp", "rnn": "elman", "recurrent": "elman", "gru": "elman",
    "feedforwardnetwork": "mlp", "recurrentnetwork": "elman",
    "lstm": "hebbian-lstm", "mlplstmpolicy": "hebbian-lstm", "hebbian": "hebbian-dag",
}  # fmt: skip
"""The network that an error proposes for the name of a network in another tool."""

NETWORKS = Registry(
    "network",
    ImportedOnDemand[Kind](
        __name__,
        {
            "hebbian-dag": ("hebbian", "HebbianDagOptions", "HebbianDag"),
            "dag": ("layered", "DagOptions", "Dag"),
            "mlp": ("layered", "MlpOptions", "Mlp"),
            "binary-mask-mlp": ("layered", "BinaryMaskMlpOptions", "BinaryMaskMlp"),
            "elman": ("layered", "ElmanOptions", "Elman"),
            "hebbian-lstm": ("hebbian", "HebbianLstmOptions", "HebbianLstm"),
            "plastic-mlp": ("plastic_mlp", "PlasticMlpOptions", "PlasticMlp"),
        },
    ),
    Network,
    aliases={"prunable-mlp": "binary-mask-mlp"},  # its name in runs of earlier versions
    proposals=_PROPOSALS,
)


def make(table: Section | str, observation_size: int, action_size: int) -> Network:
    """Return the network that the `[network]` table of an experiment describes.

    Args:
        table: The name of the network, or a table with the name and options, validated or not.
        observation_size: O, the number of inputs of the network.
        action_size: A, the number of outputs that are actions.

    Raises:
        InputError: The table has a wrong name or option, or a size is wrong.
    """
    check_whole("observation_size", observation_size, 1)
    check_whole("action_size", action_size, 1)
    section = {"name": table} if isinstance(table, str) else plain(table)
    network: Network = NETWORKS.make(section, observation_size, action_size)
    # These properties of a network from another package may have any value. `operator.index` refuses all but integers.
    for name, least in (("num_weights", 1), ("num_traces", 0), ("slot_size", 1)):
        with NETWORKS.as_input_error(section, f"property {name}"):
            if operator.index(getattr(network, name)) < least:
                raise ValueError(f"expected at least {least}, got {getattr(network, name)}")
    return network


def check(section: Section, network: Network, action_size: int) -> str | None:
    """Check a network: draw a genome, check its blocks, make a batch, and compute one step.

    A network from another package gets two more checks. `init` must give the same weights again, also if it draws
    several genomes at once (`batched_init`). And a slot must not depend on other slots. If only the last bits of
    actions depend on other slots, the function returns a warning, otherwise None.

    Args:
        section: The section of the experiment that names the network.
        network: The network that the section describes.
        action_size: A, the required number of actions.

    Raises:
        InputError: A method of the network raises an exception, or returns a wrong type or shape.
    """
    slots = np.arange(1)  # slot 0, the only slot of the batch
    with NETWORKS.as_input_error(section, "init"):
        genome = check_genomes(network.init(Stream(0, Purpose.CHECK)), 1, network.num_weights)
    with NETWORKS.as_input_error(section, "property blocks"):
        _check_blocks(network)
    with NETWORKS.as_input_error(section, "property num_traces"):
        if network.num_traces not in (0, network.num_weights):
            raise ValueError(f"expected 0 or num_weights = {network.num_weights}, got {network.num_traces}")
    with NETWORKS.as_input_error(section, "batch"):
        batch = network.batch(1, "numpy")
    NETWORKS.check(section, batch, Batch)
    with NETWORKS.as_input_error(section, "step"):
        batch.load(slots, genome.weights, genome.mask, np.zeros(1, np.int64))
        actions = batch.step(np.zeros((1, network.observation_size), np.float32))
        check_shape(actions, "actions", "n A", np.float32, n=1, A=action_size)
    with NETWORKS.as_input_error(section, "traces"):
        check_shape(batch.traces(slots), "traces", "k T", np.float32, k=1, T=network.num_traces)
    # The conformance suite makes the other checks for the built-in networks.
    name = NETWORKS.parse(section, lenient=True).name
    if name in NETWORKS:
        return None
    with NETWORKS.as_input_error(section, "init"):
        if network.init(Stream(0, Purpose.CHECK)).weights.tobytes() != genome.weights.tobytes():
            raise ValueError("a second call with the same stream gives other weights; draw from the stream only")
        if getattr(network, "batched_init", False):
            # `Network.init` declares one `Stream`; with `batched_init` it takes `Streams`, too.
            many = network.init(Streams(0, Purpose.CHECK, 0, np.arange(2)))  # type: ignore[arg-type]
            if len(many) != 2 or many.weights[0].tobytes() != genome.weights.tobytes():
                raise ValueError("the Streams of several candidates give other weights than the Stream of each")
    with NETWORKS.as_input_error(section, "load, step or move"):
        rounds_alike = _rounds_alike(network, genome)
        # Some state, such as a trace, reaches the actions only after some steps, so compare several. But differences of
        # the last bits grow from step to step, so if there are any, compare only one.
        _check_slots(network, genome, action_size, steps=8 if rounds_alike else 1)
        if not rounds_alike:
            why = "actions have other last bits beside other slots, so digests may depend on the number of processes"
            cure = "Matrix products of BLAS round in this way, and `sequential_sum` of evolve.numerics does not"
            return f"network.name: {name}: {why}. {cure}"
    return None


def _check_slots(network: Network, genome: Genomes, action_size: int, steps: int) -> None:
    """Raise ValueError unless a genome acts the same after a second load, beside another genome, and after a move.

    steps: The number of steps that are compared in each of these cases.
    """

    def act_in_last_slot(batch: Batch, observations: Float32) -> Float32:
        # The copies protect `observations` and the result [A] from a batch that reuses its arrays.
        actions = batch.step(observations.copy())
        check_shape(actions, "actions", "n A", np.float32, n=len(observations), A=action_size)
        return np.array(actions[-1])

    # The genome sees observation s in step s, from 1 on. In all steps, another genome sees observation 0.
    observations = _observations(1, 2 * steps + 1, network.observation_size)
    alone = _loaded(network, genome)
    # Load the other genome into both slots of `pair`, and then the genome into slot 1.
    pair = _loaded(network, network.init(Stream(0, Purpose.CHECK, 2)).take(np.zeros(2, np.intp)))
    pair.load(np.array([1]), genome.weights, genome.mask, np.array([0]))
    # `expected` are the actions of the genome alone, from step 1 on. A second load must clear all state of these steps.
    expected = [act_in_last_slot(alone, observations[step : step + 1]) for step in range(1, 2 * steps + 1)]
    alone.load(np.array([0]), genome.weights, genome.mask, np.array([0]))
    for step in range(1, steps + 1):
        # This is the same batch with the same observations, so not even the order of sums may differ.
        again = act_in_last_slot(alone, observations[step : step + 1])
        _check_close(again, expected[step - 1], "after a second load", 1e-6)
        _check_close(act_in_last_slot(pair, observations[[0, step]]), expected[step - 1], "beside another slot")
    # After the move the genome is in slot 0, and only slot 0 makes the next steps.
    pair.move(np.array([1]), np.array([0]))
    for step in range(steps + 1, 2 * steps + 1):
        _check_close(act_in_last_slot(pair, observations[step : step + 1]), expected[step - 1], "after move")


def _rounds_alike(network: Network, genome: Genomes) -> bool:
    """Return whether a genome gives the same bits alone and in the last of two or three slots, for 16 steps.

    Raises ValueError if the first difference is larger than a difference of last bits.
    """
    for B in (2, 3):
        alone, together = _loaded(network, genome), _loaded(network, genome.take(np.zeros(B, np.intp)))
        for observations in _observations(3, 16, B, network.observation_size):
            # The last slot of `together` gets the same observations as the only slot of `alone`.
            expected = alone.step(observations[-1:].copy())[0]
            actions = together.step(observations.copy())[-1]
            if not np.array_equal(expected, actions, equal_nan=True):
                _check_close(actions, expected, "beside another slot")
                return False
    return True


def _observations(generation: int, *shape: int) -> Float32:
    """Return random observations in (-1, 1). generation: Selects the random stream."""
    return (2 * Stream(0, Purpose.CHECK, generation).uniform(*shape) - 1).astype(np.float32)


def _loaded(network: Network, genomes: Genomes) -> Batch:
    """Return a batch with a genome in each slot.

    The seed of the last slot is 0 in every batch, because the actions of this slot are compared.
    """
    slots = np.arange(len(genomes))
    batch = network.batch(len(genomes), "numpy")
    batch.load(slots, genomes.weights, genomes.mask, slots[-1] - slots)
    return batch


def _check_close(actions: Float32, expected: Float32, when: str, tolerance: float = 1e-3) -> None:
    """Raise ValueError, with `when` in the message, if actions differ by more than the tolerance."""
    # The actions may differ a little: the order of NumPy's sums may depend on the number of slots.
    if not np.allclose(actions, expected, tolerance, tolerance, equal_nan=True):
        cure = "let each slot have its own state, cleared by load, and draw random numbers from the seeds of load"
        raise ValueError(f"a slot gives other actions {when}; {cure}")


def _check_blocks(network: Network) -> None:
    """Raise ValueError unless the blocks of a network cover its genome, layer by layer, and have different titles.

    Pictures, exports and some strategies need the blocks to find the matrices in a genome.
    """
    end, layer, titles = 0, 0, set[str]()
    for block in network.blocks:
        if block.start != end:
            expected = f"{block.title} to start at {end}, where the block before it ends"
            raise ValueError(f"expected {expected}, got {block.start}")
        if block.layer < layer:
            raise ValueError(f"expected layers in ascending order, got {block.layer} after {layer} in {block.title}")
        if block.title in titles:
            raise ValueError(f"expected a different name for each block, got {block.title} twice")
        end, layer = block.stop, block.layer
        titles.add(block.title)
    if end != network.num_weights:
        raise ValueError(f"expected blocks of num_weights = {network.num_weights} numbers, got {end}")
