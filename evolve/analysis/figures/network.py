"""The figure of a network: layers from left to right, without connections that are pruned or cannot act.

`evolve.strategies.acting` finds the connections that can act. Films of networks also use `places_of`, the positions of
neurons, and `curves_of`, the lines of connections.
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
"""The drawn neurons of a layer: the number of each neuron, and its position (layer, height between 0 and 1)."""

_COLUMNS = ("source", "tail", "target", "head", "strength", "activity_index")
_POSITIVE, _NEGATIVE = style.DEEP_BLUE, style.COLOURS[1]
_TALLEST = 11.0  # inches, of the figure without its note
_MOST_NAMED_NEURONS = 90  # a layer of more neurons has no room for their names
_MOST_KINDS = 3  # of neurons, each counted in the text of a layer; more kinds are counted together
_MOST_CONNECTIONS = 500  # all drawn; of more only the strongest tenth is drawn, about `_MOST_DRAWN` at most
_MOST_DRAWN = 2000  # more curves, as of a network that sees images, cover each other, and take megabytes of a page
_MOST_OPAQUE = 150  # all opaque; of more connections the weak ones are transparent
_MOST_NUMBERS = 24  # connections with their strengths written on them; more connections have no numbers
_NOTE_CHARACTERS = 120


@dataclass(frozen=True)
class Connections:
    """The n connections of one network, each from a neuron of a layer to a neuron of the same or another layer.

    Attributes:
        sizes: The number of neurons of each layer, observations first.
        source: [n], the layer that each connection reads.
        tail: [n], the neuron of that layer.
        target: [n], the layer that each connection feeds.
        head: [n], the neuron of that layer.
        strength: [n], the weights or the traces.
        activity_index: [n], the index of each connection in `Activity.weights`.
        unused: The neurons of the last layer that nothing reads.
    """

    sizes: tuple[int, ...]
    source: Int64
    tail: Int64
    target: Int64
    head: Int64
    strength: Float32
    activity_index: Int64
    unused: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.strength)

    @cached_property
    def connected(self) -> list[set[int]]:
        """The neurons of each layer that have a connection."""
        return [
            {*self.tail[self.source == layer].tolist(), *self.head[self.target == layer].tolist()}
            for layer in range(len(self.sizes))
        ]

    def take(self, chosen: Bool | Int64) -> "Connections":
        """Return the connections that a mask [n] or an array of indices selects."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in _COLUMNS})

    def strongest(self, number: int) -> "Connections":
        """Return about `number` of the strongest connections, in their present order.

        Each weight matrix keeps the same share of its connections. Weights of small layers tend to be larger or smaller
        than others, so one threshold for all matrices could disconnect a layer.
        """
        share = min(1.0, number / max(1, len(self)))
        # A number for each weight matrix: each pair of a source layer and a target layer has one.
        matrix = self.source * len(self.sizes) + self.target
        kept = []
        for each in np.unique(matrix):
            among = np.flatnonzero(matrix == each)
            order = np.argsort(-np.abs(self.strength[among]), kind="stable")
            kept.append(among[order[: math.ceil(share * len(among))]])
        # The empty array is for a network without connections: `concatenate` needs an array.
        return self.take(np.sort(np.concatenate([*kept, np.zeros(0, np.intp)])))


def connections_of(network: Network, mask: Bool, strength: Float32) -> Connections:
    """Return the connections that a mask [W] leaves and that can act.

    A bias is a connection from the last neuron of its source layer. In a genome of learning rules, the strength of a
    connection is the first coefficient of its rule.

    strength: [W], a number for each weight.
    """
    paths = Paths(network)
    parts = []
    begin = 0
    # Only the first block of each matrix is needed. `acting` [rows, columns] belongs to the only mask.
    for (block, *_), (acting,) in zip(paths.matrices, paths.acting(mask[None]), strict=True):
        weights = strength[block.start : block.stop].reshape(block.rows, block.columns)
        rows, columns = np.nonzero(acting)
        source = np.full(len(rows), block.source)
        # Here layer 0 is the observation, so layer l of the network has the number l + 1.
        target = np.full(len(rows), block.layer + 1)
        # `Activity.weights` has the matrices end to end, each matrix row by row.
        index = begin + rows * acting.shape[1] + columns
        # Coefficients of learning rules may be one row, or one column, for all rows or columns of connections.
        weights_of_all = np.broadcast_to(weights, acting.shape)
        parts.append((source, rows, target, columns, weights_of_all[rows, columns], index))
        begin += acting.size
    arrays = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns_of_all: dict[str, Any] = dict(zip(_COLUMNS, arrays, strict=True))
    return Connections(tuple(paths.sizes), **columns_of_all, unused=paths.unused)


def places_of(connections: Connections) -> list[Places]:
    """Return the positions of each layer's drawn neurons. Hidden neurons are drawn only if they are connected."""
    last = len(connections.sizes) - 1
    places = []
    for layer, size in enumerate(connections.sizes):
        shown = range(size) if layer in (0, last) else sorted(connections.connected[layer])
        shown = [neuron for neuron in shown if layer != last or neuron not in connections.unused]
        # The neurons are evenly spaced from top to bottom, and keep the same distance from the edges.
        heights = np.linspace(1, 0, len(shown) + 2)[1:-1]
        places.append({neuron: (float(layer), float(y)) for neuron, y in zip(shown, heights, strict=True)})
    return places


