"""Every key of the table does what its row says, at both sizes, and is written where a person looks for it.

A new row needs an entry here: what must be different after it was pressed.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tui.lab_files import another
from tui.stage import MINE, SCENES, Act, Scene, runs, staged
from tui.train_files import BEGAN_UNIX, copy_training

from specpanel.app.tui.keymap import Keymap
from specpanel.app.tui.keys import KEYS, SCOPE_TITLES, Key, Scope
from specpanel.app.tui.panel import MODE_TABLE
from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.screens.logs import LogsScreen
from specpanel.app.tui.widgets.latency_chart import LatencyChart

SIZES = [(120, 40), (80, 24)]
PAGE = Path(__file__).parents[2] / "docs" / "panel.md"

# Where a key is pressed, where that is not the scope's own scene.
SCENES_OF_SCOPES: dict[Scope, str] = {
    "launch": "launch",
    "live": "live",
    "zoom": "live-zoomed",
    "sessions": "sessions",
    "replay": "replay",
    "logs": "logs",
    "lab": "lab",
    "labnew": "lab-new",
    "train": "train",
    "trainlog": "train-log",
    "trainstart": "train-start",
    "mla": "mla",
    "panel": "live",
    "switcher": "switcher",
    "quit": "quit",
    "stop": "stop",
    "stopping": "stopping",
    "mark": "mark",
    "confirm": "confirm",
    "error": "error",
    "help": "help",
    "why": "why",
    "devices": "live-devices",
}
# Keys that do something only after others: those are pressed first.
BEFORE = {
    "launch.toggle": ["up"],  # on a heading it folds
    "live.histogram": ["right_square_bracket", "right_square_bracket"],
    "launch.previous": ["right_square_bracket"],
    "launch.undo": ["c", "escape", "down", "enter", *"9", "enter"],
    "launch.reset": ["down"],
    "launch.up": ["down"],
    "launch.page_up": ["pagedown"],
    "launch.cancel": ["slash"],
    "live.shorter": ["plus"],
    "zoom.later": ["left", "left"],
    "replay.whole": ["p"],
    "panel.live": ["1"],
    "sessions.compare": ["space", "down", "space"],
    "sessions.up": ["down"],
    "sessions.page_up": ["down"],
    "sessions.first": ["down"],
    "sessions.close": ["space"],
    "lab.up": ["down"],
    "lab.page_up": ["down"],
    "lab.first": ["down"],
    "lab.report": ["down"],
    "lab.close": ["enter"],
    "labnew.up": ["down"],
    "labnew.start": ["space", "down"],
    "logs.next": ["home"],
    "logs.down": ["home"],
    "logs.page_down": ["home"],
    "logs.end": ["home"],
    "logs.clear": ["slash", *"weights", "enter"],
    "train.earlier": ["z"],
    "train.later": ["z", "left", "left"],
    "train.leave": ["z"],
    "train.up": ["down"],
    "train.page_up": ["down"],
    "train.first": ["down"],
    "mla.write": ["down", "right"],
    "mla.reset": ["down", "right"],
    "switcher.up": ["down"],
    "switcher.page_up": ["pagedown"],
}


# Keys that need devices: pressed in the tests of those.
ELSEWHERE = {
    "live.devices_down": "test_sixty_four_devices_scroll",
    "live.devices_up": "test_sixty_four_devices_scroll",
    "mla.calibrate": "test_a_calibration_tells_how_far_it_is_and_can_be_cancelled",
    "devices.down": "test_d_opens_all_that_is_known_and_d_closes_it",
    "devices.up": "test_d_opens_all_that_is_known_and_d_closes_it",
    "devices.page_down": "test_d_opens_all_that_is_known_and_d_closes_it",
    "devices.page_up": "test_d_opens_all_that_is_known_and_d_closes_it",
}
# What else must have happened before a key makes a difference.
ARRANGED: dict[str, Callable[[], object]] = {
    "sessions.reread": lambda: runs("another"),
    "lab.reread": another,
    "train.reread": lambda: copy_training("train-tiny/another", began_unix=BEGAN_UNIX + 60),
}
# Keys after which nothing is left to press another key on: each has a panel of its own.
LAST = {"panel.quit", "quit.leave", "quit.stop", "stopping.hurry"}


def pressed(key: Key) -> list[str]:
    return key.keys.split(",")


def state(act: Act) -> tuple[object, ...]:
    """What a person, or who waits for an answer, can tell the difference of."""
    notices = [notice.message for notice in act.panel._notifications]
    picture = [list(strip) for strip in act.panel.screen._compositor.render_strips()]
    return (type(act.panel.screen), picture, notices, act.panel.clipboard, act.panel._exit)


async def begin_again(act: Act, scene: Scene) -> None:
    """Back to the scene from whatever a key has led to."""
    while len(act.panel.screen_stack) > 1:
        act.panel.pop_screen()
    if act.panel.current_mode != scene.mode:
        await act.panel.switch_mode(scene.mode)
    await act.pilot.pause()
    await act.press("escape", "escape")
    live = act.panel.screen
    if isinstance(live, LaunchScreen):
        live.shelf.forget(MINE.name)
        live.form.unfolded = set()
        live.form.rows.cursor = 1
        live.view, live.side_shown = "form", True
        live._arrange()
        live._show_draft()
    if isinstance(live, LogsScreen):
        if live.source == "panel":
            await act.press("tab")
        live.wrap = False
    if isinstance(live, LiveScreen):
        live.frozen, live.selected = False, 0
        if live.zoomed:
            live.action_zoom()
        for chart in live.charts:
            if isinstance(chart, LatencyChart) and chart.as_histogram:
                chart.toggle_histogram()
    await scene.play(act)


async def makes_a_difference(act: Act, key: Key, patience_s: float) -> bool:
    await act.press(*BEFORE.get(key.id, []))
    ARRANGED.get(key.id, lambda: None)()
    act.panel.clear_notifications()
    act.panel.copy_to_clipboard("")
    await act.pilot.pause()
    before = state(act)
    await act.press(pressed(key)[0])
    deadline = time.monotonic() + patience_s
    while state(act) == before and time.monotonic() < deadline:
        await act.pilot.pause(0.02)
    return state(act) != before


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scope", SCENES_OF_SCOPES)
async def test_f20_each_key_makes_a_difference_that_can_be_seen(
    scope: Scope, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = SCENES[SCENES_OF_SCOPES[scope]]
    keys = [key for key in KEYS if key.scope == scope and key.id not in ELSEWHERE]
    alone = [key for key in keys if key.id in LAST]
    together = [key for key in keys if key not in alone]
    without = []
    if together:
        async with staged(scene, size, monkeypatch) as act:
            for key in together:
                if key is not together[0]:
                    await begin_again(act, scene)
                if not await makes_a_difference(act, key, 3.0):
                    alone.append(key)  # what came before may have left something in its way
    for key in alone:
        async with staged(scene, size, monkeypatch) as act:
            if not await makes_a_difference(act, key, 20.0):
                without.append(key.id)
    assert without == []


def test_every_alias_of_a_key_is_bound_to_the_same_action() -> None:
    bound: dict[str, set[str]] = {}
    for key in KEYS:
        for name in pressed(key):
            bound.setdefault(f"{key.scope} {name}", set()).add(key.id)
    assert all(len(ids) == 1 for ids in bound.values()), bound


def test_keys_that_are_tested_elsewhere_are_tested_there() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("*.py"))
    assert ELSEWHERE.keys() <= {key.id for key in KEYS}
    assert [name for name in ELSEWHERE.values() if f"def {name}(" not in text] == []


def test_every_scope_has_a_title_and_a_scene() -> None:
    scopes = {key.scope for key in KEYS}
    assert scopes == set(SCOPE_TITLES) == set(SCENES_OF_SCOPES)
    assert {scope for mode in MODE_TABLE for scope in mode.scopes} <= scopes


def test_every_key_stands_in_the_documentation_with_its_id() -> None:
    text = PAGE.read_text(encoding="utf-8")
    missing = [key.id for key in KEYS if f"| `{key.id}` | {key.help} |" not in text]
    assert missing == [], "python scripts/panel_page.py writes them"


def test_f20_no_screen_has_a_key_that_is_not_in_the_table() -> None:
    from specpanel.app.tui.panel import Panel
    from specpanel.app.tui.screens import dialogs, sessions_dialogs, switcher, why
    from specpanel.app.tui.screens.base import PanelScreen

    classes: list[type] = [Panel, switcher.SwitcherScreen]
    seen: list[type] = [PanelScreen, dialogs.Dialog]
    while seen:
        one = seen.pop()
        seen += one.__subclasses__()
        classes.append(one)
    ids = {key.id for key in KEYS}
    assert sessions_dialogs.ConfirmScreen in classes
    assert why.WhyScreen in classes
    for one in classes:
        for binding in one.__dict__.get("BINDINGS", []):
            scrolls = "scroll" in binding.action
            assert binding.id in ids or scrolls or binding.key == "ctrl+q", (one, binding)


def test_the_key_line_shows_only_keys_of_the_table() -> None:
    shown = {key.shown for key in KEYS}
    for mode in MODE_TABLE:
        for keys, _ in Keymap().line_entries(*mode.scopes, "panel"):
            assert set(keys.split(" ")) <= shown
