"""The run file: readable at any instant, never overwritten, refused if it is not whole."""

import errno
import fcntl
import gc
import json
import os
import signal
import stat
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import environment
from tampering import attribute, put, remove, tamper

from evolve import store
from evolve.config import EnvOptions, parse
from evolve.errors import InputError, RunError
from evolve.genome import Genomes, SelectedGenomes
from evolve.store import disk, reading, schema, writing
from evolve.store.disk import DeferredErrorFile, atomic_write
from evolve.store.schema import LETTERS

P, E, W, R = 3, 2, 4, 2
Z = np.uint64(2**64 - 1)


def record(g, ranks=R):
    return store.Record(
        returns=np.full((P, E), g + 0.5), lengths=np.full((P, E), g, np.int32),
        episode_seconds=np.full((P, E), 0.5, np.float32), fitness=np.arange(P) + g * 1.0,
        connections=np.full(P, 4, np.int32), digest=f"{g:064x}".encode(), seconds=0.5, steps=7,
        busy_seconds=np.full(ranks, 0.25), champion_weights=np.full(W, g, np.float32),
        champion_mask=np.ones(W, np.bool_), champion_candidate=1, champion_fitness=2.0,
        champion_step_hashes=np.full((E * g, 2), g + 1, np.uint8),
        fingerprints=np.full((P, E, 2), Z - np.uint64(g)), genome_fingerprints=np.full(P, Z),
        trace_fingerprints=np.full(P, Z),
        environment_seconds=np.full(ranks, 0.125),
    )  # fmt: skip


def header():
    return store.Header("seeds = [3]\n", {"evolve": "x"}, 3, "CartPole-v1")


@pytest.fixture
def path(tmp_path):
    return store.path_of(tmp_path / "new" / "directory", 3)


def write(path, generations=2):
    file = store.create(path, header())
    for g in range(generations):
        file.append(record(g), {"leaderboard": np.arange(g + 1)})
    file.flush()
    file.close()
    return file


def test_layout_is_the_contract(path):
    file = write(path)
    file.held_out = store.HeldOut(np.zeros(5), np.arange(5), np.zeros(W, np.float32), np.ones(W, np.bool_))
    file.complete = True
    file.flush()
    with h5py.File(path) as f:
        assert dict(f.attrs) | {"manifest": json.loads(f.attrs["manifest"])} == {
            "schema": 3, "config": "seeds = [3]\n", "manifest": {"evolve": "x"}, "seed": 3, "env": "CartPole-v1",
            "complete": True,
        }  # fmt: skip
        shapes = {}
        f.visititems(
            lambda name, item: shapes.update({name: (item.shape, item.dtype.str)}) if hasattr(item, "shape") else None
        )
    assert shapes == {
        "generation/returns": ((2, P, E), "<f8"), "generation/lengths": ((2, P, E), "<i4"),
        "generation/episode_seconds": ((2, P, E), "<f4"),
        "generation/fitness": ((2, P), "<f8"), "generation/connections": ((2, P), "<i4"),
        "generation/digest": ((2,), "|S64"), "generation/seconds": ((2,), "<f8"), "generation/steps": ((2,), "<i8"),
        "rank/busy_seconds": ((2, R), "<f8"), "rank/environment_seconds": ((2, R), "<f8"),
        "fingerprint/episodes": ((2, P, E, 2), "<u8"), "fingerprint/genomes": ((2, P), "<u8"),
        "fingerprint/traces": ((2, P), "<u8"),
        "champion/weights": ((2, W), "<f4"), "champion/mask": ((2, W), "|b1"),
        "champion/candidate": ((2,), "<i8"), "champion/fitness": ((2,), "<f8"),
        "champion/step_hashes": ((E, 2), "|u1"),
        "checkpoint/leaderboard": ((2,), "<i8"),
        "evaluation/returns": ((5,), "<f8"), "evaluation/seeds": ((5,), "<i8"),
        "evaluation/weights": ((W,), "<f4"), "evaluation/mask": ((W,), "|b1"),
    }  # fmt: skip


