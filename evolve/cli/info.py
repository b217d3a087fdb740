"""evolve info: what run files and champion files hold, in a few lines each."""

from evolve import store
from evolve.analysis.description import describe_file
from evolve.cli.app import App, launch
from evolve.cli.parser import Parser
from evolve.cli.run_files import file_argument, run_files
from evolve.errors import InputError, sanitize
from evolve.training import load_config, settings_text


def _parser() -> Parser:
    parser = Parser(
        "evolve.info",
        "Say what run files and champion files hold: experiment, generations, results, digest. Nothing is played.",
        "evolve info runs/CartPole-v1-hebbian-dag/seed-0.h5",
        "evolve info zoo/walker-es.champion --settings > experiment.toml",
    )
    files = "run files, complete or not, directories that hold them, or champion files"
    parser.add_argument("files", nargs="+", type=file_argument, metavar="FILE", help=files)
    settings = "print the experiment of one file with all its settings, ready to be run again"
    parser.add_argument("--settings", action="store_true", help=settings)
    return parser


def _body(_: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    files = run_files(options.files)
    if options.settings and len(files) > 1:
        raise InputError("FILE", "one file with --settings", f"{len(files)} of them")
    for number, file in enumerate(files):
        stored = store.read_any(file)
        if options.settings:
            print(settings_text(load_config(stored.header.config, str(file))), end="")
            continue
        print("\n" * (number > 0) + str(file))
        lines = describe_file(stored)
        width = max(map(len, lines))
        for name, text in lines.items():
            print(f"  {name:{width}}  {sanitize(text)}")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run the command on this rank; return its exit code."""
    return launch("info", _body, argv)
