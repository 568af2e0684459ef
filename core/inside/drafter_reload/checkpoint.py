"""A drafter's checkpoint as files: read whole, and checked as far as that needs no model."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .refusal import RefusedError

# Keys of config.json that say nothing about what is computed, or that vLLM rewrites after reading them.
_ABOUT_THE_FILE = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "draft_vocab_size",
        "dtype",
        "embed_requires_grad",
        "max_position_embeddings",
        "name_or_path",
        "speculators_config",
        "speculators_version",
        "target_layer_count",
        "torch_dtype",
        "transformers_version",
        "use_cache",
        "verifier",
    }
)
_LISTED = 3


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Tensors by name on the CPU; ``digest`` is of the files they came from."""

    tensors: dict[str, torch.Tensor]
    digest: str


def read(folder: Path) -> Checkpoint:
    """Every tensor of the folder. Each file is read once: what is digested is what is loaded.

    Raises:
        RefusedError: there is none, one cannot be read, is stored twice, or holds NaN or infinity.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    if not folder.is_dir():
        raise RefusedError(f"there is no folder {folder}")
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise RefusedError(f"{folder} holds no .safetensors file")
    tensors: dict[str, torch.Tensor] = {}
    digest = hashlib.sha256()
    for file in files:
        try:
            content = file.read_bytes()
            part = load(content)
        except (OSError, SafetensorError) as error:
            raise RefusedError(f"{file.name} cannot be read, or is not whole: {error}") from error
        digest.update(content)
        if twice := sorted(tensors.keys() & part.keys()):
            raise RefusedError(f"stored twice: {_some(twice)}")
        tensors.update(part)
    if bad := [name for name, tensor in tensors.items() if not _is_finite(tensor)]:
        raise RefusedError(f"NaN or infinity in {_some(bad)}")
    return Checkpoint(tensors, digest.hexdigest()[:16])


def compare_with_served(new: dict[str, torch.Tensor], served: Path, shared: set[str]) -> None:
    """Names, shapes and kinds of number must be those of the checkpoint that is served.

    Args:
        served: its folder; where that is gone, the model's own loading has to find what does not fit.
        shared: names of modules that the drafter borrows from the target; their tensors may be absent.

    Raises:
        RefusedError: something differs.
    """
    from safetensors import SafetensorError, safe_open

    layout: dict[str, tuple[tuple[int, ...], str]] = {}
    try:
        for file in sorted(served.glob("*.safetensors")):
            with safe_open(file, framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118 - it is no mapping
                    found = opened.get_slice(name)
                    layout[name] = tuple(found.get_shape()), _kind(found.get_dtype())
    except (OSError, SafetensorError):
        return
    if not layout:
        return
    if missing := [n for n in layout if n not in new and not belongs_to(n, shared)]:
        raise RefusedError(f"not in the checkpoint: {_some(sorted(missing))}")
    if unknown := [n for n in new if n not in layout and not belongs_to(n, shared)]:
        raise RefusedError(f"not in the served checkpoint: {_some(sorted(unknown))}")
    for name in new.keys() & layout.keys():
        shape, kind = layout[name]
        if tuple(new[name].shape) != shape:
            raise RefusedError(f"{name} is {list(new[name].shape)}, the served one {list(shape)}")
        if _kind_of(new[name]) != kind:
            raise RefusedError(f"{name} holds {_kind_of(new[name])}, the served one {kind}")


def check_config(folder: Path, running: Any, *, trust_remote_code: bool) -> None:
    """``config.json`` must describe the network that runs.

    Args:
        running: the drafter's configuration in vLLM (``hf_config``).

    Raises:
        RefusedError: it is absent, unreadable, or differs where it matters.
    """
    from vllm.transformers_utils.config import get_config

    if not (folder / "config.json").is_file():
        raise RefusedError(f"{folder} holds no config.json")
    try:
        new = get_config(str(folder), trust_remote_code).to_dict()
    except (
        Exception
    ) as error:  # whatever a library of configurations raises: the file is not usable
        raise RefusedError(f"config.json is not usable: {type(error).__name__}: {error}") from error
    old = running.to_dict()
    different = [
        f"{key} is {new[key]!r}, the served one {old[key]!r}"
        for key in sorted(new.keys() & old.keys() - _ABOUT_THE_FILE)
        if _plain(new[key]) != _plain(old[key])
    ]
    if different:
        raise RefusedError("config.json: " + "; ".join(different[:_LISTED]))


def check_mapping(tensors: dict[str, torch.Tensor], vocabulary: int) -> None:
    """Every draft token must stand for a token of the target, or its embedding would be read out of bounds.

    ``d2t`` holds, by draft token, what is added to it to give the target's token.

    Raises:
        RefusedError: one does not.
    """
    for name, offsets in tensors.items():
        if name.rpartition(".")[2] == "d2t":
            tokens = torch.arange(len(offsets)) + offsets
            if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
                raise RefusedError(f"{name} points outside the target's {vocabulary} tokens")


def belongs_to(tensor: str, modules: set[str]) -> bool:
    """Whether a tensor of this name is one of the modules of these (last) names."""
    return not modules.isdisjoint(tensor.split("."))


def _is_finite(tensor: torch.Tensor) -> bool:
    if not tensor.dtype.is_floating_point:
        return True
    wide = tensor.float() if tensor.dtype.itemsize == 1 else tensor
    return bool(torch.isfinite(wide).all())


def _kind_of(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return "truth values"
    if tensor.dtype.is_floating_point:
        return "numbers of 8 bits" if tensor.dtype.itemsize == 1 else "numbers"
    return "integers"


def _kind(name: str) -> str:
    """The kind for a type as the file's header names it: F32, BF16, F8_E4M3, I64, BOOL."""
    if name == "BOOL":
        return "truth values"
    if name.startswith("F8"):
        return "numbers of 8 bits"
    return "numbers" if name[0] in "FB" else "integers"


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
