"""One model a drafter, told apart by ``method``, and the table of what each becomes in vLLM.

``method`` is specpanel's name, which is the field's usual one; vLLM's name can differ (P-EAGLE is vLLM's
``eagle3`` with parallel drafting). Read from vLLM 0.32.0, ``vllm/config/speculative.py``.
"""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

DraftTokens = Annotated[
    int,
    Field(
        gt=0,
        le=128,
        title="draft tokens (K)",
        description="Draft tokens proposed a step (K, vLLM's num_speculative_tokens).",
    ),
]
DraftModel = Annotated[
    str,
    Field(
        min_length=1, title="draft model", description="Folder or hub id of the drafter's weights."
    ),
]


class _Drafter(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    # vLLM's value of ``method``; None: no speculation.
    vllm_method: ClassVar[str | None]

    def speculative_config(self) -> dict[str, Any] | None:
        """The object for ``--speculative-config``; None when there is no drafter.

        ``method`` is always written: vLLM guesses it from the drafter's path otherwise, and takes a
        freshly trained checkpoint for a plain draft model.
        """
        chosen = self.model_dump(exclude={"method", "k"}, exclude_none=True)
        k = getattr(self, "k", None)
        tokens = {} if k is None else {"num_speculative_tokens": k}
        return {"method": self.vllm_method, **tokens, **chosen}

    @property
    def draft_tokens(self) -> int | None:
        """K, or None where vLLM derives it from the checkpoint or there is no drafter."""
        k = getattr(self, "k", None)
        return k if isinstance(k, int) else None


class NoDrafter(_Drafter):
    """Plain decoding, one token a step."""

    vllm_method = None
    method: Literal["none"] = "none"

    def speculative_config(self) -> None:
        return None


class NgramDrafter(_Drafter):
    """Proposes what followed the same last tokens earlier in the request. Needs no weights."""

    vllm_method = "ngram"
    method: Literal["ngram"] = "ngram"
    k: DraftTokens = 4
    prompt_lookup_min: int = Field(
        default=2, ge=1, description="Shortest run of tokens to look up."
    )
    prompt_lookup_max: int = Field(default=4, ge=1, description="Longest run of tokens to look up.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.prompt_lookup_min > self.prompt_lookup_max:
            raise ValueError(
                f"prompt_lookup_min ({self.prompt_lookup_min}) is above "
                f"prompt_lookup_max ({self.prompt_lookup_max})"
            )
        return self


class NgramGpuDrafter(NgramDrafter):
    """The n-gram drafter on the GPU, which keeps asynchronous scheduling. Not for CPUs."""

    vllm_method = "ngram_gpu"
    method: Literal["ngram_gpu"] = "ngram_gpu"  # type: ignore[assignment]


class SuffixDrafter(_Drafter):
    """Proposes from a suffix tree over earlier answers. Needs arctic-inference beside vLLM."""

    vllm_method = "suffix"
    method: Literal["suffix"] = "suffix"
    k: DraftTokens = 8
    suffix_decoding_max_tree_depth: int | None = Field(
        default=None, ge=1, description="Depth of the suffix tree (vLLM: 24)."
    )
    suffix_decoding_max_cached_requests: int | None = Field(
        default=None, ge=0, description="Answers kept in the tree (vLLM: 10000)."
    )
    suffix_decoding_max_spec_factor: float | None = Field(
        default=None, ge=0, description="Draft length by match length (vLLM: 1.0)."
    )
    suffix_decoding_min_token_prob: float | None = Field(
        default=None, ge=0, le=1, description="Least likely token still drafted (vLLM: 0.1)."
    )


class DraftModelDrafter(_Drafter):
    """A smaller model of the same vocabulary drafts."""

    vllm_method = "draft_model"
    method: Literal["draft_model"] = "draft_model"
    model: DraftModel
    k: DraftTokens = 3
    draft_tensor_parallel_size: int | None = Field(
        default=None, ge=1, description="GPUs the drafter is split over: 1 or the target's."
    )


class Eagle3Drafter(_Drafter):
    """A one-layer head over the target's hidden states (EAGLE-3)."""

    vllm_method = "eagle3"
    method: Literal["eagle3"] = "eagle3"
    model: DraftModel
    k: DraftTokens = 3
    draft_tensor_parallel_size: int | None = Field(
        default=None, ge=1, description="GPUs the drafter is split over: 1 or the target's."
    )


class PEagleDrafter(Eagle3Drafter):
    """EAGLE-3 trained to draft all positions at once (P-EAGLE)."""

    method: Literal["p_eagle"] = "p_eagle"  # type: ignore[assignment]

    def speculative_config(self) -> dict[str, Any]:
        return {**(super().speculative_config() or {}), "parallel_drafting": True}


class DFlashDrafter(_Drafter):
    """Block diffusion: drafts a whole block in one pass (DFlash)."""

    vllm_method = "dflash"
    method: Literal["dflash"] = "dflash"
    model: DraftModel
    k: DraftTokens = 15


class DSparkDrafter(_Drafter):
    """DSpark, from a drafter of its own or from the target's checkpoint."""

    vllm_method = "dspark"
    method: Literal["dspark"] = "dspark"
    model: DraftModel | None = None
    k: DraftTokens | None = None


class MtpDrafter(_Drafter):
    """The multi-token-prediction layers in the target's own checkpoint (MTP)."""

    vllm_method = "mtp"
    method: Literal["mtp"] = "mtp"
    model: DraftModel | None = None
    k: DraftTokens = 1


Drafter = Annotated[
    NoDrafter
    | NgramDrafter
    | NgramGpuDrafter
    | SuffixDrafter
    | DraftModelDrafter
    | Eagle3Drafter
    | PEagleDrafter
    | DFlashDrafter
    | DSparkDrafter
    | MtpDrafter,
    Field(discriminator="method"),
]

DRAFTERS: dict[str, type[_Drafter]] = {
    model.model_fields["method"].default: model
    for model in (
        NoDrafter,
        NgramDrafter,
        NgramGpuDrafter,
        SuffixDrafter,
        DraftModelDrafter,
        Eagle3Drafter,
        PEagleDrafter,
        DFlashDrafter,
        DSparkDrafter,
        MtpDrafter,
    )
}
METHODS: tuple[str, ...] = tuple(DRAFTERS)