def curves_of(connections: Connections, places: list[Places]) -> Float64:
    """Return each connection as a Bézier curve, [n, 4, 2].

    A curve that skips layers bends up or down, around their neurons. A curve within a layer leaves it and comes back.
    """
    # Larger layers have less space between their neurons, so curves keep closer to the neurons.
    most_hidden = max(map(len, places[1:-1]), default=1)
    clearance = max(0.07, 0.7 / (most_hidden + 1))  # from the hidden neurons that a curve passes
    begin = _ends(connections.source, connections.tail, places)
    end = _ends(connections.target, connections.head, places)
    distance = (end - begin)[:, :1]  # in layers
    # The control points of a curve that skips a layer are above or below its ends.
    detour = np.where(distance > 1.5, clearance * (distance - 1) * np.where(begin[:, 1:] > 0.5, 1, -1), 0)
    # The control points of a curve within a layer are beside the layer, one a little above the other.
    beside = np.where(distance == 0, 0.3, 0)
    bulge = np.where(distance == 0, clearance / 3, 0)
    first = begin + np.concatenate([0.45 * distance + beside, detour + bulge], axis=1)
    second = end - np.concatenate([0.45 * distance - beside, bulge - detour], axis=1)
    return np.stack([begin, first, second, end], axis=1)


def _ends(layers: Int64, neurons: Int64, places: list[Places]) -> Float64:
    ends = [places[layer][neuron] for layer, neuron in zip(layers.tolist(), neurons.tolist(), strict=True)]
    return np.array(ends, np.float64).reshape(-1, 2)


def points_on(curves: Float64, at: Float64) -> Float64:
    """Return the points of Bézier curves [n, 4, 2] at the parameters `at` (0 to 1), [n, len(at), 2]."""
    # The Bernstein polynomials of degree 3.
    t = at[:, None]
    parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3)
    return np.asarray(sum(part * curves[:, n, None] for n, part in enumerate(parts)))


@dataclass(frozen=True)
class DrawnNetwork:
    """A network, ready to be drawn.

    Attributes:
        acting: The connections that are not pruned and can act.
        shown: The acting connections that are drawn: all, or the strongest tenth.
        num_without_pruning: The number of connections that could act without pruning.
        inputs: The names of the neurons of the first layer.
        outputs: The names of the neurons of the last layer.
        kind: The meaning of a strength: "weight", "coefficient A" of a learning rule, or "trace".
    """

    acting: Connections
    shown: Connections
    num_without_pruning: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: str = "weight"

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
    # Weights without effect may have any value, see `GenomeLayout`: all connections of binary-mask-mlp weigh 1.
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
    # Of the outputs before the actions, the first is the neuromodulator. The others have no names.
    num_others = acting.sizes[-1] - actions
    outputs = ["neuromodulator", *(f"output {n}" for n in range(1, num_others))][:num_others] + names
    # Only genomes of learning rules have blocks with a `span`.
    evolved = "coefficient A" if network.blocks[0].span else "weight"
    kind = evolved if traces is None else "trace"
    return DrawnNetwork(acting, shown, len(unpruned), tuple(inputs), tuple(outputs), kind)


@style.styled
def draw_champion(champion: Champion, experiment: Experiment, traces: Float32 | None) -> Any:
    """Return the figure of a champion's network, with a title that counts its connections; see `network_of`."""
    drawn = network_of(champion.genome, experiment, traces)
    figure = draw_network(drawn, "" if traces is None else _traces_note(experiment))
    count = ", ".join(filter(None, (drawn.connections_text, drawn.omission_text)))
    if experiment.network.blocks[0].span:
        count += f", {champion.genome.connections()[0]:,} of {champion.genome.num_weights:,} coefficients"
    style.set_title(figure, f"{experiment.config.env.id}, {champion.title}: {count}")
    return figure


def _traces_note(experiment: Experiment) -> str:
    """Return an explanation of traces in this experiment."""
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
    connected = drawn.acting.connected  # connections that are not drawn count, too
    places = places_of(drawn.shown)
    tallest = max(map(len, places))
    height = min(max(3.2, 0.24 * tallest + 1.2), _TALLEST)
    figure = style.new_figure(height + (0.5 if note else 0.0))
    panel = figure.subplots()
    panel.set_axis_off()
    # Draw the connections, the neurons, and the names of observations, outputs and biases.
    _draw_connections(panel, drawn.shown, places)
    for layer, neurons in enumerate(places):
        _draw_neurons(panel, neurons, connected[layer])
    fontsize = 6.5 if tallest > 40 else 9.0
    _label(panel, places[0], drawn.inputs, connected[0], "right", fontsize)
    _label(panel, places[-1], drawn.outputs, connected[-1], "left", fontsize)
    for layer in range(1, len(places) - 1):
        # A hidden neuron that acts although nothing feeds it is a bias. Other neurons without inputs are always 0.
        fed = set(drawn.acting.head[drawn.acting.target == layer].tolist())
        biases = {neuron: place for neuron, place in places[layer].items() if neuron not in fed}
        _label(panel, biases, ["bias"] * drawn.acting.sizes[layer], connected[layer], "right", fontsize)
    _add_legend(panel, drawn.shown, drawn.kind)
    panel.set_xlim(*_sides(drawn.inputs, drawn.outputs, len(places), fontsize))
    if note:
        figure.supxlabel(textwrap.fill(note, _NOTE_CHARACTERS), fontsize=8.5, x=0.01, ha="left")
    return figure


