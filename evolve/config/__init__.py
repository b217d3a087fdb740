"""The experiment: read from TOML or made in Python, validated once, frozen, and written back in full.

`Config` is one experiment; `parse(Config, table)` validates a table. The sections `[network]` and `[strategy]` become a
`Choice`, a name and options, which the registries of those packages validate. Settings that cannot change a fitness
(`RUNTIME_KEYS`) may differ when a run is resumed or verified.
"""

from evolve.config.annotated_toml import annotated_toml
from evolve.config.choice import Choice, Section
from evolve.config.descriptions import descriptions
from evolve.config.documents import read_assignment, read_file, read_table, set_key
from evolve.config.extras import import_extra
from evolve.config.options import Options, Table, flatten, nearest, parse
from evolve.config.registry import Registry
from evolve.config.sections import (
    ComputeOptions,
    EarlyStopOptions,
    EnvOptions,
    OutputOptions,
    RacingOptions,
    WrapperOptions,
)
from evolve.config.settings import RUNTIME_KEYS, Config, differences
from evolve.config.values import seconds

__all__ = [
    "RUNTIME_KEYS",
    "Choice",
    "ComputeOptions",
    "Config",
    "EarlyStopOptions",
    "EnvOptions",
    "Options",
    "OutputOptions",
    "RacingOptions",
    "Registry",
    "Section",
    "Table",
    "WrapperOptions",
    "annotated_toml",
    "descriptions",
    "differences",
    "flatten",
    "import_extra",
    "nearest",
    "parse",
    "read_assignment",
    "read_file",
    "read_table",
    "seconds",
    "set_key",
]
