"""Break-even: what a step costs by load and K, measured with a proposer of chosen acceptance.

One server is priced at every setting, K=0 among them, in turn and round by round, so that drift of the
machine hits all alike. A second one, with the profile's own drafter, tells what that costs and accepts.
"""

import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specpanel.core.lab.arms import Arm
from specpanel.core.lab.blocks import Cell, Tally, warmup_prompts
from specpanel.core.lab.breakeven_plan import (
    BreakevenPlan,
    found_so_far,
    pooled,
    step_points,
)
from specpanel.core.lab.curve import (
    BreakevenFound,
    RealPoint,
    StepPoint,
    breakeven_conclusion,
    breakeven_table,
)
from specpanel.core.lab.events import LabListener, PointMeasured
from specpanel.core.lab.experiment import Ledger
from specpanel.core.lab.pricing import Pricing
from specpanel.core.lab.servers import Ready, Serving, Stop, prepare, serving, side_by_side
from specpanel.core.session.events import Note
from specpanel.core.speculation.acceptance import step_acceptance
from specpanel.core.speculation.contrast import (
    LENGTH,
    STEP,
    STEP_DIFFERENCE,
    TPOT,
    Contrast,
    Sums,
    contrast,
)
from specpanel.core.traffic.records import RequestRecord

_ALWAYS = 0.95  # of its steps: a drafter that drafts in every one


