"""A chart of lines over the steps of a training, from the first step to the last that is wanted. Pure."""

from collections.abc import Iterable, Sequence

from specpanel.app.tui.charts.bins import Bins
from specpanel.app.tui.charts.cells import LABEL_CELLS
from specpanel.app.tui.charts.line_plot import LinePlot
from specpanel.app.tui.charts.scale import nice_step
from specpanel.app.tui.ink import Line
from specpanel.core.training.curve import Point


def step_axis(last: int, columns: int) -> str:
    """The labels of an axis from step 0 to ``last``, in exactly ``columns`` cells."""
    axis = [" "] * columns
    each = max(1, round(nice_step(last, max(1, min(6, columns // 7)))))
    free_from = 0
    for step in (*range(0, last - each // 2, each), last):
        text = f"{step}" if step < last else f"step {step}"
        if step == last and len(text) > columns - free_from:
            text = f"{step}"
        at = round(step / max(1, last) * (columns - 1)) - len(text) // 2
        at = min(columns - len(text), max(0, at))
        room = at >= free_from and (step == last or at + len(text) + 7 + len(str(last)) < columns)
        if room:
            axis[at : at + len(text)] = text
            free_from = at + len(text) + 1
    return "".join(axis)


class StepPlot(LinePlot):
    """Stands still while the lines grow into it; neighbouring values of a line are always joined."""

    def resize(self, width: int, height: int, window_s: float) -> None:
        """``window_s`` is the number of steps that the axis has."""
        last = max(2.0, window_s)
        super().resize(width, height, last)
        self._now_s = last - 0.5
        if self._bins:
            self._bins = tuple(
                Bins(bins.count, bins.width_s, join_s=2 * last) for bins in self._bins
            )

    @property
    def last_step(self) -> int:
        return int(self._window_s)

    def put(self, curves: Sequence[Iterable[Point]]) -> None:
        """The points of each line, in its order; nothing where there is no room to draw."""
        for bins, curve in zip(self._bins, curves, strict=False):
            for point in curve:
                at = max(0.0, point.step - 0.5)
                bins.add(at, point.low)
                bins.add(at, point.high)
                bins.add(at, point.last)

    def step_under_cursor(self) -> int | None:
        """The step that the values under the cursor belong to."""
        reading = self.reading()
        return None if reading is None else max(1, round(self._now_s - reading[0] + 0.5))

    def draw(self) -> list[Line]:
        raster = self._raster
        self._drawn = None  # the picture does not move: what was drawn says nothing of what is new
        lines = super().draw()
        if raster is None:
            return lines
        kind = "log" if self._log else ""
        edge = (f"{kind:>{LABEL_CELLS}}{self.glyphs.corner}", "axis")
        lines[-1] = (edge, (step_axis(self.last_step, raster.columns), "axis"))
        return lines
