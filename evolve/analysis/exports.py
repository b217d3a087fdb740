"""Policies for use without this package: JSON, ONNX, PyTorch, and one C file (`c_source`).

The graphs of ONNX and PyTorch contain the normalization of observations, the layers, and the decoding of actions. They
need a network whose weights do not change within an episode (`Network.is_static`). C takes every network that has a
kernel, and JSON takes every network.
"""

import inspect
import io
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import evolve
from evolve.analysis.c_source import c_source
from evolve.environments.spaces import is_rounded, kind_of, members_of, stretch
from evolve.errors import InputError, import_extra
from evolve.genome import Block
from evolve.networks import NETWORKS
from evolve.rollouts.inference import CLIP
from evolve.shapes import Float32
from evolve.store.disk import check_writable, write_output

if TYPE_CHECKING:
    from evolve.analysis.policy import Policy

FORMATS = {"c": ".c", "json": ".json", "onnx": ".onnx", "torch": ".pt2"}
"""The formats of a policy, and the endings of their files."""
JSON_VERSION = 1
_MOST_ROWS = 1024  # a PyTorch program adds up the rows of a matrix one by one up to this number of rows
_OPSET, _IR = 17, 8  # of ONNX; old versions, which every runtime reads


def export_policy(policy: "Policy", path: Path) -> Path:
    """Write a policy in the format that the ending of the path names; see `Policy.export`."""
    check_writable(path, tuple(FORMATS.values()))
    if path.suffix == ".c":
        content = c_source(policy.experiment, policy.acting_genome, policy.normalizer, _title(policy)).encode()
    elif path.suffix == ".json":
        content = (json.dumps(to_json(policy), indent=1) + "\n").encode()
    elif path.suffix == ".onnx":
        content = onnx_model(policy)
    else:
        content = torch_program(policy)
    write_output(path, content)
    return path


def _title(policy: "Policy") -> str:
    config = policy.experiment.config
    origin = f": {policy.origin}" if policy.origin else ""
    return f"{config.network.name} for {config.env.id}{origin}"


def to_json(policy: "Policy") -> dict[str, Any]:
    """Return a policy as a table for JSON, see docs/champions.md. Raises InputError if a weight is not finite."""
    experiment = policy.experiment
    network, section = experiment.network, experiment.config.network.table()
    genome = policy.acting_genome
    mask = genome.mask[0]
    if not np.isfinite(genome.weights[0, mask]).all():
        raise InputError("network", "finite weights, because JSON has no others", "NaN or infinity")
    is_static = bool(getattr(network, "is_static", False))
    if is_static:
        layers_of(policy, "JSON")  # raises InputError if a network of another package has no tanh layers
    # A static network may compute its weights from the genome: binary-mask-mlp takes the mask.
    static_weights = policy.weights if is_static else {}
    matrices = []
    for block in network.blocks:
        place = slice(block.start, block.stop)
        weights = _matrix(static_weights, block) if is_static else genome.weights[0, place]
        sizes = {"layer": block.layer, "source": block.source, "rows": block.rows, "columns": block.columns}
        span = {} if block.span is None else {"span": list(block.span)}
        numbers = {"weights": _numbers(weights), "mask": mask[place].astype(int).tolist()}
        matrices.append({"name": block.title, **sizes, **span, **numbers})
    # A static network has tanh layers (`Network`). If another package's network is not static, its activation and sums
    # are unknown.
    is_known = is_static or section["name"] in NETWORKS
    activation = getattr(network, "activation", "tanh" if is_static else None)
    sums = "by source" if getattr(network, "sums_by_source", False) else "all rows"
    normalizer = None
    if policy.normalizer is not None:
        subtract, multiply = map(_numbers, policy.normalizer)
        normalizer = {"subtract": subtract, "multiply": multiply, "clip": float(CLIP)}
    return {
        "format": "evolve-policy",
        "version": JSON_VERSION,
        "title": _title(policy),
        "written_by": f"evolve {evolve.__version__}",
        "environment": experiment.config.env.id,
        "observation_size": network.observation_size,
        "action_size": experiment.action_size,
        **experiment.spaces.to_json(),
        "decode": _decoding(experiment.spaces.action, experiment.config.env.action_scale),
        "normalizer": normalizer,
        "network": {
            "name": section["name"],
            "options": {key: value for key, value in section.items() if key != "name"},
            "is_static": is_static,
            "activation": activation if isinstance(activation, str) else None,
            "sums": sums if is_known else None,
            "formulas": _formulas(network),
        },
        "matrices": matrices,
    }