def test_datasets_describe_themselves(path):
    kept = Genomes(np.ones((P, W), np.float32), np.ones((P, W), np.bool_))
    start = store.Start(np.zeros(W, np.float32), np.ones(W, np.bool_), np.array([7]), np.zeros((2, 3), np.float32))
    file = store.create(path, replace(header(), start=start))
    selection = {"measures": np.zeros((P, 2)), "front": np.zeros(P), "archive": np.zeros(6)}
    file.append(replace(record(0), normalizer=np.zeros((2, 3), np.float32), **selection), {}, kept)
    file.held_out = store.HeldOut(np.zeros(5), np.arange(5), np.zeros(W, np.float32), np.ones(W, np.bool_))
    file.validations[1] = np.zeros(5)
    file.flush()
    columns = {column.path: column for column in schema.EVERY_COLUMN}
    described = {}
    with h5py.File(path) as f:
        f.visititems(lambda name, item: described.update({name: dict(item.attrs)}) if item.attrs else None)
    assert described == {"checkpoint": {"num_generations": 1}} | {p: c.attributes for p, c in columns.items()}
    returns = columns["generation/returns"].attributes
    assert (set(returns), returns["unit"]) == ({"shape", "unit", "meaning"}, "reward")
    assert [axis.split()[0] for axis in returns["shape"].split(", ")] == ["generations", "candidates", "episodes"]
    letters = "".join(column.symbols for column in columns.values())
    assert set(LETTERS) == set(letters) - set(" 12")


def test_what_was_written_is_read(path):
    write(path)
    run = store.read(path)
    assert run.header == header()
    assert not run.complete
    assert [r.digest for r in run.records] == [record(g).digest for g in range(2)]
    assert np.array_equal(run.records[1].returns, record(1).returns)
    assert run.checkpoint["leaderboard"].tolist() == [0, 1]
    assert run.held_out is None
    assert run.records[1].fingerprints.tolist() == record(1).fingerprints.tolist()
    assert [len(r.champion_step_hashes) for r in run.records] == [0, E]  # as many steps as the champions took
    assert run.records[1].champion_step_hashes.tolist() == [[2, 2]] * E


def test_every_genome_is_kept_if_that_is_asked_for(path):
    kept = [Genomes(np.full((P, W), g, np.float32), np.ones((P, W), np.bool_)) for g in range(4)]
    file = store.create(path, header())
    for g in (0, 1):
        file.append(record(g), {}, kept[g])
    file.flush()
    for g in (2, 3):
        file.append(record(g), {}, kept[g])
    file.flush()
    assert store.read(path).has_population
    for g in range(4):
        assert np.array_equal(store.population(path, g).weights, kept[g].weights)
    with pytest.raises(InputError, match=f"{path.name}: expected a complete run file, got a damaged one"):
        store.population(path, 4)
    with h5py.File(path, "r+") as f:
        del f["population/mask"]
    with pytest.raises(InputError, match="population/mask: missing"):
        store.population(path, 0)


def long(g, steps):
    lengths = np.full((P, E), steps, np.int32)
    return replace(record(g), lengths=lengths, champion_step_hashes=np.full((E * min(steps, 4096), 2), g, np.uint8))


def test_step_hashes_of_any_length_are_read_back(path):
    """Many short episodes, flushed one by one, and a long one, of which not every step has a hash."""
    file, steps = store.create(path, header()), [*[100] * 30, 5000, 1, 4096]
    for g, n in enumerate(steps):
        file.append(long(g, n), {})
        file.flush()
    file.close()
    file = store.reopen(path)
    file.append(long(len(steps), 7), {})
    file.flush()
    for g, (r, n) in enumerate(zip(store.read(path).records, [*steps, 7], strict=True)):
        assert r.champion_step_hashes.tolist() == [[g, g]] * (E * min(n, 4096))
    with h5py.File(path, "r+") as f:
        f["generation/lengths"][3] = 99
    with pytest.raises(InputError, match="champion/step_hashes: "):
        store.read(path)


def test_genomes_that_wait_are_bounded(path, monkeypatch):
    monkeypatch.setattr("evolve.store.writing.MAX_BUFFERED", 100)
    file, some = store.create(path, header()), Genomes(np.zeros((P, W), np.float32), np.ones((P, W), np.bool_))
    file.flush_cost = 1e6  # seconds: only what waits in memory makes it flush
    for g in range(3):
        file.append(record(g), {}, some)
    assert file.on_disk == 3


def test_states_that_genomes_wait_with_are_bounded(path, monkeypatch):
    monkeypatch.setattr("evolve.store.writing.MAX_BUFFERED", 100)
    file, some = store.create(path, header()), Genomes(np.zeros((P, W), np.float32), np.ones((P, W), np.bool_))
    file.flush_cost = 1e6
    for g in range(3):
        file.append(record(g), {"centre": np.zeros(6)}, SelectedGenomes(some, np.arange(P)))  # 48 bytes
    assert file.on_disk == 3


def test_only_champions_are_kept_by_default(path):
    write(path)
    assert not store.read(path).has_population


