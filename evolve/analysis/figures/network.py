"""A network as a graph: layers from left to right, without connections that are pruned or cannot act.

A connection can act if its input depends on an observation or a bias, and an action depends on its output.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.analysis.champion import Champion
from evolve.analysis.figures import style
from evolve.analysis.figures.connections import Connections, Places, connections_of, curves_of, places_of, points_on
from evolve.analysis.figures.style import FAINT, INK, PALE, PAPER, matplotlib
from evolve.environments.rendering import names
from evolve.shapes import Float32, Float64
from evolve.training import Experiment

_POSITIVE, _NEGATIVE = style.COLOURS[:2]
_TALLEST = 11.0  # inches, of the figure
_MOST_NAMED_NEURONS = 90  # a layer of more neurons has no room for their names
_MOST_CONNECTIONS = 500  # of more connections only the strongest tenth is drawn
_MOST_OPAQUE = 150  # with more connections, the weak ones are transparent
_MOST_NUMBERS = 24  # with more connections, their strengths are not written on them
_NOTE_CHARACTERS = 120


@dataclass(frozen=True)
class DrawnNetwork:
    """A network, reduced to the connections that are drawn.

    Attributes:
        left: The connections that are not pruned and can act.
        shown: The connections of `left` that are drawn: all, or the strongest tenth.
        num_unpruned: The number of connections that could act without pruning.
        inputs: The names of the neurons of the first layer.
        outputs: The names of the neurons of the last layer.
        kind: The meaning of the strengths: "weight", "coefficient A" of a learning rule, or "trace".
    """

    left: Connections
    shown: Connections
    num_unpruned: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: str = "weight"

    @property
    def connections_text(self) -> str:
        """A text with the number of connections that can act, now and without pruning."""
        return f"{len(self.left):,} of {self.num_unpruned:,} acting connections"

    @property
    def omission_text(self) -> str:
        """A text with the number of connections drawn; empty if all are drawn."""
        return "" if len(self.shown) == len(self.left) else f"the strongest {len(self.shown):,} drawn"


def network_of(champion: Champion, experiment: Experiment, traces: Float32 | None = None) -> DrawnNetwork:
    """Return a champion's network, ready to be drawn. The strength of a connection is its weight.

    Args:
        champion: The champion. With learning rules, a connection's strength is the coefficient A of its rule.
        experiment: The experiment in which it evolved.
        traces: [W], the strengths to draw instead of the weights.
    """
    network = experiment.network
    left = connections_of(network, champion.mask, champion.weights if traces is None else traces)
    unpruned = connections_of(network, np.ones_like(champion.mask), champion.weights)
    shown = left.strongest(len(left) // 10) if len(left) > _MOST_CONNECTIONS else left
    inputs, actions = names(experiment.config.env.id, network.observation_size, experiment.action_size)
    inputs += ["bias"] * (left.sizes[0] - network.observation_size)
    # Outputs before the actions: the first is the neuromodulator, others have no names.
    num_others = left.sizes[-1] - experiment.action_size
    outputs = ["neuromodulator", *(f"output {n}" for n in range(1, num_others))][:num_others] + actions
    # Only genomes of learning rules have blocks with a `span`.
    kind = "trace" if traces is not None else "coefficient A" if network.blocks[0].span else "weight"
    return DrawnNetwork(left, shown, len(unpruned), tuple(inputs), tuple(outputs), kind)


@style.styled
def draw_champion(champion: Champion, experiment: Experiment, traces: Float32 | None = None) -> Any:
    """Return the figure of a champion's network, with a title that counts its connections; see `network_of`."""
    drawn = network_of(champion, experiment, traces)
    figure = draw_network(drawn, "" if traces is None else _traces_note(experiment))
    count = ", ".join(filter(None, (drawn.connections_text, drawn.omission_text)))
    if experiment.network.blocks[0].span:
        count += f", {np.count_nonzero(champion.mask):,} of {len(champion.mask):,} coefficients"
    style.set_title(figure, f"{experiment.config.env.id}, {champion.title}: {count}")
    return figure


def _traces_note(experiment: Experiment) -> str:
    """Return an explanation of traces in this experiment."""
    traces = (
        "A Hebbian trace is the sum of a connection's input times its output over an episode. It is large if both "
        "neurons were often active together. The figure shows the mean over the champion's episodes."
    )
    plasticity = experiment.config.network.table().get("plasticity")
    if plasticity is None:
        return traces
    if plasticity:
        return f"{traces} Here traces change the network: {plasticity:g} times the trace is added to the weight."
    return f"{traces} Here traces do not act on the network; a strategy may prune by them."


