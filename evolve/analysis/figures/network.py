"""The figure of a network: layers from left to right, without connections that are pruned or cannot act.

`network_of` makes a `DrawnNetwork` of a genome, and `draw_network` draws it. `evolve.strategies.acting` finds the
connections that can act. Films also use `places_of`, the positions of neurons, and `curves_of`, the connections.
"""

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from evolve import environments
from evolve.analysis.champion import Champion
from evolve.analysis.figures import style
from evolve.analysis.figures.style import FAINT, INK, PALE, PAPER, QUIET, matplotlib
from evolve.errors import pluralize
from evolve.genome import Genomes
from evolve.networks import Network
from evolve.shapes import Bool, Float32, Float64, Int64
from evolve.strategies.acting import Paths
from evolve.training import Experiment

Places = dict[int, tuple[float, float]]
"""The drawn neurons of a layer: by the number of each neuron its position (layer, height between 0 and 1)."""

_ARRAYS = ("source_layer", "source_neuron", "target_layer", "target_neuron", "strength", "activity_index")
_POSITIVE, _NEGATIVE = style.DEEP_BLUE, style.COLOURS[1]
_TALLEST = 11.0  # inches, of the figure without its note
_MOST_NAMED_NEURONS = 90  # a layer of more neurons has no space for their names
_MOST_KINDS = 3  # of neurons, each counted in the text of a layer; more kinds are counted together
_MOST_CONNECTIONS = 500  # that are all drawn; of more only the strongest tenth is drawn, about `_MOST_DRAWN` at most
_MOST_DRAWN = 2000  # more curves, as of a network that sees images, cover each other, and take megabytes of a page
_MOST_OPAQUE = 150  # connections that are all opaque; of more connections the weak ones are transparent
_MOST_NUMBERS = 24  # connections with their strengths written on them; more connections have no numbers
_NOTE_CHARACTERS = 120  # in one line


@dataclass(frozen=True)
class Connections:
    """The n connections of one network, each from a neuron of a layer to a neuron of the same or another layer.

    Attributes:
        sizes: The number of neurons of each layer. Layer 0 has the observations and, in some networks, a bias.
        source_layer: [n], the layer that each connection reads.
        source_neuron: [n], the neuron that each connection reads, a number within its layer.
        target_layer: [n], the layer that each connection feeds.
        target_neuron: [n], the neuron that each connection feeds, a number within its layer.
        strength: [n], the weights, coefficients or traces that are drawn.
        activity_index: [n], the index of each connection in `Activity.weights`.
        unused: The neurons of the last layer that nothing reads.
    """

    sizes: tuple[int, ...]
    source_layer: Int64
    source_neuron: Int64
    target_layer: Int64
    target_neuron: Int64
    strength: Float32
    activity_index: Int64
    unused: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.strength)

    @cached_property
    def connected(self) -> list[set[int]]:
        """The neurons of each layer that have a connection."""
        connected = []
        for layer in range(len(self.sizes)):
            read = self.source_neuron[self.source_layer == layer]
            fed = self.target_neuron[self.target_layer == layer]
            connected.append({*read.tolist(), *fed.tolist()})
        return connected

    def take(self, indices: Int64) -> "Connections":
        """Return the connections with these indices."""
        return replace(self, **{name: getattr(self, name)[indices] for name in _ARRAYS})

    def strongest(self, number: int) -> "Connections":
        """Return about `number` of the strongest connections, in their present order.

        Each weight matrix keeps the same share of its connections. Weights of small layers tend to be larger or smaller
        than others, so one threshold for all matrices could disconnect a layer.
        """
        share = min(1.0, number / max(1, len(self)))
        # A weight matrix connects a source layer with a target layer. Give each matrix a number.
        matrix = self.source_layer * len(self.sizes) + self.target_layer
        chosen = [np.zeros(0, np.intp)]  # a network without connections has no other array to concatenate
        for number_of_matrix in np.unique(matrix):
            in_matrix = np.flatnonzero(matrix == number_of_matrix)
            order = np.argsort(-np.abs(self.strength[in_matrix]), kind="stable")
            chosen.append(in_matrix[order[: math.ceil(share * len(order))]])
        return self.take(np.sort(np.concatenate(chosen)))


