"""`evolve run --report`: the page beside the run files, or a refusal before any work."""

from pathlib import Path
from unittest.mock import ANY, Mock

import pytest

from evolve import environments, store
from evolve.analysis import html
from evolve.cli import report
from evolve.cli.parser import command_line
from evolve.config import EnvOptions
from evolve.errors import InputError, Stopped

TINY = ("-p", 4, "-r", 1, "-g", 2, "-d", 2, "--set", "held_out_episodes=2", "--set", "env.max_episode_steps=8",
        "-o", "out")  # fmt: skip


def test_a_page_with_the_film_lies_beside_the_run_file(call, tmp_path, monkeypatch):
    done = call("run", *TINY, "--report")
    assert (done.code, done.err) == (0, "")
    where, page, verify = done.out.splitlines()[-3:]
    assert where == "Run file: out/seed-0.h5"
    assert page == "Report with film: out/report.html"
    assert verify.startswith("Verify it: ")
    assert "data:video/mp4;base64," in (tmp_path / "out" / "report.html").read_text()
    write_page = Mock(return_value=True)
    monkeypatch.setattr(report, "write_page", write_page)
    again = call("run", *TINY, "--resume", "--report")  # nothing is left to do but the page
    assert (again.code, page in again.out.splitlines()) == (0, True)
    write_page.assert_called_once_with(ANY, [Path("out/seed-0.h5")], Path("out/report.html"))


def test_an_exact_walker_is_filmed_for_the_page(call, absent, tmp_path):
    walker = (*TINY, "-e", "BipedalWalker-v3", "--engine", "exact", "--report")
    done = call("run", *walker)
    assert (done.code, done.err) == (0, "")
    assert "Report with film: out/report.html" in done.out.splitlines()
    assert "data:video/mp4;base64," in (tmp_path / "out" / "report.html").read_text()
    absent("pygame")
    done = call("run", *walker, "-o", "other")
    assert (done.code, "[box2d]" in done.err, (tmp_path / "other").exists()) == (2, True, False)


def test_a_sweep_has_one_page_in_its_directory_in_the_order_of_its_files(call, monkeypatch):
    write_page = Mock(return_value=False)
    monkeypatch.setattr(report, "write_page", write_page)
    done = call("run", *TINY, "--set", "sweep.strategy.survivors=[2, 1]", "-e", "toys:Switches-v0", "--report").ok()
    assert "Report: out/report.html" in done.out.splitlines()  # that environment cannot be drawn
    files = [Path(f"out/survivors={number}/seed-0.h5") for number in (1, 2)]
    write_page.assert_called_once_with(ANY, files, Path("out/report.html"))
    assert store.run_files([Path("out")]) == files


@pytest.mark.parametrize(
    ("library", "cure"),
    [
        ("jinja2", "[report]"),
        ("matplotlib", "[plot]"),
        ("av", "[video]"),
        ("PIL", "[video]"),
        ("pygame", "pip install"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_missing_library_is_named_before_any_work(call, absent, tmp_path, library, cure, dry):
    absent(library)
    call("run", *TINY, "--report", *dry).refused(cure)
    assert not (tmp_path / "out").exists()


def test_a_broken_library_ends_an_exact_run_after_its_first_generation(call, tmp_path, monkeypatch):
    broken = InputError("report", "a working Jinja2", "a broken one")
    monkeypatch.setattr(html, "check_libraries", Mock(side_effect=broken))
    done = call("run", *TINY, "--engine", "exact", "--report")
    expected = "evolve.run: report (--report): expected a working Jinja2, got a broken one."
    assert (done.code, done.err) == (2, f"{expected} 1 generation is complete in out/seed-0.h5.\n")
    assert store.read(tmp_path / "out" / "seed-0.h5").num_generations == 1


def test_a_page_that_cannot_be_written_is_refused_before_any_work(call, tmp_path):
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    call("run", *TINY, "--report").refused("out/report.html cannot be written: it is a directory.")
    assert not (tmp_path / "out" / "seed-0.h5").exists()


@pytest.mark.cold
def test_a_report_that_is_stopped_can_be_made_later(call, monkeypatch):
    monkeypatch.setattr(report, "write_page", Mock(side_effect=Stopped("stopped by SIGTERM")))
    done = call("run", *TINY, "--report")
    later = command_line("report", "out/seed-0.h5", "-o", "out/report.html")
    assert done.code == 75
    assert f"stopped by SIGTERM: the runs are complete, but not the report; make it with: {later}\n" in done.err


def test_a_dry_run_says_where_the_page_would_be(call, tmp_path):
    done = call("run", *TINY, "--report", "--dry-run")
    assert (done.code, done.out.splitlines()[-1]) == (0, "Report: out/report.html")
    assert not list(tmp_path.iterdir())


def test_which_environments_can_be_drawn():
    environments.draw_without_display()
    assert environments.try_drawing(EnvOptions())
    assert not environments.try_drawing(EnvOptions(id="toys:Switches-v0"))
