"""A checkpoint's ``config.json``, read as data: no code of the checkpoint is run.

Only local folders are read; a model of the hub is recognised and left to vLLM.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.checkpoints.layers import LayerKinds, indexer_layers, layer_kinds
from specpanel.core.checkpoints.mla import has_mla, has_sparse_mla
from specpanel.core.errors import ConfigurationError

CONFIG_FILE = "config.json"

# Where multimodal models and drafters keep the language model's geometry.
_TEXT_SECTIONS = (
    "thinker_config",
    "text_config",
    "llm_config",
    "language_config",
    "transformer_layer_config",
)
_MTP_FIELDS = (
    "n_predict",
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
)
# What a head trained by Speculators may ask of its norms; an older vLLM loads it and ignores them.
_NORM_FLAGS = ("norm_before_fc", "norm_output", "norm_before_residual", "fc_norm")
_HUB_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_HUB_ID = re.compile(rf"{_HUB_PART}/{_HUB_PART}")


@dataclass(frozen=True, slots=True)
class SpeculatorsConfig:
    """What a checkpoint in the Speculators format says of itself; None: not said.

    ``verifier`` is the target as it was named while training, often a path of another machine.
    """

    algorithm: str | None
    draft_tokens: int | None
    verifier: str | None
    version: str | None = None
    layer_config: bool = True  # whether the head's own geometry is there


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Geometry of one checkpoint; what the file does not say is None.

    ``attention_layers`` are the layers whose KV cache grows with every token: sliding-window and linear
    layers are left out (``layer_kinds`` counts them). ``mtp_layers`` is vLLM's ``n_predict``. ``block_size``
    and ``mask_token`` are what drafters of whole blocks have. ``max_positions`` does not count RoPE
    scaling, which ``scaled_rope`` only notes.
    """

    folder: Path
    architectures: tuple[str, ...]
    model_type: str | None
    vocab_size: int | None
    draft_vocab_size: int | None
    hidden_size: int | None
    target_hidden_size: int | None
    layers: int | None
    attention_layers: int | None
    layer_kinds: LayerKinds | None
    attention_heads: int | None
    kv_heads: int | None
    head_dim: int | None
    max_positions: int | None
    scaled_rope: bool
    rope_type: str | None
    dtype: str | None
    quantization: str | None
    is_mla: bool
    is_sparse_mla: bool
    kv_lora_rank: int | None
    qk_nope_head_dim: int | None
    qk_rope_head_dim: int | None
    v_head_dim: int | None
    index_topk: int | None
    index_head_dim: int | None
    indexer_layers: int | None
    mtp_layers: int | None
    aux_layers: tuple[int, ...] | None
    block_size: int | None
    mask_token: bool
    norm_flags: tuple[str, ...]
    remote_code: bool
    speculators: SpeculatorsConfig | None


def looks_like_hub_id(model: str) -> bool:
    """Whether ``model`` reads as a hub id (owner/name). A folder of that name comes first: look there."""
    return (
        len(model) <= 96
        and "--" not in model
        and ".." not in model
        and bool(_HUB_ID.fullmatch(model))
    )


