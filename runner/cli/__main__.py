"""The programs `runner` and `oxydra`, which are one."""

import gc
import signal
import sys
from typing import Final

_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""Imports make objects that stay: at Python's 700 a tenth of a command's time went into looking
through them."""

_INTERRUPTED: Final = 128 + signal.SIGINT


def main() -> None:
    """Run the command line and exit.

    While it is imported, and when it has ended, Ctrl-C ends the process without a word: Python
    would show where it was interrupted.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from runner.cli.app import main as run
    except ModuleNotFoundError as error:
        from wire.installation import adding

        if str(error.name).startswith("runner"):
            raise
        sys.exit(
            f"the packages of the command line are not installed: {error.name}\n"
            f"  fix: {adding('runner')}"
        )
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # before a command began, or after it ended
        sys.exit(_INTERRUPTED)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
