"""The file of a contest: JSON that says of itself whether somebody has changed it.

Its `signature` is the sha256 of everything else, as canonical JSON. That guards against slips and edits by hand, not
against those who compute it anew: what proves the work is the digests in it, which cost as much to find as to play.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evolve.analysis.contest.contest_result import DIFFERENT, ContestFile
from evolve.analysis.contest.contest_work import LEGS_OF_VERSION, SIZES
from evolve.errors import InputError
from evolve.store.disk import atomic_write, check_writable, naming_output

_LARGEST = 2**24  # bytes
_SIGNATURE = "signature"


def signature(contents: dict[str, Any]) -> str:
    """Return 64 hexadecimal digits that stand for the contents of a file, but for its signature."""
    rest = {name: value for name, value in contents.items() if name != _SIGNATURE}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_new(path: Path) -> None:
    """Raise InputError unless a new file can be written there: none is ever replaced."""
    if path.exists():
        raise InputError.plainly(str(path), f"{path} already exists. Choose another name with -o.")
    check_writable(path, (".json",))


def write(found: ContestFile, path: Path) -> None:
    """Write a signed file. Raises InputError when that cannot be done."""
    check_new(path)
    contents = found.model_dump(mode="json")
    contents[_SIGNATURE] = signature(contents)
    text = json.dumps(contents, indent=1, ensure_ascii=False)
    with naming_output(path), atomic_write(path) as partial:
        partial.write_text(f"{text}\n", encoding="utf-8")


def read(path: Path) -> ContestFile:
    """Return the contents of a file.

    Files of earlier versions can be read: the legs that they have are played in this version, too.

    Raises:
        InputError: The file was edited, is of an unknown version, or is of other work.
    """
    contents = _contents(path)
    version = contents.get("contest")
    if version not in [*LEGS_OF_VERSION]:
        known = " or ".join(str(number) for number in LEGS_OF_VERSION)
        cure = "Run the contest again, or get another version of evolve."
        raise InputError(str(path), f"a file of contest {known}", f"one of contest {version!r}", cure)
    if contents.pop(_SIGNATURE, None) != signature(contents):
        raise InputError.plainly(
            str(path), f"{path} was edited: its signature does not match. Run the contest again, or get the original."
        )
    try:
        found = ContestFile.model_validate_json(json.dumps(contents))
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise InputError(str(path), f"a contest file ({where}: {wrong['msg']})", "another one") from None
    _check(found, path)
    return found


def _contents(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST:
            raise InputError(str(path), "a contest file", f"{path.stat().st_size:,} bytes")
        contents = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), "a file that can be read", error.strerror or str(error)) from None
    except (ValueError, RecursionError):
        contents = None
    if not isinstance(contents, dict) or _SIGNATURE not in contents:
        raise InputError(str(path), "a JSON file that evolve contest wrote", "another one")
    return contents


def _check(found: ContestFile, path: Path) -> None:
    """Raise InputError for contents that no contest writes."""
    legs = set(LEGS_OF_VERSION[found.contest])
    whole = found.size in SIZES and found.rows and all(row.repeats and set(row.legs) == legs for row in found.rows)
    if not whole or any(row.workers < 1 or min(row.times) <= 0 for row in found.rows):
        raise InputError(str(path), "a whole contest", "parts of one")
    verdict, why = found.assess()
    if verdict == DIFFERENT:
        raise InputError(str(path), "the work of the contest", f"different work ({why})")