def test_reopened_files_go_on(path):
    write(path)
    file = store.reopen(path)
    file.append(record(2, ranks=4), {"leaderboard": np.zeros(1)})  # resumed on more ranks
    file.flush()
    with h5py.File(path) as f:
        busy = f["rank/busy_seconds"][()]
    assert busy.shape == (3, 4)
    assert np.isnan(busy[:2, 2:]).all()
    assert not np.isnan(busy[2]).any()
    assert len(store.read(path).records) == 3


def test_the_best_of_all_generations_is_known(path):
    file = store.create(path, header())
    for g, fitness in enumerate((np.nan, 2.0, 5.0, 3.0, 5.0, np.nan)):
        file.append(replace(record(g), champion_fitness=fitness), {})
    file.flush()
    file.close()
    assert file.best == store.reopen(path).best == (5.0, 2)


def test_an_empty_run_is_a_whole_file(path):
    store.create(path, header())
    assert store.read(path).records == ()


def test_threads_may_make_files_at_the_same_time(tmp_path):
    def make(n):
        store.create(tmp_path / f"seed-{n}.h5", header()).close()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(make, range(64)))
    assert all(store.read(tmp_path / f"seed-{n}.h5").num_generations == 0 for n in range(64))


def test_a_reader_is_not_disturbed_by_the_writer(path):
    file = write(path)
    with h5py.File(path) as reader:
        file.append(record(2), {})
        file.flush()
        assert len(reader["generation/digest"]) == 2
    assert len(store.read(path).records) == 3


def test_a_file_replaced_by_a_longer_one_before_it_is_opened_is_read(path, monkeypatch):
    file = write(path)
    opened = h5py.File

    def replaced_and_opened(*arguments, **options):
        monkeypatch.setattr(h5py, "File", opened)
        for g in range(2, 40):
            file.append(record(g), {"leaderboard": np.arange(5000)})
        file.flush()
        return opened(*arguments, **options)

    monkeypatch.setattr(h5py, "File", replaced_and_opened)
    assert len(store.read(path).records) == 40


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_file_that_another_host_replaces_is_read_again(path, monkeypatch, times):
    """NFS does not keep a file that another host replaces for the readers that have opened it."""
    write(path)
    opened, failures = reading.Reader.run, iter(range(times))

    def run(reader, path):
        for _ in failures:
            raise OSError(f"Can't synchronously read data (file read failed: errno = {errno.ESTALE}, error message = …")
        return opened(reader, path)

    monkeypatch.setattr(reading.Reader, "run", run)
    if times < 3:
        assert len(store.read(path).records) == 2
    else:
        with pytest.raises(InputError, match=r"got a file that another host has replaced meanwhile\. Read it again\."):
            store.read(path)


def test_an_existing_file_is_never_overwritten(path):
    write(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"seed-3\.h5 .*resume=True.*overwrite=True"):
        store.create(path, header())
    assert path.read_bytes() == before


def test_nothing_is_replaced_if_the_disk_has_no_locks(path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    store.create(path, header())
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"seed-3\.h5 .*resume=True"):
        store.create(path, header())
    assert path.read_bytes() == before


def test_a_run_file_without_a_generation_may_be_replaced(path):
    file = store.create(path, replace(header(), config="seeds = [4]\n"))
    with pytest.raises(InputError, match=r"process \d+"):  # it may have one soon
        store.create(path, header())
    file.close()
    write(path)
    assert (store.read(path).num_generations, store.read(path).header.config) == (2, header().config)


def test_a_run_file_without_a_generation_may_be_replaced_although_its_start_is_large(path):
    W = 2_000_000
    start = store.Start(np.zeros(W, np.float32), np.ones(W, np.bool_), np.zeros(1, np.int64))
    for _ in range(2):
        store.create(path, replace(header(), start=start)).close()
    assert reading.is_empty(path)


def test_a_file_of_something_else_is_never_overwritten(path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"my thesis")
    with pytest.raises(InputError, match="foreign file"):
        store.create(path, header())
    assert path.read_bytes() == b"my thesis"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match=r"^output\.directory: "):
        store.create(store.path_of(tmp_path / "x", 1), header())


def test_a_file_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=r"^output\.directory: .*taken \(it is a file\)"):
        store.create(store.path_of(tmp_path / "taken", 1), header())


def test_a_link_to_nothing_in_place_of_the_directory_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("nowhere")
    for begin in (disk.check_can_begin, lambda path: store.create(path, header())):
        with pytest.raises(InputError, match=r"^output\.directory: .*link \(it is a link to nothing\)"):
            begin(store.path_of(tmp_path / "link", 1))


