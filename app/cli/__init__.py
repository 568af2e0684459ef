"""The command line. Each command is a file; what it needs is imported when it runs."""

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
