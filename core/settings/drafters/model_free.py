"""Drafters without weights. Pure."""

from typing import Literal, Self

from pydantic import model_validator

from specpanel.core.settings.drafters.fields import DraftTokens, setting
from specpanel.core.settings.drafters.parts import DrafterModel, Schedule, Verification


class NoDrafter(DrafterModel):
    """Plain decoding, one token a step."""

    vllm_method = None
    method: Literal["none"] = "none"


class NgramLookup(DrafterModel):
    """The window of an n-gram drafter. Both ends are always written: vLLM copies one to the other."""

    k: DraftTokens = 4
    prompt_lookup_min: int = setting(2, "Shortest run of tokens to look up.", 473, ge=1)
    prompt_lookup_max: int = setting(4, "Longest run of tokens to look up.", 470, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError(
                f"prompt_lookup_min ({self.prompt_lookup_min}) is above "
                f"prompt_lookup_max ({self.prompt_lookup_max})"
            )
        return self


class NgramDrafter(Verification, Schedule, NgramLookup):
    """Proposes what followed the same last tokens earlier in the request. Needs no weights."""

    vllm_method = "ngram"
    method: Literal["ngram"] = "ngram"


class NgramGpuDrafter(Verification, NgramLookup):
    """The n-gram drafter on the GPU, which keeps asynchronous scheduling. Not for CPUs."""

    vllm_method = "ngram_gpu"
    method: Literal["ngram_gpu"] = "ngram_gpu"


class _Suffixes(DrafterModel):
    k: DraftTokens = 8
    suffix_decoding_max_tree_depth: int | None = setting(
        None, "Depth of the suffix tree (vLLM: 24).", 505, ge=1, title="tree depth"
    )
    suffix_decoding_max_cached_requests: int | None = setting(
        None, "Answers kept in the tree (vLLM: 10000).", 509, ge=0, title="answers kept"
    )
    suffix_decoding_max_spec_factor: float | None = setting(
        None,
        "Draft length by match length (vLLM: 1.0).",
        515,
        ge=0,
        allow_inf_nan=False,
        title="length factor",
    )
    suffix_decoding_min_token_prob: float | None = setting(
        None,
        "Least likely token still drafted (vLLM: 0.1).",
        520,
        ge=0,
        le=1,
        title="least probability",
    )


class SuffixDrafter(Verification, _Suffixes):
    """Proposes from a suffix tree over earlier answers. Needs arctic-inference beside vLLM."""

    vllm_method = "suffix"
    method: Literal["suffix"] = "suffix"


class _Class(DrafterModel):
    proposer: str = setting(
        ...,
        "Your own class, as package.module.Class; vLLM's workers must be able to import it (PYTHONPATH "
        "in engine.environment). On a CPU it needs a load_model method.",
        396,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$",
        title="proposer class",
    )
    k: DraftTokens = 3


class CustomDrafter(Verification, Schedule, _Class):
    """A proposer class of your own (vLLM's custom_class, which is experimental)."""

    vllm_method = "custom_class"
    method: Literal["custom"] = "custom"
