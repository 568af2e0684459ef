"""What the panel drives: one current server, started, adopted, watched, switched and stopped.

The desk keeps one feed across servers and marks the moments at which they change. It runs one task at a
time (``busy`` says which); what is asked for meanwhile is refused with a sentence, never queued in secret.
A failing start leaves the server serving that was there before. What is done to the servers is in
``desk_servers``.
"""

import asyncio
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from specpanel.core.devices.watch import DeviceWatch
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.monitor import Monitor
from specpanel.core.session.desk_servers import DeskServers
from specpanel.core.session.events import Event, Listener, Note
from specpanel.core.session.interruption import InterruptedRunError
from specpanel.core.session.served import Served

if TYPE_CHECKING:  # a desk that only watches loads neither settings nor what starts a server
    from specpanel.core.engine.registry import ServerRecord
    from specpanel.core.session.switching import SwitchPlan
    from specpanel.core.settings.profile import Profile


class Desk:
    """Owns the current server on behalf of a panel.

    Args:
        feed: where Frames go, of whatever server is current.
        listener: told every event, always in the loop's own thread.
        recordings: folder for recordings; None records nothing.
        traffic: whether a started profile gets its traffic at once.
    """

    def __init__(
        self,
        feed: Feed,
        listener: Listener = lambda _: None,
        *,
        recordings: Path | None = None,
        traffic: bool = True,
    ) -> None:
        self.feed = feed
        self.busy: str | None = None
        self.failure: SpecpanelError | None = None  # of the last thing asked for
        self.servers = DeskServers(feed, self._tell, recordings=recordings, traffic=traffic)
        self._listeners = [listener]
        self._closed = False
        self._task: asyncio.Task[None] | None = None

    # -- what a panel asks for --------------------------------------------------------------

    def subscribe(self, listener: Listener) -> None:
        """Tell ``listener`` every event from now on, too."""
        self._listeners.append(listener)

    def start(self, profile: "Profile", *, force: bool = False) -> None:
        """Start ``profile``; a server that is current is switched away from.

        ``force`` starts in spite of preflight's errors, which are told and recorded.
        """
        if self.current is not None and self.current.is_up:
            self.switch(profile, force=force)
        else:
            self._begin(f"starting {profile.name}", self.servers.start(profile, force=force))

    def switch(self, profile: "Profile", *, force: bool = False) -> None:
        """Change from the current server to ``profile``, side by side where memory allows."""
        self._begin(f"switching to {profile.name}", self.servers.switch(profile, force=force))

    def switch_back(self) -> None:
        """Change to the configuration before this one.

        Raises:
            NotRunningError: there was none.
        """
        if self.previous is None:
            raise NotRunningError("there is no configuration before this one")
        self.switch(self.previous)

    def adopt(self, record: "ServerRecord") -> None:
        """Make a running server of ours the current one."""
        self._begin(f"adopting {record.name}", self.servers.adopt(record))

    def watch(self, url: str, metrics_urls: tuple[str, ...] = ()) -> None:
        """Make a server of someone else's the current one; it is never stopped.

        ``metrics_urls`` are its engines' where ``url`` is a router's.
        """
        self._begin(f"looking at {url}", self.servers.watch_url(url, metrics_urls))

    def stop(self) -> None:
        """Stop the current server, or the start that is on its way."""
        if self.busy is not None:
            self.servers.interrupted.set()
            return
        self._begin("stopping", self.servers.stop())

    @property
    def breaking_off(self) -> bool:
        """Whether what it is about is being ended before it is done."""
        return self.busy is not None and self.servers.interrupted.is_set()

    def hurry(self) -> None:
        """Kill instead of waiting for a stop that is on its way."""
        self.servers.hurry.set()

    def set_traffic(self, on: bool) -> None:
        """Begin or end sending the current profile's traffic.

        Raises:
            NotRunningError: no server is ready, or its profile is not known.
        """
        served = self.current
        if on and (served is None or not served.is_up or served.facts.starting):
            raise NotRunningError("there is no server to send traffic to")
        if on and served is not None and served.profile is None:
            raise NotRunningError(
                "the server was not started from a profile, so there is no traffic to send it"
            )
        self.servers.sends_traffic = on
        if on:
            self.servers.begin_load()
        else:
            self.servers.sending.stop()

    @property
    def sending(self) -> bool:
        """Whether traffic of ours is being sent."""
        return self.servers.sending.active

    def mark(self, text: str) -> None:
        """Mark this moment in the charts and the recording.

        Raises:
            NotRunningError: nothing is watched, so there is no moment to mark.
        """
        self.require_watch().mark(text)

    @property
    def recordings(self) -> Path | None:
        """The folder that its recordings go into."""
        return self.servers.watch.recordings

    @property
    def devices(self) -> DeviceWatch | None:
        """What reads this machine's devices; None while no server is watched."""
        return self.servers.watch.devices

    def require_watch(self) -> Monitor:
        """What makes the Frames.

        Raises:
            NotRunningError: no server is watched.
        """
        return self.servers.watch.require()

    def plan(self, profile: "Profile") -> "SwitchPlan":
        """What changing to ``profile`` means, without doing it. Looks at the machine: about 0.3 s."""
        return self.servers.plan(profile)

    # -- what it has ------------------------------------------------------------------------

    @property
    def current(self) -> Served | None:
        """The server that was started or found last, whoever started it; it may have ended."""
        return self.servers.current

    @property
    def starting(self) -> Served | None:
        """The server that starts beside the current one, while a switch is on its way."""
        return self.servers.starting

    @property
    def previous(self) -> "Profile | None":
        """The configuration before this one."""
        return self.servers.previous

    @property
    def before(self) -> Frame | None:
        """The last Frame of the configuration before this one."""
        return self.servers.before

    @property
    def last_log(self) -> Path | None:
        """The log of the server that was started or found last."""
        return self.servers.last_log

    @property
    def owns_server(self) -> bool:
        """Whether a server of ours runs or is being started."""
        return self.servers.owned

    # -- the end ----------------------------------------------------------------------------

    async def close(self, *, leave: bool, reason: str = "the panel was left") -> None:
        """End the desk; the current server goes on with ``leave``, even in its start, else it is stopped.

        What is starting beside it ends either way. ``hurry`` cuts the waits short. ``reason`` is what the
        recording ends with. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self.servers.hurry.clear()
        self.servers.interrupted.set()
        served = self.current
        if self._task is not None:
            if leave and served is not None and served.is_up and served.facts.starting:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.servers.sending.end()
        served = self.current
        if not leave and served is not None and served.record is not None and served.is_up:
            await self.servers.end(served)
        await self.servers.watch.end(reason)

    # -- one thing at a time ----------------------------------------------------------------

    def _begin(self, what: str, work: Awaitable[None]) -> None:
        if self.busy is not None:
            if asyncio.iscoroutine(work):
                work.close()
            self._tell(Note(f"busy: {self.busy}; stop that first"))
            return
        self.busy, self.failure = what, None
        self.servers.interrupted.clear()
        self.servers.hurry.clear()
        self._task = asyncio.create_task(self._guard(work))
        self._task.add_done_callback(self._ended)

    async def _guard(self, work: Awaitable[None]) -> None:
        try:
            await work
        except InterruptedRunError:
            self._tell(Note("stopped before it was ready"))
        except SpecpanelError as error:
            self._fail(error)
        finally:
            self.busy = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A fault of ours must not end in a task that nobody looks at."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            fault = SpecpanelError(
                f"{type(error).__name__}: {error}",
                "This is a fault of specpanel itself: the traceback is printed when the panel is left.",
            )
            fault.__cause__ = error
            self._fail(fault)

    def _fail(self, error: SpecpanelError) -> None:
        self.failure = error
        self._tell(Note(str(error)))

    # -- telling ----------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        problem = self.servers.watch.record(event)
        for listener in self._listeners:
            listener(event)
        if problem is not None:
            self._tell(Note(problem))
