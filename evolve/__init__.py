"""evolve: neuroevolution over MPI, with the same bits on any number of ranks."""

import signal
import sys

__version__ = "0.1.0"

_asked_for = sys.orig_argv[-len(sys.argv)].removeprefix("-m") if sys.argv[:1] == ["-m"] else ""
if _asked_for.startswith("evolve.") and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # one of our commands: interrupted in its imports, it just ends
