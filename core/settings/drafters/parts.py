"""What drafters are made of: each part declares the fields of one subject and their rules. Pure.

A drafter inherits the parts that vLLM 0.32.0 reads for its method, the last named first in the form.
"""

from itertools import pairwise
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr, model_validator

from specpanel.core.settings.cache_types import KvCacheType
from specpanel.core.settings.drafters.fields import (
    BatchSchedule,
    DraftModel,
    RejectionMethod,
    SampleMethod,
    setting,
)
from specpanel.core.settings.drafters.schedule import ranges_of

# Ours → vLLM's; every other field has vLLM's own name.
VLLM_NAMES: dict[str, str] = {
    "k": "num_speculative_tokens",
    "k_by_batch_size": "num_speculative_tokens_per_batch_size",
    "proposer": "model",
}


class DrafterModel(BaseModel):
    """One way to draft. ``method`` is specpanel's name for it, ``vllm_method`` vLLM's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    vllm_method: ClassVar[str | None]  # None: no speculation
    vllm_extra: ClassVar[dict[str, Any]] = {}  # written besides the fields

    method: str

    # The name in the file, where it is an old or another one of the method.
    _written_as: str | None = PrivateAttr(default=None)

    @property
    def draft_tokens(self) -> int | None:
        """K, or None where vLLM derives it from the checkpoint or there is no drafter."""
        k = getattr(self, "k", None)
        return k if isinstance(k, int) else None

    @property
    def written_as(self) -> str | None:
        """Another name of the method that the profile used; None where it used the method's own."""
        return self._written_as

    def speculative_config(self) -> dict[str, Any] | None:
        """The object for ``--speculative-config``; None when there is no drafter.

        ``method`` is always written: vLLM guesses it from the drafter's path otherwise, and takes a
        freshly trained checkpoint for a plain draft model. What is absent is left to vLLM.
        """
        if self.vllm_method is None:
            return None
        config: dict[str, Any] = {"method": self.vllm_method}
        names = [name for name in type(self).model_fields if name != "method"]
        for name in sorted(names, key=lambda name: name != "k"):
            value = getattr(self, name)
            if value is None or value == () or (value is False and self._default(name) is False):
                continue
            config[VLLM_NAMES.get(name, name)] = _json(name, value)
        return config | self.vllm_extra

    @classmethod
    def _default(cls, name: str) -> Any:
        return cls.model_fields[name].default


def _json(name: str, value: Any) -> Any:
    if name == "k_by_batch_size":
        return [list(one) for one in ranges_of(value)]
    return list(value) if isinstance(value, tuple) else value


class Weights(DrafterModel):
    """Weights of its own, in a folder or on the hub."""

    model: DraftModel


class Schedule(DrafterModel):
    """Another K at other numbers of running requests."""

    k_by_batch_size: BatchSchedule = ()

    @model_validator(mode="after")
    def _k_is_the_largest(self) -> Self:
        largest = max((k for _, _, k in ranges_of(self.k_by_batch_size)), default=0)
        if self.draft_tokens is not None and largest > self.draft_tokens:
            raise ValueError(
                f"k_by_batch_size asks for {largest} tokens, above k ({self.draft_tokens}), "
                "where vLLM would cap it"
            )
        return self


class Verification(DrafterModel):
    """How the target decides which draft tokens stand."""

    rejection_sample_method: RejectionMethod | None = setting(
        None,
        "How draft tokens are verified (vLLM: standard). block verifies them together and needs model "
        "runner V2: V1 silently does standard. synthetic forces the acceptance below, for benchmarks: "
        "the answers are then wrong.",
        529,
        title="rejection method",
    )
    synthetic_acceptance_length: float | None = setting(
        None,
        "Mean acceptance length to force, from 1 to K+1; with the rejection method synthetic.",
        545,
        ge=1,
        allow_inf_nan=False,
        title="forced length (AL)",
    )
    synthetic_acceptance_rates: tuple[float, ...] = setting(
        (),
        "Acceptance to force at each of the K positions, unconditional and never rising, blanks "
        "between: 0.9 0.7 0.4; with the rejection method synthetic.",
        537,
        title="forced rates",
    )

    @model_validator(mode="after")
    def _synthetic_is_whole(self) -> Self:
        rates, length, k = (
            self.synthetic_acceptance_rates,
            self.synthetic_acceptance_length,
            self.draft_tokens,
        )
        given = length is not None or bool(rates)
        if self.rejection_sample_method != "synthetic":
            if given:
                name = "synthetic_acceptance_rates" if rates else "synthetic_acceptance_length"
                raise ValueError(f"{name} needs rejection_sample_method to be synthetic")
            return self
        if (length is not None) == bool(rates):
            raise ValueError(
                "rejection_sample_method synthetic needs either synthetic_acceptance_length or "
                "synthetic_acceptance_rates, and one of them only"
            )
        if rates and k is not None and len(rates) != k:
            raise ValueError(f"synthetic_acceptance_rates has {len(rates)} values, and k is {k}")
        if any(not 0 <= rate <= 1 for rate in rates):
            raise ValueError("synthetic_acceptance_rates must lie between 0 and 1")
        if any(later > earlier for earlier, later in pairwise(rates)):
            raise ValueError(
                "synthetic_acceptance_rates must never rise: each is the share of steps in which all "
                "tokens up to that position are accepted"
            )
        if length is not None and k is not None and length > k + 1:
            raise ValueError(f"synthetic_acceptance_length is {length:g}, above K+1 ({k + 1})")
        return self


