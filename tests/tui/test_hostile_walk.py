"""Hostile strings (S09) on every screen, in names, titles, tables and notices: none is parsed as markup."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tui import stage
from tui.stage import BROKEN, SCENES, Act, Scene, staged
from tui.test_hostile_text import HOSTILE

from specpanel.app.tui.screens import launch, switcher
from specpanel.app.tui.screens.dialogs import ErrorScreen, MarkScreen, QuitScreen, StopScreen
from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.core.errors import ConfigurationError, LaunchError
from specpanel.core.session.choices import Choice
from specpanel.core.session.history import recordings_folder
from specpanel.core.settings.files import ProfileFile
from specpanel.core.settings.overrides import Overrides
from specpanel.core.settings.paths import logs_folder

Walk = Callable[[Act, str], Awaitable[None]]


async def _notice(act: Act, text: str) -> None:
    act.panel.clear_notifications()
    act.panel.say(f"say {text}")
    await act.sees(f"say {text}")


async def _live(act: Act, text: str) -> None:
    [*_, last] = stage.SERVING
    assert last.speculation is not None
    server = replace(last.server, drafter=text, name=text, model=text)
    await act.shows(replace(last, server=server, speculation=replace(last.speculation, note=text)))
    await act.sees(text)


WALKS: dict[str, tuple[Scene, Walk]] = {
    "live": (SCENES["live"], _live),
    "notices": (SCENES["live"], _notice),
}


@pytest.mark.parametrize("name", WALKS)
async def test_f01_s09_on_live_and_in_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, walk = WALKS[name]
    async with staged(scene, (160, 40), monkeypatch) as act:
        for text in HOSTILE:
            await walk(act, text)


def _letters(text: str) -> str:
    """Without blanks and frames: a dialog breaks its lines where it must."""
    return "".join(text.replace("│", "").split())


async def test_f01_s09_in_every_dialog(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "  ".join(HOSTILE)
    dialogs = (
        ErrorScreen(LaunchError(text, "fix"), has_log=True),
        ErrorScreen(LaunchError("message", text)),
        QuitScreen(text),
        StopScreen(text, ""),
        StopScreen(None, text),
        ConfirmScreen("Really?", (text,), "do it"),
        ConfirmScreen("Really?", (), text),
    )
    async with staged(SCENES["live-empty"], (160, 40), monkeypatch) as act:
        for dialog in dialogs:
            act.panel.push_screen(dialog)
            await act.pilot.pause()
            assert _letters(text) in _letters(act.text), dialog
            act.panel.pop_screen()
        for one in HOSTILE[:4]:  # what a dialog has only one row for
            act.panel.push_screen(MarkScreen(one))
            await act.pilot.pause()
            assert one in act.text
            act.panel.pop_screen()


async def test_f01_f02_s09_in_the_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    def log() -> None:
        logs_folder().mkdir(parents=True)
        text = "".join(f"{line}\n" for line in HOSTILE)
        (logs_folder() / "[bold].log").write_text(text, encoding="utf-8")

    async def play(act: Act) -> None:
        await act.sees("[bold].log", *HOSTILE)

    async with staged(Scene(play, log, "logs"), (120, 40), monkeypatch) as act:
        await act.press("w")
        await act.sees(*HOSTILE)


async def test_f01_s09_in_the_list_of_sessions_and_its_details(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def runs() -> None:
        folder = recordings_folder()
        folder.mkdir(parents=True)
        for number, text in enumerate(HOSTILE):
            table = {"schema_version": 1, "kind": "summary", "profile": text, "model": text}
            line = json.dumps({**table, "drafter": text[:12], "failure": text, "legs": []})
            (folder / f"run-{number:02}.ndjson").write_text(line + "\n", encoding="utf-8")

    async def play(act: Act) -> None:
        await act.sees(*(text[:30] for text in HOSTILE))

    async with staged(Scene(play, runs, "sessions"), (120, 50), monkeypatch) as act:
        for _ in HOSTILE:
            shown = [text for text in HOSTILE if act.text.count(text[:30]) > 1]
            assert shown, act.text
            await act.press("down")


async def test_f01_s09_among_profiles_and_in_what_preflight_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def catalogue(*, overrides: Overrides) -> list[ProfileFile]:
        [file] = [file for file in stage.catalogue() if file.name == BROKEN]
        return [
            replace(
                file, name=f"{number}{text[:9]}", error=ConfigurationError(text, f"Mend {text}")
            )
            for number, text in enumerate(HOSTILE)
        ]

    async def play(act: Act) -> None:
        screen = act.panel.screen
        assert isinstance(screen, LaunchScreen)
        await act.until(lambda: screen.shelf.files)

    scene = Scene(play, stage.profiles, "launch")
    async with staged(scene, (120, 40), monkeypatch) as act:
        monkeypatch.setattr(launch, "catalogue", catalogue)
        await act.press("2", "1")
        screen = act.panel.screen
        assert isinstance(screen, LaunchScreen)
        await act.until(lambda: len(screen.shelf.files) == len(HOSTILE))
        for text in HOSTILE:
            while not (screen.shelf.chosen or "").endswith(text[:9]):
                await act.press("right_square_bracket")
            await act.sees(f"Mend {text}"[:48])


async def test_f01_s09_in_the_switcher(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuple(Choice("profile", text[:30], text, error=text) for text in HOSTILE)

    async def play(act: Act) -> None:
        monkeypatch.setattr(switcher, "choices", lambda *_: found)
        await act.press("s")
        await act.sees(*(text[:28] for text in HOSTILE[:12]))

    async with staged(Scene(play), (160, 40), monkeypatch) as act:
        for text in HOSTILE:
            await act.press("enter")
            await act.sees(f"✗ {text}"[:40])
            await act.press("escape", "down")
