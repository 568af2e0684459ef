"""A sweep of loads through the real guidellm, with vLLM's acceptance beside its latencies.

One run of guidellm a load: so the counters' differences belong to that load alone, and what was measured
stays where a later load is interrupted or fails.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specpanel.core.engine.api_key import api_key
from specpanel.core.engine.client import EngineClient
from specpanel.core.engine.metrics import EngineCounters
from specpanel.core.errors import SpecpanelError, TrafficError
from specpanel.core.lab.arms import Arm, launch_fingerprint
from specpanel.core.lab.attached import Attached, attached, counters_of
from specpanel.core.lab.events import LabListener, PointMeasured, PointProgress
from specpanel.core.lab.experiment import Ledger
from specpanel.core.lab.guidellm_point import SweepPoint, notes_on, point_of, point_sentence
from specpanel.core.lab.guidellm_program import guidellm_program, run_guidellm
from specpanel.core.lab.guidellm_report import (
    Report,
    data_rows,
    read_report,
    scenario,
    whole_rounds,
)
from specpanel.core.lab.servers import Ready, Stop, prepare, serving
from specpanel.core.session.events import Note
from specpanel.core.session.launch import InterruptedRunError
from specpanel.core.session.measurement import counter_delta
from specpanel.core.settings.profile import Profile, Traffic
from specpanel.core.speculation.acceptance import acceptance_length
from specpanel.core.traffic.endpoint import Endpoint
from specpanel.core.traffic.load import Load
from specpanel.core.traffic.records import Prompt

_LOOK_S = 1.0
Cause = Callable[[SpecpanelError], Awaitable[SpecpanelError]]


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to measure: ``requests`` at each of ``loads``. ``attach`` is a server that runs already.

    ``model`` is the name that such a server is asked for; the first that it lists where None.

    ``program`` is guidellm as the user named it; None looks for it.
    """

    profile: Profile
    prompts: tuple[Prompt, ...]
    loads: tuple[int, ...]
    requests: int
    attach: str | None = None
    model: str | None = None
    program: str | None = None


@dataclass(frozen=True, slots=True)
class _Server:
    """What answers. ``cause`` finds out why requests failed."""

    url: str
    endpoint: Endpoint
    key: str | None
    run: int  # its number in the store
    cause: Cause


