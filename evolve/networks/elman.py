"""elman: the simple recurrent network (Elman, "Finding Structure in Time", 1990).

With observation x_t [O], hidden state h_t [H] and W [O, H], U [H, H], b [1, H], V [H, A], c [1, A]:

    h_t    = tanh(x_t W + h_{t-1} U + b)             one sum: the rows of W, of U, and the bias
    action = tanh(h_t V + c)                         summed over rows in ascending order, the bias last

h is zero when an episode starts. Initial weights are N(0, 1) · init_scale/sqrt(rows into their layer), a share of
`init_sparsity` of them pruned.
"""

from functools import cached_property

from evolve.genome import Block, Genomes, pruned
from evolve.networks.layers import Layer, LayeredNetwork, Wiring, scaled
from evolve.networks.option_types import NetworkOptions, OneHidden, Scale, Share
from evolve.numerics.many_streams import AnyStream


class ElmanOptions(NetworkOptions):
    """Settings of `[network]` for elman.

    hidden: H, the size of the one hidden layer.
    init_scale: the standard deviation of initial weights, times the square root of the rows into their layer.
    init_sparsity: the share of connections pruned at first.
    """

    hidden: OneHidden = (16,)
    init_scale: Scale = 1.0
    init_sparsity: Share = 0.0


class Elman(LayeredNetwork[ElmanOptions]):
    """The description of a simple recurrent network."""

    @cached_property
    def wiring(self) -> Wiring:
        """Nodes: x_t, h_{t-1}, 1; h_t, 1; action."""
        O, H, A = self._sizes
        into_hidden = O + H + 1
        into_action = H + 1
        h = into_hidden
        action = h + into_action
        layers = (Layer(0, into_hidden, h, H), Layer(h, into_action, action, A))
        return Wiring(action + A, layers, ones=(O + H, h + H), feedback=(h, O, H))

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """W, then U with b as its last row, then V with c: the hidden layer reads itself and a one."""
        O, H, A = self._sizes
        from_input = Block(0, 0, 0, O, H)
        from_itself = Block(0, 1, from_input.stop, H + 1, H)
        return from_input, from_itself, Block(1, 1, from_itself.stop, H + 1, A)

    inits_many = True

    def init(self, stream: AnyStream) -> Genomes:
        """Return one genome (P = 1), or one for each of many streams."""
        weights = stream.normal_rows(self.num_weights)
        mask = stream.at_least(self.options.init_sparsity, self.num_weights)
        return pruned(scaled(weights, self.wiring, self.options.init_scale), mask)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """O, H and A."""
        (H,) = self.options.hidden
        return self.observation_size, H, self.action_size
