"""A checkpoint's ``config.json``, read as data: no code of the checkpoint is run.

Only local folders are read; a model of the hub is recognised and left to vLLM.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from specpanel.core.checkpoints.mla import has_mla, has_sparse_mla
from specpanel.core.errors import ConfigurationError

CONFIG_FILE = "config.json"
CONFIG_LIMIT_BYTES = 4 * 1024 * 1024

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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Geometry of one checkpoint; what the file does not say is None.

    ``attention_layers`` are the layers whose KV cache grows with every token: sliding-window and linear
    layers are left out. ``mtp_layers`` is vLLM's ``n_predict``. ``max_positions`` does not count RoPE
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
    attention_heads: int | None
    kv_heads: int | None
    head_dim: int | None
    max_positions: int | None
    scaled_rope: bool
    dtype: str | None
    quantization: str | None
    is_mla: bool
    is_sparse_mla: bool
    kv_lora_rank: int | None
    qk_rope_head_dim: int | None
    index_topk: int | None
    index_head_dim: int | None
    mtp_layers: int | None
    aux_layers: tuple[int, ...] | None
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
    return parse_config(_read_json(path / CONFIG_FILE), path)


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
    return ModelConfig(
        folder=folder,
        architectures=fields.names("architectures"),
        model_type=fields.text("model_type"),
        vocab_size=fields.count("vocab_size"),
        draft_vocab_size=fields.count("draft_vocab_size"),
        hidden_size=hidden,
        target_hidden_size=fields.count("target_hidden_size"),
        layers=layers,
        attention_layers=_growing_layers(text, layers),
        attention_heads=heads,
        kv_heads=fields.count("num_key_value_heads") or heads,
        head_dim=head_dim,
        max_positions=fields.count("max_position_embeddings", "n_positions"),
        scaled_rope=_has_scaled_rope(text),
        dtype=fields.text("dtype", "torch_dtype"),
        quantization=_quantization(values, text),
        is_mla=has_mla(text),
        is_sparse_mla=has_sparse_mla(text),
        kv_lora_rank=fields.count("kv_lora_rank"),
        qk_rope_head_dim=fields.count("qk_rope_head_dim"),
        index_topk=fields.count("index_topk"),
        index_head_dim=fields.count("index_head_dim"),
        mtp_layers=fields.count(*_MTP_FIELDS),
        aux_layers=_aux_layers(values),
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


def _read_json(file: Path) -> dict[str, Any]:
    try:
        size = file.stat().st_size
        if size > CONFIG_LIMIT_BYTES:
            _reject(file, f"has {size / 1e6:.0f} MB, too much for a model's configuration")
        values = json.loads(file.read_text(encoding="utf-8"), parse_constant=_constant)
    except FileNotFoundError:
        raise ConfigurationError(
            f"the folder {file.parent} holds no {CONFIG_FILE}",
            "Give the folder of a Hugging Face checkpoint.",
        ) from None
    except OSError as error:
        _reject(file, f"cannot be read ({error.strerror})")
    except UnicodeDecodeError:
        _reject(file, "is not text in UTF-8")
    except json.JSONDecodeError as error:
        _reject(file, _json_reason(error))
    except RecursionError:
        _reject(file, "is nested too deeply")
    except ValueError as error:
        _reject(file, str(error))
    if not isinstance(values, dict):
        _reject(file, "is JSON, but not an object")
    return values


def _constant(name: str) -> float:
    # Infinity is in real files (Mamba's time_step_limit); a NaN is in none that works.
    if name == "NaN":
        raise ValueError("holds NaN, which is no number")
    return float(name)


def _json_reason(error: json.JSONDecodeError) -> str:
    start = error.doc.lstrip()[:100].lower()
    if error.doc.startswith("\ufeff"):
        return "starts with a byte order mark, which vLLM cannot read: save it without"
    if start.startswith(("<!doctype", "<html", "<?xml")):
        return "is a web page, not JSON: the download went wrong"
    if start.startswith("version https://git-lfs"):
        return "is a Git LFS pointer, not the file itself: run git lfs pull"
    return f"is not JSON (line {error.lineno}: {error.msg})"


def _reject(file: Path, reason: str) -> NoReturn:
    raise ConfigurationError(f"{file} {reason}", "Take the file from the model's source again.")


def _text_section(values: Mapping[str, Any]) -> Mapping[str, Any]:
    section = values
    for name in _TEXT_SECTIONS:
        inner = section.get(name)
        if isinstance(inner, dict):
            section = inner
    return section


def _growing_layers(text: Mapping[str, Any], layers: int | None) -> int | None:
    types = text.get("layer_types")
    if not isinstance(types, list) or not types:
        return layers
    return sum(kind not in {"sliding_attention", "linear_attention", "mamba"} for kind in types)


def _has_scaled_rope(text: Mapping[str, Any]) -> bool:
    for name in ("rope_scaling", "rope_parameters"):
        rope = text.get(name)
        if isinstance(rope, dict) and (rope.get("factor") or 1) != 1:
            return True
    return False


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
    )
