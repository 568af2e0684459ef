"""What is wrong with the acceptance of what is shown, kept beside the timeline; and its words."""

from typing import TYPE_CHECKING

from specpanel.app.tui.ink import clean

if TYPE_CHECKING:  # the first picture does not wait for it
    from specpanel.core.monitor.frame import Frame
    from specpanel.core.speculation.pathologies import Pathology, PathologyWatch

_INKS = {"error": "bad", "warning": "warn", "note": "muted"}
_ABOUT_NO_DRAFTS = frozenset({"no-drafts", "nothing-proposed"})


class LiveFindings:
    """Takes the Frames of one feed; ``now`` is what is wrong at the newest, the worst first."""

    def __init__(self) -> None:
        self._watch: PathologyWatch | None = None
        self.now: tuple[Pathology, ...] = ()

    def take(self, frame: "Frame") -> None:
        """Take the next Frame. Before there are counters nothing is looked at."""
        if frame.totals is None and self._watch is None:
            return
        if self._watch is None:
            from specpanel.core.speculation.pathologies import PathologyWatch

            self._watch = PathologyWatch()
        self.now = self._watch.take(frame)

    def headline(self, why_key: str) -> tuple[str, str] | None:
        """The worst finding as (ink, text) for the line above the charts; notes are for the dialog."""
        worst = next((one for one in self.now if one.severity != "note"), None)
        if worst is None:
            return None
        return _INKS[worst.severity], f"{clean(worst.sentence)} ({why_key}: why)"

    def about_no_drafts(self) -> tuple[str, ...]:
        """Why there are no drafts, as paragraphs; empty where nothing is known of it."""
        found = next((one for one in self.now if one.code in _ABOUT_NO_DRAFTS), None)
        if found is None:
            return ()
        causes = [f"{number}. {cause.text}." for number, cause in enumerate(found.causes, start=1)]
        return (f"{found.sentence}.", *(clean(text) for text in causes))
