"""Optional libraries: each comes with an extra of this package (`pip install 'evolve-mpi[plot]'`)."""

import importlib
from typing import Any

from evolve.errors import InputError, how_to_install, one_line


def import_extra(module: str, extra: str, argument: str, title: str = "") -> Any:
    """Return a module of a library that comes with an extra.

    Args:
        module: Its dotted name.
        extra: The extra of this package that installs it.
        argument: The setting, or the feature, that needs it.
        title: What to call the library, by default the module.

    Raises:
        InputError: The library is not installed, or cannot be imported; says how to install it.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError) as error:  # mpi4py finds no MPI, say
        raise InputError(argument, f"a working {title or module}", one_line(error), how_to_install(extra)) from None
