"""One model a drafter, told apart by ``method``, and the mapping of each to vLLM.

``method`` is specpanel's name, which is the field's usual one; vLLM's name can differ (P-EAGLE is vLLM's
``eagle3`` with parallel drafting). Read from vLLM 0.32.0, ``vllm/config/speculative.py``. What each can
do where stands in ``table``.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ModelWrapValidatorHandler, WrapValidator

from specpanel.core.settings.drafters.model_free import (
    CustomDrafter,
    NgramDrafter,
    NgramGpuDrafter,
    NgramLookup,
    NoDrafter,
    SuffixDrafter,
)
from specpanel.core.settings.drafters.names import NO_DRAFTERS, canonical, name_note
from specpanel.core.settings.drafters.parts import DrafterModel
from specpanel.core.settings.drafters.weighted import (
    DFlash2Drafter,
    DFlashDrafter,
    DraftModelDrafter,
    DSparkDrafter,
    Eagle3Drafter,
    EagleDrafter,
    MedusaDrafter,
    MtpDrafter,
    PardDrafter,
    PEagleDrafter,
)

__all__ = [
    "DRAFTERS",
    "METHODS",
    "CustomDrafter",
    "DFlash2Drafter",
    "DFlashDrafter",
    "DSparkDrafter",
    "DraftModelDrafter",
    "Drafter",
    "DrafterModel",
    "Eagle3Drafter",
    "EagleDrafter",
    "MedusaDrafter",
    "MtpDrafter",
    "NgramDrafter",
    "NgramGpuDrafter",
    "NgramLookup",
    "NoDrafter",
    "PEagleDrafter",
    "PardDrafter",
    "SuffixDrafter",
    "canonical",
    "name_note",
]

_ByMethod = Annotated[
    NoDrafter
    | NgramDrafter
    | NgramGpuDrafter
    | SuffixDrafter
    | DraftModelDrafter
    | PardDrafter
    | EagleDrafter
    | Eagle3Drafter
    | PEagleDrafter
    | DFlashDrafter
    | DFlash2Drafter
    | DSparkDrafter
    | MtpDrafter
    | MedusaDrafter
    | CustomDrafter,
    Field(discriminator="method"),
]


def _by_its_name(value: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
    """Reads other names of a method as the method's own, and remembers what was written."""
    written = value.get("method") if isinstance(value, Mapping) else None
    if not isinstance(written, str):
        return handler(value)
    if written in NO_DRAFTERS:
        raise ValueError(f"{written} is no drafter that can be served: {NO_DRAFTERS[written]}")
    method = canonical(written)
    if method == written:
        return handler(value)
    drafter = handler({**value, "method": method})
    drafter._written_as = written
    return drafter


Drafter = Annotated[_ByMethod, WrapValidator(_by_its_name)]

DRAFTERS: dict[str, type[DrafterModel]] = {
    str(model.model_fields["method"].default): model
    for model in (
        NoDrafter,
        NgramDrafter,
        NgramGpuDrafter,
        SuffixDrafter,
        DraftModelDrafter,
        PardDrafter,
        EagleDrafter,
        Eagle3Drafter,
        PEagleDrafter,
        DFlashDrafter,
        DFlash2Drafter,
        DSparkDrafter,
        MtpDrafter,
        MedusaDrafter,
        CustomDrafter,
    )
}
METHODS: tuple[str, ...] = tuple(DRAFTERS)
