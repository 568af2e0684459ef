"""The desk starts, switches, adopts, watches and stops real processes that speak vLLM's protocol."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes.engine.workbench import Workbench

from specpanel.core.engine.process import running_servers
from specpanel.core.errors import ConfigurationError, LaunchError, NotRunningError
from specpanel.core.monitor.feed import Feed
from specpanel.core.monitor.frame import Frame
from specpanel.core.monitor.recording import read_recording
from specpanel.core.session.desk import Desk
from specpanel.core.session.events import Event, Launched, Note, Ready, Stopped
from specpanel.core.session.history import past_runs
from specpanel.core.settings.profile import Profile

DEADLINE_S = 30.0
_ports = itertools.cycle(range(8310, 8315))


class Table:
    """A desk, what it told, and profiles for it."""

    def __init__(self, bench: Workbench, folder: Path, *, traffic: bool = False) -> None:
        self.bench = bench
        self.recordings = folder / "recordings"
        self.events: list[Event] = []
        self.desk = Desk(Feed(), self.events.append, recordings=self.recordings, traffic=traffic)

    def profile(self, name: str = "bench", k: int = 4, **script: Any) -> Profile:
        environment = {"FAKE_VLLM": json.dumps({"start_s": 0.1, **script})}
        profile = self.bench.profile(port=next(_ports), environment=environment)
        drafter = profile.drafter.model_copy(update={"k": k})
        return profile.model_copy(update={"name": name, "drafter": drafter})

    def too_large(self, name: str, **script: Any) -> Profile:
        """A profile whose weights do not fit beside anything: a file with a hole of 8 TiB."""
        folder = self.bench.folder / name
        folder.mkdir()
        (folder / "config.json").write_text((self.bench.model / "config.json").read_text())
        with (folder / "model.safetensors").open("wb") as weights:
            weights.truncate(8 << 40)
        profile = self.profile(name, **script)
        target = profile.target.model_copy(update={"model": str(folder)})
        return profile.model_copy(update={"target": target})

    @property
    def frames(self) -> list[Frame]:
        return list(self.desk.feed)

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Note))

    async def until(self, condition: Callable[[], object]) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():  # noqa: ASYNC110 (Frames and processes set no event)
                    await asyncio.sleep(0.02)
        except TimeoutError:
            frame = self.desk.feed.latest
            pytest.fail(
                f"waited in vain; busy: {self.desk.busy}, failure: {self.desk.failure}, told: "
                f"{self.notes}, server: {frame and frame.server}"
            )

    async def rest(self) -> None:
        """Until the desk has done what was asked of it."""
        await self.until(lambda: self.desk.busy is None)

    async def serving(self, profile: Profile) -> None:
        self.desk.start(profile)
        await self.rest()
        assert self.desk.failure is None, self.desk.failure
        await self.frame_of(profile.name)

    async def frame_of(self, name: str, state: str = "serving") -> None:
        def seen() -> bool:
            frame = self.desk.feed.latest
            return frame is not None and (frame.server.name, frame.server.state) == (name, state)

        await self.until(seen)


@asynccontextmanager
async def table_of(bench: Workbench, folder: Path, **how: bool) -> AsyncIterator[Table]:
    table = Table(bench, folder, **how)
    try:
        yield table
    finally:
        await table.desk.close(leave=False)


@pytest.fixture
def bench(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)
    return bench


async def test_a_switch_runs_both_side_by_side_marks_the_moment_and_can_be_taken_back(
    bench: Workbench, tmp_path: Path
) -> None:
    async with table_of(bench, tmp_path, traffic=True) as table:
        desk = table.desk
        first, second = table.profile("first"), table.profile("second", k=2)
        await table.serving(first)
        await table.until(
            lambda: (f := desk.feed.latest) and f.speculation and f.speculation.drafts
        )
        desk.switch(second)
        await table.until(lambda: desk.starting is not None)
        assert {record.name for record in running_servers()} == {"first", "second"}
        await table.rest()
        await table.frame_of("second")
        assert [record.name for record in running_servers()] == ["second"]
        marked = next(frame for frame in table.frames if frame.mark)
        assert (marked.mark, marked.server.name) == ("switch to ngram K=2", "second")
        epochs = {frame.server.name: frame.epoch for frame in table.frames}
        assert epochs["second"] > epochs["first"]
        assert desk.before is not None
        assert desk.before.server.name == "first"
        desk.switch_back()
        await table.rest()
        await table.frame_of("first")
        assert desk.current is not None
        assert desk.current.facts.draft_tokens == 4
        names = [event.name for event in table.events if isinstance(event, Stopped)]
        assert names == ["first", "second"]
    bench.assert_nothing_left()
    runs = past_runs(table.recordings)
    assert [run.name for run in reversed(runs)] == ["first", "second", "first"]
    assert [run.settings for run in reversed(runs)] == [first, second, first]
    told = [frame for run in reversed(runs) for frame in read_recording(run.path)]
    assert next(frame.mark for frame in told if frame.mark) == "switch to ngram K=2"


async def test_a_start_that_fails_leaves_the_server_before_it_serving_and_shown(
    bench: Workbench, tmp_path: Path
) -> None:
    async with table_of(bench, tmp_path) as table:
        desk = table.desk
        await table.serving(table.profile("good"))
        version = desk.feed.version
        desk.start(table.profile("bad", crash_at="weights", start_s=1.5))
        await table.until(lambda: (one := desk.starting) and one.facts.phase)
        await table.rest()
        assert isinstance(desk.failure, LaunchError)
        assert "something that no table knows" in desk.failure.message
        assert desk.current is not None
        assert desk.current.name == "good"
        await table.until(lambda: desk.feed.version > version + 2)
        meanwhile = desk.feed.newer_than(version)
        assert {(frame.server.name, frame.server.state) for frame in meanwhile} == {
            ("good", "serving")
        }
        assert [record.name for record in running_servers()] == ["good"]
        assert desk.previous is None
        assert not any(frame.mark for frame in table.frames)


async def test_for_want_of_memory_the_old_server_stops_first_and_comes_back_when_the_new_one_fails(
    bench: Workbench, tmp_path: Path
) -> None:
    async with table_of(bench, tmp_path) as table:
        desk = table.desk
        old = table.profile("old")
        await table.serving(old)
        bad = table.too_large("bad", crash_at="config")
        plan = await asyncio.to_thread(desk.plan, bad)
        assert not plan.side_by_side
        assert "stops first" in plan.cost
        desk.switch(bad)
        await table.rest()
        await table.frame_of("old")
        assert isinstance(desk.failure, LaunchError)
        assert "Going back to old" in table.notes
        told = [event.name for event in table.events if isinstance(event, Launched | Stopped)]
        assert told == ["old", "old", "bad", "bad", "old"]
        desk.switch(table.too_large("large"))
        await table.rest()
        await table.frame_of("large")
        assert desk.previous == old
    bench.assert_nothing_left()


async def test_what_cannot_work_is_refused_before_anything_stops(
    bench: Workbench, tmp_path: Path
) -> None:
    async with table_of(bench, tmp_path) as table:
        desk = table.desk
        await table.serving(table.profile("good"))
        wrong = table.profile("wrong")
        target = wrong.target.model_copy(update={"model": str(tmp_path)})
        desk.switch(wrong.model_copy(update={"target": target}))
        await table.rest()
        assert isinstance(desk.failure, ConfigurationError)
        assert desk.owns_server
        assert not any(isinstance(event, Stopped) for event in table.events)


async def test_a_server_left_running_is_adopted_by_the_next_desk_and_stopped_by_it(
    bench: Workbench, tmp_path: Path
) -> None:
    async with table_of(bench, tmp_path) as table:
        profile = table.profile()
        await table.serving(profile)
        await table.desk.close(leave=True)
        (record,) = running_servers()
    async with table_of(bench, tmp_path / "next") as table:
        desk = table.desk
        desk.adopt(record)
        await table.rest()
        await table.frame_of("bench")
        assert desk.current is not None
        assert desk.current.profile == profile
        desk.set_traffic(on=True)
        await table.until(lambda: (f := desk.feed.latest) and f.traffic and f.traffic.finished)
        desk.mark("one")
        desk.mark("two")
        await table.until(lambda: any(frame.mark == "one, two" for frame in table.frames))
        desk.stop()
        await table.rest()
        await table.frame_of("bench", "stopped")
        assert not desk.owns_server
        with pytest.raises(NotRunningError, match="no server to send"):
            desk.set_traffic(on=True)
    bench.assert_nothing_left()


async def test_one_thing_at_a_time_and_a_start_can_be_called_off(
    bench: Workbench, tmp_path: Path
) -> None:
    async with table_of(bench, tmp_path) as table:
        desk = table.desk
        with pytest.raises(NotRunningError, match="nothing to mark"):
            desk.mark("nothing")
        with pytest.raises(NotRunningError, match="no configuration before"):
            desk.switch_back()
        desk.start(table.profile("slow", silent_after="weights"))
        await table.until(lambda: desk.owns_server)
        desk.start(table.profile("other"))
        assert "busy: starting slow; stop that first" in table.notes
        desk.stop()
        await table.rest()
        assert desk.failure is None
        assert "stopped before it was ready" in table.notes
        await table.frame_of("slow", "stopped")
        assert not any(isinstance(event, Ready) for event in table.events)
    bench.assert_nothing_left()


async def test_leaving_in_the_middle_of_a_start_leaves_the_start_going(
    bench: Workbench, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    async with table_of(bench, tmp_path) as table:
        table.desk.start(table.profile(gate_after="weights", gate=str(gate)))
        await table.until(lambda: (one := table.desk.current) and one.facts.phase == "weights")
        await table.desk.close(leave=True)
    (record,) = running_servers()
    async with table_of(bench, tmp_path / "next") as table:
        table.desk.adopt(record)
        await table.frame_of("bench", "starting")
        assert table.desk.feed.latest is not None
        assert table.desk.feed.latest.server.phase == "weights"
        gate.touch()
        await table.frame_of("bench")
        assert table.desk.feed.latest.server.phase is None
        assert "unreachable" not in {frame.server.state for frame in table.frames}
    bench.assert_nothing_left()


async def test_a_server_that_ends_by_itself_is_told_with_its_code(
    bench: Workbench, tmp_path: Path
) -> None:
    async with table_of(bench, tmp_path, traffic=True) as table:
        table.desk.start(table.profile(die_after_requests=2, die="server"))
        await table.frame_of("bench", "exited")
        assert not table.desk.owns_server
        assert table.desk.feed.latest is not None
        assert table.desk.feed.latest.server.exit_code is not None
