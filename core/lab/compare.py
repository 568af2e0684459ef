"""Compare two or more profiles on the same prompts, in blocks, until the ratio is known well enough."""

import os
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from specpanel.core.devices.records import DeviceSample
from specpanel.core.devices.visibility import used_by
from specpanel.core.engine.command import build_command, platform_of
from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.arms import Arm
from specpanel.core.lab.blocks import Cell, Tally, blocks_of, warmup_prompts
from specpanel.core.lab.events import BlockMeasured, LabListener
from specpanel.core.lab.experiment import Ledger
from specpanel.core.lab.findings import (
    CompareFound,
    Side,
    arm_found,
    conclusion,
    notes_of,
    pairing,
)
from specpanel.core.lab.power import ON_A_CPU, PowerLog, Used, metered
from specpanel.core.lab.servers import Ready, Serving, Stop, prepare, serving, side_by_side
from specpanel.core.session.events import Note
from specpanel.core.speculation.contrast import TPOT, contrast, half_width
from specpanel.core.speculation.few_units import FEWEST
from specpanel.core.speculation.stopping import Reason, Stopping
from specpanel.core.traffic.records import Prompt

_QUICK = 50  # resamples for a figure on the way
SIDE_BY_SIDE, IN_TURN = "side by side, a block each in turn", "one at a time, started in turn"


@dataclass(frozen=True, slots=True)
class ComparePlan:
    """What to compare and when it is enough.

    ``block_prompts`` are sent together as one block, each side in turn. ``rounds`` is how often each
    server is started: A B, then B A, and so on.
    """

    arms: tuple[Arm, ...]
    prompts: tuple[Prompt, ...]
    stopping: Stopping
    block_prompts: int | None = None
    rounds: int = 2
    apart: bool = False  # one server at a time, even where memory would do for all


