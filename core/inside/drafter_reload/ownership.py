"""Which modules a drafter has for itself, and which it borrows from the target."""

from typing import Any

import torch
from torch import nn

from .checkpoint import belongs_to
from .refusal import RefusedError


def owned_modules(draft: nn.Module, target: nn.Module) -> dict[str, nn.Module]:
    """Modules of the drafter, by path, none of whose tensors are the target's."""
    from vllm.model_executor.layers.attention import is_deferred_attention_layer

    borrowed = borrowed_modules(draft, target)
    return {
        path: module
        for path, module in draft.named_modules()
        if path not in borrowed and not is_deferred_attention_layer(module)
    }


def borrowed_modules(draft: nn.Module, target: nn.Module) -> dict[str, nn.Module]:
    """Modules of the drafter, by path, that are the target's own or hold a tensor of the target."""
    modules = {id(module) for module in target.modules()}
    tensors = {id(tensor) for tensor in target.parameters()}
    return {
        path: module
        for path, module in draft.named_modules()
        if id(module) in modules
        or any(id(tensor) in tensors for tensor in module._parameters.values())
    }


def names_of_shared(draft: nn.Module, target: nn.Module) -> set[str]:
    """Last names of borrowed modules that hold weights, such as ``embed_tokens`` and ``lm_head``."""
    return {
        path.rpartition(".")[2]
        for path, module in borrowed_modules(draft, target).items()
        if isinstance(module._parameters.get("weight"), torch.Tensor)
    }


def without_shared(
    tensors: dict[str, torch.Tensor], draft: nn.Module, target: nn.Module
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """What is to be loaded, and the names of what the drafter borrows and that is left alone.

    A borrowed tensor cannot be replaced without changing the target, so the checkpoint's copy of it must be
    equal. On a split target (tensor parallel) only the width can be compared.

    Raises:
        RefusedError: it differs.
    """
    shared = {
        path.rpartition(".")[2]: module
        for path, module in borrowed_modules(draft, target).items()
        if isinstance(module._parameters.get("weight"), torch.Tensor)
    }
    kept: dict[str, torch.Tensor] = {}
    left: list[str] = []
    for name, tensor in tensors.items():
        part = next((one for one in shared if belongs_to(name, {one})), None)
        if part is None:
            kept[name] = tensor
            continue
        _require_equal(name, tensor, shared[part].weight)
        left.append(name)
    return kept, left


def _require_equal(name: str, new: torch.Tensor, live: Any) -> None:
    if not live.numel():  # packed away: nothing to compare with
        return
    if live.shape[1:] != new.shape[1:]:
        raise RefusedError(
            f"{name} is {list(new.shape)}, the target's, which the drafter shares, {list(live.shape)}"
        )
    if live.shape == new.shape and not torch.equal(live.detach().cpu(), new.to(live.dtype)):
        raise RefusedError(
            f"{name} differs from the target's, which the drafter shares: only a restart can take it"
        )
