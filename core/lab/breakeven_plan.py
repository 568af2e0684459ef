"""What every break-even shares, wherever its acceptance comes from: the plan, and what steps cost. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specpanel.core.errors import ConfigurationError
from specpanel.core.lab.arms import launch_fingerprint
from specpanel.core.lab.blocks import Cell, Tally
from specpanel.core.lab.curve import BreakevenFound, RealPoint, StepPoint
from specpanel.core.settings.profile import Profile, Traffic
from specpanel.core.speculation.breakeven import Required, expected_length, holdouts
from specpanel.core.speculation.contrast import STEP, Sums, contrast
from specpanel.core.traffic.records import Prompt

_FEWEST_TEXTS = 16
_FEWEST_A_BLOCK = 4  # requests: one alone has too few steps to tell how long one takes
_FEWEST_ROUNDS = (
    2  # in turn with the other settings, so that a passing disturbance is in all of them
)


@dataclass(frozen=True, slots=True)
class BreakevenPlan:
    """What to price. ``rate`` is the chance that a draft token is accepted; step times hang little on it.

    ``blocks`` are measured at each load, each with every K in turn.
    """

    profile: Profile
    prompts: tuple[Prompt, ...]
    loads: tuple[int, ...] = (1, 2, 4, 8)
    ks: tuple[int, ...] = (2, 4, 8)
    rate: float = 0.7
    blocks: int = 10
    with_drafter: bool = True

    def rounds(self, number: int, load: int) -> tuple[tuple[Prompt, ...], ...]:
        """The prompts of one block at a load, as many together as run at a time."""
        count = max(_FEWEST_ROUNDS, -(-_FEWEST_A_BLOCK // load))
        first = number * count * load
        return tuple(
            tuple(
                self.prompts[(first + turn * load + place) % len(self.prompts)]
                for place in range(load)
            )
            for turn in range(count)
        )

    def block(self, number: int, load: int) -> tuple[Prompt, ...]:
        """The same one after another, for a server that has one K."""
        return tuple(prompt for turn in self.rounds(number, load) for prompt in turn)

    def traffic(self, concurrency: int) -> Traffic:
        """Greedy answers that are all as long as may be, this many at a time."""
        return self.profile.traffic.model_copy(
            update={
                "concurrency": concurrency,
                "temperature": 0.0,
                "ignore_eos": True,
                "requests": None,
                "duration_s": None,
                "rate_per_s": None,
            }
        )

    def settings(self, *, with_drafter: bool) -> dict[str, Any]:
        """The plan as the store keeps it; ``with_drafter``: whether the profile's own is measured, too."""
        return {
            "loads": self.loads,
            "ks": self.ks,
            "rate": self.rate,
            "blocks": self.blocks,
            "with_drafter": with_drafter,
            "plain_launch": launch_fingerprint(self.profile.without_drafter()),
            "own_launch": launch_fingerprint(self.profile),
            "traffic": self.traffic(1).model_dump(mode="json"),
        }

    def with_needed_prompts(self) -> "BreakevenPlan":
        """The same with no more prompts than are sent.

        Raises:
            ConfigurationError: there are too few, or a load or K is no number from 1 on.
        """
        if not self.loads or not self.ks or min(self.loads) < 1 or min(self.ks) < 1:
            raise ConfigurationError("loads and K are whole numbers from 1 on")
        most = max(self.loads)
        if len(self.prompts) < most:
            raise ConfigurationError(
                f"{most} at a time need as many prompts, and there are {len(self.prompts)}"
            )
        return replace(self, prompts=self.prompts[: max(_FEWEST_TEXTS, most)])


def step_points(
    load: int,
    tallies: Mapping[int, Tally],
    plan: BreakevenPlan,
    broken: set[Cell],
    seed: int,
) -> tuple[list[StepPoint], list[str]]:
    """What every K costs at a load, against K=0; and why one has no figure."""
    plain = tallies[0].whole(broken)
    points: list[StepPoint] = []
    notes: list[str] = []
    for k in plan.ks:
        treated = tallies[k].whole(broken) if k in tallies else {}
        found = contrast(STEP, plain, treated, seed=seed)
        if found.value is None or found.a is None or found.b is None:
            notes.append(f"K={k} at {load}: {found.absent}")
            continue
        total = pooled(treated)
        points.append(
            StepPoint(
                concurrency=load,
                k=k,
                plain_step_ms=found.a,
                step_ms=found.b,
                required_length=found.value,
                required_interval=found.interval,
                chosen_length=expected_length(plan.rate, k),
                measured_length=1 + total.accepted / total.drafts if total.drafts else None,
                groups=found.groups,
            )
        )
    return points, notes


def found_so_far(
    plan: BreakevenPlan,
    points: Sequence[StepPoint],
    real: Sequence[RealPoint],
    notes: Sequence[str],
    elapsed_s: float,
) -> BreakevenFound | None:
    """The curve as far as it is known; None before a load was measured whole."""
    if not points:
        return None
    known = [Required(p.concurrency, p.k, p.required_length, p.required_interval) for p in points]
    return BreakevenFound(
        drafter=plan.profile.drafter.method,
        points=tuple(points),
        real=tuple(real),
        holdouts=holdouts(known),
        rate=plan.rate,
        max_tokens=plan.profile.traffic.max_tokens,
        elapsed_s=elapsed_s,
        notes=tuple(notes),
    )


def pooled(groups: Mapping[int, Sums]) -> Sums:
    """All groups as one."""
    total = Sums()
    for one in groups.values():
        total.add(one)
    return total
