"""The MLA screen by keys: tiers follow the settings, advice is tried, written, taken back; it measures."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from tui import mla_files
from tui.mla_files import SPARSE, made_up_calibration
from tui.test_hostile_text import HOSTILE

from specpanel.app.tui.charts.glyphs import ASCII, BRAILLE, Glyphs
from specpanel.app.tui.mla_map import measured_gain, spaced
from specpanel.app.tui.mla_sources import Source, read_sources
from specpanel.app.tui.mla_store import saved_calibration
from specpanel.app.tui.mla_study import LENGTHS
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens import mla
from specpanel.app.tui.screens.mla import MlaScreen
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.core.monitor.feed import Feed
from specpanel.core.settings.files import find_profile, read_profile, write_profile
from specpanel.kernels.calibrate import dump
from specpanel.kernels.dims import PRESETS
from specpanel.kernels.errors import MLAError

DEADLINE_S = 30.0
WIDE, NARROW, SMALLEST = (120, 40), (80, 24), (60, 15)


def letters(text: str) -> str:
    """Without blanks and frames."""
    return "".join(text.replace("│", "").split())


class Stage:
    def __init__(self, panel: Panel, pilot: Pilot[None]) -> None:
        self.panel = panel
        self.pilot = pilot

    @property
    def screen(self) -> MlaScreen:
        found = self.panel.screen
        assert isinstance(found, MlaScreen)
        return found

    @property
    def text(self) -> str:
        rows = self.panel.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in rows)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"never came true:\n{self.text}"
            await self.pilot.pause(0.02)
        await self.pilot.pause()

    async def sees(self, *texts: str) -> None:
        """Waits until all are shown or said; a pane, a dialog or a notice breaks lines where it must."""

        def there() -> bool:
            said = [notice.message for notice in self.panel._notifications]
            everything = letters("".join([self.text, *said]))
            return all(letters(text) in everything for text in texts)

        await self.until(there)


@asynccontextmanager
async def staged(
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, int] = WIDE,
    *,
    sources: tuple[Source, ...] | None = mla_files.SOURCES,
    glyphs: Glyphs = BRAILLE,
) -> AsyncIterator[Stage]:
    """The panel on the MLA screen. ``sources`` None: those of this test's own folders."""
    if sources is not None:
        monkeypatch.setattr(mla, "read_sources", lambda: sources)
    monkeypatch.setattr(mla, "drift_now", lambda: mla_files.NO_DRIFT)
    panel = Panel(Feed(), first_mode="mla", auto_tick=False, glyphs=glyphs)
    async with panel.run_test(size=size, notifications=True) as pilot:
        stage = Stage(panel, pilot)
        await stage.until(lambda: stage.screen.study is not None)
        yield stage


async def test_tiers_follow_the_settings_as_they_are_turned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        assert "masked MHA: never" in stage.text
        assert "KV cache dtype fp8 is quantised" in stage.text
        await stage.press("down", "down", "left", "left", "left")  # KV cache: back to auto
        assert "masked MHA: never" not in stage.text
        assert "4,096 tokens: masked MHA" in stage.text
        await stage.press("up", "up", "left")  # GPU: H200
        assert "H200 is sm90" in stage.text


