"""The store writes and reads run files, `DIR/seed-S.h5`. Only this package imports h5py.

**The guarantee.** At every instant the path holds a complete and closed HDF5 file that plain h5py opens, even after a
kill, a crash of the machine, or a full disk. A flush copies the file to `.seed-S.h5.partial.h5` in the same directory,
appends the new generations, and syncs the copy. Then it renames the copy, which is atomic (POSIX). A reader keeps the
file that it opened. A flush that fails leaves the old file. Once `RunFile.flush` has returned, the generations are on
disk, and never lost again. (HDF5's own mode for such writers, SWMR, leaves files that plain h5py refuses.)

**The interval.** A kill loses at most the work of one interval between two flushes. If a flush takes t seconds, the
interval is 200 t or two seconds, whichever is less, but never less than 20 t. So flushes cost half a percent of a run,
and up to 5 % if the file is large. A run that stops in an orderly way flushes first.

**Scripts.** A Python script that sees each generation may end or read the file at any time. So the interval is then
20 t, and pending generations are flushed before the script's process reads the file or ends. If several processes, for
example ranks, see the generations, each generation is flushed before they see it, as long as a flush takes at most
50 ms (`RunFile.flush_for_script`).

**One writer.** A writer holds a lock (`flock`) on `.seed-S.h5.lock`, so a second run on the same file is refused. The
kernel releases the lock when the process ends in any way. On a file system without locks a second run is not refused.

**Nothing is executed.** The reader takes only the arrays and texts that the schema names, and first checks their types,
shapes and stored sizes. It reads no pickles, objects, links or compressed data. It needs no more memory than the size
of the file.

The modules in reading order: `schema` declares the contents of a file, `disk` has locks and atomic writes, `writing`
and `reading` write and read run files, and `champion_file` writes and reads files of single champions.
"""

from typing import TYPE_CHECKING

from evolve.errors import import_on_demand

if TYPE_CHECKING:
    from evolve.store.champion_file import Stored, StoredChampion, check_begun, read_any, read_champion, write_champion
    from evolve.store.disk import check_unlocked
    from evolve.store.reading import one_run_file, population, read, read_image, read_progress, run_files
    from evolve.store.schema import Header, HeldOut, Record, RunLog, Start, StoredRun, path_of
    from evolve.store.writing import RunFile, create, reopen, replace

__getattr__ = import_on_demand(
    __name__,
    {
        "champion_file": "Stored StoredChampion check_begun read_any read_champion write_champion",
        "disk": "check_unlocked",
        "reading": "one_run_file population read read_image read_progress run_files",
        "schema": "Header HeldOut Record RunLog Start StoredRun path_of",
        "writing": "RunFile create reopen replace",
    },
)