@dataclass(slots=True)
class Breakeven:
    """The experiment; see ``experiment.Work``."""

    plan_: BreakevenPlan
    tell: LabListener
    kind: str = "breakeven"
    _folder: tempfile.TemporaryDirectory[str] | None = None
    _ready: tuple[Ready, ...] = ()
    _steps: list[StepPoint] = field(default_factory=list)
    _real: list[RealPoint] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _began_s: float = 0.0

    @property
    def title(self) -> str:
        return self.plan_.profile.name

    @property
    def seed(self) -> int:
        return self.plan_.profile.traffic.seed

    @property
    def plan(self) -> str:
        plan = self.plan_
        return (
            f"{self.title}: {_listed(plan.loads)} at a time, K {_listed(plan.ks)}, "
            f"{plan.blocks} blocks each"
        )

    def settings(self) -> dict[str, Any]:
        return self.plan_.settings(with_drafter=self._measures_drafter)

    @property
    def _measures_drafter(self) -> bool:
        return self.plan_.with_drafter and self.plan_.profile.drafter.method not in (
            "none",
            "custom",
        )

    async def prepare(self, stop: Stop) -> Ready:
        plan = self.plan_ = self.plan_.with_needed_prompts()
        self._folder = tempfile.TemporaryDirectory(prefix="specpanel-breakeven-")
        profile = plan.profile.model_copy(update={"traffic": plan.traffic(max(plan.loads))})
        priced = Pricing(Path(self._folder.name)).profile(profile, max(plan.ks))
        arms = [Arm("chosen acceptance", priced)]
        if self._measures_drafter:
            arms.append(Arm("drafter", profile))
        self._ready = await prepare(arms, self.tell, stop)
        if len(self._ready) > 1 and not side_by_side(self._ready):
            self._ready = self._ready[:1]
            self._notes.append(
                "the drafter itself was not measured: memory for two servers is not certain"
            )
        if len(self._ready) > 1:
            self._notes.append(
                "the drafter itself ran in a server of its own, started once: some per cent of its ratio "
                "may be that start's (specpanel compare starts each side twice)"
            )
        if self._ready[0].need_bytes is None:
            self._notes.append(
                "the proposer switches asynchronous scheduling off, for plain decoding as well: "
                "both step times are without it"
            )
        return self._ready[0]

    async def run(self, ledger: Ledger, stop: Stop) -> None:
        assert self._folder is not None
        pricing = Pricing(Path(self._folder.name))
        try:
            async with AsyncExitStack() as stack:
                up = [
                    await stack.enter_async_context(serving(ready, self.tell, stop))
                    for ready in self._ready
                ]
                self._began_s = time.monotonic()
                texts = await pricing.record(up[0], self.plan_.prompts, stop)
                self.tell(Note(f"{texts} greedy answers are recorded to draft from"))
                for server in up[1:]:
                    first = warmup_prompts([self.plan_.prompts], 2)
                    await server.send(first, self.plan_.traffic(2), stop)
                for load in self.plan_.loads:
                    await self._at(load, up, pricing, ledger, stop)
        finally:
            self._folder.cleanup()

    async def _at(
        self,
        load: int,
        up: Sequence[Serving],
        pricing: Pricing,
        ledger: Ledger,
        stop: Stop,
    ) -> None:
        """Every K at one load, and the drafter itself, in turn, round by round of each block.

        The machine's speed changes within seconds: what is compared must lie as close together as that.
        """
        runs = [ledger.server(ready, server) for ready, server in zip(self._ready, up, strict=True)]
        settings: list[int | None] = [0, *self.plan_.ks, *([None] if len(up) > 1 else [])]
        tallies = {k: Tally() for k in settings}
        drafted: list[RequestRecord] = []
        traffic = self.plan_.traffic(load)
        rounds = [
            (block, prompts)
            for block in range(self.plan_.blocks)
            for prompts in self.plan_.rounds(block, load)
        ]
        for number, (block, prompts) in enumerate(rounds):
            turn = number % len(settings)
            for k in (*settings[turn:], *settings[:turn]):
                which = 1 if k is None else 0
                if k is not None:
                    pricing.draft(k=k, rate=self.plan_.rate, seed=self.seed * 1000 + number)
                done = await up[which].send(prompts, traffic, stop)
                tallies[k].add(block, done)
                drafted += done.records if k is None else ()
                conditions = {"concurrency": load, "k": k, "group": block}
                ledger.block(runs[which], block, conditions, done.records)
        self._take(load, tallies, drafted, ledger)

    def _take(
        self,
        load: int,
        tallies: dict[int | None, Tally],
        drafted: Sequence[RequestRecord],
        ledger: Ledger,
    ) -> None:
        broken = set().union(*(tally.broken for tally in tallies.values()))
        plain = tallies[0].whole(broken)
        priced = {k: tally for k, tally in tallies.items() if k is not None}
        points, notes = step_points(load, priced, self.plan_, broken, self.seed)
        self._steps += points
        self._notes += notes
        for point in points:
            self._tell_point(PointMeasured(point.sentence, asdict(point)), ledger)
        drafter = tallies.get(None)
        if drafter is None:
            return
        drafted_groups = drafter.whole(broken)
        ratio = contrast(TPOT, plain, drafted_groups, seed=self.seed)
        step = contrast(STEP, plain, drafted_groups, seed=self.seed)
        drafting = self._drafting(tallies, drafted_groups, broken)
        real = RealPoint(
            concurrency=load,
            k=self.plan_.profile.drafter.draft_tokens,
            step_ms=step.b,
            plain_step_ms=step.a,
            length=contrast(LENGTH, plain, drafted_groups, seed=self.seed).b,
            tokens_a_step=_tokens_a_step(drafted_groups),
            tpot_ratio=ratio.value,
            tpot_ratio_interval=ratio.interval,
            drafter_ms=None if drafting is None else drafting.value,
            drafter_ms_interval=None if drafting is None else drafting.interval,
            conditional=_conditional(drafted),
        )
        self._real.append(real)
        self._tell_point(PointMeasured(real.sentence, asdict(real)), ledger)

    def _tell_point(self, measured: PointMeasured, ledger: Ledger) -> None:
        self.tell(measured)
        ledger.told(measured)

    def _drafting(
        self, tallies: dict[int | None, Tally], drafter: dict[int, Sums], broken: set[Cell]
    ) -> Contrast | None:
        """What the drafter adds to a step: the same K with the chosen acceptance drafts for nothing.

        None for a drafter that leaves steps without a draft: its steps are no such steps.
        """
        k = self.plan_.profile.drafter.draft_tokens
        total = pooled(drafter)
        if k not in self.plan_.ks or total.drafts < _ALWAYS * total.steps:
            return None
        return contrast(STEP_DIFFERENCE, tallies[k].whole(broken), drafter, seed=self.seed)

    # -- what was found ---------------------------------------------------------------------

    def found(self) -> BreakevenFound | None:
        """What can be told so far; None before a load was measured whole."""
        elapsed_s = time.monotonic() - self._began_s
        return found_so_far(self.plan_, self._steps, self._real, self._notes, elapsed_s)

    def conclusion(self) -> str:
        return breakeven_conclusion(self.found())

    def result(self) -> dict[str, Any] | None:
        return breakeven_table(self.found())


def _tokens_a_step(groups: dict[int, Sums]) -> float | None:
    total = pooled(groups)
    return total.decode_tokens / total.steps if total.steps else None


def _conditional(records: Sequence[RequestRecord]) -> tuple[float, ...]:
    """Acceptance of each position as far as every one before it was reached."""
    found = step_acceptance(records, resamples=1)
    rates: list[float] = []
    for position in () if found is None else found.positions:
        if position.conditional is None:
            break
        rates.append(position.conditional.estimate)
    return tuple(rates)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
