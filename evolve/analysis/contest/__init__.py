"""The contest of machines: the same work everywhere, which digests prove, and how long it takes.

`contest_work` is what is played, `golden` the short runs whose digests are known, `contest_session` measures a row,
`contest_file` writes and reads what was found, and `contest_ranking` compares files. Only `evolve.cli.contest` starts
processes; `measure` works on whatever ranks there are.
"""

from evolve.analysis.contest.contest_file import check_new, read, write
from evolve.analysis.contest.contest_ranking import ContestRanking, RankedRow, money, rank, rows_of
from evolve.analysis.contest.contest_result import (
    DIFFERENT,
    UNVERIFIED,
    VALIDATED,
    ContestFile,
    ContestRow,
    Price,
    leg_difference,
    read_price,
)
from evolve.analysis.contest.contest_session import DifferentWorkError, measure, validate
from evolve.analysis.contest.contest_work import LEGS, LEGS_OF_VERSION, SIZES, VERSION, ContestSize
from evolve.analysis.contest.machine_facts import machine_facts
from evolve.analysis.contest.repeat_load import load_averages
from evolve.analysis.contest.repeats import LEAST, MOST, WITHIN
from evolve.analysis.contest.walker_benchmark import benchmark_2020

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
