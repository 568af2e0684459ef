"""From vLLM's names of flags and fields to the settings of a profile. Pure."""

import re
from functools import cache

from specpanel.core.settings.drafters import DRAFTERS
from specpanel.core.settings.profile import SETTINGS_OF_FLAGS
from specpanel.core.settings.rows import rows

# vLLM's fields whose settings are called otherwise.
_OTHER_NAMES: dict[str, str] = {
    "num_speculative_tokens": "drafter.k",
    "num_speculative_tokens_per_batch_size": "drafter.k_by_batch_size",
    "cache_dtype": "mla.kv_cache_dtype",
    "sparse_mla_force_mqa": "mla.force_sparse_mqa",
    "max_seq_len": "target.max_model_len",
}
_PLACES: dict[str, str] = {
    "SpeculativeConfig": "drafter",
    "CacheConfig": "mla",
    "AttentionConfig": "mla",
    "ModelConfig": "target",
}


@cache
def _known() -> tuple[dict[str, str], dict[str, str]]:
    """Settings by flag and by name, ``section.name``; drafters' fields under ``drafter``."""
    flags = dict(SETTINGS_OF_FLAGS)
    flags["--speculative-config"] = flags["-sc"] = "drafter.method"
    names: dict[str, str] = {}
    for row in rows({"target": {"model": "x"}}):
        if row.flag:
            flags.setdefault(row.flag, row.dotted)
        names.setdefault(row.name, row.dotted)
    for drafter in DRAFTERS.values():
        for name in drafter.model_fields:
            names.setdefault(name, f"drafter.{name}")
            names[f"drafter.{name}"] = f"drafter.{name}"
    return flags, names | _OTHER_NAMES


def setting_of_flag(flag: str) -> str | None:
    """The setting behind ``--flag`` or ``--flag/-f`` or ``--flag.key``; None for one that has none."""
    flags, _ = _known()
    for one in flag.split("/"):
        name = one.split(".")[0].split("=")[0].replace("_", "-")
        if name in flags:
            return flags[name]
    return None


def setting_of_word(word: str) -> str | None:
    """The setting that has vLLM's name or flag ``word``, and is called otherwise here."""
    _, names = _known()
    dotted = _OTHER_NAMES.get(word) or setting_of_flag(f"--{word}") or names.get(word)
    return dotted if dotted is not None and dotted.rpartition(".")[2] != word else None


def setting_named_in(place: str, text: str) -> str | None:
    """The first setting that a refusal of vLLM's names.

    Args:
        place: the class of vLLM's that refuses, which tells a drafter's field from a target's.
    """
    _, names = _known()
    section = _PLACES.get(place)
    for word in re.findall(r"[a-z][a-z0-9_]+", text):
        if section and f"{section}.{word}" in names:
            return names[f"{section}.{word}"]
        if word in names and ("_" in word or word in ("dtype", "quantization")):
            return names[word]
    return None
