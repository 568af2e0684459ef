"""How the command line says what went wrong: one sentence on standard error, and the exit status."""

import contextlib
import functools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

from specpanel.core.errors import ConfigurationError, ExitCode, SpecpanelError
from specpanel.core.printable import clipped, without_controls

# Modules whose commands do something while they print: without a reader they end before it is done.
_UNDER_WAY = frozenset(
    {
        *("run", "demo", "watch", "compare", "breakeven", "tune", "parity"),
        *("train", "promote", "mla_measure"),
    }
)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def talk(text: str) -> None:
    """A line for the person, on standard error: standard output belongs to results."""
    sys.stderr.write(f"{without_controls(text)}\n")


def row(text: str) -> None:
    """A row of a table on standard output: cut where a terminal ends, whole for a pipe or a file."""
    if sys.stdout.isatty():
        text = clipped(text, shutil.get_terminal_size().columns)
    sys.stdout.write(f"{text}\n")


def say(error: SpecpanelError) -> None:
    talk(f"specpanel: {error.message}.")
    if error.fix:
        talk(f"  {error.fix}")


def leave(error: SpecpanelError) -> NoReturn:
    """Say everything that went wrong and end with the exit status."""
    for each in (isinstance(error, ConfigurationError) and error.every) or (error,):
        say(each)
    raise SystemExit(int(error.exit_code))


def _unusable(error: OSError) -> SpecpanelError:
    return ConfigurationError(
        f"{error.filename} cannot be used: {error.strerror or error}",
        "XDG_STATE_HOME, XDG_DATA_HOME, XDG_CACHE_HOME and XDG_CONFIG_HOME choose other folders.",
    )


def guarded(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Turn our own errors, a broken pipe and Ctrl-C into exit statuses without a traceback.

    Who has read enough of a list makes no error; a measurement whose reader has gone was cut short.
    """

    @functools.wraps(command)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            result = command(*args, **kwargs)
            sys.stdout.flush()  # here it can still be told; at the end of the process it cannot
            return result
        except SpecpanelError as error:
            leave(error)
        except KeyboardInterrupt:
            raise SystemExit(int(ExitCode.INTERRUPTED)) from None
        except BrokenPipeError:
            # The reader went away (specpanel … | head): what is left in the buffer goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            cut_short = command.__module__.rpartition(".")[2] in _UNDER_WAY
            raise SystemExit(128 + signal.SIGPIPE if cut_short else 0) from None
        except OSError as error:
            # Anything else is turned into one of our errors where it is known: a file of ours has a
            # name, standard output has none.
            if error.filename is not None:
                leave(_unusable(error))
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            leave(SpecpanelError(f"standard output cannot be written: {error.strerror or error}"))

    return run
