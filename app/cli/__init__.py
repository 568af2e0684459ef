"""The command line. Each command is a file; what it needs is imported when it runs."""

import os
import signal
import sys


def _parsed(arguments: list[str], for_vllm: tuple[str, ...]) -> None:
    """Have the parser do what the arguments say."""
    from specpanel.app.cli.root import app

    stdout = sys.stdout
    try:
        app(args=arguments, obj=for_vllm, prog_name="specpanel")
    except SystemExit as left:
        # The parser puts another stream there where the reader of its help has gone: no error.
        if left.code == 1 and sys.stdout is not stdout:
            sys.exit(0)
        raise


def main() -> None:
    """Run ``specpanel`` with the arguments of this process.

    Everything after a lone ``--`` is for vLLM and is kept away from our own parser.
    """
    for name in ("stdin", "stdout", "stderr"):  # closed by who started us: nothing is read or told
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r+", encoding="utf-8"))  # noqa: SIM115 - to the end
    try:
        _run()
        sys.stdout.flush()  # here it can still be told; at the end of the process it cannot
    except BrokenPipeError:
        pass  # its reader has gone
    except OSError as error:
        if error.filename is not None:
            raise
        sys.stderr.write(
            f"specpanel: standard output cannot be written: {error.strerror or error}.\n"
        )
        sys.exit(1)
    finally:
        _let_go_of_stdout()


def _let_go_of_stdout() -> None:
    """What cannot be written any more must not become an error at the end of the process."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    # Until a command has handlers of its own: a polite kill while things are being imported is Ctrl-C.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # not under nohup
            signal.signal(number, signal.default_int_handler)
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        # The quick way for scripts that ask often: no parser is needed for this.
        from importlib.metadata import version

        sys.stdout.write(f"specpanel {version('specpanel')}\n")
        return
    for_vllm: list[str] = []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, for_vllm = arguments[:cut], arguments[cut + 1 :]
    try:
        from specpanel.app.cli.shortcut import shortcut

        opens = shortcut(arguments) if not for_vllm else None
        if opens is not None:
            opens()
            return
        _parsed(arguments, tuple(for_vllm))
    except KeyboardInterrupt:
        sys.exit(130)
