"""Calibrations that the MLA screen made, kept for the next time: one a geometry, in the data folder."""

import contextlib
import os
from pathlib import Path

from specpanel.core.errors import SpecpanelError
from specpanel.core.ordinary import read_ordinary
from specpanel.core.private import private_opener
from specpanel.core.settings.paths import data_folder
from specpanel.kernels.calibrate import Calibration, dump, load
from specpanel.kernels.dims import MLADims
from specpanel.kernels.errors import MLAError

_LIMIT_BYTES = 16 << 20


def calibration_path(nope: int, rope: int, v: int, lora: int) -> Path:
    return data_folder() / "mla" / f"calibration-{nope}-{rope}-{v}-{lora}.json"


def saved_calibration(dims: MLADims) -> Calibration | None:
    """The last calibration of this geometry; None where there is none that can be read."""
    path = calibration_path(dims.nope, dims.rope, dims.v, dims.lora)
    try:
        return load(read_ordinary(path, _LIMIT_BYTES, pipes=False).decode())
    except (OSError, UnicodeDecodeError, MLAError):
        return None  # it was never made, or by another version: it is made anew with one key


def save_calibration(found: Calibration) -> Path:
    """Keep ``found`` in the place of the one before; whole or not at all.

    Raises:
        SpecpanelError: the data folder cannot be written.
    """
    key = found.key
    path = calibration_path(key.nope, key.rope, key.v, key.lora)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "w", encoding="utf-8", opener=private_opener) as file:
            file.write(dump(found) + "\n")
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise SpecpanelError(
            f"{path} cannot be written: {error.strerror or error}", "Free the data folder."
        ) from None
    return path
