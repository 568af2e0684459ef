"""The one family of errors that specpanel raises on purpose.

Each carries what happened, why if that is known, and what to do about it. The command line prints the
message and the fix on standard error and leaves with ``exit_code``; the panel shows the same words.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a ``specpanel`` command's exit status means."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_RUNNING = 3
    INTERRUPTED = 130


class SpecpanelError(Exception):
    """Something went wrong that the user can understand and, mostly, mend.

    Args:
        message: one sentence, without a full stop at its end, that says what is wrong.
        fix: what to do about it, as an instruction; empty when there is nothing to do.
        exit_code: the exit status of a command that ends with this error.
    """

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, fix: str = "", *, exit_code: ExitCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        if exit_code is not None:
            self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}" if self.fix else self.message


class ConfigurationError(SpecpanelError):
    """The user asked for something that cannot be: a bad value, file, flag or combination.

    ``every`` holds each thing by itself where several are wrong and this tells the first of them.
    """

    exit_code = ExitCode.USAGE
    every: tuple["ConfigurationError", ...] = ()


class LaunchError(SpecpanelError):
    """vLLM could not be started, or ended before it was ready."""


class ServerUnreachableError(SpecpanelError):
    """Nothing answers at the address, or what answers is not a vLLM server."""


class NotRunningError(SpecpanelError):
    """The named server is not running."""

    exit_code = ExitCode.NOT_RUNNING


class RecordingError(SpecpanelError):
    """A recording cannot be read or written."""


class TrafficError(SpecpanelError):
    """So many requests failed that a measurement would say nothing."""
