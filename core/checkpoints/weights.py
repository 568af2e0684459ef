"""What a checkpoint's weight files hold, told by their names, sizes and safetensors headers alone.

No tensor is read and nothing is unpickled: a header is JSON in front of the data, with each tensor's
type, shape and place (https://github.com/huggingface/safetensors).
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from specpanel.core.checkpoints.json_file import read_json
from specpanel.core.errors import ConfigurationError
from specpanel.core.ordinary import open_ordinary

INDEX_FILE = "model.safetensors.index.json"
HEADERS_READ = 4  # the rest of a checkpoint in many files has the same mixture of types
_HEADER_LIMIT_BYTES = 16 * 1024 * 1024
_INDEX_LIMIT_BYTES = 64 * 1024 * 1024
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")

WeightKind = Literal["safetensors", "pickle", "gguf"]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight files of one checkpoint.

    ``total_bytes`` is the sum of the files. ``bytes_by_type`` is by safetensors' names of types ("BF16"),
    scaled up to the whole where only some headers were read; empty where none was. ``shapes`` are those of
    the tensors in the headers that were read. ``missing`` are files that the index names and that are not
    there.
    """

    kind: WeightKind
    total_bytes: int
    files: int
    missing: tuple[str, ...] = ()
    bytes_by_type: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    whole: bool = True  # whether every header was read

    def shape_of(self, ending: str) -> Shape | None:
        """The shape of the first tensor whose name ends so."""
        return next((shape for name, shape in self.shapes.items() if name.endswith(ending)), None)

    def has(self, ending: str) -> bool | None:
        """Whether there is a tensor whose name ends so; None where not every header was read."""
        if self.shape_of(ending) is not None:
            return True
        return False if self.whole and self.shapes else None


def read_weights(folder: Path) -> Weights | None:
    """The weights in ``folder``; None where there are none. Files that cannot be read count by size."""
    try:
        named = _named_by_index(folder)
        if named is not None:
            return _safetensors(folder, named)
        found = sorted(path.name for path in folder.glob("*.safetensors") if path.is_file())
        # Mistral's repositories hold the same weights twice, once as consolidated*.safetensors.
        usual = [name for name in found if not name.startswith("consolidated")]
        if found:
            return _safetensors(folder, usual or found)
        for kind, patterns in (("pickle", _PICKLES), ("gguf", ("*.gguf",))):
            sizes = [
                path.stat().st_size
                for pattern in patterns
                for path in folder.glob(pattern)
                if path.is_file() and path.name != "training_args.bin"
            ]
            if sizes:
                return Weights("gguf" if kind == "gguf" else "pickle", sum(sizes), len(sizes))
    except OSError:
        return None
    return None


def _named_by_index(folder: Path) -> list[str] | None:
    """The files that the index names; None where there is no index that can be used."""
    if not (folder / INDEX_FILE).is_file():
        return None
    try:
        mapping = read_json(folder / INDEX_FILE, _INDEX_LIMIT_BYTES).get("weight_map")
    except ConfigurationError:
        return None
    if not isinstance(mapping, dict):
        return None
    return sorted({str(name) for name in mapping.values()})


def _safetensors(folder: Path, names: list[str]) -> Weights:
    there = [name for name in names if (folder / name).is_file()]
    by_type: dict[str, int] = {}
    shapes: dict[str, Shape] = {}
    read = 0
    for name in there[:HEADERS_READ]:
        header = _header(folder / name)
        read += bool(header)
        for tensor, entry in header.items():
            _count(tensor, entry, by_type, shapes)
    total = sum((folder / name).stat().st_size for name in there)
    seen = sum(by_type.values())
    whole = read == len(names)
    if seen and not whole:
        by_type = {kind: round(size * total / seen) for kind, size in by_type.items()}
    missing = tuple(name for name in names if name not in there)
    return Weights("safetensors", total, len(there), missing, by_type, shapes, whole)


def _count(tensor: str, entry: Any, by_type: dict[str, int], shapes: dict[str, Shape]) -> None:
    if not isinstance(entry, dict) or tensor == "__metadata__":
        return
    kind, shape, place = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if isinstance(shape, list) and all(isinstance(size, int) for size in shape):
        shapes[tensor] = tuple(shape)
    if isinstance(kind, str) and isinstance(place, list) and len(place) == 2:
        by_type[kind] = by_type.get(kind, 0) + int(place[1]) - int(place[0])


def _header(file: Path) -> dict[str, Any]:
    """The header of a safetensors file; empty where it is none."""
    try:
        with open_ordinary(file, pipes=False) as stream:
            size = int.from_bytes(stream.read(8), "little")
            if not 2 <= size <= min(_HEADER_LIMIT_BYTES, os.fstat(stream.fileno()).st_size):
                return {}
            values = json.loads(stream.read(size))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
