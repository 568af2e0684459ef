"""The traffic of a desk: begun and ended at will, for whatever server is current."""

import asyncio
import os
from typing import TYPE_CHECKING

from specpanel.core.engine.api_key import api_key
from specpanel.core.errors import SpecpanelError
from specpanel.core.monitor.frame import TrafficSample
from specpanel.core.session.events import Listener, Note

if TYPE_CHECKING:  # loaded with the first traffic: who only watches sends none
    from specpanel.core.settings.profile import Profile
    from specpanel.core.traffic.load import Load


class Sending:
    """At most one load at a time; a new one waits until the last has ended."""

    def __init__(self, tell: Listener) -> None:
        self._tell = tell
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._load: Load | None = None

    @property
    def active(self) -> bool:
        """Whether requests are sent, and shall be."""
        return self._task is not None and not self._task.done() and not self._stop.is_set()

    @property
    def progress(self) -> TrafficSample | None:
        return None if self._load is None else self._load.progress

    def begin(self, url: str, profile: "Profile") -> None:
        """Send the profile's traffic to ``url``, unless something is sent already."""
        if self.active:
            return
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._send(url, profile, self._stop, self._task))

    def stop(self) -> None:
        """End the load; requests on their way are cancelled."""
        self._stop.set()

    async def end(self) -> None:
        """End the load and wait for it."""
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _send(
        self,
        url: str,
        profile: "Profile",
        stop: asyncio.Event,
        before: asyncio.Task[None] | None,
    ) -> None:
        from specpanel.core.traffic.endpoint import Endpoint
        from specpanel.core.traffic.load import Load
        from specpanel.core.traffic.prompts import builtin_prompts, choose, read_prompts

        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        settings = profile.traffic
        try:
            found = read_prompts(settings.prompts) if settings.prompts else builtin_prompts()
            prompts = choose(found, settings.kinds, settings.seed)
            key = api_key(profile, os.environ)
            async with Endpoint(url, profile.target.served_name, api_key=key) as endpoint:
                self._load = Load(endpoint, prompts, settings, on_record=lambda _: None, stop=stop)
                await self._load.run()
        except SpecpanelError as error:
            self._tell(Note(str(error)))
        finally:
            self._load = None
