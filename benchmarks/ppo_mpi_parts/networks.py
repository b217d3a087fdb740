"""The policy and the value function in PyTorch. The only part, with the algorithm, that imports PyTorch."""

import hashlib
import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from evolve.shapes import Float32

_LOG_DEVIATION = -0.5  # at first, as in Spinning Up
_HALF_LOG_2_PI = 0.5 * math.log(2 * math.pi)


def _layers(sizes: Sequence[int]) -> nn.Sequential:
    """Return linear layers with tanh between them. sizes: of the input, the hidden layers and the output."""
    parts: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*parts[:-1])


class Policy(nn.Module):
    """A normal distribution of actions [A]: its means depend on the observation [O], its deviations do not."""

    def __init__(self, observations: int, hidden: Sequence[int], actions: int) -> None:
        super().__init__()
        self.means = _layers([observations, *hidden, actions])
        self.log_deviations = nn.Parameter(torch.full((actions,), _LOG_DEVIATION))

    def log_densities(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return [N]: the logarithm of the density of each action [N, A] at its observation [N, O]."""
        deviates = (actions - self.means(observations)) * torch.exp(-self.log_deviations)
        return -(0.5 * deviates.square() + self.log_deviations + _HALF_LOG_2_PI).sum(-1)

    def act(self, observations: Float32) -> Float32:
        """Return the actions [N, A] without exploration."""
        with torch.inference_mode():
            found: Float32 = self.means(torch.from_numpy(observations)).numpy()
        return found


class Values(nn.Module):
    """The expected discounted sum of rewards at an observation [O]."""

    def __init__(self, observations: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.layers = _layers([observations, *hidden, 1])

    def forward(self, observations: Tensor) -> Tensor:
        """Return the values [N] of observations [N, O]."""
        return self.layers(observations)[:, 0]


class FlatGradients:
    """The gradients of a network in one array, which ranks can add by one call.

    Attributes:
        array: [W + 1]: the gradients of all W parameters, and a number that is added along with them.
    """

    def __init__(self, network: nn.Module) -> None:
        self._parameters = list(network.parameters())
        self.array = np.zeros(sum(p.numel() for p in self._parameters) + 1, np.float32)
        flat = torch.from_numpy(self.array)
        place = 0
        for parameter in self._parameters:
            # PyTorch adds to an existing gradient in place, so that the backward pass fills the array.
            parameter.grad = flat[place : place + parameter.numel()].view_as(parameter)
            place += parameter.numel()

    def of(self, loss: Tensor, along: float = 0.0) -> Float32:
        """Return the array with the gradients of a loss, and the number `along`."""
        self.array[:] = 0
        loss.backward()
        self.array[-1] = along
        return self.array


def digest(*networks: nn.Module) -> str:
    """Return the sha256 of all parameters of networks, 64 hexadecimal digits."""
    state = hashlib.sha256()
    for network in networks:
        for parameter in network.parameters():
            state.update(parameter.detach().numpy().tobytes())
    return state.hexdigest()
