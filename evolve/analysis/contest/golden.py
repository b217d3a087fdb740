"""What the short runs of the contest come to: golden.json, and what is said of a machine that finds something else.

`python benchmarks/contest.py --golden` makes that file anew, once the work of the contest has another version.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from evolve.analysis.contest.contest_play import TAG, PlayedLeg, play
from evolve.analysis.contest.contest_work import LEGS, LEGS_OF_VERSION, SIZES, VERSION, ContestSize, definition, known
from evolve.cluster import Coordinator, Transport
from evolve.training import make_rollout

PATH = Path(__file__).with_name("golden.json")


@cache
def golden() -> Mapping[str, Any]:
    """Return the version, the definition of the work, and by size and leg the digest and the tags of its short run."""
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def known_digests(size: str, version: int = VERSION) -> Mapping[str, str]:
    """Return the digests of the short runs of a size, by leg, for the legs of a version of the contest."""
    return {leg: golden()["sizes"][size][leg]["digest"] for leg in LEGS_OF_VERSION[version]}


def play_known(size: ContestSize, coordinator: Coordinator, backend: str) -> dict[str, PlayedLeg]:
    """Play the short run of every leg. Raises Stopped and RunError."""
    return {leg: play(known(leg, backend), coordinator, size.known_seed, tagged=True) for leg in LEGS}


def difference(size: str, played: Mapping[str, PlayedLeg]) -> str:
    """Return the first difference from what is known, in words; "" where there is none."""
    for leg, expected in golden()["sizes"][size].items():
        if played[leg].digest != expected["digest"]:
            return f"{leg}, {_where(expected['tags'], played[leg].tags)}"
    return ""


def _where(expected: list[str], came: tuple[str, ...]) -> str:
    for generation, (ours, theirs) in enumerate(zip(expected, came, strict=True)):
        for candidate in range(len(ours) // TAG):
            a, b = (tags[candidate * TAG : (candidate + 1) * TAG] for tags in (ours, theirs))
            if a != b:
                half = TAG // 2
                what = "another genome" if a[:half] != b[:half] else "other episodes of the same genome"
                return f"generation {generation}, candidate {candidate}: {what}"
    return "in what its candidates' short digests do not show"


def make() -> dict[str, Any]:
    """Return what golden.json is to hold, played here by arrays, which define all others."""
    coordinator = Coordinator(Transport(), make_rollout)
    sizes: dict[str, Any] = {}
    for size in SIZES.values():
        played = play_known(size, coordinator, "numpy")
        sizes[size.name] = {leg: {"digest": found.digest, "tags": found.tags} for leg, found in played.items()}
    return {"contest": VERSION, "definition": definition(), "sizes": sizes}
