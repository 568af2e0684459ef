"""What the panel drives: one current server, started, adopted, watched, switched and stopped.

The desk keeps one feed across servers and marks the moments at which they change. It runs one task at a
time (``busy`` says which); what is asked for meanwhile is refused with a sentence, never queued in secret.
A failing start leaves the server serving that was there before.
"""

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING

from specpanel.core.devices.watch import DeviceWatch
from specpanel.core.engine.client import EngineClient
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.monitor import Monitor
from specpanel.core.session.desk_watch import DeskWatch
from specpanel.core.session.events import Event, Listener, Note
from specpanel.core.session.interruption import InterruptedRunError
from specpanel.core.session.sending import Sending
from specpanel.core.session.served import (
    Served,
    drained,
    served_record,
    start_served,
)
from specpanel.core.session.settling import until_memory_is_steady, used_device_bytes
from specpanel.core.session.watching import found_server

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
        self.current: Served | None = None
        self.starting: Served | None = None  # beside ``current`` while a switch is on its way
        self._retiring: Served | None = None  # replaced, and not ended yet
        self.previous: Profile | None = None
        self.before: Frame | None = None  # the last Frame of the configuration before this one
        self.busy: str | None = None
        self.failure: SpecpanelError | None = None  # of the last thing asked for
        self.last_log: Path | None = None
        self.sends_traffic = traffic
        self._listeners = [listener]
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._sending = Sending(self._tell)
        self._watch = DeskWatch(feed, self._tell, lambda: self._sending.progress, recordings)
        self._force = False  # whether preflight's errors keep from starting what is asked for now
        self._interrupted = asyncio.Event()
        self._hurry = threading.Event()

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
            self._force = force if self.busy is None else self._force
            self._begin(f"starting {profile.name}", self._start(profile))

    def switch(self, profile: "Profile", *, force: bool = False) -> None:
        """Change from the current server to ``profile``, side by side where memory allows."""
        self._force = force if self.busy is None else self._force
        self._begin(f"switching to {profile.name}", self._switch(profile))

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
        self._begin(f"adopting {record.name}", self._adopt(record))

    def watch(self, url: str, metrics_urls: tuple[str, ...] = ()) -> None:
        """Make a server of someone else's the current one; it is never stopped.

        ``metrics_urls`` are its engines' where ``url`` is a router's.
        """
        self._begin(f"looking at {url}", self._watch_url(url, metrics_urls))

    def stop(self) -> None:
        """Stop the current server, or the start that is on its way."""
        if self.busy is not None:
            self._interrupted.set()
            return
        self._begin("stopping", self._stop())

    @property
    def breaking_off(self) -> bool:
        """Whether what it is about is being ended before it is done."""
        return self.busy is not None and self._interrupted.is_set()

    def hurry(self) -> None:
        """Kill instead of waiting for a stop that is on its way."""
        self._hurry.set()

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
        self.sends_traffic = on
        if on:
            self._begin_load()
        else:
            self._sending.stop()

    @property
    def sending(self) -> bool:
        """Whether traffic of ours is being sent."""
        return self._sending.active

    def mark(self, text: str) -> None:
        """Mark this moment in the charts and the recording.

        Raises:
            NotRunningError: nothing is watched, so there is no moment to mark.
        """
        self.require_watch().mark(text)

    @property
    def recordings(self) -> Path | None:
        """The folder that its recordings go into."""
        return self._watch.recordings

    @property
    def devices(self) -> DeviceWatch | None:
        """What reads this machine's devices; None while no server is watched."""
        return self._watch.devices

    def require_watch(self) -> Monitor:
        """What makes the Frames.

        Raises:
            NotRunningError: no server is watched.
        """
        return self._watch.require()

    def plan(self, profile: "Profile") -> "SwitchPlan":
        """What changing to ``profile`` means, without doing it. Looks at the machine: about 0.3 s."""
        from specpanel.core.session.switching import plan_switch

        found = self.current
        if found is None:
            return plan_switch(None, profile, running=False)
        return plan_switch(found.profile, profile, running=found.is_up and found.record is not None)

    @property
    def owns_server(self) -> bool:
        """Whether a server of ours runs or is being started."""
        found = (self.current, self.starting)
        return any(one is not None and one.record is not None and one.is_up for one in found)

    async def close(self, *, leave: bool, reason: str = "the panel was left") -> None:
        """End the desk; the current server goes on with ``leave``, even in its start, else it is stopped.

        What is starting beside it ends either way. ``hurry`` cuts the waits short. ``reason`` is what the
        recording ends with. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._hurry.clear()
        self._interrupted.set()
        served = self.current
        if self._task is not None:
            if leave and served is not None and served.is_up and served.facts.starting:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._sending.end()
        served = self.current
        if not leave and served is not None and served.record is not None and served.is_up:
            await self._end_server(served)
        await self._watch.end(reason)

    # -- one thing at a time ----------------------------------------------------------------

    def _begin(self, what: str, work: Awaitable[None]) -> None:
        if self.busy is not None:
            if asyncio.iscoroutine(work):
                work.close()
            self._tell(Note(f"busy: {self.busy}; stop that first"))
            return
        self.busy, self.failure = what, None
        self._interrupted.clear()
        self._hurry.clear()
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

    async def _start(self, profile: "Profile") -> None:
        await self._watch.end()
        self.current = None
        served = await self._launched(profile)
        self.current = served
        try:
            self._watch.begin(served)
            await self._until_ready(served)
        except (SpecpanelError, InterruptedRunError):
            await self._end_server(served)
            raise
        self.last_log = served.log
        self._begin_load()

    async def _switch(self, profile: "Profile") -> None:
        from specpanel.core.session.checks import as_error
        from specpanel.core.session.switching import port_beside

        old = self.current
        if old is None or not old.is_up:
            await self._start(profile)
            return
        plan = await asyncio.to_thread(self.plan, profile)
        if plan.errors and not self._force:
            raise as_error(plan.errors[0])
        frame = self.feed.latest
        if plan.side_by_side:
            await self._switch_beside(old, port_beside(profile, old.facts.url))
        else:
            await self._switch_over(old, profile)
        self.before = frame
        self.previous = old.profile
        self.mark(f"switch to {_words(profile)}")
        if self._retiring is not None:
            await self._retire(self._retiring)

    async def _retire(self, old: Served) -> None:
        """End a server that another one has replaced, once its last requests are done."""
        await drained(old.facts.url, self._interrupted)
        await self._stop_processes(old)
        self._retiring = None

    async def _switch_beside(self, old: Served, profile: "Profile") -> None:
        served = self.starting = await self._launched(profile)
        looking = asyncio.create_task(served.keep_looking())
        try:
            await self._until_ready(served)
        except (SpecpanelError, InterruptedRunError):
            await self._stop_processes(served)
            raise
        finally:
            looking.cancel()
            self.starting = None
        await self._sending.end()
        await self._watch.end(f"switched to {_words(profile)}", stopped=old.record is not None)
        self.current = served
        self.last_log = served.log
        self._watch.begin(served)
        self._begin_load()
        if old.record is not None:
            self._retiring = old

    async def _switch_over(self, old: Served, profile: "Profile") -> None:
        """Stop and start, for want of memory; a start that fails brings the old configuration back."""
        await self._sending.end()
        if old.record is not None:
            await self._end_server(old)
            if not await until_memory_is_steady(
                lambda: used_device_bytes(self.feed.latest), self._interrupted
            ):
                self._tell(Note("the device's memory goes on changing after the stop"))
        try:
            await self._start(profile)
        except SpecpanelError as error:
            if old.profile is None or self._interrupted.is_set():
                raise
            self._tell(Note(f"{error} Going back to {old.profile.name}."))
            await self._start(old.profile)
            raise error from None

    async def _adopt(self, record: "ServerRecord") -> None:
        from specpanel.core.engine.process import complete, is_running

        record = complete(record)
        if not await asyncio.to_thread(is_running, record):
            raise NotRunningError(f"{record.name} is not running any more")
        await self._replace(served_record(record))

    async def _watch_url(self, url: str, metrics_urls: tuple[str, ...]) -> None:
        async with EngineClient(url) as client:
            facts = await found_server(client, metrics_urls)
        await self._replace(Served(facts))

    async def _replace(self, served: Served) -> None:
        await self._sending.end()
        await self._watch.end()
        self.current = served
        self.last_log = served.log
        self._watch.begin(served)

    async def _stop(self) -> None:
        served = self.current
        if served is None or served.record is None:
            raise NotRunningError("there is no server of ours to stop")
        await self._sending.end()
        await self._end_server(served)

    # -- servers ----------------------------------------------------------------------------

    async def _launched(self, profile: "Profile") -> Served:
        served = await start_served(profile, self._tell, self._interrupted, force=self._force)
        self.last_log = served.log
        return served

    async def _until_ready(self, served: Served) -> None:
        if served.launch is not None:
            await served.launch.until_ready(self._interrupted)
            served.facts.starting = False

    async def _end_server(self, served: Served) -> None:
        """Stop a server that is watched: the Frames say so until another one comes."""
        served.look()
        ended = not served.is_up  # by itself: then its exit code is what is told
        await self._stop_processes(served)
        if not ended:
            served.facts.stopped = True
            served.facts.detail = None  # the last line of a start is no reason for a stop
        self._watch.look_again()

    async def _stop_processes(self, served: Served) -> None:
        if served.launch is not None:
            await served.launch.stop(self._hurry)
        elif served.record is not None:
            from specpanel.core.engine.process import stop_server

            await asyncio.to_thread(stop_server, served.record, 20.0, hurry=self._hurry)

    def _begin_load(self) -> None:
        served = self.current
        if served is None or not served.is_up or served.facts.starting:
            return
        if self.sends_traffic and served.profile is not None:
            self._sending.begin(served.facts.url, served.profile)

    # -- telling ----------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        problem = self._watch.record(event)
        for listener in self._listeners:
            listener(event)
        if problem is not None:
            self._tell(Note(problem))


def _words(profile: "Profile") -> str:
    k = profile.drafter.draft_tokens
    return f"{profile.drafter.method}" + (f" K={k}" if k else "")
