"""The experiment: read from TOML and flags, validated once, frozen, and written back in full.

Options of a network or a strategy are validated by its own model (see their rooms); here they are a name and
a table. Keys that cannot change a fitness (`RUNTIME_KEYS`) may differ when a run is resumed or verified.
"""

from evolve.config.documents import LONGEST, read_assignment, read_file, read_table, set_key
from evolve.config.options import FLAGS, Options, Table, nearest, parse
from evolve.config.settings import (
    RUNTIME_KEYS,
    ComputeOptions,
    Config,
    EarlyStopOptions,
    EnvOptions,
    OutputOptions,
    RacingOptions,
    WrapperOptions,
    differences,
    seconds,
)
from evolve.config.spelling import spelled_out

__all__ = [
    "FLAGS",
    "LONGEST",
    "RUNTIME_KEYS",
    "ComputeOptions",
    "Config",
    "EarlyStopOptions",
    "EnvOptions",
    "Options",
    "OutputOptions",
    "RacingOptions",
    "Table",
    "WrapperOptions",
    "differences",
    "nearest",
    "parse",
    "read_assignment",
    "read_file",
    "read_table",
    "seconds",
    "set_key",
    "spelled_out",
]