async def test_the_brackets_tell_why_for_each_length(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(monkeypatch) as stage:
        while LENGTHS[stage.screen.tiers.cursor] > 128:
            await stage.press("left_square_bracket")
        assert "128 tokens: sparse MQA, because it counts as decoding" in stage.text
        while LENGTHS[stage.screen.tiers.cursor] < 2048:
            await stage.press("right_square_bracket")
        assert "2,048 tokens: dense MHA" in stage.text


async def test_advice_is_tried_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    async with staged(monkeypatch) as stage:
        await stage.press("a")
        study = stage.screen.study
        assert study is not None
        assert study.tried.kv_dtype == "bfloat16"
        assert study.changed
        await stage.press("r")
        study = stage.screen.study
        assert study is not None
        assert not study.changed


async def test_what_was_tried_is_written_into_the_profile_once_it_was_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write_profile(SPARSE)
    async with staged(monkeypatch) as stage:
        await stage.press("w")
        await stage.sees("nothing differs from the profile")
        await stage.press("a", "a", "w")
        question = stage.panel.screen
        assert isinstance(question, ConfirmScreen)
        assert question._sentences == (
            "engine.arguments: --max-num-batched-tokens 4096 → --max-num-batched-tokens 32768",
            "mla.kv_cache_dtype: fp8 → bfloat16",
        )
        await stage.sees("mla.kv_cache_dtype: fp8 → bfloat16")
        await stage.press("n")
        assert read_profile(path).mla.kv_cache_dtype == "fp8"
        await stage.press("w", "y")
        await stage.until(lambda: read_profile(path).mla.kv_cache_dtype == "bfloat16")
        written = read_profile(path)
        assert written.engine.arguments == ("--max-num-batched-tokens", "32768")
        assert written.drafter == SPARSE.drafter


async def test_a_preset_is_written_under_another_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch, sources=None) as stage:
        source = stage.screen.source
        assert source is not None
        assert source.file is not None
        assert source.file.origin == "preset"
        await stage.press("down", "down", "down", "down", "right", "w", "y")
        name = f"{source.file.name}-mla"
        await stage.until(
            lambda: any(one.name.startswith(f"{name}:") for one in stage.screen.sources)
        )
        assert read_profile(find_profile(name)).engine.arguments == (
            "--max-num-batched-tokens",
            "2048",
        )


