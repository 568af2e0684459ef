"""The rows at the top and the bottom of every screen, and the small ones between."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.figures import host_line, server_state, traffic_line, trouble
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, spread, width_of, wrap
from specpanel.app.tui.short_notes import shorter
from specpanel.app.tui.widgets.canvas import Canvas
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.devices.words import none_found

if TYPE_CHECKING:
    from specpanel.core.monitor.frame import Frame
    from specpanel.core.session.desk import Desk

WIDE_COLUMNS = 100
NAMES_COLUMNS = 112
"""From here on the top bar names every tab; below, the one that is shown."""
ADDRESS_COLUMNS = 136
"""From here on it says the server's whole address; below, its port."""
DRAFTER_COLUMNS = 76


class TopBar(Canvas):
    """Tabs on the left; on the right the server, so that its state is seen from everywhere."""

    DEFAULT_CSS = """
    TopBar { height: 1; background: $panel; }
    """

    def __init__(
        self,
        tabs: Sequence[tuple[str, str]],
        active: str,
        *,
        glyphs: Glyphs,
        coming: Callable[[bool], Line] = lambda wide: (),
    ) -> None:
        super().__init__(id="top-bar")
        self._coming = coming
        self._tabs = tuple(tabs)
        self._active = active
        self.glyphs = glyphs
        self._frame: Frame | None = None
        self._drawn_coming: Line = ()

    def show(self, frame: "Frame | None") -> None:
        self._frame = frame
        self.redraw()

    def look(self) -> None:
        """Draws again where what is coming has changed."""
        if self._coming(True) != self._drawn_coming:
            self.redraw()

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        self._drawn_coming = self._coming(True)
        for whole, timed in self._ways(width):
            tabs, state = self._tab_names(whole), self._state(width, whole=whole, timed=timed)
            if width_of(tabs) + width_of(state) + 1 <= width:
                break
        return [spread(tabs, (*state, (" ", "text")), width, self.glyphs.ellipsis)]

    def _ways(self, width: int) -> Sequence[tuple[bool, bool]]:
        """Whether each tab is named and the time is told, the best first: the time goes before a tab."""
        wide = width >= NAMES_COLUMNS
        return ((True, True), (True, False)) if wide else ((False, True), (False, False))

    def _tab_names(self, whole: bool) -> Line:
        spans: list[Span] = [(" specpanel ", "brand"), (" ", "text")]
        for key, label in self._tabs:
            if label == self._active:
                spans.append((f" {key} {label} ", "tab-on"))
            elif whole:
                spans += [(f" {key}", "muted"), (f" {label}", "tab")]
            else:
                spans.append((f" {key} ", "tab"))
            if not whole:
                spans.append((" ", "text"))
        return tuple(spans)

    def _state(self, width: int, *, whole: bool, timed: bool) -> Line:
        return server_state(
            self._frame,
            self.glyphs,
            wide=width >= DRAFTER_COLUMNS,
            whole=width >= ADDRESS_COLUMNS,
            timed=timed,
            coming=self._coming(whole),
        )


def coming_words(desk: "Desk", glyphs: Glyphs, *, wide: bool) -> Line:
    """What the desk is about, where the Frames do not tell it: a start beside the current server."""
    sign = "<>" if glyphs.name == "ascii" else "⇄"
    served = desk.starting
    if desk.breaking_off:
        return ((f"{sign} stopping", "warn"),)
    if served is not None:
        facts = served.facts
        name = f"{clean(served.name)} " if wide else ""
        began = facts.started_unix
        took_s = facts.phase_s if began is None else max(0.0, time.time() - began)
        took = "" if took_s is None else f"{took_s:.0f} s, "
        return ((f"{sign} {name}{took}{clean(facts.phase or 'starting')}", "warn"),)
    if desk.busy is None or (desk.current is not None and desk.current.facts.starting):
        return ()
    return ((f"{sign} {clean(desk.busy) if wide else clean(desk.busy).split(' ')[0]}", "warn"),)


