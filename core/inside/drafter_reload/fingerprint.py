"""A digest of the weights that compute, to tell one drafter from another on the same machine."""

import hashlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


def fingerprint(modules: Iterable[nn.Module]) -> str:
    """16 hexadecimal digits; equal for equal weights on one machine, type and number of threads.

    A weight that was packed for a CPU kernel leaves an empty tensor behind: such a layer is digested by
    what it answers to a fixed input.
    """
    digest = hashlib.sha256()
    for module in modules:
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if parameter.numel():
                digest.update(_bytes(parameter))
            elif name == "weight" and hasattr(module, "input_size_per_partition"):
                digest.update(_bytes(_answer(module, parameter)))
    return digest.hexdigest()[:16]


def _answer(module: Any, weight: torch.Tensor) -> torch.Tensor:
    width = module.input_size_per_partition
    question = torch.linspace(-1, 1, width, dtype=weight.dtype, device=weight.device)
    answer: torch.Tensor = module.quant_method.apply(module, question.reshape(1, width), None)
    return answer


def _bytes(tensor: torch.Tensor) -> bytes:
    plain = tensor.detach().contiguous().cpu().reshape(-1)
    return bytes(plain.view(torch.uint8).numpy().tobytes())
