"""Pictures of the Live screen for the documentation, painted cell by cell without a browser.

    python scripts/screenshot.py RECORDING --out docs/images/live-120x40.png

RECORDING is what ``specpanel run --record`` wrote; its Frames go through the real app. Braille, blocks and
frames are drawn as shapes, so the picture does not depend on what a font has. Needs Pillow.
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment

from specpanel.app.tui.charts.glyphs import BRAILLE
from specpanel.app.tui.panel import Panel
from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import read_recording

CELL_WIDTH, CELL_HEIGHT, FONT_SIZE = 10, 20, 16
_FONT_FOLDERS = (Path("/usr/share/fonts/truetype/dejavu"), Path("/usr/share/fonts/TTF"))

RGB = tuple[int, int, int]
Box = tuple[int, int]

_BRAILLE_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
# Arms of a frame character: left, right, up, down.
_FRAMES = {
    "─": (1, 1, 0, 0),
    "│": (0, 0, 1, 1),
    "├": (0, 1, 1, 1),
    "┤": (1, 0, 1, 1),
    "└": (0, 1, 1, 0),
    "┌": (0, 1, 0, 1),
    "┐": (1, 0, 0, 1),
    "┘": (1, 0, 1, 0),
}
_ARCS = {"╭": (0, 1), "╮": (1, 1), "╰": (0, 0), "╯": (1, 0)}  # (mirrored, opens downwards)
_LEFT_EIGHTHS = "▏▎▍▌▋▊▉█"


class Painter:
    """Paints segments on a grid of cells."""

    def __init__(self, columns: int, rows: int) -> None:
        self.image = Image.new("RGB", (columns * CELL_WIDTH, rows * CELL_HEIGHT))
        self._draw = ImageDraw.Draw(self.image)
        self._fonts = {bold: _font(bold=bold) for bold in (False, True)}

    def row(self, y: int, segments: Sequence[Segment]) -> None:
        x = 0
        for segment in segments:
            ink, ground, bold = _colors(segment)
            for char in segment.text:
                cells = cell_len(char)
                if cells:
                    self._cell((x, y), char, cells, ink, ground, bold)
                    x += cells

    def _cell(self, at: Box, char: str, cells: int, ink: RGB, ground: RGB, bold: bool) -> None:
        left, top = at[0] * CELL_WIDTH, at[1] * CELL_HEIGHT
        right, bottom = left + CELL_WIDTH * cells - 1, top + CELL_HEIGHT - 1
        self._draw.rectangle((left, top, right, bottom), fill=ground)
        code = ord(char)
        if 0x2800 <= code <= 0x28FF:
            self._braille(left, top, code - 0x2800, ink)
        elif char in _LEFT_EIGHTHS:
            width = CELL_WIDTH * (_LEFT_EIGHTHS.index(char) + 1) // 8
            self._draw.rectangle((left, top, left + max(1, width) - 1, bottom), fill=ink)
        elif char in "▀▄":
            middle = top + CELL_HEIGHT // 2
            half = (top, middle - 1) if char == "▀" else (middle, bottom)
            self._draw.rectangle((left, half[0], right, half[1]), fill=ink)
        elif char in _FRAMES:
            self._frame(left, top, _FRAMES[char], ink)
        elif char in _ARCS:
            self._arc(left, top, _ARCS[char], ink)
        elif char in "┈┊━╌":
            self._dashes(left, top, char, ink)
        elif char != " ":
            self._draw.text((left, top), char, font=self._fonts[bold], fill=ink)

    def _braille(self, left: int, top: int, bits: int, ink: RGB) -> None:
        for bit, (x, y) in enumerate(_BRAILLE_DOTS):
            if bits >> bit & 1:
                corner = left + 1 + x * 5, top + 1 + y * 5
                self._draw.ellipse((*corner, corner[0] + 3, corner[1] + 3), fill=ink)

    def _frame(self, left: int, top: int, arms: tuple[int, int, int, int], ink: RGB) -> None:
        x, y = left + CELL_WIDTH // 2, top + CELL_HEIGHT // 2
        to_left, to_right, up, down = arms
        if to_left or to_right:
            ends = (left if to_left else x, left + CELL_WIDTH - 1 if to_right else x)
            self._draw.line((ends[0], y, ends[1], y), fill=ink)
        if up or down:
            ends = (top if up else y, top + CELL_HEIGHT - 1 if down else y)
            self._draw.line((x, ends[0], x, ends[1]), fill=ink)

    def _arc(self, left: int, top: int, shape: tuple[int, int], ink: RGB) -> None:
        mirrored, down = shape
        x, y, radius = left + CELL_WIDTH // 2, top + CELL_HEIGHT // 2, 5
        side = -1 if mirrored else 1
        way = 1 if down else -1
        centre = (x + side * radius, y + way * radius)
        start = {(1, 1): 180, (-1, 1): 270, (1, -1): 90, (-1, -1): 0}[side, way]
        box = (centre[0] - radius, centre[1] - radius, centre[0] + radius, centre[1] + radius)
        self._draw.arc(box, start, start + 90, fill=ink)
        end_x = left + CELL_WIDTH - 1 if side > 0 else left
        self._draw.line((centre[0], y, end_x, y), fill=ink)
        end_y = top + CELL_HEIGHT - 1 if way > 0 else top
        self._draw.line((x, centre[1], x, end_y), fill=ink)

    def _dashes(self, left: int, top: int, char: str, ink: RGB) -> None:
        x, y = left + CELL_WIDTH // 2, top + CELL_HEIGHT // 2
        if char == "━":
            self._draw.rectangle((left, y - 1, left + CELL_WIDTH - 1, y + 1), fill=ink)
        elif char == "╌":
            for dash in range(left, left + CELL_WIDTH, 5):
                self._draw.line((dash, y, dash + 2, y), fill=ink)
        elif char == "┈":
            for dot in range(left, left + CELL_WIDTH, 5):
                self._draw.line((dot, y, dot + 1, y), fill=ink)
        else:
            for dot in range(top, top + CELL_HEIGHT, 5):
                self._draw.line((x, dot, x, dot + 2), fill=ink)


def _font(*, bold: bool) -> ImageFont.FreeTypeFont:
    name = "DejaVuSansMono-Bold.ttf" if bold else "DejaVuSansMono.ttf"
    for folder in _FONT_FOLDERS:
        if (folder / name).is_file():
            return ImageFont.truetype(str(folder / name), FONT_SIZE)
    return ImageFont.truetype(name, FONT_SIZE)


def _colors(segment: Segment) -> tuple[RGB, RGB, bool]:
    style = segment.style
    ink = _rgb(style.color if style else None, (223, 228, 238))
    ground = _rgb(style.bgcolor if style else None, (18, 21, 28))
    if style is not None and style.reverse:
        ink, ground = ground, ink
    return ink, ground, bool(style and style.bold)


def _rgb(color: Color | None, default: RGB) -> RGB:
    if color is None or color.is_default:
        return default
    triplet = color.get_truecolor()
    return triplet.red, triplet.green, triplet.blue


async def screenshot(
    frames: Sequence[Frame],
    out: Path,
    *,
    columns: int = 120,
    rows: int = 40,
    theme: str = "midnight",
    window_minutes: int = 5,
    keys: Sequence[str] = (),
) -> None:
    """Puts ``frames`` through the app, presses ``keys`` and paints what the screen then shows."""
    feed = Feed()
    panel = Panel(feed, auto_tick=False, theme=theme, window_minutes=window_minutes, glyphs=BRAILLE)
    for frame in frames:
        feed.publish(frame)
    async with panel.run_test(size=(columns, rows)) as pilot:
        await pilot.pause()
        panel.tick()
        await pilot.pause()
        if keys:
            await pilot.press(*keys)
            await pilot.pause()
        painter = Painter(columns, rows)
        for y, strip in enumerate(panel.screen._compositor.render_strips()):
            painter.row(y, list(strip))
    out.parent.mkdir(parents=True, exist_ok=True)
    painter.image.save(out, optimize=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Paint the Live screen of a recording.")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", default="120x40", help="columns x rows")
    parser.add_argument("--theme", default="midnight")
    parser.add_argument("--window", type=int, default=5, choices=(1, 5, 15, 60), help="minutes")
    parser.add_argument("--until", type=float, help="stop at this second of the recording")
    parser.add_argument("--keys", default="", help="keys to press first, comma separated")
    chosen = parser.parse_args(arguments)
    columns, _, rows = chosen.size.partition("x")
    try:
        frames = [
            frame
            for frame in read_recording(chosen.recording)
            if chosen.until is None or frame.elapsed_s <= chosen.until
        ]
    except SpecpanelError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    asyncio.run(
        screenshot(
            frames,
            chosen.out,
            columns=int(columns),
            rows=int(rows),
            theme=chosen.theme,
            window_minutes=chosen.window,
            keys=[key for key in chosen.keys.split(",") if key],
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