def read_config(folder: str | Path) -> ModelConfig:
    """Read ``config.json`` of a checkpoint's folder.

    Raises:
        ConfigurationError: no such folder or file, not JSON, or a field of the wrong kind; the message
            names the file and the reason.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        what = "is a file, not a folder" if path.is_file() else "does not exist"
        raise ConfigurationError(f"the model folder {path} {what}", "Correct the path.")
    return parse_config(read_json(path / CONFIG_FILE), path)


def parse_config(values: Mapping[str, Any], folder: Path) -> ModelConfig:
    """The geometry in ``values``, a decoded ``config.json``; ``folder`` is for messages and the record."""
    text = _text_section(values)
    fields = _Fields(values, text, folder / CONFIG_FILE)
    layers = fields.count("num_hidden_layers", "n_layer", "num_layers")
    heads = fields.count("num_attention_heads", "n_head")
    hidden = fields.count("hidden_size", "n_embd", "d_model")
    head_dim = fields.count("head_dim")
    if head_dim is None and hidden and heads:
        head_dim = hidden // heads
    kinds = layer_kinds(text, layers)
    return ModelConfig(
        folder=folder,
        architectures=fields.names("architectures"),
        model_type=fields.text("model_type"),
        vocab_size=fields.count("vocab_size"),
        draft_vocab_size=fields.count("draft_vocab_size"),
        hidden_size=hidden,
        target_hidden_size=fields.count("target_hidden_size"),
        layers=layers,
        attention_layers=None if kinds is None else kinds.growing,
        layer_kinds=kinds,
        attention_heads=heads,
        kv_heads=fields.count("num_key_value_heads") or heads,
        head_dim=head_dim,
        max_positions=fields.count("max_position_embeddings", "n_positions"),
        scaled_rope=_has_scaled_rope(text),
        rope_type=_rope_type(text),
        dtype=fields.text("dtype", "torch_dtype"),
        quantization=_quantization(values, text),
        is_mla=has_mla(text),
        is_sparse_mla=has_sparse_mla(text),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_nope_head_dim=fields.count("qk_nope_head_dim"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        v_head_dim=fields.count("v_head_dim"),
        index_topk=fields.count("index_topk"),
        index_head_dim=fields.count("index_head_dim"),
        indexer_layers=indexer_layers(text, layers),
        mtp_layers=fields.count(*_MTP_FIELDS),
        aux_layers=_aux_layers(values),
        block_size=fields.count("block_size"),
        mask_token=_has_mask_token(values),
        norm_flags=tuple(name for name in _NORM_FLAGS if values.get(name) is True),
        remote_code=isinstance(values.get("auto_map"), dict),
        speculators=_speculators(values),
    )


class _Fields:
    """Typed look-ups in a config: the text section first, then the top."""

    def __init__(self, top: Mapping[str, Any], text: Mapping[str, Any], file: Path) -> None:
        self._top, self._text, self._file = top, text, file

    def _find(self, names: tuple[str, ...]) -> tuple[str, Any] | None:
        for name in names:
            for section in (self._text, self._top):
                if section.get(name) is not None:
                    return name, section[name]
        return None

    def count(self, *names: str) -> int | None:
        """A whole number of 0 or more; lists (one value a layer) count as not said."""
        found = self._find(names)
        if found is None or isinstance(found[1], list):
            return None
        name, value = found
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._refuse(name, value, "a whole number")
        return int(value)

    def text(self, *names: str) -> str | None:
        found = self._find(names)
        return found[1] if found and isinstance(found[1], str) else None

    def names(self, name: str) -> tuple[str, ...]:
        """A list of texts at the top, which is where vLLM looks for the architecture."""
        value = self._top.get(name) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self._refuse(name, value, "a list of names")
        return tuple(value)

    def _refuse(self, name: str, value: object, wanted: str) -> NoReturn:
        raise ConfigurationError(
            f"{self._file}: {name} is {str(value)[:60]!r} and should be {wanted}",
            "The file is damaged or not a model's; take it from the model's source again.",
        )


def _text_section(values: Mapping[str, Any]) -> Mapping[str, Any]:
    section = values
    for name in _TEXT_SECTIONS:
        inner = section.get(name)
        if isinstance(inner, dict):
            section = inner
    return section


def _has_scaled_rope(text: Mapping[str, Any]) -> bool:
    for name in ("rope_scaling", "rope_parameters"):
        rope = text.get(name)
        if isinstance(rope, dict) and (rope.get("factor") or 1) != 1:
            return True
    return False


def _rope_type(text: Mapping[str, Any]) -> str | None:
    """How positions are scaled; "default" where plain rotary embedding is asked for or nothing is said."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = text.get(name)
        if isinstance(rope, dict):
            kind = rope.get("rope_type") or rope.get("type")
            if isinstance(kind, str):
                return kind
    return "default"


def _has_mask_token(values: Mapping[str, Any]) -> bool:
    nested = values.get("dflash_config")
    sections = (values, nested) if isinstance(nested, dict) else (values,)
    return any(isinstance(section.get("mask_token_id"), int) for section in sections)


def _quantization(values: Mapping[str, Any], text: Mapping[str, Any]) -> str | None:
    section = values.get("quantization_config") or text.get("quantization_config")
    method = section.get("quant_method") if isinstance(section, dict) else None
    return method if isinstance(method, str) else None


def _aux_layers(values: Mapping[str, Any]) -> tuple[int, ...] | None:
    eagle = values.get("eagle_config")
    nested = eagle if isinstance(eagle, dict) else {}
    for section in (values, nested):
        for name in ("eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids"):
            ids = section.get(name)
            if isinstance(ids, list) and all(isinstance(item, int) for item in ids):
                return tuple(ids)
    return None


def _speculators(values: Mapping[str, Any]) -> SpeculatorsConfig | None:
    kind = values.get("speculators_model_type")
    section = values.get("speculators_config")
    if not isinstance(section, dict):
        return SpeculatorsConfig(kind, None, None) if isinstance(kind, str) else None
    version = section.get("version") or values.get("speculators_version")
    proposals = section.get("proposal_methods")
    first = proposals[0] if isinstance(proposals, list) and proposals else None
    tokens = first.get("speculative_tokens") if isinstance(first, dict) else None
    verifier = section.get("verifier")
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    algorithm = kind if isinstance(kind, str) else section.get("algorithm")
    return SpeculatorsConfig(
        algorithm=algorithm if isinstance(algorithm, str) else None,
        draft_tokens=tokens if isinstance(tokens, int) else None,
        verifier=name if isinstance(name, str) else None,
        version=version if isinstance(version, str) else None,
        layer_config=isinstance(values.get("transformer_layer_config"), dict),
    )
