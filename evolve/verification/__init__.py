"""Verification compares two runs, or a run and its repetition here, and finds the first difference and its cause.

The log of a run is compared with the log of another run (`compare`), or with a repetition on this machine: of the
champions' episodes (`reevaluate`), or of the whole run (`rerun`). At the first difference the episode is played again
here. Hashes of its steps show the first step that differs. If the observation of this step differs, the cause is the
environment. If only the action differs, the cause is the network.

A champion file has no log, so the held-out episodes and the digest of its run are compared. Both kinds of files can be
compared with the published digests (`compare_with_published`).
"""

from evolve.verification.comparison import compare, compare_with_published, read_published
from evolve.verification.playing import (
    EachStep,
    Episode,
    champion_episodes,
    choose_episode,
    make_engine,
    play,
    spot_check,
)
from evolve.verification.repetition import RunRepetition, repetition
from evolve.verification.verdict import Verdict
