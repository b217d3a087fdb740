"""The run file `DIR/seed-S.h5`: the only package that imports h5py.

**What is guaranteed.** At every instant, after a kill, a crash of the machine or a full disk too, the path holds a
complete and closed HDF5 file that plain h5py opens. Each flush copies it beside itself (`.seed-S.h5.partial.h5`),
appends what is new, syncs it, and renames it into place, which POSIX makes atomic; a reader keeps the file it opened.
So a flush that fails leaves what was there, and memory holds only what is not yet on disk. A generation is on disk once
`RunFile.flush` has returned, and is never lost again. To keep the cost of copying below 5 % of the run, a flush may be
put off until twenty times its last duration has passed: a kill loses that much work at most, and a run that stops in
any orderly way flushes first. A run whose generations a Python script sees (`flushes_each`) puts off no flush: the
script may end at any time, and in any way. (HDF5's own mode for this, SWMR, leaves a file that plain h5py refuses after
a kill.)

**One writer.** A writer holds a lock (`flock`) on `.seed-S.h5.lock` for as long as it lives, so a second run on the
same file is refused; the kernel lets go of it however a process ends. A file system without locks cannot refuse.

**Nothing is executed.** Reading takes only the arrays and texts that the layout names, after looking at their types,
shapes and stored sizes: no pickles, no objects, no links to elsewhere, no compressed data, and never more memory than
the file is long.
"""

from evolve.store.champion_file import Stored, StoredChampion, read_any, read_champion, write_champion
from evolve.store.disk import check_unlocked
from evolve.store.reading import check_can_begin, exists, how_far, is_empty, population, read, read_image
from evolve.store.schema import SCHEMA, Header, HeldOut, Record, StoredRun, path_of
from evolve.store.writing import RunFile, check_free, create, reopen, replace, taken

__all__ = [
    "SCHEMA",
    "Header",
    "HeldOut",
    "Record",
    "RunFile",
    "Stored",
    "StoredChampion",
    "StoredRun",
    "check_can_begin",
    "check_free",
    "check_unlocked",
    "create",
    "exists",
    "how_far",
    "is_empty",
    "path_of",
    "population",
    "read",
    "read_any",
    "read_champion",
    "read_image",
    "reopen",
    "replace",
    "taken",
    "write_champion",
]
