"""Drafters with weights: their own, or layers in the target's checkpoint. Pure."""

from typing import Literal, Self

from pydantic import model_validator

from specpanel.core.settings.drafters.fields import DraftModel, DraftTokens, setting
from specpanel.core.settings.drafters.parts import (
    Adaptive,
    BlockDrop,
    DrafterModel,
    Padding,
    Placement,
    Sampling,
    Schedule,
    Verification,
    Weights,
)


class _K3(Weights):
    k: DraftTokens = 3


class DraftModelDrafter(Placement, Adaptive, Verification, Schedule, _K3):
    """A smaller model of the same vocabulary drafts."""

    vllm_method = "draft_model"
    method: Literal["draft_model"] = "draft_model"
    use_heterogeneous_vocab: bool = setting(
        False,
        "The drafter has another vocabulary: draft only tokens that both share. Greedy drafting, model "
        "runner V1.",
        463,
        title="other vocabulary",
    )

    @model_validator(mode="after")
    def _shared_tokens_are_greedy(self) -> Self:
        if not self.use_heterogeneous_vocab:
            return self
        if self.draft_sample_method == "probabilistic":
            raise ValueError("use_heterogeneous_vocab needs draft_sample_method to be greedy")
        if self.enable_adaptive_verification:
            raise ValueError(
                "use_heterogeneous_vocab runs on model runner V1, and enable_adaptive_verification "
                "needs V2"
            )
        return self


class PardDrafter(Placement, Sampling, Verification, Schedule, _K3):
    """A draft model trained to draft all positions at once (PARD)."""

    vllm_method = "draft_model"
    vllm_extra = {"parallel_drafting": True}  # noqa: RUF012 - a ClassVar of the base
    method: Literal["pard"] = "pard"


class EagleDrafter(Padding, BlockDrop, Placement, Adaptive, Verification, Schedule, _K3):
    """A one-layer head over the target's last hidden states (EAGLE, EAGLE-2)."""

    vllm_method = "eagle"
    method: Literal["eagle"] = "eagle"


class Eagle3Drafter(Padding, BlockDrop, Placement, Adaptive, Verification, Schedule, _K3):
    """A head over hidden states of three layers of the target (EAGLE-3, and 3.1 by its config.json)."""

    vllm_method = "eagle3"
    method: Literal["eagle3"] = "eagle3"


class PEagleDrafter(BlockDrop, Placement, Sampling, Verification, Schedule, _K3):
    """EAGLE-3 trained to draft all positions at once (P-EAGLE)."""

    vllm_method = "eagle3"
    vllm_extra = {"parallel_drafting": True}  # noqa: RUF012 - a ClassVar of the base
    method: Literal["p_eagle"] = "p_eagle"


class _Block(Weights):
    k: DraftTokens = 15


class DFlashDrafter(BlockDrop, Placement, Adaptive, Verification, Schedule, _Block):
    """Block diffusion: drafts a whole block in one pass (DFlash)."""

    vllm_method = "dflash"
    method: Literal["dflash"] = "dflash"


class DFlash2Drafter(BlockDrop, Placement, Sampling, Verification, Schedule, _Block):
    """DFlash with a head that chooses among candidates (DFlash2); needs model runner V2."""

    vllm_method = "dflash"
    method: Literal["dflash2"] = "dflash2"


class _Inside(DrafterModel):
    """Weights in the target's checkpoint unless a folder of their own is named."""

    model: DraftModel | None = None


class _DSparkTokens(_Inside):
    k: DraftTokens | None = None


class DSparkDrafter(BlockDrop, Placement, Adaptive, Verification, Schedule, _DSparkTokens):
    """DSpark, from a drafter of its own or from the target's checkpoint; needs model runner V2."""

    vllm_method = "dspark"
    method: Literal["dspark"] = "dspark"
    dspark_draft_topk: int | None = setting(
        None,
        "Candidates that the Markov head looks at; Qwen3 drafters on one rank only.",
        608,
        ge=1,
        title="Markov candidates",
    )

    @model_validator(mode="after")
    def _k_can_be_known(self) -> Self:
        if self.model is None and self.k is None:
            raise ValueError(
                "k is needed where the drafter is in the target's checkpoint: vLLM derives it from a "
                "drafter of its own (model) only"
            )
        return self

    @model_validator(mode="after")
    def _topk_is_on_one_rank(self) -> Self:
        if self.dspark_draft_topk is not None and self.draft_tensor_parallel_size not in (None, 1):
            raise ValueError("dspark_draft_topk needs draft_tensor_parallel_size to be 1")
        return self


class _MtpTokens(_Inside):
    k: DraftTokens = 1


class MtpDrafter(Padding, BlockDrop, Placement, Adaptive, Verification, Schedule, _MtpTokens):
    """The multi-token-prediction layers in the target's own checkpoint (MTP, FastMTP)."""

    vllm_method = "mtp"
    method: Literal["mtp"] = "mtp"
    index_share_for_mtp_iteration: bool | None = setting(
        None,
        "Sparse MLA: later draft tokens reuse the token indices of the first; from config.json where "
        "absent.",
        442,
        title="share MTP indices",
    )


class MedusaDrafter(Verification, _K3):
    """Several heads on the target's last hidden state, a token each (Medusa)."""

    vllm_method = "medusa"
    method: Literal["medusa"] = "medusa"
    revision: str | None = setting(
        None, "Branch, tag or commit of the drafter on the hub.", 434, min_length=1
    )
    quantization: str | None = setting(
        None, "Quantisation of the heads; from their config.json where absent.", 415, min_length=1
    )
    draft_tensor_parallel_size: int | None = setting(
        None,
        "GPUs the heads are split over: 1 or the target's.",
        407,
        ge=1,
        title="draft GPUs (TP)",
    )
