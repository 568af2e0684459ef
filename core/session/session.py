"""The session: preflight, launch, traffic, summary, stop; with a baseline before it where asked for.

What it starts it also ends, on every way out: done, failed, interrupted.
"""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from specpanel.core.engine import identity
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.command import build_command
from specpanel.core.engine.interpreter import probe_interpreter, resolve_python
from specpanel.core.engine.interpreter_facts import InterpreterFacts
from specpanel.core.engine.registry import require_folder, table_without_secrets
from specpanel.core.errors import RecordingError, SpecpanelError, TrafficError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame, TrafficSample
from specpanel.core.monitor.monitor import Monitor, ServerFacts
from specpanel.core.monitor.recording import Recorder
from specpanel.core.session.checks import refuse_what_cannot_work
from specpanel.core.session.events import (
    Event,
    FrameTaken,
    LegBegan,
    Listener,
    Note,
    RequestDone,
    SettingsChosen,
    SummaryMade,
    event_line,
)
from specpanel.core.session.explaining import Explanation, Findings, explain_choices
from specpanel.core.session.launch import InterruptedRunError, Launch, VllmEndedError
from specpanel.core.session.measurement import Measurement, ServerEndedError
from specpanel.core.session.plan import Judge, Outcome, Plan
from specpanel.core.session.summary import Comparison, Leg, Summary, compare, judge
from specpanel.core.session.targets import with_model_paths
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.context_decay import context_decay
from specpanel.core.speculation.verdict import Verdict
from specpanel.core.traffic.capture import refuse_no_file
from specpanel.core.traffic.prompts import builtin_prompts, choose, read_prompts
from specpanel.core.traffic.records import Prompt, RequestRecord

_LOG_POLL_S = 0.25
_SIGNAL_LATE_S = 0.2


