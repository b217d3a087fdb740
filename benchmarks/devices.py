"""When a GPU pays: steps of small to large networks on the host and on a GPU, then whole rollouts.

    python benchmarks/devices.py -o speed.png
    python benchmarks/devices.py --budget 60 -e BipedalWalker-v3 --engine exact
    python benchmarks/devices.py --costs    # registers, instructions, the host's time; without a GPU

Measurements that are too large for the budget are left out, and the tables say so. `docs/gpu.md` has the results.
"""

import json
import sys
from pathlib import Path

from device_parts.costs import costs
from device_parts.measurement import BUDGET, check_figure, draw, hooks, measure_devices

from evolve.cli.app import App, launch
from evolve.cli.parser import Parser
from evolve.errors import InputError

_ENVIRONMENT = "CartPole-v1", "gymnasium"
"""The values of --env and --engine, if only the other one is given."""


def _parser() -> Parser:
    made = Parser(
        "benchmarks/devices.py",
        __doc__.partition("\n")[0],
        "python benchmarks/devices.py -o speed.png",
        "python benchmarks/devices.py --budget 60 -e BipedalWalker-v3 --engine exact",
    )
    made.add_argument("-e", "--env", metavar="ID", help="environment of the rollouts")
    made.add_argument("--engine", metavar="NAME", help="gymnasium, envpool or exact")
    made.add_argument("--budget", type=float, metavar="SECONDS", default=BUDGET, help="about how long it may take")
    made.add_argument("--costs", action="store_true", help="only the costs that need no GPU to be measured")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    made.add_argument("-o", "--figure", type=Path, metavar="OUT", help="draw it, as OUT.png, .svg or .pdf")
    return made


def _body(app: App, argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if not options.budget >= 0:  # also nan
        raise InputError("--budget", "at least 0", options.budget)
    check_figure(options.figure)
    if options.costs and options.figure is not None:
        raise InputError("--figure", "no figure with --costs, which prints a table only", options.figure)

    show, check = hooks(app, options.json)
    if options.costs:
        found = costs(show)
        if options.json:
            print(json.dumps(found))
        return 0
    asked = options.env is not None or options.engine is not None
    environment = (options.env or _ENVIRONMENT[0], options.engine or _ENVIRONMENT[1]) if asked else None
    found = measure_devices(options.budget, show, check, environment)
    if options.figure is not None:
        draw(found, options.figure)
        show(f"\n{options.figure}")
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(launch("devices", body=_body))
