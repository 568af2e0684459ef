"""The header of a GGUF file, and its tensors as numbers. Needs only numpy, and that for the tensors alone.

Sources: the GGUF specification (ggml, docs/gguf.md, version 3) and the block layouts Q4_1 and Q8_0 in
ggml's ``ggml-common.h``.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STRING, _ARRAY = 8, 9
# GGUF's numbers for its scalar types, and the letters that struct has for them.
_SCALARS = {
    kind: struct.Struct("<" + letter)
    for kind, letter in zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True)
}
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK_ELEMENTS = 32


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor of the GGUF file.

    ``shape`` is (rows, columns), or (columns,) for a vector; ``offset_bytes`` counts from the first
    byte of the file.
    """

    kind: int
    shape: tuple[int, ...]
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Gguf:
    """The header of a GGUF file: its key-value pairs and where its tensors stand."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, StoredTensor]

    def values(self, tensor: StoredTensor) -> "NDArray[np.float32]":
        """The tensor's values, shape as stored.

        A Q4_1 block is scale d, minimum m (float16) and 32 nibbles q, low halves first: d·q + m. A Q8_0
        block is d and 32 signed bytes: d·q.
        """
        import numpy as np

        elements = math.prod(tensor.shape)
        if tensor.kind == _F32:
            raw = np.fromfile(self.path, "<f4", elements, offset=tensor.offset_bytes)
            return raw.reshape(tensor.shape)
        layouts: dict[int, Any] = {
            _Q4_1: np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("packed", "u1", (16,))]),
            _Q8_0: np.dtype([("scale", "<f2"), ("whole", "i1", (32,))]),
        }
        if tensor.kind not in layouts:
            raise ValueError(f"{self.path} stores a tensor as GGML type {tensor.kind}")
        count = elements // _BLOCK_ELEMENTS
        blocks = np.fromfile(self.path, layouts[tensor.kind], count, offset=tensor.offset_bytes)
        scale = blocks["scale"].astype(np.float32)[:, None]
        if tensor.kind == _Q8_0:
            values = scale * blocks["whole"].astype(np.float32)
        else:
            packed = blocks["packed"]
            nibbles = np.concatenate([packed & 0x0F, packed >> 4], axis=1)
            values = scale * nibbles.astype(np.float32)
            values += blocks["minimum"].astype(np.float32)[:, None]
        return values.reshape(tensor.shape)


def _u32(file: BinaryIO) -> int:
    return int.from_bytes(file.read(4), "little")


def _u64(file: BinaryIO) -> int:
    return int.from_bytes(file.read(8), "little")


def _text(file: BinaryIO) -> str:
    return file.read(_u64(file)).decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        element, count = _u32(file), _u64(file)
        return [_value(file, element) for _ in range(count)]
    scalar = _SCALARS[kind]
    return scalar.unpack(file.read(scalar.size))[0]


def read_gguf(path: Path) -> Gguf:
    """Read the header of a GGUF file of version 3; the weights stay on disk.

    Raises:
        ValueError: it is not such a file.
    """
    with path.open("rb") as file:
        if file.read(4) != b"GGUF" or _u32(file) != 3:
            raise ValueError(f"{path} is not a GGUF file of version 3")
        tensor_count, field_count = _u64(file), _u64(file)
        fields: dict[str, Any] = {}
        for _ in range(field_count):
            name = _text(file)
            fields[name] = _value(file, _u32(file))
        found: list[tuple[str, tuple[int, ...], int, int]] = []
        for _ in range(tensor_count):
            name = _text(file)
            sizes = [_u64(file) for _ in range(_u32(file))]
            found.append((name, tuple(reversed(sizes)), _u32(file), _u64(file)))
        alignment = fields.get("general.alignment", 32)
        start = -(-file.tell() // alignment) * alignment
    tensors = {
        name: StoredTensor(kind, shape, start + offset) for name, shape, kind, offset in found
    }
    return Gguf(path, fields, tensors)
