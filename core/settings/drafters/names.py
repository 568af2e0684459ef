"""Other names that a drafter's method goes by, and names that are none. Pure.

Read from vLLM 0.32.0, ``config/speculative.py`` (``MTPModelTypes``): every model's own MTP method is
deprecated there and becomes ``mtp``.
"""

DEPRECATED_MTP: frozenset[str] = frozenset(
    {
        "bailing_hybrid_mtp",
        "bailing_hybrid_v3_mtp",
        "deepseek_mtp",
        "dots3_note_mtp",
        "ernie_mtp",
        "exaone4_5_mtp",
        "exaone_moe_mtp",
        "gemma4_mtp",
        "glm4_moe_lite_mtp",
        "glm4_moe_mtp",
        "glm5_next_mtp",
        "glm_ocr_mtp",
        "hy_v3_mtp",
        "hy_v4_mtp",
        "inkling_mtp",
        "kimi_k3_mtp",
        "longcat_flash_mtp",
        "mimo_mtp",
        "mimo_v2_mtp",
        "minimax_m3_mtp",
        "nemotron_h_mtp",
        "pangu_ultra_moe_mtp",
        "qwen3_5_mtp",
        "qwen3_next_mtp",
        "qwen4_exp_mtp",
        "step3p5_mtp",
    }
)
# Names from papers, from Speculators and of vLLM's own, and what they are called here.
OTHER_NAMES: dict[str, str] = {
    "peagle": "p_eagle",
    "p-eagle": "p_eagle",
    "custom_class": "custom",
    "fastmtp": "mtp",
    "fast_mtp": "mtp",
    "eagle2": "eagle",
    "eagle3.1": "eagle3",
    "eagle3_1": "eagle3",
    "lilicorr": "dflash2",
}
# Words that vLLM or Speculators know and that launch no drafter; why.
NO_DRAFTERS: dict[str, str] = {
    "mlp_speculator": "vLLM 0.32 reads its configuration and has no code to run it",
    "extract_hidden_states": "it hands hidden states to a trainer and drafts nothing",
    "xpress": "Speculators trains it, and vLLM 0.32 cannot serve it",
}

# What vLLM looks for in the path of the weights, in this order, whenever the method is none of the four
# that it names: even a method that was given is replaced (config/speculative.py:1326).
_KEPT_METHODS: frozenset[str] = frozenset({"eagle", "eagle3", "dflash", "dspark"})
_WORDS_IN_PATHS: tuple[tuple[str, str], ...] = (
    ("eagle-", "eagle"),
    ("eagle3", "eagle3"),
    ("dflash", "dflash"),
    ("dspark", "dspark"),
)


def canonical(method: str) -> str:
    """The name that the method has here; a name that is not known stays as it is."""
    if method in DEPRECATED_MTP:
        return "mtp"
    return OTHER_NAMES.get(method, method)


def name_note(written: str) -> str | None:
    """A sentence about a name that is not the method's own; None where there is nothing to say."""
    if written in DEPRECATED_MTP:
        return f"the drafter {written} is called mtp: vLLM has deprecated the names by model"
    if written in OTHER_NAMES:
        return f"the drafter {written} is called {OTHER_NAMES[written]} here"
    return None


def method_by_path(vllm_method: str, path: str) -> str | None:
    """The method that vLLM takes instead, because of a word in the path of the weights; None for none.

    Args:
        path: the drafter's model, or the target's for ``mtp`` without one.
    """
    if vllm_method in _KEPT_METHODS:
        return None
    lower = path.lower()
    return next((method for word, method in _WORDS_IN_PATHS if word in lower), None)
