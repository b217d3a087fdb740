"""The contest of machines: the same work everywhere, which digests prove, and how long it takes.

`work` is what is played, with the short runs whose digests are known (`golden.json`), `session` measures a row, `file`
writes and reads what was found, and `ranking` compares files. Only `evolve.cli.contest` starts processes; `measure`
works on whatever ranks there are.
"""

from evolve.analysis.contest.file import (
    DIFFERENT,
    LEAST,
    MOST,
    UNVERIFIED,
    VALIDATED,
    WITHIN,
    ContestFile,
    ContestRow,
    Price,
    benchmark_2020,
    check_new,
    leg_difference,
    read,
    read_price,
    write,
)
from evolve.analysis.contest.machine import machine_facts
from evolve.analysis.contest.ranking import ContestRanking, RankedRow, money, rank, rows_of
from evolve.analysis.contest.session import DifferentWorkError, load_averages, measure, validate
from evolve.analysis.contest.work import LEGS, LEGS_OF_VERSION, SIZES, VERSION, ContestSize

__all__ = [
    "DIFFERENT",
    "LEAST",
    "LEGS",
    "LEGS_OF_VERSION",
    "MOST",
    "SIZES",
    "UNVERIFIED",
    "VALIDATED",
    "VERSION",
    "WITHIN",
    "ContestFile",
    "ContestRanking",
    "ContestRow",
    "ContestSize",
    "DifferentWorkError",
    "Price",
    "RankedRow",
    "benchmark_2020",
    "check_new",
    "leg_difference",
    "load_averages",
    "machine_facts",
    "measure",
    "money",
    "rank",
    "read",
    "read_price",
    "rows_of",
    "validate",
    "write",
]
