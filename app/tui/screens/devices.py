"""All that is known of the devices, over Live: every figure, or why it is not there."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.device_details import detail_lines
from specpanel.app.tui.ink import Line
from specpanel.app.tui.keys import Scope, bindings
from specpanel.app.tui.screens.base import PanelScreen
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.devices.records import DeviceLibrary, DeviceSample
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame


class DeviceDetails(Pane):
    """Text that is longer than the screen, scrolled by rows."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Devices", glyphs=glyphs, id="device-details")
        self.selected = True
        self._first = 0
        self._sample: DeviceSample | None = None
        self._libraries: Sequence[DeviceLibrary] = ()

    def show(self, sample: DeviceSample | None, libraries: Sequence[DeviceLibrary]) -> None:
        self._sample, self._libraries = sample, libraries
        self.redraw()

    def scroll_rows(self, rows: int) -> None:
        self._first += rows
        self.redraw()

    def legend(self) -> Line:
        if self._sample is None or self._sample.age_s is None or not self._sample.devices:
            return ()
        return ((f"{len(self._sample.devices)}, read {self._sample.age_s:.0f} s ago", "muted"),)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        if self._sample is None:
            return [((" devices are read while a server is watched", "muted"),)]
        lines = detail_lines(self._sample, self._libraries, width, self.glyphs)
        self._first = max(0, min(self._first, len(lines) - height))
        return lines[self._first : self._first + height]


class DevicesScreen(PanelScreen):
    """Reads the processes of the devices while it is open."""

    tab = "Live"
    scopes: ClassVar[tuple[Scope, ...]] = ("devices",)
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("devices")]

    def __init__(
        self,
        tabs: Sequence[tuple[str, str]],
        frame: Frame | None,
        *,
        glyphs: Glyphs,
        replayed: bool,
    ) -> None:
        super().__init__(tabs, glyphs=glyphs)
        self.over_recording = replayed
        self.details = DeviceDetails(glyphs=glyphs)
        self._frame = frame

    def compose_body(self) -> Iterable[Widget]:
        yield self.details

    def on_mount(self) -> None:
        self._want_processes(True)
        self._show(self._frame)
        self.key_line.show(self.keymap.line_entries("devices", "panel"), ())

    def on_unmount(self) -> None:
        self._want_processes(False)

    def receive(self, feed: Feed) -> None:
        """Over a recording the moment stays that was shown when this was opened."""
        if not self.over_recording:
            self._want_processes(True)  # another server may be watched by now
            self._show(feed.latest)

    def _show(self, frame: Frame | None) -> None:
        self.top_bar.show(frame)
        watch = None if self.desk is None or self.over_recording else self.desk.devices
        inventory = None if watch is None else watch.inventory
        self.details.show(
            None if frame is None else frame.devices,
            () if inventory is None else inventory.libraries,
        )

    def _want_processes(self, wanted: bool) -> None:
        if self.desk is not None and self.desk.devices is not None and not self.over_recording:
            self.desk.devices.want_processes(wanted)

    def action_back(self) -> None:
        self.app.pop_screen()

    def action_move(self, rows: int) -> None:
        self.details.scroll_rows(rows)
