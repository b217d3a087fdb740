"""A pruned network as a graph: layers from left to right, and only the connections that are left."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from evolve.analysis.champion import Champion
from evolve.analysis.figures.connections import Connections, connections_of
from evolve.analysis.figures.network_lines import NEGATIVE, POSITIVE, Places, colours_of, draw_connections
from evolve.analysis.figures.style import FAINT, INK, WIDTH, matplotlib, new_figure, set_title, styled
from evolve.environments.labels import names
from evolve.shapes import Float32
from evolve.training import Experiment

_TALLEST = 11.0  # inches
_MOST_LABELS = 90  # neurons of a layer that have room for names


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
    network = experiment.network
    env = experiment.config.env.id
    rules = bool(network.blocks[0].span)
    left = connections_of(network, champion.mask, champion.weights if traces is None else traces)
    whole = connections_of(network, np.ones_like(champion.mask), champion.weights)
    inputs, actions = names(env, network.observation_size, experiment.action_size)
    inputs += ["bias"] * (left.sizes[0] - network.observation_size)
    others = left.sizes[-1] - experiment.action_size  # outputs that are no action
    outputs = ["neuromodulator", *(f"output {n}" for n in range(1, others))][:others] + actions
    kind = "trace" if traces is not None else "coefficient A" if rules else "weight"
    figure = draw_network(left, inputs, outputs, kind)
    if titled:
        count = f"{len(left.strength):,} of {len(whole.strength):,} connections"
        if rules:
            count += f" and {np.count_nonzero(champion.mask):,} of {len(champion.mask):,} coefficients"
        set_title(figure, f"{env}, {champion.title}: {count} left")
    return figure


@styled
def draw_network(connections: Connections, inputs: Sequence[str], outputs: Sequence[str], kind: str) -> Any:
    """Return the figure of a network: the sign of a connection is its colour, its strength its width.

    Args:
        connections: What is drawn.
        inputs: The names of the neurons of the first layer.
        outputs: Those of the last layer.
        kind: What the strengths are: "weight".
    """
    places = _places(connections)
    tallest = max(map(len, places))
    figure = new_figure(min(max(3.2, 0.24 * tallest + 1.2), _TALLEST))
    panel = figure.subplots()
    panel.set_axis_off()
    draw_connections(panel, connections, places)
    for layer, neurons in enumerate(places):
        _draw_neurons(panel, neurons, connections.connected[layer])
    fontsize = 6.0 if tallest > 40 else 9.0
    _label(panel, places[0], inputs, connections.connected[0], "right", fontsize)
    _label(panel, places[-1], outputs, connections.connected[-1], "left", fontsize)
    _add_legend(panel, connections, kind)
    panel.set_xlim(*_sides(inputs, outputs, len(places), fontsize))
    return figure


def _sides(inputs: Sequence[str], outputs: Sequence[str], layers: int, fontsize: float) -> tuple[float, float]:
    """Return the limits of the x axis, in layers, so that the names have room beside the network."""
    left, right = (0.25 + 0.0078 * fontsize * max(map(len, names)) for names in (inputs, outputs))  # inches, about
    inch = (layers - 1) / (WIDTH - left - right)
    return -left * inch, layers - 1 + right * inch


def _places(connections: Connections) -> list[Places]:
    """Return where the neurons of each layer are: all observations and outputs, but only the connected hidden ones."""
    last = len(connections.sizes) - 1
    places = []
    for layer, size in enumerate(connections.sizes):
        shown = range(size) if layer in (0, last) else sorted(connections.connected[layer])
        heights = np.linspace(1, 0, len(shown) + 2)[1:-1]
        places.append({neuron: (float(layer), float(y)) for neuron, y in zip(shown, heights, strict=True)})
    return places


def _draw_neurons(panel: Any, places: Places, connected: set[int]) -> None:
    for used in (False, True):
        shown = [place for neuron, place in places.items() if (neuron in connected) == used]
        if shown:
            x, y = zip(*shown, strict=True)
            size = 46 if len(places) <= 40 else 12
            panel.scatter(x, y, s=size, zorder=3, color="white", edgecolors=INK if used else "#cfcfcf", linewidths=1.1)


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
    title = f"width: size, at most {float(np.abs(connections.strength).max()):.3g}"
    panel.legend(lines, [*shown.values()], loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(shown),
                 title=title, fontsize=8.5, title_fontsize=8.5)  # fmt: skip
