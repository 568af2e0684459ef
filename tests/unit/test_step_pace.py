"""The trainer's wait between steps: as a file says, and no longer once it says less."""

import threading
import time
from pathlib import Path

import pytest

from specpanel.core.inside.step_pace import wait_as_told


@pytest.mark.parametrize("content", [None, "0.0", "soon", "-3", ""])
def test_without_a_wait_in_the_file_the_next_step_begins_at_once(
    tmp_path: Path, content: str | None
) -> None:
    place = tmp_path / "pace"
    if content is not None:
        place.write_text(content)
    began_s = time.monotonic()
    wait_as_told(place)
    assert time.monotonic() - began_s < 20


def test_it_waits_as_long_as_it_is_told_to(tmp_path: Path) -> None:
    place = tmp_path / "pace"
    place.write_text("0.3")
    began_s = time.monotonic()
    wait_as_told(place)
    assert time.monotonic() - began_s >= 0.3


def test_a_wait_ends_when_the_file_goes(tmp_path: Path) -> None:
    place = tmp_path / "pace"
    place.write_text("60")
    waiting = threading.Thread(target=wait_as_told, args=(place,))
    waiting.start()
    place.unlink()
    waiting.join(timeout=30)
    assert not waiting.is_alive()
