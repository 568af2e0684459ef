"""The recordings that a desk writes by itself: one for each server that it watches."""

from contextlib import suppress
from pathlib import Path

from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.recording import Recorder
from specpanel.core.session.bookends import closing_line, writer_line
from specpanel.core.session.events import Event, Forced, SettingsChosen, event_line
from specpanel.core.session.recordings import recording_path
from specpanel.core.session.served import Served


class DeskRecording:
    """Writes the events of one server after another. A recording that fails ends; nothing else does.

    Args:
        folder: where recordings go; None records nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._recorder: Recorder | None = None

    def open(self, served: Served) -> str | None:
        """Begin a recording of ``served``; the reason where there will be none."""
        if self.folder is None:
            return None
        name = served.name.rpartition("/")[2]
        try:
            recorder = Recorder(recording_path(name, self.folder))
            recorder.write(writer_line())
            if served.profile is not None:
                from specpanel.core.engine.registry import table_without_secrets

                chosen = SettingsChosen(table_without_secrets(served.profile))
                recorder.write(event_line(chosen))
            if served.record is not None and served.record.forced:
                recorder.write(event_line(Forced(served.record.forced)))
        except SpecpanelError as error:
            return f"{error.message}; the panel goes on without one"
        self._recorder = recorder
        return None

    def write(self, event: Event) -> str | None:
        """Add an event; the reason where the recording ends with it."""
        if self._recorder is None:
            return None
        try:
            self._recorder.write(event_line(event))
        except SpecpanelError as error:
            self._recorder = None
            return f"{error} Recording ended."
        return None

    def close(self, reason: str, *, stopped: bool = False) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            with suppress(SpecpanelError):
                recorder.write(closing_line(reason, stopped=stopped))
                recorder.close()
