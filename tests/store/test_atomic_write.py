"""Files are written whole or not at all; an error names a file that cannot be written, and the reason."""

import os
from pathlib import Path

import pytest

from evolve.errors import InputError
from evolve.store.disk import atomic_write, check_writable, explain_write_errors


def test_a_file_is_replaced_when_the_block_ends(tmp_path):
    path = tmp_path / "x.png"
    path.write_text("old")
    path.chmod(0o640)
    with atomic_write(path) as partial:
        assert (partial.parent, partial.suffix) == (tmp_path, ".png")
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_has_become_read_only_is_not_replaced(tmp_path):
    path = tmp_path / "x.png"
    path.write_text("old")
    path.chmod(0o440)
    with pytest.raises(PermissionError), atomic_write(path):
        pytest.fail("the block ran")
    assert path.read_text() == "old"


def test_the_group_of_a_file_stays(tmp_path, monkeypatch):
    path, given = tmp_path / "x.png", []
    path.write_text("old")
    path.chmod(0o664)
    real, other = Path.stat, os.stat(path).st_gid + 1

    def stat(self, **options):
        found = real(self, **options)
        return _in_group(found, other) if self == path else found

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(os, "chown", lambda *arguments: given.append(arguments))
    with atomic_write(path) as partial:
        partial.write_text("new")
    owner = os.getuid() if os.geteuid() == 0 else -1
    assert given == [(partial, owner, other)]
    assert path.stat().st_mode & 0o777 == 0o664


def test_another_group_does_not_get_the_permissions(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    path.write_text("old")
    path.chmod(0o674)
    real, other = Path.stat, os.stat(path).st_gid + 1

    def stat(self, **options):
        found = real(self, **options)
        return _in_group(found, other) if self == path else found

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(os, "chown", lambda *_: (_ for _ in ()).throw(PermissionError))
    with atomic_write(path) as partial:
        partial.write_text("new")
    assert path.stat().st_mode & 0o777 == 0o644


def _in_group(found, group):
    return os.stat_result([*found[:5], group, *found[6:]])


def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "x.png"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_write(path) as partial:
        raise KeyError(partial.write_text("half"))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_symbolic_link_stays_one(tmp_path):
    path, link, loose = tmp_path / "x.png", tmp_path / "link.png", tmp_path / "loose.png"
    path.write_text("old")
    link.symlink_to("x.png")
    loose.symlink_to("later.png")
    for name in (link, loose):
        check_writable(name, (".png",))
        with atomic_write(name) as partial:
            partial.write_text("new")
    assert link.is_symlink()
    assert loose.is_symlink()
    assert path.read_text() == (tmp_path / "later.png").read_text() == "new"
    assert len(list(tmp_path.iterdir())) == 4


def test_errors_name_the_path_that_was_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory.png").mkdir()
    (tmp_path / "file").touch()
    for name, why in (
        ("none/x.png", "'none'"),
        ("directory.png", "is a directory"),
        ("file/x.png", "Not a directory"),
        ("/proc/x.png", "'/proc'"),
    ):
        path = type(tmp_path)(name)
        with pytest.raises(InputError, match=f"^{name}.*: .*{why}") as checked:
            check_writable(path, (".png",))
        with pytest.raises(InputError) as written, explain_write_errors(path), atomic_write(path) as partial:
            partial.write_text("x")
        assert str(written.value) == str(checked.value)
    with pytest.raises(InputError, match=r"x\.jpg .*\.png or \.svg"):
        check_writable(tmp_path / "x.jpg", (".png", ".svg"))
    check_writable(tmp_path / "x.png")
    assert {path.name for path in tmp_path.iterdir()} == {"directory.png", "file"}
