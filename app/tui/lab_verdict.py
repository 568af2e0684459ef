"""One row on Live: whether speculation pays, by how much, and where that is known from."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.worker import Worker

from specpanel.app.tui.charts.glyphs import BRAILLE, Glyphs
from specpanel.app.tui.ink import Line, Span, clean, fit, width_of
from specpanel.app.tui.widgets.canvas import Canvas

if TYPE_CHECKING:  # the first picture does not wait for the store
    from specpanel.core.lab.standing import Evidence, Standing
    from specpanel.core.monitor.frame import Frame
    from specpanel.core.session.served import Served

_LOADS_KEPT = 10  # seconds: the number of running requests flickers
WORDS: dict[str, tuple[str, str]] = {
    "pays": ("good", "good"),
    "neutral": ("stopped", "text"),
    "costs": ("exited", "bad"),
    "unknown": ("warning", "muted"),
}
"""Glyph and ink of each verdict."""


def word_span(word: str, glyphs: Glyphs) -> Span:
    """The verdict as glyph and word."""
    state, ink = WORDS[word]
    sign = "?" if word == "unknown" else glyphs.states[state]
    return f"{sign} {word}", ink


@dataclass(frozen=True, slots=True)
class _Read:
    """What the store held for a server; ``failure`` where it could not be read."""

    evidence: "Evidence | None"
    failure: str | None = None


class VerdictLine(Canvas):
    """Reads the store once a configuration, in a thread, and judges every Frame by that."""

    DEFAULT_CSS = """
    VerdictLine { height: 1; background: $surface; }
    """

    def __init__(self, *, glyphs: Glyphs = BRAILLE) -> None:
        super().__init__(id="verdict")
        self.glyphs = glyphs
        self.key = "b"  # measures a baseline, as a person sees it
        self.standing: Standing | None = None
        self._served: Served | None = None
        self._changes = -1
        self._read: _Read | None = None
        self._loads: deque[int] = deque(maxlen=_LOADS_KEPT)
        self.set_class(True, "-absent")

    def show(self, frame: "Frame | None", served: "Served | None", changes: int) -> None:
        """The verdict for ``served`` at the newest Frame; other ``changes`` have the store read again."""
        profile = None if served is None else served.profile
        drafts = profile is not None and profile.drafter.method != "none"
        self.set_class(not drafts or frame is None, "-absent")
        if served is not self._served:
            self._loads.clear()
        if served is not self._served or changes != self._changes:
            self._served, self._changes, self._read, self.standing = served, changes, None, None
            if drafts:
                _: Worker[None] = self.run_worker(self._reading, group="evidence", exclusive=True)
        if drafts and frame is not None:
            self._judge(frame)
            self.redraw()

    @property
    def load(self) -> int | None:
        """Requests that ran together of late; None where none did."""
        return max(self._loads, default=0) or None

    async def _reading(self) -> None:
        served = self._served
        assert served is not None
        assert served.profile is not None
        read = await asyncio.to_thread(_evidence_of, served)
        if served is self._served:
            self._read = read

    def _judge(self, frame: "Frame") -> None:
        """Sums over what a Frame holds: some microseconds."""
        engine, profile = frame.engine, self._served.profile if self._served else None
        if engine is not None and engine.running is not None:
            self._loads.append(engine.running)
        if self._read is None or self._read.evidence is None or profile is None:
            return
        from specpanel.core.lab.standing import judged

        traffic = profile.traffic
        sending = frame.traffic is not None and traffic.rate_per_s is None
        load = max(self._loads, default=0)
        tokens, share = yielded(frame)
        self.standing = judged(
            self._read.evidence,
            tokens_a_step=tokens,
            concurrency=traffic.concurrency if sending or not load else load,
            drafted_share=share,
        )

    def compose_rows(self, width: int, height: int) -> Sequence[Line]:
        if self._read is not None and self._read.failure is not None:
            return [((f" ? unknown  {clean(self._read.failure)}", "muted"),)]
        if self.standing is None:
            return [((" verdict: looking at what was measured", "muted"),)]
        return [verdict_row(self.standing, width, self.key, self.glyphs)]


def _evidence_of(served: "Served") -> _Read:
    from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
    from specpanel.core.errors import SpecpanelError
    from specpanel.core.lab.environment import read_environment
    from specpanel.core.lab.standing import stored_evidence

    profile = served.profile
    assert profile is not None
    try:
        facts = probe_interpreter(resolve_python(profile.engine.python))
        return _Read(stored_evidence(profile, read_environment(profile, facts).table()))
    except SpecpanelError as error:
        return _Read(None, str(error))


def yielded(frame: "Frame") -> tuple[float | None, float]:
    """Tokens that a step yields now, steps without a draft included, and the share of those with one."""
    engine, sample = frame.engine, frame.speculation
    if sample is None or engine is None or not engine.generation_tokens_per_s:
        return None, 1.0
    tokens = engine.generation_tokens_per_s * sample.window_s
    steps = tokens - sample.accepted_tokens
    if steps < 1 or sample.drafts < 1:
        return None, 1.0
    return tokens / steps, min(1.0, sample.drafts / steps)


def verdict_row(found: "Standing", width: int, key: str, glyphs: Glyphs) -> Line:
    """The verdict, its ratio and its source; what does not fit is left out from the end, in whole facts."""
    dots = ".." if glyphs.name == "ascii" else "…"
    times = "x" if glyphs.name == "ascii" else "×"
    parts: list[Line] = [((" ", "text"), word_span(found.word, glyphs))]
    if found.ratio is not None and found.interval is not None:
        between = f"({found.interval.low:.2f} {dots} {found.interval.high:.2f})"
        parts.append(((f"  {found.ratio:.2f} {times}", "strong"), (f" {between}", "text")))
    if found.source == "measured":
        parts.append(((f"  measured at {found.concurrency} at a time", "muted"),))
        parts.append((("  time per token with the drafter over without", "muted"),))
    elif found.source == "break-even":
        parts.append((("  foretold from the break-even curve", "muted"),))
    elif found.word == "unknown":
        parts.append(((f"  {_unknown(found, key)}", "muted"),))
    if found.required is not None:
        need = f"  needs {found.required:.2f} tokens a step here"
        parts.insert(len(parts) if width < 110 else 3, ((need, "text"),))
    row: list[Span] = []
    for part in parts:
        if width_of((*row, *part)) > width - 1 and len(row) > 2:
            continue
        row += part
    return fit(row, width, glyphs.ellipsis)


def _unknown(found: "Standing", key: str) -> str:
    from specpanel.core.lab.standing import NO_BASELINE

    if found.sentence == NO_BASELINE:
        return f"no baseline yet: press {key}"
    words = clean(found.sentence).removeprefix("unknown")
    return f"{words.partition(';')[0].lstrip(': ')}: press {key} to measure"