@style.styled
def draw_network(drawn: DrawnNetwork, note: str = "") -> Any:
    """Return the figure of a network, with a note below. Colours show signs of connections, widths their strengths."""
    connected = drawn.left.connected  # connections that are not drawn count, too
    places = places_of(drawn.shown)
    tallest = max(map(len, places))
    figure = style.new_figure(min(max(3.2, 0.24 * tallest + 1.2), _TALLEST) + (0.5 if note else 0.0))
    panel = figure.subplots()
    panel.set_axis_off()
    _draw_connections(panel, drawn.shown, places)
    for layer, neurons in enumerate(places):
        _draw_neurons(panel, neurons, connected[layer])
    fontsize = 6.5 if tallest > 40 else 9.0
    _label(panel, places[0], drawn.inputs, connected[0], "right", fontsize)
    _label(panel, places[-1], drawn.outputs, connected[-1], "left", fontsize)
    _add_legend(panel, drawn.shown, drawn.kind)
    panel.set_xlim(*_sides(drawn.inputs, drawn.outputs, len(places), fontsize))
    if note:
        figure.supxlabel(textwrap.fill(note, _NOTE_CHARACTERS), fontsize=8.5, x=0.01, ha="left")
    return figure


def _draw_connections(panel: Any, connections: Connections, places: list[Places]) -> None:
    """Draw each connection as a curve, the strongest last and thus on top.

    Above `_MOST_OPAQUE` connections, weak ones are transparent. Up to `_MOST_NUMBERS`, their strengths are written on
    them.
    """
    if not len(connections):
        return
    size = np.abs(connections.strength) / max(float(np.abs(connections.strength).max()), 1e-30)
    order = np.argsort(size)
    connections = connections.take(order)
    size = size[order]
    curves = curves_of(connections, places)
    # `space` is 1 for few connections, which are all opaque, and falls to 0. Opacity then depends on the strength.
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
    return [_POSITIVE if s > 0 else _NEGATIVE if s < 0 else FAINT for s in strength.tolist()]


def _write_strengths(panel: Any, connections: Connections, curves: Float64) -> None:
    """Write the strength of each connection on it, at the point farthest from the numbers written so far."""
    points_of_each = points_on(curves, np.linspace(0.2, 0.8, 13))
    written = np.zeros((0, 2))
    paper = {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none"}
    colours = _colours_of(connections.strength)
    for points, strength, colour in zip(points_of_each, connections.strength.tolist(), colours, strict=True):
        if len(written):
            offsets = np.abs(points[:, None] - written) * (1, 2.2)  # a number is wider than high
            distances = np.hypot(*offsets.T).min(axis=0)
            at = points[int(np.argmax(distances))]
        else:
            at = points[len(points) // 2]  # the first number is in the middle
        written = np.concatenate([written, at[None]])
        panel.text(*at, f"{strength:.2f}".replace("-", "−"), color=colour, fontsize=7.5, ha="center", va="center",
                   bbox=paper, zorder=2.5)  # fmt: skip


def _sides(inputs: Sequence[str], outputs: Sequence[str], layers: int, fontsize: float) -> tuple[float, float]:
    """Return the limits of the x axis, in layers, that leave room for the names beside the network."""
    left, right = (0.25 + 0.0078 * fontsize * max(map(len, names)) for names in (inputs, outputs))  # inches, roughly
    inch = (layers - 1) / (style.WIDTH - left - right)
    return -left * inch, layers - 1 + right * inch


def _draw_neurons(panel: Any, places: Places, connected: set[int]) -> None:
    """Draw the neurons of a layer, pale ones without connections first, and so below the others."""
    for used in (False, True):
        shown = [place for neuron, place in places.items() if (neuron in connected) == used]
        if shown:
            x, y = zip(*shown, strict=True)
            size = 46 if len(places) <= 40 else 12
            panel.scatter(x, y, s=size, zorder=3, color=PAPER, edgecolors=INK if used else PALE, linewidths=1.1)


def _label(panel: Any, places: Places, names: Sequence[str], connected: set[int], align: str, fontsize: float) -> None:
    """Write the names of a layer's neurons beside it, or one text such as "376 observations" for many."""
    if len(places) > _MOST_NAMED_NEURONS:
        x, y = min(places.values(), key=lambda place: place[1])
        # The last neuron of the inputs may be a bias, which is no observation.
        bias = names[-1] == "bias"
        count = f"{len(places) - bias:,} {names[0].split(' ')[0]}s{' and a bias' if bias else ''}"
        panel.text(x, y - 0.03, count, ha="center", va="top", fontsize=9)
        return
    offset = (-6, 0) if align == "right" else (6, 0)
    for neuron, (x, y) in places.items():
        colour = INK if neuron in connected else FAINT
        panel.annotate(names[neuron], (x, y), offset, textcoords="offset points", ha=align, va="center", color=colour,
                       fontsize=fontsize)  # fmt: skip


def _add_legend(panel: Any, connections: Connections, kind: str) -> None:
    """Add a legend of the signs that occur, below the network."""
    occurring = set(_colours_of(connections.strength))
    signs = {_POSITIVE: f"positive {kind}", _NEGATIVE: f"negative {kind}", FAINT: f"{kind} of 0"}
    shown = {colour: label for colour, label in signs.items() if colour in occurring}
    if not shown:
        return
    lines = [matplotlib("lines").Line2D([], [], color=colour, lw=2.4) for colour in shown]
    title = f"line width ∝ |{kind}|, max {float(np.abs(connections.strength).max()):.3g}"
    panel.legend(lines, [*shown.values()], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(shown),
                 title=title, fontsize=8.5, title_fontsize=8.5)  # fmt: skip
