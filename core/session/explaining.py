"""What a running server turned out to be: chosen against wished, and what is wrong with its acceptance."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from specpanel.core.engine.chosen import (
    Choice,
    Chosen,
    ChosenReader,
    against,
    cache_info,
    disagreements,
    with_cache_info,
)
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.logfile import LogFollower
from specpanel.core.engine.logline import parse_line
from specpanel.core.monitor.frame import Frame
from specpanel.core.session.events import ChosenFound, PathologyFound
from specpanel.core.speculation.pathologies import Pathology, PathologyWatch

if TYPE_CHECKING:
    from specpanel.core.settings.profile import Profile

_MOST_READS = 16  # of 1 MiB each: a start's log is far shorter


@dataclass(frozen=True, slots=True)
class Explanation:
    """``choices`` beside their wishes, ``remarks`` in vLLM's words."""

    choices: tuple[Choice, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def otherwise(self) -> tuple[Choice, ...]:
        """What vLLM did otherwise than wished."""
        return disagreements(self.choices)

    def event(self) -> ChosenFound:
        return ChosenFound(self.choices, self.remarks)


async def explain_choices(
    url: str, profile: "Profile | None", read: Chosen | None = None
) -> Explanation:
    """What the server at ``url`` chose: what its log said (``read``), made final by its metrics.

    A server that does not answer leaves what the log said.
    """
    chosen = read or Chosen()
    async with EngineClient(url) as client:
        body = await client.metrics()
    if body.text is not None:
        chosen = with_cache_info(chosen, cache_info(body.text))
    return Explanation(against(profile, chosen), chosen.remarks)


def read_choices(log: Path) -> Chosen:
    """What the beginning of a log says, for a server that was started earlier. Blocks on the file."""
    reader, follower = ChosenReader(), LogFollower(log)
    for _ in range(_MOST_READS):
        lines = follower.new_lines()
        if not lines:
            break
        for raw in lines:
            reader.feed(parse_line(raw))
            if reader.complete:
                return reader.chosen
    return reader.chosen


class Findings:
    """Tells each finding once when it is first there, and keeps all that were there during a run."""

    def __init__(self, tell: Callable[[PathologyFound], None]) -> None:
        self._watch = PathologyWatch()
        self._tell = tell
        self._ever: dict[str, Pathology] = {}

    def take(self, frame: Frame) -> None:
        """Take the next Frame."""
        self.add(self._watch.take(frame), frame.elapsed_s)

    def add(self, found: Iterable[Pathology], elapsed_s: float) -> None:
        """Take findings that come from elsewhere than Frames, or what Frames show now."""
        new = {one.code: one for one in found}
        for code, one in new.items():
            if code not in self._ever:
                self._tell(PathologyFound(elapsed_s, one))
            self._ever[code] = one

    @property
    def all(self) -> tuple[Pathology, ...]:
        """Everything that was found, as it stood last."""
        return tuple(self._ever.values())