def connections_of(network: Network, mask: Bool, strength: Float32) -> Connections:
    """Return the connections that a mask [W] leaves and that can act.

    A bias is a connection from the last neuron of its source layer. In a genome of learning rules, the strength of a
    connection is the first coefficient of its rule.

    strength: [W], a number for each weight.
    """
    paths = Paths(network)
    parts = []
    begin = 0
    # A matrix of connections is one block of weights, or several blocks of coefficients, of which only the first one is
    # drawn. `can_act` [sources, targets] belongs to the only mask.
    for (block, *_), (can_act,) in zip(paths.matrices, paths.acting(mask[None]), strict=True):
        sources, targets = np.nonzero(can_act)
        source_layer = np.full(len(sources), block.source)
        # Here layer 0 is the observation, so layer l of the network has the number l + 1.
        target_layer = np.full(len(sources), block.layer + 1)
        # Coefficients of learning rules may be one row, or one column, for all rows or columns of connections.
        strengths = strength[block.start : block.stop].reshape(block.rows, block.columns)
        strengths = np.broadcast_to(strengths, can_act.shape)[sources, targets]
        # `Activity.weights` has the matrices end to end, each matrix row by row.
        index = begin + sources * can_act.shape[1] + targets
        parts.append((source_layer, sources, target_layer, targets, strengths, index))
        begin += can_act.size
    # Join the arrays of all matrices. Each part has its arrays in the order of `_ARRAYS`.
    joined = map(np.concatenate, zip(*parts, strict=True))
    arrays: dict[str, Any] = dict(zip(_ARRAYS, joined, strict=True))
    return Connections(tuple(paths.sizes), **arrays, unused=paths.unused)


def places_of(connections: Connections) -> list[Places]:
    """Return the positions of each layer's drawn neurons. A hidden neuron is drawn only if it has a connection."""
    drawn = [sorted(neurons) for neurons in connections.connected]
    # The first and the last layer are drawn whole, but without unused outputs.
    drawn[0] = list(range(connections.sizes[0]))
    drawn[-1] = [neuron for neuron in range(connections.sizes[-1]) if neuron not in connections.unused]
    places = []
    for layer, neurons in enumerate(drawn):
        # Neurons are evenly spaced from top to bottom, and keep the same distance from the edges.
        heights = np.linspace(1, 0, len(neurons) + 2)[1:-1].tolist()
        places.append({neuron: (float(layer), y) for neuron, y in zip(neurons, heights, strict=True)})
    return places


def curves_of(connections: Connections, places: list[Places]) -> Float64:
    """Return each connection as a cubic Bézier curve, [n, 4 points, 2 coordinates]: begin, control points, end.

    A curve that skips layers bends up or down, around their neurons. A curve within a layer leaves it and comes back.
    """
    # Larger layers have less space between their neurons, so curves keep closer to the neurons.
    most_hidden = max(map(len, places[1:-1]), default=1)
    clearance = max(0.07, 0.7 / (most_hidden + 1))  # from the hidden neurons that a curve passes
    begin = _ends(connections.source_layer, connections.source_neuron, places)
    end = _ends(connections.target_layer, connections.target_neuron, places)
    distance = (end - begin)[:, :1]  # [n, 1], in layers
    # The control points of a curve that skips a layer are above its ends, or below them in the lower half.
    side = np.where(begin[:, 1:] > 0.5, 1, -1)
    detour = np.where(distance > 1.5, clearance * (distance - 1) * side, 0)
    # The control points of a curve within a layer are to the right of the layer, one a little above the other.
    beside = np.where(distance == 0, 0.3, 0)
    bulge = np.where(distance == 0, clearance / 3, 0)
    first = begin + np.concatenate([0.45 * distance + beside, detour + bulge], axis=1)
    second = end + np.concatenate([beside - 0.45 * distance, detour - bulge], axis=1)
    return np.stack([begin, first, second, end], axis=1)


def _ends(layers: Int64, neurons: Int64, places: list[Places]) -> Float64:
    """Return the positions of neurons, [n, 2]. layers, neurons: [n], the layer and the number of each neuron."""
    ends = [places[layer][neuron] for layer, neuron in zip(layers.tolist(), neurons.tolist(), strict=True)]
    return np.array(ends, np.float64).reshape(-1, 2)


