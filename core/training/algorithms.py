"""One settings model an algorithm, with the trainer's own flags (Speculators 0.9.0).

A field left out is the trainer's own default. ``tests/unit/test_training_flags.py`` holds every flag here
against the installed trainer's schema.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from specpanel.core.settings.profile import option


class Settings(BaseModel):
    """A part of a recipe: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Drafting(Settings):
    """What every algorithm that builds its own draft layers has."""

    num_layers: int | None = option(None, "Layers of the drafter.", flag="--num-layers", ge=1)
    draft_arch: Literal["llama", "qwen3"] | None = option(
        None, "Kind of the drafter's layers.", flag="--draft-arch"
    )
    target_layer_ids: tuple[int, ...] | None = option(
        None,
        "Layers of the target whose output the drafter reads, counted from 1; "
        "2, the middle and the last but two where left out.",
        min_length=1,
    )
    full_attention_indices: tuple[int, ...] | None = option(
        None,
        "Layers of the drafter with full attention; the others see a window.",
        flag="--full-attention-indices",
    )
    sliding_window: int | None = option(
        None, "Width of that window, in tokens.", flag="--sliding-window", ge=1
    )
    draft_vocab_size: int | None = option(
        None,
        "Tokens that the drafter can draft: the most frequent of the data. All where left out.",
        flag="--draft-vocab-size",
        ge=1,
    )
    mask_token_id: int | None = option(
        None, "Token that masks positions in training.", flag="--mask-token-id", ge=0
    )
    loss_fn: str | None = option(
        None, "Loss, or weights of losses as JSON.", flag="--loss-fn", min_length=1
    )


class _Eagle(_Drafting):
    norm_before_residual: bool | None = option(
        None, "Norm before the residual connection.", flag="--norm-before-residual"
    )
    embed_requires_grad: bool | None = option(
        None, "Train the embedding, too.", flag="--embed-requires-grad"
    )

    @model_validator(mode="after")
    def _three_layers(self) -> "_Eagle":
        if self.target_layer_ids is not None and len(self.target_layer_ids) != 3:
            raise ValueError(
                "vLLM builds EAGLE heads for exactly three layers of the target "
                f"(target_layer_ids has {len(self.target_layer_ids)})"
            )
        return self


class Eagle3(_Eagle):
    """EAGLE-3, and 3.1 with ``fc_norm``."""

    type: Literal["eagle3"] = "eagle3"
    ttt_steps: int = option(
        3, "Positions that training unrolls: K of the drafter.", flag="--ttt-steps", ge=1, le=16
    )
    ttt_step_loss_decay: float | None = option(
        None, "Weight of each later position.", flag="--ttt-step-loss-decay", gt=0, le=1
    )
    norm_before_fc: bool | None = option(
        None, "One norm over the joined hidden states.", flag="--norm-before-fc"
    )
    fc_norm: bool | None = option(
        None, "A norm for each hidden state (EAGLE 3.1).", flag="--fc-norm"
    )
    norm_output: bool | None = option(
        None, "Feed normed states to later positions.", flag="--norm-output"
    )

    @model_validator(mode="after")
    def _one_norm(self) -> "Eagle3":
        if self.fc_norm and self.norm_before_fc:
            raise ValueError("fc_norm and norm_before_fc exclude each other")
        return self

    @property
    def draft_tokens(self) -> int:
        return self.ttt_steps


class PEagle(_Eagle):
    """P-EAGLE: all positions at once. vLLM ignores the other norms of an EAGLE head for it."""

    type: Literal["peagle"] = "peagle"
    num_depths: int = option(
        8, "Positions that are drafted at once.", flag="--num-depths", ge=1, le=64
    )
    down_sample_ratio: float | None = option(
        None, "Share of positions kept at each depth.", flag="--down-sample-ratio", gt=0, le=1
    )
    down_sample_ratio_min: float | None = option(
        None, "Least share that is kept.", flag="--down-sample-ratio-min", gt=0, le=1
    )
    max_anchors: int | None = option(
        None, "Most anchor positions of a pack.", flag="--max-anchors", ge=1
    )
    gradient_checkpointing: bool | None = option(
        None, "Compute activations twice to save memory.", flag="--gradient-checkpointing"
    )

    @property
    def draft_tokens(self) -> int:
        return self.num_depths


class _Block(_Drafting):
    """Drafters of whole blocks."""

    block_size: int | None = option(None, "Length of a block.", flag="--block-size", ge=2, le=128)
    sample_from_anchor: bool | None = option(
        None, "Draft from the anchor's own position, too.", flag="--sample-from-anchor"
    )
    max_anchors: int | None = option(
        None, "Most anchor positions of a pack.", flag="--max-anchors", ge=1
    )
    dflash_decay_gamma: float | None = option(
        None, "Decay of the weight of later positions.", flag="--dflash-decay-gamma", gt=0
    )
    per_position_loss_weight: Literal["fixed-exp-decay", "dpace"] | None = option(
        None, "How positions are weighted.", flag="--per-position-loss-weight"
    )
    dpace_alpha: float | None = option(None, "Smoothing of D-PACE.", flag="--dpace-alpha", ge=0)
    gradient_checkpointing: bool | None = option(
        None, "Compute activations twice to save memory.", flag="--gradient-checkpointing"
    )

    @property
    def draft_tokens(self) -> int:
        default = 16 if getattr(self, "type", "") in ("dflash", "xpress") else 8
        anchored = 0 if self._anchored else 1
        return (self.block_size or default) - anchored

    @property
    def _anchored(self) -> bool:
        return bool(self.sample_from_anchor)


class DFlash(_Block):
    """DFlash: a block by diffusion, one pass."""

    type: Literal["dflash"] = "dflash"


