"""Full, read-only and shared disks: a plain message, the right exit code, and no loss of what a file held."""

import contextlib
import errno
import os
import re
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import h5py
import pytest
import warm
from conftest import environment, finished, make_runs, wait_for
from interrupts import interrupted_at_each_line

import evolve
from evolve import store
from evolve.errors import InputError
from evolve.store import disk as disk_module
from evolve.store.disk import Lock

RUN = ("-e", "toys:Slow-v0", "--set", "env.kwargs.seconds=0.01", "--set", "env.kwargs.brake=brake", "-p", 8, "-r", 2,
       "-g", 12, "-d", 8, "--set", "held_out_episodes=3")  # fmt: skip


def mount(at, options):
    at.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(at)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("this process may not mount a tmpfs")


@pytest.fixture
def disk(tmp_path):
    """Yield a file system of one megabyte."""
    mount(tmp_path / "disk", "size=1m")
    yield tmp_path / "disk"
    subprocess.run(["umount", "--lazy", str(tmp_path / "disk")], check=True)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    where = tmp_path_factory.mktemp("undisturbed")
    make_runs(where, *RUN, "-o", "out")
    return [record.digest for record in store.read(store.path_of(where / "out", 0)).records]


def fill(path):
    with contextlib.suppress(OSError), open(path, "wb", buffering=0) as file:
        while True:
            file.write(bytes(512))


def wait_for_generations(path, process, generations):
    wait_for(lambda: path.exists() and store.read_progress(path)[0] >= generations, process.output)


@pytest.mark.parametrize("ranks", [None, 2])
def test_a_disk_that_fills_up(start, call, disk, brake, expected, ranks):
    path = store.path_of(disk, 0)
    process = start("run", *RUN, "-o", disk, ranks=ranks)
    wait_for_generations(path, process, 1)
    fill(disk / "filler")
    brake.unlink()
    before = store.read(path).num_generations
    done = process.wait()
    assert done.code == 1
    message = done.err + done.out
    assert "[Errno 28]" in message
    assert "--resume" in message
    assert "Traceback" not in message
    assert before <= store.read(path).num_generations < 12
    assert sorted(p.name for p in disk.iterdir()) == ["filler", "seed-0.h5"]
    (disk / "filler").unlink()
    call("run", *RUN, "-o", disk, "--resume").ok()
    assert [record.digest for record in store.read(path).records] == expected


def test_a_disk_that_is_full_from_the_beginning(call, disk):
    fill(disk / "filler")
    call("run", *RUN, "-o", disk).refused("output.directory (-o/--output): ")
    assert not store.path_of(disk, 0).exists()


def test_a_full_disk_after_the_run(call, disk):
    call("run", *RUN, "-g", 1, "-o", disk).ok()
    path = store.path_of(disk, 0)
    before = path.read_bytes()
    fill(disk / "filler")
    done = call("evaluate", path, "--episodes", 5)
    assert done.code == 1
    assert "mean " in done.out  # what was computed is not lost
    assert "so the evaluation is not stored. Free disk space or mend the error, and evaluate again." in done.err
    call("export", path).refused("seed-0.champion cannot be written: No space left on device. Choose another")
    for form in ("pdf", "svg"):
        call("plot", path, "-o", disk / f"a.{form}").refused(f"a.{form} cannot be written: No space left on device.")
    assert sorted(p.name for p in disk.iterdir()) == ["filler", "seed-0.h5"]
    assert path.read_bytes() == before


def test_a_full_disk_under_a_run_that_replaces_another(call, disk):
    call("run", *RUN, "-g", 1, "-o", disk).ok()
    path = store.path_of(disk, 0)
    before = path.read_bytes()
    fill(disk / "filler")
    done = call("run", *RUN, "-p", 9, "-o", disk, "--overwrite")
    assert (done.code, "and begin again with --overwrite." in done.err) == (1, True)
    assert path.read_bytes() == before