def _formulas(network: Any) -> str | None:
    """Return the docstring of a network's module, otherwise of its class; None if there is none."""
    module = sys.modules[type(network).__module__]
    return inspect.cleandoc(module.__doc__ or type(network).__doc__ or "") or None


def _numbers(values: Any) -> list[float]:
    """Return an array as a flat list, row by row: the shortest decimal numbers that give the same float32 values."""
    return [float(str(value)) for value in np.asarray(values, np.float32).ravel()]


def _action_array_space(policy: "Policy") -> Any:
    """Return the space of actions; None without a space, and for a Dict or Tuple, whose action is not one array."""
    space = policy.experiment.spaces.action
    return None if space is None or kind_of(space) in ("Dict", "Tuple") else space


def _decoding(space: Any, scale: float) -> Any:
    """Return the numbers that turn outputs into an action.

    A Box has a table. A Dict or a Tuple has a list with an entry for each member. Other spaces have None.
    """
    kind = None if space is None else kind_of(space)
    if kind in ("Dict", "Tuple"):
        return [_decoding(member, scale) for _, member in members_of(space)]
    if kind != "Box":
        return None
    numbers = {name: values.tolist() for name, values in stretch(space, scale)._asdict().items()}
    return numbers | {"rounded": is_rounded(space)}


class Link(NamedTuple):
    """Connections into a layer, from one or more sources. Source 0 is the observation, source l + 1 is layer l.

    sources: The number of each source, and whether the layer reads the source's value of the previous step.
    matrix: [rows, columns].
    bias: [columns]; None without biases.
    """

    sources: list[tuple[int, bool]]
    matrix: Float32
    bias: Float32 | None


@dataclass(frozen=True)
class Layers:
    """A static network as matrices.

    Attributes:
        links: The links of each layer. A layer adds up the rows of each link in ascending order, and then the links.
            The engine has the same order.
        sizes: The size of each source.
        remembered: The sources that the next step reads.
    """

    links: list[list[Link]]
    sizes: list[int]
    remembered: list[int]


def layers_of(policy: "Policy", name: str) -> Layers:
    """Return the layers of a policy's network. Raises InputError if its weights change within an episode.

    name: the name of the format, for the error.
    """
    network = policy.experiment.network
    if not getattr(network, "is_static", False):
        kind = policy.experiment.config.network.name
        expected = f"a static network such as mlp or elman, with weights that do not change in an episode, for {name}"
        cure = "Export it as C (.c), which holds every built-in network, or as JSON (.json)."
        if not hasattr(network, "is_static"):  # from another package: C has no kernel of it
            cure = "If it consists of tanh layers, say so: is_static = True. Or export it as JSON (.json)."
        raise InputError("network", expected, kind, cure)
    weights = policy.weights
    # Each block of a layer has a column for each neuron of the layer.
    columns = {block.layer: block.columns for block in network.blocks}
    sizes = [network.observation_size, *columns.values()]
    links: list[list[Link]] = []
    remembered: list[int] = []
    for layer, group in groupby(network.blocks, lambda block: block.layer):
        found = []
        for block in group:
            matrix = _matrix(weights, block)
            is_recurrent = block.source > layer  # source l + 1 is layer l: this layer or a later one
            if is_recurrent and block.source not in remembered:
                remembered.append(block.source)
            # A matrix with biases has one row more than its source has nodes. The biases are the last row.
            rows = sizes[block.source]
            bias = matrix[rows] if block.rows > rows else None
            found.append(Link([(block.source, is_recurrent)], matrix[:rows], bias))
        if not getattr(network, "sums_by_source", False):
            # The layer has one sum over all rows, so stack the matrices. Only the last link may have a bias.
            sources = [source for link in found for source in link.sources]
            found = [Link(sources, np.concatenate([link.matrix for link in found]), found[-1].bias)]
        links.append(found)
    layers = Layers(links, sizes, remembered)
    kind = policy.experiment.config.network.name
    if kind not in NETWORKS and not _are_outputs_of(policy, layers):
        expected = f"a network of tanh layers for {name}, because it has is_static = True"
        got = f"{kind}, whose outputs are not the ones of tanh layers"
        raise InputError("network", expected, got, "Leave is_static out, and export the policy as JSON (.json).")
    return layers


