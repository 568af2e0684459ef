"""A schedule of K from a break-even, and the profile that carries it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from specpanel.core.errors import ConfigurationError
from specpanel.core.monitor.frame import Interval
from specpanel.core.preflight.arguments import data_parallel_size
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.breakeven import Required
from specpanel.core.speculation.schedule_search import (
    Candidate,
    Choice,
    candidates,
    choose_schedule,
    single_best,
    words_of,
)

# Drafters that make all tokens in one pass: another K costs them next to nothing.
_ONE_PASS = frozenset(
    {"ngram", "ngram_gpu", "suffix", "p_eagle", "pard", "dflash", "dflash2", "medusa"}
)

_ALWAYS = 0.95  # of its steps: a drafter that drafts in every one


@dataclass(frozen=True, slots=True)
class Tuned:
    """A schedule with its evidence. ``best_k`` is the best K where one has to do for all loads."""

    experiment: str
    conditional: tuple[float, ...]
    candidates: tuple[Candidate, ...]
    choices: tuple[Choice, ...]
    words: tuple[str, ...]
    best_k: int
    fixed_k: int
    notes: tuple[str, ...]


def tuned(experiment: str, result: Mapping[str, Any], profile: Profile) -> Tuned:
    """The schedule that a break-even of ``profile``'s drafter supports.

    Args:
        experiment: its name.
        result: what it found, as the store holds it.

    Raises:
        ConfigurationError: it did not measure the drafter, or the method takes no schedule.
    """
    if "k_by_batch_size" not in type(profile.drafter).model_fields:
        raise ConfigurationError(
            f"vLLM takes no K by batch size for the drafter {profile.drafter.method}",
            "Choose one K with specpanel compare.",
        )
    conditional = _pooled(result)
    if not conditional:
        raise ConfigurationError(
            f"{experiment} did not measure what the drafter accepts at each position",
            "Run specpanel tune without --from.",
        )
    points = [
        Required(
            point["concurrency"],
            point["k"],
            point["required_length"],
            None if point["required_interval"] is None else Interval(**point["required_interval"]),
        )
        for point in result["points"]
    ]
    fixed = profile.drafter.draft_tokens or 0
    share = _drafted_share(result)
    found = candidates(points, conditional, _drafting(result, profile), drafted_share=share)
    choices = choose_schedule(found, fixed)
    return Tuned(
        experiment=experiment,
        conditional=conditional,
        candidates=found,
        choices=choices,
        words=words_of(choices),
        best_k=single_best(found),
        fixed_k=fixed,
        notes=_notes(profile, share),
    )


def _pooled(result: Mapping[str, Any]) -> tuple[float, ...]:
    """Conditional acceptance, the mean over the loads: text, not load, decides what is accepted."""
    each = [point["conditional"] for point in result.get("real", ()) if point.get("conditional")]
    shortest = min((len(one) for one in each), default=0)
    return tuple(sum(one[n] for one in each) / len(each) for n in range(shortest))


def _drafted_share(result: Mapping[str, Any]) -> float:
    """Of the steps, how many had a draft: what a step yields beyond one token, over what a draft does."""
    each = [
        (point["tokens_a_step"] - 1) / (point["length"] - 1)
        for point in result.get("real", ())
        if point.get("tokens_a_step") and point.get("length") and point["length"] > 1
    ]
    return min(1.0, max(0.0, sum(each) / len(each))) if each else 1.0


def _drafting(result: Mapping[str, Any], profile: Profile) -> dict[int, float]:
    """What drafting one token adds to a step, in plain steps; what a one-pass drafter adds goes by no K."""
    if profile.drafter.method in _ONE_PASS:
        return {}
    return {
        point["concurrency"]: max(0.0, point["drafter_ms"]) / point["k"] / point["plain_step_ms"]
        for point in result.get("real", ())
        if point["drafter_ms"] is not None and point["k"] and point["plain_step_ms"]
    }


def _notes(profile: Profile, share: float) -> tuple[str, ...]:
    notes: list[str] = []
    if share < _ALWAYS:
        notes.append(
            f"{share:.0%} of the steps had a draft: the others cost and yield what plain ones do"
        )
    if data_parallel_size(profile) > 1:
        notes.append("vLLM ignores K by batch size under data parallelism: use one K there")
    if profile.drafter.method in _ONE_PASS:
        notes.append("drafting itself is taken to cost the same at every K")
    return tuple(notes)


def with_schedule(profile: Profile, found: Tuned, name: str) -> Profile:
    """``profile`` with the schedule, under another name; its K is the largest of the schedule's."""
    return with_settings(
        profile,
        name,
        k=max(1, *(choice.k for choice in found.choices)),
        k_by_batch_size=list(found.words),
        description=f"K by batch size from {found.experiment}",
    )


def with_k(profile: Profile, k: int, name: str) -> Profile:
    """``profile`` with one K for all loads; without a drafter where that is 0."""
    if k == 0:
        return profile.without_drafter().model_copy(update={"name": name})
    return with_settings(profile, name, k=k, k_by_batch_size=[], description="")


def with_settings(profile: Profile, name: str, *, description: str, **drafter: Any) -> Profile:
    """``profile`` under another name, with other settings of its drafter.

    Raises:
        ConfigurationError: they make no profile.
    """
    table = profile.model_dump(mode="json", exclude_unset=True)
    table["drafter"] = {
        **profile.drafter.model_dump(mode="json", exclude_defaults=True),
        "method": profile.drafter.method,
        **drafter,
    }
    try:
        return Profile.model_validate({**table, "name": name, "description": description})
    except ValidationError as error:
        raise ConfigurationError(
            f"these settings make no profile: {error.errors()[0]['msg']}"
        ) from None
