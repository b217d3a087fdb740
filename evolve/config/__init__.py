"""Experiments as validated, immutable settings, made in Python or read from TOML.

`Config` is one experiment. `parse(Config, table)` validates a table, and `Config.to_toml` writes all settings. Each of
the sections `[network]` and `[strategy]` becomes a `Choice`: a name and options. A registry of the package `networks`
or `strategies` validates it. The settings in `settings.RUNTIME_KEYS` cannot change a fitness, so they may differ when a
run is resumed or verified.
"""

from evolve.config.descriptions import annotated_toml, descriptions
from evolve.config.documents import read_assignment, read_file, read_table, set_key
from evolve.config.options import (
    Options,
    Table,
    UnknownKeyError,
    assignments,
    flatten,
    names_function,
    observation_index,
    parse,
    plain,
    quantile_of,
    seconds,
    suggest,
)
from evolve.config.registry import Choice, ImportedOnDemand, Kind, Registry, Section
from evolve.config.settings import (
    MOST_SLOTS,
    NAMED_SECTIONS,
    ComputeOptions,
    Config,
    EarlyStopOptions,
    EnvOptions,
    RacingOptions,
    StartFromOptions,
    differences,
    without_implied,
)

__all__ = [
    "MOST_SLOTS", "NAMED_SECTIONS", "Choice", "ComputeOptions", "Config", "EarlyStopOptions", "EnvOptions",
    "ImportedOnDemand", "Kind", "Options", "RacingOptions", "Registry", "Section", "StartFromOptions", "Table",
    "UnknownKeyError", "annotated_toml", "assignments", "descriptions", "differences", "flatten", "names_function",
    "observation_index", "parse", "plain", "quantile_of", "read_assignment", "read_file", "read_table", "seconds",
    "set_key", "suggest", "without_implied",
]  # fmt: skip
