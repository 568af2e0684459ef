"""How many bytes of weights vLLM will hold, from the files and the type they are served in. Pure."""

from collections.abc import Mapping

from specpanel.core.checkpoints.geometry import dtype_bytes
from specpanel.core.preflight.surroundings import ModelState

# safetensors' floating types that vLLM converts to the served one; bytes a value.
_CONVERTED: dict[str, int] = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
# Quantisations that vLLM does while it loads unquantised weights; bytes of a value afterwards.
_ONLINE: dict[str, float] = {"fp8": 1.0, "mxfp8": 1.03, "bitsandbytes": 0.56}


def served_weight_bytes(
    model: ModelState, dtype: str | None, quantization: object
) -> tuple[int | None, str]:
    """Bytes of a model's weights as they are served, all ranks together, and how that is known."""
    if model.weights is None or model.config is None:
        return None, "no weights were read"
    stored = model.weights.total_bytes
    quantised_on_disk = model.config.quantization is not None
    by_type = model.weights.bytes_by_type
    if isinstance(quantization, str) and not quantised_on_disk and quantization in _ONLINE:
        values = stored / (dtype_bytes(model.config.dtype) or 2)
        return round(values * _ONLINE[quantization]), f"quantised while loading ({quantization})"
    if quantised_on_disk:
        return stored, f"the files, as they are ({model.config.quantization})"
    served = dtype_bytes(dtype if dtype not in (None, "auto") else model.config.dtype)
    if by_type and served:
        return round(_converted(by_type, served)), _basis(model, dtype)
    own = dtype_bytes(model.config.dtype)
    if served and own and served != own:
        return round(stored * served / own), f"the files, widened from {model.config.dtype}"
    return stored, "the files"


def _converted(by_type: Mapping[str, int], served: float) -> float:
    return sum(
        size / _CONVERTED[kind] * served if kind in _CONVERTED else size
        for kind, size in by_type.items()
    )


def _basis(model: ModelState, dtype: str | None) -> str:
    chosen = dtype if dtype not in (None, "auto") else model.config.dtype if model.config else None
    weights = model.weights
    part = "" if weights is None or weights.whole else ", some headers scaled up"
    return f"safetensors headers, served in {chosen}{part}"
