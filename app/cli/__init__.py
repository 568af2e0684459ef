"""The command line. Each command is a file; what it needs is imported when it runs."""

import sys


def main() -> None:
    """Run ``specpanel`` with the arguments of this process.

    Everything after a lone ``--`` is for vLLM and is kept away from our own parser.
    """
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        # The quick way for scripts that ask often: no parser is needed for this.
        from importlib.metadata import version

        sys.stdout.write(f"specpanel {version('specpanel')}\n")
        return
    from specpanel.app.cli.root import app

    for_vllm: list[str] = []
    if "--" in arguments:
        cut = arguments.index("--")
        arguments, for_vllm = arguments[:cut], arguments[cut + 1 :]
    try:
        app(args=arguments, obj=tuple(for_vllm), prog_name="specpanel")
    except KeyboardInterrupt:
        sys.exit(130)
