"""elman: the simple recurrent network (Elman, "Finding Structure in Time", 1990).

With observation x_t [O], hidden state h_t [H] and W [O, H], U [H, H], b [1, H], V [H, A], c [1, A]:

    h_t    = tanh(x_t W + h_{t-1} U + b)             one sum: the rows of W, of U, and the bias
    action = tanh(h_t V + c)                         summed over rows in ascending order, the bias last

h is zero when an episode starts. Weights are N(0, 1) · birth_scale/sqrt(rows into their layer) at birth.
"""

from functools import cached_property

from evolve.config import Options
from evolve.genome import Genomes, pruned
from evolve.networks.contract import Block
from evolve.networks.layers import Layer, LayeredNetwork, Wiring, scaled
from evolve.networks.settings import OneHidden, Scale, Share
from evolve.numerics import normal_quantile
from evolve.rng import Stream


class ElmanOptions(Options):
    """Settings of `[network]` for elman: `hidden` is [H]; `birth_pruning` is the share missing at birth."""

    hidden: OneHidden = (16,)
    birth_scale: Scale = 1.0
    birth_pruning: Share = 0.0


class Elman(LayeredNetwork[ElmanOptions]):
    """The description of a simple recurrent network."""

    @cached_property
    def wiring(self) -> Wiring:
        """Nodes: x_t, h_{t-1}, 1; h_t, 1; action."""
        O, H, A = self.observation_size, *self.options.hidden, self.action_size
        hidden = O + H + 1
        layers = Layer(0, hidden, hidden, H), Layer(hidden, H + 1, hidden + H + 1, A)
        return Wiring(hidden + H + 1 + A, layers, ones=(O + H, hidden + H), feedback=(hidden, O, H))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W, then U with b as its last row, then V with c: the hidden layer reads itself and a one."""
        O, H, A = self.observation_size, *self.options.hidden, self.action_size
        from_input = Block(0, 0, 0, O, H)
        from_itself = Block(0, 1, from_input.stop, H + 1, H)
        return from_input, from_itself, Block(1, 1, from_itself.stop, H + 1, A)

    def birth(self, stream: Stream) -> Genomes:
        """Return one genome (P = 1)."""
        weights = normal_quantile(stream.uniform(1, self.weights))
        mask = stream.uniform(1, self.weights) >= self.options.birth_pruning
        return pruned(scaled(weights, self.wiring, self.options.birth_scale), mask)
