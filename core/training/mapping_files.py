"""The draft vocabulary's map of a checkpoint, taken out of its weights without torch or numpy.

``d2t`` holds by draft token what is added to it to give the target's, ``t2d`` by token of the target whether
it can be drafted. Written as numpy's arrays, which is what the trainer reads
(https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
"""

import json
from pathlib import Path
from typing import Any

from specpanel.core.errors import ConfigurationError

_NUMPY = {"I64": "<i8", "I32": "<i4", "BOOL": "|b1"}
_HEADER_LIMIT_BYTES = 16 << 20


def write_mapping(checkpoint: Path, folder: Path) -> tuple[Path, Path]:
    """``start-d2t.npy`` and ``start-t2d.npy`` in ``folder``, from the tensors of ``checkpoint``.

    Raises:
        ConfigurationError: it has no such tensors.
    """
    places = []
    for name in ("d2t", "t2d"):
        kind, shape, data = _tensor(checkpoint, name)
        place = folder / f"start-{name}.npy"
        place.write_bytes(_array(kind, shape, data))
        places.append(place)
    return places[0], places[1]


def _tensor(checkpoint: Path, name: str) -> tuple[str, tuple[int, ...], bytes]:
    for file in sorted(checkpoint.glob("*.safetensors")):
        try:
            with file.open("rb") as weights:
                size = int.from_bytes(weights.read(8), "little")
                if size > _HEADER_LIMIT_BYTES:
                    continue
                header: dict[str, Any] = json.loads(weights.read(size))
                entry = header.get(name)
                if entry is None:
                    continue
                first, last = entry["data_offsets"]
                weights.seek(8 + size + first)
                return _NUMPY[entry["dtype"]], tuple(entry["shape"]), weights.read(last - first)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    raise ConfigurationError(
        f"{checkpoint} drafts from a vocabulary of its own and holds no map of it ({name})",
        "Take a checkpoint that holds d2t and t2d.",
    )


def _array(kind: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """Version 1.0 of the format: the header's end is a multiple of 64 bytes from the beginning."""
    words = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    header = words.encode() + b" " * (-(len(words) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data
