"""The servers of a desk: how one is started, takes the place of another, and is ended.

With the current server go the watch that makes its Frames and the traffic that it is sent. A server that
starts beside another takes its place only when it is ready.
"""

import asyncio
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from specpanel.core.engine.client import EngineClient
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.session.desk_watch import DeskWatch
from specpanel.core.session.events import Listener, Note
from specpanel.core.session.interruption import InterruptedRunError
from specpanel.core.session.sending import Sending
from specpanel.core.session.served import Served, drained, served_record, start_served
from specpanel.core.session.settling import until_memory_is_steady, used_device_bytes
from specpanel.core.session.watching import found_server

if TYPE_CHECKING:  # who only watches loads neither settings nor what starts a server
    from specpanel.core.engine.registry import ServerRecord
    from specpanel.core.session.switching import SwitchPlan
    from specpanel.core.settings.profile import Profile


class DeskServers:
    """The current server, one that starts beside it, and what was there before.

    Nothing here keeps two calls apart: whoever calls sees to it that one is under way at a time.

    Args:
        feed: where Frames go, of whatever server is current.
        tell: told every event.
        recordings: folder for recordings; None records nothing.
        traffic: whether a started profile gets its traffic at once.
    """

    def __init__(
        self, feed: Feed, tell: Listener, *, recordings: Path | None, traffic: bool
    ) -> None:
        self.current: Served | None = None
        self.starting: Served | None = None  # beside ``current`` while a switch is on its way
        self.previous: Profile | None = None
        self.before: Frame | None = None  # the last Frame of the configuration before this one
        self.last_log: Path | None = None
        self.sends_traffic = traffic
        self.sending = Sending(tell)
        self.watch = DeskWatch(feed, tell, lambda: self.sending.progress, recordings)
        self.interrupted = asyncio.Event()  # what is under way is to be ended before it is done
        self.hurry = threading.Event()  # a stop is to kill instead of waiting
        self._feed = feed
        self._tell = tell
        self._retiring: Served | None = None  # replaced, and not ended yet

    @property
    def owned(self) -> bool:
        """Whether a server of ours runs or is being started."""
        found = (self.current, self.starting)
        return any(one is not None and one.record is not None and one.is_up for one in found)

    def plan(self, profile: "Profile") -> "SwitchPlan":
        """What changing to ``profile`` means, without doing it. Looks at the machine: about 0.3 s."""
        from specpanel.core.session.switching import plan_switch

        found = self.current
        if found is None:
            return plan_switch(None, profile, running=False)
        return plan_switch(found.profile, profile, running=found.is_up and found.record is not None)

    async def start(self, profile: "Profile", *, force: bool) -> None:
        """Start ``profile`` where no server has to make way; returns when it is ready.

        Raises:
            SpecpanelError: it cannot work or did not get ready; nothing of it is left running.
            InterruptedRunError: ``interrupted`` was set meanwhile; the same holds.
        """
        await self.watch.end()
        self.current = None
        served = await self._launched(profile, force=force)
        self.current = served
        try:
            self.watch.begin(served)
            await self._until_ready(served)
        except (SpecpanelError, InterruptedRunError):
            await self.end(served)
            raise
        self.last_log = served.log
        self.begin_load()

    async def switch(self, profile: "Profile", *, force: bool) -> None:
        """Change to ``profile``, side by side where memory allows. Raises as ``start`` does.

        A start that fails leaves the server before it current, or brings it back.
        """
        from specpanel.core.session.checks import as_error
        from specpanel.core.session.switching import port_beside

        old = self.current
        if old is None or not old.is_up:
            await self.start(profile, force=force)
            return
        plan = await asyncio.to_thread(self.plan, profile)
        if plan.errors and not force:
            raise as_error(plan.errors[0])
        frame = self._feed.latest
        if plan.side_by_side:
            await self._switch_beside(old, port_beside(profile, old.facts.url), force=force)
        else:
            await self._switch_over(old, profile, force=force)
        self.before = frame
        self.previous = old.profile
        self.watch.require().mark(f"switch to {_words(profile)}")
        if self._retiring is not None:
            await self._retire(self._retiring)

    async def adopt(self, record: "ServerRecord") -> None:
        """Make a running server of ours the current one.

        Raises:
            NotRunningError: it is not running any more.
        """
        from specpanel.core.engine.process import complete, is_running

        record = complete(record)
        if not await asyncio.to_thread(is_running, record):
            raise NotRunningError(f"{record.name} is not running any more")
        await self._replace(served_record(record))

    async def watch_url(self, url: str, metrics_urls: tuple[str, ...]) -> None:
        """Make a server of someone else's the current one."""
        async with EngineClient(url) as client:
            facts = await found_server(client, metrics_urls)
        await self._replace(Served(facts))

    async def stop(self) -> None:
        """End the current server.

        Raises:
            NotRunningError: it is none of ours.
        """
        served = self.current
        if served is None or served.record is None:
            raise NotRunningError("there is no server of ours to stop")
        await self.sending.end()
        await self.end(served)

    async def end(self, served: Served) -> None:
        """Stop a server that is watched: the Frames say so until another one comes."""
        served.look()
        ended = not served.is_up  # by itself: then its exit code is what is told
        await self._stop_processes(served)
        if not ended:
            served.facts.stopped = True
            served.facts.detail = None  # the last line of a start is no reason for a stop
        self.watch.look_again()

    def begin_load(self) -> None:
        """Send the current profile's traffic, where it is wanted and there is a server to take it."""
        served = self.current
        if served is None or not served.is_up or served.facts.starting:
            return
        if self.sends_traffic and served.profile is not None:
            self.sending.begin(served.facts.url, served.profile)

    # -- one in the place of another --------------------------------------------------------

    async def _switch_beside(self, old: Served, profile: "Profile", *, force: bool) -> None:
        served = self.starting = await self._launched(profile, force=force)
        looking = asyncio.create_task(served.keep_looking())
        try:
            await self._until_ready(served)
        except (SpecpanelError, InterruptedRunError):
            await self._stop_processes(served)
            raise
        finally:
            looking.cancel()
            self.starting = None
        await self.sending.end()
        await self.watch.end(f"switched to {_words(profile)}", stopped=old.record is not None)
        self.current = served
        self.last_log = served.log
        self.watch.begin(served)
        self.begin_load()
        if old.record is not None:
            self._retiring = old

    async def _switch_over(self, old: Served, profile: "Profile", *, force: bool) -> None:
        """Stop and start, for want of memory; a start that fails brings the old configuration back."""
        await self.sending.end()
        if old.record is not None:
            await self.end(old)
            if not await until_memory_is_steady(
                lambda: used_device_bytes(self._feed.latest), self.interrupted
            ):
                self._tell(Note("the device's memory goes on changing after the stop"))
        try:
            await self.start(profile, force=force)
        except SpecpanelError as error:
            if old.profile is None or self.interrupted.is_set():
                raise
            self._tell(Note(f"{error} Going back to {old.profile.name}."))
            await self.start(old.profile, force=force)
            raise error from None

    async def _retire(self, old: Served) -> None:
        """End a server that another one has replaced, once its last requests are done."""
        await drained(old.facts.url, self.interrupted)
        await self._stop_processes(old)
        self._retiring = None

    async def _replace(self, served: Served) -> None:
        await self.sending.end()
        await self.watch.end()
        self.current = served
        self.last_log = served.log
        self.watch.begin(served)

    # -- processes --------------------------------------------------------------------------

    async def _launched(self, profile: "Profile", *, force: bool) -> Served:
        served = await start_served(profile, self._tell, self.interrupted, force=force)
        self.last_log = served.log
        return served

    async def _until_ready(self, served: Served) -> None:
        if served.launch is not None:
            await served.launch.until_ready(self.interrupted)
            served.facts.starting = False

    async def _stop_processes(self, served: Served) -> None:
        if served.launch is not None:
            await served.launch.stop(self.hurry)
        elif served.record is not None:
            from specpanel.core.engine.process import stop_server

            await asyncio.to_thread(stop_server, served.record, 20.0, hurry=self.hurry)


def _words(profile: "Profile") -> str:
    k = profile.drafter.draft_tokens
    return f"{profile.drafter.method}" + (f" K={k}" if k else "")
