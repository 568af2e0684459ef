"""Dots of several lines on a grid of cells; each cell belongs to the line that was drawn last."""

from specpanel.app.tui.charts.bins import Bins
from specpanel.app.tui.charts.glyphs import Glyphs
from specpanel.app.tui.charts.scale import Scale

# Where colours cannot tell lines apart: solid, two on and two off, one in three; by absolute bin,
# so that the pattern moves with the line.
_DASH_PERIODS = ((1, 1), (4, 2), (3, 1))


class Raster:
    """``columns`` by ``rows`` cells; ``bits[row][column]`` and ``owner[row][column]`` (0 is nobody)."""

    def __init__(self, columns: int, rows: int, glyphs: Glyphs) -> None:
        self.columns = columns
        self.rows = rows
        self.glyphs = glyphs
        self.dots_wide = columns * glyphs.dots_x
        self.dots_high = rows * glyphs.dots_y
        self.bits = [bytearray(columns) for _ in range(rows)]
        self.owner = [bytearray(columns) for _ in range(rows)]

    def clear(self, from_column: int = 0) -> None:
        blank = bytes(self.columns - from_column)
        for row in range(self.rows):
            self.bits[row][from_column:] = blank
            self.owner[row][from_column:] = blank

    def shift(self, columns: int) -> None:
        """Moves the picture to the left; what comes in at the right is blank."""
        blank = bytes(columns)
        for row in range(self.rows):
            self.bits[row] = self.bits[row][columns:] + blank
            self.owner[row] = self.owner[row][columns:] + blank

    def line(
        self,
        owner: int,
        bins: Bins,
        scale: Scale,
        *,
        right: int,
        from_column: int = 0,
        dash: int = 0,
    ) -> None:
        """Draws ``bins`` so that bin ``right`` is the last column of dots.

        Each bin is a vertical span from its lowest to its highest value, joined to the bin before, so
        that no spike is lost. Only columns from ``from_column`` on are touched.
        """
        left = right - self.dots_wide + 1
        start = from_column * self.glyphs.dots_x
        period, drawn = _DASH_PERIODS[dash % len(_DASH_PERIODS)]
        row_of = scale.rows_of(self.dots_high)
        count, joined = bins.count, bins.joined
        before = self._before(bins, left, start)
        before_row = 0 if before is None else row_of(bins.last[(left + before) % count])
        for x in range(start, self.dots_wide):
            number = left + x
            slot = number % count
            if number < 0 or bins.index[slot] != number:
                continue
            entry = leave = top = bottom = own_top = own_bottom = row_of(bins.last[slot])
            if bins.lowest[slot] != bins.highest[slot]:
                entry = row_of(bins.first[slot])
                top = own_top = row_of(bins.highest[slot])
                bottom = own_bottom = row_of(bins.lowest[slot])
            if joined[slot] and before is not None:
                at = before_row
                for between in range(before + 1, x):
                    to = round(
                        before_row + (entry - before_row) * (between - before) / (x - before)
                    )
                    if (left + between) % period < drawn:
                        self._span(owner, between, at, to, start)
                    at = to
                top, bottom = min(top, at), max(bottom, at)
                if before == x - 1 and bottom - top > 1:
                    # The neighbour's own dot is already there: do not thicken the corner.
                    if at < own_top:
                        top = at + 1
                    elif at > own_bottom:
                        bottom = at - 1
            if number % period < drawn:
                self._span(owner, x, top, bottom, start)
            before, before_row = x, leave

    def _before(self, bins: Bins, left: int, start: int) -> int | None:
        """The last filled column of dots before ``start``, looking back as far as bins are kept."""
        oldest = max(-left, self.dots_wide - bins.count)
        return next((x for x in range(start - 1, oldest - 1, -1) if bins.has(left + x)), None)

    def _span(self, owner: int, x: int, one: int, other: int, start: int) -> None:
        if x < start:
            return
        dots_x, dots_y = self.glyphs.dots_x, self.glyphs.dots_y
        column, bits = x // dots_x, self.glyphs.bits[x % dots_x]
        for y in range(min(one, other), max(one, other) + 1):
            row = y // dots_y
            if self.owner[row][column] not in (0, owner):
                self.bits[row][column] = 0
            self.bits[row][column] |= bits[y % dots_y]
            self.owner[row][column] = owner
