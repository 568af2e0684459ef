"""Keys of the user's own: read from a file, held against the table, and shown as they are."""

from pathlib import Path

import pytest
from tui.synthetic import synthetic_frames

from specpanel.app.tui.keymap import Keymap, keymap_of, read_keymap, settings_path, shown_key
from specpanel.app.tui.keys import KEYS
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.dialogs import HelpScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.core.monitor.feed import Feed


def test_without_a_file_the_keys_are_those_of_the_table(tmp_path: Path) -> None:
    keymap, complaints = read_keymap(tmp_path / "none.toml")
    assert complaints == []
    assert keymap.keys_of("live") == tuple(key for key in KEYS if key.scope == "live")


@pytest.mark.parametrize(
    ("written", "named", "shown"),
    [
        ("e", "e", "e"),
        ("E", "E", "E"),
        ("ctrl+e", "ctrl+e", "^e"),
        ("!", "exclamation_mark", "!"),
        ("%, f5", "percent_sign,f5", "%"),
        ("alt+x", "alt+x", "alt+x"),
        (",", "comma", ","),
    ],
)
def test_a_key_may_be_written_as_a_character_or_by_name(
    written: str, named: str, shown: str
) -> None:
    keymap, complaints = keymap_of({"launch.copy": written})
    assert complaints == []
    assert keymap.chosen["launch.copy"] == named
    assert keymap.shown("launch.copy") == shown


def test_keys_are_shown_short() -> None:
    assert [shown_key(key) for key in ("escape", "pageup", "space")] == ["esc", "pgup", "space"]


def test_what_is_wrong_is_named_with_its_file_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[keys]\n"live.frieze" = "f"\n"live.heat" = "z"\n"live.zoom" = 5\n'
        '"panel.mark" = "hyper+m"\n[keys.logs]\nwrap = "W"\n',
        encoding="utf-8",
    )
    keymap, complaints = read_keymap(path)
    assert dict(keymap.chosen) == {"logs.wrap": "W"}
    assert all(str(path) in complaint for complaint in complaints)
    told = "\n".join(complaints)
    assert "[keys] live.frieze: there is no such action" in told
    assert '[keys] live.heat = "z": z already means live.zoom there' in told
    assert "live.zoom = 5: write keys like" in told
    assert "panel.mark = 'hyper+m': write keys like" in told


def test_a_clash_is_told_only_where_both_keys_work() -> None:
    assert keymap_of({"logs.wrap": "z"})[1] == []
    assert keymap_of({"panel.mark": "z"})[1] != []  # works on Live, too
    swapped, complaints = keymap_of({"live.zoom": "h", "live.heat": "z"})
    assert complaints == []
    assert swapped.shown("live.zoom") == "h"


@pytest.mark.parametrize("text", ["[keys\n", 'keys = "x"\n', "\x00"])
def test_a_broken_file_is_one_complaint_and_no_crash(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    keymap, complaints = read_keymap(path)
    assert keymap == Keymap()
    assert len(complaints) == 1
    assert str(path) in complaints[0]


@pytest.mark.parametrize("size", [(120, 50), (80, 24)])
async def test_a_chosen_key_works_is_shown_and_the_old_one_does_nothing(
    size: tuple[int, int],
) -> None:
    path = settings_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('[keys]\n"live.freeze" = "%"\n"live.nothing" = "f"\n"panel.logs" = "9"\n')
    panel = Panel(Feed(), auto_tick=False)

    def text() -> str:
        return "\n".join(strip.text for strip in panel.screen._compositor.render_strips())

    async with panel.run_test(size=size, notifications=True) as pilot:
        for frame in synthetic_frames(30):
            panel.feed.publish(frame)
        panel.tick()
        await pilot.pause()
        live = panel.screen
        assert isinstance(live, LiveScreen)
        assert "live.nothing: there is no such action" in " ".join(
            notice.message for notice in panel._notifications
        )
        await pilot.press("space")
        assert not live.frozen
        await pilot.press("percent_sign")
        await pilot.pause()
        assert live.frozen
        assert "% Freeze" in text()
        assert " 9 " in text().splitlines()[0]
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(panel.screen, HelpScreen)
        assert "%       Freeze the picture" in text()
        await pilot.press("escape", "9")
        await pilot.pause()
        assert panel.current_mode == "logs"


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("lab", "D deletes a result; X stops a running experiment"),
        ("sessions", "D deletes a recording; X stops a running server"),
    ],
)
async def test_what_is_said_names_the_keys_as_they_are_bound(mode: str, said: str) -> None:
    path = settings_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[keys.{mode}]\nstop = "X"\ndelete = "D"\nreread = "R"\n', encoding="utf-8")
    panel = Panel(Feed(), first_mode=mode, auto_tick=False)

    def text() -> str:
        return "\n".join(strip.text for strip in panel.screen._compositor.render_strips())

    async with panel.run_test(size=(120, 40), notifications=True) as pilot:
        await pilot.pause()
        assert mode != "sessions" or "R reads again" in text()
        await pilot.press("D")
        await pilot.pause()
        assert said in text()
