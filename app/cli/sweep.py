"""``specpanel run --with guidellm``: loads that another program sends, with our acceptance beside them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specpanel.core.lab.events import LabListener
    from specpanel.core.lab.experiment import Work
    from specpanel.core.settings.profile import Profile

SENDERS = ("guidellm",)
_LOADS = "1,4,8"
_REQUESTS = 24


@dataclass(frozen=True, slots=True)
class Asked:
    """What the flags said; None where they did not. ``program`` is where guidellm is."""

    profile: "Profile"
    sender: str | None
    loads: str | None
    requests: int | None
    concurrency: int | None
    attach: str | None
    model: str | None
    program: str | None


def sweep(asked: Asked, refused: Mapping[str, object], *, as_json: bool) -> None:
    """Do it; its result lies beside the experiments.

    Args:
        refused: flags of ``run`` that mean nothing here, with what was given for them.
    """
    from specpanel.app.cli.breakeven import whole_numbers
    from specpanel.app.cli.experiments import chosen_prompts, conducted
    from specpanel.core.errors import ConfigurationError
    from specpanel.core.lab.guidellm import GuideSweep, SweepPlan

    if asked.sender not in SENDERS:
        wrong = "--loads needs" if asked.sender is None else f"--with {asked.sender} is not"
        raise ConfigurationError(
            f"{wrong} --with {SENDERS[0]}", "specpanel run --help tells what can send the traffic."
        )
    given = next((flag for flag, value in refused.items() if value), None)
    if given is not None:
        raise ConfigurationError(f"{given} means nothing with guidellm", "Leave it out.")
    traffic = asked.profile.traffic
    for name in ("rate_per_s", "duration_s"):
        if getattr(traffic, name) is not None:
            raise ConfigurationError(
                f"traffic.{name} means nothing with guidellm, which sends a number of requests at each load",
                "Leave it out of the profile and the environment.",
            )
    if asked.loads is not None and asked.concurrency is not None:
        raise ConfigurationError("--loads and --concurrency say the same", "Keep one.")
    one = None if asked.concurrency is None else str(asked.concurrency)
    plan = SweepPlan(
        profile=asked.profile,
        prompts=chosen_prompts(asked.profile),
        loads=whole_numbers("--loads", asked.loads or one or _LOADS),
        requests=asked.requests or _REQUESTS,
        attach=asked.attach,
        model=asked.model,
        program=asked.program,
    )

    def make(tell: "LabListener") -> "Work":
        return GuideSweep(plan, tell)

    conducted(make, as_json=as_json)