def _draw_connections(panel: Any, connections: Connections, places: list[Places]) -> None:
    """Draw each connection as a curve, the strongest last and thus on top.

    Above `_MOST_OPAQUE` connections, weak ones are transparent. Up to `_MOST_NUMBERS` connections have numbers.
    """
    if not len(connections):
        return
    # All strengths may be 0, so the divisor has a lower limit.
    size = np.abs(connections.strength) / max(float(np.abs(connections.strength).max()), 1e-30)
    order = np.argsort(size)
    connections = connections.take(order)
    size = size[order]
    curves = curves_of(connections, places)
    # `space` is 1 for few connections, which are all opaque. For many it nears 0, and opacity depends on the strength.
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
    # The limits of the axes follow the middles of the curves, because control points lie outside of the curves.
    panel.add_collection(lines, autolim=False)
    panel.update_datalim(points_on(curves, np.array([0.5]))[:, 0])
    if len(connections) <= _MOST_NUMBERS:
        _write_strengths(panel, connections, curves)


def _colours_of(strength: Float32) -> list[str]:
    """Return the colour of each strength [n]."""
    return np.select([strength > 0, strength < 0], [_POSITIVE, _NEGATIVE], FAINT).tolist()


def _write_strengths(panel: Any, connections: Connections, curves: Float64) -> None:
    """Write the strength of each connection on it, at the point farthest from the numbers written so far."""
    points_of_each = points_on(curves, np.linspace(0.2, 0.8, 13))
    written = np.zeros((0, 2))
    paper = {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none"}
    for points, strength in zip(points_of_each, connections.strength.tolist(), strict=True):
        if len(written):
            offsets = np.abs(points[:, None] - written) * (1, 2.2)  # a number is wider than high
            # The distance of each point from the nearest number.
            distances = np.hypot(*offsets.T).min(axis=0)
            at = points[int(np.argmax(distances))]
        else:
            at = points[len(points) // 2]  # the first number is in the middle
        written = np.concatenate([written, at[None]])
        panel.text(*at, f"{strength:.2f}".replace("-", "−"), color=INK, fontsize=7.5, ha="center", va="center",
                   bbox=paper, zorder=2.5)  # fmt: skip


def _sides(inputs: Sequence[str], outputs: Sequence[str], layers: int, fontsize: float) -> tuple[float, float]:
    """Return the limits of the x axis, in layers. They leave room for the names beside the network."""
    left, right = (0.25 + 0.0078 * fontsize * max(map(len, names)) for names in (inputs, outputs))  # inches, roughly
    # The width of an inch in layers: the layers share the width that the names leave.
    inch = (layers - 1) / (style.WIDTH - left - right)
    return -left * inch, layers - 1 + right * inch


def _draw_neurons(panel: Any, places: Places, connected: set[int]) -> None:
    """Draw the neurons of a layer. Neurons without connections are pale, and lie below the others."""
    for used in (False, True):
        shown = [place for neuron, place in places.items() if (neuron in connected) == used]
        if shown:
            x, y = zip(*shown, strict=True)
            size = 46 if len(places) <= 40 else 12
            panel.scatter(x, y, s=size, zorder=3, color=PAPER, edgecolors=INK if used else PALE, linewidths=1.1)


def _label(panel: Any, places: Places, names: Sequence[str], connected: set[int], align: str, fontsize: float) -> None:
    """Write the names of a layer's neurons beside it, or one text such as "376 observations, 1 bias" for many."""
    if len(places) > _MOST_NAMED_NEURONS:
        # The text is below the lowest neuron. It counts the neurons of each kind, which is the first word of their
        # names.
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


def _add_legend(panel: Any, connections: Connections, kind: str) -> None:
    occurring = set(_colours_of(connections.strength))
    signs = {_POSITIVE: f"positive {kind}", _NEGATIVE: f"negative {kind}", FAINT: f"{kind} of 0"}
    shown = {colour: label for colour, label in signs.items() if colour in occurring}
    if not shown:
        return
    lines = [matplotlib("lines").Line2D([], [], color=colour, lw=2.4) for colour in shown]
    grows = "line width grows" if len(connections) <= _MOST_OPAQUE else "line width and opacity grow"
    title = f"{grows} with |{kind}|, max {float(np.abs(connections.strength).max()):.3g}"
    panel.legend(lines, [*shown.values()], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(shown),
                 title=title, fontsize=8.5, title_fontsize=8.5)  # fmt: skip
