"""How a recorded run ended, in words: what its Frames alone do not tell."""

from pathlib import Path

from specpanel.core.errors import RecordingError
from specpanel.core.session.events import Event, Note, SummaryMade
from specpanel.core.session.history import PastRun, read_run


def how_it_ended(run: PastRun) -> str | None:
    """Why a run did not end as it should, without a capital; None where it did or nothing is known."""
    if run.why is None or run.ended in ("stopped", "left", "broken"):
        return None
    return f"the run failed: {run.why}" if run.ended == "failed" else run.why


def told_at_the_end(path: Path) -> tuple[Event, ...]:
    """What the end of a recording tells: its summary, and how it ended where that was not well.

    Raises:
        FileNotFoundError: there is no file.
    """
    if not path.is_file():
        path.stat()
        return (
            Note("a pipe is read once: its summary is told where its file is replayed by name"),
        )
    run = read_run(path)
    ending = how_it_ended(run)
    told: list[Event] = [] if run.summary is None else [SummaryMade(run.summary)]
    return (*told, *([] if ending is None else [Note(ending)]))


def without_frames(path: Path) -> RecordingError:
    """That a recording holds no Frames, with the reason where its run told one.

    Raises:
        FileNotFoundError: there is no file.
    """
    run = read_run(path)
    ending = how_it_ended(run)
    told = "" if ending is None else f": {ending.rstrip('.')}"
    fix = "Was the run ended before its server started?" if ending is None else ""
    return RecordingError(f"the recording {run.id} holds no frames{told}", fix)
