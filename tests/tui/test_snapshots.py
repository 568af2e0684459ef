"""Each screen at both sizes, row by row, as the files in ``snapshots/`` have it.

    RENEW_SNAPSHOTS=1 python -m pytest tests/tui/test_snapshots.py

writes them anew; look at what ``git diff`` says before it is committed.
"""

import difflib
import os
import time
from pathlib import Path

import pytest
from tui.stage import SCENES, Act, staged

SNAPSHOTS = Path(__file__).with_name("snapshots")
SIZES = [(120, 40), (80, 24)]
REST_S = 10.0


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCENES)
async def test_a_screen_looks_as_it_did(
    name: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = SNAPSHOTS / f"{name}-{size[0]}x{size[1]}.txt"
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    renews = bool(os.environ.get("RENEW_SNAPSHOTS"))
    async with staged(SCENES[name], size, monkeypatch) as act:
        rows = await _rows_at_rest(act, None if renews else before)
    assert [len(rows), {len(row) for row in rows}] == [size[1], {size[0]}]
    shown = _text(rows)
    if renews:
        SNAPSHOTS.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
        before = shown
    if shown != before:
        diff = difflib.unified_diff(before.splitlines(), shown.splitlines(), path.name, "now", n=1)
        pytest.fail("\n".join([*diff, "RENEW_SNAPSHOTS=1 writes it anew"]), pytrace=False)


async def _rows_at_rest(act: Act, wanted: str | None) -> list[str]:
    """The picture once it is the one that is wanted, or, where none is, once it stays as it is.

    Panes that were given another size draw a moment later, and on a busy machine that is longer than a pause.
    """
    deadline = time.monotonic() + REST_S
    rows = act.rows
    while time.monotonic() < deadline and (wanted is None or _text(rows) != wanted):
        before = rows
        await act.pilot.pause(0.1)
        rows = act.rows
        if wanted is None and rows == before:
            break
    return rows


def _text(rows: list[str]) -> str:
    return "\n".join(row.rstrip() for row in rows) + "\n"


def test_there_is_no_snapshot_of_a_screen_that_is_gone() -> None:
    wanted = {f"{name}-{width}x{height}.txt" for name in SCENES for width, height in SIZES}
    assert {path.name for path in SNAPSHOTS.iterdir()} == wanted
