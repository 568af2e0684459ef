"""What the MLA screen looks at: a model, a GPU and the settings being tried, and what follows. Pure.

The settings begin as the profile has them; what is tried changes nothing until it is written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from specpanel.core.session.mla_tiers import MlaChoices
from specpanel.kernels.advice import Advice
from specpanel.kernels.dims import PRESETS, MLADims
from specpanel.kernels.errors import MLAError
from specpanel.kernels.explain import Explanation, explain
from specpanel.kernels.gpus import GPU, GPUS
from specpanel.kernels.vllm_backends import BACKENDS, KV_DTYPES

_Choice = TypeVar("_Choice")

LENGTHS = (
    *(128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192),
    *(12288, 16384, 24576, 32768, 49152, 65536),
)
"""Prompts whose tiers are listed."""

_CHUNKS = (None, 2048, 4096, 8192, 16384, 32768, 65536)
_SIZES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing to try: its name, its value in words, and what follows from it.

    ``short_note`` takes the place of a note for which there is no room.
    """

    name: str
    value: str
    note: str = ""
    changed: bool = False
    short_note: str = ""


@dataclass(frozen=True)
class Study:
    """One way to serve one model.

    Args:
        model: the name of what is looked at, a preset's key or the profile's model.
        dims: its geometry; None where there is none, and ``problem`` says why.
        own: the profile's own choices; ``tried`` is what the screen has changed them to.
    """

    model: str
    gpu: GPU
    own: MlaChoices
    tried: MlaChoices
    dims: MLADims | None = None
    problem: MLAError | None = None

    @cached_property
    def answer(self) -> Explanation | MLAError:
        """What vLLM would do, or why there is nothing to say."""
        if self.dims is None:
            return self.problem or MLAError("no model is looked at")
        try:
            return explain(
                self.tried.serving(self.dims, self.gpu),
                LENGTHS,
                chunk_tokens=self.tried.chunk_tokens,
            )
        except MLAError as error:
            return error

    @property
    def explanation(self) -> Explanation | None:
        return self.answer if isinstance(self.answer, Explanation) else None

    @property
    def error(self) -> MLAError | None:
        return self.answer if isinstance(self.answer, MLAError) else None

    @property
    def changed(self) -> bool:
        return self.tried != self.own

    @property
    def offers(self) -> tuple[Advice, ...]:
        """Advice, that with a setting first: it can be tried with a key."""
        found = self.explanation
        advice = () if found is None else found.advice
        return tuple(sorted(advice, key=lambda item: item.setting is None))

    def settings(self) -> tuple[Setting, ...]:
        """The rows of the screen, in the order of ``turned``."""
        own, tried, found = self.own, self.tried, self.explanation
        taken = "" if found is None else found.deployment.backend
        cache = "" if found is None else f"{found.kv_bytes_per_token:,} B a token"
        size = cache.replace(" a token", "/token")
        if found is not None and found.deployment.kv_dtype != tried.kv_dtype:
            cache = f"{found.deployment.kv_dtype}, {cache}"
        heads = "" if self.dims is None else _heads(self.dims, tried.tensor_parallel)
        return (
            Setting("Model", self.model, _shape(self.dims)),
            Setting("GPU", self.gpu.name, self.gpu.architecture),
            Setting(
                "TP",
                str(tried.tensor_parallel),
                heads,
                changed=tried.tensor_parallel != own.tensor_parallel,
                short_note=heads.removesuffix(" a rank"),
            ),
            Setting(
                "KV cache",
                tried.kv_dtype,
                cache,
                changed=tried.kv_dtype != own.kv_dtype,
                short_note=size,
            ),
            Setting(
                "Backend",
                tried.backend or "auto",
                taken if tried.backend is None else "",
                changed=tried.backend != own.backend,
                short_note=taken.partition("_MLA")[0].removesuffix("_SPARSE")
                if tried.backend is None
                else "",
            ),
            Setting(
                "Chunk",
                "auto" if tried.chunk_tokens is None else f"{tried.chunk_tokens:,}",
                f"{tried.chunk_on(self.gpu):,} tokens" if tried.chunk_tokens is None else "tokens",
                changed=tried.chunk_tokens != own.chunk_tokens,
                short_note=f"{tried.chunk_on(self.gpu):,}" if tried.chunk_tokens is None else "",
            ),
            Setting(
                "DCP",
                str(tried.context_parallel),
                "ranks a request's cache",
                changed=tried.context_parallel != own.context_parallel,
                short_note="ranks",
            ),
            Setting(
                "Force MQA",
                "yes" if tried.force_mqa else "no",
                changed=tried.force_mqa != own.force_mqa,
            ),
        )

    def turned(self, row: int, step: int) -> "Study":
        """The study with the next value of the setting in ``row``; the model is not among those."""
        tried = self.tried
        match row:
            case 1:
                return replace(self, gpu=_next(tuple(GPUS.values()), self.gpu, step))
            case 2:
                size = _next(_SIZES, tried.tensor_parallel, step)
                return self.trying(replace(tried, tensor_parallel=size))
            case 3:
                return self.trying(replace(tried, kv_dtype=_next(KV_DTYPES, tried.kv_dtype, step)))
            case 4:
                chosen = _next((None, *BACKENDS), tried.backend, step)
                return self.trying(replace(tried, backend=chosen))
            case 5:
                chunk = _next(_CHUNKS, tried.chunk_tokens, step)
                return self.trying(replace(tried, chunk_tokens=chunk))
            case 6:
                ranks = _next(_SIZES[:4], tried.context_parallel, step)
                return self.trying(replace(tried, context_parallel=ranks))
            case 7:
                return self.trying(replace(tried, force_mqa=not tried.force_mqa))
        return self

    def trying(self, choices: MlaChoices) -> "Study":
        return replace(self, tried=choices)

    def advised(self, advice: Advice) -> "Study":
        """The study with the advice taken; itself where the advice names no setting."""
        flag, _, value = (advice.setting or "").partition(" ")
        tried = self.tried
        match flag:
            case "--kv-cache-dtype":
                return self.trying(replace(tried, kv_dtype=value))
            case "--attention-backend":
                return self.trying(replace(tried, backend=value))
            case "--max-num-batched-tokens":
                return self.trying(replace(tried, chunk_tokens=int(value)))
            case "--tensor-parallel-size":
                return self.trying(replace(tried, tensor_parallel=int(value)))
            case "--attention-config.sparse_mla_force_mqa=false":
                return self.trying(replace(tried, force_mqa=False))
        return self


def preset_study(name: str, before: Study) -> Study:
    """A built-in geometry in the place of the model, with what was tried so far."""
    return replace(before, model=name, dims=PRESETS[name].dims, problem=None)


def presets_with_tiers() -> tuple[str, ...]:
    """Built-in models that have tiers to choose from."""
    return tuple(name for name, found in PRESETS.items() if found.dims.topk is not None)


def _next(choices: Sequence[_Choice], now: _Choice, step: int) -> _Choice:
    if now not in choices:
        return choices[0 if step > 0 else -1]
    return choices[(choices.index(now) + step) % len(choices)]


def _heads(dims: MLADims, tensor_parallel: int) -> str:
    if dims.total_heads % tensor_parallel:
        return f"does not divide {dims.total_heads} heads"
    return f"{dims.total_heads // tensor_parallel} heads a rank"


def _shape(dims: MLADims | None) -> str:
    if dims is None:
        return ""
    return f"{dims.nope}+{dims.rope}/{dims.v} over {dims.lora}, top-k {dims.topk or 'none'}"
