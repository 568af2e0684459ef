"""Whether speculation changes greedy answers: the same prompts with the drafter and without it."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from specpanel.core.errors import ConfigurationError, ServerUnreachableError
from specpanel.core.lab.arms import Arm
from specpanel.core.lab.asking import next_logprobs, prompt_token_ids
from specpanel.core.lab.events import LabListener, PointMeasured
from specpanel.core.lab.experiment import Ledger
from specpanel.core.lab.servers import Ready, Serving, Stop, prepare, serving
from specpanel.core.session.events import Note
from specpanel.core.settings.profile import Profile
from specpanel.core.speculation.agreement import Difference, agreement
from specpanel.core.speculation.ties import Parting, judged, tolerance_of
from specpanel.core.traffic.records import Prompt, RequestRecord

FIRST, CACHED, CHUNKED = "first time", "prefix cache", "chunked prefill"
ITSELF = "the target with itself"
CHUNK_TOKENS = 64  # shorter than most prompts, so that their prefill is cut
_CHUNK_SEQUENCES = 16  # vLLM wants a step to hold a token of every request


@dataclass(frozen=True, slots=True)
class ParityPlan:
    """What to check. ``tolerance_nats`` tells a tie; the dtype's own where None."""

    profile: Profile
    prompts: tuple[Prompt, ...]
    chunked_prefill: bool = False
    tolerance_nats: float | None = None


@dataclass(frozen=True, slots=True)
class FeatureFound:
    """Answers compared under one feature. ``differences`` lists every parting, ties included."""

    feature: str
    compared: int
    identical: int
    ties: int
    real: int
    unknown: int
    differences: tuple[Parting, ...]


@dataclass(frozen=True, slots=True)
class ParityFound:
    """``itself`` is the target without a drafter, asked twice: what batching alone changes."""

    drafter: str
    draft_tokens: int | None
    prompts: int
    max_tokens: int
    concurrency: int
    tolerance_nats: float
    features: tuple[FeatureFound, ...]
    itself: FeatureFound | None

    @property
    def lossless(self) -> bool:
        """Whether no answer differs beyond a tie; what could not be told counts against it."""
        return not any(each.real or each.unknown for each in self.features)