@pytest.mark.parametrize("size", [WIDE, NARROW, SMALLEST], ids=str)
async def test_a_model_without_mla_says_why_and_offers_what_is_built_in(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(monkeypatch, size, sources=mla_files.SOURCES_WITHOUT_MLA) as stage:
        await stage.sees("llama does not use multi-head latent", "looks at a built-in geometry")
        await stage.press("w")
        await stage.press("p")
        await stage.sees("dense MHA", "masked MHA")
        assert stage.screen.source is not None
        assert stage.screen.source.name == "deepseek-v3.2"


@pytest.mark.parametrize("size", [NARROW, SMALLEST], ids=str)
async def test_every_pane_can_be_reached_where_there_is_room_for_few(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(monkeypatch, size) as stage:
        seen = stage.text
        for _ in range(4):
            await stage.press("v")
            await stage.pilot.pause()
            seen += stage.text
        for text in ("Serving", "vLLM takes", "Advice", "time of MQA over MHA", "vLLM on B200"):
            assert text in seen
        for key in ("2", "5"):  # it comes back as it was left
            await stage.press(key)
        assert "specpanel" in stage.text


async def test_without_colours_the_maps_are_made_of_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch, glyphs=ASCII) as stage:
        await stage.press("p", "v")
        assert all(char.isascii() for char in stage.text)
        body = stage.text.split("vLLM on B200")[1]
        assert "D" in body
        assert "o" in stage.text  # the line where both are equally fast


async def test_hostile_names_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in HOSTILE[::3]:
        source = Source(text, None, MLAError(f"say {text}", f"do {text}"))
        async with staged(monkeypatch, sources=(source,)) as stage:
            await stage.sees(f"say {text}", f"do {text}")


async def test_an_alarm_says_what_differs_from_the_vllm_that_is_mirrored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with staged(monkeypatch) as stage:
        monkeypatch.setattr(mla, "drift_now", lambda: ("the installed vLLM 0.33.0 differs", ""))
        stage.screen._work("mla-drift", stage.screen._look_at_vllm)
        await stage.sees("the installed vLLM 0.33.0 differs", "another vLLM")


# A small program that speaks as the measuring process does.
MEASURES = """
import json, sys
sys.stdin.readline()
def tell(kind, **content): print(json.dumps({"kind": kind, **content}), flush=True)
tell("stage", text="importing torch", done=0, of=0)
tell("stage", text="measuring: 4 heads, 512 new tokens after 0", done=3, of=10)
times = {"masked_mha": {"median_ms": 1.5}, "sparse_mqa": {"median_ms": 2.5}}
tell("cell", heads=4, query=512, context=0, timings=times)
if sys.stdin.readline() == "":
    sys.exit(130)
"""
ENDS = MEASURES.replace(
    'if sys.stdin.readline() == "":\n    sys.exit(130)', 'tell("calibration", text=open(%r).read())'
)


def program(tmp_path: Path, body: str) -> str:
    file = tmp_path / "measures.py"
    file.write_text(body)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{file}"\n')
    python.chmod(0o755)
    return str(python)


async def test_a_calibration_tells_how_far_it_is_and_can_be_cancelled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = program(tmp_path, MEASURES)
    monkeypatch.setattr(MlaScreen, "_python", lambda _: python)
    async with staged(monkeypatch) as stage:
        await stage.press("c")
        await stage.sees("512 new tokens after 0", "3/10", "MHA      1.50 ms", "c Cancel")
        await stage.press("c")
        await stage.sees("the measurement was cancelled")
        assert "c Cancel" not in stage.text
        assert stage.screen.map.calibration is None


async def test_leaving_the_panel_ends_what_measures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = program(tmp_path, MEASURES)
    monkeypatch.setattr(MlaScreen, "_python", lambda _: python)
    async with staged(monkeypatch) as stage:
        await stage.press("c")
        await stage.sees("3/10")
        measurement = stage.screen._measurement
        assert measurement is not None
    child = measurement._child
    assert child is not None
    assert await asyncio.to_thread(child.wait, DEADLINE_S) != 0


async def test_what_was_measured_is_kept_and_drawn_beside_vllms_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = tmp_path / "calibration.json"
    text.write_text(dump(made_up_calibration()))
    python = program(tmp_path, ENDS % str(text))
    monkeypatch.setattr(MlaScreen, "_python", lambda _: python)
    async with staged(monkeypatch) as stage:
        await stage.press("e")
        await stage.sees("nothing was measured here")
        await stage.press("c")
        await stage.sees("measured and kept", "ours: calibrated", "vLLM's table (B200)", "AMD EPYC")
        assert saved_calibration(PRESETS["deepseek-v3.2"].dims) == made_up_calibration()
        await stage.press("e")
        await stage.sees("vLLM on B200")


async def test_a_measuring_process_that_dies_is_told_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = program(tmp_path, "import sys\nsys.exit('no room in memory')")
    monkeypatch.setattr(MlaScreen, "_python", lambda _: python)
    async with staged(monkeypatch) as stage:
        await stage.press("c")
        await stage.sees("ended with status 1: no room in memory")


def test_sources_are_profiles_with_sparse_mla_first_and_what_is_built_in_last(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    write_profile(SPARSE)
    model = {"model": str(tmp_path)}
    write_profile(
        SPARSE.model_validate({"name": "llama", "target": model, "drafter": {"method": "none"}})
    )
    found = read_sources()
    assert found[0].name == "sparse: deepseek-ai/DeepSeek-V3.2"
    assert found[0].dims == PRESETS["deepseek-v3.2"].dims
    llama = next(source for source in found if source.name.startswith("llama:"))
    assert llama.problem is not None
    assert "no kv_lora_rank" in llama.problem.message
    assert found[-1].file is None


def test_a_map_shows_thresholds_that_hold_for_one_length_alone() -> None:
    assert {1024, 2048, 4096, 8192} <= set(spaced(128, 65536, 30))
    assert list(spaced(128, 65536, 30)) == sorted(spaced(128, 65536, 30))


def test_nothing_is_drawn_where_nothing_was_measured() -> None:
    gain = measured_gain([cell for cell in made_up_calibration().cells if cell.context == 0])
    assert gain(64, 0) is None
    assert gain(4096, 0) is None
    assert gain(512, 512) is None
    between = gain(300, 0)
    low, high = gain(256, 0), gain(512, 0)
    assert between is not None
    assert low is not None
    assert high is not None
    assert min(low, high) <= between <= max(low, high)
