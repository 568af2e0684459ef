"""Fresh parameters beside the running ones: laid out, filled by the model's own loader, checked, packed."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .refusal import RefusedError

# Parameters that a model has but uses only where the flag beside it is set (DFlash).
_OPTIONAL = {"mask_embedding": "has_separate_mask_embedding"}
_PACKED = "_already_called_process_weights_after_loading"


@dataclass(frozen=True, slots=True)
class Staged:
    """One fresh parameter, marked as unset until the loader has filled it."""

    name: str
    tensor: torch.Tensor
    module: nn.Module


def lay_out(modules: dict[str, nn.Module]) -> list[Staged]:
    """Give each module new parameters in the checkpoint's layout; the old ones are only let go.

    The caller holds the modules' state from before and puts it back. The layout is the one vLLM recorded
    before it packed the weights; what it does not record (a bias) has the layout that it has now.
    """
    from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
    from vllm.model_executor.model_loader.reload.meta import (
        materialize_meta_tensor,
        restore_layer_refs,
        to_meta_tensor,
    )

    staged: list[Staged] = []
    for path, module in modules.items():
        info = get_layerwise_info(module)
        layout = dict(info.restore_metadata[0])
        for name, live in module._parameters.items():
            if live is not None and name not in layout:
                layout[name] = to_meta_tensor(live)
        for name, meta in layout.items():
            with info.restore_device:
                fresh = restore_layer_refs(materialize_meta_tensor(meta), module)
            fresh.data.fill_(unset(fresh.dtype))
            module._parameters.pop(name, None)
            module.register_parameter(name, fresh)
            staged.append(Staged(f"{path}.{name}".lstrip("."), fresh, module))
        # A model may write straight into a buffer (P-EAGLE's vector for masked positions).
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.clone()
        module.__dict__.pop(_PACKED, None)
    return staged


def load(draft: nn.Module, tensors: dict[str, torch.Tensor], staged: list[Staged]) -> None:
    """Fill what was laid out by the model's own ``load_weights``.

    Raises:
        RefusedError: it does not take a tensor, or one is missing.
    """
    loader: Any = draft.load_weights
    try:
        loader(tensors.items())
    except (
        Exception
    ) as error:  # an assertion, a KeyError, whatever the model meets an unfit tensor with
        raise RefusedError(f"vLLM does not take it: {type(error).__name__}: {error}") from error
    missing = [one.name for one in staged if not _is_filled(one)]
    if missing:
        raise RefusedError(f"not, or only partly, in the checkpoint: {', '.join(missing[:3])}")


def pack(modules: dict[str, nn.Module]) -> None:
    """Bring the weights into the form that the kernels take, as after a start."""
    from vllm.model_executor.layers.quantization.base_config import QuantizeMethodBase

    for module in modules.values():
        method: Any = getattr(module, "quant_method", None)
        if isinstance(method, QuantizeMethodBase):
            method.process_weights_after_loading(module)
            if hasattr(module, "update_param_tp_status"):
                module.update_param_tp_status()


def unset(dtype: torch.dtype) -> float | int | bool:
    """The value that marks what no checkpoint can hold: it was read to be finite."""
    if dtype.is_floating_point:
        return float("nan")
    return False if dtype == torch.bool else int(torch.iinfo(dtype).min)


def _is_filled(one: Staged) -> bool:
    flag = _OPTIONAL.get(one.name.rpartition(".")[2])
    if flag is not None and not getattr(one.module, flag, True):
        one.tensor.data.zero_()
        return True
    if one.tensor.dtype == torch.bool:
        return True
    if one.tensor.dtype.is_floating_point:
        wide = one.tensor.float() if one.tensor.dtype.itemsize == 1 else one.tensor
        return not bool(torch.isnan(wide).any())
    return not bool((one.tensor == unset(one.tensor.dtype)).any())