class DFlash2(_Block):
    """DFlash 2: candidates of each position, and a selector among them."""

    type: Literal["dflash2"] = "dflash2"
    sliding_window_non_causal: bool | None = option(
        None, "Let a block see itself in both directions.", flag="--sliding-window-non-causal"
    )
    conv_kernel_size: int | None = option(
        None, "Kernel of the convolution.", flag="--conv-kernel-size", ge=1
    )
    conv_group_size: int | None = option(
        None, "Channels of a group.", flag="--conv-group-size", ge=1
    )
    selector_rank: int | None = option(None, "Rank of the selector.", flag="--selector-rank", ge=1)
    selector_top_k: int | None = option(
        None, "Candidates of a position.", flag="--selector-top-k", ge=1
    )
    selector_loss_alpha: float | None = option(
        None, "Weight of the selector's loss.", flag="--selector-loss-alpha", ge=0
    )


class DSpark(_Block):
    """DSpark: a Markov head over the block and a head that says how sure it is."""

    type: Literal["dspark"] = "dspark"
    markov_rank: int | None = option(None, "Rank of the Markov head.", flag="--markov-rank", ge=1)
    markov_head_type: Literal["vanilla", "gated", "rnn"] | None = option(
        None, "Kind of the Markov head.", flag="--markov-head-type"
    )
    enable_confidence_head: bool | None = option(
        None, "Train the head of confidence.", flag="--enable-confidence-head"
    )
    confidence_head_with_markov: bool | None = option(
        None, "Let it see the Markov head.", flag="--confidence-head-with-markov"
    )
    confidence_head_alpha: float | None = option(
        None, "Weight of its loss.", flag="--confidence-head-alpha", ge=0
    )

    @property
    def _anchored(self) -> bool:
        return self.sample_from_anchor is not False


class XPress(_Block):
    """XPress: a refiner over the block."""

    type: Literal["xpress"] = "xpress"
    xpress_rank: int | None = option(None, "Rank of the refiner.", flag="--xpress-rank", ge=1)
    xpress_mlp_ratio: int | None = option(
        None, "Expansion of its MLP.", flag="--xpress-mlp-ratio", ge=1
    )
    num_jacobi_passes: int | None = option(
        None, "Passes of refinement.", flag="--num-jacobi-passes", ge=1
    )
    consistency_weight: float | None = option(
        None, "Weight of the consistency loss.", flag="--consistency-weight", ge=0
    )
    consistency_passes: int | None = option(
        None, "Passes that it looks at.", flag="--consistency-passes", ge=1
    )
    base_anchor_weight: float | None = option(
        None, "Weight of the base's own loss.", flag="--base-anchor-weight", ge=0
    )
    ce_from_data: bool | None = option(
        None, "Take the data's tokens as the truth.", flag="--ce-from-data"
    )
    base_anchor_full_weight: bool | None = option(
        None, "Weight all positions of the base alike.", flag="--base-anchor-full-weight"
    )


class FastMtp(Settings):
    """FastMTP: the target's own MTP layers, trained further (Qwen3 family)."""

    type: Literal["mtp"] = "mtp"
    num_speculative_steps: int = option(
        3, "Steps that are drafted.", flag="--num-speculative-steps", ge=1, le=16
    )
    step_weight_beta: float | None = option(
        None, "Decay of the weight of later steps.", flag="--step-weight-beta", gt=0, le=1
    )
    target_layer_ids: None = None
    draft_vocab_size: None = None

    @property
    def draft_tokens(self) -> int:
        return self.num_speculative_steps


Algorithm = Annotated[
    Eagle3 | PEagle | DFlash | DFlash2 | DSpark | XPress | FastMtp, Field(discriminator="type")
]


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of an algorithm beyond its settings.

    ``serve_method`` is vLLM 0.32's word (None: it serves none); ``profile_method`` is specpanel's.
    ``serves_on_cpu``: with Model Runner V1 and without Triton. ``not_served``: why, where it is not.
    """

    title: str
    settings: type[Settings]
    serve_method: str | None
    profile_method: str | None
    serves_on_cpu: bool
    not_served: str = ""


KINDS: dict[str, Kind] = {
    "eagle3": Kind("EAGLE-3", Eagle3, "eagle3", "eagle3", True),
    "peagle": Kind("P-EAGLE", PEagle, "eagle3", "p_eagle", True),
    "dflash": Kind("DFlash", DFlash, "dflash", "dflash", True),
    "dflash2": Kind("DFlash 2", DFlash2, "dflash", "dflash2", False),
    "dspark": Kind("DSpark", DSpark, "dspark", "dspark", False),
    "xpress": Kind(
        "XPress",
        XPress,
        None,
        None,
        False,
        "vLLM 0.32 reads no XPress checkpoint: it can be trained here, and not served yet",
    ),
    "mtp": Kind(
        "FastMTP",
        FastMtp,
        "mtp",
        "mtp",
        False,
        "its layers must be put into the target first: speculators stitch-mtp",
    ),
}

# config.json's model_type of targets whose MTP layers the trainer can take.
MTP_TARGETS = ("qwen3", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text")


def flags_of(settings: BaseModel, skip: frozenset[str] = frozenset()) -> Iterator[str]:
    """The trainer's flags for what is set, in the order of the fields."""
    for name, field in type(settings).model_fields.items():
        extra = field.json_schema_extra
        flag = extra.get("flag") if isinstance(extra, dict) else None
        value: Any = getattr(settings, name)
        if not isinstance(flag, str) or name in skip or value is None:
            continue
        if value is False:
            yield f"--no-{flag.removeprefix('--')}"
            continue
        yield flag
        if isinstance(value, tuple):
            yield from (str(one) for one in value)
        elif value is not True:
            yield str(value)
