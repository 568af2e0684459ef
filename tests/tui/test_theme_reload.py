"""User themes are taken while the panel runs: a change is seen, a broken file is named and harms nothing."""

import os
from pathlib import Path

from textual.app import Notification
from textual.color import Color
from tui.synthetic import synthetic_frames
from tui.test_themes import MINIMAL

from specpanel.app.tui.panel import Panel
from specpanel.app.tui.theming import UserThemes
from specpanel.core.monitor.feed import Feed


def write(path: Path, text: str, second: int) -> None:
    """Writes a file whose time of change is ``second``, however coarse the file system's clock is."""
    path.write_text(text)
    os.utime(path, (second, second))


def notices(panel: Panel) -> list[str]:
    found: list[Notification] = list(panel._notifications)
    return [notice.message for notice in found]


async def test_a_change_to_the_theme_in_use_recolours_the_screen(tmp_path: Path) -> None:
    write(tmp_path / "mine.toml", MINIMAL, 1)
    feed = Feed()
    for frame in synthetic_frames(30):
        feed.publish(frame)
    panel = Panel(feed, auto_tick=False, theme="mine", theme_folder=tmp_path)
    async with panel.run_test(size=(120, 40)) as pilot:
        panel.tick()
        await pilot.pause()
        assert panel.screen.styles.background == Color.parse("#000000")
        write(tmp_path / "mine.toml", MINIMAL.replace("#000000", "#101820"), 2)
        await panel.reload_themes()
        await pilot.pause()
        assert panel.screen.styles.background == Color.parse("#101820")
        strips = panel.screen._compositor.render_strips()
        grounds = {
            segment.style.bgcolor.get_truecolor().hex
            for strip in strips
            for segment in strip
            if segment.style is not None and segment.style.bgcolor is not None
        }
        assert "#101820" in grounds
        assert "#000000" not in grounds


async def test_a_broken_theme_is_named_with_its_key_once_and_the_old_one_stays(
    tmp_path: Path,
) -> None:
    write(tmp_path / "mine.toml", MINIMAL, 1)
    panel = Panel(Feed(), auto_tick=False, theme="mine", theme_folder=tmp_path)
    async with panel.run_test(size=(120, 40)) as pilot:
        write(tmp_path / "mine.toml", MINIMAL.replace("#ff8800", "[/orange]"), 2)
        await panel.reload_themes()
        await panel.reload_themes()
        await pilot.pause()
        said = [notice for notice in notices(panel) if "mine.toml" in notice]
        assert len(said) == 1
        assert "colors.primary" in said[0]
        assert panel.theme == "mine"
        assert panel.current_theme.primary == "#ff8800"


async def test_a_new_file_becomes_a_theme_to_choose(tmp_path: Path) -> None:
    panel = Panel(Feed(), auto_tick=False, theme_folder=tmp_path / "themes")
    async with panel.run_test(size=(120, 40)):
        (tmp_path / "themes").mkdir()
        write(tmp_path / "themes" / "mine.toml", MINIMAL, 1)
        await panel.reload_themes()
        assert "mine" in panel.available_themes


def test_nothing_is_read_again_while_nothing_changes(tmp_path: Path) -> None:
    write(tmp_path / "mine.toml", MINIMAL, 1)
    themes = UserThemes(tmp_path)
    themes.load()
    assert themes.changes() is None
    write(tmp_path / "mine.toml", MINIMAL, 2)
    assert themes.changes() is not None
    (tmp_path / "mine.toml").unlink()
    assert themes.changes() is None