class Sampling(DrafterModel):
    """How the drafter chooses its tokens."""

    draft_sample_method: SampleMethod | None = setting(
        None,
        "How the drafter picks tokens (vLLM: greedy). probabilistic helps at a temperature above 0 and "
        "costs memory; on model runner V1 it counts with standard rejection only.",
        600,
        title="draft sampling",
    )
    use_local_argmax_reduction: bool = setting(
        False,
        "Find the best token on each rank and exchange only that: less traffic under tensor "
        "parallelism. Greedy drafting only.",
        457,
        title="local argmax",
    )

    @model_validator(mode="after")
    def _argmax_is_greedy(self) -> Self:
        if self.use_local_argmax_reduction and self.draft_sample_method == "probabilistic":
            raise ValueError(
                "use_local_argmax_reduction finds only the best token: draft_sample_method must be "
                "greedy"
            )
        return self


class Adaptive(Sampling):
    """Verifying fewer tokens where the drafter is unsure."""

    enable_adaptive_verification: bool = setting(
        False,
        "Verify fewer tokens where acceptance is unlikely. Needs model runner V2 with full CUDA graphs, "
        "no LoRA, no pipeline parallelism.",
        551,
        title="adaptive verification",
    )

    @model_validator(mode="after")
    def _estimates_from_logits(self) -> Self:
        if (
            self.enable_adaptive_verification
            and self.use_local_argmax_reduction
            and self.vllm_method != "dspark"
        ):
            raise ValueError(
                "enable_adaptive_verification needs the draft logits, which "
                "use_local_argmax_reduction never makes"
            )
        return self


class Placement(DrafterModel):
    """Where and how the drafter's weights run."""

    draft_tensor_parallel_size: int | None = setting(
        None,
        "GPUs the drafter is split over: 1 or the target's.",
        407,
        ge=1,
        title="draft GPUs (TP)",
    )
    quantization: str | None = setting(
        None,
        "Quantisation of the drafter's weights; from its own config.json where absent.",
        415,
        min_length=1,
        title="draft quantisation",
    )
    attention_backend: str | None = setting(
        None,
        "Attention backend of the drafter. Never inherited from the target's: chosen anew by vLLM "
        "where absent.",
        424,
        pattern=r"^[A-Za-z][A-Za-z0-9_]*$",
        title="draft attention",
    )
    kv_cache_dtype: KvCacheType | None = setting(
        None,
        "Type of the drafter's KV cache; the target's where absent.",
        428,
        title="draft KV cache type",
    )
    moe_backend: str | None = setting(
        None,
        "Kernels of the drafter's experts; the target's where absent.",
        419,
        pattern=r"^[a-z][a-z0-9_]*$",
        title="draft MoE backend",
    )
    max_model_len: int | None = setting(
        None,
        "Longest context in which the drafter drafts; at most its own and the target's.",
        431,
        ge=1,
        title="draft max model len",
    )
    enforce_eager: bool | None = setting(
        None,
        "Draft without CUDA graphs; as the target where absent.",
        390,
        title="draft eagerly",
    )
    revision: str | None = setting(
        None, "Branch, tag or commit of the drafter on the hub.", 434, min_length=1
    )
    code_revision: str | None = setting(
        None, "Branch, tag or commit of the drafter's code on the hub.", 438, min_length=1
    )


class Padding(DrafterModel):
    """Batches and cache blocks of heads that read the target's hidden states."""

    disable_padded_drafter_batch: bool = setting(
        False,
        "Draft for sequences of different lengths without padding; switches asynchronous scheduling off.",
        447,
        title="no draft padding",
    )


class BlockDrop(DrafterModel):
    """What becomes of the last block of a cached prefix, which the drafter has not seen."""

    disable_eagle_block_drop: bool = setting(
        False,
        "Experimental: also reuse the last block of a cached prefix, which the drafter has not seen.",
        452,
        title="no block drop",
    )