def test_a_quota(tmp_path, expected):
    """A limit on the size of files fails in the middle of a write, like a quota does."""
    line = f"ulimit -f 70; exec {sys.executable} -m evolve.run {' '.join(map(str, RUN))} -g 60 -o out"
    done = finished(["bash", "-c", line], tmp_path)
    assert done.code == 1
    assert "[Errno 27]" in done.err
    assert "Traceback" not in done.err
    run = store.read(store.path_of(tmp_path / "out", 0))
    assert re.search(rf"\b{run.num_generations} generations .*out/seed-0\.h5", done.err)
    assert [record.digest for record in run.records] == expected[: run.num_generations]


def test_a_read_only_disk(call, tmp_path):
    mount(tmp_path / "disk", "size=1m")
    try:
        call("run", *RUN, "-g", 1, "-o", tmp_path / "disk").ok()
        before = store.path_of(tmp_path / "disk", 0).read_bytes()
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "disk")], check=True)
        kept = "disk/seed-0.h5: expected a run file and a directory that can be written, got Read-only file system "
        for words in (("--resume",), ("--overwrite",)):
            call("run", *RUN, "-g", 2, "-o", "disk", *words).refused(kept)
        call("run", *RUN, "-o", "disk/new").refused("that can be written, got disk/new (Read-only file system).")
        assert "already complete" in call("run", *RUN, "-g", 1, "-o", "disk", "--resume").ok().out
        call("verify", store.path_of(tmp_path / "disk", 0)).ok()
        done = call("evaluate", store.path_of(tmp_path / "disk", 0), "--episodes", 2).ok()
        assert "2 held-out episodes: not stored in the run file, because its directory cannot be written" in done.out
        assert store.path_of(tmp_path / "disk", 0).read_bytes() == before
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path / "disk")], check=True)


def test_a_file_system_without_locks_for_hdf5(tmp_path, monkeypatch):
    """HDF5 locks what it reads, and NFS without lockd refuses that."""
    path = store.path_of(tmp_path, 0)
    store.create(path, store.Header("", {}, 0, "x")).close()
    real = h5py.File

    def refuse(source, mode, locking=True):
        if locking:
            raise OSError(f"Unable to synchronously open file (unable to lock file, errno = {errno.ENOLCK}, error …)")
        return real(source, mode, locking=False)

    monkeypatch.setattr(h5py, "File", refuse)
    assert store.read(path).num_generations == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
@pytest.mark.parametrize(("mode", "is_taken"), [(0o644, True), (0o600, False)])
def test_the_lock_that_another_user_left_behind(tmp_path, mode, is_taken):
    """A killed process leaves its lock file, and others in the group may write the directory but not this file."""
    path = store.path_of(tmp_path, 0)
    store.create(path, store.Header("", {}, 0, "x")).close()
    lock = path.with_name(f".{path.name}.lock")
    lock.write_text("process 1 on elsewhere")
    lock.chmod(mode)
    for shared in (tmp_path, path):
        shared.chmod(0o777)
    text = f"""
import os
from pathlib import Path
from evolve.store import writing
os.setuid(12345)
writing.reopen(Path({str(path)!r})).close()
"""
    for parent in tmp_path.parents:  # pytest's directories are private
        if parent.owner() == "root" and parent.stat().st_mode & 0o077 == 0:
            parent.chmod(0o755)
    done = finished([sys.executable, "-c", text], tmp_path)
    if is_taken:
        assert (done.code, lock.exists()) == (0, False), done.err
    else:
        assert f"got Permission denied ({lock}). Change the permissions" in done.err


def test_a_directory_that_may_not_be_read_is_named(tmp_path, monkeypatch, caplog):
    store.create(store.path_of(tmp_path / "open", 0), store.Header("", {}, 0, "x")).close()
    error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "closed"))
    walk = os.walk

    def with_error(path, onerror):
        onerror(error)
        return walk(path)

    monkeypatch.setattr(os, "walk", with_error)
    assert len(store.run_files([tmp_path])) == 1
    assert f"{tmp_path / 'closed'} is left out: Permission denied" in caplog.text


