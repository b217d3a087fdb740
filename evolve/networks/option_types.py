"""What the options of several networks have in common: types of settings, and names of earlier versions."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from evolve.config import Options

_Size = Annotated[int, Field(ge=1, le=65536)]

Hidden = Annotated[tuple[_Size, ...], Field(max_length=64, strict=False)]
"""The sizes of hidden layers, from the observation on."""

TwoOrMore = Annotated[tuple[Annotated[int, Field(ge=2, le=65536)]], Field(strict=False)]
"""The size of the one hidden layer, at least two."""

OneHidden = Annotated[tuple[_Size, ...], Field(min_length=1, max_length=1, strict=False)]
"""The size of the one hidden layer."""

Share = Annotated[float, Field(ge=0, lt=1)]
"""A share of connections."""

Scale = Annotated[float, Field(gt=0, le=1e6)]
"""A factor of weights."""


class NetworkOptions(Options):
    """Base of the settings of `[network]`."""

    aliases: ClassVar[Mapping[str, str]] = {"birth_scale": "init_scale", "birth_pruning": "init_sparsity"}
