"""A plugin for vLLM that replaces its thresholds of masked MHA by measured ones, and only if asked to.

vLLM loads it in every process (entry point ``vllm.general_plugins``). Without ``SPECPANEL_MLA_TABLE`` in the
environment it returns at once. With it, the file that it names is taken only where all of this holds;
otherwise vLLM keeps its own table and its log says why:

- vLLM is exactly the version whose rules are mirrored here, and its source is as mirrored;
- the calibration is complete, of this GPU, and of timings of *vLLM's own kernels*: its engine is
  ``vllm:FLASHMLA_SPARSE`` or ``vllm:FLASHINFER_MLA_SPARSE``. Timings of others say nothing about these;
- the geometry is one that vLLM has a masked kernel for.
"""

import logging
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.kernels.calibrate import Calibration, load
from specpanel.kernels.errors import MLAError
from specpanel.kernels.vllm_rules import (
    MASKED_GEOMETRIES,
    THRESHOLDS,
    VLLM_VERSION,
    Ranges,
    Thresholds,
)

VARIABLE = "SPECPANEL_MLA_TABLE"
_ENGINE = "vllm:"

# Under vLLM's own logger, so that the words reach its log.
_log = logging.getLogger("vllm.plugins.specpanel")

Rows = dict[int, tuple[Ranges, Ranges | None]]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the plugin found where it runs. ``drift``: how vLLM's source differs from what is mirrored."""

    version: str | None
    drift: str | None
    device: str | None


@dataclass(frozen=True, slots=True)
class Override:
    """What goes into vLLM's table: rows by tensor-parallel size, for a geometry and backend."""

    widths: tuple[int, int]
    backend: str
    rows: Rows


def register() -> None:
    """vLLM's entry point. Never raises: a refusal is a line in vLLM's log."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    try:
        override = overriding(load(_read(Path(path))), look())
        _apply(override)
    except MLAError as error:
        _log.warning("specpanel: vLLM keeps its own MLA thresholds: %s.", error.message)
        return
    sizes = ", ".join(f"TP{size}" for size in sorted(override.rows))
    _log.warning(
        "specpanel: MLA thresholds of %s at %s are from %s.", override.backend, sizes, path
    )


def overriding(calibration: Calibration, found: Surroundings) -> Override:
    """The rows that ``calibration`` puts into vLLM's table.

    Raises:
        MLAError: it must not be used here; the message says why.
    """
    key = calibration.key
    backend = key.engine.removeprefix(_ENGINE)
    widths = (key.nope + key.rope, key.v)
    heads = {
        total
        for total, lora, nope, rope, v in MASKED_GEOMETRIES
        if (lora, nope, rope, v) == (key.lora, key.nope, key.rope, key.v)
    }
    conditions = (
        (found.version == VLLM_VERSION, f"vLLM is {found.version} and not {VLLM_VERSION}"),
        (found.drift is None, f"{found.drift}"),
        (
            key.engine.startswith(_ENGINE) and backend in THRESHOLDS.get(widths, {}),
            f"the timings are of {key.engine} kernels and not of vLLM's own",
        ),
        (bool(heads), f"vLLM has no masked kernel for heads of {key.nope}+{key.rope}/{key.v}"),
        (calibration.complete, "the calibration was cut short"),
        (
            not calibration.refused,
            f"it was refused itself: {'; '.join(calibration.refused.values())}",
        ),
        (bool(calibration.rows), "the calibration has no thresholds"),
        (key.device == found.device, f"it was measured on {key.device} and this is {found.device}"),
    )
    for holds, reason in conditions:
        if not holds:
            raise MLAError(reason)
    (total,) = heads
    rows: Rows = {}
    for local, found_rows in calibration.rows.items():
        if total % local:
            raise MLAError(f"{total} heads cannot be {local} a rank")
        rows[total // local] = (found_rows.pure, found_rows.context)
    return Override(widths, backend, rows)


def put(override: Override, table: MutableMapping[tuple[int, int], Any]) -> None:
    """Write ``override`` into vLLM's table, in place: vLLM looks it up at every step.

    Raises:
        MLAError: the table is not the one that is mirrored; nothing was written.
    """
    if table != THRESHOLDS:
        raise MLAError("the table that is loaded is not the one that is mirrored")
    backends = table[override.widths]
    backends[override.backend] = {**backends[override.backend], **override.rows}


def look() -> Surroundings:
    """vLLM's version and source as installed, and the GPU."""
    from specpanel.kernels import vllm_source

    root = vllm_source.installed_root()
    if root is None:
        return Surroundings(None, None, None)
    installed = vllm_source.read(root)
    return Surroundings(installed.version, vllm_source.drift_text(installed), _device())


def _device() -> str | None:
    import torch

    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


def _apply(override: Override) -> None:
    from vllm.model_executor.layers.attention import mla_attention

    table: Thresholds = mla_attention._MASKED_MHA_THRESHOLDS
    put(override, table)  # type: ignore[arg-type]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise MLAError(f"{path} cannot be read: {error}") from None