@dataclass(slots=True)
class GuideSweep:
    """The experiment; see ``experiment.Work``."""

    plan_: SweepPlan
    tell: LabListener
    kind: str = "guidellm"
    _program: str = ""
    _ready: Ready | None = None
    _attached: Attached | None = None
    _version: str | None = None
    _points: list[SweepPoint] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _began_s: float | None = None

    @property
    def title(self) -> str:
        return self.plan_.profile.name if self._attached is None else self._attached.name

    @property
    def seed(self) -> int:
        return self.plan_.profile.traffic.seed

    @property
    def plan(self) -> str:
        loads = ", ".join(map(str, self.plan_.loads))
        return (
            f"{self.title} through guidellm: {loads} at a time, {self.plan_.requests} requests each"
        )

    def settings(self) -> dict[str, Any]:
        launched = self.plan_.profile if self._attached is None else self._attached.settings
        return {
            "loads": self.plan_.loads,
            "requests": self.plan_.requests,
            "attached": None if self._attached is None else self._attached.url,
            "own_launch": None if launched is None else launch_fingerprint(launched),
            "traffic": self.plan_.profile.traffic.model_dump(mode="json"),
        }

    async def prepare(self, stop: Stop) -> Ready:
        self._program = guidellm_program(self.plan_.program)
        profile = self.plan_.profile
        if self.plan_.attach is None:
            [self._ready] = await prepare([Arm(profile.name, profile)], self.tell, stop)
        else:
            found = self._attached = await attached(self.plan_.attach, profile, self.plan_.model)
            self._ready = Ready(
                Arm(found.name, found.settings or profile),
                found.settings or profile,
                found.facts,
                None,
            )
        return self._ready

    async def run(self, ledger: Ledger, stop: Stop) -> None:
        # The scenario can hold the server's key: a folder for us alone, gone at the end.
        with tempfile.TemporaryDirectory(prefix="specpanel-guidellm-") as folder:
            async with self._server(ledger, stop) as server:
                self._began_s = time.monotonic()
                await self._acquaint(server, stop)
                for load in self.plan_.loads:
                    stop.check()
                    await self._measure(load, server, Path(folder), ledger, stop)

    # -- the server -------------------------------------------------------------------------

    @asynccontextmanager
    async def _server(self, ledger: Ledger, stop: Stop) -> AsyncIterator[_Server]:
        found, ready = self._attached, self._ready
        assert ready is not None
        if found is None:
            async with serving(ready, self.tell, stop) as server:
                key = api_key(ready.placed, os.environ)
                number = ledger.server(ready, server)
                yield _Server(
                    server.url, server.endpoint, key, number, server.launch.why_requests_failed
                )
            return
        number = ledger.attached(found.name, found.drafter, found.draft_tokens, found.settings)
        async with Endpoint(found.url, found.model, api_key=found.api_key) as endpoint:
            yield _Server(found.url, endpoint, found.api_key, number, _as_it_is)

    async def _acquaint(self, server: _Server, stop: Stop) -> None:
        """Show the server every prompt once, so that no load finds more in its caches than another."""
        prompts = self._sent()
        once = self.plan_.profile.traffic.model_copy(
            update={
                "concurrency": max(self.plan_.loads),
                "requests": len(prompts),
                "duration_s": None,
                "rate_per_s": None,
                "warmup": 0,
                "max_tokens": 1,
                "capture": None,
            }
        )
        load = Load(server.endpoint, prompts, once, on_record=lambda _: None, stop=stop.interrupted)
        try:
            await load.run()
        except TrafficError as error:
            raise await server.cause(error) from None
        stop.check()

    def _sent(self) -> tuple[Prompt, ...]:
        return self.plan_.prompts[: self.plan_.requests]

    # -- one load ---------------------------------------------------------------------------

    async def _measure(
        self, load: int, server: _Server, folder: Path, ledger: Ledger, stop: Stop
    ) -> None:
        traffic = self.plan_.profile.traffic.model_copy(update={"concurrency": load})
        plan, out = self._written(load, server, traffic, folder)
        self.tell(Note(f"guidellm begins with {load} at a time"))
        readings: list[EngineCounters] = []
        async with EngineClient(server.url) as client:
            first = await counters_of(client)
            readings += [] if first is None else [first]
            looking = asyncio.create_task(self._look(client, load, readings))
            try:
                await run_guidellm(self._program, plan, stop)
            except InterruptedRunError:
                self._note_cut_short(load, readings)
                raise
            except SpecpanelError as error:
                raise await server.cause(error) from None
            finally:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
            last = await counters_of(client)
            readings += [] if last is None else [last]
        found = self._read(out)
        if not found.successful:
            said = found.first_error or "it does not say why"
            raise await server.cause(TrafficError(f"every request of guidellm failed: {said}"))
        self._version = found.version
        ledger.block(server.run, len(self._points), {"concurrency": load}, found.records)
        drafter, k = self._drafter()
        point = point_of(load, found, first, last, readings, drafter, k)
        self._points.append(point)
        self._notes += notes_on(point, found, whole_rounds(self.plan_.requests, load))
        measured = PointMeasured(point_sentence(point), asdict(point))
        self.tell(measured)
        ledger.told(measured)

    def _written(
        self, load: int, server: _Server, traffic: Traffic, folder: Path
    ) -> tuple[Path, Path]:
        """guidellm's scenario for this load, and where its report will be."""
        data, plan, out = (
            folder / f"{load}-{name}" for name in ("data.json", "plan.json", "out.json")
        )
        requests = whole_rounds(self.plan_.requests, load)
        # More rows than requests: guidellm ends otherwise where its rows do.
        rows = data_rows(self._sent(), traffic, requests + load)
        wanted = scenario(
            url=server.url,
            model=server.endpoint.model,
            api_key=server.key,
            data=str(data),
            out=str(out),
            traffic=traffic,
            requests=requests,
        )
        try:
            data.write_text(json.dumps(rows), encoding="utf-8")
            plan.write_text(json.dumps(wanted), encoding="utf-8")
        except OSError as error:
            raise SpecpanelError(f"{folder} cannot be written: {error.strerror or error}") from None
        return plan, out

    def _read(self, out: Path) -> Report:
        try:
            text = out.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SpecpanelError(
                f"guidellm ended well, and its report cannot be read: {error}"
            ) from None
        return read_report(text, self.plan_.prompts)

    async def _look(self, client: EngineClient, load: int, readings: list[EngineCounters]) -> None:
        """Read the counters once a second and tell how far it is, until cancelled."""
        began_s, told = time.monotonic(), -1
        while True:
            await asyncio.sleep(_LOOK_S)
            now = await counters_of(client)
            if now is None:
                continue
            readings.append(now)
            done, length = _since(readings[0], now)
            if done is not None and done != told:
                told = done
                elapsed_s = time.monotonic() - began_s
                asked = whole_rounds(self.plan_.requests, load)
                self.tell(PointProgress(load, elapsed_s, done, asked, length))

    def _note_cut_short(self, load: int, readings: list[EngineCounters]) -> None:
        if not readings:
            return
        done, length = _since(readings[0], readings[-1])
        if done and length is not None:
            self._notes.append(
                f"interrupted at {load} at a time: guidellm tells no latencies of what it did not end; "
                f"AL {length:.2f} by the counters after {done} requests"
            )

    def _drafter(self) -> tuple[str, int | None]:
        if self._attached is not None:
            return self._attached.drafter, self._attached.draft_tokens
        drafter = self.plan_.profile.drafter
        return drafter.method, drafter.draft_tokens

    # -- what was found ---------------------------------------------------------------------

    def result(self) -> dict[str, Any] | None:
        if not self._points:
            return None
        drafter, k = self._drafter()
        return {
            "drafter": drafter,
            "draft_tokens": k,
            "requests": self.plan_.requests,
            "guidellm_version": self._version,
            "elapsed_s": 0.0 if self._began_s is None else time.monotonic() - self._began_s,
            "points": [asdict(point) for point in self._points],
            "notes": [
                "latencies are guidellm's: its TPOT counts the wait for the first token, its ITL is what "
                "specpanel calls time per output token elsewhere",
                "every prompt had been shown to the server before the first load",
                *self._notes,
            ],
        }

    def conclusion(self) -> str:
        said = "; ".join(map(point_sentence, self._points))
        return said or "; ".join(self._notes) or "nothing was measured"


async def _as_it_is(error: SpecpanelError) -> SpecpanelError:
    return error


def _since(before: EngineCounters, now: EngineCounters) -> tuple[int | None, float | None]:
    """Requests that ended since ``before``, and the acceptance length meanwhile."""
    then, finished = before.total.requests_finished or 0, now.total.requests_finished
    found = counter_delta(before, now)
    length = None if found is None else acceptance_length(found.drafts, found.accepted_tokens)
    return None if finished is None else max(0, finished - then), length
