"""The messages of errors, and exceptions as one line."""

import copy
import os
import pickle
import shlex
import tomllib

import numpy as np
import pytest
from conftest import ROOT

from evolve import errors
from evolve.config.options import UnknownKeyError
from evolve.errors import (
    DISTRIBUTION,
    EpisodeError,
    InputError,
    RunError,
    Setting,
    Stopped,
    check_path,
    check_whole,
    describe_error,
    error_from_json,
    error_to_json,
    exception_line,
    how_to_build,
    how_to_install,
    import_extra,
    install_command,
    one_line,
    pluralize,
    sanitize,
)


def test_an_input_error_has_four_parts():
    wrong = InputError("env.id", "an environment", 5, "Use another.")
    assert str(wrong) == "env.id: expected an environment, got 5. Use another."
    assert (wrong.argument, wrong.expected, wrong.got, wrong.cure) == (
        "env.id",
        "an environment",
        "5",
        ("Use another.",),
    )
    assert wrong.exit_code == 2
    assert str(InputError("env.id", "an environment", "\x1b[31m")) == r"env.id: expected an environment, got \x1b[31m."


def test_an_input_error_may_be_a_plain_sentence():
    wrong = InputError.plainly("output.directory", "a.h5 already exists.\nContinue it with resume=True.")
    assert isinstance(wrong, InputError)
    assert str(wrong) == r"a.h5 already exists.\nContinue it with resume=True."
    assert (wrong.argument, wrong.exit_code) == ("output.directory", 2)


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        (Setting("env.engine", "exact"), 'env.engine="exact"'),
        (Setting("compute.check", False), "compute.check=false"),
        (Setting("resume", True), "resume=True"),
        (Setting("output.directory"), "output.directory"),
        (Setting("env.id", "\x1b"), r'env.id="\u001b"'),
    ],
)
def test_settings_are_spelled_as_in_toml_and_python(setting, text):
    assert str(setting) == text


def test_an_empty_text_is_shown():
    assert str(InputError("env.id", "a name", "")) == "env.id: expected a name, got ''."


def test_whole_numbers_come_through():
    found = check_whole("episodes", np.int32(7), 1)
    assert (found, type(found)) == (7, int)


@pytest.mark.parametrize(
    ("value", "got"),
    [("5", "'5'"), (5.0, "5.0"), (True, "True"), (None, "None"), (0, "0"), (2**63, "9223372036854775808")],
)
def test_other_values_than_whole_numbers_are_refused(value, got):
    with pytest.raises(InputError) as refused:
        check_whole("episodes", value, 1)
    assert refused.value.argument == "episodes"
    assert f"at least 1{' and less than 2**63' if value == 2**63 else ''}, got {got}." in str(refused.value)


def test_a_whole_number_that_cannot_be_printed_is_refused_too():
    with pytest.raises(InputError, match=r"less than 2\*\*63, got one of type int, which cannot be printed\."):
        check_whole("episodes", 10**5000, 1)


@pytest.mark.parametrize("path", ["", "a\0", 5, None])
def test_other_values_than_paths_are_refused(path):
    with pytest.raises(InputError, match=r"path: expected the path of a file, got "):
        check_path("path", path)


def test_an_episode_error_knows_its_episode():
    which = "generation 3, candidate 1, episode 0"
    wrong = EpisodeError(which, "in step 7:\nit burnt out", (1, 3, 1, 0))
    assert isinstance(wrong, RunError)
    assert str(wrong) == f"{which} failed in step 7:\nit burnt out"
    assert (wrong.which, wrong.message, wrong.key) == (which, "in step 7:\nit burnt out", (1, 3, 1, 0))


@pytest.mark.parametrize("repeated", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(
    "error",
    [
        InputError("env.id", "an environment", 5, "Use ", Setting("env.engine", "exact")),
        InputError.plainly("env.id", "It is ", Setting("resume", True)),
        UnknownKeyError("strategy", "survivor", ["survivors"]),
        EpisodeError("episode 3", "in step 7", (1, 2, 3, 4)),
        Stopped("a signal"),
    ],
)
def test_an_error_can_be_copied_and_sent_between_processes(error, repeated):
    other = repeated(error)
    assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UnknownKeyError("strategy", "survivor", ["survivors"]), InputError),
        (Stopped("a signal"), Stopped),
        (KeyError("x"), RunError),
    ],
)
def test_another_process_gets_an_error_of_the_same_kind(error, kind):
    restored = error_from_json(error_to_json(error))
    assert (type(restored), str(restored)) == (kind, str(error))


