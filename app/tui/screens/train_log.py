"""The log of a training, in the picture of the Logs screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import BindingType

from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.keys import Scope, bindings
from specpanel.app.tui.screens.logs import LogsScreen
from specpanel.core.engine.log_filter import LogFilter
from specpanel.core.session.notices import Notices


class TrainLogScreen(LogsScreen):
    """Shows one file, whatever server is current; the way back is to the training."""

    tab = "Train"
    scopes: ClassVar[tuple[Scope, ...]] = ("trainlog", "logs")
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("trainlog")]

    def __init__(
        self, log: Path, tabs: Sequence[tuple[str, str]], *, glyphs: Glyphs, notices: Notices
    ) -> None:
        super().__init__(tabs, glyphs=glyphs, notices=notices)
        self._log = log

    def _server_log(self) -> Path | None:
        return self._log

    def on_mount(self) -> None:
        super().on_mount()
        self.key_line.show(self.keymap.line_entries("trainlog", "logs", "panel"), ())

    def action_clear(self) -> None:
        """Drops the filter; where there is none, goes back."""
        if self.prompt_row.display or self.shown != LogFilter(probes=self.shown.probes):
            super().action_clear()
        else:
            self.action_back()

    def action_back(self) -> None:
        self.app.pop_screen()
