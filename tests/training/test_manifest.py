"""The manifest of a run: the versions and the hardware that may explain a difference later."""

import shutil
import subprocess

import pytest

from evolve.training import manifest


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_revision_is_not_the_one_of_a_repository_around_an_installed_package(tmp_path, monkeypatch):
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    author = "-c", "user.name=a", "-c", "user.email=a@example.org"
    for command in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "Begin"]):
        subprocess.run(["git", "-C", tmp_path, *command], check=True)
    uncached = manifest.revision.__wrapped__
    monkeypatch.setattr(manifest, "SOURCE", tmp_path)
    assert len(uncached()) == 40
    monkeypatch.setattr(manifest, "SOURCE", packages)
    assert uncached() is None