def points_on(curves: Float64, at: Float64) -> Float64:
    """Return the points of Bézier curves [n, 4, 2] at the parameters `at` (0 to 1), [n, len(at), 2]."""
    t = at[:, None]
    # The Bernstein polynomials of degree 3 are the weights of the four points of a curve.
    weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    return np.asarray(sum(weight * curves[:, n, None] for n, weight in enumerate(weights)))


@dataclass(frozen=True)
class DrawnNetwork:
    """A network, ready to be drawn.

    Attributes:
        acting: The connections that are not pruned and can act.
        shown: The acting connections that are drawn: all, or the strongest tenth.
        num_without_pruning: The number of connections that could act without pruning.
        inputs: The names of the neurons of the first layer.
        outputs: The names of the neurons of the last layer.
        strength_name: The meaning of a strength: "weight", "coefficient A" of a learning rule, or "trace".
    """

    acting: Connections
    shown: Connections
    num_without_pruning: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    strength_name: str = "weight"

    @property
    def connections_text(self) -> str:
        """A text with the number of connections that can act, now and without pruning."""
        return f"{len(self.acting):,} of {self.num_without_pruning:,} acting connections"

    @property
    def omission_text(self) -> str:
        """A text with the number of connections drawn; empty if all are drawn."""
        return "" if len(self.shown) == len(self.acting) else f"the strongest {len(self.shown):,} drawn"


