"""The contest's page, from the files in benchmarks/results: `python benchmarks/contest.py`.

It writes the table into docs/contest.md, between its markers, and the figure to docs/assets/contest.svg. Files of each
version and size have a table of their own. The figure is of the newest version, in the size that most machines played.

`python benchmarks/contest.py --golden` plays the short runs by arrays, and writes evolve/analysis/contest/golden.json
anew. Do that only when the contest's work has a new version.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolve.analysis import contest, figures
from evolve.analysis.contest import ranking, results, session
from evolve.cli.contest import comparison
from evolve.cluster import Coordinator, Transport
from evolve.training import make_rollout

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "contest.md"
FIGURE = ROOT / "docs" / "assets" / "contest.svg"
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->"


def by_size(folder: Path = RESULTS) -> dict[tuple[int, str], list[Path]]:
    """Return the files by version and size; old versions and small sizes come first."""
    sizes: dict[tuple[int, str], list[Path]] = {
        (version, size): [] for version in contest.LEGS_OF_VERSION for size in contest.SIZES
    }
    for path in sorted(folder.glob("*.json")):
        found = results.read(path)
        sizes[found.contest, found.size].append(path)
    return {size: paths for size, paths in sizes.items() if paths}


def described(paths: Sequence[Path]) -> str:
    """Return the table of files of one version and size, and a line about each file."""
    lines = []
    for path in paths:
        found = results.read(path)
        system, repeats = found.system, [repeat for row in found.rows for repeat in row.repeats]
        loads = [repeat.load for repeat in repeats if repeat.load is not None]
        busy = f"load {min(loads):.1f} to {max(loads):.1f} meanwhile" if loads else "its load is not known"
        compiler = f"{system['kernel_compiler']}, {system['kernel_variant']}"
        machine = f"{system['cpu']}, {system['cores']} cores, {system['system_release']}"
        whole = ranking.benchmark_2020(found, found.best)
        lines.append(
            f"- {found.name} (`{path.name}`, {found.date[:10]}, {found.verdict}): {machine}; {compiler}; {busy}"
        )
        if whole:
            lines.append(f"  {found.best.title}, {whole}")
    return f"{comparison(ranking.rank(paths), markdown=True)}\n\n" + "\n".join(lines)


def page(text: str) -> str:
    """Return the text of the page with the tables of all results in place."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    found = by_size()
    parts = [f"### Contest {version}, size {size}\n\n{described(found[version, size])}" for version, size in found]
    return f"{before}{BEGIN}\n" + "\n\n".join(parts) + f"\n\n{END}{after}"


def make_golden() -> dict[str, Any]:
    """Return the contents of golden.json, from runs by array operations (NumPy), which define the results."""
    coordinator = Coordinator(Transport(), make_rollout)
    sizes: dict[str, Any] = {}
    for size in contest.SIZES.values():
        played = session.play_known(size, coordinator, "numpy")
        sizes[size.name] = {leg: {"digest": found.work.digest, "tags": found.tags} for leg, found in played.items()}
    return {"contest": contest.VERSION, "definition": contest.definition(), "sizes": sizes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", action="store_true", help="make the known digests anew")
    if parser.parse_args().golden:
        contest.GOLDEN_PATH.write_text(f"{json.dumps(make_golden(), indent=1)}\n", encoding="utf-8")
        return
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    newest = [paths for (version, _), paths in by_size().items() if version == contest.VERSION]
    widest = max(newest, key=lambda paths: len({results.read(path).name for path in paths}))
    figures.save(ranking.draw(ranking.rank(widest)), FIGURE)


if __name__ == "__main__":
    main()
