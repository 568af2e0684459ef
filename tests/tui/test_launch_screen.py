"""The Launch screen, driven by keys alone, over real profiles in files and a small server of our own."""

import asyncio
import json
import os
import shlex
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.engine.workbench import Workbench, lives
from textual.pilot import Pilot

from specpanel.app.tui.charts.glyphs import ASCII, Glyphs
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.core.monitor.feed import Feed
from specpanel.core.session.desk import Desk
from specpanel.core.settings.files import (
    PRESETS,
    catalogue,
    find_profile,
    read_profile,
    write_profile,
)
from specpanel.core.settings.paths import profiles_folder
from specpanel.core.settings.profile import Profile

SIZES = [(120, 40), (80, 24)]
DEADLINE_S = 60.0
PORT = 8321


@pytest.fixture
def bench(
    tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    """A model folder, a server that starts in a moment, and one profile of ours for both."""
    bench = Workbench(tmp_path / "bench")
    for name, value in bench.environment({"start_s": 0.1}).items():
        monkeypatch.setenv(name, value)
    write_profile(bench.profile(port=PORT))
    try:
        yield bench
    finally:
        bench.clear()


class Driver:
    """A panel on its Launch screen, and the keys for it."""

    def __init__(self, panel: Panel, pilot: Pilot[None]) -> None:
        self.panel = panel
        self.pilot = pilot

    @property
    def launch(self) -> LaunchScreen:
        assert isinstance(self.panel.screen, LaunchScreen)
        return self.panel.screen

    @property
    def rows(self) -> list[str]:
        return [strip.text for strip in self.panel.screen._compositor.render_strips()]

    @property
    def text(self) -> str:
        return "\n".join(self.rows)

    def row(self, title: str) -> str:
        """The row of the form with this title."""
        return next(row for row in self._form_rows if title in row)

    @property
    def current(self) -> str:
        """The row of the form that the cursor is on."""
        return next(row for row in self._form_rows if row.startswith("▸"))

    @property
    def _form_rows(self) -> list[str]:
        return [row.strip("│").rstrip() for row in self.launch.form.rows.text_rows()]

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        names = {" ": "space", "-": "minus", "/": "slash", "[": "left_square_bracket"}
        await self.press(*(names.get(char, char) for char in text))

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self.panel.tick()
                await self.pilot.pause(0.03)  # leaves the processor to what is waited for

    async def go_to(self, title: str) -> None:
        """Moves the cursor down to a row."""
        rows = self.launch.form.rows
        places = [getattr(entry, "title", entry.section.upper()) for entry in rows.entries]
        place = next(number for number, text in enumerate(places) if title in text)
        steps = place - rows.cursor
        await self.press(*["down" if steps > 0 else "up"] * abs(steps))
        assert title in self.current

    async def choose(self, name: str) -> None:
        names = self.launch.shelf.names
        steps = names.index(name) - names.index(self.launch.shelf.chosen or "")
        key = "right_square_bracket" if steps > 0 else "left_square_bracket"
        await self.press(*[key] * abs(steps))
        assert self.launch.shelf.chosen == name


@asynccontextmanager
async def opened(
    size: tuple[int, int] = (120, 40), *, desk: Desk | None = None, glyphs: Glyphs | None = None
) -> AsyncIterator[Driver]:
    feed = desk.feed if desk else Feed()
    panel = Panel(feed, desk=desk, first_mode="launch", auto_tick=False, glyphs=glyphs)
    async with panel.run_test(size=size, notifications=True) as pilot:
        driver = Driver(panel, pilot)
        await driver.until(lambda: driver.launch.shelf.files)
        await pilot.pause()
        try:
            yield driver
        finally:
            if desk is not None:
                await desk.close(leave=False)


@pytest.mark.parametrize("size", SIZES)
async def test_a_profile_is_chosen_mended_and_started_by_keys_alone(
    bench: Workbench, size: tuple[int, int]
) -> None:
    desk = Desk(Feed(), traffic=False)
    async with opened(size, desk=desk) as driver:
        await driver.choose("bench")
        assert driver.row("draft tokens").split()[-1] == "4"
        await driver.press("slash")
        await driver.type("proposed")
        await driver.press("enter")
        assert "prompt lookup" not in driver.text
        await driver.go_to("draft tokens")
        await driver.press("enter")
        assert "enter Take it" in driver.rows[-1]
        await driver.type("three")
        assert "not a whole number" in driver.text  # while it is being typed
        await driver.press("enter")
        assert "✗" in driver.current
        assert "three" in driver.current
        assert "not a whole number" in driver.current

        await driver.press("escape", "up", "up", "up", "up", "ctrl+r")
        assert "draft tokens" in driver.current
        assert desk.busy is None

        await driver.press("enter")
        await driver.type("6")
        assert "✗" not in "".join(driver.launch.help_pane.text_rows())
        await driver.press("enter")
        assert "*" in driver.current
        assert "6" in driver.current
        assert "✗" not in driver.current
        await driver.press("ctrl+r")
        assert isinstance(driver.panel.screen, LiveScreen)
        await driver.until(lambda: "serving" in driver.rows[0])
        assert desk.current is not None
        assert desk.current.profile is not None
        assert desk.current.profile.drafter.draft_tokens == 6
        record = desk.current.record
        assert record is not None
        assert record.pid is not None
        await driver.press("1")
        await driver.until(lambda: "serving" in driver.rows[0])
    assert not lives(record.pid)


@pytest.mark.parametrize("size", SIZES)
async def test_every_size_is_filled_and_names_what_matters(
    bench: Workbench, size: tuple[int, int]
) -> None:
    async with opened(size) as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        rows = driver.rows
        assert len(rows) == size[1]
        assert {len(row) for row in rows} == {size[0]}
        for word in ("bench", "TARGET", "DRAFTER", "MLA", "ENGINE", "TRAFFIC", "draft tokens (K)"):
            assert word in driver.text, word
        assert "Folder or hub id of the target model." in driver.text
        assert "^r Start" in rows[-1]
        assert ("PRESETS" in driver.text) is (size[0] >= 100)
        count = len(catalogue())
        assert (f"other profile 1/{count}" in driver.text) is (size[0] < 100)
        assert ("--port" in driver.text) is (size[0] >= 100)
        await driver.press("v")
        assert ("--port" in driver.text) is (size[0] < 100)


async def test_the_reduced_size_keeps_form_help_and_keys(bench: Workbench) -> None:
    async with opened((60, 15)) as driver:
        rows = driver.rows
        assert "TARGET" in driver.text
        assert "Folder or hub id" in rows[-2]
        assert "^r Start" in rows[-1]
        for key in ("pagedown", "down", "pagedown", "up", "pageup"):
            await driver.press(key)
            assert driver.current  # the cursor never leaves the screen


async def test_the_command_follows_the_edits_marks_the_current_row_and_is_what_is_copied(
    bench: Workbench,
) -> None:
    async with opened() as driver:

        def marked() -> str:
            shown = driver.launch.command._shown_rows
            return " ".join(text for row in shown for text, ink in row if ink == "tab-on")

        await driver.until(lambda: driver.launch._current_outlook())
        await driver.go_to("draft tokens")
        assert marked() == '"num_speculative_tokens": 4'
        await driver.press("enter", "7", "enter")
        await driver.until(lambda: marked() == '"num_speculative_tokens": 7')
        await driver.press("y")
        outlook = driver.launch._current_outlook()
        assert outlook is not None
        assert outlook.prepared is not None
        argv = outlook.prepared.command.argv
        words = shlex.split(driver.panel.clipboard.replace("\\\n", " "))
        assert words[-len(argv) :] == list(argv)
        assert "in the clipboard" in driver.text
        await driver.press("u")
        await driver.until(lambda: marked() == '"num_speculative_tokens": 4')
        assert "*" not in driver.current
        await driver.go_to("port")
        assert marked() == f"--port {PORT}"
        await driver.go_to("TRAFFIC")
        assert marked() == ""
        await driver.press("ctrl+r")
        assert "no server to start" in driver.text  # this panel has no desk


async def test_settings_are_unfolded_turned_by_space_and_given_back_by_delete(
    bench: Workbench,
) -> None:
    async with opened() as driver:
        assert "quantization" not in driver.text
        await driver.press("slash")
        await driver.type("quantis")
        assert "quantization" in driver.text  # by its help, though it is folded
        await driver.press("escape")
        assert "quantization" not in driver.text
        await driver.go_to("ENGINE")
        assert "rest on their default" in driver.text
        await driver.press("enter")
        await driver.go_to("enforce eager")
        for expected in ("yes", "no", "vLLM decides"):
            await driver.press("space")
            assert expected in driver.current
        await driver.go_to("per request metrics")
        assert "yes" in driver.current
        await driver.press("enter")
        assert "no" in driver.current
        await driver.press("delete")
        assert "yes" in driver.current


async def test_the_drafters_rows_follow_the_method_chosen_from_a_list(bench: Workbench) -> None:
    async with opened() as driver:
        await driver.go_to("method")
        await driver.press("enter")
        assert "p_eagle" in driver.text
        await driver.press("down", "escape")
        assert "ngram" in driver.current
        await driver.press("enter")
        await driver.press("down", "down", "enter")
        assert "suffix" in driver.current
        assert "prompt lookup" not in driver.text
        await driver.press("space")  # on a list it does nothing
        await driver.press("u")
        assert "prompt lookup" in driver.text or "ngram" in driver.current
        await driver.press("enter", "up", "enter")
        assert "none" in driver.current
        assert "draft tokens" not in driver.text


@pytest.mark.parametrize("size", SIZES)
async def test_a_broken_profile_shows_its_reason_and_hides_no_other(
    bench: Workbench, size: tuple[int, int]
) -> None:
    hostile = "[/foo] [b"
    folder = profiles_folder()
    (folder / "broken.toml").write_text("[target]\nmodel = 'm'\n[drafter]\nmethod = 'nope'\n")
    (folder / f"{hostile.replace('/', '')}.toml").write_text("[target]\nmodel = 'm'\n")
    (folder / "torn.toml").write_text("[target\n")
    async with opened(size) as driver:
        await driver.choose("broken")
        assert "'nope' is no drafter" in driver.text
        await driver.press("ctrl+r")
        assert "cannot be started" in driver.text
        driver.panel.clear_notifications()
        await driver.choose("[foo] [b")
        assert "[foo] [b" in driver.text
        assert "cannot be the name of a profile" in driver.text
        await driver.press("w", "c", "enter", "space", "delete", "u", "y")  # nothing to act on
        await driver.choose("torn")
        assert "is not TOML" in driver.text
        await driver.choose("bench")
        assert "draft tokens" in driver.text
        if size[0] >= 100:
            for name in ("broken", "torn", "demo-ngram", "[foo] [b"):
                assert name in driver.text, name
            assert sum("✗" in row for row in driver.launch.profiles.text_rows()) == 3


async def test_hostile_values_are_shown_character_for_character(bench: Workbench) -> None:
    profile = bench.profile(port=PORT)
    texts = {
        "served_name": "[/foo] [b + 3",
        "quantization": "[@click=app.bell]x[/]",
        "model": "\\[x] 名前 [日本語] $primary {x}",
    }
    target = profile.target.model_copy(update=texts)
    write_profile(profile.model_copy(update={"target": target}), overwrite=True)
    async with opened((240, 40)) as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        for name, text in texts.items():
            assert text in driver.row(name.replace("_", " ")), name
        command = " ".join("".join(driver.launch.command.text_rows()).replace("│", "").split())
        assert shlex.quote(texts["served_name"]) in command
        await driver.go_to("served name")
        await driver.press("enter", "end", "x", "enter")
        assert f"{texts['served_name']}x" in driver.current


async def test_secrets_of_the_environment_are_not_shown(bench: Workbench) -> None:
    write_profile(
        bench.profile(port=PORT, environment={"HF_TOKEN": "hush-hush", "A": "1"}), overwrite=True
    )
    async with opened() as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        assert "HF_TOKEN=***" in driver.row("environment")
        assert "hush-hush" not in driver.text


async def test_what_the_environment_says_holds_in_the_form(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECPANEL_PORT", "8299")
    async with opened() as driver:
        await driver.choose("bench")
        draft = driver.launch.draft
        assert draft is not None
        assert draft.profile is not None
        assert draft.profile.engine.port == 8299


async def test_a_wrong_variable_is_told_and_hides_no_profile(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECPANEL_PROT", "8299")
    async with opened() as driver:
        assert "bench" in driver.launch.shelf.names
        await driver.until(lambda: "SPECPANEL_PROT" in driver.text)


@pytest.mark.parametrize("size", [(80, 24)])
async def test_what_is_edited_is_written_and_a_preset_stays_as_it_is(
    bench: Workbench, size: tuple[int, int]
) -> None:
    async with opened(size) as driver:
        await driver.choose("demo-ngram")
        before = (PRESETS / "demo-ngram.toml").read_text()
        await driver.go_to("draft tokens")
        await driver.press("enter", "5", "enter", "w", "enter")
        assert "is a preset" in driver.text
        driver.panel.clear_notifications()
        await driver.press("w", "end")
        await driver.type("-mine")
        await driver.press("enter")
        await driver.until(lambda: driver.launch.shelf.chosen == "demo-ngram-mine")
        written = read_profile(find_profile("demo-ngram-mine"))
        assert written.drafter.draft_tokens == 5
        assert (PRESETS / "demo-ngram.toml").read_text() == before
        assert not (profiles_folder() / "demo-ngram.toml").exists()
        await driver.choose("demo-ngram")
        assert driver.row("draft tokens").split()[-1] == "4"


async def test_our_own_profile_is_written_over_and_a_clone_never_is(bench: Workbench) -> None:
    async with opened() as driver:
        await driver.choose("bench")
        await driver.go_to("draft tokens")
        await driver.press("enter", "5", "enter", "ctrl+s", "enter")
        await driver.until(lambda: "written" in driver.text)
        assert read_profile(find_profile("bench")).drafter.draft_tokens == 5
        driver.panel.clear_notifications()
        await driver.press("c", "enter")
        await driver.until(lambda: driver.launch.shelf.chosen == "bench-copy")
        assert read_profile(find_profile("bench-copy")).drafter.draft_tokens == 5
        driver.panel.clear_notifications()
        await driver.choose("bench")
        await driver.press("c", "enter")
        await driver.until(lambda: "already a profile called bench-copy" in driver.text)
        await driver.press("c", "home", "slash", "enter")
        assert "cannot be the name of a profile" in driver.text


async def test_a_finding_with_a_setting_is_gone_to_instead_of_started(
    bench: Workbench, tmp_path: Path
) -> None:
    profile = bench.profile(port=PORT)
    target = profile.target.model_copy(update={"model": str(tmp_path / "nowhere")})
    write_profile(profile.model_copy(update={"target": target}), overwrite=True)
    desk = Desk(Feed(), traffic=False)
    async with opened(desk=desk) as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        await driver.go_to("port")
        await driver.press("ctrl+r")
        assert "nowhere" in driver.text
        assert desk.busy is None
        assert "model" in driver.current


async def test_a_key_ends_a_finding_and_undo_brings_it_back(bench: Workbench) -> None:
    profile = bench.profile(port=PORT)
    target = profile.target.model_copy(update={"max_model_len": 4096})
    write_profile(profile.model_copy(update={"target": target}), overwrite=True)
    async with opened() as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        assert "4096 is above" in driver.text
        await driver.press("f")
        assert "2048" in driver.current
        assert "max model len" in driver.current
        await driver.until(lambda: driver.launch._current_outlook())
        assert "4096 is above" not in driver.text
        await driver.press("f")
        assert "nothing that a setting could mend" in driver.text
        await driver.press("u")
        assert "4096" in driver.row("max model len")


async def test_a_start_in_spite_of_errors_is_forced_by_a_key_of_its_own(bench: Workbench) -> None:
    profile = bench.profile(port=PORT)
    target = profile.target.model_copy(update={"max_model_len": 4096})
    write_profile(profile.model_copy(update={"target": target}), overwrite=True)
    desk = Desk(Feed(), traffic=False)
    async with opened(desk=desk) as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        await driver.press("ctrl+r")
        assert desk.busy is None
        assert "max model len" in driver.current
        await driver.press("F")
        await driver.until(lambda: "serving" in driver.rows[0])
        assert desk.current is not None
        assert desk.current.record is not None
        assert desk.current.record.forced == ("max-model-len",)


async def test_settings_of_mla_are_shown_where_the_model_has_it(bench: Workbench) -> None:
    def names(driver: Driver) -> set[str]:
        assert driver.launch.draft is not None
        return {row.name for row in driver.launch.draft.rows if row.section == "mla"}

    config = json.loads((bench.model / "config.json").read_text())
    async with opened() as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        assert names(driver) == {
            *("attention_backend", "backend_per_kind", "kv_cache_dtype", "block_size")
        }
    latent = {"model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    (bench.model / "config.json").write_text(json.dumps(config | latent))
    async with opened() as driver:
        await driver.until(lambda: "disable_mla" in names(driver))
        assert "force_sparse_mqa" not in names(driver)


async def test_another_profile_is_looked_at_while_the_edits_of_the_first_wait(
    bench: Workbench,
) -> None:
    async with opened((80, 24)) as driver:
        await driver.go_to("draft tokens")
        await driver.press("enter", "9", "enter", "tab")
        assert "PRESETS" in driver.text
        await driver.press("down")
        assert driver.launch.shelf.chosen == driver.launch.shelf.names[1]
        assert any("* bench" in row for row in driver.launch.profiles.text_rows())
        await driver.press("up", "enter")
        assert driver.row("draft tokens").split()[-1] == "9"
        await driver.press("enter", "5", "escape")
        assert driver.row("draft tokens").split()[-1] == "9"


async def test_an_ascii_terminal_gets_ascii(bench: Workbench) -> None:
    async with opened(glyphs=ASCII) as driver:
        await driver.until(lambda: driver.launch._current_outlook())
        await driver.press("down", "down")
        assert driver.text.isascii(), {char for char in driver.text if not char.isascii()}


async def test_resizing_rearranges_and_keeps_the_cursor(bench: Workbench) -> None:
    async with opened() as driver:
        await driver.go_to("draft tokens")
        for size in ((80, 24), (60, 15), (20, 5), (200, 60), (120, 40)):
            await driver.pilot.resize_terminal(*size)
            await driver.pilot.pause()
        assert "draft tokens" in driver.current
        assert isinstance(driver.launch.draft and driver.launch.draft.profile, Profile)
        assert os.environ["FAKE_VLLM"]
