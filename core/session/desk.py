"""What the panel drives: one current server, started, adopted, watched, switched and stopped.

The desk keeps one feed across servers and marks the moments at which they change. It runs one task at a
time (``busy`` says which); what is asked for meanwhile is refused with a sentence, never queued in secret.
A failing start leaves the server serving that was there before.
"""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specpanel.core.engine import identity
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
from specpanel.core.engine.metrics import ExpositionError, parse_exposition
from specpanel.core.engine.process import complete, is_running, stop_server
from specpanel.core.engine.registry import ServerRecord
from specpanel.core.errors import NotRunningError, SpecpanelError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.monitor import Monitor, ServerFacts
from specpanel.core.monitor.recording import Recorder
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import Event, FrameTaken, Listener, Note, event_line
from specpanel.core.session.launch import InterruptedRunError, Launch
from specpanel.core.session.switching import SwitchPlan, plan_switch, port_beside
from specpanel.core.session.targets import with_model_paths
from specpanel.core.settings.profile import Profile
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.prompts import builtin_prompts, choose, read_prompts

_FOLLOW_S = 0.25
_DRAIN_S = 20.0


@dataclass(slots=True)
class Served:
    """A server on the desk. ``record`` is None where someone else started it; ``launch`` unless we did."""

    facts: ServerFacts
    profile: Profile | None = None
    record: ServerRecord | None = None
    launch: Launch | None = None

    @property
    def name(self) -> str:
        return self.facts.name or self.facts.url

    @property
    def log(self) -> Path | None:
        return None if self.record is None else self.record.log

    @property
    def is_up(self) -> bool:
        """Whether it was neither stopped nor has ended by itself; it may be starting."""
        return self.facts.exit_code is None and not self.facts.stopped


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
        self.previous: Profile | None = None
        self.before: Frame | None = None  # the last Frame of the configuration before this one
        self.busy: str | None = None
        self.failure: SpecpanelError | None = None  # of the last thing asked for
        self.last_log: Path | None = None
        self.sends_traffic = traffic
        self._listeners = [listener]
        self._recordings = recordings
        self._recorder: Recorder | None = None
        self._began_s = time.monotonic()
        self._epochs = 0
        self._task: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._load_task: asyncio.Task[None] | None = None
        self._load: Load | None = None
        self._load_stop = asyncio.Event()
        self._interrupted = asyncio.Event()
        self._hurry = threading.Event()
        self._monitor: Monitor | None = None

    # -- what a panel asks for --------------------------------------------------------------

    def subscribe(self, listener: Listener) -> None:
        """Tell ``listener`` every event from now on, too."""
        self._listeners.append(listener)

    def start(self, profile: Profile) -> None:
        """Start ``profile``; a server that is current is switched away from."""
        if self.current is not None and self.current.is_up:
            self.switch(profile)
        else:
            self._begin(f"starting {profile.name}", self._start(profile))

    def switch(self, profile: Profile) -> None:
        """Change from the current server to ``profile``, side by side where memory allows."""
        self._begin(f"switching to {profile.name}", self._switch(profile))

    def switch_back(self) -> None:
        """Change to the configuration before this one.

        Raises:
            NotRunningError: there was none.
        """
        if self.previous is None:
            raise NotRunningError("there is no configuration before this one")
        self.switch(self.previous)

    def adopt(self, record: ServerRecord) -> None:
        """Make a running server of ours the current one."""
        self._begin(f"adopting {record.name}", self._adopt(record))

    def watch(self, url: str) -> None:
        """Make a server of someone else's the current one; it is never stopped."""
        self._begin(f"looking at {url}", self._watch_url(url))

    def stop(self) -> None:
        """Stop the current server, or the start that is on its way."""
        if self.busy is not None:
            self._interrupted.set()
            return
        self._begin("stopping", self._stop())

    def hurry(self) -> None:
        """Kill instead of waiting for a stop that is on its way."""
        self._hurry.set()

    def set_traffic(self, on: bool) -> None:
        """Begin or end sending the current profile's traffic."""
        self.sends_traffic = on
        if on:
            self._begin_load()
        else:
            self._load_stop.set()

    def mark(self, text: str) -> None:
        """Mark this moment in the charts and the recording."""
        if self._monitor is not None:
            self._monitor.mark(text)

    def plan(self, profile: Profile) -> SwitchPlan:
        """What changing to ``profile`` means, without doing it. Looks at the machine: about 0.3 s."""
        return plan_switch(None if self.current is None else self.current.profile, profile)

    @property
    def owns_server(self) -> bool:
        """Whether a server of ours runs or is being started."""
        found = (self.current, self.starting)
        return any(one is not None and one.record is not None and one.is_up for one in found)

    async def close(self, *, leave: bool) -> None:
        """End the desk; the current server goes on with ``leave``, even in its start, else it is stopped.

        What is starting beside it ends either way. ``hurry`` cuts the waits short.
        """
        self._hurry.clear()
        self._interrupted.set()
        served = self.current
        if self._task is not None:
            if leave and served is not None and served.is_up and served.facts.starting:
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end_load()
        served = self.current
        if not leave and served is not None and served.record is not None and served.is_up:
            await self._end_server(served)
        await self._end_watch()
        self._close_recording()

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

    async def _start(self, profile: Profile) -> None:
        await self._end_watch()
        self.current = None
        served = await self._launched(profile)
        self.current = served
        try:
            self._begin_watch(served)
            await self._until_ready(served)
        except (SpecpanelError, InterruptedRunError):
            await self._end_server(served)
            raise
        self.last_log = served.log
        self._begin_load()

    async def _switch(self, profile: Profile) -> None:
        old = self.current
        plan = await asyncio.to_thread(self.plan, profile)
        if old is None or not old.is_up:
            await self._start(profile)
            return
        frame = self.feed.latest
        if plan.side_by_side:
            await self._switch_beside(old, port_beside(profile, old.facts.url))
        else:
            await self._switch_over(old, profile)
        self.before = frame
        self.previous = old.profile
        self.mark(f"switch to {_words(profile)}")

    async def _switch_beside(self, old: Served, profile: Profile) -> None:
        served = self.starting = await self._launched(profile)
        try:
            await self._until_ready(served)
        except (SpecpanelError, InterruptedRunError):
            await self._stop_processes(served)
            raise
        finally:
            self.starting = None
        await self._end_load()
        await self._end_watch()
        self.current = served
        self.last_log = served.log
        self._begin_watch(served)
        self._begin_load()
        if old.record is not None:
            await _drained(old.facts.url)
            await self._stop_processes(old)

    async def _switch_over(self, old: Served, profile: Profile) -> None:
        """Stop and start, for want of memory; a start that fails brings the old configuration back."""
        await self._end_load()
        if old.record is not None:
            await self._end_server(old)
        try:
            await self._start(profile)
        except SpecpanelError as error:
            if old.profile is None or self._interrupted.is_set():
                raise
            self._tell(Note(f"{error} Going back to {old.profile.name}."))
            await self._start(old.profile)
            raise error from None

    async def _adopt(self, record: ServerRecord) -> None:
        record = complete(record)
        if not await asyncio.to_thread(is_running, record):
            raise NotRunningError(f"{record.name} is not running any more")
        facts = ServerFacts(
            url=record.url,
            name=record.name,
            model=record.model,
            drafter=record.drafter,
            draft_tokens=record.draft_tokens,
            pid=record.pid,
        )
        await self._replace(Served(facts, record.settings, record))

    async def _watch_url(self, url: str) -> None:
        async with EngineClient(url) as client:
            version = await client.require_vllm()
            names = await client.model_names()
            model = names[0] if names else None
            facts = ServerFacts(url=client.url, version=version, model=model)
        await self._replace(Served(facts))

    async def _replace(self, served: Served) -> None:
        await self._end_load()
        await self._end_watch()
        self.current = served
        self.last_log = served.log
        self._begin_watch(served)

    async def _stop(self) -> None:
        served = self.current
        if served is None or served.record is None:
            raise NotRunningError("there is no server of ours to stop")
        await self._end_load()
        await self._end_server(served)

    # -- servers ----------------------------------------------------------------------------

    async def _launched(self, profile: Profile) -> Served:
        """Preflight and start; returns as soon as the process exists."""
        python = resolve_python(profile.engine.python)
        facts = await asyncio.to_thread(probe_interpreter, python)
        loop = asyncio.get_running_loop()

        def tell(event: Event) -> None:
            loop.call_soon_threadsafe(self._tell, event)

        placed = await asyncio.to_thread(
            with_model_paths, profile, python, lambda text: tell(Note(text))
        )
        if self._interrupted.is_set():
            raise InterruptedRunError
        await asyncio.to_thread(refuse_what_cannot_work, placed, facts, tell)
        launch = Launch(
            placed, build_command(placed, facts, os.environ), self._tell, settings=profile
        )
        launch.start()
        record = launch.record
        self.last_log = record.log
        known = ServerFacts(
            url=record.url,
            name=record.name,
            model=record.model if placed.target.served_name else Path(record.model).name,
            drafter=placed.drafter.method,
            draft_tokens=placed.drafter.draft_tokens,
            version=facts.vllm_version,
            pid=record.pid,
            starting=True,
        )
        return Served(known, profile, record, launch)

    async def _until_ready(self, served: Served) -> None:
        if served.launch is not None:
            await served.launch.until_ready(self._interrupted)
            served.facts.starting = False

    async def _end_server(self, served: Served) -> None:
        """Stop a server that is watched: the Frames say so until another one comes."""
        await self._stop_processes(served)
        served.facts.stopped = True

    async def _stop_processes(self, served: Served) -> None:
        if served.launch is not None:
            await served.launch.stop(self._hurry)
        elif served.record is not None:
            await asyncio.to_thread(stop_server, served.record, 20.0, hurry=self._hurry)

    # -- Frames -----------------------------------------------------------------------------

    def _begin_watch(self, served: Served) -> None:
        self._open_recording(served)
        self._monitor = Monitor(
            self.feed,
            lambda: served.facts,
            traffic=lambda: None if self._load is None else self._load.progress,
            processes=lambda: _pids(served),
            on_frame=self._frame,
            began_s=self._began_s,
            first_epoch=self._epochs,
        )
        self._watch = asyncio.create_task(self._follow(served, self._monitor))

    async def _follow(self, served: Served, monitor: Monitor) -> None:
        frames = asyncio.create_task(monitor.run())
        try:
            while True:
                _look(served)
                await asyncio.sleep(_FOLLOW_S)
        finally:
            frames.cancel()
            await asyncio.gather(frames, return_exceptions=True)

    async def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None
        self._close_recording()

    def _frame(self, frame: Frame) -> None:
        self._epochs = frame.epoch + 1
        self._tell(FrameTaken(frame))

    # -- traffic ----------------------------------------------------------------------------

    def _begin_load(self) -> None:
        served = self.current
        ready = served is not None and not served.facts.starting and served.facts.exit_code is None
        if not self.sends_traffic or not ready or served is None or served.profile is None:
            return
        if self._load_task is None or self._load_task.done():
            self._load_stop = asyncio.Event()
            self._load_task = asyncio.create_task(self._send(served, served.profile))

    async def _send(self, served: Served, profile: Profile) -> None:
        settings = profile.traffic
        found = read_prompts(settings.prompts) if settings.prompts else builtin_prompts()
        prompts = choose(found, settings.kinds, settings.seed)
        try:
            async with Endpoint(served.facts.url, profile.target.served_name) as endpoint:
                self._load = Load(
                    endpoint, prompts, settings, on_record=lambda _: None, stop=self._load_stop
                )
                await self._load.run()
        except SpecpanelError as error:
            self._tell(Note(str(error)))
        finally:
            self._load = None

    async def _end_load(self) -> None:
        self._load_stop.set()
        if self._load_task is not None:
            await asyncio.gather(self._load_task, return_exceptions=True)
            self._load_task = None

    # -- telling ----------------------------------------------------------------------------

    def _open_recording(self, served: Served) -> None:
        if self._recordings is None:
            return
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = served.name.rpartition("/")[2].replace(":", "-")
        with suppress(SpecpanelError):
            self._recorder = Recorder(self._recordings / f"{name}-{stamp}.ndjson")

    def _close_recording(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            with suppress(SpecpanelError):
                recorder.close()

    def _tell(self, event: Event) -> None:
        if self._recorder is not None:
            try:
                self._recorder.write(event_line(event))
            except SpecpanelError as error:
                self._recorder = None
                self._tell(Note(f"{error} Recording ended."))
        for listener in self._listeners:
            listener(event)


def _look(served: Served) -> None:
    """Bring what is known of the process up to date."""
    facts, launch = served.facts, served.launch
    if facts.exit_code is not None or facts.stopped:
        return
    if launch is None:
        if served.record is not None and not identity.leader_lives(
            served.record.pid, served.record.start_mark
        ):
            facts.detail = "its process has ended"
            facts.exit_code = -1
            facts.ended.set()
        return
    launch.describe(facts)


def _pids(served: Served) -> list[int]:
    record = served.record
    return [] if record is None else identity.session_members(record.pid, record.start_mark)


async def _drained(url: str) -> None:
    """Wait until the server has no request left, for 20 s at most."""
    deadline = time.monotonic() + _DRAIN_S
    async with EngineClient(url) as client:
        while time.monotonic() < deadline:
            body = await client.metrics()
            try:
                counters = parse_exposition(body.text or "").counters.total
            except ExpositionError:
                return
            if not counters.running and not counters.waiting:
                return
            await asyncio.sleep(_FOLLOW_S)


def _words(profile: Profile) -> str:
    k = profile.drafter.draft_tokens
    return f"{profile.drafter.method}" + (f" K={k}" if k else "")
