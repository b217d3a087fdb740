"""Ctrl-C at every line of a module that a function executes."""

import signal
import sys
from collections.abc import Callable, Iterator


def interrupted_at_each_line(function: Callable[[], object], module: str) -> Iterator[int]:
    """Call a function again and again, with SIGINT at its first traced line in a module, at its second, and so on.

    Yield the number of the line event after each call that KeyboardInterrupt has ended.
    """
    number = 0
    while True:
        left = number

        def trace(frame, event, _argument):
            def at_line(_frame, event, _argument):
                nonlocal left
                if event in ("line", "return"):
                    left -= 1
                    if left == -1:
                        signal.raise_signal(signal.SIGINT)
                return at_line

            return at_line if frame.f_code.co_filename.endswith(module) else None

        # A shell lets jobs in the background ignore SIGINT.
        earlier, handler = sys.gettrace(), signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.settrace(trace)
        try:
            function()
            is_interrupted = False
        except KeyboardInterrupt:
            is_interrupted = True
        finally:
            sys.settrace(earlier)
            signal.signal(signal.SIGINT, handler)
        if is_interrupted:
            yield number
        if left >= 0:  # the function has ended before this line
            return
        number += 1
