"""The devices of this machine under the charts of Live, one line each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.device_lines import device_lines, rows_needed
from specpanel.app.tui.ink import Line, clean, shorten
from specpanel.app.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from specpanel.core.devices.records import DeviceSample


class DevicesPane(Pane):
    """As many devices as there is room for; it scrolls by rows."""

    DEFAULT_CSS = """
    DevicesPane { height: 1; }
    """

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Devices", glyphs=glyphs, id="devices")
        self.first = 0
        self._sample: DeviceSample | None = None

    def show(self, sample: "DeviceSample | None") -> None:
        self._sample = sample
        self.redraw()

    def rows_needed(self, width: int) -> int:
        """Rows inside the frame that show every device; 0 without any."""
        return rows_needed(self._sample, width - 2)

    def scroll_rows(self, rows: int) -> None:
        room = max(1, self.inside_size()[1] - 1)
        last = max(0, self.rows_needed(self.size.width) - room)
        self.first = max(0, min(last, self.first + rows))
        self.redraw()

    def legend(self) -> Line:
        sample = self._sample
        if sample is None or not sample.reason:
            return ()
        room = self.size.width - len(self.title) - 8
        return ((shorten(clean(sample.reason), room, self.glyphs.ellipsis), "warn"),)

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if not self.framed:
            return self.compose_inside(width, height)
        return super().compose_rows(width, height)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self._sample is None or not self._sample.devices:
            return []
        return device_lines(self._sample, width, height, self.glyphs, first=self.first)
