"""Attention and MLA settings: what vLLM 0.32 lets one choose, and for which models it means something.

Each field says where it goes: a ``flag`` of its own, a key of ``--attention-config``, or a ``variable`` of
the environment; and what it needs of the model or platform (``needs``), so that a form shows it only there.
Read from vLLM 0.32.0: ``config/attention.py``, ``config/cache.py``, ``config/kernel.py``,
``config/parallel.py``, ``envs.py``.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from specpanel.core.settings.attention_backends import ModelKind, backends_for
from specpanel.core.settings.cache_types import KvCacheType

Need = Literal["mla", "sparse", "rocm"]

# v1/kv_cache_interface.py, KVCacheSpecKind
LAYER_KINDS: tuple[str, ...] = (
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "mamba",
    "chunked_local_attention",
    "sink_full_attention",
    "encoder_only_attention",
    "cross_attention",
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What attention settings are about: the model's kind and what it runs on; None: not known."""

    kind: ModelKind | None = None
    platform: str | None = None

    def allows(self, need: Need | None) -> bool:
        """Whether a setting with that need means something here; it may where nothing is known."""
        if need == "rocm":
            return self.platform in (None, "unknown", "rocm")
        if need is None or self.kind is None:
            return True
        return self.kind == "sparse" or self.kind == need

    def backends(self) -> tuple[str, ...]:
        """Attention backends to choose from; none where model or platform is not known."""
        if self.kind is None or self.platform is None:
            return ()
        return tuple(backend.name for backend in backends_for(self.platform, self.kind))


def _setting(
    help_text: str,
    *,
    flag: str | None = None,
    key: str | None = None,
    variable: str | None = None,
    needs: Need | None = None,
    default: Any = None,
    **constraints: Any,
) -> Any:
    """A field with its help and the place in vLLM that it goes to."""
    extra = {"flag": flag, "attention_key": key, "variable": variable, "needs": needs}
    kept: dict[str, Any] = {name: value for name, value in extra.items() if value is not None}
    if isinstance(default, dict):
        return Field(
            default_factory=dict, description=help_text, json_schema_extra=kept, **constraints
        )
    return Field(default=default, description=help_text, json_schema_extra=kept, **constraints)