@dataclass(slots=True)
class Parity:
    """The experiment; see ``experiment.Work``."""

    plan_: ParityPlan
    tell: LabListener
    kind: str = "parity"
    _ready: tuple[Ready, ...] = ()
    _features: list[FeatureFound] = field(default_factory=list)
    _itself: FeatureFound | None = None
    _tolerance: float = 0.0

    @property
    def title(self) -> str:
        return self.plan_.profile.name

    @property
    def seed(self) -> int:
        return self.plan_.profile.traffic.seed

    @property
    def plan(self) -> str:
        return (
            f"{self.title}: {len(self.plan_.prompts)} prompts with the drafter and without, greedy"
        )

    def settings(self) -> dict[str, Any]:
        return {
            "prompts": len(self.plan_.prompts),
            "chunked_prefill": self.plan_.chunked_prefill,
            "traffic": self.plan_.profile.traffic.model_dump(mode="json"),
        }

    async def prepare(self, stop: Stop) -> Ready:
        profile = self.plan_.profile
        if profile.drafter.method == "none":
            raise ConfigurationError(
                "parity compares with and without a drafter, and this profile has none",
                "Name a profile with a drafter.",
            )
        # Every answer is as long as the next, so none can part from another by ending.
        traffic = profile.traffic.model_copy(
            update={"temperature": 0.0, "ignore_eos": True, "requests": None, "duration_s": None}
        )
        profile = profile.model_copy(update={"traffic": traffic})
        arms = [Arm("plain", profile.without_drafter()), Arm("drafter", profile)]
        if self.plan_.chunked_prefill:
            arms.append(Arm(CHUNKED, _in_chunks(profile)))
        self._ready = await prepare(arms, self.tell, stop)
        self._tolerance = (
            tolerance_of(self._dtype())
            if self.plan_.tolerance_nats is None
            else self.plan_.tolerance_nats
        )
        return self._ready[1]

    def _dtype(self) -> str | None:
        """The type of the weights, as far as the profile tells; vLLM's choice on a CPU is ours."""
        told = self.plan_.profile.target.dtype
        if told in (None, "auto"):
            return "float32" if self._ready[0].need_bytes is not None else None
        return told

    async def run(self, ledger: Ledger, stop: Stop) -> None:
        plain: list[tuple[RequestRecord, ...]] = []
        async with serving(self._ready[0], self.tell, stop) as server:
            plain = [await self._asked(server, self._ready[0], n, ledger, stop) for n in range(2)]
            self._itself = await self._compared(ITSELF, server, plain[1], plain[0])
        for ready in self._ready[1:]:
            async with AsyncExitStack() as stack:
                server = await stack.enter_async_context(serving(ready, self.tell, stop))
                first = await self._asked(server, ready, 0, ledger, stop)
                if ready.arm.name == CHUNKED:
                    self._add(await self._compared(CHUNKED, server, first, plain[0]), ledger)
                    continue
                self._add(await self._compared(FIRST, server, first, plain[0]), ledger)
                again = await self._asked(server, ready, 1, ledger, stop)
                self._add(await self._compared(CACHED, server, again, plain[0]), ledger)

    async def _asked(
        self, server: Serving, ready: Ready, number: int, ledger: Ledger, stop: Stop
    ) -> tuple[RequestRecord, ...]:
        run = ledger.server(ready, server)
        done = await server.send(self.plan_.prompts, ready.arm.profile.traffic, stop)
        ledger.block(run, number, {"time": number + 1}, done.records)
        return done.records

    async def _compared(
        self,
        feature: str,
        server: Serving,
        treated: Sequence[RequestRecord],
        plain: Sequence[RequestRecord],
    ) -> FeatureFound:
        found = agreement(treated, plain)
        answers = {record.prompt_id: record for record in plain if record.ok}
        partings = [
            await self._judged(server, difference, answers[difference.prompt_id])
            for difference in found.differences
        ]
        kinds = [parting.kind for parting in partings]
        return FeatureFound(
            feature=feature,
            compared=found.compared,
            identical=found.identical,
            ties=kinds.count("tie"),
            real=kinds.count("difference"),
            unknown=kinds.count("unknown"),
            differences=tuple(partings),
        )

    async def _judged(
        self, server: Serving, difference: Difference, plain: RequestRecord
    ) -> Parting:
        """Ask the target how near the two tokens were at the place where the answers part."""
        logprobs = None
        prompt = next(one for one in self.plan_.prompts if one.id == difference.prompt_id)
        if difference.unit == "token" and plain.token_ids is not None:
            model = server.endpoint.model
            try:
                ids = await prompt_token_ids(server.url, model, prompt)
                context = (*ids, *plain.token_ids[: difference.place])
                logprobs = await next_logprobs(server.url, model, context)
            except ServerUnreachableError as error:
                self.tell(Note(f"{difference.prompt_id}: {error.message}"))
        one, other = difference.with_drafter, difference.without_drafter
        return judged(
            difference.prompt_id,
            difference.place,
            one if isinstance(one, int) else None,
            other if isinstance(other, int) else None,
            logprobs,
            self._tolerance,
        )

    def _add(self, found: FeatureFound, ledger: Ledger) -> None:
        self._features.append(found)
        figures = {key: value for key, value in asdict(found).items() if key != "differences"}
        measured = PointMeasured(feature_sentence(found), figures)
        self.tell(measured)
        ledger.told(measured)

    # -- what was found ---------------------------------------------------------------------

    def found(self) -> ParityFound | None:
        """What can be told so far; None before the first comparison."""
        if not self._features:
            return None
        traffic, drafter = self.plan_.profile.traffic, self.plan_.profile.drafter
        return ParityFound(
            drafter=drafter.method,
            draft_tokens=drafter.draft_tokens,
            prompts=len(self.plan_.prompts),
            max_tokens=traffic.max_tokens,
            concurrency=traffic.concurrency,
            tolerance_nats=self._tolerance,
            features=tuple(self._features),
            itself=self._itself,
        )

    def conclusion(self) -> str:
        found = self.found()
        if found is None:
            return "nothing was compared"
        return "; ".join(feature_sentence(each) for each in found.features)

    def result(self) -> dict[str, Any] | None:
        found = self.found()
        return None if found is None else {**asdict(found), "lossless": found.lossless}


def feature_sentence(found: FeatureFound) -> str:
    """One feature in words."""
    text = f"{found.feature}: {found.identical} of {found.compared} answers identical"
    if found.ties:
        text += f", {found.ties} part at a numerical tie"
    if found.real:
        text += f", {found.real} differ"
    if found.unknown:
        text += f", {found.unknown} part and it could not be told how"
    return text


def _in_chunks(profile: Profile) -> Profile:
    """The same launch with steps so short that prompts are read in pieces."""
    more = (
        *("--max-num-batched-tokens", str(CHUNK_TOKENS), "--enable-chunked-prefill"),
        *("--max-num-seqs", str(_CHUNK_SEQUENCES)),
    )
    arguments = (*profile.engine.arguments, *more)
    engine = profile.engine.model_copy(update={"arguments": arguments, "max_num_seqs": None})
    return profile.model_copy(update={"engine": engine})
