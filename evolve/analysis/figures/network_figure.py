"""A pruned network as a graph: layers from left to right, and only the connections that are left and can act."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evolve.analysis.champion import Champion
from evolve.analysis.figures.connections import (
    NEGATIVE,
    POSITIVE,
    Connections,
    Places,
    colours_of,
    connections_of,
    draw_connections,
    places_of,
)
from evolve.analysis.figures.style import FAINT, INK, PALE, PAPER, WIDTH, matplotlib, new_figure, set_title, styled
from evolve.environments.rendering import names
from evolve.shapes import Float32
from evolve.training import Experiment

_TALLEST = 11.0  # inches
_MOST_LABELS = 90  # neurons of a layer that have room for names
_MOST_CONNECTIONS = 500  # of more only the strongest tenth is drawn
_NOTE_WIDTH = 120  # characters


@dataclass(frozen=True)
class DrawnNetwork:
    """A network as it is drawn.

    Attributes:
        left: The connections that are left and can act.
        shown: Those of them that are drawn: all, or the strongest tenth.
        whole: How many connections there would be without pruning.
        inputs: The names of the neurons of the first layer.
        outputs: Those of the last layer.
    """

    left: Connections
    shown: Connections
    whole: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def counted(self) -> str:
        """How many connections that can act are left, of those that could without pruning, in words."""
        return f"{len(self.left):,} of {self.whole:,} acting connections"

    @property
    def omission(self) -> str:
        """What is not drawn, in words; empty where all is."""
        return "" if len(self.shown) == len(self.left) else f"the strongest {len(self.shown):,} drawn"


def network_of(champion: Champion, experiment: Experiment, strength: Float32 | None = None) -> DrawnNetwork:
    """Return what is drawn of a champion's network.

    Args:
        champion: Whose network it is.
        experiment: That the champion was evolved in.
        strength: [W], in place of its weights.
    """
    network = experiment.network
    left = connections_of(network, champion.mask, champion.weights if strength is None else strength)
    whole = connections_of(network, np.ones_like(champion.mask), champion.weights)
    shown = left.strongest(len(left) // 10) if len(left) > _MOST_CONNECTIONS else left
    inputs, actions = names(experiment.config.env.id, network.observation_size, experiment.action_size)
    inputs += ["bias"] * (left.sizes[0] - network.observation_size)
    others = left.sizes[-1] - experiment.action_size  # outputs that are no action
    outputs = ["neuromodulator", *(f"output {n}" for n in range(1, others))][:others] + actions
    return DrawnNetwork(left, shown, len(whole), tuple(inputs), tuple(outputs))


@styled
def draw_champion(
    champion: Champion, experiment: Experiment, traces: Float32 | None = None, titled: bool = True
) -> Any:
    """Return the figure of a champion's network, with connections as strong as its weights.

    Args:
        champion: Whose network is drawn. Where it has learning rules, their coefficients A stand for weights.
        experiment: That the champion was evolved in.
        traces: [W], shown in place of the weights.
        titled: Whether a title says whose network it is, and how many connections are left.
    """
    drawn = network_of(champion, experiment, traces)
    rules = bool(experiment.network.blocks[0].span)
    kind = "trace" if traces is not None else "coefficient A" if rules else "weight"
    note = "" if traces is None else traces_note(experiment)
    figure = draw_network(drawn.shown, drawn.inputs, drawn.outputs, kind, note, drawn.left.connected)
    if titled:
        count = ", ".join(filter(None, (drawn.counted, drawn.omission)))
        if rules:
            count += f", {np.count_nonzero(champion.mask):,} of {len(champion.mask):,} coefficients"
        set_title(figure, f"{experiment.config.env.id}, {champion.title}: {count}")
    return figure


def traces_note(experiment: Experiment) -> str:
    """Return what traces are, in words."""
    options = experiment.config.network.table()
    what = (
        "A Hebbian trace sums up over an episode what a connection reads times what it passes on: "
        "large where both ends were often active together. Drawn is the mean over the champion's episodes."
    )
    if "plasticity" not in options:
        return what
    plasticity = options["plasticity"]
    if plasticity:
        return f"{what} Here a trace acts on the network, too: {plasticity:g} of it adds to the weight."
    return f"{what} Here traces do not act on the network; a strategy may prune by them."


@styled
def draw_network(
    connections: Connections,
    inputs: Sequence[str],
    outputs: Sequence[str],
    kind: str,
    note: str = "",
    connected: Sequence[set[int]] | None = None,
) -> Any:
    """Return the figure of a network: the sign of a connection is its colour, its strength its width.

    Args:
        connections: What is drawn.
        inputs: The names of the neurons of the first layer.
        outputs: Those of the last layer.
        kind: What the strengths are: "weight".
        note: Said below.
        connected: The neurons of each layer that have a connection, drawn or not.
    """
    places = places_of(connections)
    connected = connections.connected if connected is None else connected
    tallest = max(map(len, places))
    figure = new_figure(min(max(3.2, 0.24 * tallest + 1.2), _TALLEST) + (0.5 if note else 0.0))
    panel = figure.subplots()
    panel.set_axis_off()
    draw_connections(panel, connections, places)
    for layer, neurons in enumerate(places):
        _draw_neurons(panel, neurons, connected[layer])
    fontsize = 6.5 if tallest > 40 else 9.0
    _label(panel, places[0], inputs, connected[0], "right", fontsize)
    _label(panel, places[-1], outputs, connected[-1], "left", fontsize)
    _add_legend(panel, connections, kind)
    panel.set_xlim(*_sides(inputs, outputs, len(places), fontsize))
    if note:
        figure.supxlabel(textwrap.fill(note, _NOTE_WIDTH), fontsize=8.5, x=0.01, ha="left")
    return figure


def _sides(inputs: Sequence[str], outputs: Sequence[str], layers: int, fontsize: float) -> tuple[float, float]:
    """Return the limits of the x axis, in layers, so that the names have room beside the network."""
    left, right = (0.25 + 0.0078 * fontsize * max(map(len, names)) for names in (inputs, outputs))  # inches, about
    inch = (layers - 1) / (WIDTH - left - right)
    return -left * inch, layers - 1 + right * inch


def _draw_neurons(panel: Any, places: Places, connected: set[int]) -> None:
    for used in (False, True):
        shown = [place for neuron, place in places.items() if (neuron in connected) == used]
        if shown:
            x, y = zip(*shown, strict=True)
            size = 46 if len(places) <= 40 else 12
            panel.scatter(x, y, s=size, zorder=3, color=PAPER, edgecolors=INK if used else PALE, linewidths=1.1)


def _label(panel: Any, places: Places, names: Sequence[str], connected: set[int], align: str, fontsize: float) -> None:
    if len(places) > _MOST_LABELS:
        x, y = min(places.values(), key=lambda place: place[1])
        panel.text(x, y - 0.03, f"{len(places)} {names[0].split(' ')[0]}s", ha="center", va="top", fontsize=9)
        return
    offset = (-6, 0) if align == "right" else (6, 0)
    for neuron, (x, y) in places.items():
        colour = INK if neuron in connected else FAINT
        panel.annotate(names[neuron], (x, y), offset, textcoords="offset points", ha=align, va="center", color=colour,
                       fontsize=fontsize)  # fmt: skip


def _add_legend(panel: Any, connections: Connections, kind: str) -> None:
    there = set(colours_of(connections.strength))
    signs = {POSITIVE: f"positive {kind}", NEGATIVE: f"negative {kind}", FAINT: f"{kind} of 0"}
    shown = {colour: label for colour, label in signs.items() if colour in there}
    if not shown:
        return
    lines = [matplotlib("lines").Line2D([], [], color=colour, lw=2.4) for colour in shown]
    title = f"line width ∝ |{kind}|, max {float(np.abs(connections.strength).max()):.3g}"
    panel.legend(lines, [*shown.values()], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(shown),
                 title=title, fontsize=8.5, title_fontsize=8.5)  # fmt: skip