@pytest.mark.parametrize(
    ("value", "text"), [("a\tb", r"a\tb"), ([1], "[1]"), ("x" * 1000, f"{'x' * 200} … {'x' * 200}")]
)
def test_values_are_shown_in_one_line(value, text):
    assert sanitize(value) == text


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


def test_a_value_that_cannot_be_printed_is_named_by_its_type():
    assert sanitize(10**6000) == "one of type int, which cannot be printed"
    assert sanitize(MuteError()) == "one of type MuteError, which cannot be printed"


def test_an_exception_that_cannot_be_printed_is_named_by_its_type():
    said = "<exception str() failed>"
    assert one_line(MuteError()) == f"MuteError: {said}"
    assert str(error_from_json(error_to_json(MuteError()))) == said
    assert said in describe_error(MuteError())


def test_an_exception_of_others_is_sent_without_its_attributes():
    error = ValueError("broken")
    error.key = {(1, 2): 3}
    assert str(error_from_json(error_to_json(error))) == "broken"


def test_counts():
    assert [pluralize(n, "step") for n in (0, 1, np.int64(2000))] == ["0 steps", "1 step", "2,000 steps"]


def test_exceptions_of_others_keep_their_traceback():
    def theirs():
        raise ValueError("broken\nin two")

    with pytest.raises(ValueError, match="broken") as wrong:
        theirs()
    assert one_line(wrong.value) == "ValueError: broken in two"
    text = describe_error(wrong.value)
    assert "in theirs" in text
    assert "test_exceptions_of_others" not in text
    assert describe_error(InputError.plainly("", "A sentence.")) == "A sentence."
    assert exception_line(f"in step 3:\n{text}\n") == "ValueError: broken in two"
    assert (
        exception_line("in step 3:\nreward: expected a finite number, got nan")
        == "reward: expected a finite number, got nan"
    )
    without_spaces = exception_line(f"ValueError: {'x' * 10_000}")
    assert without_spaces.startswith("ValueError: xxx")
    assert len(without_spaces) < 1100


def test_the_distribution_has_the_name_that_messages_give():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    asked_for = [needed for extra in project["optional-dependencies"].values() for needed in extra]
    assert not [needed for needed in asked_for if needed.startswith("evolve[")]  # another project


def test_a_clone_installs_an_extra_from_itself(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert install_command("video") == "pip install -e '.[video]'"
    monkeypatch.chdir(tmp_path)
    assert install_command("video") == f"pip install -e '{ROOT}[video]'"
    assert how_to_install("video") == f"Install it: pip install -e '{ROOT}[video]'."


def test_a_clone_whose_path_has_spaces_is_quoted(monkeypatch, tmp_path):
    clone = tmp_path / "my clone"
    clone.mkdir()
    (clone / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    monkeypatch.setattr(errors, "SOURCE", clone)
    assert shlex.split(install_command("gpu")) == ["pip", "install", "-e", f"{clone}[gpu]"]


@pytest.mark.parametrize("other", [None, '[project]\nname = "other"\n'])
def test_an_installed_package_takes_an_extra_from_pypi(monkeypatch, tmp_path, other):
    """A pyproject.toml among the installed packages belongs to another project."""
    if other is not None:
        (tmp_path / "pyproject.toml").write_text(other)
    monkeypatch.setattr(errors, "SOURCE", tmp_path)
    assert install_command("video") == "pip install 'evolve-mpi[video]'"
    assert "pip install --force-reinstall --no-deps --no-cache-dir SOURCE" in how_to_build()
    assert how_to_install("gpu") == "Install it: pip install 'evolve-mpi[gpu]'."


def test_the_command_does_not_need_a_working_directory(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    os.rmdir(tmp_path / "gone")
    assert install_command("video") == f"pip install -e '{ROOT}[video]'"


@pytest.mark.parametrize(
    "broken", ["import missing_library", "raise OSError('libcudnn.so.9: cannot open')", "None.array_api"]
)
def test_an_extra_that_cannot_be_imported_is_an_error_of_its_setting(monkeypatch, tmp_path, broken):
    """A library raises any error if another library is missing or has another version."""
    (tmp_path / "a_broken_library.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"^films: expected a working PyAV, got .*Install it: pip install .*video\]'"):
        import_extra("a_broken_library", "video", "films", "PyAV")