class Mla(BaseModel):
    """Attention and MLA switches; all left to vLLM where absent."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    attention_backend: str | None = _setting(
        "Attention backend of the target; the drafter has its own.", flag="--attention-backend"
    )
    backend_per_kind: dict[str, str] = _setting(
        "Backends by kind of layer, such as mla_attention=FLASHMLA; they go before "
        "attention_backend.",
        key="backend_per_kind",
        default={},
    )
    kv_cache_dtype: KvCacheType | None = _setting(
        "Type of the KV cache. A quantised one halves it; sparse MLA then never uses masked MHA.",
        flag="--kv-cache-dtype",
    )
    block_size: int | None = _setting(
        "Tokens in a KV cache block; MLA backends allow few.", flag="--block-size", gt=0
    )
    mla_prefill_backend: (
        Literal["FLASH_ATTN", "FLASHINFER", "TRTLLM_RAGGED", "TOKENSPEED_MLA", "ROCM_AITER_FA"]
        | None
    ) = _setting(
        "Backend of the MLA prefill. A CPU always uses its own.",
        key="mla_prefill_backend",
        needs="mla",
    )
    force_sparse_mqa: bool | None = _setting(
        "Never use the dense or masked MHA prefill: all of it runs as sparse MQA.",
        key="sparse_mla_force_mqa",
        needs="sparse",
    )
    indexer_kv_dtype: Literal["auto", "bf16", "fp8", "mxfp4", "nvfp4"] | None = _setting(
        "Type of the sparse indexer's cache.", key="indexer_kv_dtype", needs="sparse"
    )
    indexer_topk_backend: (
        Literal[
            "auto",
            "deep_select",
            "cooperative",
            "persistent",
            "per_row",
            "flashinfer",
            "torch",
            "aiter",
        ]
        | None
    ) = _setting(
        "What chooses the top-k tokens of the sparse indexer.",
        flag="--sparse-indexer-topk-backend",
        needs="sparse",
    )
    prefill_workspace_factor: int | None = _setting(
        "Workspace of the sparse prefill in multiples of max_model_len (vLLM: 5 up to 256K tokens, "
        "then 2). Less leaves more to the KV cache.",
        key="sparse_mla_prefill_workspace_factor",
        needs="sparse",
        ge=2,
    )
    decode_context_parallel_size: int | None = _setting(
        "Ranks that share a request's latent cache while decoding (DCP); divides the tensor "
        "parallel size.",
        flag="--decode-context-parallel-size",
        needs="mla",
        ge=1,
    )
    prefill_context_parallel_size: int | None = _setting(
        "Ranks that share a prefill (PCP); model runner V2 only.",
        flag="--prefill-context-parallel-size",
        needs="mla",
        ge=1,
    )
    dcp_comm_backend: Literal["ag_rs", "a2a"] | None = _setting(
        "How DCP ranks exchange partial results.", flag="--dcp-comm-backend", needs="mla"
    )
    disable_mla: bool | None = _setting(
        "Decompress the latent and attend as usual: a far larger KV cache, for comparison.",
        variable="VLLM_MLA_DISABLE",
        needs="mla",
    )
    rocm_aiter: bool | None = _setting(
        "AITER kernels on ROCm (vLLM: off). Sparse MLA needs them.",
        variable="VLLM_ROCM_USE_AITER",
        needs="rocm",
    )
    rocm_aiter_mla: bool | None = _setting(
        "AITER's MLA, where AITER is on (vLLM: on).",
        variable="VLLM_ROCM_USE_AITER_MLA",
        needs="rocm",
    )
    rocm_aiter_triton_sparse_mla: bool | None = _setting(
        "AITER's Triton kernel for sparse MLA (vLLM: off).",
        variable="VLLM_ROCM_USE_AITER_TRITON_SPARSE_MLA",
        needs="rocm",
    )
    rocm_aiter_mla_padding: Literal["auto", "gluon", "asm"] | None = _setting(
        "How AITER's MLA pads few heads.",
        variable="VLLM_ROCM_AITER_MLA_ASM_PADDING",
        needs="rocm",
    )
    rocm_aiter_mla_dcp_verify: Literal["auto", "asm", "segmented"] | None = _setting(
        "AITER's kernel for verifying drafts under DCP.",
        variable="VLLM_ROCM_AITER_MLA_DCP_VERIFY",
        needs="rocm",
    )

    @field_validator("attention_backend")
    @classmethod
    def _upper_case(cls, value: str | None) -> str | None:
        return None if value is None else value.upper()

    @field_validator("backend_per_kind")
    @classmethod
    def _known_kinds(cls, value: dict[str, str]) -> dict[str, str]:
        for kind in value:
            if kind not in LAYER_KINDS:
                raise ValueError(f"{kind} is no kind of layer: one of {', '.join(LAYER_KINDS)}")
        return {kind: backend.upper() for kind, backend in value.items()}

    @model_validator(mode="after")
    def _aiter_is_on(self) -> Self:
        if self.rocm_aiter is False and self.rocm_aiter_triton_sparse_mla:
            raise ValueError("rocm_aiter_triton_sparse_mla needs rocm_aiter, which is off")
        return self

    def attention_config(self) -> dict[str, Any]:
        """The object for ``--attention-config``; empty where nothing of it was chosen."""
        return {key: value for key, value in self._placed("attention_key") if value != {}}

    def variables(self) -> dict[str, str]:
        """Environment variables for vLLM, as it reads them."""
        return {
            name: ("1" if value else "0") if isinstance(value, bool) else str(value)
            for name, value in self._placed("variable")
        }

    def _placed(self, place: str) -> list[tuple[str, Any]]:
        """Pairs of vLLM's name and the chosen value, for fields that go to ``place``."""
        found = []
        for name, field in type(self).model_fields.items():
            extra = field.json_schema_extra
            target = extra.get(place) if isinstance(extra, dict) else None
            value = getattr(self, name)
            if isinstance(target, str) and value is not None:
                found.append((target, value))
        return found