def network_of(genome: Genomes, experiment: Experiment, traces: Float32 | None = None) -> DrawnNetwork:
    """Return the network of a genome (P = 1), ready to be drawn.

    The strength of a connection is its weight or, in a network with learning rules, the coefficient A of its rule.

    traces: [W], the strengths to draw instead.
    """
    network = experiment.network
    # In binary-mask-mlp each connection weighs 1. The weights in the genome have no effect, and may have any value.
    has_weights = getattr(network, "evolves_weights", True)
    mask = genome.mask[0]
    weights = genome.weights[0] if has_weights else np.ones_like(genome.weights[0])
    acting = connections_of(network, mask, weights if traces is None else traces)
    unpruned = connections_of(network, np.ones_like(mask), weights)
    shown = acting
    if len(acting) > _MOST_CONNECTIONS:
        shown = acting.strongest(min(len(acting) // 10, _MOST_DRAWN))
    observations, actions = network.observation_size, experiment.action_size
    inputs, names = environments.labels(experiment.config.env.id, observations, actions, experiment.spaces)
    # If the first layer has a neuron more than there are observations, this neuron is the bias.
    inputs += ["bias"] * (acting.sizes[0] - observations)
    # Of the outputs before the actions, if there are any, the first is the neuromodulator. The others have no names.
    num_before_actions = acting.sizes[-1] - actions
    outputs = ["neuromodulator" if n == 0 else f"output {n}" for n in range(num_before_actions)]
    strength_name = "trace"
    if traces is None:
        strength_name = "coefficient A" if _has_rules(experiment) else "weight"
    return DrawnNetwork(acting, shown, len(unpruned), tuple(inputs), (*outputs, *names), strength_name)


def _has_rules(experiment: Experiment) -> bool:
    """Return whether genomes have coefficients of learning rules, in blocks with a span, instead of weights."""
    return bool(experiment.network.blocks[0].span)


@style.styled
def draw_champion(champion: Champion, experiment: Experiment, traces: Float32 | None) -> Any:
    """Return the figure of a champion's network, with a title that counts its connections; see `network_of`."""
    drawn = network_of(champion.genome, experiment, traces)
    figure = draw_network(drawn, "" if traces is None else _traces_note(experiment))
    count = ", ".join(filter(None, (drawn.connections_text, drawn.omission_text)))
    if _has_rules(experiment):
        count += f", {champion.genome.connections()[0]:,} of {champion.genome.num_weights:,} coefficients"
    style.set_title(figure, f"{experiment.config.env.id}, {champion.title}: {count}")
    return figure


def _traces_note(experiment: Experiment) -> str:
    """Return an explanation of the traces of an experiment."""
    shown = "The figure shows the traces at the end of an episode, in the mean over the champion's episodes."
    network = experiment.config.network
    if network.name != "hebbian-dag":
        return shown
    settings = network.table()
    plasticity, limit = settings["plasticity"], settings["trace_limit"]
    rate = "output 0 of the network" if settings["neuromodulated"] else f"{settings['trace_rate']:g}"
    traces = (
        f"In each step a Hebbian trace grows by {rate} times the connection's input times the sum that its source "
        f"layer adds to its target, within ±{limit:g}. {shown}"
    )
    if plasticity:
        return f"{traces} Here traces change the network: {plasticity:g} times the trace is added to the weight."
    return f"{traces} Here traces do not act on the network; a strategy may prune by them."


@style.styled
def draw_network(drawn: DrawnNetwork, note: str = "") -> Any:
    """Return the figure of a network, with a note below. A line's colour shows the sign, and its width the strength."""
    # A neuron counts as connected even if none of its connections is drawn.
    connected = drawn.acting.connected
    places = places_of(drawn.shown)
    tallest = max(map(len, places))
    height = min(max(3.2, 0.24 * tallest + 1.2), _TALLEST)
    figure = style.new_figure(height + (0.5 if note else 0.0))
    panel = figure.subplots()
    panel.set_axis_off()
    # Draw the connections and the neurons.
    _draw_connections(panel, drawn.shown, places)
    for layer, neurons in enumerate(places):
        _draw_neurons(panel, neurons, connected[layer])
    # Write the names of observations, outputs and biases.
    fontsize = 6.5 if tallest > 40 else 9.0
    _label(panel, places[0], drawn.inputs, connected[0], "right", fontsize)
    _label(panel, places[-1], drawn.outputs, connected[-1], "left", fontsize)
    for layer in range(1, len(places) - 1):
        # A hidden neuron that acts although nothing feeds it is a bias. Other neurons without inputs are always 0.
        fed = set(drawn.acting.target_neuron[drawn.acting.target_layer == layer].tolist())
        biases = {neuron: place for neuron, place in places[layer].items() if neuron not in fed}
        _label(panel, biases, ["bias"] * drawn.acting.sizes[layer], connected[layer], "right", fontsize)
    _add_legend(panel, drawn.shown, drawn.strength_name)
    panel.set_xlim(*_x_limits(drawn.inputs, drawn.outputs, len(places), fontsize))
    if note:
        figure.supxlabel(textwrap.fill(note, _NOTE_CHARACTERS), fontsize=8.5, x=0.01, ha="left")
    return figure


def _draw_connections(panel: Any, connections: Connections, places: list[Places]) -> None:
    """Draw each connection as a curve, the strongest last and thus on top.

    Above `_MOST_OPAQUE` connections, weak ones are transparent. Up to `_MOST_NUMBERS` connections have numbers.
    """
    if not len(connections):
        return
    # The strengths relative to the strongest. All may be 0, so the divisor has a lower limit.
    size = np.abs(connections.strength) / max(float(np.abs(connections.strength).max()), 1e-30)
    order = np.argsort(size)
    connections = connections.take(order)
    size = size[order]
    curves = curves_of(connections, places)
    # `space` is 1 for few connections, which are all opaque. For many connections it is near 0, and the opacity depends
    # on the strength.
    space = min(1.0, _MOST_OPAQUE / len(size))
    alpha = (0.15 + 0.85 * space) * (space + (1 - space) * size**1.5) + 0.02
    colours = matplotlib("colors").to_rgba_array(_colours_of(connections.strength))
    colours[:, 3] = np.clip(alpha, 0.02, 1)
    path = matplotlib("path").Path
    codes = [path.MOVETO, path.CURVE4, path.CURVE4, path.CURVE4]
    lines = matplotlib("collections").PathCollection(
        [path(points, codes) for points in curves],
        facecolors="none",
        edgecolors=colours,
        linewidths=(0.4 + 2.8 * size) * (0.5 + space / 2),
    )
    lines.set_gid("connections")
    # The limits of the axes follow the middles of the curves, and not their control points, which are far from them.
    panel.add_collection(lines, autolim=False)
    panel.update_datalim(points_on(curves, np.array([0.5]))[:, 0])
    if len(connections) <= _MOST_NUMBERS:
        _write_strengths(panel, connections, curves)


def _colours_of(strength: Float32) -> list[str]:
    """Return the colour of each strength [n]."""
    return np.select([strength > 0, strength < 0], [_POSITIVE, _NEGATIVE], FAINT).tolist()


def _write_strengths(panel: Any, connections: Connections, curves: Float64) -> None:
    """Write the strength of each connection on it, at the point farthest from the numbers written so far."""
    possible = points_on(curves, np.linspace(0.2, 0.8, 13))  # [n, 13, 2]
    written = np.zeros((0, 2))  # the places of the numbers so far
    box = {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none"}
    for points, strength in zip(possible, connections.strength.tolist(), strict=True):
        if len(written):
            offsets = np.abs(points[:, None] - written) * (1, 2.2)  # a number is wider than high
            # The distance of each point from the nearest number.
            distances = np.hypot(offsets[..., 0], offsets[..., 1]).min(axis=1)
            place = points[int(np.argmax(distances))]
        else:
            place = points[len(points) // 2]  # the first number is in the middle
        written = np.concatenate([written, place[None]])
        panel.text(*place, f"{strength:.2f}".replace("-", "−"), color=INK, fontsize=7.5, ha="center", va="center",
                   bbox=box, zorder=2.5)  # fmt: skip


def _x_limits(inputs: Sequence[str], outputs: Sequence[str], layers: int, fontsize: float) -> tuple[float, float]:
    """Return the limits of the x axis, in layers. They leave space for the names beside the network."""
    # The approximate width of the names, in inches.
    left, right = (0.25 + 0.0078 * fontsize * max(map(len, names)) for names in (inputs, outputs))
    # The width of an inch in layers: the layers share the width that the names leave.
    inch = (layers - 1) / (style.WIDTH - left - right)
    return -left * inch, layers - 1 + right * inch


def _draw_neurons(panel: Any, places: Places, connected: set[int]) -> None:
    """Draw the neurons of a layer. Neurons without connections are pale, and are drawn first, below the others."""
    for is_connected, colour in ((False, PALE), (True, INK)):
        shown = [place for neuron, place in places.items() if (neuron in connected) == is_connected]
        if shown:
            x, y = zip(*shown, strict=True)
            size = 46 if len(places) <= 40 else 12
            panel.scatter(x, y, s=size, zorder=3, color=PAPER, edgecolors=colour, linewidths=1.1)


def _label(panel: Any, places: Places, names: Sequence[str], connected: set[int], align: str, fontsize: float) -> None:
    """Write the names of a layer's neurons beside it, or one text such as "376 observations, 1 bias" for many."""
    if len(places) > _MOST_NAMED_NEURONS:
        # One text below the lowest neuron counts the neurons of each kind. The kind is the first word of a name.
        x, y = min(places.values(), key=lambda place: place[1])
        kinds = Counter(names[neuron].split(" ")[0] for neuron in places)
        counts = [pluralize(number, kind) for kind, number in kinds.items()]
        text = ", ".join(counts) if len(counts) <= _MOST_KINDS else pluralize(len(places), "neuron")
        panel.text(x, y - 0.03, text, ha="center", va="top", fontsize=9)
        return
    offset = (-6, 0) if align == "right" else (6, 0)
    for neuron, (x, y) in places.items():
        colour = INK if neuron in connected else QUIET
        panel.annotate(names[neuron], (x, y), offset, textcoords="offset points", ha=align, va="center", color=colour,
                       fontsize=fontsize)  # fmt: skip


def _add_legend(panel: Any, connections: Connections, name: str) -> None:
    """Explain the colours and the widths of connections. name: The meaning of a strength, such as "weight"."""
    labels = {_POSITIVE: f"positive {name}", _NEGATIVE: f"negative {name}", FAINT: f"{name} of 0"}
    drawn = set(_colours_of(connections.strength))
    shown = {colour: label for colour, label in labels.items() if colour in drawn}
    if not shown:
        return
    lines = [matplotlib("lines").Line2D([], [], color=colour, lw=2.4) for colour in shown]
    grows = "line width grows" if len(connections) <= _MOST_OPAQUE else "line width and opacity grow"
    title = f"{grows} with |{name}|, max {float(np.abs(connections.strength).max()):.3g}"
    panel.legend(lines, [*shown.values()], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(shown),
                 title=title, fontsize=8.5, title_fontsize=8.5)  # fmt: skip
