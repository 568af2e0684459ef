"""How long the trainer waits after a step, as a file says that another process writes.

Standard library alone; the file is read anew several times a second, so that a shorter wait counts at once.
"""

import time
from pathlib import Path

LONGEST_WAIT_S = 60.0
_LOOK_S = 0.1


def wait_as_told(place: Path) -> None:
    """Leave the machine to the server beside it for as many seconds as ``place`` holds; none without it."""
    began_s = time.monotonic()
    while True:
        try:
            wanted_s = min(LONGEST_WAIT_S, float(place.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return
        if time.monotonic() - began_s >= wanted_s:
            return
        time.sleep(_LOOK_S)
