"""The programs `runner` and `oxydra`, which are one."""

import gc
import os
import resource
import signal
import sys
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""Imports make objects that stay: at Python's 700 a tenth of a command's time went into looking
through them."""

_INTERRUPTED: Final = 128 + signal.SIGINT
_AGAIN_S: Final = 0.02


def main() -> None:
    """Run the command line and exit.

    While it is imported, and when it has ended, Ctrl-C ends the process without a word: Python
    would show where it was interrupted.
    """
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # a core dump would hold keys, and what is said
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
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
            sys.unraisablehook = _interrupt_again
            signal.signal(signal.SIGINT, signal.default_int_handler)
        run()
    except KeyboardInterrupt:  # before a command began, or after it ended
        sys.exit(_INTERRUPTED)
    except RuntimeError as error:  # Ctrl-C while a class was made, before Python 3.12
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        sys.exit(_INTERRUPTED)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupt_again(found: "UnraisableHookArgs") -> None:
    """Ctrl-C in the middle of what cannot raise, such as a destructor or a callback of a library in
    another language, would be lost. It comes again a moment later."""
    if found.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(found)
        return
    again = threading.Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


if __name__ == "__main__":
    main()
