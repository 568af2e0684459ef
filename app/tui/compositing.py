"""What a redraw costs: only what changed is drawn, and what one call changes is drawn at once.

Textual asks every widget between the first and the last change of the screen for its lines, and the
containers behind them; and each widget that changes sends two messages and waits for a timer first. Twice
a second, for as long as a server runs, that is more work than the picture itself.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget


class SparseCompositor(Compositor):
    """Draws what Textual's own draws; a widget that shows in no changed cell is left alone."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: set[Region] = set()

    def render_partial_update(self) -> ChopsUpdate | None:
        self._changed = self._dirty_regions.copy()
        try:
            return super().render_partial_update()
        finally:
            self._changed = set()

    def _get_renders(
        self, crop: Region | None = None
    ) -> Iterable[tuple[Region, Region, list[Strip]]]:
        """Front to back, down to where every changed cell is covered."""
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        uncovered = self._changed
        for widget, (region, clip) in self.visible_widgets.items():
            seen = region.intersection(clip)
            if not any(seen.overlaps(changed) for changed in uncovered):
                continue
            yield region, clip, widget.render_lines(seen.translate((-region.x, -region.y)))
            uncovered = {one for one in uncovered if not seen.contains_region(one)}
            if not uncovered:
                return


class OnePassScreen(Screen[None]):
    """A screen whose canvases are drawn together, where they change within ``one_pass``."""

    def __init__(self) -> None:
        super().__init__()
        self._compositor = SparseCompositor()
        self._changed_canvases: dict[Widget, list[Region]] | None = None

    def takes(self, widget: Widget, regions: list[Region]) -> bool:
        """Whether changed ``regions`` of a widget are drawn at the end of a pass that goes on now."""
        if self._changed_canvases is None:
            return False
        self._changed_canvases.setdefault(widget, []).extend(regions)
        return True

    @contextmanager
    def one_pass(self) -> Iterator[None]:
        """What canvases change inside is drawn at its end."""
        self._changed_canvases = {}
        try:
            yield
        finally:
            changed, self._changed_canvases = self._changed_canvases, None
            if changed:
                self._draw_changed(changed)

    def _draw_changed(self, changed: dict[Widget, list[Region]]) -> None:
        app = self.app
        waits = self._layout_required or self._repaint_required or self._recompose_required
        if waits or app._batch_count or app.is_inline or app.screen is not self:
            # Something larger is about to be drawn, or nothing may be: Textual knows when.
            for widget, regions in changed.items():
                widget.refresh(*regions)
            return
        for widget, regions in changed.items():
            widget._set_dirty(*regions)
        self._compositor.update_widgets({*changed, *self._dirty_widgets})
        self._compositor_refresh()
