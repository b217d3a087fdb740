"""evolve doctor: print what works in this installation, and what is missing."""

from functools import partial

from evolve import display
from evolve.analysis import progress
from evolve.analysis.installation import examine
from evolve.cli.app import App, launch
from evolve.cli.parser import Parser
from evolve.errors import sanitize


def _parser() -> Parser:
    return Parser(
        "evolve.doctor",
        "Say what works in this installation and what is missing, with the commands that install it: MPI and its "
        "launcher, kernels, cores, engines, a GPU and its compiler, extras. It starts two ranks and opens a GPU, "
        "each for at most two minutes. The exit code is 1 if an installed part does not work.",
        "evolve doctor",
    )


def _body(app: App, argv: list[str]) -> int:
    _parser().parse_args(argv)
    found = examine(app.transport, app.stop.check)
    rows = [(each.part, each.state, sanitize(each.text, 2000)) for each in found]
    print(display.table(rows, progress.width(), left=(0, 1, 2)))
    return int(any(each.state == "broken" for each in found))


main = partial(launch, "doctor", _body)