class Session:
    """Runs a plan once. ``interrupt`` may be called at any time; a second call hurries.

    Args:
        listener: told every event, in order.
        feed: where Frames go; a panel reads it.
        judge: asked for the verdict where the run itself has none.
    """

    def __init__(
        self,
        plan: Plan,
        listener: Listener,
        feed: Feed | None = None,
        *,
        judge: Judge | None = None,
    ) -> None:
        self.plan = plan
        self.feed = feed or Feed()
        self._listener = listener
        self._recorder: Recorder | None = None
        self._interrupted = asyncio.Event()
        self._hurry = threading.Event()
        self._began_s = time.monotonic()
        self._facts = ServerFacts(url=plan.attach or "")
        self._version: str | None = None
        self._judge = judge
        self._interpreter: InterpreterFacts | None = None
        self._log: Path | None = None
        self._measurements: list[Measurement] = []
        self._began = False
        self._forced: tuple[str, ...] = ()
        self._explanation = Explanation()
        self._findings = Findings(self._emit)

    def interrupt(self) -> None:
        """End soon: stop the traffic, sum up, stop what was started. The second time: at once."""
        if self._interrupted.is_set():
            self._hurry.set()
        self._interrupted.set()

    async def run(self) -> Outcome:
        """Do the plan; tell what was measured, also after an interrupt or a failure.

        Raises:
            RecordingError: the recording that was asked for cannot be written.
        """
        error: SpecpanelError | None = None
        self._begin_recording()
        try:
            self._emit(SettingsChosen(table_without_secrets(self.plan.profile)))
            try:
                await self._legs()
            except InterruptedRunError:
                pass
            except SpecpanelError as failure:
                error = failure
            summary = self._summary(error)
            self._emit(SummaryMade(summary))
            records = tuple((m.name, tuple(m.records)) for m in self._measurements)
            return Outcome(summary, error, self._interpreter, records)
        finally:
            self._end_recording()

    # -- the plan, step by step -------------------------------------------------------------

    async def _legs(self) -> None:
        prompts = self._prompts()
        if self.plan.attach is not None:
            await self._attached_leg(self.plan.attach, prompts)
            return
        try:
            profile, facts = await self._preflight()
        except SpecpanelError:
            # Ctrl-C in a terminal ends the children that preflight asks, too, and the news of their end
            # can come before that of the signal.
            with suppress(TimeoutError):
                async with asyncio.timeout(_SIGNAL_LATE_S):
                    await self._interrupted.wait()
            self._raise_if_interrupted()
            raise
        self._raise_if_interrupted()
        if self.plan.baseline:
            await self._launched_leg("baseline", profile.without_drafter(), facts, prompts)
        self._raise_if_interrupted()
        await self._launched_leg("drafter", profile, facts, prompts)

    async def _preflight(self) -> tuple[Profile, InterpreterFacts]:
        """The profile with its models in place, and what will run it. Starts no server."""
        require_folder()
        python = resolve_python(self.plan.profile.engine.python)
        facts = await asyncio.to_thread(probe_interpreter, python)
        self._version = facts.vllm_version
        self._interpreter = facts
        self._raise_if_interrupted()
        profile = await asyncio.to_thread(with_model_paths, self.plan.profile, python, self._note)
        self._raise_if_interrupted()
        self._forced = await asyncio.to_thread(
            refuse_what_cannot_work, profile, facts, self._emit, force=self.plan.force
        )
        return profile, facts

    async def _launched_leg(
        self, leg: str, profile: Profile, facts: InterpreterFacts, prompts: Sequence[Prompt]
    ) -> None:
        self._emit(LegBegan(leg, profile.drafter.method, profile.drafter.draft_tokens))
        settings = self.plan.profile if leg == "drafter" else self.plan.profile.without_drafter()
        command = build_command(profile, facts, os.environ)
        launch = Launch(profile, command, self._emit, settings=settings, forced=self._forced)
        launch.start()
        record = launch.record
        self._log = record.log
        self._facts = launch.first_facts(facts.vllm_version)
        try:
            async with self._monitored(launch) as monitor:
                ready_s = await launch.until_ready(self._interrupted)
                self._facts.starting = False
                await self._explain(profile, launch)
                try:
                    await self._measure(leg, profile, monitor, prompts, ready_s)
                except (ServerEndedError, TrafficError) as error:
                    # Here, where the process is still followed: its end may be yet to come.
                    raise await launch.why_requests_failed(error) from None
        finally:
            if (
                self.plan.keep_running
                and leg == "drafter"
                and launch.ready
                and launch.exit_code is None
            ):
                self._note(
                    f"{record.name} goes on at {record.url}; specpanel stop {record.name} ends it"
                )
            else:
                await asyncio.shield(launch.stop(self._hurry))

    async def _attached_leg(self, url: str, prompts: Sequence[Prompt]) -> None:
        async with EngineClient(url) as client:
            self._version = await client.require_vllm()
            names = await client.model_names()
            self._facts = ServerFacts(
                url=client.url, version=self._version, model=names[0] if names else None
            )
        await self._explain(None, None)
        async with self._monitored(None) as monitor:
            await self._measure("drafter", self.plan.profile, monitor, prompts, None)

    async def _measure(
        self,
        leg: str,
        profile: Profile,
        monitor: Monitor,
        prompts: Sequence[Prompt],
        ready_s: float | None,
    ) -> None:
        def take(record: RequestRecord) -> None:
            self._emit(RequestDone(leg, record))

        measurement = Measurement(
            leg, profile, self._facts, monitor, prompts, take, self._interrupted, ready_s
        )
        self._measurements.append(measurement)
        try:
            await measurement.run()
        finally:
            decay = context_decay(measurement.records)
            if decay is not None:
                self._findings.add((decay,), time.monotonic() - self._began_s)

    async def _explain(self, profile: Profile | None, launch: Launch | None) -> None:
        """Tell what the server chose; the last leg's stands in the summary."""
        read = None if launch is None else launch.choices.chosen
        self._explanation = await explain_choices(self._facts.url, profile, read)
        self._emit(self._explanation.event())

    # -- what runs beside it ----------------------------------------------------------------

    @asynccontextmanager
    async def _monitored(self, launch: Launch | None) -> AsyncIterator[Monitor]:
        self._began = True
        monitor = Monitor(
            self.feed,
            lambda: self._facts,
            traffic=self._traffic,
            processes=_process_reader(launch),
            on_frame=self._frame,
            began_s=self._began_s,
        )
        tasks = [asyncio.create_task(monitor.run())]
        if launch is not None:
            tasks.append(asyncio.create_task(self._follow(launch)))
        try:
            yield monitor
        finally:
            try:
                if launch is not None:
                    launch.describe(self._facts)  # why it ended, where it did a moment ago
                monitor.publish()  # how it stood at the end, where a run is over within a second
            finally:
                for task in tasks:
                    task.cancel()
                over = await asyncio.gather(*tasks, return_exceptions=True)
            for ended in over:
                if isinstance(ended, SpecpanelError):
                    raise ended

    async def _follow(self, launch: Launch) -> None:
        """Keep what is known of the process up to date, until it has ended."""
        facts = self._facts
        while facts.exit_code is None:
            launch.describe(facts)
            await asyncio.sleep(_LOG_POLL_S)

    def _traffic(self) -> TrafficSample | None:
        load = self._measurements[-1].load if self._measurements else None
        return None if load is None else load.progress

    def _frame(self, frame: Frame) -> None:
        self._emit(FrameTaken(frame))
        self._findings.take(frame)

    # -- the recording ----------------------------------------------------------------------

    def _begin_recording(self) -> None:
        if self.plan.record is None:
            return
        try:
            self._recorder = Recorder(self.plan.record)
        except RecordingError as error:
            self._go_on_without(error)

    def _record(self, text: str) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.write(text)
        except RecordingError as error:
            self._go_on_without(error)

    def _end_recording(self) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.close()
        except RecordingError as error:
            self._go_on_without(error)
        if self.plan.record_by_itself and not self._began and self.plan.record is not None:
            self.plan.record.unlink(
                missing_ok=True
            )  # refused before anything was started or watched

    def _go_on_without(self, error: RecordingError) -> None:
        """A recording that nobody asked for ends no run."""
        if not self.plan.record_by_itself:
            raise error
        self._recorder = None
        self._listener(Note(f"{error.message}; the run goes on without one"))

    # -- small things -----------------------------------------------------------------------

    def _prompts(self) -> tuple[Prompt, ...]:
        traffic = self.plan.profile.traffic
        if traffic.capture is not None:
            refuse_no_file(traffic.capture)
        found = read_prompts(traffic.prompts) if traffic.prompts else builtin_prompts()
        return choose(found, traffic.kinds, traffic.seed)

    def _raise_if_interrupted(self) -> None:
        if self._interrupted.is_set():
            raise InterruptedRunError

    def _note(self, text: str) -> None:
        self._emit(Note(text))

    def _emit(self, event: Event) -> None:
        self._record(event_line(event))
        self._listener(event)

    def _summary(self, error: SpecpanelError | None) -> Summary:
        profile = self.plan.profile
        measured = [(m.leg, m.records) for m in self._measurements if m.leg is not None]
        legs = tuple(leg for leg, _ in measured)
        comparison = compare(measured, greedy=profile.traffic.temperature == 0)
        drafter = legs[-1].drafter if legs else profile.drafter.method
        cause = error.failure if isinstance(error, VllmEndedError) else None
        return Summary(
            profile=profile.name,
            model=self._facts.model or profile.target.model,
            drafter=drafter,
            draft_tokens=self._facts.draft_tokens,
            concurrency=profile.traffic.concurrency,
            rate_per_s=profile.traffic.rate_per_s,
            temperature=profile.traffic.temperature,
            seed=profile.traffic.seed,
            url=self._facts.url,
            log=None if self._log is None else str(self._log),
            vllm_version=self._version,
            legs=legs,
            comparison=comparison,
            verdict=self._verdict(legs, comparison),
            interrupted=self._interrupted.is_set(),
            failure=None if error is None else str(error),
            vllm_exit_code=self._facts.exit_code,
            forced=self._forced,
            failure_code=None if cause is None else cause.code,
            failure_setting=None if cause is None else cause.setting,
            chosen=self._explanation.choices,
            remarks=self._explanation.remarks,
            findings=self._findings.all,
        )

    def _verdict(self, legs: Sequence[Leg], comparison: Comparison | None) -> Verdict:
        """What this run shows, else what earlier experiments do."""
        own = judge(legs, comparison)
        treated = next((leg for leg in legs if leg.drafter not in ("none", "unknown")), None)
        if own.source != "none" or treated is None:
            return own
        if self._judge is None or self._interpreter is None:
            return own
        return self._judge(self.plan.profile, treated, self._interpreter) or own


def _process_reader(launch: Launch | None) -> Callable[[], Sequence[int]]:
    """Pids of the launched server's session; none for a server that someone else started."""
    if launch is None:
        return tuple
    return lambda: identity.session_members(launch.record.pid, launch.record.start_mark)
