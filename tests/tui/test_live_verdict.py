"""Live says whether speculation pays, from what was measured, and `b` measures what was not."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tui.stage import SERVING, Act

from specpanel.app.tui.charts.glyphs import ASCII, BRAILLE
from specpanel.app.tui.lab_baseline import compare_command
from specpanel.app.tui.lab_verdict import verdict_row, yielded
from specpanel.app.tui.panel import Panel
from specpanel.app.tui.screens.live import LiveScreen
from specpanel.app.tui.screens.sessions_dialogs import ConfirmScreen
from specpanel.core.engine.interpreter import probe_interpreter
from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.environment import read_environment
from specpanel.core.lab.standing import NO_BASELINE, Standing
from specpanel.core.lab.store import DONE, Store, store_path
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Interval
from specpanel.core.monitor.monitor import ServerFacts
from specpanel.core.session.desk import Desk
from specpanel.core.session.served import Served
from specpanel.core.settings.files import read_profile
from specpanel.core.settings.profile import Profile

MINE = Profile.model_validate(
    {
        "name": "mine",
        "target": {"model": "/models/smollm2"},
        "engine": {"python": sys.executable},
        "drafter": {"method": "ngram", "k": 4},
        "traffic": {"concurrency": 4},
    }
)


def keep_comparison(profile: Profile, ratio: float, load: int = 4) -> None:
    around = read_environment(profile, probe_interpreter(sys.executable)).table()
    between = {"estimate": ratio, "low": ratio - 0.1, "high": ratio + 0.1}
    with Store() as store:
        name = store.begin("compare", "a · b", {}, around, 0)
        for arm, one in (("a", profile.without_drafter()), ("b", profile)):
            store.add_run(name, arm, one.drafter.method, None, launch_fingerprint(one), {}, 1.0)
        pairing = {"a": "a", "b": "b", "overall": [{"value": ratio, "interval": between}]}
        store.finish(name, DONE, "", {"concurrency": load, "pairings": [pairing]})


@asynccontextmanager
async def live(profile: Profile | None, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Act]:
    desk = Desk(Feed())
    panel = Panel(desk.feed, desk=desk, auto_tick=False, glyphs=BRAILLE)
    async with panel.run_test(size=size, notifications=True) as pilot:
        act = Act(panel, pilot)
        desk.servers.current = Served(ServerFacts(url="http://127.0.0.1:8250"), profile)
        await act.shows(*SERVING)
        try:
            yield act
        finally:
            desk.servers.current = None
            await desk.close(leave=True)


async def keeps_coming(act: Act, text: str) -> None:
    """Frames come until the row says so."""

    def said() -> bool:
        act.panel.feed.publish(SERVING[-1])
        return text in act.text

    await act.until(said)


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 15)])
async def test_a_measured_ratio_stands_there_with_its_interval_and_where_it_comes_from(
    size: tuple[int, int],
) -> None:
    keep_comparison(MINE, 0.7)
    async with live(MINE, size) as act:
        await keeps_coming(act, "✓ pays  0.70 × (0.60 … 0.80)")
        assert "measured at 4 at a time" in act.text


async def test_new_results_are_seen_when_an_experiment_has_ended_and_not_before() -> None:
    keep_comparison(MINE, 0.7)
    async with live(MINE) as act:
        await keeps_coming(act, "✓ pays")
        keep_comparison(MINE, 1.4)
        await act.shows(SERVING[-1])
        assert "✓ pays" in act.text
        act.panel.lab.changes += 1
        await keeps_coming(act, "✗ costs  1.40 ×")


async def test_without_a_baseline_the_row_names_the_key_and_the_key_asks_first() -> None:
    async with live(MINE, (80, 24)) as act:
        await keeps_coming(act, "? unknown  no baseline yet: press b")
        assert not store_path().exists(), "looking makes no store"
        await act.press("b")
        await act.until(lambda: isinstance(act.panel.screen, ConfirmScreen))
        assert "10 minutes" in act.text
        await act.press("n")
        assert act.panel.lab.running == 0


async def test_where_there_is_no_drafter_or_no_profile_nothing_is_claimed() -> None:
    for profile in (MINE.without_drafter(), None):
        async with live(profile) as act:
            screen = act.panel.screen
            assert isinstance(screen, LiveScreen)
            assert not screen.verdict.display
            await act.press("b")
            await act.sees("plain decoding" if profile else "not started from a profile")


def test_the_command_names_files_that_are_the_same_configuration_with_and_without_drafter() -> None:
    command = compare_command(MINE, 3)
    plain, own = (read_profile(Path(text)) for text in command if text.endswith(".toml"))
    assert (plain, own.name) == (plain.without_drafter(), "mine")
    assert launch_fingerprint(own) == launch_fingerprint(MINE)
    assert launch_fingerprint(plain) == launch_fingerprint(MINE.without_drafter())
    assert command[command.index("--concurrency") + 1] == "3"


def standing(**more: object) -> Standing:
    base: dict[str, object] = {"word": "unknown", "sentence": NO_BASELINE, "source": "none"}
    return Standing(**{**base, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (standing(), "? unknown  no baseline yet: press b"),
        (
            standing(sentence="unknown at this load: measured at 1, 4 at a time; specpanel …"),
            "? unknown  at this load: measured at 1, 4 at a time: press b to measure",
        ),
        (
            standing(
                word="costs",
                source="break-even",
                ratio=1.2,
                interval=Interval(1.2, 1.1, 1.3),
                required=1.75,
            ),
            "x costs  1.20 x (1.10 .. 1.30)  foretold from the break-even curve  needs 1.75",
        ),
    ],
)
def test_every_verdict_says_its_source_in_ascii_too(found: Standing, told: str) -> None:
    row = "".join(text for text, _ in verdict_row(found, 118, "b", ASCII))
    assert row.strip().startswith(told)
    narrow = "".join(text for text, _ in verdict_row(found, 58, "b", ASCII))
    assert len(narrow) == 58


def test_tokens_of_a_step_count_steps_without_a_draft() -> None:
    # 100 tokens in the window, 20 of them accepted: 80 steps, of which 40 had a draft.
    frame = SimpleNamespace(
        engine=SimpleNamespace(generation_tokens_per_s=10.0),
        speculation=SimpleNamespace(window_s=10.0, accepted_tokens=20, drafts=40),
    )
    assert yielded(cast("object", frame)) == (1.25, 0.5)  # type: ignore[arg-type]
