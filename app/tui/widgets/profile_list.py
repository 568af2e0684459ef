"""The profiles: the user's own, then the presets; a broken one is listed with its reason."""

from collections.abc import Collection, Sequence

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, shorten, wrap
from specpanel.app.tui.widgets.pane import Pane
from specpanel.core.settings.files import ProfileFile

_REASON_ROWS = 3


class ProfileList(Pane):
    """Lists profiles, one of them chosen."""

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__("Profiles", glyphs=glyphs, id="profiles")
        self.files: tuple[ProfileFile, ...] = ()
        self._chosen: str | None = None
        self._edited: frozenset[str] = frozenset()
        self._in_use: str | None = None
        self._places: list[int | None] = []  # of the rows that are drawn

    def place_at(self, row: int) -> int | None:
        return self._places[row - 1] if 0 < row <= len(self._places) else None

    def show(
        self,
        files: Sequence[ProfileFile],
        chosen: str | None,
        *,
        edited: Collection[str],
        running: str | None,
    ) -> None:
        self.files, self._chosen = tuple(files), chosen
        self._edited, self._in_use = frozenset(edited), running
        self.redraw()

    def compose_inside(self, width: int, height: int) -> Sequence[Line]:
        rows: list[Line] = []
        places: list[int | None] = []
        chosen_at = 0
        for origin, heading in (("yours", "YOURS"), ("preset", "PRESETS")):
            group = [file for file in self.files if file.origin == origin]
            if rows:
                rows.append(())
            rows.append(((f" {heading}", "brand"),))
            if not group:
                rows.append(((" none: w writes one", "muted"),))
            for file in group:
                if file.name == self._chosen:
                    chosen_at = len(rows)
                places += [None] * (len(rows) - len(places))
                rows += self._file(file, width)
                places += [self.files.index(file)] * (len(rows) - len(places))
        top = max(0, min(chosen_at - height // 2, len(rows) - height))
        self._places = places[top : top + height]
        return rows[top : top + height]

    def _file(self, file: ProfileFile, width: int) -> list[Line]:
        chosen = file.name == self._chosen
        mark: Span = (" ", "text")
        if file.error is not None:
            mark = (self.glyphs.states["exited"], "bad")
        elif file.name == self._in_use:
            mark = (self.glyphs.states["serving"], "good")
        elif file.name in self._edited:
            mark = ("*", "warn")
        pointer = ">" if self.glyphs.name == "ascii" else "▸"
        ink = "title-selected" if chosen else "bad" if file.error is not None else "text"
        name: Line = (
            (pointer if chosen else " ", "key"),
            mark,
            (f" {clean(file.name)}", ink),
        )
        row = fit(name, width, self.glyphs.ellipsis)
        if file.error is None:
            return [row]
        why = wrap(reason_of(file), max(1, width - 4))
        if len(why) > _REASON_ROWS:
            cut = shorten(f"{why[_REASON_ROWS - 1]} {self.glyphs.ellipsis}", width - 4)
            why = [*why[: _REASON_ROWS - 1], cut]
        return [row, *(((f"    {part}", "muted"),) for part in why)]


def reason_of(file: ProfileFile) -> str:
    """Why a profile is broken, without the folder that it is in."""
    message = "" if file.error is None else file.error.message
    return clean(message.replace(f"{file.path}, ", "").replace(f"{file.path}: ", ""))
