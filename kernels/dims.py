"""The geometry of multi-head latent attention, and what a ``config.json`` says about it. Pure.

Names: ``nope`` and ``rope`` are the parts of a query's and a key's head without and with rotary position,
``v`` is a value's head, ``lora`` is the rank of the latent that the cache keeps, ``topk`` is how many tokens
the indexer of DeepSeek Sparse Attention lets each query attend to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specpanel.kernels.errors import MLAError

# Families whose attention works on one shared latent for keys and values: nothing is ever decompressed.
_WITHOUT_MHA_FORM = ("deepseek_v4",)
# What vLLM gives a quantised KV cache on SM100 where none is chosen (``model_executor/models/config.py``).
_QUANTISED_BY_DEFAULT = "GlmMoeDsaForCausalLM"
# Where multimodal models keep their language model.
_TEXT_SECTIONS = ("text_config", "llm_config", "language_config", "thinker_config")


@dataclass(frozen=True, slots=True)
class MLADims:
    """One MLA layer. ``heads`` counts this rank's; ``total_heads`` the model's.

    ``topk`` is None without an indexer. ``pooled`` is how many neighbouring tokens the indexer scores as
    one (1: none). ``sink``: the layer has a learnable sink, which vLLM's dense prefill cannot apply.
    ``quantised_by_default``: on the SM100 family vLLM's default KV cache for this model is fp8.
    """

    heads: int
    total_heads: int
    nope: int
    rope: int
    v: int
    lora: int
    topk: int | None = None
    index_heads: int = 0
    index_dim: int = 0
    q_lora: int | None = None
    pooled: int = 1
    sink: bool = False
    quantised_by_default: bool = False

    @property
    def qk(self) -> int:
        """Width of a query's and a key's head in the MHA form."""
        return self.nope + self.rope

    @property
    def latent(self) -> int:
        """Width of a cached row, which is a key of the MQA form; its first ``lora`` columns are the value."""
        return self.lora + self.rope

    @property
    def scale(self) -> float:
        """Softmax scale of both forms: of the MHA key, never of the latent. YaRN's factor is the caller's."""
        return float(self.qk**-0.5)

    def on_rank(self, tensor_parallel: int) -> "MLADims":
        """The layer as one rank of ``tensor_parallel`` sees it: fewer heads, the same latents."""
        if tensor_parallel < 1 or self.total_heads % tensor_parallel:
            raise MLAError(
                f"{self.total_heads} heads cannot be divided among {tensor_parallel} ranks",
                f"Choose a tensor-parallel size that divides {self.total_heads}.",
            )
        return replace(self, heads=self.total_heads // tensor_parallel)


@dataclass(frozen=True, slots=True)
class Preset:
    """A known model. ``checked`` says where its numbers were read."""

    title: str
    hub_ids: tuple[str, ...]
    dims: MLADims
    checked: str


def _layer(
    heads: int, q_lora: int | None, lora: int, head: tuple[int, int, int], **index: Any
) -> MLADims:
    nope, rope, v = head
    return MLADims(heads, heads, nope, rope, v, lora, q_lora=q_lora, **index)


PRESETS: Mapping[str, Preset] = {
    "deepseek-v3": Preset(
        "DeepSeek-V3 and R1",
        ("deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3.1"),
        _layer(128, 1536, 512, (128, 64, 128)),
        "the model's config.json as vLLM 0.32 reads it",
    ),
    "deepseek-v3.2": Preset(
        "DeepSeek-V3.2",
        ("deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V3.2-Exp"),
        _layer(128, 1536, 512, (128, 64, 128), topk=2048, index_heads=64, index_dim=128),
        "vLLM 0.32, sparse_mla_attention.py and models/deepseek_v32",
    ),
    "glm-5": Preset(
        "GLM-5, 5.1 and 5.2",
        ("zai-org/GLM-5", "zai-org/GLM-5.1", "zai-org/GLM-5.2"),
        _layer(
            *(64, 2048, 512, (192, 64, 256)),
            topk=2048,
            index_heads=32,
            index_dim=128,
            quantised_by_default=True,
        ),
        "transformers 5.19, glm_moe_dsa",
    ),
    "glm-5.3-flash": Preset(
        "GLM-5.3-Flash (no rotary part)",
        ("zai-org/GLM-5.3-Flash",),
        _layer(64, 1536, 512, (256, 0, 256), topk=2048, index_heads=32, index_dim=128, pooled=16),
        "vLLM 0.32, glm5_next",
    ),
    "hy-v4": Preset(
        "HY-V4",
        (),
        _layer(32, 1536, 512, (192, 64, 256), topk=2048, index_heads=16, index_dim=128),
        "vLLM 0.32, defaults of hy_v4.py; a checkpoint with learnable_sink is forced to MQA",
    ),
    "kimi-k2": Preset(
        "Kimi-K2",
        ("moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2-Instruct-0905"),
        _layer(64, 1536, 512, (128, 64, 128)),
        "not checked against a config.json: give yours",
    ),
    "kimi-linear": Preset(
        "Kimi-Linear-48B (its MLA layers)",
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct",),
        _layer(32, None, 512, (128, 64, 128)),
        "vLLM 0.32, transformers_utils/configs/kimi_linear.py",
    ),
    "mistral-small-4": Preset(
        "Mistral-Small-4",
        (),
        _layer(32, 1024, 256, (64, 64, 128)),
        "transformers 5.19, mistral4",
    ),
}
"""Models whose geometry is known here, by the name that the command line takes."""


def preset(name: str) -> Preset | None:
    """The preset that ``name`` means: its key, or a hub id, whatever the case; None if it means none."""
    wanted = name.casefold()
    for key, found in PRESETS.items():
        if wanted == key or wanted in (hub_id.casefold() for hub_id in found.hub_ids):
            return found
    return None


def from_config(values: Mapping[str, Any]) -> MLADims:
    """The geometry in ``values``, a decoded ``config.json``; a language model inside it is found.

    Raises:
        MLAError: the model has no MLA, no MHA form of it, or a field that is missing or no whole number.
    """
    architectures = values.get("architectures")
    values = _language_section(values)
    kind = str(values.get("model_type", "this model"))
    if kind.startswith(_WITHOUT_MHA_FORM) or "compress_ratios" in values:
        raise MLAError(
            f"{kind} attends to one shared latent that is key and value at once; it has no MHA form, "
            "so vLLM always computes it as sparse MQA",
            "There is no tier to choose for this model.",
        )
    if values.get("kv_lora_rank") is None:
        raise MLAError(
            f"{kind} does not use multi-head latent attention: its config.json has no kv_lora_rank",
            "Give a model of the DeepSeek, GLM-5, Kimi or Mistral 4 families.",
        )
    heads = _count(values, "num_attention_heads", least=1)
    topk = values.get("index_topk")
    return MLADims(
        heads=heads,
        total_heads=heads,
        nope=_count(values, "qk_nope_head_dim", least=1),
        rope=_count(values, "qk_rope_head_dim"),
        v=_count(values, "v_head_dim", least=1),
        lora=_count(values, "kv_lora_rank", least=1),
        topk=None if topk is None else _count(values, "index_topk", least=1),
        index_heads=_count(values, "index_n_heads", default=0),
        index_dim=_count(values, "index_head_dim", default=0),
        q_lora=None if values.get("q_lora_rank") is None else _count(values, "q_lora_rank"),
        pooled=max(1, _count(values, "index_kpool", default=1)),
        sink=bool(values.get("learnable_sink", False)),
        quantised_by_default=isinstance(architectures, list)
        and _QUANTISED_BY_DEFAULT in architectures,
    )


def _language_section(values: Mapping[str, Any]) -> Mapping[str, Any]:
    for name in _TEXT_SECTIONS:
        inner = values.get(name)
        if isinstance(inner, Mapping) and "kv_lora_rank" not in values:
            return _language_section(inner)
    return values


def _count(
    values: Mapping[str, Any], name: str, *, least: int = 0, default: int | None = None
) -> int:
    value = values.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        what = "is missing" if value is None else f"is {str(value)[:40]!r}"
        raise MLAError(
            f"{name} {what} in the model's config.json; it should be a whole number of {least} or more",
            "The file is damaged or not a model's; take it from the model's source again.",
        )
    return value
