"""Where vLLM's API servers, when there are several, share their metrics: a local folder of each launch.

prometheus_client keeps a memory-mapped file a process there. vLLM makes the folder below the folder for
temporary files; where that lies on a network volume ``/metrics`` answers 500 for ever.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
# The flags that decide on the number, from vllm/entrypoints/cli/serve.py (0.32.0): without the first there
# are as many API servers as data-parallel engines.
_API_SERVERS = ("--api-server-count", "-asc")
_ENGINES = ("--data-parallel-size", "-dp")


def several_api_servers(argv: Sequence[str]) -> bool:
    """Whether this command makes vLLM start more than one API server. Pure."""
    for names in (_API_SERVERS, _ENGINES):
        count = _whole(argv, names)
        if count is not None:
            return count > 1
    return False


def metrics_folder(server_id: str) -> Path:
    """The folder of this launch: in the runtime folder, else in memory, else the temporary one."""
    places = (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm")
    for place in places:
        if place and os.path.isdir(place) and os.access(place, os.W_OK):
            return Path(place) / f"specpanel-metrics-{server_id}"
    return Path(tempfile.gettempdir()) / f"specpanel-metrics-{server_id}"


def shared_metrics(
    argv: Sequence[str], environment: Mapping[str, str], server_id: str
) -> dict[str, str]:
    """The variable that a launch needs, its folder made; nothing where it needs none or the user set one.

    Raises:
        OSError: the folder cannot be made.
    """
    if VARIABLE in environment or not several_api_servers(argv):
        return {}
    folder = metrics_folder(server_id)
    folder.mkdir(mode=0o700, exist_ok=True)
    return {VARIABLE: str(folder)}


def forget_metrics(server_id: str) -> None:
    """Remove the folder of a launch that has ended, where there is one."""
    shutil.rmtree(metrics_folder(server_id), ignore_errors=True)


def _whole(argv: Sequence[str], names: Sequence[str]) -> int | None:
    found: int | None = None
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if (name.replace("_", "-") if name.startswith("--") else name) not in names:
            continue
        text = value if equals else next(iter(argv[place + 1 : place + 2]), "")
        found = int(text) if text.isdigit() else found
    return found
