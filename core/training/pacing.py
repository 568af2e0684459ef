"""Keep training from slowing a server beside it: its tokens are timed, and training waits between steps.

The wait doubles while a token takes longer than is allowed and is halved while it does not, so that it finds
the pace that serving bears.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from specpanel.core.errors import SpecpanelError
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.settings.profile import Traffic
from specpanel.core.traffic.records import Prompt
from specpanel.core.training.measuring import ask_each

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0


def next_wait_s(wait_s: float, slower: float, allowed: float) -> float:
    """The wait after each step from now on.

    Args:
        slower: time of a token now over that without training, minus 1.
        allowed: how much of that may be.
    """
    if slower > allowed:
        return min(LONGEST_WAIT_S, max(FIRST_WAIT_S, 2 * wait_s))
    return wait_s / 2 if wait_s > FIRST_WAIT_S else 0.0


class Pacing:
    """Times a server's tokens while a trainer runs, and tells the trainer its pace by a file.

    Args:
        idle_ms: time of a token without training.
        tell: told when the wait changes: seconds, and how much slower a token is.
    """

    def __init__(
        self,
        url: str,
        prompts: Sequence[Prompt],
        idle_ms: float,
        allowed: float,
        tell: Callable[[float, float], None],
        *,
        every_s: float = 20.0,
    ) -> None:
        self._url, self._prompts = url, tuple(prompts)
        self._idle_ms, self._allowed = idle_ms, allowed
        self._tell = tell
        self._every_s = every_s
        self._stop = asyncio.Event()
        self.worst = 0.0  # how much slower a token was at worst

    async def run(self, place: Path) -> None:
        """Look until ``stop``; the file is gone afterwards, and with it every wait."""
        wait_s = 0.0
        try:
            while not self._stop.is_set():
                slower = await self._slower()
                if slower is not None:
                    self.worst = max(self.worst, slower)
                    now_s = next_wait_s(wait_s, slower, self._allowed)
                    if now_s != wait_s:
                        wait_s = now_s
                        await asyncio.to_thread(place.write_text, str(wait_s), "utf-8")
                        self._tell(wait_s, slower)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), self._every_s)
        finally:
            remove(place)

    def stop(self) -> None:
        self._stop.set()

    async def _slower(self) -> float | None:
        found = await token_ms(self._url, self._prompts, self._stop)
        return None if found is None else found / self._idle_ms - 1


def remove(place: Path) -> None:
    """Without the file the trainer waits for nothing."""
    place.unlink(missing_ok=True)


async def token_ms(url: str, prompts: Sequence[Prompt], stop: asyncio.Event) -> float | None:
    """The median time of a token of a few short answers, one at a time; None where it could not be had."""
    traffic = Traffic(max_tokens=24, concurrency=1, timeout_s=120.0)
    try:
        records = await ask_each(url, None, prompts, traffic, stop)
    except (SpecpanelError, InterruptedRunError):
        return None  # the server is busy or gone: whoever promotes to it will see that
    times = [one.tpot_ms for one in records if one.tpot_ms is not None]
    return median(times) if times else None