@dataclass(slots=True)
class Comparison:
    """The experiment; see ``experiment.Work``."""

    plan_: ComparePlan
    tell: LabListener
    kind: str = "compare"
    _ready: tuple[Ready, ...] = ()
    _tallies: dict[str, Tally] = field(default_factory=dict)
    _starts: list[dict[str, Tally]] = field(default_factory=list)  # the same, start by start
    _runs: dict[str, int] = field(default_factory=dict)
    _began_s: float = 0.0
    _sent: int = 0  # blocks to each side
    _reason: Reason | None = None
    _arrangement: str = ""
    _passes: int = 1
    _power: PowerLog = field(default_factory=lambda: PowerLog(ON_A_CPU))
    _spans: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return " · ".join(arm.name for arm in self.plan_.arms)

    @property
    def seed(self) -> int:
        return self.plan_.arms[0].profile.traffic.seed

    @property
    def plan(self) -> str:
        rule = self.plan_.stopping
        limits = [
            None if rule.budget_s is None else f"{rule.budget_s / 60:g} min",
            None if rule.requests is None else f"{rule.requests} requests a side",
        ]
        budget = " or ".join(limit for limit in limits if limit)
        return (
            f"{self.title}: blocks of {self._block_prompts} prompts, until ±{rule.precision:.1%}"
            + (f", {budget} at most" if budget else "")
        )

    @property
    def _block_prompts(self) -> int:
        concurrency = self.plan_.arms[0].profile.traffic.concurrency
        return self.plan_.block_prompts or max(5, concurrency)

    def settings(self) -> dict[str, Any]:
        return {
            "stopping": asdict(self.plan_.stopping),
            "block_prompts": self._block_prompts,
            "rounds": self.plan_.rounds,
            "prompts": len(self.plan_.prompts),
            "traffic": self.plan_.arms[0].profile.traffic.model_dump(mode="json"),
        }

    async def prepare(self, stop: Stop) -> Ready:
        if len(self.plan_.arms) < 2:
            raise ConfigurationError("a comparison needs two profiles or more")
        self._tallies = {arm.name: Tally() for arm in self.plan_.arms}
        self._ready = await prepare(self.plan_.arms, self.tell, stop)
        together = side_by_side(self._ready) and not self.plan_.apart
        self._arrangement = SIDE_BY_SIDE if together else IN_TURN
        return self._ready[0]

    async def run(self, ledger: Ledger, stop: Stop) -> None:
        blocks = blocks_of(self.plan_.prompts, self._block_prompts)
        self._began_s = time.monotonic()
        self.tell(Note(f"servers stand {self._arrangement}"))
        async with AsyncExitStack() as stack:
            if platform_of(self._ready[0].placed, self._ready[0].facts) != "cpu":
                self._power = await stack.enter_async_context(metered(self._used()))
            if self._arrangement == SIDE_BY_SIDE:
                await self._side_by_side(blocks, ledger, stop)
            else:
                await self._in_turn(blocks, ledger, stop)

    def _used(self) -> Used:
        """The devices of the first side's launch: all sides have the same."""
        ready = self._ready[0]
        command = build_command(ready.placed, ready.facts, os.environ)
        environment = {**os.environ, **command.environment}

        def used(sample: DeviceSample) -> Sequence[str] | None:
            return used_by(
                *(sample.devices, sample.readings),
                environment=environment,
                arguments=command.argv,
                pids=(),
            )

        return used

    # -- the two arrangements ---------------------------------------------------------------

    async def _side_by_side(
        self, blocks: Sequence[Sequence[Prompt]], ledger: Ledger, stop: Stop
    ) -> None:
        """All servers at once, and again in the other order for each round, which gets its share of the work.

        The clock stands still while servers start.
        """
        rounds = self.plan_.rounds
        for number in range(rounds):
            is_last = number == rounds - 1
            rule = self.plan_.stopping.part((number + 1) / rounds)
            waits_s = time.monotonic()
            async with AsyncExitStack() as stack:
                up: list[Serving] = []
                for ready in self._order(number):
                    server = await stack.enter_async_context(serving(ready, self.tell, stop))
                    self._runs[ready.arm.name] = ledger.server(ready, server)
                    await self._warm(server, blocks, stop)
                    up.append(server)
                self._began_s += time.monotonic() - waits_s
                reason: Reason | None = None
                while reason is None:
                    await self._a_block_each(up, blocks, ledger, stop)
                    reason = self._look(ledger, rule)
            if is_last:
                self._reason = reason

    async def _a_block_each(
        self,
        up: Sequence[Serving],
        blocks: Sequence[Sequence[Prompt]],
        ledger: Ledger,
        stop: Stop,
    ) -> None:
        number = self._sent
        self._passes = 1 + number // len(blocks)
        group = number % len(blocks)
        # Each side goes first equally often: what a block leaves behind hits all alike.
        turn = number % len(up)
        for server in (*up[turn:], *up[:turn]):
            await self._block(server, group, number, blocks[group], ledger, stop)
        self._sent += 1

    def _order(self, number: int) -> Sequence[Ready]:
        """Begins a round: the servers in the order in which they are started."""
        self._starts.append({arm.name: Tally() for arm in self.plan_.arms})
        return self._ready if number % 2 == 0 else self._ready[::-1]

    async def _in_turn(
        self, blocks: Sequence[Sequence[Prompt]], ledger: Ledger, stop: Stop
    ) -> None:
        """Every server gets the same blocks between its start and its stop: A B, B A, and so on.

        The budget of requests is shared out to the rounds, and the clock is looked at between them.
        """
        rule = self.plan_.stopping
        a_round = blocks
        if rule.requests is not None:
            share = rule.requests // self.plan_.rounds // self._block_prompts
            a_round = blocks[: max(FEWEST, share)]
        for number in range(self.plan_.rounds):
            self._passes = number + 1
            for ready in self._order(number):
                async with serving(ready, self.tell, stop) as server:
                    self._runs[ready.arm.name] = ledger.server(ready, server)
                    await self._warm(server, blocks, stop)
                    for group, prompts in enumerate(a_round):
                        place = number * len(a_round) + group
                        await self._block(server, group, place, prompts, ledger, stop)
            self._sent += len(a_round)
            self._reason = self._look(ledger, rule)
            started_again = number > 0 or self.plan_.rounds == 1
            if self._reason == "out of time" or (self._reason == "narrow enough" and started_again):
                return
        self._reason = "out of requests"

    # -- one block --------------------------------------------------------------------------

    async def _warm(self, server: Serving, blocks: Sequence[Sequence[Prompt]], stop: Stop) -> None:
        traffic = server.arm.profile.traffic
        if traffic.warmup:
            await server.send(warmup_prompts(blocks, traffic.warmup), traffic, stop)

    async def _block(
        self,
        server: Serving,
        group: int,
        number: int,
        prompts: Sequence[Prompt],
        ledger: Ledger,
        stop: Stop,
    ) -> None:
        traffic = server.arm.profile.traffic
        began_s = time.monotonic()
        done = await server.send(prompts, traffic, stop)
        name = server.arm.name
        self._spans.setdefault(name, []).append((began_s, time.monotonic()))
        self._tallies[name].add(group, done)
        self._starts[-1][name].add(group, done)
        conditions = {"group": group, "concurrency": traffic.concurrency}
        ledger.block(self._runs[name], number, conditions, done.records)

    def _look(self, ledger: Ledger, rule: Stopping) -> Reason | None:
        """Tells how far it is; why it is enough by ``rule``."""
        reference, *others = self.plan_.arms
        broken = self._broken()
        before = self._tallies[reference.name].whole(broken)
        ratios: dict[str, float | None] = {}
        widths: dict[str, float | None] = {}
        for arm in others:
            after = self._tallies[arm.name].whole(broken)
            ratios[arm.name] = contrast(TPOT, before, after, resamples=_QUICK).value
            widths[arm.name] = half_width(before, after)
        elapsed_s = time.monotonic() - self._began_s
        measured = BlockMeasured(self._sent, elapsed_s, ratios, widths)
        self.tell(measured)
        ledger.told(measured)
        return rule.reason(
            widths.values(), len(before), elapsed_s, self._sent * self._block_prompts
        )

    def _broken(self) -> set[Cell]:
        """Prompts that failed on one side: they count on none."""
        return set().union(*(tally.broken for tally in self._tallies.values()))

    # -- what was found ---------------------------------------------------------------------

    def found(self) -> CompareFound | None:
        """What can be told so far; None before a block was measured on all sides."""
        if not self._sent:
            return None
        arms = self.plan_.arms
        reference, broken = arms[0], self._broken()
        whole = {name: tally.whole(broken) for name, tally in self._tallies.items()}
        devices = arms[0].profile.engine.tensor_parallel_size
        return CompareFound(
            arms=tuple(
                arm_found(
                    *(arm, whole[arm.name], tally.requests, tally.failed, devices),
                    self._power.over(self._spans.get(arm.name, ())),
                )
                for arm in arms
                for tally in (self._tallies[arm.name],)
            ),
            pairings=tuple(
                pairing(reference, arm, (self._side(reference), self._side(arm)), broken, self.seed)
                for arm in arms[1:]
            ),
            blocks=self._sent,
            starts=len(self._starts),
            block_prompts=self._block_prompts,
            passes=self._passes,
            concurrency=reference.profile.traffic.concurrency,
            elapsed_s=time.monotonic() - self._began_s,
            arrangement=self._arrangement,
            stopped=self._reason or "interrupted",
            notes=notes_of(
                len(whole[reference.name]),
                self._passes,
                sum(tally.failed for tally in self._tallies.values()),
                starts=len(self._starts),
                in_turn=self._arrangement == IN_TURN,
                remembers=any(arm.profile.drafter.method == "suffix" for arm in arms),
            ),
        )

    def _side(self, arm: Arm) -> Side:
        return Side(self._tallies[arm.name], [start[arm.name] for start in self._starts])

    def conclusion(self) -> str:
        found = self.found()
        return "nothing was measured" if found is None else conclusion(found.pairings)

    def result(self) -> dict[str, Any] | None:
        found = self.found()
        return None if found is None else asdict(found)
