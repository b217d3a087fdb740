"""`evolve run --report`: a page with the film beside the run files, refused before any work where it cannot be made."""

import os
from collections.abc import Sequence
from pathlib import Path

from evolve import environments
from evolve.analysis import html
from evolve.analysis.video.libraries import library
from evolve.cli.app import App
from evolve.cli.next_steps import command_line
from evolve.cli.report import write_page
from evolve.errors import Stopped, sanitize
from evolve.store.disk import check_writable
from evolve.training.plan import PlannedRun


def page_of(runs: Sequence[PlannedRun]) -> Path:
    """Return where the page of runs goes: into the directory that holds all their files."""
    return Path(os.path.commonpath([run.path.parent for run in runs]) or ".") / "report.html"


def check_report(runs: Sequence[PlannedRun], dry: bool = False) -> None:
    """Raise InputError where the page of runs, or a film for it, cannot be made for want of a library or a place.

    dry: whether nothing may be written, not even to find out whether it can be.
    """
    html.check_libraries()
    for name in ("PIL.ImageFont", "av", "imageio.v3"):
        library(name)
    page = page_of(runs)
    if page.parent.exists() and not dry:
        check_writable(page, html.FORMATS)
    for env in {run.experiment.config.env.model_dump_json(): run.experiment.config.env for run in runs}.values():
        environments.check_drawable(env)


def write_report(app: App, runs: Sequence[PlannedRun]) -> str:
    """Write the page of runs that have ended; return the line that says where it is. Raises Stopped."""
    page = page_of(runs)
    files = [run.path for run in runs]
    try:
        has_film = write_page(app, files, page)
    except Stopped as why:
        later = command_line("report", *(files if len(files) == 1 else [page.parent]), "-o", page)
        raise Stopped(f"stopped by {why}: the runs are complete, but not the report; make it with: {later}") from None
    return sanitize(f"Report{' with film' if has_film else ''}: {page}", 4000)