class TroubleLine(Canvas):
    """A row, or two where there is room, that is there only when something needs saying.

    It grows to its second row but does not shrink before it goes: what is below must not jump.
    """

    DEFAULT_CSS = """
    TroubleLine { height: 1; background: $surface; }
    """

    def __init__(self, *, glyphs: Glyphs) -> None:
        super().__init__(id="trouble")
        self.glyphs = glyphs
        self.most_rows = 1
        self._what: tuple[str, str] | None = None
        self._height = 1

    def show(
        self,
        frame: "Frame | None",
        *,
        hidden: bool = False,
        finding: tuple[str, str] | None = None,
    ) -> None:
        """``finding`` is (ink, text) about the acceptance: said where the server itself is well."""
        what = trouble(frame)
        if finding is not None and (what is None or what[0] == "muted"):
            what = finding
        self._what = None if hidden else what
        self.set_class(self._what is None, "-absent")
        needed = self._rows_needed()
        if needed > self.most_rows and self._what is not None:
            self._what = self._what[0], shorter(self._what[1])
            needed = self._rows_needed()
        if self._what is None or needed > self._height or self._height > self.most_rows:
            self._height = min(needed, self.most_rows)
            self.styles.height = self._height
        self.redraw()

    def _rows_needed(self) -> int:
        return len(self._wrapped(self.screen.size.width)) if self._what is not None else 1

    def _wrapped(self, width: int) -> list[str]:
        return wrap(self._what[1], max(1, width - 4)) if self._what is not None else []

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if self._what is None:
            return []
        ink, text = self._what
        marks = {"bad": "exited", "warn": "warning"}
        glyph = self.glyphs.states[marks[ink]] if ink in marks else self.glyphs.dot
        parts = self._wrapped(width)
        if len(parts) > height:
            parts = [*parts[: height - 1], text[len(" ".join(parts[: height - 1])) :].lstrip()]
        return [
            fit(
                ((f" {glyph if number == 0 else ' '} ", ink), (part, ink)),
                width - 1,
                self.glyphs.ellipsis,
            )
            for number, part in enumerate(parts)
        ]


class HostPane(Pane):
    """CPU and memory on the left, the progress of our own traffic on the right."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Host", glyphs=glyphs, id="host")
        self._frame: Frame | None = None

    def show(self, frame: "Frame | None") -> None:
        self._frame = frame
        self.redraw()

    def legend(self) -> Line:
        """Why there is no row for devices above."""
        sample = None if self._frame is None else self._frame.devices
        if sample is None or sample.devices or sample.state == "starting":
            return ()
        room = self.size.width - len(self.title) - 8
        return ((shorten(clean(none_found(sample)), room, self.glyphs.ellipsis), "muted"),)

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if not self.framed:
            return self.compose_inside(width, height)
        return super().compose_rows(width, height)

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        frame = self._frame
        bar = 16 if width >= WIDE_COLUMNS else 6
        right = traffic_line(frame.traffic if frame else None, self.glyphs, bar)
        left = host_line(frame, self.glyphs, width - width_of(right) - 4)
        blank: Span = (" ", "text")
        return [spread((blank, *left), (*right, blank), width, self.glyphs.ellipsis)]


class KeyLine(Canvas):
    """The keys that work now, most used first, and on the right a word on the picture."""

    DEFAULT_CSS = """
    KeyLine { height: 1; background: $panel; }
    """

    def __init__(self, entries: Sequence[tuple[str, str]], *, glyphs: Glyphs) -> None:
        super().__init__(id="key-line")
        self.glyphs = glyphs
        self._entries = tuple(entries)
        self._right: Line = ()

    def show(self, entries: Sequence[tuple[str, str]], right: Line) -> None:
        shown = tuple(entries), right
        if shown != (self._entries, self._right):
            self._entries, self._right = shown
            self.redraw()

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        room = width - width_of(self._right) - 2
        kept = list(self._entries)
        while kept and _entries_cells(kept) > room:
            # The last three stay, Switch, Help and Quit: without them a stranger is lost.
            kept.pop(-4 if len(kept) > 3 else -1)
        spans: list[Span] = [(" ", "text")]
        for key, label in kept:
            spans += [(key, "key"), (f" {label}  ", "muted")]
        return [spread(tuple(spans), (*self._right, (" ", "text")), width, self.glyphs.ellipsis)]


def _entries_cells(entries: Sequence[tuple[str, str]]) -> int:
    return 1 + sum(len(key) + len(label) + 3 for key, label in entries)