def test_a_directory_that_cannot_be_read_has_its_own_message(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="got no permission to read it"):
        store.run_files([tmp_path])


def test_folders_behind_links_are_searched_once(tmp_path):
    scratch, runs = tmp_path / "scratch", tmp_path / "runs"
    for folder in (scratch / "a", runs / "b"):
        folder.mkdir(parents=True)
        (folder / "seed-1.h5").touch()
    (runs / "a-link").symlink_to(scratch)
    (runs / "latest").symlink_to("b")
    (runs / "b" / "up").symlink_to(runs)
    found = store.run_files([runs])
    assert [str(path.relative_to(runs)) for path in found] == ["a-link/a/seed-1.h5", "b/seed-1.h5"]


def test_a_failed_flush_leaves_the_old_file_whole(path, monkeypatch):
    file = write(path)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    file.flush_cost = 0.0
    with pytest.raises(RunError, match="Errno 28"):
        file.append(record(2), {})
    assert len(store.read(path).records) == 2
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_full_disk_is_named_from_another_directory(path, monkeypatch):
    path.parent.mkdir(parents=True)
    monkeypatch.chdir(path.parent.parent)
    file = write(path.relative_to(Path.cwd()))
    file.flush_cost = 0.0
    monkeypatch.chdir("/")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(RunError, match="Free disk space"):
        file.append(record(2), {})


def test_a_file_that_was_moved_is_named_and_may_be_put_back(path):
    file = write(path)
    path.rename(away := path.with_name("away.h5"))
    file.append(record(2), {}, flush=False)
    with pytest.raises(RunError, match=r"Put the file back, and continue with resume=True\.$"):
        file.flush()
    away.rename(path)
    file.flush()
    assert store.read(path).num_generations == 3


def test_a_directory_that_was_moved_is_named(path, tmp_path):
    file = write(path)
    file.flush_cost = 0.0
    path.parent.rename(tmp_path / "moved")
    with pytest.raises(RunError, match="Put its directory back"):
        file.append(record(2), {})
    (tmp_path / "moved").rename(path.parent)


def test_a_file_system_that_syncs_no_directories_is_written(path, monkeypatch):
    fsync = os.fsync

    def refusing(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refusing)
    write(path)
    assert store.read(path).num_generations == 2