@pytest.mark.parametrize("is_link", [True, False])
def test_a_read_only_file_is_never_replaced(call, tmp_path, is_link):
    """Its owner wants to keep it. DVC and git-annex link to stores that name files by their content."""
    path = store.path_of(tmp_path / "out", 0)
    call("run", *RUN, "-g", 1, "-o", "out").ok()
    (path if not is_link else path.rename(tmp_path / "object")).chmod(0o444)
    if is_link:
        path.symlink_to(tmp_path / "object")
    before = path.read_bytes()
    for words in (("--resume",), ("--overwrite",)):
        call("run", *RUN, "-g", 2, "-o", "out", *words).refused(r"a read-only file")
    done = call("evaluate", path, "--episodes", 2).ok()
    assert "not stored in the run file, because it is read-only" in done.out
    assert "already complete" in call("run", *RUN, "-g", 1, "-o", "out", "--resume").ok().out
    (tmp_path / "other").touch(0o444)
    (tmp_path / "a.json").symlink_to("other")
    call("export", path, "-o", tmp_path / "a.json").refused("cannot be written: a read-only file.")
    assert path.read_bytes() == before
    assert path.is_symlink() is is_link
    call("verify", path).ok()


@pytest.mark.usefixtures("brake")
def test_two_runs_do_not_write_one_file(start, call, tmp_path):
    path = store.path_of(tmp_path / "out", 0)
    process = start("run", *RUN, "-g", 200, "-o", "out")
    wait_for_generations(path, process, 1)
    writer = next((forked.pid for forked in warm.processes_in(tmp_path)), process.popen.pid)
    call("run", *RUN, "-g", 200, "-o", "out", "--resume").refused(f"process {writer} on ")
    assert process.popen.poll() is None
    process.kill()
    process.popen.wait()
    assert store.reopen(path).num_generations >= 1  # the lock ends with its process


FORKS = """
import os, sys
from pathlib import Path
import evolve
from evolve import store
file = store.create(Path(sys.argv[1]), store.Header("", {}, 0, "x"))
if os.fork() == 0:
    file.close()
    print("forked", flush=True)
sys.stdin.read()
"""


def test_a_lock_ends_with_its_process_although_a_fork_lives_on(tmp_path):
    path = store.path_of(tmp_path, 0)
    words = [sys.executable, "-W", "ignore", "-c", FORKS, str(path)]
    with subprocess.Popen(words, env=environment(), stdin=-1, stdout=-1, text=True) as process:  # -1: a pipe
        assert process.stdout.readline() == "forked\n"
        with pytest.raises(
            InputError, match=rf"which process {process.pid} on .* is writing\. This script has started that run: close"
        ):
            store.check_unlocked(path)
        process.kill()
        process.wait()
        store.reopen(path).close()


def test_a_lock_ends_with_its_file(tmp_path):
    path = store.path_of(tmp_path, 0)
    file = store.create(path, store.Header("", {}, 0, "x"))
    with pytest.raises(InputError, match=rf"process {os.getpid()}\b"):
        store.reopen(path)
    file.close()
    again = store.reopen(path)
    again.close()
    assert [p.name for p in tmp_path.iterdir()] == ["seed-0.h5"]


def test_others_may_lock_a_file_that_they_may_write(tmp_path):
    """In the directory of a group, a run that was killed leaves its lock file to the next writer."""
    before = os.umask(0o002)
    try:
        lock = Lock(store.path_of(tmp_path, 0))
    finally:
        os.umask(before)
    assert (tmp_path / ".seed-0.h5.lock").stat().st_mode & 0o777 == 0o664
    lock.release()


@pytest.mark.parametrize("name", [".seed-1.h5.lock", ".seed-1.h5.partial.h5"])
def test_links_at_the_names_of_helper_files_are_never_followed(call, tmp_path, name):
    """A folder that a stranger has packed may have such links, and they may lead to any file of the user."""
    thesis, link = tmp_path / "thesis.tex", tmp_path / "runs" / name
    thesis.write_text("chapter 1")
    link.parent.mkdir()
    link.symlink_to("../thesis.tex")
    done = call("run", "-e", "CartPole-v1", "--engine", "exact", "-g", 1, "-p", 4, "-s", 1, "-o", "runs")
    assert thesis.read_text() == "chapter 1"
    if name.endswith(".lock"):
        done.refused("output.directory", "seed-1.h5.lock is a symbolic link")
    else:
        assert evolve.load(tmp_path / "runs").complete
        assert not (tmp_path / "runs" / "seed-1.h5").is_symlink()