def _are_outputs_of(policy: "Policy", layers: Layers) -> bool:
    """Return whether a policy's network has the outputs of `layers`, tried in three steps with made-up observations.

    A network of another package may state `is_static = True` although it does not consist of tanh layers.
    """
    batch = policy.experiment.network.batch(1, "numpy")
    genome = policy.acting_genome
    batch.load(np.zeros(1, np.intp), genome.weights, genome.mask, np.zeros(1, np.int64))
    previous = [np.zeros(size, np.float32) for size in layers.sizes]
    for step in range(3):
        observation = np.sin(np.arange(layers.sizes[0], dtype=np.float32) + 2 * step)
        nodes = [observation]
        for links in layers.links:
            sums = []
            for link in links:
                rows = np.concatenate([(previous if late else nodes)[source] for source, late in link.sources])
                sums.append(rows @ link.matrix + (0 if link.bias is None else link.bias))
            nodes.append(np.tanh(np.sum(sums, axis=0)))
        if not np.allclose(batch.step(observation[None])[0], nodes[-1], atol=1e-4):
            return False
        previous = nodes
    return True


def _matrix(weights: Mapping[str, Float32], block: Block) -> Float32:
    """Return the matrix [rows, columns] of a block from the weights of a policy with a static network."""
    # A policy that plays a batch of environments repeats the weights in each row of the batch: take row 0.
    return weights[block.title].reshape(-1, block.rows, block.columns)[0]


def onnx_model(policy: "Policy") -> bytes:
    """Return a policy as a model of ONNX.

    The input is `observation` [N, O], flat. The outputs are `action`, if actions can be decoded, and `outputs` [N, A].
    A recurrent network also has the input `memory` [N, M] and the output `next_memory` [N, M]: the M outputs of all
    layers that the next step reads. Memory is zero at the start of an episode.
    """
    layers = layers_of(policy, "ONNX")
    onnx = import_extra("onnx", "onnx", "export", "ONNX")
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = _OnnxGraph(onnx)
    x = "observation"
    # The normalization of observations.
    if policy.normalizer is not None:
        subtract, multiply = policy.normalizer
        x = graph.add("Mul", graph.add("Sub", x, graph.constant(subtract)), graph.constant(multiply))
        x = graph.add("Clip", x, graph.constant(-CLIP), graph.constant(CLIP))
    # The layers. A recurrent link reads the value of the previous step from the input `memory`.
    sources = {0: x}
    previous = _memory_by_source(graph, layers)
    for layer, links in enumerate(layers.links):
        total = ""
        for link in links:
            inputs = [previous[source] if is_recurrent else sources[source] for source, is_recurrent in link.sources]
            term = graph.ordered_sum(graph.add("Concat", *inputs, axis=1), link.matrix)
            if link.bias is not None:
                term = graph.add("Add", term, graph.constant(link.bias))
            total = graph.add("Add", total, term) if total else term
        sources[layer + 1] = graph.tanh(total)
    outputs, size, A = sources[len(layers.links)], layers.sizes[-1], policy.experiment.action_size
    # The last A neurons of the last layer are the outputs; the others have no effect.
    if size > A:
        outputs = graph.columns(outputs, size - A, size)
    # The inputs and outputs of the graph.
    results = []  # (name, value, type, shape) of each output of the graph
    space = _action_array_space(policy)
    if space is not None:
        results.append(("action", *_onnx_action(graph, policy, space, outputs)))
    results.append(("outputs", outputs, kinds.FLOAT, [A]))
    graph_inputs = [("observation", kinds.FLOAT, [layers.sizes[0]])]
    if layers.remembered:
        M = sum(layers.sizes[source] for source in layers.remembered)
        graph_inputs.append(("memory", kinds.FLOAT, [M]))
        memory = graph.add("Concat", *(sources[source] for source in layers.remembered), axis=1)
        results.append(("next_memory", memory, kinds.FLOAT, [M]))
    # Values have numbered names, so Identity gives each output its public name.
    for name, value, _, _ in results:
        graph.nodes.append(helper.make_node("Identity", [value], [name]))
    # A dimension with a name, "N", may have any size.
    input_infos = [helper.make_tensor_value_info(name, kind, ["N", *shape]) for name, kind, shape in graph_inputs]
    output_infos = [helper.make_tensor_value_info(name, kind, ["N", *shape]) for name, _, kind, shape in results]
    model = helper.make_model(
        helper.make_graph(graph.nodes, "policy", input_infos, output_infos, graph.constants),
        producer_name="evolve",
        producer_version=evolve.__version__,
        doc_string=_title(policy),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR,
    )
    onnx.checker.check_model(model)
    return model.SerializeToString()


