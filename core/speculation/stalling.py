"""Whether a server that says it is well has stopped working: requests wait, and no counter moves. Pure."""

from specpanel.core.monitor.frame import Frame

STALLED_S = 60.0  # longer than a step, or the prefill of one chunk, takes anywhere


class Stall:
    """Takes Frames; ``seconds`` is how long nothing has moved though there is work."""

    def __init__(self) -> None:
        self._counts: tuple[object, ...] | None = None
        self._since_s = 0.0
        self.seconds = 0.0
        self.running = 0
        self.waiting = 0

    def take(self, frame: Frame) -> None:
        """Take the next Frame. One without good metrics tells nothing, so the wait begins anew."""
        counts = _counts(frame)
        if counts is None or counts != self._counts:
            self._counts, self._since_s, self.seconds = counts, frame.elapsed_s, 0.0
            return
        self.seconds = max(0.0, frame.elapsed_s - self._since_s)
        if frame.engine is not None:
            self.running, self.waiting = frame.engine.running or 0, frame.engine.waiting or 0

    @property
    def stalled(self) -> bool:
        return self.seconds >= STALLED_S


def _counts(frame: Frame) -> tuple[object, ...] | None:
    """What moves while a server works; None where it has no work or cannot be read."""
    engine, totals = frame.engine, frame.totals
    if frame.server.state not in ("serving", "degraded") or frame.scrape.state != "ok":
        return None
    if engine is None or totals is None or not (engine.running or engine.waiting):
        return None
    return (
        frame.epoch,
        frame.server.url,
        totals.generation_tokens,
        totals.prompt_tokens,
        engine.requests_finished,
        engine.preemptions,
    )