def test_a_second_release_leaves_other_locks_alone(tmp_path):
    first = Lock(store.path_of(tmp_path, 0))
    first.release()
    second = Lock(store.path_of(tmp_path, 1))  # the system gives it the descriptor of the first lock
    first.release()
    with pytest.raises(InputError, match="is writing"):
        Lock(store.path_of(tmp_path, 1))
    second.release()


def test_a_refused_lock_leaves_the_locks_of_other_threads_alone(tmp_path):
    """The system gives the descriptor of the refused lock to the next file that any thread opens."""
    held, ended = Lock(store.path_of(tmp_path, 0)), threading.Event()

    def ask():
        while not ended.is_set():
            with pytest.raises(InputError, match="is writing"):
                Lock(store.path_of(tmp_path, 0))

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            for _ in range(300):
                Lock(store.path_of(tmp_path, 1)).release()
        finally:
            ended.set()
        asking.result()
    held.release()


def test_ctrl_c_at_any_moment_leaves_no_lock_behind(tmp_path):
    path = store.path_of(tmp_path, 0)

    def write():
        with disk_module.LocksReleased(path):
            Lock(path).release()

    places = []
    for place in interrupted_at_each_line(write, "store/disk.py"):
        places.append(place)
        Lock(path).release()
    assert len(places) > 20


def test_a_removed_lock_leaves_the_lock_in_its_place_alone(tmp_path):
    path = store.path_of(tmp_path, 0)
    first = Lock(path)
    (tmp_path / ".seed-0.h5.lock").unlink()
    second = Lock(path)
    first.release()
    with pytest.raises(InputError, match="is writing"):
        Lock(path)
    second.release()
    assert not list(tmp_path.iterdir())


def test_the_same_process_number_on_another_host_is_another_process(tmp_path, monkeypatch):
    path = store.path_of(tmp_path, 0)
    monkeypatch.setattr(disk_module.socket, "gethostname", lambda: "node12")
    lock = Lock(path)
    monkeypatch.setattr(disk_module.socket, "gethostname", lambda: "node1")
    with pytest.raises(InputError, match="Wait for it to end"):
        store.check_unlocked(path)
    lock.release()


def test_two_processes_write_one_output(tmp_path):
    path = tmp_path / "film.gif"
    with disk_module.atomic_write(path) as partial:
        partial.write_bytes(b"long work")
        other = f"from evolve.store import disk; disk.check_writable(disk.Path({str(path)!r}))"
        other += f"; disk.write_output(disk.Path({str(path)!r}), b'short work')"
        subprocess.run([sys.executable, "-c", other], check=True)
        assert path.read_bytes() == b"short work"
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"long work"]


def test_a_link_into_a_missing_directory_names_the_directory(tmp_path):
    link = tmp_path / "page.html"
    link.symlink_to(tmp_path / "nowhere" / "page.html")
    with pytest.raises(InputError, match=r"no such directory '.*nowhere'"):
        disk_module.check_writable(link)


def test_a_file_is_unlocked_if_no_process_writes_it(tmp_path, monkeypatch):
    path = store.path_of(tmp_path, 1)
    store.check_unlocked(path)  # there is no lock file
    lock = Lock(path)
    with pytest.raises(InputError, match=f"which process {os.getpid()} on .* is writing"):
        store.check_unlocked(path)
    with pytest.raises(InputError, match="is writing"):
        Lock(path)
    # A lock that a killed process has left may be held by another user, without permission to write.
    ended = subprocess.Popen(["true"])
    ended.wait()
    path.with_name(f".{path.name}.lock").write_text(f"process {ended.pid} on {socket.gethostname()}")
    with pytest.raises(InputError, match="which another process is writing"):
        store.check_unlocked(path)
    lock.release()
    store.check_unlocked(path)

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(disk_module.fcntl, "flock", no_locks)
    unlocked = Lock(path)
    assert not unlocked.is_effective
    store.check_unlocked(path)
    unlocked.release()
