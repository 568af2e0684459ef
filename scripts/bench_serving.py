"""A real server of a profile, for what the other scripts measure on it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

COMMAND = (sys.executable, "-m", "specpanel.app")


@contextmanager
def serving(profile: str, port: int) -> Iterator[str]:
    """The address of a server of ``profile`` (a name or a file); it is ended afterwards."""
    flags = ("--port", str(port), "--requests", "1", "--keep-running", "--no-record", "--json")
    started = subprocess.run(
        [*COMMAND, "run", profile, *flags], stdin=subprocess.DEVNULL, capture_output=True
    )
    launched = [json.loads(line) for line in started.stdout.splitlines() if b'"launched"' in line]
    try:
        if started.returncode:
            raise RuntimeError(started.stderr.decode()[-2000:])
        yield f"http://127.0.0.1:{port}"
    finally:  # a run that failed may have left it running, too
        for one in launched:
            stop = [*COMMAND, "stop", one["name"]]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            subprocess.run(stop, check=not started.returncode, **quiet)
