"""Which setting was meant by a name that is none: vLLM's own word, another section's, or a slip. Pure."""

import difflib

from specpanel.core.settings.drafters import DRAFTERS
from specpanel.core.settings.profile import Profile
from specpanel.core.settings.vllm_names import setting_of_word

# Words that people bring from other engines and from papers; vLLM's own are in vllm_names.
_OTHER_WORDS: dict[str, str] = {
    "draft_tokens": "drafter.k",
    "num_draft_tokens": "drafter.k",
    "spec_tokens": "drafter.k",
    "checkpoint": "drafter.model",
    "draft_model": "drafter.model",
    "type": "drafter.method",
    "drafter": "drafter.method",
    "tp": "engine.tensor_parallel_size",
    "env": "engine.environment",
    "args": "engine.arguments",
    "duration": "traffic.duration_s",
    "rate": "traffic.rate_per_s",
}
_LIST_ALL = "specpanel profile show demo-ngram --full lists them."


def setting_names() -> list[str]:
    """Dotted names of everything that can be set by one value."""
    names: list[str] = []
    for section, info in Profile.model_fields.items():
        model = info.annotation
        if section == "drafter":
            fields = {name: None for drafter in DRAFTERS.values() for name in drafter.model_fields}
            names.extend(f"drafter.{name}" for name in fields)
        elif isinstance(model, type) and hasattr(model, "model_fields"):
            names.extend(f"{section}.{name}" for name in model.model_fields)
    return names


def nearest_setting(name: str) -> str:
    """A fix that names the setting that ``name`` was meant to be, else where to look."""
    known = setting_names()
    section, _, last = name.strip().lower().replace("-", "_").rpartition(".")
    if not last:
        return f"Write it like --set engine.port=8001; {_LIST_ALL}"
    inside = [one.rpartition(".")[2] for one in known if one.startswith(f"{last}.")]
    if not section and inside:
        return f"Settings of {last}: {', '.join(inside)}; write one like {last}.{inside[0]}."
    if f"{section}.{last}" in known:
        return f"Did you mean {section}.{last}?"
    meant = _OTHER_WORDS.get(last) or setting_of_word(last)
    if meant is not None:
        return f"Did you mean {meant}?"
    beside = [one for one in known if one.startswith(f"{section}.")]
    by_last = {one.rpartition(".")[2]: one for one in reversed(beside or known)}
    near = difflib.get_close_matches(last, by_last, n=1)
    if near:
        return f"Did you mean {by_last[near[0]]}?"
    elsewhere = [one for one in known if one.rpartition(".")[2] == last]
    if elsewhere:
        return f"Did you mean {elsewhere[0]}?"
    if beside:
        return f"Known in {section}: {', '.join(one.rpartition('.')[2] for one in beside)}."
    sections = dict.fromkeys(one.partition(".")[0] for one in known)
    return f"Settings are in {', '.join(sections)}, like engine.port; {_LIST_ALL}"
