"""What stands in the middle while there is nothing to chart: how to begin, how a start goes, how it ended."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.figures import trouble
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, width_of, wrap
from specpanel.app.tui.widgets.canvas import Canvas

if TYPE_CHECKING:
    from specpanel.app.tui.timeline import Phase
    from specpanel.core.monitor.frame import Frame

HOW_TO_BEGIN = (
    ("specpanel demo", "a small model with a drafter, on this machine"),
    ("specpanel run PROFILE", "start vLLM with a profile and watch it"),
    ("specpanel watch URL", "watch a vLLM that is already running"),
    ("specpanel watch --replay FILE", "look at a recording"),
)


class Board(Canvas):
    """Centred text instead of charts."""

    DEFAULT_CSS = """
    Board { background: $background; }
    """

    def __init__(
        self,
        how_to_begin: Sequence[tuple[str, str]] = HOW_TO_BEGIN,
        *,
        glyphs: Glyphs = BRAILLE,
    ) -> None:
        super().__init__(id="board")
        self._ways_on: Line = ()
        self.glyphs = glyphs
        self._how_to_begin = tuple(how_to_begin)
        self._frame: Frame | None = None
        self._phases: tuple[Phase, ...] = ()
        self._busy = False
        self._failure: str | None = None

    def name_keys(self, ways: Sequence[tuple[str, str]]) -> None:
        """Which keys lead on from here: each with what it does."""
        spans: list[Span] = []
        for key, what in ways:
            spans += [(key, "key"), (f" {what}   ", "muted")]
        self._ways_on = tuple(spans)

    def show(
        self,
        frame: "Frame | None",
        phases: Sequence["Phase"],
        *,
        busy: bool,
        failure: str | None = None,
    ) -> None:
        """``busy`` says that something is under way though no Frame has come yet.

        ``failure`` is what became of the last thing asked for, where no server tells it.
        """
        self._frame, self._phases, self._busy = frame, tuple(phases), busy
        self._failure = failure
        self.redraw()

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if self._frame is None and self._failure is not None:
            block = self._failed(self._failure, width)
        elif self._frame is None:
            block = self._preparing() if self._busy else self._beginning()
        elif self._frame.server.state == "starting":
            block = self._starting(self._frame, width, height)
        else:
            block = self._ended(self._frame, width)
        block = block[:height]
        left = max(1, (width - max((width_of(row) for row in block), default=0)) // 2)
        above = max(0, (height - len(block)) // 2)
        rows: list[Line] = [fit((), width)] * above
        return rows + [((" " * left, "text"), *row) for row in block]

    def _preparing(self) -> list[Line]:
        return [((f"{self.glyphs.states['starting']} Preparing", "warn"),)]

    def _beginning(self) -> list[Line]:
        commands = max(len(command) for command, _ in self._how_to_begin)
        rows: list[Line] = [(("No server is being watched.", "strong"),), ()]
        rows += [
            ((f"{command:<{commands}}", "key"), (f"  {what}", "muted"))
            for command, what in self._how_to_begin
        ]
        return [
            *rows,
            (),
            self._ways_on,
        ]

    def _starting(self, frame: "Frame", width: int, height: int) -> list[Line]:
        server = frame.server
        name = clean(server.name or server.model or server.url)
        glyph = self.glyphs.states["starting"]
        rows: list[Line] = [((f"{glyph} Starting ", "warn"), (name, "strong")), ()]
        names = max((cell_len(clean(phase.name)) for phase in self._phases), default=0)
        for phase in self._phases[-max(1, height - 5) :]:
            mark, ink = ("good", "good") if phase.done else ("starting", "warn")
            took = f"{phase.took_s:7.0f} s" if phase.took_s is not None else ""
            text = clean(phase.name)
            pad = " " * (names - cell_len(text))
            tone = "muted" if phase.done else "strong"
            rows.append(
                ((f"{self.glyphs.states[mark]} ", ink), (text + pad, tone), (took, "muted"))
            )
        if server.detail:
            line = shorten(clean(server.detail), min(width - 4, 96), self.glyphs.ellipsis)
            rows += [(), ((line, "faint"),)]
        return rows

    def _ended(self, frame: "Frame", width: int) -> list[Line]:
        what = trouble(frame)
        if what is None:
            return [(("Waiting for the first metrics", "muted"),)]
        ink, text = what
        return self._told(text, ink, self.glyphs.states[frame.server.state], width)

    def _failed(self, failure: str, width: int) -> list[Line]:
        return self._told(clean(failure), "bad", self.glyphs.states["exited"], width)

    def _told(self, text: str, ink: str, glyph: str, width: int) -> list[Line]:
        """A sentence, and the keys that lead on from it."""
        rows: list[Line] = [
            ((f"{glyph if number == 0 else ' '} {part}", ink),)
            for number, part in enumerate(wrap(text, min(width - 6, 88)))
        ]
        return [*rows, (), self._ways_on]
