"""After a start that failed, Launch stands on the setting that would mend it."""

from pathlib import Path

import pytest
from tui.stage import SCENES, staged

from specpanel.app.tui.desk_app import setting_of
from specpanel.app.tui.screens.dialogs import ErrorScreen
from specpanel.app.tui.screens.launch import LaunchScreen
from specpanel.core.engine.failures import diagnose
from specpanel.core.errors import LaunchError
from specpanel.core.session.launch import VllmEndedError

LOGS = Path(__file__).parents[1] / "data" / "logs"
SIZES = [(120, 40), (80, 24)]


def ended(name: str) -> VllmEndedError:
    failure = diagnose((LOGS / name).read_text(), 1)
    assert failure is not None
    return VllmEndedError(failure, LOGS / name)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize(
    ("log", "setting"),
    [
        ("len_too_large.txt", "target.max_model_len"),
        ("runner_v2_no_triton.txt", "engine.environment"),
        ("synthetic_cpu.txt", "drafter.rejection_sample_method"),
    ],
)
async def test_closing_the_dialog_of_a_failure_leaves_the_form_on_its_setting(
    log: str, setting: str, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = ended(log)
    async with staged(SCENES["launch"], size, monkeypatch) as act:
        screen = act.panel.screen
        assert isinstance(screen, LaunchScreen)
        act.panel.setting_to_mend = setting_of(error)
        act.panel.push_screen(ErrorScreen(error))
        await act.pilot.pause()
        await act.press("enter")

        def stands_there() -> bool:
            row = screen.form.current_row
            return act.panel.screen is screen and row is not None and row.dotted == setting

        await act.until(stands_there)
        assert act.panel.setting_to_mend is None


def test_a_failure_that_names_no_setting_leads_nowhere():
    assert setting_of(ended("kill_start.txt")) is None
    assert setting_of(LaunchError("the start wrote nothing")) is None
