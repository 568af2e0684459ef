"""Which drafter a checkpoint is, told by its ``config.json`` alone. Pure.

Names of architectures were read from vLLM 0.32.0 (``model_executor/models/registry.py``,
``transformers_utils/configs/eagle.py``) and Speculators 0.9.0 (``speculators_model_type``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specpanel.core.checkpoints.config import ModelConfig

# speculators_model_type → drafter; None: what Speculators trains and vLLM 0.32 cannot serve as it is.
_BY_ALGORITHM: dict[str, str | None] = {
    "eagle3": "eagle3",
    "peagle": "p_eagle",
    "dflash": "dflash",
    "dflash2": "dflash2",
    "dspark": "dspark",
    "mtp": None,
    "xpress": None,
}
_NOT_SERVED: dict[str, str] = {
    "mtp": "MTP layers as Speculators trains them: join them to the target with speculators stitch-mtp",
    "xpress": "an XPress drafter, which vLLM 0.32 cannot serve",
    "mlp_speculator": "an MLP speculator, which vLLM 0.32 reads and cannot run",
}
# The first that fits decides; candidate heads come before the family that they extend.
_BY_ARCHITECTURE: tuple[tuple[str, str], ...] = (
    ("DFlash2", "dflash2"),
    ("LiLiCorr", "dflash2"),
    ("DSpark", "dspark"),
    ("DFlash", "dflash"),
    ("MuseGlimmerAssistant", "dflash"),
    ("PEagle", "p_eagle"),
    ("Peagle", "p_eagle"),
    ("Eagle3", "eagle3"),
    ("Medusa", "medusa"),
    ("MTP", "mtp"),
    ("Eagle", "eagle"),
)
_PARALLEL_TOKENS = ("pard_token", "ptd_token_id")


@dataclass(frozen=True, slots=True)
class Recognised:
    """``method`` is None for a checkpoint that cannot be served as a drafter; ``what`` says what it is."""

    method: str | None
    what: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A checkpoint that was found. ``recognised`` is None for an ordinary model.

    ``name`` is what to write as the drafter's model: the hub id of one in the cache, else its folder.
    ``folder`` and ``verifier`` (the target that it was trained with, where its file names one) are free
    of links, so that equal places are equal.
    """

    name: str
    folder: Path
    config: ModelConfig
    recognised: Recognised | None
    verifier: Path | None = None


def recognise(config: ModelConfig, values: Mapping[str, Any], name: str) -> Recognised | None:
    """The drafter that a checkpoint is; None for an ordinary model, which may still draft for a larger.

    Args:
        values: the same ``config.json``, decoded, for the few marks that are no geometry.
        name: its hub id or the name of its folder.
    """
    algorithm = config.speculators.algorithm if config.speculators else None
    if algorithm is not None:
        return _of_speculators(config, algorithm)
    if config.model_type == "mlp_speculator":
        return Recognised(None, _NOT_SERVED["mlp_speculator"])
    if config.model_type == "medusa" or "medusa_num_heads" in values:
        return Recognised("medusa", "Medusa heads")
    for architecture in config.architectures:
        for mark, method in _BY_ARCHITECTURE:
            if mark in architecture:
                return Recognised(method, architecture)
    if any(values.get(name) is not None for name in _PARALLEL_TOKENS):
        return Recognised("pard", "a model with a token for parallel drafting")
    return _by_name(config, name)


def _of_speculators(config: ModelConfig, algorithm: str) -> Recognised:
    if algorithm not in _BY_ALGORITHM:
        what = f"a drafter of Speculators of the unknown kind {algorithm[:40]}"
        return Recognised(None, what)
    method = _BY_ALGORITHM[algorithm]
    if method is None:
        return Recognised(None, _NOT_SERVED[algorithm])
    version = " 3.1" if method == "eagle3" and "fc_norm" in config.norm_flags else ""
    return Recognised(method, f"trained with Speculators{f', EAGLE{version}' if version else ''}")


def _by_name(config: ModelConfig, name: str) -> Recognised | None:
    """Heads of the first EAGLE releases call themselves a plain one-layer model; their name tells."""
    lower = name.lower()
    if config.layers != 1 or "eagle" not in lower:
        return None
    method = "eagle3" if "eagle3" in lower or config.aux_layers else "eagle"
    return Recognised(method, "one layer, and called EAGLE")