class _OnnxGraph:
    """The nodes and constants of a graph under construction. The methods return the name of the value that they add."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any) -> str:
        """Add an array; return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.array(values, order="C"), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add an operation; return the name of its result."""
        name = f"value_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def ordered_sum(self, value: str, matrix: Float32) -> str:
        """Add value [N, rows] times a matrix [rows, columns], summed in the order of the rows as the engine does.

        A MatMul has another order, and thus errors of up to 4e-6 after tanh.
        """
        # [N, rows, 1] times [rows, columns] is [N, rows, columns]. The last running sum over the rows is the whole sum.
        wide = self.add("Unsqueeze", value, self.constant(np.array([2], np.int64)))
        products = self.add("Mul", wide, self.constant(matrix))
        sums = self.add("CumSum", products, self.constant(np.array(1, np.int64)))
        return self.add("Gather", sums, self.constant(np.array(len(matrix) - 1, np.int64)), axis=1)

    def tanh(self, value: str) -> str:
        """Add tanh in float64. Runtimes approximate tanh in float32, and the errors grow from layer to layer."""
        kinds = self.onnx.TensorProto
        wide = self.add("Cast", value, to=kinds.DOUBLE)
        return self.add("Cast", self.add("Tanh", wide), to=kinds.FLOAT)

    def columns(self, value: str, start: int, stop: int) -> str:
        """Add the columns start to stop of a value [N, n]."""
        edges = (self.constant(np.array([edge], np.int64)) for edge in (start, stop, 1))
        return self.add("Slice", value, *edges)


def _memory_by_source(graph: _OnnxGraph, layers: Layers) -> dict[int, str]:
    """Return the columns of the input `memory` that hold the previous value of each remembered source."""
    parts, start = {}, 0
    for source in layers.remembered:
        parts[source] = graph.columns("memory", start, start + layers.sizes[source])
        start += layers.sizes[source]
    return parts


def _onnx_action(graph: _OnnxGraph, policy: "Policy", space: Any, outputs: str) -> tuple[str, int, list[int]]:
    """Add the decoding of actions of a space; return the name, the type and the shape of the action."""
    types = graph.onnx.helper.np_dtype_to_tensor_dtype
    kind, shape = kind_of(space), list(space.shape)
    dtype = np.dtype(np.int64 if kind == "Discrete" else space.dtype)
    if kind == "Discrete":
        best = graph.add("ArgMax", outputs, axis=1, keepdims=0)
        value = graph.add("Add", best, graph.constant(np.array(space.start, np.int64)))
    elif kind == "MultiDiscrete":
        # Each number of the action has a group of outputs. The groups lie end to end.
        edges = np.cumsum([0, *space.nvec.ravel()]).tolist()
        parts = [graph.columns(outputs, a, b) for a, b in pairwise(edges)]
        choices = [graph.add("ArgMax", part, axis=1, keepdims=1) for part in parts]
        best = graph.add("Concat", *choices, axis=1)
        value = graph.add("Add", best, graph.constant(space.start.ravel().astype(np.int64)))
    elif kind == "MultiBinary":
        value = graph.add("Greater", outputs, graph.constant(np.float32(0)))
    else:
        # `stretch` returns float64 numbers, so the environments decode actions in float64. The graph does the same.
        centre, half, floor, ceiling = map(graph.constant, stretch(space, policy.experiment.config.env.action_scale))
        wide = graph.add("Cast", outputs, to=types(np.dtype(np.float64)))
        value = graph.add("Add", centre, graph.add("Mul", half, wide))
        value = graph.add("Min", graph.add("Max", value, floor), ceiling)
        if is_rounded(space):
            value = graph.add("Round", value)
    # The type and the shape of the space. A Discrete action is one number for each row already.
    value = graph.add("Cast", value, to=types(dtype))
    if kind != "Discrete":
        value = graph.add("Reshape", value, graph.constant(np.array([-1, *shape], np.int64)))
    return value, types(dtype), shape


def torch_program(policy: "Policy") -> bytes:
    """Return a policy as a saved program of `torch.export`.

    `torch.export.load(path).module()` takes the observation [N, O], flat. A recurrent network also takes the memory
    [N, M]. The result is (action, outputs), to which a recurrent network adds the next memory. If actions cannot be
    decoded, the result has no action.
    """
    layers = layers_of(policy, "PyTorch")
    torch = import_extra("torch", "torch", "export", "PyTorch")
    module = _torch_module(torch, policy, layers)
    rows = 2  # an example of one row would give a program for one row only
    arguments = [torch.zeros(rows, layers.sizes[0])]
    if layers.remembered:
        arguments.append(torch.zeros(rows, sum(layers.sizes[source] for source in layers.remembered)))
    N = torch.export.Dim("N", min=1)
    program = torch.export.export(module, tuple(arguments), dynamic_shapes=tuple({0: N} for _ in arguments))
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    return buffer.getvalue()


def _torch_module(torch: Any, policy: "Policy", layers: Layers) -> Any:
    """Return a policy as a module of PyTorch."""
    experiment = policy.experiment
    sizes = [layers.sizes[source] for source in layers.remembered]
    space = _action_array_space(policy)

    def tensor(values: Float32 | None) -> Any:
        return None if values is None else torch.from_numpy(values.copy())

    normalizer = tensor(policy.normalizer)
    tensors = [[(link.sources, tensor(link.matrix), tensor(link.bias)) for link in links] for links in layers.links]

    def ordered_sum(x: Any, matrix: Any) -> Any:
        # The engine adds the rows in ascending order, and so does the program. A product of matrices has another order.
        # For very many rows the program would be too long. A product in float64 is then close to the ordered sum.
        if len(matrix) > _MOST_ROWS:
            return (x.double() @ matrix.double()).float()
        products = x.unsqueeze(2) * matrix  # [N, rows, columns]
        first, *following = products.unbind(1)  # an array [N, columns] for each row of the matrix
        return sum(following, first)

    class Network(torch.nn.Module):  # type: ignore[misc]  # torch is imported on demand, so its type is Any
        def forward(self, observation: Any, memory: Any = None) -> tuple[Any, ...]:
            # The steps are the same as in `onnx_model`.
            x = observation
            if normalizer is not None:
                x = torch.clamp((x - normalizer[0]) * normalizer[1], -float(CLIP), float(CLIP))
            previous: dict[int, Any] = {}
            if sizes:
                previous = dict(zip(layers.remembered, torch.split(memory, sizes, 1), strict=True))
            sources = {0: x}
            for layer, links in enumerate(tensors):
                terms = []
                for read, matrix, bias in links:
                    inputs = [previous[source] if is_recurrent else sources[source] for source, is_recurrent in read]
                    term = ordered_sum(torch.cat(inputs, 1), matrix)
                    terms.append(term if bias is None else term + bias)
                sources[layer + 1] = torch.tanh(sum(terms[1:], terms[0]))
            # The last A neurons of the last layer are the outputs; the others have no effect.
            outputs = sources[len(layers.links)][:, layers.sizes[-1] - experiment.action_size :]
            results = [] if space is None else [_torch_action(torch, policy, space, outputs)]
            results.append(outputs)
            if sizes:
                results.append(torch.cat([sources[source] for source in layers.remembered], 1))
            return tuple(results)

    return Network().eval()


def _torch_action(torch: Any, policy: "Policy", space: Any, outputs: Any) -> Any:
    """Return the actions of a space for network outputs [N, A]."""
    # The formulas are the same as in `_onnx_action`.
    kind = kind_of(space)
    if kind == "Discrete":
        return torch.argmax(outputs, 1) + int(space.start)
    if kind == "MultiDiscrete":
        parts = torch.split(outputs, space.nvec.ravel().tolist(), 1)
        value = torch.stack([torch.argmax(part, 1) for part in parts], 1) + torch.tensor(space.start.ravel().tolist())
    elif kind == "MultiBinary":
        value = outputs > 0
    else:
        scale = policy.experiment.config.env.action_scale
        centre, half, floor, ceiling = map(torch.tensor, stretch(space, scale))
        value = centre + half * outputs.double()
        value = torch.minimum(torch.maximum(value, floor), ceiling)
        if is_rounded(space):
            value = torch.round(value)
    dtype = getattr(torch, np.dtype(space.dtype).name)
    return value.to(dtype).reshape(-1, *space.shape)