@pytest.mark.parametrize("wrong", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_flush_interrupted_after_the_replacing_is_repeated_without_harm(path, monkeypatch, wrong):
    @contextmanager
    def interrupted(path, **options):
        """Replace a file, and fail before its writer has noted that it is replaced."""
        with atomic_write(path, **options) as partial:
            yield partial
        raise wrong

    file = store.create(path, header())
    file.flush_cost = 0.0
    with monkeypatch.context() as patched:
        patched.setattr(writing, "atomic_write", interrupted)
        with pytest.raises((RunError, KeyboardInterrupt)):
            file.append(record(0), {"leaderboard": np.arange(2)})
    assert file.on_disk == 0
    file.append(record(1), {"leaderboard": np.arange(3)})
    file.flush()
    assert [r.digest for r in store.read(path).records] == [record(g).digest for g in range(2)]


class InterruptingSteps(np.int64):
    """A number of steps at which Ctrl-C is pressed once, while it is added to the total."""

    pressed = False

    def __int__(self):
        if not InterruptingSteps.pressed:
            InterruptingSteps.pressed = True
            signal.raise_signal(signal.SIGINT)
        return 7


@pytest.fixture
def ctrl_c():
    """Let Ctrl-C raise KeyboardInterrupt, which a shell's background jobs ignore."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, earlier)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_never_leaves_half_a_generation(path):
    file = write(path)
    with pytest.raises(KeyboardInterrupt):
        file.append(replace(record(2), steps=InterruptingSteps(7)), {}, flush=False)
    file.flush()
    assert store.read(path).num_generations == file.num_generations == 3


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_waits_until_hdf5_has_written(path, monkeypatch):
    class Interrupting(DeferredErrorFile):
        def write(self, data):
            signal.raise_signal(signal.SIGINT)
            return super().write(data)

    file = write(path)
    file.append(record(2), {}, flush=False)
    monkeypatch.setattr(writing, "DeferredErrorFile", Interrupting)
    with pytest.raises(KeyboardInterrupt):
        file.flush()
    assert store.read(path).num_generations == file.on_disk == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_a_file_is_opened_releases_its_lock(path, monkeypatch):
    write(path)
    with monkeypatch.context() as patched:
        patched.setattr(writing, "read", lambda _: signal.raise_signal(signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            store.reopen(path)
    store.reopen(path).close()


def test_a_file_that_disappears_or_changes_is_not_written_anew(path):
    file = store.create(path, header())
    file.append(record(0), {})
    file.flush()
    kept = path.read_bytes()
    path.unlink()
    file.complete = True
    with pytest.raises(RunError, match="Errno 2"):
        file.flush()
    assert not path.exists()
    path.write_bytes(kept)
    file.append(record(1), {})
    file.flush()
    path.write_bytes(kept)  # an older copy is put back
    file.complete = False
    with pytest.raises(RunError, match=r"\b2 generations"):
        file.flush()
    assert store.read(path).num_generations == 1
    h5py.File(path, "w").close()  # a file of another program
    with pytest.raises(RunError, match=r"\b2 generations"):
        file.flush()
    with h5py.File(path, "w") as other:  # such as a champion file, which has the number in another place
        other.attrs["num_generations"] = 2
    with pytest.raises(RunError, match=r"\b2 generations"):
        file.flush()


def test_a_file_without_permission_is_not_called_damaged(path, monkeypatch):
    write(path)

    def open_file(*_):
        raise PermissionError(errno.EACCES, "Unable to synchronously open file")

    monkeypatch.setattr(h5py, "File", open_file)
    with pytest.raises(InputError, match="a readable run file, got a file that this user must not read"):
        store.read(path)


def test_a_file_that_another_program_changes_is_not_called_damaged(path):
    write(path)
    with open(path) as other:
        fcntl.flock(other, fcntl.LOCK_EX)  # as HDF5 does in the modes "r+" and "a"
        with pytest.raises(InputError, match=r"got a file that another program has open to change it\. Close it there"):
            store.read(path)


@pytest.mark.parametrize("locking", [False, True, "best-effort"])
def test_a_file_that_this_process_has_open_is_read(path, locking):
    write(path)
    with h5py.File(path, locking=locking):
        assert store.read(path).num_generations == 2


@pytest.mark.parametrize("filters", [{"compression": "gzip"}, {"fletcher32": True}], ids=str)
def test_a_compressed_copy_is_not_called_damaged(path, filters):
    write(path)
    with h5py.File(path, "r+") as file:
        seconds = file["generation/seconds"][()]
        del file["generation/seconds"]
        file.create_dataset("generation/seconds", data=seconds, **filters)
    with pytest.raises(InputError, match=r"got generation/seconds with the filter .*h5repack -f NONE") as raised:
        store.read(path)
    assert "damaged" not in str(raised.value)


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99])
def test_truncated_files_are_refused(path, keep):
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(InputError, match="truncated or foreign"):
        store.read(path)


@pytest.mark.parametrize("in_memory", [False, True], ids=["file", "image"])
def test_an_empty_sector_in_a_heap_of_texts_is_refused(path, in_memory):
    """The HDF5 library would search the heap forever."""
    write(path)
    content = bytearray(path.read_bytes())
    begin = content.index(b"GCOL")
    content[begin + 2048 : begin + 4096] = bytes(2048)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a damaged one \(a damaged heap of texts at byte [\d,]+\)"):
        reading.read_image(path, bytes(content)) if in_memory else store.read(path)


@pytest.mark.parametrize(
    "damage",
    [
        put("generation/returns", h5py.ExternalLink("/etc/passwd", "/")),
        put("champion", h5py.SoftLink("/generation")),
        put("selection", h5py.ExternalLink("a pipe", "/")),  # never opened, although its columns are optional
        put("generation/returns", (10**9, 10**3, 10), dtype="f8"),  # a file of a few bytes claims 80 TB
        put("generation/returns", None, data=np.zeros((2, P, E)), compression="gzip"),
        put("generation/lengths", None, data=np.ones((2, P + 1, E), np.int32)),  # not as many candidates as returns
        put("champion/mask", None, data=np.ones((2, W + 1), np.bool_)),
        put("checkpoint/leaderboard", (8,), dtype="u1", external=[("/etc/passwd", 0, 8)]),
        put("checkpoint/leaderboard", None, data=["os.system('x')"], dtype=h5py.string_dtype()),
        put("generation/digest", np.array([b"0" * 64])),
        remove("generation/returns"),
        remove("checkpoint"),
        attribute("manifest", '{"a":' * 20_000),
        attribute("manifest", "{"),
        attribute("seed", -1),
        attribute("schema", 99),
        attribute("schema", None),
    ],
)
def test_damaged_and_foreign_files_are_refused(path, damage):
    write(path)
    with h5py.File(path, "r+") as f:
        damage(f)
    with pytest.raises(InputError, match=str(path)):
        store.read(path)


@pytest.mark.parametrize(
    ("place", "where", "value", "why"),
    [
        ("champion/candidate", 1, P, "champion/candidate: not one of the population"),
        ("generation/lengths", (1, 0, 0), -1, "generation/lengths: negative"),
        ("rank/busy_seconds", (1, 0), -np.inf, "busy_seconds of a generation: infinite"),
        ("generation/digest", 1, b"12" * 31, "generation/digest: not 64 hexadecimal characters"),
    ],
)
def test_columns_that_contradict_one_another_are_refused(path, place, where, value, why):
    write(path)
    tamper(path, place, where, value)
    with pytest.raises(InputError, match=why):
        store.read(path)


@pytest.mark.parametrize(
    ("owner", "name", "value", "why"),
    [
        ("checkpoint", "num_generations", 1, "its checkpoint belongs to another generation"),
        ("/", "manifest", 5, "manifest: not a text"),
        ("/", "seed", [3, 3], "seed: not a single number"),
    ],
)
def test_attributes_that_contradict_the_file_are_refused(path, owner, name, value, why):
    write(path)
    with h5py.File(path, "r+") as f:
        f[owner].attrs[name] = value
    with pytest.raises(InputError, match=why):
        store.read(path)


def test_a_dataset_in_the_place_of_a_group_is_refused(path):
    write(path)
    with h5py.File(path, "r+") as f:
        del f["champion"]
        f["champion"] = np.zeros(2)
    with pytest.raises(InputError, match=r"champion: a Dataset"):
        store.read(path)


def test_validations_after_no_complete_generation_are_refused(path):
    write(path)
    with closing(store.reopen(path)) as file:
        file.validations[2] = np.zeros(3)
        file.flush()
    assert store.read(path).validations[2].tolist() == [0.0] * 3
    tamper(path, "validation/generations", 0, 9)
    with pytest.raises(
        InputError, match="validation/generations: not different numbers from 1 to the number of generations"
    ):
        store.read(path)


def test_paths_without_a_file_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        store.read(tmp_path / "none.h5")
    with pytest.raises(InputError, match="got a directory"):
        store.read(tmp_path)
    with pytest.raises(InputError, match="got a device, pipe or socket"):
        store.read(Path(os.devnull))


def test_a_slow_flush_makes_flushes_rare(path, monkeypatch):
    file = store.create(path, header())
    flushes = []
    monkeypatch.setattr(type(file), "flush", lambda self: flushes.append(self.num_generations))
    file.flush_cost = 1000.0
    file.append(record(0), {})
    assert flushes == []
    file.flush_cost = 0.0
    file.append(record(1), {})
    assert flushes == [2]


@pytest.mark.parametrize(
    ("script", "cost", "wait"),
    [
        (False, 0.001, 0.2),
        (False, 0.01, 2.0),
        (False, 0.05, 2.0),
        (False, 0.1, 2.0),
        (False, 1.0, 20.0),
        (True, 0.01, 0.2),  # a twentieth of the time, so that a script that is killed loses little
        (True, 1.0, 20.0),
    ],
)
def test_quick_flushes_cost_half_a_percent_unless_much_work_would_wait(path, monkeypatch, script, cost, wait):
    now = [100.0]
    monkeypatch.setattr(writing.time, "monotonic", lambda: now[0])
    file = store.create(path, header())
    if script:
        file.flush_for_script(seen_elsewhere=False)
    file.append(record(0), {})  # the first generation does not wait: the clock says that the last flush took no time
    assert file.on_disk == 1
    file.flush_cost = cost
    now[0] += 0.99 * wait
    file.append(record(1), {}, flush=not script)
    assert file.on_disk == 1
    now[0] += 0.02 * wait
    file.append(record(2), {}, flush=not script)
    assert file.on_disk == 3
    file.close()


def test_one_slow_flush_does_not_count(path, monkeypatch):
    now, took = [0.0], [0.0]

    def monotonic():
        now[0] += took[0]
        return now[0]

    with closing(store.create(path, header())) as file:
        monkeypatch.setattr(writing.time, "monotonic", monotonic)
        costs = []
        for g, seconds in enumerate((0.25, 0.25, 8.0, 0.25, 8.0, 8.0)):
            took[0] = seconds
            file.append(record(g), {}, flush=False)
            file.flush()
            costs.append(file.flush_cost)
    assert costs[1:] == [0.25, 0.25, 0.25, 0.25, 8.0]


def test_a_large_generation_is_stored_in_few_chunks(path):
    """Each chunk costs rank 0 some time, so a generation of thousands of candidates may not have hundreds of them."""
    for shape, itemsize, chunks in [
        ((1, 4096, 4), 8, (1, 4096, 4)),  # 128 KiB: whole
        ((1, 16384, 4, 2), 8, (1, 4096, 4, 2)),  # 1 MiB: four parts
        ((1, 33000, 1), 8, (1, 16500, 1)),  # just above 256 KiB: two equal parts, which waste nothing
        ((1, 3, 2**20), 1, (1, 1, 2**18)),  # a long genome is divided, too
        ((1, 1, 3, 2**18), 1, (1, 1, 1, 2**18)),
        ((1, 2**20), 8, (1, 2**15)),
        ((5, 8, 2), 8, (16, 8, 2)),  # several generations together
        ((7,), 8, (256,)),
    ]:
        assert writing.chunk_shape(shape, itemsize, 2048) == chunks
    one = vars(record(0))
    by_candidate = {name for name, column in schema.COLUMNS.items() if "P" in column.symbols.split()} & one.keys()
    many = replace(record(0), **{name: one[name].repeat(9000, 0) for name in by_candidate if one[name] is not None})
    file = store.create(path, header())
    file.append(many, {})
    file.flush()
    with h5py.File(path) as f:
        assert f["fingerprint/episodes"].id.get_num_chunks() <= 5
    again = store.read(path).records[0]
    assert np.array_equal(again.fingerprints, many.fingerprints)
    assert np.array_equal(again.returns, many.returns)


@pytest.mark.parametrize(
    ("schema", "cure"), [(4, "newer evolve"), (2, "Run the experiment again"), (1, "Run the experiment")]
)
def test_the_refusal_of_another_schema_has_a_cure(path, schema, cure):
    write(path)
    with h5py.File(path, "r+") as f:
        f.attrs["schema"] = schema
    with pytest.raises(InputError, match=f"schema 3, got schema {schema}.*{cure}"):
        store.read(path)


def test_nothing_is_written_twice(path):
    """So the end of a run whose file is whole needs no HDF5, which may be gone when the interpreter exits."""
    file = write(path)
    before = path.stat().st_ino
    file.flush()
    assert path.stat().st_ino == before
    file.complete = True
    file.flush()
    assert path.stat().st_ino != before
    assert store.read(path).complete


def on_disk(path):
    """Return the number of generations of a file, read by plain h5py."""
    with h5py.File(path) as file:
        return file["checkpoint"].attrs["num_generations"]


def test_every_generation_that_other_processes_see_is_on_disk_while_flushes_are_cheap(path):
    with closing(store.create(path, header())) as file:
        file.flush_for_script(seen_elsewhere=True)
        for g in range(3):
            file.flush_cost = 0.04  # an interval of 0.8 s, at least
            file.append(record(g), {}, flush=False)
            assert on_disk(path) == g + 1


def test_the_first_generation_that_a_script_sees_is_written_at_once(path):
    with closing(store.create(path, header())) as file:
        file.flush_for_script(seen_elsewhere=False)
        file.flush_cost = 1e6
        file.append(record(0), {}, flush=False)
        assert on_disk(path) == 1


def test_a_fork_does_not_write(path):
    with closing(store.create(path, header())) as file:
        file.append(record(0), {})
        file.flush()
        file.append(record(1), {}, flush=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12 and later warn of a fork beside a thread
            pid = os.fork()
        if pid == 0:
            try:
                file.flush()
                with pytest.raises(RunError, match="its fork cannot go on"):
                    file.append(record(2), {})
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert on_disk(path) == 1
        file.flush()
        assert on_disk(path) == 2


def test_flushes_of_a_large_file_wait_until_its_script_reads_it(path):
    with closing(store.create(path, header())) as file:
        file.flush_for_script(seen_elsewhere=True)
        file.append(record(0), {})
        for g in range(1, 4):
            file.flush_cost = 1e6
            file.append(record(g), {})
            assert on_disk(path) == (1 if g < 3 else 3)
            if g == 2:
                assert store.read(path).num_generations == 3
                assert on_disk(path) == 3
        assert store.read_progress(path) == (4, False)
    assert on_disk(path) == 4


def test_a_script_that_ends_leaves_no_generation_behind(tmp_path):
    path = tmp_path / "seed-1.h5"
    text = f"""
import evolve, h5py
from evolve.store import writing
writing._LEAST_MULTIPLE = 1e9
run = evolve.iterate(env={{"id": "CartPole-v1", "engine": "exact"}}, population=4, episodes=1, seed=1, generations=50,
                     output={str(tmp_path)!r})
for _ in range(9):
    next(run)
with h5py.File({str(path)!r}) as file:
    assert file["checkpoint"].attrs["num_generations"] < 9
"""
    subprocess.run([sys.executable, "-c", text], env=environment(), check=True, timeout=60)
    assert on_disk(path) == 9


def test_more_arrays_than_a_reader_accepts_are_not_written(path, monkeypatch):
    monkeypatch.setattr(schema, "MOST_ENTRIES", 100)
    with closing(store.create(path, header())) as file:
        for number, accepted in ((101, False), (100, True)):
            checkpoint = {f"species {n}": np.zeros(1) for n in range(number)}
            with nullcontext() if accepted else pytest.raises(InputError, match=r"^strategy\.name: .*got 101"):
                file.append(record(0), checkpoint)
        file.flush()
    assert len(store.read(path).checkpoint) == 100


def test_an_experiment_names_no_more_metrics_than_a_reader_accepts():
    names = [f"metric {n}" for n in range(schema.MOST_ENTRIES + 1)]
    assert len(parse(EnvOptions, {"metrics": names[:-1]}, "env").metrics) == schema.MOST_ENTRIES
    with pytest.raises(InputError, match=r"^env\.metrics: expected a list of at most 1,000, got "):
        parse(EnvOptions, {"metrics": names}, "env")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("front", np.zeros(P), [np.zeros(P + 1), np.zeros((P, 1)), 0.0, None]),
        ("archive", np.zeros(4), [np.zeros(5), np.zeros(0), np.zeros((4, 1)), None]),
        ("measures", np.zeros((P, 2)), [np.zeros((P, 1)), np.zeros(P), None]),
    ],
)
def test_columns_of_a_strategy_that_could_not_be_read_are_not_written(path, name, good, bad):
    """A strategy of another package may fill its archive late, or have a front of its own size."""
    with closing(store.create(path, header())) as file:
        for number, values in enumerate(bad[:-1]):
            if number or name == "front":  # another size of an archive, or number of measures, is a fault only later
                with pytest.raises(InputError, match=rf"^strategy\.name: .* {name} .*, got an array of shape"):
                    file.append(replace(record(0), **{name: values}), {})
        file.append(replace(record(0), **{name: good}), {})
        for values in bad:
            with pytest.raises(InputError, match=rf"{name} is an array \[.*\], the same in all generations, got"):
                file.append(replace(record(1), **{name: values}), {})
        file.append(replace(record(1), **{name: good}), {})
        file.flush()
    assert [getattr(each, name).shape for each in store.read(path).records] == [good.shape] * 2
    with closing(store.reopen(path)) as file, pytest.raises(InputError, match=f"{name} .*, got none"):
        file.append(record(2), {})


def test_a_number_in_place_of_a_missing_column_is_not_written(path):
    with closing(store.create(path, header())) as file:
        file.append(record(0), {})
        with pytest.raises(InputError, match=r"measures is an array .*, got an array of shape \[\]"):
            file.append(replace(record(1), measures=np.float64(1)), {})


def test_memory_does_not_grow_with_the_run(path):
    """What is on disk is not kept, and a flush does not read it back."""
    import tracemalloc

    file = store.create(path, header())
    sizes = []
    tracemalloc.start()
    for g in range(100):
        file.append(record(g), {"leaderboard": np.arange(g % 5 + 1)})
        file.flush()
        if g in (9, 99):
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert sizes[1] - sizes[0] < 90 * 90  # a table of Python that grows once takes 5 kB
    assert path.stat().st_size < 300_000


def test_a_file_of_one_block_columns_goes_on(path):
    """As a tool may have copied it: datasets that cannot grow."""
    write(path)
    with h5py.File(path, "r+") as f:
        for name in ("generation/returns", "generation/digest", "rank/busy_seconds", "checkpoint/leaderboard"):
            array = f[name][()]
            del f[name]
            f[name] = array
    file = store.reopen(path)
    file.append(record(2), {"leaderboard": np.arange(3)})
    file.flush()
    assert store.read(path).num_generations == 3
    assert store.read(path).checkpoint["leaderboard"].tolist() == [0, 1, 2]


def test_an_error_of_the_disk_is_deferred():
    with DeferredErrorFile("/dev/full", "r+") as deferred:
        assert deferred.write(b"abc") == 3
        assert deferred.error.errno == 28


def test_an_experiment_is_no_run_file_and_need_not_be_moved_away(tmp_path):
    path = tmp_path / "my pole.toml"
    path.write_text("")
    with pytest.raises(InputError, match=r"expected a run file, got a TOML file\. .*my pole\.toml' --resume --dry-run"):
        store.read(path)
