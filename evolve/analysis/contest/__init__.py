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
from evolve.analysis.contest.contest_work import LEGS, SIZES, VERSION, ContestSize
from evolve.analysis.contest.machine_facts import machine_facts
from evolve.analysis.contest.repeat_load import load_averages
from evolve.analysis.contest.repeats import LEAST, MOST, WITHIN

__all__ = [
    "DIFFERENT",
    "LEAST",
    "LEGS",
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
