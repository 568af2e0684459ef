"""Break-even by vLLM's synthetic acceptance: the own drafter, whose tokens are accepted as often as chosen.

Only a GPU can do it, and K belongs to a start, so there is a server for each K and one without a drafter,
started in turn, each with the same blocks. The drafter's own time is in its steps.
"""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

from specpanel.core.engine.command import platform_of
from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.arms import Arm
from specpanel.core.lab.blocks import Cell, Tally, warmup_prompts
from specpanel.core.lab.breakeven_plan import BreakevenPlan, found_so_far, step_points
from specpanel.core.lab.curve import (
    BreakevenFound,
    StepPoint,
    breakeven_conclusion,
    breakeven_table,
)
from specpanel.core.lab.events import LabListener, PointMeasured
from specpanel.core.lab.experiment import Ledger
from specpanel.core.lab.servers import Ready, Serving, Stop, prepare, serving
from specpanel.core.lab.tuning import with_settings
from specpanel.core.settings.profile import Profile

SOURCE = "vLLM's synthetic acceptance"
_ROUNDS = 2


def synthetic_profile(profile: Profile, k: int, rate: float) -> Profile:
    """``profile`` with ``k`` draft tokens, each accepted with ``rate`` where the one before was.

    Raises:
        ConfigurationError: it has no drafter, or one that takes no such setting.
    """
    if "rejection_sample_method" not in type(profile.drafter).model_fields:
        raise ConfigurationError(
            f"the drafter {profile.drafter.method} cannot be priced by synthetic acceptance",
            "Leave --synthetic out, or name a profile with another drafter.",
        )
    return with_settings(
        profile,
        f"{profile.name.split('+')[0][:56]}+k{k}",
        description=f"{SOURCE} at {rate:g}",
        k=k,
        k_by_batch_size=[],
        rejection_sample_method="synthetic",
        synthetic_acceptance_length=None,
        synthetic_acceptance_rates=[rate ** (place + 1) for place in range(k)],
    )


@dataclass(slots=True)
class SyntheticBreakeven:
    """The experiment; see ``experiment.Work``."""

    plan_: BreakevenPlan
    tell: LabListener
    kind: str = "breakeven"
    _ready: tuple[Ready, ...] = ()
    _tallies: dict[tuple[int, int], Tally] = field(default_factory=dict)  # by load and K
    _steps: list[StepPoint] = field(default_factory=list)
    _notes: list[str] = field(default_factory=list)
    _began_s: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.plan_.profile.name} (synthetic)"

    @property
    def seed(self) -> int:
        return self.plan_.profile.traffic.seed

    @property
    def plan(self) -> str:
        plan = self.plan_
        return f"{self.title}: a server without a drafter and one for each K of {plan.ks}, {_ROUNDS} times"

    def settings(self) -> dict[str, Any]:
        return {"source": SOURCE, **self.plan_.settings(with_drafter=False)}

    async def prepare(self, stop: Stop) -> Ready:
        plan = self.plan_ = self.plan_.with_needed_prompts()
        arms = [Arm("0", plan.profile.without_drafter())]
        self._ready = await prepare(arms, self.tell, stop)
        refuse_on_a_cpu(self._ready[0])
        arms += [Arm(str(k), synthetic_profile(plan.profile, k, plan.rate)) for k in plan.ks]
        self._ready = await prepare(arms, self.tell, stop)
        return self._ready[0]

    async def run(self, ledger: Ledger, stop: Stop) -> None:
        self._began_s = time.monotonic()
        for number in range(_ROUNDS):
            for ready in self._ready if number % 2 == 0 else self._ready[::-1]:
                async with serving(ready, self.tell, stop) as server:
                    run = ledger.server(ready, server)
                    first = warmup_prompts([self.plan_.prompts], max(self.plan_.loads))
                    await server.send(first, self.plan_.traffic(2), stop)
                    for load in self.plan_.loads:
                        await self._at(load, server, run, number, ledger, stop)
            self._look(ledger)

    async def _at(
        self, load: int, server: Serving, run: int, number: int, ledger: Ledger, stop: Stop
    ) -> None:
        k, traffic = int(server.arm.name), self.plan_.traffic(load)
        tally = self._tallies.setdefault((load, k), Tally())
        for block in range(self.plan_.blocks):
            prompts = self.plan_.block(block, load)
            done = await server.send(prompts, traffic, stop)
            tally.add(block, done)
            conditions = {"concurrency": load, "k": k, "group": block}
            ledger.block(run, number * self.plan_.blocks + block, conditions, done.records)

    def _look(self, ledger: Ledger) -> None:
        self._steps, self._notes = (
            [],
            [
                "priced by vLLM's synthetic acceptance with this drafter, whose own time is in its steps",
                "the servers ran one after the other: how the machine changed between two starts is not in "
                "the intervals",
            ],
        )
        for load in self.plan_.loads:
            here = {k: tally for (at, k), tally in self._tallies.items() if at == load}
            broken: set[Cell] = set().union(*(tally.broken for tally in here.values()))
            found, notes = step_points(load, here, self.plan_, broken, self.seed)
            self._steps += found
            self._notes += notes
        for point in self._steps:
            measured = PointMeasured(point.sentence, asdict(point))
            self.tell(measured)
            ledger.told(measured)

    def found(self) -> BreakevenFound | None:
        """What can be told so far; None before every server was measured once."""
        elapsed_s = time.monotonic() - self._began_s
        return found_so_far(self.plan_, self._steps, (), self._notes, elapsed_s)

    def conclusion(self) -> str:
        return breakeven_conclusion(self.found())

    def result(self) -> dict[str, Any] | None:
        return breakeven_table(self.found())


def refuse_on_a_cpu(ready: Ready) -> None:
    """Raise where the platform has no synthetic acceptance."""
    if platform_of(ready.placed, ready.facts) == "cpu":
        raise ConfigurationError(
            "vLLM has no synthetic acceptance on a CPU: its engine dies at the first sampled step",
            "Leave --synthetic out: specpanel's own proposer prices steps at a chosen acceptance there.",
        )
