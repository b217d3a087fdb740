"""Genomes without a network: plain vectors, for searching any function of W numbers by ask and tell."""

from dataclasses import dataclass

import numpy as np

from evolve.errors import check_whole
from evolve.genome import Block, Genomes
from evolve.numerics.streams import AnyStream


@dataclass(frozen=True)
class VectorLayout:
    """The layout of genomes that are vectors of `size` numbers: one block, nothing pruned.

    init_scale: the standard deviation of initial weights, which are N(0, init_scale²).
    """

    size: int
    init_scale: float = 1.0

    def __post_init__(self) -> None:
        check_whole("genome_size", self.size, 1)

    @property
    def num_weights(self) -> int:
        """W, the size of the vector."""
        return self.size

    @property
    def num_traces(self) -> int:
        """T = 0: no network plays, so no connection leaves traces."""
        return 0

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The vector, as the only column of a matrix."""
        return (Block(layer=0, source=0, start=0, rows=self.size, columns=1),)

    inits_many = True

    def init(self, stream: AnyStream) -> Genomes:
        """Return one initial genome (P = 1), or one for each of many streams."""
        weights = np.float32(self.init_scale) * stream.normal_rows(self.size)
        return Genomes(weights, np.ones(weights.shape, np.bool_))
